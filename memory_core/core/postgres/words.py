"""Search by words in PostgreSQL: what ``index.search_rows`` is over FTS5, with the same words and the same scores.

A document has a row for each of its words, with the places where it stands. FTS5 itself, in memory, splits and stems
texts and questions; BM25 is computed here from the rows, as FTS5 computes it. Words are compared for equality alone, so
that row-level security lets PostgreSQL use its index.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

from memory_core.core.index.catalog_file import WORDS_DDL
from memory_core.core.index.filter import ANYTHING, Bounds, Condition, all_of
from memory_core.core.index.search_rows import (
    COMMON_FROM,
    COUNTED,
    K1,
    LINK_TERMS,
    RARE_DOCUMENTS,
    RAREST_TERMS,
    SHARED_FROM,
    TURNS,
    VIEWS,
    B,
    LexicalHits,
    Words,
    most_linked,
    telling_terms,
)
from memory_core.core.index.tokenizer import word_share
from memory_core.core.search.fusion import COLUMN_WEIGHTS, idf, weigh_question
from memory_core.core.text.analysis import FILLER_ROWS, filler_texts

#: How often a word stands in a text of which its places are stored.
_PLACES = "(CASE w.{0} WHEN '' THEN 0 ELSE length(w.{0}) - length(replace(w.{0}, ' ', '')) + 1 END)"
_OWN = " AND own <> ''"
_OF_SPACES = "SELECT d.id FROM documents d JOIN spaces s ON s.name = d.space WHERE s.id = ANY(?)"
#: Of a document of ``words w``: it holds another word, too.
_HOLDS_TOO = " AND EXISTS (SELECT FROM words o WHERE o.term = ? AND o.document = w.document{})"
#: So many documents are asked for at once where only some of them may count.
_ASKED_TEXTS = 32
#: A longer word, of up to four bytes a character, does not fit into a row of an index of the database.
_TERM_CHARS, _BEGINNING_CHARS = 500, 100
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
    tokens: int


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
        # FTS5 cuts a very long word at a byte.
        self._database.text_factory = partial(str, encoding="utf-8", errors="ignore")
        self._database.executescript(WORDS_DDL + "CREATE VIRTUAL TABLE spots USING fts5vocab(words, instance);")

    def spots(self, own: str, previous: str = "") -> dict[str, _Spots]:
        """The words of a document's two texts, and where each stands."""
        try:
            self._database.execute("INSERT INTO words (own, previous, scope) VALUES (?, ?, '')", (own, previous))
            rows = self._database.execute("SELECT term, col, offset FROM spots").fetchall()
        finally:
            self._database.rollback()
        found: dict[str, tuple[set[int], set[int]]] = {}
        for term, column, offset in rows:
            found.setdefault(_stored(term), (set(), set()))[column == "previous"].add(offset)
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


def _stored(term: str) -> str:
    """A word as a row holds it: of one that no row of an index can hold, its beginning and a hash."""
    if len(term) <= _TERM_CHARS:
        return term
    return f"{term[:_BEGINNING_CHARS]}-{hashlib.sha256(term.encode()).hexdigest()}"


def _counted(own: str, previous: str) -> tuple[dict[str, _Spots], int]:
    """The words of a document, and how many it has."""
    spots = _TOKENIZER.spots(own, previous)
    return spots, next((each.tokens for each in spots.values()), 0) + 1  # FTS5 counts the scope, too


@cache
def _fillers() -> tuple[_Postings, int]:
    """The rows of everyday words, which count and are never found; and how many words they have."""
    postings: dict[str, dict[int, _Spots]] = {}
    tokens = 0
    for number, text in enumerate(filler_texts(), 1):
        for term, spots in _TOKENIZER.spots(text).items():
            postings.setdefault(term, {})[-number] = spots
            tokens += _count(spots.own)
    return postings, tokens


