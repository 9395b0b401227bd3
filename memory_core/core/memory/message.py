"""Conversations: how messages are read, compared, shown and named.

The one import for everything about messages: values and log lines come from ``message``, client shapes from
``message_shapes``, the rule for what is new from ``overlap``. Owned here: how a message looks to a reader and
to the search, and which session a conversation without an id belongs to. Pure, and without a clock.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime, timedelta, timezone
from operator import attrgetter
from typing import Any, NamedTuple, NoReturn

from memory_core.core.caches import PrefixCache, held_bytes, tallied
from memory_core.core.errors import ContentRejected, InvalidInput
from memory_core.core.frozen import frozen
from memory_core.core.memory.project import folder_name
from memory_core.core.text.language import UNDECIDED, LanguageCounts

DEPTH_LIMIT = 64
_INTEGER_LIMIT_BITS = 4096
_COUNT_LIMIT = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_SHOWN_CHARS, _TIME_SHOWN_BITS = 60, 200
_DIGITS = re.compile(r"[+-]?\d{9,}(\.\d+)?")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_TIME_HINT = "Send ISO 8601 such as 2023-05-08T13:56:00+08:00, or seconds or milliseconds since 1970, or no time."


def sound_text(text: str, at: str) -> str:
    """The text, unchanged.

    Raises:
        ContentRejected: If it holds NUL or a lone surrogate; ``at`` says where.
    """
    found = _UNSTORABLE.search(text)
    if found is None:
        return text
    what = "a NUL character" if found.group() == "\x00" else "a lone surrogate"
    raise ContentRejected(
        f"{at} holds {what} at character {found.start()}, which no text file can.", hint="Remove it and send again."
    )


def json_value(value: Any, at: str, depth: int = 0) -> Any:
    """A plain copy of a JSON value.

    Raises:
        InvalidInput: If it is no JSON value, is nested beyond ``DEPTH_LIMIT``, or holds a number JSON has not.
        ContentRejected: If a text in it cannot be stored.
    """
    if depth > DEPTH_LIMIT:
        raise InvalidInput(f"{at} is nested deeper than {DEPTH_LIMIT}.", hint="Send it as text.")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return sound_text(value, at)
    if isinstance(value, int) and value.bit_length() <= _INTEGER_LIMIT_BITS:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list | tuple):
        return [json_value(item, at, depth + 1) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {sound_text(key, at): json_value(item, at, depth + 1) for key, item in value.items()}
    raise InvalidInput(f"{at} holds a value that JSON cannot carry.", hint="Send text, finite numbers, lists, objects.")


def value_count(value: Any, most: int = sys.maxsize) -> int:
    """How many values a JSON value consists of, itself counted; counting ends once there are more than ``most``."""
    count, waiting = 0, [value]
    while waiting and count <= most:
        each = waiting.pop()
        count += 1
        waiting += each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
    return count


def moment(value: Any, at: str) -> datetime | None:
    """A time with its offset; UTC where none is given, None for None or blank text.

    Numbers, and text of nine or more digits, count seconds since 1970; from 1e11 on milliseconds, from 1e14
    on microseconds, from 1e17 on nanoseconds.

    Raises:
        InvalidInput: If it is not a time between the years 1 and 9999.
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    try:
        if isinstance(value, str):
            text = value.strip()
            found = _since_epoch(float(text)) if _DIGITS.fullmatch(text) else datetime.fromisoformat(text)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found = _since_epoch(value)
        elif isinstance(value, datetime):
            found = value
        else:
            raise TypeError
        found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        found = found.replace(tzinfo=timezone(found.utcoffset() or timedelta(0)), fold=0)
        found.astimezone(UTC)  # a time that overflows in UTC could be neither compared nor sorted
    except (ValueError, OverflowError, TypeError):
        raise InvalidInput(f"the time of {at}, {_shown_time(value)}, cannot be read.", hint=_TIME_HINT) from None
    return found


def _shown_time(value: Any) -> str:
    """What stands where a time should; only the type of what is neither text nor number, for it may have any size."""
    if isinstance(value, str):
        return repr(value) if len(value) <= _TIME_SHOWN_CHARS else f"{value[:_TIME_SHOWN_CHARS]!r}…"
    if isinstance(value, int) and value.bit_length() > _TIME_SHOWN_BITS:
        return "a number of many digits"
    return repr(value) if isinstance(value, int | float) else f"of type {type(value).__name__}"


def milliseconds(entry: Mapping[str, Any], at: str) -> int | None:
    """``duration_ms``, else ``duration`` in seconds, as whole milliseconds; None when neither is given.

    Raises:
        InvalidInput: If it is not a number >= 0.
    """
    for key, scale in (("duration_ms", 1), ("duration", 1000)):
        value = entry.get(key)
        if value is not None:
            return _count(value, scale, f"{at}.{key}", "Give duration_ms in milliseconds, or duration in seconds.")
    return None


