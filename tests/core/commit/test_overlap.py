"""What is new in a conversation that is sent again: nothing said is stored twice, nothing is lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.core.commit import overlap
from memory_core.core.commit.overlap import unseen
from memory_core.core.memory.message import Message, ToolCall, ToolResult

MAY_8 = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
FEW = st.sampled_from(["", "a", "好的"])
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant", "system", "tool"]),
    text=FEW,
    name=st.none() | FEW,
    time=st.none() | st.sampled_from([MAY_8, MAY_8 + timedelta(minutes=5)]),
    message_id=st.none() | FEW,
    tool_calls=st.lists(st.builds(ToolCall, FEW, FEW, FEW), max_size=1).map(tuple),
    tool_results=st.lists(st.builds(ToolResult, FEW, st.none(), FEW), max_size=1).map(tuple),
)


def said(text: str, role: str = "user", **more: Any) -> Message:
    return Message(role, text, **more)


SHORT = st.sampled_from(["ok", "好的", "嗯", "yes", "谢谢", "继续"])


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Two to twenty turns, some of them short and said again and again, no ids, no times."""
    turns = draw(st.lists(st.none() | SHORT, min_size=2, max_size=20))
    roles = ("user", "assistant")
    texts = [short or f"第{index}件事：the plan for milestone number {index}" for index, short in enumerate(turns)]
    return [said(text, roles[index % 2]) for index, text in enumerate(texts)]


@given(conversations(), st.data())
def test_growing_conversation_sent_whole_adds_only_its_end(talk: list[Message], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(talk)))
    assert unseen(talk[:cut], talk) == tuple(talk[cut:])


@given(conversations(), st.data())
def test_conversation_sent_from_its_middle_adds_only_its_end(talk: list[Message], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(talk)))
    start = data.draw(st.integers(0, cut - 1))
    added = unseen(talk[:cut], talk[start:])
    if start == 0 or any("milestone" in message.text for message in talk[start:cut]):
        assert added == tuple(talk[cut:])
    elif talk[start : start + cut] != talk[:cut]:  # what opens with all that is stored cannot be told from it
        assert added[len(added) - len(talk[cut:]) :] == tuple(talk[cut:])


@given(conversations(), st.data())
def test_turn_by_turn_conversation_loses_nothing(talk: list[Message], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(2, len(talk)), max_size=4)) | {2, len(talk)})
    stored: list[Message] = []
    for start, end in zip([0, *cuts], cuts, strict=False):
        stored += unseen(stored, talk[start:end])
    if any("milestone" in message.text for message in talk[:2]):
        assert stored == talk
    assert [message for message in stored if "milestone" in message.text] == [
        message for message in talk if "milestone" in message.text
    ]


@given(conversations(), SHORT)
def test_short_answer_sent_alone_is_never_dropped(talk: list[Message], short: str) -> None:
    assert unseen(talk, [said(short)]) == (said(short),)


@given(st.lists(MESSAGES | conversations().map(lambda talk: talk[0]), max_size=8), st.data())
def test_what_is_dropped_is_stored_and_order_is_kept(pool: list[Message], data: st.DataObject) -> None:
    picks = st.lists(st.sampled_from(pool), max_size=10) if pool else st.just([])
    stored, incoming = data.draw(picks), data.draw(picks)
    added = unseen(stored, incoming)
    rest = iter(incoming)
    assert all(any(message is candidate for candidate in rest) for message in added)
    texts = {(message.role, message.name, message.text) for message in [*stored, *added]}
    assert all((message.role, message.name, message.text) in texts for message in incoming)


TALK = [
    said("我叫小林，住在杭州，做支付系统。"),
    said("很高兴认识你，小林！支付系统是个有意思的方向。", "assistant"),
    said("好的"),
    said("Which part of it keeps you busy at the moment?", "assistant"),
    said("Reconciliation, every single month."),
    said("好的", "assistant"),
]


def test_summary_of_a_compaction_is_new_and_the_rest_is_not() -> None:
    summary = said("Summary so far: the user is 小林.")
    fresh = said("还有一个问题")
    assert unseen(TALK, [summary, *TALK[3:], fresh]) == (summary, fresh)


def test_changed_prompt_does_not_repeat_the_conversation() -> None:
    morning, evening = said("It is 08:00.", "system"), said("It is 20:00.", "system")
    stored = [morning, said("hi"), said("hello", "assistant")]
    fresh = said("what now?")
    assert unseen(stored, [evening, *stored[1:], fresh]) == (evening, fresh)
    assert unseen(stored, [morning, *stored[1:], fresh]) == (fresh,)


