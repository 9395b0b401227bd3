"""Search by words, over FTS5: it keeps the words of documents, and finds who holds those of a question.

FTS5 counts over its whole table how rare a word is and how long a document usually is. With several users in one
table, a user's scores would tell how many of the others' documents hold a word, and what others talk about would
decide what is found. So where others share the store, FTS5's score of each term is taken apart into what the document
says (how often, how long) and what the table adds, and put together again with the statistics of the spaces alone.
Where nobody else is there it is used as it is, with the same scores.

Rests on two shadow tables of FTS5 that its documentation describes: ``words_docsize`` (tokens of each row) and the
averages record of ``words_data``. Does not: rank.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memory_core.core.frozen import frozen
from memory_core.core.index.catalog_file import WORDS_DDL
from memory_core.core.index.filter import ANYTHING, Bounds, Condition
from memory_core.core.index.tokenizer import word_share
from memory_core.core.search.fusion import COLUMN_WEIGHTS, Question, idf, weigh_question
from memory_core.core.text.analysis import FILLER_ROWS, filler_texts

_BM25 = f"bm25(words, {COLUMN_WEIGHTS[0]}, {COLUMN_WEIGHTS[1]}, 0.0)"
#: Columns that are searched: what a document says itself, and that with the turns before it.
_OWN, _EITHER = "own", "{own previous}"
#: Rows of everyday words count for a term's frequency and are never found; see ``text.analysis``.
_NO_FILLER = "words.rowid > 0"
RAREST_TERMS = 3
#: Documents that a rare term may have.
RARE_DOCUMENTS = 1
#: Documents in which a turn's word stands: its own, and those of the two turns after it.
VIEWS = 3
#: Documents from which a term is too common to look at all that hold it: to link texts, to name like ones.
COMMON_FROM = 300
SHARED_FROM = 100
#: The terms that link a text to others: so many, each in at most such a share of the documents, or in so few.
LINK_TERMS, _LINK_SHARE, _LINK_LEAST_DOCUMENTS = 4, 0.15, 4
#: Turns that hold a name, by which it is known whom somebody calls so.
TURNS = 200
#: Documents of a term that are counted one by one; beyond, the count is estimated from how densely they lie.
COUNTED = 2_000
#: A term in more than this share of a large store tells little and costs most: it only ranks what others found.
_COMMON_SHARE = 0.02
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
class LexicalHits:
    """BM25 by document id, what the store knows of the query's terms, and who holds one that hardly any other does."""

    scores: Mapping[int, float]
    question: Question
    rare: frozenset[int] = frozenset()


@frozen
class _Table:
    """Rows of the FTS table, and tokens of a row on average."""

    rows: int
    tokens: float

    def damping(self, tokens: int) -> float:
        """What a document of so many tokens is held against."""
        return K1 * (1 - B + B * tokens / self.tokens)


