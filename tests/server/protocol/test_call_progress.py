"""``notifications/progress``: what a client with a token hears of the real server, in both eras, and when it ends."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.from_thread import BlockingPortal
from mcp import Client
from mcp.types import CallToolResult, CreateMessageRequestParams, CreateMessageResult, TextContent

from memory_core.core.config import MaintenanceConfig
from memory_core.core.errors import StorageFailed
from memory_core.core.index.encoder import BackgroundModel
from memory_core.core.progress import listening
from memory_core.core.store.locks import store_lock
from memory_core.runebook import open_memory
from server.protocol.app import build_server
from tests.server.conftest import ERAS, Caller, Connect, Era, RawClient, StartHttp
from tests.stores import words_only
from tests.waiting import soon

TALK = [{"role": "user", "content": "From now on I only drink green tea. 我住在大阪。"}]
TEA = "viking://user/default/memories/preferences/Tea.md"
LOOK = json.dumps({"actions": [{"action_type": "tree", "params": {"uri": "viking://user/default/memories"}}]})
PREFERENCE = {"memory_data": {"memory_type": "preferences", "fields": {"topic": "Tea", "content": "Only green."}}}
ANSWER = json.dumps({"reasoning": "a preference", "operations": {"write_operations": [PREFERENCE]}})
Heard = list[tuple[float, str]]


@pytest.fixture
def caller(portal: BlockingPortal, tmp_path: Path) -> Iterator[Caller]:
    """A client of a server in this process; the SDK's short way there passes no tokens since 2026-07-28."""
    config = words_only(tmp_path / "home", maintenance=MaintenanceConfig(automatic="off"))
    client = Client(build_server(lambda: open_memory(config)), mode="legacy")
    with portal.wrap_async_context_manager(client) as connected:
        yield Caller(portal, connected)


def told(
    caller: Caller, tool: str, arguments: dict[str, Any], hears: Callable[[str], None] = lambda _message: None
) -> tuple[CallToolResult, Heard]:
    """The call's answer, and what its client was told before it."""
    heard: Heard = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        assert total is None
        heard.append((progress, message or ""))
        hears(message or "")

    async def called() -> tuple[CallToolResult, Heard]:
        with anyio.fail_after(60):
            answer = await caller.client.call_tool(tool, arguments, progress_callback=listen)
        assert isinstance(answer, CallToolResult)
        before = list(heard)
        await caller.client.list_tools()  # whatever was sent after the answer has arrived by now
        assert heard == before
        return answer, before

    return caller.portal.call(called)


@contextmanager
def written_by_another(home: Path, *, until: threading.Event) -> Iterator[None]:
    """Somebody holds the store's lock."""
    held = threading.Event()

    def hold() -> None:
        with store_lock(home / ".state").held():
            held.set()
            until.wait(60)

    writer = threading.Thread(target=hold)
    writer.start()
    held.wait(60)
    try:
        yield
    finally:
        until.set()
        writer.join()


def rises(heard: Heard) -> bool:
    figures = [figure for figure, _ in heard]
    return all(one < next_one for one, next_one in pairwise(figures))


@ERAS
def test_extraction_with_the_clients_model_is_told_step_by_step(connect: Connect, tmp_path: Path, era: Era) -> None:
    answers = [LOOK, ANSWER]
    asked: list[CreateMessageRequestParams] = []

    async def model(_context: Any, request: CreateMessageRequestParams) -> CreateMessageResult:
        asked.append(request)
        text = TextContent(type="text", text=answers.pop(0))
        return CreateMessageResult(role="assistant", content=text, model="scripted", stop_reason="endTurn")

    with connect(tmp_path / "home", era, "--set", "llm.provider=sampling", sampling_callback=model) as caller:
        answer, heard = told(caller, "commit_memory", {"messages": TALK, "session_id": "s1"})
    receipt = answer.structured_content or {}
    assert receipt["status"] == "committed"
    assert TEA in [line["uri"] for line in receipt["results"] if line["action"] == "created"]
    assert (len(asked), receipt["usage"]["model_requests"]) == (2, 2)
    assert "JSON" in (asked[0].system_prompt or "")
    messages = [message for _, message in heard if message != "the client's model answered"]
    assert messages == [
        "the conversation is stored",
        "waiting for the model, request 1 of at most 5",
        "waiting for the model, request 2 of at most 5",
        "the model's answer was applied, 1 files changed",
    ]
    assert rises(heard)


