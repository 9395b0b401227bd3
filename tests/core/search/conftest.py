"""A store for tests of search: empty, and found by words alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memory_core.core.config import Config, EmbeddingConfig
from memory_core.runebook import Runebook, open_memory


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Runebook]:
    with open_memory(Config(home=tmp_path, embedding=EmbeddingConfig(provider="none"))) as opened:
        yield opened
