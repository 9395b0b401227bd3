"""The ledger: journal, history, names and usage, in one SQLite file that is kept.

A commit is one row with the texts before and after; its COMMIT (one fsync) is the acknowledgement. The
files follow. ``settled`` marks commits whose files are known to be on disk; the rest is what recovery
looks at. The name table (``files``) says which key owns which file and what the last commit left there.
It can be rebuilt from the files; history, usage and the queue (``extractions``) cannot.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from memory_core.core.errors import StoreBusy
from memory_core.core.frozen import frozen
from memory_core.core.memory.directory_page import own_words
from memory_core.core.memory.names import fold, refold
from memory_core.core.memory.results import FileChange, SessionProgress, text_sha256
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.files import FileStat
from memory_core.core.store.history_rows import SCHEMA as _PAST
from memory_core.core.store.history_rows import PastTable, note_progress
from memory_core.core.store.issued_tokens import SCHEMA as _TOKENS
from memory_core.core.store.issued_tokens import SHARED_SCHEMA as _SHARED
from memory_core.core.store.issued_tokens import IssuedTokens
from memory_core.core.store.logins import SCHEMA as _LOGINS
from memory_core.core.store.session_rows import SCHEMA as _EXTRACTIONS
from memory_core.core.store.session_rows import ExtractionQueue, record_progress
from memory_core.core.store.sqlite import Database, keep_before_migrating
from memory_core.core.store.usage import INJECTIONS_SCHEMA as _INJECTIONS
from memory_core.core.store.usage import MODEL_CALLS_SCHEMA as _MODEL_CALLS
from memory_core.core.store.usage import USAGE_SCHEMA as _USAGE
from memory_core.core.store.usage import InjectionTable, ModelCallTable, Usage, UsageTable, move_usage

_RECENT_COMMITS = 200


class MovementTable:
    """Reads the name table and recent external commits; owns no table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def stats(self, below: MemoryUri) -> dict[str, FileStat | None]:
        """What the files at or below a URI looked like when they were last settled, by URI; None where not known."""
        if not below.parts:
            return self._stats("1", ())
        return self._stats("uri = ? OR (uri > ? AND uri < ?)", (str(below), f"{below}/", f"{below}0"))

    def stats_in(self, directory: MemoryUri) -> dict[str, FileStat | None]:
        """The same for the files directly in a directory."""
        return self._stats("directory = ?", (str(directory),))

    def _stats(self, where: str, arguments: tuple[str, ...]) -> dict[str, FileStat | None]:
        rows = self._database.connection().execute(
            f"SELECT uri, size_bytes, mtime_ns FROM files WHERE {where}", arguments
        )
        return {uri: None if size is None else FileStat(size, mtime) for uri, size, mtime in rows}

    def with_texts(self, hashes: Iterable[str]) -> list[tuple[str, str]]:
        """(SHA-256, URI) of the files that hold one of these texts, by URI; looks at all files."""
        rows = self._database.connection().execute(
            "SELECT sha256, uri FROM files WHERE sha256 IN (SELECT value FROM json_each(?)) ORDER BY uri",
            (json.dumps(list(hashes)),),
        )
        return [(str(sha256), str(uri)) for sha256, uri in rows]

    def keeps(self, sha256: str) -> bool:
        """Whether some commit holds the text with this hash; looks at all of them."""
        found = self._database.connection().execute(
            "SELECT 1 FROM changes WHERE after_sha256 = ?1 OR before_sha256 = ?1 LIMIT 1", (sha256,)
        )
        return found.fetchone() is not None

    def twins(self, directory: MemoryUri, name_fold: str) -> list[str]:
        """URIs of the files of a directory whose names some file system takes for this one."""
        rows = self._database.connection().execute(
            "SELECT uri FROM files WHERE directory = ? AND name_fold = ?", (str(directory), name_fold)
        )
        return [str(uri) for (uri,) in rows]

    def deleted_by_hand(self, since: str) -> list[tuple[str, str]]:
        """(SHA-256, URI) of files that people deleted since a time (ISO 8601, UTC), and that did not come back.

        What was recognised as the old place of another file is left out.
        """
        connection = self._database.connection()
        newest = int(connection.execute("SELECT coalesce(max(seq), 0) FROM commits").fetchone()[0])
        rows = connection.execute(
            "SELECT before_sha256, uri FROM changes JOIN commits USING (seq) "
            "WHERE kind = 'external' AND at >= ? AND after_sha256 IS NULL AND before_sha256 IS NOT NULL "
            "AND seq > ? AND NOT EXISTS (SELECT 1 FROM files WHERE files.uri = changes.uri) "
            "ORDER BY seq DESC, ordinal",
            (since, newest - _RECENT_COMMITS),
        ).fetchall()
        claimed = connection.execute(
            "SELECT moved_from FROM changes WHERE seq > ? AND moved_from IS NOT NULL", (newest - _RECENT_COMMITS,)
        )
        taken = {uri for (uri,) in claimed}
        return [(str(sha256), str(uri)) for sha256, uri in rows if uri not in taken]


