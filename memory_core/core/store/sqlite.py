"""A SQLite file that threads and processes share, and the tables in it; its copies, and moving one out of the way.

A ``Database`` opens and migrates the file, knows when another one stands under its name, and says what SQLite refuses
as errors of ours. A copy is consistent, whoever writes meanwhile, and appears under its name only when it is whole: it
is made beside the target, checked, synced and renamed in. What a killed copy leaves behind begins with
``atomic.TEMPORARY_PREFIX`` and is never taken for a copy.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from memory_core.core.errors import RunebookError, StorageFailed, StoreBusy
from memory_core.core.store import atomic
from memory_core.core.store.locks import FairLock


class TranslatingConnection(sqlite3.Connection):
    """A connection that raises what ``translate`` makes of SQLite's errors."""

    translate: Callable[[sqlite3.Error], Exception] = staticmethod(lambda error: error)

    def cursor(self, factory: Any = None) -> Any:
        """A cursor that translates."""
        try:
            return super().cursor(factory or _Cursor)
        except sqlite3.ProgrammingError as error:  # it was closed
            raise self.translate(error) from error

    def execute(self, *arguments: Any) -> Any:
        """As SQLite's; its own would not go through ``cursor``."""
        return self.cursor().execute(*arguments)

    def executemany(self, *arguments: Any) -> Any:
        """As SQLite's; see ``execute``."""
        return self.cursor().executemany(*arguments)


def _translating(method: Any) -> Any:
    """A method of cursors that raises what the cursor's connection makes of SQLite's errors."""

    def call(cursor: Any, *arguments: Any) -> Any:
        try:
            return method(cursor, *arguments)
        except sqlite3.Error as error:
            raise cursor.connection.translate(error) from error

    return call


class _Cursor(sqlite3.Cursor):
    execute = _translating(sqlite3.Cursor.execute)
    executemany = _translating(sqlite3.Cursor.executemany)
    fetchone = _translating(sqlite3.Cursor.fetchone)
    fetchall = _translating(sqlite3.Cursor.fetchall)
    __next__ = _translating(sqlite3.Cursor.__next__)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # a generator is as fast as the cursor's own loop
        try:
            yield from iter(super().__next__, None)
        except sqlite3.Error as error:
            raise cast("TranslatingConnection", self.connection).translate(error) from error


_BUSY_SECONDS = 30.0
_SWITCH_POLL_SECONDS = 0.005
_OPENING_TRIES = 5
_PRIMARY = 0xFF
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_UNREADABLE = frozenset(
    {sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS}
    | {sqlite3.SQLITE_READONLY_DBMOVED}
)
_REFUSALS = frozenset(
    {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}
)
_LOST_TABLE = ("no such table", "no such column", "malformed database schema")
#: What Python says, without a code, of a text with bytes that nobody wrote.
_NO_TEXT = "Could not decode to UTF-8"
_CHECK_DISK = "Check free space and permissions of the .state folder, then retry."


def stamp(moment: datetime) -> str:
    """A moment as tables hold it: ISO 8601 in UTC, to the millisecond, so that texts compare as times do."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


#: Sets a value by its name.
SET_META = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"


class DatabaseDamaged(StorageFailed):
    """The contents of a database cannot be trusted, or its file is no longer the one that was opened.

    Attributes:
        path: The database.
        generation: Which of the files that stood under the name; see ``Database.generation``.
    """

    def __init__(self, message: str, *, hint: str, path: Path, generation: int) -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.generation = generation


class DatabaseNewer(StorageFailed):
    """A database was written by a newer version of this program."""


class FileIdentity(NamedTuple):
    """Which files stand under a database's name: (device, inode) of it and of its log; None for no file."""

    file: tuple[int, int] | None
    log: tuple[int, int] | None


def identity_of(path: Path) -> FileIdentity:
    """Which files stand under a name now."""
    return FileIdentity(_inode(f"{path}"), _inode(f"{path}-wal"))


