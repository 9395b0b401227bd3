"""What the ledger knows that helps to understand what people did to the files: where texts are, and where they were."""

from __future__ import annotations

import json
from collections.abc import Iterable

from memory_core.model.uri import MemoryUri
from memory_core.storage.file_store import FileStat
from memory_core.storage.sqlite.database import Database

_RECENT_COMMITS = 200


class MovementTable:
    """Reads the name table and recent external commits; owns no table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def stats(self, below: MemoryUri) -> dict[str, FileStat | None]:
        """What the files at or below a URI looked like when they were last settled, by URI; None where not known."""
        if not below.parts:
            return self._stats("1", ())
        return self._stats("uri = ? OR (uri > ? AND uri < ?)", (str(below), f"{below}/", f"{below}0"))

    def stats_in(self, directory: MemoryUri) -> dict[str, FileStat | None]:
        """The same for the files directly in a directory."""
        return self._stats("directory = ?", (str(directory),))

    def _stats(self, where: str, arguments: tuple[str, ...]) -> dict[str, FileStat | None]:
        rows = self._database.connection().execute(
            f"SELECT uri, size_bytes, mtime_ns FROM files WHERE {where}", arguments
        )
        return {uri: None if size is None else FileStat(size, mtime) for uri, size, mtime in rows}

    def with_texts(self, hashes: Iterable[str]) -> list[tuple[str, str]]:
        """(SHA-256, URI) of the files that hold one of these texts, by URI; looks at all files."""
        rows = self._database.connection().execute(
            "SELECT sha256, uri FROM files WHERE sha256 IN (SELECT value FROM json_each(?)) ORDER BY uri",
            (json.dumps(list(hashes)),),
        )
        return [(str(sha256), str(uri)) for sha256, uri in rows]

    def keeps(self, sha256: str) -> bool:
        """Whether some commit holds the text with this hash; looks at all of them."""
        found = self._database.connection().execute(
            "SELECT 1 FROM changes WHERE after_sha256 = ?1 OR before_sha256 = ?1 LIMIT 1", (sha256,)
        )
        return found.fetchone() is not None

    def twins(self, directory: MemoryUri, name_fold: str) -> list[str]:
        """URIs of the files of a directory whose names some file system takes for this one."""
        rows = self._database.connection().execute(
            "SELECT uri FROM files WHERE directory = ? AND name_fold = ?", (str(directory), name_fold)
        )
        return [str(uri) for (uri,) in rows]

    def deleted_by_hand(self, since: str) -> list[tuple[str, str]]:
        """(SHA-256, URI) of files that people deleted since a time (ISO 8601, UTC), and that did not come back.

        What was recognised as the old place of another file is left out.
        """
        connection = self._database.connection()
        newest = int(connection.execute("SELECT coalesce(max(seq), 0) FROM commits").fetchone()[0])
        rows = connection.execute(
            "SELECT before_sha256, uri FROM changes JOIN commits USING (seq) "
            "WHERE kind = 'external' AND at >= ? AND after_sha256 IS NULL AND before_sha256 IS NOT NULL "
            "AND seq > ? AND NOT EXISTS (SELECT 1 FROM files WHERE files.uri = changes.uri) "
            "ORDER BY seq DESC, ordinal",
            (since, newest - _RECENT_COMMITS),
        ).fetchall()
        claimed = connection.execute(
            "SELECT moved_from FROM changes WHERE seq > ? AND moved_from IS NOT NULL", (newest - _RECENT_COMMITS,)
        )
        taken = {uri for (uri,) in claimed}
        return [(str(sha256), str(uri)) for sha256, uri in rows if uri not in taken]
