"""One file taken back, field by field."""

from __future__ import annotations

from typing import Any

import pytest

from memory_core.core.errors import MemoryChanged
from memory_core.core.memory.memory_type import MemoryTypeRegistry, builtin_schema_dir
from memory_core.core.memory.trailer import join, split
from memory_core.core.memory.uri import MemoryUri
from memory_core.features.undo import Versions, revert

URI = MemoryUri.parse("viking://user/default/memories/tools/web_search.md")
AT = "2026-05-08T10:00:00+00:00"


def memory(body: str, **trailer: Any) -> str:
    return join(body, {"memory_type": "notes", **trailer})


def merged(old: str | None, given: str | None, now: str | None, **more: Any) -> str | None:
    return revert(Versions(old, given, now), URI, at=AT, **more)


def refused(old: str | None, given: str | None, now: str | None, **more: Any) -> str:
    with pytest.raises(MemoryChanged) as refusal:
        merged(old, given, now, **more)
    return refusal.value.message


def test_an_untouched_file_gets_its_old_text_byte_for_byte() -> None:
    assert merged("旧\r\n", "新", "新") == "旧\r\n"
    assert merged(None, "新", "新") is None
    assert merged("旧", None, None) == "旧"


def test_a_later_change_elsewhere_in_the_body_is_kept() -> None:
    text = merged(memory("一\n二\n三"), memory("壹\n二\n三"), memory("壹\n二\n三\n四"))
    assert split(text or "").body == "一\n二\n三\n四"


def test_a_later_change_of_the_same_line_is_refused() -> None:
    assert "body" in refused(memory("tea"), memory("coffee"), memory("cocoa"))


def test_a_field_that_still_has_the_commits_value_goes_back_and_others_stay() -> None:
    text = merged(
        memory("b", salience=0.5, category="x"),
        memory("b", salience=0.8, category="x", tags=["new"]),
        memory("b", salience=0.8, category="later", tags=["new", "mine"]),
    )
    trailer = split(text or "").trailer or {}
    assert (trailer["salience"], trailer["category"], trailer["tags"]) == (0.5, "later", ["mine"])


def test_a_field_that_changed_since_is_refused_by_name() -> None:
    assert "'salience'" in refused(memory("b", salience=0.5), memory("b", salience=0.8), memory("b", salience=0.3))


def test_a_created_memory_that_only_got_links_is_deleted() -> None:
    created = memory("b", version=1)
    linked = memory("b", version=2, updated_at=AT, links=[{"uri": "viking://user/default/memories/notes/x.md"}])
    assert merged(None, created, linked) is None
    assert "edited" in refused(None, created, memory("edited", version=2))


def test_a_deleted_file_does_not_replace_what_stands_there_now() -> None:
    assert "another text" in refused("old", None, "new")


def test_a_log_loses_its_tail_only_from_its_end() -> None:
    assert merged("一\n", "一\n二\n", "edited\n二\n", appended=True) == "edited\n"
    assert merged(None, "二\n", "零\n二\n", appended=True) == "零\n"
    assert "went on" in refused("一\n", "一\n二\n", "一\n二\n三\n", appended=True)


@pytest.fixture(scope="module")
def registry() -> MemoryTypeRegistry:
    registry = MemoryTypeRegistry()
    registry.load_from_dir(builtin_schema_dir())
    return registry


def test_sums_lose_the_commits_share_and_the_body_is_rendered_anew(registry: MemoryTypeRegistry) -> None:
    tools = registry.get("tools")

    def tool(calls: int, good: int) -> str:
        from memory_core.core.memory.template import render
        from memory_core.core.memory.trailer import body_digest

        fields: dict[str, Any] = {
            "tool_name": "web_search",
            "total_calls": calls,
            "success_count": good,
            "fail_count": calls - good,
            "total_time_ms": 0,
            "total_tokens": 0,
        }
        body = render(tools, fields)
        return join(body, {**fields, "memory_type": "tools", "rendered_sha256": body_digest(body)})

    text = merged(tool(10, 9), tool(13, 10), tool(20, 17), memory_type=tools)
    assert text == tool(17, 16)


def test_plain_files_are_merged_by_lines() -> None:
    assert merged("a\nb\nc\n", "A\nb\nc\n", "A\nb\nC\n") == "a\nb\nC\n"
    assert "same lines" in refused("a\n", "b\n", "c\n")
