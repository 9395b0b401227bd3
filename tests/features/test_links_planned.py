"""Relations: what a link does to confidence, who is named where, and that undo takes it back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memory_core.core.memory.requests import CommitRequest, ReadRequest
from memory_core.core.memory.results import Action, CommitReceipt, Status, as_json
from memory_core.core.memory.uri import MemoryUri
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.features.upkeep.archive import ARCHIVE, ArchiveRequest
from memory_core.runebook import Runebook, open_memory
from tests import stores
from tests.stores import edited, only, trailer, words_only

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runebook]:
    with open_memory(words_only(tmp_path_factory.mktemp("links"))) as opened:
        yield opened


def fact(memory: Runebook, topic: str, content: str, *, days: int = 9) -> str:
    return stores.fact(memory, topic, content, now=NOW - timedelta(days=days))


def linked(memory: Runebook, source: str, target: str, relation: str, strength: float = 0.5) -> CommitReceipt:
    link = {"uri": target, "relation": relation, "strength": strength}
    return edited(memory, source, {"links": [link]}, now=NOW)


def confidence(memory: Runebook, uri: str) -> float:
    return float(trailer(memory, uri)["confidence"])


@pytest.mark.parametrize(
    ("old", "new"),
    [("Deploys go out on Friday.", "Deploys go out on Monday."), ("每周五发布新版本。", "每周一发布新版本。")],
)
def test_a_contradicted_memory_is_trusted_less_and_support_gives_some_back(
    memory: Runebook, old: str, new: str
) -> None:
    older, newer = fact(memory, old[:9], old), fact(memory, new[:9] + "2", new, days=1)
    receipt = linked(memory, newer, older, "contradicts")
    assert receipt.status is Status.COMMITTED
    assert f"confidence of {older} 1 → 0.75" in (receipt.results[0].note or "")
    assert (confidence(memory, older), confidence(memory, newer)) == (0.75, 1.0)
    witness = fact(memory, old[:5] + " log", f"{old} It says so in the calendar. 日历上写着。", days=2)
    linked(memory, witness, older, "supports")
    assert confidence(memory, older) == pytest.approx(0.8125)


def test_the_same_link_again_is_no_new_evidence_and_another_strength_replaces_what_the_link_said(
    memory: Runebook,
) -> None:
    older, newer = fact(memory, "Gate", "The gate opens at 7."), fact(memory, "Gate now", "It opens at 8.", days=1)
    linked(memory, newer, older, "contradicts")
    version = trailer(memory, older)["version"]
    assert linked(memory, newer, older, "contradicts").status is Status.UNCHANGED
    assert confidence(memory, older) == 0.75
    linked(memory, newer, older, "contradicts", strength=1.0)
    assert confidence(memory, older) == 0.5
    linked(memory, newer, older, "contradicts", strength=0.0)
    assert confidence(memory, older) == 1.0
    assert trailer(memory, older)["version"] == version


def test_the_older_of_two_loses_whichever_of_them_the_link_is_written_at(memory: Runebook) -> None:
    older, newer = fact(memory, "Desk", "Sits by the door."), fact(memory, "Seat", "Sits by the window.", days=1)
    linked(memory, older, newer, "contradicts")
    assert (confidence(memory, older), confidence(memory, newer)) == (0.75, 1.0)


def test_links_that_say_neither_yes_nor_no_move_nothing(memory: Runebook) -> None:
    one, other = fact(memory, "Tea", "Drinks tea."), fact(memory, "Green tea", "Drinks green tea.", days=1)
    for relation in ("similar", "refines"):
        linked(memory, other, one, relation)
    assert (confidence(memory, one), confidence(memory, other)) == (1.0, 1.0)


def test_confidence_that_a_person_gave_is_where_evidence_begins_and_never_leaves_its_bounds(memory: Runebook) -> None:
    rumour = fact(memory, "Rumour", "The office moves to Lyon.")
    edited(memory, rumour, {"confidence": 0.2}, now=NOW - timedelta(days=8))
    for number in range(12):
        witness = fact(memory, f"Witness {number}", f"Letter number {number} says the office moves.", days=2)
        linked(memory, witness, rumour, "supports", strength=1.0)
        assert 0.2 < confidence(memory, rumour) <= 1.0
    assert confidence(memory, rumour) > 0.99


def test_undo_takes_one_piece_of_evidence_back_and_leaves_the_later_one(memory: Runebook) -> None:
    older = fact(memory, "Door", "The door code is 11.")
    first = linked(memory, fact(memory, "Door 2", "The code is 22.", days=3), older, "contradicts")
    linked(memory, fact(memory, "Door 3", "The code is 33.", days=2), older, "contradicts")
    assert confidence(memory, older) == 0.5625
    assert memory.run(UNDO, UndoRequest(first.commit_id)).status is Status.COMMITTED
    assert confidence(memory, older) == 0.75
    assert [link["uri"].rsplit("/", 1)[1] for link in trailer(memory, older)["links"]] == ["Door 3.md"]


def test_undo_of_a_memory_that_evidence_only_touched_removes_it(memory: Runebook) -> None:
    receipt = memory.commit(CommitRequest("The lift is slow.", memory_type="facts", fields={"topic": "Lift"}, now=NOW))
    newer = fact(memory, "Lift 2", "The lift is fast.", days=0)
    linked(memory, newer, receipt.results[0].uri, "contradicts")
    undone = memory.run(UNDO, UndoRequest(receipt.commit_id))
    assert [result.action for result in undone.results] == [Action.DELETED]


def test_a_memory_that_takes_another_in_has_the_mean_confidence_of_both(memory: Runebook) -> None:
    kept, gone = fact(memory, "Cat", "The cat is Tom."), fact(memory, "Cat 2", "The cat is called Tom.")
    memory.commit(CommitRequest(operations={"edit_operations": [{"uri": gone, "confidence": 0.6}]}, now=NOW))
    memory.commit(CommitRequest(operations={"delete_operations": [{"uri": gone, "replacement_uri": kept}]}, now=NOW))
    assert confidence(memory, kept) == 0.8


def test_a_memory_that_replaces_what_it_contradicted_is_not_trusted_less_for_it(memory: Runebook) -> None:
    older, newer = fact(memory, "Dog", "The dog is Rex."), fact(memory, "Dog 2", "The dog is Max.", days=1)
    linked(memory, newer, older, "contradicts")
    memory.commit(CommitRequest(operations={"delete_operations": [{"uri": older, "replacement_uri": newer}]}, now=NOW))
    assert confidence(memory, newer) == 1.0


def test_a_private_memory_neither_is_named_by_nor_weighs_on_one_that_everybody_sees(memory: Runebook) -> None:
    shared = fact(memory, "Party", "The party is on Friday.")
    data = {
        "memory_type": "cases",
        "fields": {"case_name": "Secret party", "content": "The party is on Monday."},
        "links": [{"uri": shared, "relation": "contradicts"}],
    }
    operations = {"write_operations": [{"memory_data": data}]}
    secret = only(memory.commit(CommitRequest(operations=operations, project="acme/lab", private=True, now=NOW))).uri
    assert confidence(memory, shared) == 1.0
    assert memory.read(ReadRequest(shared)).links == ()
    assert [link.uri for link in memory.read(ReadRequest(secret, here="acme/lab")).links] == [shared]


# Reading


def test_read_names_what_a_memory_relates_to_without_touching_its_text(memory: Runebook) -> None:
    older, newer = fact(memory, "住址", "住在成都。"), fact(memory, "新住址", "现在住在大阪。", days=1)
    linked(memory, newer, older, "replaces", strength=0.9)
    page = memory.read(ReadRequest(older))
    assert page.content == memory.store.text(MemoryUri.parse(older))
    (link,) = page.links
    assert (link.uri, link.relation, link.strength, link.state) == (newer, "replaced_by", 0.9, "in use")
    assert link.abstract == "现在住在大阪。"
    assert as_json(page)["links"][0]["uri"] == newer
    assert memory.read(ReadRequest(older, offset=1)).links == ()


def test_read_says_of_the_other_end_that_it_rests_is_archived_or_gone(memory: Runebook) -> None:
    holder = fact(memory, "Holder", "Names three others.")
    ends = [fact(memory, f"End {number}", f"End of link {number}.", days=1) for number in range(3)]
    for end in ends:
        linked(memory, end, holder, "refines")
    memory.commit(CommitRequest(operations={"edit_operations": [{"uri": ends[0], "active": False}]}, now=NOW))
    memory.run(ARCHIVE, ArchiveRequest([ends[1]], now=NOW))
    memory.commit(CommitRequest(operations={"delete_operations": [{"uri": ends[2]}]}, now=NOW))
    states = {
        link.uri.rsplit("/", 1)[1]: (link.state, link.abstract) for link in memory.read(ReadRequest(holder)).links
    }
    assert states == {
        "End 0.md": ("at rest", "End of link 0."),
        "End 1.md": ("archived", "End of link 1."),
        "End 2.md": ("gone", ""),
    }


def test_read_does_not_name_an_end_that_became_private_to_another_project(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        older = fact(memory, "Window", "The deploy window is on Friday.")
        fields = {"case_name": "Merger", "content": "The deploy window is on Monday."}
        data = {"memory_type": "cases", "fields": fields, "links": [{"uri": older, "relation": "contradicts"}]}
        memory.commit(CommitRequest(operations={"write_operations": [{"memory_data": data}]}, project="acme/lab"))
        assert len(memory.read(ReadRequest(older, here="acme/web")).links) == 1
        memory.commit(CommitRequest(memory_type="cases", fields=fields, project="acme/lab", private=True))
        assert memory.read(ReadRequest(older, here="acme/web")).links == ()
        assert len(memory.read(ReadRequest(older, here="acme/lab")).links) == 1
