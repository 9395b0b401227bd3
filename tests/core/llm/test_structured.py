"""Answers of every shape that models write, read back or refused whole."""

from __future__ import annotations

import json
import time
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from memory_core.core.errors import AnswerCut, AnswerUnusable, ModelRefused
from memory_core.core.llm.client import Completion, StopReason, Turn
from memory_core.core.llm.structured import Dialect, JSONAdapter, strict, system_text
from memory_core.core.memory.metadata import METADATA
from memory_core.core.memory.operations import (
    DeleteOp,
    EditOp,
    GivenLink,
    MemoryData,
    MemoryOperations,
    OverviewOp,
    ReasoningAction,
    SearchReplace,
    WriteOp,
)

ADAPTER = JSONAdapter(ReasoningAction)

ENGLISH = {
    "reasoning": 'The user said: "no sugar" {really}.',
    "memory_changes": [{"change_type": "add", "memory_type": "preferences", "reason": "new"}],
    "operations": {
        "write_operations": [
            {"memory_data": {"memory_type": "preferences", "fields": {"topic": "Coffee", "content": "No sugar; a } b"}}}
        ]
    },
}
CHINESE = {
    "reasoning": "用户说：“不加糖”，还提到{括号}。",
    "memory_changes": [{"change_type": "add", "memory_type": "preferences", "reason": "新的喜好"}],
    "operations": {
        "write_operations": [
            {"memory_data": {"memory_type": "preferences", "fields": {"topic": "咖啡", "content": "不加糖\n```\n]}"}}}
        ]
    },
}


def expected(answer: dict[str, Any]) -> ReasoningAction:
    return ReasoningAction.model_validate(answer)


def compact(answer: Any) -> str:
    return json.dumps(answer, ensure_ascii=False)


SHAPES = {
    "bare": lambda a: compact(a),
    "indented": lambda a: json.dumps(a, indent=2),
    "fenced": lambda a: f"```json\n{compact(a)}\n```",
    "fence that never closes": lambda a: f"```json\n{compact(a)}",
    "prefixed in Chinese": lambda a: f"以下是结果：\n{compact(a)}\n希望对你有帮助。",
    "prose with braces before": lambda a: f"I keep {{topic}} and {{name: value}} pairs [1] in mind.\n{compact(a)}",
    "another object before": lambda a: f'First {{"step": 1}} then {compact(a)}',
    "safety text after": lambda a: f"{compact(a)}\n\nNote: I left out {{private}} data for safety.",
    "a closing brace too many": lambda a: f"{compact(a)}}}",
    "thinking before": lambda a: f'<think>Maybe {{"reasoning": "draft"}}?</think>\n<think>b</think>{compact(a)}',
    "thinking without its opening mark": lambda a: f'Let me see {{"reasoning": "draft"}}</think>{compact(a)}',
    "a damaged draft before": lambda a: f'Draft: {{"reasoning": ["draft"}} no.</think>{compact(a)}',
    "array": lambda a: compact([a, {"reasoning": "second"}]),
    "array with strangers": lambda a: compact([1, "x", {"other": 1}, a]),
    "JSON in a string twice": lambda a: compact(compact(compact(a))),
    "tool call": lambda a: compact({"name": "answer", "arguments": a}),
    "tool call with text": lambda a: compact({"name": "answer", "arguments": compact(a)}),
    "Anthropic's tool use": lambda a: compact({"type": "tool_use", "id": "t", "name": "answer", "input": a}),
    "Anthropic's content": lambda a: compact([{"type": "text", "text": "Done."}, {"type": "tool_use", "input": a}]),
    "OpenAI's tool calls": lambda a: compact(
        {"content": None, "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": compact(a)}}]}
    ),
    "envelope": lambda a: compact({"response": {"data": a}}),
    "envelope with reasoning beside": lambda a: compact({"reasoning": "I call", "tool_calls": [{"arguments": a}]}),
    "the schema echoed first": lambda a: f"{compact(ADAPTER.schema)}\n{compact(a)}",
    "operations one level too high": lambda a: compact(
        {key: value for key, value in a.items() if key != "operations"} | a["operations"]
    ),
    "operations as text": lambda a: compact(a | {"operations": compact(a["operations"])}),
    "trailing commas": lambda a: compact(a).replace("}]", "},]"),
    "comments": lambda a: compact(a).replace('"memory_changes"', '// plan\n /* "x" */ "memory_changes"'),
    "byte order mark": lambda a: f"\ufeff{compact(a)}",
    "line breaks in strings": lambda a: compact(a).replace("\\n", "\n"),
}


