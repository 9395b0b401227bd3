"""Vectors: rows of the catalog's database, whose documents they are, and the index that searches them.

A row is never changed, and its number is never given again. Triggers keep beside each row the document that its text
is a passage of at present, and number each change of that: a process that has followed to a number reads only what
came after, and a search needs no join between rows and documents.

``VectorIndex`` scans (``vector_scan``); with many rows a Chroma server is asked first (``chroma``). Numpy is imported
with the first search.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from memory_core.core.config import IndexConfig
from memory_core.core.errors import StorageFailed, StoreBusy
from memory_core.core.frozen import frozen
from memory_core.core.store import atomic
from memory_core.core.store.locks import StoreLock

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from memory_core.core.index.chroma_server import ChromaServer
    from memory_core.core.index.vector_scan import SpaceVectors, VectorsSnapshot

    Vector = NDArray[np.float32]

_log = logging.getLogger(__name__)

#: Of a row: its text is gone.
HAS_NO_PASSAGE = (
    "NOT EXISTS (SELECT 1 FROM passages p WHERE p.uri = vectors.uri "
    "AND p.part = vectors.part AND p.content_sha256 = vectors.content_sha256)"
)
#: So many rows that are in memory alone are worth being appended to the file.
_FILED_ROWS = 1_024
_FILING_SECONDS = 10.0


@dataclass(frozen=True, slots=True, eq=False)
class VectorRow:
    """One embedded passage.

    Attributes:
        space: The space of its document.
        uri: Its file.
        part: Its number within the file.
        content_sha256: Of the embedded text.
        fingerprint: Of the embedding model.
        vector: float32 (dim,), L2-normalised.
    """

    space: str
    uri: str
    part: int
    content_sha256: str
    fingerprint: str
    vector: Vector


def append(connection: sqlite3.Connection, rows: Iterable[VectorRow]) -> None:
    """Add rows; one already there (same passage, text and model) is left as it is."""
    connection.executemany(
        "INSERT OR IGNORE INTO vectors (space, uri, part, content_sha256, fingerprint, vector) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (
            (row.space, row.uri, row.part, row.content_sha256, row.fingerprint, row.vector.astype("<f4").tobytes())
            for row in rows
        ),
    )


def prune(connection: sqlite3.Connection, seqs: Sequence[int]) -> None:
    """Delete rows for good; the same passage appended again gets a new number."""
    connection.executemany("DELETE FROM vectors WHERE seq = ?", ((int(seq),) for seq in seqs))


def newest_seq(connection: sqlite3.Connection, space: str, fingerprint: str) -> int:
    """The newest row's number; 0 when there is none."""
    row = connection.execute(
        "SELECT max(seq) FROM vectors WHERE space = ? AND fingerprint = ?", (space, fingerprint)
    ).fetchone()
    return int(row[0] or 0)


def dead(connection: sqlite3.Connection, space: str, fingerprint: str) -> list[int]:
    """The numbers of rows whose text is gone."""
    rows = connection.execute(
        "SELECT v.seq FROM vectors v JOIN vector_documents d ON d.seq = v.seq "
        "WHERE v.space = ? AND v.fingerprint = ? AND d.document_id = 0",
        (space, fingerprint),
    )
    return [int(seq) for (seq,) in rows]


def count(connection: sqlite3.Connection, space: str, fingerprint: str, after: int = 0, up_to: int = 2**63 - 1) -> int:
    """How many rows are newer than ``after`` and not newer than ``up_to``."""
    row = connection.execute(
        "SELECT count(*) FROM vectors WHERE space = ? AND fingerprint = ? AND seq > ? AND seq <= ?",
        (space, fingerprint, after, up_to),
    ).fetchone()
    return int(row[0])


def changes(connection: sqlite3.Connection) -> int:
    """A number that is another whenever a vector, or the document of one, came or went."""
    return int(connection.execute("SELECT coalesce(max(number), 0) FROM vector_changes").fetchone()[0])


def log_id(connection: sqlite3.Connection) -> str:
    """Which log this is; a log begun anew has another."""
    return str(connection.execute("SELECT id FROM vector_log").fetchone()[0])


def chunks(seqs: Sequence[int]) -> Iterable[tuple[str, list[int]]]:
    """Numbers in lists that one statement can bind, each with its placeholders."""
    for start in range(0, len(seqs), 500):
        chunk = [int(seq) for seq in seqs[start : start + 500]]
        yield ",".join("?" * len(chunk)), chunk


class Nearest(NamedTuple):
    """What is near some queries.

    Attributes:
        cosines: By document, of its row that is nearest to any of them; in no order.
        complete: Whether no other document has a row.
    """

    cosines: dict[int, float]
    complete: bool


@frozen
class IndexStatus:
    """How one space and model are searched by this process.

    Attributes:
        backend: exact scans all rows; chroma and http ask a server, of Runebook or its owner, and scan newer rows;
            hnsw asks an index within the database.
        sent_rows: Rows that the server or the index holds.
        scanned_rows: Rows that a search scans.
        reason: Why the server is not used; None when all is well.
    """

    backend: Literal["chroma", "exact", "hnsw", "http"]
    sent_rows: int
    scanned_rows: int
    reason: str | None


