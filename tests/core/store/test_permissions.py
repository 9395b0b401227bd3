"""Files and folders are private to the user, whatever the umask; what killed writers left is swept."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_core.core.store import atomic
from tests.core.store.test_store import URI, open_store, set_text
from tests.fork_server import starter

_USE = """
from memory_core.core.memory.requests import CommitRequest
from memory_core.core.memory.requests import FindRequest
from memory_core.features.upkeep.passes import automatic_maintenance


import os, sys, time
os.umask(0)
from datetime import UTC, datetime
from pathlib import Path
from memory_core.core.config import Config, IndexConfig
from memory_core.runebook import open_memory

with open_memory(Config(home=Path(sys.argv[1]), index=IndexConfig(exact_below=5))) as memory:
    for number in range(40):
        memory.commit(CommitRequest(f"the cat number {number} sleeps 猫睡觉", fields={"title": f"cat {number} 猫"}))
    memory.commit(CommitRequest(messages=[{"role": "user", "content": "hello there 你好"}], session_id="s1"))
    memory.indexer.embed_all()
    until = time.monotonic() + 120
    while not any("chroma" in path.name for path in Path(sys.argv[1]).rglob("*")) and time.monotonic() < until:
        memory.indexer._keep_up()  # a server of vectors takes its time to start where much else runs
        time.sleep(0.1)
    found = memory.find(FindRequest("cat 猫"))
    assert found.hits
    automatic = automatic_maintenance(memory)
    assert automatic is not None
    assert automatic.run_if_due(datetime.now(UTC))
    memory.indexer.follow(None)  # pages of directories are written by then
    for path in sorted(Path(sys.argv[1]).rglob("*")):
        print(oct(path.stat().st_mode & 0o777), "d" if path.is_dir() else "f", path.relative_to(sys.argv[1]))
"""


def test_everything_is_private_whatever_the_umask(tmp_path: Path) -> None:
    home = tmp_path / "home" / "deep"
    run = starter().run(_USE, home)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.decode("utf-8").splitlines()
    assert any("chroma" in line for line in lines)
    assert any("-wal" in line for line in lines)
    assert any("maintained-at" in line for line in lines)
    open_to_others = [line for line in lines if not line.startswith(("0o700 d", "0o600 f"))]
    assert open_to_others == []
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700


def test_what_killed_writers_left_is_swept_when_it_is_old_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    store.commit(set_text(URI, "one"))
    folder = store.files.path_for(URI).parent
    ours = [where / f"{atomic.TEMPORARY_PREFIX}0123456789abcdef" for where in (folder, tmp_path / ".state")]
    theirs = folder / ".tmp-notes-of-somebody"
    for path in (*ours, theirs):
        path.write_text("one", encoding="utf-8")
    store.adopt()
    store.close()
    assert all(path.exists() for path in ours)  # somebody may be writing it
    monkeypatch.setattr(atomic, "_STALE_SECONDS", -60.0)
    store = open_store(tmp_path)
    store.adopt()
    store.close()
    assert not any(path.exists() for path in ours)
    assert theirs.exists()


def test_a_text_that_only_a_dead_writers_temporary_file_holds_comes_back_as_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    store.commit(set_text(URI, "one"))
    folder = store.files.path_for(URI).parent
    for name, text in (("0123456789abcdef", "by hand 亲手写的"), ("fedcba9876543210", "")):
        (folder / f"{atomic.TEMPORARY_PREFIX}{name}").write_text(text, encoding="utf-8")
    monkeypatch.setattr(atomic, "_STALE_SECONDS", -60.0)
    store.adopt()
    store.adopt()
    assert {path.name for path in folder.iterdir()} == {URI.name, "rescued 89abcdef.md"}
    rescued = URI.parent.child("rescued 89abcdef.md")
    assert store.ledger.text_at(rescued) == "by hand 亲手写的"
    store.close()
