"""SSE and streamable HTTP from one server: ``/mcp`` speaks streamable HTTP, ``/sse`` speaks SSE.

Plain HTTP; beyond loopback a reverse proxy adds TLS. From the outside in, a request passes ``_Boundary`` (one answer,
no word about what broke), ``OriginCheck`` (names), ``TokenCheck`` (who), and then the SDK's transports.

Promises: nobody comes in who should not (``access``); what goes wrong is answered with a status and a plain sentence;
clients that do not finish, do not read or ask too much are cut off; a signal ends the process within two seconds.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

import uvicorn
from mcp.server import MCPServer
from starlette.applications import Starlette
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memory_core.config import HttpConfig
from memory_core.errors import ConfigInvalid
from memory_core.storage.tables.tokens import TokenTable
from server.ending import END_SECONDS
from server.http.access import TokenCheck, refuse
from server.http.connections import TimedConnection
from server.http.origins import LOOPBACK, OriginCheck, transport_security
from server.http.rates import OpenRequests, RequestRates
from server.http.sessions import SessionShare

_logger = logging.getLogger(__name__)
_DEFAULTS = HttpConfig()
_METHODS = frozenset({"GET", "POST", "DELETE", "OPTIONS"})
_FRAMED_TWICE = frozenset({b"content-length", b"transfer-encoding"})
_PATH = "/mcp"
_BODY_SECONDS = 30.0
_HEAD_BYTES = 32_768
#: Of the connections, and of the sessions, what one token may hold.
_SHARE = 4
_GRACE_SECONDS = 1
#: These loggers of the SDK write what clients send.
_TALKATIVE = ("sse", "streamable_http", "_streamable_http_modern", "transport_security")


def build_app(
    server: MCPServer[Any],
    host: str,
    tokens: TokenTable | None = None,
    settings: HttpConfig = _DEFAULTS,
    *,
    required: bool = False,
) -> ASGIApp:
    """One ASGI app with both transports.

    Args:
        server: The MCP server.
        host: Where it listens; on loopback the names of loopback are allowed.
        tokens: Who may come in; None for a server of one.
        settings: Names and limits.
        required: Tokens are needed even where none was issued.
    """
    security = transport_security(host, settings.allowed_hosts, settings.allowed_origins)
    streamable = server.streamable_http_app(
        streamable_http_path=_PATH,
        transport_security=security,
        max_request_body_size=settings.max_body_bytes,
        session_idle_timeout=settings.session_idle_seconds,
        max_sessions=settings.max_sessions,
    )
    sse = server.sse_app(
        sse_path="/sse",
        message_path="/messages/",
        transport_security=security,
        max_request_body_size=settings.max_body_bytes,
    )

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with server.session_manager.run():
            yield
        door.close()

    transports = Starlette(routes=[*streamable.routes, *sse.routes], lifespan=lifespan)
    door = TokenCheck(
        SessionShare(transports, server.session_manager, _PATH, max(1, settings.max_sessions // _SHARE)),
        tokens,
        required=required or settings.require_token,
        rates=RequestRates(settings.requests_per_minute),
        open_requests=OpenRequests(max(_SHARE, settings.max_connections // _SHARE)),
    )
    return _Boundary(OriginCheck(door, security, settings.allowed_origins))


class _TooSlow(Exception):
    """A body that does not end."""


class _Boundary:
    """ASGI middleware through which each request gets one answer, and nothing of what broke gets out.

    The SDK's SSE endpoint ends with a second, empty response, and raises after it has refused a request.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        try:
            if scope["method"] not in _METHODS:
                await refuse(answer.send, 405, "Method Not Allowed", [(b"allow", b"GET, POST, DELETE")])
            elif {name for name, _ in scope["headers"]} >= _FRAMED_TWICE:
                # A proxy that goes by the other one would take the rest of the body for a request of its own.
                await refuse(answer.send, 400, "Bad Request", [(b"connection", b"close")])
            else:
                await self._app(scope, _in_time(receive), answer.send)
        except asyncio.CancelledError:  # the server ends
            await answer.end(503, "The server ends.")
        except _TooSlow:
            await answer.end(408, "Request Timeout")
        except Exception as error:  # the edge of the process: a client learns nothing of any error
            if not answer.started:
                _logger.error("a request failed: %s", type(error).__name__)
            _logger.debug("a request failed", exc_info=error)
            await answer.end(500, "Internal Server Error")


