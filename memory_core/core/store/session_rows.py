"""The queue of conversations whose memories are still to be extracted, in the ledger.

A row says how many messages of a session's log are stored and how many were extracted: what is between waits. It
moves in the transaction of the commit that stores messages or memories, so nothing is forgotten or done
twice whatever is killed. Which process works on a session is decided by an operating-system lock, which dies with
its process; this table only remembers.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from memory_core.core.frozen import frozen
from memory_core.core.memory.results import SessionProgress
from memory_core.core.memory.uri import MemoryUri, range_below
from memory_core.core.store.brief_notes import BriefNote, Notes, change_notes, moved, noted, read_notes
from memory_core.core.store.sqlite import Table

#: As ``retry_at``: not before somebody asks for it.
NEVER = "9999-12-31T00:00:00+00:00"
_COLUMNS = "log, stored, extracted, briefed, seen, since, attempts, retry_at, reason"


@frozen
class Extraction:
    """Where one session stands.

    Attributes:
        log: Its message log.
        stored: Messages in the log.
        extracted: Messages, from the first, that are done.
        briefed: Messages that the open briefs for clients' own models cover; 0 without one.
        briefs: The last briefs of each author, the newest last.
        since: When the oldest waiting message was stored, ISO 8601.
        attempts: Failures in a row.
        retry_at: Not before this time, ISO 8601 in UTC; None is at once.
        reason: Why it waits.
    """

    JSON: ClassVar = "session_id uri waiting:messages_waiting since attempts retry_at reason"

    log: MemoryUri
    stored: int
    extracted: int
    briefed: int = 0
    briefs: Notes = ()
    since: str = ""
    attempts: int = 0
    retry_at: str | None = None
    reason: str | None = None

    @property
    def session_id(self) -> str:
        """Of the session."""
        return self.log.parent.name

    @property
    def uri(self) -> str:
        """Of its log."""
        return str(self.log)

    @property
    def waiting(self) -> int:
        """Messages still to be extracted."""
        return max(0, self.stored - self.extracted)


class ExtractionQueue(Table):
    """Reads and moves the rows of ``extractions``."""

    def get(self, log: MemoryUri) -> Extraction | None:
        """Where a session stands, or None if it never was in the queue."""
        return next(iter(self._where("log = ?", str(log))), None)

    def grown_at(self, logs: Iterable[MemoryUri]) -> dict[MemoryUri, str]:
        """When logs were last changed, ISO 8601; those that the ledger does not know are left out."""
        asked = "SELECT uri, at FROM commits JOIN files USING (seq) WHERE uri IN (SELECT value FROM json_each(?))"
        return {MemoryUri.parse(uri): at for uri, at in self._rows(asked, json.dumps([*map(str, logs)]))}

    def waiting(self, space: MemoryUri, limit: int = 100, due_at: str | None = None) -> list[Extraction]:
        """Sessions with messages to extract, longest waiting first.

        Args:
            space: Of the sessions: ``viking://session/{user_space}``.
            limit: Rows at most.
            due_at: Only those that may be tried by then, ISO 8601 in UTC.
        """
        due, values = ("", ()) if due_at is None else (" AND (retry_at IS NULL OR retry_at <= ?)", (due_at,))
        where = f"stored > extracted AND log > ? AND log < ?{due} ORDER BY since, log LIMIT ?"
        return self._where(where, *range_below(space), *values, limit)

    def postpone(self, log: MemoryUri, reason: str, retry_at: str | None) -> None:
        """Note a failure; the session waits on."""
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE extractions SET attempts = attempts + 1, reason = ?, retry_at = ? WHERE log = ?",
                (reason, retry_at, str(log)),
            )

    def briefed(self, log: MemoryUri, brief: BriefNote) -> None:
        """Note that a client's model was briefed; what others were shown stays noted."""
        with self._database.writing() as connection:
            change_notes(connection, str(log), lambda notes: noted(notes, brief))

    def restart(self, log: MemoryUri, stored: int, at: str) -> None:
        """Put a whole session into the queue, whether it was extracted before or not."""
        with self._database.writing() as connection:
            record_progress(connection, SessionProgress(log, stored=stored), at)
            connection.execute(
                "UPDATE extractions SET extracted = 0, attempts = 0, retry_at = NULL, reason = NULL WHERE log = ?",
                (str(log),),
            )

    def counted(self, keys: Iterable[str], space: MemoryUri) -> frozenset[str]:
        """Which of these tool calls were counted before, in whichever session of ``space``.

        Args:
            keys: Of the calls.
            space: ``viking://session/{user_space}``: what another user's session counted is another call.
        """
        rows = self._rows(
            "SELECT key FROM counted_calls WHERE key IN (SELECT value FROM json_each(?)) AND log > ? AND log < ?",
            json.dumps(list(keys)),
            *range_below(space),
        )
        return frozenset(key for (key,) in rows)

    def _where(self, condition: str, *values: str | int) -> list[Extraction]:
        return [
            Extraction(MemoryUri.parse(log), stored, extracted, briefed, read_notes(seen, briefed), *rest)
            for log, stored, extracted, briefed, seen, *rest in self._rows(
                f"SELECT {_COLUMNS} FROM extractions WHERE {condition}", *values
            )
        ]


def record_progress(connection: sqlite3.Connection, progress: SessionProgress, at: str) -> None:
    """Move a session's row, inside the caller's transaction."""
    log = str(progress.log)
    if progress.stored is not None:
        connection.execute(
            "INSERT INTO extractions (log, stored, since) VALUES (?, ?, ?) ON CONFLICT (log) DO UPDATE SET "
            "since = CASE WHEN extractions.stored > extractions.extracted THEN extractions.since "
            "ELSE excluded.since END, "
            "stored = excluded.stored, extracted = min(extractions.extracted, ?)",
            (log, progress.stored, at, progress.stored if progress.known is None else progress.known),
        )
    if progress.extracted is not None:
        connection.execute(
            "UPDATE extractions SET extracted = ?, attempts = 0, retry_at = NULL, reason = NULL WHERE log = ?",
            (progress.extracted, log),
        )
    if progress.extracted is not None or progress.answered is not None:
        change_notes(connection, log, partial(moved, extracted=progress.extracted, answered=progress.answered))
    if progress.reason is not None:
        connection.execute(
            "UPDATE extractions SET reason = ?, retry_at = ? WHERE log = ? AND stored > extracted",
            (progress.reason, NEVER, log),
        )
    space = range_below(progress.log.parent.parent)
    connection.executemany(
        "DELETE FROM counted_calls WHERE key = ? AND log > ? AND log < ?", [(key, *space) for key in progress.uncounted]
    )
    connection.executemany(
        "INSERT OR IGNORE INTO counted_calls (key, log) VALUES (?, ?)", [(key, log) for key in progress.call_keys]
    )
