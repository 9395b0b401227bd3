"""What the pages of directories list: a row for each memory, and which pages no longer say what is there.

A row is written with the memory's document, in the same transaction, and so is the note that the page is out of date:
whoever makes pages next, in whichever process, finds what a killed one left. Both follow from ledger and files, so a
catalog that is built anew comes back equal.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence

from memory_core.core.frozen import frozen
from memory_core.core.memory.memory import Memory
from memory_core.core.memory.uri import MemoryUri, Scope, places_of
from memory_core.core.store.history_rows import within

#: In ``stale_pages`` instead of a memory's name: every line of the page.
EVERY_LINE = ""
#: ``viking://user/{space}/memories``: three parts.
ROOT_DEPTH = 3
#: From this salience on a memory is marked, and is the last to leave the list.
_IMPORTANT = 0.8


@frozen
class Stale:
    """A page that is out of date: the last of its notes, and the memories whose lines may have changed."""

    directory: MemoryUri
    until: int
    names: frozenset[str]


def has_page(uri: MemoryUri) -> bool:
    """Whether the directory of a file has pages."""
    return uri.scope in (Scope.USER, Scope.AGENT) and uri.parts[2:ROOT_DEPTH] == ("memories",)


def root_of(directory: MemoryUri) -> MemoryUri:
    """The topmost directory of these memories; its page names the others."""
    return MemoryUri(directory.parts[:ROOT_DEPTH])


def put(connection: sqlite3.Connection, memory: Memory, origin: tuple[int, int]) -> None:
    """Add or renew the row of a memory.

    Args:
        connection: Of the catalog, in a transaction.
        memory: As it is now.
        origin: The commit that created it, and its place there: the order of the list.
    """
    uri = memory.uri
    if not has_page(uri) or uri.name.startswith("."):
        return
    directory = str(uri.parent)
    if not _any(connection, directory):
        mark(connection, root_of(uri), EVERY_LINE)
    connection.execute(
        "INSERT INTO page_rows VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (directory, name) DO UPDATE SET "
        "seq = excluded.seq, ordinal = excluded.ordinal, important = excluded.important, private = excluded.private",
        (directory, uri.name, *origin, memory.type is not None and memory.salience >= _IMPORTANT, memory.is_private),
    )
    mark(connection, uri.parent, uri.name)


def remove(connection: sqlite3.Connection, uri: MemoryUri) -> None:
    """Drop the row of a memory that is gone."""
    directory = str(uri.parent)
    removed = connection.execute("DELETE FROM page_rows WHERE directory = ? AND name = ?", (directory, uri.name))
    if removed.rowcount:
        mark(connection, uri.parent, uri.name)
        if not _any(connection, directory):
            mark(connection, root_of(uri), EVERY_LINE)


def mark(connection: sqlite3.Connection, directory: MemoryUri, name: str) -> None:
    """Note that a directory's page is out of date."""
    connection.execute("INSERT INTO stale_pages (directory, name) VALUES (?, ?)", (str(directory), name))


def clear(connection: sqlite3.Connection) -> None:
    """Forget all rows; pages stay as they are until their memories are indexed again."""
    connection.execute("DELETE FROM page_rows")
    connection.execute("DELETE FROM stale_pages")


def any_stale(connection: sqlite3.Connection) -> bool:
    """Whether some page is out of date."""
    return connection.execute("SELECT 1 FROM stale_pages LIMIT 1").fetchone() is not None


def stale(
    connection: sqlite3.Connection, spaces: Sequence[str] = (), directory: MemoryUri | None = None
) -> list[Stale]:
    """The pages that are out of date, of some spaces (``scope/space``), one directory or all, topmost last."""
    inside, bounds = within("directory", places_of(spaces)) if spaces else ("1 = 1", [])
    if directory is not None:
        inside, bounds = "directory = ?", [str(directory)]
    rows = connection.execute(
        f"SELECT directory, max(id), json_group_array(DISTINCT name) FROM stale_pages WHERE {inside} "
        "GROUP BY directory ORDER BY length(directory) DESC, directory",
        bounds,
    )
    return [Stale(MemoryUri.parse(directory), until, frozenset(json.loads(names))) for directory, until, names in rows]


def is_stale(connection: sqlite3.Connection, page: Stale) -> bool:
    """Whether nobody brought it up to date meanwhile."""
    noted = "SELECT 1 FROM stale_pages WHERE directory = ? AND id = ?"
    return connection.execute(noted, (str(page.directory), page.until)).fetchone() is not None


def done(connection: sqlite3.Connection, page: Stale) -> None:
    """Note that a page was brought up to date."""
    connection.execute("DELETE FROM stale_pages WHERE directory = ? AND id <= ?", (str(page.directory), page.until))


def newest(connection: sqlite3.Connection, directory: MemoryUri, limit: int) -> list[tuple[str, bool]]:
    """Names of the memories that a page lists, the newest first, and which matter most.

    Those that matter most have their place before the newest; what is private to a project is never listed.
    """
    selected = "SELECT seq, ordinal, name FROM page_rows WHERE directory = ? AND private = 0 AND important = ? "
    found: list[tuple[int, int, str, bool]] = []
    for important in (True, False):
        rows = connection.execute(
            f"{selected} ORDER BY seq DESC, ordinal DESC LIMIT ?", (str(directory), important, limit - len(found))
        )
        found += [(seq, ordinal, name, important) for seq, ordinal, name in rows]
    return [(name, important) for _, _, name, important in sorted(found, reverse=True)]


def private_count(connection: sqlite3.Connection, directory: MemoryUri) -> int:
    """How many memories of a directory are private to a project."""
    row = connection.execute("SELECT count(*) FROM page_rows WHERE directory = ? AND private = 1", (str(directory),))
    return int(row.fetchone()[0])


def listable(connection: sqlite3.Connection, directory: MemoryUri, names: Iterable[str]) -> frozenset[str]:
    """Which of these memories a page may name."""
    rows = connection.execute(
        "SELECT name FROM page_rows WHERE directory = ? AND private = 0 AND name IN (SELECT value FROM json_each(?))",
        (str(directory), json.dumps(list(names))),
    )
    return frozenset(name for (name,) in rows)


def _any(connection: sqlite3.Connection, directory: str) -> bool:
    found = connection.execute("SELECT 1 FROM page_rows WHERE directory = ? LIMIT 1", (directory,))
    return found.fetchone() is not None
