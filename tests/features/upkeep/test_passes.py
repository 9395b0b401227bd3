"""Maintenance: what is over leaves for the archive, what matters stays, and everything comes back by a command."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.caller import Access
from memory_core.core.errors import AccessDenied, InvalidInput
from memory_core.core.memory.requests import CommitRequest, FindRequest, ListRequest, ReadRequest, RetrieveRequest
from memory_core.core.memory.results import Action
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.usage import Recall
from memory_core.features.history import history_of
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.features.upkeep import passes
from memory_core.features.upkeep.archive import ARCHIVE, ARCHIVE_LIST, RESTORE, ArchiveListRequest, ArchiveRequest
from memory_core.features.upkeep.passes import MAINTAIN, MaintainRequest, automatic_maintenance
from memory_core.runebook import Runebook, open_memory
from tests.features.upkeep.maintained import NOW, USER, away, kept, maintained, text
from tests.killing import Killed, Killer
from tests.stores import edited, own_type, words_only


def learnt(memory: Runebook, number: int) -> str:
    """The URI of a fact that was made of a conversation, so many days ago."""
    fact = {"memory_type": "facts", "fields": {"topic": f"事 {number}", "content": f"fact {number}"}}
    operations = {"write_operations": [{"memory_data": fact}]}
    return memory.commits.apply_operations(operations, now=NOW - timedelta(days=number)).results[0].uri


def found(memory: Runebook, query: str, **more: Any) -> list[str]:
    return [hit.uri for hit in memory.find(FindRequest(query, now=NOW, **more)).hits]


def recalled(memory: Runebook, session_id: str) -> set[str]:
    """What a session begins with."""
    pack = memory.retrieve(RetrieveRequest("What is the plan for today?", session_id=session_id, now=NOW))
    return {item.uri for part in pack.parts for item in part.items}


def test_expired_memory_is_not_found_and_leaves_for_the_archive_whole(memory: Runebook) -> None:
    gone = kept(memory, "The guest wifi password is on the fridge 访客密码在冰箱上", 10, expires_at="2027-01-27")
    stays = kept(memory, "The wifi router stands in the hall 路由器在走廊", 10, expires_at="2027-01-28")
    assert found(memory, "wifi") == [stays]
    assert found(memory, "wifi", filter={"expires_at": {"lt": "2027-01-29"}}) != [stays]
    (receipt,) = maintained(memory, "expiry")
    assert [result.uri for result in receipt.results] == [gone]
    assert text(memory, gone) == ""
    archived = text(memory, away(gone))
    assert "访客密码在冰箱上" in archived
    assert '"reason": "expired"' in archived
    assert text(memory, stays)
    assert maintained(memory, "expiry") == []


def test_day_of_expiry_still_holds_until_it_is_over(memory: Runebook) -> None:
    uri = kept(memory, "Parking is free today 今天停车免费", expires_at="2027-01-28")
    assert maintained(memory, "expiry", days=0.6) == []
    assert len(maintained(memory, "expiry", days=0.7)) == 1
    assert text(memory, uri) == ""


def test_pinned_memory_outlives_its_expiry(memory: Runebook) -> None:
    uri = kept(memory, "Emergency contact 紧急联系人: Lin", expires_at="2027-01-01", pinned=True)
    assert found(memory, "Lin") == [uri]
    assert maintained(memory) == []
    edited(memory, uri, {"pinned": False}, now=NOW)
    assert found(memory, "Lin") == []
    assert len(maintained(memory, "expiry")) == 1


def test_memory_put_to_rest_is_read_but_neither_found_nor_recalled(memory: Runebook) -> None:
    uri = kept(memory, "The old office was in Berlin 旧办公室在柏林", priority="critical")
    assert uri in recalled(memory, "s1")
    edited(memory, uri, {"active": False}, now=NOW)
    assert found(memory, "Berlin office") == []
    assert found(memory, "Berlin office", filter={"active": False}) == [uri]
    assert uri not in recalled(memory, "s2")
    assert "柏林" in memory.read(ReadRequest(uri)).content
    edited(memory, uri, {"active": True}, now=NOW)
    assert found(memory, "柏林") == [uri]


def test_expiry_that_is_no_date_is_refused_with_an_example(memory: Runebook) -> None:
    receipt = memory.commit(CommitRequest("Soon", metadata={"expires_at": "next Friday"}))
    assert receipt.results[0].action is Action.REJECTED
    assert "2027-03-31" in (receipt.results[0].hint or "")
    with pytest.raises(InvalidInput, match="memory_content"):
        memory.commit(CommitRequest(messages=[{"role": "user", "content": "hi"}], metadata={"pinned": True}))


def test_type_with_a_lifetime_gives_its_memories_an_expiry(tmp_path: Path) -> None:
    fields = "fields: [{name: title, merge_op: immutable}, {name: content}]\n"
    lines = f"filename_template: '{{title}}.md'\nexpires_after_days: 7\n{fields}"
    types = own_type(tmp_path / "types", "offers", lines)
    with open_memory(words_only(tmp_path / "home", schema_dirs=[str(types)])) as memory:
        uri = kept(memory, "Two flights for one 买一送一", memory_type="offers", fields={"title": "优惠"})
        assert found(memory, "flights") == [uri]
        assert maintained(memory, days=6.9) == []
        assert len(maintained(memory, days=7.1)) == 1
        assert found(memory, "flights") == []


@pytest.mark.parametrize("state", ["done", "cancelled", "已完成"])
def test_task_that_ended_leaves_after_its_days_and_an_open_one_never(memory: Runebook, state: str) -> None:
    ended = kept(memory, "Renew the certificate", 40, "tasks", fields={"title": "续签证书", "state": state})
    fresh = kept(memory, "Send the offer", 20, "tasks", fields={"title": "发报价单", "state": state})
    still = kept(memory, "Paint the fence", 400, "tasks", fields={"title": "刷篱笆", "state": "open"})
    (receipt,) = maintained(memory, "tasks")
    assert [result.uri for result in receipt.results] == [ended]
    assert text(memory, away(ended))
    assert text(memory, fresh)
    assert text(memory, still)


def test_only_automatic_knowledge_beyond_the_capacity_leaves_and_the_least_used_of_it(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path, tiers={"long_term_knowledge_capacity": 3})) as memory:
        explicit = [kept(memory, f"Explicit fact {n} 明说的事实{n}", memory_type="facts") for n in range(5)]
        automatic = [learnt(memory, n) for n in range(6)]
        used = automatic[4:]
        memory.store.usage.recalled(Recall(NOW, "q", "find", tuple((uri, 0.9) for uri in used), 1.0))
        pinned = automatic[3]
        edited(memory, pinned, {"pinned": True}, now=NOW)
        (receipt,) = maintained(memory, "capacity")
        # Five are not pinned, three may stay: of those never used the older two leave.
        assert {result.uri for result in receipt.results} == {automatic[1], automatic[2]}
        assert all(text(memory, uri) for uri in (*explicit, *used, pinned, automatic[0]))
        assert maintained(memory, "capacity") == []


def test_automatic_knowledge_that_somebody_states_explicitly_no_longer_leaves(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path, tiers={"long_term_knowledge_capacity": 1})) as memory:
        stated, *others = [learnt(memory, number) for number in range(9, 5, -1)]
        memory.commit(CommitRequest("血型是 AB 型", memory_type="facts", fields={"topic": "事 9"}, now=NOW))
        (receipt,) = maintained(memory, "capacity")
        assert stated not in {result.uri for result in receipt.results}
        assert "AB" in text(memory, stated)
        assert {result.uri for result in receipt.results} < set(others)


@pytest.mark.parametrize("way", ["restore", "undo"])
def test_what_somebody_brought_back_is_not_sent_away_again(tmp_path: Path, way: str) -> None:
    with open_memory(words_only(tmp_path, tiers={"long_term_knowledge_capacity": 1})) as memory:
        task = kept(memory, "Renew 续签", 60, "tasks", fields={"title": "证书", "state": "done"})
        facts = [learnt(memory, number) for number in range(3)]
        receipts = maintained(memory, "tasks", "capacity")
        gone = [result.uri for receipt in receipts for result in receipt.results]
        assert task in gone
        assert len(gone) == 3
        if way == "restore":
            memory.run(RESTORE, ArchiveRequest([away(uri) for uri in gone], now=NOW))
        else:
            for receipt in receipts:
                memory.run(UNDO, UndoRequest(receipt.commit_id, now=NOW))
        assert maintained(memory, "tasks", "capacity", days=1) == []
        assert all(text(memory, uri) for uri in (task, *facts))
        assert maintained(memory, "tasks", days=91)


def test_archived_log_with_private_lines_is_not_explained_to_another_project(memory: Runebook) -> None:
    memory.commit(
        CommitRequest("Secret launch 秘密发布", memory_type="daily_logs", project="acme", private=True, now=NOW)
    )
    log = "viking://user/default/logs/2027-01-28.md"
    moved = memory.store.files.path_for(MemoryUri.parse(away(log)))
    moved.parent.mkdir(parents=True)
    memory.store.files.path_for(MemoryUri.parse(log)).rename(moved)
    memory.store.adopt()
    (entry,) = memory.ls(ListRequest("viking://archive/user/default/logs", here="other")).entries
    assert entry.abstract == "private to another project"
    (entry,) = memory.ls(ListRequest("viking://archive/user/default/logs", here="acme")).entries
    assert "秘密" in (entry.abstract or "")


def test_dry_run_says_what_would_leave_and_writes_nothing(memory: Runebook) -> None:
    uri = kept(memory, "Old offer 旧优惠", 30, expires_at="2027-01-01")
    newest = memory.store.ledger.newest_seq()
    (receipt,) = maintained(memory, dry_run=True)
    assert [result.uri for result in receipt.results] == [uri]
    assert receipt.commit_id == ""
    assert memory.store.ledger.newest_seq() == newest
    assert text(memory, uri)


def test_maintenance_is_undone_like_any_commit(memory: Runebook) -> None:
    uri = kept(memory, "Lease of the flat 房租合同", 30, expires_at="2027-01-01")
    before = text(memory, uri)
    (receipt,) = maintained(memory)
    memory.run(UNDO, UndoRequest(receipt.commit_id, now=NOW))
    assert text(memory, uri) == before
    assert text(memory, away(uri)) == ""
    assert history_of(memory).commits(limit=1)[0].undoes == receipt.commit_id


def test_archived_memory_comes_back_with_history_and_counts_and_stays(memory: Runebook) -> None:
    uri = kept(memory, "Grandma's plum cake 外婆的李子蛋糕", 100, expires_at="2027-01-01")
    memory.store.usage.recalled(Recall(NOW, "q", "find", ((uri, 0.9),), 1.0))
    maintained(memory)
    (listed,) = memory.run(ARCHIVE_LIST, ArchiveListRequest("李子"))
    assert (listed.original, listed.reason) == (uri, "expired")
    assert list(memory.run(ARCHIVE_LIST, ArchiveListRequest("柿子"))) == []
    receipt = memory.run(RESTORE, ArchiveRequest([listed.uri], now=NOW))
    assert [result.uri for result in receipt.results] == [uri]
    assert found(memory, "蛋糕") == [uri]
    assert maintained(memory) == []
    memory.store.usage.flush()
    assert memory.store.ledger.usage_table.usage([uri])[uri].access_count >= 1
    assert len(list(history_of(memory).versions(uri))) == 3
    assert list(memory.run(ARCHIVE_LIST, ArchiveListRequest())) == []


def test_restored_beside_a_newer_memory_of_its_name_nothing_is_overwritten(memory: Runebook) -> None:
    uri = kept(memory, "Old plan 旧计划", fields={"title": "Plan"})
    memory.run(ARCHIVE, ArchiveRequest([uri], now=NOW))
    assert kept(memory, "New plan 新计划", fields={"title": "Plan"}) == uri
    receipt = memory.run(RESTORE, ArchiveRequest([uri], now=NOW))
    (back,) = [result.uri for result in receipt.results]
    assert back != uri
    assert "旧计划" in text(memory, back)
    assert "新计划" in text(memory, uri)


def test_two_archived_memories_of_one_name_are_both_kept(memory: Runebook) -> None:
    for content in ("first 第一", "second 第二"):
        memory.run(ARCHIVE, ArchiveRequest([kept(memory, content, fields={"title": "Plan"})], now=NOW))
    assert sorted(each.abstract for each in memory.run(ARCHIVE_LIST, ArchiveListRequest())) == [
        "first 第一",
        "second 第二",
    ]


def test_what_cannot_be_moved_is_refused_alone(memory: Runebook) -> None:
    uri = kept(memory, "Good 好")
    receipt = memory.run(
        ARCHIVE, ArchiveRequest([uri, f"{USER}/notes/none.md", f"{USER}/notes/.abstract.md", "x"], now=NOW)
    )
    assert [result.action for result in receipt.results] == [Action.DELETED, *[Action.REJECTED] * 3]
    assert all(result.hint for result in receipt.results[1:])
    with pytest.raises(InvalidInput):
        memory.run(RESTORE, ArchiveRequest([]))


def test_archive_of_another_user_is_neither_listed_nor_restored(memory: Runebook) -> None:
    uri = kept(memory, "Alice's diary 日记")
    memory.run(ARCHIVE, ArchiveRequest([uri], now=NOW))
    other = memory.view("bob")
    assert list(other.run(ARCHIVE_LIST, ArchiveListRequest())) == []
    receipt = other.run(RESTORE, ArchiveRequest([away(uri)], now=NOW))
    absent = other.run(RESTORE, ArchiveRequest([away(f"{USER}/notes/none.md")], now=NOW))
    assert receipt.results[0].action is Action.REJECTED
    assert receipt.results[0].hint == absent.results[0].hint
    assert len(list(memory.run(ARCHIVE_LIST, ArchiveListRequest()))) == 1


def test_reader_may_not_maintain(memory: Runebook) -> None:
    reader = memory.view(access=Access.READ_ONLY)
    with pytest.raises(AccessDenied):
        reader.run(MAINTAIN, MaintainRequest())
    with pytest.raises(AccessDenied):
        reader.run(ARCHIVE, ArchiveRequest(["viking://user/default/memories/notes/x.md"]))


def test_unknown_pass_is_named_with_those_there_are(memory: Runebook) -> None:
    with pytest.raises(InvalidInput) as refusal:
        memory.run(MAINTAIN, MaintainRequest(only=["spring-cleaning"]))
    assert "expiry" in refusal.value.hint


@pytest.mark.parametrize("at", ["planned", "acknowledged", "renamed"])
def test_killed_in_the_middle_the_archive_holds_the_memory_or_its_place_does(tmp_path: Path, at: str) -> None:
    killer = Killer()
    with open_memory(words_only(tmp_path), step=killer) as memory:
        uri = kept(memory, "Once 仅此一次", 30, expires_at="2027-01-01")
        killer.step, killer.left = at, 1
        with pytest.raises(Killed):
            maintained(memory)
    with open_memory(words_only(tmp_path)) as memory:
        there, archived = text(memory, uri), text(memory, away(uri))
        assert bool(there) != bool(archived)
        assert bool(there) == (at == "planned")
        maintained(memory)
        assert text(memory, uri) == ""
        assert "仅此一次" in text(memory, away(uri))


def test_running_server_maintains_all_users_once_in_its_time(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        gone = [
            kept(memory.view(space), "Old offer 旧优惠", 30, expires_at="2027-01-01") for space in ("default", "bob")
        ]
        automatic = automatic_maintenance(memory)
        assert automatic is not None
        assert automatic.run_if_due(NOW)
        assert [text(memory, uri) for uri in gone] == ["", ""]
        kept(memory, "Another 另一个", 30, expires_at="2027-01-01")
        assert not automatic.run_if_due(NOW + timedelta(hours=23))
        assert automatic.run_if_due(NOW + timedelta(hours=24))
        assert len(list(memory.run(ARCHIVE_LIST, ArchiveListRequest()))) == 2


@pytest.mark.parametrize("mark", ["", "yesterday", "2027-01-28T10:00:00+00:00", "2099-01-01T00:00:00+00:00"])
def test_mark_that_cannot_be_right_puts_maintenance_off_for_one_turn_at_most(memory: Runebook, mark: str) -> None:
    (memory.store.files.state / "maintained-at").write_text(mark, encoding="utf-8")
    automatic = automatic_maintenance(memory)
    assert automatic is not None
    assert automatic.due_in(NOW) <= timedelta(hours=24)
    assert automatic.run_if_due(NOW + timedelta(hours=25))


def test_a_store_that_is_closed_waits_for_one_commit_of_maintenance_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "BATCH_FILES", 1)
    steps: list[str] = []

    def step(name: str) -> None:
        if steps and name == "planned":
            steps.append(name)
            assert automatic is not None
            automatic.stop()

    with open_memory(words_only(tmp_path), step=step) as memory:
        expired = [kept(memory, f"Offer {number}", 30, expires_at="2027-01-01") for number in range(3)]
        automatic = automatic_maintenance(memory)
        assert automatic is not None
        steps.append("armed")
        assert not automatic.run_if_due(NOW)
        assert [bool(text(memory, uri)) for uri in sorted(expired)] == [False, True, True]
        assert steps == ["armed", "planned"]


def test_a_memory_that_is_not_utf_8_keeps_none_of_the_others(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path, tiers={"long_term_knowledge_capacity": 1})) as memory:
        broken, *others = [learnt(memory, number) for number in range(4)]
        memory.store.files.path_for(MemoryUri.parse(broken)).write_bytes(b"caf\xe9\n")
        (receipt,) = maintained(memory, "capacity")
        assert {result.uri for result in receipt.results} == set(others[1:])


def test_an_archived_file_that_is_not_utf_8_is_listed_with_the_others(memory: Runebook) -> None:
    uris = [kept(memory, content) for content in ("First 第一", "Second 第二")]
    memory.run(ARCHIVE, ArchiveRequest(uris, now=NOW))
    memory.store.files.path_for(MemoryUri.parse(away(uris[0]))).write_bytes(b"caf\xe9\n")
    listed = list(memory.run(ARCHIVE_LIST, ArchiveListRequest()))
    assert {each.original for each in listed} == set(uris)
    assert "caf\ufffd" in {each.abstract for each in listed}


def test_switched_off_it_never_runs_by_itself(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path, maintenance={"automatic": "off"})) as memory:
        assert automatic_maintenance(memory) is None
        assert automatic_maintenance(memory.view(access=Access.READ_ONLY)) is None


def test_segment_is_listed_by_its_summary(memory: Runebook) -> None:
    messages = [
        {"role": role, "content": f"{text} {number}"}
        for number in range(14)
        for role, text in (("user", "支付回调超时怎么办"), ("assistant", "支付回调要幂等,再重试"))
    ]
    memory.commit(CommitRequest(messages=messages, session_id="s", now=NOW))
    memory.opened.background.finish()
    entry = next(iter(memory.ls(ListRequest("viking://session/default/s/segments")).entries))
    assert entry.abstract
    assert "#" not in entry.abstract
    assert "支付回调" in entry.name