def _inode(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - half the time of Path.stat, at every write
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Database:
    """A SQLite file shared by threads and processes.

    Args:
        path: The file; its folder is created private to the user.
        migrations: SQL scripts; script *n* takes the schema from version *n* to *n + 1*.
        synchronous: ``FULL`` syncs each commit (the ledger), ``NORMAL`` may lose the last ones at power
            loss but stays sound (the disposable index).
        functions: Functions of texts that migrations may call, by name.
        before_migrating: Called with the file and the version to come, inside the transaction that migrates a file
            with content, before its first change.
        damage_hint: What to do about damage.

    Raises:
        DatabaseDamaged: If the file is no SQLite database.
        DatabaseNewer: If it is newer than this program.
        StorageFailed: If the system refuses the file.
    """

    #: Whether a question goes over a network, and may have to wait for long.
    is_remote = False

    def __init__(
        self,
        path: Path,
        migrations: tuple[str, ...],
        synchronous: Literal["FULL", "NORMAL"],
        functions: Mapping[str, Callable[..., str | None]] | None = None,
        before_migrating: Callable[[Path, int], object] = lambda _path, _version: None,
        *,
        damage_hint: str = _CHECK_DISK,
    ) -> None:
        self.path = path
        self._synchronous = synchronous
        self._damage_hint = damage_hint
        self._migrations = migrations
        self._functions = functions or {}
        self._before_migrating = before_migrating
        self._local = threading.local()
        self._all: list[tuple[threading.Thread, sqlite3.Connection]] = []
        self._guard = threading.Lock()
        #: Threads wait for each other here; SQLite would let those ask again and again that write seldom.
        self._writer = FairLock()
        self._generation = 0
        self._identity: FileIdentity | None = None
        atomic.make_folder(path.parent)
        atomic.make_file(path)  # private from the first moment: SQLite gives its log the database's mode
        try:
            self._begin()
        except RunebookError:
            self.close()
            raise

    @property
    def is_awaited(self) -> bool:
        """Whether another thread of this process waits to write."""
        return self._writer.is_awaited

    @property
    def generation(self) -> int:
        """Counts the files that stood under this name; what was remembered of an earlier one is void."""
        return self._generation

    @property
    def identity(self) -> FileIdentity | None:
        """Which file is in use; None while or after reopening failed."""
        return self._identity

    def connection(self) -> sqlite3.Connection:
        """This thread's connection, in autocommit mode; inside ``reading`` and ``writing`` always the same.

        Raises:
            DatabaseDamaged: If another file stands under the name; see ``reopen``.
        """
        found: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if found is not None and (self._local.generation == self._generation or found.in_transaction):
            return found
        return self._renew(found)

    def is_current(self) -> bool:
        """Whether the file that was opened still stands under its name, with its log; some microseconds."""
        return self._identity == identity_of(self.path)

    def reopen(self) -> bool:
        """Use the file that now stands under the name, which is created where there is none; each thread follows.

        Returns:
            False when that is the file in use; nothing is done then.

        Raises:
            StorageFailed: As the constructor does.
        """
        with self._guard:
            if self.is_current():
                return False
            self._generation += 1
            self._identity = None
        self._begin()
        return True

    @contextmanager
    def writing(self, *, synced: bool = True, wait_seconds: float = _BUSY_SECONDS) -> Iterator[sqlite3.Connection]:
        """A write transaction: committed when the body ends, rolled back when it raises.

        Args:
            synced: False does not wait for the disk: a power loss may take this transaction, a killed process
                does not. For what can be missed.
            wait_seconds: How long another thread is waited for, and then another process.

        Raises:
            StoreBusy: If another one wrote for longer.
            DatabaseDamaged: If the file was deleted or replaced, or cannot be trusted.
            StorageFailed: If the disk refuses.
        """
        connection = self.connection()
        if not self._writer.acquire(wait_seconds):
            raise self._busy("another thread writes")
        try:
            if not self.is_current():
                raise self._moved()
            connection = self._begun(connection, synced=synced, wait_seconds=wait_seconds)
            try:
                yield connection
            except BaseException:
                if connection.in_transaction:  # SQLite itself rolls back what it cannot go on with
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:  # one that a row of ours caused
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise self._failed(error) from error
        except (StorageFailed, StoreBusy) as error:
            connection = getattr(self._local, "connection", connection)  # ``_begun`` may have closed the other one
            if connection.in_transaction:  # COMMIT itself failed
                connection.execute("ROLLBACK")
            if _is_read_only(error):
                self._local.generation = None  # the next one is opened anew: see ``_begun``
            raise
        finally:
            self._writer.release()
            if not synced:
                connection.execute(f"PRAGMA synchronous={self._synchronous}")
            if wait_seconds != _BUSY_SECONDS:
                connection.execute(_patience(_BUSY_SECONDS))

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent view for several reads."""
        connection = self.connection()
        connection.execute("BEGIN")
        try:
            yield connection
        finally:
            if connection.in_transaction:
                connection.execute("COMMIT")

    def _begun(self, connection: sqlite3.Connection, *, synced: bool, wait_seconds: float) -> sqlite3.Connection:
        """This connection in a write transaction, or a new one.

        A file that SQLite could not open for writing can only be read through that connection, also when the disk is
        well again.
        """
        statements = [] if synced else ["PRAGMA synchronous=NORMAL"]
        statements += [] if wait_seconds == _BUSY_SECONDS else [_patience(wait_seconds)]
        statements.append("BEGIN IMMEDIATE")
        try:
            for statement in statements:
                connection.execute(statement)
        except StorageFailed as error:
            if not _is_read_only(error):
                raise
            connection = self._renew(connection)
            for statement in statements:
                connection.execute(statement)
        return connection

    def close(self) -> None:
        """Close every thread's connection; the object must not be used afterwards."""
        with self._guard:
            for _, connection in self._all:
                connection.close()
            self._all.clear()
        self._local = threading.local()

    def _begin(self) -> None:
        """Open and migrate what stands under the name; with the file it opened, not one that came meanwhile."""
        for _ in range(_OPENING_TRIES):
            found = _inode(f"{self.path}")
            connection = self._add(self._open())
            self._migrate(connection)
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # there is a log from now on
            identity = identity_of(self.path)
            if identity.file is not None and found in (None, identity.file):
                self._identity = identity
                return
        raise self._moved()

    def _renew(self, old: sqlite3.Connection | None) -> sqlite3.Connection:
        if self._identity is None:
            raise self._moved()  # another thread is at reopening
        connection = self._open(create=False)
        if not self.is_current():
            connection.close()
            raise self._moved()
        self._add(connection)
        if old is not None:
            self._remove(old)
        return connection

    def _add(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        """Make it this thread's; connections of threads that ended are closed, one always stays open."""
        with self._guard:
            ended = [kept for thread, kept in self._all if not thread.is_alive()]
            self._all = [(thread, kept) for thread, kept in self._all if thread.is_alive()]
            self._all.append((threading.current_thread(), connection))
            self._local.connection, self._local.generation = connection, self._generation
        for kept in ended:
            kept.close()
        return connection

    def _remove(self, connection: sqlite3.Connection) -> None:
        with self._guard:
            self._all = [(thread, kept) for thread, kept in self._all if kept is not connection]
        connection.close()

    def _open(self, *, create: bool = True) -> sqlite3.Connection:
        if create and not self.path.exists():
            with suppress(OSError):  # SQLite says it better
                self.path.touch(mode=0o600)  # its log and shared memory get the same rights
        try:
            connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}",
                uri=True,
                timeout=_BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
                factory=TranslatingConnection,
            )
        except sqlite3.Error as error:
            raise self._failed(error) from error
        connection.translate = partial(self._translated, self._generation)
        connection.create_function("lower", 1, _lower, deterministic=True)
        try:
            _use_wal(connection)
            connection.execute(f"PRAGMA synchronous={self._synchronous}")
            connection.execute("PRAGMA foreign_keys=ON")
        except RunebookError:
            connection.close()
            raise
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        version, newest = _version(connection), len(self._migrations)
        if version > newest:
            raise DatabaseNewer(
                f"{self.path.name} has schema version {version}; this program knows {newest}.",
                hint="Upgrade Runebook: the store was opened by a newer version.",
            )
        if version == newest:
            return
        for name, function in self._functions.items():
            connection.create_function(name, -1, function, deterministic=True)
        try:
            connection.execute("BEGIN IMMEDIATE")
            found = _version(connection)
            if 0 < found < newest:
                self._before_migrating(self.path, newest)
            for step in range(found, newest):
                for statement in _statements(self._migrations[step]):
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version={newest}")
            connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            raise self._failed(error) from error
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        self.path.chmod(0o600)

    def _moved(self, generation: int | None = None) -> DatabaseDamaged:
        return self._damaged("was deleted, moved or replaced while it was open", generation)

    def _damaged(self, how: str, generation: int | None) -> DatabaseDamaged:
        """Damage of a file that stood under the name; by default of the one that this thread last looked into."""
        if generation is None:
            generation = int(getattr(self._local, "generation", self._generation))
        return DatabaseDamaged(
            f"{self.path.name} {how}.", hint=self._damage_hint, path=self.path, generation=generation
        )

    def _busy(self, how: str) -> StoreBusy:
        return StoreBusy(f"{self.path.name} stayed locked: {how}.", hint="Send the same request again.")

    def _failed(self, error: sqlite3.Error, generation: int | None = None) -> StorageFailed | StoreBusy:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        text = str(error)
        if code & _PRIMARY in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return self._busy(text)
        if code & _PRIMARY in _DAMAGE or code in _UNREADABLE or text.startswith(_LOST_TABLE):
            return self._damaged(f"is damaged: {text}", generation)
        return StorageFailed(f"{self.path.name}: {text}.", hint=_CHECK_DISK)

    def _translated(self, generation: int, error: sqlite3.Error) -> Exception:
        """The error of ours for what SQLite says of the file; an error that the caller's statement made stays.

        Args:
            generation: Of the connection. One of an earlier file is closed once its thread has one of the file in use.
            error: SQLite's.
        """
        code = getattr(error, "sqlite_errorcode", None)
        if code is None:
            if str(error).startswith(_NO_TEXT):
                return self._damaged("is damaged: it holds bytes that are no text", generation)
            return self._moved(generation) if generation != self._generation else error
        failed = self._failed(error, generation)
        known = isinstance(failed, DatabaseDamaged | StoreBusy) or code & _PRIMARY in _REFUSALS
        return failed if known else error


