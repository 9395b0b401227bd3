"""Old logs are summarised and moved away; what matters of them becomes memories, once; nothing is lost."""

from __future__ import annotations

import itertools
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.core.memory.results import CommitReceipt, Status
from memory_core.core.memory.trailer import split
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.text.language import sentences
from memory_core.features.forgetting import FORGET, ForgetRequest
from memory_core.features.mentions import without
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.features.upkeep import log_archive, log_summary
from memory_core.features.upkeep.archive import RESTORE, ArchiveRequest
from memory_core.runebook import Runebook, open_memory
from tests.features.upkeep.maintained import NOW, USER, away, maintained, text
from tests.stores import note, words_only

LOGS = "viking://user/default/logs"
DECEMBER = f"{LOGS}/summaries/2026-12.md"
ROLLING = "viking://user/default/rolling_summary.md"


def logged(memory: Runebook, content: str, days_ago: float, kind: str = "event", **more: Any) -> str:
    """The URI of the log that got the entry."""
    fields = {"kind": kind} | {name: more.pop(name) for name in ("tool", "error") if name in more}
    receipt = memory.commit(
        CommitRequest(content, memory_type="daily_logs", now=NOW - timedelta(days=days_ago), fields=fields, **more)
    )
    assert receipt.status is Status.COMMITTED, receipt
    return receipt.results[0].uri


def written(memory: Runebook, uri: str, content: str) -> None:
    """What a person saves."""
    path = memory.store.files.path_for(MemoryUri.parse(uri))
    path.write_text(content, encoding="utf-8", newline="\n")


def changed(receipts: list[CommitReceipt], op: str) -> list[str]:
    return [result.uri for receipt in receipts for result in receipt.results if result.op == op]


def test_old_logs_become_one_summary_a_month_with_links_to_the_days(memory: Runebook) -> None:
    first = logged(memory, "Moved the payment service to the new cluster. It took 2 tries.", 40)
    second = logged(memory, "和小王签了合同，金额35000元，没有预付款。", 41)
    recent = logged(memory, "Not old yet 还不旧", 30)
    raw = text(memory, first)
    (receipt,) = maintained(memory, "logs")
    assert changed([receipt], "summary") == [DECEMBER]
    body = split(text(memory, DECEMBER)).body
    assert f"[2026-12-19]({first})" in body
    assert f"[2026-12-18]({second})" in body
    assert "It took 2 tries." in body
    assert "金额35000元，没有预付款。" in body
    assert "Not old yet" not in body
    assert (text(memory, first), bool(text(memory, recent))) == (raw, True)
    assert DECEMBER in {hit.uri for hit in memory.find(FindRequest("payment cluster", now=NOW)).hits}
    assert maintained(memory, "logs") == []


def test_a_long_day_is_read_while_others_write_and_is_a_commit_of_its_own(
    memory: Runebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_archive, "_COMMIT_CHARS", 300)
    made, times = log_summary._made_lines, itertools.count()
    for days_ago in (40, 41, 42):
        logged(memory, f"Paid {days_ago} euro for the boat. " + "The sea was calm. " * 10, days_ago)
    with open_memory(words_only(tmp_path)) as other:

        def meanwhile(*given: Any, **more: Any) -> log_summary.DayLines:
            note(other, f"note {next(times)}", "Written meanwhile.")
            return made(*given, **more)

        monkeypatch.setattr(log_summary, "_made_lines", meanwhile)
        receipts = maintained(memory, "logs")
    assert [changed([receipt], "summary") for receipt in receipts] == [[DECEMBER]] * 3
    assert next(times) == 3
    assert all(f"Paid {days_ago} euro" in text(memory, DECEMBER) for days_ago in (40, 41, 42))


def test_log_that_a_person_edits_later_is_summarised_again(memory: Runebook) -> None:
    log = logged(memory, "Paid 30 euro 付了30欧元", 40)
    maintained(memory, "logs")
    written(memory, log, text(memory, log).replace("30 euro", "35 euro"))
    (receipt,) = maintained(memory, "logs")
    assert changed([receipt], "summary") == [DECEMBER]
    assert "35 euro" in text(memory, DECEMBER)
    assert "30 euro" not in text(memory, DECEMBER)
    assert maintained(memory, "logs") == []


