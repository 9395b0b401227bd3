"""A log grows at its end, in place: whole or as it was, whoever else writes, and whatever the disk does meanwhile."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

from memory_core.core.memory.results import text_sha256
from tests.core.store.test_store import LOG, open_store, set_text, unsettle
from tests.fork_server import starter

#: Long enough to be remembered from one look to the next.
LONG = "".join(f'{{"role": "user", "content": "第 {number} line of many"}}\n' for number in range(1_200))
MORE = '{"role": "assistant", "content": "好的 one more"}\n'

_APPEND = """
import os, resource, signal, sys
from pathlib import Path
from tests.core.store.test_store import LOG, open_store, set_text
from memory_core.core.store.local import Store

root, stop_at, limit = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

def step(name):
    if name == stop_at:
        os.kill(os.getpid(), signal.SIGKILL)
    if limit and name == "written":
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before.encode()) + limit, resource.RLIM_INFINITY))
    if limit and name == "renamed":
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

store = Store(root, lambda uri, text: ("", ""), step=step)
before = store.text(LOG)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
receipt = store.commit(set_text(LOG, before + sys.argv[4], appended=True))
print(receipt.notes, store.files.path_for(LOG).stat().st_size, flush=True)
"""


def append(root: Path, stop_at: str = "", limit: int = 0, tail: str = MORE) -> subprocess.CompletedProcess[bytes]:
    return starter().run(_APPEND, root, stop_at, limit, tail)


def begun(root: Path, text: str = LONG) -> Path:
    """A settled log; its file."""
    store = open_store(root)
    store.commit(set_text(LOG, text, appended=True))
    path = store.files.path_for(LOG)
    store.close()
    return path


@pytest.mark.parametrize("stop_at", ["planned", "acknowledged", "written", "file", "renamed"])
def test_a_writer_killed_while_a_log_grows_leaves_all_of_it_or_none(tmp_path: Path, stop_at: str) -> None:
    path = begun(tmp_path)
    assert append(tmp_path, stop_at).returncode == -signal.SIGKILL
    store = open_store(tmp_path)
    assert store.text(LOG) == (LONG if stop_at == "planned" else LONG + MORE)
    store.close()
    assert path.read_text(encoding="utf-8") == (LONG if stop_at == "planned" else LONG + MORE)


@pytest.mark.parametrize("left", [MORE[:9], "\0" * 9, MORE[:9] + "\0" * 9, "\0" * len(MORE.encode())])
def test_what_a_power_loss_leaves_of_an_end_is_written_again(tmp_path: Path, left: str) -> None:
    path = begun(tmp_path)
    store = open_store(tmp_path)
    store.commit(set_text(LOG, LONG + MORE, appended=True))
    store.close()
    unsettle(tmp_path)
    path.write_bytes((LONG + left).encode())
    reopened = open_store(tmp_path)
    assert reopened.text(LOG) == LONG + MORE
    assert [commit.kind for commit in reopened.ledger.history(LOG)] == ["commit", "commit"]
    reopened.close()


def test_a_disk_that_is_full_in_the_middle_leaves_the_log_as_it_was_and_it_follows_later(tmp_path: Path) -> None:
    path = begun(tmp_path)
    tail = MORE * 500
    run = append(tmp_path, limit=100, tail=tail)
    assert b"follows once the disk allows it" in run.stdout, run.stderr
    assert int(run.stdout.split()[-1]) == len(LONG.encode())
    store = open_store(tmp_path)
    assert store.text(LOG) == LONG + tail
    store.close()
    assert path.read_text(encoding="utf-8") == LONG + tail


@pytest.mark.parametrize("in_place", [True, False])
def test_what_a_person_saves_while_a_log_grows_stays(tmp_path: Path, in_place: bool) -> None:
    path = begun(tmp_path)
    own = "somebody's own words\n"

    def save(name: str) -> None:
        if name == "written" and own not in path.read_text(encoding="utf-8"):
            target = path if in_place else path.with_name("saved")
            target.write_text(own, encoding="utf-8")
            target.replace(path)

    store = open_store(tmp_path, save)
    store.commit(set_text(LOG, LONG + MORE, appended=True))
    assert path.read_text(encoding="utf-8") == own
    assert store.text(LOG) == own
    assert [commit.kind for commit in store.ledger.history(LOG)][:2] == ["external", "commit"]
    store.close()


def test_two_writers_grow_one_log_in_turn(tmp_path: Path) -> None:
    begun(tmp_path)
    stores = [open_store(tmp_path), open_store(tmp_path)]
    expected = LONG
    for number in range(12):
        store = stores[number % 2]
        assert store.text(LOG) == expected
        expected += f"{number} 行\n"
        store.commit(set_text(LOG, expected, appended=True))
    for store in stores:
        assert store.text(LOG) == expected
        store.close()


def test_an_edit_that_looks_the_same_is_not_lost(tmp_path: Path) -> None:
    path = begun(tmp_path)
    store = open_store(tmp_path)
    store.commit(set_text(LOG, LONG + MORE, appended=True))
    before = path.stat()
    edited = (LONG + MORE).replace("one more", "two more")
    with path.open("r+", encoding="utf-8") as stream:
        stream.write(edited)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    store.commit(set_text(LOG, LONG + MORE + "next\n", appended=True))
    store.close()
    assert path.read_text(encoding="utf-8") == edited + "next\n"
    reopened = open_store(tmp_path)
    reopened.adopt()
    assert "two more" in (reopened.text(LOG) or "")
    reopened.close()


def test_the_hash_of_a_text_that_grows_is_that_of_the_whole() -> None:
    for text in (LONG, LONG + MORE, LONG + MORE * 3, LONG, LONG[:-1] + "x", "a" * 40_000, LONG + "x" + MORE):
        assert text_sha256(text) == hashlib.sha256(text.encode()).hexdigest()
