"""The heat of stored segments: visits from the counts of use, interactions and cooling from the segment itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from memory_core.config.lifetime import TiersConfig
from memory_core.lifecycle.tiers.stored import StoredSegment
from memory_core.model.moment import read_moment
from memory_core.scoring.heat import HeatWeights, heat
from memory_core.storage.store import Store
from memory_core.storage.tables.usage import Usage


@dataclass(frozen=True, slots=True)
class Warmth:
    """How warm a segment is.

    Attributes:
        visits: Since it was last cooled; ``visits_in_all`` since it began.
        last_visit: The last one, if there ever was one.
        heat: See ``scoring.heat``.
    """

    visits: int
    visits_in_all: int
    last_visit: datetime | None
    heat: float


def warmth(store: Store, config: TiersConfig, stored: Sequence[StoredSegment], now: datetime) -> list[Warmth]:
    """How warm each of some segments is.

    Args:
        store: Counts use; what was used in the last second may be missing.
        config: Weights.
        stored: The segments.
        now: Aware.
    """
    used = store.ledger.usage_table.usage(turn for each in stored for turn in each.turns())
    return [_warmth(config, each, used, now) for each in stored]


def _warmth(config: TiersConfig, stored: StoredSegment, used: Mapping[str, Usage], now: datetime) -> Warmth:
    counted = [usage for turn in stored.turns() if (usage := used.get(turn)) is not None]
    visits = sum(usage.access_count for usage in counted)
    last = max((usage.last_accessed_at for usage in counted), default=None)
    since = last or read_moment(stored.segment.created_at) or now
    weights = HeatWeights(config.heat_alpha, config.heat_beta, config.heat_gamma, config.heat_tau_hours)
    fresh = max(0, visits - stored.segment.visits_counted)
    hours = (now - since).total_seconds() / 3_600.0
    return Warmth(fresh, visits, last, heat(fresh, stored.segment.interactions, hours, weights))
