"""What is remembered from one request to the next: recent values, values of what grows at its end, and tallies.

All of it is safe to share between threads. What may be long is bounded in bytes, not only in number: one character
beyond the Basic Multilingual Plane makes each character of its text take four.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import wraps
from typing import Any, Generic, NamedTuple, ParamSpec, Protocol, Self, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
#: A text, or a list.
W = TypeVar("W", str, list[Any])
P = ParamSpec("P")


def held_bytes(*values: object, most: int = sys.maxsize) -> int:
    """The memory that plain values (texts, numbers, collections, dataclasses with slots) take with all they hold.

    What is held twice counts twice.

    Args:
        values: They hold no classes, functions or themselves.
        most: Beyond it no more is counted.
    """
    total = 0
    level: list[Any] = list(values)
    while level and total <= most:
        total += sum(map(sys.getsizeof, level))
        level = [each for each in gc.get_referents(*level) if each is not None and not isinstance(each, type)]
    return total


#: ``M_MMAP_THRESHOLD`` of ``mallopt``, and the bytes from which a block is mapped alone.
_MAP_FROM, _MAPPED_BYTES = -3, 256 << 10


def give_back_long_blocks() -> None:
    """Have the C library return each long block to the system when it is freed; only glibc can.

    Left to itself, glibc raises the bound to the longest block freed so far, and texts of megabytes then leave holes
    among small blocks that the process keeps.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_MAP_FROM, _MAPPED_BYTES)


class RecentCache(Generic[K, V]):
    """The last ``capacity`` values that were asked for.

    A key must hold everything that the value depends on: entries never expire, they are only pushed out.

    Args:
        capacity: Values at most; 0 keeps nothing.
        most_bytes: Of keys and values together, see ``held_bytes``; None does not measure them.
        keeps_last: Whether the last one stays, alone, where it takes more.
    """

    def __init__(self, capacity: int, most_bytes: int | None = None, *, keeps_last: bool = False) -> None:
        self._capacity, self._most_bytes, self._keeps_last = capacity, most_bytes, keeps_last
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._bytes = 0
        self._guard = threading.Lock()

    def get(self, key: K) -> V | None:
        """The value, or None."""
        with self._guard:
            known = self._values.get(key)
            if known is None:
                return None
            self._values.move_to_end(key)
            return known[0]

    def make_room(self, size: int) -> None:
        """Let go of the oldest values until so many bytes more have room; all of them where they never have."""
        with self._guard:
            while self._values and self._bytes + size > (self._most_bytes or 0):
                self._bytes -= self._values.popitem(last=False)[1][1]

    def put(self, key: K, value: V) -> None:
        """Keep a value, if there may be room for it."""
        size = 0 if self._most_bytes is None else held_bytes(key, value, most=self._most_bytes)
        with self._guard:
            self._bytes += size - self._values.pop(key, (value, 0))[1]
            self._values[key] = value, size
            if size > (self._most_bytes or 0) and not self._keeps_last:
                del self._values[key]
                self._bytes -= size
            while len(self._values) > self._capacity or self._bytes > max(size, self._most_bytes or 0):
                self._bytes -= self._values.popitem(last=False)[1][1]


def remembered(capacity: int, most_bytes: int) -> Callable[[Callable[P, V]], Callable[P, V]]:
    """Decorates a pure function of hashable arguments, given by position; for the bounds see ``RecentCache``.

    None, and what takes more than ``most_bytes`` alone, is made anew each time.
    """

    def remembering(function: Callable[P, V]) -> Callable[P, V]:
        known: RecentCache[Any, V] = RecentCache(capacity, most_bytes)

        @wraps(function)
        def asked(*args: P.args, **kwargs: P.kwargs) -> V:
            value = known.get(args)
            if value is None:
                value = function(*args, **kwargs)
                known.put(args, value)
            return value

        return asked

    return remembering


_read_here: ContextVar[dict[Any, tuple[Any, Any, int]] | None] = ContextVar("read here", default=None)


