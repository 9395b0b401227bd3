"""Ending a process, or a commit of this one, at a step that a commit reaches."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.fork_server import starter

_SCRIPT = """
import os, signal, sys
from pathlib import Path
from memory_core.runebook import open_memory
from tests.stores import words_only
home, stop_at, nth, early, *given = sys.argv[1:]
armed, seen = bool(early), []
def step(name):
    seen.append(name)
    if armed and name == stop_at and seen.count(name) >= int(nth):
        os.kill(os.getpid(), signal.SIGKILL)
with open_memory(words_only(Path(home)), step=step) as memory:
    armed = True
"""


def killed(
    home: Path, stop_at: str, nth: int, lines: str, *given: object, early: bool = True
) -> subprocess.CompletedProcess[bytes]:
    """A process that does these lines with ``memory`` and ``given``, and is killed when a step comes for the nth time.

    Unless ``early``, it outlives the opening of the store.
    """
    body = "".join(f"    {line}\n" for line in lines.strip().splitlines())
    return starter().run(_SCRIPT + body, home, stop_at, nth, "early" if early else "", *given)


class Killed(BaseException):
    """The process died here."""


class Killer:
    """Dies at the nth time that a commit reaches a step, once it is armed with both."""

    def __init__(self, step: str = "", left: int = 0) -> None:
        self.step, self.left = step, left

    def __call__(self, name: str) -> None:
        if name == self.step:
            self.left -= 1
            if self.left == 0:
                raise Killed(name)
