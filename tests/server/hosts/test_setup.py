"""Hosts are set up and set back: every file, in every state that it may be found in."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest

from server.hosts import jsonc
from server.hosts.host_files import BACKUP, JsonServer, Rules, backup_of, put_in, take_out
from server.hosts.host_setup import (
    Wanted,
    by_hand,
    findings,
    host_named,
    hosts_here,
    install,
    place_of,
    plan,
    uninstall,
)
from server.hosts.host_table import HOSTS, Launcher, Machine

EVERYTHING = frozenset({"server", "rules", "hooks"})
WANTED = Wanted(Launcher("/opt/venv/bin/runebook"), parts=EVERYTHING)
JSON = """{
  // 我的
  "theme": "dark",
  "hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "date"}]}]},
}
"""
TOML = '# 我的\nmodel = "m"\n\n[mcp_servers.other]\ncommand = "x"'
RULES = "# Mine\r\n\r\nAlways answer in 中文."


def account(tmp_path: Path) -> Machine:
    return Machine("linux", tmp_path / "home", {})


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def furnish(machine: Machine, host_name: str) -> None:
    """Files as a person has them before Runebook comes."""
    for path, edits in plan(host_named(host_name), machine, WANTED):
        path.parent.mkdir(parents=True, exist_ok=True)
        text = TOML if path.suffix == ".toml" else RULES if edits[0].what == "rules" else JSON
        path.write_bytes(text.encode())


@pytest.mark.parametrize("name", [host.name for host in HOSTS])
def test_every_host_is_set_up_once_and_set_back_byte_for_byte(tmp_path: Path, name: str) -> None:
    machine, host = account(tmp_path), host_named(name)
    furnish(machine, name)
    before = files_below(tmp_path)
    assert {change.action for change in install(host, machine, WANTED, dry_run=True)} == {"changed"}
    assert files_below(tmp_path) == before
    assert {change.action for change in install(host, machine, WANTED, dry_run=False)} == {"changed"}
    kept = {path: text for path, text in files_below(tmp_path).items() if not path.endswith(BACKUP)}
    assert all(kept[path] != text for path, text in before.items())
    (finding,) = [each for each in findings(machine, WANTED) if each.host is host]
    assert (finding.here, finding.state) == (True, "installed")
    assert {change.action for change in install(host, machine, WANTED, dry_run=False)} == {"unchanged"}
    changes = uninstall(host, machine, WANTED, dry_run=False, purge=False)
    assert {change.action for change in changes} - {"absent"} == {"restored"}
    assert files_below(tmp_path) == before


@pytest.mark.parametrize("name", [host.name for host in HOSTS])
def test_files_made_for_a_host_leave_with_it(tmp_path: Path, name: str) -> None:
    machine, host = account(tmp_path), host_named(name)
    install(host, machine, replace(WANTED, parts=frozenset({"server"})), dry_run=False)
    install(host, machine, replace(WANTED, serve=("serve", "--shared")), dry_run=False)
    assert files_below(tmp_path)
    uninstall(host, machine, WANTED, dry_run=False, purge=False)
    assert files_below(tmp_path) == {}


@pytest.mark.parametrize("name", [host.name for host in HOSTS if host.of_project is not None])
def test_project_is_set_up_in_its_own_folder_alone(tmp_path: Path, name: str) -> None:
    machine, host = account(tmp_path), host_named(name)
    project = tmp_path / "项目"
    project.mkdir()
    wanted = replace(WANTED, project=project)
    install(host, machine, wanted, dry_run=False)
    assert all(path.startswith("项目") for path in files_below(tmp_path))
    uninstall(host, machine, wanted, dry_run=False, purge=False)
    assert list(project.iterdir()) == []


def test_what_others_changed_since_stays_and_only_ours_leaves(tmp_path: Path) -> None:
    machine, host = account(tmp_path), host_named("gemini-cli")
    furnish(machine, "gemini-cli")
    install(host, machine, WANTED, dry_run=False)
    settings, rules = (Path(path) for path, _ in plan(host, machine, WANTED))
    other = {"type": "command", "command": "echo 别动"}
    document = jsonc.read(settings.read_text(encoding="utf-8"))
    document["mcpServers"]["theirs"] = {"command": "y"}
    document["hooks"]["SessionStart"][1]["hooks"].append(other)
    settings.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    rules.write_bytes(rules.read_bytes() + b"More of mine.\r\n")
    changes = uninstall(host, machine, WANTED, dry_run=False, purge=False)
    assert [change.action for change in changes] == ["changed", "changed"]
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


def test_options_of_the_entry_may_change_and_what_was_added_to_it_stays(tmp_path: Path) -> None:
    machine, host = account(tmp_path), host_named("cline")
    install(host, machine, WANTED, dry_run=False)
    (path,) = [path for path, edits in plan(host, machine, WANTED) if edits[0].what == "server"]
    document = json.loads(path.read_text(encoding="utf-8"))
    document["mcpServers"]["runebook"]["autoApprove"] = ["find"]
    path.write_text(json.dumps(document), encoding="utf-8")
    shared = replace(WANTED, serve=("serve", "--shared"))
    (finding,) = [each for each in findings(machine, shared) if each.host is host]
    assert finding.state == "outdated"
    install(host, machine, shared, dry_run=False)
    entry = json.loads(path.read_text(encoding="utf-8"))["mcpServers"]["runebook"]
    assert entry == {
        "command": "/opt/venv/bin/runebook",
        "args": ["serve", "--shared"],
        "autoApprove": ["find"],
    }
    uninstall(host, machine, WANTED, dry_run=False, purge=False)
    assert not path.exists()


def test_server_of_another_program_with_our_name_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    theirs = {"mcpServers": {"runebook": {"command": "node", "args": ["runes.js"]}}}
    path.write_text(json.dumps(theirs), encoding="utf-8")
    edit = JsonServer(("mcpServers", "runebook"), {"command": "/opt/runebook", "args": ["serve"]})
    put_in(path, [edit], dry_run=False)
    path.write_text(path.read_text(encoding="utf-8") + "\n\n", encoding="utf-8")
    assert take_out(path, [edit], dry_run=False, purge=False).action == "changed"
    assert json.loads(path.read_text(encoding="utf-8")) == theirs


def test_entry_that_was_put_in_by_hand_is_ours_to_change_and_to_take_out(tmp_path: Path) -> None:
    machine, host = account(tmp_path), host_named("cursor")
    path, _ = plan(host, machine, WANTED)[0]
    path.parent.mkdir(parents=True)
    hand = {"mcpServers": {"runebook": {"command": "runebook", "args": ["serve"]}, "x": {"command": "y"}}}
    path.write_text(json.dumps(hand), encoding="utf-8")
    install(host, machine, WANTED, dry_run=False)
    uninstall(host, machine, WANTED, dry_run=False, purge=False)
    assert json.loads(path.read_text(encoding="utf-8")) == {"mcpServers": {"x": {"command": "y"}}}


@pytest.mark.parametrize("content", [b"{ not json", b'{"mcpServers": 7}', b"\xff\xfe{\x00}\x00"])
def test_file_that_cannot_be_read_is_left_alone(tmp_path: Path, content: bytes) -> None:
    machine, host = account(tmp_path), host_named("claude-code")
    listing = tmp_path / "home" / ".claude.json"
    listing.parent.mkdir()
    listing.write_bytes(content)
    actions = {change.path.name: change.action for change in install(host, machine, WANTED, dry_run=False)}
    assert actions == {".claude.json": "refused", "settings.json": "created", "CLAUDE.md": "created"}
    assert listing.read_bytes() == content
    assert not backup_of(listing).exists()


def test_file_that_changes_while_it_is_edited_is_left_to_the_other_program(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{}", encoding="utf-8")

    class Meanwhile(Rules):
        def applied(self, text: str) -> str:
            path.write_text('{"saved": "meanwhile"}', encoding="utf-8")
            return f"{text} "

    change = put_in(path, [Meanwhile("x")], dry_run=False)
    assert change.action == "refused"
    assert "Run the same command again" in change.reason
    assert path.read_text(encoding="utf-8") == '{"saved": "meanwhile"}'


def test_link_stays_a_link_and_the_file_keeps_its_mode(tmp_path: Path) -> None:
    machine, host = account(tmp_path), host_named("cursor")
    path, _ = plan(host, machine, WANTED)[0]
    stored = tmp_path / "dotfiles" / "cursor.json"
    stored.parent.mkdir()
    path.parent.mkdir(parents=True)
    stored.write_text("{}\n", encoding="utf-8")
    stored.chmod(0o640)
    path.symlink_to(stored)
    install(host, machine, WANTED, dry_run=False)
    assert path.is_symlink()
    assert "runebook" in stored.read_text(encoding="utf-8")
    assert stat.S_IMODE(stored.stat().st_mode) == 0o640
    uninstall(host, machine, WANTED, dry_run=False, purge=False)
    assert path.is_symlink()
    assert stored.read_text(encoding="utf-8") == "{}\n"


def test_hosts_without_a_file_for_rules_say_where_to_paste_them(tmp_path: Path) -> None:
    machine = account(tmp_path)
    (pasting,) = by_hand(host_named("claude-desktop"), machine, WANTED)
    assert "personal preferences" in pasting.where
    assert "commit_memory" in pasting.text
    assert "记住" in pasting.text
    assert by_hand(host_named("codex"), machine, WANTED) == []


def test_host_with_hooks_in_a_project_has_them_for_the_user_too(tmp_path: Path) -> None:
    machine = account(tmp_path)
    assert machine.home / ".codex" / "hooks.json" in [path for path, _ in plan(host_named("codex"), machine, WANTED)]
    for host in HOSTS:
        if host.of_project is not None:
            of_user, of_project = host.of_user(machine).hooks, host.of_project(tmp_path).hooks
            assert (of_user is None) == (of_project is None), host.name


def test_only_hosts_whose_folders_are_there_are_found(tmp_path: Path) -> None:
    machine = account(tmp_path)
    assert hosts_here(machine) == []
    (tmp_path / "home" / ".codex").mkdir(parents=True)
    (tmp_path / "home" / ".config" / "VSCodium" / "User").mkdir(parents=True)
    assert [host.name for host in hosts_here(machine)] == ["vscode", "codex"]
    folder = tmp_path / "home" / ".config" / "VSCodium" / "User"
    assert [path for path, _ in plan(host_named("vscode"), machine, WANTED)] == [
        folder / "mcp.json",
        folder / "prompts" / "runebook.instructions.md",
    ]


WINDOWS = Machine("win32", PureWindowsPath(r"C:\Users\小林"), {"APPDATA": r"D:\Roaming"})
MAC = Machine("darwin", PurePosixPath("/Users/lin"), {})
LINUX = Machine("linux", PurePosixPath("/home/lin"), {"XDG_CONFIG_HOME": "/cfg", "CODEX_HOME": "/cx"})


@pytest.mark.parametrize(
    ("machine", "name", "path"),
    [
        (WINDOWS, "claude-desktop", r"D:\Roaming\Claude\claude_desktop_config.json"),
        (MAC, "claude-desktop", "/Users/lin/Library/Application Support/Claude/claude_desktop_config.json"),
        (LINUX, "claude-desktop", "/cfg/Claude/claude_desktop_config.json"),
        (WINDOWS, "claude-code", r"C:\Users\小林\.claude.json"),
        (WINDOWS, "cursor", r"C:\Users\小林\.cursor\mcp.json"),
        (WINDOWS, "vscode", r"D:\Roaming\Code\User\mcp.json"),
        (MAC, "vscode", "/Users/lin/Library/Application Support/Code/User/mcp.json"),
        (LINUX, "vscode", "/cfg/Code/User/mcp.json"),
        (WINDOWS, "windsurf", r"C:\Users\小林\.codeium\windsurf\mcp_config.json"),
        (WINDOWS, "zed", r"D:\Roaming\Zed\settings.json"),
        (MAC, "zed", "/Users/lin/.config/zed/settings.json"),
        (LINUX, "zed", "/cfg/zed/settings.json"),
        (MAC, "cline", "/Users/lin/.cline/data/settings/cline_mcp_settings.json"),
        (WINDOWS, "gemini-cli", r"C:\Users\小林\.gemini\settings.json"),
        (LINUX, "codex", "/cx/config.toml"),
        (MAC, "codex", "/Users/lin/.codex/config.toml"),
        (WINDOWS, "continue", r"C:\Users\小林\.continue\mcpServers\runebook.json"),
    ],
)
def test_each_platform_has_its_paths(machine: Machine, name: str, path: str) -> None:
    assert str(place_of(host_named(name), machine, None).server.paths[0]) == path


def test_packaged_claude_desktop_and_moved_claude_code_have_other_folders() -> None:
    packaged = place_of(host_named("claude-desktop"), WINDOWS, None).server.paths[1]
    assert packaged.parts[-5:-1] == ("Claude_pzs8sxrjxfjjc", "LocalCache", "Roaming", "Claude")
    moved = replace(MAC, environment={"CLAUDE_CONFIG_DIR": "/cc"})
    place = place_of(host_named("claude-code"), moved, None)
    assert [str(place.server.paths[0]), str(place.rules.paths[0]) if place.rules else ""] == [
        "/cc/.claude.json",
        "/cc/CLAUDE.md",
    ]


def test_backup_is_the_file_before_runebook_however_often_it_is_installed(tmp_path: Path) -> None:
    machine, host = account(tmp_path), host_named("windsurf")
    furnish(machine, "windsurf")
    install(host, machine, WANTED, dry_run=False)
    path = plan(host, machine, WANTED)[0][0]
    path.write_text(jsonc.set_member(path.read_text(encoding="utf-8"), ("theme",), "亮"), encoding="utf-8")
    install(host, machine, replace(WANTED, serve=("serve", "--shared")), dry_run=False)
    assert backup_of(path).read_bytes() == JSON.encode()