_NEWEST = 2**63 - 1
COLUMNS = "seq, uri, memory_type, appended, before, after, before_sha256, after_sha256, moved_from"


@frozen
class ChangeRow:
    """One stored file change; for an append, ``after`` is the tail and ``before`` is None."""

    seq: int
    uri: MemoryUri
    memory_type: str
    appended: bool
    before: str | None
    after: str | None
    before_sha256: str | None
    after_sha256: str | None
    moved_from: MemoryUri | None = None


def change_row(row: tuple[Any, ...]) -> ChangeRow:
    """A change from its ``COLUMNS``."""
    seq, uri, memory_type, appended, before, after, before_sha256, after_sha256, moved_from = row
    moved = None if moved_from is None else MemoryUri.parse(moved_from)
    place = MemoryUri.parse(uri)
    return ChangeRow(seq, place, memory_type, bool(appended), before, after, before_sha256, after_sha256, moved)


def insert_change(connection: sqlite3.Connection, seq: int, ordinal: int, change: FileChange) -> None:
    """Store one change of a commit: of an append only the tail, and the text before only if no commit left it."""
    before, after = change.before, change.after
    if change.appended and after is not None:
        before, after = None, after[len(change.before or "") :]
    uri = str(change.uri)
    if before is not None and _newest_sha256(connection, uri) == change.before_sha256:
        before = None
    connection.execute(
        f"INSERT INTO changes (ordinal, {COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            ordinal,
            seq,
            uri,
            change.memory_type,
            int(change.appended),
            before,
            after,
            change.before_sha256,
            change.after_sha256,
            None if change.moved_from is None else str(change.moved_from),
        ),
    )


def _newest_sha256(connection: sqlite3.Connection, uri: str) -> str | None:
    """Hash of the text that the last commit left of a file."""
    row = connection.execute("SELECT after_sha256 FROM changes WHERE uri = ? ORDER BY seq DESC LIMIT 1", (uri,))
    found = row.fetchone()
    return None if found is None else found[0]


def text_before(connection: sqlite3.Connection, row: ChangeRow) -> str | None:
    """The text that a change replaced, which an earlier one left; of an append, and where it is unknown, None."""
    if row.before is not None or row.before_sha256 is None or row.appended:
        return row.before
    return stored_text(connection, str(row.uri), row.seq - 1)


def upsert_name(connection: sqlite3.Connection, seq: int, change: FileChange) -> None:
    """Let the name table say what a change left."""
    if change.after is None:
        connection.execute("DELETE FROM files WHERE uri = ?", (str(change.uri),))
        return
    # Not INSERT OR REPLACE: the counting triggers would not see the row that it removes.
    connection.execute(
        "INSERT INTO files (uri, directory, name_fold, memory_type, key, sha256, seq) VALUES (?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (uri) DO UPDATE SET memory_type = excluded.memory_type, key = excluded.key, "
        "sha256 = excluded.sha256, size_bytes = NULL, mtime_ns = NULL, seq = excluded.seq",
        (
            str(change.uri),
            str(change.uri.parent),
            fold(change.uri.name),
            change.memory_type,
            change.key,
            change.after_sha256,
            seq,
        ),
    )


