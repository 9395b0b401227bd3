"""Summaries without a model: the sentences of texts that say most, word for word, and their keywords.

Owned here: what a sentence, a number, a name and a denial is in English and Chinese Markdown, which sentences are
chosen where not all have room, and the words by which texts are told apart. Nothing is invented, reworded or merged:
two sentences that differ in a number are two facts, and both stay.

Terms are what texts are compared by: words in their plain form, and pairs of Chinese characters. Keywords are what
people read: whole words, and runs of Chinese characters that stand together. Pure; the same text has the same
sentences and keywords in every process.
"""

from __future__ import annotations

import heapq
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType

from memory_core.core.caches import remembered
from memory_core.core.memory.names import summary_line
from memory_core.core.text import language
from memory_core.core.text.analysis import (
    CHINESE_FUNCTION_CHARS,
    distinct_words,
    english_stop_words,
    filler_texts,
    fold,
    index_tokens,
)
from memory_core.core.text.normalization import signature, simplified
from memory_core.core.text.unicode_form import unicode_form
from memory_core.core.text.word_table import word_pattern, word_set, words

_pattern, _words = partial(word_pattern, __file__), partial(word_set, __file__)
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)")
_MARK = re.compile(r"^[ \t]*(?:(?:[-*+•>]|#{1,6}|\d{1,3}[.)])[ \t]+)+(?=\S)")
_RULE = re.compile(r"[ \t]*(?:[-*_=][ \t]*){3,}")
_OWN_LINE = re.compile(r"[ \t]*(?:[-*+•>|]|#{1,6}[ \t]|\d{1,3}[.)][ \t])")
#: A line that goes on where the one before it stopped.
_GOES_ON = re.compile(r"[a-z,;，、；)）]")
_OPEN_END = re.compile(r"[,;，、；(（]$")
_ESSENTIAL_WORTH = 2.0

_WORD = re.compile(r"[^\W_]+(?:[-_.][^\W_]+)*")
_TOKEN = re.compile(r"\w+")
_LEAST_CHARS, _MOST_CHARS = 3, 64
_LONGEST_NAME = 4
#: Sentences and segments are compared again with each exchange that joins.
_REMEMBERED_TEXTS, _REMEMBERED_BYTES = 4_096, 32 << 20
#: A word at the beginning of the text says more of what it is about than one that only comes up.
_REPEATED_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Condensed:
    """What was chosen.

    Attributes:
        chosen: For each text, in order, its sentences in order; a text may have none.
        left_out: Sentences for which there was no room; those said before are not counted.
    """

    chosen: tuple[tuple[str, ...], ...]
    left_out: int

    @property
    def lines(self) -> list[str]:
        """What was chosen of each text, on one line; empty where nothing was."""
        return [" ".join(joined(each).split()) for each in self.chosen]


def sentences(text: str) -> list[str]:
    """The sentences of a Markdown text in order, without the marks of lists and headings.

    A heading, a list item and a row of a table end with their line, prose may be wrapped; a block of code is one.
    """
    found: list[str] = []
    for block in blocks(text):
        if _FENCE.match(block):
            found.append(block)
        else:
            found += language.sentences(" ".join(_MARK.sub("", block).split()))
    return [sentence for sentence in found if any(char.isalnum() for char in sentence)]


def joined(parts: Sequence[str]) -> str:
    """Sentences as one line of text; after a Chinese mark stands no space. Code keeps its lines."""
    text = ""
    for part in parts:
        wide = not text or unicodedata.east_asian_width(text[-1]) in "WF"
        block = text and (_FENCE.match(part) or _FENCE.match(text.rpartition("\n")[2]))
        text += f"\n{part}" if block else part if wide else f" {part}"
    return text


def condense(texts: Sequence[str], limit_chars: int, weights: Sequence[float] = ()) -> Condensed:
    """Choose the sentences that say most, within a bound.

    Every text first gets its best sentence, the weightiest texts before others; then goes in what adds most that was
    not said yet. A sentence that was said before, in whatever spelling, is left out.

    Args:
        texts: What is condensed, in the order in which it is to be read.
        limit_chars: Of all sentences together, what joins them not counted; > 0.
        weights: Of each text, > 0; default 1. Counted where not all have room.
    """
    told = _distinct(texts)
    if sum(len(sentence.text) for sentence in told) > limit_chars:
        kept = _best(told, limit_chars, [*weights, *([1.0] * (len(texts) - len(weights)))])
    else:
        kept = told
    if not kept and told:
        first = max(told, key=lambda each: each.worth)
        kept = [_Sentence(first.source, first.place, summary_line(first.text, limit_chars), first.words, 0.0)]
    chosen: list[list[str]] = [[] for _ in texts]
    for sentence in sorted(kept, key=lambda each: each.place):
        chosen[sentence.source].append(sentence.text)
    return Condensed(tuple(map(tuple, chosen)), len(told) - len(kept))


