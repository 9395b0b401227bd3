"""Which messages of a re-sent or overlapping conversation are new.

The rule, from strong evidence to weak. A needless copy in a log is a nuisance, a lost sentence is not
acceptable: in doubt a message is new.

1. *Equal* are two messages with the same role, speaker, text, tool calls and tool results whose message ids do not
   differ and whose times do not differ (either counts only where both have one).
2. A message with a message id, or whose tool records all have call ids, is known when an equal one with the same
   ids is stored anywhere. A ``system`` or ``developer`` prompt is known when the same text is stored: prompts
   are sent again with every request, in any version. Prompts take no part in what follows.
3. The *overlap* is a run that is the end of what is stored. First the longest one that opens ``incoming`` is tried;
   it counts when it is the whole of what is stored, or a pair in it shares a message id, a call id, or a time that
   no other stored message has, or its different texts together weigh more than ``SHORT_WEIGHT``. Else the longest
   one anywhere in ``incoming`` (the first of that length) is tried; it counts by a shared id or such a time, or
   when it has two messages or more that weigh ``RUN_WEIGHT`` or more. A character weighs 1, a wide (CJK) one 2. So
   "ok" or "好的" is never dropped for its text alone.
4. Everything behind the overlap is new. What stands before it, or all of ``incoming`` when there is none, is
   compared with the rest of what is stored, in order. Runs are known that share an id or such a time, or weigh
   ``RUN_WEIGHT`` and have three messages (two, when they are all of ``incoming``). Everything else is new: a
   summary that a compaction put there, an edited turn.

So a conversation may be sent from its beginning, from its middle, cut at its old end, or turn by turn. Equal
neighbours without ids or times that are sent alone ("ok", then "ok") are both kept; a retried request is what
``request_id`` is for.
"""

from __future__ import annotations

import heapq
import json
import unicodedata
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import SequenceMatcher
from itertools import groupby, pairwise
from operator import attrgetter

from memory_core.core.memory.message import Message

SHORT_WEIGHT = 12
RUN_WEIGHT = 40
_TEXT = attrgetter("text")
_PROMPT_ROLES = frozenset({"system", "developer"})
#: Bounds for the comparison in order, which otherwise could take minutes: of equal pairs, of repetitions that are
#: looked at where there are more pairs, and of all pairs. What is not compared counts as new.
_EQUAL_PAIRS_LIMIT = 20_000
_REPEATED_LIMIT = 8
_PAIRS_LIMIT = 6_000_000
#: Candidates for an overlap, longest first; more than one matters only where some messages lack times or ids.
_TRIES = 8


@dataclass(frozen=True, slots=True)
class _Turn:
    """A message with its place in ``incoming`` or ``stored`` and what identifies it."""

    place: int
    message: Message
    content: Hashable
    call_ids: frozenset[str]

    @property
    def identity(self) -> Hashable | None:
        """What names this message anywhere in the log, or None."""
        if self.message.message_id is not None:
            return (self.message.message_id, self.content)
        ids = _call_ids(self.message)
        return self.content if ids and all(ids) else None


def unseen(stored: Sequence[Message], incoming: Sequence[Message]) -> tuple[Message, ...]:
    """The messages of ``incoming`` that ``stored`` does not hold yet, in order; the rule is the module's text."""
    texts = {message.text for message in incoming}
    repeated = texts.intersection(map(_TEXT, stored))
    stored = _shortened(stored, incoming, texts) if _may_be_known(incoming, repeated) else ()
    prompts = {_content(message) for message in stored if message.role in _PROMPT_ROLES}
    known: set[int] = set()
    for place, message in enumerate(incoming):
        if message.role in _PROMPT_ROLES:
            content = _content(message)
            if content in prompts:
                known.add(place)
            prompts.add(content)
    old, new = _turns(stored), _turns(incoming)
    known |= {turn.place for turn in _aligned(old, new)}
    identities = {turn.identity for turn in old}
    for turn in new:
        if turn.identity is not None and turn.place not in known:
            if turn.identity in identities:
                known.add(turn.place)
            identities.add(turn.identity)
    return tuple(message for place, message in enumerate(incoming) if place not in known)