class Words:
    """Keeps and searches the words of a catalog's documents.

    Args:
        connect: This thread's connection to the catalog's database.
    """

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect

    def put(self, document: int, own: str, previous: str, scope: str) -> None:
        """Add the words of a document, as ``index_tokens`` makes them."""
        self._connect().execute(
            "INSERT INTO words (rowid, own, previous, scope) VALUES (?, ?, ?, ?)", (document, own, previous, scope)
        )

    def remove(self, documents: Sequence[int]) -> None:
        """Drop the words of documents."""
        for document in documents:
            self._connect().execute("DELETE FROM words WHERE rowid = ?", (document,))

    def compact(self) -> None:
        """Let go of words that were dropped."""
        self._connect().execute("INSERT INTO words (words) VALUES ('optimize')")

    def clear(self) -> None:
        """Forget all words but rows of everyday ones, so that idf means something in a store of one memory."""
        self._connect().execute("DROP TABLE words")  # a torn full-text table could not be emptied
        self._connect().execute(WORDS_DDL)
        self._connect().executemany(
            "INSERT INTO words (rowid, own, previous, scope) VALUES (?, ?, '', '')",
            [(-number, text) for number, text in enumerate(filler_texts(), 1)],
        )

    def search(self, terms: Sequence[str], limit: int, bounds: Bounds) -> LexicalHits:
        """Documents that share a term with the query.

        In a store of many thousands, terms that stand in a large part of it are left out while rarer ones remain: the
        work is bounded by the rarer ones.

        Args:
            terms: FTS5 operands, as ``tokenizer.query_terms`` makes them.
            limit: Documents at most, best first.
            bounds: Where to look.
        """
        rows = bounds.documents + FILLER_ROWS
        if not terms:
            return LexicalHits({}, weigh_question(rows, (), 0))
        counted = [self._frequency(term, bounds) for term in terms]
        matching = [count for count, _ in counted]
        telling = telling_terms(terms, matching, rows)
        if bounds.scopes is not None:
            held = {term: count for term, count in zip(terms, matching, strict=True) if term in telling}
            scores = self._scores_within(held, limit, bounds)
        else:
            scores = self._scored(_match(" OR ".join(telling)), limit, bounds.condition)
        # Words of fillers, or that only a space out of sight holds, are as unknown as words that nobody holds.
        known = sum(is_held for _, is_held in counted)
        question = weigh_question(rows, matching, known, [word_share(term) for term in terms])
        # A turn's word stands with the two turns after it as well; only the one that says it holds it.
        few = [term for term, count in zip(terms, matching, strict=True) if 0 < count <= RARE_DOCUMENTS * VIEWS]
        rare = frozenset(self.holding(few, RARE_DOCUMENTS, bounds))
        return LexicalHits(scores, question, rare)

    def holding(self, terms: Sequence[str], limit: int, bounds: Bounds) -> dict[int, float]:
        """Documents that hold a term which at most ``limit`` documents hold, with their BM25 for that term alone.

        Args:
            terms: FTS5 operands.
            limit: A term that more documents hold names none of them.
            bounds: Where to look. Within scopes the BM25 is left out, as 0.0: it rests on what others hold.
        """
        found: dict[int, float] = {}
        for term in terms:
            holders = self._scored(_match(term, bounds.scopes, _OWN), limit + 1, bounds.condition)
            if len(holders) <= limit:
                own = holders if bounds.scopes is None else dict.fromkeys(holders, 0.0)
                found |= {document: max(score, found.get(document, 0.0)) for document, score in own.items()}
        return found

    def holding_all(self, terms: Sequence[str], limit: int, bounds: Bounds) -> dict[int, float]:
        """Documents that hold every term, if at most ``limit`` do, with their BM25; as ``holding``."""
        return self.holding([" AND ".join(terms)], limit, bounds) if terms else {}

    def holding_any(self, topic: Sequence[str], limit: int, bounds: Bounds) -> list[int]:
        """Documents whose own text holds any of the operands of a topic, best first; at most ``limit``."""
        return list(self._scored(_match(" OR ".join(topic), bounds.scopes, _OWN), limit, bounds.condition))

    def sharing(self, terms: Sequence[str], limit: int, bounds: Bounds, *, indexed: bool) -> list[tuple[str, str]]:
        """``(uri, own text)`` of memories that share rare terms with another.

        The work is bounded whatever the size of the store: only the rarest terms that anybody else uses count, and
        where even those are common a document must hold them all. Messages are left out.

        Args:
            terms: FTS5 operands of the memory's own words.
            limit: Documents at most.
            bounds: Where to look.
            indexed: Whether that other one is indexed itself.
        """
        counted = sorted(self._bounded_frequencies(terms, SHARED_FROM, bounds))
        rarest = [(count, term) for count, term in counted if count > indexed][:RAREST_TERMS]
        if not rarest:
            return []
        joint = " OR " if sum(count for count, _ in rarest) <= SHARED_FROM else " AND "
        condition = bounds.condition or ANYTHING
        return self._rows(
            "SELECT d.uri, d.own FROM words JOIN documents d ON d.id = words.rowid "
            f"WHERE words MATCH ? AND d.context_type <> 'resource' AND {condition.sql} ORDER BY {_BM25} LIMIT ?",
            *(_match(joint.join(term for _, term in rarest), bounds.scopes), *condition.parameters, limit),
        )

    def linked(self, terms: Sequence[str], bounds: Bounds) -> dict[int, float]:
        """Documents that share the rarest terms of a text that others use, too; their share of them by idf, in (0, 1].

        Args:
            terms: FTS5 operands of the text's words.
            bounds: Where to look.
        """
        counted = self._bounded_frequencies(terms, COMMON_FROM, bounds)
        shared = sorted((count, term) for count, term in counted if 1 < count <= most_linked(bounds.documents))
        weights = {term: idf(bounds.documents + FILLER_ROWS, count) for count, term in shared[:LINK_TERMS]}
        condition = bounds.condition or ANYTHING
        found: dict[int, float] = {}
        for term, weight in weights.items():
            rows = self._rows(
                "SELECT words.rowid FROM words JOIN documents d ON d.id = words.rowid "
                f"WHERE words MATCH ? AND {condition.sql}",
                *(_match(term, bounds.scopes, _OWN), *condition.parameters),
            )
            for (document,) in rows:
                found[document] = found.get(document, 0.0) + weight / sum(weights.values())
        return found

    def turns_with(self, term: str, spaces: Sequence[str]) -> list[tuple[str, str, str]]:
        """``(uri, speaker, own)`` of some turns that hold a term."""
        return self._rows(
            "SELECT d.uri, d.speaker, d.own FROM words JOIN documents d ON d.id = words.rowid WHERE words MATCH ? "
            "AND d.memory_type = 'message' AND d.space IN (SELECT value FROM json_each(?)) LIMIT ?",
            *(_match(term, columns=_OWN), json.dumps(list(spaces)), TURNS),
        )

    def is_held(self, term: str, bounds: Bounds) -> bool:
        """Whether any document within the scopes holds the term."""
        return self._frequency(term, bounds)[1]

    def _scored(self, match: str, limit: int, condition: Condition | None) -> dict[int, float]:
        """BM25 by document id of the best that match."""
        joined, where, parameters = "", _NO_FILLER, ()
        if condition is not None:
            joined, where, parameters = "JOIN documents d ON d.id = words.rowid ", condition.sql, condition.parameters
        rows = self._rows(
            f"SELECT words.rowid, -{_BM25} AS score FROM words {joined}WHERE words MATCH ? AND {where} "
            "ORDER BY score DESC LIMIT ?",
            *(match, *parameters, limit),
        )
        return dict(rows)

    def _bounded_frequencies(self, terms: Sequence[str], most: int, bounds: Bounds) -> list[tuple[int, str]]:
        """How many documents hold each term, counted up to ``most``."""
        if not terms:
            return []
        counted = f"(SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT {most}))"
        matches = [_match(term, bounds.scopes, _OWN) for term in terms]
        (counts,) = self._rows(f"SELECT {', '.join([counted] * len(terms))}", *matches)
        return list(zip(counts, terms, strict=True))

    def _frequency(self, term: str, bounds: Bounds) -> tuple[int, bool]:
        """Rows that hold a term in either view, of a common one about how many; and whether any document does."""
        if bounds.scopes is not None:
            return self._frequency_within(term, bounds.scopes, bounds.documents)
        count, last = self._count(_match(term))
        held = last > 0  # fillers stand below
        if count < COUNTED:
            return count, held
        ((oldest,),) = self._rows("SELECT min(id) FROM documents")
        ((newest,),) = self._rows("SELECT max(id) FROM documents")  # alone: each is one look into the key
        density = count / max(last - oldest + 1, 1)
        estimate = min(int(density * (newest - oldest + 1)), bounds.documents)  # ids may be sparse
        return max(count, estimate), held

    def _frequency_within(self, term: str, scopes: Sequence[str], documents: int) -> tuple[int, bool]:
        """Rows within the spaces, fillers included, that hold a term; and whether a document does."""
        count, last = self._count(_match(term, scopes))
        ((fillers,),) = self._rows("SELECT count(*) FROM words WHERE words MATCH ? AND rowid < 0", _match(term))
        held = count > 0
        if count >= COUNTED:
            passed = f"SELECT count(*) FROM documents WHERE space IN ({_NAMES}) AND id <= ?"
            ((passing,),) = self._rows(passed, _ids(scopes), last)
            count = int(count * documents / passing)
        return count + int(fillers), held

    def _count(self, match: str) -> tuple[int, int]:
        """How many rows match, counted up to ``COUNTED``, and the number of the last of them; 0 for none."""
        ((count, last),) = self._rows(
            "SELECT count(*), max(rowid) FROM (SELECT rowid FROM words WHERE words MATCH ? LIMIT ?)", match, COUNTED
        )
        return int(count), last or 0

    def _scores_within(self, matching: Mapping[str, int], limit: int, bounds: Bounds) -> dict[int, float]:
        """BM25 by document id of the best documents of the spaces.

        Args:
            matching: FTS5 operands with the rows of the spaces that hold them, fillers included.
            limit: Documents at most.
            bounds: Where to look.
        """
        scopes = bounds.scopes or ()
        table = self._whole()
        condition = bounds.condition or ANYTHING
        found = {term: self._scored(_match(term, scopes), _SCORED, condition) for term in matching}
        tokens = self._tokens(sorted({document for held in found.values() for document in held}))
        own = self._own(bounds.documents + FILLER_ROWS, scopes)
        summed: dict[int, float] = {}
        for term, held in found.items():
            ((everywhere,),) = self._rows("SELECT count(*) FROM words WHERE words MATCH ?", _match(term))
            in_table, in_spaces = idf(table.rows, everywhere), idf(own.rows, matching[term])
            for document, score in held.items():
                length = tokens[document]
                occurrences = _occurrences(score / in_table, table.damping(length))
                share = occurrences * (K1 + 1) / (occurrences + own.damping(length))
                summed[document] = summed.get(document, 0.0) + in_spaces * share
        best = sorted(summed.items(), key=lambda item: (-item[1], item[0]))
        return dict(best[:limit])

    def _whole(self) -> _Table:
        ((record,),) = self._rows("SELECT block FROM words_data WHERE id = ?", _AVERAGES_ROW)
        rows, *columns = _varints(record)
        return _Table(rows, sum(columns) / max(rows, 1))

    def _own(self, rows: int, scopes: Sequence[str]) -> _Table:
        """The spaces as a table of their own, with the fillers."""
        measured = self._rows(
            f"SELECT sz FROM words_docsize WHERE id IN (SELECT id FROM documents WHERE space IN ({_NAMES}) "
            "ORDER BY id DESC LIMIT ?)",
            *(_ids(scopes), _MEASURED),
        )
        fillers = self._rows("SELECT sz FROM words_docsize WHERE id < 0")
        in_documents = sum(sum(_varints(size)) for (size,) in measured)
        in_fillers = sum(sum(_varints(size)) for (size,) in fillers)
        documents = rows - len(fillers)
        tokens = in_fillers + in_documents * documents / max(len(measured), 1)
        return _Table(rows, max(tokens, 1.0) / max(rows, 1))

    def _tokens(self, documents: Sequence[int]) -> dict[int, int]:
        asked = "SELECT id, sz FROM words_docsize WHERE id IN (SELECT value FROM json_each(?))"
        return {document: sum(_varints(size)) for document, size in self._rows(asked, json.dumps(list(documents)))}

    def _rows(self, statement: str, *parameters: object) -> list[Any]:
        return list(self._connect().execute(statement, parameters))


