"""Who comes in over HTTP: bearer tokens, checked at each request, and whose memories the request then sees.

Owns the decision "may this request pass, and as whom". The identity travels in the SDK's own context variable, which
its transports carry from a request to the tool that answers it, and by which they bind their sessions and sealed states
to the token that opened them.

The owner may come with a key of this process instead, which opens everything and ends with the process.

Promises: a request without a token that holds learns nothing but that one is needed; a revocation counts from the next
request on, and ends the streams that are open with their next event or ping; trouble with the token table closes the
door. Does not: encrypt. Beyond loopback, TLS is the job of a
reverse proxy.
"""

from __future__ import annotations

import logging
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken

from memory_core.errors import RunebookError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from memory_core.storage.tables.tokens import TokenRow, TokenTable
    from server.http.rates import OpenRequests, RequestRates

_logger = logging.getLogger(__name__)
_TOKEN_CHARS = 256
_USE_NOTED_SECONDS = 60.0
#: How long a stream goes on without another look at its token.
_STREAM_SECONDS = 5.0


class TokenUser(AuthenticatedUser):
    """The bearer of a token, in the form by which the SDK binds sessions to their openers."""

    def __init__(self, row: TokenRow) -> None:
        super().__init__(AccessToken(token="", client_id=row.id, scopes=[], subject=row.user_space))
        self.row = row


def identity() -> TokenRow | None:
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
        tokens: TokenTable | None,
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
        if not self._required and self._tokens is not None and self._tokens.any_issued():
            self._required = True
        return self._required

    def _is_owner(self, scope: Scope) -> bool:
        if self._owner_key is None or (said := _said(scope)) is None:
            return False
        return secrets.compare_digest(said.encode("latin-1"), self._owner_key)

    def _bearer(self, scope: Scope) -> TokenRow | None:
        said = _said(scope)
        return None if self._tokens is None or said is None else self._tokens.verify(said)

    async def _passed(self, scope: Scope, receive: Receive, send: Send, row: TokenRow | None) -> None:
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

    def _note_use(self, row: TokenRow, tokens: TokenTable | None) -> None:
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


def _noting(tokens: TokenTable, row: TokenRow) -> None:
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
