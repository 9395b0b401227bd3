"""Vectors as rows, and the exact scan over them: every process finds as sorting finds, whatever others commit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_core.core.index import embedding_queue, vector_scan, vectors
from memory_core.core.index.vectors import VectorIndex, VectorRow
from tests.core.index.row_store import DIM, MODEL, SPACE, RowStore, row, unit, uri_of

OTHER = "user/default"
FILED = 1_100


class Store(RowStore):
    def __init__(self, state: Path) -> None:
        super().__init__(state, VectorIndex(state))

    @property
    def file(self) -> Path:
        (path,) = (path for path in (self.state / "vectors").iterdir() if path.name.count("-") == 1)
        return path

    @property
    def documents(self) -> Path:
        """What is saved of the documents of the file's rows."""
        (path,) = (self.state / "vectors").glob(f"{self.file.name}-*")
        return path

    def filed(self) -> int:
        """How many vectors this process has mapped."""
        return len(self.index._followed(self.connection, [SPACE], MODEL)[0][1].filed)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def filed(store: Store) -> Store:
    """A store with a file of vectors, and some newer ones."""
    store.add(*range(FILED))
    store.keep_up()
    store.add(*range(FILED, FILED + 20))
    assert store.filed() == FILED
    return store


def expected(numbers: Any, seed: int, k: int = 10) -> list[int]:
    cosines = {number + 1: float(unit(number) @ unit(seed)) for number in numbers}
    return sorted(cosines, key=lambda document: -cosines[document])[:k]


def _noise(path: Path) -> None:
    with path.open("r+b") as stream:
        stream.seek(8)
        stream.write(np.random.default_rng(1).bytes(path.stat().st_size - 8))


# Rows


def test_a_row_appended_twice_is_kept_once(store: Store) -> None:
    vectors.append(store.connection, [row(1), row(2)])
    vectors.append(store.connection, [row(2), row(3)])
    seqs, found = vector_scan.rows_after(store.connection, SPACE, MODEL, 0, 100)
    assert len(seqs) == 3  # a refused row may use up a number
    assert seqs[:2].tolist() == [1, 2]  # kept as they were, not replaced under a newer number
    assert np.array_equal(found, np.stack([unit(1), unit(2), unit(3)]))


def test_rows_come_oldest_first_and_only_of_their_space_and_model(store: Store) -> None:
    vectors.append(store.connection, [row(1), row(2, OTHER), row(3, SPACE, "model-b"), row(4), row(5)])
    seqs, found = vector_scan.rows_after(store.connection, SPACE, MODEL, 0, 2)
    assert seqs.tolist() == [1, 4]
    assert np.array_equal(found[1], unit(4))
    assert vectors.newest_seq(store.connection, OTHER, MODEL) == 2
    assert vectors.count(store.connection, SPACE, MODEL) == 3
    assert vectors.count(store.connection, SPACE, MODEL, after=1, up_to=4) == 1
    assert set(vector_scan.by_seq(store.connection, [1, 2, 99])) == {1, 2}


def test_a_pruned_row_appended_again_gets_a_new_number(store: Store) -> None:
    vectors.append(store.connection, [row(1), row(2)])
    vectors.prune(store.connection, [2])
    vectors.append(store.connection, [row(2)])
    assert vectors.newest_seq(store.connection, SPACE, MODEL) == 3


# Documents


def test_only_rows_of_present_texts_are_found(store: Store) -> None:
    store.add(*range(30))
    store.remove(3, 7)
    with store.catalog.writing() as connection:
        embedding_queue.put(connection, 900, SPACE, uri_of(8), 0, "8", f"{8:064x}")  # of another document from now on
        embedding_queue.put(connection, 10, SPACE, uri_of(9), 0, "other", "f" * 64)  # another text, not embedded yet
    assert store.near(3)[0] != 4
    assert store.near(8)[0] == 900
    assert 10 not in store.near(9, 40)
    assert len(store.near(0, 40)) == 27
    assert store.index.cosines(store.connection, [SPACE], MODEL, [unit(5)], [4, 6, 10, 900, 5_000]).keys() == {6, 900}
    assert vectors.dead(store.connection, SPACE, MODEL) == [4, 8, 10]
    store.add(3)  # back, and not embedded again
    assert store.near(3)[0] == 4


