"""Transcripts as hosts write them: what the user said last, and records as messages.

Claude Code's, Codex's and Cursor's files hold a JSON record a line and only grow; Gemini CLI's may be one JSON object.
The last line may be half written, lines may be of any size, records of any shape: what is not understood is passed
over. The standard library alone.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from memory_core.features.imports.items import CODEX_MACHINE, MACHINE

#: Of the end of a transcript, for what was said last.
_TAIL_BYTES = 2 * 1024 * 1024
#: Of a file that is one JSON value.
WHOLE_LIMIT_BYTES = 64 * 1024 * 1024
_QUERY = ("<user_query>", "</user_query>")
_ROLES = {"user": "user", "assistant": "assistant", "gemini": "assistant", "model": "assistant"}


def path_of(transcript: str) -> Path | None:
    """The file that a host names, if it is one that may be read; None otherwise."""
    if not transcript:
        return None
    path = Path(os.path.expanduser(transcript))  # noqa: PTH111 - never raises
    try:
        return path if stat.S_ISREG(path.stat().st_mode) else None
    except (OSError, ValueError):
        return None


def last_said(transcript: str, count: int) -> list[str]:
    """The user's last messages, oldest first, at most ``count``; none where nothing can be read.

    Looks at the end of the file alone.
    """
    path = path_of(transcript)
    if path is None or count <= 0:
        return []
    found: list[str] = []
    try:
        for record in _from_end(path):
            text = said(record)
            if text:
                found.append(text)
            if len(found) == count:
                break
    except OSError:
        return []
    return found[::-1]


def said(record: Any) -> str:
    """What the user said in a record; empty where it is anything else."""
    message = message_of(record)
    if message is None or message.get("role") != "user" or _is_aside(record):
        return ""
    text = message.get("content")
    return text.strip() if isinstance(text, str) and not MACHINE.match(text) else ""


def message_of(record: Any) -> dict[str, Any] | None:
    """A record as a message that can be stored; None where it is no message.

    Claude Code's records are read only as far as their words go; ``lifecycle.imports`` reads the rest.
    """
    if not isinstance(record, dict):
        return None
    payload = record.get("payload")
    if isinstance(payload, dict):
        return _codex(record, payload)
    inner = record.get("message")
    held = inner if isinstance(inner, dict) else record
    role = _ROLES.get(str(held.get("role") or record.get("role") or record.get("type")))
    if role is None:
        return None
    calls, results = _gemini_calls(record.get("toolCalls"))
    content = held.get("content", held.get("parts"))
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    if role == "user" and any(block.get("type") == "tool_result" for block in blocks):
        return {"role": role, "content": blocks}
    used = [block for block in blocks if block.get("type") == "tool_use"]
    text = _text(content)
    message: dict[str, Any] = {"role": role, "content": [{"type": "text", "text": text}, *used] if used else text}
    if calls:
        message |= {"tool_calls": calls, "tool_results": results}
    if not (text.strip() or used or calls):
        return None
    known = {"id": record.get("id") or record.get("uuid"), "time": record.get("timestamp")}
    return message | {name: value for name, value in known.items() if isinstance(value, str) and value}


def records_in(value: Any) -> Iterator[Any]:
    """The records of a transcript that is one JSON value."""
    if isinstance(value, dict) and isinstance(value.get("messages"), list):
        yield from value["messages"]
    elif isinstance(value, dict) and isinstance(value.get("history"), list):
        yield from value["history"]
    elif isinstance(value, list):
        yield from value
    else:
        yield value


def end_of_lines(stream: IO[bytes]) -> int:
    """Where the last whole line ends; a last line without an end counts if it is JSON."""
    size = stream.seek(0, os.SEEK_END)
    start = max(0, size - _TAIL_BYTES)
    stream.seek(start)
    tail = stream.read(size - start)
    newline = tail.rfind(b"\n")
    rest = tail[newline + 1 :]
    if not rest.strip() or _value(rest) is not None:
        return start + len(tail)
    return start + newline + 1


def _from_end(path: Path) -> Iterator[Any]:
    """Records, the last one first, as far as the end of the file holds them."""
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        if path.suffix == ".json":
            stream.seek(0)
            whole = _value(stream.read(WHOLE_LIMIT_BYTES)) if size <= WHOLE_LIMIT_BYTES else None
            yield from list(records_in(whole))[::-1]
            return
        start = max(0, size - _TAIL_BYTES)
        stream.seek(start)
        lines = stream.read(size - start).split(b"\n")
    for line in reversed(lines if start == 0 else lines[1:]):
        value = _value(line)
        if value is not None:
            yield value


def _value(line: bytes) -> Any:
    """The value of a line; None where it is no JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _is_aside(record: Mapping[str, Any]) -> bool:
    """Whether a record was put in by the program, or belongs to a subagent's talk."""
    return any(record.get(mark) for mark in ("isMeta", "isSidechain", "isCompactSummary", "isApiErrorMessage"))


def _text(content: Any) -> str:
    """The words of a message's content, whatever its shape."""
    if isinstance(content, str):
        text = content
    else:
        parts = content if isinstance(content, list) else [content]
        texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
        text = "\n".join(text for text in texts if isinstance(text, str) and text)
    start, end = _QUERY
    if start in text and end in text:  # Cursor wraps what was typed
        text = text[text.index(start) + len(start) : text.rindex(end)]
    return text


def _codex(record: Mapping[str, Any], payload: Mapping[str, Any]) -> dict[str, Any] | None:
    """A response item of Codex: a message, a call, or what a call gave."""
    if record.get("type") != "response_item":
        return None
    kind, call_id = payload.get("type"), payload.get("call_id")
    time = {"time": stamp} if isinstance(stamp := record.get("timestamp"), str) else {}
    if kind == "message":
        role, text = _ROLES.get(str(payload.get("role"))), _text(payload.get("content"))
        own = role == "user" and CODEX_MACHINE.match(text)
        return {"role": role, "content": text, **time} if role and text.strip() and not own else None
    if not isinstance(call_id, str):
        return None
    if kind in ("function_call", "custom_tool_call", "local_shell_call"):
        name = payload.get("name") or "shell"
        arguments = payload.get("arguments") or payload.get("input") or payload.get("action")
        return {"role": "assistant", "tool_calls": [{"id": call_id, "name": name, "arguments": arguments}], **time}
    if kind in ("function_call_output", "custom_tool_call_output"):
        output = payload.get("output")
        shown = output.get("content") if isinstance(output, dict) else output
        failed = isinstance(output, dict) and output.get("success") is False
        told = {"role": "tool", "tool_call_id": call_id, "content": _text(shown) or "(nothing)", "is_error": failed}
        return told | time
    return None


def _gemini_calls(calls: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Calls of Gemini CLI, and what they gave."""
    made: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for call in calls if isinstance(calls, list) else ():
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            continue
        made.append({"id": call.get("id"), "name": call["name"], "arguments": call.get("args")})
        shown = call.get("resultDisplay")
        text = shown if isinstance(shown, str) else json.dumps(call.get("result"), ensure_ascii=False)
        failed = call.get("status") in ("error", "cancelled")
        results.append({"id": call.get("id"), "name": call["name"], "content": text, "is_error": failed})
    return made, results
