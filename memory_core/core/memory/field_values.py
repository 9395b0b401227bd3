"""Field values: what a given value means as a field's declared type, and the averages that follow from stored ones.

Pure. Merging is ``commit.merge_fields``, rendering is ``template``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import cast

from memory_core.core.errors import FieldRejected
from memory_core.core.memory.memory_type import DATE_FORMAT, FieldType, FieldValue, MemoryField, MemoryType, MergeOp
from memory_core.core.text.unicode_form import unicode_form

_INT64_MIN = -(2**63)

_INT64_MAX = 2**63 - 1

_FLOAT32_MAX = 3.4028234663852886e38

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")

_NUMBER_LIMIT_CHARS = 400

_TRUE = frozenset({"true", "yes", "on", "1", "是", "真", "对"})

_FALSE = frozenset({"false", "no", "off", "0", "否", "假", "错"})

_DATE = re.compile(r"\d{4}(?:-\d{2}(?:-\d{2}(?:\.\.\d{4}-\d{2}-\d{2})?)?)?", re.ASCII)
_MOMENT = re.compile(r"(\d{4}-\d{2}-\d{2})[T ]\d{2}:\d{2}\S*$", re.ASCII)
#: What may stand beside a date and between two.
_BESIDE_DATE = re.compile(
    r"(?:[\s,.()~–—-]|\b(?:on|in|the|of|from|to|until|till|and|between)\b|[于在从到至和，])*", re.IGNORECASE
)
#: Dates that depend on the present day are told apart; which day that is does not matter.
_ANY_DAY = datetime(2000, 1, 1, tzinfo=UTC)

_OPERAND = MemoryField(name="operand", type=FieldType.FLOAT32, merge_op=MergeOp.REPLACE)


def coerce(field: MemoryField, value: object) -> FieldValue:
    """``value`` as the field's declared type.

    Lenient where the meaning is plain: ``"5"`` and ``5.0`` are the int64 5, ``"true"`` and ``"是"`` the bool,
    and a string field takes a list as ``a, b`` and an object as JSON.

    Raises:
        FieldRejected: If the value has no such meaning, is NaN or infinite, or is out of the type's range.
    """
    if field.type is FieldType.STRING:
        return _string(field, value)
    if field.type is FieldType.BOOL:
        return _bool(field, value)
    number = _number(field, value)
    if field.type is FieldType.FLOAT32:
        nearest = float(number)
        if abs(nearest) > _FLOAT32_MAX:
            raise refused(field, value, "is beyond what float32 holds", "Give a smaller number.")
        return nearest
    # The bound comes first: rounding 1e9999 would build ten thousand digits.
    if not _INT64_MIN <= number <= _INT64_MAX:
        raise refused(field, value, "is beyond what int64 holds", "Give a smaller whole number.")
    if number != number.to_integral_value():
        raise refused(field, value, "is not whole", "Give a whole number, such as 5.")
    return int(number)


def plain(value: FieldValue) -> str:
    """A value as text: ``true``, ``5``, ``92.0``, or the string itself."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def derive(memory_type: MemoryType, values: Mapping[str, FieldValue]) -> dict[str, float | None]:
    """The averages of a type: ``scale * sum / count``.

    Returns:
        One entry for each ``avg`` field; None where the count is zero, or either operand is not known.
    """
    averages: dict[str, float | None] = {}
    for field in memory_type.fields:
        if field.avg is not None:
            total = _operand(values.get(field.avg.sum))
            count = _operand(values.get(field.avg.count))
            mean = field.avg.scale * total / count if total is not None and count else math.nan
            averages[field.name] = mean if math.isfinite(mean) else None
    return averages


def is_date(text: str) -> bool:
    """Whether a text is a date as dates are stored; see ``DATE_FORMAT``."""
    if _DATE.fullmatch(text) is None:
        return False
    try:
        days = [date.fromisoformat(f"{day}-01-01"[: len("2027-03-31")]) for day in text.split("..")]
    except ValueError:
        return False
    return days == sorted(days)


def dated(text: str) -> str:
    """A date in the form in which dates are stored; the text as it is where it names no time by itself."""
    if is_date(text.strip()):
        return text.strip()
    if moment := _MOMENT.match(text.strip()):
        return moment[1]
    from memory_core.core.text.time_expressions import time_spans

    spans = time_spans(text, _ANY_DAY)
    rest = text
    for span in spans:
        rest = rest.replace(span.text, " ")
    if not spans or any(span.relative for span in spans) or not _BESIDE_DATE.fullmatch(rest):
        return text
    if len(spans) > 2 or len({span.text for span in spans}) < len(spans):  # several, or one that reads two ways
        return text
    return text if spans[0].start > spans[-1].end else _stored_date(spans[0].start, spans[-1].end)


def _stored_date(start: date, end: date) -> str:
    if start == end:
        return start.isoformat()
    if start.day == 1 and (end + timedelta(days=1)).day == 1:
        if (start.month, end.month) == (1, 12) and start.year == end.year:
            return f"{start.year:04}"
        if (start.year, start.month) == (end.year, end.month):
            return start.isoformat()[:7]
    return f"{start.isoformat()}..{end.isoformat()}"


def _string(field: MemoryField, value: object) -> str:
    if isinstance(value, str):
        return dated(value) if field.format == DATE_FORMAT and value.strip() else value
    if isinstance(value, float) and not math.isfinite(value):
        raise refused(field, value, "is not a number", "Leave the field out.")
    if isinstance(value, bool | int | float):
        return plain(value)
    if isinstance(value, list | tuple):
        return ", ".join(_string(field, item) for item in value if item is not None)
    if isinstance(value, Mapping):
        try:
            return json.dumps(dict(value), ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise refused(field, value, f"is no JSON object ({error})", "Give text.") from error
    raise refused(field, value, f"is of type {type(value).__name__}", "Give text.")


def _bool(field: MemoryField, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    if isinstance(value, str):
        word = unicode_form("NFKC", value).strip().casefold()
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
    raise refused(field, value, "is neither true nor false", "Give true or false.")


def _number(field: MemoryField, value: object) -> Decimal:
    """The exact number that ``value`` means."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    if isinstance(value, float) and math.isfinite(value):
        return Decimal(value)
    if isinstance(value, str) and len(value) <= _NUMBER_LIMIT_CHARS:
        text = unicode_form("NFKC", value).strip()
        if _NUMBER.fullmatch(text):
            return Decimal(text)
    example = "5" if field.type is FieldType.INT64 else "2.5"
    raise refused(field, value, "is not a number", f"Give a plain number, such as {example}.")


def _operand(value: FieldValue | None) -> float | None:
    """A stored number; None where there is none, or a hand edit left something else."""
    if value is None:
        return None
    try:
        return cast(float, coerce(_OPERAND, value))
    except FieldRejected:
        return None


def refused(field: MemoryField, value: object, reason: str, hint: str) -> FieldRejected:
    """The error that names a field, its type and the value that it cannot take."""
    return FieldRejected(f"Field '{field.name}' is of type {field.type}: {shown_value(value)} {reason}.", hint=hint)


def shown_value(value: object) -> str:
    """A value as an error shows it, at most 60 characters."""
    try:
        text = repr(value)
    except ValueError:
        # An int of thousands of digits refuses to become text.
        text = "the value"
    return text if len(text) <= 60 else text[:59] + "…"
