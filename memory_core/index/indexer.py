"""Keeps the catalog and the vectors in step with the ledger.

``follow`` brings words up to date and is called before every search, in whichever process searches.
Vectors follow (``embedding``): at once where the model is loaded and little waits, else in the background, where
also sealing runs. Nothing here is needed for a commit to be safe; everything here can be deleted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from memory_core.errors import EmbeddingFailed, StorageFailed, StoreBusy
from memory_core.index.catalog import Catalog, Position
from memory_core.index.documents import (
    is_searchable,
    is_session_log,
    log_documents,
    memory_document,
    session_growth,
)
from memory_core.index.embedder import Embedder
from memory_core.index.embedding import PassageEmbedding, Progress
from memory_core.index.sealing import SealedIndex
from memory_core.index.vectors import count, prune
from memory_core.index.waiting import dead_vectors, passage_count
from memory_core.model.conversation import Message, parse_lines
from memory_core.model.daily_log import log_day
from memory_core.model.memory_file import parse
from memory_core.model.schema import MemoryType
from memory_core.model.uri import MemoryUri
from memory_core.storage.ledger import ChangeRow, Ledger
from memory_core.storage.quiet import await_quiet

if TYPE_CHECKING:
    import sqlite3

_log = logging.getLogger(__name__)
_FOLLOW_COMMITS = 200
_FEWEST_PRUNED = 1_000
_PAUSE_SECONDS = 0.1
_PAUSE_LIMIT_SECONDS = 2.0
#: A process that only searches opens what others sealed this often.
_UPKEEP_SECONDS = 60.0

#: The type of a file, by its place and the type its trailer names.
TypeAt = Callable[[MemoryUri, str | None], MemoryType | None]


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
        self, ledger: Ledger, path: Path, type_at: TypeAt, embedder: Embedder | None, vectors: SealedIndex
    ) -> None:
        self.catalog = Catalog(path)
        self.vectors = vectors
        self._embedding = PassageEmbedding(self.catalog, path.parent / "locks", embedder)
        self._ledger = ledger
        self._ledger_id = ledger.ledger_id
        self._type_at = type_at
        self._wake = threading.Event()
        self._closing = threading.Event()
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

    def follow(self) -> None:
        """Index every commit the catalog has not seen, of this process or another.

        Raises:
            StoreBusy: If another process wrote the catalog for longer than the timeout.
        """
        newest = self._ledger.newest_seq()
        while self.catalog.position() != Position(self._ledger_id, newest):
            self._follow_some()
            newest = self._ledger.newest_seq()

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
        self.follow()
        return self._embedding.all(report)

    def progress(self) -> Progress:
        """How many passages have a vector of the model in use, of how many."""
        return self._embedding.progress()

    def _follow_some(self) -> None:
        with self.catalog.writing() as connection:
            position = self.catalog.position()
            # Read before the rows: what is committed in between is then not skipped, only seen the next time.
            newest = self._ledger.newest_seq()
            if position.ledger_id != self._ledger_id or position.seq > newest:
                self.catalog.clear(connection)
                position = Position(self._ledger_id, 0)
            rows = self._ledger.changes_after(position.seq, _FOLLOW_COMMITS)
            whole = {row.uri: index for index, row in enumerate(rows) if not row.appended}
            for index, row in enumerate(rows):
                if index >= whole.get(row.uri, 0):
                    self._index(connection, row)
            seq = rows[-1].seq if rows else newest
            self.catalog.advance(connection, Position(self._ledger_id, seq))

    def _index(self, connection: sqlite3.Connection, row: ChangeRow) -> None:
        if not is_searchable(row.uri):
            return
        if is_session_log(row.uri):
            self._index_session(connection, row)
            return
        self.catalog.remove(connection, row.uri)
        if log_day(row.uri) is not None:
            text = self._ledger.text_at(row.uri, row.seq) if row.appended else row.after
            for document in log_documents(row.uri, text or ""):
                self.catalog.put(connection, document)
            return
        if row.after is not None:
            memory_type = self._type_at(row.uri, parse(row.after).type_name)
            self.catalog.put(connection, memory_document(row.uri, row.after, memory_type))

    def _index_session(self, connection: sqlite3.Connection, row: ChangeRow) -> None:
        earlier: list[tuple[int, str]] = []
        first_part = 0
        text = row.after
        if row.appended and row.before_sha256 is not None:
            before = self._ledger.text_at(row.uri, row.seq - 1) or ""
            first_part = before.count("\n")
            earlier = self.catalog.last_turns(row.uri)
        else:
            self.catalog.remove(connection, row.uri)
        messages = [(first_part + line, message) for line, message in _numbered(text or "")]
        self.catalog.grow(connection, row.uri, session_growth(row.uri, earlier, messages))

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
            self._wake.wait(_UPKEEP_SECONDS)
            await_quiet(self._wake, self._closing, pause_seconds=_PAUSE_SECONDS, limit_seconds=_PAUSE_LIMIT_SECONDS)
            if self._closing.is_set():
                return
            try:
                self.follow()
                self._embedding.in_background(self._closing)
                self._seal()
                self._told = ""
            except (EmbeddingFailed, StoreBusy, StorageFailed) as error:
                if error.message != self._told:
                    self._told = error.message
                    _log.warning("background indexing paused: %s", error)

    def _seal(self) -> None:
        fingerprint = self._embedding.fingerprint
        if fingerprint is None:
            return
        connection = self.catalog.connection()
        for space in self.catalog.spaces():
            if self._closing.is_set():
                return
            self._prune(space, fingerprint)
            if self.vectors.seal_due(connection, space, fingerprint):
                self.vectors.seal(connection, space, fingerprint)

    def _prune(self, space: str, fingerprint: str) -> None:
        """Drop vectors of texts that are gone, once they outnumber those of texts that are there."""
        connection = self.catalog.connection()
        live = passage_count(connection, space)
        if count(connection, space, fingerprint) <= 2 * live + _FEWEST_PRUNED:
            return
        with self.catalog.writing() as writer:
            prune(writer, dead_vectors(writer, space, fingerprint))
        self.vectors.compact(connection, space, fingerprint, live)


def _numbered(text: str) -> Iterator[tuple[int, Message]]:
    """Each readable message with its line number; a damaged line keeps its number to itself."""
    for number, line in enumerate(text.split("\n")):
        messages, _ = parse_lines(line)
        if messages:
            yield number, messages[0]
