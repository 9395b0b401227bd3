"""How long a commit takes while several processes write to one store, and whether each gets its turn.

Each writer is a stdio server with a client that commits without a pause. One writer alone is the baseline. A figure of
the machine goes with it: the same number of processes that append to files of their own and sync them.

    python -m bench.writers [--writers 4] [--seconds 20]

Exits with 1 if p99 is over one second, or an acknowledged commit is missing from the ledger.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

from bench.recall import percentile
from bench.soak_texts import marker
from bench.stdio_client import StdioClient
from bench.stores import serve

LIMIT_MILLISECONDS = 1_000.0
_SYNCING_SECONDS = 2.0
_SYNCING = """
import os, sys, time
times, until = [], time.monotonic() + float(sys.argv[2])
descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
while time.monotonic() < until:
    started = time.perf_counter()
    os.write(descriptor, b"x" * 4096)
    os.fsync(descriptor)
    times.append(1e3 * (time.perf_counter() - started))
print(sorted(times)[len(times) // 2])
"""


@dataclass(slots=True)
class Round:
    """Milliseconds of each writer's commits, and the ids that were acknowledged."""

    times: list[list[float]] = field(default_factory=list)
    commit_ids: list[str] = field(default_factory=list)

    def line(self, seconds: float) -> str:
        """The figures in one line."""
        every = [time for times in self.times for time in times]
        counts = [len(times) for times in self.times]
        return (
            f"{len(counts)} writers: {sum(counts) / seconds:.0f} commits/s, p50 {percentile(every, 0.5):.1f} ms, "
            f"p99 {percentile(every, 0.99):.1f} ms, max {max(every):.1f} ms; commits per writer "
            f"{min(counts)} to {max(counts)}"
        )

    @property
    def p99(self) -> float:
        """Of all writers' commits together, in milliseconds."""
        return percentile([time for times in self.times for time in times], 0.99)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; 0 when p99 is within a second and nothing is missing."""
    parser = argparse.ArgumentParser(prog="bench.writers", description="Measure commits by several processes at once.")
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20.0)
    asked = parser.parse_args(arguments)
    missing = 0
    together = Round()
    for writers in (1, asked.writers):
        with tempfile.TemporaryDirectory(prefix="runebook-writers-") as folder:
            together = write(Path(folder), writers, asked.seconds)
            missing += missing_from(Path(folder), together.commit_ids)
            print(f"{together.line(asked.seconds)}; missing {missing}", flush=True)
    with tempfile.TemporaryDirectory(prefix="runebook-writers-") as folder:
        print(f"one append with a sync, {asked.writers} processes: {syncing(Path(folder), asked.writers):.2f} ms p50")
    return 1 if missing or together.p99 > LIMIT_MILLISECONDS else 0


def write(home: Path, writers: int, seconds: float) -> Round:
    """Let so many servers write to one store for so long."""
    measured = Round([[] for _ in range(writers)])
    guard = threading.Lock()
    with ExitStack() as stack:
        clients = [stack.enter_context(StdioClient(serve(home))) for _ in range(writers)]
        for number, client in enumerate(clients):
            client.call("commit_memory", {"memory_content": f"Writer {number} begins.", "memory_type": "facts"})
            client.call("find", {"query": "begins"})  # the model is loaded from here on
        until = time.monotonic() + seconds

        def commit(number: int) -> None:
            made = 0
            while time.monotonic() < until:
                made += 1
                word = marker(number * 1_000_000 + made, chinese=made % 2 == 0)
                content = f"货架上放着{word}。" if made % 2 == 0 else f"The shelf holds {word}."
                started = time.perf_counter()
                arguments = {"memory_content": content, "memory_type": "facts", "fields": {"topic": f"{number} {made}"}}
                receipt = clients[number].call("commit_memory", arguments)
                measured.times[number].append(1e3 * (time.perf_counter() - started))
                with guard:
                    measured.commit_ids.append(receipt["commit_id"])

        with ThreadPoolExecutor(writers) as pool:
            list(pool.map(commit, range(writers)))  # a writer's error ends the program here
    return measured


def missing_from(home: Path, commit_ids: Sequence[str]) -> int:
    """How many of the acknowledged commits the ledger does not hold exactly once."""
    with closing(sqlite3.connect(home / ".state" / "ledger.sqlite3")) as ledger:
        held = [row[0] for row in ledger.execute("SELECT commit_id FROM commits")]
    return len(set(commit_ids) - set(held)) + len(held) - len(set(held))


def syncing(folder: Path, processes: int) -> float:
    """Milliseconds (p50) of an append of 4 KiB with a sync, by so many processes at once."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _SYNCING, os.fspath(folder / str(number)), str(_SYNCING_SECONDS)],
            stdout=subprocess.PIPE,
        )
        for number in range(processes)
    ]
    return percentile([float(process.communicate()[0]) for process in running], 0.5)


if __name__ == "__main__":
    sys.exit(main())
