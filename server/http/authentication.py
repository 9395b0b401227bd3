"""Who asks, and from where: tokens, the names in Host and Origin headers, and CORS for pages that the owner allows.

A token is one of ``runebook token``, or an access token of OAuth (``login``). In a database a thread looks it up:
one that is gone lets a look-up wait, and must not let the others wait with it.

A web page can make a browser call any address, by a name of its own that resolves to this machine too. So every path is
closed to names that are not the server's: 421 for a foreign Host, 403 for a foreign Origin, before anything else is
looked at. The comparison is the SDK's.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.requests import Request

from memory_core.core.config import is_loopback
from memory_core.core.errors import RunebookError, StoreBusy
from memory_core.core.frozen import frozen
from server.foreign_json import json_value, value_at
from server.http.connections import connection_of, peeked

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from memory_core.core.store.issued_tokens import IssuedToken, IssuedTokens, SharedSpace
    from server.http.login import Login
    from server.http.rate_limits import OpenRequests, RequestRates


_logger = logging.getLogger(__name__)
T = TypeVar("T")
_TOKEN_CHARS = 256
_ACCESS_TOKEN_CHARS = 16_384
#: Looks into the store at once, and how long one may take.
_LOOKUPS = 16
_LOOKUP_SECONDS = 10.0
_SUBSCRIBER_BITS = 64
_MCP_PATHS = ("/mcp", "/messages/")
_CALL_BYTES = 262_144
_WRITING_TOOL = "commit_memory"
_USE_NOTED_SECONDS = 60.0
#: How long a stream goes on without another look at its token.
_STREAM_SECONDS = 5.0
#: A refusal for asking too often comes after so long.
_REFUSAL_SECONDS = 0.5


@frozen
class Bearer:
    """Whoever shows a token, of either kind.

    Attributes:
        id: What limits, sessions and connections are counted by.
        label: What history calls them.
        user_space: Whose memories they see.
        agent_space: Which agent's memories they see.
        read_only: Whether they may not write.
        may_read: Whether they may see anything at all.
        shared: Spaces that they see beside their own.
        step_up: What ``WWW-Authenticate`` says where a further scope would let them do it; empty where none would.
    """

    id: str
    label: str
    user_space: str
    agent_space: str
    read_only: bool
    may_read: bool = True
    step_up: str = ""
    shared: tuple[SharedSpace, ...] = ()


class TokenUser(AuthenticatedUser):
    """The bearer of a token, in the form by which the SDK binds sessions to their openers."""

    def __init__(self, bearer: Bearer) -> None:
        super().__init__(AccessToken(token="", client_id=bearer.id, scopes=[], subject=bearer.user_space))
        self.bearer = bearer


def identity() -> Bearer | None:
    """Who asks what is being answered; None for the owner on stdio or an open loopback server."""
    user = auth_context_var.get()
    return user.bearer if isinstance(user, TokenUser) else None


def bearer_id() -> str:
    """What whoever asks is counted by; empty for the owner."""
    bearer = identity()
    return "" if bearer is None else bearer.id


def bearer_of(row: IssuedToken, **rights: Any) -> Bearer:
    """The bearer of an issued token, with these members of ``Bearer``."""
    return Bearer(row.id, row.label, row.user_space, row.agent_space, shared=row.shared, **rights)


class Lookups:
    """Looks into the store: beside all else that runs, where a look may have to wait.

    Args:
        is_remote: Whether every look may have to wait; otherwise only those that write.
    """

    def __init__(self, *, is_remote: bool) -> None:
        self._is_remote = is_remote
        self._limit = anyio.CapacityLimiter(_LOOKUPS)

    async def __call__(self, look: Callable[[], T], *, writes: bool = False) -> T:
        """What a look finds.

        Raises:
            StoreBusy: If the store does not answer in time.
        """
        if not self._is_remote and not writes:
            return look()
        try:
            with anyio.fail_after(_LOOKUP_SECONDS):
                return await anyio.to_thread.run_sync(look, abandon_on_cancel=True, limiter=self._limit)
        except TimeoutError as error:
            raise StoreBusy("the store does not answer.", hint="Ask again.") from error


def address_of(scope: Scope) -> str:
    """What requests without a token are counted by: an address, of IPv6 the network that one subscriber has whole."""
    host = str((scope.get("client") or ("",))[0])
    if ":" in host:
        with suppress(ValueError):
            address = ipaddress.IPv6Address(host.partition("%")[0])
            host = str(address.ipv4_mapped or ipaddress.IPv6Network((address, _SUBSCRIBER_BITS), strict=False))
    return f"address {host}"


class TokenCheck:
    """ASGI middleware that lets bearers of tokens in, and while none are needed the server's own user.

    Args:
        app: What is behind the door.
        tokens: The token table; None holds none.
        required: Tokens are needed even where none was issued.
        rates: How often one may call.
        open_requests: How many requests and streams one may hold open.
        owner_key: What lets the owner in without a token; then one of the two is always needed. None: there is
            no such key.
        login: Knows access tokens of OAuth; then a token is always needed. None knows none.
        open_to_all: While no token is needed, other users of this machine come in, too.
    """

    def __init__(
        self,
        app: ASGIApp,
        tokens: IssuedTokens | None,
        *,
        required: bool,
        rates: RequestRates,
        open_requests: OpenRequests,
        owner_key: str | None = None,
        login: Login | None = None,
        open_to_all: bool = False,
    ) -> None:
        self._app = app
        self._open_to_all = open_to_all
        self._tokens = tokens
        self._owner_key = None if owner_key is None else owner_key.encode()
        self._login = login
        self._token_chars = _TOKEN_CHARS if login is None else _ACCESS_TOKEN_CHARS
        self._required = required or owner_key is not None or login is not None
        self._rates = rates
        self._open = open_requests
        self._noted: dict[str, float] = {}
        self._clerk = ThreadPoolExecutor(1, thread_name_prefix="runebook-token")
        self._look = Lookups(is_remote=tokens is not None and tokens.database.is_remote)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request pass as whoever it is, or refuse it."""
        token = _shown_token(scope, self._token_chars)
        if self._is_owner(token):
            await self._passed(scope, receive, send, None)
            return
        # The bucket of an address is that of guesses only: nobody can use up what belongs to a token.
        key, wait_seconds, found = address_of(scope), 0, await self._issued(token)
        if found is None and token is not None and self._login is not None:
            if self._login.is_costly(token):
                wait_seconds = self._rates.take(key, count=False)
            if not wait_seconds:
                found = await self._login.bearer(token, scope.get("path", ""))
        if found is None and not await self._needed() and await self._may_come_without(scope):
            await self._passed(scope, receive, _while_it_holds(send, self._is_open), None)
            return
        key = key if found is None else f"token {found.id}"
        wait_seconds = wait_seconds or self._rates.take(key)
        if wait_seconds:
            with self._open.one_more(key) as held:  # who asks again at once is told so twice a second
                await anyio.sleep(_REFUSAL_SECONDS if held else 0)
            await respond(send, 429, "Too many requests.", [(b"retry-after", str(wait_seconds).encode())])
        elif found is None:
            await self._refuse_stranger(scope, send, wrong=token is not None)
        elif not found.may_read:
            await _refuse_scope(send, found)
        else:
            with self._open.one_more(key) as admitted:
                if admitted:
                    await self._admitted(scope, receive, send, found)
                else:
                    await respond(send, 429, "Too many open requests.", [(b"retry-after", b"5")])

    def close(self) -> None:
        """Finish what is being noted."""
        self._clerk.shutdown(cancel_futures=True)

    async def _refuse_stranger(self, scope: Scope, send: Send, *, wrong: bool) -> None:
        challenge, more = "Bearer", []
        if self._login is not None:
            challenge = self._login.challenge(scope["path"], wrong=wrong)
            if self._login.has_page and scope["path"].startswith("/api/"):
                more = [(b"link", b'</login>; rel="login"')]  # the page offers it
        await respond(send, 401, "A token is needed.", [(b"www-authenticate", challenge.encode()), *more])

    async def _admitted(self, scope: Scope, receive: Receive, send: Send, bearer: Bearer) -> None:
        if bearer.read_only and bearer.step_up and scope["method"] == "POST" and scope["path"].startswith(_MCP_PATHS):
            # It has no turn yet, so little is held and read; of a longer call the tool says that it may only read.
            body, receive = await peeked(receive, _CALL_BYTES)
            if body is not None and _commits(body):
                await _refuse_scope(send, bearer)
                return
        holds = partial(self._holds, _shown_token(scope, self._token_chars), scope.get("path", ""))
        await self._passed(scope, receive, _while_it_holds(send, holds), bearer)

    async def _holds(self, token: str | None, path: str) -> bool:
        found = await self._issued(token)
        if found is None and token is not None and self._login is not None:
            found = await self._login.bearer(token, path)
        return found is not None

    async def _is_open(self) -> bool:
        return not await self._needed()

    async def _needed(self) -> bool:
        # Once needed, always: revoking the last token must not open the door of a running server.
        if not self._required and self._tokens is not None and await self._look(self._tokens.any_unrevoked):
            self._required = True
        return self._required

    async def _may_come_without(self, scope: Scope) -> bool:
        if self._open_to_all:
            return True
        connection = connection_of(scope)
        return connection is not None and await connection.comes_from_owner()

    def _is_owner(self, token: str | None) -> bool:
        if self._owner_key is None or token is None:
            return False
        return secrets.compare_digest(token.encode("latin-1"), self._owner_key)

    async def _issued(self, token: str | None) -> Bearer | None:
        """The bearer of a token of ``runebook token``."""
        if token is not None and self._tokens is not None and len(token) <= _TOKEN_CHARS:
            row = await self._look(partial(self._tokens.verify, token))
            if row is not None:
                self._note_use(row, self._tokens)
                return bearer_of(row, read_only=row.read_only)
        return None

    async def _passed(self, scope: Scope, receive: Receive, send: Send, bearer: Bearer | None) -> None:
        connection = connection_of(scope)
        if connection is not None and not connection.belongs_to("" if bearer is None else bearer.id):
            await respond(send, 503, "Too many connections.", [(b"retry-after", b"5"), (b"connection", b"close")])
            return
        # Set for nobody too: the task of a pipelined request inherits the context of the one before.
        user = None if bearer is None else TokenUser(bearer)
        if user is not None:
            scope["user"] = user
        reset = auth_context_var.set(user)
        try:
            await self._app(scope, receive, send)
        finally:
            auth_context_var.reset(reset)

    def _note_use(self, row: IssuedToken, tokens: IssuedTokens) -> None:
        """In its own thread: a writer may hold the ledger for a while."""
        now = time.monotonic()
        if now - self._noted.get(row.id, -_USE_NOTED_SECONDS) >= _USE_NOTED_SECONDS:
            self._noted[row.id] = now
            self._clerk.submit(_noting, tokens, row)


