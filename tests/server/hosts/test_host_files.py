"""Files of hosts in every state that they may be found in."""

from __future__ import annotations

import json
import stat
import time
from pathlib import Path

import pytest

from server.hosts.host_files import Edit, Hooks, Rules, Server, backup_of, put_in, take_out

SERVER = Server(("mcpServers", "runebook"), {"command": "/opt/runebook", "args": ["serve"]})
TOML_SERVER = Server(("mcp_servers", "runebook"), SERVER.entry, is_toml=True)


@pytest.mark.parametrize(
    ("edit", "theirs"),
    [
        (SERVER, '{"mcpServers": {"runebook": {"command": "node", "args": ["runes.js"]}}}'),
        (TOML_SERVER, '[mcp_servers.runebook]\ncommand = "node"\nargs = ["runes.js"]\n'),
    ],
    ids=["json", "toml"],
)
def test_server_of_another_program_with_our_name_comes_back(tmp_path: Path, edit: Edit, theirs: str) -> None:
    path = tmp_path / "settings"
    path.write_text(theirs, encoding="utf-8")
    put_in(path, [edit], dry_run=False)
    path.write_text(path.read_text(encoding="utf-8") + "\n\n", encoding="utf-8")
    assert take_out(path, [edit], dry_run=False, purge=False).action == "changed"
    assert path.read_text(encoding="utf-8").split() == theirs.split()


def test_hook_leaves_a_group_that_others_share_with_its_layout(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    hooks = Hooks((("Stop", {"hooks": [{"type": "command", "command": "/opt/runebook hook stop"}]}),))
    theirs = '{"hooks": {"Stop": [\n  {"matcher": "*", "hooks": [{"command": "date"}]} // 别动\n]}}\n'
    ours = theirs.replace('{"command": "date"}', '{"command": "date"}, {"command": "uvx runebook hook stop"}')
    path.write_text(ours, encoding="utf-8")
    assert take_out(path, [hooks], dry_run=False, purge=False).action == "changed"
    assert path.read_text(encoding="utf-8") == theirs


@pytest.mark.parametrize("content", [b"{ not json", b'{"mcpServers": 7}', b"\xff\xfe{\x00}\x00"])
def test_file_that_cannot_be_read_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mcp.json"
    path.write_bytes(content)
    assert put_in(path, [SERVER], dry_run=False).action == "refused"
    assert path.read_bytes() == content
    assert not backup_of(path).exists()


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
    path, stored = tmp_path / "mcp.json", tmp_path / "dotfiles" / "cursor.json"
    stored.parent.mkdir()
    stored.write_text("{}\n", encoding="utf-8")
    stored.chmod(0o640)
    path.symlink_to(stored)
    put_in(path, [SERVER], dry_run=False)
    assert path.is_symlink()
    assert json.loads(stored.read_text(encoding="utf-8"))["mcpServers"]["runebook"] == SERVER.entry
    assert stat.S_IMODE(stored.stat().st_mode) == 0o640
    take_out(path, [SERVER], dry_run=False, purge=False)
    assert path.is_symlink()
    assert stored.read_text(encoding="utf-8") == "{}\n"


def test_rules_that_begin_very_often_and_never_end_cost_seconds_at_most_and_stay(tmp_path: Path) -> None:
    path, theirs = tmp_path / "AGENTS.md", "# 我的\n" + "<!-- runebook:begin -->" * 20_000 + "\n"
    path.write_text(theirs, encoding="utf-8")
    started = time.process_time()
    assert put_in(path, [Rules("Remember.")], dry_run=False).action == "changed"
    assert put_in(path, [Rules("Remember.")], dry_run=False).action == "unchanged"
    assert take_out(path, [Rules("")], dry_run=False, purge=False).action in ("restored", "changed")
    assert time.process_time() - started < 10
    assert path.read_text(encoding="utf-8") == theirs


@pytest.mark.parametrize(
    ("above", "below", "rest"),
    [
        ("# T\n", "\nMore\n", "# T\nMore\n"),
        ("a\r\n", "\r\nb", "a\r\nb"),
        ("a\n\n", "\n", "a\n"),
        ("a\n\n", "\nmore\n", "a\nmore\n"),
        ("a\r\n\r\n", "\r\nmore\r\n", "a\r\nmore\r\n"),
    ],
)
def test_lines_around_the_rules_stay_lines(tmp_path: Path, above: str, below: str, rest: str) -> None:
    path = tmp_path / "CLAUDE.md"
    path.write_text(f"{above}{Rules('Remember.').pasted()}{below}", encoding="utf-8", newline="")
    assert take_out(path, [Rules("")], dry_run=False, purge=False).action == "changed"
    assert path.read_bytes() == rest.encode()
