"""Clients that come over the line: one MCP session each, around the store that this process has open.

Owns: the pipe over a channel, and the count of who is attached. A client's working directory, its name and its private
mode are its own; store and model are everybody's.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from server.local.channel import Channel, ChannelBroken
from server.session import ServedStore
from server.stdio.line_pipes import LINE_LIMIT_BYTES, Line, Oversized

#: Before a line that was too long to keep: its length and its two ends follow as JSON.
OVERSIZED = b"\x00"
#: An empty frame: this server ends, and wants nobody to start another one because of it.
GOODBYE = b""
_ACCEPT_SECONDS = 5.0


class ChannelPipe:
    """A client at the other end of a channel, as ``server.stdio.wire`` serves it; one frame a line."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def lines(self) -> Iterator[Line]:
        """See ``LinePipe``."""
        with suppress(ChannelBroken):
            while (frame := self._channel.receive(LINE_LIMIT_BYTES)) is not None:
                yield unpack(frame) if frame.startswith(OVERSIZED) else frame

    def write(self, data: bytes) -> bool:
        """See ``LinePipe``."""
        if not data:
            return True
        try:
            self._channel.send(data)
        except ChannelBroken:
            return False
        return True

    def reader_left(self) -> bool:
        """See ``LinePipe``."""
        return self._channel.gone()

    def close(self) -> None:
        """See ``LinePipe``."""
        self._channel.close()


def pack(line: Oversized) -> bytes:
    """What is left of a line that was too long, as a frame."""
    ends = [line.size_bytes, line.head.decode("latin-1"), line.tail.decode("latin-1")]
    return OVERSIZED + json.dumps(ends).encode()


def unpack(frame: bytes) -> Line:
    """The line that ``pack`` was given; a client may itself send what begins like one, which is no message."""
    try:
        size_bytes, head, tail = json.loads(frame[1:])
        return Oversized(head.encode("latin-1"), tail.encode("latin-1"), int(size_bytes))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return frame


class Attachments:
    """Who is attached to a store, and since when nobody is.

    Args:
        store: Served to each.
        settings: Fingerprint of what this process serves.
        root: The store's folder; where a client works whose own folder is gone.
    """

    def __init__(self, store: ServedStore, settings: str, root: Path) -> None:
        self._store = store
        self._settings = settings
        self._root = root
        self._guard = threading.Lock()
        self._channels: set[Channel] = set()
        self._idle_since = time.monotonic()
        self._closed = False

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._channels)

    def attach(self, request: Mapping[str, Any], channel: Channel) -> None:
        """Serve the client behind ``channel`` until it leaves; for ``Line``.

        Raises:
            ChannelBroken: If it left at once.
        """
        deadline = time.monotonic() + _ACCEPT_SECONDS
        with self._guard:
            refused = self._closed or request.get("settings") != self._settings
            if not refused:
                self._channels.add(channel)
        if refused:
            channel.send(json.dumps({"ok": False, "error": "not served here", "hint": ""}).encode(), deadline)
            return
        try:
            channel.send(json.dumps({"ok": True}).encode(), deadline)
            channel.wait_for_ever()
            self._serve(request, channel)
        finally:
            with self._guard:
                self._channels.discard(channel)
                self._idle_since = time.monotonic()

    def _serve(self, request: Mapping[str, Any], channel: Channel) -> None:
        import anyio

        from server.app import build_server
        from server.stdio.wire import serve_attached

        folder = request.get("cwd")
        server = build_server(
            self._store,
            Path(folder) if isinstance(folder, str) and folder else self._root,
            private=request.get("private") is True,
        )
        anyio.run(serve_attached, server, ChannelPipe(channel))

    def end_if_idle(self, seconds: float) -> bool:
        """Whether nobody has been attached for so long; from then on nobody can attach."""
        with self._guard:
            if not self._channels and time.monotonic() - self._idle_since >= seconds:
                self._closed = True
            return self._closed

    def close(self) -> None:
        """Take nobody on any more, and tell who is attached that this server ends."""
        with self._guard:
            self._closed = True
            channels = tuple(self._channels)
        for channel in channels:
            channel.say_last(GOODBYE)
