"""Everything over HTTP from one server: ``/mcp`` and ``/sse`` for clients, ``/api`` for programs, ``/`` for people.

Plain HTTP; beyond loopback a reverse proxy adds TLS. From the outside in, a request passes ``_Boundary`` (one answer,
no word about what broke), ``Health`` (probes of balancers), ``OriginCheck`` (names), ``login.before`` (where there is a
login), ``with_open_pages`` (files that anybody may have), ``TokenCheck`` (who), ``FairShare`` (turns), and then the
API, or the share of sessions and the SDK's transports.

Promises: nobody comes in who should not (``authentication``); what goes wrong is answered with a status and a sentence;
clients that do not finish, do not read or ask too much are cut off. SIGTERM lets running requests be answered for
``http.drain_seconds`` (``health``), then ends the process within two seconds, as any other signal does at once.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

import anyio.to_thread
import uvicorn
from mcp.server import MCPServer
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, authorization_context
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.routing import Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memory_core.core.config import HttpConfig, is_loopback
from memory_core.core.errors import ConfigInvalid, StoreBusy
from memory_core.core.store.issued_tokens import IssuedTokens
from server.http.authentication import LOOPBACK, OriginCheck, TokenCheck, respond, transport_security
from server.http.connections import Connections, TimedConnection, checked, peeked
from server.http.fair_share import FairShare
from server.http.health import LIVE, READY, Health
from server.http.identity_provider import IssuerUnreachable
from server.http.page_files import is_page, with_open_pages
from server.http.rate_limits import OpenRequests, RequestRates, Sharing
from server.http.transfers import ForOwner, Transfers
from server.protocol.session import ServedStore
from server.protocol.stdio_transport import END_SECONDS

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from server.http.login import Login


_logger = logging.getLogger(__name__)
_DEFAULTS = HttpConfig()
#: What the transports know; a HEAD would open a stream there.
_METHODS = frozenset({"GET", "POST", "DELETE", "OPTIONS"})
_MORE_METHODS = _METHODS | {"HEAD", "PUT", "PATCH"}
_FRAMED_TWICE = frozenset({b"content-length", b"transfer-encoding"})
_PATH = "/mcp"
_API = "/api/"
_BODY_SECONDS = 30.0
_SWITCH_SECONDS = 0.0002
#: The youngest objects are looked through once there are so many new ones: those of a request are gone by then.
_COLLECTED_FROM = 20_000
#: A session keeps no larger message than this beyond its answer.
_KEPT_BYTES = 65_536
_SAYS_NOTHING = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"none"}}'
_HEAD_BYTES = 32_768
#: Of the connections, and of the sessions, one token may hold one part in so many.
_SHARES = 4
#: Connections that one token may hold, however few there may be in all.
_LEAST_OPEN = 4
_GRACE_SECONDS = 1
#: More than the requests that run, for some take long beside the others.
_THREADS = 100
#: These loggers of the SDK write what clients send.
_TALKATIVE = ("sse", "streamable_http", "_streamable_http_modern", "transport_security")


def build_app(
    server: MCPServer[Any],
    host: str,
    tokens: IssuedTokens | None = None,
    settings: HttpConfig = _DEFAULTS,
    *,
    required: bool = False,
    store: ServedStore | None = None,
    owner_key: str | None = None,
    login: Login | None = None,
) -> Served:
    """One ASGI app with both transports, and the API and the page where there is a store for them.

    Args:
        server: The MCP server.
        host: Where it listens; on loopback the names of loopback are allowed.
        tokens: Who may come in; None for a server of one.
        settings: Names and limits.
        required: Tokens are needed even where none was issued.
        store: What the API and the page show; None serves neither.
        owner_key: Lets the owner in; see ``TokenCheck``.
        login: Access tokens of OAuth; None takes none.
    """
    public = () if login is None else (login.url,)
    names = (*settings.allowed_hosts, *(url.partition("://")[2] for url in public))
    security = transport_security(host, names, (*settings.allowed_origins, *public))
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

    transfers = Transfers()
    # Whoever is on this machine, and comes in without a token, need not be the owner.
    is_owner = owner_key is not None or settings.without_token == "owner"
    owner = ForOwner(tokens, transfers, may_restore=owner_key is not None) if is_owner else None

    @asynccontextmanager
    async def lifespan(_app: Any) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
        if store is not None:  # for as long as the app runs: the API has no sessions that would hold it open
            store.acquire()
            if owner_key is not None:  # its owner opens the page now, and will search
                store.warm()
        try:
            if sharing is not None:
                sharing.start()
            async with server.session_manager.run():
                yield
        finally:
            if sharing is not None:
                sharing.close()
            transfers.close()
            door.close()
            if store is not None:
                await anyio.to_thread.run_sync(store.release)

    transports = Router([*streamable.routes, *sse.routes], lifespan=lifespan)  # a Starlette would answer what it raises
    share = max(1, settings.max_sessions // _SHARES)
    in_session = _without_large_messages(_without_last_event_id(transports))
    in_session = _with_checked_bodies(in_session, settings.max_body_bytes)
    first_bytes = min(_KEPT_BYTES, settings.max_body_bytes)
    sessions = _with_session_share(in_session, server.session_manager, share, first_bytes)
    behind = sessions if store is None else _with_api(sessions, store, settings, owner)
    rates = RequestRates(settings.requests_per_minute)
    sharing = None
    if tokens is not None and tokens.database.is_remote and settings.requests_per_minute:
        from memory_core.open_postgres import shared_rates

        sharing = Sharing(rates, shared_rates(tokens))
    door = TokenCheck(
        FairShare(behind, settings.requests_at_once, max(1, settings.requests_at_once - 1)),
        tokens,
        required=required or settings.require_token,
        rates=rates,
        open_requests=OpenRequests(max(_LEAST_OPEN, settings.max_connections // _SHARES)),
        owner_key=owner_key,
        open_to_all=settings.without_token == "anyone",
        login=login,
    )
    inside: ASGIApp = door if store is None else with_open_pages(door)
    if login is not None:
        inside = login.before(inside, rates)
    health = Health(OriginCheck(inside, security, settings.allowed_origins), store)
    return Served(_Boundary(health), transports, health)


class Served:
    """The ASGI app of a server, and how it stands.

    Args:
        app: Answers requests; it is given nothing else.
        transports: Start and end with the server.
        health: Knows which requests run.
    """

    def __init__(self, app: ASGIApp, transports: ASGIApp, health: Health) -> None:
        self._app = app
        self._transports = transports
        self.health = health

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or start and end."""
        await (self._app if scope["type"] == "http" else self._transports)(scope, receive, send)


