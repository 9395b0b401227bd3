"""The ledger: journal, history, names and usage, in one SQLite file that is kept.

A commit is one row, with the text after each of its changes; its COMMIT (one fsync) is the acknowledgement. The
files follow. ``settled`` marks commits whose files are known to be on disk; the rest is what recovery
looks at. The name table (``files``) says which key owns which file and what the last commit left there.
It can be rebuilt from the files; history, usage and the queue (``extractions``) cannot. What its tables are, version by
version, is in ``ledger.sql``.
"""

from __future__ import annotations

import json
import re
import secrets
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from memory_core.core.errors import StoreBusy
from memory_core.core.frozen import frozen
from memory_core.core.memory.directory_page import own_words
from memory_core.core.memory.names import fold
from memory_core.core.memory.results import FileChange, SessionProgress, text_sha256
from memory_core.core.memory.uri import MemoryUri, places_of, range_below
from memory_core.core.store.files import FileStat
from memory_core.core.store.history_rows import ERASED, PastCommit, PastTable, note_progress, within
from memory_core.core.store.issued_tokens import IssuedTokens
from memory_core.core.store.session_rows import ExtractionQueue, record_progress
from memory_core.core.store.sqlite import Database, Table, keep_before_migrating
from memory_core.core.store.usage import InjectionTable, ModelCallTable, UsageTable, move_usage
from memory_core.core.text.normalization import simplified

_RECENT_COMMITS = 200


class MovementTable(Table):
    """Reads the name table and recent external commits; owns no table."""

    def stats(self, below: MemoryUri) -> dict[str, FileStat | None]:
        """What the files at or below a URI looked like when they were last settled, by URI; None where not known."""
        if not below.parts:
            return self._stats("1")
        return self._stats("uri = ? OR (uri > ? AND uri < ?)", str(below), *range_below(below))

    def stats_in(self, directory: MemoryUri) -> dict[str, FileStat | None]:
        """The same for the files directly in a directory."""
        return self._stats("directory = ?", str(directory))

    def _stats(self, where: str, *values: str) -> dict[str, FileStat | None]:
        rows = self._rows(f"SELECT uri, size_bytes, mtime_ns FROM files WHERE {where}", *values)
        return {uri: None if size is None else FileStat(size, mtime) for uri, size, mtime in rows}

    def with_texts(self, hashes: Iterable[str]) -> list[tuple[str, str]]:
        """(SHA-256, URI) of the files that hold one of these texts, by URI; looks at all files."""
        return self._rows(
            "SELECT sha256, uri FROM files WHERE sha256 IN (SELECT value FROM json_each(?)) ORDER BY uri",
            json.dumps(list(hashes)),
        )

    def keeps(self, sha256: str) -> bool:
        """Whether some commit holds the text with this hash; looks at all of them."""
        found = self._row("SELECT 1 FROM changes WHERE after_sha256 = ?1 OR before_sha256 = ?1 LIMIT 1", sha256)
        return found is not None

    def twins(self, directory: MemoryUri, name_fold: str) -> list[str]:
        """URIs of the files of a directory whose names some file system takes for this one."""
        rows = self._rows("SELECT uri FROM files WHERE directory = ? AND name_fold = ?", str(directory), name_fold)
        return [uri for (uri,) in rows]

    def deleted_by_hand(self, since: str) -> list[tuple[str, str]]:
        """(SHA-256, URI) of files that people deleted since a time (ISO 8601, UTC), and that did not come back.

        What was recognised as the old place of another file is left out.
        """
        first = int(self._value("SELECT coalesce(max(seq), 0) FROM commits")) - _RECENT_COMMITS
        rows = self._rows(
            "SELECT before_sha256, uri FROM changes JOIN commits USING (seq) "
            "WHERE kind = 'external' AND at >= ? AND after_sha256 IS NULL AND before_sha256 IS NOT NULL "
            "AND seq > ? AND NOT EXISTS (SELECT 1 FROM files WHERE files.uri = changes.uri) "
            "ORDER BY seq DESC, ordinal",
            since,
            first,
        )
        moved = self._rows("SELECT moved_from FROM changes WHERE seq > ? AND moved_from IS NOT NULL", first)
        claimed = {uri for (uri,) in moved}
        return [(sha256, uri) for sha256, uri in rows if uri not in claimed]


_NEWEST = 2**63 - 1
COLUMNS = "seq, ordinal, uri, memory_type, appended, before, after, before_sha256, after_sha256, moved_from"


