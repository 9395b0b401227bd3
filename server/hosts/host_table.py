"""The hosts: which files each reads for its servers, its hooks and its rules, for a user or for one project.

The table itself is ``host_table.json``; a new host is an entry there. Owned here: which folders its paths begin with on
this machine. Nothing of a host is read. Where a host keeps its files in several places (editions, or a packaged one),
all of them are named and the caller takes those that are there.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath
from typing import Any, Literal

from memory_core.core.errors import InvalidInput
from memory_core.core.text.word_table import word_table

#: Stands for any other host.
GENERIC = "generic"
#: What may stand between names of hosts.
_BETWEEN = re.compile(r"[\s,;/&+，、；]+(?:(?:and|und|和)\s+)?|和")
Platform = Literal["linux", "darwin", "win32"]
#: Events by their verb in ``runebook hook``: the host's name, for which tools, how long the host waits (its unit).
Events = Mapping[str, tuple[str, str | None, int]]


@dataclass(frozen=True, slots=True)
class Machine:
    """A user's account on a machine.

    Attributes:
        platform: ``sys.platform``, every Unix but macOS counting as Linux.
        home: The user's folder, of the path class of that platform.
        environment: Environment variables.
    """

    platform: Platform
    home: PurePath
    environment: Mapping[str, str]

    def path(self, variable: str, *otherwise: str) -> PurePath:
        """The path that a variable names, else one below the home folder."""
        named = self.environment.get(variable)
        return type(self.home)(named) if named else self.home.joinpath(*otherwise)


def this_machine() -> Machine:
    """The account that this process runs for.

    Raises:
        InvalidInput: If the system does not say where its home folder is.
    """
    platform: Platform = "win32" if sys.platform == "win32" else "darwin" if sys.platform == "darwin" else "linux"
    try:
        return Machine(platform, Path.home(), os.environ)
    except RuntimeError as error:
        raise InvalidInput(
            f"the home folder is not known: {error}.", hint="Set HOME (USERPROFILE on Windows)."
        ) from error


def folders(machine: Machine) -> dict[str, PurePath]:
    """The folders that paths of the table begin with, as far as the machine has them."""
    windows = machine.platform == "win32"
    if windows:
        data = machine.path("APPDATA", "AppData", "Roaming")
    elif machine.platform == "darwin":
        data = machine.home / "Library" / "Application Support"
    else:
        data = machine.path("XDG_CONFIG_HOME", ".config")
    claude = machine.path("CLAUDE_CONFIG_DIR", ".claude")
    found = {
        "home": machine.home,
        "data": data,
        "claude": claude,
        "claude_listing": claude if machine.environment.get("CLAUDE_CONFIG_DIR") else machine.home,
        "codex": machine.path("CODEX_HOME", ".codex"),
        "zed": data / "Zed"
        if windows
        else (machine.home / ".config" if machine.platform == "darwin" else data) / "zed",
    }
    if windows:  # Claude Desktop, installed from the store, has a roaming folder of its own
        local = machine.path("LOCALAPPDATA", "AppData", "Local")
        found["packaged_claude"] = local.joinpath("Packages", "Claude_pzs8sxrjxfjjc", "LocalCache", "Roaming", "Claude")
    if machine.environment.get("CLINE_MCP_SETTINGS_PATH"):
        found["cline_settings"] = machine.path("CLINE_MCP_SETTINGS_PATH")
    return found


@dataclass(frozen=True, slots=True)
class ServerFile:
    """Where a host lists its servers.

    Attributes:
        paths: The files; those count whose edition of the host is there.
        below: The object or table that lists servers.
        typed: Whether an entry says ``"type": "stdio"``.
        toml: Whether it is TOML; else JSON, perhaps with comments.
        own: Whether the file is ours alone, named after the server.
    """

    paths: tuple[PurePath, ...]
    below: str = "mcpServers"
    typed: bool = False
    toml: bool = False
    own: bool = False


@dataclass(frozen=True, slots=True)
class HookFile:
    """Where a host lists its hooks, and what it calls its events.

    Attributes:
        path: The file.
        events: Its events.
        grouped: Whether an item is a group (matcher and its commands, as in Claude Code) or a command (Cursor).
        beside: Members that the host wants at the top of the file.
    """

    path: PurePath
    events: Events
    grouped: bool = True
    beside: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class RulesFile:
    """Markdown files that a host reads to its model.

    Attributes:
        paths: The files; those count whose edition of the host is there.
        head: What a file that is ours alone begins with.
    """

    paths: tuple[PurePath, ...]
    head: str = ""


@dataclass(frozen=True, slots=True)
class HostSettings:
    """The files of settings that a host reads, for a user or in a project.

    Attributes:
        server: Where its servers are listed.
        rules: Where its rules are; None where a person must paste them.
        rules_by_hand: Where a person pastes rules.
        hooks: Where its hooks are listed, if it has any that fit.
    """

    server: ServerFile
    rules: RulesFile | None = None
    rules_by_hand: str = ""
    hooks: HookFile | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """A program that starts MCP servers.

    Attributes:
        name: What a command line calls it.
        title: What people call it.
        after: What a person does next.
        entry: Its entry of the table.
    """

    name: str
    title: str
    after: str
    entry: Mapping[str, Any]

    @property
    def has_projects(self) -> bool:
        """Whether it reads files in a project's folder."""
        return "project" in self.entry

    def marks(self, machine: Machine) -> tuple[PurePath, ...]:
        """Paths that are there if and only if the host is used here."""
        return _paths(self.entry["marks"], folders(machine))

    def settings(self, machine: Machine, project: PurePath | None = None) -> HostSettings:
        """The files that it reads, for the user or in a project.

        Raises:
            InvalidInput: If it reads nothing in projects.
        """
        if project is not None and not self.has_projects:
            able = ", ".join(host.name for host in hosts() if host.has_projects)
            raise InvalidInput(
                f"{self.title} has no settings of its own in a project.",
                hint=f"Leave --project out, or name one of {able}.",
            )
        if project is None:
            return _settings(self.entry["user"], folders(machine))
        return _settings(self.entry["project"], {"project": project})


