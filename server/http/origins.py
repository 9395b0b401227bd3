"""From where requests may come: the names in Host and Origin headers, and CORS for pages that the owner allows.

A web page can make a browser call any address, by a name of its own that resolves to this machine too. So every path is
closed to names that are not the server's: 421 for a foreign Host, 403 for a foreign Origin, before anything else is
looked at. The comparison is the SDK's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.requests import Request

from server.http.access import refuse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
