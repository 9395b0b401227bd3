"""Turns at the work, answers that nobody reads, and connections of which nobody knows whose they are."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from server.http.connections import Connections
from server.protocol.turns import (
    _AT_WORK_LIMIT,
    OPEN_LIMIT,
    Answers,
    Share,
    TurnHolder,
    Turns,
    through,
    while_asking,
)
from tests.server.bearers import HEADERS, OPENING, PATIENCE_SECONDS, issue, send
from tests.waiting import in_a_loop, soon

if TYPE_CHECKING:
    from tests.server.conftest import StartHttp

# Turns


def order_of(turns: Turns, asked: list[str]) -> list[str]:
    """In which order clients work, each until the next one may."""

    async def run() -> list[str]:
        order: list[str] = []

        async def work(client: str) -> None:
            turn = await turns.next(client)
            order.append(client)
            await asyncio.sleep(0)
            turn.end()

        await asyncio.gather(*(work(client) for client in asked))
        return order

    return asyncio.run(run())


def test_a_client_that_asks_once_waits_for_one_request_of_each_other() -> None:
    asked = [*["a"] * 50, *["b"] * 50, "quiet"]
    order = order_of(Turns(1, 1), asked)
    assert order.index("quiet") == 3  # behind the one that ran, and one of each
    assert sorted(order) == sorted(asked)


@in_a_loop
async def test_one_client_holds_no_more_than_its_part() -> None:
    turns = Turns(4, 2)
    many = [asyncio.ensure_future(turns.next("many")) for _ in range(10)]
    await asyncio.sleep(0)
    assert sum(each.done() for each in many) == 2
    for client in ("b", "c"):
        await asyncio.wait_for(turns.next(client), PATIENCE_SECONDS)
    for each in many:
        each.cancel()
    await asyncio.gather(*many, return_exceptions=True)


@in_a_loop
async def test_what_takes_long_keeps_neither_others_nor_its_own_client_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.protocol.turns._LONG_SECONDS", 0.01)
    turns = Turns(1, 1)
    asks_a_model = await turns.next("a")
    also = await asyncio.wait_for(turns.next("a"), PATIENCE_SECONDS)
    await asyncio.wait_for(turns.next("b"), PATIENCE_SECONDS)
    monkeypatch.undo()
    for turn in (asks_a_model, also):
        turn.end()  # who left its place gives none back
    await asyncio.wait_for(turns.next("c"), PATIENCE_SECONDS)
    behind = asyncio.ensure_future(turns.next("d"))
    await asyncio.sleep(0)
    assert not behind.done()
    behind.cancel()


@in_a_loop
async def test_of_one_client_only_so_many_that_take_long_are_worked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.protocol.turns._LONG_SECONDS", 0.0)
    turns = Turns(3, 2)
    many = [await asyncio.wait_for(turns.next("many"), PATIENCE_SECONDS) for _ in range(_AT_WORK_LIMIT)]
    behind = asyncio.ensure_future(turns.next("many"))
    (await asyncio.wait_for(turns.next("quiet"), PATIENCE_SECONDS)).end()
    for _ in range(_AT_WORK_LIMIT + 1):
        await asyncio.wait_for(turns.next(""), PATIENCE_SECONDS)  # the owner's are not counted
    assert not behind.done()
    many[0].end()
    (await asyncio.wait_for(behind, PATIENCE_SECONDS)).end()


@in_a_loop
async def test_a_request_that_is_given_up_in_line_takes_no_turn() -> None:
    turns = Turns(1, 1)
    first = await turns.next("a")
    waiting = [asyncio.ensure_future(turns.next(client)) for client in ("b", "c")]
    await asyncio.sleep(0)
    waiting[0].cancel()
    first.end()
    (await asyncio.wait_for(waiting[1], PATIENCE_SECONDS)).end()
    (await asyncio.wait_for(turns.next("b"), PATIENCE_SECONDS)).end()


@in_a_loop
async def test_others_work_while_a_client_is_asked_and_a_request_that_ended_meanwhile_keeps_no_turn() -> None:
    turns = Turns(1, 1)
    share, held = Share(turns, "asked"), TurnHolder()
    await held.take(share)
    with through(Answers(share), held):
        async with while_asking():
            (await asyncio.wait_for(turns.next("other"), PATIENCE_SECONDS)).end()
            held.end()  # its connection is gone
    (await asyncio.wait_for(turns.next("other"), PATIENCE_SECONDS)).end()
    (await asyncio.wait_for(turns.next("asked"), PATIENCE_SECONDS)).end()


# Connections


class Line:
    ended = False

    def end(self) -> None:
        self.ended = True


def test_strangers_push_out_strangers_and_who_holds_most_gives_one_up() -> None:
    connections = Connections(64)
    strangers = [Line() for _ in range(20)]
    for line in strangers:
        connections.opened(line)
    assert [line.ended for line in strangers] == [True] * 4 + [False] * 16
    greedy = [Line() for _ in range(64)]
    assert all(connections.known(line, "greedy") for line in greedy)
    assert not connections.known(Line(), "greedy")
    assert not any(line.ended for line in greedy)
    assert connections.known(Line(), "modest")
    assert [line.ended for line in greedy] == [True] + [False] * 63
    connections.closed(greedy[1])
    assert connections.known(Line(), "greedy")


def test_silent_connections_keep_nobody_out(tmp_path: Path, start_http: StartHttp) -> None:
    token = issue(tmp_path / "home", "anna")
    server = start_http("--set", "http.max_connections=64")
    with ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS))
        for _ in range(5):
            assert send(server, "POST", "/mcp", OPENING, token).status == 200


# Unread answers


def test_a_stream_that_is_not_read_gets_no_more_than_its_part_begun(tmp_path: Path, start_http: StartHttp) -> None:
    token = issue(tmp_path / "home", "anna")
    server = start_http()

    def posted(path: str, body: Any) -> int:
        return send(server, "POST", path, body, token).status

    long = [{"role": "user", "content": f"{index} " + "tea " * 2_000} for index in range(60)]
    opened = send(server, "POST", "/mcp", OPENING, token)
    stored = {"name": "commit_memory", "arguments": {"messages": long, "session_id": "long"}}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": stored}
    session = opened.headers["mcp-session-id"]
    assert not send(server, "POST", "/mcp", call, token, mcp_session_id=session).message()["result"].get("isError")
    fields = "".join(f"{name}: {value}\r\n" for name, value in (HEADERS | {"authorization": f"Bearer {token}"}).items())
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS) as stream:
        stream.sendall(f"GET /sse HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n{fields}\r\n".encode())
        said = b""
        while b"session_id=" not in said:
            said += stream.recv(4096)
        path = "/messages/?session_id=" + said.split(b"session_id=")[1][:32].decode()
        for body in (OPENING, {"jsonrpc": "2.0", "method": "notifications/initialized"}):
            assert posted(path, body) == 202
        asked = {"method": "resources/read", "params": {"uri": "viking://session/anna/long/messages.jsonl"}}
        statuses: list[int] = []
        while 429 not in statuses and len(statuses) < 200:
            statuses.append(posted(path, {"jsonrpc": "2.0", "id": 10 + len(statuses), **asked}))
        begun = statuses.count(202)
        assert 429 in statuses
        assert begun >= OPEN_LIMIT  # what the kernel holds between the two ends counts as read
        answered = 0
        stream.settimeout(PATIENCE_SECONDS)
        rest = b""
        while answered < begun:
            rest += stream.recv(1 << 20)
            *events, rest = rest.split(b"\r\n\r\n")
            answered += sum(b'"contents"' in event[:200] for event in events)
        assert soon(lambda: posted(path, {"jsonrpc": "2.0", "id": 900, "method": "ping"}) == 202)
