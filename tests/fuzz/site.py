"""The HTTP server that random requests are sent to, in a process of its own."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fork_server import Process
from tests.server.conftest import HttpServer
from tests.waiting import PATIENCE_SECONDS

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
    options = (*OPTIONS, "--set", "http.requests_per_minute=0")
    with HttpServer(folder / "home", folder / "stderr", *options) as server:
        yield Site(server.process, server.port, folder / "home", server.errors)
    assert "Traceback" not in server.errors.read_text(encoding="utf-8")
