"""Connections of clients that do not finish, do not read, or never say who they are: each has its end.

``TimedConnection`` bounds the time of one; ``Connections`` how many there are. Those of clients that were let in share
the server: where it is full, the client that holds most loses its oldest one to a client that holds less. Those of
which nobody knows yet whose they are have room of their own, and the oldest of them goes first, so that they keep
nobody out.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from server.foreign_json import MOST_VALUES, holds_many
from server.http.local_peer import Address, is_own

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope

_HEAD_SECONDS = 5.0
_UNREAD_SECONDS = 60.0
#: A body in chunks may have so many small ones, and one more for each of so many bytes: each costs the loop time.
_FREE_CHUNKS = 128
_CHUNK_BYTES = 64
_LEAST_STRANGERS = 16
_LOOKUPS = 2
#: Strangers may hold such a part of what known clients may.
_STRANGERS_SHARE = 4
#: Asks whose connections are, beside the threads of requests that run.
_asking = ThreadPoolExecutor(_LOOKUPS, thread_name_prefix="runebook-peer")


class Closable(Protocol):
    """What can be ended at once."""

    def end(self) -> None:
        """End it without a word."""


class Connections:
    """The open connections of a server. It belongs to the event loop.

    Args:
        limit: Of clients that were let in, all together.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._strangers_limit = max(_LEAST_STRANGERS, limit // _STRANGERS_SHARE)
        self._strangers: OrderedDict[Closable, None] = OrderedDict()
        self._held: dict[str, OrderedDict[Closable, None]] = {}
        self._owners: dict[Closable, str] = {}

    def opened(self, connection: Closable) -> None:
        """Count a connection of a stranger; the one that is known longest goes for it, if there are too many."""
        self._strangers[connection] = None
        if len(self._strangers) > self._strangers_limit:
            oldest, _ = self._strangers.popitem(last=False)
            oldest.end()

    def known(self, connection: Closable, client: str) -> bool:
        """Whether ``client``, who was let in on this connection, may have it."""
        if self._owners.get(connection) == client:
            return True
        own = len(self._held.get(client, ()))
        if connection not in self._owners and len(self._owners) >= self._limit:
            most, held = max(self._held.items(), key=lambda item: len(item[1]))
            if most == client or len(held) <= own + 1:
                return False
            oldest = next(iter(held))
            self.closed(oldest)
            oldest.end()
        self.closed(connection)
        self._held.setdefault(client, OrderedDict())[connection] = None
        self._owners[connection] = client
        return True

    def closed(self, connection: Closable) -> None:
        """Count it no more."""
        self._strangers.pop(connection, None)
        if (client := self._owners.pop(connection, None)) is not None:
            held = self._held[client]
            del held[connection]
            if not held:
                del self._held[client]


class TimedConnection(H11Protocol):
    """uvicorn's HTTP/1.1 connection, with an end to waiting for request heads and for readers.

    Requests find it as ``scope["state"]["connection"]``.

    Args:
        connections: Count it; None counts none.
    """

    head_seconds = _HEAD_SECONDS
    unread_seconds = _UNREAD_SECONDS
    _from_owner: bool | None = None  # None while nobody looked
    _head_timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, connections: Connections | None = None, **named: Any) -> None:
        super().__init__(*args, **named)
        self._counted = connections
        self.app_state = {**self.app_state, "connection": self}
        self._next_event = self.conn.next_event
        self.conn.next_event = self._counted_event  # type: ignore[method-assign]
        self._chunks_left = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a request soon."""
        super().connection_made(transport)
        self._expect_head()
        if self._counted is not None:
            self._counted.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing."""
        for timer in (self._head_timer, self._unread_timer):
            if timer is not None:
                timer.cancel()
        if self._counted is not None:
            self._counted.closed(self)
        super().connection_lost(exc)

    def end(self) -> None:
        """See ``Closable``."""
        self.transport.abort()

    def belongs_to(self, client: str) -> bool:
        """Whether ``client`` may have it; see ``Connections.known``."""
        return self._counted is None or self._counted.known(self, client)

    @property
    def is_unread(self) -> bool:
        """Whether the client has yet to read what was sent before more is sent."""
        return bool(self.flow.write_paused)

    async def comes_from_owner(self) -> bool:
        """Whether a process of this server's own user is at its other end, as far as the system tells."""
        if self._from_owner is None:
            if self.client is None or self.server is None or self.server[1] is None:
                return False
            peer, here = Address(*self.client), Address(self.server[0], self.server[1])
            self._from_owner = await self.loop.run_in_executor(_asking, is_own, peer, here)
        return self._from_owner

    async def read(self) -> None:
        """Return when the client has read most of what was sent, or is gone."""
        await self.flow.drain()

    def data_received(self, data: bytes) -> None:
        """Read; garbage after a request that is being answered ends the connection without a word."""
        try:
            super().data_received(data)
        except h11.ProtocolError:
            self.transport.abort()

    def _counted_event(self) -> Any:
        """What h11 reads next.

        Raises:
            RemoteProtocolError: If a body comes in very many small chunks.
        """
        event = self._next_event()
        if isinstance(event, h11.Request):
            self._chunks_left = _FREE_CHUNKS
        elif isinstance(event, h11.Data):
            self._chunks_left += len(event.data) / _CHUNK_BYTES - event.chunk_start
            if self._chunks_left < 0.0:
                raise h11.RemoteProtocolError("a body in too many small chunks")
        return event

    def on_response_complete(self) -> None:
        """Expect the next request soon; it may have been read already."""
        try:
            super().on_response_complete()
        except h11.ProtocolError:
            self.transport.abort()
        else:
            self._expect_head()

    def shutdown(self) -> None:
        """The server ends: a request that is not here yet is not waited for."""
        super().shutdown()
        if self.cycle is not None and not self.cycle.response_complete and self.cycle.more_body:
            self.transport.abort()

    def pause_writing(self) -> None:
        """Expect the client to read soon."""
        super().pause_writing()
        self._unread_timer = self.loop.call_later(self.unread_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads, or is gone."""
        super().resume_writing()
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _expect_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
        self._head_timer = self.loop.call_later(self.head_seconds, self._close_headless)

    def _close_headless(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()


def connection_of(scope: Scope) -> TimedConnection | None:
    """The connection of a request; None where the app is not served by this program's server."""
    connection: TimedConnection | None = scope.get("state", {}).get("connection")
    return connection


async def peeked(receive: Receive, limit: int) -> tuple[bytes | None, Receive]:
    """The whole body, None if it is larger than ``limit``, and what gives all of it once more.

    Of a larger one no more is held than shows that it is.
    """
    held: list[Message] = []
    size = 0
    while size <= limit:
        held.append(await receive())
        size += len(held[-1].get("body", b""))
        if not held[-1].get("more_body", False):
            break
    body = b"".join(message.get("body", b"") for message in held) if size <= limit else None

    async def again() -> Message:
        return held.pop(0) if held else await receive()

    return body, again


async def checked(receive: Receive, limit: int) -> tuple[str | None, Receive]:
    """What is wrong with the size of a body of JSON, None if nothing, and what gives all of it once more."""
    body, again = await peeked(receive, limit)
    if body is None:
        return f"the body has more than {limit:,} bytes.", again
    return f"the body has more than {MOST_VALUES:,} values." if holds_many(body) else None, again
