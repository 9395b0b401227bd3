"""Search by words: BM25 over a document's own words and, with less weight, over the turn before it.

Returns raw sums and what the store knows of the query's terms, which puts them on an absolute scale. Does not
rank; ``scoring.fusion`` does.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from memory_core.index.filter import ANYTHING, Condition
from memory_core.index.words import scoped_words
from memory_core.index.words.tokenizer import word_share
from memory_core.scoring.fusion import COLUMN_WEIGHTS, FILLER_ROWS, Question, weigh_question

_BM25 = f"bm25(words, {COLUMN_WEIGHTS[0]}, {COLUMN_WEIGHTS[1]}, 0.0)"


#: Rows of everyday words count for a term's frequency and are never found; see ``scoring.everyday``.
_NO_FILLER = "rowid > 0"
_RAREST_TERMS = 3
#: Documents that a rare term may have.
_RARE_DOCUMENTS = 1
_VIEWS = 3
#: Documents from which a term is too common to look at all that hold it.
_COMMON_FROM = 300
#: Documents of a term that are counted one by one; beyond, the count is estimated from how densely they lie.
_COUNTED = 2_000
#: A term in more than this share of a large store tells little and costs most: it only ranks what others found.
_COMMON_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class LexicalHits:
    """BM25 by document id, what the store knows of the query's terms, and who holds one that hardly any other does."""

    scores: Mapping[int, float]
    question: Question
    rare: frozenset[int] = frozenset()


def search(
    connection: sqlite3.Connection,
    terms: Sequence[str],
    limit: int,
    documents: int,
    scopes: Sequence[str] | None = None,
    condition: Condition | None = None,
) -> LexicalHits:
    """Documents that share a term with the query.

    In a store of many thousands, terms that stand in a large part of it are left out while rarer ones remain: the
    work is bounded by the rarer ones.

    Args:
        connection: The catalog.
        terms: FTS5 operands, as ``tokenizer.query_terms`` makes them.
        limit: Documents at most, best first.
        documents: How many documents there are within the scopes.
        scopes: Scope terms to stay within; None means everywhere. What others hold then changes no score.
        condition: A condition over ``documents d``.
    """
    if not terms or (scopes is not None and not scopes):
        return LexicalHits({}, Question(0.0, 0, 0, words=0.0, documents=documents))
    rows = documents + FILLER_ROWS
    counted = [_frequency(connection, term, scopes, documents) for term in terms]
    matching = [count for count, _ in counted]
    telling = _telling(terms, matching, rows)
    if scopes is None:
        scores = _scored(connection, _confined(" OR ".join(telling), None), limit, condition)
    else:
        held = {term: count for term, count in zip(terms, matching, strict=True) if term in telling}
        scores = scoped_words.scores(connection, held, limit, documents, scopes, condition)
    question = weigh_question(rows, matching, [word_share(term) for term in terms])
    # Words of fillers, or that only a space out of sight holds, are as unknown as words that nobody holds.
    known = sum(known for _, known in counted)
    # A turn's word stands with the two turns after it as well; only the one that says it holds it.
    few = [term for term, count in zip(terms, matching, strict=True) if 0 < count <= _RARE_DOCUMENTS * _VIEWS]
    rare = frozenset(holding(connection, few, _RARE_DOCUMENTS, scopes, condition))
    return LexicalHits(scores, replace(question, known_terms=known), rare)


def holding(
    connection: sqlite3.Connection,
    terms: Sequence[str],
    limit: int,
    scopes: Sequence[str] | None = None,
    condition: Condition | None = None,
) -> dict[int, float]:
    """Documents that hold a term which at most ``limit`` documents hold, with their BM25 for that term alone.

    Args:
        connection: The catalog.
        terms: FTS5 operands.
        limit: A term that more documents hold names none of them.
        scopes: Scope terms to stay within; None means everywhere. Within scopes the BM25 is left out, as 0.0: it
            rests on what others hold.
        condition: A condition over ``documents d``.
    """
    if scopes is not None and not scopes:
        return {}
    found: dict[int, float] = {}
    for term in terms:
        match = f"own : {term}" if scopes is None else f"(own : {term}) AND scope : ({' OR '.join(scopes)})"
        holders = _scored(connection, match, limit + 1, condition)
        if len(holders) <= limit:
            own = holders if scopes is None else dict.fromkeys(holders, 0.0)
            found |= {identifier: max(score, found.get(identifier, 0.0)) for identifier, score in own.items()}
    return found


