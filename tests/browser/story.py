"""A store as somebody has after some months of use, in English and in Chinese, for the page to show.

What is told is in ``story.json``: each memory and edit with how many ``days`` ago it came, and what was said.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from memory_core.core.caller import authored
from memory_core.core.config import MaintenanceConfig
from memory_core.core.memory.requests import CommitRequest
from memory_core.runebook import open_memory
from tests.stores import words_only

USER = "viking://user/default/memories"
AGENT = "viking://agent/default/memories"
STYLE = f"{USER}/preferences/Python code style.md"
GREEN_TEA = f"{USER}/preferences/喝茶.md"
#: Titles and texts that would do harm if any part of the page read them as markup.
HOSTILE_NAME = "'\"><img src=x onerror=window.harmed=1>"
HOSTILE_TEXT = """\
<script>window.harmed = 1</script>
<img src="https://outside.invalid/pixel.png" onerror="window.harmed = 1">
<svg onload="window.harmed = 1"></svg><iframe src="https://outside.invalid/"></iframe>
[click me](javascript:window.harmed=1) [data](data:text/html,<script>window.harmed=1</script>)
![pixel](https://outside.invalid/pixel.png)

<a href="javascript:window.harmed=1">raw</a> <style>body{display:none}</style>
"""
_HOSTILE = {"days": 2, "memory_type": "notes", "text": HOSTILE_TEXT, "fields": {"title": HOSTILE_NAME}}
_STORY: Mapping[str, Any] = json.loads(Path(__file__).with_name("story.json").read_text(encoding="utf-8"))


def talk(name: str, *more: str) -> list[dict[str, str]]:
    """The messages of a conversation that falls into topics."""
    lines = (*_STORY["talks"][name], *more)
    return [{"role": ("user", "assistant")[at % 2], "content": line} for at, line in enumerate(lines)]


def tell(home: Path, *, hostile: bool = False, now: datetime | None = None) -> None:
    """Write the store at ``home``; with ``hostile`` also a memory full of markup."""
    at = now or datetime.now(UTC)
    commits = [_memory(at, **each) for each in (*_STORY["memories"], *([_HOSTILE] if hostile else ()))]
    commits += [_edit(at, **each) for each in _STORY["edits"]]
    commits += [commit for each in _STORY["conversations"] for commit in _conversation(at, **each)]
    config = words_only(home, maintenance=MaintenanceConfig(automatic="off"))
    with authored("desktop assistant"), open_memory(config) as memory:
        for commit in sorted(commits, key=lambda each: each.now or at):
            memory.commit(commit)


def _memory(
    at: datetime,
    *,
    days: float,
    text: str | None = None,
    priority: str = "normal",
    pinned: bool | None = None,
    expires_days: int | None = None,
    **more: Any,
) -> CommitRequest:
    expires = None if expires_days is None else (at + timedelta(days=expires_days)).date().isoformat()
    metadata = {"pinned": pinned, "expires_at": expires}
    return CommitRequest(text, priority=priority, now=at - timedelta(days=days), metadata=metadata, **more)


def _edit(at: datetime, *, days: float, edit: Mapping[str, Any]) -> CommitRequest:
    """What was corrected later, or put to rest."""
    return CommitRequest(operations={"edit_operations": [edit]}, now=at - timedelta(days=days))


def _conversation(
    at: datetime,
    *,
    session_id: str,
    days: float,
    messages: list[dict[str, Any]],
    operations: Mapping[str, Any] | None = None,
) -> Iterator[CommitRequest]:
    then = at - timedelta(days=days)
    timed = [
        {**message, "time": (then + timedelta(seconds=40 * index)).isoformat()}
        for index, message in enumerate(messages)
    ]
    yield CommitRequest(messages=timed, session_id=session_id, now=then)
    if operations is not None:
        yield CommitRequest(operations=operations, session_id=session_id, now=then + timedelta(minutes=3))
