"""The HTTP API under ``/api/memory``, described as OpenAPI: what every request meets before and after its route.

Owns the ASGI layer around the routes: requests only from the server's own pages or from no page at all, changes only
as JSON, bodies of bounded size, HEAD as GET without a body, the name under which commits are recorded, and the headers
of each answer. Whose memories a request sees is decided by its token (``authentication``), which travels in a context
variable: threads that FastAPI starts for a route copy it. Errors of the library and wrong requests become a status, a
sentence and the next step: each refusal of the API is ``{"error", "hint"}``, while the door before it says 401, 403,
429 and 503 in plain text. No answer holds a traceback or an unknown error's words, and none with 503 a path of this
machine.
"""

from __future__ import annotations

import functools
import inspect
import logging
import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from memory_core.core.caller import authored, owner_looking
from memory_core.core.commit.conflicts import ABSENT
from memory_core.core.errors import (
    AccessDenied,
    ConfigInvalid,
    EmbeddingFailed,
    FieldRejected,
    InvalidInput,
    MemoryChanged,
    ModelFailed,
    NotFound,
    PatchRejected,
    RunebookError,
    SchemaInvalid,
    StoreBusy,
)
from memory_core.core.memory.operations import escaped
from memory_core.core.memory.results import CommitReceipt, Status, as_json
from memory_core.runebook import Runebook
from memory_core.version import program_version
from server.http import api_answers
from server.http.authentication import identity, with_headers
from server.http.connections import checked

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from server.http.transfers import ForOwner
    from server.protocol.session import ServedStore

_logger = logging.getLogger(__name__)
#: Status and seconds after which to try again, by error.
_STATUSES: tuple[tuple[tuple[type[RunebookError], ...], int, int | None], ...] = (
    ((AccessDenied,), 403, None),
    ((NotFound,), 404, None),
    ((MemoryChanged,), 412, None),
    ((InvalidInput, PatchRejected, FieldRejected), 400, None),
    ((StoreBusy,), 503, 1),
    ((EmbeddingFailed,), 503, 30),
    ((ModelFailed, SchemaInvalid, ConfigInvalid), 503, 60),
)
_ANY_OTHER = (503, 10)
#: Absolute paths of any system, of two parts or more; a URI's slashes follow a colon or another slash.
_PATHS = re.compile(r"(?<![\w:/.~])(?:/[^\s'\"/:;,]+){2,}/?|(?<![\w])[A-Za-z]:\\[^\s'\";,]+|\\\\[^\s'\";,]+")
#: What is wrong and the next step, where no route was reached.
_UNROUTED = {
    404: ("There is nothing at this path.", "See GET /api/openapi.json for what there is."),
    405: ("This path does not take that method.", "See GET /api/openapi.json for what this path takes."),
}
_VALIDATION_SHOWN = 3
#: Refusals that say more than what is wrong.
_REFUSALS = {409: "RefusedAnswer", 412: "ConflictAnswer"}


class Refusal(Exception):
    """A request that is refused with a status of its own.

    Args:
        status: Of the answer.
        error: What is wrong.
        hint: What to do next.
        more: Other members of the answer.
    """

    def __init__(self, status: int, error: str, hint: str, more: Mapping[str, Any] | None = None) -> None:
        super().__init__(error)
        self.answer = answer(status, error, hint, **(more or {}))


def expect_stored(receipt: CommitReceipt) -> CommitReceipt:
    """The receipt, unless everything was refused.

    Raises:
        Refusal: 409 with the receipt.
    """
    if receipt.status is not Status.REJECTED:
        return receipt
    refused = [result for result in receipt.results if result.reason]
    error = refused[0].reason if refused else None
    hint = next((result.hint for result in refused if result.hint), None)
    raise Refusal(409, error or "nothing was stored.", hint or "See the receipt.", {"receipt": as_json(receipt)})


def answer(status: int, error: str, hint: str, **more: Any) -> JSONResponse:
    """A refusal as JSON."""
    return JSONResponse({"error": escaped(error), "hint": escaped(hint), **more}, status)


