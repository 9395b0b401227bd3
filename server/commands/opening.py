"""What every command shares: the options that name a store, opening it, and printing what came of it.

Heavy imports happen inside the function that needs them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from server.early_settings import working_directory
from server.terminal import plain, plain_json

if TYPE_CHECKING:
    from memory_core.core.config import Config
    from memory_core.core.settings_file import SettingsFile
    from memory_core.runebook import Runebook


#: A large model takes so long to load.
LOADING_SECONDS = 20.0
_COLOURS = {"+": "\x1b[32m", "-": "\x1b[31m", "@": "\x1b[36m"}
_PLAIN = "\x1b[0m"
#: How addresses begin whose ``viking://`` was left out.
_SCOPES = ("user/", "agent/", "session/", "archive/")
_HELP_COLUMNS, _NAME_COLUMNS = 100, 16


_DELETE = "To delete a memory: runebook forget (undo brings it back), or runebook purge (gone for good)."
_CORRECT = "To correct a memory: runebook edit URI."
_NOTE = "To remember something: runebook commit TEXT."
_SEARCH = "To search: runebook find QUESTION."
_SHOW = "To see a memory: runebook read URI; to list them: runebook ls, runebook tree."
_PAST = "To see what changed: runebook history; to take it back: runebook undo."
#: What to use instead, for words that other programs have.
_MEANT: Mapping[str, str] = {
    **dict.fromkeys(("delete", "del", "rm", "remove", "erase"), _DELETE),
    **dict.fromkeys(("update", "correct", "change", "modify", "fix", "set"), _CORRECT),
    **dict.fromkeys(("add", "remember", "save", "store", "note", "write"), _NOTE),
    **dict.fromkeys(("search", "query", "recall", "ask"), _SEARCH),
    **dict.fromkeys(("show", "cat", "get", "open", "view", "list"), _SHOW),
    **dict.fromkeys(("log", "revert", "rollback"), _PAST),
}


class Joined(argparse.Action):
    """Takes the words of one text, which need no quotes, as that text."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, _option: Any = None
    ) -> None:
        """Join the words; of several where one has blanks or is an address, it is not clear what belongs together."""
        words = values if isinstance(values, list) else []
        if len(words) > 1 and (any(map(_has_blank, words)) or any("://" in word for word in words[1:])):
            parser.error(f"{self.metavar or self.dest} is one text: put all of it in one pair of quotes")
        setattr(namespace, self.dest, " ".join(words) if words else self.default)


def _has_blank(word: str) -> bool:
    return any(character.isspace() for character in word)


#: Of options whose value is a class.
_CLASSES: Mapping[str, Mapping[str, Any]] = {
    "type": {"int": int, "float": float},
    "action": {"boolean": argparse.BooleanOptionalAction, "joined": Joined},
}


