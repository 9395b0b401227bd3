"""Merge operations: how given values meet the stored ones, field by field.

Owns coercion to declared types, the five merge operations and derived averages. One rejected field keeps its
old value and never affects another. Pure: does not read files, name memories or render them.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

from memory_core.core.commit.patch import MemoryPatchHandler, is_patch, opens_as_patch
from memory_core.core.errors import FieldRejected, RunebookError
from memory_core.core.memory.memory_type import FieldType, FieldValue, MemoryField, MemoryType, MergeOp
from memory_core.core.memory.names import key_of
from memory_core.core.memory.operations import Patch, SearchReplace

_INT64_MIN = -(2**63)
_INT64_MAX = 2**63 - 1
_FLOAT32_MAX = 3.4028234663852886e38
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_NUMBER_LIMIT_CHARS = 400
_TRUE = frozenset({"true", "yes", "on", "1", "是", "真", "对"})
_FALSE = frozenset({"false", "no", "off", "0", "否", "假", "错"})

_OPERAND = MemoryField(name="operand", type=FieldType.FLOAT32, merge_op=MergeOp.REPLACE)
_NO_PATCH_HINT = {
    MergeOp.REPLACE: "Give its whole new value as plain text.",
    MergeOp.IMMUTABLE: "Leave the field out; its value never changes.",
    MergeOp.SUM: "Give the number to add.",
}


@dataclass(frozen=True, slots=True)
class FieldMerge:
    """What became of the fields.

    Attributes:
        values: All fields after the merge, the untouched ones included.
        rejected: Why a field kept its old value, or was not set, by field name.
        ignored: Names that were given but mean nothing: undeclared, derived, or blank for a number.
    """

    values: dict[str, FieldValue]
    rejected: dict[str, RunebookError]
    ignored: tuple[str, ...]


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
            raise _refused(field, value, "is beyond what float32 holds", "Give a smaller number.")
        return nearest
    # The bound comes first: rounding 1e9999 would build ten thousand digits.
    if not _INT64_MIN <= number <= _INT64_MAX:
        raise _refused(field, value, "is beyond what int64 holds", "Give a smaller whole number.")
    if number != number.to_integral_value():
        raise _refused(field, value, "is not whole", "Give a whole number, such as 5.")
    return int(number)


def plain(value: FieldValue) -> str:
    """A value as text: ``true``, ``5``, ``92.0``, or the string itself."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def write_fields(
    memory_type: MemoryType, current: Mapping[str, FieldValue] | None, given: Mapping[str, object]
) -> FieldMerge:
    """Merge a write: create when ``current`` is None, else replace the given fields and keep the others.

    ``sum`` fields add, ``immutable`` ones keep their value. A SEARCH/REPLACE block given for a ``patch`` field
    is applied, never stored as text.

    Args:
        memory_type: Declares the fields.
        current: The stored fields, or None for a new memory.
        given: New values by field name; None means not given.
    """
    return _merge(memory_type, current, given, creates=current is None)


def edit_fields(
    memory_type: MemoryType, current: Mapping[str, FieldValue] | None, patches: Mapping[str, Patch]
) -> FieldMerge:
    """Merge an edit: each field takes its patch by its merge operation.

    Args:
        memory_type: Declares the fields.
        current: The stored fields.
        patches: For a ``patch`` field any patch form, for ``sum`` the increment, else the new value.
    """
    return _merge(memory_type, current, patches, creates=False)


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


def _merge(
    memory_type: MemoryType,
    current: Mapping[str, FieldValue] | None,
    given: Mapping[str, Any],
    *,
    creates: bool,
) -> FieldMerge:
    values = dict(current or {})
    rejected: dict[str, RunebookError] = {}
    ignored: list[str] = []
    for name, value in given.items():
        field = memory_type.field(name)
        if value is None:
            continue
        if field is None or field.merge_op is MergeOp.AVG or _is_blank_number(field, value):
            ignored.append(name)
            continue
        try:
            values[name] = _merged(field, values.get(name), value, creates=creates)
        except RunebookError as error:
            rejected[name] = error
    return FieldMerge(values, rejected, tuple(ignored))