def test_summary_that_a_person_edited_is_kept_and_new_days_are_added(memory: Runebook) -> None:
    logged(memory, "First day 第一天", 41)
    later = logged(memory, "Second day 第二天", 30)
    maintained(memory, "logs")
    assert later not in text(memory, DECEMBER)
    own = text(memory, DECEMBER).replace("# 2026-12", "# My December 我的十二月")
    written(memory, DECEMBER, own)
    maintained(memory, "logs", days=1)
    body = split(text(memory, DECEMBER)).body
    assert body.startswith("# My December 我的十二月")
    assert "第一天" in body
    assert later in body
    assert "第二天" in body
    assert maintained(memory, "logs", days=1) == []


@pytest.mark.parametrize("edit", ["a word", "the day taken out", "prose"])
def test_entry_added_to_a_day_of_an_edited_summary_is_shown_and_found(memory: Runebook, edit: str) -> None:
    log = logged(memory, "Painted the fence 刷了篱笆", 40)
    logged(memory, "Third day 第三天", 39)
    maintained(memory, "logs")
    before = split(text(memory, DECEMBER)).body
    day = next(line for line in before.split("\n") if log in line)
    own = {
        "a word": before.replace("the fence", "the green fence"),
        "the day taken out": before.replace(f"{day}\n  - 09:00 Painted the fence 刷了篱笆\n", ""),
        "prose": "Mine 我的",
    }[edit]
    written(memory, DECEMBER, text(memory, DECEMBER).replace(before, own))
    added = "- 09:00 Third day 第三天\n- 11:00 The spare key is under brick 17 备用钥匙\n"
    written(memory, log, f"{text(memory, log)}{added}")
    maintained(memory, "logs", days=1)
    body = split(text(memory, DECEMBER)).body
    assert f"({log})" in body
    assert body.count("brick 17 备用钥匙") == 1
    assert "Painted the fence" not in body
    assert body.count("09:00 Third day 第三天") == (1 if edit == "prose" else 2)
    assert ("green fence" in body) == (edit == "a word")
    assert maintained(memory, "logs", days=1) == []
    maintained(memory, "logs", days=40)
    assert text(memory, log) == ""
    assert DECEMBER in {hit.uri for hit in memory.find(FindRequest("spare key brick", now=NOW)).hits}


@pytest.mark.parametrize("project", [None, "github.com/acme/back"])
def test_a_forgotten_entry_that_comes_back_after_maintenance_is_there_once(
    memory: Runebook, project: str | None
) -> None:
    for said in ("Bought 30 zebrafish pills 药.", "Deployed build 7."):
        given = CommitRequest(said, memory_type="daily_logs", now=NOW - timedelta(days=40), project=project)
        memory.commit(given)
    maintained(memory, "logs")
    shown = memory.run(FORGET, ForgetRequest("zebrafish pills", now=NOW))
    receipt = memory.run(FORGET, ForgetRequest("zebrafish pills", confirm=len(shown.results), now=NOW))
    maintained(memory, "logs", days=1)
    assert "zebrafish" not in text(memory, DECEMBER)
    memory.run(UNDO, UndoRequest(receipt.commit_id, now=NOW))
    maintained(memory, "logs", days=2)
    body = split(text(memory, DECEMBER)).body
    assert body.count("30 zebrafish pills") == 1
    assert body.count("Project") == (0 if project is None else 1)


def test_what_two_projects_say_alike_is_in_an_edited_summary_for_both(memory: Runebook) -> None:
    when = NOW - timedelta(days=40)
    for project in ("acme", "beta"):
        memory.commit(CommitRequest("Deployed build 7 上线.", memory_type="daily_logs", now=when, project=project))
        if project == "acme":
            maintained(memory, "logs")
            written(memory, DECEMBER, text(memory, DECEMBER).replace("# 2026-12", "# My December"))
    maintained(memory, "logs", days=1)
    body = split(text(memory, DECEMBER)).body
    assert body.count("Deployed build 7 上线.") == 2
    assert body.count("Project acme") == body.count("Project beta") == 1


