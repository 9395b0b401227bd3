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


_RAREST_TERMS = 3
#: Documents from which a term is too common to look at all that hold it.
_COMMON_FROM = 300


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
    match = _confined(" OR ".join(terms), scopes)
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


def sharing(
    connection: sqlite3.Connection, terms: Sequence[str], scopes: Sequence[str] | None, limit: int
) -> list[tuple[str, str]]:
    """``(uri, own text)`` of memories that share rare terms with a memory that is indexed itself.

    The work is bounded whatever the size of the store: only the rarest terms that anybody else uses count, and
    where even those are common a document must hold them all. Messages are left out.

    Args:
        connection: The catalog.
        terms: FTS5 operands of the memory's own words.
        scopes: Scope terms to stay within; None means everywhere.
        limit: Documents at most.
    """
    counted = sorted((_bounded_frequency(connection, term), term) for term in terms)
    rarest = [(count, term) for count, term in counted if count > 1][:_RAREST_TERMS]
    if not rarest or (scopes is not None and not scopes):
        return []
    joint = " OR " if sum(count for count, _ in rarest) <= _COMMON_FROM else " AND "
    match = _confined(joint.join(term for _, term in rarest), scopes)
    rows = connection.execute(
        "SELECT d.uri, d.own FROM words JOIN documents d ON d.id = words.rowid "
        f"WHERE words MATCH ? AND d.context_type <> 'resource' ORDER BY {_BM25} LIMIT ?",
        (match, limit),
    )
    return [(uri, own) for uri, own in rows]


def _bounded_frequency(connection: sqlite3.Connection, term: str) -> int:
    row = connection.execute(
        "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)", (f"own : {term}", _COMMON_FROM)
    ).fetchone()
    return int(row[0])


def _confined(expression: str, scopes: Sequence[str] | None) -> str:
    match = f"{{own previous}} : ({expression})"
    return match if scopes is None else f"({match}) AND scope : ({' OR '.join(scopes)})"


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
