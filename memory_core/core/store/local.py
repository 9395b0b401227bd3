"""Transactions over files and ledger: the only way anything new is written.

A commit takes the store's lock, plans against the files as they are, appends one ledger row (its COMMIT is
the acknowledgement), renames the files in, and lets go. A background thread syncs the files and closes the
row. Whoever holds the lock next repairs what a killed writer left behind. What a person changed by hand
is recorded as an ``external`` commit before anything builds on it; it is never overwritten.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from memory_core.core.background import await_quiet
from memory_core.core.caller import current_author
from memory_core.core.errors import RunebookError, TooLarge
from memory_core.core.memory.directory_page import recorded
from memory_core.core.memory.results import (
    Action,
    ChangeSet,
    CommitReceipt,
    FileChange,
    FileProblem,
    Status,
    as_json,
    clipped,
    status_of,
)
from memory_core.core.memory.uri import MemoryUri, places_of
from memory_core.core.progress import tell
from memory_core.core.store import atomic
from memory_core.core.store.delivery import DELAYED, Delivered, Delivery, Step
from memory_core.core.store.files import LEDGER_NAME, STATE_NAME, FileStore, Seen
from memory_core.core.store.hand_edits import Adoption, Examine, Identify
from memory_core.core.store.ledger import Ledger, Overtaken, new_commit_id
from memory_core.core.store.locks import Lock, StoreLock, store_lock
from memory_core.core.store.read_only import private_state
from memory_core.core.store.sqlite import stamp
from memory_core.core.store.usage import UsageLog
from memory_core.core.store.watcher import Watcher

T = TypeVar("T")

_log = logging.getLogger(__name__)
_SETTLE_PAUSE_SECONDS = 0.1
_SETTLE_LIMIT_SECONDS = 1.0
#: How soon a file is looked at again that was being saved.
_RETRY_SECONDS = 1.0
_SAVED_MEANWHILE = "changed by hand in the same moment: the hand edit stands, and this text is in its history"
#: Of a commit, where other writers come in between because somebody deleted the lock's file.
_ATTEMPTS = 3
_TOLD_FROM = 100  # changes of one commit
#: So many items of a long read come before it gives way again.
_GIVE_WAY_EVERY = 32
#: Processor time that planning one commit may take: so long others wait for it.
_PLAN_SECONDS = 2.5
#: Characters of a line of a receipt, of all of them together, and of one where there are very many.
_LINE_CHARS, _RECEIPT_CHARS, _LEAST_LINE_CHARS = 4_000, 600_000, 200
_large_turns: dict[str, threading.RLock] = {}
#: Note of a receipt that a repeated request got.
REPEATED = "repeated request_id"


def large_turn(user_space: str) -> AbstractContextManager[bool]:
    """The turn of a user's large commits: one at a time is planned or waits for the store, so that others come between.

    A thread that holds it may take it again.
    """
    return _large_turns.setdefault(user_space, threading.RLock())


class NeedsTurn(Exception):
    """A plan that reads or merges more than others should wait for is made in its user's turn; see ``Store.commit``."""


class Foreseen(NamedTuple):
    """What is known of a memory that may be new: whether its file is there, who holds its key, if its name is taken."""

    is_there: bool
    holder: MemoryUri | None
    is_taken: bool


