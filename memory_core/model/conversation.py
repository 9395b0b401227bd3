"""Conversations: messages of any client's shape, kept verbatim, one JSON line each.

Reads plain ``{role, content}`` messages and Anthropic's and OpenAI's shapes with tool calls and results.
Decides what of a re-sent conversation is new. Pure; dates are the messages' own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from memory_core.errors import ContentRejected, InvalidInput

_ROLE_LIMIT_CHARS = 64
_TIME_KEYS = ("time", "timestamp", "created_at", "date")
_KNOWN_KEYS = frozenset(
    {"role", "content", "text", "name", "id", "message_id", "tool_calls", "tool_call_id", "function_call", *_TIME_KEYS}
    | {"tool_results", "status", "duration_ms", "duration", "usage", "is_error", "type"}
)
_MILLISECONDS_FROM = 1e11
_SHAPE_HINT = 'Each message is an object such as {"role": "user", "content": "…", "time": "2026-03-17T09:30:00Z"}.'
_LINE_BREAKS = {"\u2028": "\\u2028", "\u2029": "\\u2029", "\x85": "\\u0085"}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool use that a message asked for; ``arguments`` is any JSON value."""

    call_id: str
    name: str
    arguments: Any = None
    skill_name: str | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered; only ``status`` "completed" is a success."""

    call_id: str
    name: str | None = None
    text: str = ""
    status: str | None = None
    duration_ms: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message; ``text`` is verbatim, ``time`` is aware, ``extra`` keeps unknown scalar keys."""

    role: str
    text: str = ""
    name: str | None = None
    time: datetime | None = None
    message_id: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


def parse_messages(raw: Sequence[Any]) -> tuple[Message, ...]:
    """Read a client's messages.

    Raises:
        InvalidInput: If a message has no role, an unreadable time or a shape that is none of the known.
        ContentRejected: If a message is blank, or holds NUL characters or lone surrogates.
    """
    if isinstance(raw, str | bytes) or not isinstance(raw, Sequence):
        raise InvalidInput("messages must be a list.", hint=_SHAPE_HINT)
    return tuple(_message(item, index) for index, item in enumerate(raw))


def to_record(message: Message) -> dict[str, Any]:
    """The message's JSON object; empty members are left out."""
    record: dict[str, Any] = {"role": message.role}
    if message.name is not None:
        record["name"] = message.name
    if message.time is not None:
        record["time"] = message.time.isoformat()
    if message.message_id is not None:
        record["id"] = message.message_id
    record["text"] = message.text
    if message.tool_calls:
        record["tool_calls"] = [
            _slim(call, ("call_id", "name", "arguments", "skill_name")) for call in message.tool_calls
        ]
    if message.tool_results:
        members = ("call_id", "name", "text", "status", "duration_ms", "prompt_tokens", "completion_tokens")
        record["tool_results"] = [_slim(result, members) for result in message.tool_results]
    if message.extra:
        record["extra"] = dict(message.extra)
    return record


def from_record(record: Mapping[str, Any]) -> Message:
    """The inverse of ``to_record``.

    Raises:
        KeyError, TypeError, ValueError: If the record is not one of ours.
    """
    time = record.get("time")
    return Message(
        role=str(record["role"]),
        text=str(record.get("text", "")),
        name=record.get("name"),
        time=None if time is None else datetime.fromisoformat(time),
        message_id=record.get("id"),
        tool_calls=tuple(ToolCall(**call) for call in record.get("tool_calls", ())),
        tool_results=tuple(ToolResult(**result) for result in record.get("tool_results", ())),
        extra=record.get("extra", {}),
    )


def dump_lines(messages: Sequence[Message]) -> str:
    """One line of JSON a message, each ended by a newline."""
    return "".join(_line(message) + "\n" for message in messages)


def parse_lines(text: str) -> tuple[list[Message], list[str]]:
    """The messages of a log, and a line for each that cannot be read; the others still are."""
    messages: list[Message] = []
    damaged: list[str] = []
    for number, message, problem in numbered_lines(text):
        if message is None:
            damaged.append(f"line {number}: {problem}")
        else:
            messages.append(message)
    return messages, damaged


def numbered_lines(text: str) -> list[tuple[int, Message | None, str]]:
    """Each non-blank line as (0-based number, message or None, problem)."""
    found: list[tuple[int, Message | None, str]] = []
    for number, line in enumerate(text.split("\n")):
        if not line.strip():
            continue
        try:
            found.append((number, from_record(json.loads(line)), ""))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            found.append((number, None, str(error)))
    return found


def unseen(stored: Sequence[Message], incoming: Sequence[Message]) -> tuple[Message, ...]:
    """The messages of ``incoming`` that ``stored`` does not hold yet, in order.

    A message with an id is known by it. The others are aligned as a sequence: the longest run of ``incoming``
    messages that ends ``stored`` is skipped, wherever in ``incoming`` it begins; so is an ``incoming`` that
    lies whole inside ``stored``. What only looks alike at another place ("ok", "好的") is new.
    """
    known = {message.message_id for message in stored if message.message_id is not None}
    fresh = [message for message in incoming if message.message_id is None or message.message_id not in known]
    if len(fresh) < len(incoming) and all(message.message_id is not None for message in incoming):
        return tuple(fresh)
    candidates = fresh if known else list(incoming)
    return tuple(candidates[_overlap(stored, candidates) :])


