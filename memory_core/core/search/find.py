"""``find``: candidates by words, by meaning and by what is named exactly, ranked, and none where nothing is relevant.

Brings the index up to date first, so that what any process committed a moment ago is found. Never writes a
memory file, and never shows what is private to another project. Without vectors (no model, or not ready in time)
it answers by words and says so.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, cast

from memory_core.core.caches import RecentCache
from memory_core.core.errors import ContentRejected, EmbeddingFailed, InvalidInput
from memory_core.core.index.filter import (
    Bounds,
    Condition,
    all_of,
    compile_filter,
    in_use,
    mentions,
    not_private_elsewhere,
    utc,
)
from memory_core.core.index.tokenizer import query_terms, says_something
from memory_core.core.memory.project import ProjectScope
from memory_core.core.memory.results import FindResult, Hit, Similar
from memory_core.core.memory.uri import MemoryUri, profile_of
from memory_core.core.search.candidates import CandidateSearch, Sought
from memory_core.core.search.fusion import Calibration, jaccard
from memory_core.core.search.owner import OwnersQuestion, names_of, read_question
from memory_core.core.search.ranking import RANKS, Judge, Lookup, Ranking, asks_of_past, hit_of, interleaved, rank_hits
from memory_core.core.search.subquestions import subquestions
from memory_core.core.text.analysis import distinct_words
from memory_core.core.text.language import is_small_talk
from memory_core.core.text.normalization import simplified
from memory_core.core.text.time_expressions import TimeSpan, time_spans

if TYPE_CHECKING:
    from memory_core.core.config import Config
    from memory_core.core.index.catalog import Entry
    from memory_core.core.index.encoder import Embedder, Reranker, Vectors
    from memory_core.core.index.indexer import Indexer
    from memory_core.core.memory.requests import FindRequest
    from memory_core.core.search.ranking import Profile
    from memory_core.core.store.ledger import Ledger


_LIMIT = 100
_QUERY_LIMIT_CHARS = 20_000
_EMBEDDED_QUERY_CHARS = 2_000
_TIMED_QUERY_CHARS = 2_000
_QUERY_VECTORS = 256
#: Memories that a receipt names as similar; of each text so much is compared, and so many terms are looked for.
_SIMILAR, _SIMILAR_CHARS, _SIMILAR_TERMS = 3, 1_000, 6
#: Changes that are compared as they are where the index has not taken them in yet.
_UNSEEN_CHANGES = 64
#: Texts whose words are remembered: those of the last commits are compared with each that follows.
_COMPARED_TEXTS = 256
_MEMORIES: Mapping[str, Any] = {"memory_type": {"ne": "message"}}
#: Share of words in common from which a receipt names the neighbour.
_SIMILAR_FROM = 0.5
#: Fields of a filter that asks for what is otherwise left out.
_STANDINGS = ("active", "expires_at")
_EVERYWHERE = ProjectScope()


class Retriever:
    """Searches one store within the given spaces.

    Args:
        indexer: Words, vectors and the catalog.
        ledger: Access statistics.
        spaces: ``scope/space`` names that may be seen.
        config: Defaults and waiting times.
        reranker: Judges the best hits again; None leaves them as they are.
    """

    def __init__(
        self, indexer: Indexer, ledger: Ledger, spaces: Sequence[str], config: Config, reranker: Reranker | None
    ) -> None:
        self._indexer = indexer
        self._catalog = indexer.catalog
        self._ledger = ledger
        self._spaces = tuple(spaces)
        self._config = config
        self._candidates = CandidateSearch(indexer, spaces, config.search.cached_queries)
        self._reranker = reranker
        self._vectors: RecentCache[tuple[str, str], Vectors] = RecentCache(_QUERY_VECTORS)

    def find(self, request: FindRequest, project: ProjectScope = _EVERYWHERE) -> FindResult:
        """The best ``request.limit`` hits of all kinds together.

        Args:
            request: What is looked for; ages count from its moment, and "yesterday" is seen from there.
            project: The project that is preferred, or searched alone.

        Raises:
            InvalidInput: If an argument is wrong.
        """
        query, limit, score_threshold = request.query, request.limit, request.score_threshold
        rank = request.rank or self._config.search.rank
        _check(query, limit, score_threshold, rank)
        if self._config.search.floor and self._config.retrieve.intent_check and is_small_talk(query):
            return FindResult(notes=("small talk: nothing was searched",))
        given = [compile_filter(request.filter), _below(request.target_uri)]
        behind = self._indexer.follow(spaces=self._spaces)
        notes = [] if behind is None else [behind.note()]
        now = request.now or datetime.now().astimezone()
        names = self.owner_names()
        asked = [read_question(question, names) for question in subquestions(query) or [query]]
        deadline = time.monotonic() + self._config.embedding.wait_seconds
        vectors = [self._meaning(question, notes, deadline) for question in asked]
        with self._catalog.reading():  # what another process commits meanwhile must not mix with what was gathered
            seen = all_of([*given, self._seen(project)])
            parts = [
                self._best(question, meaning, replace(request, rank=rank, now=now), project, seen, notes)
                for question, meaning in zip(asked, vectors, strict=True)
            ]
        lists = [hits for hits, _ in parts]
        kept = sorted(interleaved(lists)[:limit], key=lambda hit: -hit.score) if len(lists) > 1 else lists[0][:limit]
        if vectors[0] and self._indexer.vectors.trouble is not None:
            notes.append("the vector server is not used for now; nearness in meaning was computed here, exactly")
            self._indexer.wake()
        if not kept:
            notes.append(_nothing(score_threshold, any(given), project))
        return FindResult(
            memories=_group(kept, "memory"),
            resources=_group(kept, "resource"),
            skills=_group(kept, "skill"),
            notes=tuple(dict.fromkeys(notes)),
            cached=all(cached for _, cached in parts),
        )

    def _best(
        self,
        asked: OwnersQuestion,
        vectors: tuple[Vectors, ...],
        request: FindRequest,
        project: ProjectScope,
        seen: Condition | None,
        notes: list[str],
    ) -> tuple[list[Hit], bool]:
        """The hits of one question, and whether a cache knew its candidates."""
        now = request.now or datetime.now().astimezone()
        spans = time_spans(asked.text[-_TIMED_QUERY_CHARS:], now)
        ranking = Ranking(
            rank=cast("Profile", request.rank),
            limit=request.limit,
            score_threshold=request.score_threshold,
            floor=self._config.search.floor,
            project=project.current,
            time_only=bool(spans) and not says_something(_without(asked.text, spans)),
            rate_per_day=self._config.search.decay_lambda,
            past=asks_of_past(request.query),
        )
        lookup = Lookup(
            self._catalog.entries if mentions(request.filter, _STANDINGS) else partial(self._in_use, now),
            self._ledger.usage_table.usage,
            lambda uris: self._catalog.voices(uris, self._spaces, all_of([in_use(now), self._not_private(project)])),
            self._judge(asked.text, notes),
        )
        follows = "\n" not in asked.text.strip()  # several lines are what was said: they ask for what is near, no more
        found = self._candidates.gather(
            Sought(asked, vectors, seen, request.limit, spans, self._calibration(asked, vectors), follows)
        )
        kept = rank_hits(found, lookup, ranking, now)
        return (self._profile_first(kept, seen, now) if asked.whole else kept), found.cached

    def similar(self, uris: Sequence[str], project: ProjectScope) -> tuple[Similar, ...]:
        """Stored memories that share most of their words with the given new ones; never themselves.

        By words alone, so that a commit neither waits for the model nor depends on one.

        Returns:
            A few, nearest first; the score is the Jaccard index of their distinct words.
        """
        if not uris:
            return ()
        found: dict[str, float] = {}
        with self._catalog.together():
            unseen = self._indexer.unseen(_UNSEEN_CHANGES)
            near = [
                (uri, memory.own)
                for uri, memory in unseen.items()
                if memory.space in self._spaces and project.finds(memory.project, private=memory.private)
            ]
            seen = self._seen(project) if project.only else not_private_elsewhere(project.current)
            bounds = Bounds(self._catalog.scope_terms(self._spaces), condition=seen)
            for uri in uris:
                text = (unseen[uri].own if uri in unseen else self._catalog.own_text(uri))[:_SIMILAR_CHARS]
                terms, words = query_terms(text, _SIMILAR_TERMS), _compared_words(text)
                sharing = self._catalog.words.sharing(
                    terms, _SIMILAR + len(uris) + 2, bounds, indexed=uri not in unseen
                )
                for other, own in (*sharing, *near):
                    score = round(jaccard(words, _compared_words(own[:_SIMILAR_CHARS])), 3)
                    if score >= _SIMILAR_FROM and other not in uris:
                        found[other] = max(found.get(other, 0.0), score)
        best = sorted(found.items(), key=lambda item: (-item[1], item[0]))
        return tuple(Similar(uri, score) for uri, score in best[:_SIMILAR])

    @property
    def near_from(self) -> float:
        """The score from which ``near`` means that two texts may be about the same thing."""
        embedder = self._indexer.embedder
        return _SIMILAR_FROM if embedder is None or not embedder.ready() else embedder.scale.near

    def near(
        self, texts: Sequence[str], limit: int = 5, project: ProjectScope = _EVERYWHERE
    ) -> list[tuple[Similar, ...]]:
        """Stored memories that are near each text in meaning or in words; turns of conversations are left out.

        Returns:
            For each text at most ``limit``, nearest first; the score is the cosine, or the Jaccard index of the
            distinct words where that is more or there is no vector.
        """
        self._indexer.follow(spaces=self._spaces)
        deadline = time.monotonic() + self._config.embedding.wait_seconds  # of all of them together
        return [self._near(text[:_SIMILAR_CHARS], limit, project, deadline) if text.strip() else () for text in texts]

    def _near(self, text: str, limit: int, project: ProjectScope, deadline: float) -> tuple[Similar, ...]:
        asked = OwnersQuestion(text, rest=text, ways=(text,))
        vectors = self._meaning(asked, [], deadline)
        with self._catalog.reading():
            condition = all_of([compile_filter(_MEMORIES), self._seen(project)])
            evidence = self._candidates.gather(Sought(asked, vectors, condition, limit)).evidence
            nearest = sorted(evidence, key=lambda item: (-(item.candidate.cosine or 0.0), -item.candidate.bm25))[
                : 2 * limit
            ]
            entries = self._in_use(datetime.now(UTC), [item.document for item in nearest])
            owns = self._catalog.texts(list(entries))
        words = distinct_words(text)
        scored: dict[str, float] = {}
        for item in nearest:
            if item.document in entries:
                shared = jaccard(words, distinct_words(owns[item.document][:_SIMILAR_CHARS]))
                scored[entries[item.document].uri] = round(max(item.candidate.cosine or 0.0, shared), 3)
        best = sorted(scored.items(), key=lambda item: (-item[1], item[0]))
        return tuple(Similar(uri, score) for uri, score in best[:limit])

    def _in_use(self, now: datetime, documents: Sequence[int]) -> dict[int, Entry]:
        """Documents by id, without those that were put to rest or are past their time."""
        at = utc(now.isoformat()) or ""
        return {number: entry for number, entry in self._catalog.entries(documents).items() if entry.in_use(at)}

    def _profile_first(self, kept: list[Hit], seen: Condition | None, now: datetime) -> list[Hit]:
        """The hits with the profile before them, where it may be seen: it answers who somebody is."""
        its_own = Condition("d.uri = ?", (self.profile_uri,))
        found = self._catalog.matching(self._spaces, all_of([its_own, seen]) or its_own, 1)
        first = [hit_of(entry, 1.0, {"owner": 1.0}) for entry in self._in_use(now, found).values()]
        return [*first, *(hit for hit in kept if hit.uri not in {each.uri for each in first})]

    @property
    def profile_uri(self) -> str:
        """Where it says who the user is."""
        return profile_of(self._config.user_space)

    def owner_names(self, profile: str | None = None) -> tuple[str, ...]:
        """The names of the user whose memories these are, the usual one first; none where nobody said one.

        Args:
            profile: Its text; default what is indexed.
        """
        return names_of(self._config, self._catalog.own_text(self.profile_uri) if profile is None else profile)

    def _meaning(self, asked: OwnersQuestion, notes: list[str], deadline: float) -> tuple[Vectors, ...]:
        """The query's vectors, one for each way to put it; none where words alone must do, with a note why."""
        embedder = self._indexer.embedder
        if embedder is None:
            return ()
        if not embedder.ready(max(0.0, deadline - time.monotonic())):
            reason = embedder.failure or "the embedding model is not ready; ask again in a moment"
            notes.append(f"searched by words only: {reason}")
            return ()
        ways = [simplified(way[-_EMBEDDED_QUERY_CHARS:]) for way in asked.ways]
        try:
            if self._indexer.embed_waiting(self._spaces, deadline):  # how many wait is not said: some are other users'
                notes.append("not everything is searched by meaning yet, the rest by words; ask again in a moment")
            return self._vectors_of(ways, embedder)
        except EmbeddingFailed as error:
            notes.append(f"searched by words only: {error.message}")
            return ()

    def _vectors_of(self, texts: Sequence[str], embedder: Embedder) -> tuple[Vectors, ...]:
        """The vector of each text, to search with; those of before are remembered."""
        keys = [(embedder.fingerprint, text) for text in texts]
        found = {key: self._vectors.get(key) for key in keys}
        missing = [key for key, vector in found.items() if vector is None]
        if missing:
            for key, vector in zip(missing, embedder.embed([text for _, text in missing], query=True), strict=True):
                found[key] = vector
                self._vectors.put(key, vector)
        return tuple(vector for key in keys if (vector := found[key]) is not None)

    def _judge(self, query: str, notes: list[str]) -> Judge | None:
        """The cross-encoder's opinion, if there is one and it is loaded."""
        reranker = self._reranker
        if reranker is None:
            return None
        if not reranker.ready():
            notes.append(f"not reranked: {reranker.failure or 'the cross-encoder is still loading'}")
            return None

        def scores(documents: Sequence[int]) -> list[float]:
            texts = self._catalog.texts(documents)
            try:
                return reranker.scores(query, [texts.get(document, "") for document in documents])
            except EmbeddingFailed as error:
                notes.append(f"not reranked: {error.message}")
                return []

        return Judge(scores, self._config.search.rerank_candidates)

    def _calibration(self, asked: OwnersQuestion, vectors: Sequence[Vectors]) -> Calibration:
        embedder = self._indexer.embedder
        if embedder is None or not vectors:
            return Calibration()
        scale = embedder.scale.of(asked.text)
        return Calibration(scale.zero, scale.trust)

    def _seen(self, project: ProjectScope) -> Condition | None:
        """What keeps other projects' memories out; None where there is nothing to keep out."""
        if project.only:
            return Condition("d.project IS ?", (project.current,))
        return self._not_private(project)

    def _not_private(self, project: ProjectScope) -> Condition | None:
        """What keeps out that is private to other projects; None where nothing is."""
        return (
            not_private_elsewhere(project.current)
            if self._catalog.holds_private(self._spaces, project.current)
            else None
        )