def test_a_document_is_as_near_as_its_nearest_passage(store: Store) -> None:
    with store.catalog.writing() as connection:
        for part in range(3):
            embedding_queue.put(connection, 5, SPACE, "viking://long.md", part, str(part), f"{part:064x}")
        parts = [VectorRow(SPACE, "viking://long.md", part, f"{part:064x}", MODEL, unit(part)) for part in range(3)]
        vectors.append(connection, parts)
    found = store.index.nearest(store.connection, [SPACE], MODEL, [unit(2)], 2)
    assert list(found.cosines) == [5]
    assert not found.complete
    assert store.index.nearest(store.connection, [SPACE], MODEL, [unit(2)], 3).complete
    cosines = store.index.cosines(store.connection, [SPACE], MODEL, [unit(2)], [5])
    assert cosines == {5: pytest.approx(1.0, abs=1e-6)}


def test_a_catalog_cleared_and_filled_again_finds_the_same(filed: Store) -> None:
    before = filed.near(9_000)
    with filed.catalog.writing() as connection:
        embedding_queue.clear(connection)
    assert filed.near(9_000) == []
    filed.add(*range(FILED + 20))
    assert filed.near(9_000) == before
    assert vectors.count(filed.connection, SPACE, MODEL) == FILED + 20


# The scan


@settings(max_examples=40)
@given(rows=st.integers(1, 300), k=st.integers(1, 40), step=st.integers(1, 80))
def test_the_scan_ranks_as_sorting_all_cosines_does(
    tmp_path_factory: pytest.TempPathFactory, rows: int, k: int, step: int
) -> None:
    store = Store(tmp_path_factory.mktemp("scan"))
    try:
        for start in range(0, rows, step):
            store.add(*range(start, min(rows, start + step)))
            store.near(10_000)
        found = store.index.nearest(store.connection, [SPACE], MODEL, [unit(10_000)], k)
        wanted = expected(range(rows), 10_000, k)
        assert store.near(10_000, k) == wanted
        cosines = {document: float(unit(document - 1) @ unit(10_000)) for document in wanted}
        assert found.cosines == pytest.approx(cosines, abs=1e-5)
        assert found.complete == (k >= rows)
    finally:
        store.close()


def test_the_older_of_two_equal_rows_comes_first(store: Store) -> None:
    with store.catalog.writing() as connection:
        for number in range(40):
            embedding_queue.put(connection, 100 - number, SPACE, f"viking://{number}.md", 0, "same", "0" * 64)
        same = [VectorRow(SPACE, f"viking://{number}.md", 0, "0" * 64, MODEL, unit(1)) for number in range(40)]
        vectors.append(connection, same)
    assert store.near(1, 40) == list(range(100, 60, -1))


def test_spaces_and_models_do_not_mix(store: Store) -> None:
    store.add(*range(5))
    store.add(50, space=OTHER)
    assert store.near(50, space=OTHER) == [51]
    assert 51 not in store.near(50)
    assert store.index.nearest(store.connection, [SPACE], "model-b", [unit(1)], 5).cosines == {}
    assert store.index.nearest(store.connection, ["user/李四"], MODEL, [unit(1)], 5) == ({}, True)


def test_several_queries_and_spaces_are_answered_together_as_one_by_one(filed: Store) -> None:
    filed.add(*range(5_000, 5_040), space=OTHER)
    seeds, spaces = (9_000, 9_001, 5_003), (SPACE, OTHER)
    one_by_one: dict[int, float] = {}
    for space in spaces:
        for seed in seeds:
            for document, cosine in filed.index.nearest(
                filed.connection, [space], MODEL, [unit(seed)], 5
            ).cosines.items():
                one_by_one[document] = max(cosine, one_by_one.get(document, -1.0))
    queries = [unit(seed) for seed in seeds]
    assert filed.index.nearest(filed.connection, spaces, MODEL, queries, 5) == (one_by_one, False)
    documents = list(one_by_one)
    cosines = filed.index.cosines(filed.connection, spaces, MODEL, queries, documents)
    assert cosines.keys() == one_by_one.keys()
    assert all(cosines[document] >= one_by_one[document] - 1e-6 for document in documents)


def test_rows_that_are_no_vectors_are_left_out(filed: Store) -> None:
    for number, blob in enumerate((b"", b"abc", unit(1)[:7].tobytes(), np.full(DIM, np.nan, np.float32).tobytes()), 1):
        filed.connection.execute("UPDATE vectors SET vector = ? WHERE seq = ?", (blob, FILED + number))
    assert vector_scan.unsound(filed.connection) == [FILED + 1, FILED + 2, FILED + 3, FILED + 4]
    again = Store(filed.state)
    assert again.near(9_000, 50) == expected([*range(FILED), *range(FILED + 4, FILED + 20)], 9_000, 50)
    again.close()


