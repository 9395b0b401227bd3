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
from collections.abc import Callable, Sequence

from server import commands as perform
from server import hooks

_DEFAULT_PORT = 8848


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(variable, "1")  # on contended cores two BLAS threads are slower than one
    gc.disable()  # nothing built during imports is garbage; collecting it costs start-up time
    _speak_utf8()
    arguments = _parser().parse_args(argv)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="runebook: %(message)s")
    from memory_core.errors import RunebookError

    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()  # a reader that has left is noticed here, not when Python exits
        return status
    except RunebookError as error:
        print(f"runebook: {error}", file=sys.stderr)
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


class _Commands:
    """The subcommands; each shares the options that say which store to use."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._common = argparse.ArgumentParser(add_help=False)
        self._common.add_argument(
            "--home", metavar="DIR", help="memory folder (default ~/.runebook, or $RUNEBOOK_HOME)"
        )
        self._common.add_argument("--config", metavar="FILE", help="settings file (default <home>/config.json)")
        self._common.add_argument(
            "--set",
            metavar="NAME=VALUE",
            action="append",
            default=[],
            help="set one setting, e.g. index.mode=exact; see runebook config",
        )
        self._output = argparse.ArgumentParser(add_help=False, parents=[self._common])
        self._output.add_argument("--json", action="store_true", help="print JSON")
        self._subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(
        self, name: str, about: str, run: Callable[[argparse.Namespace], int], *, json_output: bool = True
    ) -> argparse.ArgumentParser:
        """A command that calls ``run``."""
        parent = self._output if json_output else self._common
        command = self._subparsers.add_parser(name, help=about, description=about, parents=[parent])
        command.set_defaults(run=run)
        return command


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="runebook",
        description="Long-term memory for any MCP client, kept as Markdown files you own.",
        epilog="New here? Run: runebook demo. For a model's system prompt: runebook usage.",
    )
    parser.add_argument("--version", action="version", version=perform.version())
    commands = _Commands(parser)
    _add_serve(commands)
    _add_commit(commands)
    _add_search(commands)
    _add_listings(commands)
    _add_upkeep(commands)
    _add_insight(commands)
    hook = commands.add(
        "hook",
        "Answer a host's hook: its event as JSON on stdin, the answer on stdout.",
        hooks.post_read,
        json_output=False,
    )
    hook.add_argument("event", choices=("post-read",), help="post-read: a skill's SKILL.md also brings its memory")
    commands.add("types", "List memory types, their fields and any broken YAML.", perform.types)
    commands.add("config", "Show all settings and where each can be set.", perform.settings_in_force)
    commands.add(
        "usage", "Print how to use this command line, for a model's system prompt.", perform.usage, json_output=False
    )
    demo = commands.add("demo", "Show Runebook at work in a fresh temporary folder.", perform.demo, json_output=False)
    demo.add_argument("--keep", action="store_true", help="keep the demonstration's folder")
    return parser


def _add_serve(commands: _Commands) -> None:
    serve = commands.add("serve", "Serve MCP clients.", perform.serve, json_output=False)
    serve.add_argument(
        "--transport", choices=("stdio", "sse", "http"), default="stdio", help="sse and http share one server"
    )
    serve.add_argument("--host", default="127.0.0.1", help="loopback address to listen on")
    serve.add_argument("--port", type=int, default=_DEFAULT_PORT, help=f"default {_DEFAULT_PORT}")


def _add_commit(commands: _Commands) -> None:
    commit = commands.add("commit", "Remember something.", perform.commit)
    commit.add_argument("content", nargs="?", help="the memory; '-' reads standard input")
    commit.add_argument(
        "--type", dest="memory_type", help="memory type (default notes; daily_logs: today's log); see runebook types"
    )
    commit.add_argument("--priority", help="low, normal, high, critical, or 0 to 1")
    commit.add_argument("--category", help="a label; also picks a type if none is named")
    commit.add_argument(
        "--field", action="append", default=[], metavar="NAME=VALUE", help="a field of the type; repeatable"
    )
    commit.add_argument("--messages", metavar="FILE", help="JSON list of messages; '-' reads standard input")
    commit.add_argument("--operations", metavar="FILE", help="JSON MemoryOperations; '-' reads standard input")
    commit.add_argument("--session-id", help="session the messages belong to")
    commit.add_argument("--request-id", help="makes a retry return the first receipt")
    commit.add_argument(
        "--project", help='project it belongs to; "." is the one you are in, "global" is none (default: by type)'
    )
    commit.add_argument(
        "--private", action=argparse.BooleanOptionalAction, help="keep it from every other project, or share it"
    )
    commit.add_argument("--dry-run", action="store_true", help="show what would change; store nothing")


def _add_search(commands: _Commands) -> None:
    find = commands.add("find", "Search memories and past conversations.", perform.find)
    find.add_argument("query")
    find.add_argument("--target-uri", default="", help="only below this directory")
    find.add_argument("--limit", type=int, default=10, help="hits at most (default 10)")
    find.add_argument("--score-threshold", type=float, help="leave out hits that score less (0 to 1)")
    find.add_argument("--filter", help='JSON, e.g. {"memory_type": "facts"}')
    find.add_argument("--rank", choices=("relevance", "balanced", "decay", "weighted"), help="default: search.rank")
    find.add_argument("--project", help='only this project; "." is the one you are in (default: all, that one first)')
    retrieve = commands.add("retrieve", "Print context for a task, packed into a token budget.", perform.retrieve)
    retrieve.add_argument("query", nargs="?")
    retrieve.add_argument("--messages", metavar="FILE", help="JSON messages; the user's last five are the query")
    retrieve.add_argument("--token-budget", type=int, help="default: retrieve.token_budget")
    retrieve.add_argument("--project", help='only this project; "." is the one you are in (default: all)')
    retrieve.add_argument("--session-id", help="what this session was given before is not repeated")
    retrieve.add_argument("--tool", action="append", help="a tool at hand; repeatable: adds what is known of it")
    retrieve.add_argument("--skill", help="the skill at hand: adds what is known of it")
    retrieve.add_argument("--fresh", action="store_true", help="the session's context was lost: repeat everything")
    retrieve.add_argument(
        "--format",
        choices=("blocks", "text", "system", "messages-anthropic", "messages-openai"),
        default="text",
        help="default text; messages-… prints JSON to insert after the user's message",
    )


def _add_upkeep(commands: _Commands) -> None:
    extract = commands.add(
        "extract", "Turn waiting conversations into memories, with the model of llm.*.", perform.extract
    )
    extract.add_argument("--session-id", help="only this conversation, and all of it again")
    extract.add_argument("--list", action="store_true", dest="only_list", help="only show what waits and why")
    commands.add(
        "embed", "Compute the vectors that are missing, e.g. after a change of the embedding model.", perform.embed
    )
    migrate = commands.add(
        "migrate", "Give the files of an older store semantic names and our trailer.", perform.migrate
    )
    migrate.add_argument("--dry-run", action="store_true", help="show what would change; write nothing")


def _add_insight(commands: _Commands) -> None:
    similar = commands.add("similar", "Find memories that say nearly the same; nothing is merged.", perform.similar)
    similar.add_argument("text_or_uri", metavar="TEXT|URI", help="a text, or the URI of a memory")
    similar.add_argument("--threshold", type=float, default=0.9, help="least similarity (default 0.9)")
    similar.add_argument("--limit", type=int, default=5, help="memories at most (default 5)")
    trail = commands.add("trail", "Show which query retrieved what, newest first.", perform.trail)
    trail.add_argument("--uri", help="only what returned this memory, session or directory")
    trail.add_argument("--limit", type=int, default=20, help="retrievals at most (default 20)")
    hot = commands.add("hot", "Show the memories used most.", perform.hot)
    hot.add_argument("--limit", type=int, help="memories at most (default: search.hot_limit)")
    commands.add("metrics", "Show what is stored, how it is used and how fast it is found.", perform.metrics)


def _add_listings(commands: _Commands) -> None:
    read = commands.add("read", "Read a memory file.", perform.read)
    read.add_argument("uri")
    read.add_argument("--offset", type=int, default=0, help="first line, from 0")
    read.add_argument("--limit", type=int, default=-1, help="lines; -1 is all")
    ls = commands.add("ls", "List a directory.", perform.listing)
    ls.set_defaults(level_limit=1)
    tree = commands.add("tree", "List everything below a URI.", perform.listing)
    tree.add_argument("--level-limit", type=int, default=3, help="depth (default 3)")
    for listing in (ls, tree):
        listing.add_argument("uri", nargs="?", default="viking://")
        listing.add_argument("--output", choices=("agent", "original"), default="agent", help="agent adds abstracts")
        listing.add_argument("--abs-limit", type=int, default=256, help="characters of an abstract")
        listing.add_argument("--show-all-hidden", action="store_true", help="also .abstract.md and .overview.md")
        listing.add_argument("--node-limit", type=int, default=1000, help="entries at most")


if __name__ == "__main__":
    sys.exit(main())
