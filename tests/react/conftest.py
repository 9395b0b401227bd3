"""Fixtures of the loop's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memory_core.config import Config, EmbeddingConfig
from memory_core.memory import Memory, open_memory
from tests.react.stage import Stage


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with open_memory(Config(home=tmp_path / "home", embedding=EmbeddingConfig(provider="none"))) as opened:
        yield opened


@pytest.fixture
def stage(memory: Memory) -> Stage:
    return Stage(memory)
