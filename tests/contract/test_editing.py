"""``runebook edit`` on a folder and on PostgreSQL, with a program in place of the editor."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from memory_core.core.memory.requests import CommitRequest, ReadRequest
from server.cli import main
from tests.contract.conftest import Place
from tests.server.command_line import set_editor
from tests.stores import remember


def options(place: Place) -> list[str]:
    return ["--home", str(place.home), "--set", f"store.url={place.url}", "--set", "embedding.provider=none"]


REPLACE = "file.write_text(file.read_text('utf-8').replace('blue', 'green'), 'utf-8')"


def test_an_edit_is_stored_told_and_taken_back(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = place.open()
    uri = remember(memory, "The key is blue. 钥匙在花盆下。", "notes", title="key")
    set_editor(tmp_path, monkeypatch, REPLACE)
    assert main(["edit", uri, *options(place)]) == 0
    out = capsys.readouterr().out
    assert "+The key is green. 钥匙在花盆下。" in out
    assert memory.read(ReadRequest(uri)).content.startswith("The key is green. ")
    undo = out.splitlines()[-1].removeprefix("Undo with: runebook ").split()
    assert main([*undo, *options(place)]) == 0
    assert memory.read(ReadRequest(uri)).content.startswith("The key is blue. ")


def test_an_edit_without_a_change_stores_nothing(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = place.open()
    uri = remember(memory, "The key is blue.", "notes", title="key")
    set_editor(tmp_path, monkeypatch, "pass")
    newest = memory.store.ledger.newest_seq()
    assert main(["edit", uri, *options(place)]) == 0
    assert capsys.readouterr().out.startswith("Nothing was changed.")
    assert main(["edit", uri, "--json", *options(place)]) == 0
    assert json.loads(capsys.readouterr().out)["changed"] is False
    assert memory.store.ledger.newest_seq() == newest


def test_in_a_database_an_edit_of_what_changed_meanwhile_is_refused_and_kept(
    rows: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = rows.open()
    uri = remember(memory, "The key is blue.", "notes", title="key")
    meanwhile = [sys.executable, "-m", "server.cli", "commit", "It hangs.", "--type", "notes", "--field", "title=key"]
    lines = f"{REPLACE}\nsubprocess.run({[*meanwhile, *options(rows)]!r}, check=True)"
    set_editor(tmp_path, monkeypatch, lines)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["edit", uri, *options(rows)]) == 1
    err = capsys.readouterr().err
    assert "changed since it was read" in err
    kept = Path(err.rpartition("is kept in ")[2].strip().removesuffix("."))
    assert kept.read_text("utf-8").startswith("The key is green.")
    assert "It hangs." in memory.read(ReadRequest(uri)).content


def test_in_a_database_a_memory_is_not_edited_away(
    rows: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = rows.open()
    uri = remember(memory, "The key is blue.", "notes", title="key")
    set_editor(tmp_path, monkeypatch, "file.write_text('')")
    assert main(["edit", uri, *options(rows)]) == 1
    assert "runebook forget" in capsys.readouterr().err
    monkeypatch.delenv("EDITOR")
    assert main(["edit", uri, *options(rows)]) == 1
    assert "no editor is set" in capsys.readouterr().err
    assert memory.commit(CommitRequest("The key is new.")).commit_id


def test_a_change_that_came_meanwhile_is_told_and_not_undone(
    folder: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = remember(folder.open(), "The key is blue.", "notes", title="key")
    meanwhile = [sys.executable, "-m", "server.cli", "commit", "It hangs.", "--type", "notes", "--field", "title=key"]
    lines = f"subprocess.run({[*meanwhile, *options(folder)]!r}, check=True, stdout=subprocess.DEVNULL)\n{REPLACE}"
    set_editor(tmp_path, monkeypatch, lines)
    assert main(["edit", uri, *options(folder)]) == 0
    out = capsys.readouterr().out
    assert "+It hangs." in out
    assert "note: changed meanwhile: " in out
    assert out.count("runebook undo") == 1


def test_in_a_database_a_copy_that_an_editor_left_with_an_error_is_kept(
    rows: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = remember(rows.open(), "The key is blue.", "notes", title="key")
    set_editor(tmp_path, monkeypatch, f"{REPLACE}\nsys.exit(1)")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["edit", uri, *options(rows)]) == 1
    kept = Path(capsys.readouterr().err.rpartition("is kept in ")[2].strip().removesuffix("."))
    assert kept.read_text("utf-8").startswith("The key is green.")


def test_in_a_database_line_breaks_stay_and_what_an_editor_leaves_beside_the_copy_goes(
    rows: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = rows.open()
    uri = remember(memory, "The key is blue.\r\nIt hangs.", "notes", title="key")
    assert "blue.\r\n" in memory.read(ReadRequest(uri)).content
    copies = tmp_path / "copies"
    copies.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(copies))
    set_editor(tmp_path, monkeypatch, "file.with_name(file.name + '~').write_text('old')")
    assert main(["edit", uri, *options(rows)]) == 0
    assert capsys.readouterr().out.startswith("Nothing was changed.")
    set_editor(tmp_path, monkeypatch, "file.write_bytes(file.read_bytes().replace(b'blue', b'green'))")
    assert main(["edit", uri, *options(rows)]) == 0
    assert memory.read(ReadRequest(uri)).content.startswith("The key is green.\r\nIt hangs.")
    assert list(copies.iterdir()) == []


def test_in_a_database_what_came_meanwhile_is_told_to_whoever_changed_nothing(
    rows: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = remember(rows.open(), "The key is blue.", "notes", title="key")
    meanwhile = [sys.executable, "-m", "server.cli", "commit", "It hangs.", "--type", "notes", "--field", "title=key"]
    set_editor(
        tmp_path,
        monkeypatch,
        f"subprocess.run({[*meanwhile, *options(rows)]!r}, check=True, stdout=subprocess.DEVNULL)",
    )
    assert main(["edit", uri, *options(rows)]) == 0
    out = capsys.readouterr().out
    assert "note: changed meanwhile: " in out
    assert "runebook undo" not in out
