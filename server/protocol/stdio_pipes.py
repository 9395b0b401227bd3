"""The pipes between a client and a server: its messages as lines, from this process's own pipes or over a channel.

Owns: cutting what comes into lines of bounded length, the two kinds of pipe, and keeping whatever else this process
prints away from the protocol. Knows nothing of what a line says. Imports nothing heavy: ``serve --shared`` passes
lines on without reading them, and many may run.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from memory_core.core.errors import ConfigInvalid
from server.local.channel import ChannelBroken, has_hung_up

if TYPE_CHECKING:
    from server.local.channel import Channel

#: The longest line that is read whole.
LINE_LIMIT_BYTES = 8 * 1024 * 1024
#: How much of each end of a longer line is kept, to find its id.
EXCERPT_BYTES = 4096
#: An empty frame: this server ends, and wants nobody to start another one because of it.
GOODBYE = b""

_CHUNK_BYTES = 64 * 1024
#: Before a line that was too long to keep: its length and its two ends follow as JSON.
_OVERSIZED = b"\x00"


class Oversized(NamedTuple):
    """A line over the limit, of which only the ends were kept.

    Attributes:
        head: Its first bytes, at most ``EXCERPT_BYTES``.
        tail: Its last bytes, at most ``EXCERPT_BYTES``, without the newline.
        size_bytes: Its whole length.
    """

    head: bytes
    tail: bytes
    size_bytes: int


Line = bytes | Oversized


class LinePipe(Protocol):
    """One client's two directions; ``lines`` is called by one thread, ``write`` by another."""

    def lines(self) -> Iterator[Line]:
        """What the client sends, without newlines, until it has sent all."""
        ...

    def write(self, data: bytes) -> bool:
        """Whether all of ``data``, whole lines, went out."""
        ...

    def reader_left(self) -> bool:
        """Whether nobody can read what is sent any more, as far as the platform tells."""
        ...

    def close(self) -> None:
        """Let the client go; safe to call twice."""
        ...


class DescriptorPipe:
    """Pipes of this process; whoever opened them closes them."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading = reading
        self._writing = writing

    def lines(self) -> Iterator[Line]:
        """See ``LinePipe``."""
        return cut_lines(self._chunk)

    def write(self, data: bytes) -> bool:
        """See ``LinePipe``."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._writing, rest) :]
        except OSError:
            return False
        return True

    def reader_left(self) -> bool:
        """See ``LinePipe``."""
        return has_hung_up(self._writing)

    def close(self) -> None:
        """See ``LinePipe``; the pipes stay open: a thread may be blocked on one, and its number would be reused."""

    def _chunk(self) -> bytes:
        try:
            return os.read(self._reading, _CHUNK_BYTES)
        except OSError:  # Windows reports a closed pipe this way, POSIX a lost terminal
            return b""


class ChannelPipe:
    """A client at the other end of a channel, one frame a line."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def lines(self) -> Iterator[Line]:
        """See ``LinePipe``."""
        with suppress(ChannelBroken):
            while (frame := self._channel.receive(LINE_LIMIT_BYTES)) is not None:
                yield unpack(frame)

    def write(self, data: bytes) -> bool:
        """See ``LinePipe``."""
        try:
            if data:
                self._channel.send(data)
        except ChannelBroken:
            return False
        return True

    def reader_left(self) -> bool:
        """See ``LinePipe``."""
        return self._channel.is_gone()

    def close(self) -> None:
        """See ``LinePipe``."""
        self._channel.close()


def cut_lines(read: Callable[[], bytes]) -> Iterator[Line]:
    """Lines of what ``read`` gives, without their newline, until it gives nothing; the last may lack one."""
    line = bytearray()
    head, size_bytes = b"", 0  # of a line that outgrew the limit; ``line`` then holds its tail
    while chunk := read():
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            line += end
            whole_bytes = size_bytes + len(line)
            if whole_bytes > LINE_LIMIT_BYTES:
                yield Oversized(head or bytes(line[:EXCERPT_BYTES]), bytes(line[-EXCERPT_BYTES:]), whole_bytes)
            else:
                yield bytes(line)
            line, head, size_bytes = bytearray(), b"", 0
        line += rest
        if size_bytes + len(line) > LINE_LIMIT_BYTES:
            head = head or bytes(line[:EXCERPT_BYTES])
            size_bytes += len(line) - EXCERPT_BYTES
            del line[:-EXCERPT_BYTES]
    if head:
        yield Oversized(head, bytes(line), size_bytes + len(line))
    elif line:
        yield bytes(line)


def pack(line: Oversized) -> bytes:
    """What is left of a line that was too long, as a frame."""
    ends = [line.size_bytes, line.head.decode("latin-1"), line.tail.decode("latin-1")]
    return _OVERSIZED + json.dumps(ends).encode()


def unpack(frame: bytes) -> Line:
    """The line in a frame; a client may itself send what begins like a packed one, and is no message."""
    if not frame.startswith(_OVERSIZED):
        return frame
    try:
        size_bytes, head, tail = json.loads(frame[1:])
        return Oversized(head.encode("latin-1"), tail.encode("latin-1"), int(size_bytes))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return frame


def standard_pipes() -> DescriptorPipe:
    """Take standard input and output for the protocol, for the rest of this process.

    The pipes get descriptors of their own, > 2, which children do not inherit. Whatever reads standard input finds
    nothing, and whatever is printed, now or not yet flushed, goes to stderr.

    Raises:
        ConfigInvalid: Stdin or stdout is closed.
    """
    try:
        pipe = DescriptorPipe(_duplicate(0), _duplicate(1))
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
    return pipe


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
