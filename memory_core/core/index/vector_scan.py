"""The exact scan: vectors of one space and model as numpy sees them, the older ones in a file that all processes map.

The file lies below ``.state/vectors`` and is disposable: whoever finds rows enough that are not in it appends them, one
process at a time. A torn end is cut off, and a file that differs from the database is dropped. The newest rows, and
which document each row is of, are held in memory.

Promises that a search sees exactly what its own view of the database holds, whatever other threads and processes commit
meanwhile: each state is a ``VectorsSnapshot`` that is never changed.
"""

from __future__ import annotations

import hashlib
import logging
import os
import random
import sqlite3
import struct
import threading
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memory_core.core.index.vectors import Nearest, changes, chunks
from memory_core.core.store import atomic

Vector = NDArray[np.float32]
Numbers = NDArray[np.int64]

_log = logging.getLogger(__name__)
_READ_ROWS = 2_000
#: Of the squared length; rounding stays far below it.
_LENGTH_TOLERANCE = 0.02
_SAMPLED_ROWS = 16
_VIEWS_KEPT = 2
_LEAST_ROOM = 64
_BLOCK_ROWS = 1_024
_HEADER = struct.Struct("<q")


def rows_after(
    connection: sqlite3.Connection, space: str, fingerprint: str, seq: int, limit: int
) -> tuple[Numbers, Vector]:
    """The oldest sound rows newer than ``seq``, at most ``limit``; what is no vector is left out (see ``unsound``).

    Returns:
        Their numbers int64 (n,), ascending, and vectors float32 (n, dim); dim is 0 when there are none.
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


def unsound(connection: sqlite3.Connection, cell: tuple[str, str] | None = None) -> list[int]:
    """Numbers of rows whose vector is none: of a size unlike its model's others, not a number, or not of length 1.

    Args:
        connection: To the catalog's database.
        cell: The space and the fingerprint that count; default all.
    """
    found: list[int] = []
    cells = [cell] if cell else connection.execute("SELECT DISTINCT space, fingerprint FROM vectors").fetchall()
    for space, fingerprint in cells:
        seq = 0
        while rows := connection.execute(
            "SELECT seq, vector FROM vectors WHERE space = ? AND fingerprint = ? AND seq > ? ORDER BY seq LIMIT ?",
            (space, fingerprint, seq, _READ_ROWS),
        ).fetchall():
            held = set(_sound(rows)[0].tolist())
            found += [row[0] for row in rows if row[0] not in held]
            seq = int(rows[-1][0])
    return found


def _sound(rows: Sequence[tuple[int, bytes]]) -> tuple[Numbers, Vector]:
    """The rows that hold a vector of the size most have, as ``rows_after`` returns them."""
    sizes = Counter(len(blob) if isinstance(blob, bytes) else 0 for _, blob in rows)
    size = max((size for size in sizes if size and size % 4 == 0), key=lambda size: (sizes[size], size), default=0)
    if not size:
        return np.empty(0, np.int64), np.empty((0, 0), np.float32)
    fitting = [row for row in rows if len(row[1]) == size] if len(sizes) > 1 else rows
    seqs = np.fromiter((row[0] for row in fitting), dtype=np.int64, count=len(fitting))
    found = np.frombuffer(b"".join(row[1] for row in fitting), dtype="<f4").astype(np.float32, copy=False)
    found = found.reshape(len(fitting), -1)
    sound = _are_unit(found)
    return (seqs, found) if sound.all() else (seqs[sound], found[sound])


def _are_unit(vectors: Vector) -> NDArray[np.bool_]:
    """Which of the rows have length 1; not those that hold no numbers."""
    with np.errstate(all="ignore"):
        found: NDArray[np.bool_] = np.abs(np.einsum("ij,ij->i", vectors, vectors) - 1.0) < _LENGTH_TOLERANCE
    return found


def sample(connection: sqlite3.Connection, space: str, fingerprint: str, up_to: int, limit: int) -> dict[int, Vector]:
    """Vectors float32 (dim,) of some rows not newer than ``up_to``, drawn at random, by number."""
    drawn = connection.execute(
        "SELECT seq FROM vectors WHERE space = ? AND fingerprint = ? AND seq <= ? ORDER BY random() LIMIT ?",
        (space, fingerprint, up_to, limit),
    )
    return by_seq(connection, [int(number) for (number,) in drawn])


def by_seq(connection: sqlite3.Connection, seqs: Sequence[int]) -> dict[int, Vector]:
    """Vectors float32 (dim,) by number; numbers that are no rows are left out."""
    found: dict[int, Vector] = {}
    for marks, chunk in chunks(seqs):
        for seq, blob in connection.execute(f"SELECT seq, vector FROM vectors WHERE seq IN ({marks})", chunk):
            if len(blob) % 4 == 0:
                found[int(seq)] = np.frombuffer(blob, dtype="<f4").astype(np.float32, copy=False)
    return found


@dataclass(slots=True, eq=False)
class GrowableRows:
    """Vectors in memory with room for more; views see beginnings of it.

    Attributes:
        rows: float32 (capacity, dim).
        used: Rows that some view sees.
    """

    rows: Vector
    used: int = 0

    def extended(self, held: int, vectors: Vector) -> GrowableRows:
        """A room with these vectors after the first ``held``: this one, where nobody else has gone on from there."""
        total = held + len(vectors)
        room = self
        if self.used != held or total > len(self.rows):
            room = GrowableRows(np.empty((max(_LEAST_ROOM, 2 * total), vectors.shape[1]), np.float32))
            room.rows[:held] = self.rows[:held] if held else 0.0
        room.rows[held:total] = vectors
        room.used = total
        return room


@dataclass(frozen=True, slots=True, eq=False)
class VectorsSnapshot:
    """The rows of one space and model at one state of the database; never changed.

    Attributes:
        changed: The number up to which changes are in it.
        seqs: int64 (n,), ascending.
        documents: int64 (n,); 0 where a row's text is gone.
        filed: float32 (m, dim), vectors of the first m rows, mapped.
        room: Begins with the vectors of the others.
        inode: Of the mapped file; 0 for none.
    """

    changed: int
    seqs: Numbers
    documents: Numbers
    filed: Vector
    room: GrowableRows
    inode: int

    @property
    def recent(self) -> Vector:
        """float32 (n - m, dim), vectors of the rows that are not in the file."""
        return self.room.rows[: len(self.seqs) - len(self.filed)]

    def nearest(self, queries: Sequence[Vector], k: int, after: int = 0) -> Nearest:
        """The ``k`` rows nearest to each query, of those newer than ``after`` that are of a document."""
        first = int(np.searchsorted(self.seqs, after, side="right"))
        rows = first + np.flatnonzero(self.documents[first:])
        found: dict[int, float] = {}
        if k > 0 and len(rows):
            for scores in self._scores(queries, first)[:, rows - first]:
                best = np.argpartition(scores, len(rows) - k)[-k:] if k < len(rows) else slice(None)
                for document, cosine in self._ranked(rows[best], scores[best]):
                    found[document] = max(cosine, found.get(document, -1.0))
        return Nearest(found, k >= len(rows))

    def _scores(self, queries: Sequence[Vector], first: int) -> Vector:
        """float32 (queries, n - first): cosines of the rows from ``first`` on, by blocks that a cache holds."""
        found = np.empty((len(queries), len(self.seqs) - first), np.float32)
        at = 0
        for part in (self.filed[first:], self.recent[max(0, first - len(self.filed)) :]):
            for start in range(0, len(part), _BLOCK_ROWS):
                block = part[start : start + _BLOCK_ROWS]
                for number, query in enumerate(queries):
                    found[number, at : at + len(block)] = block @ query
                at += len(block)
        return found

    def cosines(self, queries: Sequence[Vector], documents: Sequence[int]) -> dict[int, float]:
        """The cosine of the row nearest to any query of each of these documents that has one."""
        if not len(self.seqs):
            return {}
        wanted = np.zeros(1 + max(*documents, int(self.documents.max())), bool)
        wanted[list(documents)] = True
        rows = np.flatnonzero(wanted[self.documents])
        vectors = self.vectors(rows)
        scores = np.max([vectors @ query for query in queries], axis=0)
        order = np.argsort(scores, kind="stable")  # of a document's rows the nearest comes last, and stays
        return dict(zip(self.documents[rows[order]].tolist(), scores[order].tolist(), strict=True))

    def vectors(self, rows: Numbers) -> Vector:
        """float32 (k, dim), of these rows by their place, ascending."""
        filed = int(np.searchsorted(rows, len(self.filed)))
        if filed in (0, len(rows)):
            return self.filed[rows] if filed else self.recent[rows - len(self.filed)]
        return np.concatenate([self.filed[rows[:filed]], self.recent[rows[filed:] - len(self.filed)]])

    def among(self, query: Vector, seqs: Sequence[int], up_to: int) -> list[tuple[int, float]]:
        """``(document, cosine)`` of those of these rows that are here, of a document and not newer, best first."""
        wanted = np.array(sorted({seq for seq in seqs if 0 < seq <= up_to}), np.int64)
        places = np.searchsorted(self.seqs, wanted)
        known = places < len(self.seqs)
        rows = places[known][self.seqs[places[known]] == wanted[known]]
        rows = rows[self.documents[rows] > 0]
        return self._ranked(rows, self.vectors(rows) @ query) if len(rows) else []

    def is_sound(self) -> bool:
        """Whether all of the file's vectors are vectors; reads the whole file."""
        return bool(_are_unit(self.filed).all())

    def live_count(self, up_to: int) -> int:
        """How many rows not newer than ``up_to`` are of a document."""
        return int(np.count_nonzero(self.documents[: int(np.searchsorted(self.seqs, up_to, side="right"))]))

    def _ranked(self, rows: Numbers, scores: Vector) -> list[tuple[int, float]]:
        order = np.lexsort((rows, -scores))
        return list(zip(self.documents[rows[order]].tolist(), scores[order].tolist(), strict=True))


