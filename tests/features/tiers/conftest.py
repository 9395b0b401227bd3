"""What is left to the background is done when a test says so."""

from __future__ import annotations

import pytest

from memory_core.core import background


@pytest.fixture(autouse=True)
def _never_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_PAUSE_SECONDS", 3_600.0)
