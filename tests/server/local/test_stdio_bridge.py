"""What a bridge remembers of a conversation, and how it goes on with it at another server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from server.local.channel import Channel
from server.local.channel_requests import Listener
from server.local.shared_server import LOCAL, place_of
from server.local.stdio_bridge import Bridge, Conversation
from server.protocol.stdio_pipes import GOODBYE
from tests.waiting import PATIENCE_SECONDS

HANDSHAKE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def line(message: Any) -> bytes:
    return json.dumps(message, ensure_ascii=False).encode()


def read(raw: bytes | None) -> Any:
    assert raw is not None
    return json.loads(raw)


def request(number: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def call(number: Any, tool: str = "find", **arguments: Any) -> dict[str, Any]:
    return request(number, "tools/call", name=tool, arguments=arguments)


def result(number: Any, **content: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "result": content}


def cancelled(number: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}


@pytest.fixture
def greeted() -> Conversation:
    conversation = Conversation()
    conversation.from_host(line(HANDSHAKE))
    conversation.from_server(line(result(1)))
    conversation.from_host(line(READY))
    return conversation


def test_lines_pass_unchanged_whether_they_can_be_read_or_not() -> None:
    conversation = Conversation()
    damaged = (b"{not json", b'{"id": "\xff"}', b'{"id": 7}', b"[" * 100_000, b"[1, 2]", b"12")
    for from_host, from_server in ((line(call(7, query="渡轮")), line(result(7))), *zip(damaged, damaged, strict=True)):
        assert conversation.from_host(from_host) == from_host
        assert conversation.from_server(from_server) == from_server


def test_calls_under_way_fail_with_what_to_do_and_what_changes_nothing_is_asked_again(greeted: Conversation) -> None:
    listing = line(request(2, "tools/list"))
    for open_line in (line(call("七", "commit_memory")), line(call(8)), line(call(9)), listing, line(cancelled(9))):
        greeted.from_host(open_line)
    greeted.from_server(line(result(8)))
    lost = greeted.lost()
    (answer,) = map(read, lost.answers)
    assert answer["id"] == "七"
    assert "send the same call again" in answer["error"]["message"]
    assert lost.again == [listing]
    assert greeted.owes
    greeted.from_server(line(result(2)))
    assert not greeted.owes
    assert greeted.lost() == ([], [])


def test_the_next_server_is_told_what_the_first_one_was_and_its_answer_goes_to_nobody(greeted: Conversation) -> None:
    greeted.lost()
    handshake, ready = map(read, greeted.greeting())
    assert handshake == {**HANDSHAKE, "id": handshake["id"]}
    assert handshake["id"] != 1  # the host may use it for another request by now
    assert ready == READY
    assert greeted.from_server(line(result(handshake["id"]))) is None


def test_a_handshake_that_was_not_answered_yet_is_answered_by_the_next_server() -> None:
    conversation = Conversation()
    conversation.from_host(line(HANDSHAKE))
    assert conversation.lost() == ([], [])
    assert conversation.greeting() == [line(HANDSHAKE)]
    assert conversation.from_server(line(result(1))) == line(result(1))


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (HANDSHAKE, {"jsonrpc": "2.0", "id": 1, "error": {"code": -32022, "message": "modern"}}),
        (request(1, "server/discover"), result(1)),
    ],
    ids=["refused", "modern"],
)
def test_a_client_without_a_handshake_greets_nobody(message: dict[str, Any], answer: dict[str, Any]) -> None:
    conversation = Conversation()
    conversation.from_host(line(message))
    conversation.from_server(line(answer))
    conversation.lost()
    assert conversation.greeting() == []


@pytest.mark.parametrize(
    ("answer", "known"), [({}, True), ({"isError": True}, False), ({"isError": False}, True)], ids=str
)
def test_private_mode_is_known_once_it_was_switched(greeted: Conversation, answer: dict[str, Any], known: bool) -> None:
    greeted.from_host(line(call(2, "commit_memory", private_mode=True)))
    assert not greeted.private
    greeted.from_server(line(result(2, **answer)))
    assert greeted.private is known
    greeted.from_host(line(call(3, "commit_memory", private_mode=False)))
    greeted.from_server(line(result(3)))
    assert not greeted.private


@pytest.mark.parametrize(("on", "off"), [("true", "false"), (1, 0), ("ON", "off")], ids=str)
def test_private_mode_is_known_however_the_switch_is_spelled(greeted: Conversation, on: object, off: object) -> None:
    for number, (switch, known) in enumerate(((on, True), ("perhaps", True), (None, True), (off, False)), start=2):
        greeted.from_host(line(call(number, "commit_memory", private_mode=switch)))
        greeted.from_server(line(result(number)))
        assert greeted.private is known


def test_a_call_that_was_taken_back_switches_nothing(greeted: Conversation) -> None:
    greeted.from_host(line(call(2, "commit_memory", private_mode=True)))
    greeted.from_host(line(cancelled(2)))
    greeted.from_host(line(request(2, "tools/list")))
    greeted.from_server(line(result(2)))
    assert not greeted.private


def test_questions_of_one_server_are_not_answered_to_another(greeted: Conversation) -> None:
    question = request(0, "roots/list")
    first = read(greeted.from_server(line(question)))
    assert read(greeted.from_host(line(result(first["id"], roots=["a"])))) == result(0, roots=["a"])
    greeted.from_server(line(question))
    (taken_back,) = map(read, greeted.lost().answers)
    assert (taken_back["method"], taken_back["params"]["requestId"]) == ("notifications/cancelled", first["id"])
    again = read(greeted.from_server(line(question)))
    assert again == {**question, "id": again["id"]}
    assert again["id"] != first["id"]
    for old in (first["id"], 0, None):
        assert greeted.from_host(line(result(old, roots=["old"]))) is None
    assert read(greeted.from_host(line(result(again["id"], roots=["new"])))) == result(0, roots=["new"])


def test_a_question_taken_back_is_taken_back_under_the_number_that_the_host_knows(greeted: Conversation) -> None:
    question = read(greeted.from_server(line(request("五", "roots/list"))))
    assert read(greeted.from_server(line(cancelled("五"))))["params"]["requestId"] == question["id"]
    assert greeted.from_server(line(cancelled(8))) == line(cancelled(8))
    assert greeted.lost() == ([], [])  # it is not taken back twice


class Host:
    """A host that says some lines, and leaves once it is let go."""

    def __init__(self, *lines: bytes) -> None:
        self.may_leave = threading.Event()
        self.told: list[bytes] = []
        self._lines = lines

    def lines(self) -> Iterator[bytes]:
        yield from self._lines
        self.may_leave.wait(PATIENCE_SECONDS)

    def write(self, data: bytes) -> bool:
        self.told.append(data)
        return True

    def reader_left(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing is held."""


