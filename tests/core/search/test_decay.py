"""The pinned formulas by worked example, and what the rank profiles promise."""

from __future__ import annotations

import math

import pytest

from memory_core.core.search.ranking import Profile, decay, rank_score


@pytest.mark.parametrize(
    ("age_days", "rate", "expected"),
    [(0.0, 0.05, 1.0), (13.863, 0.05, 0.5), (30.0, 0.05, 0.2231), (15.0, 1 / 30, 0.6065)],
)
def test_decay_follows_its_curve(age_days: float, rate: float, expected: float) -> None:
    assert decay(age_days, rate) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize(
    ("age_days", "rate"), [(-1.0, 0.05), (1.0, 0.0), (1.0, -0.1), (math.nan, 0.05), (math.inf, 0.05)]
)
def test_decay_outside_its_bounds_is_rejected(age_days: float, rate: float) -> None:
    with pytest.raises(ValueError, match="must be finite"):
        decay(age_days, rate)


def test_values_outside_the_unit_interval_are_rejected() -> None:
    with pytest.raises(ValueError, match="salience"):
        rank_score("weighted", 0.5, -0.1, 1.0)
    with pytest.raises(ValueError, match="fused"):
        rank_score("relevance", math.nan, 0.5, 1.0)


def test_relevance_profile_ignores_time_and_salience() -> None:
    assert rank_score("relevance", 0.6, 0.0, 5_000.0) == 0.6


@pytest.mark.parametrize("profile", ["balanced", "decay"])
def test_newer_and_more_salient_of_equals_come_first(profile: Profile) -> None:
    assert rank_score(profile, 0.5, 0.5, 1.0) > rank_score(profile, 0.5, 0.5, 60.0)
    assert rank_score(profile, 0.5, 0.9, 1.0) > rank_score(profile, 0.5, 0.3, 1.0)


def test_balanced_profile_never_buries_an_old_match_that_is_a_quarter_better() -> None:
    assert rank_score("balanced", 0.51, 0.0, 10_000.0) > rank_score("balanced", 0.4, 1.0, 0.0)


def test_decay_profile_is_the_bare_product() -> None:
    assert rank_score("decay", 0.8, 0.5, 14.0) == pytest.approx(0.8 * 0.5 * math.exp(-0.7))


def test_weighted_profile_is_the_weighted_formula() -> None:
    assert rank_score("weighted", 0.8, 0.5, 15.0) == pytest.approx(0.7013, abs=5e-5)


def test_clock_skew_counts_as_now() -> None:
    assert rank_score("balanced", 0.5, 0.5, -3.0) == rank_score("balanced", 0.5, 0.5, 0.0)


def test_unknown_profile_is_rejected() -> None:
    with pytest.raises(ValueError, match="unknown rank profile"):
        rank_score("newest", 0.5, 0.5, 1.0)  # type: ignore[arg-type]
