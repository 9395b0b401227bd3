"""From where requests may come: the names in Host and Origin headers, and CORS for pages that the owner allows.

A web page can make a browser call any address, by a name of its own that resolves to this machine too. So every path is
closed to names that are not the server's: 421 for a foreign Host, 403 for a foreign Origin, before anything else is
looked at. The comparison is the SDK's.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.requests import Request

from memory_core.core.errors import RunebookError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from memory_core.core.store.issued_tokens import IssuedToken, IssuedTokens
    from server.http.rate_limits import OpenRequests, RequestRates


_logger = logging.getLogger(__name__)
_TOKEN_CHARS = 256
_USE_NOTED_SECONDS = 60.0
#: How long a stream goes on without another look at its token.
_STREAM_SECONDS = 5.0


class TokenUser(AuthenticatedUser):
    """The bearer of a token, in the form by which the SDK binds sessions to their openers."""

    def __init__(self, row: IssuedToken) -> None:
        super().__init__(AccessToken(token="", client_id=row.id, scopes=[], subject=row.user_space))
        self.row = row


def identity() -> IssuedToken | None:
    """The token of the request that is being answered; None for the owner on stdio or an open loopback server."""
    user = auth_context_var.get()
    return user.row if isinstance(user, TokenUser) else None


class TokenCheck:
    """ASGI middleware that lets bearers of tokens in, and anybody while none are needed.

    Args:
        app: What is behind the door.
        tokens: The token table; None holds none.
        required: Tokens are needed even where none was issued.
        rates: How often one may call.
        open_requests: How many requests and streams one may hold open.
        owner_key: What lets the owner in without a token; then one of the two is always needed. None is no such key.
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
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._owner_key = None if owner_key is None else owner_key.encode()
        self._required = required or owner_key is not None
        self._rates = rates
        self._open = open_requests
        self._noted: dict[str, float] = {}
        self._clerk = ThreadPoolExecutor(1, thread_name_prefix="runebook-token")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request pass as whoever it is, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._is_owner(scope):
            await self._passed(scope, receive, send, None)
            return
        row = self._bearer(scope)
        if row is None and not self._needed():
            await self._passed(scope, receive, send, None)
            return
        # The bucket of an address is that of guesses only: nobody can use up what belongs to a token.
        key = f"address {(scope.get('client') or ('',))[0]}" if row is None else f"token {row.id}"
        wait_seconds = self._rates.take(key)
        if wait_seconds:
            await refuse(send, 429, "Too many requests.", [(b"retry-after", str(wait_seconds).encode())])
        elif row is None:
            await refuse(send, 401, "A token is needed.", [(b"www-authenticate", b"Bearer")])
        else:
            with self._open.one_more(key) as admitted:
                if admitted:
                    self._note_use(row, self._tokens)
                    await self._passed(scope, receive, self._while_it_holds(scope, send), row)
                else:
                    await refuse(send, 429, "Too many open requests.", [(b"retry-after", b"5")])

    def close(self) -> None:
        """Finish what is being noted."""
        self._clerk.shutdown(cancel_futures=True)

    def _needed(self) -> bool:
        # Once needed, always: revoking the last token must not open the door of a running server.
        if not self._required and self._tokens is not None and self._tokens.any_in_force():
            self._required = True
        return self._required

    def _is_owner(self, scope: Scope) -> bool:
        if self._owner_key is None or (said := _said(scope)) is None:
            return False
        return secrets.compare_digest(said.encode("latin-1"), self._owner_key)

    def _bearer(self, scope: Scope) -> IssuedToken | None:
        said = _said(scope)
        return None if self._tokens is None or said is None else self._tokens.verify(said)

    async def _passed(self, scope: Scope, receive: Receive, send: Send, row: IssuedToken | None) -> None:
        # Set for nobody too: the task of a pipelined request inherits the context of the one before.
        user = None if row is None else TokenUser(row)
        if user is not None:
            scope["user"] = user
        reset = auth_context_var.set(user)
        try:
            await self._app(scope, receive, send)
        finally:
            auth_context_var.reset(reset)

    def _while_it_holds(self, scope: Scope, send: Send) -> Send:
        """``send`` that ends a stream once its token is refused."""
        looked_at = time.monotonic()

        async def send_while_it_holds(message: Message) -> None:
            nonlocal looked_at
            now = time.monotonic()
            if message.get("more_body", False) and now - looked_at >= _STREAM_SECONDS:
                looked_at = now
                if self._bearer(scope) is None:
                    message = {"type": "http.response.body", "body": b""}
            await send(message)

        return send_while_it_holds

    def _note_use(self, row: IssuedToken, tokens: IssuedTokens | None) -> None:
        """In its own thread: a writer may hold the ledger for a while."""
        now = time.monotonic()
        if tokens is not None and now - self._noted.get(row.id, -_USE_NOTED_SECONDS) >= _USE_NOTED_SECONDS:
            self._noted[row.id] = now
            self._clerk.submit(_noting, tokens, row)


def _said(scope: Scope) -> str | None:
    """What stands in the one header that says who asks; None where there is no such header, or none that counts."""
    said = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(said) != 1 or len(said[0]) > _TOKEN_CHARS:
        return None
    scheme, _, token = said[0].decode("latin-1").partition(" ")
    return token.strip(" ") if scheme.lower() == "bearer" else None


def _noting(tokens: IssuedTokens, row: IssuedToken) -> None:
    try:
        tokens.note_use(row)
    except RunebookError as error:
        _logger.debug("the use of a token was not noted: %s", error.message)


async def refuse(send: Send, status: int, said: str, headers: list[tuple[bytes, bytes]]) -> None:
    """Answer with a status and a sentence, and nothing else."""
    body = said.encode()
    described = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*described, *headers]})
    await send({"type": "http.response.body", "body": body})


LOOPBACK = ("127.0.0.1", "localhost", "::1")
_LOOPBACK_NAMES = ("127.0.0.1:*", "localhost:*", "[::1]:*")
_LOOPBACK_HOSTS = (*_LOOPBACK_NAMES, "127.0.0.1", "localhost", "[::1]")
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
    local = host in LOOPBACK
    named = [form for name in hosts for form in ([name] if _has_port(name) else [name, f"{name}:*"])]
    return TransportSecuritySettings(
        allowed_hosts=[*(_LOOPBACK_HOSTS if local else ()), *named],
        allowed_origins=[*([f"http://{name}" for name in _LOOPBACK_NAMES] if local else ()), *origins],
    )


class OriginCheck:
    """ASGI middleware that refuses foreign names on every path, and speaks CORS with the owner's pages.

    Args:
        app: What is behind it.
        allowed: See ``transport_security``.
        shared: Origins whose pages may read the answers.
    """

    def __init__(self, app: ASGIApp, allowed: TransportSecuritySettings, shared: Sequence[str]) -> None:
        self._app = app
        self._check = TransportSecurityMiddleware(allowed)
        self._shared = frozenset(shared)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request pass, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = await self._check.validate_request(Request(scope))
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if refusal is not None:
            await refusal(scope, receive, send)
        elif origin is None or origin not in self._shared:
            await self._app(scope, receive, send)
        elif scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await refuse(send, 204, "", [*_sharing(origin), *_preflight(headers)])
        else:
            await self._app(scope, receive, _shared_with(origin, send))


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


def _shared_with(origin: str, send: Send) -> Send:
    async def sharing(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *_sharing(origin)]}
        await send(message)

    return sharing