def _shown_token(scope: Scope, longest: int) -> str | None:
    """What stands in the one header that says who asks; None where there is no such header, or none that counts."""
    values = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(values) != 1 or len(values[0]) > longest:
        return None
    scheme, _, token = values[0].decode("latin-1").partition(" ")
    return token.strip(" ") if scheme.lower() == "bearer" else None


def _while_it_holds(send: Send, holds: Callable[[], Awaitable[bool]]) -> Send:
    """``send`` that ends a stream once that by which it was opened does not hold."""
    looked_at = time.monotonic()

    async def send_while_it_holds(message: Message) -> None:
        nonlocal looked_at
        now = time.monotonic()
        if message.get("more_body", False) and now - looked_at >= _STREAM_SECONDS:
            looked_at = now
            if not await holds():
                message = {"type": "http.response.body", "body": b""}
        await send(message)

    return send_while_it_holds


def _noting(tokens: IssuedTokens, row: IssuedToken) -> None:
    try:
        tokens.note_use(row)
    except RunebookError as error:
        _logger.debug("the use of a token was not noted: %s", error.message)


def _commits(body: bytes) -> bool:
    """Whether a body holds a call of the tool that writes."""
    value = json_value(body)
    messages = value if isinstance(value, list) else [value]
    calls = (message for message in messages if value_at(message, ("method",)) == "tools/call")
    return any(value_at(call, ("params", "name")) == _WRITING_TOOL for call in calls)


