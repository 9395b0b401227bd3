"""Errors of the library, and wrong requests, as HTTP answers: a status, a sentence and the next step.

Promises: every refusal is ``{"error", "hint"}``; no answer holds a path of this machine, a traceback or an unknown
error's words.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

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
    StorageFailed,
    StoreBusy,
)
from memory_core.core.memory.operations import shown
from memory_core.core.memory.results import CommitReceipt, Status, as_json
from server.api.answers import ConflictAnswer, ErrorAnswer, RefusedAnswer

_logger = logging.getLogger(__name__)
#: Status and seconds after which to try again, by error; the first that fits counts.
_STATUSES: tuple[tuple[type[RunebookError], int, int | None], ...] = (
    (AccessDenied, 403, None),
    (NotFound, 404, None),
    (MemoryChanged, 412, None),
    (InvalidInput, 400, None),
    (PatchRejected, 400, None),
    (FieldRejected, 400, None),
    (StoreBusy, 503, 1),
    (EmbeddingFailed, 503, 30),
    (ModelFailed, 503, 60),
    (StorageFailed, 503, 10),
    (SchemaInvalid, 503, 60),
    (ConfigInvalid, 503, 60),
)
#: Absolute paths of any system, of two parts or more; a URI's slashes follow a colon or another slash.
_PLACES = re.compile(r"(?<![\w:/.~])(?:/[^\s'\"/:;,]+){2,}/?|(?<![\w])[A-Za-z]:\\[^\s'\";,]+|\\\\[^\s'\";,]+")
_HINTS = {
    404: "See GET /api/openapi.json for what there is.",
    405: "See GET /api/openapi.json for what this path takes.",
}
_WORDS = {404: "There is nothing at this path.", 405: "This path does not take that method."}
_VALIDATION_SHOWN = 3


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
        self.status = status
        self.error = error
        self.hint = hint
        self.more = dict(more or {})


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
    return JSONResponse({"error": shown(error), "hint": shown(hint), **more}, status)


def register_refusals(api: FastAPI) -> None:
    """Let every error of the API become such an answer."""
    api.add_exception_handler(RunebookError, _of_library)
    api.add_exception_handler(Refusal, _of_refusal)
    api.add_exception_handler(RequestValidationError, _of_validation)
    api.add_exception_handler(HTTPException, _of_http)


def declared(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The refusals of a route for OpenAPI: those that any may meet, and the given ones."""
    everywhere = (400, 401, 403, 422, 429, 503)
    models: dict[int, type[ErrorAnswer]] = {409: RefusedAnswer, 412: ConflictAnswer}
    found: dict[int | str, dict[str, Any]] = {}
    for status in sorted({*everywhere, *statuses}):
        found[status] = {"description": _DESCRIPTIONS[status], "model": models.get(status, ErrorAnswer)}
        if status in (401, 429):  # said at the door, before the API is reached
            found[status] = {"description": _DESCRIPTIONS[status], "content": {"text/plain": {}}}
        if status in (429, 503):
            found[status]["headers"] = {
                "Retry-After": {"description": "Seconds.", "schema": {"type": "string"}, "required": False}
            }
    return found


_DESCRIPTIONS = {
    400: "An argument is wrong.",
    401: "A token is needed.",
    403: "The caller may only read, or the request comes from another site.",
    404: "There is no such thing, or the caller may not see it.",
    409: "Refused; nothing was stored. The receipt says why.",
    412: "The memory changed since it was read; nothing was stored. `current` is what it is now.",
    413: "The body is too large.",
    415: "A change must be sent as application/json.",
    422: "The request has not the shape that is described here.",
    428: "If-Match is missing: send the ETag of what was read.",
    429: "Too many requests.",
    503: "The store, or a model, cannot answer now.",
}


async def _of_library(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RunebookError)
    status, retry = next(((status, retry) for kind, status, retry in _STATUSES if isinstance(error, kind)), (503, 10))
    message, hint = error.message, error.hint
    if status == 503:
        _logger.log(logging.DEBUG if isinstance(error, ModelFailed) else logging.WARNING, "not answered: %s", message)
        message, hint = without_places(message), without_places(hint)
    response = answer(status, message, hint)
    if retry is not None:
        response.headers["retry-after"] = str(retry)
    return response


async def _of_refusal(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Refusal)
    return answer(error.status, error.error, error.hint, **error.more)


async def _of_validation(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    lines = []
    for found in error.errors()[:_VALIDATION_SHOWN]:
        where = ".".join(str(part) for part in found["loc"] if part != "body")
        lines.append(f"{where}: {found['msg']}" if where else str(found["msg"]))
    return answer(422, "; ".join(lines) or "the request is not understood.", "Correct that; see GET /api/openapi.json.")


async def _of_http(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    words = _WORDS.get(error.status_code, "the request is not understood.")
    response = answer(error.status_code, words, _HINTS.get(error.status_code, "Send JSON as UTF-8."))
    response.headers.update(error.headers or {})
    return response


def without_places(text: str) -> str:
    """A sentence without paths of this machine."""
    return _PLACES.sub("…", text)
