"""How hits are ordered: profiles, exact names, rivals, projects, and one place for what says the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memory_core.core.memory.project import ProjectScope
from memory_core.core.memory.requests import CommitRequest, FindRequest, ReadRequest
from memory_core.runebook import Runebook, open_memory
from tests import stores
from tests.stores import handed_in, remember, words_only, write

FACTS = "viking://user/default/memories/facts"
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def fact(memory: Runebook, topic: str, content: str, *, at: datetime = NOW, priority: float | None = None) -> str:
    return stores.fact(memory, topic, content, now=at, priority=priority)


def uris(memory: Runebook, query: str, limit: int = 10) -> list[str]:
    return [hit.uri for hit in memory.find(FindRequest(query, limit=limit, now=NOW)).hits]


# Profiles


def test_decay_is_match_times_salience_times_retention(memory: Runebook) -> None:
    fact(memory, "garage", "The garage code is 4711.", at=NOW - timedelta(days=20), priority=0.8)
    (match,) = memory.find(FindRequest("garage code", rank="relevance", now=NOW)).hits
    memory.store.usage.flush()
    (hit,) = memory.find(FindRequest("garage code", rank="decay", now=NOW + timedelta(days=20))).hits
    assert hit.score == pytest.approx(match.score * 0.8 * 2.718281828 ** (-0.05 * 20), abs=2e-3)
    assert hit.why["recency"] == pytest.approx(2.718281828 ** (-0.05 * 20), abs=1e-3)


def test_weighted_counts_from_creation_while_never_used(memory: Runebook) -> None:
    uri = fact(memory, "garage", "The garage code is 4711.", at=NOW - timedelta(days=15), priority=0.5)
    edit = {"uri": uri, "patches": {"content": "The garage code is 4712."}}
    memory.commit(CommitRequest(operations={"edit_operations": [edit]}, now=NOW))
    (hit,) = memory.find(FindRequest("garage code", rank="weighted", now=NOW)).hits
    match = 0.6 * hit.why["lexical"] * 0.4 / 0.5  # the speaker's share is part of the whole
    assert hit.score == pytest.approx(match + 0.2 * 2.718281828**-0.5 + 0.2 * 0.5, abs=2e-3)
    assert hit.why["recency"] == pytest.approx(2.718281828**-0.5, abs=1e-3)


# What is named exactly


def test_identifier_keeps_a_place_among_better_matches(memory: Runebook) -> None:
    for number in range(30):
        fact(memory, f"login {number}", f"The login service failed and was restarted by hand, case {number}.")
    wanted = fact(memory, "gateway", "ERR_CONN_RESET_42 " + "is what the gateway logs when its peer goes away. " * 40)
    query = "the login service failed and was restarted by hand with ERR_CONN_RESET_42"
    assert wanted in uris(memory, query, limit=3)
    (hit,) = [hit for hit in memory.find(FindRequest(query, limit=3, now=NOW)).hits if hit.uri == wanted]
    assert hit.why["exact"] == 1.0


def test_quoted_phrase_is_found_below_the_floor_in_chinese(memory: Runebook) -> None:
    for number in range(20):
        fact(memory, f"备忘 {number}", f"第{number}次例会讨论了预算、招聘、出差安排和办公室搬迁。")
    wanted = fact(memory, "读书", "很久以前在图书馆读到一句话，叫做行到水穷处，当时并没有在意。")
    assert uris(memory, "例会讨论预算招聘出差搬迁的时候谁提到过「行到水穷处」", limit=5).count(wanted) == 1


@pytest.mark.parametrize(
    ("word", "question"), [("walrus", "where does grandma keep the walrus"), ("海象", "阁楼里的海象")]
)
def test_a_word_in_the_middle_of_a_long_memory_is_found(memory: Runebook, word: str, question: str) -> None:
    for number in range(20):
        fact(memory, f"other {number}", f"The harbour office opens at {number}.")
    middle = "Grandma keeps the walrus in the attic. 海象在阁楼里。"
    long = fact(memory, "Diary", "\n".join([*("It rained and we stayed in. 下雨了。" for _ in range(800)), middle]))
    assert uris(memory, word) == [long]
    assert uris(memory, question) == [long]


@pytest.mark.parametrize("question", ["what did I say yesterday", "昨天说了什么"])
def test_asked_for_a_time_alone_what_is_of_that_time_is_the_answer(memory: Runebook, question: str) -> None:
    days = {"s1": NOW - timedelta(days=1), "s2": NOW, "s3": NOW - timedelta(days=30)}
    for session, day in days.items():
        said = f"The boiler was repaired 锅炉修好了 {session}; somebody asked what we did yesterday, 昨天说了什么."
        talk = {"role": "user", "content": said, "time": day.isoformat()}
        memory.commit(CommitRequest(messages=[talk], session_id=session, extract=False))
    hits = memory.find(FindRequest(question, now=NOW)).hits
    assert [hit.uri.split("/")[4] for hit in hits] == ["s1", "s2"]
    assert [hit.why["date"] for hit in hits] == [1.0, 0.75]


# What says the same


def test_near_identical_hits_are_folded_and_stay_listed(memory: Runebook) -> None:
    texts = [
        "Prefers green tea in the morning.",
        "prefers green tea in the morning",
        "Prefers  GREEN tea in the morning!",
    ]
    same = {fact(memory, f"tea {number}", text, priority=0.5) for number, text in enumerate(texts)}
    other = fact(memory, "tea 9", "Prefers green tea in the evening.")
    hits = memory.find(FindRequest("green tea preference", now=NOW)).hits
    assert len(hits) == 2
    folded = next(hit for hit in hits if hit.also)
    assert {folded.uri, *folded.also} == same
    assert other in {hit.uri for hit in hits}


def test_facts_that_differ_in_a_letter_are_never_folded(memory: Runebook) -> None:
    both = {fact(memory, f"Server {name}", f"Server {name} has 16 GB of memory.") for name in "AB"}
    chinese = {fact(memory, f"服务器{name}", f"服务器{name}有十六吉内存。") for name in "甲乙"}
    assert set(uris(memory, "server memory GB")) == both
    assert set(uris(memory, "服务器内存")) == chinese


@pytest.mark.parametrize("text", ["Prefers green tea in the morning.", "早上喜欢喝绿茶。"])
def test_a_memory_and_the_turn_it_was_taken_from_keep_a_place_each(memory: Runebook, text: str) -> None:
    uri = fact(memory, "tea", text)
    memory.commit(CommitRequest(messages=[{"role": "user", "content": text}], session_id="s1", extract=False))
    found = memory.find(FindRequest(text, now=NOW))
    assert [hit.uri for hit in found.memories] == [uri]
    assert [hit.uri for hit in found.resources] == ["viking://session/default/s1/messages.jsonl#0"]


@pytest.mark.parametrize("rank", ["relevance", "balanced", "decay", "weighted"])
@pytest.mark.parametrize(
    ("said", "other"),
    [
        ("Please water the garden", "The garden tap drips, says neighbour {}, whenever plants get water."),
        ("请给花园浇水", "邻居{}说，给花园浇水的水龙头漏水。"),
    ],
)
def test_what_was_said_many_times_leaves_room_for_what_was_said_once(
    memory: Runebook, rank: str, said: str, other: str
) -> None:
    for number in range(50):
        stores.said(memory, said, session_id=f"s{number}", extract=False)
    single = {fact(memory, f"tap {number}", other.format(number)) for number in range(5)}
    hits = memory.find(FindRequest(said, limit=10, rank=rank, now=NOW)).hits
    assert {hit.uri for hit in hits if hit.memory_type == "facts"} == single
    (folded,) = [hit for hit in hits if hit.also]
    assert len(folded.also) == 49


def test_limit_holds_and_the_best_stay_where_much_is_stored(memory: Runebook) -> None:
    for number in range(110):
        fact(memory, f"kettle {number}", f"Kettle number {number} " + "stands among many other things. " * (number % 9))
    for limit in (1, 3, 40, 100):
        hits = memory.find(FindRequest("kettle number", limit=limit, rank="relevance", now=NOW)).hits
        assert len(hits) == limit
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_at_most_three_places_go_to_exact_names_and_the_best_match_keeps_its_own(memory: Runebook) -> None:
    for number in range(12):
        fact(memory, f"login {number}", f"The login service failed and was restarted by hand, case {number}.")
    for number in range(6):
        fact(
            memory, f"gate {number}", f"ERR_CONN_RESET_42 in {number}. " + "The gateway logs it when peers leave. " * 30
        )
    query = "the login service failed and was restarted by hand with ERR_CONN_RESET_42"
    hits = memory.find(FindRequest(query, limit=8, rank="relevance", now=NOW)).hits
    assert [hit.why.get("exact", 0.0) for hit in hits] == [0.0] * 5 + [1.0] * 3
    assert len({hit.uri for hit in hits}) == 8


def test_an_exact_name_never_takes_the_place_of_a_better_one(memory: Runebook) -> None:
    best = fact(memory, "gateway", "The gateway logs ERR_CONN_RESET_42.")
    for number in range(3):
        fact(memory, f"gate {number}", f"ERR_CONN_RESET_42 in {number}. " + "Peers leave it whenever they like. " * 30)
    query = "what does the gateway log with ERR_CONN_RESET_42"
    assert uris(memory, query, limit=1) == [best]
    assert uris(memory, query, limit=2)[0] == best


@pytest.mark.parametrize("rank", ["balanced", "decay", "weighted"])
def test_a_memory_of_the_future_gains_nothing_by_it(memory: Runebook, rank: str) -> None:
    fact(memory, "garage", "The garage code is 4711.", at=NOW + timedelta(days=30))
    (hit,) = memory.find(FindRequest("garage code", rank=rank, now=NOW)).hits
    assert hit.why["recency"] == 1.0


def test_an_entry_of_a_log_is_named_by_its_line(memory: Runebook) -> None:
    remember(memory, "Fed the heron 喂了鹭.", "daily_logs", now=NOW)
    (hit,) = memory.find(FindRequest("heron 鹭", now=NOW)).hits
    log, _, line = hit.uri.partition("#")
    assert log.endswith("/logs/2026-06-01.md")
    assert "heron" in memory.read(ReadRequest(f"{log}#{line}")).content


LONG = "Notes on many other things of the house, its roof and its cellar. " * 60


@pytest.mark.parametrize(("named", "asked"), [("ERR_CONN_RESET_42", "exact"), ("heliograph", "rare")])
def test_what_is_named_is_found_however_weak_it_is_and_however_many_are_better(
    memory: Runebook, named: str, asked: str
) -> None:
    texts = [f"The login service failed and was restarted by hand at noon, case {number}." for number in range(70)]
    texts += [f"Lunch number {number} was soup." for number in range(250)]
    writes = [write("facts", topic=f"n{number}", content=text) for number, text in enumerate(texts)]
    for start in range(0, len(writes), 160):
        handed_in(memory, write=writes[start : start + 160], now=NOW)
    wanted = fact(memory, "weak", f"{LONG} {named} {LONG}")
    if asked == "exact":  # then no word of it is rare
        fact(memory, "weaker", f"{LONG} {named} {LONG} {LONG}")
    memory.indexer.follow(None)  # so much text is not always indexed within the time that a search waits
    found = uris(memory, f"the login service failed and was restarted by hand at noon {named}", limit=5)
    assert wanted in found
    assert len(found) == 5


def test_what_shares_one_common_word_with_a_question_that_another_answers_is_noise(memory: Runebook) -> None:
    wanted = fact(memory, "Kettle", "The copper kettle stands beside the window of the workshop.")
    for number in range(6):
        fact(memory, f"other {number}", f"{LONG} A window, number {number}.")
    assert uris(memory, "copper kettle beside the window of the workshop") == [wanted]


# Caches


def test_repeated_query_is_answered_from_the_cache_until_another_store_commits(tmp_path: Path) -> None:
    config = words_only(tmp_path)
    with open_memory(config) as memory:
        fact(memory, "Wi-Fi", "The network is called Heron.")
        assert not memory.find(FindRequest("which network", now=NOW)).cached
        repeated = memory.find(FindRequest("which network", now=NOW))
        assert repeated.cached
        assert [hit.uri for hit in repeated.hits] == [f"{FACTS}/Wi-Fi.md"]
        with open_memory(config) as other:
            fact(other, "Guests", "The guest network is called Egret.")
        found = memory.find(FindRequest("which network", now=NOW))
        assert not found.cached
        assert {hit.uri for hit in found.hits} == {f"{FACTS}/Wi-Fi.md", f"{FACTS}/Guests.md"}


def test_cached_candidates_are_ranked_anew(memory: Runebook) -> None:
    fact(memory, "Wi-Fi", "The network is called Heron.")
    first = memory.find(FindRequest("which network", now=NOW))
    later = memory.find(FindRequest("which network", now=NOW + timedelta(days=200), rank="decay"))
    assert later.cached
    assert later.hits[0].score < first.hits[0].score


# Projects


def project_memory(memory: Runebook, name: str, content: str, project: str | None, *, private: bool = False) -> str:
    return remember(memory, content, "patterns", pattern_name=name, project=project or "global", private=private)


def test_current_project_comes_first_and_private_memories_of_others_never(memory: Runebook) -> None:
    ours = project_memory(memory, "Deploy here", "Deploys go out with fly deploy from the main branch.", "acme/api")
    shared = project_memory(memory, "Deploy there", "Deploys go out with fly deploy from the main branch!!", "acme/web")
    secret = project_memory(memory, "Deploy x", "Deploys go out with the secret script.", "acme/lab", private=True)

    def found(scope: ProjectScope) -> list[str]:
        return [hit.uri for hit in memory.retriever.find(FindRequest("how do deploys go out"), scope).hits]

    assert found(ProjectScope("acme/api"))[0] == ours
    assert secret not in found(ProjectScope("acme/api"))
    assert secret not in found(ProjectScope())
    assert secret in found(ProjectScope("acme/lab"))
    assert found(ProjectScope("acme/lab", only=True)) == [secret]
    assert shared not in found(ProjectScope("acme/api", only=True))


def test_project_of_the_caller_is_told_and_gains_a_little(memory: Runebook) -> None:
    text = "Deploys go out with fly deploy from the main branch."
    ours = project_memory(memory, "Deploy here", text, "acme/api")
    here, elsewhere = (
        next(hit for hit in memory.retriever.find(FindRequest("fly deploy branch", rank="relevance"), scope).hits)
        for scope in (ProjectScope("acme/api"), ProjectScope("acme/web"))
    )
    assert here.uri == elsewhere.uri == ours
    assert (here.why.get("project"), elsewhere.why.get("project")) == (1.0, None)
    assert here.score == pytest.approx(1.15 * elsewhere.score, abs=1e-3)


def test_a_rival_that_became_private_elsewhere_is_neither_named_nor_counted(memory: Runebook) -> None:
    older = fact(memory, "Window", "The deploy window is on Friday.", at=NOW - timedelta(days=9))
    data = {
        "memory_type": "cases",
        "fields": {"case_name": "Secret merger", "content": "The deploy window is on Monday."},
        "links": [{"uri": older, "relation": "contradicts"}],
    }
    operations = {"write_operations": [{"memory_data": data}]}
    rival = (
        memory.commit(CommitRequest(operations=operations, project="acme/lab", now=NOW - timedelta(days=5)))
        .results[0]
        .uri
    )

    def seen(project: str | None) -> tuple[float, tuple[str, ...]]:
        hits = memory.retriever.find(
            FindRequest("deploy window", now=NOW, rank="relevance"), ProjectScope(project)
        ).hits
        return next((hit.score, hit.contested_by) for hit in hits if hit.uri == older)

    contested, named = seen("acme/web")
    assert named == (rival,)
    fields = {"case_name": "Secret merger", "content": "The deploy window is on Monday."}
    memory.commit(
        CommitRequest(memory_type="cases", fields=fields, project="acme/lab", private=True, now=NOW - timedelta(days=1))
    )
    for project in ("acme/web", None):
        score, named = seen(project)
        assert named == ()
        assert score > contested
    assert seen("acme/lab")[1] == (rival,)


@pytest.mark.parametrize(
    ("before", "after", "asked"),
    [
        (
            "Plays the violin in an orchestra.",
            "Stopped the violin: no longer in any orchestra.",
            "do I play the violin?",
        ),
        ("库存系统用MySQL，要对账。", "库存系统从MySQL换成TiDB，单机撑不住了。", "库存系统用MySQL吗"),
    ],
)
def test_what_tells_of_a_change_comes_before_what_it_changed(
    tmp_path: Path, before: str, after: str, asked: str
) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        for text in (before, after, "Bought tickets for an orchestra. 买了系统盘。"):
            remember(memory, text, "facts")
        assert [hit.abstract for hit in memory.find(FindRequest(asked)).hits[:2]] == [after, before]
    with open_memory(words_only(tmp_path / "reversed")) as memory:
        for text in (after, before):
            remember(memory, text, "facts")
        assert memory.find(FindRequest(asked)).hits[0].abstract == before
