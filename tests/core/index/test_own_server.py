"""The Chroma server that a store runs for itself: one for all processes, private, never left behind, never trusted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory_core.core.index import chroma, chroma_server, vectors
from memory_core.core.index.chroma import ChromaIndex
from tests.core.index.row_store import MODEL, SPACE, RowStore
from tests.waiting import soon

ROWS = 1_200
QUERIES = range(9_000, 9_020)
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Store(RowStore):
    """With a server of its own from so many rows on."""

    index: ChromaIndex

    def __init__(self, state: Path, from_rows: int = 100) -> None:
        super().__init__(state, ChromaIndex(state, from_rows=from_rows, pause_seconds=0.05, verify_seconds=0.0))

    def is_served(self) -> bool:
        """Whether the server holds all rows and answers searches."""
        self.keep_up()
        status = self.index.status(self.connection, SPACE, MODEL)
        rows = vectors.count(self.connection, SPACE, MODEL)
        return status.backend == "chroma" and status.sent_rows == rows and self.index.trouble is None

    def finds_what_a_scan_finds(self) -> bool:
        common = [len({*self.near(query)} & {*self.exact(query)}) for query in QUERIES]
        return sum(common) >= 0.98 * 10 * len(QUERIES)

    @property
    def server(self) -> int:
        """The server's process, which this one owns."""
        assert self.index._own is not None
        assert self.index._own._process is not None
        return self.index._own._process.pid

    @property
    def address(self) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.state / "chroma" / "server.json").read_text(encoding="utf-8"))
        return found


def answers(url: str) -> bool:
    try:
        with _DIRECT.open(f"{url}/api/v2/heartbeat", timeout=1.0):
            return True
    except OSError:
        return False


@pytest.fixture(scope="module")
def served_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder whose rows are on its server; tests work on copies."""
    state = tmp_path_factory.mktemp("served")
    store = Store(state)
    store.add(*range(ROWS))
    assert soon(store.is_served)
    store.close()
    return state


@pytest.fixture
def store(tmp_path: Path, served_state: Path) -> Iterator[Store]:
    shutil.copytree(served_state, tmp_path / "state")
    opened = Store(tmp_path / "state")
    yield opened
    opened.close()


def test_rows_are_found_as_by_a_scan_and_newer_ones_too(store: Store) -> None:
    assert store.backend() == "exact"  # no search starts a server
    assert soon(store.is_served)
    assert store.finds_what_a_scan_finds()
    store.add(5_000)
    assert store.near(5_000)[0] == 5_001
    status = store.index.status(store.connection, SPACE, MODEL)
    assert (status.backend, status.sent_rows, status.scanned_rows) == ("chroma", ROWS, 1)


def test_what_was_sent_before_is_used_by_the_next_process_and_not_sent_again(store: Store) -> None:
    sent = store.connection.execute("SELECT collection, seq FROM sent").fetchall()
    store.index.load(store.connection, SPACE, MODEL)
    assert store.backend() == "chroma"
    assert store.connection.execute("SELECT collection, seq FROM sent").fetchall() == sent


def test_all_processes_ask_one_server_and_another_takes_over_when_its_owner_ends(store: Store) -> None:
    assert soon(store.is_served)
    other = Store(store.state)
    assert soon(other.is_served)
    assert other.index._own is not None
    assert other.index._own._process is None
    assert other.finds_what_a_scan_finds()
    url = store.address["url"]
    store.index.close()
    assert soon(lambda: not answers(url))
    assert other.near(9_000) == other.exact(9_000)
    assert soon(other.is_served)
    assert other.server
    assert other.address["tenant"]
    assert other.finds_what_a_scan_finds()
    other.close()


def test_a_small_space_needs_no_server(tmp_path: Path) -> None:
    store = Store(tmp_path, from_rows=ROWS)
    store.add(*range(50))
    store.keep_up()
    assert store.backend() == "exact"
    assert not (tmp_path / "chroma").exists()
    store.close()


def test_nobody_else_sees_the_vectors(store: Store) -> None:
    assert soon(store.is_served)
    address = store.state / "chroma" / "server.json"
    assert address.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in (store.state / "chroma").rglob("*"))
    url = f"{store.address['url']}/api/v2"
    with _DIRECT.open(f"{url}/tenants/default_tenant/databases/default_database/collections", timeout=5.0) as answer:
        assert json.loads(answer.read()) == []
    with pytest.raises(urllib.error.HTTPError):  # nothing lists tenants
        _DIRECT.open(f"{url}/tenants", timeout=5.0)
    assert store.address["tenant"] not in str(store.index.status(store.connection, SPACE, MODEL))


def test_killed_server_is_missed_by_nobody_and_started_again(store: Store) -> None:
    assert soon(store.is_served)
    before = store.connection.execute("SELECT collection FROM sent").fetchall()
    os.kill(store.server, signal.SIGKILL)
    assert store.near(9_000) == store.exact(9_000)
    assert store.index.trouble is not None
    assert soon(store.is_served)
    assert store.finds_what_a_scan_finds()
    assert store.connection.execute("SELECT collection FROM sent").fetchall() == before


def test_a_server_that_is_ended_while_it_starts_did_not_come_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = chroma_server.OwnServer(tmp_path)
    answers = chroma_server.ChromaServer.answers

    def ended(server: chroma_server.ChromaServer) -> bool:
        own.restart()  # as another thread does whose request failed
        return answers(server)

    with monkeypatch.context() as patched:
        patched.setattr(chroma_server.ChromaServer, "answers", ended)
        with pytest.raises(chroma.ServerFailed, match="did not come up"):
            own.running()
    assert own.running() is not None
    own.end()


def test_frozen_server_is_ended_and_started_again(store: Store) -> None:
    assert soon(store.is_served)
    frozen = store.server
    assert store.index._current is not None
    store.index._current._work_timeout = store.index._current._search_timeout
    os.kill(frozen, signal.SIGSTOP)
    assert store.near(9_000) == store.exact(9_000)
    assert soon(store.is_served)
    assert store.server != frozen


def _noise(path: Path) -> None:
    path.write_bytes(np.random.default_rng(1).bytes(path.stat().st_size))


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "vectors are noise": lambda folder: _noise(next(folder.rglob("data_level0.bin"))),
    "vectors are cut": lambda folder: os.truncate(next(folder.rglob("data_level0.bin")), 1_000),
    "links are gone": lambda folder: next(folder.rglob("link_lists.bin")).unlink(),
    "the pickle is noise": lambda folder: _noise(next(folder.rglob("*.pickle"))),
    "the database is noise": lambda folder: _noise(folder / "data" / "chroma.sqlite3"),
    "the database is gone": lambda folder: (folder / "data" / "chroma.sqlite3").unlink(),
    "the address is noise": lambda folder: (folder / "server.json").write_text("{", encoding="utf-8"),
    "the folder is gone": shutil.rmtree,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_folder_is_filled_anew_and_nobody_misses_a_row(
    store: Store, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chroma_server, "_RETRIES", 0)  # a server over damaged files says the same again, after a wait
    DAMAGE[damage](store.state / "chroma")
    store.add(*range(ROWS, ROWS + 200))
    assert store.near(9_000) == store.exact(9_000)
    assert soon(store.is_served)
    assert store.finds_what_a_scan_finds()
    assert store.near(ROWS + 150)[0] == ROWS + 151


def test_a_folder_deleted_under_a_running_server_is_noticed(store: Store) -> None:
    assert soon(store.is_served)
    shutil.rmtree(store.state / "chroma")
    assert soon(lambda: store.is_served() and (store.state / "chroma" / "server.json").exists())
    assert store.finds_what_a_scan_finds()


def test_the_folder_of_another_log_is_never_believed(store: Store) -> None:
    store.close()
    for path in store.state.glob("index.sqlite3*"):
        path.unlink()
    again = Store(store.state)
    again.add(*reversed(range(ROWS)))  # other rows under the same numbers
    assert soon(again.is_served)
    assert again.finds_what_a_scan_finds()
    again.close()


def test_pruned_rows_leave_the_server(store: Store) -> None:
    assert soon(store.is_served)
    store.remove(*range(400))
    store.prune()
    assert soon(store.is_served)
    assert store.index._current is not None
    collection = store.connection.execute("SELECT collection FROM sent").fetchone()[0]
    assert store.index._current.count(collection) == ROWS - 400
    assert store.near(9_000) == store.exact(9_000)


def test_without_chromadb_vectors_are_scanned_and_the_status_says_why(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chroma, "find_spec", lambda _name: None)
    without = Store(store.state)
    without.keep_up()
    assert without.near(9_000) == without.exact(9_000)
    assert without.index.status(without.connection, SPACE, MODEL).reason == "chromadb is not installed"
    assert without.index.trouble is None
    without.close()


def test_a_chromadb_that_cannot_be_imported_is_in_nobodys_way(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "broken" / "chromadb_rust_bindings"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('no such codec')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(package.parent))
    store.keep_up()
    assert store.near(9_000) == store.exact(9_000)
    assert "did not come up" in (store.index.trouble or "")


_OWNER = """
import sys
from pathlib import Path
from tests.core.index.test_own_server import Store
store = Store(Path(sys.argv[1]))
first = int(sys.argv[2])
while not store.is_served():
    pass
