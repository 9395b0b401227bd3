"""Fixtures of the loop's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memory_core.runebook import Runebook, open_memory
from tests.core.extract.stage import Stage
from tests.stores import words_only


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Runebook]:
    with open_memory(words_only(tmp_path / "home")) as opened:
        yield opened


@pytest.fixture
def stage(memory: Runebook) -> Stage:
    return Stage(memory)
