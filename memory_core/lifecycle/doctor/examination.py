"""What the checks of a store share: its databases, opened for looking only, whatever state they are in."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from memory_core.config import Config
from memory_core.registry import MemoryTypeRegistry
from memory_core.storage.file_store import STATE_NAME, FileStore

_BUSY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Subject:
    """One store to be examined.

    Attributes:
        config: Its settings.
        registry: The memory types.
        files: Its files.
        ledger: For reading; None where it cannot be opened.
        catalog: For reading; None where it cannot be opened.
        fingerprint: Of the embedding model in use, where that is known without loading it.
    """

    config: Config
    registry: MemoryTypeRegistry
    files: FileStore
    ledger: sqlite3.Connection | None
    catalog: sqlite3.Connection | None
    fingerprint: str | None = None

    @property
    def state(self) -> Path:
        """The folder of the machine's files."""
        return self.config.root / STATE_NAME


@contextlib.contextmanager
def looking_at(path: Path) -> Iterator[sqlite3.Connection | None]:
    """A connection that changes nothing; None where there is no database, or none that can be read.

    Opened for writing, or a log that a killed process left could not be read.
    """
    connection: sqlite3.Connection | None = None
    with contextlib.suppress(sqlite3.Error):
        if path.is_file():
            connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=_BUSY_SECONDS, isolation_level=None
            )
            connection.execute("PRAGMA query_only=ON")
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                connection.close()
                connection = None
    usable = connection is not None and _answers(connection)
    try:
        yield connection if usable else None
    finally:
        if connection is not None:
            connection.close()


def damage_of(connection: sqlite3.Connection, limit: int = 5) -> list[str]:
    """What SQLite's own check finds; empty for a sound database."""
    try:
        rows = connection.execute(f"PRAGMA integrity_check({int(limit)})").fetchall()
    except sqlite3.Error as error:
        return [str(error)]
    return [line for (line,) in rows if line != "ok"]


def _answers(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        return False
    return True
