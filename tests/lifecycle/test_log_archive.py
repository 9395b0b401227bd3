"""Old logs are summarised and moved away; what matters of them becomes memories, once; nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memory_core.config import Config
from memory_core.memory import Memory, open_memory
from memory_core.model.changes import CommitReceipt, Status
from memory_core.model.memory_file import parse
from memory_core.model.uri import MemoryUri

NOW = datetime(2027, 1, 28, 9, 0, tzinfo=UTC)
LOGS = "viking://user/default/logs"
USER = "viking://user/default/memories"
DECEMBER = f"{LOGS}/summaries/2026-12.md"


def settings_of(root: Path, **more: Any) -> Config:
    return Config.model_validate({"home": root, "embedding": {"provider": "none"}, **more})


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with open_memory(settings_of(tmp_path)) as opened:
        yield opened


def logged(memory: Memory, content: str, days_ago: float, kind: str = "event", **more: Any) -> str:
    """The URI of the log that got the entry."""
    fields = {"kind": kind} | {name: more.pop(name) for name in ("tool", "error") if name in more}
    receipt = memory.commit(
        content, memory_type="daily_logs", now=NOW - timedelta(days=days_ago), fields=fields, **more
    )
    assert receipt.status is Status.COMMITTED, receipt
    return receipt.results[0].uri


def maintained(memory: Memory, *, days: float = 0, dry_run: bool = False) -> list[CommitReceipt]:
    (done,) = memory.maintain(now=NOW + timedelta(days=days), only=["logs"], dry_run=dry_run)
    assert done.failure is None
    return list(done.receipts)


def text(memory: Memory, uri: str) -> str:
    return memory.store.text(MemoryUri.parse(uri)) or ""


def written(memory: Memory, uri: str, content: str) -> None:
    """What a person saves."""
    path = memory.store.files.path_for(MemoryUri.parse(uri))
    path.write_text(content, encoding="utf-8", newline="\n")


def away(uri: str) -> str:
    return uri.replace("viking://", "viking://archive/")


def changed(receipts: list[CommitReceipt], op: str) -> list[str]:
    return [result.uri for receipt in receipts for result in receipt.results if result.op == op]


def test_old_logs_become_one_summary_a_month_with_links_to_the_days(memory: Memory) -> None:
    first = logged(memory, "Moved the payment service to the new cluster. It took 2 tries.", 40)
    second = logged(memory, "和小王签了合同，金额35000元，没有预付款。", 41)
    recent = logged(memory, "Not old yet 还不旧", 30)
    raw = text(memory, first)
    (receipt,) = maintained(memory)
    assert changed([receipt], "summary") == [DECEMBER]
    body = parse(text(memory, DECEMBER)).body
    assert f"[2026-12-19]({first})" in body
    assert f"[2026-12-18]({second})" in body
    assert "It took 2 tries." in body
    assert "金额35000元，没有预付款。" in body
    assert "Not old yet" not in body
    assert (text(memory, first), bool(text(memory, recent))) == (raw, True)
    assert DECEMBER in {hit.uri for hit in memory.find("payment cluster", now=NOW).hits}
    assert maintained(memory) == []


def test_log_that_a_person_edits_later_is_summarised_again(memory: Memory) -> None:
    log = logged(memory, "Paid 30 euro 付了30欧元", 40)
    maintained(memory)
    written(memory, log, text(memory, log).replace("30 euro", "35 euro"))
    (receipt,) = maintained(memory)
    assert changed([receipt], "summary") == [DECEMBER]
    assert "35 euro" in text(memory, DECEMBER)
    assert "30 euro" not in text(memory, DECEMBER)
    assert maintained(memory) == []


def test_summary_that_a_person_edited_is_kept_and_new_days_are_added(memory: Memory) -> None:
    logged(memory, "First day 第一天", 41)
    later = logged(memory, "Second day 第二天", 30)
    maintained(memory)
    assert later not in text(memory, DECEMBER)
    own = text(memory, DECEMBER).replace("# 2026-12", "# My December 我的十二月")
    written(memory, DECEMBER, own)
    maintained(memory, days=1)
    body = parse(text(memory, DECEMBER)).body
    assert body.startswith("# My December 我的十二月")
    assert "第一天" in body
    assert later in body
    assert "第二天" in body
    assert maintained(memory, days=1) == []


def test_what_matters_is_promoted_once_and_says_where_it_came_from(memory: Memory) -> None:
    lesson = "fetch_url gives nothing for https://example.com, a React page."
    log = logged(memory, lesson, 40, "reflection", tool="fetch_url", error="empty_content")
    logged(memory, "用户喜欢在下午3点开会。", 40, "auto_extract", category="preferences")
    logged(memory, "Signed the lease. 签了租约。", 40, priority="high")
    logged(memory, "Had lunch 吃了午饭", 40)
    logged(memory, "Maybe Kotlin 也许", 40, "auto_extract", category="musings")
    logged(memory, "Nurse in Leeds 护士", 40, "auto_extract", category="profile")
    (receipt,) = maintained(memory)
    promoted = {parse(text(memory, uri)).body.splitlines()[0]: uri for uri in changed([receipt], "write")}
    assert set(promoted) == {lesson, "用户喜欢在下午3点开会。", "Signed the lease. 签了租约。"}
    assert promoted[lesson].startswith("viking://agent/default/memories/patterns/")
    assert promoted["用户喜欢在下午3点开会。"].startswith(f"{USER}/preferences/")
    assert promoted["Signed the lease. 签了租约。"].startswith(f"{USER}/events/2026-12-19_")
    source = (parse(text(memory, promoted[lesson])).trailer or {})["source"]
    where, _, line = source["log"].partition("#")
    assert where == log
    assert lesson in text(memory, log).split("\n")[int(line)]
    memory.commit(operations={"delete_operations": [{"uri": promoted[lesson]}]}, now=NOW)
    written(memory, log, f"{text(memory, log)}\n- 23:00 one more 还有一条\n")
    (again,) = maintained(memory)
    assert changed([again], "write") == []


def test_private_entries_stay_with_their_project(memory: Memory) -> None:
    logged(memory, "Acme's budget is 5 million 预算", 40, project="acme", private=True, priority="high")
    logged(memory, "Kickoff with acme 启动会", 40, project="acme", private=False, priority="high")
    logged(memory, "Plain day 平常", 40)
    receipts = maintained(memory)
    secret = next(uri for uri in changed(receipts, "summary") if "acme" in uri)
    assert "budget" not in text(memory, DECEMBER)
    assert "Kickoff" in text(memory, DECEMBER)
    assert "budget" in text(memory, secret)
    trailers = {uri: parse(text(memory, uri)).trailer or {} for uri in changed(receipts, "write")}
    belongs = {(meta.get("project"), meta.get("private")) for meta in trailers.values()}
    assert belongs == {("acme", True), ("acme", None)}
    seen = [hit.uri for hit in memory.find("budget 预算", now=NOW, project="other").hits]
    assert seen == []
    hits = {hit.uri for hit in memory.find("budget 预算", now=NOW, project="acme").hits}
    assert secret in hits
    assert maintained(memory) == []


def test_raw_log_moves_to_the_archive_and_a_restored_one_stays(memory: Memory) -> None:
    log = logged(memory, "Old day 旧的一天", 59)
    maintained(memory)
    raw = text(memory, log)
    receipts = maintained(memory, days=2)
    assert changed(receipts, "archive") == [log]
    assert (text(memory, log), text(memory, away(log))) == ("", raw)
    summary = next(uri for uri in changed(receipts, "summary"))
    assert away(log) in text(memory, summary)
    assert maintained(memory, days=3) == []
    memory.restore([away(log)], now=NOW)
    assert text(memory, log) == raw
    assert maintained(memory, days=90) == []


def test_late_entry_of_an_archived_day_joins_its_summary(memory: Memory) -> None:
    log = logged(memory, "Old day 旧的一天", 70)
    maintained(memory)
    assert text(memory, log) == ""
    logged(memory, "Remembered later 后来想起", 70)
    receipts = maintained(memory)
    body = parse(text(memory, changed(receipts, "summary")[0])).body
    assert "旧的一天" in body
    assert "后来想起" in body


def test_deleting_logs_for_good_is_a_switch_and_the_summary_stays(tmp_path: Path) -> None:
    with open_memory(settings_of(tmp_path, maintenance={"delete_logs": True})) as memory:
        log = logged(memory, "Old day 旧的一天", 70)
        receipts = maintained(memory)
        assert (text(memory, log), text(memory, away(log))) == ("", "")
        summary = changed(receipts, "summary")[0]
        logged(memory, "Another day 另一天", 69)
        maintained(memory)
        assert "旧的一天" in text(memory, summary)
        assert "另一天" in text(memory, summary)


def test_dry_run_shows_summary_promotion_and_move_and_writes_nothing(memory: Memory) -> None:
    log = logged(memory, "Signed the lease 签了租约", 70, priority="high")
    newest = memory.store.ledger.newest_seq()
    receipts = maintained(memory, dry_run=True)
    assert {receipt.status for receipt in receipts} == {Status.DRY_RUN}
    assert (len(changed(receipts, "write")), changed(receipts, "archive")) == (1, [log])
    assert memory.store.ledger.newest_seq() == newest


def test_undo_takes_summary_and_promotion_back(memory: Memory) -> None:
    log = logged(memory, "Signed the lease 签了租约", 40, priority="high")
    raw = text(memory, log)
    (receipt,) = maintained(memory)
    memory.undo(receipt.commit_id, now=NOW)
    assert (text(memory, DECEMBER), text(memory, log)) == ("", raw)
    assert all(text(memory, uri) == "" for uri in changed([receipt], "write"))


def test_log_that_cannot_be_read_keeps_nothing_of_the_others(memory: Memory) -> None:
    broken = logged(memory, "Latin 拉丁", 41)
    memory.store.files.path_for(MemoryUri.parse(broken)).write_bytes(b"# caf\xe9\n")
    logged(memory, "Good day 好日子", 40)
    (receipt,) = maintained(memory)
    assert "好日子" in text(memory, changed([receipt], "summary")[0])


@pytest.mark.parametrize("at", ["planned", "acknowledged", "renamed"])
def test_killed_in_the_middle_summary_and_promotion_are_both_there_or_neither(tmp_path: Path, at: str) -> None:
    class Killed(BaseException):
        """Ends the commit where it is, as a kill would."""

    def step(name: str) -> None:
        if armed and name == at:
            raise Killed

    armed: list[bool] = []
    with open_memory(settings_of(tmp_path), step=step) as memory:
        logged(memory, "Signed the lease 签了租约", 40, priority="high")
        armed.append(True)
        with pytest.raises(Killed):
            maintained(memory)
        armed.clear()
    with open_memory(settings_of(tmp_path)) as memory:
        memory.opened.adopted.wait()
        events = memory.store.files.path_for(MemoryUri.parse(f"{USER}/events"))
        promoted = list(events.glob("2026*.md")) if events.is_dir() else []
        assert (len(promoted), bool(text(memory, DECEMBER))) == ((0, False) if at == "planned" else (1, True))
        assert len(maintained(memory)) == (at == "planned")
        assert len(list(events.glob("2026*.md"))) == 1
