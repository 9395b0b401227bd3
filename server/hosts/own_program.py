"""The host's own program as the one that turns conversations into memories: offered, put into the settings, taken out.

What is written is ``llm.provider`` and ``llm.command`` in the settings file of the store that the command line names.
Where another model is set, it stays.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from memory_core.core.llm.client import COMMAND
from memory_core.core.llm.command_model import preset_of, program_of
from server.commands.opening import settings_file_of


class Told(NamedTuple):
    """What was done: for scripts, and for a person."""

    facts: Mapping[str, Any] = {}
    lines: tuple[str, ...] = ()


def install(arguments: argparse.Namespace, name: str, title: str, ask: Callable[[str], bool]) -> Told:
    """Have the host's program make memories, where it is installed and that is wanted.

    Args:
        arguments: Of ``runebook install``; ``memories`` says whether, None asks.
        name: Of the host, and of its preset.
        title: What people call it.
        ask: Whether a person agrees; False where nobody can be asked.

    Raises:
        ConfigInvalid: If the settings cannot be read.
        StorageFailed: If they cannot be written.
    """
    file = settings_file_of(arguments)
    program, config = program_of(name), file.load()
    if arguments.memories is False or (program is None and not arguments.memories):
        return Told()
    if config.llm.provider != "none":
        is_it = config.llm.provider == COMMAND and preset_of(config.llm.command) == name
        said = f"made by your installed {title}" if is_it else f"llm.provider is {config.llm.provider}, which stays"
        return Told({"memories": "on" if is_it else "other"}, (f"  Memories: {said}.",) if arguments.memories else ())
    if program is None:
        line = f"  Memories: no program of {title} was found here; install it, then run this again."
        return Told({"memories": "missing"}, (line,))
    plan = "it counts against your plan, whose terms hold"
    if not arguments.memories and not ask(
        f"{title}: use your installed {title} to turn conversations into memories ({plan})? [y/N] "
    ):
        switch = f"runebook install {name} --memories"
        line = f"  Memories: have your installed {title} make them of conversations ({plan}): {switch}"
        return Told({"memories": "off"}, (line,))
    if not arguments.dry_run:
        file.write({"llm.provider": COMMAND, "llm.command": program})
    done = "would make" if arguments.dry_run else "makes"
    where = f"them of conversations that end ({file.path}); runebook doctor tries it."
    line = f"  Memories: your installed {title} {done} {where}"
    return Told({"memories": "would be on" if arguments.dry_run else "on"}, (line,))


def uninstall(arguments: argparse.Namespace, name: str) -> Told:
    """Take the host's program out of the settings again, if it makes memories.

    Raises:
        ConfigInvalid: If the settings cannot be read.
        StorageFailed: If they cannot be written.
    """
    file = settings_file_of(arguments)
    path, config = file.path, file.load()
    if not path.is_file() or config.llm.provider != COMMAND or preset_of(config.llm.command) != name:
        return Told()
    if not arguments.dry_run:
        file.write({"llm.provider": None, "llm.command": None})
    done = "would be" if arguments.dry_run else "is"
    return Told({"memories": "off"}, (f"  {path}: the program that makes memories {done} taken out.",))
