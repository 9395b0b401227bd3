"""Edits of JSON with comments: what they are not about stays, what they are about is exact."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.core.errors import InvalidInput
from server.hosts import jsonc

ENTRY = {"command": "C:\\Users\\小林\\runebook.exe", "args": ["serve"]}
PATH = ("mcpServers", "runebook")
COMMENTED = """\
// 我的设置
{
    "theme": "dark", // keep me
    /* servers
       of mine */
    "mcpServers": {
        "other": {"command": "x", "args": []}, // 别动
        // none below
    },
    "url": "https://example.com/*not a comment*/"
}
"""


def test_member_goes_in_and_out_of_a_commented_file_leaving_every_other_byte() -> None:
    changed = jsonc.put(COMMENTED, PATH, ENTRY)
    assert jsonc.read(changed)["mcpServers"] == {"other": {"command": "x", "args": []}, "runebook": ENTRY}
    assert '\n        // none below\n        "runebook": {\n            "command"' in changed
    assert [line for line in changed.splitlines() if line in COMMENTED.splitlines()] == COMMENTED.splitlines()
    assert jsonc.remove(changed, PATH) == COMMENTED


def test_windows_line_ends_and_byte_order_mark_stay() -> None:
    text = '\ufeff{\r\n\t"a": 1\r\n}\r\n'
    changed = jsonc.put(text, ("b",), {"c": 2})
    assert changed == '\ufeff{\r\n\t"a": 1,\r\n\t"b": {\r\n\t\t"c": 2\r\n\t}\r\n}\r\n'
    assert jsonc.remove(changed, ("b",)) == text


@pytest.mark.parametrize("text", ["", "\n", "{}", '{"mcpServers": {}}', '{"a": [1, 2,],}', '{"mcpServers": {"x": 1}}'])
def test_member_goes_into_every_form_of_object(text: str) -> None:
    assert jsonc.read(jsonc.put(text, PATH, ENTRY)) == {
        **jsonc.read(text),
        "mcpServers": {**jsonc.read(text).get("mcpServers", {}), "runebook": ENTRY},
    }


def test_one_line_stays_one_line() -> None:
    changed = jsonc.put('{"a": 1}', PATH, ENTRY)
    assert "\n" not in changed
    assert jsonc.remove(changed, ("mcpServers",)) == '{"a": 1}'


def test_member_that_is_already_so_changes_nothing() -> None:
    text = '{"mcpServers":{"runebook":{"args":["serve"],"command":"x"}}}'
    assert jsonc.put(text, PATH, {"command": "x", "args": ["serve"]}) == text


def test_member_between_others_leaves_with_its_comma() -> None:
    assert jsonc.remove('{"a": 1, "b": 2, "c": 3}', ("b",)) == '{"a": 1, "c": 3}'
    assert jsonc.remove('{"a": 1, "b": 2}', ("a",)) == '{"b": 2}'
    assert jsonc.remove('{\n  "a": 1, // one\n  "b": 2\n}', ("b",)) == '{\n  "a": 1 // one\n}'


def test_items_come_and_go_at_the_end_of_a_list() -> None:
    text = '{\n  "hooks": {\n    "Stop": [\n      {"x": 1} // theirs\n    ]\n  }\n}\n'
    changed = jsonc.append(text, ("hooks", "Stop"), {"y": 2})
    assert jsonc.read(changed)["hooks"]["Stop"] == [{"x": 1}, {"y": 2}]
    assert jsonc.remove(changed, ("hooks", "Stop", 1)) == text


@pytest.mark.parametrize(
    "text",
    ["{", '{"a": }', "{'a': 1}", '{"a": 1} x', '{"a" 1}', "[1 2]", '{"a": NaN}', "/* open", '{"a": "\n"}', "[" * 5000],
)
def test_text_that_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"line \d+ is not JSON"):
        jsonc.put(text, ("b",), 1)
    with pytest.raises(InvalidInput):
        jsonc.read(text)


def test_what_is_no_object_on_the_way_is_refused() -> None:
    with pytest.raises(InvalidInput, match="mcpServers is no JSON object"):
        jsonc.put('{"mcpServers": []}', PATH, ENTRY)
    with pytest.raises(InvalidInput, match="no list"):
        jsonc.append('{"hooks": {"Stop": 1}}', ("hooks", "Stop"), {})


def test_key_that_stands_twice_is_refused_rather_than_guessed() -> None:
    with pytest.raises(InvalidInput, match="safely"):
        jsonc.remove('{"a": 1, "a": 2}', ("a",))


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    document=st.dictionaries(st.sampled_from(["a", "b", "名", "mcpServers"]), _VALUES, max_size=4),
    indent=st.sampled_from([None, 2, 4, "\t"]),
    ending=st.sampled_from(["\n", "\r\n"]),
    comment=st.sampled_from(["", "// 注释 {\n", "/* [ */"]),
)
def test_what_goes_into_any_document_comes_out_again(document: Any, indent: Any, ending: str, comment: str) -> None:
    shown = comment + json.dumps(document, ensure_ascii=False, indent=indent)
    text = shown.replace("\n", ending)
    if not isinstance(document.get("mcpServers", {}), dict):
        with pytest.raises(InvalidInput):
            jsonc.put(text, PATH, ENTRY)
        return
    changed = jsonc.put(text, PATH, ENTRY)
    assert jsonc.read(changed)["mcpServers"]["runebook"] == ENTRY
    back = jsonc.remove(changed, PATH)
    expected = {**document, "mcpServers": {k: v for k, v in document.get("mcpServers", {}).items() if k != "runebook"}}
    assert jsonc.read(back) == expected
