"""Read actions: bounded, answered once, and blind to what is not the user's."""

from __future__ import annotations

from typing import Any

import pytest

from memory_core.core.extract import read_actions
from memory_core.core.extract.read_actions import ACTIONS_PER_ROUND
from memory_core.core.memory.operations import ReadAction
from memory_core.core.memory.results import text_sha256
from memory_core.core.text.tokens import count_tokens
from tests.core.extract.stage import USER, Stage
from tests.stores import added, by_hand


def action(kind: str, **params: Any) -> ReadAction:
    return ReadAction.model_validate({"action_type": kind, "params": params})


@pytest.fixture
def filled(stage: Stage) -> Stage:
    added(stage.memory, "preferences", "Flat white with oat milk.", topic="Coffee")
    added(stage.memory, "facts", "对花生过敏。", topic="过敏")
    added(stage.memory, "notes", "line 行\n" * 900, title="Long")
    return stage


def run(stage: Stage, *actions: ReadAction, budget: int = 1_000, answered: frozenset[str] = frozenset()) -> Any:
    readings, notes = read_actions.run(stage.view, actions, budget, answered)
    assert sum(count_tokens(reading.text) for reading in readings) <= budget
    return readings, notes


def test_a_memory_that_is_read_whole_counts_as_seen(filled: Stage) -> None:
    ((reading,), _) = run(filled, action("read", uri=f"{USER}/preferences/Coffee.md/"))
    assert "- content: Flat white with oat milk." in reading.text
    assert reading.uri == f"{USER}/preferences/Coffee.md"
    assert reading.sha256 == text_sha256(filled.view.text(reading.uri) or "")


def test_a_long_memory_is_cut_and_can_be_read_on(filled: Stage) -> None:
    ((whole,), _) = run(filled, action("read", uri=f"{USER}/notes/Long.md"))
    assert "its beginning only" in whole.text
    assert whole.sha256 is None
    ((part,), _) = run(filled, action("read", uri=f"{USER}/notes/Long.md", offset=400), budget=200)
    assert "lines 400 to" in part.text
    assert "go on with offset" in part.text
    assert part.sha256 is None


def test_lines_that_are_read_are_counted_as_the_file_counts_them(filled: Stage) -> None:
    added(filled.memory, "notes", "one\u2028still one\ntwo\nthree", title="Lines")
    ((part,), _) = run(filled, action("read", uri=f"{USER}/notes/Lines.md", limit=2))
    assert "lines 0 to 2 of" in part.text


def test_listing_and_searching_answer_in_lines(filled: Stage) -> None:
    readings, _ = run(
        filled, action("ls", uri=USER), action("tree"), action("find", query="花生"), action("find", query="zzz")
    )
    listed, tree, found, nothing = (reading.text for reading in readings)
    assert f"{USER}/preferences/  " in listed
    assert f"{USER}/facts/过敏.md" not in listed
    assert "viking://user/default/" in tree
    assert f"{USER}/facts/过敏.md (facts, " in found
    assert "对花生过敏。" in found
    assert "nothing relevant" in nothing


@pytest.mark.parametrize(
    "wrong",
    [
        action("read", uri="viking://user/other/memories/profile.md"),
        action("read", uri="viking://user/default/memories/none.md"),
        action("read", uri=USER),
        action("read"),
        action("read", uri="../../etc/passwd"),
        action("read", uri=f"{USER}/notes/Long.md", offset=99_999),
        action("ls", uri="viking://user/other"),
        action("ls", uri=f"{USER}/notes/Long.md"),
        action("find", query="x", uri="viking://user/other"),
        action("find"),
        action("find", query="a\x00b"),
    ],
    ids=str,
)
def test_a_refusal_is_text_with_the_next_step(filled: Stage, wrong: ReadAction) -> None:
    ((reading,), _) = run(filled, wrong)
    assert "Next: " in reading.text
    assert reading.sha256 is None


def test_foreign_and_absent_files_are_refused_in_the_same_words(filled: Stage) -> None:
    by_hand(filled.memory.store.files.root, "user/other/memories/a.md", "秘密")
    for kind, name in (("read", "a.md"), ("ls", ""), ("find", "")):
        foreign = run(filled, action(kind, uri=f"viking://user/other/memories/{name}", query="秘密"))[0][0].text
        absent = run(filled, action(kind, uri=f"viking://user/nobody/memories/{name}", query="秘密"))[0][0].text
        assert foreign.replace("other", "nobody") == absent


def test_equal_actions_are_answered_once(filled: Stage) -> None:
    read = action("read", uri=f"{USER}/facts/过敏.md")
    readings, notes = run(filled, read, read, action("read", uri=f"{USER}/facts/过敏.md/"))
    assert len(readings) == 1
    assert notes == []
    again, notes = run(filled, read, answered=frozenset({readings[0].key}))
    assert again == []
    assert "repeated" in notes[0]


def test_a_round_is_bounded_in_number_and_tokens(filled: Stage) -> None:
    many = [action("find", query=f"nothing like that {number}") for number in range(30)]
    readings, notes = run(filled, *many)
    assert len(readings) == ACTIONS_PER_ROUND
    assert "22 of 30 read actions were not run" in notes[0]
    long = [action("read", uri=f"{USER}/notes/Long.md", offset=number + 1) for number in range(30)]
    readings, notes = run(filled, *long)
    assert 3 <= len(readings) <= ACTIONS_PER_ROUND
    assert f"{30 - len(readings)} of 30" in notes[0]
    assert len(run(filled, *long, budget=60)[0]) <= 1
