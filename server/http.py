"""SSE and streamable HTTP from one loopback server: ``/mcp`` speaks streamable HTTP, ``/sse`` speaks SSE."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from mcp.server import MCPServer
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memory_core.errors import ConfigInvalid

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def build_app(server: MCPServer[Any], host: str) -> Starlette:
    """One ASGI app with both transports; the SDK checks Host and Origin headers for loopback hosts."""
    streamable = server.streamable_http_app(streamable_http_path="/mcp", host=host)
    sse = server.sse_app(sse_path="/sse", message_path="/messages/", host=host)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with server.session_manager.run():
            yield

    return Starlette(
        routes=[*streamable.routes, *sse.routes], lifespan=lifespan, middleware=[Middleware(_SingleResponse)]
    )


class _SingleResponse:
    """Lets each request be answered once.

    The SDK's SSE endpoint ends with a second, empty response, and raises after it has refused a request; each
    would print a traceback for something ordinary: a client that is connected at shutdown, a foreign page.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = repeated = False

        async def send_once(message: Message) -> None:
            nonlocal started, repeated
            if message["type"] == "http.response.start":
                started, repeated = True, started
            if not repeated:
                await send(message)

        try:
            await self._app(scope, receive, send_once)
        except ValueError:
            if not started:
                raise


def serve(server: MCPServer[Any], host: str, port: int) -> None:
    """Serve until interrupted.

    Raises:
        ConfigInvalid: If ``host`` is not a loopback address (without tokens nobody else may come in), or
            the port cannot be had.
    """
    if host not in LOOPBACK:
        raise ConfigInvalid(
            f"serving on {host!r} would let other machines read the memories.",
            hint=f"Use one of: {', '.join(LOOPBACK)}.",
        )
    listener = _listener(host, port)
    config = uvicorn.Config(build_app(server, host), log_level="warning", timeout_graceful_shutdown=1)
    with listener:
        uvicorn.Server(config).run(sockets=[listener])


def _listener(host: str, port: int) -> socket.socket:
    hint = "Name a free port with --port, or stop the program that uses this one."
    if not 0 <= port <= 65_535:
        raise ConfigInvalid(f"there is no port {port}; ports go up to 65535.", hint=hint)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigInvalid(f"cannot listen on {host} port {port}: {error}.", hint=hint) from error
