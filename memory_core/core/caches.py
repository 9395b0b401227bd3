"""What is remembered from one request to the next: recent values, values of what grows at its end, and tallies.

All of it is safe to share between threads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
#: A text, or a list.
W = TypeVar("W", str, list[Any])


class RecentCache(Generic[K, V]):
    """The last ``capacity`` values that were asked for.

    A key must hold everything that the value depends on: entries never expire, they are only pushed out.

    Args:
        capacity: Values at most; 0 keeps nothing.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._values: OrderedDict[K, V] = OrderedDict()
        self._guard = threading.Lock()

    def get(self, key: K) -> V | None:
        """The value, or None."""
        with self._guard:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: K, value: V) -> None:
        """Keep a value."""
        with self._guard:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._capacity:
                self._values.popitem(last=False)


class PrefixCache(Generic[W, V]):
    """Values of texts or lists that grow at their end: where the beginning is known, only the rest is read.

    Args:
        capacity: Values at most, those that were asked for last.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        #: Replaced as a whole, never changed: many threads may ask.
        self._known: tuple[tuple[Any, V], ...] = ()

    def value(self, whole: W, start: V, extend: Callable[[V, W], V]) -> V:
        """The value of ``whole``; it is shared, so nobody may change it.

        Args:
            whole: Nobody changes it from now on.
            start: The value of nothing.
            extend: Gives, of the value of a beginning and of the rest, the value of both; leaves the first as it is.
        """
        known = self._known
        longest = sorted(known, key=lambda each: -len(each[0]))
        read, value = next((each for each in longest if _begins(whole, each[0])), (whole[:0], start))
        if len(read) < len(whole):
            value = extend(value, whole[len(read) :])
        if whole:
            others: list[tuple[Any, V]] = [each for each in known if each[0] is not read]
            self._known = (*others[1 - self._capacity :], (whole, value))
        return value


def _begins(whole: W, beginning: W) -> bool:
    if isinstance(whole, str):
        return whole is beginning or whole.startswith(beginning)
    return whole[: len(beginning)] == beginning


class Tally(Protocol):
    """Something counted over items in order, such as the messages of a conversation."""

    def add(self, item: Any, /) -> None:
        """Count one more."""
        ...

    def copy(self) -> Self:
        """The same count, to be gone on with."""
        ...


T = TypeVar("T", bound=Tally)

#: Sequences whose tallies are remembered, of each kind.
_SEQUENCES = 16
_tallies: dict[type, PrefixCache[list[Any], Any]] = {}


def tallied(kind: type[T], items: Sequence[Any]) -> T:
    """The tally of a sequence; of one that grew only what is new is counted. It is shared: nobody may add to it."""

    def extend(tally: T, rest: list[Any]) -> T:
        tally = tally.copy()
        for item in rest:
            tally.add(item)
        return tally

    cache: PrefixCache[list[Any], T] = _tallies.setdefault(kind, PrefixCache(_SEQUENCES))
    return cache.value(list(items), kind(), extend)
