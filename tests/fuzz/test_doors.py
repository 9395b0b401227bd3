"""Random input at every door of the HTTP server: each is answered or hung up on, and it goes on as before.

The quick rounds run always; the long ones are marked slow, and last as long as ``RUNEBOOK_FUZZ_SECONDS`` says.
Rounds of ten minutes need ``pytest -o faulthandler_timeout=0``: a test that takes five is ended as hung.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from server.local.channel import Announcement, ChannelBroken, announced, submit
from tests.fuzz.random_frames import Frames, dumped
from tests.fuzz.site import Site
from tests.waiting import PATIENCE_SECONDS, soon

SECONDS = float(os.environ.get("RUNEBOOK_FUZZ_SECONDS", "8"))
QUICK_ROUNDS = 80
#: A round leaves memories and sessions behind; what leaks grows without end.
GROWTH_MIB = 200
OWN = "viking://user/default/memories"


def resident_mib(site: Site) -> float:
    """Of the server's process, where the system tells."""
    status = Path(f"/proc/{site.process.pid}/status")
    if not status.exists():
        return 0.0
    return int(status.read_text(encoding="ascii").partition("VmRSS:")[2].split()[0]) / 1024


class Streams:
    """The SSE door: a stream of answers that is read, and posts to it and to streams that there are not."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._socket = socket.create_connection(("127.0.0.1", site.port), PATIENCE_SECONDS)
        self._socket.sendall(f"GET /sse HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\n\r\n".encode())
        self._stream = self._socket.makefile("rb")
        while not (line := self._stream.readline()).startswith(b"data: "):
            assert line
        self._path = line.decode().removeprefix("data: ").strip()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):
            while self._stream.readline():
                pass

    def play(self, frames: Frames) -> None:
        for frame in frames.frames(1):
            path = frames.dice.choice((self._path, self._path, f"/messages/?session_id={'0' * 32}", "/messages/?x=%00"))
            status, body = self._site.ask("POST", path, frame.line, {"Content-Type": "application/json"})
            assert 200 <= status < 500, (frame, status, body[:500])

    def close(self) -> None:
        with suppress(OSError):  # the server may have ended it
            self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join(PATIENCE_SECONDS)
        self._stream.close()
        self._socket.close()


class Api:
    """The API's door: every operation that it describes, with values of any shape."""

    def __init__(self, site: Site) -> None:
        self._site = site
        status, body = site.ask("GET", "/api/openapi.json")
        assert status == 200
        self._operations = [
            (method.upper(), path, each)
            for path, methods in json.loads(body)["paths"].items()
            for method, each in methods.items()
        ]

    def play(self, frames: Frames) -> None:
        method, path, described = frames.dice.choice(self._operations)
        if "changes" in path:  # a stream, which lasts
            return
        names = [each["name"] for each in described.get("parameters", ()) if each["in"] == "query"]
        for each in described.get("parameters", ()):
            if each["in"] == "path":
                value = frames.dice.choice(("user/default/memories", "../..", "1", "%00", str(frames.value())))
                path = path.replace(f"{{{each['name']}}}", quote(value, safe="/", errors="replace"))
        query = "&".join(
            f"{name}={quote(str(frames.value()), errors='replace')[:2_000]}"
            for name in names
            if frames.dice.random() < 0.6
        )
        body = dumped(self._body(frames)) if method != "GET" else b""
        headers = {"Content-Type": "application/json", "If-Match": frames.dice.choice(('"x"', "*", "?"))}
        status, answer = self._site.ask(method, f"{path}?{query}", body, headers)
        no_model = status == 503 and b"model" in answer
        assert 200 <= status < 500 or no_model, (method, path, query, body[:500], status, answer[:500])

    def _body(self, frames: Frames) -> Any:
        if frames.dice.random() < 0.3:
            return frames.value()
        uri = frames.dice.choice((f"{OWN}/notes/a.md", OWN, "viking://", str(frames.value())))
        members = ("uri", "content", "fields", "tags", "query", "messages", "session_id", "operations", "name", "value")
        return {"uri": uri, **{frames.dice.choice(members): frames.value() for _ in range(frames.dice.randrange(5))}}

    def close(self) -> None:
        """There is nothing to close."""


class Line:
    """The door of local processes, before and behind its handshake."""

    def __init__(self, site: Site) -> None:
        self._state = site.home / ".state"
        assert soon(lambda: bool(announced(self._state)))
        self._server: Announcement = announced(self._state)[0]

    def play(self, frames: Frames) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        if frames.dice.random() < 0.3:
            with self._server.dial(PATIENCE_SECONDS) as stranger:
                self._say(lambda: stranger.sendall(frames.plain().line))
            return
        channel = self._server.connect(deadline)
        try:
            if frames.dice.random() < 0.3:
                self._say(lambda: channel.send(frames.mutated().line, deadline))
            else:
                channel.send(dumped(self._request(frames)), deadline)
                answer = channel.receive(1 << 26, deadline)
                assert answer is None or isinstance(json.loads(answer), dict)
        except ChannelBroken:
            pass
        finally:
            channel.close()

    def _request(self, frames: Frames) -> Mapping[str, Any]:
        verb = frames.dice.choice(("hook", "command", "ping", "find", "stop", frames.value()))
        names = ("name", "query", "request", "arguments", "event", "cwd", "author", "wishes", "given", "host")
        return {"verb": verb, **{frames.dice.choice(names): frames.value() for _ in range(frames.dice.randrange(6))}}

    def _say(self, send: Callable[[], None]) -> None:
        try:
            send()
        except (OSError, ChannelBroken):
            return

    def close(self) -> None:
        assert submit(self._state, "ping", {}, PATIENCE_SECONDS) is not None


DOORS = (Streams, Api, Line)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("seed", "seconds"), [(31, 0.0), pytest.param(None, SECONDS, marks=pytest.mark.slow)])
def test_random_input_at_a_door_is_answered_and_takes_no_memory(
    site: Site, door: Callable[[Site], Streams | Api | Line], seed: int | None, seconds: float
) -> None:
    opened, frames = door(site), Frames(seed or int.from_bytes(os.urandom(4), "big"), 1)
    for _ in range(QUICK_ROUNDS):
        opened.play(frames)
    before, until = resident_mib(site), time.monotonic() + seconds
    while time.monotonic() < until:
        opened.play(frames)
    opened.close()
    assert site.still_answers()
    assert resident_mib(site) - before < GROWTH_MIB
