"""Background work keeps out of the way: it begins when requests pause, or after a bounded time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

_log = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.1
_LIMIT_SECONDS = 1.0


class Background:
    """What requests leave to be done after their answer, by one thread, all of it before the store is closed."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._turn = threading.Lock()
        self._jobs: list[Callable[[], None]] = []
        self._asked = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def later(self, job: Callable[[], None]) -> None:
        """Have a job done soon; one that waits already, an equal one, is done once.

        Args:
            job: Deals with its own errors; another one is logged.
        """
        with self._guard:
            if job not in self._jobs:
                self._jobs.append(job)
            if not (self._thread and self._thread.is_alive()) and not self._closing.is_set():
                self._thread = threading.Thread(target=self._work, name="runebook-background", daemon=True)
                self._thread.start()
        self._asked.set()

    def finish(self) -> None:
        """Do now what waits, and wait for what is being done."""
        with self._turn:
            while (job := self._next()) is not None:
                try:
                    job()
                except Exception:  # noqa: BLE001 - what waits behind it is done all the same
                    _log.exception("background work failed")

    def close(self) -> None:
        """Do what waits, and end; safe to call twice."""
        self._closing.set()
        self._asked.set()
        with self._guard:  # it may be starting
            thread = self._thread
        if thread is not None:
            thread.join()
        self.finish()

    def _next(self) -> Callable[[], None] | None:
        with self._guard:
            return self._jobs.pop(0) if self._jobs else None

    def _work(self) -> None:
        while not self._closing.is_set():
            self._asked.wait()
            await_quiet(self._asked, self._closing, pause_seconds=_PAUSE_SECONDS, limit_seconds=_LIMIT_SECONDS)
            self.finish()


def await_quiet(wake: threading.Event, closing: threading.Event, *, pause_seconds: float, limit_seconds: float) -> None:
    """Return once ``wake`` was not set for ``pause_seconds``, after ``limit_seconds``, or when closing.

    ``wake`` is clear on return, so that what is asked for from now on is not overlooked.
    """
    until = time.monotonic() + limit_seconds
    while True:
        wake.clear()
        if closing.wait(pause_seconds) or not wake.is_set() or time.monotonic() >= until:
            wake.clear()
            return
