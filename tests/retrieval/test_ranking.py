"""How hits are ordered: profiles, exact names, rivals, projects, and one place for what says the same."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memory_core.config import Config, EmbeddingConfig
from memory_core.memory import Memory, open_memory
from memory_core.model.project import ProjectScope

FACTS = "viking://user/default/memories/facts"
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with open_memory(Config(home=tmp_path, embedding=EmbeddingConfig(provider="none"))) as opened:
        yield opened


def fact(memory: Memory, topic: str, content: str, *, at: datetime = NOW, priority: float | None = None) -> str:
    receipt = memory.commit(content, memory_type="facts", fields={"topic": topic}, now=at, priority=priority)
    return receipt.results[0].uri


def uris(memory: Memory, query: str, limit: int = 10) -> list[str]:
    return [hit.uri for hit in memory.find(query, limit=limit, now=NOW).hits]


# Profiles


def test_relevance_ignores_age_and_importance(memory: Memory) -> None:
    fact(memory, "old", "The garage code is 4711.", at=NOW - timedelta(days=400), priority=0.1)
    (hit,) = memory.find("garage code", rank="relevance", now=NOW).hits
    assert set(hit.why) == {"lexical"}
    (balanced,) = memory.find("garage code", rank="balanced", now=NOW).hits
    assert balanced.score < hit.score


def test_decay_is_match_times_salience_times_retention(memory: Memory) -> None:
    fact(memory, "garage", "The garage code is 4711.", at=NOW - timedelta(days=20), priority=0.8)
    (match,) = memory.find("garage code", rank="relevance", now=NOW).hits
    memory.store.usage.flush()
    memory.store.ledger.usage_table.forget() if hasattr(memory.store.ledger.usage_table, "forget") else None
    (hit,) = memory.find("garage code", rank="decay", now=NOW + timedelta(days=20)).hits
    assert hit.score == pytest.approx(match.score * 0.8 * 2.718281828 ** (-0.05 * 20), abs=2e-3)
    assert hit.why["recency"] == pytest.approx(2.718281828 ** (-0.05 * 20), abs=1e-3)


def test_weighted_counts_from_creation_while_never_used(memory: Memory) -> None:
    uri = fact(memory, "garage", "The garage code is 4711.", at=NOW - timedelta(days=15), priority=0.5)
    edit = {"uri": uri, "patches": {"content": "The garage code is 4712."}}
    memory.commit(operations={"edit_operations": [edit]}, now=NOW)
    (hit,) = memory.find("garage code", rank="weighted", now=NOW).hits
    match = 0.6 * hit.why["lexical"] * 0.4 / 0.5  # the speaker's share is part of the whole
    assert hit.score == pytest.approx(match + 0.2 * 2.718281828**-0.5 + 0.2 * 0.5, abs=2e-3)


# What is named exactly


def test_identifier_keeps_a_place_among_better_matches(memory: Memory) -> None:
    for number in range(30):
        fact(memory, f"login {number}", f"The login service failed and was restarted by hand, case {number}.")
    wanted = fact(memory, "gateway", "ERR_CONN_RESET_42 " + "is what the gateway logs when its peer goes away. " * 40)
    query = "the login service failed and was restarted by hand with ERR_CONN_RESET_42"
    assert wanted in uris(memory, query, limit=3)
    (hit,) = [hit for hit in memory.find(query, limit=3, now=NOW).hits if hit.uri == wanted]
    assert hit.why["exact"] == 1.0


def test_quoted_phrase_is_found_below_the_floor_in_chinese(memory: Memory) -> None:
    for number in range(20):
        fact(memory, f"备忘 {number}", f"第{number}次例会讨论了预算、招聘、出差安排和办公室搬迁。")
    wanted = fact(memory, "读书", "很久以前在图书馆读到一句话，叫做行到水穷处，当时并没有在意。")
    assert uris(memory, "例会讨论预算招聘出差搬迁的时候谁提到过「行到水穷处」", limit=5).count(wanted) == 1


# Rivals


def contradict(memory: Memory, newer: str, older: str, relation: str = "contradicts") -> None:
    name = newer.rsplit("/", 1)[1].removesuffix(".md")
    data = {
        "memory_type": "facts",
        "fields": {"topic": name},
        "links": [{"uri": older, "relation": relation}],
    }
    receipt = memory.commit(operations={"write_operations": [{"memory_data": data}]}, now=NOW)
    assert receipt.status == "committed", receipt


@pytest.mark.parametrize("relation", ["contradicts", "replaces"])
def test_newer_memory_comes_before_the_one_it_contradicts_and_is_named(memory: Memory, relation: str) -> None:
    older = fact(memory, "Home", "Lives in Chengdu, home address in Chengdu.", at=NOW - timedelta(days=9))
    newer = fact(memory, "Move", "Since May the home address is in Osaka.", at=NOW - timedelta(days=1))
    assert uris(memory, "home address Chengdu")[0] == older
    contradict(memory, newer, older, relation)
    hits = memory.find("home address", now=NOW).hits
    assert [hit.uri for hit in hits] == [newer, older]
    assert [hit.contested_by for hit in hits] == [(), (newer,)]


# What says the same


def test_near_identical_hits_are_folded_and_stay_listed(memory: Memory) -> None:
    texts = [
        "Prefers green tea in the morning.",
        "prefers green tea in the morning",
        "Prefers  GREEN tea in the morning!",
    ]
    same = {fact(memory, f"tea {number}", text, priority=0.5) for number, text in enumerate(texts)}
    other = fact(memory, "tea 9", "Prefers green tea in the evening.")
    hits = memory.find("green tea preference", now=NOW).hits
    assert len(hits) == 2
    folded = next(hit for hit in hits if hit.also)
    assert {folded.uri, *folded.also} == same
    assert other in {hit.uri for hit in hits}


def test_facts_that_differ_in_a_letter_are_never_folded(memory: Memory) -> None:
    both = {fact(memory, f"Server {name}", f"Server {name} has 16 GB of memory.") for name in "AB"}
    chinese = {fact(memory, f"服务器{name}", f"服务器{name}有十六吉内存。") for name in "甲乙"}
    assert set(uris(memory, "server memory GB")) == both
    assert set(uris(memory, "服务器内存")) == chinese


# Caches


def test_repeated_query_is_answered_from_the_cache_until_another_process_commits(tmp_path: Path) -> None:
    config = Config(home=tmp_path, embedding=EmbeddingConfig(provider="none"))
    with open_memory(config) as memory:
        fact(memory, "Wi-Fi", "The network is called Heron.")
        assert not memory.find("which network", now=NOW).cached
        repeated = memory.find("which network", now=NOW)
        assert repeated.cached
        assert [hit.uri for hit in repeated.hits] == [f"{FACTS}/Wi-Fi.md"]
        script = """
            import sys
            from pathlib import Path
            from memory_core.config import Config, EmbeddingConfig
            from memory_core.memory import open_memory
            with open_memory(Config(home=Path(sys.argv[1]), embedding=EmbeddingConfig(provider="none"))) as memory:
                memory.commit("The guest network is called Egret.", memory_type="facts", fields={"topic": "Guests"})
        """
        subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], check=True, timeout=60)
        found = memory.find("which network", now=NOW)
        assert not found.cached
        assert {hit.uri for hit in found.hits} == {f"{FACTS}/Wi-Fi.md", f"{FACTS}/Guests.md"}


def test_cached_candidates_are_ranked_anew(memory: Memory) -> None:
    fact(memory, "Wi-Fi", "The network is called Heron.")
    first = memory.find("which network", now=NOW)
    later = memory.find("which network", now=NOW + timedelta(days=200), rank="decay")
    assert later.cached
    assert later.hits[0].score < first.hits[0].score


# Projects


def project_memory(memory: Memory, name: str, content: str, project: str | None, *, private: bool = False) -> str:
    receipt = memory.commit(
        content, memory_type="patterns", fields={"pattern_name": name}, project=project or "global", private=private
    )
    return receipt.results[0].uri


def test_current_project_comes_first_and_private_memories_of_others_never(memory: Memory) -> None:
    ours = project_memory(memory, "Deploy here", "Deploys go out with fly deploy from the main branch.", "acme/api")
    shared = project_memory(memory, "Deploy there", "Deploys go out with fly deploy from the main branch!!", "acme/web")
    secret = project_memory(memory, "Deploy x", "Deploys go out with the secret script.", "acme/lab", private=True)

    def found(scope: ProjectScope) -> list[str]:
        return [hit.uri for hit in memory.retriever.find("how do deploys go out", project=scope).hits]

    assert found(ProjectScope("acme/api"))[0] == ours
    assert secret not in found(ProjectScope("acme/api"))
    assert secret not in found(ProjectScope())
    assert secret in found(ProjectScope("acme/lab"))
    assert found(ProjectScope("acme/lab", only=True)) == [secret]
    assert shared not in found(ProjectScope("acme/api", only=True))
