"""Counts from tool-call records: exact, without a model, and once for each call.

Owns which calls of a session are finished, what they add up to, and what a commit adds to the ``tools`` and
``skills`` memories. A call counts when its result is there; a later call or message never changes what an earlier
one counted for. Knows nothing of files: what is stored already is asked of a callable. Pure.

*Which result answers which call.* By the call's id; where ids repeat, the latest call that still waits. A result
without an id answers the oldest waiting call of the latest message that has one, of its name where it is named; so does
a result with an id that is nobody's, among the calls without an id; of more than 256 that wait, only among the latest.
A result that no call in the log waits for stands for a call of its own, if it is named and its id was not answered.
Statuses such as ``running`` are no result yet. A call failed if its status says so, or if its answer does
(``failures``).

*What an execution of a skill is.* A run of calls with that skill's name, up to another skill's call or a new message
of the user. Where the run begins with the call that loads the skill's instructions, calls that name no skill belong
to it too: such clients mark nothing but the loading. It succeeded if its last finished call did.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby, islice
from typing import Any, TypeAlias

from memory_core.core.caches import tallied
from memory_core.core.commit.append import Growing, Learned
from memory_core.core.feature import Feature
from memory_core.core.memory.memory_type import FieldType, MemoryType, MemoryTypeRegistry, MergeOp, OperationMode
from memory_core.core.memory.message import Message, ToolCall, ToolResult
from memory_core.core.memory.message_shapes import SKILL_TOOL, skill_in
from memory_core.core.memory.operations import MemoryData, WriteOp
from memory_core.core.memory.results import Action, OperationResult
from memory_core.features.failures import says_failed

#: Stored fields of the memory of a type with these key fields, or None where there is none.
Existing: TypeAlias = Callable[[str, Mapping[str, str]], Mapping[str, Any] | None]

COMPLETED = "completed"
_FAILED = "error"
FLOW = "recommended_flow"
_FLOW_SALIENCE = 0.7
_FLOW_STEPS_LIMIT = 20
#: In one commit no more skills learn; a plan refuses as many writes.
_SKILLS_LIMIT = 1_000
#: So many waiting calls are looked at for a result without an id of theirs.
_WAITING_LIMIT = 256
_UNFINISHED = frozenset({"running", "pending", "in_progress", "in progress", "queued", "started", "working"})


@dataclass(frozen=True, slots=True)
class FinishedCall:
    """A tool call whose result is there.

    Attributes:
        name: The tool's name, exactly as recorded.
        text: What the tool answered.
        duration_ms: 0 where unknown.
        tokens: Prompt and completion together.
        time: When it was called, else when it was answered; None when unknown.
        made_at: Place of the message that makes the call.
        finished_at: Place of the message that brings the result.
        skill: The skill it was part of, or None.
        run: Number of the skill's execution in this log, or None.
        loads: Whether it loads the skill's instructions.
        key: Names the call across sessions; None for a call without an id.
    """

    name: str
    arguments: Any
    text: str
    status: str
    duration_ms: int
    tokens: int
    time: datetime | None
    made_at: int
    finished_at: int
    skill: str | None = None
    run: int | None = None
    loads: bool = False
    key: str | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the call reached its end without an error."""
        return self.status == COMPLETED


#: What calls of a tool, and executions of a skill, add up to, by the fields that take it.
_OF_TOOL = ("total_calls", "success_count", "fail_count", "total_time_ms", "total_tokens")
_OF_SKILL = ("total_executions", "success_count", "fail_count")
#: Counts by name and field; finished calls by the skill execution they belong to.
_Counts: TypeAlias = dict[str, dict[str, int]]
_Runs: TypeAlias = dict[int, list[FinishedCall]]


