"""The same store answers alike whichever way its vectors are searched."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from memory_core.core.config import Config, EmbeddingConfig, IndexConfig, SearchConfig
from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.runebook import Runebook, open_memory
from tests.waiting import soon

PEOPLE = ("Lin", "Mei", "Anders", "陈磊", "Sofia", "Yuki")
DEEDS = ("repaired the bridge", "sold a violin", "喜欢在雨天散步", "missed the night train", "种了一棵柿子树")
QUERIES = ("who fixed the bridge", "谁喜欢下雨", "a tree was planted", "Sofia violin", "late for the train")


def fill(home: Path) -> None:
    said = [
        {"role": "user", "name": PEOPLE[number % 6], "content": f"{PEOPLE[number % 6]} {DEEDS[number % 5]}, {number}."}
        for number in range(700)
    ]
    with open_memory(Config(home=home)) as memory:
        memory.commit(CommitRequest(messages=said, session_id="s1"))
        memory.indexer.embed_all()


def config(home: Path, index: IndexConfig) -> Config:
    # Every word here is in a fifth of all turns, which is too common for the floor.
    return Config(home=home, embedding=EmbeddingConfig(wait_seconds=60), index=index, search=SearchConfig(floor=False))


def answers(memory: Runebook) -> list[list[str]]:
    return [[hit.uri for hit in memory.find(FindRequest(query, rank="relevance", limit=5)).hits] for query in QUERIES]


@pytest.mark.slow
def test_exact_auto_and_chroma_find_the_same(tmp_path: Path) -> None:
    fill(tmp_path)
    with open_memory(config(tmp_path, IndexConfig(mode="exact"))) as memory:
        expected = answers(memory)
    assert all(expected)
    for index in (IndexConfig(mode="chroma"), IndexConfig(mode="auto", exact_below=500)):
        with open_memory(config(tmp_path, index)) as memory:
            embedder = memory.indexer.embedder
            assert embedder is not None
            place = (memory.indexer.catalog.connection(), "session/default", embedder.fingerprint)

            def is_served(memory: Runebook = memory, place: tuple[sqlite3.Connection, str, str] = place) -> bool:
                memory.indexer.wake()
                return memory.indexer.vectors.status(*place).backend == "chroma"

            assert soon(is_served)
            assert answers(memory) == expected
            memory.commit(CommitRequest("The newest one: 一只橘猫 sleeps on the printer."))
            assert "printer" in memory.find(FindRequest("cat on the printer")).hits[0].abstract