def _with_session_share(app: ASGIApp, sessions: StreamableHTTPSessionManager, limit: int, first_bytes: int) -> ASGIApp:
    """``app``; a token with ``limit`` open sessions is refused another; what opens one has ``first_bytes`` at most."""

    def opens(scope: Scope) -> bool:
        headers = Headers(scope=scope)
        version = headers.get("mcp-protocol-version")
        begins_with_handshake = version is None or version in HANDSHAKE_PROTOCOL_VERSIONS
        return scope["path"] == _PATH and "mcp-session-id" not in headers and begins_with_handshake

    def open_sessions(scope: Scope) -> int:
        user = scope.get("user")
        asking = authorization_context(user) if isinstance(user, AuthenticatedUser) else None
        owners = sessions._session_owners.values()  # SDK has no public way to it
        return 0 if asking is None else sum(owner == asking for owner in owners)

    async def admit(scope: Scope, receive: Receive, send: Send) -> None:
        if not opens(scope):
            await app(scope, receive, send)
        elif open_sessions(scope) >= limit:
            await respond(send, 429, "Too many open sessions.", [(b"retry-after", b"60")])
        else:
            body, again = await peeked(receive, first_bytes)
            if body is None:
                await respond(send, 413, f"What opens a session has at most {first_bytes:,} bytes.")
            else:
                await app(scope, again, send)

    return admit


