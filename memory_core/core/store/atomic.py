"""Writes of a file, whole or at its end: the only code that writes a memory file.

Of a whole write a reader sees the old text or the new, never a mixture; of ``append`` perhaps a part of the end.
Nothing here syncs but ``sync``: the ledger already holds the text, and ``sync`` runs in the background before the
ledger forgets that it must.

``exchange`` and ``take_away`` never destroy what their caller did not expect: the file that a person saved a moment
ago stays. On Linux the two files change places in one step and the old one is judged afterwards, so there is no
window. Elsewhere (and on file systems without that step) the old file is judged right before the rename, and a save
within those microseconds is lost. Not covered anywhere: a program that keeps a file open across the rename and writes
into it later.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from memory_core.core.errors import StorageFailed

_log = logging.getLogger(__name__)
_FILE_MODE = 0o600
_FOLDER_MODE = 0o700
TEMPORARY_PREFIX = ".tmp-"
#: Of a folder beside a memory folder into which a backup is unpacked.
RESTORING_PREFIX = f"{TEMPORARY_PREFIX}restore-"
_TEMPORARY = re.compile(rf"{re.escape(TEMPORARY_PREFIX)}[0-9a-f]{{16}}")
#: Longer than any write takes: what is older was left by a killed process.
_STALE_SECONDS = 3_600.0

_HERE = -100  # AT_FDCWD
_EXCHANGE = 2  # RENAME_EXCHANGE
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)

#: Whether the file at a path is the one that may be replaced.
Expected = Callable[[Path], bool]


def make_folder(path: Path) -> None:
    """Create ``path`` and its parents, each private to the user whatever the umask.

    Raises:
        StorageFailed: If the system refuses.
    """
    if path.is_dir():
        return
    try:
        if path.parent != path:
            make_folder(path.parent)
        path.mkdir(mode=_FOLDER_MODE, exist_ok=True)
    except OSError as error:
        raise _refused("create the folder", path, error) from error


def make_file(path: Path) -> None:
    """Create an empty file private to the user, unless something is there.

    Never opens what is there: closing a database file drops the locks that this process holds on it.

    Raises:
        StorageFailed: If the system refuses.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE))
    except FileExistsError:
        return
    except OSError as error:
        raise _refused("create", path, error) from error


def replace(path: Path, text: str) -> os.stat_result:
    """Write ``text`` (UTF-8, newlines as given) beside ``path`` and rename it in, whatever is there.

    Returns:
        The new file's stat.

    Raises:
        StorageFailed: If the system refuses; the old file is then intact.
    """
    temporary = _temporary(path)
    try:
        stat = _write(temporary, text)
        temporary.replace(path)
    except OSError as error:
        _discard(temporary)
        raise _refused("write", path, error) from error
    return stat


def exchange(
    path: Path, text: str, expected: Expected | None, written: Callable[[], None] = lambda: None
) -> os.stat_result | None:
    """Like ``replace``, if what is there is what the caller expects.

    Args:
        path: The file.
        text: Its new text.
        expected: Judges the file that is there; None expects none.
        written: Called when the new text is beside the file, before anything moves.

    Returns:
        The new file's stat; None if something else was there, which stays.

    Raises:
        StorageFailed: If the system refuses; the old file is then intact.
    """
    temporary = _temporary(path)
    stat: os.stat_result | None = None
    try:
        stat = _write(temporary, text)
        written()
        moved_in = _fill(temporary, path) if expected is None else _swap(temporary, path, expected)
        _discard(temporary)
    except OSError as error:
        _discard(temporary, stat)
        raise _refused("write", path, error) from error
    return stat if moved_in else None


def append(path: Path, tail: str, expected: Expected) -> os.stat_result | None:
    """Write at the end of the file, if it is what the caller expects.

    A reader may see a part of ``tail``. A process that is killed, or a machine that fails, may leave a part of it.

    Args:
        path: The file; it holds no link.
        tail: What it lacks.
        expected: Judges the file that is there.

    Returns:
        The file's stat; None if something else was there, or took its place meanwhile: it stays.

    Raises:
        FileNotFoundError: If there is no file.
        StorageFailed: If the system refuses; the file is then as it was.
    """
    try:
        flags = os.O_WRONLY | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(path, flags), "ab", buffering=0) as stream:
            before = os.fstat(stream.fileno())
            if not expected(path):
                return None
            content = tail.encode("utf-8")
            try:
                while content:
                    content = content[stream.write(content) :]
            except OSError:
                os.ftruncate(stream.fileno(), before.st_size)
                raise
            after = os.fstat(stream.fileno())
        return after if path.stat().st_ino == after.st_ino else None
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _refused("write", path, error) from error


