"""Transactions over files and ledger: the only way anything is written.

A commit takes the store's lock, plans against the files as they are, appends one ledger row (its COMMIT is
the acknowledgement), renames the files in, and lets go. A background thread syncs the files and closes the
row. Whoever holds the lock next repairs what a killed writer left behind. What a person changed by hand
is recorded as an ``external`` commit before anything builds on it; it is never overwritten.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from memory_core.errors import InvalidInput, StorageFailed
from memory_core.model.changes import (
    Action,
    ChangeSet,
    CommitReceipt,
    FileChange,
    OperationResult,
    Status,
    overall,
    text_sha256,
)
from memory_core.model.uri import MemoryUri
from memory_core.storage.author import BY_HAND, current_author
from memory_core.storage.file_store import FileStat, FileStore
from memory_core.storage.ledger import ChangeRow, Ledger
from memory_core.storage.lock import StoreLock
from memory_core.storage.quiet import await_quiet
from memory_core.storage.usage import Recall, UsageLog

_log = logging.getLogger(__name__)
_SETTLE_PAUSE_SECONDS = 0.1
_SETTLE_LIMIT_SECONDS = 1.0
_ADOPT_BATCH = 500
#: Note of a receipt that a repeated request got.
REPEATED = "repeated request_id"

#: Tells a file's memory type and normalised key from its URI and text.
Identify = Callable[[MemoryUri, str], tuple[str, str]]


class Snapshot(Protocol):
    """What a plan may look at; stable while the plan runs, because the lock is held."""

    def text(self, uri: MemoryUri) -> str | None:
        """The file's text now, or None."""
        ...

    def locate(self, directory: MemoryUri, memory_type: str, key: str) -> MemoryUri | None:
        """The file that holds this key, or None."""
        ...

    def name_taken(self, directory: MemoryUri, name: str) -> bool:
        """Whether the name, or a twin of it, is in use in this directory."""
        ...

    @property
    def ledger(self) -> Ledger:
        """Counts and history, as of the last commit; a plan only reads."""
        ...


Plan = Callable[[Snapshot], ChangeSet]
#: Called at each step of a commit; tests stop the process there.
Step = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Pending:
    seq: int
    stats: Mapping[MemoryUri, FileStat | None]
    receipt: CommitReceipt | None = None


