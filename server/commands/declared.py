"""Commands as they are declared: their command lines, and who answers them.

A command is read from its request (``core.command``). A running server of the same store and settings is asked; where
none runs, this process opens the store and answers by the same function, ``answer``, which the server calls too.
"""

from __future__ import annotations

import argparse
import json
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Union, get_args, get_origin

from memory_core.core.caller import owner_looking
from memory_core.core.command import Argument, Command, arguments
from memory_core.core.errors import InvalidInput
from server.commands.opening import (
    LOADING_SECONDS,
    Commands,
    Joined,
    given_text,
    given_uri,
    is_address,
    json_file,
    json_text,
    name_and_value,
    open_memory_of,
    project_of,
    show,
)
from server.early_settings import working_directory

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

#: Commands of the core; those of features are in ``memory_core.features``.
CORE = ("commit", "find", "retrieve", "read", "ls", "tree")
#: Members of ``CommitRequest.metadata`` that have an option of their own.
_METADATA = ("pinned", "expires_at")
#: What a commit needs one of.
_STORED = ("memory_content", "fields", "messages", "operations", "brief")
#: Arguments that are addresses and nothing else.
_ADDRESSES = frozenset({"uri", "uris", "other", "target_uri", "around"})
#: These look at the past, or take it back: what was done by hand until now is a commit, too.
_OF_THE_PAST = frozenset({"history", "diff", "undo"})
#: What a person asks at the command line is no use of a memory; ``retrieve`` is, for it gives an agent its context.
_LOOKS = frozenset({"find", "read"})
_WRITE_SECONDS = 600.0
_READ_SECONDS = 60.0
#: What is larger is not worth handing over.
_HANDED_OVER_BYTES = 4_000_000


class Answered(NamedTuple):
    """What a command returned: its JSON form, its text for people, and the exit status."""

    facts: Any
    text: str
    status: int


def find_command(name: str) -> Command[Any, Any] | None:
    """A declared command by its name."""
    if name in CORE:
        from memory_core.core.memory import requests

        found: Command[Any, Any] = getattr(requests, name.upper())
        return found
    from memory_core.features import FEATURES

    return next((each for each in FEATURES.commands(name.split()[0]) if each.name == name), None)


def register(commands: Commands, name: str) -> None:
    """Declare the command line of a command, unless its feature was taken out."""
    command = find_command(name)
    if command is None:
        return
    parser = commands.add(name, command.about, lambda parsed: run(parsed, command, _given(command, parsed)))
    is_alone = sum(argument.arg.positional for argument in arguments_of(command)) == 1
    for argument in arguments_of(command):
        if argument.name == "metadata":
            parser.add_argument("--pinned", action="store_true", help="never condense or archive it by itself")
            parser.add_argument("--expires-at", metavar="WHEN", help="ISO date or time from which it no longer holds")
        elif "cli" in argument.arg.surfaces:
            _add(parser, argument, is_alone=is_alone)


def arguments_of(command: Command[Any, Any]) -> tuple[Argument, ...]:
    """The arguments of its request."""
    request: Any = command.request
    return arguments(request)


def _add(parser: argparse.ArgumentParser, argument: Argument, *, is_alone: bool) -> None:
    """Add one argument, as its type and ``Arg`` say; a text that stands alone needs no quotes."""
    arg, branches = argument.arg, _branches(argument.type)
    told = arg.cli or (arg.help if arg.help[1:2].isupper() else arg.help[:1].lower() + arg.help[1:]).removesuffix(".")
    options: dict[str, Any] = {"help": None if told == "-" else told}
    if arg.metavar or arg.is_file:
        options["metavar"] = "FILE" if arg.is_file else arg.metavar
    choices = arg.choices or next((get_args(one) for one in branches if get_origin(one) is Literal), ())
    if choices:
        options["choices"] = choices
    usual = argument.default if arg.usual is None else arg.usual
    if arg.positional:
        if _is_list(branches):
            options["nargs"] = "*"
        elif is_alone and str in branches:
            is_needed = argument.required and arg.usual is None
            options |= {"nargs": "+" if is_needed else "*", "default": usual, "action": Joined}
        elif not argument.required or arg.usual is not None:
            options |= {"nargs": "?", "default": usual}
        parser.add_argument(argument.name, **options)
        return
    if bool in branches:
        options["action"] = argparse.BooleanOptionalAction if type(None) in branches else "store_true"
    elif arg.repeatable or "=" in arg.metavar or (_is_list(branches) and not arg.is_file):
        options |= {"action": "append", "default": None if argument.default is None else []}
    else:
        kind = next((one for one in (int, float) if one in branches), None)
        options |= {"default": usual} | ({"type": kind} if kind and str not in branches else {})
    parser.add_argument(arg.flag or f"--{argument.name.replace('_', '-')}", dest=argument.name, **options)


