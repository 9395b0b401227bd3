"""Follows the ledger into the catalog, in slices, so that nobody waits long for an index that is far behind.

New commits are indexed change by change, in order. A catalog that is new, or of another ledger, is filled from the
files as they are now, not from their history: nothing that was deleted or rewritten shows up on the way, and what is
committed meanwhile is found at once. The newest files come first, then all of them, oldest first, so that a
catalog that was filled numbers its documents as one that followed from the beginning.

One thread of one process works at a time; the others wait for it, as long as they may.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from memory_core.errors import StoreBusy
from memory_core.index import resting
from memory_core.index.catalog import Catalog, Position
from memory_core.index.documents import (
    is_searchable,
    is_session_log,
    log_documents,
    memory_document,
    session_growth,
)
from memory_core.model.conversation import Message, parse_lines
from memory_core.model.daily_log import log_day
from memory_core.model.memory_file import parse
from memory_core.model.schema import MemoryType
from memory_core.model.segment import is_archived_segment
from memory_core.model.uri import MemoryUri
from memory_core.model.waiting import listened, tell
from memory_core.storage.ledger import ChangeRow, Ledger
from memory_core.storage.lock import StoreLock
from memory_core.storage.tables.change_feed import Touched

if TYPE_CHECKING:
    import sqlite3

#: A search waits so long for the index, whatever it lacks.
FOLLOW_SECONDS = 1.0
#: Changes of one slice, but whole commits.
_SLICE_CHANGES = 300
#: A commit of more changes is left to the background.
_FOREGROUND_CHANGES = 2_000
_SLICE_SECONDS = 0.2
_RECENT_FILES = 300
_TOLD_FROM = 50  # changes that are missing
_BEGINNING = ""
_LOCK_SECONDS = 30.0

#: The type of a file, by its place and the type its trailer names.
TypeAt = Callable[[MemoryUri, str | None], MemoryType | None]


@dataclass(frozen=True, slots=True)
class Behind:
    """How much of a ledger is indexed.

    Attributes:
        done: Files or changes.
        total: Of the same.
        counted: files while the index is built anew, changes while it follows.
        refused: Why the disk takes nothing more, or None.
    """

    done: int
    total: int
    counted: Literal["files", "changes"]
    refused: str | None = None

    def note(self) -> str:
        """For whoever searches meanwhile."""
        if self.refused is not None:
            return f"what was committed last may be missing, because the index cannot be written: {self.refused}"
        doing = "being rebuilt" if self.counted == "files" else "catching up"
        return f"the index is {doing}: {self.done:,} of {self.total:,} {self.counted}; ask again in a moment"


class Follower:
    """Brings one catalog up to its ledger.

    Args:
        ledger: What is followed.
        catalog: What follows.
        locks: Folder of lock files.
        type_at: Tells a file's memory type.
        closing: Set when the store is closed: work ends after the slice at hand.
    """

    def __init__(
        self, ledger: Ledger, catalog: Catalog, locks: Path, type_at: TypeAt, closing: threading.Event
    ) -> None:
        self._ledger = ledger
        self._ledger_id = ledger.ledger_id
        self._catalog = catalog
        self._lock = StoreLock(locks / "index-follow.lock")
        self._type_at = type_at
        self._closing = closing
        self._far_behind = False
        self._files: deque[Touched] = deque()
        self._files_of = ""
        self._files_after = (0, 0)
        self._files_newest = 0

    def follow(
        self, wait_seconds: float | None = FOLLOW_SECONDS, report: Callable[[Behind], None] | None = None
    ) -> Behind | None:
        """Index what is missing: a few new commits always, much for as long as may be waited.

        Args:
            wait_seconds: None indexes everything, however long that takes.
            report: Told how far it is, after each slice.

        Returns:
            How far it is; None when nothing is missing.

        Raises:
            StoreBusy: If ``wait_seconds`` is None and another process works on it for too long.
            DatabaseDamaged: If the catalog cannot be trusted.
        """
        began = time.monotonic()
        while (missing := self._missing()) is not None:
            limit = self._wait_of(missing, wait_seconds)
            left = began + limit - time.monotonic()
            if left <= 0 or self._closing.is_set() or (wait_seconds is not None and self._is_huge()):
                self._far_behind = True
                return self.behind()
            try:
                with self._lock.held(min(left, _LOCK_SECONDS)):
                    self._slice()
            except StoreBusy:
                if wait_seconds is None:
                    raise
            if (report is not None or listened()) and (behind := self.behind()) is not None:
                if behind.total - behind.done >= _TOLD_FROM:
                    tell("bringing the index up to date", behind.done, behind.total, unit=behind.counted)
                if report is not None:
                    report(behind)
        self._far_behind = False
        return None

    def behind(self) -> Behind | None:
        """How much is indexed; None when nothing is missing."""
        position = self._catalog.position()
        feed = self._ledger.feed
        if position.ledger_id != self._ledger_id or position.filling is not None:
            total = feed.files()
            known = position.ledger_id == self._ledger_id and position.filling
            return Behind(min(total, feed.touched_until(_mark(position.filling))) if known else 0, total, "files")
        missing = feed.changes(position.seq)
        total = feed.changes()
        return None if missing == 0 else Behind(total - missing, total, "changes")

    def _missing(self) -> Literal["commits", "files"] | None:
        position = self._catalog.position()
        if position.ledger_id != self._ledger_id:
            return "files"
        if position.seq != self._ledger.newest_seq():
            return "commits"
        return None if position.filling is None else "files"

    def _wait_of(self, missing: Literal["commits", "files"], wait_seconds: float | None) -> float:
        if wait_seconds is None:
            return math.inf
        # Once a search found that much is missing, the next ones leave it to the background.
        return 0.0 if self._far_behind and missing == "files" else wait_seconds

    def _is_huge(self) -> bool:
        """Whether the next commit alone takes seconds."""
        position = self._catalog.position()
        if position.ledger_id != self._ledger_id:
            return False
        reached = self._ledger.feed.reach(position.seq, _FOREGROUND_CHANGES)
        return reached is not None and self._ledger.feed.reach(position.seq, 0) == reached

    def _slice(self) -> None:
        with self._catalog.writing() as connection:
            position = self._catalog.position()
            # Read before the rows: what is committed in between is then not skipped, only seen the next time.
            newest = self._ledger.newest_seq()
            if position.ledger_id != self._ledger_id or position.seq > newest:
                self._catalog.clear(connection)
                self._catalog.advance(connection, Position(self._ledger_id, newest, _BEGINNING))
            elif position.seq < newest:
                self._follow(connection, position, newest)
            elif position.filling is not None:
                self._catalog.advance(connection, self._fill(connection, position, position.filling))

    def _follow(self, connection: sqlite3.Connection, position: Position, newest: int) -> None:
        reached = self._ledger.feed.reach(position.seq, _SLICE_CHANGES) or newest
        rows = self._ledger.changes_after(position.seq, max(1, reached - position.seq))
        whole = {row.uri: index for index, row in enumerate(rows) if not row.appended}
        for index, row in enumerate(rows):
            if index >= whole.get(row.uri, 0):
                self._index(connection, row, filling=position.filling is not None)
        seq = rows[-1].seq if rows else newest
        self._catalog.advance(connection, Position(self._ledger_id, seq, position.filling))

    def _fill(self, connection: sqlite3.Connection, position: Position, mark: str) -> Position:
        """Index some of the files of before; the position reached."""
        until = time.monotonic() + _SLICE_SECONDS
        if mark == _BEGINNING:
            recent = self._ledger.feed.touched((0, 0), position.seq)[-_RECENT_FILES:]
            while recent and time.monotonic() < until:
                self._put_whole(connection, recent.pop().uri, position.seq)
            return Position(self._ledger_id, position.seq, "0:-1")
        self._list_files(position, _mark(mark))
        while self._files and time.monotonic() < until:
            touched = self._files.popleft()
            self._put_whole(connection, touched.uri, position.seq)
            mark = f"{touched.seq}:{touched.ordinal}"
        self._files_after = _mark(mark)
        # A file that left the list by a commit nobody indexed yet is that commit's to index, as a whole.
        done = not self._files and position.seq >= self._files_newest
        return Position(self._ledger_id, position.seq, None if done else mark)

    def _list_files(self, position: Position, after: tuple[int, int]) -> None:
        """The files still to be indexed; others may have gone on with them, and a list that is old does no harm."""
        if position.filling_id != self._files_of or after < self._files_after:
            self._files = deque(self._ledger.feed.touched(after, position.seq))
            self._files_newest = self._ledger.newest_seq()
            self._files_of = position.filling_id
        while self._files and (self._files[0].seq, self._files[0].ordinal) <= after:
            self._files.popleft()

    def _index(self, connection: sqlite3.Connection, row: ChangeRow, *, filling: bool) -> None:
        if is_archived_segment(row.uri):
            resting.put(connection, row.uri, row.after)
        if not is_searchable(row.uri):
            return
        if row.appended and (filling or log_day(row.uri) is not None):
            self._put(connection, row.uri, self._ledger.text_at(row.uri, row.seq))
        elif row.appended and row.before_sha256 is not None and is_session_log(row.uri):
            before = self._ledger.text_at(row.uri, row.seq - 1) or ""
            self._grow(connection, row.uri, row.after or "", before.count("\n"), self._catalog.last_turns(row.uri))
        else:
            self._put(connection, row.uri, row.after)

    def _put_whole(self, connection: sqlite3.Connection, text: str, seq: int) -> None:
        uri = MemoryUri.parse(text)
        if is_archived_segment(uri):
            resting.put(connection, uri, self._ledger.text_at(uri, seq))
        if is_searchable(uri):
            self._put(connection, uri, self._ledger.text_at(uri, seq))

    def _put(self, connection: sqlite3.Connection, uri: MemoryUri, text: str | None) -> None:
        """Index a file's whole text in place of what is indexed of it."""
        self._catalog.remove(connection, uri)
        if text is None:
            return
        if is_session_log(uri):
            self._grow(connection, uri, text, 0, [])
        elif log_day(uri) is not None:
            for document in log_documents(uri, text):
                self._catalog.put(connection, document)
        else:
            self._catalog.put(connection, memory_document(uri, text, self._type_at(uri, parse(text).type_name)))

    def _grow(
        self, connection: sqlite3.Connection, uri: MemoryUri, text: str, first: int, earlier: list[tuple[int, str]]
    ) -> None:
        messages = [(first + line, message) for line, message in numbered(text)]
        self._catalog.grow(connection, uri, session_growth(uri, earlier, messages))
        resting.apply(connection, str(uri))


def numbered(text: str) -> Iterator[tuple[int, Message]]:
    """Each readable message of a log with its line number; a damaged line keeps its number to itself."""
    for number, line in enumerate(text.split("\n")):
        messages, _ = parse_lines(line)
        if messages:
            yield number, messages[0]


def _mark(filling: str | None) -> tuple[int, int]:
    seq, _, ordinal = (filling or "0:-1").partition(":")
    return int(seq), int(ordinal)