def numbers(text: str) -> frozenset[str]:
    """The numbers a text names, dates and times included, in one spelling."""
    folded = simplified(unicode_form("NFKC", text))
    said = _words("number_words").intersection(re.findall(r"[a-z]+", folded.casefold()))
    return said.union(number.replace(",", "") for number in _pattern("number").findall(folded))


def names(text: str) -> frozenset[str]:
    """What a text calls by its name: capital letters inside a sentence, words with digits, quotations, code.

    Lower case. The first word of an English sentence tells nothing, unless it stands so elsewhere too.
    """
    found: set[str] = set()
    for sentence in sentences(text):
        found.update(match[match.lastindex or 0].strip() for match in _pattern("quoted").finditer(sentence))
        for place, match in enumerate(_pattern("latin_word").finditer(sentence)):
            word = match[0].strip(".'’")
            if _is_name(word, first=place == 0 and not sentence[: match.start()].strip(" *_(\"'“")):
                found.add(word)
        for pattern in ("chinese_name", "named_so"):
            found.update(_pattern(pattern).findall(sentence))
    return frozenset(simplified(unicode_form("NFKC", name)).casefold() for name in found if name)


def negations(text: str) -> list[str]:
    """The words and characters with which a text denies or forbids something."""
    return _pattern("negation").findall(_pattern("no_negation").sub("", simplified(text)))


@remembered(_REMEMBERED_TEXTS, _REMEMBERED_BYTES)
def terms(text: str) -> Mapping[str, int]:
    """Words in their plain form and pairs of Chinese characters, with how often each stands there."""
    found = (_singular(token) for token in _TOKEN.findall(index_tokens(text)))
    return MappingProxyType(Counter(token for token in found if _tells(token)))


def cosine(one: str, other: str) -> float:
    """Cosine of two texts as vectors of their terms, repeated ones damped, in [0, 1]; 0.0 where one has none."""
    (left, left_length), (right, right_length) = sorted((_weights(one), _weights(other)), key=lambda each: len(each[0]))
    shared = sum(weight * right[term] for term, weight in left.items() if term in right)
    return min(1.0, shared / (left_length * right_length)) if left else 0.0


def keywords(text: str, limit: int = 8) -> tuple[str, ...]:
    """The words that say most about a text, the best first.

    Args:
        text: Plain text.
        limit: Of them, >= 0.
    """
    folded = fold(text)
    han = _pattern("han")
    counts: Counter[str] = Counter()
    for match in _WORD.finditer(han.sub(" ", folded)):
        word = _singular(match[0])
        if _LEAST_CHARS <= len(word) <= _MOST_CHARS and _tells(word) and not word.isdecimal():
            counts[word] += 1
    counts.update(_chinese_keywords(folded))
    ranked = sorted(counts, key=lambda word: -_worth(word, counts[word]))
    chosen: list[str] = []
    for word in ranked:
        within = (other for other in chosen if han.match(word) and han.match(other))
        if not any(word in other or other in word for other in within):
            chosen.append(word)
    return tuple(chosen[:limit])


def common_keywords(lists: Iterable[Collection[str]], limit: int) -> tuple[str, ...]:
    """The keywords of several texts together: what most of them have, earlier ones first.

    Args:
        lists: Keywords of each text, the best first.
        limit: Of the result, >= 0.
    """
    worth: dict[str, float] = {}
    for own in lists:
        for at, word in enumerate(own):
            worth[word] = worth.get(word, 0.0) + 1.0 / (1.0 + _REPEATED_SHARE * at)
    return tuple(sorted(worth, key=lambda word: -worth[word])[:limit])


