"""Metrics: what a store holds, how it is used, and how fast it answers. Counts; changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from memory_core.index.indexer import Indexer
from memory_core.storage.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Metrics:
    """Figures of one user's and one agent's space.

    Attributes:
        memories: Memories, of all types.
        by_type: How many there are of each type, most first.
        mean_salience: Mean importance of all memories, in [0, 1]; None without any.
        messages: Messages of conversations.
        sessions: Conversations.
        directories: Directories that hold memories.
        accesses: How often memories and messages were retrieved or read, ever.
        used: How many of them were, once at least.
        retrievals: Retrievals in the trail, which is bounded.
        p50_ms: Half of them took no longer; None without any.
        p99_ms: All but one in a hundred took no longer.
        cache_hit_rate: Share that a cache answered, in [0, 1]; None without any.
        passages: Texts to be found by meaning, of the whole store.
        vectors: How many of them have a vector of the model in use; None while it is not loaded.
        waiting: How many still wait for one; None while it is not loaded.
    """

    memories: int
    by_type: Mapping[str, int]
    mean_salience: float | None
    messages: int
    sessions: int
    directories: int
    accesses: int
    used: int
    retrievals: int
    p50_ms: float | None
    p99_ms: float | None
    cache_hit_rate: float | None
    passages: int
    vectors: int | None
    waiting: int | None

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "memories": self.memories,
            "by_type": dict(self.by_type),
            "mean_salience": self.mean_salience,
            "messages": self.messages,
            "sessions": self.sessions,
            "directories": self.directories,
            "accesses": self.accesses,
            "used": self.used,
            "retrieval": {
                "count": self.retrievals,
                "p50_ms": self.p50_ms,
                "p99_ms": self.p99_ms,
                "cache_hit_rate": self.cache_hit_rate,
            },
            "index": {"passages": self.passages, "vectors": self.vectors, "waiting": self.waiting},
        }


def collect(ledger: Ledger, indexer: Indexer, spaces: Sequence[str], user_space: str) -> Metrics:
    """Take all figures; the index must have followed the ledger.

    Args:
        ledger: Usage and the trail.
        indexer: What is stored.
        spaces: ``scope/space`` names that count.
        user_space: Whose retrievals count.
    """
    memories, by_type, mean_salience = _memories(indexer, spaces)
    messages, sessions = _conversations(indexer, spaces)
    roots = [f"viking://{space}" for space in spaces]
    used, accesses = ledger.usage_table.totals(roots)
    latencies = ledger.usage_table.latencies(user_space)
    retrievals = len(latencies.milliseconds)
    embedder, progress = indexer.embedder, indexer.progress()
    known = embedder is None or embedder.ready()
    return Metrics(
        memories=memories,
        by_type=by_type,
        mean_salience=mean_salience,
        messages=messages,
        sessions=sessions,
        directories=sum(ledger.directories.total(root) for root in roots),
        accesses=accesses,
        used=used,
        retrievals=retrievals,
        p50_ms=percentile(latencies.milliseconds, 50),
        p99_ms=percentile(latencies.milliseconds, 99),
        cache_hit_rate=round(latencies.cached / retrievals, 4) if retrievals else None,
        passages=progress.total,
        vectors=progress.done if known else None,
        waiting=(0 if embedder is None else progress.total - progress.done) if known else None,
    )


def percentile(ascending: Sequence[float], percent: float) -> float | None:
    """The value that ``percent`` of all do not exceed, by nearest rank; None of nothing.

    Args:
        ascending: Sorted values.
        percent: In (0, 100].
    """
    return ascending[ceil(len(ascending) * percent / 100) - 1] if ascending else None


def _memories(indexer: Indexer, spaces: Sequence[str]) -> tuple[int, Mapping[str, int], float | None]:
    """How many memories there are, how many of each type, and their mean salience."""
    rows = indexer.catalog.connection().execute(
        "SELECT memory_type, count(*), total(salience) FROM documents "
        f"WHERE space IN ({_marks(spaces)}) AND part = 0 AND context_type <> 'resource' "
        "GROUP BY memory_type ORDER BY 2 DESC, 1",
        tuple(spaces),
    )
    kinds = [(memory_type, int(count), float(salience)) for memory_type, count, salience in rows]
    memories = sum(count for _, count, _ in kinds)
    mean = round(sum(salience for _, _, salience in kinds) / memories, 4) if memories else None
    return memories, {memory_type: count for memory_type, count, _ in kinds}, mean


def _conversations(indexer: Indexer, spaces: Sequence[str]) -> tuple[int, int]:
    """How many messages there are, and conversations."""
    row = indexer.catalog.connection().execute(
        "SELECT count(*), count(DISTINCT uri) FROM documents "
        f"WHERE space IN ({_marks(spaces)}) AND memory_type = 'message'",
        tuple(spaces),
    )
    messages, sessions = row.fetchone()
    return int(messages), int(sessions)


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))
