"""Is a host set up, and does what its files say work? ``runebook doctor --host``.

Every command is run as the host runs it: the server by the SDK's client over stdio, hooks by a shell with an event on
standard input. Nothing is stored: the one commit is a dry run, and the event names no session. Files are only read.
The files of a project are whoever's wrote them: of these only what ``install`` would write there is run.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, TextIO

from memory_core.core.errors import RunebookError
from server.hosts.host_files import Edit, Hooks, Rules, Server, edits_in, own_options
from server.hosts.host_setup import Wanted, plan
from server.hosts.host_table import Host, Machine

#: What this is called where clients are listed.
_CLIENT = "runebook-doctor"
TOOLS = frozenset({"commit_memory", "find", "read", "ls", "tree", "retrieve"})
#: A first start on a busy machine.
_START_SECONDS = 60.0
_HOOK_SECONDS = 60.0
_LINE_CHARS = 300
#: What a hook says whose time was up; the host goes on then.
_LATE = "too late"


class State(StrEnum):
    """How a check ended; ``absent`` is what may be left out."""

    OK = "ok"
    ABSENT = "absent"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: ``configuration``, ``command``, ``server``, ``hooks`` or ``rules``.
        state: How it ended.
        subject: The file or command.
        detail: What was found.
        next: What to do about it; empty where nothing is to be done.
    """

    JSON: ClassVar = "*"

    name: str
    state: State
    subject: str
    detail: str
    next: str = ""

    @property
    def line(self) -> str:
        """For a person."""
        return f"{self.state:<7} {self.name}: {self.subject}: {self.detail}" + (f" Next: {self.next}" * bool(self.next))


def checks(host: Host, machine: Machine, wanted: Wanted) -> Iterator[Check]:
    """Look at a host from its files to what they start.

    Args:
        host: The host.
        machine: The account.
        wanted: The server's name in the host, and the project if one is meant.

    Raises:
        InvalidInput: If the host has no files in a project and one is given.
    """
    folder = str(wanted.project or machine.home)
    files = plan(host, machine, wanted, everywhere=True)
    there: list[tuple[Path, Edit]] = []
    unreadable: list[tuple[Path, RunebookError]] = []
    for path, edits in files:
        try:
            there += [(path, edit) for edit in edits_in(path, edits)]
        except RunebookError as error:
            unreadable.append((path, error))
    servers = [(path, edit.entry) for path, edit in there if isinstance(edit, Server)]
    again = _installation(host, wanted, own_options(servers[0][1]) if servers else [])
    for path, found in unreadable:
        yield Check("configuration", State.FAILED, str(path), found.message, f"{found.hint} Then: {again}")
    if not servers:
        place = next(path for path, edits in files if any(isinstance(edit, Server) for edit in edits))
        yield Check("configuration", State.FAILED, str(place), f"{host.title} does not list {wanted.name}.", again)
    own = None if wanted.project is None else [edit for _, edits in files for edit in edits]
    for path, entry in servers:
        yield Check("configuration", State.OK, str(path), f"it lists {wanted.name}.")
        if own is None or any(isinstance(edit, Server) and _alone(entry) == edit.entry for edit in own):
            yield from _server(entry, folder, again)
        else:
            yield _not_run("server", " ".join([str(entry["command"]), *map(str, entry.get("args", []))]), again)
    offered = host.settings(machine, wanted.project)
    hooks = [edit for _, edit in there if isinstance(edit, Hooks)]
    if offered.hooks is not None and not hooks:
        yield Check("hooks", State.ABSENT, str(offered.hooks.path), "there are none.", f"{again} --hooks")
    planned = {named for edit in own or () if isinstance(edit, Hooks) for named in _commands(edit)}
    for edit in hooks:
        for event, command in _commands(edit):
            if own is None or (event, command) in planned:
                yield _hook(event, command, folder, again)
            else:
                yield _not_run("hooks", f"{event}: {command}", again)
    yield from _rules(host, machine, wanted, files, there, again)


def _installation(host: Host, wanted: Wanted, options: Sequence[str]) -> str:
    """The command that installs the server in this host again, with the options that it has there.

    In a project these may be anybody's: there with the options that were given.
    """
    if wanted.project is not None:
        return shlex.join(["runebook", "install", host.name, f"--project={wanted.project}", *wanted.options])
    return shlex.join(["runebook", "install", host.name, *options])


