"""What of the vector log was sent to which server: the table ``sent`` of the catalog's database.

One row for each server, space and model. Promises that a number here was acknowledged by the server before it was
noted; whether the server still holds it is for ``remote`` to ask. Does no network.
"""

from __future__ import annotations

import secrets
import sqlite3
from dataclasses import dataclass

from memory_core.index.vectors.chroma import collection_name

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
