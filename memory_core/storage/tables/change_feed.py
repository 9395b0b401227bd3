"""What an index asks of the ledger: how far it is behind, and which files there are in the order they came.

Reads only; answers from indexes of the name table and the journal, without touching a text.
"""

from __future__ import annotations

from typing import NamedTuple

from memory_core.storage.sqlite.database import Database


class Touched(NamedTuple):
    """A file and the change that last touched it: commit and place in that commit."""

    seq: int
    ordinal: int
    uri: str


class ChangeFeed:
    """Reads ``changes`` and ``files``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def changes(self, after: int = 0) -> int:
        """How many changes later commits than ``after`` hold."""
        return int(self._one("SELECT count(*) FROM changes WHERE seq > ?", after))

    def reach(self, after: int, changes: int) -> int | None:
        """The commit that holds change number ``changes`` (from 0) of those after ``after``; None for fewer changes."""
        found = self._database.connection().execute(
            "SELECT seq FROM changes WHERE seq > ? ORDER BY seq, ordinal LIMIT 1 OFFSET ?", (after, changes)
        )
        row = found.fetchone()
        return None if row is None else int(row[0])

    def files(self) -> int:
        """How many files the ledger knows."""
        return int(self._one("SELECT count(*) FROM files"))

    def touched(self, after: tuple[int, int], until: int) -> list[Touched]:
        """Files last touched behind ``after`` (commit, place) and no later than commit ``until``, oldest first."""
        rows = self._database.connection().execute(
            "SELECT f.seq, coalesce((SELECT max(c.ordinal) FROM changes c WHERE c.uri = f.uri AND c.seq = f.seq), 0) "
            "AS ordinal, f.uri FROM files f WHERE f.seq >= ? AND f.seq <= ? ORDER BY 1, 2, 3",
            (after[0], until),
        )
        return [Touched(*row) for row in rows if (row[0], row[1]) > after]

    def touched_until(self, last: tuple[int, int]) -> int:
        """About how many files were last touched no later than ``last``: exact but within its commit."""
        return int(self._one("SELECT count(*) FROM files WHERE seq <= ?", last[0]))

    def _one(self, statement: str, *values: int) -> int:
        return int(self._database.connection().execute(statement, values).fetchone()[0])
