"""Token counts: near a real tokenizer's, never far below it, and additive over lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.core.text.tokens import count_tokens

#: What ``o200k_base`` makes of each text.
COUNTED = (
    ("The user's sister Lin lives in Chengdu and prefers tea over coffee; ask her before booking anything in May.", 22),
    ("用户的妹妹林住在成都，比起咖啡更喜欢喝茶；五月份订任何行程之前都要先问她。", 30),
    ("支付系统在每周三凌晨两点维护，期间不要发布新版本。", 17),
    ("viking://user/default/memories/preferences/Python code style.md", 14),
    ("def decay(age_days: float, rate_per_day: float = 0.05) -> float:\n    return exp(-rate_per_day * age_days)", 32),
    ("👍🎉 好的！谢谢 😊", 8),
)


@pytest.mark.parametrize(("text", "real"), COUNTED)
def test_the_estimate_leans_high_but_not_far(text: str, real: int) -> None:
    assert real <= count_tokens(text) <= 1.5 * real


def test_blank_text_costs_nothing() -> None:
    assert count_tokens(" \n\t") == 0


@given(st.lists(st.text()))
def test_a_text_costs_what_its_lines_cost(lines: list[str]) -> None:
    assert count_tokens("\n".join(lines)) == sum(count_tokens(line) for line in lines)
