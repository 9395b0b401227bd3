"""How fast a store answers, opens and commits as it grows, beside the least that any store could take.

Fills stores of different sizes with made-up memories of six types, English and Chinese, and a tenth as many turns of
conversations. Then measures, over stdio: find and commit (p50, p95), the time from spawn to the first answer and to the
first one that is complete, and resident memory; in a fresh process: ``open_memory`` to the first answer. The floor, in
the same run: a product of as many vectors with one and the best 100 of it, and a trivial call of a bare server of the
same SDK.

    python -m bench.scale --sizes 1000,10000,100000 [--keep FOLDER] [--profile]

``--keep`` leaves the filled stores in a folder and uses those that are there; 100,000 memories take minutes to fill.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np

from bench.floor import bare_server
from bench.stdio_client import StdioClient
from bench.stores import opened, serve
from bench.synthetic import conversation, told, write_operation
from bench.timing import Latency, latency, settle
from memory_core.core.config import Config, EmbeddingConfig
from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.runebook import open_memory

#: Goals of find's p50 in milliseconds by size, of opening in milliseconds.
_FIND_GOALS = {1_000: 10, 10_000: 20, 100_000: 60}
_OPEN_GOAL = 1_000
_BATCH, _TURNS = 400, 40
_FINDS, _COMMITS = 200, 100
_DIMENSIONS, _NEAREST = 512, 100
#: Numbers of statements that only conversations, and only timed commits, tell.
_TALK_FROM, _NEW_FROM = 10_000_000, 20_000_000
#: How an answer says that something is missing from it for now.
_UNREADY = "ask again"
_OPEN = """
from memory_core.core.memory.requests import FindRequest


import sys, time, json
from pathlib import Path
from memory_core.core.config import Config
from memory_core.runebook import open_memory
started = time.perf_counter()
with open_memory(Config(home=Path(sys.argv[1]))) as memory:
    memory.warm()
    found = memory.find(FindRequest(sys.argv[2]))
    print(json.dumps({"ms": (time.perf_counter() - started) * 1e3, "notes": found.notes}))
"""


@dataclass(frozen=True, slots=True)
class Opening:
    """Milliseconds from the start to answers.

    Attributes:
        first: To the first answer.
        complete: To the first answer that remarks on nothing missing.
        notes: What the first answer remarked.
    """

    first: float
    complete: float
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """One store; times in milliseconds."""

    memories: int
    passages: int
    over_stdio: Opening
    in_process: float
    find: Latency
    commit: Latency
    found: float
    resident_mib: float
    scan: Latency


def fill(home: Path, memories: int) -> None:
    """Commit ``memories`` statements in batches and a tenth as many turns, and embed them all."""
    with open_memory(Config(home=home, embedding=EmbeddingConfig(provider="none"))) as memory:
        for start in range(0, memories, _BATCH):
            batch = [write_operation(number) for number in range(start, min(memories, start + _BATCH))]
            receipt = memory.commit(CommitRequest(operations={"write_operations": batch}))
            if receipt.status != "committed":
                raise SystemExit(f"a batch was not committed: {receipt.status}")
        for talk in range(memories // 10 // _TURNS):
            messages = list(conversation(_TALK_FROM + talk * _TURNS, _TURNS))
            memory.commit(CommitRequest(messages=messages, session_id=f"talk-{talk}", extract=False))
    with opened(home) as memory:
        memory.find(FindRequest("ready"))


def measure(home: Path, memories: int) -> Measured:
    """Everything about one filled store, which gains some memories by it."""
    with opened(home) as memory:
        passages = memory.indexer.progress().total
    in_process = _open_in_process(home, told(1).question)
    started = time.perf_counter()
    with StdioClient(serve(home)) as client:
        over_stdio = _opening(client, started)
        settle(client)
        step = max(1, memories // _FINDS)
        numbers = [(at * step + 1) % memories for at in range(_FINDS)]
        hits = 0

        def search(at: int) -> None:
            nonlocal hits
            found = client.call("find", {"query": told(numbers[at]).question})
            hits += any(told(numbers[at]).text[:40] in hit["abstract"] for hit in found["memories"])

        find = latency(search, _FINDS)
        resident_mib = client.resident_mib()
        fresh = count(_NEW_FROM + int(time.time()))

        def commit(_at: int) -> None:
            statement = told(next(fresh))
            client.call("commit_memory", {"memory_content": statement.text, "fields": {"title": statement.name}})

        committed = latency(commit, _COMMITS)
    return Measured(
        memories, passages, over_stdio, in_process, find, committed, hits / _FINDS, resident_mib, scan_floor(passages)
    )


def scan_floor(rows: int) -> Latency:
    """The product of ``rows`` vectors with a query and the best hundred of it, in memory already."""
    rng = np.random.default_rng(7)
    vectors = rng.standard_normal((rows, _DIMENSIONS), dtype=np.float32)
    queries = rng.standard_normal((_FINDS, _DIMENSIONS), dtype=np.float32)

    def nearest(at: int) -> None:
        scores = vectors @ queries[at]
        np.argpartition(scores, -min(_NEAREST, rows))[-_NEAREST:]

    return latency(nearest, _FINDS)


def profile(home: Path, memories: int) -> None:
    """Where the time of a search goes, by own time, in this process."""
    with opened(home) as memory:
        memory.find(FindRequest("ready"))
        profiler = cProfile.Profile()
        profiler.enable()
        for number in range(_FINDS):
            memory.find(FindRequest(told(number * 7 % memories).question))
        profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(15)


def main() -> None:
    """Fill where needed, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,10000,100000", help="memories, separated by commas")
    parser.add_argument("--keep", type=Path, default=None, help="folder of filled stores, kept and used again")
    parser.add_argument("--profile", action="store_true", help="also print where the time of a search goes")
    arguments = parser.parse_args()
    with _folder(arguments.keep) as folder:
        bare = bare_server(folder)
        with StdioClient(bare) as client:
            trivial = latency(lambda _at: client.call("add", {"a": 1, "b": 2}), _FINDS)
        print(f"trivial call of a bare server: p50 {trivial.p50:.1f} ms, p95 {trivial.p95:.1f} ms", flush=True)
        measured = []
        for size in (int(text) for text in arguments.sizes.split(",")):
            home, mark = folder / str(size), folder / f"{size}.filled"
            if not mark.exists():
                started = time.perf_counter()
                fill(home, size)
                mark.touch()
                print(f"{size:,} memories: filled in {time.perf_counter() - started:.0f} s", flush=True)
            measured.append(measure(home, size))
            report(measured[-1], measured[0].commit.p50)
            if arguments.profile:
                profile(home, size)


