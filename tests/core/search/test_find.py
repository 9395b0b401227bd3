"""What find answers: by words and by meaning, in both languages, in every process, within one's own spaces."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.config import Config, EmbeddingConfig
from memory_core.core.errors import InvalidInput, NotFound
from memory_core.core.index import bundled as bundled_module
from memory_core.core.index.bundled import open_model
from memory_core.core.index.catalog import Position
from memory_core.core.memory.requests import (
    CommitRequest,
    FindRequest,
    ListRequest,
    ReadRequest,
    RetrieveRequest,
    TreeRequest,
)
from memory_core.core.memory.results import CommitReceipt, Status
from memory_core.runebook import Runebook, open_memory
from tests.stores import remember, replaced, words_only

USER = "viking://user/default/memories"

LOG = "viking://session/default/s1/messages.jsonl"
NOW = datetime(2026, 6, 1, tzinfo=UTC)
FACTS = {
    "Wi-Fi": "The office network is called Heron and reaches the garden.",
    "School": "孩子在实验小学上三年级,每天七点半到校。",
    "Server A memory": "Server A has 16 GB of memory.",
    "Coffee": "She drinks her coffee black and never after noon.",
    "支付系统": "支付系统采用双活部署,每晚两点备份。",
    "Holiday": "The family spends every August at the lake in Finland.",
}


def say(*texts: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text} for text in texts]


def fact(memory: Runebook, topic: str, content: str, **given: Any) -> CommitReceipt:
    return memory.commit(CommitRequest(content, memory_type="facts", fields={"topic": topic}, **given))


def uris(memory: Runebook, query: str, **given: Any) -> list[str]:
    return [hit.uri for hit in memory.find(FindRequest(query, **given)).hits]


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runebook]:
    """A store with the bundled model, loaded, and a few facts."""
    with open_memory(Config(home=tmp_path_factory.mktemp("bundled"))) as opened:
        opened.warm()
        assert opened.indexer.embedder is not None
        assert opened.indexer.embedder.ready(60.0)
        for topic, content in FACTS.items():
            fact(opened, topic, content)
        yield opened


# By words


@pytest.mark.parametrize(
    ("query", "topic"),
    [
        ("Heron", "Wi-Fi"),
        ("networks", "Wi-Fi"),
        ("部署", "支付系统"),
        ("校", "School"),
        ("支付系统什么时候备份?", "支付系统"),
        ("孩子", "School"),
        ("ｃｏｆｆｅｅ", "Coffee"),
        ("16 GB", "Server A memory"),
    ],
)
def test_words_are_found_in_english_and_chinese_without_a_model(memory: Runebook, query: str, topic: str) -> None:
    for name, content in FACTS.items():
        fact(memory, name, content)
    assert uris(memory, query)[0] == f"{USER}/facts/{topic}.md"


def test_a_search_for_nothing_that_is_stored_is_empty_and_says_what_to_do(memory: Runebook) -> None:
    for name, content in FACTS.items():
        fact(memory, name, content)
    for query in ("volcano eruption in Iceland", "火山爆发", "zzz", "!!!", "\ud800"):
        found = memory.find(FindRequest(query))
        assert found.total == 0, query
        assert found.notes, query


@pytest.mark.parametrize(
    "arguments",
    [
        {"query": ""},
        {"query": " \n"},
        {"query": "a\x00b"},
        {"query": "x" * 20_001},
        {"query": "x", "limit": 0},
        {"query": "x", "limit": 101},
        {"query": "x", "score_threshold": 1.5},
        {"query": "x", "score_threshold": float("nan")},
        {"query": "x", "rank": "magic"},
        {"query": "x", "target_uri": "viking://user/default/../other"},
        {"query": "x", "target_uri": "http://x"},
        {"query": "x", "filter": {"colour": "red"}},
        {"query": "x", "filter": {"speaker": {"in": [str(number) for number in range(2_000)]}}},
    ],
)
def test_an_argument_out_of_range_is_refused_with_a_next_step(memory: Runebook, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        memory.find(FindRequest(**arguments))
    assert caught.value.hint


@pytest.mark.parametrize("field", ["speaker", "tags", "uri"])
def test_a_filter_may_name_hundreds_of_values(memory: Runebook, field: str) -> None:
    fact(memory, "T", "zebra 斑马")
    values = [str(number) for number in range(499)]
    assert memory.find(FindRequest("zebra", filter={field: {"in": [*values, f"{USER}/facts/T.md"]}})).total == (
        field == "uri"
    )


def test_search_syntax_in_a_query_is_only_text(memory: Runebook) -> None:
    fact(memory, "T", 'zebra "quoted" AND (odd) NEAR/3 own: * ^ 斑马')
    for query in ('zebra"', "zebra AND", "own:zebra", "NEAR(zebra", "zebra*", "(zebra", '"斑马', "zebra' OR 1=1 --"):
        assert uris(memory, query) == [f"{USER}/facts/T.md"], query


def test_limit_counts_all_kinds_together_best_first(memory: Runebook) -> None:
    for number in range(8):
        fact(memory, f"T{number}", "zebra " * (number + 1) + "filler " * 20)
    memory.commit(CommitRequest(messages=say("zebra"), session_id="s1"))
    found = memory.find(FindRequest("zebra", limit=5, rank="relevance"))
    scores = [hit.score for hit in found.hits]
    assert found.total == len(found.hits) == 5
    assert scores == sorted(scores, reverse=True)


def test_score_threshold_leaves_out_what_scores_less_and_says_so(memory: Runebook) -> None:
    fact(memory, "Both", "zebra lion")
    fact(memory, "One", "zebra and many other words about the garden and the house")
    scores = {hit.uri: hit.score for hit in memory.find(FindRequest("zebra lion", rank="relevance")).hits}
    assert len(scores) == 2
    between = sum(scores.values()) / 2
    kept = memory.find(FindRequest("zebra lion", rank="relevance", score_threshold=between))
    assert [hit.uri for hit in kept.hits] == [f"{USER}/facts/Both.md"]
    none = memory.find(FindRequest("zebra lion", score_threshold=1.0))
    assert none.total == 0
    assert any("score_threshold" in note for note in none.notes)


def test_target_uri_confines_the_search_to_a_folder_or_a_file(memory: Runebook) -> None:
    fact(memory, "T", "zebra one")
    remember(memory, "zebra two", "preferences", topic="T")
    remember(memory, "zebra three", title="T2")
    memory.commit(CommitRequest(messages=say("zebra"), session_id="s1"))
    assert len(uris(memory, "zebra", target_uri="viking://")) == 4
    assert len(uris(memory, "zebra", target_uri="viking://user/default/")) == 3
    assert uris(memory, "zebra", target_uri=f"{USER}/facts") == [f"{USER}/facts/T.md"]
    assert uris(memory, "zebra", target_uri=f"{USER}/facts/T.md") == [f"{USER}/facts/T.md"]
    assert uris(memory, "zebra", target_uri="viking://session/default") == [f"{LOG}#0"]
    empty = memory.find(FindRequest("zebra", target_uri=f"{USER}/fact"))
    assert empty.total == 0
    assert any("target_uri" in note for note in empty.notes)


def test_why_names_the_parts_of_the_score_and_relevance_leaves_time_out(memory: Runebook) -> None:
    fact(memory, "T", "zebra")
    assert set(memory.find(FindRequest("zebra", rank="relevance")).hits[0].why) == {"lexical"}
    for rank in ("decay", "weighted"):
        why = memory.find(FindRequest("zebra", rank=rank)).hits[0].why
        assert set(why) == {"lexical", "recency", "salience"}
        assert all(0.0 <= share <= 1.0 for share in why.values())


@pytest.mark.parametrize("rank", ["decay", "balanced", "weighted"])
def test_a_rank_prefers_the_newer_and_the_more_important_of_equals(memory: Runebook, rank: str) -> None:
    fact(memory, "Old", "zebra one", now=NOW - timedelta(days=60))
    fact(memory, "New", "zebra two", now=NOW)
    fact(memory, "Vital", "zebra six", now=NOW, priority="critical")
    assert [uri.rpartition("/")[2] for uri in uris(memory, "zebra", rank=rank, now=NOW)] == [
        "Vital.md",
        "New.md",
        "Old.md",
    ]
    relevance = {hit.score for hit in memory.find(FindRequest("zebra", rank="relevance", now=NOW)).hits}
    assert len(relevance) == 1


def test_messages_are_found_at_once_and_keep_their_dates(memory: Runebook) -> None:
    said = {"role": "user", "name": "Ann", "content": "zebra", "time": "2023-05-08T13:56:00+02:00"}
    memory.commit(CommitRequest(messages=[said], session_id="s1"))
    (hit,) = memory.find(FindRequest("zebra")).resources
    assert hit.updated_at == "2023-05-08T11:56:00+00:00"
    assert hit.abstract == "[2023-05-08 13:56] Ann: zebra"


# By meaning


@pytest.mark.parametrize(
    ("query", "topic"),
    [
        ("Where do they spend their summer holidays?", "Holiday"),
        ("他们夏天去哪里度假?", "Holiday"),
        ("她喝咖啡加糖吗", "Coffee"),
        ("Which grade is the child in at primary school?", "School"),
        ("How is the payment system deployed?", "支付系统"),
        ("How much RAM does the machine have?", "Server A memory"),
        ("办公室的无线网络叫什么名字", "Wi-Fi"),
    ],
)
def test_a_paraphrase_is_found_within_and_across_languages(bundled: Runebook, query: str, topic: str) -> None:
    found = bundled.find(FindRequest(query, rank="relevance"))
    assert found.hits[0].uri == f"{USER}/facts/{topic}.md"
    assert "semantic" in found.hits[0].why


@pytest.mark.parametrize("query", ["How do volcanoes erupt?", "明天股市会涨吗", "recipe for beetroot soup"])
def test_a_question_about_nothing_stored_finds_nothing(bundled: Runebook, query: str) -> None:
    found = bundled.find(FindRequest(query))
    assert found.total == 0
    assert found.notes


def test_facts_that_look_alike_are_both_kept_and_named_in_the_receipt(bundled: Runebook) -> None:
    receipt = fact(bundled, "Server B memory", "Server B has 16 GB of memory.")
    assert receipt.status is Status.COMMITTED
    assert [near.uri for near in receipt.similar] == [f"{USER}/facts/Server A memory.md"]
    assert receipt.similar[0].score >= 0.5
    assert {f"{USER}/facts/Server {name} memory.md" for name in "AB"} <= set(uris(bundled, "servers with 16 GB"))


def test_an_updated_memory_is_no_longer_found_by_what_it_meant_before(tmp_path: Path, bundled: Runebook) -> None:
    with open_memory(Config(home=tmp_path)) as memory:
        memory.indexer.embedder = bundled.indexer.embedder
        fact(memory, "T", "They keep bees and sell honey at the market.")
        assert uris(memory, "养蜂") == [f"{USER}/facts/T.md"]
        replaced(memory, "facts", topic="T", content="The tax return is due in May.")
        assert uris(memory, "养蜂") == []
        assert uris(memory, "什么时候报税") == [f"{USER}/facts/T.md"]
        memory.commit(CommitRequest(operations={"delete_operations": [{"uri": f"{USER}/facts/T.md"}]}))
        assert uris(memory, "什么时候报税") == []


def test_a_filter_holds_for_hits_by_meaning_too(bundled: Runebook) -> None:
    query = "他们夏天去哪里度假?"
    assert uris(bundled, query, filter={"memory_type": "tasks"}) == []
    assert uris(bundled, query, filter={"memory_type": "facts"})[0] == f"{USER}/facts/Holiday.md"
    assert uris(bundled, query, target_uri="viking://agent/default") == []


def test_until_the_model_is_ready_words_answer_and_the_result_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading = threading.Event()
    monkeypatch.setattr(bundled_module, "open_model", lambda: loading.wait(60) and open_model())
    with open_memory(Config(home=tmp_path, embedding=EmbeddingConfig(wait_seconds=0.0))) as memory:
        fact(memory, "T", "zebra 斑马")
        found = memory.find(FindRequest("斑马"))
        assert [hit.uri for hit in found.memories] == [f"{USER}/facts/T.md"]
        assert any("words only" in note for note in found.notes)
        loading.set()
        embedder = memory.indexer.embedder
        assert embedder is not None
        assert embedder.ready(60)
        assert not any("words only" in note for note in memory.find(FindRequest("斑马")).notes)


# Several at once


def test_two_open_stores_see_each_others_commits_at_once(tmp_path: Path, bundled: Runebook) -> None:
    with open_memory(Config(home=tmp_path)) as one, open_memory(Config(home=tmp_path)) as two:
        one.indexer.embedder = two.indexer.embedder = bundled.indexer.embedder
        fact(one, "Holiday", FACTS["Holiday"])
        assert uris(two, "Finland") == [f"{USER}/facts/Holiday.md"]
        assert uris(two, "他们夏天去哪里度假?") == [f"{USER}/facts/Holiday.md"]
        replaced(two, "facts", topic="Holiday", content="They stay at home now and paint the house.")
        assert uris(one, "Finland") == []
        assert uris(one, "给房子刷漆") == [f"{USER}/facts/Holiday.md"]
        two.commit(CommitRequest(operations={"delete_operations": [{"uri": f"{USER}/facts/Holiday.md"}]}))
        assert uris(one, "给房子刷漆") == []


def test_searches_during_commits_never_fail_and_never_lose_what_was_there(memory: Runebook) -> None:
    fact(memory, "Rock", "granite stays")
    problems: list[object] = []
    writing = threading.Event()
    writing.set()

    def search() -> None:
        while writing.is_set():
            if uris(memory, "granite") != [f"{USER}/facts/Rock.md"]:
                problems.append("lost")

    readers = [threading.Thread(target=search) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(25):
        fact(memory, f"T{number % 5}", f"zebra {number}")
    writing.clear()
    for reader in readers:
        reader.join()
    assert problems == []


# Spaces


@pytest.fixture
def spaces(tmp_path: Path) -> Iterator[tuple[Runebook, Runebook]]:
    """Two people's views of one folder; b has said things."""
    with (
        open_memory(words_only(tmp_path, user_space="a", agent_space="a")) as a,
        open_memory(words_only(tmp_path, user_space="b", agent_space="b")) as b,
    ):
        fact(b, "Secret", "zebra 斑马 secret")
        remember(b, "pattern zebra", "patterns", pattern_name="P")
        remember(b, "portrait", "profile")
        b.commit(CommitRequest(messages=say("zebra talk"), session_id="s1"))
        yield a, b


