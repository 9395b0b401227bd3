"""Search by words: BM25 over a document's own words and, with less weight, over the turn before it.

Returns raw sums and what the store knows of the query's terms, which puts them on an absolute scale. Does not
rank; ``scoring.fusion`` does.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from memory_core.index.filter import Condition
from memory_core.scoring.fusion import COLUMN_WEIGHTS, FILLER_ROWS, Question, weigh_question

_BM25 = f"bm25(words, {COLUMN_WEIGHTS[0]}, {COLUMN_WEIGHTS[1]}, 0.0)"


@dataclass(frozen=True, slots=True)
class LexicalHits:
    """BM25 by document id, and what the store knows of the query's terms."""

    scores: Mapping[int, float]
    question: Question


def search(
    connection: sqlite3.Connection,
    terms: Sequence[str],
    limit: int,
    scopes: Sequence[str] | None = None,
    condition: Condition | None = None,
) -> LexicalHits:
    """Documents that share a term with the query.

    Args:
        connection: The catalog.
        terms: FTS5 operands, as ``tokenizer.query_terms`` makes them.
        limit: Documents at most, best first.
        scopes: Scope terms to stay within; None means everywhere.
        condition: A condition over ``documents d``.
    """
    if not terms or (scopes is not None and not scopes):
        return LexicalHits({}, Question(0.0, len(terms), 0))
    match = f"{{own previous}} : ({' OR '.join(terms)})"
    if scopes is not None:
        match = f"({match}) AND scope : ({' OR '.join(scopes)})"
    if condition is None:
        sql = f"SELECT rowid, -{_BM25} AS score FROM words WHERE words MATCH ? ORDER BY score DESC LIMIT ?"
        arguments: tuple[object, ...] = (match, limit)
    else:
        sql = (
            f"SELECT words.rowid, -{_BM25} AS score FROM words JOIN documents d ON d.id = words.rowid "
            f"WHERE words MATCH ? AND {condition.sql} ORDER BY score DESC LIMIT ?"
        )
        arguments = (match, *condition.parameters, limit)
    scores = {int(identifier): float(score) for identifier, score in connection.execute(sql, arguments)}
    question = weigh_question(*_frequencies(connection, terms))
    if scopes is not None:
        # Words that only a space out of sight holds are as unknown as words that nobody holds.
        question = replace(question, known_terms=_known(connection, terms, scopes))
    return LexicalHits(scores, question)


def _frequencies(connection: sqlite3.Connection, terms: Sequence[str]) -> tuple[int, list[int]]:
    """All rows, fillers included, and for each term the rows that hold it: what ``bm25()`` itself counts."""
    rows = int(connection.execute("SELECT count(*) FROM documents").fetchone()[0]) + FILLER_ROWS
    matching = [
        int(
            connection.execute(
                "SELECT count(*) FROM words WHERE words MATCH ?", (f"{{own previous}} : {term}",)
            ).fetchone()[0]
        )
        for term in terms
    ]
    return rows, matching


def _known(connection: sqlite3.Connection, terms: Sequence[str], scopes: Sequence[str]) -> int:
    """How many of the terms any document within the scopes holds."""
    within = f"scope : ({' OR '.join(scopes)})"
    return sum(
        connection.execute(
            "SELECT 1 FROM words WHERE words MATCH ? LIMIT 1", (f"({{own previous}} : {term}) AND {within}",)
        ).fetchone()
        is not None
        for term in terms
    )
