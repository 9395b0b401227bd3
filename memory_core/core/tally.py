"""Tallies: what is counted over a sequence, item by item; of one that grew only over what is new."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self, TypeVar


class Tally(Protocol):
    """Something counted over items in order, such as the messages of a conversation."""

    def add(self, item: Any, /) -> None:
        """Count one more."""
        ...

    def copy(self) -> Self:
        """The same count, to be gone on with."""
        ...


T = TypeVar("T", bound=Tally)

#: Sequences whose tallies are remembered, of each kind the last ones used.
_SEQUENCES = 16
#: Replaced as a whole, never changed: many threads may count.
_counted: dict[type, tuple[tuple[list[Any], Any], ...]] = {}


def tallied(kind: type[T], items: Sequence[Any]) -> T:
    """The tally of a sequence; it is shared, so nobody may add to it."""
    whole = list(items)
    known = _counted.get(kind, ())
    # Messages of a log that grew are the same objects, which are not compared further.
    beginnings = [each for each in known if whole[: len(each[0])] == each[0]]
    read, tally = max(beginnings, key=lambda each: len(each[0]), default=([], kind()))
    if len(read) < len(whole):
        tally = tally.copy()
        for item in whole[len(read) :]:
            tally.add(item)
        others = [each for each in known if each[0] is not read]
        _counted[kind] = (*others[1 - _SEQUENCES :], (whole, tally))
    found: T = tally
    return found
