"""From the ledger to the disk where the disk, or another process, refuses for a while: kept, said, and made good."""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.errors import StorageFailed, StoreBusy
from memory_core.core.memory.results import CommitReceipt, Status
from memory_core.core.store import atomic, read_only, sqlite
from memory_core.core.store import local as store_module
from memory_core.core.store.delivery import DELAYED, Delivery
from memory_core.core.store.local import REPEATED
from memory_core.core.store.locks import StoreLock
from memory_core.core.store.read_only import PrivateState
from tests.core.store.test_store import OTHER, URI, open_store, set_text, unsettle
from tests.waiting import soon

FOLDER = URI.parent


@contextmanager
def ledger_held(root: Path) -> Iterator[None]:
    """Another process writes into the ledger and takes its time."""
    with closing(sqlite3.connect(root / ".state" / "ledger.sqlite3", isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


@contextmanager
def folder_refused(root: Path) -> Iterator[None]:
    """Something else stands where the folder of the notes has to be."""
    path = root.joinpath(*FOLDER.parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("in the way", encoding="utf-8")
    yield
    path.unlink()


def test_a_commit_that_the_disk_refuses_is_read_from_the_ledger_and_delivered_in_the_background(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with folder_refused(tmp_path):
        receipt = store.commit(set_text(URI, "猫 cat\n"))
        assert receipt.status is Status.COMMITTED
        assert any(note.startswith(DELAYED) for note in receipt.notes)
        assert store.text(URI) == "猫 cat\n"
        store.adopt()  # the thing in the way is a file of its own, the commit is no deletion
        assert [commit.kind for commit in store.ledger.history(URI)] == ["commit"]
    assert soon(lambda: store.files.path_for(URI).exists())
    assert store.files.text(URI) == "猫 cat\n"
    assert soon(lambda: store.ledger.unsettled() == [])
    store.close()


def test_a_repeated_request_says_what_is_not_on_disk_yet_and_no_more_once_it_is(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with folder_refused(tmp_path):
        store.finish(store.commit(set_text(URI, "猫"), request_id="r1"))
        store.close()
        store = open_store(tmp_path)
        waiting = store.commit(set_text(URI, "other"), request_id="r1")
        assert [note for note in waiting.notes if note.startswith(DELAYED)] == [f"{DELAYED}: {URI}"]
    there = store.commit(set_text(URI, "other"), request_id="r1")
    assert there.notes == (REPEATED,)
    assert store.files.text(URI) == "猫"
    store.close()


def test_a_repeated_request_brings_to_disk_what_a_killed_writer_acknowledged(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    other = open_store(tmp_path)
    first = store.commit(set_text(URI, "猫"), request_id="r1")
    store.close()
    unsettle(tmp_path)
    other.files.path_for(URI).unlink()  # as if it had been killed before the rename
    again = other.commit(set_text(URI, "猫"), request_id="r1")
    assert again.commit_id == first.commit_id
    assert other.files.text(URI) == "猫"
    other.close()


def test_background_work_outlives_a_ledger_that_another_process_held_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_BUSY_SECONDS", 0.05)
    store = open_store(tmp_path)
    with ledger_held(tmp_path):
        store._delivery.queue(0, {}, CommitReceipt("x", Status.COMMITTED))
        store._delivery.settle()
    store.commit(set_text(URI, "猫"))
    assert soon(lambda: store.ledger.unsettled() == [])
    store.close()


def test_a_commit_is_acknowledged_though_a_hand_edit_of_the_same_moment_cannot_be_recorded_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_BUSY_SECONDS", 0.05)
    held = ledger_held(tmp_path)
    armed = False

    def observe(name: str) -> None:
        if armed and name == "written":
            store.files.path_for(URI).write_text("by hand 手写", encoding="utf-8")
            held.__enter__()

    store = open_store(tmp_path, observe)
    store.commit(set_text(URI, "first"))
    armed = True
    receipt = store.commit(set_text(URI, "machine"))
    armed = False
    assert receipt.status is Status.COMMITTED
    assert "by hand" in (receipt.results[0].note or "")
    held.__exit__(None, None, None)
    assert soon(lambda: store.ledger.text_at(URI) == "by hand 手写")
    assert [commit.kind for commit in store.ledger.history(URI)] == ["external", "commit", "commit"]
    assert store.files.text(URI) == "by hand 手写"
    store.close()


def test_a_file_that_would_not_sync_is_written_anew_by_the_next_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    store.commit(set_text(OTHER, "dog"))
    assert soon(lambda: store.ledger.unsettled() == [])
    fsync = os.fsync
    refused: list[int] = []

    def refusing(descriptor: int) -> None:
        if not refused:
            refused.append(descriptor)
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refusing)
    store.commit(set_text(URI, "猫"))
    first = store.files.path_for(URI).stat().st_ino
    assert soon(lambda: bool(refused))
    assert soon(lambda: not store._delivery._on_disk)
    assert len(store.ledger.unsettled()) == 1
    store.commit(set_text(OTHER, "dog again"))
    assert store.files.path_for(URI).stat().st_ino != first  # the pages of the first one may never reach the disk
    assert store.files.text(URI) == "猫"
    assert soon(lambda: store.ledger.unsettled() == [])
    store.close()


def test_commits_that_are_settled_are_not_remembered(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(30):
        store.commit(set_text(URI, str(number)))
    assert soon(lambda: store.ledger.unsettled() == [])
    assert soon(lambda: not store._delivery._on_disk)
    store.close()


def test_a_store_that_may_only_be_read_writes_no_file_that_another_process_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    store.commit(set_text(URI, "猫"))
    store.close()
    unsettle(tmp_path)
    path = store.files.path_for(URI)
    path.unlink()
    monkeypatch.setattr(store_module, "private_state", lambda state: PrivateState(state, "Read-only file system"))
    reader = open_store(tmp_path)
    assert reader.text(URI) == "猫"
    with pytest.raises(StorageFailed, match="reading only"):
        reader.commit(set_text(OTHER, "dog"))
    reader.close()
    assert not path.exists()


def test_a_store_that_cannot_be_opened_leaves_no_copy_and_no_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_store(tmp_path / "home").close()
    made: list[PrivateState] = []

    def private(state: Path) -> PrivateState:
        made.append(PrivateState(state, "Read-only file system"))
        return made[-1]

    def busy(_delivery: Delivery) -> int:
        raise StoreBusy("busy", hint="Send the same request again.")

    monkeypatch.setattr(store_module, "private_state", private)
    with monkeypatch.context() as patched:
        patched.setattr(Delivery, "recover", busy)
        with pytest.raises(StoreBusy):
            open_store(tmp_path / "home")
    (tmp_path / "home" / ".state" / "ledger.sqlite3").write_bytes(b"no database" * 100)
    with pytest.raises(StorageFailed):
        open_store(tmp_path / "home")
    assert [each.path.exists() for each in made] == [False, False]


def test_a_copy_that_cannot_be_made_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(read_only, "_copy", full)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(StorageFailed, match="cannot be copied"):
        PrivateState(tmp_path, "Read-only file system")
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_file_that_was_swept_from_under_a_sleeping_writer_is_no_hand_edit(tmp_path: Path) -> None:
    swept: list[Path] = []

    def observe(name: str) -> None:
        if armed and name == "written" and not swept:
            swept.extend(store.files.path_for(FOLDER).glob(f"{atomic.TEMPORARY_PREFIX}*"))
            for path in swept:
                path.unlink()

    armed = False
    store = open_store(tmp_path, observe)
    store.commit(set_text(URI, "first"))
    armed = True
    receipt = store.commit(set_text(URI, "second 二"))
    assert len(swept) == 1
    assert any(note.startswith(DELAYED) for note in receipt.notes)
    assert soon(lambda: store.files.text(URI) == "second 二")
    assert {commit.kind for commit in store.ledger.history(URI)} == {"commit"}
    store.close()


def test_a_temporary_file_that_cannot_be_deleted_takes_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    store.commit(set_text(URI, "first"))
    store.commit(set_text(OTHER, "dog"))
    unlink = Path.unlink

    def refusing(self: Path, missing_ok: bool = False) -> None:
        if self.name.startswith(atomic.TEMPORARY_PREFIX):
            raise OSError(errno.EIO, "Input/output error")
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", refusing)
    changed = store.commit(set_text(URI, "second 二"))
    deleted = store.commit(set_text(OTHER, None))
    monkeypatch.undo()
    assert (changed.notes, deleted.notes) == ((), ())
    assert (store.files.text(URI), store.files.text(OTHER)) == ("second 二", None)
    assert store.adopt() == 0
    store.close()


def test_a_file_that_cannot_be_read_refuses_the_commit_instead_of_counting_as_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = os.open

    def refusing(name: Any, flags: int, *rest: Any, **options: Any) -> int:
        if str(name) == path or Path(name).name.startswith(atomic.TEMPORARY_PREFIX):
            raise PermissionError(errno.EACCES, "Permission denied", str(name))
        return opening(name, flags, *rest, **options)

    def observe(name: str) -> None:
        if armed and name == "acknowledged":
            monkeypatch.setattr(os, "open", refusing)

    armed = False
    store = open_store(tmp_path, observe)
    store.commit(set_text(URI, "first"))
    path = str(store.files.path_for(URI))
    armed = True
    receipt = store.commit(set_text(URI, "second 二"))
    armed = False
    assert any(note.startswith(DELAYED) for note in receipt.notes)
    assert store.text(URI) == "second 二"
    with pytest.raises(StorageFailed):
        store.commit(set_text(URI, "third"))
    monkeypatch.undo()
    assert soon(lambda: store.files.text(URI) == "second 二")
    assert {commit.kind for commit in store.ledger.history(URI)} == {"commit"}
    store.close()


def test_a_lock_that_the_system_refuses_is_told_and_can_be_had_later(tmp_path: Path) -> None:
    (tmp_path / "store.lock").mkdir()
    lock = StoreLock(tmp_path / "store.lock")
    for _ in range(2):
        with pytest.raises(StorageFailed, match="cannot be locked") as caught, lock.held():
            pass
        assert caught.value.hint
    (tmp_path / "store.lock").rmdir()
    with lock.held():
        pass


def test_a_reader_never_misses_a_file_while_what_is_undelivered_is_looked_at_again(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with folder_refused(tmp_path):
        store.commit(set_text(URI, "猫"))
        before = store._delivery.undelivered
        with store.exclusive():
            assert store._delivery.undelivered == {URI}
        assert store._delivery.undelivered is not before
        assert before == {URI}  # replaced in one step, never emptied
    store.close()


def test_a_ledger_that_may_not_be_written_is_refused_as_such_and_taken_again_once_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = sqlite.Database(tmp_path / "ledger.sqlite3", ("CREATE TABLE t (x)",), "FULL")
    opening = sqlite.Database._open

    def read_only(self: sqlite.Database, *, create: bool = True) -> sqlite3.Connection:
        connection = opening(self, create=create)
        connection.execute("PRAGMA query_only=ON")  # as SQLite opens a file of mode 0400
        return connection

    database.connection().execute("PRAGMA query_only=ON")
    monkeypatch.setattr(sqlite.Database, "_open", read_only)
    for synced in (True, False):
        with pytest.raises(StorageFailed, match="readonly"), database.writing(synced=synced, wait_seconds=1.0):
            pass
    monkeypatch.undo()
    with database.writing() as connection:
        connection.execute("INSERT INTO t VALUES (1)")
    database.close()


def test_a_ledger_that_could_only_be_opened_for_reading_is_written_at_once_when_it_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = sqlite.Database(tmp_path / "ledger.sqlite3", ("CREATE TABLE t (x)",), "FULL")
    connect = sqlite3.connect

    def reading(address: str, **options: Any) -> Any:
        return connect(address.replace("mode=rw", "mode=ro"), **options)

    def write() -> None:
        monkeypatch.setattr(sqlite3, "connect", reading)
        with pytest.raises(StorageFailed, match="readonly"), database.writing() as connection:
            connection.execute("INSERT INTO t VALUES (1)")
        monkeypatch.undo()
        with database.writing() as connection:
            connection.execute("INSERT INTO t VALUES (2)")

    with ThreadPoolExecutor(1) as thread:  # which opens a connection of its own
        thread.submit(write).result()
    assert database.connection().execute("SELECT x FROM t").fetchall() == [(2,)]
    database.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everything")
def test_a_commit_into_a_ledger_without_write_permission_is_refused(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    ledger = tmp_path / ".state" / "ledger.sqlite3"
    ledger.chmod(0o400)
    store = open_store(tmp_path)
    with pytest.raises(StorageFailed):
        store.commit(set_text(URI, "猫"))
    ledger.chmod(0o600)
    assert store.commit(set_text(URI, "猫")).status is Status.COMMITTED
    store.close()
