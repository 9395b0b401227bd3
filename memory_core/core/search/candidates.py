"""Candidates for a query: documents found by words, by meaning, or by holding exactly what was asked for.

Gathers everything that is known of each and judges nothing; ``ranking`` does. What was gathered is cached until
something of the spaces is committed or embedded, by whatever process: what others do shows in no figure of a search.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from heapq import nlargest
from typing import TYPE_CHECKING, NamedTuple

from memory_core.core.caches import RecentCache
from memory_core.core.frozen import frozen
from memory_core.core.index.catalog import Saying
from memory_core.core.index.filter import Bounds, Condition
from memory_core.core.index.indexer import Indexer
from memory_core.core.index.tokenizer import exact_terms, is_sentence, phrase_operand, query_terms
from memory_core.core.search.fusion import (
    DATE_TOLERANCE,
    TOPIC_IDF,
    Calibration,
    Candidate,
    Question,
    Weights,
    date_share,
    fuse,
    with_topics,
)
from memory_core.core.search.owner import OwnersQuestion
from memory_core.core.search.speakers import addressed, addressing, named_speakers, people_in
from memory_core.core.text.analysis import word_count
from memory_core.core.text.time_expressions import TimeSpan, month_days

if TYPE_CHECKING:
    from memory_core.core.index.encoder import Vectors


CANDIDATES = 100
_MOST_CANDIDATES = 20_000
#: Documents that a narrow filter lets pass are compared one by one, up to so many.
_FEW_DOCUMENTS = 5_000
#: A phrase or identifier that more documents hold names none of them.
_EXACT_DOCUMENTS = 10
#: What holds every word of a question of at most so many is an answer, however long it is.
_WHOLE_TERMS = 6
#: Documents of a named time that are looked at in each space.
_DATED_DOCUMENTS = 50
#: Names of which it is remembered whom they mean.
_NICKNAMES = 64
_DAY_CHARS = len("YYYY-MM-DD")
_UNSAID = Saying(None, None, 1.0)
#: A longer text says more than one fact, and links to too much.
_FACT_WORDS, _FACT_CHARS = 25, 400
#: The best candidate is what the query means if the next one has at most this share of its score.
_CERTAIN = 0.95
#: The best candidate is one of so many by words, or by meaning.
_FOREMOST = 16
#: What is linked to it comes up to this share of its score.
_LINKED_MOST = 0.85


@frozen
class Sought:
    """What is looked for.

    Attributes:
        asked: The query, read for what it asks about the owner.
        vectors: Its meaning, each float32 (dim,): one for each way to put it, of which the nearer counts. Without
            any, words alone are searched. Not compared: they follow from the question and the model.
        condition: What documents must meet.
        least: Documents that meaning alone should yield while a filter allows.
        spans: Times that the query names.
        calibration: What cosines of the query mean.
        follows: Whether what shares rare words with the best candidate is a candidate, too.
    """

    asked: OwnersQuestion
    vectors: tuple[Vectors, ...] = field(compare=False)
    condition: Condition | None
    least: int
    spans: tuple[TimeSpan, ...] = ()
    calibration: Calibration = Calibration()
    follows: bool = False


class Evidence(NamedTuple):
    """What is known of one document.

    Attributes:
        document: Its id in the catalog.
        candidate: What its score is made of.
        exact: Whether it holds a phrase or an identifier of the query as it stands there.
        whole: Whether it holds every word of the query, which few documents do.
        rare: Whether it holds a word of the query that hardly any other document holds.
    """

    document: int
    candidate: Candidate
    exact: bool = False
    whole: bool = False
    rare: bool = False


@frozen
class Gathered:
    """Candidates, what the store knows of the query's terms, what its cosines mean, and whether a cache answered."""

    evidence: tuple[Evidence, ...]
    question: Question
    calibration: Calibration = Calibration()
    cached: bool = False


@dataclass(slots=True)
class _Pool:
    """Documents that a query may mean, as they are collected.

    Attributes:
        sought: The query.
        scores: BM25 by document.
        cosines: By document, of those whose vectors were compared.
        sayings: What else is known of each document of the pool.
        speakers: Whoever says any of them.
        named: Those of the speakers whom the query means.
        links: Shares of the best candidate's rare words, by document.
    """

    sought: Sought
    scores: Mapping[int, float]
    cosines: dict[int, float]
    sayings: dict[int, Saying] = field(default_factory=dict)
    speakers: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    links: dict[int, float] = field(default_factory=dict)

    def candidates(self, documents: Iterable[int]) -> dict[int, Candidate]:
        """Documents of the pool as they are scored."""
        return {
            document: Candidate(
                max(0.0, self.scores.get(document, 0.0)),
                self.cosines.get(document),
                saying.speaker in self.named,
                date_fit(saying.happened, self.sought.spans),
                self.links.get(document, 0.0),
                saying.substance,
            )
            for document, saying in ((document, self.sayings[document]) for document in documents)
        }


