"""A person's change of a memory as operations: whole new values, exactly as they were typed.

A patch field takes its text as it is even where it looks like a SEARCH/REPLACE block, and a count takes its new value,
not what to add. That is safe because the transaction refuses it all if the memory is no longer what the person saw.
"""

from __future__ import annotations

from typing import Any

from memory_core.core.commit.patch import is_patch
from memory_core.core.errors import FieldRejected, InvalidInput
from memory_core.core.memory.field_values import coerce
from memory_core.core.memory.memory_type import CONTENT, FieldType, MemoryField, MemoryType, MergeOp
from server.api.entry import Stored
from server.api.questions import EntryEdit

_STANDING = ("salience", "confidence", "tags", "pinned", "expires_at", "active")


def operations_of(edit: EntryEdit, found: Stored) -> dict[str, Any]:
    """The operations that make the change.

    Args:
        edit: What the caller wants.
        found: The memory as the caller saw it; of a known type.

    Raises:
        InvalidInput: If nothing is to be changed, or a value cannot be one of its field.
    """
    memory, memory_type = found.memory, found.memory.type
    assert memory_type is not None
    given = dict(edit.fields)
    if edit.content is not None:
        if given.get(CONTENT) not in (None, edit.content):
            raise InvalidInput("content and fields.content differ.", hint="Send the text in one of the two.")
        given[CONTENT] = edit.content
    patches = {name: _patch(memory_type, memory.fields.get(name), name, value) for name, value in given.items()}
    standing = {name: value for name in _STANDING if (value := getattr(edit, name)) is not None}
    if not patches and not standing:
        raise InvalidInput("nothing is to be changed.", hint="Give content, fields, or what else is to be different.")
    return {"edit_operations": [{"uri": str(found.uri), "patches": patches, **standing}]}


def _patch(memory_type: MemoryType, old: Any, name: str, value: Any) -> Any:
    field = memory_type.field(name)
    if field is None or field.merge_op is MergeOp.AVG:
        names = ", ".join(known.name for known in memory_type.fields if known.merge_op is not MergeOp.AVG)
        raise InvalidInput(
            f"type '{memory_type.name}' has no field {name!r} that can be written.", hint=f"It has {names}."
        )
    if value is None:
        if field.type is not FieldType.STRING:
            raise InvalidInput(f"field '{name}' cannot be emptied.", hint="Give a number, or true or false.")
        value = ""
    if field.merge_op is MergeOp.SUM:
        return _increment(field, old, value)
    if field.merge_op is MergeOp.PATCH and isinstance(value, str) and isinstance(old, str) and is_patch(value):
        # The text quotes a patch; it is not one.
        return [{"search": old, "replace": value}] if old else value
    return value


def _increment(field: MemoryField, old: Any, value: Any) -> Any:
    """What to add so that the field holds the new value."""
    try:
        wanted = coerce(field, value)
        stored = 0 if old is None else coerce(field, old)
    except FieldRejected as error:
        raise InvalidInput(error.message, hint=error.hint) from None
    assert not isinstance(wanted, str)
    assert not isinstance(stored, str)
    return wanted - stored