def servers_met(home: Path, host: Host, serve: Callable[[int, Channel], None]) -> int:
    """How many servers a bridge reaches for a host, one after another, until it ends.

    Args:
        home: Of the store.
        host: Talks to the bridge.
        serve: What a server does; told its number, from 1.
    """
    place = place_of(str(home), None, (), {})
    met = 0

    def attach(_request: Mapping[str, Any], channel: Channel) -> None:
        nonlocal met
        met += 1
        channel.send(b'{"ok": true}')
        serve(met, channel)
        channel.close()

    with closing(Listener(place.state, lambda _: {}, attach, kind=LOCAL, settings=place.settings)):
        bridge = Bridge(host, lambda: place, lambda _pipe, _private: pytest.fail("served here"))
        threads = [threading.Thread(target=each, daemon=True) for each in (bridge._read_host, bridge._serve_host)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()
    return met


def test_a_server_that_takes_its_leave_is_not_replaced_for_a_host_that_waits_for_nothing(tmp_path: Path) -> None:
    host = Host(line(request(1, "ping")))

    def serve(number: int, channel: Channel) -> None:
        if number == 1:
            assert read(channel.receive(1_000))["method"] == "ping"
            channel.send(line(result(1)))
        channel.send(GOODBYE)
        host.may_leave.set()

    assert servers_met(tmp_path, host, serve) == 1


def test_a_handshake_is_answered_by_the_next_server_where_the_first_one_took_its_leave(tmp_path: Path) -> None:
    host = Host(line(HANDSHAKE))
    host.may_leave.set()

    def serve(number: int, channel: Channel) -> None:
        assert read(channel.receive(1_000)) == HANDSHAKE
        channel.send(GOODBYE if number == 1 else line(result(1)))

    assert servers_met(tmp_path, host, serve) == 2
    assert list(map(read, host.told)) == [result(1)]
