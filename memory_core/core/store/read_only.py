"""A store in a folder that nobody may write to: read-only media, lost permissions, a full disk.

Machine files cannot be used where they are: SQLite needs to write beside a ledger even to read it. So they are copied
to a private temporary folder, and everything goes on as ever, on the copies: reading, searching, taking in what people
changed by hand. Only commits are refused. What is counted meanwhile ends with the process.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
import shutil
import sqlite3
import tempfile
from contextlib import ExitStack
from pathlib import Path

from memory_core.core.errors import StorageFailed
from memory_core.core.store import atomic
from memory_core.core.store.files import INDEX_NAME, LEDGER_NAME

_log = logging.getLogger(__name__)
_REFUSALS = frozenset({errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT})
_DATABASES = (LEDGER_NAME, INDEX_NAME)
_PROBE_BYTES = 4096


class PrivateState:
    """Copies of a store's machine files, for this process alone.

    Attributes:
        path: Takes the place of the ``.state`` folder.
        reason: Why the store can only be read.
    """

    def __init__(self, state: Path, reason: str) -> None:
        self.reason = reason
        try:
            self.path = Path(tempfile.mkdtemp(prefix="runebook-reading-"))
            with ExitStack() as made:
                made.callback(self.close)
                for name in _DATABASES:
                    _copy(state / name, self.path / name)
                made.pop_all()
        except OSError as error:
            raise StorageFailed(
                f"the store can only be read ({reason}), and its ledger cannot be copied: {error.strerror or error}.",
                hint="Make room for the copy, or get the right to read and write the memory folder.",
            ) from error
        _log.warning("the store is open for reading only: %s", reason)

    def refusal(self) -> StorageFailed:
        """What a commit is answered."""
        return StorageFailed(
            f"the store is open for reading only: {self.reason}. Nothing was stored.",
            hint="Make the memory folder writable and start Runebook again; reading and searching go on meanwhile.",
        )

    def close(self) -> None:
        """Delete the copies."""
        shutil.rmtree(self.path, ignore_errors=True)


def private_state(state: Path) -> PrivateState | None:
    """Copies to work on, where ``state`` cannot be written to; None where it can, or where there is no store yet.

    Raises:
        StorageFailed: If they cannot be made.
    """
    if not state.parent.is_dir():
        return None
    reason = _refused(state)
    return None if reason is None else PrivateState(state, reason)


def _refused(state: Path) -> str | None:
    """Why the system lets nobody write here."""
    probe = state / f"{atomic.TEMPORARY_PREFIX}{secrets.token_hex(8)}"
    try:
        state.mkdir(mode=0o700, exist_ok=True)
        with probe.open("xb") as stream:
            stream.write(bytes(_PROBE_BYTES))
        probe.unlink()
    except OSError as error:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)
        return os.strerror(error.errno) if error.errno in _REFUSALS else None
    return None


def _copy(source: Path, target: Path) -> None:
    """A database as its last commit left it.

    SQLite reads a file whose owner is at work; where nobody is, and nothing may be made beside the file, it refuses,
    and the file with its log is all there is.
    """
    if not source.exists():
        return
    try:
        with (
            contextlib.closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as reader,
            contextlib.closing(sqlite3.connect(target)) as writer,
        ):
            reader.backup(writer)
    except sqlite3.Error:
        for suffix in ("", "-wal"):
            target.with_name(f"{target.name}{suffix}").unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(f"{source}{suffix}", f"{target}{suffix}")
