"""A line is a message, a refusal that names its request, or blank: nothing is lost, nothing raises."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from server.foreign_json import MOST_VALUES
from server.protocol.json_frames import Refusal, encode_frame, parse_frame, scrub
from server.protocol.stdio_pipes import LINE_LIMIT_BYTES, Oversized


def request(params: str = "{}", request_id: str = "7") -> bytes:
    return b'{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":%s}' % (
        request_id.encode(),
        params.encode(),
    )


def refusal(line: bytes | Oversized) -> Refusal:
    frame = parse_frame(line)
    assert isinstance(frame, Refusal)
    return frame


VALID = [
    *(request('{"text":"' + text + '"}') for text in ("plain", "支付系统 🐉", "\\ud83d\\ude00", "\\\\ud800")),
    b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
    '{"jsonrpc":"2.0","id":3,"result":{"text":"好的","method":"m","id":1}}'.encode(),
]


@pytest.mark.parametrize("line", VALID)
@pytest.mark.parametrize("form", [b"%s", b"\xef\xbb\xbf%s\r"], ids=["plain", "byte order mark and carriage return"])
def test_what_is_valid_passes_unchanged(line: bytes, form: bytes) -> None:
    frame = parse_frame(form % line)
    assert frame is not None
    assert not isinstance(frame, Refusal)
    assert frame.model_dump(by_alias=True, exclude_unset=True) == json.loads(line)


@pytest.mark.parametrize("line", [b"", b"  \t\r", b"\xef\xbb\xbf"])
def test_blank_line_is_nothing(line: bytes) -> None:
    assert parse_frame(line) is None


def test_line_of_very_many_values_is_refused_by_its_id() -> None:
    found = refusal(request('{"a":[' + "1," * MOST_VALUES + "1]}", "12"))
    assert found.request_id == 12
    assert "Split the content over several requests." in found.message
    assert isinstance(parse_frame(request('{"a":"' + "1," * MOST_VALUES + '"}')), JSONRPCRequest)


@pytest.mark.parametrize("params", ["[1]", '{"reason":"\\ud800"}'])
def test_faulty_notification_gets_no_answer(params: str) -> None:
    line = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":%s}' % params.encode()
    assert not refusal(line).answerable


def test_clients_answer_with_a_lone_surrogate_is_mended() -> None:
    frame = parse_frame(b'{"jsonrpc":"2.0","id":3,"result":{"text":"ok \\ud800"}}')
    assert isinstance(frame, JSONRPCResponse)
    assert frame.result == {"text": "ok \ufffd"}


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":3,"result":[]}',
        b'{"jsonrpc":"2.0","id":3,"result":{"n":%s}}' % (b"9" * 5000),
        b'{"jsonrpc":"2.0","id":3,"result":{"n":%s%s}}' % (b"[" * 9000, b"]" * 9000),
        Oversized(b'{"jsonrpc":"2.0","id":3,"result":{"text":"aaa', b'aaa"}}', LINE_LIMIT_BYTES + 1),
    ],
)
def test_unusable_answer_of_the_client_fails_the_request_that_waits_for_it(line: bytes | Oversized) -> None:
    frame = parse_frame(line)
    assert isinstance(frame, JSONRPCError)
    assert frame.id == 3


BODY = b'"params":{"arguments":{"id":1,"text":"\\"id\\":2,'


@pytest.mark.parametrize(
    ("head", "tail", "request_id"),
    [
        (b'{"jsonrpc":"2.0","id":9,"method":"tools/call",' + BODY, b'aaa"}}}', 9),
        (b'{"id" : "n\xc3\xa9e", "method":"id",' + BODY, b'aaa"}}}', "née"),
        (b'{"jsonrpc":"2.0","method":"tools/call",' + BODY, b'aaa"}},"id":-4}', -4),
        (b'{"method":"tools/call",' + BODY, b'aaa"}},"id":"x","jsonrpc":"2.0"}\r', "x"),
        (b'{"method":"tools/call",' + BODY, b'aaa","id":5}}', None),
        (b'{"method":"tools/call",' + BODY, b'aaa\\",\\"id\\":5}"}', None),
        (b'{"method":"id","params":{"x":"aaa', b'aaa"}}', None),
        (b"aaaa", b"aaaa", None),
    ],
)
def test_oversized_line_is_refused_with_its_outermost_id(
    head: bytes, tail: bytes, request_id: RequestId | None
) -> None:
    found = refusal(Oversized(head, tail, 10_000_000))
    assert (found.request_id, found.code) == (request_id, INVALID_REQUEST)
    assert "10,000,000" in found.message
    assert "Split" in found.message


@given(st.binary(max_size=80) | st.text(alphabet='{}[]":,id\\ud8 \x00支7', max_size=60).map(str.encode))
def test_no_line_raises(line: bytes) -> None:
    frame = parse_frame(line)
    assert frame is None or isinstance(frame, Refusal)


texts = st.text(st.characters() | st.characters(categories=["Cs"]), max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_scrubbed_value_encodes_and_clean_value_is_kept(value: Any) -> None:
    clean = scrub(value)
    json.dumps(clean, ensure_ascii=False).encode()
    assert scrub(clean) is clean


def test_surrogate_pair_becomes_its_character_and_a_lone_half_the_replacement() -> None:
    dragon = "\ud83d" + "\udc09"
    assert scrub({"键": [dragon, "a\udc80"]}) == {"键": ["🐉", "a\ufffd"]}


@given(st.dictionaries(texts, json_values, max_size=4))
def test_every_outgoing_message_is_one_line_of_json(result: dict[str, Any]) -> None:
    line = encode_frame(JSONRPCResponse(jsonrpc="2.0", id=1, result=result))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line.decode())["id"] == 1


def test_result_that_json_cannot_hold_becomes_an_error_response() -> None:
    line = encode_frame(JSONRPCResponse(jsonrpc="2.0", id=4, result={"x": object()}))
    answer = json.loads(line)
    assert (answer["id"], answer["error"]["code"]) == (4, INTERNAL_ERROR)


def test_error_response_keeps_its_scrubbed_text() -> None:
    failed = JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=1, message="文件 \ud800"))
    assert json.loads(encode_frame(failed))["error"]["message"] == "文件 \ufffd"


def test_unencodable_request_of_ours_is_left_to_its_sender() -> None:
    with pytest.raises(ValueError, match="serialize"):
        encode_frame(JSONRPCRequest(jsonrpc="2.0", id=1, method="ping", params={"x": object()}))


@pytest.mark.parametrize("request_id", ["编号 7", 'say "id": 8, \\', "", 10**30, -(2**63)])
@pytest.mark.parametrize("at_end", [False, True])
def test_request_nested_beyond_reading_is_refused_under_its_own_id(request_id: str | int, at_end: bool) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    identifier = json.dumps(request_id).encode()
    line = b'{"jsonrpc":"2.0","id":%b,"method":"x","params":{"a":%b}}' % (identifier, deep)
    if at_end:
        line = b'{"jsonrpc":"2.0","method":"x","params":{"a":%b},"id":%b}' % (deep, identifier)
    answer = refusal(line)
    assert answer.request_id == request_id
    assert "nested" in answer.message
