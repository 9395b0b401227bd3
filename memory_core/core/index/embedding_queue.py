"""Passages, which of them wait for a vector of which model, and giving them one without keeping a search waiting.

Owns the tables ``passages``, ``models`` and ``waiting`` of the catalog's database. A model is registered when it is
first used; from then on every passage without a vector of its own waits for it, those of before included. Several
models may be in use at once, each by another process: none takes anything from another. Vectors are kept when
texts and models go (``vectors``), so going back to a model costs nothing for what it has embedded before.

A few passages of its own spaces are embedded right before a search, many in the background, newest first, by one
process at a time, in batches of about a tenth of a second so that a query is never long behind one. Until all have
vectors, a search goes by words and by the vectors there are, and says how far that is.

Promises: what waits is exactly what has no vector of that model, at most one row for each passage and model.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from memory_core.core.errors import EmbeddingFailed, StoreBusy
from memory_core.core.frozen import frozen
from memory_core.core.index.encoder import embed_passages
from memory_core.core.index.vectors import VectorRow
from memory_core.core.store.locks import FairLock

if TYPE_CHECKING:
    from memory_core.core.index.catalog import Catalog
    from memory_core.core.index.encoder import Embedder, Vectors
    from memory_core.core.store.locks import Lock

#: A search embeds so many waiting passages itself, and for so long at most; more are left to the background.
SMALL_BACKLOG = 256
_BEFORE_SEARCH_SECONDS = 1.0
#: Where others wait for much, which then holds the model and the catalog.
_CROWDED_SECONDS = 0.3
#: Before it looks at the time again: under a second of a slow processor, whatever the characters are.
_BEFORE_SEARCH_CHARS = 32_000
#: A search waits so long for whoever writes the catalog.
_WRITER_SECONDS = 0.2
_BATCH_SECONDS = 0.1
_FIRST_BATCH = 32
_LEAST_BATCH = 4
_MOST_BATCH = 256
_LOADING_POLL_SECONDS = 0.2
_OTHER_PROCESS_POLL_SECONDS = 0.5
#: A model in use is noted as such this often.
_REGISTER_SECONDS = 86_400.0
#: A model that nobody used for so long is no longer waited for.
FORGOTTEN_SECONDS = 30 * 86_400.0

_NO_VECTOR = (
    "NOT EXISTS (SELECT 1 FROM vectors v WHERE v.space = p.space AND v.uri = p.uri AND v.part = p.part "
    "AND v.content_sha256 = p.content_sha256 AND v.fingerprint = m.fingerprint)"
)
#: No limit.
_ALL = 2**62
#: Where others wait for much, what waits of some spaces is looked for among so many passages of each, the newest.
_LOOKED_THROUGH = 5_000
#: SQLite takes 500 of these together.
_SPACES_LOOKED_THROUGH = 100
_NEWEST_OF_SPACE = "SELECT id FROM (SELECT id FROM passages WHERE space = ? ORDER BY id DESC LIMIT ?) AS newest"
#: The row of ``meta`` that counts texts which needed no vector.
_REUSED = "vectors_reused"
_MODEL = "(SELECT id FROM models WHERE fingerprint = ?)"


@frozen
class Passage:
    """A text to embed; ``space``, ``uri``, ``part`` and ``content_sha256`` name its vector."""

    id: int
    space: str
    uri: str
    part: int
    text: str
    content_sha256: str


def put(
    connection: sqlite3.Connection, document_id: int, space: str, uri: str, part: int, text: str, content_sha256: str
) -> None:
    """Add a passage, or replace the one at that place; it waits for every model that has no vector of it."""
    held = connection.execute(
        "SELECT id, content_sha256 FROM passages WHERE uri = ? AND part = ?", (uri, part)
    ).fetchone()
    if held is not None:
        if held[1] == content_sha256:
            _note_reuse(connection)
            connection.execute("UPDATE passages SET document_id = ? WHERE id = ?", (document_id, held[0]))
            return
        _forget(connection, "id = ?", held[0])
    cursor = connection.execute(
        "INSERT INTO passages (document_id, space, uri, part, text, content_sha256) VALUES (?, ?, ?, ?, ?, ?)",
        (document_id, space, uri, part, text, content_sha256),
    )
    added = connection.execute(
        f"INSERT INTO waiting SELECT m.id, p.id FROM models m, passages p WHERE p.id = ? AND {_NO_VECTOR}",
        (cursor.lastrowid,),
    )
    if added.rowcount == 0:
        _note_reuse(connection)


def remove(connection: sqlite3.Connection, uri: str) -> None:
    """Drop every passage of a file, and with it what waited."""
    _forget(connection, "uri = ?", uri)


def remove_range(connection: sqlite3.Connection, uri: str, first: int, end: int) -> None:
    """Drop a file's passages from number ``first`` to ``end``, not included."""
    numbers = connection.execute(
        "SELECT part FROM passages WHERE uri = ? AND part >= ? AND part < ?", (uri, first, end)
    )
    for (number,) in numbers.fetchall():
        _forget(connection, "uri = ? AND part = ?", uri, number)


