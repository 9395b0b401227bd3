"""``runebook import`` over exports of ours and other programs: what it prints, and with which status it ends."""

from __future__ import annotations

import json
from pathlib import Path

from memory_core.core.memory.requests import CommitRequest
from tests.features.imports import foreign
from tests.features.moving import exported, opened
from tests.kept import kept_files as files
from tests.server.command_line import Run


def test_a_preview_then_an_import_then_nothing_new(home: Path, tmp_path: Path, run: Run) -> None:
    folder = foreign.vibeworker_v1(tmp_path / "v1")
    status, told, _ = run("import", str(folder), "--dry-run")
    assert status == 0
    assert "preferences: 1 would be created" in told
    assert files(home) == {}
    status, told, _ = run("import", str(folder))
    assert status == 0
    assert "renamed to MEMORY.md.migrated" in told
    assert "Undo with: runebook undo" in told
    status, told, _ = run("import", str(folder))
    assert status == 0
    assert "vibeworker-v1: 0 created, 0 updated, 4 unchanged, 0 left out." in told


def test_what_was_left_out_is_named_and_the_status_says_so(home: Path, tmp_path: Path, run: Run) -> None:
    status, told, _ = run("import", str(foreign.claude(tmp_path / "data")))
    assert status == 1
    assert "left out: conversations.json[1]: it is no conversation" in told
    done = json.loads(run("import", str(tmp_path / "data"), "--json")[1])
    assert done["format"] == "claude"
    assert done["counts"]["conversations"] == {"unchanged": 1}
    assert files(home)


def test_a_space_and_a_project_can_be_named(home: Path, tmp_path: Path, run: Run) -> None:
    path = foreign.write(tmp_path / "memory.md", "## Known Facts\n- 地窖会进水\n")
    run("import", str(path), "--into", "ana/coder", "--project", "acme")
    [name] = [name for name in files(home) if "地窖" in name]
    assert name.startswith("user/ana/memories/facts/")
    assert b'"project": "acme"' in files(home)[name]


def test_an_export_of_ours_still_comes_in_and_options_that_would_do_nothing_are_refused(
    home: Path, tmp_path: Path, run: Run
) -> None:
    with opened(tmp_path / "other") as memory:
        memory.commit(CommitRequest("北京的会议改到周五", memory_type="facts"))
        archive = exported(memory, tmp_path / "a.zip")
    status, _, told = run("import", str(archive), "--extract")
    assert status == 1
    assert "--extract: not for an export of Runebook" in told
    assert run("import", str(archive), "--on-conflict", "both")[0] == 0
    assert any("北京的会议改到周五" in name for name in files(home))
    notes = foreign.write(tmp_path / "memory.md", "# A\nb\n")
    status, _, told = run("import", str(notes), "--partial")
    assert status == 1
    assert "--partial: not for memories of another program" in told


def test_extracting_without_a_model_is_refused_before_anything_is_stored(home: Path, tmp_path: Path, run: Run) -> None:
    status, _, told = run("import", str(foreign.chatgpt(tmp_path / "data")), "--extract")
    assert status == 1
    assert "no language model is configured" in told
    assert files(home) == {}


def test_an_unknown_file_is_told_every_format(home: Path, tmp_path: Path, run: Run) -> None:
    status, _, told = run("import", str(foreign.write(tmp_path / "a.csv", "a,b\n")))
    assert status == 1
    assert "claude-code" in told
    assert "memoryos" in told
    assert files(home) == {}
