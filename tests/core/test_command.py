"""A request takes what suits its arguments, and says of anything else what it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest

from memory_core.core.command import Arg, read_request
from memory_core.core.errors import InvalidInput


@dataclass(frozen=True)
class Asked:
    """What is asked."""

    share: float = 0.5
    bytes_at_most: Annotated[int, Arg(least=4_096, most=67_108_864)] = 4_096


def test_a_number_that_no_float_holds_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'share' takes a number"):
        read_request(Asked, {"share": 10**400})


def test_bounds_are_written_out() -> None:
    with pytest.raises(InvalidInput) as refused:
        read_request(Asked, {"bytes_at_most": 1})
    assert refused.value.hint == "Use 4096 to 67108864."
