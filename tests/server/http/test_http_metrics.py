"""``GET /metrics`` and ``viking://metrics`` over the wire: figures, and whose they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.bearers import issue, send
from tests.server.conftest import Connect, HttpServer


def series(body: bytes, name: str) -> dict[str, float]:
    """Values of one metric by space."""
    return {
        sample.labels.get("space", ""): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
        if sample.name == name
    }


class House:
    """A server with tokens of anna, who remembers tea, and bob, who remembers nothing."""

    def __init__(self, home: Path, connect: Connect) -> None:
        self.anna, self.bob = issue(home, "anna"), issue(home, "bob", read_only=True)
        self.server = HttpServer(home, home.with_name("stderr"))
        with connect(f"{self.server.origin}/mcp", token=self.anna) as caller:
            caller.call("commit_memory", memory_content="她喝绿茶。", memory_type="facts", fields={"topic": "茶"})
            self.page = caller.facts("read", uri="viking://metrics")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, connect: Connect) -> Iterator[House]:
    made = House(tmp_path_factory.mktemp("metrics") / "home", connect)
    with made.server:
        yield made


def test_a_bearer_sees_the_figures_of_its_own_spaces_only(house: House) -> None:
    answer = send(house.server, "GET", "/metrics", token=house.anna)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert series(answer.body, "runebook_memories") == {"user/anna": 1}
    other = send(house.server, "GET", "/metrics", token=house.bob)
    assert series(other.body, "runebook_memories") == {"": 0}
    for body in (answer.body, other.body):
        assert b'part="ledger"' not in body  # of the whole folder, and so the owner's
    assert b"anna" not in other.body
    assert json.loads(house.page["content"])["by_space"] == {"user/anna": 1}


def test_the_owner_of_an_open_server_and_any_mcp_client_read_them(http_server: HttpServer, connect: Connect) -> None:
    answer = send(http_server, "GET", "/metrics")
    assert answer.status == 200
    assert series(answer.body, "runebook_size_bytes")
    assert b'part="ledger"' in answer.body
    with connect(f"{http_server.origin}/mcp") as caller:
        assert "by_type" in json.loads(caller.resource("viking://metrics").text)
