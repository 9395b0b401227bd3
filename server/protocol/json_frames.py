"""One line of the stdio protocol: what it says, or what is wrong with it and whose request it was.

Owns: turning a line into a JSON-RPC message or a refusal, and making outgoing text encodable. A refusal names the fault
and the next step, with the request's id wherever it can be found, even if the line is too long or too deep.

Promises: a line is never silently lost. A request is a message or a refusal; an invalid answer to
one of our own requests becomes an error for whoever waits for it; only a notification goes
unanswered, as JSON-RPC demands. What the SDK's own adapter accepts passes unchanged, with one
exception: it takes a request with an unusable id (``1.5``, ``null``) for a notification.

Does not: read or write anything.
"""

from __future__ import annotations

import codecs
import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

from mcp.types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from server.foreign_json import MOST_VALUES, holds_many
from server.protocol.stdio_pipes import EXCERPT_BYTES, LINE_LIMIT_BYTES, Line, Oversized

_logger = logging.getLogger(__name__)

_DEPTH_LIMIT = 190  # the SDK's parser gives up at 200 levels, envelope included
_DIGITS_LIMIT = 4300  # the SDK's parser and Python both stop there

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|"|[{}\[\]]', re.DOTALL)
_ID = rb'(-?\d{1,40}|"(?:[^"\\]|\\.){0,256}")'
_ID_AFTER_KEY = re.compile(rb"\s*:\s*" + _ID + rb"\s*[,}]")
_COLON = re.compile(rb"\s*:")
_ID_AT_END = re.compile(rb',\s*"id"\s*:\s*' + _ID + rb'(?:\s*,\s*"(?:jsonrpc|method)"\s*:\s*"[^"\\]*")*\s*\}\s*\Z')