def token_count(value: Any, at: str) -> int | None:
    """A number of tokens; None for None.

    Raises:
        InvalidInput: If it is not a number >= 0.
    """
    return None if value is None else _count(value, 1, f"{at}: a token count", "Give whole numbers, or none.")


def _count(value: Any, scale: int, at: str, hint: str) -> int:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value * scale <= _COUNT_LIMIT:
        raise InvalidInput(f"{at} is not a number of at least 0.", hint=hint)
    return round(value * scale)


def _since_epoch(number: float) -> datetime:
    size = abs(number)
    unit = next((unit for limit, unit in ((1e11, 1), (1e14, 10**3), (1e17, 10**6)) if size < limit), 10**9)
    if isinstance(number, int):
        whole, rest = divmod(number, unit)
        return _EPOCH + timedelta(seconds=whole, microseconds=rest * 10**6 // unit)
    return _EPOCH + timedelta(seconds=number / unit)


Scalar = str | int | float | bool

#: ``str.splitlines`` breaks at these and JSON leaves them as they are; lone surrogates fit in no file.
LINE_ESCAPES = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029, *range(0xD800, 0xE000))}
_HINT = "Repair or remove that line of messages.jsonl; the other messages are unaffected."
#: Members of a stored answer that are whole numbers.
_COUNTS = ("duration_ms", "prompt_tokens", "completion_tokens")
_KEYS = frozenset({"role", "name", "time", "id", "content", "tool_calls", "tool_results", "extra"})


@frozen
class ToolCall:
    """A request to run a tool.

    Attributes:
        call_id: The client's id of the call; empty when it gave none.
        name: The tool's name, exactly as recorded.
        arguments: Any JSON value; text that was not JSON, or of very many values, stays text.
        skill_name: The skill that the call belongs to, if it says so.
    """

    call_id: str
    name: str
    arguments: Any = None
    skill_name: str | None = None


@frozen
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


@frozen
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
        json.dumps(to_record(message), ensure_ascii=False, allow_nan=False).translate(LINE_ESCAPES) + "\n"
        for message in messages
    )


#: Logs that are read again as they grow, the last ones used; bytes of their texts and messages.
_READ_LOGS, _READ_LOGS_BYTES = 16, 64 << 20
_LEAST_REREAD_CHARS = 2_048


class _ReadLines(NamedTuple):
    """What was read of a log's whole lines."""

    messages: list[Message]
    damage: list[str]
    lines: int
    held: int

    def and_these(self, text: str) -> _ReadLines:
        """With those that follow."""
        fresh, harm = _parsed(text, self.lines + 1)
        held = self.held + held_bytes(fresh, harm, most=_READ_LOGS_BYTES)
        return _ReadLines([*self.messages, *fresh], [*self.damage, *harm], self.lines + text.count("\n"), held)


_LOGS: PrefixCache[str, _ReadLines] = PrefixCache(_READ_LOGS, _READ_LOGS_BYTES, attrgetter("held"))


def parse_lines(text: str) -> tuple[list[Message], list[str]]:
    """Read a log, whatever happened to some of its lines.

    Returns:
        The messages of all sound lines in order, and one sentence for each damaged line.
    """
    if len(text) < _LEAST_REREAD_CHARS:
        return _parsed(text, 1)
    whole = text.rfind("\n") + 1  # a last line without an end may still grow
    read = _LOGS.value(text[:whole], _ReadLines([], [], 0, 0), _ReadLines.and_these)
    if whole < len(text):
        read = read.and_these(text[whole:])
    return list(read.messages), list(read.damage)


def each_line(text: str) -> Iterator[str]:
    """What ``split`` gives of a text by its line ends, one after the other."""
    at = 0
    while (end := text.find("\n", at)) >= 0:
        yield text[at:end]
        at = end + 1
    yield text[at:]


def numbered(text: str) -> Iterator[tuple[int, Message]]:
    """Each readable message of a log with its line number; a damaged line keeps its number to itself."""
    for number, line in enumerate(each_line(text)):
        messages, _ = parse_lines(line)
        if messages:
            yield number, messages[0]


def _parsed(text: str, first: int) -> tuple[list[Message], list[str]]:
    """The same of lines whose first one has this number."""
    messages: list[Message] = []
    damage: list[str] = []
    for number, line in enumerate(each_line(text.removeprefix("\ufeff")), start=first):
        if not line.strip():
            continue
        try:
            messages.append(from_record(_record(line)))
        except InvalidInput as error:
            damage.append(f"line {number} was left out: {error.message}")
    return messages, damage


def _record(line: str) -> Mapping[str, Any]:
    try:
        record = json.loads(line, parse_constant=_not_finite, parse_float=_finite)
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


def _finite(number: str) -> float:
    value = float(number)
    return value if math.isfinite(value) else _not_finite(number)


