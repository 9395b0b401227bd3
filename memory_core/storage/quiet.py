"""Background work keeps out of the way: it begins when requests pause, or after a bounded time."""

from __future__ import annotations

import threading
import time


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
