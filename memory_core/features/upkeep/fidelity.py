"""Whether a text by other hands may stand in the place of the texts that it was made of. Pure.

Owned here: what is a number, a name and a denial in English and Chinese, and the comparison. It is strict: a sentence
that names or counts something, or denies it, must stand in the text with its words in their order, and the text may
use no words but theirs. What it cannot be sure of it refuses; it never proves that a text is right.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from memory_core.core.text.extractive_summary import names, negations, numbers, sentences
from memory_core.core.text.normalization import simplified

_TOKEN = re.compile(
    r"(?P<number>\d+(?:[.,:/-]\d+)*)|(?P<word>[A-Za-z\u00c0-\u024f]+(?:['’][A-Za-z]+)*)|(?P<han>[\u3400-\u9fff])"
    r"|(?P<sign>[<>≤≥≠≈~±+=]+|(?<![\w)])[-−–](?=\s?[$€£¥]?\d)|[$€£¥₩₽₹%‰°#№]|(?<=\d)[-–](?!\d))|(?P<other>[^\W\d_])"
)
#: Words that a sentence may lose or gain without saying something else.
_FREE_WORDS = """
a an the of and is are am be been being has have had do does did it its this that these those also too he she they i we
you his her their our your my me him them us s
"""
_FREE = frozenset(_FREE_WORDS.split())
_FREE_HAN = frozenset("的了着吧呢吗啊呀是在也都就和与及她他它们这那很")
_HAN_NUMERALS = frozenset("零〇一二两三四五六七八九十百千万亿半几双")
_PRONOUNS = re.compile(
    r"\s*(?:(?:it|its|he|she|they|i|we|you|his|her|their|my|this|that)\b|[她他它我你您咱])", re.IGNORECASE
)
#: Words on which the meaning of the next ones turns: they are counted, like numbers and denials.
_TURN_WORDS = """
no not never none nobody nothing neither nor without cannot avoid except refuse refuses refused stop stops stopped
deny denies denied forbid forbids forbidden ban banned prohibit prohibited quit reject rejects rejected decline
declined fail fails failed lack lacks unless until only must may might can could should would will shall was were used
former formerly if against hate hates dislike dislikes hardly rarely seldom longer instead cease ceased less more
least most fewer at under over below above before after since half twice dozen one first second third last monday
tuesday wednesday thursday friday saturday sunday every all always some any two three four five six seven eight nine
ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty
seventy eighty ninety hundred thousand million billion
"""
_TURNS = frozenset(_TURN_WORDS.split())
_TURNS_HAN = frozenset("不没無无别勿未莫非禁拒戒忌停否免只仅必须须若曾将除反讨厌避弃绝少多")
#: A line that stands over the next ones: a heading, or one that ends in a colon.
_LEADING = re.compile(r"^[ \t]*(?:#{1,6}[ \t]+\S.*|.*\S[ \t*_]*[:：][ \t*_]*)$", re.MULTILINE)
#: Share of the words of a sentence that names and counts nothing which the text must have.
_MOST = 0.6
_UNIT_LETTERS = 3


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    firm: bool
    """Whether what stands next to it belongs to it: a number, a sign, a denial."""
    counts: bool
    """Whether both neighbours do: a number or a sign."""
    ends: bool = False
    """Whether its neighbour on the right is in another clause."""


@dataclass(frozen=True, slots=True)
class _Said:
    """A sentence of an original."""

    text: str
    tokens: tuple[_Token, ...]
    essential: bool


def unsaid(text: str, originals: Sequence[str]) -> list[str]:
    """Why a text cannot stand for the originals: numbers, names and sentences of theirs that it does not have.

    What it says, counts or denies and they do not stands with ``not: `` before it. Empty if it may stand for them.
    """
    leading = [line for each in (*originals, text) for line in _turning(each)]
    if leading:  # how far a heading such as "Never do this:" reaches, no comparison of words can tell
        return list(dict.fromkeys(leading))
    told = [_tokens(sentence) for sentence in sentences(text)]
    covered: list[set[int]] = [set() for _ in told]
    missing = _unnamed(text, originals)
    said = [[_said(sentence) for sentence in sentences(original)] for original in originals]
    heads = [_head(each) for each in said]
    for at, own in enumerate(said):
        words = {token.text for sentence in own for token in sentence.tokens}
        others = {word for place, head in enumerate(heads) if place != at for word in head} - words
        missing += _unmatched(own, told, others, covered)
    known = {token.text for each in said for sentence in each for token in sentence.tokens}
    for tokens, places in zip(told, covered, strict=True):
        made_up = (each for at, each in enumerate(tokens) if each.text not in known or (each.firm and at not in places))
        missing += [f"not: {token.text}" for token in made_up]
    return list(dict.fromkeys(missing))


def _turning(text: str) -> list[str]:
    """Lines that deny or limit what stands below them."""
    lines = (match[0].strip() for match in _LEADING.finditer(text))
    return [line for line in lines if any(token.firm and not token.counts for token in _tokens(line))]


def _unnamed(text: str, originals: Sequence[str]) -> list[str]:
    """Numbers and names of the originals that are not in the text, and numbers that are in none of them."""
    said, folded = numbers(text), simplified(unicodedata.normalize("NFKC", text)).casefold()
    missing: list[str] = []
    known: set[str] = set()
    for original in originals:
        named = numbers(original)
        known |= named
        missing += sorted(named - said)
        missing += sorted(name for name in names(original) if name not in folded)
    return [*missing, *(f"not: {number}" for number in sorted(said - known))]


def _unmatched(
    own: Sequence[_Said], told: Sequence[Sequence[_Token]], others: set[str], covered: Sequence[set[int]]
) -> Iterator[str]:
    """Sentences of one original that the text does not have, or not next to those before; marks those it has."""
    reached: set[int] | None = None
    for number, sentence in enumerate(own):
        found = {
            at: match
            for at, tokens in enumerate(told)
            if (match := _match(sentence, tokens, others, head=number == 0)) is not None
        }
        near = {at for at in found if reached is None or at in reached or at - 1 in reached}
        if not near:
            yield sentence.text
            continue
        for at in near:
            covered[at].update(found[at])
        reached = near


def _match(sentence: _Said, told: Sequence[_Token], others: set[str], *, head: bool) -> list[int] | None:
    """Places in a sentence of the text where the words of an original's sentence stand; None if they do not."""
    wanted = sentence.tokens
    if not sentence.essential:
        held = {token.text for token in told}
        share = sum(token.text in held for token in wanted)
        return [] if share >= _MOST * len(wanted) else None
    for start, token in enumerate(told):
        if token.text != wanted[0].text:
            continue
        places = _in_order(wanted, told, start)
        if places is None:
            continue
        span = range(places[0] if head else 0, places[-1] + 1)
        foreign = any(told[at].text in others for at in span)
        turned = any(told[at].firm and not told[at].counts and at not in places for at in range(start, places[-1]))
        if not foreign and not turned:
            return places
    return None


