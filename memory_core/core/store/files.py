"""The files: from URIs to text on disk, and nothing above the root.

``path_for`` is the only place where a URI becomes a path; it proves containment on the real disk after
resolving links. Reading never writes. Writing goes through ``atomic``, and only under the store's lock or into a store
that nobody uses yet.
"""

from __future__ import annotations

import os
import stat
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from memory_core.core.caches import RecentCache
from memory_core.core.errors import InvalidInput, InvalidUri, MemoryChanged, NotFound, StorageFailed, TooLarge
from memory_core.core.frozen import frozen
from memory_core.core.memory.results import text_sha256
from memory_core.core.memory.uri import ABSTRACT_NAME, OVERVIEW_NAME, MemoryUri, Scope
from memory_core.core.store import atomic
from memory_core.core.text.unicode_form import unicode_form


@frozen
class FileStat:
    """What a cheap look tells of a file; equal stats mean an unchanged file."""

    size_bytes: int
    mtime_ns: int


#: Inode, size and time.
Looks = tuple[int, int, int]


@frozen
class Seen:
    """A file as it was when its text was read.

    Attributes:
        sha256: Of its text; None for no file.
        looks: Inode, size and time, where a later look that finds them the same proves that the text is.
        stat: From right before it was read: a file that looks otherwise later may hold another text.
    """

    sha256: str | None
    looks: Looks | None = None
    stat: FileStat | None = None