# The file


def test_a_file_holds_what_was_in_memory_and_all_processes_find_the_same(filed: Store) -> None:
    wanted = expected(range(FILED + 20), 9_000, 50)
    assert filed.near(9_000, 50) == wanted
    other = Store(filed.state)
    assert other.near(9_000, 50) == wanted
    assert other.filed() == FILED
    other.add(*range(2_000, 2_000 + FILED))
    other.keep_up()
    assert other.filed() == 2 * FILED + 20
    assert filed.near(2_500)[0] == 2_501
    filed.keep_up()  # its memory is the file's from now on
    assert filed.filed() == 2 * FILED + 20
    assert filed.near(9_000) == other.near(9_000)
    other.close()


def test_a_few_rows_make_no_file(store: Store) -> None:
    store.add(*range(100))
    store.keep_up()
    assert not (store.state / "vectors").exists()


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_files_of_vectors_are_this_users_alone(filed: Store) -> None:
    modes = [path.stat().st_mode & 0o777 for path in (filed.state / "vectors").iterdir()]
    assert filed.documents.exists()
    assert set(modes) == {0o600}


def test_documents_that_were_saved_beside_newer_rows_are_of_use_to_the_next_process(filed: Store) -> None:
    with filed.catalog.writing() as connection:
        for number in range(FILED):  # so many changes are saved, and the newer rows are too few to be appended
            embedding_queue.put(connection, 5_000 + number, SPACE, uri_of(number), 0, str(number), f"{number:064x}")
    filed.keep_up()
    changed = vectors.changes(filed.connection)
    another = Store(filed.state)
    try:
        ((space_vectors, view),) = another.index._followed(another.connection, [SPACE], MODEL)
        assert (space_vectors.saved, len(view.seqs)) == (changed, FILED + 20)
        assert another.near(3)[0] == 5_003
    finally:
        another.close()


def test_documents_are_read_as_they_were_saved_and_what_changed_since_is_made_good(filed: Store) -> None:
    filed.remove(3)
    filed.add(2_000)
    wanted = expected([*range(3), *range(4, FILED + 20), 2_000], 3, 50)
    for damage in (None, _noise, lambda path: os.truncate(path, 100), lambda path: path.unlink()):
        if damage is not None:
            damage(filed.documents)
        other = Store(filed.state)
        assert other.near(3, 50) == wanted
        assert other.near(2_000)[0] == 2_001
        other.close()


def test_a_row_deleted_by_another_process_is_not_found_from_the_file(filed: Store) -> None:
    other = Store(filed.state)
    assert filed.near(5)[0] == 6
    other.remove(5)
    assert filed.near(5)[0] != 6
    assert 6 not in filed.index.cosines(filed.connection, [SPACE], MODEL, [unit(5)], [6])
    other.close()


def test_pruned_rows_leave_the_file_and_every_process(filed: Store) -> None:
    other = Store(filed.state)
    assert other.near(3)[0] == 4
    filed.remove(*range(1_000))
    filed.prune()
    assert not list((filed.state / "vectors").iterdir())
    wanted = expected(range(1_000, FILED + 20), 3)
    assert filed.near(3) == wanted
    assert other.near(3) == wanted
    assert other.filed() == 0
    other.close()


def test_vectors_of_a_catalog_that_was_replaced_are_let_go_of(filed: Store) -> None:
    filed.near(3)
    (before,) = filed.index._spaces
    with filed.catalog.writing() as connection:
        connection.execute("UPDATE vector_log SET id = 'another'")
    filed.near(3)
    (after,) = filed.index._spaces
    assert after[0] == "another" != before[0]


def _hole(path: Path) -> None:
    """What a power loss may leave: blocks of zeros."""
    with path.open("r+b") as stream:
        stream.seek(8 + 500 * (4 * DIM + 8))
        stream.write(bytes(4 * DIM))


def _without_some(path: Path) -> None:
    content, record = path.read_bytes(), 4 * DIM + 8
    path.write_bytes(content[: 8 + 300 * record] + content[8 + 310 * record :])


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "it is noise": _noise,
    "it is empty": lambda path: os.truncate(path, 0),
    "its header is cut": lambda path: os.truncate(path, 5),
    "its end is torn": lambda path: os.truncate(path, path.stat().st_size - 30),
    "it has a hole": _hole,
    "rows are missing": _without_some,
    "it is gone": lambda path: path.unlink(),
    "it is a folder": _folder,
    "its vectors are of another size": lambda path: path.write_bytes((7).to_bytes(8, "little") + bytes(8_000)),
}