@contextmanager
def reading_once() -> Iterator[None]:
    """What the body reads by a ``PrefixCache`` stays known to it, whatever others read meanwhile.

    Two long conversations push each other out, and one request reads its own several times.
    """
    token = _read_here.set({})
    try:
        yield
    finally:
        _read_here.reset(token)


class PrefixCache(Generic[W, V]):
    """Values of texts or lists that grow at their end: where the beginning is known, only the rest is read.

    Args:
        capacity: Values at most, those that were asked for last.
        most_bytes: Of the texts or lists and their values together. The last one stays however long, until another one
            is asked for: one request asks for it many times, some of them while others wait for the store.
        held: The bytes of a value, and of the items of its list.
    """

    def __init__(self, capacity: int, most_bytes: int, held: Callable[[V], int] = sys.getsizeof) -> None:
        self._capacity, self._most_bytes, self._held = capacity, most_bytes, held
        #: Each with its bytes. Replaced as a whole, never changed: many threads may ask.
        self._known: tuple[tuple[Any, V, int], ...] = ()

    def value(self, whole: W, start: V, extend: Callable[[V, W], V]) -> V:
        """The value of ``whole``; it is shared, so nobody may change it.

        Args:
            whole: Nobody changes it from now on.
            start: The value of nothing.
            extend: Gives, of the value of a beginning and of the rest, the value of both; leaves the first as it is.
        """
        known: tuple[tuple[Any, V, int], ...] = self._known
        here = _read_here.get()
        own: list[tuple[Any, V, int]] = [] if here is None or self not in here else [here[self]]
        longest = sorted([*known, *own], key=lambda each: -len(each[0]))
        nothing: tuple[Any, V, int] = (whole[:0], start, sys.maxsize)
        read, value, size = next((each for each in longest if _begins(whole, each[0])), nothing)
        others: list[tuple[Any, V, int]] = []
        if whole:
            others = [each for each in known if each[0] is not read and each[2] <= self._most_bytes]
            others = others[1 - self._capacity :]
            while sum(each[2] for each in others) > self._most_bytes:
                others.pop(0)
        if rest := whole[len(read) :]:
            if size > self._most_bytes:
                self._known = tuple(others)  # what takes too much goes before as much is made
                if here is not None:
                    here.pop(self, None)
            del known, own, longest, nothing, read
            value = extend(value, rest)
        if whole:
            entry = (whole, value, sys.getsizeof(whole) + self._held(value))
            self._known = (*others, entry)
            if here is not None:
                here[self] = entry
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

#: Sequences whose tallies are remembered, of each kind; bytes of their items, most of which all kinds share.
_SEQUENCES, _SEQUENCES_BYTES = 16, 32 << 20
_tallies: dict[type, PrefixCache[list[Any], Any]] = {}


class _Tallied(NamedTuple):
    """A tally; the bytes of its items, of itself, and how many its items had when it was measured itself."""

    tally: Any
    items: int = 0
    own: int = 0
    measured: int = 0

    def held(self) -> int:
        return self.items + self.own

    def grown(self, items: int) -> _Tallied:
        """The same with more items; the tally is measured again whenever they are a quarter more."""
        items += self.items
        if items <= self.measured + self.measured // 4:
            return self._replace(items=items)
        return _Tallied(self.tally, items, held_bytes(self.tally, most=_SEQUENCES_BYTES), items)


def tallied(kind: type[T], items: Sequence[Any]) -> T:
    """The tally of a sequence; of one that grew only what is new is counted. It is shared: nobody may add to it."""

    def extend(known: _Tallied, rest: list[Any]) -> _Tallied:
        tally = known.tally.copy()
        for item in rest:
            tally.add(item)
        return known._replace(tally=tally).grown(held_bytes(*rest, most=_SEQUENCES_BYTES))

    cache = _tallies.get(kind) or _tallies.setdefault(kind, PrefixCache(_SEQUENCES, _SEQUENCES_BYTES, _Tallied.held))
    value: _Tallied = cache.value(list(items), _Tallied(kind()), extend)
    found: T = value.tally
    return found
