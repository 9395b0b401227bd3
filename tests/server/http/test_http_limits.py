"""What one client may ask of the HTTP server, what garbage gets for an answer, and how soon the server ends."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from mcp.server import MCPServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memory_core.core.errors import StoreBusy
from server.foreign_json import MOST_VALUES
from server.http import http_server as http
from server.http.connections import TimedConnection
from server.http.rate_limits import OpenRequests, RequestRates
from server.protocol.stdio_transport import END_SECONDS
from tests.server.bearers import ASK, OPENING, PATIENCE_SECONDS, Reply, issue, send

if TYPE_CHECKING:
    from tests.server.conftest import HttpServer, StartHttp
    from tests.server.http.conftest import Desk


def raw(server: HttpServer, *parts: bytes, shut: bool = True) -> bytes:
    """What the server answers to these bytes until it closes; with ``shut`` nothing more is sent, and it knows."""
    return answered(server.port, *parts, shut=shut)


def answered(port: int, *parts: bytes, shut: bool = False, reads_after: float = 0.0) -> bytes:
    said = b""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as connection:
        try:
            for part in parts:
                connection.sendall(part)
            if shut:
                connection.shutdown(socket.SHUT_WR)
            time.sleep(reads_after)
            while part := connection.recv(65_536):
                said += part
        except ConnectionError:
            pass
    return said


def head(server: HttpServer, line: str, *fields: str) -> bytes:
    return "\r\n".join([line, f"Host: 127.0.0.1:{server.port}", *fields, "", ""]).encode("utf-8", "surrogatepass")


# Rates


def test_bucket_lets_so_many_pass_at_once_and_refills_evenly() -> None:
    now = 0.0
    rates = RequestRates(60, lambda: now)
    assert [rates.take("a") for _ in range(60)] == [0] * 60
    assert rates.take("a") == 1
    assert rates.take("b") == 0
    now = 0.5
    assert rates.take("a") == 1
    now = 1.0
    assert [rates.take("a"), rates.take("a")] == [0, 1]
    now = 3600.0
    assert [rates.take("a") for _ in range(61)] == [0] * 60 + [1]


def test_wait_is_told_in_whole_seconds_that_suffice() -> None:
    now = 0.0
    rates = RequestRates(2, lambda: now)
    assert [rates.take("a"), rates.take("a"), rates.take("a")] == [0, 0, 30]
    now = 30.0
    assert rates.take("a") == 0


def test_many_addresses_do_not_fill_the_memory() -> None:
    rates = RequestRates(10)
    for number in range(10_000):
        rates.take(str(number))
    assert len(rates._buckets) <= 4_096


def test_open_requests_are_counted_for_each_client_alone() -> None:
    held = OpenRequests(2)
    with held.one_more("a") as first, held.one_more("a") as second, held.one_more("a") as third:
        assert (first, second, third) == (True, True, False)
        with held.one_more("b") as other:
            assert other
    with held.one_more("a") as again:
        assert again
    assert not held._held


def test_one_token_cannot_use_up_the_rate_of_another(tmp_path: Path, start_http: StartHttp) -> None:
    anna, bob = (issue(tmp_path / "home", name) for name in ("anna", "bob"))
    server = start_http("--set", "http.requests_per_minute=5")

    def asked(token: str) -> tuple[Reply, float]:
        began = time.monotonic()
        return send(server, "GET", "/nothing", None, token), time.monotonic() - began

    for tokens, status in (([anna] * 100, 404), ([f"rb_{number:012x}_x" for number in range(100)], 401)):
        assert [asked(token)[0].status for token in tokens[:5]] == [status] * 5
        answers = (asked(token) for token in tokens[5:])  # some come free while a slow machine asks
        late, took = next((answer, took) for answer, took in answers if answer.status == 429)
        assert 1 <= int(late.headers["retry-after"]) <= 12
        assert took >= 0.4  # who asks again at once learns it no faster
    assert send(server, "POST", "/mcp", OPENING, bob).status == 200


# Sizes


def test_body_over_the_setting_is_refused(start_http: StartHttp) -> None:
    server = start_http("--set", "http.max_body_bytes=5000")
    for path in ("/mcp", f"/messages/?session_id={'0' * 32}"):
        assert send(server, "POST", path, b" " * 5_001).status == 413
        chunked = head(server, f"POST {path} HTTP/1.1", "Transfer-Encoding: chunked", "Content-Type: application/json")
        chunk = b"1000\r\n" + b" " * 4_096 + b"\r\n"
        assert raw(server, chunked, chunk, chunk, shut=False).startswith(b"HTTP/1.1 413 ")
    assert send(server, "POST", "/mcp", OPENING).status == 200


def test_message_of_very_many_values_is_refused(start_http: StartHttp) -> None:
    server = start_http()
    session = send(server, "POST", "/mcp", OPENING).headers["mcp-session-id"]
    call = {"name": "retrieve", "arguments": {"query": "tea", "tool": [1] * MOST_VALUES}}
    message = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}).encode()
    for path in ("/mcp", f"/messages/?session_id={'0' * 32}"):
        refused = send(server, "POST", path, message, mcp_session_id=session)
        assert (refused.status, f"more than {MOST_VALUES:,} values" in refused.body.decode()) == (413, True)
    assert send(server, "POST", "/mcp", ASK, mcp_session_id=session).status == 200


def test_sessions_over_the_setting_are_refused_and_room_comes_back(start_http: StartHttp) -> None:
    server = start_http("--set", "http.max_sessions=2")
    opened = [send(server, "POST", "/mcp", OPENING) for _ in range(3)]
    assert [answer.status for answer in opened] == [200, 200, 503]
    assert send(server, "DELETE", "/mcp", None, None, mcp_session_id=opened[0].headers["mcp-session-id"]).status == 200
    assert send(server, "POST", "/mcp", OPENING).status == 200


def test_one_token_cannot_use_up_the_sessions_of_another(tmp_path: Path, start_http: StartHttp) -> None:
    anna, bob = (issue(tmp_path / "home", name) for name in ("anna", "bob"))
    server = start_http("--set", "http.max_sessions=8")
    opened = [send(server, "POST", "/mcp", OPENING, anna) for _ in range(3)]
    assert [answer.status for answer in opened] == [200, 200, 429]
    assert send(server, "POST", "/mcp", OPENING, bob).status == 200
    session = opened[0].headers["mcp-session-id"]
    assert send(server, "POST", "/mcp", ASK, anna, mcp_session_id=session).status == 200
    assert send(server, "DELETE", "/mcp", None, anna, mcp_session_id=session).status == 200
    assert send(server, "POST", "/mcp", OPENING, anna).status == 200


def test_who_asks_for_events_since_one_is_answered(http_server: HttpServer) -> None:
    session = send(http_server, "POST", "/mcp", OPENING).headers["mcp-session-id"]
    asked = ("Accept: text/event-stream", f"Mcp-Session-Id: {session}", "Last-Event-ID: 7")
    with socket.create_connection(("127.0.0.1", http_server.port), PATIENCE_SECONDS) as stream:
        stream.sendall(head(http_server, "GET /mcp HTTP/1.1", *asked))
        assert stream.recv(4096).startswith(b"HTTP/1.1 200 ")


# Garbage


GARBAGE = [
    b"\x00" * 100,
    b"\xff\xfe\xfd",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS hello
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /mcp HTTP/1.1\r\n\r\n",
    b"GET http://evil.example/mcp HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x",
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /mcp HTTP/1.1\r\nHost : 127.0.0.1\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /%ff%00%2e%2e/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /mcp HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
    b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    b"HEAD /sse HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"TRACE /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + b"\x00\x01garbage\r\n\r\n" * 20,
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}garbage after the body\r\n\r\n",
]


def test_request_hidden_behind_two_lengths_is_not_answered(http_server: HttpServer) -> None:
    hidden = b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    body = b"0\r\n\r\n" + hidden
    head = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n"
    said = raw(http_server, f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body, shut=False)
    assert said.count(b"HTTP/1.1 ") == 1
    assert said.startswith(b"HTTP/1.1 400 ")


def test_a_body_in_very_many_small_chunks_is_cut_off(http_server: HttpServer) -> None:
    start = head(http_server, "POST /mcp HTTP/1.1", "Transfer-Encoding: chunked", "Content-Type: application/json")
    assert raw(http_server, start, b"1\r\n \r\n" * 20_000, shut=False).startswith(b"HTTP/1.1 400 ")
    body = json.dumps(OPENING).encode()
    pieces = [body[at : at + 4] for at in range(0, len(body), 4)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    fields = ("Accept: application/json, text/event-stream", "Connection: close")
    start = head(
        http_server, "POST /mcp HTTP/1.1", "Transfer-Encoding: chunked", "Content-Type: application/json", *fields
    )
    assert raw(http_server, start, chunks, shut=False).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "fields", [["X-One: " + "a" * 40_000], [f"X-{number}: {'b' * 60}" for number in range(600)]], ids=["one", "many"]
)
def test_a_head_that_comes_whole_is_bounded_too(http_server: HttpServer, fields: list[str]) -> None:
    said = raw(http_server, head(http_server, "GET /mcp HTTP/1.1", *fields, "Connection: close"), shut=False)
    assert said.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))


def refused(said: bytes) -> bool:
    """Whether nothing but refusals, or nothing at all, was answered, and nothing of our insides."""
    lines = [line for line in said.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
    leaked = re.search(rb"Traceback|\.py\b|/work|site-packages|Exception", said)
    return not leaked and all(400 <= int(line.split()[1]) < 500 for line in lines)


@pytest.mark.parametrize("number", range(len(GARBAGE)))
def test_garbage_gets_a_refusal_or_nothing(http_server: HttpServer, number: int) -> None:
    assert refused(raw(http_server, GARBAGE[number]))
    assert send(http_server, "POST", "/mcp", OPENING).status == 200


@pytest.mark.parametrize("method", ["HEAD", "PUT", "PATCH"])
@pytest.mark.parametrize("path", ["/mcp", "/sse", "/metrics"])
def test_what_clients_of_the_protocol_never_send_opens_no_stream(
    http_server: HttpServer, method: str, path: str
) -> None:
    said = raw(http_server, f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.1 405 ")
    assert b"allow: DELETE, GET, POST\r\n" in said


def test_random_bytes_do_not_bring_the_server_down(http_server: HttpServer) -> None:
    rolls = random.Random(20261121)
    start = head(http_server, "POST /mcp HTTP/1.1", "Content-Type: application/json", "Content-Length: 40")
    for _ in range(150):
        noise = rolls.randbytes(rolls.randrange(1, 400))
        mixed = bytearray(start + b'{"jsonrpc": "2.0", "id": 1, "method": "x"}')
        for _ in range(rolls.randrange(1, 12)):
            mixed[rolls.randrange(len(mixed))] = rolls.randrange(256)
        for sent in (noise, bytes(mixed), start + noise):
            assert refused(raw(http_server, sent)), sent
    assert send(http_server, "POST", "/mcp", OPENING).status == 200
    assert "Traceback" not in http_server.errors.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "fields"),
    [
        ("GET", "/nothing", None, 404, {}),
        ("PUT", "/mcp", b"{}", 405, {}),
        ("PATCH", "/sse", b"{}", 405, {}),
        ("POST", "/sse", b"{}", 405, {}),
        ("POST", "/metrics", b"{}", 405, {}),
        ("GET", "/messages/", None, 405, {}),
        ("POST", "/mcp", b"{}", 400, {"content_type": "text/plain"}),
        ("POST", "/mcp", b"{", 400, {}),
        ("POST", "/mcp", b"\xff\xfe{", 400, {}),
        ("POST", "/mcp", b"[]", 400, {}),
        ("POST", "/mcp", b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}', 400, {}),
        ("POST", "/mcp", b"[" * 60_000, 400, {}),
        ("POST", "/mcp", b'{"jsonrpc": "2.0", "id": ' + b"9" * 10_000 + b', "method": "x"}', 400, {}),
        ("POST", "/messages/?session_id=%ff", b"{}", 400, {}),
        ("POST", f"/messages/?session_id={'0' * 32}", b"{", 404, {}),
        ("POST", "/mcp", b"{}", 406, {"accept": "text/html"}),
        ("POST", "/mcp", b"{}", 400, {"mcp_protocol_version": "\xe4\xf6"}),
        ("POST", "/mcp", b"{}", 400, {"mcp_protocol_version": "9999-99-99"}),
        ("POST", "/mcp", b"{", 400, {"mcp_protocol_version": "2026-07-28"}),
        ("DELETE", "/mcp", None, 404, {"mcp_session_id": "../../etc/passwd"}),
        ("GET", "/mcp", None, 404, {"mcp_session_id": "0" * 32, "last_event_id": "1"}),
    ],
)
def test_wrong_requests_get_a_status_and_no_insides(
    http_server: HttpServer, method: str, path: str, body: Any, status: int, fields: dict[str, str]
) -> None:
    reply = send(http_server, method, path, body, **fields)
    assert (reply.status, refused(reply.body)) == (status, True)
    assert len(reply.body) < 2_000
    assert "no-store" in reply.headers["cache-control"]
    assert reply.headers["x-content-type-options"] == "nosniff"


# Time


@contextmanager
def running(app: Any, protocol: type[TimedConnection] = TimedConnection) -> Iterator[int]:
    """An ASGI app behind uvicorn in a thread; its port."""
    config = uvicorn.Config(app, http=protocol, ws="none", log_level="critical", lifespan="off", access_log=False)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(PATIENCE_SECONDS)


async def echo(_scope: Scope, receive: Receive, send: Send) -> None:
    """Read the whole body, then answer with a lot."""
    while (await receive()).get("more_body", False):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"x" * 50_000_000})


class Impatient(TimedConnection):
    head_seconds = 0.2
    unread_seconds = 0.2


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "])
def test_request_whose_head_does_not_end_is_cut_off(sent: bytes) -> None:
    with running(echo, Impatient) as port:
        assert answered(port, sent) == b""


def test_connection_that_idles_after_an_answer_is_closed() -> None:
    with running(echo, Impatient) as port:
        said = answered(port, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\nGET / HT")
        assert said.startswith(b"HTTP/1.1 200 ")


def test_client_that_does_not_read_is_cut_off() -> None:
    with running(echo, Impatient) as port:
        # It should have been cut off while it does not read; more time only makes the test stricter.
        said = answered(port, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", reads_after=1.5)
        assert said.startswith(b"HTTP/1.1 200 ")
        assert len(said) < 50_000_000


@pytest.mark.parametrize(
    ("made", "path"),
    [(lambda: http._Boundary(echo), "/"), (lambda: http.build_app(MCPServer("test"), "127.0.0.1"), "/mcp")],
    ids=["an app that reads it", "a transport"],
)
def test_body_that_does_not_end_is_timed_out(
    monkeypatch: pytest.MonkeyPatch, made: Callable[[], Any], path: str
) -> None:
    monkeypatch.setattr(http, "_BODY_SECONDS", 0.2)
    fields = "Host: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
    with running(made()) as port:
        said = answered(port, f"POST {path} HTTP/1.1\r\n{fields}Content-Length: 9\r\n\r\nhalf".encode())
    assert said.startswith(b"HTTP/1.1 408 ")


def test_the_time_of_a_body_begins_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(http, "time", SimpleNamespace(monotonic=lambda: now))

    async def receive() -> Message:
        for _ in range(5):
            await asyncio.sleep(0)  # the rest of the body is on its way
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def read() -> None:
        nonlocal now
        receive_in_time = http._in_time(receive)
        now = 1_000.0  # the request waited for its turn
        assert (await receive_in_time())["body"] == b"x"
        now += http._BODY_SECONDS
        with pytest.raises(http._TooSlow):
            await receive_in_time()

    asyncio.run(read())


async def broken(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise RuntimeError("the secret is 42")


class Broken:
    async def __call__(self, *given: Any) -> None:
        await broken(*given)


@pytest.mark.parametrize("app", [broken, Starlette(routes=[Route("/", Broken())])])
def test_what_breaks_inside_is_not_told(caplog: pytest.LogCaptureFixture, app: ASGIApp) -> None:
    with running(http._Boundary(app)) as port:
        said = answered(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 500 ")
    assert said.endswith(b"Internal Server Error")
    assert caplog.text.count("a request failed: RuntimeError") == 1
    assert "42" not in caplog.text


def test_a_client_that_leaves_is_no_failure_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    ended = threading.Event()

    async def reads_all(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await http._Boundary(read_form)(scope, receive, send)
        finally:
            ended.set()

    async def read_form(scope: Scope, receive: Receive, _send: Send) -> None:
        await Request(scope, receive).form()

    fields = b"Host: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 9\r\n\r\n"
    with running(reads_all) as port:
        with socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as connection:
            connection.sendall(b"POST / HTTP/1.1\r\n" + fields + b"half")
        assert ended.wait(PATIENCE_SECONDS)
    assert "a request failed" not in caplog.text


def test_a_store_that_cannot_say_who_asks_is_busy_and_not_broken() -> None:
    async def busy(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise StoreBusy("the database restarts.", hint="Wait.")

    with running(http._Boundary(busy)) as port:
        said = answered(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").lower()
    assert said.startswith(b"http/1.1 503 ")
    assert b"\r\nretry-after: 1\r\n" in said
    assert b"restarts" not in said


# The end


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_server_ends_within_two_seconds_whatever_is_open(start_http: StartHttp, sig: signal.Signals) -> None:
    server = start_http()
    session = send(server, "POST", "/mcp", OPENING).headers["mcp-session-id"]
    with ExitStack() as stack:

        def opened(sent: bytes) -> socket.socket:
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS))
            connection.sendall(sent)
            return connection

        for stream in (
            opened(head(server, "GET /sse HTTP/1.1")),
            opened(head(server, "GET /mcp HTTP/1.1", "Accept: text/event-stream", f"Mcp-Session-Id: {session}")),
        ):
            assert stream.recv(4096).startswith(b"HTTP/1.1 200 ")
        opened(head(server, "POST /mcp HTTP/1.1", "Content-Length: 99", "Content-Type: application/json") + b"{")
        opened(b"GET /mcp HTT")
        opened(b"")
        assert send(server, "POST", "/mcp", ASK, None, mcp_session_id=session).status == 200
        started = time.monotonic()
        server.process.send_signal(sig)
        status = server.process.wait(PATIENCE_SECONDS)
        took = time.monotonic() - started
    assert END_SECONDS < 2
    assert took < END_SECONDS + 5, "the rest is for a busy machine to take a process down"
    assert status == 0 if sig == signal.SIGTERM else status in (-sig, 128 + sig)
    assert "Traceback" not in server.errors.read_text(encoding="utf-8")


# Sessions


def test_a_session_keeps_no_large_message(desk: Desk) -> None:
    headers = {**desk.anna.headers, "accept": "application/json, text/event-stream", "content-type": "application/json"}
    opened = desk.client.post("/mcp", content=json.dumps(OPENING), headers=headers)
    headers["mcp-session-id"] = opened.headers["mcp-session-id"]
    many = b", ".join([b'"x"'] * 30_000)
    arguments = b'{"name": "read", "arguments": {"only_here": [%s]}}' % many
    call = b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": %s}' % arguments
    answer = desk.client.post("/mcp", content=call, headers=headers)
    assert "only_here" in answer.text
    del answer
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, dict) and "only_here" in each]
    answer = desk.client.post("/mcp", content=json.dumps(ASK), headers=headers)
    assert answer.status_code == 200  # and the session goes on


def test_what_opens_a_session_is_small(desk: Desk) -> None:
    headers = {**desk.anna.headers, "accept": "application/json, text/event-stream", "content-type": "application/json"}
    large = json.dumps(OPENING).replace('"name": "t"', f'"name": "{"x" * 70_000}"')
    assert desk.client.post("/mcp", content=large, headers=headers).status_code == 413
