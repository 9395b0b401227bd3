"""Honest extraction: of several texts the sentences that say most, word for word, each once and in order.

Owned here: what a sentence, a number, a name and a denial is in English and Chinese Markdown, and which sentences are
chosen where not all have room. Nothing is invented, reworded or merged: two sentences that differ in a number are two
facts, and both stay. Pure.
"""

from __future__ import annotations

import heapq
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from memory_core.core.index.tokenizer import distinct_words
from memory_core.core.memory.names import summary_line
from memory_core.core.text import language
from memory_core.core.text.normalization import signature, simplified

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)")
_MARK = re.compile(r"^[ \t]*(?:(?:[-*+•>]|#{1,6}|\d{1,3}[.)])[ \t]+)+(?=\S)")
_RULE = re.compile(r"[ \t]*(?:[-*_=][ \t]*){3,}")
_OWN_LINE = re.compile(r"[ \t]*(?:[-*+•>|]|#{1,6}[ \t]|\d{1,3}[.)][ \t])")
#: A line that goes on where the one before it stopped.
_GOES_ON = re.compile(r"[a-z,;，、；)）]")
_OPEN_END = re.compile(r"[,;，、；(（]$")
#: A point that ends no sentence: titles, initials, Latin abbreviations.
_ABBREVIATED = re.compile(
    r"(?:^|[\s(])(?:[A-Z]|Dr|Mr|Mrs|Ms|Prof|St|No|Nr|vs|cf|approx|ca|e\.g|i\.e|Inc|Ltd|Jan|Feb|Mar|Apr|Jun|Jul|Aug"
    r"|Sept?|Oct|Nov|Dec|Fig|Vol)\.$"
)
_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*")
_COUNTS = """
two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen
twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion half twice
"""
_WORD_NUMBERS = frozenset(_COUNTS.split())
_HAN_NUMBER = re.compile(
    "[零〇一二两三四五六七八九十百千万亿]{2,}|[两三四五六七八九十](?=[个名位只台次天周月年元块米岁点号条])"
)
_QUOTED = re.compile('"([^"\n]{1,60})"|“([^“”\n]{1,60})”|「([^「」\n]{1,60})」|《([^《》\n]{1,60})》|`([^`\n]{1,60})`')
_LATIN_WORD = re.compile(r"[A-Za-z\u00c0-\u024f][\w'’.@/+#-]*[\w+#]|[A-Z]")
_HAN_NAME = re.compile(
    "[小老阿](?![时孩心区说学师板家人是事店吃费组姨型数票腿])[\u4e00-\u9fff](?=[说在是的和来去住喜把给有要不会想做买到从也今昨明,，。])"
    "|[\u4e00-\u9fff](?:先生|女士|老师|医生|经理|教授|总监|阿姨|叔叔)"
)
_NAMED_SO = re.compile("(?:名叫|叫做|叫|名字是)([\u4e00-\u9fff]{2,3})(?![\u4e00-\u9fff])")
_NEGATION = re.compile(
    r"\b(?:not|no|never|none|nobody|nothing|neither|nor|without|cannot|avoid|except|stop|refuse[sd]?|forbid\w*|\w+n['’]t)"
    r"\b|[不没無无别勿未莫非]|禁止|禁忌|严禁|拒绝|停止|避免|切忌|戒",
    re.IGNORECASE,
)
#: They hold one of the characters and deny nothing.
_HARMLESS = re.compile(
    "不过|不仅|不但|不同|别人|特别|分别|区别|级别|性别|无论|不管|未来|非常|莫名|差不多|不错|不断|没错"
)
_ESSENTIAL_WORTH = 2.0


@dataclass(frozen=True, slots=True)
class Condensed:
    """What was chosen.

    Attributes:
        chosen: For each text, in order, its sentences in order; a text may have none.
        left_out: Sentences for which there was no room; those said before are not counted.
    """

    chosen: tuple[tuple[str, ...], ...]
    left_out: int


