"""What a file of an older store says: its fields in the present format, and a name where it has none.

Owns the reading of trailers that other programs wrote (numbers as text, averages stored as values, no type,
keys under other names) and the naming of a memory from its own words, without a model. Bodies are never
changed. Pure; where the file lies and what becomes of it is ``migrate``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from memory_core.core.errors import FieldRejected
from memory_core.core.memory.field_values import coerce, plain
from memory_core.core.memory.memory import Memory, parse_as
from memory_core.core.memory.memory_type import CONTENT, FieldType, FieldValue, MemoryType, MergeOp, resolve_category
from memory_core.core.memory.metadata import Metadata
from memory_core.core.memory.names import first_words, is_time_field, name_field_of, stem_keys
from memory_core.core.memory.template import behind, missing_sums, number, recover
from memory_core.core.memory.template import render as render_body
from memory_core.core.memory.trailer import body_digest, split
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.text.time_expressions import month_days, time_spans

#: An identifier some program made up: UUID, hexadecimal, ULID, digits.
_IDENTIFIER = re.compile(
    r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}|(?=(?:.*\d){2})[0-9a-f]{8,}|[0-9a-f]{16,}"
    r"|(?=.*\d)[0-9a-hjkmnp-tv-z]{26}|\d+",
    re.IGNORECASE,
)
_PREFIXED = re.compile(
    r"(?P<prefix>mem|memory|entry|item|doc|id|[a-z]{3,12}(?=[_-][0-9a-f]{8}-))[_-](?P<rest>.+)", re.I
)
#: What follows ``mem_`` need only look made up.
_TOKEN = re.compile(r"(?=.*\d)(?=.*[a-z])[0-9a-z]{4,}", re.IGNORECASE)
_YEAR_OR_DAY = re.compile(r"(?:19|20)\d\d(?:(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01]))?")

_NAME_ALIASES = ("name", "title", "topic", "subject")
_TIME_ALIASES = ("date", "time", "timestamp", "occurred_at", "when")
_HEADING = re.compile(r"#{1,6}[ \t]+(?P<text>.+?)[ \t#]*$")
_LABEL = re.compile(r"(?P<label>[^:\uff1a]{2,20})[:\uff1a]\s*(?P<rest>\S.*)")
_OWNER = re.compile(r"^(?:user(?:'s)?\s+|用户)")
_GENERIC = frozenset({"memory", "memories", "content", "summary", "overview", "记忆", "内容", "摘要", "概述"})
_DATED_CHARS = 4_000
#: What a text says without a year says no day of any file.
_NO_DAY = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Reading:
    """A file's memory in the present format.

    Attributes:
        memory: Fields of their declared types, averages left out; the body as it was.
        remarks: What had to be understood rather than read.
    """

    memory: Memory
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Naming:
    """The key of a memory.

    Attributes:
        keys: Values of the type's key fields, where known.
        given: Whether the file itself gives the name as its key.
        why: Where the name comes from, as a phrase.
    """

    keys: Mapping[str, str]
    given: bool
    why: str


def is_random_name(stem: str) -> bool:
    """Whether a file name says nothing: ``mem_8f3a…``, a UUID, a hash, digits that are no year or day."""
    prefixed = _PREFIXED.fullmatch(stem)
    if prefixed is not None:
        of_memory = prefixed["prefix"].casefold().startswith("mem")
        return is_random_name(prefixed["rest"]) or (of_memory and _TOKEN.fullmatch(prefixed["rest"]) is not None)
    return _IDENTIFIER.fullmatch(stem) is not None and _YEAR_OR_DAY.fullmatch(stem) is None


def understand(memory_type: MemoryType, uri: MemoryUri, text: str) -> Reading:
    """Read a file of the present or an older format.

    Args:
        memory_type: The type it belongs to.
        uri: Where it is.
        text: All of it; its trailer is sound or missing.
    """
    memory, file = parse_as(uri, text, memory_type), split(text)
    # What a reader makes up for a file without key is not what the file says.
    memory = replace(memory, fields={name: memory.fields[name] for name in file.trailer or {} if name in memory.fields})
    body, remarks = memory.body, []
    if not memory_type.template_mode and not file.body.strip() and body.strip():
        remarks.append("the text was in the trailer")
    fields, kept = _coerced(memory_type, memory.fields)
    remarks += [f"{name} is no {kind}; kept as it was" for name, kind in kept]
    fields |= {} if memory_type.template_mode else {CONTENT: body}
    meta = _sound_meta(memory.metadata)
    if memory_type.template_mode and body.strip() and "rendered_sha256" not in meta:
        same = " ".join(render_body(memory_type, fields).split()) == " ".join(body.split())
        rendered = dict(fields) if same else behind(memory_type, fields, body)
        if rendered is None:
            remarks.append("the text differs from the fields and stays as a hand edit")
        else:
            if len(rendered) > len(fields):
                remarks.append("counts and fields read from the text")
            fields, meta = rendered, meta | {"rendered_sha256": body_digest(body)}
    fields |= missing_sums(memory_type, fields, memory.fields) if memory_type.template_mode else {}
    return Reading(replace(memory, fields=fields, metadata=Metadata(meta), body=body), tuple(remarks))


def is_rendering(memory_type: MemoryType, body: str) -> bool:
    """Whether a body without trailer is what a program rendered, not what a person wrote."""
    return memory_type.template_mode and bool(recover(memory_type, body))


def name_of(memory_type: MemoryType, reading: Reading, stem: str) -> Naming | None:
    """The key of a memory: its key fields, else other keys of its trailer, its file name, heading or first words.

    Returns:
        None if nothing in the file makes a name.
    """
    memory = reading.memory
    keys = {
        key: plain(value).strip() for key in memory_type.key_fields if (value := memory.fields.get(key)) is not None
    }
    keys = {key: value for key, value in keys.items() if value and not _made_up(memory_type, memory, value, stem)}
    name_field = name_field_of(memory_type)
    if name_field in keys:
        return Naming(keys, True, f"its {name_field}")
    from_stem = {} if is_random_name(stem) else stem_keys(memory_type, stem)
    for key in memory_type.key_fields:
        if key != name_field and key not in keys and is_time_field(key):
            found = from_stem.get(key) or _known_day(memory, key) or day_in(memory.body[:_DATED_CHARS])
            keys |= {key: found} if found else {}
    for name, why in _names(memory_type, memory, from_stem.get(name_field)):
        if any(char.isalpha() for char in name) and not is_random_name(name):
            return Naming({**keys, name_field: name}, False, why)
    return None


def _made_up(memory_type: MemoryType, memory: Memory, key: str, stem: str) -> bool:
    """Whether a key is a random file name, which an edit before the migration wrote down for want of a better."""
    created_here = "source" in memory.metadata or memory_type.template_mode
    return not created_here and key == stem and is_random_name(stem)


def day_in(text: str) -> str | None:
    """The first calendar day that a text names, else the first month: ``2026-03-17``, ``2026-03``, or None."""
    spans = [span for span in time_spans(text, _NO_DAY) if not span.relative]
    for span in spans:
        if span.start == span.end:
            return span.start.isoformat()
    months = (span.start for span in spans if (span.start, span.end) == month_days(span.start.year, span.start.month))
    return next((f"{month:%Y-%m}" for month in months), None)


def _names(memory_type: MemoryType, memory: Memory, stem_name: str | None) -> Iterator[tuple[str, str]]:
    """Names to try with where each comes from, best first."""
    known = {**memory.unknown, **memory.metadata}
    root = name_field_of(memory_type).partition("_")[0]
    for alias in dict.fromkeys((root, *_NAME_ALIASES)):
        value = known.get(alias)
        if isinstance(value, str) and value.strip():
            yield first_words(value, limit_chars=120), f"'{alias}' in its trailer"
    if stem_name:
        yield stem_name, "its file name"
    heading, rest = _heading(memory_type, memory.body)
    if heading:
        yield heading, "its heading"
    abstract = memory.metadata.get("abstract")
    if isinstance(abstract, str):
        yield first_words(abstract), "its abstract"
    yield first_words(rest), "its first words"


def _heading(memory_type: MemoryType, body: str) -> tuple[str, str]:
    """The heading a text opens with, and the text below headings that only name its type."""
    lines = body.splitlines()
    for index, line in enumerate(lines):
        if not line.strip():
            continue
        match = _HEADING.fullmatch(line.strip())
        if match is None:
            return "", "\n".join(lines[index:])
        text = match["text"]
        labelled = _LABEL.fullmatch(text)
        if labelled is not None and _is_label(memory_type, labelled["label"]):
            text = labelled["rest"]
        if not _is_label(memory_type, text):
            return first_words(text, limit_chars=120), "\n".join(lines[index + 1 :])
    return "", ""


def _is_label(memory_type: MemoryType, text: str) -> bool:
    word = _OWNER.sub("", text.strip().casefold())
    return word in _GENERIC or resolve_category(word) == memory_type.name


def _known_day(memory: Memory, key: str) -> str | None:
    known = {**memory.unknown, **memory.metadata}
    for alias in (f"{key.partition('_')[0]}_date", *_TIME_ALIASES):
        value = known.get(alias)
        found = day_in(value) if isinstance(value, str) else None
        if found is not None:
            return found
    return None


def _coerced(
    memory_type: MemoryType, stored: Mapping[str, FieldValue]
) -> tuple[dict[str, FieldValue], list[tuple[str, FieldType]]]:
    """Declared fields as their types, without averages; and those that would not become so."""
    fields: dict[str, FieldValue] = {}
    kept: list[tuple[str, FieldType]] = []
    for name, value in stored.items():
        field = memory_type.field(name)
        if field is None or field.merge_op is MergeOp.AVG:
            continue
        if field.type in (FieldType.INT64, FieldType.FLOAT32) and isinstance(value, str):
            if not value.strip():
                continue
            found = number(value)
            value = value if found is None else found
        try:
            fields[name] = coerce(field, value)
        except FieldRejected:
            fields[name] = value
            kept.append((name, field.type))
    return fields, kept


def _sound_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Reserved keys as the types they have here; what is not understood stays."""
    sound = dict(meta)
    if isinstance(tags := sound.get("tags"), str):
        sound["tags"] = [tag.strip() for tag in re.split(r"[,;\uff0c\uff1b、]", tags) if tag.strip()]
    for name in ("salience", "confidence", "version"):
        found = number(sound[name]) if isinstance(sound.get(name), str) else None
        if found is not None:
            sound[name] = int(found) if name == "version" else found
    return sound
