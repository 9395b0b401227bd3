"""Transcripts as hosts write them: what the user said last, and their records as messages.

Claude Code's, Codex's and Cursor's files hold a JSON record a line and only grow; Gemini CLI's may be one JSON object.
The last line may be half written, lines may be of any size, records of any shape: what is not understood is passed
over. Pure but for the reading.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from memory_core.features.imports.items import CLAUDE_CODE_MARKUP
from server.foreign_json import json_value

#: Of the end of a transcript, for what was said last.
_TAIL_BYTES = 2 * 1024 * 1024
#: Of a file that is one JSON value.
_WHOLE_LIMIT_BYTES = 64 * 1024 * 1024
_QUERY = ("<user_query>", "</user_query>")
_ROLES = {"user": "user", "assistant": "assistant", "gemini": "assistant", "model": "assistant"}
#: Marks of records that the program put in, or that belong to a subagent's talk.
_ASIDE = ("isMeta", "isSidechain", "isCompactSummary", "isApiErrorMessage")
#: What Codex tells its model about the machine and the folder.
_CODEX_CONTEXT = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|permissions|turn_aborted|skill)|# AGENTS\.md)"
)
_CODEX_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
_CODEX_RESULTS = frozenset({"function_call_output", "custom_tool_call_output"})


def path_of(transcript: str) -> Path | None:
    """The file that a host names, if it is one that may be read; None otherwise."""
    path = os.path.expanduser(transcript)  # noqa: PTH111 - neither this nor the next raises
    return Path(path) if os.path.isfile(path) else None  # noqa: PTH113


def last_said(transcript: str, count: int, is_private: Callable[[Any], bool] = lambda _: False) -> list[str]:
    """The user's last messages, oldest first, at most ``count``; none where nothing can be read.

    Looks at the end of the file alone.

    Args:
        transcript: Path of the file.
        count: Messages at most.
        is_private: Whether a message is to be passed over.
    """
    path = path_of(transcript)
    found: list[str] = []
    try:
        for record in _from_end(path) if path is not None else ():
            if len(found) == count:
                break
            message = _said(record)
            found += [message["content"].strip()] if message is not None and not is_private(message) else []
    except OSError:
        return []
    return found[::-1]


def whole(path: Path) -> list[Any]:
    """The records of a transcript that is one JSON value; none of one that is being written.

    Raises:
        OSError: If it cannot be read.
    """
    with path.open("rb") as stream:
        value = json_value(stream.read(_WHOLE_LIMIT_BYTES + 1))
    if isinstance(value, dict):
        value = next((value[name] for name in ("messages", "history") if isinstance(value.get(name), list)), value)
    return value if isinstance(value, list) else [] if value is None else [value]


def message_of(record: Any) -> dict[str, Any] | None:
    """A record as a message that can be stored; None where it is no message.

    Claude Code's records are read only as far as their words go; ``features.imports`` reads the rest.
    """
    if not isinstance(record, dict):
        return None
    payload = record.get("payload")
    if isinstance(payload, dict):
        return _codex(payload, record.get("timestamp")) if record.get("type") == "response_item" else None
    inner = record.get("message")
    held = inner if isinstance(inner, dict) else record
    role = _ROLES.get(str(held.get("role") or record.get("role") or record.get("type")))
    if role is None:
        return None
    calls = _gemini_calls(record.get("toolCalls"))
    content = held.get("content", held.get("parts"))
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    if role == "user" and any(block.get("type") == "tool_result" for block in blocks):
        return {"role": role, "content": blocks}
    used = [block for block in blocks if block.get("type") == "tool_use"]
    text = _text(content)
    if not (text.strip() or used or calls):
        return None
    known = {"id": record.get("id") or record.get("uuid"), "time": record.get("timestamp")}
    return {
        "role": role,
        "content": [{"type": "text", "text": text}, *used] if used else text,
        **calls,
        **{name: value for name, value in known.items() if isinstance(value, str) and value},
    }


def _said(record: Any) -> dict[str, Any] | None:
    """A record as the user's message, whose content is text; None where it is anything else, or blank."""
    message = message_of(record)
    if message is None or message.get("role") != "user" or any(record.get(mark) for mark in _ASIDE):
        return None
    text = message.get("content")
    return message if isinstance(text, str) and text.strip() and not CLAUDE_CODE_MARKUP.match(text) else None


def _from_end(path: Path) -> Iterator[Any]:
    """Records, the last one first, as far as the end of the file holds them."""
    if path.suffix == ".json":
        yield from reversed(whole(path))
        return
    with path.open("rb") as stream:
        start = max(0, stream.seek(0, os.SEEK_END) - _TAIL_BYTES)
        stream.seek(start)
        lines = stream.read(_TAIL_BYTES).split(b"\n")
    yield from map(json_value, reversed(lines if start == 0 else lines[1:]))


def _text(content: Any) -> str:
    """The words of a message's content, whatever its shape."""
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    text = "\n".join(text for text in texts if isinstance(text, str) and text)
    start, end = _QUERY
    if start in text and end in text:  # Cursor wraps what was typed
        text = text[text.index(start) + len(start) : text.rindex(end)]
    return text


def _codex(item: Mapping[str, Any], stamp: Any) -> dict[str, Any] | None:
    """A response item of Codex: a message, a call, or what a call gave."""
    kind, call_id = item.get("type"), item.get("call_id")
    time = {"time": stamp} if isinstance(stamp, str) else {}
    if kind == "message":
        role, text = _ROLES.get(str(item.get("role"))), _text(item.get("content"))
        own = role == "user" and _CODEX_CONTEXT.match(text)
        return {"role": role, "content": text, **time} if role and text.strip() and not own else None
    if not isinstance(call_id, str):
        return None
    if kind in _CODEX_CALLS:
        arguments = item.get("arguments") or item.get("input") or item.get("action")
        call = {"id": call_id, "name": item.get("name") or "shell", "arguments": arguments}
        return {"role": "assistant", "tool_calls": [call], **time}
    if kind in _CODEX_RESULTS:
        output = item.get("output")
        shown = output.get("content") if isinstance(output, dict) else output
        failed = isinstance(output, dict) and output.get("success") is False
        text = _text(shown) or "(nothing)"
        return {"role": "tool", "tool_call_id": call_id, "content": text, "is_error": failed, **time}
    return None


def _gemini_calls(calls: Any) -> dict[str, list[dict[str, Any]]]:
    """Calls of Gemini CLI and what they gave, as members of a message; empty where there are none."""
    made: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for call in calls if isinstance(calls, list) else ():
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            continue
        named = {"id": call.get("id"), "name": call["name"]}
        made.append({**named, "arguments": call.get("args")})
        shown = call.get("resultDisplay")
        text = shown if isinstance(shown, str) else json.dumps(call.get("result"), ensure_ascii=False)
        results.append({**named, "content": text, "is_error": call.get("status") in ("error", "cancelled")})
    return {"tool_calls": made, "tool_results": results} if made else {}