@pytest.mark.parametrize("answer", [ENGLISH, CHINESE], ids=["english", "chinese"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_read(shape: str, answer: dict[str, Any]) -> None:
    parsed = ADAPTER.parse(SHAPES[shape](answer))
    assert parsed.value == expected(answer)
    assert parsed.dropped == ()


@pytest.mark.parametrize(
    ("text", "reasoning"),
    [
        ("{'reasoning': 'it is so', 'operations': None, 'actions': []}", "it is so"),
        ('{reasoning: "unquoted key"}', "unquoted key"),
        ('{"reasoning": "He said "hi" to me", "actions": []}', 'He said "hi" to me'),
        ('{"reasoning": "He said "yes", then left", "actions": []}', 'He said "yes", then left'),
        ('{"reasoning": "a 5" pipe", "actions": [],}', 'a 5" pipe'),
        ('{"reasoning": "用户说"你好"，然后离开", "actions": []}', '用户说"你好"，然后离开'),
        ('{"reasoning": "x" "actions": []}', "x"),
        ('{"reasoning": "about the mark </think> itself"}', "about the mark </think> itself"),
    ],
)
def test_small_faults_are_repaired(text: str, reasoning: str) -> None:
    assert ADAPTER.parse(text).value.reasoning == reasoning


@pytest.mark.parametrize(
    "wrap", ["{}", "```json\n{}", "Here it is: {}", "<think>…</think>{}", "{}\n```", "{}\n[truncated]"]
)
@pytest.mark.parametrize("answer", [ENGLISH, CHINESE], ids=["english", "chinese"])
def test_an_answer_that_ends_early_is_refused_at_every_place(wrap: str, answer: dict[str, Any]) -> None:
    whole = compact(answer)
    first = whole.index('"reasoning"') + len('"reasoning"')
    for end in range(first, len(whole)):
        with pytest.raises((AnswerCut, AnswerUnusable)):
            ADAPTER.parse(wrap.replace("{}", whole[:end]))


def test_an_answer_that_ends_early_is_named_as_cut() -> None:
    for text in (
        compact(ENGLISH)[:-1],
        compact([ENGLISH, CHINESE])[:-30],
        compact({"arguments": compact(ENGLISH)[:-9]}),
    ):
        with pytest.raises(AnswerCut, match="nothing of it was used"):
            ADAPTER.parse(text)
    with pytest.raises(AnswerCut, match="thinking"):
        ADAPTER.parse("<think>I will {")


def test_an_answer_at_the_token_limit_and_a_refusal_are_errors_of_their_own() -> None:
    with pytest.raises(AnswerCut, match="token limit"):
        ADAPTER.parse(Completion(compact(ENGLISH), StopReason.LENGTH))
    with pytest.raises(ModelRefused, match="cannot help"):
        ADAPTER.parse(Completion("I cannot help with that.", StopReason.REFUSAL))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   \n",
        "Nothing worth remembering today.",
        "没有值得记住的内容。",
        "{}",
        "[]",
        "null",
        '"text"',
        '{"other": {"thing": 1}}',
        compact(ReasoningAction.model_json_schema()),
        '{"reasoning": "x"}, "operations": {"write_operations": []}}',
        '{"reasoning": "say "}", then", "operations": 1}',
        '{"reasoning": "x",, "summary": "say "}", then go"}',
        '{"reasoning": "x", "actions": [{"action_type": "read"}, "operations": {}}',
        '{"reasoning": "x", "operations": "write it down"}',
        '{"reasoning": "x", "operations": [1, 2]}',
        "a" * 199 + "bcd" * 5_000 + "\ud800",
    ],
)
def test_what_is_no_answer_is_unusable_and_its_beginning_quoted(text: str) -> None:
    with pytest.raises(AnswerUnusable) as caught:
        ADAPTER.parse(text)
    assert "it wrote:" in caught.value.hint
    assert len(caught.value.hint) < 400


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"reasoning":' * 50_000,
        '{"reasoning": ' + "[" * 500 + "]" * 500 + "}",
        '{"reasoning": "x", "operations": ' + '{"a":' * 60 + "1" + "}" * 60 + "}",
        "[" + '"{a:",' * 60_000 + "1]",
        '{"x": "' + 'y" ' * 200_000 + '"}',
        '{"x": ["' + 'y"z ' * 10_000 + '"]}',
        '[{"x": 1, "x": 2}, {"x": ["' + 'y"z ' * 10_000 + '"]}]',
        '{"x": [' + "(" * 90_000 + "]}",
        "{a:1}" * 100_000,
        "x" * 1_000_001,
    ],
    ids=[
        *("array bomb", "object bomb", "deep array", "deep object", "strings", "quotes", "quotes in an array"),
        *("quotes behind a key told twice", "brackets", "objects", "long"),
    ],
)
def test_hostile_text_is_refused_quickly(text: str) -> None:
    started = time.process_time()
    with pytest.raises((AnswerCut, AnswerUnusable)):
        ADAPTER.parse(text)
    assert time.process_time() - started < 5.0


