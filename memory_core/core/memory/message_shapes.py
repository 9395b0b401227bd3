"""The shapes in which clients send conversations: plain, Anthropic's and OpenAI's.

``parse_messages`` is the one edge where they are read. What was said is kept byte for byte; what cannot be
stored is refused with the index of the message. Reasoning ("thinking") is not kept, media become a word in
brackets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from memory_core.core.errors import ContentRejected, InvalidInput
from memory_core.core.memory.message import (
    Message,
    Scalar,
    ToolCall,
    ToolResult,
    json_value,
    milliseconds,
    moment,
    sound_text,
    token_count,
    value_count,
)

ROLE_LIMIT_CHARS = 64
NAME_LIMIT_CHARS = 256

_HINT = "Send each message as {role, content}, for example {'role': 'user', 'content': 'hello'}."
_TEXT_TYPES = frozenset({"text", "input_text", "output_text", "refusal"})
_REASONING_TYPES = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})
_MEDIA = {
    "image_url": "image",
    "input_image": "image",
    "document": "file",
    "input_file": "file",
    "input_audio": "audio",
    "video_url": "video",
}
_TIME_KEYS = ("time", "timestamp", "created_at")
_ID_KEYS = ("id", "message_id")
_CALL_ID_KEYS = ("tool_call_id", "tool_use_id", "call_id")
_ARGUMENT_KEYS = ("input", "arguments", "args")
_SKILL_KEYS = ("skill_name", "skill")
_DETAIL_KEYS = frozenset(
    {"status", "is_error", "isError", "usage", "duration", "duration_ms"}
    | {"prompt_tokens", "input_tokens", "completion_tokens", "output_tokens"}
)
_KNOWN_KEYS = frozenset(
    {*_TIME_KEYS, *_ID_KEYS, "role", "content", "name", "tool_calls", "tool_results", "function_call", "extra"}
)
_SUCCESS = frozenset({"completed", "complete", "success", "succeeded", "successful", "ok", "done"})
_FAILURE = frozenset({"error", "errored", "fail", "failed", "failure"})
#: Arguments of a call that hold more values stay text, where each takes one byte and not a hundred.
_ARGUMENT_VALUES = 1_000
#: What stands before a value of a JSON text, or a text in it.
_JSON_MARKS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{,]', re.DOTALL)
#: The tool by which Claude Code loads the instructions of a skill.
SKILL_TOOL = "Skill"
_SKILL_PATH = re.compile(r"(?:^|[/\\])skills[/\\]([^/\\]+)[/\\]SKILL\.md$")


@dataclass(slots=True)
class _Parts:
    """What the content of one message holds, while it is read."""

    texts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    results: list[ToolResult] = field(default_factory=list)
    glue: str = "\n"
    reasoning: bool = False


def parse_messages(raw: Sequence[Any]) -> tuple[Message, ...]:
    """Read a conversation as a client sends it.

    Accepted are ``{role, content, name?, time|timestamp|created_at?, id?}`` with text or a list of content parts,
    Anthropic's ``tool_use`` and ``tool_result`` blocks, OpenAI's ``tool_calls``, ``function_call`` and ``tool``
    messages, and records of a session log. Details of a tool's run (``status``, ``is_error``, ``duration_ms`` in
    milliseconds, ``duration`` in seconds, ``usage``) are read beside the result. A result that does not say
    how it ended is ``completed``. A message that holds only reasoning is left out. Times are ISO 8601 (UTC
    where no offset is given) or seconds, milliseconds, … since 1970.

    Raises:
        ContentRejected: If a message is blank and records no tool, or holds NUL or a lone surrogate.
        InvalidInput: If a message has another shape; the text names ``messages[i]``.
    """
    if isinstance(raw, str | bytes | Mapping) or not isinstance(raw, Sequence):
        raise InvalidInput("messages is not a list.", hint=_HINT)
    parsed = [_message(item, f"messages[{index}]") for index, item in enumerate(raw)]
    messages = [message for message in parsed if message is not None]
    names = {call.call_id: call.name for message in messages for call in message.tool_calls if call.call_id}
    return tuple(_with_tool_names(message, names) for message in messages)


def _message(item: Any, at: str) -> Message | None:
    if not isinstance(item, Mapping):
        raise InvalidInput(f"{at} is not an object.", hint=_HINT)
    role = _role(item, at)
    parts = _Parts()
    is_result = role in ("tool", "function") and "tool_results" not in item and not _holds_results(item.get("content"))
    if is_result:
        parts.results.append(_tool_result(item, at, item.get("content")))
    else:
        _read_content(item.get("content"), f"{at}.content", parts)
    _read_tool_lists(item, at, parts)
    # An assistant's usage is what writing the message cost, not what the tool did.
    shares_details = not is_result and role != "assistant" and len(parts.results) == 1
    if shares_details:
        parts.results[0] = _with_details(parts.results[0], item, at)
    text = parts.glue.join(parts.texts)
    if not text.strip() and not parts.calls and not parts.results:
        if parts.reasoning:
            return None
        raise ContentRejected(f"{at} is blank.", hint="Leave the message out, or give its content.")
    consumed = _KNOWN_KEYS | (_DETAIL_KEYS if is_result or shares_details else frozenset())
    return Message(
        role=role,
        text=text,
        name=None if is_result else _label(item, ("name",), at),
        time=moment(_first(item, _TIME_KEYS), at),
        message_id=_identifier(item, _ID_KEYS, at),
        tool_calls=tuple(parts.calls),
        tool_results=tuple(parts.results),
        extra=_extra(item, consumed | (frozenset(_CALL_ID_KEYS) if is_result else frozenset()), at),
    )


def _role(item: Mapping[str, Any], at: str) -> str:
    role = item.get("role")
    if not isinstance(role, str) or not role.strip():
        raise InvalidInput(f"{at} has no role.", hint=_HINT)
    if len(role) > ROLE_LIMIT_CHARS:
        raise InvalidInput(
            f"{at}.role is {len(role)} characters; the limit is {ROLE_LIMIT_CHARS}.",
            hint="Use user, assistant, system, developer or tool; give a speaker as 'name'.",
        )
    return sound_text(role, f"{at}.role").strip()


def _read_content(content: Any, at: str, parts: _Parts) -> None:
    if content is None:
        return
    if isinstance(content, str):
        parts.texts.append(sound_text(content, at))
        return
    blocks = [content] if isinstance(content, Mapping) else content
    if not isinstance(blocks, list | tuple):
        raise InvalidInput(f"{at} is neither text nor a list of content parts.", hint=_HINT)
    for index, block in enumerate(blocks):
        _read_block(block, f"{at}[{index}]", parts)


def _read_block(block: Any, at: str, parts: _Parts) -> None:
    if isinstance(block, str):
        parts.texts.append(sound_text(block, at))
        return
    if not isinstance(block, Mapping):
        raise InvalidInput(f"{at} is neither text nor an object with a type.", hint=_HINT)
    kind = block.get("type", "text")
    if not isinstance(kind, str):
        raise InvalidInput(f"{at}.type is not text.", hint=_HINT)
    if kind in _REASONING_TYPES:
        parts.reasoning = True
    elif kind.endswith("tool_use"):
        parts.calls.append(_tool_call(block, at))
    elif kind.endswith("tool_result"):
        parts.results.append(_tool_result(block, at, block.get("content")))
    elif kind in _TEXT_TYPES or isinstance(block.get("text"), str):
        spoken = block.get("refusal") if kind == "refusal" else block.get("text")
        if not isinstance(spoken, str):
            raise InvalidInput(f"{at} has no text.", hint=_HINT)
        if spoken:
            parts.texts.append(sound_text(spoken, at))
        if block.get("citations"):
            parts.glue = ""  # one sentence, cut where its sources change
    else:
        parts.texts.append(f"[{_MEDIA.get(kind, sound_text(kind, at))}]")


def _read_tool_lists(item: Mapping[str, Any], at: str, parts: _Parts) -> None:
    """Calls and results that stand beside the content: OpenAI's, and those of a session log."""
    for index, entry in enumerate(_objects(item, "tool_calls", at)):
        where = f"{at}.tool_calls[{index}]"
        call = _tool_call(entry, where)
        parts.calls.append(call)
        answer = _first(entry, ("result", "output"))
        if answer is not None or _first(entry, ("status", "is_error", "isError")) is not None:
            result = _tool_result(entry, where, answer)
            parts.results.append(replace(result, call_id=call.call_id, name=call.name))
    legacy = item.get("function_call")
    if isinstance(legacy, Mapping):
        parts.calls.append(_tool_call(legacy, f"{at}.function_call"))
    for index, entry in enumerate(_objects(item, "tool_results", at)):
        parts.results.append(_tool_result(entry, f"{at}.tool_results[{index}]", entry.get("content")))


