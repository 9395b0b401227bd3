"""Ways in which a SQLite file is found damaged, and a second process that has the same store open."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.fork_server import Process, starter

_OTHER = """
from memory_core.core.memory.requests import CommitRequest
from memory_core.core.memory.requests import FindRequest


import json, sys
from pathlib import Path
from memory_core.core.config import Config, EmbeddingConfig
from memory_core.runebook import open_memory
with open_memory(Config(home=Path(sys.argv[1]), embedding=EmbeddingConfig(provider="none"))) as memory:
    if "watching" in sys.argv:
        memory.opened.watch()
    memory.find(FindRequest("warm"))
    print(json.dumps("open"), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if "find" in asked:
            answer = sorted(hit.uri for hit in memory.find(FindRequest(asked["find"], limit=100)).memories)
        else:
            answer = memory.commit(CommitRequest(asked["commit"], memory_type="facts")).results[0].uri
        print(json.dumps(answer), flush=True)
"""


class OtherProcess:
    """A process that has the store open and does what it is told."""

    def __init__(self, process: Process) -> None:
        self._process = process
        assert self.answer() == "open"

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the other process died"
        return json.loads(line)

    def ask(self, **what: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")
        self._process.stdin.flush()
        return self.answer()

    def find(self, query: str) -> Sequence[str]:
        found: list[str] = self.ask(find=query)
        return found


@contextmanager
def other_process(home: Path, *, watching: bool = False) -> Iterator[OtherProcess]:
    """Another process on the same store, until the block ends."""
    process = starter().script(_OTHER, home, *["watching"] * watching, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield OtherProcess(process)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        ended_with = process.wait()
        process.stdout.close()
    assert ended_with == 0


def checkpoint(path: Path) -> None:
    """Bring what is in the log into the file, so that damage of the file matters."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def garbage(path: Path) -> None:
    """Overwritten from the first byte to the last."""
    path.write_bytes(b"no database \x00\xff" * 4096)


def truncated(path: Path) -> None:
    """Half of it is gone."""
    os.truncate(path, max(4096, path.stat().st_size // 2 // 4096 * 4096))


def empty(path: Path) -> None:
    """Zero bytes long."""
    os.truncate(path, 0)


def flipped(path: Path) -> None:
    """Every page but the first has bytes turned over, as a dying disk leaves them."""
    data = bytearray(path.read_bytes())
    for start in range(4096, len(data), 4096):
        data[start : start + 64] = bytes(value ^ 0xFF for value in data[start : start + 64])
    with path.open("r+b") as stream:
        stream.write(data)


def deleted(path: Path) -> None:
    """Gone; its log stays behind."""
    path.unlink()


def deleted_with_log(path: Path) -> None:
    """Gone with everything that belongs to it."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def log_deleted(path: Path) -> None:
    """Only its log is gone."""
    path.with_name(path.name + "-wal").unlink(missing_ok=True)


def foreign_log(path: Path) -> None:
    """Another database's log lies beside it."""
    elsewhere = path.with_name("elsewhere.sqlite3")
    with closing(sqlite3.connect(elsewhere, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE other (text TEXT)")
        connection.executemany("INSERT INTO other VALUES (?)", [("别的" * 2000,)] * 20)
        shutil.copyfile(f"{elsewhere}-wal", f"{path}-wal")
    for file in path.parent.glob("elsewhere.sqlite3*"):
        file.unlink()


def newer(path: Path) -> None:
    """Of a version that is not released yet."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=999")


def folder(path: Path) -> None:
    """A folder has its name."""
    deleted_with_log(path)
    path.mkdir()
    (path / "file").write_text("x", encoding="utf-8")


def dangling(path: Path) -> None:
    """A link to nowhere has its name."""
    deleted_with_log(path)
    path.symlink_to(path.with_name("nowhere") / "index")


def tables_dropped(path: Path) -> None:
    """Somebody dropped tables by hand."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP TABLE documents")


Damage = Callable[[Path], None]
ALL: Mapping[str, Damage] = {
    damage.__name__: damage
    for damage in (
        *(garbage, truncated, empty, flipped, deleted, deleted_with_log, log_deleted, foreign_log),
        *(newer, folder, dangling, tables_dropped),
    )
}
