"""What Runebook puts into a host's files: its server, its hooks, its rules.

Each kind of edit can say what a text becomes with it, find itself in a text whoever changed that text since, and say
what the text becomes without it. Nothing else in the text is touched. Pure; opens no file.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from memory_core.core.errors import InvalidInput, RunebookError, StorageFailed
from memory_core.core.store import atomic
from server.hosts import jsonc, toml_text
from server.hosts.jsonc import BY_HAND

BACKUP = ".runebook-backup"
_EMPTY = ("", "{}")
_BLANKS = "\ufeff \t\r\n"


@dataclass(frozen=True, slots=True)
class FileChange:
    """What happens to one file.

    Attributes:
        path: The file.
        action: ``created``, ``changed``, ``unchanged``, ``restored``, ``deleted``, ``absent`` or ``refused``.
        what: Which edits it is about: server, hooks, rules.
        before: Its text; None where there is none.
        after: Its text afterwards; None where there is none.
        reason: Why it was refused, and the next step.
    """

    path: Path
    action: str
    what: tuple[str, ...]
    before: str | None = None
    after: str | None = None
    reason: str = ""

    @property
    def backup(self) -> Path:
        """Where the file as it was before Runebook is kept."""
        return backup_of(self.path)


def backup_of(path: Path) -> Path:
    """Where a file as it was before Runebook is kept."""
    return path.with_name(f"{path.name}{BACKUP}")


def state_of(path: Path, edits: Sequence[Edit]) -> str:
    """``missing`` (not there), ``installed``, ``outdated`` (there in another form), or ``unreadable``."""
    try:
        text = _text(path)
        if text is None or not any(edit.found(text) for edit in edits):
            return "missing"
        return "installed" if _with_all(text, edits) == text else "outdated"
    except RunebookError:
        return "unreadable"


def put_in(path: Path, edits: Sequence[Edit], *, dry_run: bool) -> FileChange:
    """Put edits into a file, which is made if it is not there.

    Returns:
        What happened, or would; ``refused`` where the file cannot be edited safely.
    """
    what = tuple(edit.what for edit in edits)
    try:
        before = _text(path)
        after = _with_all(before or "", edits)
        action = "created" if before is None else "unchanged" if after == before else "changed"
        if action != "unchanged" and not dry_run:
            _keep(path, before, [edit for each in edits if before and (edit := each.found(before)) is not None])
            _write(path, before, after)
        return FileChange(path, action, what, before, after)
    except RunebookError as error:
        return FileChange(path, "refused", what, reason=str(error))


def take_out(
    path: Path, edits: Sequence[Edit], *, dry_run: bool, purge: bool, folders: Collection[Path] = ()
) -> FileChange:
    """Take edits out of a file, in whatever form they are there.

    Args:
        path: The file.
        edits: What Runebook puts there; their options may differ from those of the installation.
        dry_run: Only say what would happen.
        purge: Also remove the backup that a file keeps which somebody else changed since.
        folders: Folders that stay when the file leaves and they are empty; those within them leave.

    Returns:
        What happened, or would; ``refused`` where the file cannot be edited safely.
    """
    try:
        before = _text(path)
        found = [] if before is None else [edit for each in edits if (edit := each.found(before)) is not None]
        if before is None or not found:
            if purge and not dry_run:
                atomic.remove(backup_of(path))
            return FileChange(path, "absent", ())
        after, action = _taken_out(before, found, _text(backup_of(path)))
        if not dry_run:
            _write(path, before, after)
            if after is None:
                _leave_empty(path.parent, folders)
            if purge or action != "changed":
                atomic.remove(backup_of(path))
        return FileChange(path, action, tuple(edit.what for edit in found), before, after)
    except RunebookError as error:
        return FileChange(path, "refused", tuple(edit.what for edit in edits), reason=str(error))


def _taken_out(text: str, found: Sequence[Edit], backup: str | None) -> tuple[str | None, str]:
    """The text without Runebook (None: no file) and what that is called."""
    if backup is not None and not any(edit.found(backup) for edit in found) and _with_all(backup, found) == text:
        return backup, "restored"
    for edit in reversed(found):
        text = edit.removed(text, backup)
    if backup is None and text.strip(_BLANKS) in _EMPTY:
        return None, "deleted"
    return text, "changed"


def _with_all(text: str, edits: Sequence[Edit]) -> str:
    for edit in edits:
        text = edit.applied(text)
    return text


def _text(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise InvalidInput("it is not UTF-8.", hint=BY_HAND) from error
    except OSError as error:
        raise _refused("read", path, error) from error


def _write(path: Path, before: str | None, after: str | None) -> None:
    try:
        target = path.resolve()
        if after is None:
            if not atomic.take_away(target, lambda there: _is(there, before)):
                raise _busy(path)
            return
        mode = stat.S_IMODE(target.stat().st_mode) if before is not None else None
        target.parent.mkdir(parents=True, exist_ok=True)
        expected = None if before is None else lambda there: _is(there, before)
        if atomic.exchange(target, after, expected) is None:
            raise _busy(path)
        if mode is not None and os.name == "posix":
            target.chmod(mode)
    except OSError as error:
        raise _refused("change", path, error) from error


def _is(path: Path, text: str | None) -> bool:
    return text is not None and path.read_bytes() == text.encode("utf-8")


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


def _leave_empty(folder: Path, staying: Collection[Path]) -> None:
    """Remove the folder and those above it as far as they are empty and below one that stays."""
    while folder not in staying and any(other in folder.parents for other in staying):
        try:
            folder.rmdir()
        except OSError:  # somebody else's files are in it
            return
        folder = folder.parent


def _busy(path: Path) -> StorageFailed:
    return StorageFailed(f"another program changed {path.name} at this moment.", hint="Run the same command again.")


def _refused(verb: str, path: Path, error: OSError) -> StorageFailed:
    return StorageFailed(
        f"the system refused to {verb} {path}: {error.strerror or error}.", hint="Check its permissions and free space."
    )


BEGIN = "<!-- runebook:begin -->"
END = "<!-- runebook:end -->"
#: A command line of ours: the program by its own name, or through uvx, pipx or Python.
_PROGRAM = re.compile(r"(?:^|[\\/\s\"'])(?:runebook(?:\.exe)?|server\.cli)[\"']?(?=\s|$)", re.IGNORECASE)
_HOOK = re.compile(r"(?:^|[\\/\s\"'])(?:runebook(?:\.exe)?|server\.cli)[\"']?\s+hook\s+[a-z-]+", re.IGNORECASE)
_BLOCK = re.compile(rf"(?:\r?\n)?{re.escape(BEGIN)}.*?{re.escape(END)}(?:\r?\n)?", re.DOTALL)


class Edit(Protocol):
    """Something put into a text that can be taken out again."""

    @property
    def what(self) -> str:
        """``server``, ``hooks`` or ``rules``."""

    def applied(self, text: str) -> str:
        """The text with it; the same text where it is there already."""

    def found(self, text: str) -> Edit | None:
        """It as it stands in a text, whatever its options were; None where it is not there."""

    def removed(self, text: str, before: str | None) -> str:
        """The text without it; what it replaced in ``before``, the text as it once was, comes back."""

    def pasted(self) -> str:
        """What a person would put in by hand."""


@dataclass(frozen=True, slots=True)
class JsonServer:
    """The server as a member of a JSON object such as ``mcpServers``.

    Attributes:
        path: The object's path and the server's name.
        entry: ``command``, ``args`` and what else the host wants.
    """

    path: jsonc.Path
    entry: Mapping[str, Any]
    what: str = "server"

    def applied(self, text: str) -> str:
        """The text with it."""
        present = _at(jsonc.read(text), self.path)
        if not isinstance(present, dict):
            return jsonc.set_member(text, self.path, dict(self.entry))
        for key, value in self.entry.items():
            if present.get(key) != value:
                text = jsonc.set_member(text, (*self.path, key), value)
        return text

    def found(self, text: str) -> JsonServer | None:
        """It as it stands in the text."""
        present = _at(jsonc.read(text), self.path)
        return replace(self, entry=present) if isinstance(present, dict) and starts_us(present) else None

    def removed(self, text: str, before: str | None) -> str:
        """The text without it."""
        was = None if before is None else jsonc.read(before)
        former = _at(was, self.path)
        if isinstance(former, dict) and not starts_us(former):
            return jsonc.set_member(text, self.path, former)
        text = jsonc.remove_member(text, self.path)
        return _pruned(text, self.path[:-1], was)

    def pasted(self) -> str:
        """What a person would put in by hand."""
        value: Any = dict(self.entry)
        for key in reversed(self.path):
            value = {key: value}
        return json.dumps(value, ensure_ascii=False, indent=2)


@dataclass(frozen=True, slots=True)
class TomlServer:
    """The server as a table of a TOML file, ``[mcp_servers.NAME]``."""

    path: jsonc.Path
    entry: Mapping[str, Any]
    what: str = "server"

    def applied(self, text: str) -> str:
        """The text with it."""
        return toml_text.set_table(text, self.path, self.entry)

    def found(self, text: str) -> TomlServer | None:
        """It as it stands in the text."""
        present = toml_text.table_at(text, self.path)
        return None if present is None or not starts_us(present) else replace(self, entry=present)

    def removed(self, text: str, before: str | None) -> str:
        """The text without it."""
        former = None if before is None else toml_text.table_at(before, self.path)
        without = toml_text.remove_table(text, self.path)
        return without if former is None or starts_us(former) else toml_text.set_table(without, self.path, former)

    def pasted(self) -> str:
        """What a person would put in by hand."""
        return toml_text.shown_table(self.path, self.entry)


@dataclass(frozen=True, slots=True)
class Hook:
    """One event of a host and the command that answers it.

    Attributes:
        event: The host's name of the event.
        command: A command line for a shell.
        matcher: For which tools; None for events that are about none.
        timeout: How long the host waits, in the host's unit.
    """

    event: str
    command: str
    matcher: str | None
    timeout: int


@dataclass(frozen=True, slots=True)
class JsonHooks:
    """Hooks as lists below ``hooks``, one list an event.

    Attributes:
        hooks: The hooks.
        grouped: Whether an item is a group (matcher and its commands, as in Claude Code) or a command (Cursor).
        beside: Members that the host wants at the top of the file, where they are missing.
    """

    hooks: tuple[Hook, ...]
    grouped: bool = True
    beside: tuple[tuple[str, Any], ...] = ()
    items: tuple[tuple[str, Any], ...] = ()
    what: str = "hooks"

    def applied(self, text: str) -> str:
        """The text with it."""
        document = jsonc.read(text)
        for key, value in self.beside:
            if key not in document:
                text = jsonc.set_member(text, (key,), value)
        for event, item in self._items():
            present = [other for other in _listed(jsonc.read(text), event) if _is_hook(other)]
            if present == [item]:
                continue
            if present:
                text = _without_hooks(text, event)
            text = jsonc.append_item(text, ("hooks", event), item)
        return text

    def found(self, text: str) -> JsonHooks | None:
        """It as it stands in the text."""
        document = jsonc.read(text)
        below = _at(document, ("hooks",))
        events = below if isinstance(below, dict) else {}
        items = tuple((event, item) for event in events for item in _listed(document, event) if _is_hook(item))
        return replace(self, items=items) if items else None

    def removed(self, text: str, before: str | None) -> str:
        """The text without it."""
        was = None if before is None else jsonc.read(before)
        below = _at(jsonc.read(text), ("hooks",))
        for event in below if isinstance(below, dict) else ():
            text = _without_hooks(text, event)
            if not _listed(jsonc.read(text), event) and _at(was, ("hooks", event)) is None:
                text = jsonc.remove_member(text, ("hooks", event))
        text = _pruned(text, ("hooks",), was)
        for key, value in self.beside:
            document = jsonc.read(text)
            if document.get(key) == value and "hooks" not in document and (was is None or key not in was):
                text = jsonc.remove_member(text, (key,))
        return text

    def pasted(self) -> str:
        """What a person would put in by hand."""
        lists: dict[str, list[Any]] = {}
        for event, item in self._items():
            lists.setdefault(event, []).append(item)
        return json.dumps({**dict(self.beside), "hooks": lists}, ensure_ascii=False, indent=2)

    def _items(self) -> Sequence[tuple[str, Any]]:
        return self.items or [(hook.event, self._item(hook)) for hook in self.hooks]

    def _item(self, hook: Hook) -> dict[str, Any]:
        command = {"command": hook.command, "timeout": hook.timeout}
        matcher = {} if hook.matcher is None else {"matcher": hook.matcher}
        return {**matcher, "hooks": [{"type": "command", **command}]} if self.grouped else {**command, **matcher}


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

    def applied(self, text: str) -> str:
        """The text with it."""
        newline = "\r\n" if "\r\n" in text else "\n"
        block = self.pasted().replace("\n", newline)
        present = _BLOCK.search(text)
        if present is not None:
            start = present.start() + len(present[0]) - len(present[0].lstrip("\r\n"))
            end = text.index(END, start) + len(END)
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
        lines = present[0].replace("\r\n", "\n").strip("\n").removeprefix(BEGIN).removesuffix(END).strip("\n")
        return replace(self, lines=lines)

    def removed(self, text: str, before: str | None) -> str:  # noqa: ARG002 - nothing is ever replaced
        """The text without it."""
        rest = _BLOCK.sub("", text)
        return "" if self.head and rest.strip() == self.head.strip() else rest

    def pasted(self) -> str:
        """What a person would put in by hand."""
        return f"{BEGIN}\n{self.lines}\n{END}"


def starts_us(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of a host starts this server."""
    command, arguments = entry.get("command"), entry.get("args", [])
    if not isinstance(command, str) or not isinstance(arguments, list) or "serve" not in arguments:
        return False
    return any(_PROGRAM.search(part) for part in (command, *arguments) if isinstance(part, str))


