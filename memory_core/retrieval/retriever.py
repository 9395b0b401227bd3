"""``find``: candidates by words and by meaning, fused, ranked, and cut where nothing is relevant any more.

Brings the index up to date first, so that what any process committed a moment ago is found. Never writes a
memory file. Without vectors (no model, or not ready in time) it answers by words and says so.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from memory_core.config import Config
from memory_core.errors import ContentRejected, EmbeddingFailed, InvalidInput
from memory_core.index import lexical
from memory_core.index.catalog import Entry
from memory_core.index.filter import Condition, compile_filter
from memory_core.index.indexer import Indexer
from memory_core.index.tokenizer import distinct_words, mentions, query_terms
from memory_core.index.vectors import by_seq
from memory_core.model.changes import Similar
from memory_core.model.hits import FindResult, Hit
from memory_core.model.uri import MemoryUri
from memory_core.retrieval.ranker import RANKS, Evidence, Ranking, rank_hits
from memory_core.scoring.fusion import Question, jaccard
from memory_core.storage.ledger import Ledger

if TYPE_CHECKING:
    from memory_core.index.embedder import Scale, Vectors

CANDIDATES = 100
_MOST_CANDIDATES = 20_000
_LIMIT = 100
_QUERY_LIMIT_CHARS = 20_000
_EMBEDDED_QUERY_CHARS = 2_000
_SIMILAR_CHARS = 1_000
_SIMILAR_TERMS = 6
_MEMORIES: Mapping[str, Any] = {"memory_type": {"ne": "message"}}
#: Share of words in common from which a receipt names the neighbour.
_SIMILAR_FROM = 0.5


@dataclass(frozen=True, slots=True)
class _Query:
    text: str
    vector: Vectors | None
    condition: Condition | None
    notes: tuple[str, ...]


class Retriever:
    """Searches one store within the given spaces.

    Args:
        indexer: Words, vectors and the catalog.
        ledger: Access statistics.
        spaces: ``scope/space`` names that may be seen.
        config: Defaults and waiting times.
    """

    def __init__(self, indexer: Indexer, ledger: Ledger, spaces: Sequence[str], config: Config) -> None:
        self._indexer = indexer
        self._catalog = indexer.catalog
        self._ledger = ledger
        self._spaces = tuple(spaces)
        self._config = config

    def find(
        self,
        query: str,
        target_uri: str = "",
        limit: int = 10,
        score_threshold: float | None = None,
        filter: Mapping[str, Any] | None = None,
        rank: str | None = None,
        now: datetime | None = None,
    ) -> FindResult:
        """The best ``limit`` hits of all kinds together.

        Args:
            query: A question or key words.
            target_uri: Only files at or below it.
            limit: 1 to 100.
            score_threshold: Leave out hits below it, in [0, 1].
            filter: See ``index.filter``.
            rank: relevance, decay or weighted; None means the setting.
            now: Time that ages count from; default the clock's.

        Raises:
            InvalidInput: If an argument is wrong.
        """
        rank = rank or self._config.search.rank
        _check(query, limit, score_threshold, rank)
        prepared = self._prepare(query, target_uri, filter)
        evidence, question = self._evidence(prepared, limit)
        usage = self._ledger.usage({item.entry.uri for item in evidence})
        ranking = Ranking(rank, limit, score_threshold, self._config.search.floor)
        kept = rank_hits(evidence, question, usage, ranking, now or datetime.now(UTC), self._scale())
        notes = prepared.notes
        if not kept:
            notes = (*notes, _nothing(score_threshold, prepared.condition is not None))
        return FindResult(
            memories=_group(kept, "memory"),
            resources=_group(kept, "resource"),
            skills=_group(kept, "skill"),
            notes=notes,
        )

    def similar(self, uris: Sequence[str], limit: int = 3) -> tuple[Similar, ...]:
        """Stored memories that share most of their words with the given new ones; never themselves.

        By words alone, so that a commit neither waits for the model nor depends on one.

        Returns:
            At most ``limit``, nearest first; the score is the Jaccard index of their distinct words.
        """
        found: dict[str, float] = {}
        scopes = self._catalog.scope_terms(self._spaces)
        connection = self._catalog.connection()
        for uri in uris:
            text = self._catalog.own_text(uri)[:_SIMILAR_CHARS]
            terms, words = query_terms(text, _SIMILAR_TERMS), distinct_words(text)
            for other, own in lexical.sharing(connection, terms, scopes, limit + len(uris) + 2):
                if other not in uris:
                    score = jaccard(words, distinct_words(own[:_SIMILAR_CHARS]))
                    found[other] = max(found.get(other, 0.0), round(score, 3))
        best = sorted(found.items(), key=lambda item: (-item[1], item[0]))
        return tuple(Similar(uri, score) for uri, score in best if score >= _SIMILAR_FROM)[:limit]

    @property
    def near_from(self) -> float:
        """The score from which ``near`` means that two texts may be about the same thing."""
        scale = self._scale()
        return _SIMILAR_FROM if scale is None else scale.near

    def near(self, texts: Sequence[str], limit: int = 5) -> list[tuple[Similar, ...]]:
        """Stored memories that are near each text in meaning or in words; turns of conversations are left out.

        Returns:
            For each text at most ``limit``, nearest first; the score is the cosine, or the Jaccard index of the
            distinct words where that is more or there is no vector.
        """
        return [self._near(text[:_SIMILAR_CHARS], limit) if text.strip() else () for text in texts]

    def _near(self, text: str, limit: int) -> tuple[Similar, ...]:
        evidence, _ = self._evidence(self._prepare(text, "", _MEMORIES), limit)
        words = distinct_words(text)
        nearest = sorted(evidence, key=lambda item: (-(item.cosine or 0.0), -item.bm25))[: 2 * limit]
        scored: dict[str, float] = {}
        for item in nearest:
            uri = str(item.entry.uri)
            shared = jaccard(words, distinct_words(self._catalog.own_text(uri)[:_SIMILAR_CHARS]))
            scored[uri] = round(max(item.cosine or 0.0, shared), 3)
        best = sorted(scored.items(), key=lambda item: (-item[1], item[0]))
        return tuple(Similar(uri, score) for uri, score in best[:limit])

    def _prepare(self, query: str, target_uri: str, filter_tree: Mapping[str, Any] | None) -> _Query:
        conditions = [compile_filter(filter_tree), _below(target_uri)]
        condition = _both([part for part in conditions if part is not None])
        self._indexer.follow()
        notes: list[str] = []
        vector = self._query_vector(query[-_EMBEDDED_QUERY_CHARS:], notes)
        return _Query(query, vector, condition, tuple(notes))

    def _query_vector(self, text: str, notes: list[str]) -> Vectors | None:
        embedder = self._indexer.embedder
        if embedder is None:
            return None
        deadline = time.monotonic() + self._config.embedding.wait_seconds
        if not embedder.ready(self._config.embedding.wait_seconds):
            notes.append("searched by words only: the embedding model is not ready; ask again in a moment")
            return None
        try:
            waiting = self._indexer.embed_waiting(deadline)
            if waiting:
                notes.append(f"{waiting} passages are not searched by meaning yet; ask again in a moment")
            vector: Vectors = embedder.embed([text])[0]
        except EmbeddingFailed as error:
            notes.append(f"searched by words only: {error.message}")
            return None
        return vector

    def _scale(self) -> Scale | None:
        embedder = self._indexer.embedder
        return None if embedder is None else embedder.scale

    def _evidence(self, query: _Query, limit: int) -> tuple[list[Evidence], Question]:
        """Everything known of each candidate: found by either way, scored by both."""
        terms = query_terms(query.text)
        scopes = self._catalog.scope_terms(self._spaces)
        words = lexical.search(self._catalog.connection(), terms, CANDIDATES, scopes, query.condition)
        cosines = self._nearest(query, limit)
        missing = [identifier for identifier in words.scores if identifier not in cosines]
        cosines |= self._cosines(missing, query.vector)
        entries = self._catalog.entries([*dict.fromkeys((*words.scores, *cosines))])
        evidence = [
            Evidence(
                entry=entry,
                bm25=words.scores.get(identifier, 0.0),
                cosine=cosines.get(identifier),
                names_speaker=_names(query.text, entry),
            )
            for identifier, entry in entries.items()
        ]
        return evidence, words.question

    def _nearest(self, query: _Query, limit: int) -> dict[int, float]:
        """Documents near the query's vector, by id; more are asked for while a filter leaves too few."""
        embedder = self._indexer.embedder
        if query.vector is None or embedder is None:
            return {}
        connection = self._catalog.connection()
        wanted = CANDIDATES
        while True:
            near: dict[int, float] = {}
            for space in self._spaces:
                hits = self._indexer.vectors.search(connection, space, embedder.fingerprint, query.vector, wanted)
                near |= dict(hits)
            live = self._catalog.live(list(near))
            best: dict[int, float] = {}
            for seq, document in live.items():
                best[document] = max(best.get(document, -1.0), near[seq])
            if query.condition is not None:
                allowed = self._catalog.satisfying(list(best), query.condition)
                best = {document: cosine for document, cosine in best.items() if document in allowed}
            if len(best) >= limit or len(near) < wanted or wanted >= _MOST_CANDIDATES:
                return best
            wanted *= 8

    def _cosines(self, documents: Sequence[int], vector: Vectors | None) -> dict[int, float]:
        """The best cosine of each document's passages."""
        embedder = self._indexer.embedder
        if vector is None or embedder is None or not documents:
            return {}
        seqs = self._catalog.vector_seqs(documents, embedder.fingerprint)
        rows = by_seq(self._catalog.connection(), [seq for several in seqs.values() for seq in several])
        found: dict[int, float] = {}
        for document, several in seqs.items():
            scores = [float(rows[seq] @ vector) for seq in several if seq in rows]
            if scores:
                found[document] = max(scores)
        return found


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


def _both(conditions: Sequence[Condition]) -> Condition | None:
    if not conditions:
        return None
    sql = " AND ".join(condition.sql for condition in conditions)
    return Condition(f"({sql})", tuple(value for condition in conditions for value in condition.parameters))


def _names(query: str, entry: Entry) -> bool:
    """Whether the query names the one who speaks in this turn."""
    speaker = entry.speaker
    return speaker is not None and speaker != entry.role and mentions(query, speaker)


def _group(hits: Sequence[Hit], context_type: str) -> tuple[Hit, ...]:
    return tuple(hit for hit in hits if hit.context_type == context_type)


def _nothing(score_threshold: float | None, filtered: bool) -> str:
    if score_threshold is not None:
        return f"nothing relevant scores {score_threshold:g} or more; lower score_threshold, or look around with tree"
    if filtered:
        return "nothing relevant within the filter or target_uri; search without them, or look around with tree"
    return "nothing relevant is stored; try other words, or look around with tree"
