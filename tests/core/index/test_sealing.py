"""Sealing on real Chroma: every mode finds the same, and nothing broken in the folder is in anybody's way."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from memory_core.core.index import vectors
from memory_core.core.index.chroma import collection_name
from memory_core.core.index.seal_snapshot import Manifest, Snapshots
from memory_core.core.index.sealing import Mode, SealedIndex
from memory_core.core.index.sealing_worker import survives
from memory_core.core.index.vectors import VectorRow
from memory_core.core.store.locks import StoreLock
from memory_core.core.store.sqlite import Database

SPACE = "user/张三"
MODEL = "model-a"
DIM = 32
ROWS = 60
QUERIES = range(500, 510)


def unit(seed: int) -> NDArray[np.float32]:
    drawn = np.random.default_rng(seed).standard_normal(DIM).astype(np.float32)
    return np.asarray(drawn / np.linalg.norm(drawn), np.float32)


def row(number: int) -> VectorRow:
    return VectorRow(SPACE, f"viking://user/张三/memories/条目 {number}.md", 0, f"{number:064x}", MODEL, unit(number))


class Store:
    """A store's ``.state`` folder as one process sees it; several may look at the same."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.database = Database(state / "index.sqlite3", (vectors.DDL,), "NORMAL")
        self.opened: list[SealedIndex] = []

    @property
    def connection(self) -> sqlite3.Connection:
        return self.database.connection()

    @property
    def snapshots(self) -> Snapshots:
        return Snapshots(self.state / "chroma", collection_name(SPACE, MODEL))

    @property
    def manifest(self) -> Manifest:
        found = self.snapshots.manifest()
        assert found is not None
        return found

    @property
    def folder(self) -> Path:
        return self.snapshots.path(self.manifest)

    def index(self, mode: Mode = "chroma", *, exact_below: int = 20, seal_rows: int = 10) -> SealedIndex:
        index = SealedIndex(self.state, mode=mode, exact_below=exact_below, seal_rows=seal_rows)
        self.opened.append(index)
        return index

    def append(self, *numbers: int) -> None:
        with self.database.writing() as connection:
            vectors.append(connection, [row(number) for number in numbers])

    def seal(self, index: SealedIndex) -> bool:
        return index.seal(self.connection, SPACE, MODEL)

    def backend(self, index: SealedIndex) -> str:
        return index.status(self.connection, SPACE, MODEL).backend

    def reason(self, index: SealedIndex) -> str:
        return index.status(self.connection, SPACE, MODEL).reason or ""

    def hits(self, index: SealedIndex) -> list[list[int]]:
        return [[seq for seq, _ in index.search(self.connection, SPACE, MODEL, unit(query), 10)] for query in QUERIES]

    def exact(self) -> list[list[int]]:
        return self.hits(self.index("exact"))

    def close(self) -> None:
        for index in self.opened:
            index.close()
        self.database.close()


