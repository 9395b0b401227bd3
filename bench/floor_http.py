"""How much one server process does for many clients at once over HTTP, each with one request under way at any time."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.chroma_process import free_port
from bench.peers import Call
from bench.recall import percentile
from bench.stdio_client import INITIALIZE, environment
from bench.stores import serve
from bench.synthetic import told

_CLIENTS, _SECONDS, _READY_SECONDS = 16, 8.0, 60.0
_NEW_FROM = 40_000_000


@dataclass(frozen=True, slots=True)
class Load:
    """One kind of request.

    Attributes:
        rate: Requests a second of all clients.
        p99_ms: Of all requests.
        least_share: Requests of the client that had fewest, by the mean of all.
    """

    rate: float
    p99_ms: float
    least_share: float


class _Session:
    """One kept connection with one session of streamable HTTP."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_READY_SECONDS)
        self._headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        self._send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE})
        self._headers["MCP-Protocol-Version"] = INITIALIZE["protocolVersion"]
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, call: Call) -> None:
        """Call a tool; an error ends the program."""
        tool, arguments = call
        parameters = {"name": tool, "arguments": arguments}
        text = self._send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": parameters})
        if '"isError":true' in text or '"structuredContent"' not in text:
            raise SystemExit(f"{tool}: {text[:300]}")

    def _send(self, message: dict[str, Any]) -> str:
        self._connection.request("POST", "/mcp", json.dumps(message).encode(), self._headers)
        answer = self._connection.getresponse()
        text = answer.read().decode()
        session = answer.getheader("Mcp-Session-Id")
        if session:
            self._headers["Mcp-Session-Id"] = session
        if answer.status >= 300:
            raise SystemExit(f"HTTP {answer.status}: {text[:300]}")
        return text


def loads(home: Path) -> tuple[Load, Load, Load]:
    """Finds, commits, and finds again while the vectors of those commits are made; by 16 clients at once."""
    with _serving(lambda port: [*serve(home), "--transport", "http", "--port", str(port)]) as port:
        sessions = [_Session(port) for _ in range(_CLIENTS)]
        sessions[0].call(("find", {"query": "is the model loaded"}))
        finds = _load(sessions, _found)
        commits = _load(sessions, lambda number: ("commit_memory", {"memory_content": told(_NEW_FROM + number).text}))
        return finds, commits, _load(sessions, _found)


def _found(number: int) -> Call:
    return "find", {"query": told(number).question}


def bare_load(command: Sequence[str]) -> Load:
    """Trivial calls of the bare server by as many clients."""
    with _serving(lambda port: [*command, str(port)]) as port:
        sessions = [_Session(port) for _ in range(_CLIENTS)]
        return _load(sessions, lambda number: ("add", {"a": number, "b": 1}))


def _load(sessions: list[_Session], call: Callable[[int], Call]) -> Load:
    times: list[list[float]] = [[] for _ in sessions]
    until = time.monotonic() + _SECONDS

    def work(client: int) -> None:
        while time.monotonic() < until:
            asked = call(len(times[client]) * _CLIENTS + client)
            started = time.perf_counter()
            sessions[client].call(asked)
            times[client].append(1e3 * (time.perf_counter() - started))

    began = time.monotonic()
    with ThreadPoolExecutor(len(sessions)) as pool:
        list(pool.map(work, range(len(sessions))))  # a client's error ends the program here
    every = [each for own in times for each in own]
    mean = len(every) / len(sessions)
    return Load(len(every) / (time.monotonic() - began), percentile(every, 0.99), min(map(len, times)) / mean)


@contextmanager
def _serving(command: Callable[[int], Sequence[str]]) -> Iterator[int]:
    """The port of a server of its own process, which the command starts on that port."""
    port = free_port()
    process = subprocess.Popen(command(port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
    try:
        until = time.monotonic() + _READY_SECONDS
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit("the HTTP server did not start")
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
