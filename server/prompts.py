"""The prompt ``recall``, which puts context into a conversation, and how a memory type is shown on one line.

The other prompt, ``extract_memories``, is the brief of the update loop: ``memory_core.react.brief``.
"""

from __future__ import annotations

from memory_core.memory import Memory
from memory_core.model.schema import MemoryType, MergeOp


def recall(memory: Memory, query: str, here: str | None = None) -> str:
    """Context for ``query``, to be used as data, for a client that works in the project ``here``."""
    pack = memory.retrieve(query, here=here)
    return pack.text or f"Nothing is stored yet that fits: {query}"


def type_line(memory_type: MemoryType) -> str:
    """One type on one line: name, directory, fields with their merge ops."""
    fields = ", ".join(
        field.name + ("" if field.merge_op is MergeOp.PATCH else f" [{field.merge_op}]")
        for field in memory_type.fields
        if field.merge_op is not MergeOp.AVG
    )
    about = " ".join(memory_type.description.split())
    return f"- {memory_type.name} ({memory_type.directory}): {fields}. {about}"
