"""The one branch of a conversation that its owner saw last, out of all that edits and second attempts left behind."""

from __future__ import annotations

from collections.abc import Mapping


def branch(parents: Mapping[str, str | None], leaf: str) -> list[str]:
    """The messages from the first to ``leaf``; a parent that is not there, or comes again, ends the walk.

    Args:
        parents: Of each message the one before it.
        leaf: The last message.
    """
    found: dict[str, None] = {}
    place: str | None = leaf
    while place is not None and place in parents and place not in found:
        found[place] = None
        place = parents[place]
    return list(reversed(found))
