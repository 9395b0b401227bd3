"""Merge operations: how given values meet the stored ones, field by field.

Owns coercion to declared types, the five merge operations and derived averages. One rejected field keeps its
old value and never affects another. Pure: does not read files, name memories or render them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from memory_core.core.commit.patch import apply_patch, is_patch, opens_as_patch
from memory_core.core.commit.working_copy import WriteMode
from memory_core.core.errors import FieldRejected, RunebookError
from memory_core.core.frozen import frozen
from memory_core.core.memory.field_values import coerce, is_date, plain, refused, shown_value
from memory_core.core.memory.memory_type import (
    CONTENT,
    DATE_FORMAT,
    FieldType,
    FieldValue,
    MemoryField,
    MemoryType,
    MergeOp,
)
from memory_core.core.memory.names import NAME_CHARS, key_of
from memory_core.core.memory.operations import SearchReplace

_NO_PATCH_HINT = {
    MergeOp.REPLACE: "Give its whole new value as plain text.",
    MergeOp.IMMUTABLE: "Leave the field out; its value never changes.",
    MergeOp.SUM: "Give the number to add.",
}


class TextStands(FieldRejected):
    """A write that would have dropped text; ``standing`` is the present text, ``both`` it with what the write adds."""

    def __init__(self, field: str, standing: str, both: str) -> None:
        super().__init__(
            f"Field '{field}' holds text that this write would drop.",
            hint="Send the text as an edit, or the write again with replace: true.",
        )
        self.standing = standing
        self.both = both


@frozen
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


def write_fields(
    memory_type: MemoryType,
    current: Mapping[str, FieldValue] | None,
    given: Mapping[str, Any],
    mode: WriteMode = WriteMode.ADD,
) -> FieldMerge:
    """Merge a write, or an edit: create when ``current`` is None, else change the given fields and keep the others.

    ``sum`` fields add, ``immutable`` ones keep their value, ``replace`` ones take the new. Text of a ``patch`` field
    goes by ``mode``; a SEARCH/REPLACE block given for it is applied, never stored as text.

    Args:
        memory_type: Declares the fields.
        current: The stored fields, or None for a new memory.
        given: By field name new values, or patches in any form; None means not given.
        mode: What becomes of text that stands there; an edit replaces it.
    """
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
            new = _merged(field, values.get(name), value, mode, creates=current is None)
            if mode is WriteMode.REFUSE and field.format == DATE_FORMAT:
                _expect_date(field, new)
            if name in memory_type.key_fields and new != values.get(name):
                _expect_name(field, plain(new))
            values[name] = new
        except RunebookError as error:
            rejected[name] = error
    return FieldMerge(values, rejected, tuple(ignored))


def _merged(field: MemoryField, old: FieldValue | None, value: object, mode: WriteMode, *, creates: bool) -> FieldValue:
    if field.merge_op is MergeOp.PATCH:
        return _patched(field, old, value, mode, creates=creates)
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
                f"Field '{field.name}' is immutable: it is {shown_value(old)} and stays so.",
                hint="Leave the field out, or write a new memory that has the other value.",
            )
        return old
    return new


def _expect_name(field: MemoryField, text: str) -> None:
    if len(text) > NAME_CHARS:
        raise FieldRejected(
            f"Field '{field.name}' has {len(text):,} characters; it names the memory, and has {NAME_CHARS:,} at most.",
            hint="Give it a shorter one, and the rest in another field.",
        )


def _expect_date(field: MemoryField, value: FieldValue) -> None:
    if str(value).strip() and not is_date(str(value)):
        raise refused(
            field,
            value,
            "is no date",
            "Write YYYY-MM-DD, YYYY-MM or YYYY, a week as 2024-02-26..2024-03-03; leave the field out if nobody knows.",
        )


def _patched(
    field: MemoryField, old: FieldValue | None, value: object, mode: WriteMode, *, creates: bool
) -> FieldValue:
    if value == old and type(value) is type(old):
        return coerce(field, value)
    text = "" if old is None else plain(old)
    # A new memory may quote the format in its prose; an existing one gets a stray marker reported instead.
    if _is_blocks(value) or (isinstance(value, str) and (opens_as_patch(value) if creates else is_patch(value))):
        patch = cast(str | list[SearchReplace], value)
        return coerce(field, apply_patch(text, patch))
    new = coerce(field, value)
    if mode is WriteMode.REPLACE or not (isinstance(old, str) and old.strip() and isinstance(new, str)):
        return new
    from memory_core.core.commit.additions import with_added

    both = with_added(old, new, label=field.name != CONTENT)
    if mode is WriteMode.REFUSE and both not in (old, new):
        raise TextStands(field.name, old, both)
    return both


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
            f"Field '{field.name}' holds {shown_value(old)}, to which nothing can be added.",
            hint="Mend the stored number in the file by hand.",
        ) from error
    if isinstance(start, str) or isinstance(increment, str):
        raise refused(field, increment, "cannot be added", "Give a number.")
    return coerce(field, start + increment)


def _normalised(field: MemoryField, value: FieldValue) -> FieldValue:
    if isinstance(value, str):
        return key_of({field.name: value}, (field.name,))
    return value