class PostgresWords(Words):
    """Keeps the words of documents and searches them as ``Words`` does."""

    def put(self, document: int, own: str, previous: str, _scope: str) -> None:
        """Add the words of a document."""
        spots, tokens = _counted(own, previous)
        places = [each.own for each in spots.values()], [each.previous for each in spots.values()]
        self._connect().native(
            "INSERT INTO words (term, document, own, previous, tokens) SELECT term, %s, own, previous, %s "
            "FROM unnest(%s::text[], %s::text[], %s::text[]) AS t (term, own, previous)",
            (document, tokens, list(spots), *places),
        )
        self._connect().native("INSERT INTO word_counts VALUES (%s, %s)", (document, tokens))

    def holds(self, document: int, own: str, previous: str) -> bool:
        """Whether the stored words of a document are those of its two texts."""
        spots, tokens = _counted(own, previous)
        held = self._connect().native("SELECT term, own, previous, tokens FROM words WHERE document = %s", (document,))
        counts = self._connect().native("SELECT tokens FROM word_counts WHERE document = %s", (document,)).fetchall()
        expected = {(term, each.own, each.previous, tokens) for term, each in spots.items()}
        return set(held.fetchall()) == expected and counts == [(tokens,)]

    def remove(self, documents: Sequence[int]) -> None:
        """Drop the words of documents."""
        if documents:
            for table in ("words", "word_counts"):
                self._connect().native(f"DELETE FROM {table} WHERE document = ANY(%s)", (list(documents),))

    def compact(self) -> None:
        """Nothing is kept of words that were dropped."""

    def clear(self) -> None:
        """Forget all words."""
        for table in ("words", "word_counts"):
            self._connect().native(f"DELETE FROM {table}")

    def search(self, terms: Sequence[str], limit: int, bounds: Bounds) -> LexicalHits:
        """Documents that share a term with the query."""
        rows = bounds.documents + FILLER_ROWS
        if not terms:
            return LexicalHits({}, weigh_question(rows, (), 0))
        operands = {term: _TOKENIZER.operand(term) for term in terms}
        with self._words_read(bounds.scopes) as read:
            counted = read.counts(operands, COUNTED, bounds.documents)
            matching = [sum(counted[term]) for term in terms]
            telling = telling_terms(terms, matching, rows)
            if all(operands[term].is_word for term in telling):
                words = [(operands[term].terms[0], sum(counted[term])) for term in telling]
                best = read.best(words, limit, bounds.condition)
                scores = {int(document): float(score) for document, score in best}
            else:
                read.fetch(operands[term] for term in telling)
                found = [(read.found(operands[term]), sum(counted[term])) for term in telling]
                scores = read.ranked(found, limit, bounds.condition)
            few = [term for term, count in zip(terms, matching, strict=True) if 0 < count <= RARE_DOCUMENTS * VIEWS]
            rare = frozenset(self.holding(few, RARE_DOCUMENTS, bounds))
        known = sum(count > 0 for count, _ in counted.values())
        question = weigh_question(rows, matching, known, [word_share(term) for term in terms])
        return LexicalHits(scores, question, rare)

    def holding(self, terms: Sequence[str], limit: int, bounds: Bounds) -> dict[int, float]:
        """Documents that hold a term which at most ``limit`` documents hold."""
        best: dict[int, float] = {}
        with self._words_read(bounds.scopes) as read:
            read.fetch(map(_TOKENIZER.operand, terms))
            for term in terms:
                for document, score in read.holders([term], limit, bounds.condition).items():
                    best[document] = max(score, best.get(document, 0.0))
        return best

    def holding_all(self, terms: Sequence[str], limit: int, bounds: Bounds) -> dict[int, float]:
        """Documents that hold every term, if at most ``limit`` do."""
        if not terms:
            return {}
        with self._words_read(bounds.scopes) as read:
            return read.holders(terms, limit, bounds.condition)

    def holding_any(self, topic: Sequence[str], limit: int, bounds: Bounds) -> list[int]:
        """Documents that hold any of the operands of a topic, best first."""
        operands = [_TOKENIZER.operand(term) for term in topic]
        with self._words_read(bounds.scopes) as read:
            read.fetch(operands)
            return list(read.ranked([read.own(operand) for operand in operands], limit, bounds.condition))

    def sharing(self, terms: Sequence[str], limit: int, bounds: Bounds, *, indexed: bool) -> list[tuple[str, str]]:
        """``(uri, own text)`` of memories that share rare terms with another."""
        operands = {term: _TOKENIZER.operand(term) for term in terms}
        with self._words_read(bounds.scopes) as read:
            counted = read.counts(operands, SHARED_FROM, own=True)
            ordered = sorted((min(SHARED_FROM, sum(counted[term])), term) for term in terms)
            rarest = [(count, operands[term]) for count, term in ordered if count > indexed][:RAREST_TERMS]
            if not rarest:
                return []
            memories = all_of([Condition("d.context_type <> 'resource'"), bounds.condition]) or ANYTHING
            joint = sum(count for count, _ in rarest) > SHARED_FROM
            if all(operand.is_word for _, operand in rarest):
                words = [(operand.terms[0], count) for count, operand in rarest]
                best = read.best(words, limit, memories, joint=joint, columns=", d.uri, d.own")
                return [(uri, own) for _, _, uri, own in best]
            read.fetch(operand for _, operand in rarest)
            found = [(read.found(operand), count) for count, operand in rarest]
            return read.texts(list(read.ranked(found, None, None, joint=joint)), limit, memories)

    def linked(self, terms: Sequence[str], bounds: Bounds) -> dict[int, float]:
        """Documents that share the rarest terms of a text that others use, too, with their share of them."""
        operands = {term: _TOKENIZER.operand(term) for term in terms}
        found: dict[int, float] = {}
        with self._words_read(bounds.scopes) as read:
            counted = read.counts(operands, COMMON_FROM, own=True)
            shared = sorted((sum(each), term) for term, each in counted.items())
            shared = [(count, term) for count, term in shared if 1 < count <= most_linked(bounds.documents)]
            weights = {term: idf(bounds.documents + FILLER_ROWS, count) for count, term in shared[:LINK_TERMS]}
            read.fetch(operands[term] for term in weights)
            held = {term: read.own(operands[term]) for term in weights}
            passing = read.passing({document for term in weights for document in held[term][0]}, bounds.condition)
        for term, weight in weights.items():
            for document in held[term][0].keys() & passing:
                found[document] = found.get(document, 0.0) + weight / sum(weights.values())
        return found

    @contextmanager
    def _words_read(self, scopes: Sequence[str] | None) -> Iterator[_WordsRead]:
        """The words of these scopes in one transaction, which remembers what was read of them."""
        with self._connect().together() as reading:
            read = _WordsRead(reading, scopes)
            if reading.kept is not None:
                read = reading.kept.setdefault(None if scopes is None else tuple(scopes), read)
            yield read

    def turns_with(self, term: str, spaces: Sequence[str]) -> list[tuple[str, str, str]]:
        """``(uri, speaker, own)`` of some turns that hold a term."""
        with self._words_read(None) as read:
            return read.turns(_TOKENIZER.operand(term), spaces)

    def is_held(self, term: str, bounds: Bounds) -> bool:
        """Whether any document within the scopes holds the term."""
        with self._words_read(bounds.scopes) as read:
            return read.counts({term: _TOKENIZER.operand(term)}, 1)[term][0] > 0


