"""Nearest neighbours in every process at once: Chroma up to a sealed row, an exact scan above it.

Owns which of the two answers, and the background work that moves rows from one to the other. Promises that a
search never waits for a lock, never opens Chroma and never misses a row of the log: what no snapshot of this
process covers is scanned. Which rows are live the catalog decides; ask for more than needed.

Rows are sealed by one process at a time, in a child (``sealing_worker``), into a copy (``snapshot``) that
becomes current whole: Chroma's files torn by a kill end every process that opens them. Whatever is found
broken is moved aside and built again from the log.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from memory_core.core.errors import StorageFailed, StoreBusy
from memory_core.core.index import vectors as log
from memory_core.core.index.chroma import (
    BATCH_ROWS,
    ChromaSegment,
    Segment,
    SegmentBroken,
    collection_name,
    unavailable,
)
from memory_core.core.index.seal_snapshot import Manifest, Snapshots
from memory_core.core.index.sealing_worker import SealingProcess, check, survives
from memory_core.core.index.vectors import ExactScan, IndexStatus
from memory_core.core.store import atomic
from memory_core.core.store.locks import StoreLock, sealing_lock

if TYPE_CHECKING:
    from memory_core.core.index.chroma_server import ChromaServer


_log = logging.getLogger(__name__)

Mode = Literal["auto", "exact", "chroma"]
Vector = NDArray[np.float32]

#: A seal copies the whole folder, so it waits for this share of new rows; scanning them costs microseconds.
_SEAL_SHARE = 20
_OPENING_SECONDS = 5.0
_LAST_RETRY_SECONDS = 3_600.0


@dataclass(frozen=True, slots=True, eq=False)
class _View:
    """What one search sees; replaced whole."""

    scan: ExactScan
    segment: Segment | None = None
    manifest: Manifest | None = None


@dataclass(slots=True, eq=False)
class _Shelf:
    """One space and model of one vector log."""

    log_id: str
    space: str
    fingerprint: str
    snapshots: Snapshots
    view: _View
    opened: tuple[int, int, int] | None = None
    reason: str | None = None
    suspect: str | None = None
    failures: int = 0
    retry_at: float = 0.0
    upkeep: threading.Lock = field(default_factory=threading.Lock)


class SealedIndex:
    """Vector search over one store's log, shared by the threads of a process.

    Args:
        state: The store's ``.state`` folder.
        mode: auto uses Chroma from ``exact_below`` rows on; exact never; chroma always.
        exact_below: Rows of a space and model.
        seal_rows: New rows that make sealing, or opening a newer snapshot, worth while.
        retry_seconds: How long to leave it after a failure; doubled with each in a row.
    """

    #: No server is needed, so none is missing.
    trouble: str | None = None
    server: ChromaServer | None = None

    def __init__(
        self,
        state: Path,
        *,
        mode: Mode = "auto",
        exact_below: int = 10_000,
        seal_rows: int = 500,
        retry_seconds: float = 30.0,
    ) -> None:
        self._root = state / "chroma"
        self._mode = mode
        self._exact_below = exact_below
        self._seal_rows = seal_rows
        self._retry_seconds = retry_seconds
        self._unavailable = "index.mode is exact" if mode == "exact" else unavailable()
        atomic.make_folder(state / "locks")
        self._sealing = sealing_lock(state, timeout_seconds=0.0)
        self._opening = StoreLock(state / "locks" / "index-open.lock", timeout_seconds=_OPENING_SECONDS)
        self._shelves: dict[tuple[str, str, str], _Shelf] = {}
        self._guard = threading.Lock()
        self._child: SealingProcess | None = None
        self._closed = False

    def search(
        self, connection: sqlite3.Connection, space: str, fingerprint: str, query: NDArray[np.float32], k: int
    ) -> list[tuple[int, float]]:
        """The ``k`` nearest rows of the log as ``(seq, cosine)``, best first.

        Args:
            connection: To the catalog's database.
            space: Whose rows.
            fingerprint: Of which model.
            query: float32 (dim,), L2-normalised.
            k: How many at most; superseded rows are among them.
        """
        shelf = self._shelf(connection, space, fingerprint)
        view = shelf.view
        if view.segment is not None:
            try:
                sealed = view.segment.search(query, k)
            except SegmentBroken as error:
                self._give_up(shelf, view, error)
                return self.search(connection, space, fingerprint, query, k)
            view.scan.refresh(connection)
            hits = dict(sealed) | dict(view.scan.search(query, k))
            return sorted(hits.items(), key=lambda hit: (-hit[1], hit[0]))[:k]
        view.scan.refresh(connection)
        return view.scan.search(query, k)

    def load(self, connection: sqlite3.Connection, space: str, fingerprint: str) -> None:
        """Read the rows that a search would scan, ahead of the first one."""
        self._shelf(connection, space, fingerprint).view.scan.refresh(connection)

    def cosines(
        self, connection: sqlite3.Connection, space: str, fingerprint: str, query: Vector, seqs: Sequence[int]
    ) -> dict[int, float]:
        """The cosine of each of these rows of a space and model, by number; others are left out; see ``search``."""
        found = self._shelf(connection, space, fingerprint).view.scan.cosines(query, seqs)
        sealed = log.by_seq(connection, [seq for seq in seqs if seq not in found])
        return found | {seq: float(row @ query) for seq, row in sealed.items() if row.shape == query.shape}

    def seal_due(self, connection: sqlite3.Connection, space: str, fingerprint: str) -> bool:
        """Whether ``seal`` would open a newer snapshot or make one; a millisecond at most."""
        if self._closed or self._unavailable is not None:
            return False
        shelf = self._shelf(connection, space, fingerprint)
        if time.monotonic() < shelf.retry_at:
            return False
        return self._opening_due(shelf) or self._sealing_due(shelf, connection)

    def seal(self, connection: sqlite3.Connection, space: str, fingerprint: str) -> bool:
        """Do what is due: open what another process sealed, seal newer rows, rebuild what is broken.

        Takes seconds to minutes; searches go on meanwhile. For a background thread.

        Returns:
            Whether this process now searches another snapshot. False also when another process is sealing,
            or when it failed: ``status`` then says why, and it is tried again later.
        """
        if not self.seal_due(connection, space, fingerprint):
            return False
        return self._maintain(self._shelf(connection, space, fingerprint), connection, rebuild=False)

    def compact(self, connection: sqlite3.Connection, space: str, fingerprint: str, live_rows: int) -> bool:
        """Build the snapshot anew without pruned rows, if more than half of its rows are dead.

        Prune the log first (``vectors.prune``): what the log holds, the snapshot holds.

        Returns:
            Whether it was built anew.
        """
        if self._closed or self._unavailable is not None:
            return False
        shelf = self._shelf(connection, space, fingerprint)
        manifest = shelf.snapshots.manifest()
        if manifest is None or manifest.rows <= 2 * live_rows:
            return False
        if log.count(connection, space, fingerprint) >= manifest.rows:
            return False
        return self._maintain(shelf, connection, rebuild=True)

    def status(self, connection: sqlite3.Connection, space: str, fingerprint: str) -> IndexStatus:
        """How this space and model are searched by this process."""
        shelf = self._shelf(connection, space, fingerprint)
        view = shelf.view
        manifest = view.manifest
        return IndexStatus(
            backend="exact" if manifest is None else "chroma",
            sealed_rows=0 if manifest is None else manifest.rows,
            scanned_rows=len(view.scan),
            generation=0 if manifest is None else manifest.generation,
            reason=self._unavailable or shelf.reason,
        )

    def close(self) -> None:
        """End a seal under way and let go of all snapshots; safe to call twice."""
        with self._guard:
            self._closed = True
            if self._child is not None:
                self._child.kill()
            self._shelves.clear()

    def _shelf(self, connection: sqlite3.Connection, space: str, fingerprint: str) -> _Shelf:
        key = (log.log_id(connection), space, fingerprint)
        with self._guard:
            shelf = self._shelves.get(key)
            if shelf is None:
                snapshots = Snapshots(self._root, collection_name(space, fingerprint))
                shelf = _Shelf(*key, snapshots, _View(ExactScan(space, fingerprint)))
                self._shelves[key] = shelf
            return shelf

    def _opening_due(self, shelf: _Shelf) -> bool:
        if shelf.snapshots.stamp() in (None, shelf.opened):
            return False
        return shelf.view.segment is None or len(shelf.view.scan) >= self._seal_rows

    def _sealing_due(self, shelf: _Shelf, connection: sqlite3.Connection) -> bool:
        manifest = shelf.view.manifest
        if manifest is not None and shelf.snapshots.stamp() is not None:
            newer = log.count(connection, shelf.space, shelf.fingerprint, manifest.sealed_seq)
            return newer >= max(self._seal_rows, manifest.rows // _SEAL_SHARE)
        rows = log.count(connection, shelf.space, shelf.fingerprint)
        return rows >= (self._exact_below if self._mode == "auto" else self._seal_rows)

    def _maintain(self, shelf: _Shelf, connection: sqlite3.Connection, *, rebuild: bool) -> bool:
        if not shelf.upkeep.acquire(blocking=False):
            return False
        try:
            opened = self._opening_due(shelf) and self._open(shelf, connection)
            if rebuild or self._sealing_due(shelf, connection):
                with self._sealing.held():
                    self._build(shelf, connection, rebuild=rebuild)
                if not self._closed and shelf.snapshots.stamp() != shelf.opened:
                    opened = self._open(shelf, connection) or opened
            shelf.failures = 0
            return opened
        except StoreBusy:
            return False  # another process is at it
        except (StorageFailed, OSError) as error:
            if not self._closed:
                shelf.failures += 1
                wait = min(_LAST_RETRY_SECONDS, self._retry_seconds * 2 ** (shelf.failures - 1))
                shelf.retry_at = time.monotonic() + wait
                shelf.reason = error.message if isinstance(error, StorageFailed) else str(error)
                _log.warning("vectors are scanned exactly for now: %s", shelf.reason)
            return False
        finally:
            shelf.upkeep.release()

    def _open(self, shelf: _Shelf, connection: sqlite3.Connection) -> bool:
        """Search the current snapshot from now on; one that cannot be trusted is moved aside."""
        stamp = shelf.snapshots.stamp()
        manifest = shelf.snapshots.manifest()
        if manifest is None:
            self._scan_all(shelf)
            shelf.opened = stamp
            return False
        if self._mode == "auto" and manifest.rows < self._exact_below:
            shelf.opened = stamp
            return False
        known = _sealed_vector(connection, manifest, shelf.log_id)
        try:
            if known is None:
                raise SegmentBroken(f"the Chroma folder {manifest.folder} does not fit the vector log.")
            if manifest.folder == shelf.suspect:
                raise SegmentBroken(shelf.reason or f"the Chroma folder {manifest.folder} failed a search.")
            segment = self._segment(shelf.snapshots, manifest, known)
        except SegmentBroken as error:
            if shelf.snapshots.stamp() != stamp:
                return False  # replaced and deleted meanwhile: the next round opens its successor
            shelf.reason = error.message
            _log.warning("rebuilding the vector index: %s", error.message)
            self._scan_all(shelf)
            with self._sealing.held():
                shelf.snapshots.move_aside(manifest)
            return False
        floor = manifest.sealed_seq
        held = shelf.view.scan
        scan = held.above(floor) if held.floor <= floor else ExactScan(shelf.space, shelf.fingerprint, floor)
        shelf.view = _View(scan, segment, manifest)
        shelf.opened = stamp
        shelf.reason = None
        return True

    def _segment(self, snapshots: Snapshots, manifest: Manifest, known: NDArray[np.float32]) -> Segment:
        """Open a snapshot and ask it once, under the opening lock and with the mark set."""
        path = snapshots.path(manifest)
        with self._opening.held():
            if snapshots.crashed() == manifest.folder and not survives(
                path, snapshots.collection, manifest.rows, known
            ):
                raise SegmentBroken(f"a process died while it opened the Chroma folder {manifest.folder}.")
            with snapshots.opening(manifest):
                snapshots.verify(manifest)
                segment = ChromaSegment(path, snapshots.collection)
                try:
                    check(segment, manifest.rows, known)
                except SegmentBroken:
                    segment.close()
                    raise
                return segment

    def _build(self, shelf: _Shelf, connection: sqlite3.Connection, *, rebuild: bool) -> None:
        """Publish a snapshot of all rows; the index lock is held."""
        base = None if rebuild or shelf.failures > 1 else shelf.snapshots.manifest()
        if base is not None:
            known = _sealed_vector(connection, base, shelf.log_id)
            newer = log.count(connection, shelf.space, shelf.fingerprint, base.sealed_seq)
            if known is not None and newer < self._seal_rows:
                return  # another process sealed them while this one looked
            try:
                if known is None:
                    raise SegmentBroken(f"the Chroma folder {base.folder} does not fit the vector log.")
                shelf.snapshots.verify(base)
            except SegmentBroken as error:
                shelf.reason = error.message
                shelf.snapshots.move_aside(base)
                base = None
        build = shelf.snapshots.begin(base)
        try:
            self._fill(shelf, connection, build, base)
        finally:
            shelf.snapshots.discard(build)

    def _fill(self, shelf: _Shelf, connection: sqlite3.Connection, build: Path, base: Manifest | None) -> None:
        after, rows, checksum = (0, 0, 0) if base is None else (base.sealed_seq, base.rows, base.sealed_crc32)
        newest = log.newest_seq(connection, shelf.space, shelf.fingerprint)
        with SealingProcess(build, shelf.snapshots.collection, rows) as child:
            with self._guard:
                if self._closed:
                    return
                self._child = child
            try:
                while after < newest:
                    seqs, vectors = log.rows_after(connection, shelf.space, shelf.fingerprint, after, BATCH_ROWS)
                    if not len(seqs):
                        break  # the newest rows are damaged
                    child.send(seqs, vectors)
                    after, rows, checksum = int(seqs[-1]), rows + len(seqs), zlib.crc32(vectors[-1].tobytes())
                held = child.finish()
            finally:
                with self._guard:
                    self._child = None
        if held != rows:
            raise SegmentBroken(f"the sealing process stored {held} of {rows} rows.")
        shelf.snapshots.publish(build, log_id=shelf.log_id, sealed_seq=after, sealed_crc32=checksum, rows=rows)

    def _give_up(self, shelf: _Shelf, view: _View, error: SegmentBroken) -> None:
        """A search failed: scan everything; the folder is suspect unless it was merely replaced and deleted."""
        if shelf.view is not view:
            return
        current = shelf.snapshots.manifest()
        if view.manifest is not None and current is not None and current.folder == view.manifest.folder:
            shelf.suspect = current.folder
            shelf.reason = error.message
        self._scan_all(shelf)

    def _scan_all(self, shelf: _Shelf) -> None:
        if shelf.view.segment is not None:
            shelf.view = _View(ExactScan(shelf.space, shelf.fingerprint))
        shelf.opened = None


def _sealed_vector(connection: sqlite3.Connection, manifest: Manifest, log_id: str) -> NDArray[np.float32] | None:
    """The vector of the newest sealed row; None if this log has another row, or none, at that number."""
    if manifest.log_id != log_id:
        return None
    found = log.by_seq(connection, [manifest.sealed_seq]).get(manifest.sealed_seq)
    same = found is not None and zlib.crc32(found.tobytes()) == manifest.sealed_crc32
    return found if same else None
