"""The stdio transport: one client on a pair of pipes, every line answered, every ending clean.

Owns: the two threads that read and write the pipes, the streams that the SDK's serving loop sees, what asks a serving
process to end and with which status it does. A client may as well be at the other end of a channel
(``serve_attached``).

Promises:

- Every line gets an answer (``json_frames``), and none can end the server.
- Whatever a tool returns leaves as one line of valid UTF-8 JSON, whole or not at all.
- A client that does not read its answers gets no more of them made: its next requests wait.
- End of input lets requests in flight finish while somebody still reads the answers; signals and a broken pipe do not
  wait for them. After each of these the lifespan is left properly, even while a tool's thread is stuck.
- Once the end has begun the process is gone within ``END_SECONDS``, whatever its threads wait for; hosts kill about two
  seconds after they ask. What was acknowledged is on disk by then; what was not may be there or not, never half.
- The exit status is 0 when the client left (end of input, closed pipe), and 128 plus the signal's number when a signal
  asked (SIGTERM 143, SIGINT 130, SIGHUP 129). A signal that the process was started to ignore, as ``nohup`` and
  background jobs do, stays ignored. The second signal ends the process on the spot.

Why not the SDK's ``stdio_server``: its writer dies of one unencodable character before a custom stdout sees the text,
it forwards lines it cannot read to nobody, its reads cannot be cancelled, and its serving loop leaves the lifespan only
when every tool's thread has returned.

Does not: know what the tools do. Needs the asyncio backend, which is anyio's default.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any

import anyio
from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_dual_era_loop
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_PARAMS, ErrorData, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, RequestId
from pydantic import BaseModel

from server.protocol.json_frames import Refusal, encode_frame, parse_frame, scrub
from server.protocol.stdio_pipes import Line, LinePipe
from server.protocol.turns import take_one
from server.terminal import termination_signals

_logger = logging.getLogger(__name__)

#: Half a second less than hosts wait: a process of a large store takes a while to be taken down.
END_SECONDS = 1.5
_LINES_AHEAD = 8  # read but not yet served: bounds memory at that many longest lines
#: Requests that run, or whose answers are not written; a client that is asked something itself may have more of them.
_MOST_OPEN, _MOST_OPEN_ASKING = 64, 1_024
_UNREAD_SECONDS = 30.0  # so long a client that does not read is waited for, before its next request begins
_DRAIN_SECONDS = 30.0  # end of input: a piped script wants its answers
_DRAIN_LOOK_SECONDS = 0.1  # as long as somebody is there to read them
_GRACE_SECONDS = 0.8  # together with the closing of the store less than ``END_SECONDS``
_FLUSH_SECONDS = 0.3
_FAULT_CHARS = 300


async def serve_pipe(server: MCPServer[Any], pipe: LinePipe) -> int:
    """Serve one client until it leaves or the process is told to stop.

    Run it in the main thread, as the whole program: if a tool's thread is still busy shortly after
    the end, the lifespan is left all the same and the process exits right here, because Python
    would otherwise wait for that thread. A second signal exits at once.

    Args:
        server: Its lifespan is entered once, around the serving.
        pipe: Where the client is.

    Returns:
        The exit status: 0 when the client left, 128 plus its number after a signal.
    """
    ending = Ending()
    with ending.watched():
        if not await _serve(server._lowlevel_server, pipe, ending):  # SDK has no public way to its loop
            _logger.warning("A tool was still running when the server was told to stop; it was abandoned.")
            logging.shutdown()
            os._exit(ending.status)
    return ending.status


async def serve_attached(server: MCPServer[Any], pipe: LinePipe) -> None:
    """Serve one of several clients of this process until it leaves, in a thread and loop of its own.

    The pipe is closed at the end; a tool that still runs then keeps the thread, not the client.
    """
    await _serve(server._lowlevel_server, pipe, Ending(ends_process=False))


class Ending:
    """The end of one serving, from its first reason to the last moment. Make it in the running loop.

    Args:
        ends_process: Whether the process is gone ``END_SECONDS`` after the end has begun, at the latest.
    """

    def __init__(self, *, ends_process: bool = True) -> None:
        self.status = 0
        self._ends_process = ends_process
        self._loop = asyncio.get_running_loop()
        self._begun = asyncio.Event()
        self._last_moment = threading.Timer(END_SECONDS, lambda: os._exit(self.status))
        self._last_moment.daemon = True
        self._once = threading.Lock()
        self._asked = False  # by a signal

    async def begun(self) -> None:
        """Return when something asked for the end."""
        await self._begun.wait()

    def begin(self, status: int = 0) -> None:
        """Begin to end; from any thread and from a signal handler. The first status counts."""
        if self._once.acquire(blocking=False):  # never released
            self.status = status
            if self._ends_process:
                self._last_moment.start()
        with suppress(RuntimeError):  # the loop is closed: it has ended
            self._loop.call_soon_threadsafe(self._begun.set)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Begin at the first termination signal, and see to it that the end comes; without one all is as it was."""
        try:
            with self._signals():
                yield
        finally:
            self._last_moment.cancel()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # Python delivers signals to the main thread only
            return
        previous = {number: signal.getsignal(number) for number in termination_signals()}
        heeded = [number for number, handler in previous.items() if handler is not signal.SIG_IGN]
        for number in heeded:
            # The loop's own handler only arms its wake-up descriptor, for a signal that interrupts another thread than
            # the loop's. Ours replaces it, so that a blocked loop still hears the second signal. Windows loops wake by
            # themselves.
            with suppress(NotImplementedError):
                self._loop.add_signal_handler(number, lambda: None)
            signal.signal(number, self._on_signal)
        try:
            yield
        finally:
            for number in heeded:
                with suppress(NotImplementedError):
                    self._loop.remove_signal_handler(number)
                if not self._asked:  # else a second signal still ends the rest at once, with its status
                    signal.signal(number, previous[number] or signal.SIG_DFL)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._asked:
            os._exit(128 + number)
        self._asked = True
        self.begin(128 + number)


