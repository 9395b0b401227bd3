"""Checks of a store's folder: who may read it, what lies about, how much room there is, what it runs on."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from memory_core.lifecycle.doctor.examination import Subject
from memory_core.lifecycle.doctor.findings import Finding, Severity, gathered
from memory_core.storage.atomic import TEMPORARY_PREFIX
from memory_core.storage.file_store import STATE_NAME

_LEAST_FREE_BYTES = 100 * 1024**2
#: A temporary file this old is nobody's any more.
STALE_SECONDS = 3_600.0
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_WATCHES = Path("/proc/sys/fs/inotify/max_user_watches")


def check_folder(subject: Subject) -> Iterator[Finding]:
    """Findings on the folder itself; ``versions`` is always there."""
    root = subject.config.root
    yield Finding(
        "versions",
        Severity.OK,
        f"Python {platform.python_version()}",
        f"SQLite {sqlite3.sqlite_version} on {platform.system() or 'an unknown system'}",
    )
    free = shutil.disk_usage(root).free
    if free < _LEAST_FREE_BYTES:
        yield Finding("space", Severity.WARNING, str(root), f"only {free // 1024**2} MiB are free on its disk")
    yield from gathered(
        "permissions",
        Severity.WARNING,
        (_shown(root, path) for path in open_to_others(root) if _is_ours(root, path)),
        "other users may read or write it",
        "it is made private to its owner",
    )
    yield from gathered(
        "permissions",
        Severity.NOTICE,
        (_shown(root, path) for path in open_to_others(root) if not _is_ours(root, path)),
        "its own permissions let others read it, the folder above does not",
        "it is made private to its owner",
    )
    yield from gathered(
        "temporary",
        Severity.NOTICE,
        (_shown(root, path) for path in stale_files(root)),
        "a write that was cut off left it behind; it holds nothing that is needed",
        "it is deleted",
    )
    yield from gathered(
        "leftovers",
        Severity.NOTICE,
        (_shown(root, path) for path in subject.state.glob("*.damaged*") if not path.name.endswith(("-wal", "-shm"))),
        "a damaged file that was replaced; delete it when you do not want to look into it",
    )
    yield from _watches(root)


def open_to_others(root: Path) -> Iterator[Path]:
    """Folders and files that other users of the machine may use; the folder itself first."""
    if os.name != "posix":
        return
    for path in (root, *_everything(root)):
        found = path.lstat()
        if not stat.S_ISLNK(found.st_mode) and found.st_mode & _OTHERS:
            yield path


def stale_files(root: Path) -> Iterator[Path]:
    """What writes that were cut off left behind."""
    until = time.time() - STALE_SECONDS
    for path in _everything(root):
        if path.name.startswith(TEMPORARY_PREFIX) and path.lstat().st_mtime < until and not path.is_dir():
            yield path


def _everything(root: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(root):
        if Path(folder) == root:  # a repository's own folder, say, is none of ours
            names[:] = [name for name in names if name == STATE_NAME or not name.startswith(".")]
        for name in (*names, *files):
            path = Path(folder, name)
            if os.path.lexists(path):
                yield path


def _is_ours(root: Path, path: Path) -> bool:
    return path == root or path.relative_to(root).parts[0] == STATE_NAME


def _shown(root: Path, path: Path) -> str:
    return str(root) if path == root else path.relative_to(root).as_posix()


def _watches(root: Path) -> Iterator[Finding]:
    try:
        limit = int(_WATCHES.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return
    folders = sum(1 for _ in os.walk(root))
    if folders > limit:
        detail = f"{folders:,} folders, but the system watches {limit:,} at most; hand edits are noticed later"
        yield Finding("watching", Severity.NOTICE, str(root), detail)
