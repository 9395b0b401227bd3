"""Setting up the hosts of this machine, taking that back, and completion for shells."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from server.commands.opening import settings_file_of, show

if TYPE_CHECKING:
    from server.hosts.host_files import HostFileChange
    from server.hosts.host_setup import Pasting, Wanted
    from server.hosts.host_table import Host, Machine


#: What a person may answer who agrees.
YES = ("y", "yes", "j", "是", "好")
_DONE = {
    "created": "created",
    "changed": "changed",
    "unchanged": "as it should be",
    "restored": "as it was before",
    "deleted": "removed, nothing else was in it",
    "refused": "left alone",
}
#: Of a server in a host, for a person.
_STATES = {"missing": "not set up", "outdated": "other options"}
_WOULD = {
    "created": "would be created",
    "changed": "would be changed",
    "restored": "would be as it was before",
    "deleted": "would be removed",
}


class _HostNames:
    """The hosts, for completion alone: a name is judged where it is used, with the next step."""

    def __contains__(self, _name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        from server.hosts.host_table import names

        return iter(names())


HOST_NAMES = _HostNames()


def install(arguments: argparse.Namespace) -> int:
    """Put the server, and what else is wanted, into the files of hosts."""
    from server.hosts import host_setup
    from server.hosts.host_table import this_machine

    machine, wanted = this_machine(), wanted_of(arguments)
    if arguments.list:
        return _list(arguments, machine, wanted)
    hosts = _chosen(arguments, machine)
    told: list[dict[str, Any]] = []
    lines = warnings_of(wanted)
    refused = False
    for host in hosts:
        if host is None or arguments.print:
            pasted = host_setup.generic(wanted) if host is None else host_setup.pastings(host, machine, wanted)
            told.append({"host": "generic" if host is None else host.name, "changes": [], "paste": pasted})
            lines += pasting_lines("Any host" if host is None else host.title, pasted)
            continue
        asked = replace(wanted, parts=wanted.parts | _agreed(arguments, host, machine, wanted))
        changes, pasted = set_up(host, machine, asked, dry_run=arguments.dry_run)
        memories, line = _offer_memories(arguments, host)
        told.append({"host": host.name, "changes": changes, "paste": pasted, "next": host.after, **memories})
        lines += [*change_lines(host.title, changes, arguments.dry_run), *pasting_lines("", pasted), *line]
        left_alone = any(change.action == "refused" for change in changes)
        refused = refused or left_alone
        if not arguments.dry_run and not left_alone:
            lines += [f"  {host.after}", *_missing_parts(host, machine, asked)]
    command = [wanted.launcher.command, *wanted.launcher.prefix]
    show(arguments, {"command": command, "warnings": warnings_of(wanted), "hosts": told}, "\n".join(lines))
    return 1 if refused else 0


def set_up(
    host: Host, machine: Machine, wanted: Wanted, *, dry_run: bool
) -> tuple[list[HostFileChange], list[Pasting]]:
    """Put the wanted parts into the host's files; also what a person has to paste.

    Raises:
        InvalidInput: If the host has no files in a project and one is given.
    """
    from server.hosts import host_setup

    changes = host_setup.install(host, machine, wanted, dry_run=dry_run)
    return changes, [*host_setup.by_hand(host, machine, wanted), *_instead(host, machine, wanted, changes)]


def uninstall(arguments: argparse.Namespace) -> int:
    """Take every part out of the files of hosts."""
    from server.hosts import host_setup
    from server.hosts.host_table import this_machine

    machine, wanted = this_machine(), wanted_of(arguments)
    told: list[dict[str, Any]] = []
    lines: list[str] = []
    refused = False
    for host in _chosen(arguments, machine):
        if host is None:
            lines.append("Any other host: remove by hand what you pasted there.")
            continue
        changes = host_setup.uninstall(host, machine, wanted, dry_run=arguments.dry_run, purge=arguments.purge_backups)
        changes = [change for change in changes if change.action != "absent"]
        memories, line = _end_memories(arguments, host)
        where = host.settings(machine, wanted.project).rules_by_hand
        by_hand = {"by_hand": f"{host.title}: {where}"} if where and changes else {}
        told.append({"host": host.name, "changes": changes, **by_hand, **memories})
        nothing = [f"{host.title}: nothing of Runebook's."]
        lines += [*(change_lines(host.title, changes, arguments.dry_run) if changes else nothing), *line]
        if by_hand:
            lines.append(f"  If you pasted Runebook's rules into {where}, remove them there: no program can.")
        refused = refused or any(change.action == "refused" for change in changes)
    show(arguments, {"hosts": told}, "\n".join(lines))
    return 1 if refused else 0


def examine_host(arguments: argparse.Namespace) -> int:
    """Check a host that was set up, from its files to what they start; the exit status is 1 where something fails."""
    from server.hosts.host_checks import State, checks
    from server.hosts.host_table import host_named, this_machine

    host = host_named(arguments.host)
    found = list(checks(host, this_machine(), wanted_of(arguments)))
    failed = sum(check.state is State.FAILED for check in found)
    end = f"{host.title}: {failed} failed." if failed else f"{host.title} is set up, and what it starts works."
    lines = [*(check.line for check in found), end]
    show(arguments, {"host": host.name, "clean": not failed, "checks": found}, "\n".join(lines))
    return 1 if failed else 0


def completion(arguments: argparse.Namespace) -> int:
    """Print the completion script of a shell."""
    import shtab

    from server.cli import command_line

    print(shtab.complete(command_line().parser, shell=arguments.shell))
    return 0


def wanted_of(arguments: argparse.Namespace) -> Wanted:
    """What a command line asks to be installed, and how hosts start it."""
    from server.hosts.host_setup import Wanted, launcher

    home = arguments.home or os.environ.get("RUNEBOOK_HOME")  # a host with windows does not see this shell's variables
    options = [f"--home={expanded(home).absolute()}"] if home else []
    options += [f"--config={expanded(arguments.config).absolute()}"] if arguments.config else []
    options += [f"--set={setting}" for setting in arguments.set]
    project = None if arguments.project is None else _project(arguments.project)
    parts = {"server", *(part for part in ("rules", "hooks") if getattr(arguments, part, None))}
    shared = getattr(arguments, "shared", False)
    return Wanted(launcher(), tuple(options), shared, arguments.name, frozenset(parts), project)


def expanded(named: str) -> Path:
    """The path that a person names; of an unknown user, ``~nobody``, it is the name itself."""
    return Path(os.path.expanduser(named))  # noqa: PTH111 - never raises


def _project(named: str) -> Path:
    from memory_core.core.errors import InvalidInput

    project = expanded(named).absolute()
    if not project.is_dir():
        raise InvalidInput(f"{named} is no folder.", hint="Name a project's folder that is there.")
    return project


def _chosen(arguments: argparse.Namespace, machine: Machine) -> list[Host | None]:
    """The hosts that the command line names; None stands for any other host."""
    from memory_core.core.errors import InvalidInput
    from server.hosts.host_table import GENERIC, hosts_here, hosts_named, names

    if arguments.all:
        here = [host for host in hosts_here(machine) if arguments.project is None or host.has_projects]
        if not here:
            raise InvalidInput("no host was found on this machine.", hint=f"Name one of {', '.join(names())}.")
        return list(here)
    if not arguments.hosts:
        raise InvalidInput(
            "no host is named.",
            hint=f"Name one or more of {', '.join(names())}, or --all; runebook install --list shows how they stand.",
        )
    others = [name for name in arguments.hosts if name.lower() != GENERIC]
    return [*hosts_named(" ".join(others)), *([None] if len(others) < len(arguments.hosts) else [])]


def _agreed(arguments: argparse.Namespace, host: Host, machine: Machine, wanted: Wanted) -> frozenset[str]:
    """The parts that the person at the terminal agrees to; none where nobody is asked."""
    settings = host.settings(machine, wanted.project)
    questions = {
        "rules": None if settings.rules is None else f"tell its model to use the memory, in {settings.rules.paths[0]}",
        "hooks": None if settings.hooks is None else f"bring and keep memories by hooks, in {settings.hooks.path}",
    }
    return frozenset(
        part
        for part, what in questions.items()
        if what is not None and getattr(arguments, part) is None and _asked(arguments, f"{host.title}: {what}? [y/N] ")
    )


def _offer_memories(arguments: argparse.Namespace, host: Host) -> tuple[dict[str, str], list[str]]:
    """Have the host's own program make memories of conversations, where it is installed and that is wanted.

    What is written is ``llm.provider`` and ``llm.command`` in the settings file of the store that the command line
    names. Where another model is set, it stays.

    Returns:
        What was done, for scripts and for a person.

    Raises:
        ConfigInvalid: If the settings cannot be read.
        StorageFailed: If they cannot be written.
    """
    from memory_core.core.llm.client import COMMAND
    from memory_core.core.llm.command_model import preset_of, program_of

    file, title = settings_file_of(arguments), host.title
    program, llm = program_of(host.name), file.load().llm
    if arguments.memories is False or (program is None and not arguments.memories):
        return {}, []
    if llm.provider != "none":
        is_it = llm.provider == COMMAND and preset_of(llm.command) == host.name
        said = f"made by your installed {title}" if is_it else f"llm.provider is {llm.provider}, which stays"
        return {"memories": "on" if is_it else "other"}, [f"  Memories: {said}."] if arguments.memories else []
    if program is None:
        line = f"  Memories: no program of {title} was found here; install it, then run this again."
        return {"memories": "missing"}, [line]
    plan = "it counts against your plan, whose terms hold"
    question = f"{title}: use your installed {title} to turn conversations into memories ({plan})? [y/N] "
    if not arguments.memories and not _asked(arguments, question):
        switch = f"runebook install {host.name} --memories"
        line = f"  Memories: have your installed {title} make them of conversations ({plan}): {switch}"
        return {"memories": "off"}, [line]
    if not arguments.dry_run:
        file.write({"llm.provider": COMMAND, "llm.command": program})
    done = "would make" if arguments.dry_run else "makes"
    where = f"them of conversations that end ({file.path}); runebook doctor tries it."
    state = "would be on" if arguments.dry_run else "on"
    return {"memories": state}, [f"  Memories: your installed {title} {done} {where}"]


def _end_memories(arguments: argparse.Namespace, host: Host) -> tuple[dict[str, str], list[str]]:
    """Take the host's program out of the settings again, if it makes memories; see ``_offer_memories``."""
    from memory_core.core.llm.client import COMMAND
    from memory_core.core.llm.command_model import preset_of

    file = settings_file_of(arguments)
    llm = file.load().llm
    if not file.path.is_file() or llm.provider != COMMAND or preset_of(llm.command) != host.name:
        return {}, []
    if not arguments.dry_run:
        file.write({"llm.provider": None, "llm.command": None})
    done = "would be" if arguments.dry_run else "is"
    return {"memories": "off"}, [f"  {file.path}: the program that makes memories {done} taken out."]