class Commands:
    """The subcommands; each shares the options that say which store to use.

    Args:
        program: What it is called.
        about: One sentence.
        hint: What to do next, below the help.
    """

    def __init__(self, program: str, about: str, hint: str) -> None:
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
        self.parser: argparse.ArgumentParser = _Program(self, program, about, hint)
        self._parsers: dict[str, argparse.ArgumentParser] = {}
        self._abouts: dict[str, str] = {}
        self._groups: Mapping[str, str] = {}
        self._subparsers: Any = self.parser.add_subparsers(
            title="commands", metavar="COMMAND", required=True, parser_class=_Command
        )

    def group(self, groups: Mapping[str, str]) -> None:
        """Show commands below these titles."""
        self._groups = groups

    def lines(self) -> Iterator[str]:
        """All commands in a sentence each, below the titles of their groups."""
        title = None
        for name, about in self._abouts.items():
            if self._groups.get(name) != title:
                title = self._groups.get(name)
                yield f"\n{title}:"
            wrapped = textwrap.wrap(about, _HELP_COLUMNS - _NAME_COLUMNS)
            yield f"    {name:<{_NAME_COLUMNS - 5}} {wrapped[0]}"
            yield from (" " * _NAME_COLUMNS + rest for rest in wrapped[1:])

    def add(
        self,
        name: str,
        about: str,
        run: Callable[[argparse.Namespace], int],
        *,
        json_output: bool = True,
        aliases: Sequence[str] = (),
    ) -> argparse.ArgumentParser:
        """A command that calls ``run``, also under other names."""
        parent = self._output if json_output else self._common
        command: argparse.ArgumentParser = self._subparsers.add_parser(
            name, help=about, description=about, parents=[parent], aliases=list(aliases)
        )
        command.set_defaults(run=run)
        self._abouts[name] = about
        self._parsers.update(dict.fromkeys((name, *aliases), command))
        return command

    def declare(self, name: str, given: Mapping[str, Any]) -> None:
        """A command as ``command_lines.json`` describes it; its module is imported when it is run."""
        run, aliases = given["run"], given.get("aliases", ())
        command = self.add(
            name,
            given["help"],
            lambda arguments: int(_named(run)(arguments)),
            json_output=given.get("json", True),
            aliases=aliases,
        )
        command.set_defaults(**given.get("defaults", {}))
        for argument in given["arguments"]:
            group = command.add_mutually_exclusive_group() if isinstance(argument, dict) else command
            for *names, options in argument["one_of"] if isinstance(argument, dict) else [argument]:
                if isinstance(options.get("choices"), str):
                    options["choices"] = _Choices(options["choices"])
                for option, classes in _CLASSES.items():
                    options |= {option: classes[options[option]]} if options.get(option) in classes else {}
                group.add_argument(*names, **options)

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Read a command line; ends the program with a word on what is wrong.

        Options may stand between the words of a command, which argparse allows where it reads one command alone.
        """
        command = self._parsers.get(argv[0]) if argv else None
        if command is None and argv and not argv[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(argv[0], self._parsers, n=3)
            meant = _MEANT.get(argv[0].lower()) or (f"Did you mean {' or '.join(near)}?" if near else "")
            hint = f"{meant} All of them: runebook --help".strip()
            self._refuse(argv, f"there is no command {argv[0]!r}.", hint)
        try:
            return self.parser.parse_args(argv) if command is None else command.parse_intermixed_args(argv[1:])
        except WrongCommandLine as wrong:
            self._refuse(argv, f"{wrong}.", f"See {wrong.program} --help.", wrong.usage)

    def _refuse(self, argv: Sequence[str], message: str, hint: str, usage: str = "") -> NoReturn:
        """End the program with what is wrong with its command line."""
        if "--json" in argv:
            print_error(message, hint)
            raise SystemExit(2)
        self.parser.exit(2, f"{usage}runebook: {message} {hint}\n")


class WrongCommandLine(Exception):
    """A command line that a parser cannot read: the program or command, and how it is used."""

    def __init__(self, parser: argparse.ArgumentParser, message: str) -> None:
        super().__init__(message)
        self.program, self.usage = parser.prog, parser.format_usage()


class _Command(argparse.ArgumentParser):
    """The parser of a command; what is wrong is told by ``Commands.parse``."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong."""
        raise WrongCommandLine(self, message)


def print_error(message: str, hint: str) -> None:
    """Print an error as JSON, with the members that the HTTP API has."""
    print(plain_json(json.dumps({"error": message, "hint": hint}, ensure_ascii=False, indent=2)))


class _Program(_Command):
    """The program; its help shows the commands in groups."""

    def __init__(self, commands: Commands, program: str, about: str, hint: str) -> None:
        super().__init__(prog=program, description=about, epilog=hint)
        self._commands = commands

    def format_help(self) -> str:
        """The help."""
        options = "    --home DIR, --config FILE, --set NAME=VALUE, --json: before a command or behind it"
        lines = (f"usage: {self.prog} COMMAND ...\n", self.description, *self._commands.lines())
        return "\n".join(map(str, (*lines, f"\nOptions:\n{options}\n    --version\n", self.epilog, "")))


class _Choices:
    """Values that a module names; it is imported when one is looked at."""

    def __init__(self, named: str) -> None:
        self._said = named

    def __contains__(self, value: object) -> bool:
        return value in _named(self._said)

    def __iter__(self) -> Iterator[str]:
        return iter(_named(self._said))


