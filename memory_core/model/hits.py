"""What reading and searching return: entries, passages of files, hits and context packs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Rival:
    """A newer memory that says otherwise, as it is shown beside the one that it contests.

    Attributes:
        relation: What the contested one has to it: ``contradicts`` or ``replaced_by``.
        strength: Of the relation, in [0, 1].
        confidence: How far the rival is trusted, in [0, 1].
        abstract: Its one line.
    """

    uri: str
    relation: str
    strength: float
    confidence: float
    abstract: str
    updated_at: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def verb(self) -> str:
        """How it contests: ``contradicted by`` or ``replaced by``."""
        return "replaced by" if self.relation == "replaced_by" else "contradicted by"


@dataclass(frozen=True, slots=True)
class Hit:
    """One found item.

    Attributes:
        why: What the score is made of, each in [0, 1]: ``lexical``, ``semantic``, ``rerank``, ``recency``,
            ``salience``, and 1.0 for each of ``exact``, ``speaker``, ``date``, ``project`` that speaks for it.
        project: The project it belongs to, if any.
        also: Near-identical items that are folded into this one.
        confidence: How far it is trusted, in [0, 1].
        rivals: Newer memories that contradict or replace it, the weightiest first.
    """

    uri: str
    context_type: str
    memory_type: str
    score: float
    abstract: str
    updated_at: str | None
    why: Mapping[str, float]
    project: str | None = None
    also: tuple[str, ...] = ()
    confidence: float = 1.0
    rivals: tuple[Rival, ...] = ()

    @property
    def contested_by(self) -> tuple[str, ...]:
        """The rivals' addresses."""
        return tuple(rival.uri for rival in self.rivals)

    def as_dict(self) -> dict[str, Any]:
        """JSON form, without members that say nothing."""
        optional = {
            "project": self.project,
            "also": list(self.also),
            "contested_by": list(self.contested_by),
            "rivals": [rival.as_dict() for rival in self.rivals],
        }
        return {
            "uri": self.uri,
            "context_type": self.context_type,
            "memory_type": self.memory_type,
            "score": self.score,
            "abstract": self.abstract,
            "updated_at": self.updated_at,
            "confidence": self.confidence,
            "why": dict(self.why),
            **{name: value for name, value in optional.items() if value},
        }


@dataclass(frozen=True, slots=True)
class FindResult:
    """Hits, best first within each group.

    ``skills`` are tool and skill memories, ``resources`` session messages and logs, ``memories`` the rest;
    ``total`` counts all three. ``notes`` say what the caller should know: a hint when nothing was found, or that
    the search ran by words only. ``cached`` says that the candidates were kept from an earlier, equal query.
    """

    memories: tuple[Hit, ...] = ()
    resources: tuple[Hit, ...] = ()
    skills: tuple[Hit, ...] = ()
    notes: tuple[str, ...] = ()
    cached: bool = False

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
class LinkedMemory:
    """Another memory that the one that is read relates to.

    Attributes:
        relation: How the one that is read relates to it.
        strength: Of the relation, in [0, 1].
        at: Since when.
        abstract: Its one line; empty where it is gone.
        state: ``in use``, ``at rest``, ``archived`` (``uri`` is where it is now) or ``gone``.
    """

    uri: str
    relation: str
    strength: float
    abstract: str
    state: str = "in use"
    at: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON form without an absent time."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Lines of a file; ``first_line`` is 0-based, ``next_offset`` names where to go on when lines were left.

    ``links`` are the memories that this one relates to, given with its first lines.
    """

    uri: str
    content: str
    first_line: int
    total_lines: int
    next_offset: int | None = None
    links: tuple[LinkedMemory, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON form without an absent ``next_offset``, and without ``links`` where there are none."""
        result: dict[str, Any] = {
            "uri": self.uri,
            "content": self.content,
            "first_line": self.first_line,
            "total_lines": self.total_lines,
        }
        if self.links:
            result["links"] = [link.as_dict() for link in self.links]
        return result if self.next_offset is None else {**result, "next_offset": self.next_offset}


@dataclass(frozen=True, slots=True)
class ContextItem:
    """What went into a context part; ``cut`` says that only a piece of it did."""

    uri: str
    score: float | None = None
    cut: bool = False

    def as_dict(self) -> dict[str, Any]:
        """JSON form, without members that say nothing."""
        optional = {"score": self.score, "cut": self.cut or None}
        return {"uri": self.uri, **{name: value for name, value in optional.items() if value is not None}}


@dataclass(frozen=True, slots=True)
class ContextPart:
    """One part of a context.

    ``kind`` is profile, directory, constraints, memories, tools, skill, session, recent or log.
    """

    kind: str
    text: str
    items: tuple[ContextItem, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class ContextPack:
    """Everything ``retrieve`` hands an agent.

    Attributes:
        parts: In reading order.
        text: All of them, with what stands around them.
        tokens: What it costs, simulated calls included.
        left_out: URIs that did not fit.
        notes: What the caller should know.
        messages: Simulated tool calls and results to insert; None where the format is text.
    """

    parts: tuple[ContextPart, ...]
    text: str
    tokens: int
    left_out: tuple[str, ...] = field(default=())
    notes: tuple[str, ...] = ()
    messages: tuple[Mapping[str, Any], ...] | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON form, without members that say nothing."""
        parts = [
            {
                "kind": part.kind,
                "text": part.text,
                "items": [item.as_dict() for item in part.items],
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
        if self.messages is not None:
            pack["messages"] = [dict(message) for message in self.messages]
        return pack | ({"notes": list(self.notes)} if self.notes else {})