def _alone(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry without the one option that the server may have beside those that were given."""
    return {**entry, "args": [word for word in entry.get("args", []) if word != "--shared"]}


def _not_run(name: str, subject: str, again: str) -> Check:
    detail = "it was not run: whoever wrote the project decides what is there, and this is not what install writes."
    after = f"look at it. If its options are yours, give them to doctor as well; else: {again}"
    return Check(name, State.FAILED, subject, detail, after)


def _server(entry: Mapping[str, Any], folder: str, again: str) -> Iterator[Check]:
    import anyio

    words = [str(entry["command"]), *map(str, entry.get("args", []))]
    program = None if "\0" in words[0] else shutil.which(words[0])
    if program is None:
        yield Check("command", State.FAILED, words[0], "there is no such program.", again)
        return
    yield Check("command", State.OK, program, "it is there.")
    command = " ".join(words)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        try:
            told, tools, status = anyio.run(_asked, words, entry.get("env"), folder, errors)
        except Exception as error:  # noqa: BLE001 - whatever a foreign program does is the finding
            reason = _said(errors) or _innermost(error)
            yield Check("server", State.FAILED, command, reason, f"mend that, or: {again}")
            return
    missing = TOOLS - tools
    if missing or status != "dry_run":
        reason = f"without {', '.join(sorted(missing))}." if missing else f"a dry run of a commit came to {status!r}."
        yield Check("server", State.FAILED, command, f"{told} answers, {reason}", again)
    else:
        yield Check("server", State.OK, command, f"{told} answers with six tools, and would store.")


async def _asked(
    words: Sequence[str], env: dict[str, str] | None, folder: str, errors: TextIO
) -> tuple[str, set[str], str]:
    """Who the server is, its tools, and what a dry run of a commit came to."""
    import anyio
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client
    from mcp.types import CallToolResult, Implementation

    from memory_core.version import program_version

    started = StdioServerParameters(command=words[0], args=list(words[1:]), env=env, cwd=folder)
    with anyio.fail_after(_START_SECONDS):
        own = Implementation(name=_CLIENT, version=program_version())
        async with Client(stdio_client(started, errlog=errors), mode="legacy", client_info=own) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            trial = {"memory_content": "The host was examined.", "dry_run": True}
            receipt = await client.call_tool("commit_memory", trial)
            assert isinstance(receipt, CallToolResult)
            info = client.server_info
            name = "somebody" if info is None else f"{info.name} {info.version}"
    status = (receipt.structured_content or {}).get("status", "an error")
    return name, tools, str(status)


def _innermost(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"it did not answer within {_START_SECONDS:.0f} s."
    return f"it does not start: {error}."


def _said(errors: TextIO) -> str:
    """The last line that a program wrote to standard error."""
    errors.seek(0)
    return next((line.strip()[:_LINE_CHARS] for line in reversed(errors.readlines()) if line.strip()), "")


def _commands(hooks: Hooks) -> Iterator[tuple[str, str]]:
    """The command lines of a file, by the host's names of the events."""
    for event, item in hooks.items:
        group = item.get("hooks")
        for command in group if isinstance(group, list) else [item]:
            if isinstance(command, dict):
                yield event, str(command.get("command", ""))


def _hook(event: str, command: str, folder: str, again: str) -> Check:
    """Run a hook with an event that tells it nothing to keep; once more where its time was up, as at a first start."""
    check = _hook_once(event, command, folder, again)
    return _hook_once(event, command, folder, again) if _LATE in check.detail else check


def _hook_once(event: str, command: str, folder: str, again: str) -> Check:
    given = {"hook_event_name": event, "cwd": folder, "source": "startup", "prompt": "What is known about me?"}
    try:
        done = subprocess.run(
            command,
            shell=True,  # as hosts do
            input=json.dumps(given).encode(),
            capture_output=True,
            cwd=folder,
            timeout=_HOOK_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Check("hooks", State.FAILED, event, f"it took longer than {_HOOK_SECONDS:.0f} s.", f"{again} --hooks")
    said = done.stderr.decode(errors="replace").strip().splitlines()
    if done.returncode != 0 or said:
        reason = said[-1][:_LINE_CHARS] if said else f"its exit status is {done.returncode}."
        late = "run this again when the machine is not busy; what bounds a hook is in docs/hooks.md"
        return Check("hooks", State.FAILED, event, reason, late if _LATE in reason else f"{again} --hooks")
    return Check("hooks", State.OK, event, f"it answers with {len(done.stdout):,} bytes.")


def _rules(
    host: Host,
    machine: Machine,
    wanted: Wanted,
    files: Sequence[tuple[Path, Sequence[Edit]]],
    there: Sequence[tuple[Path, Edit]],
    again: str,
) -> Iterator[Check]:
    found = [path for path, edit in there if isinstance(edit, Rules)]
    yield from (Check("rules", State.OK, str(path), "they are in place.") for path in found)
    if found:
        return
    places = [path for path, edits in files if any(isinstance(edit, Rules) for edit in edits)]
    if places:
        yield Check("rules", State.ABSENT, str(places[0]), "there are none.", f"{again} --rules")
    else:
        where = host.settings(machine, wanted.project).rules_by_hand
        paste = f"paste what {again} --rules --print prints into {where}"
        yield Check("rules", State.ABSENT, host.title, "a program cannot see whether they are there.", paste)
