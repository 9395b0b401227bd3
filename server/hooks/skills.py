"""Which skill a host's model just read or loaded, by the event that the host sends after a tool call. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from memory_core.core.search.context_sources import skill_name_of

_EVENTS = frozenset({"PostToolUse", "AfterTool", "postToolUse"})
_READERS = frozenset({"read", "read_file", "readfile", "read_text_file", "view", "view_file", "open_file"})
_SHELLS = frozenset({"bash", "shell", "run_shell_command", "powershell"})
_PATHS = ("file_path", "path", "absolute_path", "filePath", "target_file")
_COMMAND_CHARS = 10_000
_NAME_CHARS = 200


def skill_named(event: Any) -> str | None:
    """The skill that the event is about; None for any other event, however odd."""
    if not isinstance(event, Mapping) or event.get("hook_event_name", "PostToolUse") not in _EVENTS:
        return None
    tool, given = event.get("tool_name"), event.get("tool_input")
    if not isinstance(tool, str) or not isinstance(given, Mapping):
        return None
    tool = tool.rsplit("__", 1)[-1].casefold()
    if tool == "skill":
        loaded = given.get("skill") or given.get("command") or given.get("name")
        name = loaded.rsplit(":", 1)[-1].strip().lstrip("/") if isinstance(loaded, str) else ""
        return name if 0 < len(name) <= _NAME_CHARS else None
    return next((found for path in _paths(tool, given) if (found := skill_name_of(path)) is not None), None)


def _paths(tool: str, given: Mapping[str, Any]) -> Iterator[str]:
    """Files that the tool read, as far as its input says."""
    if tool in _READERS:
        yield from (path for name in _PATHS if isinstance(path := given.get(name), str))
    elif tool in _SHELLS and isinstance(command := given.get("command"), str) and len(command) <= _COMMAND_CHARS:
        try:
            yield from shlex.split(command)
        except ValueError:  # an open quotation mark
            yield from command.split()
