"""What was injected into which session's context, so that it is not injected there again.

Kept in the ledger, beside the files: a server that starts anew in the middle of a session still knows. A row holds
no text, only the digest of what was shown: a memory that changed since is worth showing once more. Written within
the request, because the next one asks for it, but without waiting for the disk: what a power loss takes is
injected twice, no more. Sessions that were left alone for ``KEPT_DAYS`` are forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from memory_core.storage.sqlite.database import Database

KEPT_DAYS = 30
SCHEMA = """
CREATE TABLE injected_sessions (session TEXT PRIMARY KEY, touched_at TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX injected_sessions_touched ON injected_sessions (touched_at);
CREATE TABLE injections (
    session TEXT NOT NULL REFERENCES injected_sessions (session) ON DELETE CASCADE,
    uri TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (session, uri)
) WITHOUT ROWID;
"""


class InjectionTable:
    """Reads and writes the rows of ``injections``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def seen(self, session: str) -> dict[str, str]:
        """What a session was shown: URI → digest of the text as it was last injected."""
        rows = self._database.connection().execute("SELECT uri, digest FROM injections WHERE session = ?", (session,))
        return dict(rows.fetchall())

    def record(self, session: str, items: Mapping[str, str], at: str) -> None:
        """Note what a session was shown now; with no items, that it still lives.

        Args:
            session: Any name that stays the same while a context lives.
            items: URI → digest of the text that was injected; replaces the earlier digest of a URI.
            at: ISO 8601; sessions last touched ``KEPT_DAYS`` before it are dropped.

        Raises:
            ValueError: If ``at`` is no time.
            StoreBusy: If another process wrote for longer than the timeout.
        """
        moment = datetime.fromisoformat(at).astimezone(UTC)
        with self._database.writing(synced=False) as connection:
            connection.execute(
                "INSERT INTO injected_sessions VALUES (?, ?) ON CONFLICT (session) DO UPDATE SET "
                "touched_at = max(touched_at, excluded.touched_at)",
                (session, _stamp(moment)),
            )
            connection.executemany(
                "INSERT INTO injections VALUES (?, ?, ?) ON CONFLICT (session, uri) DO UPDATE SET "
                "digest = excluded.digest",
                [(session, uri, digest) for uri, digest in items.items()],
            )
            connection.execute(
                "DELETE FROM injected_sessions WHERE touched_at < ?", (_stamp(moment - timedelta(days=KEPT_DAYS)),)
            )

    def forget(self, session: str) -> None:
        """Let everything be injected into a session again: its context was compressed or began anew."""
        with self._database.writing(synced=False) as connection:
            connection.execute("DELETE FROM injected_sessions WHERE session = ?", (session,))


def _stamp(moment: datetime) -> str:
    """One form for all, so that texts compare as times do."""
    return moment.isoformat(timespec="milliseconds")
