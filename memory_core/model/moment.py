"""Moments as files and tables keep them: ISO 8601; one without an offset is in UTC. Pure."""

from __future__ import annotations

from datetime import UTC, datetime


def read_moment(value: object) -> datetime | None:
    """The moment, aware; None for what is none, as a hand edit may have left it."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return moment if moment is None or moment.tzinfo is not None else moment.replace(tzinfo=UTC)