def clear(connection: sqlite3.Connection) -> None:
    """Drop all passages; the models stay registered."""
    connection.execute("DELETE FROM waiting")
    connection.execute("DELETE FROM passages")


def counts(connection: sqlite3.Connection, spaces: Sequence[str], fingerprint: str | None) -> tuple[int, int]:
    """How many passages some spaces hold, and how many of them wait for the model; 0 wait for none."""
    row = connection.execute(
        "SELECT count(*), count(*) FILTER (WHERE EXISTS (SELECT 1 FROM waiting w WHERE w.passage_id = p.id AND "
        f"w.model_id = {_MODEL})) FROM passages p WHERE p.space IN (SELECT value FROM json_each(?))",
        (fingerprint, json.dumps(list(spaces))),
    ).fetchone()
    return int(row[0]), int(row[1])


def effort(connection: sqlite3.Connection) -> tuple[int, int]:
    """How many vectors are kept, and how often a text came again that had one, since the index was last made anew."""
    row = connection.execute(
        "SELECT (SELECT count(*) FROM vectors), coalesce((SELECT value FROM meta WHERE name = ?), '0')", (_REUSED,)
    ).fetchone()
    return int(row[0]), int(row[1])


def _note_reuse(connection: sqlite3.Connection) -> None:
    """Count a text that needs no vector of any model in use; without one nothing is counted."""
    connection.execute(
        "INSERT INTO meta SELECT ?, '1' WHERE EXISTS (SELECT 1 FROM models) "
        "ON CONFLICT (name) DO UPDATE SET value = CAST(meta.value AS INTEGER) + 1",
        (_REUSED,),
    )


def is_registered(connection: sqlite3.Connection, fingerprint: str, since: float) -> bool:
    """Whether the model is registered and was used at ``since`` or later."""
    row = connection.execute("SELECT last_used FROM models WHERE fingerprint = ?", (fingerprint,)).fetchone()
    return row is not None and row[0] >= since


def register(connection: sqlite3.Connection, fingerprint: str, now: float) -> None:
    """Note that a model is in use; for one that was not, the passages it has no vector of begin to wait.

    Models unused for ``FORGOTTEN_SECONDS`` are no longer waited for; their vectors stay.
    """
    updated = connection.execute("UPDATE models SET last_used = ? WHERE fingerprint = ?", (now, fingerprint))
    if not updated.rowcount:
        connection.execute("INSERT INTO models (fingerprint, last_used) VALUES (?, ?)", (fingerprint, now))
        connection.execute(
            f"INSERT INTO waiting SELECT m.id, p.id FROM models m, passages p WHERE m.fingerprint = ? AND {_NO_VECTOR}",
            (fingerprint,),
        )
    unused = "SELECT id FROM models WHERE last_used < ?"
    connection.execute(f"DELETE FROM waiting WHERE model_id IN ({unused})", (now - FORGOTTEN_SECONDS,))
    connection.execute("DELETE FROM models WHERE last_used < ?", (now - FORGOTTEN_SECONDS,))


