"""What an operation costs in process, without the encoder: CPU time of the calling thread, and SQL statements."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.stores import opened
from bench.synthetic import conversation, told
from memory_core.core.memory.requests import CommitRequest
from memory_core.runebook import Runebook

_COMMITS, _TRACED = 200, 15
_EXCHANGES, _FIRST_EXCHANGES = 25, 5
_BATCHES, _TURNS = 40, 20
_LEDGER, _INDEX = "ledger.sqlite3", "index.sqlite3"
#: Numbers of statements that a store of any size does not hold yet.
_NEW_FROM = 20_000_000


@dataclass(frozen=True, slots=True)
class Explicit:
    """An explicit commit.

    Attributes:
        cpu_ms: Median CPU time of the calling thread.
        statements: Median number of SQL statements of that thread; those that FTS5 and triggers run inside are
            not counted.
    """

    cpu_ms: float
    statements: float


@dataclass(frozen=True, slots=True)
class Disk:
    """Bytes a memory, without its vector."""

    ledger: float
    index: float
    files: float


def fill_singly(home: Path, memories: int) -> Disk:
    """Commit so many one-line notes one by one into a new store, without vectors."""
    with opened(home, provider="none") as memory:
        for number in range(memories):
            memory.commit(CommitRequest(told(number).text))
        memory.opened.current_pages()
    ledger, index = (
        sum(path.stat().st_size for path in (home / ".state").glob(f"{name}*")) for name in (_LEDGER, _INDEX)
    )
    files = sum(path.stat().st_size for path in home.rglob("*.md"))
    return Disk(ledger / memories, index / memories, files / memories)


def explicit(home: Path) -> Explicit:
    """Commit notes into a store as it is."""
    with opened(home, provider="none") as memory:
        memory.indexer.follow(None)

        def commit(number: int) -> None:
            memory.commit(CommitRequest(told(_NEW_FROM + number).text))

        used = _cpu_ms(commit, _COMMITS)
        counts = []
        for number in range(_COMMITS, _COMMITS + _TRACED):
            with _statements(memory) as statements:
                commit(number)
            counts.append(len(statements))
    return Explicit(used, statistics.median(counts))


def exchange_ms(folder: Path, messages: int, *, repeats: bool = False) -> float:
    """CPU time of committing two messages into a session of so many; ``repeats`` where the answers recur in it.

    The session grows by two messages with each of 30 exchanges. What its beginning, one commit of so many messages,
    leaves to the background is done before.
    """
    with opened(folder / f"session-{messages}-{repeats}", provider="none") as memory:
        memory.commit(CommitRequest(messages=_messages(0, messages, repeats=repeats), session_id="talk"))
        memory.indexer.follow(None)
        memory.opened.background.finish()

        def commit(number: int) -> None:
            exchange = _messages(_NEW_FROM + number, 2, repeats=repeats)
            memory.commit(CommitRequest(messages=exchange, session_id="talk"))

        for number in range(_FIRST_EXCHANGES):
            commit(number)
        return _cpu_ms(lambda number: commit(_FIRST_EXCHANGES + number), _EXCHANGES)


def turn_ms(folder: Path) -> tuple[float, float]:
    """Milliseconds a turn, of the wall and of the processor, of new sessions committed whole."""
    batches = [_messages(number * _TURNS, _TURNS) for number in range(_BATCHES)]
    walls = []
    with opened(folder / "batches", provider="none") as memory:

        def commit(number: int) -> None:
            started = time.perf_counter()
            memory.commit(CommitRequest(messages=batches[number], session_id=f"talk-{number}"))
            walls.append(1e3 * (time.perf_counter() - started))

        used = _cpu_ms(commit, _BATCHES)
    return statistics.median(walls) / _TURNS, used / _TURNS


def _messages(first: int, turns: int, *, repeats: bool = False) -> list[dict[str, Any]]:
    """A made-up conversation without times of its own; all messages differ, or a few short answers recur."""
    messages = [{name: message[name] for name in ("role", "content")} for message in conversation(first, turns)]
    if not repeats:
        for at, message in enumerate(messages[1::2]):
            message["content"] += f" {told(first + at).name}"
    return messages


def _cpu_ms(action: Callable[[int], None], count: int) -> float:
    times = []
    for number in range(count):
        started = time.thread_time()
        action(number)
        times.append(1e3 * (time.thread_time() - started))
    return statistics.median(times)


@contextmanager
def _statements(memory: Runebook) -> Iterator[list[str]]:
    """The statements that this thread sends to the ledger and to the index."""
    seen: list[str] = []

    def trace(statement: str) -> None:
        if not statement.startswith("--") and [statement] != seen[-1:]:  # a trigger shows as what it belongs to
            seen.append(statement)

    connections = (memory.store.ledger.database.connection(), memory.indexer.catalog.connection())
    for connection in connections:
        connection.set_trace_callback(trace)
    try:
        yield seen
    finally:
        for connection in connections:
            connection.set_trace_callback(None)
