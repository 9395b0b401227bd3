"""Relations between memories as a trailer keeps them: ``links: [{uri, relation, strength, at}]``. Pure.

Reads what a trailer says, however a person may have edited it; entries of another shape are no relations. Writing
them, and what they do to confidence, is ``update.links``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from memory_core.core.errors import InvalidInput


def read_moment(value: object) -> datetime | None:
    """The moment, aware; None for what is none, as a hand edit may have left it."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return moment if moment is None or moment.tzinfo is not None else moment.replace(tzinfo=UTC)


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


LINKS, CONFIDENCE = "links", "confidence"
SIMILAR = "similar"
#: Each relation and how it reads from the other end.
REVERSE: Mapping[str, str] = {
    SIMILAR: SIMILAR,
    "contradicts": "contradicts",
    "supports": "supported_by",
    "refines": "refined_by",
    "replaces": "replaced_by",
    "supported_by": "supports",
    "refined_by": "refines",
    "replaced_by": "replaces",
}
RELATIONS = tuple(REVERSE)
#: Relations of a memory to one that says otherwise.
CONTESTING = frozenset({"contradicts", "replaced_by"})
USUAL_STRENGTH = 0.5


@dataclass(frozen=True, slots=True)
class Relation:
    """How a memory relates to another.

    Attributes:
        uri: The other memory.
        relation: One of ``RELATIONS``.
        strength: In [0, 1].
        at: Since when, ISO 8601; None if not known.
    """

    uri: str
    relation: str
    strength: float
    at: str | None = None


def relations_in(meta: Mapping[str, Any]) -> Iterator[Relation]:
    """The relations that a trailer states."""
    stored = meta.get(LINKS)
    for link in stored if isinstance(stored, list) else ():
        if not isinstance(link, Mapping) or not isinstance(link.get("uri"), str):
            continue
        relation, at = link.get("relation", SIMILAR), link.get("at")
        if isinstance(relation, str) and relation in REVERSE:
            strength = unit(link.get("strength"), USUAL_STRENGTH)
            yield Relation(link["uri"], relation, strength, at if isinstance(at, str) else None)


def confidence_in(meta: Mapping[str, Any]) -> float:
    """How far a memory is trusted, in [0, 1]; 1.0 where its trailer does not say."""
    return unit(meta.get(CONFIDENCE), 1.0)


def outdoes(relation: str, said: str, confidence: float, own_said: str, own_confidence: float) -> bool:
    """Whether a memory that contests another one stands above it.

    What replaces does so by what it is; of two that contradict each other the later one, and of two of the same second
    the one that evidence left more of.

    Args:
        relation: Of the contested memory to the other: one of ``CONTESTING``.
        said: When the other was last changed, ISO 8601 in UTC.
        confidence: Of the other, in [0, 1].
        own_said: When the contested one was last changed.
        own_confidence: Of the contested one.
    """
    if relation == "replaced_by":
        return True
    return said > own_said or (said == own_said and confidence > own_confidence)


def unit(value: Any, default: float) -> float:
    """A number in [0, 1]; anything else is the default."""
    sound = isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value <= 1.0
    return float(value) if sound else default