def _may_be_known(incoming: Sequence[Message], repeated: Collection[str]) -> bool:
    """Whether a rule could find any of it known, by its texts that are stored; quick, for most exchanges are new."""
    if not repeated:
        return False
    if any(
        message.role in _PROMPT_ROLES
        or message.time is not None
        or message.message_id is not None
        or message.tool_calls
        or message.tool_results
        for message in incoming
    ):
        return True
    texts = [message.text in repeated for message in incoming]
    return texts[0] or any(one and other for one, other in pairwise(texts))  # one alone counts where it comes first


def _shortened(stored: Sequence[Message], incoming: Sequence[Message], texts: Collection[str]) -> list[Message]:
    """What is stored with one message in place of each stretch of those that are nothing that came in.

    Where there is one without a time, it is the one that stays: the rules ask whether every message has a time.
    """
    times = {message.time for message in incoming} - {None}
    kept: list[Message] = []
    in_stretch = False
    for message in stored:
        if message.text in texts or message.time in times or message.role in _PROMPT_ROLES:
            kept.append(message)
            in_stretch = False
        elif not in_stretch:
            kept.append(message)
            in_stretch = True
        elif message.time is None:
            kept[-1] = message
    return kept


def _turns(messages: Sequence[Message]) -> list[_Turn]:
    return [
        _Turn(place, message, _content(message), frozenset(_call_ids(message)) - {""})
        for place, message in enumerate(messages)
        if message.role not in _PROMPT_ROLES
    ]


def _call_ids(message: Message) -> list[str]:
    """One id for each tool record; empty where the client gave none."""
    if not message.tool_calls and not message.tool_results:
        return []
    return [call.call_id for call in message.tool_calls] + [result.call_id for result in message.tool_results]


def _content(message: Message) -> Hashable:
    if not message.tool_calls and not message.tool_results:  # most messages, and each stored one is asked
        return (message.role, message.name, message.text, (), ())
    calls = tuple((call.call_id, call.name, json.dumps(call.arguments, sort_keys=True)) for call in message.tool_calls)
    results = tuple((result.call_id, result.text) for result in message.tool_results)
    return (message.role, message.name, message.text, calls, results)


def _aligned(old: list[_Turn], new: list[_Turn]) -> list[_Turn]:
    """Turns of ``new`` that rules 3 and 4 find in ``old``."""
    times = Counter(turn.message.time for turn in old)
    # Where every message has a time, equal words at another time need not be looked at again.
    timed = all(turn.message.time is not None for turn in (*old, *new))
    old_keys = [(turn.content, turn.message.time if timed else None) for turn in old]
    new_keys = [(turn.content, turn.message.time if timed else None) for turn in new]
    overlap, start = _overlap(old, new, _common_ends(old_keys, new_keys), times)
    lead = start if overlap else len(new)
    body = len(old) - len(overlap)
    found = [turn for _, turn in overlap]
    for run in _runs(old[:body], new[:lead], old_keys[:body], new_keys[:lead]):
        enough = 2 if len(run) == len(new) else 3
        if _names_itself(run, times) or (len(run) >= enough and _weight(run) >= RUN_WEIGHT):
            found += [turn for _, turn in run]
    return found


