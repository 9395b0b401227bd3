"""Rendering: literal values, whitelisted formats, derived averages."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memory_core.core.memory.memory_type import (
    FieldType,
    FieldValue,
    MemoryField,
    MemoryType,
    MemoryTypeRegistry,
)
from memory_core.core.memory.template import followed, render
from memory_core.core.record import RecordInvalid


def kind(template: str | None, *fields: dict[str, Any]) -> MemoryType:
    return MemoryType.model_validate(
        {
            "name": "kind",
            "description": "Anything.",
            "directory": "viking://user/{user_space}/memories/kind",
            "filename_template": "{a}.md",
            "content_template": template,
            "fields": [{"name": "a"}, {"name": "b"}, {"name": "content"}, *fields],
        }
    )


@pytest.fixture(scope="module")
def tools(registry: MemoryTypeRegistry) -> MemoryType:
    return registry.get("tools")


COUNTS: dict[str, FieldValue] = {
    "tool_name": "web_search",
    "total_calls": 100,
    "success_count": 92,
    "fail_count": 8,
    "total_time_ms": 120_000,
    "total_tokens": 150_000,
}


def test_tool_memory_renders_the_golden_lines(tools: MemoryType) -> None:
    text = render(tools, {**COUNTS, "best_for": "查最新消息", "guidelines": "## Guidelines\n- 用短词。"})
    assert "Tool: web_search\n" in text
    assert "Based on 100 historical calls:\n" in text
    assert "Success rate: 92.0% (92 successful, 8 failed)\n" in text
    assert "Avg time: 1.2s, Avg tokens: 1500\n" in text
    assert "- Best for: 查最新消息\n- Optimal params:\n" in text
    assert text.endswith("\n\n## Guidelines\n- 用短词。")


def test_tool_memory_without_calls_renders_averages_as_not_available(tools: MemoryType) -> None:
    text = render(tools, {**COUNTS, "total_calls": 0})
    assert "Success rate: n/a (92 successful, 8 failed)" in text
    assert "Avg time: n/a, Avg tokens: n/a" in text


def test_empty_last_value_leaves_no_blank_lines_behind(tools: MemoryType) -> None:
    assert render(tools, COUNTS).endswith("- Recommendation:")
    assert render(kind("{a}"), {}) == ""


def test_value_that_looks_like_a_placeholder_is_not_expanded() -> None:
    text = render(kind("{a} {b}"), {"a": "{b} {a.__class__} {0} \\g<0>", "b": "{a}"})
    assert text == "{b} {a.__class__} {0} \\g<0> {a}"


@pytest.mark.parametrize("text", ["{a.upper}", "{a[0]}", "{0}", "{}", "{a!r}", "{a:>9}", "{ a }", "{", "}", "${支}"])
def test_other_braces_are_left_alone(text: str) -> None:
    assert render(kind(f"{text}|{{b}}"), {"a": "A", "b": "B"}) == f"{text}|B"


def test_values_render_plainly() -> None:
    fields = (
        {"name": "n", "type": "int64"},
        {"name": "x", "type": "float32"},
        {"name": "yes", "type": "bool", "merge_op": "replace"},
    )
    text = render(kind("{n}|{x}|{yes}|{a}", *fields), {"n": 1000, "x": 92.0, "yes": True})
    assert text == "1000|92.0|true|"


def test_average_without_format_renders_plainly() -> None:
    average = {"name": "m", "type": "float32", "merge_op": "avg", "avg": {"sum": "n", "count": "k"}}
    numbers = ({"name": "n", "type": "int64"}, {"name": "k", "type": "int64"})
    assert render(kind("{m}", *numbers, average), {"n": 184, "k": 2}) == "92.0"
    assert render(kind("{m}", *numbers, average), {"n": 1, "k": 3}) == "0.333333"
    whole = {**average, "type": "int64", "format": "约{:,d}次"}
    assert render(kind("{m}", *numbers, whole), {"n": 8000, "k": 3}) == "约2,667次"


def test_stored_number_takes_its_format_and_a_broken_one_shows_as_it_is() -> None:
    priced = kind("{n}", {"name": "n", "type": "int64", "merge_op": "sum", "format": "{:,d} 元"})
    assert render(priced, {"n": 1234567}) == "1,234,567 元"
    assert render(priced, {"n": "很多"}) == "很多"
    assert render(priced, {}) == ""


def test_line_end_that_an_empty_value_leaves_is_stripped_but_values_keep_theirs() -> None:
    assert render(kind("x: {a} {b}  \ny"), {"a": "hard break  "}) == "x: hard break  \ny"
    assert render(kind("x: {a}\ny"), {"a": "hard break  \nnext \t"}) == "x: hard break  \nnext \t\ny"
    assert render(kind("fixed  \n{a}\nend"), {}) == "fixed  \n\nend"


CONTENT_PIECES = st.sampled_from(["a", "b", " ", "\t", "\n", "\n\n", "\r\n", "a\n", "\n ", "a longer value", "\u2028"])


@given(
    before=st.lists(CONTENT_PIECES, max_size=8),
    old=st.lists(CONTENT_PIECES, max_size=5),
    after=st.lists(CONTENT_PIECES),
)
def test_a_value_that_changed_is_exchanged_where_it_is_alone_on_its_lines(
    before: list[str], old: list[str], after: list[str]
) -> None:
    value, content = "".join(old).strip(), "".join([*before, *old, *after])
    assume(value and content.strip() != value)
    alone = rf"(?m)^[ \t]*{re.escape(value)}[ \t]*$"
    if len(re.findall(alone, content)) == 1:
        expected = re.sub(alone, "NEW", content)
    else:
        expected = content.replace(value, "NEW") if len(value.encode()) >= 10 and content.count(value) == 1 else content
    changed = followed(kind(None), {"b": value, "content": content}, {"b": "NEW", "content": content})
    assert changed["content"] == expected


@pytest.mark.parametrize(("line", "last"), [("a", "b"), ("ab", "a")])
def test_a_value_of_very_many_lines_is_looked_for_once(line: str, last: str) -> None:
    content, value = f"{line}\n" * 400_000 + "end", f"{line}\n" * 150_000 + last
    changed = followed(kind(None), {"b": value, "content": content}, {"b": "shorter by far", "content": content})
    assert changed["content"] == f"{content}\n\nshorter by far"


def test_simple_mode_renders_the_content_field() -> None:
    assert render(kind(None), {"content": "正文 {a}\r\n", "a": "x"}) == "正文 {a}\r\n"
    assert render(kind(None), {}) == ""


@pytest.mark.parametrize("format_", ["{:.1f}", "{:.0f}", "{:d}", "{:,d}", "{:,.2f}", "约 {:.1f}%", "${:,d} each"])
def test_number_formats_are_allowed(format_: str) -> None:
    assert MemoryField(name="n", type=FieldType.INT64 if "d}" in format_ else FieldType.FLOAT32, format=format_)


@pytest.mark.parametrize(
    "format_",
    ["{}", "{0}", "{:>1000000}", "{:.99f}", "{0.__class__}", "{:.1f}{:.1f}", "{:s}", "{:.1f!r}", "", "x", "{{:d}}"],
)
def test_any_other_format_is_refused(format_: str) -> None:
    with pytest.raises(RecordInvalid, match="format"):
        MemoryField(name="n", type=FieldType.FLOAT32, format=format_)


@given(st.text(), st.text())
def test_values_appear_literally(first: str, second: str) -> None:
    assert render(kind("[{a}]({b})\n-->{a}."), {"a": first, "b": second}) == f"[{first}]({second})\n-->{first}."
