"""A memory is dated by when it was said, also where that was long before it came into the store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from memory_core.core.memory.requests import CommitRequest, RetrieveRequest
from memory_core.features.upkeep.passes import MAINTAIN, MaintainRequest
from memory_core.runebook import Runebook
from tests.stores import only, trailer

#: The day of the import.
NOW = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)


def talk(memory: Runebook, session_id: str, *said: str, time: str | None) -> None:
    messages = [
        {"role": role, "content": text, **({} if time is None else {"time": time})}
        for text, role in zip(said, ("user", "assistant") * len(said), strict=False)
    ]
    memory.commit(CommitRequest(messages=messages, session_id=session_id, now=NOW))


def hand_in(memory: Runebook, session_id: str, topic: str, content: str, **more: Any) -> str:
    data = {"memory_type": "facts", "fields": {"topic": topic, "content": content}, **more}
    operations = {"reasoning": "told", "write_operations": [{"memory_data": data}]}
    return only(memory.commit(CommitRequest(operations=operations, session_id=session_id, now=NOW))).uri


def days(memory: Runebook, uri: str) -> tuple[str, str]:
    told = trailer(memory, uri)
    return told["created_at"][:10], told["updated_at"][:10]


def test_a_fact_of_an_old_conversation_has_its_day_and_so_has_what_replaced_it(memory: Runebook) -> None:
    talk(memory, "a", "我搬到了格拉茨 Graz。", "Nice.", time="2023-03-01T10:00:00+08:00")
    old = hand_in(memory, "a", "Home 家", "Lives in Graz.")
    talk(memory, "b", "I moved to Linz.", "Good luck.", time="2023-07-01T23:30:00-05:00")
    new = hand_in(memory, "b", "New home", "Lives in Linz.", links=[{"uri": old, "relation": "replaces"}])
    assert (days(memory, old), days(memory, new)) == (("2023-03-01",) * 2, ("2023-07-02",) * 2)
    assert trailer(memory, old)["links"][0]["at"][:10] == "2023-07-02"
    assert trailer(memory, old)["source"]["recorded_at"][:10] == "2026-11-22"
    text = memory.retrieve(RetrieveRequest("Graz home lives", now=NOW)).text
    assert "[replaced by a newer memory of 2023-07-02: Lives in Linz.]" in text
    assert text.index("Lives in Linz") < text.index("Lives in Graz")
    assert "2026-11-22" not in text


def test_an_old_conversation_makes_no_newer_memory_older(memory: Runebook) -> None:
    uri = only(memory.commit(CommitRequest("Drinks tea.", memory_type="preferences", now=NOW))).uri
    talk(memory, "a", "I used to drink coffee.", "Ah.", time="2023-03-01T10:00:00Z")
    edit = {"edit_operations": [{"uri": uri, "patches": {"content": "Drinks tea; drank coffee before."}}]}
    memory.commit(CommitRequest(operations=edit, session_id="a", now=NOW))
    assert days(memory, uri) == ("2026-11-22", "2026-11-22")


@pytest.mark.parametrize("time", [None, "2027-01-01T00:00:00Z"])
def test_what_is_undated_or_said_in_the_future_is_said_now(memory: Runebook, time: str | None) -> None:
    talk(memory, "a", "I live in Graz.", "Nice.", time=time)
    uri = hand_in(memory, "a", "Home", "Lives in Graz.")
    assert days(memory, uri) == ("2026-11-22", "2026-11-22")
    assert "recorded_at" not in trailer(memory, uri)["source"]


def test_what_was_just_recorded_is_not_put_away_for_its_age(memory: Runebook) -> None:
    talk(memory, "a", "Many things.", "Yes.", time="2023-03-01T10:00:00Z")
    uris = [hand_in(memory, "a", f"Thing {number}", f"The thing {number} stands there.") for number in range(4)]
    list(memory.run(MAINTAIN, MaintainRequest(only=["compression"], now=NOW)))
    assert [days(memory, uri)[0] for uri in uris] == ["2023-03-01"] * 4
