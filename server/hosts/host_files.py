"""What Runebook puts into the files of hosts: its server, its hooks, its rules; and the files that this is put into.

Each kind of edit says what a text becomes with it, finds itself in a text whoever changed that since, and says what
the text becomes without it. Nothing else in the text is touched. A file is written whole or not at all, keeps its
mode and stays a link if it is one; as it was before Runebook it is kept beside it.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Protocol

from memory_core.core.errors import InvalidInput, RunebookError, StorageFailed
from memory_core.core.store import atomic
from memory_core.features.imports.markdown import RULES, RULES_BEGIN, RULES_END
from server.foreign_json import value_at
from server.hosts import jsonc, toml
from server.hosts.jsonc import BY_HAND, replaced

BACKUP = ".runebook-backup"
_EMPTY = ("", "{}")
#: Members of a server's entry that decide what its command runs.
_SURROUNDINGS = frozenset({"env", "envFile", "env_file", "cwd"})
_BLANKS = "\ufeff \t\r\n"
_OURS = r"(?:^|[\\/\s\"'])(?:runebook(?:\.exe)?|server\.cli)[\"']?"
#: The program by its own name, or through uvx, pipx or Python; and a command line of one of its hooks.
_PROGRAM = re.compile(rf"{_OURS}(?=\s|$)", re.IGNORECASE)
_HOOK = re.compile(rf"{_OURS}\s+hook\s+[a-z-]+", re.IGNORECASE)
#: With a blank line above, which was put there with it, and the end of its last line.
_BLOCK = re.compile(rf"(?:(?<=\n)\r?\n)?{RULES}(?:\r?\n)?", re.DOTALL)


class Edit(Protocol):
    """Something put into a text that can be taken out again."""

    @property
    def what(self) -> str:
        """``server``, ``hooks`` or ``rules``."""

    @property
    def words(self) -> str:
        """What it is, for a person."""

    def applied(self, text: str) -> str:
        """The text with it; the same text where it is there already."""

    def found(self, text: str) -> Edit | None:
        """It as it stands in a text, whatever its options were; None where it is not there."""

    def removed(self, text: str, before: str | None) -> str:
        """The text without it; what it replaced in ``before``, the text as it once was, comes back."""

    def pasted(self) -> str:
        """What a person would put in by hand."""


@dataclass(frozen=True, slots=True)
class Server:
    """The server as a member of an object such as ``mcpServers``, or as a table such as ``[mcp_servers.NAME]``.

    Attributes:
        path: The object's path and the server's name.
        entry: ``command``, ``args`` and what else the host wants.
        is_toml: Whether the text is TOML, not JSON.
    """

    path: tuple[str, ...]
    entry: Mapping[str, Any]
    is_toml: bool = False
    what: str = "server"

    @property
    def words(self) -> str:
        """What it is, for a person."""
        return f"the server {self.path[-1]}"

    def applied(self, text: str) -> str:
        """The text with it; members of the entry that somebody added stay."""
        present = value_at(self._form.read(text), self.path)
        if not isinstance(present, dict):
            return str(self._form.put(text, self.path, dict(self.entry)))
        for key, value in self.entry.items():
            if present.get(key) != value:
                text = self._form.put(text, (*self.path, key), value)
        return text

    def found(self, text: str) -> Server | None:
        """It as it stands in the text."""
        present = value_at(self._form.read(text), self.path)
        return replace(self, entry=present) if isinstance(present, dict) and starts_us(present) else None

    def removed(self, text: str, before: str | None) -> str:
        """The text without it; a server of another program that had its name comes back."""
        was = None if before is None else self._form.read(before)
        former = value_at(was, self.path)
        if isinstance(former, dict) and not starts_us(former):
            return str(self._form.put(text, self.path, former))
        return _pruned(self._form, self._form.remove(text, self.path), self.path[:-1], was)

    def pasted(self) -> str:
        """What a person would put in by hand."""
        if self.is_toml:
            return toml.rendered(self.path, dict(self.entry))
        return json.dumps(replaced(None, self.path, dict(self.entry)), ensure_ascii=False, indent=2)

    @property
    def _form(self) -> ModuleType:
        return toml if self.is_toml else jsonc


@dataclass(frozen=True, slots=True)
class Hooks:
    """Hooks as lists below ``hooks``, one list an event.

    Attributes:
        items: Event, as the host calls it, and item of its list.
        beside: Members that the host wants at the top of the file, where they are missing.
    """

    items: tuple[tuple[str, Mapping[str, Any]], ...]
    beside: Mapping[str, Any] = field(default_factory=dict)
    what: str = "hooks"

    @property
    def words(self) -> str:
        """What it is, for a person."""
        return f"{len(self.items)} hooks"

    def applied(self, text: str) -> str:
        """The text with it."""
        document = jsonc.read(text)
        for key, value in self.beside.items():
            if not isinstance(document, dict) or key not in document:  # put says what is wrong with another kind
                text = jsonc.put(text, (key,), value)
        for event, item in self.items:
            present = [other for other in _listed(text, event) if _is_hook(other)]
            if present != [item]:
                text = jsonc.append(_without_hooks(text, event) if present else text, ("hooks", event), item)
        return text

    def found(self, text: str) -> Hooks | None:
        """It as it stands in the text."""
        items = tuple((event, item) for event in _events(text) for item in _listed(text, event) if _is_hook(item))
        return replace(self, items=items) if items else None

    def removed(self, text: str, before: str | None) -> str:
        """The text without it."""
        was = None if before is None else jsonc.read(before)
        for event in _events(text):
            text = _without_hooks(text, event)
            if not _listed(text, event) and value_at(was, ("hooks", event)) is None:
                text = jsonc.remove(text, ("hooks", event))
        text = _pruned(jsonc, text, ("hooks",), was)
        for key, value in self.beside.items():
            document = jsonc.read(text)
            if document.get(key) == value and "hooks" not in document and value_at(was, (key,)) is None:
                text = jsonc.remove(text, (key,))
        return text

    def pasted(self) -> str:
        """What a person would put in by hand."""
        lists: dict[str, list[Any]] = {}
        for event, item in self.items:
            lists.setdefault(event, []).append(item)
        return json.dumps({**self.beside, "hooks": lists}, ensure_ascii=False, indent=2)


@dataclass(frozen=True, slots=True)
class Rules:
    """Lines for a host's model between two marks in a Markdown file.

    Attributes:
        lines: The lines, without the marks.
        head: What a file of our own begins with (front matter); empty where the file is the user's.
    """

    lines: str
    head: str = ""
    what: str = "rules"

    @property
    def words(self) -> str:
        """What it is, for a person."""
        return "rules for the model"

    def applied(self, text: str) -> str:
        """The text with it."""
        newline = jsonc.newline_of(text)
        block = self.pasted().replace("\n", newline)
        present = _BLOCK.search(text)
        if present is not None:
            start = text.index(RULES_BEGIN, present.start())
            end = text.index(RULES_END, start) + len(RULES_END)
            return f"{text[:start]}{block}{text[end:]}"
        if not text.strip():
            return f"{text}{self.head.replace(chr(10), newline)}{block}{newline}"
        blank = newline if text.endswith("\n") else newline * 2
        return f"{text}{blank}{block}{newline}"

    def found(self, text: str) -> Rules | None:
        """It as it stands in the text."""
        present = _BLOCK.search(text)
        if present is None:
            return None
        lines = (
            present[0].replace("\r\n", "\n").strip("\n").removeprefix(RULES_BEGIN).removesuffix(RULES_END).strip("\n")
        )
        return replace(self, lines=lines)

    def removed(self, text: str, before: str | None) -> str:  # noqa: ARG002 - nothing is ever replaced
        """The text without it."""
        rest = _BLOCK.sub("", text)
        return "" if self.head and rest.strip() == self.head.strip() else rest

    def pasted(self) -> str:
        """What a person would put in by hand."""
        return f"{RULES_BEGIN}\n{self.lines}\n{RULES_END}"


@dataclass(frozen=True, slots=True)
class HostFileChange:
    """What happens to one file.

    Attributes:
        path: The file.
        action: ``created``, ``changed``, ``unchanged``, ``restored``, ``deleted``, ``absent`` or ``refused``.
        what: Which edits it is about: server, hooks, rules.
        puts: What they put there, each in words.
        before: Its text; None where there is none.
        after: Its text afterwards; None where there is none.
        reason: Why it was refused, and the next step.
    """

    JSON: ClassVar = "path action what kept:backup? reason?"

    path: Path
    action: str
    what: tuple[str, ...]
    before: str | None = None
    after: str | None = None
    puts: tuple[str, ...] = ()
    reason: str = ""

    @property
    def kept(self) -> Path | None:
        """The file as it was before Runebook, if it is kept."""
        backup = backup_of(self.path)
        return backup if backup.exists() else None


def backup_of(path: Path) -> Path:
    """Where a file as it was before Runebook is kept."""
    return path.with_name(f"{path.name}{BACKUP}")


def state_of(path: Path, edits: Sequence[Edit]) -> str:
    """``missing`` (not there), ``installed``, ``outdated`` (there in another form), or ``unreadable``."""
    try:
        text = _text(path)
        if text is None or not _found(text, edits):
            return "missing"
        return "installed" if _with_all(text, edits) == text else "outdated"
    except RunebookError:
        return "unreadable"


def edits_in(path: Path, edits: Sequence[Edit]) -> list[Edit]:
    """Those edits that are in a file, in whatever form they stand there; none where there is no file.

    Raises:
        InvalidInput: If it is not what it should be.
        StorageFailed: If it cannot be read.
    """
    text = _text(path)
    return [] if text is None else _found(text, edits)


def put_in(path: Path, edits: Sequence[Edit], *, dry_run: bool, within: Path | None = None) -> HostFileChange:
    """Put edits into a file, which is made if it is not there.

    Args:
        path: The file; where it is a link, the file that it leads to.
        edits: What Runebook puts there.
        dry_run: Only say what would happen.
        within: A folder that no link may lead out of; None trusts links.

    Returns:
        What happened, or would; ``refused`` where the file cannot be edited safely.
    """
    what = tuple(edit.what for edit in edits)
    try:
        _stays(path, within)
        before = _text(path)
        if within is not None:
            _expect_own_surroundings(path, before or "", edits)
        after = _with_all(before or "", edits)
        action = "created" if before is None else "unchanged" if after == before else "changed"
        if action != "unchanged" and not dry_run:
            _keep(path, before, _found(before or "", edits))
            _write(path, before, after)
        return HostFileChange(path, action, what, before, after, tuple(edit.words for edit in edits))
    except RunebookError as error:
        return HostFileChange(path, "refused", what, reason=str(error))


def take_out(
    path: Path,
    edits: Sequence[Edit],
    *,
    dry_run: bool,
    purge: bool,
    folders: Collection[Path] = (),
    within: Path | None = None,
) -> HostFileChange:
    """Take edits out of a file, in whatever form they are there.

    Args:
        path: The file.
        edits: What Runebook puts there; their options may differ from those of the installation.
        dry_run: Only say what would happen.
        purge: Also remove the backup that a file keeps which somebody else changed since.
        folders: Folders that stay when the file leaves and they are empty; those within them leave.
        within: See ``put_in``.

    Returns:
        What happened, or would; ``refused`` where the file cannot be edited safely.
    """
    try:
        _stays(path, within)
        before = _text(path)
        found = _found(before or "", edits)
        if before is None or not found:
            if purge and not dry_run:
                atomic.remove(backup_of(path))
            return HostFileChange(path, "absent", ())
        after, action = _taken_out(before, found, _text(backup_of(path)))
        if not dry_run:
            _write(path, before, after)
            if after is None:
                _remove_empty(path.parent, folders)
            if purge or action != "changed":
                atomic.remove(backup_of(path))
        return HostFileChange(path, action, tuple(edit.what for edit in found), before, after)
    except RunebookError as error:
        return HostFileChange(path, "refused", tuple(edit.what for edit in edits), reason=str(error))


def starts_us(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of a host starts this server."""
    command, arguments = entry.get("command"), entry.get("args", [])
    if not isinstance(command, str) or not isinstance(arguments, list) or "serve" not in arguments:
        return False
    return any(_PROGRAM.search(part) for part in (command, *arguments) if isinstance(part, str))


