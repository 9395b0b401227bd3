"""What of a text bears on a question: its sentences, and the words in them that matched.

A text is compared in the form in which it is indexed (``analysis.fold``), and shown as it was written.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from textwrap import TextWrapper

from memory_core.core.frozen import frozen
from memory_core.core.index.tokenizer import query_terms
from memory_core.core.text.analysis import CHINESE_FUNCTION_CHARS, CJK, distinct_words, fold
from memory_core.core.text.plain_text import plain_text

#: Of a longer text the beginning is looked at.
READ_CHARS = 20_000
#: Of a question with more words the most telling are looked for.
_WORDS_MOST = 64
#: A longer sentence is taken in pieces.
_PIECE_CHARS = 280
_PIECES = TextWrapper(_PIECE_CHARS, expand_tabs=False, replace_whitespace=False, break_on_hyphens=False)
#: Texts whose scores are remembered.
_SCORED_TEXTS = 128
#: What a sentence gains from a better one before or after it, so that what belongs together is shown together.
_BESIDE_SHARE = 0.5
#: Endings of English words in other forms; and sentences, roughly.
_ENDING = re.compile("(?<=[a-z]{3})(?:ing|ed|es|s|e)$")
_BETWEEN_SENTENCES = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
#: Of a word that began with what matched; scripts without spaces have no such rest.
_REST_OF_WORD = re.compile(rf"(?<![{CJK}])[^\W{CJK}]*")


@frozen
class Excerpt:
    """What of a text is shown to somebody who asked something.

    Attributes:
        text: Sentences of it, with ``…`` where others were.
        marks: (start, end) in ``text`` of what matched, in order, apart from each other.
    """

    text: str
    marks: tuple[tuple[int, int], ...] = ()


def excerpt_of(text: str, sought: re.Pattern[str] | None, most_chars: int) -> Excerpt:
    """What of a text is shown, on one line and without marks of Markdown.

    Args:
        text: Any.
        sought: See ``words_sought``.
        most_chars: About so many.
    """
    shown = text if len(text) <= most_chars else best_sentences(text, sought, most_chars, "\n")
    shown = " ".join(plain_text(shown).split())
    return Excerpt(shown, tuple(_marks(shown, sought)))


def _marks(text: str, sought: re.Pattern[str] | None) -> Iterator[tuple[int, int]]:
    """Where the words stand, whole in scripts of words; what touches is one."""
    if sought is None:
        return
    folded, places = _with_places(text)
    start = end = -1
    for found in re.finditer(f"(?=({sought.pattern}))", folded):  # pairs of characters overlap
        last = found.end(1)
        if (rest := _REST_OF_WORD.match(folded, last)) is not None:
            last = rest.end()
        begins, ends = places[found.start(1)], places[last - 1] + 1
        if begins <= end:
            end = max(end, ends)
            continue
        if end > 0:
            yield start, end
        start, end = begins, ends
    if end > 0:
        yield start, end


def _with_places(text: str) -> tuple[str, list[int]]:
    """The text folded, and for each of its characters where the one stood that it came from."""
    folded = _folded(text)
    if len(folded) == len(text):
        return folded, list(range(len(text)))
    pieces = [fold(char) for char in text]
    return "".join(pieces), [at for at, piece in enumerate(pieces) for _ in piece]


def words_sought(question: str) -> re.Pattern[str] | None:
    """What finds the words of a question in a folded text, in other forms of them too; None where it has none.

    Of very many words those are looked for that a search asks for, see ``tokenizer.query_terms``.
    """
    stems = _stems(question)
    if len(stems) > _WORDS_MOST:
        stems = _stems(" ".join(query_terms(question, _WORDS_MOST)))
    known = sorted(stems, key=lambda stem: (-len(stem), stem))[:_WORDS_MOST]
    if not known:
        return None
    return re.compile("|".join(rf"\b{re.escape(stem)}" if stem.isascii() else re.escape(stem) for stem in known))


def _stems(question: str) -> set[str]:
    """What its words begin with, whatever their form; without those that say little."""
    stems = (_ENDING.sub("", word) if word.isascii() else _content(word) for word in distinct_words(question))
    return {stem for stem in stems if stem}


def _content(word: str) -> str:
    """A pair of Chinese characters; of one said twice (姐姐) the character, and nothing of one that says little."""
    if len(word) == 1 or CHINESE_FUNCTION_CHARS.issuperset(word):
        return ""
    return word[0] if word == word[0] * len(word) else word


def best_sentences(text: str, sought: re.Pattern[str] | None, most_chars: int, joint: str = " ") -> str:
    """The sentences of a long text that hold most of what is asked, in their order, with ``…`` where others were.

    A word counts the more, the fewer sentences hold it; what stands beside a good sentence counts too. Where no
    sentence holds a word it is the beginning. What is beyond ``READ_CHARS`` is left out without a ``…``.

    Args:
        text: Long.
        sought: See ``words_sought``.
        most_chars: About so many; at least one sentence is shown.
        joint: Between sentences.
    """
    parts, scores = _scored(text[:READ_CHARS], sought)
    chosen: set[int] = set()
    left = most_chars
    for at in sorted(range(len(parts)), key=lambda at: (-scores[at], at)):
        if chosen and len(parts[at]) > left:
            continue
        chosen.add(at)
        left -= len(parts[at])
    shown: list[str] = []
    for at, part in enumerate(parts):
        if at in chosen:
            shown.append(part)
        elif not shown or shown[-1] != "…":
            shown.append("…")
    return joint.join(shown)


@lru_cache(_SCORED_TEXTS)
def _scored(text: str, sought: re.Pattern[str] | None) -> tuple[list[str], list[float]]:
    """The sentences of a text, long ones in pieces, and how much of what is asked each holds."""
    parts = [part for sentence in _BETWEEN_SENTENCES.split(text) for part in _PIECES.wrap(sentence)]
    held = [set() if sought is None else set(sought.findall(_folded(part))) for part in parts]
    often = Counter(word for words in held for word in words)
    weights = {word: math.log(1.0 + len(parts) / count) for word, count in often.items()}
    own = [sum(weights[word] for word in words) for words in held]
    scores = [score + _BESIDE_SHARE * max(own[max(at - 1, 0) : at + 2]) for at, score in enumerate(own)]
    return parts, scores


def _folded(text: str) -> str:
    return text.casefold() if text.isascii() else fold(text)