class Snapshot:
    """The store as one plan may look at it; stable while the plan runs, because the lock is held.

    Attributes:
        ledger: Counts and history, as of the last commit; a plan only reads.
        seen: How the files looked that the plan read.
        may_be_long: Whether a plan may take long; else a long one raises ``NeedsTurn``.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.ledger = store.ledger
        self.may_be_long = True
        self.seen: dict[MemoryUri, Seen] = {}
        self._absent: set[MemoryUri] = set()
        self._holders: dict[tuple[MemoryUri, str, str], MemoryUri | None] = {}
        self._taken: dict[MemoryUri, bool] = {}

    def foresee(self, uri: MemoryUri, memory_type: str, key: str) -> None:
        """A memory with this key may get this name: a store that is far away asks for all of it at once."""
        place = (uri.parent, memory_type, key)
        if place in self._holders or (found := self._store.foresee(uri, memory_type, key)) is None:
            return
        self._holders[place], self._taken[uri] = found.holder, found.is_taken
        if not found.is_there:
            self._absent.add(uri)

    def text(self, uri: MemoryUri) -> str | None:
        """The file's text now, or None."""
        text, seen = (None, Seen(None)) if uri in self._absent else self._store.look(uri)
        self.seen.setdefault(uri, seen)
        return text

    def locate(self, directory: MemoryUri, memory_type: str, key: str) -> MemoryUri | None:
        """The file that holds this key, or None."""
        place = (directory, memory_type, key)
        return self._holders[place] if place in self._holders else self._store.ledger.locate(*place)

    def name_taken(self, directory: MemoryUri, name: str) -> bool:
        """Whether the name, or a twin of it, is in use in this directory."""
        uri = directory.child(name)
        return self._taken[uri] if uri in self._taken else self._store.name_taken(directory, name)

    def file(self, change: FileChange) -> Seen:
        """The file that a change builds on."""
        return self.seen.setdefault(change.uri, Seen(change.before_sha256))


#: Decides what a commit changes.
Plan = Callable[[Snapshot], ChangeSet]


def _short(plan: Plan) -> Plan:
    """The plan, or ``NeedsTurn`` where it is long."""

    def short(snapshot: Snapshot) -> ChangeSet:
        snapshot.may_be_long = False
        return plan(snapshot)

    return short


class UpkeepMark(Protocol):
    """When a store was maintained last, and the lock of who maintains it; shared by all who serve it."""

    def lock(self) -> Lock:
        """One process or server at a time maintains it; another one takes over where that one died."""

    def read(self) -> str:
        """What was written last; "" for nothing.

        Raises:
            OSError: If it cannot be read.
        """

    def write(self, mark: str) -> None:
        """Keep a mark."""


class FolderMark:
    """The mark of a folder: a file.

    Args:
        state: The store's folder of machine files.
    """

    def __init__(self, state: Path) -> None:
        self._path = state / "maintained-at"
        self._lock = StoreLock(state / "locks" / "maintenance.lock", timeout_seconds=0.0)

    def lock(self) -> Lock:
        """See ``UpkeepMark``."""
        return self._lock

    def read(self) -> str:
        """See ``UpkeepMark``."""
        return self._path.read_text(encoding="utf-8")

    def write(self, mark: str) -> None:
        """See ``UpkeepMark``."""
        atomic.replace(self._path, f"{mark}\n")


