"""Imports of what others exported, or what was stored before secrets were looked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memory_core.core.memory.requests import CommitRequest, ReadRequest
from memory_core.core.memory.trailer import split
from tests.features.moving import exported, imported, opened
from tests.stores import holding, said

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
PASSWORD = "kX9!vbQ2mz"
NOTES = "viking://user/default/memories/notes"


@pytest.fixture(params=["export.zip", "export.jsonl"])
def export(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """An export, with its history, of a store that kept everything."""
    with opened(tmp_path / "source", secrets="off") as source:
        source.commit(CommitRequest(f"deploy with {TOKEN}", fields={"title": "Deploy 部署"}, category=TOKEN))
        source.commit(CommitRequest("harmless", fields={"title": "Plain"}))
        call = {"id": "c", "function": {"name": "login", "arguments": {"password": PASSWORD}}}
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": f"数据库密码：{PASSWORD}"},
            {"role": "assistant", "content": "plain 普通", "tool_calls": [call]},
            {"role": "user", "content": "thanks 谢谢"},
        ]
        source.commit(CommitRequest(messages=messages, session_id="s"))
        return exported(source, tmp_path / request.param, history=True)


@pytest.mark.parametrize("secrets", ["redact", "refuse"])
def test_import_stores_no_secret_and_says_where_there_was_one(tmp_path: Path, export: Path, secrets: str) -> None:
    home = tmp_path / "target"
    with opened(home, secrets=secrets) as target:
        done = imported(target, export)
        assert done.history == 0
        assert any("history was left out" in note for note in done.notes)
        assert any("GitHub token" in note and "Deploy 部署" in note for note in done.notes)
        assert not any(word in note for note in done.notes for word in (TOKEN, PASSWORD))
        deploy = split(target.read(ReadRequest(f"{NOTES}/Deploy 部署.md")).content)
        assert "[redacted: GitHub token]" in deploy.body
        assert deploy.trailer is not None
        log = target.read(ReadRequest("viking://session/default/s/messages.jsonl")).content
        assert log.count("[redacted: password]") == 2
        assert "thanks 谢谢" in log
        assert target.read(ReadRequest(f"{NOTES}/Plain.md")).content.startswith("harmless")
        again = imported(target, export)
        assert again.created == again.updated == []
        assert again.commits == []
        assert not again.kept
        assert holding(home, TOKEN, PASSWORD) == []
    assert holding(home, TOKEN, PASSWORD) == []


@pytest.mark.parametrize("secrets", ["warn", "off"])
def test_the_owner_can_import_everything_as_it_is(tmp_path: Path, export: Path, secrets: str) -> None:
    with opened(tmp_path / "target", secrets=secrets) as target:
        done = imported(target, export)
        assert done.history == 3
        assert TOKEN in target.read(ReadRequest(f"{NOTES}/Deploy 部署.md")).content
        assert any("GitHub token" in note for note in done.notes) is (secrets == "warn")


def test_file_whose_name_is_a_secret_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "source", secrets="off") as source:
        for title in (TOKEN, f"Key **{TOKEN}**"):
            source.commit(CommitRequest("x", fields={"title": title}))
        said(source, "hello", session_id=TOKEN)
        export = exported(source, tmp_path / "export.zip")
    with opened(tmp_path / "target") as target:
        done = imported(target, export)
        assert {problem.reason for problem in done.refused} == {
            "its name holds what looks like a secret (GitHub token)"
        }
        assert (len(done.refused), done.created) == (3, [])
    assert holding(tmp_path / "target", TOKEN, PASSWORD) == []
