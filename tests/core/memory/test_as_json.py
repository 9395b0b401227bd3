"""The JSON form of results: fields in their order, what says nothing left out, names as a class declares them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ClassVar

import pytest

from memory_core.core.memory.results import Hit, as_json
from memory_core.core.memory.uri import MemoryUri


class Colour(StrEnum):
    GREEN = "green"


@dataclass(frozen=True)
class Tea:
    name: str
    colour: Colour = Colour.GREEN
    grams: int = 0
    note: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cup:
    JSON: ClassVar = "*tea size:millilitres is_full? label"

    tea: Tea
    size: int
    label: str | None = None

    @property
    def is_full(self) -> bool:
        return self.size > 100


def test_fields_at_an_empty_default_are_left_out_and_others_kept() -> None:
    assert as_json(Tea("绿茶")) == {"name": "绿茶", "colour": "green", "grams": 0}
    assert list(as_json(Tea("", tags=("a",), note=""))) == ["name", "colour", "grams", "note", "tags"]


def test_a_class_names_its_members_in_their_order() -> None:
    small = as_json(Cup(Tea("x"), 90))
    assert list(small.items()) == [
        *(("name", "x"), ("colour", "green"), ("grams", 0)),
        *(("millilitres", 90), ("label", None)),
    ]
    assert as_json(Cup(Tea("x"), 200))["is_full"] is True


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (MemoryUri.parse("viking://user/default/茶.md"), "viking://user/default/茶.md"),
        (datetime(2026, 5, 1, 12, tzinfo=UTC), "2026-05-01T12:00:00.000+00:00"),
        ({Colour.GREEN: (1, 2.5)}, {"green": [1, 2.5]}),
        ([None, True, Tea("x")], [None, True, {"name": "x", "colour": "green", "grams": 0}]),
    ],
)
def test_values_that_json_has_not_become_text_or_lists(value: Any, form: Any) -> None:
    assert as_json(value) == form


def test_a_hit_keeps_an_unknown_time_and_leaves_out_what_it_has_not() -> None:
    found = as_json(Hit("u", "memory", "notes", 0.5, "x", None, {"lexical": 1.0}))
    assert list(found) == ["uri", "context_type", "memory_type", "score", "abstract", "updated_at", "confidence", "why"]
    assert found["updated_at"] is None
