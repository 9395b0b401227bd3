"""Damaged, deleted and edited segments: one spoils neither its session nor others, and nothing is done twice."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.memory.requests import FindRequest, RetrieveRequest
from memory_core.core.memory.results import Action
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.local import Store
from memory_core.features import FEATURES
from memory_core.features.tiers import overflow, stored
from memory_core.features.tiers.segment import Segment, SegmentExchange, dump_segment
from memory_core.features.tiers.stored import analysed_lines, segments_in
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.features.upkeep.archive import RESTORE, ArchiveRequest
from memory_core.features.upkeep.passes import MAINTAIN, MaintainRequest
from memory_core.runebook import Runebook
from tests.features.tiers.talks import (
    NOTHING,
    NOW,
    PAYMENTS,
    TEMPLES,
    firsts,
    maintain,
    say,
    small,
    spoken,
)
from tests.stores import log_of, scripted

BYE = ("Bye!", "Bye!")


@contextmanager
def opened(home: Path, answers: Sequence[str] | None = None, **tiers: Any) -> Iterator[Runebook]:
    with scripted(home, answers, **small(**tiers)) as (memory, _):
        yield memory


def file(memory: Runebook, at: int, session: str = "s1") -> Path:
    return memory.store.files.path_for(segments_in(memory.store, log_of(session)).used[at].uri)


def edit(path: Path, pattern: str, new: str) -> None:
    text, count = re.subn(pattern, lambda _match: new, path.read_text(encoding="utf-8"), count=1)
    assert count == 1
    path.write_text(text, encoding="utf-8", newline="\n")


def damage(path: Path) -> None:
    edit(path, r'"pages": \[', '"pages": [,')


def test_a_damaged_segment_keeps_neither_its_session_nor_others_from_being_sorted_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as memory:
        with monkeypatch.context() as patched:
            patched.setattr(overflow.Overflow, "after", lambda *_: None)
            say(memory, *TEMPLES, *PAYMENTS, session="old")
        say(memory, *TEMPLES, *PAYMENTS)
        damaged = file(memory, 0)
        damage(damaged)
        before = damaged.read_text(encoding="utf-8")
        say(memory, BYE)
        assert firsts(memory) == [[6, 8]]  # nothing of the damaged one is sorted a second time
        receipts = list(maintain(memory, "segments").receipts)
        assert firsts(memory, "old") == [[0, 2, 4], [6]]
        named = [result for receipt in receipts for result in receipt.results if result.action is Action.REJECTED]
        assert [damaged.name in result.uri for result in named] == [True]
        assert named[0].hint
        assert damaged.read_text(encoding="utf-8") == before


def test_promoted_exchanges_are_known_when_their_segment_or_another_is_damaged(tmp_path: Path, read: list[str]) -> None:
    with opened(tmp_path, [NOTHING] * 3, mid_term_heat_threshold=3.5) as memory:
        say(memory, *TEMPLES, *PAYMENTS)
        assert read == spoken(*TEMPLES)
        temples, payments = file(memory, 0), file(memory, 1)
        damage(payments)
        assert analysed_lines(memory.store, log_of()) == frozenset(range(6))
        damage(temples)
        assert analysed_lines(memory.store, log_of()) == frozenset(range(6))
        list(memory.extract_waiting())
        assert sorted(read) == sorted(spoken(*TEMPLES, *PAYMENTS))


def test_a_log_that_cannot_be_read_keeps_no_other_from_being_promoted_or_summarised(
    tmp_path: Path, read: list[str]
) -> None:
    with opened(tmp_path, [NOTHING] * 5) as memory:
        say(memory, *TEMPLES, *PAYMENTS, session="other")
        say(memory, *TEMPLES, *PAYMENTS)
        memory.retrieve(RetrieveRequest("Ryoanji temple Kyoto"))
        memory.store.files.path_for(log_of("other")).write_bytes(b"\xff\n")
    with opened(tmp_path, [NOTHING] * 5, mid_term_heat_threshold=3.5) as memory:
        assert say(memory, BYE, session="third").commit_id
        maintain(memory, "promotion")
        assert read == spoken(*TEMPLES)
        assert maintain(memory, "summaries").receipts


def test_what_an_undo_or_a_deletion_by_hand_opened_is_sorted_again(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        say(memory, *TEMPLES, *PAYMENTS)
        say(memory, BYE)
        assert firsts(memory) == [[0, 2, 4], [6, 8]]
        newest = memory.store.ledger.past.of_kind("segment")[-1]
        memory.run(UNDO, UndoRequest(newest.commit_id, now=NOW))
        assert firsts(memory) == [[0, 2, 4], [6]]
        list(maintain(memory, "segments").receipts)
        assert firsts(memory) == [[0, 2, 4], [6, 8]]
        file(memory, 0).unlink()
        assert firsts(memory) == [[6, 8]]
        list(maintain(memory, "segments").receipts)
        assert firsts(memory) == [[0, 2, 4], [6, 8]]
        exchanges = segments_in(memory.store, log_of()).used[0].segment.exchanges
        assert [(exchange.previous, exchange.next) for exchange in exchanges] == [(None, 2), (0, 4), (2, None)]
        assert list(maintain(memory, "segments").receipts) == []


def test_promoted_exchanges_of_a_deleted_segment_are_never_extracted_again(tmp_path: Path, read: list[str]) -> None:
    with opened(tmp_path, [NOTHING] * 3, mid_term_heat_threshold=3.5) as memory:
        say(memory, *TEMPLES, *PAYMENTS)
        assert read == spoken(*TEMPLES)
        file(memory, 0).unlink()
        assert analysed_lines(memory.store, log_of()) == frozenset(range(6))
        list(maintain(memory, "segments").receipts)
        temples = segments_in(memory.store, log_of()).used[0].segment
        assert [exchange.analysed for exchange in temples.exchanges] == [True] * 3
        assert temples.interactions == 0
        list(memory.extract_waiting())
        assert sorted(read) == sorted(spoken(*TEMPLES, *PAYMENTS))


@pytest.mark.parametrize("moves", ["stays", "archived", "restored"])
def test_promoted_exchanges_are_known_to_a_new_process_when_every_segment_was_deleted(
    tmp_path: Path, read: list[str], moves: str
) -> None:
    with opened(tmp_path, [NOTHING] * 3, mid_term_heat_threshold=3.5, mid_term_capacity=1) as memory:
        say(memory, *TEMPLES, *PAYMENTS)
        assert read == spoken(*TEMPLES)
        if moves != "stays":
            memory.find(FindRequest(PAYMENTS[0][0], now=NOW))
            list(maintain(memory, "eviction").receipts)
        found = segments_in(memory.store, log_of())
        assert [len(each.segment.exchanges) for each in found.archived] == [3] * (moves != "stays")
        if moves == "restored":
            memory.run(RESTORE, ArchiveRequest([str(each.uri) for each in found.archived]))
            found = segments_in(memory.store, log_of())
            assert found.archived == ()
        for each in (*found.used, *found.archived):
            memory.store.files.path_for(each.uri).unlink()
        memory.store.forget_vanished()
    with opened(tmp_path) as memory:
        assert segments_in(memory.store, log_of()).exchanges == ()
        assert analysed_lines(memory.store, log_of()) == frozenset(range(6))


def test_a_count_that_somebody_mistyped_stops_neither_a_commit_nor_maintenance(tmp_path: Path) -> None:
    with opened(tmp_path, [NOTHING] * 9) as memory:
        say(memory, *TEMPLES, *PAYMENTS)
        edit(file(memory, 0), r'"interactions": \d+', '"interactions": 1' + "0" * 400)
        edit(file(memory, 0), r'"last": 1,', '"last": 9' + "9" * 30 + ",")
        edit(file(memory, 0), r'"chains": \{', '"chains": {"' + "9" * 5000 + '": "x", ')
        say(memory, BYE)
        assert [done.failure for done in memory.run(MAINTAIN, MaintainRequest(now=NOW)) if done.failure] == []
        assert sorted(first for each in firsts(memory) for first in each) == [0, 2, 4, 6, 8]


def test_a_session_that_grew_under_a_clock_in_the_future_has_ended(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        say(memory, BYE, now=NOW + timedelta(days=26_000))
        say(memory, BYE, session="s2", now=NOW + timedelta(minutes=2))
        trigger = memory.trigger
        assert trigger.is_idle(log_of(), NOW)
        assert not trigger.is_idle(log_of("s2"), NOW)  # clocks differ a little
        assert trigger.is_idle(log_of("s2"), NOW + timedelta(minutes=33))


def test_only_files_that_look_otherwise_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    actual = stored._read

    def noted(store: Any, uri: MemoryUri) -> Any:
        reads.append(uri.name)
        return actual(store, uri)

    with opened(tmp_path) as memory:
        say(memory, *TEMPLES, *PAYMENTS)
    time.sleep(0.1)  # all is older than a tick of the clock
    with opened(tmp_path) as memory:
        monkeypatch.setattr(stored, "_read", noted)
        found = segments_in(memory.store, log_of())
        assert len(reads) == 2
        segments_in(memory.store, log_of())
        settled = len(reads)
        assert segments_in(memory.store, log_of()) is found
        assert len(reads) == settled
        payments = file(memory, 1)
        edit(payments, "支付", "付款")
        assert segments_in(memory.store, log_of()) is not found
        assert reads[settled:] == [payments.name]


def test_messages_of_a_damaged_archived_segment_stay_at_rest() -> None:
    uri = MemoryUri.parse("viking://archive/session/default/s1/segments/temples.md")
    text = dump_segment(Segment("temples", "s1", exchanges=(SegmentExchange(0, 1), SegmentExchange(2, 3))))
    kind = FEATURES.kind_of(uri)
    assert kind is not None
    assert kind.resting_lines(uri, text.replace('"pages": [', '"pages": [,')) == (log_of(), [(0, 1), (2, 3)])


@pytest.fixture
def two_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runebook]:
    """``s1`` and ``s2``, of which one alone is remembered."""
    monkeypatch.setattr(stored, "_REMEMBERED_CHARS", 1)
    with opened(tmp_path) as memory:
        for session in ("s1", "s2"):
            say(memory, *TEMPLES, *PAYMENTS, session=session)
        time.sleep(0.1)  # what was written just now is read again
        yield memory


def test_beyond_so_many_characters_the_segments_of_the_session_at_hand_are_remembered(two_sessions: Runebook) -> None:
    for session in ("s1", "s2", "s1"):
        first, again = (segments_in(two_sessions.store, log_of(session)) for _ in range(2))
        assert again is first
        assert {log.parent.name for log in stored._readers[two_sessions.store]._sessions} == {session}


def test_a_session_is_remembered_though_another_is_read_meanwhile(
    two_sessions: Runebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments_in(two_sessions.store, log_of("s2"))
    read = stored._read

    def meanwhile(store: Store, uri: MemoryUri) -> Any:
        monkeypatch.setattr(stored, "_read", read)
        thread = threading.Thread(target=segments_in, args=(store, log_of("s2")))
        thread.start()
        thread.join()
        return read(store, uri)

    monkeypatch.setattr(stored, "_read", meanwhile)
    first = segments_in(two_sessions.store, log_of("s1"))
    assert segments_in(two_sessions.store, log_of("s1")) is first
