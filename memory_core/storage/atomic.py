"""Whole-file writes: the only code that writes a memory file.

A reader sees the old text or the new, never a mixture. ``replace`` does not sync: the ledger already holds
the text, and ``sync`` runs in the background before the ledger forgets that it must.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from memory_core.errors import StorageFailed

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700
TEMPORARY_PREFIX = ".tmp-"


def make_folder(path: Path) -> None:
    """Create ``path`` and its parents, private to the user.

    Raises:
        StorageFailed: If the system refuses.
    """
    try:
        path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise _refused("create the folder", path, error) from error


def replace(path: Path, text: str) -> os.stat_result:
    """Write ``text`` (UTF-8, newlines as given) beside ``path`` and rename it in.

    Returns:
        The new file's stat.

    Raises:
        StorageFailed: If the system refuses; the old file is then intact.
    """
    make_folder(path.parent)
    temporary = path.parent / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), _FILE_MODE)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(text.encode("utf-8"))
            stream.flush()
            stat = os.fstat(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _refused("write", path, error) from error
    return stat


def remove(path: Path) -> None:
    """Delete the file if it is there.

    Raises:
        StorageFailed: If the system refuses.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _refused("delete", path, error) from error


def sync(path: Path) -> None:
    """Make the file (if there) and its folder's entry for it survive a power loss.

    Raises:
        StorageFailed: If the system refuses.
    """
    try:
        _sync_descriptor(path, os.O_RDONLY)
        if os.name == "posix":
            _sync_descriptor(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _refused("sync", path, error) from error


def _sync_descriptor(path: Path, flags: int) -> None:
    if os.name != "posix":
        flags = os.O_RDWR | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refused(verb: str, path: Path, error: OSError) -> StorageFailed:
    return StorageFailed(
        f"the system refused to {verb} {path.name!r}: {error.strerror or error}.",
        hint="Check free space and the permissions of the memory folder, then send the same request again.",
    )
