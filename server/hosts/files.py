"""Files of other programs: read strictly, changed whole and in one step, with a way back.

Promises: a file that cannot be read as what it should be is left alone. Before Runebook first goes into a file, the
file as it was is kept beside it (``NAME.runebook-backup``). Taking Runebook out again gives back that very file, byte
for byte, unless somebody else changed the file since: then only what is Runebook's leaves. A file that was made here
and holds nothing else leaves with it. A link stays a link; what it points to is changed. A program that saves the file
at the same moment wins, and the command says so.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from memory_core.errors import InvalidInput, RunebookError, StorageFailed
from memory_core.storage import atomic
from server.hosts.edits import Edit
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
