"""An open store for the tests of the passes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memory_core.runebook import Runebook, open_memory
from tests.features.upkeep.maintained import settings_of


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Runebook]:
    with open_memory(settings_of(tmp_path)) as opened:
        yield opened
