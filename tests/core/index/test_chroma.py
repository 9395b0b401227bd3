"""Vectors on a real Chroma server: found as by a scan, and never missed when it goes away, loses or swaps them."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.chroma_process import ChromaProcess
from memory_core.core.index import embedding_queue, vectors
from memory_core.core.index.catalog_file import CatalogFile
from memory_core.core.index.chroma import ChromaIndex, Sent, read_sent
from memory_core.core.index.chroma_server import ChromaServer, Place
from memory_core.core.index.vectors import VectorIndex, VectorRow
from memory_core.core.store.locks import StoreLock
from tests.waiting import soon

pytestmark = pytest.mark.slow

SPACE = "user/张三"
MODEL = "model-a"
DIM = 64
ROWS = 700


def unit(seed: int) -> NDArray[np.float32]:
    drawn = np.random.default_rng(seed).standard_normal(DIM).astype(np.float32)
    return np.asarray(drawn / np.linalg.norm(drawn), np.float32)


def row(number: int) -> VectorRow:
    return VectorRow(SPACE, f"viking://user/张三/memories/条目 {number}.md", 0, f"{number:064x}", MODEL, unit(number))


class Store:
    """One store as one process sees it. The document of row *n* has the number n + 1."""

    def __init__(self, state: Path, url: str) -> None:
        self.state = state
        self.catalog = CatalogFile(state / "index.sqlite3")
        self.server = ChromaServer(Place(url))
        self.index = ChromaIndex(state, self.server, pause_seconds=0.05, verify_seconds=0.0)
        self.scan = VectorIndex(state)

    def append(self, *numbers: int) -> None:
        with self.catalog.database.writing() as connection:
            for number in numbers:
                place = row(number)
                embedding_queue.put(connection, number + 1, SPACE, place.uri, 0, str(number), place.content_sha256)
            vectors.append(connection, [row(number) for number in numbers])

    def prune(self, seqs: list[int]) -> None:
        with self.catalog.database.writing() as connection:
            vectors.prune(connection, seqs)

    def send(self) -> None:
        while self.index.keep_up(self.catalog.database.connection(), SPACE, MODEL):
            continue

    def search(self, query: int, k: int = 10) -> list[int]:
        found = self.index.nearest(self.catalog.database.connection(), [SPACE], MODEL, [unit(query)], k).cosines
        return sorted(found, key=lambda document: -found[document])[:k]

    def exact(self, query: int, k: int = 10) -> list[int]:
        found = self.scan.nearest(self.catalog.database.connection(), [SPACE], MODEL, [unit(query)], k).cosines
        return sorted(found, key=lambda document: -found[document])[:k]

    def backend(self) -> str:
        return self.index.status(self.catalog.database.connection(), SPACE, MODEL).backend

    def sent(self) -> Sent:
        found = read_sent(self.catalog.database.connection(), self.server.place.name, SPACE, MODEL)
        assert found is not None
        return found

    def held(self) -> int:
        return self.server.count(self.sent().collection)

    def is_whole(self) -> bool:
        """Whether the server answers searches and holds exactly the log."""
        self.send()
        rows = vectors.count(self.catalog.database.connection(), SPACE, MODEL)
        return self.backend() == "http" and self.index.trouble is None and self.held() == rows

    def close(self) -> None:
        self.index.close()
        self.catalog.database.close()


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChromaProcess]:
    with ChromaProcess(tmp_path_factory.mktemp("chroma")) as running:
        yield running


@pytest.fixture
def store(process: ChromaProcess, tmp_path: Path) -> Iterator[Store]:
    """A store of which all rows were sent."""
    opened = Store(tmp_path, process.url)
    opened.append(*range(ROWS))
    opened.send()
    assert opened.backend() == "http"
    yield opened
    opened.close()


def test_server_finds_what_a_scan_finds_and_the_newest_rows_too(store: Store) -> None:
    store.append(*range(ROWS, 3_000))
    store.send()
    assert store.held() == 3_000
    store.append(*range(3_000, 3_050))  # not sent
    common = [len({*store.search(query)} & {*store.exact(query)}) for query in range(9_000, 9_100)]
    assert sum(common) / 1_000 >= 0.98
    assert store.search(3_049)[0] == 3_050
    assert store.index.status(store.catalog.database.connection(), SPACE, MODEL).scanned_rows == 50
    assert store.search(9_000, k=2_000) == store.exact(9_000, k=2_000)  # more than a server gives at once


def test_frozen_server_costs_one_search_a_second_and_is_used_again_once_it_goes_on(
    store: Store, process: ChromaProcess
) -> None:
    store.index._pause_seconds = 3_600.0
    process.freeze()
    try:
        began = time.monotonic()
        assert store.search(9_000) == store.exact(9_000)
        assert time.monotonic() - began < 9.0  # what is no search waits ten
        assert store.backend() == "exact"
        assert "does not answer in time" in (store.index.trouble or "")
        asked = store.index._retry_at
        assert store.search(9_001) == store.exact(9_001)
        assert store.index._retry_at == asked  # it was not asked again
    finally:
        process.thaw()
    store.index._retry_at = 0.0
    assert store.search(9_000)[0] == store.exact(9_000)[0]
    assert store.backend() == "http"
    assert store.index.trouble is None


def test_killed_server_is_missed_by_nobody_and_used_again_by_itself(store: Store, process: ChromaProcess) -> None:
    before = store.sent().collection
    process.kill()
    try:
        assert store.search(9_000) == store.exact(9_000)
        assert "cannot be reached" in (store.index.trouble or "")
        store.append(5_000)
        store.send()
        assert store.search(5_000)[0] == 5_001
    finally:
        process.start()
    assert soon(lambda: bool(store.search(9_000)) and store.backend() == "http")
    assert soon(store.is_whole)
    assert store.sent().collection == before  # nothing had to be sent twice


def test_server_killed_while_rows_are_sent_ends_with_all_of_them(store: Store, process: ChromaProcess) -> None:
    store.append(*range(ROWS, 6_000))
    sending = threading.Thread(target=store.send)
    first = store.sent().seq
    sending.start()
    assert soon(lambda: store.sent().seq > first)
    process.kill()
    try:
        sending.join()
        assert store.search(9_000) == store.exact(9_000)
    finally:
        process.start()
    assert soon(store.is_whole)
    assert store.held() == 6_000


def test_emptied_server_is_filled_anew(store: Store, process: ChromaProcess) -> None:
    process.kill()
    process.wipe()
    process.start()
    newcomer = Store(store.state, process.url)  # a process that was not there when rows were sent
    newcomer.index.load(newcomer.catalog.database.connection(), SPACE, MODEL)
    for asking in (store, newcomer):
        assert asking.search(9_000) == asking.exact(9_000)
        assert "no longer holds" in (asking.index.trouble or "")
    newcomer.close()
    assert soon(store.is_whole)
    assert len({*store.search(9_000)} & {*store.exact(9_000)}) >= 9


def lose(store: Store, seqs: list[int]) -> None:
    """Have the server forget rows."""
    path = f"{store.server._collections}/{store.sent().collection}/delete"
    store.server._ask("POST", path, {"ids": [str(seq) for seq in seqs]})


def test_lost_and_superfluous_rows_are_mended(store: Store) -> None:
    lose(store, [3, 5, 8])
    strays = np.stack([unit(1), unit(2), unit(3)])
    store.server.put(store.sent().collection, np.asarray([70_001, 70_002, 70_003]), strays)
    assert store.held() == ROWS  # the count alone does not tell
    mended = {3, 5, 8}
    assert soon(
        lambda: store.is_whole() and set(store.server.rows(store.sent().collection, [3, 5, 8, 70_001])) == mended
    )


def test_row_of_a_stranger_is_no_hit(store: Store) -> None:
    store.server.put(store.sent().collection, np.asarray([70_001]), unit(9_000)[np.newaxis])
    assert store.search(9_000)[0] == store.exact(9_000)[0]


def test_rows_of_a_log_that_lost_its_end_are_not_taken_for_the_rows_that_come_instead(store: Store) -> None:
    store.server.put(store.sent().collection, np.asarray([ROWS + 1]), unit(1)[np.newaxis])
    store.append(5_000)
    assert soon(store.is_whole)
    assert store.search(5_000)[0] == 5_001


def test_swapped_vectors_are_noticed_and_sent_anew(store: Store) -> None:
    collection, seqs = store.sent().collection, np.arange(1, 301)
    for first in (1, 301, 601):
        seqs = np.arange(first, min(first + 300, ROWS + 1))
        store.server.put(collection, seqs, np.stack([unit(20_000 + int(seq)) for seq in seqs]))
    assert soon(lambda: store.is_whole() and store.sent().collection != collection)
    assert store.search(7)[0] == store.exact(7)[0]


def test_copied_store_begins_a_collection_of_its_own(store: Store, process: ChromaProcess, tmp_path: Path) -> None:
    copied = tmp_path / "copy"
    copied.mkdir()
    store.catalog.database.connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copyfile(tmp_path / "index.sqlite3", copied / "index.sqlite3")
    copy = Store(copied, process.url)
    try:
        copy.append(*range(30_000, 30_050))
        store.append(*range(40_000, 40_050))  # the same numbers, other texts
        assert soon(copy.is_whole)
        assert soon(store.is_whole)
        assert copy.sent().collection != store.sent().collection
        for number in range(50):
            assert copy.search(30_000 + number)[0] == 30_001 + number
            assert store.search(40_000 + number)[0] == 40_001 + number
    finally:
        copy.close()


def test_one_process_sends_at_a_time(store: Store) -> None:
    store.append(8_000)
    with StoreLock(store.state / "locks" / "index.lock").held():
        store.send()
        assert store.held() == ROWS
        assert store.index.trouble is None
    store.send()
    assert store.held() == ROWS + 1