def _asked(arguments: argparse.Namespace, question: str) -> bool:
    """Whether the person at the terminal says yes; where none is, nobody is asked."""
    if arguments.dry_run or arguments.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    print(question, end="", flush=True)
    return sys.stdin.readline().strip().lower() in YES


def warnings_of(wanted: Wanted) -> list[str]:
    """What speaks against installing this program."""
    if wanted.launcher.lasting:
        return []
    return [
        f"Careful: {wanted.launcher.command} lies in a temporary folder. Install Runebook to stay "
        "(in its clone: pipx install ., or uv tool install .), then run this again."
    ]


def _instead(host: Host, machine: Machine, wanted: Wanted, changes: Sequence[HostFileChange]) -> list[Pasting]:
    """What a person pastes into the files that were left alone."""
    from server.hosts.host_setup import Pasting, plan

    refused = {change.path for change in changes if change.action == "refused"}
    files = plan(host, machine, wanted)
    return [Pasting(str(path), edit.pasted()) for path, edits in files if path in refused for edit in edits]


def _missing_parts(host: Host, machine: Machine, wanted: Wanted) -> list[str]:
    settings = host.settings(machine, wanted.project)
    offered = {"rules": "tell its model to use the memory"}
    if settings.hooks is not None:
        offered["hooks"] = "bring and keep memories by themselves"
    missing = [f"--{part} ({what})" for part, what in offered.items() if part not in wanted.parts]
    return [f"  Not added: {' and '.join(missing)}. The same command with them adds them."] if missing else []


