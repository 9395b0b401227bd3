"""Search by words: what is found within which bounds, and what the store knows of a query's words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memory_core.core.index.catalog import Catalog
from memory_core.core.index.documents import Document
from memory_core.core.index.filter import Bounds, compile_filter
from memory_core.core.index.search_rows import LexicalHits
from memory_core.core.index.tokenizer import query_terms
from memory_core.core.memory.uri import MemoryUri

HERE, THERE = "user/default", "user/other"


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    opened = Catalog(tmp_path / "index.sqlite3")
    with opened.writing() as connection:
        opened.clear(connection)
    yield opened
    opened.close()


def turn(log: MemoryUri, part: int, text: str) -> Document:
    """The document of a message."""
    return Document(
        uri=log,
        part=part,
        context_type="resource",
        memory_type="message",
        name=str(part),
        abstract=text,
        own=text,
        previous="",
        heading="",
        passages=(),
    )


def put(catalog: Catalog, *texts: str, space: str = HERE, memory_type: str = "facts", previous: str = "") -> list[int]:
    """Documents with these words; returns their ids."""
    ids: list[int] = []
    with catalog.writing() as connection:
        for text in texts:
            number = catalog.count()
            turn = memory_type == "message"
            place = f"{space}/s/messages.jsonl" if turn else f"{space}/memories/facts/{number}.md"
            document = Document(
                uri=MemoryUri.parse(f"viking://{place}"),
                part=number if turn else 0,
                context_type="resource" if turn else "memory",
                memory_type=memory_type,
                name=str(number),
                abstract=text,
                own=text,
                previous=previous,
                heading="",
                passages=(),
            )
            catalog.put(connection, document)
            ids.append(int(connection.execute("SELECT max(id) FROM documents").fetchone()[0]))
    return ids


def search(catalog: Catalog, query: str, limit: int = 100, **bounds: object) -> LexicalHits:
    spaces = bounds.pop("spaces", None)
    scopes = None if spaces is None else catalog.scope_terms(list(spaces))  # type: ignore[call-overload]
    condition = compile_filter(bounds.pop("filter", None))  # type: ignore[arg-type]
    terms = query_terms(query)
    return catalog.words.search(terms, limit, Bounds(scopes, catalog.count(), condition))


@pytest.mark.parametrize(("text", "query"), [("The kettle whistles.", "kettle"), ("水壶在响。", "水壶")])
def test_document_is_found_by_its_words_and_everyday_rows_are_not(catalog: Catalog, text: str, query: str) -> None:
    (wanted,) = put(catalog, text)
    assert set(search(catalog, f"{query} people time house").scores) == {wanted}
    assert search(catalog, "people time house").scores == {}
    assert search(catalog, "people time house").question.known_terms == 0


def test_a_turn_that_says_it_comes_before_the_turn_that_follows(catalog: Catalog) -> None:
    (said,) = put(catalog, "The kettle whistles loudly.", memory_type="message")
    (after,) = put(catalog, "Then take it off.", memory_type="message", previous="The kettle whistles loudly.")
    scores = search(catalog, "kettle").scores
    assert scores[said] > scores[after] > 0.0


def test_nothing_is_searched_where_no_space_may_be_seen(catalog: Catalog) -> None:
    put(catalog, "The kettle whistles.", space=THERE)
    hits = search(catalog, "kettle", spaces=[HERE])
    assert (hits.scores, hits.rare, hits.question.documents) == ({}, frozenset(), 1)
    nowhere = Bounds(catalog.scope_terms([HERE]))
    assert catalog.words.holding(['"kettl"'], 5, nowhere) == {}
    assert catalog.words.sharing(['"kettl"'], 5, nowhere, indexed=False) == []


def test_words_of_another_space_are_neither_found_nor_known(catalog: Catalog) -> None:
    put(catalog, "The kettle whistles.", space=THERE)
    (ours,) = put(catalog, "The teapot is blue.")
    hits = search(catalog, "kettle teapot", spaces=[HERE])
    assert set(hits.scores) == {ours}
    assert hits.question.known_terms == 1
    assert search(catalog, "kettle teapot", spaces=[HERE, THERE]).question.known_terms == 2


def test_a_filter_leaves_out_what_does_not_meet_it(catalog: Catalog) -> None:
    (fact,) = put(catalog, "The kettle whistles.")
    (turn,) = put(catalog, "The kettle whistles.", memory_type="message")
    assert set(search(catalog, "kettle").scores) == {fact, turn}
    assert set(search(catalog, "kettle", filter={"memory_type": "message"}).scores) == {turn}
    assert search(catalog, "kettle", filter={"memory_type": "message"}).rare == {turn}


def test_the_best_are_kept_when_more_match_than_asked_for(catalog: Catalog) -> None:
    put(catalog, *[f"Number {number} holds a kettle among many other things of a kitchen." for number in range(8)])
    (best,) = put(catalog, "Kettle.")
    assert set(search(catalog, "kettle", limit=1).scores) == {best}


# What names a document


@pytest.mark.parametrize(("holders", "named"), [(1, True), (2, False)])
def test_a_word_is_rare_while_one_document_holds_it(catalog: Catalog, holders: int, named: bool) -> None:
    ids = put(catalog, *[f"Note {number} about the heliograph." for number in range(holders)])
    put(catalog, "Something else.")
    assert search(catalog, "heliograph").rare == (frozenset(ids) if named else frozenset())


def test_a_word_of_the_turn_before_makes_no_document_rare(catalog: Catalog) -> None:
    (said,) = put(catalog, "The heliograph flashed.", memory_type="message")
    put(catalog, "Really?", memory_type="message", previous="The heliograph flashed.")
    assert search(catalog, "heliograph").rare == {said}


@pytest.mark.parametrize(("holders", "found"), [(4, 4), (5, 0)])
def test_a_term_that_more_documents_hold_names_none_of_them(catalog: Catalog, holders: int, found: int) -> None:
    put(catalog, *[f"Ticket {number}: err_42 again." for number in range(holders)])
    assert len(catalog.words.holding(['"err 42"'], 4, Bounds())) == found


def test_a_term_counts_within_the_filter_and_the_space_only(catalog: Catalog) -> None:
    put(catalog, *["err_42 again" for _ in range(3)], space=THERE)
    put(catalog, *["err_42 again" for _ in range(3)], memory_type="message")
    (ours,) = put(catalog, "err_42 again")
    bounds = Bounds(catalog.scope_terms([HERE]), condition=compile_filter({"memory_type": "facts"}))
    assert set(catalog.words.holding(['"err 42"'], 1, bounds)) == {ours}


# A large store


def test_in_a_large_store_common_words_only_rank_what_rarer_ones_find(catalog: Catalog) -> None:
    put(catalog, *[f"Meeting {number}." for number in range(2_100)])
    (rare,) = put(catalog, "Meeting with the beekeeper.")
    assert set(search(catalog, "meeting with the beekeeper").scores) == {rare}
    assert len(search(catalog, "meeting").scores) == 100
    question = search(catalog, "meeting unheard").question
    assert question.known_terms == 1


# Neighbours


def sharing(catalog: Catalog, text: str) -> list[str]:
    found = catalog.words.sharing(query_terms(text, 6), 10, Bounds(), indexed=True)
    return [own for _, own in found]


@pytest.mark.parametrize(
    ("own", "near", "far"),
    [
        ("The heliograph is on the roof.", "A heliograph was sold.", "The weather is fine."),
        ("日光仪放在屋顶上。", "日光仪卖掉了。", "天气晴朗。"),
    ],
)
def test_memories_that_share_rare_words_are_neighbours(catalog: Catalog, own: str, near: str, far: str) -> None:
    put(catalog, own, near, far)
    put(catalog, near, memory_type="message")
    found = sharing(catalog, own)
    assert near in found
    assert found.count(near) == 1  # the turn that says the same is none
    assert far not in found


def test_where_even_the_rarest_words_are_common_a_neighbour_holds_them_all(catalog: Catalog) -> None:
    put(catalog, *[f"apple pear {number}" for number in range(200)])
    put(catalog, *[f"apple plum {number}" for number in range(200)])
    found = sharing(catalog, "apple pear plum")
    assert found == []
    put(catalog, "apple pear plum together")
    assert sharing(catalog, "apple pear plum") == ["apple pear plum together"]


def test_one_more_archived_segment_is_not_work_for_each_pair_of_messages_and_segments(tmp_path: Path) -> None:
    log = MemoryUri.parse("viking://session/default/s1/messages.jsonl")
    segments = log.parent.child("segments")

    def work(size: int) -> int:
        opened = Catalog(tmp_path / f"{size}.sqlite3")
        steps = 0

        def step() -> int:
            nonlocal steps
            steps += 1
            return 0

        try:
            with opened.writing() as writer:
                opened.clear(writer)
                for part in range(size):
                    opened.put(writer, turn(log, part, "One."))
                    opened.put_resting_lines(writer, segments.child(f"{part}.md"), log, [(part, part)])
                writer.set_progress_handler(step, 10)
                opened.put_resting_lines(writer, segments.child("0.md"), log, [(0, 1)])
                writer.set_progress_handler(None, 0)
                assert writer.execute("SELECT count(*), sum(active) FROM documents").fetchone() == (size, 0)
            return steps
        finally:
            opened.close()

    assert work(200) < 8 * work(50)
