"""A memory as its type sees it: declared fields, metadata, and what nobody declared.

Maps between a parsed file and the fields that merging works on. Simple mode: the body *is* ``content``.
Template mode: the body is rendered, and a body that no longer is what was rendered is a hand edit.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from memory_core.core.memory.memory_type import (
    PLACEHOLDER,
    RESERVED_KEYS,
    FieldType,
    FieldValue,
    MemoryField,
    MemoryType,
)
from memory_core.core.memory.metadata import read_moment
from memory_core.core.memory.names import key_of
from memory_core.core.memory.project import project_key, stored_project

_OPEN = "<!-- MEMORY_FIELDS\n"
#: As an editor (carriage returns) or an older program (one line) may have left it.
_OPENING = re.compile(r"^<!--[ \t]*MEMORY_FIELDS(?:[ \t]*\r?\n|[ \t]*(?=\{))", re.MULTILINE)
_NESTED = "fields"
_CLOSE = "\n-->"
_DEPTH_LIMIT = 100
_GAP = "\n\n"


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """A parsed file.

    Attributes:
        body: The Markdown above the trailer, exactly as stored.
        trailer: The trailer's JSON object in file order, or None when the file has none.
        damage: Why a trailer that is present could not be read, or None. The whole text is then the body.
    """

    body: str
    trailer: Mapping[str, Any] | None = None
    damage: str | None = None

    @property
    def type_name(self) -> str | None:
        """The memory type that the trailer names, or None."""
        named = (self.trailer or {}).get("memory_type")
        return named if isinstance(named, str) else None


def parse(text: str) -> MemoryFile:
    """Split a file's text; never fails: what is not a sound trailer belongs to the body."""
    openings = list(_OPENING.finditer(text))
    if not openings:
        return MemoryFile(text)
    opening = openings[-1]
    block = text[opening.end() :].rstrip()
    if not block.endswith(_CLOSE.strip()):
        return MemoryFile(text, damage=_buried(block))
    try:
        trailer = json.loads(block.removesuffix(_CLOSE.strip()))
    except (ValueError, RecursionError) as error:
        return MemoryFile(text, damage=f"the MEMORY_FIELDS trailer is not valid JSON: {error}")
    if not isinstance(trailer, dict):
        return MemoryFile(text, damage="the MEMORY_FIELDS trailer is not a JSON object")
    if not _can_be_dumped(trailer):
        return MemoryFile(
            text, damage="the MEMORY_FIELDS trailer holds what no file can: half a character, NaN, deep nesting"
        )
    trailer = _flat(trailer)
    body = text[: opening.start()]
    for gap in (_GAP, "\r\n\r\n", "\r\n", "\n"):
        if body.endswith(gap):
            return MemoryFile(body.removesuffix(gap), trailer)
    return MemoryFile(body, trailer)


def _flat(trailer: dict[str, Any]) -> dict[str, Any]:
    """The trailer with the members of a nested ``fields`` beside the others; what clashes stays nested."""
    while isinstance(nested := trailer.get(_NESTED), dict):
        rest = {name: value for name, value in trailer.items() if name != _NESTED}
        clashing = {name: value for name, value in nested.items() if name in rest and rest[name] != value}
        trailer = {name: value for name, value in nested.items() if name not in rest} | rest
        if clashing:
            return trailer | {_NESTED: clashing}
    return trailer


def _buried(block: str) -> str | None:
    """Damage, when a real trailer is followed by text that somebody added at the end of the file."""
    head, closed, _ = block.partition(_CLOSE)
    try:
        trailer = json.loads(head) if closed else None
    except (ValueError, RecursionError):
        return None  # an example of a trailer, not one
    if isinstance(trailer, dict) and "memory_type" in trailer:
        return "there is text below the MEMORY_FIELDS trailer, which must come last"
    return None