def _tool_call(entry: Mapping[str, Any], at: str) -> ToolCall:
    function = next((entry[key] for key in ("function", "custom") if isinstance(entry.get(key), Mapping)), entry)
    name = _label(function, ("name",), at)
    if name is None:
        raise InvalidInput(f"{at} has no tool name.", hint="Give the tool's name, exactly as it is called.")
    arguments = _arguments(_first(function, _ARGUMENT_KEYS), f"{at}.arguments")
    return ToolCall(
        call_id=_identifier(entry, ("id", "call_id", "tool_call_id"), at) or "",
        name=name,
        arguments=arguments,
        skill_name=_label(entry, _SKILL_KEYS, at) or skill_in(name, arguments),
    )


def _arguments(value: Any, at: str) -> Any:
    if value is None:
        return {}
    if not isinstance(value, str):
        given = json_value(value, at)
        return (
            json.dumps(given, ensure_ascii=False) if value_count(given, _ARGUMENT_VALUES) > _ARGUMENT_VALUES else given
        )
    sound_text(value, at)
    marks = (mark for mark in _JSON_MARKS.finditer(value) if not mark.group().startswith('"'))
    if next(islice(marks, _ARGUMENT_VALUES, None), None) is not None:
        return value
    try:
        return json_value(json.loads(value), at)
    except (ValueError, RecursionError, InvalidInput):
        return value  # a model's broken JSON is a fact worth keeping as it was written


