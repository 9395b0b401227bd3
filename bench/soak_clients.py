"""The processes of a soak, as its actors meet them: each may be killed or paused at any moment.

A ``Roster`` knows every live process that the soak may kill. A ``StdioServer`` or ``HttpServer`` speaks raw JSON-RPC,
without an SDK, so that what is measured and what breaks is the server's.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from bench.chroma_process import free_port
from bench.stdio_client import INITIALIZE, environment

#: A request that takes longer than this is a hang: the store's lock gives up after 30 s, a pause lasts 3 s.
PATIENCE_SECONDS = 120.0
_READ_BYTES = 1 << 16


class ServerGone(Exception):
    """The process ended, or its connection broke, before it answered."""


class Refused(Exception):
    """The tool answered, and the answer is an error."""


class Hang(Exception):
    """No answer in ``PATIENCE_SECONDS``."""


class Roster:
    """Every process that may be killed, by what it is; shared by all threads of the soak."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._guard = threading.Lock()
        self._live: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}
        self.ended: list[str] = []
        self._killed: set[int] = set()

    def start(self, role: str, command: Sequence[str], *, pipes: bool) -> subprocess.Popen[bytes]:
        """Start a process and list it."""
        with (self._log / f"{role}.stderr").open("ab") as errors:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment(),
                bufsize=0,
            )
        with self._guard:
            self._live[process.pid] = (role, process)
        return process

    def live(self) -> list[tuple[str, subprocess.Popen[bytes]]]:
        """The listed processes that run."""
        with self._guard:
            return [(role, process) for role, process in self._live.values() if process.returncode is None]

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL one of them; its end is then no surprise."""
        with self._guard:
            self._killed.add(process.pid)
        process.kill()

    def forget(self, process: subprocess.Popen[bytes], *, wanted: bool = False) -> None:
        """Wait for its end and take it off the list; an end that nobody caused is kept in ``ended``."""
        try:
            code: int | str = process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = "no end after its input did"
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        with self._guard:
            role, _ = self._live.pop(process.pid, ("?", process))
            killed = process.pid in self._killed
            self._killed.discard(process.pid)
            if not killed and not (wanted and code in (0, -signal.SIGTERM)):
                self.ended.append(f"{role} ended by itself with {code}")


def program(verb: str, home: Path, options: Sequence[str]) -> list[str]:
    """The command line of Runebook's program."""
    return [sys.executable, "-X", "faulthandler", "-m", "server.cli", verb, "--home", str(home), *options]


class Server(Protocol):
    """One server process and the connection to it."""

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool; its structured content.

        Raises:
            ServerGone: If the process ended; what it did of the request is unknown.
            Refused: If the tool refused.
            Hang: If nothing came back.
        """
        ...

    def close(self) -> None:
        """End it in the ordinary way, and wait for its end."""
        ...


class StdioServer:
    """``runebook serve`` over its pipes."""

    def __init__(self, roster: Roster, role: str, home: Path, options: Sequence[str]) -> None:
        self._roster = roster
        self._process = roster.start(role, program("serve", home, options), pipes=True)
        self._pending = b""
        self._last_id = 0
        try:
            self._request("initialize", INITIALIZE)
            self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        except (ServerGone, Hang):
            self.close()
            raise

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """See ``Server``."""
        return _facts(self._request("tools/call", {"name": tool, "arguments": arguments}))

    def close(self) -> None:
        """See ``Server``."""
        wanted = self._process.poll() is None
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._roster.forget(self._process, wanted=wanted)

    def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._last_id += 1
        self._send({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            answer: dict[str, Any] = json.loads(self._line(until))
            if answer.get("id") == self._last_id:
                return answer

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        data = json.dumps(message, ensure_ascii=False).encode("utf-8") + b"\n"
        try:
            while data:
                data = data[self._process.stdin.write(data) or 0 :]
        except OSError as error:
            raise ServerGone from error

    def _line(self, until: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._pending:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise Hang
            received = os.read(descriptor, _READ_BYTES)
            if not received:
                raise ServerGone
            self._pending += received
        line, _, self._pending = self._pending.partition(b"\n")
        return line


class HttpServer:
    """``runebook serve --transport http`` on a free port, and one session of streamable HTTP."""

    def __init__(self, roster: Roster, role: str, home: Path, options: Sequence[str]) -> None:
        self._port = free_port()
        self._roster = roster
        command = program("serve", home, ["--transport", "http", "--port", str(self._port), *options])
        self._process = roster.start(role, command, pipes=False)
        self._session: str | None = None
        self._last_id = 0
        try:
            self._await_listening()
            self._request("initialize", INITIALIZE)
            self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        except (ServerGone, Hang):
            self.close()
            raise

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """See ``Server``."""
        return _facts(self._request("tools/call", {"name": tool, "arguments": arguments}))

    def close(self) -> None:
        """See ``Server``."""
        wanted = self._process.poll() is None
        if wanted:
            self._process.terminate()
        self._roster.forget(self._process, wanted=wanted)

    def _await_listening(self) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise ServerGone
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise Hang

    def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._last_id += 1
        body = self._post({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})
        lines = [line.removeprefix("data:") for line in body.splitlines() if line.startswith(("data:", "{"))]
        for line in lines:
            answer: dict[str, Any] = json.loads(line) if line.strip() else {}
            if answer.get("id") == self._last_id:
                return answer
        raise ServerGone

    def _post(self, message: dict[str, Any]) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_SECONDS)
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self._session is not None:
            headers |= {"Mcp-Session-Id": self._session, "MCP-Protocol-Version": INITIALIZE["protocolVersion"]}
        try:
            connection.request("POST", "/mcp", json.dumps(message).encode("utf-8"), headers)
            with connection.getresponse() as answer:
                self._session = answer.getheader("Mcp-Session-Id") or self._session
                text = answer.read().decode("utf-8")
        except TimeoutError as error:
            raise Hang from error
        except (OSError, http.client.HTTPException) as error:
            raise ServerGone from error
        finally:
            connection.close()
        if answer.status >= 400:
            raise Refused(f"HTTP {answer.status}: {text[:200]}")
        return text


def run_once(roster: Roster, role: str, command: Sequence[str]) -> dict[str, Any]:
    """Run a command-line program of one shot; the JSON it prints.

    Raises:
        ServerGone: If it was killed.
        Refused: If it ended with an error.
        Hang: If it did not end.
    """
    process = roster.start(role, command, pipes=False)
    try:
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        roster.kill(process)
        raise Hang from None
    finally:
        code = process.wait() if process.poll() is not None else None
        roster.forget(process, wanted=True)
    if code is not None and code < 0:
        raise ServerGone
    if code != 0:
        raise Refused(f"exit status {code}: {output.decode('utf-8', 'replace')[:200]}")
    facts: dict[str, Any] = json.loads(output)
    return facts


def children(pid: int) -> list[int]:
    """Processes that this one started and that still run (Linux)."""
    try:
        return [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text(encoding="utf-8").split()
        ]
    except OSError:
        return []


def _facts(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise Refused(str(answer["error"].get("message", answer["error"])))
    result = answer["result"]
    if result.get("isError"):
        raise Refused(result["content"][0]["text"])
    facts: dict[str, Any] = result.get("structuredContent", {})
    return facts
