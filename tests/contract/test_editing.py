"""``runebook edit`` on a folder and on PostgreSQL, with a program in place of the editor."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from memory_core.core.memory.requests import CommitRequest, ReadRequest
from server.cli import main
from tests.contract.conftest import Place
from tests.server.command_line import set_editor
from tests.stores import remember


def options(place: Place) -> list[str]:
    return ["--home", str(place.home), "--set", f"store.url={place.url}", "--set", "embedding.provider=none"]


class Editing:
    """``runebook edit`` with lines of Python in place of the editor."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.copies = folder / "copies"
        self.copies.mkdir()
        self._folder, self._monkeypatch, self._capsys = folder, monkeypatch, capsys
        monkeypatch.setattr("tempfile.tempdir", str(self.copies))

    def __call__(self, place: Place, uri: str, *lines: str, flags: Sequence[str] = ()) -> tuple[int, str, str]:
        """Status, output and errors."""
        set_editor(self._folder, self._monkeypatch, "\n".join(lines))
        status = main(["edit", uri, *flags, *options(place)])
        return status, *self._capsys.readouterr()


@pytest.fixture
def edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Editing:
    return Editing(tmp_path, monkeypatch, capsys)


REPLACE = "file.write_text(file.read_text('utf-8').replace('blue', 'green'), 'utf-8')"


def meanwhile(place: Place) -> str:
    """A line that commits from another process."""
    command = [sys.executable, "-m", "server.cli", "commit", "It hangs.", "--type", "notes", "--field", "title=key"]
    return f"subprocess.run({[*command, *options(place)]!r}, check=True, stdout=subprocess.DEVNULL)"


def kept(err: str) -> str:
    """The text of the copy that an error says is kept."""
    return Path(err.rpartition("is kept in ")[2].strip().removesuffix(".")).read_text("utf-8")


def test_an_edit_is_stored_told_and_taken_back(place: Place, edit: Editing) -> None:
    memory = place.open()
    uri = remember(memory, "The key is blue. 钥匙在花盆下。", "notes", title="key")
    status, out, _ = edit(place, uri, REPLACE)
    assert status == 0
    assert "+The key is green. 钥匙在花盆下。" in out
    assert memory.read(ReadRequest(uri)).content.startswith("The key is green. ")
    undo = out.splitlines()[-1].removeprefix("Undo with: runebook ").split()
    assert main([*undo, *options(place)]) == 0
    assert memory.read(ReadRequest(uri)).content.startswith("The key is blue. ")


def test_an_edit_without_a_change_stores_nothing(place: Place, edit: Editing) -> None:
    memory = place.open()
    uri = remember(memory, "The key is blue.", "notes", title="key")
    newest = memory.store.ledger.newest_seq()
    status, out, _ = edit(place, uri, "pass")
    assert (status, out.startswith("Nothing was changed.")) == (0, True)
    assert json.loads(edit(place, uri, "pass", flags=["--json"])[1])["changed"] is False
    assert memory.store.ledger.newest_seq() == newest


def test_in_a_database_an_edit_of_what_changed_meanwhile_is_refused_and_kept(rows: Place, edit: Editing) -> None:
    memory = rows.open()
    uri = remember(memory, "The key is blue.", "notes", title="key")
    status, _, err = edit(rows, uri, REPLACE, meanwhile(rows))
    assert status == 1
    assert "changed since it was read" in err
    assert kept(err).startswith("The key is green.")
    assert "It hangs." in memory.read(ReadRequest(uri)).content


def test_in_a_database_a_memory_is_not_edited_away(
    rows: Place, edit: Editing, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = rows.open()
    uri = remember(memory, "The key is blue.", "notes", title="key")
    status, _, err = edit(rows, uri, "file.write_text('')")
    assert (status, "runebook forget" in err) == (1, True)
    monkeypatch.delenv("EDITOR")
    assert main(["edit", uri, *options(rows)]) == 1
    assert "no editor is set" in capsys.readouterr().err
    assert memory.commit(CommitRequest("The key is new.")).commit_id


def test_a_change_that_came_meanwhile_is_told_and_not_undone(folder: Place, edit: Editing) -> None:
    uri = remember(folder.open(), "The key is blue.", "notes", title="key")
    status, out, _ = edit(folder, uri, meanwhile(folder), REPLACE)
    assert status == 0
    assert "+It hangs." in out
    assert "note: changed meanwhile: " in out
    assert out.count("runebook undo") == 1


def test_in_a_database_a_copy_that_an_editor_left_with_an_error_is_kept(rows: Place, edit: Editing) -> None:
    uri = remember(rows.open(), "The key is blue.", "notes", title="key")
    status, _, err = edit(rows, uri, REPLACE, "sys.exit(1)")
    assert status == 1
    assert kept(err).startswith("The key is green.")


def test_in_a_database_line_breaks_stay_and_what_an_editor_leaves_beside_the_copy_goes(
    rows: Place, edit: Editing
) -> None:
    memory = rows.open()
    uri = remember(memory, "The key is blue.\r\nIt hangs.", "notes", title="key")
    assert "blue.\r\n" in memory.read(ReadRequest(uri)).content
    status, out, _ = edit(rows, uri, "file.with_name(file.name + '~').write_text('old')")
    assert (status, out.startswith("Nothing was changed.")) == (0, True)
    assert edit(rows, uri, "file.write_bytes(file.read_bytes().replace(b'blue', b'green'))")[0] == 0
    assert memory.read(ReadRequest(uri)).content.startswith("The key is green.\r\nIt hangs.")
    assert list(edit.copies.iterdir()) == []


def test_in_a_database_what_came_meanwhile_is_told_to_whoever_changed_nothing(rows: Place, edit: Editing) -> None:
    uri = remember(rows.open(), "The key is blue.", "notes", title="key")
    status, out, _ = edit(rows, uri, meanwhile(rows))
    assert status == 0
    assert "note: changed meanwhile: " in out
    assert "runebook undo" not in out
