"""Nearest neighbours from a Chroma server: what was sent is asked there, what is newer is scanned here.

The vector log stays the source. Rows go to the server in the background, keyed by their number and never changed; one
collection for each store, space and model. A watermark (``sent``) says how far it is; it is compared with what the
server holds, row numbers and a sample of vectors, and what is lost, swapped or superfluous there is mended.

Promises that a search never misses a row: while the server is away, refuses or holds less than it was sent, all rows
are scanned here and ``trouble`` says so. A search waits for the server a second at most and then not again for a while.
Two stores never share rows: a copied folder finds that somebody else signed the collection and begins its own.
"""

from __future__ import annotations

import json
import logging
import secrets
import sqlite3
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from memory_core.core.errors import StorageFailed, StoreBusy
from memory_core.core.index import vectors
from memory_core.core.index.chroma import collection_name
from memory_core.core.index.chroma_server import BATCH_ROWS, NEAREST_ROWS, ChromaServer, ServerFailed
from memory_core.core.index.vectors import ExactScan, IndexStatus
from memory_core.core.store import atomic
from memory_core.core.store.locks import sealing_lock
from memory_core.core.store.sqlite import DatabaseDamaged


@dataclass(frozen=True, slots=True)
class ServerState:
    """What is known of it.

    Attributes:
        place: Its address, tenant and database.
        version: What it says it is; None when it did not answer.
        sent: Rows that it acknowledged.
        held: How many of them it still holds, of the same store; None when it did not answer.
        waiting: Rows that are to be sent.
        trouble: Why it did not answer; None when it did.
        hint: What to do about that.
    """

    JSON: ClassVar = "*"

    place: str
    version: str | None
    sent: int
    held: int | None
    waiting: int
    trouble: str | None = None
    hint: str | None = None

    def line(self) -> str:
        """For a person."""
        rows = f"{self.sent:,} rows sent, {self.waiting:,} waiting"
        if self.trouble is not None:
            return f"{self.place}: {self.trouble.rstrip('.')}; {rows}; searches scan exactly meanwhile"
        return f"{self.place}: answers, holds {self.held:,}; {rows}"


def look(server: ChromaServer, connection: sqlite3.Connection, spaces: Sequence[str] | None = None) -> ServerState:
    """Ask the server; a second for each collection at most, and no more once it failed.

    Args:
        server: The server.
        connection: To the catalog's database.
        spaces: ``scope/space`` names that count; default all.
    """
    log_id = vectors.log_id(connection)
    cells = connection.execute(
        "SELECT DISTINCT v.space, v.fingerprint FROM vectors v JOIN models m ON m.fingerprint = v.fingerprint "
        "WHERE ? IS NULL OR v.space IN (SELECT value FROM json_each(?))",
        (None if spaces is None else 1, json.dumps(list(spaces or ()))),
    ).fetchall()
    names: list[str] = []
    acknowledged = waiting = 0
    for space, fingerprint in cells:
        found = read(connection, server.place.name, space, fingerprint)
        seq = 0 if found is None else found.seq
        acknowledged += vectors.count_up_to(connection, space, fingerprint, seq)
        waiting += vectors.count(connection, space, fingerprint, seq)
        if found is not None:
            names.append(found.name(log_id, space, fingerprint))
    try:
        version = server.version()
        held = 0
        for name in names:
            collection = server.find(name, soon=True)
            held += 0 if collection is None else server.count(collection.id, soon=True)
    except ServerFailed as error:
        return ServerState(server.place.name, None, acknowledged, None, waiting, error.message, error.hint)
    return ServerState(server.place.name, version, acknowledged, held, waiting)


DDL = """
DROP TABLE IF EXISTS sent;
CREATE TABLE sent (
    server TEXT NOT NULL,
    space TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    identity TEXT NOT NULL,
    collection TEXT NOT NULL,
    seq INTEGER NOT NULL,
    writer TEXT NOT NULL,
    next_writer TEXT NOT NULL,
    PRIMARY KEY (server, space, fingerprint)
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Sent:
    """How far one space and model have come on one server.

    Attributes:
        identity: Random; part of the collection's name, so that no two stores ever share one.
        collection: The server's id of it; empty while it is to be made.
        seq: Every row of the log up to this number was sent; 0 is none.
        writer: What the collection says of who wrote to it last, if that was this store.
        next_writer: What it is about to say.
    """

    identity: str
    collection: str
    seq: int
    writer: str
    next_writer: str

    def wrote(self, writer: str) -> bool:
        """Whether that is this store, and not a copy of its folder."""
        return bool(writer) and writer in (self.writer, self.next_writer)

    def name(self, log_id: str, space: str, fingerprint: str) -> str:
        """The collection's name: of this log, store, space and model alone."""
        return collection_name(f"{log_id}\0{self.identity}\0{space}", fingerprint)


