"""What of a text bears on a question, and where in it the words stand."""

from __future__ import annotations

import itertools

import pytest

from memory_core.core.search.passages import excerpt_of, words_sought


@pytest.mark.parametrize(
    ("question", "text", "marked"),
    [
        ("Which floor is the office on?", "The offices are on the third floor.", ["offices", "floor"]),
        ("还喝绿茶吗", "她每天早上喝綠茶，晚上喝普洱。", ["喝綠茶"]),
        ("CAFÉ straße", "Strasse und Cafés 👩\u200d🚀 ﬁne café", ["Strasse", "Cafés", "café"]),
        ("the of and", "The rest of it and more.", []),
        ("tea", "steal team", ["team"]),
        ("", "Anything.", []),
    ],
)
def test_words_are_marked_whole_in_any_form_and_script(question: str, text: str, marked: list[str]) -> None:
    found = excerpt_of(text, words_sought(question), 200)
    assert found.text == text
    assert [found.text[start:end] for start, end in found.marks] == marked


def test_of_a_long_text_the_sentences_are_shown_that_bear_on_the_question() -> None:
    text = "\n".join(
        [*(f"Nothing about it, number {number}." for number in range(60)), "The boiler is serviced in May."]
    )
    found = excerpt_of(text, words_sought("When is the boiler serviced?"), 120)
    assert len(found.text) < 160
    assert "boiler is serviced in May" in found.text
    assert "…" in found.text
    assert [found.text[start:end] for start, end in found.marks] == ["boiler", "serviced"]
    assert "\n" not in found.text


def test_of_a_question_of_very_many_words_the_most_telling_are_looked_for() -> None:
    short = map("".join, itertools.islice(itertools.product("bcdfghjklm", repeat=4), 3_000))
    question = " ".join([*short, "boilermaker", "锅炉房"])
    sought = words_sought(question)
    assert sought is not None
    assert sought.pattern.count("|") < 64
    found = excerpt_of("The boilermaker sees to the 鍋爐 in May.", sought, 200)
    assert [found.text[start:end] for start, end in found.marks] == ["boilermaker", "鍋爐"]
    few = words_sought(" ".join(f"word{number}" for number in range(64)))
    assert few is not None
    assert few.pattern.count("|") == 63


def test_a_long_sentence_is_cut_between_its_words_and_one_without_blanks_anywhere() -> None:
    words = [f"word{number} https://example.com/a/long-path/of/{number}" for number in range(60)]
    found = excerpt_of(" ".join(words), words_sought("word41"), 700)
    assert "word41 " in found.text
    assert set(found.text.split()) <= {"…", *" ".join(words).split()}
    chinese = "他每天早上喝" * 100 + "綠茶" + "晚上喝普洱" * 100
    found = excerpt_of(chinese, words_sought("绿茶"), 300)
    assert [found.text[start:end] for start, end in found.marks] == ["綠茶"]
    assert len(found.text) <= 304