@frozen
class ChangeRow:
    """One stored file change, at its place in its commit; for an append, ``after`` is the tail, ``before`` is None.

    Attributes:
        newest: The last commit that changed the file; None where the file is gone, or nobody asked.
    """

    seq: int
    ordinal: int
    uri: MemoryUri
    memory_type: str
    appended: bool
    before: str | None
    after: str | None
    before_sha256: str | None
    after_sha256: str | None
    moved_from: MemoryUri | None = None
    newest: int | None = None


def change_row(row: tuple[Any, ...]) -> ChangeRow:
    """A change from its ``COLUMNS``."""
    seq, ordinal, uri, memory_type, appended, before, after, before_sha256, after_sha256, moved_from, *newest = row
    moved = None if moved_from is None else MemoryUri.parse(moved_from)
    place = MemoryUri.parse(uri)
    hashes = before_sha256, after_sha256
    return ChangeRow(seq, ordinal, place, memory_type, bool(appended), before, after, *hashes, moved, *newest)


def insert_change(connection: sqlite3.Connection, seq: int, ordinal: int, change: FileChange) -> None:
    """Store one change of a commit: of an append only the tail, and the text before only if no commit left it."""
    before, after = change.before, change.after
    if change.appended and after is not None:
        before, after = None, after[len(change.before or "") :]
    uri = str(change.uri)
    if before is not None:
        newest = connection.execute("SELECT after_sha256 FROM changes WHERE uri = ? ORDER BY seq DESC LIMIT 1", (uri,))
        if newest.fetchone() == (change.before_sha256,):
            before = None
    moved_from = None if change.moved_from is None else str(change.moved_from)
    hashes = change.before_sha256, change.after_sha256
    connection.execute(
        f"INSERT INTO changes ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (seq, ordinal, uri, change.memory_type, int(change.appended), before, after, *hashes, moved_from),
    )


def upsert_name(connection: sqlite3.Connection, seq: int, change: FileChange) -> None:
    """Let the name table say what a change left."""
    if change.after is None:
        connection.execute("DELETE FROM files WHERE uri = ?", (str(change.uri),))
        return
    uri = change.uri
    # Not INSERT OR REPLACE: the counting triggers would not see the row that it removes.
    connection.execute(
        "INSERT INTO files (uri, directory, name_fold, memory_type, key, sha256, seq) VALUES (?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (uri) DO UPDATE SET memory_type = excluded.memory_type, key = excluded.key, "
        "sha256 = excluded.sha256, size_bytes = NULL, mtime_ns = NULL, seq = excluded.seq",
        (str(uri), str(uri.parent), fold(uri.name), change.memory_type, change.key, change.after_sha256, seq),
    )


def is_lossy(text: str, size_bytes: int | None) -> bool:
    """Whether a text of the ledger is only what could be read of a file that was not UTF-8.

    Args:
        text: The ledger's.
        size_bytes: Of the file when it was last looked at; None where that is not known.
    """
    # U+FFFD is longer than the bytes that it was read for; of a file that holds it itself, the size is the text's.
    return "\ufffd" in text and len(text.encode("utf-8", "replace")) != size_bytes


def stored_text(connection: sqlite3.Connection, uri: str, seq: int = _NEWEST, *, named: bool = False) -> str | None:
    """A file's text as commit ``seq`` left it, appends joined to what they extend; None for none.

    Args:
        connection: Of a ledger.
        uri: The file.
        seq: Default its last commit.
        named: Whether there is none where the name table has none: of a history that was taken in before its files.
    """
    pieces = list(_pieces(connection, uri, seq, named=named))
    return "".join(reversed(pieces)) if pieces else None


def _pieces(connection: sqlite3.Connection, uri: str, seq: int, *, named: bool = False) -> Iterator[str]:
    """What ``stored_text`` joins, the end first; nothing for no text."""
    known = "AND EXISTS (SELECT 1 FROM files WHERE uri = ?1) " if named else ""
    rows = connection.execute(
        f"SELECT appended, after FROM changes WHERE uri = ?1 AND seq <= ?2 {known}ORDER BY seq DESC, ordinal DESC",
        (uri, seq),
    )
    for appended, after in rows:
        if after is not None:
            yield after
        if not appended:
            return


class Touched(NamedTuple):
    """A file and the change that last touched it: commit and place in that commit."""

    seq: int
    ordinal: int
    uri: str


