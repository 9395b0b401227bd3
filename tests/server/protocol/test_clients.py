"""History says which client wrote."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mcp.server.context import ServerRequestContext
from mcp.types import ClientCapabilities, Implementation, InitializeRequestParams

from server.protocol.app import caller_name
from tests.server.conftest import ERAS, Connect, Era, RawClient, StartHttp


def authors(home: Path) -> list[str]:
    with closing(sqlite3.connect(home / ".state" / "ledger.sqlite3")) as ledger:
        return [author for (author,) in ledger.execute("SELECT author FROM commits ORDER BY rowid")]


def request_of(info: Implementation | None) -> ServerRequestContext[Any, Any]:
    """A request, as far as its sender goes."""
    params = info and InitializeRequestParams(
        protocol_version="2025-11-25", capabilities=ClientCapabilities(), client_info=info
    )
    return cast("ServerRequestContext[Any, Any]", SimpleNamespace(session=SimpleNamespace(client_params=params)))


@ERAS
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_commit_is_recorded_as_the_clients(
    tmp_path: Path, connect: Connect, start_http: StartHttp, transport: str, era: Era
) -> None:
    home = tmp_path / "home"
    with connect(home if transport == "stdio" else f"{start_http().origin}/mcp", era) as caller:
        caller.facts("commit_memory", memory_content="The cat is called 豆豆.")
    assert authors(home) == ["mcp 0.1.0"]


def test_hostile_name_is_recorded_short_and_printable(tmp_path: Path, raw_client: type[RawClient]) -> None:
    home = tmp_path / "home"
    client = raw_client(home)
    info = {"name": "\u001b[31m\u202e坏\n" + "x" * 100_000, "version": "\ud83d\udc09" * 5_000}
    client.request("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=info)
    client.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
    receipt = client.call("commit_memory", memory_content="stored all the same")["structuredContent"]
    assert receipt["status"] == "committed"
    client.__exit__(None, None, None)
    (author,) = authors(home)
    assert author.startswith("[31m 坏 xxx")
    assert len(author) <= 80
    assert author.isprintable()


def test_name_and_version_are_both_said_if_there_are_any() -> None:
    assert caller_name(request_of(None)) == ""
    assert caller_name(request_of(Implementation(name="", version=""))) == ""
    assert caller_name(request_of(Implementation(name="claude-code", version="2.1"))) == "claude-code 2.1"
