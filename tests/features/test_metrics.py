"""Insight: metrics, the trail of queries, and memories that nearly say the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.config import Config, SearchConfig
from memory_core.core.errors import InvalidInput, NotFound
from memory_core.core.index import embedding_queue
from memory_core.core.memory.requests import CommitRequest, FindRequest, ListRequest, ReadRequest
from memory_core.core.memory.results import as_json
from memory_core.core.store.usage import Recall
from memory_core.features.history import history_of
from memory_core.features.metrics import STATS, StatsRequest, percentile
from memory_core.features.rebuild import REBUILD, RebuildRequest
from memory_core.features.recall_trail import HOT, SIMILAR, TRAIL, HotRequest, SimilarRequest, TrailRequest
from memory_core.features.upkeep.archive import ARCHIVE, ArchiveRequest
from memory_core.runebook import Runebook, open_memory
from tests.kept import kept_files
from tests.stores import edited, fact, said, words_only

USER = "viking://user/default/memories"
LOG = "viking://session/default/s1/messages.jsonl"


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runebook]:
    with open_memory(Config(home=tmp_path_factory.mktemp("bundled"))) as opened:
        assert opened.indexer.embedder is not None
        assert opened.indexer.embedder.ready(60.0)
        yield opened


def test_an_empty_store_has_no_means_and_no_percentiles(memory: Runebook) -> None:
    metrics = memory.run(STATS, StatsRequest())
    assert (metrics.memories, metrics.messages, metrics.accesses, metrics.mean_salience) == (0, 0, 0, None)
    assert metrics.retrieval == {"count": 0, "p50_ms": None, "p99_ms": None, "cache_hit_rate": None}


def test_totals_count_memories_by_type_conversations_and_accesses(memory: Runebook) -> None:
    fact(memory, "茶", "她喝绿茶。", priority=0.8)
    fact(memory, "Coffee", "Black, never after noon.", priority=0.4)
    memory.commit(CommitRequest("Tabs, never spaces.", priority=0.3))
    said(memory, "你好", "hi")
    memory.find(FindRequest("绿茶"))
    memory.find(FindRequest("绿茶"))
    memory.read(ReadRequest(f"{USER}/facts/茶.md"))
    metrics = memory.run(STATS, StatsRequest())
    assert (metrics.memories, dict(metrics.by_type)) == (3, {"facts": 2, "notes": 1})
    assert metrics.mean_salience == 0.5
    assert (metrics.messages, metrics.sessions, metrics.directories) == (2, 1, 2)
    assert (metrics.accesses, metrics.used) == (3, 1)
    retrieval = as_json(metrics)["retrieval"]
    assert (retrieval["count"], retrieval["cache_hit_rate"]) == (2, 0.5)
    assert 0.0 < retrieval["p50_ms"] <= retrieval["p99_ms"]
    assert metrics.index == {"passages": 5, "vectors": 0, "waiting": 0, "cache_hit_rate": None}


def test_confidence_pins_archive_queue_commits_and_bytes_are_counted(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        uri = fact(memory, "茶", "她喝绿茶。", metadata={"pinned": True})
        old = fact(memory, "Coffee", "Black, never after noon.")
        memory.run(ARCHIVE, ArchiveRequest([old]))
        said(memory, "我们五月去大阪。", extract=False)
        edited(memory, uri, {"confidence": 0.5, "patches": {}})
        memory.store.close()
    with open_memory(words_only(tmp_path)) as memory:
        metrics = memory.run(STATS, StatsRequest())
        assert (metrics.memories, metrics.archived, metrics.pinned, metrics.mean_confidence) == (1, 1, 1, 0.5)
        assert dict(metrics.by_space) == {"user/default": 1}
        assert metrics.waiting_extractions == {"sessions": 1, "messages": 1}
        assert metrics.commits["messages"] == 1
        assert sum(metrics.commits.values()) == len(history_of(memory).commits())
        kept = kept_files(tmp_path, ("user", "session", "archive"))
        assert metrics.size_bytes == {"files": sum(map(len, kept.values()))}
        whole = memory.run(STATS, StatsRequest(whole=True)).size_bytes
        assert whole["ledger"] >= (tmp_path / ".state" / "ledger.sqlite3").stat().st_size


def test_metrics_are_a_page_that_is_read_but_not_listed_below(memory: Runebook) -> None:
    fact(memory, "茶", "她喝绿茶。")
    page = memory.read(ReadRequest("viking://metrics"))
    assert json.loads(page.content)["by_type"] == {"facts": 1}
    assert memory.read(ReadRequest("viking://metrics", 1, 1)).content.strip().startswith('"memories"')
    assert "viking://metrics" in [entry.uri for entry in memory.ls(ListRequest("viking://")).entries]
    with pytest.raises(InvalidInput, match="not a directory"):
        memory.ls(ListRequest("viking://metrics"))
    memory.store.usage.flush()
    assert memory.run(STATS, StatsRequest()).accesses == 0  # looking at them is no use of a memory


def test_a_text_that_comes_back_is_not_embedded_again_and_counts_as_a_hit(tmp_path: Path) -> None:
    with open_memory(Config(home=tmp_path)) as memory:
        assert memory.indexer.embedder is not None
        assert memory.indexer.embedder.ready(60.0)
        fact(memory, "茶", "她每天早上喝一杯绿茶。")
        memory.indexer.embed_all(lambda _progress: None)
        assert memory.run(STATS, StatsRequest(whole=True)).index["cache_hit_rate"] == 0.0
        memory.run(REBUILD, RebuildRequest())
        embedded, reused = embedding_queue.effort(memory.indexer.catalog.connection())
        assert (embedded, reused > 0) == (1, True)
        assert memory.run(STATS, StatsRequest(whole=True)).index["cache_hit_rate"] == round(reused / (reused + 1), 4)
        assert memory.run(STATS, StatsRequest()).index["cache_hit_rate"] is None  # others' texts are counted there


def test_a_user_counts_the_own_space_and_the_owner_all_of_the_folder(memory: Runebook, tmp_path: Path) -> None:
    fact(memory, "茶", "她喝绿茶。")
    memory.find(FindRequest("绿茶"))
    memory.store.usage.flush()
    with open_memory(words_only(tmp_path, user_space="lin", agent_space="lin")) as lin:
        metrics = lin.run(STATS, StatsRequest())
        assert (metrics.memories, metrics.directories, metrics.accesses, metrics.retrieval["count"]) == (0, 0, 0, 0)
        assert lin.run(TRAIL, TrailRequest()) == []
        with pytest.raises(NotFound):
            lin.run(TRAIL, TrailRequest(uri=f"{USER}/facts/茶.md"))
        with pytest.raises(NotFound):
            lin.run(SIMILAR, SimilarRequest(f"{USER}/facts/茶.md"))
        fact(lin, "Coffee", "Black.")
        assert dict(lin.run(STATS, StatsRequest(whole=True)).by_space) == {"user/default": 1, "user/lin": 1}
        assert dict(lin.run(STATS, StatsRequest()).by_space) == {"user/lin": 1}


def test_percentiles_are_by_nearest_rank() -> None:
    many = tuple(float(number) for number in range(1, 201))
    asked = [((), 50), ((7.0,), 99), ((1.0, 2.0, 3.0, 4.0), 50), (many, 99), ((1.0, 2.0), 100)]
    assert [percentile(values, percent) for values, percent in asked] == [None, 7.0, 2.0, 198.0, 2.0]


def test_the_trail_names_query_hits_and_time_at_once(memory: Runebook) -> None:
    uri = fact(memory, "茶", "她喝绿茶。")
    said(memory, "zebra crossing")
    memory.find(FindRequest("绿茶", rank="relevance"))
    memory.find(FindRequest("zebra"))
    memory.find(FindRequest("完全不相关 nothing"))
    nothing, zebra, tea = memory.run(TRAIL, TrailRequest())
    assert (tea.query, tea.kind, tea.rank, tea.cached) == ("绿茶", "find", "relevance", False)
    assert [found for found, _ in tea.hits] == [uri]
    assert tea.milliseconds > 0.0
    assert [found for found, _ in zebra.hits] == [f"{LOG}#0"]
    assert nothing.hits == ()
    assert [row.query for row in memory.run(TRAIL, TrailRequest(uri=LOG))] == ["zebra"]
    assert [row.query for row in memory.run(TRAIL, TrailRequest(uri=f"{LOG}#0"))] == ["zebra"]
    assert [row.query for row in memory.run(TRAIL, TrailRequest(uri=USER))] == ["绿茶"]
    assert len(memory.run(TRAIL, TrailRequest(1))) == 1
    with pytest.raises(InvalidInput, match="limit 0"):
        memory.run(TRAIL, TrailRequest(0))


def test_the_trail_keeps_no_words_where_the_setting_says_so(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path, search=SearchConfig(trail=False))) as memory:
        uri = fact(memory, "茶", "她喝绿茶。")
        memory.find(FindRequest("绿茶 secret-zq77"))
        (row,) = memory.run(TRAIL, TrailRequest())
        assert (row.query, [found for found, _ in row.hits]) == ("", [uri])
        assert memory.store.ledger.usage_table.usage([uri])[uri].access_count == 1
    files = list((tmp_path / ".state").glob("ledger.sqlite3*"))
    assert any("她喝绿茶".encode() in file.read_bytes() for file in files)
    assert not any(b"secret-zq77" in file.read_bytes() for file in files)


def test_finding_turns_does_not_make_their_session_young(memory: Runebook) -> None:
    memory.commit(
        CommitRequest(messages=[{"role": "user", "content": "zebra", "time": "2020-01-01T00:00:00Z"}], session_id="s1")
    )
    before = memory.find(FindRequest("zebra", rank="decay")).hits[0].why["recency"]
    memory.store.usage.flush()
    after = memory.find(FindRequest("zebra", rank="decay")).hits[0].why["recency"]
    assert before == after


def test_a_context_without_a_question_is_in_the_trail_and_makes_nothing_hot(memory: Runebook) -> None:
    uri, now = fact(memory, "茶", "她喝绿茶。"), datetime.now(UTC)
    memory.recalls.note(Recall(now, "", "retrieve", ((uri, 0.0),), 3.0, session_id="s1"))
    (row,) = memory.run(TRAIL, TrailRequest())
    assert (row.kind, row.query, row.hits, row.session_id) == ("retrieve", "", ((uri, 0.0),), "s1")
    assert memory.run(HOT, HotRequest()) == ()
    memory.recalls.note(Recall(now, "绿茶", "retrieve", ((uri, 0.5),), 3.0))
    memory.store.usage.flush()
    assert [found.access_count for found in memory.run(HOT, HotRequest())] == [1]


def test_a_read_counts_as_use_once_however_many_pages(memory: Runebook) -> None:
    uri = fact(memory, "Long", "\n".join(f"第{number}行" for number in range(50)))
    for offset in (0, 20, 40):
        memory.read(ReadRequest(uri, offset, 20))
    memory.store.usage.flush()
    assert memory.store.ledger.usage_table.usage([uri])[uri].access_count == 1


def test_what_is_said_twice_is_similar_and_neither_is_touched(bundled: Runebook) -> None:
    first = fact(bundled, "绿茶", "她每天早上喝一杯绿茶。")
    second = fact(bundled, "早上", "她每天早上喝一杯绿茶。")
    fact(bundled, "Lake", "The family spends every August at the lake in Finland.")
    text = bundled.read(ReadRequest(first)).content
    found = bundled.run(SIMILAR, SimilarRequest("她每天早上喝一杯绿茶。"))
    assert (found.by, found.threshold, found.notes) == ("meaning", 0.9, ())
    assert {item.uri for item in found.similar} == {first, second}
    assert all(item.score >= 0.9 for item in found.similar)
    assert [item.uri for item in bundled.run(SIMILAR, SimilarRequest(first)).similar] == [second]
    assert bundled.read(ReadRequest(first)).content == text


def test_a_memory_is_never_similar_to_itself_and_the_threshold_is_kept(bundled: Runebook) -> None:
    uri = fact(bundled, "Heron", "The office network is called Heron and reaches the garden.")
    assert bundled.run(SIMILAR, SimilarRequest(uri)).similar == ()
    assert bundled.run(SIMILAR, SimilarRequest("The office network is named Heron.", threshold=1.0)).similar == ()
    loose = bundled.run(SIMILAR, SimilarRequest("The office network is named Heron.", threshold=0.3, limit=1)).similar
    assert [item.uri for item in loose] == [uri]
    assert loose[0].score < 1.0


def test_without_a_model_words_are_compared_and_it_says_so(memory: Runebook) -> None:
    uri = fact(memory, "茶", "她每天早上喝一杯绿茶。")
    found = memory.run(SIMILAR, SimilarRequest("她每天早上喝一杯绿茶。"))
    assert (found.by, [item.uri for item in found.similar]) == ("words", [uri])
    assert "words" in found.notes[0]


def test_a_wrong_question_is_refused(memory: Runebook) -> None:
    wrong: list[dict[str, Any]] = [{"text_or_uri": " "}, {"text_or_uri": "viking://nowhere/x"}]
    wrong += [{"text_or_uri": "x", "threshold": threshold} for threshold in (0.0, 1.1)]
    wrong += [{"text_or_uri": "x", "limit": limit} for limit in (0, 51)]
    for arguments in wrong:
        with pytest.raises(InvalidInput):
            memory.run(SIMILAR, SimilarRequest(**arguments))
    with pytest.raises(NotFound):
        memory.run(SIMILAR, SimilarRequest(f"{USER}/facts/不存在.md"))
