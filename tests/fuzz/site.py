"""The HTTP server that random requests are sent to, in a process of its own."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fork_server import Process, starter

PATIENCE_SECONDS = 60  # never reached by a passing test
OPTIONS = ("--set", "embedding.provider=none", "--set", "project.detect=false")


@dataclass(frozen=True, slots=True)
class Site:
    """The HTTP server's process."""

    process: Process
    port: int
    home: Path
    errors: Path

    def post(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Status and body of what ``/mcp`` answers."""
        return self.ask("POST", "/mcp", body, headers)

    def still_answers(self) -> bool:
        """Whether the process goes on."""
        return self.process.poll() is None and self.ask("GET", "/livez")[0] == 200

    def ask(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = {}) -> tuple[int, bytes]:
        """Status and body of one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


@contextmanager
def served(folder: Path) -> Iterator[Site]:
    """A server in a new folder; at its end nothing may have gone wrong in it."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RUNEBOOK_")}
    serve = [*("serve", "--transport", "http", "--port", str(port)), "--home", str(folder / "home"), *OPTIONS]
    unlimited = ("--set", "http.requests_per_minute=0")
    with (folder / "stderr").open("wb") as log:
        process = starter().program(
            *(*serve, *unlimited),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
        )
    site = Site(process, port, folder / "home", folder / "stderr")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            assert process.poll() is None, site.errors.read_text(encoding="utf-8")
            assert time.monotonic() < deadline
            time.sleep(0.02)
    try:
        yield site
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)
    assert "Traceback" not in site.errors.read_text(encoding="utf-8")