def skill_in(name: str, arguments: Any) -> str | None:
    """The skill that a call invokes or whose instructions it reads."""
    if not isinstance(arguments, Mapping):
        return None
    texts = {key: value for key, value in arguments.items() if isinstance(value, str)}
    if name == SKILL_TOOL:
        return next((texts[key] for key in (*_SKILL_KEYS, "command") if texts.get(key)), None)
    found = (_SKILL_PATH.search(value) for value in texts.values())
    return next((match.group(1) for match in found if match is not None), None)


def _tool_result(entry: Mapping[str, Any], at: str, content: Any) -> ToolResult:
    inner = _Parts()
    if content is None or isinstance(content, str) or _is_block_list(content):
        _read_content(content, f"{at}.content", inner)
        text = "\n".join(inner.texts)
    else:
        text = json.dumps(json_value(content, f"{at}.content"), ensure_ascii=False)
    keys = _CALL_ID_KEYS if "role" in entry else (*_CALL_ID_KEYS, "id")  # a message's id is its own
    bare = ToolResult(call_id=_identifier(entry, keys, at) or "", name=_label(entry, ("name",), at), text=text)
    return replace(_with_details(bare, entry, at), status=_status(entry, at))


def _holds_results(content: Any) -> bool:
    """Whether the content holds results that say themselves which call they answer."""
    return isinstance(content, list | tuple) and any(
        isinstance(part, Mapping) and str(part.get("type", "")).endswith("tool_result") for part in content
    )


