"""Questions in the other person, as memories or turns would put them."""

from __future__ import annotations

import pytest

from memory_core.core.text.language import other_person


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("Where do I live?", "Where do the user live?"),
        ("what's my wife's name", "what's the user's wife's name"),
        ("What is the user's wife called?", "What is my wife called?"),
        ("我对什么过敏", "用户对什么过敏"),
        ("我们的数据库是哪个", "用户的数据库是哪个"),
        ("用户住在哪里", "我住在哪里"),
        ("Who is the president of the US?", None),
        ("Where does Mei live?", None),
        ("美国在哪里", None),
        ("my " * 100, None),
        ("", None),
    ],
)
def test_short_question_is_put_in_the_other_person(query: str, expected: str | None) -> None:
    assert other_person(query) == expected
