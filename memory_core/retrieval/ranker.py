"""From evidence to hits: fusion, the floor, and a rank profile, each explained in ``why``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import nlargest
from typing import cast, get_args

from memory_core.index.catalog import Entry
from memory_core.index.embedder import Scale
from memory_core.model.hits import Hit
from memory_core.scoring.decay import Profile, decay, rank_score
from memory_core.scoring.fusion import Calibration, Candidate, Question, Score, fuse, is_relevant
from memory_core.storage.ledger import Usage

RANKS: tuple[str, ...] = get_args(Profile)
_SECONDS_PER_DAY = 86_400.0
_BEST_FEW = 10
#: A hit that scores at most this share of the best one's is noise beside it.
_TAIL_SHARE = 0.35


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of one candidate; see ``scoring.fusion.Candidate``."""

    entry: Entry
    bm25: float
    cosine: float | None
    names_speaker: bool


@dataclass(frozen=True, slots=True)
class Ranking:
    """What ``find`` was asked for.

    Attributes:
        rank: relevance, decay or weighted.
        limit: Hits at most.
        score_threshold: Leave out hits below it; None keeps all.
        floor: Whether weak evidence gives no hits.
    """

    rank: str
    limit: int
    score_threshold: float | None
    floor: bool


def rank_hits(
    evidence: Sequence[Evidence],
    question: Question,
    usage: Mapping[str, Usage],
    ranking: Ranking,
    now: datetime,
    scale: Scale | None,
) -> list[Hit]:
    """Hits in the order of the profile, best first; none when nothing is relevant.

    Args:
        evidence: Candidates found by words or by meaning.
        question: What the store knows of the query's terms.
        usage: Access statistics by URI.
        ranking: Profile and bounds.
        now: Time that ages count from, aware.
        scale: Of the embedding model; None without one.
    """
    candidates = [Candidate(max(0.0, item.bm25), item.cosine, item.names_speaker) for item in evidence]
    scores = fuse(candidates, question, calibration=Calibration(scale.zero if scale is not None else 0.0))
    best = nlargest(_BEST_FEW, scores, key=lambda score: score.total)
    if ranking.floor and not is_relevant(best, question):
        return []
    profile = cast("Profile", ranking.rank)
    tail = _TAIL_SHARE * best[0].total if ranking.floor and best else 0.0
    least = ranking.score_threshold or 0.0
    ranked: list[tuple[float, float, Evidence, Score]] = []
    for item, score in zip(evidence, scores, strict=True):
        if score.total <= tail:
            continue
        age_days = _age_days(item.entry, usage.get(item.entry.uri), now)
        total = rank_score(profile, score.total, item.entry.salience, age_days)
        if total >= least:
            ranked.append((total, age_days, item, score))
    ranked.sort(key=lambda found: (-found[0], found[2].entry.uri, found[2].entry.part))
    return [
        _hit(item.entry, total, _why(profile, score, item.entry.salience, age_days))
        for total, age_days, item, score in ranked[: ranking.limit]
    ]


def _why(profile: Profile, score: Score, salience: float, age_days: float) -> dict[str, float]:
    why = {"lexical": score.lexical}
    if score.semantic is not None:
        why["semantic"] = score.semantic
    if profile != "relevance":
        why |= {"recency": decay(age_days), "salience": salience}
    return why


def _hit(entry: Entry, score: float, why: Mapping[str, float]) -> Hit:
    uri = f"{entry.uri}#{entry.part}" if entry.memory_type == "message" else entry.uri
    rounded = {name: round(value, 4) for name, value in why.items()}
    return Hit(uri, entry.context_type, entry.memory_type, round(score, 4), entry.abstract, entry.updated_at, rounded)


def _age_days(entry: Entry, usage: Usage | None, now: datetime) -> float:
    """Days since last use; since the last change where there was none, 0 where no time is known."""
    if usage is not None:
        moment = usage.last_accessed_at
    else:
        try:
            moment = datetime.fromisoformat(entry.updated_at or "")
        except ValueError:
            return 0.0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (now - moment).total_seconds() / _SECONDS_PER_DAY)
