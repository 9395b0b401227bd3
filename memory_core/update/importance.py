"""How important somebody says a memory is: words and numbers as salience."""

from __future__ import annotations

from collections.abc import Mapping

from memory_core.errors import InvalidInput

PRIORITIES: Mapping[str, float] = {"low": 0.3, "normal": 0.5, "high": 0.8, "critical": 1.0}


def salience_of(priority: str | float | None) -> float | None:
    """``priority`` as salience in [0, 1]; None stays None.

    Raises:
        InvalidInput: If it is neither a number in [0, 1] nor low, normal, high or critical.
    """
    if priority is None:
        return None
    if isinstance(priority, str):
        known = PRIORITIES.get(priority.strip().casefold())
        if known is not None:
            return known
        try:
            priority = float(priority)
        except ValueError:
            priority = -1.0
    if isinstance(priority, bool) or not 0.0 <= priority <= 1.0:
        raise InvalidInput(
            "priority is not one Runebook knows.",
            hint="Use low, normal, high, critical, or a number from 0 to 1.",
        )
    return float(priority)
