"""Undo: what a commit did goes away, what happened since stays, and undoing the undo brings it back."""

from __future__ import annotations

import contextlib
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_core.core.caller import authored
from memory_core.core.errors import InvalidInput, NotFound
from memory_core.core.memory.requests import CommitRequest, FindRequest, ReadRequest
from memory_core.core.memory.results import Action, ChangeSet, CommitReceipt, FileChange, Status
from memory_core.core.memory.uri import MemoryUri
from memory_core.features import undo
from memory_core.features.forgetting import FORGET, ForgetRequest
from memory_core.features.history import history_of
from memory_core.features.purge import PURGE, PurgeRequest
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.features.upkeep.archive import ARCHIVE, ArchiveRequest
from memory_core.runebook import Runebook, open_memory
from tests.counting import bytecodes, is_linear
from tests.killing import killed
from tests.stores import log_of, note, replaced, said, words_only, written

NOTES = "viking://user/default/memories/notes"
STYLE = "viking://user/default/memories/preferences/Python code style.md"


def tree(memory: Runebook) -> dict[str, str | None]:
    """Every file with its text; of pages what somebody wrote."""
    texts = {entry.uri: memory.store.look(entry.uri)[0] for entry in memory.store.files.walk()}
    return {str(uri): text for uri, text in texts.items() if text is not None}


def style(memory: Runebook, content: str) -> CommitReceipt:
    return replaced(memory, "preferences", content, topic="Python code style")


def results(receipt: CommitReceipt) -> dict[str, Action]:
    return {result.uri: result.action for result in receipt.results}


def test_an_undone_creation_leaves_nothing(memory: Runebook) -> None:
    before = tree(memory)
    receipt = note(memory, "猫", "猫喜欢鱼。")
    undone = memory.run(UNDO, UndoRequest(receipt.commit_id))
    assert results(undone) == {f"{NOTES}/猫.md": Action.DELETED}
    assert tree(memory) == before
    assert memory.find(FindRequest("猫喜欢鱼")).total == 0


def test_undoing_an_undo_restores_exactly_what_was_there(memory: Runebook) -> None:
    style(memory, "Four spaces.")
    receipt = style(memory, "Two spaces.")
    after = tree(memory)
    first = memory.run(UNDO, UndoRequest(receipt.commit_id))
    assert "Four" in (memory.store.text(MemoryUri.parse(STYLE)) or "")
    memory.run(UNDO, UndoRequest(first.commit_id))
    assert tree(memory) == after
    assert memory.run(UNDO, UndoRequest(receipt.commit_id)).status is Status.COMMITTED


def test_an_undo_is_shown_first_given_again_to_a_retry_and_refused_twice(memory: Runebook) -> None:
    receipt = note(memory, "a", "Something.")
    before = tree(memory)
    preview = memory.run(UNDO, UndoRequest(receipt.commit_id, dry_run=True))
    assert (preview.status, preview.commit_id) == (Status.DRY_RUN, "")
    assert results(preview) == {f"{NOTES}/a.md": Action.DELETED}
    assert tree(memory) == before
    undone = memory.run(UNDO, UndoRequest(receipt.commit_id, request_id="r"))
    assert memory.run(UNDO, UndoRequest(receipt.commit_id, request_id="r")).commit_id == undone.commit_id
    with pytest.raises(InvalidInput, match=f"already undone by {undone.commit_id}"):
        memory.run(UNDO, UndoRequest(receipt.commit_id))


def test_later_words_elsewhere_in_the_memory_are_kept(memory: Runebook) -> None:
    style(memory, "缩进四格。\n行宽一百。\n")
    receipt = style(memory, "缩进两格。\n行宽一百。\n")
    style(memory, "缩进两格。\n行宽一百。\n用双引号。\n")
    undone = memory.run(UNDO, UndoRequest(receipt.commit_id))
    assert undone.results[0].note == "what changed since was kept"
    assert memory.read(ReadRequest(STYLE)).content.startswith("缩进四格。\n行宽一百。\n用双引号。\n")


