"""What operations say about a memory beside its content, as its trailer keeps it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory_core.model.availability import ACTIVE, EXPIRES_AT, PINNED, expires_after, expiry_text
from memory_core.model.operations import EditOp, MemoryData, Standing
from memory_core.model.record import next_version
from memory_core.model.schema import MemoryType
from memory_core.update.bounds import Context

_EXPLICIT = "user_explicit"


def first_meta(memory_type: MemoryType, data: MemoryData, context: Context) -> dict[str, Any]:
    """The metadata that a new memory begins with, before what was given counts."""
    meta: dict[str, Any] = {
        "version": 1,
        "created_at": data.said_at or context.now,
        "updated_at": data.said_at or context.now,
        "salience": memory_type.salience,
        "confidence": 1.0,
        "source": {**context.source, **data.source} or None,
        **context.belonging.meta(memory_type),
    }
    if memory_type.expires_after_days is not None:
        meta[EXPIRES_AT] = expires_after(context.now, memory_type.expires_after_days)
    return meta


def given_meta(data: MemoryData) -> Mapping[str, Any]:
    """What was given, by trailer key; None takes the key out, for what is the rule is not written down.

    Raises:
        InvalidInput: If an expiry is no date.
    """
    given = {
        "abstract": data.abstract,
        "overview": data.overview,
        "salience": data.salience,
        "confidence": data.confidence,
        "category": data.category,
        "tags": data.tags,
    }
    said: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if data.pinned is not None:
        said[PINNED] = True if data.pinned else None
    if data.active is not None:
        said[ACTIVE] = None if data.active else False
    if data.expires_at is not None:
        said[EXPIRES_AT] = expiry_text(data.expires_at) or None
    return said


def says_more(before: Mapping[str, Any], meta: Mapping[str, Any]) -> bool:
    """Whether metadata changed in more than a memory's standing."""
    return any(meta.get(name) != before.get(name) for name in (*before, *meta) if name not in Standing.model_fields)


def said_anew(before: Mapping[str, Any], data: MemoryData, context: Context) -> dict[str, Any]:
    """Version and time of a memory whose content changed, and who vouches for it now."""
    return {
        **vouched(before, context),
        "version": next_version(before.get("version")),
        "updated_at": data.said_at or context.now,
    }


def vouched(meta: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
    """What an explicit change makes of a memory that was learnt automatically: from now on somebody vouches for it."""
    source = meta.get("source")
    if context.source.get("kind") != _EXPLICIT or not isinstance(source, Mapping) or source.get("kind") == _EXPLICIT:
        return {}
    return {"source": {**source, "kind": _EXPLICIT}}


def edited(edit: EditOp, memory_type: MemoryType) -> MemoryData:
    """The metadata of an edit, whose fields are patches and travel apart."""
    return MemoryData(memory_type=memory_type.name, **{name: getattr(edit, name) for name in Standing.model_fields})
