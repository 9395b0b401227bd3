"""The lock: dies with its process, says what is wrong with its file, and lets everybody have a turn."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from multiprocessing.queues import Queue
from pathlib import Path

import pytest

from memory_core.core.errors import StorageFailed, StoreBusy
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.locks import StoreLock
from tests.core.store.test_store import open_store, set_text

_HOLDER = """
import sys, threading
from pathlib import Path
from memory_core.core.store.locks import StoreLock

with StoreLock(Path(sys.argv[1])).held():
    print("held", flush=True)
    threading.Event().wait()
"""


def test_a_killed_holder_frees_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "锁.lock"
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, str(path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    with holder.stdout as said:
        assert said.readline() == b"held\n"
    with pytest.raises(StoreBusy, match=r"0\.05 s"), StoreLock(path).held(0.05):
        pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with StoreLock(path, timeout_seconds=5.0).held():
        pass


def test_a_lock_file_that_is_a_folder_is_an_error_with_a_next_step(tmp_path: Path) -> None:
    (tmp_path / "store.lock").mkdir()
    with pytest.raises(StorageFailed, match="locked") as caught, StoreLock(tmp_path / "store.lock").held():
        pass
    assert caught.value.hint


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_an_unreadable_lock_file_is_an_error_and_no_hang(tmp_path: Path) -> None:
    (tmp_path / "store.lock").touch(mode=0o000)
    with pytest.raises(StorageFailed, match="locked"), StoreLock(tmp_path / "store.lock").held():
        pass


def test_a_lock_file_that_was_deleted_while_nobody_held_it_is_made_again(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path / "store.lock")
    for _ in range(2):
        with lock.held():
            assert (tmp_path / "store.lock").stat().st_mode & 0o777 == 0o600
        (tmp_path / "store.lock").unlink()


def _commit_in_a_loop(root: str, worker: int, seconds: float, waits: Queue[list[float]]) -> None:
    store = open_store(Path(root))
    found: list[float] = []
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        uri = MemoryUri.parse(f"viking://user/default/memories/notes/w{worker}-{len(found)}.md")
        started = time.monotonic()
        store.commit(set_text(uri, "文字"))
        found.append(time.monotonic() - started)
    waits.put(found)
    store.close()


def test_of_four_writers_in_a_loop_none_starves(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    context = multiprocessing.get_context("spawn")
    queue: Queue[list[float]] = context.Queue()
    workers = [context.Process(target=_commit_in_a_loop, args=(str(tmp_path), n, 2.0, queue)) for n in range(4)]
    for worker in workers:
        worker.start()
    waits = [queue.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    counts = sorted(len(found) for found in waits)
    assert counts[0] * 10 > counts[-1], counts  # nobody is left with a tenth of the turns of another
    slowest = sorted(wait for found in waits for wait in found)
    print(f"commits {counts}, p50 {slowest[len(slowest) // 2]:.4f} p99 {slowest[int(len(slowest) * 0.99)]:.3f} s")
    assert slowest[int(len(slowest) * 0.99)] < 5.0