def own_options(entry: Mapping[str, Any]) -> list[str]:
    """The options with which an entry starts this server, those before ``serve`` first; none of another program's."""
    words = [str(entry["command"]), *map(str, entry.get("args", []))]
    serve = words.index("serve")
    program = max((at for at in range(serve) if _PROGRAM.search(words[at])), default=serve)
    return words[program + 1 : serve] + words[serve + 1 :]


def hooked(command: str) -> bool:
    """Whether a command line is one of our hooks."""
    return _HOOK.search(command) is not None


def _taken_out(text: str, found: Sequence[Edit], backup: str | None) -> tuple[str | None, str]:
    """The text without Runebook (None: no file) and what that is called."""
    if backup is not None and not _found(backup, found) and _with_all(backup, found) == text:
        return backup, "restored"
    for edit in reversed(found):
        text = edit.removed(text, backup)
    if backup is None and text.strip(_BLANKS) in _EMPTY:
        return None, "deleted"
    return text, "changed"


def _found(text: str, edits: Sequence[Edit]) -> list[Edit]:
    """Those edits that are in the text, as they stand there."""
    return [found for edit in edits if (found := edit.found(text)) is not None]


def _with_all(text: str, edits: Sequence[Edit]) -> str:
    for edit in edits:
        text = edit.applied(text)
    return text


