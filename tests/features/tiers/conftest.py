"""What is left to the background is done when a test says so; and what the update loop was given."""

from __future__ import annotations

from typing import Any

import pytest

from memory_core.core import background
from memory_core.core.extract.loop import MemoryReActOrchestrator
from memory_core.core.extract.prompts import Conversation
from memory_core.core.extract.store_view import StoreView


@pytest.fixture(autouse=True)
def _never_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_PAUSE_SECONDS", 3_600.0)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The text of every message that the update loop was given to extract from, in order."""
    texts: list[str] = []
    extract = MemoryReActOrchestrator.extract

    def noted(self: MemoryReActOrchestrator, conversation: Conversation, view: StoreView) -> Any:
        texts.extend(message.text for message in conversation.messages)
        return extract(self, conversation, view)

    monkeypatch.setattr(MemoryReActOrchestrator, "extract", noted)
    return texts
