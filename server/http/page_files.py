"""What the page is made of: its files, which anybody may load, and Markdown of memories as HTML that it may show.

The files hold no data and are the same for everybody. They are answered by an app of their own that knows no store
(``with_open_pages``), so a path that passes here can reach nothing else, however it is written.

Whoever wrote a memory may have meant harm: an agent that read a hostile page, or the page itself. So no HTML of a
text is ever HTML of the answer; links go to the web, to a mailbox or to another memory, and nowhere else; pictures are
never loaded, for the address alone would tell somebody that the memory was opened. What ``render`` returns holds no
script, no style, no form, no frame, no picture, no event and no address but those, whatever the text says.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import MutableMapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock, table
from markdown_it.token import Token
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from memory_core.core.errors import InvalidUri
from memory_core.core.memory.uri import SCHEME, MemoryUri, file_of

_STATIC = Path(__file__).parents[1] / "page"
_API_STATIC = Path(__file__).parent / "static"
_API_FILES = {"/api/": "index.html", "/api/page.css": "page.css", "/api/page.js": "page.js"}
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
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
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
_METHODS = frozenset({"GET", "HEAD"})
_PATHS = frozenset({"/", "/api", *_API_FILES})
_BELOW = "/ui/"


def is_page(scope: Scope) -> bool:
    """Whether a request asks for a file of a page."""
    path = scope.get("path", "")
    return scope.get("method") in _METHODS and (path in _PATHS or path.startswith(_BELOW))


def with_open_pages(app: ASGIApp) -> ASGIApp:
    """An app that answers what needs no token, and has ``app`` answer the rest."""
    pages = Router(page_routes())

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await (pages if is_page(scope) else app)(scope, receive, send)

    return answer


def page_routes() -> list[BaseRoute]:
    """``/`` with the page and ``/ui/…`` with its files, ``/api`` with the page about the API; for GET and HEAD."""
    api = [Route(path, _api_file) for path in _API_FILES]
    return [Route("/", _file), Route("/ui/{path:path}", _file), Route("/api", _moved), *api]


async def _moved(_request: Request) -> Response:
    return RedirectResponse("/api/", 308, headers=PAGE_HEADERS)


async def _api_file(request: Request) -> Response:
    found = _API_STATIC / _API_FILES[request.url.path]
    headers = {**PAGE_HEADERS, "cache-control": "no-cache"}
    return Response(found.read_bytes(), headers=headers, media_type=_CONTENT_TYPES[found.suffix])


def static_file(path: str) -> Path | None:
    """The packaged file that ``path`` names, with ``/`` between its parts; None if there is none to be served."""
    parts = path.split("/")
    if not all(_SEGMENT.fullmatch(part) for part in parts):
        return None
    found = _STATIC.joinpath(*parts)
    if found.suffix not in _CONTENT_TYPES or not found.is_file():
        return None
    return found if found.resolve().is_relative_to(_STATIC.resolve()) else None


async def _file(request: Request) -> Response:
    found = static_file(request.path_params.get("path", "index.html"))
    if found is None:
        return PlainTextResponse("There is no such file on this page.\n", 404, headers=PAGE_HEADERS)
    content = found.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {**PAGE_HEADERS, "etag": tag, "cache-control": "no-cache"}
    known = {each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")}
    if known & {tag, "*"}:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=_CONTENT_TYPES[found.suffix])


#: Longer texts are shown as they are: no person reads them for their form.
RENDERED_CHARS = 100_000
_LINKED = re.compile(r"(?:https?://|mailto:|viking://)[^\s]", re.IGNORECASE)
_REL = "noopener noreferrer nofollow"
#: Of markers that open something; a text with more of them is no prose, and could take long.
_MARKERS = re.compile(r"[\[\]!*_~`<>|]")
_MARKERS_MOST = 20_000
_NESTING = 24
_CELLS_MOST = 10_000
_SIDES = frozenset({"left", "center", "right"})


def render(text: str) -> str:
    """A text's Markdown (CommonMark, tables, strikethrough) as HTML.

    Args:
        text: Any text. What is too long, or too full of markers, is shown as it is, without form; so is a text whose
            links are longer in all, for the address and title of one definition come again in each link to it, and one
            with very many cells in its tables, for those that a row leaves out are made.
    """
    if len(text) > RENDERED_CHARS or len(_MARKERS.findall(text)) > _MARKERS_MOST:
        return plain(text)
    env: dict[str, Any] = {}
    try:
        tokens = _MARKDOWN.parse(text, env)
    except _TooManyCells:
        return plain(text)
    links = (link.attrs for token in tokens for link in token.children or ())
    if sum(len(str(value)) for attrs in links for value in attrs.values()) > RENDERED_CHARS:
        return plain(text)
    html: str = _MARKDOWN.renderer.render(tokens, _MARKDOWN.options, env)
    return html


def plain(text: str) -> str:
    """A text as it is, in a block that keeps its lines."""
    return f"<pre>{escapeHtml(text)}</pre>\n"


def place(uri: MemoryUri) -> str:
    """Where the page shows a memory: ``#/memory/…``, each part percent-encoded."""
    return "#/memory/" + "/".join(quote(part, safe="") for part in uri.parts)


