"""Hosts are set up and set back, with the program that is installed here."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from memory_core.core.errors import InvalidInput
from server.hosts import jsonc
from server.hosts.host_files import BACKUP, backup_of, hooked, starts_us
from server.hosts.host_setup import (
    Launcher,
    Wanted,
    by_hand,
    findings,
    install,
    is_temporary,
    launcher,
    plan,
    uninstall,
)
from server.hosts.host_table import Host, Machine, host_named, hosts

WANTED = Wanted(Launcher("/opt/venv/bin/runebook"), parts=frozenset({"server", "rules", "hooks"}))
JSON = """{
  // 我的
  "theme": "dark",
  "hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "date"}]}]},
}
"""
TOML = '# 我的\nmodel = "m"\n\n[mcp_servers.other]\ncommand = "x"'
RULES = "# Mine\r\n\r\nAlways answer in 中文."
every_host = pytest.mark.parametrize("host", hosts(), ids=lambda host: host.name)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine("linux", tmp_path / "home", {})


def texts_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def furnish(machine: Machine, host: Host) -> None:
    """Files as a person has them before Runebook comes."""
    for path, edits in plan(host, machine, WANTED):
        path.parent.mkdir(parents=True, exist_ok=True)
        text = TOML if path.suffix == ".toml" else RULES if edits[0].what == "rules" else JSON
        path.write_bytes(text.encode())


def actions(host: Host, machine: Machine, *, out: bool = False, dry_run: bool = False) -> set[str]:
    if out:
        changes = uninstall(host, machine, WANTED, dry_run=dry_run, purge=False)
    else:
        changes = install(host, machine, WANTED, dry_run=dry_run)
    return {change.action for change in changes} - {"absent"}


@every_host
def test_every_host_is_set_up_once_and_set_back_byte_for_byte(tmp_path: Path, machine: Machine, host: Host) -> None:
    furnish(machine, host)
    before = texts_below(tmp_path)
    assert actions(host, machine, dry_run=True) == {"changed"}
    assert texts_below(tmp_path) == before
    assert actions(host, machine) == {"changed"}
    kept = {path: text for path, text in texts_below(tmp_path).items() if not path.endswith(BACKUP)}
    assert all(kept[path] != text for path, text in before.items())
    (finding,) = [each for each in findings(machine, WANTED) if each.name == host.name]
    assert (finding.here, finding.state) == (True, "installed")
    assert actions(host, machine) == {"unchanged"}
    assert actions(host, machine, out=True) == {"restored"}
    assert texts_below(tmp_path) == before


@every_host
def test_files_made_for_a_host_leave_with_it(tmp_path: Path, machine: Machine, host: Host) -> None:
    install(host, machine, replace(WANTED, parts=frozenset({"server"})), dry_run=False)
    install(host, machine, replace(WANTED, shared=True), dry_run=False)
    assert texts_below(tmp_path)
    assert actions(host, machine, out=True) == {"deleted"}
    assert texts_below(tmp_path) == {}


@every_host
def test_project_is_set_up_in_its_own_folder_alone(tmp_path: Path, machine: Machine, host: Host) -> None:
    project = tmp_path / "项目"
    project.mkdir()
    wanted = replace(WANTED, project=project)
    if host.has_projects:
        install(host, machine, wanted, dry_run=False)
        assert all(path.startswith("项目") for path in texts_below(tmp_path))
        uninstall(host, machine, wanted, dry_run=False, purge=False)
    assert list(project.iterdir()) == []


def test_what_others_changed_since_stays_and_only_ours_leaves(machine: Machine) -> None:
    host = host_named("gemini-cli")
    furnish(machine, host)
    install(host, machine, WANTED, dry_run=False)
    settings, rules = (path for path, _ in plan(host, machine, WANTED))
    other = {"type": "command", "command": "echo 别动"}
    document = jsonc.read(settings.read_text(encoding="utf-8"))
    document["mcpServers"]["theirs"] = {"command": "y"}
    document["hooks"]["SessionStart"][1]["hooks"].append(other)
    settings.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    rules.write_bytes(rules.read_bytes() + b"More of mine.\r\n")
    assert actions(host, machine, out=True) == {"changed"}
    assert json.loads(settings.read_text(encoding="utf-8")) == {
        "theme": "dark",
        "hooks": {
            "SessionStart": [{"hooks": [{"type": "command", "command": "date"}]}, {"hooks": [other]}],
        },
        "mcpServers": {"theirs": {"command": "y"}},
    }
    assert rules.read_bytes() == RULES.encode() + b"\r\nMore of mine.\r\n"
    assert backup_of(settings).read_bytes() == JSON.encode()
    uninstall(host, machine, WANTED, dry_run=False, purge=True)
    assert not backup_of(settings).exists()


def test_options_of_the_entry_may_change_and_what_was_added_to_it_stays(machine: Machine) -> None:
    host = host_named("cline")
    install(host, machine, WANTED, dry_run=False)
    path, _ = plan(host, machine, WANTED)[0]
    added = jsonc.put(path.read_text(encoding="utf-8"), ("mcpServers", "runebook", "autoApprove"), ["find"])
    path.write_text(added, encoding="utf-8")
    shared = replace(WANTED, shared=True)
    (finding,) = [each for each in findings(machine, shared) if each.name == host.name]
    assert finding.state == "outdated"
    install(host, machine, shared, dry_run=False)
    assert json.loads(path.read_text(encoding="utf-8"))["mcpServers"]["runebook"] == {
        "command": "/opt/venv/bin/runebook",
        "args": ["serve", "--shared"],
        "autoApprove": ["find"],
    }
    uninstall(host, machine, WANTED, dry_run=False, purge=False)
    assert not path.exists()


def test_entry_that_was_put_in_by_hand_is_ours_to_change_and_to_take_out(machine: Machine) -> None:
    host = host_named("cursor")
    path, _ = plan(host, machine, WANTED)[0]
    path.parent.mkdir(parents=True)
    hand = {"mcpServers": {"runebook": {"command": "runebook", "args": ["serve"]}, "x": {"command": "y"}}}
    path.write_text(json.dumps(hand), encoding="utf-8")
    install(host, machine, WANTED, dry_run=False)
    uninstall(host, machine, WANTED, dry_run=False, purge=False)
    assert json.loads(path.read_text(encoding="utf-8")) == {"mcpServers": {"x": {"command": "y"}}}


def test_backup_is_the_file_before_runebook_however_often_it_is_installed(machine: Machine) -> None:
    host = host_named("windsurf")
    furnish(machine, host)
    install(host, machine, WANTED, dry_run=False)
    path = plan(host, machine, WANTED)[0][0]
    path.write_text(jsonc.put(path.read_text(encoding="utf-8"), ("theme",), "亮"), encoding="utf-8")
    install(host, machine, replace(WANTED, shared=True), dry_run=False)
    assert backup_of(path).read_bytes() == JSON.encode()


def test_only_the_edition_of_a_host_that_is_there_gets_files(machine: Machine) -> None:
    folder = Path(machine.home) / ".config" / "VSCodium" / "User"
    folder.mkdir(parents=True)
    assert [path for path, _ in plan(host_named("vscode"), machine, WANTED)] == [
        folder / "mcp.json",
        folder / "prompts" / "runebook.instructions.md",
    ]


def test_hosts_without_a_file_for_rules_say_where_to_paste_them(machine: Machine) -> None:
    (pasting,) = by_hand(host_named("claude-desktop"), machine, WANTED)
    assert "personal preferences" in pasting.where
    assert "commit_memory" in pasting.text
    assert "记住" in pasting.text
    assert by_hand(host_named("codex"), machine, WANTED) == []


@pytest.mark.parametrize(
    ("program", "started", "windows"),
    [
        ("bin/runebook", "/elsewhere/pytest", False),
        ("Scripts/runebook.exe", "Scripts/runebook", True),
        ("Scripts/runebook.exe", "C:/python/python.exe", True),
    ],
)
def test_program_beside_its_python_is_named_by_its_full_path(
    tmp_path: Path, program: str, started: str, windows: bool
) -> None:
    path = tmp_path / program
    path.parent.mkdir()
    path.touch()
    found = launcher(program=str(tmp_path / started), prefix=str(tmp_path), windows=windows)
    assert (found.command, found.prefix) == (str(path), ())


def test_link_of_an_installer_is_named_rather_than_what_it_points_to(tmp_path: Path) -> None:
    stored = tmp_path / "venv" / "bin" / "runebook"
    link = tmp_path / "local" / "runebook"
    for path in (stored, link):
        path.parent.mkdir(parents=True)
    stored.touch()
    link.symlink_to(stored)
    assert launcher(program=str(link), prefix=str(tmp_path / "venv"), windows=False).command == str(link)


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
    assert (Path(found.command).name, found.prefix) == (name, rest)


def test_without_a_program_python_starts_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(tmp_path))
    found = launcher(program="pytest", prefix=str(tmp_path), windows=False)
    assert (found.command, found.prefix) == (sys.executable, ("-P", "-m", "server.cli"))


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
        (
            Launcher("/usr/bin/python3", ("-P", "-m", "server.cli")),
            "/usr/bin/python3 -P -m server.cli hook session-start",
        ),
    ],
)
def test_hook_lines_are_quoted_for_any_shell_and_known_again(launched: Launcher, line: str) -> None:
    assert launched.command_line("hook", "session-start") == line
    assert hooked(line)
    assert starts_us({"command": launched.command, "args": [*launched.prefix, "serve"]})


@pytest.mark.parametrize("word", ["/opt/$cash/runebook", "/opt/a`b/runebook", '/opt/a"b/runebook'])
def test_no_hook_is_put_in_that_a_shell_would_read_as_another(machine: Machine, word: str) -> None:
    host = next(host for host in hosts() if host.settings(machine, None).hooks is not None)
    for wanted in (replace(WANTED, launcher=Launcher(word)), replace(WANTED, options=(f"--home={word}",))):
        with pytest.raises(InvalidInput, match="a hook cannot name"):
            install(host, machine, wanted, dry_run=True)
        install(host, machine, replace(wanted, parts=frozenset({"server"})), dry_run=True)
        uninstall(host, machine, wanted, dry_run=True, purge=False)


@pytest.mark.parametrize("line", ["date", "my-runebook-like hook x", "echo runebook", "/x/runebook find y"])
def test_command_lines_of_others_are_not_taken_for_hooks(line: str) -> None:
    assert not hooked(line)
    assert not starts_us({"command": line, "args": ["serve.js"]})


def _expect_refused(host: Host, machine: Machine, wanted: Wanted, mine: Path, *, dry_run: bool) -> None:
    """Neither setting a host up nor taking that back follows the links to ``mine``."""
    for changes in (
        install(host, machine, wanted, dry_run=dry_run),
        uninstall(host, machine, wanted, dry_run=dry_run, purge=True),
    ):
        assert {change.action for change in changes} == {"refused"}
        assert all(str(mine) in change.reason for change in changes)


@pytest.mark.parametrize("linked", ["file", "folder"])
@pytest.mark.parametrize("dry_run", [True, False])
def test_links_of_a_project_lead_nowhere_else(machine: Machine, tmp_path: Path, linked: str, dry_run: bool) -> None:
    mine, project = tmp_path / "mine", tmp_path / "project"
    for folder in (mine, project):
        folder.mkdir()
    host = next(host for host in hosts() if host.has_projects)
    wanted = replace(WANTED, project=project)
    for path, edits in plan(host, machine, wanted):
        inside = path.relative_to(project)
        own = mine / inside
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_text("# Mine\n" if edits[0].what == "rules" else "{}", encoding="utf-8")
        link, target = (
            (path, own)
            if linked == "file" or len(inside.parts) == 1
            else (
                project / inside.parts[0],
                mine / inside.parts[0],
            )
        )
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(target)
    before = texts_below(mine)
    _expect_refused(host, machine, wanted, mine, dry_run=dry_run)
    assert texts_below(mine) == before


def test_surroundings_that_a_project_brings_for_the_server_are_refused_and_other_members_stay(
    machine: Machine, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    host = next(host for host in hosts() if host.name == "claude-code")
    wanted = replace(WANTED, project=project)
    install(host, machine, wanted, dry_run=False)
    settings = project / ".mcp.json"
    for member, value, action in (("timeout", 60, "unchanged"), ("env", {"PYTHONPATH": "./evil"}, "refused")):
        held = json.loads(settings.read_text(encoding="utf-8"))
        held["mcpServers"]["runebook"][member] = value
        settings.write_text(json.dumps(held), encoding="utf-8")
        (change,) = (each for each in install(host, machine, wanted, dry_run=False) if each.path == settings)
        assert change.action == action
    assert "env" in change.reason


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_backup_that_a_project_brings_leads_nowhere_else(machine: Machine, tmp_path: Path, dry_run: bool) -> None:
    mine, project = tmp_path / "mine.json", tmp_path / "project"
    mine.write_text('{"token": "mine"}', encoding="utf-8")
    host = next(host for host in hosts() if host.has_projects)
    wanted = replace(WANTED, project=project)
    install(host, machine, wanted, dry_run=False)
    paths = [path for path, _ in plan(host, machine, wanted)]
    for path in paths:
        backup_of(path).unlink(missing_ok=True)
        backup_of(path).symlink_to(mine)
    before = texts_below(tmp_path)
    _expect_refused(host, machine, wanted, mine, dry_run=dry_run)
    assert texts_below(tmp_path) == before
    assert all(backup_of(path).is_symlink() for path in paths)


def test_links_within_a_project_are_followed(machine: Machine, tmp_path: Path) -> None:
    host = next(host for host in hosts() if host.has_projects)
    wanted = replace(WANTED, project=tmp_path)
    for path, _ in plan(host, machine, wanted):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(tmp_path / f"real-{path.name}")
    assert {change.action for change in install(host, machine, wanted, dry_run=False)} == {"created"}
    assert all(path.is_symlink() for path, _ in plan(host, machine, wanted))
