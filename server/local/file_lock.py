"""A lock on a file that the system frees when its holder is gone; held for a process's whole life.

Own code rather than ``filelock``, which the rest of the program uses: that package costs the bridge more to import than
everything else it does. Imports the standard library only.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path


class FileLock:
    """A lock that one process of the machine can hold.

    Args:
        path: Its file; stays when the lock is gone.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Whether it could be had, at once.

        Raises:
            OSError: If the file cannot be made.
        """
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(self._path, flags, 0o600)
        try:
            _lock(descriptor)
        except OSError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Give it back; safe to call twice."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None


def _lock(descriptor: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