@cache
def hosts() -> tuple[Host, ...]:
    """Every host of the table."""
    return tuple(Host(entry["name"], entry["title"], entry["after"], entry) for entry in word_table(__file__)["hosts"])


def names() -> tuple[str, ...]:
    """Names on a command line; ``GENERIC`` prints what any other host takes."""
    return (*(host.name for host in hosts()), GENERIC)


def host_named(name: str) -> Host:
    """The host of that name, as a command line calls it or as people do: ``vscode``, ``VS Code``.

    Raises:
        InvalidInput: If there is none.
    """
    if (found := _called().get(_bare(name))) is not None:
        return found
    near = [host.name for host in hosts() if _bare(name) and host.name.startswith(_bare(name))]
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    raise InvalidInput(f"there is no host {name!r}.", hint=f"{meant}Name one of {', '.join(names())}.")


def hosts_named(text: str) -> tuple[Host, ...]:
    """The hosts that a text names, each once, as people write them: ``Claude Code, Cursor and zed``; none for ``none``.

    Raises:
        InvalidInput: If there is no host of a name in it.
    """
    words = [word for word in _BETWEEN.split(text) if word and word.lower() != "none"]
    found: dict[str, Host] = {}
    while words:
        runs = ((size, _called().get(_bare("".join(words[:size])))) for size in range(len(words), 0, -1))
        size, host = next((run for run in runs if run[1] is not None), (1, None))
        host = host or host_named(words[0])
        found[host.name] = host
        words = words[size:]
    return tuple(found.values())


@cache
def _called() -> Mapping[str, Host]:
    """The hosts by all that they are called."""
    return {_bare(name): host for host in hosts() for name in (host.name, host.title, *host.entry.get("also", ()))}


def _bare(name: str) -> str:
    return re.sub(r"[\s._-]+", "", name).lower()


def hosts_here(machine: Machine) -> list[Host]:
    """The hosts that are used on this machine."""
    return [host for host in hosts() if any(Path(mark).exists() for mark in host.marks(machine))]


def _settings(entry: Mapping[str, Any], known: Mapping[str, PurePath]) -> HostSettings:
    rules = entry.get("rules")
    hooks = entry.get("hooks")
    server = dict(entry["server"])
    instead = _paths([server.pop("instead")], known) if "instead" in server else ()
    return HostSettings(
        ServerFile(**{**server, "paths": instead or _paths(server["paths"], known)}),
        None if rules is None else RulesFile(**{**rules, "paths": _paths(rules["paths"], known)}),
        entry.get("rules_by_hand", ""),
        None if hooks is None else _hooks(hooks, known),
    )


def _hooks(entry: Mapping[str, Any], known: Mapping[str, PurePath]) -> HookFile:
    events = {verb: tuple(event) for verb, event in word_table(__file__)["events"][entry["events"]].items()}
    return HookFile(**{**entry, "path": _paths([entry["path"]], known)[0], "events": events})


def _paths(templates: list[str], known: Mapping[str, PurePath]) -> tuple[PurePath, ...]:
    """The paths whose folder the machine has."""
    parted = [template.removeprefix("{").partition("}") for template in templates]
    return tuple(known[folder].joinpath(*rest.split("/")[1:]) for folder, _, rest in parted if folder in known)