def nonce() -> str:
    """A random name."""
    return secrets.token_hex(12)


def read(connection: sqlite3.Connection, server: str, space: str, fingerprint: str) -> Sent | None:
    """How far it is; None when nothing was ever sent there."""
    row = connection.execute(
        "SELECT identity, collection, seq, writer, next_writer FROM sent "
        "WHERE server = ? AND space = ? AND fingerprint = ?",
        (server, space, fingerprint),
    ).fetchone()
    return None if row is None else Sent(row[0], row[1], int(row[2]), row[3], row[4])


def write(connection: sqlite3.Connection, server: str, space: str, fingerprint: str, sent: Sent) -> None:
    """Note how far it is."""
    connection.execute(
        "INSERT OR REPLACE INTO sent (server, space, fingerprint, identity, collection, seq, writer, next_writer) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (server, space, fingerprint, sent.identity, sent.collection, sent.seq, sent.writer, sent.next_writer),
    )


def begin_anew(connection: sqlite3.Connection) -> None:
    """Nothing counts as sent: each server is emptied and filled again by whoever sends next."""
    connection.execute("UPDATE sent SET seq = 0")


_log = logging.getLogger(__name__)
Vector = NDArray[np.float32]

_LAST_PAUSE_SECONDS = 60.0
_SEND_SECONDS = 2.0
_ATTACH_SECONDS = 1.0
_SAMPLED_ROWS = 16
_STRAY_ROWS = 10_000
_SELF_COSINE = 0.999
_FOREVER_AGO = float("-inf")
_LOST = "the vector server no longer holds what it was sent; it is filled anew"
_NOT_FOUND = 404


class RowsLost(ServerFailed):
    """The server answers, but does not hold what it was sent."""


@dataclass(slots=True, eq=False)
class _Shelf:
    """One space and model of one vector log."""

    log_id: str
    space: str
    fingerprint: str
    scan: ExactScan | None = None
    #: The collection that this process found whole, and the one that it found wanting.
    attached: str = ""
    lost: str = ""
    signed: bool = False
    verified_at: float = _FOREVER_AGO
    attaching: threading.Lock = field(default_factory=threading.Lock)
    upkeep: threading.Lock = field(default_factory=threading.Lock)

    def name(self, sent: Sent) -> str:
        return sent.name(self.log_id, self.space, self.fingerprint)

    def scan_above(self, floor: int) -> ExactScan:
        scan = self.scan
        if scan is None or scan.floor > floor:
            scan = self.scan = ExactScan(self.space, self.fingerprint, floor)
        return scan


