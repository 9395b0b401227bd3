"""A memory's body follows its fields; what somebody wrote there stays, and the receipt says what it does not show."""

from __future__ import annotations

from memory_core.core.memory.requests import RetrieveRequest
from memory_core.core.memory.results import OperationResult
from memory_core.runebook import Runebook
from tests.stores import added, body, edit, edited_by_hand, handed_in, only, trailer


def case(memory: Runebook, **fields: str) -> str:
    return only(added(memory, "cases", case_name="Disk full 磁盘满", **fields)).uri


def edited(memory: Runebook, uri: str, **patches: str) -> OperationResult:
    return only(handed_in(memory, edit=[edit(uri, **patches)]))


def test_a_body_made_of_fields_follows_them(memory: Runebook) -> None:
    uri = case(memory, problem="No space left.", solution="清理缓存")
    edited(memory, uri, solution="Add a second disk.")
    assert body(memory, uri) == "No space left.\n\nAdd a second disk."
    assert "清理缓存" not in memory.retrieve(RetrieveRequest("disk full")).text
    case(memory, problem="Inodes ran out.")
    assert body(memory, uri) == "No space left.\nInodes ran out.\n\nAdd a second disk."
    edited(memory, uri, problem="Inodes ran out.")
    assert body(memory, uri) == "Inodes ran out.\n\nAdd a second disk."


def test_what_a_person_wrote_beside_the_fields_stays(memory: Runebook) -> None:
    uri = case(memory, problem="No space left.", solution="Prune the cache.")
    edited_by_hand(memory, uri, "Prune the cache.\n", "Prune the cache.\n\n每周一次。\n")
    memory.store.adopt()
    edited(memory, uri, solution="Add a second disk.")
    assert body(memory, uri) == "No space left.\n\nAdd a second disk.\n\n每周一次。"


def test_a_text_of_its_own_stays_and_what_changed_stands_below_it(memory: Runebook) -> None:
    own = "It was full; pruning helped. 清理有用。"
    uri = case(memory, problem="Full.", solution="Prune the cache.", content=own)
    result = edited(memory, uri, solution="Add a second disk.")
    assert body(memory, uri) == f"{own}\n\nAdd a second disk."
    assert "written on its own" in str(result.note)
    assert edited(memory, uri, solution="Rent a bigger one.").note is None
    assert body(memory, uri) == f"{own}\n\nRent a bigger one."
    both = {"solution": "Delete the logs.", "content": "It was full; we delete the logs."}
    assert edited(memory, uri, **both).note is None
    assert body(memory, uri) == both["content"]


def test_a_label_is_never_exchanged_inside_a_text(memory: Runebook) -> None:
    text = "Open an open account by 2026-05-01."
    uri = only(added(memory, "tasks", text, title="Account", state="open", due_date="2026-05-01")).uri
    assert edited(memory, uri, state="done", due_date="2026-06-01").note is None
    assert body(memory, uri) == "Open an open account by 2026-06-01."


def test_a_rendered_body_that_a_person_edited_stays_and_the_difference_is_reported(memory: Runebook) -> None:
    uri = only(added(memory, "tools", tool_name="t", best_for="maps")).uri
    edited_by_hand(memory, uri, "Best for: maps", "Best for: 地图 and routes")
    memory.store.adopt()
    result = edited(memory, uri, best_for="satellite pictures")
    assert "Best for: 地图 and routes" in body(memory, uri)
    assert result.note is not None
    assert "edited by hand" in result.note
    assert result.note.endswith(": best_for")
    assert trailer(memory, uri)["best_for"] == "satellite pictures"
