"""A small server for the tests of the wire: tools that misbehave in every way a tool can.

Run as ``python probe_server.py EVIDENCE``; writes to EVIDENCE how far it came on its way out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import CallToolResult, SamplingMessage, TextContent

from server.protocol.stdio_pipes import standard_pipes
from server.protocol.stdio_transport import scrub_results, serve_pipe

pipe = standard_pipes()
print("printed while importing")


evidence = Path(sys.argv[1])


@asynccontextmanager
async def lifespan(_: MCPServer[None]) -> AsyncIterator[None]:
    yield
    evidence.write_text("closed", encoding="utf-8", newline="\n")


server = MCPServer("probe", version="1", lifespan=lifespan, middleware=[scrub_results])


@server.tool()
def echo(text: str) -> str:
    return text


@server.tool()
def damaged() -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text="损坏 \ud800")])


@server.tool()
async def damaged_log(ctx: Context[Any]) -> str:
    await ctx.session.send_log_message("info", "log \ud800")
    return "logged"


@server.tool()
def noisy() -> str:
    print("printed by a tool", flush=True)
    os.write(1, b"written to descriptor 1\n")
    child = "import sys; print('child heard', repr(sys.stdin.read()))"
    subprocess.run([sys.executable, "-c", child], check=True)
    return "quiet"


@server.tool()
def slow() -> str:
    time.sleep(0.3)
    return "finished"


@server.tool()
def stuck() -> str:
    print("stuck now", file=sys.stderr, flush=True)
    threading.Event().wait()
    return "never"


@server.tool()
async def ask_client(ctx: Context[Any]) -> str:
    prompt = SamplingMessage(role="user", content=TextContent(type="text", text="hi"))
    answer = await ctx.session.create_message([prompt], max_tokens=5)
    assert isinstance(answer.content, TextContent)
    return answer.content.text


@server.tool()
async def ask_in_vain(ctx: Context[Any]) -> str:
    prompt = SamplingMessage(role="user", content=TextContent(type="text", text="hi"))
    with anyio.move_on_after(0.05):
        await ctx.session.create_message([prompt], max_tokens=5)
    return "asked in vain"


if __name__ == "__main__":
    status = anyio.run(serve_pipe, server, pipe)
    print("printed after serving")
    evidence.write_text("closed, returned", encoding="utf-8", newline="\n")
    sys.exit(status)
