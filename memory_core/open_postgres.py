"""What ``open_memory`` puts together where ``store.url`` names a database: the parts of each user that is served.

Imported, with its packages, only then. All users of a process share connections, models and background work.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from memory_core.core.background import Background
from memory_core.core.index.encoder import Embedder, open_embedder
from memory_core.core.index.indexer import Indexer
from memory_core.core.postgres.catalog import PostgresCatalog, PostgresVectors
from memory_core.core.postgres.database import PostgresDatabase, PostgresLock, PostgresServer
from memory_core.core.postgres.hnsw import EXACT_BELOW, HnswIndexes
from memory_core.core.postgres.store import PostgresStore
from memory_core.core.store.files import STATE_NAME
from memory_core.core.store.issued_tokens import IssuedTokens
from memory_core.core.store.sqlite import SET_META
from memory_core.open_store import OpenedStore

if TYPE_CHECKING:
    from memory_core.core.config import Config
    from memory_core.core.feature import Features
    from memory_core.core.llm.client import LLMClient
    from memory_core.core.memory.memory_type import MemoryTypeRegistry
    from memory_core.core.store.delivery import Step
    from memory_core.core.store.local import Store, UpkeepMark
    from memory_core.core.store.sqlite import Database


#: Whose rows tokens are, and what concerns all users; no user can have this name.
_TOKENS = "_tokens"
_MARK = "maintained_at"
_NOW = "extract(epoch FROM now())::float8"
_TAKE = (
    f"INSERT INTO rates AS kept (client, full_at) SELECT client, {_NOW} + seconds "
    "FROM unnest(%s::text[], %s::float8[]) AS taken (client, seconds) ORDER BY client ON CONFLICT (tenant, client) "
    f"DO UPDATE SET full_at = greatest(kept.full_at, {_NOW}) + excluded.full_at - {_NOW} "
    f"RETURNING client, full_at - {_NOW}"
)


@contextmanager
def issued_tokens(url: str) -> Iterator[IssuedTokens]:
    """The token table of a database, which all of its servers share.

    Raises:
        StoreBusy: If it cannot be reached.
    """
    server = PostgresServer(url)
    try:
        yield IssuedTokens(cast("Database", PostgresDatabase(server, "ledger", _TOKENS)))
    finally:
        server.close()


def shared_rates(tokens: IssuedTokens) -> Callable[[Mapping[str, float]], Mapping[str, float]]:
    """What exchanges limits with the other servers of the database of these tokens, by rows that a crash may take.

    Given by client in how many seconds what was taken comes back, it adds that to what other servers took, and answers
    by client in how many seconds its bucket is full. A level is one number (GCRA): the moment at which the bucket is
    full if nothing more is taken, by the database's clock. It raises StoreBusy if the database does not answer.
    """
    database = cast("PostgresDatabase", tokens.database)

    def exchange(taken: Mapping[str, float]) -> dict[str, float]:
        names = {hashlib.sha256(client.encode()).hexdigest(): client for client in taken}
        with database.transaction(synced=False) as connection:
            connection.execute(f"DELETE FROM rates WHERE full_at < {_NOW} AND client <> ALL(?)", (list(names),))
            rows = connection.native(_TAKE, (list(names), [taken[client] for client in names.values()]))
            return {names[digest]: max(0.0, float(seconds)) for digest, seconds in rows}

    return exchange


class OpenedSpace(OpenedStore):
    """The parts that every view of one user shares.

    Args:
        config: Settings; ``user_space`` names the user.
        registry: The memory types.
        features: What it can beside committing, finding and reading.
        step: Observes the steps of each commit, for tests.
        llm: The language model to use instead of the one that ``config`` names.
        first: What was opened before with the same settings; the connection is made anew without one.

    Raises:
        StoreBusy: If the database cannot be reached.
        StorageFailed: If it may not be used.
    """

    def __init__(
        self,
        config: Config,
        registry: MemoryTypeRegistry,
        features: Features,
        step: Step,
        llm: LLMClient | None = None,
        first: OpenedSpace | None = None,
    ) -> None:
        self._config, self._features, self._on_step = config, features, step
        self._first = first or self
        if first is None:
            self._embedder: Embedder | None = open_embedder(config.embedding)
            self._server = PostgresServer(config.store.url)
            self._opened: dict[str, OpenedSpace] = {config.user_space: self}
            self._opening = threading.Lock()
        super().__init__(config, registry, features, step, llm)
        if first is not None:
            self.reranker, self.before_close, self._own = first.reranker, first.before_close, first._own

    def of(self, user_space: str) -> OpenedStore:
        """The parts that views of a user share, opened when they are first asked for."""
        first = self._first
        with first._opening:
            if user_space not in first._opened:
                config = first._config.with_spaces(user_space, user_space)
                parts = (first.registry, first._features, first._on_step)
                first._opened[user_space] = OpenedSpace(config, *parts, first=first)
            return first._opened[user_space]

    def tokens(self) -> IssuedTokens:
        """The token table, which all users share."""
        return IssuedTokens(cast("Database", PostgresDatabase(self._first._server, "ledger", _TOKENS)))

    def upkeep_mark(self) -> UpkeepMark:
        """When the users of the database were maintained last; one server at a time does it for all of them."""
        return _DatabaseMark(self._first._server)

    def close(self) -> None:
        """Finish background work and close the connections of all users; safe to call twice."""
        if self is not self._first:
            self._first.close()
            return
        while self.before_close:
            self.before_close.pop()()
        every = [*self._opened.values()]
        for opened in every:
            opened.indexer.stop()
        self.background.close()
        for opened in every:
            OpenedStore.close(opened)
        self._server.close()

    @property
    def has_model(self) -> bool:
        """Whether it was opened with a language model, whatever the settings name."""
        return self._first._llm_given

    @property
    def llm(self) -> LLMClient | None:
        """The language model that extracts memories, or None; all users share it."""
        return OpenedStore.llm.fget(self._first) if self is not self._first else super().llm  # type: ignore[attr-defined]

    def _user_spaces(self) -> list[str]:
        """Users who were opened here."""
        with self._first._opening:
            return list(self._first._opened)

    def _background(self) -> Background:
        return Background() if self is self._first else self._first.background

    def _parts(self, config: Config, features: Features, step: Step) -> tuple[Store, Indexer]:
        first, tenant = self._first, config.user_space
        catalog = PostgresCatalog(first._server, tenant)
        state = config.root / STATE_NAME
        store = PostgresStore(first._server, tenant, catalog.half, state, self.background, step)
        indexes = HnswIndexes(config.store.url, tenant)
        vectors, background = PostgresVectors(indexes, min(config.index.exact_below, EXACT_BELOW)), self.background
        return store, Indexer(store.ledger, catalog, self.registry, first._embedder, vectors, features, background)


class _DatabaseMark:
    """The mark of a database: a row; and a lock of the database, which is free again once its server is gone."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._half = PostgresDatabase(server, "ledger", _TOKENS)

    def lock(self) -> PostgresLock:
        return PostgresLock(self._server, "maintenance", 0.0)

    def read(self) -> str:
        row = self._half.connection().execute("SELECT value FROM meta WHERE name = ?", (_MARK,)).fetchone()
        return "" if row is None else str(row[0])

    def write(self, mark: str) -> None:
        with self._half.writing() as connection:
            connection.execute(SET_META, (_MARK, mark))