def stored_text(connection: sqlite3.Connection, uri: str, seq: int = _NEWEST, *, named: bool = False) -> str | None:
    """A file's text as commit ``seq`` left it, appends joined to what they extend; None for none.

    Args:
        connection: Of a ledger.
        uri: The file.
        seq: Default its last commit.
        named: Whether there is none where the name table has none: of a history that was taken in before its files.
    """
    tails: list[str] = []
    known = "AND EXISTS (SELECT 1 FROM files WHERE uri = ?1) " if named else ""
    rows = connection.execute(
        f"SELECT appended, after FROM changes WHERE uri = ?1 AND seq <= ?2 {known}ORDER BY seq DESC, ordinal DESC",
        (uri, seq),
    )
    for appended, after in rows:
        if not appended:
            return None if after is None and not tails else "".join([after or "", *reversed(tails)])
        tails.append(after)
    return "".join(reversed(tails)) if tails else None


class Touched(NamedTuple):
    """A file and the change that last touched it: commit and place in that commit."""

    seq: int
    ordinal: int
    uri: str


class ChangeFeed:
    """Reads ``changes`` and ``files``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def changes(self, after: int = 0) -> int:
        """How many changes later commits than ``after`` hold."""
        return int(self._one("SELECT count(*) FROM changes WHERE seq > ?", after))

    def reach(self, after: int, changes: int, chars: int) -> int | None:
        """The commit in which those after ``after`` exceed so many changes, or characters; None where they do not."""
        found = self._database.connection().execute(
            "SELECT seq, coalesce(length(after), 0) FROM changes WHERE seq > ? ORDER BY seq, ordinal LIMIT ?",
            (after, changes + 1),
        )
        total_chars = 0
        for number, (seq, length) in enumerate(found):
            total_chars += length
            if number == changes or total_chars > chars:
                found.close()
                return int(seq)
        return None

    def touches(self, after: int, spaces: Sequence[str]) -> bool:
        """Whether a commit that follows ``after`` changed something of these spaces (``scope/space``)."""
        places = [f"viking://{inside}{space}/" for space in spaces for inside in ("", "archive/")]
        found = self._database.connection().execute(
            f"SELECT 1 FROM changes WHERE seq > ? AND ({' OR '.join(['substr(uri, 1, ?) = ?'] * len(places))}) LIMIT 1",
            (after, *(value for place in places for value in (len(place), place))),
        )
        return found.fetchone() is not None

    def files(self) -> int:
        """How many files the ledger knows."""
        return int(self._one("SELECT count(*) FROM files"))

    def touched(self, after: tuple[int, int], until: int) -> list[Touched]:
        """Files last touched behind ``after`` (commit, place) and no later than commit ``until``, oldest first."""
        rows = self._database.connection().execute(
            "SELECT f.seq, coalesce((SELECT max(c.ordinal) FROM changes c WHERE c.uri = f.uri AND c.seq = f.seq), 0) "
            "AS ordinal, f.uri FROM files f WHERE f.seq >= ? AND f.seq <= ? ORDER BY 1, 2, 3",
            (after[0], until),
        )
        return [Touched(*row) for row in rows if (row[0], row[1]) > after]

    def touched_until(self, last: tuple[int, int]) -> int:
        """About how many files were last touched no later than ``last``: exact but within its commit."""
        return int(self._one("SELECT count(*) FROM files WHERE seq <= ?", last[0]))

    def _one(self, statement: str, *values: int) -> int:
        return int(self._database.connection().execute(statement, values).fetchone()[0])


_SHOWN = "{row}name_fold LIKE '%.md' AND {row}name_fold NOT LIKE '.%'"
DIRECTORIES_SCHEMA = f"""
CREATE TABLE directories (directory TEXT PRIMARY KEY, memories INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO directories SELECT directory, count(*) FROM files WHERE {_SHOWN.format(row="")} GROUP BY directory;
CREATE TRIGGER memory_added AFTER INSERT ON files WHEN {_SHOWN.format(row="new.")}
BEGIN
    INSERT INTO directories VALUES (new.directory, 1) ON CONFLICT (directory) DO UPDATE SET memories = memories + 1;
END;
CREATE TRIGGER memory_removed AFTER DELETE ON files WHEN {_SHOWN.format(row="old.")}
BEGIN
    UPDATE directories SET memories = memories - 1 WHERE directory = old.directory;
END;
"""


class DirectoryTable:
    """Reads counts and names; commits move them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def count(self, directory: MemoryUri) -> int:
        """How many memory files are directly in a directory."""
        row = (
            self._database.connection()
            .execute("SELECT memories FROM directories WHERE directory = ?", (str(directory),))
            .fetchone()
        )
        return 0 if row is None else int(row[0])

    def total(self, below: str) -> int:
        """How many directories below a URI hold memories."""
        row = (
            self._database.connection()
            .execute(
                "SELECT count(*) FROM directories WHERE memories > 0 AND directory > ? AND directory < ?",
                (f"{below}/", f"{below}0"),  # "0" is the character after "/"
            )
            .fetchone()
        )
        return int(row[0])

    def counts(self, below: MemoryUri) -> dict[str, int]:
        """How many memory files are directly in each directory below a URI that has any, by URI."""
        rows = self._database.connection().execute(
            "SELECT directory, memories FROM directories WHERE memories > 0 AND directory > ? AND directory < ? "
            "ORDER BY directory",
            _range(below),
        )
        return dict(rows.fetchall())

    def sessions(self, below: MemoryUri) -> int:
        """How many conversations have a log below a URI."""
        return int(self._logs("count(*)", "", below)[0][0])

    def newest_logs(self, below: MemoryUri, limit: int) -> list[str]:
        """URIs of the conversation logs below a URI that grew last, newest first; looks at all of them."""
        return [uri for (uri,) in self._logs("uri", f"ORDER BY seq DESC, uri LIMIT {int(limit)}", below)]

    def _logs(self, columns: str, rest: str, below: MemoryUri) -> list[tuple[Any, ...]]:
        return (
            self._database.connection()
            .execute(
                f"SELECT {columns} FROM files WHERE uri > ? AND uri < ? AND name_fold = 'messages.jsonl' {rest}",
                _range(below),
            )
            .fetchall()
        )

    def newest(self, directory: MemoryUri, limit: int) -> list[str]:
        """Names of the memory files directly in a directory that changed last, newest first; sorts all of them."""
        rows = self._database.connection().execute(
            f"SELECT uri FROM files WHERE directory = ? AND {_SHOWN.format(row='')} ORDER BY seq DESC, uri LIMIT ?",
            (str(directory), limit),
        )
        return [uri.rpartition("/")[2] for (uri,) in rows]


def _range(below: MemoryUri) -> tuple[str, str]:
    """Everything below a directory shares its prefix; "0" is the character after "/"."""
    return f"{below}/", f"{below}0"


_BELOW = "{column} > ? AND {column} < ?"


class Holdings:
    """Counts in the tables of others; ``below`` are URIs, everything under them counts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def files(self, below: Sequence[str], glob: str = "*") -> tuple[int, int]:
        """How many files there are, and their bytes; those of the last second may not have a size yet.

        Args:
            below: Where.
            glob: Only URIs of this form.
        """
        files = size_bytes = 0
        for prefix in below:
            row = self._row(
                "SELECT count(*), coalesce(sum(size_bytes), 0) FROM files "
                f"WHERE {_BELOW.format(column='uri')} AND uri GLOB ?",
                *_bounds(prefix),
                glob,
            )
            files, size_bytes = files + row[0], size_bytes + row[1]
        return files, size_bytes

    def waiting(self, below: Sequence[str]) -> tuple[int, int]:
        """How many conversations wait for extraction, and how many of their messages."""
        conversations = messages = 0
        for prefix in below:
            row = self._row(
                "SELECT count(*), coalesce(sum(stored - extracted), 0) FROM extractions "
                f"WHERE stored > extracted AND {_BELOW.format(column='log')}",
                *_bounds(prefix),
            )
            conversations, messages = conversations + row[0], messages + row[1]
        return conversations, messages

    def commits(self, below: Sequence[str]) -> Mapping[str, int]:
        """How many commits of each kind touched anything there, most first."""
        if not below:
            return {}
        touched = " OR ".join([f"({_BELOW.format(column='uri')})"] * len(below))
        rows = self._database.connection().execute(
            "SELECT kind, count(*) FROM commits WHERE EXISTS "
            f"(SELECT 1 FROM changes WHERE changes.seq = commits.seq AND ({touched})) GROUP BY kind",
            [bound for prefix in below for bound in _bounds(prefix)],
        )
        return dict(Counter(dict(rows.fetchall())).most_common())

    def _row(self, query: str, *arguments: str) -> tuple[int, int]:
        first, second = self._database.connection().execute(query, arguments).fetchone()
        return int(first), int(second)


def _bounds(prefix: str) -> tuple[str, str]:
    return f"{prefix}/", f"{prefix}0"  # "0" is the character after "/"


_SCHEMA_1 = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('ledger_id', lower(hex(randomblob(16))));
CREATE TABLE commits (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    commit_id TEXT NOT NULL UNIQUE,
    request_id TEXT UNIQUE,
    at TEXT NOT NULL,
    kind TEXT NOT NULL,
    receipt TEXT NOT NULL,
    settled INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX commits_unsettled ON commits (seq) WHERE settled = 0;
CREATE TABLE changes (
    seq INTEGER NOT NULL REFERENCES commits (seq),
    ordinal INTEGER NOT NULL,
    uri TEXT NOT NULL,
    memory_type TEXT NOT NULL,
    appended INTEGER NOT NULL,
    before TEXT,
    after TEXT,
    before_sha256 TEXT,
    after_sha256 TEXT,
    PRIMARY KEY (seq, ordinal)
) WITHOUT ROWID;
CREATE INDEX changes_uri ON changes (uri, seq);
CREATE TABLE files (
    uri TEXT PRIMARY KEY,
    directory TEXT NOT NULL,
    name_fold TEXT NOT NULL,
    memory_type TEXT NOT NULL,
    key TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    size_bytes INTEGER,
    mtime_ns INTEGER,
    seq INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX files_name ON files (directory, name_fold);
CREATE INDEX files_key ON files (directory, memory_type, key);
CREATE TABLE usage (
    uri TEXT PRIMARY KEY,
    access_count INTEGER NOT NULL,
    last_accessed_at TEXT NOT NULL
) WITHOUT ROWID;
"""
#: Keys are compared without regard to simplified or traditional characters since version 2.
_SCHEMA_2 = _EXTRACTIONS + "UPDATE files SET key = refold(key);" + DIRECTORIES_SCHEMA
_SCHEMA_3 = _USAGE + _INJECTIONS
#: History says who wrote, what an undo takes back, and where a file was before; request ids belong to a user.
_SCHEMA_4 = (
    """
ALTER TABLE commits ADD COLUMN author TEXT NOT NULL DEFAULT '';
ALTER TABLE commits ADD COLUMN undoes TEXT;
CREATE INDEX commits_undoes ON commits (undoes) WHERE undoes IS NOT NULL;
ALTER TABLE changes ADD COLUMN moved_from TEXT;
UPDATE commits SET request_id = coalesce(
    (SELECT space_of(uri) FROM changes WHERE changes.seq = commits.seq AND
     (uri LIKE 'viking://user/%' OR uri LIKE 'viking://session/%') ORDER BY ordinal LIMIT 1), 'default'
) || '/' || request_id WHERE request_id IS NOT NULL;
"""
    + _TOKENS
    + _PAST
)
_SCHEMA_5 = _MODEL_CALLS
#: Lists of pages are views: of a page only what somebody wrote is kept. A text that an earlier change left stays once.
_PAGES = "(uri LIKE '%/.overview.md' OR uri LIKE '%/.abstract.md')"
_SCHEMA_6 = f"""
UPDATE changes SET before = page_words(uri, before), after = page_words(uri, after) WHERE {_PAGES};
DELETE FROM changes WHERE {_PAGES} AND before IS after;
UPDATE changes SET before_sha256 = sha256_of(before), after_sha256 = sha256_of(after) WHERE {_PAGES};
DELETE FROM files WHERE {_PAGES} AND (
    SELECT after_sha256 FROM changes WHERE changes.uri = files.uri ORDER BY changes.seq DESC LIMIT 1) IS NULL;
UPDATE files SET size_bytes = NULL, mtime_ns = NULL, sha256 = (
    SELECT after_sha256 FROM changes WHERE changes.uri = files.uri ORDER BY changes.seq DESC LIMIT 1) WHERE {_PAGES};
UPDATE changes SET before = NULL WHERE before IS NOT NULL AND before_sha256 = (
    SELECT earlier.after_sha256 FROM changes earlier
    WHERE earlier.uri = changes.uri AND earlier.seq < changes.seq ORDER BY earlier.seq DESC LIMIT 1);
"""
_SCHEMA_7 = _LOGINS
_SCHEMA_8 = _SHARED


class Overtaken(StoreBusy):
    """Another writer committed although the lock was held."""

    def __init__(self) -> None:
        super().__init__("another writer broke the lock.", hint="Send the same request again.")


@frozen
class CommitRow:
    """One commit of the history: when (ISO 8601, UTC), what kind, by whom, and the commit that it takes back."""

    seq: int
    commit_id: str
    at: str
    kind: str
    receipt: Mapping[str, Any]
    author: str = ""
    undoes: str | None = None


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


class Ledger:
    """Reads and writes ``ledger.sqlite3``; knows no files on disk."""

    def __init__(self, path: Path) -> None:
        migrations = (_SCHEMA_1, _SCHEMA_2, _SCHEMA_3, _SCHEMA_4, _SCHEMA_5, _SCHEMA_6, _SCHEMA_7, _SCHEMA_8)
        functions: dict[str, Callable[..., str | None]] = {
            "refold": refold,
            "space_of": _space_of,
            "page_words": _page_words,
            "sha256_of": _sha256_of,
        }
        hint = "Stop all programs that use this store, then run runebook doctor --repair."
        self._use(Database(path, migrations, "FULL", functions, keep_before_migrating, damage_hint=hint))

    def _use(self, database: Database) -> None:
        self._database = database
        self.extractions = ExtractionQueue(self._database)
        self.directories = DirectoryTable(self._database)
        self.usage_table = UsageTable(self._database)
        self.feed = ChangeFeed(self._database)
        self.injections = InjectionTable(self._database)
        self.model_calls = ModelCallTable(self._database)
        self.tokens = IssuedTokens(self._database)
        self.past = PastTable(self._database)
        self.movements = MovementTable(self._database)
        self.holdings = Holdings(self._database)

    @property
    def database(self) -> Database:
        """Its rows, for what copies all of them."""
        return self._database

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    @property
    def ledger_id(self) -> str:
        """Names this ledger for its whole life; an index built from another one must be rebuilt."""
        row = self._database.connection().execute("SELECT value FROM meta WHERE name = 'ledger_id'").fetchone()
        return str(row[0])

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
        """Replace the stored receipts by their final form; a power loss may leave the first one."""
        with self._database.writing(synced=False) as connection:
            connection.executemany(
                "UPDATE commits SET receipt = ? WHERE commit_id = ?",
                [(json.dumps(receipt, ensure_ascii=False), receipt["commit_id"]) for receipt in receipts],
            )

    def unsettled(self) -> list[int]:
        """Sequence numbers of commits whose files may not be on disk yet."""
        return self.head()[1]

    def unsettled_uris(self) -> frozenset[str]:
        """The files of these commits."""
        rows = self._database.connection().execute(
            "SELECT uri FROM changes WHERE seq IN (SELECT seq FROM commits WHERE settled = 0)"
        )
        return frozenset(uri for (uri,) in rows)

    def head(self) -> tuple[int, list[int]]:
        """The last commit's number, 0 when there is none, and the commits that may not be on disk yet, in order."""
        rows = self._database.connection().execute(
            "SELECT last.seq, waiting.seq FROM (SELECT coalesce(max(seq), 0) AS seq FROM commits) last "
            "LEFT JOIN commits waiting ON waiting.settled = 0 ORDER BY waiting.seq"
        )
        found = rows.fetchall()
        return int(found[0][0]), [int(seq) for _, seq in found if seq is not None]

    def newest_seq(self) -> int:
        """The last commit's number; 0 when there is none."""
        row = self._database.connection().execute("SELECT max(seq) FROM commits").fetchone()
        return int(row[0] or 0)

    def newest_apart_from(self, *kinds: str) -> int:
        """The number of the last commit of another kind; 0 when there is none."""
        marks = ", ".join("?" * len(kinds))
        row = (
            self._database.connection()
            .execute(f"SELECT seq FROM commits WHERE kind NOT IN ({marks}) ORDER BY seq DESC LIMIT 1", kinds)
            .fetchone()
        )
        return 0 if row is None else int(row[0])

    def receipt_for(self, request_id: str) -> Mapping[str, Any] | None:
        """The receipt that the first commit with this ``request_id`` got."""
        row = (
            self._database.connection()
            .execute("SELECT receipt FROM commits WHERE request_id = ?", (request_id,))
            .fetchone()
        )
        return None if row is None else dict(json.loads(row[0]))

    def changes_of(self, seqs: Iterable[int], uris: Iterable[MemoryUri] | None = None) -> list[ChangeRow]:
        """The changes of these commits, in order; of these files alone, if any are named."""
        connection = self._database.connection()
        among = "" if uris is None else "AND uri IN (SELECT value FROM json_each(?)) "
        named = () if uris is None else (json.dumps([str(uri) for uri in uris]),)
        rows = (
            change_row(row)
            for seq in seqs
            for row in connection.execute(
                f"SELECT {COLUMNS} FROM changes WHERE seq = ? {among}ORDER BY ordinal", (seq, *named)
            )
        )
        return [replace(row, before=text_before(connection, row)) for row in rows]

    def steps_of(self, seq: int) -> list[ChangeRow]:
        """The changes of a commit, in order, without their texts: of a large one a list needs no more."""
        bare = COLUMNS.replace(" before, after,", " NULL, NULL,")
        rows = self._database.connection().execute(f"SELECT {bare} FROM changes WHERE seq = ? ORDER BY ordinal", (seq,))
        return [change_row(row) for row in rows]

    def changes_after(self, seq: int, limit: int) -> list[ChangeRow]:
        """Changes of the ``limit`` commits that follow ``seq``, in order; without the texts that they replaced."""
        connection = self._database.connection()
        rows = connection.execute(
            f"SELECT {COLUMNS} FROM changes WHERE seq IN "
            "(SELECT seq FROM commits WHERE seq > ? ORDER BY seq LIMIT ?) ORDER BY seq, ordinal",
            (seq, limit),
        )
        return [change_row(row) for row in rows]

    def newest_changes(self, after: int, limit: int) -> list[ChangeRow]:
        """The last ``limit`` changes of commits that follow ``after``, newest first; without what they replaced."""
        rows = self._database.connection().execute(
            f"SELECT {COLUMNS} FROM changes WHERE seq > ? ORDER BY seq DESC, ordinal DESC LIMIT ?", (after, limit)
        )
        return [change_row(row) for row in rows]

    def history(self, uri: MemoryUri | None = None, limit: int = 50) -> list[CommitRow]:
        """Commits, newest first; with ``uri``, those that touched it."""
        where = "" if uri is None else "WHERE seq IN (SELECT seq FROM changes WHERE uri = ?)"
        arguments = (limit,) if uri is None else (str(uri), limit)
        rows = self._database.connection().execute(
            f"SELECT seq, commit_id, at, kind, receipt, author, undoes FROM commits {where} ORDER BY seq DESC LIMIT ?",
            arguments,
        )
        return [
            CommitRow(seq, commit_id, at, kind, json.loads(receipt), author, undoes)
            for seq, commit_id, at, kind, receipt, author, undoes in rows
        ]

    def last_changed_by(self, kinds: Sequence[str]) -> dict[str, str]:
        """URIs whose newest change is of a commit of these kinds, and when that was, ISO 8601."""
        rows = self._database.connection().execute(
            "SELECT c.uri, k.at FROM commits k JOIN changes c ON c.seq = k.seq "
            f"WHERE k.kind IN ({', '.join('?' * len(kinds))}) "
            "AND NOT EXISTS (SELECT 1 FROM changes later WHERE later.uri = c.uri AND later.seq > c.seq)",
            tuple(kinds),
        )
        return dict(rows.fetchall())

    def text_at(self, uri: MemoryUri, seq: int) -> str | None:
        """The file's text as commit ``seq`` left it; appends are joined to what they extend."""
        return stored_text(self._database.connection(), str(uri), seq)

    def origin(self, uri: MemoryUri) -> tuple[int, int]:
        """The commit that created a file, the last time, and its place there; far behind all others if unknown."""
        row = (
            self._database.connection()
            .execute(
                "SELECT seq, ordinal FROM changes WHERE uri = ?1 AND seq > coalesce("
                "(SELECT max(seq) FROM changes WHERE uri = ?1 AND after_sha256 IS NULL), 0) "
                "ORDER BY seq, ordinal LIMIT 1",
                (str(uri),),
            )
            .fetchone()
        )
        return (0, 0) if row is None else (int(row[0]), int(row[1]))

    def file(self, uri: MemoryUri) -> FileRow | None:
        """What the last commit left at ``uri``, or None."""
        return next(iter(self._files("WHERE uri = ?", (str(uri),))), None)

    def files_of(self, uris: Iterable[str]) -> list[FileRow]:
        """What the last commits left at these URIs; those where there is nothing are left out."""
        return list(self._files("WHERE uri IN (SELECT value FROM json_each(?))", (json.dumps(list(uris)),)))

    def stats(self) -> dict[str, FileStat | None]:
        """What every known file looked like when it was last settled, by URI; None where that is not known."""
        return self.movements.stats(MemoryUri())

    def locate(self, directory: MemoryUri, memory_type: str, key: str) -> MemoryUri | None:
        """The file that holds the memory with this normalised key."""
        found = self._files(
            "WHERE directory = ? AND memory_type = ? AND key = ? LIMIT 1", (str(directory), memory_type, key)
        )
        return next((row.uri for row in found), None)

    def name_taken(self, directory: MemoryUri, name: str) -> bool:
        """Whether a file here has this name, or one that some file system confuses with it."""
        row = (
            self._database.connection()
            .execute(
                "SELECT 1 FROM files WHERE directory = ? AND name_fold = ? LIMIT 1",
                (str(directory), fold(name)),
            )
            .fetchone()
        )
        return row is not None

    def text_with(self, uri: MemoryUri, sha256: str) -> str | None:
        """The text with this hash that the file once had; None if no commit knows it."""
        row = (
            self._database.connection()
            .execute(
                "SELECT after FROM changes WHERE uri = ? AND after_sha256 = ? AND appended = 0 LIMIT 1",
                (str(uri), sha256),
            )
            .fetchone()
        )
        return None if row is None else str(row[0])

    def usage(self, uris: Iterable[str]) -> dict[str, Usage]:
        """Access statistics of those that have any."""
        return self.usage_table.usage(uris)

    def _files(self, where: str, arguments: tuple[str, ...]) -> Iterator[FileRow]:
        rows = self._database.connection().execute(
            f"SELECT uri, memory_type, key, sha256, size_bytes, mtime_ns FROM files {where}", arguments
        )
        for uri, memory_type, key, sha256, size, mtime in rows:
            stat = None if size is None else FileStat(size, mtime)
            yield FileRow(MemoryUri.parse(uri), memory_type, key, sha256, stat)


def _page_words(uri: str, text: str | None) -> str | None:
    """What the ledger keeps of a page, for the migration of pages that it kept whole."""
    return own_words(uri.rpartition("/")[2], text)


def _sha256_of(text: str | None) -> str | None:
    return None if text is None else text_sha256(text)


def _space_of(uri: str) -> str:
    """The space in a stored URI, for the migration of request ids."""
    return uri.split("/")[3]
