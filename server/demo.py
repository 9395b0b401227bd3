"""``runebook demo``: a short story on a fresh store, told by real servers over stdio and the SDK's client.

Two clients with a server process each share one store; one asks in the language that the other did not write in. A
memory is corrected, the correction is undone, and a server is killed between two commits.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult, Implementation, TextContent

from memory_core.core.errors import InvalidInput

#: What is remembered and asked. ``answer`` is what a model makes of the conversation; there is none, so it is played.
_SCRIPT = Path(__file__).with_suffix(".json")
#: Commits that are acknowledged before the kill, and those that are sent.
_ACKNOWLEDGED, _SENT = 12, 20
_NOTES = "viking://user/default/memories/notes"


def run(*, keep: bool, home: Path | None, options: Sequence[str] = ()) -> int:
    """Tell the story; the folder is removed unless ``keep`` is set or ``home`` is given.

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
    kept = keep or home is not None
    try:
        anyio.run(_tell, folder, options)
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)
    print(_ending(folder if kept else None))
    return 0


async def _tell(folder: Path, options: Sequence[str]) -> None:
    script = json.loads(_SCRIPT.read_text(encoding="utf-8"))
    async with _client(folder, options, "claude-code") as first, _client(folder, options, "cursor") as second:
        _title("1. Monday, in one client", "Mei tells her agent about her work, in English and Chinese.")
        for memory in script["memories"]:
            _results(await _call(first, "commit_memory", memory))
            if "memory_content" in memory:
                print(f"             {memory['memory_content']}")
        _title(
            "2. A conversation becomes memories", "It is kept word for word; the client's own model reads it. No key."
        )
        receipt = await _call(first, "commit_memory", {"messages": script["conversation"], "brief": True})
        _results(receipt)
        session = receipt["results"][0]["uri"].split("/")[-2]
        _results(await _call(first, "commit_memory", {"operations": script["answer"], "session_id": session}))

        _title("3. Tuesday, in another client", "It asks in the other language too; what nobody said is not found.")
        for question in script["questions"]:
            await _ask(second, question)

        _title("4. A correction", "The second client edits one line of the memory; history says who and what.")
        corrected = await _call(second, "commit_memory", {"operations": script["correction"]})
        _results(corrected)
        await _ask(first, script["owner"])
        history = await _text(first, "read", {"uri": script["corrected"].replace("viking://", "viking://history/", 1)})
        told = [line for line in history.splitlines() if line.startswith(("2", "-", "+"))]
        print(_indented("\n".join(told[:3])))

        _title("5. An undo", "The correction was about another system: the first client takes it back.")
        _results(await _call(first, "commit_memory", {"undo": corrected["commit_id"]}))
        await _ask(second, script["owner"])

        _title("6. The next session begins", "retrieve packs what matters for the task into 400 tokens.")
        query = {"query": script["task"], "token_budget": 400, "format": "text"}
        print(_indented(await _text(first, "retrieve", query)))

        _title("7. A memory is a file", "Open it, change it, keep it under version control.")
        print(_indented(await _text(first, "read", {"uri": script["file"]})))

    _title("8. kill -9", "A server is killed while it commits; another one opens the store.")
    acknowledged = _killed(folder, options)
    print(f"  {len(acknowledged)} commits were acknowledged, the next was on its way: killed.")
    async with _client(folder, options, "claude-code") as third:
        listed = await _call(third, "ls", {"uri": _NOTES})
    there = {entry["uri"] for entry in listed["entries"]}
    print(f"  A new server finds {len(acknowledged & there)} of {len(acknowledged)}.")


def _command(folder: Path, options: Sequence[str]) -> list[str]:
    # -P: not the caller's own "server"
    return [sys.executable, "-P", "-m", "server.cli", "serve", "--home", str(folder), *options]


@asynccontextmanager
async def _client(folder: Path, options: Sequence[str], name: str) -> AsyncIterator[Client]:
    command, *arguments = _command(folder, options)
    parameters = StdioServerParameters(command=command, args=arguments)
    async with Client(parameters, mode="legacy", client_info=Implementation(name=name, version="demo")) as client:
        yield client


def _killed(folder: Path, options: Sequence[str]) -> set[str]:
    """URIs of commits that a server acknowledged before it was killed in the next."""
    server = subprocess.Popen(
        _command(folder, options),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
    )
    assert server.stdin is not None
    assert server.stdout is not None
    acknowledged: set[str] = set()
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "demo", "version": "1"}}
    requests: list[dict[str, Any]] = [
        {"id": 0, "method": "initialize", "params": about},
        {"method": "notifications/initialized"},
    ]
    for number in range(1, _SENT + 1):
        note = {"memory_content": f"Checkpoint {number} is passed.", "fields": {"title": f"Checkpoint {number}"}}
        requests.append({"id": number, "method": "tools/call", "params": {"name": "commit_memory", "arguments": note}})
    with server:
        for request in requests:
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **request}) + "\n")
            server.stdin.flush()
            if len(acknowledged) == _ACKNOWLEDGED:
                break
            if "id" in request and (result := _answer(server.stdout, request["id"])).get("structuredContent"):
                acknowledged.add(result["structuredContent"]["results"][0]["uri"])
        server.kill()
    return acknowledged


def _answer(lines: Any, request_id: Any) -> dict[str, Any]:
    """The result with this id; notifications before it are passed over."""
    for line in lines:
        message = json.loads(line)
        if message.get("id") == request_id and "method" not in message:
            return dict(message.get("result", {}))
    return {}


async def _call(client: Client, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    answer = await client.call_tool(tool, arguments)
    assert isinstance(answer, CallToolResult)
    return answer.structured_content or {"results": [{"action": "error", "uri": _first_text(answer)}]}


async def _ask(client: Client, question: str) -> None:
    found = await _call(client, "find", {"query": question, "limit": 3})
    hits = [*found["memories"], *found["skills"], *found["resources"]]
    best = max(hits, key=lambda hit: hit["score"]) if hits else None
    print(f"  ? {question}")
    print("    nothing relevant is stored" if best is None else f"    {best['abstract']}\n      {best['uri']}")


async def _text(client: Client, tool: str, arguments: dict[str, Any]) -> str:
    answer = await client.call_tool(tool, arguments)
    assert isinstance(answer, CallToolResult)
    return _first_text(answer)


def _first_text(answer: CallToolResult) -> str:
    return next((block.text for block in answer.content if isinstance(block, TextContent)), "")


def _results(receipt: dict[str, Any]) -> None:
    for result in receipt["results"]:
        print(f"  {result['action']:<10} {result['uri']}")


def _title(text: str, about: str) -> None:
    print(f"\n{text}\n  {about}\n")


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.rstrip().splitlines())


def _ending(folder: Path | None) -> str:
    """What a person does next: lines that can be pasted as they are."""
    program = shutil.which("runebook") or str(Path(sys.executable).with_name("runebook"))
    entry = {"mcpServers": {"runebook": {"command": program, "args": ["serve"]}}}
    words = shlex.quote(program)
    lines = [
        *("", "Your turn. These lines can be pasted:", ""),
        f"    {words} init      # set up your hosts, import what is there; it asks first",
        f"    {words} ui        # your memories in a browser",
    ]
    if folder is not None:
        place = f"--home {shlex.quote(str(folder))}"
        lines += [
            f"    {words} find 'payment system' {place}",
            f"    {words} history {place}",
        ]
    return "\n".join(
        [*lines, "", "By hand, most clients take this in their MCP settings:", "", json.dumps(entry, indent=2)]
    )
