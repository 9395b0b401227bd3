"""Failures become procedural memories without a model: one for each tool and error, and no rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.core.commit.append import Learned
from memory_core.core.memory.memory_type import MemoryTypeRegistry
from memory_core.core.memory.message import Message, ToolCall, ToolResult
from memory_core.features.procedural import (
    MEMORIES_LIMIT,
    OTHER_ERRORS,
    corrected,
    error_type,
    lessons,
)
from memory_core.features.redaction import Redaction
from memory_core.features.tool_counts import FinishedCall, finished_calls

MAY_11 = datetime(2026, 5, 11, 9, 30, tzinfo=UTC)


def nothing(_type: str, _fields: Mapping[str, str]) -> None:
    return None


def ran(
    text: str, status: str = "error", name: str = "web_search", time: datetime | None = MAY_11, **arguments: Any
) -> FinishedCall:
    log = [
        Message("assistant", time=time, tool_calls=(ToolCall("c", name, arguments),)),
        Message("tool", tool_results=(ToolResult("c", name, text, status),)),
    ]
    return finished_calls(log)[0]


def fields(found: Learned, place: int = 0) -> dict[str, Any]:
    return dict(found.writes[place].memory_data.fields)


def again(
    registry: MemoryTypeRegistry, content: str, calls: Sequence[FinishedCall], pattern_type: str = "tool_error"
) -> dict[str, Any]:
    """What the same failure makes of a memory that is stored."""
    return fields(lessons(calls, registry, lambda _kind, _fields: {"content": content, "pattern_type": pattern_type}))


SIGNATURES = [
    ("TimeoutError: 30 s", "TimeoutError"),
    ("Traceback (most recent call last):\n  File 'a.py'\nKeyError: 'x'\n\nDuring …\n\nos.PathError: no", "PathError"),
    ("Error: ENOENT: no such file or directory, open '/a/b'", "ENOENT"),
    ("fetch failed: HTTP Error 403: Forbidden", "HTTP 403"),
    ("404 Not Found", "HTTP 404"),
    ("请求失败，状态码：503", "HTTP 503"),
    ('{"error": {"type": "overloaded", "code": 529}}', "HTTP 529"),
    ("bash: pnpm: command not found", "command not found"),
    ("'pnpm' 不是内部或外部命令", "command not found"),
    ("请求超时（30 秒）", "timeout"),
    ("Timeout 30000ms exceeded.", "timeout"),
    ("权限不足", "permission denied"),
    ("返回内容为空", "empty result"),
    ("错误：参数 '城市' 缺失", "参数 缺失"),
    ("Exit code 1\nnpm ERR! missing script: build", "missing script: build"),
    ("", "error"),
    ("🤖", "error"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "expected"), SIGNATURES)
def test_an_error_has_a_type(message: str, expected: str) -> None:
    assert error_type(message) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("pathspec 'main' did not match", "pathspec 'release/2.1' did not match"),
        ("invalid JSON at line 3 column 14", "invalid JSON at line 92 column 1"),
        ("cannot open /tmp/a.txt today", "cannot open /var/log/x/y.log today"),
        ("object 0f3a9c1e77 is missing", "object 77ab01cd99 is missing"),
        ("查询失败：表 orders_2024 不存在", "查询失败：表 users_7 不存在"),
        ("错误：“北京”不是有效的城市", "错误：“上海”不是有效的城市"),
    ],
)
def test_what_differs_from_call_to_call_is_not_part_of_the_type(one: str, other: str) -> None:
    assert error_type(one) == error_type(other) != "error"


@given(st.text(max_size=400))
def test_any_message_has_a_short_type_on_one_line(message: str) -> None:
    found = error_type(message)
    assert found
    assert found.strip() == found
    assert len(found) <= 60
    assert "\n" not in found


def test_a_failure_is_kept_with_arguments_message_and_day(registry: MemoryTypeRegistry) -> None:
    found = lessons([ran("TimeoutError: no answer\nwithin 30 s", query="天气")], registry, nothing)
    assert fields(found) == {
        "pattern_name": "web_search: TimeoutError",
        "pattern_type": "tool_error",
        "content": (
            "web_search failed with TimeoutError on 2026-05-11.\n\n"
            "<!-- occurrences: 1 -->\n"
            '- 2026-05-11: web_search(query="天气") → TimeoutError: no answer within 30 s\n'
            "<!-- /occurrences -->"
        ),
    }
    assert found.writes[0].memory_data.source == {
        "kind": "auto_reflection",
        "tool": "web_search",
        "error_type": "TimeoutError",
    }


def test_a_failure_seen_twice_is_told_once_with_its_number(registry: MemoryTypeRegistry) -> None:
    calls = [ran("HTTP 429", q="a", time=MAY_11), ran("HTTP 429", q="b", time=MAY_11.replace(day=12))]
    found = lessons(calls, registry, nothing)
    told = fields(found)
    assert (len(found.writes), told["pattern_type"]) == (1, "tool_error")
    assert told["content"].startswith("web_search failed 2 times with HTTP 429; last on 2026-05-12.\n")
    assert found.writes[0].memory_data.given["salience"] == 0.7


def test_a_failure_is_told_in_chinese_in_a_chinese_conversation(registry: MemoryTypeRegistry) -> None:
    calls = [ran("请求超时", name="网页搜索"), ran("请求超时", name="网页搜索")]
    told = fields(lessons(calls, registry, nothing, language="Chinese (Simplified)"))
    assert told["pattern_name"] == "网页搜索: timeout"
    assert told["content"].startswith("网页搜索 已因 timeout 失败 2 次，最近一次是 2026-05-11。")


def test_the_last_five_occurrences_are_kept_and_all_are_counted(registry: MemoryTypeRegistry) -> None:
    content = fields(lessons([ran("HTTP 500", n=0)], registry, nothing))["content"]
    for number in range(1, 9):
        content = again(registry, content, [ran("HTTP 500", n=number)], "rule")["content"]
    assert "<!-- occurrences: 9 -->" in content
    assert "web_search failed 9 times" in content
    assert [line[-20:] for line in content.splitlines() if line.startswith("- ")] == [
        f"search(n={number}) → HTTP 500"[-20:] for number in range(4, 9)
    ]


def test_no_day_is_told_where_none_is_known(registry: MemoryTypeRegistry) -> None:
    call = ran("HTTP 500", time=None)
    assert "web_search failed with HTTP 500.\n" in fields(lessons([call], registry, nothing))["content"]


def test_prose_that_a_person_wrote_stays(registry: MemoryTypeRegistry) -> None:
    content = fields(lessons([ran("HTTP 500"), ran("HTTP 500")], registry, nothing))["content"]
    prose, _, block = content.partition("\n\n")
    edited = f"网站晚上维护。Ask Ops first.\n\n{block}\n\nSee the wiki."
    told = again(registry, edited, [ran("HTTP 500")], "rule")["content"]
    assert told.startswith("网站晚上维护。Ask Ops first.\n\n<!-- occurrences: 3 -->")
    assert told.endswith("<!-- /occurrences -->\n\nSee the wiki.")
    assert prose not in told


DAMAGE = [
    ("number gone", "x\n\n<!-- occurrences -->\n- a\n- b\n<!-- /occurrences -->", 3),
    ("number no number", "x\n\n<!-- occurrences: many -->\n- a\n<!-- /occurrences -->", 2),
    ("number too small", "x\n\n<!-- occurrences: 1 -->\n- a\n- b\n- c\n<!-- /occurrences -->", 4),
    ("end gone", "x\n\n<!-- occurrences: 7 -->\n- a\n- b\n\nmore", 8),
    ("begin gone", "x\n- a\n<!-- /occurrences -->", 1),
    ("no block", "全部手写。", 1),
    ("carriage returns", "x\r\n\r\n<!-- occurrences: 2 -->\r\n- a\r\n<!-- /occurrences -->\r\n", 3),
    ("empty", "", 1),
]


@pytest.mark.parametrize(("content", "count"), [pytest.param(*case[1:], id=case[0]) for case in DAMAGE])
def test_a_block_damaged_by_hand_counts_on(registry: MemoryTypeRegistry, content: str, count: int) -> None:
    told = again(registry, content, [ran("HTTP 500")])["content"]
    assert f"<!-- occurrences: {count} -->" in told
    for word in ("x", "more", "全部手写。"):
        assert (word in content.split()) == (word in told.split())


def test_a_note_inside_the_block_becomes_prose(registry: MemoryTypeRegistry) -> None:
    content = "mine\n\n<!-- occurrences: 1 -->\n- a\n只在周一出现\n<!-- /occurrences -->"
    told = again(registry, content, [ran("HTTP 500")])["content"]
    assert told.index("只在周一出现") < told.index("<!-- occurrences: 2 -->")


def test_a_type_that_a_person_gave_stays(registry: MemoryTypeRegistry) -> None:
    assert "pattern_type" not in again(registry, "x", [ran("HTTP 500")], "workflow")


@given(st.text(max_size=300))
def test_no_text_of_a_person_is_lost(registry: MemoryTypeRegistry, content: str) -> None:
    told = again(registry, content, [ran("HTTP 500")], "rule")["content"]
    once_more = again(registry, told, [ran("HTTP 500")], "rule")["content"]
    for text in (told, once_more):
        assert content.split() == [word for word in text.split() if word in content.split()][: len(content.split())]


CORRECTIONS: list[tuple[Any, Any, Any]] = [
    ({"q": "rust", "engine": "a"}, {"q": "rust", "engine": "b"}, {"engine": "b"}),
    ({"city": "Graz", "units": "metric"}, {"city": "Linz", "units": "metric"}, None),
    ({"path": "src/confg.py"}, {"path": "src/config.py"}, {"path": "src/config.py"}),
    ({"path": "config.py"}, {"path": "src/config.py"}, {"path": "src/config.py"}),
    ({"path": "src/a.py"}, {"path": "src/b.py"}, None),
    ({"path": "page1.html"}, {"path": "page2.html"}, None),
    ({"path": "a.py", "old": "x = 1", "new": "x = 2"}, {"path": "a.py", "old": "y = 7", "new": "import os"}, None),
    (
        {"path": "a.py", "old": "def total(items):\n  return 1", "new": "def total(items):\n    return 2"},
        {"path": "a.py", "old": "def total(items):\n    return 1", "new": "def total(items):\n    return 2"},
        {"old": "def total(items):\n    return 1"},
    ),
    ({"path": "b.py", "limit": 0}, {"path": "b.py", "limit": 10}, {"limit": 10}),
    ({"command": "npm run biuld"}, {"command": "npm run build"}, {"command": "npm run build"}),
    ({"command": "pnpm install"}, {"command": "npm install"}, {"command": "npm install"}),
    ({"command": "git push"}, {"command": "git push -u origin main"}, {"command": "git push -u origin main"}),
    ({"command": "pytest"}, {"command": "pytest -q || true"}, None),
    ({"command": "pytest"}, {"command": "pytest -q; true"}, None),
    ({"command": "pytest tests/test_a.py"}, {"command": "pytest tests/test_b.py"}, None),
    ({"command": "pytest"}, {"command": "git status"}, None),
    ({"command": ["bash", "-lc", "cd /w && pytest"]}, {"command": ["bash", "-lc", "cd /w && ls"]}, None),
    ({"command": "git add a.py"}, {"command": "git add b.py"}, None),
    ({"城市": "成都"}, {"城市": "重庆"}, None),
    ({"城市": "成都", "日期": "明天"}, {"城市": "成都", "日期": "2026-05-12"}, {"日期": "2026-05-12"}),
]  # fmt: skip


@pytest.mark.parametrize(("failed", "worked", "told"), CORRECTIONS)
def test_only_a_call_put_right_is_credited(failed: Any, worked: Any, told: Any) -> None:
    assert corrected(failed, worked) == told


def test_a_program_that_reports_findings_teaches_nothing(registry: MemoryTypeRegistry) -> None:
    failing = "F.\nE   assert 1 == 2\n1 failed, 1 passed in 0.03s"
    calls = [ran(text, name="Bash", command="pytest") for text in (failing, f"Exit code 1\n{failing}")]
    assert lessons(calls, registry, nothing).writes == []


def test_prose_of_an_earlier_version_is_told_anew(registry: MemoryTypeRegistry) -> None:
    earlier = "Before calling web_search: it failed 2 times with HTTP 500; last on 2026-05-11."
    block = "<!-- occurrences: 2 -->\n- a\n- b\n<!-- /occurrences -->"
    advice = " Check the calls below first and do not repeat them unchanged."
    told = again(registry, f"{earlier}{advice}\n\n{block}", [ran("HTTP 500")], "rule")
    assert told["content"].startswith("web_search failed 3 times with HTTP 500; last on 2026-05-11.\n")
    assert told["pattern_type"] == "tool_error"


def test_secrets_of_a_call_are_in_no_lesson(registry: MemoryTypeRegistry) -> None:
    arguments = {"apiKey": "hunter2hunter2", "cmd": "curl --password hunter2hunter2", "max_tokens": 5}
    log = [
        Message("assistant", tool_calls=(ToolCall("c", "t", arguments),)),
        Message("tool", tool_results=(ToolResult("c", "t", f"denied: {arguments}", "error"),)),
    ]
    kept, _ = Redaction().messages(log)
    told = fields(lessons(finished_calls(kept), registry, nothing))
    assert "hunter2" not in str(told)
    assert "max_tokens=5" in str(told)


def test_stopped_and_successful_calls_teach_nothing(registry: MemoryTypeRegistry) -> None:
    calls = [ran("x", "cancelled"), ran("no error", "completed"), ran("x", "Aborted")]
    assert lessons(calls, registry, nothing).writes == []


def test_a_flood_is_folded(registry: MemoryTypeRegistry) -> None:
    words = [chr(ord("a") + n) * 4 for n in range(26)]
    one_tool = [ran(f"strange {word} thing") for word in words]
    found = lessons(one_tool, registry, nothing)
    names = [str(write.memory_data.fields["pattern_name"]) for write in found.writes]
    assert len(names) == 6
    assert f"web_search: {OTHER_ERRORS}" in names
    many = [ran("HTTP 500", name=word) for word in [*words, words[-1]]]
    found = lessons(many, registry, nothing)
    assert len(found.writes) == MEMORIES_LIMIT
    assert found.notes == (f"{len(words) - MEMORIES_LIMIT} kinds of tool errors were not kept",)
    assert fields(found)["pattern_name"] == f"{words[-1]}: HTTP 500"


def test_without_patterns_there_are_no_lessons() -> None:
    assert lessons([ran("HTTP 500")], MemoryTypeRegistry(), nothing) == Learned()


@given(st.text(max_size=300), st.dictionaries(st.text(max_size=8), st.text(max_size=40), max_size=3))
def test_an_occurrence_is_one_line(registry: MemoryTypeRegistry, text: str, arguments: dict[str, str]) -> None:
    log = [
        Message("assistant", tool_calls=(ToolCall("c", "t", arguments),)),
        Message("tool", tool_results=(ToolResult("c", "t", text, "error"),)),
    ]
    content = fields(lessons(finished_calls(log), registry, nothing))["content"]
    told = again(registry, content, finished_calls(log))["content"]
    assert "<!-- occurrences: 2 -->" in told
    assert len(told.split("\n")) == 6
