"""One message of a conversation, and the JSON line that holds it in a session's log.

``to_record`` and ``from_record`` are inverse, ``dump_lines`` and ``parse_lines`` their forms for many messages.
A record uses the keys that callers send, so a line of a log can be sent again. Client shapes are read in
``message_shapes``; nothing here touches a file or a clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NoReturn

from memory_core.errors import InvalidInput
from memory_core.model.message_values import moment, sound_text
from memory_core.model.project import folder_name

Scalar = str | int | float | bool

#: ``str.splitlines`` breaks at these and JSON leaves them as they are; lone surrogates fit in no file.
_ESCAPED = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029, *range(0xD800, 0xE000))}
_HINT = "Repair or remove that line of messages.jsonl; the other messages are unaffected."
_KEYS = frozenset({"role", "name", "time", "id", "content", "tool_calls", "tool_results", "extra"})


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A request to run a tool.

    Attributes:
        call_id: The client's id of the call; empty when it gave none.
        name: The tool's name, exactly as recorded.
        arguments: Any JSON value; text that was not JSON stays text.
        skill_name: The skill that the call belongs to, if it says so.
    """

    call_id: str
    name: str
    arguments: Any = None
    skill_name: str | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered.

    Attributes:
        call_id: Id of the call that is answered; empty when the client gave none.
        name: The tool's name, if known.
        text: The answer; other media appear as ``[image]``.
        status: ``completed`` is the only success; ``error`` or the client's own word otherwise.
        duration_ms: How long the call took, in milliseconds.
        prompt_tokens: Tokens read by the call.
        completion_tokens: Tokens written by the call.
    """

    call_id: str
    name: str | None = None
    text: str = ""
    status: str | None = None
    duration_ms: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Attributes:
        role: ``user``, ``assistant``, ``system``, ``developer``, ``tool`` or another short word.
        text: What was said, byte for byte; empty when the message only records tools.
        name: The speaker, where the role does not say it.
        time: When it was said, with an offset; None when unknown.
        message_id: The client's id of the message.
        tool_calls: Calls that the message makes.
        tool_results: Answers that the message brings.
        extra: Scalar keys that mean nothing here, kept as they came.
        project: The project in which it was said, as the recorder noted it; what a client sends does not count.
        private: Whether it is private to that project.
    """

    role: str
    text: str = ""
    name: str | None = None
    time: datetime | None = None
    message_id: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    extra: Mapping[str, Scalar] = field(default_factory=dict)
    project: str | None = None
    private: bool = False


def to_record(message: Message) -> dict[str, Any]:
    """The message as a JSON object without its empty members."""
    members: dict[str, Any] = {
        "role": message.role,
        "name": message.name,
        "time": None if message.time is None else message.time.isoformat(),
        "id": message.message_id,
        "content": message.text or None,
        "tool_calls": [_call_record(call) for call in message.tool_calls] or None,
        "tool_results": [_result_record(result) for result in message.tool_results] or None,
        "extra": dict(message.extra) or None,
        "project": message.project,
        "private": True if message.private and message.project is not None else None,
    }
    return {key: value for key, value in members.items() if value is not None}


def from_record(record: Mapping[str, Any]) -> Message:
    """The inverse of ``to_record``; scalar keys that a person added are taken into ``extra``.

    Raises:
        InvalidInput: If the record has no role, or a member has the wrong type.
    """
    role = _text(record, "role")
    if not role:
        _refuse("it has no role")
    extra = record.get("extra", {})
    if not isinstance(extra, Mapping):
        _refuse("'extra' is not an object")
    project = _project(record.get("project"))
    private = project is not None and record.get("private") is True
    noted = ({"project"} if project is not None else set()) | ({"private"} if private else set())
    added = {key: value for key, value in record.items() if key not in _KEYS and key not in noted}
    return Message(
        role=role,
        text=_text(record, "content") or "",
        name=_text(record, "name"),
        time=moment(_text(record, "time"), "a stored message"),
        message_id=_text(record, "id"),
        tool_calls=tuple(_call(entry) for entry in _entries(record, "tool_calls")),
        tool_results=tuple(_result(entry) for entry in _entries(record, "tool_results")),
        extra={key: value for key, value in {**added, **extra}.items() if isinstance(value, str | int | float)},
        project=project,
        private=private,
    )