def _with_checked_bodies(app: ASGIApp, limit: int) -> ASGIApp:
    """``app``, which reads no body of more than ``limit`` bytes, or of very many values."""

    async def pass_on(scope: Scope, receive: Receive, send: Send) -> None:
        too_large = None
        if scope["method"] == "POST":
            too_large, receive = await checked(receive, limit)
        if too_large is None:
            await app(scope, receive, send)
        else:
            sentence = f"{too_large[0].upper()}{too_large[1:]} Send it in several smaller requests."
            await respond(send, 413, sentence)

    return pass_on


def _without_large_messages(app: ASGIApp) -> ASGIApp:
    """``app``, whose sessions keep no large message.

    The SDK's loops hold the last message of a session until the next one comes, so a large one is followed by one that
    says nothing.
    """

    async def pass_on(scope: Scope, receive: Receive, send: Send) -> None:
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return message

        await app(scope, counted, send)
        if received > _KEPT_BYTES:
            headers = [pair for pair in scope["headers"] if pair[0].lower() not in _FRAMED_TWICE]
            length = (b"content-length", str(len(_SAYS_NOTHING)).encode())
            told: list[Message] = [{"type": "http.request", "body": _SAYS_NOTHING}]

            async def quiet() -> Message:
                return told.pop() if told else await receive()

            async def unheard(_message: Message) -> None:
                pass

            await app({**scope, "headers": [*headers, length]}, quiet, unheard)

    return pass_on


