"""Shared spaces: several users read and write one space beside their own, each with the rights they were given."""

from __future__ import annotations

import pytest

from memory_core.core.caller import authored
from memory_core.core.errors import AccessDenied, InvalidInput, NotFound
from memory_core.core.memory.requests import (
    CommitRequest,
    FindRequest,
    ListRequest,
    ReadRequest,
    RetrieveRequest,
    TreeRequest,
)
from memory_core.core.memory.results import Action
from memory_core.core.store.issued_tokens import SharedSpace
from memory_core.features.history import HISTORY, HistoryRequest
from memory_core.features.purge import PURGE, PurgeRequest
from memory_core.features.recall_trail import HOT, TRAIL, HotRequest, TrailRequest
from memory_core.features.upkeep.archive import ARCHIVE, ArchiveRequest
from memory_core.runebook import Runebook
from tests.contract.conftest import Place

TEAM = "viking://user/team/memories/notes/gate.md"
GATE = "The gate of the swordfish lab opens at seven."


def users(place: Place) -> tuple[Runebook, Runebook, Runebook]:
    """Anna writes in the team, Bob only reads there, Carl is not in it."""
    served = place.open()
    anna = served.view("anna", "anna", shared=[SharedSpace("team")])
    bob = served.view("bob", "bob", shared=[SharedSpace("team", read_only=True), SharedSpace("other")])
    return anna, bob, served.view("carl", "carl")


def told(anna: Runebook) -> str:
    """The id of Anna's commit to the team."""
    with authored("anna"):
        receipt = anna.commit(
            CommitRequest(GATE, memory_type="notes", fields={"title": "gate"}, space="team", request_id="r")
        )
    assert (receipt.space, receipt.author, receipt.results[0].uri) == ("team", "anna", TEAM)
    return receipt.commit_id


def test_operations_of_a_wrong_shape_are_refused_also_where_there_are_shared_spaces(place: Place) -> None:
    anna, _, _ = users(place)
    receipt = anna.commit(CommitRequest(operations={"delete_operations": [TEAM, 7, None]}))
    assert {result.action for result in receipt.results} == {Action.REJECTED}


def test_own_and_shared_memories_are_found_together_with_who_wrote_them(place: Place) -> None:
    anna, bob, _ = users(place)
    told(anna)
    bob.commit(CommitRequest("Bob feeds the swordfish.", memory_type="notes", fields={"title": "bob"}))
    found = bob.find(FindRequest("swordfish")).hits
    assert {(hit.uri.split("/")[3], hit.space, hit.author) for hit in found} == {
        ("team", "team", "anna"),
        ("bob", None, None),
    }
    only = bob.find(FindRequest("swordfish", target_uri="viking://user/team")).hits
    assert [hit.uri for hit in only] == [TEAM]
    assert len(bob.find(FindRequest("swordfish", limit=1)).hits) == 1
    assert "swordfish" in (page := bob.read(ReadRequest(TEAM))).content
    assert page.author == "anna"


def test_spaces_are_listed_together_above_and_alone_below(place: Place) -> None:
    anna, bob, _ = users(place)
    told(anna)
    bob.commit(CommitRequest("Bob feeds the swordfish.", memory_type="notes", fields={"title": "bob"}))
    tree = [entry.uri for entry in bob.tree(TreeRequest("viking://", level_limit=9)).entries]
    assert TEAM in tree
    assert "viking://user/bob/memories/notes/bob.md" in tree
    assert len(tree) == len(set(tree))
    named = [entry.name for entry in bob.ls(ListRequest("viking://user")).entries]
    assert sorted(named) == ["bob", "team"]
    assert [entry.uri for entry in bob.ls(ListRequest("viking://user/team/memories/notes")).entries] == [TEAM]
    cut = bob.tree(TreeRequest("viking://", level_limit=9, node_limit=2))
    assert (len(cut.entries), cut.left_out) == (2, len(tree) - 2)
    told_only = anna.ls(ListRequest("viking://user")).entries  # she has nothing of her own yet
    assert [entry.name for entry in told_only] == ["team"]