def _in_order(wanted: Sequence[_Token], told: Sequence[_Token], start: int) -> list[int] | None:
    """Where the wanted words stand from a place on; what belongs together must stand together."""
    places = [start]
    for before, token in pairwise(wanted):
        tight = (before.firm or token.counts) and not before.ends
        at = places[-1] + 1
        while at < len(told) and told[at].text != token.text and not tight:
            at += 1
        if at >= len(told) or told[at].text != token.text or (tight and told[at - 1].ends):
            return None
        places.append(at)
    return places


def _said(sentence: str) -> _Said:
    tokens = tuple(_tokens(sentence))
    return _Said(sentence, tokens, bool(tokens) and (any(token.firm for token in tokens) or _denies_or_names(sentence)))


def _denies_or_names(sentence: str) -> bool:
    return bool(negations(sentence)) or bool(names(sentence))


def _head(own: Sequence[_Said]) -> set[str]:
    """The words that an original begins with: what it is about. A pronoun says nothing of that."""
    if not own or not own[0].tokens or _PRONOUNS.match(own[0].text):
        return set()
    tokens = own[0].tokens
    wide = "\u3400" <= tokens[0].text <= "\u9fff"
    return {token.text for token in tokens[: 2 if wide else 1] if not token.firm}


def _tokens(sentence: str) -> list[_Token]:
    """The words of a sentence that say something, Chinese ones by their characters."""
    folded = simplified(unicodedata.normalize("NFKC", sentence))
    found: list[_Token] = []
    end = 0
    for match in _TOKEN.finditer(folded):
        if found and re.search(r"[,;:，；：、。.!?！？]", folded[end : match.start()]):
            found[-1] = _Token(found[-1].text, found[-1].firm, found[-1].counts, True)
        near = folded[end : match.start()] in ("", " ")
        glued = near and bool(found) and found[-1].text[0].isdigit() and len(match[0]) <= _UNIT_LETTERS
        # "mg" and "Mg" are two units, "The" and "the" one word.
        word = match[0] if glued and match["word"] else match[0].casefold()
        end = match.end()
        if word in (_FREE_HAN if match["han"] else _FREE):
            continue
        counts = bool(match["number"] or match["sign"]) or word in _HAN_NUMERALS
        turns = word in _TURNS or word in _TURNS_HAN or word.endswith(("n't", "n’t"))
        text = word.replace(",", "") if match["number"] else word
        found.append(_Token(text, counts or turns, counts))
    return found