def test_every_entry_with_a_number_name_or_failure_is_in_the_summary(memory: Runebook) -> None:
    visits = [f"Visited customer {number * 37}, who ordered {number + 3} pumps." for number in range(25)]
    parts = ("door", "roof", "wheel", "mast", "engine", "window")
    failures = [f"The {part} test failed again and we gave up on it for good. {part}坏了。" for part in parts]
    people = [f"We talked about the {part} with Lin for a while, no result. {part}" for part in parts]
    for entry in [*visits, *failures, *people]:
        logged(memory, entry, 40)
    long = " ".join(f"Step {number} of the long repair went well." for number in range(80))
    logged(memory, long, 39)
    (receipt,) = maintained(memory, "logs")
    body = split(text(memory, DECEMBER)).body
    assert [entry for entry in [*visits, *failures, *people] if entry not in body] == []
    shown = body.count("of the long repair")
    assert 20 < shown < 80
    assert f"{80 - shown} sentences left out" in "".join(result.note or "" for result in receipt.results)


def test_equal_entries_are_one_line_with_all_their_times(memory: Runebook) -> None:
    for hours in (0, 1, 2):
        logged(memory, "Backup failed again 备份又失败了", 40 - hours / 24)
    maintained(memory, "logs")
    line = "- 09:00 Backup failed again 备份又失败了 (3 times: 09:00, 10:00, 11:00)"
    assert line in text(memory, DECEMBER)


def test_what_is_left_out_is_counted_in_page_and_receipt(memory: Runebook) -> None:
    told = ["we walked along the quiet river and talked about old films, then slowly went home again", "随便聊了聊天"]
    words = ["red", "green", "blue", "white", "black", "brown", "grey", "pink", "gold", "silver", "amber", "teal"]
    for word in words:
        logged(memory, f"{told[0]} by the {word} house. {told[1]}。", 40)
    (receipt,) = maintained(memory, "logs")
    (result,) = [result for result in receipt.results if result.op == "summary"]
    body = split(text(memory, DECEMBER)).body
    head = next(line for line in body.split("\n") if line.startswith("- [2026-12-19]"))
    assert head.endswith("more sentences in the log)")
    count = head.rpartition(" (")[2].split()[0]
    assert f"{count} sentences left out" in (result.note or "")
    assert int(count) >= len(words) - body.count("along the quiet river")
    logged(memory, "Tea 喝茶", 38)
    (again,) = maintained(memory, "logs")
    assert "left out" not in "".join(result.note or "" for result in again.results)
    maintained(memory, "logs", days=30)
    assert away(f"{LOGS}/2026-12-19.md") in text(memory, DECEMBER)


def test_corrected_line_updates_the_memory_that_it_made(memory: Runebook) -> None:
    log = logged(memory, "Never restart the pump befor draining line 4 泵", 40, "reflection", tool="pump")
    hand = f"{LOGS}/2026-12-18.md"
    logged(memory, "Before 之前", 41)
    written(memory, hand, f'{text(memory, hand)}- 10:00 Signd the lease of the mill\n  <!-- {{"salience": 0.9}} -->\n')
    (receipt,) = maintained(memory, "logs")
    made = {uri.rpartition("/")[0].rpartition("/")[2]: uri for uri in changed([receipt], "write")}
    assert sorted(made) == ["events", "patterns"]
    written(memory, log, text(memory, log).replace("befor ", "before "))
    written(memory, hand, text(memory, hand).replace("Signd", "Signed"))
    (again,) = maintained(memory, "logs")
    assert sorted(changed([again], "write")) == sorted(made.values())
    assert "before draining line 4" in split(text(memory, made["patterns"])).body
    assert "Signed the lease" in split(text(memory, made["events"])).body
    assert maintained(memory, "logs") == []
    written(memory, log, text(memory, log).replace("line 4", "line 5"))
    maintained(memory, "logs")
    assert "line 5" in split(text(memory, made["patterns"])).body


