"""One file taken back, field by field."""

from __future__ import annotations

from typing import Any

import pytest

from memory_core.core.errors import MemoryChanged
from memory_core.core.memory.memory_type import MemoryTypeRegistry
from memory_core.core.memory.template import render
from memory_core.core.memory.trailer import body_digest, join, split
from memory_core.core.memory.uri import MemoryUri
from memory_core.features.undo import Versions, revert

URI = MemoryUri.parse("viking://user/default/memories/tools/web_search.md")
AT = "2026-05-08T10:00:00+00:00"


def memory(body: str, **trailer: Any) -> str:
    return join(body, {"memory_type": "notes", **trailer})


def merged(old: str | None, given: str | None, now: str | None, **more: Any) -> str | None:
    return revert(Versions(old, given, now), URI, at=AT, **more)


#: A file before a commit, as the commit left it, as it is now, and without the commit; an error quotes its reason.
TAKEN_BACK: dict[str, tuple[str | None, str | None, str | None, str | None]] = {
    "untouched": ("旧\r\n", "新", "新", "旧\r\n"),
    "another line of a plain file": ("a\nb\nc\n", "A\nb\nc\n", "A\nb\nC\n", "a\nb\nC\n"),
    "other fields": (
        memory("b", salience=0.5, category="x"),
        memory("b", salience=0.8, category="x", tags=["new"]),
        memory("b", salience=0.8, category="later", tags=["new", "mine"]),
        memory("b", salience=0.5, category="later", tags=["mine"]),
    ),
}
REFUSED: dict[str, tuple[str | None, str | None, str | None, str]] = {
    "the same line": (memory("tea"), memory("coffee"), memory("cocoa"), "body"),
    "the same line of a plain file": ("a\n", "b\n", "c\n", "same lines"),
    "the same field": (memory("b", salience=0.5), memory("b", salience=0.8), memory("b", salience=0.3), "'salience'"),
    "created, then edited": (None, memory("b", version=1), memory("edited", version=2), "edited"),
    "deleted, then written anew": ("old", None, "new", "another text"),
}


@pytest.mark.parametrize("kind", TAKEN_BACK)
def test_a_commit_is_taken_back_and_what_came_later_is_kept(kind: str) -> None:
    *texts, wanted = TAKEN_BACK[kind]
    assert merged(*texts) == wanted


@pytest.mark.parametrize("kind", REFUSED)
def test_what_would_lose_later_words_is_refused_by_name(kind: str) -> None:
    *texts, reason = REFUSED[kind]
    with pytest.raises(MemoryChanged, match=reason):
        merged(*texts)


def test_a_log_loses_its_tail_only_from_its_end() -> None:
    assert merged("一\n", "一\n二\n", "edited\n二\n", appended=True) == "edited\n"
    assert merged(None, "二\n", "零\n二\n", appended=True) == "零\n"
    with pytest.raises(MemoryChanged, match="went on"):
        merged("一\n", "一\n二\n", "一\n二\n三\n", appended=True)


def test_sums_lose_the_commits_share_and_the_body_is_rendered_anew(registry: MemoryTypeRegistry) -> None:
    tools = registry.get("tools")

    def tool(calls: int, good: int) -> str:
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
    assert text is not None
    undone, wanted = split(text), split(tool(17, 16))
    assert (undone.body, undone.trailer) == (wanted.body, {**(wanted.trailer or {}), "shown_fields": {}})


def test_of_a_list_as_long_as_a_file_can_hold_what_the_commit_did_goes() -> None:
    old, given, added = (list(range(start, start + 30_000)) for start in (0, 30_000, 60_000))
    texts = (memory("body", numbers=numbers) for numbers in (old, given, [*given, *added]))
    assert merged(*texts) == memory("body", numbers=[*added, *old])