class ChangeFeed(Table):
    """Reads ``changes`` and ``files``; ``spaces`` are ``scope/space`` names, none given are all."""

    def changes(self, after: int = 0, spaces: Sequence[str] = ()) -> int:
        """How many changes later commits than ``after`` hold."""
        inside, bounds = _within_spaces(spaces)
        return int(self._value(f"SELECT count(*) FROM changes WHERE seq > ? AND {inside}", after, *bounds))

    def chars(self, after: int, spaces: Sequence[str]) -> int:
        """How many characters later commits than ``after`` put into these spaces."""
        inside, bounds = _within_spaces(spaces)
        asked = f"SELECT sum(length(after)) FROM changes WHERE seq > ? AND {inside}"
        return int(self._value(asked, after, *bounds) or 0)

    def length(self, uri: MemoryUri) -> int:
        """How many characters the changes of a file hold."""
        return int(self._value("SELECT sum(length(after)) FROM changes WHERE uri = ?", str(uri)) or 0)

    def reach(self, after: int, changes: int, chars: int, spaces: Sequence[str] = ()) -> int | None:
        """The commit in which those after ``after`` exceed so many changes, or characters; None where they do not."""
        inside, values = _begins_in(spaces)
        found = self._database.connection().execute(
            "SELECT seq, coalesce(length(after), 0) FROM changes "
            f"WHERE seq > ? AND {inside} ORDER BY seq, ordinal LIMIT ?",
            (after, *values, changes + 1),
        )
        total_chars = 0
        for number, (seq, length) in enumerate(found):
            total_chars += length
            if number == changes or total_chars > chars:
                found.close()
                return int(seq)
        return None

    def touched_by(self, author: str, after: int, spaces: Sequence[str], limit: int) -> list[str]:
        """Files of these spaces that the last commits of an author after ``after`` touched, oldest first."""
        inside, values = _begins_in(spaces)
        rows = self._rows(
            "SELECT uri, max(seq) FROM changes WHERE seq IN (SELECT seq FROM commits WHERE seq > ? AND author = ?) "
            f"AND {inside} GROUP BY uri ORDER BY 2 DESC LIMIT ?",
            after,
            author,
            *values,
            limit,
        )
        return [uri for uri, _ in reversed(rows)]

    def touches(self, after: int, spaces: Sequence[str]) -> bool:
        """Whether a commit that follows ``after`` changed something of these spaces."""
        inside, values = _begins_in(spaces)
        return self._row(f"SELECT 1 FROM changes WHERE seq > ? AND {inside} LIMIT 1", after, *values) is not None

    def files(self, spaces: Sequence[str] = ()) -> int:
        """How many files the ledger knows."""
        inside, bounds = _within_spaces(spaces)
        return int(self._value(f"SELECT count(*) FROM files WHERE {inside}", *bounds))

    def touched(self, after: tuple[int, int], until: int) -> list[Touched]:
        """Files last touched behind ``after`` (commit, place) and no later than commit ``until``, oldest first."""
        rows = self._rows(
            "SELECT f.seq, coalesce((SELECT max(c.ordinal) FROM changes c WHERE c.uri = f.uri AND c.seq = f.seq), 0) "
            "AS ordinal, f.uri FROM files f WHERE f.seq >= ? AND f.seq <= ? ORDER BY 1, 2, 3",
            after[0],
            until,
        )
        return [Touched(*row) for row in rows if (row[0], row[1]) > after]

    def touched_before(self, seq: int, spaces: Sequence[str] = ()) -> int:
        """How many files were last touched by a commit before ``seq``."""
        inside, bounds = _within_spaces(spaces)
        return int(self._value(f"SELECT count(*) FROM files WHERE seq < ? AND {inside}", seq, *bounds))


def _within_spaces(spaces: Sequence[str]) -> tuple[str, list[str]]:
    """The condition that a URI is of one of the spaces, and what it compares."""
    return within("uri", places_of(spaces)) if spaces else ("1 = 1", [])


def _begins_in(spaces: Sequence[str]) -> tuple[str, list[str | int]]:
    """The same for the changes of a few commits, which are found by their numbers and not by their URIs."""
    if not spaces:
        return "1 = 1", []
    places = [f"{place}/" for place in places_of(spaces)]
    inside = " OR ".join(["substr(uri, 1, ?) = ?"] * len(places))
    return f"({inside})", [value for place in places for value in (len(place), place)]


