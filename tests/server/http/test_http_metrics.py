"""``GET /metrics`` and ``viking://metrics`` over the wire: figures, and whose they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from anyio.from_thread import BlockingPortal
from prometheus_client.parser import text_string_to_metric_families

from tests.server.bearers import connected, issue, send
from tests.server.conftest import WORDS_ONLY

if TYPE_CHECKING:
    from tests.server.conftest import HttpServer


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

    def __init__(self, home: Path, portal: BlockingPortal, start: Callable[..., HttpServer]) -> None:
        self.anna, self.bob = issue(home, "anna"), issue(home, "bob", read_only=True)
        self.server = start(home, home.with_name("stderr"), *WORDS_ONLY)
        with connected(portal, self.server, "mcp", "auto", self.anna) as caller:
            caller.call("commit_memory", memory_content="她喝绿茶。", memory_type="facts", fields={"topic": "茶"})
            self.page = caller.facts("read", uri="viking://metrics")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, portal: BlockingPortal) -> Iterator[House]:
    from tests.server.conftest import HttpServer

    made = House(tmp_path_factory.mktemp("metrics") / "home", portal, HttpServer)
    yield made
    made.server.stop()


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


@pytest.mark.parametrize("token", [None, "rb_000000000000_" + "A" * 43])
def test_without_a_token_that_holds_there_are_no_figures(house: House, token: str | None) -> None:
    answer = send(house.server, "GET", "/metrics", token=token)
    assert (answer.status, answer.body) == (401, b"A token is needed.")


def test_only_reading_is_offered_and_other_names_are_refused(house: House) -> None:
    assert send(house.server, "POST", "/metrics", {}, token=house.anna).status == 405
    assert send(house.server, "GET", "/metrics", token=house.anna, host="evil.example").status in (403, 421)


def test_the_page_in_mcp_holds_the_same_figures(house: House) -> None:
    assert json.loads(house.page["content"])["by_space"] == {"user/anna": 1}


def test_the_owner_of_an_open_server_and_any_mcp_client_read_them(
    http_server: Any, connect: Callable[..., Any]
) -> None:
    answer = send(http_server, "GET", "/metrics")
    assert answer.status == 200
    assert series(answer.body, "runebook_size_bytes")
    assert b'part="ledger"' in answer.body
    with connect(f"{http_server.origin}/mcp", "auto") as caller:
        page = caller.portal.call(caller.client.read_resource, "viking://metrics")
        assert "by_type" in json.loads(page.contents[0].text)