def test_a_conflict_is_refused_by_name_and_the_other_files_go_back(memory: Runebook) -> None:
    style(memory, "Four spaces.")
    writes = [
        {"memory_type": "preferences", "fields": {"topic": "Python code style", "content": "Two spaces."}},
        {"memory_type": "notes", "fields": {"title": "x", "content": "Extra."}},
    ]
    operations = {"write_operations": [{"replace": True, "memory_data": data} for data in writes]}
    both = memory.commit(CommitRequest(operations=operations))
    later = style(memory, "Tabs.")
    undone = memory.run(UNDO, UndoRequest(both.commit_id))
    assert undone.status is Status.PARTIAL
    refused = next(result for result in undone.results if result.action is Action.REJECTED)
    assert (refused.uri, refused.conflict) == (STYLE, True)
    assert later.commit_id in str(refused.reason)
    assert later.commit_id in str(refused.hint)
    assert results(undone)[f"{NOTES}/x.md"] is Action.DELETED
    assert "Tabs." in memory.read(ReadRequest(STYLE)).content
    memory.run(UNDO, UndoRequest(later.commit_id))
    assert results(memory.run(UNDO, UndoRequest(both.commit_id))) == {STYLE: Action.UPDATED}
    assert "Four spaces." in memory.read(ReadRequest(STYLE)).content


def test_a_hand_edit_is_never_overwritten_and_can_itself_be_undone(memory: Runebook) -> None:
    receipt = note(memory, "a", "Machine.")
    path = memory.store.files.path_for(MemoryUri.parse(f"{NOTES}/a.md"))
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("Machine.", "我的话。"), encoding="utf-8", newline="\n")
    refused = memory.run(UNDO, UndoRequest(receipt.commit_id))
    assert refused.status is Status.REJECTED
    assert "by hand" in str(refused.results[0].reason)
    memory.store.adopt()
    by_hand = history_of(memory).commit("last")
    assert (by_hand.kind, by_hand.author) == ("external", "by hand")
    memory.run(UNDO, UndoRequest(by_hand.commit_id))
    assert path.read_text(encoding="utf-8") == text


