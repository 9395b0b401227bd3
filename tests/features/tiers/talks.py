"""Conversations about two topics in two languages, and what the tests of the tiers ask of a store."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from memory_core.core.config import ExtractionConfig, TiersConfig
from memory_core.core.memory.requests import CommitRequest
from memory_core.core.memory.results import CommitReceipt
from memory_core.features.tiers.stored import StoredSegment, segments_in
from memory_core.features.upkeep.passes import MAINTAIN, Done, MaintainRequest
from memory_core.runebook import Runebook
from tests.stores import log_of

NOW = datetime(2026, 5, 2, 10, 0, tzinfo=UTC)
TEMPLES = [
    ("Which temples should I visit in Kyoto? I love quiet temple gardens.", "Ryoanji has a quiet temple garden."),
    ("How do I get from Kyoto station to the Ryoanji temple?", "Take bus 50 from Kyoto station to the temple."),
    ("Are temple gardens in Kyoto open in winter?", "Kyoto temple gardens stay open, the temple closes early."),
]
PAYMENTS = [
    ("支付系统的回调经常超时，怎么办？", "支付回调要做成幂等的，超时之后重试。"),
    ("支付系统的回调重试几次比较好？", "支付回调重试五次，之后放进死信队列。"),
]
NOTHING = json.dumps({"reasoning": "nothing", "operations": {}})


def small(**more: Any) -> dict[str, Any]:
    """A short term of one exchange; words alone are compared, so that less is enough to join."""
    tiers = TiersConfig(**{"short_term_capacity": 1, "mid_term_similarity_threshold": 0.4, **more})
    return {"tiers": tiers, "extraction": ExtractionConfig(trigger="heat")}


def messages(*exchanges: tuple[str, str]) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    return [{"role": role, "content": said} for pair in exchanges for role, said in zip(roles, pair, strict=True)]


def spoken(*exchanges: tuple[str, str]) -> list[str]:
    return [said for pair in exchanges for said in pair]


def say(memory: Runebook, *exchanges: tuple[str, str], session: str = "s1", **more: Any) -> CommitReceipt:
    said = messages(*exchanges)
    receipt = memory.commit(CommitRequest(messages=said, **{"session_id": session, "now": NOW, **more}))
    memory.opened.background.finish()
    return receipt


def segments(memory: Runebook, session: str = "s1", *, archived: bool = False) -> list[StoredSegment]:
    found = segments_in(memory.store, log_of(session))
    return list(found.archived if archived else found.used)


def firsts(memory: Runebook, session: str = "s1") -> list[list[int]]:
    """The first lines of the exchanges of each segment."""
    return [[exchange.first for exchange in each.segment.exchanges] for each in segments(memory, session)]


def maintain(memory: Runebook, name: str, now: datetime = NOW, *, dry_run: bool = False) -> Done:
    (done,) = memory.run(MAINTAIN, MaintainRequest(only=[name], now=now, dry_run=dry_run))
    assert done.failure is None
    return done