@dataclass(frozen=True, slots=True)
class Added:
    """What messages add to the counts.

    Attributes:
        writes: Increments for the ``tools`` and ``skills`` memories.
        calls: The calls that are counted now, in the order in which they were made.
    """

    writes: list[WriteOp]
    calls: tuple[FinishedCall, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Slot:
    """A call while its log is read; its answer comes with a later message, or never."""

    call: ToolCall
    made_at: int
    time: datetime | None
    run: int | None
    skill: str | None
    loads: bool


def finished_calls(messages: Sequence[Message]) -> tuple[FinishedCall, ...]:
    """The calls of a session that have their result, in the order in which they were made, each once."""
    reader = tallied(_Reader, messages)
    return tuple(reader.answers[slot] for slot in reader.slots if slot in reader.answers)


def growth(
    stored: Sequence[Message],
    fresh: Sequence[Message],
    counted: Callable[[frozenset[str]], frozenset[str]],
    registry: MemoryTypeRegistry,
    existing: Existing,
) -> Added:
    """What ``fresh`` adds to the counts of the store.

    Args:
        stored: The session's messages so far; their calls are counted already.
        fresh: The messages that follow them.
        counted: Which calls were counted in other sessions, by their keys.
        registry: A type that is absent, disabled or has other fields is left out.
        existing: Fields of a stored memory; decides whether a skill has a recommended flow.

    Returns:
        Writes of increments, so that a log committed in any number of parts gives the counts of the whole.
    """
    calls = finished_calls([*stored, *fresh])
    fresh_keys = frozenset(call.key for call in calls if call.finished_at >= len(stored) and call.key is not None)
    known = counted(fresh_keys) if fresh_keys else fresh_keys
    before = [call for call in calls if call.finished_at < len(stored) or call.key in known]
    new = tuple(call for call in calls if not (call.finished_at < len(stored) or call.key in known))
    writes: list[WriteOp] = []
    tools, skills = collecting_type(registry, "tools", "tool_name"), collecting_type(registry, "skills", "skill_name")
    if tools is not None:
        for name, counts in tool_counts(new).items():
            writes += _write(tools, {"tool_name": name}, counts)
    if skills is not None:
        executions, earlier = (skill_counts(before), skill_counts(calls)), _runs(before)
        runs: dict[str | None, _Runs] = {}
        for run, made in _runs(calls).items():
            runs.setdefault(made[0].skill, {})[run] = made
        names = dict.fromkeys(call.skill for call in new if call.skill is not None)
        for name in islice(names, _SKILLS_LIMIT):
            writes += _skill_write(skills, name, executions, (earlier, runs.get(name, {})), existing)
    return Added(writes, new)


def _skill_write(
    skills: MemoryType,
    name: str,
    counts: tuple[_Counts, _Counts],
    runs: tuple[_Runs, _Runs],
    existing: Existing,
) -> list[WriteOp]:
    """The increments of one skill, and its flow with the first execution that succeeded.

    Args:
        skills: The type.
        name: The skill.
        counts: Of all skills, before and now.
        runs: Of all skills before, and of this one now.
        existing: Fields of a stored memory.
    """
    before, now = counts
    counted = before.get(name, {})
    added = {field: count - counted.get(field, 0) for field, count in now[name].items()}
    known = existing(skills.name, {"skill_name": name})
    if known is None and min(added["success_count"], added["fail_count"]) < 0:
        # The memory was removed meanwhile: there is nothing left to take away from.
        succeeded, failed = max(added["success_count"], 0), max(added["fail_count"], 0)
        added = {"total_executions": succeeded + failed, "success_count": succeeded, "fail_count": failed}
    flow, stored = None, str((known or {}).get(FLOW) or "")
    if (field := skills.field(FLOW)) is not None and field.type is FieldType.STRING:
        flow = _flow(*runs, stored)
    if not any(added.values()) and flow is None:
        return []
    is_first = flow is not None and not stored.strip()
    return _write(skills, {"skill_name": name}, added, flow, _FLOW_SALIENCE if is_first else None)


def _flow(earlier: _Runs, now: _Runs, stored: str) -> str | None:
    """The steps of a new successful execution, if none are stored, or those of the same run when it was shorter.

    Args:
        earlier: The executions before.
        now: Those of one skill.
        stored: The steps that its memory holds.

    Returns:
        The text, or None where it must not change.
    """
    for run, made in now.items():
        old = earlier.get(run, [])
        if len(old) == len(made) or not made[-1].succeeded:
            continue
        steps, shorter = _steps(made), _steps(old)
        if steps and steps != stored and (not stored.strip() or stored == shorter):
            return steps
    return None


def _steps(calls: Iterable[FinishedCall]) -> str:
    """``1. tool_a → 2. tool_b``: the calls that completed, loading aside, neighbours of one tool as one."""
    done = (" ".join(call.name.split()) for call in calls if call.succeeded and not call.loads)
    names = [name for name, _ in groupby(done)]
    steps = [f"{number}. {name}" for number, name in enumerate(names[:_FLOW_STEPS_LIMIT], start=1)]
    return " → ".join([*steps, "…"] if len(names) > _FLOW_STEPS_LIMIT else steps)


def _runs(calls: Iterable[FinishedCall]) -> _Runs:
    """Finished calls by the skill execution they belong to."""
    runs: _Runs = {}
    for call in calls:
        if call.run is not None:
            runs.setdefault(call.run, []).append(call)
    return runs


def tool_counts(calls: Iterable[FinishedCall]) -> _Counts:
    """What finished calls add up to, by tool, in the order of their first call."""
    tools: _Counts = {}
    for call in calls:
        counts = tools.setdefault(call.name, dict.fromkeys(_OF_TOOL, 0))
        counts["total_calls"] += 1
        counts["success_count" if call.succeeded else "fail_count"] += 1
        counts["total_time_ms"] += call.duration_ms
        counts["total_tokens"] += call.tokens
    return tools


def skill_counts(calls: Iterable[FinishedCall]) -> _Counts:
    """What the executions of skills add up to, by skill, in the order of their first call."""
    skills: _Counts = {}
    for run in _runs(calls).values():
        counts = skills.setdefault(str(run[0].skill), dict.fromkeys(_OF_SKILL, 0))
        counts["total_executions"] += 1
        counts["success_count" if run[-1].succeeded else "fail_count"] += 1
    return skills


def _write(
    memory_type: MemoryType,
    key: Mapping[str, str],
    counts: Mapping[str, int],
    flow: str | None = None,
    salience: float | None = None,
) -> list[WriteOp]:
    """One write with the counts that the type sums up; none where it has no use for them.

    A count may be negative: that of a run that went on and failed.
    """
    summed = {field.name for field in memory_type.fields if field.merge_op is MergeOp.SUM} & counts.keys()
    if not summed:
        return []
    given: dict[str, str | int | float | bool | None] = {**key}
    # Time and tokens that nobody measured are unknown, not nothing: their averages then read n/a.
    measured = {name: value for name, value in counts.items() if value or name not in ("total_time_ms", "total_tokens")}
    given |= {name: value for name, value in measured.items() if name in summed}
    if flow is not None:
        given[FLOW] = flow
    data = MemoryData(memory_type=memory_type.name, fields=given, salience=salience)
    return [WriteOp(memory_data=data, replace=flow is not None)]


def collecting_type(registry: MemoryTypeRegistry, type_name: str, key: str) -> MemoryType | None:
    """The type, if one memory for each value of ``key`` collects what is added: a user may have declared another."""
    known = registry.find(type_name)
    if known is None or known.key_fields != (key,) or known.operation_mode is not OperationMode.UPSERT:
        return None
    return known


class _Reader:
    """Reads a log message by message: finds the result of each call, and the runs of skills."""

    def __init__(self) -> None:
        self.slots: list[_Slot] = []
        self.answers: dict[_Slot, FinishedCall] = {}
        self._place = -1
        self._waiting: deque[_Slot] = deque(maxlen=_WAITING_LIMIT)
        self._waiting_by_id: dict[str, dict[_Slot, None]] = {}
        self._answered: set[str] = set()
        self._keys: set[str] = set()
        self._skill: str | None = None
        self._run = -1
        self._loaded = False

    def copy(self) -> _Reader:
        """The same, to be gone on with."""
        twin = copy(self)
        twin.slots, twin.answers = self.slots.copy(), self.answers.copy()
        twin._waiting, twin._answered, twin._keys = self._waiting.copy(), self._answered.copy(), self._keys.copy()
        twin._waiting_by_id = {call_id: slots.copy() for call_id, slots in self._waiting_by_id.items()}
        return twin

    def add(self, message: Message) -> None:
        """Take in the next message of the log."""
        self._place += 1
        place = self._place
        if message.role == "user" and not message.tool_results:
            self._skill = None
        for call in message.tool_calls:
            self._open(call, place, message.time)
        for result in message.tool_results:
            if (result.status or COMPLETED).casefold() not in _UNFINISHED:
                self._close(result, place, message.time)

    def _open(self, call: ToolCall, place: int, time: datetime | None) -> None:
        skill = (call.skill_name or "").strip() or None
        loads = skill is not None and _loads(call)
        if skill is not None and skill != self._skill:
            self._skill, self._loaded = skill, loads
            self._run += 1
        member = self._skill is not None and (skill is not None or self._loaded)
        slot = _Slot(call, place, time, self._run if member else None, self._skill if member else None, loads)
        if call.name.strip():
            self.slots.append(slot)
        self._waiting.append(slot)
        if call.call_id:
            self._waiting_by_id.setdefault(call.call_id, {})[slot] = None

    def _close(self, result: ToolResult, place: int, time: datetime | None) -> None:
        slot = self._awaiting(result)
        if slot is not None:
            self._answer(slot)
        elif not (result.name or "").strip() or result.call_id in self._answered:
            return
        else:
            slot = _Slot(ToolCall(result.call_id, str(result.name)), place, time, None, None, False)
            self.slots.append(slot)
        if result.call_id:
            self._answered.add(result.call_id)
        answer = _finished(slot, result, place, time)
        if answer.key is None or answer.key not in self._keys:
            self.answers[slot] = answer
            self._keys.add(answer.key or "")

    def _answer(self, slot: _Slot) -> None:
        """Let a call wait no longer."""
        with suppress(ValueError):  # later ones took its place
            self._waiting.remove(slot)
        if same := self._waiting_by_id.get(slot.call.call_id):
            del same[slot]
            if not same:
                del self._waiting_by_id[slot.call.call_id]

    def _awaiting(self, result: ToolResult) -> _Slot | None:
        """The call that a result answers."""
        if result.call_id:
            if same := self._waiting_by_id.get(result.call_id):
                return next(reversed(same))
            if result.call_id in self._answered:
                return None
        candidates = (slot for slot in self._waiting if not (result.call_id and slot.call.call_id))
        named = [slot for slot in candidates if result.name in (None, slot.call.name)]
        latest = max((slot.made_at for slot in named), default=-1)
        return next((slot for slot in named if slot.made_at == latest), None)


def _finished(slot: _Slot, result: ToolResult, place: int, time: datetime | None) -> FinishedCall:
    call, status = slot.call, result.status or COMPLETED
    failed = status == COMPLETED and says_failed(call.name, call.arguments, result.text)
    moment = slot.time or time
    call_id = call.call_id or result.call_id
    instant = None if moment is None else moment.astimezone(UTC).isoformat()
    identity = [call_id, call.name, call.arguments, result.text, status, instant]
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode("ascii")).hexdigest()[:32]
    return FinishedCall(
        name=call.name,
        arguments=call.arguments,
        text=result.text,
        status=_FAILED if failed else status,
        duration_ms=result.duration_ms or 0,
        tokens=(result.prompt_tokens or 0) + (result.completion_tokens or 0),
        time=moment,
        made_at=slot.made_at,
        finished_at=place,
        skill=slot.skill,
        run=slot.run,
        loads=slot.loads,
        key=digest if call_id else None,
    )


def _loads(call: ToolCall) -> bool:
    """Whether a call fetches the instructions of its skill."""
    return call.name == SKILL_TOOL or skill_in(call.name, call.arguments) is not None


def growth_of(growing: Growing) -> Added:
    """What the new messages of a conversation add."""
    registry = growing.context.registry
    return growth(growing.stored, growing.fresh, growing.known_calls, registry, growing.existing)


def _learned(growing: Growing) -> Learned:
    """The counts; a call counts unless the memory of its tool refused it."""
    added = growing.once(growth_of)

    def counted(results: Sequence[OperationResult]) -> frozenset[str]:
        refused = {
            write.memory_data.fields.get("tool_name")
            for write, result in zip(added.writes, results, strict=False)
            if result.action is Action.REJECTED
        }
        return frozenset(call.key for call in added.calls if call.key is not None and call.name not in refused)

    return Learned(added.writes, are_facts=True, calls_counted=counted)


FEATURE = Feature(learner=_learned)
