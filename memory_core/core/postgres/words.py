"""Search by words in PostgreSQL: what ``index.search_rows`` is over FTS5, with the same words and the same scores.

A document has a row for each of its words, with the places where it stands. FTS5 itself, in memory, splits and stems
texts and questions; BM25 is computed here from the rows, as FTS5 computes it. Words are compared for equality alone, so
that row-level security lets PostgreSQL use its index.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from memory_core.core.index.catalog_file import WORDS_DDL
from memory_core.core.index.filter import Condition, all_of
from memory_core.core.index.search_rows import (
    COMMON_FROM,
    K1,
    LINK_TERMS,
    RARE_DOCUMENTS,
    RAREST_TERMS,
    TURNS,
    VIEWS,
    B,
    LexicalHits,
    asks_nothing,
    most_linked,
    telling_terms,
)
from memory_core.core.index.tokenizer import word_share
from memory_core.core.search.fusion import COLUMN_WEIGHTS, Question, idf, weigh_question
from memory_core.core.text.analysis import FILLER_ROWS, filler_texts

#: Greater than every word that begins as a prefix does.
_LAST = "\U0010ffff"


class _Operand(NamedTuple):
    """Words that stand beside each other; of a prefix, the last is a beginning."""

    terms: tuple[str, ...]
    prefix: bool

    @property
    def is_word(self) -> bool:
        """Whether it is one whole word."""
        return len(self.terms) == 1 and not self.prefix

    def last_of(self, postings: _Postings) -> list[str]:
        """The stored words that are the last one of it."""
        last = self.terms[-1]
        if self.prefix:
            return [term for term in postings if term.startswith(last)]
        return [last] if last in postings else []


class _Spots(NamedTuple):
    """Where a word stands in a document: the places in the text itself, and in the turns before it, as they are stored.

    ``tokens`` is how many words the document has.
    """

    own: str
    previous: str
    tokens: int = 0


#: By word, then by document.
_Postings = Mapping[str, Mapping[int, _Spots]]


class _Often(NamedTuple):
    """How often an operand stands in a document's own text and in the turns before, and how many words both have."""

    own: int
    previous: int
    tokens: int


_NOWHERE = _Often(0, 0, 0)
#: By document.
_Found = dict[int, _Often]


class _Tokenizer(threading.local):
    """FTS5's words of a text; each thread has its own."""

    def __init__(self) -> None:
        self._database = sqlite3.connect(":memory:")
        self._database.executescript(WORDS_DDL + "CREATE VIRTUAL TABLE spots USING fts5vocab(words, instance);")

    def spots(self, own: str, previous: str = "") -> dict[str, _Spots]:
        """The words of a document's two texts, and where each stands."""
        self._database.execute("INSERT INTO words (own, previous, scope) VALUES (?, ?, '')", (own, previous))
        rows = self._database.execute("SELECT term, col, offset FROM spots").fetchall()
        self._database.rollback()
        found: dict[str, tuple[set[int], set[int]]] = {}
        for term, column, offset in rows:
            found.setdefault(term, (set(), set()))[column == "previous"].add(offset)
        tokens = len(rows)
        return {
            term: _Spots(" ".join(map(str, sorted(one))), " ".join(map(str, sorted(other))), tokens)
            for term, (one, other) in found.items()
        }

    def operand(self, operand: str) -> _Operand:
        """What FTS5 makes of one of its operands: words in double quotes, a star behind them for a prefix."""
        spots = self.spots(operand.rstrip("*").strip('"'))
        places = sorted((place, term) for term, where in spots.items() for place in _places(where.own))
        return _Operand(tuple(term for _, term in places), operand.endswith("*"))


_TOKENIZER = _Tokenizer()


def _counted(own: str, previous: str) -> tuple[dict[str, _Spots], int]:
    """The words of a document, and how many it has."""
    spots = _TOKENIZER.spots(own, previous)
    return spots, next((each.tokens for each in spots.values()), 0) + 1  # FTS5 counts the scope, too


