"""Connections that do not keep others waiting: what uvicorn leaves open for ever is closed here after a time.

uvicorn times idle connections only after a response. A connection that never finishes its first line, or whose client
never reads, would stay. Bodies that do not end are timed in ``http``.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_HEAD_SECONDS = 10.0
_UNREAD_SECONDS = 60.0


class TimedConnection(H11Protocol):
    """uvicorn's HTTP/1.1 connection, with an end to waiting for request heads and for readers."""

    head_seconds = _HEAD_SECONDS
    unread_seconds = _UNREAD_SECONDS
    _head_timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a request soon."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing."""
        for timer in (self._head_timer, self._unread_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read; garbage after a request that is being answered ends the connection without a word."""
        try:
            super().data_received(data)
        except h11.ProtocolError:
            self.transport.abort()

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
