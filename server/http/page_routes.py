"""What anybody may load without a token: the files of the page, and the page about the API.

They hold no data and are the same for everybody. They are answered by an app of their own that knows no store, so a
path that passes here can reach nothing else, however it is written.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from server.http.page_files import PAGE_HEADERS, inspector_routes

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
        self._pages = Starlette(routes=[*inspector_routes(), *_api_page_routes()])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or pass it on."""
        if scope["type"] == "http" and is_page(scope):
            await self._pages(scope, receive, send)
        else:
            await self._app(scope, receive, send)


_STATIC = Path(__file__).parent / "static"
_FILES = {
    "/api/": ("index.html", "text/html; charset=utf-8"),
    "/api/page.css": ("page.css", "text/css; charset=utf-8"),
    "/api/page.js": ("page.js", "text/javascript; charset=utf-8"),
}


def _api_page_routes() -> list[BaseRoute]:
    """The page and its files, for GET and HEAD."""
    return [
        Route("/api", _moved, methods=["GET", "HEAD"], include_in_schema=False),
        *(Route(path, _file, methods=["GET", "HEAD"], include_in_schema=False) for path in _FILES),
    ]


async def _moved(_request: Request) -> Response:
    return RedirectResponse("/api/", 308, headers=PAGE_HEADERS)


async def _file(request: Request) -> Response:
    name, media_type = _FILES[request.url.path]
    content = (_STATIC / name).read_bytes()
    return Response(content, headers={**PAGE_HEADERS, "cache-control": "no-cache"}, media_type=media_type)
