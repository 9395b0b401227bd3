"""Statements that are written for SQLite, as PostgreSQL reads them.

The tables are the same, and so are the statements: what differs is said here once. PostgreSQL has functions of its own
for what it lacks (``schema.sql``), and each key begins with ``tenant``, which no statement names: its column fills
itself, and row-level security compares it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

#: Columns that count by themselves, of tables whose new row somebody asks for.
_COUNTED = {"commits": "seq", "documents": "id", "passages": "id"}
_FLAGS = "private|active|always_on|general|pinned|purged"
_RULES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"%", "%%"),
        (r"\bIN \((SELECT (?:CAST\(value AS INTEGER\)|value) FROM json_each\(\?\))\)", r"= ANY(ARRAY(\1))"),
        (r"\bIS NOT (?=\?|role\b)", "IS DISTINCT FROM "),
        (r"\bIS (?=\?)", "IS NOT DISTINCT FROM "),
        (r"\bON CONFLICT \((?=\w)", "ON CONFLICT (tenant, "),
        (r"\b((?:d\.)?(?:created_at|updated_at|happened)) DESC", r"\1 DESC NULLS LAST"),
        (r"(\S+) COLLATE NOCASE", r"lower(\1)"),
        (r"\bGLOB \?", "LIKE replace(?, '*', '%%')"),
        (r"\b(WHERE|AND) 1(?=$| AND| ORDER| LIMIT|\))", r"\1 TRUE"),
        (
            rf"(\bWHERE |\bAND |\bOR |\bNOT |\bORDER BY |(?<!\w)\()((?:\w\.)?(?:{_FLAGS}))(?=$| AND| OR| ORDER|\))",
            r"\1\2 = 1",
        ),
    )
)
_PARAMETER = re.compile(r"\?(\d*)")
_INSERT = re.compile(r"INSERT (OR IGNORE )?INTO (\w+)")


class Statement(NamedTuple):
    """A statement for PostgreSQL.

    Attributes:
        text: With ``%s`` for each parameter.
        order: Which of the given parameters each is, from 0.
        counts: Whether it answers with the number of the row that it adds.
    """

    text: str
    order: tuple[int, ...]
    counts: bool


@lru_cache(1_024)
def translated(statement: str) -> Statement | None:
    """The statement for PostgreSQL; None where it has nothing to do, as with what tunes a file of SQLite."""
    if statement.startswith(("PRAGMA", "VACUUM")):
        return None
    text = statement
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    order: list[int] = []

    def numbered(found: re.Match[str]) -> str:
        order.append(int(found[1]) - 1 if found[1] else len(order))
        return "%s"

    text = _PARAMETER.sub(numbered, text)
    insert = _INSERT.match(text)
    counts = insert is not None and insert[2] in _COUNTED
    if insert is not None and insert[1]:
        text = f"{text.replace(insert[1], '', 1)} ON CONFLICT DO NOTHING"
    if insert is not None and counts:
        text = f"{text} RETURNING {_COUNTED[insert[2]]}"
    return Statement(text, tuple(order), counts)
