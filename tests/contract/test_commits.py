"""A commit: there once, with its exact text and its history, whichever server made it."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from memory_core.core.errors import InvalidInput, NotFound, TooLarge
from memory_core.core.memory.requests import CommitRequest, FindRequest, ListRequest, ReadRequest, TreeRequest
from memory_core.core.memory.results import Action, ChangeSet, Status, text_sha256
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.local import Plan, Store
from memory_core.features.history import HISTORY, HistoryRequest, history_of
from memory_core.features.purge import PURGE, PurgeRequest
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.features.upkeep.archive import ARCHIVE, RESTORE, ArchiveRequest
from memory_core.runebook import Runebook
from tests.contract.conftest import Place
from tests.stores import body, note, only, replaced
from tests.waiting import at_once

NOTES = "viking://user/default/memories/notes"
AWAY = "viking://archive/user/default/memories/notes/vault.md"
WRITERS, NOTES_EACH = 4, 12


def test_a_memory_is_read_listed_and_found_by_another_server_as_it_was_committed(place: Place) -> None:
    one, other = place.open(), place.open()
    said = 'The 灯塔 keeper feeds seven gulls.\n\n- "quotes", 100 % and a \\backslash\n- ?1 :name $1 {x}'
    receipt = note(one, "gulls", said)
    assert only(receipt).action is Action.CREATED
    assert body(other, f"{NOTES}/gulls.md").rstrip("\n") == said
    assert other.read(ReadRequest(f"{NOTES}/gulls.md")) == one.read(ReadRequest(f"{NOTES}/gulls.md"))
    (hit,) = other.find(FindRequest("who feeds the gulls?")).memories
    assert hit.uri == f"{NOTES}/gulls.md"
    (entry,) = other.ls(ListRequest(NOTES)).entries
    assert entry.name == "gulls.md"
    assert str(entry.abstract).startswith("The 灯塔 keeper feeds seven gulls.")
    tree = [entry.uri for entry in other.tree(TreeRequest("viking://", level_limit=9)).entries]
    assert f"{NOTES}/" in tree
    assert f"{NOTES}/gulls.md" in tree


def test_a_repeated_request_is_answered_by_any_server_with_the_first_receipt(place: Place) -> None:
    one, other = place.open(), place.open()
    first = note(one, "tea", "Tea without sugar.", request_id="r-1")
    again = note(other, "tea", "Something else entirely.", request_id="r-1")
    assert (again.commit_id, again.results) == (first.commit_id, first.results)
    assert "repeated request_id" in again.notes
    assert body(one, f"{NOTES}/tea.md") == "Tea without sugar."
    bob = other.view("bob")
    assert note(bob, "tea", "Bob's tea.", request_id="r-1").commit_id != first.commit_id


def test_a_commit_on_a_text_that_moved_on_is_refused_and_nothing_is_stored(place: Place) -> None:
    one, other = place.open(), place.open()
    replaced(one, "preferences", "Green tea.", topic="tea")
    uri = "viking://user/default/memories/preferences/tea.md"
    seen = text_sha256(one.read(ReadRequest(uri)).content)
    replaced(other, "preferences", "Black tea.", topic="tea")
    before = other.read(ReadRequest(uri)).content
    edit = {"write_operations": [{"replace": True, "memory_data": {
        "memory_type": "preferences", "fields": {"topic": "tea", "content": "No tea."}}}]}  # fmt: skip
    refused = one.commit(CommitRequest(operations=edit, expected={uri: seen}))
    assert refused.status is Status.REJECTED
    assert refused.results[0].conflict
    assert one.read(ReadRequest(uri)).content == before


def test_writers_on_several_servers_lose_nothing_and_their_commits_are_numbered_in_order(place: Place) -> None:
    servers = [place.open() for _ in range(WRITERS)]

    def write(number: int) -> None:
        for turn in range(NOTES_EACH):
            name = f"{number}-{turn}"
            note(servers[number], name, f"Writer {number} wrote note {turn}.", request_id=name)
            replaced(servers[number], "facts", f"{number} was here at {turn}.", topic="shared")

    at_once(write, *range(WRITERS))
    reader = place.open()
    for number in range(WRITERS):
        for turn in range(NOTES_EACH):
            assert body(reader, f"{NOTES}/{number}-{turn}.md") == f"Writer {number} wrote note {turn}."
    commits = reader.store.ledger.history(limit=1_000)
    assert len(commits) == 2 * WRITERS * NOTES_EACH
    assert [commit.seq for commit in commits] == list(range(len(commits), 0, -1))
    last = reader.store.ledger.text_at(
        MemoryUri.parse("viking://user/default/memories/facts/shared.md"), commits[0].seq
    )
    assert reader.read(ReadRequest("viking://user/default/memories/facts/shared.md")).content == last
    assert reader.indexer.follow(None) is None
    assert reader.store.ledger.directories.count(MemoryUri.parse(NOTES)) == WRITERS * NOTES_EACH


_ANOTHER_PROCESS = """
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from memory_core.core.config import Config, EmbeddingConfig, StoreConfig
from memory_core.core.memory.requests import CommitRequest
from memory_core.runebook import open_memory
home, url = sys.argv[1:]
config = Config(home=Path(home), store=StoreConfig(url=url), embedding=EmbeddingConfig(provider="none"))
with open_memory(config) as memory:
    memory.commit(CommitRequest("The ferry leaves at seven.", memory_type="notes", fields={"title": "ferry"}))
