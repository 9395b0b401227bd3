"""What operations become: one memory a key, nothing merged by likeness, nothing spoiled by a bad neighbour."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory_core.core.commit.patch import opens_as_patch
from memory_core.core.errors import NotFound
from memory_core.core.memory.metadata import Metadata
from memory_core.core.memory.requests import CommitRequest, FindRequest, ReadRequest
from memory_core.core.memory.results import Action, CommitReceipt, Status, as_json, text_sha256
from memory_core.core.memory.uri import MemoryUri
from memory_core.runebook import Runebook, open_memory
from tests.kept import kept_files
from tests.stores import (
    added,
    body,
    by_hand,
    edit,
    edited_by_hand,
    handed_in,
    only,
    replaced,
    trailer,
    words_only,
    write,
)

USER = "viking://user/default/memories"
AGENT = "viking://agent/default/memories"

EIGHT = [
    ("profile", {"content": "护士,后来做数据分析。"}, f"{USER}/profile.md"),
    ("preferences", {"topic": "咖啡口味", "content": "不加糖"}, f"{USER}/preferences/咖啡口味.md"),
    (
        "entities",
        {"entity_name": "支付系统", "entity_type": "system", "content": "双活部署"},
        f"{USER}/entities/支付系统.md",
    ),
    (
        "events",
        {"event_name": "Moved billing", "event_time": "2026-04-02", "content": "Twelve minutes."},
        f"{USER}/events/2026-04-02_Moved billing.md",
    ),
    (
        "cases",
        {"case_name": "Disk full → Prune cache", "problem": "no space left", "solution": "prune"},
        f"{AGENT}/cases/Disk full → Prune cache.md",
    ),
    (
        "patterns",
        {"pattern_name": "Schema change: Backup → Migrate", "pattern_type": "process", "content": "Backup first."},
        f"{AGENT}/patterns/Schema change- Backup → Migrate.md",
    ),
    ("tools", {"tool_name": "web_search", "best_for": "news"}, f"{AGENT}/tools/web_search.md"),
    ("skills", {"skill_name": "draft_contract", "best_for": "leases"}, f"{AGENT}/skills/draft_contract.md"),
]
GOLDEN: dict[str, Any] = {
    "tool_name": "web_search",
    "total_calls": 100,
    "success_count": 92,
    "fail_count": 8,
    "total_time_ms": 120_000,
    "total_tokens": 150_000,
    "best_for": "Finding current news",
}

REPLACE = {"replace": True}


@pytest.mark.parametrize(("memory_type", "fields", "uri"), EIGHT, ids=[kind for kind, _, _ in EIGHT])
def test_each_of_the_eight_types_is_a_file_that_holds_every_field(
    memory: Runebook, tmp_path: Path, memory_type: str, fields: dict[str, Any], uri: str
) -> None:
    receipt = memory.commit(CommitRequest(memory_type=memory_type, fields=fields))
    assert (receipt.status, only(receipt).uri) == (Status.COMMITTED, uri)
    text = memory.read(ReadRequest(uri)).content
    for value in fields.values():
        assert value in text
    assert trailer(memory, uri)["memory_type"] == memory_type
    before = kept_files(tmp_path)
    assert memory.commit(CommitRequest(memory_type=memory_type, fields=fields)).status is Status.UNCHANGED
    assert kept_files(tmp_path) == before


def test_a_tool_memory_renders_its_averages_and_grows_by_operations(memory: Runebook) -> None:
    uri = only(added(memory, "tools", **GOLDEN)).uri
    text = body(memory, uri)
    assert "Success rate: 92.0% (92 successful, 8 failed)" in text
    assert "Avg time: 1.2s, Avg tokens: 1500" in text
    assert "success_rate" not in trailer(memory, uri)
    patch = "<<<<<<< SEARCH\ncurrent news\n=======\n今天的新闻\n>>>>>>> REPLACE"
    calls = edit(uri, total_calls=100, success_count=8, fail_count=92, best_for=patch)
    assert handed_in(memory, edit=[calls]).status is Status.COMMITTED
    text = body(memory, uri)
    assert "Based on 200 historical calls:" in text
    assert "Success rate: 50.0% (100 successful, 100 failed)" in text
    assert "Best for: Finding 今天的新闻" in text
    assert trailer(memory, uri)["version"] == 2


def test_a_type_from_one_yaml_file_works_without_code(tmp_path: Path) -> None:
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / "recipes.yaml").write_text(
        "name: recipes\ndescription: Dishes.\ndirectory: 'viking://user/{user_space}/memories/recipes'\n"
        "filename_template: '{dish}.md'\ncontent_template: |-\n  {dish}: cooked {times} times\nfields:\n"
        "  - {name: dish, merge_op: immutable}\n  - {name: times, type: int64, merge_op: sum}\n",
        encoding="utf-8",
    )
    with open_memory(words_only(tmp_path / "home", schema_dirs=(schemas,))) as memory:
        uri = only(added(memory, "recipes", dish="麻婆豆腐", times=2)).uri
        added(memory, "recipes", dish="麻婆豆腐", times="3")
        assert uri == f"{USER}/recipes/麻婆豆腐.md"
        assert body(memory, uri) == "麻婆豆腐: cooked 5 times"
        assert [hit.uri for hit in memory.find(FindRequest("豆腐")).memories] == [uri]


def test_an_unknown_type_is_refused_with_a_next_step(memory: Runebook) -> None:
    with pytest.raises(NotFound) as caught:
        added(memory, "nonsense", "x")
    assert caught.value.hint


def test_saying_it_again_with_another_priority_renews_the_priority(memory: Runebook) -> None:
    uri = only(memory.commit(CommitRequest("Never deploy on Fridays"))).uri
    again = memory.commit(CommitRequest("Never deploy on Fridays", priority="critical"))
    assert (only(again).uri, only(again).action) == (uri, Action.UPDATED)
    assert trailer(memory, uri)["salience"] == 1.0


def test_many_texts_that_begin_alike_are_all_kept_and_said_again_change_nothing(memory: Runebook) -> None:
    texts = [f"会议室在三楼。第{number}条说明" for number in range(40)]
    uris = {only(memory.commit(CommitRequest(text))).uri for text in texts}
    assert len(uris) == len(texts)
    assert {memory.commit(CommitRequest(text)).status for text in texts} == {Status.UNCHANGED}


def test_two_events_of_one_day_without_a_name_are_two(memory: Runebook) -> None:
    day = {"event_time": "2026-05-02"}
    first = only(added(memory, "events", "We bought a boat", **day)).uri
    second = only(added(memory, "events", "她找到了工作", **day)).uri
    assert (first, second) == (
        f"{USER}/events/2026-05-02_We bought a boat.md",
        f"{USER}/events/2026-05-02_她找到了工作.md",
    )


def test_a_name_without_letters_names_an_event_and_nothing_is_made_up_for_its_date(memory: Runebook) -> None:
    uri = only(added(memory, "events", "We bought a boat", event_name="1024")).uri
    assert "We bought" not in uri
    assert trailer(memory, uri)["event_name"] == "1024"
    assert not trailer(memory, uri).get("event_time")


def test_unknown_keys_inside_an_operation_are_named(memory: Runebook) -> None:
    uri = only(added(memory, "notes", "Tea at four.", title="Tea")).uri
    other = only(added(memory, "notes", "Coffee at four.", title="Coffee")).uri
    link = {"uri": other, "type": "contradicts"}
    patch = [{"search": "four", "replace": "five", "flags": "g"}]
    receipt = memory.commit(
        CommitRequest(operations={"edit_operations": [{"uri": uri, "links": [link], "patches": {"content": patch}}]})
    )
    (note,) = (note for note in receipt.notes if "unknown keys" in note)
    assert "edit_operations[0].links[0].type" in note
    assert "edit_operations[0].patches.content[0].flags" in note


@pytest.mark.parametrize("day", ["2027-03-31", "20270331", "2027-W13-3"])
def test_what_expires_on_a_day_holds_to_its_end(day: str) -> None:
    assert Metadata({"expires_at": day}).expires_at == datetime(2027, 4, 1, tzinfo=UTC)


def test_the_same_key_updates_and_keeps_what_was_not_given(memory: Runebook) -> None:
    entity = {"entity_name": "Lotus", "entity_type": "organization", "content": "A supplier."}
    uri = only(added(memory, "entities", **entity)).uri
    again = added(memory, "entities", "Hosts the dashboard.", entity_name="Lotus")
    assert (only(again).uri, only(again).action) == (uri, Action.UPDATED)
    assert body(memory, uri) == "A supplier.\nHosts the dashboard."
    assert trailer(memory, uri)["entity_type"] == "organization"


@pytest.mark.parametrize("twin", ["PYTHON style", "python   Style", "Ｐｙｔｈｏｎ Ｓｔｙｌｅ", " Python style "])
def test_names_that_differ_by_case_width_or_spacing_are_one_memory(memory: Runebook, twin: str) -> None:
    uri = only(added(memory, "preferences", "tabs", topic="Python style")).uri
    again = added(memory, "preferences", "spaces", topic=twin)
    assert (again.status, only(again).uri) == (Status.COMMITTED, uri)
    assert body(memory, uri) == "tabs\n\nspaces"


def test_keys_that_share_a_portable_file_name_get_two_files(memory: Runebook) -> None:
    first = only(added(memory, "facts", "slash", topic="a/b")).uri
    second = only(added(memory, "facts", "colon", topic="a:b")).uri
    assert first != second
    assert (body(memory, first), body(memory, second)) == ("slash", "colon")
    assert only(added(memory, "facts", "colon 2", topic="a:b")).uri == second
    assert body(memory, first) == "slash"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=80))
def test_any_text_can_be_the_name_of_a_memory(memory: Runebook, topic: str) -> None:
    if not topic.strip() or opens_as_patch(topic):
        return
    uri = only(added(memory, "facts", "said", topic=topic)).uri
    assert trailer(memory, uri)["memory_type"] == "facts"


@pytest.mark.parametrize("text", ["Use %2F in URLs", "%00 ends a string", "路径用 ＼ 分隔", "CON is a device", "‥"])
def test_text_that_looks_like_an_escape_or_a_device_is_stored(memory: Runebook, text: str) -> None:
    assert body(memory, only(memory.commit(CommitRequest(text))).uri) == text


def test_a_handwritten_file_is_found_read_and_updated(tmp_path: Path) -> None:
    by_hand(tmp_path, "user/default/memories/preferences/茶.md", "喜欢喝绿茶 green tea")
    with open_memory(words_only(tmp_path)) as memory:
        uri = f"{USER}/preferences/茶.md"
        assert [hit.uri for hit in memory.find(FindRequest("绿茶")).memories] == [uri]
        assert memory.read(ReadRequest(uri)).content == "喜欢喝绿茶 green tea"
        receipt = added(memory, "preferences", "现在喝红茶", topic="茶")
        assert (only(receipt).uri, only(receipt).action) == (uri, Action.UPDATED)
        assert body(memory, uri) == "喜欢喝绿茶 green tea\n现在喝红茶"
        assert trailer(memory, uri)["topic"] == "茶"


def test_a_handwritten_file_with_the_name_the_template_gives_is_that_memory(tmp_path: Path) -> None:
    by_hand(tmp_path, "user/default/memories/events/2026-04-02_Launch.md", "We launched.")
    with open_memory(words_only(tmp_path)) as memory:
        receipt = added(memory, "events", "We launched at noon.", event_time="2026-04-02", event_name="Launch")
        assert only(receipt).uri == f"{USER}/events/2026-04-02_Launch.md"
        assert trailer(memory, only(receipt).uri)["event_name"] == "Launch"


def test_a_hand_edit_of_a_simple_body_becomes_the_field(memory: Runebook) -> None:
    uri = only(added(memory, "preferences", "likes tea", topic="Drinks")).uri
    edited_by_hand(memory, uri, "likes tea", "likes cocoa")
    cocoa = edit(uri, content=[{"search": "cocoa", "replace": "可可"}])
    assert handed_in(memory, edit=[cocoa]).status is Status.COMMITTED
    assert body(memory, uri) == "likes 可可"


def test_unknown_trailer_keys_survive_an_update(memory: Runebook) -> None:
    uri = only(added(memory, "facts", "one", topic="T")).uri
    edited_by_hand(memory, uri, '{\n  "topic"', '{\n  "colour": {"深": ["蓝"]},\n  "topic"')
    added(memory, "facts", "two", topic="T")
    assert body(memory, uri) == "one\n\ntwo"
    assert trailer(memory, uri)["colour"] == {"深": ["蓝"]}


@pytest.mark.parametrize("line", ['"version": "two"', '"version": [1]', '"tags": [{"a": 1}]', '"salience": "high"'])
def test_a_trailer_with_odd_metadata_can_still_be_updated(memory: Runebook, tmp_path: Path, line: str) -> None:
    added(memory, "facts", "one", topic="T")
    path = tmp_path / "user/default/memories/facts/T.md"
    path.write_text(f'one\n\n<!-- MEMORY_FIELDS\n{{"topic": "T", {line}}}\n-->\n', encoding="utf-8")
    assert added(memory, "facts", "two", topic="T").status is Status.COMMITTED


@pytest.mark.parametrize("value", [r'"\ud800"', "NaN", "1e999", "[" * 300 + "]" * 300, "9" * 5000])
def test_a_trailer_that_no_file_can_hold_is_refused_not_rewritten(memory: Runebook, tmp_path: Path, value: str) -> None:
    added(memory, "facts", "one", topic="T")
    path = tmp_path / "user/default/memories/facts/T.md"
    path.write_text(f'one\n\n<!-- MEMORY_FIELDS\n{{"topic": "T", "x": {value}}}\n-->\n', encoding="utf-8")
    before = kept_files(tmp_path)
    receipt = added(memory, "facts", "two", topic="T")
    assert receipt.status is Status.REJECTED
    assert "trailer" in (only(receipt).reason or "")
    assert kept_files(tmp_path) == before


def test_a_trailer_saved_with_carriage_returns_keeps_its_fields(memory: Runebook, tmp_path: Path) -> None:
    uri = only(memory.commit(CommitRequest("one", memory_type="facts", fields={"topic": "T"}, priority="high"))).uri
    path = tmp_path / "user/default/memories/facts/T.md"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    added(memory, "facts", "two", topic="T")
    assert body(memory, uri) == "one\n\ntwo"
    assert (trailer(memory, uri)["salience"], trailer(memory, uri)["version"]) == (0.8, 2)


def test_a_file_in_another_encoding_is_never_rewritten(memory: Runebook, tmp_path: Path) -> None:
    by_hand(tmp_path, "user/default/memories/facts/老文件.md", "").write_bytes("支付系统在上海".encode("gb18030"))
    before = kept_files(tmp_path)
    receipt = added(memory, "facts", "new", topic="老文件")
    assert receipt.status is Status.REJECTED
    assert "UTF-8" in (only(receipt).hint or "")
    assert kept_files(tmp_path) == before


def test_a_changed_immutable_field_is_refused_and_the_rest_applied(memory: Runebook) -> None:
    uri = only(added(memory, "facts", "one", topic="T")).uri
    receipt = handed_in(memory, edit=[edit(uri, topic="U", content="two")])
    assert (receipt.status, only(receipt).action) == (Status.PARTIAL, Action.UPDATED)
    assert "immutable" in (only(receipt).reason or "")
    assert body(memory, uri) == "two"
    assert trailer(memory, uri)["topic"] == "T"


def test_a_bad_value_for_one_field_of_a_known_memory_leaves_the_others_applied(memory: Runebook) -> None:
    uri = only(added(memory, "tools", **GOLDEN)).uri
    given = {"tool_name": "web_search", "total_calls": "many", "best_for": "maps"}
    receipt = added(memory, "tools", **given)
    assert (receipt.status, only(receipt).uri) == (Status.PARTIAL, uri)
    assert trailer(memory, uri)["best_for"] == "Finding current news, maps"
    assert trailer(memory, uri)["total_calls"] == 100


def test_one_bad_operation_never_spoils_the_others(memory: Runebook) -> None:
    uri = only(added(memory, "facts", "a\nb\na\n", topic="T")).uri
    ambiguous = "<<<<<<< SEARCH\na\n=======\nz\n>>>>>>> REPLACE"
    receipt = handed_in(
        memory,
        write=[
            "not an object",
            write("nonsense", content="x"),
            write("notes", title="kept", content="好"),
            write("notes", title="bad", content="half \ud800"),
        ],
        edit=[
            edit(uri, content=ambiguous),
            edit(f"{USER}/facts/missing.md", content="x"),
            edit(f"{USER}/../../etc/passwd", content="x"),
            edit("file:///etc/passwd", content="x"),
        ],
        delete=[{"uri": f"{USER}/facts/missing.md"}, {"url": "x"}],
    )
    assert receipt.status is Status.PARTIAL
    actions = [result.action for result in receipt.results]
    assert (len(actions), actions.count(Action.CREATED), actions.count(Action.REJECTED)) == (10, 1, 9)
    assert all(result.reason and result.hint for result in receipt.results if result.action is Action.REJECTED)
    assert body(memory, f"{USER}/notes/kept.md") == "好"
    assert body(memory, uri) == "a\nb\na\n"


def test_operations_on_one_file_build_on_each_other(memory: Runebook) -> None:
    uri = f"{USER}/notes/N.md"
    receipt = handed_in(
        memory,
        write=[write("notes", title="N", content="one"), write("notes", title="n", content="one\ntwo")],
        edit=[edit(uri, content=[{"search": "two", "replace": "three"}])],
    )
    assert [result.action for result in receipt.results] == [Action.CREATED, Action.UPDATED, Action.UPDATED]
    assert body(memory, uri) == "one\nthree"
    assert len(memory.store.ledger.history()) == 1


def test_a_delete_names_its_replacement_or_is_refused(memory: Runebook) -> None:
    old = only(added(memory, "facts", "old", topic="Old")).uri
    missing = handed_in(memory, delete=[{"uri": old, "replacement_uri": f"{USER}/facts/New.md"}])
    assert missing.status is Status.REJECTED
    receipt = handed_in(
        memory,
        write=[write("facts", topic="New", content="new")],
        delete=[{"uri": old, "replacement_uri": f"{USER}/facts/New.md", "reason": "renamed"}],
    )
    assert [result.action for result in receipt.results] == [Action.CREATED, Action.DELETED]
    with pytest.raises(NotFound):
        memory.read(ReadRequest(old))
    assert memory.find(FindRequest("old")).total == 0


@pytest.mark.parametrize("suffix", ["", "/deeper"])
def test_a_summary_of_a_file_is_refused_and_the_store_opens_again(
    memory: Runebook, tmp_path: Path, suffix: str
) -> None:
    uri = only(added(memory, "facts", "x", topic="T")).uri
    receipt = handed_in(memory, overview=[{"directory_uri": uri + suffix, "abstract": "x"}])
    assert receipt.status is Status.REJECTED
    memory.close()
    with open_memory(words_only(tmp_path)) as reopened:
        assert reopened.commit(CommitRequest("y")).status is Status.COMMITTED


@pytest.mark.parametrize(
    "uri",
    [
        "viking://session/default/s1/messages.jsonl",
        "viking://archive/user/default/memories/facts/T.md",
        "viking://user/default/logs/2026-01-01.md",
        "viking://user/default/rolling_summary.md",
        "viking://user/other/memories/profile.md",
        "viking://agent/other/memories/tools/x.md",
        "viking://user/default",
    ],
)
def test_operations_reach_nothing_but_the_memories_of_their_spaces(memory: Runebook, tmp_path: Path, uri: str) -> None:
    memory.commit(CommitRequest(messages=[{"role": "user", "content": "hello"}], session_id="s1"))
    (tmp_path / "user/default/logs").mkdir(parents=True)
    by_hand(tmp_path, "user/other/memories/profile.md", "secret")
    before = kept_files(tmp_path)
    receipt = handed_in(
        memory,
        write=[write("profile", uri, content="x")],
        edit=[edit(uri, content="x")],
        delete=[{"uri": uri}],
        overview=[{"directory_uri": uri, "abstract": "x"}],
    )
    assert receipt.status is Status.REJECTED
    assert len(receipt.results) == 4
    assert kept_files(tmp_path) == before


def test_a_replacement_in_another_space_is_as_absent_as_any(memory: Runebook, tmp_path: Path) -> None:
    uri = only(added(memory, "facts", "x", topic="T")).uri
    by_hand(tmp_path, "user/other/memories/profile.md", "secret")
    reasons = [
        only(
            handed_in(memory, delete=[{"uri": uri, "replacement_uri": f"viking://user/other/memories/{name}.md"}])
        ).reason
        for name in ("profile", "missing")
    ]
    assert [(reason or "").replace("profile", "missing") for reason in reasons] == [reasons[1], reasons[1]]


def test_a_summary_file_is_not_a_memory_to_edit(memory: Runebook) -> None:
    added(memory, "facts", "x", topic="T")
    handed_in(memory, overview=[{"directory_uri": f"{USER}/facts", "abstract": "Facts."}])
    uri = f"{USER}/facts/.abstract.md"
    receipt = handed_in(memory, edit=[edit(uri, content="x")], write=[write("facts", uri, content="x")])
    assert receipt.status is Status.REJECTED
    assert memory.read(ReadRequest(uri)).content == "Facts.\n"


def test_a_memory_that_a_person_removed_comes_back_under_its_own_name(memory: Runebook, tmp_path: Path) -> None:
    uri = only(added(memory, "facts", "x", topic="T")).uri
    (tmp_path / "user/default/memories/facts/T.md").unlink()
    receipt = added(memory, "facts", "y", topic="T")
    assert (only(receipt).uri, only(receipt).action) == (uri, Action.CREATED)


def test_a_write_with_a_search_replace_text_patches_the_memory_of_that_name(memory: Runebook) -> None:
    uri = only(added(memory, "facts", "blue sky", topic="Sky")).uri
    patch = "<<<<<<< SEARCH\nblue\n=======\n蓝色 blue\n>>>>>>> REPLACE"
    assert handed_in(memory, write=[write("facts", topic="sky", content=patch)]).status is Status.COMMITTED
    assert body(memory, uri) == "蓝色 blue sky"


def test_ignored_fields_and_keys_are_reported(memory: Runebook) -> None:
    operation = write("facts", topic="T", content="x", mood="good", success_rate=3) | {"why": "because"}
    receipt = handed_in(memory, write=[operation])
    assert "mood" in (only(receipt).note or "")
    assert any("write_operations[0].why" in note for note in receipt.notes)


def seen(memory: Runebook, *uris: str) -> dict[str, str]:
    return {uri: text_sha256(memory.store.look(MemoryUri.parse(uri))[0] or "") for uri in uris}


def decide(memory: Runebook, expected: dict[str, str], **operations: Any) -> CommitReceipt:
    """Operations of an author who saw what ``expected`` says."""
    named = {f"{name}_operations": items for name, items in operations.items()}
    return memory.commits.apply_operations(named, seen=expected)


PATCH_B = "<<<<<<< SEARCH\n乙 b\n=======\n乙 B\n>>>>>>> REPLACE"


@pytest.fixture
def changed(memory: Runebook) -> tuple[str, dict[str, str]]:
    """A memory that changed since it was seen, and what was seen."""
    uri = only(added(memory, "facts", "甲 a\n乙 b\n", topic="T")).uri
    expected = seen(memory, uri)
    replaced(memory, "facts", "甲 new\n乙 b\n", topic="T")
    return uri, expected


@pytest.mark.parametrize(
    "operations",
    [
        {"write": [write("facts", topic="T", content="stale 旧")]},
        {"write": [write("facts", f"{USER}/facts/T.md", content="stale 旧")]},
        {"edit": [edit(f"{USER}/facts/T.md", content="stale 旧")]},
        {"delete": [{"uri": f"{USER}/facts/T.md"}]},
        {"edit": [edit(f"{USER}/facts/T.md", content=PATCH_B.replace("乙 b", "甲 a"))]},
    ],
    ids=["write by key", "write by uri", "plain patch", "delete", "patch that no longer fits"],
)
def test_what_changed_since_it_was_seen_is_not_overwritten(
    memory: Runebook, changed: tuple[str, dict[str, str]], operations: dict[str, Any]
) -> None:
    uri, expected = changed
    receipt = decide(memory, expected, **operations)
    assert (receipt.status, only(receipt).action, only(receipt).conflict) == (Status.REJECTED, Action.REJECTED, True)
    assert "changed since it was read" in (only(receipt).reason or "")
    assert only(receipt).hint
    assert body(memory, uri) == "甲 new\n乙 b\n"
    assert CommitReceipt.from_dict(as_json(receipt)) == receipt


def test_a_patch_that_no_longer_fits_comes_back_with_the_closest_lines(
    memory: Runebook, changed: tuple[str, dict[str, str]]
) -> None:
    patch = PATCH_B.replace("乙 b", "甲 a")
    receipt = decide(memory, changed[1], edit=[edit(changed[0], content=patch)])
    assert "甲 new" in (only(receipt).hint or "")


def test_a_patch_is_applied_to_the_text_as_it_is_now(memory: Runebook, changed: tuple[str, dict[str, str]]) -> None:
    uri, expected = changed
    receipt = decide(memory, expected, edit=[edit(uri, content=PATCH_B)])
    assert (receipt.status, only(receipt).conflict) == (Status.COMMITTED, False)
    assert body(memory, uri) == "甲 new\n乙 B\n"


def test_a_conflict_spoils_no_other_operation(memory: Runebook, changed: tuple[str, dict[str, str]]) -> None:
    receipt = decide(
        memory,
        changed[1],
        write=[write("facts", topic="T", content="stale"), write("facts", topic="新的", content="kept")],
    )
    assert receipt.status is Status.PARTIAL
    assert [result.conflict for result in receipt.results] == [True, False]
    assert body(memory, f"{USER}/facts/新的.md") == "kept"


def test_a_memory_that_appeared_unseen_is_not_overwritten_but_takes_a_patch(memory: Runebook) -> None:
    uri = only(added(memory, "facts", "乙 b", topic="T")).uri
    receipt = decide(memory, {}, write=[write("facts", topic="t", content="other")])
    assert only(receipt).conflict
    assert "unread" in (only(receipt).reason or "")
    assert only(decide(memory, {}, delete=[{"uri": uri}])).conflict
    assert body(memory, uri) == "乙 b"
    assert decide(memory, {}, edit=[edit(uri, content=PATCH_B)]).status is Status.COMMITTED
    assert body(memory, uri) == "乙 B"


def test_what_is_there_already_is_no_conflict(memory: Runebook, changed: tuple[str, dict[str, str]]) -> None:
    receipt = decide(memory, changed[1], write=[write("facts", topic="T", content="甲 new\n乙 b\n")])
    assert (receipt.status, only(receipt).conflict) == (Status.UNCHANGED, False)


def test_counts_are_added_to_a_memory_that_changed_and_prose_is_not_replaced(memory: Runebook) -> None:
    uri = only(added(memory, "tools", **GOLDEN)).uri
    expected = seen(memory, uri)
    added(memory, "tools", tool_name="web_search", total_calls=1, best_for="maps 地图")
    counted = decide(memory, expected, write=[write("tools", tool_name="web_search", total_calls=5)])
    assert counted.status is Status.COMMITTED
    both = decide(memory, expected, write=[write("tools", tool_name="web_search", total_calls=5, best_for="mine")])
    assert only(both).conflict
    assert (trailer(memory, uri)["total_calls"], trailer(memory, uri)["best_for"]) == (
        106,
        "Finding current news, maps 地图",
    )


def test_a_field_that_is_as_it_was_seen_may_be_replaced_though_others_changed(memory: Runebook) -> None:
    uri = only(added(memory, "tools", **GOLDEN)).uri
    expected = seen(memory, uri)
    added(memory, "tools", tool_name="web_search", total_calls=1)
    receipt = decide(memory, expected, write=[write("tools", tool_name="web_search", best_for="新闻 news") | REPLACE])
    assert receipt.status is Status.COMMITTED
    assert (trailer(memory, uri)["total_calls"], trailer(memory, uri)["best_for"]) == (101, "新闻 news")


def test_a_hand_edit_after_the_reading_is_not_overwritten(memory: Runebook) -> None:
    uri = only(added(memory, "preferences", "likes tea", topic="Drinks")).uri
    expected = seen(memory, uri)
    edited_by_hand(memory, uri, "tea", "可可")
    receipt = decide(memory, expected, write=[write("preferences", topic="Drinks", content="likes coffee")])
    assert only(receipt).conflict
    assert body(memory, uri) == "likes 可可"


def test_what_was_removed_since_it_was_seen_does_not_come_back(memory: Runebook) -> None:
    uri = only(added(memory, "facts", "x", topic="T")).uri
    expected = seen(memory, uri)
    handed_in(memory, delete=[{"uri": uri}])
    for operations in (
        {"write": [write("facts", topic="T", content="x")]},
        {"write": [write("facts", uri, content="x")]},
        {"edit": [edit(uri, content="x")]},
    ):
        receipt = decide(memory, expected, **operations)
        assert only(receipt).conflict
        assert "removed" in (only(receipt).reason or "")
    gone = decide(memory, expected, delete=[{"uri": uri}])
    assert (gone.status, only(gone).conflict) == (Status.UNCHANGED, False)
    assert decide(memory, {}, write=[write("facts", topic="T", content="x")]).status is Status.COMMITTED


def test_an_author_who_may_have_read_more_is_checked_only_where_it_is_known_what_was_seen(
    memory: Runebook, changed: tuple[str, dict[str, str]]
) -> None:
    added(memory, "facts", "unlisted", topic="另一个")
    stale = [
        write("facts", topic="T", content="stale"),
        write("facts", topic="另一个", content="read elsewhere") | REPLACE,
    ]
    receipt = memory.commits.apply_operations({"write_operations": stale}, seen=changed[1], reads_elsewhere=True)
    assert [result.conflict for result in receipt.results] == [True, False]
    assert body(memory, f"{USER}/facts/另一个.md") == "read elsewhere"


def test_operations_of_one_author_on_one_file_are_no_conflict(memory: Runebook) -> None:
    uri = only(added(memory, "facts", "one", topic="T")).uri
    receipt = decide(
        memory,
        seen(memory, uri),
        write=[write("facts", topic="T", content=text) | REPLACE for text in ("two", "three")],
        edit=[edit(uri, content="four 四")],
    )
    assert receipt.status is Status.COMMITTED
    assert body(memory, uri) == "four 四"


def test_an_overview_written_meanwhile_is_not_replaced_and_a_new_list_is_no_conflict(memory: Runebook) -> None:
    folder = f"{USER}/facts"
    added(memory, "facts", "x", topic="T")
    handed_in(memory, overview=[{"directory_uri": folder, "abstract": "Facts.", "overview": "Prose 一"}])
    expected = seen(memory, f"{folder}/.abstract.md", f"{folder}/.overview.md")
    added(memory, "facts", "y", topic="U")
    second = [{"directory_uri": folder, "overview": "Prose 二"}]
    assert decide(memory, expected, overview=second).status is Status.COMMITTED
    third = [{"directory_uri": folder, "overview": "Prose 三", "abstract": "Facts 三"}]
    receipt = decide(memory, expected, overview=third)
    assert [result.conflict for result in receipt.results] == [False, True]
    assert memory.read(ReadRequest(f"{folder}/.overview.md")).content.startswith("Prose 二\n")


def links(memory: Runebook, uri: str) -> list[tuple[str, str, float]]:
    return [(link["uri"], link["relation"], link["strength"]) for link in trailer(memory, uri).get("links", [])]


def linking(memory_type: str, *targets: tuple[str, str], **fields: Any) -> dict[str, Any]:
    operation = write(memory_type, **fields)
    operation["memory_data"]["links"] = [{"uri": uri, "relation": relation} for uri, relation in targets]
    return operation


@pytest.mark.parametrize(
    ("relation", "reverse"),
    [
        ("similar", "similar"),
        ("contradicts", "contradicts"),
        ("refines", "refined_by"),
        ("supports", "supported_by"),
        ("replaces", "replaced_by"),
        ("supported_by", "supports"),
    ],
)
def test_a_link_is_kept_at_both_ends_in_one_commit(memory: Runebook, relation: str, reverse: str) -> None:
    old = only(added(memory, "facts", "Server A has 8 GB", topic="Old")).uri
    before = trailer(memory, old)
    new = f"{USER}/facts/新.md"
    receipt = handed_in(memory, write=[linking("facts", (old, relation), topic="新", content="Server A has 16 GB")])
    assert receipt.status is Status.COMMITTED
    assert old in (only(receipt).note or "")
    assert links(memory, new) == [(old, relation, 0.5)]
    assert links(memory, old) == [(new, reverse, 0.5)]
    ignored = {"links", "confidence"}  # what a relation does to confidence: tests/features/test_links_planned.py
    assert {name: value for name, value in trailer(memory, old).items() if name not in ignored} == {
        name: value for name, value in before.items() if name not in ignored
    }
    assert body(memory, old) == "Server A has 8 GB"
    assert old in [hit.uri for hit in memory.find(FindRequest("8 GB")).memories]


def test_two_new_memories_may_name_each_other_by_the_uris_their_templates_give(memory: Runebook) -> None:
    tea, coffee = f"{USER}/preferences/茶.md", f"{USER}/preferences/Coffee.md"
    receipt = handed_in(
        memory,
        write=[
            linking("preferences", (coffee, "contradicts"), topic="茶", content="只喝茶"),
            linking("preferences", (tea, "contradicts"), topic="Coffee", content="drinks coffee only"),
        ],
    )
    assert receipt.status is Status.COMMITTED
    assert (links(memory, tea), links(memory, coffee)) == (
        [(coffee, "contradicts", 0.5)],
        [(tea, "contradicts", 0.5)],
    )


def test_a_memory_asked_for_under_another_uri_is_still_found_by_it_in_the_same_operations(memory: Runebook) -> None:
    asked = f"{USER}/facts/my-name.md"
    first = write("facts", asked, topic="Its name", content="x")
    receipt = handed_in(
        memory,
        write=[first, linking("facts", (asked, "refines"), topic="Other", content="y")],
        edit=[edit(asked, content=[{"search": "x", "replace": "甲"}])],
    )
    assert receipt.status is Status.COMMITTED
    assert body(memory, f"{USER}/facts/Its name.md") == "甲"
    assert links(memory, f"{USER}/facts/Other.md") == [(f"{USER}/facts/Its name.md", "refines", 0.5)]


def test_a_bad_link_is_left_out_with_a_reason_and_the_rest_goes_on(memory: Runebook, tmp_path: Path) -> None:
    good = only(added(memory, "facts", "x", topic="Good")).uri
    secret = by_hand(tmp_path, "user/other/memories/profile.md", "secret")
    own = f"{USER}/facts/N.md"
    bad = [
        (good, "likes"),
        (own, "similar"),
        (f"{USER}/facts/missing.md", "similar"),
        ("viking://user/other/memories/profile.md", "similar"),
        ("file:///etc/passwd", "similar"),
    ]
    receipt = handed_in(memory, write=[linking("facts", *bad, (good, "supports"), topic="N", content="新")])
    assert (receipt.status, only(receipt).action) == (Status.PARTIAL, Action.CREATED)
    assert (only(receipt).reason or "").count("left out") == len(bad)
    assert only(receipt).hint
    assert links(memory, own) == [(good, "supports", 0.5)]
    assert secret.read_text(encoding="utf-8") == "secret"


def test_the_same_link_again_changes_nothing_and_a_new_strength_replaces_the_old(memory: Runebook) -> None:
    one = only(added(memory, "facts", "x", topic="One")).uri
    two = only(added(memory, "facts", "y", topic="Two")).uri
    link = {**edit(one), "links": [{"uri": two, "relation": "similar", "strength": 0.5}]}
    assert [handed_in(memory, edit=[link]).status for _ in range(2)] == [Status.COMMITTED, Status.UNCHANGED]
    later = datetime(2100, 1, 1, tzinfo=UTC)
    assert memory.commits.apply_operations({"edit_operations": [link]}, now=later).status is Status.UNCHANGED
    link["links"] = [{"uri": two, "relation": "similar", "strength": 0.9}]
    assert only(handed_in(memory, edit=[link])).action is Action.UPDATED
    assert (links(memory, one), links(memory, two)) == ([(two, "similar", 0.9)], [(one, "similar", 0.9)])


def test_links_are_bounded_and_likeness_gives_way_first(memory: Runebook) -> None:
    hub = only(added(memory, "facts", "hub", topic="Hub")).uri
    handed_in(memory, write=[linking("facts", (hub, "contradicts"), topic="Against", content="no")])
    for start in (0, 30):
        many = [linking("facts", (hub, "similar"), topic=f"第{n}条", content=f"{n}") for n in range(start, start + 30)]
        assert handed_in(memory, write=many).status is Status.COMMITTED
    kept = links(memory, hub)
    assert len(kept) == 50
    assert kept[0] == (f"{USER}/facts/Against.md", "contradicts", 0.5)
    assert kept[-1][0] == f"{USER}/facts/第59条.md"


def test_a_replacement_says_what_it_replaces_and_links_to_what_is_gone_do_no_harm(memory: Runebook) -> None:
    old = only(added(memory, "facts", "old", topic="Old")).uri
    new = f"{USER}/facts/New.md"
    handed_in(
        memory,
        write=[linking("facts", (old, "similar"), topic="New", content="new 新")],
        delete=[{"uri": old, "replacement_uri": new}],
    )
    assert (old, "replaces", 1.0) in links(memory, new)
    assert added(memory, "facts", "newer", topic="New").status is Status.COMMITTED
    assert (old, "replaces", 1.0) in links(memory, new)


def test_a_linked_memory_is_still_the_one_of_its_key(memory: Runebook) -> None:
    old = only(added(memory, "facts", "old", topic="a/b")).uri
    handed_in(memory, write=[linking("facts", (old, "similar"), topic="New", content="新")])
    assert only(added(memory, "facts", "again", topic="A/B")).uri == old


def test_a_handwritten_memory_keeps_its_text_when_it_is_linked(memory: Runebook, tmp_path: Path) -> None:
    by_hand(tmp_path, "user/default/memories/preferences/茶.md", "喜欢绿茶\r\n\r\n# Tea")
    uri = f"{USER}/preferences/茶.md"
    handed_in(memory, write=[linking("preferences", (uri, "contradicts"), topic="Coffee", content="no tea")])
    assert body(memory, uri) == "喜欢绿茶\r\n\r\n# Tea"
    assert links(memory, uri) == [(f"{USER}/preferences/Coffee.md", "contradicts", 0.5)]


def test_a_link_to_a_memory_with_a_damaged_trailer_is_left_out(memory: Runebook) -> None:
    uri = only(added(memory, "facts", "x", topic="T")).uri
    path = edited_by_hand(memory, uri, '"version"', "version")
    broken = path.read_text(encoding="utf-8")
    receipt = handed_in(memory, write=[linking("facts", (uri, "similar"), topic="N", content="y")])
    assert (receipt.status, only(receipt).action) == (Status.PARTIAL, Action.CREATED)
    assert path.read_text(encoding="utf-8") == broken
