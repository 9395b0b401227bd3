"""Markdown of memories as HTML that a page may show as it is.

Whoever wrote a memory may have meant harm: an agent that read a hostile page, or the page itself. So no HTML of a
text is ever HTML of the answer; links go to the web, to a mailbox or to another memory, and nowhere else; pictures are
never loaded, for the address alone would tell somebody that the memory was opened.

Promises: what is returned holds no script, no style, no form, no frame, no picture, no event and no address but those,
whatever the text says. Does not: highlight code, or number headings.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from memory_core.errors import InvalidUri
from memory_core.model.uri import SCHEME, MemoryUri

#: Longer texts are shown as they are: no person reads them for their form.
RENDERED_CHARS = 100_000
_LINKED = re.compile(r"(?:https?://|mailto:|viking://)[^\s]", re.IGNORECASE)
_REL = "noopener noreferrer nofollow"
#: Of markers that open something; a text with more of them is no prose, and could take long.
_MARKERS = re.compile(r"[\[\]!*_~`<>|]")
_MARKERS_MOST = 20_000
_NESTING = 24
_SIDES = frozenset({"left", "center", "right"})


def render(text: str) -> str:
    """A text's Markdown (CommonMark, tables, strikethrough) as HTML.

    Args:
        text: Any text. What is too long, or too full of markers, is shown as it is, without form.
    """
    if len(text) > RENDERED_CHARS or len(_MARKERS.findall(text)) > _MARKERS_MOST:
        return plain(text)
    html: str = _MARKDOWN.render(text)
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
            token.attrSet("href", place(MemoryUri.parse(SCHEME + unquote(href[len(SCHEME) :]).partition("#")[0])))
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


def _markdown() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False, "linkify": False, "maxNesting": _NESTING})
    markdown.enable(["table", "strikethrough"])
    markdown.validateLink = _may_link  # type: ignore[method-assign]  # it is called with the URL alone
    markdown.add_render_rule("link_open", _link_open)
    markdown.add_render_rule("image", _image)
    for cell in ("th_open", "td_open"):
        markdown.add_render_rule(cell, _cell_open)
    return markdown


_MARKDOWN = _markdown()
