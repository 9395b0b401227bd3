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
from functools import partial
from pathlib import Path

from memory_core.core.errors import StorageFailed
from memory_core.core.store import atomic
from memory_core.core.store.locks import StoreLock
from memory_core.core.store.sqlite import Database, DatabaseDamaged, DatabaseNewer, identity_of, move_aside

_log = logging.getLogger(__name__)
_HINT = "Nothing to do: the index is rebuilt from the ledger and the files. Ask again in a moment."
DAMAGED = ".damaged-"

WORDS_DDL = """
CREATE VIRTUAL TABLE words USING fts5 (
    own, previous, scope, tokenize = 'porter unicode61 remove_diacritics 2'
);
"""
#: By version of the schema. All but the vectors, and how far servers were sent them, is made anew rather than altered:
#: who changes ``catalog.sql``, or the form in which words are kept, puts another empty step before it.
_SCRIPTS = ("catalog_vectors.sql", "", "", "", "", "catalog_sent.sql", "", "", "", "", "", "", "", "", "catalog.sql")


def _migrations() -> tuple[str, ...]:
    """The script of each step; those that are no more do nothing."""
    folder = Path(__file__).parent
    *earlier, last = ((folder / name).read_text("utf-8") if name else "" for name in _SCRIPTS)
    return (*earlier, last + WORDS_DDL)


class CatalogFile(Database):
    """The database that stands under one name.

    Args:
        path: The file's name.

    Raises:
        StorageFailed: If the system lets nothing be opened there, not even a new file.
    """

    def __init__(self, path: Path) -> None:
        atomic.make_folder(path.parent / "locks")
        self._lock = StoreLock(path.parent / "locks" / "index-file.lock")
        with self._lock.held():
            if not path.exists():
                set_aside(path)  # a log without its database
            _sound(path, partial(super().__init__, path, _migrations(), "NORMAL", damage_hint=_HINT))

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
            if damaged_generation is not None and damaged_generation != self.generation:
                return False  # another thread did it
            opened, standing = self.identity, identity_of(self.path)
            theirs = standing.file is not None and (opened is None or standing.file != opened.file)
            if not theirs and (damaged_generation is not None or standing != opened):
                set_aside(self.path)
            before = self.generation
            _sound(self.path, self.reopen)
            return self.generation != before


def set_aside(path: Path) -> None:
    """Make room for a new file under the name; the newest one that was moved is kept, for whoever wants to look.

    Raises:
        StorageFailed: If the system refuses.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    aside = path.with_name(f"{path.name}{DAMAGED}{stamp}")
    older = [kept for kept in path.parent.glob(f"{path.name}{DAMAGED}*") if not kept.name.startswith(aside.name)]
    try:
        if move_aside(path, aside):
            for kept in older:
                shutil.rmtree(kept) if kept.is_dir() and not kept.is_symlink() else kept.unlink(missing_ok=True)
    except OSError as error:
        raise StorageFailed(
            f"the damaged {path.name} cannot be moved away: {error.strerror or error}.",
            hint="Check the permissions of the .state folder.",
        ) from error


def _sound(path: Path, opening: Callable[[], object]) -> None:
    """Open what is there; what cannot be used is moved aside first. The lock is held."""
    try:
        opening()
        return
    except StorageFailed as error:
        if not (isinstance(error, DatabaseDamaged | DatabaseNewer) or _unusable(path)):
            raise  # a full disk, or too many open files: the index is not at fault
        _log.warning("the index is rebuilt: %s", error.message)
    set_aside(path)
    opening()


def _unusable(path: Path) -> bool:
    """Whether the system would let nobody write this file."""
    return os.path.lexists(path) and not (path.is_file() and os.access(path, os.R_OK | os.W_OK))
