"""The ledger: journal, history, names and usage, in one SQLite file that is kept.

A commit is one row with the texts before and after; its COMMIT (one fsync) is the acknowledgement. The
files follow. ``settled`` marks commits whose files are known to be on disk; the rest is what recovery
looks at. The name table (``files``) says which key owns which file and what the last commit left there.
It can be rebuilt from the files; history, usage and the queue (``extractions``) cannot.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memory_core.errors import StoreBusy
from memory_core.model.changes import FileChange, SessionProgress
from memory_core.model.filename import fold, refold
from memory_core.model.uri import MemoryUri
from memory_core.storage.file_store import FileStat
from memory_core.storage.hand_edits.movements import MovementTable
from memory_core.storage.sqlite.copies import keep_before_migrating
from memory_core.storage.sqlite.database import Database
from memory_core.storage.tables.change_feed import ChangeFeed
from memory_core.storage.tables.changes import COLUMNS, change_row, insert_change, stored_text, upsert_name
from memory_core.storage.tables.changes import ChangeRow as ChangeRow
from memory_core.storage.tables.directories import SCHEMA as _DIRECTORIES
from memory_core.storage.tables.directories import DirectoryTable
from memory_core.storage.tables.extractions import SCHEMA as _EXTRACTIONS
from memory_core.storage.tables.extractions import ExtractionQueue, record_progress
from memory_core.storage.tables.holdings import Holdings
from memory_core.storage.tables.injections import SCHEMA as _INJECTIONS
from memory_core.storage.tables.injections import InjectionTable
from memory_core.storage.tables.model_calls import SCHEMA as _MODEL_CALLS
from memory_core.storage.tables.model_calls import ModelCallTable
from memory_core.storage.tables.past import SCHEMA as _PAST
from memory_core.storage.tables.past import PastTable, note_progress
from memory_core.storage.tables.tokens import SCHEMA as _TOKENS
from memory_core.storage.tables.tokens import TokenTable
from memory_core.storage.tables.usage import SCHEMA as _USAGE
from memory_core.storage.tables.usage import Usage as Usage
from memory_core.storage.tables.usage import UsageTable, move_usage

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
_SCHEMA_2 = _EXTRACTIONS + "UPDATE files SET key = refold(key);" + _DIRECTORIES
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


class Overtaken(StoreBusy):
    """Another writer committed although the lock was held."""


@dataclass(frozen=True, slots=True)
class CommitRow:
    """One commit of the history: when (ISO 8601, UTC), what kind, by whom, and the commit that it takes back."""

    seq: int
    commit_id: str
    at: str
    kind: str
    receipt: Mapping[str, Any]
    author: str = ""
    undoes: str | None = None


@dataclass(frozen=True, slots=True)
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
        migrations = (_SCHEMA_1, _SCHEMA_2, _SCHEMA_3, _SCHEMA_4, _SCHEMA_5)
        functions = {"refold": refold, "space_of": _space_of}
        hint = "Stop all programs that use this store, then run runebook doctor --repair."
        self._database = Database(path, migrations, "FULL", functions, keep_before_migrating, damage_hint=hint)
        self.extractions = ExtractionQueue(self._database)
        self.directories = DirectoryTable(self._database)
        self.usage_table = UsageTable(self._database)
        self.feed = ChangeFeed(self._database)
        self.injections = InjectionTable(self._database)
        self.model_calls = ModelCallTable(self._database)
        self.tokens = TokenTable(self._database)
        self.past = PastTable(self._database)
        self.movements = MovementTable(self._database)
        self.holdings = Holdings(self._database)

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
            if follows is not None and self.newest_seq() != follows:
                raise Overtaken("another writer broke the lock.", hint="Send the same request again.")
            text = json.dumps(receipt, ensure_ascii=False)
            cursor = connection.execute(
                "INSERT INTO commits (commit_id, request_id, at, kind, receipt, settled, author, undoes) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (commit_id, request_id, at, kind, text, int(settled), author, undoes),
            )
            seq = int(cursor.lastrowid or 0)
            for ordinal, change in enumerate(changes):
                insert_change(connection, seq, ordinal, change)
                upsert_name(connection, seq, change)
                if change.moved_from is not None:
                    move_usage(connection, str(change.moved_from), str(change.uri))
            if progress is not None:
                note_progress(connection, seq, progress)
                record_progress(connection, progress, at)
        return seq

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
        """Replace the stored receipts by their final form."""
        with self._database.writing() as connection:
            connection.executemany(
                "UPDATE commits SET receipt = ? WHERE commit_id = ?",
                [(json.dumps(receipt, ensure_ascii=False), receipt["commit_id"]) for receipt in receipts],
            )

    def unsettled(self) -> list[int]:
        """Sequence numbers of commits whose files may not be on disk yet."""
        rows = self._database.connection().execute("SELECT seq FROM commits WHERE settled = 0 ORDER BY seq")
        return [int(seq) for (seq,) in rows]

    def newest_seq(self) -> int:
        """The last commit's number; 0 when there is none."""
        row = self._database.connection().execute("SELECT max(seq) FROM commits").fetchone()
        return int(row[0] or 0)

    def receipt_for(self, request_id: str) -> Mapping[str, Any] | None:
        """The receipt that the first commit with this ``request_id`` got."""
        row = (
            self._database.connection()
            .execute("SELECT receipt FROM commits WHERE request_id = ?", (request_id,))
            .fetchone()
        )
        return None if row is None else dict(json.loads(row[0]))

    def changes_of(self, seqs: Iterable[int]) -> list[ChangeRow]:
        """The changes of these commits, in order."""
        connection = self._database.connection()
        return [
            change_row(row)
            for seq in seqs
            for row in connection.execute(f"SELECT {COLUMNS} FROM changes WHERE seq = ? ORDER BY ordinal", (seq,))
        ]

    def changes_after(self, seq: int, limit: int) -> list[ChangeRow]:
        """Changes of the ``limit`` commits that follow ``seq``, in order."""
        connection = self._database.connection()
        rows = connection.execute(
            f"SELECT {COLUMNS} FROM changes WHERE seq IN "
            "(SELECT seq FROM commits WHERE seq > ? ORDER BY seq LIMIT ?) ORDER BY seq, ordinal",
            (seq, limit),
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

    def file(self, uri: MemoryUri) -> FileRow | None:
        """What the last commit left at ``uri``, or None."""
        return next(iter(self._files("WHERE uri = ?", (str(uri),))), None)

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


def _space_of(uri: str) -> str:
    """The space in a stored URI, for the migration of request ids."""
    return uri.split("/")[3]