def test_numbers_that_json_cannot_hold_become_text_or_nothing() -> None:
    data = '{"memory_type": "facts", "fields": {"a": 1e999, "b": NaN, "c": -Infinity, "d": ' + "7" * 5_000 + "}}"
    parsed = ADAPTER.parse('{"operations": {"write_operations": [{"memory_data": ' + data + "}]}}")
    assert parsed.value.operations is not None
    fields = parsed.value.operations.write_operations[0].memory_data.fields
    assert fields == {"a": "1e999", "b": None, "c": None, "d": "7" * 5_000}


class Inner(BaseModel):
    label: str
    weight: float = 1.0


class Shape(BaseModel):
    text: str = "default"
    number: int = 7
    ratio: float | None = None
    flag: bool = False
    note: str | None = "unset"
    words: list[str] = Field(default_factory=list)
    maybe_words: list[str] | None = None
    items: list[Inner] = Field(default_factory=list)
    inner: Inner | None = None
    kind: Literal["add", "noop"] = "add"
    fields: dict[str, str | int | float | bool | None] = Field(default_factory=dict)
    limits: dict[str, int] = Field(default_factory=dict)


COMPAT: list[tuple[str, Any, Any]] = [
    ("text", ["a", "b"], "a, b"),
    ("text", ["苹果", 2, True], "苹果, 2, true"),
    ("text", {"键": "值"}, '{"键": "值"}'),
    ("text", [{"a": 1}], '[{"a": 1}]'),
    ("text", 5, "5"),
    ("text", "None", "None"),
    ("text", None, "default"),
    ("number", " 1,200 ", 1200),
    ("number", "５", 5),
    ("number", "12.0", 12),
    ("number", [3], 3),
    ("number", "None", 7),
    ("ratio", "0.5", 0.5),
    ("ratio", "None", None),
    ("ratio", "NULL", None),
    ("flag", "true", True),
    ("flag", "no", False),
    ("note", "None", None),
    ("note", None, None),
    ("note", "Nonesuch", "Nonesuch"),
    ("words", "茶", ["茶"]),
    ("words", '["a", "b"]', ["a", "b"]),
    ("words", 3, ["3"]),
    ("words", "", []),
    ("words", ["None", 1], ["None", "1"]),
    ("maybe_words", "null", None),
    ("maybe_words", "null pointer", ["null pointer"]),
    ("items", {"label": "x"}, [Inner(label="x")]),
    ("items", '[{"label": "x", "weight": "2"}]', [Inner(label="x", weight=2.0)]),
    ("items", "None", []),
    ("inner", '{"label": "x"}', Inner(label="x")),
    ("inner", [{"label": "x"}], Inner(label="x")),
    ("inner", "None", None),
    ("kind", "ADD", "add"),
    ("kind", "Create", "add"),
    ("kind", "跳过", "noop"),
    ("kind", "none", "noop"),
    ("kind", ["NOOP"], "noop"),
    ("fields", {"content": "None", "n": None, "b": True, "i": 3}, {"content": "None", "n": None, "b": True, "i": 3}),
    ("fields", {"list": ["a", "b"], "object": {"k": 1}}, {"list": "a, b", "object": '{"k": 1}'}),
    ("fields", [{"name": "主题", "value": "茶"}, {"name": "n", "value": 2}], {"主题": "茶", "n": 2}),
    ("fields", [{"key": "a", "value": "x"}, {"field": "b", "value": "y"}], {"a": "x", "b": "y"}),
    ("fields", [{"a": "x"}, {"b": "y"}], {"a": "x", "b": "y"}),
    ("fields", '{"a": 1}', {"a": 1}),
    ("limits", [{"name": "a", "value": "4"}], {"a": 4}),
]


