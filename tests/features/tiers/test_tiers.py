"""The tiers end to end: overflow, heat and promotion, eviction and the way back; crashes, two processes, privacy."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.config import RetrieveConfig, TiersConfig
from memory_core.core.errors import StoreBusy
from memory_core.core.memory.requests import CommitRequest, FindRequest, ListRequest, ReadRequest, RetrieveRequest
from memory_core.core.memory.results import Action, ChangeSet, CommitReceipt
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.history_rows import PastTable
from memory_core.core.store.local import Plan, Store
from memory_core.features.forgetting import FORGET, ForgetRequest
from memory_core.features.history import history_of
from memory_core.features.purge import PURGE, PurgeRequest
from memory_core.features.rebuild import REBUILD, RebuildRequest
from memory_core.features.tiers import overflow
from memory_core.features.tiers.promotion import Promoter
from memory_core.features.tiers.segment import dump_segment
from memory_core.features.tiers.segmenting import Sorting
from memory_core.features.tiers.stored import SEGMENT, heats
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.features.upkeep.archive import RESTORE, ArchiveRequest
from memory_core.runebook import Runebook
from tests.features.tiers.talks import (
    NOTHING,
    NOW,
    PAYMENTS,
    TEMPLES,
    firsts,
    maintain,
    messages,
    say,
    segments,
    small,
    spoken,
)
from tests.killing import Killed, Killer
from tests.stores import answer, log_of, scripted, write
from tests.waiting import at_once

LOG = log_of()
FACT = answer(write("facts", content="The user plans a trip to Kyoto."), reasoning="a plan")


def kinds(memory: Runebook) -> list[str]:
    return [commit.kind for commit in memory.store.ledger.past.commits(["session/default"])]


def test_what_overflows_joins_segments_in_one_commit_and_nothing_happens_before(tmp_path: Path) -> None:
    with scripted(tmp_path, tiers=TiersConfig(short_term_capacity=3, mid_term_similarity_threshold=0.4)) as (memory, _):
        say(memory, *TEMPLES)
        assert kinds(memory) == ["messages"]
        say(memory, *PAYMENTS)
        assert kinds(memory) == ["segment", "messages", "messages"]
        assert firsts(memory) == [[0, 2]]
        (stored,) = segments(memory)
        assert "before #0" in memory.read(ReadRequest(str(stored.uri))).content
        assert history_of(memory).resolve("last").kind == "messages"


def test_an_imported_conversation_is_sorted_whole_and_the_next_commit_goes_on(tmp_path: Path) -> None:
    with scripted(tmp_path, **small()) as (memory, _):
        say(memory, *TEMPLES, *PAYMENTS)
        assert firsts(memory) == [[0, 2, 4], [6]]
        say(memory, ("Thanks a lot!", "You are welcome."))
        assert firsts(memory) == [[0, 2, 4], [6, 8]]


def test_a_long_conversation_is_sorted_in_several_commits_and_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overflow, "_EXCHANGES_AT_ONCE", 2)
    with scripted(tmp_path, **small()) as (memory, _):
        say(memory, *TEMPLES, *PAYMENTS, ("Bye!", "Bye!"))
        assert firsts(memory) == [[0, 2, 4], [6, 8]]
        assert kinds(memory) == ["segment", "segment", "segment", "messages"]


def test_a_conversation_that_grows_while_it_is_sorted_is_not_sorted_anew_while_others_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposed, proposals = overflow.Overflow._proposed, []

    def growing(self: overflow.Overflow, *arguments: Any, **more: Any) -> Any:
        proposals.append(self)
        found = proposed(self, *arguments, **more)
        at_once(memory.store.commit, lambda _snapshot: ChangeSet((), ()))  # another thread gets the lock
        if len(proposals) == 1:
            memory.commit(CommitRequest(messages=messages(("Bye!", "Bye!")), session_id="s1", now=NOW))
        return found

    monkeypatch.setattr(overflow.Overflow, "_proposed", growing)
    with scripted(tmp_path, **small()) as (memory, _):
        say(memory, *TEMPLES, *PAYMENTS)
        memory.opened.background.finish()
        assert firsts(memory) == [[0, 2, 4], [6, 8]]
        assert len(proposals) > 1


def test_an_undo_in_a_long_conversation_mends_once_and_leaves_the_rest_to_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overflow, "_EXCHANGES_AT_ONCE", 2)
    monkeypatch.setattr(overflow, "_LONG_LINES", 0)
    mend, mended = Sorting.mend, []

    def counted(sorting: Sorting) -> None:
        mended.append(sorting)
        mend(sorting)

    monkeypatch.setattr(Sorting, "mend", counted)
    with scripted(tmp_path, **small()) as (memory, _):
        with pytest.MonkeyPatch.context() as quiet:
            quiet.setattr(memory.opened.background, "later", lambda _job: None)
            for exchanges in (TEMPLES * 3, PAYMENTS):
                asked = CommitRequest(messages=messages(*exchanges), session_id="s1", now=NOW)
                last = memory.commit(asked).commit_id
            memory.run(UNDO, UndoRequest(last or "", now=NOW))
            assert kinds(memory) == ["segment", "undo", "messages", "messages"]
        memory.opened.background.later(memory.part(overflow.Overflow)._sort_waiting)
        memory.opened.background.finish()
        assert sorted(first for each in firsts(memory) for first in each) == list(range(0, 16, 2))
        assert len(mended) == 1
        for stored in segments(memory):
            memory.store.files.path_for(stored.uri).unlink()
        assert len(maintain(memory, "segments").receipts) == 4
        assert len(mended) == 2


def test_deleted_segments_that_no_promotion_took_are_not_looked_for_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[MemoryUri] = []
    monkeypatch.setattr(PastTable, "moved_to", lambda _past, uri, _after: asked.append(uri))
    with scripted(tmp_path, **small()) as (memory, _):
        said = say(memory, *TEMPLES, *PAYMENTS)
        memory.run(UNDO, UndoRequest(said.commit_id or "", now=NOW))
        assert firsts(memory) == []
        assert asked == []


def test_a_long_log_that_changed_while_it_was_sorted_is_sorted_again_though_it_did_not_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overflow, "_LONG_LINES", 0)
    proposed, proposals = overflow.Overflow._proposed, []

    def edited(self: overflow.Overflow, *arguments: Any, **more: Any) -> Any:
        proposals.append(self)
        found = proposed(self, *arguments, **more)
        if len(proposals) == 1:
            path = memory.store.files.path_for(LOG)
            path.write_text(path.read_text("utf-8").replace("Take bus 50", "Take bus 59"), "utf-8")
        return found

    monkeypatch.setattr(overflow.Overflow, "_proposed", edited)
    with scripted(tmp_path, **small()) as (memory, _):
        say(memory, *TEMPLES, *PAYMENTS)
        assert firsts(memory) == [[0, 2, 4], [6]]
        assert len(proposals) == 2


@pytest.mark.parametrize("step", ["planned", "acknowledged", "renamed"])
def test_a_process_killed_while_it_sorts_leaves_all_or_nothing_and_the_next_one_goes_on(
    tmp_path: Path, step: str
) -> None:
    killer = Killer()
    with scripted(tmp_path, step=killer, **small()) as (memory, _):
        say(memory, TEMPLES[0])
        killer.step, killer.left = step, 2  # of the messages, then of the segments
        with pytest.raises(Killed):
            say(memory, *TEMPLES[1:], *PAYMENTS)
    with scripted(tmp_path, **small()) as (memory, _):
        assert firsts(memory) == ([] if step == "planned" else [[0, 2, 4], [6]])
        maintain(memory, "segments")
        assert firsts(memory) == [[0, 2, 4], [6]]
        assert maintain(memory, "segments").receipts == ()


def test_two_processes_sort_every_exchange_once(tmp_path: Path) -> None:
    with scripted(tmp_path, **small()) as (one, _), scripted(tmp_path, **small()) as (other, _):
        for number, exchange in enumerate([*TEMPLES, *PAYMENTS] * 2):
            question, answer = exchange
            say((one, other)[number % 2], (f"{question} ({number})", answer))
        exchanges = sorted(first for each in firsts(one) for first in each)
        assert exchanges == list(range(0, 18, 2))
        assert firsts(one) == firsts(other)


def test_a_segment_is_as_private_as_its_messages(tmp_path: Path) -> None:
    with scripted(tmp_path, **small()) as (memory, _):
        say(memory, *TEMPLES, project="acme", private=True)
        (stored,) = segments(memory)
        assert (stored.segment.project, stored.segment.private) == ("acme", True)
        directory = str(stored.uri.parent)
        memory.indexer.follow()
        elsewhere = memory.browser.seen_from("other", strict=True)
        assert elsewhere.ls(ListRequest(directory)).entries == ()
        assert [entry.uri for entry in memory.browser.seen_from("acme", strict=True).ls(ListRequest(directory)).entries]
        shown = memory.browser.seen_from("other").ls(ListRequest(directory)).entries[0]
        assert "temple" not in (shown.abstract or "")


def test_what_is_forgotten_purged_or_undone_leaves_the_segments_too(tmp_path: Path) -> None:
    secret = ("The safe code of the temple office is 4711.", "Noted, the temple safe code.")
    with scripted(tmp_path, **small()) as (memory, _):
        say(memory, *TEMPLES, secret, *PAYMENTS)
        assert any("4711" in memory.read(ReadRequest(str(each.uri))).content for each in segments(memory))
        lines = [f"{LOG}#6", f"{LOG}#7"]
        memory.run(FORGET, ForgetRequest(uris=lines, include_conversations=True, confirm=2, now=NOW))
        assert all("safe" not in memory.read(ReadRequest(str(each.uri))).content for each in segments(memory))
        memory.run(PURGE, PurgeRequest(str(LOG)))
        assert segments(memory) == []
        say(memory, *TEMPLES, session_id="s1")
        assert firsts(memory)
        memory.run(UNDO, UndoRequest("last", now=NOW))
        assert segments(memory) == []


def test_a_segment_whose_mending_found_the_store_busy_is_mended_after_the_next_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = ("The safe code of the temple office is 4711.", "Noted, the temple safe code.")
    commit = Store.commit

    def busy(self: Store, *given: Any, **more: Any) -> CommitReceipt:
        if more["kind"] == SEGMENT:
            raise StoreBusy("another writer holds it.", hint="Try again.")
        return commit(self, *given, **more)

    with scripted(tmp_path, **small()) as (memory, _):
        say(memory, *TEMPLES, secret, *PAYMENTS)
        with monkeypatch.context() as patched:
            patched.setattr(Store, "commit", busy)
            lines = [f"{LOG}#6", f"{LOG}#7"]
            memory.run(FORGET, ForgetRequest(uris=lines, include_conversations=True, confirm=2, now=NOW))
        assert any("4711" in memory.read(ReadRequest(str(each.uri))).content for each in segments(memory))
        say(memory, ("Bye!", "Bye!"), session="s2")
        assert all("4711" not in memory.read(ReadRequest(str(each.uri))).content for each in segments(memory))


def test_retrieval_visits_a_segment_and_its_heat_is_the_formula(tmp_path: Path) -> None:
    with scripted(tmp_path, **small()) as (memory, _):
        say(memory, *TEMPLES, *PAYMENTS)
        memory.find(FindRequest("Ryoanji temple", limit=1, now=NOW + timedelta(hours=1)))
        memory.store.usage.flush()
        temples, payments = heats(memory.store, memory.config.tiers, segments(memory), NOW + timedelta(hours=25))
        assert temples.visits >= 1
        assert temples.heat == pytest.approx(temples.visits + 3 + 0.36788, abs=1e-4)
        assert payments.visits == 0
        assert payments.heat == pytest.approx(1 + 2.71828 ** (-25 / 24), abs=1e-4)


def test_a_hot_segment_is_promoted_once_cooled_and_never_extracted_again(tmp_path: Path, read: list[str]) -> None:
    settings = small(mid_term_heat_threshold=3.5)
    with scripted(tmp_path, [FACT, NOTHING], **settings) as (memory, llm):
        receipt = say(memory, *TEMPLES, *PAYMENTS)
        assert read == spoken(*TEMPLES)
        assert [result.action for result in receipt.results if result.op == "segment"] == [Action.UPDATED]
        assert any(result.op == "write" and result.action is Action.CREATED for result in receipt.results)
        temples = segments(memory)[0].segment
        assert all(exchange.analysed for exchange in temples.exchanges)
        assert (temples.interactions, temples.visits_counted) == (0, 0)
        say(memory, ("Bye!", "Bye!"))
        assert len(llm.requests) == 1
        list(memory.extract_waiting())
        assert read == spoken(*TEMPLES, *PAYMENTS, ("Bye!", "Bye!"))
        assert memory.extractor.waiting() == []


def test_a_retrieval_makes_hot_what_exchanges_alone_did_not(tmp_path: Path, read: list[str]) -> None:
    settings = small(mid_term_heat_threshold=4.5)
    with scripted(tmp_path, [NOTHING], **settings) as (memory, _):
        say(memory, *TEMPLES, *PAYMENTS)
        assert read == []
        memory.find(FindRequest("Kyoto temple gardens", now=NOW))
        memory.store.usage.flush()
        assert maintain(memory, "promotion", dry_run=True).receipts[0].results[0].note is not None
        assert read == []
        (receipt,) = maintain(memory, "promotion").receipts
        assert read == spoken(*TEMPLES)
        temples = segments(memory)[0].segment
        assert temples.visits_counted > 0
        assert temples.last_visit_at is not None
        assert maintain(memory, "promotion").receipts == ()
        assert history_of(memory).resolve(receipt.commit_id).kind == "promotion"


def test_promoted_exchanges_in_the_middle_are_passed_over_by_the_queue(tmp_path: Path, read: list[str]) -> None:
    settings = small(mid_term_heat_threshold=3.5)
    with scripted(tmp_path, [NOTHING] * 4, **settings) as (memory, _):
        say(memory, PAYMENTS[0], *TEMPLES, PAYMENTS[1])
        assert read == spoken(*TEMPLES)
        (row,) = memory.extractor.waiting()
        assert row.extracted == 0
        list(memory.extract_waiting())
        assert sorted(read) == sorted(spoken(*TEMPLES, *PAYMENTS))
        assert memory.extractor.waiting() == []
        list(memory.extract_waiting("s1"))
        assert read[len(read) - 10 :] == spoken(PAYMENTS[0], *TEMPLES, PAYMENTS[1])


@pytest.mark.parametrize("step", ["planned", "acknowledged", "renamed"])
def test_a_process_killed_while_it_promotes_extracts_no_exchange_twice(
    tmp_path: Path, step: str, read: list[str]
) -> None:
    settings = small(mid_term_heat_threshold=3.5)
    killer = Killer()
    with scripted(tmp_path, step=killer, **settings) as (memory, _):
        say(memory, *TEMPLES, *PAYMENTS)
    with scripted(tmp_path, [FACT], step=killer, **settings) as (memory, _):
        # The loop tries its operations out first, which plans, too.
        killer.step, killer.left = step, 2 if step == "planned" else 1
        with pytest.raises(Killed):
            maintain(memory, "promotion")
    done = step != "planned"
    with scripted(tmp_path, [FACT], **settings) as (memory, _):
        facts = memory.find(FindRequest("trip to Kyoto", filter={"memory_type": "facts"})).total
        marked = [exchange.analysed for exchange in segments(memory)[0].segment.exchanges]
        assert (facts, marked) == ((1, [True] * 3) if done else (0, [False] * 3))
        maintain(memory, "promotion")
        assert len(read) == (6 if done else 12)
        assert memory.find(FindRequest("trip to Kyoto", filter={"memory_type": "facts"})).total == 1


def test_an_undone_promotion_waits_until_it_is_asked_for(tmp_path: Path, read: list[str]) -> None:
    settings = small(mid_term_heat_threshold=3.5)
    with scripted(tmp_path, [FACT, FACT], **settings) as (memory, llm):
        say(memory, *TEMPLES, *PAYMENTS)
        memory.run(UNDO, UndoRequest("last", now=NOW))
        assert memory.find(FindRequest("trip to Kyoto", filter={"memory_type": "facts"})).total == 0
        assert not any(exchange.analysed for exchange in segments(memory)[0].segment.exchanges)
        say(memory, ("Bye!", "Bye!"))
        assert maintain(memory, "promotion").receipts == ()
        assert len(llm.requests) == 1
        list(memory.extract_waiting())
        assert sorted(read[6:]) == sorted(spoken(*TEMPLES, *PAYMENTS, ("Bye!", "Bye!")))


def test_the_least_used_segment_leaves_is_not_found_and_comes_back(tmp_path: Path) -> None:
    with scripted(tmp_path, **small(mid_term_capacity=1)) as (memory, _):
        say(memory, *TEMPLES, PAYMENTS[0], ("Bye!", "Bye!"))
        memory.find(FindRequest("支付系统的回调", now=NOW))
        found = [hit.uri for hit in memory.find(FindRequest("Ryoanji temple Kyoto", now=NOW - timedelta(days=1))).hits]
        assert f"{LOG}#2" in found
        for _ in range(40):
            memory.find(FindRequest("支付回调 幂等", now=NOW))
        assert maintain(memory, "eviction", dry_run=True).changed == 1
        (receipt,) = maintain(memory, "eviction").receipts
        assert [len(segments(memory)), len(segments(memory, archived=True))] == [1, 1]
        (gone,) = segments(memory, archived=True)
        assert "temple" in gone.segment.title
        resting = {f"{LOG}#{line}" for line in range(6)}
        assert resting.isdisjoint(hit.uri for hit in memory.find(FindRequest("Ryoanji temple Kyoto")).hits)
        asked = memory.find(FindRequest("Ryoanji temple Kyoto", filter={"active": False})).hits
        assert f"{LOG}#2" in [hit.uri for hit in asked]
        assert "Ryoanji" in memory.read(ReadRequest(f"{LOG}#2")).content
        memory.run(REBUILD, RebuildRequest())
        memory.indexer.follow(None)
        assert resting.isdisjoint(hit.uri for hit in memory.find(FindRequest("Ryoanji temple Kyoto")).hits)
        # A log that is indexed anew keeps its messages at rest, whichever file comes first.
        memory.run(FORGET, ForgetRequest(uris=[f"{LOG}#8"], include_conversations=True, confirm=1, now=NOW))
        assert resting.isdisjoint(hit.uri for hit in memory.find(FindRequest("Ryoanji temple Kyoto")).hits)
        memory.run(RESTORE, ArchiveRequest([str(gone.uri)]))
        assert f"{LOG}#2" in [hit.uri for hit in memory.find(FindRequest("Ryoanji temple Kyoto")).hits]
        assert receipt.commit_id


def test_a_segment_that_is_pinned_before_the_lock_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(tmp_path, **small(mid_term_capacity=1)) as (memory, _):
        say(memory, *TEMPLES, PAYMENTS[0], ("Bye!", "Bye!"))
        commit = memory.store.commit

        def after_pins(plan: Plan, **given: Any) -> CommitReceipt:
            for each in segments(memory):
                path = memory.store.files.path_for(each.uri)
                path.write_text(dump_segment(replace(each.segment, more={"pinned": True})), encoding="utf-8")
            return commit(plan, **given)

        monkeypatch.setattr(memory.store, "commit", after_pins)
        assert maintain(memory, "eviction").receipts == ()
        assert [len(segments(memory)), len(segments(memory, archived=True))] == [2, 0]


@pytest.mark.parametrize("archived", [False, True])
def test_what_is_forgotten_leaves_the_title_of_a_segment_and_its_file_name(archived: bool, tmp_path: Path) -> None:
    secret = ("芝麻是支付系统的回调密码，回调经常超时。", "支付回调要做成幂等的，超时之后重试。")
    with scripted(tmp_path, **small(mid_term_capacity=1)) as (memory, _):
        say(memory, secret, *PAYMENTS, *TEMPLES)
        (old,) = (each for each in segments(memory) if each.segment.exchanges[0].first == 0)
        assert len(old.segment.exchanges) > 1
        assert "芝麻" in old.segment.title
        assert "芝麻" in old.uri.name
        if archived:
            for _ in range(40):
                memory.find(FindRequest("Ryoanji temple Kyoto", now=NOW))
            maintain(memory, "eviction")
        lines = [f"{LOG}#0", f"{LOG}#1"]
        memory.run(FORGET, ForgetRequest(uris=lines, include_conversations=True, confirm=2, now=NOW))
        (new,) = (each for each in segments(memory, archived=archived) if each.segment.exchanges[0].first == 2)
        files = [path for path in tmp_path.rglob("*.md") if ".state" not in path.parts]
        assert new.uri.name in [path.name for path in files]
        assert [path.name for path in files if "芝麻" in path.name + path.read_text(encoding="utf-8")] == []
        assert len(segments(memory)) + len(segments(memory, archived=True)) == 2


def test_a_title_that_a_person_wrote_stays_when_something_is_forgotten(tmp_path: Path) -> None:
    with scripted(tmp_path, **small()) as (memory, _):
        say(memory, *TEMPLES, ("Bye!", "Bye!"))
        (stored,) = segments(memory)
        path = memory.store.files.path_for(stored.uri)
        text = path.read_text(encoding="utf-8").replace(f"# {stored.segment.title}", "# Our trip")
        path.write_text(text, encoding="utf-8", newline="\n")
        lines = [f"{LOG}#0", f"{LOG}#1"]
        memory.run(FORGET, ForgetRequest(uris=lines, include_conversations=True, confirm=2, now=NOW))
        (kept,) = segments(memory)
        assert (kept.uri, kept.segment.title) == (stored.uri, "Our trip")
        assert [exchange.first for exchange in kept.segment.exchanges] == [2, 4]


def test_what_is_forgotten_leaves_an_archived_segment_too(tmp_path: Path) -> None:
    secret = ("The safe code of the temple office is 4711.", "Noted, the temple safe code.")
    with scripted(tmp_path, **small(mid_term_capacity=1)) as (memory, _):
        say(memory, *TEMPLES, secret, PAYMENTS[0], ("Bye!", "Bye!"))
        for _ in range(40):
            memory.find(FindRequest("支付回调 幂等", now=NOW))
        maintain(memory, "eviction")
        archived = [memory.store.files.path_for(each.uri) for each in segments(memory, archived=True)]
        assert "4711" in "".join(path.read_text(encoding="utf-8") for path in archived)
        lines = [f"{LOG}#6", f"{LOG}#7"]
        memory.run(FORGET, ForgetRequest(uris=lines, include_conversations=True, confirm=2, now=NOW))
        kept = [each for each in segments(memory, archived=True) if memory.store.text(each.uri)]
        assert [exchange.first for each in kept for exchange in each.segment.exchanges] == [0, 2, 4]
        assert all("safe" not in memory.read(ReadRequest(str(each.uri))).content for each in kept)


def test_exchanges_are_taken_from_the_best_segments(tmp_path: Path) -> None:
    with scripted(tmp_path, **small(), retrieve=RetrieveConfig(top_sessions=1)) as (memory, _):
        say(memory, *TEMPLES, *PAYMENTS, ("Bye!", "Bye!"))
        pack = memory.retrieve(RetrieveRequest("Kyoto temple gardens in winter 支付回调", session_id="s2"))
        exchanges = {item.uri for part in pack.parts if part.kind == "session" for item in part.items}
        assert exchanges
        holders = {
            str(each.uri)
            for uri in exchanges
            for each in segments(memory)
            if each.segment.holds(int(uri.rpartition("#")[2]))
        }
        assert len(holders) == 1


def test_a_model_writes_summaries_in_one_call_and_never_over_a_persons(tmp_path: Path) -> None:
    summaries = json.dumps({"summaries": [{"number": 1, "text": "Temple gardens of Kyoto in winter."}]})
    with scripted(tmp_path, [summaries], **small()) as (memory, llm):
        say(memory, *TEMPLES, *PAYMENTS)
        temples, payments = segments(memory)
        path = memory.store.files.path_for(payments.uri)
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(payments.segment.summary, "我们的支付系统。", 1), encoding="utf-8", newline="\n")
        maintain(memory, "summaries")
        assert len(llm.requests) == 1
        after = {each.uri: each.segment for each in segments(memory)}
        assert (after[temples.uri].summary, after[temples.uri].summary_by) == (
            "Temple gardens of Kyoto in winter.",
            "model",
        )
        assert (after[payments.uri].summary, after[payments.uri].summary_by) == ("我们的支付系统。", "person")
        maintain(memory, "summaries")
        assert len(llm.requests) == 1


def test_the_promoter_offers_nothing_that_a_client_was_briefed_about(tmp_path: Path) -> None:
    with scripted(tmp_path, **small(mid_term_heat_threshold=3.5)) as (memory, _):
        say(memory, *TEMPLES, *PAYMENTS)
        promoter = Promoter(memory)
        assert len(promoter.everywhere(NOW)) == 1
        memory.extractor.brief("s1")
        assert promoter.everywhere(NOW) == []
