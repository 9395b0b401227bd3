"""The index of one store: words through ``Follower``, vectors behind them, in the background what nobody waits for.

``Indexer.follow`` is called before every search, in whichever process searches. A catalog that is damaged, deleted or
replaced while it is open is noticed here and built anew. Vectors follow (``embedding_queue``): at once where the model
is loaded and little waits, else in the background.
Nothing here is needed for a commit to be safe; everything here can be deleted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

from memory_core.core.background import Background, await_quiet
from memory_core.core.errors import EmbeddingFailed, RunebookError, StorageFailed, StoreBusy
from memory_core.core.feature import Features
from memory_core.core.index.catalog import Catalog
from memory_core.core.index.embedding_queue import PassageEmbedding, Progress, passage_count
from memory_core.core.index.encoder import Embedder
from memory_core.core.index.follower import FOLLOW_SECONDS, Behind, Follower, Report, Unseen
from memory_core.core.index.vectors import VectorIndex, count, dead, prune
from memory_core.core.memory.memory_type import MemoryTypeRegistry
from memory_core.core.store.ledger import Ledger
from memory_core.core.store.sqlite import DatabaseDamaged

if TYPE_CHECKING:
    import sqlite3

_log = logging.getLogger(__name__)
#: At least so many are indexed, on a machine that does much else; nobody waits longer than so long for them.
_CHARS_A_SECOND, _INDEXED_SECONDS = 50_000, 2.0
_FEWEST_PRUNED = 1_000
_PAUSE_SECONDS = 0.1
_PAUSE_LIMIT_SECONDS = 2.0
#: A process that only searches looks for what others sent or filed this often.
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
        catalog: What follows it.
        types: Tell a file's memory type.
        embedder: None means search by words only.
        vectors: Nearest-neighbour search over the catalog's vectors.
        features: Their kinds of records are searched in ways of their own.
        background: Does the background work of several stores; without one there is a thread for this one.
    """

    def __init__(
        self,
        ledger: Ledger,
        catalog: Catalog,
        types: MemoryTypeRegistry,
        embedder: Embedder | None,
        vectors: VectorIndex,
        features: Features,
        background: Background | None = None,
    ) -> None:
        self.catalog = catalog
        self.vectors = vectors
        self._embedding = PassageEmbedding(self.catalog, embedder)
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._follower = Follower(ledger, self.catalog, types, self._closing, features)
        self._paused = ""
        #: Called in the background once the catalog has followed the ledger.
        self.followed: Callable[[], None] = lambda: None
        #: Called in the background before each slice that is indexed, and between batches that are embedded.
        self.give_way: Callable[[], None] = lambda: None
        self._background = background
        self._worker = threading.Thread(target=self._work, name="runebook-index", daemon=True)
        if background is None:
            self._worker.start()
        self._loader = threading.Thread(target=self._load, name="runebook-vectors", daemon=True)

    def stop(self) -> None:
        """Let the background work come to an end."""
        self._closing.set()
        self._wake.set()

    def close(self) -> None:
        """Stop the background work and release files; safe to call twice."""
        self.stop()
        if self._background is None:
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
        if self._background is None:
            self._wake.set()
        else:
            self._background.later(self._round)

    def follow(
        self, wait_seconds: float | None = FOLLOW_SECONDS, report: Report | None = None, spaces: Sequence[str] = ()
    ) -> Behind | None:
        """Index the commits that the catalog has not seen, of this process or another; a damaged catalog anew.

        Args:
            wait_seconds: Much that is missing is left to the background after so long; None waits for all of it.
            report: Told how far it is, while it waits.
            spaces: Where nothing may be missing (``scope/space``); none given is everywhere.

        Returns:
            How far it is there; None when nothing is missing there.

        Raises:
            StoreBusy: If another process wrote the catalog for longer than the timeout.
            StorageFailed: If all of it was to be indexed, and the disk refuses; else what is indexed is answered from.
        """
        try:
            behind = self.answer(lambda: self._follower.follow(wait_seconds, report, spaces))
        except DatabaseDamaged:
            raise
        except StorageFailed as error:
            if wait_seconds is None:
                raise
            behind = Behind(0, 0, "changes", error.message)
        if behind is not None or self._follower.is_far_behind:
            self.wake()
        return behind

    def wait_until_indexed(self, spaces: Sequence[str]) -> None:
        """Have the index take what it lacks of these spaces, as long as that may take, but not long."""
        if missing := self.answer(lambda: self._follower.missing_chars(spaces)):
            self.follow(min(_INDEXED_SECONDS, missing / _CHARS_A_SECOND), spaces=spaces)

    def unseen(self, limit: int) -> Mapping[str, Unseen]:
        """Memories of the last ``limit`` changes that the index lacks, by URI, oldest first."""
        return self._follower.unseen(limit)

    def answer(self, ask: Callable[[], T]) -> T:
        """What ``ask`` returns; where it meets a catalog that cannot be used, from a new one.

        Raises:
            DatabaseDamaged: If it is the ledger that cannot be trusted, or the disk spoils every catalog.
        """
        for _ in range(_HEALINGS):
            try:
                if not self.catalog.file.is_current() and self.catalog.file.renew():
                    self.wake()
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
        is_there = file.is_current()  # else it was deleted or replaced, which is nobody's fault
        if file.renew(damage.generation if is_there else None):
            if is_there:
                _log.warning("the index is rebuilt: %s", damage.message)
            self.wake()

    @property
    def embedder(self) -> Embedder | None:
        """The embedding model; None means search by words only."""
        return self._embedding.embedder

    @embedder.setter
    def embedder(self, embedder: Embedder | None) -> None:
        self._embedding.embedder = embedder

    def embed_waiting(self, spaces: Sequence[str], deadline: float) -> int:
        """Before a search: embed what waits of its spaces, until ``deadline``; see ``PassageEmbedding.before_search``.

        Much is left to the background, which this wakes: the search goes by the vectors there are.

        Returns:
            How many passages are not searched by meaning yet.

        Raises:
            EmbeddingFailed: If the model cannot be used.
        """
        try:
            left = self._embedding.before_search(spaces, deadline)
        except DatabaseDamaged:
            raise
        except (StoreBusy, StorageFailed):  # the vectors that are there answer
            left = passage_count(self.catalog.connection())
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
            while not self._closing.is_set() and not self._is_sent(connection, space, fingerprint):
                if not self.vectors.keep_up(connection, space, fingerprint):
                    if self.vectors.trouble is not None:
                        return
                    self._closing.wait(_PAUSE_SECONDS)  # the background is at it

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
        except (EmbeddingFailed, StoreBusy, StorageFailed) as error:
            _log.warning("vectors were not loaded ahead: %s", error.message)

    def _work(self) -> None:
        while not self._closing.is_set():
            self._wake.wait(_UPKEEP_SECONDS if self.vectors.trouble is None else _TROUBLED_SECONDS)
            await_quiet(self._wake, self._closing, pause_seconds=_PAUSE_SECONDS, limit_seconds=_PAUSE_LIMIT_SECONDS)
            self._round()

    def _round(self) -> None:
        """Do all of the background work that there is now."""
        if self._closing.is_set():
            return
        try:
            while not self._closing.is_set() and self.answer(self._followed) is not None:
                continue
            self.followed()
            self._embedding.in_background(self._closing, self.give_way)
            self._keep_up()
            self._paused = ""
        except DatabaseDamaged as error:
            try:
                self.heal(error)
                self.wake()
            except (StoreBusy, StorageFailed) as failure:
                self._warn(failure)
        except (EmbeddingFailed, StoreBusy, StorageFailed) as error:
            self._warn(error)

    def _followed(self) -> Behind | None:
        return self._follower.follow(None, give_way=self.give_way)

    def _warn(self, error: RunebookError) -> None:
        """Say why background work paused, once for each reason."""
        if error.message != self._paused:
            self._paused = error.message
            _log.warning("background indexing paused: %s", error)

    def _keep_up(self) -> None:
        fingerprint = self._embedding.fingerprint
        if fingerprint is None:
            return
        for space in self.catalog.spaces():
            if self._closing.is_set():
                return
            self._prune(space, fingerprint)
            connection = self.catalog.connection()  # another one, once the catalog was replaced
            while not self._closing.is_set() and self.vectors.keep_up(connection, space, fingerprint):
                continue

    def _is_sent(self, connection: sqlite3.Connection, space: str, fingerprint: str) -> bool:
        """Whether the vector server was sent every row."""
        sent = self.vectors.status(connection, space, fingerprint).sent_rows
        return sent == count(connection, space, fingerprint)

    def _prune(self, space: str, fingerprint: str) -> None:
        """Drop vectors of texts that are gone, once they outnumber those of texts that are there."""
        connection = self.catalog.connection()
        live = passage_count(connection, space)
        if count(connection, space, fingerprint) <= 2 * live + _FEWEST_PRUNED:
            return
        with self.catalog.writing() as writer:
            prune(writer, dead(writer, space, fingerprint))
        self.vectors.compact(connection, space, fingerprint)


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
