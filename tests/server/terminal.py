"""One person at a pseudo-terminal: what a command shows there, and what is typed."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Self

import pytest

from tests.waiting import PATIENCE_SECONDS

if sys.platform != "win32":
    import pty
    import termios

needs_terminal = pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")


class Terminal:
    """``runebook *arguments`` on a terminal of its own, and the person who reads and types there."""

    def __init__(self, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        self._end, theirs = pty.openpty()
        settings = termios.tcgetattr(theirs)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(theirs, termios.TCSANOW, settings)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "server.cli", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=env,
            start_new_session=True,
            preexec_fn=_own_terminal,
        )
        os.close(theirs)
        self._seen = self._told = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._end)

    def shows(self, text: str, seconds: float) -> bool:
        """Whether a text appears in time."""
        deadline = time.monotonic() + seconds
        while text.encode() not in self._seen:
            ready, _, _ = select.select([self._end], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return False
            try:
                more = os.read(self._end, 65_536)
            except OSError:
                raise AssertionError(f"it ended before {text!r}: {self._seen.decode()}") from None
            self._seen, self._told = self._seen + more, self._told + more
        return True

    def until(self, text: str) -> str:
        """What appears until ``text`` does, which is taken, too."""
        assert self.shows(text, PATIENCE_SECONDS), self._seen.decode()
        wanted = text.encode()
        before, _, self._seen = self._seen.partition(wanted)
        return (before + wanted).decode().replace("\r\n", "\n")

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def answers(self, question: str, answer: str) -> None:
        """Wait for a question, the first after those that were answered."""
        self.until(question)
        self.type(f"{answer}\n")

    def ask(self, line: str) -> str:
        """Type a line at the prompt; what appears until the next one."""
        self.type(f"{line}\n")
        return self.until("you> ")

    @property
    def shown(self) -> str:
        """All that appeared so far."""
        return self._told.decode("utf-8", "replace")

    def status(self) -> int:
        """Of the end; what was still said is in ``shown``."""
        with suppress(OSError):  # the other side is closed
            while more := os.read(self._end, 65_536):
                self._told += more
        return self.process.wait(PATIENCE_SECONDS)


def _own_terminal() -> None:
    import fcntl

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
