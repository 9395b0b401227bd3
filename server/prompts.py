"""What the server tells a model without being asked: instructions, and two prompts.

``recall`` puts context into a conversation. ``extract_memories`` briefs the client's own model, so that it
can turn the conversation it has just had into operations for ``commit_memory``.
"""

from __future__ import annotations

import json

from memory_core.memory import Memory
from memory_core.model.operations import MemoryOperations
from memory_core.model.schema import MemoryType, MergeOp

_CONTEXT_TOKENS = 2_000


def recall(memory: Memory, query: str) -> str:
    """Context for ``query``, to be used as data."""
    pack = memory.retrieve(query)
    return pack.text or f"Nothing is stored yet that fits: {query}"


def extraction_brief(memory: Memory, focus: str | None = None) -> str:
    """How to turn the conversation so far into memory: what is stored, types, rules, how to hand in.

    Args:
        memory: The open store.
        focus: What to look for; also picks the memories that are shown. None means everything.
    """
    stored = (
        memory.retrieve(focus, token_budget=_CONTEXT_TOKENS).text
        if focus
        else memory.retrieve(token_budget=_CONTEXT_TOKENS).text
    )
    types = "\n".join(type_line(memory_type) for memory_type in memory.registry.list_all())
    schema = json.dumps(MemoryOperations.model_json_schema(), ensure_ascii=False, separators=(",", ":"))
    wanted = f"Look only for: {focus}\n\n" if focus else ""
    return (
        "Go through the conversation above and decide what is worth remembering for months.\n\n"
        f"{wanted}"
        "Rules\n"
        "- One subject a memory. Write in the language the user writes in; keep names exact.\n"
        "- Dates are absolute and those of the messages, not of today.\n"
        "- Before you write, look for a memory of the same subject (find, then read). If there is one, edit it "
        "with SEARCH/REPLACE; SEARCH must match its text exactly once.\n"
        "- If knowledge moved, delete the old memory and name its replacement. In doubt keep both.\n"
        "- No secrets, no small talk, nothing already stored. Nothing to remember is a good answer: say why.\n\n"
        f"Memory types: name (directory) and fields\n{types}\n\n"
        f"What is stored now\n{stored or '(nothing yet)'}\n\n"
        "Hand in with one call: commit_memory(operations=…), an object of this JSON schema\n"
        f"{schema}\n"
    )


def type_line(memory_type: MemoryType) -> str:
    """One type on one line: name, directory, fields with their merge ops."""
    fields = ", ".join(
        field.name + ("" if field.merge_op is MergeOp.PATCH else f" [{field.merge_op}]")
        for field in memory_type.fields
        if field.merge_op is not MergeOp.AVG
    )
    about = " ".join(memory_type.description.split())
    return f"- {memory_type.name} ({memory_type.directory}): {fields}. {about}"