@cache
def _fillers() -> tuple[Mapping[str, Mapping[int, _Spots]], int]:
    """The rows of everyday words, which count and are never found; and how many words they have."""
    postings: dict[str, dict[int, _Spots]] = {}
    tokens = 0
    for number, text in enumerate(filler_texts(), 1):
        for term, spots in _TOKENIZER.spots(text).items():
            postings.setdefault(term, {})[-number] = spots
            tokens += _count(spots.own)
    return postings, tokens


class PostgresWords:
    """Keeps the words of documents and searches them; each method is the function of that name of ``search_rows``."""

    def put(self, connection: Any, document: int, own: str, previous: str, _scope: str) -> None:
        """Add the words of a document."""
        spots, tokens = _counted(own, previous)
        places = [each.own for each in spots.values()], [each.previous for each in spots.values()]
        connection.native(
            "INSERT INTO words (term, document, own, previous, tokens) SELECT term, %s, own, previous, %s "
            "FROM unnest(%s::text[], %s::text[], %s::text[]) AS t (term, own, previous)",
            (document, tokens, list(spots), *places),
        )
        connection.native("INSERT INTO word_counts VALUES (%s, %s)", (document, tokens))

    def holds(self, connection: Any, document: int, own: str, previous: str) -> bool:
        """Whether the stored words of a document are those of its two texts."""
        spots, tokens = _counted(own, previous)
        held = connection.native("SELECT term, own, previous, tokens FROM words WHERE document = %s", (document,))
        counts = connection.native("SELECT tokens FROM word_counts WHERE document = %s", (document,)).fetchall()
        expected = {(term, each.own, each.previous, tokens) for term, each in spots.items()}
        return set(held.fetchall()) == expected and counts == [(tokens,)]

    def remove(self, connection: Any, documents: Sequence[int]) -> None:
        """Drop the words of documents."""
        if documents:
            for table in ("words", "word_counts"):
                connection.native(f"DELETE FROM {table} WHERE document = ANY(%s)", (list(documents),))

    def compact(self, connection: Any) -> None:
        """Nothing is kept of words that were dropped."""

    def clear(self, connection: Any) -> None:
        """Forget all words."""
        for table in ("words", "word_counts"):
            connection.native(f"DELETE FROM {table}")

    def search(
        self,
        connection: Any,
        terms: Sequence[str],
        limit: int,
        documents: int,
        scopes: Sequence[str] | None = None,
        condition: Condition | None = None,
    ) -> LexicalHits:
        """Documents that share a term with the query."""
        if asks_nothing(terms, scopes):
            return LexicalHits({}, Question(0.0, 0, 0, words=0.0, documents=documents))
        rows = documents + FILLER_ROWS
        operands = {term: _TOKENIZER.operand(term) for term in terms}
        with connection.together() as reading:
            space = _space(reading, scopes)
            counted = space.counts(operands)
            matching = [sum(counted[term]) for term in terms]
            telling = telling_terms(terms, matching, rows)
            space.fetch(operands[term] for term in telling)
            found = [(space.found(operands[term]), sum(counted[term])) for term in telling]
            scores = space.ranked(found, limit, condition)
            few = [term for term, count in zip(terms, matching, strict=True) if 0 < count <= RARE_DOCUMENTS * VIEWS]
            rare = frozenset(self.holding(reading, few, RARE_DOCUMENTS, scopes, condition))
        question = weigh_question(rows, matching, [word_share(term) for term in terms])
        known = sum(count > 0 for count, _ in counted.values())
        return LexicalHits(scores, replace(question, known_terms=known), rare)

    def holding(
        self,
        connection: Any,
        terms: Sequence[str],
        limit: int,
        scopes: Sequence[str] | None = None,
        condition: Condition | None = None,
    ) -> dict[int, float]:
        """Documents that hold a term which at most ``limit`` documents hold."""
        if asks_nothing(terms, scopes):
            return {}
        best: dict[int, float] = {}
        with connection.together() as reading:
            space = _space(reading, scopes)
            space.fetch(map(_TOKENIZER.operand, terms))
            for term in terms:
                for document, score in space.holders([term], limit, condition).items():
                    best[document] = max(score, best.get(document, 0.0))
        return best

    def holding_all(
        self,
        connection: Any,
        terms: Sequence[str],
        limit: int,
        scopes: Sequence[str] | None = None,
        condition: Condition | None = None,
    ) -> dict[int, float]:
        """Documents that hold every term, if at most ``limit`` do."""
        if asks_nothing(terms, scopes):
            return {}
        with connection.together() as reading:
            return _space(reading, scopes).holders(terms, limit, condition)

    def telling(
        self,
        connection: Any,
        topic: Sequence[str],
        limit: int,
        scopes: Sequence[str] | None = None,
        condition: Condition | None = None,
    ) -> list[int]:
        """Documents that hold any of the operands of a topic, best first."""
        if asks_nothing(topic, scopes):
            return []
        with connection.together() as reading:
            space = _space(reading, scopes)
            operands = [_TOKENIZER.operand(term) for term in topic]
            space.fetch(operands)
            return list(space.ranked([space.own(operand) for operand in operands], limit, condition))

    def sharing(
        self,
        connection: Any,
        terms: Sequence[str],
        scopes: Sequence[str] | None,
        limit: int,
        condition: Condition | None = None,
        *,
        indexed: bool,
    ) -> list[tuple[str, str]]:
        """``(uri, own text)`` of memories that share rare terms with another."""
        if asks_nothing(terms, scopes):
            return []
        operands = {term: _TOKENIZER.operand(term) for term in terms}
        with connection.together() as reading:
            space = _space(reading, scopes)
            counted = space.counts(operands)
            ordered = sorted((min(COMMON_FROM, sum(counted[term])), term) for term in terms)
            rarest = [(count, operands[term]) for count, term in ordered if count > indexed][:RAREST_TERMS]
            if not rarest:
                return []
            space.fetch(operand for _, operand in rarest)
            found = [(space.found(operand), count) for count, operand in rarest]
            memories = all_of([Condition("d.context_type <> 'resource'"), condition])
            joint = sum(count for count, _ in rarest) > COMMON_FROM
            best = space.ranked(found, limit, memories, joint=joint)
            rows = reading.execute("SELECT id, uri, own FROM documents WHERE id = ANY(?)", (list(best),))
            texts = {int(number): (uri, own) for number, uri, own in rows}
        return [texts[document] for document in best if document in texts]

    def linked(
        self,
        connection: Any,
        terms: Sequence[str],
        documents: int,
        scopes: Sequence[str] | None,
        condition: Condition | None = None,
    ) -> dict[int, float]:
        """Documents that share the rarest terms of a text that others use, too, with their share of them."""
        if asks_nothing(terms, scopes):
            return {}
        operands = {term: _TOKENIZER.operand(term) for term in terms}
        found: dict[int, float] = {}
        with connection.together() as reading:
            space = _space(reading, scopes)
            space.fetch(operands.values())
            held = {term: space.own(operand) for term, operand in operands.items()}
            shared = sorted((count, term) for term, (_, count) in held.items() if 1 < count <= most_linked(documents))
            weights = {term: idf(documents + FILLER_ROWS, count) for count, term in shared[:LINK_TERMS]}
            passing = space.passing({document for term in weights for document in held[term][0]}, condition)
        for term, weight in weights.items():
            for document in held[term][0].keys() & passing:
                found[document] = found.get(document, 0.0) + weight / sum(weights.values())
        return found

    def turns_with(self, connection: Any, term: str, spaces: Sequence[str]) -> list[tuple[str, str, str]]:
        """``(uri, speaker, own)`` of some turns that hold a term."""
        with connection.together() as reading:
            held, _ = _space(reading, None).own(_TOKENIZER.operand(term))
            rows = reading.execute(
                "SELECT uri, speaker, own FROM documents WHERE id = ANY(?) AND memory_type = 'message' "
                "AND space = ANY(?) ORDER BY id LIMIT ?",
                (list(held), list(spaces), TURNS),
            )
            return list(rows.fetchall())

    def is_held(self, connection: Any, term: str, scopes: Sequence[str] | None, _documents: int) -> bool:
        """Whether any document within the scopes holds the term."""
        with connection.together() as reading:
            return bool(_space(reading, scopes).found(_TOKENIZER.operand(term)))


