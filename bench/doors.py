"""One ordinary user beside eight hostile tokens and hundreds of silent sockets, on one HTTP server.

Each token attacks in a way of its own for as long as asked: answers of megabytes that nobody reads (SSE and streamable
HTTP), commits of tens of thousands of messages, long texts, searches, contexts and checks on eight connections at once,
and garbage. The user finds nine times and commits once a second. Reported: the user's times and refusals alone, under
the attack and after it, and what the server holds in memory. With ``--each`` one heavy client at a time is beside the
user: the user's times alone right before each load, beside it, and how many times as long.

    python -m bench.doors --seconds 120
    python -m bench.doors --each --seconds 20
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from bench.stdio_client import INITIALIZE, resident_mib
from bench.stores import fill

HOSTILE = 8
_SILENT = 300
_LARGE_MESSAGES = 3_000
_MANY_MESSAGES = 5_000
_SIDE_BY_SIDE = 8
_HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
_OPENING = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
_ADDRESS = re.compile(r"127\.0\.0\.1:(\d+)/")
_SESSION = "viking://session/default/large/messages.jsonl"


class Door:
    """One token's way to a server."""

    def __init__(self, port: int, token: str) -> None:
        self.port = port
        self.headers = _HEADERS | {"authorization": f"Bearer {token}", "host": f"127.0.0.1:{port}"}

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        """Status and body of one request on a connection of its own; 0 where the server closed it."""
        data = None if body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(
                method, path, data, self.headers | {name.replace("_", "-"): value for name, value in headers.items()}
            )
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()

    def call(self, tool: str, **arguments: Any) -> int:
        """The status of a tool's call in a session of its own."""
        return self.rpc("tools/call", {"name": tool, "arguments": arguments})

    def rpc(self, method: str, params: dict[str, Any]) -> int:
        """The status of a request in a session of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request("POST", "/mcp", json.dumps(_OPENING).encode(), self.headers)
            answer = connection.getresponse()
            answer.read()
            session = answer.headers.get("mcp-session-id", "")
            body = {"jsonrpc": "2.0", "id": 2, "method": method, "params": params}
            named = self.headers | {"mcp-session-id": session}
            connection.request("POST", "/mcp", json.dumps(body).encode(), named)
            answer = connection.getresponse()
            answer.read()
            connection.request("DELETE", "/mcp", headers=named)
            connection.getresponse().read()
            return answer.status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def raw(self, method: str, path: str, body: bytes = b"", *fields: str) -> socket.socket:
        """A connection on which a request was sent, and nothing is read."""
        connection = socket.create_connection(("127.0.0.1", self.port), 60)
        lines = [
            f"{method} {path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in self.headers.items()),
            *fields,
            f"content-length: {len(body)}",
            "",
            "",
        ]
        connection.sendall("\r\n".join(lines).encode() + body)
        return connection


def unread_stream(door: Door, until: float) -> None:
    """An SSE stream that is not read, and question after question for it."""
    stream = door.raw("GET", "/sse")
    said = b""
    while b"session_id=" not in said:
        said += stream.recv(4096)
    path = "/messages/?session_id=" + said.split(b"session_id=")[1][:32].decode()
    handshake = [_OPENING, {"jsonrpc": "2.0", "method": "notifications/initialized"}]
    for body in handshake:
        door.ask("POST", path, body)
    number = 1
    with stream:
        while time.monotonic() < until:
            number += 1
            asked = {"jsonrpc": "2.0", "id": number, "method": "resources/read", "params": {"uri": _SESSION}}
            if door.ask("POST", path, asked)[0] in (0, 404):
                return


def unread_answers(door: Door, until: float) -> None:
    """Requests on connection after connection, whose answers are not read."""
    answer = door.raw("POST", "/mcp", json.dumps(_OPENING).encode())
    said = answer.recv(65_536)
    answer.close()
    session = said.split(b"mcp-session-id: ")[1].split(b"\r\n")[0].decode()
    held: list[socket.socket] = []
    number = 1
    while time.monotonic() < until:
        number += 1
        asked = {"jsonrpc": "2.0", "id": number, "method": "resources/read", "params": {"uri": _SESSION}}
        with suppress(OSError):
            held.append(door.raw("POST", "/mcp", json.dumps(asked).encode(), f"mcp-session-id: {session}"))
        if len(held) > 200:
            held.pop(0).close()
        time.sleep(0.05)
    for connection in held:
        connection.close()


def many_messages(door: Door, until: float) -> None:
    """Commits of a conversation of very many messages."""
    number = 0
    while time.monotonic() < until:
        number += 1
        said = [{"role": "user", "content": f"n{number} {index} tea"} for index in range(_MANY_MESSAGES)]
        door.call("commit_memory", messages=said, session_id=f"s{number}")


def side_by_side(ask: Callable[[Door, int], Any]) -> Callable[[Door, float], None]:
    """The same on several connections at once."""

    def attack(door: Door, until: float) -> None:
        def go_on(lane: int) -> None:
            number = lane
            while time.monotonic() < until:
                number += _SIDE_BY_SIDE
                ask(door, number)

        lanes = [threading.Thread(target=go_on, args=(lane,)) for lane in range(_SIDE_BY_SIDE)]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()

    return attack


def _long_text(door: Door, number: int) -> None:
    words = " ".join(f"word{number}x{index}" for index in range(14_000))
    door.call("commit_memory", content=words, memory_type="notes", fields={"title": f"long {number}"})


def _garbage(door: Door, number: int) -> None:
    shapes = (
        b'{"jsonrpc": "2.0", "id": ' + b"[" * 20_000,
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "find", "arguments": {"query": 7}}}',
        bytes(range(256)) * 400,
    )
    connection = door.raw(
        "POST", ("/mcp", "/messages/?session_id=x", "/api/memory/search")[number % 3], shapes[number % 3]
    )
    with connection, suppress(OSError):
        connection.recv(1_024)


ATTACKS: dict[str, Callable[[Door, float], None]] = {
    "unread stream": unread_stream,
    "unread answers": unread_answers,
    "5,000 messages": many_messages,
    "texts of 180 KB": side_by_side(_long_text),
    "searches": side_by_side(
        lambda door, number: door.call("find", query=f"where does she keep note {number}?", limit=100)
    ),
    "contexts": side_by_side(
        lambda door, number: door.call("retrieve", query=f"tea and note {number}", max_tokens=16_000)
    ),
    "checks": side_by_side(
        lambda door, number: door.ask("GET", ("/api/memory/health", "/api/memory/stats")[number % 2])
    ),
    "garbage": side_by_side(_garbage),
}

#: What one client asks for that is much, and allowed.
LOADS: dict[str, Callable[[Door, float], None]] = {
    "conversations of 5,000 messages": many_messages,
    "texts of 180 KB": ATTACKS["texts of 180 KB"],
    "maintenance": side_by_side(
        lambda door, number: door.ask("POST", ("/api/memory/consolidate", "/api/memory/archive")[number % 2], {})
    ),
    "reads of 9 MB": side_by_side(lambda door, _number: door.rpc("resources/read", {"uri": _SESSION})),
}


def attack(port: int, tokens: list[str], seconds: float, only: str | None) -> None:
    """All attacks at once, and the silent sockets; the whole of a process."""
    until = time.monotonic() + seconds
    chosen = [(name, tokens[number]) for number, name in enumerate(ATTACKS) if only in (None, name)]
    threads = [
        threading.Thread(target=_tried, args=(ATTACKS[name], Door(port, token), until)) for name, token in chosen
    ]
    for thread in threads:
        thread.start()
    silent: list[socket.socket] = []
    while time.monotonic() < until:
        if only is None:
            for _ in range(_SILENT - len(silent)):
                with suppress(OSError):
                    silent.append(socket.create_connection(("127.0.0.1", port), 5))
            silent = [connection for connection in silent if not _is_closed(connection)]
        time.sleep(0.2)
    for connection in silent:
        connection.close()
    for thread in threads:
        thread.join()


def _tried(attacking: Callable[[Door, float], None], door: Door, until: float) -> None:
    while time.monotonic() < until:
        with suppress(OSError, IndexError, http.client.HTTPException):
            attacking(door, until)


def _is_closed(connection: socket.socket) -> bool:
    try:
        connection.setblocking(False)
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def ordinary(door: Door, seconds: float) -> dict[str, Any]:
    """What the user meets: nine searches and one commit a second."""
    times: dict[str, list[float]] = {"find": [], "commit": []}
    statuses = Counter[int]()
    until = time.monotonic() + seconds
    number = 0
    while time.monotonic() < until:
        number += 1
        if number % 10:
            what, path, body = "find", "/api/memory/search", {"query": f"where does she keep note {number}?"}
        else:
            text = f"Note {number} of {time.time_ns()}."
            what, path, body = "commit", "/api/memory/entries", {"content": text, "memory_type": "notes"}
        started = time.perf_counter()
        status, _ = door.ask("POST", path, body)
        times[what].append(time.perf_counter() - started)
        statuses[status] += 1
        time.sleep(max(0.0, 0.1 - times[what][-1]))
    figures: dict[str, Any] = {"statuses": dict(statuses)}
    for what, taken in ((what, taken) for what, taken in times.items() if taken):
        ordered = sorted(taken)
        figures[what] = {
            f"p{part} ms": round(1e3 * ordered[min(len(ordered) - 1, len(ordered) * part // 100)], 1)
            for part in (50, 99)
        }
    return figures


def main() -> None:
    """Run it and print what was measured."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--seconds", type=float, default=120.0)
    options.add_argument("--memories", type=int, default=1_000)
    options.add_argument("--only", choices=list(ATTACKS), help="One attack, without silent sockets.")
    options.add_argument("--each", action="store_true", help="Each heavy load of one client alone, with ratios.")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "store", asked.memories) as server:
        found = each_load(server, asked.seconds) if asked.each else measured(server, asked.seconds, asked.only)
        print(json.dumps(found, indent=2))


