"""Corrections of the user, recognised by cues in English and Chinese.

The table beside this module holds the cues. A cue ("from now on use …", 下次不要…) counts only where the user speaks
to the agent: at the head of a sentence or clause, followed by what an agent does. Precision comes first: "I never eat
fish", "next time we meet" and 从现在起我是学生了 are no corrections, and code, quotations, logs and texts that were
handed over to be worked on are not looked at. With a model the finds are hints for its prompt; without one they are
kept verbatim as rules. Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from memory_core.core.caches import RecentCache
from memory_core.core.commit.append import Growing, Learned
from memory_core.core.feature import Feature
from memory_core.core.memory.memory_type import MemoryTypeRegistry
from memory_core.core.memory.message import Message, language_of
from memory_core.core.memory.names import summary_line
from memory_core.core.memory.operations import MemoryData, WriteOp
from memory_core.core.text.language import in_language, prose, sentences
from memory_core.core.text.word_table import cued_patterns, word_pattern, word_table

_pattern = partial(word_pattern, __file__)
_SOURCE_KIND = "user_explicit"
_SALIENCE = 0.8
_TEXT_LIMIT_CHARS = 600
_ABOUT_LIMIT_CHARS = 200
_HINT_LIMIT_CHARS = 240
_PER_COMMIT_LIMIT = 20
#: Of a message longer than this only first and last lines can be the user's own words to the agent.
_OWN_WORDS_CHARS = 1_500
_OWN_WORDS_LINES = 3


@dataclass(frozen=True, slots=True)
class Correction:
    """What a user told the agent to do otherwise.

    Attributes:
        index: Place of the message among those that were given.
        text: The user's sentences that hold a cue, verbatim, on one line.
    """

    index: int
    text: str


def find_corrections(messages: Sequence[Message]) -> tuple[Correction, ...]:
    """The users' corrections, at most one for each message, in order."""
    return tuple(
        Correction(index, correction)
        for index, message in enumerate(messages)
        if message.role == "user" and (correction := _correction(message.text))
    )


#: What was found in messages, by the hash of each: a long conversation is looked at with every brief.
_KNOWN: RecentCache[bytes, str] = RecentCache(8_192)


def _correction(text: str) -> str:
    """The sentences of a message that correct something; empty where none does."""
    key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    known = _KNOWN.get(key)
    if known is None:
        found = dict.fromkeys(sentence for sentence in _own_sentences(text) if _has_cue(sentence))
        known = summary_line(" ".join(found), _TEXT_LIMIT_CHARS)
        _KNOWN.put(key, known)
    return known


def hints(corrections: Sequence[Correction]) -> tuple[str, ...]:
    """A line for each correction, to be shown to a model; messages count from 1."""
    return tuple(
        f"message {correction.index + 1} looks like a correction by the user: "
        f'"{summary_line(correction.text, _HINT_LIMIT_CHARS)}"'
        for correction in corrections
    )


def correction_writes(
    corrections: Sequence[Correction], messages: Sequence[Message], registry: MemoryTypeRegistry
) -> list[WriteOp]:
    """Corrections as rules among the ``patterns``, each in the user's words and with the turn it answers.

    Args:
        corrections: Found in ``messages``.
        messages: The conversation; also those before, so that the turn that is answered is known.
        registry: Without a type ``patterns`` that has a ``content`` there are no writes.

    Returns:
        Writes without a name: the planner takes the first words, and never lays one rule over another.
    """
    memory_type = next((known for known in registry.list_all() if known.name == "patterns"), None)
    if memory_type is None or memory_type.template_mode:
        return []
    label = in_language(word_table(__file__)["labels"], language_of(messages))
    writes: dict[str, WriteOp] = {}
    for correction in corrections[-_PER_COMMIT_LIMIT:]:
        turn = _answered(messages, correction.index)
        content = correction.text if turn is None else f"{correction.text}\n\n{label.format(turn=turn)}"
        fields: dict[str, str | int | float | bool | None] = {"content": content}
        if memory_type.field("pattern_type") is not None:
            fields["pattern_type"] = "rule"
        data = MemoryData(memory_type=memory_type.name, fields=fields, salience=_SALIENCE)
        writes[correction.text] = WriteOp(memory_data=data.sourced({"kind": _SOURCE_KIND}))
    return list(writes.values())


def _own_sentences(text: str) -> list[str]:
    """Sentences that the user says to the agent: without what was pasted or handed over."""
    own = prose(text)
    handed = _pattern("handed_over").search(own)
    if handed is not None:
        own = own[: handed.end()]
    if len(own) > _OWN_WORDS_CHARS:
        lines = [line for line in own.splitlines() if line.strip()]
        own = "\n".join([*lines[:_OWN_WORDS_LINES], *lines[-_OWN_WORDS_LINES:]][: 2 * _OWN_WORDS_LINES])
    joined: list[str] = []
    for sentence in sentences(own):
        flat = " ".join(sentence.split())
        if joined and _pattern("wrong").search(joined[-1]):
            joined[-1] = f"{joined[-1]} {flat}"
        else:
            joined.append(flat)
    return joined


def _has_cue(sentence: str) -> bool:
    if _pattern("question").search(sentence) and not _pattern("request").search(sentence):
        return False
    bare = sentence.lstrip(" -*•·\"'“‘(（")
    folded = bare.casefold()
    cues = cued_patterns(__file__, "cues", re.IGNORECASE)
    return any(cue.cued(folded) and cue.compiled.search(bare) for cue in cues)


def _answered(messages: Sequence[Message], index: int) -> str | None:
    """The agent's turn before a message, on one line."""
    before = (message for message in reversed(messages[:index]) if message.role == "assistant")
    turn = next((message for message in before if message.text.strip() or message.tool_calls), None)
    if turn is None:
        return None
    calls = ", ".join(call.name for call in turn.tool_calls)
    return summary_line(turn.text if turn.text.strip() else f"[{calls}]", _ABOUT_LIMIT_CHARS)


def _learned(growing: Growing) -> Learned:
    """Rules, unless a model sees the corrections itself; only new messages are looked at."""
    found = () if growing.is_extracted else find_corrections(growing.fresh)
    if not found:
        return Learned()
    begin = len(growing.stored)
    placed = [replace(each, index=begin + each.index) for each in found]
    return Learned(correction_writes(placed, [*growing.stored, *growing.fresh], growing.context.registry))


FEATURE = Feature(learner=_learned, hints=lambda messages: hints(find_corrections(messages)))
