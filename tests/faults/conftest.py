"""The compiled library that makes system calls fail."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "faults.c"


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To be loaded into a process by LD_PRELOAD; see ``faults.c``."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("NO FAULTS ARE INJECTED: this needs Linux and a C compiler (cc)")
    target = tmp_path_factory.mktemp("faults") / "faults.so"
    built = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(target), str(SOURCE), "-ldl"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return target
