"""How much a call does, as a number that is the same each time: no clock tells whether work grows with the request."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any


def bytecodes(module: ModuleType, call: Callable[[], object]) -> int:
    """How many bytecodes of a module a call runs, in this thread."""
    count = 0

    def in_module(frame: FrameType, event: str, _given: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return in_module

    def entered(frame: FrameType, event: str, given: Any) -> Any:
        return in_module(frame, event, given) if frame.f_code.co_filename == module.__file__ else None

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def is_linear(count: Callable[[int], int], size: int) -> bool:
    """Whether a count grows as its size does: by twice as much from 2 to 4 as from 1 to 2, where a square has 4 times.

    Args:
        count: The work of a request of that size.
        size: The smallest; the largest is four times that.
    """
    few, more, most = count(size), count(2 * size), count(4 * size)
    return most - more < 2.5 * (more - few)
