"""Conversations: how messages are read, compared, shown and named.

The one import for everything about messages: values and log lines come from ``message``, client shapes from
``message_shapes``, the rule for what is new from ``overlap``. Owned here: how a message looks to a reader and
to the search, and which session a conversation without an id belongs to. Pure, and without a clock.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from memory_core.errors import InvalidInput
from memory_core.model.message import (
    Message,
    ToolCall,
    ToolResult,
    dump_lines,
    from_record,
    parse_lines,
    to_record,
)
from memory_core.model.message_shapes import parse_messages
from memory_core.model.overlap import unseen

__all__ = [
    "Message",
    "ToolCall",
    "ToolResult",
    "dump_lines",
    "from_record",
    "parse_lines",
    "parse_messages",
    "search_text",
    "session_id_for",
    "to_record",
    "transcript_line",
    "unseen",
]

_ARGUMENTS_LIMIT_CHARS = 200
_PROMPT_ROLES = ("system", "developer")


def transcript_line(message: Message, limit: int | None) -> str:
    """A message as a reader sees it.

    For example ``[2023-05-08 13:56] Caroline: I went to a support group.`` Tools follow the text, as in
    ``[ToolCall] web_search(query="…") -> completed, 120 ms: answer``. The time is the one on the speaker's clock.

    Args:
        message: The message.
        limit: Most characters of the answer, which then is one line, cut with ``…``; None keeps the text and its
            line breaks as they are.
    """
    stamp = "" if message.time is None else f"[{message.time:%Y-%m-%d %H:%M}] "
    said = [message.text] if message.text.strip() else []
    whole = f"{stamp}{_one_line(message.name or message.role)}: " + "\n".join([*said, *_tool_lines(message)])
    if limit is None:
        return whole
    flat = _one_line(whole)
    return flat if len(flat) <= limit else flat[: max(limit - 1, 0)].rstrip() + "…" * min(limit, 1)


def search_text(message: Message) -> str:
    """Every word of a message that a search should find: its text, tool names, arguments and answers."""
    calls = (" ".join(_words(call.name, call.skill_name, *_leaves(call.arguments))) for call in message.tool_calls)
    results = (
        " ".join(_words(None if _is_named(message, result) else result.name, result.text))
        for result in message.tool_results
    )
    return "\n".join(piece for piece in (message.text, *calls, *results) if piece.strip())


def session_id_for(messages: Sequence[Message]) -> str:
    """The session of a conversation that names none, the same whenever it is sent again.

    Made of the first message that is not a prompt: its role, speaker, text, tools, id and time.

    Raises:
        InvalidInput: If there is no message.
    """
    if not messages:
        raise InvalidInput("messages is empty.", hint="Send at least one {role, content}.")
    first = next((message for message in messages if message.role not in _PROMPT_ROLES), messages[0])
    record = to_record(first)
    record.pop("extra", None)
    record["time"] = None if first.time is None else first.time.timestamp()
    for result in record.get("tool_results", []):
        result.pop("name", None)
    canonical = json.dumps(record, sort_keys=True)
    digest = hashlib.sha256(canonical.encode("ascii")).hexdigest()[:8]
    return f"session-{digest}" if first.time is None else f"{first.time:%Y-%m-%d}-{digest}"


def _tool_lines(message: Message) -> list[str]:
    results = {result.call_id: result for result in message.tool_results if result.call_id}
    lines: list[str] = []
    for call in message.tool_calls:
        skill = f" (skill {call.skill_name})" if call.skill_name else ""
        answer = results.pop(call.call_id, None)
        lines.append(f"[ToolCall] {call.name}({_arguments(call)}){skill}{_outcome(answer)}")
    answered = {call.call_id for call in message.tool_calls if call.call_id}
    lines += [
        f"[ToolCall] {result.name or result.call_id or 'tool'}{_outcome(result)}"
        for result in message.tool_results
        if result.call_id not in answered
    ]
    return lines


def _outcome(result: ToolResult | None) -> str:
    if result is None:
        return ""
    tokens = (result.prompt_tokens or 0) + (result.completion_tokens or 0)
    facts = [
        result.status,
        None if result.duration_ms is None else f"{result.duration_ms} ms",
        f"{tokens} tokens" if tokens else None,
    ]
    known = ", ".join(fact for fact in facts if fact)
    return f" -> {known}: {result.text}".removesuffix(": ") if known else f" -> {result.text}"


def _arguments(call: ToolCall) -> str:
    if isinstance(call.arguments, dict):
        shown = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in call.arguments.items())
    elif call.arguments is None:
        shown = ""
    else:
        shown = json.dumps(call.arguments, ensure_ascii=False)
    return shown if len(shown) <= _ARGUMENTS_LIMIT_CHARS else shown[: _ARGUMENTS_LIMIT_CHARS - 1] + "…"


def _is_named(message: Message, result: ToolResult) -> bool:
    return any(call.name == result.name for call in message.tool_calls)


def _leaves(value: Any) -> list[str]:
    """Keys and scalar values of a JSON value, in order."""
    if isinstance(value, dict):
        return [word for key, item in value.items() for word in (key, *_leaves(item))]
    if isinstance(value, list):
        return [word for item in value for word in _leaves(item)]
    return [] if value is None or isinstance(value, bool) else [str(value)]


def _words(*pieces: str | None) -> list[str]:
    return [piece for piece in pieces if piece and piece.strip()]


def _one_line(text: str) -> str:
    return " ".join(text.split())