def holding_all(
    connection: sqlite3.Connection,
    terms: Sequence[str],
    limit: int,
    scopes: Sequence[str] | None = None,
    condition: Condition | None = None,
) -> dict[int, float]:
    """Documents that hold every term, if at most ``limit`` do, with their BM25; as ``holding``."""
    return holding(connection, [f"({' AND '.join(terms)})"], limit, scopes, condition) if terms else {}


def _scored(connection: sqlite3.Connection, match: str, limit: int, condition: Condition | None) -> dict[int, float]:
    """BM25 by document id of the best that match."""
    if condition is None:
        sql = (
            f"SELECT rowid, -{_BM25} AS score FROM words WHERE words MATCH ? AND {_NO_FILLER} "
            "ORDER BY score DESC LIMIT ?"
        )
        arguments: tuple[object, ...] = (match, limit)
    else:
        sql = (
            f"SELECT words.rowid, -{_BM25} AS score FROM words JOIN documents d ON d.id = words.rowid "
            f"WHERE words MATCH ? AND {condition.sql} ORDER BY score DESC LIMIT ?"
        )
        arguments = (match, *condition.parameters, limit)
    return {int(identifier): float(score) for identifier, score in connection.execute(sql, arguments)}


def sharing(
    connection: sqlite3.Connection,
    terms: Sequence[str],
    scopes: Sequence[str] | None,
    limit: int,
    condition: Condition | None = None,
) -> list[tuple[str, str]]:
    """``(uri, own text)`` of memories that share rare terms with a memory that is indexed itself.

    The work is bounded whatever the size of the store: only the rarest terms that anybody else uses count, and
    where even those are common a document must hold them all. Messages are left out.

    Args:
        connection: The catalog.
        terms: FTS5 operands of the memory's own words.
        scopes: Scope terms to stay within; None means everywhere.
        limit: Documents at most.
        condition: A condition over ``documents d``.
    """
    if scopes is not None and not scopes:
        return []
    counted = sorted((_bounded_frequency(connection, term, scopes), term) for term in terms)
    rarest = [(count, term) for count, term in counted if count > 1][:_RAREST_TERMS]
    if not rarest:
        return []
    joint = " OR " if sum(count for count, _ in rarest) <= _COMMON_FROM else " AND "
    match = _confined(joint.join(term for _, term in rarest), scopes)
    condition = condition or ANYTHING
    rows = connection.execute(
        "SELECT d.uri, d.own FROM words JOIN documents d ON d.id = words.rowid "
        f"WHERE words MATCH ? AND d.context_type <> 'resource' AND {condition.sql} ORDER BY {_BM25} LIMIT ?",
        (match, *condition.parameters, limit),
    )
    return [(uri, own) for uri, own in rows]


def _bounded_frequency(connection: sqlite3.Connection, term: str, scopes: Sequence[str] | None) -> int:
    match = f"own : {term}" if scopes is None else f"(own : {term}) AND scope : ({' OR '.join(scopes)})"
    row = connection.execute(
        "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)", (match, _COMMON_FROM)
    ).fetchone()
    return int(row[0])


def _confined(expression: str, scopes: Sequence[str] | None) -> str:
    match = f"{{own previous}} : ({expression})"
    return match if scopes is None else f"({match}) AND scope : ({' OR '.join(scopes)})"


def _frequency(
    connection: sqlite3.Connection, term: str, scopes: Sequence[str] | None, documents: int
) -> tuple[int, bool]:
    """Rows that hold a term in either view, of a common one about how many; and whether any document does."""
    if scopes is not None:
        return scoped_words.frequency(connection, term, scopes, _COUNTED, documents)
    count, last = connection.execute(
        "SELECT count(*), max(rowid) FROM (SELECT rowid FROM words WHERE words MATCH ? LIMIT ?)",
        (f"{{own previous}} : {term}", _COUNTED),
    ).fetchone()
    held = last is not None and last > 0  # fillers stand below
    if count < _COUNTED:
        return int(count), held
    (oldest,) = connection.execute("SELECT min(id) FROM documents").fetchone()
    (newest,) = connection.execute("SELECT max(id) FROM documents").fetchone()  # alone: each is one look into the key
    density = count / max(last - oldest + 1, 1)
    estimate = min(int(density * (newest - oldest + 1)), documents)  # ids may be sparse
    return max(int(count), estimate), held


def _telling(terms: Sequence[str], matching: Sequence[int], rows: int) -> list[str]:
    """The terms worth looking up: all, but in a large store those that are not common while there are any."""
    bound = max(_COUNTED, int(rows * _COMMON_SHARE))
    telling = [term for term, count in zip(terms, matching, strict=True) if 0 < count <= bound]
    return telling or list(terms)