def _merged(field: MemoryField, old: FieldValue | None, value: object, *, creates: bool) -> FieldValue:
    if field.merge_op is MergeOp.PATCH:
        return _patched(field, old, value, creates=creates)
    if (value and _is_blocks(value)) or (isinstance(value, str) and opens_as_patch(value)):
        raise FieldRejected(
            f"Field '{field.name}' has merge_op {field.merge_op} and takes no SEARCH/REPLACE patch.",
            hint=_NO_PATCH_HINT[field.merge_op],
        )
    new = coerce(field, value)
    if field.merge_op is MergeOp.SUM and old is not None:
        return _added(field, old, new)
    if field.merge_op is MergeOp.IMMUTABLE and old is not None and plain(old).strip():
        if _normalised(field, old) != _normalised(field, new):
            raise FieldRejected(
                f"Field '{field.name}' is immutable: it is {_cut(old)} and stays so.",
                hint="Leave the field out, or write a new memory that has the other value.",
            )
        return old
    return new


def _patched(field: MemoryField, old: FieldValue | None, value: object, *, creates: bool) -> FieldValue:
    if value == old and type(value) is type(old):
        return coerce(field, value)
    text = "" if old is None else plain(old)
    if _is_blocks(value):
        return coerce(field, MemoryPatchHandler().apply_content_patch(text, cast(list[SearchReplace], value)))
    # A new memory may quote the format in its prose; an existing one gets a stray marker reported instead.
    if isinstance(value, str) and (opens_as_patch(value) if creates else is_patch(value)):
        return coerce(field, MemoryPatchHandler().apply_content_patch(text, value))
    return coerce(field, value)


def _is_blocks(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, SearchReplace) for item in value)


def _is_blank_number(field: MemoryField, value: object) -> bool:
    # Models fill unknown counts with "".
    return field.type is not FieldType.STRING and isinstance(value, str) and not value.strip()


def _added(field: MemoryField, old: FieldValue, increment: FieldValue) -> FieldValue:
    try:
        start = coerce(field, old)
    except FieldRejected as error:
        raise FieldRejected(
            f"Field '{field.name}' holds {_cut(old)}, to which nothing can be added.",
            hint="Mend the stored number in the file by hand.",
        ) from error
    if isinstance(start, str) or isinstance(increment, str):
        raise _refused(field, increment, "cannot be added", "Give a number.")
    return coerce(field, start + increment)


def _normalised(field: MemoryField, value: FieldValue) -> FieldValue:
    if isinstance(value, str):
        return key_of({field.name: value}, (field.name,))
    return value


def _string(field: MemoryField, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise _refused(field, value, "is not a number", "Leave the field out.")
    if isinstance(value, bool | int | float):
        return plain(value)
    if isinstance(value, list | tuple):
        return ", ".join(_string(field, item) for item in value if item is not None)
    if isinstance(value, Mapping):
        try:
            return json.dumps(dict(value), ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise _refused(field, value, f"is no JSON object ({error})", "Give text.") from error
    raise _refused(field, value, f"is of type {type(value).__name__}", "Give text.")


def _bool(field: MemoryField, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    if isinstance(value, str):
        word = unicodedata.normalize("NFKC", value).strip().casefold()
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
    raise _refused(field, value, "is neither true nor false", "Give true or false.")


def _number(field: MemoryField, value: object) -> Decimal:
    """The exact number that ``value`` means."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    if isinstance(value, float) and math.isfinite(value):
        return Decimal(value)
    if isinstance(value, str) and len(value) <= _NUMBER_LIMIT_CHARS:
        text = unicodedata.normalize("NFKC", value).strip()
        if _NUMBER.fullmatch(text):
            return Decimal(text)
    example = "5" if field.type is FieldType.INT64 else "2.5"
    raise _refused(field, value, "is not a number", f"Give a plain number, such as {example}.")


def _operand(value: FieldValue | None) -> float | None:
    """A stored number; None where there is none, or a hand edit left something else."""
    if value is None:
        return None
    try:
        return cast(float, coerce(_OPERAND, value))
    except FieldRejected:
        return None


def _refused(field: MemoryField, value: object, reason: str, hint: str) -> FieldRejected:
    return FieldRejected(f"Field '{field.name}' is of type {field.type}: {_cut(value)} {reason}.", hint=hint)


def _cut(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:
        # An int of thousands of digits refuses to become text.
        text = "the value"
    return text if len(text) <= 60 else text[:59] + "…"
