"""A PostgreSQL database as the tables of a store see it: what ``store.sqlite.Database`` is for a file.

``PostgresServer`` is the database with its connections, shared by all users of a process; ``PostgresDatabase`` one of
its two halves (the ledger, the index) as one tenant sees it. A tenant is a user's space: each transaction names it, and
row-level security keeps the rows of all others out of sight.

Promises: one writer of a half at a time for each tenant, whichever server it is on, so that what was planned on a
state is written on that state. When ``writing`` ends, what was written is on disk (``synchronous_commit``). Errors of
the connection and of locks are ``StoreBusy``, those of the disk ``StorageFailed``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Literal, Self, TypeVar

import psycopg
from pgvector.psycopg import register_vector
from psycopg import errors
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper
from psycopg.types.string import StrBinaryDumper, StrDumper
from psycopg_pool import ConnectionPool, PoolTimeout

from memory_core.core.config import is_space
from memory_core.core.errors import StoreBusy
from memory_core.core.postgres.dialect import translated
from memory_core.core.postgres.faults import AGAIN, UNREACHABLE, store_errors
from memory_core.core.postgres.schema import ROLE, ready
from memory_core.core.store.locks import FairLock

_log = logging.getLogger(__name__)
Half = Literal["ledger", "index"]
Answer = TypeVar("Answer")
_HALVES: tuple[Half, ...] = ("ledger", "index")
_CONNECTIONS = 16
_CONNECT_SECONDS = 10.0
_LOCK_SECONDS = 30
_STATEMENT_SECONDS = 120
_ATTEMPTS = 3
#: So many candidates each search of an HNSW index has, and as many rows it answers with at most.
CANDIDATES = 400
#: Fails at once where nothing can be written: before anything was planned, so that another connection may be tried.
#: The ledger's last statement reads the newest commit's number; the index's reads nothing.
_EXPECT_WRITES: Mapping[Half, str] = {
    "ledger": "DELETE FROM commits WHERE false; SELECT coalesce(max(seq), 0) FROM commits",
    "index": "DELETE FROM documents WHERE false; SELECT 0",
}
#: How statements begin whose answer may wait, and so many of which wait at most.
_CHANGES = ("INSERT", "UPDATE", "DELETE")
_QUEUED = 200
#: What every reader asks of a half first; kept by these names.
_FIRST_READ: Mapping[Half, Mapping[str, str]] = {
    "ledger": {},
    "index": {"meta": "SELECT name, value FROM meta", "spaces": "SELECT name, id FROM spaces"},
}


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that knows when it was asked for, in seconds of the monotonic clock."""

    asked_at = 0.0

    @classmethod
    def connect(cls, *arguments: Any, **named: Any) -> Self:
        """As psycopg's."""
        asked_at = time.monotonic()
        made = super().connect(*arguments, **named)
        made.asked_at = asked_at
        return made


