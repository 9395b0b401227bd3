"""Latency of repeated actions, and waiting until a server's background work has caught up."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from bench.recall import percentile
from bench.stdio_client import StdioClient

_SETTLE_TRIES, _SETTLE_SECONDS, _REST_SECONDS = 600, 0.5, 2.0


class Latency(NamedTuple):
    """Milliseconds."""

    p50: float
    p95: float


def latency(action: Callable[[int], object], count: int) -> Latency:
    """p50 and p95 of ``action(0)`` … ``action(count - 1)``."""
    times = []
    for index in range(count):
        started = time.perf_counter()
        action(index)
        times.append((time.perf_counter() - started) * 1e3)
    return Latency(percentile(times, 0.5), percentile(times, 0.95))


def settle(client: StdioClient) -> None:
    """Wait until a search has nothing to remark on, and a little longer; the program ends where it never is so."""
    for _ in range(_SETTLE_TRIES):
        if "notes" not in client.call("find", {"query": "ticket"}):
            break
        time.sleep(_SETTLE_SECONDS)
    else:
        raise SystemExit("the server still misses something after five minutes")
    time.sleep(_REST_SECONDS)
