"""Answers to a host's hooks: what a host tells on stdin when its model did something, and what it is told back.

``post-read``: the model read a skill's ``SKILL.md`` (or loaded the skill by name), and gets what was learnt about that
skill. Understands the events of Claude Code (``PostToolUse``) and hosts that send the same (``AfterTool``). A hook
never disturbs its host: whatever goes wrong is a line on stderr, nothing on stdout and exit status 0. No model is
loaded, and no store is made where there is none.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from server.commands.opening import Commands, settings_of

if TYPE_CHECKING:
    from memory_core.config import Config

_EVENTS = frozenset({"PostToolUse", "AfterTool"})
_READERS = frozenset({"read", "read_file", "readfile", "read_text_file", "view", "view_file", "open_file"})
_SHELLS = frozenset({"bash", "shell", "run_shell_command", "powershell"})
_PATHS = ("file_path", "path", "absolute_path", "filePath", "target_file")
_COMMAND_CHARS = 10_000
_NAME_CHARS = 200


def register(commands: Commands) -> None:
    """Declare ``hook``."""
    hook = commands.add(
        "hook",
        "Answer a host's hook: its event as JSON on stdin, the answer on stdout.",
        post_read,
        json_output=False,
    )
    hook.add_argument("event", choices=("post-read",), help="post-read: a skill's SKILL.md also brings its memory")


def post_read(arguments: argparse.Namespace) -> int:
    """Print the hook's answer to the event on stdin, if there is anything to say."""
    try:
        event = json.loads(sys.stdin.read().lstrip("\ufeff"))
        name = skill_named(event)
        said = "" if name is None else _skill_memory(settings_of(arguments), name, event)
        if said:
            kind = event.get("hook_event_name", "PostToolUse")
            answer = {"hookSpecificOutput": {"hookEventName": kind, "additionalContext": said}}
            sys.stdout.write(json.dumps(answer) + "\n")
    except Exception as error:  # noqa: BLE001 - a host takes any failure of a hook for its own
        sys.stderr.write(f"runebook hook: {error}\n")
    return 0


def skill_named(event: Any) -> str | None:
    """The skill that the event is about; None for any other event, however odd."""
    from memory_core.retrieval.skill_files import skill_name_of

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


def _skill_memory(config: Config, name: str, event: Mapping[str, Any]) -> str:
    from memory_core.storage.workspace import project_at

    if not config.root.is_dir():
        return ""
    from memory_core.memory import open_memory

    folder = event.get("cwd")
    here = project_at(Path(folder)) if isinstance(folder, str) and folder and config.project.detect else None
    silent = config.embedding.model_copy(update={"provider": "none"})
    with open_memory(config.model_copy(update={"embedding": silent})) as memory:
        return memory.skill_memory(name, here=here)