def hooked(command: str) -> bool:
    """Whether a command line is one of our hooks."""
    return _HOOK.search(command) is not None


def _at(document: Any, path: Sequence[str]) -> Any:
    for key in path:
        if not isinstance(document, dict) or key not in document:
            return None
        document = document[key]
    return document


def _listed(document: Any, event: str) -> list[Any]:
    listed = _at(document, ("hooks", event))
    return listed if isinstance(listed, list) else []


def _is_hook(item: Any) -> bool:
    """Whether an item of a list of hooks is ours, or holds ours among others."""
    if not isinstance(item, dict):
        return False
    inner = item.get("hooks")
    if isinstance(inner, list):
        return any(_is_hook(each) for each in inner)
    command = item.get("command")
    return isinstance(command, str) and hooked(command)


def _is_wholly_hook(item: Any) -> bool:
    inner = item.get("hooks") if isinstance(item, dict) else None
    return all(_is_hook(each) for each in inner) if isinstance(inner, list) else _is_hook(item)


def _without_hooks(text: str, event: str) -> str:
    """The text without our hooks of an event; a group that also holds others keeps those."""
    text = jsonc.remove_items(text, ("hooks", event), lambda item: _is_hook(item) and _is_wholly_hook(item))
    shared = _listed(jsonc.read(text), event)
    if not any(_is_hook(item) for item in shared):
        return text
    kept = [
        {**item, "hooks": [each for each in item["hooks"] if not _is_hook(each)]} if _is_hook(item) else item
        for item in shared
    ]
    return jsonc.set_member(text, ("hooks", event), kept)


def _pruned(text: str, path: jsonc.Path, was: Any) -> str:
    """The text without the objects on a path that are empty now and were not there before."""
    for depth in range(len(path), 0, -1):
        if _at(jsonc.read(text), path[:depth]) != {} or _at(was, path[:depth]) is not None:
            break
        text = jsonc.remove_member(text, path[:depth])
    return text
