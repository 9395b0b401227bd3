"""SQLite as Runebook uses it: WAL, explicit transactions, one connection a thread, numbered migrations."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from memory_core.errors import StorageFailed, StoreBusy
from memory_core.storage import atomic

_BUSY_SECONDS = 30.0


class Database:
    """A SQLite file shared by threads and processes.

    Args:
        path: The file; its folder is created private to the user.
        migrations: SQL scripts; script *n* takes the schema from version *n* to *n + 1*.
        synchronous: ``FULL`` syncs each commit (the ledger), ``NORMAL`` may lose the last ones at power
            loss but stays sound (the disposable index).

    Raises:
        StorageFailed: If the file is no SQLite database, or newer than this program.
    """

    def __init__(self, path: Path, migrations: tuple[str, ...], synchronous: Literal["FULL", "NORMAL"]) -> None:
        self.path = path
        self._synchronous = synchronous
        self._local = threading.local()
        self._all: list[sqlite3.Connection] = []
        self._guard = threading.Lock()
        atomic.make_folder(path.parent)
        self._migrate(migrations)

    def connection(self) -> sqlite3.Connection:
        """This thread's connection, in autocommit mode."""
        found: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if found is None:
            found = self._open()
            self._local.connection = found
            with self._guard:
                self._all.append(found)
        return found

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A write transaction: committed when the body ends, rolled back when it raises.

        Raises:
            StoreBusy: If another process wrote for longer than the timeout.
            StorageFailed: If the disk refuses.
        """
        connection = self.connection()
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise self._failed(error) from error

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent view for several reads."""
        connection = self.connection()
        connection.execute("BEGIN")
        try:
            yield connection
        finally:
            connection.execute("COMMIT")

    def close(self) -> None:
        """Close every thread's connection; the object must not be used afterwards."""
        with self._guard:
            for connection in self._all:
                connection.close()
            self._all.clear()
        self._local = threading.local()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={self._synchronous}")
        connection.execute("PRAGMA foreign_keys=ON")
        return connection

    def _migrate(self, migrations: tuple[str, ...]) -> None:
        try:
            version = self._version()
            if version > len(migrations):
                raise StorageFailed(
                    f"{self.path.name} has schema version {version}; this program knows {len(migrations)}.",
                    hint="Upgrade Runebook: the store was opened by a newer version.",
                )
            if version == len(migrations):
                return
            with self.writing() as connection:
                for step in range(self._version(), len(migrations)):
                    for statement in _statements(migrations[step]):
                        connection.execute(statement)
                connection.execute(f"PRAGMA user_version={len(migrations)}")
        except sqlite3.DatabaseError as error:
            raise self._failed(error) from error
        self.path.chmod(0o600)

    def _version(self) -> int:
        return int(self.connection().execute("PRAGMA user_version").fetchone()[0])

    def _failed(self, error: sqlite3.Error) -> StorageFailed | StoreBusy:
        if "locked" in str(error) or "busy" in str(error):
            return StoreBusy(f"{self.path.name} stayed locked: {error}.", hint="Send the same request again.")
        return StorageFailed(
            f"{self.path.name}: {error}.",
            hint="Check free space and permissions of the .state folder, then retry.",
        )


def _statements(script: str) -> Iterator[str]:
    """Single statements; ``executescript`` would commit the migration's transaction."""
    pending = ""
    for line in script.splitlines():
        pending += line + "\n"
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
    if pending.strip():
        yield pending
