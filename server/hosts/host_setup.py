"""What is published beside the wheel: a bundle that a desktop host installs by a double click, and a registry's entry.

Owns the contents of the ``.mcpb`` file (a zip: manifest, wheel, the lines that have ``uv`` install and start it) and
of ``server.json``, made from templates in ``packaging/`` and the version. The same inputs give the same bytes.
Builds no wheel and publishes nothing.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from memory_core.core.errors import InvalidInput
from server.hosts.host_files import (
    Edit,
    FileChange,
    Hook,
    JsonHooks,
    JsonServer,
    Rules,
    TomlServer,
    put_in,
    state_of,
    take_out,
)
from server.hosts.host_table import HOSTS, LINES, NAMES, HookFile, Host, Launcher, Machine, Place, ServerFile

#: What can be put into a host.
PARTS = ("server", "rules", "hooks")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be installed.

    Attributes:
        launcher: How the program is started.
        serve: The arguments of the server.
        options: Options that hooks take too, ``--home`` and the like.
        name: The server's name in the host.
        parts: Some of ``PARTS``.
        project: A project's folder; None sets the host up for the user.
    """

    launcher: Launcher
    serve: tuple[str, ...] = ("serve",)
    options: tuple[str, ...] = ()
    name: str = "runebook"
    parts: frozenset[str] = frozenset({"server"})
    project: PurePath | None = None


@dataclass(frozen=True, slots=True)
class Pasting:
    """Lines that a person puts in by hand, and where."""

    where: str
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """How a host stands: ``state`` is that of its server (missing, installed, outdated, unreadable)."""

    host: Host
    here: bool
    state: str
    path: Path
    parts: tuple[str, ...]


def host_named(name: str) -> Host:
    """The host of that name.

    Raises:
        InvalidInput: If there is none.
    """
    for host in HOSTS:
        if host.name == name.lower():
            return host
    raise InvalidInput(f"there is no host {name!r}.", hint=f"Name one of {', '.join(NAMES)}.")


def hosts_here(machine: Machine) -> list[Host]:
    """The hosts that are used on this machine."""
    return [host for host in HOSTS if any(Path(mark).exists() for mark in host.marks(machine))]


def install(host: Host, machine: Machine, wanted: Wanted, *, dry_run: bool) -> list[FileChange]:
    """Put the wanted parts into the host's files.

    Raises:
        InvalidInput: If the host has no files in a project and one is given.
    """
    return [put_in(path, edits, dry_run=dry_run) for path, edits in plan(host, machine, wanted)]


def uninstall(host: Host, machine: Machine, wanted: Wanted, *, dry_run: bool, purge: bool) -> list[FileChange]:
    """Take every part out of the host's files, in whatever form it is there.

    Raises:
        InvalidInput: If the host has no files in a project and one is given.
    """
    staying = {Path(folder) for folder in (machine.home, wanted.project or machine.home, *host.marks(machine))}
    return [
        take_out(path, edits, dry_run=dry_run, purge=purge, folders=staying)
        for path, edits in plan(host, machine, wanted, everywhere=True)
    ]


def findings(machine: Machine, wanted: Wanted) -> list[Finding]:
    """How each host stands, in the order of the table."""
    found: list[Finding] = []
    here = hosts_here(machine)
    for host in HOSTS:
        if wanted.project is not None and host.of_project is None:
            continue
        files = plan(host, machine, wanted, everywhere=True)
        parts = tuple(
            edit.what for path, edits in files for edit in edits if state_of(path, [edit]) in ("installed", "outdated")
        )
        servers = [(path, edit) for path, edits in files for edit in edits if edit.what == "server"]
        states = [(state_of(path, [edit]), path) for path, edit in servers]
        state, path = next((each for each in states if each[0] != "missing"), states[0])
        found.append(Finding(host, host in here, state, path, tuple(part for part in PARTS if part in parts)))
    return found


def plan(host: Host, machine: Machine, wanted: Wanted, *, everywhere: bool = False) -> list[tuple[Path, list[Edit]]]:
    """The host's files and what goes into each, in a fixed order.

    Args:
        host: The host.
        machine: The account.
        wanted: What is to be there.
        everywhere: Every part in every file that the host may read, instead of the wanted parts in those it uses.

    Raises:
        InvalidInput: If the host has no files in a project and one is given.
    """
    place = place_of(host, machine, wanted.project)

    def chosen(paths: Sequence[PurePath]) -> list[Path]:
        here = [mark for mark in host.marks(machine) if Path(mark).is_dir()]
        used = [path for path in paths if everywhere or any(mark in path.parents for mark in here)]
        return [Path(path) for path in used or paths[:1]]

    files: dict[Path, list[Edit]] = {}
    parts = PARTS if everywhere else wanted.parts
    if "server" in parts:
        for path in chosen(place.server.paths):
            files.setdefault(_renamed(path, place.server, wanted.name), []).append(_server(place.server, wanted))
    if "hooks" in parts and place.hooks is not None:
        files.setdefault(Path(place.hooks.path), []).append(_hooks(place.hooks, host, wanted))
    if "rules" in parts and place.rules is not None:
        for path in chosen(place.rules.paths):
            files.setdefault(path, []).append(Rules(LINES, place.rules.head))
    return list(files.items())


