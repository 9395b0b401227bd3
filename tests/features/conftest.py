"""What several tests of features begin with."""

from __future__ import annotations

import pytest

from memory_core.core.memory.memory_type import MemoryTypeRegistry, builtin_schema_dir


@pytest.fixture(scope="session")
def registry() -> MemoryTypeRegistry:
    """The memory types that come with it."""
    loaded = MemoryTypeRegistry()
    assert loaded.load_from_dir(builtin_schema_dir()) == []
    return loaded
