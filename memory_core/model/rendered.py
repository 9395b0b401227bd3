"""Templates read backwards: the field values that a rendered body, or a file name, shows.

Programs before this one kept tools and skills as rendered text alone; their counts live nowhere else. Owns
the matching of a body against ``content_template``, spacing aside, and the sums behind the averages it shows.
Promises that what it returns accounts for the whole body; a body of any other shape gives None. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from memory_core.model.schema import PLACEHOLDER, FieldType, FieldValue, MemoryField, MemoryType

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
    for field in memory_type.fields:
        if field.avg is None or values.get(field.avg.sum) is not None:
            continue
        target = memory_type.field(field.avg.sum)
        mean, count = _mean(field, averages.get(field.name)), number(values.get(field.avg.count))
        if target is None or mean is None or count is None or not field.avg.scale:
            continue
        total = mean * count / field.avg.scale
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
