"""Whether a memory is in use: not put to rest, and not past its time. Pure; the moment is passed in.

A trailer says so with ``active: false``, ``expires_at`` (an ISO date or time) and ``pinned: true``; a hand edit may
have left anything there. What cannot be read is as if it were not said, but whatever does not plainly say no pins: a
memory is rather shown and kept than lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from memory_core.errors import InvalidInput
from memory_core.model.moment import read_moment

ACTIVE, EXPIRES_AT, PINNED, ARCHIVED = "active", "expires_at", "pinned", "archived"
#: What a hand edit may write for no.
_NO = frozenset({"", "false", "no", "n", "off", "0", "none", "null", "~", "否", "不"})


def is_active(meta: Mapping[str, Any]) -> bool:
    """Whether a memory was not put to rest."""
    return meta.get(ACTIVE) is not False


def is_pinned(meta: Mapping[str, Any]) -> bool:
    """Whether it is never expired, condensed or archived by itself; ``"yes"`` or ``1`` by hand count too."""
    value = meta.get(PINNED)
    return value.strip().casefold() not in _NO if isinstance(value, str) else bool(value)


def expiry(meta: Mapping[str, Any]) -> datetime | None:
    """The moment from which it no longer holds, aware; None is never. A day is over when it is over in UTC."""
    value = meta.get(EXPIRES_AT)
    return _moment(value) if isinstance(value, str) else None


def is_expired(meta: Mapping[str, Any], now: datetime) -> bool:
    """Whether its time is over; a pinned memory's never is."""
    moment = expiry(meta)
    return moment is not None and moment <= now and not is_pinned(meta)


def expiry_text(given: str) -> str:
    """An expiry as a trailer keeps it; empty stays empty, which takes one away.

    Raises:
        InvalidInput: If it is neither an ISO date nor a time.
    """
    text = given.strip()
    if text and _moment(text) is None:
        raise InvalidInput(
            f"expires_at {text[:40]!r} is no date.",
            hint="Use an ISO date or time, e.g. 2027-03-31 or 2027-03-31T12:00Z.",
        )
    return text


def expires_after(now: str, days: float) -> str:
    """The expiry of a memory made now that holds for so many days, to the second in UTC."""
    return (datetime.fromisoformat(now) + timedelta(days=days)).astimezone(UTC).isoformat(timespec="seconds")


def _moment(text: str) -> datetime | None:
    try:
        if len(text) == len("2027-03-31"):
            return datetime.combine(date.fromisoformat(text) + timedelta(days=1), time(), UTC)
    except (ValueError, OverflowError):
        return None
    return read_moment(text)