class CandidateSearch:
    """Gathers candidates from one store within the given spaces.

    Args:
        indexer: Words, vectors and the catalog; brought up to date by the caller.
        spaces: ``scope/space`` names that may be seen.
        cached_queries: How many queries' candidates are kept.
    """

    def __init__(self, indexer: Indexer, spaces: Sequence[str], cached_queries: int) -> None:
        self._indexer = indexer
        self._catalog = indexer.catalog
        self._spaces = tuple(spaces)
        self._cache: RecentCache[tuple[Hashable, str, Sought], Gathered] = RecentCache(cached_queries)
        self._nicknames: RecentCache[tuple[Hashable, str], tuple[str | None]] = RecentCache(_NICKNAMES)
        self._counted: tuple[Hashable, int] | None = None

    def gather(self, sought: Sought) -> Gathered:
        """Everything known of each candidate: found by any way, scored by all."""
        embedder = self._indexer.embedder
        model = "" if embedder is None or not sought.vectors else embedder.fingerprint
        key = (self._catalog.state(self._spaces), model, sought)
        found = self._cache.get(key)
        if found is not None:
            return replace(found, cached=True)
        gathered = self._gather(sought)
        self._cache.put(key, gathered)
        return gathered

    def _gather(self, sought: Sought) -> Gathered:
        words = self._catalog.words
        asked = sought.asked
        bounds = Bounds(self._catalog.scope_terms(self._spaces), self._documents(), sought.condition)
        terms = query_terms(asked.rest, fillers=not asked.topics)
        lexical = words.search(terms, CANDIDATES, bounds)
        exact = words.holding(exact_terms(asked.text), _EXACT_DOCUMENTS, bounds)
        whole: dict[int, float] = {}
        lone = bool(sought.vectors) and len(terms) == 1 and is_sentence(asked.rest)
        if len(terms) <= _WHOLE_TERMS and not asked.topics and not lone:
            whole = words.holding_all(terms, _EXACT_DOCUMENTS, bounds)
        scores = dict(lexical.scores)
        for topic in asked.topics:
            for document in words.holding_any(topic, CANDIDATES, bounds):
                scores[document] = scores.get(document, 0.0) + TOPIC_IDF
        for identifier, score in (*exact.items(), *whole.items()):
            scores.setdefault(identifier, score)
        stranger = not asked.of_user and self._names_strangers(asked.text, bounds)
        question = with_topics(
            replace(lexical.question, lone=lone, stranger=stranger, own=asked.of_user), len(asked.topics)
        )
        pool = _Pool(sought, scores, self._nearest(sought))
        self._add(pool, (*scores, *lexical.rare, *self._dated(sought), *pool.cosines))
        if sought.follows and pool.sayings:
            pool.links = self._linked(pool, question, terms, bounds)
            self._add(pool, pool.links)
        evidence = tuple(
            Evidence(document, candidate, document in exact, document in whole, document in lexical.rare)
            for document, candidate in pool.candidates(pool.sayings).items()
        )
        return Gathered(evidence, question, sought.calibration)

    def _add(self, pool: _Pool, documents: Iterable[int]) -> None:
        """Learn what ranking needs to know of further documents."""
        new = [document for document in dict.fromkeys(documents) if document not in pool.sayings]
        pool.cosines |= self._cosines([each for each in new if each not in pool.cosines], pool.sought.vectors)
        known = self._catalog.sayings(new)
        pool.sayings |= {document: known.get(document, _UNSAID) for document in new}
        speakers = {saying.speaker for saying in known.values() if saying.speaker is not None} - pool.speakers
        pool.speakers |= speakers
        if speakers:
            pool.named = self._named(pool.sought.asked, pool.speakers)

    def _linked(self, pool: _Pool, question: Question, terms: Sequence[str], bounds: Bounds) -> dict[int, float]:
        """What shares rare words with the best candidate beside those of the query, where that one is short.

        "Who works in Shenzhen, and what is her number?" names a place; the best candidate names the person.
        """

        def score(documents: Iterable[int]) -> dict[int, float]:
            candidates = pool.candidates(documents)
            return {
                document: found.total
                for document, found in zip(
                    candidates, fuse([*candidates.values()], question, calibration=pool.sought.calibration), strict=True
                )
            }

        nearest = (nlargest(_FOREMOST, by, key=by.__getitem__) for by in (pool.scores, pool.cosines))
        scored = score(dict.fromkeys(document for documents in nearest for document in documents) or pool.sayings)
        best, *others = nlargest(2, scored, key=lambda document: scored[document])
        if others and scored[others[0]] > _CERTAIN * scored[best]:
            return {}
        text = self._catalog.texts([best]).get(best, "").removeprefix(f"{pool.sayings[best].speaker}: ")
        if len(text) > _FACT_CHARS or word_count(text) > _FACT_WORDS:
            return {}
        unasked = [term for term in query_terms(text) if term not in terms]
        shares = self._catalog.words.linked(unasked, bounds)
        shares.pop(best, None)
        for document, own in score(shares.keys() & pool.sayings.keys()).items():  # near the best one, and no tie
            room = (_LINKED_MOST * scored[best] - own) / Weights().linked
            shares[document] = max(0.0, min(shares[document], room))
        return shares

    def _names_strangers(self, text: str, bounds: Bounds) -> bool:
        """Whether a question names people, and none of whom any document speaks."""
        terms = [query_terms(name) for name in people_in(text)]
        is_held = self._catalog.words.is_held
        return bool(terms) and not any(is_held(term, bounds) for (term, *_) in terms if term)

    def _named(self, asked: OwnersQuestion, speakers: set[str]) -> set[str]:
        """Those of the speakers whom the query means."""

        def nicknamed(name: str) -> str | None:
            key = (self._catalog.state(self._spaces), name)
            if (meant := self._nicknames.get(key)) is None:
                (term, *_) = query_terms(name) or (phrase_operand(name),)
                turns = addressing(name, self._catalog.words.turns_with(term, self._spaces))
                meant = (addressed(turns, self._catalog.speakers([uri for uri, _ in turns])) if turns else None,)
                self._nicknames.put(key, meant)
            return meant[0]

        named = named_speakers(asked.text, speakers, nicknamed)
        if asked.names or (asked.of_user and "assistant" in speakers):
            named |= speakers & {"user", *asked.names}
        return named

    def _documents(self) -> int:
        """How many documents there are within the spaces; counted once for each state of them."""
        state = self._catalog.state(self._spaces)
        if self._counted is None or self._counted[0] != state:
            rows = self._catalog.connection().execute(
                f"SELECT count(*) FROM documents WHERE space IN ({', '.join('?' * len(self._spaces))})", self._spaces
            )
            self._counted = (state, int(rows.fetchone()[0]))
        return self._counted[1]

    def _dated(self, sought: Sought) -> list[int]:
        """Documents of the times that the query names, whatever they say."""
        found: list[int] = []
        for span in sought.spans:
            start, end = span.start.isoformat(), (span.end + DATE_TOLERANCE).isoformat()
            for space in self._spaces:
                found += self._catalog.happened_between(space, start, end, _DATED_DOCUMENTS, sought.condition)
        return found

    def _nearest(self, sought: Sought) -> dict[int, float]:
        """Documents near the query's meaning, by id; where a filter leaves too few of them, those that it lets pass."""
        embedder = self._indexer.embedder
        if not sought.vectors or embedder is None:
            return {}
        connection = self._catalog.connection()
        wanted = max(CANDIDATES, sought.least)
        while True:
            near = self._indexer.vectors.nearest(connection, self._spaces, embedder.fingerprint, sought.vectors, wanted)
            complete = near.complete and len(near.cosines) <= wanted
            best = dict(nlargest(wanted, near.cosines.items(), key=lambda found: found[1]))
            if sought.condition is not None:
                allowed = self._catalog.satisfying(list(best), sought.condition)
                best = {document: cosine for document, cosine in best.items() if document in allowed}
            if len(best) >= sought.least or complete or wanted >= _MOST_CANDIDATES:
                return best
            if sought.condition is not None and wanted > CANDIDATES:
                passing = self._catalog.matching(self._spaces, sought.condition, _FEW_DOCUMENTS + 1)
                if len(passing) <= _FEW_DOCUMENTS:
                    cosines = self._cosines(passing, sought.vectors)
                    return dict(nlargest(wanted, cosines.items(), key=lambda found: found[1]))
            wanted *= 8

    def _cosines(self, documents: Sequence[int], vectors: Sequence[Vectors]) -> dict[int, float]:
        """The best cosine of each document's passages."""
        embedder = self._indexer.embedder
        if not vectors or embedder is None or not documents:
            return {}
        connection = self._catalog.connection()
        return self._indexer.vectors.cosines(connection, self._spaces, embedder.fingerprint, vectors, documents)


def date_fit(happened: str | None, spans: Sequence[TimeSpan]) -> float:
    """How well what happened then, a date to the day, month or year, fits the best of the times, in [0, 1]."""
    if happened is None or not spans:
        return 0.0
    try:
        first = date.fromisoformat(f"{happened}-01-01"[:10] if len(happened) < _DAY_CHARS else happened)
    except ValueError:
        return 0.0
    last = first
    if len(happened) < _DAY_CHARS:
        months = 12 if len(happened) == len("YYYY") else 1
        last = month_days(first.year, first.month, months)[1]
    return max(date_share(first, last, span.start, span.end) for span in spans)
