"""A client's messages as lines of bytes: where they come from and where the answers go, without any meaning.

Owns: cutting a stream into lines with bounded memory, and what a transport offers to the adapter that serves one client
(``LinePipe``). Imports the standard library only, so that the bridge can use it (``server.local.bridge``).
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

LINE_LIMIT_BYTES = 8 * 1024 * 1024
"""Longest line that is read whole."""

EXCERPT_BYTES = 4096
"""How much of each end of a longer line is kept, to find its id."""

_CHUNK_BYTES = 64 * 1024


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
        """What the client sends, without newlines, until it has said all."""
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
        if not hasattr(select, "poll"):
            return False
        poll = select.poll()
        poll.register(self._writing, 0)  # the other end's going is reported unasked
        return bool(poll.poll(0))

    def close(self) -> None:
        """See ``LinePipe``; the pipes stay open: a thread may be blocked on one, and its number would be reused."""

    def _chunk(self) -> bytes:
        try:
            return os.read(self._reading, _CHUNK_BYTES)
        except OSError:  # Windows reports a closed pipe this way, POSIX a lost terminal
            return b""


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
            size_bytes += max(0, len(line) - EXCERPT_BYTES)
            del line[:-EXCERPT_BYTES]
    if head:
        yield Oversized(head, bytes(line), size_bytes + len(line))
    elif line:
        yield bytes(line)
