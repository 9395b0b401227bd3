"""The locks: one dies with its process, and says what is wrong with its file; both let everybody have a turn."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from itertools import count
from multiprocessing.sharedctypes import SynchronizedArray
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from filelock import FileLock

from memory_core.core.errors import StorageFailed, StoreBusy
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.locks import FairLock, StoreLock
from tests.core.store.test_store import open_store, set_text
from tests.waiting import PATIENCE_SECONDS, soon

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
    with StoreLock(path, timeout_seconds=PATIENCE_SECONDS).held():
        pass


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


def _is_longer(lock: FairLock, before: int) -> bool:
    return len(lock._waiting) > before


def test_a_fair_lock_goes_to_those_who_wait_in_their_order_and_not_to_who_asks_again_at_once() -> None:
    lock, order = FairLock(), list[int]()

    def hold(number: int) -> None:
        assert lock.acquire(PATIENCE_SECONDS)
        order.append(number)
        lock.release()

    for _ in range(20):  # without an order the other thread is the first each time, or nearly
        order.clear()
        assert lock.acquire(0)
        threads = [threading.Thread(target=hold, args=(number,)) for number in range(3)]
        for thread in threads:
            before = len(lock._waiting)
            thread.start()
            assert soon(partial(_is_longer, lock, before))
        lock.release()
        hold(3)
        for thread in threads:
            thread.join()
        assert order == [0, 1, 2, 3]


def test_who_gives_up_on_a_fair_lock_is_passed_over() -> None:
    lock = FairLock()
    assert lock.acquire(0)
    assert not lock.is_awaited
    started = time.monotonic()
    assert not lock.acquire(0.01)
    assert time.monotonic() - started >= 0.01
    assert not lock.is_awaited
    assert lock.locked()
    lock.release()
    assert not lock.locked()
    assert lock.acquire(0)


def test_who_is_interrupted_while_waiting_for_a_fair_lock_keeps_nobody_from_it() -> None:
    lock = FairLock()
    assert lock.acquire(0)

    waiting = threading.get_ident()

    def interrupt() -> None:
        assert soon(lambda: lock.is_awaited)
        signal.pthread_kill(waiting, signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        lock.acquire(PATIENCE_SECONDS)
    interrupting.join()
    assert not lock.is_awaited
    lock.release()
    assert not lock.locked()


class _Interrupted:
    """A guard after which one thread is interrupted, the n-th time that it lets it go."""

    def __init__(self, guard: threading.Lock, time_interrupted: int) -> None:
        self._guard = guard
        self._times = count(1)
        self._time_interrupted = time_interrupted
        self._thread = threading.get_ident()

    def __enter__(self) -> None:
        self._guard.acquire()

    def __exit__(self, *_error: object) -> None:
        self._guard.release()
        if threading.get_ident() == self._thread and next(self._times) == self._time_interrupted:
            raise KeyboardInterrupt


@pytest.mark.parametrize("time_interrupted", [1, 2])
def test_an_interruption_at_any_place_neither_takes_a_fair_lock_from_its_holder_nor_keeps_it(
    monkeypatch: pytest.MonkeyPatch, time_interrupted: int
) -> None:
    lock = FairLock()
    assert lock.acquire(0)
    with monkeypatch.context() as patched:
        patched.setattr(lock, "_guard", _Interrupted(lock._guard, time_interrupted))
        with pytest.raises(KeyboardInterrupt):
            lock.acquire(0.01)
    assert lock.locked()
    assert not lock.is_awaited
    lock.release()
    assert not lock.locked()
    with monkeypatch.context() as patched:
        patched.setattr(lock, "_guard", _Interrupted(lock._guard, 1))
        with pytest.raises(KeyboardInterrupt):
            lock.acquire(0)
    assert not lock.locked()


def test_a_fair_lock_that_nobody_holds_is_not_released() -> None:
    with pytest.raises(RuntimeError):
        FairLock().release()


def _commit_until_all_have(root: str, worker: int, counts: SynchronizedArray[int]) -> None:
    store = open_store(Path(root))
    while min(counts[:]) < 50:
        uri = MemoryUri.parse(f"viking://user/default/memories/notes/w{worker}-{counts[worker]}.md")
        store.commit(set_text(uri, "文字"))
        counts[worker] += 1
    store.close()


def test_of_four_writers_in_a_loop_none_starves_and_nothing_is_lost(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    context = multiprocessing.get_context("spawn")
    counts = context.Array("i", 4)
    workers = [
        context.Process(target=_commit_until_all_have, args=(str(tmp_path), n, counts), daemon=True) for n in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE_SECONDS)
    assert [worker.exitcode for worker in workers] == [0, 0, 0, 0], counts[:]
    store = open_store(tmp_path)
    written = {f"w{worker}-{number}.md" for worker, count in enumerate(counts[:]) for number in range(count)}
    assert {entry.uri.name for entry in store.files.walk()} == written
    assert len(store.ledger.history(limit=100_000)) == len(written)
    store.close()


def test_the_timeout_is_for_threads_and_processes_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    acquire, asked = FileLock.acquire, list[float]()

    def noting(self: FileLock, timeout: float, **options: Any) -> Any:
        asked.append(timeout)
        return acquire(self, timeout=timeout, **options)

    clock = iter((100.0, 120.0))
    monkeypatch.setattr(FileLock, "acquire", noting)
    monkeypatch.setattr("memory_core.core.store.locks.time", SimpleNamespace(monotonic=lambda: next(clock)))
    with StoreLock(tmp_path / "store.lock", timeout_seconds=30.0).held():
        pass
    assert asked == [10.0]


def test_a_long_read_gives_way_to_a_writer_of_its_process_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory_core.core.store.locks._GIVE_WAY_SECONDS", PATIENCE_SECONDS)
    lock = StoreLock(tmp_path / "store.lock")
    events: list[str] = []

    def read() -> None:
        lock.give_way()
        events.append("read")

    with lock.held():
        reader = threading.Thread(target=read)
        reader.start()
        reader.join(0.05)
        events.append("written")
    reader.join(PATIENCE_SECONDS)
    assert events == ["written", "read"]
    lock.give_way()  # nobody writes: at once
