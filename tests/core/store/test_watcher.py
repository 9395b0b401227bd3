"""Hand edits under a running server: noticed soon, whatever the system tells or fails to tell."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import watchfiles

from memory_core.core.memory.results import text_sha256
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.local import Store
from tests.core.store.test_store import open_store, set_text
from tests.waiting import soon

NOTES = MemoryUri.parse("viking://user/default/memories/notes")


def known(store: Store) -> dict[str, str]:
    """Name and hash of every file that the ledger knows."""
    rows = [store.ledger.file(MemoryUri.parse(uri)) for uri in store.ledger.stats()]
    return {row.uri.name: row.sha256 for row in rows if row is not None}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path)
    opened.commit(set_text(NOTES.child("猫.md"), "one"))
    opened.watch()
    yield opened
    opened.close()


def holds(store: Store, **texts: str) -> Callable[[], bool]:
    wanted = {f"{name}.md": text_sha256(text) for name, text in texts.items()}
    return lambda: known(store) == wanted


def test_each_kind_of_edit_is_noticed_without_anybody_asking(store: Store) -> None:
    folder = store.files.path_for(NOTES)
    (folder / "猫.md").write_text("edited in place", encoding="utf-8")
    assert soon(holds(store, 猫="edited in place"))
    (folder / "tmp.swp").write_text("saved by a rename", encoding="utf-8")
    (folder / "tmp.swp").replace(folder / "猫.md")
    assert soon(holds(store, 猫="saved by a rename"))
    (folder / "new.md").write_text("new", encoding="utf-8")
    assert soon(holds(store, 猫="saved by a rename", new="new"))
    (folder / "new.md").rename(folder / "新.md")
    assert soon(holds(store, 猫="saved by a rename", 新="new"))
    (folder / "新.md").unlink()
    assert soon(holds(store, 猫="saved by a rename"))
    folder.rename(folder.parent / "笔记")
    assert soon(lambda: str(NOTES.parent.child("笔记").child("猫.md")) in store.ledger.stats())
    assert {commit.author for commit in store.ledger.history(limit=50) if commit.kind == "external"} == {"by hand"}


def test_a_scope_that_appears_later_is_watched_too(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "agent" / "default" / "memories" / "cases"
    folder.mkdir(parents=True)
    (folder / "案例.md").write_text("a case", encoding="utf-8")
    assert soon(lambda: "案例.md" in known(store))
    (folder / "案例.md").write_text("the case, edited", encoding="utf-8")
    assert soon(lambda: known(store)["案例.md"] == text_sha256("the case, edited"))


def test_a_folder_that_was_replaced_is_followed(store: Store, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "user", tmp_path / "copy")
    (tmp_path / "user").rename(tmp_path / "old")
    (tmp_path / "copy").rename(tmp_path / "user")
    path = store.files.path_for(NOTES.child("猫.md"))
    path.write_text("in the new folder", encoding="utf-8")
    assert soon(holds(store, 猫="in the new folder"))


def test_our_own_commits_are_not_recorded_again(store: Store) -> None:
    for number in range(30):
        store.commit(set_text(NOTES.child(f"n{number}.md"), str(number)))
    (store.files.path_for(NOTES) / "by hand.md").write_text("mine", encoding="utf-8")
    assert soon(lambda: "by hand.md" in known(store))
    external = [commit for commit in store.ledger.history(limit=100) if commit.kind == "external"]
    results = [result for commit in external for result in store.ledger.past.receipt(commit.seq)["results"]]
    assert [result["uri"] for result in results] == [str(NOTES.child("by hand.md"))]


def test_where_the_system_cannot_watch_a_scan_finds_the_edit_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_paths: str, **_options: object) -> Iterator[set[tuple[watchfiles.Change, str]]]:
        raise OSError("OS file watch limit reached")

    monkeypatch.setattr(watchfiles, "watch", refuse)
    store = open_store(tmp_path)
    store.commit(set_text(NOTES.child("猫.md"), "one"))
    store.watch()
    for text in ("first edit 一", "second edit 二"):
        store.files.path_for(NOTES.child("猫.md")).write_text(text, encoding="utf-8")
        assert soon(holds(store, 猫=text))
    store.close()
    said = [record.getMessage() for record in caplog.records if "looked for every few seconds" in record.getMessage()]
    assert len(said) == 1


def test_hundreds_of_files_at_once_are_all_taken_in(store: Store) -> None:
    folder = store.files.path_for(NOTES)
    for number in range(500):
        (folder / f"拉取 {number}.md").write_text(f"pulled {number}", encoding="utf-8")
    assert soon(lambda: len(known(store)) == 501)
    assert store.adopt() == 0


def test_a_closed_store_watches_no_more(store: Store) -> None:
    watching = [thread for thread in threading.enumerate() if thread.name == "runebook-watch"]
    assert watching
    store.close()
    store.watch()
    store.close()
    assert not any(thread.is_alive() for thread in watching)
