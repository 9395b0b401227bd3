"""Each feature can be taken out: the rest serves, on a new store and on one that all features have filled."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from memory_core.core.feature import NO_FEATURES, Feature, Features
from memory_core.core.memory.requests import (
    CommitRequest,
    FindRequest,
    ListRequest,
    ReadRequest,
    RetrieveRequest,
    TreeRequest,
)
from memory_core.core.memory.results import Action, Status
from memory_core.features import FEATURES
from memory_core.features.upkeep.archive import ARCHIVE, ArchiveRequest
from memory_core.features.upkeep.passes import MAINTAIN, MaintainRequest
from memory_core.runebook import Runebook, open_memory
from server.protocol.app import build_server
from tests.stores import words_only

NOW = datetime(2026, 5, 2, 10, 0, tzinfo=UTC)
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
CALL: dict[str, Any] = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "c1", "name": "web_search", "arguments": {"q": "x"}}],
}
FAILED: dict[str, Any] = {
    "role": "tool",
    "content": "TimeoutError: no answer",
    "tool_results": [{"call_id": "c1", "name": "web_search", "content": "TimeoutError: no answer", "status": "error"}],
}
TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "Which temples in Kyoto have a garden?"},
    {"role": "assistant", "content": "Ryoanji has a temple garden in Kyoto."},
    {"role": "user", "content": "From now on always answer in metric units."},
    {"role": "assistant", "content": "I will."},
    CALL,
    FAILED,
    {"role": "user", "content": "支付系统的回调经常超时，怎么办？"},
    {"role": "assistant", "content": "支付回调要做成幂等的，超时之后重试。"},
    {"role": "user", "content": "Bye!"},
    {"role": "assistant", "content": "Bye!"},
]


def opened(home: Path, features: Features) -> Runebook:
    config = words_only(home, tiers={"short_term_capacity": 1}, review="automatic", watch="off")
    return open_memory(config, features=features)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with something of every feature in it."""
    home = tmp_path_factory.mktemp("filled") / "home"
    with opened(home, FEATURES) as memory:
        memory.commit(CommitRequest("Ryoanji opens at nine.", memory_type="facts", now=NOW))
        away = memory.commit(CommitRequest("An old note about a bus.", now=NOW)).changed_uris
        memory.commit(CommitRequest("The bus was late by 20 minutes.", memory_type="daily_logs", now=NOW))
        memory.commit(CommitRequest("A traveller who likes temples.", memory_type="rolling_summary", now=NOW))
        memory.commit(CommitRequest(messages=TALK, session_id="s1", now=NOW))
        memory.commit(CommitRequest(f"The key is {TOKEN}.", now=NOW))
        memory.run(ARCHIVE, ArchiveRequest([uri for uri in away if not uri.endswith("view.md")][:1]))
        assert not [done.failure for done in memory.run(MAINTAIN, MaintainRequest(now=NOW)) if done.failure]
    for place in ("user/default/logs", "user/default/review", "session/default/s1/segments", "archive/user"):
        assert list((home / place).rglob("*.md")), place
    assert (home / "user/default/rolling_summary.md").exists()
    return home


