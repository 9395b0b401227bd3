"""The table of hosts: their files on every platform."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest

from memory_core.core.errors import InvalidInput
from server.hosts.host_table import Machine, host_named, hosts, hosts_here, hosts_named

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
        (replace(MAC, environment={"CLINE_MCP_SETTINGS_PATH": "/cl/s.json"}), "cline", "/cl/s.json"),
        (WINDOWS, "gemini-cli", r"C:\Users\小林\.gemini\settings.json"),
        (LINUX, "codex", "/cx/config.toml"),
        (MAC, "codex", "/Users/lin/.codex/config.toml"),
        (WINDOWS, "continue", r"C:\Users\小林\.continue\mcpServers\runebook.json"),
        (replace(MAC, environment={"CLAUDE_CONFIG_DIR": "/cc"}), "claude-code", "/cc/.claude.json"),
        (replace(MAC, environment={"CLAUDE_CONFIG_DIR": ""}), "claude-code", "/Users/lin/.claude.json"),
    ],
)
def test_each_platform_has_its_paths(machine: Machine, name: str, path: str) -> None:
    assert str(host_named(name).settings(machine).server.paths[0]) == path


def test_packaged_claude_desktop_has_a_folder_of_its_own() -> None:
    packaged = host_named("claude-desktop").settings(WINDOWS).server.paths[1]
    assert packaged.parts[-5:-1] == ("Claude_pzs8sxrjxfjjc", "LocalCache", "Roaming", "Claude")


def test_host_with_hooks_in_a_project_has_them_for_the_user_too() -> None:
    for host in hosts():
        if host.has_projects:
            of_user, of_project = host.settings(LINUX).hooks, host.settings(LINUX, PurePosixPath("/p")).hooks
            assert (of_user is None) == (of_project is None), host.name


def test_only_hosts_whose_folders_are_there_are_found(tmp_path: Path) -> None:
    machine = Machine("linux", tmp_path, {})
    assert hosts_here(machine) == []
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".config" / "VSCodium" / "User").mkdir(parents=True)
    assert [host.name for host in hosts_here(machine)] == ["vscode", "codex"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Claude Code, Cursor", ["claude-code", "cursor"]),
        ("claude code", ["claude-code"]),
        ("CLAUDE-DESKTOP claude_code  vs code", ["claude-desktop", "claude-code", "vscode"]),
        ("Visual Studio Code; Zed and gemini", ["vscode", "zed", "gemini-cli"]),
        ("cursor，Codex、continue和windsurf", ["cursor", "codex", "continue", "windsurf"]),
        ("cursor Cursor", ["cursor"]),
        (" none ", []),
        ("", []),
    ],
)
def test_hosts_are_named_as_people_write_them(text: str, names: list[str]) -> None:
    assert [host.name for host in hosts_named(text)] == names


def test_a_name_of_several_hosts_is_refused_with_them() -> None:
    with pytest.raises(InvalidInput, match=r"no host 'Claude'.*Did you mean claude-desktop or claude-code"):
        hosts_named("Cursor, Claude")
    with pytest.raises(InvalidInput, match="no host 'and-more'"):
        hosts_named("cursor and-more")
