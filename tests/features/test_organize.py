"""Several memories are put in order in one commit: tags, pins, projects; what cannot be is refused alone."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from memory_core.core.errors import ContentRejected, InvalidInput
from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.core.memory.results import Action, ChangeSet, Status
from memory_core.core.store.local import Snapshot
from memory_core.features.organize import ORGANIZE, OrganizeRequest, tag_name
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.runebook import Runebook
from tests import stores
from tests.stores import only, trailer

TEA = "viking://user/default/memories/notes/Tea.md"


def note(memory: Runebook, title: str, content: str = "Said.", **more: Any) -> str:
    return only(stores.note(memory, title, content, **more)).uri


def test_tags_are_added_and_taken_away_and_one_undo_brings_all_back(memory: Runebook) -> None:
    tea, trip = note(memory, "Tea"), note(memory, "旅行")
    first = memory.run(ORGANIZE, OrganizeRequest([tea, trip], tags=["#家", " kitchen "], pinned=True))
    assert [result.uri for result in first.results] == [tea, trip]
    before = {uri: trailer(memory, uri) for uri in (tea, trip)}
    assert all(
        each["tags"] == ["家", "kitchen"] and each["pinned"] and each["version"] == 1 for each in before.values()
    )
    second = memory.run(ORGANIZE, OrganizeRequest([tea, trip], tags=["x"], untags=["家"], pinned=False))
    assert trailer(memory, tea)["tags"] == ["kitchen", "x"]
    assert "pinned" not in trailer(memory, tea)
    memory.run(UNDO, UndoRequest(second.commit_id))
    assert {uri: trailer(memory, uri) for uri in (tea, trip)} == before
    again = memory.run(ORGANIZE, OrganizeRequest([tea], tags=["kitchen"]))
    assert again.status is Status.UNCHANGED


def test_memories_move_to_a_project_but_never_onto_another(memory: Runebook) -> None:
    ours, theirs = note(memory, "Deploy"), note(memory, "Deploy", "Otherwise.", project="acme")
    tea = note(memory, "Tea")
    who = only(memory.commit(CommitRequest("Mei, engineer.", memory_type="profile"))).uri
    receipt = memory.run(
        ORGANIZE, OrganizeRequest([ours, tea, who, "viking://user/default/memories/notes/Gone.md"], project="acme")
    )
    assert [(each.action.value, bool(each.hint)) for each in receipt.results] == [
        ("rejected", True),
        ("updated", False),
        ("rejected", True),
        ("rejected", True),
    ]
    assert theirs in (receipt.results[0].reason or "")
    assert trailer(memory, tea)["project"] == "acme"
    # From now on it is that project's memory of this name.
    assert note(memory, "Tea", "More.", project="acme") == tea
    memory.run(ORGANIZE, OrganizeRequest([tea], project="global"))
    assert "project" not in trailer(memory, tea)


def test_what_is_private_to_a_project_stays_so_in_another_and_is_nobodys_without(memory: Runebook) -> None:
    uri = note(memory, "Secret plan", project="acme", private=True)
    memory.run(ORGANIZE, OrganizeRequest([uri], project="other"))
    assert trailer(memory, uri)["private"] is True
    memory.run(ORGANIZE, OrganizeRequest([uri], project="global"))
    assert "private" not in trailer(memory, uri)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (OrganizeRequest([], tags=["a"]), InvalidInput),
        (OrganizeRequest([TEA]), InvalidInput),
        (OrganizeRequest([TEA], tags=["#"]), InvalidInput),
        (OrganizeRequest([TEA], tags=["a\nb"]), InvalidInput),
        (OrganizeRequest([TEA], tags=["sk-ant-api03-" + "aB3dE" * 18]), ContentRejected),
    ],
)
def test_what_cannot_be_a_tag_or_says_nothing_is_refused(
    memory: Runebook, request_: OrganizeRequest, error: type[Exception]
) -> None:
    note(memory, "Tea")
    with pytest.raises(error):
        memory.run(ORGANIZE, request_)


def test_a_tag_is_written_in_one_form() -> None:
    assert tag_name(" #Cafe\u0301 ") == "Café"


def test_other_users_files_are_not_touched(memory: Runebook) -> None:
    view = memory.view("bob", "bob")
    uri = note(view, "Bob")
    receipt = memory.run(ORGANIZE, OrganizeRequest([uri], tags=["mine"]))
    assert only(receipt).reason
    assert "tags" not in trailer(view, uri)


def test_no_more_is_changed_at_once_than_others_should_wait_for(memory: Runebook) -> None:
    uris = [note(memory, f"Long {number}", "long text " * 26_000) for number in range(19)]
    results = memory.run(ORGANIZE, OrganizeRequest(uris, tags=["x"])).results
    changed = [result.uri for result in results if result.action is Action.UPDATED]
    assert 5 < len(changed) < 19
    assert changed == uris[: len(changed)]
    assert {result.action for result in results[len(changed) :]} == {Action.REJECTED}
    assert "another commit" in (results[18].hint or "")
    removed = {"delete_operations": [{"uri": uri} for uri in uris]}
    receipt = memory.commit(CommitRequest(operations=removed))
    assert 5 < [result.action for result in receipt.results].count(Action.DELETED) < 19


def test_while_a_dry_run_looks_at_many_memories_others_write(memory: Runebook) -> None:
    kept: list[str] = []

    def plan(_: Snapshot) -> ChangeSet:
        other = threading.Thread(target=lambda: kept.append(note(memory, "Meanwhile")))
        other.start()
        other.join(20)
        return ChangeSet((), ())

    assert memory.store.commit(plan, dry_run=True).status is Status.DRY_RUN
    assert len(kept) == 1


def test_a_memory_that_would_have_too_many_tags_is_refused_alone(memory: Runebook) -> None:
    tea, trip = note(memory, "Tea"), note(memory, "旅行")
    memory.run(ORGANIZE, OrganizeRequest([tea], tags=[f"t{number}" for number in range(100)]))
    receipt = memory.run(ORGANIZE, OrganizeRequest([tea, trip], tags=["one more"]))
    assert [result.action for result in receipt.results] == [Action.REJECTED, Action.UPDATED]
    assert receipt.results[0].hint == "A memory has at most 100, of 200 characters."


def test_a_refused_secret_is_told_by_the_argument_that_holds_it(memory: Runebook) -> None:
    tea, token = note(memory, "Tea"), "ghp_" + "aB3dE6gH9j" * 3 + "xYz012"
    with pytest.raises(ContentRejected, match=r"^tag holds"):
        memory.run(ORGANIZE, OrganizeRequest([tea], tags=["green", token]))
    with pytest.raises(ContentRejected, match=r"^project holds"):
        memory.run(ORGANIZE, OrganizeRequest([tea], project=token))


def test_tags_that_a_person_wrote_as_text_are_found_and_stay(memory: Runebook) -> None:
    trailer = '<!-- MEMORY_FIELDS\n{"title": "one", "memory_type": "notes", "tags": "alpha, #beta，茶"}\n-->\n'
    stores.by_hand(memory.config.root, "user/default/memories/notes/one.md", f"Shown.\n\n{trailer}")
    (hit,) = memory.find(FindRequest("beta")).memories
    memory.run(ORGANIZE, OrganizeRequest([hit.uri], pinned=True))
    assert stores.trailer(memory, hit.uri)["tags"] == ["alpha", "beta", "茶"]