@pytest.mark.parametrize("since", ["edited", "deleted"])
def test_corrected_line_leaves_a_memory_that_somebody_touched_since(memory: Runebook, since: str) -> None:
    log = logged(memory, "Signd the lease 签约", 40, priority="high")
    (receipt,) = maintained(memory, "logs")
    (uri,) = changed([receipt], "write")
    if since == "edited":
        written(memory, uri, text(memory, uri).replace("Signd the lease", "Signed with Lin"))
    else:
        memory.commit(CommitRequest(operations={"delete_operations": [{"uri": uri}]}, now=NOW))
    left = text(memory, uri)
    written(memory, log, text(memory, log).replace("Signd", "Signed"))
    (again,) = maintained(memory, "logs")
    assert changed([again], "write") == []
    assert text(memory, uri) == left
    assert any("edited since" in note for note in again.notes) == (since == "edited")
    assert maintained(memory, "logs") == []


def test_corrected_line_that_an_earlier_program_gave_to_another_users_agent_becomes_a_memory_of_its_own(
    memory: Runebook,
) -> None:
    bob = memory.view("bob", "bob")
    log = logged(bob, "Never restart the pump befor draining line 4", 40, "reflection", tool="pump")
    (old,) = changed(
        list(log_archive.FEATURE.passes[0].run(memory.view("bob", "default"), NOW, dry_run=False)), "write"
    )
    stays = text(memory, old)
    written(memory, log, text(memory, log).replace("befor ", "before "))
    (new,) = changed(maintained(bob, "logs"), "write")
    assert new.startswith("viking://agent/bob/")
    assert text(memory, old) == stays
    assert maintained(bob, "logs") == []


def test_another_entry_of_the_same_minute_is_a_memory_of_its_own(memory: Runebook) -> None:
    log = logged(memory, "First 第一", 40)
    comment = '  <!-- {"salience": 0.9} -->'
    written(memory, log, f"# Day\n\n- 10:00 Signed the lease of the mill\n{comment}\n")
    (first,) = maintained(memory, "logs")
    written(memory, log, f"# Day\n\n- 10:00 Ordered forty oak doors\n{comment}\n")
    (second,) = maintained(memory, "logs")
    (kept,), (new,) = changed([first], "write"), changed([second], "write")
    assert kept != new
    assert "lease" in text(memory, kept)


def test_what_matters_is_promoted_once_and_says_where_it_came_from(memory: Runebook) -> None:
    lesson = "fetch_url gives nothing for https://example.com, a React page."
    log = logged(memory, lesson, 40, "reflection", tool="fetch_url", error="empty_content")
    logged(memory, "用户喜欢在下午3点开会。", 40, "auto_extract", category="preferences")
    logged(memory, "Signed the lease. 签了租约。", 40, priority="high")
    logged(memory, "Had lunch 吃了午饭", 40)
    logged(memory, "Maybe Kotlin 也许", 40, "auto_extract", category="musings")
    logged(memory, "Nurse in Leeds 护士", 40, "auto_extract", category="profile")
    (receipt,) = maintained(memory, "logs")
    promoted = {split(text(memory, uri)).body.splitlines()[0]: uri for uri in changed([receipt], "write")}
    assert set(promoted) == {lesson, "用户喜欢在下午3点开会。", "Signed the lease. 签了租约。"}
    assert promoted[lesson].startswith("viking://agent/default/memories/patterns/")
    assert promoted["用户喜欢在下午3点开会。"].startswith(f"{USER}/preferences/")
    assert promoted["Signed the lease. 签了租约。"].startswith(f"{USER}/events/2026-12-19_")
    source = (split(text(memory, promoted[lesson])).trailer or {})["source"]
    where, _, line = source["log"].partition("#")
    assert where == log
    assert lesson in text(memory, log).split("\n")[int(line)]
    memory.commit(CommitRequest(operations={"delete_operations": [{"uri": promoted[lesson]}]}, now=NOW))
    written(memory, log, f"{text(memory, log)}\n- 23:00 one more 还有一条\n")
    (again,) = maintained(memory, "logs")
    assert changed([again], "write") == []