class Store:
    """One memory folder; where nobody may write to it, it can be read and searched, and commits are refused.

    Args:
        root: The folder; created when missing.
        identify: Names type and key of files that people or other programs put there.
        examine: Finds what is wrong with their texts.
        step: Observes the steps of a commit, for crash tests.
    """

    def __init__(
        self,
        root: Path,
        identify: Identify,
        *,
        examine: Examine = lambda _uri, _text: (),
        step: Step = lambda _name: None,
    ) -> None:
        with ExitStack() as opened:  # closed again where the store cannot be opened
            self._private = private_state(root / STATE_NAME)
            if self._private is not None:
                opened.callback(self._private.close)
            self.files = FileStore(root, None if self._private is None else self._private.path)
            self.ledger = Ledger(self.files.state / LEDGER_NAME)
            opened.callback(self.ledger.close)
            self.files.is_kept = self.ledger.movements.keeps
            atomic.make_folder(self.files.state / "locks")
            for left in self.files.state.glob(f"{atomic.TEMPORARY_PREFIX}*"):
                atomic.sweep(left)
            self._lock = store_lock(self.files.state)
            self._step = step
            self._wake = threading.Event()
            self.usage = UsageLog(self.ledger.usage_table, self.ledger.model_calls, self._wake.set)
            self._delivery = Delivery(self.files, self.ledger, step, self._wake.set, writes=self._private is None)
            self.adoption = Adoption(self.files, self.ledger, self._delivery, self._lock, identify, examine)
            #: Called before the page of a directory is read, with its URI.
            self.make_pages: Callable[[MemoryUri], None] = lambda _uri: None
            self._closing = threading.Event()
            self._watcher: Watcher | None = None
            self._watch_guard = threading.Lock()
            self._settler = threading.Thread(target=self._settle_loop, name="runebook-settle", daemon=True)
            with self._lock.held():
                self._delivery.recover()
            self._settler.start()
            opened.pop_all()

    def close(self) -> None:
        """Settle what is left and release everything; safe to call twice."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._wake.set()
        with self._watch_guard:
            if self._watcher is not None:
                self._watcher.join()
        self._settler.join()
        self.ledger.close()
        if self._private is not None:
            self._private.close()

    def lock(self, name: str, timeout_seconds: float = 0.0) -> Lock:
        """A lock by its name: one process of the store at a time does something."""
        return StoreLock(self.files.state / "locks" / f"{name}.lock", timeout_seconds=timeout_seconds)

    def expect_folder(self, doing: str) -> None:
        """Refuse what works on files where there are none.

        Raises:
            NeedsFolder: If so; ``doing`` is what was asked for.
        """

    @property
    def kept_of_erased(self) -> str:
        """Where what was erased may still be."""
        return "backups and exports are not touched"

    @property
    def is_writable(self) -> bool:
        """Whether files may be written; not where the folder can only be read."""
        return self._private is None

    def text(self, uri: MemoryUri) -> str | None:
        """The file's text, or None.

        Raises:
            InvalidInput: If the file is not UTF-8; a commit would destroy what could not be read.
            StorageFailed: If the system refuses to read it.
        """
        if uri in self._delivery.undelivered:
            return self.ledger.text_at(uri)
        if uri.is_summary:
            self.make_pages(uri)
        text = self.files.look(uri, strict=True)[0]
        return self.adoption.vanished.text(uri) if text is None else text

    def look(self, uri: MemoryUri) -> tuple[str | None, Seen]:
        """What the ledger keeps of the file's text, and how the file on disk looks that a commit would replace.

        A file that vanished with all others is what it was: a commit to it writes it anew.
        """
        if uri in self._delivery.undelivered:
            return self.ledger.text_at(uri), self.files.look(uri)[1]
        text, seen = self.files.look(uri, strict=True)
        held = self.adoption.vanished.text(uri) if text is None else None
        return recorded(uri, text) if held is None else held, seen

    def foresee(self, uri: MemoryUri, memory_type: str, key: str) -> Foreseen | None:  # noqa: ARG002
        """What a plan asks of a memory, where it is cheaper to ask for it at once; else None."""
        return None

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
        large_of: str | None = None,
        is_large: bool = True,
    ) -> CommitReceipt:
        """Plan and apply one change set.

        Args:
            plan: Pure; is given the store as it is under the lock.
            kind: Shown in history.
            request_id: A repeated one returns the first receipt and changes nothing, unless the first changed nothing.
            now: Time of the commit; default the clock's.
            dry_run: Plan only.
            undoes: The commit that this one takes back.
            large_of: The user's own space, where planning may take long. A large commit is planned once before, while
                others may write, and those of one user come one by one, dry runs among them.
            is_large: Whether it is known to be large; else its plan says so by ``NeedsTurn``.

        Raises:
            TooLarge: If others would wait longer than 2.5 s for a large one. Nothing was stored.
            StoreBusy: If the lock was not free in time. Nothing was stored.
            StorageFailed: If the ledger could not be written, or the folder can only be read. Nothing was stored.
        """
        if dry_run:  # others may write meanwhile
            with self._lock.held():
                self._delivery.recover()
        moment = now or datetime.now(UTC)

        def done(plan: Plan) -> CommitReceipt:
            if dry_run:
                return _receipt("", Status.DRY_RUN, self._planned(plan)[0])
            return self._plan_and_store(plan, kind, request_id, moment, undoes)

        if large_of is None:
            return done(plan)
        if not is_large:
            with suppress(NeedsTurn):
                return done(_short(plan))
        with large_turn(large_of):
            if dry_run:
                return _receipt("", Status.DRY_RUN, _kept(self._rehearse(plan)))
            if request_id is None or self.first_receipt(request_id) is None:
                self._rehearse(plan)
            return done(plan)

    def _plan_and_store(
        self, plan: Plan, kind: str, request_id: str | None, moment: datetime, undoes: str | None
    ) -> CommitReceipt:
        for attempt in range(_ATTEMPTS):
            with self._lock.held():
                newest = self._delivery.recover()
                if request_id is not None and (first := self.first_receipt(request_id)):
                    return first
                try:
                    return self._commit(plan, newest, kind, request_id, moment, undoes)
                except Overtaken:
                    if attempt + 1 == _ATTEMPTS:
                        raise
        raise AssertionError("the last attempt returns or raises")

    def give_way(self) -> None:
        """Wait a moment while somebody writes: long work would take the processor from them."""
        self._lock.give_way()

    def giving_way(self, items: Iterable[T]) -> Iterator[T]:
        """The items of a long read, which gives way to writers between them."""
        for at, item in enumerate(items):
            if at % _GIVE_WAY_EVERY == 0:
                self.give_way()
            yield item

    def _rehearse(self, plan: Plan) -> ChangeSet:
        """Plan while others may write, to know how long they would wait; what a plan remembers makes them wait less.

        Where the first time takes too long, a second one tells how long they wait then.
        """
        for _ in range(2):
            started = time.thread_time()
            decided = plan(Snapshot(self))
            if (took := time.thread_time() - started) <= _PLAN_SECONDS:
                return decided
        raise TooLarge(
            f"planning this takes {took:.1f} s of processor time, and others would wait as long; the limit is "
            f"{_PLAN_SECONDS:g} s. Nothing was stored.",
            hint="Send it in several smaller commits, a part of it in each; split a memory that is too long for one.",
        )

    def _commit(
        self,
        plan: Plan,
        newest: int,
        kind: str,
        request_id: str | None,
        moment: datetime,
        undoes: str | None,
    ) -> CommitReceipt:
        at = stamp(moment)
        change_set, snapshot = self._planned(plan)
        if self._private is not None:
            raise self._private.refusal()
        if not change_set.changes:
            if change_set.progress is not None:
                self.ledger.advance(change_set.progress, at)
            change_set = _without_effect(change_set)
            return _receipt("", status_of(change_set.results), change_set)
        external = self.adoption.record(self._edited_by_hand(change_set.changes), moment, newest)
        receipt = _receipt(new_commit_id(), status_of(change_set.results), change_set)
        seq = self.ledger.record(
            change_set.changes,
            commit_id=receipt.commit_id,
            at=at,
            kind=kind,
            receipt=as_json(receipt),
            request_id=request_id,
            progress=change_set.progress,
            author=current_author(),
            undoes=undoes,
            follows=newest if external is None else external,
        )
        self._step("acknowledged")
        if len(change_set.changes) >= _TOLD_FROM:
            tell(f"the commit is recorded; {len(change_set.changes):,} files are written")
        with self.adoption.times.writing({change.uri.parent for change in change_set.changes}):
            delivered = self._delivery.deliver(seq, change_set.changes, snapshot.seen)
        self._step("renamed")
        return self._after_delivery(receipt, delivered)

    def first_receipt(self, request_id: str) -> CommitReceipt | None:
        """What the first commit with this ``request_id`` was answered, and what of it is not on disk yet."""
        stored = self.ledger.receipt_for(request_id)
        if stored is None:
            return None
        receipt = CommitReceipt.from_dict(stored)
        waiting = sorted(set(map(str, self._delivery.undelivered)) & {result.uri for result in receipt.results})
        delayed = (f"{DELAYED}: {', '.join(waiting)}",) if waiting else ()
        notes = (note for note in receipt.notes if not note.startswith(DELAYED))
        return replace(receipt, notes=(*notes, *delayed, REPEATED))

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """No writer of any process commits during the body, which must not commit either.

        Raises:
            StoreBusy: If the lock was not free in time.
        """
        with self._lock.held():
            self._delivery.recover()
            yield

    def finish(self, receipt: CommitReceipt) -> None:
        """Keep the final form of a receipt, off the request path; a repeated request gets this one."""
        self._delivery.finish(receipt)

    def adopt(self, spaces: Sequence[str] = ()) -> int:
        """Record files that people added, edited, removed or renamed since the last commit.

        Args:
            spaces: Only those of these (``scope/space``) and of their archives are looked at; none given is all files.

        Returns:
            How many files had changed.
        """
        if not spaces:
            return self.adoption.scan()
        return self.adoption.take_in(self.adoption.below(map(MemoryUri.parse, places_of(spaces))))

    def problems(self) -> list[FileProblem]:
        """What is wrong with files written by hand, as far as this process looked at them."""
        return self.adoption.problems()

    def vanished(self) -> list[MemoryUri]:
        """Files that vanished all at once, and are not taken for deleted."""
        return [MemoryUri.parse(uri) for uri in sorted(self.adoption.vanished.held)]

    def not_utf8(self) -> list[MemoryUri]:
        """Files of which the ledger has only what could be read of them."""
        asked = "SELECT DISTINCT uri FROM changes WHERE instr(after, ?) AND uri IN (SELECT uri FROM files) ORDER BY uri"
        found = [MemoryUri.parse(uri) for (uri,) in self.ledger.database.connection().execute(asked, ("\ufffd",))]
        return [uri for uri in found if self.adoption.vanished.is_lossy(uri) or not self.files.is_utf8(uri)]

    def bring_back_vanished(self) -> list[MemoryUri]:
        """Write files that vanished all at once anew from the ledger; see ``store.vanished``.

        Those that were not UTF-8 are still ``vanished``.
        """
        self.adopt()
        written = self.adoption.vanished.bring_back(self._lock)
        self.adopt()
        return written

    def forget_vanished(self) -> list[MemoryUri]:
        """Record files that vanished all at once as deleted by hand, as their owner says they were."""
        self.adopt()
        with self._lock.held():
            self._delivery.recover()
            held = self.adoption.vanished.release()
            gone = [change for uri in held if (change := self.adoption.step(uri)) and change.after is None]
            self.adoption.record(gone, datetime.now(UTC))
        return [change.uri for change in gone]

    def watch(self) -> None:
        """Notice hand edits from now on, in the background, until the store is closed; safe to call twice."""
        with self._watch_guard:
            if self._watcher is None and not self._closing.is_set():
                self._watcher = Watcher(self.files, self.adoption, self._closing)
                self._watcher.start()

    def _planned(self, plan: Plan) -> tuple[ChangeSet, Snapshot]:
        """The plan on the files as they are; once more, if a person saved one of them meanwhile."""
        snapshot = Snapshot(self)
        change_set = _kept(plan(snapshot))
        self._step("planned")
        if not all(self._is_still(change, snapshot) for change in change_set.changes):
            snapshot = Snapshot(self)
            change_set = _kept(plan(snapshot))
        return change_set, snapshot

    def _is_still(self, change: FileChange, snapshot: Snapshot) -> bool:
        """Whether a change's file is as its plan saw it; the list of a directory's page may be another by now."""
        if change.uri.is_summary:
            return self.look(change.uri)[0] == change.before
        return self.files.is_still(change.uri, snapshot.file(change))

    def _edited_by_hand(self, changes: Iterable[FileChange]) -> list[FileChange]:
        """What people did to the files that a commit is about to change, as its plan saw them."""
        found: list[FileChange] = []
        for change in changes:
            if change.before_sha256 == self.ledger.sha256_of(change.uri) or change.uri in self._delivery.undelivered:
                continue
            if change.before is None and not self.adoption.vanished.sifted([change.uri]):
                raise Overtaken  # it vanished with nearly all others: what the ledger has of it is planned on
            found.append(self.adoption.step_to(change.uri, change.before))
        return found

    def _after_delivery(self, receipt: CommitReceipt, delivered: Delivered) -> CommitReceipt:
        """The receipt with what became of the files; what a person saved in the same moment comes on top."""
        if delivered.delayed is not None:
            receipt = replace(receipt, notes=(*receipt.notes, delivered.delayed))
        if not delivered.by_hand:
            return receipt
        try:
            saved = [step for uri in delivered.by_hand if (step := self.adoption.step(uri))]
            self.adoption.record(saved, datetime.now(UTC))
        except RunebookError as error:  # the commit itself is acknowledged
            _log.warning("files changed by hand are taken in later: %s", error.message)
            self.adoption.leave(delivered.by_hand)
        kept = frozenset(map(str, delivered.by_hand))
        receipt = replace(
            receipt,
            results=tuple(
                replace(result, note="; ".join(filter(None, (result.note, _SAVED_MEANWHILE))))
                if result.uri in kept
                else result
                for result in receipt.results
            ),
            notes=(*receipt.notes, *(f"{uri}: {_SAVED_MEANWHILE}" for uri in sorted(kept))),
        )
        self.finish(receipt)
        return receipt

    def _settle_loop(self) -> None:
        while not self._closing.is_set():
            self._wake.wait(_RETRY_SECONDS if self.adoption.left or self._delivery.undelivered else None)
            await_quiet(
                self._wake, self._closing, pause_seconds=_SETTLE_PAUSE_SECONDS, limit_seconds=_SETTLE_LIMIT_SECONDS
            )
            self._delivery.settle()
            self.usage.flush()
            self._catch_up()
        self._delivery.settle()
        self.usage.flush()

    def _catch_up(self) -> None:
        try:
            self.adoption.catch_up(self._closing)
            if self._delivery.undelivered and self._private is None:
                with self._lock.held():
                    self._delivery.recover()
        except RunebookError as error:
            _log.warning("files changed by hand were not taken in yet: %s", error.message)


def _without_effect(change_set: ChangeSet) -> ChangeSet:
    """The change set of operations that undid each other: what they did is nothing, and their results say so."""
    note = "undone by another operation of the same commit"
    results = tuple(
        replace(result, action=Action.UNCHANGED, note=result.note or note) if result.action.is_change else result
        for result in change_set.results
    )
    return replace(change_set, results=results)


def _kept(change_set: ChangeSet) -> ChangeSet:
    """The change set with what the ledger keeps of each file; a page whose words stay is no change."""
    if not any(change.uri.is_summary for change in change_set.changes):
        return change_set
    kept = (
        replace(change, before=recorded(change.uri, change.before), after=recorded(change.uri, change.after))
        for change in change_set.changes
    )
    changes = tuple(change for change in kept if not change.uri.is_summary or change.before != change.after)
    return replace(change_set, changes=changes)


def _receipt(commit_id: str, status: Status, change_set: ChangeSet) -> CommitReceipt:
    """The receipt; what its lines quote is bounded, for it is kept, and comes again in each list."""
    most = min(_LINE_CHARS, max(_LEAST_LINE_CHARS, _RECEIPT_CHARS // max(1, len(change_set.results))))
    results = tuple(result.clipped(most) for result in change_set.results)
    notes = tuple(clipped(note, _LINE_CHARS) for note in change_set.notes)
    return CommitReceipt(commit_id, status, results, notes=notes, usage=change_set.usage)
