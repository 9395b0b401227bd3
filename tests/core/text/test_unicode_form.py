"""Normal forms of texts that strangers write: as Unicode says, and in time that grows with the text."""

from __future__ import annotations

import re
import sys
import time
import unicodedata
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.core.text.unicode_form import unicode_form

_FORMS: tuple[Literal["NFC", "NFD", "NFKC"], ...] = ("NFC", "NFD", "NFKC")


@given(st.text(st.sampled_from("ae\u0301\u0323\u0308\u1100\u1161\uff9e\uff9f\uff76各 \n─Å")), st.sampled_from(_FORMS))
def test_what_people_write_has_the_form_that_unicode_gives_it(text: str, form: Literal["NFC", "NFD", "NFKC"]) -> None:
    assert unicode_form(form, text) == unicodedata.normalize(form, text)


@pytest.mark.parametrize("marks", ["\u0301\u0323", "\uff9e\u0323"])
def test_a_run_of_marks_keeps_its_first_ones_and_takes_no_quadratic_time(marks: str) -> None:
    started = time.process_time()
    form = unicode_form("NFKC", f"x{marks * 500_000}y")
    assert time.process_time() - started < 10  # without a bound: ten minutes
    assert (form[0], form[-1]) == ("x", "y")
    assert len(form) <= 32


@given(st.text(st.sampled_from("ae\u0301\u0323\ufdfa\ufdfb㌫Å\uff76\uff9e ")))
def test_characters_that_stand_for_phrases_stay_and_all_around_them_has_its_form(text: str) -> None:
    around = re.split("([\ufdfa\ufdfb])", text)
    expected = "".join(part if part in "\ufdfa\ufdfb" else unicodedata.normalize("NFKC", part) for part in around)
    assert unicode_form("NFKC", text) == expected


def test_no_character_becomes_more_than_six() -> None:
    lengths = {len(unicode_form(form, chr(code))) for form in _FORMS for code in range(sys.maxunicode + 1)}
    assert max(lengths) == 6
    assert unicode_form("NFKC", "80㌫") == "80パーセント"


def test_signs_that_are_no_marks_stay_however_many() -> None:
    assert unicode_form("NFKC", "─" * 1_000) == "─" * 1_000
