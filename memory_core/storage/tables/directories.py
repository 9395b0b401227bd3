"""What the ledger knows of directories: how many memories each holds, and which, without looking at a file.

The counts are kept by triggers on the name table, in the transaction of the commit that moves them, so that a
directory of ten thousand memories is counted as fast as an empty one. Summaries and other hidden files do not count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from memory_core.model.uri import MemoryUri
from memory_core.storage.sqlite.database import Database

_SHOWN = "{row}name_fold LIKE '%.md' AND {row}name_fold NOT LIKE '.%'"
SCHEMA = f"""
CREATE TABLE directories (directory TEXT PRIMARY KEY, memories INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO directories SELECT directory, count(*) FROM files WHERE {_SHOWN.format(row="")} GROUP BY directory;
CREATE TRIGGER memory_added AFTER INSERT ON files WHEN {_SHOWN.format(row="new.")}
BEGIN
    INSERT INTO directories VALUES (new.directory, 1) ON CONFLICT (directory) DO UPDATE SET memories = memories + 1;
END;
CREATE TRIGGER memory_removed AFTER DELETE ON files WHEN {_SHOWN.format(row="old.")}
BEGIN
    UPDATE directories SET memories = memories - 1 WHERE directory = old.directory;
END;
"""


class DirectoryTable:
    """Reads counts and names; commits move them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def count(self, directory: MemoryUri) -> int:
        """How many memory files are directly in a directory."""
        row = (
            self._database.connection()
            .execute("SELECT memories FROM directories WHERE directory = ?", (str(directory),))
            .fetchone()
        )
        return 0 if row is None else int(row[0])

    def total(self, below: str) -> int:
        """How many directories below a URI hold memories."""
        row = (
            self._database.connection()
            .execute(
                "SELECT count(*) FROM directories WHERE memories > 0 AND directory > ? AND directory < ?",
                (f"{below}/", f"{below}0"),  # "0" is the character after "/"
            )
            .fetchone()
        )
        return int(row[0])

    def counts(self, below: MemoryUri) -> dict[str, int]:
        """How many memory files are directly in each directory below a URI that has any, by URI."""
        rows = self._database.connection().execute(
            "SELECT directory, memories FROM directories WHERE memories > 0 AND directory > ? AND directory < ? "
            "ORDER BY directory",
            _range(below),
        )
        return dict(rows.fetchall())

    def sessions(self, below: MemoryUri) -> int:
        """How many conversations have a log below a URI."""
        return int(self._logs("count(*)", "", below)[0][0])

    def newest_logs(self, below: MemoryUri, limit: int) -> list[str]:
        """URIs of the conversation logs below a URI that grew last, newest first; looks at all of them."""
        return [uri for (uri,) in self._logs("uri", f"ORDER BY seq DESC, uri LIMIT {int(limit)}", below)]

    def _logs(self, columns: str, rest: str, below: MemoryUri) -> list[tuple[Any, ...]]:
        return (
            self._database.connection()
            .execute(
                f"SELECT {columns} FROM files WHERE uri > ? AND uri < ? AND name_fold = 'messages.jsonl' {rest}",
                _range(below),
            )
            .fetchall()
        )

    def newest(self, directory: MemoryUri, limit: int) -> list[str]:
        """Names of the memory files directly in a directory that changed last, newest first; sorts all of them."""
        rows = self._database.connection().execute(
            f"SELECT uri FROM files WHERE directory = ? AND {_SHOWN.format(row='')} ORDER BY seq DESC, uri LIMIT ?",
            (str(directory), limit),
        )
        return [uri.rpartition("/")[2] for (uri,) in rows]

    def edited_since(self, page: MemoryUri) -> frozenset[str]:
        """Names of the files beside a page that people changed by hand after the page was last written."""
        rows = self._database.connection().execute(
            "SELECT uri FROM files JOIN commits USING (seq) WHERE directory = ? AND kind = 'external' "
            "AND seq > coalesce((SELECT seq FROM files WHERE uri = ?), 0)",
            (str(page.parent), str(page)),
        )
        return frozenset(uri.rpartition("/")[2] for (uri,) in rows)

    def present(self, directory: MemoryUri, names: Iterable[str]) -> frozenset[str]:
        """Which of these names are files of the directory."""
        rows = self._database.connection().execute(
            "SELECT value FROM json_each(?) WHERE EXISTS (SELECT 1 FROM files WHERE uri = ? || value)",
            (json.dumps(list(names)), f"{directory}/"),
        )
        return frozenset(name for (name,) in rows)


def _range(below: MemoryUri) -> tuple[str, str]:
    """Everything below a directory shares its prefix; "0" is the character after "/"."""
    return f"{below}/", f"{below}0"