def test_a_file_without_some_rows_that_cannot_be_deleted_is_not_read_again(
    filed: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without_some(filed.file)
    for path in (filed.state / "vectors").glob(f"{filed.file.name}-*"):
        path.unlink()

    def mapped(*_: object, **__: object) -> None:
        raise PermissionError(13, "the file is mapped")  # as Windows says

    other = Store(filed.state)
    monkeypatch.setattr(Path, "unlink", mapped)
    assert other.near(3) == expected(range(FILED + 20), 3)
    other.close()


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_noticed_and_made_anew(filed: Store, damage: str) -> None:
    path = filed.file
    filed.close()
    DAMAGE[damage](path)
    again = Store(filed.state)
    again.index.load(again.connection, SPACE, MODEL)  # as a server does in the background
    assert again.near(9_000, 50) == expected(range(FILED + 20), 9_000, 50)
    again.add(*range(5_000, 5_000 + FILED))
    again.keep_up()
    assert again.near(9_000, 50) == expected([*range(FILED + 20), *range(5_000, 5_000 + FILED)], 9_000, 50)
    assert again.filed() == (0 if damage == "it is a folder" else 2 * FILED + 20)
    again.close()


def test_the_file_of_another_log_is_not_believed(filed: Store) -> None:
    path = filed.file
    filed.close()
    for each in filed.state.glob("index.sqlite3*"):
        each.unlink()
    again = Store(filed.state)
    again.add(*reversed(range(FILED)))
    assert again.near(9_000) == expected(range(FILED), 9_000)
    again.keep_up()
    assert again.file != path
    assert again.near(9_000) == expected(range(FILED), 9_000)
    again.close()


# Several at once


def test_a_search_during_growth_always_finds_a_row_that_was_there(store: Store) -> None:
    store.add(0)
    over = threading.Event()

    def grow() -> None:
        for start in range(1, 2_500, 50):
            store.add(*range(start, start + 50))
            store.keep_up()
        over.set()

    thread = threading.Thread(target=grow)
    thread.start()
    while not over.is_set():
        assert store.near(0, 1) == [1]
    thread.join()
    assert store.near(2_400, 1) == [2_401]


def test_an_older_state_is_answered_from_as_it_was(filed: Store) -> None:
    """A thread whose transaction began before another one's commit, which a third has taken in already."""
    connection = filed.connection
    connection.execute("BEGIN")
    before = vectors.changes(connection)
    other = Store(filed.state)
    other.index = filed.index

    def meanwhile() -> None:
        for number in range(4):
            other.remove(5 + number)
            other.add(9_000 + number)
            assert other.near(9_000)[0] == 9_001

    thread = threading.Thread(target=meanwhile)
    thread.start()
    thread.join()
    assert vectors.changes(connection) == before
    assert filed.near(9_000, 50) == expected(range(FILED + 20), 9_000, 50)
    assert filed.near(5)[0] == 6
    connection.execute("COMMIT")
    assert filed.near(9_000)[0] == 9_001
    assert filed.near(5)[0] != 6
    other.close()


_FILER = """
import sys
from pathlib import Path
from tests.core.index.test_vectors import Store
store = Store(Path(sys.argv[1]))
first = int(sys.argv[2])
print("ready", flush=True)
for start in range(first, first + 4_000, 500):
    store.add(*range(start, start + 500))
    store.keep_up()
    assert store.near(start)[0] == start + 1
print("done", flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_processes_that_file_at_once_and_are_killed_at_it_lose_nothing(tmp_path: Path) -> None:
    Store(tmp_path).close()

    def started(first: int) -> subprocess.Popen[str]:
        arguments = [sys.executable, "-c", _FILER, str(tmp_path), str(first)]
        return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3])

    killed = [started(100_000 * (1 + number)) for number in range(3)]
    survivor = started(0)
    for number, process in enumerate(killed):
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        while number and not (tmp_path / "vectors").exists() and process.poll() is None:
            pass
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert survivor.communicate()[0] == "ready\ndone\n"
    store = Store(tmp_path)
    rows = vectors.count(store.connection, SPACE, MODEL)
    found = store.index.nearest(store.connection, [SPACE], MODEL, [unit(1)], 20_000)
    assert len(found.cosines) == rows >= 4_000
    scanned = store.near(1, 20_000)
    (store.file).unlink()
    fresh = Store(tmp_path)
    assert fresh.near(1, 20_000) == scanned
    store.close()
    fresh.close()
