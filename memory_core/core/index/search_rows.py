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
from dataclasses import replace

from memory_core.core.frozen import frozen
from memory_core.core.index.catalog_file import WORDS_DDL
from memory_core.core.index.filter import ANYTHING, Condition
from memory_core.core.index.tokenizer import word_share
from memory_core.core.search.fusion import COLUMN_WEIGHTS, Question, idf, weigh_question
from memory_core.core.text.analysis import FILLER_ROWS, filler_texts

_BM25 = f"bm25(words, {COLUMN_WEIGHTS[0]}, {COLUMN_WEIGHTS[1]}, 0.0)"


#: Rows of everyday words count for a term's frequency and are never found; see ``text.analysis``.
_NO_FILLER = "rowid > 0"
RAREST_TERMS = 3
#: Documents that a rare term may have.
RARE_DOCUMENTS = 1
VIEWS = 3
#: Documents from which a term is too common to look at all that hold it: to link texts, to name like ones.
COMMON_FROM = 300
SHARED_FROM = 100
#: The terms that link a text to others: so many, each in at most such a share of the documents, or in so few.
LINK_TERMS, _LINK_SHARE, _LINK_LEAST_DOCUMENTS = 4, 0.15, 4
#: Turns that hold a name, by which it is known whom somebody calls so.
TURNS = 200
#: Documents of a term that are counted one by one; beyond, the count is estimated from how densely they lie.
_COUNTED = 2_000
#: A term in more than this share of a large store tells little and costs most: it only ranks what others found.
_COMMON_SHARE = 0.02


@frozen
class LexicalHits:
    """BM25 by document id, what the store knows of the query's terms, and who holds one that hardly any other does."""

    scores: Mapping[int, float]
    question: Question
    rare: frozenset[int] = frozenset()


def asks_nothing(terms: Sequence[str], scopes: Sequence[str] | None) -> bool:
    """Whether a search has no words, or no space to look in."""
    return not terms or (scopes is not None and not scopes)


def put(connection: sqlite3.Connection, document: int, own: str, previous: str, scope: str) -> None:
    """Add the words of a document, as ``index_tokens`` makes them."""
    connection.execute(
        "INSERT INTO words (rowid, own, previous, scope) VALUES (?, ?, ?, ?)", (document, own, previous, scope)
    )


def remove(connection: sqlite3.Connection, documents: Sequence[int]) -> None:
    """Drop the words of documents."""
    for document in documents:
        connection.execute("DELETE FROM words WHERE rowid = ?", (document,))


def compact(connection: sqlite3.Connection) -> None:
    """Let go of words that were dropped."""
    connection.execute("INSERT INTO words (words) VALUES ('optimize')")


def clear(connection: sqlite3.Connection) -> None:
    """Forget all words but rows of everyday ones, so that idf means something in a store of one memory."""
    connection.execute("DROP TABLE words")  # a torn full-text table could not be emptied
    connection.execute(WORDS_DDL)
    connection.executemany(
        "INSERT OR IGNORE INTO words (rowid, own, previous, scope) VALUES (?, ?, '', '')",
        [(-number, text) for number, text in enumerate(filler_texts(), 1)],
    )


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
    if asks_nothing(terms, scopes):
        return LexicalHits({}, Question(0.0, 0, 0, words=0.0, documents=documents))
    rows = documents + FILLER_ROWS
    counted = [_frequency(connection, term, scopes, documents) for term in terms]
    matching = [count for count, _ in counted]
    telling = telling_terms(terms, matching, rows)
    if scopes is None:
        scores = _scored(connection, _confined(" OR ".join(telling), None), limit, condition)
    else:
        held = {term: count for term, count in zip(terms, matching, strict=True) if term in telling}
        scores = scores_within(connection, held, limit, documents, scopes, condition)
    question = weigh_question(rows, matching, [word_share(term) for term in terms])
    # Words of fillers, or that only a space out of sight holds, are as unknown as words that nobody holds.
    known = sum(known for _, known in counted)
    # A turn's word stands with the two turns after it as well; only the one that says it holds it.
    few = [term for term, count in zip(terms, matching, strict=True) if 0 < count <= RARE_DOCUMENTS * VIEWS]
    rare = frozenset(holding(connection, few, RARE_DOCUMENTS, scopes, condition))
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
    if asks_nothing(terms, scopes):
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


def telling(
    connection: sqlite3.Connection,
    topic: Sequence[str],
    limit: int,
    scopes: Sequence[str] | None = None,
    condition: Condition | None = None,
) -> list[int]:
    """Documents that hold any of the operands of a topic, at most ``limit``; as ``holding``."""
    if asks_nothing(topic, scopes):
        return []
    match = f"own : ({' OR '.join(topic)})"
    if scopes is not None:
        match = f"({match}) AND scope : ({' OR '.join(scopes)})"
    return list(_scored(connection, match, limit, condition))


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
    *,
    indexed: bool,
) -> list[tuple[str, str]]:
    """``(uri, own text)`` of memories that share rare terms with another.

    The work is bounded whatever the size of the store: only the rarest terms that anybody else uses count, and
    where even those are common a document must hold them all. Messages are left out.

    Args:
        connection: The catalog.
        terms: FTS5 operands of the memory's own words.
        scopes: Scope terms to stay within; None means everywhere.
        limit: Documents at most.
        condition: A condition over ``documents d``.
        indexed: Whether that other one is indexed itself.
    """
    if asks_nothing(terms, scopes):
        return []
    counted = sorted(zip(_bounded_frequencies(connection, terms, scopes, SHARED_FROM), terms, strict=True))
    rarest = [(count, term) for count, term in counted if count > indexed][:RAREST_TERMS]
    if not rarest:
        return []
    joint = " OR " if sum(count for count, _ in rarest) <= SHARED_FROM else " AND "
    match = _confined(joint.join(term for _, term in rarest), scopes)
    condition = condition or ANYTHING
    rows = connection.execute(
        "SELECT d.uri, d.own FROM words JOIN documents d ON d.id = words.rowid "
        f"WHERE words MATCH ? AND d.context_type <> 'resource' AND {condition.sql} ORDER BY {_BM25} LIMIT ?",
        (match, *condition.parameters, limit),
    )
    return [(uri, own) for uri, own in rows]


