"""One moment of a ledger, read through a connection of its own: files, texts, history and queue as of one commit.

What others commit meanwhile does not show. For copies of the store (export, backup), which must not mix two
moments; serving requests is the business of ``ledger``. ``insert_history`` is the way back, into a ledger without one.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from memory_core.core.errors import InvalidInput, StorageFailed
from memory_core.core.memory.directory_page import own_words
from memory_core.core.memory.results import text_sha256
from memory_core.core.memory.uri import ABSTRACT_NAME, OVERVIEW_NAME
from memory_core.core.store.ledger import stored_text

if TYPE_CHECKING:
    from memory_core.core.store.ledger import Ledger

_READ_COMMITS = 500
_COMMIT = ("commit_id", "request_id", "at", "kind", "receipt", "author", "undoes")
_CHANGE = (
    *("uri", "memory_type", "appended", "before", "after", "before_sha256", "after_sha256"),
    *("moved_from", "purged"),
)


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A file as the last commit left it: its hash, its type, when that commit was (ISO 8601), and its size on disk."""

    uri: str
    memory_type: str
    sha256: str
    updated_at: str
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class SnapshotQueue:
    """How far a session's messages were extracted."""

    log: str
    stored: int
    extracted: int


class LedgerSnapshot:
    """A ledger at one moment, read in the transaction of a connection.

    Args:
        connection: In that transaction.
        name: Of the database, for errors.
        ledger_id: Of the ledger; default as its table says.

    Raises:
        StorageFailed: If it cannot be read.
    """

    def __init__(self, connection: Any, name: str, ledger_id: str | None = None) -> None:
        self._connection = connection
        self._name = name
        self.seq = int(self._one("SELECT coalesce(max(seq), 0) FROM commits"))
        self.ledger_id = ledger_id or str(self._one("SELECT value FROM meta WHERE name = 'ledger_id'"))

    @classmethod
    @contextlib.contextmanager
    def of_file(cls, path: Path, *, frozen: bool = False) -> Iterator[Self]:
        """A ledger's file at one moment.

        Args:
            path: The ledger.
            frozen: Nobody writes to the file, and it may not be written to: a copy.

        Raises:
            StorageFailed: If it cannot be read.
        """
        address = path.absolute().as_uri() + ("?mode=ro&immutable=1" if frozen else "?mode=rw")
        with _failing(path.name):
            connection = sqlite3.connect(address, uri=True, timeout=30, isolation_level=None, check_same_thread=False)
        with contextlib.closing(connection):
            with _failing(path.name):
                connection.execute("PRAGMA query_only=ON")
                connection.execute("BEGIN")
            yield cls(connection, path.name)

    @classmethod
    @contextlib.contextmanager
    def of(cls, ledger: Ledger) -> Iterator[Self]:
        """An open ledger at one moment; on this thread nothing is written meanwhile."""
        if not ledger.database.is_remote:
            with cls.of_file(ledger.database.path) as snapshot:
                yield snapshot
            return
        with ledger.database.reading() as connection:
            yield cls(connection, "the database", ledger.ledger_id)

    def files(self) -> list[SnapshotFile]:
        """Every file that is there, by URI."""
        rows = self._all(
            "SELECT files.uri, memory_type, sha256, coalesce(at, ''), size_bytes FROM files "
            "LEFT JOIN commits ON commits.seq = files.seq ORDER BY files.uri"
        )
        return [SnapshotFile(*row) for row in rows]

    def text(self, uri: str) -> str | None:
        """The file's text; None for none."""
        with _failing(self._name):
            return stored_text(self._connection, uri)

    def queue(self) -> list[SnapshotQueue]:
        """Where each session stands."""
        return [SnapshotQueue(*row) for row in self._all("SELECT log, stored, extracted FROM extractions ORDER BY log")]

    def history(self) -> Iterator[dict[str, Any]]:
        """Every commit, oldest first, with its changes under ``changes``; appended ones hold only what was added."""
        with _failing(self._name):
            for seq, *values in self._commits():
                commit = dict(zip(_COMMIT, values, strict=True))
                commit["receipt"] = json.loads(commit["receipt"])
                changes = self._connection.execute(
                    f"SELECT {', '.join(_CHANGE)} FROM changes WHERE seq = ? ORDER BY ordinal", (seq,)
                )
                commit["changes"] = [self._whole(seq, dict(zip(_CHANGE, change, strict=True))) for change in changes]
                yield commit

    def _commits(self) -> Iterator[tuple[Any, ...]]:
        """The rows of all commits; few are read at a time."""
        reached = 0
        asked = f"SELECT seq, {', '.join(_COMMIT)} FROM commits WHERE seq > ? ORDER BY seq LIMIT ?"
        while rows := self._connection.execute(asked, (reached, _READ_COMMITS)).fetchall():
            yield from rows
            reached = rows[-1][0]

    def _whole(self, seq: int, change: dict[str, Any]) -> dict[str, Any]:
        """A change with the text that it replaced, which the ledger keeps once."""
        if change["before"] is None and change["before_sha256"] is not None and not change["appended"]:
            change["before"] = stored_text(self._connection, change["uri"], seq - 1)
        return change

    def _all(self, query: str) -> list[Any]:
        with _failing(self._name):
            rows: list[Any] = self._connection.execute(query).fetchall()
            return rows

    def _one(self, query: str) -> Any:
        return self._all(query)[0][0]


