"""Sessions of streamable HTTP, shared out: no token can open so many that others find no room.

The session manager of the SDK bounds them all together, and knows whose each is. Since 2026-07-28 there are none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, authorization_context
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers

from server.http.access import refuse

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from starlette.types import ASGIApp, Receive, Scope, Send


class SessionShare:
    """ASGI middleware that refuses a token its next session while it has its share.

    Args:
        app: What is behind it; ``scope["user"]`` says who asks.
        sessions: Holds the open sessions.
        path: Where sessions are opened.
        limit: Open at once, a token.
    """

    def __init__(self, app: ASGIApp, sessions: StreamableHTTPSessionManager, path: str, limit: int) -> None:
        self._app = app
        self._sessions = sessions
        self._path = path
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request pass, or refuse it."""
        if self._opens(scope) and self._held(scope) >= self._limit:
            await refuse(send, 429, "Too many open sessions.", [(b"retry-after", b"60")])
        else:
            await self._app(scope, receive, send)

    def _opens(self, scope: Scope) -> bool:
        if scope["type"] != "http" or scope["path"] != self._path:
            return False
        headers = Headers(scope=scope)
        version = headers.get("mcp-protocol-version")
        return "mcp-session-id" not in headers and (version is None or version in HANDSHAKE_PROTOCOL_VERSIONS)

    def _held(self, scope: Scope) -> int:
        user = scope.get("user")
        if not isinstance(user, AuthenticatedUser):
            return 0
        asking = authorization_context(user)
        return sum(owner == asking for owner in self._sessions._session_owners.values())  # SDK has no public way to it
