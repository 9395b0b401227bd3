"""Progress of long work on stderr: a bar for a person, a line now and then for a log, nothing of what is quick.

Owns how it looks. What is shown are stages of work (``memory_core.core.progress``): those that a command makes itself,
and whatever the library tells while the command runs, also while nothing moves. stdout is not touched, so ``--json``
stays JSON.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from memory_core.core.progress import Listener, Stage, listening

if TYPE_CHECKING:
    from memory_core.core.index.embedding_queue import Progress as Embedded


#: Work that is over sooner is not shown.
_PATIENCE_SECONDS = 0.5
_LOG_SECONDS = 5.0
_TICK_SECONDS = 0.5
_FIGURES = "{n_fmt} of {total_fmt} {unit} [{elapsed}, {remaining} left, {rate_noinv_fmt}]"
_COUNTED = f"{{desc}}: {{percentage:3.0f}}% |{{bar:30}}| {_FIGURES}"
_UNCOUNTED = "{desc} [{elapsed}]{bar}"  # a blank one: without, tqdm would not cut what is wider than the terminal


#: What a stream raises that nobody reads any more, or that is closed; the work that is shown goes on.
_STREAM_GONE = (OSError, ValueError)
#: Rows that tqdm may believe in: one line, and one below; without it, tqdm draws none where a terminal does not tell
#: its size.
_ROWS = 2


class Progress:
    """Shows stages of work while its body runs; entering gives the function to tell them with."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        # A process that was started with a closed stderr has none.
        stream = sys.stderr or self._stack.enter_context(Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - it does
        live = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._shown: Bar | LogLines = Bar(stream) if live else LogLines(stream)
        self._turn = threading.Lock()
        self._over = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="progress", daemon=True)

    def __enter__(self) -> Listener:
        self._stack.enter_context(listening(self._show))
        self._ticker.start()
        return self._show

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._over.set()
        self._ticker.join()
        with suppress(*_STREAM_GONE):
            self._shown.close()

    def _show(self, stage: Stage) -> None:
        with self._turn, suppress(*_STREAM_GONE):
            self._shown.show(stage)

    def _tick(self) -> None:
        while not self._over.wait(_TICK_SECONDS):
            with self._turn, suppress(*_STREAM_GONE):
                self._shown.tick()


class Bar:
    """One line of a terminal, for one stage after the other; nothing of it is left in the end.

    Args:
        terminal: Where it is drawn.
        clock: Tells seconds.
    """

    def __init__(self, terminal: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._terminal = terminal
        self._clock = clock
        self._shown_from = clock() + _PATIENCE_SECONDS
        self._bar: Any = None
        self._stage: Stage | None = None

    def show(self, stage: Stage) -> None:
        """Draw where the work stands, a few times a second at most."""
        if self._bar is not None and (_work(stage) != _work(self._stage) or (stage.done or 0) < self._bar.n):
            self.close()
        self._stage = stage
        if self._bar is None:
            self.tick()
            return
        self._bar.total = stage.total
        if stage.total is None:
            self._bar.set_description_str(str(stage), refresh=False)
        self._bar.update((stage.done or 0) - self._bar.n)

    def tick(self) -> None:
        """Draw the time that has gone by."""
        if self._bar is not None:
            self._bar.ncols = _columns(self._terminal)  # the window may have another size by now
            self._bar.refresh()
        elif self._stage is not None and self._clock() >= self._shown_from:
            self._bar = _tqdm(self._stage, self._terminal)

    def close(self) -> None:
        """Take the line away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class LogLines:
    """A line every few seconds, for a file or a pipe.

    Args:
        log: Where they are written.
        clock: Tells seconds.
    """

    def __init__(self, log: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._next_at = clock() + _LOG_SECONDS
        self._stage: Stage | None = None
        self._began = (clock(), 0)

    def show(self, stage: Stage) -> None:
        """Take note of where the work stands, and say so if it is time."""
        if _work(stage) != _work(self._stage):
            self._began = (self._clock(), stage.done or 0)
        self._stage = stage
        self.tick()

    def tick(self) -> None:
        """Say where the work stands if it is time."""
        now = self._clock()
        if self._stage is not None and now >= self._next_at:
            self._next_at = now + _LOG_SECONDS
            print(f"{self._stage}{self._pace(self._stage, now)}", file=self._log, flush=True)

    def close(self) -> None:
        """Nothing stands open."""

    def _pace(self, stage: Stage, now: float) -> str:
        """How fast it goes and how long it still takes, where that can be told."""
        began_at, began_with = self._began
        done = (stage.done or 0) - began_with
        if done <= 0 or now <= began_at:
            return ""
        rate = done / (now - began_at)
        left = "" if stage.total is None else f", about {(stage.total - began_with - done) / rate:,.0f} s left"
        return f" ({rate:,.1f}/s{left})"


def passages(embedded: Embedded) -> Stage:
    """How many passages have a vector."""
    return Stage("computing vectors", embedded.done, embedded.total, "passages")


def _work(stage: Stage | None) -> tuple[str, str, bool] | None:
    """What a stage is of; more of the same work is equal."""
    return None if stage is None else (stage.what, stage.unit, stage.total is None)


def _columns(terminal: TextIO) -> int:
    """How wide a line may be that does not wrap; some terminals do not tell."""
    try:
        told = os.get_terminal_size(terminal.fileno()).columns
    except OSError:  # a stream without a terminal, too
        told = 0
    return (told or shutil.get_terminal_size().columns) - 1


def _tqdm(stage: Stage, terminal: TextIO) -> Any:
    from tqdm import tqdm  # type: ignore[import-untyped]  # it ships no types

    tqdm.monitor_interval = 0  # no thread of its own
    tqdm.set_lock(threading.RLock())  # nor semaphores: one process draws
    return tqdm(
        desc=stage.what if stage.total is not None else str(stage),
        total=stage.total,
        unit=stage.unit,
        initial=stage.done or 0,
        leave=False,
        ncols=_columns(terminal),
        nrows=_ROWS,
        bar_format=_UNCOUNTED if stage.total is None else _COUNTED,
        file=terminal,
    )
