"""``notifications/progress`` of a tool call, for a client that asked for them with a token.

Owns the sending. Tools run in worker threads and tell how far they are (``memory_core.core.progress``); that is put
down for a task beside the call, which tells the client. So work never waits for a client that does not read, and a
notification that fails spoils nothing.

Promises: the figure rises with each notification; none follows the answer or the cancellation of its call; a call
that takes long is heard of every few seconds, so that hosts see that it lives. A call without a token has no task.

Does not: know what work there is. Needs the asyncio backend, like ``server.protocol.stdio_transport``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import anyio
from mcp.server.mcpserver import Context

from memory_core.core.progress import Stage, listening
from server.protocol.json_frames import scrub

_SILENT_SECONDS = 5.0
_LAST_WORDS_SECONDS = 1.0

Answer = TypeVar("Answer")


def wants_progress(ctx: Context[Any, Any]) -> bool:
    """Whether the client gave this call a progress token."""
    return (ctx.request_context.meta or {}).get("progress_token") is not None


async def told_of(ctx: Context[Any, Any], call: Callable[[], Awaitable[Answer]]) -> Answer:
    """What ``call`` returns, with its client told meanwhile how far it is.

    Args:
        ctx: Of a call that ``wants_progress``.
        call: Runs the tool.
    """
    reports = _Reports()
    try:
        async with anyio.create_task_group() as group:  # cancelled together with the call
            group.start_soon(reports.send, ctx)
            with listening(reports.put):
                answer = await call()
            with anyio.move_on_after(_LAST_WORDS_SECONDS):
                await reports.sent()
            group.cancel_scope.cancel()
    except ExceptionGroup as failures:  # of the call alone: the sender raises nothing
        raise failures.exceptions[0]  # noqa: B904 (its own cause must stay)
    return answer


class _Reports:
    """What was told and not sent yet."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Stage] = deque()
        self._news = asyncio.Event()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._figure = 0

    def put(self, stage: Stage) -> None:
        """Take a report, from any thread."""
        with suppress(RuntimeError):  # the loop is closed: an abandoned tool went on
            self._loop.call_soon_threadsafe(self._take, stage)

    def _take(self, stage: Stage) -> None:
        if self._waiting and self._waiting[-1].what == stage.what:
            self._waiting.pop()  # only the newest count of the same work is news
        self._waiting.append(stage)
        self._quiet.clear()
        self._news.set()

    async def sent(self) -> None:
        """Return when everything that was put is sent."""
        await asyncio.sleep(0)  # what a thread put last is taken now
        await self._quiet.wait()

    async def send(self, ctx: Context[Any, Any]) -> None:
        """Send until cancelled, or until the client has gone."""
        last = Stage("working")
        try:
            while True:
                with anyio.move_on_after(_SILENT_SECONDS) as silence:
                    await self._news.wait()
                self._news.clear()
                if silence.cancelled_caught:
                    await self._report(ctx, last)
                while self._waiting:
                    last = self._waiting.popleft()
                    await self._report(ctx, last)
                self._quiet.set()
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return
        finally:
            self._quiet.set()

    async def _report(self, ctx: Context[Any, Any], stage: Stage) -> None:
        self._figure = max(self._figure, stage.steps_before) + 1
        await ctx.report_progress(self._figure, message=scrub(str(stage)))