def sentences(text: str) -> list[str]:
    """The sentences of a Markdown text in order, without the marks of lists and headings.

    A heading, a list item and a row of a table end with their line, prose may be wrapped; a block of code is one.
    """
    found: list[str] = []
    for block in _blocks(text):
        if _FENCE.match(block):
            found.append(block)
        else:
            found += _sentences(" ".join(_MARK.sub("", block).split()))
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
    folded = simplified(unicodedata.normalize("NFKC", text))
    found = {number.replace(",", "") for number in _NUMBER.findall(folded)}
    found.update(_HAN_NUMBER.findall(folded))
    found.update(word for word in re.findall(r"[a-z]+", folded.casefold()) if word in _WORD_NUMBERS)
    return frozenset(found)


def names(text: str) -> frozenset[str]:
    """What a text calls by its name: capital letters inside a sentence, words with digits, quotations, code.

    Lower case. The first word of an English sentence tells nothing, unless it stands so elsewhere too.
    """
    found: set[str] = set()
    for sentence in sentences(text):
        found.update(next(filter(None, match.groups())).strip() for match in _QUOTED.finditer(sentence))
        for place, match in enumerate(_LATIN_WORD.finditer(sentence)):
            word = match[0].strip(".'’")
            if _is_name(word, first=place == 0 and not sentence[: match.start()].strip(" *_(\"'“")):
                found.add(word)
        found.update(_HAN_NAME.findall(sentence))
        found.update(_NAMED_SO.findall(sentence))
    return frozenset(_plain(name) for name in found if name)


def negations(text: str) -> list[str]:
    """The words and characters with which a text denies or forbids something."""
    return _NEGATION.findall(_HARMLESS.sub("", simplified(text)))


@dataclass(frozen=True, slots=True)
class _Sentence:
    source: int
    place: int
    text: str
    words: frozenset[str]
    worth: float


def _distinct(texts: Iterable[str]) -> list[_Sentence]:
    """The sentences of all texts, each once, with what they are worth alone."""
    seen: set[str] = set()
    plain: list[tuple[int, str, frozenset[str]]] = []
    for source, text in enumerate(texts):
        for sentence in sentences(text):
            key = signature(sentence) or sentence
            if key not in seen:
                seen.add(key)
                plain.append((source, sentence, distinct_words(sentence)))
    frequency = Counter(word for _, _, words in plain for word in words)
    return [
        _Sentence(source, place, text, words, sum(1.0 + math.log(frequency[word]) for word in words) + _essential(text))
        for place, (source, text, words) in enumerate(plain)
    ]


def _essential(text: str) -> float:
    """What makes a sentence hard to do without: numbers, names, and what is denied."""
    return _ESSENTIAL_WORTH * (len(numbers(text)) + len(names(text)) + bool(negations(text)))


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


def _blocks(text: str) -> Iterator[str]:
    """Pieces that no sentence crosses: paragraphs, list items with their wrapped lines, blocks of code."""
    block: list[str] = []
    fenced = False
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if fenced:
            block.append(line)
            fenced = not _FENCE.match(line)
            if fenced:
                continue
        elif _FENCE.match(line):
            if block:
                yield "\n".join(block)
            block, fenced = [line.strip()], True
            continue
        elif line.strip() and block and not _OWN_LINE.match(line) and _wrapped(block[-1], line):
            block.append(line)
            continue
        if block:
            yield "\n".join(block)
        block = [line] if line.strip() and not _RULE.fullmatch(line) and not _FENCE.match(line) else []
    if block:
        yield "\n".join(block)


def _wrapped(before: str, line: str) -> bool:
    return _OPEN_END.search(before.rstrip()) is not None or _GOES_ON.match(line.lstrip()) is not None


def _sentences(line: str) -> list[str]:
    """The sentences of one line; an abbreviation's point ends none."""
    found: list[str] = []
    for piece in language.sentences(line):
        if found and _ABBREVIATED.search(found[-1]):
            found[-1] = f"{found[-1]} {piece}"
        else:
            found.append(piece)
    return found


def _is_name(word: str, *, first: bool) -> bool:
    letters = [char for char in word if char.isalpha()]
    if any(char.isdigit() for char in word) or any(char in "@/_#+" for char in word):
        return True
    if any(char.isupper() for char in letters[1:]):
        return True
    return not first and len(word) > 1 and word[0].isupper() and word not in ("I", "I'm", "I'd", "I've", "I'll")


def _plain(text: str) -> str:
    return simplified(unicodedata.normalize("NFKC", text)).casefold()
