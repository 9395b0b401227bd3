"""What people and other programs did to the files, recorded as ``external`` commits by "by hand".

Every difference between disk and name table that no commit explains is a hand edit. It is recorded as it is found and
never rewritten; what is wrong with it is kept as a ``FileProblem``. A file that vanished and one that appeared with the
same text (or the same key or name, in one directory) are one move, over batches and processes.

Whether a file differs is told without the lock, so that our own writes cost nobody anything; only what does differ is
looked at again under it. Who finds hand edits is not decided here: a scan, the watcher, the look before a search.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile

from memory_core.core.caller import BY_HAND
from memory_core.core.errors import InvalidInput, InvalidUri, RunebookError, StorageFailed, TooLarge
from memory_core.core.memory.directory_page import recorded
from memory_core.core.memory.names import fold
from memory_core.core.memory.results import (
    Action,
    CommitReceipt,
    FileChange,
    FileProblem,
    OperationResult,
    Status,
    as_json,
    text_sha256,
)
from memory_core.core.memory.uri import MemoryUri, Scope, file_of
from memory_core.core.store.delivery import Delivery
from memory_core.core.store.files import FileStat, FileStore, Seen, is_settled
from memory_core.core.store.ledger import Ledger, new_commit_id
from memory_core.core.store.locks import StoreLock
from memory_core.core.store.sqlite import stamp
from memory_core.core.store.vanished import Vanished


def differs_in_line_feeds_alone(text: str | None, sha256: str | None) -> bool:
    """Whether a text is the one with this hash but for line feeds that became those of Windows: nobody edited it."""
    if text is None or sha256 is None or "\r\n" not in text:
        return False
    return text_sha256(text.replace("\r\n", "\n")) == sha256


#: A deletion and a creation this far apart can still be one move.
_MOVE_SECONDS = 60.0
#: Texts this long are not written twice by chance.
_TELLING_CHARS = 40
#: Of more files with one text, only the first of the same name are looked at.
_ALIKE = 50


class Moves:
    """Where files that appeared may have come from."""

    def __init__(self, ledger: Ledger, changes: Sequence[FileChange], at: datetime) -> None:
        self._ledger = ledger
        self._claimed: set[MemoryUri] = set()
        self._there: dict[str, list[MemoryUri]] = {}
        self._deleted: dict[str, list[MemoryUri]] = {}
        self._gone: dict[MemoryUri, bool] = {}
        hashes = {change.after_sha256 for change in changes if change.before is None and change.after}
        if not hashes:
            return
        since = stamp(at - timedelta(seconds=_MOVE_SECONDS))
        known = ledger.movements.with_texts(sha256 for sha256 in hashes if sha256 is not None)
        for found, rows in ((self._there, known), (self._deleted, ledger.movements.deleted_by_hand(since))):
            for sha256, uri in rows:
                found.setdefault(sha256, []).append(MemoryUri.parse(uri))

    def origin(self, change: FileChange, is_gone: Callable[[MemoryUri], bool]) -> MemoryUri | None:
        """Where a file was, which no other file then comes from; None where nothing tells.

        Args:
            change: Its creation.
            is_gone: Whether a file is no longer where it was.
        """
        gone = [uri for uri in self._alike(change) if self._is_gone(uri, is_gone)]
        most = max((_likeness(uri, change.uri) for uri in gone), default=0)
        found = [uri for uri in gone if _likeness(uri, change.uri) == most]
        if not gone:
            found = [uri for uri in self._namesakes(change) if self._is_gone(uri, is_gone)][:1]
        if len(found) != 1:
            return None
        self._claimed.add(found[0])
        return found[0]

    def _alike(self, change: FileChange) -> list[MemoryUri]:
        """Places with the same text."""
        sha256 = change.after_sha256 or ""
        telling = len((change.after or "").strip()) >= _TELLING_CHARS
        deleted = [
            uri
            for uri in self._deleted.get(sha256, [])
            if telling or uri.parent == change.uri.parent or uri.name == change.uri.name
        ]
        places = [*self._there.get(sha256, []), *deleted]
        found: dict[MemoryUri, None] = {}
        for uri in places:
            if len(found) == _ALIKE:
                break
            if (len(places) <= _ALIKE or uri.name == change.uri.name) and self._may_be(uri, change):
                found[uri] = None
        return list(found)

    def _is_gone(self, uri: MemoryUri, is_gone: Callable[[MemoryUri], bool]) -> bool:
        """Whether a file is no longer where it was, looked at once."""
        if uri not in self._gone:
            self._gone[uri] = is_gone(uri)
        return self._gone[uri]

    def _namesakes(self, change: FileChange) -> Iterator[MemoryUri]:
        """Places in its directory with its key, or with its name but for case."""
        directory = change.uri.parent
        known = self._ledger.locate(directory, change.memory_type, change.key) if change.key else None
        twins = self._ledger.movements.twins(directory, fold(change.uri.name))
        for uri in dict.fromkeys([*([] if known is None else [known]), *map(MemoryUri.parse, twins)]):
            if self._may_be(uri, change):
                yield uri

    def _may_be(self, uri: MemoryUri, change: FileChange) -> bool:
        # Never from another user's space: whose file it was is nobody else's business.
        return uri != change.uri and uri.space == change.uri.space and uri not in self._claimed


def _likeness(one: MemoryUri, other: MemoryUri) -> int:
    """How many parts at the end of two places are the same."""
    pairs = zip(reversed(one.parts), reversed(other.parts), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


#: Directories of each kind looked at before a search: so many in any case, and at most; between, for so long.
_GLANCED_ALWAYS, _GLANCED_MOST, _GLANCE_SECONDS = 32, 400, 0.001
#: Entries of a directory that are compared before a search; a larger one is left to the watcher and the scans.
_LARGE = 5_000


class DirectoryTimes:
    """The known directories of one store; safe to use from many threads."""

    def __init__(self, files: FileStore, ledger: Ledger) -> None:
        self._files = files
        self._ledger = ledger
        self._guard = threading.Lock()
        #: Path and time of each: of directories of memories, and of sessions and the archive.
        self._memories: dict[MemoryUri, tuple[str, int]] = {}
        self._others: dict[MemoryUri, tuple[str, int]] = {}

    def note(self, directory: MemoryUri, mtime_ns: int) -> None:
        """A directory is about to be listed; ``mtime_ns`` is from right before."""
        if not is_settled(mtime_ns):
            mtime_ns = 0
        with self._guard:
            self._kind(directory)[directory] = self._path(directory), mtime_ns

    def moved(self) -> list[MemoryUri]:
        """Files of directories that changed, where ledger and disk may differ."""
        found: list[MemoryUri] = []
        for directory in self._changed():
            path = self._path(directory)
            if _mtime_ns(path) is None:
                with self._guard:
                    self._kind(directory).pop(directory, None)
                found += map(MemoryUri.parse, self._ledger.movements.stats(directory))
                continue
            known = self._ledger.movements.stats_in(directory)
            if len(known) > _LARGE:
                self.note(directory, _mtime_ns(path) or 0)
                continue
            found += self._files.moved(known, directory, enter=self._is_new, visited=self.note)
        return found

    @contextmanager
    def writing(self, directories: set[MemoryUri]) -> Iterator[None]:
        """The body writes files of these directories itself, which is no reason to look at them."""
        paths: dict[MemoryUri, str] = {}
        current: list[MemoryUri] = []
        with self._guard:
            for directory in directories:
                for length in range(len(directory.parts), -1, -1):
                    uri = MemoryUri(directory.parts[:length])
                    if uri in paths:
                        break
                    paths[uri] = self._path(uri)
                    mtime_ns = _mtime_ns(paths[uri])
                    if self._is_current(uri, mtime_ns):
                        current.append(uri)
                    if mtime_ns is not None:  # what is above a folder that is there stays as it is
                        break
        try:
            yield
        finally:
            with self._guard:
                for uri in current:
                    if (mtime_ns := _mtime_ns(paths[uri])) is not None:
                        self._kind(uri)[uri] = paths[uri], mtime_ns

    def _is_current(self, directory: MemoryUri, mtime_ns: int | None) -> bool:
        """Whether nothing happened there since the last look; also if it is about to be made."""
        known = self._kind(directory).get(directory)
        return mtime_ns == (None if known is None else known[1])

    def _changed(self) -> list[MemoryUri]:
        until = time.monotonic() + _GLANCE_SECONDS
        changed: list[MemoryUri] = []
        with self._guard:
            for kind in (self._memories, self._others):
                for number, uri in enumerate(list(islice(kind, _GLANCED_MOST)), 1):
                    path, mtime_ns = kind[uri] = kind.pop(uri)  # last in line: the next ones come first the next time
                    if _mtime_ns(path) != mtime_ns:
                        changed.append(uri)
                    if number >= _GLANCED_ALWAYS and time.monotonic() >= until:
                        break
        return changed

    def _is_new(self, directory: MemoryUri) -> bool:
        with self._guard:
            return directory not in self._kind(directory)

    def _kind(self, directory: MemoryUri) -> dict[MemoryUri, tuple[str, int]]:
        return self._others if directory.scope in (Scope.SESSION, Scope.ARCHIVE) else self._memories

    def _path(self, directory: MemoryUri) -> str:
        return str(self._files.root.joinpath(*directory.parts))


def _mtime_ns(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 - twice as fast, before every search
    except OSError:
        return None


_log = logging.getLogger(__name__)
#: Files of one external commit; a writer waits for no more than that.
_BATCH = 100
#: A file that was emptied so recently is being saved.
_SAVING_SECONDS = 1.0
#: A search that meets hand edits does not wait longer for another writer.
_PATIENCE_SECONDS = 0.2

#: Tells a file's memory type and normalised key from its URI and text.
Identify = Callable[[MemoryUri, str], tuple[str, str]]
#: Tells what is wrong with a text written by hand.
Examine = Callable[[MemoryUri, str], Iterable[FileProblem]]
_Read = tuple[str | None, Seen]


class Adoption:
    """Takes hand edits of one store into its ledger; safe to use from many threads.

    Args:
        files: The files.
        ledger: What is known of them.
        delivery: Repairs what killed writers left, and settles.
        lock: The store's.
        identify: Names type and key of a file.
        examine: Finds problems in a text.
    """

    def __init__(
        self,
        files: FileStore,
        ledger: Ledger,
        delivery: Delivery,
        lock: StoreLock,
        identify: Identify,
        examine: Examine,
    ) -> None:
        self._files = files
        self._ledger = ledger
        self._delivery = delivery
        self._lock = lock
        self._identify = identify
        self._examine = examine
        self.times = DirectoryTimes(files, ledger)
        self.vanished = Vanished(files, ledger)
        self._problems: dict[str, tuple[FileProblem, ...]] = {}
        self._told: set[tuple[str, str]] = set()
        self._left: dict[MemoryUri, None] = {}
        self._in_hand: list[MemoryUri] = []
        #: How files looked right before they were read, of the steps that are about to be recorded.
        self._as_read: dict[MemoryUri, FileStat | None] = {}
        #: Pages of directories that were looked at, whose words are as the ledger has them.
        self._pages: dict[MemoryUri, FileStat] = {}
        self._guard = threading.Lock()
        #: Called after hand edits were recorded, so that the index follows.
        self.on_adopted: Callable[[], None] = lambda: None

    def scan(self) -> int:
        """Look at every file, and take in what changed.

        Returns:
            How many files had changed.
        """
        known = self._ledger.movements.stats(MemoryUri())
        return self.take_in(self._files.moved(known, visited=self.times.note))

    def below(self, uris: Iterable[MemoryUri]) -> list[MemoryUri]:
        """The files at or below these URIs that are new, gone, or look different."""
        found: list[MemoryUri] = []
        for uri in uris:
            known = self._ledger.movements.stats(uri)
            found += self._files.moved(known, uri, visited=self.times.note)
        return found

    def take_in(self, uris: Iterable[MemoryUri], *, until: float | None = None) -> int:
        """Record those of these files that differ from what the ledger knows.

        Args:
            uris: Files that may have changed; others of their moves are found.
            until: ``time.monotonic`` seconds after which no further batch is begun; the rest is ``left``.

        Returns:
            How many files had changed.
        """
        at = datetime.now(UTC)
        wanted = list(dict.fromkeys(uris))
        self.vanished.returned(wanted)
        adopted = 0
        for start in range(0, len(wanted), _BATCH):
            if until is not None and start and time.monotonic() >= until:
                self.leave(wanted[start:])
                break
            read = {uri: found for uri in wanted[start : start + _BATCH] if (found := self._difference(uri))}
            suspects = self.vanished.sifted(list(read))
            if suspects:
                with self._lock.held(None if until is None else _PATIENCE_SECONDS):
                    self._delivery.recover()
                    adopted += self._record_moves([step for uri in suspects if (step := self.step(uri, read[uri]))], at)
        if adopted:
            self.on_adopted()
        return adopted

    def take_in_recent(self, seconds: float) -> bool:
        """The cheap look before a search: directories that changed, and what was left over.

        Args:
            seconds: Adopting takes no longer than that, but for one batch.

        Returns:
            Whether all that was noticed is taken in.
        """
        if not self._guard.acquire(blocking=False):
            return not self.left
        try:
            until = time.monotonic() + seconds
            self._take_in_or_leave([*self.times.moved(), *self._take_left()], until)
        finally:
            self._guard.release()
        return not self.left

    def renew(self, uris: Iterable[str]) -> bool:
        """Take in those of these files that do not look as they did; True if any had changed."""
        moved = []
        for row in self._ledger.files_of(dict.fromkeys(map(file_of, uris))):
            with suppress(InvalidUri):
                if row.stat != self._files.quick_stat(row.uri) and row.stat != self._files.stat(row.uri):
                    moved.append(row.uri)
        return self._take_in_or_leave(moved, time.monotonic())

    def _take_in_or_leave(self, uris: list[MemoryUri], until: float) -> bool:
        """Whether any of these files had changed; where they cannot be taken in now, they are left for later."""
        try:
            return self.take_in(uris, until=until) > 0
        except RunebookError as error:
            _log.info("files changed by hand are taken in later: %s", error.message)
            self.leave(uris)
            return False

    @property
    def left(self) -> int:
        """How many files were noticed and are not taken in yet."""
        return len(self._left) + len(self._in_hand)

    def catch_up(self, closing: threading.Event) -> None:
        """Take in what was left over, batch by batch."""
        while self._left and not closing.is_set():
            before = len(self._left)
            taken = self._in_hand = self._take_left(_BATCH)
            try:
                self.take_in(taken)
            except RunebookError:
                self._left.update(dict.fromkeys(taken))
                raise
            finally:
                self._in_hand = []
            if len(self._left) >= before:  # being saved: the next look sees it
                return

    def _take_left(self, limit: int | None = None) -> list[MemoryUri]:
        taken = list(self._left)[:limit]
        for uri in taken:
            self._left.pop(uri, None)
        return taken

    def leave(self, uris: Iterable[MemoryUri]) -> None:
        """Have these files looked at soon, in the background."""
        self._left.update(dict.fromkeys(uris))
        self._delivery.queue(0, {})  # wakes the background work, which catches up

    def problems(self) -> list[FileProblem]:
        """What is wrong with the files that this process looked at, by URI."""
        unusable = [
            FileProblem(path, reason.rstrip("."), hint) for path, (reason, hint) in list(self._files.unusable.items())
        ]
        return sorted([problem for found in list(self._problems.values()) for problem in found] + unusable)

    def _difference(self, uri: MemoryUri) -> _Read | None:
        """The file where disk and ledger disagree, as seen without the lock: a commit may be under way."""
        row = self._ledger.file(uri)
        try:
            stat = self._files.stat(uri)
            if stat is not None and stat in (None if row is None else row.stat, self._pages.get(uri)):
                return None
            text, seen = (None, Seen(None)) if stat is None else self._look(uri)
        except (StorageFailed, InvalidInput) as error:
            self._note(uri, (FileProblem(str(uri), "it cannot be read", error.hint),))
            return None
        known = None if row is None else row.sha256
        if seen.sha256 != known and not differs_in_line_feeds_alone(text, known):
            if text == "" and stat is not None and time.time() - stat.mtime_ns / 1e9 < _SAVING_SECONDS:
                self._left[uri] = None
                return None
            return text, seen
        if uri.is_summary and stat is not None:
            self._pages[uri] = stat
        elif row is not None and row.stat is not None and row.stat != stat:
            self._delivery.looked(uri, stat)  # copied or touched
        return None

    def step(self, uri: MemoryUri, read: _Read | None = None) -> FileChange | None:
        """The step from what the ledger knows to what is on disk; None when they agree. The lock must be held.

        Args:
            uri: The file.
            read: As it was a moment ago; not read again if it is still the same.
        """
        if uri in self._delivery.undelivered:
            return None
        try:
            still = read is not None and self._files.is_still(uri, read[1])
            text, seen = read if read is not None and still else self._look(uri)
        except (StorageFailed, InvalidInput) as error:
            self._note(uri, (FileProblem(str(uri), "it cannot be read", error.hint),))
            return None
        if seen.sha256 == self._ledger.sha256_of(uri) or (text is None and self.vanished.holds(uri)):
            return None
        self._as_read[uri] = seen.stat
        return self.step_to(uri, text)

    def step_to(self, uri: MemoryUri, text: str | None) -> FileChange:
        """The step from what the ledger knows to this text."""
        before = None if self._ledger.file(uri) is None else self._ledger.text_at(uri)
        memory_type, key = ("", "") if text is None else self._identify(uri, text)
        return FileChange(uri, before, text, memory_type, key)

    def record(self, changes: Sequence[FileChange], at: datetime, follows: int | None = None) -> int | None:
        """Record what people did, as one commit. The lock must be held.

        Args:
            changes: Nothing is recorded for none.
            at: When they were found.
            follows: See ``Ledger.record``.

        Returns:
            Its sequence number.
        """
        if not changes:
            return None
        receipt = CommitReceipt(new_commit_id(), Status.COMMITTED, tuple(_results(changes)))
        seq = self._ledger.record(
            changes,
            commit_id=receipt.commit_id,
            at=stamp(at),
            kind="external",
            receipt=as_json(receipt),
            settled=True,
            author=BY_HAND,
            follows=follows,
        )
        # Not how they look by now: what was saved in between would never be noticed.
        self._delivery.note_on_disk(seq, {change.uri: self._as_read.get(change.uri) for change in changes})
        self._as_read.clear()
        for change in changes:
            if change.after is None:
                self._problems.pop(str(change.uri), None)
        return seq

    def _record_moves(self, changes: list[FileChange], at: datetime) -> int:
        """Record changes, with the old places of files that moved; returns how many changes there were."""
        moves = Moves(self._ledger, changes, at)
        by_uri = {change.uri: change for change in changes}
        for change in changes:
            if change.before is not None or not change.after or change.after.isspace():
                continue
            origin = moves.origin(change, lambda uri: self._is_gone(uri, by_uri))
            if origin is not None:
                by_uri[change.uri] = replace(change, moved_from=origin)
        ordered = sorted(by_uri.values(), key=lambda change: change.after is not None)
        self.record(ordered, at)
        return len(ordered)

    def _is_gone(self, uri: MemoryUri, by_uri: dict[MemoryUri, FileChange]) -> bool:
        """Whether a file is gone; a deletion that nobody has told yet is added to the changes."""
        if uri in by_uri:
            return by_uri[uri].after is None
        if self._ledger.file(uri) is None:
            return self._files.stat(uri) is None
        step = self.step(uri)
        if step is None or step.after is not None:
            return False
        by_uri[uri] = step
        return True

    def _look(self, uri: MemoryUri) -> _Read:
        """What the ledger would keep of the file, and its looks; its problems are noted.

        Raises:
            StorageFailed: If the system refuses to read it.
        """
        try:
            text, seen = self._files.look(uri)
        except TooLarge as error:
            self._note(uri, (FileProblem(str(uri), "it is too large, and not indexed", error.hint),))
            raise
        problems = () if text is None else tuple(self._examine(uri, text))
        if text is not None and "\ufffd" in text and not self._files.is_utf8(uri):
            hint = "Save it as UTF-8; until then its other characters are found, and no commit touches it."
            problems += (FileProblem(str(uri), "it is not UTF-8 text", hint),)
        self._note(uri, problems)
        if uri.is_summary:  # its list is made from what is beside it
            text = recorded(uri, text)
            seen = replace(seen, sha256=None if text is None else text_sha256(text))
        return text, seen

    def _note(self, uri: MemoryUri, problems: tuple[FileProblem, ...]) -> None:
        if not problems:
            self._problems.pop(str(uri), None)
            return
        if str(uri) in self._problems and problems[0].what == "it cannot be read":
            return  # the reason is noted already
        self._problems[str(uri)] = problems
        for problem in problems:
            if (problem.uri, problem.what) not in self._told:
                self._told.add((problem.uri, problem.what))
                _log.warning("%s: %s; the file stays as it is. %s", problem.uri, problem.what, problem.hint)


def _results(changes: Sequence[FileChange]) -> Iterator[OperationResult]:
    places = {change.moved_from: change.uri for change in changes if change.moved_from is not None}
    for change in changes:
        action, note = Action.UPDATED, None
        if change.after is None:
            action, note = Action.DELETED, f"moved to {places[change.uri]}" if change.uri in places else None
        elif change.before is None:
            action, note = Action.CREATED, f"moved from {change.moved_from}" if change.moved_from is not None else None
        yield OperationResult("external", str(change.uri), action, note=note)
