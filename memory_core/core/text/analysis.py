"""The words of a text as they are indexed, asked for and compared, in any script.

The FTS table is declared with ``tokenize = 'porter unicode61 remove_diacritics 2'``. SQLite's tokenizers cannot cut
scripts written without spaces, so runs of Han, kana and hangul are stored as overlapping character pairs
(``支付系统`` -> ``支付 付系 系统 统``). The last character of a run stands alone once more: with it every single
character begins some token, so a one-character query is a prefix query. Traditional characters become simplified
ones, so that either finds the other. All other scripts are folded (NFKC, casefold) and left to FTS5, which stems
English; irregular forms become the word they belong to.

Owned here, too: the words that say little. Stop words ask rather than describe. Everyday words stand in many
memories, whoever keeps them: SQLite weighs a word by the rows that hold it, and in a store of five memories every
word is rare, "user" and "name" as much as "penicillin". So ``FILLER_ROWS`` rows of everyday words are kept beside the
documents and counted with them, each word in about the share of rows that it has among people's memories. A store
that grows to hundreds of documents outweighs them. The rows must never be hits; whoever searches sees to it.

Promises: pure, never raises on any ``str`` (NUL and lone surrogates included), the same in every process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise

from memory_core.core.text.normalization import simplified
from memory_core.core.text.unicode_form import unicode_form
from memory_core.core.text.word_table import compiled, word_set, word_table

#: Characters of scripts that are written without spaces, as the inside of a character class.
CJK = (
    "\u1100-\u11ff\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u318f"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
    "\U0001aff0-\U0001b16f\U00020000-\U0003ffff"
)
#: Particles, pronouns and question words.
CHINESE_PARTICLES = frozenset("的了吗呢啊呀嘛我你他她它您们这那么什怎")
#: Two of these together say nothing. Alone they are parts of too many content words (会议, 地址, 和平).
CHINESE_FUNCTION_CHARS = CHINESE_PARTICLES | frozenset(
    "吧哦嗯哈是不没有在和与或也都就还又很太真被把给让跟对向从到着过地得个些哪谁几为会能可以要想说"
)
#: SQLite's idf is near zero for a word in half of all rows: in a store of two memories, for every word.
FILLER_ROWS = 32

_CHARS_PER_WORD = 1.7
_CJK_RUN = f"([{CJK}]+)"
#: SQLite stores UTF-8 and ends a text at NUL; private-use characters are tokens to FTS5 and kept for fillers.
_UNSTORABLE = "[\x00\ud800-\udfff\ue000-\uf8ff]"
_WORD = re.compile(r"[^\W_]+")
_INDEXED_WORD = re.compile(r"\w+")


def fold(text: str) -> str:
    """One form for all spellings: NFKC (full width, half-width kana), case, simplified Chinese; storable in SQLite."""
    folded = unicode_form("NFKC", compiled(_UNSTORABLE).sub(" ", text)).casefold()
    return simplified(unicode_form("NFKC", folded))


def holds_all(folded: str, words: Iterable[str]) -> bool:
    """Whether a text, folded once, holds each of these words, folded likewise."""
    return all(word in folded for word in words)


def folded_words(text: str) -> str:
    """``text`` folded, with irregular forms as the words that they are forms of."""
    known = _base_words()
    return _WORD.sub(lambda found: known.get(found[0], found[0]), fold(text))


def runs(text: str) -> Iterator[tuple[str, bool]]:
    """The text in pieces, each with whether it is written without spaces; joined they are the text."""
    for place, run in enumerate(compiled(_CJK_RUN).split(text)):
        if run:
            yield run, place % 2 == 1


def pairs(run: str) -> list[str]:
    """The character pairs of a run that is written without spaces."""
    return [left + right for left, right in pairwise(run)]


def stored_tokens(run: str) -> list[str]:
    """What is stored for a run that is written without spaces: its pairs, then its last character."""
    return [*pairs(run), run[-1]]


def index_tokens(text: str) -> str:
    """What the FTS table stores for ``text``.

    Args:
        text: Anything, Markdown included.

    Returns:
        The folded text with every CJK run replaced by its character pairs and its last character, set off by
        spaces. Blank if ``text`` holds nothing to find.
    """
    return compiled(_CJK_RUN).sub(lambda run: f" {' '.join(stored_tokens(run[0]))} ", folded_words(text))


def word_count(text: str) -> float:
    """How many words a text has; of scripts that are written without spaces, one for every 1.7 characters."""
    return sum(len(run) / _CHARS_PER_WORD if wide else len(_WORD.findall(run)) for run, wide in runs(text))


def distinct_words(text: str) -> frozenset[str]:
    """The words and character pairs of a text, without English stop words: what near-duplicates share."""
    return frozenset(_INDEXED_WORD.findall(index_tokens(text))) - english_stop_words()


def english_stop_words() -> frozenset[str]:
    """Words that ask rather than describe."""
    return word_set(__file__, "english_stop_words")


@cache
def filler_texts() -> tuple[str, ...]:
    """``FILLER_ROWS`` texts of everyday words, about two dozen words each, as FTS5 stores them."""
    rows: list[list[str]] = [[] for _ in range(FILLER_ROWS)]
    start = 0
    for group in word_table(__file__)["everyday"]:
        count = int(group["share"] * FILLER_ROWS)
        for word in " ".join(group["words"]).split():
            for number in range(count):
                rows[(start + number * FILLER_ROWS // count) % FILLER_ROWS].append(word)
            start += 1
    return tuple(map(" ".join, rows))


@cache
def _base_words() -> Mapping[str, str]:
    """Irregular forms, each with its word."""
    lines = "|".join(word_table(__file__)["irregular_forms"]).split("|")
    return {form: base for base, *forms in map(str.split, lines) for form in forms}
