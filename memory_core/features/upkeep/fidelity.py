"""Whether a text by other hands may stand in the place of the texts that it was made of. Pure.

Owned here: what is a number, a name and a denial in English and Chinese, and the comparison. It is strict: a sentence
that names or counts something, or denies it, must stand in the text with its words in their order, and the text may
use no words but theirs. What it cannot be sure of it refuses; it never proves that a text is right.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from memory_core.core.text.extractive_summary import names, negations, numbers, sentences
from memory_core.core.text.normalization import simplified
from memory_core.core.text.word_table import word_pattern, word_set

_pattern, _words = partial(word_pattern, __file__), partial(word_set, __file__)
#: Share of the words of a sentence that names and counts nothing which the text must have.
_MOST = 0.6
_UNIT_LETTERS = 3


class _Token(NamedTuple):
    """A word that says something.

    Attributes:
        text: The word, or one Chinese character.
        firm: Whether what stands next to it belongs to it: a number, a sign, a denial.
        counts: Whether both neighbours do: a number or a sign.
        ends: Whether its neighbour on the right is in another clause.
    """

    text: str
    firm: bool
    counts: bool
    ends: bool = False


class _Said(NamedTuple):
    """A sentence of an original; an essential one counts, denies or names something."""

    text: str
    tokens: Sequence[_Token]
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
    lines = (match[0].strip() for match in _pattern("leading_line").finditer(text))
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
    tokens = _tokens(sentence)
    essential = any(token.firm for token in tokens) or bool(negations(sentence)) or bool(names(sentence))
    return _Said(sentence, tokens, bool(tokens) and essential)


def _head(own: Sequence[_Said]) -> set[str]:
    """The words that an original begins with: what it is about. A pronoun says nothing of that."""
    if not own or not own[0].tokens or _pattern("pronoun").match(own[0].text):
        return set()
    tokens = own[0].tokens
    wide = "\u3400" <= tokens[0].text <= "\u9fff"
    return {token.text for token in tokens[: 2 if wide else 1] if not token.firm}


def _tokens(sentence: str) -> list[_Token]:
    """The words of a sentence that say something, Chinese ones by their characters."""
    folded = simplified(unicodedata.normalize("NFKC", sentence))
    found: list[_Token] = []
    end = 0
    for match in _pattern("token").finditer(folded):
        between = folded[end : match.start()]
        end = match.end()
        if found and _pattern("clause_end").search(between):
            found[-1] = found[-1]._replace(ends=True)
        behind_digit = between in ("", " ") and bool(found) and found[-1].text[0].isdigit()
        # "mg" and "Mg" are two units, "The" and "the" one word.
        is_unit = behind_digit and bool(match["word"]) and len(match[0]) <= _UNIT_LETTERS
        word = match[0] if is_unit else match[0].casefold()
        if word in _words("free"):
            continue
        counts = bool(match["number"] or match["sign"]) or word in _words("numerals")
        turns = word in _words("turning") or word.endswith(("n't", "n’t"))
        found.append(_Token(word.replace(",", "") if match["number"] else word, counts or turns, counts))
    return found
