"""``runebook serve --shared``: a host's stdio server that holds no model and no store, and passes lines on.

Behind it stands the one server that the hosts of this machine share (``shared_server``). Owns: the connection to it,
and going on at another one when it is gone (``Conversation``): the host notices nothing but an error for the calls that
were under way. Where no server can be had in time, this process becomes an ordinary one: it serves the other end of a
pair of sockets, so that all else stays as it was.

Promises: it ends at once when its host leaves or it is told to. Imports little: a host waits for its start, and many
may run.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from server.early_settings import as_switch, working_directory
from server.foreign_json import json_object, json_value, value_at
from server.local.channel import HANDSHAKE_SECONDS, Channel, ChannelBroken
from server.local.shared_server import LOG_NAME, shared_servers, start
from server.protocol.stdio_pipes import GOODBYE, ChannelPipe, Line, LinePipe, Oversized, pack
from server.terminal import termination_signals

if TYPE_CHECKING:
    import subprocess

    from server.local.channel import Announcement
    from server.local.shared_server import Place


_LOST = -32000
_LOST_HINT = (
    "The memory server ended while it worked on this; another one has taken over. Whether it was carried out is not "
    "known: look first (find, or history), then send the same call again; with a request_id it is applied once."
)
_HANDSHAKE = "initialize"
_READY = "notifications/initialized"
_CANCELLED = "notifications/cancelled"
_CALL = "tools/call"
#: The id of a handshake that is said again, and whose answer is for nobody.
_AGAIN = "runebook-again"

#: By then a server must be there, or be starting, or this process becomes one.
CONNECT_SECONDS = 10.0
_STARTING_SECONDS = 10.0
#: So often in a row a server may be lost before it said anything.
_FUTILE_LIMIT = 3
_POLL_SECONDS = 0.02
_TAKEN_SECONDS = 0.3
_LOOK_SECONDS = 0.1
_ATTACH_LIMIT_BYTES = 65_536
_LINE_LIMIT_BYTES = 256 * 1024 * 1024
_LAST_LINES_SECONDS = 1.0


class Lost(NamedTuple):
    """What a lost connection leaves to be done.

    Attributes:
        answers: Lines for the host: errors in place of answers.
        again: Lines for the next server: requests that change nothing and were not answered.
    """

    answers: list[bytes]
    again: list[bytes]


class Conversation:
    """One host's conversation, as lines pass in either direction; for one thread at a time.

    Every server numbers its questions from 1. So the host sees ``SERVER/NUMBER``.
    """

    def __init__(self) -> None:
        self.private = False
        self._handshake: bytes | None = None
        self._handshake_id: Any = None
        self._ready: bytes | None = None
        self._open: dict[str, tuple[str, bytes]] = {}
        self._private_asked: dict[str, bool] = {}
        self._asked: set[str] = set()
        self._servers = 1

    @property
    def owes(self) -> bool:
        """Whether the host waits for an answer."""
        return bool(self._open)

    def from_host(self, line: bytes) -> bytes | None:
        """Note a line of the host's; what of it goes to the server, None for nothing."""
        message = json_object(line)
        if message is None:
            return line
        method, number = message.get("method"), message.get("id")
        if not isinstance(method, str):
            return self._to_server(message) if "result" in message or "error" in message else line
        if method == _READY:
            self._ready = line
        elif method == _CANCELLED:
            taken_back = _key(value_at(message, ("params", "requestId")))
            self._open.pop(taken_back, None)
            self._private_asked.pop(taken_back, None)
        if number is None:
            return line
        if method == _HANDSHAKE:
            self._handshake, self._handshake_id, self._ready = line, number, None
        elif method == _CALL:
            switch = as_switch(value_at(message, ("params", "arguments", "private_mode")))
            if switch is not None:
                self._private_asked[_key(number)] = switch
        self._open[_key(number)] = (method, line)
        return line

    def from_server(self, line: bytes) -> bytes | None:
        """Note a line of the server's; what of it goes to the host, None for nothing."""
        message = json_object(line)
        if message is None:
            return line
        method, number = message.get("method"), message.get("id")
        if isinstance(method, str):
            return self._to_host(message, line)
        if number == _AGAIN:
            return None
        if number == self._handshake_id and "error" in message:
            self._handshake = self._handshake_id = None  # refused: this client speaks otherwise
        switch = self._private_asked.pop(_key(number), None)
        if switch is not None and "error" not in message and not value_at(message, ("result", "isError")):
            self.private = switch
        self._open.pop(_key(number), None)
        return line

    def lost(self) -> Lost:
        """The connection is gone: what becomes of what was open."""
        calls = [json.loads(key) for key, (method, _) in self._open.items() if method == _CALL]
        again = [line for method, line in self._open.values() if method not in (_CALL, _HANDSHAKE)]
        error = {"code": _LOST, "message": _LOST_HINT}
        answers = [_written({"jsonrpc": "2.0", "id": number, "error": error}) for number in calls]
        for number in self._asked:
            params = {"requestId": number, "reason": "the server that asked has ended"}
            answers.append(_written({"jsonrpc": "2.0", "method": _CANCELLED, "params": params}))
        self._open = {key: kept for key, kept in self._open.items() if kept[0] != _CALL}
        self._private_asked.clear()
        self._asked.clear()
        self._servers += 1
        return Lost(answers, again)

    def greeting(self) -> list[bytes]:
        """Lines for a new server before all others; the answer is dropped, unless the host still waits for it."""
        if self._handshake is None:
            return []
        owed = _key(self._handshake_id) in self._open
        handshake = self._handshake if owed else _written({**json.loads(self._handshake), "id": _AGAIN})
        return [handshake] if self._ready is None else [handshake, self._ready]

    def _told(self, number: Any) -> str:
        """What a host is told for the number of a question of the present server."""
        return f"{self._servers}/{_key(number)}"

    def _to_host(self, message: dict[str, Any], line: bytes) -> bytes:
        """A question of the present server, or that one is taken back; other messages pass as they are."""
        if "id" in message:
            told = self._told(message["id"])
            self._asked.add(told)
            return _written({**message, "id": told})
        told = self._told(value_at(message, ("params", "requestId")))
        if message["method"] == _CANCELLED and told in self._asked:
            self._asked.discard(told)
            return _written({**message, "params": {**message["params"], "requestId": told}})
        return line

    def _to_server(self, answer: dict[str, Any]) -> bytes | None:
        """An answer to a question of the present server; one to a former server's is for nobody."""
        told = answer.get("id")
        if not isinstance(told, str) or told not in self._asked:
            return None
        self._asked.discard(told)
        return _written({**answer, "id": json.loads(told.partition("/")[2])})


