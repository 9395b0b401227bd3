"""A store of their own for the tests of imports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memory_core.runebook import Runebook
from tests.features.moving import opened


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Runebook]:
    """An empty store in ``home``."""
    with opened(tmp_path / "home") as store:
        yield store
