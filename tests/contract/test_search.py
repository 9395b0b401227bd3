"""Finding: the same hits with the same scores, whatever keeps the memories."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pytest

from memory_core.core.config import EmbeddingConfig
from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.core.memory.results import FindResult
from memory_core.core.search.memory_list import EntryFilter
from memory_core.features.graph import GRAPH, RELATE, GraphRequest, RelateRequest
from memory_core.runebook import Runebook
from tests.contract.conftest import Place

MEMORIES = (
    ("gulls", "The lighthouse keeper feeds seven gulls every morning before the ferry leaves."),
    ("ferry", "The ferry to the island leaves at seven, on Sundays at nine."),
    ("error", "ERR_CONN_RESET_42 means that the proxy closed the connection; raise proxy_read_timeout."),
    ("tea", "Paul prefers green tea to coffee, and drinks it without sugar."),
    ("coffee", "Anna drinks coffee with milk. She never drinks tea."),
    ("tokyo", "会议定在五月八日下午三点，地点是东京的办公室。"),
    ("moving", "我们下个月搬家到杭州，新家有一个小花园。"),
    ("sailing", "Sailing lessons were cancelled because the boats' sails were torn."),
    ("garden", 'The sign at the garden gate says "no dogs after dark".'),
    ("résumé", "Zoë's résumé mentions Zürich, naïve Bayes and three cafés."),
)
QUESTIONS = (
    "who feeds the gulls?",
    "when does the ferry leave on sunday",
    "ERR_CONN_RESET_42",
    "what does Paul drink?",
    "drinks tea",
    "会议在哪里",
    "搬家",
    "sail",
    '"no dogs after dark"',
    "zurich cafe",
    "quantum chromodynamics",
    "proxy_read_timeout",
)
#: Two people over some days: who is called Mel, what leads to another thing, words with hyphens, short answers.
DAYS = (
    (
        ("Melanie", "Hi Carla! How was the trip to Rotterdam?"),
        ("Carla", "Hey Mel! The trip was long. My sister works at the harbour, in the well-known red crane."),
        ("Melanie", "Is she the one who plays the cello?"),
        ("Carla", "Yes, she plays the cello in a string quartet on Thursdays."),
        ("Melanie", "Self-care matters: I run every morning and paint on Sundays."),
    ),
    (
        ("Carla", "The quartet travels to Lisbon next week, they will play in an old monastery."),
        ("Melanie", "Lovely! I have signed up for a pottery class; the teacher is called Joris."),
        ("Carla", "Wow! My aunt paints a self portrait each winter, with care."),
        ("Melanie", "Joris also repairs bicycles, he mended my red one yesterday."),
    ),
    (
        ("Carla", "What did the doctor say about your knee, Mel?"),
        ("Melanie", "No running for six weeks. 我可以游泳，医生说游泳没问题。"),
        ("Carla", "Then take care of yourself, and paint more."),
    ),
)
ABOUT_DAYS = (
    "How does Melanie take self-care?",
    "Where does Carla's sister work?",
    "Which instrument does the one play who works at the harbour?",
    "Where will the quartet play?",
    "Who repaired Mel's bicycle, and what does he teach?",
    "What did the doctor say about the knee?",
    "医生说可以做什么",
    "What does Roberto do on Sundays?",
    "well-known red crane",
    "paint",
)
TALK = ("I parked the bicycle behind the bakery.", "Noted: behind the bakery.", "自行车钥匙在抽屉里。")


def filled(memory: Runebook) -> Runebook:
    for title, text in MEMORIES:
        memory.commit(CommitRequest(text, memory_type="notes", fields={"title": title}, category="test"))
    messages = [{"role": "user" if at % 2 == 0 else "assistant", "content": text} for at, text in enumerate(TALK)]
    memory.commit(CommitRequest(messages=messages, session_id="s1"))
    memory.indexer.follow(None)
    return memory


def hits(found: FindResult) -> list[tuple[str, float, dict[str, float]]]:
    """Hits with scores, best first; equals by address, for which of them is newer depends on the second."""
    every = (*found.memories, *found.resources, *found.skills)
    told = [(hit.uri, round(hit.score, 9), {name: round(share, 9) for name, share in hit.why.items()}) for hit in every]
    return sorted(told, key=lambda hit: (-hit[1], hit[0]))


def test_words_find_the_same_with_the_same_scores_as_on_a_folder(folder: Place, rows: Place) -> None:
    one, other = filled(folder.open()), filled(rows.open())
    asked: list[dict[str, Any]] = [{"query": question} for question in (*QUESTIONS, "bakery", "钥匙在哪", *TALK)]
    asked += [
        {"query": "tea", "filter": {"category": "test"}},
        {"query": "tea", "filter": {"not": {"category": "test"}}},
        {"query": "ferry", "filter": {"and": [{"memory_type": {"in": ["notes"]}}, {"salience": {"lte": 0.5}}]}},
        {"query": "ferry", "target_uri": "viking://session"},
        {"query": "tea", "filter": {"or": [{"category": "test\x00"}, {"category": "te'st"}, {"tags": "100%"}]}},
        {"query": "bakery", "filter": {"time": {"gte": "2020-01-01"}}},
    ]
    found = 0
    for request in asked:
        expected = hits(one.find(FindRequest(**request)))
        assert hits(other.find(FindRequest(**request))) == expected, request
        found += len(expected)
    assert found > len(QUESTIONS)
    new = CommitRequest("Paul prefers green tea to coffee and drinks it without honey.", fields={"title": "new"})
    assert one.commit(new).similar == other.commit(new).similar != ()


def told(memory: Runebook) -> Runebook:
    for number, day in enumerate(DAYS, 1):
        messages = [{"role": "user", "name": name, "content": text} for name, text in day]
        memory.commit(CommitRequest(messages=messages, session_id=f"day-{number}"))
    memory.indexer.follow(None)
    return memory


def test_what_people_told_each_other_is_found_the_same_by_words_and_by_meaning(folder: Place, rows: Place) -> None:
    one, other = told(folder.open()), told(rows.open())
    expected = [hits(one.find(FindRequest(question))) for question in ABOUT_DAYS]
    assert [hits(other.find(FindRequest(question))) for question in ABOUT_DAYS] == expected
    assert sum(map(bool, expected)) >= len(ABOUT_DAYS) - 1
    assert any("linked" in shares for found in expected for *_, shares in found)
    bundled = EmbeddingConfig(wait_seconds=60.0)
    one, other = folder.open(embedding=bundled), rows.open(embedding=bundled)
    for memory in (one, other):
        memory.indexer.embed_all()
    for question in ABOUT_DAYS:
        near, there = (dict(hit[:2] for hit in hits(memory.find(FindRequest(question)))) for memory in (one, other))
        assert there == pytest.approx(near, abs=2e-4), question  # vectors are kept with half the digits


def test_scores_of_a_space_are_the_same_beside_other_spaces_of_its_user(folder: Place, rows: Place) -> None:
    answers = []
    for place in (folder, rows):
        memory = filled(place.open())
        other_agent = memory.view(agent_space="other")
        for number in range(4):
            tool = {"tool_name": f"kettle {number}", "content": f"The kettle boils the tea water, {number}."}
            other_agent.commit(CommitRequest(memory_type="tools", fields=tool))
        answers.append([hits(memory.find(FindRequest(question))) for question in QUESTIONS])
    assert answers[0] == answers[1]


@pytest.mark.parametrize("question", ["Which drink does he like?", "他要搬到哪个城市？"])
def test_meaning_finds_on_every_server_what_one_of_them_committed(place: Place, question: str) -> None:
    bundled = EmbeddingConfig(wait_seconds=60.0)
    one, other = place.open(embedding=bundled), place.open(embedding=bundled)
    filled(one)
    one.indexer.embed_all()
    progress = other.indexer.progress()
    found = other.find(FindRequest(question))
    assert not any("words" in note for note in found.notes)
    assert (other.indexer.progress().done, progress.total) == (progress.total, progress.total)
    expected = "tea" if question.isascii() else "moving"
    assert expected in [hit.uri.rpartition("/")[2].removesuffix(".md") for hit in found.memories][:2]
    assert all("semantic" in hit.why for hit in found.memories)
    changed = CommitRequest("His favourite beverage is oolong.", memory_type="notes", fields={"title": "oolong"})
    other.commit(changed)
    again = [hit.uri for hit in one.find(FindRequest("Which drink does he like?")).memories]
    assert "viking://user/default/memories/notes/oolong.md" in again


def test_the_list_is_filtered_by_tags_and_names_tags_and_projects(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = place.open()
    for title, tags in (("Tea", ["茶", "drink"]), ("Trip", ["drink"])):
        data = {"memory_type": "notes", "fields": {"title": title, "content": f"About {title}."}, "tags": tags}
        memory.commit(CommitRequest(operations={"write_operations": [{"memory_data": data}]}, project="acme"))
    assert [entry.name for entry in memory.entries(EntryFilter(tags=["茶", "DRINK"])).entries] == ["Tea"]
    assert memory.entries(EntryFilter(tags=["nothing"])).entries == ()
    assert memory.memory_list.labels() == ({"drink": 2, "茶": 1}, {"acme": 2})
    monkeypatch.setattr("memory_core.core.search.memory_list._LABELS_MOST", 1)
    assert memory.memory_list.labels() == ({"drink": 2}, {"acme": 2})


def test_the_graph_of_memories_is_the_same_and_is_walked(place: Place) -> None:
    memory = place.open()
    uris = {}
    for title in ("Tea", "Cup", "茶"):
        receipt = memory.commit(CommitRequest(f"About {title}.", memory_type="notes", fields={"title": title}))
        uris[title] = receipt.results[0].uri
    memory.run(RELATE, RelateRequest(uris["Tea"], uris["Cup"], "supports", 0.8))
    found = memory.run(GRAPH, GraphRequest(types=["notes"], after="2026-01-01", limit=10))
    assert {node.name for node in found.nodes} == set(uris)
    assert [(edge.source, edge.relation, edge.target) for edge in found.edges] == [
        (uris["Tea"], "supports", uris["Cup"])
    ]
    near = memory.run(GRAPH, GraphRequest(around=uris["Cup"]))
    assert [node.name for node in near.nodes] == ["Cup", "Tea"]
    memory.run(RELATE, RelateRequest(uris["Tea"], uris["Cup"], "supports", remove=True))
    assert memory.run(GRAPH, GraphRequest()).edges == ()


def test_the_calendar_tells_what_happened_and_what_was_made(place: Place) -> None:
    memory = place.open()
    made = datetime(2026, 5, 3, 12, tzinfo=UTC)
    for name, when in (("Flight", "2026-05-02"), ("搬家", "2026-05-31"), ("Later", "2026-06-01")):
        fields = {"event_name": name, "event_time": when}
        memory.commit(CommitRequest(f"About {name}.", memory_type="events", fields=fields, now=made))
    memory.indexer.follow()
    events, added, counts = memory.memory_list.calendar("2026-05-01", "2026-05-31")
    assert [(day, "Flight" in name or "搬家" in name) for day, _, name, _ in events] == [
        ("2026-05-02", True),
        ("2026-05-31", True),
    ]
    assert [day for day, *_ in added] == ["2026-05-03", "2026-05-03"]  # two of them are named
    assert counts == {"2026-05-03": 3}


def test_whether_a_search_was_cached_tells_nothing_of_what_others_do(place: Place) -> None:
    memory = place.open()
    bob = memory.view("bob", "bob")

    def is_cached() -> bool:
        return bob.find(FindRequest("who feeds the gulls?")).cached

    for view in (memory, bob):
        view.commit(CommitRequest(MEMORIES[0][1], fields={"title": "gulls"}))
    is_cached()
    assert is_cached()
    memory.commit(CommitRequest("Seven more gulls came."))
    memory.commit(CommitRequest("They fear the dog.", project="acme/api", private=True))
    memory.commit(CommitRequest(messages=[{"role": "user", "content": "The gulls left."}], session_id="s"))
    memory.indexer.follow(None)
    assert is_cached()
    bob.commit(CommitRequest("The keeper feeds an eighth gull."))
    assert not is_cached()
    assert "eighth" in bob.find(FindRequest("eighth gull")).hits[0].abstract


@pytest.mark.parametrize("letters", ["ж", "中", "🜁", "x"], ids=["cyrillic", "chinese", "alchemy", "random"])
def test_a_word_without_end_stands_in_nobodys_way(place: Place, letters: str) -> None:
    memory = place.open()
    drawn = random.Random(7)
    word = (
        "".join(drawn.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=60_000)) if letters == "x" else letters * 17_000
    )
    long = memory.commit(CommitRequest(f"Hello {word} there, zebra.", memory_type="notes"))
    other = memory.commit(CommitRequest("The boat leaves at nine.", memory_type="notes"))
    memory.indexer.follow(None)
    for query, receipt in (("boat nine", other), ("hello zebra", long)):
        (hit, *_) = memory.find(FindRequest(query)).memories
        assert hit.uri == receipt.results[0].uri
    assert memory.find(FindRequest(f"{word[:19_000]} boat")).memories