def _not_finite(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _refuse(reason: str) -> NoReturn:
    raise InvalidInput(f"a stored message cannot be read: {reason}.", hint=_HINT)


def _call_record(call: ToolCall) -> dict[str, Any]:
    record: dict[str, Any] = {"id": call.call_id} if call.call_id else {}
    record |= {"name": call.name, "arguments": call.arguments}
    return record if call.skill_name is None else {**record, "skill_name": call.skill_name}


def _result_record(result: ToolResult) -> dict[str, Any]:
    members: dict[str, Any] = {
        "id": result.call_id or None,
        "name": result.name,
        "content": result.text or None,
        "status": result.status,
    }
    members |= {name: getattr(result, name) for name in _COUNTS}
    return {key: value for key, value in members.items() if value is not None}


def _call(entry: Mapping[str, Any]) -> ToolCall:
    name, arguments = _text(entry, "name") or "", entry.get("arguments")
    return ToolCall(_text(entry, "id") or "", name, arguments, _text(entry, "skill_name"))


def _result(entry: Mapping[str, Any]) -> ToolResult:
    return ToolResult(
        call_id=_text(entry, "id") or "",
        name=_text(entry, "name"),
        text=_text(entry, "content") or "",
        status=_text(entry, "status"),
        **{name: _whole_number(entry, name) for name in _COUNTS},
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


def _whole_number(record: Mapping[str, Any], key: str) -> int | None:
    value = record.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        _refuse(f"{key!r} is not a whole number")
    return value


_ARGUMENTS_LIMIT_CHARS = 200
_PROMPT_ROLES = ("system", "developer")
#: To read a message for its language takes half a millisecond.
_TELLING_MESSAGES = 500


class _Languages:
    """What the messages of a conversation say of its language."""

    def __init__(self) -> None:
        self.by_users, self.by_anybody = LanguageCounts(), LanguageCounts()

    def add(self, message: Message) -> None:
        if message.role not in ("system", "developer", "tool", "function"):
            self.by_anybody.add(message.text)
        if message.role == "user":
            self.by_users.add(message.text)

    def copy(self) -> _Languages:
        twin = _Languages()
        twin.by_users, twin.by_anybody = self.by_users.copy(), self.by_anybody.copy()
        return twin


def language_of(messages: Sequence[Message]) -> str:
    """The language of the users' messages, in English.

    Returns:
        For example ``English``, ``Chinese (Simplified)``, ``Chinese`` where both ways of writing are possible, or
        ``UNDECIDED``. Where the users' messages do not tell, all messages but prompts and tools' answers decide; of a
        long conversation its first ``_TELLING_MESSAGES``.
    """
    told = tallied(_Languages, messages[:_TELLING_MESSAGES])
    return told.by_users.language or told.by_anybody.language or UNDECIDED


def last_time(messages: Iterable[Message]) -> datetime | None:
    """When the last dated message was said; None where none is dated."""
    return max((message.time for message in messages if message.time is not None), default=None)


def transcript_line(message: Message, limit: int | None, *, dated: bool = True) -> str:
    """A message as a reader sees it.

    For example ``[2023-05-08 13:56] Caroline: I went to a support group.`` Tools follow the text, as in
    ``[ToolCall] web_search(query="…") -> completed, 120 ms: answer``. The time is the one on the speaker's clock.

    Args:
        message: The message.
        limit: Most characters of the answer, which then is one line, cut with ``…``; None keeps the text and its
            line breaks as they are.
        dated: Whether the time stands before the speaker.
    """
    stamp = "" if message.time is None or not dated else f"[{message.time:%Y-%m-%d %H:%M}] "
    said = [message.text] if message.text.strip() else []
    whole = f"{stamp}{one_line(message.name or message.role)}: " + "\n".join([*said, *_tool_lines(message)])
    if limit is None:
        return whole
    flat = one_line(whole)
    return flat if len(flat) <= limit else flat[: max(limit - 1, 0)].rstrip() + "…" * min(limit, 1)


def search_text(message: Message) -> str:
    """Every word of a message that a search should find: its text, tool names, arguments and answers."""
    named = {call.name for call in message.tool_calls}
    calls = (" ".join(_words(call.name, call.skill_name, *_leaves(call.arguments))) for call in message.tool_calls)
    results = (
        " ".join(_words(None if result.name in named else result.name, result.text)) for result in message.tool_results
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


def _leaves(value: Any) -> list[str]:
    """Keys and scalar values of a JSON value, in order."""
    if isinstance(value, dict):
        return [word for key, item in value.items() for word in (key, *_leaves(item))]
    if isinstance(value, list):
        return [word for item in value for word in _leaves(item)]
    return [] if value is None or isinstance(value, bool) else [str(value)]


def _words(*pieces: str | None) -> list[str]:
    return [piece for piece in pieces if piece and piece.strip()]


def one_line(text: str) -> str:
    """``text`` without line breaks or runs of blanks."""
    return " ".join(text.split())