def _keep(path: Path, before: str | None, found: Sequence[Edit]) -> None:
    """Keep the file as it is without Runebook, once: what is kept from an earlier time stays while Runebook is in."""
    backup = backup_of(path)
    if before is None:
        atomic.remove(backup)
    elif not found or not backup.exists():
        for edit in reversed(found):
            before = edit.removed(before, None)
        if not found or before.strip(_BLANKS) not in _EMPTY:
            atomic.replace(backup, before)


def _stays(path: Path, within: Path | None) -> None:
    """A project is somebody else's folder: its links may lead to the files of whoever installs.

    Raises:
        InvalidInput: If a link leads out of the folder, of the file or of where it is kept as it was before.
    """
    for each in (path, backup_of(path)):
        if within is not None and not each.resolve().is_relative_to(within.resolve()):
            raise InvalidInput(
                f"{each.name} is a link out of the project, to {each.resolve()}.",
                hint="Look at who put it there; install without --project, or replace the link by a file.",
            )


def _expect_own_surroundings(path: Path, text: str, edits: Sequence[Edit]) -> None:
    """A project's entry may already say in which surroundings our command is to run: then it runs what they name.

    Raises:
        InvalidInput: If it does.
    """
    for edit in (each for each in edits if isinstance(each, Server)):
        standing = edit.found(text)
        if standing is not None and (foreign := _SURROUNDINGS & (standing.entry.keys() - edit.entry.keys())):
            raise InvalidInput(
                f"{standing.words} in {path.name} has {', '.join(sorted(foreign))}, which install did not write.",
                hint="They decide what the command runs: take them out, or install without --project.",
            )