@pytest.fixture
def copy(filled: Path, tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "home"
    shutil.copytree(filled, home)
    yield home
    shutil.rmtree(home)


def expect_served(memory: Runebook) -> None:
    """Committing, finding, reading, listing and retrieving work in full."""
    noted = memory.commit(CommitRequest("The zebra crossing is closed 斑马线.", now=NOW))
    assert noted.status is Status.COMMITTED
    said = [{"role": "user", "content": "Where is the zebra?"}, {"role": "assistant", "content": "At the crossing."}]
    talk = memory.commit(CommitRequest(messages=[*TALK, *said], session_id="s1", now=NOW))
    assert talk.results[0].action in (Action.CREATED, Action.UPDATED)
    found = memory.find(FindRequest("zebra crossing 斑马线"))
    assert str(found.memories[0].uri) == noted.changed_uris[0]
    assert any("session/default/s1/messages.jsonl#" in hit.uri for hit in found.resources)
    assert "zebra" in memory.read(ReadRequest(found.memories[0].uri)).content
    assert "Where is the zebra?" in memory.read(ReadRequest("viking://session/default/s1/messages.jsonl")).content
    names = {entry.name for entry in memory.tree(TreeRequest(level_limit=6)).entries}
    assert "messages.jsonl" in names
    assert memory.ls(ListRequest("viking://user/default/memories")).entries
    for request in (RetrieveRequest("zebra crossing"), RetrieveRequest(session_id="new", query="zebra 斑马线")):
        assert "zebra" in memory.retrieve(request).text


@pytest.mark.parametrize("name", FEATURES.names)
def test_without_one_feature_everything_else_works(name: str, copy: Path, tmp_path: Path) -> None:
    features = FEATURES.without(name)
    with opened(copy, features) as memory:
        expect_served(memory)
        if "upkeep" in features.names:
            assert not [done.failure for done in memory.run(MAINTAIN, MaintainRequest(now=NOW)) if done.failure]
    with opened(tmp_path / "new", features) as memory:
        expect_served(memory)
    with opened(copy, FEATURES) as memory:  # and back again
        assert memory.find(FindRequest("zebra crossing")).memories
        assert not [done.failure for done in memory.run(MAINTAIN, MaintainRequest(now=NOW)) if done.failure]


def test_without_any_feature_a_store_commits_finds_and_reads(copy: Path, tmp_path: Path) -> None:
    for home in (copy, tmp_path / "new"):
        with opened(home, NO_FEATURES) as memory:
            expect_served(memory)


def test_what_is_searched_of_a_file_follows_the_features_of_the_store(copy: Path) -> None:
    def logs(features: Features) -> list[str]:
        with opened(copy, features) as memory:
            return [hit.uri for hit in memory.find(FindRequest("deploy", limit=50)).hits if "/logs/" in hit.uri]

    with opened(copy, FEATURES) as memory:
        memory.commit(CommitRequest("The deploy went well.", memory_type="daily_logs", now=NOW))
    entries = logs(FEATURES)
    assert all("#" in uri for uri in entries)
    assert logs(FEATURES.without("daily logs")) == [entries[0].partition("#")[0]]  # a file like any other
    assert logs(FEATURES) == entries


def test_a_server_serves_without_several_features(copy: Path) -> None:
    features = FEATURES
    for name in ("tiers", "upkeep", "undo", "redaction", "daily logs", "metrics", "history"):
        features = features.without(name)

    async def served() -> None:
        async with Client(build_server(lambda: opened(copy, features), features=features), mode="legacy") as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert len(tools) == 6
            assert "undo" not in tools["commit_memory"].input_schema["properties"]
            assert "forget" in tools["commit_memory"].input_schema["properties"]
            noted = await client.call_tool("commit_memory", {"memory_content": "The zebra crossing is closed."})
            assert not noted.is_error
            found = await client.call_tool("find", {"query": "zebra crossing"})
            assert found.structured_content is not None
            assert found.structured_content["total"] >= 1
            refused = await client.call_tool("commit_memory", {"undo": "last"})
            assert refused.is_error

    asyncio.run(served())


def test_what_a_slice_says_it_adds_is_what_its_feature_has() -> None:
    every = [field.name for field in dataclasses.fields(Feature)]
    for each in FEATURES.slices:
        feature = import_module(each.module).FEATURE
        has = {name for name in every if getattr(feature, name)} - {"commands", "commit_arguments"}
        assert has == set(each.adds), each.name
        assert {command.name.split()[0] for command in feature.commands} == set(each.words), each.name
        assert set(feature.commit_arguments) == {argument.name for argument in each.arguments}, each.name
