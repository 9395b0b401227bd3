"""Hand edits that come while others are taken in: none is hidden, none is guessed to be another, none is forgotten."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.errors import StorageFailed
from memory_core.core.memory.results import text_sha256
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.local import Store
from tests.core.store.test_store import open_store, set_text
from tests.waiting import PATIENCE_SECONDS, soon

NOTES = MemoryUri.parse("viking://user/default/memories/notes")
CAT = NOTES.child("猫.md")


def path_of(store: Store, uri: MemoryUri) -> Path:
    path = store.files.path_for(uri)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path)
    opened.adopt()
    yield opened
    opened.close()


def test_a_file_saved_again_while_its_first_edit_is_taken_in_is_taken_in_again(tmp_path: Path) -> None:
    again = ["second 第二次\n"]

    def identify(uri: MemoryUri, text: str) -> tuple[str, str]:
        if uri == CAT and text.startswith("first") and again:
            path_of(opened, CAT).write_text(again.pop(), encoding="utf-8")
        return "", ""

    opened = Store(tmp_path, identify)
    opened.commit(set_text(CAT, "machine\n"))
    path_of(opened, CAT).write_text("first 第一次\n", encoding="utf-8")
    assert opened.adopt() == 1
    assert not again
    opened.close()
    opened = open_store(tmp_path)
    opened.adopt()
    assert opened.ledger.text_at(CAT) == "second 第二次\n"
    opened.close()


def test_recovery_hides_no_edit_of_a_file_that_a_later_commit_left(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.commit(set_text(CAT, "machine\n"))
    path_of(store, CAT).write_text("first edit 一\n", encoding="utf-8")
    assert store.adopt() == 1
    store.close()
    with closing(sqlite3.connect(tmp_path / ".state" / "ledger.sqlite3")) as connection, connection:
        connection.execute("UPDATE commits SET settled = 0 WHERE kind = 'commit'")
    store.files.path_for(CAT).write_text("second edit 二\n", encoding="utf-8")
    open_store(tmp_path).close()  # recovers, and settles
    store = open_store(tmp_path)
    assert store.adopt() == 1
    assert store.ledger.text_at(CAT) == "second edit 二\n"
    store.close()


def test_what_could_not_be_taken_in_in_the_background_is_tried_again(tmp_path: Path) -> None:
    refusals = [1, 2]

    def identify(_uri: MemoryUri, text: str) -> tuple[str, str]:
        if text == "by hand 手写\n" and refusals:
            refusals.pop()
            raise StorageFailed("the disk is away.", hint="Wait.")
        return "", ""

    store = Store(tmp_path, identify)
    store.commit(set_text(CAT, "machine\n"))
    path_of(store, CAT).write_text("by hand 手写\n", encoding="utf-8")
    assert store.adoption.renew([str(CAT)]) is False
    assert soon(lambda: not refusals and store.ledger.text_at(CAT) == "by hand 手写\n")
    store.close()


def test_a_folder_that_cannot_be_listed_keeps_no_search_from_the_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = NOTES.parent.child("closed")
    for directory in (closed, NOTES):
        store.commit(set_text(directory.child("a.md"), "one"))
    store.adopt()
    scandir = os.scandir

    def refusing(path: Any) -> Any:
        if str(path) == str(store.files.path_for(closed)):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    for directory in (closed, NOTES):
        (store.files.path_for(directory) / "新.md").write_text("new 新", encoding="utf-8")
    store.adoption.take_in_recent(PATIENCE_SECONDS)
    assert store.ledger.text_at(NOTES.child("新.md")) == "new 新"
    monkeypatch.undo()
    store.adoption.take_in_recent(PATIENCE_SECONDS)
    assert store.ledger.text_at(closed.child("新.md")) == "new 新"
    assert {commit.kind for commit in store.ledger.history(closed.child("a.md"))} == {"commit"}


def test_a_file_whose_looks_are_refused_is_told_and_spoils_no_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.commit(set_text(CAT, "one"))
    path, other = path_of(store, CAT), path_of(store, NOTES.child("dog.md"))
    path.write_text("edited", encoding="utf-8")
    other.write_text("new", encoding="utf-8")
    stat = Path.stat

    def refusing(self: Path, **options: Any) -> os.stat_result:
        if self == path:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return stat(self, **options)

    monkeypatch.setattr(Path, "stat", refusing)
    assert store.adoption.take_in([CAT, NOTES.child("dog.md")]) == 1
    monkeypatch.undo()
    assert store.ledger.text_at(CAT) == "one"
    assert store.adopt() == 1


def test_what_was_wrong_with_a_file_is_forgotten_with_it(store: Store) -> None:
    path_of(store, CAT).write_bytes("café".encode("latin-1"))
    (path_of(store, CAT).parent / "con.md").write_text("unnameable", encoding="utf-8")
    store.adopt()
    assert len(store.problems()) == 2
    path_of(store, CAT).unlink()
    (path_of(store, CAT).parent / "con.md").rename(path_of(store, NOTES.child("mended.md")))
    store.adopt()
    assert store.problems() == []


def moves(store: Store) -> dict[str, str]:
    """New URI to old one, of every move in history."""
    rows = store.ledger.changes_of(sorted(commit.seq for commit in store.ledger.history(limit=1_000)))
    return {str(row.uri): str(row.moved_from) for row in rows if row.moved_from is not None}


def test_which_of_two_files_of_one_text_became_which_is_not_guessed(store: Store) -> None:
    for name in ("a.md", "b.md"):
        store.commit(set_text(NOTES.child(name), "好 ok\n"))
    store.usage.read(str(NOTES.child("a.md")), datetime.now(UTC))
    store.usage.flush()
    path_of(store, NOTES.child("b.md")).rename(path_of(store, NOTES.child("c.md")))
    path_of(store, NOTES.child("a.md")).rename(path_of(store, NOTES.child("d.md")))
    assert store.adopt() == 4
    assert moves(store) == {}
    assert set(store.ledger.usage_table.usage([str(NOTES.child("a.md"))])) == {str(NOTES.child("a.md"))}


def test_files_of_one_text_that_kept_their_names_moved_all_the_same(store: Store) -> None:
    there = NOTES.parent.child("entities")
    for name in ("a.md", "b.md"):
        store.commit(set_text(NOTES.child(name), "好 ok\n"))
    path_of(store, NOTES.child("a.md")).parent.rename(store.files.path_for(there))
    assert store.adopt() == 4
    assert moves(store) == {str(there.child(name)): str(NOTES.child(name)) for name in ("a.md", "b.md")}


def test_a_moved_tree_of_equal_files_moves_each_to_its_own_place(store: Store) -> None:
    places = [f"{month}/{name}" for month in ("五月", "june") for name in ("a.md", "b.md")]

    def at(top: str, place: str) -> MemoryUri:
        return MemoryUri((*NOTES.parts, top, *place.split("/")))

    for place in places:
        store.commit(set_text(at("old", place), "好 ok\n"))
    store.files.path_for(NOTES.child("old")).rename(store.files.path_for(NOTES.child("new")))
    assert store.adopt() == 8
    assert moves(store) == {str(at("new", place)): str(at("old", place)) for place in places}


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("好 ok\n", False),
        ("The spare key of the boat house is below the third stone. 备用钥匙在第三块石头下面。\n", True),
    ],
)
def test_a_few_words_written_anew_elsewhere_are_not_the_file_that_was_deleted(
    store: Store, text: str, moved: bool
) -> None:
    store.commit(set_text(NOTES.child("done.md"), text))
    path_of(store, NOTES.child("done.md")).unlink()
    assert store.adopt() == 1
    path_of(store, NOTES.parent.child("entities").child("dinner.md")).write_text(text, encoding="utf-8")
    assert store.adopt() == 1
    assert bool(moves(store)) is moved


def test_two_stores_take_the_same_edit_in_once(tmp_path: Path) -> None:
    stores = [open_store(tmp_path), open_store(tmp_path)]
    stores[0].commit(set_text(CAT, "machine"))
    path_of(stores[0], CAT).write_text("by hand", encoding="utf-8")
    for store in stores:
        store.adoption.take_in([CAT])
    path_of(stores[0], CAT).write_text("machine", encoding="utf-8")  # back again: a third version, not the first
    for store in reversed(stores):
        store.adoption.take_in([CAT])
    for store in stores:
        store.close()
    store = open_store(tmp_path)
    assert [commit.kind for commit in store.ledger.history(CAT)] == ["external", "external", "commit"]
    row = store.ledger.file(CAT)
    assert row is not None
    assert row.sha256 == text_sha256("machine")
    store.close()