class Table:
    """What reads and writes some tables of a database, in the SQL that every database of a store knows."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def database(self) -> Database:
        """Where the tables are."""
        return self._database

    def _rows(self, statement: str, *values: Any) -> list[Any]:
        """All rows of the answer."""
        return self._database.connection().execute(statement, values).fetchall()

    def _row(self, statement: str, *values: Any) -> Any:
        """The first row of the answer, or None."""
        return self._database.connection().execute(statement, values).fetchone()

    def _value(self, statement: str, *values: Any) -> Any:
        """The first column of the first row; None where there is no row."""
        row = self._row(statement, *values)
        return None if row is None else row[0]


def _lower(value: Any) -> Any:
    """``lower`` of every letter; SQLite's own knows those of ASCII alone."""
    return value.lower() if isinstance(value, str) else value


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL; while another process is switching, SQLite refuses at once instead of waiting."""
    ends_at = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except StoreBusy:
            if time.monotonic() > ends_at:
                raise
            time.sleep(_SWITCH_POLL_SECONDS)
        else:
            return


def _is_read_only(error: Exception) -> bool:
    """Whether SQLite may only read the file."""
    return getattr(error.__cause__, "sqlite_errorcode", 0) & _PRIMARY == sqlite3.SQLITE_READONLY


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


_log = logging.getLogger(__name__)
_BEFORE = re.compile(r"-before-v(\d+)\.sqlite3\Z")
_PAGES = 2_000
_HINT = "Check free space and the permissions of the folder, then try again."


def copy_database(source: Path, target: Path) -> None:
    """Copy a database as its last commit left it; readers and writers of ``source`` go on.

    Args:
        source: An existing SQLite file.
        target: Replaced when it exists; private to the user.

    Raises:
        StorageFailed: If either side refuses or the copy is not sound; ``target`` is then as it was.
    """
    atomic.make_folder(target.parent)
    temporary = target.parent / f"{atomic.TEMPORARY_PREFIX}{secrets.token_hex(8)}"
    try:
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with (
            contextlib.closing(sqlite3.connect(source, timeout=30)) as reader,
            contextlib.closing(sqlite3.connect(temporary)) as writer,
        ):
            reader.execute("PRAGMA query_only=ON")
            reader.execute("BEGIN")  # one view: a writer in between would make the copy begin anew
            reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
            reader.backup(writer, pages=_PAGES)
            writer.execute("PRAGMA journal_mode=DELETE")  # the copy is one file, without a log beside it
        problem = damage(temporary)
        if problem is not None:
            raise StorageFailed(f"the copy of {source.name} is not sound: {problem}.", hint="Run runebook doctor.")
        atomic.sync(temporary)
        temporary.replace(target)
        atomic.sync(target)
    except (OSError, sqlite3.Error) as error:
        raise StorageFailed(f"{source.name} could not be copied: {error}.", hint=_HINT) from error
    finally:
        temporary.unlink(missing_ok=True)


def move_aside(path: Path, aside: Path) -> list[Path]:
    """Rename a database, its log first: what stands under the name is never a log without its database.

    Args:
        path: The database; it may be missing, or something else than a file.
        aside: Its new name; private to the user from then on.

    Returns:
        What was moved, by its new name; ``aside`` is among it if the database itself was there.
    """
    moved: list[Path] = []
    for suffix in ("-shm", "-wal", "-journal", ""):
        file = path.with_name(path.name + suffix)
        if os.path.lexists(file):
            moved.append(file.replace(aside.with_name(aside.name + suffix)))
            if moved[-1].is_file() and not moved[-1].is_symlink():
                moved[-1].chmod(0o600)  # SQLite gives its log and shared memory what the database had
    return moved


def open_frozen(path: Path) -> sqlite3.Connection:
    """A connection that reads a file that nobody writes to."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)


