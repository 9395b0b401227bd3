"""What the rank profiles promise beyond their formulas, which ``test_ranking`` proves in a store."""

from __future__ import annotations

from memory_core.core.search.ranking import rank_score


def test_balanced_profile_never_buries_an_old_match_that_is_a_quarter_better() -> None:
    assert rank_score("balanced", 0.51, 0.0, 10_000.0) > rank_score("balanced", 0.4, 1.0, 0.0)