class Served(NamedTuple):
    """A server that runs, its user and those who attack; the first two have a long conversation."""

    process: int
    user: Door
    hostile: list[str]


@contextmanager
def serving(home: Path, memories: int) -> Iterator[Served]:
    """A server on a store of so many memories."""
    program = [sys.executable, "-m", "server.cli"]

    def issued(label: str, space: str) -> str:
        command = [*program, "token", "add", label, "--user-space", space, "--home", str(home), "--json"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return str(json.loads(done.stdout)["token"])

    fill(home, memories)
    tokens = [issued(f"hostile {number}", f"hostile{number}") for number in range(HOSTILE)]
    user = issued("user", "default")
    server = subprocess.Popen(
        [
            *program,
            "serve",
            "--transport",
            "http",
            "--port",
            "0",
            "--home",
            str(home),
            "--set",
            "maintenance.automatic=off",
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    try:
        port = next(int(found[1]) for line in server.stderr if (found := _ADDRESS.search(line)))
        threading.Thread(target=server.stderr.read, daemon=True).start()
        door = Door(port, user)
        large = "\n".join(f"tea {index} " + "x" * 900 for index in range(3))
        for number in (0, 1):
            said = [{"role": "user", "content": f"{index} {large}"} for index in range(_LARGE_MESSAGES)]
            for start in range(0, len(said), 1_000):
                Door(port, tokens[number]).call(
                    "commit_memory", messages=said[start : start + 1_000], session_id="large"
                )
        ordinary(door, 5)
        yield Served(server.pid, door, tokens)
    finally:
        server.terminate()
        server.wait(30)


def each_load(server: Served, seconds: float) -> dict[str, Any]:
    """The user's figures alone, beside each load of one client, and how many times as long the 99th percentile is."""
    figures: dict[str, Any] = {}
    for name in LOADS:
        _rest(server.process)
        alone = ordinary(server.user, seconds)
        door = Door(server.user.port, server.hostile[0])
        client = multiprocessing.get_context("spawn").Process(target=_tried_named, args=(name, door, seconds + 5))
        client.start()
        time.sleep(2)
        beside = ordinary(server.user, seconds)
        client.terminate()
        client.join()
        times = {what: round(beside[what]["p99 ms"] / alone[what]["p99 ms"], 1) for what in ("find", "commit")}
        figures[name] = {"alone": alone, "beside it": beside, "p99 times as long": times}
        print(name, figures[name], file=sys.stderr, flush=True)
    return figures


def _rest(process: int) -> None:
    """Wait until a server has used less than 0.2 s of processor time in two seconds."""
    used = -1.0  # it is read twice at least
    while True:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        now = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        if now - used < 0.2:
            return
        used = now
        time.sleep(2.0)


def _tried_named(name: str, door: Door, seconds: float) -> None:
    _tried(LOADS[name], door, time.monotonic() + seconds)


def measured(server: Served, seconds: float, only: str | None) -> dict[str, Any]:
    """The user's figures alone, under the attack and after it."""
    _rest(server.process)
    figures: dict[str, Any] = {
        "alone": ordinary(server.user, min(20.0, seconds)),
        "resident MiB before": resident_mib(server.process),
    }
    attacker = multiprocessing.get_context("spawn").Process(
        target=attack, args=(server.user.port, server.hostile, seconds, only)
    )
    attacker.start()
    time.sleep(2)
    most = [0.0]
    watching = threading.Event()

    def watch() -> None:
        while not watching.wait(0.2):
            most[0] = max(most[0], resident_mib(server.process))

    watcher = threading.Thread(target=watch)
    watcher.start()
    figures["under attack"] = ordinary(server.user, max(1.0, seconds - 3))
    attacker.terminate()
    attacker.join()
    watching.set()
    watcher.join()
    time.sleep(5)
    figures |= {
        "after": ordinary(server.user, 5),
        "resident MiB at most": most[0],
        "resident MiB after": resident_mib(server.process),
    }
    return figures


if __name__ == "__main__":
    main()
