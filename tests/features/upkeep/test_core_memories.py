"""Compression: what nobody uses gives way to a few core memories; no fact is lost, and the originals come back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.commit.links import LINKS_LIMIT
from memory_core.core.config import Config
from memory_core.core.index.indexer import Indexer
from memory_core.core.memory.metadata import Metadata
from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.core.memory.results import Action, CommitReceipt, Status
from memory_core.core.memory.trailer import split
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.usage import Recall
from memory_core.features.forgetting import FORGET, ForgetRequest
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.features.upkeep.archive import ARCHIVE, ARCHIVE_LIST, RESTORE, ArchiveListRequest, ArchiveRequest
from memory_core.features.upkeep.core_memories import parcels
from memory_core.runebook import Runebook, open_memory
from tests.features.upkeep.maintained import NOW, away, kept, maintained, text
from tests.stores import edited, words_only

OLD = 100
TEXTS = (
    "Server A has 16 GB of memory.",
    "Server B has 16 GB of memory.",
    "服务器C有32GB内存。",
    "The kettle does not whistle. It is red.",
    "用户不喜欢香菜，2024年3月5日说的。",
)


def old(memory: Runebook, content: str, days_ago: float = OLD, memory_type: str = "facts", **more: Any) -> str:
    return kept(memory, content, days_ago, memory_type, **more)


def stored(memory: Runebook) -> list[str]:
    return [old(memory, content, OLD + place) for place, content in enumerate(TEXTS)]


def cores(receipt: CommitReceipt) -> list[str]:
    return [result.uri for result in receipt.results if result.op == "condense" and result.action is Action.CREATED]


def used(memory: Runebook, uri: str, times: int, days_ago: float) -> None:
    at = NOW - timedelta(days=days_ago)
    for _ in range(times):
        memory.store.usage.recalled(Recall(at, "q", "find", ((uri, 0.9),), 1.0))


def test_unused_memories_become_one_core_that_says_every_fact_and_links_back(memory: Runebook) -> None:
    uris = stored(memory)
    before = {uri: text(memory, uri) for uri in uris}
    (receipt,) = maintained(memory, "compression")
    (core,) = cores(receipt)
    file = split(text(memory, core))
    for content in TEXTS:
        assert content in file.body
    meta = dict(file.trailer or {})
    assert {link["uri"] for link in meta["links"]} == {away(uri) for uri in uris}
    assert {link["relation"] for link in meta["links"]} == {"replaces"}
    assert (meta["memory_type"], meta["source"]["kind"]) == ("facts", "compression")
    for uri in uris:
        assert text(memory, uri) == ""
        archived = split(text(memory, away(uri)))
        assert archived.body == split(before[uri]).body
        assert (archived.trailer or {})["archived"]["replaced_by"] == core
    assert [hit.uri for hit in memory.find(FindRequest("香菜", now=NOW)).hits] == [core]


def test_the_receipt_names_where_each_original_is_also_where_its_name_was_taken(memory: Runebook) -> None:
    first = stored(memory)[0]
    memory.run(ARCHIVE, ArchiveRequest([first], now=NOW))
    assert old(memory, TEXTS[0]) == first
    (receipt,) = maintained(memory, "compression")
    notes = [result.note or "" for result in receipt.results if result.op == "archive"]
    places = [note.rpartition("; now ")[2] for note in notes]
    assert away(first) not in places
    (core,) = cores(receipt)
    assert {(split(text(memory, place)).trailer or {})["archived"]["replaced_by"] for place in places} == {core}


def test_a_memory_that_is_not_utf_8_keeps_no_others_from_being_condensed(memory: Runebook) -> None:
    broken, *others = stored(memory)
    old(memory, "The fence is green.", OLD)
    memory.store.files.path_for(MemoryUri.parse(broken)).write_bytes(b"caf\xe9\n")
    (receipt,) = maintained(memory, "compression")
    assert set(others) < {result.uri for result in receipt.results if result.op == "archive"}


def test_second_run_changes_nothing_and_cores_alone_are_left_alone(memory: Runebook) -> None:
    for topic in ("Assam tea is strong", "上海机房供电正常", "Trains leave Leeds hourly"):
        for number in range(3):
            old(memory, f"{topic} {number}.")
    (receipt,) = maintained(memory, "compression")
    assert len(cores(receipt)) == 3
    assert maintained(memory, "compression") == []
    assert maintained(memory, "compression", days=400) == []


def test_core_is_condensed_again_with_others_and_keeps_all_it_says(memory: Runebook) -> None:
    for content in TEXTS[:4]:
        old(memory, content)
    code = "```sh\nmake all\nmake test\n```"
    old(memory, f"How to build 构建: {code}", memory_type="facts", fields={"topic": "Build 构建"})
    (first,) = cores(maintained(memory, "compression")[0])
    assert "make test" in split(text(memory, first)).body
    for number in (7, 8):
        old(memory, f"Rack {number} stands in Leeds. 机柜{number}。", -1)
    (second,) = cores(maintained(memory, "compression", days=200)[0])
    body = split(text(memory, second)).body
    for content in (*TEXTS[:4], "Rack 7 stands in Leeds.", "机柜8。", "make all", "make test"):
        assert content in body
    assert text(memory, first) == ""
    assert text(memory, away(first)) != ""


def test_dry_run_shows_what_becomes_of_what_and_writes_nothing(memory: Runebook) -> None:
    uris = stored(memory)
    newest = memory.store.ledger.newest_seq()
    (receipt,) = maintained(memory, "compression", dry_run=True)
    assert receipt.status is Status.DRY_RUN
    (core,) = cores(receipt)
    archived = {result.uri: result.note or "" for result in receipt.results if result.op == "archive"}
    assert sorted(archived) == sorted(uris)
    assert all(core in note and away(uri) in note for uri, note in archived.items())
    assert memory.store.ledger.newest_seq() == newest
    assert all(text(memory, uri) for uri in uris)


def test_undo_brings_the_originals_back_and_they_are_not_condensed_again_at_once(memory: Runebook) -> None:
    uris = stored(memory)
    before = [text(memory, uri) for uri in uris]
    (receipt,) = maintained(memory, "compression")
    memory.run(UNDO, UndoRequest(receipt.commit_id, now=NOW))
    assert [text(memory, uri) for uri in uris] == before
    assert text(memory, cores(receipt)[0]) == ""
    assert list(memory.run(ARCHIVE_LIST, ArchiveListRequest())) == []
    assert maintained(memory, "compression", days=1) == []
    assert len(maintained(memory, "compression", days=91)) == 1


def test_original_comes_back_by_hand_beside_the_core(memory: Runebook) -> None:
    uris = stored(memory)
    (receipt,) = maintained(memory, "compression")
    memory.run(RESTORE, ArchiveRequest([away(uris[0])], now=NOW))
    file = split(text(memory, uris[0]))
    assert TEXTS[0] in file.body
    assert "archived" not in (file.trailer or {})
    assert text(memory, cores(receipt)[0])
    assert maintained(memory, "compression", days=1) == []


def test_what_must_not_be_condensed_or_is_of_another_kind_stays(memory: Runebook) -> None:
    spared = [
        old(memory, "Pinned 钉住", pinned=True),
        old(memory, "Critical 要紧", priority=0.9),
        old(memory, "Until then 到时为止", expires_at="2028-01-01"),
        old(memory, "Resting 搁置"),
        old(memory, "Call Anna 打电话", memory_type="tasks"),
        old(memory, "Call Bob 打电话", memory_type="tasks"),
        old(memory, "Call Cleo 打电话", memory_type="tasks"),
        old(memory, "Tea 茶", memory_type="preferences"),
        old(memory, "Acme's own 仅限项目", project="acme", private=True),
        old(memory, "Acme 项目", project="acme"),
    ]
    edited(memory, spared[3], {"active": False}, now=NOW - timedelta(days=OLD))
    others = [old(memory, content) for content in TEXTS[:2]]
    assert maintained(memory, "compression") == []
    others.append(old(memory, TEXTS[2]))
    assert len(maintained(memory, "compression")) == 1
    assert all(text(memory, uri) for uri in spared)
    assert not any(text(memory, uri) for uri in others)


def test_profile_tools_and_skills_are_never_condensed(memory: Runebook) -> None:
    old(memory, "Nurse in Leeds 护士", memory_type="profile")
    for number in range(4):
        fields = {"tool_name": f"tool {number}", "best_for": "tests 测试", "total_calls": 1}
        old(memory, None, memory_type="tools", fields=fields)  # type: ignore[arg-type]
        skill = {"skill_name": f"skill {number}", "best_for": "tests 测试"}
        old(memory, None, memory_type="skills", fields=skill)  # type: ignore[arg-type]
    assert maintained(memory, "compression") == []


def test_use_and_change_keep_a_memory_from_being_condensed(memory: Runebook) -> None:
    often, lately, rarely = stored(memory)[:3]
    used(memory, often, 5, 95)
    used(memory, lately, 1, 89)
    used(memory, rarely, 4, 91)
    old(memory, "Changed 89 days ago 最近改过", 89)
    (receipt,) = maintained(memory, "compression")
    gone = {result.uri for result in receipt.results if result.op == "archive"}
    assert len(gone) == 3
    assert rarely in gone
    assert not gone & {often, lately}


def test_contested_memory_is_not_stated_as_plain_in_a_core(memory: Runebook) -> None:
    first, second, *_ = stored(memory)
    link = {"uri": second, "relation": "contradicts"}
    edited(memory, first, {"links": [link]}, now=NOW - timedelta(days=OLD))
    (receipt,) = maintained(memory, "compression")
    gone = {result.uri for result in receipt.results if result.op == "archive"}
    assert not gone & {first, second}
    assert len(gone) == 3


def test_core_carries_salience_confidence_tags_fields_and_privacy_over(memory: Runebook) -> None:
    for number, confidence in enumerate((1.0, 0.4, 0.7)):
        data = {
            "memory_type": "entities",
            "fields": {
                "entity_name": f"Rack {number} 机柜",
                "entity_type": "rack",
                "content": f"stands in hall {number}",
            },
            "salience": 0.3 + number / 10,
            "confidence": confidence,
            "tags": ["hall", f"t{number}"],
        }
        operations = {"write_operations": [{"memory_data": data}]}
        memory.commit(CommitRequest(operations=operations, project="acme", private=True, now=NOW - timedelta(days=OLD)))
    (core,) = cores(maintained(memory, "compression")[0])
    meta = dict(split(text(memory, core)).trailer or {})
    assert (meta["salience"], meta["confidence"], meta["entity_type"]) == (0.5, 0.7, "rack")
    assert meta["tags"] == ["hall", "t0", "t1", "t2"]
    assert (meta["project"], meta["private"]) == ("acme", True)
    assert "stands in hall 2" in split(text(memory, core)).body
    assert memory.find(FindRequest("rack", now=NOW, project="other")).hits == ()


def test_memory_too_long_for_a_core_stays_and_the_receipt_says_so(memory: Runebook) -> None:
    lines = [f"Paragraph {n} of the diary: the lamp cost {n * 11} euro. 日记第{n}段。" for n in range(60)]
    long = old(memory, "\n\n".join(lines), memory_type="notes")
    short = [old(memory, f"Short note {n}. 短笔记{n}。", memory_type="notes") for n in range(3)]
    (receipt,) = maintained(memory, "compression")
    assert split(text(memory, long)).body == "\n\n".join(lines)
    assert not any(text(memory, uri) for uri in short)
    (note,) = receipt.notes
    assert note.startswith("3 of 4 memories")
    assert "1 longer than 2000 characters" in note
    assert maintained(memory, "compression") == []


def test_every_word_of_short_memories_is_still_found(memory: Runebook) -> None:
    words = [
        f"{first}{last}" for first in ("har", "vio", "lan", "qua", "tim") for last in ("bor", "lin", "tern", "rry")
    ]
    facts = [
        f"The {word} unit in hall {100 + n} must not be opened. Its code is {7000 + n * 13}. 第{n}号柜不得打开。"
        for n, word in enumerate(words)
    ]
    for word, fact in zip(words, facts, strict=True):
        old(memory, fact, memory_type="notes", fields={"title": word})
    bodies = [split(text(memory, core)).body for core in cores(maintained(memory, "compression")[0])]
    assert all(f"**{word}**: {fact}" in "\n".join(bodies) for word, fact in zip(words, facts, strict=True))
    assert all(len(body) <= 6_000 for body in bodies)
    assert all(memory.find(FindRequest(str(7000 + n * 13), now=NOW)).hits for n in (0, 7, 19))


def test_equal_words_under_different_names_are_different_facts(memory: Runebook) -> None:
    dates = {"Bob": "May 3", "Lin": "May 3", "Eve": "June 9", "张三": "5月3日", "李四": "5月3日"}
    for name, day in dates.items():
        old(memory, day, fields={"topic": f"Birthday of {name}" if name.isascii() else f"{name}的生日"})
    (core,) = cores(maintained(memory, "compression")[0])
    lines = split(text(memory, core)).body.split("\n")
    assert {"- **Birthday of Bob**: May 3", "- **Birthday of Lin**: May 3", "- **Birthday of Eve**: June 9"} <= set(
        lines
    )
    assert {"- **张三的生日**：5月3日", "- **李四的生日**：5月3日"} <= set(lines)


def test_heading_of_a_list_stays_with_its_items_and_comes_through_twice(memory: Runebook) -> None:
    lists = {
        "Plant A": "Never do this:\n- restart pump 1 hot\n- open valve 2",
        "Plant B": "Never do this:\n- restart pump 1 hot\n\n  at night",
        "丙厂": "严禁：\n- 夜间开阀\n- 热启动",
    }
    for name, rules in lists.items():
        old(memory, rules, memory_type="notes", fields={"title": name})
    (first,) = cores(maintained(memory, "compression")[0])
    for number in (1, 2):
        old(memory, f"Note {number} 笔记", -1, memory_type="notes")
    body = split(text(memory, first)).body
    (second,) = cores(maintained(memory, "compression", days=200)[0])
    whole = split(text(memory, second)).body
    for part in (
        "- **Plant A**:\n  Never do this:\n  - restart pump 1 hot\n  - open valve 2",
        "- **Plant B**:\n  Never do this:\n  - restart pump 1 hot\n\n    at night",
        "- **丙厂**：\n  严禁：\n  - 夜间开阀\n  - 热启动",
    ):
        assert part in body
        assert part in whole


def test_original_that_was_restored_is_said_once_when_it_meets_its_core_again(memory: Runebook) -> None:
    uris = stored(memory)
    maintained(memory, "compression")
    memory.run(RESTORE, ArchiveRequest([away(uris[0])], now=NOW))
    old(memory, "Rack 7 stands in Leeds. 机柜7。", -1)
    (core,) = cores(maintained(memory, "compression", days=200)[0])
    body = split(text(memory, core)).body
    assert body.count(TEXTS[0]) == 1
    assert "机柜7" in body


@pytest.mark.parametrize("mark", ["yes", "true", 1])
def test_pin_written_by_hand_counts(memory: Runebook, mark: str | int) -> None:
    uris = stored(memory)
    path = memory.store.files.path_for(MemoryUri.parse(uris[0]))
    old = path.read_text(encoding="utf-8")
    path.write_text(old.replace('"version": 1', f'"version": 1, "pinned": {json.dumps(mark)}'), encoding="utf-8")
    (receipt,) = maintained(memory, "compression", days=200)
    assert text(memory, uris[0])
    assert len([result for result in receipt.results if result.op == "archive"]) == len(uris) - 1


def test_pin_that_says_no_by_hand_is_none() -> None:
    assert [Metadata({"pinned": value}).is_pinned for value in ("no", "False", "否", "", 0, None, False)] == [False] * 7
    assert [Metadata({"pinned": value}).is_pinned for value in ("Yes", "on", "是", 1, True, ["x"])] == [True] * 6


def test_forgetting_a_core_says_where_its_originals_are_and_forgets_them_when_asked(memory: Runebook) -> None:
    uris = stored(memory)
    (core,) = cores(maintained(memory, "compression")[0])
    originals = [away(uri) for uri in uris]
    preview = memory.run(FORGET, ForgetRequest(uris=[core], now=NOW))
    forgotten = memory.run(FORGET, ForgetRequest(uris=[core], confirm=1, now=NOW))
    for receipt in (preview, forgotten):
        assert any(all(uri in note for uri in originals) for note in receipt.notes)
    assert all(text(memory, uri) for uri in originals)
    receipt = memory.run(FORGET, ForgetRequest(uris=originals, confirm=len(originals), now=NOW))
    assert receipt.status is Status.COMMITTED
    assert list(memory.run(ARCHIVE_LIST, ArchiveListRequest())) == []
    memory.run(UNDO, UndoRequest(receipt.commit_id, now=NOW))
    assert all(text(memory, uri) for uri in originals)


def test_many_memories_become_cores_of_bounded_size_by_topic(memory: Runebook) -> None:
    tea = [f"Tea number {n} from Assam is strong tea for breakfast." for n in range(30)]
    rack = [f"机柜{n}号在上海机房里，供电正常。" for n in range(30)]
    for content in [fact for pair in zip(tea, rack, strict=True) for fact in pair]:
        old(memory, content)
    receipts = maintained(memory, "compression")
    assert len(receipts) == 1
    bodies = [split(text(memory, uri)).body for uri in cores(receipts[0])]
    assert all(sum(fact in body for body in bodies) == 1 for fact in (*tea, *rack))
    assert 2 <= len(bodies) <= 6
    assert any("Assam" in body and "机柜" not in body for body in bodies)


def test_maintenance_waits_until_the_index_knows_all(memory: Runebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Indexer.follow, "__defaults__", (0.0, None, ()))  # as on a busy machine: others wait no longer
    uris = stored(memory)
    (receipt,) = maintained(memory, "compression")
    assert set(_originals(text(memory, cores(receipt)[0]))) == set(map(away, uris))


def test_memories_are_grouped_by_meaning_where_there_is_a_model(tmp_path: Path) -> None:
    with open_memory(Config(home=tmp_path)) as memory:
        tea = [old(memory, f"Tea number {n} from Assam 阿萨姆红茶.") for n in range(3)]
        rack = [old(memory, f"Server rack {n} hums 机柜嗡嗡响.") for n in range(3)]
        (receipt,) = maintained(memory, "compression")
        found = {frozenset(_originals(text(memory, core))) for core in cores(receipt)}
        assert found == {frozenset(map(away, tea)), frozenset(map(away, rack))}


def _originals(core: str) -> list[str]:
    return [link["uri"] for link in dict(split(core).trailer or {})["links"]]


def test_compression_can_be_switched_off(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path, maintenance={"compression": False})) as memory:
        stored(memory)
        assert maintained(memory, "compression") == []


def test_parcels_hold_what_is_alike_and_none_is_too_small_or_too_large() -> None:
    kind = [0, 1, 0, 1, 0, 1, 2]

    def similarity(one: int, others: Sequence[int]) -> list[float]:
        return [1.0 if kind[one] == kind[other] else 0.1 for other in others]

    assert parcels([1] * 7, similarity, 0.5, room=9, least=3) == [[0, 2, 4], [1, 3, 5, 6]]
    assert parcels([], similarity, 0.5, room=9, least=3) == []
    lengths = [3, 2, 2, 4, 4, 1, 4]
    found = parcels(lengths, similarity, 0.5, room=12, least=3)
    assert all(sum(lengths[place] for place in parcel) <= 12 and len(parcel) >= 3 for parcel in found)
    assert sorted(place for parcel in found for place in parcel) == list(range(7))


def test_a_core_replaces_no_more_memories_than_it_may_name() -> None:
    found = parcels([1] * 59, lambda _one, others: [1.0] * len(others), 0.5, room=1_000, least=20)
    assert [len(parcel) <= LINKS_LIMIT for parcel in found] == [True]