def await_missing(connection: sqlite3.Connection) -> int:
    """Let every passage wait that has no vector of a model in use and does not wait yet.

    Returns:
        How many there were.
    """
    cursor = connection.execute(
        f"INSERT OR IGNORE INTO waiting SELECT m.id, p.id FROM models m, passages p WHERE {_NO_VECTOR}"
    )
    return cursor.rowcount


def passages_without_vector(connection: sqlite3.Connection) -> dict[str, int]:
    """How many passages have neither a vector of a model in use nor wait for one, by model; none for most."""
    rows = connection.execute(
        f"SELECT m.fingerprint, count(*) FROM models m, passages p WHERE {_NO_VECTOR} AND NOT EXISTS "
        "(SELECT 1 FROM waiting w WHERE w.model_id = m.id AND w.passage_id = p.id) GROUP BY m.fingerprint"
    )
    return {str(fingerprint): int(lacking) for fingerprint, lacking in rows}


def newest(
    connection: sqlite3.Connection,
    fingerprint: str,
    limit: int,
    spaces: Sequence[str] | None = None,
    *,
    crowded: bool = False,
) -> list[Passage]:
    """Passages that wait for a vector of this model, newest first: what was just said is asked for next.

    Args:
        connection: To the index.
        fingerprint: Of the model.
        limit: Passages at most.
        spaces: Only those of these spaces.
        crowded: Others wait for much: those of the newest ``_LOOKED_THROUGH`` passages of each space.
    """
    waiting, values = _waiting(fingerprint, spaces, crowded=crowded)
    rows = connection.execute(
        f"SELECT p.id, p.space, p.uri, p.part, p.text, p.content_sha256 {waiting} ORDER BY p.id DESC LIMIT ?",
        (*values, limit),
    )
    return [Passage(*row) for row in rows]


def backlog(
    connection: sqlite3.Connection,
    fingerprint: str,
    limit: int = _ALL,
    spaces: Sequence[str] | None = None,
    *,
    crowded: bool = False,
) -> int:
    """How many passages wait for this model, of all spaces or of some; counting ends at ``limit``; see ``newest``."""
    waiting, values = _waiting(fingerprint, spaces, crowded=crowded)
    row = connection.execute(f"SELECT count(*) FROM (SELECT 1 {waiting} LIMIT ?)", (*values, limit)).fetchone()
    return int(row[0])


def _waiting(fingerprint: str, spaces: Sequence[str] | None, *, crowded: bool) -> tuple[str, tuple[str | int, ...]]:
    """The passages ``p`` that wait for a model, of all spaces or of some, as the end of a statement with its values."""
    of_model = f"FROM waiting w JOIN passages p ON p.id = w.passage_id WHERE w.model_id = {_MODEL}"
    if spaces is None:
        return of_model, (fingerprint,)
    if not crowded or not spaces:
        return f"{of_model} AND p.space IN (SELECT value FROM json_each(?))", (fingerprint, json.dumps(list(spaces)))
    looked_through = list(dict.fromkeys(spaces))[:_SPACES_LOOKED_THROUGH]
    own = " UNION ALL ".join([_NEWEST_OF_SPACE] * len(looked_through))
    return (  # CROSS JOIN has SQLite keep to this order
        f"FROM ({own}) AS own CROSS JOIN waiting w CROSS JOIN passages p "
        f"WHERE w.model_id = {_MODEL} AND w.passage_id = own.id AND p.id = own.id",
        (*(value for space in looked_through for value in (space, _LOOKED_THROUGH)), fingerprint),
    )