class _Space:
    """The words that searches of one state see: of all documents of the tenant, or of some spaces."""

    def __init__(self, connection: Any, scopes: Sequence[str] | None) -> None:
        self._connection = connection
        self._within = ""
        self._ids: tuple[list[int], ...] = ()
        if scopes is not None:
            self._within = (
                " AND document IN (SELECT d.id FROM documents d JOIN spaces s ON s.name = d.space WHERE s.id = ANY(?))"
            )
            self._ids = ([int(scope.removeprefix("space")) for scope in scopes],)
        self._postings: dict[str, dict[int, _Spots]] = {}
        self._prefixes: set[str] = set()
        self._whole: tuple[int, float] | None = None

    def counts(self, operands: Mapping[str, _Operand]) -> dict[str, tuple[int, int]]:
        """For each operand, by its name: how many documents hold it in either text, and how many fillers."""
        single = {each.terms[0] for each in operands.values() if each.is_word and each.terms[0] not in self._postings}
        rows = self._connection.execute(
            f"SELECT term, count(*) FROM words WHERE term = ANY(?){self._within} GROUP BY term",
            (list(single), *self._ids),
        )
        counted = {str(term): int(count) for term, count in rows} if single else {}
        self.fetch(each for each in operands.values() if not each.is_word)
        return {
            name: (
                counted.get(each.terms[0], 0) if each.is_word and each.terms[0] in single else len(self.found(each)),
                len(_standing(each, _fillers()[0])),
            )
            for name, each in operands.items()
        }

    def fetch(self, operands: Iterable[_Operand]) -> None:
        """Read the postings of words, each once."""
        wanted: set[str] = set()
        for operand in operands:
            *before, last = operand.terms or ("",)
            wanted.update(before)
            if operand.prefix and last and last not in self._prefixes:
                self._prefixes.add(last)
                self._read("term >= ? AND term < ?", last, f"{last}{_LAST}")
            elif last and not operand.prefix:
                wanted.add(last)
        wanted -= self._postings.keys()
        if wanted:
            self._postings |= {term: {} for term in wanted}
            self._read("term = ANY(?)", list(wanted))

    def found(self, operand: _Operand) -> _Found:
        """The documents that hold an operand, and how often."""
        self.fetch([operand])
        return _standing(operand, self._postings)

    def own(self, operand: _Operand) -> tuple[_Found, int]:
        """The documents whose own text holds an operand, and how many rows do, fillers included."""
        held = {document: each._replace(previous=0) for document, each in self.found(operand).items() if each.own}
        return held, len(held) + len(_standing(operand, _fillers()[0]))

    def holders(self, terms: Sequence[str], limit: int, condition: Condition | None) -> dict[int, float]:
        """Documents whose own text holds all of some terms, with their BM25; none where more than ``limit`` do."""
        best = self.ranked([self.own(_TOKENIZER.operand(term)) for term in terms], limit + 1, condition, joint=True)
        if len(best) > limit:
            return {}
        return best if not self._ids else dict.fromkeys(best, 0.0)

    def ranked(
        self,
        found: Sequence[tuple[_Found, int]],
        limit: int,
        condition: Condition | None,
        *,
        joint: bool = False,
    ) -> dict[int, float]:
        """BM25 by document of the best that hold any operand, or all of them.

        Args:
            found: For each operand who holds it, and the rows that do, fillers included.
            limit: Documents at most.
            condition: A condition over ``documents d``.
            joint: Whether all of the operands must be held.
        """
        sets = [held.keys() for held, _ in found]
        matched = set[int]().union(*sets)
        if joint:
            matched = matched.intersection(*sets)
        matched = self.passing(matched, condition)
        if not matched:
            return {}
        rows, average = self._totals()
        scores: dict[int, float] = {}
        for held, matching in found:
            weight = idf(rows, matching)
            for document in held.keys() & matched:
                one = held[document]
                often = COLUMN_WEIGHTS[0] * one.own + COLUMN_WEIGHTS[1] * one.previous
                damping = K1 * (1 - B + B * one.tokens / average)
                scores[document] = scores.get(document, 0.0) + weight * (often * (K1 + 1)) / (often + damping)
        best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
        return dict(best[:limit])

    def passing(self, documents: set[int], condition: Condition | None) -> set[int]:
        """Those of some documents that a condition over ``documents d`` lets pass."""
        if not documents or condition is None:
            return documents
        rows = self._connection.execute(
            f"SELECT d.id FROM documents d WHERE d.id = ANY(?) AND {condition.sql}",
            (list(documents), *condition.parameters),
        )
        return {int(document) for (document,) in rows}

    def _totals(self) -> tuple[int, float]:
        """How many rows there are, fillers included, and words of a row on average."""
        if self._whole is None:
            fillers = _fillers()[1]
            (total,) = self._connection.execute(
                f"SELECT count(*), coalesce(sum(tokens), 0) FROM word_counts WHERE 1{self._within}", self._ids
            )
            rows = int(total[0]) + FILLER_ROWS
            self._whole = rows, (int(total[1]) + fillers) / rows
        return self._whole

    def _read(self, where: str, *values: Any) -> None:
        rows = self._connection.execute(
            f"SELECT term, document, own, previous, tokens FROM words WHERE {where}{self._within}",
            (*values, *self._ids),
        )
        for term, document, *spots in rows:
            self._postings.setdefault(term, {})[document] = _Spots(*spots)


