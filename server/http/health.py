"""What a balancer asks, and the end that it is given time for: ``/livez``, ``/readyz``, and requests that still run.

Both answer without a token, whatever name they are called by, and say nothing of what is stored. ``/livez`` answers as
long as the process does; ``/readyz`` is 200 while the store answers and the server does not end.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import anyio.to_thread
from starlette.datastructures import Headers

from memory_core.core.errors import RunebookError
from server.http.authentication import respond
from server.http.fair_share import EVENT_STREAM

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from server.protocol.session import ServedStore

LIVE, READY = "/livez", "/readyz"
#: Probes may come often; the store is asked no more often than this.
_FRESH_SECONDS = 1.0
#: A balancer does not wait long either.
_WAIT_SECONDS = 2.0


class Health:
    """ASGI middleware that answers probes and counts the requests that run.

    Args:
        app: What is behind it.
        store: What must answer; None asks nothing.
    """

    def __init__(self, app: ASGIApp, store: ServedStore | None) -> None:
        self._app = app
        self._store = store
        self._asked: asyncio.Task[bool] | None = None
        self._ready, self._ready_until = False, 0.0
        self._running: set[object] = set()
        #: Whether the server ends soon: answers close their connections, and probes send clients elsewhere.
        self.draining = False

    @property
    def is_idle(self) -> bool:
        """Whether every request that came whole was answered; streams, which have no end, do not count."""
        return not self._running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a probe, or pass the request on."""
        if scope["path"] == LIVE:
            await respond(send, 200, "alive")
        elif scope["path"] == READY:
            why_not = await self._why_not()
            await respond(send, 503 if why_not else 200, why_not or "ready")
        else:
            await self._counted(scope, receive, send)

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        running = object()
        self._running.add(running)
        complete = answered = False
        streams = scope["method"] == "GET"

        async def received() -> Message:
            nonlocal complete
            if complete:
                return await receive()
            self._running.discard(running)  # its client is waited for, and may never send the rest
            message = await receive()
            complete = not message.get("more_body", False)
            if not answered:
                self._running.add(running)
            return message

        async def sending(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                headers = message.get("headers", [])
                if streams and Headers(raw=headers).get("content-type", "").startswith(EVENT_STREAM):
                    answered = True
                    self._running.discard(running)
                if self.draining:
                    message = {**message, "headers": [*headers, (b"connection", b"close")]}
            await send(message)

        try:
            await self._app(scope, received, sending)
        finally:
            self._running.discard(running)

    async def _why_not(self) -> str:
        if self.draining:
            return "the server ends"
        if self._store is None or time.monotonic() < self._ready_until:
            return "" if self._store is None or self._ready else "the store does not answer"
        if self._asked is None:
            self._asked = asyncio.create_task(self._ask(self._store))
        done, _ = await asyncio.wait({self._asked}, timeout=_WAIT_SECONDS)
        return "" if done and self._ready else "the store does not answer"

    async def _ask(self, store: ServedStore) -> bool:
        try:
            self._ready = False  # unless it turns out otherwise
            self._ready = await anyio.to_thread.run_sync(_answers, store, abandon_on_cancel=True)
            self._ready_until = time.monotonic() + _FRESH_SECONDS
        finally:
            self._asked = None
        return self._ready


def _answers(store: ServedStore) -> bool:
    try:
        store.memory().store.ledger.newest_seq()
    except RunebookError:
        return False
    return True
