"""What is sent where, and what becomes of a server's refusals: with a stand-in where no real server gives them."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.chroma_process import free_port
from memory_core.core.config import Config, IndexConfig
from memory_core.core.errors import ConfigInvalid
from memory_core.core.index import embedding_queue, vectors
from memory_core.core.index.catalog_file import CatalogFile
from memory_core.core.index.chroma import ChromaIndex, Sent, ServerFailed, write_sent
from memory_core.core.index.chroma_server import KEY_NAME, ChromaServer, Place, place_of
from memory_core.core.index.vectors import VectorIndex, VectorRow
from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.core.memory.results import as_json
from memory_core.features.doctor import examine
from memory_core.features.doctor_checks import Severity
from memory_core.features.metrics import STATS, StatsRequest, exposition, metrics_text
from memory_core.open_store import load_registry
from memory_core.runebook import open_memory
from tests.core.llm.stand_ins import Recorded, Reply, StandIn, dripping, raw
from tests.stores import words_only

KEY = "ck-0123456789abcdef"
SPACE, MODEL = "user/default", "model-a"


class Answering(StandIn):
    """Answers each request with the next of ``answers``, the last one for ever: status and JSON, or "drops"."""

    def __init__(self) -> None:
        super().__init__(())
        self.answers: list[tuple[int, Any]] = [(200, {})]

    def next_reply(self, request: Recorded) -> Reply:
        self.requests.append(request)
        status, values = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if values == "drops":
            return dripping()
        return raw(values if isinstance(values, str) else json.dumps(values), "application/json", status)


@pytest.fixture
def stand_in() -> Iterator[Answering]:
    with Answering() as answering:
        yield answering


@pytest.fixture
def server(stand_in: Answering) -> Iterator[ChromaServer]:
    with closing(ChromaServer(Place(stand_in.url))) as opened:
        yield opened


def vector(seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    drawn = np.random.default_rng(seed).standard_normal(16).astype(np.float32)
    return np.asarray(drawn / np.linalg.norm(drawn), np.float32)


def test_key_tenant_and_database_go_with_each_request(stand_in: Answering) -> None:
    stand_in.answers = [(200, {"id": "c1", "metadata": {"writer": "w"}}), (200, 7)]
    server = ChromaServer(Place(stand_in.url, "公司", "记忆", KEY))
    found = server.find("v1")
    assert found is not None
    assert server.count(found.id) == 7
    server.close()
    for asked in stand_in.requests:
        assert asked.path.startswith("/api/v2/tenants/%E5%85%AC%E5%8F%B8/databases/%E8%AE%B0%E5%BF%86/collections/")
        assert asked.headers["x-chroma-token"] == KEY
        assert asked.headers["authorization"] == f"Bearer {KEY}"


def test_cloud_is_sent_its_own_header_alone_and_needs_tenant_and_database() -> None:
    settings = IndexConfig(mode="http", url="https://api.trychroma.com", tenant="t-1", database="记忆")
    place = place_of(settings, {KEY_NAME: KEY})
    assert place.headers()["x-chroma-token"] == KEY
    assert "authorization" not in place.headers()
    assert KEY not in repr(place)
    assert KEY not in place.name
    with pytest.raises(ConfigInvalid, match="needs a key"):
        place_of(settings, {})
    with pytest.raises(ConfigInvalid, match="tenant"):
        place_of(IndexConfig(mode="http", url="https://api.trychroma.com"), {KEY_NAME: KEY})


@pytest.mark.parametrize(
    "url",
    [
        *("127.0.0.1:8000", "ftp://127.0.0.1", "http://u:p@127.0.0.1", "http://127.0.0.1?x=1", "http://10.0.0.1:8000"),
        *("http://[foo", "https://h:abc", "https://h:99999", "https://h\x01", "https://xn--zz\xff.com"),
    ],
)
def test_address_that_cannot_be_used_or_would_show_the_key_is_refused(url: str) -> None:
    with pytest.raises(ConfigInvalid):
        place_of(IndexConfig(mode="http", url=url), {KEY_NAME: KEY})


def test_refused_address_is_an_error_at_the_opening(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid):
        open_memory(Config(home=tmp_path, index=IndexConfig(mode="http", url="nowhere")))


def test_refused_key_is_told_without_the_key(stand_in: Answering) -> None:
    stand_in.answers = [(401, {"error": "AuthError", "message": f"no: {KEY}"})]
    server = ChromaServer(Place(stand_in.url, key=KEY))
    with pytest.raises(ServerFailed) as failed:
        server.version()
    server.close()
    assert failed.value.status == 401
    assert KEY_NAME in failed.value.hint
    assert KEY not in str(failed.value)


def test_background_asks_again_after_a_fault_that_passes_and_a_search_does_not(
    stand_in: Answering, server: ChromaServer
) -> None:
    stand_in.answers = [(503, "busy"), (200, 5)]
    assert server.count("c1") == 5
    stand_in.answers = [(503, "busy"), (200, 5)]
    with pytest.raises(ServerFailed, match="503"):
        server.count("c1", soon=True)


def test_answer_in_drops_ends_in_time(stand_in: Answering, server: ChromaServer) -> None:
    stand_in.answers = [(200, "drops")]
    began = time.monotonic()
    with pytest.raises(ServerFailed):
        server.nearest("c1", vector(1), 10)
    assert time.monotonic() - began < 60.0  # its end would come after a hundred


ELSEWHERE = {"id": "../../../reset\x00", "metadata": {"writer": "w"}}
NO_ANSWERS: dict[str, tuple[Callable[[ChromaServer], Any], tuple[int, Any], str]] = {
    "other program": (ChromaServer.version, (404, "not found"), "answered 404: not found"),
    "page": (ChromaServer.version, (200, "<html>"), "no JSON"),
    "other version": (ChromaServer.version, (200, {"max_batch_size": 100}), "no Chroma server that this version"),
    "list": (ChromaServer.version, (200, [1]), "no Chroma server that this version"),
    "infinite count": (lambda server: server.count("c1"), (200, "Infinity"), "another shape"),
    "deep count": (lambda server: server.count("c1"), (200, "[" * 100_000), "no JSON"),
    "count that is an object": (lambda server: server.count("c1"), (200, {"a": 1}), "another shape"),
    "id that leads elsewhere": (lambda server: server.find("v1"), (200, ELSEWHERE), "another shape"),
}


@pytest.mark.parametrize("kind", NO_ANSWERS)
def test_what_is_no_answer_is_a_failure_in_words(stand_in: Answering, server: ChromaServer, kind: str) -> None:
    ask, answer, told = NO_ANSWERS[kind]
    stand_in.answers = [answer]
    with pytest.raises(ServerFailed, match=told):
        ask(server)


def test_proxy_of_the_environment_is_not_used_for_loopback(
    stand_in: Answering, server: ChromaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    stand_in.answers = [(200, 3)]
    assert server.count("c1") == 3


def sent(tmp_path: Path, stand_in: Answering, rows: list[VectorRow]) -> tuple[CatalogFile, ChromaIndex]:
    """A store that has sent these rows to the stand-in, which answers as a sound server until it is asked a search."""
    catalog = CatalogFile(tmp_path / "index.sqlite3")
    server = ChromaServer(Place(stand_in.url))
    with catalog.writing() as connection:
        for number, row in enumerate(rows, 1):
            embedding_queue.put(connection, number, row.space, row.uri, 0, str(number), row.content_sha256)
        vectors.append(connection, rows)
        write_sent(connection, server.place.name, SPACE, MODEL, Sent("store", "c1", len(rows), "w", ""))
    index = ChromaIndex(tmp_path, server)
    held = {
        "ids": [str(number) for number in range(1, len(rows) + 1)],
        "embeddings": [[*map(float, row.vector)] for row in rows],
    }
    stand_in.answers = [(200, {"id": "c1", "metadata": {}}), (200, len(rows)), (200, held), (200, {"ids": [["1"]]})]
    index.load(catalog.connection(), SPACE, MODEL)
    assert index.status(catalog.connection(), SPACE, MODEL).backend == "http"
    return catalog, index


@pytest.mark.parametrize(
    "answer",
    [
        (500, "broken"),
        (429, "later"),
        (401, "no"),
        (200, {"ids": 3}),
        (200, "no JSON"),
        (200, "[" * 100_000),
        (404, "gone"),
        (200, {"ids": [["7"]]}),
        (200, {"ids": [["seven"] * 10]}),
        (200, {"ids": [[]]}),
    ],
    ids=lambda answer: str(answer)[:40],
)
def test_search_is_exact_whatever_the_server_says(stand_in: Answering, tmp_path: Path, answer: tuple[int, Any]) -> None:
    rows = [VectorRow(SPACE, f"viking://{number}", 0, f"{number:064x}", MODEL, vector(number)) for number in range(50)]
    catalog, index = sent(tmp_path, stand_in, rows)
    stand_in.answers = [answer]
    connection = catalog.connection()
    exact = VectorIndex(tmp_path).nearest(connection, [SPACE], MODEL, [vector(7)], 10)
    assert index.nearest(connection, [SPACE], MODEL, [vector(7)], 10) == exact
    assert index.trouble is not None
    asked = len(stand_in.requests)
    index.nearest(connection, [SPACE], MODEL, [vector(8)], 10)
    assert len(stand_in.requests) == asked  # not every search waits for it
    index.close()
    catalog.close()


def test_row_of_another_space_is_no_hit_and_cosines_are_our_own_whatever_the_server_says(
    stand_in: Answering, tmp_path: Path
) -> None:
    others = VectorRow("user/bob", "viking://secret", 0, "f" * 64, MODEL, vector(1))
    catalog, index = sent(tmp_path, stand_in, [others, VectorRow(SPACE, "viking://own", 0, "e" * 64, MODEL, vector(2))])
    stand_in.answers = [(200, {"ids": [["1", "2", "-3", str(2**70)]], "distances": [[0.0, 0.0, 0.0, 0.0]]})]
    found = index.nearest(catalog.connection(), [SPACE], MODEL, [vector(1)], 10)
    assert found.cosines == {2: pytest.approx(float(vector(1) @ vector(2)), abs=1e-6)}
    assert found.complete
    index.close()
    catalog.close()


def test_rows_of_texts_that_are_gone_do_not_make_the_rest_complete(stand_in: Answering, tmp_path: Path) -> None:
    rows = [VectorRow(SPACE, f"viking://{number}", 0, f"{number:064x}", MODEL, vector(number)) for number in range(30)]
    catalog, index = sent(tmp_path, stand_in, rows)
    with catalog.writing() as connection:
        for number in range(20):
            embedding_queue.remove(connection, f"viking://{number}")
    given = [
        str(number) for number in range(1, 23)
    ]  # twenty are of no document any more, and eight others are not named
    stand_in.answers = [(200, {"ids": [given]})]
    found = index.nearest(catalog.connection(), [SPACE], MODEL, [vector(1)], 22)
    assert (set(found.cosines), found.complete) == ({21, 22}, False)
    index.close()
    catalog.close()


def test_a_space_of_which_every_vector_that_was_sent_is_damaged_is_searched_on(
    stand_in: Answering, tmp_path: Path
) -> None:
    rows = [VectorRow(SPACE, f"viking://{number}", 0, f"{number:064x}", MODEL, vector(number)) for number in range(3)]
    catalog, index = sent(tmp_path, stand_in, rows)
    index.close()
    catalog.connection().execute("UPDATE vectors SET vector = ?", (b"abc",))
    stand_in.answers = [(200, {"id": "c1", "metadata": {}}), (200, 3), (200, {"ids": [], "embeddings": []})]
    other = ChromaIndex(tmp_path, ChromaServer(Place(stand_in.url)))
    other.load(catalog.connection(), SPACE, MODEL)
    assert other.nearest(catalog.connection(), [SPACE], MODEL, [vector(1)], 2) == ({}, True)
    other.close()
    catalog.close()


def test_what_keeps_the_server_from_being_brought_up_to_date_is_told_in_one_sentence(
    stand_in: Answering, tmp_path: Path
) -> None:
    catalog, index = sent(tmp_path, stand_in, [VectorRow(SPACE, "viking://own", 0, "e" * 64, MODEL, vector(2))])
    lock = tmp_path / "locks" / "index.lock"
    lock.unlink(missing_ok=True)
    lock.mkdir()
    index._sendings.clear()  # nothing is known to be whole any more
    assert not index.keep_up(catalog.connection(), SPACE, MODEL)
    assert index.trouble is not None
    assert index.trouble.startswith("the vector server could not be brought up to date: ")
    assert "Next:" not in index.trouble
    index.close()
    catalog.close()


def test_answer_without_an_end_is_not_kept(
    stand_in: Answering, server: ChromaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory_core.core.index.chroma_server._ANSWER_BYTES", 100_000)
    stand_in.answers = [(200, "7" * 200_000)]
    with pytest.raises(ServerFailed, match="does not end"):
        server.count("c1", soon=True)


def test_store_works_and_says_so_where_nothing_listens(tmp_path: Path) -> None:
    config = words_only(tmp_path, index=IndexConfig(mode="http", url=f"http://127.0.0.1:{free_port()}"))
    with open_memory(config) as memory:
        assert memory.commit(CommitRequest("渡轮九点开往纳克索斯。 The ferry leaves at nine.")).status == "committed"
        assert memory.find(FindRequest("ferry")).total == memory.find(FindRequest("渡轮")).total == 1
        figures = memory.run(STATS, StatsRequest(whole=True))
        own = memory.run(STATS, StatsRequest()).vector_server
    assert figures.vector_server is not None
    assert "cannot be reached" in (figures.vector_server.trouble or "")
    assert config.index.url in metrics_text(figures)
    assert "runebook_vector_server_up 0" in exposition(figures)
    assert own is not None
    assert config.index.url not in str(as_json(own))  # a user with a token is told no address
    (finding,) = examine(config, load_registry(config)).of("vector server")
    assert finding.severity is Severity.WARNING
    refused = config.model_copy(update={"index": IndexConfig(mode="http", url="nowhere")})
    assert examine(refused, load_registry(config)).of("vector server")[0].severity is Severity.ERROR


def test_a_request_that_is_under_way_while_connections_are_let_go_of_ends_well() -> None:
    asked, may_answer = threading.Event(), threading.Event()

    def answer(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65_536)
            asked.set()
            may_answer.wait(30)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(2) as pool:
        answering = pool.submit(answer, listening)
        server = ChromaServer(Place(f"http://127.0.0.1:{listening.getsockname()[1]}"))
        asking = pool.submit(server.answers)
        assert asked.wait(30)
        server.close()
        may_answer.set()
        assert asking.result(30)
        answering.result(30)
        assert not server.answers()
