"""Turns at the work of a server that several bearers share: none waits long because another asks for much.

``Turns`` lets so many requests run at once and takes the next one from each bearer in turn. ``Share`` is what one
bearer has of it: what it asked for and has not read yet counts, too, so that answers that nobody reads do not pile up.
Transports put an ``Answers`` in place for the requests that come through them; where there is none, as on stdio, there
is one bearer and nothing to share. All of it belongs to the event loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

Key = TypeVar("Key")
#: Requests of a bearer of a token that run, wait for their turn, or whose answers are not read yet; and of the owner,
#: who may be several programs.
OPEN_LIMIT, OWNER_OPEN_LIMIT = 16, 64
_LONG_SECONDS = 0.3
#: Requests of a bearer of a token that are worked at, those that take long included.
_AT_WORK_LIMIT = 3


class Turn:
    """One request's turn: it holds a place until it ends, or for ``_LONG_SECONDS``; then it goes on without one."""

    def __init__(self, turns: Turns, bearer: str) -> None:
        self._turns = turns
        self._bearer = bearer
        self._holds_place = True
        self._is_over = False
        self._timer = asyncio.get_running_loop().call_later(_LONG_SECONDS, self._leave)

    def end(self) -> None:
        """The request is over, or waits for its client; safe to call twice."""
        if not self._is_over:
            self._is_over = True
            self._timer.cancel()
            self._turns.ended(self._bearer, holds_place=self._holds_place)

    def _leave(self) -> None:
        self._holds_place = False
        self._turns.free_place(self._bearer)


class TurnHolder:
    """The turn that a request has now, if any; once it is over it takes none."""

    def __init__(self) -> None:
        self._turn: Turn | None = None
        self._is_over = False

    async def take(self, share: Share) -> None:
        """Wait for the bearer's next turn."""
        turn = await share.turn()
        if self._is_over:
            turn.end()
        else:
            self._turn = turn

    def give_back(self) -> bool:
        """End the turn, if there is one; whether there was."""
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.end()
        return turn is not None

    def end(self) -> None:
        """The request is over."""
        self._is_over = True
        self.give_back()


class Turns:
    """Who works next.

    Args:
        at_once: Requests that run at once; those that take long, as those that ask a model do, soon no longer count,
            but as work of their bearer.
        each: Of one bearer of a token; the owner, whose name is empty, may have all.
    """

    def __init__(self, at_once: int, each: int) -> None:
        self._free_places = at_once
        self._most_of_one = each
        self._holding_places = Counter[str]()
        self._worked_at = Counter[str]()
        self._waiting: dict[str, deque[asyncio.Future[Turn]]] = {}

    async def next(self, bearer: str) -> Turn:
        """Wait for the bearer's turn. Its requests come in their order, those of several bearers by turns."""
        mine: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(bearer, deque()).append(mine)
        self._go_on()
        try:
            return await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                mine.result().end()
            elif (line := self._waiting.get(bearer)) is not None and mine in line:
                line.remove(mine)
                if not line:
                    del self._waiting[bearer]
            raise

    def free_place(self, bearer: str) -> None:
        """A place is free; the request goes on without."""
        take_one(self._holding_places, bearer)
        self._free_places += 1
        self._go_on()

    def ended(self, bearer: str, *, holds_place: bool) -> None:
        """A request is no longer worked at."""
        take_one(self._worked_at, bearer)
        if holds_place:
            self.free_place(bearer)
        else:
            self._go_on()

    def _may_begin(self, bearer: str) -> bool:
        return not bearer or (
            self._holding_places[bearer] < self._most_of_one and self._worked_at[bearer] < _AT_WORK_LIMIT
        )

    def _go_on(self) -> None:
        while self._free_places > 0:
            bearer = next(filter(self._may_begin, self._waiting), None)
            if bearer is None:
                return
            line = self._waiting.pop(bearer)
            mine = line.popleft()
            if line:
                self._waiting[bearer] = line  # behind all others
            if not mine.cancelled():
                self._free_places -= 1
                self._holding_places[bearer] += 1
                self._worked_at[bearer] += 1
                mine.set_result(Turn(self, bearer))


def take_one(counts: Counter[Key], key: Key) -> bool:
    """Count one less; whether none is left, and then the key is gone."""
    counts[key] -= 1
    if counts[key]:
        return False
    del counts[key]
    return True


class Share:
    """What one bearer has of a server.

    Args:
        turns: Of the whole server.
        bearer: Its name.
    """

    def __init__(self, turns: Turns, bearer: str) -> None:
        self._turns = turns
        self._bearer = bearer
        self._limit = OPEN_LIMIT if bearer else OWNER_OPEN_LIMIT
        self._open = 0
        self._room = asyncio.Event()
        self._room.set()

    @property
    def is_full(self) -> bool:
        """Whether so much is open that nothing more is begun."""
        return self._open >= self._limit

    def count(self, change: int) -> None:
        """Open so many more requests, or close them."""
        self._open += change
        if self.is_full:
            self._room.clear()
        else:
            self._room.set()

    async def room(self, seconds: float) -> bool:
        """Whether it was not full any more within the time."""
        try:
            async with asyncio.timeout(seconds):
                await self._room.wait()
        except TimeoutError:
            return False
        return True

    async def turn(self) -> Turn:
        """See ``Turns.next``."""
        return await self._turns.next(self._bearer)


class Answers:
    """Answers to requests that came through one connection or stream, until they are read.

    Args:
        share: Of the bearer.
    """

    def __init__(self, share: Share) -> None:
        self.share = share
        self._unread = 0
        self._is_closed = False

    def made(self) -> None:
        """One more is there."""
        if not self._is_closed:
            self._unread += 1
            self.share.count(1)

    def read(self) -> None:
        """One of them was read."""
        if self._unread:
            self._unread -= 1
            self.share.count(-1)

    def close(self) -> None:
        """The others were read as well, or never will be."""
        self._is_closed = True
        self.share.count(-self._unread)
        self._unread = 0


_answers: ContextVar[Answers | None] = ContextVar("answers", default=None)
#: The turn of the request at hand, if it has one now.
_held: ContextVar[TurnHolder | None] = ContextVar("held", default=None)


@contextmanager
def through(answers: Answers | None, held: TurnHolder | None = None) -> Iterator[None]:
    """Requests that begin in the body come through ``answers``.

    Args:
        answers: Counts what they are answered; None counts nothing.
        held: The turn that they have already; None lets each wait for its own.
    """
    before = _answers.set(answers), _held.set(held)
    try:
        yield
    finally:
        _answers.reset(before[0])
        _held.reset(before[1])


async def in_turn(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Server middleware that lets a request wait for its bearer's turn, and counts its answer until it is read."""
    answers = _answers.get()
    if answers is None or _held.get() is not None:
        return await call_next(ctx)
    answers.share.count(1)
    held = TurnHolder()
    before = _held.set(held)
    is_answered = True
    try:
        await held.take(answers.share)
        return await call_next(ctx)
    except asyncio.CancelledError:  # a cancelled request is never answered
        is_answered = False
        raise
    finally:
        _held.reset(before)
        held.end()
        answers.share.count(-1)
        if is_answered:
            answers.made()


@asynccontextmanager
async def while_asking() -> AsyncIterator[None]:
    """The client is asked something in the body: until it answers, others work."""
    held, answers = _held.get(), _answers.get()
    if held is None or answers is None or not held.give_back():
        yield
        return
    try:
        yield
    finally:
        await held.take(answers.share)
