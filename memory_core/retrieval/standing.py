"""What holds whatever is asked: memories of great importance, those that were pinned, and what the user prefers.

A search finds them when a question is about them; "never push to main" matters most when nobody mentions it. So a
session begins with them, the most important first.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from memory_core.index.filter import in_use
from memory_core.model.project import ProjectScope

#: From this salience on a memory holds for everything.
STANDING_SALIENCE = 0.9


def standing(
    connection: sqlite3.Connection, spaces: Sequence[str], limit: int, project: ProjectScope, now: datetime
) -> list[str]:
    """URIs of what holds, the most important first, then the newest.

    Args:
        connection: The catalog.
        spaces: ``scope/space`` names that may be seen.
        limit: At most.
        project: Whose private memories may be among them; with a project alone, only its own.
        now: The moment, aware; what is past its time then does not hold.
    """
    marks = ",".join("?" * len(spaces))
    used = in_use(now)
    rows = connection.execute(
        f"SELECT uri, project, private FROM documents d WHERE space IN ({marks}) AND part = 0 "
        "AND context_type = 'memory' AND (salience >= ? OR memory_type = 'preferences' OR pinned) "
        f"AND {used.sql} "
        "ORDER BY salience DESC, updated_at DESC, uri",
        (*spaces, STANDING_SALIENCE, *used.parameters),
    )
    found: list[str] = []
    for uri, belongs_to, private in rows:
        if len(found) >= limit:
            break
        if project.finds(belongs_to, private=bool(private)):
            found.append(uri)
    rows.close()
    return found
