"""Relations in search: what contests a memory comes before it and is shown with it, weighed by strength and trust."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from memory_core.core.memory.memory import Memory, parse
from memory_core.core.memory.requests import CommitRequest, FindRequest, RetrieveRequest
from memory_core.core.memory.results import Hit, as_json
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.search.context_sources import rivals_of
from memory_core.runebook import Runebook, open_memory
from tests.stores import words_only, written

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
FACTS = "viking://user/default/memories/facts"


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runebook]:
    home = tmp_path_factory.mktemp("relations")
    with open_memory(words_only(home)) as opened:
        yield opened


def fact(memory: Runebook, topic: str, content: str, *, days: int, **standing: object) -> str:
    data = {"memory_type": "facts", "fields": {"topic": topic, "content": content}, **standing}
    return written(memory, data, now=NOW - timedelta(days=days))[0]


def relate(memory: Runebook, source: str, target: str, relation: str, strength: float = 0.5) -> None:
    link = {"uri": target, "relation": relation, "strength": strength}
    memory.commit(CommitRequest(operations={"edit_operations": [{"uri": source, "links": [link]}]}, now=NOW))


def hits(memory: Runebook, query: str, rank: str = "balanced", target: str = FACTS) -> list[Hit]:
    return list(memory.find(FindRequest(query, target, now=NOW, rank=rank)).hits)


@pytest.mark.parametrize(
    ("old", "new", "query"),
    [
        ("The ferry to Naxos leaves at noon.", "Since May the Naxos boat goes at dusk.", "ferry to Naxos noon"),
        ("渡轮中午十二点从码头出发。", "五月起渡轮改在傍晚从码头出发。", "渡轮中午从码头出发"),
    ],
)
@pytest.mark.parametrize("rank", ["relevance", "balanced", "decay", "weighted"])
def test_a_newer_rival_comes_first_though_the_older_words_fit_better(
    memory: Runebook, old: str, new: str, query: str, rank: str
) -> None:
    older, newer = fact(memory, old, old, days=9), fact(memory, new, new, days=1)
    relate(memory, newer, older, "contradicts")
    found = hits(memory, query, rank)
    assert [hit.uri for hit in found[:2]] == [newer, older]
    (rival,) = found[1].rivals
    assert (rival.uri, rival.relation, rival.strength, rival.confidence) == (newer, "contradicts", 0.5, 1.0)
    assert found[1].confidence == 0.75
    assert as_json(found[1])["rivals"][0]["abstract"] == rival.abstract == new


@pytest.mark.parametrize(
    ("old", "new", "query"),
    [
        ("The archive key hangs in the cellar.", "It was moved to the attic.", "archive key cellar"),
        ("档案室钥匙挂在地下室。", "已经搬到了阁楼上。", "档案室钥匙地下室"),
    ],
)
def test_a_rival_that_the_query_does_not_find_is_shown_all_the_same(
    memory: Runebook, old: str, new: str, query: str
) -> None:
    older, newer = fact(memory, old, old, days=9), fact(memory, f"{new[:4]} 7", new, days=1)
    relate(memory, newer, older, "replaces", strength=0.9)
    (hit,) = hits(memory, query)
    assert hit.uri == older
    assert [(rival.uri, rival.verb) for rival in hit.rivals] == [(newer, "replaced by")]
    assert new in hit.rivals[0].abstract
    assert f"[replaced by a newer memory of 2026-05-31: {new}]" in memory.retrieve(RetrieveRequest(query, now=NOW)).text


def test_a_standing_rule_that_no_search_ranked_is_shown_with_what_contradicts_it(memory: Runebook) -> None:
    data = {"memory_type": "preferences", "fields": {"topic": "Tabs", "content": "Always indent with tabs."}}
    (older,) = written(memory, {**data, "salience": 1.0}, now=NOW - timedelta(days=9))
    newer = fact(memory, "Indent", "The whole team switched to four spaces.", days=1)
    relate(memory, newer, older, "contradicts")
    text = memory.retrieve(RetrieveRequest("unrelated question about giraffes", session_id="new", now=NOW)).text
    assert "Always indent with tabs." in text
    assert "[contradicted by a newer memory of 2026-05-31: The whole team switched to four spaces.]" in text


def test_strength_and_trust_decide_how_much_a_contested_memory_keeps(memory: Runebook) -> None:
    def kept(number: int, strength: float, trust: float) -> float:
        word = f"quokka{number}"
        older = fact(memory, word, f"The {word} sleeps in the east pen.", days=9)
        before = hits(memory, f"{word} sleeps", "relevance")[0].score
        newer = fact(memory, f"Pen {number}", f"Keeper note {number}: it moved west.", days=1, confidence=trust)
        relate(memory, newer, older, "contradicts", strength)
        (found,) = [hit for hit in hits(memory, f"{word} sleeps", "relevance") if hit.uri == older]
        return found.score / before

    weak, usual, strong = kept(1, 0.1, 1.0), kept(2, 0.5, 1.0), kept(3, 1.0, 1.0)
    doubtful = kept(4, 0.5, 0.2)
    assert 1.0 > weak > usual > strong > 0.2
    assert 1.0 > doubtful > usual


def test_a_rival_that_was_put_to_rest_or_deleted_no_longer_speaks(memory: Runebook) -> None:
    older = fact(memory, "Ibis", "The ibis nests by the pond.", days=9)
    newer = fact(memory, "Wader", "It left in spring.", days=1)
    relate(memory, newer, older, "contradicts")
    assert hits(memory, "ibis nests pond")[0].rivals != ()
    memory.commit(CommitRequest(operations={"edit_operations": [{"uri": newer, "active": False}]}, now=NOW))
    assert hits(memory, "ibis nests pond")[0].rivals == ()
    assert "It left in spring" not in memory.retrieve(RetrieveRequest("ibis nests pond", now=NOW)).text


def test_a_rival_in_a_space_that_the_reader_does_not_see_says_nothing(memory: Runebook) -> None:
    """Two users share an agent; what one of them says of its memories is theirs."""
    anna, eve = memory.view("anna", "desk"), memory.view("eve", "desk")
    fields = {"case_name": "Printer jam", "problem": "It jams.", "solution": "Open the tray."}
    (case,) = written(anna, {"memory_type": "cases", "fields": fields}, now=NOW - timedelta(days=9))
    own = fact(anna, "Printer", "I have no printer since my divorce.", days=1)
    relate(anna, own, case, "contradicts")
    for view, rivals in ((anna, [own]), (eve, [])):
        (hit,) = [each for each in hits(view, "printer jam tray", target="") if each.uri == case]
        assert [rival.uri for rival in hit.rivals] == rivals
        pack = view.retrieve(RetrieveRequest("printer jam tray", now=NOW))
        assert ("divorce" in pack.text) == bool(rivals)


def test_doubt_lowers_a_rank_a_little_and_support_lends_a_little_but_relevance_knows_neither(memory: Runebook) -> None:
    plain = fact(memory, "Okapi A", "An okapi calf was born on the ridge.", days=2)
    doubted = fact(memory, "Okapi B", "An okapi calf was born on the ridge too.", days=2, confidence=0.2)
    backed = fact(memory, "Okapi C", "An okapi calf was born on the ridge also.", days=2)
    relate(memory, fact(memory, "Vet", "The vet saw it.", days=1), backed, "supports", strength=1.0)
    query = "okapi calf born ridge"
    for rank in ("balanced", "weighted", "decay"):
        scores = {hit.uri: hit.score for hit in hits(memory, query, rank)}
        assert scores[backed] > scores[plain] > scores[doubted]
        assert scores[doubted] > 0.9 * scores[plain]
    bare = {hit.uri: hit.score for hit in hits(memory, query, "relevance")}
    assert bare[plain] == pytest.approx(bare[backed], rel=0.05)
    assert bare[doubted] == pytest.approx(bare[backed], rel=0.05)


def test_of_two_relations_to_one_memory_the_stronger_is_shown() -> None:
    weak = {"uri": f"{FACTS}/New.md", "relation": "contradicts", "strength": 0.4}
    links = [weak, {**weak, "relation": "replaced_by", "strength": 0.9}]

    def memory_of(day: int) -> Memory:
        at = f"2026-05-0{day}T00:00:00+00:00"
        trailer = json.dumps({"memory_type": "facts", "updated_at": at, "links": links})
        return parse(MemoryUri.parse(f"{FACTS}/New.md"), f"New.\n\n<!-- MEMORY_FIELDS\n{trailer}\n-->\n", None)

    (rival,) = rivals_of(memory_of(1), lambda _uri: memory_of(2))
    assert (rival.relation, rival.strength) == ("replaced_by", 0.9)
