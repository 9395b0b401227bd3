"""``runebook``: the command line, for a person and for a model with a shell.

Every command prints readable text, or JSON with ``--json``; errors go to stderr with the next step and exit
status 1 (2 for a wrong command line). Owned here: names, options and help; what a command does is in
``commands``.
"""

from __future__ import annotations

import argparse
import gc
import io
import logging
import os
import sys
from collections.abc import Sequence

from memory_core.version import program_version
from server import hooks
from server.commands import (
    chat,
    importing,
    maintaining,
    past,
    portability,
    recovery,
    remembering,
    review,
    searching,
    serving,
    stats,
    summary,
    tokens,
    upkeep,
)
from server.commands.opening import Commands
from server.log_lines import LogLine
from server.terminal import plain


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(variable, "1")  # on contended cores two BLAS threads are slower than one
    gc.disable()  # nothing built during imports is garbage; collecting it costs start-up time
    _speak_utf8()
    arguments = _commands().parse(sys.argv[1:] if argv is None else argv)
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(LogLine("runebook: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[lines])
    from memory_core.errors import RunebookError
    from memory_core.storage.author import authored

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


def _speak_utf8() -> None:
    """UTF-8 in and out, whatever the console's own encoding; what is no text is shown escaped."""
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace" if stream is sys.stdout else "strict")


def _commands() -> Commands:
    parser = argparse.ArgumentParser(
        prog="runebook",
        description="Long-term memory for any MCP client, kept as Markdown files you own.",
        epilog="New here? Run: runebook demo. For a model's system prompt: runebook usage.",
    )
    parser.add_argument("--version", action="version", version=f"runebook {program_version()}")
    commands = Commands(parser)
    kept = (remembering, searching, maintaining, review, past, upkeep, recovery, portability, importing)
    for module in (*kept, chat, summary, stats, tokens, hooks, serving):
        module.register(commands)
    return commands


if __name__ == "__main__":
    sys.exit(main())
