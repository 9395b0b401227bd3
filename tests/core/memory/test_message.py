"""Conversations: every client's shape is read, nothing said is lost or stored twice."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.core.errors import ContentRejected, InvalidInput
from memory_core.core.memory.message import (
    Message,
    ToolCall,
    ToolResult,
    dump_lines,
    moment,
    parse_lines,
    search_text,
    session_id_for,
    to_record,
    transcript_line,
)
from memory_core.core.memory.message_shapes import parse_messages

# U+0000 cannot be stored, surrogates cannot be encoded; everything else can be said.
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12) | st.sampled_from(
    [
        *("好的", "\\u0000", "\\ud800", "line\r\nbreak", "\u2028\u2029\x85", "😀👨‍👩‍👧", "--> <!--"),
        *('{"role"', "\ufeff", "\x1c\x0b\x0c"),
    ]
)
NAMES = st.none() | WORDS
COUNTS = st.none() | st.integers(0, 2**63 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
OFFSETS = st.sampled_from([UTC, timezone(timedelta(hours=8)), timezone(timedelta(hours=-3, minutes=-30))])
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant", "tool", "旁白"]),
    text=WORDS,
    name=NAMES,
    time=st.none() | st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=OFFSETS),
    message_id=NAMES,
    tool_calls=st.lists(st.builds(ToolCall, WORDS, WORDS, JSON, NAMES), max_size=2).map(tuple),
    tool_results=st.lists(st.builds(ToolResult, WORDS, NAMES, WORDS, NAMES, COUNTS, COUNTS, COUNTS), max_size=2).map(
        tuple
    ),
    extra=st.dictionaries(WORDS, WORDS | st.integers() | st.booleans(), max_size=2),
)


def one(**raw: Any) -> Message:
    (message,) = parse_messages([raw])
    return message


def refused(raw: Any, error: type[InvalidInput] = InvalidInput) -> InvalidInput:
    with pytest.raises(error) as caught:
        parse_messages(raw)
    assert caught.value.hint
    return caught.value


def said(text: str, role: str = "user", **more: Any) -> Message:
    return Message(role, text, **more)


# --- shapes


@pytest.mark.parametrize("text", ["Hello\r\n  there\t ", "我喜欢手冲咖啡。\n\n", "👍🏽", "a\u2028b", "-->"])
def test_plain_text_is_kept_byte_for_byte(text: str) -> None:
    assert one(role="user", content=text).text == text
    assert one(role="user", content=[{"type": "text", "text": text}]).text == text


def test_plain_message_keeps_name_id_and_unknown_scalars() -> None:
    message = one(role="user", name="小林", id=7, content="早上好", mood="开心", rating=5, nested={"a": 1}, none=None)
    assert message == Message("user", "早上好", "小林", None, "7", extra={"mood": "开心", "rating": 5})


@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer", "narrator", "旁白", "x" * 64])
def test_any_short_role_is_accepted(role: str) -> None:
    assert one(role=role, content="x").role == role


def test_anthropic_blocks_become_text_calls_and_results() -> None:
    call, result = parse_messages(
        [
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "the user wants weather", "signature": "s"},
                    {"type": "text", "text": "我查一下天气。"},
                    {"type": "image", "source": {"type": "base64", "data": "…"}},
                    {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "上海"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "content": [{"type": "text", "text": "晴"}, {"type": "image", "source": {}}],
                    },
                    {"type": "text", "text": "thanks"},
                ],
            },
        ]
    )
    assert call.text == "我查一下天气。\n[image]"
    assert call.tool_calls == (ToolCall("toolu_1", "get_weather", {"city": "上海"}),)
    assert result.text == "thanks"
    assert result.tool_results == (ToolResult("toolu_1", "get_weather", "晴\n[image]", "completed"),)


def test_cited_sentence_is_not_broken_into_lines() -> None:
    parts = [{"type": "text", "text": "Paris is "}, {"type": "text", "text": "in France.", "citations": [{}]}]
    assert one(role="assistant", content=parts).text == "Paris is in France."


def test_message_of_reasoning_only_is_left_out() -> None:
    raw = [{"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]}, {"role": "user", "content": "x"}]
    assert [message.text for message in parse_messages(raw)] == ["x"]


def test_openai_calls_and_tool_messages_become_records() -> None:
    call, result = parse_messages(
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_9",
                        "type": "function",
                        "function": {"name": "search", "arguments": '{"q": "支付系统", "n": 3}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_9", "id": "msg_2", "content": "三条结果"},
        ]
    )
    assert call.tool_calls == (ToolCall("call_9", "search", {"q": "支付系统", "n": 3}),)
    assert result == Message(
        "tool", message_id="msg_2", tool_results=(ToolResult("call_9", "search", "三条结果", "completed"),)
    )


def test_results_in_a_message_of_a_tool_keep_their_call_their_text_and_their_failure() -> None:
    block = {"type": "tool_result", "tool_use_id": "c", "content": "no such file", "is_error": True}
    (result,) = one(role="tool", content=[block]).tool_results
    assert (result.call_id, result.text, result.status) == ("c", "no such file", "error")


def test_openai_legacy_function_call_and_parts_are_read() -> None:
    call, result, seen = parse_messages(
        [
            {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": "{not json"}},
            {"role": "function", "name": "add", "content": "3"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "看"}, {"type": "image_url", "image_url": {"url": "u"}}],
            },
        ]
    )
    assert call.tool_calls == (ToolCall("", "add", "{not json"),)
    assert result.tool_results == (ToolResult("", "add", "3", "completed"),)
    assert result.name is None
    assert seen.text == "看\n[image]"


def test_structured_tool_answer_is_kept_as_json() -> None:
    message = one(role="tool", tool_call_id="c", content=[{"标题": "甲"}, {"标题": "乙"}])
    assert json.loads(message.tool_results[0].text) == [{"标题": "甲"}, {"标题": "乙"}]


@pytest.mark.parametrize(
    ("details", "status"),
    [
        ({}, "completed"),
        ({"is_error": False}, "completed"),
        ({"status": "Success"}, "completed"),
        ({"status": "completed"}, "completed"),
        ({"is_error": True}, "error"),
        ({"isError": True, "status": "completed"}, "error"),
        ({"status": "failed"}, "error"),
        ({"status": "timeout"}, "timeout"),
        ({"status": "cancelled", "is_error": True}, "cancelled"),
        ({"status": "running"}, "running"),
    ],
)
def test_only_a_run_that_ended_well_is_completed(details: dict[str, Any], status: str) -> None:
    in_message = one(role="tool", tool_call_id="c", content="out", **details)
    in_block = one(role="user", content=[{"type": "tool_result", "tool_use_id": "c", "content": "out", **details}])
    beside_block = one(role="user", content=[{"type": "tool_result", "tool_use_id": "c"}], **details)
    assert {message.tool_results[0].status for message in (in_message, in_block, beside_block)} == {status}
    assert not in_message.extra


@pytest.mark.parametrize(
    ("details", "numbers"),
    [
        ({"duration_ms": 120}, (120, None, None)),
        ({"duration": 1.5, "usage": {"prompt_tokens": 10, "completion_tokens": 4}}, (1500, 10, 4)),
        ({"usage": {"input_tokens": 0, "output_tokens": 2}}, (None, 0, 2)),
        ({"prompt_tokens": 3, "completion_tokens": 1, "duration_ms": 0.6}, (1, 3, 1)),
    ],
)
def test_duration_and_tokens_of_a_run_are_read(details: dict[str, Any], numbers: tuple[int | None, ...]) -> None:
    (result,) = one(role="tool", tool_call_id="c", content="out", **details).tool_results
    assert (result.duration_ms, result.prompt_tokens, result.completion_tokens) == numbers


def test_usage_of_an_assistant_message_is_not_the_tools() -> None:
    message = one(
        role="assistant",
        content="",
        tool_calls=[{"id": "c", "name": "search", "arguments": {}, "status": "error", "output": "boom"}],
        usage={"input_tokens": 5},
    )
    assert message.tool_results == (ToolResult("c", "search", "boom", "error"),)


@pytest.mark.parametrize(
    ("call", "skill"),
    [
        ({"name": "Skill", "input": {"skill": "pdf"}}, "pdf"),
        ({"name": "read", "input": {"path": "/home/me/skills/周报/SKILL.md"}}, "周报"),
        ({"name": "run", "input": {}, "skill_name": "deep_research"}, "deep_research"),
        ({"name": "read", "input": {"path": "README.md"}}, None),
    ],
)
def test_call_names_its_skill(call: dict[str, Any], skill: str | None) -> None:
    message = one(role="assistant", content=[{"type": "tool_use", "id": "t", **call}])
    assert message.tool_calls[0].skill_name == skill


# --- times


MAY_8 = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [
        "2023-05-08T13:56:00Z",
        "2023-05-08 13:56",
        "2023-05-08T21:56:00+08:00",
        1683554160,
        1683554160.0,
        1683554160000,
        "1683554160",
        "1683554160000",
        1683554160000000000,
    ],
)
@pytest.mark.parametrize("key", ["time", "timestamp", "created_at"])
def test_every_form_of_time_names_the_same_moment(key: str, value: Any) -> None:
    assert one(role="user", content="x", **{key: value}).time == MAY_8


def test_offset_of_the_speaker_is_kept() -> None:
    time = one(role="user", content="x", time="2023-05-08T21:56:00+08:00").time
    assert time is not None
    assert time.utcoffset() == timedelta(hours=8)


@pytest.mark.parametrize(
    "value",
    [
        *("yesterday", "昨天下午", "1:56 pm on 8 May, 2023", "2023-13-01", "9" * 400),
        *(1e300, float("nan"), True, ["2023"], "0001-01-01T00:00:00+14:00"),
    ],
)
def test_unreadable_time_is_refused_by_index(value: Any) -> None:
    error = refused([{"role": "user", "content": "a"}, {"role": "user", "content": "b", "time": value}])
    assert "messages[1]" in error.message
    assert "ISO 8601" in error.hint


# --- refusals


@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        ("hi", InvalidInput, "not an object"),
        (None, InvalidInput, "not an object"),
        ({"content": "x"}, InvalidInput, "no role"),
        ({"role": " ", "content": "x"}, InvalidInput, "no role"),
        ({"role": "x" * 65, "content": "x"}, InvalidInput, "65 characters"),
        ({"role": "user"}, ContentRejected, "blank"),
        ({"role": "user", "content": " \n　"}, ContentRejected, "blank"),
        ({"role": "user", "content": []}, ContentRejected, "blank"),
        ({"role": "user", "content": "a\0b"}, ContentRejected, "NUL"),
        ({"role": "user", "content": "a\ud83d"}, ContentRejected, "surrogate"),
        ({"role": "user", "content": [{"type": "text", "text": "\0"}]}, ContentRejected, "NUL"),
        ({"role": "user", "name": "\udc00", "content": "x"}, ContentRejected, "surrogate"),
        ({"role": "user", "content": "x", "note": "\0"}, ContentRejected, "NUL"),
        ({"role": "user", "content": 5}, InvalidInput, "content"),
        ({"role": "user", "content": [5]}, InvalidInput, "content[0]"),
        ({"role": "user", "content": [{"type": "text"}]}, InvalidInput, "no text"),
        ({"role": "user", "content": "x", "id": {}}, InvalidInput, "id"),
        ({"role": "assistant", "tool_calls": {}}, InvalidInput, "tool_calls"),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, InvalidInput, "tool name"),
        ({"role": "assistant", "tool_calls": [{"name": "t", "input": {"a": "\0"}}]}, ContentRejected, "NUL"),
        ({"role": "assistant", "tool_calls": [{"name": "t", "input": {"a": float("inf")}}]}, InvalidInput, "JSON"),
        ({"role": "tool", "content": "x", "duration_ms": -1}, InvalidInput, "duration_ms"),
        ({"role": "tool", "content": "x", "duration_ms": float("nan")}, InvalidInput, "duration_ms"),
        ({"role": "tool", "content": "x", "usage": {"prompt_tokens": "many"}}, InvalidInput, "token"),
        ({"role": "tool", "content": "x", "status": 200}, InvalidInput, "status"),
    ],
)
def test_malformed_message_is_refused_by_index(bad: Any, error: type[InvalidInput], words: str) -> None:
    caught = refused([{"role": "user", "content": "好"}, bad], error)
    assert "messages[1]" in caught.message
    assert words in caught.message


class _Huge:
    def __repr__(self) -> str:
        raise MemoryError


def test_what_is_no_time_is_told_shortly_whatever_its_size() -> None:
    for value in (_Huge(), [_Huge()], "x" * 1_000, 10**5_000):
        with pytest.raises(InvalidInput) as caught:
            moment(value, "a message")
        assert len(caught.value.message) < 120


@pytest.mark.parametrize("raw", ["hello", {"role": "user", "content": "x"}, None, 5, b"x"])
def test_what_is_no_list_is_refused(raw: Any) -> None:
    assert "not a list" in refused(raw).message


def test_deeply_nested_arguments_are_refused_or_kept_as_text() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    refused([{"role": "assistant", "tool_calls": [{"name": "t", "input": deep}]}])
    text = "[" * 100_000
    message = one(role="assistant", tool_calls=[{"name": "t", "arguments": text}])
    assert message.tool_calls[0].arguments == text


@given(st.lists(JSON | st.dictionaries(st.sampled_from(["role", "content", "time", "tool_calls", "status"]), JSON)))
def test_any_json_is_read_or_refused_and_what_is_read_can_be_stored(raw: list[Any]) -> None:
    try:
        messages = parse_messages(raw)
    except InvalidInput:
        return
    dump_lines(messages).encode("utf-8")
    assert parse_lines(dump_lines(messages)) == (list(messages), [])


# --- records and lines


@given(st.lists(MESSAGES, max_size=4))
def test_log_reads_back_and_a_message_is_one_line(messages: list[Message]) -> None:
    text = dump_lines(messages)
    assert len(text.splitlines()) == text.count("\n") == len(messages)
    assert parse_lines(text) == (messages, [])


def test_time_in_a_record_keeps_its_offset() -> None:
    time = datetime(2023, 5, 8, 21, 56, tzinfo=timezone(timedelta(hours=8)))
    assert to_record(said("x", time=time))["time"] == "2023-05-08T21:56:00+08:00"


def test_line_of_a_log_can_be_sent_again() -> None:
    raw = [
        {"role": "user", "name": "小林", "content": "查一下", "time": "2023-05-08T13:56:00Z", "id": "a", "mood": "好"},
        {"role": "assistant", "tool_calls": [{"id": "c", "name": "search", "arguments": {"q": "咖啡"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "无", "is_error": True, "duration_ms": 3},
    ]
    messages = parse_messages(raw)
    assert parse_messages([json.loads(line) for line in dump_lines(messages).splitlines()]) == messages


def test_damaged_lines_are_reported_and_the_others_read() -> None:
    first, second = dump_lines([said("早")]), dump_lines([said("late")])
    torn = dump_lines([said("a torn line")])[:20]
    bad = ["[]", '{"content": "no role"}', '{"role": 5}', '{"role": "user", "content": "\\ud800"}', "NaN"]
    bad += ['{"role":"user","content":"x","extra":{"n":1e999}}']
    bad += [
        '{"role": "user", "time": "noon"}',
        '{"role":"user","tool_calls":[1]}',
        '{"role":"user","content":"\\u0000"}',
    ]
    messages, damage = parse_lines("\ufeff" + first + "\r\n" + "\n".join([*bad, torn]) + "\n" + second)
    assert [message.text for message in messages] == ["早", "late"]
    assert [note.split(" was")[0] for note in damage] == [f"line {number}" for number in range(3, 3 + len(bad) + 1)]


@given(st.lists(MESSAGES, min_size=1, max_size=3), st.data())
def test_any_damage_leaves_a_readable_rest(messages: list[Message], data: st.DataObject) -> None:
    text = dump_lines(messages)
    cut = data.draw(st.integers(0, len(text)))
    found, damage = parse_lines(text[:cut])
    assert found == messages[: len(found)]
    assert len(found) + len(damage) == len(text[:cut].splitlines())


# --- display, search, sessions


def test_transcript_shows_time_speaker_and_text() -> None:
    message = said("I went to a\r\nsupport group.", name="Caroline", time=MAY_8)
    assert transcript_line(message, None) == "[2023-05-08 13:56] Caroline: I went to a\r\nsupport group."
    assert transcript_line(message, 200) == "[2023-05-08 13:56] Caroline: I went to a support group."
    assert transcript_line(said("你好"), None) == "user: 你好"


def test_transcript_shows_calls_with_their_outcome() -> None:
    call = ToolCall("c", "web_search", {"query": "咖啡", "n": 3}, "research")
    result = ToolResult("c", "web_search", "三家店", "completed", 120, 10, 5)
    assert transcript_line(Message("assistant", "查一下", tool_calls=(call,), tool_results=(result,)), None) == (
        'assistant: 查一下\n[ToolCall] web_search(query="咖啡", n=3) (skill research)'
        " -> completed, 120 ms, 15 tokens: 三家店"
    )
    assert transcript_line(Message("tool", tool_results=(result,)), None) == (
        "tool: [ToolCall] web_search -> completed, 120 ms, 15 tokens: 三家店"
    )
    assert transcript_line(Message("assistant", tool_calls=(call,)), None).endswith("(skill research)")


@given(MESSAGES, st.integers(0, 60))
def test_limited_transcript_is_one_line_within_its_limit(message: Message, limit: int) -> None:
    line = transcript_line(message, limit)
    assert len(line) <= limit
    assert len(line.splitlines()) <= 1


def test_search_text_holds_every_word() -> None:
    call = ToolCall("c", "web_search", {"query": "手冲咖啡", "limits": [{"n": 3}], "deep": True}, "研究")
    text = search_text(
        Message("assistant", "查", tool_calls=(call,), tool_results=(ToolResult("c", "fetch", "三家店"),))
    )
    assert all(word in text for word in ("查", "web_search", "手冲咖啡", "3", "研究", "fetch", "三家店"))
    assert search_text(said("  你好 ")) == "  你好 "


def test_session_is_named_after_its_first_message() -> None:
    dated = said("早上好", time=datetime(2023, 5, 8, 23, 30, tzinfo=timezone(timedelta(hours=-8))))
    first = session_id_for([dated])
    assert first.startswith("2023-05-08-")
    assert session_id_for([dated, said("more")]) == first
    assert session_id_for([said("It is noon.", "system"), dated]) == first
    assert session_id_for([said("晚上好", time=dated.time)]) != first
    assert session_id_for([said("早上好")]).startswith("session-")
    assert session_id_for([said("早上好", message_id="a")]) != session_id_for([said("早上好", message_id="b")])
    with pytest.raises(InvalidInput):
        session_id_for([])


def test_session_id_survives_the_log() -> None:
    messages = parse_messages([{"role": "user", "content": "hello 你好", "time": 1683554160, "app": "cli"}])
    stored, _ = parse_lines(dump_lines(messages))
    assert session_id_for(stored) == session_id_for(messages) == "2023-05-08-" + session_id_for(messages)[-8:]


@pytest.mark.parametrize("as_text", [True, False])
def test_arguments_of_very_many_values_stay_text(as_text: bool) -> None:
    def kept(arguments: Any) -> Any:
        given = json.dumps(arguments) if as_text else arguments
        (message,) = parse_messages([{"role": "assistant", "tool_calls": [{"name": "t", "arguments": given}]}])
        return message.tool_calls[0].arguments

    for many in (["x"] * 1_001, {"deep": [[[["a, [b] {c}"]]]] * 400}):
        assert kept(many) == json.dumps(many)
    few = {"text": 'a, [b] {c}, "d" \\ ' * 5_000, "list": ["x"] * 900}
    assert kept(few) == few