own = store.index._own._process
print(own.pid if own is not None else 0, flush=True)
for number in range(first, first + 100_000, 40):
    store.add(*range(number, number + 40))
    store.keep_up()
    assert store.near(number)[0] == number + 1, number
"""


def owner(state: Path, first: int) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", _OWNER, str(state), str(first)]
    root = Path(__file__).parents[3]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root)


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")
def test_a_killed_owner_leaves_no_server_behind(store: Store) -> None:
    process = owner(store.state, 10_000)
    assert process.stdout is not None
    server = int(process.stdout.readline())
    assert is_alive(server)
    process.kill()
    process.communicate()
    assert soon(lambda: not is_alive(server))
    assert soon(store.is_served)
    assert store.finds_what_a_scan_finds()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")
def test_kills_of_owners_and_servers_while_rows_are_sent_lose_nothing(store: Store) -> None:
    """For some 20 seconds, or as many as RUNEBOOK_STRESS_SECONDS says."""
    until = time.monotonic() + float(os.environ.get("RUNEBOOK_STRESS_SECONDS", "20"))
    random = np.random.default_rng(7)
    running: list[subprocess.Popen[str]] = []
    started = kills = 0
    while time.monotonic() < until:
        while len(running) < 3:
            started += 1
            running.append(owner(store.state, 100_000 * started))
        store.near(9_000)
        time.sleep(float(random.random()))
        if random.random() < 0.5:
            victim = running.pop(int(random.integers(len(running))))
            victim.kill()
            assert "AssertionError" not in victim.communicate()[1]
        else:
            servers = [path for path in Path("/proc").glob("[0-9]*/cwd") if _is_below(path, store.state)]
            for path in servers:
                os.kill(int(path.parent.name), signal.SIGKILL)
        kills += 1
    for process in running:
        process.kill()
        assert "AssertionError" not in process.communicate()[1]
    assert soon(store.is_served)
    assert store.finds_what_a_scan_finds()
    print(f"{kills} kills, {vectors.count(store.connection, SPACE, MODEL)} rows")


def _is_below(link: Path, folder: Path) -> bool:
    try:
        return link.readlink().is_relative_to(folder)
    except OSError:
        return False