def _is_block_list(content: Any) -> bool:
    """Whether a tool's answer consists of content parts; any other list is its data."""
    return isinstance(content, list | tuple) and all(
        isinstance(part, str) or (isinstance(part, Mapping) and isinstance(part.get("type"), str)) for part in content
    )


def _status(entry: Mapping[str, Any], at: str) -> str:
    """``completed`` only where nothing says otherwise; a failure flag outweighs a friendly word."""
    status = entry.get("status")
    if status is not None and not isinstance(status, str):
        raise InvalidInput(f"{at}.status is not text.", hint="Use 'completed' or 'error'.")
    word = sound_text(status or "", f"{at}.status").strip()
    folded = word.casefold()
    failed = _first(entry, ("is_error", "isError")) not in (None, False, 0, "", "false", "False")
    if folded in _FAILURE or (failed and (not word or folded in _SUCCESS)):
        return "error"
    return "completed" if not word or folded in _SUCCESS else word


def _with_details(result: ToolResult, entry: Mapping[str, Any], at: str) -> ToolResult:
    """The result with what ``entry`` tells of its run, where the result does not know it yet."""
    usage = entry.get("usage")
    told: Mapping[str, Any] = {**usage, **entry} if isinstance(usage, Mapping) else entry
    found: dict[str, Any] = {}
    if result.status in (None, "completed") and _first(entry, ("status", "is_error", "isError")) is not None:
        found["status"] = _status(entry, at)
    if result.duration_ms is None:
        found["duration_ms"] = milliseconds(entry, at)
    for name, other in (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")):
        if getattr(result, name) is None:
            found[name] = token_count(_first(told, (name, other)), at)
    return replace(result, **found)


def _with_tool_names(message: Message, names: Mapping[str, str]) -> Message:
    if all(result.name is not None for result in message.tool_results):
        return message
    named = (
        replace(result, name=names.get(result.call_id)) if result.name is None else result
        for result in message.tool_results
    )
    return replace(message, tool_results=tuple(named))


def _objects(item: Mapping[str, Any], key: str, at: str) -> Sequence[Mapping[str, Any]]:
    entries = item.get(key)
    if entries is None:
        return ()
    if not isinstance(entries, list | tuple) or not all(isinstance(entry, Mapping) for entry in entries):
        raise InvalidInput(f"{at}.{key} is not a list of objects.", hint=_HINT)
    return entries


def _first(entry: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return next((entry[key] for key in keys if entry.get(key) is not None), None)


def _label(entry: Mapping[str, Any], keys: tuple[str, ...], at: str) -> str | None:
    """A name, exactly as given; None when it is absent or blank."""
    name = _first(entry, keys)
    if name is None:
        return None
    if not isinstance(name, str) or len(name) > NAME_LIMIT_CHARS:
        raise InvalidInput(
            f"{at}.{keys[0]} is not text of at most {NAME_LIMIT_CHARS} characters.", hint="Send a short name, or none."
        )
    return sound_text(name, f"{at}.{keys[0]}") if name.strip() else None


def _identifier(entry: Mapping[str, Any], keys: tuple[str, ...], at: str) -> str | None:
    identifier = _first(entry, keys)
    if isinstance(identifier, int) and not isinstance(identifier, bool):
        identifier = str(identifier)
    return _label({keys[0]: identifier}, keys[:1], at)


def _extra(item: Mapping[str, Any], known: frozenset[str], at: str) -> dict[str, Scalar]:
    nested = item.get("extra")
    unknown = {key: value for key, value in item.items() if key not in known}
    candidates = {**unknown, **(nested if isinstance(nested, Mapping) else {"extra": nested})}
    scalars = {key: value for key, value in candidates.items() if isinstance(value, str | int | float)}
    checked: dict[str, Scalar] = json_value(scalars, at)
    return checked