class DirectoryTable(Table):
    """Reads counts and names; commits move them."""

    def count(self, directory: MemoryUri) -> int:
        """How many memory files are directly in a directory."""
        return int(self._value("SELECT memories FROM directories WHERE directory = ?", str(directory)) or 0)

    def counts(self, below: MemoryUri | str) -> dict[str, int]:
        """How many memory files are directly in each directory below a URI that has any, by URI."""
        return dict(
            self._rows(
                "SELECT directory, memories FROM directories WHERE memories > 0 AND directory > ? AND directory < ? "
                "ORDER BY directory",
                *range_below(below),
            )
        )

    def sessions(self, below: MemoryUri) -> int:
        """How many conversations have a log below a URI."""
        return int(self._logs("count(*)", "", below)[0][0])

    def newest_logs(self, below: MemoryUri, limit: int) -> list[str]:
        """URIs of the conversation logs below a URI that grew last, newest first; looks at all of them."""
        return [uri for (uri,) in self._logs("uri", f"ORDER BY seq DESC, uri LIMIT {int(limit)}", below)]

    def _logs(self, columns: str, rest: str, below: MemoryUri) -> list[Any]:
        return self._rows(
            f"SELECT {columns} FROM files WHERE uri > ? AND uri < ? AND name_fold = 'messages.jsonl' {rest}",
            *range_below(below),
        )

    def newest(self, directory: MemoryUri, limit: int) -> list[str]:
        """Names of the memory files directly in a directory that changed last, newest first; sorts all of them."""
        rows = self._rows(
            "SELECT uri FROM files WHERE directory = ? AND name_fold LIKE '%.md' AND name_fold NOT LIKE '.%' "
            "ORDER BY seq DESC, uri LIMIT ?",
            str(directory),
            limit,
        )
        return [uri.rpartition("/")[2] for (uri,) in rows]


class Holdings(Table):
    """Counts in the tables of others; ``below`` are URIs, everything under them counts."""

    def files(self, below: Sequence[str], glob: str = "*") -> tuple[int, int]:
        """How many files there are, and their bytes; those of the last second may not have a size yet.

        Args:
            below: Where.
            glob: Only URIs of this form.
        """
        return self._sums("count(*), sum(size_bytes) FROM files WHERE uri GLOB ? AND {within}", "uri", below, glob)

    def waiting(self, below: Sequence[str]) -> tuple[int, int]:
        """How many conversations wait for extraction, and how many of their messages."""
        asked = "count(*), sum(stored - extracted) FROM extractions WHERE stored > extracted AND {within}"
        return self._sums(asked, "log", below)

    def commits(self, below: Sequence[str]) -> Mapping[str, int]:
        """How many commits of each kind touched anything there, most first."""
        inside, bounds = within("uri", below)
        rows = self._rows(
            "SELECT kind, count(*) FROM commits WHERE EXISTS "
            f"(SELECT 1 FROM changes WHERE changes.seq = commits.seq AND {inside}) GROUP BY kind ORDER BY 2 DESC, 1",
            *bounds,
        )
        return dict(rows)

    def _sums(self, asked: str, column: str, below: Sequence[str], *values: str) -> tuple[int, int]:
        inside, bounds = within(column, below)
        first, second = self._row(f"SELECT {asked.format(within=inside)}", *values, *bounds)
        return int(first), int(second or 0)


class Overtaken(StoreBusy):
    """Another writer committed although the lock was held."""

    def __init__(self) -> None:
        super().__init__("another writer broke the lock.", hint="Send the same request again.")


@frozen
class FileRow:
    """What the last commit left at a URI; ``stat`` is None until it settled."""

    uri: MemoryUri
    memory_type: str
    key: str
    sha256: str
    stat: FileStat | None


