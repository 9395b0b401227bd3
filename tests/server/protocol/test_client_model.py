"""The real server with ``llm.provider=sampling``: the client's model extracts, in both eras; else it is briefed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from anyio.from_thread import BlockingPortal
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult, CreateMessageRequestParams, CreateMessageResult, TextContent

from tests.server.conftest import WORDS_ONLY, command, environment

TALK = [{"role": "user", "content": "From now on I only drink green tea. 我住在大阪。"}]
TEA = "viking://user/default/memories/preferences/Tea.md"
LOOK = json.dumps({"actions": [{"action_type": "tree", "params": {"uri": "viking://user/default/memories"}}]})
ANSWER = json.dumps(
    {
        "reasoning": "a preference",
        "operations": {
            "write_operations": [
                {"memory_data": {"memory_type": "preferences", "fields": {"topic": "Tea", "content": "Only green."}}}
            ]
        },
    }
)
Model = Callable[[CreateMessageRequestParams], str]


def receipt(portal: BlockingPortal, home: Path, era: Literal["legacy", "auto"], model: Model | None) -> dict[str, Any]:
    """The receipt of a conversation that a client with this model commits."""

    async def answered(_context: Any, asked: CreateMessageRequestParams) -> CreateMessageResult:
        assert model is not None
        text = TextContent(type="text", text=model(asked))
        return CreateMessageResult(role="assistant", content=text, model="scripted", stop_reason="endTurn")

    async def committed() -> dict[str, Any]:
        program, *arguments = command(home, *WORDS_ONLY, "--set", "llm.provider=sampling")
        parameters = StdioServerParameters(command=program, args=arguments, env=environment())
        callback: Any = None if model is None else answered
        async with Client(parameters, mode=era, sampling_callback=callback) as client:
            with anyio.fail_after(60):
                answer = await client.call_tool("commit_memory", {"messages": TALK, "session_id": "s1"})
            assert isinstance(answer, CallToolResult)
            assert answer.structured_content is not None
            return dict(answer.structured_content)

    return portal.call(committed)


@pytest.mark.parametrize("era", ["legacy", "auto"])
def test_the_clients_model_reads_and_then_extracts(
    portal: BlockingPortal, tmp_path: Path, era: Literal["legacy", "auto"]
) -> None:
    asked: list[CreateMessageRequestParams] = []

    def model(request: CreateMessageRequestParams) -> str:
        asked.append(request)
        return LOOK if len(asked) == 1 else ANSWER

    found = receipt(portal, tmp_path / "home", era, model)
    assert found["status"] == "committed"
    assert TEA in [line["uri"] for line in found["results"] if line["action"] == "created"]
    assert (len(asked), found["usage"]["model_requests"]) == (2, 2)
    assert "JSON" in (asked[0].system_prompt or "")


@pytest.mark.parametrize("era", ["legacy", "auto"])
def test_a_client_without_a_model_is_offered_a_brief(
    portal: BlockingPortal, tmp_path: Path, era: Literal["legacy", "auto"]
) -> None:
    found = receipt(portal, tmp_path / "home", era, None)
    assert found["status"] == "queued"
    assert "brief" not in found
    (hint,) = [result["hint"] for result in found["results"] if "hint" in result]
    assert 'commit_memory(brief=true, session_id="s1")' in hint


@pytest.mark.parametrize("era", ["legacy", "auto"])
def test_a_model_that_talks_instead_leaves_the_conversation_waiting(
    portal: BlockingPortal, tmp_path: Path, era: Literal["legacy", "auto"]
) -> None:
    found = receipt(portal, tmp_path / "home", era, lambda _request: "What a lovely conversation!")
    assert found["status"] == "queued"
    (line,) = [line for line in found["results"] if line["op"] == "extraction"]
    assert "JSON" in line["note"]
