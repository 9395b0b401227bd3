"""What ``open_memory`` puts together: the registry of types, the update loop over one store, and its maintenance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memory_core.config import Config
from memory_core.index.catalog import Catalog
from memory_core.lifecycle.extraction import Extractor
from memory_core.lifecycle.maintenance.capacity import KnowledgeCapacity
from memory_core.lifecycle.maintenance.compression import Compression
from memory_core.lifecycle.maintenance.expiry import Expiry, FinishedTasks
from memory_core.lifecycle.maintenance.log_archive import LogArchive
from memory_core.lifecycle.maintenance.maintainer import Maintainer
from memory_core.lifecycle.maintenance.rolling import RollingPass, SummaryImprovement
from memory_core.lifecycle.maintenance.summaries import SummaryWriter
from memory_core.lifecycle.maintenance.upkeep import Upkeep
from memory_core.lifecycle.sessions import SessionReader
from memory_core.lifecycle.tiers.tiers import Tiers
from memory_core.model.changes import CommitReceipt
from memory_core.model.hits import FindResult
from memory_core.model.operations import MemoryOperations
from memory_core.model.project import NO_PROJECT, Belonging, ProjectScope
from memory_core.model.uri import MemoryUri
from memory_core.react.actions import ActionRunner
from memory_core.react.brief import BriefWriter
from memory_core.react.deliberation import Preview
from memory_core.react.display import MemoryView
from memory_core.react.glance import Glance, newest_in
from memory_core.react.guide import TypeGuide
from memory_core.react.orchestrator import MemoryReActOrchestrator
from memory_core.react.prefetch import Prefetcher
from memory_core.react.prompts import PromptLibrary
from memory_core.react.review import Neighbours
from memory_core.registry import MemoryTypeRegistry, builtin_schema_dir
from memory_core.retrieval.browse import Browser
from memory_core.retrieval.privacy import is_elsewhere
from memory_core.retrieval.retriever import Retriever
from memory_core.storage.store import Store
from memory_core.update.project_choice import ProjectChoice
from memory_core.update.updater import MemoryUpdater

_MEMORIES = {"memory_type": {"ne": "message"}}


def load_registry(config: Config) -> MemoryTypeRegistry:
    """The built-in memory types, then the user's own; broken ones are in ``problems``."""
    registry = MemoryTypeRegistry()
    for directory in (builtin_schema_dir(), *config.schema_dirs):
        registry.load_from_dir(directory.expanduser())
    return registry


def build_extractor(
    config: Config,
    registry: MemoryTypeRegistry,
    store: Store,
    updater: MemoryUpdater,
    browser: Browser,
    retriever: Retriever,
    catalog: Catalog,
) -> Extractor:
    """The extractor of one open store.

    Raises:
        ConfigInvalid: If a prompt template cannot be used.
    """
    prompts = PromptLibrary(config.prompt_dirs)
    guide = TypeGuide(registry, prompts, config.user_space, config.agent_space)

    def seen_from(belonging: Belonging) -> _Sight:
        return _sight(belonging, guide, store, updater, browser, retriever, catalog)

    whole = seen_from(NO_PROJECT)
    orchestrator = MemoryReActOrchestrator(
        prompts=prompts,
        guide=guide,
        prefetcher=whole.prefetcher,
        actions=whole.actions,
        preview=whole.preview,
        neighbours=whole.neighbours,
        neighbour_from=lambda: retriever.near_from,
        max_iterations=config.extraction.max_iterations,
        prompt_tokens=config.extraction.prompt_tokens,
        max_tokens=config.llm.max_tokens,
        single_pass=config.extractor == "single_pass",
    )
    briefs = BriefWriter(prompts, guide, whole.prefetcher, config.extraction.brief_tokens)

    def within(belonging: Belonging) -> tuple[MemoryReActOrchestrator, BriefWriter]:
        sight = seen_from(belonging)
        loop = orchestrator.reading(sight.prefetcher, sight.actions, sight.preview, sight.neighbours)
        return loop, briefs.reading(sight.prefetcher)

    return Extractor(
        store,
        updater,
        orchestrator,
        briefs,
        whole.actions.view,
        within=within,
        sessions=SessionReader(store, ProjectChoice(config.project), config.extraction.language),
    )


def build_maintainer(upkeep: Upkeep, tiers: Tiers, writer: SummaryWriter) -> Maintainer:
    """The passes over one user's memories, in the order in which they run.

    Args:
        upkeep: Their access to the store.
        tiers: Of the user's conversations.
        writer: Has the configured model summarise.
    """
    return Maintainer(
        (
            *tiers.passes,
            Expiry(upkeep),
            FinishedTasks(upkeep),
            KnowledgeCapacity(upkeep),
            LogArchive(upkeep),
            Compression(upkeep, writer),
            RollingPass(upkeep),
            SummaryImprovement(upkeep, writer),
        )
    )


@dataclass(frozen=True, slots=True)
class _Sight:
    """The store as the update loop sees it: without what is private to other projects."""

    prefetcher: Prefetcher
    actions: ActionRunner
    preview: Preview
    neighbours: Neighbours


def _sight(
    belonging: Belonging,
    guide: TypeGuide,
    store: Store,
    updater: MemoryUpdater,
    browser: Browser,
    retriever: Retriever,
    catalog: Catalog,
) -> _Sight:
    scope = ProjectScope(belonging.project)
    seen = browser.seen_from(scope.current, strict=True)

    def text(uri: str) -> str | None:
        place = seen.visible(MemoryUri.parse(uri))
        found = store.text(place)
        return None if found is None or is_elsewhere(place, found, scope.current) else found

    def find_memories(query: str, limit: int) -> FindResult:
        return retriever.find(query, limit=limit, filter=_MEMORIES, project=scope)

    def find_below(query: str, below: str, limit: int) -> FindResult:
        return retriever.find(query, below, limit, project=scope)

    def glance(directory: str, limit: int) -> Glance:
        return newest_in(catalog.connection(), directory, limit, scope.current)

    def preview(operations: MemoryOperations) -> CommitReceipt:
        return updater.apply_operations(operations, dry_run=True, belonging=belonging)

    def neighbours(texts: Sequence[str]) -> list[list[tuple[str, float]]]:
        return [[(near.uri, near.score) for near in found] for found in retriever.near(texts, project=scope)]

    view = MemoryView(text, guide.registry)
    prefetcher = Prefetcher(guide, glance, find_memories, view)
    return _Sight(prefetcher, ActionRunner(seen, find_below, view), preview, neighbours)
