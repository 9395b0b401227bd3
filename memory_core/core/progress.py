"""How far work is, told to whoever waits for its outcome.

Owns the words between work and who watches it: work that may take long calls ``tell``, whoever shows it, a terminal
or an MCP client, listens for the time of a call. A context variable carries the listener, so nothing between the two
passes it on; a thread that work starts for itself has none. Promises that telling nobody costs next to nothing.

Does not: show anything, or decide how often it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from memory_core.core.frozen import frozen

#: Nobody wants to be told of a wait that is over in less.
QUICK_SECONDS = 0.3


@frozen
class Stage:
    """Where work stands.

    Attributes:
        what: In words, without figures that ``done`` and ``total`` give.
        done: Items that are through, of ``total``; None where nothing is counted.
        total: Items in all, where that is known.
        unit: What the items are, in the plural.
        steps_before: Of work that goes on over several calls: steps that were behind it before this one.
    """

    what: str
    done: int | None = None
    total: int | None = None
    unit: str = "items"
    steps_before: int = 0

    def __str__(self) -> str:
        if self.done is None:
            return self.what
        of = "" if self.total is None else f" of {self.total:,}"
        return f"{self.what}: {self.done:,}{of} {self.unit}"


Listener = Callable[[Stage], None]

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def tell(
    what: str, done: int | None = None, total: int | None = None, *, unit: str = "items", steps_before: int = 0
) -> None:
    """Tell whoever listens; see ``Stage``. Never fails and never waits."""
    listener = _listener.get()
    if listener is not None:
        listener(Stage(what, done, total, unit, steps_before))


def listened() -> bool:
    """Whether somebody listens, for who must work to know how far it is."""
    return _listener.get() is not None


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Be told of what the body does, from whatever thread does it.

    Args:
        listener: Must be quick and must not raise: it runs in the middle of the work, under its locks.
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def waited(wait: Callable[[float], bool], timeout_seconds: float, what: str) -> bool:
    """Wait, and tell of it if it is not over soon.

    Args:
        wait: Waits up to so many seconds; whether what it waits for came.
        timeout_seconds: For all of it.
        what: Told once, where somebody listens.
    """
    if not listened() or timeout_seconds <= QUICK_SECONDS:
        return wait(timeout_seconds)
    if wait(QUICK_SECONDS):
        return True
    tell(what)
    return wait(timeout_seconds - QUICK_SECONDS)
