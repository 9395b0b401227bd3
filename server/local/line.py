"""The local line: how one process of this machine asks a running server of the same store something.

``ask`` is the asking side: the standard library only, some milliseconds, and an answer or None. ``Line`` is the
answering side, in each running server. What passes is JSON, never anything that could run; who cannot prove to know
the announced key hears nothing (``channel``). A dead, hanging or foreign process on an announced address costs the
asker a part of its time and nothing else.

A request is an object with a ``verb``; the answer has ``ok``, and ``error`` and ``hint`` where that is false.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from memory_core.errors import RunebookError
from memory_core.version import program_version
from server.local.announcement import Announcement, announce, announced, this_node, withdraw
from server.local.channel import HANDSHAKE_SECONDS, KEY_BYTES, Channel, ChannelBroken

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]
#: Takes over a connection whose request had the verb ``attach``; returns when it has ended.
Attach = Callable[[Mapping[str, Any], Channel], None]

#: Of a request and of an answer: more than the longest line that MCP takes.
FRAME_LIMIT_BYTES = 16 * 1024 * 1024
_HOST = "127.0.0.1"
#: Strangers who say nothing hold no more than so many threads, each for as long as a handshake may take.
_AT_ONCE = 64
_REQUEST_SECONDS = 10.0
_ANSWER_SECONDS = 10.0
_BREATH_SECONDS = 0.1


def ask(state: Path, request: Mapping[str, Any], timeout_seconds: float) -> dict[str, Any] | None:
    """Ask a running server of the store.

    A request that was sent is not sent again to another server: it is carried out at most once.

    Args:
        state: The store's folder of machine files, ``<home>/.state``.
        request: JSON; ``verb`` says what is wanted.
        timeout_seconds: For all of it.

    Returns:
        The answer, or None: no server of this version runs, or none answered in time.
    """
    deadline = time.monotonic() + timeout_seconds
    servers = [server for server in announced(state) if server.version == program_version()]
    return ask_first(servers, request, deadline)


def ask_first(servers: Sequence[Announcement], request: Mapping[str, Any], deadline: float) -> dict[str, Any] | None:
    """``ask`` the first of ``servers`` that is there, until ``deadline`` on the monotonic clock."""
    asked = json.dumps(request).encode()
    for others, server in zip(range(len(servers) - 1, -1, -1), servers, strict=True):
        left = deadline - time.monotonic()
        try:
            # One that hangs leaves half of the time to the others.
            channel = server.connect(deadline - left / 2 if others else deadline)
        except ChannelBroken:
            continue
        try:
            return _exchange(channel, asked, deadline)
        except (ChannelBroken, ValueError, RecursionError):
            return None
        finally:
            channel.close()
    return None


def _exchange(channel: Channel, request: bytes, deadline: float) -> dict[str, Any] | None:
    channel.send(request, deadline)
    answer = channel.receive(FRAME_LIMIT_BYTES, deadline)
    value = None if answer is None else json.loads(answer)
    return value if isinstance(value, dict) else None


class Line:
    """The answering side of one server; closed by ``close`` or with the process.

    Args:
        state: The store's folder of machine files.
        answer: Answers a request, in a thread of its own. An error of Runebook's becomes an answer; after any other
            the asker hears nothing.
        attach: Takes connections over; None refuses them.
        kind: What the server is: stdio, http or local.
        settings: Fingerprint by which hosts tell whether it serves what they ask for.

    Raises:
        OSError: If there can be no line: the disk is full or read-only, or loopback cannot be used.
    """

    def __init__(
        self, state: Path, answer: Answer, attach: Attach | None = None, *, kind: str = "stdio", settings: str = ""
    ) -> None:
        self._answer = answer
        self._attach = attach
        self._key = os.urandom(KEY_BYTES)
        self._room = threading.BoundedSemaphore(_AT_ONCE)
        self._closed = threading.Event()
        self._channels = set[Channel]()
        self._listener = socket.create_server((_HOST, 0), backlog=_AT_ONCE)
        try:
            self.announcement = Announcement(
                pid=os.getpid(),
                host=_HOST,
                port=self._listener.getsockname()[1],
                key=self._key.hex(),
                since=time.time(),
                version=program_version(),
                node=this_node(),
                kind=kind,
                settings=settings,
            )
            self._path = announce(state, self.announcement)
        except OSError:
            self._listener.close()
            raise
        _lines.add(self)
        threading.Thread(target=self._listen, name="runebook-line", daemon=True).start()

    def withdraw(self) -> None:
        """Let nobody else find this server."""
        withdraw(self._path)

    def close(self) -> None:
        """Take the announcement back and hang up; safe to call twice. Waits for nobody."""
        if os.getpid() != self.announcement.pid:  # forked: neither announcement nor connections are ours to end
            self.abandon()
            return
        self._closed.set()
        _lines.discard(self)
        self.withdraw()
        with suppress(OSError):  # wakes the thread that listens, where closing alone does not
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for channel in tuple(self._channels):
            channel.close()

    def abandon(self) -> None:
        """In a forked child: let go of the sockets. Line and announcement are the parent's."""
        self._closed.set()
        self._listener.close()
        for channel in tuple(self._channels):
            channel.abandon()

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed; or there is no descriptor left for it just now
                self._closed.wait(_BREATH_SECONDS)
                continue
            if not self._room.acquire(blocking=False):
                connection.close()
                continue
            call = threading.Thread(target=self._serve, args=(connection,), name="runebook-line-call", daemon=True)
            try:
                call.start()
            except RuntimeError:  # no thread can be had just now; the next caller may find one
                self._room.release()
                connection.close()
                self._closed.wait(_BREATH_SECONDS)

    def _serve(self, connection: socket.socket) -> None:
        channel = Channel(connection)
        self._channels.add(channel)
        waiting = True
        try:
            channel.prove_as_listener(self._key, time.monotonic() + HANDSHAKE_SECONDS)
            request = _read_request(channel)
            if self._attach is not None and request.get("verb") == "attach":
                self._room.release()
                waiting = False
                self._attach(request, channel)
            else:
                answer = json.dumps(_answered(self._answer, request)).encode()
                channel.send(answer, time.monotonic() + _ANSWER_SECONDS)
        except ChannelBroken as error:
            import logging  # not on the way of who asks

            logging.getLogger(__name__).debug("a call on the line ended early: %s", error)
        finally:
            if waiting:
                self._room.release()
            self._channels.discard(channel)
            channel.close()


def _read_request(channel: Channel) -> Mapping[str, Any]:
    """The request of a caller that has proved itself.

    Raises:
        ChannelBroken: If it does not come, or is no object.
    """
    frame = channel.receive(FRAME_LIMIT_BYTES, time.monotonic() + _REQUEST_SECONDS)
    try:
        request = json.loads(frame or b"")
    except (ValueError, RecursionError) as error:
        raise ChannelBroken("the request is not JSON") from error
    if not isinstance(request, dict):
        raise ChannelBroken("the request is no object")
    return request


def _answered(answer: Answer, request: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return answer(request)
    except RunebookError as error:
        return {"ok": False, "error": error.message, "hint": error.hint}


_lines: set[Line] = set()


def _abandon_all() -> None:
    for line in tuple(_lines):
        line.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