def _named(place: str) -> Any:
    """What a module holds, by ``module:name``."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def settings_of(arguments: argparse.Namespace) -> Config:
    """The settings that a command line asks for; ends the program with a word on what is wrong."""
    from memory_core.core.config import load

    return load(*_store_options(arguments))


def settings_file_of(arguments: argparse.Namespace) -> SettingsFile:
    """The same with where each comes from, and the file in which they are changed."""
    from memory_core.core.settings_file import SettingsFile

    path, environment, flags = _store_options(arguments)
    return SettingsFile(path, environment, flags)


def name_and_value(flag: str, text: str) -> tuple[str, str]:
    """The two sides of ``NAME=VALUE``, which was given with ``flag``."""
    from memory_core.core.errors import InvalidInput

    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise InvalidInput(f"{flag} {text!r} has no value.", hint=f"Write {flag} NAME=VALUE.")
    return name.strip(), value


def _store_options(arguments: argparse.Namespace) -> tuple[Path | None, None, dict[str, Any]]:
    flags: dict[str, Any] = {"home": arguments.home or None}
    flags |= dict(name_and_value("--set", each) for each in arguments.set)
    return Path(arguments.config) if arguments.config else None, None, flags


def open_memory_of(arguments: argparse.Namespace, *, warm: bool = True, embeds: bool = True) -> Runebook:
    """The open store that a command line names.

    Args:
        arguments: The command line.
        warm: Whether its models begin to load.
        embeds: Whether they may be loaded at all; what lacks vectors then waits for a process that searches.
    """
    from memory_core.runebook import open_memory

    config = settings_of(arguments)
    if not embeds:
        silent = config.embedding.model_copy(update={"provider": "none"})
        config = config.model_copy(update={"embedding": silent})
    memory = open_memory(config)
    if warm and embeds:
        memory.warm()
    return memory


def open_to_search(arguments: argparse.Namespace) -> Runebook:
    """The store with its model: who asks once cannot ask again in a moment."""
    memory = open_memory_of(arguments)
    if memory.indexer.embedder is not None:
        memory.indexer.embedder.ready(LOADING_SECONDS)
    return memory


def show(arguments: argparse.Namespace, facts: Any, text: str, *, is_diff: bool = False, is_paged: bool = True) -> None:
    """Print ``facts``, results among them, as JSON where the command line asks for it, else ``text``.

    Either is safe for a terminal.
    """
    if arguments.json:
        print(plain_json(json.dumps(facts, ensure_ascii=False, indent=2, default=_result_as_json)))
    elif sys.stdout.isatty() and is_paged:
        _page(_coloured(plain(text)) if is_diff else plain(text))
    else:
        print(plain(text))


def _result_as_json(result: Any) -> Any:
    from memory_core.core.memory.results import as_json

    return as_json(result)


def _page(text: str) -> None:
    """Print a text for a person; what is longer than the screen by the pager of ``$PAGER``."""
    import shutil

    if text.count("\n") < shutil.get_terminal_size().lines:
        print(text)
        return
    import pydoc

    os.environ.setdefault("LESS", "FRX")  # as git has it: colours, and no pager for what fits
    pydoc.pager(text)


def _coloured(text: str) -> str:
    """A diff for a person."""
    lines = text.split("\n")
    return "\n".join(f"{_COLOURS[line[0]]}{line}{_PLAIN}" if line[:1] in _COLOURS else line for line in lines)


def here(config: Config) -> str | None:
    """The project of the working directory."""
    return project_of(config, working_directory())


def project_of(config: Config, folder: str) -> str | None:
    """The project of a folder, where the settings let it be looked for; empty names none."""
    from memory_core.core.memory.project import project_at

    return project_at(Path(folder)) if folder and config.project.detect else None


def json_file(name: str) -> Any:
    """The JSON in a file, or on standard input for ``-``."""
    return json_text(text_file(name), name)


def given_text(text: str) -> str:
    """A text from the command line; ``-`` stands for standard input."""
    return text_file("-") if text == "-" else text


def is_address(text: str) -> bool:
    """Whether a text from the command line, which could be a query, is the address of something stored."""
    if text.startswith("viking://"):
        return True
    return text.startswith(_SCOPES) and text.endswith((".md", ".jsonl", "/"))


def given_uri(text: str) -> str:
    """An address from the command line, which need not begin with ``viking://``."""
    return text if "://" in text or text.startswith(("/", " ")) or not text else f"viking://{text}"


def text_file(name: str) -> str:
    """The text of a file, or of standard input for ``-``."""
    from memory_core.core.errors import InvalidInput

    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        shown = "standard input" if name == "-" else name
        raise InvalidInput(
            f"{shown} cannot be read: {error}.", hint="Name a readable file in UTF-8, or '-'."
        ) from error


def json_text(text: str | None, name: str) -> Any:
    """JSON given on the command line as ``name``; None for none."""
    from memory_core.core.errors import InvalidInput

    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{name} is not JSON: {error}.", hint="Check quotes and commas.") from error
