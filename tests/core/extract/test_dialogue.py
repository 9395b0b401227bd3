"""What is in a prompt: bounded whatever the model writes, and a file counts as seen only while it is there."""

from __future__ import annotations

from typing import Any

import pytest

from memory_core.core.errors import AnswerCut
from memory_core.core.extract.dialogue import answer_text
from memory_core.core.memory.operations import ReasoningAction
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.text.tokens import count_tokens
from memory_core.runebook import Runebook
from tests.core.extract.stage import AGENT, NOTHING, USER, Stage, operations, reads, size, talk
from tests.stores import added, by_hand, edit, edited_by_hand, only, write

TALK = talk("早上好", "Good morning.")


def test_older_readings_leave_first_and_no_longer_count_as_seen(memory: Runebook) -> None:
    stage = Stage(memory, prompt_tokens=9_000)
    uris = [f"{USER}/notes/Note {letter}.md" for letter in "ABC"]
    for letter in "ABC":
        added(memory, "notes", f"{letter * 3} " + "词" * 1_600, title=f"Note {letter}")
    blind = operations(edits=[edit(uris[0], content="New.")])
    outcome = stage.extract(TALK, reads(uris[0]), reads(uris[1]), reads(uris[2]), blind, NOTHING)
    assert "AAA" in stage.said(1)
    last = "\n".join(turn.text for turn in stage.requests[3].turns)
    assert "CCC" in last
    assert "AAA" not in last
    assert "was not read whole" in stage.said(4)
    assert "AAA" in stage.said(4)
    assert len(outcome.operations) == 0


@pytest.mark.parametrize(
    "huge",
    [
        {**reads(f"{USER}/notes/x.md"), "reasoning": "想" * 200_000},
        {**reads(*(f"{USER}/notes/{number}.md" for number in range(500)))},
        operations(*(write("no_such_type", a="b" * 500) for _ in range(300))),
        operations(edits=[edit(f"{USER}/notes/x.md", content="长" * 100_000)]),
        operations(write("facts", topic="T", content="word " * 60_000)),
    ],
    ids=["reasoning", "actions", "refused operations", "edit of nothing", "too large"],
)
def test_no_answer_makes_a_prompt_too_large(stage: Stage, huge: dict[str, Any]) -> None:
    stage.drive(stage.loop.extract(TALK, stage.view), huge, always=NOTHING)
    assert 1 <= len(stage.requests) <= 5
    assert all(size(request) <= 12_000 for request in stage.requests)


def test_the_turns_alternate_and_begin_and_end_with_ours(stage: Stage) -> None:
    stage.extract(TALK, reads(USER), "garbage", reads(AGENT), operations(write("nope", a="b")), NOTHING)
    for request in stage.requests:
        roles = [turn.role for turn in request.turns]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]


def test_the_models_own_answer_is_shown_again_as_valid_json_however_long() -> None:
    long = ReasoningAction.model_validate(operations(write("facts", topic="T", content="词" * 500)))
    assert ReasoningAction.model_validate_json(answer_text(long, 2_000)).operations is not None
    for budget in (300, 60, 20, 1):
        text = answer_text(long, budget)
        assert count_tokens(text) <= max(budget, 2)
        assert ReasoningAction.model_validate_json(text).operations is None


def test_a_failure_thrown_in_is_treated_like_a_bad_answer(stage: Stage) -> None:
    stage.extract(TALK, AnswerCut("cut at the token limit", hint="shorter"), NOTHING)
    assert len(stage.requests) == 2
    assert "cut at the token limit" in stage.said()


def test_earlier_messages_are_context_and_said_to_be(stage: Stage) -> None:
    before = talk("My cat is called Momo.", "Nice.").messages
    stage.extract(talk("她三岁了。", earlier=before), NOTHING)
    text = stage.said()
    assert text.index("for context only:\n- [2024-03-05 10:00] user: My cat is called Momo.") < text.index("[1] ")


def test_of_a_hand_edited_tool_memory_the_body_is_shown_and_what_was_written_since(stage: Stage) -> None:
    added(stage.memory, "tools", tool_name="grep", best_for="a\nb ```")
    edited_by_hand(stage.memory, f"{AGENT}/tools/grep.md", "Tool: grep", "Tool: grep 我的笔记")
    added(stage.memory, "tools", tool_name="grep", recommendation="c\nd ```")
    shown = stage.view.show(f"{AGENT}/tools/grep.md", 1_000)
    assert shown is not None
    assert "- recommendation:\n````\nc\nd ```\n````" in shown.text
    assert shown.text.count("a\nb ```") == 1
    assert "written by hand" in shown.text
    assert "我的笔记" in shown.text
    assert shown.sha256 is not None
    assert "total_calls:" not in shown.text


def test_what_a_person_took_out_of_a_memory_is_not_shown(stage: Stage) -> None:
    said = {"case_name": "Flood", "problem": "A wet cellar.", "solution": "Open valve seven."}
    uri = only(added(stage.memory, "cases", **said)).uri
    path = stage.memory.store.files.path_for(MemoryUri.parse(uri))
    path.write_text(path.read_text("utf-8").replace("Open valve seven.", "Call Anna.", 1), "utf-8")
    shown = stage.view.show(uri, 1_000)
    assert shown is not None
    assert "valve" not in shown.text
    assert "Call Anna." in shown.text
    assert "- problem: A wet cellar." in shown.text


def test_files_of_no_type_and_odd_uris_are_shown_or_not_but_never_raise(stage: Stage) -> None:
    by_hand(stage.memory.store.files.root, "user/default/memories/loose/thing.md", "loose 散页")
    shown = stage.view.show(f"{USER}/loose/thing.md", 500)
    assert shown is not None
    assert "```\nloose 散页\n```" in shown.text
    for uri in ("", "x", "viking://", USER, "viking://user/default/memories/../x.md", "viking://user/other/a.md"):
        assert stage.view.show(uri, 500) is None
    tight = stage.view.show(f"{USER}/loose/thing.md", 3)
    assert tight is not None
    assert tight.sha256 is None
