"""What reading and searching return: entries, passages of files, hits and context packs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Hit:
    """One found item.

    ``why`` holds the parts of the score, each in [0, 1]: ``lexical``, ``semantic``, ``recency``, ``salience``.
    """

    uri: str
    context_type: str
    memory_type: str
    score: float
    abstract: str
    updated_at: str | None
    why: Mapping[str, float]

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "uri": self.uri,
            "context_type": self.context_type,
            "memory_type": self.memory_type,
            "score": self.score,
            "abstract": self.abstract,
            "updated_at": self.updated_at,
            "why": dict(self.why),
        }


@dataclass(frozen=True, slots=True)
class FindResult:
    """Hits, best first within each group.

    ``skills`` are tool and skill memories, ``resources`` session messages and logs, ``memories`` the rest;
    ``total`` counts all three. ``notes`` say what the caller should know: a hint when nothing was found, or that
    the search ran by words only.
    """

    memories: tuple[Hit, ...] = ()
    resources: tuple[Hit, ...] = ()
    skills: tuple[Hit, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Number of hits in all groups."""
        return len(self.memories) + len(self.resources) + len(self.skills)

    @property
    def hits(self) -> tuple[Hit, ...]:
        """All groups together, best first."""
        return tuple(sorted((*self.memories, *self.resources, *self.skills), key=lambda hit: hit.score, reverse=True))

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        result: dict[str, Any] = {
            "memories": [hit.as_dict() for hit in self.memories],
            "resources": [hit.as_dict() for hit in self.resources],
            "skills": [hit.as_dict() for hit in self.skills],
            "total": self.total,
        }
        return result | ({"notes": list(self.notes)} if self.notes else {})


@dataclass(frozen=True, slots=True)
class Listing:
    """One entry of ``ls`` or ``tree``; ``size`` in bytes, ``abstract`` only in agent output."""

    uri: str
    name: str
    is_dir: bool
    size: int
    updated_at: str
    abstract: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON form without an absent abstract."""
        entry: dict[str, Any] = {
            "uri": self.uri,
            "name": self.name,
            "is_dir": self.is_dir,
            "size": self.size,
            "updated_at": self.updated_at,
        }
        return entry if self.abstract is None else {**entry, "abstract": self.abstract}


@dataclass(frozen=True, slots=True)
class Listings:
    """Entries of a directory or tree; ``left_out`` counts those beyond the limit."""

    entries: tuple[Listing, ...]
    left_out: int = 0

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {"entries": [entry.as_dict() for entry in self.entries], "left_out": self.left_out}


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Lines of a file; ``first_line`` is 0-based, ``next_offset`` names where to go on when lines were left."""

    uri: str
    content: str
    first_line: int
    total_lines: int
    next_offset: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON form without an absent ``next_offset``."""
        result: dict[str, Any] = {
            "uri": self.uri,
            "content": self.content,
            "first_line": self.first_line,
            "total_lines": self.total_lines,
        }
        return result if self.next_offset is None else {**result, "next_offset": self.next_offset}


@dataclass(frozen=True, slots=True)
class ContextItem:
    """A memory that went into a context part."""

    uri: str
    score: float | None = None


@dataclass(frozen=True, slots=True)
class ContextPart:
    """One typed block: ``kind`` is profile, directory, memories, skills or session."""

    kind: str
    text: str
    items: tuple[ContextItem, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class ContextPack:
    """Everything ``retrieve`` hands an agent; ``tokens`` is what ``text`` costs, ``left_out`` what did not fit."""

    parts: tuple[ContextPart, ...]
    text: str
    tokens: int
    left_out: tuple[str, ...] = field(default=())
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        parts = [
            {
                "kind": part.kind,
                "text": part.text,
                "items": [
                    {"uri": item.uri} | ({} if item.score is None else {"score": item.score}) for item in part.items
                ],
                "tokens": part.tokens,
            }
            for part in self.parts
        ]
        pack: dict[str, Any] = {
            "parts": parts,
            "text": self.text,
            "tokens": self.tokens,
            "left_out": list(self.left_out),
        }
        return pack | ({"notes": list(self.notes)} if self.notes else {})
