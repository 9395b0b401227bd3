"""The two forms of a backup, a folder and a zip file, written and read alike.

A writer takes files by path and ``finish`` makes them durable, still under the name that ends in ``.partial``. A
reader hands out what the manifest names, and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Protocol

from memory_core.errors import InvalidInput, StorageFailed
from memory_core.storage import atomic

FORMAT = "runebook-backup"
FORMAT_VERSION = 1
MANIFEST_NAME = "backup.json"
HOME = "home"
_MANIFEST_LIMIT_BYTES = 512 * 1024**2
_CHUNK_BYTES = 1024**2
_HINT = "Take another backup; this one was changed or cut short."
_NO_BACKUP = "Name what runebook backup wrote; for an export, use runebook import."


@dataclass(frozen=True, slots=True)
class BackupEntry:
    """One file of a backup; ``path`` is relative, with ``/``."""

    path: str
    sha256: str
    size_bytes: int


class BackupWriter(Protocol):
    """Where a backup is written to."""

    def put(self, path: str, content: bytes) -> BackupEntry:
        """Write one file."""
        ...

    def copy(self, path: str, source: Path) -> BackupEntry:
        """Write a file of any size."""
        ...

    def finish(self) -> None:
        """Make everything durable."""
        ...


class FolderWriter:
    """A backup as a folder that can be opened as it is: ``runebook --home FOLDER/home``."""

    def __init__(self, root: Path) -> None:
        self._root = root
        atomic.make_folder(root)
        self._folders = {root}

    def put(self, path: str, content: bytes) -> BackupEntry:
        """See ``BackupWriter``."""
        with self.opened(path) as stream:
            stream.write(content)
        return BackupEntry(path, hashlib.sha256(content).hexdigest(), len(content))

    def copy(self, path: str, source: Path) -> BackupEntry:
        """See ``BackupWriter``."""
        with self.opened(path) as target, source.open("rb") as stream:
            return _poured(path, stream, target)

    def finish(self) -> None:
        """See ``BackupWriter``."""
        for folder in sorted(self._folders, reverse=True):
            sync_folder(folder)

    @contextlib.contextmanager
    def opened(self, path: str) -> Iterator[IO[bytes]]:
        """A new file, private to the user and durable when the body ends."""
        target = self._root.joinpath(*path.split("/"))
        atomic.make_folder(target.parent)
        self._folders |= {folder for folder in target.parents if folder.is_relative_to(self._root)}
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(target, flags, 0o600), "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())


class ZipWriter:
    """A backup as one file."""

    def __init__(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        self._stream = os.fdopen(os.open(path, flags, 0o600), "w+b")
        self._archive = zipfile.ZipFile(self._stream, "w", zipfile.ZIP_DEFLATED)

    def put(self, path: str, content: bytes) -> BackupEntry:
        """See ``BackupWriter``."""
        self._archive.writestr(_info(path), content)
        return BackupEntry(path, hashlib.sha256(content).hexdigest(), len(content))

    def copy(self, path: str, source: Path) -> BackupEntry:
        """See ``BackupWriter``."""
        with self._archive.open(_info(path), "w", force_zip64=True) as target, source.open("rb") as stream:
            return _poured(path, stream, target)

    def finish(self) -> None:
        """See ``BackupWriter``."""
        self._archive.close()
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()


class BackupReader:
    """A backup as its manifest describes it.

    Args:
        manifest: The manifest's JSON object.
        opener: Opens the file at a path of the backup.
    """

    def __init__(self, manifest: dict[str, Any], opener: Callable[[str], IO[bytes]]) -> None:
        if manifest.get("format") != FORMAT:
            raise InvalidInput("this is no backup of Runebook.", hint=_NO_BACKUP)
        version = manifest.get("format_version")
        if not isinstance(version, int) or not 1 <= version <= FORMAT_VERSION:
            raise InvalidInput(f"the backup has format version {version!r}.", hint="Upgrade Runebook.")
        self.manifest = manifest
        self._opener = opener
        try:
            self.entries = [
                BackupEntry(str(facts["path"]), str(facts["sha256"]), int(facts["size"])) for facts in manifest["files"]
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput("the backup's manifest is damaged.", hint=_HINT) from error

    def pour(self, entry: BackupEntry, target: IO[bytes] | None) -> None:
        """Read a file to its end, into ``target`` if there is one.

        Raises:
            InvalidInput: If it is not what the manifest says.
        """
        try:
            with self._opener(entry.path) as stream:
                found = _poured(entry.path, stream, target, entry.size_bytes)
        except (KeyError, FileNotFoundError, zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise InvalidInput(f"the backup's {entry.path!r} is missing or damaged.", hint=_HINT) from error
        if found != entry:
            raise InvalidInput(f"the backup's {entry.path!r} is not what was backed up.", hint=_HINT)


@contextlib.contextmanager
def reader_of(path: Path) -> Iterator[BackupReader]:
    """Open a backup of either form; its name does not matter.

    Raises:
        InvalidInput: If it is none.
        StorageFailed: If it cannot be read.
    """
    try:
        if path.is_dir():
            with (path / MANIFEST_NAME).open("rb") as stream:
                manifest = _manifest(stream.read(_MANIFEST_LIMIT_BYTES))
            yield BackupReader(manifest, lambda name: _open_inside(path, name))
            return
        with zipfile.ZipFile(path) as archive:
            links = [info for info in archive.infolist() if stat.S_ISLNK(info.external_attr >> 16)]
            if links or MANIFEST_NAME not in archive.namelist():
                raise InvalidInput("this is no backup of Runebook.", hint=_NO_BACKUP)
            if archive.getinfo(MANIFEST_NAME).file_size > _MANIFEST_LIMIT_BYTES:
                raise InvalidInput("the backup's manifest is too large.", hint=_HINT)
            yield BackupReader(_manifest(archive.read(MANIFEST_NAME)), archive.open)
    except FileNotFoundError as error:
        raise InvalidInput(f"there is no backup at {path.name!r}.", hint="Name what runebook backup wrote.") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise InvalidInput(f"the backup {path.name!r} is damaged or incomplete.", hint=_HINT) from error
    except OSError as error:
        raise StorageFailed(
            f"the backup {path.name!r} cannot be used: {error.strerror or error}.",
            hint="Check free space and permissions.",
        ) from error


def _open_inside(root: Path, name: str) -> IO[bytes]:
    path = root.joinpath(*name.split("/"))
    if not path.resolve().is_relative_to(root.resolve()):
        raise FileNotFoundError(name)
    return path.open("rb")


def _manifest(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("the backup's manifest is damaged.", hint=_HINT) from error
    return found if isinstance(found, dict) else {}


def _poured(path: str, source: IO[bytes], target: IO[bytes] | None, limit_bytes: int | None = None) -> BackupEntry:
    digest, size = hashlib.sha256(), 0
    while chunk := source.read(_CHUNK_BYTES):
        digest.update(chunk)
        size += len(chunk)
        if limit_bytes is not None and size > limit_bytes:
            break
        if target is not None:
            target.write(chunk)
    return BackupEntry(path, digest.hexdigest(), size)


def _info(path: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(path, datetime.now(UTC).timetuple()[:6])
    info.external_attr = 0o600 << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def sync_folder(folder: Path) -> None:
    """Make a folder's entries survive a power loss."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_whole(path: Path) -> None:
    """Delete a backup of either form."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
