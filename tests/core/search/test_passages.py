"""What of a text bears on a question, and where in it the words stand."""

from __future__ import annotations

import pytest

from memory_core.core.search.passages import passage_of, words_sought


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
    found = passage_of(text, words_sought(question), 200)
    assert found.text == text
    assert [found.text[start:end] for start, end in found.marks] == marked


def test_of_a_long_text_the_sentences_are_shown_that_bear_on_the_question() -> None:
    text = "\n".join(
        [*(f"Nothing about it, number {number}." for number in range(60)), "The boiler is serviced in May."]
    )
    found = passage_of(text, words_sought("When is the boiler serviced?"), 120)
    assert len(found.text) < 160
    assert "boiler is serviced in May" in found.text
    assert "…" in found.text
    assert [found.text[start:end] for start, end in found.marks] == ["boiler", "serviced"]
    assert "\n" not in found.text
