"""How often one client may call, and how much it may hold open: token buckets and counts, in memory.

Keys are names of clients; what each may use is its own, so that one client cannot take it from another. Forgotten with
the process. Where servers share a database they tell each other once a second what was taken of the buckets.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from memory_core.core.errors import RunebookError

_log = logging.getLogger(__name__)
Exchange = Callable[[Mapping[str, float]], Mapping[str, float]]
_SHARED_EVERY_SECONDS = 1.0
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
        self._taken: Counter[str] = Counter()
        self._guard = threading.Lock()
        #: Whether others are told what is taken.
        self.is_shared = False

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
        with self._guard:
            now = self._clock()
            level, at = self._buckets.pop(client, (float(self._per_minute), now))
            level = min(float(self._per_minute), level + (now - at) * self._per_minute / 60)
            passes = level >= 1
            self._buckets[client] = (level - 1 if passes and count else level, now)
            if self.is_shared:
                self._taken[client] += passes and count
            if len(self._buckets) > _KEPT_CLIENTS:  # the one that rested longest has the fullest bucket
                forgotten, _ = self._buckets.popitem(last=False)
                self._taken.pop(forgotten, None)
            return 0 if passes else max(1, math.ceil((1 - level) * 60 / self._per_minute))

    def share(self, exchange: Exchange) -> None:
        """Tell the others what was taken since the last time, and go on from what all of them took.

        Args:
            exchange: Given, for each client that asked, in how many seconds comes back what it took here; returns in
                how many seconds its bucket is full.

        Raises:
            StoreBusy: If they cannot be told now; what was taken counts here alone.
        """
        with self._guard:
            asked, self._taken = self._taken, Counter()
        if not asked or self._per_minute == 0:
            return
        full = exchange({client: count * 60 / self._per_minute for client, count in asked.items()})
        with self._guard:
            now = self._clock()
            for client, seconds in full.items():
                level = self._per_minute - seconds * self._per_minute / 60 - self._taken[client]
                own, at = self._buckets.get(client, (level, now))
                self._buckets[client] = (min(level, own + (now - at) * self._per_minute / 60), now)


class Sharing:
    """Shares rates once a second from a thread of its own, so that no request waits for others.

    Args:
        rates: What is shared.
        exchange: See ``RequestRates.share``.
    """

    def __init__(self, rates: RequestRates, exchange: Exchange) -> None:
        self._rates = rates
        self._exchange = exchange
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="runebook-rates", daemon=True)
        self._failing = False

    def start(self) -> None:
        """Begin."""
        self._rates.is_shared = True
        self._thread.start()

    def close(self) -> None:
        """End; safe to call twice, and without a start."""
        self._ended.set()

    def once(self) -> None:
        """Share once; without the others each server counts for itself."""
        try:
            self._rates.share(self._exchange)
        except RunebookError as error:
            if not self._failing:
                _log.warning("limits are counted by this server alone for now: %s", error.message)
            self._failing = True
        else:
            self._failing = False

    def _run(self) -> None:
        while not self._ended.wait(_SHARED_EVERY_SECONDS):
            self.once()


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