def test_nothing_of_another_space_is_found_counted_or_listed(spaces: tuple[Runebook, Runebook]) -> None:
    a, b = spaces
    assert b.find(FindRequest("zebra")).total == 3
    for filter_tree in (None, {"memory_type": "facts"}, {"uri": {"contains": "viking"}}):
        assert a.find(FindRequest("zebra", filter=filter_tree)).total == 0
    assert a.find(FindRequest("斑马 secret")).total == 0
    fact(a, "Mine", "my zebra")
    assert [hit.uri for hit in a.find(FindRequest("zebra", limit=100)).hits] == [
        "viking://user/a/memories/facts/Mine.md"
    ]
    listed = a.tree(TreeRequest("viking://", level_limit=9, show_all_hidden=True))
    assert all("/b" not in entry.uri for entry in listed.entries)
    assert all(word not in (entry.abstract or "") for entry in listed.entries for word in ("b,", "Secret", "s1"))
    assert {entry.abstract for entry in listed.entries if entry.uri == "viking://user/"} == {"a"}
    assert {entry.abstract for entry in listed.entries if entry.uri == "viking://session/"} <= {""}
    pack = a.retrieve(RetrieveRequest("zebra secret", token_budget=4_000))
    assert "Secret" not in pack.text
    assert "/b/" not in pack.text


