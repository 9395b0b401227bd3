"""How a space of vectors is searched at the moment, as figures and the doctor tell it."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

#: ``vector_log.id`` tells this log from one that was deleted and begun again, whose numbers mean other rows.
DDL = """
CREATE TABLE vectors (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    space TEXT NOT NULL,
    uri TEXT NOT NULL,
    part INTEGER NOT NULL,
    content_sha256 TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    vector BLOB NOT NULL,
    UNIQUE (space, uri, part, content_sha256, fingerprint)
);
CREATE INDEX vectors_seq ON vectors (space, fingerprint, seq);
CREATE TABLE vector_log (id TEXT NOT NULL);
INSERT INTO vector_log (id) VALUES (lower(hex(randomblob(16))));
"""

_READ_ROWS = 2_000
_FIRST_CAPACITY = 64
#: Of the squared length; rounding stays far below it.
_LENGTH_TOLERANCE = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class VectorRow:
    """One embedded passage.

    Attributes:
        space: The space of its document.
        uri: Its document.
        part: Its number within the document.
        content_sha256: Of the embedded text.
        fingerprint: Of the embedding model.
        vector: float32 (dim,), L2-normalised.
    """

    space: str
    uri: str
    part: int
    content_sha256: str
    fingerprint: str
    vector: NDArray[np.float32]


def append(connection: sqlite3.Connection, rows: Iterable[VectorRow]) -> None:
    """Add rows; one already in the log (same passage, text and model) is left as it is."""
    connection.executemany(
        "INSERT OR IGNORE INTO vectors (space, uri, part, content_sha256, fingerprint, vector) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (
            (
                row.space,
                row.uri,
                row.part,
                row.content_sha256,
                row.fingerprint,
                np.ascontiguousarray(row.vector, dtype="<f4").tobytes(),
            )
            for row in rows
        ),
    )


def prune(connection: sqlite3.Connection, seqs: Sequence[int]) -> None:
    """Delete rows for good; the same passage appended again gets a new ``seq``."""
    connection.executemany("DELETE FROM vectors WHERE seq = ?", ((int(seq),) for seq in seqs))


def rows_after(
    connection: sqlite3.Connection, space: str, fingerprint: str, seq: int, limit: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The oldest sound rows newer than ``seq``, at most ``limit``; what is no vector is left out (see ``unsound``).

    Returns:
        seqs int64 (n,), ascending, and vectors float32 (n, dim); dim is 0 when there are none.
    """
    while True:
        rows = connection.execute(
            "SELECT seq, vector FROM vectors WHERE space = ? AND fingerprint = ? AND seq > ? ORDER BY seq LIMIT ?",
            (space, fingerprint, seq, limit),
        ).fetchall()
        seqs, found = _sound(rows)
        if len(seqs) or len(rows) < limit:
            return seqs, found
        seq = int(rows[-1][0])  # a whole page of damage


def unsound(connection: sqlite3.Connection) -> list[int]:
    """Numbers of rows whose vector is none: of a size unlike its model's others, not a number, or not of length 1."""
    found: list[int] = []
    models = connection.execute("SELECT DISTINCT space, fingerprint FROM vectors").fetchall()
    for space, fingerprint in models:
        seq = 0
        while rows := connection.execute(
            "SELECT seq, vector FROM vectors WHERE space = ? AND fingerprint = ? AND seq > ? ORDER BY seq LIMIT ?",
            (space, fingerprint, seq, _READ_ROWS),
        ).fetchall():
            held = set(_sound(rows)[0].tolist())
            found += [row[0] for row in rows if row[0] not in held]
            seq = int(rows[-1][0])
    return found


