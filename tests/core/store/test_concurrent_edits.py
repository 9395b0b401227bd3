"""A person who saves a file while a commit is under way: both texts are in history, and the person's is never lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from memory_core.core.memory.results import Action, ChangeSet, CommitReceipt, FileChange, OperationResult
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store import atomic
from memory_core.core.store.local import Plan, Snapshot
from tests.core.store.test_store import URI, open_store, set_text

MINE = "von Hand 亲手写的\n"
STEPS = ("planned", "acknowledged", "written", "file", "renamed")


def append(uri: MemoryUri, line: str) -> Plan:
    """A patch: builds on what is there."""

    def plan(snapshot: Snapshot) -> ChangeSet:
        before = snapshot.text(uri)
        result = OperationResult("write", str(uri), Action.CREATED if before is None else Action.UPDATED)
        return ChangeSet((FileChange(uri, before, (before or "") + line, "notes", uri.name),), (result,))

    return plan


def in_place(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def by_rename(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name("saved.swp")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def commit_while(root: Path, step: str, edit: Callable[[Path], None], plan: Plan, first: str | None) -> CommitReceipt:
    """Commit ``plan`` while somebody edits the file at one step; once, however often the step comes."""
    waiting = [edit]

    def observe(name: str) -> None:
        if name == step and armed and waiting:
            waiting.pop()(store.files.path_for(URI))

    armed = False
    store = open_store(root, observe)
    if first is not None:
        store.commit(append(URI, first))
    armed = True
    receipt = store.commit(plan)
    assert not waiting, "the edit was not made"
    store.adopt()
    store.close()
    return receipt


def texts(root: Path) -> tuple[str | None, list[str | None]]:
    """What is on disk, and every text in history."""
    store = open_store(root)
    found = store.files.text(URI)
    rows = store.ledger.changes_of(sorted(commit.seq for commit in store.ledger.history(URI)))
    newest = store.ledger.file(URI)
    assert (None if newest is None else newest.sha256) == (rows[-1].after_sha256 if rows else None)
    assert store.adopt() == 0
    store.close()
    return found, [row.after for row in rows]


@pytest.mark.parametrize("save", [in_place, by_rename])
@pytest.mark.parametrize("step", STEPS)
def test_a_person_saving_at_any_step_keeps_every_word(
    tmp_path: Path, step: str, save: Callable[[Path, str], None]
) -> None:
    receipt = commit_while(tmp_path, step, lambda path: save(path, MINE), append(URI, "machine\n"), "first\n")
    found, history = texts(tmp_path)
    assert MINE in history
    if step == "planned":  # noticed before the acknowledgement: the plan is made again, on the person's text
        assert found == MINE + "machine\n"
        assert receipt.notes == ()
    else:
        assert found == MINE
        assert "first\nmachine\n" in history
        in_time = step in ("acknowledged", "written")
        assert ("by hand" in (receipt.results[0].note or "")) is in_time
        assert any(str(URI) in note for note in receipt.notes) is in_time


@pytest.mark.parametrize("step", ["planned", "acknowledged", "written"])
def test_a_file_that_a_person_creates_meanwhile_is_not_replaced(tmp_path: Path, step: str) -> None:
    commit_while(tmp_path, step, lambda path: in_place(path, MINE), append(URI, "machine\n"), None)
    found, history = texts(tmp_path)
    assert found is not None
    assert found.startswith(MINE)
    assert MINE in history


@pytest.mark.parametrize("step", ["planned", "acknowledged", "written"])
def test_a_file_that_a_person_edits_meanwhile_is_not_deleted_with_the_edit(tmp_path: Path, step: str) -> None:
    commit_while(tmp_path, step, lambda path: in_place(path, MINE), set_text(URI, None), "first\n")
    found, history = texts(tmp_path)
    assert MINE in history
    assert found == (None if step == "planned" else MINE)  # a plan that saw the edit deletes that, and history has it


@pytest.mark.parametrize("step", ["acknowledged", "written"])
def test_a_file_that_a_person_deletes_meanwhile_stays_deleted(tmp_path: Path, step: str) -> None:
    receipt = commit_while(tmp_path, step, Path.unlink, append(URI, "machine\n"), "first\n")
    found, history = texts(tmp_path)
    assert found is None
    assert history == ["first\n", "first\nmachine\n", None]
    assert receipt.results[0].note is not None


def test_a_repeated_request_hears_of_the_hand_edit_too(tmp_path: Path) -> None:
    def observe(name: str) -> None:
        if name == "written":
            in_place(store.files.path_for(URI), MINE)

    store = open_store(tmp_path, observe)
    first = store.commit(append(URI, "machine\n"), request_id="r1")
    store.close()
    store = open_store(tmp_path)
    again = store.commit(append(URI, "machine\n"), request_id="r1")
    store.close()
    assert again.results == first.results
    assert first.results[0].note is not None


@pytest.mark.parametrize("atomic_swap", [True, False])
def test_a_file_that_is_not_the_expected_one_stays(
    tmp_path: Path, atomic_swap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not atomic_swap:  # as on a system without that call
        monkeypatch.setattr(atomic, "change_places", lambda _one, _other: False)
    path = tmp_path / "猫.md"
    path.write_text("theirs", encoding="utf-8")
    assert atomic.exchange(path, "ours", lambda there: there.read_text(encoding="utf-8") == "other") is None
    assert atomic.exchange(path, "ours", None) is None
    assert not atomic.take_away(path, lambda _there: False)
    assert path.read_text(encoding="utf-8") == "theirs"
    assert atomic.exchange(path, "ours", lambda there: there.read_text(encoding="utf-8") == "theirs") is not None
    assert path.read_text(encoding="utf-8") == "ours"
    assert atomic.take_away(path, lambda _there: True)
    assert list(tmp_path.iterdir()) == []


def test_another_writer_that_broke_the_lock_costs_no_commit(tmp_path: Path) -> None:
    """The lock file was deleted while it was held: two writers at once, and the second one plans again."""
    other = open_store(tmp_path)
    once = [True]

    def observe(name: str) -> None:
        if name == "planned" and once:
            once.pop()
            (tmp_path / ".state" / "locks" / "store.lock").unlink()
            other.commit(append(URI, "other\n"))

    store = open_store(tmp_path, observe)
    store.commit(append(URI, "one\n"))
    store.close()
    other.close()
    assert texts(tmp_path)[0] == "other\none\n"


def test_a_file_that_is_saved_while_the_one_before_it_is_judged_stays(tmp_path: Path) -> None:
    path = tmp_path / "猫.md"
    path.write_text("theirs", encoding="utf-8")

    def judge(_there: Path) -> bool:
        by_rename(path, "theirs, newer")
        return False

    assert atomic.exchange(path, "ours", judge) is None
    assert path.read_text(encoding="utf-8") == "theirs, newer"
    assert list(tmp_path.iterdir()) == [path]
