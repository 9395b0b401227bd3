"""What ``open_memory`` puts together: the registry of types, the update loop over one store, and its maintenance."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from memory_core.core.background import Background
from memory_core.core.commit.directory_pages import DirectoryPages
from memory_core.core.errors import RunebookError
from memory_core.core.index.encoder import open_embedder, open_reranker
from memory_core.core.index.indexer import FOLLOW_SECONDS, Indexer
from memory_core.core.index.vectors import open_vectors
from memory_core.core.memory.memory import file_problems, identify
from memory_core.core.memory.memory_type import MemoryTypeRegistry, builtin_schema_dir
from memory_core.core.store.files import ASIDE_NAME, INDEX_NAME
from memory_core.core.store.local import Store

if TYPE_CHECKING:
    from memory_core.core.config import Config
    from memory_core.core.feature import Features
    from memory_core.core.llm.client import LLMClient
    from memory_core.core.store.delivery import Step

_log = logging.getLogger(__name__)
#: A search does not wait longer for files that people changed before the start, or since; what they hold may be missing
#: from its first answer, which says so.
_ADOPTION_SECONDS = 2.0
_FIRST_LOOK_SECONDS = 0.3
_GLANCE_SECONDS = 0.2
#: What was committed last is indexed before the end, so that the next process finds it at once.
_CLOSING_SECONDS = 0.3


class OpenedStore:
    """The parts that every view of one folder shares.

    Args:
        config: Settings; those that name a user or an agent do not matter here.
        registry: The memory types.
        features: What it can beside committing, finding and reading.
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
        features: Features,
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
            self.store.ledger, state / INDEX_NAME, registry, open_embedder(config.embedding), vectors, features
        )
        self.store.adoption.recorded = self.indexer.wake
        self.pages = DirectoryPages(self.store, self.indexer.catalog, registry)
        self.indexer.followed = self.pages.bring_up_to_date
        self.store.make_pages = self.current_pages
        self._watches = config.watch == "auto"
        self.reranker = open_reranker(config.search)
        self._llm_settings = config.llm
        self._llm = llm
        self._llm_given = llm is not None
        self._llm_guard = threading.Lock()
        #: Does what requests leave behind.
        self.background = Background()
        #: Ends what works in the background; called before anything else is closed.
        self.before_close: list[Callable[[], None]] = []
        self._closed = False
        self.adopted = threading.Event()
        self._adopter = threading.Thread(target=self._adopt, name="runebook-adopt", daemon=True)
        self._adopter.start()

    def close(self) -> None:
        """Finish background work and release everything; safe to call twice."""
        while self.before_close:
            self.before_close.pop()()
        self.background.close()
        if self._llm is not None and hasattr(self._llm, "close"):
            self._llm.close()
        self._adopter.join()
        if not self._closed:
            self._closed = True
            self.current_pages(_CLOSING_SECONDS)
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
        return self.adopted.wait(_FIRST_LOOK_SECONDS) and self.store.adoption.take_in_recent(_GLANCE_SECONDS)

    def current_pages(self, seconds: float = FOLLOW_SECONDS) -> None:
        """Let index and pages know what was committed until now; where the disk refuses, they stay as they are.

        Args:
            seconds: Much that is missing is left to others after so long.
        """
        try:
            self.indexer.follow(seconds)
            self.indexer.answer(self.pages.bring_up_to_date)
        except RunebookError as error:
            _log.info("pages are made later: %s", error.message)

    def wait_for_adoption(self) -> None:
        """Give files that people added before the start a moment to be known: a name may be theirs."""
        self.adopted.wait(_ADOPTION_SECONDS)

    def watch(self) -> None:
        """Notice what people do to the files from now on, unless the settings say otherwise."""
        if self._watches:
            self.store.watch()

    @property
    def has_model(self) -> bool:
        """Whether it was opened with a language model, whatever the settings name."""
        return self._llm_given

    @property
    def llm(self) -> LLMClient | None:
        """The language model that extracts memories, or None.

        Raises:
            ModelUnavailable: If the settings name one that cannot be used.
        """
        from memory_core.core.llm.client import open_client

        with self._llm_guard:
            if self._llm is None:
                folder = self.store.files.state / ASIDE_NAME
                self._llm = open_client(self._llm_settings, folder, self.store.ledger.model_calls.may_call)
            return self._llm

    def model_for(self, user_space: str) -> LLMClient | None:
        """The same model with its calls counted for a user, or None.

        Raises:
            ModelUnavailable: If the settings name one that cannot be used.
        """
        from memory_core.core.extract.extractor import CountedModel

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


def load_registry(config: Config) -> MemoryTypeRegistry:
    """The built-in memory types, then the user's own; broken ones are in ``problems``."""
    return MemoryTypeRegistry(builtin_schema_dir(), *(folder.expanduser() for folder in config.schema_dirs))
