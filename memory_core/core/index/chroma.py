"""Nearest neighbours by way of a Chroma server: the owner's, or one that Runebook itself starts (``chroma_server``).

The rows of the catalog's database stay the source. They go to the server in the background, keyed by their number and
never changed; one collection for each store, space and model. A watermark (``sent``) says how far it is; it is compared
with what the server holds, row numbers and a sample of vectors, and what is lost, swapped or superfluous there is
mended.

A search asks the server only which rows are near, computes their cosines here and scans the rows that were not sent.
Promises that it never misses a row that a server lost: while that is away, slow, refuses, or holds or gives less than
it should, all rows are scanned here and ``trouble`` says so. Each request of a search waits a second at most; after a
failure none is sent for a while. Two stores never share rows: a copied folder finds that somebody else signed the
collection and begins its own.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from memory_core.core.config import IndexConfig
from memory_core.core.errors import StorageFailed, StoreBusy
from memory_core.core.index import vectors
from memory_core.core.index.vectors import IndexStatus, Nearest, VectorIndex
from memory_core.core.store.locks import StoreLock
from memory_core.core.store.sqlite import DatabaseDamaged

if TYPE_CHECKING:
    from memory_core.core.index.chroma_server import ChromaServer, OwnServer
    from memory_core.core.index.vector_scan import SpaceVectors, VectorsSnapshot
    from memory_core.core.index.vectors import Vector

_log = logging.getLogger(__name__)

#: What Chroma Cloud gives in one answer.
NEAREST_ROWS = 300
#: Fewer rows are not worth a server of one's own, whoever asks for it.
_OWN_ROWS = 500
_LAST_PAUSE_SECONDS = 60.0
_FOREVER_AGO = float("-inf")
_HINT = "Nothing to do for searches: vectors are scanned exactly meanwhile. Look at the server and at index.url."
_LOST = "the vector server no longer holds what it was sent; it is filled anew"
_NOT_FOUND, _SERVER_ERROR = 404, 500
#: What the server that Runebook runs is called.
OWN = "Runebook's own server"
#: A collection about which the server fails so often in a row is made anew.
_MOST_FAILURES = 3


class ServerFailed(StorageFailed):
    """The vector server gave no answer that can be used.

    Attributes:
        status: HTTP status; None where no answer came.
    """

    def __init__(self, message: str, status: int | None = None, *, hint: str = _HINT) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class RowsLost(ServerFailed):
    """The server answers, but does not hold what it was sent."""


class Sent(NamedTuple):
    """How far one space and model have come on one server.

    Attributes:
        identity: Random; part of the collection's name, so that no two stores ever share one.
        collection: The server's id of it; empty while it is to be made.
        seq: Every row up to this number was sent; 0 is none.
        writer: What the collection says of who wrote to it last, if that was this store.
        next_writer: What it is about to say.
    """

    identity: str
    collection: str
    seq: int
    writer: str
    next_writer: str

    def wrote(self, writer: str) -> bool:
        """Whether this store is that writer; a copy of its folder is not."""
        return bool(writer) and writer in (self.writer, self.next_writer)

    def name(self, log_id: str, space: str, fingerprint: str) -> str:
        """The collection's name: of this log, store, space and model alone; ASCII, of fixed length."""
        text = f"{log_id}\0{self.identity}\0{space}\0{fingerprint}"
        return "v" + hashlib.sha256(text.encode()).hexdigest()[:40]


def read_sent(connection: sqlite3.Connection, server: str, space: str, fingerprint: str) -> Sent | None:
    """How far it is; None when nothing was ever sent there."""
    row = connection.execute(
        f"SELECT {', '.join(Sent._fields)} FROM sent WHERE server = ? AND space = ? AND fingerprint = ?",
        (server, space, fingerprint),
    ).fetchone()
    return None if row is None else Sent(*row)


