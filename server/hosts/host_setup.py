"""Setting up hosts: what goes into which of their files, put in, taken out, shown, and found again.

Owns how hosts start the program that is installed here, and the rules that are put before their models.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, ClassVar

from memory_core.core.errors import InvalidInput
from server.hosts.host_files import Edit, Hooks, HostFileChange, Rules, Server, put_in, state_of, take_out
from server.hosts.host_table import HookFile, Host, Machine, hosts, hosts_here

#: What can be put into a host.
PARTS = ("server", "rules", "hooks")
#: What is put before a host's model.
RULES = Path(__file__).with_name("rules.md").read_text(encoding="utf-8").rstrip()

_PROGRAM = "runebook"
_UVX = re.compile(r"[\\/]uv[\\/](?:cache[\\/])?(?:archive|environments|builds)-v\d+[\\/]")
_PIPX_RUN = re.compile(r"[\\/]pipx[\\/](?:\.cache|Cache|cache)[\\/]|[\\/]\.cache[\\/]pipx[\\/]")
_TEMPORARY = re.compile(
    r"^(?:/private)?(?:/var)?/tmp/|^(?:/private)?/var/folders/|^/dev/shm/|[\\/](?i:AppData[\\/]Local[\\/]Temp)[\\/]"
)
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./~-]+")
#: What a shell expands or ends in double quotes.
_EXPANDED = re.compile(r'["$`]')


@dataclass(frozen=True, slots=True)
class Launcher:
    """How hosts start this program.

    Attributes:
        command: Full path of a program, or the name of a runner such as ``uvx``.
        prefix: Arguments before those of Runebook.
        lasting: Whether it will be there after the next tidying up.
    """

    command: str
    prefix: tuple[str, ...] = ()
    lasting: bool = True

    def command_line(self, *arguments: str) -> str:
        """For Bash or ``cmd``, with the slashes that both take."""
        return " ".join(_shell_word(word) for word in (self.command.replace("\\", "/"), *self.prefix, *arguments))


def launcher(program: str | None = None, prefix: str | None = None, *, windows: bool = os.name == "nt") -> Launcher:
    """How this very installation is started.

    Args:
        program: How this process was started; by default ``sys.argv[0]``.
        prefix: The environment's folder; by default ``sys.prefix``.
        windows: Whether programs end in ``.exe``.
    """
    environment = sys.prefix if prefix is None else prefix
    if _UVX.search(f"{environment}{os.sep}"):
        return Launcher(shutil.which("uvx") or "uvx", (_PROGRAM,))
    if _PIPX_RUN.search(f"{environment}{os.sep}"):
        return Launcher(shutil.which("pipx") or "pipx", ("run", _PROGRAM))
    name = f"{_PROGRAM}.exe" if windows else _PROGRAM
    started = Path(sys.argv[0] if program is None else program)
    if windows and started.suffix != ".exe":
        started = started.with_name(f"{started.name}.exe")
    beside = Path(environment) / ("Scripts" if windows else "bin") / name
    for found in (started, beside, Path(sysconfig.get_path("scripts")) / name):
        if found.name == name and found.is_file():
            path = str(found.absolute())  # a link that an installer keeps up to date stays a link
            return Launcher(path, lasting=not is_temporary(path))
    # -P: the folder that a host works in must not lend it modules.
    return Launcher(sys.executable, ("-P", "-m", "server.cli"), lasting=not is_temporary(sys.executable))


def is_temporary(path: str) -> bool:
    """Whether a path lies where systems tidy up."""
    here = tempfile.gettempdir().rstrip("\\/") + os.sep
    return path.startswith(here) or _TEMPORARY.search(path) is not None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be installed.

    Attributes:
        launcher: How the program is started.
        options: Options of the server and of hooks, ``--home`` and the like.
        shared: Whether the host shares a server with others.
        name: The server's name in the host.
        parts: Some of ``PARTS``.
        project: A project's folder; None sets the host up for the user.
    """

    launcher: Launcher
    options: tuple[str, ...] = ()
    shared: bool = False
    name: str = "runebook"
    parts: frozenset[str] = frozenset({"server"})
    project: PurePath | None = None

    def entry(self, *, typed: bool) -> dict[str, Any]:
        """The server as hosts list it; ``typed`` ones say how they speak to it."""
        serve = ["serve", *(["--shared"] if self.shared else []), *self.options]
        kind = {"type": "stdio"} if typed else {}
        return {**kind, "command": self.launcher.command, "args": [*self.launcher.prefix, *serve]}


@dataclass(frozen=True, slots=True)
class Pasting:
    """Lines that a person puts in by hand, and where."""

    where: str
    text: str


@dataclass(frozen=True, slots=True)
class HostState:
    """How a host stands: ``state`` is that of its server (missing, installed, outdated, unreadable)."""

    JSON: ClassVar = "name:host here:found state parts path"

    name: str
    here: bool
    state: str
    path: Path
    parts: tuple[str, ...]


def install(host: Host, machine: Machine, wanted: Wanted, *, dry_run: bool) -> list[HostFileChange]:
    """Put the wanted parts into the host's files.

    Raises:
        InvalidInput: If the host has no files in a project and one is given.
    """
    within = None if wanted.project is None else Path(wanted.project)
    return [put_in(path, edits, dry_run=dry_run, within=within) for path, edits in plan(host, machine, wanted)]


