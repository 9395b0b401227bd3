"""A built wheel works alone: in an empty environment, away from the sources."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*command: str | Path, cwd: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RUNEBOOK_", "PYTHON"))}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_wheel_installed_in_an_empty_environment_remembers_and_finds(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run(*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("runebook-*.whl")
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    scripts = environment / ("Scripts" if os.name == "nt" else "bin")
    run(scripts / "python", "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    runebook = scripts / "runebook"
    home = tmp_path / "home"
    assert "preferences" in run(runebook, "types", "--home", home, cwd=tmp_path)
    run(runebook, "commit", "用户的妹妹住在成都。", "--home", home, cwd=tmp_path)
    assert "成都" in run(runebook, "find", "Where does the sister live?", "--home", home, cwd=tmp_path)
    shown = run(runebook, "demo", cwd=tmp_path)
    assert "Success rate: 92.0% (92 successful, 8 failed)" in shown
    assert "mcpServers" in shown