class _WordsRead:
    """The words that searches of one state see: of all documents of the tenant, or of some spaces."""

    def __init__(self, connection: Any, scopes: Sequence[str] | None) -> None:
        self._connection = connection
        self._within = ""
        self._ids: tuple[list[int], ...] = ()
        if scopes is not None:
            self._within = f" AND w.document IN ({_OF_SPACES})"
            self._ids = ([int(scope.removeprefix("space")) for scope in scopes],)
        self._postings: dict[str, dict[int, _Spots]] = {}
        self._prefixes: set[str] = set()
        #: About how many documents hold a word, of those that were counted.
        self._seen: dict[str, int] = {}

    def counts(
        self, operands: Mapping[str, _Operand], most: int = COUNTED, documents: int = 0, *, own: bool = False
    ) -> dict[str, tuple[int, int]]:
        """For each operand, by its name: how many documents hold it in either text, and how many fillers.

        Args:
            operands: By name.
            most: Documents of a word that are counted one by one; beyond, it is estimated how many there are.
            documents: How many there are at all; 0 estimates nothing.
            own: Whether only a document's own text counts.
        """
        single = {each.terms[0] for each in operands.values() if each.is_word and each.terms[0] not in self._postings}
        rows = (
            ()
            if not single
            else self._connection.execute(
                "SELECT asked.term, held.count, held.last FROM unnest(?::text[]) AS asked (term), LATERAL ("
                "SELECT count(*) AS count, max(document) AS last FROM (SELECT document FROM words w "
                f"WHERE term = asked.term{_OWN if own else ''}{self._within} ORDER BY document LIMIT ?) one) held "
                "WHERE held.count > 0",
                (list(single), *self._ids, most),
            )
        )
        counted = {
            str(term): self._estimated(int(count), last, documents) if count == most and documents else int(count)
            for term, count, last in rows
        }
        self.fetch(each for each in operands.values() if not each.is_word)
        self._seen |= {term: max(count, self._seen.get(term, 0)) for term, count in counted.items()}
        return {
            name: (
                counted.get(each.terms[0], 0)
                if each.is_word and each.terms[0] in single
                else len(self.own(each)[0] if own else self.found(each)),
                len(_standing(each, _fillers()[0])),
            )
            for name, each in operands.items()
        }

    def _estimated(self, count: int, last: int, documents: int) -> int:
        """How many documents hold a word, from how densely those lie that were counted, as numbers go."""
        lowest, highest = self._ends
        density = count / max(last - lowest + 1, 1)
        return max(count, min(int(density * (highest - lowest + 1)), documents))

    @cached_property
    def _ends(self) -> tuple[int, int]:
        """The lowest and the highest number of a document."""
        (ends,) = self._connection.execute("SELECT min(id), max(id) FROM documents")
        return ends[0], ends[1]

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
        asked = [_TOKENIZER.operand(term) for term in terms]
        if len(asked) > 1 and all(operand.is_word for operand in asked):
            return self._holders_of_all({operand.terms[0]: operand for operand in asked}, limit, condition)
        best = self.ranked([self.own(operand) for operand in asked], limit + 1, condition, joint=True)
        if len(best) > limit:
            return {}
        return best if not self._ids else dict.fromkeys(best, 0.0)

    def _holders_of_all(
        self, words: Mapping[str, _Operand], limit: int, condition: Condition | None
    ) -> dict[int, float]:
        """``holders`` of whole words: who holds all is asked by the rarest, and only they are read."""
        held = _HOLDS_TOO.format(" AND o.own <> ''")
        first, *others = sorted(words, key=lambda word: self._seen.get(word, 0))
        passing = "" if condition is None else f" AND {condition.sql}"
        rows = self._connection.execute(
            "SELECT w.document FROM words w JOIN documents d ON d.id = w.document WHERE w.term = ? AND w.own <> ''"
            f"{held * len(others)}{self._within}{passing} LIMIT ?",
            (first, *others, *self._ids, *(() if condition is None else condition.parameters), limit + 1),
        )
        documents = [int(document) for (document,) in rows]
        if self._ids or not 0 < len(documents) <= limit:
            return dict.fromkeys(documents if len(documents) <= limit else (), 0.0)
        counted = self.counts(words, own=True)
        read = self._connection.execute(
            "SELECT term, document, own, tokens FROM words WHERE term = ANY(?) AND document = ANY(?)",
            (list(words), documents),
        )
        found: dict[str, _Found] = {word: {} for word in words}
        for word, document, own, tokens in read:
            found[word][document] = _Often(_count(own), 0, tokens)
        return self.ranked([(found[word], sum(counted[word])) for word in words], limit, None, joint=True)

    def ranked(
        self,
        found: Sequence[tuple[_Found, int]],
        limit: int | None,
        condition: Condition | None,
        *,
        joint: bool = False,
    ) -> dict[int, float]:
        """BM25 by document of the best that hold any operand, or all of them.

        Args:
            found: For each operand who holds it, and the rows that do, fillers included.
            limit: Documents at most; None for all.
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
        rows, average = self._totals
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

    def best(
        self,
        words: Sequence[tuple[str, int]],
        limit: int,
        condition: Condition | None,
        *,
        joint: bool = False,
        columns: str = "",
    ) -> list[tuple[Any, ...]]:
        """What ``ranked`` returns, computed by the database: ``(document, BM25)`` and further columns, best first.

        Args:
            words: Each with the rows that hold it, fillers included; the first the rarest, where all must be held.
            limit: Documents at most.
            condition: A condition over ``documents d``.
            joint: Whether all of the words must be held.
            columns: Of ``documents d``, each after a comma.
        """
        rows, average = self._totals
        terms = [term for term, _ in words]
        weights = [idf(rows, matching) for _, matching in words]
        others = terms[1:] if joint else []
        held = _HOLDS_TOO.format("") * len(others)
        some = f"SELECT w.document FROM words w WHERE w.term = ?{held}{self._within}"
        among = f" AND w.document IN ({some})" if joint else self._within
        joined = condition is not None or columns
        found = self._connection.execute(
            f"SELECT scored.* {columns} FROM (SELECT w.document, sum(asked.weight * (often * ?::float8) / "
            "(often + ?::float8 * (?::float8 + ?::float8 * w.tokens / ?::float8)) ORDER BY asked.place) AS score "
            "FROM unnest(?::text[], ?::float8[]) WITH ORDINALITY AS asked (term, weight, place) "
            "JOIN words w ON w.term = asked.term, "
            f"LATERAL (SELECT ?::float8 * {_PLACES.format('own')} "
            f"+ ?::float8 * {_PLACES.format('previous')} AS often) o "
            f"WHERE w.term = ANY(?){among} GROUP BY w.document) scored "
            + ("JOIN documents d ON d.id = scored.document " if joined else "")
            + (f"WHERE {condition.sql} " if condition else "")
            + "ORDER BY score DESC, document LIMIT ?",
            (
                *(K1 + 1, K1, 1 - B, B, average, terms, weights, *COLUMN_WEIGHTS, terms),
                *((terms[0], *others) if joint else ()),
                *self._ids,
                *(() if condition is None else condition.parameters),
                limit,
            ),
        )
        return list(found.fetchall())

    def passing(self, documents: set[int], condition: Condition | None) -> set[int]:
        """Those of some documents that a condition over ``documents d`` lets pass."""
        if not documents or condition is None:
            return documents
        rows = self._connection.execute(
            f"SELECT d.id FROM documents d WHERE d.id = ANY(?) AND {condition.sql}",
            (list(documents), *condition.parameters),
        )
        return {int(document) for (document,) in rows}

    def texts(self, documents: Sequence[int], limit: int, condition: Condition) -> list[tuple[str, str]]:
        """``(uri, own text)`` of the first of some documents that meet a condition."""
        found: list[tuple[str, str]] = []
        for start in range(0, len(documents), _ASKED_TEXTS):
            asked = documents[start : start + _ASKED_TEXTS]
            rows = self._connection.execute(
                f"SELECT d.id, d.uri, d.own FROM documents d WHERE d.id = ANY(?) AND {condition.sql}",
                (list(asked), *condition.parameters),
            )
            texts = {int(number): (uri, own) for number, uri, own in rows}
            found += [texts[document] for document in asked if document in texts]
            if len(found) >= limit:
                break
        return found[:limit]

    def turns(self, operand: _Operand, spaces: Sequence[str]) -> list[tuple[str, str, str]]:
        """``(uri, speaker, own text)`` of some turns that hold an operand."""
        held, _ = self.own(operand)
        rows = self._connection.execute(
            "SELECT uri, speaker, own FROM documents WHERE id = ANY(?) AND memory_type = 'message' "
            "AND space = ANY(?) ORDER BY id LIMIT ?",
            (list(held), list(spaces), TURNS),
        )
        return list(rows.fetchall())

    @cached_property
    def _totals(self) -> tuple[int, float]:
        """How many rows there are, fillers included, and words of a row on average."""
        counted = f"SELECT count(*), coalesce(sum(tokens), 0) FROM word_counts w WHERE 1{self._within}"
        if not self._ids:
            counted = "SELECT coalesce(sum(documents), 0), coalesce(sum(tokens), 0) FROM word_totals"
        (total,) = self._connection.execute(counted, self._ids)
        rows = int(total[0]) + FILLER_ROWS
        return rows, (int(total[1]) + _fillers()[1]) / rows

    def _read(self, where: str, *values: Any) -> None:
        rows = self._connection.execute(
            f"SELECT term, document, own, previous, tokens FROM words w WHERE {where}{self._within}",
            (*values, *self._ids),
        )
        for term, document, *spots in rows:
            self._postings.setdefault(term, {})[document] = _Spots(*spots)


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
