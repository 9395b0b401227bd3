"""Tokens of a store, and raw HTTP requests that show them."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory_core.core.store.ledger import Ledger
from tests.waiting import PATIENCE_SECONDS as PATIENCE_SECONDS

if TYPE_CHECKING:
    from tests.server.conftest import HttpServer

HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
OPENING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
ASK = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


def issue(home: Path, label: str, **options: Any) -> str:
    """A token for a store that may not exist yet."""
    with ledger_of(home) as ledger:
        return ledger.tokens.issue(label, **({"user_space": label, "agent_space": label} | options))[0]


def revoke(home: Path, label: str) -> None:
    with ledger_of(home) as ledger:
        ledger.tokens.revoke(label)


@contextmanager
def ledger_of(home: Path) -> Iterator[Ledger]:
    ledger = Ledger(home / ".state" / "ledger.sqlite3")
    try:
        yield ledger
    finally:
        ledger.close()


class Reply:
    """A raw HTTP answer, read to its end."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self.body = answer.read()

    def message(self) -> dict[str, Any]:
        """The JSON-RPC message in it, whether it came as JSON or as an event."""
        text = self.body.decode()
        lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
        message: dict[str, Any] = json.loads(lines[-1] if lines else text)
        return message


def send(
    server: HttpServer, method: str, path: str, body: Any = None, token: str | None = None, **headers: str
) -> Reply:
    """One request on a connection of its own."""
    named = HEADERS | {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        named["authorization"] = f"Bearer {token}"
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS)
    try:
        connection.request(method, path, data, named)
        return Reply(connection.getresponse())
    finally:
        connection.close()