class _Answer:
    """The one response to a request, with the headers that each has."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        self._ended = False

    async def send(self, message: Message) -> None:
        """Pass on what belongs to the first response."""
        if self._ended or (self.started and message["type"] == "http.response.start"):
            return
        if message["type"] == "http.response.start":
            self.started = True
            kept = [(name, value) for name, value in message.get("headers", []) if name.lower() != b"cache-control"]
            own = [(b"cache-control", b"no-store, no-transform"), (b"x-content-type-options", b"nosniff")]
            message = {**message, "headers": [*kept, *own]}
        elif not message.get("more_body", False):
            self._ended = True
        await self._send(message)

    async def end(self, status: int, said: str) -> None:
        """Answer with ``status`` if nothing was answered yet, and close: the request may never end."""
        if self.started:
            await self.send({"type": "http.response.body", "body": b""})
        else:
            await refuse(self.send, status, said, [(b"connection", b"close")])


def _in_time(receive: Receive) -> Receive:
    """``receive`` that gives a body no more than its time."""
    ends_at = time.monotonic() + _BODY_SECONDS
    complete = False

    async def receive_in_time() -> Message:
        nonlocal complete
        if complete:
            return await receive()
        try:
            async with asyncio.timeout(max(0.0, ends_at - time.monotonic())):
                message = await receive()
        except TimeoutError:
            raise _TooSlow from None
        complete = not message.get("more_body", False)
        return message

    return receive_in_time


class _Server(uvicorn.Server):
    """uvicorn's server that ends in time, whatever its worker threads wait for; what was acknowledged is on disk."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end, and see to it."""
        if not self.should_exit:
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it laments each stream that is cut
            last = threading.Timer(END_SECONDS, os._exit, [128 + sig])
            last.daemon = True
            last.start()
        super().handle_exit(signal.Signals(sig), frame)


def serve(
    server: MCPServer[Any],
    host: str,
    port: int,
    tokens: TokenTable | None = None,
    settings: HttpConfig = _DEFAULTS,
) -> None:
    """Serve until interrupted.

    Args:
        server: The MCP server.
        host: Address or name to listen on.
        port: 0 to 65535; 0 takes a free one.
        tokens: Who may come in; None for a server of one, on loopback.
        settings: Names and limits.

    Raises:
        ConfigInvalid: If ``host`` is not a loopback address and there is no token or no name to be reached by, or
            the port cannot be had.
    """
    local = is_loopback(host)
    if not local:
        _check_exposed(host, tokens, settings)
    for name in _TALKATIVE:
        logging.getLogger(f"mcp.server.{name}").setLevel(logging.CRITICAL)
    listener = _listener(host, port)
    config = uvicorn.Config(
        build_app(server, host, tokens, settings, required=not local),
        http=TimedConnection,
        ws="none",
        log_level="error",
        access_log=False,
        proxy_headers=False,  # an address that the client itself names is none
        server_header=False,
        h11_max_incomplete_event_size=_HEAD_BYTES,
        limit_concurrency=settings.max_connections,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    with listener:
        _Server(config).run(sockets=[listener])


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens on ``host``."""
    if host in LOOPBACK:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_exposed(host: str, tokens: TokenTable | None, settings: HttpConfig) -> None:
    missing = []
    if tokens is None or not tokens.any_live():
        missing.append("issue a token: runebook token add LABEL")
    if not settings.allowed_hosts:
        missing.append(
            "name the hosts by which clients reach it: --allowed-host memory.example.com, or http.allowed_hosts"
        )
    if missing:
        raise ConfigInvalid(
            f"serving on {host!r} would let other machines read the memories.",
            hint=f"{'; '.join(missing)}; and put a reverse proxy with TLS in front. "
            f"Or stay on this machine with --host {LOOPBACK[0]}.",
        )


def _listener(host: str, port: int) -> socket.socket:
    hint = "Name a free port with --port, or stop the program that uses this one."
    if not 0 <= port <= 65_535:
        raise ConfigInvalid(f"there is no port {port}; ports go up to 65535.", hint=hint)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigInvalid(f"cannot listen on {host} port {port}: {error}.", hint=hint) from error
