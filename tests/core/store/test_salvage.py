"""Rows of a damaged database: what can be read is read, in bounded time, whatever its keys became."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from memory_core.core.store.salvage import DamagedDatabase, Salvaged

# Not as strict as the ledger's own: damage asks no table for permission.
_TABLE = "CREATE TABLE changes (seq INTEGER, ordinal INTEGER, after TEXT, PRIMARY KEY (seq, ordinal))"


def salvaged(path: Path, *keys: object) -> tuple[Salvaged, list[int]]:
    """What is read of a table with the keys 1 to 3 and these."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(_TABLE)
        connection.executemany("INSERT INTO changes VALUES (?, 0, '猫')", [(key,) for key in (1, 2, 3, *keys)])
    damaged = DamagedDatabase(path)
    with closing(damaged), closing(sqlite3.connect(":memory:")) as target:
        target.execute(_TABLE)
        found = damaged.copy("changes", target)
        return found, [seq for (seq,) in target.execute("SELECT seq FROM changes ORDER BY seq")]


def test_a_sound_table_is_read_whole(tmp_path: Path) -> None:
    assert salvaged(tmp_path / "db") == (Salvaged("changes", 3, whole=True), [1, 2, 3])


@pytest.mark.parametrize("key", [2**60, 2**63 - 1, -(2**60), None, float("inf"), b"\x00\xff", "x"])
def test_a_damaged_key_takes_no_other_row_along_and_no_time(tmp_path: Path, key: object) -> None:
    found, keys = salvaged(tmp_path / "db", key)
    assert keys == [1, 2, 3]
    assert found.whole is False