@pytest.mark.parametrize(("member", "raw", "value"), COMPAT, ids=[f"{case[0]}-{compact(case[1])}" for case in COMPAT])
def test_compat_rule(member: str, raw: Any, value: Any) -> None:
    parsed = JSONAdapter(Shape).parse(compact({member: raw}))
    found = getattr(parsed.value, member)
    assert (found, type(found)) == (value, type(value))
    assert parsed.dropped == ()


def test_unknown_members_are_ignored_and_missing_ones_have_their_defaults() -> None:
    parsed = JSONAdapter(Shape).parse('{"number": 1, "strange": {"x": [1]}, "": 2}')
    assert parsed.value == Shape(number=1)


def test_a_bad_item_is_dropped_alone_and_named() -> None:
    answer = {
        "memory_changes": [
            {"change_type": "explode", "memory_type": "facts"},
            {"change_type": "EDIT", "memory_type": "facts"},
        ],
        "actions": [{"action_type": "delete"}, {"action_type": "SEARCH", "query": "茶", "limit": "3"}],
        "operations": {
            "write_operations": [
                {"memory_data": {"memory_type": "facts", "fields": {"content": "一"}, "salience": 7}},
                {"memory_data": {"fields": {"content": "typeless"}}},
                {"memory_data": {"memory_type": "facts", "fields": "no map"}},
                {
                    "memory_type": "facts",
                    "fields": {"content": "二"},
                    "links": [{"uri": "viking://x"}, {"relation": "r"}],
                },
            ],
            "edit_operations": [
                {"uri": "viking://a", "patches": {"content": {"search": "old", "replace": "new"}}},
                {
                    "uri": "viking://b",
                    "patches": {"content": [{"search": "old", "replace": "new"}, {"search": "half"}]},
                },
                {"uri": "viking://c", "patches": {"content": "x"}},
            ],
            "delete_operations": "viking://d",
        },
    }
    parsed = ADAPTER.parse(compact(answer))
    value = parsed.value
    assert [change.change_type for change in value.memory_changes] == ["update"]
    assert [(action.action_type, action.params.query, action.params.limit) for action in value.actions] == [
        ("find", "茶", 3)
    ]
    assert value.operations is not None
    assert [write.memory_data.fields["content"] for write in value.operations.write_operations] == ["一", "二"]
    assert [edit.uri for edit in value.operations.edit_operations] == ["viking://a", "viking://c"]
    assert value.operations.edit_operations[0].patches == {"content": [SearchReplace(search="old", replace="new")]}
    assert [line.split(": ")[0] for line in parsed.dropped] == [
        "memory_changes[0].change_type",
        "actions[0].action_type",
        "operations.write_operations[0].memory_data.salience",
        "operations.write_operations[1].memory_data.memory_type",
        "operations.write_operations[2].memory_data.fields",
        "operations.write_operations[3].memory_data.links[1].uri",
        "operations.edit_operations[1].patches.content[1].replace",
        "operations.delete_operations[0]",
    ]


