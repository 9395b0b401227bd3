"""``runebook``: the command line, for a person and for a model with a shell.

Every command prints readable text, or JSON with ``--json``; errors go to stderr with the next step and exit
status 1 (2 for a wrong command line). Owned here: which module has which command; what a command does is in
``commands``. Only the module of the command that is run is imported: a host waits for its hooks.
"""

from __future__ import annotations

import argparse
import gc
import io
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from server.commands.opening import Commands

#: Words of the command lines, in the order of the help, and the module that declares each; the others are made from
#: their declarations alone.
DECLARED = "server.commands.declared"
STORE, TRANSFER, SERVING = "server.commands.store", "server.commands.transfer", "server.commands.serving"
PAST, INSTALLING = "server.commands.past", "server.commands.installing"
MODULES: Mapping[str, str] = {
    **{"commit": DECLARED, "extract": STORE},
    **dict.fromkeys(("find", "retrieve", "read", "ls", "tree", "similar", "trail", "hot"), DECLARED),
    **{"maintain": STORE, "archive": STORE, "pin": DECLARED, "expire": DECLARED},
    **{"review": "server.commands.review"},
    **{"history": DECLARED, "diff": DECLARED, "undo": DECLARED, "forget": PAST, "purge": PAST},
    **dict.fromkeys(("embed", "migrate", "types", "config", "doctor", "rebuild"), STORE),
    **dict.fromkeys(("export", "backup", "restore", "import"), TRANSFER),
    **{"chat": "server.chat_terminal", "summary": STORE, "stats": STORE, "metrics": STORE},
    **{"token": "server.commands.access_tokens"},
    **dict.fromkeys(("install", "uninstall", "completion"), INSTALLING),
    **{"hook": "server.hosts.hook"},
    **dict.fromkeys(("ui", "serve", "stop", "usage", "demo"), SERVING),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(variable, "1")  # on contended cores two BLAS threads are slower than one
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # looking for some costs more than a command
    gc.disable()  # nothing built during imports is garbage; collecting it costs start-up time
    _speak_utf8()
    words = sys.argv[1:] if argv is None else argv
    arguments = command_line(next(iter(words), "")).parse(words)
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
        print(plain(f"runebook: {error}"), file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever read the output has seen enough; nothing may be written when Python exits either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def command_line(word: str = "") -> Commands:
    """The commands: ``word`` with those that its module declares, too, or all where there is no such word."""
    parser = argparse.ArgumentParser(
        prog="runebook",
        description="Long-term memory for any MCP client, kept as Markdown files you own.",
        epilog="New here? Run: runebook demo. For a model's system prompt: runebook usage.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show program's version number and exit")
    commands = Commands(parser)
    begun: set[str] = set()
    for known in [word] if word in MODULES else MODULES:
        module = MODULES[known]
        if module == DECLARED:
            import_module(module).register(commands, known)
        elif module not in begun:
            begun.add(module)
            import_module(module).register(commands)
    commands.sort(list(MODULES))
    return commands


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
