"""One form for all spellings: simplified Chinese for traditional, and the signature of a text.

Two texts with one signature say the same thing in the same words, so that a search shows them as one hit. That is
spelling, never meaning: "server A has 16 GB" and "server B has 16 GB" are two facts, however close their vectors are.
Owned here: which differences do not count. Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from memory_core.core.text.unicode_form import unicode_form
from memory_core.core.text.word_table import compiled, word_table

_FIRST_HAN = "\u3400"


def simplified(text: str) -> str:
    """``text`` with traditional characters as simplified ones; doing it twice changes nothing more."""
    if not text or max(text) < _FIRST_HAN:
        return text
    text = text.translate(_table())
    for pattern, character in word_table(__file__)["by_context"].items():
        text = compiled(pattern).sub(character, text)
    return text


@cache
def _table() -> Mapping[int, str]:
    """Each traditional character's simplified form; of several the dictionary's first."""
    lines = files("opencc").joinpath("dictionary", "TSCharacters.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("\t") for line in lines if line)
    forms = {traditional: candidates.split()[0] for traditional, candidates in pairs} | word_table(__file__)["variants"]
    return {ord(character): _final(character, forms) for character in forms}


def _final(character: str, forms: Mapping[str, str]) -> str:
    """The end of a chain such as 薴 → 苧 → 苎."""
    passed = {character}
    while (form := forms.get(character, character)) not in passed:
        character = form
        passed.add(form)
    return character


#: A signature longer than this is replaced by its hash.
LIMIT_CHARS = 64
#: Spelling is taken away from so much of a text; what lies beyond counts to the letter.
READ_CHARS = 65_536
#: Words that say nothing. "a" stays: it may be a name (server A), and 的 and 了 change what a sentence says.
_EMPTY_WORDS = frozenset({"the"})
_MARK_VARIANTS = str.maketrans({"\u2212": "-", "\u2019": "'", "\u2018": "'", "\u02bc": "'"})
_LIST_MARK = re.compile(r"^[ \t]*(?:(?:[-*+•]|>|#{1,6})[ \t]+)+", re.MULTILINE)
_CHECKBOX = re.compile(r"^([ \t]*(?:[-*+•][ \t]+)?)\[([ xX])\]", re.MULTILINE)
_RAISED = re.compile(r"[²³¹⁰⁴-⁹₀-₉]+")
_HAN = r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
_MARKS = "\\x00-\\x20!\"#&'()*+,\\-./:;?@\\[\\\\\\]^_`{|}\xa0¡§«¶·»¿\u2000-\u206f\u3000-\u303f\ufe00-\ufe0f"
#: A word with the marks that belong to it (C++, C#, don't, 1.5, 10:30, 2 * 3, -5, !important, !=); a Chinese character;
#: or what a mark alone can turn round: a question, a strike-out.
_TOKEN = (
    rf"[{_HAN}]|\?|~~|!="
    rf"|(?:(?<![^\s(\[])[-+](?=\d)|(?<!\S)!(?=[^\W\d_]))?(?:[^{_MARKS}{_HAN}~]|~(?!~)"
    rf"|(?<=\d)\s?:\s?(?=\d)|(?<=\d)[.,](?=\d)|(?<=[^\W_])\s?[-*/^+]\s?(?=\d)|(?<=[^\W\d_])'(?=[^\W\d_])|(?<=[^\W_])[#+]+(?!\w))+"
)


def signature(text: str) -> str:
    """What stays of a text when spelling is taken away; equal for texts that may be folded into one hit.

    Taken away: case, width and Unicode form, traditional writing, white space, punctuation and Markdown marks, "the".
    Kept: every other word and its place, numbers with sign, point and unit, symbols, emoji, a question mark, a
    ticked box.

    Returns:
        The words, or for a long text a hash of them; texts without any word only equal themselves.
    """
    if rest := text[READ_CHARS:].rstrip():
        return _hashed(f"{signature(text[:READ_CHARS])} {_hashed(rest)}")
    read = _RAISED.sub(lambda match: f" ^{match[0]} ", text)
    read = unicode_form("NFKC", read).translate(_MARK_VARIANTS)
    read = _CHECKBOX.sub(lambda match: f"{match[1]} {'☐' if match[2] == ' ' else '☑'} ", read)
    read = simplified(_LIST_MARK.sub("", read)).casefold()
    words = [word.replace(" ", "") for word in compiled(_TOKEN).findall(read)]
    kept = " ".join(word for word in words if word not in _EMPTY_WORDS)
    if not kept:
        kept = text
    return kept if len(kept) <= LIMIT_CHARS else _hashed(kept)


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
