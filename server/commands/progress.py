"""Progress of long work, as one line on stderr: often to a person, seldom to a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memory_core.index.embedding import Progress as Embedded

_SHOW_SECONDS = 0.2
_LOG_SECONDS = 5.0


class Progress:
    """Tells how far work is; entering gives the function to tell it with.

    Args:
        patience: Whether nothing is told of work that is quick; by default the first word is told at once.
    """

    def __init__(self, *, patience: bool = False) -> None:
        self._live = sys.stderr.isatty()
        self._pause_seconds = _SHOW_SECONDS if self._live else _LOG_SECONDS
        self._next_at = time.monotonic() + self._pause_seconds if patience else 0.0
        self._told = False

    def __enter__(self) -> Callable[[str], None]:
        return self._tell

    def __exit__(self, *_: object) -> None:
        if self._live and self._told:
            print(file=sys.stderr)

    def _tell(self, line: str) -> None:
        if time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + self._pause_seconds
            self._told = True
            print(f"\r{line}" if self._live else line, end="" if self._live else "\n", file=sys.stderr, flush=True)


def passages_line(embedded: Embedded) -> str:
    """How many passages have a vector."""
    return f"{embedded.done:,} of {embedded.total:,} passages have a vector"