def _overlap(stored: Sequence[Message], incoming: Sequence[Message]) -> int:
    """How many leading messages of ``incoming`` are known."""
    if not stored or not incoming:
        return 0
    for start in range(len(stored) - len(incoming) + 1):
        if all(_same(stored[start + index], message) for index, message in enumerate(incoming)):
            return len(incoming)
    for length in range(min(len(stored), len(incoming)), 0, -1):
        tail = stored[len(stored) - length :]
        for start in range(len(incoming) - length + 1):
            if start and length < 2:
                continue
            if all(_same(tail[index], incoming[start + index]) for index in range(length)):
                return start + length
    return 0


def _same(left: Message, right: Message) -> bool:
    if (left.role, left.name, left.text) != (right.role, right.name, right.text):
        return False
    if left.time is not None and right.time is not None and left.time != right.time:
        return False
    if left.message_id is not None and right.message_id is not None and left.message_id != right.message_id:
        return False
    calls = [call.call_id for call in left.tool_calls] == [call.call_id for call in right.tool_calls]
    return calls and [result.call_id for result in left.tool_results] == [
        result.call_id for result in right.tool_results
    ]


def search_text(message: Message) -> str:
    """What a person would look for: the text, and tools with their arguments and answers."""
    parts = [message.text] if message.text.strip() else []
    parts += [f"{call.name} {_compact(call.arguments)}".strip() for call in message.tool_calls]
    parts += [f"{result.name or ''} {result.status or ''} {result.text}".strip() for result in message.tool_results]
    return "\n".join(parts)


def transcript_line(message: Message, limit: int | None = None) -> str:
    """``[2023-05-08 13:56] Caroline: text``, on one line, at most ``limit`` characters."""
    when = f"[{message.time:%Y-%m-%d %H:%M}] " if message.time is not None else ""
    said = " ".join(message.text.split())
    for call in message.tool_calls:
        said += f" [ToolCall] {call.name}({_compact(call.arguments)})"
    for result in message.tool_results:
        took = f", {result.duration_ms} ms" if result.duration_ms is not None else ""
        answer = " ".join(result.text.split())
        said += f" [ToolResult] {result.name or result.call_id}: {result.status or 'unknown'}{took}: {answer}"
    line = f"{when}{message.name or message.role}: {said.strip()}"
    return line if limit is None or len(line) <= limit else line[: limit - 1] + "…"


def session_id_for(messages: Sequence[Message]) -> str:
    """A session's name when the client gives none: the same conversation, sent again, has the same."""
    first = messages[0]
    day = f"{first.time.astimezone(UTC):%Y-%m-%d}" if first.time is not None else "session"
    seed = json.dumps([first.role, first.name, first.text, day], ensure_ascii=False)
    return f"{day}-{hashlib.sha256(seed.encode('utf-8')).hexdigest()[:8]}"


def _message(raw: Any, index: int) -> Message:
    where = f"messages[{index}]"
    if not isinstance(raw, Mapping):
        raise InvalidInput(f"{where} is not an object.", hint=_SHAPE_HINT)
    role = raw.get("role")
    if not isinstance(role, str) or not role.strip() or len(role) > _ROLE_LIMIT_CHARS:
        raise InvalidInput(f"{where} has no role.", hint=_SHAPE_HINT)
    body = _Body(where)
    body.read_content(raw.get("content", raw.get("text")))
    body.read_openai(raw)
    name = raw.get("name")
    identifier = raw.get("id", raw.get("message_id"))
    message = Message(
        role=role,
        text="".join(body.texts) if len(body.texts) == 1 else "\n".join(body.texts),
        name=None if name is None or body.names_tool(role) else str(name),
        time=_time(next((raw[key] for key in _TIME_KEYS if raw.get(key) is not None), None), where),
        message_id=None if identifier is None else str(identifier),
        tool_calls=tuple(body.calls),
        tool_results=tuple(body.results),
        extra={
            key: value
            for key, value in raw.items()
            if key not in _KNOWN_KEYS and isinstance(value, str | int | float | bool)
        },
    )
    _check(message, where)
    return message


