"""How many values a text holds is told without reading it, whatever stands in its strings."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.foreign_json import MOST_VALUES, holds_many

LEAVES = st.none() | st.booleans() | st.integers() | st.text(alphabet='ab,[{"\\:}]茶\n')
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=5)
        | st.dictionaries(st.text(alphabet=',"\\[{', max_size=4), inner, min_size=1, max_size=5)
    ),
    max_leaves=20,
)


def count(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(count, inner))


@given(VALUES, st.booleans())
def test_values_are_counted_and_what_stands_in_strings_is_not(value: Any, plain: bool) -> None:
    text = json.dumps(value, ensure_ascii=plain).encode()
    assert not holds_many(text, count(value))
    assert count(value) == 1 or holds_many(text, count(value) - 1)


MESSAGE = {"role": "user", "content": [{"type": "text", "text": 'He said: "a, b, [c], {d}".'}], "name": "Anna"}
WRITE = {"memory_data": {"memory_type": "notes", "fields": {"title": "Tea", "content": "Green."}, "tags": ["a", "b"]}}
SENTENCES = 'One, two, "three", [four] {five} \\ ' * 80_000


@pytest.mark.parametrize(
    "request_",
    [
        {"messages": [MESSAGE] * 5_000},
        {"operations": {"write_operations": [WRITE] * 10_000}},
        {"memory_content": SENTENCES},
        {"memory_content": "\\" * 1_000_000 + '"' * 1_000_000 + "," * 1_000_000},
    ],
    ids=["messages", "operations", "text", "signs"],
)
def test_large_requests_that_are_meant_pass(request_: dict[str, Any]) -> None:
    assert not holds_many(json.dumps(request_).encode())


@pytest.mark.parametrize(
    "text",
    [
        b"[" + b"1," * MOST_VALUES + b"1]",
        b"[" + b"[]," * MOST_VALUES + b"1]",
        b"[" * (MOST_VALUES + 1),
        b'{"a":"\\\\",' + b'"b":1,' * MOST_VALUES,
        b'["' + b'","' * MOST_VALUES + b'"]',
        ('["\\"",' + "1," * MOST_VALUES + "1]").encode("utf-16"),
    ],
    ids=["numbers", "lists", "depth", "members", "texts", "UTF-16"],
)
def test_what_holds_very_many_values_is_told(text: bytes) -> None:
    assert holds_many(text)