#: JSON-RPC error code, and what is wrong and what to do next.
Fault = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a line cannot be served.

    Attributes:
        request_id: Id of the request, or None where none can be told.
        code: JSON-RPC error code.
        message: What is wrong and what to do next.
        answerable: False for what JSON-RPC forbids to answer.
    """

    request_id: RequestId | None
    code: int
    message: str
    answerable: bool = True

    def answer(self) -> JSONRPCError:
        """The error response that tells the client."""
        return JSONRPCError(jsonrpc="2.0", id=self.request_id, error=ErrorData(code=self.code, message=self.message))


def parse_frame(line: Line) -> JSONRPCMessage | Refusal | None:
    """Read one line; None if it is blank.

    Args:
        line: The bytes before the newline, or the ends of a line that was too long to keep.
    """
    if isinstance(line, Oversized):
        problem = (
            f"The line is {line.size_bytes:,} bytes long and the limit is {LINE_LIMIT_BYTES:,}. "
            "Split the content over several requests."
        )
        return _refuse_unread(line.head, line.tail, problem)
    text = line.strip().removeprefix(codecs.BOM_UTF8).strip()
    if not text:
        return None
    if holds_many(text):
        problem = f"The line holds more than {MOST_VALUES:,} values. Split the content over several requests."
        return _refuse_unread(text[:EXCERPT_BYTES], text[-EXCERPT_BYTES:], problem)
    try:
        message = jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValidationError:
        return _diagnose(text)
    if isinstance(message, JSONRPCRequest):
        return message
    raw = json.loads(text)
    return _refuse_request(raw, None) if "id" in raw and "method" in raw else message


def encode_frame(message: JSONRPCMessage) -> bytes:
    """``message`` as one line of UTF-8, newline included; scrubbed where it has to be.

    Raises:
        ValueError: A request or notification holds what JSON cannot; in a response it becomes an
            error response, because its sender is no longer there to hear of it.
    """
    try:
        return _dump(message)
    except ValueError:
        _logger.debug("An outgoing message had to be scrubbed before it could be encoded.")
    try:
        plain = scrub(message.model_dump(by_alias=True, exclude_unset=True))
        return _dump(type(message).model_validate(plain, by_name=False))
    except (ValueError, RecursionError):
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            raise
        _logger.exception("A result could not be written as JSON.")
    problem = "The result could not be written as JSON. Ask for less of it, or report this as a defect."
    return _dump(JSONRPCError(jsonrpc="2.0", id=message.id, error=ErrorData(code=INTERNAL_ERROR, message=problem)))


def _dump(message: JSONRPCMessage) -> bytes:
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


def scrub(value: Any) -> Any:
    """``value`` with every string encodable as UTF-8; ``value`` itself if it already is.

    Surrogate pairs become the character they stand for, lone ones U+FFFD.

    Args:
        value: JSON-like: dict, list, str, numbers, None.
    """
    return value if _find_surrogate(value) is None else _rebuild(value)


def _rebuild(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict):
        return {_rebuild(key): _rebuild(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rebuild(item) for item in value]
    return value


def _walk(value: Any) -> Iterator[tuple[list[Any], Any]]:
    """Every node with its path, depth first, in memory proportional to the depth alone."""
    path: list[Any] = []
    levels: list[Iterator[tuple[Any, Any]]] = [iter([("", value)])]
    while levels:
        entry = next(levels[-1], None)
        if entry is None:
            levels.pop()
            if path:
                path.pop()
            continue
        key, node = entry
        path.append(key)
        yield path[1:], node
        if isinstance(node, dict):
            levels.append(iter(node.items()))
        elif isinstance(node, list | tuple):
            levels.append(iter(enumerate(node)))
        else:
            path.pop()


def _find_surrogate(value: Any) -> list[Any] | None:
    for path, node in _walk(value):
        if (isinstance(node, str) and not _encodable(node)) or (
            isinstance(node, dict) and any(isinstance(key, str) and not _encodable(key) for key in node)
        ):
            return path
    return None


def _is_too_deep(value: Any) -> bool:
    return any(len(path) > _DEPTH_LIMIT for path, _ in _walk(value))


def _encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _diagnose(text: bytes) -> JSONRPCMessage | Refusal:
    """Why the SDK refused ``text``."""
    try:
        raw, fault = _load(text)
    except json.JSONDecodeError as error:
        return Refusal(
            None,
            PARSE_ERROR,
            f"The line is not JSON: {error.msg} at character {error.pos + 1}. "
            "Send one JSON-RPC message per line, encoded as UTF-8.",
        )
    except RecursionError:
        problem = "The message is nested too deeply to be read. Send flatter data, or send it as text."
        return _refuse_unread(text[:EXCERPT_BYTES], text[-EXCERPT_BYTES:], problem)
    if isinstance(raw, list):
        return Refusal(None, INVALID_REQUEST, "JSON-RPC batches are not supported. Send each message on its own line.")
    if not isinstance(raw, dict):
        return Refusal(None, INVALID_REQUEST, "A message must be a JSON object. Send a JSON-RPC 2.0 request.")
    if "method" not in raw and ("result" in raw or "error" in raw):
        return _repair_response(raw, fault)
    return _refuse_request(raw, fault)


def _load(text: bytes) -> tuple[Any, Fault | None]:
    """Read ``text`` past invalid bytes, long integers and control characters, to reach its id.

    Returns:
        What it means, and the fault that was stepped over, if any.

    Raises:
        json.JSONDecodeError: It is no JSON by any reading.
        RecursionError: It is nested too deeply even for this.
    """
    fault: Fault | None = None

    def parse_integer(digits: str) -> int:
        nonlocal fault
        if len(digits) <= _DIGITS_LIMIT:
            return int(digits)
        fault = INVALID_PARAMS, f"An integer has more than {_DIGITS_LIMIT} digits. Send it as a string."
        return 0

    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError as error:
        decoded = text.decode("utf-8", "replace")
        fault = PARSE_ERROR, f"The line is not valid UTF-8 (byte {error.start + 1}). Encode it as UTF-8 and resend it."
    return json.loads(decoded, parse_int=parse_integer, strict=False), fault


def _refuse_request(raw: dict[str, Any], fault: Fault | None) -> Refusal:
    """Name the first fault of an object that is, or was meant as, a request or notification."""
    request_id = raw.get("id")
    usable = request_id if _usable_id(request_id) else None
    code, message = _envelope_fault(raw, usable) or fault or _content_fault(raw)
    is_notification = "id" not in raw and isinstance(raw.get("method"), str)
    return Refusal(usable, code, message, answerable=not is_notification)


def _envelope_fault(raw: dict[str, Any], usable_id: RequestId | None) -> Fault | None:
    if raw.get("jsonrpc") != "2.0":
        return INVALID_REQUEST, 'The member "jsonrpc" must be "2.0". Add it and resend the message.'
    if "id" in raw and usable_id is None:
        return INVALID_REQUEST, "The id must be a string or an integer. Resend the request with such an id."
    if not isinstance(raw.get("method"), str):
        return INVALID_REQUEST, "The method must be a string, such as tools/call. Name it and resend the request."
    if not isinstance(raw.get("params"), dict | None):
        return INVALID_PARAMS, "params must be a JSON object. Pass the parameters by name and resend the request."
    if "result" in raw or "error" in raw:
        return INVALID_REQUEST, "A request has no result and no error. Leave them out and resend the request."
    return None


def _content_fault(raw: dict[str, Any]) -> Fault:
    """What the SDK's parser stumbles over inside a well-formed envelope."""
    if _is_too_deep(raw):
        deep = f"The message is nested over {_DEPTH_LIMIT} levels deep. Send flatter data, or send it as text."
        return INVALID_PARAMS, deep
    where = _find_surrogate(raw)
    if where is not None:
        place = scrub(".".join(map(str, where)))[:200] or "the message"
        return (
            INVALID_PARAMS,
            f"The text in {place} holds half a surrogate pair (\\ud800 to \\udfff), which is no character. "
            "Remove it or write U+FFFD in its place, then resend the request.",
        )
    return (
        PARSE_ERROR,
        "The line is not strict JSON (a control character in a string, for one). "
        "Escape it as \\u00XX and resend the message.",
    )


