"""Rows of the ledger's tables ``changes`` and ``files``: how a change is written there and read back."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from memory_core.model.changes import FileChange
from memory_core.model.filename import fold
from memory_core.model.uri import MemoryUri

_NEWEST = 2**63 - 1
COLUMNS = "seq, uri, memory_type, appended, before, after, before_sha256, after_sha256, moved_from"


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One stored file change; for an append, ``after`` is the tail and ``before`` is None."""

    seq: int
    uri: MemoryUri
    memory_type: str
    appended: bool
    before: str | None
    after: str | None
    before_sha256: str | None
    after_sha256: str | None
    moved_from: MemoryUri | None = None


def change_row(row: tuple[Any, ...]) -> ChangeRow:
    """A change from its ``COLUMNS``."""
    seq, uri, memory_type, appended, before, after, before_sha256, after_sha256, moved_from = row
    moved = None if moved_from is None else MemoryUri.parse(moved_from)
    place = MemoryUri.parse(uri)
    return ChangeRow(seq, place, memory_type, bool(appended), before, after, before_sha256, after_sha256, moved)


def insert_change(connection: sqlite3.Connection, seq: int, ordinal: int, change: FileChange) -> None:
    """Store one change of a commit; of an append only the tail."""
    before, after = change.before, change.after
    if change.appended and after is not None:
        before, after = None, after[len(change.before or "") :]
    connection.execute(
        f"INSERT INTO changes (ordinal, {COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            ordinal,
            seq,
            str(change.uri),
            change.memory_type,
            int(change.appended),
            before,
            after,
            change.before_sha256,
            change.after_sha256,
            None if change.moved_from is None else str(change.moved_from),
        ),
    )


def upsert_name(connection: sqlite3.Connection, seq: int, change: FileChange) -> None:
    """Let the name table say what a change left."""
    if change.after is None:
        connection.execute("DELETE FROM files WHERE uri = ?", (str(change.uri),))
        return
    # Not INSERT OR REPLACE: the counting triggers would not see the row that it removes.
    connection.execute(
        "INSERT INTO files (uri, directory, name_fold, memory_type, key, sha256, seq) VALUES (?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (uri) DO UPDATE SET memory_type = excluded.memory_type, key = excluded.key, "
        "sha256 = excluded.sha256, size_bytes = NULL, mtime_ns = NULL, seq = excluded.seq",
        (
            str(change.uri),
            str(change.uri.parent),
            fold(change.uri.name),
            change.memory_type,
            change.key,
            change.after_sha256,
            seq,
        ),
    )


def stored_text(connection: sqlite3.Connection, uri: str, seq: int = _NEWEST) -> str | None:
    """A file's text as commit ``seq`` left it, appends joined to what they extend; None for none.

    Args:
        connection: Of a ledger.
        uri: The file.
        seq: Default its last commit.
    """
    tails: list[str] = []
    rows = connection.execute(
        "SELECT appended, after FROM changes WHERE uri = ? AND seq <= ? ORDER BY seq DESC, ordinal DESC",
        (uri, seq),
    )
    for appended, after in rows:
        if not appended:
            return None if after is None and not tails else "".join([after or "", *reversed(tails)])
        tails.append(after)
    return "".join(reversed(tails)) if tails else None
