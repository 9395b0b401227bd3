"""Caches: the value of what grew is the value of the whole, however it came about."""

from __future__ import annotations

import subprocess
import sys
import threading
import weakref
from dataclasses import dataclass
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.core.caches import PrefixCache, RecentCache, _tallies, held_bytes, reading_once, remembered, tallied
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


def test_recent_values_are_bounded_in_bytes_and_one_too_large_drives_nobody_out() -> None:
    cache: RecentCache[str, str] = RecentCache(100, 10_000)
    for name in "abcde":
        cache.put(name, name * 3_000)
    assert [name for name in "abcde" if cache.get(name) is not None] == ["c", "d", "e"]
    cache.put("f", "\U0001f375" * 3_000)  # four bytes a character
    assert cache.get("f") is None
    assert cache.get("e") == "e" * 3_000
    for _ in range(10):
        cache.put("e", "e" * 4_000)  # counted once
    assert cache.get("d") is not None
    last: RecentCache[str, str] = RecentCache(100, 10_000, keeps_last=True)
    for name, chars in (("a", 3_000), ("b", 30_000), ("b", 40_000)):
        last.put(name, name * chars)
    assert (last.get("a"), last.get("b")) == (None, "b" * 40_000)
    last.put("a", "a")
    assert (last.get("a"), last.get("b")) == ("a", None)


def test_a_function_remembers_short_texts_and_reads_long_ones_anew() -> None:
    asked: list[str] = []

    @remembered(100, 10_000)
    def length(text: str) -> int:
        asked.append(text)
        return len(text)

    for text in ("short", "short", "l" * 20_000, "l" * 20_000, "short"):
        assert length(text) == len(text)
    assert list(map(len, asked)) == [5, 20_000, 20_000]


def test_the_last_text_stays_however_long_until_another_comes() -> None:
    read: list[int] = []

    def extend(count: int, text: str) -> int:
        read.append(len(text))
        return count + len(text)

    cache: PrefixCache[str, int] = PrefixCache(16, 10_000)
    for text in ("s" * 4_000, "l" * 20_000, "l" * 20_000, "l" * 20_001, "s" * 4_000, "l" * 20_001):
        cache.value(text, 0, extend)
    assert read == [4_000, 20_000, 1, 20_001]


def test_tallies_are_bounded_by_what_their_items_and_they_themselves_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory_core.core.caches._SEQUENCES_BYTES", 20_000)

    class OfTexts(Values):
        def add(self, _item: object) -> None:
            self.added += 1

    for letter, count in zip("abcd", (3, 3, 10, 1), strict=True):
        assert tallied(OfTexts, [letter * 3_000] * count).added == count
    assert [whole[0][0] for whole, *_ in _tallies[OfTexts]._known] == ["a", "b", "d"]

    class Growing(Values):
        def add(self, _item: object) -> None:
            self.values += range(1_000, 3_000)

    for text in ("first", "second"):
        tallied(Growing, [text])
    assert [whole for whole, *_ in _tallies[Growing]._known] == [["second"]]


def test_what_values_hold_is_measured_to_the_end_or_to_the_bound() -> None:
    message = Message(role="user", text="\U0001f375" + "l" * 10_000)
    assert 40_000 < held_bytes([message]) < 42_000
    assert held_bytes([message, message]) > 80_000
    assert held_bytes(*["l" * 1_000] * 50, most=10) < 60_000


_FREED = """
import sys
from memory_core.core.caches import give_back_long_blocks
def resident():
    return next(int(line.split()[1]) >> 10 for line in open("/proc/self/status") if line.startswith("VmRSS"))
if len(sys.argv) > 1:
    give_back_long_blocks()
del (first := [b"l" * 1_000_000])[:]
held = [(b"l" * 400_000, b"s" * 2_000) for _ in range(200)]
before = resident()
held = [short for _, short in held]
print(before - resident())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc can")
def test_long_blocks_go_back_to_the_system_amid_short_ones() -> None:
    run = subprocess.run([sys.executable, "-c", _FREED, "given back"], capture_output=True, text=True, check=True)
    assert int(run.stdout) > 60


class Value:
    """One that can be watched."""


def test_what_takes_too_much_goes_before_another_value_is_made() -> None:
    cache: PrefixCache[list[Any], int] = PrefixCache(4, 100)
    first = Value()
    watched = weakref.ref(first)
    cache.value([first] * 1_000, 0, lambda _value, rest: len(rest))
    del first

    def other(_value: int, rest: list[Any]) -> int:
        assert watched() is None
        return len(rest)

    assert cache.value([Value()] * 1_000, 0, other) == 1_000


def test_what_a_request_reads_is_read_once_whatever_others_read_meanwhile() -> None:
    read: list[str] = []

    def extend(value: int, rest: str) -> int:
        read.append(rest)
        return value + len(rest)

    cache: PrefixCache[str, int] = PrefixCache(4, 1)  # too little for any text but the last
    with reading_once():
        assert cache.value("one long talk", 0, extend) == 13
        thread = threading.Thread(target=lambda: cache.value("another's talk", 0, extend))
        thread.start()
        thread.join()
        assert cache.value("one long talk", 0, extend) == 13
        assert cache.value("one long talk, and more", 0, extend) == 23
    assert read == ["one long talk", "another's talk", ", and more"]
    cache.value("a third one", 0, extend)
    cache.value("one long talk", 0, extend)
    assert read[-1] == "one long talk"
