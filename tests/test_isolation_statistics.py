"""What another user stores changes nothing of what one is answered: no score, no order, no count, no note.

Scores of a search by words rest on how common each word is. Were it counted over all users, anybody could read from the
score of a memory of his own how many others' hold the same word.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.config import load
from memory_core.core.index.catalog import Catalog, Position
from memory_core.core.index.follower import Follower
from memory_core.core.memory.requests import CommitRequest, FindRequest, RetrieveRequest, TreeRequest
from memory_core.core.memory.results import as_json
from memory_core.core.progress import Stage, listening
from memory_core.features.recall_trail import SIMILAR, SimilarRequest
from memory_core.runebook import Runebook, open_memory

BOBS = [
    ("Cello", "Plays the cello 大提琴 in the evening, mostly Bach."),
    ("Diagnosis", "The doctor in Chengdu 成都 spoke of diabetes."),
    ("Tea", "Likes green tea 绿茶 more than coffee."),
    ("Bike", "The bicycle 自行车 has a flat tyre since May."),
    ("Server", "Server A has 16 GB of memory."),
]
ANNAS = "Diabetes 成都 cello 大提琴 evening tea 绿茶 bicycle server memory doctor {index} 数字 {index}"
QUESTIONS = [
    "diabetes",
    "What did the doctor in Chengdu say?",
    "大提琴",
    "绿茶 or coffee in the evening",
    "bicycle tyre",
    "server memory 16 GB",
    "什么时候拉大提琴?",
    "数字",
    "flat",
    "Bach cello evening",
]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Runebook]]:
    """The same of bob's twice: ``alone``, and ``among`` many of anna's, before and after his."""
    opened = {
        name: open_memory(
            load(environment={}, flags={"home": str(tmp_path_factory.mktemp(name)), "embedding.provider": "none"})
        )
        for name in ("alone", "among")
    }
    anna = opened["among"].view("anna", "anna")
    commit_many(anna, 0, 60)
    views = {name: memory.view("bob", "bob") for name, memory in opened.items()}
    for title, content in BOBS:
        for view in views.values():
            view.commit(CommitRequest(content, fields={"title": title}))
    for view in views.values():
        view.commit(
            CommitRequest(messages=[{"role": "user", "content": "I bought a new cello 大提琴 string."}], session_id="s")
        )
    commit_many(anna, 60, 90)
    anna.commit(CommitRequest(messages=[{"role": "user", "content": "The cello 大提琴 string broke."}], session_id="s"))
    anna.retrieve(RetrieveRequest("What of the cello 大提琴?", session_id="chat"))
    yield views
    for memory in opened.values():
        memory.close()


def commit_many(anna: Runebook, start: int, end: int) -> None:
    writes = [
        {"memory_data": {"memory_type": "notes", "fields": {"title": f"n{i}", "content": ANNAS.format(index=i)}}}
        for i in range(start, end)
    ]
    anna.commit(CommitRequest(operations={"write_operations": writes}))


def plain(facts: Any) -> str:
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00|\d{8}T\d{6}-[0-9a-f]{8}", "-", json.dumps(facts, ensure_ascii=False))


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("rank", ["relevance", "balanced"])
def test_scores_and_order_are_those_of_a_store_without_the_other(
    stores: dict[str, Runebook], question: str, rank: str
) -> None:
    alone, among = (plain(as_json(view.find(FindRequest(question, rank=rank, limit=50)))) for view in stores.values())
    assert among == alone


def test_contexts_listings_and_neighbours_are_those_of_a_store_without_the_other(stores: dict[str, Runebook]) -> None:
    def answers(view: Runebook) -> list[str]:
        view.store.usage.flush()  # what was used counts from now on, in both stores
        # No question matches it as well as it matches bob's first: moments of last use would decide.
        text = "The doctor in Chengdu 成都 called again late in May and spoke of sugar, diabetes, bread and long walks."
        copy = view.commit(CommitRequest(text, fields={"title": "Again"}))
        facts: list[Any] = [as_json(copy), as_json(view.tree(TreeRequest(level_limit=9, show_all_hidden=True)))]
        for question, session_id in [
            *((question, None) for question in QUESTIONS),
            ("What of the cello 大提琴?", "chat"),
        ]:
            for _ in range(1 if session_id is None else 2):
                facts.append(as_json(view.retrieve(RetrieveRequest(question, session_id=session_id))))
                view.store.usage.flush()
        facts += [as_json(view.run(SIMILAR, SimilarRequest("The doctor in Chengdu spoke of diabetes 成都.", 0.1)))]
        return [plain(fact) for fact in facts]

    alone, among = (answers(view) for view in stores.values())
    assert among == alone


def test_how_far_the_index_is_says_what_it_says_in_a_store_without_the_other(
    stores: dict[str, Runebook], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in ("_TOLD_FROM", "_SLICE_CHANGES"):
        monkeypatch.setattr(f"memory_core.core.index.follower.{bound}", 1)

    def answers(name: str, view: Runebook) -> list[Any]:
        ledger, told = view.store.ledger, list[Stage]()
        newest = ledger.newest_seq()
        with closing(Catalog(tmp_path / name / "index.sqlite3")) as catalog:
            follower = Follower(ledger, catalog, view.registry, threading.Event(), view.features)
            found: list[Any] = [follower.behind(view.spaces)]
            for position in (
                Position(ledger.ledger_id, newest, ""),
                Position(ledger.ledger_id, newest, f"{newest + 1}:0"),
                Position(ledger.ledger_id, 0),
                Position(ledger.ledger_id, newest),
            ):
                with catalog.writing() as connection:
                    catalog.advance(connection, position)
                found.append(follower.behind(view.spaces))
            with listening(told.append):
                for spaces in ((), view.spaces):
                    with catalog.writing() as connection:
                        catalog.clear(connection)
                        catalog.advance(connection, Position(ledger.ledger_id, 0))
                    found.append(follower.follow(None, spaces=spaces))
        return [*found, {(stage.what, stage.total) for stage in told}]

    alone, among = (answers(*each) for each in stores.items())
    assert among == alone
    assert len(alone[-1]) == 2  # what was told with and without figures
    assert [None if behind is None else (behind.done, behind.counted) for behind in alone[:5]] == [
        *[(0, "files")] * 2,
        None,
        (0, "changes"),
        None,
    ]