def _sound(rows: Sequence[tuple[int, bytes]]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The rows that hold a vector of the size most have, as ``rows_after`` returns them."""
    sizes = Counter(len(blob) if isinstance(blob, bytes) else 0 for _, blob in rows)
    size = max((size for size in sizes if size and size % 4 == 0), key=lambda size: (sizes[size], size), default=0)
    if not size:
        return np.empty(0, np.int64), np.empty((0, 0), np.float32)
    fitting = [row for row in rows if len(row[1]) == size] if len(sizes) > 1 else rows
    seqs = np.fromiter((row[0] for row in fitting), dtype=np.int64, count=len(fitting))
    flat = np.frombuffer(b"".join(row[1] for row in fitting), dtype="<f4").astype(np.float32, copy=False)
    found = flat.reshape(len(fitting), -1)
    with np.errstate(all="ignore"):
        sound = np.abs(np.einsum("ij,ij->i", found, found) - 1.0) < _LENGTH_TOLERANCE  # not for NaN
    return (seqs, found) if sound.all() else (seqs[sound], found[sound])


def newest_seq(connection: sqlite3.Connection, space: str, fingerprint: str) -> int:
    """The newest row's number; 0 when there is none."""
    row = connection.execute(
        "SELECT max(seq) FROM vectors WHERE space = ? AND fingerprint = ?", (space, fingerprint)
    ).fetchone()
    return int(row[0] or 0)


def log_head(connection: sqlite3.Connection) -> int:
    """The number of the newest row of any space and model; 0 when there is none."""
    return int(connection.execute("SELECT max(seq) FROM vectors").fetchone()[0] or 0)


def count(connection: sqlite3.Connection, space: str, fingerprint: str, after: int = 0) -> int:
    """How many rows are newer than ``after``."""
    row = connection.execute(
        "SELECT count(*) FROM vectors WHERE space = ? AND fingerprint = ? AND seq > ?", (space, fingerprint, after)
    ).fetchone()
    return int(row[0])


def count_up_to(connection: sqlite3.Connection, space: str, fingerprint: str, seq: int) -> int:
    """How many rows are not newer than ``seq``."""
    row = connection.execute(
        "SELECT count(*) FROM vectors WHERE space = ? AND fingerprint = ? AND seq <= ?", (space, fingerprint, seq)
    ).fetchone()
    return int(row[0])


def numbers(connection: sqlite3.Connection, space: str, fingerprint: str) -> set[int]:
    """The numbers of all rows."""
    rows = connection.execute("SELECT seq FROM vectors WHERE space = ? AND fingerprint = ?", (space, fingerprint))
    return {int(seq) for (seq,) in rows}


def among(connection: sqlite3.Connection, space: str, fingerprint: str, seqs: Sequence[int]) -> set[int]:
    """Which of these numbers are rows of this space and model."""
    found: set[int] = set()
    for marks, chunk in chunks(seqs):
        rows = connection.execute(
            f"SELECT seq FROM vectors WHERE seq IN ({marks}) AND +space = ? AND +fingerprint = ?",
            [*chunk, space, fingerprint],
        )
        found.update(int(seq) for (seq,) in rows)
    return found


def sample(
    connection: sqlite3.Connection, space: str, fingerprint: str, seq: int, limit: int
) -> dict[int, NDArray[np.float32]]:
    """Vectors float32 (dim,) of some rows not newer than ``seq``, drawn at random, by number."""
    drawn = connection.execute(
        "SELECT seq FROM vectors WHERE space = ? AND fingerprint = ? AND seq <= ? ORDER BY random() LIMIT ?",
        (space, fingerprint, seq, limit),
    )
    return by_seq(connection, [int(number) for (number,) in drawn])


def nearest(
    connection: sqlite3.Connection, space: str, fingerprint: str, query: NDArray[np.float32], k: int
) -> list[tuple[int, float]]:
    """The ``k`` nearest rows as ``(seq, cosine)``, best first, read page by page: they need not fit in memory."""
    found, scores = [np.empty(0, np.int64)], [np.empty(0, np.float32)]
    after = 0
    while True:
        seqs, page = rows_after(connection, space, fingerprint, after, _READ_ROWS)
        if not len(seqs):
            return best(np.concatenate(found), np.concatenate(scores), k)
        found.append(seqs)
        scores.append(page @ query)
        after = int(seqs[-1])


def by_seq(connection: sqlite3.Connection, seqs: Sequence[int]) -> dict[int, NDArray[np.float32]]:
    """Vectors float32 (dim,) by number; numbers not in the log are left out."""
    found: dict[int, NDArray[np.float32]] = {}
    for marks, chunk in chunks(seqs):
        for seq, blob in connection.execute(f"SELECT seq, vector FROM vectors WHERE seq IN ({marks})", chunk):
            if len(blob) % 4 == 0:
                found[int(seq)] = np.frombuffer(blob, dtype="<f4").astype(np.float32, copy=False)
    return found


def entries(connection: sqlite3.Connection, seqs: Sequence[int]) -> dict[int, tuple[str, int, str]]:
    """``(uri, part, content_sha256)`` by number; numbers not in the log are left out."""
    found: dict[int, tuple[str, int, str]] = {}
    for marks, chunk in chunks(seqs):
        for seq, *entry in connection.execute(
            f"SELECT seq, uri, part, content_sha256 FROM vectors WHERE seq IN ({marks})", chunk
        ):
            found[int(seq)] = (entry[0], int(entry[1]), entry[2])
    return found


def log_id(connection: sqlite3.Connection) -> str:
    """Which log this is; a log begun anew has another."""
    return str(connection.execute("SELECT id FROM vector_log").fetchone()[0])


def chunks(seqs: Sequence[int]) -> Iterable[tuple[str, list[int]]]:
    """Numbers in lists that one statement can bind, each with its placeholders."""
    for start in range(0, len(seqs), 500):
        chunk = [int(seq) for seq in seqs[start : start + 500]]
        yield ",".join("?" * len(chunk)), chunk


def best(seqs: NDArray[np.int64], scores: NDArray[np.float32], k: int) -> list[tuple[int, float]]:
    """The ``k`` highest scores as ``(seq, score)``, best first, the older row first among equals."""
    if k <= 0 or not len(seqs):
        return []
    if k < len(seqs):
        chosen = np.argpartition(scores, len(scores) - k)[-k:]
        seqs, scores = seqs[chosen], scores[chosen]
    order = np.lexsort((seqs, -scores))
    return [(int(seqs[index]), float(scores[index])) for index in order]


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    seqs: NDArray[np.int64]
    vectors: NDArray[np.float32]


class ExactScan:
    """The vectors of one space and model above a floor, in memory, scanned exactly.

    Safe to share between threads: a search reads one immutable view, which ``refresh`` replaces.

    Args:
        space: Whose rows.
        fingerprint: Of which model.
        floor: Rows up to this number are left out.
    """

    def __init__(self, space: str, fingerprint: str, floor: int = 0) -> None:
        self.space = space
        self.fingerprint = fingerprint
        self.floor = floor
        self._newest = floor
        self._refreshing = threading.Lock()
        self._buffer = _Rows(np.empty(0, np.int64), np.empty((0, 0), np.float32))
        self._rows = self._buffer

    def __len__(self) -> int:
        return len(self._rows.seqs)

    def refresh(self, connection: sqlite3.Connection) -> None:
        """Take in every row that is newer than the newest held."""
        with self._refreshing:
            while True:
                seqs, vectors = rows_after(connection, self.space, self.fingerprint, self._newest, _READ_ROWS)
                if not len(seqs):
                    return
                self._extend(seqs, vectors)

    def search(self, query: NDArray[np.float32], k: int) -> list[tuple[int, float]]:
        """The ``k`` nearest rows as ``(seq, cosine)``, best first.

        Args:
            query: float32 (dim,), L2-normalised.
            k: How many at most; ask for more than needed, superseded rows are among them.
        """
        rows = self._rows
        if not len(rows.seqs):
            return []
        return best(rows.seqs, rows.vectors @ query, k)

    def cosines(self, query: NDArray[np.float32], seqs: Sequence[int]) -> dict[int, float]:
        """The cosine of each of these rows that is held here, by number.

        Args:
            query: float32 (dim,), L2-normalised.
            seqs: Row numbers, in any order.
        """
        rows = self._rows
        if not len(rows.seqs) or not len(seqs):
            return {}
        wanted = np.asarray(seqs, dtype=np.int64)
        places = np.minimum(np.searchsorted(rows.seqs, wanted), len(rows.seqs) - 1)
        held = rows.seqs[places] == wanted
        scores = rows.vectors[places[held]] @ query
        return dict(zip(wanted[held].tolist(), scores.tolist(), strict=True))

    def above(self, floor: int) -> ExactScan:
        """A scan of the rows held here that are newer than ``floor``; this one stays as it is."""
        with self._refreshing:
            scan = ExactScan(self.space, self.fingerprint, floor)
            keep = self._rows.seqs > floor
            scan._buffer = scan._rows = _Rows(self._rows.seqs[keep], self._rows.vectors[keep])
            scan._newest = max(floor, self._newest)
            return scan

    def _extend(self, seqs: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        held = len(self._rows.seqs)
        total = held + len(seqs)
        if total > len(self._buffer.seqs):
            capacity = max(_FIRST_CAPACITY, total, 2 * len(self._buffer.seqs))
            grown = _Rows(np.empty(capacity, np.int64), np.empty((capacity, vectors.shape[1]), np.float32))
            grown.seqs[:held] = self._rows.seqs
            if held:
                grown.vectors[:held] = self._rows.vectors
            self._buffer = grown
        self._buffer.seqs[held:total] = seqs
        self._buffer.vectors[held:total] = vectors
        self._rows = _Rows(self._buffer.seqs[:total], self._buffer.vectors[:total])
        self._newest = int(seqs[-1])


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """How one space and model are searched by this process.

    Attributes:
        backend: chroma means a sealed snapshot and a scan of the newer rows, http the same with a server.
        sealed_rows: Rows in the snapshot.
        scanned_rows: Rows scanned exactly, as of the last search.
        generation: Of the snapshot; 0 without one.
        reason: Why Chroma is not used, or what last went wrong with it; None when all is well.
    """

    backend: Literal["chroma", "exact", "http"]
    sealed_rows: int
    scanned_rows: int
    generation: int
    reason: str | None
