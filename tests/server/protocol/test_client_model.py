"""The real server with ``llm.provider=sampling``: the client's model extracts, in both eras; else it is briefed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcp.types import CreateMessageRequestParams, CreateMessageResult, TextContent

from tests.server.conftest import ERAS, Connect, Era

TALK = [{"role": "user", "content": "From now on I only drink green tea. 我住在大阪。"}]
Model = Callable[[CreateMessageRequestParams], str]


def receipt(connect: Connect, home: Path, era: Era, model: Model | None) -> dict[str, Any]:
    """The receipt of a conversation that a client with this model commits."""

    async def answered(_context: Any, asked: CreateMessageRequestParams) -> CreateMessageResult:
        assert model is not None
        text = TextContent(type="text", text=model(asked))
        return CreateMessageResult(role="assistant", content=text, model="scripted", stop_reason="endTurn")

    callback = None if model is None else answered
    with connect(home, era, "--set", "llm.provider=sampling", sampling_callback=callback) as client:
        return client.facts("commit_memory", messages=TALK, session_id="s1")


@ERAS
def test_a_client_without_a_model_is_offered_a_brief(connect: Connect, tmp_path: Path, era: Era) -> None:
    found = receipt(connect, tmp_path / "home", era, None)
    assert found["status"] == "queued"
    assert "brief" not in found
    (hint,) = [result["hint"] for result in found["results"] if "hint" in result]
    assert 'commit_memory(brief=true, session_id="s1")' in hint


@ERAS
def test_a_model_that_talks_instead_leaves_the_conversation_waiting(connect: Connect, tmp_path: Path, era: Era) -> None:
    found = receipt(connect, tmp_path / "home", era, lambda _request: "What a lovely conversation!")
    assert found["status"] == "queued"
    (line,) = [line for line in found["results"] if line["op"] == "extraction"]
    assert "JSON" in line["note"]
