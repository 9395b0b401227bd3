"""Calls tools as one client library does, and writes down what a model would be given; run by that library's Python.

    python client_calls.py LIBRARY CALLS ANSWERS PROGRAM ARGUMENT…

CALLS is a JSON list of {tool, arguments}; ANSWERS becomes a list of {error, given}, one for each. Imports nothing of
this project: the libraries bring versions of their own.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

Calls = Sequence[dict[str, Any]]
Answers = list[dict[str, Any]]


async def python_sdk(command: Sequence[str], calls: Calls) -> Answers:
    """The Python SDK's session, of the era that begins with ``initialize``."""
    mcp, stdio = import_module("mcp"), import_module("mcp.client.stdio")
    target = mcp.StdioServerParameters(command=command[0], args=list(command[1:]))
    found: Answers = []
    async with stdio.stdio_client(target) as (read, write), mcp.ClientSession(read, write) as session:
        await session.initialize()
        for call in calls:
            answer = await session.call_tool(call["tool"], call["arguments"])
            found.append({"error": answer.is_error, "given": answer.structured_content})
    return found


async def fastmcp(command: Sequence[str], calls: Calls) -> Answers:
    """The client of the package ``fastmcp``."""
    package, transports = import_module("fastmcp"), import_module("fastmcp.client.transports")
    found: Answers = []
    async with package.Client(transports.StdioTransport(command[0], list(command[1:]))) as client:
        for call in calls:
            answer = await client.call_tool(call["tool"], call["arguments"], raise_on_error=False)
            found.append({"error": answer.is_error, "given": answer.structured_content})
    return found


async def openai_agents(command: Sequence[str], calls: Calls) -> Answers:
    """Tools as an agent of ``openai-agents`` has them: made strict, and called with JSON."""
    agents, mcp = import_module("agents"), import_module("agents.mcp")
    found: Answers = []
    for structured in (False, True):
        given = {"command": command[0], "args": list(command[1:])}
        async with mcp.MCPServerStdio(
            given, client_session_timeout_seconds=60, use_structured_content=structured
        ) as server:
            tools = {tool.name: tool for tool in await server.list_tools()}
            for tool in tools.values():
                function = mcp.MCPUtil.to_function_tool(tool, server, convert_schemas_to_strict=True)
                assert function.strict_json_schema, f"{tool.name} was not made strict"
            for call in calls:
                context, sent = agents.RunContextWrapper(None), json.dumps(call["arguments"])
                answer = await mcp.MCPUtil.invoke_mcp_tool(server, tools[call["tool"]], context, sent)
                answers = answer if isinstance(answer, list) else [answer]
                texts = [each["text"] if isinstance(each, dict) else each for each in answers]
                shown = "\n".join(texts)
                found.append({"error": False, "given": json.loads(shown) if structured else shown})
    return found


async def pydantic_ai(command: Sequence[str], calls: Calls) -> Answers:
    """The toolset of ``pydantic-ai``, which gives a model what is structured."""
    transports, mcp = import_module("fastmcp.client.transports"), import_module("pydantic_ai.mcp")
    found: Answers = []
    toolset = mcp.MCPToolset(transports.StdioTransport(command[0], list(command[1:])), tool_error_behavior="error")
    async with toolset:
        for call in calls:
            found.append({"error": False, "given": await toolset.direct_call_tool(call["tool"], call["arguments"])})
    return found


LIBRARIES = {"mcp": python_sdk, "fastmcp": fastmcp, "openai-agents": openai_agents, "pydantic-ai": pydantic_ai}


if __name__ == "__main__":
    library, sent, answered, *program = sys.argv[1:]
    answers = asyncio.run(LIBRARIES[library](program, json.loads(Path(sent).read_text(encoding="utf-8"))))
    Path(answered).write_text(json.dumps(answers, ensure_ascii=False), encoding="utf-8")