def test_reports_of_dropped_items_are_bounded_and_hold_no_half_surrogates() -> None:
    parsed = ADAPTER.parse(compact({"reasoning": "x", "actions": [{"action_type": "no"}] * 5_000}))
    assert len(parsed.dropped) == 51
    assert parsed.dropped[-1] == "… and 4950 more"
    parsed = ADAPTER.parse('{"reasoning": "ok", "actions": [{"action_type": "\\ud83d"}]}')
    assert parsed.value.actions == []
    assert "\\ud83d" in parsed.dropped[0]
    parsed.dropped[0].encode()


def test_a_name_given_twice_is_one_patch_of_several_blocks_or_drops_the_operation() -> None:
    def parsed(patches: Any) -> tuple[list[EditOp], tuple[str, ...]]:
        found = ADAPTER.parse(compact({"edit_operations": [{"uri": "viking://a", "patches": patches}]}))
        assert found.value.operations is not None
        return found.value.operations.edit_operations, found.dropped

    def pairs(*values: str) -> list[dict[str, str]]:
        return [{"name": "content", "value": value} for value in values]

    blocks = [f"<<<<<<< SEARCH\n{old}\n=======\n新\n>>>>>>> REPLACE" for old in ("旧一", "旧二")]
    for patches in (pairs(*blocks), {"content": blocks}):
        (edit,), _ = parsed(patches)
        assert edit.patches == {"content": "\n".join(blocks)}
    where = "operations.edit_operations[0].patches.content"
    assert parsed(pairs("one", "two")) == ([], (f"{where}: is given twice with different values",))


# What goes over the wire ---------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    ["None", "null", "", "-->", "```", '{"a": 1}', "[1]", "说“好”", "<think>", "</think>", "😀", '"', "\\", "a\r\nb"]
)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10)
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)
scalars = texts | numbers | st.booleans()
optional_texts = st.none() | texts.filter(lambda text: text.strip().casefold() not in ("none", "null"))
units = st.none() | st.floats(0, 1)
blocks = st.builds(SearchReplace, search=texts, replace=texts, start_line=st.none() | st.integers(1, 99))
writes = st.builds(
    WriteOp,
    uri=optional_texts,
    memory_data=st.builds(
        MemoryData,
        memory_type=texts,
        fields=st.dictionaries(names, st.none() | scalars, max_size=3),
        abstract=optional_texts,
        salience=units,
        tags=st.none() | st.lists(texts, max_size=3),
        links=st.none()
        | st.lists(st.builds(GivenLink, uri=texts, relation=texts, strength=st.floats(0, 1)), max_size=2),
    ),
)
edits = st.builds(
    EditOp, uri=texts, patches=st.dictionaries(names, scalars | st.lists(blocks, min_size=1, max_size=2), max_size=3)
)
operations = st.builds(
    MemoryOperations,
    reasoning=optional_texts,
    write_operations=st.lists(writes, max_size=2),
    edit_operations=st.lists(edits, max_size=2),
    delete_operations=st.lists(
        st.builds(DeleteOp, uri=texts, replacement_uri=optional_texts, reason=optional_texts), max_size=2
    ),
    overview_operations=st.lists(
        st.builds(OverviewOp, directory_uri=texts, abstract=optional_texts, overview=optional_texts), max_size=2
    ),
)


def to_wire(value: ReasoningAction, dialect: Dialect) -> Any:
    """The answer as a model under the strict schema writes it: maps as pairs; nulls written, or left out."""

    def written(node: Any, key: str = "") -> Any:
        if isinstance(node, list):
            return [written(item) for item in node]
        if not isinstance(node, dict):
            return node
        if key in ("fields", "patches"):
            return [{"name": name, "value": written(item)} for name, item in node.items()]
        # Some metadata is a person's to say, not a model's; and a brief is a client's to name.
        acts = "write" if "memory_type" in node else "edit"
        unsaid = {"brief_id", *(field.name for field in METADATA if acts in field.given_by - field.shown_in)}
        return {
            name: written(item, name)
            for name, item in node.items()
            if item is not None or (dialect == "openai" and name not in unsaid)
        }

    return written(value.model_dump())


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
@settings(max_examples=40)
@given(
    operations=operations,
    reasoning=texts,
    shape=st.sampled_from(["bare", "fenced", "prefixed in Chinese", "thinking before", "tool call with text", "array"]),
)
def test_what_the_strict_schema_allows_comes_back_equal(
    dialect: Dialect, operations: MemoryOperations, reasoning: str, shape: str
) -> None:
    answer = ReasoningAction(reasoning=reasoning, operations=operations)
    wire = to_wire(answer, dialect)
    Draft202012Validator(strict(ADAPTER.schema, dialect)).validate(wire)
    parsed = ADAPTER.parse(SHAPES[shape](wire))
    assert parsed.value == answer
    assert parsed.dropped == ()