def take_away(path: Path, expected: Expected) -> bool:
    """Delete the file, if it is what the caller expects.

    Returns:
        Whether there is no file now; else it is another one, which stays.

    Raises:
        StorageFailed: If the system refuses.
    """
    temporary = path.parent / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
    try:
        try:
            path.rename(temporary)
        except (FileNotFoundError, NotADirectoryError):
            return True
        as_expected = False
        try:
            as_expected = expected(temporary)
        finally:
            if not as_expected:  # or not judged
                _fill(temporary, path)  # unless a newer one was saved meanwhile, which then is the one that stays
        _discard(temporary)
    except OSError as error:
        raise _refused("delete", path, error) from error
    return as_expected


def remove(path: Path) -> None:
    """Delete the file if it is there.

    Raises:
        StorageFailed: If the system refuses.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _refused("delete", path, error) from error


def sweep(path: Path, is_known: Callable[[bytes], bool] = lambda _content: True) -> None:
    """Delete a temporary file of ours that a killed process left over an hour ago; another file stays.

    Args:
        path: The file.
        is_known: Whether its content is kept elsewhere. Else it may be what a person saved right before a process
            died that had just swapped the files, and it comes back under a visible name.
    """
    try:
        # By the time of its last rename: a file that changes places keeps the time of its text.
        if not _TEMPORARY.fullmatch(path.name) or path.lstat().st_ctime >= time.time() - _STALE_SECONDS:
            return
        content = path.read_bytes()
        if not content or is_known(content):
            path.unlink()
            return
        rescued = path.with_name(f"rescued {path.name[-8:]}.md")
        path.rename(rescued)
        _log.warning("a text that no history knows was left in a temporary file; it is %s now", rescued.name)
    except OSError as error:
        _log.info("a stale temporary file stays: %s", error.strerror or error)


def _discard(temporary: Path, ours: os.stat_result | None = None) -> None:
    """Delete a temporary file as far as the system lets us; with ``ours`` only if it is that one."""
    try:
        if ours is None or temporary.stat().st_ino == ours.st_ino:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        _log.info("a temporary file stays for now: %s", error.strerror or error)


def _temporary(path: Path) -> Path:
    make_folder(path.parent)
    return path.parent / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"


def _write(temporary: Path, text: str) -> os.stat_result:
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), _FILE_MODE)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(text.encode("utf-8"))
        stream.flush()
        return os.fstat(stream.fileno())


def _fill(temporary: Path, path: Path) -> bool:
    """Give the file its name unless the name is in use; False if it is."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in (*_UNSUPPORTED, errno.EMLINK, errno.EXDEV):
            raise
        if path.exists():  # a file system without hard links
            return False
        temporary.replace(path)
    return True


def _swap(temporary: Path, path: Path, expected: Expected) -> bool:
    ours = temporary.lstat().st_ino
    try:
        if not change_places(temporary, path):
            if not expected(path):
                return False
            temporary.replace(path)
            return True
    except FileNotFoundError:
        temporary.lstat()  # swept from under a process that slept: nobody has deleted the file itself
        return False  # deleted meanwhile, and to stay so
    as_expected = False
    try:
        as_expected = expected(temporary)
    finally:
        if not as_expected:  # or not judged
            change_places(temporary, path)
            if temporary.lstat().st_ino != ours:  # saved once more in between: the newer text is the one that stays
                change_places(temporary, path)
    return as_expected


def change_places(one: Path, other: Path) -> bool:
    """Let two files, or two folders, change places in one step.

    Returns:
        Whether they did; False where the system cannot, and nothing was done.

    Raises:
        OSError: If it refuses.
    """
    swap = _swapping_rename()
    code = errno.ENOSYS if swap is None else swap(os.fsencode(one), os.fsencode(other))
    if code in _UNSUPPORTED:
        return False
    if code:
        raise OSError(code, os.strerror(code), str(other))
    return True


@functools.cache
def _swapping_rename() -> Callable[[bytes, bytes], int] | None:
    """Swaps two files and gives the error's number or 0; None where the C library cannot."""
    if os.name != "posix":
        return None
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):
        return None
    call = library.renameat2

    def swap(one: bytes, other: bytes) -> int:
        return 0 if call(_HERE, one, _HERE, other, _EXCHANGE) == 0 else ctypes.get_errno()

    return swap


def sync(*paths: Path) -> None:
    """Make the files (where there are any) and their folders' entries for them survive a power loss.

    Raises:
        StorageFailed: If the system refuses.
    """
    folders = {path.parent: os.O_RDONLY | os.O_DIRECTORY for path in paths} if os.name == "posix" else {}
    for path, flags in (*((path, os.O_RDONLY) for path in paths), *folders.items()):
        try:
            _sync_descriptor(path, flags)
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
