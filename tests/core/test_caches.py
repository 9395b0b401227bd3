"""Caches: the value of what grew is the value of the whole, however it came about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from hypothesis import given
from hypothesis import strategies as st

from memory_core.core.caches import tallied
from memory_core.core.memory.exchange import ExchangeStarts, exchange_spans, opener_of, speaker_of, starts_exchange
from memory_core.core.memory.message import Message


@dataclass(frozen=True)
class Item:
    """Equal to others of its value, and no number: two of them are two objects."""

    value: int


class Values:
    def __init__(self) -> None:
        self.values: list[int] = []
        self.added = 0

    def add(self, item: Item) -> None:
        self.values.append(item.value)
        self.added += 1

    def copy(self) -> Self:
        twin = type(self)()
        twin.values = self.values.copy()
        return twin


def test_of_a_sequence_that_grew_only_the_end_is_counted() -> None:
    class OwnValues(Values):
        """Of which nothing was counted yet."""

    items = [Item(number) for number in range(5)]
    assert tallied(OwnValues, items).added == 5
    grown = tallied(OwnValues, [*items, Item(5), Item(6)])
    assert (grown.added, grown.values) == (2, [0, 1, 2, 3, 4, 5, 6])
    assert tallied(OwnValues, [Item(value) for value in range(8)]).added == 1  # equal ones count as the same


@given(st.lists(st.lists(st.integers(0, 3), max_size=6), max_size=12))
def test_whatever_was_counted_before_a_sequence_gives_its_own_count(sequences: list[list[int]]) -> None:
    for values in sequences:
        assert tallied(Values, [Item(value) for value in values]).values == values


@given(
    st.lists(st.tuples(st.sampled_from(["user", "assistant", "system", "tool"]), st.sampled_from([None, "A", "B"]))),
    st.integers(0, 30),
)
def test_exchanges_start_where_they_are_found_in_the_whole(said: list[tuple[str, str | None]], since: int) -> None:
    messages = [Message(role=role, text=str(at), name=name) for at, (role, name) in enumerate(said)]
    spans = exchange_spans(messages)
    speakers = [speaker_of(message) for message in messages]
    opener = opener_of(speakers)
    spoken = next((at for at, speaker in enumerate(speakers) if speaker is not None), 0)
    later = [at for at in range(spoken + 1, len(messages)) if starts_exchange(speakers.__getitem__, at, opener)]
    assert [first for first, _ in spans] == [0, *later][: len(messages)]
    starts = tallied(ExchangeStarts, messages)
    assert starts.starts == [first for first, _ in spans]
    places = range(min(since, len(messages)), len(messages))
    assert starts.count_touched(places, ()) == sum(end > places.start for _, end in spans if places)
    odd = frozenset(place for place in places if place % 2)
    left = {place for place in places if not place % 2}
    assert starts.count_touched(places, odd) == sum(not left.isdisjoint(range(*span)) for span in spans) or not odd
