"""A SQLite connection whose errors are ours, also those that come while rows are read.

Owns only the translation's place; what an error means is said by whoever opens the connection.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any, cast


def _unchanged(error: sqlite3.Error) -> Exception:
    return error


class TranslatingConnection(sqlite3.Connection):
    """A connection that raises what ``translate`` makes of SQLite's errors."""

    translate: Callable[[sqlite3.Error], Exception] = staticmethod(_unchanged)

    def cursor(self, factory: Any = None) -> Any:
        """A cursor that translates."""
        return super().cursor(factory or _Cursor)

    def execute(self, *arguments: Any) -> Any:
        """As SQLite's; its own would not go through ``cursor``."""
        return super().cursor(_Cursor).execute(*arguments)

    def executemany(self, *arguments: Any) -> Any:
        """As SQLite's; see ``execute``."""
        return super().cursor(_Cursor).executemany(*arguments)


class _Cursor(sqlite3.Cursor):
    def execute(self, *arguments: Any) -> _Cursor:
        try:
            super().execute(*arguments)
        except sqlite3.Error as error:
            raise self._translated(error) from error
        return self

    def executemany(self, *arguments: Any) -> _Cursor:
        try:
            super().executemany(*arguments)
        except sqlite3.Error as error:
            raise self._translated(error) from error
        return self

    def fetchone(self) -> Any:
        try:
            return super().fetchone()
        except sqlite3.Error as error:
            raise self._translated(error) from error

    def fetchall(self) -> list[Any]:
        try:
            return super().fetchall()
        except sqlite3.Error as error:
            raise self._translated(error) from error

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # a generator is as fast as the cursor's own loop
        try:
            yield from iter(super().__next__, None)
        except sqlite3.Error as error:
            raise self._translated(error) from error

    def __next__(self) -> Any:
        try:
            return super().__next__()
        except sqlite3.Error as error:
            raise self._translated(error) from error

    def _translated(self, error: sqlite3.Error) -> Exception:
        return cast("TranslatingConnection", self.connection).translate(error)