@remembered(_REMEMBERED_TEXTS, _REMEMBERED_BYTES)
def comparable(keywords: tuple[str, ...]) -> frozenset[str]:
    """Keywords as sets are compared: Chinese ones by their pairs, so that 支付系统 and 支付回调 share one."""
    return frozenset(term for word in keywords for term in terms(word)) or frozenset(keywords)


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence of the text ``source``, at ``place`` among all; ``worth`` is what it says alone."""

    source: int
    place: int
    text: str
    words: frozenset[str]
    worth: float


def _distinct(texts: Iterable[str]) -> list[_Sentence]:
    """The sentences of all texts, each once. A number, a name or a denial makes one hard to do without."""
    told: dict[str, tuple[int, str, frozenset[str]]] = {}
    for source, text in enumerate(texts):
        for sentence in sentences(text):
            told.setdefault(signature(sentence), (source, sentence, distinct_words(sentence)))
    frequency = Counter(word for _, _, said in told.values() for word in said)
    found: list[_Sentence] = []
    for place, (source, text, said) in enumerate(told.values()):
        essential = len(numbers(text)) + len(names(text)) + bool(negations(text))
        worth = math.fsum(1.0 + math.log(frequency[word]) for word in said) + _ESSENTIAL_WORTH * essential
        found.append(_Sentence(source, place, text, said, worth))
    return found


def _best(told: Sequence[_Sentence], limit_chars: int, weights: Sequence[float]) -> list[_Sentence]:
    """Greedy choice by worth for its length; a word that was said adds little once more."""
    said: set[str] = set()
    kept: list[_Sentence] = []
    left = limit_chars

    def rate(sentence: _Sentence) -> float:
        fresh = len(sentence.words - said) / (len(sentence.words) or 1)
        return weights[sentence.source] * sentence.worth * (0.1 + 0.9 * fresh) / math.sqrt(len(sentence.text))

    def take(sentence: _Sentence) -> bool:
        nonlocal left
        if len(sentence.text) > left:
            return False
        kept.append(sentence)
        said.update(sentence.words)
        left -= len(sentence.text)
        return True

    for source in sorted({sentence.source for sentence in told}, key=lambda each: (-weights[each], each)):
        own = sorted((each for each in told if each.source == source), key=lambda each: (-rate(each), each.place))
        next(filter(take, own), None)
    queue = [(-rate(sentence), sentence.place, sentence) for sentence in told if sentence not in kept]
    heapq.heapify(queue)
    while queue:
        _, place, sentence = heapq.heappop(queue)
        now = -rate(sentence)
        if queue and now > queue[0][0]:
            heapq.heappush(queue, (now, place, sentence))
        else:
            take(sentence)
    return kept


def blocks(text: str) -> Iterator[str]:
    """Pieces that no sentence crosses: paragraphs, list items with their wrapped lines, blocks of code."""
    block: list[str] = []
    in_code = False
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        fence = _FENCE.match(line) is not None
        if in_code or (not fence and block and _continues(block[-1], line)):
            block.append(line)
            if not (in_code and fence):
                continue
        if block:
            yield "\n".join(block)
        opens = fence and not in_code
        in_code = opens
        block = [line.strip()] if opens else [line] if line.strip() and not fence and not _RULE.fullmatch(line) else []
    if block:
        yield "\n".join(block)


def _continues(before: str, line: str) -> bool:
    """Whether a line goes on with the paragraph or list item of the one before."""
    if not line.strip() or _OWN_LINE.match(line):
        return False
    return _OPEN_END.search(before.rstrip()) is not None or _GOES_ON.match(line.lstrip()) is not None


def _is_name(word: str, *, first: bool) -> bool:
    if any(char.isdigit() or char in "@/_#+" for char in word):
        return True
    if any(char.isupper() for char in [char for char in word if char.isalpha()][1:]):
        return True
    return not first and len(word) > 1 and word[0].isupper() and word not in _words("no_name")


@remembered(_REMEMBERED_TEXTS, _REMEMBERED_BYTES)
def _weights(text: str) -> tuple[Mapping[str, float], float]:
    """The vector of a text, and its length."""
    weights = {term: 1.0 + math.log(count) for term, count in terms(text).items()}
    return weights, math.sqrt(math.fsum(weight * weight for weight in weights.values()))


def _worth(word: str, count: int) -> float:
    length = 2 * len(word) if _pattern("han").match(word) else len(word)
    return (1.0 + math.log(count)) * (1.0 + min(length, 10) / 20.0)


@cache
def _everyday() -> frozenset[str]:
    """Words that stand in many people's conversations, and pairs of characters likewise."""
    return words(filler_texts()) | _words("words_of_talk") | english_stop_words()


def _tells(token: str) -> bool:
    """Whether a word, or a pair of Chinese characters, says something."""
    grammar = _pattern("han").match(token) and not CHINESE_FUNCTION_CHARS.isdisjoint(token)
    return len(token) > 1 and token not in _everyday() and not grammar


def _singular(word: str) -> str:
    """A word without the ending of its plural; what has none, or is short, stays."""
    if len(word) > 4 and word.isascii():
        if word.endswith("ies"):
            return f"{word[:-3]}y"
        if word.endswith(("ches", "shes", "sses", "xes")):
            return word[:-2]
        if word.endswith("s") and not word.endswith(("ss", "us", "is")):
            return word[:-1]
    return word


def _chinese_keywords(folded: str) -> Counter[str]:
    """Runs of Chinese characters that may be words: short ones between particles, and what a text repeats."""
    runs: list[str] = []
    for match in _pattern("han").finditer(folded):
        run = "".join(" " if char in CHINESE_FUNCTION_CHARS else char for char in match[0])
        runs += [piece for piece in run.split() if len(piece) > 1]
    seen = Counter(
        run[at : at + size] for run in runs for size in range(2, _LONGEST_NAME + 1) for at in range(len(run) - size + 1)
    )
    counts: Counter[str] = Counter()
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
            if name not in _everyday()
            and any(name[at : at + 2] not in _everyday() for at in range(len(name) - 1))
            and not any(name != more and name in more and counts[more] >= count for more in longer)
        }
    )
