"""The trips that docs/architecture.md lists are the ones that a note and a question take."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.runebook import Runebook, open_memory
from tests.stores import words_only

ROOT = Path(__file__).parent.parent
_HOP = re.compile(r"^\d+\. `(?P<file>[\w/]+\.py)` `(?P<function>[\w.]+)`", re.MULTILINE)


def listed(trip: str) -> list[tuple[str, str]]:
    """(file, function) of each hop of a trip, as the page lists them."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.split(f"\n### {trip}\n", 1)[1].split("\n#", 1)[0]
    return [(match["file"], match["function"]) for match in _HOP.finditer(section)]


def taken(call: Callable[[], object]) -> list[tuple[str, str]]:
    """(file, function) of each of our functions that was called, in the order of their first calls."""
    found: dict[tuple[str, str], None] = {}

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT):
            found.setdefault((path.relative_to(ROOT).as_posix(), frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(found)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Runebook]:
    with open_memory(words_only(tmp_path)) as opened:
        opened.commit(CommitRequest("The blue bicycle stands in the shed."))
        yield opened


@pytest.mark.parametrize(("trip", "hops", "files"), [("A note", 20, 12), ("A question", 14, 9)])
def test_a_trip_is_as_the_page_lists_it(memory: Runebook, trip: str, hops: int, files: int) -> None:
    calls: dict[str, Callable[[], object]] = {
        "A note": lambda: memory.commit(CommitRequest("The spare key is under the third flower pot.")),
        "A question": lambda: memory.find(FindRequest("where is the blue bicycle")),
    }
    listed_hops = listed(trip)
    order = taken(calls[trip])
    assert [hop for hop in listed_hops if hop not in order] == []
    assert [order.index(hop) for hop in listed_hops] == sorted(order.index(hop) for hop in listed_hops)
    assert len(listed_hops) <= hops
    assert len({file for file, _ in listed_hops}) <= files
