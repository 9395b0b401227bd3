"""The line that stays of a message that was forgotten.

A conversation's log is addressed by line, so a forgotten message leaves an empty line of its own: role, time and
project, and a digest by which the message is known when a client sends the conversation again, so that it does not come
back. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import replace

from memory_core.core.caches import tallied
from memory_core.core.memory.message import Message, dump_lines, parse_lines, to_record

#: The kind of the commits that forget.
KIND_FORGET = "forget"
#: The scalar key of a log's line that marks a forgotten message.
FORGOTTEN = "forgotten"
_DIGEST_CHARS = 32
_OWN = frozenset({"role", "name", "content", "tool_calls", "tool_results"})


def digest(message: Message) -> str:
    """By what a forgotten message is known: who said what, without time and ids."""
    said = {name: value for name, value in to_record(message).items() if name in _OWN}
    text = json.dumps(said, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]


def is_forgotten(message: Message) -> bool:
    """Whether this is the line that is left of a message."""
    return isinstance(message.extra.get(FORGOTTEN), str) and not message.text


def without_lines(text: str, lines: Collection[int]) -> str:
    """A session's log in which these lines, counted from 0, are empty of words; what is no message stays."""
    kept: list[str] = []
    for number, line in enumerate(text.split("\n")):
        messages, _ = parse_lines(line) if number in lines else ([], [])
        kept.append(dump_lines([_left_of(messages[0])]).removesuffix("\n") if messages else line)
    return "\n".join(kept)


def with_forgotten(stored: Sequence[Message], incoming: Sequence[Message]) -> list[Message]:
    """The stored messages with those that were forgotten as they are being sent again, to be known by ``unseen``."""
    if not tallied(_Forgotten, stored).count:
        return list(stored)
    sent = {digest(message): message for message in incoming}
    return [
        replace(sent[str(message.extra[FORGOTTEN])], time=message.time)
        if is_forgotten(message) and message.extra[FORGOTTEN] in sent
        else message
        for message in stored
    ]


class _Forgotten:
    """How many messages of a conversation were forgotten."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, message: Message) -> None:
        self.count += is_forgotten(message)

    def copy(self) -> _Forgotten:
        return copy(self)


def _left_of(message: Message) -> Message:
    if is_forgotten(message):
        return message
    return Message(
        role=message.role,
        time=message.time,
        extra={FORGOTTEN: digest(message)},
        project=message.project,
        private=message.private,
    )