def write_sent(connection: sqlite3.Connection, server: str, space: str, fingerprint: str, sent: Sent) -> Sent:
    """Note how far it is, and give it back."""
    connection.execute(
        "INSERT OR REPLACE INTO sent VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (server, space, fingerprint, *sent)
    )
    return sent


def begin_anew(connection: sqlite3.Connection) -> None:
    """Nothing counts as sent: each server is emptied and filled again by whoever sends next."""
    connection.execute("UPDATE sent SET seq = 0")


def open_chroma(settings: IndexConfig, state: Path) -> ChromaIndex:
    """The index of the modes auto, chroma and http; the environment holds the key of a server.

    Raises:
        ConfigInvalid: If the server's address or key cannot be used.
    """
    if settings.mode == "http":
        from memory_core.core.index.chroma_server import ChromaServer, place_of

        return ChromaIndex(state, server=ChromaServer(place_of(settings, os.environ)))
    return ChromaIndex(state, from_rows=settings.exact_below if settings.mode == "auto" else _OWN_ROWS)


@dataclass(slots=True, eq=False)
class Sending:
    """What this process knows of one space and model on the server.

    Attributes:
        attached: The collection, once it was found whole; searches ask it. Else empty.
        lost: Whether it was found wanting.
        signed: Whether it bears this process's mark.
        verified_at: When it was last compared.
        failures_in_row: How often in a row the server failed about it.
        upkeep: Held while a thread is at it.
    """

    log_id: str
    space: str
    fingerprint: str
    attached: str = ""
    lost: bool = False
    signed: bool = False
    verified_at: float = _FOREVER_AGO
    failures_in_row: int = 0
    upkeep: threading.Lock = field(default_factory=threading.Lock)

    def name(self, sent: Sent) -> str:
        """The collection's name."""
        return sent.name(self.log_id, self.space, self.fingerprint)


