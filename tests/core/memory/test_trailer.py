"""What a trailer's JSON says, read as a value, whatever a hand edit made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from memory_core.core.memory.trailer import read_members


@dataclass(frozen=True)
class Page:
    first: int
    words: tuple[str, ...] = ()
    date: str | None = None


@dataclass(frozen=True)
class Book:
    title: str = ""
    pages: tuple[Page, ...] = ()
    chapters: Mapping[int, str] = field(default_factory=dict)
    weight: float = 1.0
    read: bool = False


def test_members_of_a_value_are_read_and_what_a_hand_edit_spoilt_counts_as_missing() -> None:
    given = {
        "title": ["no text"],
        "pages": [{"first": 1, "words": ["茶", 2], "more": 3}, {"words": []}, "no page", {"first": True}],
        "chapters": {"1": "one", "x": "two", "9" * 5_000: "far", "2": 2},
        "weight": 2,
        "read": "yes",
    }
    assert read_members(Book, given) == Book("", (Page(1, ("茶",)),), {1: "one"}, 2.0, False)
    assert read_members(Page, {"words": ["a"]}) is None
    assert read_members(Page, "nothing") is None
    assert read_members(Page, Page(3)) == Page(3)
