"""``runebook doctor --host``: what a host's files name is started, and what fails is said with the next step."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.config import Config, EmbeddingConfig
from memory_core.runebook import open_memory
from server.cli import main

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="programs are made as scripts with a first line")


@pytest.fixture(autouse=True)
def home(account: Path) -> Path:
    """An account in which Claude Code was set up with everything."""
    options = ("--home", str(account / "记忆"), "--set", "embedding.provider=none", "--set", "hooks.deadline_ms=60000")
    assert main(["install", "claude-code", "--rules", "--hooks", *options]) == 0
    return account


def examined(capsys: pytest.CaptureFixture[str], *words: str, status: int) -> dict[str, list[dict[str, Any]]]:
    """The checks, by their names."""
    capsys.readouterr()
    assert main(["doctor", "--host", *words, "--json"]) == status
    told = json.loads(capsys.readouterr().out)
    assert told["clean"] == (status == 0)
    checks: dict[str, list[dict[str, Any]]] = {}
    for check in told["checks"]:
        checks.setdefault(check["name"], []).append(check)
    return checks


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def script(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]), encoding="utf-8")
    path.chmod(0o700)
    return path


def test_an_installed_host_is_run_from_end_to_end_and_nothing_is_stored(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = examined(capsys, "claude-code", status=0)
    assert list(checks) == ["configuration", "command", "server", "hooks", "rules"]
    assert {check["state"] for found in checks.values() for check in found} == {"ok"}
    assert "six tools" in checks["server"][0]["detail"]
    assert [check["subject"] for check in checks["hooks"]] == [
        *("SessionStart", "UserPromptSubmit", "PostToolUse", "PreCompact", "SessionEnd")
    ]
    assert main(["history", "--home", str(home / "记忆"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["commits"] == []
    with open_memory(Config(home=home / "记忆", embedding=EmbeddingConfig(provider="none"))) as memory:
        (client,) = memory.store.ledger.usage_table.clients()
    assert client[0].startswith("runebook-doctor")


def test_what_may_be_left_out_is_named_and_is_no_failure(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / ".claude" / "settings.json").unlink()
    (home / ".claude" / "CLAUDE.md").unlink()
    checks = examined(capsys, "claude-code", status=0)
    assert [checks[name][0]["state"] for name in ("server", "hooks", "rules")] == ["ok", "absent", "absent"]
    again = checks["hooks"][0]["next"]
    assert again.startswith("runebook install claude-code ")
    assert f"--home={home / '记忆'}" in again, "whoever follows it keeps the store"
    assert again.endswith("--hooks")


@pytest.mark.parametrize(
    ("line", "said"),
    [("", "there is no setting 'no.such'"), ("exit 3", "it does not start"), ("echo 'no room' >&2; exit 1", "no room")],
)
def test_a_server_that_does_not_start_says_why(
    line: str, said: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = "embedding.provider=none", "no.such=setting"
    if line:
        old = json.loads((home / ".claude.json").read_text(encoding="utf-8"))["mcpServers"]["runebook"]["command"]
        new = str(script(home / "runebook", line))
    change(home / ".claude.json", old, new)
    (server,) = examined(capsys, "claude-code", status=1)["server"]
    assert said in server["detail"]


def test_a_program_that_is_gone_is_found(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = json.loads((home / ".claude.json").read_text(encoding="utf-8"))["mcpServers"]["runebook"]
    change(home / ".claude.json", entry["command"], "/gone/runebook")
    checks = examined(capsys, "claude-code", status=1)
    assert (checks["command"][0]["state"], checks["command"][0]["subject"]) == ("failed", "/gone/runebook")
    assert "server" not in checks


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["serve", "--home", "/data 1"], " --home '/data 1'"),
        (["--home=/data", "serve"], " --home=/data"),
        (["--from", "/wheels/x.whl", "runebook", "serve", "--shared"], " --shared"),
    ],
)
def test_the_next_step_keeps_the_options_of_an_entry_written_by_hand(
    arguments: list[str], options: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = home / ".claude.json"
    entry = {"command": "/gone/runebook", "args": arguments}
    path.write_text(json.dumps({"mcpServers": {"runebook": entry}}), encoding="utf-8")
    (command,) = examined(capsys, "claude-code", status=1)["command"]
    assert command["next"] == f"runebook install claude-code{options}"


def hooked(home: Path, *lines: str) -> None:
    """Have a script answer the hooks."""
    path, program = home / ".claude" / "settings.json", script(home / "runebook", *lines)
    settings = json.loads(path.read_text(encoding="utf-8"))
    for groups in settings["hooks"].values():
        hook = groups[0]["hooks"][0]
        hook["command"] = f'"{program}" hook {hook["command"].split(" hook ")[1]}'
    path.write_text(json.dumps(settings, ensure_ascii=False), encoding="utf-8")


def test_a_hook_that_is_late_at_a_first_start_is_tried_again(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    once = f'[ -e "{home}/$2" ] || echo "runebook hook $2: too late: not answered" >&2; touch "{home}/$2"'
    hooked(home, once)
    assert {check["state"] for check in examined(capsys, "claude-code", status=0)["hooks"]} == {"ok"}
    hooked(home, 'case "$2" in user-prompt) echo "runebook hook user-prompt: too late: not answered" >&2;; esac')
    hooks = {check["subject"]: check["state"] for check in examined(capsys, "claude-code", status=1)["hooks"]}
    assert [name for name, state in hooks.items() if state == "failed"] == ["UserPromptSubmit"]


def test_a_hook_that_fails_is_found(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hooked(home, 'case "$2" in pre-compact) exit 4;; session-end) echo full >&2;; esac')
    hooks = {check["subject"]: check for check in examined(capsys, "claude-code", status=1)["hooks"]}
    assert [name for name, check in hooks.items() if check["state"] == "failed"] == ["PreCompact", "SessionEnd"]
    assert (hooks["PreCompact"]["detail"], hooks["SessionEnd"]["detail"]) == ("its exit status is 4.", "full")


def test_files_that_are_broken_or_name_no_server_are_found(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / ".claude.json").write_text("{ 坏", encoding="utf-8")
    broken, missing = examined(capsys, "claude-code", status=1)["configuration"]
    assert "is not JSON" in broken["detail"]
    assert missing["next"] == "runebook install claude-code"
    assert "does not list runebook" in examined(capsys, "cursor", status=1)["configuration"][0]["detail"]


def test_a_project_s_files_are_looked_at(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = home / "src"
    project.mkdir()
    assert main(["install", "cursor", "--project", str(project), "--set", "embedding.provider=none"]) == 0
    checks = examined(capsys, "cursor", "--project", str(project), "--set", "embedding.provider=none", status=0)
    assert checks["configuration"][0]["subject"] == str(project / ".cursor" / "mcp.json")
    assert checks["server"][0]["state"] == "ok"


def test_what_a_project_names_and_install_does_not_write_is_not_run(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project, ran = home / "src", home / "ran"
    options = ("--project", str(project), "--home", str(home / "记忆"), "--set", "hooks.deadline_ms=60000")
    (project / ".claude").mkdir(parents=True)
    assert main(["install", "claude-code", "--hooks", *options]) == 0
    checks = examined(capsys, "claude-code", *options, status=0)
    assert {check["state"] for check in (*checks["server"], *checks["hooks"])} == {"ok"}
    listed, settings = project / ".mcp.json", project / ".claude" / "settings.local.json"
    entry = json.loads(listed.read_text(encoding="utf-8"))
    ours = entry["mcpServers"]["runebook"]
    for hostile in (
        {**ours, "command": "sh", "args": ["-c", f"touch '{ran}'", "serve", "runebook"]},
        {**ours, "env": {"PYTHONPATH": str(project)}},
        {**ours, "args": [*ours["args"], f"--config={project}/config.json"]},
    ):
        listed.write_text(json.dumps({"mcpServers": {"runebook": hostile}}), encoding="utf-8")
        (check,) = examined(capsys, "claude-code", *options, status=1)["server"]
        assert "it was not run" in check["detail"]
        assert "--config" not in check["next"]
    change(settings, " hook session-start", f" hook session-start; touch '{ran}'")
    hooks = examined(capsys, "claude-code", *options, status=1)["hooks"]
    assert ["it was not run" in check["detail"] for check in hooks].count(True) == 1
    assert not ran.exists()


@pytest.mark.parametrize("held", ['["runebook hook", {"command": "runebook hook x"}]', '["x", null, 5]', "5", '"x"'])
def test_hooks_of_other_types_are_no_surprise(home: Path, capsys: pytest.CaptureFixture[str], held: str) -> None:
    text = f'{{"hooks": {{"SessionStart": [{{"hooks": {held}, "command": "runebook hook x"}}]}}}}'
    (home / ".claude" / "settings.json").write_text(text, encoding="utf-8")
    assert main(["doctor", "--host", "claude-code"]) in (0, 1)
    assert "Claude Code" in capsys.readouterr().out


def test_a_host_that_is_not_known_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--host", "emacs"]) == 1
    assert "there is no host 'emacs'" in capsys.readouterr().err
