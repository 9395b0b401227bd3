"""The list of memories: what is private elsewhere, what is past its time, and what is looked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memory_core.core.config import Config
from memory_core.core.errors import InvalidInput
from memory_core.core.index.documents import memory_document
from memory_core.core.memory.memory import parse
from memory_core.core.memory.requests import FindRequest
from memory_core.core.memory.results import Action
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.search.memory_list import EntryFilter
from memory_core.runebook import Runebook, open_memory
from tests.stores import by_hand, handed_in, remember, words_only, written


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runebook]:
    settings = {"embedding": {"provider": "none"}, "maintenance": {"automatic": "off"}, "watch": "off"}
    config = Config.model_validate({"home": tmp_path_factory.mktemp("memory_list"), **settings})
    with open_memory(config) as opened:
        secret = "Lin's salary is secret 林的工资保密"
        remember(
            opened,
            secret,
            "facts",
            topic="Lin",
            project="acme",
            private=True,
            category="pay",
            metadata={"tags": ["pay"]},
        )
        remember(opened, "The build takes 20 minutes", "facts", project="acme")
        remember(opened, "码头三月关闭 The pier is closed", title="Pier", metadata={"expires_at": "2020-03-31"})
        remember(opened, "100% of _all_ [things]", title="Signs", priority="high")
        opened.indexer.follow(None)
        yield opened


def names(memory: Runebook, **wanted: object) -> list[str]:
    page = memory.entries(EntryFilter(sort="name", **wanted))  # type: ignore[arg-type]
    assert page.total == len(page.entries)
    return [entry.name for entry in page.entries]


def test_what_is_private_to_a_project_is_named_but_not_told(memory: Runebook) -> None:
    listed = {
        entry.project: entry for entry in memory.entries(EntryFilter(memory_type="facts")).entries if entry.private
    }
    assert listed["acme"].abstract == "private to another project"
    assert names(memory, words="保密") == []
    told = memory.entries(EntryFilter(project="acme", words="保密")).entries
    assert [entry.abstract for entry in told] == ["Lin's salary is secret 林的工资保密"]


@pytest.mark.parametrize("wanted", [{"tags": ("pay",)}, {"category": "pay"}])
def test_tags_and_category_of_what_is_private_elsewhere_find_nothing(
    memory: Runebook, wanted: dict[str, object]
) -> None:
    assert names(memory, **wanted) == []
    assert names(memory, project="acme", **wanted) == ["Lin"]


def test_what_is_past_its_time_is_not_in_use(memory: Runebook) -> None:
    assert names(memory, active=False) == ["Pier"]
    assert "Pier" not in names(memory, active=True)


@pytest.mark.parametrize("words", ["100%", "_all_", "[things]", "SIGNS", "码头"])
def test_words_are_looked_for_as_they_are(memory: Runebook, words: str) -> None:
    assert len(names(memory, words=words)) == 1


def test_words_and_tags_are_found_whatever_the_case_of_any_letter_and_in_the_line_that_is_shown(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        remember(memory, "Her sister lives in Österreich.", title="Ännchen", metadata={"tags": ["Übung"]})
        trailer = '<!-- MEMORY_FIELDS\n{"abstract": "Verreist im Frühling", "memory_type": "notes"}\n-->\n'
        by_hand(tmp_path, "user/default/memories/notes/Trip.md", f"To the sea.\n\n{trailer}")
        memory.indexer.follow(None)
        memory.store.adopt()
        memory.indexer.follow(None)
        for word in ("Österreich", "ÖSTERREICH", "ännchen"):
            assert names(memory, words=word) == ["Ännchen"], word
        assert names(memory, tags=["übung"]) == ["Ännchen"]
        assert names(memory, words="frühling SEA") == ["Trip"]


def test_words_that_are_signs_to_a_database_mean_themselves(memory: Runebook) -> None:
    assert names(memory, words="%") == ["Signs"]
    assert names(memory, words="' OR 1=1 --") == []


def test_decay_counts_from_the_last_change_or_use(memory: Runebook) -> None:
    later = datetime.now(UTC) + timedelta(days=14)
    (entry,) = memory.entries(EntryFilter(words="Signs"), later).entries
    assert entry.decay == pytest.approx(0.4966, abs=0.001)


def test_counts_are_of_what_is_listed(memory: Runebook) -> None:
    assert memory.memory_list.counts() == {"facts": 2, "notes": 2}


@pytest.mark.parametrize(
    "wrong", [{"limit": 0}, {"limit": 501}, {"offset": -1}, {"words": "x" * 501}, {"updated_after": "yesterday"}]
)
def test_filter_out_of_range_is_refused(memory: Runebook, wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        memory.entries(EntryFilter(**wrong))  # type: ignore[arg-type]


def test_a_list_shows_the_first_tags_and_finds_by_all(tmp_path: Path) -> None:
    tags = [f"tag {number:02} {'😀' * 93}" for number in range(9)]
    with open_memory(words_only(tmp_path)) as memory:
        fields = {"title": "gate", "content": "The gate is red."}
        (uri,) = written(memory, {"memory_type": "notes", "fields": fields, "tags": tags})
        (listed,) = memory.entries(EntryFilter(tags=(tags[8],))).entries
        assert listed.uri == uri
        assert list(listed.tags) == tags[:4]


def test_a_list_shows_so_much_of_a_name_and_a_category_and_the_whole_name_is_found(tmp_path: Path) -> None:
    block = json.dumps({"title": f"{'valve ' * 20_000}walrus", "memory_type": "notes", "category": "z" * 9_000})
    with open_memory(words_only(tmp_path)) as memory:
        text = f"{'Seven gulls feed here. ' * 2_000}\n\n<!-- MEMORY_FIELDS\n{block}\n-->\n"
        by_hand(tmp_path, "user/default/memories/notes/hand.md", text)
        (listed,) = memory.entries(EntryFilter()).entries
        assert (len(listed.name), len(listed.category or "")) == (500, 200)
        assert memory.find(FindRequest("walrus")).total == 1
        document = memory_document(parse(MemoryUri.parse(listed.uri), text, memory.registry))
        assert sum(map(len, document.passages)) < 300_000
        data = {"memory_type": "notes", "fields": {"title": "z" * 1_000, "content": "x"}, "category": "z" * 200}
        longer = ({**data, "category": "z" * 201}, {**data, "fields": {"title": "z" * 1_001, "content": "x"}})
        results = handed_in(memory, write=[{"memory_data": each} for each in (data, *longer)]).results
        assert [result.action for result in results] == [Action.CREATED, Action.REJECTED, Action.REJECTED]
        assert results[1].hint == "A label has at most 200."
        assert "1,001 characters; it names the memory, and has 1,000 at most" in str(results[2].reason)
