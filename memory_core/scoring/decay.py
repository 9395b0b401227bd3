"""How time and importance change a rank.

Owns: the forgetting curve, the two pinned ranking formulas, and the four ``rank`` profiles of a search. Pure: ages are
passed in, no clock is read. Does not: decide what is relevant (``fusion``) or what is archived.
"""

from __future__ import annotations

import math
from typing import Literal

Profile = Literal["relevance", "balanced", "decay", "weighted"]

RATE_PER_DAY = 0.05
RECENCY_DAYS = 30.0
SIMILARITY_WEIGHT, RECENCY_WEIGHT, IMPORTANCE_WEIGHT = 0.6, 0.2, 0.2
#: The share of its score that ``balanced`` leaves a memory however old and unimportant it is.
KEPT_SHARE = 0.8


def decay(age_days: float, rate_per_day: float = RATE_PER_DAY) -> float:
    """Retention in (0, 1]: exp(-rate * age); 1.0 at age 0, 0.5 at 13.9 days for the default.

    Args:
        age_days: Days since last access, >= 0.
        rate_per_day: > 0.

    Raises:
        ValueError: If either bound is broken.
    """
    if not (math.isfinite(age_days) and age_days >= 0.0):
        raise ValueError(f"age_days must be finite and >= 0, not {age_days}")
    if not (math.isfinite(rate_per_day) and rate_per_day > 0.0):
        raise ValueError(f"rate_per_day must be finite and > 0, not {rate_per_day}")
    return math.exp(-rate_per_day * age_days)


def decayed_relevance(semantic: float, salience: float, age_days: float, rate_per_day: float = RATE_PER_DAY) -> float:
    """The product semantic x salience x decay, in [0, 1].

    Args:
        semantic: Similarity to the question, in [0, 1].
        salience: Importance, in [0, 1].
        age_days: Days since last access, >= 0.
        rate_per_day: > 0.

    Raises:
        ValueError: If a bound is broken.
    """
    _require_unit(semantic=semantic, salience=salience)
    return semantic * salience * decay(age_days, rate_per_day)


def weighted_relevance(similarity: float, age_days: float, importance: float) -> float:
    """0.6 similarity + 0.2 exp(-age / 30 days) + 0.2 importance, in [0, 1].

    Similarity 0.8 at 15 days with importance 0.5 is 0.7013.

    Args:
        similarity: Cosine or fused score, in [0, 1].
        age_days: Days since last access, or since creation if never accessed; >= 0.
        importance: In [0, 1].

    Raises:
        ValueError: If a bound is broken.
    """
    _require_unit(similarity=similarity, importance=importance)
    recency = decay(age_days, 1.0 / RECENCY_DAYS)
    return SIMILARITY_WEIGHT * similarity + RECENCY_WEIGHT * recency + IMPORTANCE_WEIGHT * importance


def rank_score(
    profile: Profile,
    fused: float,
    salience: float,
    age_days: float,
    rate_per_day: float = RATE_PER_DAY,
) -> float:
    """The score a hit is ordered by, in [0, 1].

    - ``relevance``: the match as it is, no decay; right for questions about the past.
    - ``balanced``: match x (0.8 + 0.2 x salience x decay). Time and importance settle near ties, and a match that is
      a quarter better than another always stays before it.
    - ``decay``: ``decayed_relevance``, the bare product: what was not used for months all but vanishes, however
      exactly it answers.
    - ``weighted``: ``weighted_relevance``.

    Args:
        profile: One of the four.
        fused: From ``fusion.fuse``, in [0, 1].
        salience: In [0, 1].
        age_days: Days since last access; a negative age (clocks differ) counts as 0.
        rate_per_day: > 0, for ``balanced`` and ``decay``.

    Raises:
        ValueError: If a bound is broken or the profile is unknown.
    """
    _require_unit(fused=fused, salience=salience)
    age_days = max(0.0, age_days)
    if profile == "relevance":
        return fused
    if profile == "decay":
        return decayed_relevance(fused, salience, age_days, rate_per_day)
    if profile == "balanced":
        return fused * (KEPT_SHARE + (1.0 - KEPT_SHARE) * salience * decay(age_days, rate_per_day))
    if profile == "weighted":
        return weighted_relevance(fused, age_days, salience)
    raise ValueError(f"unknown rank profile {profile!r}")


def _require_unit(**values: float) -> None:
    for name, value in values.items():
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} must lie in [0, 1], not {value}")
