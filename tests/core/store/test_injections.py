"""What a session was shown: by digest, across openings, until it is forgotten or left alone for a month."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from memory_core.core.store.ledger import Ledger
from memory_core.core.store.usage import InjectionTable

TEA = "viking://user/default/memories/facts/茶.md"
CODE = "viking://user/default/memories/preferences/Code style.md"
AT = "2026-11-01T10:00:00.000+00:00"
LATER = "2026-11-20T10:00:00.000+00:00"
A_MONTH_LATER = "2026-12-01T10:00:00.001+00:00"


@pytest.fixture
def injections(ledger: Ledger) -> InjectionTable:
    return ledger.injections


def test_a_session_left_alone_for_a_month_is_dropped_by_the_next_record(injections: InjectionTable) -> None:
    injections.record("old", {TEA: "d1"}, AT)
    injections.record("new", {}, LATER)
    assert injections.seen("old") == {TEA: "d1"}
    injections.record("new", {}, A_MONTH_LATER)
    assert injections.seen("old") == {}


def test_a_session_that_was_touched_meanwhile_keeps_even_its_oldest_rows(injections: InjectionTable) -> None:
    injections.record("s", {TEA: "d1"}, AT)
    injections.record("s", {}, LATER)
    injections.record("another", {CODE: "d2"}, A_MONTH_LATER)
    assert injections.seen("s") == {TEA: "d1"}


def test_times_of_other_zones_compare_as_moments(injections: InjectionTable) -> None:
    injections.record("s", {TEA: "d1"}, AT)
    injections.record("another", {}, "2026-12-01T18:00:00+08:00")  # thirty days to the minute
    assert injections.seen("s") == {TEA: "d1"}
    injections.record("another", {}, "2026-12-01T18:00:01+08:00")
    assert injections.seen("s") == {}


def test_two_writers_of_one_session_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite3"
    ledgers = [Ledger(path), Ledger(path)]

    def write(number: int) -> None:
        for part in range(20):
            ledgers[number].injections.record("s", {f"{number}/{part}": "d"}, AT)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledgers[0].injections.seen("s")) == 40
    for ledger in ledgers:
        ledger.close()


def test_a_commit_waits_for_the_disk_again_after_an_injection_did_not(ledger: Ledger) -> None:
    ledger.injections.record("s", {TEA: "d1"}, AT)
    assert ledger.database.connection().execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
