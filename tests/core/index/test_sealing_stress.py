"""Processes that append, supersede, prune, search and seal one store while they are killed at random.

Run as a script it is one such process; as a test it starts them, kills them, and then proves that nothing but
its own SIGKILL ended any of them and that every row they acknowledged is found. ``RUNEBOOK_STRESS_SECONDS``
sets its length.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from memory_core.core.index import vectors
from memory_core.core.index.sealing import SealedIndex
from memory_core.core.index.vectors import VectorRow
from memory_core.core.store.sqlite import Database

SPACE = "user/测试"
MODEL = "stress-model"
DIM = 64
FIRST_ROWS = 1_000
WORKERS = 3


def content(number: int) -> str:
    return f"{number:064x}"


def vector(number: int) -> NDArray[np.float32]:
    drawn = np.random.default_rng(number).standard_normal(DIM).astype(np.float32)
    return np.asarray(drawn / np.linalg.norm(drawn), np.float32)


def row(number: int) -> VectorRow:
    # Ten versions of a text share a URI: all but the newest are superseded.
    uri = f"viking://user/测试/memories/第{number // 10}条.md"
    return VectorRow(SPACE, uri, 0, content(number), MODEL, vector(number))


class Worker:
    """One process of the stress: what its threads do until the time is over."""

    def __init__(self, root: Path, first: int, seconds: float) -> None:
        self.root = root
        self.until = time.monotonic() + seconds
        self.random = random.Random(first)
        self.database = Database(root / "index.sqlite3", (vectors.DDL,), "NORMAL")
        self.index = SealedIndex(root, exact_below=500, seal_rows=80, retry_seconds=0.5)
        self.next = first
        self.mine: list[int] = []
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        jobs = (self.append, self.search, self.search, self.seal, self.report)
        threads = [threading.Thread(target=self.repeat, args=(job,)) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.report()
        self.index.close()
        self.database.close()

    def repeat(self, job: object) -> None:
        assert callable(job)
        while time.monotonic() < self.until:
            try:
                job()
            except BaseException:
                self.counts["errors"] += 1
                self.report()
                raise

    def append(self) -> None:
        numbers = list(range(self.next, self.next + self.random.randint(1, 15)))
        self.next = numbers[-1] + 1
        with self.database.writing() as connection:
            vectors.append(connection, [row(number) for number in numbers])
        pruned: list[int] = []
        if len(self.mine) > 200 and self.random.random() < 0.2:
            pruned = self.random.sample(self.mine, 30)
            self.mine = sorted(set(self.mine) - set(pruned))
        with (self.root / f"acknowledged.{os.getpid()}").open("a", encoding="utf-8") as stream:
            stream.writelines(f"-{number}\n" for number in pruned)
            stream.writelines(f"+{number}\n" for number in numbers)
        if pruned:
            with self.database.writing() as connection:
                marks = ",".join("?" * len(pruned))
                found = connection.execute(
                    f"SELECT seq FROM vectors WHERE content_sha256 IN ({marks})",
                    [content(number) for number in pruned],
                ).fetchall()
                vectors.prune(connection, [seq for (seq,) in found])
        self.mine += numbers
        time.sleep(self.random.random() * 0.4)

    def search(self) -> None:
        mine = self.mine
        number = self.random.choice(mine) if mine and self.random.random() < 0.5 else None
        if number is None:
            number = self.random.randrange(FIRST_ROWS)
        if not found_by_search(self.index, self.database, number) and number in self.mine:
            self.counts["missed"] += 1
            print(f"missed {number}", flush=True)
        self.counts["searches"] += 1
        time.sleep(0.01)

    def seal(self) -> None:
        connection = self.database.connection()
        if self.index.seal_due(connection, SPACE, MODEL):
            self.counts["maintained"] += 1
            self.counts["opened"] += self.index.seal(connection, SPACE, MODEL)
            if self.random.random() < 0.02:
                rows = vectors.count(connection, SPACE, MODEL)
                self.counts["compacted"] += self.index.compact(connection, SPACE, MODEL, rows // 3)
            reason = self.index.status(connection, SPACE, MODEL).reason
            if reason is not None:
                print(f"reason: {reason}", flush=True)
        time.sleep(0.05)

    def report(self) -> None:
        target = self.root / f"counts.{os.getpid()}"
        temporary = target.with_suffix(f".new{threading.get_ident()}")
        temporary.write_text(json.dumps(self.counts), encoding="utf-8")
        temporary.replace(target)
        time.sleep(0.2)


def found_by_search(index: SealedIndex, database: Database, number: int) -> bool:
    connection = database.connection()
    hits = index.search(connection, SPACE, MODEL, vector(number), 10)
    entries = vectors.entries(connection, [seq for seq, _ in hits])
    return content(number) in {digest for _, _, digest in entries.values()}


def children(pid: int) -> list[int]:
    try:
        return [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text(encoding="utf-8").split()
        ]
    except OSError:
        return []


class Stage:
    """Starts workers, kills some of them or of their sealing children, and keeps the count."""

    def __init__(self, root: Path, seconds: float) -> None:
        self.root = root
        self.until = time.monotonic() + seconds
        self.random = random.Random(7)
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        self.ours: set[int] = set()
        self.started = 0
        self.kills: Counter[str] = Counter()
        self.bad: list[str] = []

    def run(self) -> None:
        for _ in range(WORKERS):
            self.start()
        while time.monotonic() < self.until:
            time.sleep(self.random.uniform(0.5, 3.0))
            self.reap()
            number, victim = self.random.choice(list(self.workers.items()))
            sealing = children(victim.pid)
            if sealing and self.random.random() < 0.5:
                self.kill_child(self.random.choice(sealing))
            elif victim.poll() is None:
                victim.kill()
                self.ours.add(number)
                self.kills["worker while sealing" if sealing else "worker"] += 1
        self.reap(restart=False)

    def start(self) -> None:
        self.started += 1
        left = max(1.0, self.until - time.monotonic())
        first = self.started * 1_000_000
        with (self.root / f"output.{self.started}").open("wb") as output:
            self.workers[self.started] = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", __file__, str(self.root), str(first), str(left)],
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def kill_child(self, pid: int) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.kills["sealing child"] += 1

    def reap(self, *, restart: bool = True) -> None:
        for number, worker in list(self.workers.items()):
            if restart and worker.poll() is None:
                continue
            code = worker.wait(timeout=120)
            wanted = -signal.SIGKILL if number in self.ours else 0
            if code != wanted and code != 0:
                self.bad.append(f"worker {number} ended with {code}")
            del self.workers[number]
            if restart:
                self.start()


def acknowledged(root: Path) -> set[int]:
    numbers = set(range(FIRST_ROWS))
    for path in root.glob("acknowledged.*"):
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                (numbers.add if line[0] == "+" else numbers.discard)(int(line[1:]))
    return numbers


def verify(root: Path) -> dict[str, object]:
    """In a process of its own: seal what is left, then look for every acknowledged row."""
    database = Database(root / "index.sqlite3", (vectors.DDL,), "NORMAL")
    index = SealedIndex(root, exact_below=500, seal_rows=80, retry_seconds=0.5)
    connection = database.connection()
    while index.seal_due(connection, SPACE, MODEL):
        index.seal(connection, SPACE, MODEL)
    missed = [number for number in acknowledged(root) if not found_by_search(index, database, number)]
    status = index.status(connection, SPACE, MODEL)
    index.close()
    return {
        "backend": status.backend,
        "reason": status.reason,
        "sealed_rows": status.sealed_rows,
        "generation": status.generation,
        "asked": len(acknowledged(root)),
        "missed": missed[:20],
    }


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds the sealing children through /proc")
def test_kills_while_sealing_neither_crash_another_process_nor_lose_a_row(tmp_path: Path) -> None:
    database = Database(tmp_path / "index.sqlite3", (vectors.DDL,), "NORMAL")
    with database.writing() as connection:
        vectors.append(connection, [row(number) for number in range(FIRST_ROWS)])
    index = SealedIndex(tmp_path, exact_below=500, seal_rows=80)
    assert index.seal(database.connection(), SPACE, MODEL)
    index.close()
    database.close()
    stage = Stage(tmp_path, float(os.environ.get("RUNEBOOK_STRESS_SECONDS", "20")))
    stage.run()

    outputs = {path.name: path.read_text(encoding="utf-8", errors="replace") for path in tmp_path.glob("output.*")}
    totals: Counter[str] = Counter()
    for path in tmp_path.glob("counts.*"):
        if path.suffix[1:].isdigit():
            totals.update(json.loads(path.read_text(encoding="utf-8")))
    answer = subprocess.run(
        [sys.executable, __file__, str(tmp_path)], capture_output=True, text=True, encoding="utf-8", check=False
    )
    print(dict(stage.kills), dict(totals), answer.stdout)
    reasons = Counter(
        line[:160] for text in outputs.values() for line in text.splitlines() if line.startswith("reason:")
    )
    print(dict(reasons))
    assert not stage.bad, (stage.bad, outputs)
    assert not totals["errors"], [text for text in outputs.values() if "Traceback" in text]
    assert not totals["missed"], outputs
    assert totals["searches"]
    assert totals["opened"]
    assert answer.returncode == 0, answer.stderr
    result = json.loads(answer.stdout)
    assert result["missed"] == []
    assert result["backend"] == "chroma", result
    aside = tmp_path / "chroma" / "aside"
    assert not aside.is_dir() or len(list(aside.iterdir())) <= 2


if __name__ == "__main__":
    if len(sys.argv) == 2:
        print(json.dumps(verify(Path(sys.argv[1]))))
    else:
        Worker(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])).run()
