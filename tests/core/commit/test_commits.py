"""Commits from outside: what is refused leaves every file as it was, what is acknowledged is told truthfully."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.commit import commits
from memory_core.core.commit.conflicts import ABSENT
from memory_core.core.config import LimitsConfig
from memory_core.core.errors import InvalidInput, TooLarge
from memory_core.core.memory.operations import MemoryOperations
from memory_core.core.memory.requests import CommitRequest, FindRequest, ReadRequest
from memory_core.core.memory.results import Action, CommitReceipt, OperationResult, Status, as_json
from memory_core.features.history import history_of
from memory_core.features.upkeep.archive import ARCHIVE, ArchiveRequest
from memory_core.runebook import Runebook, open_memory
from tests.kept import kept_files
from tests.stores import added, by_hand, edit, handed_in, only, trailer, words_only, write

USER = "viking://user/default/memories"

LOG = "viking://session/default/s1/messages.jsonl"
TALK = [
    {"role": "user", "content": "Caroline went to the support group.", "time": "2023-05-08T13:56:00+00:00"},
    {"role": "assistant", "content": "她去了互助小组。", "time": "2023-05-08T13:57:00+00:00"},
]


def refused(memory: Runebook, **arguments: Any) -> str:
    """Why nothing was stored, whether that came as an error or as a receipt."""
    try:
        receipt = memory.commit(CommitRequest(**arguments))
    except InvalidInput as error:
        return error.hint and error.message
    assert receipt.status is Status.REJECTED
    assert only(receipt).hint
    return only(receipt).reason or ""


NO_MEMORY: list[dict[str, Any]] = [
    {"memory_content": ""},
    {"memory_content": " \n\t　"},
    {"memory_content": "a\x00b"},
    {"memory_content": "half \ud800 pair"},
    {"memory_content": "x", "category": "\udfff"},
    {"memory_content": "x", "category": "a\x00"},
    {"memory_content": "x", "category": "标签" * 200},
    {"memory_content": "x", "metadata": {"tags": ["long" * 100]}},
    {"memory_content": "x", "metadata": {"tags": [f"tag {number}" for number in range(101)]}},
    {"memory_content": "x", "fields": {"\ud800": "y"}},
    {"memory_content": "字" * 90_000},
    {"memory_content": "x", "priority": "urgent"},
    {"memory_content": "x", "priority": 1.5},
    {"memory_content": "x", "priority": float("nan")},
    {"memory_content": "x", "memory_type": "tools"},
    {"memory_content": "x", "request_id": "\ud800"},
    {"memory_content": "x", "request_id": ""},
    {"memory_content": "x", "operations": {}},
    {"fields": {}},
    {"fields": {"title": ["a"], "content": "x"}},
    {"operations": {}},
    {"operations": {"write_operations": None}},
    {"operations": {"update_operations": [{}]}},
    {"operations": "write"},
    {"messages": []},
    {"messages": [*TALK, {"role": "user"}], "session_id": "s1"},
    {"messages": [{"role": "user", "content": "a\x00b"}]},
    {"messages": [{"role": "user", "content": "\ud83d"}]},
    {"messages": [{"role": "user", "content": "hi"}], "session_id": "../s1"},
    {"messages": [{"role": "user", "content": "hi"}], "session_id": "a/b"},
    {"messages": [{"role": "user", "content": "hi"}], "session_id": ".state"},
    {"messages": [{"role": "user", "content": "hi"}], "session_id": " "},
    {"messages": [{"role": "user", "content": "hi"}], "session_id": "\ud800"},
    {},
]


def test_what_cannot_be_a_memory_is_refused_and_no_file_changes(memory: Runebook, tmp_path: Path) -> None:
    memory.commit(CommitRequest("already here", request_id="first"))
    before = kept_files(tmp_path)
    for arguments in NO_MEMORY:
        assert refused(memory, **arguments), arguments
        assert kept_files(tmp_path) == before, arguments
    assert memory.commit(CommitRequest("still works")).status is Status.COMMITTED


def test_a_commit_over_the_limit_is_refused_whole(tmp_path: Path) -> None:
    limits = LimitsConfig(content_bytes=2_048, commit_bytes=8_192)
    with open_memory(words_only(tmp_path, limits=limits)) as memory:
        note = write("notes", content="字" * 500)
        with pytest.raises(TooLarge):
            handed_in(memory, write=[note] * 8)
        with pytest.raises(TooLarge):
            memory.commit(CommitRequest(messages=[{"role": "user", "content": "x" * 9_000}]))
        assert kept_files(tmp_path) == {}


def test_a_patch_that_would_outgrow_the_limit_leaves_the_memory_as_it_was(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path, limits=LimitsConfig(content_bytes=2_048))) as memory:
        uri = only(added(memory, "facts", "短", topic="T")).uri
        before = kept_files(tmp_path)
        too_long = {"edit_operations": [edit(uri, content="x" * 3_000)]}
        assert "bytes" in refused(memory, operations=too_long)
        assert kept_files(tmp_path) == before


@pytest.mark.parametrize(
    ("priority", "salience"), [(None, 0.5), ("low", 0.3), (" High ", 0.8), ("critical", 1.0), ("0.25", 0.25), (0, 0.0)]
)
def test_priority_becomes_salience(memory: Runebook, priority: str | float | None, salience: float) -> None:
    assert trailer(memory, only(memory.commit(CommitRequest("x", priority=priority))).uri)["salience"] == salience


@pytest.mark.parametrize(
    ("category", "memory_type"),
    [("preference", "preferences"), ("fact", "facts"), ("procedural", "patterns"), ("偏好", "preferences")],
)
def test_a_category_of_another_vocabulary_chooses_the_type_and_is_kept(
    memory: Runebook, category: str, memory_type: str
) -> None:
    uri = only(memory.commit(CommitRequest("likes tea", category=category))).uri
    assert (trailer(memory, uri)["memory_type"], trailer(memory, uri)["category"]) == (memory_type, category)


def test_content_alone_is_a_note_that_says_who_gave_it_and_when(memory: Runebook) -> None:
    now = datetime(2026, 3, 17, 8, 30, tzinfo=UTC)
    uri = only(memory.commit(CommitRequest("会议改到周五。The meeting moved.", now=now))).uri
    assert uri == f"{USER}/notes/会议改到周五.md"
    stored = trailer(memory, uri)
    assert (stored["memory_type"], stored["source"]) == ("notes", {"kind": "user_explicit"})
    assert stored["created_at"] == stored["updated_at"] == "2026-03-17T08:30:00+00:00"
    assert (stored["version"], stored["confidence"]) == (1, 1.0)


def test_a_dry_run_plans_and_stores_nothing(memory: Runebook, tmp_path: Path) -> None:
    receipt = memory.commit(CommitRequest("x", dry_run=True))
    assert (receipt.status, only(receipt).action) == (Status.DRY_RUN, Action.CREATED)
    talk = memory.commit(CommitRequest(messages=TALK, session_id="s1", dry_run=True))
    assert (talk.status, talk.usage) == (Status.DRY_RUN, {"messages": 2, "messages_new": 2})
    assert kept_files(tmp_path) == {}
    assert memory.extractor.waiting() == []
    assert memory.find(FindRequest("Caroline")).total == 0


def test_a_retried_request_adds_its_sums_once(memory: Runebook) -> None:
    fields: dict[str, Any] = {"tool_name": "web_search", "total_calls": 1}
    first = memory.commit(CommitRequest(memory_type="tools", fields=fields, request_id="r1"))
    again = memory.commit(CommitRequest(memory_type="tools", fields=fields, request_id="r1"))
    assert again.commit_id == first.commit_id
    assert trailer(memory, only(first).uri)["total_calls"] == 1


def test_a_retried_request_gets_the_first_receipt_whole(memory: Runebook) -> None:
    first = memory.commit(CommitRequest(messages=TALK, session_id="s1", request_id="r1"))
    again = memory.commit(CommitRequest(messages=TALK, session_id="s1", request_id="r1"))
    assert first.usage == again.usage == {"messages": 2, "messages_new": 2}
    operation = {"memory_data": {"memory_type": "notes", "fields": {"content": "x"}}, "why": "?"}
    noted = handed_in(memory, write=[operation], request_id="r2")
    assert noted.notes
    assert set(noted.notes) <= set(handed_in(memory, write=[operation], request_id="r2").notes)


def test_a_list_left_null_by_a_model_is_an_empty_list(memory: Runebook) -> None:
    receipt = handed_in(memory, write=write("notes", content="x"), edit=None, delete=[])
    assert receipt.status is Status.COMMITTED
    assert len(receipt.results) == 1


def test_a_malformed_item_with_a_broken_key_is_reported_and_the_rest_is_stored(memory: Runebook) -> None:
    good = write("notes", content="好")
    bad = {"memory_data": {"memory_type": "notes", "fields": {"\ud800": ["x"]}}}
    receipt = handed_in(memory, write=[bad, good])
    assert receipt.status is Status.PARTIAL
    json.dumps(as_json(receipt), ensure_ascii=False).encode("utf-8")


def test_of_very_many_malformed_items_the_first_are_named_and_the_rest_counted(memory: Runebook) -> None:
    good = write("notes", content="Kept beside very many broken ones.")
    many = commits.OPERATIONS_MOST // 4
    receipt = handed_in(memory, write=[*[1] * many, good], edit=json.dumps([{}] * many))
    assert receipt.status is Status.PARTIAL
    created, *named, rest = receipt.results
    assert created.action is Action.CREATED
    assert [(result.reason or "").split(":")[0] for result in named] == [f"write_operations[{n}]" for n in range(50)]
    assert rest.reason == f"and {2 * many - 50:,} more malformed items."
    assert all(result.action is Action.REJECTED and result.hint for result in (*named, rest))
    few = handed_in(memory, write=[*[1] * 50, good])
    assert len(few.results) == 51
    assert few.results[-1].reason != "and 0 more malformed items."


def test_too_many_operations_are_refused_before_one_is_read(memory: Runebook, monkeypatch: pytest.MonkeyPatch) -> None:
    half = commits.OPERATIONS_MOST // 2
    with monkeypatch.context() as patched:
        patched.setattr(MemoryOperations, "model_validate", lambda *_: pytest.fail("an item was read"))
        with pytest.raises(TooLarge, match=r"operations holds 10,001 items; the limit is 10,000\.") as found:
            handed_in(memory, write=[1] * half, delete=json.dumps([1] * (half + 1)))
    assert "several commits" in found.value.hint
    assert memory.store.ledger.newest_seq() == 0


def test_malformed_items_are_redacted_while_others_may_write(memory: Runebook, monkeypatch: pytest.MonkeyPatch) -> None:
    under_lock: list[str] = []
    planning = False
    clean, commit = memory.commits.cleaner.result, memory.store.commit

    def result(each: OperationResult) -> OperationResult:
        if planning:
            under_lock.append(each.reason or "")
        return clean(each)

    def committed(*arguments: Any, **named: Any) -> CommitReceipt:
        nonlocal planning
        planning = True
        return commit(*arguments, **named)

    monkeypatch.setattr(memory.commits.cleaner, "result", result)
    monkeypatch.setattr(memory.store, "commit", committed)
    key = "AKIA" + "Q7WERTYUIOPASDFG"
    receipt = handed_in(memory, write=[{"memory_data": {"memory_type": "notes", "fields": {key: ["x"]}}}, *[1] * 60])
    assert under_lock == []
    assert key not in json.dumps(as_json(receipt))


def test_unknown_keys_of_a_commit_are_named_up_to_a_bound(memory: Runebook) -> None:
    extra = {f"unknown{number}": 1 for number in range(5_000)}
    receipt = handed_in(memory, write=[write("notes", content="Green tea.") | extra])
    (note,) = receipt.notes
    assert note.count("write_operations[0].unknown") == 50
    assert note.endswith(" and 4,950 more")


def test_two_different_texts_for_one_memory_are_refused_and_neither_is_lost_silently(
    memory: Runebook, tmp_path: Path
) -> None:
    assert "different things" in refused(memory, memory_content="the one", fields={"content": "the other"})
    assert kept_files(tmp_path) == {}
    assert memory.commit(CommitRequest("同一句话", fields={"content": "同一句话"})).status is Status.COMMITTED


def test_an_explicit_memory_remembers_its_session_and_a_bad_session_is_refused(memory: Runebook) -> None:
    receipt = memory.commit(CommitRequest("Learnt in this session.", session_id="s1"))
    assert trailer(memory, only(receipt).uri)["source"] == {"kind": "user_explicit", "session_id": "s1"}
    assert refused(memory, memory_content="x", session_id="../..")
    assert refused(memory, memory_content="x", session_id=".overview.md")


def test_operations_sent_as_json_text_are_read(memory: Runebook) -> None:
    data = {"memory_type": "facts", "fields": {"topic": "Office", "content": "It moved to Lyon."}}
    receipt = handed_in(memory, write=json.dumps([{"memory_data": data}]))
    assert only(receipt).action is Action.CREATED
    broken = handed_in(memory, write="[not json")
    assert only(broken).action is Action.REJECTED


def test_a_name_in_other_characters_is_the_same_memory_and_the_receipt_says_so(memory: Runebook) -> None:
    added(memory, "entities", entity_name="余明", content="住在成都。")
    receipt = added(memory, "entities", entity_name="餘明", content="住在大阪。")
    assert only(receipt).action is Action.UPDATED
    assert "余明.md, spelt otherwise" in (only(receipt).note or "")


def test_of_two_older_files_whose_names_fold_alike_the_one_that_is_named_is_updated(tmp_path: Path) -> None:
    for name in ("于海", "於海"):
        by_hand(tmp_path, f"user/default/memories/entities/{name}.md", f"{name} as it was")
    with open_memory(words_only(tmp_path)) as memory:
        memory.find(FindRequest("x"))
        added(memory, "entities", entity_name="於海", content="new")
        assert memory.read(ReadRequest(f"{USER}/entities/于海.md")).content == "于海 as it was"
        assert memory.read(ReadRequest(f"{USER}/entities/於海.md")).content.startswith("於海 as it was\n\nnew")


def _rejected(memory: Runebook, operations: dict[str, Any]) -> int:
    receipt = memory.commit(CommitRequest(operations=operations))
    refused = [result for result in receipt.results if "as much as one may" in (result.reason or "")]
    assert all("another commit" in (result.hint or "") for result in refused)
    return len(refused)


def test_a_commit_does_no_more_work_than_others_should_wait_for(memory: Runebook) -> None:
    lines = "\n".join(f"Sentence {number} says {number} things." for number in range(6_000))
    uri = only(memory.commit(CommitRequest(lines, memory_type="notes", fields={"title": "Long"}))).uri
    patches = [{"content": [{"search": f"Sentence {at} says", "replace": f"Sentence {at} told"}]} for at in range(20)]
    assert _rejected(memory, {"edit_operations": [{"uri": uri, "patches": patch} for patch in patches]}) > 10
    added_to = [{"memory_type": "notes", "fields": {"title": "Long", "content": f"{at} more."}} for at in range(20)]
    assert _rejected(memory, {"write_operations": [{"memory_data": each} for each in added_to]}) > 5
    new = [{"memory_type": "notes", "fields": {"title": f"New {at}", "content": "New."}} for at in range(1_000)]
    assert 100 < _rejected(memory, {"write_operations": [{"memory_data": each} for each in new]}) < 500
    few = [{"memory_type": "notes", "fields": {"title": f"Few {at}", "content": "New."}} for at in range(50)]
    links = [{"uri": f"viking://user/default/memories/notes/New {at}.md", "relation": "similar"} for at in range(200)]
    assert _rejected(memory, {"write_operations": [{"memory_data": {**each, "links": links}} for each in few]}) > 10


def test_a_receipt_quotes_no_more_of_what_was_sent_than_a_person_reads(memory: Runebook) -> None:
    data = {"memory_type": "notes", "fields": {"title": "Links", "content": "Many."}}
    links = [{"uri": f"{'x' * 100_000}{number}", "relation": "related_to"} for number in range(9)]
    operations = {"write_operations": [{"memory_data": {**data, "links": links}}], "z" * 100_000: 1}
    receipt = memory.commit(CommitRequest(operations=operations))
    assert only(receipt).action is Action.CREATED
    assert 100 < len(json.dumps(as_json(receipt))) < 20_000
    [commit] = [each for each in history_of(memory).commits() if each.commit_id == receipt.commit_id]
    assert len(str(as_json(commit))) < 20_000
    refused = memory.commit(CommitRequest(operations={"edit_operations": [{"uri": "x" * 100_000, "tags": ["a"]}]}))
    assert len(json.dumps(as_json(refused))) < 20_000


def test_files_that_are_not_there_are_looked_for_only_so_often(
    memory: Runebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("_LINE_CHARS", "_RECEIPT_CHARS"):
        monkeypatch.setattr(f"memory_core.core.store.local.{limit}", 10_000_000)
    links = [{"uri": f"{USER}/notes/none {at}.md"} for at in range(20_000)]
    data = {"memory_type": "notes", "fields": {"title": "Links", "content": "Many."}, "links": links}
    reason = only(handed_in(memory, write=[{"memory_data": data}])).reason or ""
    assert 5_000 < reason.count("there is no memory") < 7_000
    assert reason.count("as much as one may") == 20_000 - reason.count("there is no memory")
    away = memory.run(ARCHIVE, ArchiveRequest([f"{USER}/notes/none {at}.md" for at in range(20_000)]))
    assert 900 < sum("there is no memory" in (result.reason or "") for result in away.results) < 1_100
    assert "as much as one may" in (away.results[-1].reason or "")
    expected = {f"{USER}/notes/none {at}.md": ABSENT for at in range(2_001)}
    with pytest.raises(TooLarge, match="2,001 files; the limit is 2,000"):
        memory.commit(CommitRequest("New.", memory_type="notes", expected=expected))
    expected.popitem()
    assert memory.commit(CommitRequest("New.", memory_type="notes", expected=expected)).status is Status.COMMITTED


def test_very_deep_directories_cost_what_looking_at_each_parent_does(memory: Runebook) -> None:
    deep = f"{USER}/notes/{'/'.join('a' * 900)}"
    shown = handed_in(memory, overview=[{"directory_uri": deep, "abstract": "x"}] * 100, dry_run=True)
    assert sum("as much as one may" in (result.reason or "") for result in shown.results) >= 97
    ordinary = [{"directory_uri": f"{USER}/notes/{at}/tea", "abstract": "x"} for at in range(700)]
    assert _rejected(memory, {"overview_operations": ordinary}) == 0


def test_patches_of_a_long_page_count_what_they_are_merged_with(memory: Runebook) -> None:
    page = {"directory_uri": f"{USER}/notes", "overview": "\n".join(f"Line {at}." for at in range(1_500))}
    handed_in(memory, overview=[page])
    patch = "<<<<<<< SEARCH\nLine 700.\n=======\nLine 700!\n>>>>>>> REPLACE"
    again = [{**page, "overview": patch}] * 300
    assert _rejected(memory, {"overview_operations": again}) > 200
