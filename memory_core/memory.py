"""The Memory facade and ``open_memory``: where the parts are wired together, the update loop by ``wiring``.

A ``Memory`` is one open store for one user and agent space. It is safe to use from many threads, and several
may be open on the same folder in several processes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from memory_core.config import Config
from memory_core.errors import InvalidInput, RunebookError
from memory_core.index.embedder import BundledEmbedder, Embedder
from memory_core.index.indexer import Indexer
from memory_core.index.sealing import SealedIndex
from memory_core.lifecycle.compaction import Compactor
from memory_core.lifecycle.intake import ConversationIntake
from memory_core.lifecycle.migrate import Migration, migrate
from memory_core.llm.client import Closeable, Completion, LLMClient, LLMRequest
from memory_core.llm.providers import open_client
from memory_core.model.changes import Action, CommitReceipt
from memory_core.model.conversation import parse_messages
from memory_core.model.hits import ContextPack, FindResult, Listings, ReadResult
from memory_core.model.uri import MemoryUri
from memory_core.retrieval.browse import Browser
from memory_core.retrieval.context import ContextBuilder
from memory_core.retrieval.retriever import Retriever
from memory_core.storage.store import Step, Store
from memory_core.update.recorder import MessageRecorder
from memory_core.update.soundness import is_sound
from memory_core.update.updater import MemoryUpdater, identify
from memory_core.wiring import build_extractor, load_registry

_log = logging.getLogger(__name__)
_QUERY_MESSAGES = 5
#: Of joined messages the end is the question; search reads no more than this.
_QUERY_CHARS = 8_000
_REQUEST_ID_CHARS = 256
#: New memories of one commit whose neighbours the receipt names.
_COMPARED = 8
#: A commit right after opening waits so long for files that people added meanwhile.
_ADOPTION_SECONDS = 2.0


def open_memory(
    config: Config | None = None, *, step: Step = lambda _name: None, llm: LLMClient | None = None
) -> Memory:
    """Open (or create) the store that ``config`` names.

    Args:
        config: Settings; default: all defaults.
        step: Observes the steps of each commit, for crash tests.
        llm: The language model to use instead of the one that ``config`` names.

    Raises:
        StorageFailed: If the folder cannot be used.
        ConfigInvalid: If a setting cannot be followed.
    """
    return Memory(config or Config(), step=step, llm=llm)


class Memory:
    """One open store; use as a context manager or call ``close``."""

    def __init__(self, config: Config, *, step: Step = lambda _name: None, llm: LLMClient | None = None) -> None:
        self.config = config
        self._llm = llm
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
        self.recorder = MessageRecorder(
            self.store,
            self.registry,
            self.updater,
            queues=config.extractor != "none",
            keeps_corrections=llm is None and config.llm.provider == "none",
        )
        self.browser = Browser(self.store.files, self.indexer.catalog.abstracts, self.spaces)
        self.retriever = Retriever(self.indexer, self.store.ledger, self.spaces, config)
        self.extractor = build_extractor(
            config, self.registry, self.store, self.updater, self.browser, self.retriever, self.indexer.catalog
        )
        scope = self.updater.context(datetime.now(UTC), "", None)
        self._intake = ConversationIntake(
            self.store,
            self.extractor,
            Compactor(self.store, self.registry, scope),
            self._indexed,
            lambda: self.llm,
            config.llm.deadline_seconds,
        )
        self._context = ContextBuilder(
            self.browser, lambda query, limit: self.find(query, limit=limit), config.user_space
        )
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
        if isinstance(self._llm, Closeable):
            self._llm.close()
        self.indexer.close()
        self.store.close()

    def warm(self) -> None:
        """Begin loading the embedding model."""
        if self.indexer.embedder is not None:
            self.indexer.embedder.start()

    @property
    def llm(self) -> LLMClient | None:
        """The language model that extracts memories, or None.

        Raises:
            ModelUnavailable: If the settings name one that cannot be used.
        """
        if self._llm is None:
            self._llm = open_client(self.config.llm)
        return self._llm

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
        extract: bool = True,
    ) -> CommitReceipt:
        """Store one explicit memory, ready-made operations, or a conversation: exactly one of the three.

        A conversation is stored first. Then the configured model extracts its memories; without one, or if it
        fails, the conversation waits, and without one the receipt briefs the caller's own model. Operations with
        a ``session_id`` are the answer to such a brief.

        Args:
            memory_content: One memory.
            memory_type: Its type; default notes.
            priority: low, normal, high, critical, or 0 to 1.
            category: A label; also picks a type if none is named.
            fields: Fields of the type.
            messages: A conversation; see ``model.message_shapes``.
            session_id: Session that messages or knowledge belong to.
            operations: MemoryOperations as JSON.
            request_id: Makes a retry return the first receipt.
            dry_run: Plan only.
            now: Time of the commit; default the clock's.
            extract: Of a conversation: False only stores it; see ``extraction``.

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
        self._adopted.wait(_ADOPTION_SECONDS)
        if messages is not None:
            receipt = self.recorder.record(
                messages, session_id=session_id, request_id=request_id, dry_run=dry_run, now=now
            )
            receipt = self._indexed(receipt)
            return self._intake.take_in(receipt) if extract and not dry_run else receipt
        if operations is not None:
            receipt = self.extractor.hand_in(
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

    def extraction(self, recorded: CommitReceipt) -> Generator[LLMRequest, Completion, CommitReceipt]:
        """The update loop over the receipt of ``commit(messages=…, extract=False)``; see ``ConversationIntake``."""
        return self._intake.extraction(recorded)

    def extract_waiting(self, session_id: str | None = None) -> Iterator[CommitReceipt]:
        """Extract what waits with the configured model; see ``ConversationIntake.extract_waiting``."""
        return self._intake.extract_waiting(session_id)

    def migrate(self, *, dry_run: bool = False) -> Migration:
        """Give the files of an older store semantic names and our trailer; see ``lifecycle.migrate``."""
        self._adopted.wait()
        migration = migrate(
            self.store,
            self.registry,
            user_space=self.config.user_space,
            agent_space=self.config.agent_space,
            dry_run=dry_run,
        )
        self.indexer.follow()
        return migration

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
