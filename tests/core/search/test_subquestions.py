"""Queries that ask several questions."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.core.search.subquestions import subquestions
from memory_core.runebook import open_memory
from tests.stores import remember, words_only


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        ("Where does Ann live, and what does Bob eat?", ["Where does Ann live", "what does Bob eat?"]),
        (
            "What does Mel paint? What did Tom do with his kids?",
            ["What does Mel paint?", "What did Tom do with his kids?"],
        ),
        ("阿哲的姐姐住在哪里，小林喜欢吃什么？", ["阿哲的姐姐住在哪里", "小林喜欢吃什么？"]),
        ("What do Ann and Bob eat?", ["What do Ann and Bob eat?", "What do Ann eat?", "What do Bob eat?"]),
        ("小林和阿哲分别住在哪里？", ["小林和阿哲分别住在哪里？", "小林分别住在哪里？", "阿哲分别住在哪里？"]),
    ],
)
def test_each_question_is_whole_in_itself(query: str, parts: list[str]) -> None:
    assert subquestions(query) == parts


@pytest.mark.parametrize(
    "query",
    [
        "Where did Caroline go and what did she eat?",
        "Who works in Shenzhen, and what is her number?",
        "我的医生叫什么，他的电话是多少？",
        "When and where was Caroline born?",
        "What does Ann think about how Bob cooks?",
        "I went out, and it rained. What did I wear?",
        "What? Who? Why?",
    ],
)
def test_one_question_stays_one(query: str) -> None:
    assert subquestions(query) == []


def test_what_answers_each_question_is_found_however_much_there_is_about_one(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        for number in range(12):
            remember(memory, f"Ann painted sunset number {number} in her garden with Bob.")
            remember(memory, f"Tom called for the {number}th time.")
            remember(memory, f"Max lives in house number {number}.")
        (lives,) = memory.commit(CommitRequest("Tom lives by the harbour.")).results
        for limit in (3, 10):
            query = "What did Ann paint in her garden with Bob, and where does Tom live?"
            hits = memory.find(FindRequest(query, limit=limit)).hits
            assert len(hits) == limit
            assert lives.uri in {hit.uri for hit in hits}
            assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