class Rows:
    """What a statement answered: all of its rows, as a cursor gives them."""

    def __init__(self, rows: list[tuple[Any, ...]], rowcount: int, *, counts: bool = False) -> None:
        self._kept = (rows, rowcount)
        self._next = 0
        self._counts = counts

    def _answer(self) -> tuple[list[tuple[Any, ...]], int]:
        """The rows, and how many the statement found or changed."""
        return self._kept

    @property
    def _rows(self) -> list[tuple[Any, ...]]:
        return self._answer()[0]

    @property
    def rowcount(self) -> int:
        """How many rows the statement found or changed."""
        return self._answer()[1]

    @property
    def lastrowid(self) -> int | None:
        """The number of the row that was added, where the statement answers with it."""
        return int(self._rows[0][0]) if self._counts and self._rows else None

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row; None after the last."""
        return next(self, None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """The rows that are left."""
        left, self._next = self._rows[self._next :], len(self._rows)
        return left

    def close(self) -> None:
        """Leave the rest."""

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self

    def __next__(self) -> tuple[Any, ...]:
        if self._next >= len(self._rows):
            raise StopIteration
        self._next += 1
        return self._rows[self._next - 1]


class Queued(Rows):
    """What a statement will answer that waits to be sent with others: sent when somebody looks at it.

    Args:
        statement: With ``%s`` for each parameter.
        every: The parameters of each time that it is executed.
        counts: Whether its first column is the number of the row that it added.
        send: Sends what waits.
    """

    def __init__(
        self, statement: str, every: Sequence[Sequence[Any]], send: Callable[[], object], *, counts: bool = False
    ) -> None:
        super().__init__([], 0, counts=counts)
        self.statement = statement.encode()
        self.every = every
        self._send = send
        self.is_sent = False

    @property
    def is_end(self) -> bool:
        """Whether it ends the transaction."""
        return self.statement == b"COMMIT"

    def answered(self, cursor: psycopg.Cursor[tuple[Any, ...]]) -> None:
        """Keep what it answered."""
        self.is_sent = True
        self._kept = (cursor.fetchall() if cursor.description else [], max(0, cursor.rowcount))

    def _answer(self) -> tuple[list[tuple[Any, ...]], int]:
        if not self.is_sent:
            self._send()
        return self._kept


class Transaction:
    """A connection in a transaction of one tenant; takes SQLite's statements.

    Args:
        raw: The connection.
        kept: What was read of its state, which stays as it is, and what is read further; None where it may change.
        newest: The number of the last commit, of a writer of the ledger.
    """

    def __init__(self, raw: Connection, *, kept: dict[Any, Any] | None = None, newest: int | None = None) -> None:
        self._raw = raw
        self._queue: list[Queued] = []
        #: The number of the last commit; None where it is not known.
        self.newest = newest
        self.kept = kept

    @contextmanager
    def together(self) -> Iterator[Transaction]:
        """Itself; see ``Alone.together``."""
        yield self

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Rows:
        """As SQLite's; see ``dialect``."""
        wanted = translated(statement)
        if wanted is None:
            return Rows([(0,)], 0)
        return self.native(wanted.text, [_value(parameters[place]) for place in wanted.order], counts=wanted.counts)

    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]]) -> Rows:
        """As SQLite's."""
        wanted = translated(statement)
        if wanted is None:
            return Rows([], 0)
        every = [[_value(values[place]) for place in wanted.order] for values in parameters]
        return self._queued(Queued(wanted.text, every, self.send))

    def native(self, statement: str, parameters: Sequence[Any] = (), *, counts: bool = False) -> Rows:
        """Execute a statement that is written for PostgreSQL.

        Args:
            statement: With ``%s`` for each parameter.
            parameters: Their values.
            counts: Whether its first column is the number of the row that it added.
        """
        if statement.startswith(_CHANGES):
            return self._queued(Queued(statement, [parameters], self.send, counts=counts))
        asked = Queued(statement, [parameters], self.send)
        self._queue.append(asked)
        self.send()
        return asked

    def send(self, *, last: bool = False) -> None:
        """Send what waits, as one message; with ``last`` also COMMIT: when this returns, it is committed."""
        queue, self._queue = self._queue, []
        if last:
            queue.append(Queued("COMMIT", [()], self.send))
        with store_errors(), nullcontext() if len(queue) == 1 else self._raw.pipeline():
            cursors = [self._sent(each) for each in queue]
        for each, cursor in zip(queue, cursors, strict=True):
            each.answered(cursor)
        if last and cursors[-1].statusmessage != "COMMIT":
            raise StoreBusy("the database took the transaction back.", hint=AGAIN)

    def _queued(self, change: Queued) -> Rows:
        """A change, which waits for the next question or the end."""
        if b"INTO commits" in change.statement:
            self.newest = None
        self._queue.append(change)
        if sum(len(each.every) for each in self._queue) >= _QUEUED:
            self.send()
        return change

    def _sent(self, change: Queued) -> psycopg.Cursor[tuple[Any, ...]]:
        cursor = self._raw.cursor(binary=True)
        if len(change.every) == 1:
            return cursor.execute(change.statement, change.every[0], prepare=False if change.is_end else None)
        cursor.executemany(change.statement, change.every)
        return cursor