def _branches(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _is_list(branches: Sequence[Any]) -> bool:
    return any(get_origin(one) in (list, tuple, Sequence) for one in branches) and str not in branches


def run(parsed: argparse.Namespace, command: Command[Any, Any], given: Mapping[str, Any]) -> int:
    """Have a command answered and print what it returned; returns the exit status.

    Raises:
        RunebookError: As the command does.
    """
    return say(parsed, command, ask(parsed, command, given))


def _given(command: Command[Any, Any], parsed: argparse.Namespace) -> dict[str, Any]:
    """The members of the request that a command line gives; files are read here."""
    given: dict[str, Any] = {}
    for argument in arguments_of(command):
        if argument.name == "metadata":
            said = {name: getattr(parsed, name) for name in _METADATA}
            given["metadata"] = {name: value for name, value in said.items() if value not in (None, False)}
            continue
        value = getattr(parsed, argument.name, None) if "cli" in argument.arg.surfaces else None
        if value is None:
            continue
        arg = argument.arg
        if arg.is_file:
            value = json_file(value)
        elif "=" in arg.metavar:
            value = dict(name_and_value(arg.flag, each) for each in value) or None
        elif any(get_origin(one) is Mapping for one in _branches(argument.type)):
            value = json_text(value, arg.flag or f"--{argument.name}")
        elif arg.positional and command.name == "commit":
            value = given_text(value)
        elif command.name == "diff" and is_address(str(value)):
            value = given_uri(str(value))
        elif argument.name in _ADDRESSES:
            value = given_uri(value) if isinstance(value, str) else [given_uri(each) for each in value]
        given[argument.name] = value
    if command.name == "commit" and all(given.get(name) in (None, False) for name in _STORED):
        how = "Write runebook commit TEXT, or give exactly one of --field, --messages, --operations, --brief."
        raise InvalidInput("nothing is given to remember.", hint=how)
    return given


def ask(parsed: argparse.Namespace, command: Command[Any, Any], given: Mapping[str, Any]) -> Answered:
    """What a running server answers, else this process.

    Raises:
        RunebookError: As the command does.
    """
    asked = _asked(parsed, command, given)
    if asked is not None:
        return Answered(asked["facts"], asked["text"], asked["status"])
    embeds = command.searches or command.name not in CORE
    with open_memory_of(parsed, warm=command.searches, embeds=embeds) as memory:
        return answer(memory, command, given, working_directory())


def _asked(parsed: argparse.Namespace, command: Command[Any, Any], given: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a server of the same settings answers; None where there is none, or none that can."""
    from server.local.channel import Unanswered, submit
    from server.local.shared_server import place_of

    place = place_of(parsed.home, parsed.config, parsed.set)
    if not (place.state / "lines").is_dir() or len(json.dumps(given)) > _HANDED_OVER_BYTES:
        return None
    request = {"command": command.name, "given": given}
    seconds = _WRITE_SECONDS if command.writes else _READ_SECONDS
    try:
        return submit(place.state, "command", request, seconds, settings=place.settings)
    except Unanswered:
        if command.writes and not given.get("request_id"):
            raise
        return None  # nothing is written, or what has an id of its own is written once


def answer(memory: Runebook, command: Command[Any, Any], given: Mapping[str, Any], folder: str) -> Answered:
    """Answer a command on an open store.

    Args:
        memory: The store.
        command: What is asked.
        given: Members of its request, of their types.
        folder: Where the caller works; the project there is the current one.

    Raises:
        RunebookError: As the command does.
    """
    from memory_core.core.errors import StorageFailed, StoreBusy
    from memory_core.core.memory.results import as_json
    from server import rendering

    place: dict[str, Any] = {}
    if any(each.name == "here" for each in arguments_of(command)):
        place["here"] = project_of(memory.config, folder)
    if command.searches and memory.indexer.embedder is not None:
        memory.indexer.embedder.ready(LOADING_SECONDS)  # who asks once cannot ask again in a moment
    if command.name in _OF_THE_PAST:
        with suppress(StorageFailed, StoreBusy):  # the past can be read all the same
            memory.store.adopt()
    with owner_looking(when=command.name in _LOOKS):
        found = memory.run(command, command.request(**given, **place))
        if isinstance(found, Iterator):
            found = tuple(found)
    facts = as_json(found)
    return Answered(
        {command.member: facts} if command.member else facts,
        rendering.plain_text(found) if command.text is None else command.text(found),
        int(command.fails(found)),
    )


def say(parsed: argparse.Namespace, command: Command[Any, Any], answered: Answered) -> int:
    """Print what a command returned; returns the exit status."""
    if command.name == "retrieve" and answered.text in ("", "[]"):
        print("runebook: nothing stored fits this yet.", file=sys.stderr)
    show(parsed, answered.facts, answered.text, is_diff=command.name == "diff")
    return answered.status
