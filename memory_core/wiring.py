"""What ``open_memory`` puts together: the registry of types, and the update loop over one store."""

from __future__ import annotations

from memory_core.config import Config
from memory_core.index.catalog import Catalog
from memory_core.lifecycle.extraction import Extractor
from memory_core.model.hits import FindResult
from memory_core.model.uri import MemoryUri
from memory_core.react.actions import ActionRunner
from memory_core.react.brief import BriefWriter
from memory_core.react.display import MemoryView
from memory_core.react.glance import newest_in
from memory_core.react.guide import TypeGuide
from memory_core.react.orchestrator import MemoryReActOrchestrator
from memory_core.react.prefetch import Prefetcher
from memory_core.react.prompts import PromptLibrary
from memory_core.registry import MemoryTypeRegistry, builtin_schema_dir
from memory_core.retrieval.browse import Browser
from memory_core.retrieval.retriever import Retriever
from memory_core.storage.store import Store
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

    def text(uri: str) -> str | None:
        return store.text(browser.visible(MemoryUri.parse(uri)))

    def find_memories(query: str, limit: int) -> FindResult:
        return retriever.find(query, limit=limit, filter=_MEMORIES)

    def find_below(query: str, below: str, limit: int) -> FindResult:
        return retriever.find(query, below, limit)

    prompts = PromptLibrary(config.prompt_dirs)
    guide = TypeGuide(registry, prompts, config.user_space, config.agent_space)
    view = MemoryView(text, registry)
    prefetcher = Prefetcher(
        guide, lambda directory, limit: newest_in(catalog.connection(), directory, limit), find_memories, view
    )
    orchestrator = MemoryReActOrchestrator(
        prompts=prompts,
        guide=guide,
        prefetcher=prefetcher,
        actions=ActionRunner(browser, find_below, view),
        preview=lambda operations: updater.apply_operations(operations, dry_run=True),
        neighbours=lambda texts: [[(near.uri, near.score) for near in found] for found in retriever.near(texts)],
        neighbour_from=retriever.near_from,
        max_iterations=config.extraction.max_iterations,
        prompt_tokens=config.extraction.prompt_tokens,
        max_tokens=config.llm.max_tokens,
        single_pass=config.extractor == "single_pass",
    )
    briefs = BriefWriter(prompts, guide, prefetcher, config.extraction.brief_tokens)
    return Extractor(store, updater, orchestrator, briefs, view, language=config.extraction.language)
