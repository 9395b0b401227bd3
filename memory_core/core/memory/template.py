"""Rendering a memory's body from its fields (template mode).

Owns ``{field}`` substitution and number formats. Values go in literally and in one pass: nothing inside a
value is expanded, no attribute is read, no code runs. Does not merge or store.
"""

from __future__ import annotations

from collections.abc import Mapping

from memory_core.core.commit.merge_fields import coerce, derive, plain
from memory_core.core.errors import FieldRejected, SchemaInvalid
from memory_core.core.memory.memory import CONTENT
from memory_core.core.memory.memory_type import FORMAT, PLACEHOLDER, FieldType, FieldValue, MemoryField, MemoryType

NOT_AVAILABLE = "n/a"
_DECIMALS = 6


def check_format(format: str) -> None:
    """Refuse a number format outside the whitelist: one ``{:.Nf}``, ``{:d}`` or the like, in literal text.

    Raises:
        SchemaInvalid: For anything else, such as ``{0.__class__}`` or ``{:>1000000}``.
    """
    if FORMAT.fullmatch(format) is None:
        raise SchemaInvalid(
            f"The format {format!r} is not allowed.",
            hint="Use one of {:.1f} (0 to 9 decimals), {:d}, {:,d}, {:,.2f}, with plain text around it.",
        )


def render(memory_type: MemoryType, values: Mapping[str, FieldValue]) -> str:
    """The body of a memory.

    A missing value renders empty, an average without a count ``n/a``. White space that an empty value leaves
    at the end of a line, or of the whole body, goes with it; that of values stays.

    Args:
        memory_type: Its ``content_template`` is filled; without one the body is the ``content`` field.
        values: Stored fields; averages are derived, never taken from here.

    Raises:
        SchemaInvalid: If a field's format is not allowed.
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
    return _formatted(field.format, number)


def _value_text(field: MemoryField, value: FieldValue) -> str:
    if field.format is None:
        return plain(value)
    try:
        number = coerce(field, value)
    except FieldRejected:
        # A hand edit may hold anything; it is shown, not hidden.
        return plain(value)
    return plain(number) if isinstance(number, str) else _formatted(field.format, number)


def _formatted(format: str, number: float) -> str:
    check_format(format)
    return format.format(number)


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
