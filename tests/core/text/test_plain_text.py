"""Texts as they are read, without the marks of Markdown."""

from __future__ import annotations

import pytest

from memory_core.core.text.plain_text import plain_text


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (
            "Umeshu, a donabe.\n\n- ask the **shop**\n- no glass\n\nThen home.",
            "Umeshu, a donabe. · ask the shop · no glass · Then home.",
        ),
        ("# 茶\n\n> 好记性不如烂笔头。\n\n1. 写在第一页", "茶 · 好记性不如烂笔头。 1. 写在第一页"),
        ("* [ ] call `os.path` and [Ann](people/Ann.md)\n  in the evening", "call os.path and Ann in the evening"),
        ("| a | b |\n|---|:-:|\n| 1 | 2 |", "a · b · 1 · 2"),
        ("```sh\n# not a heading\n- x\n```\ndone", "# not a heading - x done"),
        (
            "PostgreSQL 16 - not 15, 2 ** 3, snake__case, f(`**kwargs`), C# #release",
            "PostgreSQL 16 - not 15, 2 ** 3, snake__case, f(**kwargs), C# #release",
        ),
        ("__Bold__ and ~~old~~\n\n---\n\n**Two** **words**", "Bold and old Two words"),
        ("", ""),
    ],
)
def test_marks_are_left_out_and_words_stay(text: str, read: str) -> None:
    assert " ".join(plain_text(text).split()) == read


def test_long_lines_of_marks_are_read_in_time() -> None:
    assert plain_text("**a " * 20_000).count("a") == 20_000