def linked(
    connection: sqlite3.Connection,
    terms: Sequence[str],
    documents: int,
    scopes: Sequence[str] | None,
    condition: Condition | None = None,
) -> dict[int, float]:
    """Documents that share the rarest terms of a text that others use, too, with their share of them by idf, in (0, 1].

    Args:
        connection: The catalog.
        terms: FTS5 operands of the text's words.
        documents: How many documents there are within the scopes.
        scopes: Scope terms to stay within; None means everywhere.
        condition: A condition over ``documents d``.
    """
    if asks_nothing(terms, scopes):
        return {}
    counted = zip(_bounded_frequencies(connection, terms, scopes, COMMON_FROM), terms, strict=True)
    shared = sorted((count, term) for count, term in counted if 1 < count <= most_linked(documents))
    weights = {term: idf(documents + FILLER_ROWS, count) for count, term in shared[:LINK_TERMS]}
    within = "" if scopes is None else f" AND scope : ({' OR '.join(scopes)})"
    condition = condition or ANYTHING
    found: dict[int, float] = {}
    for term, weight in weights.items():
        rows = connection.execute(
            "SELECT words.rowid FROM words JOIN documents d ON d.id = words.rowid "
            f"WHERE words MATCH ? AND {condition.sql}",
            (f"(own : {term}){within}", *condition.parameters),
        )
        for (document,) in rows:
            found[document] = found.get(document, 0.0) + weight / sum(weights.values())
    return found


def most_linked(documents: int) -> int:
    """How many documents at most may hold a term that links two of them."""
    most = min(max(_LINK_LEAST_DOCUMENTS, int(_LINK_SHARE * documents)), documents // 2)
    return min(most, COMMON_FROM - 1)


def turns_with(connection: sqlite3.Connection, term: str, spaces: Sequence[str]) -> list[tuple[str, str, str]]:
    """``(uri, speaker, own)`` of some turns that hold a term."""
    rows = connection.execute(
        "SELECT d.uri, d.speaker, d.own FROM words JOIN documents d ON d.id = words.rowid WHERE words MATCH ? "
        "AND d.memory_type = 'message' AND d.space IN (SELECT value FROM json_each(?)) LIMIT ?",
        (f"own : {term}", json.dumps(list(spaces)), TURNS),
    )
    return rows.fetchall()


def _bounded_frequencies(
    connection: sqlite3.Connection, terms: Sequence[str], scopes: Sequence[str] | None, most: int
) -> tuple[int, ...]:
    """How many documents hold each term, counted up to ``most``."""
    within = "" if scopes is None else f" AND scope : ({' OR '.join(scopes)})"
    counted = f"(SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT {most}))"
    row = connection.execute(
        f"SELECT {', '.join([counted] * len(terms))}", [f"(own : {term}){within}" for term in terms]
    ).fetchone()
    return tuple(row)


def _confined(expression: str, scopes: Sequence[str] | None) -> str:
    match = f"{{own previous}} : ({expression})"
    return match if scopes is None else f"({match}) AND scope : ({' OR '.join(scopes)})"


def _frequency(
    connection: sqlite3.Connection, term: str, scopes: Sequence[str] | None, documents: int
) -> tuple[int, bool]:
    """Rows that hold a term in either view, of a common one about how many; and whether any document does."""
    if scopes is not None:
        return frequency_within(connection, term, scopes, _COUNTED, documents)
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


def is_held(connection: sqlite3.Connection, term: str, scopes: Sequence[str] | None, documents: int) -> bool:
    """Whether any document within the scopes holds the term; see ``search``."""
    return _frequency(connection, term, scopes, documents)[1]


def telling_terms(terms: Sequence[str], matching: Sequence[int], rows: int) -> list[str]:
    """The terms worth looking up: all, but in a large store those that are not common while there are any."""
    bound = max(_COUNTED, int(rows * _COMMON_SHARE))
    telling = [term for term, count in zip(terms, matching, strict=True) if 0 < count <= bound]
    return telling or list(terms)


#: FTS5's parameters of BM25.
K1 = 1.2
B = 0.75
_AVERAGES_ROW = 1
_NAMES = "SELECT name FROM spaces WHERE id IN (SELECT value FROM json_each(?))"
#: Newest documents of the spaces whose length stands for that of all.
_MEASURED = 500
#: Documents of a term that are scored, best first.
_SCORED = 5_000


@frozen
class _Table:
    """Rows of the FTS table, and tokens of a row on average."""

    rows: int
    tokens: float

    def damping(self, tokens: int) -> float:
        """What a document of so many tokens is held against."""
        return K1 * (1 - B + B * tokens / self.tokens)


def frequency_within(
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


def scores_within(
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
            share = occurrences * (K1 + 1) / (occurrences + own.damping(length))
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
    share = min(share, K1 + 1 - 1e-9)
    return max(0.5, round(2 * share * damping / (K1 + 1 - share)) / 2)


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
