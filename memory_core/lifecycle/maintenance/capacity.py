"""Bounds of what is learnt automatically: beyond them the knowledge that is used least leaves for the archive.

Only what a model or a cue made of conversations counts. What somebody stored explicitly, pinned, or wrote by hand is
never sent away for want of room: a memory that was asked for stays where it is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

from memory_core.lifecycle.maintenance.upkeep import Stored, Upkeep
from memory_core.model.availability import is_pinned
from memory_core.model.changes import CommitReceipt
from memory_core.model.uri import MemoryUri

BOUNDED_TYPES = ("facts", "assistant_knowledge")
_AUTOMATIC = "auto_reflection"
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class KnowledgeCapacity:
    """Keeps facts and assistant knowledge within ``tiers.long_term_knowledge_capacity`` each."""

    upkeep: Upkeep
    name: ClassVar[str] = "capacity"
    light: ClassVar[bool] = True

    def run(self, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
        """Archive what is due; see ``Pass.run``."""
        for memory_type in BOUNDED_TYPES:
            beyond = self._beyond(memory_type)

            def due(memory: Stored) -> str | None:
                return "used least of the knowledge beyond its capacity" if _counts(memory) else None

            yield from self.upkeep.archive(self.name, beyond, due, now, dry_run=dry_run)

    def _beyond(self, memory_type: str) -> Sequence[MemoryUri]:
        """Those over the capacity: used least often, then longest ago, then the least important, then the oldest."""
        capacity = self.upkeep.config.tiers.long_term_knowledge_capacity
        uris = self.upkeep.rows("d.memory_type = ? AND d.active AND NOT d.pinned", memory_type)
        if len(uris) <= capacity:
            return []
        read = (self.upkeep.stored(uri, self.upkeep.store.text(uri)) for uri in uris)
        counted = [memory for memory in read if memory is not None and _counts(memory)]
        used = self.upkeep.usage([memory.uri for memory in counted])

        def worth(memory: Stored) -> tuple[Any, ...]:
            usage = used.get(str(memory.uri))
            times = (0, _NEVER) if usage is None else (usage.access_count, usage.last_accessed_at)
            return (*times, memory.salience, str(memory.meta.get("created_at", "")), memory.uri)

        return [memory.uri for memory in sorted(counted, key=worth)[: max(0, len(counted) - capacity)]]


def _counts(memory: Stored) -> bool:
    source = memory.meta.get("source")
    return isinstance(source, dict) and source.get("kind") == _AUTOMATIC and not is_pinned(memory.meta)
