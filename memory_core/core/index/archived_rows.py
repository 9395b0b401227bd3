"""Messages at rest: lines of a log whose segment was archived are found only by those who ask for what is at rest.

The messages stay where they are, in the log and in the catalog; their rows say that they are not in use. Which lines
these are follows from the archived segments alone, whatever is indexed first, so a catalog that is built anew comes
back equal. A restored segment's messages are in use again.
"""

from __future__ import annotations

import sqlite3

from memory_core.core.memory.uri import MemoryUri
from memory_core.features.tiers.segment import log_of, readable_pages

#: A catalog that was there before holds no archived segment: nothing made one.
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


def put(connection: sqlite3.Connection, uri: MemoryUri, text: str | None) -> None:
    """Note the lines of an archived segment, in place of those it had; None is a segment that left the archive.

    Those of a damaged one rest as far as they can be read.
    """
    log = str(log_of(uri))
    connection.execute("DELETE FROM resting WHERE segment = ?", (str(uri),))
    connection.executemany(
        "INSERT OR REPLACE INTO resting VALUES (?, ?, ?, ?)",
        [(str(uri), log, page.first, page.last) for page in ([] if text is None else readable_pages(text))],
    )
    apply(connection, log)


def apply(connection: sqlite3.Connection, log: str) -> None:
    """Say of each message of a log whether it is in use; those of most logs all are."""
    connection.execute(
        f"UPDATE documents AS d SET active = NOT {_COVERED} WHERE uri = ? AND active = {_COVERED}", (log,)
    )


def clear(connection: sqlite3.Connection) -> None:
    """Forget all of them."""
    connection.execute("DELETE FROM resting")
