"""A store as somebody has after some months of use, in English and in Chinese, for the page to show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from memory_core.core.caller import authored
from memory_core.core.config import Config, EmbeddingConfig, MaintenanceConfig
from memory_core.core.memory.requests import CommitRequest
from memory_core.runebook import Runebook, open_memory

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


@dataclass(frozen=True, slots=True)
class Told:
    """One memory: ``days`` ago, in ``fields`` what its type takes beside the text."""

    days: float
    memory_type: str
    text: str | None
    fields: dict[str, Any]
    priority: str = "normal"
    pinned: bool | None = None
    expires_days: int | None = None
    project: str | None = None


_STORY = (
    Told(
        142,
        "profile",
        "Mei is a backend engineer in Chengdu. She maintains a payment gateway, writes Python every day, "
        "and learns Japanese in the evenings.",
        {},
        "critical",
        True,
    ),
    Told(
        120,
        "preferences",
        "Wants type hints on public functions and short names.",
        {"topic": "Python code style"},
        "high",
    ),
    Told(118, "preferences", "上午只喝绿茶，不加糖；下午三点以后不喝含咖啡因的东西。", {"topic": "喝茶"}),
    Told(
        96,
        "entities",
        "支付系统部署在两个机房，每天凌晨三点对账，负责人是陈磊。出问题时先看**对账队列**，再看网关日志。",
        {"entity_name": "支付系统", "entity_type": "系统"},
        "high",
        project="payments",
    ),
    Told(
        88,
        "entities",
        "Lantern is the internal name of the new checkout. Its staging lives at `lantern.staging.internal`.",
        {"entity_name": "Lantern", "entity_type": "project"},
        project="payments",
    ),
    Told(
        80,
        "events",
        "The payment database moved from MySQL to PostgreSQL 18, because logical replication was needed for the "
        "second data centre.",
        {"event_name": "Moved to PostgreSQL 18", "event_time": "2026-03-17"},
        "high",
    ),
    Told(
        66,
        "cases",
        None,
        {
            "case_name": "Webhook delivered twice → Store the event id",
            "problem": "The bank repeats webhooks after a timeout, and orders were booked twice.",
            "solution": "Keep every event id for 30 days under a unique index and answer 200 to a repeat.",
        },
        "high",
        project="payments",
    ),
    Told(
        61,
        "patterns",
        "When a table is in use:\n\n1. add the new column\n2. backfill in batches\n3. switch the reads\n4. drop it",
        {"pattern_name": "Schema change: Expand→Backfill→Switch→Contract"},
        "high",
    ),
    Told(
        44,
        "tools",
        None,
        {
            "tool_name": "web_search",
            "static_desc": "Searches the web and returns titles with excerpts",
            "total_calls": 100,
            "success_count": 92,
            "fail_count": 8,
            "total_time_ms": 120000,
            "total_tokens": 150000,
            "best_for": "Documentation and release notes",
            "common_failures": "Vague questions bring news instead of documentation",
        },
    ),
    Told(
        40,
        "skills",
        None,
        {
            "skill_name": "create_presentation",
            "total_executions": 4,
            "success_count": 3,
            "fail_count": 1,
            "recommended_flow": "Ask for the audience → outline → slides → one round of corrections",
        },
    ),
    Told(33, "facts", "The office in Chengdu closes at 20:00; the side door needs a badge.", {"topic": "Office hours"}),
    Told(30, "facts", "办公室的 Wi-Fi 每季度换一次密码，下次更换是 9 月 1 日。", {"topic": "办公室网络"}, "low"),
    Told(
        21,
        "reflections",
        "Reviews went faster once each change came with one paragraph that says why.",
        {"topic": "Small reviews"},
    ),
    Told(
        14, "tasks", "Book a hotel near Namba station.", {"title": "Hotel in Osaka", "state": "open"}, "high", None, 60
    ),
    Told(12, "tasks", "把对账脚本迁移到新的调度器。", {"title": "迁移对账脚本", "state": "in_progress"}, "high"),
    Told(
        9, "notes", "Umeshu, dashi, a small donabe.\n\n- ask the shop in Kuromon\n- no glass", {"title": "Osaka list"}
    ),
    Told(6, "notes", "> 好记性不如烂笔头。\n\n写在新笔记本的第一页。", {"title": "一句话"}, "low"),
    Told(
        3,
        "assistant_knowledge",
        "Deployments are asked for in the channel #release, never in direct messages.",
        {"topic": "How releases are asked for"},
    ),
)
_OSAKA: tuple[dict[str, Any], ...] = (
    {"role": "user", "name": "Mei", "content": "We fly to Osaka on 2 May."},
    {"role": "assistant", "content": "Noted. Shall I look for a hotel near Namba?"},
    {"role": "user", "name": "Mei", "content": "Yes, but my father walks badly, so close to a station."},
    {"role": "assistant", "content": "Then within three minutes of a station with a lift."},
)
_TEA: tuple[dict[str, Any], ...] = (
    {"role": "user", "name": "小梅", "content": "朋友送了一盒龙井，怎么存放比较好？"},
    {"role": "assistant", "content": "密封后放冰箱冷藏，取出后先回到室温再打开。"},
    {"role": "user", "name": "小梅", "content": "好，那我以后都放冰箱，请记住。"},
)
_WAITING: tuple[dict[str, Any], ...] = (
    {"role": "user", "name": "Mei", "content": "The certificate of the staging gateway ends in three weeks."},
    {"role": "assistant", "content": "I will remind you a week before."},
)


def tell(home: Path, *, hostile: bool = False, now: datetime | None = None) -> None:
    """Write the store at ``home``; with ``hostile`` also a memory full of markup."""
    at = now or datetime.now(UTC)
    config = Config(
        home=home, embedding=EmbeddingConfig(provider="none"), maintenance=MaintenanceConfig(automatic="off")
    )
    with authored("desktop assistant"), open_memory(config) as memory:
        told: list[tuple[float, Callable[[], Any]]] = []
        told += [(each.days, partial(_remember, memory, each, at)) for each in _STORY]
        told += [*_changes(memory, at), *_conversations(memory, at)]
        if hostile:
            told.append((2, partial(_remember, memory, Told(2, "notes", HOSTILE_TEXT, {"title": HOSTILE_NAME}), at)))
        for _, happen in sorted(told, key=lambda each: -each[0]):
            happen()


def _remember(memory: Runebook, told: Told, at: datetime) -> None:
    expires = None if told.expires_days is None else (at + timedelta(days=told.expires_days)).date().isoformat()
    memory.commit(
        CommitRequest(
            told.text,
            memory_type=told.memory_type,
            fields=told.fields or None,
            priority=told.priority,
            project=told.project,
            now=at - timedelta(days=told.days),
            metadata={"pinned": told.pinned, "expires_at": expires},
        )
    )


def _changes(memory: Runebook, at: datetime) -> Iterator[tuple[float, Callable[[], Any]]]:
    """Some of it was corrected later, and one memory rests."""
    texts = (
        (70, "Wants type hints on public functions, short names, and no comments that repeat the code."),
        (
            15,
            "Wants type hints on public functions, full words as names, and no comments that repeat the code.\n\n"
            "- line length 120\n- `pathlib` instead of `os.path`\n- tests named after what they show",
        ),
    )
    edits: list[tuple[int, dict[str, Any]]] = [
        (days, {"uri": STYLE, "patches": {"content": text}}) for days, text in texts
    ]
    edits.append((5, {"uri": f"{USER}/facts/Office hours.md", "active": False}))
    for days, edit in edits:
        yield (
            days,
            partial(
                memory.commit, CommitRequest(operations={"edit_operations": [edit]}, now=at - timedelta(days=days))
            ),
        )


def _conversations(memory: Runebook, at: datetime) -> Iterator[tuple[float, Callable[[], Any]]]:
    for session, days, messages, operations in (
        ("osaka-trip", 11.0, _OSAKA, _OSAKA_MEMORIES),
        ("龙井", 4.0, _TEA, _TEA_MEMORIES),
        ("staging-gateway", 0.1, _WAITING, None),
    ):
        then = at - timedelta(days=days)
        timed = [
            {**message, "time": (then + timedelta(seconds=40 * index)).isoformat()}
            for index, message in enumerate(messages)
        ]
        yield days, partial(memory.commit, CommitRequest(messages=timed, session_id=session, now=then))
        if operations is not None:
            later = then + timedelta(minutes=3)
            yield (
                days - 0.002,
                partial(memory.commit, CommitRequest(operations=operations, session_id=session, now=later)),
            )


_OSAKA_MEMORIES: dict[str, Any] = {
    "reasoning": "A dated plan and a lasting need of the family.",
    "write_operations": [
        {
            "memory_data": {
                "memory_type": "events",
                "fields": {
                    "event_name": "Flight to Osaka with her father",
                    "event_time": "2026-05-02",
                    "content": "Mei flies to Osaka on 2 May 2026 with her father.",
                },
            }
        },
        {
            "memory_data": {
                "memory_type": "preferences",
                "fields": {"topic": "Hotels", "content": "Close to a station: Mei's father walks badly."},
                "salience": 0.8,
            }
        },
    ],
}
_TEA_MEMORIES: dict[str, Any] = {
    "reasoning": "以后一直这样做，属于偏好。",
    "write_operations": [
        {
            "memory_data": {
                "memory_type": "preferences",
                "fields": {"topic": "茶叶存放", "content": "龙井密封后放冰箱冷藏，取出回到室温再打开。"},
            }
        }
    ],
}
