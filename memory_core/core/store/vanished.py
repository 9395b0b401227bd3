"""Files that vanished all at once: not deleted by hand until their owner says so.

A ledger that was moved without its files, an unmounted disk, a wrong folder: nearly every file of a store is gone in
one moment. Recording that as deletions by hand would empty the index and the directory lists; so such files are
remembered here, under ``.state``, and left as the ledger has them. They come back with their folder, or anew from the
ledger (``bring_back``; not those that were not UTF-8), or their owner confirms that they were deleted (``release``).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from memory_core.core.errors import InvalidInput, InvalidUri, StorageFailed
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.store import atomic
from memory_core.core.store.files import FileStore, Seen
from memory_core.core.store.ledger import Ledger, is_lossy
from memory_core.core.store.locks import StoreLock

_log = logging.getLogger(__name__)
#: Whoever has fewer files may well delete them all.
_LEAST_FILES = 8
#: A folder with less than this part of its files was not tidied by a person.
_TENTH = 10


class Vanished:
    """The files of one store that vanished; safe to use from many threads.

    Args:
        files: The files.
        ledger: What is known of them.
    """

    def __init__(self, files: FileStore, ledger: Ledger) -> None:
        self._files = files
        self._ledger = ledger
        self._path = files.state / "vanished"
        self._guard = threading.Lock()
        self._version: tuple[int, int] | None = None
        self._held: frozenset[str] = frozenset()
        self._reviewed = False  # what came back before this process began is looked for once
        self._considering = threading.Lock()

    @property
    def held(self) -> frozenset[str]:
        """URIs of the files that are gone and not taken for deleted."""
        with self._guard:
            version = _version_of(self._path)
            if version != self._version:
                self._held = _read(self._path)
                self._version = version
            return self._held

    def holds(self, uri: MemoryUri) -> bool:
        """Whether this file is gone and not taken for deleted."""
        return str(uri) in self.held

    def text(self, uri: MemoryUri) -> str | None:
        """What the ledger has of a file that is gone and not taken for deleted; None for any other.

        Raises:
            InvalidInput: If that is not all of it: the file was not UTF-8.
        """
        if not self.holds(uri):
            return None
        if self.is_lossy(uri):
            raise InvalidInput(
                f"{str(uri)!r} is gone, and was not UTF-8 text: history has only what could be read of it.",
                hint="Put the file back, or confirm that it was deleted: runebook restore --forget-missing.",
            )
        return self._ledger.text_at(uri)

    def is_lossy(self, uri: MemoryUri) -> bool:
        """Whether the ledger has only what could be read of a file that is gone."""
        row = self._ledger.file(uri)
        if row is None or not self._is_gone(uri):
            return False
        return is_lossy(self._ledger.text_at(uri) or "", None if row.stat is None else row.stat.size_bytes)

    def returned(self, uris: Iterable[MemoryUri]) -> None:
        """Hold no longer what is there again: from now on it can be deleted by hand, as any file."""
        if not self.held:
            return
        with self._considering:  # of two threads the second finds what the first has written
            held = self.held
            looked_at = held.intersection(str(uri) for uri in uris) if self._reviewed else held
            self._reviewed = True
            back = {uri for uri in looked_at if not self._is_gone(MemoryUri.parse(uri))}
            if back:
                self._write(held - back)

    def sifted(self, uris: Sequence[MemoryUri]) -> list[MemoryUri]:
        """Those of these files that differ from the ledger for another reason than that everything is gone."""
        if any(self._is_gone(uri) and self._ledger.file(uri) for uri in uris if str(uri) not in self.held):
            with self._considering:  # of two threads that notice it at once one says so
                self._consider()
        held = self.held
        return [uri for uri in uris if str(uri) not in held or not self._is_gone(uri)]

    def _consider(self) -> None:
        """Hold every file that is gone, if the folder is as good as empty."""
        known = self._ledger.stats().keys() - self.held
        most = len(known) // _TENTH
        if len(known) < _LEAST_FILES or sum(1 for _ in islice(self._present(), most + 1)) > most:
            return
        gone = {uri for uri in known if self._is_gone(MemoryUri.parse(uri))}
        self._write(self.held | gone)
        _log.warning(
            "%d of %d files are gone from %s all at once, and are not taken for deleted. If this folder was moved "
            "without them, copy them beside .state. To write them anew from the history: runebook restore --missing. "
            "If they were deleted on purpose: runebook restore --forget-missing",
            len(gone),
            len(known),
            self._files.root.name,
        )

    def _present(self) -> Iterator[str]:
        """The files that are there, as they are met; not the pages of directories, which are written by themselves."""
        for scope in Scope:
            for path in _files_below(self._files.root / scope.value):
                if not os.path.basename(path).startswith("."):  # noqa: PTH119 - as text
                    yield path

    def bring_back(self, lock: StoreLock) -> list[MemoryUri]:
        """Write the files anew as the ledger has them; those that are there again are left as they are.

        Those that were not UTF-8 are still ``held``: the ledger has only what could be read of them.

        Raises:
            StoreBusy: If another writer held the store too long.
            StorageFailed: If the disk refuses; what was not written stays ``held``.
        """
        written: list[MemoryUri] = []
        left: list[str] = []
        with lock.held():
            for uri in self._parsed():
                text = self._ledger.text_at(uri) if self._ledger.file(uri) else None
                if self.is_lossy(uri):
                    left.append(str(uri))
                elif text is not None and self._is_gone(uri):
                    self._files.write(uri, text, Seen(None))
                    self._files.sync(uri)
                    written.append(uri)
            self._write(left)
        return written

    def release(self) -> list[MemoryUri]:
        """Hold none any more: those that are still gone were deleted.

        Returns:
            What was held.
        """
        held = self._parsed()
        self._write(())
        return held

    def _parsed(self) -> list[MemoryUri]:
        return [MemoryUri.parse(uri) for uri in sorted(self.held)]

    def _is_gone(self, uri: MemoryUri) -> bool:
        try:
            return self._files.stat(uri) is None
        except (InvalidUri, StorageFailed):
            return False

    def _write(self, uris: Iterable[str]) -> None:
        text = "".join(f"{uri}\n" for uri in sorted(uris))
        if text:
            atomic.replace(self._path, text)
        else:
            atomic.remove(self._path)


def _version_of(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - half the time of Path.stat, for each file that is gone
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _read(path: Path) -> frozenset[str]:
    try:
        return frozenset(path.read_text(encoding="utf-8").splitlines())
    except FileNotFoundError:
        return frozenset()


def _files_below(folder: Path) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _files_below(Path(entry.path))
                else:
                    yield entry.path
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