class Store:
    """One memory folder.

    Args:
        root: The folder; created when missing.
        identify: Names type and key of files that people or other programs put there.
        step: Observes the steps of a commit, for crash tests.
    """

    def __init__(self, root: Path, identify: Identify, *, step: Step = lambda _name: None) -> None:
        self.files = FileStore(root)
        self.ledger = Ledger(self.files.state / "ledger.sqlite3")
        (self.files.state / "locks").mkdir(mode=0o700, exist_ok=True)
        self._lock = StoreLock(self.files.state / "locks" / "store.lock")
        self._identify = identify
        self._step = step
        self._seen: set[int] = set()
        self._undelivered: set[MemoryUri] = set()
        self._pending: list[_Pending] = []
        self._wake = threading.Event()
        self.usage = UsageLog(self.ledger.usage_table, self._wake.set)
        self._closing = threading.Event()
        self._pending_guard = threading.Lock()
        self._settler = threading.Thread(target=self._settle_loop, name="runebook-settle", daemon=True)
        with self._lock.held():
            self._recover()
        self._settler.start()

    def close(self) -> None:
        """Settle what is left and release everything; safe to call twice."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._wake.set()
        self._settler.join()
        self.ledger.close()

    def text(self, uri: MemoryUri) -> str | None:
        """The file's text, or None.

        Raises:
            InvalidInput: If the file is not UTF-8; a commit would destroy what could not be read.
        """
        if uri in self._undelivered:
            return self.ledger.text_at(uri, self.ledger.newest_seq())
        return self.files.text(uri, strict=True)

    def locate(self, directory: MemoryUri, memory_type: str, key: str) -> MemoryUri | None:
        """The file that holds this key, or None."""
        return self.ledger.locate(directory, memory_type, key)

    def name_taken(self, directory: MemoryUri, name: str) -> bool:
        """Whether the name, or a twin of it, is in use in this directory, on disk or in the ledger."""
        return self.ledger.name_taken(directory, name) or self.files.stat(directory.child(name)) is not None

    def commit(
        self,
        plan: Plan,
        *,
        kind: str = "commit",
        request_id: str | None = None,
        now: datetime | None = None,
        dry_run: bool = False,
        undoes: str | None = None,
    ) -> CommitReceipt:
        """Plan and apply one change set.

        Args:
            plan: Pure; is given the store as it is under the lock.
            kind: Shown in history.
            request_id: A repeated one returns the first receipt and changes nothing.
            now: Time of the commit; default the clock's.
            dry_run: Plan only.
            undoes: The commit that this one takes back.

        Raises:
            StoreBusy: If the lock was not free in time. Nothing was stored.
            StorageFailed: If the ledger could not be written. Nothing was stored.
        """
        at = (now or datetime.now(UTC)).isoformat(timespec="milliseconds")
        with self._lock.held():
            if request_id is not None and not dry_run and (first := self.ledger.receipt_for(request_id)):
                return replace(CommitReceipt.from_dict(first), notes=(*first.get("notes", ()), REPEATED))
            self._recover()
            change_set = plan(self)
            if dry_run:
                return _receipt("", Status.DRY_RUN, change_set)
            if not change_set.changes:
                if change_set.progress is not None:
                    self.ledger.advance(change_set.progress, at)
                change_set = _without_effect(change_set)
                return _receipt("", overall(change_set.results), change_set)
            self._step("planned")
            self._record_external(self._edited_by_hand(change_set.changes), at)
            receipt = _receipt(_new_id(), overall(change_set.results), change_set)
            seq = self.ledger.record(
                change_set.changes,
                commit_id=receipt.commit_id,
                at=at,
                kind=kind,
                receipt=receipt.as_dict(),
                request_id=request_id,
                progress=change_set.progress,
                author=current_author(),
                undoes=undoes,
            )
            self._step("acknowledged")
            self._seen.add(seq)
            delayed = self._write(seq, change_set.changes)
            self._step("renamed")
        return receipt if delayed is None else replace(receipt, notes=(*receipt.notes, delayed))

    def finish(self, receipt: CommitReceipt) -> None:
        """Keep the final form of a receipt, off the request path; a repeated request gets this one."""
        self._queue(_Pending(0, {}, receipt))

    def recalled(self, recall: Recall) -> None:
        """Count what a retrieval returned and add it to the trail, off the request path."""
        self.usage.recalled(recall)

    def adopt(self, now: datetime | None = None) -> int:
        """Record files that people added, edited or removed since the last commit.

        Returns:
            How many files had changed.
        """
        at = (now or datetime.now(UTC)).isoformat(timespec="milliseconds")
        moved = self.files.moved(self.ledger.stats())
        adopted = 0
        for start in range(0, len(moved), _ADOPT_BATCH):
            with self._lock.held():
                self._recover()
                changes = [change for uri in moved[start : start + _ADOPT_BATCH] if (change := self._external(uri))]
                self._record_external(changes, at)
                adopted += len(changes)
        return adopted

    def _edited_by_hand(self, changes: Iterable[FileChange]) -> list[FileChange]:
        """What people did to the files that a commit is about to change."""
        found: list[FileChange] = []
        for change in changes:
            row = self.ledger.file(change.uri)
            if change.before_sha256 != (None if row is None else row.sha256):
                external = self._external(change.uri)
                if external is not None:
                    found.append(external)
        return found

    def _external(self, uri: MemoryUri) -> FileChange | None:
        """The step from what the ledger knows to what is on disk; None when they agree."""
        if uri in self._undelivered:
            return None
        row = self.ledger.file(uri)
        try:
            text = self.files.text(uri)
        except (StorageFailed, InvalidInput) as error:
            _log.warning("a file could not be read and stays out of the index: %s", error.message)
            return None
        sha256 = None if text is None else text_sha256(text)
        if sha256 == (None if row is None else row.sha256):
            if row is not None and row.stat != (found := self.files.stat(uri)):
                self._queue(_Pending(0, {uri: found}))  # copied or touched: not to be read again at every start
            return None
        before = None if row is None else self.ledger.text_at(uri, self.ledger.newest_seq())
        memory_type, key = ("", "") if text is None else self._identify(uri, text)
        return FileChange(uri, before, text, memory_type, key)

    def _record_external(self, changes: list[FileChange], at: str) -> None:
        if not changes:
            return
        results = tuple(
            OperationResult(
                "external",
                str(change.uri),
                Action.DELETED
                if change.after is None
                else (Action.CREATED if change.before is None else Action.UPDATED),
            )
            for change in changes
        )
        receipt = CommitReceipt(_new_id(), Status.COMMITTED, results)
        seq = self.ledger.record(
            changes,
            commit_id=receipt.commit_id,
            at=at,
            kind="external",
            receipt=receipt.as_dict(),
            settled=True,
            author=BY_HAND,
        )
        self._seen.add(seq)
        stats = {change.uri: self.files.stat(change.uri) for change in changes}
        self._queue(_Pending(seq, stats))

    def _write(self, seq: int, changes: Iterable[FileChange]) -> str | None:
        """Rename the files in; a refusal after the acknowledgement is repaired by the next writer."""
        stats: dict[MemoryUri, FileStat | None] = {}
        try:
            for change in changes:
                stats[change.uri] = self.files.write(change.uri, change.after)
                self._step("file")
        except (StorageFailed, InvalidInput) as error:
            self._seen.discard(seq)
            _log.warning("commit %d is in the ledger but not yet on disk: %s", seq, error.message)
            return f"stored in the ledger; the file itself follows once the disk allows it: {error.message}"
        self._queue(_Pending(seq, stats))
        return None

    def _recover(self) -> None:
        """Redo what a writer acknowledged but did not bring to disk. The lock must be held.

        What the disk still refuses stays in the ledger alone: until it is delivered, its file counts neither as
        removed by hand nor as empty, and nobody is kept from the other files.
        """
        self._undelivered.clear()
        unsettled = [seq for seq in self.ledger.unsettled() if seq not in self._seen]
        if not unsettled:
            return
        rows = self.ledger.changes_of(unsettled)
        by_uri: dict[MemoryUri, list[ChangeRow]] = {}
        for row in rows:
            by_uri.setdefault(row.uri, []).append(row)
        stats: dict[MemoryUri, FileStat | None] = {}
        delayed: set[int] = set()
        for uri, chain in by_uri.items():
            try:
                stats[uri] = self._redo(uri, chain)
            except (StorageFailed, InvalidInput) as error:
                _log.warning("not yet on disk: %s", error.message)
                self._undelivered.add(uri)
                delayed |= {row.seq for row in chain}
        for seq in unsettled:
            if seq not in delayed:
                self._seen.add(seq)
                self._queue(_Pending(seq, stats))

    def _redo(self, uri: MemoryUri, chain: list[ChangeRow]) -> FileStat | None:
        newest = chain[-1]
        row = self.ledger.file(uri)
        if (None if row is None else row.sha256) != newest.after_sha256:
            return self.files.stat(uri)
        found = self.files.text(uri)
        found_sha256 = None if found is None else text_sha256(found)
        if found_sha256 == newest.after_sha256:
            return self.files.stat(uri)
        wanted = self.ledger.text_at(uri, newest.seq)
        ours = {step.before_sha256 for step in chain} | {step.after_sha256 for step in chain}
        if found is None or found_sha256 in ours or _torn(found, wanted):
            return self.files.write(uri, wanted)
        _log.warning("kept a hand edit of %s made while a commit was under way", uri)
        return None

    def _queue(self, pending: _Pending) -> None:
        with self._pending_guard:
            self._pending.append(pending)
        self._wake.set()

    def _settle_loop(self) -> None:
        while not self._closing.is_set():
            self._wake.wait()
            await_quiet(
                self._wake, self._closing, pause_seconds=_SETTLE_PAUSE_SECONDS, limit_seconds=_SETTLE_LIMIT_SECONDS
            )
            self._settle()
            self.usage.flush()
        self._settle()
        self.usage.flush()

    def _settle(self) -> None:
        with self._pending_guard:
            batch, self._pending = self._pending, []
        if not batch:
            return
        try:
            stats: dict[MemoryUri, FileStat | None] = {}
            for pending in batch:
                stats |= pending.stats
            for uri in stats:
                self.files.sync(uri)
            self._step("synced")
            current = {uri: stat for uri, stat in stats.items() if stat == self.files.stat(uri)}
            self.ledger.settle([item.seq for item in batch if item.receipt is None], current)
            receipts = [item.receipt.as_dict() for item in batch if item.receipt is not None]
            if receipts:
                self.ledger.attach(receipts)
        except (StorageFailed, InvalidInput) as error:
            _log.warning("could not settle %d commits; the next start will: %s", len(batch), error.message)


def _without_effect(change_set: ChangeSet) -> ChangeSet:
    """The change set of operations that undid each other: what they did is nothing, and their results say so."""
    changed = (Action.CREATED, Action.UPDATED, Action.DELETED)
    note = "undone by another operation of the same commit"
    results = tuple(
        replace(result, action=Action.UNCHANGED, note=result.note or note) if result.action in changed else result
        for result in change_set.results
    )
    return replace(change_set, results=results)


def _receipt(commit_id: str, status: Status, change_set: ChangeSet) -> CommitReceipt:
    return CommitReceipt(commit_id, status, change_set.results, notes=change_set.notes, usage=change_set.usage)


def _torn(found: str, wanted: str | None) -> bool:
    """Whether ``found`` is what a power loss can leave of ``wanted``: a prefix, or zeros."""
    if wanted is None:
        return False
    return len(found) < len(wanted) and (wanted.startswith(found) or not found.strip("\x00"))


def _new_id() -> str:
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
