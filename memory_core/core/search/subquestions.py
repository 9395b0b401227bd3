"""The questions of a query that asks several: each is searched for, so that no answer hides another."""

from __future__ import annotations

from memory_core.core.text.language import is_brief, sentences
from memory_core.core.text.word_table import word_pattern

_MOST = 4
#: What is shorter says too little to be searched for alone.
_LEAST_LETTERS, _LETTERS_PER_HAN = 12, 3


def subquestions(query: str) -> list[str]:
    """The questions that a query asks, each whole in itself.

    "Where does Ann live, and what does Bob eat?" asks two; so does "What do Ann and Bob eat?", of each of them, and the
    query itself is then the first. A part that refers back ("and what does she eat?") is none alone.

    Args:
        query: Of any length; a long text is a message.

    Returns:
        At least two and at most ``_MOST``; nothing where it asks but one.
    """
    if not is_brief(query):
        return []
    return _joined(query) or _of_each(query)


def _joined(query: str) -> list[str]:
    asks, refers_back = word_pattern(__file__, "asks"), word_pattern(__file__, "refers_back")
    parts = [
        part.strip(" ,;，；")
        for sentence in sentences(query)
        for part in word_pattern(__file__, "joint").split(sentence)
        if part is not None
    ]
    whole = all(asks.search(part) and _letters(part) >= _LEAST_LETTERS for part in parts)
    if not 2 <= len(parts) <= _MOST or not whole or any(refers_back.search(part) for part in parts[1:]):
        return []
    return parts


def _of_each(query: str) -> list[str]:
    pair = word_pattern(__file__, "pair").search(query)
    if pair is None:
        return []
    start, end = pair.span()
    names = [name for name in pair.groups() if name is not None]
    return [query, *(query[:start] + name + query[end:] for name in names)]


def _letters(text: str) -> int:
    return sum(1 if char.isascii() else _LETTERS_PER_HAN for char in text if char.isalnum())
