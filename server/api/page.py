"""``/api/``: the API's description as a page that a person can read, drawn from ``openapi.json``.

Its three files lie in ``static/`` and hold no data; nothing is loaded from elsewhere.
"""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from server.http.page_files import PAGE_HEADERS

_STATIC = Path(__file__).parent / "static"
_FILES = {
    "/api/": ("index.html", "text/html; charset=utf-8"),
    "/api/page.css": ("page.css", "text/css; charset=utf-8"),
    "/api/page.js": ("page.js", "text/javascript; charset=utf-8"),
}


def page_routes() -> list[BaseRoute]:
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