def test_private_entries_stay_with_their_project(memory: Runebook) -> None:
    logged(memory, "Acme's budget is 5 million 预算", 40, project="acme", private=True, priority="high")
    logged(memory, "Kickoff with acme 启动会", 40, project="acme", private=False, priority="high")
    logged(memory, "Plain day 平常", 40)
    receipts = maintained(memory, "logs")
    secret = next(uri for uri in changed(receipts, "summary") if "acme" in uri)
    assert "budget" not in text(memory, DECEMBER)
    assert "Kickoff" in text(memory, DECEMBER)
    assert "budget" in text(memory, secret)
    trailers = {uri: split(text(memory, uri)).trailer or {} for uri in changed(receipts, "write")}
    belongs = {(meta.get("project"), meta.get("private")) for meta in trailers.values()}
    assert belongs == {("acme", True), ("acme", None)}
    seen = [hit.uri for hit in memory.find(FindRequest("budget 预算", now=NOW, project="other")).hits]
    assert seen == []
    hits = {hit.uri for hit in memory.find(FindRequest("budget 预算", now=NOW, project="acme")).hits}
    assert secret in hits
    assert maintained(memory, "logs") == []


def test_raw_log_moves_to_the_archive_and_a_restored_one_stays(memory: Runebook) -> None:
    log = logged(memory, "Old day 旧的一天", 59)
    maintained(memory, "logs")
    raw = text(memory, log)
    receipts = maintained(memory, "logs", days=2)
    assert changed(receipts, "archive") == [log]
    assert (text(memory, log), text(memory, away(log))) == ("", raw)
    summary = next(uri for uri in changed(receipts, "summary"))
    assert away(log) in text(memory, summary)
    assert maintained(memory, "logs", days=3) == []
    memory.run(RESTORE, ArchiveRequest([away(log)], now=NOW))
    assert text(memory, log) == raw
    assert maintained(memory, "logs", days=90) == []


def test_late_entry_of_an_archived_day_joins_its_summary(memory: Runebook) -> None:
    log = logged(memory, "Old day 旧的一天", 70)
    maintained(memory, "logs")
    assert text(memory, log) == ""
    logged(memory, "Remembered later 后来想起", 70)
    receipts = maintained(memory, "logs")
    body = split(text(memory, changed(receipts, "summary")[0])).body
    assert "旧的一天" in body
    assert "后来想起" in body


@pytest.mark.parametrize("days_ago", [69, 70])
def test_logs_deleted_for_good_stay_in_the_summary_that_later_entries_of_any_day_join(
    tmp_path: Path, days_ago: int
) -> None:
    with open_memory(words_only(tmp_path, maintenance={"delete_logs": True})) as memory:
        log = logged(memory, "Old day 旧的一天", 70)
        summary = changed(maintained(memory, "logs"), "summary")[0]
        assert (text(memory, log), text(memory, away(log))) == ("", "")
        logged(memory, "Remembered later 后来想起", days_ago)
        maintained(memory, "logs")
        assert "旧的一天" in text(memory, summary)
        assert "后来想起" in text(memory, summary)
        assert maintained(memory, "logs") == []


def test_dry_run_shows_summary_promotion_and_move_and_writes_nothing(memory: Runebook) -> None:
    log = logged(memory, "Signed the lease 签了租约", 70, priority="high")
    newest = memory.store.ledger.newest_seq()
    receipts = maintained(memory, "logs", dry_run=True)
    assert {receipt.status for receipt in receipts} == {Status.DRY_RUN}
    assert (len(changed(receipts, "write")), changed(receipts, "archive")) == (1, [log])
    assert memory.store.ledger.newest_seq() == newest


