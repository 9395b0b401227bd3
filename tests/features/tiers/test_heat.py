"""Heat of a segment and its likeness to an exchange: the worked examples."""

from __future__ import annotations

import math

import pytest

from memory_core.core.config import TiersConfig
from memory_core.features.tiers.segment import heat, segment_similarity


def test_heat_is_the_weighted_sum_of_visits_interactions_and_recency() -> None:
    usual = TiersConfig()
    assert round(heat(3, 5, 24.0, usual), 3) == 8.368
    assert heat(3, 5, 0.0, usual) == 9.0
    assert heat(3, 5, 0.0, TiersConfig(heat_alpha=2.0, heat_beta=0.5, heat_gamma=0.0)) == 8.5
    assert heat(0, 0, 12.0, TiersConfig(heat_tau_hours=12.0)) == pytest.approx(math.exp(-1.0))
    assert heat(0, 0, -5.0, usual) == 1.0  # a clock that is ahead


def test_similarity_is_cosine_plus_the_share_of_common_keywords() -> None:
    exchange, segment = frozenset({"kyoto", "temple"}), frozenset({"temple", "garden"})
    assert segment_similarity(0.5, exchange, segment) == pytest.approx(0.5 + 1 / 3)
    assert segment_similarity(0.5, exchange, segment, keyword_weight=0.3) == pytest.approx(0.6)
    assert segment_similarity(0.25, frozenset(), frozenset()) == 0.25