class RemoteIndex:
    """Vector search over one store's log by way of a server, shared by the threads of a process.

    Args:
        state: The store's ``.state`` folder.
        server: Where the rows go.
        pause_seconds: How long to leave the server alone after a failure; doubled with each in a row, to a minute.
        verify_seconds: How often to compare what it holds.
    """

    def __init__(
        self, state: Path, server: ChromaServer, *, pause_seconds: float = 5.0, verify_seconds: float = 60.0
    ) -> None:
        self._server = server
        self._pause_seconds = pause_seconds
        self._verify_seconds = verify_seconds
        atomic.make_folder(state / "locks")
        self._sending = sealing_lock(state, timeout_seconds=0.0)
        self._shelves: dict[tuple[str, str, str], _Shelf] = {}
        self._guard = threading.Lock()
        self._known = False
        self._failures = 0
        self._retry_at = _FOREVER_AGO
        self._trouble: str | None = None
        self._closed = False

    @property
    def server(self) -> ChromaServer:
        """Where the rows go."""
        return self._server

    @property
    def trouble(self) -> str | None:
        """Why the server is not used for now; None while nothing is known to be wrong."""
        with self._guard:
            lost = any(shelf.lost for shelf in self._shelves.values())
        return self._trouble or (_LOST if lost else None)

    def search(
        self, connection: sqlite3.Connection, space: str, fingerprint: str, query: Vector, k: int
    ) -> list[tuple[int, float]]:
        """The ``k`` nearest rows of the log as ``(seq, cosine)``, best first; see ``SealedIndex.search``."""
        shelf = self._shelf(connection, space, fingerprint)
        sent = self._attached(connection, shelf)
        if sent is not None:
            if k > NEAREST_ROWS:  # more than a server gives in one answer: a filter lets few rows pass
                return vectors.nearest(connection, space, fingerprint, query, k)
            try:
                found = self._server.nearest(sent.collection, query, k)
            except ServerFailed as error:
                self._fail(shelf, error)
            else:
                if self._trouble is not None:
                    self._well()
                scan = shelf.scan_above(sent.seq)
                scan.refresh(connection)
                # A number that is of another space would show its user's memory here.
                own = vectors.among(connection, space, fingerprint, [seq for seq, _ in found if 0 < seq <= sent.seq])
                hits = {seq: cosine for seq, cosine in found if seq in own} | dict(scan.search(query, k))
                return sorted(hits.items(), key=lambda hit: (-hit[1], hit[0]))[:k]
        scan = shelf.scan_above(0)
        scan.refresh(connection)
        return scan.search(query, k)

    def load(self, connection: sqlite3.Connection, space: str, fingerprint: str) -> None:
        """Look at the server, and read the rows that a search would scan, ahead of the first one."""
        shelf = self._shelf(connection, space, fingerprint)
        sent = self._attached(connection, shelf)
        shelf.scan_above(0 if sent is None else sent.seq).refresh(connection)

    def cosines(
        self, connection: sqlite3.Connection, space: str, fingerprint: str, query: Vector, seqs: Sequence[int]
    ) -> dict[int, float]:
        """The cosine of each of these rows of a space and model, by number; others are left out."""
        scan = self._shelf(connection, space, fingerprint).scan
        found = {} if scan is None else scan.cosines(query, seqs)
        others = vectors.by_seq(connection, [seq for seq in seqs if seq not in found])
        return found | {seq: float(row @ query) for seq, row in others.items() if row.shape == query.shape}

    def seal_due(self, connection: sqlite3.Connection, space: str, fingerprint: str) -> bool:
        """Whether ``seal`` would send rows or compare what the server holds; a millisecond at most."""
        if self._closed or time.monotonic() < self._retry_at:
            return False
        shelf = self._shelf(connection, space, fingerprint)
        sent = self._read(connection, shelf)
        newest = vectors.newest_seq(connection, space, fingerprint)
        if sent is None or sent.seq == 0:
            return newest > 0
        stale = time.monotonic() - shelf.verified_at >= self._verify_seconds
        return bool(shelf.lost) or stale or newest > sent.seq

    def seal(self, connection: sqlite3.Connection, space: str, fingerprint: str) -> bool:
        """Send newer rows, for some seconds; mend what the server lost. For a background thread.

        Returns:
            Whether more is to be sent at once. False also when another process is at it, or when the server failed:
            ``trouble`` then says why, and it is tried again later.
        """
        if not self.seal_due(connection, space, fingerprint):
            return False
        return self._maintain(self._shelf(connection, space, fingerprint), connection)

    def compact(self, connection: sqlite3.Connection, space: str, fingerprint: str, live_rows: int) -> bool:  # noqa: ARG002 - what the log holds, the server holds
        """Delete on the server what was pruned from the log; where it is away, later.

        Returns:
            Whether it was compared now.
        """
        if self._closed or time.monotonic() < self._retry_at:
            return False
        shelf = self._shelf(connection, space, fingerprint)
        if self._read(connection, shelf) is None:
            return False
        shelf.verified_at = _FOREVER_AGO
        self._maintain(shelf, connection)
        return shelf.verified_at > _FOREVER_AGO

    def status(self, connection: sqlite3.Connection, space: str, fingerprint: str) -> IndexStatus:
        """How this space and model are searched by this process."""
        shelf = self._shelf(connection, space, fingerprint)
        sent = self._read(connection, shelf)
        usable = sent is not None and sent.seq > 0 and shelf.attached == sent.collection != shelf.lost
        return IndexStatus(
            backend="http" if usable and time.monotonic() >= self._retry_at else "exact",
            sealed_rows=0
            if sent is None
            else vectors.count_up_to(connection, shelf.space, shelf.fingerprint, sent.seq),
            scanned_rows=0 if shelf.scan is None else len(shelf.scan),
            generation=0,
            reason=self.trouble,
        )

    def close(self) -> None:
        """Send no more, and let go of all connections; safe to call twice."""
        self._closed = True
        self._server.close()
        with self._guard:
            self._shelves.clear()

    def _shelf(self, connection: sqlite3.Connection, space: str, fingerprint: str) -> _Shelf:
        key = (vectors.log_id(connection), space, fingerprint)
        with self._guard:
            return self._shelves.setdefault(key, _Shelf(*key))

    def _read(self, connection: sqlite3.Connection, shelf: _Shelf) -> Sent | None:
        return read(connection, self._server.place.name, shelf.space, shelf.fingerprint)

    def _write(self, connection: sqlite3.Connection, shelf: _Shelf, sent: Sent) -> Sent:
        write(connection, self._server.place.name, shelf.space, shelf.fingerprint, sent)
        return sent

    def _attached(self, connection: sqlite3.Connection, shelf: _Shelf) -> Sent | None:
        """How far the server can be asked; None where everything is to be scanned."""
        sent = self._read(connection, shelf)
        if sent is None or not sent.collection or sent.seq == 0 or sent.collection == shelf.lost:
            return None
        if time.monotonic() < self._retry_at:
            return None
        if shelf.attached == sent.collection:
            return sent
        if not shelf.attaching.acquire(timeout=_ATTACH_SECONDS):
            return None
        try:
            if shelf.attached != sent.collection:
                found = self._server.find(shelf.name(sent), soon=True)
                if found is None or found.id != sent.collection:
                    raise RowsLost("the vector server no longer holds what it was sent.")
                if self._server.count(found.id, soon=True) < vectors.count_up_to(
                    connection, shelf.space, shelf.fingerprint, sent.seq
                ):
                    raise RowsLost("the vector server holds fewer rows than it was sent.")
                shelf.attached = sent.collection
                self._well()
            return sent
        except ServerFailed as error:
            self._fail(shelf, error, sent.collection)
            return None
        finally:
            shelf.attaching.release()

    def _fail(self, shelf: _Shelf, error: ServerFailed, collection: str = "") -> None:
        """Scan from now on: until the background mended the collection, or for a while."""
        if (isinstance(error, RowsLost) or error.status == _NOT_FOUND) and (collection or shelf.attached):
            shelf.lost = collection or shelf.attached
            shelf.attached = ""
            _log.warning("vectors are scanned exactly for now: %s", _LOST)
            return
        with self._guard:
            if time.monotonic() >= self._retry_at:  # of several searches that met it at once, one counts
                pause = self._pause_seconds * 2.0**self._failures
                self._failures += 1
                self._retry_at = time.monotonic() + min(_LAST_PAUSE_SECONDS, pause)
        self._tell(error.message)

    def _tell(self, trouble: str) -> None:
        if trouble != self._trouble and not self._closed:
            self._trouble = trouble
            _log.warning("vectors are scanned exactly for now: %s", trouble)

    def _well(self) -> None:
        if self._trouble is not None:
            _log.info("the vector server is used again")
        self._failures, self._retry_at, self._trouble = 0, _FOREVER_AGO, None

    def _maintain(self, shelf: _Shelf, connection: sqlite3.Connection) -> bool:
        if not shelf.upkeep.acquire(blocking=False):
            return False
        try:
            with self._sending.held():
                if not self._known:
                    self._server.version()
                    self._known = True
                sent = self._verified(shelf, connection, self._signed(shelf, connection))
                sent, more = self._send(shelf, connection, sent)
            if self._closed:
                return False
            shelf.attached, shelf.lost = sent.collection, ""
            if shelf.scan is not None and shelf.scan.floor < sent.seq:
                shelf.scan = shelf.scan.above(sent.seq)
            self._well()
            return more
        except StoreBusy:
            return False  # another process is at it
        except DatabaseDamaged:
            raise
        except ServerFailed as error:
            self._fail(shelf, error)
            return False
        except (StorageFailed, OSError) as error:
            self._fail(shelf, ServerFailed(f"what was sent could not be noted: {error}"))
            return False
        finally:
            shelf.upkeep.release()

    def _signed(self, shelf: _Shelf, connection: sqlite3.Connection) -> Sent:
        """The collection, made or made anew where it must be, with this process's mark on it."""
        sent = self._read(connection, shelf) or self._write(connection, shelf, Sent(nonce(), "", 0, "", nonce()))
        found = self._server.find(shelf.name(sent))
        if found is not None and not sent.wrote(found.writer):
            _log.warning("another copy of this store sends vectors to the same place; this one begins its own")
            sent = self._write(connection, shelf, Sent(nonce(), "", 0, "", nonce()))
            found = None
        if found is None or found.id != sent.collection or sent.seq == 0:
            return self._made_anew(shelf, connection, sent)
        if shelf.signed:
            return sent
        # Noted before it is done: whatever a crash leaves behind is known as our own.
        sent = self._write(connection, shelf, replace(sent, next_writer=nonce()))
        self._server.sign(found.id, sent.next_writer)
        shelf.signed = True
        return self._write(connection, shelf, replace(sent, writer=sent.next_writer, next_writer=""))

    def _made_anew(self, shelf: _Shelf, connection: sqlite3.Connection, sent: Sent) -> Sent:
        sent = self._write(connection, shelf, replace(sent, collection="", seq=0, next_writer=nonce()))
        name = shelf.name(sent)
        self._server.drop(name)
        made = self._server.make(name, sent.next_writer)
        shelf.signed = True
        shelf.verified_at = time.monotonic()
        return self._write(connection, shelf, Sent(sent.identity, made.id, 0, sent.next_writer, ""))

    def _verified(self, shelf: _Shelf, connection: sqlite3.Connection, sent: Sent) -> Sent:
        """The same, once the server holds what it was sent: the same numbers and, of some, the same vectors."""
        held = self._server.count(sent.collection)
        whole = held == vectors.count_up_to(connection, shelf.space, shelf.fingerprint, sent.seq)
        if whole and not shelf.lost and time.monotonic() - shelf.verified_at < self._verify_seconds:
            return sent
        sample = vectors.sample(connection, shelf.space, shelf.fingerprint, sent.seq, _SAMPLED_ROWS)
        there = self._server.rows(sent.collection, list(sample))
        if any(not _same(sample[seq], row) for seq, row in there.items() if seq in sample):
            _log.warning("the vector server holds other vectors than it was sent; it is filled anew")
            return self._made_anew(shelf, connection, sent)
        if not whole or len(there) < len(sample):
            sent = self._reconciled(shelf, connection, sent)
        shelf.verified_at = time.monotonic()
        return sent

    def _reconciled(self, shelf: _Shelf, connection: sqlite3.Connection, sent: Sent) -> Sent:
        """Delete there what the log no longer holds, and send again what is missing there."""
        wanted = {seq for seq in vectors.numbers(connection, shelf.space, shelf.fingerprint) if seq <= sent.seq}
        held: set[int] = set()
        offset = 0
        while page := self._server.numbers(sent.collection, offset):
            held.update(page)
            offset += len(page)
            if offset > 2 * len(wanted) + _STRAY_ROWS:  # mostly rows that are not ours, or a list without an end
                return self._made_anew(shelf, connection, sent)
        missing = wanted - held
        if 2 * len(missing) > len(wanted):
            return self._made_anew(shelf, connection, sent)
        # Rows above the watermark go, too: after a power loss their numbers may mean other rows.
        extra = sorted(held - wanted)
        for start in range(0, len(extra), BATCH_ROWS):
            self._server.delete(sent.collection, extra[start : start + BATCH_ROWS])
        after = 0
        while missing and not self._closed:
            seqs, found = vectors.rows_after(connection, shelf.space, shelf.fingerprint, after, BATCH_ROWS)
            if not len(seqs) or int(seqs[0]) > sent.seq:
                break
            after = int(seqs[-1])
            lacking = np.fromiter((int(seq) in missing for seq in seqs), bool, len(seqs))
            if lacking.any():
                self._server.add(sent.collection, seqs[lacking], found[lacking])
        return sent

    def _send(self, shelf: _Shelf, connection: sqlite3.Connection, sent: Sent) -> tuple[Sent, bool]:
        """Send newer rows for a while; the watermark follows each batch. Also: whether there is more."""
        until = time.monotonic() + _SEND_SECONDS
        newest = vectors.newest_seq(connection, shelf.space, shelf.fingerprint)
        while not self._closed and sent.seq < newest:
            seqs, found = vectors.rows_after(connection, shelf.space, shelf.fingerprint, sent.seq, BATCH_ROWS)
            if not len(seqs):  # what is left is damaged, and comes again under new numbers
                return self._write(connection, shelf, replace(sent, seq=newest)), False
            self._server.add(sent.collection, seqs, found)
            sent = self._write(connection, shelf, replace(sent, seq=int(seqs[-1])))
            if time.monotonic() > until:
                return sent, True
        return sent, False


def _same(ours: Vector, theirs: Vector) -> bool:
    return ours.shape == theirs.shape and float(ours @ theirs) >= _SELF_COSINE
