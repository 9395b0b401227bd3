"""The name of a new memory: given by its key fields, or made up from the first words of its text.

Pure. Turning the name into a file name is ``model.filename``; deciding what an equal name means is the planner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory_core.errors import FieldRejected
from memory_core.model.filename import short_hash
from memory_core.model.record import CONTENT, first_words
from memory_core.model.schema import FieldType, MemoryType, MergeOp

#: Memories that begin alike are numbered so far; then a hash of the text names them.
_NUMBERED = 9


def named(memory_type: MemoryType, values: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Fields with content and name filled in, and whether the name was made up.

    A key without a letter, such as a date, does not name a memory by itself: two events of one day are two.

    Raises:
        FieldRejected: If there is nothing to make a name of.
    """
    fields = dict(values)
    if CONTENT not in fields and not memory_type.template_mode:
        fields[CONTENT] = "\n\n".join(_told(memory_type, fields))
    keys = memory_type.key_fields
    missing = [key for key in keys if not str(fields.get(key, "")).strip()]
    if not missing or any(char.isalpha() for key in keys for char in str(fields.get(key, ""))):
        return fields, False
    name = first_words(str(fields.get(CONTENT, "")))
    if not name:
        raise FieldRejected(
            f"a memory of type '{memory_type.name}' needs a name.", hint=f"Give the field '{missing[-1]}'."
        )
    fields[missing[-1]] = name
    return fields, True


def numbered(memory_type: MemoryType, fields: Mapping[str, Any], attempt: int) -> dict[str, Any]:
    """The fields under the ``attempt``-th name to try, from 1: ``name``, ``name (2)``, …, ``name ~1a2b3c4d``."""
    if attempt == 1 or not memory_type.key_fields:
        return dict(fields)
    key = memory_type.key_fields[-1]
    text = str(fields.get(CONTENT, ""))
    mark = f"({attempt})" if attempt <= _NUMBERED else f"~{short_hash(f'{attempt - _NUMBERED}:{text}')}"
    return {**fields, key: f"{fields.get(key, '')} {mark}".strip()}


def _told(memory_type: MemoryType, fields: Mapping[str, Any]) -> list[str]:
    """The texts of a memory that was given no content."""
    return [
        str(fields[declared.name])
        for declared in memory_type.fields
        if declared.merge_op is MergeOp.PATCH
        and declared.type is FieldType.STRING
        and declared.name not in memory_type.key_fields
        and str(fields.get(declared.name, "")).strip()
    ]
