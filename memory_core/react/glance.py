"""What a directory holds, at a glance: how many memories, and the newest by name.

The work is bounded by an index of the catalog; a directory of ten thousand files is not listed on disk.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from memory_core.index.filter import private_elsewhere


@dataclass(frozen=True, slots=True)
class Glance:
    """The newest memories directly in a directory, as file names, and how many there are in all."""

    names: tuple[str, ...] = ()
    total: int = 0


#: Looks into a directory: its URI without a slash at the end, names at most.
Glancer = Callable[[str, int], Glance]


def newest_in(connection: sqlite3.Connection, directory: str, limit: int, project: str | None = None) -> Glance:
    """Look into one directory through the catalog; what is private to another project is counted, not named.

    Args:
        connection: The catalog.
        directory: Its URI, without a slash at the end.
        limit: Names at most.
        project: The project that somebody looks from.
    """
    # "0" is the character after "/", so the range is what begins with "directory/"; no further slash: no subfolders.
    start = len(directory) + 2
    where = "active AND uri > ? AND uri < ? AND part = 0 AND instr(substr(uri, ?), '/') = 0"
    arguments = (f"{directory}/", f"{directory}0", start)
    (total,) = connection.execute(f"SELECT count(*) FROM documents WHERE {where}", arguments).fetchone()
    elsewhere = private_elsewhere(project)
    rows = connection.execute(
        f"SELECT uri FROM documents d WHERE {where} AND NOT {elsewhere.sql} ORDER BY updated_at DESC, uri LIMIT ?",
        (*arguments, *elsewhere.parameters, limit),
    )
    return Glance(tuple(uri[start - 1 :] for (uri,) in rows), int(total))