def _can_be_dumped(trailer: Mapping[str, Any]) -> bool:
    try:
        json.dumps(trailer, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (ValueError, RecursionError):
        return False
    # ``dump`` indents, which json does by recursion.
    layer: list[Any] = [trailer]
    for _ in range(_DEPTH_LIMIT):
        layer = [item for value in layer for item in _items(value)]
        if not layer:
            return True
    return False


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def dump(file: MemoryFile) -> str:
    """Write the file's text; a file without a trailer is its body unchanged."""
    if file.trailer is None:
        return file.body
    block = json.dumps(file.trailer, ensure_ascii=False, indent=2, allow_nan=False)
    # json.dumps leaves lone surrogates as they are with ensure_ascii=False; no file could hold them.
    block = block.replace("<", "\\u003c").replace(">", "\\u003e")
    return f"{file.body}{_GAP}{_OPEN}{block}{_CLOSE}\n"


_SPACE = re.compile(r"(\s+)")
_NUMBER = re.compile(r"([+-]?(?:\d[\d,]*)?\.?\d+)\s*(ms|s|%|)")
_TIME_FIELD = re.compile(r"(?:^|_)(?:date|time|day)$")
_DATED = re.compile(r"(\d{4}(?:-\d{2}(?:-\d{2})?)?)[_ -]+(.+)")
_ABSENT = frozenset({"", "n/a"})
_MILLI = 0.001
_PERCENT = 100.0
_INT64_MAX = 2**63 - 1


def captured(memory_type: MemoryType, body: str) -> dict[str, str] | None:
    """The text at each placeholder of the template; empty where nothing, or ``n/a``, is shown.

    Returns:
        None if the body is not of the template's shape, or shows two values for one field.
    """
    literals = PLACEHOLDER.split(memory_type.content_template or "")
    names = literals[1::2]
    del literals[1::2]
    begin = _literal(literals[0]).match(body, len(body) - len(body.lstrip()))
    if not names or begin is None:
        return None
    shown: dict[str, str] = {}
    at = begin.end()
    for index, name in enumerate(names, start=1):
        start, end = _next(literals[index:], body, at)
        if start is None:
            return None
        text = body[at:start].strip()
        text = "" if text.casefold() in _ABSENT else _unlabelled(name, text)
        if shown.setdefault(name, text) != text:
            return None
        at = end
    return None if body[at:].strip() else shown


def recover(memory_type: MemoryType, body: str) -> dict[str, FieldValue] | None:
    """The stored fields behind a rendered body.

    A sum that is not shown follows from its average and count, to the precision that the average was shown in.

    Returns:
        None if the body is not a rendering of this type, or shows words where a number belongs.
    """
    shown = captured(memory_type, body)
    if shown is None:
        return None
    values: dict[str, FieldValue] = {}
    for name, text in shown.items():
        field = memory_type.field(name)
        if field is None or field.avg is not None or not text:
            continue
        value = text if field.type is FieldType.STRING else _value(field, text)
        if value is None:
            return None
        values[name] = value
    return values | missing_sums(memory_type, values, shown)


def behind(memory_type: MemoryType, fields: Mapping[str, FieldValue], body: str) -> dict[str, FieldValue] | None:
    """All stored fields behind a body: those known from a trailer, and those that only the body shows.

    Args:
        memory_type: In template mode.
        fields: What the trailer holds; numbers may be text.
        body: A rendered body, perhaps changed since.

    Returns:
        None if the body is no rendering, or shows another value than ``fields``: a person changed one of them.
    """
    shown, recovered = captured(memory_type, body), recover(memory_type, body)
    if shown is None or not recovered:
        return None
    for name, value in fields.items():
        field = memory_type.field(name)
        if name in shown and field is not None and field.avg is None:
            numeric = field.type in (FieldType.INT64, FieldType.FLOAT32)
            same = number(value) == recovered.get(name) if numeric else str(value).split() == shown[name].split()
            if not same:
                return None
    return {**recovered, **fields}


def missing_sums(
    memory_type: MemoryType, values: Mapping[str, object], averages: Mapping[str, object]
) -> dict[str, FieldValue]:
    """The sums that ``values`` lacks and an average tells: ``average * count / scale``.

    Args:
        memory_type: Declares which average belongs to which sum and count.
        values: Stored fields, the counts among them.
        averages: What is known of the averages, as numbers or as they are shown: ``1.2s``, ``150ms``, ``92.0%``.
    """
    sums: dict[str, FieldValue] = {}
    for declared in memory_type.fields:
        if declared.avg is None or values.get(declared.avg.sum) is not None:
            continue
        target = memory_type.field(declared.avg.sum)
        mean, count = _mean(declared, averages.get(declared.name)), number(values.get(declared.avg.count))
        if target is None or mean is None or count is None or not declared.avg.scale:
            continue
        total = mean * count / declared.avg.scale
        if abs(total) <= _INT64_MAX:
            sums[target.name] = round(total) if target.type is FieldType.INT64 else total
    return sums


def is_time_field(name: str) -> bool:
    """Whether a key field holds a date or time, going by its name."""
    return _TIME_FIELD.search(name) is not None


def name_field_of(memory_type: MemoryType) -> str:
    """The last key field that is no date; the type must have a key.

    Raises:
        IndexError: If it has none.
    """
    named = [key for key in memory_type.key_fields if not is_time_field(key)]
    return (named or list(memory_type.key_fields))[-1]


def stem_keys(memory_type: MemoryType, stem: str) -> dict[str, str]:
    """The key fields that a file name shows: the whole of it, less a date in front where the type has one."""
    name_field = name_field_of(memory_type)
    first = memory_type.key_fields[0]
    if first != name_field and is_time_field(first):
        dated = _DATED.fullmatch(stem)
        if dated is not None:
            return {first: dated[1], name_field: dated[2]}
    return {name_field: stem}


def _mean(field: MemoryField, value: object) -> float | None:
    """An average as its field shows it; a share from 0 to 1 without a percent sign is of the whole."""
    found = number(value)
    share = field.avg is not None and field.avg.scale == _PERCENT and not (isinstance(value, str) and "%" in value)
    return found * _PERCENT if share and found is not None and 0.0 <= found <= 1.0 else found


def number(value: object) -> float | None:
    """The number that a value is or shows, in its field's unit; milliseconds count as seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if abs(value) <= _INT64_MAX else None
    match = _NUMBER.fullmatch(value.strip()) if isinstance(value, str) and len(value) <= 64 else None
    if match is None:
        return None
    return float(match[1].replace(",", "")) * (_MILLI if match[2] == "ms" else 1.0)


def _unlabelled(name: str, text: str) -> str:
    """The text without a first line that only repeats its field's name: ``Guidelines:``."""
    first, _, rest = text.partition("\n")
    return rest.lstrip("\n") if rest and first.strip().casefold() == f"{name}:" else text


def _value(field: MemoryField, text: str) -> FieldValue | None:
    if field.type is FieldType.BOOL:
        return {"true": True, "false": False}.get(text.casefold())
    found = number(text)
    if found is None or (field.type is FieldType.INT64 and not found.is_integer()):
        return None
    return int(found) if field.type is FieldType.INT64 else found


def _next(literals: list[str], body: str, at: int) -> tuple[int | None, int]:
    """Where the next literal begins and ends; white space at the template's end may be missing."""
    if not "".join(literals).strip():
        match = _literal(literals[0]).search(body, at) if literals[0] else None
        return (len(body), len(body)) if match is None else match.span()
    if not literals[0]:
        return None, at  # two values side by side cannot be told apart
    match = _literal(literals[0]).search(body, at)
    return (None, at) if match is None else match.span()


def _literal(text: str) -> re.Pattern[str]:
    """The literal with its spacing loosened: lines stay lines, the rest may be broken otherwise."""
    pieces = _SPACE.split(text)
    patterns: list[str] = []
    for index, piece in enumerate(pieces):
        if index % 2 == 0:
            patterns.append(re.escape(piece))
        elif "\n" in piece:
            blank = r"\s*\n\s*" if piece.count("\n") > 1 else ""
            patterns.append(r"[ \t\r]*\n[ \t\r]*" + blank)
        else:
            outer = (index == 1 and not pieces[0]) or (index == len(pieces) - 2 and not pieces[-1])
            patterns.append(r"[ \t]*" if outer else r"\s+")
    return re.compile("".join(patterns))


CONTENT = "content"
_FIRST_WORDS = 12


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """One memory.

    Attributes:
        fields: Declared fields that are set; in simple mode ``content`` is the body.
        meta: Reserved keys (``salience``, ``created_at``, …), without ``memory_type``.
        unknown: Trailer keys that are neither; kept as they are.
        body: The Markdown body as stored.
        hand_edited: In template mode, whether a person changed the rendered body.
    """

    fields: Mapping[str, FieldValue]
    meta: Mapping[str, Any] = field(default_factory=dict)
    unknown: Mapping[str, Any] = field(default_factory=dict)
    body: str = ""
    hand_edited: bool = False


def body_digest(body: str) -> str:
    """Sixteen hexadecimal digits that tell whether a rendered body was touched."""
    return hashlib.sha256(body.encode("utf-8")).hexdigest()[:16]


def read_record(memory_type: MemoryType, file: MemoryFile, stem: str) -> MemoryRecord:
    """The record in a parsed file.

    Args:
        memory_type: The type the file belongs to.
        file: The parsed file; without a trailer it is hand-written.
        stem: The file name without ``.md``; names a memory whose trailer holds no key.

    A rendered body without ``rendered_sha256`` comes from an older program: what it shows counts as stored.
    """
    trailer = dict(file.trailer or {})
    trailer.pop("memory_type", None)
    declared = {name.name for name in memory_type.fields}
    fields = {name: value for name, value in trailer.items() if name in declared and value is not None}
    meta = {name: value for name, value in trailer.items() if name in RESERVED_KEYS}
    unknown = {name: value for name, value in trailer.items() if name not in declared and name not in meta}
    rendered = meta.get("rendered_sha256")
    known = behind(memory_type, fields, file.body) if memory_type.template_mode and rendered is None else None
    fields = known or fields
    if memory_type.key_fields and not any(str(fields.get(key, "")).strip() for key in memory_type.key_fields):
        fields |= stem_keys(memory_type, stem)
    if memory_type.template_mode:
        edited = known is None and bool(file.body.strip()) and rendered != body_digest(file.body)
        return MemoryRecord(fields, meta, unknown, file.body, edited)
    return MemoryRecord({**fields, CONTENT: file.body}, meta, unknown, file.body)


def write_record(memory_type: MemoryType, record: MemoryRecord) -> MemoryFile:
    """The file that holds the record; the trailer lists fields, then metadata, then unknown keys."""
    in_body = () if memory_type.template_mode else (CONTENT,)
    trailer: dict[str, Any] = {
        declared.name: record.fields[declared.name]
        for declared in memory_type.fields
        if declared.name in record.fields and declared.name not in in_body and declared.avg is None
    }
    trailer["memory_type"] = memory_type.name
    trailer |= {name: record.meta[name] for name in RESERVED_KEYS if record.meta.get(name) is not None}
    trailer |= {name: value for name, value in record.unknown.items() if name not in trailer}
    return MemoryFile(record.body, trailer)


def record_key(memory_type: MemoryType, record: MemoryRecord) -> str:
    """The normalised key that makes two records the same memory; memories of two projects are never the same."""
    project = stored_project(memory_type, record.meta)
    return project_key(project, key_of(record.fields, memory_type.key_fields))


def next_version(stored: Any) -> int:
    """One more than the stored version; a hand edit may have left anything there."""
    sound = isinstance(stored, int) and not isinstance(stored, bool) and stored > 0
    return stored + 1 if sound else 1


def changed_at(meta: Mapping[str, Any]) -> datetime | None:
    """When a memory was last changed, aware; None where its trailer does not say."""
    return read_moment(meta.get("updated_at") or meta.get("created_at"))


def line_of(file: MemoryFile) -> str:
    """What a file says of itself: its abstract, a segment's summary, else its body."""
    trailer = file.trailer or {}
    said = (trailer.get(name) for name in ("abstract", "summary"))
    return next((line for line in said if isinstance(line, str) and line.strip()), file.body)


def first_words(text: str, limit_chars: int = 60) -> str:
    """A name for a text that has none: its first words, or first characters where there are no spaces."""
    line = next((line.strip(" #*->`\t") for line in text.splitlines() if line.strip(" #*->`\t")), "")
    words = " ".join(line.split()[:_FIRST_WORDS])
    for mark in ("。", "！", "？", ". ", "! ", "? "):
        words = words.split(mark, 1)[0]
    if len(words) > limit_chars:
        cut = words[:limit_chars]
        words = cut.rsplit(" ", 1)[0] if " " in cut else cut
    return words.rstrip(" .,;:，。；：、")


def summary_line(text: str, limit_chars: int) -> str:
    """The first sentence or so of a text on one line, at most ``limit_chars`` characters."""
    flat = " ".join(text.split())
    if len(flat) <= limit_chars:
        return flat
    cut = flat[: limit_chars - 1]
    return (cut.rsplit(" ", 1)[0] if " " in cut[limit_chars // 2 :] else cut) + "…"