def _text(path: Path) -> str | None:
    try:
        if path.exists() and not path.is_file():  # a pipe, say, would be waited for
            raise InvalidInput("it is no file.", hint=BY_HAND)
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise InvalidInput("it is not UTF-8.", hint=BY_HAND) from error
    except OSError as error:
        raise _refused("read", path, error) from error


def _write(path: Path, before: str | None, after: str | None) -> None:
    """Write a file, or remove it, unless somebody changed it since it was read."""

    def is_as_read(there: Path) -> bool:
        return before is not None and there.read_bytes() == before.encode("utf-8")

    try:
        target = path.resolve()
        if after is None:
            written = atomic.take_away(target, is_as_read)
        else:
            mode = stat.S_IMODE(target.stat().st_mode) if before is not None else None
            target.parent.mkdir(parents=True, exist_ok=True)
            written = atomic.exchange(target, after, None if before is None else is_as_read) is not None
            if written and mode is not None and os.name == "posix":
                target.chmod(mode)
    except OSError as error:
        raise _refused("change", path, error) from error
    if not written:
        raise StorageFailed(f"another program changed {path.name} at this moment.", hint="Run the same command again.")


def _refused(verb: str, path: Path, error: OSError) -> StorageFailed:
    return StorageFailed(
        f"the system refused to {verb} {path}: {error.strerror or error}.", hint="Check its permissions and free space."
    )


def _remove_empty(folder: Path, staying: Collection[Path]) -> None:
    """Remove the folder and those above it as far as they are empty and below one that stays."""
    while folder not in staying and any(other in folder.parents for other in staying):
        try:
            folder.rmdir()
        except OSError:  # somebody else's files are in it
            return
        folder = folder.parent


def _events(text: str) -> list[str]:
    """The events that a file has lists for."""
    below = value_at(jsonc.read(text), ("hooks",))
    return list(below) if isinstance(below, dict) else []


def _listed(text: str, event: str) -> list[Any]:
    listed = value_at(jsonc.read(text), ("hooks", event))
    return listed if isinstance(listed, list) else []


def _is_hook(item: Any) -> bool:
    """Whether an item of a list of hooks is ours, or holds ours among others."""
    if not isinstance(item, dict):
        return False
    if isinstance(item.get("hooks"), list):
        return any(_is_hook(each) for each in item["hooks"])
    command = item.get("command")
    return isinstance(command, str) and hooked(command)


def _without_hooks(text: str, event: str) -> str:
    """The text without our hooks of an event; a group that also holds others keeps those."""
    listed = _listed(text, event)
    for index in reversed(range(len(listed))):
        if not _is_hook(listed[index]):
            continue
        group = listed[index].get("hooks")
        others = [each for each in group if not _is_hook(each)] if isinstance(group, list) else []
        if others:
            text = jsonc.put(text, ("hooks", event, index, "hooks"), others)
        else:
            text = jsonc.remove(text, ("hooks", event, index))
    return text


def _pruned(form: ModuleType, text: str, path: tuple[str, ...], was: Any) -> str:
    """The text without the objects on a path that are empty now and were not there before."""
    for depth in range(len(path), 0, -1):
        if value_at(form.read(text), path[:depth]) != {} or value_at(was, path[:depth]) is not None:
            break
        text = form.remove(text, path[:depth])
    return text