class Alone:
    """A connection outside of transactions: each statement is one."""

    newest = None
    kept = None

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Rows:
        """As SQLite's."""
        wanted = translated(statement)
        if wanted is None:
            return Rows([(0,)], 0)
        return self.native(wanted.text, [_value(parameters[place]) for place in wanted.order])

    def native(self, statement: str, parameters: Sequence[Any] = ()) -> Rows:
        """Execute a statement that is written for PostgreSQL."""
        return self._database.single(statement, parameters)

    @contextmanager
    def together(self) -> Iterator[Transaction]:
        """Several reads at once, of one state."""
        with self._database.reading() as connection:
            yield connection


class PostgresDatabase:
    """One half of a store as one tenant sees it, shared by threads.

    Args:
        server: The database.
        half: Which.
        tenant: A user's space.
    """

    #: Nobody puts another file in its place.
    generation = 0
    is_remote = True

    def __init__(self, server: PostgresServer, half: Half, tenant: str) -> None:
        if not is_space(tenant.removeprefix("_")):  # it is written into statements
            raise ValueError(f"{tenant!r} is no space")
        self.tenant = tenant
        self._server = server
        self._half: Half = half
        self._local = threading.local()
        self._alone = Alone(self)

    def connection(self) -> Transaction | Alone:
        """This thread's connection: inside ``reading`` and ``writing`` their transaction."""
        open_: Transaction | None = getattr(self._local, "transaction", None)
        return self._alone if open_ is None else open_

    def is_current(self) -> bool:
        """Whether it is the database that was opened; always."""
        return True

    @property
    def is_awaited(self) -> bool:
        """Whether another thread of this process waits to write for the tenant."""
        return self._server.writer_lock(self._half, self.tenant).is_awaited

    def close(self) -> None:
        """Nothing is held between transactions."""

    @contextmanager
    def writing(self, *, synced: bool = True, wait_seconds: float = _LOCK_SECONDS) -> Iterator[Transaction]:
        """A transaction of the tenant's only writer: committed when the body ends; inside another one, part of it.

        Args:
            synced: False does not wait for the disk.
            wait_seconds: How long another thread is waited for; the server bounds how long another process is.

        Raises:
            StoreBusy: If another writer held the tenant for too long, or the connection is lost.
            StorageFailed: If the disk refuses.
        """
        with self.transaction(writes=True, synced=synced, wait_seconds=wait_seconds) as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """One consistent view for several reads."""
        with self.transaction(consistent=True) as connection:
            yield connection

    def single(self, statement: str, parameters: Sequence[Any]) -> Rows:
        """A statement in a transaction of its own, sent with what names the tenant as one message."""

        def run(raw: Connection) -> Rows:
            with raw.cursor() as cursor:
                text = psycopg.ClientCursor(raw).mogrify(statement, parameters)
                cursor.execute(f"{self._server.setting(self._half, self.tenant)}{text}".encode(), prepare=False)
                while cursor.nextset():
                    pass
                return Rows(cursor.fetchall() if cursor.description else [], cursor.rowcount)

        with self._server.connection(self._half, run) as (_raw, rows):
            return rows

    @contextmanager
    def transaction(
        self,
        *,
        writes: bool = False,
        synced: bool = True,
        consistent: bool = False,
        wait_seconds: float = _LOCK_SECONDS,
    ) -> Iterator[Transaction]:
        """The transaction at hand, or a new one; see ``writing`` and ``reading``."""
        open_: Transaction | None = getattr(self._local, "transaction", None)
        if open_ is not None:
            yield open_
            return
        mode = " ISOLATION LEVEL REPEATABLE READ READ ONLY" if consistent else ""
        begin = f"BEGIN{mode}; {self._server.setting(self._half, self.tenant)}"
        begin += "" if synced else "SET LOCAL synchronous_commit = off; "
        ahead = _FIRST_READ[self._half] if consistent else {}
        begin += "; ".join(ahead.values())
        if writes:
            begin += f"SELECT pg_advisory_xact_lock(hashtextextended('{self._half}/{self.tenant}', 0)); "
            begin += _EXPECT_WRITES[self._half]

        def run(raw: Connection) -> list[list[tuple[Any, ...]]]:
            cursor = raw.execute(begin.encode(), prepare=False)
            answers = [[] if cursor.description is None else cursor.fetchall()]
            while cursor.nextset():
                answers.append([] if cursor.description is None else cursor.fetchall())
            return answers

        turn = self._server.writer(self._half, self.tenant, wait_seconds) if writes else nullcontext()
        with turn, self._server.connection(self._half, run) as (raw, answers):
            newest = int(answers[-1][0][0]) if writes else None
            kept = dict(zip(ahead, answers[-len(ahead) :], strict=True)) if ahead else {}
            self._local.transaction = transaction = Transaction(raw, kept=kept if consistent else None, newest=newest)
            try:
                yield transaction
                transaction.send(last=True)
            except BaseException:
                with suppress(psycopg.Error):  # it was lost
                    raw.rollback()
                raise
            finally:
                self._local.transaction = None