def _written(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode()


def _key(number: Any) -> str:
    return json.dumps(number)


class Bridge:
    """One host's connection to whatever serves it.

    Args:
        host: The host's pipe.
        place: Tells which store and settings are wanted, as they are now.
        serve_here: Serves a pipe in this process, in the main thread, until its client has left; told whether that
            has private mode on. Returns the exit status.
    """

    def __init__(self, host: LinePipe, place: Callable[[], Place], serve_here: Callable[[LinePipe, bool], int]) -> None:
        self._host = host
        self._place = place
        self._serve_here = serve_here
        self._conversation = Conversation()
        self._changed = threading.Condition()
        self._channel: Channel | None = None
        self._wanted = False
        self._input_ended = False
        self._here: Channel | None = None
        self._over = False
        self._news = threading.Event()
        self._private = False
        self._futile = 0
        self._child: subprocess.Popen[bytes] | None = None
        self._former: list[subprocess.Popen[bytes]] = []

    def run(self) -> int:
        """Serve the host until it leaves or a signal ends it; in the main thread, as the whole program.

        Returns:
            The exit status: 0 when the host left, 128 plus its number after a signal.
        """
        for number in termination_signals():
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _leave)
        threading.Thread(target=self._read_host, name="runebook-host", daemon=True).start()
        serving = threading.Thread(target=self._serve_host, name="runebook-server", daemon=True)
        serving.start()
        while not self._over and self._here is None:
            self._news.wait(_LOOK_SECONDS if self._input_ended else 1.0)
            self._news.clear()
            self._over = self._over or (self._input_ended and self._host.reader_left())
        status = 0
        if self._here is not None and not self._over:
            status = self._serve_here(ChannelPipe(self._here), self._conversation.private)
            serving.join(_LAST_LINES_SECONDS)
        if (channel := self._channel) is not None:
            channel.close()
        if self._private:
            self._conversation.private = False
            self._note_private()
        return status

    def _end(self) -> None:
        """Let the main thread return."""
        self._over = True
        self._news.set()

    def _read_host(self) -> None:
        """Pass on what the host sends, once there is somebody to take it."""
        for line in self._host.lines():
            self._pass_on(line)
        with self._changed:
            self._input_ended = True
            channel, idle = self._channel, not self._conversation.owes
        if channel is not None:
            channel.finish_sending()
        elif idle:
            self._end()
        self._news.set()

    def _pass_on(self, line: Line) -> None:
        with self._changed:
            while (channel := self._channel) is None or channel.has_sent_all():
                self._wanted = True
                self._changed.notify_all()
                self._changed.wait(_LOOK_SECONDS)
            frame = pack(line) if isinstance(line, Oversized) else self._conversation.from_host(line)
        if frame:
            with suppress(ChannelBroken):  # who reads its answers notices, too
                channel.send(frame)

    def _serve_host(self) -> None:
        """Pass on what servers send, one after another."""
        again: list[bytes] = []
        while not self._over:
            if (channel := self._reach(time.monotonic() + CONNECT_SECONDS)) is None:
                return
            self._futile += 1
            politely = self._converse(channel, again)
            with self._changed:
                self._channel = None
                self._wanted = False
                lost = self._conversation.lost()
            channel.close()
            again = lost.again
            if not all(self._write(line) for line in lost.answers) or (
                self._input_ended and not self._conversation.owes
            ):
                self._end()
            if self._here is not None:  # what was served here has ended, and this process with it
                return
            with self._changed:
                while politely and not (self._wanted or self._input_ended or self._conversation.owes):
                    self._changed.wait(_LOOK_SECONDS * 10)

    def _converse(self, channel: Channel, again: list[bytes]) -> bool:
        """Go on with the conversation until the server is gone; whether it took its leave."""
        try:
            for line in self._conversation.greeting():
                channel.send(line)
                if not self._is_answered(channel, line):
                    return False
            for line in again:
                channel.send(line)
            with self._changed:
                self._channel = channel
                self._changed.notify_all()
                input_ended = self._input_ended
            if input_ended:
                channel.finish_sending()
            while (frame := channel.receive(_LINE_LIMIT_BYTES)) is not None:
                if frame == GOODBYE:
                    return True
                if not self._take(frame):
                    self._end()
                    return False
        except ChannelBroken:
            pass
        return False

    def _is_answered(self, channel: Channel, line: bytes) -> bool:
        """Whether a repeated request was answered; a notification needs none."""
        number = json.loads(line).get("id")
        while number is not None:
            frame = channel.receive(_LINE_LIMIT_BYTES)
            if frame is None or frame == GOODBYE:
                return False
            answer = json.loads(frame)
            self._take(frame)
            if answer.get("id") == number and "method" not in answer:
                break
        return True

    def _take(self, frame: bytes) -> bool:
        """Pass on a line of the server's; whether the host could be told."""
        with self._changed:
            line = self._conversation.from_server(frame)
        self._futile = 0
        if self._conversation.private != self._private:
            self._note_private()
        return line is None or self._write(line)

    def _write(self, line: bytes) -> bool:
        return self._host.write(line if line.endswith(b"\n") else line + b"\n")

    def _note_private(self) -> None:
        """Note for the host's hooks whether things are kept; a server's own note ends with that server."""
        from memory_core.core.private_times import note_private

        self._private = self._conversation.private
        note_private(self._place().state, working_directory(), id(self), private=self._private)

    def _reach(self, deadline: float) -> Channel | None:
        """A server that has taken this host on; this process itself, where none does in time; None at the end."""
        self._former = [child for child in self._former if child.poll() is None]
        latest = deadline + _STARTING_SECONDS
        while not self._over and self._futile < _FUTILE_LIMIT:
            if time.monotonic() >= (deadline if self._child is None or self._child.poll() is not None else latest):
                break
            place = self._place()
            for server in shared_servers(place):
                if (channel := self._attached(server, place)) is not None:
                    if self._child is not None:  # how it ends says nothing about the next one
                        self._former.append(self._child)
                        self._child = None
                    return channel
            if not self._start(place):
                break
        if self._over:
            return None
        import logging

        logging.getLogger(__name__).warning(
            "no shared server could be had; this host is served by a process of its own (why: %s)",
            self._place().state / LOG_NAME,
        )
        ours, theirs = socket.socketpair()
        self._here = Channel(theirs)
        self._news.set()
        return Channel(ours)

    def _attached(self, server: Announcement, place: Place) -> Channel | None:
        """A channel to a server that takes this host on; None where it does not."""
        request = {
            "verb": "attach",
            "settings": place.settings,
            "cwd": working_directory(),
            "private": self._conversation.private,
        }
        try:
            channel = server.connect(time.monotonic() + HANDSHAKE_SECONDS)
        except ChannelBroken:
            return None
        deadline = time.monotonic() + HANDSHAKE_SECONDS
        with suppress(ChannelBroken):
            channel.send(json.dumps(request).encode(), deadline)
            if value_at(json_value(channel.receive(_ATTACH_LIMIT_BYTES, deadline) or b""), ("ok",)) is True:
                return channel
        channel.close()
        return None

    def _start(self, place: Place) -> bool:
        """Have a server started unless one is being started; whether there may be one soon."""
        status = None if self._child is None else self._child.poll()
        if self._child is not None and status is None:
            time.sleep(_POLL_SECONDS)
            return True
        if status:  # it said why in its log; what is served here says it again
            self._child = None
            return False
        if status == 0:  # another one was there first, or is just ending
            time.sleep(_TAKEN_SECONDS)
        try:
            self._child = start(place)
        except OSError:
            return False
        return True


def _leave(number: int, _frame: FrameType | None) -> None:
    """End at once: nothing here would be lost, and the server notices."""
    os._exit(128 + number)
