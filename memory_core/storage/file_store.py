"""The files: from URIs to text on disk, and nothing above the root.

``path_for`` is the only place where a URI becomes a path; it proves containment on the real disk after
resolving links. Reading never writes. Writing goes through ``atomic`` and only from a transaction.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from memory_core.errors import InvalidInput, InvalidUri, NotFound, StorageFailed, TooLarge
from memory_core.model.uri import ABSTRACT_NAME, OVERVIEW_NAME, MemoryUri, Scope
from memory_core.storage import atomic

STATE_NAME = ".state"
#: A hand-made file beyond this is listed but neither indexed nor read whole into memory.
FILE_LIMIT_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileStat:
    """What a cheap look tells of a file; equal stats mean an unchanged file."""

    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One directory entry."""

    uri: MemoryUri
    is_dir: bool
    stat: FileStat


class FileStore:
    """Text files below one root, addressed by URI."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state = root / STATE_NAME
        real = os.path.realpath(root)
        self._inside, self._machine = f"{real}{os.sep}", f"{real}{os.sep}{STATE_NAME}{os.sep}"

    def path_for(self, uri: MemoryUri) -> Path:
        """The path of ``uri``, proved to lie below the root.

        Raises:
            InvalidUri: If a symbolic link or the like leads outside.
        """
        path = self.root.joinpath(*uri.parts)
        try:
            resolved = os.path.realpath(path)  # half the time of Path.resolve, several times a commit
            circular = Path(resolved).is_symlink()
        except OSError as error:
            raise InvalidUri(
                f"{str(uri)!r} cannot be resolved: {error}.", hint="Remove the symbolic link that leads nowhere."
            ) from error
        if circular:
            raise InvalidUri(
                f"{str(uri)!r} cannot be resolved: its links lead in a circle.", hint="Remove the symbolic link."
            )
        if not f"{resolved}{os.sep}".startswith(self._inside) or f"{resolved}{os.sep}".startswith(self._machine):
            raise InvalidUri(
                f"{str(uri)!r} leads outside the memory folder.",
                hint="Remove the symbolic link, or name a URI that ls prints.",
            )
        return path

    def text(self, uri: MemoryUri, *, strict: bool = False) -> str | None:
        """The file's text, newlines as stored; None when there is no such file.

        Args:
            uri: The file.
            strict: Refuse bytes that are not UTF-8 (a hand-made file) instead of reading them as U+FFFD.

        Raises:
            TooLarge: Over ``FILE_LIMIT_BYTES``.
            InvalidInput: If ``strict`` and the file is not UTF-8.
            StorageFailed: If the system refuses.
        """
        path = self.path_for(uri)
        try:
            if path.stat().st_size > FILE_LIMIT_BYTES:
                raise TooLarge(
                    f"{str(uri)!r} is over {FILE_LIMIT_BYTES // 1024**2} MiB.",
                    hint="Split the file into smaller ones.",
                )
            return path.read_bytes().decode("utf-8", "strict" if strict else "replace")
        except UnicodeDecodeError as error:
            raise InvalidInput(
                f"{str(uri)!r} is not UTF-8 text.", hint="Save the file as UTF-8, then send the same request again."
            ) from error
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise StorageFailed(
                f"the system refused to read {str(uri)!r}: {error.strerror or error}.",
                hint="Check the permissions of the memory folder.",
            ) from error

    def stat(self, uri: MemoryUri) -> FileStat | None:
        """Size and time of the file, or None when it is absent."""
        try:
            found = self.path_for(uri).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileStat(found.st_size, found.st_mtime_ns)

    def is_dir(self, uri: MemoryUri) -> bool:
        """Whether the URI is a directory; the root always is."""
        return not uri.parts or self.path_for(uri).is_dir()

    def write(self, uri: MemoryUri, text: str | None) -> FileStat | None:
        """Rename ``text`` in, or delete the file when it is None; not synced.

        Raises:
            StorageFailed: If the system refuses.
        """
        path = self.path_for(uri)
        if text is None:
            atomic.remove(path)
            return None
        found = atomic.replace(path, text)
        return FileStat(found.st_size, found.st_mtime_ns)

    def sync(self, uri: MemoryUri) -> None:
        """Make the last ``write`` of ``uri`` survive a power loss."""
        atomic.sync(self.path_for(uri))

    def entries(self, directory: MemoryUri) -> list[Entry]:
        """The visible entries of a directory by name, the two hidden summaries included.

        Names that no URI can have (hidden files, foreign links, unsafe names) are left out.

        Raises:
            NotFound: If there is no such directory.
        """
        path = self.path_for(directory)
        try:
            with os.scandir(path) as scan:
                found = sorted(scan, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            if not directory.parts:
                return []
            raise NotFound(
                f"there is no directory {str(directory)!r}.",
                hint="List its parent with ls, or start at viking://.",
            ) from None
        return [entry for item in found if (entry := self._entry(directory, item)) is not None]

    def walk(self, directory: MemoryUri | None = None) -> Iterator[Entry]:
        """Every file below ``directory`` (default: the whole root), depth first."""
        for entry in self.entries(directory or MemoryUri()):
            if entry.is_dir:
                yield from self.walk(entry.uri)
            else:
                yield entry

    def moved(self, known: dict[str, FileStat | None]) -> list[MemoryUri]:
        """Files that are new, gone, or no longer look as they did.

        A hundred thousand files that did not move cost a look each, and nothing is made of them.

        Args:
            known: How files looked, by URI; what is found is taken out.
        """
        moved = list(self._moved(MemoryUri(), known))
        return moved + [MemoryUri.parse(uri) for uri in known]

    def _moved(self, directory: MemoryUri, known: dict[str, FileStat | None]) -> Iterator[MemoryUri]:
        prefix = str(directory) if directory.parts else "viking:/"
        try:
            with os.scandir(self.path_for(directory)) as scan:
                items = list(scan)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise StorageFailed(
                f"the system refused to list {str(directory)!r}: {error.strerror or error}.",
                hint="Check the permissions of the memory folder.",
            ) from error
        for item in items:
            text = f"{prefix}/{item.name}"
            if text in known and _looks(item) == known[text]:
                del known[text]
                continue
            entry = self._entry(directory, item)
            if entry is None:
                continue
            if entry.is_dir:
                yield from self._moved(entry.uri, known)
            else:
                known.pop(str(entry.uri), None)
                yield entry.uri

    def _entry(self, directory: MemoryUri, item: os.DirEntry[str]) -> Entry | None:
        if not directory.parts and item.name not in {scope.value for scope in Scope}:
            return None
        if item.name.startswith(".") and item.name not in (ABSTRACT_NAME, OVERVIEW_NAME):
            return None
        try:
            uri = directory.child(item.name)
            if item.is_symlink():
                self.path_for(uri)
                if item.is_dir():  # what it shows is listed where it is, and it may lead in circles
                    return None
            found = item.stat()
        except (InvalidUri, FileNotFoundError):
            return None
        return Entry(uri, item.is_dir(), FileStat(found.st_size, found.st_mtime_ns))


def _looks(item: os.DirEntry[str]) -> FileStat | None:
    """What a plain file looks like; another value for whatever is none, or is gone."""
    try:
        if item.is_file(follow_symlinks=False):
            found = item.stat(follow_symlinks=False)
            return FileStat(found.st_size, found.st_mtime_ns)
    except FileNotFoundError:
        pass
    return FileStat(-1, -1)
