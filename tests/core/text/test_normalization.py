"""What may be folded into one search hit, and what never may."""

from __future__ import annotations

import unicodedata
from typing import Literal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memory_core.core.text.normalization import LIMIT_CHARS, READ_CHARS, signature
from memory_core.core.text.unicode_form import unicode_form

_LONG = "The user prefers tabs over spaces in every Python project, 用户喜欢用制表符缩进。 " * 4
SAME = """\
The user prefers tabs. <> user prefers TABS | - **Prefers** `tabs` <> Prefers tabs! | > quoted <> quoted
it's late <> it’s late | Ｐｒｉｃｅ：１０ <> price: 10 | 用 Python 写 <> 用Python寫。
使用者的資料庫，在台北 <> 使用者的资料库 在台北"""
DIFFERENT = """\
server A has 16 GB <> server B has 16 GB | has 16 GB <> has 61 GB | pays 1.5 <> pays 15 | pays 1.5 <> pays 1 5
at 10:30 <> at 10 30 | -5 °C <> 5 °C | 2² <> 22 | $5 <> €5 | 5% <> 5 | x = y <> x != y | x + 1 <> x - 1
a < b <> a > b | C <> C++ | C <> C# | I do <> I don't | we're late <> were late | A pays B <> B pays A
vitamin A <> vitamin | - [x] call Lin <> - [ ] call Lin | ~~tabs~~ <> tabs | He came? <> He came.
我喜欢香菜 <> 我不喜欢香菜 | 小明欠小红 <> 小红欠小明 | 不是我的 <> 不是我 | 吃了药 <> 吃药 | हिन्दी <> हन्दी
👍 <> 👎 | ... <> !!!"""


def pairs(block: str) -> list[tuple[str, ...]]:
    """Pairs of texts, parted by bars and line ends."""
    return [tuple(pair.split(" <> ")) for pair in block.replace("\n", " | ").split(" | ")]


@pytest.mark.parametrize(
    ("first", "second"),
    [*pairs(SAME), ("## Title\n\nbody", "Title body"), ("café", "cafe\u0301"), (_LONG, f"# {_LONG.upper()}")],
)
def test_differences_of_spelling_are_folded(first: str, second: str) -> None:
    assert signature(first) == signature(second)


@pytest.mark.parametrize(("first", "second"), [*pairs(DIFFERENT), (f"{_LONG}16", f"{_LONG}17")])
def test_differences_of_meaning_never_are(first: str, second: str) -> None:
    assert signature(first) != signature(second)


def test_of_a_long_text_the_beginning_is_read_and_the_rest_counts_to_the_letter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = 0

    def counted(form: Literal["NFC", "NFD", "NFKC"], text: str) -> str:
        nonlocal read
        read += len(text)
        return unicode_form(form, text)

    monkeypatch.setattr("memory_core.core.text.normalization.unicode_form", counted)
    head, tail = "The Gate opens. " * (READ_CHARS // 16), "at noon " * READ_CHARS
    found = signature(head + tail)
    assert read <= READ_CHARS
    assert len(found) <= LIMIT_CHARS
    assert found == signature(head.upper() + tail + "\n")
    assert found != signature(head + tail.upper())
    assert found != signature(head + tail + "16")
    assert signature(head + "\n") == signature(head.strip())


_LETTERS = st.text(st.characters(categories=["Lu", "Ll", "Lo", "Nd"], max_codepoint=0x9FFF), min_size=1, max_size=8)
_SENTENCES = st.lists(_LETTERS, min_size=1, max_size=30)


@given(_SENTENCES, st.sampled_from([" ", "  ", "\n", "\t", " \n\n "]), st.sampled_from(["", ".", "!", "。", " …"]))
def test_white_space_and_closing_marks_do_not_count(words: list[str], gap: str, closing: str) -> None:
    assert signature(gap.join(words) + closing) == signature(" ".join(words))


@given(_SENTENCES)
def test_unicode_form_does_not_count(words: list[str]) -> None:
    text = " ".join(words)
    assert signature(unicodedata.normalize("NFD", text)) == signature(text)


@given(_SENTENCES, st.integers(0, 10**6), st.integers(0, 10**6), st.data())
def test_two_numbers_are_never_folded(words: list[str], first: int, second: int, data: st.DataObject) -> None:
    assume(first != second)
    at = data.draw(st.integers(0, len(words)))

    def with_number(number: int) -> str:
        return " ".join([*words[:at], str(number), *words[at:]])

    assert signature(with_number(first)) != signature(with_number(second))


@given(st.lists(st.from_regex(r"\A[b-df-z]{2,8}\Z"), min_size=2, max_size=30))
def test_word_order_counts(words: list[str]) -> None:
    turned = [*words[1:], words[0]]
    assume(turned != words)
    assert signature(" ".join(words)) != signature(" ".join(turned))


@given(st.text())
def test_any_text_has_a_short_signature(text: str) -> None:
    found = signature(text)
    assert len(found) <= max(LIMIT_CHARS, 64)
    assert found == signature(text)
