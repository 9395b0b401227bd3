"""Whether a tool's answer says that the call failed, where the client set no flag.

OpenAI's messages have no flag for it, and many MCP servers answer an error as ordinary text. So the answer is read:
its exit status, the members of a JSON object, and how it begins; of a shell also how it ends. Text that a tool only
*shows* (a file, a page, a log, hits of a search) may speak of errors as it likes: there only an answer that is nothing
but an error counts. The patterns stand in the table beside this module, by shape. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from memory_core.core.text.word_table import word_pattern, word_set

_pattern = partial(word_pattern, __file__)
_words = partial(word_set, __file__)

_HEAD_CHARS = 2_000
_TAIL_CHARS = 4_000
_JSON_LIMIT_CHARS = 1_000_000
#: An answer that begins like an error and goes on for longer is a text about errors.
_SHORT_CHARS = 600
_SHOWN_CHARS = 400
_SHOWN_LINES = 6
_HEADER_LINES = 8
_LAST_LINES = 15
#: A longer line is none that a host puts around an answer.
_WRAPPING_CHARS = 400
_NAME_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[\u4e00-\u9fff]+")
_STATUS_KEYS = ("exit_code", "exitCode", "exit_status", "exitStatus", "returncode", "return_code", "returnCode")
_TEXT_KEYS = ("output", "content", "text", "result", "stdout", "stderr")
_KIND_KEYS = ("status", "type", "object", "result", "status_code", "statusCode", "code", "状态")
_REASON_KEYS = ("error", "message", "reason", "detail", "details", "error_message", "errors", "msg", "错误", "原因")


def command_of(arguments: Any) -> str:
    """The command line of a shell's arguments; empty where they hold none."""
    given = arguments
    if isinstance(arguments, Mapping):
        given = next((arguments[key] for key in ("command", "cmd", "script", "code") if arguments.get(key)), "")
    if isinstance(given, list):
        words = [str(word) for word in given]
        given = words[-1] if len(words) > 2 and words[1] in ("-c", "-lc", "/c", "-Command") else " ".join(words)
    return given.strip() if isinstance(given, str) else ""


def says_failed(name: str, arguments: Any, text: str) -> bool:
    """Whether the answer of a call without a flag says that it failed.

    Args:
        name: The tool's name.
        arguments: Of the call.
        text: The answer.
    """
    text = text.strip()
    if (members := _members(text)) is not None:
        if (told := _told_by(members)) is not None:
            return told
        return any(says_failed(name, arguments, inner) for inner in _texts(members))
    runs = _is_named(name, "runs")
    if (status := _exit_status(text, runs=runs)) is not None:
        return status != 0
    shows = _shows(command_of(arguments)) if runs else _is_named(name, "shows")
    if runs:
        ending = [line for line in text[-_TAIL_CHARS:].splitlines() if line.strip()][-_LAST_LINES:]
        if not shows and (failed := _ends_failed(text, ending)) is not None:
            return failed
        if len(ending) == 1 and _pattern("shell_errors").match(ending[0]):
            return True
    searches = _is_named(name, "searches") and not _is_named(name, "changes")
    return _begins_failed(text, shows=shows, searches=searches)


def tells_result(text: str) -> bool:
    """Whether a program ran and told what it found: tests that fail, code that does not compile, lint.

    Such a run failed, and teaches nothing about how it should have been called.
    """
    members = _members(text.strip())
    texts = [text] if members is None else _texts(members)
    return any(_pattern("findings").search(each[-_TAIL_CHARS:]) for each in texts)


def without_wrapping(text: str) -> str:
    """An answer without what the tool's host put around it: exit status, times, tags, the JSON of an output."""
    members = _members(text.strip())
    if members is not None and not any(members.get(key) for key in _REASON_KEYS):
        text = "\n".join(_texts(members)) or text
    lines = text.strip().splitlines()
    kept = [line for line in lines if len(line) > _WRAPPING_CHARS or not _pattern("wrapping").fullmatch(line.strip())]
    return "\n".join(kept or lines)


