"""Candidates: what is found by meaning, by words, by time and by name, within filters, and what a cache may answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory_core.core.config import Config, EmbeddingConfig, SearchConfig
from memory_core.core.errors import EmbeddingFailed
from memory_core.core.index.encoder import Scale
from memory_core.core.memory.project import ProjectScope
from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.core.search.candidates import date_fit
from memory_core.core.text.time_expressions import TimeSpan
from memory_core.runebook import Runebook, open_memory
from tests.stores import said, words_only, written

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
TOPICS = {"feline": 0, "猫": 0, "cat": 0, "engine": 1, "motor": 1, "发动机": 1}


class TopicEmbedder:
    """A model that knows a few topics: texts about the same one are near each other."""

    scale = Scale(zero=0.0, near=0.6)
    failure: EmbeddingFailed | None = None

    def __init__(self, dim: int = 8, shift: int = 0) -> None:
        self.fingerprint = f"topics-{dim}-{shift}"
        self._dim = dim
        self._shift = shift

    def start(self) -> None:
        """It is there."""

    def ready(self, timeout_seconds: float = 0.0) -> bool:  # noqa: ARG002 - the protocol has it
        return True

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:  # noqa: ARG002 - the protocol has it
        vectors = np.full((len(texts), self._dim), 1e-3, dtype=np.float32)
        for row, text in enumerate(texts):
            topics = {topic for word, topic in TOPICS.items() if word in text}
            for topic in topics or {5}:
                vectors[row, (topic + self._shift) % self._dim] = 1.0
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Runebook]:
    config = words_only(tmp_path, search=SearchConfig(floor=False))
    with open_memory(config) as opened:
        opened.indexer.embedder = TopicEmbedder()
        yield opened


def remember(memory: Runebook, *texts: str, memory_type: str = "facts", key: str = "topic") -> list[str]:
    fields = ({key: f"n{number} {text[:9]}", "content": text} for number, text in enumerate(texts))
    return written(memory, *({"memory_type": memory_type, "fields": each} for each in fields), now=NOW)


def found(memory: Runebook, query: str, **arguments: Any) -> list[str]:
    return [hit.uri for hit in memory.find(FindRequest(query, rank="relevance", now=NOW, **arguments)).hits]


# By meaning


@pytest.mark.parametrize("query", ["cat", "猫"])
def test_memory_is_found_by_meaning_without_a_word_in_common(memory: Runebook, query: str) -> None:
    wanted, _ = remember(memory, "A feline sleeps on the sofa.", "The motor is loud.")
    hits = memory.find(FindRequest(query, rank="relevance", now=NOW)).hits
    assert hits[0].uri == wanted
    assert hits[0].why["semantic"] > 0.9


@pytest.mark.parametrize("others", [150, 900])
def test_a_narrow_filter_finds_by_meaning_what_many_nearer_ones_crowd_out(memory: Runebook, others: int) -> None:
    remember(memory, *[f"A feline named {number}." for number in range(others)])
    wanted = remember(memory, "A feline with an engine.", memory_type="patterns", key="pattern_name")
    memory.indexer.embed_all()
    assert found(memory, "cat", filter={"memory_type": "patterns"}) == wanted
    below = "viking://agent/default/memories/patterns"
    assert found(memory, "cat", target_uri=below) == wanted


def test_what_words_find_has_its_cosine_too(memory: Runebook) -> None:
    remember(memory, *[f"A feline named {number}." for number in range(150)])
    (wanted,) = remember(memory, "The motor of the zeppelin.", memory_type="patterns", key="pattern_name")
    hits = memory.find(FindRequest("cat zeppelin motor", rank="relevance", limit=100, now=NOW)).hits
    (hit,) = [hit for hit in hits if hit.uri == wanted]
    assert 0.5 < hit.why["semantic"] < 0.9


def test_a_question_in_either_person_counts_by_the_nearer(memory: Runebook) -> None:
    class Personal(TopicEmbedder):
        def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
            return super().embed(["motor" if "the user" in text else "cat" for text in texts], query=query)

    memory.indexer.embedder = Personal(dim=9)
    (wanted,) = remember(memory, "Somewhere the user keeps it.")
    (hit,) = memory.find(FindRequest("where did I put that", rank="relevance", now=NOW)).hits
    assert hit.uri == wanted
    assert hit.why["semantic"] > 0.9
    (hit,) = memory.find(FindRequest("where did the user put that", rank="relevance", now=NOW)).hits
    assert hit.why["semantic"] > 0.9


def test_texts_that_are_compared_together_wait_for_the_model_once(tmp_path: Path) -> None:
    waits: list[float] = []

    class Loading(TopicEmbedder):
        def ready(self, timeout_seconds: float = 0.0) -> bool:
            if threading.current_thread() is threading.main_thread():  # others embed beside it
                waits.append(timeout_seconds)
                time.sleep(timeout_seconds)  # the whole time that it is given
            return False

    embedding = EmbeddingConfig(provider="none", wait_seconds=0.02)
    with open_memory(Config(home=tmp_path, embedding=embedding)) as memory:
        (uri,) = remember(memory, "A feline sleeps on the sofa.")
        memory.indexer.embedder = Loading()
        (near,), *_ = memory.retriever.near(["A feline sleeps.", "A motor.", "猫"])
        assert near.uri == uri
    assert waits[1:] == [0.0, 0.0]


def test_the_nearest_passage_of_a_long_memory_counts(memory: Runebook) -> None:
    (uri,) = remember(memory, "Some say: a feline. " + "Words in between. " * 150 + "The motor is loud.")
    for query in ("cat", "发动机"):
        (hit,) = memory.find(FindRequest(query, rank="relevance", now=NOW)).hits
        assert (hit.uri, hit.why["semantic"] > 0.9) == (uri, True)


def test_of_a_long_question_the_end_is_asked(memory: Runebook) -> None:
    cat, motor = remember(memory, "A feline sleeps on the sofa.", "The motor is loud.")
    padding = "猫 and something. " * 200
    assert found(memory, f"{padding} {'And so on. ' * 200} 发动机")[0] == motor
    assert found(memory, f"发动机 {'And so on. ' * 200} 猫")[0] == cat


def test_more_hits_are_looked_for_where_more_are_asked_for(memory: Runebook) -> None:
    remember(memory, *[f"A feline named {number}." for number in range(120)])
    remember(memory, *[f"A feline called {number}." for number in range(120)], memory_type="cases", key="case_name")
    memory.indexer.embed_all()
    for limit in (5, 100):
        assert len(found(memory, "猫", filter={"memory_type": "cases"}, limit=limit)) == limit


def test_an_identifier_is_found_beyond_the_best_hundred(memory: Runebook) -> None:
    memory.indexer.embedder = None
    remember(memory, *[f"The login service failed, case {number}." for number in range(150)])
    (wanted,) = remember(memory, "err_42. " + "Words in between. " * 150, memory_type="cases", key="case_name")
    (hit,) = [hit for hit in memory.find(FindRequest("login service failed err_42", now=NOW)).hits if hit.uri == wanted]
    assert hit.why["lexical"] > 0.0


@pytest.mark.parametrize("other", [TopicEmbedder(dim=12), TopicEmbedder(dim=8, shift=3)])
def test_another_model_answers_with_its_own_vectors(memory: Runebook, other: TopicEmbedder) -> None:
    wanted, _ = remember(memory, "A feline sleeps on the sofa.", "The motor is loud.")
    before = memory.find(FindRequest("cat", rank="relevance", now=NOW))
    memory.indexer.embedder = other
    after = memory.find(FindRequest("cat", rank="relevance", now=NOW))
    assert not after.cached
    assert after.hits[0].uri == before.hits[0].uri == wanted
    assert after.hits[0].why["semantic"] == pytest.approx(before.hits[0].why["semantic"], abs=0.01)


# By name and time


def told(memory: Runebook, *turns: tuple[str, str, str]) -> None:
    """What somebody said on a day."""
    messages = [{"role": "user", "name": who, "content": text, "time": f"{day}T10:00:00Z"} for day, who, text in turns]
    memory.commit(CommitRequest(messages=messages, session_id="s1", extract=False))


def test_who_spoke_and_when_is_seen(memory: Runebook) -> None:
    told(memory, ("2026-05-08", "Ana", "I painted a heron."), ("2026-03-01", "小明", "I painted a heron too."))

    def seen(query: str) -> list[tuple[str, bool, bool]]:
        hits = memory.find(FindRequest(query, rank="relevance", now=NOW)).hits
        found = ((hit.uri[-2:], "speaker" in hit.why, "date" in hit.why) for hit in hits)
        return sorted(found)

    assert seen("what did Ana paint") == [("#0", True, False), ("#1", False, False)]
    assert seen("小明画了什么 heron") == [("#0", False, False), ("#1", True, False)]
    assert seen("who painted on 2026-05-08") == [("#0", False, True), ("#1", False, False)]


def test_what_was_said_at_a_time_is_found_whatever_it_says(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        memory.commit(
            CommitRequest(
                messages=[
                    {"role": "user", "content": "I painted a heron.", "time": "2026-05-08T10:00:00+00:00"},
                    {"role": "user", "content": "我画了一只鹭。", "time": "2026-03-01T10:00:00+00:00"},
                ],
                session_id="s1",
                extract=False,
            )
        )
        for query, line in (("What happened on May 8, 2026?", "#0"), ("2026年3月1日发生了什么事？", "#1")):
            assert [uri[-2:] for uri in found(memory, query)] == [line]


@pytest.mark.parametrize("query", ["What happened yesterday?", "昨天发生了什么？"])
def test_what_was_said_on_a_relative_day_is_found_and_that_day_moves(tmp_path: Path, query: str) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        messages = [
            {"role": "user", "content": text, "time": (NOW - timedelta(days=days)).isoformat()}
            for days, text in ((30, "我画了一只鹭。"), (1, "I painted a heron."))
        ]
        memory.commit(CommitRequest(messages=messages, session_id="s1", extract=False))
        assert [uri[-2:] for uri in found(memory, query)] == ["#1"]
        earlier = memory.find(FindRequest(query, now=NOW - timedelta(days=29)))
        assert [hit.uri[-2:] for hit in earlier.hits] == ["#0"]
        assert memory.find(FindRequest(query, now=NOW - timedelta(days=300))).total == 0


def test_a_question_that_says_more_than_a_time_is_not_answered_by_the_time_alone(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        yesterday = (NOW - timedelta(days=1)).isoformat()
        messages = [{"role": "user", "content": "I painted a heron.", "time": yesterday}]
        memory.commit(CommitRequest(messages=messages, session_id="s1", extract=False))
        assert found(memory, "What did the landlord say about the heating yesterday?") == []


MAY = (TimeSpan(date(2026, 5, 1), date(2026, 5, 31), "May", relative=False),)


@pytest.mark.parametrize(
    ("happened", "within"),
    [
        ("2026-05-15", True),
        ("2026-02-15", False),
        ("2026-05", True),
        ("2026-01", False),
        ("2026-12", False),
        ("2026", True),
        ("2025", False),
        ("2026-13", False),
        ("2026-02-31", False),
        ("someday", False),
        ("", False),
        (None, False),
    ],
)
def test_a_date_to_the_day_month_or_year_is_of_a_time(happened: str | None, within: bool) -> None:
    assert (date_fit(happened, MAY) > 0.0) is within


def test_nothing_is_of_no_time() -> None:
    assert date_fit("2026-05-15", ()) == 0.0


# Cache


def test_a_cached_answer_never_crosses_limits_filters_or_commits(memory: Runebook) -> None:
    remember(memory, "The motor is loud.", "The motor is new.")
    assert len(found(memory, "motor loud")) == 2
    assert memory.find(FindRequest("motor loud", rank="relevance", now=NOW)).cached
    assert found(memory, "motor loud", filter={"memory_type": "patterns"}) == []
    assert not memory.find(FindRequest("motor loud", filter={"memory_type": "notes"}, now=NOW)).cached
    (third,) = remember(memory, "A third motor is loud.")
    assert third in found(memory, "motor loud")
    memory.commit(CommitRequest(operations={"delete_operations": [{"uri": third}]}, now=NOW))
    assert third not in found(memory, "motor loud")


# Within bounds


def test_a_session_is_searched_without_those_whose_name_goes_on(memory: Runebook) -> None:
    for session in ("s", "s-1", "s0"):
        said(memory, "A loud motor", session_id=session, extract=False)
    below = "viking://session/default/s"
    hits = memory.find(FindRequest("motor loud", target_uri=below, now=NOW)).hits
    assert [(hit.uri, hit.also) for hit in hits] == [(f"{below}/messages.jsonl#0", ())]


def test_what_belongs_to_no_project_can_be_searched_alone(memory: Runebook) -> None:
    memory.commit(CommitRequest("A loud motor, says the team.", memory_type="cases", project="acme/api"))
    (result,) = memory.commit(
        CommitRequest("A loud motor, says everyone.", memory_type="cases", project="global")
    ).results
    hits = memory.retriever.find(FindRequest("motor loud", now=NOW), ProjectScope(None, only=True)).hits
    assert [hit.uri for hit in hits] == [result.uri]
