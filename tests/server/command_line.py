"""Commands in the test's own process: what they print, and with which status they end."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

#: Exit status, stdout, stderr.
Outcome = tuple[int, str, str]
Run = Callable[..., Outcome]


def facts(outcome: Outcome) -> Any:
    """The JSON that a command printed."""
    status, out, err = outcome
    assert status == 0, err  # on a busy machine a line of progress may stand there
    return json.loads(out)


def set_editor(folder: Path, monkeypatch: pytest.MonkeyPatch, lines: str) -> None:
    """An editor that runs these lines of Python with ``file``."""
    program = folder / "editor.py"
    program.write_text(f"import pathlib, subprocess, sys\nfile = pathlib.Path(sys.argv[1])\n{lines}\n", "utf-8")
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", shlex.join([sys.executable, str(program)]))