def _members(text: str) -> Mapping[str, Any] | None:
    """The JSON object that an answer is; None for any other text."""
    if not text.startswith("{") or not text.endswith("}") or len(text) > _JSON_LIMIT_CHARS:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _told_by(members: Mapping[str, Any]) -> bool | None:
    """What the members say outright; None where they do not."""
    metadata = members.get("metadata")
    for held in (members, metadata if isinstance(metadata, Mapping) else {}):
        status = next((held[key] for key in _STATUS_KEYS if held.get(key) is not None), None)
        if isinstance(status, int | str) and re.fullmatch(r"-?\d{1,9}", str(status)):
            return int(status) != 0
    for key in ("isError", "is_error"):
        if isinstance(members.get(key), bool) and members[key]:
            return True
    for key in ("success", "ok", "succeeded"):
        if isinstance(members.get(key), bool):
            return not members[key]
    reasons = [key for key in _REASON_KEYS if members.get(key)]
    error = (
        members.get("error") or members.get("错误") or (members.get("errors") if members.get("data") is None else None)
    )
    if error and (isinstance(error, bool) or not isinstance(error, int | float)):  # a number of errors is no error
        return True
    words = [members.get(key) for key in _KIND_KEYS]
    failed = any(isinstance(word, str) and word.casefold() in _words("failed_words") for word in words)
    failed = failed or any(re.fullmatch("[45]\\d\\d", str(word)) for word in words)
    return True if failed and (reasons or len(members) <= 2) else None


def _texts(members: Mapping[str, Any]) -> list[str]:
    """The answers inside a JSON object: an output, or the text blocks of an MCP result."""
    found: list[str] = []
    for key in _TEXT_KEYS:
        value = members.get(key)
        for part in value if isinstance(value, list) else [value]:
            inner = part.get("text") if isinstance(part, Mapping) else part
            found += [inner] if isinstance(inner, str) and inner.strip() else []
    return found


def _is_named(name: str, kind: str) -> bool:
    """Whether a part of the tool's name is one of a kind: of a shell, of what shows, of what searches."""
    parts = [part.casefold() for part in _NAME_PARTS.findall(name)]
    return any(part in _words(kind) or (not part.isascii() and _pattern(f"{kind}_zh").search(part)) for part in parts)


def _shows(command: str) -> bool:
    """Whether a command only shows what is there: a file, a log, hits."""
    return _pattern("showing_commands").match(_pattern("before_program").sub("", command, count=1)) is not None


def _exit_status(text: str, *, runs: bool) -> int | None:
    """The exit status that the frame of an answer names, not its output."""
    lines = text[:_HEAD_CHARS].splitlines()
    output = next((at for at, line in enumerate(lines) if _pattern("output").fullmatch(line.strip())), None)
    framed = lines[:1] if output is None or output > _HEADER_LINES else lines[:output]
    if runs:
        framed += text[-_TAIL_CHARS:].splitlines()[-2:]
    for line in framed:
        found = _pattern("exit_status").fullmatch(line.strip())
        if found is not None:
            return int(next(group for group in found.groups() if group is not None))
    return None


def _begins_failed(text: str, *, shows: bool, searches: bool) -> bool:
    """Whether the first line says it."""
    lines = [line for raw in text[:_HEAD_CHARS].splitlines() if (line := _pattern("decoration").sub("", raw.strip()))]
    if not lines or _pattern("not_failed").search(lines[0]):
        return False
    if _pattern("of_the_host").match(lines[0]):
        return True
    is_long = len(text) > _SHOWN_CHARS or len(lines) > _SHOWN_LINES
    if shows and (is_long or any(_pattern("error").match(line) for line in lines[1:])):
        return False
    if _pattern("error").match(lines[0]):
        return True
    if len(text) > _SHORT_CHARS:
        return False
    wanted = "refused" if searches else "missing"
    return any(_pattern(name).match(lines[0]) for name in ("refused", wanted))


def _ends_failed(text: str, ending: list[str]) -> bool | None:
    """What the last lines of a shell's output say; None where they do not."""
    if not ending:
        return None
    if _pattern("findings").search("\n".join(ending)):
        return True
    if _pattern("ended_well").search(ending[-1]):
        return False
    failed = any(_pattern("shell_errors").match(line) for line in ending)
    return True if failed or _pattern("crashes").search(text[-_TAIL_CHARS:]) else None
