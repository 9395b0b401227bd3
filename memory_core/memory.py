"""The Memory facade and ``open_memory``: the only place where the parts are wired together.

A ``Memory`` is one open store for one user and agent space. It is safe to use from many threads, and several
may be open on the same folder in several processes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from memory_core.config import Config
from memory_core.errors import InvalidInput, RunebookError
from memory_core.index.embedder import BundledEmbedder, Embedder
from memory_core.index.indexer import Indexer
from memory_core.index.sealing import SealedIndex
from memory_core.model.changes import Action, CommitReceipt
from memory_core.model.conversation import parse_messages
from memory_core.model.hits import ContextPack, FindResult, Listings, ReadResult
from memory_core.model.uri import MemoryUri
from memory_core.registry import MemoryTypeRegistry, builtin_schema_dir
from memory_core.retrieval.browse import Browser
from memory_core.retrieval.context import ContextBuilder
from memory_core.retrieval.retriever import Retriever
from memory_core.storage.store import Step, Store
from memory_core.update.soundness import is_sound
from memory_core.update.updater import MemoryUpdater, identify

_log = logging.getLogger(__name__)
_QUERY_MESSAGES = 5
#: Of joined messages the end is the question; search reads no more than this.
_QUERY_CHARS = 8_000
_REQUEST_ID_CHARS = 256
#: New memories of one commit whose neighbours the receipt names.
_COMPARED = 8


def open_memory(config: Config | None = None, *, step: Step = lambda _name: None) -> Memory:
    """Open (or create) the store that ``config`` names.

    Args:
        config: Settings; default: all defaults.
        step: Observes the steps of each commit, for crash tests.

    Raises:
        StorageFailed: If the folder cannot be used.
        ConfigInvalid: If a setting cannot be followed.
    """
    return Memory(config or Config(), step=step)


def load_registry(config: Config) -> MemoryTypeRegistry:
    """The built-in memory types, then the user's own; broken ones are in ``problems``."""
    registry = MemoryTypeRegistry()
    for directory in (builtin_schema_dir(), *config.schema_dirs):
        registry.load_from_dir(directory.expanduser())
    return registry