@settings(max_examples=40)
@given(
    operations=operations,
    reasoning=texts,
    share=st.floats(0, 1),
    after=st.sampled_from(["", "\n```", "…", "[truncated]"]),
)
def test_no_part_of_an_answer_is_ever_taken_for_the_whole(
    operations: MemoryOperations, reasoning: str, share: float, after: str
) -> None:
    whole = compact(to_wire(ReasoningAction(reasoning=reasoning, operations=operations, summary="end"), "anthropic"))
    end = 12 + int(share * (len(whole) - 13))  # after the first key, before the last brace
    with pytest.raises((AnswerCut, AnswerUnusable)):
        ADAPTER.parse(whole[:end] + after)


@given(text=st.text(max_size=200) | st.text('{}[]",:\\ \nreasoning', max_size=80))
def test_no_text_crashes(text: str) -> None:
    try:
        ADAPTER.parse(text)
    except (AnswerCut, AnswerUnusable) as error:
        str(error).encode()


def nodes(schema: Any) -> list[dict[str, Any]]:
    if isinstance(schema, list):
        return [node for item in schema for node in nodes(item)]
    if not isinstance(schema, dict):
        return []
    return [schema, *(node for value in schema.values() for node in nodes(value))]


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_the_strict_schema_keeps_to_the_providers_limits(dialect: Dialect) -> None:
    schema = strict(ADAPTER.schema, dialect)
    Draft202012Validator.check_schema(schema)
    objects = [node for node in nodes(schema) if node.get("type") == "object"]
    assert all(node["additionalProperties"] is False for node in objects)
    unknown = {"default", "title", "minimum", "maximum", "$ref", "$defs", "format", "pattern", "allOf", "oneOf"}
    assert not [node for node in nodes(schema) if unknown & {key for key in node if not isinstance(node[key], dict)}]
    left_out = sum(len(node["properties"]) - len(node["required"]) for node in objects)
    unions = [node for node in nodes(schema) if isinstance(node.get("anyOf"), list)]
    if dialect == "openai":
        assert left_out == 0
    else:
        assert left_out <= 24
        assert len(unions) <= 16


def test_a_recursive_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="recursive"):
        strict({"$ref": "#/$defs/T", "$defs": {"T": {"properties": {"t": {"$ref": "#/$defs/T"}}}}}, "openai")


def test_the_outline_is_added_only_where_the_schema_is_not_enforced_or_not_seen() -> None:
    request = ADAPTER.format("RULES 规则", [Turn("user", "hi")], 100)
    enforced = system_text(request, "json_schema")
    assert enforced.startswith("RULES 规则")
    assert "write_operations" not in enforced
    assert '`fields`: [{"name": …, "value": …}]' in enforced
    assert '"fields": [{"name": string' in system_text(request, "json_schema", shown=True)
    plain = system_text(request, "text")
    assert '"fields"?: {"<name>": string or number or boolean, …}' in plain
    assert '"add"|"update"|"delete"|"noop"' in plain
    assert "JSON" in plain
    assert system_text(JSONAdapter(Inner).format("S", [], 1), "json_schema") == "S"


def test_the_memory_types_that_there_are_guide_the_model_and_another_one_is_still_read() -> None:
    adapter = JSONAdapter(ReasoningAction, choices={"memory_type": ["facts", "事实"]})
    text = json.dumps(strict(adapter.schema, "openai"), ensure_ascii=False)
    assert text.count('"enum": ["facts", "事实"]') == 2
    other = compact({"memory_changes": [{"change_type": "add", "memory_type": "recipes"}]})
    assert adapter.parse(other).value.memory_changes[0].memory_type == "recipes"
