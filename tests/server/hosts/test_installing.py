"""The commands install, uninstall and completion, as a person and as a script use them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from server.cli import main
from tests.server.terminal import Terminal, needs_terminal


@pytest.fixture(autouse=True)
def home(account: Path) -> Path:
    (account / ".cursor").mkdir()
    return account


def facts(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict[str, Any]:
    assert main([*words, "--json"]) == status
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def test_one_command_sets_a_host_up_and_one_sets_it_back(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (told,) = facts(capsys, "install", "cursor", "--shared", "--home", str(home / "记忆"))["hosts"]
    listing = home / ".cursor" / "mcp.json"
    assert [(change["path"], change["action"]) for change in told["changes"]] == [(str(listing), "created")]
    entry = json.loads(listing.read_text(encoding="utf-8"))["mcpServers"]["runebook"]
    assert Path(entry["command"]).is_absolute()
    assert entry["args"][-3:] == ["serve", "--shared", f"--home={home / '记忆'}"]
    (finding,) = [each for each in facts(capsys, "install", "--list")["hosts"] if each["found"]]
    assert (finding["host"], finding["state"], finding["parts"]) == ("cursor", "outdated", ["server"])
    (told,) = facts(capsys, "uninstall", "--all")["hosts"]
    assert [change["action"] for change in told["changes"]] == ["deleted"]
    assert not listing.exists()


def test_the_list_of_hosts_says_what_its_columns_are(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "Claude", "Code", "--rules"]) == 0
    capsys.readouterr()
    assert main(["install", "--list"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    for column, cells in (("HOST", "claude-code"), ("HERE", "found"), ("RUNEBOOK IN IT", "server, rules")):
        assert any(row[head.index(column) :].startswith(cells) for row in rows), column
    assert str(home / ".claude.json") in "\n".join(row[head.index("ITS LIST OF SERVERS") :] for row in rows)
    assert any("not set up" in row for row in rows)


def test_uninstall_says_which_rules_were_pasted_by_hand(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert home
    assert main(["install", "cursor", "--rules"]) == 0
    assert "Paste into Cursor: Cursor Settings > Rules > User Rules" in capsys.readouterr().out
    assert main(["uninstall", "cursor"]) == 0
    said = "If you pasted Runebook's rules into Cursor Settings > Rules > User Rules, remove them there"
    assert said in capsys.readouterr().out
    assert main(["uninstall", "cursor"]) == 0
    assert "pasted" not in capsys.readouterr().out
    assert main(["uninstall", "generic"]) == 0
    assert "remove by hand what you pasted" in capsys.readouterr().out


def test_nothing_but_the_server_goes_in_unasked(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "claude-code"]) == 0
    assert "Not added: --rules (tell its model to use the memory) and --hooks (bring" in capsys.readouterr().out
    assert [path.name for path in home.rglob("*") if path.is_file()] == [".claude.json"]


def test_home_of_this_shell_goes_along_as_hosts_do_not_see_it(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNEBOOK_HOME", str(home / "m"))
    facts(capsys, "install", "claude-code", "--hooks")
    settings = json.loads((home / ".claude" / "settings.json").read_text(encoding="utf-8"))
    (group,) = settings["hooks"]["SessionStart"]
    assert f'hook session-start --host=claude-code "--home={home}/m"' in group["hooks"][0]["command"]


def test_dry_run_shows_the_difference_and_writes_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listing = home / ".cursor" / "mcp.json"
    listing.write_text('{"mcpServers": {}}\n', encoding="utf-8")
    assert main(["install", "cursor", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "would be changed" in shown
    assert '+  "runebook": {' in shown
    assert listing.read_text(encoding="utf-8") == '{"mcpServers": {}}\n'
    assert [path.name for path in home.rglob("*") if path.is_file()] == ["mcp.json"]


def test_print_shows_what_to_paste_and_writes_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "codex", "generic", "--print", "--rules"]) == 0
    shown = capsys.readouterr().out
    assert "[mcp_servers.runebook]\ncommand = " in shown
    assert '"mcpServers": {' in shown
    assert "<!-- runebook:begin -->" in shown
    assert not [path for path in home.rglob("*") if path.is_file()]


def test_file_that_cannot_be_read_is_left_and_its_lines_are_printed(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listing = home / ".cursor" / "mcp.json"
    listing.write_text("{ 坏", encoding="utf-8")
    (told,) = facts(capsys, "install", "cursor", status=1)["hosts"]
    assert told["changes"][0]["action"] == "refused"
    assert "line 1 is not JSON" in told["changes"][0]["reason"]
    assert '"runebook"' in told["paste"][0]["text"]
    assert listing.read_text(encoding="utf-8") == "{ 坏"
    assert main(["install", "cursor", "zed"]) == 1
    shown = capsys.readouterr().out
    assert "Cursor Settings > MCP shows the server" not in shown
    assert "The Agent Panel's settings show the server" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["install"], "no host is named"),
        (["uninstall"], "or --all; runebook install --list shows"),
        (["install", "emacs"], "there is no host 'emacs'"),
        (["install", "windsurf", "--project", "."], "no settings of its own in a project"),
        (["install", "cursor", "--project", "/nowhere/at/all"], "is no folder"),
    ],
)
def test_command_line_that_names_nothing_usable_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 1
    assert said in capsys.readouterr().err


def test_a_host_s_own_program_makes_memories_if_that_is_asked_for(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program, store = installed(home, monkeypatch), home / "记忆"
    place = ("--home", str(store))
    assert main(["install", "claude-code", *place]) == 0
    said = capsys.readouterr().out
    assert "your plan, whose terms hold" in said
    assert "runebook install claude-code --memories" in said
    facts(capsys, "install", "claude-code", "--memories", "--dry-run", *place)
    assert not store.exists()
    store.mkdir()
    written = {"llm": {"model": "haiku"}, "user_space": "ana"}
    (store / "config.json").write_text(json.dumps(written), encoding="utf-8")
    assert facts(capsys, "install", "claude-code", "--memories", *place)["hosts"][0]["memories"] == "on"
    now = json.loads((store / "config.json").read_text(encoding="utf-8"))
    assert now == {"llm": {"model": "haiku", "provider": "command", "command": str(program)}, "user_space": "ana"}
    assert facts(capsys, "install", "codex", "--memories", *place)["hosts"][0]["memories"] == "other"
    assert "memories" not in facts(capsys, "uninstall", "codex", *place)["hosts"][0]
    assert facts(capsys, "uninstall", "claude-code", *place)["hosts"][0]["memories"] == "off"
    assert json.loads((store / "config.json").read_text(encoding="utf-8")) == written
    assert facts(capsys, "install", "codex", "--memories", *place)["hosts"][0]["memories"] == "missing"


def installed(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = home / "bin" / "claude"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return program


@needs_terminal
def test_person_at_a_terminal_is_asked_before_rules_and_hooks(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = installed(home, monkeypatch)
    with Terminal("install", "claude-code") as person:
        for answer in ("y", "n", "y"):
            person.answers("[y/N]", answer)
        assert person.status() == 0
    assert (home / ".claude" / "CLAUDE.md").is_file()
    assert not (home / ".claude" / "settings.json").exists()
    settings = json.loads((home / ".runebook" / "config.json").read_text(encoding="utf-8"))
    assert settings == {"llm": {"provider": "command", "command": str(program)}}


def test_bash_completes_commands_options_and_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "completion.bash"
    script.write_text(capsys.readouterr().out, encoding="utf-8")
    ask = """
    source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
    $(complete -p runebook | sed 's/.*-F \\([^ ]*\\).*/\\1/') runebook "${COMP_WORDS[COMP_CWORD]}" ""
    printf '%s\\n' "${COMPREPLY[@]}"
    """

    def completed(*words: str) -> set[str]:
        run = subprocess.run(
            ["bash", "-c", ask, "bash", str(script), *words], capture_output=True, text=True, check=True
        )
        assert run.stderr == ""
        return set(run.stdout.split())

    assert completed("runebook", "unin") == {"uninstall"}
    assert "--dry-run" in completed("runebook", "install", "--dry")
    assert completed("runebook", "install", "claude-") == {"claude-code", "claude-desktop"}
    assert completed("runebook", "serve", "--transport", "s") == {"stdio", "sse"}


@pytest.mark.parametrize("shell", ["zsh", "tcsh", "fish"])
def test_other_shells_have_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "uninstall" in capsys.readouterr().out