def settle(connection: sqlite3.Connection, passages: Iterable[Passage], fingerprint: str) -> None:
    """Note that these passages have vectors of this model, unless their text changed meanwhile."""
    connection.executemany(
        f"DELETE FROM waiting WHERE model_id = {_MODEL} AND passage_id = ? AND EXISTS "
        "(SELECT 1 FROM passages WHERE id = ? AND uri = ? AND part = ? AND content_sha256 = ?)",
        [
            (fingerprint, passage.id, passage.id, passage.uri, passage.part, passage.content_sha256)
            for passage in passages
        ],
    )


def passage_count(connection: sqlite3.Connection, space: str | None = None) -> int:
    """How many passages a space has, or all spaces together."""
    if space is None:
        return int(connection.execute("SELECT count(*) FROM passages").fetchone()[0])
    return int(connection.execute("SELECT count(*) FROM passages WHERE space = ?", (space,)).fetchone()[0])


def _forget(connection: sqlite3.Connection, condition: str, *values: str | int) -> None:
    connection.execute(
        "DELETE FROM waiting WHERE model_id IN (SELECT id FROM models) "
        f"AND passage_id IN (SELECT id FROM passages WHERE {condition})",
        values,
    )
    connection.execute(f"DELETE FROM passages WHERE {condition}", values)


class Progress(NamedTuple):
    """How far a model has come: passages that have its vectors, of all passages of the store."""

    done: int
    total: int