async def scrub_results(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Server middleware that makes results and errors encodable, on every transport.

    Lone surrogates, which a damaged file can bring in, become U+FFFD; one of them would otherwise
    end the connection that reads it.
    """
    try:
        result = await call_next(ctx)
    except MCPError as error:
        plain = error.error.model_dump()
        if (clean := scrub(plain)) is plain:
            raise
        raise MCPError.from_error_data(ErrorData(**clean)) from error
    if isinstance(result, BaseModel):
        result = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    scrubbed: HandlerResult = scrub(result)
    return scrubbed


async def prompt_faults(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Server middleware that answers a wrong prompt name or argument as the client's fault.

    The SDK raises what it would otherwise log with a traceback and answer as an internal error.
    """
    try:
        return await call_next(ctx)
    except ValueError as error:
        fault = error.__cause__
        if ctx.method != "prompts/get" or fault is None or fault.__cause__ is not None:  # our own failure has a cause
            raise
        known = "prompts/list names the prompts and their arguments."
        raise MCPError(INVALID_PARAMS, f"{str(error)[:_FAULT_CHARS]}. {known}") from error


async def _serve(server: Server[Any], pipe: LinePipe, ending: Ending) -> bool:
    """Whether every tool had ended when the client was let go."""
    owed = _Owed()
    outbox = _Outbox(pipe, owed, on_broken=ending.begin)
    inbox = _Inbox(pipe, owed, outbox, on_end=ending.begin)
    try:
        async with server.lifespan(server) as state:
            # A task of its own, not a task group's: a group would wait for stuck tool threads.
            serving = asyncio.create_task(
                serve_dual_era_loop(
                    server,
                    inbox,
                    outbox,
                    lifespan_state=state,
                    init_options=server.create_initialization_options(),
                )
            )
            serving.add_done_callback(lambda _: ending.begin())
            try:
                await ending.begun()
            finally:
                inbox.close()
            await asyncio.wait({serving}, timeout=_GRACE_SECONDS)
        await outbox.flush(_FLUSH_SECONDS)
    finally:
        inbox.close()
        outbox.close()
        pipe.close()
    if serving.done():
        serving.result()
    return serving.done()


class _Owed:
    """Which requests still lack their answer, in both directions."""

    def __init__(self) -> None:
        self._by_us = Counter[RequestId]()  # a client may use an id twice
        self._by_client: set[RequestId] = set()
        self._unwritten = 0
        self._is_over = False
        self._changed = asyncio.Event()

    def received(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCRequest):
            self._by_us[message.id] += 1
        elif isinstance(message, JSONRPCNotification):
            if message.method == "notifications/cancelled":  # never answered
                self._answered((message.params or {}).get("requestId"))
        elif message.id is not None:
            self._by_client.discard(message.id)
        self._changed.set()

    def sent(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCRequest):
            self._by_client.add(message.id)
        elif not isinstance(message, JSONRPCNotification):
            self._answered(message.id)
        elif message.method == "notifications/cancelled":  # a question taken back: its answer is not waited for
            self._by_client.discard((message.params or {}).get("requestId"))
        self._changed.set()

    def posted(self) -> None:
        """A line is to be written."""
        self._unwritten += 1

    def written(self) -> None:
        """A line is written, or cannot be any more."""
        self._unwritten -= 1
        self._changed.set()

    def _answered(self, request_id: object) -> None:
        if isinstance(request_id, int | str) and self._by_us[request_id] > 0:
            take_one(self._by_us, request_id)

    async def room(self) -> None:
        """Return when the next request may begin."""
        with anyio.move_on_after(_UNREAD_SECONDS):
            while not self._is_over and self._open() >= (_MOST_OPEN_ASKING if self._by_client else _MOST_OPEN):
                self._changed.clear()
                await self._changed.wait()

    def _open(self) -> int:
        return self._by_us.total() + self._unwritten

    def close(self) -> None:
        """Nothing begins any more; who waits for room need not."""
        self._is_over = True
        self._changed.set()

    async def settled(self) -> None:
        """Return when every request is answered, or when we wait for the client, which can answer no more."""
        while self._by_us.total() > 0 and not self._by_client:
            self._changed.clear()
            await self._changed.wait()


class _Stream:
    """What the SDK's stream protocols share."""

    async def aclose(self) -> None:
        """Nothing to release: the pipes belong to whoever opened them."""

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class _Inbox(_Stream):
    """The client's messages; faulty lines are answered here and never seen by the SDK.

    A daemon thread reads, because a read of a pipe cannot be cancelled and must not be waited for.
    """

    def __init__(self, pipe: LinePipe, owed: _Owed, outbox: _Outbox, on_end: Callable[[], None]) -> None:
        self._pipe = pipe
        self._owed = owed
        self._outbox = outbox
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[Line | None] = asyncio.Queue()
        self._room = threading.Semaphore(_LINES_AHEAD)
        self._closed = asyncio.Event()
        threading.Thread(target=self._read, name="runebook-reader", daemon=True).start()

    def close(self) -> None:
        """End the stream now, whatever was read ahead."""
        self._closed.set()
        self._owed.close()
        self._lines.put_nowait(None)
        self._room.release()

    def _read(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            for line in self._pipe.lines():
                self._room.acquire()
                if self._closed.is_set():
                    return
                self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
            self._loop.call_soon_threadsafe(self._lines.put_nowait, None)

    async def receive(self) -> SessionMessage | Exception:
        while not self._closed.is_set() and (line := await self._lines.get()) is not None:
            self._room.release()
            frame = parse_frame(line)
            if isinstance(frame, Refusal | JSONRPCRequest):
                await self._owed.room()
                if self._closed.is_set():
                    break
            if isinstance(frame, Refusal):
                self._refuse(frame)
            elif frame is not None:
                self._owed.received(frame)
                return SessionMessage(frame)
        await self._drain()
        self._closed.set()  # the SDK asks again after the end
        raise anyio.EndOfStream

    def _refuse(self, refusal: Refusal) -> None:
        if refusal.answerable:
            self._outbox.post(refusal.answer())
        else:
            _logger.warning("Ignored a message that cannot be answered: %s", refusal.message)

    async def _drain(self) -> None:
        settled = asyncio.ensure_future(self._owed.settled())
        closed = asyncio.ensure_future(self._closed.wait())
        ends_at = self._loop.time() + _DRAIN_SECONDS
        done = set[asyncio.Future[Any]]()
        try:
            while not done and self._loop.time() < ends_at and not self._pipe.reader_left():
                done, _ = await asyncio.wait(
                    {settled, closed}, timeout=_DRAIN_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            settled.cancel()
            closed.cancel()
        self._on_end()

    def __aiter__(self) -> _Inbox:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class _Outbox(_Stream):
    """Messages to the client, each one whole line.

    A daemon thread writes, so that a client that stops reading blocks neither the loop nor the end,
    and a cancelled send never tears a line.
    """

    def __init__(self, pipe: LinePipe, owed: _Owed, on_broken: Callable[[], None]) -> None:
        self._pipe = pipe
        self._owed = owed
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._lines: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = queue.SimpleQueue()
        self._broken = False
        self._closed = False
        threading.Thread(target=self._write, name="runebook-writer", daemon=True).start()

    def post(self, message: JSONRPCMessage) -> asyncio.Future[None]:
        """Queue ``message``; the future is done when it is written, or cannot be any more."""
        written: asyncio.Future[None] = self._loop.create_future()
        self._lines.put((encode_frame(message), written))
        self._owed.posted()
        self._owed.sent(message)
        return written

    async def send(self, item: SessionMessage) -> None:
        """Write a message.

        Raises:
            anyio.ClosedResourceError: After ``aclose``.
            anyio.BrokenResourceError: The client closed its end.
        """
        if self._closed:
            raise anyio.ClosedResourceError
        await self.post(item.message)
        if self._broken:
            raise anyio.BrokenResourceError

    async def aclose(self) -> None:
        self._closed = True

    async def flush(self, timeout_seconds: float) -> None:
        """Wait until everything queued so far is written, or the time is over."""
        written: asyncio.Future[None] = self._loop.create_future()
        self._lines.put((b"", written))
        self._owed.posted()
        await asyncio.wait({written}, timeout=timeout_seconds)

    def close(self) -> None:
        """Let the thread go; what is sent from now on is dropped."""
        self._closed = True
        self._lines.put(None)

    def _write(self) -> None:
        while (item := self._lines.get()) is not None:
            line, written = item
            if not self._broken and not self._pipe.write(line):
                self._broken = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._settle, written)

    def _settle(self, written: asyncio.Future[None]) -> None:
        if not written.done():
            written.set_result(None)
        self._owed.written()
        if self._broken:
            self._on_broken()