def _repair_response(raw: dict[str, Any], fault: Fault | None) -> JSONRPCMessage | Refusal:
    """An answer to a request of ours: mended, or turned into an error so that nobody waits for it."""
    if fault is None and not _is_too_deep(raw):
        try:
            return jsonrpc_message_adapter.validate_python(scrub(raw), by_name=False)
        except ValidationError:
            pass
    return _failed_response(raw.get("id"))


def _failed_response(request_id: object) -> JSONRPCError | Refusal:
    problem = "The client's answer was not a valid JSON-RPC response."
    if _usable_id(request_id):
        return Refusal(request_id, INVALID_REQUEST, problem).answer()
    return Refusal(None, INVALID_REQUEST, problem, answerable=False)


def _usable_id(value: object) -> TypeGuard[RequestId]:
    """Whether ``value`` can be echoed as an id: text that encodes, or an integer (no bool)."""
    return _encodable(value) if isinstance(value, str) else type(value) is int


def _refuse_unread(head: bytes, tail: bytes, problem: str) -> JSONRPCMessage | Refusal:
    """Refuse a line that cannot be parsed, knowing only its ends."""
    keys, request_id = _scan_top_level(head)
    if request_id is None and (at_end := _ID_AT_END.search(tail)) is not None:
        request_id = _read_id(at_end[1])
    if b'"method"' not in keys and keys & {b'"result"', b'"error"'}:
        return _failed_response(request_id)
    return Refusal(request_id, INVALID_REQUEST, problem)


def _read_id(text: bytes) -> RequestId | None:
    try:
        value = json.loads(text.decode("utf-8", "replace"))
    except json.JSONDecodeError:  # an escape that is none
        return None
    return value if _usable_id(value) else None


def _scan_top_level(head: bytes) -> tuple[set[bytes], RequestId | None]:
    """The outermost object's keys (quoted) and id, as far as ``head`` shows them."""
    depth, keys = 0, set[bytes]()
    request_id: RequestId | None = None
    for token in _TOKEN.finditer(head):
        text = token[0]
        if text == b'"':  # cut inside a string: whatever follows is content
            break
        if text in b"{[":
            depth += 1
        elif text in b"}]":
            depth -= 1
        elif depth == 1 and _COLON.match(head, token.end()):
            keys.add(text)
            if text == b'"id"' and (found := _ID_AFTER_KEY.match(head, token.end())) is not None:
                request_id = _read_id(found[1])
    return keys, request_id