def most_linked(documents: int) -> int:
    """How many documents at most may hold a term that links two of them."""
    most = min(max(_LINK_LEAST_DOCUMENTS, int(_LINK_SHARE * documents)), documents // 2)
    return min(most, COMMON_FROM - 1)


def _match(expression: str, scopes: Sequence[str] | None = None, columns: str = _EITHER) -> str:
    """A MATCH expression over some columns, within the scopes."""
    match = f"{columns} : ({expression})"
    return match if scopes is None else f"({match}) AND scope : ({' OR '.join(scopes)})"


def telling_terms(terms: Sequence[str], matching: Sequence[int], rows: int) -> list[str]:
    """The terms worth looking up: all, but in a large store those that are not common while there are any."""
    bound = max(COUNTED, int(rows * _COMMON_SHARE))
    telling = [term for term, count in zip(terms, matching, strict=True) if 0 < count <= bound]
    return telling or list(terms)


def _occurrences(share: float, damping: float) -> float:
    """How often a document holds a term, each occurrence in its column's weight; the weights are halves."""
    share = min(share, K1 + 1 - 1e-9)
    return max(0.5, round(2 * share * damping / (K1 + 1 - share)) / 2)


def _ids(scopes: Sequence[str]) -> str:
    """Ids of the spaces, for ``_NAMES``."""
    return json.dumps([int(scope.removeprefix("space")) for scope in scopes])


def _varints(record: bytes) -> list[int]:
    """SQLite's variable-length integers, below 2**56: seven bits a byte, the most significant first."""
    values, value = [], 0
    for byte in record:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            values.append(value)
            value = 0
    return values
