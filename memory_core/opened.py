"""One memory folder as a process holds it: opened once, seen by as many users as the process serves.

Owns what is costly or must be one: files and ledger, the index and its background work, the models, and taking in
what people changed by hand. A view (``reading.MemoryReader``) adds whose memories are seen; it owns nothing here.
"""

from __future__ import annotations

import logging
import threading
from functools import partial

from memory_core.config import Config
from memory_core.errors import RunebookError
from memory_core.index.encoders.providers import open_embedder, open_reranker
from memory_core.index.indexer import Indexer
from memory_core.index.vectors.vector_index import open_vectors
from memory_core.lifecycle.counted_model import CountedModel
from memory_core.llm.client import Closeable, LLMClient
from memory_core.llm.providers import open_client
from memory_core.registry import MemoryTypeRegistry
from memory_core.storage.file_store import INDEX_NAME
from memory_core.storage.store import Step, Store
from memory_core.update.handwritten import examine
from memory_core.update.updater import identify

_log = logging.getLogger(__name__)
#: A search does not wait longer for files that people changed before the start, or since; what they hold may be missing
#: from its first answer, which says so.
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
            examine=partial(examine, registry),
            step=step,
        )
        state = self.store.files.state
        vectors = open_vectors(config.index, state)
        self.indexer = Indexer(
            self.store.ledger, state / INDEX_NAME, registry.type_at, open_embedder(config.embedding), vectors
        )
        self.store.adoption.recorded = self.indexer.wake
        self._watches = config.watch == "auto"
        self.reranker = open_reranker(config.search)
        self._llm_settings = config.llm
        self._llm = llm
        self._llm_guard = threading.Lock()
        self.adopted = threading.Event()
        self._adopter = threading.Thread(target=self._adopt, name="runebook-adopt", daemon=True)
        self._adopter.start()

    def close(self) -> None:
        """Finish background work and release everything; safe to call twice."""
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
