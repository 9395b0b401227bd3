"""Keeps the catalog and the vectors in step with the ledger.

``follow`` brings words up to date and is called before every search, in whichever process searches.
Vectors follow: at once where the model is loaded and the work is small, else in the background, where also
sealing runs. Nothing here is needed for a commit to be safe; everything here can be deleted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memory_core.errors import EmbeddingFailed, StorageFailed, StoreBusy
from memory_core.index.catalog import Catalog, Passage, Position
from memory_core.index.documents import (
    is_searchable,
    is_session_log,
    memory_document,
    session_growth,
)
from memory_core.index.embedder import Embedder
from memory_core.index.sealing import SealedIndex
from memory_core.index.vectors import VectorRow, append, count, prune
from memory_core.model.conversation import Message, parse_lines
from memory_core.model.memory_file import parse
from memory_core.model.schema import MemoryType
from memory_core.model.uri import MemoryUri
from memory_core.storage.ledger import ChangeRow, Ledger
from memory_core.storage.quiet import await_quiet

if TYPE_CHECKING:
    import sqlite3

_log = logging.getLogger(__name__)
_FOLLOW_COMMITS = 200
_EMBED_BATCH = 64
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
        self.embedder = embedder
        self.vectors = vectors
        self._ledger = ledger
        self._ledger_id = ledger.ledger_id
        self._type_at = type_at
        self._wake = threading.Event()
        self._closing = threading.Event()
        if embedder is not None:
            self.catalog.expect(embedder.fingerprint)
        self._worker = threading.Thread(target=self._work, name="runebook-index", daemon=True)
        self._worker.start()

    def close(self) -> None:
        """Stop the background work and release files; safe to call twice."""
        self._closing.set()
        self._wake.set()
        self._worker.join()
        self.vectors.close()
        self.catalog.close()

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

    def embed_waiting(self, deadline: float) -> int:
        """Embed passages that have no vector yet, until ``deadline`` (``time.monotonic`` seconds).

        Returns:
            How many still wait.

        Raises:
            EmbeddingFailed: If the model cannot be used.
        """
        if self.embedder is None:
            return 0
        while batch := self.catalog.waiting(_EMBED_BATCH):
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not self.embedder.ready(remaining):
                return self.catalog.waiting_count()
            self._embed(batch, self.embedder)
        return 0

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

    def _embed(self, batch: Sequence[Passage], embedder: Embedder) -> None:
        vectors = embedder.embed([passage.text for passage in batch])
        rows = [
            VectorRow(
                passage.space,
                passage.uri,
                passage.part,
                passage.content_sha256,
                embedder.fingerprint,
                vectors[index],
            )
            for index, passage in enumerate(batch)
        ]
        with self.catalog.writing() as connection:
            append(connection, rows)
            self.catalog.mark_embedded(connection, batch, embedder.fingerprint)

    def _work(self) -> None:
        while not self._closing.is_set():
            self._wake.wait(_UPKEEP_SECONDS)
            await_quiet(self._wake, self._closing, pause_seconds=_PAUSE_SECONDS, limit_seconds=_PAUSE_LIMIT_SECONDS)
            if self._closing.is_set():
                return
            try:
                self.follow()
                while not self._closing.is_set() and self.embed_waiting(time.monotonic() + 1.0):
                    continue
                self._seal()
            except (EmbeddingFailed, StoreBusy, StorageFailed) as error:
                _log.warning("background indexing paused: %s", error.message)

    def _seal(self) -> None:
        if self.embedder is None:
            return
        connection, fingerprint = self.catalog.connection(), self.embedder.fingerprint
        for space in self.catalog.spaces():
            if self._closing.is_set():
                return
            self._prune(space, fingerprint)
            if self.vectors.seal_due(connection, space, fingerprint):
                self.vectors.seal(connection, space, fingerprint)

    def _prune(self, space: str, fingerprint: str) -> None:
        """Drop vectors of texts that are gone, once they outnumber those of texts that are there."""
        connection = self.catalog.connection()
        live = self.catalog.passage_count(space)
        if count(connection, space, fingerprint) <= 2 * live + _FEWEST_PRUNED:
            return
        with self.catalog.writing() as writer:
            prune(writer, self.catalog.dead_vectors(space, fingerprint))
        self.vectors.compact(connection, space, fingerprint, live)


def _numbered(text: str) -> Iterator[tuple[int, Message]]:
    """Each readable message with its line number; a damaged line keeps its number to itself."""
    for number, line in enumerate(text.split("\n")):
        messages, _ = parse_lines(line)
        if messages:
            yield number, messages[0]
