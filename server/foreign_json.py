"""JSON that somebody else wrote, read without trust: what is not understood is None, and no error.

The standard library alone: a host waits for its hooks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

#: Values in one request. Reading and checking take time and memory for each, and all other requests wait meanwhile.
MOST_VALUES = 150_000


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


def holds_many(text: bytes, most: int = MOST_VALUES) -> bool:
    """Whether a JSON text holds more than so many values, told without reading it: in linear time and little memory.

    Args:
        text: Anything; of what is no JSON no more is said than a reader of JSON could come to hold.
        most: Objects, lists, and what stands in them; an empty one counts twice, names of members do not count.
    """
    if _separators(text) < most:
        return False
    if b"\0" in text:  # JSON has none but in UTF-16 and UTF-32, where the bytes do not tell what stands in a string
        return True
    bare = text.replace(rb"\\", b"").replace(rb"\"", b"")
    if bare.count(b'"') > 4 * most:  # a value stands in a member of two strings at most
        return True
    return _separators(b"".join(bare.split(b'"')[::2])) >= most


def _separators(text: bytes) -> int:
    """One less than the values of a JSON text without strings; an empty list or object counts twice."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")
