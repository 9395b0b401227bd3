"""Each command that is timed does its work."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from bench.floor_commands import command_seconds
from bench.stores import opened
from memory_core.core.memory.requests import CommitRequest


def test_each_commit_that_is_timed_stores_something(tmp_path: Path) -> None:
    with opened(tmp_path, provider="none") as memory:
        memory.commit(CommitRequest("Mira fixed the login page."))
    assert set(command_seconds(tmp_path, 2, server=False)) == {"find", "commit", "read", "ls"}
    with closing(sqlite3.connect(tmp_path / ".state" / "ledger.sqlite3")) as ledger:
        assert ledger.execute("SELECT count(*) FROM commits").fetchone() == (3,)
