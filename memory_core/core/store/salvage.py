"""Reads what can still be read of a damaged SQLite file, row by row, into a sound one.

Owns no meaning: tables are copied by name, for the columns that both files have, and what is in the way of a row is
skipped. Rows are asked for in ranges of their first key, forwards and backwards; a range that fails is halved until
only the damaged pages' own rows are missing. The damaged file is only read.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Keys that are asked for at once.
_RANGE_KEYS = 500
#: Keys of a table whose newest row cannot be read, and of one in a small file.
_KEYS = 1_000_000
#: Of an integer in SQLite.
_HIGHEST = 2**63 - 1
#: Ranges that fail before the rest of a table is given up: a table of random pages must end some time.
_FAILURES = 20_000
_BROKEN = object()


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What became of one table: rows that were read, and whether anything was in the way."""

    table: str
    rows: int
    whole: bool


class DamagedDatabase:
    """A damaged database, opened for reading.

    Args:
        path: The file; its log, if it lies beside it, counts.

    Raises:
        sqlite3.Error: If not even the list of its tables can be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = self._opened()

    def close(self) -> None:
        """Release the file."""
        self._connection.close()

    def columns(self, table: str) -> list[str]:
        """Names of a table's columns; empty where there is no such table."""
        with contextlib.suppress(sqlite3.Error):
            return [str(row[1]) for row in self._connection.execute(f"PRAGMA table_info({table})")]
        return []

    def copy(self, table: str, target: sqlite3.Connection) -> Salvaged:
        """Copy a table's readable rows into the table of that name; rows that are there already stay.

        Args:
            table: Its name.
            target: The sound database, inside a transaction.
        """
        held = [row[1] for row in target.execute(f"PRAGMA table_info({table})")]
        columns = [name for name in self.columns(table) if name in held]
        if not columns:
            return Salvaged(table, 0, not self.columns(table))
        reader = _Rows(self._connection, table, columns, self._path.stat().st_size)
        marks = ", ".join("?" * len(columns))
        statement = f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({marks})"
        rows = 0
        for row in reader:
            with contextlib.suppress(sqlite3.Error):  # a row that its table would never have held
                rows += max(0, target.execute(statement, row).rowcount)
        return Salvaged(table, rows, reader.whole)

    def _opened(self) -> sqlite3.Connection:
        last: sqlite3.Error | None = None
        for query in ("mode=rw", "mode=ro&immutable=1"):  # without its log, where that is what is damaged
            connection = sqlite3.connect(f"{self._path.absolute().as_uri()}?{query}", uri=True, isolation_level=None)
            try:
                connection.execute("PRAGMA query_only=ON")
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            except sqlite3.Error as error:
                connection.close()
                last = error
            else:
                connection.text_factory = _text
                return connection
        assert last is not None
        raise last


class _Rows:
    """The readable rows of one table.

    Args:
        connection: To the damaged file.
        table: The table.
        columns: What is read of it.
        size_bytes: Of the file.
    """

    def __init__(self, connection: sqlite3.Connection, table: str, columns: Sequence[str], size_bytes: int) -> None:
        self._connection = connection
        self._most_keys = max(_KEYS, size_bytes)  # they are dense: a row takes more than a byte
        self._table = table
        self._columns = ", ".join(columns)
        self._failures = 0
        self.whole = True
        info = connection.execute(f"PRAGMA table_info({table})").fetchall()
        keys = sorted((row[5], row[1], row[2]) for row in info if row[5])
        self._key = keys[0][1] if keys else "rowid"
        self._counted = not keys or keys[0][2].upper() == "INTEGER"
        self._place = list(columns).index(self._key) if self._key in columns else None

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        if self._counted:
            first, last = self._span()
            for low in range(first, last + 1, _RANGE_KEYS):
                yield from self._between(low, min(last, low + _RANGE_KEYS - 1))
            return
        seen: set[Any] = set()
        for order in ("ASC", "DESC"):  # each ends where the damage begins
            for row in self._read(f"ORDER BY {self._key} {order}", ()):
                key = row if self._place is None else row[self._place]
                if key not in seen:
                    seen.add(key)
                    yield row
            if self.whole:
                return

    def _span(self) -> tuple[int, int]:
        """The first and the last key that may be there."""
        oldest, newest = self._edge("ASC"), self._edge("DESC")
        if oldest is not None and newest is not None and 0 <= oldest <= newest <= oldest + self._most_keys:
            return oldest, newest
        self.whole = False  # an edge is damaged: it says nothing, or a key that cannot be
        first = oldest if oldest is not None and 0 <= oldest <= (oldest if newest is None else newest) else 1
        return first, min(first + self._most_keys, _HIGHEST)

    def _edge(self, order: str) -> int | None:
        with contextlib.suppress(sqlite3.Error, TypeError, ValueError, OverflowError):  # a damaged key is of any type
            row = self._connection.execute(
                f"SELECT {self._key} FROM {self._table} ORDER BY {self._key} {order} LIMIT 1"
            ).fetchone()
            return 0 if row is None else int(row[0])
        return None

    def _between(self, low: int, high: int) -> Iterator[tuple[Any, ...]]:
        """Rows with a key in the range; the ranges that remain are kept on a stack, lowest first."""
        ranges = [(low, high)]
        while ranges and self._failures < _FAILURES:
            low, high = ranges.pop()
            rows, sound = self._range(low, high)
            yield from rows
            if not sound and low < high:
                middle = (low + high) // 2
                ranges += [(middle + 1, high), (low, middle)]

    def _range(self, low: int, high: int) -> tuple[list[tuple[Any, ...]], bool]:
        condition = f"WHERE {self._key} >= ? AND {self._key} <= ? ORDER BY {self._key}"
        before = self._failures
        rows = list(self._read(condition, (low, high)))
        sound = self._failures == before
        return (rows if sound or low == high else []), sound

    def _read(self, condition: str, arguments: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        try:
            cursor = self._connection.execute(
                f"SELECT {self._columns} FROM {self._table} {condition}", tuple(arguments)
            )
            while rows := cursor.fetchmany(1):
                if any(value is _BROKEN for value in rows[0]):
                    self.whole = False
                else:
                    yield rows[0]
        except sqlite3.Error:
            self._failures += 1
            self.whole = False


def _text(raw: bytes) -> Any:
    """A stored text; something else where it is none any more."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return _BROKEN