@lru_cache(_COMPARED_TEXTS)
def _compared_words(text: str) -> frozenset[str]:
    return distinct_words(text)


def _check(query: str, limit: int, score_threshold: float | None, rank: str) -> None:
    if not query.strip() or "\x00" in query:
        raise ContentRejected("the query is blank or holds NUL.", hint="Ask a question or give key words.")
    if len(query) > _QUERY_LIMIT_CHARS:
        raise InvalidInput(f"the query has {len(query)} characters.", hint=f"Ask in at most {_QUERY_LIMIT_CHARS}.")
    if not 1 <= limit <= _LIMIT:
        raise InvalidInput(f"limit {limit} is out of range.", hint=f"Use 1 to {_LIMIT}.")
    if score_threshold is not None and not 0.0 <= score_threshold <= 1.0:
        raise InvalidInput(f"score_threshold {score_threshold} is out of range.", hint="Use 0 to 1.")
    if rank not in RANKS:
        raise InvalidInput(f"rank {rank!r} is unknown.", hint=f"Use one of: {', '.join(RANKS)}.")


def _below(target_uri: str) -> Condition | None:
    if not target_uri:
        return None
    uri = MemoryUri.parse(target_uri)
    if not uri.parts:
        return None
    # Everything below shares the prefix "uri/"; "0" is the character after "/".
    return Condition("(d.uri = ? OR (d.uri >= ? AND d.uri < ?))", (str(uri), f"{uri}/", f"{uri}0"))


def _without(query: str, spans: Sequence[TimeSpan]) -> str:
    """The query without the words that name a time."""
    for span in spans:
        query = query.replace(span.text, " ")
    return query


def _group(hits: Sequence[Hit], context_type: str) -> tuple[Hit, ...]:
    return tuple(hit for hit in hits if hit.context_type == context_type)


def _nothing(score_threshold: float | None, filtered: bool, project: ProjectScope) -> str:
    if score_threshold is not None:
        return f"nothing relevant scores {score_threshold:g} or more; lower score_threshold, or look around with tree"
    if project.only:
        return f"nothing relevant belongs to the project {project.current}; search without it, or look around with tree"
    if filtered:
        return "nothing relevant within the filter or target_uri; search without them, or look around with tree"
    return "nothing relevant is stored; try other words, or look around with tree"
