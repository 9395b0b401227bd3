"""Brings the catalog up to its ledger: what is missing is indexed in slices, whoever asks has their own taken first.

A catalog that is new, of another store or made with other features is filled from the files that there are; else the
commits that it has not seen are followed.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Literal

from memory_core.core.caller import current_author
from memory_core.core.errors import StoreBusy
from memory_core.core.feature import Features
from memory_core.core.frozen import frozen
from memory_core.core.index import page_rows
from memory_core.core.index.catalog import Catalog, Position, SpacePosition
from memory_core.core.index.documents import (
    is_searchable,
    is_session_log,
    memory_document,
    own_text,
    session_growth,
)
from memory_core.core.memory.memory import parse
from memory_core.core.memory.memory_type import MemoryTypeRegistry
from memory_core.core.memory.message import Message, each_line, numbered
from memory_core.core.memory.uri import MemoryUri, Scope, space_of
from memory_core.core.progress import listened, tell, waited
from memory_core.core.store.ledger import ChangeRow, Ledger, Touched
from memory_core.core.store.locks import FairLock

if TYPE_CHECKING:
    import sqlite3

#: A search waits so long for the index, whatever it lacks.
FOLLOW_SECONDS = 0.7
#: Changes that are read for one slice, and characters of their texts, but whole commits.
_SLICE_CHANGES = 300
_SLICE_CHARS = 100_000
#: So much of its own spaces a search waits for longer.
_LITTLE_CHANGES, _LITTLE_CHARS, _LITTLE_SECONDS = 2_000, 200_000, 5.0
#: A slice ends after so long, in the midst of a commit, too; and while another thread waits for a turn or the catalog.
_SLICE_SECONDS, _AWAITED_SLICE_SECONDS = 0.2, 0.05
#: Characters of a log that are indexed at once.
_PIECE_CHARS = 5_000
#: Authors, each with the spaces they search, whose own files are indexed first.
_MOST_AUTHORS = 100
#: The background lets others come between two slices.
_BETWEEN_SLICES_SECONDS = 0.01
#: Files of each space that go first when the index is built anew, and of all spaces.
_NEWEST_FILES, _NEWEST_FILES_IN_ALL = 300, 3_000
_TOLD_FROM = 50  # changes that are missing
_BEGINNING = ""
_LOCK_SECONDS = 30.0

#: Told how far the index is.
Report = Callable[["Behind"], None]


@frozen
class Behind:
    """How much of a ledger, or of some spaces in it, is indexed.

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


@frozen
class Unseen:
    """What a memory that the index lacks is compared by: its own words, and who may see it."""

    seq: int
    own: str
    space: str
    project: str | None
    private: bool


class _Slice:
    """The time of one slice, from when it was made on.

    Args:
        is_awaited: Whether other threads of this process wait to index or to write, which makes it shorter.
    """

    def __init__(self, is_awaited: Callable[[], bool]) -> None:
        self._began = time.monotonic()
        self._is_awaited = is_awaited

    def is_over(self) -> bool:
        """Whether what follows is left to the next slice."""
        seconds = time.monotonic() - self._began
        return seconds > _SLICE_SECONDS or (seconds > _AWAITED_SLICE_SECONDS and self._is_awaited())


