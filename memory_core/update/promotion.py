"""Promotion: entries of daily logs that matter become memories of a type, once.

What matters: great importance, a lesson about a tool or an error, and what was extracted under the name of a type.
Pure; the planner decides what the writes come to.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

from memory_core.index.words.tokenizer import distinct_words
from memory_core.model.daily_log import DEFAULT_SALIENCE, LogEntry, log_uri
from memory_core.model.operations import MemoryData, WriteOp
from memory_core.model.record import CONTENT
from memory_core.model.schema import FieldType
from memory_core.registry import MemoryTypeRegistry, resolve_category

#: From this salience on an entry matters whatever it is.
IMPORTANT_SALIENCE = 0.8
KIND = "promotion"
_PATTERNS, _EVENTS, _NOTES = "patterns", "events", "notes"
_BY_KIND: Mapping[str, str] = {"event": _EVENTS, "auto_extract": "facts", "reflection": "reflections"}
_EVENT_TIME = "event_time"


def promotion(registry: MemoryTypeRegistry, user_space: str, day: date, entry: LogEntry) -> WriteOp | None:
    """The memory that an entry becomes; None if it does not matter enough.

    Args:
        registry: The types there are.
        user_space: Whose log it is.
        day: Of the log.
        entry: The entry; its line says where it came from.
    """
    category = _type_named(registry, entry.category)
    lesson = entry.kind == "reflection" and bool(entry.tool or entry.error)
    if lesson:
        wanted = [_PATTERNS]
    elif entry.kind == "auto_extract" and category is not None:
        wanted = [category]
    elif entry.salience >= IMPORTANT_SALIENCE:
        wanted = [category or _BY_KIND[entry.kind]]
    else:
        return None
    name = next((name for name in [*wanted, _NOTES] if _type_named(registry, name) is not None), None)
    if name is None:
        return None
    fields: dict[str, Any] = {CONTENT: _told(entry)}
    if registry.get(name).field(_EVENT_TIME) is not None:
        fields[_EVENT_TIME] = day.isoformat()
    data = MemoryData(
        memory_type=name,
        fields=fields,
        salience=None if entry.salience == DEFAULT_SALIENCE else entry.salience,
        category=entry.category,
    )
    source = {"kind": KIND, "log": f"{log_uri(user_space, day)}#{entry.line}"}
    if entry.session_id is not None:
        source["session_id"] = entry.session_id
    return WriteOp(memory_data=data.sourced(source))


def is_reworded(before: str, write: WriteOp) -> bool:
    """Whether a promotion says in most of its words what a text said, as after the correction of a slip."""
    old, new = distinct_words(before), distinct_words(str(write.memory_data.fields.get(CONTENT) or ""))
    return len(old & new) * 2 > max(len(old), len(new), 1)


def _told(entry: LogEntry) -> str:
    """The entry, and below it the tool and the error that its text does not name."""
    labels = (("Tool", entry.tool), ("Error", entry.error))
    lines = [f"{label}: {value}" for label, value in labels if value and value not in entry.text]
    return "\n".join([entry.text, *lines])


def _type_named(registry: MemoryTypeRegistry, name: str | None) -> str | None:
    """The type that a name or a category stands for, if a single text can become a memory of it."""
    if not name:
        return None
    for known in registry.list_all():
        if known.name in (name, resolve_category(name)):
            key = known.field(known.key_fields[-1]) if known.key_fields else None
            plain = not known.template_mode and known.field(CONTENT) is not None
            return known.name if plain and key is not None and key.type is FieldType.STRING else None
    return None
