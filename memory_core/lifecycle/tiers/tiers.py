"""The tiers of one user's conversations, as commits and maintenance use them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memory_core.lifecycle.extraction import Extractor
from memory_core.lifecycle.maintenance.maintainer import Pass
from memory_core.lifecycle.maintenance.summaries import SummaryWriter
from memory_core.lifecycle.maintenance.upkeep import Upkeep
from memory_core.lifecycle.tiers.likeness import TextLikeness
from memory_core.lifecycle.tiers.overflow import Overflow
from memory_core.lifecycle.tiers.passes import (
    EndedSessions,
    Eviction,
    ModelRuns,
    Promotion,
    Segmenting,
    SegmentSummaries,
)
from memory_core.lifecycle.tiers.promotion import Promoter
from memory_core.lifecycle.tiers.trigger import ExtractionTrigger
from memory_core.llm.client import LLMClient


@dataclass(frozen=True, slots=True)
class Tiers:
    """From recent exchanges to segments to memories.

    Attributes:
        overflow: Sorts older exchanges into segments.
        promoter: Makes memories of hot segments.
        trigger: Says when a conversation is extracted.
        passes: What maintenance does about them, in order.
    """

    overflow: Overflow
    promoter: Promoter
    trigger: ExtractionTrigger
    passes: tuple[Pass, ...]


def build_tiers(
    upkeep: Upkeep, extractor: Extractor, llm: Callable[[], LLMClient | None], writer: SummaryWriter
) -> Tiers:
    """The tiers over one user's conversations.

    Args:
        upkeep: Access to the store.
        extractor: Runs the update loop.
        llm: The model that is configured, or None.
        writer: Has it summarise.
    """
    config = upkeep.config
    overflow = Overflow(upkeep, TextLikeness(lambda: upkeep.indexer.embedder))
    promoter = Promoter(upkeep, extractor)
    trigger = ExtractionTrigger(config.extraction, extractor.queue, extractor.sessions.waiting_exchanges)
    runs = ModelRuns(llm, upkeep.indexed, config.llm.deadline_seconds)
    return Tiers(
        overflow,
        promoter,
        trigger,
        (
            Segmenting(upkeep, overflow),
            EndedSessions(extractor, trigger, runs),
            Promotion(promoter, runs),
            SegmentSummaries(upkeep, writer, overflow.sessions),
            Eviction(upkeep, overflow.sessions),
        ),
    )
