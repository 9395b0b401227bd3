"""Metrics, worked out by hand."""

from __future__ import annotations

import pytest

from bench.corpus import Question
from bench.recall import Found, Outcome, bootstrap, cluster_bootstrap, judge, mean, percentile

SESSION_OF = {"D1:1": "s1", "D1:2": "s1", "D2:1": "s2", "D3:1": "s3", "D4:1": "s4"}


def question(*gold: str, sessions: tuple[str, ...] = ()) -> Question:
    homes = sessions or tuple(SESSION_OF[name] for name in gold)
    return Question("谁养了猫?", frozenset(gold), frozenset(homes), "4 single-hop", "conversation1")


def outcome(gold: tuple[str, ...], hits: list[str]) -> Outcome:
    return judge(question(*gold), [Found(name) for name in hits], SESSION_OF, 0.25)


def test_recall_is_the_share_of_gold_turns_among_the_first_hits() -> None:
    hits = ["x1", "D1:1", "x2", "x3", "x4", "D2:1", "x5", "x6", "x7", "x8"]
    found = outcome(("D1:1", "D2:1", "D3:1", "D4:1"), hits)
    assert (found.recall_5, found.recall_10) == (0.25, 0.5)


def test_the_reciprocal_rank_is_that_of_the_first_gold_turn() -> None:
    assert outcome(("D1:1", "D2:1"), ["x", "y", "D2:1", "D1:1"]).reciprocal_rank == pytest.approx(1 / 3)
    assert outcome(("D1:1",), ["x", "y"]).reciprocal_rank == 0.0


def test_a_session_is_found_by_any_of_its_turns_and_any_hit_needs_one_session() -> None:
    found = outcome(("D1:1", "D2:1"), ["D1:2", "x1", "x2", "x3", "x4", "D3:1"])
    assert (found.recall_10, found.sessions_5, found.sessions_10) == (0.0, 0.5, 0.5)
    assert (found.any_session_5, found.any_session_10) == (1.0, 1.0)
    missed = outcome(("D4:1",), ["D1:1", "D2:1"])
    assert (missed.sessions_10, missed.any_session_10) == (0.0, 0.0)


def test_session_recall_within_five_ignores_the_sixth_hit() -> None:
    found = outcome(("D1:1", "D2:1"), ["x1", "x2", "x3", "x4", "x5", "D2:1"])
    assert (found.sessions_5, found.sessions_10) == (0.0, 0.5)
    assert (found.any_session_5, found.any_session_10) == (0.0, 1.0)


def test_a_folded_turn_counts_only_in_the_measure_that_says_so() -> None:
    found = judge(question("D1:1", "D2:1"), [Found("D1:1", ("D2:1",))], SESSION_OF, 0.0)
    assert (found.recall_5, found.recall_10, found.recall_10_folded) == (0.5, 0.5, 1.0)


def test_no_hits_are_no_recall_and_say_so() -> None:
    found = outcome(("D1:1",), [])
    assert (found.empty, found.recall_10, found.any_session_10) == (True, 0.0, 0.0)
    assert not outcome(("D1:1",), ["x"]).empty


def test_means_and_percentiles_are_those_of_the_outcomes() -> None:
    found = [outcome(("D1:1",), ["D1:1"]), outcome(("D1:1",), []), outcome(("D1:1",), ["x", "D1:1"])]
    assert mean(found, "reciprocal_rank") == pytest.approx(0.5)
    assert mean([], "recall_5") == 0.0
    assert percentile([5.0, 1.0, 4.0, 2.0, 3.0], 0.5) == 3.0
    assert percentile([5.0, 1.0, 4.0, 2.0, 3.0], 0.95) == 5.0
    assert percentile([], 0.5) == 0.0


def test_an_interval_of_equal_values_is_a_point_and_of_a_coin_is_as_wide_as_theory_says() -> None:
    assert bootstrap([0.4] * 50) == pytest.approx((0.4, 0.4))
    low, high = bootstrap([0.0, 1.0] * 200)
    # The standard error of 400 fair coins is 0.025.
    assert low == pytest.approx(0.5 - 1.96 * 0.025, abs=0.006)
    assert high == pytest.approx(0.5 + 1.96 * 0.025, abs=0.006)


def test_clusters_that_differ_widen_the_interval() -> None:
    values = [0.0] * 100 + [1.0] * 100 + [0.0] * 100 + [1.0] * 100
    clusters = [name for name in "abcd" for _ in range(100)]
    clustered = cluster_bootstrap(values, clusters)
    assert clustered is not None
    low, high = bootstrap(values)
    assert clustered.low < low - 0.2
    assert clustered.high > high + 0.2


def test_a_cluster_weighs_as_many_questions_as_it_has() -> None:
    values = [1.0] * 9 + [0.0] * 1 + [1.0] * 9 + [0.0] * 1
    clusters = ["a"] * 9 + ["b"] + ["c"] * 9 + ["d"]
    clustered = cluster_bootstrap(values, clusters)
    assert clustered is not None
    assert 0.0 <= clustered.low < 0.9 < clustered.high <= 1.0


def test_fewer_than_four_clusters_have_no_interval_of_their_own() -> None:
    assert cluster_bootstrap([0.0, 1.0, 1.0], ["a", "b", "c"]) is None