class PostgresServer:
    """The database of ``store.url`` and its connections; made ready when it is new.

    Args:
        url: ``postgresql://…``.

    Raises:
        StoreBusy: If it cannot be reached.
        DatabaseNewer: If a newer version of this program made it.
        StorageFailed: If it may not be used, or not be made ready.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.store_id, privileged = ready(url)
        self._role = f"SET LOCAL ROLE {ROLE}; " if privileged else ""
        self._pools = {half: self._pool(f"runebook {half}") for half in _HALVES}
        # A lock is held by a connection of its own while a model thinks: it takes none from those who only ask.
        self._locks = self._pool("runebook locks", ConnectionPool.check_connection)
        self._guard = threading.Lock()
        self._writers: dict[tuple[Half, str], FairLock] = {}

    def close(self) -> None:
        """Close all connections; safe to call twice."""
        for pool in (*self._pools.values(), self._locks):
            pool.close()

    def setting(self, half: Half, tenant: str) -> str:
        """The statements that name a half and a tenant, for the transaction at hand."""
        return (
            f"{self._role}SET LOCAL search_path = runebook_{half}, runebook, public; "
            f"SELECT set_config('runebook.tenant', '{tenant}', true); "
        )

    def writer_lock(self, half: Half, tenant: str) -> FairLock:
        """Held by the thread of this process that writes for a tenant."""
        with self._guard:
            return self._writers.setdefault((half, tenant), FairLock())

    @contextmanager
    def writer(self, half: Half, tenant: str, wait_seconds: float) -> Iterator[None]:
        """The turn of a tenant's writer among those of this process: who waits for it holds no connection.

        Raises:
            StoreBusy: If it was not free in time.
        """
        turn = self.writer_lock(half, tenant)
        if not turn.acquire(wait_seconds):
            raise StoreBusy("another writer has held the store for too long.", hint=AGAIN)
        try:
            yield
        finally:
            turn.release()

    @contextmanager
    def connection(self, half: Half, first: Callable[[Connection], Answer]) -> Iterator[tuple[Connection, Answer]]:
        """A connection and what ``first`` answered on it.

        A connection that was lost meanwhile, or that takes no writes, is replaced, and ``first`` runs again. Only
        attempts on connections made since this call count towards ``_ATTEMPTS``; older ones from the pool are replaced
        without limit.
        """
        pool = self._pools[half]
        began = time.monotonic()
        attempts = 0
        while True:
            raw = _taken(pool)
            try:
                with store_errors():
                    answer = first(raw)
                break
            except BaseException as error:
                with suppress(psycopg.Error):
                    raw.rollback()
                if isinstance(error.__cause__, errors.ReadOnlySqlTransaction):
                    raw.close()
                    pool.drain()  # new ones may lead to who takes writes
                attempts += raw.asked_at >= began
                lost = raw.closed
                pool.putconn(raw)
                if not lost or attempts == _ATTEMPTS:
                    raise
        try:
            yield raw, answer
        finally:
            pool.putconn(raw)

    @contextmanager
    def locked(self, name: str, timeout_seconds: float) -> Iterator[bool]:
        """Hold a lock by its name, on a connection of its own, which gives it up when it is lost.

        Yields:
            Whether it was free within the timeout.
        """
        raw = _taken(self._locks)
        try:
            with store_errors():
                raw.execute(f"SET lock_timeout = {max(1, int(timeout_seconds * 1000))}", prepare=False)
                held = acquire_lock(raw, name, wait=timeout_seconds > 0.0)
            yield held
        finally:
            with suppress(psycopg.Error):  # who lost the connection lost the lock
                raw.execute("SELECT pg_advisory_unlock_all()")
            self._locks.putconn(raw)

    def _pool(self, name: str, check: Callable[[Connection], None] | None = None) -> ConnectionPool[Connection]:
        options = f"-c lock_timeout={_LOCK_SECONDS}s -c statement_timeout={_STATEMENT_SECONDS}s"
        options += f" -c hnsw.ef_search={CANDIDATES}"
        return ConnectionPool(
            self._url,
            connection_class=Connection,
            kwargs={"autocommit": True, "application_name": name, "options": options},
            min_size=0,
            max_size=_CONNECTIONS,
            timeout=_CONNECT_SECONDS,
            reconnect_timeout=_CONNECT_SECONDS,  # who asks later tries anew
            configure=configured,
            check=check,
            open=True,
        )


class PostgresLock:
    """A lock by its name, shared by the threads of all servers of a database; see ``store.locks.StoreLock``."""

    def __init__(self, server: PostgresServer, name: str, timeout_seconds: float) -> None:
        self._server = server
        self._name = name
        self._timeout_seconds = timeout_seconds

    @contextmanager
    def held(self, timeout_seconds: float | None = None) -> Iterator[None]:
        """Hold it for the body.

        Raises:
            StoreBusy: If it was not free within the timeout.
        """
        patience = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        with self._server.locked(self._name, patience) as held:
            if not held:
                after = f" for {patience:g} s" if patience else ""
                raise StoreBusy(f"another server is at it{after}.", hint=AGAIN)
            yield


def _taken(pool: ConnectionPool[Connection]) -> Connection:
    try:
        return pool.getconn()
    except PoolTimeout as error:
        raise StoreBusy(f"the database gave no connection: {error}.", hint=UNREACHABLE) from error


def acquire_lock(raw: psycopg.Connection[Any], name: str, *, wait: bool) -> bool:
    """Whether a connection got a lock by its name, which it holds until it gives it up or is closed."""
    if not wait:
        row = raw.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 1))", (name,)).fetchone()
        return row is not None and bool(row[0])
    try:
        raw.execute("SELECT pg_advisory_lock(hashtextextended(%s, 1))", (name,))
    except errors.LockNotAvailable:
        return False
    return True


def configured(raw: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Let a connection send what statements of the store are given."""
    register_vector(raw)
    raw.adapters.register_dumper(str, StrBinaryDumper)
    raw.adapters.register_dumper(str, StrDumper)
    raw.adapters.register_dumper(int, Int8BinaryDumper)
    raw.adapters.register_dumper(int, Int8Dumper)


def _value(value: Any) -> Any:
    """A value as PostgreSQL takes it: flags are numbers, as in SQLite, and no text holds NUL, nor is found by it."""
    if isinstance(value, bool):
        return int(value)
    return value.replace("\x00", "\ufffd") if isinstance(value, str) else value
