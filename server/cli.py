"""``runebook``: the command line, for a person and for a model with a shell.

Every command prints readable text, or JSON with ``--json``; errors go to stderr with the next step and exit
status 1 (2 for a wrong command line, 1 for that of a hook). Owned here: which module has which command; what a command
does is in ``commands``. Only the module of the command that is run is imported: a host waits for its hooks.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memory_core.core.caller import ASIDE
from server.commands.opening import Commands, print_error

#: Command lines that no request declares, and in between the names of those that one does; in the order of the help.
_COMMAND_LINES = Path(__file__).with_name("commands") / "command_lines.json"


#: Options that may stand before the command, and whether a value follows.
_BEFORE = {"--home": True, "--config": True, "--set": True, "--json": False}
#: What a program that makes memories for us must not reach: nothing of it is told, recorded or served.
_ASIDE = ("hook", "serve")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(variable, "1")  # on contended cores two BLAS threads are slower than one
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # looking for some costs more than a command
    gc.disable()  # nothing built during imports is garbage; collecting it costs start-up time
    _speak_utf8()
    words = _command_first(sys.argv[1:] if argv is None else argv)
    if not words:
        print(command_line().parser.format_help(), end="")
        return 0
    if os.environ.get(ASIDE) and words[:1] and words[0] in _ASIDE:
        return 0
    try:
        arguments = command_line(words[0]).parse(words)
    except SystemExit as end:
        if words[0] == "hook" and end.code:  # to a host 2 means that the event is blocked
            return 1
        raise
    if getattr(arguments, "answers_alone", False):  # a hook: it never fails, and keeps its own log
        return int(arguments.run(arguments))
    _log_to_stderr()
    from memory_core.core.caller import authored
    from memory_core.core.errors import RunebookError
    from server.terminal import plain

    try:
        with authored(getattr(arguments, "author", "command line")):
            status: int = arguments.run(arguments)
        sys.stdout.flush()  # a reader that has left is noticed here, not when Python exits
        return status
    except RunebookError as error:
        if getattr(arguments, "json", False):
            print_error(error.message, error.hint)
        else:
            print(plain(f"runebook: {error}"), file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever read the output has seen enough; nothing may be written when Python exits either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def command_line(word: str = "") -> Commands:
    """The commands: ``word`` alone, or all where there is no such word."""
    commands = Commands(
        "runebook",
        "Long-term memory for any MCP client, kept as Markdown files you own.",
        "New here? Run: runebook demo. Then: runebook init, and runebook ui.\n"
        "One command: runebook COMMAND --help. For a model's system prompt: runebook usage.",
    )
    commands.parser.add_argument("--version", action=_Version, nargs=0, help="show program's version number and exit")
    groups = json.loads(_COMMAND_LINES.read_text(encoding="utf-8"))
    commands.group({name: group for group, members in groups.items() for name in members})
    table = {name: given for members in groups.values() for name, given in members.items()}
    known = {alias: name for name, given in table.items() for alias in (name, *((given or {}).get("aliases", ())))}
    for name in [known[word]] if word in known else () if word == "--version" else table:
        if table[name] is None:
            from server.commands.declared import register

            register(commands, name)
        else:
            commands.declare(name, table[name])
    return commands


def _command_first(words: Sequence[str]) -> list[str]:
    """The command line with the options that stand before the command behind it."""
    at = 0
    while at < len(words) and words[at].startswith("--") and words[at].partition("=")[0] in _BEFORE:
        at += 1 if "=" in words[at] or not _BEFORE[words[at]] else 2
    return [*words[at : at + 1], *words[:at], *words[at + 1 :]]


class _Version(argparse.Action):
    """Prints the version; looking it up costs time, so only where it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_arguments: Any) -> None:
        from memory_core.version import program_version

        print(f"runebook {program_version()}")
        parser.exit()


def _log_to_stderr() -> None:
    import logging

    from server.terminal import LogLine

    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(LogLine("runebook: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[lines])


def _speak_utf8() -> None:
    """UTF-8 in and out, whatever the console's own encoding; what is no text is shown escaped."""
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace" if stream is sys.stdout else "strict")


if __name__ == "__main__":
    sys.exit(main())
