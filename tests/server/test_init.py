"""``runebook init``: asked or told, it shows what would change, then sets up hosts, settings and imports."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from server.cli import main
from tests.features.imports import foreign
from tests.server.terminal import Terminal, needs_terminal

CLAUDE_MD = "# 我的\n\n## Preferences\n\n- Answers in Chinese, please\n"
NOTES = "# Boat\n\nThe boat lies in Bergen.\n"


@pytest.fixture(autouse=True)
def home(account: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An account with Claude Code, Cursor, and an export of ChatGPT among its downloads."""
    (account / ".cursor").mkdir()
    foreign.write(account / ".claude" / "CLAUDE.md", CLAUDE_MD)
    foreign.claude_code(account / ".claude" / "projects")
    foreign.write(account / "notes" / "boat.md", NOTES)
    (account / "Downloads").mkdir()
    with zipfile.ZipFile(account / "Downloads" / "chat.zip", "w") as archive:
        archive.write(foreign.chatgpt(tmp_path / "chatgpt") / "conversations.json", "conversations.json")
    (account / "Downloads" / "broken.zip").write_bytes(b"PK\x03\x04 no zip")
    monkeypatch.setattr("sys.stdin", None)  # nobody is asked
    return account


def files(home: Path) -> dict[str, bytes]:
    """What is in the account, but for what readers of the store note by themselves."""
    found = (path for path in home.rglob("*") if path.is_file() and ".state" not in path.parts)
    return {path.relative_to(home).as_posix(): path.read_bytes() for path in found}


