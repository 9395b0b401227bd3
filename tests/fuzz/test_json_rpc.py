"""Random JSON-RPC on the real server: every request is answered once, nothing ends the process, nothing leaks.

A seed fixes all frames of a round; a failure names it. The quick rounds run always, the long ones are marked slow;
``RUNEBOOK_FUZZ_ROUNDS`` sets how many.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import starter
from tests.fuzz.random_frames import ENVELOPE, Frame, Frames, dumped
from tests.fuzz.site import OPTIONS, Site
from tests.waiting import PATIENCE_SECONDS

ROUNDS = int(os.environ.get("RUNEBOOK_FUZZ_ROUNDS", "3"))


def many(first: int, rounds: int) -> list[Any]:
    """Seeds of the long rounds, with the number of frames in each."""
    return [pytest.param(seed, 500, marks=pytest.mark.slow) for seed in range(first, first + rounds)]


class Wire:
    """The server's process and what it says."""

    def __init__(self, home: Path) -> None:
        self.errors = home.with_name(f"{home.name}.stderr")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RUNEBOOK_")}
        with self.errors.open("wb") as log:
            self.process = starter().program(
                *("serve", "--home", str(home), *OPTIONS),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
            )
        self.lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._collect)
        self._reader.start()
        self.rounds = 0
        self.meta: dict[str, Any] = {}

    def _collect(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(b"")

    def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def initialize(self) -> None:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "fuzz", "version": "1"}}
        self.write(dumped({"jsonrpc": "2.0", "id": "open", "method": "initialize", "params": params}))
        assert self.message()["id"] == "open"
        self.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    def open_modern(self) -> None:
        """Settle the connection's era: no message of the other one is served on it any more."""
        self.meta = {"_meta": ENVELOPE}
        self.write(dumped({"jsonrpc": "2.0", "id": "open", "method": "server/discover", "params": self.meta}))
        assert "result" in self.message()

    def message(self) -> dict[str, Any]:
        try:
            line = self.lines.get(timeout=PATIENCE_SECONDS)
        except queue.Empty:
            raise AssertionError(f"no answer came; stderr: {self.stderr()[-2000:]}") from None
        assert line.endswith(b"\n"), f"the server ended: {self.stderr()[-2000:]}"
        assert b"Traceback" not in line, line
        message = json.loads(line.decode("utf-8"), parse_constant=no_constant)
        assert isinstance(message, dict)
        assert message["jsonrpc"] == "2.0"
        return message

    def stderr(self) -> str:
        return self.errors.read_text(encoding="utf-8")

    def play(self, frames: list[Frame]) -> None:
        """Send ``frames`` and account for every answer."""
        self.rounds += 1
        end = f"end of round {self.rounds}"
        for frame in frames:
            self.write(frame.line)  # what is answered meanwhile is collected
        self.write(dumped({"jsonrpc": "2.0", "id": end, "method": "ping", "params": self.meta}))
        owed = Counter(key(frame.id) for frame in frames if frame.expected == "once")
        owed[key(None)] += sum(frame.expected == "null" for frame in frames)
        owed[key(end)] += 1
        permitted = sum(frame.expected == "maybe" for frame in frames)
        while owed.total() > 0:
            message = self.message()
            if "method" in message:
                assert "id" not in message, f"a request to a client that can answer none: {message}"
                continue
            assert ("result" in message) != ("error" in message), message
            answered = key(message["id"])
            if owed[answered] > 0:
                owed[answered] -= 1
            else:
                permitted -= 1
                assert permitted >= 0, f"an answer nobody asked for: {json.dumps(message)[:500]}"

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(PATIENCE_SECONDS)
        finally:
            self.process.kill()
            self.process.wait()
            self._reader.join()
            assert self.process.stdout is not None
            self.process.stdout.close()


def key(identifier: Any) -> str:
    """Equal for equal JSON values only: 1 is not True, and 1 is not "1"."""
    return json.dumps(identifier)


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


