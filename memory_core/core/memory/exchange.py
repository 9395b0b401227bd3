"""Where the pages of a conversation begin: a page is one exchange, what one person asked and what was answered.

A page begins where the one who began the conversation speaks after somebody else, so a page of a chat is a question
with its answers, and a page of a talk between people is a turn with its replies. Pure: knows speakers, not texts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from copy import copy
from itertools import pairwise

from memory_core.core.memory.message import Message

#: Role and name; None where nobody speaks: a prompt, a damaged line, or a message that may not be shown.
Speaker = tuple[str, str | None] | None
_TOOLS: Speaker = ("tool", None)
_PROMPTS = frozenset({"system", "developer"})


def speaker_of(message: Message | None) -> Speaker:
    """Who says a message; what tools answer is nobody's word, also where it comes in the user's name."""
    if message is None or message.role in _PROMPTS:
        return None
    if message.tool_results and not message.text.strip() and not message.tool_calls:
        return _TOOLS
    return message.role, message.name


def opener_of(speakers: Iterable[Speaker]) -> Speaker:
    """Who began the conversation: the first user; None where none speaks."""
    return next((speaker for speaker in speakers if speaker is not None and speaker[0] == "user"), None)


def begins(speaker: Callable[[int], Speaker], at: int, opener: Speaker) -> bool:
    """Whether the opener speaks after somebody else.

    Args:
        speaker: Of a message, by its place.
        at: Place of the message, >= 1.
        opener: See ``opener_of``.
    """
    return speaker(at) == opener and speaker(at - 1) != opener


class ExchangeStarts:
    """Where the exchanges of a conversation start, message by message.

    Args:
        opener: Who began it; default the first user that speaks.

    Attributes:
        starts: Places of the first messages.
        count: Messages so far.
    """

    def __init__(self, opener: Speaker = None) -> None:
        self.starts: list[int] = []
        self.count = 0
        self._opener = opener
        self._last: Speaker = None
        self._has_spoken = False

    def add(self, message: Message) -> None:
        """Count one more message."""
        speaker = speaker_of(message)
        if self._opener is None and speaker is not None and speaker[0] == "user":
            self._opener = speaker
            del self.starts[1:]
        if self.count == 0 or (self._has_spoken and speaker == self._opener and self._last != self._opener):
            self.starts.append(self.count)
        self._has_spoken = self._has_spoken or speaker is not None
        self._last = speaker
        self.count += 1

    def copy(self) -> ExchangeStarts:
        """The same count, to be gone on with."""
        twin = copy(self)
        twin.starts = self.starts.copy()
        return twin

    def holding(self, places: range, without: Collection[int]) -> int:
        """How many exchanges hold any of these messages, some apart."""
        if without:
            return len({bisect_right(self.starts, place) for place in places if place not in without})
        return bisect_right(self.starts, places[-1]) - bisect_right(self.starts, places[0]) + 1 if places else 0


def exchanges(messages: Sequence[Message], opener: Speaker = None) -> list[tuple[int, int]]:
    """The pages of a conversation as ``(first, end)`` places of messages, ``end`` not included.

    Together they hold every message once, in order; prompts before the first question belong to its page.

    Args:
        messages: The conversation, or what follows a page's end.
        opener: Who began it; default the first user among these.
    """
    counted = ExchangeStarts(opener)
    for message in messages:
        counted.add(message)
    return [*pairwise((*counted.starts, counted.count))]