def facts(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict[str, Any]:
    assert main(["init", *words, "--json"]) == status
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def commits(capsys: pytest.CaptureFixture[str]) -> list[Any]:
    assert main(["history", "--json"]) == 0
    listed: list[Any] = json.loads(capsys.readouterr().out)["commits"]
    return listed


@pytest.mark.parametrize("words", [(), ("--dry-run",), ("--yes", "--dry-run")])
def test_nothing_is_written_before_the_preview_is_accepted(
    words: tuple[str, ...], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(home)
    told = facts(capsys, *words, "--language", "中文", "--import", str(home / "notes"))
    assert told["status"] == "preview"
    assert told["settings"]["changes"] == {"extraction.language": "中文"}
    assert [(Path(each["path"]).name, each["format"]) for each in told["imports"]] == [
        ("notes", "markdown"),
        ("projects", "claude-code"),
        ("CLAUDE.md", "markdown"),
        ("chat.zip", "chatgpt"),
    ]
    assert [host["host"] for host in told["hosts"]] == ["claude-code", "cursor"]
    assert files(home) == before
    assert not (home / ".runebook").exists()


def test_one_command_sets_everything_up_and_again_it_changes_nothing(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--yes", "--language", "中文", "--model", "openai:gpt-x", "--import", str(home / "notes"))
    told = facts(capsys, *words)
    assert told["status"] == "done"
    written = json.loads((home / ".runebook" / "config.json").read_text(encoding="utf-8"))
    assert written == {"extraction": {"language": "中文"}, "llm": {"provider": "openai", "model": "gpt-x"}}
    assert "runebook" in json.loads((home / ".claude.json").read_text(encoding="utf-8"))["mcpServers"]
    assert "SessionStart" in json.loads((home / ".claude" / "settings.json").read_text(encoding="utf-8"))["hooks"]
    assert "<!-- runebook:begin -->" in (home / ".claude" / "CLAUDE.md").read_text(encoding="utf-8")
    assert main(["find", "Where does the boat lie?"]) == 0
    assert "Bergen" in capsys.readouterr().out
    assert main(["find", "Answers in Chinese"]) == 0
    assert "preferences" in capsys.readouterr().out
    before, made = files(home), commits(capsys)
    again = facts(capsys, *words)
    assert again["status"] == "unchanged"
    assert (files(home), commits(capsys)) == (before, made)
    assert facts(capsys, "--yes", "--model", "none")["settings"]["changes"] == {"llm.provider": None, "llm.model": None}
    written = json.loads((home / ".runebook" / "config.json").read_text(encoding="utf-8"))
    assert written == {"extraction": {"language": "中文"}}


def test_rules_files_of_one_name_are_all_imported(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = {
        ".codex/AGENTS.md": "# Rules\n\n- Tests before code\n",
        ".config/zed/AGENTS.md": "# Rules\n\n- Tabs\n",
    }
    for place, text in texts.items():
        foreign.write(home / place, text)
    told = facts(capsys, "--yes", "--model", "none")
    found = {Path(each["path"]).relative_to(home).as_posix() for each in told["imports"] if "AGENTS" in each["path"]}
    assert found == set(texts)
    for words in ("Tests before code", "Tabs"):
        assert main(["find", words]) == 0
        assert words in capsys.readouterr().out


def test_where_no_host_is_found_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bare").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "bare"))
    assert main(["init", "--yes"]) == 0
    assert "No host was found" in capsys.readouterr().out


def test_a_model_is_named_as_people_write_it_and_none_changes_nothing(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = facts(capsys, "none", "--dry-run", "--no-find", "--model", "None")
    assert told["settings"]["changes"] == {}
    told = facts(capsys, "none", "--dry-run", "--no-find", "--model", "OpenAI: gpt-x")
    assert told["settings"]["changes"] == {"llm.provider": "openai", "llm.model": "gpt-x"}
    program = home / "bin" / "claude"
    foreign.write(program, "#!/bin/sh\n").chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(program.parent))
        told = facts(capsys, "none", "--dry-run", "--no-find", "--model", "Claude Code")
    assert told["settings"]["changes"] == {"llm.provider": "command", "llm.command": str(program)}


def test_the_command_line_says_what_is_left_alone(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = facts(capsys, "cursor", "--yes", "--no-find", "--no-hooks")
    assert (told["imports"], [host["host"] for host in told["hosts"]]) == ([], ["cursor"])
    assert not (home / ".cursor" / "hooks.json").exists()
    assert not (home / ".claude.json").exists()
    assert facts(capsys, "none", "--yes", "--no-find")["hosts"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["emacs"], "there is no host 'emacs'"),
        (["generic"], "runebook install generic"),
        (["--model", "openai"], "Write openai:MODEL"),
        (["--model", "codex"], "its program is not installed"),
        (["--import", "/nowhere/at/all"], "there is no file or folder"),
    ],
)
def test_an_answer_that_cannot_be_used_is_refused_before_anything_is_written(
    words: list[str], said: str, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(home))
    before = files(home)
    assert main(["init", "--yes", *words]) == 1
    assert said in capsys.readouterr().err
    assert files(home) == before


def test_an_export_of_runebook_is_sent_to_its_own_command(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["commit", "The ferry leaves at nine."]) == 0
    assert main(["export", str(home / "all.zip")]) == 0
    assert main(["init", "--yes", "--import", str(home / "all.zip")]) == 1
    assert f"Use: runebook import {home / 'all.zip'}" in capsys.readouterr().err


def test_a_host_s_file_that_cannot_be_read_is_left_and_said(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listing = foreign.write(home / ".cursor" / "mcp.json", "{ 坏")
    told = facts(capsys, "cursor", "--yes", "--no-find", status=1)
    assert "is not JSON" in told["hosts"][0]["changes"][0]["reason"]
    assert '"runebook": {' in told["hosts"][0]["paste"][1]["text"]
    assert listing.read_text(encoding="utf-8") == "{ 坏"


@needs_terminal
def test_a_person_is_asked_three_questions_sees_the_preview_and_adds_notes(home: Path) -> None:
    shutil.rmtree(home / ".claude")
    shutil.rmtree(home / "Downloads")
    with Terminal("init", "--no-open") as person:
        person.answers("[Cursor]", "vim")
        assert "writes nothing before you say yes" in person.shown
        person.answers("[Cursor]", "cursor, VS Code and visual studio code")
        person.answers("[auto]", "English")
        person.answers("[none]", "")
        person.answers("Do it?", str(home / "nowhere"))
        person.answers("Do it?", str(home / "notes"))
        person.answers("Do it?", "y")
        assert person.status() == 0, person.shown
    assert "there is no host 'vim'" in person.shown
    assert "there is no file or folder" in person.shown
    assert "notes: 1 would be created" in person.shown
    assert f"{home / '.cursor' / 'mcp.json'}: would be created: the server runebook, 10 lines more" in person.shown
    assert f"{home / '.cursor' / 'hooks.json'}: would be created: 4 hooks, 29 lines more" in person.shown
    assert (
        "For you to paste, into Cursor: Cursor Settings > Rules > User Rules. To see it: runebook install cursor"
        in person.shown
    )
    assert (home / ".config" / "Code" / "User" / "mcp.json").is_file()
    assert (home / ".cursor" / "mcp.json").is_file()
    assert NOTES.split("\n")[2] in "".join(path.read_text() for path in (home / ".runebook").rglob("notes/*.md"))


@needs_terminal
def test_names_of_files_and_answers_cannot_act_on_the_terminal(home: Path) -> None:
    notes = foreign.write(home / "notes" / "\x1b[2Jboat.md", NOTES)
    told = ("cursor", "--language", "auto", "--no-find", "--import", str(notes))
    with Terminal("init", "--no-open", *told) as person:
        person.answers("[none]", "\x1b[2Jmodel")
        person.answers("[none]", "none")
        person.answers("Do it?", "~nobody/\x1b[2Jx")
        person.answers("Do it?", "n")
        assert person.status() == 0
    assert "\x1b" not in person.shown
    assert "\\x1b[2Jboat.md" in person.shown
    assert "there is no file or folder" in person.shown


@pytest.mark.parametrize(
    "words", [("init", "--dry-run", "--import", "~nobody-here/x"), ("install", "cursor", "--project", "~nobody-here/x")]
)
def test_a_path_of_an_unknown_user_is_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 1
    assert "~nobody-here/x" in capsys.readouterr().err


@needs_terminal
def test_a_person_who_says_no_has_nothing_written(home: Path) -> None:
    before = files(home)
    with Terminal("init", "--no-open", "cursor", "--language", "auto", "--model", "none", "--no-find") as person:
        person.answers("Do it?", "n")
        assert person.status() == 0
    assert "Nothing was written." in person.shown
    assert files(home) == before
