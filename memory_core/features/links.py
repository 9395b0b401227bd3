"""Links between memories, as a trailer keeps them, and how they follow a memory to another URI. Pure.

Links in the text of a body belong to whoever wrote it and stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from memory_core.core.errors import InvalidUri
from memory_core.core.memory.uri import SCHEME, MemoryUri

_KEYS = ("links", "backlinks")


def linked_uris(trailer: Mapping[str, Any]) -> frozenset[str]:
    """The memories that a trailer links to, as their URIs are printed."""
    texts = (text for key in _KEYS for text in _strings(trailer.get(key)))
    return frozenset(uri for text in texts if (uri := _printed(text)) is not None)


def retargeted(trailer: Mapping[str, Any], old: MemoryUri, new: MemoryUri) -> dict[str, Any]:
    """The trailer with each link to ``old``, however spelt, leading to ``new``."""
    return {key: _replaced(value, str(old), str(new)) if key in _KEYS else value for key, value in trailer.items()}


def _replaced(value: Any, old: str, new: str) -> Any:
    if isinstance(value, dict):
        return {name: _replaced(item, old, new) for name, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, old, new) for item in value]
    return new if isinstance(value, str) and _printed(value) == old else value


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _printed(text: str) -> str | None:
    """The URI that a text is, or None."""
    if not text.startswith(SCHEME):
        return None
    try:
        return str(MemoryUri.parse(text))
    except InvalidUri:
        return None
