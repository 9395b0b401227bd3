"""Candidates for a query: documents found by words, by meaning, or by holding exactly what was asked for.

Gathers everything that is known of each and judges nothing; ``ranker`` does. What was gathered is cached until
any process commits or embeds something, so a repeated query costs a look at two counters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from heapq import nlargest
from typing import TYPE_CHECKING, NamedTuple

from memory_core.core.caches import RecentCache
from memory_core.core.frozen import frozen
from memory_core.core.index import search_rows
from memory_core.core.index.catalog import Position, Saying
from memory_core.core.index.filter import Condition
from memory_core.core.index.indexer import Indexer
from memory_core.core.index.tokenizer import exact_terms, is_sentence, mentioned, query_terms
from memory_core.core.index.vectors import changes
from memory_core.core.search.fusion import (
    DATE_TOLERANCE,
    TOPIC_IDF,
    Candidate,
    Question,
    date_share,
    with_topics,
)
from memory_core.core.search.owner import OwnersQuestion
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
_DAY_CHARS = len("YYYY-MM-DD")
_UNSAID = Saying(None, None)


@frozen
class Sought:
    """What is looked for.

    Attributes:
        asked: The query, read for what it asks about the owner.
        vectors: Its meaning, each float32 (dim,): one for each way to put it, of which the nearer counts. Without
            any, words alone are searched.
        condition: What documents must meet.
        least: Documents that meaning alone should yield while a filter allows.
        spans: Times that the query names.
    """

    asked: OwnersQuestion
    vectors: tuple[Vectors, ...]
    condition: Condition | None
    least: int
    spans: tuple[TimeSpan, ...] = ()


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
    """Candidates, what the store knows of the query's terms, and whether a cache answered."""

    evidence: tuple[Evidence, ...]
    question: Question
    cached: bool = False


_Key = tuple[Position, int, OwnersQuestion, int, str, Condition | None, int, tuple[TimeSpan, ...]]


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
        self._cache: RecentCache[_Key, Gathered] = RecentCache(cached_queries)
        self._counted: tuple[Position, int] | None = None

    def gather(self, sought: Sought) -> Gathered:
        """Everything known of each candidate: found by any way, scored by all."""
        embedder = self._indexer.embedder
        key = (
            self._catalog.position(),
            changes(self._catalog.connection()),
            sought.asked,
            len(sought.vectors),
            "" if embedder is None or not sought.vectors else embedder.fingerprint,
            sought.condition,
            sought.least,
            sought.spans,
        )
        found = self._cache.get(key)
        if found is not None:
            return Gathered(found.evidence, found.question, cached=True)
        gathered = self._gather(sought)
        self._cache.put(key, gathered)
        return gathered

    def _gather(self, sought: Sought) -> Gathered:
        connection = self._catalog.connection()
        scopes = self._catalog.scope_terms(self._spaces)
        asked = sought.asked
        terms = query_terms(asked.rest, fillers=not asked.topics)
        words = search_rows.search(connection, terms, CANDIDATES, self._documents(), scopes, sought.condition)
        exact = search_rows.holding(connection, exact_terms(asked.text), _EXACT_DOCUMENTS, scopes, sought.condition)
        whole: dict[int, float] = {}
        lone = bool(sought.vectors) and len(terms) == 1 and is_sentence(asked.rest)
        if len(terms) <= _WHOLE_TERMS and not asked.topics and not lone:
            whole = search_rows.holding_all(connection, terms, _EXACT_DOCUMENTS, scopes, sought.condition)
        scores = dict(words.scores)
        for topic in asked.topics:
            for document in search_rows.telling(connection, topic, CANDIDATES, scopes, sought.condition):
                scores[document] = scores.get(document, 0.0) + TOPIC_IDF
        for identifier, score in (*exact.items(), *whole.items()):
            scores.setdefault(identifier, score)
        cosines = self._nearest(sought)
        found = dict.fromkeys((*scores, *words.rare, *self._dated(sought)))
        cosines |= self._cosines([document for document in found if document not in cosines], sought.vectors)
        candidates = [*dict.fromkeys((*found, *cosines))]
        sayings = self._catalog.sayings(candidates)
        names = {saying.speaker for saying in sayings.values() if saying.speaker is not None}
        named = mentioned(asked.text, names)
        if asked.names:
            named |= names & {"user", *asked.names}
        evidence = tuple(
            Evidence(
                document=document,
                candidate=Candidate(
                    bm25=max(0.0, scores.get(document, 0.0)),
                    cosine=cosines.get(document),
                    names_speaker=(saying := sayings.get(document, _UNSAID)).speaker in named,
                    names_date=date_fit(saying.happened, sought.spans),
                ),
                exact=document in exact,
                whole=document in whole,
                rare=document in words.rare,
            )
            for document in candidates
        )
        question = replace(words.question, lone=lone)
        return Gathered(evidence, with_topics(question, len(asked.topics)))

    def _documents(self) -> int:
        """How many documents there are within the spaces; counted once for each state of the catalog."""
        position = self._catalog.position()
        if self._counted is None or self._counted[0] != position:
            rows = self._catalog.connection().execute(
                f"SELECT count(*) FROM documents WHERE space IN ({', '.join('?' * len(self._spaces))})", self._spaces
            )
            self._counted = (position, int(rows.fetchone()[0]))
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