def change_lines(title: str, changes: Sequence[HostFileChange], dry_run: bool, *, diffs: bool = True) -> list[str]:
    """What happened to a host's files, or would; ``diffs`` shows the differences that would be made."""
    lines = [title]
    for change in changes:
        said = _WOULD.get(change.action, _DONE[change.action]) if dry_run else _DONE[change.action]
        kept = f" (before: {change.kept.name})" if change.action == "changed" and change.kept is not None else ""
        puts = _puts(change) if dry_run and not diffs and change.action in ("created", "changed") else ""
        lines.append(f"  {change.path}: {said}{kept}{puts}" + (f": {change.reason}" if change.reason else ""))
        if diffs and dry_run and change.action != "refused":
            lines += [f"  {line}" for line in _difference(change)]
    return lines


def _puts(change: HostFileChange) -> str:
    """What is put into a file, and how many lines that are."""
    added = sum(line.startswith("+") for line in _difference(change)[2:])
    return f": {' and '.join(change.puts)}, {added} lines more"


def _difference(change: HostFileChange) -> list[str]:
    old, new = (text.splitlines() if text else [] for text in (change.before, change.after))
    return list(difflib.unified_diff(old, new, "before", "after", lineterm=""))


def pasting_lines(title: str, pasted: Sequence[Pasting]) -> list[str]:
    """What a person pastes, and where."""
    lines = [title] if title else []
    for each in pasted:
        lines += [f"  Paste into {each.where}:", "", *each.text.splitlines(), ""]
    return lines


def _list(arguments: argparse.Namespace, machine: Machine, wanted: Wanted) -> int:
    from server.hosts.host_setup import findings

    found = findings(machine, wanted)
    lines = [f"{'HOST':<15} {'HERE':<6} {'RUNEBOOK IN IT':<21} ITS LIST OF SERVERS"]
    for each in found:
        state = _STATES.get(each.state, each.state)
        state = ", ".join(each.parts) if each.parts and each.state == "installed" else state
        lines.append(f"{each.name:<15} {'found' if each.here else '-':<6} {state:<21} {each.path}")
    lines += ["", "Set one up: runebook install HOST. All that were found: runebook install --all."]
    show(arguments, {"hosts": found}, "\n".join(lines))
    return 0
