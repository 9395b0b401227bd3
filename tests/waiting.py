"""Waiting for what comes about in another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Never reached by a passing test, however busy the machine is.
PATIENCE_SECONDS = 120.0


def soon(outcome: Callable[[], bool]) -> bool:
    """Whether it comes about while one waits; how long that takes does not matter."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not outcome():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True
