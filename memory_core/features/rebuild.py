"""Made anew: the index from the ledger, and a ledger that is damaged or gone from what can be read of it.

A new ledger takes over what the old one still tells, and the files are taken in. No memory file is touched but by
delivering what was acknowledged and is not on the disk yet. The damaged file is moved aside and kept for good: what
could not be read today may be read by somebody else.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from memory_core.core.command import NOWHERE, Arg, Command
from memory_core.core.feature import Feature, Features
from memory_core.core.index.catalog import Catalog, Position
from memory_core.core.index.chroma import begin_anew
from memory_core.core.index.documents import is_session_log
from memory_core.core.index.embedding_queue import await_missing
from memory_core.core.index.follower import Behind, Follower
from memory_core.core.index.vectors import HAS_NO_PASSAGE
from memory_core.core.memory.memory import identify
from memory_core.core.memory.memory_type import MemoryTypeRegistry
from memory_core.core.memory.names import fold
from memory_core.core.memory.results import text_sha256
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store import atomic
from memory_core.core.store.files import INDEX_NAME, LEDGER_NAME, STATE_NAME
from memory_core.core.store.ledger import Ledger, stored_text
from memory_core.core.store.locks import store_lock
from memory_core.core.store.salvage import DamagedDatabase, Salvaged
from memory_core.core.store.sqlite import move_aside

if TYPE_CHECKING:
    from memory_core.runebook import Runebook


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


@dataclass(frozen=True, slots=True)
class RebuildRequest:
    """Build the search index anew from files and history."""

    reembed: Annotated[bool, Arg(help="Compute every vector anew, too.")] = False
    report: Annotated[Callable[[Behind], None], Arg(surfaces=NOWHERE)] = lambda _behind: None


def rebuild(memory: Runebook, request: RebuildRequest) -> Rebuilt:
    """Build the index of an open store anew; vectors follow in the background.

    The catalog and vectors of texts that are gone are dropped, and the catalog is filled again. A vector server is
    emptied, and filled again by whoever sends to it next.

    Raises:
        StoreBusy: If another process works on the index for too long.
    """
    store, catalog = memory.store, memory.indexer.catalog
    in_folder = not store.ledger.database.is_remote
    with contextlib.ExitStack() as opened:
        if in_folder:  # opened again: a file that cannot be opened is moved aside
            catalog = opened.enter_context(contextlib.closing(Catalog(store.files.state / INDEX_NAME)))
        store.adopt()
        refill(store.ledger, memory.registry, catalog, request.report, features=memory.features)
        with catalog.writing() as connection:
            going = "TRUE" if request.reembed else HAS_NO_PASSAGE
            dropped = connection.execute(f"DELETE FROM vectors WHERE {going}").rowcount
            await_missing(connection)
            if in_folder:
                begin_anew(connection)
        if in_folder:
            shutil.rmtree(store.files.state / "vectors", ignore_errors=True)
        (kept,) = catalog.connection().execute("SELECT count(*) FROM vectors").fetchone()
        rebuilt = Rebuilt(store.ledger.feed.files(), catalog.count(), int(kept), dropped)
    memory.indexer.wake()
    return rebuilt


REBUILD = Command("rebuild", RebuildRequest, rebuild, writes=True)
FEATURE = Feature(commands=(REBUILD,))


def refill(
    ledger: Ledger,
    registry: MemoryTypeRegistry,
    catalog: Catalog,
    report: Callable[[Behind], None] = lambda _behind: None,
    *,
    features: Features,
    emptied: bool = True,
) -> None:
    """Fill a catalog with everything the ledger knows.

    Args:
        ledger: The ledger.
        registry: The memory types.
        catalog: Of that store.
        report: Told how far it is.
        features: Of the store.
        emptied: Whether what it holds is dropped first.
    """
    follower = Follower(ledger, catalog, registry, threading.Event(), features)
    if emptied:
        with catalog.writing() as connection:
            catalog.clear(connection)
            catalog.advance(connection, Position(ledger.ledger_id, ledger.newest_seq(), ""))
    follower.follow(None, report)


#: Not carried over. ``files`` and ``directories`` are made from the others; ``meta`` holds the ledger's id, and the new
#: ledger keeps its own, so that no index of the old one is taken for its own.
_MADE_ANEW = frozenset({"meta", "files", "directories"})


@dataclass(frozen=True, slots=True)
class Rescue:
    """What became of a ledger.

    Attributes:
        kept_as: Where the damaged file is, by its name in ``.state``; None where there was none.
        tables: What was read of each of its tables.
        names: Files of which the history is known again.
        dropped: Changes that were read but whose text is not what was committed.
    """

    kept_as: str | None
    tables: tuple[Salvaged, ...]
    names: int
    dropped: int

    def lines(self) -> Iterator[str]:
        """What was done, one sentence each."""
        if self.kept_as is None:
            yield "there was no ledger: a new one was made; the history of before is gone"
            return
        yield f"the damaged ledger is kept as {STATE_NAME}/{self.kept_as}"
        if not self.tables:
            yield "nothing of it could be read; the history of before is gone"
        for table in (table for table in self.tables if table.rows or not table.whole):
            lost = "" if table.whole else ", and some could not be read"
            yield f"{table.rows:,} rows of {table.table} were carried over{lost}"
        if self.dropped:
            yield f"{self.dropped:,} changes were dropped: their text was not what was committed"
        if self.names:
            yield f"{self.names:,} files have their history again"


def rescue_ledger(root: Path, registry: MemoryTypeRegistry) -> Rescue:
    """Replace the ledger by a new one with what can be read of the old.

    Args:
        root: The memory folder. Programs that have the old ledger open refuse to commit from now on, until they
            are started again.
        registry: The memory types.

    Raises:
        StoreBusy: If another writer held the store too long.
        StorageFailed: If the system refuses.
    """
    state = root / STATE_NAME
    atomic.make_folder(state / "locks")
    with store_lock(state).held():
        path = state / LEDGER_NAME
        aside = path.with_name(f"{path.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S}")
        kept = aside if aside in move_aside(path, aside) else None
        Ledger(path).close()
        with _writing(path) as target:
            tables = () if kept is None else tuple(_carry_over(kept, target))
            dropped = _mend(target)
            names = names_anew(target, registry)
    return Rescue(None if kept is None else kept.name, tables, names, dropped)


def rebuild_names(root: Path, registry: MemoryTypeRegistry) -> int:
    """``names_anew`` in the ledger of a memory folder that nobody has open."""
    state = root / STATE_NAME
    with store_lock(state).held(), _writing(state / LEDGER_NAME) as target:
        return names_anew(target, registry)


def names_anew(target: sqlite3.Connection, registry: MemoryTypeRegistry) -> int:
    """Make the name table, and the counts of directories, anew from the history, in the transaction at hand.

    A file whose history does not say what it holds is left out: it is taken in as a new one.

    Returns:
        How many files have a row.
    """
    known = {
        (uri, sha256): (size, mtime)
        for uri, sha256, size, mtime in target.execute("SELECT uri, sha256, size_bytes, mtime_ns FROM files")
    }
    target.execute("DELETE FROM files")
    target.execute("DELETE FROM directories")
    rows = [_name_row(registry, *change) for change in _last_changes(target)]
    target.executemany(
        "INSERT INTO files (uri, directory, name_fold, memory_type, key, sha256, seq, size_bytes, mtime_ns) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(*row, *known.get((row[0], row[5]), (None, None))) for row in rows],
    )
    return len(rows)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[sqlite3.Connection]:
    """One transaction on the new ledger, in which rows may refer to rows that are still to come."""
    with contextlib.closing(sqlite3.connect(path, timeout=30.0, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


def _carry_over(wreck_path: Path, target: sqlite3.Connection) -> Iterator[Salvaged]:
    try:
        wreck = DamagedDatabase(wreck_path)
    except sqlite3.Error:
        return
    try:
        tables = target.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
        ).fetchall()
        for (table,) in tables:
            if table not in _MADE_ANEW:
                yield wreck.copy(table, target)
    finally:
        wreck.close()


def _mend(target: sqlite3.Connection) -> int:
    """Drop texts that are not what was committed, and give changes whose commit was lost one to belong to."""
    spoilt = [
        (seq, ordinal)
        for seq, ordinal, after, sha256 in target.execute(
            "SELECT seq, ordinal, after, after_sha256 FROM changes WHERE appended = 0 AND purged = 0 AND after NOT NULL"
        )
        if text_sha256(after) != sha256
    ]
    target.executemany("DELETE FROM changes WHERE seq = ? AND ordinal = ?", spoilt)
    target.execute(
        "INSERT INTO commits (seq, commit_id, at, kind, receipt, settled) SELECT DISTINCT c.seq, "
        "'salvaged-' || c.seq, coalesce((SELECT max(at) FROM commits o WHERE o.seq < c.seq), ''), 'salvaged', '{}', 1 "
        "FROM changes c WHERE NOT EXISTS (SELECT 1 FROM commits o WHERE o.seq = c.seq)"
    )
    for table, rowid, *_ in target.execute("PRAGMA foreign_key_check").fetchall():
        if rowid is not None:
            target.execute(f"DELETE FROM {table} WHERE rowid = ?", (rowid,))
    target.execute("DELETE FROM injections WHERE session NOT IN (SELECT session FROM injected_sessions)")
    return len(spoilt)


def _last_changes(target: sqlite3.Connection) -> Iterator[tuple[MemoryUri, int, str, str]]:
    """``(uri, seq, memory_type, text)`` of each file that the history ends with."""
    rows = target.execute(
        "SELECT uri, seq, memory_type, after_sha256 FROM (SELECT uri, seq, ordinal, memory_type, after_sha256, "
        "row_number() OVER (PARTITION BY uri ORDER BY seq DESC, ordinal DESC) AS place FROM changes) c "
        "WHERE place = 1 AND after_sha256 IS NOT NULL ORDER BY seq, ordinal"
    ).fetchall()
    for uri, seq, memory_type, sha256 in rows:
        text = stored_text(target, uri, seq)
        if text is not None and text_sha256(text) == sha256:
            yield MemoryUri.parse(uri), seq, memory_type, text


def _name_row(
    registry: MemoryTypeRegistry, uri: MemoryUri, seq: int, memory_type: str, text: str
) -> tuple[str, str, str, str, str, str, int]:
    known, key = identify(registry, uri, text)
    if is_session_log(uri):
        key = uri.parent.name
    return (str(uri), str(uri.parent), fold(uri.name), memory_type or known, key, text_sha256(text), seq)