@pytest.mark.parametrize(
    "uri",
    [
        "viking://user/b/memories/facts/Secret.md",
        "viking://user/b/memories/profile.md",
        "viking://user/b",
        "viking://agent/b/memories/patterns/P.md",
        "viking://session/b/s1/messages.jsonl",
        "viking://session/b/s1/messages.jsonl#0",
        "viking://archive/user/b/memories/facts/Secret.md",
    ],
)
def test_a_uri_of_another_space_answers_like_one_that_does_not_exist(
    spaces: tuple[Runebook, Runebook], uri: str
) -> None:
    a, _ = spaces
    absent = uri.replace("/b", "/nobody")
    for look in (
        lambda target: a.read(ReadRequest(target)),
        lambda target: a.ls(ListRequest(target)),
        lambda target: a.tree(TreeRequest(target)),
        lambda target: a.find(FindRequest("zebra", target_uri=target)),
    ):
        answers = []
        for target in (uri, absent):
            with pytest.raises((NotFound, InvalidInput)) as caught:
                look(target)
            answers.append((type(caught.value), str(caught.value).replace("/nobody", "/b")))
        assert answers[0] == answers[1]


def test_words_of_another_space_do_not_raise_the_bar_for_meaning(tmp_path: Path, bundled: Runebook) -> None:
    with (
        open_memory(Config(home=tmp_path, user_space="a")) as a,
        open_memory(Config(home=tmp_path, user_space="b")) as b,
    ):
        a.indexer.embedder = b.indexer.embedder = bundled.indexer.embedder
        fact(a, "Coffee", FACTS["Coffee"])
        query = "早饭喝什么饮料"
        before = [hit.uri for hit in a.find(FindRequest(query, rank="relevance")).hits]
        fact(b, "饮料", query)
        assert before == ["viking://user/a/memories/facts/Coffee.md"]
        assert [hit.uri for hit in a.find(FindRequest(query, rank="relevance")).hits] == before


def test_small_talk_finds_nothing_whatever_it_is_near_to(memory: Runebook) -> None:
    remember(memory, "She says thank you and good night in four languages. 她会说谢谢和晚安。", "facts")
    for said in ("Thank you, good night!", "好的，谢谢你，晚安！"):
        assert memory.find(FindRequest(said)).hits == ()
    assert memory.find(FindRequest("who says good night in four languages?")).hits


def test_commit_of_another_user_does_not_hide_that_ones_own_files_are_not_indexed_yet(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        fact(memory, "Rock", "granite stays")
        memory.indexer.follow(None)
        memory.indexer.stop()
        with memory.indexer.catalog.writing() as connection:  # as a first search of a large store leaves it
            position = memory.indexer.catalog.position()
            memory.indexer.catalog.clear(connection)
            memory.indexer.catalog.advance(connection, Position(position.ledger_id, position.seq, ""))
        with open_memory(words_only(tmp_path).with_spaces("other", "other")) as other:
            other.indexer.stop()
            fact(other, "Their rock", "basalt")
        found = memory.find(FindRequest("granite"))
    assert found.memories == ()
    assert "the index is being rebuilt" in found.notes[0]
