"""SQLite as Runebook uses it: WAL, explicit transactions, one connection a thread, numbered migrations."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from memory_core.errors import StorageFailed, StoreBusy
from memory_core.storage import atomic

_BUSY_SECONDS = 30.0
_SWITCH_POLL_SECONDS = 0.005


class Database:
    """A SQLite file shared by threads and processes.

    Args:
        path: The file; its folder is created private to the user.
        migrations: SQL scripts; script *n* takes the schema from version *n* to *n + 1*.
        synchronous: ``FULL`` syncs each commit (the ledger), ``NORMAL`` may lose the last ones at power
            loss but stays sound (the disposable index).
        functions: Functions of one text that migrations may call, by name.

    Raises:
        StorageFailed: If the file is no SQLite database, or newer than this program.
    """

    def __init__(
        self,
        path: Path,
        migrations: tuple[str, ...],
        synchronous: Literal["FULL", "NORMAL"],
        functions: Mapping[str, Callable[[str], str]] | None = None,
    ) -> None:
        self.path = path
        self._synchronous = synchronous
        self._local = threading.local()
        self._all: list[sqlite3.Connection] = []
        self._guard = threading.Lock()
        atomic.make_folder(path.parent)
        self._migrate(migrations, functions or {})

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
    def writing(self, *, synced: bool = True) -> Iterator[sqlite3.Connection]:
        """A write transaction: committed when the body ends, rolled back when it raises.

        Args:
            synced: False does not wait for the disk: a power loss may take this transaction, a killed process
                does not. For what can be missed.

        Raises:
            StoreBusy: If another process wrote for longer than the timeout.
            StorageFailed: If the disk refuses.
        """
        connection = self.connection()
        try:
            if not synced:
                connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:  # a damaged page is no OperationalError
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise self._failed(error) from error
        finally:
            if not synced:
                connection.execute(f"PRAGMA synchronous={self._synchronous}")

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
        _use_wal(connection)
        connection.execute(f"PRAGMA synchronous={self._synchronous}")
        connection.execute("PRAGMA foreign_keys=ON")
        return connection

    def _migrate(self, migrations: tuple[str, ...], functions: Mapping[str, Callable[[str], str]]) -> None:
        try:
            version = self._version()
            if version > len(migrations):
                raise StorageFailed(
                    f"{self.path.name} has schema version {version}; this program knows {len(migrations)}.",
                    hint="Upgrade Runebook: the store was opened by a newer version.",
                )
            if version == len(migrations):
                return
            for name, function in functions.items():
                self.connection().create_function(name, 1, function, deterministic=True)
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


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL; while another process is switching, SQLite refuses at once instead of waiting."""
    ends_at = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > ends_at:
                raise
            time.sleep(_SWITCH_POLL_SECONDS)
        else:
            return


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
