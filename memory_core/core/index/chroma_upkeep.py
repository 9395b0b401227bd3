"""What a Chroma server is sent and holds: sending rows, finding out what is lost there, and mending it."""

from __future__ import annotations

import json
import logging
import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from memory_core.core.index import vectors
from memory_core.core.index.chroma import RowsLost, Sending, Sent, ServerFailed, read_sent, write_sent
from memory_core.core.index.vector_scan import rows_after, sample, unsound

if TYPE_CHECKING:
    from memory_core.core.index.chroma_server import ChromaServer
    from memory_core.core.index.vectors import Vector

_log = logging.getLogger(__name__)
#: What Chroma Cloud takes in one write.
BATCH_ROWS = 300
_SEND_SECONDS = 2.0
_SAMPLED_ROWS = 16
#: A stored vector is this near to itself; less is no rounding.
_SELF_COSINE = 0.999


@dataclass(frozen=True, slots=True)
class ServerState:
    """What is known of a server.

    Attributes:
        place: Its address, tenant and database.
        version: What it says it is; None when it did not answer.
        sent: Rows that it acknowledged.
        held: Rows in the collections of this store, which may be more than it acknowledged; None when it did not
            answer.
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
        found = read_sent(connection, server.place.name, space, fingerprint)
        seq = 0 if found is None else found.seq
        acknowledged += vectors.count(connection, space, fingerprint, up_to=seq)
        waiting += vectors.count(connection, space, fingerprint, after=seq)
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


class Upkeep:
    """One look at what a server holds of a space and model, and what it takes to have it hold what it should."""

    def __init__(
        self, server: ChromaServer, sending: Sending, connection: sqlite3.Connection, verify_seconds: float
    ) -> None:
        self._server = server
        self._sending = sending
        self._connection = connection
        self._cell = (sending.space, sending.fingerprint)
        self._verify_seconds = verify_seconds

    def attach(self) -> None:
        """Let searches ask the server, once it was found whole and has answered one.

        Raises:
            RowsLost: If it does not hold what it was sent.
            ServerFailed: If it fails.
        """
        sent = self._read()
        if sent is None or sent.seq == 0 or self._sending.attached == sent.collection:
            return
        if not self._is_whole(sent):
            raise RowsLost("the vector server does not hold what it was sent.")
        _, some = rows_after(self._connection, *self._cell, 0, 1)
        for query in some:  # the first search has it read its files
            self._server.nearest(sent.collection, query, 1, soon=False)
        self._sending.attached, self._sending.lost = sent.collection, False

    def send(self, closing: Callable[[], bool]) -> bool:
        """Have it hold what it was sent, and send newer rows for a while; whether there are more. The lock is held.

        Raises:
            ServerFailed: If the server fails.
        """
        sent = self._signed()
        stale = time.monotonic() - self._sending.verified_at >= self._verify_seconds
        if (stale or self._sending.lost) and not self._is_whole(sent):
            _log.warning("the vector server does not hold what it was sent; it is filled anew")
            sent = self._made_anew(sent)
        if stale:
            self._sending.verified_at = time.monotonic()
        until = time.monotonic() + _SEND_SECONDS
        newest = vectors.newest_seq(self._connection, *self._cell)
        while not closing() and sent.seq < newest:
            seqs, found = rows_after(self._connection, *self._cell, sent.seq, BATCH_ROWS)
            if not len(seqs):  # what is left is damaged, and comes again under new numbers
                self._write(sent._replace(seq=newest))
                return False
            self._server.put(sent.collection, seqs, found)
            sent = self._write(sent._replace(seq=int(seqs[-1])))  # the watermark follows each batch
            if time.monotonic() > until:
                return sent.seq < newest
        return False

    def _read(self) -> Sent | None:
        return read_sent(self._connection, self._server.place.name, *self._cell)

    def _write(self, sent: Sent) -> Sent:
        return write_sent(self._connection, self._server.place.name, *self._cell, sent)

    def _signed(self) -> Sent:
        """The collection, made or made anew where it must be, with this process's mark on it."""
        sent = self._read() or self._write(Sent(_nonce(), "", 0, "", _nonce()))
        if not self._sending.signed:
            self._server.version()
        found = self._server.find(self._sending.name(sent))
        if found is not None and not sent.wrote(found.writer):
            _log.warning("another copy of this store sends vectors to the same place; this one begins its own")
            sent = self._write(Sent(_nonce(), "", 0, "", _nonce()))
            found = None
        if found is None or found.id != sent.collection or sent.seq == 0:
            return self._made_anew(sent)
        if self._sending.signed:
            return sent
        # Noted before it is done: whatever a crash leaves behind is known as our own.
        sent = self._write(sent._replace(next_writer=_nonce()))
        self._server.sign(found.id, sent.next_writer)
        self._sending.signed = True
        return self._write(sent._replace(writer=sent.next_writer, next_writer=""))

    def _made_anew(self, sent: Sent) -> Sent:
        sent = self._write(sent._replace(collection="", seq=0, next_writer=_nonce()))
        name = self._sending.name(sent)
        self._server.drop(name)
        made = self._server.make(name, sent.next_writer)
        self._sending.signed, self._sending.attached = True, ""
        return self._write(Sent(sent.identity, made.id, 0, sent.next_writer, ""))

    def _is_whole(self, sent: Sent) -> bool:
        """Whether it holds as many rows as it was sent and, of some, the same vectors.

        It may hold more: rows that were sent and not noted any more come again, and replace those there.
        """
        found = self._server.find(self._sending.name(sent))
        if found is None or found.id != sent.collection:
            return False
        held = self._server.count(found.id)
        expected = vectors.count(self._connection, *self._cell, up_to=sent.seq)
        drawn = sample(self._connection, *self._cell, sent.seq, _SAMPLED_ROWS)
        there = self._server.rows(found.id, list(drawn))
        wrong = {seq for seq, row in drawn.items() if seq not in there or not _same(row, there[seq])}
        if held >= expected and not wrong:
            return True
        damaged = {seq for seq in unsound(self._connection, self._cell) if seq <= sent.seq}  # these are never sent
        return wrong <= damaged and held >= expected - len(damaged)


def _nonce() -> str:
    return secrets.token_hex(12)


def _same(ours: Vector, theirs: Vector) -> bool:
    return ours.shape == theirs.shape and float(ours @ theirs) >= _SELF_COSINE
