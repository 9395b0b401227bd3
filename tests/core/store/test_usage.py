"""Usage: what was retrieved is counted and leaves a trail, off the request path, and no file is touched."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.store import usage
from memory_core.core.store.ledger import Ledger
from memory_core.core.store.usage import QUERY_CHARS, TRAIL_HITS, TRAIL_ROWS, Recall, UsageLog, UsageTable
from tests.core.store.test_store import open_store
from tests.fork_server import starter

FACTS = "viking://user/default/memories/facts"
TEA = f"{FACTS}/茶.md"
CODE = "viking://user/default/memories/preferences/Code style.md"
SEARCH = "viking://agent/default/memories/tools/web_search.md"
LOG = "viking://session/default/s1/messages.jsonl"
AT = datetime(2026, 11, 1, 10, tzinfo=UTC)


def recall(*uris: str, query: str = "茶", at: datetime = AT, milliseconds: float = 5.0, cached: bool = False) -> Recall:
    hits = tuple((uri, round(0.9 - number / 100, 2)) for number, uri in enumerate(uris))
    return Recall(at, query, "find", hits, milliseconds, cached, "balanced", "s1", "网站")


@pytest.fixture
def table(ledger: Ledger) -> UsageTable:
    return ledger.usage_table


def counts(table: UsageTable, uris: Sequence[str]) -> dict[str, int]:
    return {uri: usage.access_count for uri, usage in table.usage(uris).items()}


def test_the_last_access_never_moves_back(table: UsageTable) -> None:
    beijing = timezone(timedelta(hours=8))
    later = datetime(2026, 11, 1, 18, 0, 1, tzinfo=beijing)  # a second after AT, in another zone
    table.record([recall(TEA, at=later)])
    table.record([recall(TEA, at=AT)])
    assert table.usage([TEA])[TEA].last_accessed_at == later


def test_a_read_counts_and_leaves_no_trail(table: UsageTable) -> None:
    table.record([], [(TEA, AT), (TEA, AT)])
    assert counts(table, [TEA]) == {TEA: 2}
    assert table.trail(10) == []


def test_turns_count_under_their_own_uri_and_not_as_use_of_the_log(table: UsageTable) -> None:
    table.record([recall(f"{LOG}#3", TEA), recall(f"{LOG}#3", f"{LOG}#4")])
    assert counts(table, [f"{LOG}#3", f"{LOG}#4", LOG]) == {f"{LOG}#3": 2, f"{LOG}#4": 1}


@pytest.mark.parametrize(
    "uri",
    ["viking://user/default/logs/1.md", "viking://user/default/rolling_summary.md", f"{FACTS}/.abstract.md", LOG],
)
def test_logs_and_summaries_are_in_the_trail_and_not_counted(table: UsageTable, uri: str) -> None:
    table.record([recall(uri)], [(uri, AT)])
    assert counts(table, [uri]) == {}
    assert [uri for uri, _ in table.trail(1)[0].hits] == [uri]


def test_the_trail_says_what_each_query_retrieved_newest_first(table: UsageTable) -> None:
    first, second = recall(TEA, CODE), recall(query="nothing", at=AT + timedelta(seconds=1), cached=True)
    table.record([first])
    table.record([second])
    assert table.trail(10) == [second, first]
    assert table.trail(1) == [second]


def test_the_trail_of_one_memory_of_a_session_and_of_a_directory(table: UsageTable) -> None:
    table.record([recall(TEA, query="1"), recall(f"{LOG}#3", query="2"), recall(CODE, f"{TEA}2", query="3")])
    found = {uri: [row.query for row in table.trail(10, uri)] for uri in (TEA, LOG, FACTS, f"{LOG}#3", SEARCH)}
    assert found == {TEA: ["1"], LOG: ["2"], FACTS: ["3", "1"], f"{LOG}#3": ["2"], SEARCH: []}


def test_a_long_query_and_many_hits_are_cut_in_the_trail_and_counted_whole(table: UsageTable) -> None:
    uris = [f"{FACTS}/{number}.md" for number in range(TRAIL_HITS + 5)]
    alike = recall(*uris, query="长" * 2 * QUERY_CHARS)
    table.record([replace(alike, hits=tuple((uri, 0.5) for uri in uris))])
    (row,) = table.trail(10)
    assert (row.query, len(row.hits)) == ("长" * QUERY_CHARS, TRAIL_HITS)
    assert len(counts(table, uris)) == TRAIL_HITS + 5


def test_what_comes_far_behind_the_best_hit_does_not_count_as_used(table: UsageTable) -> None:
    hits = ((TEA, 0.9), (CODE, 0.73), (SEARCH, 0.71), (f"{LOG}#3", 0.5), (f"{LOG}#4", 0.41), (f"{LOG}#5", 0.39))
    table.record([replace(recall(TEA), hits=hits)])
    used = counts(table, [uri for uri, _ in hits])
    assert sorted(used) == sorted([TEA, CODE, f"{LOG}#3", f"{LOG}#4"])


def test_a_query_that_no_database_takes_spoils_nothing(table: UsageTable) -> None:
    table.record([recall(TEA, query="a\ud800b"), recall(CODE)])
    assert [row.query for row in table.trail(10)] == ["茶", "a?b"]
    assert counts(table, [TEA, CODE]) == {TEA: 1, CODE: 1}


def test_the_trail_keeps_the_newest_rows(table: UsageTable) -> None:
    table.record([recall(query=str(number)) for number in range(TRAIL_ROWS)])
    table.record([recall(query="newest", milliseconds=1.0, cached=True)] * 3)
    rows = table.trail(2 * TRAIL_ROWS)
    assert (len(rows), rows[0].query, rows[-1].query) == (TRAIL_ROWS, "newest", "3")
    latencies = table.latencies()
    assert (latencies.milliseconds[:4], len(latencies.milliseconds)) == ((1.0, 1.0, 1.0, 5.0), TRAIL_ROWS)
    assert latencies.cached == 3


def test_what_one_user_asked_is_not_in_the_trail_of_another(table: UsageTable) -> None:
    table.record([recall(TEA, query="mine"), replace(recall(TEA, query="theirs"), space="lin", milliseconds=7.0)])
    assert [row.query for row in table.trail(10, space="lin")] == ["theirs"]
    assert [row.query for row in table.trail(10, TEA, "default")] == ["mine"]
    assert table.latencies("lin").milliseconds == (7.0,)


def test_the_most_used_come_first_and_among_equals_the_last_used(table: UsageTable) -> None:
    table.record([recall(TEA), recall(CODE, at=AT + timedelta(hours=1)), recall(SEARCH), recall(SEARCH)])
    table.record([recall(f"{LOG}#1")] * 5)
    assert [uri for uri, _ in table.top(10)] == [SEARCH, CODE, TEA]
    assert [uri for uri, _ in table.top(1)] == [SEARCH]
    assert [uri for uri, _ in table.top(1, lambda uri: uri.startswith("viking://user/"))] == [CODE]
    assert table.top(10)[0][1].access_count == 2


def test_finding_the_most_used_does_not_sort_the_table(ledger: Ledger) -> None:
    statements: list[str] = []
    connection = ledger.database.connection()
    connection.set_trace_callback(statements.append)
    ledger.usage_table.top(5)
    connection.set_trace_callback(None)
    plan = " ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statements[-1]}"))
    assert "B-TREE" not in plan


def test_totals_are_of_the_spaces_asked_for(table: UsageTable) -> None:
    table.record([recall(TEA, CODE, SEARCH, f"{LOG}#1"), recall(TEA, "viking://user/default2/memories/facts/x.md")])
    assert table.totals(["viking://user/default"]) == (2, 3)
    assert table.totals(["viking://user/default", "viking://agent/default"]) == (3, 4)


REFUSALS = {
    "not there": ("ALTER TABLE trail RENAME TO away", "ALTER TABLE away RENAME TO trail"),
    # Like a damaged page, it raises what is no OperationalError.
    "damaged": (
        "CREATE TRIGGER refuse BEFORE INSERT ON trail BEGIN SELECT RAISE(ABORT, 'damaged'); END",
        "DROP TRIGGER refuse",
    ),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_what_cannot_be_written_is_kept_and_written_later(
    tmp_path: Path, ledger: Ledger, caplog: pytest.LogCaptureFixture, refusal: str
) -> None:
    refuse, mend = REFUSALS[refusal]
    log = UsageLog(ledger.usage_table, ledger.model_calls, lambda: None)
    other = sqlite3.connect(tmp_path / "ledger.sqlite3", isolation_level=None)
    other.execute(refuse)
    log.recalled(recall(TEA, query="first"))
    log.read(TEA, AT)
    with caplog.at_level(logging.WARNING):
        log.flush()
    assert "not counted yet" in caplog.text
    assert counts(ledger.usage_table, [TEA]) == {}  # counts and trail are one transaction
    other.execute(mend)
    other.close()
    log.recalled(recall(TEA, query="second"))
    log.flush()
    log.flush()
    assert counts(ledger.usage_table, [TEA]) == {TEA: 3}
    assert [row.query for row in ledger.usage_table.trail(10)] == ["second", "first"]


def test_a_retrieval_is_written_in_the_background_and_at_the_latest_on_close(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.usage.recalled(recall(TEA))
    store.usage.read(TEA, AT)
    store.close()
    store = open_store(tmp_path)
    assert counts(store.ledger.usage_table, [TEA]) == {TEA: 2}
    assert len(store.ledger.usage_table.trail(10)) == 1
    assert store.ledger.history() == []
    assert [path.name for path in tmp_path.iterdir()] == [".state"]
    store.close()


def _record_many(root: str, worker: int, count: int) -> None:
    store = open_store(Path(root))
    for number in range(count):
        store.usage.recalled(recall(TEA, f"{FACTS}/{worker}.md", query=f"{worker}/{number}"))
        if number % 10 == 0:
            store.usage.flush()
    store.close()
    os._exit(0)


def test_processes_that_record_at_once_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_record_many, args=(str(tmp_path), worker, 100)) for worker in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    store = open_store(tmp_path)
    assert counts(store.ledger.usage_table, [TEA]) == {TEA: 300}
    queries = {row.query for row in store.ledger.usage_table.trail(1_000)}
    assert queries == {f"{worker}/{number}" for worker in range(3) for number in range(100)}
    store.close()


_KILLED = """
import os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from memory_core.core.store.local import Store
from memory_core.core.store.usage import Recall

