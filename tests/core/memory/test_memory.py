"""Memory files: what was written reads back, and writes back byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memory_core.core.memory.trailer import Parts, join, split

TRAILER = '<!-- MEMORY_FIELDS\n{\n  "memory_type": "notes"\n}\n-->'
BODIES = st.lists(
    st.text(st.characters(codec="utf-8"), max_size=4)
    | st.sampled_from(
        [
            "\n",
            "\r\n",
            "\n\n",
            "\r\n\r\n",
            "-->",
            "<!--",
            "<!-- MEMORY_FIELDS\n",
            "\n<!-- MEMORY_FIELDS\r\n{}\r\n-->",
            TRAILER,
            "\n\n" + TRAILER + "\n",
            "```",
            "{",
            "}",
            "支付系统",
            "😀",
            "\u2028",
            "\ufeff",
            "\x1c",
            "\\u003c",
        ]
    ),
    max_size=8,
).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | BODIES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(BODIES, inner, max_size=3),
    max_leaves=6,
)
TRAILERS = st.dictionaries(BODIES, VALUES, max_size=5)


@given(BODIES, TRAILERS)
@example("", {})
@example("\n", {"a": "-->"})
@example("text\r\n", {"a": "<!-- MEMORY_FIELDS\n{}\n-->"})
@example(f"quoted:\n\n{TRAILER}\n", {"memory_type": "notes"})
@example(TRAILER, {"memory_type": "notes", "topic": TRAILER})
def test_written_file_reads_back_and_writes_back_the_same(body: str, trailer: dict[str, Any]) -> None:
    text = join(body, trailer)
    read = split(text)
    assert read == Parts(body, trailer)
    assert join(read.body, read.trailer) == text
    assert list(read.trailer or {}) == list(trailer)


@given(BODIES, TRAILERS)
def test_stored_values_can_neither_end_nor_open_a_comment(body: str, trailer: dict[str, Any]) -> None:
    block = join(body, trailer).removeprefix(body)
    assert block.count("-->") == block.count("<!--") == 1
    assert block.startswith("\n\n<!-- MEMORY_FIELDS\n{")
    assert block.endswith("}\n-->\n")


@given(BODIES | st.text())
def test_any_text_is_read_and_nothing_of_it_is_lost(text: str) -> None:
    read = split(text)
    if read.trailer is None:
        assert read.body == text
        assert join(read.body, read.trailer) == text
    else:
        assert text.startswith(read.body)
        assert split(join(read.body, read.trailer)) == read


def test_chinese_stays_readable_in_the_trailer() -> None:
    text = join("正文", {"topic": "支付系统", "n": 1})
    assert text == '正文\n\n<!-- MEMORY_FIELDS\n{\n  "topic": "支付系统",\n  "n": 1\n}\n-->\n'


@pytest.mark.parametrize(
    "text", ["", "# 手写\n", "a\n-->", "<!-- other -->\n", "x <!-- MEMORY_FIELDS\n{}\n-->", "\r\n"]
)
def test_hand_written_file_has_no_trailer_and_stays_as_it_is(text: str) -> None:
    assert split(text) == Parts(text)
    assert join(*split(text)[:2]) == text


@pytest.mark.parametrize(
    "block",
    [
        *("{", "{]", "[]", "5", "", "{'a': 1}", '{"a": NaN}', '{"a": 1e999}', '{"a": -Infinity}'),
        *('{"a": "\\ud800"}', '{"\\udfff": 1}', '{"a": ' + "9" * 5000 + "}", "[" * 100000),
        *('{"a":' + "[" * 5000 + "]" * 5000 + "}",),
    ],
)
def test_damaged_trailer_is_named_and_kept_in_the_body(block: str) -> None:
    text = f"正文\n\n<!-- MEMORY_FIELDS\n{block}\n-->\n"
    read = split(text)
    assert (read.body, read.trailer) == (text, None)
    assert read.damage is not None
    assert "MEMORY_FIELDS" in read.damage
    assert join(read.body, read.trailer) == text


@pytest.mark.parametrize("end", ["", "\n", "\n\n \n", "\r\n"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_trailer_survives_an_editor_that_changes_line_ends(newline: str, end: str) -> None:
    text = join("第一行\nsecond", {"topic": "x"}).rstrip("\n").replace("\n", newline) + end
    assert split(text) == Parts(f"第一行{newline}second", {"topic": "x"})


def test_body_written_up_to_the_trailer_is_read() -> None:
    assert split(f"body\n{TRAILER}") == Parts("body", {"memory_type": "notes"})
    assert split(TRAILER) == Parts("", {"memory_type": "notes"})


def test_text_added_below_the_trailer_is_named_as_damage() -> None:
    text = join("正文", {"memory_type": "notes"}) + "\n后来补充的一行\n"
    read = split(text)
    assert (read.body, read.trailer) == (text, None)
    assert read.damage is not None
    assert "below" in read.damage


def test_example_of_a_trailer_in_a_hand_written_file_is_only_text() -> None:
    text = "How a file ends:\n\n```\n<!-- MEMORY_FIELDS\n{ …JSON… }\n-->\n```\n"
    assert split(text) == Parts(text)


def test_only_the_last_trailer_counts() -> None:
    inner = join("inner", {"memory_type": "notes"})
    assert split(join(inner, {"memory_type": "facts"})).body == inner


def test_values_that_json_has_not_are_not_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        join("x", {"a": float("nan")})


def test_trailer_is_plain_json() -> None:
    text = join("b", {"a": "<b> & -->", "n": [1, {"k": None}]})
    block = text.split("MEMORY_FIELDS\n")[1].removesuffix("\n-->\n")
    assert json.loads(block) == {"a": "<b> & -->", "n": [1, {"k": None}]}


@pytest.mark.parametrize(
    "block",
    [
        '<!-- MEMORY_FIELDS {"topic": "茶 --> 咖啡", "n": 1} -->',
        '<!-- MEMORY_FIELDS{"topic": "茶 --> 咖啡", "n": 1}-->',
        '<!--MEMORY_FIELDS\n{"topic": "茶 --> 咖啡",\n "n": 1}\n-->',
        '<!-- MEMORY_FIELDS \r\n{"topic": "茶 --> 咖啡", "n": 1}\r\n-->\r\n',
        '<!-- MEMORY_FIELDS\n{"fields": {"topic": "茶 --> 咖啡"}, "n": 1}\n-->',
    ],
)
def test_trailer_as_older_programs_wrote_it_is_read(block: str) -> None:
    assert split(f"正文\n\n{block}") == Parts("正文", {"topic": "茶 --> 咖啡", "n": 1})


def test_nested_fields_that_clash_with_others_are_kept_nested() -> None:
    read = split('x\n\n<!-- MEMORY_FIELDS {"name": "A", "fields": {"name": "B", "topic": "T"}} -->')
    assert read.trailer == {"topic": "T", "name": "A", "fields": {"name": "B"}}
    assert split(join(read.body, read.trailer)) == read


def test_one_line_comment_inside_a_text_is_only_text() -> None:
    text = 'see <!-- MEMORY_FIELDS {"topic": "x"} -->\n'
    assert split(text) == Parts(text)
    text = '<!-- MEMORY_FIELDS {"topic": "x"} -->\n\nhow a trailer looks\n'
    assert split(text) == Parts(text)
