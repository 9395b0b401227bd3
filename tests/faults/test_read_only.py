"""A store that nobody may write to is read and searched as ever; a commit is refused, and says what to do."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.config import load
from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.runebook import Runebook, open_memory

FACTS = "viking://user/default/memories/facts"

_LOOK = """
from memory_core.core.memory.requests import CommitRequest
from memory_core.core.memory.requests import FindRequest
from memory_core.core.memory.requests import ListRequest
from memory_core.core.memory.requests import ReadRequest
from memory_core.core.memory.requests import RetrieveRequest


import json, sys, tempfile
from pathlib import Path
from memory_core.core.config import load
from memory_core.core.errors import StorageFailed
from memory_core.runebook import open_memory

home, facts = sys.argv[1], "viking://user/default/memories/facts"
answer = {}
with open_memory(load(flags={"home": home, "embedding.provider": "none"})) as memory:
    answer["find"] = [hit.uri for hit in memory.find(FindRequest("豆豆")).hits]
    answer["by hand"] = [hit.uri for hit in memory.find(FindRequest("金鱼")).hits]
    answer["unsettled"] = [hit.uri for hit in memory.find(FindRequest("zebra")).hits]
    answer["read"] = memory.read(ReadRequest(f"{facts}/猫.md")).content
    answer["ls"] = [entry.name for entry in memory.ls(ListRequest(facts)).entries]
    answer["retrieve"] = memory.retrieve(RetrieveRequest("豆豆")).text
    answer["dry run"] = memory.commit(CommitRequest("A dry run.", dry_run=True)).status
    try:
        memory.commit(CommitRequest("Not to be stored."))
    except StorageFailed as error:
        answer["refused"] = [error.message, error.hint]
    try:
        memory.commit(CommitRequest(messages=[{"role": "user", "content": "记住"}], session_id="s"))
    except StorageFailed as error:
        answer["conversation"] = error.message
answer["left"] = [path.name for path in Path(tempfile.gettempdir()).glob("runebook-reading-*")]
print(json.dumps(answer, ensure_ascii=False))
"""

#: Root is bound by permissions once it may not override them (PR_CAPBSET_DROP, CAP_DAC_OVERRIDE).
_BOUND = """
import ctypes, os, sys
assert ctypes.CDLL(None).prctl(24, 1, 0, 0, 0) == 0, "root cannot give up its rights here"
os.execv(sys.argv[1], sys.argv[1:])
"""


def opened(home: Path) -> Runebook:
    return open_memory(load(flags={"home": str(home), "embedding.provider": "none"}))


@pytest.fixture
def home() -> Iterator[Path]:
    """A store with memories, a commit that is only in the ledger's log, and a file by hand that nobody has seen."""
    place = Path(tempfile.mkdtemp(prefix="runebook-test-"))
    root = place / "home"
    with opened(root) as memory:
        memory.commit(CommitRequest("The cat is called 豆豆.", memory_type="facts", fields={"topic": "猫"}))
        keeper = sqlite3.connect(root / ".state" / "ledger.sqlite3")  # the log is not folded in while somebody reads
        keeper.execute("BEGIN")
        keeper.execute("SELECT count(*) FROM commits").fetchone()
        memory.commit(CommitRequest("The zebra is striped.", memory_type="facts", fields={"topic": "zebra"}))
    copy = place / "copy"
    shutil.copytree(root, copy)
    keeper.close()
    for path in copy.rglob("*-shm"):
        path.unlink()
    assert (copy / ".state" / "ledger.sqlite3-wal").stat().st_size
    (copy / "user" / "default" / "memories" / "facts" / "鱼.md").write_text("金鱼在池塘里。\n", encoding="utf-8")
    yield copy
    subprocess.run(["chmod", "-R", "u+w", str(place)], check=True)
    shutil.rmtree(place)


def look(home: Path, *starter: str, **options: Any) -> dict[str, Any]:
    done = subprocess.run(
        [*starter, sys.executable, "-c", _LOOK, str(home)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def check(answer: dict[str, Any], reason: str) -> None:
    assert answer["find"][0] == f"{FACTS}/猫.md"
    assert answer["by hand"] == [f"{FACTS}/鱼.md"]
    assert answer["unsettled"] == [f"{FACTS}/zebra.md"], "a commit that was only in the ledger's log is not seen"
    assert "豆豆" in answer["read"]
    assert {"猫.md", "鱼.md", "zebra.md"} <= set(answer["ls"])
    assert "豆豆" in answer["retrieve"]
    assert answer["dry run"] == "dry_run"
    message, hint = answer["refused"]
    assert "reading only" in message
    assert reason in message
    assert "Nothing was stored" in message
    assert "writable" in hint
    assert "reading only" in answer["conversation"]
    assert answer["left"] == [], "the copies were left behind"


def snapshot(home: Path) -> dict[str, bytes]:
    return {str(path.relative_to(home)): path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()}


@pytest.mark.skipif(os.name != "posix", reason="permissions as POSIX has them")
def test_a_folder_without_write_permission_is_read_and_searched(home: Path, tmp_path: Path) -> None:
    subprocess.run(["chmod", "-R", "a-w", str(home)], check=True)
    before = snapshot(home)
    starter = [sys.executable, "-c", _BOUND] if os.geteuid() == 0 else []
    answer = look(home, *starter, env={**os.environ, "TMPDIR": str(tmp_path)})
    check(answer, os.strerror(errno.EACCES))
    assert snapshot(home) == before


def test_read_only_media_are_read_and_searched(home: Path, library: Path, tmp_path: Path) -> None:
    control = tmp_path / "control"
    control.write_text(f"wsonutm {home} {errno.EROFS} 0 0 1\n", encoding="utf-8")
    before = snapshot(home)
    faults = {"LD_PRELOAD": str(library), "FAULTS_CONTROL": str(control), "FAULTS_LOG": str(tmp_path / "log")}
    check(look(home, env={**os.environ, **faults, "TMPDIR": str(tmp_path)}), os.strerror(errno.EROFS))
    assert (tmp_path / "log").stat().st_size
    assert snapshot(home) == before


def test_a_full_disk_is_read_and_searched_from_the_start(home: Path, library: Path, tmp_path: Path) -> None:
    control = tmp_path / "control"
    control.write_text(f"wt {home} {errno.ENOSPC} 0 0 1\n", encoding="utf-8")
    faults = {"LD_PRELOAD": str(library), "FAULTS_CONTROL": str(control)}
    check(look(home, env={**os.environ, **faults, "TMPDIR": str(tmp_path)}), os.strerror(errno.ENOSPC))


def test_a_folder_that_can_be_written_again_takes_commits_after_the_next_start(home: Path) -> None:
    with opened(home) as memory:
        assert (
            memory.commit(CommitRequest("写得进去了。", memory_type="facts", fields={"topic": "after"})).status
            == "committed"
        )
        assert memory.find(FindRequest("zebra")).hits
