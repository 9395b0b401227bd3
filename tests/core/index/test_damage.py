"""A damaged index keeps nobody from any memory, while a store is closed, open, or open twice."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from memory_core.core.config import Config, EmbeddingConfig
from memory_core.core.errors import StorageFailed
from memory_core.core.index import vector_scan, vectors
from memory_core.core.index.encoder import BundledEmbedder
from memory_core.core.memory.requests import FindRequest, RetrieveRequest, TreeRequest
from memory_core.core.store.sqlite import Database, DatabaseDamaged
from memory_core.features.doctor import repair
from memory_core.features.metrics import STATS, StatsRequest
from memory_core.features.recall_trail import SIMILAR, SimilarRequest
from memory_core.open_store import load_registry
from memory_core.runebook import Runebook, open_memory
from tests.core.index import damage
from tests.core.index.damage import other_process
from tests.stores import handed_in, remember, said, words_only, write
from tests.waiting import at_once, soon

SAID = {
    "heron": "The heron nests by the river Avon.",
    "支付系统": "支付系统每周三凌晨备份。",
    "zebra": "Zebra project ships in May.",
    "斑马": "斑马项目五月上线。",
}
WHILE_OPEN = sorted(damage.ALL.keys() - {"foreign_log"})


def index_of(home: Path) -> Path:
    return home / ".state" / "index.sqlite3"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store; tests work on copies."""
    folder = tmp_path_factory.mktemp("original")
    with open_memory(words_only(folder)) as memory:
        for text in SAID.values():
            remember(memory, text, "facts")
        for number in range(30):
            remember(memory, f"Filler {number} 填充 {number}: " + "lorem ipsum " * 40, "notes")
        said(memory, "苍鹭 and heron in a conversation")
        memory.find(FindRequest("heron"))
    return folder


@pytest.fixture
def home(tmp_path: Path, original: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "home"))


def assert_all_found(memory: Runebook) -> None:
    memory.opened.adopted.wait()
    if any(
        "ask again" in note for note in memory.find(FindRequest("heron")).notes
    ):  # the machine is slow: it meets the damage,
        memory.indexer.follow(None)  # and says that it answers from a part
    for query, text in SAID.items():
        assert text in [hit.abstract for hit in memory.find(FindRequest(query)).memories], query
    assert memory.find(FindRequest("苍鹭")).resources


def asides(home: Path) -> list[str]:
    return sorted(path.name for path in (home / ".state").glob("index.sqlite3.damaged-*"))


