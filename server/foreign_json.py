"""JSON that somebody else wrote, read without trust: what is not understood is None, and no error.

The standard library alone: a host waits for its hooks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def json_value(text: str | bytes) -> Any:
    """What a text means; None where it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def json_object(text: str | bytes) -> dict[str, Any] | None:
    """The object that a text means; None for anything else."""
    value = json_value(text)
    return value if isinstance(value, dict) else None


def value_at(value: Any, path: Sequence[str | int]) -> Any:
    """What stands at a path within a value; None where nothing does.

    Args:
        value: Any JSON.
        path: Keys of objects and indexes of lists, from the outside in.
    """
    for key in path:
        if isinstance(value, list) and isinstance(key, int):
            value = value[key] if key < len(value) else None
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return value
