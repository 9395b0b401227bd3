"""What another client does between a look and the lock, or while a model thinks: nothing that went comes back by it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.config import ExtractionConfig
from memory_core.core.errors import MemoryChanged
from memory_core.core.llm.client import LLMRequest, Scripted, ScriptedLLM
from memory_core.core.memory.requests import CommitRequest
from memory_core.core.memory.results import Action, CommitReceipt, as_json
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.local import Plan, Store
from memory_core.features.export import Selection, export
from memory_core.features.forgetting import FORGET, ForgetRequest
from memory_core.features.import_export import import_export
from memory_core.features.purge import PURGE, PurgeRequest
from memory_core.features.review import ACCEPT, EDIT, REJECT, DecisionRequest, EditRequest, Proposal
from memory_core.features.review import waiting as waiting_proposals
from memory_core.features.upkeep.passes import MAINTAIN, MaintainRequest
from memory_core.runebook import Runebook, open_memory
from tests.contract.conftest import Place
from tests.stores import answer, body, edited, log_of, note, only, remember, said, write

PAGE = "viking://user/default/rolling_summary.md"
LEDGER = "The vermilion ledger is in the cellar, behind the third barrel."
HABITS = "Hides the key under the vermilion pot. Likes tea with lemon in the morning. Thinks of rivers."
SPOKEN = "The user hides the key under the vermilion pot and likes tea with lemon."


def thinking(place: Place, *answers: Scripted) -> Runebook:
    """A server with a model that gives these answers."""
    return open_memory(place.config(), llm=ScriptedLLM(answers))


def summed_up(*writes: dict[str, Any]) -> str:
    return json.dumps({**json.loads(answer(*writes)), "summary": LEDGER})


def held_up(monkeypatch: pytest.MonkeyPatch, store: Store, meanwhile: Callable[[], object]) -> None:
    """The next commit of a store comes to its lock only after something else was done."""
    waiting, commit = [meanwhile], store.commit

    def after(plan: Plan, **given: Any) -> CommitReceipt:
        if waiting:
            waiting.pop()()
        return commit(plan, **given)

    monkeypatch.setattr(store, "commit", after)


def first_of_all(monkeypatch: pytest.MonkeyPatch, store: Store, meanwhile: Callable[[], object]) -> None:
    """A store is held only after something else was done, once."""
    waiting, exclusive = [meanwhile], store.exclusive

    def after() -> AbstractContextManager[None]:
        if waiting:
            waiting.pop()()
        return exclusive()

    monkeypatch.setattr(store, "exclusive", after)


def maintained(memory: Runebook, *only: str) -> list[CommitReceipt]:
    done = list(memory.run(MAINTAIN, MaintainRequest(only=only)))
    assert all(each.failure is None for each in done)
    return [receipt for each in done for receipt in each.receipts]


def page(memory: Runebook) -> str:
    return memory.store.text(MemoryUri.parse(PAGE)) or ""


def receipts(memory: Runebook) -> list[tuple[str]]:
    return memory.store.ledger.database.connection().execute("SELECT receipt FROM commits").fetchall()


def test_what_was_purged_while_a_model_read_it_is_in_no_receipt(place: Place) -> None:
    other = place.open()

    def purged(_request: LLMRequest) -> str:
        other.run(PURGE, PurgeRequest(str(log_of())))
        return summed_up(write("notes", title="ledger", content=LEDGER))

    with thinking(place, purged) as memory:
        receipt = said(memory, LEDGER, request_id="r1")
    assert "vermilion" not in json.dumps(as_json(receipt))
    assert "vermilion" not in json.dumps(as_json(said(other, "Anything.", request_id="r1")))
    assert not any("vermilion" in text for (text,) in receipts(other))


def test_a_purge_leaves_the_receipts_before_it_as_it_cleared_them(place: Place) -> None:
    memory, other = place.open(), place.open()
    first = note(memory, "ledger", LEDGER, request_id="r1")
    other.run(PURGE, PurgeRequest(only(first).uri))
    memory.store.finish(first)
    later = note(memory, "barrel", "The third barrel leaks.", request_id="r2")
    memory.store.finish(CommitReceipt(later.commit_id, later.status, later.results, notes=("its final form",)))
    memory.close()
    assert only(note(other, "a", "b", request_id="r1")).uri != only(first).uri
    assert "its final form" in note(other, "a", "b", request_id="r2").notes


def test_a_model_s_words_of_a_message_that_was_forgotten_meanwhile_are_not_told(place: Place) -> None:
    other = place.open()

    def forgotten(_request: LLMRequest) -> str:
        uris = [f"{log_of()}#0"]
        other.run(FORGET, ForgetRequest(uris=uris, include_conversations=True, confirm=1))
        return summed_up(write("notes", title="ledger", content=LEDGER))

    with thinking(place, forgotten, answer(reasoning="nothing of weight")) as memory:
        receipt = said(memory, LEDGER, "The barrel leaks.", request_id="r1")
    assert receipt.commit_id
    assert "vermilion" not in json.dumps(as_json(receipt))
    assert "vermilion" not in json.dumps(as_json(said(other, "Anything.", request_id="r1")))


@pytest.mark.parametrize("change", ["forgotten", "forgotten in part", "changed again", "purged", "a commit purged"])
def test_a_model_that_was_shown_what_went_meanwhile_is_asked_again(place: Place, change: str) -> None:
    other = place.open()
    uri = remember(other, "Thinks of rivers.", "preferences", topic="alpha")
    told = edited(other, uri, {"patches": {"content": HABITS}})

    def gone(request: LLMRequest) -> str:
        assert "vermilion" in "".join(turn.text for turn in request.turns)
        if change in ("forgotten in part", "changed again"):
            other.run(FORGET, ForgetRequest("vermilion pot", confirm=1))
            if change == "changed again":
                edited(other, uri, {"patches": {"content": "Likes tea with lemon."}})
        elif change == "forgotten":
            other.run(FORGET, ForgetRequest(uris=[uri], confirm=1))
        else:
            other.run(PURGE, PurgeRequest(uri) if change == "purged" else PurgeRequest(commit=told.commit_id))
        return summed_up(write("notes", title="pot", content=SPOKEN))

    def again(request: LLMRequest) -> str:
        assert "vermilion" not in "".join(turn.text for turn in request.turns)
        return answer(write("notes", title="lemon", content="Likes tea."))

    with thinking(place, gone, again) as memory:
        receipt = said(memory, "I like tea with lemon in the morning, and think of rivers.")
        stored = memory.store.text(MemoryUri.parse("viking://user/default/memories/notes/pot.md"))
    assert stored is None
    assert "vermilion" not in json.dumps(as_json(receipt))
    assert body(other, "viking://user/default/memories/notes/lemon.md") == "Likes tea."


def test_a_model_that_was_shown_an_earlier_message_that_is_forgotten_meanwhile_is_asked_again(place: Place) -> None:
    other = place.open()

    def forgotten(request: LLMRequest) -> str:
        assert "vermilion" in "".join(turn.text for turn in request.turns)
        other.run(FORGET, ForgetRequest(uris=[f"{log_of()}#0"], confirm=1))
        return summed_up(write("notes", title="ledger", content=LEDGER))

    def again(request: LLMRequest) -> str:
        assert "vermilion" not in "".join(turn.text for turn in request.turns)
        return answer(write("notes", title="boat", content="The boat leaves at nine."))

    config = place.config(extraction=ExtractionConfig(every_exchanges=0))
    with open_memory(config, llm=ScriptedLLM([answer(reasoning="nothing of weight"), forgotten, again])) as memory:
        said(memory, LEDGER)
        receipt = said(memory, "The boat leaves at nine.")
    assert "vermilion" not in json.dumps(as_json(receipt))
    assert other.store.text(MemoryUri.parse("viking://user/default/memories/notes/ledger.md")) is None
    assert body(other, "viking://user/default/memories/notes/boat.md") == "The boat leaves at nine."


@pytest.mark.parametrize("change", ["forgotten", "edited", "at rest"])
def test_a_page_in_a_model_s_words_is_not_written_where_what_it_tells_changed(place: Place, change: str) -> None:
    other = place.open()
    uri = remember(other, HABITS, "preferences", topic="alpha")
    remember(other, "Wants short answers.", "preferences", topic="beta")
    maintained(other, "rolling_summary")
    assert "vermilion" in page(other)

    def changed(_request: LLMRequest) -> str:
        if change == "forgotten":
            for confirm in (None, 2):
                other.run(FORGET, ForgetRequest("vermilion pot", confirm=confirm))
        else:
            said_now: dict[str, Any] = (
                {"patches": {"content": "Likes tea."}} if change == "edited" else {"active": False}
            )
            edited(other, uri, said_now)
        return json.dumps({"summaries": [{"number": 1, "text": SPOKEN}]})

    with thinking(place, changed) as memory:
        maintained(memory, "overviews")
        assert SPOKEN not in page(memory)
        if change == "forgotten":
            assert "vermilion" not in page(memory)
        maintained(memory, "rolling_summary")
        assert "vermilion" not in page(memory)
        assert "beta" in page(memory)


@pytest.mark.parametrize("there", [False, True])
def test_a_page_is_not_made_of_what_went_before_the_lock(
    place: Place, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, other = place.open(), place.open()
    uri = remember(other, HABITS, "preferences", topic="alpha")
    if there:
        maintained(other, "rolling_summary")
        remember(other, "Reads in bed.", "preferences", topic="gamma")
    remember(other, "Wants short answers.", "preferences", topic="beta")
    held_up(monkeypatch, memory.store, lambda: other.run(FORGET, ForgetRequest(uris=[uri], confirm=1)))
    maintained(memory, "rolling_summary")
    assert "vermilion" not in page(memory)
    maintained(memory, "rolling_summary")
    assert "vermilion" not in page(memory)
    assert "Wants short answers" in body(memory, PAGE)


def test_a_message_that_comes_when_a_conversation_is_put_back_into_the_queue_is_counted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = place.open()
    said(other, "One.", "Two.")
    with thinking(place, answer(reasoning="nothing to keep")) as memory:
        first_of_all(monkeypatch, memory.store, lambda: said(other, "One.", "Two.", "Three."))
        (receipt,) = memory.extract_waiting("s1")
    row = other.store.ledger.extractions.get(log_of())
    assert row is not None
    assert (row.stored, row.extracted) == (3, 3), receipt


def test_a_message_that_comes_when_an_import_brings_its_conversation_waits(
    place: Place, folder: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = folder.open()
    said(there, "One.", "Two.", brief=True)
    there.commit(CommitRequest(operations={"reasoning": "nothing to keep"}, session_id="s1"))
    export(there, tmp_path / "all.jsonl", Selection(history=False))
    memory, other = place.open(), place.open()
    first_of_all(monkeypatch, memory.store, lambda: said(other, "One.", "Two.", "Three."))
    import_export(memory, tmp_path / "all.jsonl")
    row = other.store.ledger.extractions.get(log_of())
    assert row is not None
    assert (row.stored, row.extracted) == (3, 2)


def proposed(place: Place) -> tuple[Runebook, Proposal]:
    """Another server, and what a model proposed to its owner."""
    with open_memory(place.config(review="automatic"), llm=ScriptedLLM([answer(TEA)])) as memory:
        said(memory, "I only drink green tea now.")
    other = place.open(review="automatic")
    (proposal,) = waiting_proposals(other)
    return other, proposal


TEA = write("preferences", topic="Tea", content="Drinks only green tea.")


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("verdict", ["accept", "reject"])
def test_a_proposal_that_somebody_edited_meanwhile_is_not_decided_on(
    place: Place, verdict: str, seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, proposal = proposed(place)
    memory = place.open(review="automatic")
    edited_now = EditRequest(proposal.id, "Drinks only white tea.")
    expected = {str(proposal.uri): proposal.sha256} if seen else None
    if seen:
        other.run(EDIT, edited_now)
    else:
        held_up(monkeypatch, memory.store, lambda: other.run(EDIT, edited_now))
    decide = ACCEPT if verdict == "accept" else REJECT
    (receipt,) = memory.run(decide, DecisionRequest([proposal.id], expected=expected))
    assert (only(receipt).action, only(receipt).conflict) == (Action.REJECTED, True)
    (waits,) = waiting_proposals(memory)
    assert waits.texts == {"content": "Drinks only white tea."}
    (receipt,) = memory.run(decide, DecisionRequest([proposal.id], expected={str(waits.uri): waits.sha256}))
    assert receipt.commit_id
    assert waiting_proposals(memory) == []


@pytest.mark.parametrize("seen", [False, True])
def test_of_two_who_edit_a_proposal_at_once_the_second_is_told(
    place: Place, seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, proposal = proposed(place)
    memory = place.open(review="automatic")
    white, black = (EditRequest(proposal.id, f"Drinks only {colour} tea.") for colour in ("white", "black"))
    if seen:
        other.run(EDIT, white)
        black = replace(black, expected={str(proposal.uri): proposal.sha256})
    else:
        held_up(monkeypatch, memory.store, lambda: other.run(EDIT, white))
    with pytest.raises(MemoryChanged, match="somebody edited proposal"):
        memory.run(EDIT, black)
    (waits,) = waiting_proposals(memory)
    assert waits.texts == {"content": "Drinks only white tea."}