class Memory:
    """One open store; use as a context manager or call ``close``."""

    def __init__(self, config: Config, *, step: Step = lambda _name: None) -> None:
        self.config = config
        self.registry = load_registry(config)
        for problem in self.registry.problems:
            _log.warning("%s", problem)
        self.store = Store(config.root, self._identify, step=step)
        state = self.store.files.state
        embedder: Embedder | None = BundledEmbedder() if config.embedding.provider == "bundled" else None
        vectors = SealedIndex(state, mode=config.index.mode, exact_below=config.index.exact_below)
        self.indexer = Indexer(self.store.ledger, state / "index.sqlite3", self.registry.type_at, embedder, vectors)
        self.spaces = (
            f"user/{config.user_space}",
            f"agent/{config.agent_space}",
            f"session/{config.user_space}",
        )
        self.updater = MemoryUpdater(self.store, self.registry, config)
        self.browser = Browser(self.store.files, self.indexer.catalog.abstracts, self.spaces)
        self.retriever = Retriever(self.indexer, self.store.ledger, self.spaces, config)
        self._context = ContextBuilder(self.browser, self._find_for_context, config.user_space)
        self._adopted = threading.Event()
        self._adopter = threading.Thread(target=self._adopt, name="runebook-adopt", daemon=True)
        self._adopter.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish background work and release the store; safe to call twice."""
        self._adopter.join()
        self.indexer.close()
        self.store.close()

    def warm(self) -> None:
        """Begin loading the embedding model."""
        if self.indexer.embedder is not None:
            self.indexer.embedder.start()

    def commit(
        self,
        memory_content: str | None = None,
        *,
        memory_type: str | None = None,
        priority: str | float | None = None,
        category: str | None = None,
        fields: Mapping[str, Any] | None = None,
        messages: Sequence[Any] | None = None,
        session_id: str | None = None,
        operations: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        dry_run: bool = False,
        now: datetime | None = None,
    ) -> CommitReceipt:
        """Store one explicit memory, ready-made operations, or a conversation: exactly one of the three.

        Raises:
            InvalidInput: If none or several are given, or an argument is wrong. Nothing was stored.
            StoreBusy: If another writer held the store too long. Nothing was stored.
            StorageFailed: If the ledger could not be written. Nothing was stored.
        """
        if request_id is not None and not (is_sound(request_id) and 0 < len(request_id) <= _REQUEST_ID_CHARS):
            raise InvalidInput(
                "request_id cannot be kept.", hint=f"Use 1 to {_REQUEST_ID_CHARS} characters, a UUID for example."
            )
        explicit = memory_content is not None or fields is not None
        if (explicit, messages is not None, operations is not None).count(True) != 1:
            raise InvalidInput(
                "a commit takes exactly one of: memory_content (or fields), messages, operations.",
                hint='For a single memory send {"memory_content": "…"}.',
            )
        if messages is not None:
            receipt = self.updater.record_messages(
                messages, session_id=session_id, request_id=request_id, dry_run=dry_run, now=now
            )
        elif operations is not None:
            receipt = self.updater.apply_operations(
                operations, session_id=session_id, request_id=request_id, dry_run=dry_run, now=now
            )
        else:
            receipt = self.updater.remember(
                memory_content,
                memory_type=memory_type,
                category=category,
                priority=priority,
                fields=fields,
                session_id=session_id,
                request_id=request_id,
                dry_run=dry_run,
                now=now,
            )
        return self._indexed(receipt)

    def find(
        self,
        query: str,
        target_uri: str = "",
        limit: int = 10,
        score_threshold: float | None = None,
        filter: Mapping[str, Any] | None = None,
        rank: str | None = None,
        now: datetime | None = None,
    ) -> FindResult:
        """Memories and conversation turns that answer ``query``, best first.

        Raises:
            InvalidInput: If an argument is wrong.
        """
        self._adopted.wait(self.config.embedding.wait_seconds)
        if target_uri:
            self.browser.visible(MemoryUri.parse(target_uri))
        found = self.retriever.find(query, target_uri, limit, score_threshold, filter, rank, now)
        recalled = [hit.uri for hit in (*found.memories, *found.skills)]
        if recalled:
            self.store.used(recalled, now or datetime.now(UTC))
        return found

    def read(self, uri: str, offset: int = 0, limit: int = -1, limit_chars: int | None = None) -> ReadResult:
        """Lines of one file; see ``Browser.read``."""
        return self.browser.read(uri, offset, limit, limit_chars)

    def ls(
        self,
        uri: str,
        output: str = "agent",
        abs_limit: int = 256,
        show_all_hidden: bool = False,
        node_limit: int = 1000,
    ) -> Listings:
        """Entries of one directory; see ``Browser.ls``."""
        self.indexer.follow()
        return self.browser.ls(uri, output, abs_limit, show_all_hidden, node_limit)

    def tree(
        self,
        uri: str = "viking://",
        output: str = "agent",
        abs_limit: int = 256,
        show_all_hidden: bool = False,
        node_limit: int = 1000,
        level_limit: int = 3,
    ) -> Listings:
        """Everything below a directory; see ``Browser.tree``."""
        self.indexer.follow()
        return self.browser.tree(uri, output, abs_limit, show_all_hidden, node_limit, level_limit)

    def retrieve(
        self,
        query: str | None = None,
        *,
        messages: Sequence[Any] | None = None,
        token_budget: int | None = None,
        format: str = "blocks",
    ) -> ContextPack:
        """Context for an agent's next step, inside a token budget.

        Without ``query``, the last five user messages are the query.

        Raises:
            InvalidInput: If an argument is wrong.
        """
        budget = self.config.retrieve.token_budget if token_budget is None else token_budget
        if not 200 <= budget <= 10_000:
            raise InvalidInput(f"token_budget {budget} is out of range.", hint="Use 200 to 10,000 tokens.")
        if query is None and messages is not None:
            said = [message.text for message in parse_messages(messages) if message.role == "user"]
            query = "\n".join(said[-_QUERY_MESSAGES:])[-_QUERY_CHARS:].replace("\x00", " ")
        return self._context.build(query, budget, format)

    def _indexed(self, receipt: CommitReceipt) -> CommitReceipt:
        """After the acknowledgement: words and near neighbours at once; vectors follow, or the next find waits."""
        if not receipt.changed_uris or not receipt.commit_id:
            return receipt
        try:
            self.indexer.follow()
            created = [result.uri for result in receipt.results if result.action is Action.CREATED]
            similar = self.retriever.similar(created[:_COMPARED])
        except RunebookError as error:
            _log.warning("committed, but not indexed yet: %s", error.message)
            return receipt
        self.indexer.wake()
        if not similar:
            return receipt
        receipt = replace(receipt, similar=similar)
        self.store.finish(receipt)
        return receipt

    def _find_for_context(self, query: str, limit: int) -> FindResult:
        return self.find(query, limit=limit)

    def _identify(self, uri: MemoryUri, text: str) -> tuple[str, str]:
        return identify(self.registry, uri, text)

    def _adopt(self) -> None:
        """Take in what people changed while nobody was looking."""
        try:
            self.store.adopt()
            self.indexer.wake()
        except RunebookError as error:
            _log.warning("files changed by hand were not taken in yet: %s", error.message)
        finally:
            self._adopted.set()
