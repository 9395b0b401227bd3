"""Waiting for what comes about in another thread or process."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import anyio

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")

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


def lives(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except OSError:
        return os.path.isdir("/proc/self") is False  # noqa: PTH112 - without /proc it is believed to run


def at_once(call: Callable[[A], T], *each: A) -> list[T]:
    """What a call answers to each, asked by as many threads at the same time."""
    with ThreadPoolExecutor(len(each)) as pool:
        return list(pool.map(call, each))


def in_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that is a coroutine; it is run to its end in a loop of its own."""

    @functools.wraps(test)
    def run(*given: P.args, **fixtures: P.kwargs) -> None:
        anyio.run(functools.partial(test, *given, **fixtures))

    return run