def uninstall(host: Host, machine: Machine, wanted: Wanted, *, dry_run: bool, purge: bool) -> list[HostFileChange]:
    """Take every part out of the host's files, in whatever form it is there.

    Raises:
        InvalidInput: If the host has no files in a project and one is given.
    """
    staying = {Path(folder) for folder in (machine.home, wanted.project or machine.home, *host.marks(machine))}
    within = None if wanted.project is None else Path(wanted.project)
    return [
        take_out(path, edits, dry_run=dry_run, purge=purge, folders=staying, within=within)
        for path, edits in plan(host, machine, wanted, everywhere=True)
    ]


def findings(machine: Machine, wanted: Wanted) -> list[HostState]:
    """How each host stands, in the order of the table."""
    here = hosts_here(machine)
    found: list[HostState] = []
    for host in hosts():
        if wanted.project is not None and not host.has_projects:
            continue
        files = plan(host, machine, wanted, everywhere=True)
        states = [(edit.what, state_of(path, [edit]), path) for path, edits in files for edit in edits]
        parts = {what for what, state, _ in states if state in ("installed", "outdated")}
        servers = [(state, path) for what, state, path in states if what == "server"]
        state, path = next((each for each in servers if each[0] != "missing"), servers[0])
        found.append(HostState(host.name, host in here, state, path, tuple(part for part in PARTS if part in parts)))
    return found


def plan(host: Host, machine: Machine, wanted: Wanted, *, everywhere: bool = False) -> list[tuple[Path, list[Edit]]]:
    """The host's files and what goes into each, in a fixed order.

    Args:
        host: The host.
        machine: The account.
        wanted: What is to be there.
        everywhere: Every part in every file that the host may read, instead of the wanted parts in those it uses.

    Raises:
        InvalidInput: If the host has no files in a project and one is given, or no hook can name the program.
    """
    settings = host.settings(machine, wanted.project)

    def chosen(paths: Sequence[PurePath]) -> list[Path]:
        here = [mark for mark in host.marks(machine) if Path(mark).is_dir()]
        used = [path for path in paths if everywhere or any(mark in path.parents for mark in here)]
        return [Path(path) for path in used or paths[:1]]

    files: dict[Path, list[Edit]] = {}
    parts = PARTS if everywhere else wanted.parts
    if "server" in parts:
        server = settings.server
        edit = Server((server.below, wanted.name), wanted.entry(typed=server.typed), server.toml)
        for path in chosen(server.paths):
            files.setdefault(path.with_stem(wanted.name) if server.own else path, []).append(edit)
    if "hooks" in parts and settings.hooks is not None:
        if not everywhere:
            _check_hook_words((wanted.launcher.command, *wanted.launcher.prefix, *wanted.options))
        files.setdefault(Path(settings.hooks.path), []).append(_hooks(settings.hooks, host, wanted))
    if "rules" in parts and settings.rules is not None:
        for path in chosen(settings.rules.paths):
            files.setdefault(path, []).append(Rules(RULES, settings.rules.head))
    return list(files.items())


def pastings(host: Host, machine: Machine, wanted: Wanted) -> list[Pasting]:
    """What a person puts in by hand to have the same: every wanted part and where it goes."""
    shown = [Pasting(str(path), edit.pasted()) for path, edits in plan(host, machine, wanted) for edit in edits]
    return [*shown, *by_hand(host, machine, wanted)]


def by_hand(host: Host, machine: Machine, wanted: Wanted) -> list[Pasting]:
    """Wanted parts for which the host has no file."""
    settings = host.settings(machine, wanted.project)
    if "rules" in wanted.parts and settings.rules is None:
        return [Pasting(f"{host.title}: {settings.rules_by_hand}", RULES)]
    return []


def generic(wanted: Wanted) -> list[Pasting]:
    """What any other host takes."""
    entry = Server(("mcpServers", wanted.name), wanted.entry(typed=False))
    shown = [Pasting("the host's MCP settings", entry.pasted())]
    if "rules" in wanted.parts:
        shown.append(Pasting("the host's rules, instructions or system prompt", RULES))
    return shown


def _hooks(file: HookFile, host: Host, wanted: Wanted) -> Hooks:
    return Hooks(
        tuple((event, _hook(verb, file, host, wanted)) for verb, (event, _, _) in file.events.items()),
        file.beside or {},
    )


def _hook(verb: str, file: HookFile, host: Host, wanted: Wanted) -> dict[str, Any]:
    """An item of the list of an event: the command that answers it, and for which tools."""
    _, matcher, timeout = file.events[verb]
    # Off by default, as most hosts also say when a session ends; a host whose file lists it has nothing else.
    switched_on = ("--set=hooks.stop=true",) if verb == "stop" else ()
    line = wanted.launcher.command_line("hook", verb, f"--host={host.name}", *wanted.options, *switched_on)
    command = {"command": line, "timeout": timeout}
    tools = {} if matcher is None else {"matcher": matcher}
    return {**tools, "hooks": [{"type": "command", **command}]} if file.grouped else {**command, **tools}


def _shell_word(word: str) -> str:
    return word if _PLAIN.fullmatch(word) else f'"{word}"'


def _check_hook_words(words: Iterable[str]) -> None:
    """Refuse words that a shell reads as others, also in double quotes.

    Raises:
        InvalidInput: If there is one.
    """
    if (wrong := next((word for word in words if _EXPANDED.search(word)), None)) is not None:
        raise InvalidInput(
            f'a hook cannot name {wrong!r}: a shell reads its ", $ or ` as something else.',
            hint="Use a path without these characters, or install without hooks.",
        )
