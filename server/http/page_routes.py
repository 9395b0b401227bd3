"""What anybody may load without a token: the files of the page, and the page about the API.

They hold no data and are the same for everybody. They are answered by an app of their own that knows no store, so a
path that passes here can reach nothing else, however it is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette

from server.api.page import page_routes
from server.http.page_files import inspector_routes

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


_METHODS = frozenset({"GET", "HEAD"})
_PATHS = frozenset({"/", "/api", "/api/", "/api/page.css", "/api/page.js"})
_BELOW = "/ui/"


def is_page(scope: Scope) -> bool:
    """Whether a request asks for a file of a page."""
    path = scope.get("path", "")
    return scope.get("method") in _METHODS and (path in _PATHS or path.startswith(_BELOW))


class OpenPages:
    """ASGI middleware that answers what needs no token, and passes on the rest.

    Args:
        app: What is behind it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._pages = Starlette(routes=[*inspector_routes(), *page_routes()])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or pass it on."""
        if scope["type"] == "http" and is_page(scope):
            await self._pages(scope, receive, send)
        else:
            await self._app(scope, receive, send)
