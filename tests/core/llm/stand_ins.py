"""Loopback stand-ins that speak the protocols of Anthropic's and OpenAI's APIs, for the real SDKs.

A ``StandIn`` answers each request with the next reply of its script and keeps what it was asked::

    with StandIn([failure(429, headers={"retry-after": "0"}), openai_completion("{}")]) as server:
        client = RemoteModel("openai", "m", f"{server.url}/v1", environment={})
        ...
        assert len(server.requests) == 2

A reply may be a callable from the recorded request to a reply. After its last reply the stand-in answers 599, which
no test expects. ``fall_silent``, ``reset``, ``broken_off`` and ``dripping`` are faults of the connection.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self


@dataclass(frozen=True)
class Recorded:
    """One request as it arrived."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """One answer: a status and a body, or a fault of the connection."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    fault: Literal["", "silent", "reset", "broken_off", "dripping"] = ""


Scripted = Reply | Callable[[Recorded], Reply]


def _json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    body = json.dumps(value, ensure_ascii=False).encode()
    return Reply(status, body, {"content-type": "application/json"} | dict(headers or {}))


def anthropic_message(
    text: str | list[dict[str, Any]],
    stop_reason: str = "end_turn",
    usage: Mapping[str, int] | None = None,
    model: str = "claude-stand-in",
) -> Reply:
    """A message of the Messages API; ``text`` may be a list of content blocks."""
    content = [{"type": "text", "text": text}] if isinstance(text, str) else text
    return _json(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": dict(usage or {"input_tokens": 10, "output_tokens": 5}),
        }
    )


def openai_completion(
    text: str | None,
    finish_reason: str = "stop",
    usage: Mapping[str, Any] | None = None,
    message: Mapping[str, Any] | None = None,
    model: str = "gpt-stand-in",
) -> Reply:
    """A chat completion; ``message`` holds further members of the message, such as ``refusal``."""
    return _json(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [
                {
                    "index": 0,
                    "finish_reason": finish_reason,
                    "logprobs": None,
                    "message": {"role": "assistant", "content": text, "refusal": None} | dict(message or {}),
                }
            ],
            "usage": dict(usage or {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}),
        }
    )


def failure(status: int, message: str = "broken", headers: Mapping[str, str] | None = None, code: str = "") -> Reply:
    """An HTTP error in the shape that both providers share."""
    error = {"type": code or "api_error", "message": message, "code": code or None, "param": None}
    return _json({"type": "error", "error": error}, status, headers)


def raw(body: str, content_type: str = "text/html", status: int = 200) -> Reply:
    """Any body at all."""
    return Reply(status, body.encode(), {"content-type": content_type})


def fall_silent() -> Reply:
    """Never an answer; the connection stays open."""
    return Reply(fault="silent")


def reset() -> Reply:
    """The connection is reset before the answer."""
    return Reply(fault="reset")


def broken_off() -> Reply:
    """The connection ends in the middle of the body."""
    return Reply(fault="broken_off", body=b'{"id": "half', headers={"content-type": "application/json"})


def dripping() -> Reply:
    """A body of blanks that arrives one by one and never ends."""
    return Reply(fault="dripping", headers={"content-type": "application/json"})


class StandIn:
    """A server on 127.0.0.1 that answers from a script.

    Attributes:
        url: Its address, without a path.
        requests: Every request so far.
    """

    def __init__(self, replies: Iterable[Scripted]) -> None:
        self.requests: list[Recorded] = []
        self._replies = iter(replies)
        self._lock = threading.Lock()
        self.closing = threading.Event()
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # headers and body in one packet
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                _answer(self, stand_in)

            do_GET = do_PUT = do_DELETE = do_POST  # noqa: N815 - the library's names

            def log_message(self, format: str, *args: Any) -> None:
                """Silent."""

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def next_reply(self, request: Recorded) -> Reply:
        with self._lock:
            self.requests.append(request)
            reply = next(self._replies, None)
        if reply is None:
            return failure(599, "the stand-in has no further reply", {"x-should-retry": "false"})
        return reply(request) if callable(reply) else reply


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the tests."""


def _answer(handler: BaseHTTPRequestHandler, stand_in: StandIn) -> None:
    length = int(handler.headers.get("content-length", 0))
    body = json.loads(handler.rfile.read(length) or b"{}")
    headers = {name.lower(): value for name, value in handler.headers.items()}
    reply = stand_in.next_reply(Recorded(handler.path, headers, body))
    if reply.fault:
        handler.close_connection = True
    if reply.fault == "silent":
        stand_in.closing.wait(30)
        return
    if reply.fault == "reset":
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.connection.close()
        return
    handler.send_response(reply.status)
    for name, value in reply.headers.items():
        handler.send_header(name, value)
    promised = len(reply.body) + (10_000 if reply.fault else 0)
    handler.send_header("content-length", str(promised))
    handler.end_headers()
    handler.wfile.write(reply.body)
    handler.wfile.flush()
    while reply.fault == "dripping" and not stand_in.closing.wait(0.01):
        handler.wfile.write(b" ")
        handler.wfile.flush()
