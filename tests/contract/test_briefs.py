"""Briefs about one conversation belong to their authors: what one hands in is judged by what that one was shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from memory_core.core.caller import authored
from memory_core.core.errors import InvalidInput, NotFound
from memory_core.core.memory.requests import CommitRequest, ReadRequest
from memory_core.core.memory.results import Action, CommitReceipt, Status
from memory_core.core.memory.uri import MemoryUri
from memory_core.features.forgetting import FORGET, ForgetRequest
from memory_core.features.purge import PURGE, PurgeRequest
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.runebook import Runebook
from tests.contract.conftest import Place

NOTES = "viking://user/default/memories/notes"
GATE, SHED = f"{NOTES}/gate.md", f"{NOTES}/shed key gate.md"
LOG = MemoryUri.parse("viking://session/default/s1/messages.jsonl")
ABOUT_GATE = ("About the gate and the shed key: the gate opens at eight now.", "It opens at eight.")
NOTHING = {"reasoning": "nothing is worth keeping"}


@pytest.fixture
def memory(place: Place) -> Runebook:
    """A store with two memories that everybody is shown."""
    memory = place.open()
    note(memory, "gate", "The gate opens at seven. The code is 1111 vermilion.")
    note(memory, "shed key gate", "The key of the shed is under the pot.")
    return memory


def note(memory: Runebook, title: str, content: str) -> None:
    memory.commit(CommitRequest(content, memory_type="notes", fields={"title": title}))


def whole(uri: str, content: str) -> dict[str, Any]:
    """Operations that replace the text of a memory."""
    return {"reasoning": "x", "edit_operations": [{"uri": uri, "patches": {"content": content}}]}


def said(memory: Runebook, author: str, *texts: str) -> str:
    """The brief of somebody who stores messages and asks for it."""
    messages = [{"role": "user" if at % 2 == 0 else "assistant", "content": text} for at, text in enumerate(texts)]
    with authored(author):
        return memory.commit(CommitRequest(messages=messages, session_id="s1", brief=True)).brief or ""


def briefed(memory: Runebook, author: str) -> str:
    with authored(author):
        return memory.commit(CommitRequest(session_id="s1", brief=True)).brief or ""


def answering(brief: str, operations: Mapping[str, Any]) -> dict[str, Any]:
    """Operations that name the brief as both of its calls do."""
    first, second = re.findall(r'"brief_id": "(\w+)"', brief)
    assert first == second
    return {"brief_id": first, **operations}


def handed_in(memory: Runebook, author: str, operations: Mapping[str, Any], **given: Any) -> CommitReceipt:
    with authored(author):
        return memory.commit(CommitRequest(operations=operations, session_id="s1", **given))


def waiting(memory: Runebook) -> int:
    row = memory.store.ledger.extractions.get(LOG)
    return 0 if row is None else row.waiting


def text(memory: Runebook, uri: str) -> str:
    return memory.read(ReadRequest(uri)).content


def expect_asked_again(memory: Runebook, receipt: CommitReceipt, author: str, why: str) -> None:
    """That a hand-in was refused whole, and that the new brief it names can be answered."""
    (result,) = receipt.results
    assert (receipt.status, result.op, result.uri) == (Status.REJECTED, "extraction", str(LOG))
    assert why in str(result.reason)
    assert 'commit_memory(brief=true, session_id="s1")' in str(result.hint)
    assert waiting(memory) > 0
    assert briefed(memory, author)
    assert handed_in(memory, author, NOTHING).status is Status.UNCHANGED
    assert waiting(memory) == 0


def test_a_brief_of_another_does_not_let_an_older_one_overwrite_what_came_between(memory: Runebook) -> None:
    assert "1111" in said(memory, "anna", *ABOUT_GATE)
    memory.commit(CommitRequest(operations=whole(GATE, "The code is 2222. Bring the blue key.")))
    assert "2222" in briefed(memory, "bob")
    receipt = handed_in(memory, "anna", whole(GATE, "The gate opens at eight. The code is 1111."))
    assert [result.conflict for result in receipt.results] == [True]
    assert "blue key" in text(memory, GATE)
    assert waiting(memory) == 2
    receipt = handed_in(memory, "bob", whole(GATE, "The code is 2222. Bring the blue key at eight."))
    assert receipt.status is Status.COMMITTED
    assert waiting(memory) == 0


def test_who_was_never_briefed_is_judged_by_the_first_of_the_open_briefs(memory: Runebook) -> None:
    said(memory, "anna", *ABOUT_GATE)
    memory.commit(CommitRequest(operations=whole(GATE, "The code is 2222. Bring the blue key.")))
    said(memory, "bob", *ABOUT_GATE, "The ferry leaves on pier nine.")
    receipt = handed_in(memory, "cleo", whole(GATE, "The gate opens at eight. The code is 1111."))
    assert [result.conflict for result in receipt.results] == [True]
    handed_in(memory, "cleo", NOTHING)
    assert waiting(memory) == 1


def test_messages_that_another_stored_wait_for_whoever_was_briefed_about_them(memory: Runebook) -> None:
    said(memory, "anna", "First about pandas.", "Second about pandas.")
    said(memory, "bob", "First about pandas.", "Second about pandas.", "The ferry leaves on pier nine.", "Noted.")
    handed_in(memory, "anna", NOTHING)
    assert waiting(memory) == 2
    handed_in(memory, "bob", NOTHING)
    assert waiting(memory) == 0


def test_an_answer_that_comes_late_is_judged_by_its_own_brief_and_moves_nothing(memory: Runebook) -> None:
    said(memory, "anna", *ABOUT_GATE)
    briefed(memory, "bob")
    handed_in(memory, "bob", whole(GATE, "The code is 2222. Bring the blue key."))
    assert waiting(memory) == 0
    note(memory, "lamp", "The lamp is green.")
    said(memory, "bob", *ABOUT_GATE, "The lamp is red now.")
    receipt = handed_in(memory, "anna", whole(GATE, "The gate opens at eight. The code is 1111."))
    assert [result.conflict for result in receipt.results] == [True]
    assert waiting(memory) == 1
    assert handed_in(memory, "anna", whole(SHED, "Mr Holm has the key.")).status is Status.COMMITTED
    assert waiting(memory) == 1
    memory.run(FORGET, ForgetRequest(uris=[f"{LOG}#1"], include_conversations=True, confirm=1))
    expect_asked_again(memory, handed_in(memory, "anna", whole(SHED, "Mrs Holm has it.")), "anna", "changed since")


def test_an_answer_takes_no_message_that_waits_again_and_was_not_in_its_brief(memory: Runebook) -> None:
    said(memory, "anna", *ABOUT_GATE)
    answered = handed_in(memory, "anna", whole(GATE, "The gate opens at eight."))
    said(memory, "bob", *ABOUT_GATE, "The ferry leaves on pier nine.")
    memory.run(UNDO, UndoRequest(answered.commit_id))
    assert waiting(memory) == 3
    assert handed_in(memory, "bob", whole(SHED, "Mr Holm has the key.")).status is Status.COMMITTED
    assert waiting(memory) == 3


def test_one_client_asks_with_each_message_and_hands_in_once(memory: Runebook) -> None:
    texts = [*ABOUT_GATE, "The ferry leaves on pier nine.", "Noted."]
    for end in (1, 2, 3, 4):
        said(memory, "anna", *texts[:end])
    operations = whole(GATE, "The gate opens at eight. The code is 1111.")
    assert handed_in(memory, "anna", operations).status is Status.COMMITTED
    assert waiting(memory) == 0
    assert handed_in(memory, "anna", operations).results[0].action is Action.UNCHANGED


def test_two_clients_work_one_after_the_other(memory: Runebook) -> None:
    said(memory, "anna", *ABOUT_GATE)
    assert handed_in(memory, "anna", whole(GATE, "The gate opens at eight.")).status is Status.COMMITTED
    said(memory, "bob", *ABOUT_GATE, "The gate opens at nine, I hear.")
    assert handed_in(memory, "bob", whole(GATE, "The gate opens at nine.")).status is Status.COMMITTED
    said(memory, "anna", *ABOUT_GATE, "The gate opens at nine, I hear.", "At ten.")
    assert handed_in(memory, "anna", whole(GATE, "The gate opens at ten.")).status is Status.COMMITTED
    assert waiting(memory) == 0


def test_what_was_forgotten_does_not_come_back_by_an_answer_to_an_older_brief(memory: Runebook) -> None:
    said(memory, "anna", "The hint of the safe is zanzibar-lemon.", "Noted.", "And the ferry leaves on pier nine.")
    memory.run(FORGET, ForgetRequest(uris=[f"{LOG}#1"], include_conversations=True, confirm=1))
    data = {"memory_type": "notes", "fields": {"title": "safe", "content": "The hint is zanzibar-lemon."}}
    receipt = handed_in(memory, "anna", {"write_operations": [{"memory_data": data}]})
    with pytest.raises(NotFound):
        text(memory, f"{NOTES}/safe.md")
    expect_asked_again(memory, receipt, "anna", "changed since")


def test_a_message_that_is_forgotten_between_reading_and_committing_is_noticed(
    memory: Runebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    said(memory, "anna", "The hint of the safe is zanzibar-lemon.", "Noted.", "And the ferry leaves on pier nine.")
    commit = memory.store.commit

    def forgotten_first(*args: Any, **given: Any) -> CommitReceipt:
        monkeypatch.setattr(memory.store, "commit", commit)
        memory.run(FORGET, ForgetRequest(uris=[f"{LOG}#1"], include_conversations=True, confirm=1))
        return commit(*args, **given)

    monkeypatch.setattr(memory.store, "commit", forgotten_first)
    expect_asked_again(memory, handed_in(memory, "anna", NOTHING), "anna", "changed since")


def test_a_memory_that_is_purged_between_reading_and_committing_is_noticed(
    memory: Runebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    brief = said(memory, "anna", *ABOUT_GATE)
    commit = memory.store.commit

    def purged_first(*args: Any, **given: Any) -> CommitReceipt:
        monkeypatch.setattr(memory.store, "commit", commit)
        memory.run(PURGE, PurgeRequest(GATE))
        return commit(*args, **given)

    monkeypatch.setattr(memory.store, "commit", purged_first)
    data = {"memory_type": "notes", "fields": {"title": "gate", "content": "The code is 1111 vermilion."}}
    receipt = handed_in(memory, "anna", answering(brief, {"write_operations": [{"memory_data": data}]}))
    with pytest.raises(NotFound):
        text(memory, GATE)
    expect_asked_again(memory, receipt, "anna", "erased")


def test_an_answer_that_another_overtook_between_reading_and_committing_moves_the_queue_on(
    memory: Runebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    said(memory, "bob", *ABOUT_GATE)
    said(memory, "anna", *ABOUT_GATE, "The ferry leaves on pier nine.")
    commit = memory.store.commit

    def other_first(*args: Any, **given: Any) -> CommitReceipt:
        monkeypatch.setattr(memory.store, "commit", commit)
        handed_in(memory, "bob", NOTHING)
        assert waiting(memory) == 1
        return commit(*args, **given)

    monkeypatch.setattr(memory.store, "commit", other_first)
    assert handed_in(memory, "anna", whole(SHED, "Mr Holm has the key.")).status is Status.COMMITTED
    assert waiting(memory) == 0


def test_other_messages_under_the_name_of_an_undone_conversation_wait(memory: Runebook) -> None:
    said(memory, "anna", "x1 one", "x2 two")
    newest = memory.store.ledger.past.commits(["session/default"], limit=1)[0].commit_id
    memory.run(UNDO, UndoRequest(newest))
    memory.commit(CommitRequest(messages=[{"role": "user", "content": "The dentist moved."}] * 2, session_id="s1"))
    expect_asked_again(memory, handed_in(memory, "anna", NOTHING), "anna", "changed since")


def test_a_purge_withdraws_the_briefs_that_showed_the_file_and_no_others(memory: Runebook) -> None:
    brief = said(memory, "anna", *ABOUT_GATE)
    assert "vermilion" in brief
    assert "under the pot" in brief
    memory.commit(CommitRequest(operations=whole(SHED, "The key of the shed is with Mr Holm.")))
    memory.run(PURGE, PurgeRequest(GATE))
    briefed(memory, "bob")
    again = {"memory_type": "notes", "fields": {"title": "gate", "content": "The code is 1111 vermilion."}}
    operations = whole(SHED, "It is under the pot, as ever.") | {"write_operations": [{"memory_data": again}]}
    receipt = handed_in(memory, "anna", operations)
    assert "Mr Holm" in text(memory, SHED)
    with pytest.raises(NotFound):
        text(memory, GATE)
    assert handed_in(memory, "anna", NOTHING).status is Status.REJECTED
    assert GATE not in str(memory.store.ledger.extractions.get(LOG))
    assert handed_in(memory, "bob", whole(SHED, "Mr Holm has the key.")).status is Status.COMMITTED
    (result,) = receipt.results
    assert (receipt.status, result.op) == (Status.REJECTED, "extraction")
    assert "erased" in str(result.reason)


def test_a_purge_of_a_commit_withdraws_the_briefs_that_showed_its_text_and_no_others(memory: Runebook) -> None:
    added = memory.commit(CommitRequest(operations=whole(GATE, "The gate opens at seven. The code is 2222 crimson.")))
    assert "crimson" in said(memory, "anna", *ABOUT_GATE)
    memory.run(UNDO, UndoRequest(added.commit_id))
    assert "crimson" not in briefed(memory, "bob")
    memory.run(PURGE, PurgeRequest(commit=added.commit_id))
    receipt = handed_in(memory, "bob", whole(SHED, "Mr Holm has the key."))
    assert receipt.status is Status.COMMITTED
    (result,) = handed_in(memory, "anna", whole(SHED, "It is beside the crimson pot.")).results
    assert "erased" in str(result.reason)


def test_after_a_purge_the_brief_is_asked_for_again_and_answered(memory: Runebook) -> None:
    said(memory, "anna", *ABOUT_GATE)
    memory.run(PURGE, PurgeRequest(GATE))
    expect_asked_again(memory, handed_in(memory, "anna", NOTHING), "anna", "erased")


def test_a_purge_leaves_the_check_of_what_else_an_answered_brief_showed(memory: Runebook) -> None:
    said(memory, "anna", *ABOUT_GATE)
    handed_in(memory, "anna", NOTHING)
    memory.commit(CommitRequest(operations=whole(SHED, "The key of the shed is with Mr Holm.")))
    memory.run(PURGE, PurgeRequest(GATE))
    assert GATE not in str(memory.store.ledger.extractions.get(LOG))
    receipt = handed_in(memory, "anna", whole(SHED, "It is under the pot, as ever."))
    assert [result.conflict for result in receipt.results] == [True]


def test_a_retry_of_an_answer_gets_the_first_receipt_whatever_was_erased_since(memory: Runebook) -> None:
    said(memory, "anna", *ABOUT_GATE)
    operations = whole(SHED, "Mr Holm has the key.")
    first = handed_in(memory, "anna", operations, request_id="r")
    said(memory, "anna", *ABOUT_GATE, "The gate is red.")
    memory.run(PURGE, PurgeRequest(GATE))
    assert handed_in(memory, "anna", operations, request_id="r").commit_id == first.commit_id


def test_two_windows_of_one_client_are_each_judged_by_the_brief_that_they_name(memory: Runebook) -> None:
    first = said(memory, "anna", *ABOUT_GATE)
    memory.commit(CommitRequest(operations=whole(GATE, "The code is 2222. Bring the blue key.")))
    second = briefed(memory, "anna")
    assert "2222" in second
    receipt = handed_in(memory, "anna", answering(first, whole(GATE, "The gate opens at eight. The code is 1111.")))
    assert [result.conflict for result in receipt.results] == [True]
    assert "blue key" in text(memory, GATE)
    assert waiting(memory) == 2
    operations = whole(GATE, "The code is 2222. Bring the blue key at eight.")
    assert handed_in(memory, "anna", answering(second, operations)).status is Status.COMMITTED
    assert waiting(memory) == 0
    receipt = handed_in(memory, "anna", answering(first, whole(GATE, "The code is 1111.")))
    assert [result.conflict for result in receipt.results] == [True]


def test_what_a_second_window_stored_waits_for_the_answer_to_its_own_brief(memory: Runebook) -> None:
    first = said(memory, "anna", "First about pandas.", "Second about pandas.")
    second = said(memory, "anna", "First about pandas.", "Second about pandas.", "The ferry is red.", "Noted.")
    handed_in(memory, "anna", answering(first, NOTHING))
    assert waiting(memory) == 2
    assert handed_in(memory, "anna", answering(first, NOTHING)).status is Status.UNCHANGED
    assert waiting(memory) == 2
    handed_in(memory, "anna", answering(second, NOTHING))
    assert waiting(memory) == 0


@pytest.mark.parametrize("named", [True, False], ids=["by its id", "by its author"])
def test_one_client_answers_the_last_of_many_briefs(memory: Runebook, named: bool) -> None:
    texts = [*ABOUT_GATE, "The ferry leaves on pier nine.", "Noted.", "It is red.", "Noted, too."]
    briefs = [said(memory, "anna", *texts[:end]) for end in range(1, 7)]
    operations = whole(GATE, "The gate opens at eight. The code is 1111.")
    operations = answering(briefs[-1], operations) if named else operations
    assert handed_in(memory, "anna", operations).status is Status.COMMITTED
    assert waiting(memory) == 0
    assert handed_in(memory, "anna", operations).results[0].action is Action.UNCHANGED


@pytest.mark.parametrize("named", [True, False], ids=["by its id", "by its author"])
@pytest.mark.parametrize(
    ("others", "is_kept"),
    [
        ([f"client {number}" for number in range(9)], True),
        ([f"dan (client {number})" for number in range(40)], True),
        ([f"client {number}" for number in range(32)], False),
        ([f"anna (client {number})" for number in range(4)], False),
    ],
    ids=["nine", "one token", "very many", "the same token"],
)
def test_the_briefs_of_others_never_judge_whoever_had_one(
    memory: Runebook, others: list[str], named: bool, is_kept: bool
) -> None:
    brief = said(memory, "anna", *ABOUT_GATE)
    memory.commit(CommitRequest(operations=whole(GATE, "The code is 2222. Bring the blue key.")))
    for other in others:
        assert "2222" in briefed(memory, other)
    operations = whole(GATE, "The gate opens at eight. The code is 1111.")
    receipt = handed_in(memory, "anna", answering(brief, operations) if named else operations)
    assert "blue key" in text(memory, GATE)
    if is_kept:
        assert [result.conflict for result in receipt.results] == [True]
    else:
        expect_asked_again(memory, receipt, "anna", "not among those that are kept")


def test_whose_brief_was_pushed_out_is_refused_also_after_another_answered(memory: Runebook) -> None:
    said(memory, "anna (a)", *ABOUT_GATE)
    memory.commit(CommitRequest(operations=whole(GATE, "The code is 2222. Bring the blue key.")))
    for _ in range(4):
        briefed(memory, "anna (b)")
    handed_in(memory, "anna (b)", NOTHING)
    assert waiting(memory) == 0
    receipt = handed_in(memory, "anna (a)", whole(GATE, "The code is 1111."))
    assert receipt.status is Status.REJECTED
    assert "blue key" in text(memory, GATE)


def test_a_brief_that_a_purge_withdrew_stays_so_when_others_ask(memory: Runebook) -> None:
    said(memory, "anna", *ABOUT_GATE)
    memory.commit(CommitRequest(operations=whole(SHED, "The key of the shed is with Mr Holm.")))
    memory.run(PURGE, PurgeRequest(GATE))
    for number in range(9):
        briefed(memory, f"client {number}")
    again = {"memory_type": "notes", "fields": {"title": "gate", "content": "The code is 1111 vermilion."}}
    operations = whole(SHED, "It is under the pot, as ever.") | {"write_operations": [{"memory_data": again}]}
    expect_asked_again(memory, handed_in(memory, "anna", operations), "anna", "erased")
    assert "Mr Holm" in text(memory, SHED)
    with pytest.raises(NotFound):
        text(memory, GATE)


def test_an_id_of_no_brief_of_the_conversation_is_refused(memory: Runebook) -> None:
    said(memory, "anna", *ABOUT_GATE)
    with authored("anna"):
        other = memory.commit(CommitRequest(messages=[{"role": "user", "content": "x"}], session_id="s2", brief=True))
    for operations in (answering(other.brief or "", NOTHING), {"brief_id": "nobody", **NOTHING}):
        receipt = handed_in(memory, "anna", operations)
        assert receipt.status is Status.REJECTED
        assert waiting(memory) == 2
    expect_asked_again(memory, receipt, "anna", "not among those that are kept")


def test_an_id_is_refused_where_its_conversation_is_gone_or_not_named(memory: Runebook) -> None:
    brief = said(memory, "anna", "The hint of the safe is zanzibar-lemon.", "Noted.")
    data = {"memory_type": "notes", "fields": {"title": "safe", "content": "The hint is zanzibar-lemon."}}
    operations = answering(brief, {"write_operations": [{"memory_data": data}]})
    with pytest.raises(InvalidInput, match="session_id"):
        memory.commit(CommitRequest(operations=operations))
    memory.run(PURGE, PurgeRequest(str(LOG)))
    assert handed_in(memory, "anna", operations).status is Status.REJECTED
    with pytest.raises(NotFound):
        text(memory, f"{NOTES}/safe.md")


def test_a_brief_of_which_no_note_is_kept_has_no_id(memory: Runebook) -> None:
    said(memory, "anna", *ABOUT_GATE)
    shown = memory.commit(CommitRequest(session_id="s1", brief=True, dry_run=True)).brief or ""
    assert 'session_id="s1"' in shown
    assert "brief_id" not in shown


def test_a_blank_id_is_none(memory: Runebook) -> None:
    said(memory, "anna", *ABOUT_GATE)
    assert handed_in(memory, "anna", {"brief_id": " ", **NOTHING}).status is Status.UNCHANGED
    assert waiting(memory) == 0