@pytest.fixture(scope="module", params=["2025-11-25", "2026-07-28"])
def wire(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    wire = Wire(tmp_path_factory.mktemp("wire") / "home")
    try:
        if request.param == "2025-11-25":
            wire.initialize()
        else:
            wire.open_modern()
        yield wire
    finally:
        wire.close()
    assert wire.process.returncode == 0
    assert "Traceback" not in wire.stderr()


def assert_still_at_work(wire: Wire, name: str) -> None:
    """Ordinary calls do what they always do."""
    for tool, arguments in (
        ("commit_memory", {"memory_content": f"Still here {name} 还在", "fields": {"title": name}}),
        ("find", {"query": f"still here {name}"}),
    ):
        call = {"name": tool, "arguments": arguments, **wire.meta}
        wire.write(dumped({"jsonrpc": "2.0", "id": f"{tool} {name}", "method": "tools/call", "params": call}))
        answer = wire.message()
        while answer.get("id") != f"{tool} {name}":
            answer = wire.message()
        assert "result" in answer and not answer["result"].get("isError"), answer  # noqa: PT018
    assert any(name in hit["uri"] for hit in answer["result"]["structuredContent"]["memories"])
    assert "Traceback" not in wire.stderr()


@pytest.mark.parametrize(("seed", "count"), [*((seed, 100) for seed in range(4)), *many(1000, ROUNDS)])
def test_random_frames_are_each_answered_once(wire: Wire, seed: int, count: int) -> None:
    wire.play(list(Frames(seed, seed + 1).frames(count)))
    assert_still_at_work(wire, f"seed{seed}")


def test_lines_of_many_megabytes_are_answered(wire: Wire) -> None:
    text = b"a" * 10_000_000
    first = b'{"jsonrpc":"2.0","id":"huge 1","method":"tools/call","params":{"name":"' + text + b'"}}'
    last = b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"' + text + b'"},"id":"huge 2"}'
    wire.play([Frame(first, "once", "huge 1"), Frame(last, "once", "huge 2"), Frame(text, "null")])
    assert_still_at_work(wire, "huge")


@pytest.mark.parametrize("seed", [11, 12])
def test_random_frames_before_initialize_are_each_answered_once(tmp_path: Path, seed: int) -> None:
    wire = Wire(tmp_path / "home")
    try:
        wire.play(list(Frames(seed, 1).frames(60)))
        assert wire.process.poll() is None
    finally:
        wire.close()
    assert wire.process.returncode == 0
    assert "Traceback" not in wire.stderr()


@pytest.mark.parametrize("seed", range(3))
def test_half_a_frame_before_the_end_of_input_ends_the_server(tmp_path: Path, seed: int) -> None:
    wire = Wire(tmp_path / "home")
    frames = Frames(seed, 1)
    line = frames.plain().line
    assert wire.process.stdin is not None
    wire.process.stdin.write(line[: frames.dice.randrange(1, len(line))])
    wire.close()
    assert wire.process.returncode == 0
    assert wire.message()["error"]["code"] < 0
    assert "Traceback" not in wire.stderr()


# HTTP


@pytest.mark.parametrize(("seed", "count"), [(21, 150), *many(2000, (ROUNDS + 2) // 3)])
def test_random_bodies_over_http_are_each_answered(site: Site, seed: int, count: int) -> None:
    frames = Frames(seed, seed + 1)
    for frame in frames.frames(count):
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if frames.dice.random() < 0.7:
            headers["MCP-Protocol-Version"] = frames.dice.choice(("2025-11-25", "2026-07-28", "1999-01-01", "?"))
        if frames.dice.random() < 0.5:
            headers["Mcp-Method"] = frames.dice.choice(("tools/call", "ping", "?"))
        if frames.dice.random() < 0.2:
            headers["Mcp-Session-Id"] = frames.dice.choice(("0" * 32, "?", "x" * 5000))
        status, body = site.post(frame.line, headers)
        assert 200 <= status < 500, (seed, frame, status, body[:500])
        assert b"Traceback" not in body, (seed, frame)
        assert site.process.poll() is None, (seed, frame)