def report(store: Measured, least_commit: float) -> None:
    """What was reached, and the goals."""
    goal = _FIND_GOALS.get(store.memories)
    print(
        f"\n{store.memories:,} memories, {store.passages:,} passages\n"
        f"  find                 p50 {store.find.p50:7.1f} ms   p95 {store.find.p95:7.1f} ms"
        f"{f' (goal p50 {goal})' if goal else ''}   over stdio, {store.found:.0%} of {_FINDS} found\n"
        f"  exact-scan floor     p50 {store.scan.p50:7.1f} ms   p95 {store.scan.p95:7.1f} ms   numpy, "
        f"{store.passages:,} × {_DIMENSIONS}\n"
        f"  commit               p50 {store.commit.p50:7.1f} ms   p95 {store.commit.p95:7.1f} ms   "
        f"{store.commit.p50 / least_commit:.2f} × the smallest store (goal flat)\n"
        f"  spawn, first answer  {store.over_stdio.first:11.0f} ms   complete after {store.over_stdio.complete:.0f} ms"
        f"   {'; '.join(store.over_stdio.notes)}\n"
        f"  open_memory, answer  {store.in_process:11.0f} ms (goal {_OPEN_GOAL})   fresh process, imports not counted\n"
        f"  resident             {store.resident_mib:11.0f} MiB",
        flush=True,
    )


def _opening(client: StdioClient, started: float) -> Opening:
    """Ask until an answer is complete."""
    first: float | None = None
    notes: tuple[str, ...] = ()
    for number in count():
        found = client.call("find", {"query": told(number).question})
        passed = (time.perf_counter() - started) * 1e3
        remarks = tuple(found.get("notes", ()))
        if first is None:
            first, notes = passed, remarks
        if not any(_UNREADY in remark for remark in remarks):
            return Opening(first, passed, notes)
    raise AssertionError("count() does not end")


def _open_in_process(home: Path, query: str) -> float:
    """Milliseconds from ``open_memory`` to the first answer, in a process of its own."""
    command = [sys.executable, "-c", _OPEN, str(home), query]
    answer = subprocess.run(command, check=True, capture_output=True, encoding="utf-8")
    return float(json.loads(answer.stdout)["ms"])


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="runebook-scale-") as folder:
        yield Path(folder)


if __name__ == "__main__":
    main()
