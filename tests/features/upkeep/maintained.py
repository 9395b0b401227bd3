"""A store without embeddings that is maintained at a fixed moment, and what the tests of the passes ask of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from memory_core.core.memory.requests import CommitRequest
from memory_core.core.memory.results import Action, CommitReceipt
from memory_core.core.memory.uri import MemoryUri
from memory_core.features.upkeep.passes import MAINTAIN, MaintainRequest
from memory_core.runebook import Runebook

NOW = datetime(2027, 1, 28, 9, 0, tzinfo=UTC)
USER = "viking://user/default/memories"


def kept(memory: Runebook, content: str, days_ago: float = 0, memory_type: str = "notes", **more: Any) -> str:
    """The URI of a memory that was stored so long ago."""
    metadata: dict[str, Any] = {name: more.pop(name) for name in ("pinned", "expires_at") if name in more}
    now = NOW - timedelta(days=days_ago)
    receipt = memory.commit(CommitRequest(content, memory_type=memory_type, now=now, metadata=metadata, **more))
    assert receipt.results[0].action is Action.CREATED, receipt
    return receipt.results[0].uri


def maintained(memory: Runebook, *only: str, days: float = 0, dry_run: bool = False) -> list[CommitReceipt]:
    """What passes did, so many days from now."""
    done = list(memory.run(MAINTAIN, MaintainRequest(now=NOW + timedelta(days=days), only=only, dry_run=dry_run)))
    assert all(each.failure is None for each in done)
    return [receipt for each in done for receipt in each.receipts]


def text(memory: Runebook, uri: str) -> str:
    return memory.store.text(MemoryUri.parse(uri)) or ""


def away(uri: str) -> str:
    """Where it is in the archive."""
    return uri.replace("viking://", "viking://archive/")