def test_a_file_does_not_come_back_where_another_has_its_name(memory: Runebook) -> None:
    note(memory, "Tea", "Green.")
    deleted = memory.commit(CommitRequest(operations={"delete_operations": [{"uri": f"{NOTES}/Tea.md"}]}))
    path = memory.store.files.path_for(MemoryUri.parse(f"{NOTES}/tea.md"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("By hand.\n", encoding="utf-8")
    memory.store.adopt()
    refused = memory.run(UNDO, UndoRequest(deleted.commit_id))
    assert refused.results[0].action is Action.REJECTED
    assert "name" in str(refused.results[0].reason)


def test_an_undone_conversation_leaves_the_queue_and_its_counts_and_can_be_sent_again(memory: Runebook) -> None:
    first = [{"role": "user", "content": "我住在上海。"}]
    call: list[dict[str, Any]] = [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    ]
    memory.commit(CommitRequest(messages=first, session_id="s1"))
    before = tree(memory)
    log = MemoryUri.parse("viking://session/default/s1/messages.jsonl")
    receipt = memory.commit(CommitRequest(messages=[*first, *call], session_id="s1"))
    after = tree(memory)
    assert any("tools/" in uri for uri in receipt.changed_uris)
    undone = memory.run(UNDO, UndoRequest(receipt.commit_id))
    assert undone.status is Status.COMMITTED, undone
    assert tree(memory) == before
    row = memory.store.ledger.extractions.get(log)
    assert row is not None
    assert (row.stored, row.waiting) == (1, 1)
    again = memory.commit(CommitRequest(messages=[*first, *call], session_id="s1"))
    assert again.usage is not None
    assert again.usage["messages_new"] == 2
    assert set(tree(memory)) == set(after)
    assert any("tools/" in uri for uri in again.changed_uris)


def test_a_conversation_that_went_on_is_not_torn_apart(memory: Runebook) -> None:
    first = said(memory, "One thing.")
    later = said(memory, "Another thing entirely.")
    refused = memory.run(UNDO, UndoRequest(first.commit_id))
    assert refused.status is Status.REJECTED
    assert later.commit_id in str(refused.results[0].reason)


def test_last_is_the_newest_commit_of_the_same_author(memory: Runebook) -> None:
    with authored("alice's client"):
        mine = note(memory, "mine", "Mine.")
    with authored("another client"):
        theirs = note(memory, "theirs", "Theirs.")
    undone = memory.run(UNDO, UndoRequest("last", author="alice's client"))
    assert history_of(memory).commit(undone.commit_id).undoes == mine.commit_id
    assert history_of(memory).commit("last").commit_id == theirs.commit_id
    with pytest.raises(NotFound):
        memory.run(UNDO, UndoRequest("last", author="nobody"))


def test_another_users_commit_is_as_absent_as_none(memory: Runebook) -> None:
    receipt = note(memory, "secret", "Mine alone.")
    other = memory.view("bob", "bob")
    with pytest.raises(NotFound) as foreign:
        other.run(UNDO, UndoRequest(receipt.commit_id))
    with pytest.raises(NotFound) as absent:
        other.run(UNDO, UndoRequest(receipt.commit_id[:-1] + ("0" if receipt.commit_id[-1] != "0" else "1")))
    assert foreign.value.message[:24] == absent.value.message[:24]
    assert history_of(other).commits() == []


def test_of_a_commit_that_touches_two_users_each_takes_back_only_the_own_part(memory: Runebook) -> None:
    uris = [MemoryUri.parse(f"viking://user/{user}/memories/notes/by-hand.md") for user in ("default", "bob")]
    memory.store.commit(
        lambda _snapshot: ChangeSet(tuple(FileChange(uri, None, f"{uri.parts[1]}\n") for uri in uris)), kind="external"
    )
    commit = history_of(memory).commit("last")
    assert [str(step.uri) for step in commit.files] == [f"{NOTES}/by-hand.md"]
    memory.run(UNDO, UndoRequest(commit.commit_id))
    bob = memory.view("bob", "bob")
    assert bob.read(ReadRequest("viking://user/bob/memories/notes/by-hand.md")).content == "bob\n"
    assert history_of(bob).commit(commit.commit_id).undone_by is None
    his = bob.run(UNDO, UndoRequest(commit.commit_id))
    assert his.status is Status.COMMITTED
    assert history_of(bob).commit(commit.commit_id).undone_by == his.commit_id


def test_undo_of_another_users_part_is_named_nowhere_and_holds_nothing_back(memory: Runebook) -> None:
    uris = [MemoryUri.parse(f"viking://user/{user}/memories/notes/by-hand.md") for user in ("default", "bob")]
    shared = memory.store.commit(
        lambda _snapshot: ChangeSet(tuple(FileChange(uri, None, f"{uri.parts[1]}\n") for uri in uris)), kind="external"
    ).commit_id
    bob = memory.view("bob", "bob")
    mine = memory.run(UNDO, UndoRequest(shared)).commit_id
    his = bob.run(UNDO, UndoRequest(shared)).commit_id
    with pytest.raises(InvalidInput, match=f"already undone by {mine}"):
        memory.run(UNDO, UndoRequest(shared))
    bob.run(UNDO, UndoRequest(his))
    assert history_of(memory).commit(shared).undone_by == mine
    assert history_of(bob).commit(shared).undone_by is None
    for view, other in ((memory, his), (bob, mine)):
        assert other not in view.read(ReadRequest("viking://history")).content


def test_words_that_a_model_wrote_on_a_page_go_back_too_and_later_memories_stay_on_it(memory: Runebook) -> None:
    first = note(memory, "a", "Alpha.")
    written = {"overview_operations": [{"directory_uri": NOTES, "overview": "All about 甲."}]}
    receipt = memory.commit(CommitRequest(operations=written))
    assert "甲" in memory.read(ReadRequest(f"{NOTES}/.overview.md")).content
    note(memory, "b", "Beta.")
    memory.run(UNDO, UndoRequest(receipt.commit_id))
    memory.run(UNDO, UndoRequest(first.commit_id))
    page = memory.read(ReadRequest(f"{NOTES}/.overview.md")).content
    assert "甲" not in page
    assert "b.md" in page
    assert "notes/" in memory.read(ReadRequest("viking://user/default/memories/.overview.md")).content


WORDS = st.sampled_from(["一行。\n", "Second line.\n", "第三行\n", "four\n", "五\n"])
BODIES = st.lists(WORDS, min_size=1, max_size=5).map("".join)
NAMES = st.sampled_from(["猫", "dog"])
STEPS = st.one_of(
    st.tuples(st.just("write"), NAMES, BODIES),
    st.tuples(st.just("delete"), NAMES, st.just("")),
    st.tuples(st.just("say"), NAMES, BODIES),
    st.tuples(st.just("undo"), st.integers(0, 5).map(str), st.just("")),
)


@settings(max_examples=12, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=8))
def test_whatever_was_done_undoing_the_undo_is_as_if_nothing_had_been(steps: list[tuple[str, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder, open_memory(words_only(Path(folder))) as memory:
        for kind, name, body in steps:
            _step(memory, kind, name, body)
        queue = memory.store.ledger.extractions
        log = log_of("s")
        for commit in history_of(memory).commits(limit=20):
            before, row = tree(memory), queue.get(log)
            try:
                undone = memory.run(UNDO, UndoRequest(commit.commit_id))
            except InvalidInput:
                continue
            if not undone.commit_id:
                assert tree(memory) == before
                continue
            memory.run(UNDO, UndoRequest(undone.commit_id))
            assert tree(memory) == before
            now = queue.get(log)
            assert (now and (now.stored, now.extracted)) == (row and (row.stored, row.extracted))


def _step(memory: Runebook, kind: str, name: str, body: str) -> None:
    if kind == "write":
        note(memory, name, body)
    elif kind == "say":
        said(memory, f"{name}: {body}", session_id="s")
    elif kind == "delete":
        memory.commit(CommitRequest(operations={"delete_operations": [{"uri": f"{NOTES}/{name}.md"}]}))
    else:
        commits = history_of(memory).commits(limit=20)
        if commits:
            with contextlib.suppress(InvalidInput):
                memory.run(UNDO, UndoRequest(commits[int(name) % len(commits)].commit_id))


_UNDO = """
from memory_core.features.undo import UNDO, UndoRequest
memory.run(UNDO, UndoRequest(given[0]))
print("acknowledged", flush=True)
"""


@pytest.mark.parametrize("stop_at", ["planned", "acknowledged", "file", "renamed", "synced", "never"])
def test_an_undo_killed_at_any_step_leaves_all_of_it_or_nothing(tmp_path: Path, stop_at: str) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        old = tree(memory)
        note(memory, "first", "Stays.")
        before = tree(memory)
        notes = [{"memory_type": "notes", "fields": {"title": title, "content": title}} for title in ("甲", "b", "c")]
        writes = {"write_operations": [{"memory_data": data} for data in notes]}
        commit = memory.commit(CommitRequest(operations=writes)).commit_id
        after = tree(memory)
    assert old != before
    run = killed(tmp_path, stop_at, 1, _UNDO, commit, early=False)
    assert (run.returncode == -signal.SIGKILL) is (stop_at != "never"), run.stderr
    with open_memory(words_only(tmp_path)) as memory:
        found = tree(memory)
        assert found == (after if stop_at == "planned" else before)
        assert found == before or b"acknowledged" not in run.stdout
        assert (history_of(memory).commit(commit).undone_by is None) is (stop_at == "planned")


def test_a_memory_that_was_renamed_by_hand_is_not_said_to_be_gone_and_goes_back_step_by_step(memory: Runebook) -> None:
    receipt = note(memory, "猫", "猫喜欢鱼。The cat likes fish.")
    root = memory.config.root / "user" / "default" / "memories" / "notes"
    (root / "猫.md").rename(root / "喵.md")
    memory.store.adopt()
    refused = memory.run(UNDO, UndoRequest(receipt.commit_id))
    (result,) = refused.results
    assert (result.action, result.uri) == (Action.REJECTED, f"{NOTES}/猫.md")
    assert f"moved to {NOTES}/喵.md" in (result.reason or "")
    move = memory.store.ledger.history()[0]
    assert move.kind == "external"
    assert move.commit_id in (result.hint or "")
    memory.run(UNDO, UndoRequest(move.commit_id))
    assert memory.store.text(MemoryUri.parse(f"{NOTES}/猫.md")) is not None
    memory.run(UNDO, UndoRequest(receipt.commit_id))
    assert memory.find(FindRequest("猫喜欢鱼")).total == 0
    assert not [path for path in root.parent.rglob("*.md") if not path.name.startswith(".")]


def test_a_file_that_was_away_for_a_moment_is_still_the_one_that_it_was(memory: Runebook) -> None:
    note(memory, "Tea", "The swordfish drinks green tea.")
    edit = replaced(memory, "notes", "Drinks green tea.", title="Tea")
    path = memory.config.root / "user/default/memories/notes/Tea.md"
    text = path.read_text(encoding="utf-8")
    for away in (True, False):
        path.unlink() if away else path.write_text(text, encoding="utf-8")
        memory.store.adopt()
    assert memory.run(UNDO, UndoRequest(edit.commit_id, dry_run=True)).results[0].action is Action.UPDATED
    memory.run(ARCHIVE, ArchiveRequest([f"{NOTES}/Tea.md"]))
    memory.run(PURGE, PurgeRequest("viking://archive/user/default/memories/notes/Tea.md"))
    rows = memory.store.ledger.database.connection().execute("SELECT * FROM changes").fetchall()
    assert "swordfish" not in str(rows)


@pytest.mark.parametrize("how", ["deleted by hand", "forgotten"])
def test_the_undo_of_a_move_brings_nothing_back_that_was_removed_since(memory: Runebook, how: str) -> None:
    tea = note(memory, "Tea", "Green.").results[0].uri
    away = f"viking://archive/{tea.removeprefix('viking://')}"
    archived = memory.run(ARCHIVE, ArchiveRequest([tea]))
    if how == "forgotten":
        memory.run(FORGET, ForgetRequest(uris=[away], confirm=1))
    else:
        memory.store.files.path_for(MemoryUri.parse(away)).unlink()
        memory.store.adopt()
    refused = memory.run(UNDO, UndoRequest(archived.commit_id))
    assert results(refused)[tea] is Action.REJECTED
    assert "was removed" in str([result.reason for result in refused.results if result.uri == tea])
    assert memory.store.text(MemoryUri.parse(tea)) is None


def test_a_memory_stays_in_the_archive_where_another_took_its_place_meanwhile(memory: Runebook) -> None:
    tea = note(memory, "Tea", "Green.").results[0].uri
    archived = memory.run(ARCHIVE, ArchiveRequest([tea]))
    note(memory, "Tea", "Black.")
    refused = memory.run(UNDO, UndoRequest(archived.commit_id))
    assert set(results(refused).values()) == {Action.REJECTED}
    assert {uri: "Green." in text for uri, text in tree(memory).items() if text} == {
        tea: False,
        f"viking://archive/{tea.removeprefix('viking://')}": True,
    }


def test_taking_back_many_moves_is_work_for_each_and_not_for_each_pair(tmp_path: Path) -> None:
    def work(files: int) -> int:
        with open_memory(words_only(tmp_path / str(files))) as memory:
            data = [{"memory_type": "notes", "fields": {"title": f"n{n}", "content": f"{n}"}} for n in range(files)]
            memory.run(ARCHIVE, ArchiveRequest(written(memory, *data)))
            return bytecodes(undo, lambda: memory.run(UNDO, UndoRequest("last", dry_run=True)))

    assert is_linear(work, 15)


def test_where_files_went_that_moved_since_is_asked_once(memory: Runebook) -> None:
    data = [{"memory_type": "notes", "fields": {"title": f"n{n}", "content": f"{n}"}} for n in range(9)]
    uris = written(memory, *data)
    created = memory.store.ledger.history()[0].commit_id
    memory.run(ARCHIVE, ArchiveRequest(uris))
    memory.run(UNDO, UndoRequest("last"))
    memory.run(ARCHIVE, ArchiveRequest(uris[:6]))
    asked: list[str] = []
    connection = memory.store.ledger._database.connection()
    connection.set_trace_callback(asked.append)
    receipt = memory.run(UNDO, UndoRequest(created))
    connection.set_trace_callback(None)
    reasons = [result.reason or "" for result in receipt.results]
    places = [uri.replace("viking://", "viking://archive/") for uri in uris[:6]]
    assert all(f"moved to {place}" in reason for place, reason in zip(places, reasons[:6], strict=True))
    assert not any(reasons[6:])
    assert sum("moved_from IS NOT NULL" in each for each in asked) == 2  # it is planned before others wait, too
