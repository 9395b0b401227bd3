"""How a vector server stands: asked over the network, compared with what the catalog says was sent. Changes nothing."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from memory_core.index.vectors import log
from memory_core.index.vectors import sent as table
from memory_core.index.vectors.chroma_server import ChromaServer, ServerFailed


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

    place: str
    version: str | None
    sent: int
    held: int | None
    waiting: int
    trouble: str | None = None
    hint: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)

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
    log_id = log.log_id(connection)
    cells = connection.execute(
        "SELECT DISTINCT v.space, v.fingerprint FROM vectors v JOIN models m ON m.fingerprint = v.fingerprint "
        "WHERE ? IS NULL OR v.space IN (SELECT value FROM json_each(?))",
        (None if spaces is None else 1, json.dumps(list(spaces or ()))),
    ).fetchall()
    names: list[str] = []
    acknowledged = waiting = 0
    for space, fingerprint in cells:
        found = table.read(connection, server.place.name, space, fingerprint)
        seq = 0 if found is None else found.seq
        acknowledged += log.count_up_to(connection, space, fingerprint, seq)
        waiting += log.count(connection, space, fingerprint, seq)
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
