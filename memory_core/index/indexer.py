"""Keeps the catalog and the vectors in step with the ledger.

``follow`` brings words up to date (``following``) and is called before every search, in whichever process searches.
A catalog that is damaged, deleted or replaced while it is open is noticed there and built anew. Vectors follow
(``embedding``): at once where the model is loaded and little waits, else in the background, where also sealing runs.
Nothing here is needed for a commit to be safe; everything here can be deleted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from memory_core.errors import EmbeddingFailed, RunebookError, StorageFailed, StoreBusy
from memory_core.index.catalog import Catalog
from memory_core.index.embedding import PassageEmbedding, Progress
from memory_core.index.encoders.embedder import Embedder
from memory_core.index.following import FOLLOW_SECONDS, Behind, Follower, TypeAt
from memory_core.index.vectors.log import count, prune, unsound
from memory_core.index.vectors.vector_index import VectorIndex
from memory_core.index.waiting import await_missing, dead_vectors, passage_count
from memory_core.storage.ledger import Ledger
from memory_core.storage.quiet import await_quiet
from memory_core.storage.sqlite.database import DatabaseDamaged

_log = logging.getLogger(__name__)
_FEWEST_PRUNED = 1_000
_PAUSE_SECONDS = 0.1
_PAUSE_LIMIT_SECONDS = 2.0
#: A process that only searches opens what others sealed this often.
_UPKEEP_SECONDS = 60.0
#: While a vector server is away, and once it is back.
_TROUBLED_SECONDS = 5.0
#: A catalog that is damaged again at once is left to the next request.
_HEALINGS = 3

T = TypeVar("T")
P = ParamSpec("P")


class Indexer:
    """The index of one store, as seen by this process.

    Args:
        ledger: What the index follows.
        path: The catalog's file.
        type_at: Tells a file's memory type.
        embedder: None means search by words only.
        vectors: Nearest-neighbour search over the catalog's vectors.
    """

    def __init__(
        self, ledger: Ledger, path: Path, type_at: TypeAt, embedder: Embedder | None, vectors: VectorIndex
    ) -> None:
        self.catalog = Catalog(path)
        self.vectors = vectors
        self._embedding = PassageEmbedding(self.catalog, path.parent / "locks", embedder)
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._follower = Follower(ledger, self.catalog, path.parent / "locks", type_at, self._closing)
        self._told = ""
        self._worker = threading.Thread(target=self._work, name="runebook-index", daemon=True)
        self._worker.start()
        self._loader = threading.Thread(target=self._load, name="runebook-vectors", daemon=True)

    def close(self) -> None:
        """Stop the background work and release files; safe to call twice."""
        self._closing.set()
        self._wake.set()
        self._worker.join()
        if self._loader.ident is not None:
            self._loader.join()
        self.vectors.close()
        self.catalog.close()

    def warm(self) -> None:
        """Begin loading the model, and beside it the vectors, so that the first search waits for the longer of them."""
        embedder = self.embedder
        if embedder is None or self._loader.ident is not None:
            return
        embedder.start()
        self._loader.start()

    def wake(self) -> None:
        """Let the background work look for something to do."""
        self._wake.set()

    def follow(
        self, wait_seconds: float | None = FOLLOW_SECONDS, report: Callable[[Behind], None] | None = None
    ) -> Behind | None:
        """Index the commits that the catalog has not seen, of this process or another; a damaged catalog anew.

        Args:
            wait_seconds: Much that is missing is left to the background after so long; None waits for all of it.
            report: Told how far it is, while it waits.

        Returns:
            How far it is; None when nothing is missing.

        Raises:
            StoreBusy: If another process wrote the catalog for longer than the timeout.
            StorageFailed: If all of it was to be indexed, and the disk refuses; else what is indexed is answered from.
        """
        try:
            behind = self.answer(lambda: self._follower.follow(wait_seconds, report))
        except DatabaseDamaged:
            raise
        except StorageFailed as error:
            if wait_seconds is None:
                raise
            behind = Behind(0, 0, "changes", error.message)
        if behind is not None:
            self.wake()
        return behind

    def answer(self, ask: Callable[[], T]) -> T:
        """What ``ask`` returns; where it meets a catalog that cannot be used, from a new one.

        Raises:
            DatabaseDamaged: If it is the ledger that cannot be trusted, or the disk spoils every catalog.
        """
        for _ in range(_HEALINGS):
            try:
                if not self.catalog.file.is_current():
                    self._replaced(self.catalog.file.renew())
                return ask()
            except DatabaseDamaged as error:
                self.heal(error)
        return ask()

    def heal(self, damage: DatabaseDamaged) -> None:
        """Put a new catalog in the place of a damaged one; the background fills it.

        Raises:
            DatabaseDamaged: ``damage``, if it is not the catalog's.
        """
        file = self.catalog.file
        if damage.path != file.path:
            raise damage
        if file.is_current():
            _log.warning("the index is rebuilt: %s", damage.message)
            self._replaced(file.renew(file.database.seen_generation))
        else:
            self._replaced(file.renew())

    def _replaced(self, replaced: bool) -> None:
        if replaced:
            self.wake()

    @property
    def embedder(self) -> Embedder | None:
        """The embedding model; None means search by words only."""
        return self._embedding.embedder

    @embedder.setter
    def embedder(self, embedder: Embedder | None) -> None:
        self._embedding.embedder = embedder

    def embed_waiting(self, deadline: float) -> int:
        """Before a search: embed what waits, where that is little, until ``deadline`` (``time.monotonic`` seconds).

        Much is left to the background, which this wakes: the search goes by the vectors there are.

        Returns:
            How many passages are not searched by meaning yet; see ``progress``.

        Raises:
            EmbeddingFailed: If the model cannot be used.
        """
        left = self._embedding.before_search(deadline)
        if left:
            self.wake()
        return left

    def embed_all(self, report: Callable[[Progress], None] = lambda _progress: None) -> Progress:
        """Embed everything that waits, loading the model first however long that takes.

        Args:
            report: Told the progress after each batch.

        Raises:
            EmbeddingFailed: If there is no model, or it cannot be used.
        """
        self.follow(None)
        return self._embedding.all(report)

    def send_all(self) -> None:
        """Bring the vector server up to date, if there is one, however long that takes; ``vectors.trouble`` tells."""
        fingerprint = self._embedding.fingerprint
        if self.vectors.server is None or fingerprint is None:
            return
        for space in self.catalog.spaces():
            connection = self.catalog.connection()
            while not self._closing.is_set() and self.vectors.seal_due(connection, space, fingerprint):
                if not self.vectors.seal(connection, space, fingerprint):
                    if self.vectors.trouble is not None:
                        return
                    self._closing.wait(_PAUSE_SECONDS)  # it is done, or the background is at it

    def drop_unsound(self) -> int:
        """Drop vectors that are none; what they were of waits for new ones.

        Returns:
            How many there were.
        """
        rows = unsound(self.catalog.connection())
        if rows:
            with self.catalog.writing() as connection:
                prune(connection, rows)
                await_missing(connection)
            self.wake()
        return len(rows)

    def vector_count(self) -> int:
        """How many vectors are stored, of all models and of texts that are gone too."""
        return int(self.catalog.connection().execute("SELECT count(*) FROM vectors").fetchone()[0])

    def progress(self) -> Progress:
        """How many passages have a vector of the model in use, of how many."""
        return self._embedding.progress()

    def _load(self) -> None:
        embedder = self.embedder
        if embedder is None:
            return
        try:
            fingerprint = embedder.fingerprint
            for space in self.catalog.spaces():
                if self._closing.is_set():
                    return
                self.vectors.load(self.catalog.connection(), space, fingerprint)
        except (EmbeddingFailed, StorageFailed) as error:
            _log.warning("vectors were not loaded ahead: %s", error.message)

    def _work(self) -> None:
        while not self._closing.is_set():
            self._wake.wait(_UPKEEP_SECONDS if self.vectors.trouble is None else _TROUBLED_SECONDS)
            await_quiet(self._wake, self._closing, pause_seconds=_PAUSE_SECONDS, limit_seconds=_PAUSE_LIMIT_SECONDS)
            if self._closing.is_set():
                return
            try:
                self._follow_all()
                self._embedding.in_background(self._closing)
                self._seal()
                self._told = ""
            except DatabaseDamaged as error:
                self._healed_in_background(error)
            except (EmbeddingFailed, StoreBusy, StorageFailed) as error:
                self._tell(error)

    def _follow_all(self) -> None:
        while not self._closing.is_set() and self.answer(lambda: self._follower.follow(None)) is not None:
            continue

    def _healed_in_background(self, damage: DatabaseDamaged) -> None:
        try:
            self.heal(damage)
            self.wake()
        except (StoreBusy, StorageFailed) as error:
            self._tell(error)

    def _tell(self, error: RunebookError) -> None:
        if error.message != self._told:
            self._told = error.message
            _log.warning("background indexing paused: %s", error)

    def _seal(self) -> None:
        fingerprint = self._embedding.fingerprint
        if fingerprint is None:
            return
        for space in self.catalog.spaces():
            if self._closing.is_set():
                return
            self._prune(space, fingerprint)
            connection = self.catalog.connection()  # another one, once the catalog was replaced
            while not self._closing.is_set() and self.vectors.seal_due(connection, space, fingerprint):
                if not self.vectors.seal(connection, space, fingerprint):
                    break

    def _prune(self, space: str, fingerprint: str) -> None:
        """Drop vectors of texts that are gone, once they outnumber those of texts that are there."""
        connection = self.catalog.connection()
        live = passage_count(connection, space)
        if count(connection, space, fingerprint) <= 2 * live + _FEWEST_PRUNED:
            return
        with self.catalog.writing() as writer:
            prune(writer, dead_vectors(writer, space, fingerprint))
        self.vectors.compact(connection, space, fingerprint, live)


class Searching(Protocol):
    """Whatever asks an index."""

    indexer: Indexer


S = TypeVar("S", bound=Searching)


def healed(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """A method that is asked again where it met a damaged index; see ``Indexer.answer``. For methods that only read."""

    @wraps(method)
    def asked(self: S, /, *arguments: P.args, **named: P.kwargs) -> T:
        return self.indexer.answer(lambda: method(self, *arguments, **named))

    return asked