@contextlib.contextmanager
def _failing(name: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StorageFailed(f"{name} could not be read: {error}.", hint="Run runebook doctor.") from error


def insert_history(ledger: Ledger, commits: Iterable[Mapping[str, Any]]) -> int:
    """Put a history into a ledger that has none, in one transaction; files and names stay as they are.

    Args:
        ledger: An open ledger.
        commits: As ``LedgerSnapshot.history`` gives them, oldest first.

    Returns:
        How many commits were inserted; 0 when the ledger has a history already.

    Raises:
        InvalidInput: If a commit is malformed. Nothing was stored.
        StoreBusy: If a database does not answer, or another writer held it too long. Nothing was stored.
        StorageFailed: If the disk refuses. Nothing was stored.
    """
    writing = _writing_rows(ledger) if ledger.database.is_remote else _writing_file(ledger.database.path)
    inserted = 0
    try:
        with writing as connection:
            if connection.execute("SELECT count(*) FROM commits").fetchone()[0]:
                return 0
            for commit in commits:
                _insert(connection, commit)
                inserted += 1
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise _malformed(error) from error
    return inserted


def _malformed(error: Exception) -> InvalidInput:
    return InvalidInput(f"the history is malformed: {error}.", hint="Import without the history.")


@contextlib.contextmanager
def _writing_file(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("BEGIN IMMEDIATE")  # closing the connection takes back what is not committed
            yield connection
            connection.execute("COMMIT")
    except (sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError) as error:
        raise _malformed(error) from error
    except sqlite3.Error as error:
        raise StorageFailed(f"{path.name}: {error}.", hint="Check free space, then import again.") from error


@contextlib.contextmanager
def _writing_rows(ledger: Ledger) -> Iterator[Any]:
    from memory_core.core.postgres.faults import REFUSED_ROWS

    try:
        with ledger.database.writing() as connection:
            yield connection
    except REFUSED_ROWS as error:
        raise _malformed(error) from error


def _insert(connection: sqlite3.Connection, commit: Mapping[str, Any]) -> None:
    values = {**commit, "receipt": json.dumps(commit["receipt"], ensure_ascii=False)}
    cursor = connection.execute(
        f"INSERT INTO commits ({', '.join(_COMMIT)}, settled) VALUES ({', '.join('?' * len(_COMMIT))}, 1)",
        [values[name] for name in _COMMIT],
    )
    connection.executemany(
        f"INSERT INTO changes (seq, ordinal, {', '.join(_CHANGE)}) VALUES ({', '.join('?' * (len(_CHANGE) + 2))})",
        [
            (cursor.lastrowid, ordinal, *(change[name] for name in _CHANGE))
            for ordinal, change in enumerate(map(_recorded, commit["changes"]))
            if not _is_page(change) or change["before"] != change["after"]
        ],
    )


def _is_page(change: Mapping[str, Any]) -> bool:
    return str(change["uri"]).rpartition("/")[2] in (ABSTRACT_NAME, OVERVIEW_NAME)


def _recorded(change: Mapping[str, Any]) -> Mapping[str, Any]:
    """A change as the ledger keeps it: of a page that an older version exported only what somebody wrote."""
    if not _is_page(change):
        return change
    name = str(change["uri"]).rpartition("/")[2]
    texts = {side: own_words(name, change[side]) for side in ("before", "after")}
    return {**change, **texts, **{f"{side}_sha256": text and text_sha256(text) for side, text in texts.items()}}