def test_undo_takes_summary_and_promotion_back(memory: Runebook) -> None:
    log = logged(memory, "Signed the lease 签了租约", 40, priority="high")
    raw = text(memory, log)
    (receipt,) = maintained(memory, "logs")
    memory.run(UNDO, UndoRequest(receipt.commit_id, now=NOW))
    assert (text(memory, DECEMBER), text(memory, log)) == ("", raw)
    assert all(text(memory, uri) == "" for uri in changed([receipt], "write"))


def test_log_that_cannot_be_read_keeps_nothing_of_the_others(memory: Runebook) -> None:
    broken = logged(memory, "Latin 拉丁", 41)
    memory.store.files.path_for(MemoryUri.parse(broken)).write_bytes(b"# caf\xe9\n")
    logged(memory, "Good day 好日子", 40)
    (receipt,) = maintained(memory, "logs")
    assert "好日子" in text(memory, changed([receipt], "summary")[0])


def test_forgetting_an_entry_keeps_the_days_of_the_others(memory: Runebook) -> None:
    for content, days_ago in (
        ("Anna asked Peter about the boat.", 41),
        ("The swordfish vault code is 4711, Maria said.", 40),
        ("The build of harbour 7 failed at step 12.", 40),
    ):
        log = logged(memory, content, days_ago)
    maintained(memory)
    before = log_summary.read_summary("2026-12", None, text(memory, DECEMBER)).blocks
    assert "2026-12-19: " in text(memory, ROLLING)
    shown = memory.run(FORGET, ForgetRequest("swordfish vault code Maria"))
    assert {each.uri.partition("#")[0] for each in shown.results} == {DECEMBER, ROLLING, log}
    assert memory.run(FORGET, ForgetRequest("swordfish vault code Maria", confirm=3)).status is Status.COMMITTED
    for again in (False, True):
        if again:
            maintained(memory)
        kept = log_summary.read_summary("2026-12", None, text(memory, DECEMBER))
        assert not kept.edited
        assert kept.blocks["2026-12-18"] == before["2026-12-18"]
        assert kept.blocks["2026-12-19"].startswith(before["2026-12-19"].partition("\n")[0])
        assert "harbour 7 failed" in kept.blocks["2026-12-19"]
        assert "2026-12-19: " in text(memory, ROLLING)
        assert "swordfish" not in text(memory, DECEMBER) + text(memory, ROLLING)


def test_the_head_of_a_day_goes_with_all_that_stands_below_it(memory: Runebook) -> None:
    logged(memory, "Anna asked Peter about the boat.", 41)
    logged(memory, "The swordfish vault code is 4711.", 40)
    maintained(memory, "logs")
    shown = memory.run(FORGET, ForgetRequest("swordfish vault code"))
    memory.run(FORGET, ForgetRequest("swordfish vault code", confirm=len(shown.results)))
    for again in (False, True):
        if again:
            maintained(memory)
        assert set(log_summary.read_summary("2026-12", None, text(memory, DECEMBER)).blocks) == {"2026-12-18"}


def test_what_stands_beside_the_days_of_a_page_is_forgotten_alone() -> None:
    page = (
        "# 2026-12\n\nA swordfish. A boat.\n\n- [2026-12-18](viking://x) (1 more sentence in the log) Swordfish!\n"
        "  - 09:05 The sea.\n- [2026-12-19](viking://y) Calm.\n  - 09:10 A swordfish.\n"
        "- [2026-12-20](viking://z)\n\nMine: a swordfish.\nMine: a rod."
    )
    said = log_summary.without_heads(page)
    assert "viking" not in said
    gone = [each for each in sentences(said) if "swordfish" in each.lower()]
    assert len(gone) == 4
    assert log_summary.with_texts(page, partial(without, gone=gone)) == (
        "# 2026-12\n\nA boat.\n\n- [2026-12-18](viking://x) (1 more sentence in the log)\n"
        "  - 09:05 The sea.\n- [2026-12-19](viking://y) Calm.\n"
        "- [2026-12-20](viking://z)\nMine: a rod."
    )
    assert log_summary.with_texts(f"{page}\n", partial(without, gone=["A shark."])) == f"{page}\n"
