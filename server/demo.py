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

#: What is remembered and asked. ``answer`` is what a model makes of the conversation; there is none, so it is played.
_SCRIPT = Path(__file__).with_suffix(".json")


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
    script = json.loads(_SCRIPT.read_text(encoding="utf-8"))
    async with _client(folder, options) as client:
        _title("1. Remember", "commit_memory, once for each of the eight types, then a conversation")
        for memory in script["memories"]:
            receipt = await _call(client, "commit_memory", memory)
            print(f"  {receipt['status']:<10} {receipt['results'][0]['uri']}")
        receipt = await _call(client, "commit_memory", {"messages": script["conversation"], "brief": True})
        print(
            f"  {receipt['status']:<10} {receipt['results'][0]['uri']}  ({receipt['usage']['messages_new']} messages)"
        )

        _title("2. Let a conversation become memories", "the receipt briefs the client's own model; no key is needed")
        session = receipt["results"][0]["uri"].split("/")[-2]
        brief = receipt.get("brief", "").splitlines()
        print(_indented("\n".join([*brief[:2], f"… {len(brief)} lines: rules, types, how to hand in, what is stored"])))
        receipt = await _call(client, "commit_memory", {"operations": script["answer"], "session_id": session})
        for line in receipt["results"]:
            print(f"  {line['action']:<10} {line['uri']}")

        _title("3. Find", "by meaning and by words, in English, in Chinese, and across the two")
        for question in script["questions"]:
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
