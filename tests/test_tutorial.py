"""The tutorial, done as it says, command by command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).parent.parent / "docs" / "tutorial.md"
#: What opens a browser or looks at the reader's own hosts has tests of its own.
_ELSEWHERE = ("runebook ui", "runebook init", "mktemp")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="the tutorial speaks to a POSIX shell"),
]


def blocks() -> list[str]:
    found = re.findall(r"^```sh\n(.*?)^```", TUTORIAL.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [block for block in found if not any(word in block for word in _ELSEWHERE)]


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    program = Path(sys.executable).parent
    own = {name: value for name, value in os.environ.items() if name not in ("EDITOR", "VISUAL")}
    environment = own | {"RUNEBOOK_HOME": str(tmp_path / "store"), "PATH": f"{program}:{os.environ['PATH']}"}
    said = []
    for block in blocks():
        run = subprocess.run(
            ["bash", "-ec", block], capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120
        )
        assert run.returncode == 0, (block, run.stdout, run.stderr)
        said.append(run.stdout)
    remembered, found, opened, edited, undone, corrected, talked, forgotten = said
    assert remembered.count("created: ") == 3
    assert "two cats" in found
    assert "我对花生过敏" in found
    assert "Mongolia" not in found
    assert "MEMORY_FIELDS" in opened
    assert "two spaces in Python" in edited
    assert "by hand: updated" in edited
    assert "+Use tabs in Go, two spaces in Python." in undone
    assert "committed" in undone
    assert str(tmp_path / "store/user/default/memories/preferences/Code indentation.md") in corrected
    assert "staging moved to port 8443" in talked
    assert "nothing was deleted yet" in forgotten
    assert "erased" in forgotten
