"""How well questions were answered: recall, reciprocal rank and latency, with bootstrap intervals.

Turn-level recall is fractional: the share of a question's gold turns among the first k hits. Session-level recall is
the share of its gold sessions among the sessions of the first k hits; "any-hit" asks only for one of them, which is
what many published figures call R@5. Pure: prints nothing, reads no clock.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bench.corpus import Question

LIMIT = 20
_NEAR = (5, 10)
_RESAMPLES, _SEED = 2_000, 7
_LEAST_CLUSTERS = 4


@dataclass(frozen=True, slots=True)
class Found:
    """One hit: its passage, and the passages that were folded into it."""

    id: str
    folded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one question went.

    Attributes:
        question: What was asked.
        recall_5: Share of gold passages among the first five hits.
        recall_10: Among the first ten.
        recall_20: Among the first twenty.
        recall_10_folded: Among the first ten, with passages folded into a hit counted as found.
        sessions_5: Share of gold sessions among those of the first five hits.
        sessions_10: Of the first ten.
        any_session_5: 1.0 if any gold session is among those of the first five hits.
        any_session_10: Of the first ten.
        reciprocal_rank: Of the first gold passage among ten; 0.0 without.
        empty: Whether nothing came back.
        seconds: What the search took.
    """

    question: Question
    recall_5: float
    recall_10: float
    recall_20: float
    recall_10_folded: float
    sessions_5: float
    sessions_10: float
    any_session_5: float
    any_session_10: float
    reciprocal_rank: float
    empty: bool
    seconds: float


class Interval(NamedTuple):
    """A 95 % bootstrap interval."""

    low: float
    high: float


def judge(question: Question, hits: Sequence[Found], session_of: Mapping[str, str], seconds: float) -> Outcome:
    """Compare a list of hits with what was wanted.

    Args:
        question: With at least one gold passage, else every recall is 0.0.
        hits: Best first, at most ``LIMIT``.
        session_of: The session of each passage by id; unknown hits belong to none.
        seconds: What the search took.
    """
    ids = [hit.id for hit in hits]
    folded = {item for hit in hits[:10] for item in (hit.id, *hit.folded)}
    near = [{session_of[item] for item in ids[:k] if item in session_of} for k in _NEAR]
    ranks = [rank for rank, item in enumerate(ids[:10], 1) if item in question.gold]
    return Outcome(
        question,
        recall_5=_share(question.gold, set(ids[:5])),
        recall_10=_share(question.gold, set(ids[:10])),
        recall_20=_share(question.gold, set(ids)),
        recall_10_folded=_share(question.gold, folded),
        sessions_5=_share(question.sessions, near[0]),
        sessions_10=_share(question.sessions, near[1]),
        any_session_5=float(bool(question.sessions & near[0])),
        any_session_10=float(bool(question.sessions & near[1])),
        reciprocal_rank=1 / ranks[0] if ranks else 0.0,
        empty=not hits,
        seconds=seconds,
    )


def mean(outcomes: Sequence[Outcome], measure: str) -> float:
    """The mean of one measure; 0.0 without outcomes."""
    return statistics.fmean(getattr(item, measure) for item in outcomes) if outcomes else 0.0


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of the values lie, in (0, 1); 0.0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def bootstrap(values: Sequence[float]) -> Interval:
    """95 % interval of the mean, questions resampled."""
    if not values:
        return Interval(0.0, 0.0)
    rng, drawn = np.random.default_rng(_SEED), np.asarray(values, dtype=np.float64)
    means = [float(drawn[rng.integers(0, len(drawn), len(drawn))].mean()) for _ in range(_RESAMPLES)]
    return _interval(means)


def cluster_bootstrap(values: Sequence[float], clusters: Sequence[str]) -> Interval | None:
    """95 % interval of the mean, whole clusters resampled; None with fewer than four clusters.

    Args:
        values: One a question.
        clusters: The cluster of each, in the same order.
    """
    names = sorted(set(clusters))
    if len(names) < _LEAST_CLUSTERS:
        return None
    place = {name: at for at, name in enumerate(names)}
    sums, counts = np.zeros(len(names)), np.zeros(len(names))
    for value, cluster in zip(values, clusters, strict=True):
        sums[place[cluster]] += value
        counts[place[cluster]] += 1
    rng = np.random.default_rng(_SEED)
    chosen = rng.integers(0, len(names), (_RESAMPLES, len(names)))
    return _interval((sums[chosen].sum(axis=1) / counts[chosen].sum(axis=1)).tolist())


def _interval(means: Sequence[float]) -> Interval:
    low, high = np.quantile(means, (0.025, 0.975))
    return Interval(float(low), float(high))


def _share(wanted: frozenset[str], found: set[str]) -> float:
    return len(wanted & found) / len(wanted) if wanted else 0.0
