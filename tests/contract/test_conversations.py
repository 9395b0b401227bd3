"""Conversations: stored word for word, in the queue until somebody makes memories of them, taken by one at a time."""

from __future__ import annotations

from typing import Any

import pytest

from memory_core.core.errors import StoreBusy
from memory_core.core.memory.message import parse_lines
from memory_core.core.memory.requests import CommitRequest, FindRequest, ReadRequest, RetrieveRequest
from memory_core.core.memory.results import Status
from memory_core.core.memory.uri import MemoryUri
from memory_core.features.undo import UNDO, UndoRequest
from tests.contract.conftest import Place

SESSIONS = MemoryUri.parse("viking://session/default")
LOG = MemoryUri.parse("viking://session/default/s1/messages.jsonl")
BERLIN: dict[str, Any] = {
    "write_operations": [{"memory_data": {"memory_type": "notes", "fields": {"title": "home", "content": "Berlin."}}}]
}


def said(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user" if at % 2 == 0 else "assistant", "content": text} for at, text in enumerate(texts)]


def test_a_conversation_goes_on_on_another_server_and_nothing_is_stored_twice(place: Place) -> None:
    one, other = place.open(), place.open()
    first = said("I moved to Berlin.", "How is it there?")
    one.commit(CommitRequest(messages=first, session_id="s1"))
    other.commit(CommitRequest(messages=[*first, *said("Cold, and the lake is frozen.")], session_id="s1"))
    log = one.read(ReadRequest(str(LOG))).content
    assert [message.text for message in parse_lines(log)[0]] == [
        "I moved to Berlin.",
        "How is it there?",
        "Cold, and the lake is frozen.",
    ]
    assert other.read(ReadRequest(f"{LOG}#2")).content.rstrip("\n") == log.rstrip("\n").splitlines()[2]
    (hit,) = one.find(FindRequest("is the lake frozen?")).resources
    assert hit.uri == f"{LOG}#2"


def test_when_something_was_last_said_is_told_where_a_message_says_it(place: Place) -> None:
    memory = place.open()
    timed = [{**each, "time": f"2026-05-0{at}T09:00:00+08:00"} for at, each in enumerate(said("One.", "Two."), 1)]
    memory.commit(CommitRequest(messages=[*timed, *said("Three, whenever that was.")], session_id="s1"))
    memory.commit(CommitRequest(messages=said("Whenever."), session_id="s2"))
    memory.indexer.follow(None)
    other = str(LOG).replace("/s1/", "/s2/")
    assert memory.indexer.catalog.last_said([str(LOG), other]) == {str(LOG): "2026-05-02T01:00:00+00:00"}


def test_a_conversation_opens_with_what_the_user_says_after_the_greeting(place: Place) -> None:
    memory = place.open()
    talk = said("Hi!", "Hello.", "I moved to Berlin, and I look for a flat near the lake.", "Since when?")
    memory.commit(CommitRequest(messages=talk, session_id="s1"))
    memory.commit(CommitRequest(messages=said("Hi!", "Hello."), session_id="s2"))
    memory.indexer.follow(None)
    opening = memory.indexer.catalog.opening
    assert opening(str(LOG)) == "I moved to Berlin, and I look for a flat near the lake."
    assert opening(str(LOG).replace("/s1/", "/s2/")) == "Hi!"


def test_what_waits_is_handed_in_once_and_waits_again_when_that_is_undone(place: Place) -> None:
    one, other = place.open(), place.open()
    one.commit(CommitRequest(messages=said("I moved to Berlin."), session_id="s1", brief=True))
    (row,) = other.store.ledger.extractions.waiting(SESSIONS)
    assert (row.log, row.waiting) == (LOG, 1)
    handed_in = other.commit(CommitRequest(operations=BERLIN, session_id="s1"))
    assert handed_in.status is Status.COMMITTED
    assert one.store.ledger.extractions.waiting(SESSIONS) == []
    one.run(UNDO, UndoRequest(handed_in.commit_id))
    (row,) = other.store.ledger.extractions.waiting(SESSIONS)
    assert (row.waiting, row.reason) == (1, "its extraction was undone")
    assert "Berlin" in one.extractor.brief("s1")
    assert one.commit(CommitRequest(operations=BERLIN, session_id="s1")).status is Status.COMMITTED
    assert other.store.ledger.extractions.waiting(SESSIONS) == []


def test_one_server_at_a_time_works_on_a_conversation(place: Place) -> None:
    one, other = place.open(), place.open()
    with one.store.lock("extract-s1").held():
        for each in (one, other):
            with pytest.raises(StoreBusy), each.store.lock("extract-s1").held():
                pass
        with other.store.lock("extract-s2").held():
            pass
    with other.store.lock("extract-s1").held():
        pass


def test_context_is_given_once_a_session_whichever_server_is_asked(place: Place) -> None:
    one, other = place.open(), place.open()
    rule = CommitRequest("Answer in metric units.", memory_type="preferences", fields={"topic": "units"})
    one.commit(CommitRequest(**{**_given(rule), "metadata": {"pinned": True}}))
    one.commit(CommitRequest("The zebra lives in stable four.", memory_type="facts", fields={"topic": "zebra"}))
    first = other.retrieve(RetrieveRequest("where is the zebra?", session_id="s9"))
    assert "stable four" in first.text
    assert "metric units" in first.text
    again = one.retrieve(RetrieveRequest("where is the zebra?", session_id="s9"))
    assert "stable four" not in again.text
    assert "stable four" in one.retrieve(RetrieveRequest("where is the zebra?", session_id="s10")).text


def _given(request: CommitRequest) -> dict[str, Any]:
    return {"memory_content": request.memory_content, "memory_type": request.memory_type, "fields": request.fields}


def test_files_are_found_by_words_of_any_version(place: Place) -> None:
    memory = place.open()
    data = {"memory_type": "notes", "fields": {"title": "茶", "content": "Likes oolong."}}
    memory.commit(CommitRequest(messages=[{"role": "user", "content": "I like oolong."}], session_id="茶话"))
    memory.commit(CommitRequest(operations={"write_operations": [{"memory_data": data}]}, session_id="茶话"))
    memory.commit(CommitRequest("Other.", memory_type="notes", fields={"title": "Other"}))
    past = memory.store.ledger.past
    (uri,) = past.files_saying("viking://user/default/memories", '"session_id": "茶话"', 10)
    assert uri.endswith("/茶.md")
    assert past.files_saying("viking://user/default/memories", "nowhere", 10) == []
    assert past.files_saying("viking://user/other/memories", '"session_id": "茶话"', 10) == []
