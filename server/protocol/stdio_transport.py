"""The stdio transport: one client on stdin and stdout, every line answered, every ending clean.

Owns: the two threads that read and write the pipes, the streams the SDK's serving loop sees, and
the order of shutdown. A client may as well be at the end of another pair of pipes (``serve_attached``).

Promises:

- Every line gets an answer (``server.protocol.json_frames``), and none can end the server.
- Whatever a tool returns leaves as one line of valid UTF-8 JSON, whole or not at all.
- End of input lets requests in flight finish while somebody still reads the answers; signals and a
  broken pipe do not wait for them. After each of these the lifespan is left properly, even while a
  tool's thread is stuck, and the process is gone in time (``server.terminal``).
- Nothing else reaches stdout (``server.protocol.stdio_transport``).

Why not the SDK's ``stdio_server``: its writer dies of one unencodable character before a custom
stdout sees the text, it forwards lines it cannot read to nobody, its reads cannot be cancelled, and
its serving loop leaves the lifespan only when every tool's thread has returned.

Does not: know what the tools do. Needs the asyncio backend, which is anyio's default.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple

import anyio
from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_dual_era_loop
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_PARAMS, ErrorData, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, RequestId
from pydantic import BaseModel

from memory_core.core.errors import ConfigInvalid
from server.protocol.json_frames import DescriptorPipe, LinePipe, Refusal, WireLine, encode_frame, parse_frame, scrub
from server.terminal import Ending


class StandardStreams(NamedTuple):
    """The protocol's two pipes while fd 0 and fd 1 are diverted.

    A context manager that restores on exit. Make it with ``divert``.

    Attributes:
        stdin_fd: Descriptor to read the protocol from, > 2, not inherited by children.
        stdout_fd: Descriptor to write the protocol to, > 2, not inherited by children.
    """

    stdin_fd: int
    stdout_fd: int

    @classmethod
    def divert(cls) -> StandardStreams:
        """Take both pipes; what was printed but not yet flushed goes to stderr.

        Raises:
            ConfigInvalid: Stdin or stdout is closed.
        """
        try:
            streams = cls(_duplicate(0), _duplicate(1))
        except OSError as error:
            raise ConfigInvalid(
                f"Standard input or output is closed ({error.strerror}).",
                hint="Start the server from an MCP client, or with both connected to pipes.",
            ) from error
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        try:
            os.dup2(2, 1)
        except OSError:  # no stderr: a service, or a windowed program
            os.dup2(null, 1)
        if null > 2:
            os.close(null)
        _publish_handles()
        return streams

    def restore(self) -> None:
        """Give fd 0 and fd 1 back; buffered prints are flushed to stderr first. Idempotent."""
        with suppress(OSError, ValueError, AttributeError):  # closed, or None without a console
            sys.stdout.flush()
        # The private descriptors stay open: a thread may still be blocked on one, and a closed
        # number would be reused under it.
        os.dup2(self.stdin_fd, 0)
        os.dup2(self.stdout_fd, 1)
        _publish_handles()

    def __enter__(self) -> StandardStreams:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.restore()


def _duplicate(fd: int) -> int:
    """A blocking, binary copy of ``fd`` outside 0-2, where a closed stderr would leave a gap."""
    low: list[int] = []
    try:
        while (copy := os.dup(fd)) <= 2:
            low.append(copy)
    finally:
        for gap in low:
            os.close(gap)
    if sys.platform == "win32":
        import msvcrt

        msvcrt.setmode(copy, os.O_BINARY)
    else:
        os.set_blocking(copy, True)  # a parent may have handed over a non-blocking pipe
    return copy


def _publish_handles() -> None:
    """On Windows, tell child processes too: they inherit Win32 handles, not descriptors."""
    if sys.platform == "win32":
        import ctypes
        import msvcrt

        set_handle = ctypes.windll.kernel32.SetStdHandle
        set_handle.argtypes = [ctypes.c_uint32, ctypes.c_void_p]
        for fd, slot in ((0, -10), (1, -11)):
            set_handle(slot & 0xFFFFFFFF, msvcrt.get_osfhandle(fd))


_logger = logging.getLogger(__name__)

_LINES_AHEAD = 8  # read but not yet served: bounds memory at that many longest lines
_DRAIN_SECONDS = 30.0  # end of input: a piped script wants its answers
_DRAIN_LOOK_SECONDS = 0.1  # as long as somebody is there to read them
_GRACE_SECONDS = 0.8  # together with the closing of the store less than ``END_SECONDS``
_FLUSH_SECONDS = 0.3
_FAULT_CHARS = 300
_LONG_LIVED = frozenset({"subscriptions/listen"})  # a request that ends with the connection


async def serve_stdio(server: MCPServer[Any], streams: StandardStreams | None = None) -> int:
    """Serve one client on stdin and stdout until it leaves or the process is told to stop.

    Run it in the main thread, as the whole program: if a tool's thread is still busy shortly after
    the end, the lifespan is left all the same and the process exits right here, because Python
    would otherwise wait for that thread. A second signal exits at once.

    Args:
        server: Its lifespan is entered once, around the serving.
        streams: Pipes diverted earlier, before imports that might print; the caller restores them.
            None diverts here and restores at the end.

    Returns:
        The exit status: 0 when the client left, 128 plus its number after a signal.

    Raises:
        ConfigInvalid: Stdin or stdout is closed.
    """
    if streams is None:
        with StandardStreams.divert() as diverted:
            return await serve_stdio(server, diverted)
    return await serve_pipe(server, DescriptorPipe(streams.stdin_fd, streams.stdout_fd))


async def serve_pipe(server: MCPServer[Any], pipe: LinePipe) -> int:
    """``serve_stdio`` over any pipe: the whole program, in its main thread."""
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
    await _serve(server._lowlevel_server, pipe, Ending(None))


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
        self._changed = asyncio.Event()

    def received(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCRequest):
            if message.method not in _LONG_LIVED:
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
        self._changed.set()

    def _answered(self, request_id: object) -> None:
        if isinstance(request_id, int | str) and self._by_us[request_id] > 0:
            self._by_us[request_id] -= 1

    async def settled(self) -> None:
        """Return when we owe nothing, or wait for an answer that can no longer come."""
        while self._by_us.total() > 0 and not self._by_client:
            self._changed.clear()
            await self._changed.wait()


class _Stream:
    """What the SDK's stream protocols share."""

    async def aclose(self) -> None:
        """Nothing to release: the pipes belong to ``StandardStreams``."""

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
        self._lines: asyncio.Queue[WireLine | None] = asyncio.Queue()
        self._room = threading.Semaphore(_LINES_AHEAD)
        self._closed = asyncio.Event()
        threading.Thread(target=self._read, name="stdin reader", daemon=True).start()

    def close(self) -> None:
        """End the stream now, whatever was read ahead."""
        self._closed.set()
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
        threading.Thread(target=self._write, name="stdout writer", daemon=True).start()

    def post(self, message: JSONRPCMessage) -> asyncio.Future[None]:
        """Queue ``message``; the future is done when it is written, or cannot be any more."""
        written: asyncio.Future[None] = self._loop.create_future()
        self._lines.put((encode_frame(message), written))
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
        if self._broken:
            self._on_broken()
