"""A wrong value has few faults, however many items are wrong, and the first of them is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from server.fail_fast import fail_fast_type, with_few_unknown
from server.http.api_answers import EntryEdit, NewEntry, SearchQuestion, SettingValue
from server.protocol.session import MemorySession
from server.protocol.tools import build_tools

MANY = 1_000
MEMBERS: dict[str, Any] = {f"m{number}": [] for number in range(MANY)}


def faults(kind: Any, value: Any) -> list[Any]:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_python(value)
    return list(caught.value.errors())


@pytest.mark.parametrize(
    ("kind", "value", "first"),
    [
        (list[str], ["a"] + [1] * MANY, (1,)),
        (Sequence[dict[str, Any]] | None, [1] * MANY, (0,)),
        (Mapping[str, str] | None, MEMBERS, ("m0",)),
        (dict[str, str | int | None], MEMBERS, ("m0", "str")),
    ],
)
def test_a_type_stops_at_the_first_wrong_item(kind: Any, value: Any, first: tuple[Any, ...]) -> None:
    found = faults(fail_fast_type(kind), value)
    assert found[0]["loc"] == first
    assert len(found) < 5
    assert len(faults(kind, value)) >= MANY


def test_a_type_takes_what_it_took() -> None:
    for kind, value in ((str | Sequence[str] | None, ["a", "b"]), (Mapping[str, int], {"a": 1}), (list[str], [])):
        assert TypeAdapter(fail_fast_type(kind)).validate_python(value) == value


def test_a_few_unknown_members_are_kept() -> None:
    assert with_few_unknown({"a": 1, "x": 2, "b": 3}, {"a", "b"}) == {"a": 1, "x": 2, "b": 3}
    assert list(with_few_unknown({**MEMBERS, "a": 1}, {"a"})) == ["m0", "m1", "m2", "m3", "m4", "a"]


@pytest.mark.parametrize(
    ("question", "given"),
    [
        (SearchQuestion, {"query": "tea", **MEMBERS}),
        (NewEntry, {"fields": MEMBERS}),
        (EntryEdit, {"fields": MEMBERS}),
        (SettingValue, {"value": [1] * MANY}),
    ],
)
def test_a_question_of_the_api_has_few_faults(question: type[BaseModel], given: dict[str, Any]) -> None:
    assert 0 < len(faults(question, given)) < 10


def closed() -> Any:
    raise AssertionError("arguments are checked without a store")


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("retrieve", {"tool": [1] * MANY}),
        ("retrieve", {"messages": [1] * MANY}),
        ("commit_memory", {"tags": [1] * MANY}),
        ("commit_memory", {"messages": [1] * MANY}),
        ("commit_memory", {"fields": MEMBERS}),
    ],
)
def test_arguments_of_a_tool_have_few_faults(tool: str, given: dict[str, Any]) -> None:
    (found,) = (each for each in build_tools(MemorySession(closed)) if each.name == tool)
    with pytest.raises(ValidationError) as caught:
        found.fn_metadata.validate_arguments(given)
    assert caught.value.error_count() < 10
