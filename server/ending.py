"""How a serving process ends: what asks it to, by when it is gone, and with which exit status.

Owns: the signals, the last moment, the status. Promises: once the end has begun the process is gone within
``END_SECONDS``, whatever its threads wait for; hosts kill about two seconds after they ask. What was acknowledged is on
disk by then; what was not may be there or not, never half.

Exit status: 0 when the client left (end of input, closed pipe); 128 plus the signal's number when a signal asked
(SIGTERM 143, SIGINT 130, SIGHUP 129), as a shell would report it. A signal that the process was started to ignore, as
``nohup`` and background jobs do, stays ignored. The second signal ends the process on the spot.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

#: Half a second less than hosts wait: a process of a large store takes a while to be taken down.
END_SECONDS = 1.5


class Ending:
    """The end of one serving, from its first reason to the last moment. Make it in the running loop.

    Args:
        seconds: Until the last moment; None where the process goes on when the serving has ended.
    """

    def __init__(self, seconds: float | None = END_SECONDS) -> None:
        self.status = 0
        self._loop = asyncio.get_running_loop()
        self._begun = asyncio.Event()
        self._last_moment = threading.Timer(END_SECONDS if seconds is None else seconds, self._leave)
        self._last_moment.daemon = True
        self._leaves = seconds is not None
        self._guard = threading.Lock()

    async def begun(self) -> None:
        """Return when something asked for the end."""
        await self._begun.wait()

    def begin(self, status: int = 0) -> None:
        """Begin to end; from any thread and from a signal handler. The first status counts."""
        if self._guard.acquire(blocking=False):  # never released: the end begins once
            self.status = status
            if self._leaves:
                self._last_moment.start()
        with suppress(RuntimeError):  # the loop is closed: it has ended
            self._loop.call_soon_threadsafe(self._begun.set)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Begin at the first termination signal, and see to it that the end comes; afterwards all is as before."""
        try:
            with self._signals():
                yield
        finally:
            self._last_moment.cancel()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # Python delivers signals to the main thread only
            return
        asked = False

        def on_signal(number: int, _frame: FrameType | None) -> None:
            nonlocal asked
            if asked:
                os._exit(128 + number)
            asked = True
            self.begin(128 + number)

        previous = {number: signal.getsignal(number) for number in _numbers()}
        heeded = [number for number, handler in previous.items() if handler is not signal.SIG_IGN]
        for number in heeded:
            # The loop's own handler only arms its wake-up descriptor, for a signal that interrupts another thread than
            # the loop's. Ours replaces it, so that a blocked loop still hears the second signal. Windows loops wake by
            # themselves.
            with suppress(NotImplementedError):
                self._loop.add_signal_handler(number, lambda: None)
            signal.signal(number, on_signal)
        try:
            yield
        finally:
            for number in heeded:
                with suppress(NotImplementedError):
                    self._loop.remove_signal_handler(number)
                signal.signal(number, previous[number] or signal.SIG_DFL)

    def _leave(self) -> None:
        os._exit(self.status)


def _numbers() -> list[signal.Signals]:
    if sys.platform == "win32":
        return [signal.SIGTERM, signal.SIGINT, signal.SIGBREAK]
    return [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
