"""Merge operations: each field for itself, nothing lost, nothing guessed."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.core.commit.merge_fields import FieldMerge, write_fields
from memory_core.core.commit.working_copy import WriteMode
from memory_core.core.errors import FieldRejected, PatchRejected
from memory_core.core.memory.field_values import coerce, derive
from memory_core.core.memory.memory_type import FieldType, FieldValue, MemoryField, MemoryType
from memory_core.core.memory.operations import SearchReplace

INT64_MAX = 2**63 - 1
KIND = MemoryType.model_validate(
    {
        "name": "trips",
        "description": "行程 and their costs.",
        "directory": "viking://user/{user_space}/memories/trips",
        "filename_template": "{place}.md",
        "fields": [
            {"name": "place", "merge_op": "immutable"},
            {"name": "content"},
            {"name": "pages", "type": "int64"},
            {"name": "mood", "merge_op": "replace"},
            {"name": "booked", "type": "bool", "merge_op": "replace"},
            {"name": "visits", "type": "int64", "merge_op": "sum"},
            {"name": "cost", "type": "float32", "merge_op": "sum"},
            {
                "name": "cost_per_visit",
                "type": "float32",
                "merge_op": "avg",
                "avg": {"sum": "cost", "count": "visits", "scale": 0.5},
            },
        ],
    }
)
STORED: dict[str, FieldValue] = {
    "place": "Chengdu 成都",
    "content": "Ate hotpot.\n去了宽窄巷子。",
    "mood": "calm",
    "visits": 2,
    "cost": 10.5,
}
PATCH = "<<<<<<< SEARCH\nhotpot\n=======\nnoodles\n>>>>>>> REPLACE"


def field(type_: str, merge_op: str = "replace") -> MemoryField:
    return MemoryField.model_validate({"name": "f", "type": type_, "merge_op": merge_op})


def edited(current: dict[str, FieldValue], patches: dict[str, Any]) -> FieldMerge:
    return write_fields(KIND, current, patches, WriteMode.REPLACE)


# --- coercion


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("int64", "5", 5),
        ("int64", " ５ ", 5),
        ("int64", 5.0, 5),
        ("int64", "5.0", 5),
        ("int64", "1e3", 1000),
        ("int64", "9007199254740993", 9007199254740993),
        ("int64", INT64_MAX, INT64_MAX),
        ("int64", -(2**63), -(2**63)),
        ("float32", "2.5", 2.5),
        ("float32", 3, 3.0),
        ("float32", -1e30, -1e30),
        ("bool", "true", True),
        ("bool", "False", False),
        ("bool", 1, True),
        ("bool", "是", True),
        ("bool", "否", False),
        ("string", 5, "5"),
        ("string", 2.5, "2.5"),
        ("string", True, "true"),
        ("string", ["茶", "coffee", 3], "茶, coffee, 3"),
        ("string", {"键": ["v", 1]}, '{"键": ["v", 1]}'),
        ("string", "  as it is \r\n", "  as it is \r\n"),
    ],
)
def test_plain_meaning_is_coerced(type_: str, value: object, expected: FieldValue) -> None:
    result = coerce(field(type_), value)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("int64", 5.5),
        ("int64", "5.5"),
        ("int64", "five"),
        ("int64", "五"),
        ("int64", True),
        ("int64", INT64_MAX + 1),
        ("int64", -(2**63) - 1),
        ("int64", 2.0**63),
        ("int64", "1e9999"),
        pytest.param("int64", "9" * 5_000, id="int64-long"),
        pytest.param("int64", 10**5_000, id="int64-huge"),
        ("int64", "1e-9999"),
        ("int64", math.nan),
        ("int64", [1]),
        ("float32", math.inf),
        ("float32", -math.inf),
        ("float32", math.nan),
        ("float32", "nan"),
        ("float32", "1_000"),
        ("float32", 1e39),
        pytest.param("float32", 10**400, id="float32-huge"),
        ("float32", None),
        ("bool", 2),
        ("bool", "maybe"),
        ("string", math.nan),
        ("string", [math.inf]),
        ("string", {"a": math.nan}),
        ("string", {"a": object()}),
        ("string", b"bytes"),
    ],
)
def test_value_without_a_plain_meaning_is_refused_with_a_hint(type_: str, value: object) -> None:
    with pytest.raises(FieldRejected) as caught:
        coerce(field(type_), value)
    assert caught.value.hint
    assert len(caught.value.message) < 200


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_int64_survives_as_text(value: int) -> None:
    assert coerce(field("int64"), str(value)) == value == coerce(field("int64"), value)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_every_finite_float32_survives_as_text(value: float) -> None:
    assert coerce(field("float32"), repr(value)) == value == coerce(field("float32"), value)


# --- writing


def test_write_of_a_new_memory_takes_values_as_given() -> None:
    given_: dict[str, Any] = {"place": "西安", "content": "兵马俑", "visits": "3", "cost": 2, "mood": None}
    merge = write_fields(KIND, None, given_)
    assert merge.values == {"place": "西安", "content": "兵马俑", "visits": 3, "cost": 2.0}
    assert merge.rejected == {}
    assert merge.ignored == ()


def test_a_write_that_replaces_takes_the_given_fields_and_keeps_the_others() -> None:
    merge = write_fields(KIND, STORED, {"content": "Whole new text.", "mood": "glad"}, WriteMode.REPLACE)
    assert merge.values == {**STORED, "content": "Whole new text.", "mood": "glad"}
    assert STORED["mood"] == "calm"


def test_write_adds_to_sums() -> None:
    merge = write_fields(KIND, STORED, {"visits": "3", "cost": 0.25})
    assert merge.values["visits"] == 5
    assert merge.values["cost"] == 10.75


def test_sum_beyond_int64_is_rejected_and_keeps_the_old_value() -> None:
    stored = {**STORED, "visits": INT64_MAX}
    merge = write_fields(KIND, stored, {"visits": 1, "mood": "late"})
    assert merge.values == {**stored, "mood": "late"}
    assert isinstance(merge.rejected["visits"], FieldRejected)


def test_sum_onto_a_value_that_is_no_number_is_rejected() -> None:
    merge = write_fields(KIND, {"visits": "many"}, {"visits": 1})
    assert merge.values == {"visits": "many"}
    assert "by hand" in merge.rejected["visits"].hint


def test_sum_starts_at_the_increment_where_nothing_is_stored() -> None:
    assert edited({"place": "x"}, {"visits": 4}).values["visits"] == 4


@pytest.mark.parametrize("same", ["Chengdu 成都", "  CHENGDU　成都 ", "ｃｈｅｎｇｄｕ 成都"])
def test_immutable_field_accepts_its_own_normalised_value(same: str) -> None:
    for merge in (write_fields(KIND, STORED, {"place": same}), edited(STORED, {"place": same})):
        assert merge.rejected == {}
        assert merge.values["place"] == "Chengdu 成都"


def test_immutable_field_never_takes_another_value() -> None:
    for merge in (write_fields(KIND, STORED, {"place": "重庆"}), edited(STORED, {"place": "重庆"})):
        assert merge.values["place"] == "Chengdu 成都"
        assert "immutable" in merge.rejected["place"].message


def test_immutable_field_that_was_never_set_can_be_set() -> None:
    assert write_fields(KIND, {"place": "", "mood": "x"}, {"place": "西安"}).values["place"] == "西安"


def test_new_memory_never_stores_a_patch_but_may_quote_one() -> None:
    merge = write_fields(KIND, None, {"place": "x", "content": PATCH})
    assert "content" not in merge.values
    assert isinstance(merge.rejected["content"], PatchRejected)
    quoted = f"补丁的格式：\n{PATCH}"
    assert write_fields(KIND, None, {"content": quoted}).values["content"] == quoted
    assert write_fields(KIND, {"content": quoted}, {"content": quoted}).rejected == {}


def test_averages_unknown_names_and_blank_numbers_are_ignored() -> None:
    given_ = {"cost_per_visit": 3.0, "天气": "雨", "visits": "", "booked": " ", "mood": ""}
    merge = write_fields(KIND, STORED, given_)
    assert merge.ignored == ("cost_per_visit", "天气", "visits", "booked")
    assert merge.values == {**STORED, "mood": ""}
    assert edited(STORED, {"cost_per_visit": 3.0}).ignored == ("cost_per_visit",)


# --- editing


def test_edit_applies_every_patch_form() -> None:
    blocks = [SearchReplace(search="hotpot", replace="noodles"), SearchReplace(search="宽窄巷子", replace="武侯祠")]
    assert edited(STORED, {"content": PATCH}).values["content"] == "Ate noodles.\n去了宽窄巷子。"
    assert edited(STORED, {"content": blocks}).values["content"] == "Ate noodles.\n去了武侯祠。"
    assert edited(STORED, {"content": "整段替换"}).values["content"] == "整段替换"
    assert edited(STORED, {"content": []}).values == STORED


def test_edit_of_replace_and_sum_fields_takes_plain_values() -> None:
    merge = edited(STORED, {"mood": "glad", "visits": 1, "booked": "yes", "pages": 7})
    assert merge.values == {**STORED, "mood": "glad", "visits": 3, "booked": True, "pages": 7}


def test_patch_given_to_a_field_that_takes_none_is_rejected() -> None:
    blocks = [SearchReplace(search="calm", replace="glad")]
    merge = edited(STORED, {"mood": blocks, "visits": blocks, "place": PATCH, "content": "fine"})
    assert set(merge.rejected) == {"mood", "visits", "place"}
    assert merge.values == {**STORED, "content": "fine"}
    assert "mood" in write_fields(KIND, STORED, {"mood": PATCH}).rejected


def test_patch_of_a_number_edits_its_digits_and_must_leave_a_number() -> None:
    stored: dict[str, FieldValue] = {"pages": 120}
    assert edited(stored, {"pages": [SearchReplace(search="120", replace="130")]}).values == {"pages": 130}
    merge = edited(stored, {"pages": [SearchReplace(search="120", replace="many")]})
    assert merge.values == stored
    assert isinstance(merge.rejected["pages"], FieldRejected)


def test_malformed_patch_is_rejected_and_leaves_the_field() -> None:
    for broken in ("<<<<<<< SEARCH\nhotpot\n=======\nx", f"Sure:\n{PATCH}"):
        merge = edited(STORED, {"content": broken, "mood": "glad"})
        assert merge.values == {**STORED, "mood": "glad"}
        assert isinstance(merge.rejected["content"], PatchRejected)


ANY = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["支付 😀 -->", PATCH, "<<<<<<< SEARCH\n", "a\r\nb", ""]),
    st.lists(st.integers(), max_size=2),
)
GIVEN = st.dictionaries(st.sampled_from([*(f.name for f in KIND.fields), "unknown"]), ANY)


@given(GIVEN, st.booleans())
def test_each_field_merges_as_if_it_came_alone(given_: dict[str, Any], creates: bool) -> None:
    stored = None if creates else STORED
    together = write_fields(KIND, stored, given_)
    for name, value in given_.items():
        alone = write_fields(KIND, stored, {name: value})
        assert together.values.get(name) == alone.values.get(name)
        assert (name in together.rejected) == (name in alone.rejected)
        assert (name in together.ignored) == (name in alone.ignored)
    for name, old in STORED.items() if stored else ():
        if name not in given_ or name in together.rejected:
            assert together.values[name] == old
    json.dumps(together.values, allow_nan=False)


@given(GIVEN)
def test_merged_values_have_their_declared_type(given_: dict[str, Any]) -> None:
    python = {FieldType.STRING: str, FieldType.INT64: int, FieldType.FLOAT32: float, FieldType.BOOL: bool}
    for name, value in write_fields(KIND, STORED, given_).values.items():
        declared = KIND.field(name)
        assert declared is not None
        assert type(value) is python[declared.type]


# --- averages


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"cost": 10.0, "visits": 4}, 1.25),
        ({"cost": "10", "visits": "4"}, 1.25),
        ({"cost": 0.0, "visits": 4}, 0.0),
        ({"cost": 10.0, "visits": 0}, None),
        ({"cost": 10.0}, None),
        ({"visits": 4}, None),
        ({"cost": "a lot", "visits": 4}, None),
        ({"cost": 10.0, "visits": 4, "cost_per_visit": 99.0}, 1.25),
        ({}, None),
    ],
)
def test_average_is_derived_or_unknown(values: dict[str, FieldValue], expected: float | None) -> None:
    assert derive(KIND, values) == {"cost_per_visit": expected}