def test_context_recalls_shared_memories_and_their_rules(place: Place) -> None:
    anna, bob, carl = users(place)
    told(anna)
    rule = {"memory_type": "preferences", "fields": {"topic": "style"}, "metadata": {"pinned": True}}
    anna.commit(CommitRequest("Always answer the team in metres.", space="team", **rule))  # type: ignore[arg-type]
    pack = bob.retrieve(RetrieveRequest("when does the gate of the swordfish lab open?", session_id="s"))
    assert GATE in pack.text
    assert "metres" in pack.text
    again = bob.retrieve(RetrieveRequest("when does the gate of the swordfish lab open?", session_id="s"))
    assert GATE not in again.text
    assert carl.retrieve(RetrieveRequest("when does the gate of the swordfish lab open?")).text == ""


def test_history_says_who_wrote_in_a_shared_space(place: Place) -> None:
    anna, bob, carl = users(place)
    commit_id = told(anna)
    page = bob.read(ReadRequest("viking://history")).content
    assert "shared space team" in page
    assert f"{commit_id}  " in page
    assert "anna: " in page
    assert GATE in bob.read(ReadRequest(f"viking://history/{commit_id}")).content
    assert GATE in bob.read(ReadRequest("viking://history/user/team/memories/notes/gate.md")).content
    assert [commit.author for commit in bob.space("team").run(HISTORY, HistoryRequest())] == ["anna"]
    assert commit_id not in carl.read(ReadRequest("viking://history")).content
    for address in (commit_id, "user/team/memories/notes/gate.md"):
        with pytest.raises(NotFound):
            carl.read(ReadRequest(f"viking://history/{address}"))


def test_history_of_what_was_put_away_in_a_shared_space_is_read(place: Place) -> None:
    anna, bob, carl = users(place)
    told(anna)
    (put,) = anna.space("team").run(ARCHIVE, ArchiveRequest([TEAM])).results
    assert "viking://archive/user/team/memories/notes/gate.md" in (put.note or "")
    for address in ("archive/user/team/memories/notes/gate.md", "archive/user/team"):
        assert "archived" in bob.read(ReadRequest(f"viking://history/{address}")).content
        with pytest.raises(NotFound):
            carl.read(ReadRequest(f"viking://history/{address}"))


def test_who_is_no_member_sees_nothing_and_names_nothing(place: Place) -> None:
    anna, bob, carl = users(place)
    told(anna)
    assert carl.find(FindRequest("swordfish gate")).hits == ()
    seen = [entry.uri for entry in carl.tree(TreeRequest("viking://", level_limit=9)).entries]
    assert not [uri for uri in seen if "team" in uri]
    for user in (carl, bob.view("bob", "bob")):  # Bob, once the group is taken from him
        with pytest.raises(NotFound):
            user.read(ReadRequest(TEAM))
        with pytest.raises(NotFound):
            user.ls(ListRequest("viking://user/team"))
        with pytest.raises(NotFound):
            user.find(FindRequest("swordfish", target_uri="viking://user/team"))
        with pytest.raises(NotFound):
            user.commit(CommitRequest("A lie.", space="team"))
        with pytest.raises(NotFound):
            user.run(PURGE, PurgeRequest(TEAM))
        refused = user.commit(CommitRequest(operations={"delete_operations": [{"uri": TEAM}]}))
        assert refused.status == "rejected"
    assert anna.read(ReadRequest(TEAM)).content


def test_a_reader_of_a_shared_space_changes_nothing_there(place: Place) -> None:
    anna, bob, _ = users(place)
    commit_id = told(anna)
    edit = {"uri": TEAM, "patches": {"content": "Never."}}
    for request in (
        CommitRequest("A lie.", space="team"),
        CommitRequest(messages=[{"role": "user", "content": "A lie."}], session_id="s", space="team"),
        CommitRequest(operations={"edit_operations": [edit]}),
        CommitRequest(operations={"delete_operations": [{"uri": TEAM}]}),
        CommitRequest(alone={"undo": commit_id}, space="team"),
    ):
        with pytest.raises(AccessDenied):
            bob.commit(request)
    with pytest.raises(AccessDenied):
        bob.space("team").run(PURGE, PurgeRequest(TEAM))
    with pytest.raises(NotFound):
        bob.commit(CommitRequest(alone={"undo": commit_id}))
    assert GATE in anna.read(ReadRequest(TEAM)).content


