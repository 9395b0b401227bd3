"""Heat of a segment and its likeness to an exchange: the worked examples, and what the formulas refuse."""

from __future__ import annotations

import math

import pytest

from memory_core.features.tiers.segment import HeatWeights, heat, segment_similarity


def test_three_visits_five_interactions_and_a_day_are_8_368() -> None:
    assert round(heat(3, 5, 24.0), 3) == 8.368


def test_each_weight_counts_for_its_own_source() -> None:
    assert heat(3, 5, 0.0) == 9.0
    assert heat(3, 5, 0.0, HeatWeights(alpha=2.0, beta=0.5, gamma=0.0)) == 8.5
    assert heat(0, 0, 12.0, HeatWeights(tau_hours=12.0)) == pytest.approx(math.exp(-1.0))


def test_a_visit_from_a_clock_that_is_ahead_is_a_visit_now() -> None:
    assert heat(0, 0, -5.0) == 1.0


@pytest.mark.parametrize(("visits", "interactions", "hours"), [(-1, 0, 0.0), (0, -1, 0.0), (0, 0, math.nan)])
def test_impossible_counts_and_ages_are_refused(visits: int, interactions: int, hours: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        heat(visits, interactions, hours)


def test_impossible_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="tau_hours"):
        HeatWeights(tau_hours=0.0)
    with pytest.raises(ValueError, match="alpha"):
        HeatWeights(alpha=-1.0)


def test_similarity_is_cosine_plus_the_share_of_common_keywords() -> None:
    page, segment = frozenset({"kyoto", "temple"}), frozenset({"temple", "garden"})
    assert segment_similarity(0.5, page, segment) == pytest.approx(0.5 + 1 / 3)
    assert segment_similarity(0.5, page, segment, keyword_weight=0.3) == pytest.approx(0.6)
    assert segment_similarity(0.25, frozenset(), frozenset()) == 0.25


def test_what_is_no_cosine_is_refused() -> None:
    with pytest.raises(ValueError, match="cosine"):
        segment_similarity(1.1, frozenset(), frozenset())
