"""Messages at rest: lines of a log that an archived file stands for are found only by those who ask for such lines.

The messages stay where they are, in the log and in the catalog; their rows say that they are not in use. Which lines
these are follows from the archived files alone, whatever is indexed first, so a catalog that is built anew comes
back equal. The lines of a restored file are in use again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from memory_core.core.memory.uri import MemoryUri

#: A catalog that was there before holds no such file: nothing made one.
DDL = """
DROP TABLE IF EXISTS resting;
CREATE TABLE resting (
    segment TEXT NOT NULL,
    log TEXT NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    PRIMARY KEY (segment, first)
) WITHOUT ROWID;
CREATE INDEX resting_log ON resting (log);
"""
_COVERED = "EXISTS (SELECT 1 FROM resting r WHERE r.log = d.uri AND d.part BETWEEN r.first AND r.last)"


def put(connection: sqlite3.Connection, uri: MemoryUri, log: MemoryUri, lines: Sequence[tuple[int, int]]) -> None:
    """Note the lines of a log, first and last, that are at rest with an archived file, in place of those it had."""
    connection.execute("DELETE FROM resting WHERE segment = ?", (str(uri),))
    connection.executemany(
        "INSERT INTO resting VALUES (?, ?, ?, ?) ON CONFLICT (segment, first) DO UPDATE SET last = excluded.last",
        [(str(uri), str(log), *span) for span in lines],
    )
    apply(connection, str(log))


def apply(connection: sqlite3.Connection, log: str) -> None:
    """Say of each message of a log whether it is in use; those of most logs all are."""
    connection.execute(
        f"UPDATE documents AS d SET active = 1 - active WHERE uri = ? AND {_COVERED} = (active = 1)", (log,)
    )


def clear(connection: sqlite3.Connection) -> None:
    """Forget all of them."""
    connection.execute("DELETE FROM resting")
