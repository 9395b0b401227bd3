"""Locks shared by threads and processes; a lock dies with the process that holds it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from memory_core.core.errors import StorageFailed, StoreBusy
from memory_core.core.progress import waited

if TYPE_CHECKING:
    from filelock import FileLock

_POLL_SECONDS = 0.002
_GIVE_WAY_SECONDS = 0.5


def store_lock(state: Path) -> StoreLock:
    """Of whoever writes memories; ``state`` is the folder of machine files."""
    return StoreLock(state / "locks" / "store.lock")


class Lock(Protocol):
    """A mutex of one store, whoever uses it."""

    def held(self, timeout_seconds: float | None = None) -> AbstractContextManager[None]:
        """Hold it for the body; see ``StoreLock.held``."""
        ...


class FairLock:
    """A mutex of threads that goes to who has waited longest: whoever asks again at once lets others come between."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        #: Whose turn it is, and whose is next, first come first: each thread's own lock, released when its turn comes.
        self._holder: threading.Lock | None = None
        self._waiting: deque[threading.Lock] = deque()

    @property
    def is_awaited(self) -> bool:
        """Whether a thread waits for it."""
        return bool(self._waiting)

    def locked(self) -> bool:
        """Whether a thread holds it."""
        return self._holder is not None

    def acquire(self, timeout_seconds: float) -> bool:
        """Whether it is the caller's, who then has to release it."""
        place = threading.Lock()
        place.acquire()
        try:
            with self._guard:
                if self._holder is None:
                    self._holder = place
                    return True
                self._waiting.append(place)
            if place.acquire(timeout=max(0.0, timeout_seconds)):
                return True
            with self._guard:
                if self._holder is place:  # it came between the two
                    return True
                self._waiting.remove(place)
                return False
        except BaseException:  # Ctrl-C: what is given to nobody would be held for ever
            self._leave(place)
            raise

    def release(self) -> None:
        """Give it to who is next.

        Raises:
            RuntimeError: If nobody holds it.
        """
        with self._guard:
            if self._holder is None:
                raise RuntimeError("a lock that nobody holds was released")
            self._pass_on()

    def _leave(self, place: threading.Lock) -> None:
        """Neither wait nor hold any more."""
        with self._guard:
            if place in self._waiting:
                self._waiting.remove(place)
            elif self._holder is place:
                self._pass_on()

    def _pass_on(self) -> None:
        self._holder = self._waiting.popleft() if self._waiting else None
        if self._holder is not None:
            self._holder.release()


class StoreLock:
    """A mutex shared by every thread and process that names the same file.

    Args:
        path: The file.
        timeout_seconds: How long to wait where a caller does not say.
        guarded: What it is about, for people.
    """

    def __init__(self, path: Path, *, timeout_seconds: float = 30.0, guarded: str = "the store") -> None:
        self._threads = threading.Lock()
        self._path = path
        self._timeout_seconds = timeout_seconds
        self._guarded = guarded
        self._occupied = f"waiting for another writer of {guarded}"

    @cached_property
    def _processes(self) -> FileLock:
        from filelock import FileLock  # whoever only reads takes no lock

        return FileLock(self._path, mode=0o600, thread_local=False)

    @contextmanager
    def held(self, timeout_seconds: float | None = None) -> Iterator[None]:
        """Hold the lock for the body.

        Args:
            timeout_seconds: How long to wait; default what the lock was made with.

        Raises:
            StoreBusy: If it was not free within the timeout.
            StorageFailed: If the system refuses the lock's file.
        """
        patience = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        ends_at = time.monotonic() + patience
        if not waited(lambda seconds: self._threads.acquire(timeout=seconds), patience, self._occupied):
            raise self._busy(patience)
        try:
            try:
                if not waited(self._acquired, max(0.0, ends_at - time.monotonic()), self._occupied):
                    raise self._busy(patience)
            except OSError as error:
                raise StorageFailed(
                    f"{self._guarded} cannot be locked for writing: {error.strerror or error}.",
                    hint=f"Check free space and the permissions of its folder, then try again: {self._path.parent}",
                ) from error
            try:
                yield
            finally:
                self._processes.release()
        finally:
            self._threads.release()

    def give_way(self) -> None:
        """Wait a moment while a thread of this process holds the lock: a long read would take the processor from it."""
        ends_at = time.monotonic() + _GIVE_WAY_SECONDS
        while self._threads.locked() and time.monotonic() < ends_at:
            time.sleep(_POLL_SECONDS)

    def _acquired(self, timeout_seconds: float) -> bool:
        """Whether no other process holds the lock any more, after so long a wait at most."""
        from filelock import Timeout

        try:
            self._processes.acquire(timeout=timeout_seconds, poll_interval=_POLL_SECONDS)
        except Timeout:
            return False
        return True

    def _busy(self, waited_seconds: float) -> StoreBusy:
        return StoreBusy(
            f"another writer has held {self._guarded} for {waited_seconds:g} s.",
            hint="Send the same request again; give it a request_id so that it is applied once.",
        )
