"""Commits: acknowledged means kept, killed at any step means old or new, never half."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from memory_core.core.errors import InvalidUri
from memory_core.core.memory.results import Action, ChangeSet, FileChange, OperationResult, Status, text_sha256
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.local import Plan, Snapshot, Store
from tests.fork_server import starter

URI = MemoryUri.parse("viking://user/default/memories/notes/猫.md")
OTHER = MemoryUri.parse("viking://user/default/memories/notes/dog.md")
LOG = MemoryUri.parse("viking://session/default/s1/messages.jsonl")


def set_text(uri: MemoryUri, after: str | None, *, appended: bool = False) -> Plan:
    def plan(snapshot: Snapshot) -> ChangeSet:
        before = snapshot.text(uri)
        if before == after:
            return ChangeSet((), (OperationResult("write", str(uri), Action.UNCHANGED),))
        action = Action.DELETED if after is None else Action.CREATED if before is None else Action.UPDATED
        change = FileChange(uri, before, after, "notes", uri.name, appended)
        return ChangeSet((change,), (OperationResult("write", str(uri), action),))

    return plan


def open_store(root: Path, step: Callable[[str], None] = lambda _name: None) -> Store:
    """A store of texts without types; ``step`` is told how far a commit is."""
    return Store(root, lambda _uri, _text: ("", ""), step=step)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path)
    yield opened
    opened.close()


def test_a_commit_is_on_disk_and_in_history_with_both_texts(store: Store) -> None:
    store.commit(set_text(URI, "一\n"))
    receipt = store.commit(set_text(URI, "二\n"))
    assert receipt.status is Status.COMMITTED
    assert store.files.path_for(URI).read_text(encoding="utf-8") == "二\n"
    newest = store.ledger.history(URI)[0]
    (change,) = store.ledger.changes_of([newest.seq])
    assert (change.before, change.after) == ("一\n", "二\n")


def test_a_commit_is_recorded_in_utc_whatever_the_clock_on_the_wall_says(store: Store) -> None:
    noon = datetime(2026, 11, 24, 12, tzinfo=timezone(timedelta(hours=8)))
    store.commit(set_text(URI, "一\n"), now=noon)
    store.files.path_for(URI).write_text("by hand", encoding="utf-8")
    store.commit(set_text(URI, "二\n"), now=noon)
    assert {commit.at for commit in store.ledger.history()} == {"2026-11-24T04:00:00.000+00:00"}


def test_committing_the_same_text_twice_is_unchanged_and_not_recorded(store: Store) -> None:
    store.commit(set_text(URI, "same"))
    assert store.commit(set_text(URI, "same")).status is Status.UNCHANGED
    assert len(store.ledger.history()) == 1


def test_an_append_keeps_only_its_tail_and_the_whole_is_rebuilt(store: Store) -> None:
    store.commit(set_text(LOG, "a\n", appended=True))
    store.commit(set_text(LOG, "a\nb\n", appended=True))
    newest = store.ledger.newest_seq()
    (change,) = store.ledger.changes_of([newest])
    assert change.after == "b\n"
    assert store.ledger.text_at(LOG, newest) == "a\nb\n"


def test_files_added_edited_and_removed_by_hand_are_adopted(store: Store) -> None:
    store.commit(set_text(URI, "one"))
    store.commit(set_text(OTHER, "two"))
    store.files.path_for(URI).unlink()
    store.files.path_for(OTHER).write_text("two, edited", encoding="utf-8")
    added = MemoryUri.parse("viking://user/default/memories/notes/new.md")
    store.files.path_for(added).write_text("three", encoding="utf-8")
    assert store.adopt() == 3
    assert {
        uri: row.sha256 for uri in map(MemoryUri.parse, store.ledger.stats()) if (row := store.ledger.file(uri))
    } == {
        OTHER: text_sha256("two, edited"),
        added: text_sha256("three"),
    }
    assert store.adopt() == 0


def test_a_link_out_of_the_folder_is_refused(store: Store, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    link = tmp_path / "user" / "default"
    link.parent.mkdir(parents=True)
    link.symlink_to(outside, target_is_directory=True)
    with pytest.raises(InvalidUri, match="outside"):
        store.commit(set_text(URI, "x"))
    assert list(outside.iterdir()) == []


_KILLED_COMMIT = """
import os, signal, sys
from pathlib import Path
from memory_core.core.memory.results import Action, ChangeSet, FileChange, OperationResult
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.local import Store

