"""BM25 within some spaces of a store that others share: as if the others' documents were not there.

FTS5 counts over its whole table how rare a word is and how long a document usually is. With several users in one
table, a user's scores would tell how many of the others' documents hold a word, and what others talk about would
decide what is found. So FTS5's score of each term is taken apart into what the document says (how often, how long)
and what the table adds, and put together again with the statistics of the spaces alone. ``lexical`` is used as it is
where nobody else is there, with the same scores.

Rests on two shadow tables of FTS5 that its documentation describes: ``words_docsize`` (tokens of each row) and the
averages record of ``words_data``. Does not: rank.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memory_core.index.filter import Condition
from memory_core.scoring.fusion import COLUMN_WEIGHTS, FILLER_ROWS, idf

_BM25 = f"bm25(words, {COLUMN_WEIGHTS[0]}, {COLUMN_WEIGHTS[1]}, 0.0)"
#: FTS5's parameters of BM25.
_K1 = 1.2
_B = 0.75
_AVERAGES_ROW = 1
_NAMES = "SELECT name FROM spaces WHERE id IN (SELECT value FROM json_each(?))"
#: Newest documents of the spaces whose length stands for that of all.
_MEASURED = 500
#: Documents of a term that are scored, best first.
_SCORED = 5_000


@dataclass(frozen=True, slots=True)
class _Table:
    """Rows of the FTS table, and tokens of a row on average."""

    rows: int
    tokens: float

    def damping(self, tokens: int) -> float:
        """What a document of so many tokens is held against."""
        return _K1 * (1 - _B + _B * tokens / self.tokens)


def frequency(
    connection: sqlite3.Connection, term: str, scopes: Sequence[str], most: int, documents: int
) -> tuple[int, bool]:
    """Rows within the spaces, fillers included, that hold a term; and whether a document does.

    Args:
        connection: The catalog.
        term: An FTS5 operand.
        scopes: Scope terms of the spaces.
        most: Documents that are counted one by one; beyond, the count is estimated from how densely they lie.
        documents: How many the spaces hold.
    """
    count, last = connection.execute(
        "SELECT count(*), max(rowid) FROM (SELECT rowid FROM words WHERE words MATCH ? LIMIT ?)",
        (_within(term, scopes), most),
    ).fetchone()
    (fillers,) = connection.execute(
        "SELECT count(*) FROM words WHERE words MATCH ? AND rowid < 0", (_anywhere(term),)
    ).fetchone()
    if count >= most:
        (passed,) = connection.execute(
            f"SELECT count(*) FROM documents WHERE space IN ({_NAMES}) AND id <= ?", (_ids(scopes), last)
        ).fetchone()
        count = int(count * documents / passed)
    return int(count) + int(fillers), count > 0


def scores(
    connection: sqlite3.Connection,
    matching: Mapping[str, int],
    limit: int,
    documents: int,
    scopes: Sequence[str],
    condition: Condition | None,
) -> dict[int, float]:
    """BM25 by document id of the best documents of the spaces.

    Args:
        connection: The catalog.
        matching: FTS5 operands with the rows of the spaces that hold them, fillers included.
        limit: Documents at most.
        documents: How many the spaces hold.
        scopes: Their scope terms.
        condition: A condition over ``documents d``.
    """
    table = _whole(connection)
    found = {term: _term_scores(connection, _within(term, scopes), condition) for term in matching}
    tokens = _tokens(connection, sorted({document for held in found.values() for document in held}))
    own = _own(connection, documents + FILLER_ROWS, scopes)
    summed: dict[int, float] = {}
    for term, held in found.items():
        (everywhere,) = connection.execute(
            "SELECT count(*) FROM words WHERE words MATCH ?", (_anywhere(term),)
        ).fetchone()
        in_table, in_spaces = idf(table.rows, everywhere), idf(own.rows, matching[term])
        for document, score in held.items():
            length = tokens[document]
            occurrences = _occurrences(score / in_table, table.damping(length))
            share = occurrences * (_K1 + 1) / (occurrences + own.damping(length))
            summed[document] = summed.get(document, 0.0) + in_spaces * share
    best = sorted(summed.items(), key=lambda item: (-item[1], item[0]))
    return dict(best[:limit])


def _anywhere(term: str) -> str:
    return f"{{own previous}} : ({term})"


def _within(term: str, scopes: Sequence[str]) -> str:
    return f"({_anywhere(term)}) AND scope : ({' OR '.join(scopes)})"


def _term_scores(connection: sqlite3.Connection, match: str, condition: Condition | None) -> dict[int, float]:
    where, parameters = ("1", ()) if condition is None else (condition.sql, condition.parameters)
    rows = connection.execute(
        f"SELECT words.rowid, -{_BM25} AS score FROM words JOIN documents d ON d.id = words.rowid "
        f"WHERE words MATCH ? AND {where} ORDER BY score DESC LIMIT ?",
        (match, *parameters, _SCORED),
    )
    return {int(document): float(score) for document, score in rows}


def _occurrences(share: float, damping: float) -> float:
    """How often a document holds a term, each occurrence in its column's weight; the weights are halves."""
    share = min(share, _K1 + 1 - 1e-9)
    return max(0.5, round(2 * share * damping / (_K1 + 1 - share)) / 2)


def _whole(connection: sqlite3.Connection) -> _Table:
    (record,) = connection.execute("SELECT block FROM words_data WHERE id = ?", (_AVERAGES_ROW,)).fetchone()
    rows, *columns = _varints(record)
    return _Table(rows, sum(columns) / max(rows, 1))


def _own(connection: sqlite3.Connection, rows: int, scopes: Sequence[str]) -> _Table:
    """The spaces as a table of their own, with the fillers."""
    measured = connection.execute(
        f"SELECT sz FROM words_docsize WHERE id IN (SELECT id FROM documents WHERE space IN ({_NAMES}) "
        "ORDER BY id DESC LIMIT ?)",
        (_ids(scopes), _MEASURED),
    ).fetchall()
    fillers = connection.execute("SELECT sz FROM words_docsize WHERE id < 0").fetchall()
    in_documents = sum(sum(_varints(size)) for (size,) in measured)
    in_fillers = sum(sum(_varints(size)) for (size,) in fillers)
    documents = rows - len(fillers)
    tokens = in_fillers + in_documents * documents / max(len(measured), 1)
    return _Table(rows, max(tokens, 1.0) / max(rows, 1))


def _ids(scopes: Sequence[str]) -> str:
    """Ids of the spaces, for ``_NAMES``."""
    return json.dumps([int(scope.removeprefix("space")) for scope in scopes])


def _tokens(connection: sqlite3.Connection, documents: Sequence[int]) -> dict[int, int]:
    rows = connection.execute(
        "SELECT id, sz FROM words_docsize WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(list(documents)),)
    )
    return {int(document): sum(_varints(size)) for document, size in rows}


def _varints(record: bytes) -> list[int]:
    """SQLite's variable-length integers, below 2**56: seven bits a byte, the most significant first."""
    values, value = [], 0
    for byte in record:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            values.append(value)
            value = 0
    return values
