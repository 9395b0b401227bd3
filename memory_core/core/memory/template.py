"""A memory's body as it follows from its fields, and the fields read back from a body.

In template mode the body is rendered; in simple mode it is the field ``content``, which is composed of the other
texts where it was not given, and follows them when they change. Values go in literally and in one pass: nothing inside
a value is expanded, no attribute is read, no code runs. Reading back serves bodies that an older program rendered
without noting so. Does not merge or store.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from memory_core.core.errors import FieldRejected
from memory_core.core.memory.field_values import coerce, derive, plain
from memory_core.core.memory.memory_type import (
    CONTENT,
    PLACEHOLDER,
    FieldType,
    FieldValue,
    MemoryField,
    MemoryType,
    MergeOp,
)
from memory_core.core.text.analysis import word_count

NOT_AVAILABLE = "n/a"
_DECIMALS = 6
_MARKS = " \t\r-*+•"
_LINE = re.compile(r"(?m)^([ \t]*)((?:.*[^ \t\n])?)([ \t]*)$")
#: A shorter value may stand in a text by chance.
_TELLING_BYTES = 10
#: A label, such as a date or a kind, holds fewer words.
_SAYING_WORDS = 4

#: What stands before and behind values within the lines of a body.
Frames = frozenset[tuple[str, str]]


def render(memory_type: MemoryType, values: Mapping[str, FieldValue]) -> str:
    """The body of a memory.

    A missing value renders empty, an average without a count ``n/a``. White space that an empty value leaves
    at the end of a line, or of the whole body, goes with it; that of values stays.

    Args:
        memory_type: Its ``content_template`` is filled; without one the body is the ``content`` field.
        values: Stored fields; averages are derived, never taken from here.
    """
    if memory_type.content_template is None:
        return plain(values.get(CONTENT, ""))
    texts = _texts(memory_type, values)
    lines = [_filled(line, texts) for line in memory_type.content_template.split("\n")]
    last = memory_type.content_template.rpartition("\n")[2]
    if not lines[-1] and PLACEHOLDER.search(last):
        while lines and not lines[-1]:
            lines.pop()
    return "\n".join(lines)


def composed(memory_type: MemoryType, values: Mapping[str, FieldValue]) -> str:
    """The content of a memory in simple mode that was given none: its other texts."""
    texts = (plain(values.get(name, "")) for name in _texts_beside(memory_type))
    return "\n\n".join(text for text in texts if text.strip())


def followed(
    memory_type: MemoryType, before: Mapping[str, FieldValue], after: Mapping[str, FieldValue]
) -> Mapping[str, FieldValue]:
    """Fields in simple mode whose content follows the texts that changed beside it.

    Content that was composed is composed anew. In one that somebody wrote, a value that stands there is exchanged where
    it is a paragraph or a line of its own, or stands there once and is too long to do so by chance; else the new text
    is added below. Content that was given itself stays.
    """
    content = plain(after.get(CONTENT, ""))
    if not content or content != plain(before.get(CONTENT, "")):
        return after
    if content.strip() == composed(memory_type, before).strip():
        return {**after, CONTENT: composed(memory_type, after)}
    for name in _texts_beside(memory_type, MergeOp.PATCH, MergeOp.REPLACE):
        old, new = plain(before.get(name, "")).strip(), plain(after.get(name, "")).strip()
        if old != new and old and new:
            content = _exchanged(content, old, new)
    added = [plain(after[name]).strip() for name in unshown(memory_type, content, before, after)]
    return {**after, CONTENT: "\n\n".join([content, *added])}


def unshown(
    memory_type: MemoryType, body: str, before: Mapping[str, FieldValue], after: Mapping[str, FieldValue]
) -> list[str]:
    """Names of the fields that changed to a value which the body does not show; in simple mode, of its texts."""
    names = [field.name for field in memory_type.fields] if memory_type.template_mode else _texts_beside(memory_type)
    told = {name: plain(after.get(name, "")).strip() for name in names if after.get(name) != before.get(name)}
    if not memory_type.template_mode:
        # a label such as a task's state was never part of the text
        told = {name: text for name, text in told.items() if is_telling(text) and plain(before.get(name, "")).strip()}
    return [name for name, text in told.items() if text not in body]


def text_names(memory_type: MemoryType) -> frozenset[str]:
    """The texts beside the key that a body may show: all of a rendered one; a label is no part of what is written."""
    if not memory_type.template_mode:
        return frozenset(_texts_beside(memory_type))
    placed = PLACEHOLDER.findall(memory_type.content_template or "")
    texts = (field.name for field in memory_type.fields if field.type is FieldType.STRING and field.name in placed)
    return frozenset(texts).difference(memory_type.key_fields)


def text_frames(memory_type: MemoryType, values: Mapping[str, FieldValue]) -> Frames:
    """What a template has before and behind its values within a line, such as a label; filled, without outer marks."""
    texts = _texts(memory_type, values)
    found: set[tuple[str, str]] = set()
    for line in (memory_type.content_template or "").split("\n"):
        parts = PLACEHOLDER.split(line)
        pieces = [texts.get(part, "") if at % 2 else part for at, part in enumerate(parts)]
        ends = range(1, len(pieces), 2)
        found |= {(bare("".join(pieces[:at])), bare("".join(pieces[at + 1 :]))) for at in ends}
    return frozenset(found - {("", "")})


def bare(line: str) -> str:
    """A line, or a sentence of it, without the marks of a list and blanks around it."""
    return line.strip(_MARKS)


def _texts_beside(memory_type: MemoryType, *merge_ops: MergeOp) -> list[str]:
    """The texts beside key and content that merge like this; without merge operations those that are patched."""
    return [
        field.name
        for field in memory_type.fields
        if field.merge_op in (merge_ops or (MergeOp.PATCH,))
        and field.type is FieldType.STRING
        and field.name not in (CONTENT, *memory_type.key_fields)
    ]


def _exchanged(content: str, old: str, new: str) -> str:
    if old not in content:
        return content
    framed, wanted = _framed(content), _framed(old)
    if framed.count(wanted) == 1:
        first = framed[: framed.index(wanted)].count("\n") // 3
        lines = content.split("\n")
        lines[first : first + old.count("\n") + 1] = [new]
        return "\n".join(lines)
    return content.replace(old, new) if is_telling(old) and content.count(old) == 1 else content


def _framed(text: str) -> str:
    """The text with a line feed on either side of what stands in a line between its outer blanks: three a line."""
    return _LINE.sub(r"\1\n\2\n\3", text)


def says(body: str, text: str) -> bool:
    """Whether a text that stands in a body says something there: a line of its own does, and so many words."""
    words = word_count(text)
    return words >= _SAYING_WORDS or (words > 1 and _framed(text) in _framed(body))


def is_telling(text: str) -> bool:
    """Whether a text is too long to stand in another one by chance."""
    return len(text.encode("utf-8")) >= _TELLING_BYTES


def _texts(memory_type: MemoryType, values: Mapping[str, FieldValue]) -> dict[str, str]:
    averages = derive(memory_type, values)
    texts: dict[str, str] = {}
    for field in memory_type.fields:
        if field.name in averages:
            mean = averages[field.name]
            texts[field.name] = NOT_AVAILABLE if mean is None else _average_text(field, mean)
        else:
            value = values.get(field.name)
            texts[field.name] = "" if value is None else _value_text(field, value)
    return texts


def _average_text(field: MemoryField, mean: float) -> str:
    number: int | float = round(mean) if field.type is FieldType.INT64 else mean
    if field.format is None:
        return plain(round(number, _DECIMALS))
    return field.format.format(number)


def _value_text(field: MemoryField, value: FieldValue) -> str:
    if field.format is None:
        return plain(value)
    try:
        number = coerce(field, value)
    except FieldRejected:
        # A hand edit may hold anything; it is shown, not hidden.
        return plain(value)
    return plain(number) if isinstance(number, str) else field.format.format(number)


def _filled(line: str, texts: Mapping[str, str]) -> str:
    """One template line with its values; unknown placeholders stay as they are."""
    parts = PLACEHOLDER.split(line)
    pieces = [texts.get(part, f"{{{part}}}") if at % 2 else part for at, part in enumerate(parts)]
    end = len(pieces)
    emptied = False
    while end:
        is_value = end % 2 == 0
        if pieces[end - 1] if is_value else pieces[end - 1].strip(" \t"):
            break
        emptied = emptied or is_value
        end -= 1
    if not emptied:
        return "".join(pieces)
    if end % 2:
        pieces[end - 1] = pieces[end - 1].rstrip(" \t")
    return "".join(pieces[:end])


_SPACE = re.compile(r"(\s+)")
#: No rendering holds so much white space at once, and looking for literals would try each part of it.
_LONG_SPACE = re.compile(r"\s{200}")

_NUMBER = re.compile(r"([+-]?(?:\d[\d,]*)?\.?\d+)\s*(ms|s|%|)")


_ABSENT = frozenset({"", "n/a"})

_MILLI = 0.001

_PERCENT = 100.0

_INT64_MAX = 2**63 - 1


def captured(memory_type: MemoryType, body: str) -> dict[str, str] | None:
    """The text at each placeholder of the template; empty where nothing, or ``n/a``, is shown.

    Returns:
        None if the body is not of the template's shape, or shows two values for one field.
    """
    if _LONG_SPACE.search(body):
        return None
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
    return _recovered(memory_type, captured(memory_type, body))


def _recovered(memory_type: MemoryType, shown: Mapping[str, str] | None) -> dict[str, FieldValue] | None:
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
    shown = captured(memory_type, body)
    recovered = _recovered(memory_type, shown)
    if shown is None or not recovered:
        return None
    for name, value in fields.items():
        field = memory_type.field(name)
        if name in shown and field is not None and field.avg is None:
            numeric = field.type in (FieldType.INT64, FieldType.FLOAT32)
            said = _value_text(field, value)
            same = number(said) == recovered.get(name) if numeric else said.split() == shown[name].split()
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
            patterns.append(r"[ \t\r]*\n" + (r"(?:[^\S\n]*+\n)++\s*+" if piece.count("\n") > 1 else r"[ \t\r]*+"))
        else:
            outer = (index == 1 and not pieces[0]) or (index == len(pieces) - 2 and not pieces[-1])
            patterns.append(r"[ \t]*" if outer else r"\s+")
    return re.compile("".join(patterns))
