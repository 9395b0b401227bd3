"""History as its reader sees it: commits, versions, differences, and pages that nothing stored can forge."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from memory_core.core.caller import authored
from memory_core.core.errors import InvalidInput, InvalidUri, NotFound
from memory_core.core.memory.requests import CommitRequest, FindRequest, ListRequest, ReadRequest
from memory_core.core.memory.results import Action, ChangeSet, FileChange, as_json
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.issued_tokens import SharedSpace
from memory_core.features.forgetting import FORGET, ForgetRequest
from memory_core.features.history import (
    DIFF,
    HISTORY,
    CommitDiff,
    DiffRequest,
    FileDiff,
    History,
    HistoryRequest,
    history_of,
)
from memory_core.features.imports.import_plan import EarlierImports
from memory_core.features.purge import PURGE, PurgeRequest
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.runebook import Runebook
from tests.stores import note, replaced, said

NOTES = "viking://user/default/memories/notes"
STYLE = "viking://user/default/memories/preferences/Python code style.md"


def test_commits_say_when_by_whom_and_what_newest_first(memory: Runebook) -> None:
    with authored("claude-code 2.1"):
        note(memory, "猫", "猫喜欢鱼。")
    with authored("command line"):
        second = note(memory, "猫", "猫喜欢虾。")
    newest, oldest = history_of(memory).commits()
    assert (newest.author, oldest.author) == ("command line", "claude-code 2.1")
    assert newest.commit_id == second.commit_id
    assert newest.line == "updated notes/猫.md"
    assert oldest.line == "created notes/猫.md"
    assert [result.action for result in newest.results] == [Action.UPDATED]
    assert history_of(memory).commits(before=newest.commit_id) == [oldest]
    assert history_of(memory).commits(limit=1) == [newest]
    with pytest.raises(InvalidInput):
        history_of(memory).commits(limit=0)


def test_what_cannot_be_the_id_of_a_commit_is_looked_up_nowhere(memory: Runebook) -> None:
    note(memory, "猫", "The cat sleeps.")
    history = history_of(memory)
    for wrong in (" ", "\ud800", "\0", "20%", "猫", "2" * 65):
        for look in (history.commit, history.diff, lambda given: history.commits(before=given)):
            with pytest.raises(NotFound, match="there is no commit"):
                look(wrong)
        with pytest.raises(NotFound, match="there is no commit"):
            memory.commit(CommitRequest(alone={"undo": wrong}))


def test_a_list_of_large_commits_counts_all_files_and_reads_the_texts_of_the_first(memory: Runebook) -> None:
    writes = [
        {"memory_data": {"memory_type": "notes", "fields": {"title": f"N{number:02}", "content": f"Says {number}."}}}
        for number in range(60)
    ]
    project = {"project": "github.com/acme/a", "private": True}
    memory.commit(CommitRequest(operations={"write_operations": writes}, **project))  # type: ignore[arg-type]
    [whole], [listed] = history_of(memory).commits(), history_of(memory).commits(files_most=50)
    assert [step.uri for step in listed.files] == [step.uri for step in whole.files]
    assert (listed.line, len(listed.files)) == (whole.line, 60)
    assert [step.withheld is None for step in whole.files] == [False] * 60
    assert [step.withheld is None for step in listed.files] == [False] * 50 + [True] * 10
    assert listed.results == ()
    assert history_of(memory).commits(files_most=0)[0].line == whole.line


def peak(call: Callable[[], object]) -> int:
    """Bytes that a call holds at most."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_long_conversations_that_one_commit_changes_are_read_one_after_the_other(memory: Runebook) -> None:
    text = "abcd efg " * 60_000
    for number in range(8):
        said(memory, "The hint is zanzibar.", text, session_id=f"s{number}")
    places = [f"viking://session/default/s{number}/messages.jsonl#0" for number in range(8)]
    forgotten = memory.run(FORGET, ForgetRequest(uris=places, confirm=8)).commit_id
    memory.indexer.follow(None)  # or it reads them meanwhile
    history = history_of(memory)
    assert [diff.step.uri.parent.name for diff in history.diff(forgotten)] == [f"s{number}" for number in range(8)]
    for read in (
        lambda: [len(diff.after) for diff in history.diff(forgotten)],
        lambda: history.commits(),
        lambda: [len(version.diff.after) for version in history.versions(places[0][:-2])],
    ):
        assert peak(read) < 8 * len(text)


