"""Builds the index anew from ledger and files: the catalog, and what is kept of vectors and snapshots.

Everything that it drops comes back equal. Servers may run on the same store: they search what is indexed so far.
"""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from memory_core.index.catalog import Catalog, Position
from memory_core.index.following import Behind, Follower
from memory_core.index.vectors.sent import begin_anew
from memory_core.index.waiting import await_missing
from memory_core.registry import MemoryTypeRegistry
from memory_core.storage.file_store import INDEX_NAME
from memory_core.storage.lock import sealing_lock
from memory_core.storage.store import Store

_DEAD = (
    "DELETE FROM vectors WHERE NOT EXISTS (SELECT 1 FROM passages p WHERE p.uri = vectors.uri "
    "AND p.part = vectors.part AND p.content_sha256 = vectors.content_sha256)"
)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What the index holds now.

    Attributes:
        files: That the ledger knows.
        documents: That are searched.
        vectors_kept: Of texts that are still there.
        vectors_dropped: Of texts that are gone, or of all, to be computed anew.
    """

    files: int
    documents: int
    vectors_kept: int
    vectors_dropped: int


def rebuild_index(
    store: Store,
    registry: MemoryTypeRegistry,
    *,
    reembed: bool = False,
    report: Callable[[Behind], None] = lambda _behind: None,
) -> Rebuilt:
    """Drop the catalog, vectors of texts that are gone and all snapshots, and fill the catalog again.

    A vector server is emptied and filled again by whoever sends to it next.

    Args:
        store: The open store.
        registry: The memory types.
        reembed: Drop every vector: all are computed anew by whoever embeds next.
        report: Told how far it is.

    Raises:
        StoreBusy: If another process works on the index for too long.
    """
    store.adopt()
    catalog = Catalog(store.files.state / INDEX_NAME)
    try:
        refill(store, registry, catalog, report)
        with catalog.writing() as connection:
            dropped = connection.execute("DELETE FROM vectors" if reembed else _DEAD).rowcount
            await_missing(connection)
            begin_anew(connection)
        drop_snapshots(store.files.state)
        connection = catalog.connection()
        return Rebuilt(store.ledger.feed.files(), catalog.count(), _count(connection), dropped)
    finally:
        catalog.close()


def refill(
    store: Store,
    registry: MemoryTypeRegistry,
    catalog: Catalog,
    report: Callable[[Behind], None] = lambda _behind: None,
    *,
    emptied: bool = True,
) -> None:
    """Fill a catalog with everything the ledger knows.

    Args:
        store: The open store.
        registry: The memory types.
        catalog: Of that store.
        report: Told how far it is.
        emptied: Whether what it holds is dropped first.
    """
    follower = Follower(store.ledger, catalog, store.files.state / "locks", registry.type_at, threading.Event())
    if emptied:
        with catalog.writing() as connection:
            catalog.clear(connection)
            catalog.advance(connection, Position(store.ledger.ledger_id, store.ledger.newest_seq(), ""))
    follower.follow(None, report)


def drop_snapshots(state: Path) -> None:
    """Delete all sealed vectors; searches scan until they are sealed again."""
    root = state / "chroma"
    if not root.is_dir():
        return
    with sealing_lock(state).held():
        for home in root.iterdir():
            shutil.rmtree(home, ignore_errors=True)


def _count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM vectors").fetchone()[0])
