"""Keywords of a text, without a model: the words that it repeats and that say something, English and Chinese alike.

Terms are what texts are compared by: words in their plain form, and pairs of Chinese characters. Keywords are what
people read: whole words, and runs of Chinese characters that stand together. Pure; the same text has the same
keywords in every process.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import cache, lru_cache
from types import MappingProxyType

from memory_core.core.index.tokenizer import CHINESE_FUNCTION_CHARS, ENGLISH_STOP_WORDS, fold, index_tokens
from memory_core.core.search.fusion import filler_texts

_WORD = re.compile(r"[^\W_]+(?:[-_.][^\W_]+)*")
_HAN = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]+")
_TOKEN = re.compile(r"\w+")
_LEAST_CHARS = 3
#: Sentences and segments are compared again with each exchange that joins.
_REMEMBERED_TEXTS = 4_096
_LONGEST_NAME = 4
#: A word at the beginning of the text says more of what it is about than one that only comes up.
_REPEATED_SHARE = 0.5
_TALK = frozenset(
    """
    hello hi hey thanks thank okay ok yes yeah sure well oh hmm maybe actually today tomorrow yesterday now something
    anything everything nothing someone thing things stuff lot really bit kind sort sound sounds great nice cool glad
    happy sorry wow haha lol http https www com user assistant image try still even ever many much
    """.split()  # noqa: SIM905 - a list of words is read, not forty literals
)


@cache
def _everyday() -> frozenset[str]:
    """Words that stand in many people's conversations, and pairs of characters likewise."""
    return frozenset(" ".join(filler_texts()).split()) | _TALK | ENGLISH_STOP_WORDS


@lru_cache(maxsize=_REMEMBERED_TEXTS)
def terms(text: str) -> Mapping[str, int]:
    """Words in their plain form and pairs of Chinese characters, with how often each stands there."""
    found = (_plain(token) for token in _TOKEN.findall(index_tokens(text)))
    return MappingProxyType(Counter(token for token in found if _tells(token)))


def cosine(one: str, other: str) -> float:
    """Cosine of two texts as vectors of their terms, repeated ones damped, in [0, 1]; 0.0 where one has none."""
    (left, left_length), (right, right_length) = sorted((_weights(one), _weights(other)), key=lambda each: len(each[0]))
    shared = sum(weight * right[term] for term, weight in left.items() if term in right)
    return min(1.0, shared / (left_length * right_length)) if left else 0.0


@lru_cache(maxsize=_REMEMBERED_TEXTS)
def _weights(text: str) -> tuple[Mapping[str, float], float]:
    """The vector of a text, and its length."""
    weights = {term: 1.0 + math.log(count) for term, count in terms(text).items()}
    return weights, math.sqrt(math.fsum(weight * weight for weight in weights.values()))


def keywords(text: str, limit: int = 8) -> tuple[str, ...]:
    """The words that say most about a text, the best first.

    Args:
        text: Plain text.
        limit: Of them, >= 0.
    """
    folded = fold(text)
    counts: Counter[str] = Counter()
    for match in _WORD.finditer(_HAN.sub(" ", folded)):
        word = _plain(match[0])
        if len(word) >= _LEAST_CHARS and _tells(word) and not word.isdecimal():
            counts[word] += 1
    counts.update(_names(folded))
    place = {word: at for at, word in enumerate(counts)}
    ranked = sorted(counts, key=lambda word: (-_worth(word, counts[word]), place[word]))
    chosen: list[str] = []
    for word in ranked:
        if not any(word in other or other in word for other in chosen if _HAN.match(other) and _HAN.match(word)):
            chosen.append(word)
    return tuple(chosen[:limit])


def joined(lists: Iterable[Collection[str]], limit: int) -> tuple[str, ...]:
    """The keywords of several texts together: what most of them have, earlier ones first.

    Args:
        lists: Keywords of each text, the best first.
        limit: Of the result, >= 0.
    """
    worth: dict[str, float] = {}
    for words in lists:
        for at, word in enumerate(words):
            worth[word] = worth.get(word, 0.0) + 1.0 / (1.0 + _REPEATED_SHARE * at)
    return tuple(sorted(worth, key=lambda word: -worth[word])[:limit])


@lru_cache(maxsize=_REMEMBERED_TEXTS)
def comparable(words: tuple[str, ...]) -> frozenset[str]:
    """Keywords as sets are compared: Chinese ones by their pairs, so that 支付系统 and 支付回调 share one."""
    return frozenset(term for word in words for term in terms(word)) or frozenset(words)


def _worth(word: str, count: int) -> float:
    length = 2 * len(word) if _HAN.match(word) else len(word)
    return (1.0 + math.log(count)) * (1.0 + min(length, 10) / 20.0)


def _tells(token: str) -> bool:
    if _HAN.match(token):
        return len(token) > 1 and token not in _everyday() and CHINESE_FUNCTION_CHARS.isdisjoint(token)
    return len(token) > 1 and token not in _everyday()


def _plain(word: str) -> str:
    """A word without the ending of its plural; what has none, or is short, stays."""
    if len(word) > 4 and word.isascii():
        if word.endswith("ies"):
            return f"{word[:-3]}y"
        if word.endswith(("ches", "shes", "sses", "xes")):
            return word[:-2]
        if word.endswith("s") and not word.endswith(("ss", "us", "is")):
            return word[:-1]
    return word


def _names(folded: str) -> Counter[str]:
    """Runs of Chinese characters that may be words: short ones between particles, and what a text repeats."""
    counts: Counter[str] = Counter()
    runs: list[str] = []
    for match in _HAN.finditer(folded):
        run = "".join(" " if char in CHINESE_FUNCTION_CHARS else char for char in match[0])
        runs += [piece for piece in run.split() if len(piece) > 1]
    seen = Counter(
        run[at : at + size] for run in runs for size in range(2, _LONGEST_NAME + 1) for at in range(len(run) - size + 1)
    )
    for run in runs:
        if len(run) <= _LONGEST_NAME:
            counts[run] = max(counts[run], seen[run])
        else:
            whole = [run[at : at + 2] for at in range(0, len(run) - 1, 2)]
            counts.update(piece for piece in whole if seen[piece] == 1)
    counts |= Counter({name: count for name, count in seen.items() if count > 1})
    longer = {name for name in counts if len(name) > 2}
    return Counter(
        {
            name: count
            for name, count in counts.items()
            if _tells_name(name) and not any(name != more and name in more and counts[more] >= count for more in longer)
        }
    )


def _tells_name(name: str) -> bool:
    return name not in _everyday() and any(name[at : at + 2] not in _everyday() for at in range(len(name) - 1))
