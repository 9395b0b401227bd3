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
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType

#: Controls of both sets, marks of direction, blanks without width (joiners stay: emoji and scripts need them), tags.
_ACTED_UPON = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def plain(text: str) -> str:
    """The text with escapes for what a terminal would act upon."""
    return _ACTED_UPON.sub(_escaped, text)


def plain_json(text: str) -> str:
    """JSON with the same characters escaped; it means what it meant."""
    return _ACTED_UPON.sub(_escaped_for_json, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escaped_for_json(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


#: A name may hold blanks: up to the last ending of a memory's file in the line, else to the next blank.
_URI = re.compile(r"viking://(?:[^\n]*\.(?:md|jsonl)\b(?:#\d+)?|[^\s'\",;)]*)")
_FILE = re.compile(r"(?:(?<![\w:/])|(?<=file:))(?:/|[A-Za-z]:\\)[^\n]*\.(?:md|jsonl)\b")
_QUOTED = re.compile(r"(?<!\w)(?:'(?:[^'\\\n]|\\.)+'|\"(?:[^\"\\\n]|\\.)+\"|`[^`\n]+`|“[^”\n]+”)(?!\w)")
_LEFT_OUT = "…"
_KEY_NAME = re.compile(r".*(?:KEY|TOKEN|SECRET|PASSWORD)", re.IGNORECASE)
_LEAST_KEY_CHARS = 8


class LogLine(logging.Formatter):
    """Formats records without content and without secrets.

    Args:
        form: As for ``logging.Formatter``.
        environment: Variables whose values are never written, if their names are those of keys.
    """

    def __init__(self, form: str, environment: Mapping[str, str] = os.environ) -> None:
        super().__init__(form)
        self._keys = tuple(
            value for name, value in environment.items() if _KEY_NAME.fullmatch(name) and len(value) >= _LEAST_KEY_CHARS
        )

    def format(self, record: logging.LogRecord) -> str:
        """The line; of an exception below it, the same."""
        from memory_core.features.redaction import Redaction  # a start has no time for it

        text = super().format(record)
        for key in self._keys:
            text = text.replace(key, _LEFT_OUT)
        text = Redaction().text(text)
        return text if record.levelno <= logging.DEBUG else without_content(text)


def without_content(text: str) -> str:
    """The text without URIs, files of memories and quotations."""
    return _QUOTED.sub(f"'{_LEFT_OUT}'", _FILE.sub(_LEFT_OUT, _URI.sub(f"viking://{_LEFT_OUT}", text)))


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