@pytest.mark.parametrize(("transport", "era"), [("stdio", "legacy"), ("stdio", "auto"), ("http", "auto")])
def test_commit_that_waits_for_another_writer_says_so(
    connect: Connect, tmp_path: Path, start_http: StartHttp, transport: str, era: Era
) -> None:
    home = tmp_path / "home"
    with connect(home if transport == "stdio" else f"{start_http().origin}/mcp", era) as caller:
        caller.facts("commit_memory", memory_content="绿茶", memory_type="notes")
        told_once = threading.Event()
        with written_by_another(home, until=told_once):
            ask = {"memory_content": "乌龙茶 oolong"}
            answer, heard = told(caller, "commit_memory", ask, lambda _message: told_once.set())
    assert not answer.is_error
    assert heard == [(1.0, "waiting for another writer of the store")]


def test_a_call_in_which_nothing_moves_is_heard_of_again_and_again(
    caller: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.protocol.call_progress._SILENT_SECONDS", 0.05)
    heard_enough = threading.Event()
    messages: list[str] = []

    def hear(message: str) -> None:
        messages.append(message)
        if messages.count("waiting for another writer of the store") == 3:
            heard_enough.set()

    with written_by_another(tmp_path / "home", until=heard_enough):
        answer, heard = told(caller, "commit_memory", {"memory_content": "龙井 longjing"}, hear)
    assert not answer.is_error
    assert heard_enough.is_set()
    assert rises(heard)


def test_many_operations_are_told_of_and_the_figure_rises(caller: Caller) -> None:
    writes = [
        {"memory_data": {"memory_type": "notes", "fields": {"title": f"Note {number} 笔记", "content": f"{number}"}}}
        for number in range(120)
    ]
    answer, heard = told(caller, "commit_memory", {"operations": {"write_operations": writes}})
    assert not answer.is_error
    assert "the commit is recorded" in " ".join(message for _, message in heard)
    assert rises(heard)


def test_quick_calls_tell_nothing(caller: Caller) -> None:
    for tool, arguments in (
        ("commit_memory", {"memory_content": "茶 tea"}),
        ("find", {"query": "茶"}),
        ("ls", {"uri": "viking://user"}),
        ("read", {"uri": "viking://nowhere"}),
        ("find", {"no": "such argument"}),
    ):
        assert told(caller, tool, arguments)[1] == []


def test_who_waits_for_a_model_is_told_that_it_is_being_loaded() -> None:
    may_load = threading.Event()
    heard: list[str] = []

    def load() -> str:
        may_load.wait(60)
        return "模型"

    def hear(stage: object) -> None:
        heard.append(str(stage))
        may_load.set()

    model = BackgroundModel(load)
    with listening(hear):
        assert model.ready(15.0)
        assert model.ready(15.0)
    assert heard == ["the model is being loaded"]


def test_call_without_a_token_is_told_nothing_and_a_cancelled_one_nothing_more(
    tmp_path: Path, raw_client: type[RawClient]
) -> None:
    home = tmp_path / "home"
    with raw_client(home) as raw:
        raw.call("commit_memory", memory_content="绿茶")
        with store_lock(home / ".state").held():
            ask = {"name": "commit_memory", "arguments": {"memory_content": "红茶 black tea"}}
            raw.write({"jsonrpc": "2.0", "id": "untold", "method": "tools/call", "params": ask})
            talk = {"messages": [{"role": "user", "content": "白茶 white tea"}], "session_id": "s1"}
            told_of = {"name": "commit_memory", "arguments": talk, "_meta": {"progressToken": "t1"}}
            raw.write({"jsonrpc": "2.0", "id": "told", "method": "tools/call", "params": told_of})
            first = raw.answer()
            assert first["method"] == "notifications/progress"
            assert first["params"]["progressToken"] == "t1"
            cancelled = {"requestId": "told", "reason": "用户取消"}
            raw.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled})
            raw.request("ping")  # the next line is its answer: nothing came between
        assert raw.answer()["id"] == "untold"
        # What was begun is brought to its end, and told to nobody: every line from here on is an answer to a search.
        assert soon(lambda: raw.call("find", query="white 白茶")["structuredContent"]["total"] > 0)
        raw.request("ping")


def test_a_crash_of_a_call_that_is_told_of_stays_the_answer_it_was(portal: BlockingPortal) -> None:
    def broken() -> Any:
        if isinstance(threading.current_thread(), threading.Timer):  # opening it ahead of the first call
            raise StorageFailed("not now", hint="Wait.")
        raise ZeroDivisionError("秘密 secret")

    with portal.wrap_async_context_manager(Client(build_server(broken), mode="legacy")) as connected:
        caller = Caller(portal, connected)
        with_token, _ = told(caller, "find", {"query": "茶"})
        without = caller.call("find", query="茶")
    assert with_token.is_error
    assert with_token.content == without.content
    assert "secret" not in str(with_token.content)
