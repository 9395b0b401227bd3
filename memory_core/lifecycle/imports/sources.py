"""What is imported from: a file, a folder, or a zip, all read the same way and none believed.

Names inside are shown and compared, never joined to a path. Links and devices are left alone, a zip is bounded before
anything of it is unpacked, and what is read whole has a limit. Reads only.
"""

from __future__ import annotations

import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from memory_core.errors import InvalidInput, NotFound, StorageFailed
from memory_core.lifecycle.imports.items import LeftOut
from memory_core.lifecycle.transfer.archive import ENTRIES_LIMIT, TOTAL_LIMIT_BYTES, hazard

#: Of a file that has to be in memory at once.
WHOLE_LIMIT_BYTES = 256 * 1024**2
_ZIP_BEGINS = b"PK\x03\x04"
_HEAD_BYTES = 1024**2


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a source.

    Attributes:
        name: Its name within the source, with ``/`` between folders.
        size_bytes: As far as the source says.
        modified: When it was last written, if the source says.
        path: Where it is on disk; None inside a zip.
    """

    name: str
    size_bytes: int
    modified: datetime | None = None
    path: Path | None = None

    @property
    def base(self) -> str:
        """The last part of the name."""
        return self.name.rpartition("/")[2]


@dataclass(slots=True)
class Source:
    """A file, folder or zip that is open for reading.

    Attributes:
        label: Its own name.
        entries: Its files, by name.
        refused: What of it was not even looked at.
        is_folder: Whether it is a folder.
    """

    label: str
    entries: list[Entry]
    _open: Callable[[Entry], IO[bytes]]
    refused: list[LeftOut] = field(default_factory=list)
    is_folder: bool = False

    def open(self, entry: Entry) -> IO[bytes]:
        """The bytes of a file, to be closed by the caller.

        Raises:
            StorageFailed: If it cannot be opened.
            InvalidInput: If it is damaged.
        """
        with _told(entry.name):
            return self._open(entry)

    def read(self, entry: Entry) -> bytes:
        """All bytes of a file.

        Raises:
            InvalidInput: If there are more than ``WHOLE_LIMIT_BYTES``, or they are damaged.
            StorageFailed: If they cannot be read.
        """
        with _told(entry.name), self._open(entry) as stream:
            content = stream.read(WHOLE_LIMIT_BYTES + 1)
        if len(content) > WHOLE_LIMIT_BYTES:
            raise InvalidInput(
                f"{entry.name} has more than {WHOLE_LIMIT_BYTES // 1024**2} MiB.", hint="Split it, then import again."
            )
        return content

    def text(self, entry: Entry) -> str:
        """All of a file as text, with plain line feeds.

        Raises:
            InvalidInput: If it is not UTF-8, or too large.
            StorageFailed: If it cannot be read.
        """
        try:
            text = self.read(entry).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InvalidInput(
                f"{entry.name} is not UTF-8 text (byte {error.start}).", hint="Save it as UTF-8, then import again."
            ) from error
        return text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "�")

    def head(self, entry: Entry) -> bytes:
        """The beginning of a file, to tell what it is; empty if it cannot be read."""
        try:
            with self.open(entry) as stream:
                return stream.read(_HEAD_BYTES)
        except (InvalidInput, StorageFailed, OSError, zlib.error, zipfile.BadZipFile):
            return b""


@contextmanager
def open_source(path: Path) -> Iterator[Source]:
    """Open what is to be imported.

    Raises:
        NotFound: If there is no such file or folder.
        InvalidInput: If it is a damaged zip, or would unpack to more than is sensible.
        StorageFailed: If it cannot be read.
    """
    if not path.exists():
        raise NotFound(f"there is no file or folder {str(path)!r}.", hint="Check the path.")
    with ExitStack() as opened:
        with _told(path.name):
            source = _opened(path, opened)
        yield source


def _opened(path: Path, opened: ExitStack) -> Source:
    if path.is_dir():
        entries, refused = _walk(path)
        return Source(path.name, entries, _open_file, refused, is_folder=True)
    if not path.is_file():
        raise InvalidInput(f"{path.name!r} is neither a file nor a folder.", hint="Name a file or a folder.")
    if _begins(path).startswith(_ZIP_BEGINS):
        return _zip_source(path.name, opened.enter_context(zipfile.ZipFile(path)))
    found = path.stat()
    return Source(path.name, [Entry(path.name, found.st_size, _moment(found.st_mtime), path)], _open_file)


def _begins(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(len(_ZIP_BEGINS))


def _open_file(entry: Entry) -> IO[bytes]:
    if entry.path is None:
        raise InvalidInput(f"{entry.name} is not on disk.", hint="Import from a folder.")
    return entry.path.open("rb")


def _walk(root: Path) -> tuple[list[Entry], list[LeftOut]]:
    """The regular files below a folder; hidden ones, and hidden folders, are left alone."""
    entries: list[Entry] = []
    refused: list[LeftOut] = []
    for folder, folders, names in os.walk(root, followlinks=False):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder) / name
            shown = path.relative_to(root).as_posix()
            if name.startswith("."):
                continue
            try:
                found = path.lstat()
            except OSError as error:
                refused.append(LeftOut(shown, f"it cannot be read: {error.strerror or error}"))
                continue
            if stat.S_ISREG(found.st_mode):
                entries.append(Entry(shown, found.st_size, _moment(found.st_mtime), path))
            elif stat.S_ISLNK(found.st_mode):
                refused.append(LeftOut(shown, "it is a link"))
        if len(entries) > ENTRIES_LIMIT:
            raise InvalidInput(f"{root.name!r} holds over {ENTRIES_LIMIT:,} files.", hint="Import it in parts.")
    return entries, refused


def _zip_source(label: str, archive: zipfile.ZipFile) -> Source:
    infos = archive.infolist()
    if len(infos) > ENTRIES_LIMIT or sum(info.file_size for info in infos) > TOTAL_LIMIT_BYTES:
        raise InvalidInput(
            f"the archive would unpack to over {ENTRIES_LIMIT:,} files or {TOTAL_LIMIT_BYTES // 1024**3} GiB.",
            hint="Unpack what you know of it, and import the folder.",
        )
    known: dict[str, zipfile.ZipInfo] = {}
    entries: list[Entry] = []
    refused: list[LeftOut] = []
    for info in infos:
        reason = "the archive holds this name twice" if info.filename in known else hazard(info)
        if reason is not None:
            refused.append(LeftOut(info.filename[:200], reason))
        elif not info.is_dir():
            known[info.filename] = info
            entries.append(Entry(info.filename, info.file_size, _zip_moment(info)))
    return Source(label, entries, lambda entry: archive.open(known[entry.name]), refused)


def _zip_moment(info: zipfile.ZipInfo) -> datetime | None:
    try:
        return datetime(*info.date_time).astimezone() if info.date_time[0] > 1980 else None
    except (ValueError, OverflowError, OSError):
        return None


def _moment(seconds: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Errors of the system and of unpacking, as ours."""
    try:
        yield
    except OSError as error:
        raise StorageFailed(
            f"{name!r} cannot be read: {error.strerror or error}.", hint="Name what you may read, then import again."
        ) from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise InvalidInput(
            f"{name!r} is damaged or incomplete: {error}.", hint="Get a sound copy of the file."
        ) from error
