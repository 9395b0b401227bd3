"""Maintenance that a running server does by itself, now and then, in one of the processes of a store at a time.

When it was done last stands in a file of the machine's folder; who deletes it has it done once more. The lock belongs
to the process, so a killed one keeps nobody from it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from memory_core.errors import RunebookError, StoreBusy
from memory_core.storage import atomic
from memory_core.storage.lock import StoreLock

_log = logging.getLogger(__name__)
#: A server that just started has better things to do, and one that is asked a single question ends before this.
_START_SECONDS = 20.0
#: A clock that is set back, or another process that is at it, is looked at again after this.
_LOOK_SECONDS = 600.0
_NAME = "maintained-at"


class AutomaticMaintenance:
    """A thread that runs maintenance when it is due; stopped by ``stop``.

    Args:
        state: The store's folder of machine files.
        every: How often.
        run: Does it; is told the moment, and whether it should come to an end.
        start_seconds: How long to wait at first.
    """

    def __init__(
        self,
        state: Path,
        every: timedelta,
        run: Callable[[datetime, threading.Event], None],
        start_seconds: float = _START_SECONDS,
    ) -> None:
        self._noted = state / _NAME
        self._lock = StoreLock(state / "locks" / "maintenance.lock", timeout_seconds=0.0)
        self._every = every
        self._run = run
        self._start_seconds = start_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="runebook-maintain", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the commit that is being made; safe to call twice."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def due_in(self, now: datetime) -> timedelta:
        """The time until maintenance is due; zero if it is."""
        try:
            last = datetime.fromisoformat(self._noted.read_text(encoding="utf-8").strip())
            return max(timedelta(), min(last - now, timedelta()) + self._every)
        except (OSError, ValueError, TypeError):
            return timedelta()

    def run_if_due(self, now: datetime) -> bool:
        """Do it now if it is due and nobody else is at it.

        Returns:
            Whether it was done.
        """
        if self.due_in(now):
            return False
        try:
            with self._lock.held():
                if self.due_in(now):
                    return False
                self._run(now, self._stopping)
                if self._stopping.is_set():
                    return False
                atomic.replace(self._noted, f"{now.isoformat(timespec='seconds')}\n")
                return True
        except StoreBusy:
            return False

    def _work(self) -> None:
        wait_seconds = self._start_seconds
        while not self._stopping.wait(wait_seconds):
            now = datetime.now(UTC)
            try:
                self.run_if_due(now)
            except (RunebookError, OSError) as error:
                _log.warning("maintenance was put off: %s", error)
            wait_seconds = max(1.0, min(_LOOK_SECONDS, self.due_in(now).total_seconds() or _LOOK_SECONDS))
