"""Gives waiting passages their vectors, without keeping a search waiting.

Owns when and how many passages are embedded: a few right before a search, many in the background, newest first, by
one process at a time, in batches of about a quarter of a second so that a query is never long behind one. Until
all have vectors, a search goes by words and by the vectors there are, and says how far that is.

Does not decide which passages wait (``waiting``) or what a model is (``embedder``).
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from memory_core.core.errors import EmbeddingFailed, StoreBusy
from memory_core.core.index import embedding_queue
from memory_core.core.index.vectors import VectorRow, append
from memory_core.core.store import atomic
from memory_core.core.store.locks import StoreLock

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from memory_core.core.index.catalog import Catalog
    from memory_core.core.index.embedding_queue import Passage
    from memory_core.core.index.encoder import Embedder


#: A search embeds so many waiting passages itself; more are left to the background.
SMALL_BACKLOG = 256
_BATCH_SECONDS = 0.25
_FIRST_BATCH = 32
_LEAST_BATCH = 4
_MOST_BATCH = 256
_LOADING_POLL_SECONDS = 0.2
_OTHER_PROCESS_POLL_SECONDS = 0.5
#: A model in use is noted as such this often.
_REGISTER_SECONDS = 86_400.0


class Progress(NamedTuple):
    """How far a model has come: passages that have its vectors, of all passages of the store."""

    done: int
    total: int


class PassageEmbedding:
    """The embedding of one store's passages, by this process.

    Args:
        catalog: Where passages and vectors are.
        locks: Folder of lock files.
        embedder: The model; None embeds nothing. May be replaced at any time.
    """

    def __init__(self, catalog: Catalog, locks: Path, embedder: Embedder | None) -> None:
        self.embedder = embedder
        self._catalog = catalog
        self._locks = locks
        self._turn = threading.Lock()
        self._registered: tuple[str, float, int] = ("", 0.0, 0)
        self._batch = _FIRST_BATCH

    @property
    def fingerprint(self) -> str | None:
        """Of the model, once it is in use; None before, and without one."""
        fingerprint = self._registered[0]
        embedder = self.embedder
        if not fingerprint or embedder is None or not embedder.ready(0.0):
            return None
        return embedder.fingerprint

    def progress(self) -> Progress:
        """How many passages have vectors; none while the model is not loaded."""
        connection = self._catalog.connection()
        total = embedding_queue.passage_count(connection)
        embedder = self.embedder
        if embedder is None or not embedder.ready(0.0):
            return Progress(0, total)
        fingerprint = self._register(embedder)
        return Progress(max(0, total - embedding_queue.backlog(connection, fingerprint)), total)

    def before_search(self, deadline: float) -> int:
        """Embed what waits, where that is little, until ``deadline`` (``time.monotonic`` seconds).

        Returns:
            How many passages are not searched by meaning yet.

        Raises:
            EmbeddingFailed: If the model cannot be used.
        """
        embedder = self.embedder
        connection = self._catalog.connection()
        if embedder is None:
            return 0
        if not embedder.ready(max(0.0, deadline - time.monotonic())):
            return embedding_queue.passage_count(connection)
        fingerprint = self._register(embedder)
        if embedding_queue.backlog(connection, fingerprint, SMALL_BACKLOG + 1) <= SMALL_BACKLOG:
            while time.monotonic() < deadline and self._embed_some(embedder, fingerprint, deadline):
                continue
        return embedding_queue.backlog(connection, fingerprint)

    def all(self, report: Callable[[Progress], None]) -> Progress:
        """Embed everything that waits, loading the model first however long that takes.

        While another process is at it, its progress is reported.

        Raises:
            EmbeddingFailed: If there is no model, or it cannot be used.
        """
        embedder = self.embedder
        if embedder is None:
            raise EmbeddingFailed(
                "there is no embedding model.", hint="Set embedding.provider to bundled or sentence-transformers."
            )
        embedder.embed(["ready"])
        fingerprint = self._register(embedder)
        lock = self._lock(fingerprint)
        while (progress := self.progress()).done < progress.total:
            report(progress)
            try:
                with lock.held():
                    self._embed_some(embedder, fingerprint, time.monotonic() + _BATCH_SECONDS)
            except StoreBusy:
                time.sleep(_OTHER_PROCESS_POLL_SECONDS)
        report(progress)
        return progress

    def in_background(self, closing: threading.Event) -> None:
        """Embed everything that waits, unless another process is at it; returns early when closing.

        Raises:
            EmbeddingFailed: If the model cannot be used.
        """
        embedder = self.embedder
        if embedder is None or not self._loaded(embedder, closing):
            return
        fingerprint = self._register(embedder)
        if embedding_queue.backlog(self._catalog.connection(), fingerprint, SMALL_BACKLOG + 1) <= SMALL_BACKLOG:
            self._embed_rest(embedder, fingerprint, closing)
            return
        try:
            with self._lock(fingerprint).held():
                self._embed_rest(embedder, fingerprint, closing)
        except StoreBusy:
            return

    def _register(self, embedder: Embedder) -> str:
        """Note once a day that the model is in use; what it has no vectors of begins to wait."""
        fingerprint = embedder.fingerprint
        now = time.time()
        known, noted_at, noted_in = self._registered
        generation = self._catalog.file.generation
        if (known, noted_in) != (fingerprint, generation) or not now - _REGISTER_SECONDS < noted_at <= now:
            if not embedding_queue.is_registered(self._catalog.connection(), fingerprint, now - _REGISTER_SECONDS):
                with self._catalog.writing() as connection:
                    embedding_queue.register(connection, fingerprint, now)
            self._registered = (fingerprint, now, generation)
        return fingerprint

    def _loaded(self, embedder: Embedder, closing: threading.Event) -> bool:
        embedder.start()
        while not embedder.ready(_LOADING_POLL_SECONDS):
            if embedder.failure is not None:
                raise embedder.failure
            if closing.wait(_LOADING_POLL_SECONDS):
                return False
        return not closing.is_set()

    def _embed_rest(self, embedder: Embedder, fingerprint: str, closing: threading.Event) -> None:
        while not closing.is_set() and self._embed_some(embedder, fingerprint, time.monotonic() + _BATCH_SECONDS):
            continue

    def _embed_some(self, embedder: Embedder, fingerprint: str, deadline: float) -> bool:
        """One batch; False when nothing waits. Another thread's turn is waited for until the deadline."""
        with self._taking_turns(deadline) as mine:
            if not mine:
                return True
            passages = embedding_queue.newest(self._catalog.connection(), fingerprint, self._batch)
            if not passages:
                return False
            started = time.monotonic()
            vectors = embedder.embed([passage.text for passage in passages])
            seconds = max(1e-3, time.monotonic() - started)
            self._store(passages, vectors, fingerprint)
            fitting = int(len(passages) * _BATCH_SECONDS / seconds)
            self._batch = min(_MOST_BATCH, 2 * self._batch, max(_LEAST_BATCH, fitting))
            return True

    @contextmanager
    def _taking_turns(self, deadline: float) -> Iterator[bool]:
        """Threads of this process embed in turn, so that none embeds what another is at."""
        mine = self._turn.acquire(timeout=max(0.0, deadline - time.monotonic()))
        try:
            yield mine
        finally:
            if mine:
                self._turn.release()

    def _store(self, passages: Sequence[Passage], vectors: npt.NDArray[np.float32], fingerprint: str) -> None:
        rows = [
            VectorRow(passage.space, passage.uri, passage.part, passage.content_sha256, fingerprint, vectors[index])
            for index, passage in enumerate(passages)
        ]
        with self._catalog.writing() as connection:
            append(connection, rows)
            embedding_queue.settle(connection, passages, fingerprint)

    def _lock(self, fingerprint: str) -> StoreLock:
        atomic.make_folder(self._locks)
        name = hashlib.sha256(fingerprint.encode()).hexdigest()[:16]
        return StoreLock(self._locks / f"embedding-{name}.lock", timeout_seconds=0.0)
