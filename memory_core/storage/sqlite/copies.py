"""Consistent copies of a SQLite file that others may be writing to; and moving one out of the way.

A copy appears under its name only when it is whole: it is made beside the target, checked, synced and renamed in.
What a killed copy leaves behind begins with ``atomic.TEMPORARY_PREFIX`` and is never taken for a copy.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import sqlite3
from pathlib import Path

from memory_core.errors import StorageFailed
from memory_core.storage import atomic

_log = logging.getLogger(__name__)
_BEFORE = re.compile(r"-before-v(\d+)\.sqlite3\Z")
_PAGES = 2_000
_HINT = "Check free space and the permissions of the folder, then try again."


def copy_database(source: Path, target: Path) -> None:
    """Copy a database as its last commit left it; readers and writers of ``source`` go on.

    Args:
        source: An existing SQLite file.
        target: Replaced when it exists; private to the user.

    Raises:
        StorageFailed: If either side refuses or the copy is not sound; ``target`` is then as it was.
    """
    atomic.make_folder(target.parent)
    temporary = target.parent / f"{atomic.TEMPORARY_PREFIX}{secrets.token_hex(8)}"
    try:
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with (
            contextlib.closing(sqlite3.connect(source, timeout=30)) as reader,
            contextlib.closing(sqlite3.connect(temporary)) as writer,
        ):
            reader.execute("PRAGMA query_only=ON")
            reader.execute("BEGIN")  # one view: a writer in between would make the copy begin anew
            reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
            reader.backup(writer, pages=_PAGES)
            writer.execute("PRAGMA journal_mode=DELETE")  # the copy is one file, without a log beside it
        problem = damage(temporary)
        if problem is not None:
            raise StorageFailed(f"the copy of {source.name} is not sound: {problem}.", hint="Run runebook doctor.")
        atomic.sync(temporary)
        temporary.replace(target)
        atomic.sync(target)
    except (OSError, sqlite3.Error) as error:
        raise StorageFailed(f"{source.name} could not be copied: {error}.", hint=_HINT) from error
    finally:
        temporary.unlink(missing_ok=True)


def move_aside(path: Path, aside: Path) -> list[Path]:
    """Rename a database, its log first: what stands under the name is never a log without its database.

    Args:
        path: The database; it may be missing, or something else than a file.
        aside: Its new name; private to the user from then on.

    Returns:
        What was moved, by its new name; ``aside`` is among it if the database itself was there.
    """
    moved: list[Path] = []
    for suffix in ("-shm", "-wal", "-journal", ""):
        file = path.with_name(path.name + suffix)
        if os.path.lexists(file):
            moved.append(file.replace(aside.with_name(aside.name + suffix)))
            if moved[-1].is_file() and not moved[-1].is_symlink():
                moved[-1].chmod(0o600)  # SQLite gives its log and shared memory what the database had
    return moved


def damage(path: Path) -> str | None:
    """What SQLite's own check finds wrong with a file that nobody writes to; None for a sound one."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as found:
            answer = str(found.execute("PRAGMA integrity_check(1)").fetchone()[0])
    except sqlite3.Error as error:
        return str(error)
    return None if answer == "ok" else answer


def keep_before_migrating(path: Path, version: int) -> Path | None:
    """Keep a copy of a database that is about to be taken to schema ``version``, and drop copies before that.

    To be called by whoever holds the database's write transaction, before the first change. A copy that cannot be
    made is no reason to keep the owner out: the migration itself is one transaction.

    Returns:
        ``ledger-before-v4.sqlite3`` beside ``ledger.sqlite3``; None if it could not be made.
    """
    target = path.with_name(f"{path.stem}-before-v{version}.sqlite3")
    try:
        copy_database(path, target)
        for other in path.parent.glob(f"{path.stem}-before-v*.sqlite3"):
            if other != target and _BEFORE.search(other.name):
                atomic.remove(other)
    except StorageFailed as error:
        _log.warning("%s is migrated without a copy of its old form: %s", path.name, error.message)
        return None
    return target
