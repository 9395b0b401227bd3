"""Where the exchanges of a conversation start: an exchange is what one person asked and what was answered.

An exchange starts where the one who began the conversation speaks after somebody else. So in a chat it is a question
with its answers, and in a talk between people a turn with its replies. Pure: knows speakers, not texts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable
from copy import copy
from itertools import pairwise

from memory_core.core.memory.message import Message

#: Role and name; None where nobody speaks: a prompt, a damaged line, or a message that may not be shown.
Speaker = tuple[str, str | None] | None
_TOOLS: Speaker = ("tool", None)
_PROMPTS = frozenset({"system", "developer"})


def speaker_of(message: Message | None) -> Speaker:
    """Who says a message; a tool result has the speaker of tools, even if its role is that of the user."""
    if message is None or message.role in _PROMPTS:
        return None
    if message.tool_results and not message.text.strip() and not message.tool_calls:
        return _TOOLS
    return message.role, message.name


def opener_of(speakers: Iterable[Speaker]) -> Speaker:
    """Who began the conversation: the first user; None where none speaks."""
    return next((speaker for speaker in speakers if speaker is not None and speaker[0] == "user"), None)


def starts_exchange(speaker_at: Callable[[int], Speaker], at: int, opener: Speaker) -> bool:
    """Whether the opener speaks after somebody else.

    Args:
        speaker_at: The speaker of a message, by its place.
        at: Place of the message, >= 1.
        opener: See ``opener_of``.
    """
    return speaker_at(at) == opener and speaker_at(at - 1) != opener


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
        """A copy that counts on by itself."""
        twin = copy(self)
        twin.starts = self.starts.copy()
        return twin

    def count_touched(self, places: range, excluded: Collection[int]) -> int:
        """How many exchanges hold any of these messages but the excluded ones."""
        if excluded:
            return len({bisect_right(self.starts, place) for place in places if place not in excluded})
        return bisect_right(self.starts, places[-1]) - bisect_right(self.starts, places[0]) + 1 if places else 0


def exchange_spans(messages: Iterable[Message], opener: Speaker = None) -> list[tuple[int, int]]:
    """The exchanges of a conversation as ``(first, end)`` places of messages, ``end`` not included.

    Together they hold every message once, in order; prompts before the first question belong to its exchange.

    Args:
        messages: The conversation, or what follows an exchange's end.
        opener: Who began it; default the first user among these.
    """
    counted = ExchangeStarts(opener)
    for message in messages:
        counted.add(message)
    return [*pairwise((*counted.starts, counted.count))]
