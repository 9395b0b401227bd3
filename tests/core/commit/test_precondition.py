"""Operations that count only if certain files still are what their author saw."""

from __future__ import annotations

import pytest

from memory_core.core.commit.conflicts import ABSENT
from memory_core.core.errors import InvalidInput
from memory_core.core.memory.requests import CommitRequest, ReadRequest
from memory_core.core.memory.results import text_sha256
from memory_core.core.memory.uri import MemoryUri
from memory_core.runebook import Runebook
from tests.stores import edit, handed_in

TEA = "viking://user/default/memories/notes/Tea.md"
CHA = "viking://user/default/memories/notes/茶.md"


@pytest.fixture
def memory(memory: Runebook) -> Runebook:
    memory.commit(CommitRequest("Green.", fields={"title": "Tea"}))
    memory.commit(CommitRequest("绿的。", fields={"title": "茶"}))
    return memory


def sha256(memory: Runebook, uri: str) -> str:
    return text_sha256(memory.store.text(MemoryUri.parse(uri)) or "")


def test_one_file_that_moved_on_refuses_all_operations(memory: Runebook) -> None:
    seen = {TEA: sha256(memory, TEA), CHA: sha256(memory, CHA)}
    handed_in(memory, edit=[edit(CHA, content="红的。")])
    receipt = handed_in(memory, edit=[edit(TEA, content="Black."), edit(CHA, content="黑的。")], expected=seen)
    assert receipt.status == "rejected"
    assert [(result.uri, result.conflict) for result in receipt.results] == [(CHA, True)]
    assert "Green." in memory.read(ReadRequest(TEA)).content
    assert "红的。" in memory.read(ReadRequest(CHA)).content


def test_file_that_is_gone_and_file_that_came_are_conflicts(memory: Runebook) -> None:
    seen = {TEA: sha256(memory, TEA)}
    handed_in(memory, delete=[{"uri": TEA}])
    gone = handed_in(memory, edit=[edit(CHA, content="黑的。")], expected=seen)
    came = handed_in(memory, edit=[edit(CHA, content="黑的。")], expected={CHA: ABSENT})
    assert [receipt.status for receipt in (gone, came)] == ["rejected", "rejected"]
    assert "绿的。" in memory.read(ReadRequest(CHA)).content


def test_standing_alone_is_held_to_it_too(memory: Runebook) -> None:
    pinned = {"edit_operations": [{"uri": TEA, "pinned": True}]}
    assert memory.commit(CommitRequest(operations=pinned, expected={TEA: "0" * 64})).status == "rejected"
    assert memory.commit(CommitRequest(operations=pinned, expected={TEA: sha256(memory, TEA)})).status == "committed"


def test_explicit_memory_may_expect_that_there_is_none_yet(memory: Runebook) -> None:
    expected = {"viking://user/default/rolling_summary.md": ABSENT}
    assert (
        memory.commit(CommitRequest("First.", memory_type="rolling_summary", expected=expected)).status == "committed"
    )
    assert (
        memory.commit(CommitRequest("Second.", memory_type="rolling_summary", expected=expected)).status == "rejected"
    )


def test_preview_says_what_would_be_and_stores_nothing(memory: Runebook) -> None:
    before = sha256(memory, TEA)
    (change,) = [
        change
        for change in memory.preview({"edit_operations": [edit(TEA, content="乌龙。")]})
        if str(change.uri) == TEA
    ]
    assert "乌龙。" in (change.after or "")
    assert sha256(memory, TEA) == before


def test_expectations_do_not_go_with_an_answer_to_a_brief(memory: Runebook) -> None:
    with pytest.raises(InvalidInput):
        handed_in(memory, edit=[edit(TEA, content="x")], session_id="s", expected={})
