"""One writer at a time, across threads and processes.

The lock is advisory and belongs to the process: the operating system frees it when the process dies, so a
killed writer never locks anybody out.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from memory_core.errors import StoreBusy

_POLL_SECONDS = 0.002


class StoreLock:
    """A mutex shared by every thread and process that names the same file."""

    def __init__(self, path: Path, *, timeout_seconds: float = 30.0) -> None:
        self._threads = threading.Lock()
        self._processes = FileLock(path, mode=0o600, thread_local=False)
        self._timeout_seconds = timeout_seconds

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock for the body.

        Raises:
            StoreBusy: If it was not free within the timeout.
        """
        if not self._threads.acquire(timeout=self._timeout_seconds):
            raise self._busy()
        try:
            try:
                self._processes.acquire(timeout=self._timeout_seconds, poll_interval=_POLL_SECONDS)
            except Timeout:
                raise self._busy() from None
            try:
                yield
            finally:
                self._processes.release()
        finally:
            self._threads.release()

    def _busy(self) -> StoreBusy:
        return StoreBusy(
            f"another writer has held the store for {self._timeout_seconds:g} s.",
            hint="Send the same request again; give it a request_id so that it is applied once.",
        )
