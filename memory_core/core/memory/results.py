"""What reading and searching return: entries, passages of files, hits and context packs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from memory_core.core.memory.uri import MemoryUri


def text_sha256(text: str) -> str:
    """Hexadecimal SHA-256 of the UTF-8 text: a file's identity in ledger and catalog."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


class Action(StrEnum):
    """What became of one operation."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"
    UNCHANGED = "unchanged"
    QUEUED = "queued"
    REJECTED = "rejected"


class Status(StrEnum):
    """What became of a commit as a whole."""

    COMMITTED = "committed"
    PARTIAL = "partial"
    UNCHANGED = "unchanged"
    QUEUED = "queued"
    REJECTED = "rejected"
    DRY_RUN = "dry_run"


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file's step from ``before`` to ``after``; None means the file is absent.

    ``appended`` marks a log that only grew: the ledger then keeps the tail, not the whole file.
    ``key`` and ``memory_type`` are what the ledger's name table remembers of the file. ``moved_from`` is where
    it was until now, when the file was renamed.
    """

    uri: MemoryUri
    before: str | None
    after: str | None
    memory_type: str = ""
    key: str = ""
    appended: bool = False
    moved_from: MemoryUri | None = None

    @property
    def before_sha256(self) -> str | None:
        """Hash of ``before``, or None."""
        return None if self.before is None else text_sha256(self.before)

    @property
    def after_sha256(self) -> str | None:
        """Hash of ``after``, or None."""
        return None if self.after is None else text_sha256(self.after)


@dataclass(frozen=True, slots=True)
class OperationResult:
    """One line of a receipt.

    ``reason`` says what was refused, ``hint`` what to do about it, ``note`` what else is worth knowing.
    ``conflict`` marks a refusal because the file is no longer what the author of the operation saw.
    """

    op: str
    uri: str
    action: Action
    reason: str | None = None
    hint: str | None = None
    note: str | None = None
    conflict: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The result without empty members."""
        members = {
            "op": self.op,
            "uri": self.uri,
            "action": str(self.action),
            "reason": self.reason,
            "hint": self.hint,
            "note": self.note,
            "conflict": self.conflict or None,
        }
        return {name: value for name, value in members.items() if value is not None}


@dataclass(frozen=True, slots=True)
class SessionProgress:
    """How far one session has come, recorded in the transaction of the commit that brought it there.

    Attributes:
        log: The session's message log.
        stored: Messages that the log now holds; None leaves it as it is.
        extracted: Messages that have been turned into memories, or judged; None leaves it as it is.
        known: Messages that were in the log before; a log that a person shortened holds no more extracted ones.
        call_keys: Tool calls that were counted, by ``update.statistics``.
        uncounted: Tool calls whose count was taken back.
        left: Why an undone extraction is not done again by itself; it waits until somebody asks for it.
    """

    log: MemoryUri
    stored: int | None = None
    extracted: int | None = None
    known: int | None = None
    call_keys: frozenset[str] = frozenset()
    uncounted: frozenset[str] = frozenset()
    left: str | None = None


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """The planner's answer: files to change and one result per operation, in the caller's order.

    ``notes`` and ``usage`` go into the receipt as they are, so that a repeated request gets them too.
    """

    changes: tuple[FileChange, ...] = ()
    results: tuple[OperationResult, ...] = ()
    notes: tuple[str, ...] = ()
    usage: Mapping[str, int] | None = field(default=None)
    progress: SessionProgress | None = None


@dataclass(frozen=True, slots=True)
class Similar:
    """A stored memory near a new one; named, never merged."""

    uri: str
    score: float


@dataclass(frozen=True, slots=True)
class CommitReceipt:
    """What a commit did, operation by operation.

    Attributes:
        commit_id: Names the commit in history; empty when nothing was stored.
        status: The commit as a whole; zero changes is never ``committed``.
        results: One per operation.
        similar: Near neighbours of what was created.
        notes: Facts the caller should know, such as ignored keys.
        usage: Counts, such as messages stored or tokens spent; None when there are none.
        brief: How the client's own model turns the stored conversation into memories.
        working_memory: What must stay in a compressed context: ``open_tasks`` and ``summary``.
    """

    commit_id: str
    status: Status
    results: tuple[OperationResult, ...] = ()
    similar: tuple[Similar, ...] = ()
    notes: tuple[str, ...] = ()
    usage: Mapping[str, int] | None = field(default=None)
    brief: str | None = None
    working_memory: Mapping[str, Any] | None = field(default=None)

    @property
    def changed_uris(self) -> tuple[str, ...]:
        """URIs of files that were created, updated or deleted, each once."""
        changed = (Action.CREATED, Action.UPDATED, Action.DELETED)
        return tuple(dict.fromkeys(result.uri for result in self.results if result.action in changed))

    def as_dict(self) -> dict[str, Any]:
        """JSON form, the same facts as the text form."""
        receipt: dict[str, Any] = {
            "commit_id": self.commit_id,
            "status": str(self.status),
            "results": [result.as_dict() for result in self.results],
            "similar": [{"uri": near.uri, "score": near.score} for near in self.similar],
        }
        if self.notes:
            receipt["notes"] = list(self.notes)
        if self.usage:
            receipt["usage"] = dict(self.usage)
        if self.working_memory:
            receipt["working_memory"] = dict(self.working_memory)
        if self.brief:
            receipt["brief"] = self.brief
        return receipt

    @classmethod
    def from_dict(cls, receipt: Mapping[str, Any]) -> CommitReceipt:
        """The inverse of ``as_dict``; the ledger keeps receipts as JSON."""
        return cls(
            commit_id=receipt["commit_id"],
            status=Status(receipt["status"]),
            results=tuple(
                OperationResult(
                    op=result["op"],
                    uri=result["uri"],
                    action=Action(result["action"]),
                    reason=result.get("reason"),
                    hint=result.get("hint"),
                    note=result.get("note"),
                    conflict=bool(result.get("conflict")),
                )
                for result in receipt["results"]
            ),
            similar=tuple(Similar(near["uri"], near["score"]) for near in receipt["similar"]),
            notes=tuple(receipt.get("notes", ())),
            usage=receipt.get("usage"),
            brief=receipt.get("brief"),
            working_memory=receipt.get("working_memory"),
        )


def overall(results: tuple[OperationResult, ...]) -> Status:
    """The status that a commit with these results has, as if applied."""
    actions = {result.action for result in results}
    changed = actions & {Action.CREATED, Action.UPDATED, Action.DELETED}
    rejected = Action.REJECTED in actions or any(
        result.reason is not None for result in results if result.action in changed
    )
    if Action.QUEUED in actions:
        return Status.PARTIAL if rejected else Status.QUEUED
    if changed:
        return Status.PARTIAL if rejected else Status.COMMITTED
    return Status.REJECTED if rejected else Status.UNCHANGED


@dataclass(frozen=True, slots=True, order=True)
class FileProblem:
    """One thing about one file that keeps it from being used as its writer may expect; the file stays as it is.

    Attributes:
        uri: The file's URI; where no URI can name it, its path below the memory folder.
        what: What is wrong, without any of the file's text.
        hint: What its owner can do.
    """

    uri: str
    what: str
    hint: str


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