class Follower:
    """Brings one catalog up to its ledger.

    Args:
        ledger: What is followed.
        catalog: What follows.
        types: Tell a file's memory type.
        closing: Set when the store is closed: work ends after the slice at hand.
        features: Their kinds of records are searched in ways of their own.
    """

    def __init__(
        self, ledger: Ledger, catalog: Catalog, types: MemoryTypeRegistry, closing: threading.Event, features: Features
    ) -> None:
        self._features = features
        self._feature_names = " ".join(sorted(each.name for each in features.slices if "record_kinds" in each.adds))
        self._ledger = ledger
        self._ledger_id = ledger.ledger_id
        self._catalog = catalog
        self._lock = catalog.lock("index-follow")
        #: Threads of this process take their slices in turn.
        self._turn = FairLock()
        self._types = types
        self._closing = closing
        #: Whether the last to follow left files or commits to the background.
        self.is_far_behind = False
        #: The last change that was read for ``unseen``, and the documents of those not indexed yet, by URI.
        self._unseen: tuple[int, dict[str, Unseen]] = (0, {})
        #: Of authors with the spaces they search: the last commit looked at, and their files that wait, newest last.
        self._own: dict[tuple[str, ...], tuple[int, list[str]]] = {}
        #: The newest files of each space, which go first while those of before are indexed; of which filling.
        self._newest: deque[str] = deque()
        self._newest_of = ""
        self._files: deque[Touched] = deque()
        self._files_of = ""
        self._files_after = (0, 0)
        self._files_newest = 0

    def follow(
        self,
        wait_seconds: float | None = FOLLOW_SECONDS,
        report: Report | None = None,
        spaces: Sequence[str] = (),
        give_way: Callable[[], None] = lambda: None,
    ) -> Behind | None:
        """Index what is missing: a few new commits always, much for as long as may be waited.

        Args:
            wait_seconds: None indexes everything, however long that takes.
            report: Told how far it is, after each slice.
            spaces: What is missing of these is indexed, before what others committed earlier where that is much; none
                given are all.
            give_way: Called before each slice.

        Returns:
            How far it is with these spaces; None when nothing of them is missing.

        Raises:
            StoreBusy: If ``wait_seconds`` is None and another thread or process works on it for too long.
            DatabaseDamaged: If the catalog cannot be trusted.
        """
        began = time.monotonic()
        while (missing := self._missing(position := self._catalog.position())) is not None:
            is_whole = missing == "commits" and position.filling is None
            if is_whole and spaces and not self._ledger.feed.touches(position.reached(spaces), spaces):
                return None
            limit = self._wait_of(missing, wait_seconds)
            left = began + limit - time.monotonic()
            if left <= 0 < limit and is_whole and self._is_little(position, spaces):
                left = began + max(limit, _LITTLE_SECONDS) - time.monotonic()
            if left <= 0 or self._closing.is_set():
                self.is_far_behind = True
                return self.behind(spaces)
            give_way()
            try:
                self._slice_in_turn(spaces, min(left, _LOCK_SECONDS))
            except StoreBusy:
                if wait_seconds is None:
                    raise
            if (report is not None or listened()) and (behind := self.behind(spaces)) is not None:
                if behind.total - behind.done >= _TOLD_FROM:
                    # Whoever names no spaces may see some only, and is told no figures of others.
                    figures = (behind.done, behind.total) if spaces else ()
                    tell("bringing the index up to date", *figures, unit=behind.counted)
                if report is not None:
                    report(behind)
            if wait_seconds is None:
                self._closing.wait(_BETWEEN_SLICES_SECONDS)
        self.is_far_behind = False
        self._own.clear()
        return None

    def behind(self, spaces: Sequence[str] = ()) -> Behind | None:
        """How much of some spaces is indexed, none given are all; None when nothing of them is missing."""
        position = self._catalog.position()
        feed = self._ledger.feed
        is_known = position.ledger_id == self._ledger_id
        if not is_known or position.filling is not None:
            total = feed.files(spaces)
            # Some files of the commit that is being indexed may be missing, so none of them counts.
            done = feed.touched_before(_mark(position.filling)[0], spaces) if is_known else 0
            if done < total or not spaces:
                return Behind(done, total, "files")
        missing = feed.changes(position.reached(spaces), spaces) if is_known else 0
        total = feed.changes(spaces=spaces)
        return None if missing == 0 else Behind(total - missing, total, "changes")

    def missing_chars(self, spaces: Sequence[str]) -> int:
        """How many characters of these spaces later commits hold than those that are indexed; 0 while it is rebuilt."""
        position = self._catalog.position()
        if position.ledger_id != self._ledger_id or position.filling is not None:
            return 0
        return self._ledger.feed.chars(position.reached(spaces), spaces)

    def _is_memory(self, uri: MemoryUri) -> bool:
        searched = is_searchable(uri, self._features)
        return searched and not is_session_log(uri) and self._features.kind_of(uri) is None

    def unseen(self, limit: int) -> Mapping[str, Unseen]:
        """Memories of the last ``limit`` changes that the index lacks, by URI, oldest first."""
        position = self._catalog.position()
        if position.ledger_id not in ("", self._ledger_id):  # the catalog is of another store
            self.follow()
        indexed = position.seq if position.ledger_id == self._ledger_id and position.filling is None else 0
        read, known = self._unseen
        found = {uri: item for uri, item in known.items() if item.seq > indexed}
        for row in reversed(self._ledger.newest_changes(max(read, indexed), limit)):
            read = row.seq
            found.pop(str(row.uri), None)
            if row.after is not None and not row.appended and self._is_memory(row.uri):
                memory = parse(row.uri, row.after, self._types)
                item = Unseen(row.seq, own_text(memory), row.uri.space, memory.told_in, memory.is_private)
                found[str(row.uri)] = item
        found = dict(list(found.items())[-limit:])
        self._unseen = (read, found)
        return found

    def _missing(self, position: Position) -> Literal["commits", "files"] | None:
        if position.ledger_id != self._ledger_id or self._has_other_features(position):
            return "files"
        if position.seq != self._ledger.newest_seq():
            return "commits"
        return None if position.filling is None else "files"

    def _has_other_features(self, position: Position) -> bool:
        """Whether the documents were made with other features, which search other files."""
        return position.features is not None and position.features != self._feature_names

    def _wait_of(self, missing: Literal["commits", "files"], wait_seconds: float | None) -> float:
        if wait_seconds is None:
            return math.inf
        # Once a search found that much is missing, the next ones leave it to the background.
        return 0.0 if self.is_far_behind and missing == "files" else wait_seconds

    def _slice_in_turn(self, spaces: Sequence[str], wait_seconds: float) -> None:
        ends_at = time.monotonic() + wait_seconds
        if not waited(self._turn.acquire, wait_seconds, "waiting for another writer of the index"):
            raise StoreBusy(f"another writer has held the index for {wait_seconds:g} s.", hint="Ask again in a moment.")
        try:
            with self._lock.held(max(0.0, ends_at - time.monotonic())):
                self._slice(spaces)
        finally:
            self._turn.release()

    def _slice(self, spaces: Sequence[str]) -> None:
        with self._catalog.writing() as connection:
            position = self._catalog.position()
            # Read before the rows: what is committed in between is then not skipped, only seen the next time.
            newest = self._ledger.newest_seq()
            is_beyond = any(seq > newest for seq in (position.seq, *(place.seq - 1 for _, place in position.ahead)))
            if position.ledger_id != self._ledger_id or is_beyond or self._has_other_features(position):
                self._catalog.clear(connection)
                self._catalog.advance(connection, Position(self._ledger_id, newest, _BEGINNING))
            elif position.seq < newest:
                self._catalog.advance(connection, self._follow(connection, position, newest, spaces))
            elif position.filling is not None:
                self._catalog.advance(connection, self._fill(connection, position, position.filling))
            self._catalog.note_features(connection, self._feature_names)

    def _follow(
        self, connection: sqlite3.Connection, position: Position, newest: int, spaces: Sequence[str]
    ) -> Position:
        """Index some of the changes that follow, in order; those of some spaces first, where others' are many."""
        feed, reached = self._ledger.feed, position.reached(spaces)
        too_much = feed.reach(position.seq, _SLICE_CHANGES, _SLICE_CHARS)
        if not spaces or too_much is None or not feed.touches(reached, spaces):
            until = _last_of_slice(too_much, position.seq, newest)
            return self._moved(position, *self._take(connection, position, position.seq, until))
        self.is_far_behind = True
        if not self._is_little(position, spaces):
            self._put_own_files(connection, reached, newest, spaces)
        until = _last_of_slice(feed.reach(reached, _SLICE_CHANGES, _SLICE_CHARS, spaces), reached, newest)
        until, ahead = self._take(connection, position, reached, until, spaces)
        done = SpacePosition(until + 1)
        ahead |= {space: max(done, ahead.get(space, done)) for space in spaces}
        return self._moved(position, position.seq, ahead)

    def _is_little(self, position: Position, spaces: Sequence[str]) -> bool:
        """Whether what is missing of some spaces takes seconds at most."""
        reached = position.reached(spaces)
        return bool(spaces) and self._ledger.feed.reach(reached, _LITTLE_CHANGES, _LITTLE_CHARS, spaces) is None

    def _put_own_files(self, connection: sqlite3.Connection, reached: int, newest: int, spaces: Sequence[str]) -> None:
        """Index the files that whoever asks changed last, as they are now: in a shared space others may store much."""
        if not (author := current_author()):
            return
        feed, slice_ = self._ledger.feed, self._begin()
        asked = (author, *spaces)
        looked, waiting = self._own.pop(asked, (0, []))
        waiting = [*waiting, *feed.touched_by(author, max(reached, looked), spaces, _SLICE_CHANGES)][-_SLICE_CHANGES:]
        self._own[asked] = newest, waiting
        if len(self._own) > _MOST_AUTHORS:
            del self._own[next(iter(self._own))]
        while waiting:
            if self._put_early(connection, MemoryUri.parse(waiting[-1]), newest, slice_):
                waiting.pop()
            if slice_.is_over():
                return

    def _moved(self, position: Position, seq: int, ahead: Mapping[str, SpacePosition]) -> Position:
        farther = tuple((space, place) for space, place in sorted(ahead.items()) if place > SpacePosition(seq + 1))
        return Position(self._ledger_id, seq, position.filling, ahead=farther, partial=position.partial)

    def _take(
        self,
        connection: sqlite3.Connection,
        position: Position,
        after: int,
        until: int,
        spaces: Sequence[str] = (),
    ) -> tuple[int, dict[str, SpacePosition]]:
        """Index changes after a commit; the last commit of which all are, and how far each space is."""
        rows = self._ledger.changes_between(after, until, spaces)
        filling = position.filling is not None
        # Of a file that is indexed as a whole the last time counts.
        whole = {row.uri: index for index, row in enumerate(rows) if _is_whole(row, filling)}
        ahead, slice_ = dict(position.ahead), None
        for index, row in enumerate(rows):
            space, here = space_of(row.uri), SpacePosition(row.seq, row.ordinal)
            place = max(ahead.get(space, here), here)
            if place[:2] > here[:2] or index < whole.get(row.uri, 0):
                continue
            if slice_ is None:
                slice_ = self._begin()
            elif slice_.is_over():
                return row.seq - 1, ahead
            ahead[space] = self._index(connection, row, place, slice_, filling=filling)
            if ahead[space].lines:
                return row.seq - 1, ahead
        return until, ahead

    def _fill(self, connection: sqlite3.Connection, position: Position, mark: str) -> Position:
        """Index some of the files of before; the position reached."""
        slice_ = self._begin()
        if mark == _BEGINNING:
            self._list_newest(position)
            while self._newest:
                self._put_early(connection, MemoryUri.parse(self._newest.popleft()), position.seq, slice_)
                if slice_.is_over():
                    break
            return Position(self._ledger_id, position.seq, mark if self._newest else "0:-1")
        self._list_files(position, _mark(mark))
        partial = position.partial
        for touched in self._files:
            partial = self._fill_file(connection, MemoryUri.parse(touched.uri), position.seq, partial, slice_)
            if partial is not None:
                break
            mark = f"{touched.seq}:{touched.ordinal}"
            if slice_.is_over():
                break
        is_end = not self._files or _mark(mark) == self._files[-1][:2]
        # A file that left the list by a commit nobody indexed yet is that commit's to index, as a whole.
        done = is_end and position.seq >= self._files_newest
        return Position(self._ledger_id, position.seq, None if done else mark, partial=partial)

    def _fill_file(
        self, connection: sqlite3.Connection, uri: MemoryUri, seq: int, partial: tuple[str, int] | None, slice_: _Slice
    ) -> tuple[str, int] | None:
        """Index a file as a commit left it; how much of a long log is, where the slice ends in it, else None."""
        text = self._ledger.text_at(uri, seq) if is_session_log(uri) else None
        if text is None:
            self._put_as_of(connection, uri, seq)
            return None
        start = partial[1] if partial is not None and partial[0] == str(uri) else 0
        if not start:
            self._catalog.remove(connection, uri)
        lines = self._grow(connection, uri, text, 0, start, slice_)
        return None if lines is None else (str(uri), lines)

    def _list_newest(self, position: Position) -> None:
        """The newest files of each space, in turn: one with many lets those of the others wait for no time."""
        if position.filling_id == self._newest_of:
            return
        spaces: dict[str, list[str]] = {}
        for touched in reversed(self._ledger.feed.touched((0, 0), position.seq)):
            newest = spaces.setdefault(space_of(MemoryUri.parse(touched.uri)), [])
            if len(newest) < _NEWEST_FILES:
                newest.append(touched.uri)
        in_turn = (uri for turn in zip_longest(*spaces.values()) for uri in turn if uri is not None)
        self._newest = deque(islice(in_turn, _NEWEST_FILES_IN_ALL))
        self._newest_of = position.filling_id

    def _list_files(self, position: Position, after: tuple[int, int]) -> None:
        """The files still to be indexed; others may have gone on with them, and a list that is old does no harm.

        What is taken off it is indexed for good: a step that failed is taken again.
        """
        if position.filling_id != self._files_of or after < self._files_after:
            self._files = deque(self._ledger.feed.touched(after, position.seq))
            self._files_newest = self._ledger.newest_seq()
            self._files_of = position.filling_id
        while self._files and self._files[0][:2] <= after:
            self._files.popleft()
        self._files_after = after

    def _index(
        self, connection: sqlite3.Connection, row: ChangeRow, place: SpacePosition, slice_: _Slice, *, filling: bool
    ) -> SpacePosition:
        """Bring what is indexed of a changed file to its newest text; of a log that grew only what joined it then.

        Returns:
            How far its space is: of a long log, where the slice ends in it, at some line.
        """
        done, uri = SpacePosition(row.seq, row.ordinal + 1), row.uri
        if uri.is_summary and page_rows.has_page(uri):
            page_rows.mark(connection, uri.parent, page_rows.EVERY_LINE)
        if not self._is_followed(uri):
            return done
        if row.newest is not None and not _is_whole(row, filling) and row.before_sha256 is not None:
            first = place.first if place.lines else self._ledger.line_ends(uri, row.seq - 1)
            lines = self._grow(connection, uri, row.after or "", first, place.lines, slice_)
            return done if lines is None else SpacePosition(row.seq, row.ordinal, lines, first)
        text = self._newest_text(row)
        if text is None or not is_session_log(uri):
            self._put(connection, uri, text)
            return done
        if not place.lines:
            self._catalog.remove(connection, uri)
        lines = self._grow(connection, uri, text, 0, place.lines, slice_)
        return done if lines is None else SpacePosition(row.seq, row.ordinal, lines)

    def _begin(self) -> _Slice:
        """Its time runs from now on."""
        return _Slice(lambda: self._turn.is_awaited or self._catalog.file.is_awaited)

    def _is_followed(self, uri: MemoryUri) -> bool:
        """Whether anything of a file is indexed: its text, or which lines are at rest with it."""
        return uri.scope is Scope.ARCHIVE or is_searchable(uri, self._features)

    def _newest_text(self, row: ChangeRow) -> str | None:
        if row.newest == row.seq and not row.appended:
            return row.after
        return None if row.newest is None else self._ledger.text_at(row.uri)

    def _put_as_of(self, connection: sqlite3.Connection, uri: MemoryUri, seq: int) -> None:
        """Index a file's whole text as a commit left it."""
        if self._is_followed(uri):
            self._put(connection, uri, self._ledger.text_at(uri, seq))

    def _put_early(self, connection: sqlite3.Connection, uri: MemoryUri, seq: int, slice_: _Slice) -> bool:
        """Index a file before its turn, unless it would take long; False where the slice ends in a log."""
        if not self._is_memory(uri) and self._ledger.feed.length(uri) > _SLICE_CHARS:
            return True
        text = self._ledger.text_at(uri, seq) if is_session_log(uri) else None
        if text is None:
            self._put_as_of(connection, uri, seq)
            return True
        return self._grow(connection, uri, text, slice_=slice_) is None

    def _put_resting_lines(self, connection: sqlite3.Connection, uri: MemoryUri, text: str | None) -> None:
        """Note which lines of a log are at rest with an archived file; None is a file that left the archive."""
        kind = self._features.kind_of(uri) if uri.scope is Scope.ARCHIVE else None
        found = None if kind is None else kind.resting_lines(uri, text or "")
        if found is not None:
            self._catalog.put_resting_lines(connection, uri, *found)

    def _put(self, connection: sqlite3.Connection, uri: MemoryUri, text: str | None) -> None:
        """Index a file's whole text in place of what is indexed of it."""
        self._put_resting_lines(connection, uri, text)
        if not is_searchable(uri, self._features):
            return
        self._catalog.remove(connection, uri)
        if text is None:
            page_rows.remove(connection, uri)
            return
        if is_session_log(uri):
            self._grow(connection, uri, text)
        else:
            kind = self._features.kind_of(uri)
            if kind is None:
                memory = parse(uri, text, self._types)
                self._catalog.put(connection, memory_document(memory))
                page_rows.put(connection, memory, self._ledger.origin(uri))
                return
            for document in kind.documents(uri, text):
                self._catalog.put(connection, document)

    def _grow(
        self,
        connection: sqlite3.Connection,
        uri: MemoryUri,
        text: str,
        first: int = 0,
        start: int = 0,
        slice_: _Slice | None = None,
    ) -> int | None:
        """Index what joined a log, from its line ``start`` on; the line where the slice ends, None if at none.

        ``first`` is the number of the first line of the text in its log. Lines that are indexed already stay.
        """
        for following, messages in _pieces(text, start):
            earlier = self._catalog.last_turns(uri)
            last = earlier[-1].part if earlier else -1
            said = [(first + line, message) for line, message in messages if first + line > last]
            self._catalog.grow(connection, uri, session_growth(uri, earlier, said))
            if following is not None and slice_ is not None and slice_.is_over():
                return following
        return None


