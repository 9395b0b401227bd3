"""The API as one ASGI app: its routes, their description, and the readable page about them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI

from memory_core.version import program_version
from server.api import conversations, entries, insight, keeping, looking, past
from server.api.caller import ApiDoor
from server.api.refusals import register_refusals

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from server.protocol.session import ServedStore


ROOT = "/api/memory"
OPENAPI_PATH = "/api/openapi.json"
_ABOUT = """\
Long-term memory in Markdown files you own, over HTTP.

Memories are addressed by their URI without `viking://`, each segment percent-encoded:
`/api/memory/entries/user/default/memories/notes/Tea.md` (茶.md is `%E8%8C%B6.md`).

Where a token is needed it is sent as `Authorization: Bearer …`; it sees and changes what is its own. Changes are sent
as `application/json`. Every refusal is `{"error", "hint"}`, and the hint is the next step. A change of a memory names
what was seen with `If-Match`; if the memory moved on meanwhile, the answer is 412 with what it is now, and nothing was
stored. What was stored can be taken back: `POST /api/memory/commits/{id}/undo`."""
_PARTS = tuple(part.routes for part in (entries, looking, past, conversations, keeping, insight))


def build_api(store: ServedStore, shared: Collection[str] = (), body_bytes: int = 4_194_304) -> ASGIApp:
    """The API over one store.

    Args:
        store: The store.
        shared: Origins of pages that may change something beside the server's own.
        body_bytes: Largest body of a request.
    """
    api = _routes()
    api.state.store = store
    register_refusals(api)
    return ApiDoor(api, store, shared, body_bytes)


def description() -> dict[str, Any]:
    """The API as an OpenAPI document; needs no store."""
    return _routes().openapi()


def _routes() -> FastAPI:
    api = FastAPI(
        title="Runebook",
        version=program_version(),
        description=_ABOUT,
        openapi_url=OPENAPI_PATH,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    for part in _PARTS:
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