def _may_link(url: str) -> bool:
    return _LINKED.match(url) is not None


def _link_open(
    renderer: RendererHTML, tokens: Sequence[Token], at: int, options: Any, env: MutableMapping[str, Any]
) -> str:
    token = tokens[at]
    href = str(token.attrGet("href") or "")
    token.attrs = {name: value for name, value in token.attrs.items() if name == "title"}
    if href[: len(SCHEME)].lower() == SCHEME:
        with suppress(InvalidUri):  # a link to nowhere: its words stay
            token.attrSet("href", place(MemoryUri.parse(file_of(SCHEME + unquote(href[len(SCHEME) :])))))
    elif _may_link(href):
        token.attrs |= {"href": href, "rel": _REL, "target": "_blank"}
    return renderer.renderToken(tokens, at, options, env)


def _image(
    renderer: RendererHTML, tokens: Sequence[Token], at: int, options: Any, env: MutableMapping[str, Any]
) -> str:
    token = tokens[at]
    alt = renderer.renderInlineAsText(token.children or [], options, env)
    source = str(token.attrGet("src") or "")
    return f'<span class="picture">{escapeHtml(alt)} <code>{escapeHtml(source)}</code></span>'


def _cell_open(
    renderer: RendererHTML, tokens: Sequence[Token], at: int, options: Any, env: MutableMapping[str, Any]
) -> str:
    """A table's cell; how it is aligned is said by a class, for the page allows no inline style."""
    token = tokens[at]
    side = str(token.attrGet("style") or "").rpartition(":")[2]
    token.attrs = {"class": f"align-{side}"} if side in _SIDES else {}
    return renderer.renderToken(tokens, at, options, env)


class _TooManyCells(Exception):
    """A text's tables are larger than any that a person reads."""


def _table(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """A table, as the rule of the library makes it, until all tables of a text have too many cells."""
    before = len(state.tokens)
    is_table = table(state, first, last, silent)
    state.env["cells"] = state.env.get("cells", 0) + sum(token.type == "td_open" for token in state.tokens[before:])
    if state.env["cells"] > _CELLS_MOST:
        raise _TooManyCells
    return is_table


def _markdown() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False, "linkify": False, "maxNesting": _NESTING})
    markdown.enable(["table", "strikethrough"])
    markdown.block.ruler.at("table", _table, {"alt": ["paragraph", "reference"]})
    markdown.validateLink = _may_link  # type: ignore[method-assign]  # it is called with the URL alone
    markdown.add_render_rule("link_open", _link_open)
    markdown.add_render_rule("image", _image)
    for cell in ("th_open", "td_open"):
        markdown.add_render_rule(cell, _cell_open)
    return markdown


_MARKDOWN = _markdown()
