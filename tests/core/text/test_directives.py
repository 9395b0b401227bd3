"""What directs the assistant is told from what a user likes, knows or notes, in both languages."""

from __future__ import annotations

import pytest

from memory_core.core.text.directives import is_directive

ORDERS = (
    "Never use bullet points when answering",
    "please don't suggest meat dishes",
    "You must ask me before you book anything.",
    "Nora wants you to explain every step.",
    "不要用表情符号",
    "以后回答都要用中文",
    "金额一律写成两位小数",
    "助手必须先确认再删除",
)
WISHES = (
    "Keep answers under five sentences; the user reads on a phone.",
    "The user prefers short, direct replies.",
    "Metric units only: use kilometres, not miles",
    "When explaining code, start with the big picture",
    "Wants to be addressed as Dr. Rao",
    "Answer style: no hedging",
    "Commit messages in the imperative mood",
    "回答时先说结论，再解释原因。",
    "提交前先跑测试",
    "叫我小高",
    "用户不喜欢太长的解释",
    "回复语言：中文",
    "Semicolons are fine now in this project.",
    "现在又可以用分号了",
)
TASTES = (
    "The user is a vegetarian.",
    "Prefers window seats on trains",
    "Likes jazz and old films",
    "用户不吃香菜。",
    "喜欢跑步，每周跑三次",
    "用户出差喜欢住贵一点的酒店",
)
NOTES = (
    "Use the blue key for the cellar door.",
    "The plumber said we should not use the tap",
    "passport, charger, rain jacket",
    "鸡蛋、牛奶、洗衣液",
    "周三要提交报告",
)


@pytest.mark.parametrize("text", ORDERS)
def test_an_order_directs_wherever_it_is_written(text: str) -> None:
    assert is_directive(f"It came up on Monday.\n{text}", plain=False)


@pytest.mark.parametrize("text", WISHES)
def test_a_wish_about_answers_or_work_directs_where_wishes_are_kept(text: str) -> None:
    assert is_directive(text, plain=True)


@pytest.mark.parametrize("text", TASTES)
def test_a_taste_directs_nobody(text: str) -> None:
    assert not is_directive(text, plain=True)


@pytest.mark.parametrize("text", NOTES)
def test_a_note_that_sounds_like_a_wish_is_none(text: str) -> None:
    assert not is_directive(text, plain=False)
