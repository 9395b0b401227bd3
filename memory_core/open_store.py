"""What ``open_memory`` puts together: the registry of types, the update loop over one store, and its maintenance."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from memory_core.core.commit.commits import Commits, identify
from memory_core.core.commit.directory_pages import DirectoryPages
from memory_core.core.config import Config
from memory_core.core.errors import RunebookError
from memory_core.core.extract.brief import BriefWriter
from memory_core.core.extract.extractor import CountedModel, Extractor, SessionReader
from memory_core.core.extract.loop import MemoryReActOrchestrator, Preview
from memory_core.core.extract.operation_checks import Neighbours
from memory_core.core.extract.prefetch import Glance, Prefetcher, newest_in
from memory_core.core.extract.prompts import MemoryView, PromptLibrary, TypeGuide
from memory_core.core.extract.read_actions import ActionRunner
from memory_core.core.index.catalog import Catalog
from memory_core.core.index.encoder import open_embedder, open_reranker
from memory_core.core.index.indexer import Indexer
from memory_core.core.index.vectors import open_vectors
from memory_core.core.llm.client import Closeable, LLMClient, open_client
from memory_core.core.memory.memory_type import MemoryTypeRegistry, builtin_schema_dir
from memory_core.core.memory.operations import MemoryOperations
from memory_core.core.memory.project import NO_PROJECT, Belonging, ProjectChoice, ProjectScope
from memory_core.core.memory.requests import FindRequest
from memory_core.core.memory.results import CommitReceipt, FindResult
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.search.browse import Browser, is_elsewhere
from memory_core.core.search.find import Retriever
from memory_core.core.store.delivery import Step
from memory_core.core.store.files import INDEX_NAME
from memory_core.core.store.local import Store
from memory_core.features.migrate import file_problems

_log = logging.getLogger(__name__)
#: A search does not wait longer for files that people changed before the start, or since; what they hold may be missing
#: from its first answer, which says so.
_ADOPTION_SECONDS = 2.0
_FIRST_LOOK_SECONDS = 0.3
_GLANCE_SECONDS = 0.2


class OpenedStore:
    """The parts that every view of one folder shares.

    Args:
        config: Settings; those that name a user or an agent do not matter here.
        registry: The memory types.
        step: Observes the steps of each commit, for crash tests.
        llm: The language model to use instead of the one that ``config`` names.

    Raises:
        StorageFailed: If the folder cannot be used.
        ConfigInvalid: If a setting cannot be followed.
    """

    def __init__(
        self,
        config: Config,
        registry: MemoryTypeRegistry,
        *,
        step: Step = lambda _name: None,
        llm: LLMClient | None = None,
    ) -> None:
        self.registry = registry
        self.store = Store(
            config.root,
            partial(identify, registry),
            examine=partial(file_problems, registry),
            step=step,
        )
        state = self.store.files.state
        vectors = open_vectors(config.index, state)
        self.indexer = Indexer(
            self.store.ledger, state / INDEX_NAME, registry, open_embedder(config.embedding), vectors
        )
        self.store.adoption.recorded = self.indexer.wake
        self.pages = DirectoryPages(self.store, self.indexer.catalog, registry)
        self.indexer.followed = self.pages.bring_up_to_date
        self.store.make_pages = self.current_pages
        self._watches = config.watch == "auto"
        self.reranker = open_reranker(config.search)
        self._llm_settings = config.llm
        self._llm = llm
        self._llm_guard = threading.Lock()
        #: Ends what works in the background; called before anything else is closed.
        self.before_close: list[Callable[[], None]] = []
        self.adopted = threading.Event()
        self._adopter = threading.Thread(target=self._adopt, name="runebook-adopt", daemon=True)
        self._adopter.start()

    def close(self) -> None:
        """Finish background work and release everything; safe to call twice."""
        while self.before_close:
            self.before_close.pop()()
        if isinstance(self._llm, Closeable):
            self._llm.close()
        self._adopter.join()
        self.indexer.close()
        self.store.close()

    def warm(self) -> None:
        """Begin loading the models."""
        self.indexer.warm()
        if self.reranker is not None:
            self.reranker.start()

    def look(self) -> bool:
        """Before a search: take in what people changed, within a bounded time.

        Returns:
            Whether nothing is known to be left.
        """
        return self.adopted.wait(_FIRST_LOOK_SECONDS) and self.store.adoption.glance(_GLANCE_SECONDS)

    def current_pages(self) -> None:
        """Before a page is shown: let it list what was committed until now."""
        self.indexer.follow()
        self.pages.bring_up_to_date()

    def wait_for_adoption(self) -> None:
        """Give files that people added before the start a moment to be known: a name may be theirs."""
        self.adopted.wait(_ADOPTION_SECONDS)

    def watch(self) -> None:
        """Notice what people do to the files from now on, unless the settings say otherwise."""
        if self._watches:
            self.store.watch()

    @property
    def llm(self) -> LLMClient | None:
        """The language model that extracts memories, or None.

        Raises:
            ModelUnavailable: If the settings name one that cannot be used.
        """
        with self._llm_guard:
            if self._llm is None:
                self._llm = open_client(self._llm_settings)
            return self._llm

    def model_for(self, user_space: str) -> LLMClient | None:
        """The same model with its calls counted for a user, or None.

        Raises:
            ModelUnavailable: If the settings name one that cannot be used.
        """
        client = self.llm
        return None if client is None else CountedModel(client, self.store.usage.asked, user_space)

    def _adopt(self) -> None:
        """Take in what people changed while nobody was looking."""
        try:
            self.store.adopt()
            self.indexer.wake()
        except RunebookError as error:
            _log.warning("files changed by hand were not taken in yet: %s", error.message)
        finally:
            self.adopted.set()


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
    commits: Commits,
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
        return _sight(belonging, guide, store, commits, browser, retriever, catalog)

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
        commits,
        orchestrator,
        briefs,
        whole.actions.view,
        within=within,
        sessions=SessionReader(store, ProjectChoice(config.project), config.extraction.language),
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
    commits: Commits,
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
        return retriever.find(FindRequest(query, limit=limit, filter=_MEMORIES), scope)

    def find_below(query: str, below: str, limit: int) -> FindResult:
        return retriever.find(FindRequest(query, below, limit), scope)

    def glance(directory: str, limit: int) -> Glance:
        return newest_in(catalog.connection(), directory, limit, scope.current)

    def preview(operations: MemoryOperations) -> CommitReceipt:
        return commits.apply_operations(operations, dry_run=True, belonging=belonging)

    def neighbours(texts: Sequence[str]) -> list[list[tuple[str, float]]]:
        return [[(near.uri, near.score) for near in found] for found in retriever.near(texts, project=scope)]

    view = MemoryView(text, guide.registry)
    prefetcher = Prefetcher(guide, glance, find_memories, view)
    return _Sight(prefetcher, ActionRunner(seen, find_below, view), preview, neighbours)
