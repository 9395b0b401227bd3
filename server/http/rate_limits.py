"""How often one client may call, and how much it may hold open: token buckets and counts, in memory.

Keys are names of clients; what each may use is its own, so that one client cannot take it from another. Forgotten with
the process. Not safe for several threads: it belongs to the event loop.
"""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_KEPT_CLIENTS = 4_096


class RequestRates:
    """A bucket a client: full at first, emptied by requests, filled evenly.

    Args:
        per_minute: Requests a minute, and at once after a rest; 0 is no limit.
        clock: Seconds, monotonic.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str, *, count: bool = True) -> int:
        """Count one request.

        Args:
            client: Who asks.
            count: False only looks.

        Returns:
            0 if it may pass, else the seconds, at least 1, after which the next one may.
        """
        if self._per_minute == 0:
            return 0
        now = self._clock()
        level, at = self._buckets.pop(client, (float(self._per_minute), now))
        level = min(float(self._per_minute), level + (now - at) * self._per_minute / 60)
        passes = level >= 1
        self._buckets[client] = (level - 1 if passes and count else level, now)
        if len(self._buckets) > _KEPT_CLIENTS:  # the one that rested longest has the fullest bucket
            self._buckets.popitem(last=False)
        return 0 if passes else max(1, math.ceil((1 - level) * 60 / self._per_minute))


class OpenRequests:
    """Requests and streams that each client holds open.

    Args:
        limit: At once, a client.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: Counter[str] = Counter()

    @contextmanager
    def one_more(self, client: str) -> Iterator[bool]:
        """Whether ``client`` may hold one more; it is counted while the body runs."""
        if self._held[client] >= self._limit:
            yield False
            return
        self._held[client] += 1
        try:
            yield True
        finally:
            self._held[client] -= 1
            if not self._held[client]:
                del self._held[client]
