"""What a text adds to another; a plain write adds to the text that stands there.

A sentence counts as said where the other text has it but for case, width, punctuation and list marks. What stands below
a heading, a line with a colon at its end or a list item that is new is added with it, said or not; below one that
stands already, only what the text says nowhere. The standing text stays as it is. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

from memory_core.core.text.analysis import distinct_words
from memory_core.core.text.extractive_summary import blocks, negations, sentences
from memory_core.core.text.normalization import signature

_BULLET = re.compile(r"[ \t]*[-*+•][ \t]+")
_HEADING = re.compile(r"#{1,6}[ \t]")
_ITEM = re.compile(r"[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t]")
#: Introduces the list below it.
_INTRODUCTION = re.compile(r"[:：]\s*\Z")
#: Depth of a paragraph; headings stand above it, list items below it.
_PARAGRAPH = 7
_OWN_FORM = re.compile(r"[ \t]|[|>#]|```|~~~|\d{1,3}[.)][ \t]")
_LABEL_CHARS = 40
_SENTENCE_END = re.compile(r"[.!?。！？…:;,，；、：]$")
#: Sentences of either text that are compared, and those that are named.
_COMPARED, _NAMED = 100, 5
#: What is told by marks or case alone: an option, "and" and "or" in code, a unit or a name such as mW.
_TOLD_BY_MARKS = re.compile(r"(?<![\w-])--?[^\W\d_]\w*|(?<=\s)[&|]+(?=\s)|(?<!\w)[a-z]+[A-Z]\w*")
#: A word that marks are part of: a path, a name in code, a number with a unit's sign.
_WORD_ENDS, _MARKED = re.compile(r"[\s,;]+"), re.compile(r"\w[-/\\_.*+()\[\]:=]+\w")
#: Of a paragraph, lines that are compared one by one.
_LINES = 20
#: Sentences that share this part of the words of the shorter one are about the same.
_SAME_SUBJECT = 0.5


def with_added(standing: str, given: str, *, label: bool = False) -> str:
    """The standing text, and below it what the given one adds; the given one alone where it says all of the other.

    Args:
        standing: What is there.
        given: What is to be there, too.
        label: Both are values such as ``person``, not texts; a second one follows after a comma.
    """
    added = _new_blocks(standing, given)
    if not added:
        return standing
    if not missing(standing, given):
        return given
    if label and _is_short(standing) and _is_short(given):
        return f"{standing.strip()}, {given.strip()}"
    headings = [block for block in blocks(standing) if _HEADING.match(block)]
    if headings and _HEADING.match(added[0]) and _key(added[0]) == _key(headings[-1]):
        added = added[1:]
    pieces = [standing.rstrip()]
    last = pieces[0].rpartition("\n")[2]
    if bullet := _BULLET.match(last):
        added = [block if _has_own_form(block) else bullet[0] + block for block in added]
    blank = "\n\n" in f"{standing}{given}"
    for block in added:
        listed = _BULLET.match(last) and _BULLET.match(block)
        joins = len(list(blocks(f"{last}\n{block}"))) == 1  # as one sentence
        apart = _HEADING.match(block) or (not listed and (joins or _introduces(block) or blank))
        pieces.append(f"\n\n{block}" if apart else f"\n{block}")
        last = block.rpartition("\n")[2]
    return "".join(pieces)


def missing(standing: str, given: str) -> tuple[str, ...]:
    """The sentences of ``standing`` that ``given`` does not say."""
    if f"{given}\n".startswith(f"{standing}\n"):
        return ()
    said = _said(given)
    return tuple(sentence for block in blocks(standing) for sentence in _unsaid(block, said))


def beside(standing: str, given: str) -> tuple[str, ...]:
    """The sentences of ``standing`` that may say something else about the same than a new one of ``given``."""
    found: dict[str, None] = {}
    said = _said(given)
    newest = (sentence for block in reversed(list(blocks(standing))) for sentence in reversed([*_unsaid(block, said)]))
    old = {sentence: distinct_words(sentence) for sentence in reversed([*islice(newest, _COMPARED)])}
    for new in missing(given, standing)[:_COMPARED]:
        words = distinct_words(new)
        for sentence, others in old.items():
            shared = len(words & others) / max(1, min(len(words), len(others)))
            if shared >= _SAME_SUBJECT and (not others <= words or negations(sentence) != negations(new)):
                found[sentence] = None
    return tuple(found)[:_NAMED]


def _new_blocks(standing: str, given: str) -> list[str]:
    """The blocks of ``given`` that say anything new or stand below a new one, and the headings above them."""
    said = _said(standing)
    found: list[tuple[str, bool]] = []
    above = 0  # the depth of the new block that those below it belong to
    for block in blocks(given):
        new, depth = any(_unsaid(block, said)), _depth(block)
        if not above or depth <= above:
            above = depth if new and (depth != _PARAGRAPH or _introduces(block)) else 0
        found.append((block, new or above > 0))
    kept: list[str] = []
    for block, new in reversed(found):
        if new or (_HEADING.match(block) and kept and not _HEADING.match(kept[-1])):
            kept.append(block.rstrip())
    return kept[::-1]


def _depth(block: str) -> int:
    """Of headings their level, of a list's items their indentation below a paragraph."""
    if _HEADING.match(block):
        return len(block) - len(block.lstrip("#"))
    return _PARAGRAPH + 1 + len(block) - len(block.lstrip()) if _ITEM.match(block) else _PARAGRAPH


def _introduces(block: str) -> bool:
    """Whether a line outside a list introduces what is below it."""
    return _depth(block) == _PARAGRAPH and _INTRODUCTION.search(block) is not None


def _has_own_form(block: str) -> bool:
    """Whether a block that joins a list does not become an item of it."""
    return bool(_BULLET.match(block) or _OWN_FORM.match(block)) or _introduces(block)


@lru_cache(maxsize=4)
def _said(text: str) -> frozenset[str]:
    """Signatures of the sentences of a text, and of the first lines of its paragraphs, to which more may be added."""
    said: set[str] = set()
    for block in blocks(text):
        said.update(map(_key, _sentences(block)))
        lines = block.split("\n")
        said.update(_key("\n".join(lines[:end])) for end in range(1, min(len(lines), _LINES)))
    return frozenset(said)


def _unsaid(block: str, said: frozenset[str]) -> Iterator[str]:
    if _key(block) not in said:
        yield from (sentence for sentence in _sentences(block) if _key(sentence) not in said)


def _sentences(block: str) -> list[str]:
    """The sentences of a block; one without any letter or digit is a sentence, too."""
    return sentences(block) or [block]


def _key(text: str) -> str:
    """Equal for texts that say the same: their words, and to the letter what has marks inside, such as a path."""
    marked = (word.rstrip(".:)]") for word in _WORD_ENDS.split(text) if _MARKED.search(word))
    return "\0".join((signature(text), *map(str.casefold, marked), *_TOLD_BY_MARKS.findall(text)))


def _is_short(text: str) -> bool:
    text = text.strip()
    return len(text) <= _LABEL_CHARS and "\n" not in text and not _SENTENCE_END.search(text)
