"""What people do to the files: recorded as theirs, moves recognised, problems told, nothing rewritten."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memory_core.core.config import Config
from memory_core.core.memory.memory import file_problems, identify
from memory_core.core.memory.results import FileChange
from memory_core.core.memory.trailer import join
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.local import Store
from memory_core.core.store.watcher import Watcher
from memory_core.open_store import load_registry
from tests.core.store.test_store import set_text
from tests.waiting import PATIENCE_SECONDS

NOTES = MemoryUri.parse("viking://user/default/memories/notes")
REGISTRY = load_registry(Config())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(
        tmp_path,
        lambda uri, text: identify(REGISTRY, uri, text),
        examine=lambda uri, text: file_problems(REGISTRY, uri, text),
    )
    opened.adopt()
    yield opened
    opened.close()


def path_of(store: Store, name: str) -> Path:
    path = store.files.path_for(NOTES) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def moved_from(store: Store, uri: MemoryUri) -> str | None:
    """Where the newest change of a file says that it came from."""
    seqs = [commit.seq for commit in store.ledger.history(uri)][:1]
    row = next(row for row in store.ledger.changes_of(seqs) if row.uri == uri)
    return None if row.moved_from is None else str(row.moved_from)


@pytest.mark.parametrize(("old", "new"), [("dog.md", "hound.md"), ("猫.md", "狗.md"), ("Dog.md", "dog.md")])
def test_a_renamed_file_is_one_move_and_keeps_its_counts(store: Store, old: str, new: str) -> None:
    store.commit(set_text(NOTES.child(old), "barks 叫\n"))
    before = NOTES.child(old)
    store.usage.read(str(before), datetime.now(UTC))
    store.usage.read(str(before), datetime.now(UTC))
    store.usage.flush()
    path_of(store, old).rename(path_of(store, new))
    assert store.adopt() == 2
    commit = store.ledger.history()[0]
    assert (commit.kind, commit.author) == ("external", "by hand")
    assert moved_from(store, NOTES.child(new)) == str(before)
    assert store.ledger.usage_table.usage([str(NOTES.child(new))])[str(NOTES.child(new))].access_count == 2
    assert store.ledger.usage_table.usage([str(before)]) == {}


@pytest.mark.parametrize("copy", ["dog.md.bak", "猫.md~", ".dog.md.swp", "dog.md.orig", "#dog.md#"])
def test_what_an_editor_leaves_beside_a_file_is_no_memory(store: Store, copy: str) -> None:
    store.commit(set_text(NOTES.child("dog.md"), "barks 叫\n"))
    path_of(store, copy).write_text("barked\n", encoding="utf-8")
    assert store.adopt() == 0
    assert store.files.uri_of(path_of(store, "dog.md").with_name(copy)) is None or copy.startswith(".")
    assert [entry.uri.name for entry in store.files.walk(NOTES) if not entry.uri.name.startswith(".")] == ["dog.md"]


def test_a_move_whose_halves_come_apart_is_still_one_move(store: Store) -> None:
    store.commit(set_text(NOTES.child("a.md"), "one 一\n"))
    text = path_of(store, "a.md").read_text(encoding="utf-8")
    path_of(store, "a.md").unlink()
    assert store.adopt() == 1
    path_of(store, "b.md").write_text(text, encoding="utf-8")
    assert store.adopt() == 1
    assert moved_from(store, NOTES.child("b.md")) == str(NOTES.child("a.md"))


def test_a_creation_that_is_told_first_finds_the_deletion_itself(store: Store) -> None:
    store.commit(set_text(NOTES.child("a.md"), "one 一\n"))
    path_of(store, "a.md").rename(path_of(store, "b.md"))
    assert store.adoption.take_in([NOTES.child("b.md")]) == 2
    assert moved_from(store, NOTES.child("b.md")) == str(NOTES.child("a.md"))
    assert store.adopt() == 0


def test_a_copy_is_no_move(store: Store) -> None:
    store.commit(set_text(NOTES.child("a.md"), "one\n"))
    shutil.copy(path_of(store, "a.md"), path_of(store, "b.md"))
    assert store.adopt() == 1
    assert moved_from(store, NOTES.child("b.md")) is None


def test_two_files_of_the_same_text_are_not_the_move_of_one(store: Store) -> None:
    store.commit(set_text(NOTES.child("a.md"), "same\n"))
    path_of(store, "a.md").rename(path_of(store, "b.md"))
    shutil.copy(path_of(store, "b.md"), path_of(store, "c.md"))
    store.adopt()
    origins = [moved_from(store, NOTES.child(name)) for name in ("b.md", "c.md")]
    assert sorted(origins, key=str) == [None, str(NOTES.child("a.md"))]


def test_a_renamed_and_edited_memory_is_known_by_its_key(store: Store) -> None:
    trailer = {"memory_type": "preferences", "topic": "茶 tea"}
    directory = MemoryUri.parse("viking://user/default/memories/preferences")
    old, new = directory.child("茶 tea.md"), directory.child("tea 茶.md")
    for uri, body in ((old, "likes tea"), (new, "likes green tea 绿茶")):
        path = store.files.path_for(uri)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(join(body, trailer), encoding="utf-8")
        if uri == new:
            store.files.path_for(old).unlink()
        store.adopt()
    assert moved_from(store, new) == str(old)


def test_a_moved_folder_moves_each_of_its_files(store: Store) -> None:
    for number in range(120):
        store.files.path_for(NOTES).mkdir(parents=True, exist_ok=True)
        path_of(store, f"n{number} 号.md").write_text(f"text {number}", encoding="utf-8")
    store.adopt()
    store.files.path_for(NOTES).rename(store.files.path_for(NOTES.parent.child("笔记")))
    store.adopt()
    there = NOTES.parent.child("笔记")
    assert all(
        moved_from(store, there.child(f"n{number} 号.md")) == str(NOTES.child(f"n{number} 号.md"))
        for number in range(120)
    )


def test_what_came_from_another_users_space_is_not_said(store: Store) -> None:
    store.commit(set_text(MemoryUri.parse("viking://user/alice/memories/notes/a.md"), "hers"))
    theirs = store.files.path_for(MemoryUri.parse("viking://user/alice/memories/notes/a.md"))
    theirs.rename(path_of(store, "mine.md"))
    store.adopt()
    assert moved_from(store, NOTES.child("mine.md")) is None


BROKEN = {
    "broken trailer.md": (b"body\n\n<!-- MEMORY_FIELDS\n{ not json\n-->\n", "trailer is not valid JSON"),
    "unknown type.md": (
        join("正文", {"memory_type": "recipes"}).encode(),
        "memory_type 'recipes' is not known",
    ),
    "zero.md": (b"before\x00after", "NUL"),
    "拉丁.md": ("café".encode("latin-1"), "not UTF-8"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_faulty_file_is_kept_byte_for_byte_and_its_problem_told(
    store: Store, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    content, what = BROKEN[name]
    path_of(store, name).write_bytes(content)
    assert store.adopt() == 1
    assert store.adopt() == 0
    (problem,) = store.problems()
    assert problem.uri == str(NOTES.child(name))
    assert what in problem.what
    assert problem.hint
    assert path_of(store, name).read_bytes() == content
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert not any(word in warnings[0] for word in ("not json", "正文", "before", "caf"))
    path_of(store, name).write_text("mended", encoding="utf-8")
    store.adopt()
    assert store.problems() == []


def test_a_file_over_the_limit_is_told_and_kept(store: Store) -> None:
    path = path_of(store, "huge.md")
    with path.open("wb") as stream:
        stream.truncate(65 * 1024 * 1024)
    assert store.adopt() == 0
    assert [problem.what for problem in store.problems()] == ["it is too large, and not indexed"]
    assert path.stat().st_size == 65 * 1024 * 1024


def test_a_text_that_stands_in_very_many_files_costs_no_look_at_each(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(300):
        path_of(store, f"{number}/README.md").write_text("The same words in each of these folders.\n", "utf-8")
    store.adopt()
    looked = list[MemoryUri]()
    is_gone = store.adoption._is_gone

    def look(uri: MemoryUri, by_uri: dict[MemoryUri, FileChange]) -> bool:
        looked.append(uri)
        return is_gone(uri, by_uri)

    monkeypatch.setattr(store.adoption, "_is_gone", look)
    for number in range(300, 320):
        path_of(store, f"{number}/README.md").write_text("The same words in each of these folders.\n", "utf-8")
    assert store.adopt() == 20
    assert len(looked) <= 100


def test_an_emptied_file_is_being_saved_until_it_stays_empty(store: Store) -> None:
    uri = NOTES.child("保存.md")
    store.commit(set_text(uri, "words"))
    path_of(store, "保存.md").write_text("", encoding="utf-8")
    assert store.adopt() == 0
    assert store.adoption.left == 1
    long_ago = time.time() - 60
    os.utime(path_of(store, "保存.md"), (long_ago, long_ago))
    assert store.adopt() == 1


def test_the_look_before_a_search_sees_new_replaced_deleted_and_moved_files_at_once(store: Store) -> None:
    for name in ("a.md", "b.md", "猫.md"):
        store.commit(set_text(NOTES.child(name), name))
    assert store.adoption.take_in_recent(PATIENCE_SECONDS)
    beside = path_of(store, "saved.swp")
    beside.write_text("replaced by a rename", encoding="utf-8")
    beside.replace(path_of(store, "a.md"))
    path_of(store, "b.md").unlink()
    path_of(store, "新.md").write_text("new", encoding="utf-8")
    deep = store.files.path_for(NOTES.parent) / "topics" / "深"
    deep.mkdir(parents=True)
    (deep / "x.md").write_text("below a new folder", encoding="utf-8")
    assert store.adoption.take_in_recent(PATIENCE_SECONDS)
    names = {MemoryUri.parse(uri).name for uri in store.ledger.stats()}
    assert names == {"a.md", "猫.md", "新.md", "x.md"}
    assert store.adopt() == 0
    shutil.rmtree(store.files.path_for(NOTES))
    assert store.adoption.take_in_recent(PATIENCE_SECONDS)
    assert {MemoryUri.parse(uri).name for uri in store.ledger.stats()} == {"x.md"}


def test_our_own_commits_are_no_hand_edits(store: Store) -> None:
    for number in range(20):
        store.commit(set_text(NOTES.child(f"{number} 号.md"), str(number)))
        assert store.adoption.times.moved() == []
        assert store.adoption.take_in_recent(PATIENCE_SECONDS)
    assert store.adopt() == 0
    assert {commit.kind for commit in store.ledger.history()} == {"commit"}


def test_a_hit_that_was_edited_in_place_is_renewed(store: Store) -> None:
    uri = NOTES.child("猫.md")
    store.commit(set_text(uri, "old"))
    assert store.adoption.renew([str(uri)]) is False
    path_of(store, "猫.md").write_text("edited in place", encoding="utf-8")
    assert store.adoption.renew([f"{uri}#3", str(uri)]) is True
    assert store.adopt() == 0


def test_a_folder_that_a_link_out_of_the_store_took_the_place_of_keeps_no_search_waiting(
    store: Store, tmp_path_factory: pytest.TempPathFactory
) -> None:
    uri = NOTES.child("猫.md")
    store.commit(set_text(uri, "one"))
    assert store.adoption.take_in_recent(PATIENCE_SECONDS)
    folder = store.files.path_for(NOTES)
    elsewhere = tmp_path_factory.mktemp("out") / "elsewhere"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    (elsewhere / "new.md").write_text("new", encoding="utf-8")
    assert store.adoption.take_in_recent(PATIENCE_SECONDS)
    assert "leads outside" in " ".join(problem.what for problem in store.problems())
    assert str(uri) in store.ledger.stats()  # neither new nor gone: nobody knows


def test_a_missing_file_behind_a_link_out_of_the_store_keeps_no_other_from_coming_back(
    store: Store, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for number in range(10):
        store.commit(set_text(NOTES.child(f"{number}.md"), str(number)))
    store.commit(set_text(NOTES.parent.child("facts").child("猫.md"), "cat"))
    memories = store.files.path_for(NOTES.parent)
    shutil.rmtree(memories)
    assert store.adopt() == 0
    memories.mkdir()
    (memories / "facts").symlink_to(tmp_path_factory.mktemp("out"))
    store.adoption.vanished.bring_back(store._lock)  # the link came after the last look
    assert sorted(path.name for path in (memories / "notes").glob("*.md")) == [f"{number}.md" for number in range(10)]


def test_a_place_that_cannot_be_looked_at_ends_no_watching(store: Store) -> None:
    deep = store.files.root.joinpath("user", "default", "memories", *["n" * 200] * 25)
    Watcher(store.files, store.adoption, threading.Event())._take_in([deep / "猫.md", deep / "猫.md~"])
    assert store.adopt() == 0
