"""When each directory last changed: a look at it tells of files that are new, gone, renamed or replaced by a rename.

Costs one ``stat`` a directory, and looks for about a millisecond at a time: where there are more directories than that
allows, those of memories come first and the others take turns. A file that was edited in place leaves no mark here.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from memory_core.model.uri import MemoryUri, Scope
from memory_core.storage.file_store import FileStore
from memory_core.storage.ledger import Ledger

_GLANCE_SECONDS = 0.001
#: Directories of one glance of each kind, at most.
_GLANCED = 400
#: File times tick this coarsely on some systems: a directory that changed since then may change again unseen.
_TICK_NS = 20_000_000
#: Entries of a directory that are compared before a search; a larger one is left to the watcher and the scans.
_LARGE = 5_000


@dataclass(slots=True)
class _Directory:
    path: str
    mtime_ns: int


class DirectoryTimes:
    """The known directories of one store; safe to use from many threads."""

    def __init__(self, files: FileStore, ledger: Ledger) -> None:
        self._files = files
        self._ledger = ledger
        self._guard = threading.Lock()
        self._memories: dict[MemoryUri, _Directory] = {}
        self._others: dict[MemoryUri, _Directory] = {}

    def note(self, directory: MemoryUri, mtime_ns: int) -> None:
        """A directory is about to be listed; ``mtime_ns`` is from right before."""
        if time.time_ns() - mtime_ns < _TICK_NS:
            mtime_ns = 0
        with self._guard:
            self._kind(directory)[directory] = _Directory(self._path(directory), mtime_ns)

    def moved(self) -> list[MemoryUri]:
        """Files of directories that changed, where ledger and disk may differ."""
        found: list[MemoryUri] = []
        for directory in self._changed():
            path = self._path(directory)
            if _mtime_ns(path) is None:
                with self._guard:
                    self._kind(directory).pop(directory, None)
                found += map(MemoryUri.parse, self._ledger.movements.stats(directory))
                continue
            known = self._ledger.movements.stats_in(directory)
            if len(known) > _LARGE:
                self.note(directory, _mtime_ns(path) or 0)
                continue
            found += self._files.moved(known, directory, enter=self._is_new, visited=self.note)
        return found

    @contextmanager
    def writing(self, directories: set[MemoryUri]) -> Iterator[None]:
        """The body writes files of these directories itself, which is no reason to look at them."""
        around = {MemoryUri(uri.parts[:length]) for uri in directories for length in range(len(uri.parts) + 1)}
        paths = {uri: self._path(uri) for uri in around}
        with self._guard:
            current = [uri for uri in around if self._is_current(uri, _mtime_ns(paths[uri]))]
        try:
            yield
        finally:
            with self._guard:
                for uri in current:
                    mtime_ns = _mtime_ns(paths[uri])
                    if mtime_ns is not None:
                        self._kind(uri)[uri] = _Directory(paths[uri], mtime_ns)

    def _is_current(self, directory: MemoryUri, mtime_ns: int | None) -> bool:
        """Whether nothing happened there since the last look; also if it is about to be made."""
        known = self._kind(directory).get(directory)
        return known.mtime_ns == mtime_ns if known is not None else mtime_ns is None

    def _changed(self) -> list[MemoryUri]:
        until = time.monotonic() + _GLANCE_SECONDS
        changed: list[MemoryUri] = []
        with self._guard:
            for kind in (self._memories, self._others):
                for uri in list(islice(kind, _GLANCED)):
                    known = kind[uri] = kind.pop(uri)  # last in line: the next ones come first the next time
                    if _mtime_ns(known.path) != known.mtime_ns:
                        changed.append(uri)
                    if time.monotonic() >= until:
                        break
        return changed

    def _is_new(self, directory: MemoryUri) -> bool:
        with self._guard:
            return directory not in self._kind(directory)

    def _kind(self, directory: MemoryUri) -> dict[MemoryUri, _Directory]:
        return self._others if directory.scope in (Scope.SESSION, Scope.ARCHIVE) else self._memories

    def _path(self, directory: MemoryUri) -> str:
        return str(self._files.root.joinpath(*directory.parts))


def _mtime_ns(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 - twice as fast, before every search
    except OSError:
        return None