def _pieces(text: str, start: int) -> Iterator[tuple[int | None, list[tuple[int, Message]]]]:
    """The messages of a log from a line on, in pieces; each with the number of the line that follows, or None."""
    # What follows the last line end is no line yet: when the log has grown, another one begins there.
    lines, number = islice(each_line(text.removesuffix("\n")) if text else (), start, None), start
    line = next(lines, None)
    while line is not None:
        piece: list[str] = []
        chars = 0
        while line is not None and chars < _PIECE_CHARS:
            piece.append(line)
            chars += len(line)
            line = next(lines, None)
        messages = [(number + at, message) for at, message in numbered("\n".join(piece))]
        number += len(piece)
        yield None if line is None else number, messages


def _last_of_slice(too_much: int | None, after: int, newest: int) -> int:
    """The last commit whose changes are read for a slice; ``too_much`` is the one with which they are too many."""
    return newest if too_much is None else max(too_much - 1, after + 1)


def _is_whole(row: ChangeRow, filling: bool) -> bool:
    """Whether a change has its file indexed anew: each but what joined a conversation that is indexed already."""
    return not row.appended or filling or not is_session_log(row.uri)


def _mark(filling: str | None) -> tuple[int, int]:
    seq, _, ordinal = (filling or "0:-1").partition(":")
    return int(seq), int(ordinal)