def _space(connection: Any, scopes: Sequence[str] | None) -> _Space:
    """What was read of the words of these scopes in the transaction at hand, where it stays as it is."""
    if connection.kept is None:
        return _Space(connection, scopes)
    found: _Space = connection.kept.setdefault(None if scopes is None else tuple(scopes), _Space(connection, scopes))
    return found


def _count(places: str) -> int:
    return places.count(" ") + 1 if places else 0


def _places(places: str) -> list[int]:
    return [int(place) for place in places.split()]


def _standing(operand: _Operand, postings: _Postings) -> _Found:
    """The documents in which the words of an operand stand beside each other, and how often."""
    if not operand.terms:
        return {}
    *before, _ = operand.terms
    found: _Found = {}
    for term in operand.last_of(postings):
        for document, spots in postings[term].items():
            if before:
                earlier = [postings.get(each, {}).get(document) for each in before]
                if None in earlier:
                    continue
                own, previous = (_beside(column, spots, earlier) for column in (0, 1))
            else:
                own, previous = _count(spots.own), _count(spots.previous)
            if own or previous:
                more = found.get(document, _NOWHERE)
                found[document] = _Often(own + more.own, previous + more.previous, spots.tokens)
    return found


def _beside(column: int, last: _Spots, before: Sequence[_Spots | None]) -> int:
    """How often words stand beside each other in a column, which ``last`` ends."""
    places = set(_places(str(last[column])))
    for back, spots in enumerate(reversed(before), 1):
        there = set() if spots is None else {place + back for place in _places(str(spots[column]))}
        places &= there
    return len(places)