async def _refuse_scope(send: Send, bearer: Bearer) -> None:
    challenge = [(b"www-authenticate", bearer.step_up.encode())] if bearer.step_up else []
    await respond(send, 403, "The token does not allow this.", challenge)


async def respond(send: Send, status: int, sentence: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    """Answer with a status and a sentence, and nothing else."""
    body = sentence.encode()
    described = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*described, *headers]})
    await send({"type": "http.response.body", "body": body})


def with_headers(send: Send, headers: Sequence[tuple[bytes, bytes]]) -> Send:
    """``send`` that adds headers to the response."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *headers]}
        await send(message)

    return send_with_headers


LOOPBACK = ("127.0.0.1", "localhost", "::1")
_LOOPBACK_NAMES = ("127.0.0.1:*", "localhost:*", "[::1]:*")
_ADDRESS = re.compile(r"(?:[a-z][a-z0-9+.-]*://)?(?:\[[^\[\]/]+\]|[^\[\]:/]+)(?::[0-9]{1,5})?", re.IGNORECASE)
_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE"
_ASKED_HEADERS = 1_024
_ANSWER_HEADERS = b"mcp-session-id, mcp-protocol-version, www-authenticate, retry-after, etag"


def transport_security(host: str, hosts: Sequence[str], origins: Sequence[str]) -> TransportSecuritySettings:
    """The names by which clients may call a server that listens on ``host``.

    Args:
        host: On loopback its names are allowed, and pages of this machine, whatever their port.
        hosts: Further names; one without a port stands for every port.
        origins: Further origins.
    """
    own = f"[{host}]" if ":" in host else host
    local = tuple(dict.fromkeys((*_LOOPBACK_NAMES, f"{own}:*"))) if is_loopback(host) else ()
    named = [form for name in hosts for form in ([name] if _has_port(name) else [name, f"{name}:*"])]
    return TransportSecuritySettings(
        allowed_hosts=[*local, *(name.removesuffix(":*") for name in local), *named],
        allowed_origins=[*(f"http://{name}" for name in local), *origins],
    )


class OriginCheck:
    """ASGI middleware that refuses foreign names on every path, and speaks CORS with the owner's pages.

    Args:
        app: What is behind it.
        allowed: See ``transport_security``.
        allowed_origins: Whose pages may read the answers.
    """

    def __init__(self, app: ASGIApp, allowed: TransportSecuritySettings, allowed_origins: Sequence[str]) -> None:
        self._app = app
        self._check = TransportSecurityMiddleware(allowed)
        self._hosts, self._origins = frozenset(allowed.allowed_hosts), frozenset(allowed.allowed_origins)
        self._allowed_origins = frozenset(allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request pass, or refuse it."""
        refusal = await self._check.validate_request(Request(scope))
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if refusal is not None:
            await refusal(scope, receive, send)
        elif not _has_sound_port(headers.get("host", ""), self._hosts):
            await respond(send, 421, "Invalid Host header")
        elif origin is not None and not _has_sound_port(origin, self._origins):
            await respond(send, 403, "Invalid Origin header")
        elif origin is None or origin not in self._allowed_origins:
            await self._app(scope, receive, send)
        elif scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await respond(send, 204, "", [*_sharing(origin), *_preflight(headers)])
        else:
            await self._app(scope, receive, with_headers(send, _sharing(origin)))


def _has_sound_port(name: str, exact: Collection[str]) -> bool:
    """Whether what stands behind the name is a port: to the pattern ``localhost:*`` anything is."""
    return name in exact or _ADDRESS.fullmatch(name) is not None


def _has_port(name: str) -> bool:
    return name.rpartition(":")[2].isdecimal() and not name.endswith("]") if ":" in name else False


def _sharing(origin: str) -> list[tuple[bytes, bytes]]:
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", _ANSWER_HEADERS),
        (b"vary", b"Origin"),
    ]


def _preflight(headers: Headers) -> list[tuple[bytes, bytes]]:
    # The page is trusted, so it may send whatever headers its protocol version has.
    asked = headers.get("access-control-request-headers", "")[:_ASKED_HEADERS]
    return [
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", asked.encode("latin-1")),
        (b"access-control-max-age", b"600"),
    ]
