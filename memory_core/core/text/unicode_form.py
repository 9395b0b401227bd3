"""Unicode normal forms of texts that strangers write.

``unicodedata.normalize`` takes the square of a run of combining marks, and holds up every thread meanwhile. Unicode
calls a text without longer runs than 30 "stream-safe" (UAX #15): real scripts need fewer than ten. NFKC writes two
characters out as phrases, of 18 and 8 characters, and no other as more than six; these two stay as they are.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import groupby, islice
from typing import Literal

_MARKS_MOST = 30
#: Signs beyond ASCII that are no letters, and the voiced marks of half-width kana, which are combining marks in NFKC.
_PERHAPS_MARKS = re.compile(rf"(?:[^\w\s\x00-\x7f]|[\uff9e\uff9f]){{{_MARKS_MOST + 1},}}")
#: Blessings in one character.
_PHRASES = "\ufdfa\ufdfb"
_BETWEEN_PHRASES = re.compile(f"[^{_PHRASES}]+")


def unicode_form(form: Literal["NFC", "NFD", "NFKC"], text: str) -> str:
    """``text`` in a normal form, in time that grows with its length, and at most six times as long.

    Of a run of combining marks the first 30 stay; a character that stands for a phrase stays one character.
    """
    if text.isascii():
        return text
    text = _PERHAPS_MARKS.sub(_shortened, text)
    if form == "NFKC" and any(phrase in text for phrase in _PHRASES):
        return _BETWEEN_PHRASES.sub(lambda found: unicodedata.normalize(form, found[0]), text)
    return unicodedata.normalize(form, text)


def _shortened(found: re.Match[str]) -> str:
    return "".join(
        "".join(islice(run, _MARKS_MOST) if marks else run) for marks, run in groupby(found[0], key=_is_mark)
    )


def _is_mark(char: str) -> bool:
    return unicodedata.category(char)[0] == "M" or char in "\uff9e\uff9f"