def test_a_commit_changes_one_space_and_an_address_says_which(place: Place) -> None:
    anna, _, _ = users(place)
    told(anna)
    own = anna.commit(CommitRequest("Mine.", memory_type="notes", fields={"title": "mine"}))
    assert (own.space, own.author, own.results[0].uri) == (None, None, "viking://user/anna/memories/notes/mine.md")
    mine, ours = ({"uri": uri, "patches": {"content": "Both."}} for uri in (own.results[0].uri, TEAM))
    with pytest.raises(InvalidInput):
        anna.commit(CommitRequest(operations={"edit_operations": [mine, ours]}))
    edited = anna.commit(CommitRequest(operations={"edit_operations": [ours]}))
    assert (edited.status, edited.space) == ("committed", "team")
    undone = anna.commit(CommitRequest(alone={"undo": edited.commit_id}, space="team"))
    assert undone.status == "committed"
    assert GATE in anna.read(ReadRequest(TEAM)).content


def test_a_conversation_told_to_a_team_is_the_teams(place: Place) -> None:
    anna, bob, carl = users(place)
    said = [{"role": "user", "content": "The swordfish lab moves to the harbour."}]
    receipt = anna.commit(CommitRequest(messages=said, session_id="move", space="team", brief=True))
    assert 'space="team"' in " ".join(receipt.notes)
    data = {"memory_type": "notes", "fields": {"title": "move", "content": "The lab moves to the harbour."}}
    handed = anna.commit(
        CommitRequest(operations={"write_operations": [{"memory_data": data}]}, session_id="move", space="team")
    )
    assert handed.results[0].uri == "viking://user/team/memories/notes/move.md"
    assert {hit.uri.split("/")[2] for hit in bob.find(FindRequest("harbour")).hits} == {"session", "user"}
    assert carl.find(FindRequest("harbour")).total == 0


def test_request_ids_of_two_members_are_two_requests(place: Place) -> None:
    anna, _, _ = users(place)
    first = told(anna)
    dora = anna.view("dora", "dora", shared=[SharedSpace("team")])
    other = dora.commit(CommitRequest("Dora's.", memory_type="notes", space="team", request_id="r"))
    assert other.commit_id != first
    assert told(anna) == first


def test_what_one_member_asks_is_told_to_no_other(place: Place) -> None:
    anna, bob, _ = users(place)
    told(anna)
    anna.find(FindRequest("which swordfish lawyer is discreet?"))
    anna.retrieve(RetrieveRequest("does the swordfish show on my payslip?", session_id="annas"))
    for reader in (bob.space("team"), anna.space("team")):
        rows = reader.run(TRAIL, TrailRequest())
        assert {row.kind for row in rows} == {"find", "retrieve"}
        assert {uri for row in rows for uri, _ in row.hits} == {TEAM}
        assert {(row.query, row.session_id, row.project) for row in rows} == {("", None, None)}
    assert "lawyer" in " ".join(row.query for row in anna.run(TRAIL, TrailRequest()))
    assert bob.space("team").run(HOT, HotRequest())[0].access_count == 2


def test_a_user_who_may_only_read_reads_shared_spaces_only(place: Place) -> None:
    from memory_core.core.caller import Access

    anna, _, _ = users(place)
    told(anna)
    guest = anna.view("eve", "eve", Access.READ_ONLY, [SharedSpace("team")])
    assert guest.find(FindRequest("swordfish")).total == 1
    with pytest.raises(AccessDenied):
        guest.commit(CommitRequest("A lie.", space="team"))
