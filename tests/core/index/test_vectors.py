"""The vector log and the exact scan over it, on real SQLite."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from memory_core.core.index import vectors as log
from memory_core.core.index.vectors import ExactScan, VectorRow
from memory_core.core.store.sqlite import Database

USER = "user/default"
CHINESE = "user/张三"
MODEL = "model-a"
DIM = 24


def unit(seed: int) -> NDArray[np.float32]:
    drawn = np.random.default_rng(seed).standard_normal(DIM).astype(np.float32)
    return np.asarray(drawn / np.linalg.norm(drawn), np.float32)


def row(number: int, space: str = USER, fingerprint: str = MODEL) -> VectorRow:
    return VectorRow(
        space, f"viking://{space}/memories/支付系统 {number}.md", 0, f"{number:064x}", fingerprint, unit(number)
    )


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "index.sqlite3", (log.DDL,), "NORMAL")


@pytest.fixture
def connection(database: Database) -> sqlite3.Connection:
    return database.connection()


def test_a_row_appended_twice_is_kept_once(connection: sqlite3.Connection) -> None:
    log.append(connection, [row(1), row(2)])
    log.append(connection, [row(2), row(3)])
    seqs, vectors = log.rows_after(connection, USER, MODEL, 0, 100)
    assert len(seqs) == 3  # a refused row may use up a number
    assert seqs[:2].tolist() == [1, 2]  # kept as they were, not replaced under a newer number
    assert np.array_equal(vectors, np.stack([unit(1), unit(2), unit(3)]))
    assert vectors.dtype == np.float32


def test_rows_come_oldest_first_and_only_of_their_space_and_model(connection: sqlite3.Connection) -> None:
    log.append(connection, [row(1), row(2, CHINESE), row(3, USER, "model-b"), row(4), row(5)])
    seqs, vectors = log.rows_after(connection, USER, MODEL, 0, 2)
    assert seqs.tolist() == [1, 4]
    later, _ = log.rows_after(connection, USER, MODEL, 4, 2)
    assert later.tolist() == [5]
    assert np.array_equal(vectors[1], unit(4))
    assert log.newest_seq(connection, CHINESE, MODEL) == 2
    assert log.count(connection, USER, MODEL) == 3
    assert log.count(connection, USER, MODEL, after=1) == 2


def test_an_empty_log_answers_with_nothing(connection: sqlite3.Connection) -> None:
    seqs, vectors = log.rows_after(connection, USER, MODEL, 0, 10)
    assert (seqs.shape, vectors.shape) == ((0,), (0, 0))
    assert log.newest_seq(connection, USER, MODEL) == 0
    scan = ExactScan(USER, MODEL)
    scan.refresh(connection)
    assert scan.search(unit(1), 5) == []


def test_rows_are_found_by_number_and_missing_numbers_are_left_out(connection: sqlite3.Connection) -> None:
    log.append(connection, [row(1), row(2, CHINESE)])
    assert set(log.by_seq(connection, [1, 2, 99])) == {1, 2}
    assert log.entries(connection, range(1, 1200))[2] == (
        "viking://user/张三/memories/支付系统 2.md",
        0,
        f"{2:064x}",
    )


def test_a_pruned_row_appended_again_gets_a_new_number(connection: sqlite3.Connection) -> None:
    log.append(connection, [row(1), row(2)])
    log.prune(connection, [2])
    assert log.by_seq(connection, [2]) == {}
    log.append(connection, [row(2)])
    assert log.newest_seq(connection, USER, MODEL) == 3


def test_a_log_begun_anew_has_another_identity(tmp_path: Path, connection: sqlite3.Connection) -> None:
    other = Database(tmp_path / "other.sqlite3", (log.DDL,), "NORMAL")
    assert log.log_id(connection) == log.log_id(connection)
    assert log.log_id(connection) != log.log_id(other.connection())


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 300), k=st.integers(1, 40), step=st.integers(1, 80))
def test_the_scan_ranks_as_sorting_all_cosines_does(rows: int, k: int, step: int) -> None:
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(log.DDL)
        scan = ExactScan(USER, MODEL)
        for start in range(0, rows, step):
            log.append(connection, [row(number) for number in range(start, min(rows, start + step))])
            scan.refresh(connection)
        query = unit(10_000)
        cosines = {number + 1: float(unit(number) @ query) for number in range(rows)}
        wanted = sorted(cosines, key=lambda seq: -cosines[seq])[:k]
        hits = scan.search(query, k)
        assert [seq for seq, _ in hits] == wanted
        assert np.allclose([cosine for _, cosine in hits], [cosines[seq] for seq in wanted], atol=1e-5)
    finally:
        connection.close()


def test_a_row_appended_by_another_connection_is_found_after_refresh(database: Database, tmp_path: Path) -> None:
    scan = ExactScan(USER, MODEL)
    scan.refresh(database.connection())
    other = Database(tmp_path / "index.sqlite3", (log.DDL,), "NORMAL")
    log.append(other.connection(), [row(7)])
    scan.refresh(database.connection())
    [(seq, cosine)] = scan.search(unit(7), 1)
    assert seq == 1
    assert cosine == pytest.approx(1.0, abs=1e-6)


def test_rows_up_to_the_floor_are_not_scanned(connection: sqlite3.Connection) -> None:
    log.append(connection, [row(number) for number in range(10)])
    scan = ExactScan(USER, MODEL, floor=6)
    scan.refresh(connection)
    assert sorted(seq for seq, _ in scan.search(unit(0), 50)) == [7, 8, 9, 10]


def test_a_scan_above_a_floor_keeps_what_was_loaded_and_goes_on_from_there(connection: sqlite3.Connection) -> None:
    log.append(connection, [row(number) for number in range(10)])
    scan = ExactScan(USER, MODEL)
    scan.refresh(connection)
    above = scan.above(8)
    log.append(connection, [row(10)])
    above.refresh(connection)
    assert sorted(seq for seq, _ in above.search(unit(0), 50)) == [9, 10, 11]
    assert len(scan) == 10


def test_a_scan_above_what_it_has_loaded_misses_nothing(connection: sqlite3.Connection) -> None:
    log.append(connection, [row(number) for number in range(10)])
    above = ExactScan(USER, MODEL).above(4)
    above.refresh(connection)
    assert sorted(seq for seq, _ in above.search(unit(0), 50)) == [5, 6, 7, 8, 9, 10]


def test_cosines_of_named_rows_are_those_of_the_search(connection: sqlite3.Connection) -> None:
    log.append(connection, [row(number) for number in range(5)])
    scan = ExactScan(USER, MODEL, floor=2)
    scan.refresh(connection)
    searched = dict(scan.search(unit(3), 50))
    assert scan.cosines(unit(3), [5, 2, 4, 99]) == pytest.approx({seq: searched[seq] for seq in (4, 5)})
    assert scan.cosines(unit(3), []) == {}
    assert ExactScan(USER, MODEL).cosines(unit(3), [1]) == {}


def test_a_search_during_growth_always_finds_a_row_that_was_there(database: Database) -> None:
    log.append(database.connection(), [row(0)])
    scan = ExactScan(USER, MODEL)
    scan.refresh(database.connection())
    growing = threading.Event()

    def grow() -> None:
        connection = database.connection()
        for start in range(1, 2_000, 20):
            log.append(connection, [row(number) for number in range(start, start + 20)])
            scan.refresh(connection)
        growing.set()

    thread = threading.Thread(target=grow)
    thread.start()
    searches = 0
    while not growing.is_set() or not searches:
        assert scan.search(unit(0), 1)[0][0] == 1
        searches += 1
    thread.join()
    assert len(scan) == 2_001
    database.close()
