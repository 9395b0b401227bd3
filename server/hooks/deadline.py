"""The moment after which a hook is over, whatever it is doing: a store that hangs never holds up its host.

The answer is written whole before it, or not at all. Ending is abrupt, as a kill would be; what is being stored then is
in the ledger or not, and a note of it stays (``pending``).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

#: Python itself takes about so long before anything of ours runs.
_STARTED_SECONDS = 0.03


class Deadline:
    """Ends the process with status 0 when it passes.

    Args:
        seconds: From the start of the process, about.
        late: Called right before; must not take long.
    """

    def __init__(self, seconds: float, late: Callable[[], None] = lambda: None) -> None:
        self._at = time.monotonic() + seconds - _STARTED_SECONDS
        self._late = late
        self._speaking = threading.Lock()
        self._met = threading.Event()

    @property
    def left_seconds(self) -> float:
        """What is left of it, >= 0."""
        return max(0.0, self._at - time.monotonic())

    def start(self) -> None:
        """Watch over this process from now on."""
        threading.Thread(target=self._watch, name="runebook-deadline", daemon=True).start()

    def move(self, seconds: float) -> None:
        """Let it pass later: so long after now. The watch must not have started."""
        self._at = time.monotonic() + seconds

    def say(self, text: str) -> None:
        """Write the answer; after the deadline nothing is written any more."""
        with self._speaking:
            self._met.set()
            sys.stdout.write(text)
            sys.stdout.flush()

    def meet(self) -> None:
        """The work is done."""
        self._met.set()

    def _watch(self) -> None:
        if self._met.wait(self.left_seconds):
            return
        with self._speaking:
            if not self._met.is_set():
                self._late()
                os._exit(0)