class _Body:
    """Collects the text and tool records of one message, whatever their shape."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.texts: list[str] = []
        self.calls: list[ToolCall] = []
        self.results: list[ToolResult] = []

    def names_tool(self, role: str) -> bool:
        """Whether the message's ``name`` is that of a tool, not of a person."""
        return role in ("tool", "function") and bool(self.results)

    def read_content(self, content: Any) -> None:
        """Text, or a list of blocks in Anthropic's or OpenAI's form."""
        if content is None:
            return
        if isinstance(content, str):
            self.texts.append(content)
        elif isinstance(content, list):
            for block in content:
                self._read_block(block)
        else:
            raise InvalidInput(f"{self.where}: content must be text or a list of blocks.", hint=_SHAPE_HINT)

    def read_openai(self, raw: Mapping[str, Any]) -> None:
        """``tool_calls``, the old ``function_call``, and messages of role tool."""
        for call in raw.get("tool_calls") or ():
            if isinstance(call, Mapping):
                function = call.get("function", call)
                self._call(call.get("id", call.get("call_id")), function.get("name"), function.get("arguments"))
        legacy = raw.get("function_call")
        if isinstance(legacy, Mapping):
            self._call(None, legacy.get("name"), legacy.get("arguments"))
        if raw.get("tool_call_id") is not None or raw.get("role") in ("tool", "function"):
            text = "\n".join(self.texts)
            self.texts.clear()
            self.results.append(_result(raw, raw.get("tool_call_id"), raw.get("name"), text))
        for result in raw.get("tool_results") or ():
            if isinstance(result, Mapping):
                text = _plain(result.get("text", result.get("content", "")))
                identifier = result.get("call_id", result.get("tool_call_id"))
                self.results.append(_result(result, identifier, result.get("name"), text))

    def _read_block(self, block: Any) -> None:
        if isinstance(block, str):
            self.texts.append(block)
            return
        if not isinstance(block, Mapping):
            raise InvalidInput(f"{self.where}: a content block is not an object.", hint=_SHAPE_HINT)
        kind = block.get("type")
        if kind in ("text", "input_text", "output_text") or (kind is None and "text" in block):
            self.texts.append(str(block.get("text", "")))
        elif kind == "tool_use":
            self._call(block.get("id"), block.get("name"), block.get("input"))
        elif kind == "tool_result":
            text = _plain(block.get("content", ""))
            self.results.append(_result(block, block.get("tool_use_id"), block.get("name"), text))
        elif kind not in ("thinking", "redacted_thinking"):
            self.texts.append(f"[{kind}]")

    def _call(self, identifier: Any, name: Any, arguments: Any) -> None:
        if isinstance(arguments, str):
            with suppress(json.JSONDecodeError):  # else kept as the text it is
                arguments = json.loads(arguments)
        skill = arguments.get("skill_name") if isinstance(arguments, Mapping) else None
        call_id = str(identifier) if identifier is not None else f"call-{len(self.calls)}"
        self.calls.append(ToolCall(call_id, str(name or "unknown"), arguments, str(skill) if skill else None))


def _result(raw: Mapping[str, Any], identifier: Any, name: Any, text: str) -> ToolResult:
    usage = raw.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    status = raw.get("status")
    if not isinstance(status, str):
        status = "error" if raw.get("is_error") is True else "completed"
    return ToolResult(
        call_id=str(identifier) if identifier is not None else "",
        name=None if name is None else str(name),
        text=text,
        status=status,
        duration_ms=_count(raw.get("duration_ms", raw.get("duration"))),
        prompt_tokens=_count(raw.get("prompt_tokens", usage.get("prompt_tokens", usage.get("input_tokens")))),
        completion_tokens=_count(
            raw.get("completion_tokens", usage.get("completion_tokens", usage.get("output_tokens")))
        ),
    )


def _plain(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(
            str(block.get("text", f"[{block.get('type')}]")) if isinstance(block, Mapping) else str(block)
            for block in content
        )
    return _compact(content)


def _count(value: Any) -> int | None:
    sound = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 and value == value
    return round(value) if sound and value < 2**53 else None


def _time(value: Any, where: str) -> datetime | None:
    if value is None:
        return None
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            seconds = value / 1_000 if abs(value) >= _MILLISECONDS_FROM else value
            return datetime.fromtimestamp(seconds, UTC)
        moment = datetime.fromisoformat(str(value).strip())
    except (ValueError, OverflowError, OSError):
        raise InvalidInput(
            f"{where}: the time {value!r} cannot be read.",
            hint="Use ISO 8601 such as 2026-03-17T09:30:00Z, or seconds since 1970.",
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _check(message: Message, where: str) -> None:
    if not message.text.strip() and not message.tool_calls and not message.tool_results:
        raise ContentRejected(f"{where} is blank.", hint="Leave empty messages out.")
    line = json.dumps(to_record(message), ensure_ascii=False)
    if "\\u0000" in line or "\x00" in message.text:
        raise ContentRejected(f"{where} holds a NUL character.", hint="Remove it and send the conversation again.")
    try:
        line.encode("utf-8")
    except UnicodeEncodeError:
        raise ContentRejected(
            f"{where} holds half of a surrogate pair, which is not text.", hint="Send the complete character."
        ) from None


def _line(message: Message) -> str:
    line = json.dumps(to_record(message), ensure_ascii=False)
    for character, escape in _LINE_BREAKS.items():
        line = line.replace(character, escape)
    return line


def _slim(record: ToolCall | ToolResult, members: Sequence[str]) -> dict[str, Any]:
    return {name: value for name in members if (value := getattr(record, name)) is not None}


def _compact(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