@pytest.mark.parametrize("kind", sorted(damage.ALL))
def test_a_store_with_a_damaged_index_opens_and_finds_everything(home: Path, kind: str) -> None:
    damage.ALL[kind](index_of(home))
    for _ in range(2):
        with open_memory(words_only(home)) as memory:
            assert_all_found(memory)
            remember(memory, "Written afterwards 后来写的", "facts")
            assert memory.find(FindRequest("后来写的")).memories
    with closing(sqlite3.connect(index_of(home))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("kind", WHILE_OPEN)
def test_an_index_damaged_while_it_is_open_is_replaced_by_whoever_meets_it(home: Path, kind: str) -> None:
    with open_memory(words_only(home)) as memory, other_process(home) as other:
        assert_all_found(memory)
        damage.checkpoint(index_of(home))
        damage.ALL[kind](index_of(home))
        assert_all_found(memory)
        assert other.find("支付系统")
        assert other.find("heron")
        here = remember(memory, "Ocelot in this process 豹猫", "facts")
        there = other.ask(commit="Ocelot in that process 豹猫")
        assert (
            {hit.uri for hit in memory.find(FindRequest("豹猫")).memories} == {here, there} == set(other.find("豹猫"))
        )
        with closing(sqlite3.connect(index_of(home))) as connection:  # both write to the file that has the name
            indexed = connection.execute("SELECT uri FROM documents WHERE own LIKE '%豹猫%'").fetchall()
        assert {uri for (uri,) in indexed} == {here, there}
        assert_all_found(memory)


def test_threads_that_have_the_damaged_file_open_all_move_on(home: Path) -> None:
    failures: list[BaseException] = []
    ready, broken = threading.Barrier(5), threading.Barrier(5)

    def search(memory: Runebook) -> None:
        try:
            assert_all_found(memory)
            ready.wait()
            broken.wait()
            for _ in range(5):
                assert_all_found(memory)
        except BaseException as error:
            failures.append(error)
            raise

    with open_memory(words_only(home)) as memory:
        threads = [threading.Thread(target=search, args=(memory,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        ready.wait()
        damage.checkpoint(index_of(home))
        damage.garbage(index_of(home))
        broken.wait()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len([name for name in asides(home) if name.count("-") == 1]) == 1  # one of them replaced it


def test_of_damaged_files_only_the_newest_is_kept(home: Path) -> None:
    for number in range(3):
        index_of(home).write_bytes(f"garbage {number}".encode() * 500)
        open_memory(words_only(home)).close()
    (kept,) = asides(home)
    assert (home / ".state" / kept).read_bytes().startswith(b"garbage 2")


def test_the_index_of_another_ledger_is_not_believed(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    with open_memory(words_only(elsewhere)) as memory:
        remember(memory, "A walrus of another store 海象", "facts")
    damage.deleted_with_log(index_of(home))
    shutil.copyfile(index_of(elsewhere), index_of(home))
    with open_memory(words_only(home)) as memory:
        assert memory.find(FindRequest("walrus")).memories == memory.find(FindRequest("海象")).memories == ()
        assert_all_found(memory)


def test_a_state_folder_without_locks_and_index_goes_on(home: Path) -> None:
    with open_memory(words_only(home)) as memory:
        assert_all_found(memory)
        shutil.rmtree(home / ".state" / "locks")
        damage.deleted_with_log(index_of(home))
        assert_all_found(memory)
        remember(memory, "Without locks 没有锁", "facts")
        assert memory.find(FindRequest("没有锁")).memories


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everything")
def test_an_index_that_may_not_be_written_is_replaced(home: Path) -> None:
    index_of(home).chmod(0o400)
    with open_memory(words_only(home)) as memory:
        assert_all_found(memory)


def test_a_damaged_index_that_cannot_be_moved_away_is_an_error_that_says_what_to_check(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> Path:
        raise PermissionError(13, "Permission denied")

    with open_memory(words_only(home)) as memory:
        assert_all_found(memory)
        catalog = memory.indexer.catalog.file
        damage.checkpoint(index_of(home))
        damage.garbage(index_of(home))
        monkeypatch.setattr(Path, "replace", refused)
        with pytest.raises(StorageFailed, match="cannot be moved away") as caught:
            catalog.renew(catalog.generation)
        assert "permissions" in caught.value.hint
        monkeypatch.undo()


def test_ls_and_contexts_and_counts_meet_the_damage_too(home: Path) -> None:
    with open_memory(words_only(home)) as memory:
        for ask in (
            lambda: memory.tree(TreeRequest("viking://user/default/memories/facts")).entries,
            lambda: memory.retrieve(RetrieveRequest("支付系统 heron")).parts,
            lambda: memory.run(SIMILAR, SimilarRequest("The heron nests by the river Avon.")).similar,
            lambda: memory.run(STATS, StatsRequest()),
        ):
            assert_all_found(memory)
            damage.checkpoint(index_of(home))
            damage.garbage(index_of(home))
            assert ask()


# The ledger's file


def test_a_ledger_that_was_deleted_under_a_running_store_acknowledges_nothing(home: Path) -> None:
    with open_memory(words_only(home)) as memory:
        memory.find(FindRequest("heron"))
        damage.deleted_with_log(home / ".state" / "ledger.sqlite3")
        with pytest.raises(StorageFailed) as raised:
            remember(memory, "Would be lost 会丢的", "facts")
        assert "doctor --repair" in raised.value.hint
    with open_memory(words_only(home)) as memory:
        assert_all_found(memory)


def test_a_damaged_ledger_names_the_next_step(home: Path) -> None:
    damage.garbage(home / ".state" / "ledger.sqlite3")
    with pytest.raises(StorageFailed) as raised:
        open_memory(words_only(home))
    assert "doctor --repair" in raised.value.hint


# One file


def test_errors_come_as_ours_also_while_rows_are_read(tmp_path: Path) -> None:
    database = Database(tmp_path / "d.sqlite3", ("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT);",), "NORMAL")
    with database.writing() as connection:
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(number, "x" * 900) for number in range(400)])
    damage.checkpoint(database.path)
    database.close()
    data = bytearray(database.path.read_bytes())
    data[-4096 * 20 :] = b"\xff" * (4096 * 20)
    database.path.write_bytes(data)
    opened = Database(tmp_path / "d.sqlite3", ("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT);",), "NORMAL")
    try:
        with pytest.raises(DatabaseDamaged) as raised:
            for _ in opened.connection().execute("SELECT b FROM t"):
                pass
        assert raised.value.path == database.path
        with pytest.raises(DatabaseDamaged):
            opened.connection().execute("SELECT count(b) FROM t WHERE b > 'a'").fetchall()
        with pytest.raises(sqlite3.OperationalError):  # a mistake of ours stays one
            opened.connection().execute("SELEC 1")
    finally:
        opened.close()


def test_bytes_that_are_no_text_are_damage(tmp_path: Path) -> None:
    database = Database(tmp_path / "d.sqlite3", ("CREATE TABLE t (b TEXT);",), "NORMAL")
    try:
        with database.writing() as connection:
            connection.execute("INSERT INTO t VALUES (CAST(x'ff' AS TEXT))")
        for read in (list, lambda cursor: cursor.fetchall(), next):
            with pytest.raises(DatabaseDamaged, match="no text"):
                read(database.connection().execute("SELECT b FROM t"))
    finally:
        database.close()


def test_connections_of_threads_that_ended_are_let_go(tmp_path: Path) -> None:
    database = Database(tmp_path / "d.sqlite3", ("CREATE TABLE t (a);",), "NORMAL")
    for _ in range(20):
        at_once(lambda _: database.connection(), None)
    assert len(database._all) <= 2
    assert database.is_current()
    database.close()


# Slices


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    with open_memory(words_only(folder)) as memory:
        for start in range(0, 900, 300):
            numbers = range(start, start + 300)
            handed_in(memory, write=[write("facts", topic=f"T{n} 主题{n}", content=f"c{n} " * 20) for n in numbers])
    damage.deleted_with_log(index_of(folder))
    return folder


@pytest.fixture
def large(tmp_path: Path, many: Path) -> Path:
    return Path(shutil.copytree(many, tmp_path / "large"))


def test_a_search_in_a_large_store_does_not_wait_for_the_index_and_says_so(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory_core.core.index.indexer._PAUSE_SECONDS", 60.0)  # the background sleeps
    with open_memory(words_only(large)) as memory:
        follow = memory.indexer.follow
        assert follow(0.05) is not None
        found = memory.find(FindRequest("主题899"))
        (note,) = [note for note in found.notes if note.startswith("the index is being rebuilt: ")]
        assert " of 90" in note
        assert [hit.abstract[:5] for hit in found.memories][:1] == ["c899 "]  # the newest come first
        fresh = remember(memory, "Just now 刚刚", "facts")
        assert fresh in [hit.uri for hit in memory.find(FindRequest("刚刚")).memories]
        assert follow(None) is None
        assert memory.find(FindRequest("主题0")).notes == ()
        assert memory.find(FindRequest("主题0")).memories
        assert memory.indexer.catalog.count() == 901


def test_filling_and_following_number_documents_alike(large: Path) -> None:
    with open_memory(words_only(large)) as memory:
        memory.indexer.follow(None)
        order = "SELECT uri FROM documents ORDER BY id"
        filled = memory.indexer.catalog.connection().execute(order).fetchall()
        assert [uri for (uri,) in filled] == sorted(
            (uri for (uri,) in filled), key=lambda uri: int(uri.rpartition("T")[2].split(" ")[0])
        )


def test_a_conversation_that_grows_while_the_index_is_filled_is_whole(large: Path) -> None:
    with open_memory(words_only(large)) as memory:
        said(memory, "the first word 第一句", "the second word 第二句", session_id="long")
        memory.indexer.follow(None)
    damage.deleted_with_log(index_of(large))
    with open_memory(words_only(large)) as memory:
        memory.indexer.follow(0.0)
        said(memory, "the third word 第三句", session_id="long")
        memory.indexer.follow(None)
        said(memory, "the fourth word 第四句", session_id="long")
        for query in ("第一句", "第二句", "第三句", "第四句"):
            assert memory.find(FindRequest(query)).resources, query
        parts = memory.indexer.catalog.connection().execute(
            "SELECT part FROM documents WHERE uri LIKE '%long%' ORDER BY part"
        )
        assert [part for (part,) in parts] == [0, 1, 2, 3]


# Vectors


def test_a_damaged_file_of_vectors_that_another_process_works_on_is_told_of(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(vectors, "_FILED_ROWS", 2)
    monkeypatch.setattr(vectors, "_FILING_SECONDS", 0.05)
    with open_memory(bundled(home)) as memory:
        memory.indexer.embed_all()
        index, connection = memory.indexer.vectors, memory.indexer.catalog.connection()
        spaces = memory.indexer.catalog.spaces()

        def are_filed() -> bool:
            for space in spaces:
                index.keep_up(connection, space, BundledEmbedder.fingerprint)
            return all(
                len(view.recent) < 2 for _, view in index._followed(connection, spaces, BundledEmbedder.fingerprint)
            )

        assert soon(are_filed)  # the background may be at it
        damaged = [path for path in (home / ".state" / "vectors").iterdir() if path.name.count("-") == 1]
        assert damaged
        with memory.indexer.vectors._filing.held(10.0):
            for path in damaged:
                with path.open("r+b") as stream:
                    stream.seek(8)
                    stream.write(bytes(400))  # in place: who has it mapped sees it
            memory.indexer._load()
    assert any("vectors were not loaded ahead" in record.getMessage() for record in caplog.records)


def bundled(home: Path) -> Config:
    return Config(home=home, embedding=EmbeddingConfig(provider="bundled", wait_seconds=20))


@pytest.mark.parametrize(
    "blob", [b"", b"\x00" * 7, b"\x00" * 2048, np.full(512, np.nan, "<f4").tobytes(), b"\x01" * 64]
)
def test_a_vector_that_is_none_is_left_out_and_computed_again(home: Path, blob: bytes) -> None:
    with open_memory(bundled(home)) as memory:
        memory.indexer.embed_all()
        expected = [hit.uri for hit in memory.find(FindRequest("When is the backup of payments?")).memories]
    with closing(sqlite3.connect(index_of(home))) as connection, connection:
        connection.execute("UPDATE vectors SET vector = ? WHERE seq % 3 = 0", (blob,))
    with open_memory(bundled(home)) as memory:
        assert memory.find(FindRequest("When is the backup of payments?")).memories
    repair(bundled(home), load_registry(bundled(home)))
    with open_memory(bundled(home)) as memory:
        memory.indexer.embed_all()
        assert [hit.uri for hit in memory.find(FindRequest("When is the backup of payments?")).memories] == expected
        connection = memory.indexer.catalog.connection()
        assert vector_scan.unsound(connection) == []


def test_vectors_of_a_lost_index_are_computed_again(home: Path) -> None:
    with open_memory(bundled(home)) as memory:
        memory.indexer.embed_all()
        before = memory.indexer.progress()
        assert before.done == before.total > 0
        damage.checkpoint(index_of(home))
        damage.garbage(index_of(home))
        assert_all_found(memory)
        assert memory.indexer.embed_all() == before


def test_a_reader_who_held_a_connection_while_another_replaced_the_file_asks_again(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_memory(words_only(home)) as memory:
        memory.indexer.follow(None)
        file = memory.indexer.catalog.file
        asked: list[sqlite3.Connection] = []

        def ask() -> int:
            connection = memory.indexer.catalog.connection()
            if not asked:
                at_once(file.renew, file.generation)
                memory.indexer.catalog.connection()  # of the new file: the one before is closed
            asked.append(connection)
            return int(connection.execute("SELECT count(*) FROM documents").fetchone()[0])

        memory.indexer.answer(ask)
        assert len(asked) == 2
        assert asked[0] is not asked[1]
        moved = [name for name in asides(home) if not name.endswith(("-shm", "-wal"))]
        assert len(moved) == 1, "the file that came was taken for the damaged one"
        assert "rebuilt" not in caplog.text
        memory.indexer.follow(None)
        assert_all_found(memory)
