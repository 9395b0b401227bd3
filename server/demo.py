"""``runebook demo``: a real server over stdio in a fresh folder, used as a client would use it."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult, TextContent

from memory_core.core.errors import InvalidInput

_MEMORIES: tuple[dict[str, Any], ...] = (
    {
        "memory_type": "profile",
        "memory_content": "Mei is a backend engineer in Chengdu. She maintains a payment gateway and writes Python.",
    },
    {
        "memory_type": "preferences",
        "fields": {"topic": "Python code style"},
        "memory_content": "Wants type hints on public functions, no comments that repeat the code.",
    },
    {
        "memory_type": "entities",
        "fields": {"entity_name": "支付系统", "entity_type": "system"},
        "memory_content": "支付系统部署在两个机房，每天凌晨三点对账，负责人是陈磊。",
    },
    {
        "memory_type": "events",
        "fields": {"event_name": "Moved to PostgreSQL 18", "event_time": "2026-03-17"},
        "memory_content": "The payment database moved from MySQL to PostgreSQL 18 because of logical replication.",
    },
    {
        "memory_type": "cases",
        "fields": {
            "case_name": "Webhook delivered twice → Store the event id",
            "problem": "The bank repeats webhooks after a timeout, and orders were booked twice.",
            "solution": "Keep every event id for 30 days under a unique index and answer 200 to a repeat.",
        },
    },
    {
        "memory_type": "patterns",
        "fields": {"pattern_name": "Schema change: Expand→Backfill→Switch→Contract"},
        "memory_content": "When a table is in use, add the new column, backfill in batches, switch reads, then drop.",
    },
    {
        "memory_type": "tools",
        "fields": {
            "tool_name": "web_search",
            "total_calls": 100,
            "success_count": 92,
            "fail_count": 8,
            "total_time_ms": 120000,
            "total_tokens": 150000,
            "best_for": "Documentation and release notes",
        },
    },
    {
        "memory_type": "skills",
        "fields": {
            "skill_name": "create_presentation",
            "total_executions": 4,
            "success_count": 3,
            "fail_count": 1,
            "recommended_flow": "Ask for the audience → outline → slides → one round of corrections",
        },
    },
)
_CONVERSATION = (
    {"role": "user", "name": "Mei", "content": "We fly to Osaka on 2 May.", "time": "2026-04-11T09:30:00+08:00"},
    {
        "role": "assistant",
        "content": "Noted. Shall I look for a hotel near Namba?",
        "time": "2026-04-11T09:30:20+08:00",
    },
    {
        "role": "user",
        "name": "Mei",
        "content": "Yes, but my father walks badly, so close to a station.",
        "time": "2026-04-11T09:31:05+08:00",
    },
)
#: What a model makes of that conversation; the demonstration has none and plays its part.
_ANSWER = {
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
            }
        },
    ],
}
_QUESTIONS = (
    "Which database do payments run on, and since when?",
    "谁负责支付系统？",
    "how should her Python look?",
    "Why must the hotel be near a station?",
)


def run(*, keep: bool, home: Path | None, options: Sequence[str] = ()) -> int:
    """Show the tools at work; the folder is removed unless ``keep`` is set or ``home`` is given.

    Args:
        keep: Leave the temporary folder.
        home: A new or empty folder to use instead.
        options: Further options of the server.

    Raises:
        InvalidInput: If ``home`` holds something: example memories do not belong among real ones.
    """
    if home is not None and home.exists() and any(home.iterdir()):
        raise InvalidInput(f"{home} is not empty.", hint="Name a new folder, or leave --home out.")
    folder = home or Path(tempfile.mkdtemp(prefix="runebook-demo-"))
    try:
        anyio.run(_show, folder, options)
        if keep or home is not None:
            print(f"\nThe memories are Markdown files in {folder}. Open one, change it, and ask again.")
    finally:
        if not keep and home is None:
            shutil.rmtree(folder, ignore_errors=True)
    print(_PLUG_IN.format(config=json.dumps(_client_config(), indent=2)))
    return 0


async def _show(folder: Path, options: Sequence[str]) -> None:
    async with _client(folder, options) as client:
        _title("1. Remember", "commit_memory, once for each of the eight types, then a conversation")
        for memory in _MEMORIES:
            receipt = await _call(client, "commit_memory", memory)
            print(f"  {receipt['status']:<10} {receipt['results'][0]['uri']}")
        receipt = await _call(client, "commit_memory", {"messages": list(_CONVERSATION)})
        print(
            f"  {receipt['status']:<10} {receipt['results'][0]['uri']}  ({receipt['usage']['messages_new']} messages)"
        )

        _title("2. Let a conversation become memories", "the receipt briefs the client's own model; no key is needed")
        session = receipt["results"][0]["uri"].split("/")[-2]
        brief = receipt.get("brief", "").splitlines()
        print(_indented("\n".join([*brief[:2], f"… {len(brief)} lines: rules, types, JSON schema, what is stored"])))
        receipt = await _call(client, "commit_memory", {"operations": _ANSWER, "session_id": session})
        for line in receipt["results"]:
            print(f"  {line['action']:<10} {line['uri']}")

        _title("3. Find", "by meaning and by words, in English, in Chinese, and across the two")
        for question in _QUESTIONS:
            found = await _call(client, "find", {"query": question, "limit": 3})
            hits = [*found["memories"], *found["skills"], *found["resources"]]
            best = max(hits, key=lambda hit: hit["score"]) if hits else None
            print(f"  {question}")
            if best is None:
                print(f"    nothing: {' '.join(found.get('notes', []))}")
                continue
            why = ", ".join(f"{name} {value:.2f}" for name, value in best["why"].items())
            print(f"    {best['score']:.2f}  {best['abstract']}\n          {best['uri']}  ({why})")

        _title("4. Read", "a tool memory: the averages are derived, the file is yours")
        print(_indented(await _text(client, "read", {"uri": "viking://agent/default/memories/tools/web_search.md"})))

        _title("5. See what is there", "tree")
        print(_indented(await _text(client, "tree", {"level_limit": 5, "abs_limit": 60})))

        _title("6. Context for the next task", "retrieve, packed into 600 tokens")
        query = {"query": "plan the Osaka trip", "token_budget": 600, "format": "text"}
        print(_indented(await _text(client, "retrieve", query)))


@asynccontextmanager
async def _client(folder: Path, options: Sequence[str]) -> AsyncIterator[Client]:
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "server.cli", "serve", "--home", str(folder), *options],  # -P: not the caller's own "server"
    )
    async with Client(parameters, mode="legacy") as client:
        yield client


async def _call(client: Client, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    answer = await client.call_tool(tool, arguments)
    assert isinstance(answer, CallToolResult)
    return answer.structured_content or {"status": "error", "results": [{"uri": _first_text(answer)}]}


async def _text(client: Client, tool: str, arguments: dict[str, Any]) -> str:
    answer = await client.call_tool(tool, arguments)
    assert isinstance(answer, CallToolResult)
    return _first_text(answer)


def _first_text(answer: CallToolResult) -> str:
    return next((block.text for block in answer.content if isinstance(block, TextContent)), "")


def _title(text: str, about: str) -> None:
    print(f"\n{text}\n  {about}\n")


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.rstrip().splitlines())


def _client_config() -> dict[str, Any]:
    command = shutil.which("runebook") or str(Path(sys.executable).with_name("runebook"))
    return {"mcpServers": {"runebook": {"command": command, "args": ["serve"]}}}


_PLUG_IN = """
Plug it in
  Claude Desktop, Cursor and most clients take this in their MCP settings:

{config}

  Claude Code:  claude mcp add runebook -- runebook serve
  Memories will live in ~/.runebook. On the command line: runebook --help
"""