store = Store(Path(sys.argv[1]), lambda uri, text: ("", ""))
for query in ("written", "under way"):
    store.usage.recalled(Recall(datetime.now(UTC), query, "find", ((sys.argv[2], 0.5),), 1.0))
    if query == "written":
        store.usage.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_loses_at_most_what_was_not_written_yet(tmp_path: Path) -> None:
    root = tmp_path / "store"
    run = starter().run(_KILLED, root, TEA)
    assert run.returncode == -signal.SIGKILL, run.stderr
    store = open_store(root)
    rows = store.ledger.usage_table.trail(10)
    assert [row.query for row in rows][-1:] == ["written"]
    assert counts(store.ledger.usage_table, [TEA]) == {TEA: len(rows)}
    store.close()


def test_of_too_many_notes_that_cannot_be_written_the_oldest_are_lost(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "_WAITING_ROWS", 3)
    path = tmp_path / "ledger.sqlite3"
    log = UsageLog(ledger.usage_table, ledger.model_calls, lambda: None)

    class Meanwhile(UsageTable):
        def record(self, recalls: Sequence[Recall], reads: Iterable[tuple[str, datetime]] = ()) -> None:
            log.recalled(recall(TEA, query="4"))
            super().record(recalls, reads)

    log._table = Meanwhile(ledger.database)
    with closing(sqlite3.connect(path)) as other:
        other.execute("ALTER TABLE trail RENAME TO away")
        for query in ("1", "2", "3"):
            log.recalled(recall(TEA, query=query))
        log.flush()
        other.execute("ALTER TABLE away RENAME TO trail")
    log._table = ledger.usage_table
    log.flush()
    assert [row.query for row in ledger.usage_table.trail(10)] == ["4", "3", "2"]


def test_what_another_thread_is_writing_is_written_when_a_flush_returns(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = UsageLog(ledger.usage_table, ledger.model_calls, lambda: None)
    began, record = threading.Event(), UsageTable.record

    def slow(table: UsageTable, *given: Any) -> None:
        began.set()
        time.sleep(0.2)
        record(table, *given)

    monkeypatch.setattr(UsageTable, "record", slow)
    log.recalled(recall(TEA))
    other = threading.Thread(target=log.flush)
    other.start()
    assert began.wait(10)
    log.flush()
    assert counts(ledger.usage_table, [TEA]) == {TEA: 1}
    other.join()
