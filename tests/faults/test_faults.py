"""Disks that fail at any step of a commit: what was acknowledged is kept, the rest refused, and nothing is half done.

Real system calls of a real process fail (``faults.c``), one after another, through a whole commit (``sweep.py``).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
WRITES, EVERYTHING = "wsonutm", "wsonutmr"


def sweep(
    folder: Path, library: Path, calls: str, error: str, times: int, part: str | None = None, stride: int = 1
) -> dict[str, Any]:
    home = folder / "home"
    home.mkdir()
    environment = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "FAULTS_CONTROL": str(folder / "control"),
        "FAULTS_LOG": str(folder / "log"),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    done = subprocess.run(
        [sys.executable, str(HERE / "sweep.py"), str(home), calls, part or str(home), error, str(times), str(stride)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert "Traceback" not in done.stderr, done.stderr
    return answer


#: Calls, error, how many fail (0: all from there on), and every how manieth step of the commit is tried.
SWEEPS = [
    (WRITES, "ENOSPC", 1, 2),
    (WRITES, "EIO", 1, 1),
    (WRITES, "EROFS", 1, 3),
    (WRITES, "EDQUOT", 0, 5),
    (WRITES, "ENOSPC", 0, 3),
    (WRITES, "EIO", 0, 3),
    (WRITES, "EROFS", 0, 3),
    (EVERYTHING, "EACCES", 1, 5),
    (EVERYTHING, "EACCES", 0, 11),
    (EVERYTHING, "EMFILE", 1, 11),
    (EVERYTHING, "EMFILE", 0, 13),
    (EVERYTHING, "EIO", 0, 7),
]
#: Nothing can be written, and everything read.
READABLE = ("ENOSPC", "EROFS", "EDQUOT")


@pytest.mark.slow
@pytest.mark.parametrize(("calls", "error", "times", "stride"), SWEEPS)
def test_a_fault_at_any_step_of_a_commit_loses_nothing_and_halves_nothing(
    tmp_path: Path, library: Path, calls: str, error: str, times: int, stride: int
) -> None:
    answer = sweep(tmp_path, library, calls, error, times, stride=stride)
    assert answer["bad"] == []
    assert answer["rounds"] * stride > 30
    assert answer["faults"] >= answer["rounds"] - max(5, 20 // stride), "the sweep did not reach every call"
    if error in READABLE:
        assert not refused_readings(answer)


@pytest.mark.parametrize(
    ("part", "calls"),
    [
        pytest.param("ledger.sqlite3", "w", id="the ledger's log", marks=pytest.mark.slow),
        pytest.param("ledger.sqlite3", "s", id="the sync that is the acknowledgement"),
        pytest.param("store.lock", "o", id="the lock", marks=pytest.mark.slow),
        pytest.param("user/default/memories/facts", "n", id="the rename"),
        pytest.param("user/default/memories/facts", "s", id="the sync after the rename", marks=pytest.mark.slow),
        pytest.param("index.sqlite3", "wso", id="the catalog", marks=pytest.mark.slow),
    ],
)
def test_a_fault_of_one_part_that_lasts_keeps_nobody_from_reading(
    tmp_path: Path, library: Path, part: str, calls: str
) -> None:
    answer = sweep(
        tmp_path, library, calls, "EIO", 0, part, stride=2 if part == "ledger.sqlite3" and calls == "w" else 1
    )
    assert answer["bad"] == []
    assert answer["faults"]
    assert not refused_readings(answer)


def refused_readings(answer: dict[str, Any]) -> list[str]:
    return [refusal for refusal in answer["refusals"] if refusal.startswith(("read", "find", "ls", "retrieve"))]
