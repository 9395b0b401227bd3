"""What a commit would change, and what it did: change sets and receipts.

Frozen values that travel from the planner through the transaction to the caller.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from memory_core.model.uri import MemoryUri


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
