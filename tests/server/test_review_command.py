"""``runebook review edit``: in an editor or by a given text; nothing that a person wrote is lost."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.llm.client import ScriptedLLM
from memory_core.core.memory.requests import CommitRequest
from memory_core.runebook import open_memory
from tests.server.command_line import Run, facts, set_editor
from tests.stores import edit, words_only, write

FACTS = "viking://user/default/memories/facts"


def propose(home: Path, operations: dict[str, Any], said: str = "The cup broke.") -> None:
    """Have a model propose operations, which wait for review."""
    answer = json.dumps({"reasoning": "said", "operations": operations})
    with open_memory(words_only(home, review="automatic"), llm=ScriptedLLM([answer] * 3)) as memory:
        memory.commit(CommitRequest("The cup is blue.", memory_type="facts", fields={"topic": "Cup"}))
        memory.commit(CommitRequest(messages=[{"role": "user", "content": said}], session_id="s1"))


def waiting(run: Run) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = facts(run("review", "--json"))["waiting"]
    return found


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where copies for the editor are made."""
    folder = tmp_path / "copies"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


WRITE = {"write_operations": [write("facts", topic="Tea", content="Green tea.")]}


def test_a_proposal_is_worded_in_an_editor_whose_own_files_go(
    run: Run, home: Path, tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    propose(home, WRITE)
    (proposal,) = waiting(run)
    lines = "file.with_name('proposal.md~').write_text('old')\nfile.write_bytes(b'White tea.\\r\\nNo milk.\\r\\n')"
    set_editor(tmp_path, monkeypatch, lines)
    assert run("review", "edit", proposal["id"])[0] == 0
    assert waiting(run)[0]["texts"] == {"content": "White tea.\nNo milk."}
    assert list(copies.iterdir()) == []


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("file.write_bytes(b'White tea\\xff')", "Save it as UTF-8"),
        ("file.write_text('White tea'); sys.exit(1)", "the editor failed"),
    ],
)
def test_what_a_person_wrote_is_kept_where_it_cannot_be_taken(
    run: Run, home: Path, tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch, lines: str, said: str
) -> None:
    propose(home, WRITE)
    (proposal,) = waiting(run)
    set_editor(tmp_path, monkeypatch, lines)
    status, _, err = run("review", "edit", proposal["id"])
    assert status == 1
    assert said in err
    (copy,) = copies.rglob("proposal.md")
    assert f"is kept in {copy}" in err
    assert copy.read_bytes().startswith(b"White tea")


def test_a_copy_that_is_gone_is_not_said_to_be_kept(
    run: Run, home: Path, tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    propose(home, WRITE)
    set_editor(tmp_path, monkeypatch, "file.unlink()")
    status, _, err = run("review", "edit", waiting(run)[0]["id"])
    assert status == 1
    assert "cannot be read" in err
    assert str(copies) not in err.partition("Next:")[2]


def test_words_for_a_proposal_that_was_decided_meanwhile_are_kept(
    run: Run, home: Path, tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    propose(home, WRITE)
    (proposal,) = waiting(run)
    reject = [sys.executable, "-m", "server.cli", "review", "reject", proposal["id"], "--home", str(home)]
    lines = f"subprocess.run({reject!r}, check=True)\nfile.write_text('White tea.')"
    set_editor(tmp_path, monkeypatch, lines)
    status, _, err = run("review", "edit", proposal["id"])
    assert status == 1
    (copy,) = copies.rglob("proposal.md")
    assert f"is kept in {copy}" in err
    assert copy.read_text(encoding="utf-8") == "White tea."


def test_words_for_a_proposal_that_somebody_edited_meanwhile_are_kept(
    run: Run, home: Path, tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    propose(home, WRITE)
    (proposal,) = waiting(run)
    given = ["review", "edit", proposal["id"], "--text", "Black tea.", "--home", str(home)]
    lines = (
        f"subprocess.run({[sys.executable, '-m', 'server.cli', *given]!r}, check=True)\nfile.write_text('White tea.')"
    )
    set_editor(tmp_path, monkeypatch, lines)
    status, _, err = run("review", "edit", proposal["id"])
    assert status == 1
    (copy,) = copies.rglob("proposal.md")
    assert f"is kept in {copy}" in err
    assert copy.read_text(encoding="utf-8") == "White tea."
    assert waiting(run)[0]["texts"] == {"content": "Black tea."}


@pytest.mark.parametrize("there", [False, True])
def test_what_somebody_wrote_while_the_editor_was_open_is_not_overwritten(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    change = {"edit_operations": [edit(f"{FACTS}/Cup.md", content="The cup is broken.")]}
    propose(home, change if there else WRITE)
    (proposal,) = waiting(run)
    given = ["commit", "Bob is allergic.", "--type", "facts", "--field", f"topic={'Cup' if there else 'Tea'}"]
    lines = (
        f"subprocess.run({[sys.executable, '-m', 'server.cli', *given, '--home', str(home)]!r}, check=True)\n"
        "file.write_text('It broke on Friday.')"
    )
    set_editor(tmp_path, monkeypatch, lines)
    status, out, _ = run("review", "edit", proposal["id"])
    assert status == 0
    assert "changed meanwhile" in out
    assert run("review", "accept", proposal["id"])[0] == 1
    assert waiting(run)[0]["texts"] == {"content": "It broke on Friday."}
    assert "Bob is allergic." in run("read", proposal["target"])[1]
    set_editor(tmp_path, monkeypatch, "file.write_text('It broke. Bob is allergic.')")
    assert "changed meanwhile" not in run("review", "edit", proposal["id"])[1]
    assert run("review", "accept", proposal["id"])[0] == 0
    assert "It broke. Bob is allergic." in run("read", proposal["target"])[1]


def test_for_what_stores_no_text_no_editor_is_opened(
    run: Run, home: Path, tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    propose(home, {"delete_operations": [{"uri": f"{FACTS}/Cup.md", "reason": "it broke"}]})
    (proposal,) = waiting(run)
    set_editor(tmp_path, monkeypatch, f"pathlib.Path({str(tmp_path / 'opened')!r}).touch()")
    status, _, err = run("review", "edit", proposal["id"])
    assert status == 1
    assert "stores no text" in err
    assert not (tmp_path / "opened").exists()
    assert list(copies.iterdir()) == []


def test_edit_has_no_dry_run(run: Run, home: Path) -> None:
    propose(home, WRITE)
    (proposal,) = waiting(run)
    status, _, err = run("review", "edit", proposal["id"], "--text", "White tea.", "--dry-run")
    assert status == 1
    assert "edit has no --dry-run" in err
    assert waiting(run) == [proposal]