def _overlap(
    old: list[_Turn], new: list[_Turn], lengths: Sequence[int], times: Counter[datetime | None]
) -> tuple[list[tuple[_Turn, _Turn]], int]:
    """The pairs of rule 3 and where they start in ``new``; no pairs when there is no evident overlap."""
    opening: list[tuple[_Turn, _Turn]] = []
    for end in heapq.nlargest(_TRIES, (end for end, length in enumerate(lengths, 1) if length == end)):
        run = _last_run(old, new[:end], end)
        if len(run) == end:
            opening = run
            break
    longest: list[tuple[_Turn, _Turn]] = []
    start = 0
    for length, negative_end in heapq.nlargest(_TRIES, ((length, -end) for end, length in enumerate(lengths, 1))):
        run = _last_run(old, new[:-negative_end], length)
        if len(run) > len(longest):
            longest, start = run, -negative_end - len(run)
    if opening and (len(opening) == len(old) or _names_itself(opening, times) or _weight(opening) > SHORT_WEIGHT):
        return opening, 0
    if _names_itself(longest, times) or (len(longest) >= 2 and _weight(longest) >= RUN_WEIGHT):
        return longest, start
    return [], 0


def _last_run(old: list[_Turn], new: list[_Turn], length: int) -> list[tuple[_Turn, _Turn]]:
    """The last ``length`` pairs, or as many of them as ids and times allow."""
    pairs = list(zip(old[len(old) - length :], new[len(new) - length :], strict=True))
    bar = next((place for place in range(length, 0, -1) if not _compatible(*pairs[place - 1])), 0)
    return pairs[bar:]


def _common_ends(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[int]:
    """For each end of ``new[:i + 1]``, how many last items it shares with ``old``; linear (Z-function)."""
    items: list[Hashable] = [*reversed(old), None, *reversed(new)]
    shared = [0] * len(items)
    left = right = 0
    for place in range(1, len(items)):
        length = min(right - place, shared[place - left]) if place < right else 0
        while place + length < len(items) and items[length] == items[place + length]:
            length += 1
        shared[place] = length
        if place + length > right:
            left, right = place, place + length
    return shared[: len(old) : -1]


def _runs(
    old: list[_Turn], new: list[_Turn], old_keys: Sequence[Hashable], new_keys: Sequence[Hashable]
) -> list[list[tuple[_Turn, _Turn]]]:
    """Runs of equal messages, in the same order on both sides, longest first chosen."""
    if len(old) * len(new) > _PAIRS_LIMIT:
        return []
    counts = Counter(old_keys)
    if sum(counts[key] for key in new_keys) > _EQUAL_PAIRS_LIMIT:
        new_keys = [key if counts[key] <= _REPEATED_LIMIT else None for key in new_keys]
    runs: list[list[tuple[_Turn, _Turn]]] = []
    for block in SequenceMatcher(None, old_keys, new_keys, autojunk=False).get_matching_blocks():
        pairs = zip(old[block.a : block.a + block.size], new[block.b : block.b + block.size], strict=True)
        runs += [list(run) for may_be_one, run in groupby(pairs, lambda pair: _compatible(*pair)) if may_be_one]
    return runs


def _compatible(one: _Turn, other: _Turn) -> bool:
    """Whether ids and times, where both have them, say that two messages of equal content may be one."""
    ids = {one.message.message_id, other.message.message_id} - {None}
    times = {one.message.time, other.message.time} - {None}
    return len(ids) < 2 and len(times) < 2


def _names_itself(pairs: Sequence[tuple[_Turn, _Turn]], times: Counter[datetime | None]) -> bool:
    """Whether a pair shares an id, or a time that no other stored message has."""
    return any(
        (one.message.message_id is not None and one.message.message_id == other.message.message_id)
        or bool(one.call_ids & other.call_ids)
        or (one.message.time is not None and other.message.time is not None and times[one.message.time] == 1)
        for one, other in pairs
    )


def _weight(pairs: Sequence[tuple[_Turn, _Turn]]) -> int:
    """How much the different texts of a run weigh together, counted no further than needed."""
    total = 0
    seen: set[Hashable] = set()
    for one, _ in pairs:
        if one.content not in seen:
            seen.add(one.content)
            said = (one.message.text, *(result.text for result in one.message.tool_results))
            total += sum(
                2 if unicodedata.east_asian_width(char) in "WF" else 1 for text in said for char in text[:RUN_WEIGHT]
            )
            if total >= RUN_WEIGHT:
                break
    return total