def _without_last_event_id(app: ASGIApp) -> ASGIApp:
    """``app``, which is not told since which event somebody asks: none are kept, and the SDK would not answer."""

    async def pass_on(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == _PATH and scope["method"] == "GET":
            scope = {**scope, "headers": [pair for pair in scope["headers"] if pair[0].lower() != b"last-event-id"]}
        await app(scope, receive, send)

    return pass_on


def _with_api(app: ASGIApp, store: ServedStore, settings: HttpConfig, owner: ForOwner | None) -> ASGIApp:
    """The API below ``/api/``, built when it is first asked for, and ``app`` elsewhere.

    Clients that speak MCP alone do not wait until the API's models are built.
    """
    built: ASGIApp | None = None
    building = asyncio.Lock()

    def build() -> ASGIApp:
        from server.http.api import build_api

        return build_api(store, settings.allowed_origins, settings.max_body_bytes, owner)

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal built
        if not scope["path"].startswith(_API):
            await app(scope, receive, send)
            return
        async with building:
            if built is None:
                built = await anyio.to_thread.run_sync(build)
        await built(scope, receive, send)

    return route


class _TooSlow(Exception):
    """A body that does not end."""


class _Boundary:
    """ASGI middleware through which each request gets one answer, and nothing of what broke gets out.

    The SDK's SSE endpoint ends with a second, empty response, and raises after it has refused a request.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        for_page = is_page(scope)
        more = for_page or scope["path"].startswith(_API) or scope["path"] in (LIVE, READY)
        methods = _MORE_METHODS if more else _METHODS
        answer = _Answer(send, is_page=for_page)
        try:
            if scope["method"] not in methods:
                allowed = b", ".join(name.encode() for name in sorted(methods - {"OPTIONS"}))
                await respond(answer.send, 405, "Method Not Allowed", [(b"allow", allowed)])
            elif _head_bytes(scope) > _HEAD_BYTES:  # h11 bounds only what has not come whole yet
                await respond(answer.send, 431, "Request Header Fields Too Large", [(b"connection", b"close")])
            elif {name for name, _ in scope["headers"]} >= _FRAMED_TWICE:
                # A proxy that goes by the other one would take the rest of the body for a request of its own.
                await respond(answer.send, 400, "Bad Request", [(b"connection", b"close")])
            else:
                await self._app(scope, _in_time(receive), answer.send)
        except asyncio.CancelledError:  # the server ends
            await answer.end(503, "The server ends.")
        except StoreBusy:  # nobody can say whether a token holds
            await answer.end(503, "The store does not answer; ask again.", (b"retry-after", b"1"))
        except IssuerUnreachable as error:
            again = str(error.retry_after_seconds).encode()
            await answer.end(503, "The identity provider does not answer; ask again.", (b"retry-after", again))
        except _TooSlow:
            await answer.end(408, "Request Timeout")
        except ClientDisconnect:
            _logger.debug("a client left before its request was whole")
        except Exception as error:  # the edge of the process: a client learns nothing of any error
            if answer.status in (None, 500):  # Starlette answers 500 by itself, then raises
                _logger.error("a request failed: %s", type(error).__name__)
            _logger.debug("a request failed", exc_info=error)
            await answer.end(500, "Internal Server Error")


def _head_bytes(scope: Scope) -> int:
    return (
        len(scope["raw_path"])
        + len(scope["query_string"])
        + sum(len(name) + len(value) for name, value in scope["headers"])
    )


class _Answer:
    """The one response to a request, with the headers that each has."""

    def __init__(self, send: Send, *, is_page: bool) -> None:
        self._send = send
        self._is_page = is_page
        #: What was answered; None before that.
        self.status: int | None = None
        self._ended = False

    async def send(self, message: Message) -> None:
        """Pass on what belongs to the first response."""
        if self._ended or (self.status is not None and message["type"] == "http.response.start"):
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = [] if self._is_page else [(b"cache-control", b"no-store, no-transform")]
            own.append((b"x-content-type-options", b"nosniff"))
            replaced = {name for name, _ in own}
            kept = [header for header in message.get("headers", []) if header[0].lower() not in replaced]
            message = {**message, "headers": [*kept, *own]}
        elif not message.get("more_body", False):
            self._ended = True
        await self._send(message)

    async def end(self, status: int, sentence: str, *headers: tuple[bytes, bytes]) -> None:
        """Answer with ``status`` if nothing was answered yet, and close: the request may never end."""
        if self.status is not None:
            await self.send({"type": "http.response.body", "body": b""})
        else:
            await respond(self.send, status, sentence, [(b"connection", b"close"), *headers])


def _in_time(receive: Receive) -> Receive:
    """``receive`` that gives a body no more than its time, which begins when it is first read."""
    ends_at: float | None = None
    complete = False

    async def receive_in_time() -> Message:
        nonlocal complete, ends_at
        if complete:
            return await receive()
        if ends_at is None:  # what came before was no wait for the client
            ends_at = time.monotonic() + _BODY_SECONDS
        try:
            async with asyncio.timeout(max(0.0, ends_at - time.monotonic())):
                message = await receive()
        except TimeoutError:
            raise _TooSlow from None
        complete = not message.get("more_body", False)
        return message

    return receive_in_time


class _Server(uvicorn.Server):
    """uvicorn's server that ends in time, whatever its worker threads wait for; what was acknowledged is on disk.

    Args:
        config: uvicorn's settings.
        health: Knows which requests run.
        drain_seconds: How long those are waited for after SIGTERM.
        ready: Called once connections are taken and signals are heard.
    """

    def __init__(self, config: uvicorn.Config, health: Health, drain_seconds: float, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._health = health
        self._ready = ready
        self._drain_seconds = drain_seconds
        self._drained_at = 0.0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end, and see to it; the second signal waits for nothing."""
        if sig == signal.SIGTERM and not self._health.draining and not self.should_exit:
            self._drained_at = time.monotonic() + self._drain_seconds
            self._health.draining = True
            return
        if not self.should_exit:
            self._end_soon(128 + sig)
        super().handle_exit(signal.Signals(sig), frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Take connections, and say so."""
        await super().startup(sockets)
        if not self.should_exit:
            self._ready()

    async def on_tick(self, counter: int) -> bool:
        """End once what ran is answered, or had its time."""
        late = time.monotonic() >= self._drained_at
        if self._health.draining and not self.should_exit and (late or self._health.is_idle):
            self._end_soon(0)
            self.should_exit = True
        return await super().on_tick(counter)

    def _end_soon(self, status: int) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it laments each stream that is cut
        last = threading.Timer(END_SECONDS, os._exit, [status])
        last.daemon = True
        last.start()


def serve(
    server: MCPServer[Any],
    host: str,
    port: int,
    tokens: IssuedTokens | None = None,
    settings: HttpConfig = _DEFAULTS,
    *,
    store: ServedStore | None = None,
    spaces: Iterable[str] = (),
    owner_key: str | None = None,
    ready: Callable[[int], None] = lambda _port: None,
) -> None:
    """Serve until interrupted.

    Args:
        server: The MCP server.
        host: Address or name to listen on.
        port: 0 to 65535; 0 takes a free one.
        tokens: Who may come in; None for a server of one, on loopback.
        settings: Names and limits.
        store: What the API and the page show; see ``build_app``.
        spaces: Names of spaces that are in use; see ``ProviderLogin``.
        owner_key: Lets the owner in; see ``TokenCheck``.
        ready: Told the port once connections are taken.

    Raises:
        ConfigInvalid: If ``host`` is not a loopback address and there is no token or no name to be reached by, or
            the port cannot be had.
    """
    local = is_loopback(host)
    if not local:
        _check_exposed(host, tokens, settings)
    for name in _TALKATIVE:
        logging.getLogger(f"mcp.server.{name}").setLevel(logging.CRITICAL)
    # A request that computes gives way sooner to those that wait for the interpreter after each row they read.
    sys.setswitchinterval(_SWITCH_SECONDS)
    with _listener(host, port) as listener:
        bound = int(listener.getsockname()[1])
        login, oauth = None, settings.oauth
        if oauth.issuer and owner_key is None and tokens is not None:  # who has the owner's key needs no other way in
            from server.http.login import open_login

            here = f"http://{f'[{host}]' if ':' in host else host}:{bound}"
            login = open_login(oauth, oauth.url or here, tokens, spaces)
        app = build_app(
            server, host, tokens, settings, required=not local, store=store, owner_key=owner_key, login=login
        )
        config = uvicorn.Config(
            app,
            http=cast(
                "type[asyncio.Protocol]", partial(TimedConnection, connections=Connections(settings.max_connections))
            ),
            ws="none",
            log_level="error",
            access_log=False,
            proxy_headers=False,  # an address that the client itself names is none
            server_header=False,
            h11_max_incomplete_event_size=_HEAD_BYTES,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        _spare_collections()
        _Server(config, app.health, settings.drain_seconds, partial(ready, bound)).run(sockets=[listener])


def _spare_collections() -> None:
    """Let the collector of garbage stop everybody less often, and for less: what is there by now stays anyway."""
    gc.freeze()
    gc.set_threshold(_COLLECTED_FROM, *gc.get_threshold()[1:])


def _check_exposed(host: str, tokens: IssuedTokens | None, settings: HttpConfig) -> None:
    missing = []
    if settings.oauth.issuer and not settings.oauth.url:
        missing.append("name the address by which clients reach it: http.oauth.url")
    if not settings.oauth.issuer and (tokens is None or not tokens.any_live()):
        missing.append("issue a token: runebook token add LABEL")
    if not settings.allowed_hosts and not settings.oauth.url:
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
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            hint = "Name an address of this machine with --host."
        raise ConfigInvalid(f"cannot listen on {host} port {port}: {error}.", hint=hint) from error
