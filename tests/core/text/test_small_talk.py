"""Small talk asks for no memories; anything else might."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.core.text.language import is_small_talk

SMALL = [
    "hi",
    "Hello there!",
    "Good morning everyone",
    "how are you?",
    "what’s up?",
    "thanks",
    "Thanks a lot 😊",
    "ok",
    "okkkk",
    "OK, sounds good 👍",
    "got it, thanks again and bye",
    "hahaha that's great",
    "hmm",
    "see you tomorrow!",
    "👍",
    ":)",
    "🎉🎉",
    "你好",
    "在吗？",
    "好的",
    "谢谢！",
    "謝謝你",
    "嗯嗯",
    "辛苦了",
    "哈哈哈哈",
    "好的，谢谢，再见～",
    "嗯嗯好的谢谢啦",
    "晚安🌙",
    "ok 谢谢",
]
SERIOUS = [
    "thanks, and what was the server's IP?",
    "ok do it",
    "go on",
    "again",
    "yes",
    "no",
    "yes please",
    "ok?",
    "really?",
    "?",
    "",
    " ",
    "hi Lin",
    "thanks for the recipe",
    "great, book it",
    "ok 3",
    "+1",
    "666",
    "ok and",
    "nice server",
    "help",
    "stop",
    "好的，那我的航班呢",
    "继续",
    "可以",
    "是的",
    "好的，明天九点",
    "谢谢你帮我订机票",
    "谢谢小明",
    "好吗？",
    "你呢",
    "在哪",
    "再来一次",
    "一",
    "спасибо, где мой ключ",
]


@pytest.mark.parametrize("text", SMALL)
def test_greetings_thanks_and_the_like_are_small_talk(text: str) -> None:
    assert is_small_talk(text)


@pytest.mark.parametrize("text", SERIOUS)
def test_a_message_with_anything_else_in_it_is_not(text: str) -> None:
    assert not is_small_talk(text)


@given(st.sampled_from([text for text in SMALL if "?" not in text and "？" not in text]), st.sampled_from(SMALL))
def test_two_pieces_of_small_talk_are_small_talk(first: str, second: str) -> None:
    assert is_small_talk(f"{first} {second}")


@given(
    st.sampled_from(SMALL),
    st.sampled_from(["Caroline", "Kyoto", "flight", "航班", "小明", "42", "book", "why", "为什么", "redis", "Zürich"]),
    st.booleans(),
)
def test_one_content_word_beside_small_talk_makes_it_serious(text: str, word: str, first: bool) -> None:
    assert not is_small_talk(f"{word} {text}" if first else f"{text} {word}")


@given(st.text())
def test_any_text_is_judged(text: str) -> None:
    assert is_small_talk(text) in (True, False)
    assert not is_small_talk(f"{text} what did Caroline say")
