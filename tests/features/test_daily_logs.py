"""The log of the day: appended to, found by entry, readable, and never rewritten."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.commit.decide import decide
from memory_core.core.errors import ContentRejected
from memory_core.core.memory.operations import MemoryOperations
from memory_core.core.memory.requests import CommitRequest, FindRequest, ReadRequest, RetrieveRequest
from memory_core.core.memory.results import Action, CommitReceipt, Status
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.local import Snapshot
from memory_core.features.daily_logs import entries
from memory_core.runebook import Runebook
from tests.stores import by_hand, handed_in, write

LOG = "viking://user/default/logs/2026-05-07.md"
#: Seven in the evening in London, three in the morning of the next day in Shanghai.
LONDON = datetime(2026, 5, 7, 19, 0, tzinfo=timezone(timedelta(hours=0)))
SHANGHAI = LONDON.astimezone(timezone(timedelta(hours=8)))


def logged(memory: Runebook, text: str, **more: Any) -> CommitReceipt:
    """An entry of the day."""
    return memory.commit(CommitRequest(text, **{"memory_type": "daily_logs", "now": LONDON, **more}))


def log_file(memory: Runebook, day: str = "2026-05-07") -> Path:
    return memory.config.root / "user" / "default" / "logs" / f"{day}.md"


def test_entries_of_a_day_are_appended_in_order_with_a_receipt(memory: Runebook) -> None:
    first = logged(memory, "Moved the payment service.")
    second = logged(
        memory,
        "迁移花了两次。",
        category="工作",
        priority="high",
        fields={"kind": "reflection", "tool": "kubectl", "error": "timeout"},
        now=LONDON + timedelta(minutes=5),
    )
    assert [(result.uri, result.action) for result in (*first.results, *second.results)] == [
        (LOG, Action.CREATED),
        (LOG, Action.UPDATED),
    ]
    assert log_file(memory).read_text(encoding="utf-8") == (
        "# 2026-05-07\n\n"
        '- 19:00 Moved the payment service.\n  <!-- {"at": "2026-05-07T19:00:00+00:00"} -->\n'
        '- 19:05 迁移花了两次。\n  <!-- {"at": "2026-05-07T19:05:00+00:00", "kind": "reflection", "salience": 0.8, '
        '"category": "工作", "tool": "kubectl", "error": "timeout"} -->\n'
    )


def test_a_log_that_is_full_takes_no_more_and_says_so(memory: Runebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory_core.features.daily_logs._LOG_CHARS", 200)
    logged(memory, "Moved the payment service.")
    full = logged(memory, "A long story. " * 20)
    assert (full.results[0].action, full.results[0].hint) == (Action.REJECTED, "Write it tomorrow.")
    assert logged(memory, "Short.").results[0].action is Action.UPDATED


def test_one_entry_that_is_too_long_does_not_keep_out_the_next(
    memory: Runebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory_core.features.daily_logs._LOG_CHARS", 200)
    texts = ("A long story. " * 20, "Short.")
    receipt = handed_in(memory, write=[write("daily_logs", content=text) for text in texts])
    assert [result.action for result in receipt.results] == [Action.REJECTED, Action.CREATED]


def test_entries_that_come_one_after_another_have_their_log_indexed_once(
    memory: Runebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged(memory, "The first entry.")
    memory.indexer.follow(None)
    read: list[str] = []
    text_at = memory.store.ledger.text_at

    def counted(uri: MemoryUri) -> str | None:
        read.append(str(uri))
        return text_at(uri)

    monkeypatch.setattr(memory.store.ledger, "text_at", counted)
    with memory.indexer.catalog.lock("index-follow").held():
        for number in range(20):
            logged(memory, f"Entry {number} of a long day.")
    memory.indexer.follow(None)
    assert 1 <= read.count(LOG) < 5
    assert [hit.abstract for hit in memory.find(FindRequest("entry 19 of a long day", limit=1)).resources] == [
        "2026-05-07 19:00 Entry 19 of a long day."
    ]


def test_the_day_is_that_of_the_clock_on_the_wall(memory: Runebook) -> None:
    logged(memory, "晚上好", now=SHANGHAI)
    assert log_file(memory, "2026-05-08").read_text(encoding="utf-8").startswith("# 2026-05-08\n\n- 03:00 晚上好\n")


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the zone of a process cannot be set on Windows")
def test_without_a_given_time_the_machine_s_own_clock_says_the_day(
    memory: Runebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "XXX-14")  # fourteen hours before Greenwich, where it is tomorrow for most of the day
        time.tzset()
        receipt = logged(memory, "迁移", now=None)
    time.tzset()
    day = receipt.results[0].uri.rpartition("/")[2].removesuffix(".md")
    assert f'"at": "{day}T' in log_file(memory, day).read_text(encoding="utf-8")
    assert "+14:00" in log_file(memory, day).read_text(encoding="utf-8")


def test_the_same_entry_twice_is_two_entries_but_a_repeated_request_is_one(memory: Runebook) -> None:
    for _ in range(2):
        logged(memory, "Tests are green.")
    first = logged(memory, "Deployed.", request_id="r1")
    again = logged(memory, "Deployed.", request_id="r1")
    assert again.commit_id == first.commit_id
    text = log_file(memory).read_text(encoding="utf-8")
    assert (text.count("Tests are green."), text.count("Deployed.")) == (2, 1)
    assert all(row.appended for row in memory.store.ledger.changes_between(0, 10)), (
        "history keeps the whole log each time"
    )


@pytest.mark.parametrize("category", ["daily_logs", "Daily Log", "日志", "每日日志"])
def test_a_category_may_name_the_log_too(memory: Runebook, category: str) -> None:
    receipt = memory.commit(CommitRequest("went running", category=category, now=LONDON))
    assert receipt.results[0].uri == LOG
    assert "category" not in log_file(memory).read_text(encoding="utf-8")


def test_operations_may_write_to_the_log_beside_memories(memory: Runebook) -> None:
    writes = [
        {"memory_data": {"memory_type": "facts", "fields": {"content": "The user lives in Chengdu."}}},
        {"memory_data": {"memory_type": "daily_logs", "fields": {"content": "搬到了成都", "kind": "auto_extract"}}},
        {"memory_data": {"memory_type": "daily_logs", "fields": {"content": "odd", "kind": "gossip"}}},
        {"memory_data": {"memory_type": "facts", "fields": {"content": "The user has a cat."}}},
    ]
    receipt = memory.commit(CommitRequest(operations={"write_operations": writes}, now=LONDON))
    assert receipt.status is Status.PARTIAL
    assert [(result.uri.split("/")[-2], result.action) for result in receipt.results] == [
        ("facts", Action.CREATED),
        ("logs", Action.CREATED),
        ("logs", Action.REJECTED),
        ("facts", Action.CREATED),
    ]
    assert "event | auto_extract" in (receipt.results[2].hint or "").replace(", ", " | ")
    assert '"kind": "auto_extract"' in log_file(memory).read_text(encoding="utf-8")


def test_what_says_nothing_is_refused_and_nothing_is_written(memory: Runebook) -> None:
    with pytest.raises(ContentRejected):
        logged(memory, "  ")
    for fields in ({"kind": "event"}, {"content": "a\x00b"}, {"content": "x", "kind": "diary"}, {"content": "\ud800"}):
        assert (
            memory.commit(CommitRequest(fields=fields, memory_type="daily_logs", now=LONDON)).status is Status.REJECTED
        )
    assert logged(memory, "x", dry_run=True).status is Status.DRY_RUN
    assert not log_file(memory).exists()


def test_a_log_written_by_hand_keeps_every_byte(memory: Runebook) -> None:
    by_hand = "# Thursday\r\n\r\nA quiet day, 没有事。"
    log_file(memory).parent.mkdir(parents=True)
    log_file(memory).write_bytes(by_hand.encode("utf-8"))
    logged(memory, "Deployed.")
    logged(memory, "Deployed again.")
    assert log_file(memory).read_bytes().decode("utf-8").startswith(by_hand)
    assert [hit.abstract for hit in memory.find(FindRequest("没有事")).resources] == [
        "2026-05-07 A quiet day, 没有事。"
    ]


def test_entries_are_found_one_by_one_and_read_whole(memory: Runebook) -> None:
    logged(memory, "Moved the payment service.\nIt took two tries.")
    logged(memory, "和小红讨论了预算", category="会议", now=LONDON + timedelta(minutes=5))
    (english,) = memory.find(FindRequest("payment service")).resources
    (chinese,) = memory.find(FindRequest("预算 讨论")).resources
    assert (english.memory_type, english.context_type) == ("daily_logs", "resource")
    assert chinese.abstract == "2026-05-07 19:05 和小红讨论了预算"
    assert memory.read(ReadRequest(english.uri)).content.startswith(
        "- 19:00 Moved the payment service.\n  It took two tries.\n"
    )
    assert "小红" not in memory.read(ReadRequest(english.uri)).content
    assert memory.read(ReadRequest(chinese.uri)).content.startswith("- 19:05 和小红讨论了预算\n")


def test_an_edit_by_hand_and_a_removed_entry_are_followed(memory: Runebook) -> None:
    logged(memory, "Moved the payment service.")
    logged(memory, "Ordered new keyboards.")
    path = log_file(memory)
    path.write_text(path.read_text(encoding="utf-8").replace("keyboards", "monitors"), encoding="utf-8", newline="\n")
    logged(memory, "Lunch.")
    assert len(memory.find(FindRequest("monitors")).resources) == 1
    assert memory.find(FindRequest("keyboards")).total == 0
    path.unlink()
    memory.store.adopt()
    assert memory.find(FindRequest("payment")).total == 0


def test_a_private_entry_is_for_its_project_only(memory: Runebook) -> None:
    logged(memory, "和小红讨论了预算", project="acme", private=True)
    logged(memory, "午饭讨论了预算")
    assert len(memory.find(FindRequest("讨论 预算", here="acme")).resources) == 2
    assert [hit.abstract for hit in memory.find(FindRequest("讨论 预算", here="other")).resources] == [
        "2026-05-07 19:00 午饭讨论了预算"
    ]
    for here, seen in (("acme", True), ("other", False)):
        text = memory.retrieve(RetrieveRequest("今天做了什么", here=here, now=LONDON)).text
        assert ("午饭" in text, "小红" in text, "<!--" in text) == (True, seen, False)


def test_a_filter_by_category_picks_memories_and_entries(memory: Runebook) -> None:
    logged(memory, "Budget review moved to Friday.", category="work")
    logged(memory, "Budget for the holiday is small.", category="home")
    memory.commit(CommitRequest("The budget tool is slow.", category="work"))
    memory.commit(CommitRequest("The kitchen budget is spent.", category="home"))
    found = memory.find(FindRequest("budget", filter={"category": "work"}))
    assert sorted(hit.abstract.partition("udget")[2] for hit in found.hits) == [
        " review moved to Friday.",
        " tool is slow.",
    ]
    found = memory.find(FindRequest("budget", filter={"and": [{"category": "home"}, {"memory_type": "daily_logs"}]}))
    assert [hit.uri.partition("#")[0] for hit in found.hits] == [LOG]


def test_many_entries_for_a_log_that_is_large_already_are_put_to_its_end_at_once(memory: Runebook) -> None:
    before = f"# 2026-05-07\n\n- {'y' * 1_000_000}\n"
    by_hand(memory.config.root, "user/default/logs/2026-05-07.md", before)
    operations = MemoryOperations.model_validate(
        {"write_operations": [write("daily_logs", content=f"Step {n}.") for n in range(10_000)]}
    )
    decided = decide(operations, Snapshot(memory.store), memory.plan_context(LONDON), LONDON, memory.features)
    (change,) = decided.changes
    assert (change.after or "").startswith(before)
    added = entries((change.after or "").removeprefix(before))
    assert [entry.text for entry in added] == [f"Step {n}." for n in range(10_000)]
    assert {result.action for result in decided.results} == {Action.UPDATED}


def test_results_keep_the_order_of_the_operations(memory: Runebook) -> None:
    note = "viking://user/default/memories/notes/Tea.md"
    tea, cup = (write("notes", title=title, content=title) for title in ("Tea", "Cup"))
    log, empty = (write("daily_logs", content=content) for content in ("Same.", " "))
    receipt = handed_in(memory, write=[log, tea, empty, log, cup, log], delete=[{"uri": note}], now=LONDON)
    own, gone = (LOG, Action.UPDATED), (note, Action.DELETED)
    assert [(result.uri, result.action) for result in receipt.results] == [
        (LOG, Action.CREATED),
        (note, Action.CREATED),
        (LOG, Action.REJECTED),
        own,
        (note.replace("Tea", "Cup"), Action.CREATED),
        own,
        gone,
    ]
    assert [entry.text for entry in entries(log_file(memory).read_text("utf-8"))] == ["Same."] * 3
