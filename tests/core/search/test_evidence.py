"""Evidence: each formula with its worked examples, its bounds and its way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.core.memory.evidence import (
    Evidence,
    contest,
    contested_share,
    support_of,
    taken_back,
    trusted_share,
    unweighed,
    weighed,
)

UNIT = st.floats(0.0, 1.0, allow_subnormal=False)


def test_a_witness_that_is_half_trusted_weighs_half() -> None:
    assert weighed(1.0, "contradiction", 0.5, witness=0.5) == pytest.approx(0.875)


@given(UNIT, st.sampled_from(("support", "contradiction")), UNIT, UNIT)
def test_evidence_stays_in_bounds_and_can_be_taken_back(
    confidence: float, evidence: Evidence, strength: float, witness: float
) -> None:
    after = weighed(confidence, evidence, strength, witness)
    assert 0.0 <= after <= 1.0
    assert after >= confidence if evidence == "support" else after <= confidence
    assert unweighed(after, evidence, strength, witness) == pytest.approx(confidence, abs=1e-9)


@given(UNIT, st.sampled_from(("support", "contradiction")), UNIT, UNIT)
def test_two_pieces_of_evidence_of_one_kind_count_alike_in_either_order(
    confidence: float, evidence: Evidence, one: float, other: float
) -> None:
    forth = weighed(weighed(confidence, evidence, one), evidence, other)
    assert forth == pytest.approx(weighed(weighed(confidence, evidence, other), evidence, one), abs=1e-12)


def test_an_earlier_step_is_taken_back_and_later_ones_stay() -> None:
    assert taken_back(1.0, 0.75, 0.5625) == pytest.approx(0.75)
    assert taken_back(0.5, 0.75, 0.875) == pytest.approx(0.75)
    assert taken_back(0.5, 1.0, 1.0) == 0.5
    assert taken_back(0.75, 0.75, 0.3) == 0.3


def test_a_contested_memory_keeps_less_the_stronger_and_the_more_trusted_its_rival_is() -> None:
    assert contested_share(contest(0.5, 1.0, 1.0)) == pytest.approx(0.7)
    assert contested_share(contest(1.0, 1.0, 1.0)) == pytest.approx(0.49)
    assert contest(0.5, 0.9, 0.3) == pytest.approx(0.125)
    assert contest(0.5, 0.0, 0.0) == 0.0
    assert contested_share(0.0) == 1.0


def test_support_adds_up_and_lends_little_while_doubt_takes_little() -> None:
    assert support_of([0.5, 0.5]) == pytest.approx(0.75)
    assert support_of([]) == 0.0
    assert trusted_share(1.0, 0.0) == 1.0
    assert trusted_share(0.5, 0.0) == pytest.approx(0.95)
    assert trusted_share(1.0, 0.5) == pytest.approx(1.025)
