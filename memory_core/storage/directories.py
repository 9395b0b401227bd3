"""What the ledger knows of directories: how many memories each holds, and which, without looking at a file.

The counts are kept by triggers on the name table, in the transaction of the commit that moves them, so that a
directory of ten thousand memories is counted as fast as an empty one. Summaries and other hidden files do not count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from memory_core.model.uri import MemoryUri
from memory_core.storage.database import Database

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

    def newest(self, directory: MemoryUri, limit: int) -> list[str]:
        """Names of the memory files directly in a directory that changed last, newest first; sorts all of them."""
        rows = self._database.connection().execute(
            f"SELECT uri FROM files WHERE directory = ? AND {_SHOWN.format(row='')} ORDER BY seq DESC, uri LIMIT ?",
            (str(directory), limit),
        )
        return [uri.rpartition("/")[2] for (uri,) in rows]

    def present(self, directory: MemoryUri, names: Iterable[str]) -> frozenset[str]:
        """Which of these names are files of the directory."""
        rows = self._database.connection().execute(
            "SELECT value FROM json_each(?) WHERE EXISTS (SELECT 1 FROM files WHERE uri = ? || value)",
            (json.dumps(list(names)), f"{directory}/"),
        )
        return frozenset(name for (name,) in rows)