def dump_lines(messages: Iterable[Message]) -> str:
    """One JSON object a line, each line ended; a message is one line even for ``str.splitlines``."""
    return "".join(
        json.dumps(to_record(message), ensure_ascii=False, allow_nan=False).translate(_ESCAPED) + "\n"
        for message in messages
    )


def parse_lines(text: str) -> tuple[list[Message], list[str]]:
    """Read a log, whatever happened to some of its lines.

    Returns:
        The messages of all sound lines in order, and one sentence for each damaged line.
    """
    messages: list[Message] = []
    damage: list[str] = []
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            messages.append(from_record(_record(line)))
        except InvalidInput as error:
            damage.append(f"line {number} was left out: {error.message}")
    return messages, damage


def _record(line: str) -> Mapping[str, Any]:
    try:
        record = json.loads(line, parse_constant=_not_finite)
    except (ValueError, RecursionError) as error:
        _refuse(f"it is not valid JSON ({error})")
    if not isinstance(record, dict):
        _refuse("it is not a JSON object")
    if "\\u" in line:
        _check_texts(record)
    return record


def _check_texts(record: Any) -> None:
    """Refuse escapes that JSON allows and no file, index or answer can hold."""
    waiting = [record]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            sound_text(value, "it")
        elif isinstance(value, dict):
            waiting += [*value, *value.values()]
        elif isinstance(value, list):
            waiting += value


def _not_finite(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _refuse(reason: str) -> NoReturn:
    raise InvalidInput(f"a stored message cannot be read: {reason}.", hint=_HINT)


def _call_record(call: ToolCall) -> dict[str, Any]:
    record: dict[str, Any] = {"id": call.call_id} if call.call_id else {}
    record |= {"name": call.name, "arguments": call.arguments}
    return record if call.skill_name is None else {**record, "skill_name": call.skill_name}


def _result_record(result: ToolResult) -> dict[str, Any]:
    members = {
        "id": result.call_id or None,
        "name": result.name,
        "content": result.text or None,
        "status": result.status,
        "duration_ms": result.duration_ms,
        "prompt_tokens": result.prompt_tokens,
        "completion_tokens": result.completion_tokens,
    }
    return {key: value for key, value in members.items() if value is not None}


def _call(entry: Mapping[str, Any]) -> ToolCall:
    return ToolCall(
        call_id=_text(entry, "id") or "",
        name=_text(entry, "name") or "",
        arguments=entry.get("arguments"),
        skill_name=_text(entry, "skill_name"),
    )


def _result(entry: Mapping[str, Any]) -> ToolResult:
    return ToolResult(
        call_id=_text(entry, "id") or "",
        name=_text(entry, "name"),
        text=_text(entry, "content") or "",
        status=_text(entry, "status"),
        duration_ms=_count(entry, "duration_ms"),
        prompt_tokens=_count(entry, "prompt_tokens"),
        completion_tokens=_count(entry, "completion_tokens"),
    )


def _entries(record: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    entries = record.get(key, [])
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        _refuse(f"{key!r} is not a list of objects")
    return entries


def _text(record: Mapping[str, Any], key: str) -> str | None:
    value = record.get(key)
    if value is not None and not isinstance(value, str):
        _refuse(f"{key!r} is not text")
    return value


def _project(value: Any) -> str | None:
    """The project of a line; what a person wrote there that cannot be one is an ordinary key."""
    return folder_name(value) if isinstance(value, str) and folder_name(value) == value else None


def _count(record: Mapping[str, Any], key: str) -> int | None:
    value = record.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        _refuse(f"{key!r} is not a whole number")
    return value
