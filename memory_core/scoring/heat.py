"""Heat of a segment of conversation, and how well an exchange fits one.

After the segment heat and the segment similarity of MemoryOS ("Memory OS of AI Agent", arXiv:2506.06326, sections on
mid-term memory): what is visited often, grew long and was visited lately is hot; an exchange belongs where meaning and
keywords agree. Pure: counts and ages are passed in, no clock is read. Does not decide who joins, is promoted or leaves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from memory_core.scoring.fusion import jaccard


@dataclass(frozen=True, slots=True)
class HeatWeights:
    """Weights of the three sources of heat.

    Attributes:
        alpha: Heat of one visit, >= 0.
        beta: Heat of one interaction, >= 0.
        gamma: Heat of a visit at this very moment, >= 0.
        tau_hours: Hours in which that fades to 1/e, > 0.
    """

    alpha: float = 1.0
    beta: float = 1.0
    gamma: float = 1.0
    tau_hours: float = 24.0

    def __post_init__(self) -> None:
        if not all(math.isfinite(weight) and weight >= 0.0 for weight in (self.alpha, self.beta, self.gamma)):
            raise ValueError("alpha, beta and gamma must be finite and >= 0")
        if not (math.isfinite(self.tau_hours) and self.tau_hours > 0.0):
            raise ValueError(f"tau_hours must be finite and > 0, not {self.tau_hours}")


def heat(visits: int, interactions: int, hours: float, weights: HeatWeights = HeatWeights()) -> float:
    """Heat of a segment: alpha * visits + beta * interactions + gamma * exp(-hours / tau).

    3 visits, 5 interactions and 24 hours are 8.368 with all weights 1 and tau 24.

    Args:
        visits: Retrievals from the segment since it was last cooled, >= 0.
        interactions: Exchanges that joined it since then, >= 0.
        hours: Since the last visit, else since it began; less than 0 (clocks differ) counts as 0.
        weights: Of the three.

    Raises:
        ValueError: If a count is negative or the age is not finite.
    """
    if visits < 0 or interactions < 0:
        raise ValueError(f"visits and interactions must be >= 0, not {visits} and {interactions}")
    if not math.isfinite(hours):
        raise ValueError(f"hours must be finite, not {hours}")
    recency = math.exp(-max(0.0, hours) / weights.tau_hours)
    return weights.alpha * visits + weights.beta * interactions + weights.gamma * recency


def segment_similarity(
    cosine: float, keywords: frozenset[str], others: frozenset[str], keyword_weight: float = 1.0
) -> float:
    """Cosine + keyword_weight * Jaccard(keywords).

    Cosine 0.5 with one of three keywords shared is 0.8333; below 0.6 an exchange begins a segment of its own.

    Args:
        cosine: Of the two texts, in [-1, 1].
        keywords: Of the exchange.
        others: Of the segment.
        keyword_weight: >= 0.

    Raises:
        ValueError: If a bound is broken.
    """
    if not -1.000001 <= cosine <= 1.000001:
        raise ValueError(f"cosine must lie in [-1, 1], not {cosine}")
    if not (math.isfinite(keyword_weight) and keyword_weight >= 0.0):
        raise ValueError(f"keyword_weight must be finite and >= 0, not {keyword_weight}")
    return cosine + keyword_weight * jaccard(keywords, others)