root, stop_at = Path(sys.argv[1]), sys.argv[2]
seen = []

def step(name):
    seen.append(name)
    if name == stop_at:
        os.kill(os.getpid(), signal.SIGKILL)

def plan(snapshot):
    changes = []
    for name, after in (("a", "a new"), ("b", "b new"), ("c", None), ("d", "d new")):
        uri = MemoryUri.parse(f"viking://user/default/memories/notes/{name}.md")
        changes.append(FileChange(uri, snapshot.text(uri), after, "notes", name))
    return ChangeSet(tuple(changes), (OperationResult("write", "x", Action.UPDATED),))

store = Store(root, lambda uri, text: ("", ""), step=step)
store.commit(plan)
print("acknowledged", flush=True)
store.close()
"""

STEPS = ("planned", "acknowledged", "file", "renamed", "synced", "never")


@pytest.mark.parametrize("stop_at", STEPS)
def test_a_writer_killed_at_any_step_leaves_old_or_new_never_half(tmp_path: Path, stop_at: str) -> None:
    names = "abcd"
    uris = {name: MemoryUri.parse(f"viking://user/default/memories/notes/{name}.md") for name in names}
    before = {"a": "a old", "b": "b old", "c": "c old", "d": None}
    after = {"a": "a new", "b": "b new", "c": None, "d": "d new"}
    store = open_store(tmp_path)
    for name in "abc":
        store.commit(set_text(uris[name], before[name]))
    store.close()
    run = starter().run(_KILLED_COMMIT, tmp_path, stop_at)
    assert (run.returncode == -signal.SIGKILL) is (stop_at not in ("never",)), run.stderr
    reopened = open_store(tmp_path)
    found = {name: reopened.text(uris[name]) for name in names}
    reopened.close()
    assert found == (before if stop_at == "planned" else after)


def test_a_torn_file_of_an_acknowledged_commit_is_written_again(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.commit(set_text(URI, "a long text that power loss can tear"))
    path = store.files.path_for(URI)
    store.close()
    unsettle(tmp_path)
    path.write_text("a long te", encoding="utf-8")
    reopened = open_store(tmp_path)
    assert reopened.text(URI) == "a long text that power loss can tear"
    reopened.close()


def test_a_hand_edit_during_recovery_is_kept(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.commit(set_text(URI, "machine"))
    path = store.files.path_for(URI)
    store.close()
    unsettle(tmp_path)
    path.write_text("somebody's own words", encoding="utf-8")
    reopened = open_store(tmp_path)
    assert reopened.text(URI) == "somebody's own words"
    assert reopened.adopt() == 1
    reopened.close()


def unsettle(root: Path) -> None:
    """As if no file of any commit were known to be on disk."""
    with closing(sqlite3.connect(root / ".state" / "ledger.sqlite3")) as connection, connection:
        connection.execute("UPDATE commits SET settled = 0")


def test_a_file_that_goes_while_its_directory_is_listed_hides_no_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.commit(set_text(URI, "猫"))
    store.commit(set_text(OTHER, "dog"))
    listing = os.scandir

    @contextmanager
    def losing(path: Path) -> Iterator[list[os.DirEntry[str]]]:
        with listing(path) as scan:
            entries = list(scan)
        Path(entries[0].path).unlink()
        yield entries

    monkeypatch.setattr(os, "scandir", losing)
    assert len(store.files.looks_in(URI.parent)) == 1