@pytest.fixture(scope="module")
def sealed_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with 60 sealed rows; tests work on copies."""
    state = tmp_path_factory.mktemp("sealed")
    store = Store(state)
    store.append(*range(ROWS))
    assert store.seal(store.index())
    store.close()
    return state


@pytest.fixture
def store(tmp_path: Path, sealed_state: Path) -> Store:
    shutil.copytree(sealed_state, tmp_path / "state")
    return Store(tmp_path / "state")


@pytest.fixture
def fresh(tmp_path: Path) -> Store:
    return Store(tmp_path / "state")


@pytest.mark.parametrize("mode", ["auto", "chroma", "exact"])
def test_every_mode_finds_the_same_sealed_and_newer_rows(store: Store, mode: Mode) -> None:
    index = store.index(mode)
    assert store.seal(index) is (mode != "exact")
    assert store.backend(index) == ("exact" if mode == "exact" else "chroma")
    store.append(500, 501)  # two of the questions themselves: their own best hits
    brute = np.stack([unit(number) for number in (*range(ROWS), 500, 501)]) @ unit(500)
    assert store.hits(index)[0] == [int(place) + 1 for place in np.argsort(-brute)[:10]]
    assert store.hits(index) == store.exact()
    assert store.hits(index)[1][0] == ROWS + 2
    store.close()


def test_cosines_of_sealed_rows_are_those_of_the_scan(store: Store) -> None:
    index = store.index()
    store.seal(index)
    sealed = index.search(store.connection, SPACE, MODEL, unit(500), 20)
    scanned = store.index("exact").search(store.connection, SPACE, MODEL, unit(500), 20)
    assert np.allclose([cosine for _, cosine in sealed], [cosine for _, cosine in scanned], atol=1e-5)
    store.close()


def test_auto_seals_only_a_large_space(fresh: Store) -> None:
    fresh.append(*range(19))
    index = fresh.index("auto")
    assert not index.seal_due(fresh.connection, SPACE, MODEL)
    assert not fresh.seal(index)
    fresh.append(19)
    assert index.seal_due(fresh.connection, SPACE, MODEL)
    assert fresh.seal(index)
    assert fresh.backend(index) == "chroma"
    fresh.close()


def test_auto_scans_a_snapshot_that_is_small_for_it(store: Store) -> None:
    index = store.index("auto", exact_below=1_000)
    assert not store.seal(index)
    assert not index.seal_due(store.connection, SPACE, MODEL)
    assert store.hits(index) == store.exact()
    store.close()


def test_a_search_never_opens_chroma_itself(store: Store) -> None:
    index = store.index()
    assert store.hits(index) == store.exact()
    assert store.backend(index) == "exact"
    assert index.seal_due(store.connection, SPACE, MODEL)
    store.close()


def test_newer_rows_are_sealed_into_the_next_generation(store: Store) -> None:
    index = store.index()
    store.seal(index)
    store.append(*range(100, 109))
    assert not index.seal_due(store.connection, SPACE, MODEL)
    store.append(109)
    assert store.seal(index)
    status = index.status(store.connection, SPACE, MODEL)
    assert (status.sealed_rows, status.scanned_rows, status.generation) == (ROWS + 10, 0, 2)
    assert store.hits(index) == store.exact()
    store.close()


def test_another_instance_opens_what_was_sealed_elsewhere(store: Store) -> None:
    reader, writer = store.index(), store.index()
    store.seal(reader)
    store.append(*range(100, 110))
    assert store.hits(reader) == store.exact()
    assert store.seal(writer)
    assert store.backend(reader) == "chroma"
    assert store.seal(reader)
    assert reader.status(store.connection, SPACE, MODEL).generation == 2
    assert store.manifest.generation == 2
    assert store.hits(reader) == store.exact()
    store.close()


def test_a_reader_is_not_moved_for_a_few_rows(store: Store) -> None:
    reader, writer = store.index(seal_rows=50), store.index()
    store.seal(reader)
    store.append(*range(100, 110))
    assert store.seal(writer)
    store.hits(reader)
    assert not reader.seal_due(store.connection, SPACE, MODEL)
    assert store.hits(reader) == store.exact()
    store.close()


def test_a_deleted_folder_under_an_open_reader_is_scanned_and_rebuilt(store: Store) -> None:
    index = store.index()
    store.seal(index)
    shutil.rmtree(store.state / "chroma")
    assert store.hits(index) == store.exact()
    assert store.seal(index)
    assert store.backend(index) == "chroma"
    assert store.manifest.rows == ROWS
    assert store.hits(index) == store.exact()
    store.close()


def _overwrite(path: Path, size: int | None = None) -> None:
    path.write_bytes(np.random.default_rng(1).bytes(path.stat().st_size if size is None else size))


def _replace_by_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("?", encoding="utf-8")


DAMAGE: dict[str, Callable[[Path], None]] = {
    "vectors are noise": lambda folder: _overwrite(next(folder.rglob("data_level0.bin"))),
    "vectors are cut": lambda folder: os.truncate(next(folder.rglob("data_level0.bin")), 1_000),
    "links are gone": lambda folder: next(folder.rglob("link_lists.bin")).unlink(),
    "the pickle is noise": lambda folder: _overwrite(next(folder.rglob("*.pickle"))),
    "the database is noise": lambda folder: _overwrite(folder / "chroma.sqlite3"),
    "the database is gone": lambda folder: (folder / "chroma.sqlite3").unlink(),
    "the folder is a file": lambda folder: _replace_by_file(folder),
    "the manifest is noise": lambda folder: _overwrite(folder.parent / "current.json"),
    "the manifest is cut": lambda folder: os.truncate(folder.parent / "current.json", 40),
}


QUICK = {"vectors are noise", "the database is noise", "the manifest is noise"}


@pytest.mark.parametrize(
    "damage", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in DAMAGE]
)
def test_a_damaged_folder_is_rebuilt_and_nobody_is_locked_out(store: Store, damage: str) -> None:
    DAMAGE[damage](store.folder)
    index = store.index()
    assert store.hits(index) == store.exact()
    assert store.seal(index)
    assert store.backend(index) == "chroma"
    assert store.reason(index) == ""
    assert store.manifest.rows == ROWS
    assert store.hits(index) == store.exact()
    store.close()


def test_files_that_end_a_process_end_only_the_sealing_one(store: Store) -> None:
    known = unit(ROWS - 1)
    name = store.snapshots.collection
    assert survives(store.folder, name, ROWS, known)
    DAMAGE["vectors are cut"](store.folder)
    assert not survives(store.folder, name, ROWS, known)


def test_a_crash_mark_on_a_sound_folder_is_tried_in_another_process_and_cleared(store: Store) -> None:
    marker = store.folder.parent / "opening"
    marker.write_text(store.manifest.folder, encoding="utf-8")
    index = store.index()
    assert store.seal(index)
    assert store.backend(index) == "chroma"
    assert store.manifest.generation == 1
    assert not marker.exists()
    store.close()


def test_a_crash_mark_on_a_folder_that_crashes_has_it_moved_aside_and_rebuilt(store: Store) -> None:
    # Checksums that match the damage: only trying the folder tells.
    before = store.manifest
    DAMAGE["vectors are cut"](store.folder)
    lying = {
        file.relative_to(store.folder).as_posix(): [file.stat().st_size, _crc32(file)]
        for file in store.folder.rglob("*")
        if file.is_file() and file.name != "chroma.sqlite3"
    }
    path = store.folder.parent / "current.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**values, "files": lying}), encoding="utf-8")
    (store.folder.parent / "opening").write_text(before.folder, encoding="utf-8")
    index = store.index()
    assert store.seal(index)
    assert store.backend(index) == "chroma"
    assert store.manifest.folder != before.folder
    assert len(list((store.state / "chroma" / "aside").iterdir())) == 1
    assert store.hits(index) == store.exact()
    store.close()


def _crc32(path: Path) -> int:
    return zlib.crc32(path.read_bytes())


@pytest.mark.slow
def test_folders_moved_aside_and_outlived_are_bounded(store: Store) -> None:
    for step in range(3):
        _overwrite(next(store.folder.rglob("*.pickle")))
        index = store.index()
        assert store.seal(index)
        store.append(*range(1_000 + 20 * step, 1_020 + 20 * step))
        assert store.seal(index)
    assert len(list((store.state / "chroma" / "aside").iterdir())) <= 2
    assert len([path for path in store.folder.parent.iterdir() if path.is_dir()]) <= 2
    store.close()


def test_a_snapshot_of_a_log_that_was_deleted_is_never_believed(store: Store) -> None:
    store.database.close()
    for path in store.state.glob("index.sqlite3*"):
        path.unlink()
    again = Store(store.state)
    again.append(*reversed(range(ROWS - 1)), ROWS - 1)  # the newest row is the same, the others are not
    index = again.index()
    assert again.hits(index) == again.exact()
    assert again.seal(index)
    assert again.hits(index) == again.exact()
    assert again.manifest.log_id == vectors.log_id(again.connection)
    again.close()


def test_a_log_that_lost_its_newest_rows_and_went_on_is_noticed(store: Store) -> None:
    with store.database.writing() as connection:
        connection.execute("DELETE FROM vectors WHERE seq > ?", (ROWS - 5,))
        connection.execute("UPDATE sqlite_sequence SET seq = ?", (ROWS - 5,))
    store.append(*range(200, 205))
    index = store.index()
    assert store.seal(index)
    assert store.hits(index) == store.exact()
    assert index.search(store.connection, SPACE, MODEL, unit(204), 1)[0][0] == ROWS
    store.close()


def test_spaces_and_models_do_not_mix(store: Store) -> None:
    index = store.index()
    store.seal(index)
    assert index.search(store.connection, SPACE, "model-b", unit(1), 5) == []
    assert index.search(store.connection, "user/李四", MODEL, unit(1), 5) == []
    store.close()


def test_while_another_process_seals_searches_go_on_and_sealing_waits_its_turn(fresh: Store) -> None:
    fresh.append(*range(ROWS))
    index = fresh.index()
    with StoreLock(fresh.state / "locks" / "index.lock").held():
        assert not fresh.seal(index)
        assert fresh.hits(index) == fresh.exact()
        assert fresh.reason(index) == ""
    assert fresh.seal(index)
    fresh.close()


def test_compacting_drops_pruned_rows_and_only_when_most_are_dead(store: Store) -> None:
    index = store.index()
    store.seal(index)
    with store.database.writing() as connection:
        vectors.prune(connection, range(1, 36))
    assert not index.compact(store.connection, SPACE, MODEL, live_rows=40)
    assert index.compact(store.connection, SPACE, MODEL, live_rows=25)
    assert store.manifest.rows == 25
    assert store.hits(index) == store.exact()
    assert not index.compact(store.connection, SPACE, MODEL, live_rows=10)
    store.close()


def test_without_chromadb_vectors_are_scanned_and_the_status_says_why(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "chromadb", None)
    index = store.index()
    assert not index.seal_due(store.connection, SPACE, MODEL)
    assert not store.seal(index)
    assert store.hits(index) == store.exact()
    assert store.reason(index) == "chromadb is not installed"
    store.close()


def test_a_chromadb_that_cannot_be_imported_costs_no_folder(
    fresh: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "broken" / "chromadb"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('no such codec')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(package.parent))
    fresh.append(*range(ROWS))
    index = fresh.index()
    assert not fresh.seal(index)
    assert "no such codec" in fresh.reason(index)
    assert not index.seal_due(fresh.connection, SPACE, MODEL)
    assert fresh.hits(index) == fresh.exact()
    fresh.close()


def test_closing_ends_a_seal_under_way(fresh: Store) -> None:
    fresh.append(*range(8_000))
    index = fresh.index()
    outcome: list[bool] = []
    thread = threading.Thread(target=lambda: outcome.append(fresh.seal(index)))
    thread.start()
    while not list((fresh.state / "chroma").glob("*/build-*/chroma.sqlite3")) and thread.is_alive():
        thread.join(timeout=0.01)
    index.close()
    thread.join(timeout=60)
    assert outcome == [False]
    assert fresh.snapshots.manifest() is None
    fresh.close()


@pytest.mark.skipif(sys.platform == "win32", reason="limits as POSIX knows them")
def test_a_disk_that_takes_nothing_more_leaves_the_scan_and_is_tried_again(fresh: Store) -> None:
    import resource

    fresh.append(*range(ROWS))
    index = SealedIndex(fresh.state, mode="chroma", seal_rows=10, retry_seconds=0.0)
    fresh.opened.append(index)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_192, before[1]))  # files cannot grow; the sealing process inherits it
    try:
        assert not fresh.seal(index)
        assert fresh.backend(index) == "exact"
        assert fresh.reason(index)
        assert fresh.hits(index) == fresh.exact()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert fresh.seal(index)
    assert fresh.backend(index) == "chroma"
    assert fresh.hits(index) == fresh.exact()


def test_a_sealing_process_that_is_killed_leaves_the_scan_and_is_begun_again(fresh: Store) -> None:
    fresh.append(*range(ROWS))
    index = SealedIndex(fresh.state, mode="chroma", seal_rows=10, retry_seconds=0.0)
    fresh.opened.append(index)
    sealed = threading.Event()

    def kill() -> None:
        while not sealed.is_set():
            child = index._child
            if child is not None:
                child.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        assert not fresh.seal(index)
    finally:
        sealed.set()
        killer.join()
    assert "the sealing process ended" in fresh.reason(index)
    assert fresh.hits(index) == fresh.exact()
    assert not list((fresh.state / "chroma").glob("*/build-*"))
    assert fresh.seal(index)
    assert fresh.hits(index) == fresh.exact()