class VectorIndex:
    """Nearest-neighbour search over a store's vectors, shared by the threads of a process: all rows are scanned.

    Args:
        state: The store's ``.state`` folder.
    """

    def __init__(self, state: Path) -> None:
        #: The server of the store's owner, where rows are sent to one.
        self.server: ChromaServer | None = None
        self._folder = state / "vectors"
        atomic.make_folder(state / "locks")
        self._filing = StoreLock(state / "locks" / "vectors.lock", timeout_seconds=0.0)
        self._spaces: dict[tuple[str, str, str, str], SpaceVectors] = {}
        self._guard = threading.Lock()

    @property
    def trouble(self) -> str | None:
        """Why a server is not used that should be; None where all is well."""
        return None

    def nearest(
        self, connection: sqlite3.Connection, spaces: Sequence[str], fingerprint: str, queries: Sequence[Vector], k: int
    ) -> Nearest:
        """The ``k`` nearest rows of each space to each query, of those that are of a document.

        Args:
            connection: To the catalog's database.
            spaces: Whose rows.
            fingerprint: Of which model.
            queries: Each float32 (dim,), L2-normalised.
            k: How many at most.
        """
        found: dict[int, float] = {}
        complete = True
        for space_vectors, view in self._followed(connection, spaces, fingerprint):
            near = self._near(connection, space_vectors, view, queries, k)
            found |= near.cosines  # a document is of one space
            complete = complete and near.complete
        return Nearest(found, complete)

    def cosines(
        self,
        connection: sqlite3.Connection,
        spaces: Sequence[str],
        fingerprint: str,
        queries: Sequence[Vector],
        documents: Sequence[int],
    ) -> dict[int, float]:
        """The cosine of the row nearest to any query of each of these documents; those without one are left out."""
        found: dict[int, float] = {}
        for _, view in self._followed(connection, spaces, fingerprint) if documents else ():
            found |= view.cosines(queries, documents)
        return found

    def load(self, connection: sqlite3.Connection, space: str, fingerprint: str) -> None:
        """Read and check ahead what a search would need."""
        if not self._followed(connection, [space], fingerprint)[0][1].is_sound():
            _log.warning("the file of vectors is damaged and made anew")
            self.compact(connection, space, fingerprint)
        self._file(connection, space, fingerprint)

    def keep_up(self, connection: sqlite3.Connection, space: str, fingerprint: str) -> bool:
        """Background work; whether more is to be done at once."""
        self._file(connection, space, fingerprint)
        return False

    def compact(self, connection: sqlite3.Connection, space: str, fingerprint: str) -> None:
        """Let go of rows that were pruned, wherever they are kept."""
        with self._filing.held(_FILING_SECONDS):
            self._followed(connection, [space], fingerprint)[0][0].drop()

    def status(self, connection: sqlite3.Connection, space: str, fingerprint: str) -> IndexStatus:
        """How this space and model are searched by this process."""
        return IndexStatus("exact", 0, len(self._followed(connection, [space], fingerprint)[0][1].seqs), None)

    def close(self) -> None:
        """Let go of everything; safe to call twice."""
        with self._guard:
            self._spaces.clear()

    def _file(self, connection: sqlite3.Connection, space: str, fingerprint: str) -> None:
        """Have the file hold what is in memory alone, where that is much."""
        ((space_vectors, view),) = self._followed(connection, [space], fingerprint)
        much = len(view.recent) >= _FILED_ROWS
        if much or (view.inode and view.changed - space_vectors.saved >= _FILED_ROWS):
            try:
                with self._filing.held():
                    space_vectors.append_to_file(view)
                if much:
                    space_vectors.reopen(connection)
            except (StorageFailed, StoreBusy, OSError) as error:
                _log.info("vectors were not written to their file: %s", error)

    def _near(
        self,
        connection: sqlite3.Connection,  # noqa: ARG002 - for an index that keeps something in the database
        space_vectors: SpaceVectors,  # noqa: ARG002
        view: VectorsSnapshot,
        queries: Sequence[Vector],
        k: int,
    ) -> Nearest:
        return view.nearest(queries, k)

    def _followed(
        self, connection: sqlite3.Connection, spaces: Sequence[str], fingerprint: str
    ) -> list[tuple[SpaceVectors, VectorsSnapshot]]:
        """The rows of each space as this connection sees them."""
        from memory_core.core.index.vector_scan import SpaceVectors, one_state

        with one_state(connection):
            log, changes_id, changed = connection.execute(
                "SELECT l.id, c.id, c.number FROM vector_log l, vector_changes c"
            ).fetchone()
            followed = []
            with self._guard:
                for space in spaces:
                    key = (log, changes_id, space, fingerprint)
                    if key not in self._spaces:
                        # Those of a catalog that was replaced are let go of.
                        self._spaces = {
                            held: space_vectors for held, space_vectors in self._spaces.items() if held[:2] == key[:2]
                        }
                        self._spaces[key] = SpaceVectors(self._folder, log, changes_id, space, fingerprint)
                    followed.append(self._spaces[key])
            return [(space_vectors, space_vectors.followed(connection, changed)) for space_vectors in followed]


def open_vectors(settings: IndexConfig, state: Path) -> VectorIndex:
    """The index that the settings name.

    Args:
        settings: The section ``index``.
        state: The store's ``.state`` folder.

    Raises:
        ConfigInvalid: If the server's address or key cannot be used.
    """
    if settings.mode == "exact":
        return VectorIndex(state)
    from memory_core.core.index.chroma import open_chroma

    return open_chroma(settings, state)