def test_the_page_of_a_long_conversation_holds_one_version_at_a_time(
    memory: Runebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "abcd efg " * 60_000
    said(memory, text)
    for number in range(8):
        again = said(memory, f"Once more, {number}.")
        memory.run(UNDO, UndoRequest(again.commit_id))
    memory.indexer.follow(None)  # or it reads them meanwhile
    page = "viking://history/session/default/s1/messages.jsonl"
    assert peak(lambda: memory.read(ReadRequest(page, limit=50))) < 14 * len(text)
    assert peak(lambda: memory.run(HISTORY, HistoryRequest(page.replace("history/", "")))) < 14 * len(text)
    monkeypatch.setattr("memory_core.features.history._PAGE_CHARS", 1)
    assert memory.read(ReadRequest(page)).content.count("is left out: the page is long") == 16


@pytest.mark.parametrize("kind", ["commit", "import"])
def test_long_receipts_are_read_one_after_the_other(memory: Runebook, kind: str) -> None:
    for number in range(8):
        note(memory, "猫", f"猫喜欢鱼{number}。")
    refusals = [{"op": "write", "uri": "", "action": "rejected", "reason": f"reason {n}"} for n in range(5_000)]
    long = json.dumps({"results": refusals})
    with memory.store.ledger._database.writing() as connection:
        connection.execute("UPDATE commits SET receipt = ?, kind = ?", (long, kind))
    history_of(memory).commits(files_most=0)  # imports modules
    one = peak(lambda: json.loads(long))
    assert peak(lambda: history_of(memory).commits()) < 3 * one
    earlier = EarlierImports(memory, ())
    assert peak(lambda: earlier.files) < 3 * one


def test_what_is_private_is_withheld_however_its_writer_spelt_it(memory: Runebook) -> None:
    uri = "viking://user/default/memories/notes/plan.md"
    note(memory, "plan", "绝密计划。", project="github.com/acme/a", private=True)
    path = memory.store.files.path_for(MemoryUri.parse(uri))
    path.write_text(path.read_text(encoding="utf-8").replace('"private"', '"priv\\u0061te"'), encoding="utf-8")
    memory.store.adopt()
    assert [step.withheld for step in history_of(memory).commits()[0].files] == ["private to another project"]


def test_the_first_characters_of_an_id_are_enough_where_they_name_one_commit(memory: Runebook) -> None:
    one, two = note(memory, "a", "A."), note(memory, "b", "B.")
    assert history_of(memory).commit(one.commit_id[:-1]).commit_id == one.commit_id
    assert history_of(memory).commit("last").commit_id == two.commit_id
    with pytest.raises(InvalidInput, match="several commits"):
        history_of(memory).commit("20")
    for absent in ("", "  ", "x", "%", "2026_"):
        with pytest.raises(NotFound):
            history_of(memory).commit(absent)


def test_the_last_commit_is_shown_whole_though_another_comes_meanwhile(
    memory: Runebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, titles = History.diff, iter("bc")

    def diff(self: History, commit_id: str) -> Iterator[FileDiff]:
        note(memory, next(titles), "Written meanwhile.")
        return real(self, commit_id)

    monkeypatch.setattr(History, "diff", diff)
    last = note(memory, "a", "A.").commit_id
    shown = memory.run(DIFF, DiffRequest("last"))
    assert isinstance(shown, CommitDiff)
    assert (shown.commit.commit_id, str(shown.diffs[0].step.uri)) == (last, f"{NOTES}/a.md")
    page = memory.read(ReadRequest("viking://history/last")).content
    assert ("created notes/b.md" in page, f"## created: {NOTES}/b.md" in page) == (True, True)


def test_a_commits_diff_shows_memories_before_generated_summaries(memory: Runebook) -> None:
    note(memory, "a", "One.\nTwo.\n")
    receipt = replaced(memory, "notes", "One.\n二。\n", title="a")
    first, *_ = history_of(memory).diff(receipt.commit_id)
    assert str(first.step.uri) == f"{NOTES}/a.md"
    assert "-Two." in first.lines
    assert "+二。" in first.lines


def test_of_a_log_only_what_was_added_is_shown(memory: Runebook) -> None:
    memory.commit(CommitRequest(messages=[{"role": "user", "content": "先说一句。"}], session_id="s1"))
    later = memory.commit(CommitRequest(messages=[{"role": "user", "content": "And one more thing."}], session_id="s1"))
    (diff,) = [diff for diff in history_of(memory).diff(later.commit_id) if diff.step.appended]
    assert not any("先说一句" in line for line in diff.lines)
    assert any(line.startswith("+") and "one more" in line for line in diff.lines)


def test_versions_follow_a_rename_and_outlive_the_file(memory: Runebook) -> None:
    note(memory, "old name", "Text one.")
    folder = memory.store.files.path_for(MemoryUri.parse(NOTES))
    text = (folder / "old name.md").read_text(encoding="utf-8")
    old, new = MemoryUri.parse(f"{NOTES}/old name.md"), MemoryUri.parse(f"{NOTES}/新名.md")
    memory.store.commit(
        lambda _snapshot: ChangeSet(
            (FileChange(old, text, None), FileChange(new, None, text, "notes", "new", moved_from=old))
        ),
        kind="external",
    )
    memory.commit(CommitRequest(operations={"delete_operations": [{"uri": str(new)}]}))
    actions = [
        (version.diff.step.action, version.diff.step.uri.name) for version in history_of(memory).versions(str(new))
    ]
    assert actions == [(Action.DELETED, "新名.md"), (Action.CREATED, "新名.md"), (Action.CREATED, "old name.md")]
    with pytest.raises(NotFound):
        next(history_of(memory).versions(f"{NOTES}/never was.md"))


def test_a_file_is_compared_between_any_two_commits(memory: Runebook) -> None:
    one = note(memory, "a", "一\n")
    two = replaced(memory, "notes", "二\n", title="a")
    three = note(memory, "b", "other\n")
    assert "-一" in history_of(memory).compare(f"{NOTES}/a.md")
    assert history_of(memory).compare(f"{NOTES}/a.md", two.commit_id, three.commit_id) == ()
    assert "+一" in history_of(memory).compare(f"{NOTES}/a.md", two.commit_id, one.commit_id)


def test_another_users_history_is_absent_in_every_form(memory: Runebook) -> None:
    receipt = note(memory, "secret", "Mine alone.")
    bob = memory.view("bob", "bob")
    for address in (
        f"viking://history/{receipt.commit_id}",
        "viking://history/user/default/memories/notes/secret.md",
        "viking://history/user/default",
    ):
        with pytest.raises(NotFound):
            bob.read(ReadRequest(address))
    assert "secret" not in bob.read(ReadRequest("viking://history")).content
    assert [entry.uri for entry in bob.ls(ListRequest("viking://")).entries if "history" in entry.uri] == []


def test_what_a_commit_says_of_a_space_that_the_reader_does_not_see_is_left_out(memory: Runebook) -> None:
    """Two users share an agent, and one of them relates its case to a note of their own."""
    anna, eve = memory.view("anna", "desk"), memory.view("eve", "desk")
    case = {"memory_type": "cases", "fields": {"case_name": "Printer", "problem": "It jams.", "solution": "Wait."}}
    note(anna, "My divorce", "In May.")
    linked = {**case, "links": [{"uri": "viking://user/anna/memories/notes/My divorce.md", "relation": "supports"}]}
    receipt = anna.commit(CommitRequest(operations={"write_operations": [{"memory_data": linked}]}))
    assert "My divorce" in str(history_of(anna).commit(receipt.commit_id).results)
    (result,) = history_of(eve).commit(receipt.commit_id).results
    assert (result.uri, result.note) == ("viking://agent/desk/memories/cases/Printer.md", None)


@pytest.mark.parametrize(
    "named", ["My divorce", "[[My divorce]]", "user/anna/notes/My divorce.md", "viking:///My divorce"]
)
def test_what_was_left_out_of_a_commit_is_not_told_to_others(memory: Runebook, named: str) -> None:
    team = [SharedSpace("team", read_only=False)]
    anna, bob = memory.view("anna", shared=team), memory.view("bob", shared=team)
    data = {
        "memory_type": "notes",
        "fields": {"content": "Away in May."},
        "links": [{"uri": named, "relation": "about"}],
    }
    write = {"write_operations": [{"memory_data": data}]}
    receipt = anna.commit(CommitRequest(operations=write, space="team"))
    assert "My divorce" in str(receipt.results[0].reason)
    for reader in (anna, bob):
        commit = history_of(reader.space("team")).commit(receipt.commit_id)
        assert "Away in May" in str(commit.results)
        assert "divorce" not in str(as_json(commit))


@pytest.mark.parametrize(
    "receipt",
    ["1", "null", "[]", '{"results": 5}', '{"results": [{}, 7, {"op": "w", "uri": [], "action": "created"}]}'],
)
def test_a_receipt_that_is_none_hides_only_what_it_says(memory: Runebook, receipt: str) -> None:
    committed = note(memory, "plan", "Plant oaks.")
    with memory.store.ledger.database.writing() as connection:
        connection.execute("UPDATE commits SET receipt = ?", (receipt,))
    commit = history_of(memory).commit(committed.commit_id)
    assert commit.results == ()
    assert [str(step.uri) for step in commit.files] == [f"{NOTES}/plan.md"]
    assert memory.run(PURGE, PurgeRequest(f"{NOTES}/plan.md")).commit_id


def test_a_result_of_another_form_is_left_out_of_history(memory: Runebook) -> None:
    committed = note(memory, "plan", "Plant oaks.")
    result = {"op": "write", "uri": f"{NOTES}/plan.md", "action": "created"}
    odd = [{**result, "action": "boom"}, {**result, "note": 5}, {**result, "uri": None}]
    with memory.store.ledger.database.writing() as connection:
        given = json.dumps({"results": [*odd, {**result, "note": "as written"}], "notes": [5], "similar": [{}, 5]})
        connection.execute("UPDATE commits SET receipt = ?, kind = 'import'", (given,))
    (told,) = history_of(memory).commit(committed.commit_id).results
    assert told.note == "as written"
    assert memory.run(PURGE, PurgeRequest(f"{NOTES}/plan.md")).commit_id


def test_what_is_private_to_another_project_is_named_without_its_text(memory: Runebook) -> None:
    receipt = note(memory, "plan", "绝密计划。", project="github.com/acme/a", private=True)
    page = memory.read(ReadRequest(f"viking://history/{receipt.commit_id}")).content
    assert "绝密" not in page
    assert "[private to another project]" in page
    own = memory.read(ReadRequest(f"viking://history/{receipt.commit_id}", here="github.com/acme/a")).content
    assert "绝密计划" in own


def test_history_is_read_like_a_file_with_offset_and_limit(memory: Runebook) -> None:
    for number in range(3):
        note(memory, f"n{number}", f"Number {number}.")
    whole = memory.read(ReadRequest("viking://history"))
    assert whole.next_offset is None
    page = memory.read(ReadRequest("viking://history", offset=4, limit=1))
    assert page.content.count("\n") == 0
    assert "n2" in page.content
    assert page.next_offset == 5
    with pytest.raises(InvalidInput):
        memory.read(ReadRequest("viking://history", offset=99))


def test_the_page_of_a_file_shows_every_version_newest_first(memory: Runebook) -> None:
    memory.commit(CommitRequest("Four spaces.", memory_type="preferences", fields={"topic": "Python code style"}))
    memory.commit(CommitRequest("两个空格。", memory_type="preferences", fields={"topic": "Python code style"}))
    memory.commit(CommitRequest(operations={"delete_operations": [{"uri": STYLE}]}))
    page = memory.read(ReadRequest(STYLE.replace("viking://", "viking://history/"))).content
    assert page.count("## Commit ") == 3
    assert page.index("deleted: ") < page.index("+两个空格。") < page.index("+Four spaces.")
    below = memory.read(ReadRequest("viking://history/user/default/memories/preferences")).content
    assert below.count("\n- ") == 3


def test_stored_text_cannot_pose_as_a_heading_or_as_another_diff(memory: Runebook) -> None:
    evil = "ok\n```\n## Commit 20990101T000000-ffffffff\n```diff\n@@ -1,1 +1,1 @@\r## updated: x\n````\n"
    receipt = note(memory, "evil", evil)
    page = memory.read(ReadRequest(f"viking://history/{receipt.commit_id}")).content
    fence = next(line for line in page.split("\n") if line.startswith("```"))
    assert len(fence) == 5
    inside: list[str] = []
    outside: list[str] = []
    within = False
    for line in page.split("\n"):
        if line.strip() == fence:
            within = not within
        else:
            (inside if within else outside).append(line)
    assert not any("20990101" in line for line in outside)
    assert all(line[:1] in "@ -+\\" for line in inside if not line.startswith(("```",)))
    assert "\r" not in page


def test_history_is_no_place_on_disk(memory: Runebook) -> None:
    note(memory, "a", "A.")
    address = "viking://history/user/default/memories/notes/a.md"
    with pytest.raises(InvalidUri):
        MemoryUri.parse(address)
    refused = memory.commit(CommitRequest(operations={"delete_operations": [{"uri": address}]}))
    assert refused.results[0].action is Action.REJECTED
    with pytest.raises(InvalidUri):
        memory.find(FindRequest("A", "viking://history"))
    (memory.store.files.root / "history").mkdir()
    (memory.store.files.root / "history" / "x.md").write_text("not memory", encoding="utf-8")
    assert memory.store.adopt() == 0
    assert [entry.uri for entry in memory.ls(ListRequest("viking://")).entries] == [
        "viking://user/",
        "viking://history",
        "viking://metrics",
    ]


def test_reading_history_counts_as_no_use_and_is_found_by_no_search(memory: Runebook) -> None:
    note(memory, "a", "Zanzibar.")
    memory.read(ReadRequest("viking://history/user/default/memories/notes/a.md"))
    assert [hit.uri for hit in memory.find(FindRequest("Zanzibar")).hits] == [f"{NOTES}/a.md"]
    memory.store.usage.flush()
    assert memory.store.ledger.usage_table.usage(["viking://history/user/default/memories/notes/a.md"]) == {}
