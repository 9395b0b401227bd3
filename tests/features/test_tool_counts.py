"""Counts of tools and skills: exact, from records alone, and once for each call however a log arrives."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.core.commit.overlap import unseen
from memory_core.core.memory.memory_type import MemoryType, MemoryTypeRegistry
from memory_core.core.memory.message import Message, ToolCall, ToolResult
from memory_core.core.memory.operations import WriteOp
from memory_core.features.tool_counts import (
    FLOW,
    Added,
    FinishedCall,
    finished_calls,
    growth,
    skill_counts,
    tool_counts,
)

NOON = datetime(2026, 5, 11, 12, tzinfo=UTC)


Figures = dict[str, tuple[int, ...]]


def tools(log: Sequence[Message]) -> Figures:
    """Calls, successes, failures, milliseconds and tokens by tool."""
    return {name: tuple(counts.values()) for name, counts in tool_counts(finished_calls(log)).items()}


def skills(log: Sequence[Message]) -> Figures:
    """Executions, successes and failures by skill."""
    return {name: tuple(counts.values()) for name, counts in skill_counts(finished_calls(log)).items()}


def keys_of(calls: Iterable[FinishedCall]) -> frozenset[str]:
    return frozenset(call.key for call in calls if call.key is not None)


def call_keys(log: Sequence[Message]) -> frozenset[str]:
    return keys_of(finished_calls(log))


def nothing(_type: str, _fields: Mapping[str, str]) -> None:
    return None


def with_flow(type_name: str, _fields: Mapping[str, str]) -> Mapping[str, Any] | None:
    return {FLOW: "by hand"} if type_name == "skills" else None


def user(text: str = "go on") -> Message:
    return Message("user", text)


def made(call_id: str, name: str = "web_search", skill: str | None = None, **arguments: Any) -> Message:
    return Message("assistant", tool_calls=(ToolCall(call_id, name, arguments, skill),))


def answered(call_id: str, text: str = "found", status: str = "completed", name: str | None = None) -> Message:
    return Message("tool", tool_results=(ToolResult(call_id, name, text, status, 100, 20, 5),))


def used(call_id: str, name: str = "web_search", status: str = "completed", skill: str | None = None) -> list[Message]:
    return [made(call_id, name, skill, n=call_id), answered(call_id, f"{call_id} {status}", status)]


def ids_of(message: Message) -> list[str]:
    return [call.call_id for call in message.tool_calls] + [result.call_id for result in message.tool_results]


def sums(writes: Sequence[WriteOp]) -> Counter[tuple[str, str, str]]:
    total: Counter[tuple[str, str, str]] = Counter()
    for write in writes:
        data = write.memory_data
        name = str(data.fields.get("tool_name") or data.fields.get("skill_name"))
        for field, value in data.fields.items():
            if isinstance(value, int):
                total[data.memory_type, name, field] += value
    return Counter({key: value for key, value in total.items() if value})


def added(registry: MemoryTypeRegistry, stored: Sequence[Message], fresh: Sequence[Message]) -> Added:
    return growth(stored, fresh, frozenset().intersection, registry, nothing)


def test_a_call_without_a_result_is_not_counted_until_it_has_one(registry: MemoryTypeRegistry) -> None:
    waiting = [user(), made("c1")]
    assert added(registry, [], waiting).writes == []
    grown = added(registry, waiting, [answered("c1")])
    assert sums(grown.writes)["tools", "web_search", "total_calls"] == 1
    assert added(registry, [*waiting, answered("c1")], [user()]).writes == []


def again(*statuses: str) -> list[Message]:
    """A call made anew under the same id for each status."""
    return [message for status in statuses for message in (made("c1", q=status), answered("c1", status, status))]


COUNTED: dict[str, tuple[list[Message], Figures]] = {
    "running is no result": ([made("c1"), answered("c1", "…", "running")], {}),
    "running, then done": (
        [made("c1"), answered("c1", "…", "running"), answered("c1")],
        {"web_search": (1, 1, 0, 100, 25)},
    ),
    **{
        f"only completed is a success, not {status}": (again(status), {"web_search": (1, 0, 1, 100, 25)})
        for status in ("error", "timeout", "cancelled", "失败", "COMPLETED ")
    },
    "a second result": (
        [made("c1"), answered("c1"), answered("c1", "again", "error")],
        {"web_search": (1, 1, 0, 100, 25)},
    ),
    "an id that repeats is another call": (again("completed", "error"), {"web_search": (2, 1, 1, 200, 50)}),
    "a call that was given up": (
        [made("c1", "given_up"), user(), made("c1"), answered("c1")],
        {"web_search": (1, 1, 0, 100, 25)},
    ),
    "a result without its call": (
        [answered("c9", name="search_files"), answered("c8")],
        {"search_files": (1, 1, 0, 100, 25)},
    ),
    "a call without a name": ([*used("c1", ""), *used("c2", "  ")], {}),
}


@pytest.mark.parametrize("kind", COUNTED)
def test_each_call_with_a_result_counts_once(kind: str) -> None:
    log, figures = COUNTED[kind]
    assert tools(log) == figures


def test_results_without_ids_answer_calls_in_order_and_by_name() -> None:
    calls = Message("assistant", tool_calls=(ToolCall("", "a"), ToolCall("", "b"), ToolCall("", "a")))
    log = [calls, answered("", "1", "error", "b"), answered("", "2"), answered("", "3", "error")]
    found = [(call.name, call.succeeded, call.key) for call in finished_calls(log)]
    assert found == [("a", True, None), ("b", False, None), ("a", False, None)]


def test_a_repeated_result_answers_no_other_call() -> None:
    calls = Message("assistant", tool_calls=(ToolCall("c1", "a"), ToolCall("", "b")))
    log = [calls, answered("c1", "1"), answered("c1", "1"), answered("c2", "2", "error", "b")]
    assert [(call.name, call.text) for call in finished_calls(log)] == [("a", "1"), ("b", "2")]


@pytest.mark.parametrize(
    "name", ["mcp__server__tool", "a/b\\c:d", "x" * 300, "网页搜索", "🔧", "123", "..", "CON", " x"]
)
def test_odd_tool_names_are_kept_letter_for_letter(registry: MemoryTypeRegistry, name: str) -> None:
    (write,) = added(registry, [], used("c1", name)).writes
    assert write.memory_data.fields["tool_name"] == name


def test_counts_are_written_with_their_zeros_and_what_nobody_measured_is_not(registry: MemoryTypeRegistry) -> None:
    bare = [made("c1"), Message("tool", tool_results=(ToolResult("c1", None, "", "error"),))]
    (write,) = added(registry, [], bare).writes
    assert write.memory_data.fields == {
        "tool_name": "web_search",
        "total_calls": 1,
        "success_count": 0,
        "fail_count": 1,
    }


def test_a_session_that_continues_another_adds_only_what_is_new(registry: MemoryTypeRegistry) -> None:
    log, more = used("c1", skill="clean"), used("c2", status="error", skill="clean")
    first = added(registry, [], log)
    grown = growth([], [*log, *more], keys_of(first.calls).intersection, registry, with_flow)
    assert sums(first.writes + grown.writes) == sums(added(registry, [], [*log, *more]).writes)


def test_equal_ids_of_different_calls_are_different_keys() -> None:
    keys = [
        call_keys([made("call_1", q=q), answered("call_1", text)]) for q, text in (("a", "1"), ("a", "2"), ("b", "1"))
    ]
    assert len(frozenset.union(*keys)) == 3


def test_the_time_of_a_call_tells_it_from_an_equal_one() -> None:
    def at(hour: int) -> list[Message]:
        moment = NOON + timedelta(hours=hour)
        return [Message("assistant", time=moment, tool_calls=(ToolCall("c1", "poll", {}),)), answered("c1")]

    assert call_keys(at(0)) != call_keys(at(1))
    assert tools([*at(0), *at(1)])["poll"][0] == 2


ONE, TWO = used("1", "a", skill="S"), used("2", "b", skill="S")
FAILED = used("2", "b", "error", "S")
RUNS = [
    ("one run", [*ONE, *TWO], (1, 1, 0)),
    ("last fails", [*ONE, *FAILED], (1, 0, 1)),
    ("last works", [*FAILED, *ONE], (1, 1, 0)),
    ("user between", [*ONE, user("再来一次"), *TWO], (2, 2, 0)),
    ("other skill between", [*ONE, *used("3", skill="T"), *TWO], (2, 2, 0)),
    ("other tool between", [*ONE, *used("3", status="error"), *TWO], (1, 1, 0)),
    ("results as a user", [ONE[0], Message("user", tool_results=(ToolResult("1"),)), *TWO], (1, 1, 0)),
    ("never answered", ONE[:1], None),
]


@pytest.mark.parametrize(("log", "expected"), [pytest.param(*run[1:], id=run[0]) for run in RUNS])
def test_an_execution_is_a_run_of_calls_of_one_skill(log: list[Message], expected: tuple[int, ...] | None) -> None:
    assert skills(log).get("S") == expected


def test_calls_after_loading_a_skill_belong_to_it() -> None:
    load = Message("assistant", tool_calls=(ToolCall("1", "Skill", {"skill": "整理数据"}, "整理数据"),))
    log = [load, answered("1"), *used("2", "run_query"), *used("3", "write_file", "error"), user(), *used("4")]
    assert skills(log) == {"整理数据": (1, 0, 1)}


def test_a_run_that_goes_on_in_a_later_commit_is_corrected_not_added(registry: MemoryTypeRegistry) -> None:
    first, more = [user(), *used("1", "a", skill="S")], used("2", "b", "error", "S")
    grown = growth(first, more, frozenset().intersection, registry, with_flow)
    skill = next(write.memory_data.fields for write in grown.writes if write.memory_data.memory_type == "skills")
    assert skill == {"skill_name": "S", "total_executions": 0, "success_count": -1, "fail_count": 1}


def test_a_removed_memory_is_not_started_below_zero(registry: MemoryTypeRegistry) -> None:
    grown = added(registry, used("1", "a", skill="S"), used("2", "b", "error", "S"))
    skill = next(write.memory_data.fields for write in grown.writes if write.memory_data.memory_type == "skills")
    assert skill == {"skill_name": "S", "total_executions": 1, "success_count": 0, "fail_count": 1}


def flow_of(grown: Added) -> tuple[Any, float | None]:
    data = next(write.memory_data for write in grown.writes if write.memory_data.memory_type == "skills")
    return data.fields.get(FLOW), data.given.get("salience")


def test_the_first_successful_execution_leaves_its_flow(registry: MemoryTypeRegistry) -> None:
    log = [*used("1", "读取", skill="S"), *used("2", "clean", skill="S"), *used("3", "clean", skill="S"),
           *used("4", "write", "error", skill="S"), *used("5", "check", skill="S")]  # fmt: skip
    assert flow_of(added(registry, [], log)) == ("1. 读取 → 2. clean → 3. check", 0.7)
    assert flow_of(added(registry, [], log[:-2])) == (None, None)


def test_a_stored_flow_stays(registry: MemoryTypeRegistry) -> None:
    log = used("1", "read", skill="S")
    grown = growth([], log, frozenset().intersection, registry, lambda _kind, _fields: {FLOW: "1. think"})
    assert flow_of(grown) == (None, None)


def test_a_flow_grows_with_its_run(registry: MemoryTypeRegistry) -> None:
    first, more = used("1", "read", skill="S"), used("2", "write", skill="S")
    grown = growth(first, more, frozenset().intersection, registry, lambda _kind, _fields: {FLOW: "1. read"})
    assert flow_of(grown) == ("1. read → 2. write", None)


def declared(name: str, key: str, **changes: Any) -> MemoryType:
    fields = [{"name": key, "merge_op": "immutable"}, {"name": "total_calls", "type": "int64", "merge_op": "sum"},
              {"name": "fail_count", "type": "int64", "merge_op": "replace"}, {"name": "content"}]  # fmt: skip
    values = {"name": name, "description": "x", "directory": "viking://agent/{agent_space}/memories/x",
              "filename_template": f"{{{key}}}.md", "fields": fields, **changes}  # fmt: skip
    return MemoryType.model_validate(values)


def test_a_type_of_the_users_own_takes_the_counts_it_sums() -> None:
    own = MemoryTypeRegistry()
    own.register(declared("tools", "tool_name"))
    (write,) = added(own, [], used("1", skill="S")).writes
    assert write.memory_data.fields == {"tool_name": "web_search", "total_calls": 1}


@pytest.mark.parametrize(
    "types",
    [
        [],
        [declared("tools", "title")],
        [declared("tools", "tool_name", enabled=False)],
        [declared("tools", "tool_name", operation_mode="add_only")],
    ],
    ids=["absent", "other key", "disabled", "add only"],
)
def test_a_type_that_cannot_count_is_left_out(types: list[MemoryType]) -> None:
    own = MemoryTypeRegistry()
    for memory_type in types:
        own.register(memory_type)
    grown = added(own, [], used("1"))
    assert (grown.writes, len(grown.calls)) == ([], 1)


NAMES = st.sampled_from(["web_search", "读文件", "Skill"])
IDS = st.sampled_from(["", "call_1", "call_2", "a", "b"])
SKILLS = st.none() | st.sampled_from(["S", "T"])
STATUSES = st.sampled_from(["completed", "error", "running"])
MESSAGES = st.one_of(
    st.builds(user),
    st.builds(lambda i, n, s, q: made(i, n, s, q=q), IDS, NAMES, SKILLS, st.integers(0, 2)),
    st.builds(answered, IDS, st.sampled_from(["x", "y"]), STATUSES, st.none() | NAMES),
)
LOGS = st.lists(MESSAGES, max_size=14)


@given(LOGS, st.lists(st.integers(0, 14), max_size=4))
def test_a_log_in_any_parts_adds_up_to_the_whole(
    registry: MemoryTypeRegistry, log: list[Message], cuts: list[int]
) -> None:
    places = sorted({0, len(log), *(cut for cut in cuts if cut < len(log))})
    written: list[WriteOp] = []
    keys: set[str] = set()
    for start, end in pairwise(places):
        stored = {name for kind, name, _ in sums(written) if kind == "skills"}

        def existing(_kind: str, fields: Mapping[str, str], known: set[str] = stored) -> Mapping[str, Any] | None:
            return {FLOW: "x"} if fields.get("skill_name") in known else None

        grown = growth(log[:start], log[start:end], frozenset().intersection, registry, existing)
        assert not keys & keys_of(grown.calls)
        keys |= keys_of(grown.calls)
        written += grown.writes
    assert sums(written) == sums(added(registry, [], log).writes)
    assert keys == call_keys(log)


@given(LOGS, st.data())
def test_overlapping_resends_count_every_call_once(
    registry: MemoryTypeRegistry, log: list[Message], data: st.DataObject
) -> None:
    named = [
        Message(
            item.role, item.text, message_id=f"m{place}", tool_calls=item.tool_calls, tool_results=item.tool_results
        )
        for place, item in enumerate(log)
    ]
    stored: list[Message] = []
    written: list[WriteOp] = []
    while len(stored) < len(named):
        start = data.draw(st.integers(0, len(stored)))
        end = data.draw(st.integers(len(stored) + 1, len(named)))
        fresh = unseen(stored, named[start:end])
        written += growth(stored, fresh, frozenset().intersection, registry, with_flow).writes
        stored += fresh
    assert sums(written) == sums(added(registry, [], named).writes)


@given(LOGS)
def test_what_is_counted_elsewhere_is_never_counted_again(registry: MemoryTypeRegistry, log: list[Message]) -> None:
    identified = [message for message in log if "" not in ids_of(message)]
    first = added(registry, [], identified)
    grown = growth([], identified, keys_of(first.calls).intersection, registry, nothing)
    assert (grown.writes, grown.calls) == ([], ())


def test_a_log_of_ten_thousand_messages_is_read_in_seconds(registry: MemoryTypeRegistry) -> None:
    log = [message for number in range(5_000) for message in used(f"c{number}", "Read")]
    started = time.process_time()
    assert sums(added(registry, log[:-2], log[-2:]).writes)["tools", "Read", "total_calls"] == 1
    assert time.process_time() - started < 5
