"""Metrics as Prometheus reads them, checked with its own parser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from memory_core.core.llm.client import ScriptedLLM
from memory_core.core.memory.requests import FindRequest
from memory_core.core.store.usage import ModelCalls
from memory_core.features.chat import Chat, ChatRequest
from memory_core.features.metrics import STATS, StatsRequest, exposition
from memory_core.runebook import Runebook, open_memory
from tests.stores import fact, words_only

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runebook]:
    config = words_only(tmp_path_factory.mktemp("store"), extractor="none")
    with open_memory(config, llm=ScriptedLLM(["好的。"])) as opened:
        fact(opened, "茶", "她喝绿茶。 Green tea.", metadata={"pinned": True})
        Chat(opened, ChatRequest("s1")).say("我喝绿茶吗?")
        opened.find(FindRequest("绿茶"))
        yield opened


def samples(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float:
    return found[f"runebook_{name}", frozenset(labels.items())]


def test_prometheus_reads_every_figure(memory: Runebook) -> None:
    metrics = memory.run(STATS, StatsRequest(whole=True))
    found = samples(exposition(metrics))
    assert value(found, "memories", space="user/default", type="facts") == 1
    assert value(found, "memories_pinned") == 1
    assert value(found, "messages") == 2
    assert value(found, "commits_total", kind="messages") == 2
    assert value(found, "model_calls_total", space="default", purpose="chat", model="") == 1
    assert value(found, "model_tokens_total", space="default", purpose="chat", model="", kind="prompt") == 0
    assert value(found, "size_bytes", part="ledger") > 10_000
    slowest = metrics.retrieval["p99_ms"]
    assert slowest is not None
    assert value(found, "retrieval_latency_seconds", quantile="0.99") == pytest.approx(slowest / 1_000)
    assert value(found, "cache_hit_ratio", cache="query") == 0.0
    assert ("runebook_cache_hit_ratio", frozenset({("cache", "embedding")})) not in found  # without a model: unknown


def test_each_family_is_described_once_and_counters_alone_end_in_total(memory: Runebook) -> None:
    text = exposition(memory.run(STATS, StatsRequest()))
    assert text.endswith("\n")
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert family.documentation
        assert family.type in ("counter", "gauge")
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter")
    assert sum(line.startswith("# TYPE ") for line in text.splitlines()) == len(families)


def test_names_that_would_break_the_format_come_back_as_they_were(memory: Runebook) -> None:
    hostile = 'mo"del\\n\nrunebook_memories{space="x"} 9 # 模型'
    metrics = replace(memory.run(STATS, StatsRequest()), models=(ModelCalls("default", "chat", hostile),))
    found = samples(exposition(metrics))
    assert value(found, "model_calls_total", space="default", purpose="chat", model=hostile) == 1
    assert ("runebook_memories", frozenset({("space", "x")})) not in found


def test_an_empty_store_is_sound_and_says_that_it_is_empty(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path)) as empty:
        found = samples(exposition(empty.run(STATS, StatsRequest())))
    assert value(found, "memories") == 0
    assert not [name for name, _ in found if "model" in name or "latency" in name]
