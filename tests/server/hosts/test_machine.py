"""How hosts start the program that is installed here, on every platform."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from server.hosts.host_files import hooked, starts_us
from server.hosts.host_table import Launcher, is_temporary, launcher


def test_program_beside_its_python_is_named_by_its_full_path(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "runebook"
    program.parent.mkdir()
    program.touch()
    found = launcher(program="/elsewhere/pytest", prefix=str(tmp_path), windows=False)
    assert (found.command, found.prefix) == (str(program), ())


def test_link_of_an_installer_is_named_rather_than_what_it_points_to(tmp_path: Path) -> None:
    stored = tmp_path / "venv" / "bin" / "runebook"
    link = tmp_path / "local" / "runebook"
    for path in (stored, link):
        path.parent.mkdir(parents=True)
    stored.touch()
    link.symlink_to(stored)
    assert launcher(program=str(link), prefix=str(tmp_path / "venv"), windows=False).command == str(link)


def test_windows_program_ends_in_exe(tmp_path: Path) -> None:
    program = tmp_path / "Scripts" / "runebook.exe"
    program.parent.mkdir()
    program.touch()
    for started in (program.with_suffix(""), Path("C:/python/python.exe")):
        assert launcher(program=str(started), prefix=str(tmp_path), windows=True).command == str(program)


@pytest.mark.parametrize(
    ("prefix", "name", "rest"),
    [
        ("/home/lin/.cache/uv/archive-v0/Ab12", "uvx", ("runebook",)),
        (r"C:\Users\lin\AppData\Local\uv\cache\archive-v0\Ab12", "uvx", ("runebook",)),
        ("/home/lin/.cache/pipx/3f2a", "pipx", ("run", "runebook")),
    ],
)
def test_environment_of_a_runner_is_started_through_it(prefix: str, name: str, rest: tuple[str, ...]) -> None:
    found = launcher(program="x", prefix=prefix)
    assert Path(found.command).name == name
    assert found.prefix == rest


def test_without_a_program_python_starts_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(tmp_path))
    found = launcher(program="pytest", prefix=str(tmp_path), windows=False)
    assert (found.command, found.prefix) == (sys.executable, ("-m", "server.cli"))


@pytest.mark.parametrize(
    ("path", "temporary"),
    [
        ("/tmp/x/bin/runebook", True),
        ("/private/var/folders/ab/T/venv/bin/runebook", True),
        (r"C:\Users\lin\AppData\Local\Temp\venv\Scripts\runebook.exe", True),
        ("/home/lin/.local/bin/runebook", False),
        ("/home/lin/tmp/venv/bin/runebook", False),
        (r"C:\Users\lin\AppData\Local\Programs\runebook.exe", False),
    ],
)
def test_program_in_a_temporary_folder_is_recognised(path: str, temporary: bool) -> None:
    assert is_temporary(path) is temporary


@pytest.mark.parametrize(
    ("launched", "line"),
    [
        (Launcher("/opt/runebook"), "/opt/runebook hook session-start"),
        (Launcher(r"C:\Program Files\rb\runebook.exe"), '"C:/Program Files/rb/runebook.exe" hook session-start'),
        (Launcher("/家/bin/runebook"), '"/家/bin/runebook" hook session-start'),
        (Launcher("uvx", ("runebook",)), "uvx runebook hook session-start"),
        (Launcher("/usr/bin/python3", ("-m", "server.cli")), "/usr/bin/python3 -m server.cli hook session-start"),
    ],
)
def test_hook_lines_are_quoted_for_any_shell_and_known_again(launched: Launcher, line: str) -> None:
    assert launched.line("hook", "session-start") == line
    assert hooked(line)
    assert starts_us({"command": launched.command, "args": [*launched.prefix, "serve"]})


@pytest.mark.parametrize("line", ["date", "my-runebook-like hook x", "echo runebook", "/x/runebook find y"])
def test_command_lines_of_others_are_not_taken_for_hooks(line: str) -> None:
    assert not hooked(line)
    assert not starts_us({"command": line, "args": ["serve.js"]})
