"""The catalog's file: its schema, and what becomes of it when it is damaged, deleted or no longer the one in use.

Nothing in it is needed to keep a memory, so a file that cannot be trusted is moved aside and an empty one takes its
place; whoever follows the ledger fills it. Promises that all threads and processes end up on one file: each
compares what stands under the name with what it opened, and files change places under a lock only.

The log and the shared memory of a database belong to it by their names. They move first: the new file must not
be opened with the old one's. SQLite itself leaves the names alone when a file that was moved is closed.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from memory_core.core.errors import StorageFailed
from memory_core.core.index.archived_rows import DDL as RESTING_DDL
from memory_core.core.index.chroma import DDL as SENT_DDL
from memory_core.core.index.embedding_queue import DDL as WAITING_DDL
from memory_core.core.index.page_rows import DDL as PAGES_DDL
from memory_core.core.index.vectors import DDL as VECTORS_DDL
from memory_core.core.index.vectors import DOCUMENTS_DDL
from memory_core.core.store import atomic
from memory_core.core.store.locks import StoreLock
from memory_core.core.store.sqlite import Database, DatabaseDamaged, DatabaseNewer, identity_of, move_aside

_log = logging.getLogger(__name__)
_HINT = "Nothing to do: the index is rebuilt from the ledger and the files. Ask again in a moment."
DAMAGED = ".damaged-"
T = TypeVar("T")

WORDS_DDL = """
CREATE VIRTUAL TABLE words USING fts5 (
    own, previous, scope, tokenize = 'porter unicode61 remove_diacritics 2'
);
"""
#: Vectors outlive every other table: what an older catalog embedded need not be embedded again.
_SCHEMA_1 = VECTORS_DDL
_SCHEMA_4 = (
    """
DROP TABLE IF EXISTS meta;
DROP TABLE IF EXISTS spaces;
DROP TABLE IF EXISTS documents;
DROP TABLE IF EXISTS passages;
DROP TABLE IF EXISTS models;
DROP TABLE IF EXISTS waiting;
DROP TABLE IF EXISTS words;
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE spaces (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE documents (
    id INTEGER PRIMARY KEY,
    uri TEXT NOT NULL,
    part INTEGER NOT NULL,
    space TEXT NOT NULL,
    context_type TEXT NOT NULL,
    memory_type TEXT NOT NULL,
    name TEXT NOT NULL,
    abstract TEXT NOT NULL,
    own TEXT NOT NULL,
    created_at TEXT,
    updated_at TEXT,
    happened TEXT,
    salience REAL NOT NULL,
    tags TEXT NOT NULL,
    category TEXT,
    project TEXT,
    private INTEGER NOT NULL,
    contested_by TEXT NOT NULL,
    signature TEXT NOT NULL,
    confidence REAL NOT NULL,
    active INTEGER NOT NULL,
    pinned INTEGER NOT NULL,
    expires_at TEXT,
    support REAL NOT NULL,
    role TEXT,
    speaker TEXT,
    session_id TEXT,
    UNIQUE (uri, part)
);
CREATE INDEX documents_space ON documents (space);
CREATE INDEX documents_private ON documents (project) WHERE private;
CREATE INDEX documents_happened ON documents (space, happened) WHERE happened IS NOT NULL;
"""
    + WORDS_DDL
    + WAITING_DDL
)
#: What pages list comes with the documents: they are indexed once more.
_SCHEMA_7 = PAGES_DDL + "DELETE FROM meta;"
_SCHEMA_9 = """
ALTER TABLE documents ADD COLUMN always_on INTEGER NOT NULL DEFAULT 0;
CREATE INDEX documents_always_on ON documents (space, updated_at) WHERE always_on;
DELETE FROM meta;
"""
_SCHEMA_10 = """
ALTER TABLE documents ADD COLUMN general INTEGER NOT NULL DEFAULT 1;
DELETE FROM meta;
"""
_SCHEMA_11 = """
ALTER TABLE documents ADD COLUMN substance REAL NOT NULL DEFAULT 1.0;
DELETE FROM meta;
"""
#: A catalog is made anew rather than altered: the ledger and the files fill it.
_MIGRATIONS = (
    _SCHEMA_1,
    "",
    "",
    _SCHEMA_4,
    RESTING_DDL,
    SENT_DDL,
    _SCHEMA_7,
    DOCUMENTS_DDL,
    _SCHEMA_9,
    _SCHEMA_10,
    _SCHEMA_11,
)


class CatalogFile:
    """The file under one name, and the database in it.

    Args:
        path: The file's name.

    Raises:
        StorageFailed: If the system lets nothing be opened there, not even a new file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        atomic.make_folder(path.parent / "locks")
        self._lock = StoreLock(path.parent / "locks" / "index-file.lock")
        with self._lock.held():
            if not path.exists():
                set_aside(path)  # a log without its database
            self.database = _sound(path, lambda: Database(path, _MIGRATIONS, "NORMAL", damage_hint=_HINT))

    @property
    def path(self) -> Path:
        """Its name."""
        return self._path

    @property
    def generation(self) -> int:
        """Counts the files that were in use; what was remembered of an earlier one is void."""
        return self.database.generation

    def is_current(self) -> bool:
        """Whether the file in use still stands under the name."""
        return self.database.is_current()

    def renew(self, damaged_generation: int | None = None) -> bool:
        """Use the file that stands under the name now, or a new one.

        Args:
            damaged_generation: The file in use then cannot be trusted and is moved aside; by default it is only gone
                or replaced.

        Returns:
            Whether another file is in use now.

        Raises:
            StorageFailed: If the system refuses.
        """
        with self._lock.held():
            if damaged_generation is not None and damaged_generation != self.database.generation:
                return False  # another thread did it
            opened, standing = self.database.identity, identity_of(self._path)
            theirs = standing.file is not None and (opened is None or standing.file != opened.file)
            if not theirs and (damaged_generation is not None or standing != opened):
                set_aside(self._path)
            before = self.database.generation
            _sound(self._path, self.database.reopen)
            return self.database.generation != before


def set_aside(path: Path) -> None:
    """Make room for a new file under the name; the newest one that was moved is kept, for whoever wants to look."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    aside = path.with_name(f"{path.name}{DAMAGED}{stamp}")
    older = [kept for kept in path.parent.glob(f"{path.name}{DAMAGED}*") if not kept.name.startswith(aside.name)]
    if move_aside(path, aside):
        for kept in older:
            shutil.rmtree(kept) if kept.is_dir() and not kept.is_symlink() else kept.unlink(missing_ok=True)


def _sound(path: Path, opening: Callable[[], T]) -> T:
    """Open what is there; what cannot be used is moved aside first. The lock is held."""
    try:
        return opening()
    except StorageFailed as error:
        if not (isinstance(error, DatabaseDamaged | DatabaseNewer) or _unusable(path)):
            raise  # a full disk, or too many open files: the index is not at fault
        _log.warning("the index is rebuilt: %s", error.message)
    try:
        set_aside(path)
        return opening()
    except OSError as error:
        raise StorageFailed(
            f"the damaged {path.name} cannot be moved away: {error.strerror or error}.",
            hint="Check the permissions of the .state folder.",
        ) from error


def _unusable(path: Path) -> bool:
    """Whether the system would let nobody write this file."""
    return os.path.lexists(path) and not (path.is_file() and os.access(path, os.R_OK | os.W_OK))
