"""Chinese characters in one form: traditional and simplified writing of a word become equal.

For comparing keys, never for showing text. Works character by character, so that a word has one form whatever
stands around it; the few characters that need a neighbour to be told apart follow as pairs. What simplified writing
keeps apart stays apart: 画 and 划 are two characters, only 计画 is another spelling of 计划.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_FIRST_HAN = "\u3400"
#: Spellings beside the dictionary's, which decides these by longer phrases.
_VARIANTS = {"瞭": "了", "藉": "借", "祇": "只", "衹": "只", "彷": "仿", "牴": "抵", "著": "着", "锺": "钟", "钜": "巨"}
_PAIRS = (
    (re.compile("(?<=[计规企策筹谋])画"), "划"),
    (re.compile("(?<=[反回答函批重])覆"), "复"),
    (re.compile("(?<=[项锁拉铰颈手铁])炼|炼(?=[子条坠])"), "链"),
    (re.compile("沈(?=[没积船默])"), "沉"),
    (re.compile("(?<=家)俱"), "具"),
)


def simplified(text: str) -> str:
    """``text`` with traditional characters as simplified ones; doing it twice changes nothing more."""
    if not text or max(text) < _FIRST_HAN:
        return text
    text = text.translate(_table())
    for pattern, character in _PAIRS:
        text = pattern.sub(character, text)
    return text


@cache
def _table() -> Mapping[int, str]:
    """Each traditional character's simplified form; of several the dictionary's first."""
    lines = files("opencc").joinpath("dictionary", "TSCharacters.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("\t") for line in lines if line)
    forms = {traditional: candidates.split()[0] for traditional, candidates in pairs} | _VARIANTS
    return {ord(character): _final(character, forms) for character in forms}


def _final(character: str, forms: Mapping[str, str]) -> str:
    """The end of a chain such as 薴 → 苧 → 苎."""
    passed = {character}
    while (form := forms.get(character, character)) not in passed:
        character = form
        passed.add(form)
    return character
