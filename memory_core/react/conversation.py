"""A conversation as the update loop takes it in, what comes out, and how messages become prompt text.

Owned here: the values ``Conversation`` and ``Outcome``, the windows of a long conversation, and the transcript
that a model reads. Every line that begins a message begins with its number; all other lines are indented, so that
nothing said can pose as another message. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from memory_core.llm.client import TokenUsage
from memory_core.model.conversation import Message, transcript_line
from memory_core.model.operations import MemoryOperations
from memory_core.model.reasoning import MemoryChange
from memory_core.react.fencing import cut_end, cut_middle, one_line
from memory_core.scoring.tokens import count_tokens

#: Share of a conversation's budget that messages before it may take on top.
EARLIER_SHARE = 0.15
#: Share of a prompt's free room that the conversation may take, earlier messages included.
_CONVERSATION_SHARE = 0.5
_OWN_LANGUAGE = "the language that the user writes in"
_USER_SHARE = 0.5
_OTHER_SHARE = 0.25
_TOOL_SHARE = 0.1
_NUMBER_TOKENS = 5
_LEAST_TOKENS = 24
#: A window ends early, at a user's message, if it is at least so full.
_FULL_ENOUGH = 0.5


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages of one session to extract memories from.

    Attributes:
        session_id: The session.
        messages: What to extract from; message 1 of ``hints`` is the first of these.
        earlier: Messages before them that were extracted already: context only.
        language: Language of the memories, as shown to the model; empty is the one the user writes in.
        hints: What the system noticed, such as "message 12 looks like a correction".
    """

    session_id: str
    messages: tuple[Message, ...]
    earlier: tuple[Message, ...] = ()
    language: str = ""
    hints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the model made of a conversation.

    Attributes:
        operations: To be committed; empty when there is nothing worth remembering, and then ``reasoning`` says why.
        expected: SHA-256 of the text of each file as the model saw it, by URI; for conflicts at the commit.
        reasoning: The model's, in a few sentences.
        summary: The conversation in two or three sentences, if the model gave one.
        usage: Summed; ``requests`` is the number of requests made.
        dropped: What was left out and why: malformed items, ignored actions, operations on unread files.
        decisions: What the model decided about each candidate.
    """

    operations: MemoryOperations
    expected: Mapping[str, str]
    reasoning: str
    summary: str | None
    usage: TokenUsage
    dropped: tuple[str, ...]
    decisions: tuple[MemoryChange, ...]


def conversation_budget(available_tokens: int) -> int:
    """Tokens of messages that one extraction takes, of those that a prompt has left beside its static part."""
    return int(available_tokens * _CONVERSATION_SHARE / (1 + EARLIER_SHARE))


def language_line(language: str) -> str:
    """The language of the memories, in words."""
    return one_line(language) or _OWN_LANGUAGE


def hint_lines(hints: Sequence[str], budget_tokens: int) -> str:
    """What the system noticed, one line each; empty without hints."""
    lines = [f"- {one_line(hint)}" for hint in hints]
    return cut_end("\n".join(["Noticed by the system:", *lines]), budget_tokens) if lines else ""


def split(messages: Sequence[Message], budget_tokens: int) -> list[tuple[int, int]]:
    """Windows ``(start, end)`` that cover all messages in order, each within the budget.

    A window ends before a user's message where that leaves it at least half full, else before a message that is
    no tool's answer. A message longer than its share of the budget is shortened when it is shown, and counts so.

    Args:
        messages: The conversation.
        budget_tokens: As ``conversation_budget`` says.
    """
    windows: list[tuple[int, int]] = []
    start, used = 0, 0
    costs = [count_tokens(numbered(message, 1, budget_tokens)) + _NUMBER_TOKENS for message in messages]
    for index, cost in enumerate(costs):
        if used + cost > budget_tokens and index > start:
            end = _border(messages, costs, start, index)
            windows.append((start, end))
            start, used = end, sum(costs[end:index])
        used += cost
    return [*windows, (start, len(messages))] if start < len(messages) else windows


def _border(messages: Sequence[Message], costs: Sequence[int], start: int, end: int) -> int:
    enough = sum(costs[start:end]) * _FULL_ENOUGH
    for allowed in (("user",), ("user", "assistant")):
        used = sum(costs[start:end])
        for border in range(end, start, -1):
            if used < enough:
                break
            if messages[border].role in allowed:
                return border
            used -= costs[border - 1]
    return end


def numbered(message: Message, number: int, budget_tokens: int) -> str:
    """A message as the model sees it: ``[12] [2024-03-05 10:00] Ann: …``, further lines indented.

    Long texts and tool answers lose their middle.

    Args:
        message: The message.
        number: Its number in the conversation, from 1.
        budget_tokens: Of the whole conversation; a user's message may take half of it, others a quarter.
    """
    share = _USER_SHARE if message.role == "user" else _OTHER_SHARE
    whole = max(_LEAST_TOKENS, int(budget_tokens * share))
    answer = max(_LEAST_TOKENS, int(budget_tokens * _TOOL_SHARE))
    results = tuple(replace(result, text=cut_middle(result.text, answer)) for result in message.tool_results)
    line = transcript_line(replace(message, text=cut_middle(message.text, whole), tool_results=results), None)
    return f"[{number}] " + "\n  ".join(cut_middle(line, whole).splitlines())


def transcript(messages: Sequence[Message], budget_tokens: int) -> tuple[str, int]:
    """The messages, numbered from 1, as many of the last as fit.

    Returns:
        The text, and how many of the first messages were left out.
    """
    lines: list[str] = []
    used = 0
    for number in range(len(messages), 0, -1):
        line = numbered(messages[number - 1], number, budget_tokens)
        used += count_tokens(line) + 1
        if used > budget_tokens:
            return "\n".join(reversed(lines)), number
        lines.append(line)
    return "\n".join(reversed(lines)), 0


def background(messages: Sequence[Message], budget_tokens: int) -> str:
    """Earlier messages for context, the last ones that fit, each short."""
    each = max(_LEAST_TOKENS, budget_tokens // 4)
    lines: list[str] = []
    used = 0
    for message in reversed(messages):
        line = "- " + cut_middle(" ".join(transcript_line(message, None).split()), each)
        used += count_tokens(line) + 1
        if used > budget_tokens:
            break
        lines.append(line)
    return "\n".join(reversed(lines))