class ChromaIndex(VectorIndex):
    """Vector search by way of a server, shared by the threads of a process; see ``VectorIndex``.

    Args:
        state: The store's ``.state`` folder.
        server: The owner's; None has one process of the store run one for all.
        from_rows: Rows of a space and model that make the server worth while.
        pause_seconds: How long to leave the server alone after a failure; doubled with each in a row, to a minute.
        verify_seconds: How often to compare what it holds.
    """

    def __init__(
        self,
        state: Path,
        server: ChromaServer | None = None,
        *,
        from_rows: int = 1,
        pause_seconds: float = 5.0,
        verify_seconds: float = 60.0,
    ) -> None:
        super().__init__(state)
        self.server = server
        self._state = state
        self._current = server
        self._own: OwnServer | None = None
        self._from_rows = from_rows
        self._pause_seconds = pause_seconds
        self._verify_seconds = verify_seconds
        self._send_lock = StoreLock(state / "locks" / "index.lock", timeout_seconds=0.0)
        self._sendings: dict[tuple[str, str, str], Sending] = {}
        self._failures = 0
        self._retry_at = _FOREVER_AGO
        self._trouble: str | None = None
        self._closed = False
        missing = server is None and find_spec("chromadb_rust_bindings") is None
        self._unavailable = "chromadb is not installed" if missing else None

    @property
    def trouble(self) -> str | None:
        """Why the server is not used for now; None while nothing is known to be wrong."""
        with self._guard:
            lost = any(sending.lost for sending in self._sendings.values())
        return self._trouble or (_LOST if lost else None)

    def _near(
        self,
        connection: sqlite3.Connection,
        space_vectors: SpaceVectors,
        view: VectorsSnapshot,
        queries: Sequence[Vector],
        k: int,
    ) -> Nearest:
        """The ``k`` rows nearest to each query: the server says which of those that it was sent."""
        sending = self._sending_of(space_vectors.log, space_vectors.space, space_vectors.fingerprint)
        server = self._current
        if server is None or not sending.attached or k > NEAREST_ROWS or time.monotonic() < self._retry_at:
            return view.nearest(queries, k)
        sent = read_sent(connection, server.place.name, space_vectors.space, space_vectors.fingerprint)
        if sent is None or sent.collection != sending.attached:
            return view.nearest(queries, k)
        live = view.live_count(sent.seq)
        found, complete = view.nearest(queries, k, after=sent.seq)
        try:
            for query in queries:
                given = server.nearest(sent.collection, query, k)
                if len(given) < min(k, live):
                    raise RowsLost("the vector server gives fewer rows than it was sent.")
                # A number that is of another space would show its user's memory here: the view knows its own alone.
                older = view.among(query, given, sent.seq)
                complete = complete and len(older) >= live
                for document, cosine in older:
                    found[document] = max(cosine, found.get(document, -1.0))
        except ServerFailed as error:
            self._fail(sending, error)
            return view.nearest(queries, k)
        self._well()
        return Nearest(found, complete)

    def load(self, connection: sqlite3.Connection, space: str, fingerprint: str) -> None:
        """Read the rows ahead, and look whether the server can be asked."""
        super().load(connection, space, fingerprint)
        sending = self._sending_of(vectors.log_id(connection), space, fingerprint)
        self._maintain(sending, connection, send=False)

    def keep_up(self, connection: sqlite3.Connection, space: str, fingerprint: str) -> bool:
        """Send newer rows, for some seconds; mend what the server lost.

        Returns:
            Whether more is to be sent at once. False also when another process is at it, or when the server failed:
            ``trouble`` then says why, and it is tried again later.
        """
        super().keep_up(connection, space, fingerprint)
        if self._closed or self._unavailable is not None or time.monotonic() < self._retry_at:
            return False
        sending = self._sending_of(vectors.log_id(connection), space, fingerprint)
        sent = read_sent(connection, self._place, space, fingerprint)
        if sent is None or sent.seq == 0:
            due = vectors.count(connection, space, fingerprint) >= self._from_rows
        else:
            stale = time.monotonic() - sending.verified_at >= self._verify_seconds
            due = stale or not sending.attached or vectors.newest_seq(connection, space, fingerprint) > sent.seq
        return due and self._maintain(sending, connection, send=True)

    def compact(self, connection: sqlite3.Connection, space: str, fingerprint: str) -> None:
        """Let go of rows that were pruned; where a server of the owner is away, later."""
        super().compact(connection, space, fingerprint)
        sent = read_sent(connection, self._place, space, fingerprint)
        if sent is None or sent.seq == 0:
            return
        sending = self._sending_of(vectors.log_id(connection), space, fingerprint)
        # A server only marks rows as deleted, and keeps them: it is emptied and filled anew.
        write_sent(connection, self._place, space, fingerprint, sent._replace(seq=0))
        if not self._closed and time.monotonic() >= self._retry_at:
            self._maintain(sending, connection, send=True)

    def status(self, connection: sqlite3.Connection, space: str, fingerprint: str) -> IndexStatus:
        """How this space and model are searched by this process."""
        exact = super().status(connection, space, fingerprint)
        sending = self._sending_of(vectors.log_id(connection), space, fingerprint)
        sent = read_sent(connection, self._place, space, fingerprint)
        reason = self._unavailable or self.trouble
        if sent is None or not sending.attached or time.monotonic() < self._retry_at:
            return replace(exact, reason=reason)
        rows = vectors.count(connection, space, fingerprint, up_to=sent.seq)
        return IndexStatus("chroma" if self.server is None else "http", rows, exact.scanned_rows - rows, reason)

    def close(self) -> None:
        """Send no more, let go of all connections, and end the server that is this process's; safe to call twice."""
        with self._guard:
            self._closed = True
            current = self._current
        super().close()
        if current is not None:
            current.close()
        if self._own is not None:
            self._own.end()

    @property
    def _place(self) -> str:
        """What the server is called in ``sent``."""
        return OWN if self.server is None else self.server.place.name

    def _sending_of(self, log_id: str, space: str, fingerprint: str) -> Sending:
        key = (log_id, space, fingerprint)
        with self._guard:
            return self._sendings.setdefault(key, Sending(*key))

    def _reached(self) -> ChromaServer | None:
        """The server, run by this process if need be; None while another process starts it.

        Raises:
            ServerFailed: If it does not come up.
        """
        if self.server is not None:
            return self.server
        from memory_core.core.index.chroma_server import ChromaServer, OwnServer

        with self._guard:  # several spaces are kept up at once
            if self._own is None:
                self._own = OwnServer(self._state)
        place = self._own.running()
        if place is None:
            return None
        with self._guard:
            if self._closed:
                return None
            current = last = self._current
            if current is None or current.place != place:
                current = self._current = ChromaServer(place)
                for sending in self._sendings.values():
                    sending.attached = ""
        if last is not None and last is not current:
            last.close()
        return current

    def _fail(self, sending: Sending, error: ServerFailed) -> None:
        """Scan from now on: until the background mended the collection, or for a while."""
        if isinstance(error, RowsLost) or error.status == _NOT_FOUND:
            sending.lost, sending.attached = True, ""
            _log.warning("vectors are scanned exactly for now: %s", _LOST)
            return
        with self._guard:
            if time.monotonic() >= self._retry_at:  # of several searches that met it at once, one counts
                pause = self._pause_seconds * 2.0**self._failures
                self._failures += 1
                self._retry_at = time.monotonic() + min(_LAST_PAUSE_SECONDS, pause)
        if error.message != self._trouble and not self._closed:
            self._trouble = error.message
            _log.warning("vectors are scanned exactly for now: %s", error.message)

    def _well(self) -> None:
        if self._trouble is not None:
            _log.info("the vector server is used again")
        self._failures, self._retry_at, self._trouble = 0, _FOREVER_AGO, None

    def _maintain(self, sending: Sending, connection: sqlite3.Connection, *, send: bool) -> bool:
        """Bring the server up to date, unless another process does, and let searches ask it; whether more is due."""
        if not sending.upkeep.acquire(blocking=False):
            return False
        more = False
        try:
            sent = read_sent(connection, self._place, sending.space, sending.fingerprint)
            if not send and (sent is None or sent.seq == 0):
                return False
            server = self._reached()
            if server is None:
                return False
            from memory_core.core.index.chroma_upkeep import Upkeep

            upkeep = Upkeep(server, sending, connection, self._verify_seconds)
            try:
                if send:
                    with self._send_lock.held():
                        more = upkeep.send(lambda: self._closed)
            except StoreBusy:
                pass  # another process is at it
            if not self._closed:
                upkeep.attach()
                sending.failures_in_row = 0
                self._well()
        except DatabaseDamaged:
            raise
        except ServerFailed as error:
            self._note_failure(sending, connection, error)
        except (StorageFailed, OSError) as error:
            reason = error.message if isinstance(error, StorageFailed) else error
            self._fail(sending, ServerFailed(f"the vector server could not be brought up to date: {reason}"))
        finally:
            sending.upkeep.release()
        return more and not self._closed

    def _note_failure(self, sending: Sending, connection: sqlite3.Connection, error: ServerFailed) -> None:
        """Note a failure of the background; what fails again and again is made anew."""
        self._fail(sending, error)
        sending.failures_in_row += 1
        if sending.failures_in_row % _MOST_FAILURES or isinstance(error, RowsLost):
            return
        sent = read_sent(connection, self._place, sending.space, sending.fingerprint)
        if error.status == _SERVER_ERROR and sent is not None:  # files of this collection that a kill left torn
            _log.warning("the vector server fails about a collection, which is made anew")
            write_sent(connection, self._place, sending.space, sending.fingerprint, sent._replace(seq=0))
        elif self._own is not None:
            self._own.restart()