@contextmanager
def one_state(connection: sqlite3.Connection) -> Iterator[None]:
    """Several reads see one state of the database."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")


class SpaceVectors:
    """The rows of one space and model of one log, in this process.

    The file is a header, which says how long a vector is, then records of a vector and its number. Appending begins
    where the last whole record ends, so what another process has mapped stays.
    """

    def __init__(self, folder: Path, log: str, changes_id: str, space: str, fingerprint: str) -> None:
        self.space = space
        self.fingerprint = fingerprint
        self.log = log
        self._path = folder / f"{log}-{hashlib.sha256(chr(0).join((space, fingerprint)).encode()).hexdigest()[:32]}"
        self._documents = self._path.with_name(f"{self._path.name}-{changes_id}")
        #: After how many changes documents were last saved, as far as this process knows.
        self.saved = 0
        self._turn = threading.Lock()
        self._views: tuple[VectorsSnapshot, ...] = ()

    def followed(self, connection: sqlite3.Connection, changed: int) -> VectorsSnapshot:
        """The rows as the connection sees them, which is after that many changes."""
        with self._turn:
            # Another thread may be ahead of this connection's state: what it took in is not taken back.
            earlier = next((view for view in self._views if view.changed <= changed), None)
            if earlier is not None and earlier.changed == changed:
                return earlier
            if earlier is None or (earlier.inode and earlier.inode != self._inode()):
                earlier = self._opened(connection, changed)
            return self._keep(self._grown(connection, earlier, changed))

    def reopen(self, connection: sqlite3.Connection) -> None:
        """See the rows through the file as it is now; searches go on meanwhile."""
        with one_state(connection):
            changed = changes(connection)
            view = self._grown(connection, self._opened(connection, changed), changed)
        with self._turn:
            self._keep(view)

    def _keep(self, view: VectorsSnapshot) -> VectorsSnapshot:
        others = [kept for kept in self._views if kept.changed != view.changed]
        self._views = tuple(sorted((view, *others), key=lambda kept: -kept.changed)[:_VIEWS_KEPT])
        return view

    def _grown(self, connection: sqlite3.Connection, view: VectorsSnapshot, changed: int) -> VectorsSnapshot:
        """The view with everything that came after it."""
        seqs, room, filed, held = [view.seqs], view.room, view.filed, len(view.recent)
        newest = int(view.seqs[-1]) if len(view.seqs) else 0
        while len((page := rows_after(connection, self.space, self.fingerprint, newest, _READ_ROWS))[0]):
            newest = int(page[0][-1])
            if not len(view.seqs) and not held:
                filed = page[1][:0]  # so that it is as wide as the first vector
            if page[1].shape[1] == filed.shape[1]:
                seqs.append(page[0])
                room = room.extended(held, page[1])
                held += len(page[0])
        every = np.concatenate(seqs)
        documents = np.concatenate([view.documents, np.zeros(len(every) - len(view.seqs), np.int64)])
        whose = self._whose(connection, view.changed)
        places = np.searchsorted(every, whose[:, 0])
        known = places < len(every)
        known[known] = every[places[known]] == whose[known, 0]
        documents[places[known]] = whose[known, 1]
        if view.changed < 0 and len(view.filed) and self._any_sound(connection, whose[~known]):
            _log.warning("rows are missing in the file of vectors, which is made anew")
            self.drop()
            return self._grown(connection, _nothing(), changed)  # not what may still stand there
        return VectorsSnapshot(changed, every, documents, filed, room, view.inode)

    def _whose(self, connection: sqlite3.Connection, after: int) -> Numbers:
        """Rows and their documents: what changed since ``after``, in all spaces; below 0, every row of this one.

        Returns:
            int64 (n, 2).
        """
        if after >= 0:
            rows = connection.execute("SELECT seq, document_id FROM vector_documents WHERE changed > ?", (after,))
        else:
            rows = connection.execute(
                "SELECT v.seq, d.document_id FROM vectors v JOIN vector_documents d ON d.seq = v.seq "
                "WHERE v.space = ? AND v.fingerprint = ? AND d.document_id > 0",
                (self.space, self.fingerprint),
            )
        return np.array(rows.fetchall(), np.int64).reshape(-1, 2)

    def _any_sound(self, connection: sqlite3.Connection, missing: Numbers) -> bool:
        """Whether any of these rows, which no page of the database gave, is a vector after all."""
        found = by_seq(connection, missing[:_READ_ROWS, 0].tolist()).values()
        return any(_are_unit(vector[np.newaxis]).all() for vector in found)

    def _opened(self, connection: sqlite3.Connection, changed: int) -> VectorsSnapshot:
        """The rows of the file, with their documents as they were last saved; none where it is missing or damaged."""
        nothing = _nothing()
        try:
            with self._path.open("rb") as stream:
                stat, header = os.fstat(stream.fileno()), stream.read(_HEADER.size)
                record = _record(*_HEADER.unpack(header)) if len(header) == _HEADER.size else None
                count = 0 if record is None else (stat.st_size - _HEADER.size) // record.itemsize
                if record is None or not count:
                    return nothing  # another process has just begun it
                records = np.asarray(np.memmap(stream, record, "r", _HEADER.size, (count,)))
        except FileNotFoundError:
            return nothing
        except (OSError, ValueError) as error:
            _log.warning("the file of vectors cannot be read: %s", error)
            return nothing
        seqs, vectors = records["seq"].astype(np.int64), records["vector"]
        if self._agree(connection, seqs, vectors):
            saved, documents = self._saved_documents(seqs, changed)
            self.saved = max(saved, self.saved)
            return VectorsSnapshot(saved, seqs, documents, vectors, GrowableRows(vectors[:0]), stat.st_ino)
        _log.warning("the file of vectors differs from the database and is made anew")
        self.drop()
        return nothing

    def _agree(self, connection: sqlite3.Connection, seqs: Numbers, vectors: Vector) -> bool:
        """Whether a file is of rows that the database has or had: some are compared, and the newest."""
        last = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'vectors'").fetchone()
        if last is None or seqs[-1] > last[0] or (np.diff(seqs) <= 0).any():
            return False  # after a power loss numbers that are in the file may be given again
        places = [len(seqs) - 1, *random.choices(range(len(seqs)), k=_SAMPLED_ROWS)]
        stored = by_seq(connection, seqs[places].tolist())
        return all(np.array_equal(vectors[at], stored.get(int(seqs[at]), vectors[at])) for at in places)

    def _saved_documents(self, seqs: Numbers, changed: int) -> tuple[int, Numbers]:
        """Documents as they were saved, and after how many changes that was; -1 where that is of no use."""
        documents = np.zeros(len(seqs), np.int64)
        try:
            saved = np.fromfile(self._documents, np.int64)
        except OSError:
            return -1, documents
        rows = len(saved) - 2
        if not 0 < rows <= len(seqs) or saved[0] > changed or saved[1] != _checksum(seqs[:rows], saved[2:]):
            return -1, documents
        documents[:rows] = saved[2:]
        return int(saved[0]), documents

    def append_to_file(self, view: VectorsSnapshot) -> None:
        """Append the rows that the file does not hold, which is made where there is none. The lock is held.

        Whose the rows are is noted beside it, so that the next process need not ask for each.

        Raises:
            StorageFailed: If the file or its folder cannot be made.
            OSError: If the system refuses.
        """
        header, record = _HEADER.pack(view.recent.shape[1]), _record(view.recent.shape[1])
        atomic.make_folder(self._path.parent)
        for other in self._path.parent.iterdir():
            if not other.name.startswith(self.log):  # of a catalog that was replaced
                other.unlink(missing_ok=True)
        atomic.make_file(self._path)
        with self._path.open("r+b") as stream:
            begun = stream.read(_HEADER.size)
            if len(begun) < _HEADER.size:
                stream.seek(0)
                stream.write(header)
            elif begun != header:
                self.drop()
                return
            whole = (stream.seek(0, os.SEEK_END) - _HEADER.size) // record.itemsize
            stream.seek(_HEADER.size + max(0, whole - 1) * record.itemsize)
            last = int(np.frombuffer(stream.read(record.itemsize), record)["seq"][0]) if whole else 0
            stream.truncate(stream.tell())
            for start in range(int(np.searchsorted(view.seqs, last, side="right")), len(view.seqs), _READ_ROWS):
                rows = np.arange(start, min(start + _READ_ROWS, len(view.seqs)))
                records = np.empty(len(rows), record)
                records["seq"], records["vector"] = view.seqs[rows], view.vectors(rows)
                stream.write(records.tobytes())
            stream.flush()
            os.fsync(stream.fileno())
        head = [view.changed, _checksum(view.seqs, view.documents)]
        beside = self._documents.with_suffix(".new")
        atomic.make_file(beside)
        beside.write_bytes(np.concatenate([np.array(head, np.int64), view.documents]).tobytes())
        beside.replace(self._documents)
        self.saved = view.changed

    def drop(self) -> None:
        """Delete the file; who has it mapped lets go of it at the next change."""
        self._views = ()
        try:
            self._path.unlink(missing_ok=True)
            self._documents.unlink(missing_ok=True)
        except OSError as error:  # Windows, where another process has it mapped
            _log.info("the file of vectors stays for now: %s", error)

    def _inode(self) -> int:
        try:
            return self._path.stat().st_ino
        except OSError:
            return 0


def _nothing() -> VectorsSnapshot:
    """No rows, before any change."""
    empty = np.empty((0, 0), np.float32)
    return VectorsSnapshot(-1, np.empty(0, np.int64), np.empty(0, np.int64), empty, GrowableRows(empty), 0)


def _checksum(seqs: Numbers, documents: Numbers) -> int:
    return zlib.crc32(documents.tobytes(), zlib.crc32(seqs.tobytes()))


def _record(dim: int) -> np.dtype[np.void]:
    return np.dtype([("vector", "<f4", (dim,)), ("seq", "<i8")])
