"""Ask again after a fault that passes by: one policy for every provider, within one deadline.

Owns what counts as passing (408, 409, 429, 5xx, 529, time-outs, lost connections), how long to wait and when to stop.
The SDKs' own retries are switched off: they sleep for as long as ``retry-after`` says and give each attempt the whole
time-out again, so that nothing bounds the sum. Does not know providers; see ``endpoint`` for what a fault means.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, stop_before_delay
from tenacity.wait import wait_exponential, wait_random

T = TypeVar("T")

_TRANSIENT = frozenset({408, 409, 429})
_BACKOFF = wait_exponential(multiplier=0.5, max=8.0) + wait_random(0.0, 0.5)


@dataclass(frozen=True, slots=True)
class Fault:
    """What went wrong with one attempt.

    Attributes:
        status: HTTP status; None where no answer came.
        text: What the endpoint said, or what happened to the connection.
        transient: Whether asking again may help.
        retry_after_seconds: What the endpoint asked for.
        timed_out: No answer within the time given.
    """

    status: int | None
    text: str
    transient: bool
    retry_after_seconds: float | None = None
    timed_out: bool = False


class AttemptFailed(Exception):
    """One attempt brought no answer."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.text)
        self.fault = fault


class Deadline:
    """A moment by which everything must have happened."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ends_at = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that remain.

        Raises:
            AttemptFailed: If none do.
        """
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise AttemptFailed(Fault(None, "no time is left", transient=False, timed_out=True))
        return left


def persist(attempt: Callable[[], T], deadline: Deadline, retries: int, sleep: Callable[[float], None]) -> T:
    """The result of the first attempt that succeeds.

    Args:
        attempt: Asks once; raises ``AttemptFailed``. Bounds itself by ``deadline.left()``.
        deadline: A wait that would pass it is not begun.
        retries: Attempts after the first.
        sleep: Waits so many seconds.

    Raises:
        AttemptFailed: The last one.
    """
    retrying = Retrying(
        retry=retry_if_exception(lambda error: isinstance(error, AttemptFailed) and error.fault.transient),
        stop=stop_after_attempt(retries + 1) | stop_before_delay(deadline.left()),
        wait=_wait_seconds,
        sleep=sleep,
        reraise=True,
    )
    return retrying(attempt)


def _wait_seconds(state: RetryCallState) -> float:
    error = None if state.outcome is None else state.outcome.exception()
    asked = error.fault.retry_after_seconds if isinstance(error, AttemptFailed) else None
    return _BACKOFF(state) if asked is None else asked


def is_transient(status: int, headers: Mapping[str, str]) -> bool:
    """Whether an HTTP status passes by; the endpoint's own word (``x-should-retry``) comes first."""
    said = headers.get("x-should-retry")
    if said in ("true", "false"):
        return said == "true"
    return status in _TRANSIENT or status >= 500


def retry_after_seconds(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """The wait that ``retry-after-ms`` or ``retry-after`` (seconds or a date) asks for, >= 0; None if neither does.

    Args:
        headers: Of the answer, case-insensitive.
        now: Seconds since the epoch; default the clock's.
    """
    for name, unit_seconds in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit_seconds
        except ValueError:
            continue
        if seconds >= 0:
            return seconds
    try:
        moment = parsedate_to_datetime(headers.get("retry-after", "")).timestamp()
    except ValueError:
        return None
    return max(0.0, moment - (time.time() if now is None else now))
