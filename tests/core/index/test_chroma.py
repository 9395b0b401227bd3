"""Vectors on a real Chroma server: found as by a scan, and never missed when it goes away, loses or swaps them."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import numpy as np
import pytest

from bench.chroma_process import ChromaProcess
from memory_core.core.index import vectors
from memory_core.core.index.chroma import ChromaIndex, Sent, read_sent
from memory_core.core.index.chroma_server import ChromaServer, Place
from memory_core.core.store.locks import StoreLock
from tests.core.index.row_store import MODEL, SPACE, RowStore, unit
from tests.waiting import soon

pytestmark = pytest.mark.slow

ROWS = 700


class Store(RowStore):
    """Whose rows are sent to a server."""

    index: ChromaIndex

    def __init__(self, state: Path, url: str) -> None:
        self.server = ChromaServer(Place(url))
        super().__init__(state, ChromaIndex(state, self.server, pause_seconds=0.05, verify_seconds=0.0))

    def sent(self) -> Sent:
        found = read_sent(self.connection, self.server.place.name, SPACE, MODEL)
        assert found is not None
        return found

    def held(self) -> int:
        return self.server.count(self.sent().collection)

    def is_whole(self) -> bool:
        """Whether the server answers searches and holds exactly the log."""
        self.keep_up()
        rows = vectors.count(self.connection, SPACE, MODEL)
        return self.backend() == "http" and self.index.trouble is None and self.held() == rows


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChromaProcess]:
    with ChromaProcess(tmp_path_factory.mktemp("chroma")) as running:
        yield running


@pytest.fixture
def store(process: ChromaProcess, tmp_path: Path) -> Iterator[Store]:
    """A store of which all rows were sent."""
    opened = Store(tmp_path, process.url)
    opened.add(*range(ROWS))
    opened.keep_up()
    assert opened.backend() == "http"
    yield opened
    opened.close()


def test_server_finds_what_a_scan_finds_and_the_newest_rows_too(store: Store) -> None:
    store.add(*range(ROWS, 3_000))
    store.keep_up()
    assert store.held() == 3_000
    store.add(*range(3_000, 3_050))  # not sent
    common = [len({*store.near(query)} & {*store.exact(query)}) for query in range(9_000, 9_100)]
    assert sum(common) / 1_000 >= 0.98
    assert store.near(3_049)[0] == 3_050
    assert store.index.status(store.connection, SPACE, MODEL).scanned_rows == 50
    assert store.near(9_000, k=2_000) == store.exact(9_000, k=2_000)  # more than a server gives at once


def test_frozen_server_costs_one_search_a_second_and_is_used_again_once_it_goes_on(
    store: Store, process: ChromaProcess
) -> None:
    store.index._pause_seconds = 3_600.0
    store.server._work_timeout = httpx2.Timeout(100.0)
    process.freeze()
    try:
        began = time.monotonic()
        assert store.near(9_000) == store.exact(9_000)
        assert time.monotonic() - began < 60.0  # what is no search waits a hundred
        assert store.backend() == "exact"
        assert "does not answer in time" in (store.index.trouble or "")
        asked = store.index._retry_at
        assert store.near(9_001) == store.exact(9_001)
        assert store.index._retry_at == asked  # it was not asked again
    finally:
        process.thaw()
    store.index._retry_at = 0.0
    assert store.near(9_000)[0] == store.exact(9_000)[0]
    assert store.backend() == "http"
    assert store.index.trouble is None


def test_killed_server_is_missed_by_nobody_and_used_again_by_itself(store: Store, process: ChromaProcess) -> None:
    before = store.sent().collection
    process.kill()
    try:
        assert store.near(9_000) == store.exact(9_000)
        assert "cannot be reached" in (store.index.trouble or "")
        store.add(5_000)
        store.keep_up()
        assert store.near(5_000)[0] == 5_001
    finally:
        process.start()
    assert soon(lambda: bool(store.near(9_000)) and store.backend() == "http")
    assert soon(store.is_whole)
    assert store.sent().collection == before  # nothing had to be sent twice


def test_server_killed_while_rows_are_sent_ends_with_all_of_them(store: Store, process: ChromaProcess) -> None:
    store.add(*range(ROWS, 6_000))
    sending = threading.Thread(target=store.keep_up)
    first = store.sent().seq
    sending.start()
    assert soon(lambda: store.sent().seq > first)
    process.kill()
    try:
        sending.join()
        assert store.near(9_000) == store.exact(9_000)
    finally:
        process.start()
    assert soon(store.is_whole)
    assert store.held() == 6_000


def test_emptied_server_is_filled_anew(store: Store, process: ChromaProcess) -> None:
    process.kill()
    process.wipe()
    process.start()
    newcomer = Store(store.state, process.url)  # a process that was not there when rows were sent
    newcomer.index.load(newcomer.connection, SPACE, MODEL)
    for asking in (store, newcomer):
        assert asking.near(9_000) == asking.exact(9_000)
        assert "no longer holds" in (asking.index.trouble or "")
    newcomer.close()
    assert soon(store.is_whole)
    assert len({*store.near(9_000)} & {*store.exact(9_000)}) >= 9


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
    assert store.near(9_000)[0] == store.exact(9_000)[0]


def test_rows_of_a_log_that_lost_its_end_are_not_taken_for_the_rows_that_come_instead(store: Store) -> None:
    store.server.put(store.sent().collection, np.asarray([ROWS + 1]), unit(1)[np.newaxis])
    store.add(5_000)
    assert soon(store.is_whole)
    assert store.near(5_000)[0] == 5_001


def test_swapped_vectors_are_noticed_and_sent_anew(store: Store) -> None:
    collection, seqs = store.sent().collection, np.arange(1, 301)
    for first in (1, 301, 601):
        seqs = np.arange(first, min(first + 300, ROWS + 1))
        store.server.put(collection, seqs, np.stack([unit(20_000 + int(seq)) for seq in seqs]))
    assert soon(lambda: store.is_whole() and store.sent().collection != collection)
    assert store.near(7)[0] == store.exact(7)[0]


def test_a_damaged_row_that_was_never_sent_costs_no_filling_anew(store: Store) -> None:
    store.add(ROWS, ROWS + 1)
    store.connection.execute("UPDATE vectors SET vector = ? WHERE seq = ?", (b"abc", ROWS + 1))
    store.keep_up()
    before = store.sent().collection
    assert store.held() == ROWS + 1
    store.keep_up()
    assert store.sent().collection == before
    assert store.near(9_000)[0] == store.exact(9_000)[0]
    assert store.backend() == "http"


def test_copied_store_begins_a_collection_of_its_own(store: Store, process: ChromaProcess, tmp_path: Path) -> None:
    copied = tmp_path / "copy"
    copied.mkdir()
    store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copyfile(tmp_path / "index.sqlite3", copied / "index.sqlite3")
    copy = Store(copied, process.url)
    try:
        copy.add(*range(30_000, 30_050))
        store.add(*range(40_000, 40_050))  # the same numbers, other texts
        assert soon(copy.is_whole)
        assert soon(store.is_whole)
        assert copy.sent().collection != store.sent().collection
        for number in range(50):
            assert copy.near(30_000 + number)[0] == 30_001 + number
            assert store.near(40_000 + number)[0] == 40_001 + number
    finally:
        copy.close()


def test_one_process_sends_at_a_time(store: Store) -> None:
    store.add(8_000)
    with StoreLock(store.state / "locks" / "index.lock").held():
        store.keep_up()
        assert store.held() == ROWS
        assert store.index.trouble is None
    store.keep_up()
    assert store.held() == ROWS + 1
