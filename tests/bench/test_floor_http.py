"""Rates are of clients that all went on to the end."""

from __future__ import annotations

import http.server
import threading

import pytest

from bench import floor_http


class Failing(http.server.BaseHTTPRequestHandler):
    """Opens sessions, and refuses every call of a tool."""

    def do_POST(self) -> None:
        said = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(500 if b"tools/call" in said else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def test_a_client_that_fails_ends_the_program() -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Failing) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            session = floor_http._Session(server.server_port)
            with pytest.raises(SystemExit, match="HTTP 500"):
                floor_http._load([session], floor_http._found)
        finally:
            server.shutdown()