class PassageEmbedding:
    """The embedding of one store's passages, by this process.

    Args:
        catalog: Where passages and vectors are.
        embedder: The model; None embeds nothing. May be replaced at any time.
    """

    def __init__(self, catalog: Catalog, embedder: Embedder | None) -> None:
        self.embedder = embedder
        self._catalog = catalog
        #: Threads of this process embed in turn, so that none embeds what another is at,
        self._turn = FairLock()
        #: but searches beside the background while much waits: to make a vector twice costs less than to wait.
        self._search_turn = FairLock()
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
        total = passage_count(connection)
        embedder = self.embedder
        if embedder is None or not embedder.ready(0.0):
            return Progress(0, total)
        fingerprint = self._register(embedder)
        return Progress(max(0, total - backlog(connection, fingerprint)), total)

    def before_search(self, spaces: Sequence[str], deadline: float) -> int:
        """Embed what waits of some spaces, where it is little, until ``deadline`` (``time.monotonic`` seconds).

        Returns:
            How many passages are not searched by meaning yet; of a long queue those of other spaces count, too.

        Raises:
            EmbeddingFailed: If the model cannot be used.
            StoreBusy: If another process writes the catalog, and the model is not noted as in use yet.
            StorageFailed: If the disk refuses.
        """
        embedder = self.embedder
        connection = self._catalog.connection()
        if embedder is None:
            return 0
        if not embedder.ready(max(0.0, deadline - time.monotonic())):
            return passage_count(connection)
        fingerprint = self._register(embedder, wait_seconds=_WRITER_SECONDS)
        waiting = backlog(connection, fingerprint, SMALL_BACKLOG + 1)
        crowded = waiting > SMALL_BACKLOG
        left = backlog(connection, fingerprint, SMALL_BACKLOG + 1, spaces, crowded=crowded) if waiting else 0
        if left > SMALL_BACKLOG:
            return waiting
        deadline = min(deadline, time.monotonic() + (_CROWDED_SECONDS if crowded else _BEFORE_SEARCH_SECONDS))
        # Whoever has nothing waiting does not wait for another thread's turn either.
        while left and time.monotonic() < deadline:
            try:
                self._embed_some(embedder, fingerprint, deadline, spaces, crowded=crowded, wait_seconds=_WRITER_SECONDS)
            except StoreBusy:  # what others changed is indexed just now
                break
            left = backlog(connection, fingerprint, spaces=spaces, crowded=crowded)
        return waiting if crowded else left

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
                with lock.held(0.0):
                    self._embed_some(embedder, fingerprint, time.monotonic() + _BATCH_SECONDS)
            except StoreBusy:
                time.sleep(_OTHER_PROCESS_POLL_SECONDS)
        report(progress)
        return progress

    def in_background(self, closing: threading.Event, give_way: Callable[[], None]) -> None:
        """Embed everything that waits, unless another process is at it; returns early when closing.

        Args:
            closing: Set when the store is closed.
            give_way: Called between two batches.

        Raises:
            EmbeddingFailed: If the model cannot be used.
        """
        embedder = self.embedder
        if embedder is None or not self._loaded(embedder, closing):
            return
        fingerprint = self._register(embedder)
        if backlog(self._catalog.connection(), fingerprint, SMALL_BACKLOG + 1) <= SMALL_BACKLOG:
            self._embed_rest(embedder, fingerprint, closing, give_way)
            return
        try:
            with self._lock(fingerprint).held(0.0):
                self._embed_rest(embedder, fingerprint, closing, give_way)
        except StoreBusy:
            return

    def _register(self, embedder: Embedder, **patience: float) -> str:
        """Note once a day that the model is in use; what it has no vectors of begins to wait."""
        fingerprint = embedder.fingerprint
        now = time.time()
        known, noted_at, noted_in = self._registered
        generation = self._catalog.file.generation
        if (known, noted_in) != (fingerprint, generation) or not now - _REGISTER_SECONDS < noted_at <= now:
            if not is_registered(self._catalog.connection(), fingerprint, now - _REGISTER_SECONDS):
                with self._catalog.writing(**patience) as connection:
                    register(connection, fingerprint, now)
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

    def _embed_rest(
        self, embedder: Embedder, fingerprint: str, closing: threading.Event, give_way: Callable[[], None]
    ) -> None:
        while not closing.is_set() and self._embed_some(embedder, fingerprint, time.monotonic() + _BATCH_SECONDS):
            give_way()

    def _embed_some(
        self,
        embedder: Embedder,
        fingerprint: str,
        deadline: float,
        spaces: Sequence[str] | None = None,
        *,
        crowded: bool = False,
        **patience: float,
    ) -> bool:
        """One batch, of some spaces a smaller one; False when nothing waits.

        Another thread's turn is waited for until the deadline.
        """
        turn = self._search_turn if crowded else self._turn
        if not turn.acquire(deadline - time.monotonic()):
            return True
        try:
            passages = newest(self._catalog.connection(), fingerprint, self._batch, spaces, crowded=crowded)
            if spaces is not None:
                sizes = accumulate(len(passage.text) for passage in passages)
                passages = passages[: max(1, bisect_right(list(sizes), _BEFORE_SEARCH_CHARS))]
            if not passages:
                return False
            started = time.monotonic()
            vectors = embed_passages(embedder, [passage.text for passage in passages])
            seconds = max(1e-3, time.monotonic() - started)
            with self._catalog.writing(**patience) as connection:
                self._catalog.append_vectors(connection, _rows(passages, vectors, fingerprint))
                settle(connection, passages, fingerprint)
            if not crowded:  # else the time is shared with the background
                fitting = int(len(passages) * _BATCH_SECONDS / seconds)
                self._batch = min(_MOST_BATCH, 2 * self._batch, max(_LEAST_BATCH, fitting))
            return True
        finally:
            turn.release()

    def _lock(self, fingerprint: str) -> Lock:
        name = hashlib.sha256(fingerprint.encode()).hexdigest()[:16]
        return self._catalog.lock(f"embedding-{name}")


def _rows(passages: Sequence[Passage], vectors: Vectors, fingerprint: str) -> list[VectorRow]:
    return [
        VectorRow(passage.space, passage.uri, passage.part, passage.content_sha256, fingerprint, vectors[index])
        for index, passage in enumerate(passages)
    ]
