"""What a ledger knows of, in numbers: files and their bytes, commits by kind, conversations that wait. Reads only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from memory_core.storage.sqlite.database import Database

_BELOW = "{column} > ? AND {column} < ?"


class Holdings:
    """Counts in the tables of others; ``below`` are URIs, everything under them counts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def files(self, below: Sequence[str], glob: str = "*") -> tuple[int, int]:
        """How many files there are, and their bytes; those of the last second may not have a size yet.

        Args:
            below: Where.
            glob: Only URIs of this form.
        """
        files = size_bytes = 0
        for prefix in below:
            row = self._row(
                "SELECT count(*), coalesce(sum(size_bytes), 0) FROM files "
                f"WHERE {_BELOW.format(column='uri')} AND uri GLOB ?",
                *_bounds(prefix),
                glob,
            )
            files, size_bytes = files + row[0], size_bytes + row[1]
        return files, size_bytes

    def waiting(self, below: Sequence[str]) -> tuple[int, int]:
        """How many conversations wait for extraction, and how many of their messages."""
        conversations = messages = 0
        for prefix in below:
            row = self._row(
                "SELECT count(*), coalesce(sum(stored - extracted), 0) FROM extractions "
                f"WHERE stored > extracted AND {_BELOW.format(column='log')}",
                *_bounds(prefix),
            )
            conversations, messages = conversations + row[0], messages + row[1]
        return conversations, messages

    def commits(self, below: Sequence[str]) -> Mapping[str, int]:
        """How many commits of each kind touched anything there, most first."""
        if not below:
            return {}
        touched = " OR ".join([f"({_BELOW.format(column='uri')})"] * len(below))
        rows = self._database.connection().execute(
            "SELECT kind, count(*) FROM commits WHERE EXISTS "
            f"(SELECT 1 FROM changes WHERE changes.seq = commits.seq AND ({touched})) GROUP BY kind",
            [bound for prefix in below for bound in _bounds(prefix)],
        )
        return dict(Counter(dict(rows.fetchall())).most_common())

    def _row(self, query: str, *arguments: str) -> tuple[int, int]:
        first, second = self._database.connection().execute(query, arguments).fetchone()
        return int(first), int(second)


def _bounds(prefix: str) -> tuple[str, str]:
    return f"{prefix}/", f"{prefix}0"  # "0" is the character after "/"
