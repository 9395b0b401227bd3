"""``runebook init``: the first set-up in one command.

Three questions (hosts, language, model), a preview of all that would change, then settings, imports and hosts in this
order. What is done is what ``install`` and ``import`` do. Nothing is written before the preview is accepted, and what
is as it should be stays: a second run changes nothing. Where nobody can be asked, the command line answers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from memory_core.core.errors import InvalidInput, RunebookError
from memory_core.core.llm.client import COMMAND
from memory_core.core.llm.command_model import preset_of, program_of
from memory_core.core.memory.results import as_json
from memory_core.core.store.files import STATE_NAME
from server.commands.installing import YES, change_lines, expanded, pasting_lines, set_up, wanted_of, warnings_of
from server.commands.opening import open_memory_of, settings_file_of, settings_of, show
from server.commands.progress_bars import Progress
from server.hosts.host_table import GENERIC, Host, Machine, folders, hosts, hosts_here, hosts_named, this_machine
from server.terminal import plain

if TYPE_CHECKING:
    from memory_core.core.config import Config
    from memory_core.features.imports.import_run import ImportReport
    from memory_core.runebook import Runebook

_T = TypeVar("_T")
_NO = ("", "n", "no", "nein", "否", "不")
_PROVIDERS = ("anthropic", "openai")
_PROGRAMS = ("claude-code", "codex", "gemini-cli")
_OLLAMA = "ollama"
_NAMED = tuple(f"{name}:MODEL" for name in (*_PROVIDERS, _OLLAMA))
_EXPORTS = ("chatgpt", "claude")
_OPENING = """\
This gives the programs that you work in (hosts) a memory. For each host it adds Runebook's server to the host's
settings; where the host has a place for them, also lines that tell its model to use the memory, and hooks that bring
and keep memories. It can import what is there already. First three questions: Enter takes what stands in [ ]. Then it
shows every file that it would write, and writes nothing before you say yes. runebook uninstall takes it back.
"""
#: Of the folder of downloads, the newest.
_ARCHIVES = 50


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to be set up.

    Attributes:
        hosts: The hosts.
        settings: New values of settings, by name; None takes one out.
        sources: What is imported, and its format; None recognises it.
    """

    hosts: tuple[Host, ...]
    settings: Mapping[str, Any]
    sources: tuple[tuple[Path, str | None], ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was set up, or would be: for scripts, for a person, and whether it is other than before."""

    facts: Mapping[str, Any]
    lines: tuple[str, ...]
    changed: bool
    refused: bool

    @property
    def end(self) -> str:
        """What a person does next."""
        if self.refused:
            return "Mend the files that were left alone, then run this again."
        if not self.facts["hosts"]:
            return "No host was found or named: runebook init HOST sets one up. Your memories in a browser: runebook ui"
        return "Everything is set up. Your memories in a browser: runebook ui"


def init(arguments: argparse.Namespace) -> int:
    """Ask, show, set up, and open the page."""
    asks = not (arguments.yes or arguments.dry_run or arguments.json) and sys.stdin.isatty() and sys.stdout.isatty()
    machine, config = this_machine(), settings_of(arguments)
    if asks:
        print(_OPENING)
    choice = _chosen(arguments, machine, config, asks)
    preview = _set_up(arguments, machine, choice, dry_run=True)
    while asks and preview.changed:
        print(plain("\n".join(["", *preview.lines, ""])))
        answer = _line("Do it? y (yes), n (no), or the path of notes or an export to import as well: ")
        if answer.lower() in YES:
            break
        if answer.lower() in _NO:
            print("Nothing was written.")
            return 0
        wider = replace(choice, sources=(*choice.sources, (expanded(answer), None)))
        try:
            preview = _set_up(arguments, machine, wider, dry_run=True)
            choice = wider
        except RunebookError as error:
            print(plain(str(error)))
    if not preview.changed or not (asks or arguments.yes) or arguments.dry_run:
        status = "preview" if preview.changed else "unchanged"
        end = "Nothing is written yet. The same command with --yes does it." if preview.changed else preview.end
        show(arguments, {"status": status, **preview.facts}, "\n".join([*preview.lines, "", end]), is_paged=False)
        done = preview
    else:
        done = _set_up(arguments, machine, choice, dry_run=False)
        show(arguments, {"status": "done", **done.facts}, "\n".join([*done.lines, "", done.end]), is_paged=False)
    if asks and not arguments.no_open and not done.refused:
        _open_page(arguments)
    return 1 if done.refused else 0


def _open_page(arguments: argparse.Namespace) -> None:
    from memory_core.core.caller import authored
    from server.commands.serving import ui

    with authored(""):  # what is done on the page is not done by this command
        ui(argparse.Namespace(**{**vars(arguments), "port": None}))


def _chosen(arguments: argparse.Namespace, machine: Machine, config: Config, asks: bool) -> Choice:
    """What the command line says, and the person where it says nothing."""
    here = ", ".join(host.title for host in hosts_here(machine)) or "none"
    language, model = config.extraction.language, _model_of(config)
    programs = [f"{name} (installed here; counts against your plan)" for name in _PROGRAMS if program_of(name)]
    models = ", ".join(["none", *programs, *_NAMED])
    chosen = _answered(
        " ".join(arguments.hosts) or None,
        here,
        f"1. Which hosts use this memory? Some of {', '.join(host.title for host in hosts())}, or none",
        _hosts,
        asks,
    )
    written_in = _answered(
        arguments.language,
        language,
        "2. In which language does a model write memories? auto (that of your messages), English, 中文, or another",
        lambda answer: {} if answer == language else {"extraction.language": answer},
        asks,
    )
    llm = _answered(
        arguments.model,
        model,
        f"3. Which model makes memories of conversations? {models}",
        lambda answer: {} if answer == model else _llm(answer, config),
        asks,
    )
    return Choice(chosen, {**written_in, **llm}, tuple(_sources(arguments, machine)))


def _answered(given: str | None, default: str, question: str, read: Callable[[str], _T], asks: bool) -> _T:
    """What the command line gives, else what a person answers, else the default.

    Raises:
        InvalidInput: If the command line gives what cannot be read; a person is asked again.
    """
    if given is not None or not asks:
        return read(default if given is None else given)
    while True:
        print(f"{question}.")
        try:
            return read(_line(f"   [{default}] ") or default)
        except InvalidInput as error:
            print(plain(f"   {error}"))


def _line(question: str) -> str:
    print(question, end="", flush=True)
    return sys.stdin.readline().strip()


def _hosts(answer: str) -> tuple[Host, ...]:
    if answer.strip().lower() == GENERIC:
        hint = "Name its hosts, or none; runebook install generic prints what any other takes."
        raise InvalidInput(f"{GENERIC!r} is no host that init sets up.", hint=hint)
    return hosts_named(answer)


def _model_of(config: Config) -> str:
    """The model of the settings, as it is named here."""
    llm = config.llm
    name = llm.provider if llm.provider != COMMAND else preset_of(llm.command) or COMMAND
    return f"{name}:{llm.model}" if llm.model and name != "none" else name


def _llm(answer: str, config: Config) -> dict[str, Any]:
    """The settings that a model stands for.

    Raises:
        InvalidInput: If it is none of those that are known, or its program or name is missing.
    """
    name, _, model = (part.strip() for part in answer.partition(":"))
    name = "-".join(name.lower().split())
    if name in (*_PROVIDERS, _OLLAMA) and not model:
        raise InvalidInput(f"{name} needs a model.", hint=f"Write {name}:MODEL.")
    if name in ("none", *_PROVIDERS):
        provider, command = (None if name == "none" else name), None
    else:
        provider, command = COMMAND, program_of(name)
        if command is None:
            hint = f"Use one of: {', '.join(('none', *_PROGRAMS, *_NAMED))}."
            raise InvalidInput(f"no model {name!r} is known, or its program is not installed.", hint=hint)
    values = {"llm.provider": provider, "llm.command": command, "llm.model": model or None}
    there = {
        "llm.provider": config.llm.provider != "none",
        "llm.command": config.llm.command,
        "llm.model": config.llm.model,
    }
    return {name: value for name, value in values.items() if value is not None or there[name]}


def _sources(arguments: argparse.Namespace, machine: Machine) -> Iterator[tuple[Path, str | None]]:
    """What is imported: what the command line names, and what hosts and chats left on this machine."""
    yield from ((expanded(named), None) for named in arguments.sources)
    if not arguments.find:
        return
    transcripts = Path(folders(machine)["claude"]) / "projects"
    if transcripts.is_dir():
        yield transcripts, "claude-code"
    found = [host.settings(machine).rules for host in hosts_here(machine)]
    rules = [Path(path) for file in found if file is not None and not file.head for path in file.paths]
    yield from ((path, "markdown") for path in dict.fromkeys(rules) if path.is_file())
    archives = (path for path in (Path(machine.home) / "Downloads").glob("*.zip") if path.is_file())
    for path in sorted(archives, key=lambda path: path.stat().st_mtime, reverse=True)[:_ARCHIVES]:
        if (name := _export_format(path)) is not None:
            yield path, name


def _export_format(path: Path) -> str | None:
    """The format of a chat's export; None for another archive."""
    from memory_core.features.imports.import_run import detect
    from memory_core.features.imports.sources import open_source

    try:
        with open_source(path) as source:
            name = detect(source).name
    except RunebookError:
        return None
    return name if name in _EXPORTS else None


def _set_up(arguments: argparse.Namespace, machine: Machine, choice: Choice, *, dry_run: bool) -> Outcome:
    """Set everything up, or only say what would change."""
    wanted = wanted_of(arguments)
    lines = warnings_of(wanted)
    file = settings_file_of(arguments)
    if choice.settings:
        lines.append(f"Settings in {file.path}")
        lines += [f"  {name}: {'default' if value is None else value}" for name, value in choice.settings.items()]
        if not dry_run:
            file.write(choice.settings)
    reports = _imported(arguments, choice, dry_run)
    lines += _import_lines(reports)
    changed, refused = bool(choice.settings) or any(report.changed for _, report in reports), False
    told = []
    for host in choice.hosts:
        changes, pasted = set_up(host, machine, wanted, dry_run=dry_run)
        told.append({"host": host.name, "changes": changes, "paste": pasted, "next": host.after})
        lines += change_lines(host.title, changes, dry_run, diffs=False)
        if dry_run:
            shown = f"runebook install {host.name} --rules --print"
            lines += [f"  For you to paste, into {each.where}. To see it: {shown}" for each in pasted]
        else:
            lines += [*pasting_lines("", pasted), f"  {host.after}"]
        changed = changed or any(change.action not in ("unchanged", "refused") for change in changes)
        refused = refused or any(change.action == "refused" for change in changes)
    facts = {
        "settings": {"path": str(file.path), "changes": dict(choice.settings)},
        "imports": [{"path": str(source), **as_json(report)} for source, report in reports],
        "hosts": told,
    }
    return Outcome(facts, tuple(lines), changed, refused)


def _imported(arguments: argparse.Namespace, choice: Choice, dry_run: bool) -> list[tuple[Path, ImportReport]]:
    """What came, or would come, of each source that holds anything.

    Raises:
        InvalidInput: If a source is an export of Runebook, which has a command of its own, or of no known format.
        NotFound: If there is no such file or folder.
    """
    from memory_core.features.imports.import_run import ImportRequest, import_memories, is_export

    if not choice.sources:
        return []
    for path, _ in choice.sources:
        if is_export(path):
            raise InvalidInput(f"{path} is an export of Runebook.", hint=f"Use: runebook import {path}")
    with _store(arguments, dry_run) as memory, Progress():
        assignment = memory.projects.assignment(None, None, None)
        reports = [
            (path, import_memories(memory, ImportRequest(path, named, dry_run, assignment, move_originals=False)))
            for path, named in dict.fromkeys(choice.sources)
        ]
    return [(path, report) for path, report in reports if report.counts or report.left_out]


@contextmanager
def _store(arguments: argparse.Namespace, dry_run: bool) -> Iterator[Runebook]:
    """The store; for a preview of one that is not there yet, an empty one in its place, which leaves again."""
    from memory_core.runebook import open_memory

    config = settings_of(arguments)
    if dry_run and not config.store.url and not (config.root / STATE_NAME).is_dir():
        silent = config.embedding.model_copy(update={"provider": "none"})
        with (
            TemporaryDirectory(prefix="runebook-preview-") as folder,
            open_memory(config.model_copy(update={"home": Path(folder), "embedding": silent})) as memory,
        ):
            yield memory
        return
    with open_memory_of(arguments, warm=False, embeds=False) as memory:
        memory.expect_writable()
        yield memory


def _import_lines(reports: list[tuple[Path, ImportReport]]) -> Iterator[str]:
    for path, report in reports:
        yield f"Import of {path}"
        yield from (f"  {line}" for line in report.lines())
    if any("conversations" in report.counts for _, report in reports):
        yield "  Conversations are found at once. A model makes memories of them with: runebook extract"