def new_commit_id() -> str:
    """A name that no other commit has: its second, then chance."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"


@cache
def migrations() -> tuple[str, ...]:
    """What takes a ledger from each version to the next; see ``ledger.sql``."""
    script = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    return tuple(re.split(r"(?m)^-- version \d+\n", script)[1:])


class Ledger(Table):
    """Reads and writes ``ledger.sqlite3``; knows no files on disk."""

    def __init__(self, path: Path) -> None:
        functions: dict[str, Callable[..., str | None]] = {
            "refold": simplified,
            "space_of": _space_of,
            "page_words": _page_words,
            "sha256_of": _sha256_of,
        }
        hint = "Stop all programs that use this store, then run runebook doctor --repair."
        self._use(Database(path, migrations(), "FULL", functions, keep_before_migrating, damage_hint=hint))

    def _use(self, database: Database) -> None:
        super().__init__(database)
        self.extractions = ExtractionQueue(database)
        self.directories = DirectoryTable(database)
        self.usage_table = UsageTable(database)
        self.feed = ChangeFeed(database)
        self.injections = InjectionTable(database)
        self.model_calls = ModelCallTable(database)
        self.tokens = IssuedTokens(database)
        self.past = PastTable(database)
        self.movements = MovementTable(database)
        self.holdings = Holdings(database)

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    @property
    def ledger_id(self) -> str:
        """Names this ledger for its whole life; an index built from another one must be rebuilt."""
        return str(self._value("SELECT value FROM meta WHERE name = 'ledger_id'"))

    def record(
        self,
        changes: Iterable[FileChange],
        *,
        commit_id: str,
        at: str,
        kind: str,
        receipt: Mapping[str, Any],
        request_id: str | None = None,
        settled: bool = False,
        progress: SessionProgress | None = None,
        author: str = "",
        undoes: str | None = None,
        follows: int | None = None,
    ) -> int:
        """Append one commit, with the progress of the session it belongs to; when this returns, it is acknowledged.

        Returns:
            Its sequence number.

        Raises:
            Overtaken: If the newest commit is not ``follows``, which it was planned upon. Nothing was stored.
        """
        with self._database.writing() as connection:
            text = json.dumps(receipt, ensure_ascii=False)
            values = (commit_id, request_id, at, kind, text, int(settled), author, undoes)
            seq = self._append(connection, values, follows)
            for ordinal, change in enumerate(changes):
                insert_change(connection, seq, ordinal, change)
                upsert_name(connection, seq, change)
                if change.moved_from is not None:
                    move_usage(connection, str(change.moved_from), str(change.uri))
            if progress is not None:
                note_progress(connection, seq, progress)
                record_progress(connection, progress, at)
        return seq

    def _append(self, connection: sqlite3.Connection, values: Sequence[Any], follows: int | None) -> int:
        cursor = connection.execute(
            "INSERT INTO commits (commit_id, request_id, at, kind, receipt, settled, author, undoes) "
            "SELECT ?, ?, ?, ?, ?, ?, ?, ? FROM (SELECT coalesce(max(seq), 0) AS newest FROM commits) "
            "WHERE coalesce(?, newest) = newest",
            (*values, follows),
        )
        if cursor.rowcount == 0:
            raise Overtaken
        return int(cursor.lastrowid or 0)

    def advance(self, progress: SessionProgress, at: str) -> None:
        """Record a session's progress that changed no file."""
        with self._database.writing() as connection:
            record_progress(connection, progress, at)

    def settle(self, seqs: Iterable[int], stats: Mapping[MemoryUri, FileStat | None]) -> None:
        """Note that these commits' files are on disk, and what their files look like."""
        with self._database.writing() as connection:
            connection.executemany("UPDATE commits SET settled = 1 WHERE seq = ?", [(seq,) for seq in seqs])
            connection.executemany(
                "UPDATE files SET size_bytes = ?, mtime_ns = ? WHERE uri = ?",
                [(stat.size_bytes, stat.mtime_ns, str(uri)) for uri, stat in stats.items() if stat is not None],
            )

    def attach(self, receipts: Iterable[Mapping[str, Any]]) -> None:
        """Replace the stored receipts by their final form; a power loss may leave the first one.

        Of commits since which texts were erased the stored ones stay: the final form may quote what is gone.
        """
        with self._database.writing(synced=False) as connection:
            connection.executemany(
                "UPDATE commits SET receipt = ? WHERE commit_id = ? "
                "AND seq > coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE name = ?), 0)",
                [(json.dumps(receipt, ensure_ascii=False), receipt["commit_id"], ERASED) for receipt in receipts],
            )

    def unsettled(self) -> list[int]:
        """Sequence numbers of commits whose files may not be on disk yet."""
        return self.head()[1]

    def unsettled_uris(self) -> frozenset[str]:
        """The files of these commits."""
        rows = self._rows("SELECT uri FROM changes WHERE seq IN (SELECT seq FROM commits WHERE settled = 0)")
        return frozenset(uri for (uri,) in rows)

    def head(self) -> tuple[int, list[int]]:
        """The last commit's number, 0 when there is none, and the commits that may not be on disk yet, in order."""
        found = self._rows(
            "SELECT last.seq, waiting.seq FROM (SELECT coalesce(max(seq), 0) AS seq FROM commits) last "
            "LEFT JOIN commits waiting ON waiting.settled = 0 ORDER BY waiting.seq"
        )
        return int(found[0][0]), [int(seq) for _, seq in found if seq is not None]

    def newest_seq(self) -> int:
        """The last commit's number; 0 when there is none."""
        return int(self._value("SELECT max(seq) FROM commits") or 0)

    def newest_apart_from(self, *kinds: str) -> int:
        """The number of the last commit of another kind; 0 when there is none."""
        marks = ", ".join("?" * len(kinds))
        found = self._value(f"SELECT seq FROM commits WHERE kind NOT IN ({marks}) ORDER BY seq DESC LIMIT 1", *kinds)
        return int(found or 0)

    def receipt_for(self, request_id: str) -> Mapping[str, Any] | None:
        """The receipt that the first commit with this ``request_id`` got."""
        found = self._value("SELECT receipt FROM commits WHERE request_id = ?", request_id)
        return None if found is None else dict(json.loads(found))

    def changes_of(self, seqs: Iterable[int]) -> list[ChangeRow]:
        """The changes of these commits, in order."""
        found = (row for seq in seqs for row in self._changes("seq = ? ORDER BY ordinal", seq))
        return [replace(row, before=self._text_before(row)) for row in found]

    def change(self, seq: int, uri: MemoryUri) -> ChangeRow | None:
        """What a commit changed of one file; None for nothing."""
        found = self._changes("seq = ? AND uri = ? ORDER BY ordinal DESC LIMIT 1", seq, str(uri))
        return replace(found[0], before=self._text_before(found[0])) if found else None

    def steps_of(self, seq: int) -> list[ChangeRow]:
        """The changes of a commit, in order, without their texts: of a large one a list needs no more."""
        bare = COLUMNS.replace(" before, after,", " NULL, NULL,")
        return self._changes("seq = ? ORDER BY ordinal", seq, columns=bare)

    def changes_between(self, after: int, until: int, spaces: Sequence[str] = ()) -> list[ChangeRow]:
        """Changes of the commits that follow ``after``, up to ``until``, in order, each with the newest of its file.

        The texts that they replaced are left out.

        Args:
            after: The last commit before.
            until: The last commit.
            spaces: Only changes of these (``scope/space``); none given are all.
        """
        inside, values = _begins_in(spaces)
        newest = "(SELECT f.seq FROM files f WHERE f.uri = changes.uri) AS newest"
        where = f"seq > ? AND seq <= ? AND {inside} ORDER BY seq, ordinal"
        return self._changes(where, after, until, *values, columns=f"{COLUMNS}, {newest}")

    def newest_changes(self, after: int, limit: int) -> list[ChangeRow]:
        """The last ``limit`` changes of commits that follow ``after``, newest first; without what they replaced."""
        return self._changes("seq > ? ORDER BY seq DESC, ordinal DESC LIMIT ?", after, limit)

    def _changes(self, where: str, *values: Any, columns: str = COLUMNS) -> list[ChangeRow]:
        return [change_row(row) for row in self._rows(f"SELECT {columns} FROM changes WHERE {where}", *values)]

    def _text_before(self, row: ChangeRow) -> str | None:
        """The text that a change replaced, which an earlier one left; of an append, and where it is unknown, None."""
        if row.before is not None or row.before_sha256 is None or row.appended:
            return row.before
        return self.text_at(row.uri, row.seq - 1)

    def history(self, uri: MemoryUri | None = None, limit: int = 50) -> list[PastCommit]:
        """Commits, newest first; with ``uri``, those that touched it."""
        where = "1" if uri is None else "seq IN (SELECT seq FROM changes WHERE uri = ?)"
        named = () if uri is None else (str(uri),)
        return self.past.where(f"{where} ORDER BY seq DESC LIMIT ?", *named, limit)

    def last_changed_by(self, kinds: Sequence[str]) -> dict[str, str]:
        """URIs whose newest change is of a commit of these kinds, and when that was, ISO 8601."""
        rows = self._rows(
            "SELECT c.uri, k.at FROM commits k JOIN changes c ON c.seq = k.seq "
            f"WHERE k.kind IN ({', '.join('?' * len(kinds))}) "
            "AND NOT EXISTS (SELECT 1 FROM changes later WHERE later.uri = c.uri AND later.seq > c.seq)",
            *kinds,
        )
        return dict(rows)

    def lost_texts(self, kind: str, uris: Collection[str]) -> frozenset[str]:
        """Those of some files that a commit of this kind ever changed, or of which a text was erased for good."""
        rows = self._rows(
            "SELECT DISTINCT c.uri FROM commits k JOIN changes c ON c.seq = k.seq WHERE (k.kind = ? OR c.purged = 1) "
            "AND c.uri IN (SELECT value FROM json_each(?))",
            kind,
            json.dumps(list(uris)),
        )
        return frozenset(uri for (uri,) in rows)

    def text_at(self, uri: MemoryUri, seq: int = _NEWEST) -> str | None:
        """The file's text as commit ``seq`` left it, default the last one; appends are joined to what they extend."""
        return stored_text(self._database.connection(), str(uri), seq)

    def line_ends(self, uri: MemoryUri, seq: int) -> int:
        """How many lines end in the file's text as commit ``seq`` left it; of a log it is never joined."""
        return sum(piece.count("\n") for piece in _pieces(self._database.connection(), str(uri), seq))

    def origin(self, uri: MemoryUri) -> tuple[int, int]:
        """The commit that created a file, the last time, and its place there; far behind all others if unknown."""
        row = self._row(
            "SELECT seq, ordinal FROM changes WHERE uri = ?1 AND seq > coalesce("
            "(SELECT max(seq) FROM changes WHERE uri = ?1 AND after_sha256 IS NULL), 0) "
            "ORDER BY seq, ordinal LIMIT 1",
            str(uri),
        )
        return (0, 0) if row is None else (int(row[0]), int(row[1]))

    def file(self, uri: MemoryUri) -> FileRow | None:
        """What the last commit left at ``uri``, or None."""
        return next(iter(self._files("uri = ?", str(uri))), None)

    def sha256_of(self, uri: MemoryUri) -> str | None:
        """Hash of the text that the last commit left at ``uri``; None for none."""
        row = self.file(uri)
        return None if row is None else row.sha256

    def files_of(self, uris: Iterable[str]) -> list[FileRow]:
        """What the last commits left at these URIs; those where there is nothing are left out."""
        return self._files("uri IN (SELECT value FROM json_each(?))", json.dumps(list(uris)))

    def stats(self) -> dict[str, FileStat | None]:
        """What every known file looked like when it was last settled, by URI; None where that is not known."""
        return self.movements.stats(MemoryUri())

    def locate(self, directory: MemoryUri, memory_type: str, key: str) -> MemoryUri | None:
        """The file that holds the memory with this normalised key."""
        found = self._files("directory = ? AND memory_type = ? AND key = ? LIMIT 1", str(directory), memory_type, key)
        return found[0].uri if found else None

    def name_taken(self, directory: MemoryUri, name: str) -> bool:
        """Whether a file here has this name, or one that some file system confuses with it."""
        asked = "SELECT 1 FROM files WHERE directory = ? AND name_fold = ? LIMIT 1"
        return self._row(asked, str(directory), fold(name)) is not None

    def text_with(self, uri: MemoryUri, sha256: str) -> str | None:
        """The text with this hash that the file once had; None if no commit knows it."""
        found: str | None = self._value(
            "SELECT after FROM changes WHERE uri = ? AND after_sha256 = ? AND appended = 0 LIMIT 1", str(uri), sha256
        )
        return found

    def _files(self, where: str, *values: str) -> list[FileRow]:
        rows = self._rows(
            f"SELECT uri, memory_type, key, sha256, size_bytes, mtime_ns FROM files WHERE {where}", *values
        )
        return [
            FileRow(MemoryUri.parse(uri), memory_type, key, sha256, None if size is None else FileStat(size, mtime))
            for uri, memory_type, key, sha256, size, mtime in rows
        ]


def _page_words(uri: str, text: str | None) -> str | None:
    """What the ledger keeps of a page, for the migration of pages that it kept whole."""
    return own_words(uri.rpartition("/")[2], text)


def _sha256_of(text: str | None) -> str | None:
    return None if text is None else text_sha256(text)


def _space_of(uri: str) -> str:
    """The space in a stored URI, for the migration of request ids."""
    return uri.split("/")[3]
