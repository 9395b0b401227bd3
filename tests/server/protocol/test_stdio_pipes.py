"""Lines of bounded length, however they come."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from pathlib import Path

import pytest

from server.local.channel import Channel
from server.protocol.stdio_pipes import (
    EXCERPT_BYTES,
    LINE_LIMIT_BYTES,
    ChannelPipe,
    DescriptorPipe,
    Oversized,
    pack,
    unpack,
)


@pytest.mark.parametrize("excess", [-1, 0, 1, 100_000])
@pytest.mark.parametrize("newline", [b"\n", b""])
def test_line_is_read_whole_up_to_the_limit_and_by_its_ends_beyond(tmp_path: Path, excess: int, newline: bytes) -> None:
    line = b"head" + b"x" * (LINE_LIMIT_BYTES + excess - 8) + b"tail"
    path = tmp_path / "lines"
    path.write_bytes(b"before\n" + line + newline + (b"after\n" if newline else b""))
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        before, middle, *after = DescriptorPipe(fd, -1).lines()
    finally:
        os.close(fd)
    assert before == b"before"
    assert after == ([b"after"] if newline else [])
    if excess <= 0:
        assert middle == line
    else:
        assert middle == Oversized(line[:EXCERPT_BYTES], line[-EXCERPT_BYTES:], len(line))


def test_line_too_long_to_keep_passes_a_channel_by_its_ends() -> None:
    cut = Oversized('{"id": 1, "渡'.encode()[:-1], b'\xff"}', 10_000_000)
    assert unpack(pack(cut)) == cut
    ends = socket.socketpair()
    with closing(Channel(ends[0])) as host, closing(Channel(ends[1])) as server:
        for frame in (b"{}", pack(cut), b"\x00not packed"):
            host.send(frame)
        host.finish_sending()
        pipe = ChannelPipe(server)
        assert list(pipe.lines()) == [b"{}", cut, b"\x00not packed"]
        assert pipe.write(b"answer\n")
        assert host.receive(100) == b"answer\n"
        host.close()
        assert not all(pipe.write(b"x" * 100_000) for _ in range(100))
