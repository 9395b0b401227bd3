"""From the ledger to the disk: files renamed in, what a killed writer left, and the sync that closes a ledger row.

``deliver`` and ``recover`` run under the store's lock. A file that a person saved between plan and rename is never
replaced: it stays, and whoever delivers is told.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from memory_core.core.errors import InvalidInput, MemoryChanged, RunebookError, StorageFailed
from memory_core.core.frozen import frozen
from memory_core.core.memory.directory_page import recorded, with_own_words
from memory_core.core.memory.results import CommitReceipt, FileChange, as_json, text_sha256
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.files import FileStat, FileStore, Seen
from memory_core.core.store.ledger import ChangeRow, Ledger

_log = logging.getLogger(__name__)
#: The list of a directory's page may be made anew in the same moment.
_PAGE_ATTEMPTS = 4
#: Begins the note of a receipt whose files are in the ledger only.
DELAYED = "stored in the ledger; the file itself follows once the disk allows it"

#: Called at each step of a commit; tests stop the process there.
Step = Callable[[str], None]


@frozen
class Delivered:
    """What became of a commit's files.

    Attributes:
        delayed: Why files that the disk refused are in the ledger alone, or None.
        by_hand: Files that a person saved in the same moment; theirs stay.
    """

    delayed: str | None = None
    by_hand: tuple[MemoryUri, ...] = ()


@frozen
class _Pending:
    seq: int
    stats: Mapping[MemoryUri, FileStat | None]
    receipt: CommitReceipt | None


class Delivery:
    """Brings commits of one store to disk.

    Args:
        files: Where to.
        ledger: Where from.
        step: Observes the steps, for crash tests.
        wake: Called when there is something to settle.
        writes: False where the ledger is a copy: others may have gone on with the files.
    """

    def __init__(self, files: FileStore, ledger: Ledger, step: Step, wake: Callable[[], None], *, writes: bool) -> None:
        self._files = files
        self._ledger = ledger
        self._step = step
        self._wake = wake
        self._writes = writes
        #: Unsettled commits that this process has brought, or found, on disk.
        self._on_disk: set[int] = set()
        self._pending: list[_Pending] = []
        self._pending_guard = threading.Lock()
        #: Files that the disk would not sync: what they show may never have reached it.
        self._unsynced: set[MemoryUri] = set()
        #: Files whose newest text is in the ledger only, because the disk refuses it.
        self.undelivered: set[MemoryUri] = set()

    def deliver(self, seq: int, changes: Sequence[FileChange], seen: Mapping[MemoryUri, Seen]) -> Delivered:
        """Rename the files of a new commit in; a refusal after the acknowledgement is repaired by the next writer.

        Args:
            seq: The commit.
            changes: Its files.
            seen: The files as the plan saw them, where it looked.
        """
        stats: dict[MemoryUri, FileStat | None] = {}
        by_hand: list[MemoryUri] = []
        try:
            for change in changes:
                there = seen.get(change.uri) or Seen(change.before_sha256)
                try:
                    stats[change.uri] = self._write(change, there)
                except MemoryChanged:
                    by_hand.append(change.uri)
                self._step("file")
        except (StorageFailed, InvalidInput) as error:
            self.undelivered |= {change.uri for change in changes}
            _log.warning("commit %d is in the ledger but not yet on disk: %s", seq, error.message)
            return Delivered(f"{DELAYED}: {error.message}", tuple(by_hand))
        self.note_on_disk(seq, stats)  # not before: whatever ends this early, the next writer repairs
        return Delivered(None, tuple(by_hand))

    def _write(self, change: FileChange, seen: Seen) -> FileStat | None:
        """Write one file of a new commit.

        Raises:
            MemoryChanged: If a person saved another text.
        """
        if change.uri.is_summary:
            return self._write_words(change)
        before, after = change.before, change.after
        if change.appended and before is not None and after is not None and seen.sha256 == change.before_sha256:
            return self._files.append(change.uri, after, after[len(before) :], seen, lambda: self._step("written"))
        return self._files.write(change.uri, after, seen, lambda: self._step("written"))

    def _write_words(self, change: FileChange) -> FileStat | None:
        """Write on a directory's page what is somebody's; raises as ``_write``."""
        uri = change.uri
        for _ in range(_PAGE_ATTEMPTS):
            text, seen = self._files.look(uri)
            if recorded(uri, text) != change.before:
                break
            words = with_own_words(uri.name, text, change.after)
            with suppress(MemoryChanged):  # its list was made anew in the same moment
                return self._files.write(uri, words, seen, lambda: self._step("written"))
        raise MemoryChanged(
            f"{str(uri)!r} was changed by hand in the same moment.", hint="Read it again.", uri=str(uri)
        )

    def recover(self) -> int:
        """Redo what a writer acknowledged but did not bring to disk.

        What the disk still refuses stays in the ledger alone: until it is delivered, its file counts neither as
        removed by hand nor as empty, and nobody is kept from the other files.

        Returns:
            The number of the ledger's last commit.
        """
        on_disk = frozenset(self._on_disk)  # before the ledger is asked: what settles meanwhile is left out of both
        newest, waiting = self._ledger.head()
        unsettled = [seq for seq in waiting if seq not in on_disk]
        if not unsettled:
            self.undelivered = set()
            return newest
        by_uri: dict[MemoryUri, list[ChangeRow]] = {}
        for row in self._ledger.changes_of(unsettled):
            by_uri.setdefault(row.uri, []).append(row)
        stats: dict[MemoryUri, FileStat | None] = {}
        delayed: set[int] = set()
        undelivered: set[MemoryUri] = set()
        for uri, chain in by_uri.items():
            try:
                stats[uri] = self._redo(uri, chain)
            except MemoryChanged:
                _log.warning("kept a hand edit of %s made while a commit was under way", uri)
            except (StorageFailed, InvalidInput) as error:
                _log.warning("not yet on disk: %s", error.message)
                undelivered.add(uri)
                delayed |= {row.seq for row in chain}
        self.undelivered = undelivered  # in one step: others read while this is going on
        for seq in unsettled:
            if seq not in delayed:
                self.note_on_disk(seq, stats)
        return newest

    def _redo(self, uri: MemoryUri, chain: list[ChangeRow]) -> FileStat | None:
        newest = chain[-1]
        if self._ledger.sha256_of(uri) != newest.after_sha256:
            return None  # a later commit's, which says how it looks
        present, seen = self._files.look(uri)
        found = recorded(uri, present)
        sha256 = seen.sha256 if found == present else None if found is None else text_sha256(found)
        if sha256 == newest.after_sha256 and uri not in self._unsynced:
            return seen.stat
        wanted = self._ledger.text_at(uri, newest.seq)
        ours = {step.before_sha256 for step in chain} | {step.after_sha256 for step in chain}
        if found is None or sha256 in ours or _torn(found, wanted):
            if not self._writes:
                raise StorageFailed(f"{str(uri)!r} is in the ledger only.", hint="Make the memory folder writable.")
            text = with_own_words(uri.name, present, wanted) if uri.is_summary else wanted
            stat = self._files.write(uri, text, seen)
            self._unsynced.discard(uri)
            return stat
        _log.warning("kept a hand edit of %s made while a commit was under way", uri)
        return None

    def note_on_disk(self, seq: int, stats: Mapping[MemoryUri, FileStat | None]) -> None:
        """Note a commit whose files are on disk already, and how they look."""
        self._on_disk.add(seq)
        self.queue(seq, stats)

    def looked(self, uri: MemoryUri, stat: FileStat | None) -> None:
        """Note how a file looks that was copied or touched, so that it is not read again at every start."""
        self.queue(0, {uri: stat})

    def finish(self, receipt: CommitReceipt) -> None:
        """Keep the final form of a receipt, off the request path."""
        self.queue(0, {}, receipt)

    def queue(self, seq: int, stats: Mapping[MemoryUri, FileStat | None], receipt: CommitReceipt | None = None) -> None:
        """Have files synced, a ledger row closed, or a receipt kept, soon."""
        with self._pending_guard:
            self._pending.append(_Pending(seq, stats, receipt))
        self._wake()

    def settle(self) -> None:
        """Sync what was delivered, and close its ledger rows."""
        with self._pending_guard:
            batch, self._pending = self._pending, []
        if not batch:
            return
        stats: dict[MemoryUri, FileStat | None] = {}
        for pending in batch:
            stats |= pending.stats
        try:
            self._files.sync(*stats)
            self._step("synced")
            current = {uri: stat for uri, stat in stats.items() if stat == self._files.stat(uri)}
            seqs = [item.seq for item in batch if item.seq]
            if seqs or current:
                self._ledger.settle(seqs, current)
            receipts = [as_json(item.receipt) for item in batch if item.receipt is not None]
            if receipts:
                self._ledger.attach(receipts)
            kept: list[_Pending] = []
        except RunebookError as error:
            _log.warning(
                "could not settle %d commits; the next one, or the next start, will: %s", len(batch), error.message
            )
            self._unsynced |= set(stats)
            kept = [item for item in batch if item.receipt is not None]
        with self._pending_guard:
            self._on_disk.difference_update(item.seq for item in batch)
            self._pending = kept + self._pending


def _torn(found: str, wanted: str | None) -> bool:
    """Whether ``found`` is what a power loss can leave of ``wanted``: a prefix, or zeros, or one before the other."""
    if wanted is None:
        return False
    written = found.rstrip("\x00")
    return len(written) < len(wanted) and wanted.startswith(written)
