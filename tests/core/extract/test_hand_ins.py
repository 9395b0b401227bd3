"""What a client's model hands in is held to the same care as what a person says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memory_core.core.memory.field_values import dated
from memory_core.core.memory.requests import CommitRequest
from memory_core.core.memory.results import Action, CommitReceipt
from memory_core.runebook import Runebook, open_memory
from tests.stores import added, body, handed_in, only, trailer, words_only, write

USER = "viking://user/default/memories"


def hand_in(memory: Runebook, memory_type: str, **fields: str) -> CommitReceipt:
    return handed_in(memory, write=[write(memory_type, **fields)])


@pytest.mark.parametrize(
    ("memory_type", "fields", "name"),
    [
        ("entities", {"name": "Lotus", "content": "Hosts it."}, "entities/Lotus"),
        ("preferences", {"subject": "咖啡", "content": "不加糖。"}, "preferences/咖啡"),
        ("events", {"title": "Moved", "date": "5 August 2023", "content": "To Graz."}, "events/2023-08-05_Moved"),
        ("tasks", {"名称": "报税", "content": "五月前。"}, "tasks/报税"),
    ],
)
def test_a_key_under_a_common_name_is_the_key(
    memory: Runebook, memory_type: str, fields: dict[str, str], name: str
) -> None:
    assert only(hand_in(memory, memory_type, **fields)).uri == f"{USER}/{name}.md"


def test_a_declared_field_is_never_taken_for_the_key(memory: Runebook) -> None:
    uri = only(hand_in(memory, "notes", title="T", content="x")).uri
    assert uri == f"{USER}/notes/T.md"
    assert only(hand_in(memory, "entities", entity_name="Lotus", name="Lily", content="x")).uri.endswith("/Lotus.md")


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        ("2023-08-05", "2023-08-05"),
        ("2023-08-05T10:30:00Z", "2023-08-05"),
        ("August 2023", "2023-08"),
        ("2023年8月", "2023-08"),
        ("in 2023", "2023"),
        ("2023-08-28 to 2023-09-03", "2023-08-28..2023-09-03"),
        ("the week of 28 August 2023", "2023-08-28..2023-09-03"),
        ("yesterday", "yesterday"),
        ("8月5日", "8月5日"),
        ("05/07/2023", "05/07/2023"),
        ("2024-02-30", "2024-02-30"),
        ("7 May 2023 to 5 May 2023", "7 May 2023 to 5 May 2023"),
        ("when Ines was born", "when Ines was born"),
    ],
)
def test_a_date_is_stored_in_one_form_or_left_as_it_is(said: str, stored: str) -> None:
    assert dated(said) == stored


def test_a_handed_in_date_that_is_none_is_refused_with_the_form_wanted(memory: Runebook) -> None:
    for none in ("last Tuesday", "2024-02-30", "2024-13", "2024-03-03..2024-02-26"):
        refused = only(hand_in(memory, "events", event_name="Moved", event_time=none, content="To Graz."))
        assert refused.action is Action.REJECTED
        assert "YYYY-MM-DD" in (refused.hint or "")
    week = only(hand_in(memory, "events", event_name="Fair", event_time="2024-02-26..2024-03-03", content="Sold out."))
    assert (week.action, week.uri) == (Action.CREATED, f"{USER}/events/2024-02-26..2024-03-03_Fair.md")
    said = CommitRequest("To Graz.", memory_type="events", fields={"event_name": "Moved", "event_time": "last Tuesday"})
    assert only(memory.commit(said)).action is Action.CREATED


def test_an_entity_that_is_the_owner_becomes_the_profile(memory: Runebook) -> None:
    added(memory, "profile", "My name is Evan Moss.")
    refused = hand_in(memory, "entities", name="Evan", content="Works as a baker.")
    assert "Evan is the owner" in refused.notes[0]
    assert only(refused).action is Action.REJECTED
    assert "My name is Evan Moss." in (only(refused).reason or "")
    taken = hand_in(memory, "entities", name="Evan", content="My name is Evan Moss. Works as a baker.")
    assert only(taken).uri == f"{USER}/profile.md"
    assert body(memory, f"{USER}/profile.md").endswith("Works as a baker.")
    assert only(hand_in(memory, "entities", name="Sam", content="A friend.")).uri == f"{USER}/entities/Sam.md"


def test_what_replaces_an_entity_that_is_the_owner_takes_nothing_from_the_profile(memory: Runebook) -> None:
    added(memory, "profile", "My name is Evan Moss. Born in Graz.")
    whole = {**write("entities", name="Evan", content="Works as a baker."), "replace": True}
    assert "Born in Graz." in (only(handed_in(memory, write=[whole])).reason or "")
    assert body(memory, f"{USER}/profile.md") == "My name is Evan Moss. Born in Graz."


def test_entities_without_a_key_are_handed_in_like_any_other_type(tmp_path: Path) -> None:
    types = tmp_path / "types"
    types.mkdir()
    (types / "entities.yaml").write_text(
        "name: entities\ndescription: Who is known.\ndirectory: viking://user/{user_space}/memories\n"
        "filename_template: known.md\nfields:\n  - {name: content, type: string, description: Text}\n",
        encoding="utf-8",
    )
    with open_memory(words_only(tmp_path / "home", schema_dirs=[str(types)])) as memory:
        assert only(handed_in(memory, write=[write("entities", content="Sam.")])).action is Action.CREATED


@pytest.mark.parametrize("standing", ["A friend.", "A friend.\nA friend.", "- A friend.\n- Plays chess.", "朋友。"])
def test_the_ready_edit_of_a_refusal_goes_through_as_it_stands(memory: Runebook, standing: str) -> None:
    uri = only(hand_in(memory, "entities", name="Sam", content=standing)).uri
    hint = only(hand_in(memory, "entities", name="Sam", content="Lives in Graz.")).hint or ""
    ready, _ = json.JSONDecoder().raw_decode(hint[hint.index("{") :])
    assert standing not in json.dumps(ready, ensure_ascii=False)
    assert only(memory.commit(CommitRequest(operations=ready))).action is Action.UPDATED
    assert body(memory, uri).startswith(standing)
    assert body(memory, uri).endswith("Lives in Graz.")


def test_what_a_handed_in_memory_is_like_is_named_whatever_its_type(memory: Runebook) -> None:
    hand_in(memory, "tasks", title="Show Sam basic exercises", content="Show Sam some basic stretching exercises.")
    receipt = hand_in(
        memory, "facts", topic="Sam's exercises", content="Show Sam stretching exercises, the basic ones."
    )
    assert [near.uri for near in receipt.similar] == [f"{USER}/tasks/Show Sam basic exercises.md"]
    assert trailer(memory, only(receipt).uri)["memory_type"] == "facts"
