"""Notices what people and other programs do to the files while the server runs.

The operating system tells which files changed (``watchfiles``); adoption decides what that means. What the system does
not tell is found by a scan: after too many changes at once, regularly, and often where watching fails (the limit of
watches is reached, a network file system). Scans take at most one hundredth of the time. Nothing is decided here, and
nothing depends on it: the look before a search and the next start find the same.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from memory_core.core.errors import RunebookError
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.store.atomic import TEMPORARY_PREFIX
from memory_core.core.store.files import FileStore
from memory_core.core.store.hand_edits import Adoption

_log = logging.getLogger(__name__)
_DEBOUNCE_MILLISECONDS = 100
_STEP_MILLISECONDS = 50
#: How soon it is noticed that folders to watch appeared, or were replaced.
_TURN_MILLISECONDS = 1_000
#: More changes at once than that, and some may be missing.
_MANY = 2_000
_SHARE = 0.01
#: The first requests of a new server are not kept waiting for the import.
_START_SECONDS = 0.5
#: Seconds between scans while the system tells of changes, and while it does not.
_SCAN_SECONDS, _BLIND_SCAN_SECONDS = 60.0, 2.0
#: How soon watching is tried again where it failed.
_RETRY_SECONDS = 60.0


class Watcher:
    """Watches one memory folder in a thread of its own.

    Args:
        files: The folder.
        adoption: Is told what changed.
        closing: Ends the thread.
    """

    def __init__(self, files: FileStore, adoption: Adoption, closing: threading.Event) -> None:
        self._files = files
        self._adoption = adoption
        self._closing = closing
        self._scan_due = 0.0
        self._blind_until = 0.0
        self._told: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="runebook-watch", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the end, which ``closing`` brings about."""
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        self._closing.wait(_START_SECONDS)
        while not self._closing.is_set():
            folders = self._folders()
            if not folders or time.monotonic() < self._blind_until:
                self._scan_if_due(_BLIND_SCAN_SECONDS)
                self._closing.wait(_TURN_MILLISECONDS / 1_000)
                continue
            try:
                self._follow(folders)
            except (OSError, RuntimeError) as error:  # watchfiles' own error is a RuntimeError
                self._tell("changes are not watched but looked for every few seconds: %s", str(error))
                self._blind_until = time.monotonic() + _RETRY_SECONDS
                self._scan_due = 0.0

    def _follow(self, folders: dict[str, int]) -> None:
        """Take in what the system tells, until the folders are others."""
        import watchfiles

        logging.getLogger("watchfiles").setLevel(logging.WARNING)  # it names every file
        self._scan_due = 0.0
        for changes in watchfiles.watch(
            *folders,
            watch_filter=None,
            debounce=_DEBOUNCE_MILLISECONDS,
            step=_STEP_MILLISECONDS,
            stop_event=self._closing,
            rust_timeout=_TURN_MILLISECONDS,
            yield_on_timeout=True,
            raise_interrupt=False,
            force_polling=False,
            ignore_permission_denied=True,
        ):
            if len(changes) > _MANY:
                self._scan_due = 0.0
            elif changes:
                self._take_in(Path(path) for _, path in changes)
            self._scan_if_due(_SCAN_SECONDS)
            if self._folders() != folders:
                return

    def _folders(self) -> dict[str, int]:
        """The folders to watch, with what tells that one was replaced."""
        found: dict[str, int] = {}
        for scope in Scope:
            path = self._files.root / scope.value
            try:
                found[str(path)] = os.stat(path).st_ino  # noqa: PTH116 - every second
            except OSError:
                continue
        return found

    def _take_in(self, paths: Iterable[Path]) -> None:
        directories: list[MemoryUri] = []
        files: list[MemoryUri] = []
        for path in paths:
            if path.name.startswith(TEMPORARY_PREFIX):
                continue
            uri = self._files.uri_of(path)
            if uri is None:
                continue
            # What is gone may have been a folder, whose files then are gone too.
            is_file = os.path.isfile(path)  # noqa: PTH113 - Path's raises where a folder may not be entered
            (files if is_file else directories).append(uri)
        try:
            self._adoption.take_in([*self._adoption.below(directories), *files])
        except RunebookError as error:
            self._tell("files changed by hand were not taken in yet: %s", error.message)
            self._scan_due = 0.0

    def _scan_if_due(self, seconds: float) -> None:
        started = time.monotonic()
        if started < self._scan_due:
            return
        try:
            self._adoption.scan()
        except RunebookError as error:
            self._tell("files changed by hand were not taken in yet: %s", error.message)
        took = time.monotonic() - started
        self._scan_due = time.monotonic() + max(seconds, took / _SHARE)

    def _tell(self, message: str, reason: str) -> None:
        """Once for each reason."""
        if reason not in self._told:
            self._told.add(reason)
            _log.warning(message, reason)