def declared(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The refusals of a route for OpenAPI: those that any may meet, and the given ones."""
    everywhere = (400, 401, 403, 404, 422, 429, 503)
    found: dict[int | str, dict[str, Any]] = {}
    for status in sorted({*everywhere, *statuses}):
        found[status] = {
            "description": _DESCRIPTIONS[status],
            "model": api_answers.answer_model(_REFUSALS.get(status, "ErrorAnswer")),
        }
        if status in (401, 429):  # said at the door, before the API is reached
            found[status] = {"description": _DESCRIPTIONS[status], "content": {"text/plain": {}}}
        elif status in (403, 503):  # there, too, and by the API
            found[status]["content"] = {"text/plain": {}}
        if status in (429, 503):
            found[status]["headers"] = {
                "Retry-After": {"description": "Seconds.", "schema": {"type": "string"}, "required": False}
            }
    return found


def route(
    routes: APIRouter, method: str, path: str, answered: str, *statuses: int, nulls: bool = False, **more: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a route; what its function returns is answered in its JSON form, a receipt that stored nothing refused.

    Args:
        routes: Where it belongs.
        method: GET, POST, …
        path: Below ``ROOT``.
        answered: Name of its answer, see ``api_answers.answer_model``.
        statuses: Of refusals that not every route of this method has.
        nulls: Whether members that are None are given; else they are left out.
        more: For ``APIRouter.api_route``.
    """
    responses = {**more.pop("responses", {}), **declared(*statuses, *_BY_METHOD.get(method, (413, 415)))}
    register = routes.api_route(
        path,
        methods=[method],
        response_model=api_answers.answer_model(answered),
        responses=responses,
        response_model_exclude_none=not nulls,
        response_model_exclude_unset=nulls,
        **more,
    )

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def answer_json(*args: Any, **given: Any) -> Any:
            found = function(*args, **given)
            return as_json(expect_stored(found) if isinstance(found, CommitReceipt) else found)

        return register(function if inspect.iscoroutinefunction(function) else answer_json)

    return declare


#: Refusals of what a route is sent, by method; others than these take a body.
_BY_METHOD: Mapping[str, tuple[int, ...]] = {"GET": (), "DELETE": (415,)}
_DESCRIPTIONS = {
    400: "An argument is wrong.",
    401: "A token is needed.",
    403: "The caller may only read, or the request comes from another site.",
    404: "There is no such thing, or the caller may not see it.",
    409: "Refused; nothing was stored. The receipt says why.",
    412: "The memory changed since it was read; nothing was stored. `current` or `summary` is what it is now.",
    413: "The body is too large.",
    415: "A change must be sent as application/json.",
    422: "The request has not the shape that is described here.",
    428: "If-Match is missing: send the ETag of what was read.",
    429: "Too many requests.",
    503: "The store, or a model, cannot answer now.",
}


async def _of_library(_request: Request, error: RunebookError) -> JSONResponse:
    fitting = ((status, seconds) for kinds, status, seconds in _STATUSES if isinstance(error, kinds))
    status, retry_seconds = next(fitting, _ANY_OTHER)
    message, hint = error.message, error.hint
    if status == 503:
        _logger.log(logging.DEBUG if isinstance(error, ModelFailed) else logging.WARNING, "not answered: %s", message)
        message, hint = _without_paths(message), _without_paths(hint)
    response = answer(status, message, hint)
    bearer = identity()
    if status == 403 and bearer is not None and bearer.step_up:
        response.headers["www-authenticate"] = bearer.step_up
    if retry_seconds is not None:
        response.headers["retry-after"] = str(retry_seconds)
    return response


async def _of_refusal(_request: Request, error: Refusal) -> JSONResponse:
    return error.answer


async def _of_validation(_request: Request, error: RequestValidationError) -> JSONResponse:
    lines = []
    for found in error.errors()[:_VALIDATION_SHOWN]:
        where = ".".join(str(part) for part in found["loc"] if part != "body")
        lines.append(f"{where}: {found['msg']}" if where else str(found["msg"]))
    return answer(422, "; ".join(lines) or "the request is not understood.", "Correct that; see GET /api/openapi.json.")


async def _of_http(_request: Request, error: HTTPException) -> JSONResponse:
    wrong, hint = _UNROUTED.get(error.status_code, ("the request is not understood.", "Send JSON as UTF-8."))
    response = answer(error.status_code, wrong, hint)
    response.headers.update(error.headers or {})
    return response


def _without_paths(text: str) -> str:
    """A sentence without paths of this machine."""
    return _PATHS.sub("…", text)


#: History shows it for what the owner did on the page.
PAGE_AUTHOR = "page"
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITE = frozenset({"same-origin", "none"})
_HEADERS = [
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


Space = Annotated[
    str | None,
    Query(max_length=64, description="A shared space that the caller may see; default their own, and all to search."),
]


def reader(request: Request, space: Space = None) -> Runebook:
    """The store as the caller may see it, in the space of the path, else in the one that is named."""
    store: ServedStore = request.app.state.store
    memory = store.memory()
    if "path" in request.path_params:
        return memory.at(f"viking://{request.path_params['path']}")
    return memory if space is None else memory.space(space)


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
        allowed_origins: Of pages that may ask beside the server's own.
        body_bytes: Largest body.
    """

    def __init__(self, app: ASGIApp, store: ServedStore, allowed_origins: Collection[str], body_bytes: int) -> None:
        self._app = app
        self._store = store
        self._allowed_origins = frozenset(allowed_origins)
        self._body_bytes = body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request pass, or refuse it."""
        self._store.warm()
        sent = with_headers(send, _HEADERS)
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, sent)
            return
        too_large, receive = await checked(receive, self._body_bytes)
        if too_large is not None:
            await answer(413, too_large, "Send it in several smaller requests.")(scope, receive, sent)
            return
        if scope["method"] == "HEAD":
            # Without Accept: no stream is opened whose body nobody gets.
            kept = [(name, value) for name, value in scope["headers"] if name != b"accept"]
            scope, sent = {**scope, "method": "GET", "headers": kept}, _headless(sent)
        bearer = identity()
        on_page = Headers(scope=scope).get("sec-fetch-site") == "same-origin"
        with authored(PAGE_AUTHOR if bearer is None else bearer.label), owner_looking(when=bearer is None or on_page):
            await self._app(scope, receive, sent)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers = Headers(scope=scope)
        if self._is_foreign(headers):
            # How long an answer takes tells a page that cannot read it something.
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
        if origin is not None and origin in self._allowed_origins:
            return False
        if site is not None:
            return site not in _OWN_SITE
        return origin is not None and origin.partition("://")[2] != headers.get("host")


def _headless(send: Send) -> Send:
    """``send`` that leaves the body out."""

    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return send_head


ROOT = "/api/memory"
OPENAPI_PATH = "/api/openapi.json"
_ABOUT = """\
Long-term memory in Markdown files you own, over HTTP.

Memories are addressed by their URI without `viking://`, each segment percent-encoded:
`/api/memory/entries/user/default/memories/notes/Tea.md` (茶.md is `%E8%8C%B6.md`).

Where a token is needed it is sent as `Authorization: Bearer …`; it sees and changes what is its own. Changes are sent
as `application/json`. A refusal is `{"error", "hint"}`, and the hint is the next step; 401 and 429, and some of 403
and 503, are plain text. A change of a memory names what was seen with `If-Match`; if the memory moved on meanwhile, the
answer is 412 with what it is now, and nothing was stored. What was stored can be taken back:
`POST /api/memory/commits/{id}/undo`."""


def build_api(store: ServedStore, allowed_origins: Collection[str], body_bytes: int, owner: ForOwner | None) -> ASGIApp:
    """The API over one store.

    Args:
        store: The store.
        allowed_origins: Of pages that may ask and change something beside the server's own.
        body_bytes: Largest body of a request.
        owner: What only the owner of the store reaches; None where nobody is known as the owner.
    """
    api = _routes()
    api.state.store = store
    api.state.allowed_origins = frozenset(allowed_origins)
    api.state.body_bytes = body_bytes
    api.state.owner = owner
    return ApiDoor(api, store, allowed_origins, body_bytes)


def description() -> dict[str, Any]:
    """The API as an OpenAPI document; needs no store."""
    return _routes().openapi()


def _routes() -> FastAPI:
    from server.http import change_stream, memory_routes, past_routes, settings_routes, transfer_routes

    api = FastAPI(
        title="Runebook",
        version=program_version(),
        description=_ABOUT,
        openapi_url=OPENAPI_PATH,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
        exception_handlers={
            RunebookError: _of_library,
            Refusal: _of_refusal,
            RequestValidationError: _of_validation,
            HTTPException: _of_http,
        },
    )
    parts = (memory_routes, past_routes, change_stream, settings_routes, transfer_routes)
    for part in (each for module in parts for each in module.ROUTERS):
        api.include_router(part, prefix=ROOT)
    _describe(api)
    return api


def _describe(api: FastAPI) -> None:
    """Add to OpenAPI what routes do not say themselves: how a token is sent."""
    made = api.openapi

    def openapi() -> dict[str, Any]:
        if api.openapi_schema is None:
            schema = made()
            schema.setdefault("components", {})["securitySchemes"] = {
                "token": {"type": "http", "scheme": "bearer", "description": "`runebook token add LABEL` issues one."}
            }
            schema["security"] = [{"token": []}, {}]
            api.openapi_schema = schema
        return api.openapi_schema

    api.openapi = openapi  # type: ignore[method-assign]
