"""The page's files: HTML, CSS, JavaScript modules and texts, served as they lie in the package.

Owns which of them are served, as what, and the headers that keep the page to itself: it loads nothing from elsewhere,
runs no script but its own files, and cannot be framed. The files hold no data, so they need no token; what the page
shows comes from ``/api``.

Promises: only files under ``static/`` with a known ending are served, whatever the path says; an unchanged file is
answered with 304. Does not: render anything, or know of memories.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

_STATIC = Path(__file__).parent / "static"
_START = "index.html"
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
#: The operating system's own table may call a script "text/plain", which a browser then refuses to run.
_CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
#: On every answer of the page, the refusals too.
PAGE_HEADERS = {
    "content-security-policy": _POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


def inspector_routes() -> list[BaseRoute]:
    """``/`` with the page and ``/ui/…`` with its files, for GET and HEAD."""
    return [
        Route("/", _start, methods=["GET", "HEAD"], include_in_schema=False),
        Route("/ui/{path:path}", _file, methods=["GET", "HEAD"], include_in_schema=False),
    ]


def static_file(path: str) -> Path | None:
    """The packaged file that ``path`` names, with ``/`` between its parts; None if there is none to be served."""
    parts = path.split("/")
    if not all(_SEGMENT.fullmatch(part) for part in parts):
        return None
    found = _STATIC.joinpath(*parts)
    if found.suffix not in _CONTENT_TYPES or not found.is_file():
        return None
    return found if found.resolve().is_relative_to(_STATIC.resolve()) else None


async def _start(request: Request) -> Response:
    return _response(request, _START)


async def _file(request: Request) -> Response:
    return _response(request, request.path_params["path"])


def _response(request: Request, path: str) -> Response:
    found = static_file(path)
    if found is None:
        return PlainTextResponse("There is no such file on this page.\n", 404, headers=PAGE_HEADERS)
    content = found.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {**PAGE_HEADERS, "etag": tag, "cache-control": "no-cache"}
    if _holds(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=_CONTENT_TYPES[found.suffix])


def _holds(given: str, tag: str) -> bool:
    tags = {part.strip().removeprefix("W/") for part in given.split(",")}
    return tag in tags or "*" in tags