def place_of(host: Host, machine: Machine, project: PurePath | None) -> Place:
    """What the host reads, for the user or in a project.

    Raises:
        InvalidInput: If the host reads nothing in projects.
    """
    if project is None:
        return host.of_user(machine)
    if host.of_project is None:
        able = ", ".join(each.name for each in HOSTS if each.of_project is not None)
        raise InvalidInput(
            f"{host.title} has no settings of its own in a project.",
            hint=f"Leave --project out, or name one of {able}.",
        )
    return host.of_project(project)


def pastings(host: Host, machine: Machine, wanted: Wanted) -> list[Pasting]:
    """What a person puts in by hand to have the same: every wanted part and where it goes."""
    shown = [Pasting(str(path), edit.pasted()) for path, edits in plan(host, machine, wanted) for edit in edits]
    return [*shown, *by_hand(host, machine, wanted)]


def by_hand(host: Host, machine: Machine, wanted: Wanted) -> list[Pasting]:
    """Wanted parts for which the host has no file."""
    place = place_of(host, machine, wanted.project)
    if "rules" in wanted.parts and place.rules is None:
        return [Pasting(f"{host.title}: {place.rules_by_hand}", LINES)]
    return []


def generic(wanted: Wanted) -> list[Pasting]:
    """What any other host takes."""
    entry = JsonServer(("mcpServers", wanted.name), _entry(wanted, typed=False))
    shown = [Pasting("the host's MCP settings", entry.pasted())]
    if "rules" in wanted.parts:
        shown.append(Pasting("the host's rules, instructions or system prompt", LINES))
    return shown


def _renamed(path: Path, server: ServerFile, name: str) -> Path:
    return path.with_stem(name) if server.own else path


def _server(server: ServerFile, wanted: Wanted) -> Edit:
    entry = _entry(wanted, typed=server.typed)
    path = (server.below, wanted.name)
    return TomlServer(path, entry) if server.toml else JsonServer(path, entry)


def _entry(wanted: Wanted, *, typed: bool) -> dict[str, Any]:
    launcher = wanted.launcher
    kind = {"type": "stdio"} if typed else {}
    return {**kind, "command": launcher.command, "args": [*launcher.prefix, *wanted.serve]}


def _hooks(file: HookFile, host: Host, wanted: Wanted) -> JsonHooks:
    def line(verb: str) -> str:
        # Off by default, as most hosts also say when a session ends; a host whose file lists it has nothing else.
        switched_on = ("--set=hooks.stop=true",) if verb == "stop" else ()
        return wanted.launcher.line("hook", verb, f"--host={host.name}", *wanted.options, *switched_on)

    hooks = tuple(Hook(event, line(verb), matcher, timeout) for verb, (event, matcher, timeout) in file.events.items())
    return JsonHooks(hooks, file.grouped, file.beside)


_ENTRY = "main.py"
_MAIN = '''\
"""Starts the server that this bundle installs."""

import sys

from server.cli import main

sys.exit(main(["serve", *sys.argv[1:]]))
'''
_PYPROJECT = """\
[project]
name = "runebook-bundle"
version = "{version}"
requires-python = ">=3.11"
dependencies = ["runebook=={version}"]

[tool.uv]
package = false

[tool.uv.sources]
runebook = {{ path = "{wheel}" }}
"""
#: No file is older in a zip; a bundle does not depend on the day it is made.
_MOMENT = (1980, 1, 1, 0, 0, 0)
_MODE = 0o644 << 16


def manifest(template: Mapping[str, Any], version: str, tools: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The bundle's manifest.

    Args:
        template: ``packaging/manifest.json``.
        version: The program's version.
        tools: Name and description of each tool; of a description the first sentence is told.
    """
    listed = [{"name": name, "description": _first_sentence(description)} for name, description in tools]
    return {**template, "version": version, "tools": listed}


def registry_entry(template: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The registry's ``server.json``: the version stands in it once for the server and once for each package."""
    packages = [{**package, "version": version} for package in template["packages"]]
    return {**template, "version": version, "packages": packages}


def write_bundle(path: Path, told: Mapping[str, Any], wheel: Path) -> str:
    """Write the bundle.

    Args:
        path: The ``.mcpb`` file to be.
        told: The manifest.
        wheel: The wheel that it installs, of the same version.

    Returns:
        The file's SHA-256, as registries want it.

    Raises:
        InvalidInput: If the wheel is of another version.
    """
    version = told["version"]
    if not wheel.name.startswith(f"runebook-{version}-"):
        raise InvalidInput(f"{wheel.name} is not version {version}.", hint="Build the wheel and the bundle together.")
    contents = {
        "manifest.json": _json(told),
        "pyproject.toml": _PYPROJECT.format(version=version, wheel=wheel.name).encode(),
        _ENTRY: _MAIN.encode(),
        wheel.name: wheel.read_bytes(),
    }
    with zipfile.ZipFile(path, "w") as bundle:
        for name, content in contents.items():
            about = zipfile.ZipInfo(name, _MOMENT)
            about.external_attr = _MODE
            about.compress_type = zipfile.ZIP_STORED if name == wheel.name else zipfile.ZIP_DEFLATED
            bundle.writestr(about, content)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()


def _first_sentence(text: str) -> str:
    line = " ".join(text.split())
    return line.partition(". ")[0].rstrip(".") + "."