def test_edited_turn_is_new_and_its_neighbours_are_not() -> None:
    edited = said("Reconciliation, every single week.")
    assert unseen(TALK, [*TALK[:4], edited]) == (edited,)


def test_repeated_answers_keep_their_number() -> None:
    stored = [*TALK, said("好的"), said("好的", "assistant")]
    again = [said("好的"), said("好的", "assistant")]
    assert unseen(stored, again) == tuple(again)
    assert unseen(stored, [*stored, *again]) == tuple(again)


def test_same_exchange_said_again_later_is_new_when_the_talk_goes_on() -> None:
    again = [TALK[3], TALK[4], said("This month it took nine days.")]
    assert unseen([*TALK, *TALK[:2]], again) == tuple(again)


def test_long_log_is_compared_quickly() -> None:
    stored = [said("ok" if index % 2 else f"第{index}句话, said once") for index in range(20_000)]
    fresh = said("现在呢?")
    assert unseen(stored, [*stored[5_000:], fresh]) == (fresh,)
    assert len(unseen(stored, [said("ok")] * 20_000)) == 20_000


def test_message_ids_decide_even_for_short_and_reordered_messages() -> None:
    stored = [said("ok", message_id="1"), said("ok", message_id="2"), said("好的", message_id="3")]
    fresh = said("ok", message_id="4")
    assert unseen(stored, [stored[2], stored[0], fresh, fresh]) == (fresh,)


def test_same_message_id_with_other_text_is_new() -> None:
    part = said("second half of the answer", "assistant", message_id="msg_1")
    assert unseen([said("first half", "assistant", message_id="msg_1")], [part]) == (part,)


def test_same_words_at_another_time_are_new_and_at_the_same_time_are_not() -> None:
    stored = [said("吃药了", time=MAY_8), said("Well done, see you tomorrow then.", "assistant")]
    tomorrow = said("吃药了", time=MAY_8 + timedelta(days=1))
    assert unseen(stored, [tomorrow]) == (tomorrow,)
    assert unseen([*stored, tomorrow], [stored[0]]) == ()
    assert unseen([*stored, tomorrow], [said("吃药了", time=MAY_8.astimezone(timezone(timedelta(hours=8))))]) == ()


def test_time_shared_by_a_whole_session_proves_nothing() -> None:
    stored = [*(said(message.text, message.role, time=MAY_8) for message in TALK)]
    assert unseen(stored, [said("好的", time=MAY_8)]) == (said("好的", time=MAY_8),)


def test_tool_record_is_known_by_its_call_id() -> None:
    call = Message("assistant", tool_calls=(ToolCall("c1", "search", {"q": "茶"}),))
    answer = Message("tool", tool_results=(ToolResult("c1", "search", "龙井", "completed"),))
    unnamed = Message("tool", tool_results=(ToolResult("c1", None, "龙井", "completed"),))
    second = Message("assistant", tool_calls=(ToolCall("c2", "search", {"q": "茶"}),))
    assert unseen([*TALK, call, answer, *TALK], [answer, unnamed, call, second]) == (second,)


def test_different_speakers_say_different_things() -> None:
    stored = [said("I went hiking on Sunday!", name="Caroline")]
    other = said("I went hiking on Sunday!", name="Melanie")
    assert unseen(stored, [other]) == (other,)


def test_empty_sides_are_fine() -> None:
    assert unseen([], TALK) == tuple(TALK)
    assert unseen(TALK, []) == ()


@given(
    st.lists(
        MESSAGES
        | st.builds(
            said, st.sampled_from(["ok", "嗯", "a whole sentence of its own", "another long one that is stored"])
        ),
        max_size=8,
    ),
    st.data(),
)
def test_what_cannot_have_come_in_is_left_out_of_the_comparison(talk: list[Message], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(talk)))
    incoming = data.draw(st.lists(st.sampled_from(talk), max_size=4)) if talk else []
    for stored, sent in ((talk, incoming), (talk[:cut], talk[cut:])):
        expected = _compared_with_all(stored, sent)
        assert unseen(stored, sent) == expected


def _compared_with_all(stored: list[Message], sent: list[Message]) -> tuple[Message, ...]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlap, "_may_be_known", lambda *_given: True)
        patch.setattr(overlap, "_shortened", lambda stored, *_given: stored)
        return unseen(stored, sent)
