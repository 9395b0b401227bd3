"""Word search in a store that others share: the others' documents change no score, however many they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_core.core.index import search_rows
from memory_core.core.memory.requests import FindRequest
from memory_core.runebook import Runebook, open_memory
from tests import stores
from tests.stores import handed_in, words_only


def opened(home: Path) -> Runebook:
    return open_memory(words_only(home))


def write(memory: Runebook, first: int, last: int, text: str) -> None:
    numbers = range(first, last)
    handed_in(memory, write=[stores.write("notes", title=f"Note {n}", content=f"{text} {n}") for n in numbers])
    memory.indexer.follow()  # estimates look at how documents lie, which is as they were followed


def found(memory: Runebook, query: str) -> list[tuple[str, float]]:
    return [(hit.uri, hit.score) for hit in memory.retriever.find(FindRequest(query, limit=20, rank="relevance")).hits]


def fill(anna: Runebook) -> None:
    write(anna, 0, 30, "the harbour crane 港口")
    write(anna, 30, 33, "a tugboat 拖船 near the harbour crane")


QUERIES = ("the harbour crane", "tugboat 拖船", "港口", "crane 7", "tugboat near the lighthouse")


@pytest.mark.parametrize("counted", [10, 2_000], ids=["estimated", "counted"])
def test_what_others_store_changes_no_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: int) -> None:
    monkeypatch.setattr(search_rows, "COUNTED", counted)
    with opened(tmp_path / "few") as few, opened(tmp_path / "many") as many:
        for store, others in ((few, 1), (many, 400)):
            fill(store.view("anna", "anna"))
            write(store.view("bob", "bob"), 0, others, "the harbour crane tugboat 港口 拖船 lighthouse")
        assert {query: found(few.view("anna", "anna"), query) for query in QUERIES} == {
            query: found(many.view("anna", "anna"), query) for query in QUERIES
        }
        assert found(many.view("anna", "anna"), "tugboat 拖船")
        assert not found(many.view("anna", "anna"), "lighthouse")


def test_word_of_nearly_every_document_is_searched_where_ids_are_sparse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_rows, "COUNTED", 10)
    with opened(tmp_path) as memory:
        fill(memory)
        for round_number in range(12):  # each change gives a document a new id
            write(memory, 30, 33, f"a tugboat near the harbour crane, {round_number} times")
            memory.indexer.follow()
        assert found(memory, "the harbour crane")
