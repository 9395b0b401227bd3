"""Who calls the API, and what every request must pass before a route sees it.

Owns the ASGI layer around the API: requests only from the server's own pages or from no page at all, changes only as
JSON, bodies of bounded size, HEAD as GET without a body, the name under which commits are recorded, and the headers of
each answer. Whose memories a request sees is decided by its token (``http.access``), which travels in a context
variable: threads that FastAPI starts for a route copy it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Header, Request
from starlette.datastructures import Headers

from memory_core.core.caller import authored
from memory_core.core.commit.conflicts import ABSENT
from memory_core.runebook import Runebook
from server.api.refusals import Refusal, answer
from server.http.authentication import identity

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from server.protocol.session import ServedStore


#: History shows it for what the owner did on the page.
PAGE_AUTHOR = "page"
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITE = frozenset({"same-origin", "none"})
_HEADERS = [
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


def reader(request: Request) -> Runebook:
    """The store as the caller may see it."""
    store: ServedStore = request.app.state.store
    return store.memory()


def writer(memory: Annotated[Runebook, Depends(reader)]) -> Runebook:
    """The same, if the caller may change it.

    Raises:
        AccessDenied: If not.
    """
    memory.expect_writable()
    return memory


Reader = Annotated[Runebook, Depends(reader)]
Writer = Annotated[Runebook, Depends(writer)]
IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description='The ETag of what was read: `"sha256"`; `*` takes whatever is there.',
        max_length=200,
        examples=["*", '"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"'],
    ),
]


def seen_sha256(if_match: str) -> str | None:
    """The hash in an If-Match header; None for ``*``, which is any.

    Raises:
        Refusal: If it is no single ETag.
    """
    tag = if_match.strip()
    if tag == "*":
        return None
    if tag == '""':
        return ABSENT
    bare = tag.removeprefix('"').removesuffix('"')
    if not bare or '"' in bare or "," in bare:
        raise Refusal(400, "If-Match holds no single ETag.", "Send the ETag as GET gave it, or sha256 in quotes.")
    return bare


class ApiDoor:
    """ASGI middleware around the API; see the module.

    Args:
        app: The API.
        store: The store; its models begin to load with the first request.
        shared: Origins of pages that the owner allows, see ``http.allowed_origins``.
        body_bytes: Largest body.
    """

    def __init__(self, app: ASGIApp, store: ServedStore, shared: Collection[str], body_bytes: int) -> None:
        self._app = app
        self._store = store
        self._shared = frozenset(shared)
        self._body_bytes = body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request pass, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._store.warm()
        sent = _dressed(send)
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, sent)
            return
        body = await _body(receive, self._body_bytes)
        if body is None:
            limit = f"{self._body_bytes:,} bytes"
            too_large = answer(413, f"the body has more than {limit}.", "Send it in several smaller requests.")
            await too_large(scope, receive, sent)
            return
        if scope["method"] == "HEAD":
            scope, sent = {**scope, "method": "GET"}, _headless(sent)
        bearer = identity()
        with authored(PAGE_AUTHOR if bearer is None else bearer.label):
            await self._app(scope, _again(body, receive), sent)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers = Headers(scope=scope)
        if self._is_foreign(headers):
            # Reading counts as a use, and how long an answer takes tells a page that cannot read it something.
            return answer(
                403, "pages of other sites may neither ask nor change anything.", "Use the server's own page."
            )
        if scope["method"] in _READING:
            return None
        content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        bodiless = scope["method"] == "DELETE" and headers.get("content-length", "0") == "0"
        if content_type != "application/json" and not (
            bodiless and not content_type and "transfer-encoding" not in headers
        ):
            return answer(415, "changes are taken as JSON only.", "Send Content-Type: application/json.")
        return None

    def _is_foreign(self, headers: Headers) -> bool:
        """Whether a page asks that is neither the server's own nor one that the owner allows."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is not None and origin in self._shared:
            return False
        if site is not None:
            return site not in _OWN_SITE
        return origin is not None and origin.partition("://")[2] != headers.get("host")


async def _body(receive: Receive, limit: int) -> bytes | None:
    """The whole body; None if it is larger than ``limit``."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":  # the client left
            return b"".join(chunks)
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            return None
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


def _again(body: bytes, receive: Receive) -> Receive:
    """``receive`` that gives the body once more, and then what comes."""
    given = False

    async def receive_again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def _dressed(send: Send) -> Send:
    async def send_dressed(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *_HEADERS]}
        await send(message)

    return send_dressed


def _headless(send: Send) -> Send:
    """``send`` that leaves the body out."""

    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return send_head