def opened(path: str) -> BinaryIO:
    """The file, opened for reading without ever waiting: a pipe has no writer, and a device may have no end.

    The path holds no link any more; one that takes the place of its last part in the moment between is refused.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    try:
        return os.fdopen(descriptor, "rb")
    except OSError:  # a directory; whoever is given a descriptor does not close it then
        os.close(descriptor)
        raise


def _reading(path: Path) -> BinaryIO:
    return path.open("rb")


def stat_of(found: os.stat_result) -> FileStat:
    """What of a stat is kept."""
    return FileStat(found.st_size, found.st_mtime_ns)


def no_directory(directory: MemoryUri) -> NotFound:
    """What is raised where a directory is looked for that is not there."""
    return NotFound(
        f"there is no directory {str(directory)!r}.", hint="List its parent with ls, or start at viking://."
    )


def looks_of(found: os.stat_result) -> Looks:
    """See ``Seen.looks``."""
    return found.st_ino, found.st_size, found.st_mtime_ns


def is_settled(mtime_ns: int) -> bool:
    """Whether a file or directory changed so long ago that another change gives it another time.

    File times tick coarsely on some systems: what changed a moment ago may change again and look the same.
    """
    return time.time_ns() - mtime_ns > _TICK_NS


def is_still(path: Path, seen: Seen) -> bool:
    """Whether the file at ``path`` holds what was seen; raises OSError where the system refuses to tell."""
    try:
        found = looks_of(path.stat())  # a missing file, as every new memory's, is told here
        if found == seen.looks:
            return True
        with opened(os.path.realpath(path)) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                return False
            return text_sha256(stream.read().decode("utf-8", "replace")) == seen.sha256
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return seen.sha256 is None


def as_stored(root: Path, parts: tuple[str, ...]) -> Path:
    """The path below ``root`` as it is spelt on disk; composed where nothing is there.

    Args:
        root: An existing folder.
        parts: Composed names; of two files whose names differ in form alone the composed one counts.
    """
    shown = "/".join((str(root), *parts))
    if unicodedata.is_normalized("NFD", shown) or os.path.lexists(shown):  # there is one form, or it is there
        return Path(shown)
    path = root
    for part in parts:
        composed, decomposed = path / part, path / unicode_form("NFD", part)
        path = decomposed if not os.path.lexists(composed) and os.path.lexists(decomposed) else composed
    return path


STATE_NAME = ".state"
#: In that folder: what is kept, and what can be made anew.
LEDGER_NAME = "ledger.sqlite3"
INDEX_NAME = "index.sqlite3"
#: In that folder, too: where a program that makes memories works.
ASIDE_NAME = "aside"
#: A hand-made file beyond this is listed but neither indexed nor read whole into memory.
FILE_LIMIT_BYTES = 64 * 1024 * 1024
_TICK_NS = 20_000_000
#: How often a file is opened anew whose name changed hands in that moment.
_OPENINGS = 20
#: Texts from here on are remembered while their files look the same: logs are read with every message that joins them.
_LONG_CHARS, _REMEMBERED_TEXTS, _REMEMBERED_BYTES = 32_768, 4, 64 << 20
#: Copies that editors and tools keep beside a file they change; no memory has such a name.
_LEFT_BY_EDITORS = ("~", ".bak", ".orig", ".rej", ".swp", ".swx", ".tmp", "#")
_UNUSABLE_MOST = 1_000


@frozen
class Entry:
    """One directory entry."""

    uri: MemoryUri
    is_dir: bool
    stat: FileStat


class FileStore:
    """Text files below one root, addressed by URI.

    Args:
        root: The folder.
        state: Where machine files are; default in the root.
    """

    def __init__(self, root: Path, state: Path | None = None) -> None:
        self.root = root
        self.state = state or root / STATE_NAME
        real = os.path.realpath(root)
        #: What was met on a walk and cannot be read or named, below the root: why, and what to do; for the owner.
        self.unusable: dict[str, tuple[str, str]] = {}
        #: Whether the history keeps a text, by its SHA-256; what it does not know is not swept away.
        self.is_kept: Callable[[str], bool] = lambda _sha256: True
        self._inside, self._machine = f"{real}{os.sep}", f"{real}{os.sep}{STATE_NAME}{os.sep}"
        self._long: RecentCache[str, tuple[str, Seen]] = RecentCache(
            _REMEMBERED_TEXTS, _REMEMBERED_BYTES, keeps_last=True
        )

    def path_for(self, uri: MemoryUri) -> Path:
        """The path of ``uri``, proved to lie below the root and in its space.

        Raises:
            InvalidUri: If a symbolic link or the like leads outside.
        """
        path = as_stored(self.root, uri.parts)
        self._resolved(uri, path)
        return path

    def real_path_for(self, uri: MemoryUri) -> str:
        """The path behind every link; raises as ``path_for``."""
        return self._resolved(uri, as_stored(self.root, uri.parts))

    def _resolved(self, uri: MemoryUri, path: Path) -> str:
        if not self._has_links(path):  # a URI's own parts cannot lead anywhere else
            return f"{self._inside}{str(path)[len(str(self.root)) + 1 :]}"
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
        # What is another user's is not to be had by a link either; of the archive the space is one part further in.
        space = uri.parts[: 3 if uri.scope is Scope.ARCHIVE else 2]
        if not f"{resolved}{os.sep}".startswith(self._inside + "".join(f"{part}{os.sep}" for part in space)):
            raise InvalidUri(
                f"{str(uri)!r} leads into another space.",
                hint="Remove the symbolic link, or name a URI that ls prints.",
            )
        return resolved

    def _opened(self, uri: MemoryUri) -> tuple[BinaryIO, str]:
        """The file of ``uri``, open, and its real path.

        A writer lets the old file and the new one change places; whoever opened the old one in that moment opens again.
        What a folder that was swapped for a link brought is refused, where the system tells what is open (Linux).
        """
        for _ in range(_OPENINGS):
            path = self.real_path_for(uri)
            stream = opened(path)
            if self._is_at(path, stream.fileno()):
                return stream, path
            stream.close()
        raise InvalidUri(
            f"{str(uri)!r} leads elsewhere than a moment ago.", hint="Remove the symbolic link on its way."
        )

    def _is_at(self, path: str, descriptor: int) -> bool:
        """Whether the open file is the one that the path names, or was it until it was replaced."""
        try:
            place = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - as text, and quick
        except OSError:
            return True
        below = path[len(self._inside) - 1 :].casefold()
        return place.removesuffix(" (deleted)").casefold().endswith(below)

    def _has_links(self, path: Path) -> bool:
        """Whether a part of the path below the root is a symbolic link; half the time of resolving it."""
        shown = str(self.root)
        try:
            for part in path.parts[len(self.root.parts) :]:
                shown = f"{shown}{os.sep}{part}"
                if stat.S_ISLNK(os.lstat(shown).st_mode):
                    return True
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return False

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
        return self.look(uri, strict=strict)[0]

    def is_utf8(self, uri: MemoryUri) -> bool:
        """Whether the file is UTF-8, so that a U+FFFD in its text is its own."""
        try:
            self.text(uri, strict=True)
        except InvalidInput:
            return False
        return True

    def look(self, uri: MemoryUri, *, strict: bool = False) -> tuple[str | None, Seen]:
        """The file's text as by ``text``, and what tells later whether it is still the same file."""
        try:
            path = self.real_path_for(uri)
            if (remembered := self._remembered(path)) is not None:
                return remembered
            stream, path = self._opened(uri)
            with stream:
                found = os.fstat(stream.fileno())
                if not stat.S_ISREG(found.st_mode):
                    raise InvalidUri(f"{str(uri)!r} is no plain file.", hint="Remove it; only plain files are memory.")
                if found.st_size > FILE_LIMIT_BYTES:
                    raise TooLarge(
                        f"{str(uri)!r} is over {FILE_LIMIT_BYTES // 1024**2} MiB.",
                        hint="Split the file into smaller ones.",
                    )
                if found.st_size >= _LONG_CHARS:
                    self._long.make_room(found.st_size)
                content = stream.read()
            text, is_sound = _decoded(content)
            del content
            if strict and not is_sound:
                raise InvalidInput(
                    f"{str(uri)!r} is not UTF-8 text.", hint="Save the file as UTF-8, then send the same request again."
                )
            settled = is_settled(found.st_mtime_ns)
            seen = Seen(text_sha256(text), looks_of(found) if settled else None, stat_of(found))
            if settled and is_sound:
                self._remember(path, text, seen)
            return text, seen
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None, Seen(None)
        except OSError as error:
            raise _refused("read", uri, error) from error

    def _remembered(self, path: str) -> tuple[str, Seen] | None:
        """A long text and its file, if it still looks as it did."""
        known = self._long.get(path)
        if known is None:
            return None
        found = os.lstat(path)
        return known if stat.S_ISREG(found.st_mode) and looks_of(found) == known[1].looks else None

    def _remember(self, path: str, text: str, seen: Seen) -> None:
        """Keep a long text, whose encoding is sound, for whoever looks next."""
        if len(text) >= _LONG_CHARS:
            self._long.put(path, (text, seen))

    def looks_in(self, directory: MemoryUri) -> dict[str, Looks]:
        """How the plain files of a directory look, by name; those that cannot be looked at are left out."""
        found: dict[str, Looks] = {}
        try:
            with os.scandir(self.path_for(directory)) as scan:
                for entry in scan:
                    with suppress(OSError):
                        look = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(look.st_mode):
                            found[entry.name] = looks_of(look)
        except OSError:
            return found
        return found

    def stat(self, uri: MemoryUri) -> FileStat | None:
        """Size and time of the file, or None when it is absent.

        Raises:
            StorageFailed: If the system does not tell.
        """
        try:
            return stat_of(self.path_for(uri).stat())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _refused("read", uri, error) from error

    def quick_stat(self, uri: MemoryUri) -> FileStat | None:
        """Size and time of what is at the file's place; None where that is not told. Proves nothing: see ``stat``."""
        try:
            return stat_of(os.stat("/".join((str(self.root), *uri.parts))))  # noqa: PTH116 - a tenth of the time
        except OSError:
            return None

    def is_dir(self, uri: MemoryUri) -> bool:
        """Whether the URI is a directory; the root always is."""
        return not uri.parts or self.path_for(uri).is_dir()

    def is_still(self, uri: MemoryUri, seen: Seen) -> bool:
        """Whether the file is what it was; a look, and reading it only where that does not tell.

        Raises:
            StorageFailed: If the system refuses.
        """
        try:
            return is_still(self.path_for(uri), seen)
        except OSError as error:
            raise _refused("read", uri, error) from error

    def write(
        self, uri: MemoryUri, text: str | None, seen: Seen, written: Callable[[], None] = lambda: None
    ) -> FileStat | None:
        """Rename ``text`` in, or delete the file when it is None; not synced.

        Args:
            uri: The file.
            text: Its new text.
            seen: The file that this one takes the place of; another one is not overwritten.
            written: Called when the text is on disk and nothing was renamed yet.

        Raises:
            MemoryChanged: If the file is another one by now; it stays as it is.
            StorageFailed: If the system refuses.
        """
        path = self.path_for(uri)
        found: os.stat_result | None = None
        if text is None:
            written()
            done = atomic.take_away(path, lambda there: is_still(there, seen))
        else:
            expected = None if seen.sha256 is None else lambda there: is_still(there, seen)
            found = atomic.exchange(path, text, expected, written)
            done = found is not None
        if not done:
            raise _changed(uri)
        return None if found is None else stat_of(found)

    def append(
        self, uri: MemoryUri, text: str, tail: str, seen: Seen, written: Callable[[], None] = lambda: None
    ) -> FileStat:
        """Write what a log grew by at its end; not synced.

        Args:
            uri: The file, which is there.
            text: All that it is to say.
            tail: The end of that, which the file lacks.
            seen: The file that grows; another one stays as it is.
            written: Called right before.

        Raises:
            MemoryChanged: If the file is another one by now; it stays as it is.
            StorageFailed: If the system refuses; the file is then as it was.
        """
        path = self.real_path_for(uri)
        written()
        try:
            found = atomic.append(Path(path), tail, lambda there: is_still(there, seen))
        except FileNotFoundError:
            found = None
        if found is None:
            raise _changed(uri)
        self._remember(path, text, Seen(text_sha256(text), looks_of(found), stat_of(found)))
        return stat_of(found)

    def sync(self, *uris: MemoryUri) -> None:
        """Make the last ``write`` of each file survive a power loss."""
        atomic.sync(*map(self.path_for, uris))

    def entries(self, directory: MemoryUri) -> list[Entry]:
        """The visible entries of a directory by name, the two hidden summaries included.

        Names that no URI can have (hidden files, foreign links, unsafe names) are left out.

        Raises:
            NotFound: If there is no such directory.
            StorageFailed: If the system refuses to list it.
        """
        path = self.path_for(directory)
        try:
            with os.scandir(path) as scan:
                found = sorted(scan, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            if not directory.parts:
                return []
            raise no_directory(directory) from None
        except OSError as error:
            raise _refused("list", directory, error) from error
        return [entry for item in found if (entry := self._entry(directory, item)) is not None]

    def walk(self, directory: MemoryUri | None = None) -> Iterator[Entry]:
        """Every file below ``directory`` (default: the whole root), depth first."""
        for entry in self.entries(directory or MemoryUri()):
            if entry.is_dir:
                yield from self.walk(entry.uri)
            else:
                yield entry

    def contents(self) -> Iterator[tuple[str, Callable[[], BinaryIO]]]:
        """Every file below the root, machine files included: its path from there, and what opens it."""
        for path in sorted(self.root.rglob("*")):
            if path.is_file() and not path.is_symlink():
                yield path.relative_to(self.root).as_posix(), partial(_reading, path)

    def uri_of(self, path: Path) -> MemoryUri | None:
        """The URI of a path below the root; None for machine files, hidden ones and names that no URI can have."""
        if path.name.endswith(_LEFT_BY_EDITORS) and not os.path.isdir(path):  # noqa: PTH112 - Path's may raise
            return None
        try:
            parts = path.relative_to(self.root).parts
            uri = MemoryUri.parse("viking://" + "/".join(parts)) if parts else MemoryUri()
        except (ValueError, InvalidUri):
            return None
        return uri

    def moved(
        self,
        known: dict[str, FileStat | None],
        below: MemoryUri | None = None,
        *,
        enter: Callable[[MemoryUri], bool] = lambda _uri: True,
        visited: Callable[[MemoryUri, int], None] = lambda _uri, _mtime_ns: None,
    ) -> list[MemoryUri]:
        """Files that are new, gone, or no longer look as they did.

        A hundred thousand files that did not move cost a look each, and nothing is made of them. Temporary files
        that killed writers left are deleted by the way.

        Args:
            known: How files looked, by URI; what is found is taken out.
            below: Look there only; default everywhere.
            enter: Whether to enter a directory.
            visited: Told each directory that is listed, and its time right before that.
        """
        moved = list(self._moved(below or MemoryUri(), known, enter, visited))
        return moved + [MemoryUri.parse(uri) for uri in known]

    def _moved(
        self,
        directory: MemoryUri,
        known: dict[str, FileStat | None],
        enter: Callable[[MemoryUri], bool],
        visited: Callable[[MemoryUri, int], None],
    ) -> Iterator[MemoryUri]:
        prefix = str(directory) if directory.parts else "viking:/"
        try:
            path = self.path_for(directory)
            mtime_ns = path.stat().st_mtime_ns
            with os.scandir(path) as scan:
                items = list(scan)
        except (FileNotFoundError, NotADirectoryError):
            return
        except (InvalidUri, OSError) as error:  # its files are neither new nor gone: nobody knows
            for uri in [uri for uri in known if uri.startswith(f"{prefix}/")]:
                del known[uri]
            refusal = error if isinstance(error, InvalidUri) else _refused("list", directory, error)
            self.unusable["/".join(directory.parts)] = (refusal.message, refusal.hint)
            return
        self._forget_nameless("/".join(directory.parts))
        visited(directory, mtime_ns)
        for item in items:
            text = f"{prefix}/{item.name}"
            if text in known and _plain_stat(item) == known[text]:
                del known[text]
                continue
            if item.name.startswith(atomic.TEMPORARY_PREFIX):
                atomic.sweep(
                    Path(item.path), lambda content: self.is_kept(text_sha256(content.decode(errors="replace")))
                )
                continue
            entry = self._entry(directory, item)
            if entry is None:
                continue
            if entry.is_dir:
                if enter(entry.uri):
                    yield from self._moved(entry.uri, known, enter, visited)
            else:
                known.pop(str(entry.uri), None)
                yield entry.uri

    def _entry(self, directory: MemoryUri, item: os.DirEntry[str]) -> Entry | None:
        if not directory.parts and item.name not in {scope.value for scope in Scope}:
            return None
        if item.name.startswith(".") and item.name not in (ABSTRACT_NAME, OVERVIEW_NAME):
            return None
        try:
            if item.name.endswith(_LEFT_BY_EDITORS) and not item.is_dir():
                return None
            uri = directory.child(item.name)
            if uri.name != item.name and not self.path_for(uri).exists():
                raise InvalidUri("its name is in a decomposed Unicode form", hint="Rename it in composed form (NFC).")
            if item.is_symlink():
                self.path_for(uri)
                if item.is_dir():  # what it shows is listed where it is, and it may lead in circles
                    return None
            found = item.stat()
            if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
                raise InvalidUri("it is no plain file", hint="Remove it; only plain files are memory.")
        except InvalidUri as error:
            if len(self.unusable) < _UNUSABLE_MOST:
                self.unusable["/".join((*directory.parts, item.name))] = (error.message, error.hint)
            return None
        except OSError:  # gone, or not to be looked at
            return None
        return Entry(uri, item.is_dir(), stat_of(found))

    def _forget_nameless(self, directory: str) -> None:
        for path in list(self.unusable):
            if directory in (path, path.rpartition("/")[0]):
                self.unusable.pop(path, None)


def _plain_stat(item: os.DirEntry[str]) -> FileStat | None:
    """What a plain file looks like; another value for whatever is none, or is gone."""
    try:
        if item.is_file(follow_symlinks=False):
            return stat_of(item.stat(follow_symlinks=False))
    except OSError:
        pass
    return FileStat(-1, -1)


def _changed(uri: MemoryUri) -> MemoryChanged:
    return MemoryChanged(
        f"{str(uri)!r} was changed by hand in the same moment.",
        hint="Read the file, then send what is still to change.",
        uri=str(uri),
    )


def _decoded(content: bytes) -> tuple[str, bool]:
    """The text of UTF-8 bytes, and whether they are sound; others are read as U+FFFD."""
    try:
        return content.decode("utf-8"), True
    except UnicodeDecodeError:
        return content.decode("utf-8", "replace"), False


def _refused(verb: str, uri: MemoryUri, error: OSError) -> StorageFailed:
    return StorageFailed(
        f"the system refused to {verb} {str(uri)!r}: {error.strerror or error}.",
        hint="Check the permissions of the memory folder.",
    )
