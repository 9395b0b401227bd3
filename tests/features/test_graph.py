"""Relations are made, changed and removed at both ends; memories, conversations and names make a graph."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from memory_core.core.errors import InvalidInput, NotFound
from memory_core.core.memory.requests import CommitRequest
from memory_core.core.memory.uri import MemoryUri
from memory_core.features.graph import GRAPH, RELATE, Graph, GraphRequest, RelateRequest
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.runebook import Runebook
from tests.stores import edited, entity, fact, note, only, said, trailer

if TYPE_CHECKING:
    from pathlib import Path

EARLY, LATE = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 6, 1, tzinfo=UTC)


@pytest.fixture
def offices(memory: Runebook) -> tuple[str, str]:
    """Where the office was, and where it is."""
    old = fact(memory, "Old floor", "The office is on the third floor.", now=EARLY)
    return old, fact(memory, "New floor", "It is on the 7th.", now=LATE)


def relations(memory: Runebook, uri: str) -> list[tuple[str, str, float]]:
    return [(each["uri"], each["relation"], each["strength"]) for each in trailer(memory, uri).get("links", [])]


def names(found: Graph) -> set[str]:
    return {node.name for node in found.nodes}


def drawn(found: Graph) -> set[tuple[str, str, str]]:
    called = {node.uri: node.name for node in found.nodes}
    return {(called[edge.source], edge.relation, called[edge.target]) for edge in found.edges}


def test_a_relation_is_made_changed_and_removed_at_both_ends(memory: Runebook, offices: tuple[str, str]) -> None:
    old, new = offices
    before = {uri: trailer(memory, uri) for uri in offices}
    made = memory.run(RELATE, RelateRequest(new, old, "contradicts", 0.8))
    assert relations(memory, old) == [(new, "contradicts", 0.8)]
    assert relations(memory, new) == [(old, "contradicts", 0.8)]
    assert trailer(memory, old)["confidence"] == 0.6
    memory.run(RELATE, RelateRequest(new, old, "replaces", 1.0, instead=" Contradicts"))
    assert relations(memory, new) == [(old, "replaces", 1.0)]
    assert relations(memory, old) == [(new, "replaced_by", 1.0)]
    removed = memory.run(RELATE, RelateRequest(new, old, "replaces", remove=True))
    assert relations(memory, old) == relations(memory, new) == []
    assert trailer(memory, old).get("confidence", 1.0) == 1.0
    assert [trailer(memory, uri)["version"] for uri in offices] == [before[uri]["version"] for uri in offices]
    memory.run(UNDO, UndoRequest(removed.commit_id))
    assert relations(memory, new) == [(old, "replaces", 1.0)]
    assert made.commit_id != removed.commit_id


def test_a_removed_contradiction_mends_the_memory_that_lost_though_it_was_edited_since(
    memory: Runebook, offices: tuple[str, str]
) -> None:
    old, new = offices
    memory.run(RELATE, RelateRequest(new, old, "contradicts", 0.5))
    assert trailer(memory, old)["confidence"] == 0.75
    edited(memory, old, {"patches": {"content": "The office was on the third floor."}}, now=LATE + timedelta(days=1))
    assert trailer(memory, old)["updated_at"] > trailer(memory, new)["updated_at"]
    memory.run(RELATE, RelateRequest(old, new, "contradicts", 1.0))
    assert [trailer(memory, uri).get("confidence", 1.0) for uri in offices] == [0.5, 1.0]
    memory.run(RELATE, RelateRequest(new, old, "contradicts", remove=True))
    assert [trailer(memory, uri).get("confidence", 1.0) for uri in offices] == [1.0, 1.0]
    assert relations(memory, old) == relations(memory, new) == []


def test_a_contradiction_of_before_the_mark_is_mended_at_the_older_memory(
    memory: Runebook, offices: tuple[str, str]
) -> None:
    old, new = offices
    memory.run(RELATE, RelateRequest(new, old, "contradicts", 0.5))
    file = memory.store.files.path_for(MemoryUri.parse(old))
    text = file.read_text(encoding="utf-8")
    unmarked = re.sub(r',\s*"lost": true', "", text)
    assert unmarked != text
    file.write_text(unmarked, encoding="utf-8", newline="\n")
    memory.run(RELATE, RelateRequest(new, old, "contradicts", remove=True))
    assert [trailer(memory, uri).get("confidence", 1.0) for uri in offices] == [1.0, 1.0]


def test_what_cannot_be_related_says_so_and_changes_nothing(memory: Runebook, offices: tuple[str, str]) -> None:
    old, new = offices
    asked = (
        RelateRequest(old, old),
        RelateRequest(old, "viking://user/default/memories/facts/Gone.md"),
        RelateRequest(old, new, "supports", remove=True),
        RelateRequest(old, new, "supports", instead="refines"),
        RelateRequest(old, "viking://user/bob/memories/facts/His.md"),
    )
    for request in asked:
        result = only(memory.run(RELATE, request))
        assert (result.action.value, bool(result.hint)) == ("rejected", True), request
    for wrong in (RelateRequest(old, new, "loves"), RelateRequest(old, new, strength=2.0)):
        with pytest.raises(InvalidInput):
            memory.run(RELATE, wrong)
    assert relations(memory, old) == []


def test_the_graph_holds_relations_names_and_conversations_once(memory: Runebook, offices: tuple[str, str]) -> None:
    old, new = offices
    memory.run(RELATE, RelateRequest(new, old, "contradicts"))
    entity(memory, "梅", "A colleague.")
    entity(memory, "Eas", "A town that no lease names.")
    entity(memory, "Mei Lin", "Works on Lantern.")
    note(memory, "Lease", "Ask MEI LIN about the lease.")
    said(memory, "I like oolong.", session_id="tea-talk")
    data: dict[str, Any] = {"memory_type": "preferences", "fields": {"topic": "Tea", "content": "Likes oolong."}}
    memory.commit(CommitRequest(operations={"write_operations": [{"memory_data": data}]}, session_id="tea-talk"))
    found = memory.run(GRAPH, GraphRequest())
    assert found.left_out == 0
    assert drawn(found) == {
        ("New floor", "contradicts", "Old floor"),
        ("Lease", "mentions", "Mei Lin"),
        ("Tea", "told in", "tea-talk"),
    }
    assert {node.type for node in found.nodes} == {"facts", "entities", "notes", "preferences", "conversation"}


def test_the_graph_is_filtered_by_type_and_time_and_walked_from_a_memory(
    memory: Runebook, offices: tuple[str, str]
) -> None:
    old, new = offices
    memory.run(RELATE, RelateRequest(new, old, "replaces"))
    tea = only(note(memory, "Tea", "Unrelated.", now=EARLY)).uri
    assert names(memory.run(GRAPH, GraphRequest(types=["notes"]))) == {"Tea"}
    assert names(memory.run(GRAPH, GraphRequest(after="2026-03-01"))) == {"New floor"}
    assert names(memory.run(GRAPH, GraphRequest(before="2026-03-01"))) == {"Old floor", "Tea"}
    assert names(memory.run(GRAPH, GraphRequest(around=old))) == {"Old floor", "New floor"}
    assert names(memory.run(GRAPH, GraphRequest(around=tea))) == {"Tea"}
    found = memory.run(GRAPH, GraphRequest(limit=2))
    assert (len(found.nodes), found.left_out) == (2, 1)
    with pytest.raises(NotFound):
        memory.run(GRAPH, GraphRequest(around="viking://user/default/memories/notes/Gone.md"))
    with pytest.raises(InvalidInput):
        memory.run(GRAPH, GraphRequest(limit=0))


def test_another_users_memories_and_what_is_private_to_a_project_are_no_nodes(memory: Runebook) -> None:
    note(memory.view("bob", "bob"), "His", "His.")
    note(memory, "Hush", "Hush.", project="acme", private=True)
    assert memory.run(GRAPH, GraphRequest()).nodes == ()


def test_a_file_that_cannot_be_read_is_a_node_without_relations(
    memory: Runebook, offices: tuple[str, str], tmp_path: Path
) -> None:
    old, new = offices
    memory.run(RELATE, RelateRequest(new, old))
    broken = tmp_path / "user" / "default" / "memories" / "facts" / "Old floor.md"
    broken.write_bytes("Café".encode("latin-1"))
    assert "New floor" in names(memory.run(GRAPH, GraphRequest()))