def damage(path: Path) -> str | None:
    """What SQLite's own check finds wrong with a file that nobody writes to; None for a sound one."""
    try:
        with contextlib.closing(open_frozen(path)) as found:
            answer = str(found.execute("PRAGMA integrity_check(1)").fetchone()[0])
    except sqlite3.Error as error:
        return str(error)
    return None if answer == "ok" else answer


def keep_before_migrating(path: Path, version: int) -> Path | None:
    """Keep a copy of a database that is about to be taken to schema ``version``, and drop copies before that.

    To be called by whoever holds the database's write transaction, before the first change. A copy that cannot be
    made is no reason to keep the owner out: the migration itself is one transaction.

    Returns:
        ``ledger-before-v4.sqlite3`` beside ``ledger.sqlite3``; None if it could not be made.
    """
    target = path.with_name(f"{path.stem}-before-v{version}.sqlite3")
    try:
        copy_database(path, target)
        for other in path.parent.glob(f"{path.stem}-before-v*.sqlite3"):
            if other != target and _BEFORE.search(other.name):
                atomic.remove(other)
    except StorageFailed as error:
        _log.warning("%s is migrated without a copy of its old form: %s", path.name, error.message)
        return None
    return target


def _patience(seconds: float) -> str:
    """The statement that says how long another writer is waited for."""
    return f"PRAGMA busy_timeout={max(0, int(1_000 * seconds))}"
