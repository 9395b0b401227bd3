"""Which lines of a conversation speak of a memory that came from it. Pure.

A memory remembers its session, not the lines: a model reads many and writes one sentence. So the lines are found by
the words that they share with it; rare ones among the conversation's count most, as in any search.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from memory_core.index.words.tokenizer import distinct_words
from memory_core.model.conversation import Message, search_text

_LINES = 6
#: A line that has less of the memory's weight than this share of the best line's is left out.
_NEAR = 0.4
_SPEAKERS = frozenset({"user", "assistant"})


def source_lines(text: str, messages: Sequence[tuple[int, Message]], limit: int = _LINES) -> list[tuple[int, Message]]:
    """The messages that a memory most likely came from, in their order.

    Args:
        text: What the memory says.
        messages: Of the conversation, with their line numbers.
        limit: At most.
    """
    wanted = distinct_words(text)
    said = [(line, message, wanted & distinct_words(search_text(message))) for line, message in messages]
    said = [each for each in said if each[1].role in _SPEAKERS and each[2]]
    often = Counter(word for _, _, words in said for word in words)
    weights = {word: math.log(1.0 + len(said) / count) for word, count in often.items()}
    scored = [(sum(weights[word] for word in words), line, message) for line, message, words in said]
    best = max((score for score, _, _ in scored), default=0.0)
    near = sorted((each for each in scored if each[0] >= _NEAR * best), key=lambda each: (-each[0], each[1]))
    return sorted(((line, message) for _, line, message in near[:limit]), key=lambda each: each[0])