"""


def test_what_another_process_committed_is_found_at_once(place: Place) -> None:
    memory = place.open()
    assert memory.find(FindRequest("when does the ferry leave?")).memories == ()
    subprocess.run(
        [sys.executable, "-c", _ANOTHER_PROCESS, str(place.home), place.url],
        check=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )
    assert [hit.uri for hit in memory.find(FindRequest("when does the ferry leave?")).memories] == [f"{NOTES}/ferry.md"]


def test_history_says_what_happened_and_undo_takes_it_back_on_any_server(place: Place) -> None:
    one, other = place.open(), place.open()
    note(one, "a", "Alpha is first.")
    replaced(one, "notes", "Alpha is second.", title="a")
    deleted = one.commit(CommitRequest(operations={"delete_operations": [{"uri": f"{NOTES}/a.md"}]}))
    assert one.find(FindRequest("alpha")).memories == ()
    newest = next(iter(other.run(HISTORY, HistoryRequest(f"{NOTES}/a.md"))))
    assert newest.commit_id == deleted.commit_id
    undone = other.run(UNDO, UndoRequest(deleted.commit_id))
    assert undone.status is Status.COMMITTED
    assert body(one, f"{NOTES}/a.md") == "Alpha is second."
    assert [hit.uri for hit in one.find(FindRequest("alpha")).memories] == [f"{NOTES}/a.md"]
    with pytest.raises(InvalidInput, match="already undone"):
        one.run(UNDO, UndoRequest(deleted.commit_id))
    assert (
        "Alpha is first." in other.read(ReadRequest(f"viking://history/{NOTES.removeprefix('viking://')}/a.md")).content
    )


def test_what_was_purged_is_in_no_text_no_history_and_no_index(place: Place) -> None:
    one, other = place.open(), place.open()
    note(one, "vault", "The swordfish opens the vault.")
    note(one, "tea", "Tea is kept.")
    assert other.find(FindRequest("swordfish")).memories
    receipt = one.run(PURGE, PurgeRequest(f"{NOTES}/vault.md"))
    assert receipt.status is Status.COMMITTED
    assert other.find(FindRequest("swordfish")).memories == ()
    assert [entry.name for entry in other.ls(ListRequest(NOTES)).entries] == ["tea.md"]
    rows = other.store.ledger.database.connection().execute("SELECT before, after FROM changes").fetchall()
    assert "Tea is kept." in str(rows)
    assert "swordfish" not in str(rows)
    documents = other.indexer.catalog.connection().execute("SELECT own FROM documents").fetchall()
    assert "swordfish" not in str(documents)


def test_a_commit_is_purged_and_the_rest_of_its_file_is_still_found(place: Place) -> None:
    one, other = place.open(), place.open()
    note(one, "list", "Milk is first.\n")
    bad = note(one, "list", "Milk is first.\nThe swordfish opens the vault.\n")
    one.run(PURGE, PurgeRequest(commit=bad.commit_id))
    assert body(one, f"{NOTES}/list.md") == "Milk is first.\n"
    assert [hit.uri for hit in other.find(FindRequest("milk")).memories] == [f"{NOTES}/list.md"]
    assert other.find(FindRequest("swordfish")).memories == ()
    for rows in ("before, after FROM changes", "own FROM documents", "text FROM passages"):
        database = one.store.ledger.database if "changes" in rows else one.indexer.catalog
        assert "swordfish" not in str(database.connection().execute(f"SELECT {rows}").fetchall())


def rows(memory: Runebook) -> str:
    return str(memory.store.ledger.database.connection().execute("SELECT * FROM changes").fetchall())


@pytest.mark.parametrize("back", [False, True])
def test_a_purge_erases_what_a_memory_was_before_it_was_moved(place: Place, back: bool) -> None:
    memory = place.open()
    note(memory, "vault", "The swordfish opens the vault.")
    replaced(memory, "notes", "Ask Carla about the vault.", title="vault")
    memory.run(ARCHIVE, ArchiveRequest([f"{NOTES}/vault.md"]))
    if back:
        memory.run(RESTORE, ArchiveRequest([AWAY]))
    memory.run(PURGE, PurgeRequest(f"{NOTES}/vault.md" if back else AWAY))
    for words in ("swordfish", "Carla", "vault"):
        assert words not in rows(memory)
    with pytest.raises(NotFound):
        memory.read(ReadRequest("viking://history/user/default/memories/notes/vault.md"))


def test_a_purge_leaves_another_memory_that_has_the_earlier_name_by_now(place: Place) -> None:
    memory = place.open()
    note(memory, "vault", "The swordfish opens the vault.")
    memory.run(ARCHIVE, ArchiveRequest([f"{NOTES}/vault.md"]))
    note(memory, "vault", "A vault is a kind of roof.")
    changed = replaced(memory, "notes", "A vault is a roof of stone.", title="vault")
    memory.run(PURGE, PurgeRequest(AWAY))
    assert "swordfish" not in rows(memory)
    assert body(memory, f"{NOTES}/vault.md") == "A vault is a roof of stone."
    past = memory.read(ReadRequest("viking://history/user/default/memories/notes/vault.md")).content
    assert "A vault is a kind of roof." in past
    memory.run(UNDO, UndoRequest(changed.commit_id))
    assert body(memory, f"{NOTES}/vault.md") == "A vault is a kind of roof."


def two_of_one_name(memory: Runebook) -> tuple[str, str]:
    """An archived memory with a past, and a deleted one; their names are free again. The undos of both."""
    note(memory, "vault", "A vault is a kind of roof.")
    replaced(memory, "notes", "A vault is a roof of stone.", title="vault")
    away = memory.run(ARCHIVE, ArchiveRequest([f"{NOTES}/vault.md"]))
    note(memory, "tea", "Bergamot and lemon.")
    gone = memory.commit(CommitRequest(operations={"delete_operations": [{"uri": f"{NOTES}/tea.md"}]}))
    return away.commit_id, gone.commit_id


def expect_both(memory: Runebook, away: str, gone: str) -> None:
    """That what had the names first is whole."""
    assert [version.diff.step.withheld for version in history_of(memory).versions(AWAY)] == [None] * 3
    assert memory.run(UNDO, UndoRequest(gone)).status is Status.COMMITTED
    assert body(memory, f"{NOTES}/tea.md") == "Bergamot and lemon."
    assert memory.run(UNDO, UndoRequest(away)).status is Status.COMMITTED
    assert body(memory, f"{NOTES}/vault.md") == "A vault is a roof of stone."


def test_a_purge_leaves_the_past_of_others_that_had_the_name_before(place: Place) -> None:
    memory = place.open()
    undos = two_of_one_name(memory)
    for title in ("vault", "tea"):
        note(memory, title, f"The swordfish opens the {title}.")
    archived = memory.run(ARCHIVE, ArchiveRequest([f"{NOTES}/vault.md", f"{NOTES}/tea.md"])).results
    for result in archived:
        memory.run(PURGE, PurgeRequest(str(result.note).removeprefix("now ")))
    assert "swordfish" not in rows(memory)
    expect_both(memory, *undos)


def test_a_purge_of_a_commit_leaves_the_past_of_others_that_had_the_name_before(place: Place) -> None:
    memory = place.open()
    undos = two_of_one_name(memory)
    for title in ("vault", "tea"):
        brought = note(memory, title, f"The swordfish opens the {title}.")
        memory.run(PURGE, PurgeRequest(commit=brought.commit_id))
    assert "swordfish" not in rows(memory)
    expect_both(memory, *undos)


def test_a_purge_by_an_earlier_name_leaves_who_has_moved_on(place: Place) -> None:
    memory = place.open()
    away, gone = two_of_one_name(memory)
    note(memory, "vault", "The swordfish opens the vault.")
    memory.run(PURGE, PurgeRequest(f"{NOTES}/vault.md"))
    assert "swordfish" not in rows(memory)
    expect_both(memory, away, gone)


def test_the_undo_of_an_edit_does_not_change_another_that_has_the_name_by_now(place: Place) -> None:
    memory = place.open()
    note(memory, "vault", "A vault is a kind of roof.")
    tags = {"uri": f"{NOTES}/vault.md", "tags": ["stone"]}
    edit = memory.commit(CommitRequest(operations={"edit_operations": [tags]}))
    memory.run(ARCHIVE, ArchiveRequest([f"{NOTES}/vault.md"]))
    note(memory, "vault", "Another vault.")
    memory.commit(CommitRequest(operations={"edit_operations": [tags]}))
    deleted_and_back(memory, f"{NOTES}/vault.md")
    refused = memory.run(UNDO, UndoRequest(edit.commit_id))
    assert "another file has its name" in str(refused.results[0].reason)
    assert "stone" in memory.read(ReadRequest(f"{NOTES}/vault.md")).content


def deleted_and_back(memory: Runebook, uri: str) -> None:
    gone = memory.commit(CommitRequest(operations={"delete_operations": [{"uri": uri}]}))
    assert memory.run(UNDO, UndoRequest(gone.commit_id)).status is Status.COMMITTED


def test_a_memory_that_was_deleted_and_brought_back_is_purged_with_what_it_was_before(place: Place) -> None:
    memory = place.open()
    note(memory, "vault", "The swordfish opens the vault.")
    replaced(memory, "notes", "The vault is old.", title="vault")
    deleted_and_back(memory, f"{NOTES}/vault.md")
    memory.run(ARCHIVE, ArchiveRequest([f"{NOTES}/vault.md"]))
    memory.run(PURGE, PurgeRequest(AWAY))
    assert "swordfish" not in rows(memory)


def test_a_commit_is_purged_also_where_its_file_was_deleted_and_brought_back(place: Place) -> None:
    memory = place.open()
    note(memory, "vault", "The vault is old.")
    told = replaced(memory, "notes", "The vault is old. The swordfish opens it.", title="vault")
    deleted_and_back(memory, f"{NOTES}/vault.md")
    memory.run(PURGE, PurgeRequest(commit=told.commit_id))
    assert "swordfish" not in rows(memory)
    assert body(memory, f"{NOTES}/vault.md") == "The vault is old."


def test_a_purge_of_a_commit_that_was_undone_leaves_what_came_later(place: Place) -> None:
    memory = place.open()
    note(memory, "vault", "The vault is old.")
    told = replaced(memory, "notes", "The vault is old. The swordfish opens it.", title="vault")
    memory.run(UNDO, UndoRequest(told.commit_id))
    memory.run(ARCHIVE, ArchiveRequest([f"{NOTES}/vault.md"]))
    memory.run(RESTORE, ArchiveRequest([AWAY]))
    replaced(memory, "notes", "The vault is very old.", title="vault")
    last = replaced(memory, "notes", "The vault is older than that.", title="vault")
    memory.run(PURGE, PurgeRequest(commit=told.commit_id))
    assert "swordfish" not in rows(memory)
    memory.run(UNDO, UndoRequest(last.commit_id))
    assert body(memory, f"{NOTES}/vault.md") == "The vault is very old."


def test_a_purge_of_a_directory_leaves_the_past_of_what_moved_out_of_it(place: Place) -> None:
    memory = place.open()
    note(memory, "vault", "A vault is a kind of roof.")
    edited = replaced(memory, "notes", "A vault is a roof of stone.", title="vault")
    note(memory, "tea", "The swordfish drinks tea.")
    memory.run(ARCHIVE, ArchiveRequest([f"{NOTES}/vault.md", f"{NOTES}/tea.md"]))
    memory.run(RESTORE, ArchiveRequest([AWAY]))
    memory.run(PURGE, PurgeRequest(AWAY.rpartition("/")[0]))
    assert "swordfish" not in rows(memory)
    versions = history_of(memory).versions(f"{NOTES}/vault.md")
    assert [version.diff.step.withheld for version in versions] == [None] * 4
    memory.run(UNDO, UndoRequest(edited.commit_id))
    assert body(memory, f"{NOTES}/vault.md") == "A vault is a kind of roof."


def test_a_purge_of_what_a_conversation_brought_takes_its_segments_along(place: Place) -> None:
    memory = place.open()
    words = [f"My swordfish-vault code number {at // 10} is {4711 + at}, keep it safe." for at in range(80)]
    roles = itertools.cycle(("user", "assistant"))
    talk = [{"role": role, "content": word} for role, word in zip(roles, words, strict=False)]
    told = memory.commit(CommitRequest(messages=talk, session_id="s1"))
    memory.opened.background.finish()
    assert "/segments/" in rows(memory)
    memory.run(PURGE, PurgeRequest(commit=told.commit_id))
    memory.opened.background.finish()
    assert "swordfish" not in rows(memory)


def test_a_purge_says_which_history_holds_the_words_too(place: Place) -> None:
    memory = place.open()
    note(memory, "vault", "The swordfish opens the vault.")
    copied = note(memory, "copy", "The swordfish opens the vault.")
    memory.commit(CommitRequest(operations={"delete_operations": [{"uri": only(copied).uri}]}))
    receipt = memory.run(PURGE, PurgeRequest(f"{NOTES}/vault.md"))
    assert any(note.endswith(f"can be purged, too: {NOTES}/copy.md") for note in receipt.notes)


def test_a_commit_is_purged_also_where_its_file_was_moved_since(place: Place) -> None:
    memory = place.open()
    note(memory, "vault", "The vault is old.")
    told = replaced(memory, "notes", "The vault is old. The swordfish opens it.", title="vault")
    memory.run(ARCHIVE, ArchiveRequest([f"{NOTES}/vault.md"]))
    memory.run(RESTORE, ArchiveRequest([AWAY]))
    memory.run(PURGE, PurgeRequest(commit=told.commit_id))
    assert "swordfish" not in rows(memory)
    assert body(memory, f"{NOTES}/vault.md") == "The vault is old."


@pytest.mark.parametrize("page", [".overview.md", ".abstract.md"])
def test_pages_of_directories_list_what_is_there_and_keep_what_was_written_on_them(place: Place, page: str) -> None:
    one, other = place.open(), place.open()
    note(one, "gulls", "Seven gulls.")
    one.commit(
        CommitRequest(operations={"overview_operations": [{"directory_uri": NOTES, "overview": "All on birds."}]})
    )
    note(other, "terns", "Two terns.")
    assert other.read(ReadRequest(f"{NOTES}/{page}")).content == one.read(ReadRequest(f"{NOTES}/{page}")).content
    overview = other.read(ReadRequest(f"{NOTES}/.overview.md")).content
    assert overview.startswith("All on birds.")
    assert "gulls" in overview
    assert "terns" in overview


def test_any_chain_of_commits_that_take_each_other_back_can_be_read(place: Place) -> None:
    memory = place.open()
    made = note(memory, "tea", "Tea without sugar.").commit_id
    chain = [made, *(f"20200101T000000-{number:08x}" for number in range(1_500))]
    rows = [
        (commit_id, "2020-01-01T00:00:00.000+00:00", "undo", "{}", taken_back)
        for taken_back, commit_id in itertools.pairwise(chain)
    ]
    rows += [("loop-a", "", "undo", "{}", "loop-b"), ("loop-b", "", "undo", "{}", "loop-a")]
    with memory.store.ledger.database.writing() as connection:
        connection.executemany(
            "INSERT INTO commits (commit_id, at, kind, receipt, undoes, settled) VALUES (?, ?, ?, ?, ?, 1)", rows
        )
    history = history_of(memory)
    assert history.commit(made).undone_by is None  # the last one undid the undo
    assert [commit.commit_id for commit in history.commits()] == [made]
    undone = memory.store.ledger.past.undone([made, "loop-a", "loop-b"])
    assert undone[chain[1]] == [chain[2]]
    assert made not in undone
    assert undone["loop-a"] == ["loop-b"]


LONG = f"{NOTES}/long.md"
_ADDED = {"memory_type": "notes", "fields": {"title": "long", "content": "It closes at nine."}}
_PATCH = {"content": [{"search": " opens", "replace": " opens late"}]}


@pytest.mark.parametrize(
    "request_of",
    [
        lambda: CommitRequest("It closes at nine.", memory_type="notes", fields={"title": "long"}),
        lambda: CommitRequest(operations={"write_operations": [{"memory_data": _ADDED}]}),
        lambda: CommitRequest(operations={"write_operations": [{"memory_data": _ADDED, "uri": LONG}]}),
        lambda: CommitRequest(operations={"write_operations": [{"memory_data": _ADDED, "replace": True}]}),
        lambda: CommitRequest(
            operations={
                "edit_operations": [{"uri": "viking://no such", "patches": _PATCH}, {"uri": LONG, "patches": _PATCH}]
            }
        ),
        lambda: CommitRequest(operations={"edit_operations": [{"uri": LONG, "salience": 1.0}]}),
    ],
    ids=["explicit", "by key", "by uri", "replaced", "edit", "edit of metadata"],
)
@pytest.mark.parametrize("dry_run", [False, True], ids=["", "dry run"])
def test_what_changes_a_long_memory_waits_for_its_users_turn_however_little_is_sent(
    place: Place, monkeypatch: pytest.MonkeyPatch, request_of: Callable[[], CommitRequest], dry_run: bool
) -> None:
    memory = place.open()
    request = replace(request_of(), dry_run=dry_run)
    turns: list[Store] = []
    rehearse = Store._rehearse

    def noted(store: Store, plan: Plan) -> ChangeSet:
        turns.append(store)
        return rehearse(store, plan)

    monkeypatch.setattr(Store, "_rehearse", noted)
    note(memory, "long", "The gate opens.")
    memory.commit(request)
    assert turns == []
    replaced(memory, "notes", f"{'x' * 140_000} opens.", title="long")
    before = body(memory, LONG)
    with monkeypatch.context() as patch:
        patch.setattr("memory_core.core.store.local._PLAN_SECONDS", 0.0)
        with pytest.raises(TooLarge, match="others would wait"):
            memory.commit(request)
    assert body(memory, LONG) == before
    turns.clear()
    receipt = memory.commit(request)
    assert turns == [memory.store]
    assert (receipt.status is Status.DRY_RUN) is dry_run
    assert not dry_run or body(memory, LONG) == before


def test_what_removes_long_memories_waits_for_its_users_turn(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = place.open()
    for title in ("one", "two", "three"):
        note(memory, title, f"{title} {'x' * 200_000}")
    monkeypatch.setattr("memory_core.core.store.local._PLAN_SECONDS", 0.0)
    deleted = [{"uri": f"{NOTES}/{title}.md"} for title in ("one", "two", "three")]
    with pytest.raises(TooLarge, match="others would wait"):
        memory.commit(CommitRequest(operations={"delete_operations": deleted}))
    assert memory.commit(CommitRequest(operations={"delete_operations": deleted[:1]})).status is Status.COMMITTED
