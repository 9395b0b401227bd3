"""Which earlier file a file is: two of one name are two, and the same one, edited, sent or moved, stays the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.memory.project import ProjectAssignment
from memory_core.core.memory.requests import CommitRequest
from memory_core.core.memory.results import Action
from memory_core.core.memory.trailer import split
from memory_core.core.memory.uri import MemoryUri
from memory_core.features.imports import known_files
from memory_core.features.imports.import_plan import EarlierImports
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.runebook import Runebook
from tests.features.imports.foreign import brought, write, write_lines

TABS, SPACES = "Indent with tabs, and write tests first.", "Indent with spaces, and write tests first."
HARBOUR = f"# Harbour\n\n## Rules\n\n{TABS}\n\n## Deploy\n\nPush to the green branch.\n"
GARDEN = "# Garden\n\n## Rules\n\nNever touch the roses.\n\n## Deploy\n\nAsk Ana before anything goes out.\n"


def notes(memory: Runebook) -> dict[str, str]:
    """The notes that are there, name to text."""
    found = {}
    for change in memory.store.ledger.changes_between(0, 1_000):
        text = memory.store.text(MemoryUri.parse(str(change.uri)))
        if "/notes/" in str(change.uri) and not change.uri.name.startswith(".") and text is not None:
            found[change.uri.name.removesuffix(".md")] = split(text).body
    return found


@pytest.fixture(params=["file", "folder", "sent"])
def wishes(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """How a file is named: itself, its folder, or as a copy that was sent and of which only the name is known."""
    return request.param, {"sent": request.param == "sent"}


def test_files_of_one_name_in_two_folders_are_two_and_each_is_updated_by_itself(
    memory: Runebook, tmp_path: Path, wishes: tuple[str, dict[str, Any]]
) -> None:
    named, wish = wishes

    def come(folder: str, text: str) -> int:
        path = write(tmp_path / folder / "CLAUDE.md", text)
        return brought(memory, path.parent if named == "folder" else path, **wish).total(Action.UPDATED)

    come("harbour", HARBOUR)
    first = notes(memory)
    assert come("garden", GARDEN) == 0
    both = notes(memory)
    assert first.items() <= both.items()
    assert (both["Rules (2)"], both["Deploy (2)"]) == ("Never touch the roses.", "Ask Ana before anything goes out.")
    assert come("harbour", HARBOUR.replace(TABS, SPACES)) == 1
    assert come("garden", GARDEN.replace("the roses", "the tulips")) == 1
    assert notes(memory) == {**both, "Rules": SPACES, "Rules (2)": "Never touch the tulips."}


def test_a_file_that_is_written_anew_at_its_place_is_the_same_file(memory: Runebook, tmp_path: Path) -> None:
    path = write(tmp_path / "a" / "AGENTS.md", "## Rules\n\nBe brief.\n")
    brought(memory, path)
    brought(memory, write(path, "## Rules\n\nTell everything at length, with examples.\n").parent)  # by its folder
    assert notes(memory) == {"Rules": "Tell everything at length, with examples."}


def test_a_file_sent_again_after_an_edit_is_known_by_most_of_its_words(memory: Runebook, tmp_path: Path) -> None:
    english = ("Always indent with tabs.", "Always indent with spaces.")
    chinese = ("总是用四个空格缩进。", "总是用两个空格缩进。")
    for said in (*english, *chinese):
        brought(memory, write(tmp_path / "CLAUDE.md", f"## Rules\n\n{said}\n"), sent=True)
    assert notes(memory) == {"Rules": english[-1], "Rules (2)": chinese[-1]}


def test_what_was_imported_by_its_path_is_known_when_it_is_sent(memory: Runebook, tmp_path: Path) -> None:
    brought(memory, write(tmp_path / "a" / "CLAUDE.md", HARBOUR))
    brought(memory, write(tmp_path / "a copy" / "CLAUDE.md", HARBOUR.replace(TABS, SPACES)), sent=True)
    brought(memory, write(tmp_path / "a" / "CLAUDE.md", HARBOUR))
    assert notes(memory) == {"Rules": TABS, "Deploy": "Push to the green branch."}


def test_of_a_copy_only_what_differs_comes_beside_and_neither_changes_the_other(
    memory: Runebook, tmp_path: Path
) -> None:
    mine = write(tmp_path / "one" / "CLAUDE.md", HARBOUR)
    brought(memory, mine)
    copy = write(tmp_path / "two" / "CLAUDE.md", HARBOUR)
    assert not brought(memory, copy).changed
    brought(memory, write(copy, HARBOUR.replace(TABS, SPACES)))
    assert notes(memory) == {"Rules": TABS, "Rules (2)": SPACES, "Deploy": "Push to the green branch."}


def test_a_folder_that_was_moved_and_edited_keeps_its_memories_and_its_old_place_is_free(
    memory: Runebook, tmp_path: Path
) -> None:
    brought(memory, write(tmp_path / "old" / "CLAUDE.md", HARBOUR).parent)
    shutil.move(tmp_path / "old", tmp_path / "new")
    brought(memory, write(tmp_path / "new" / "CLAUDE.md", HARBOUR.replace(TABS, SPACES)).parent)
    assert notes(memory)["Rules"] == SPACES
    brought(memory, write(tmp_path / "old" / "CLAUDE.md", GARDEN).parent)
    assert (notes(memory)["Rules"], notes(memory)["Rules (2)"]) == (SPACES, "Never touch the roses.")
    brought(memory, write(tmp_path / "new" / "CLAUDE.md", "# Harbour\n\n## Rules\n\nNone.\n"))
    assert notes(memory)["Rules"] == "None."


def test_a_file_that_is_gone_is_not_another_one_that_says_something_else(memory: Runebook, tmp_path: Path) -> None:
    path = write(tmp_path / "one" / "CLAUDE.md", HARBOUR)
    brought(memory, path)
    path.unlink()
    brought(memory, write(tmp_path / "two" / "CLAUDE.md", GARDEN))
    assert notes(memory)["Rules"] == TABS


def test_the_same_path_on_another_machine_is_the_same_file_only_if_it_says_nearly_the_same(
    memory: Runebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "workspace" / "CLAUDE.md", HARBOUR)
    brought(memory, path)
    monkeypatch.setattr("platform.node", lambda: "elsewhere")
    brought(memory, write(path, GARDEN))
    assert notes(memory)["Rules"] == TABS
    brought(memory, write(path, GARDEN.replace("roses", "tulips")))
    assert notes(memory)["Rules (2)"] == "Never touch the tulips."


def test_files_sent_into_two_projects_are_two_however_alike(memory: Runebook, tmp_path: Path) -> None:
    for project, text in (("harbour", HARBOUR), ("garden", HARBOUR.replace(TABS, SPACES))):
        wish = ProjectAssignment(project, named=True)
        brought(memory, write(tmp_path / "CLAUDE.md", text), sent=True, assignment=wish)
    rules = {text for name, text in notes(memory).items() if name.startswith("Rules")}
    assert rules == {TABS, SPACES}


def test_in_one_import_no_two_files_are_one(memory: Runebook, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write(tmp_path / "all" / folder / "CLAUDE.md", HARBOUR)
    write(tmp_path / "all" / "b" / "CLAUDE.md", HARBOUR.replace(TABS, SPACES))
    archive = Path(shutil.make_archive(str(tmp_path / "all"), "zip", tmp_path / "all"))
    brought(memory, archive)
    assert {notes(memory)["Rules"], notes(memory)["Rules (2)"]} == {TABS, SPACES}
    assert not brought(memory, archive).changed


def test_an_import_that_was_undone_is_forgotten_with_its_place(memory: Runebook, tmp_path: Path) -> None:
    path = write(tmp_path / "a" / "CLAUDE.md", HARBOUR)
    for commit in brought(memory, path).commits:
        memory.run(UNDO, UndoRequest(commit))
    assert brought(memory, path).total(Action.CREATED) == 2


def test_what_an_earlier_version_imported_is_known_by_what_it_says(
    memory: Runebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:  # ids within a folder, and no file in the marks
        earlier.setattr(known_files.KnownFiles, "file", lambda *_: known_files.KnownFile("", "CLAUDE.md"))
        brought(memory, write(tmp_path / "a" / "CLAUDE.md", HARBOUR))
    uri = "viking://user/default/memories/notes/Deploy.md"
    memory.commit(CommitRequest(operations={"delete_operations": [{"uri": uri}]}))
    brought(memory, write(tmp_path / "b" / "CLAUDE.md", GARDEN))
    brought(memory, write(tmp_path / "a" / "CLAUDE.md", HARBOUR.replace(TABS, SPACES)))
    assert notes(memory)["Rules"] == SPACES
    assert notes(memory)["Rules (2)"] == "Never touch the roses."
    assert "Push to the green branch." not in notes(memory).values()


def test_people_of_one_name_in_two_graphs_are_two(memory: Runebook, tmp_path: Path) -> None:
    def graph(folder: str, *observations: str) -> Path:
        ana = {"type": "entity", "name": "Ana", "entityType": "person", "observations": observations}
        bo = {"type": "entity", "name": f"Bo of {folder}", "entityType": "person", "observations": ["Is kind"]}
        relation = {"type": "relation", "from": "Ana", "to": f"Bo of {folder}", "relationType": "knows"}
        return write_lines(tmp_path / folder / "memory.jsonl", [ana, bo, relation])

    brought(memory, graph("work", "Leads the harbour project"))
    brought(memory, graph("home", "My sister"))
    assert brought(memory, graph("work", "Leads the garden project")).total(Action.UPDATED) == 1
    root = "viking://user/default/memories/entities"
    work, home = (memory.store.text(MemoryUri.parse(f"{root}/{name}.md")) or "" for name in ("Ana", "Ana (2)"))
    assert ("Leads the garden project" in work, "My sister" in home) == (True, True)
    assert [split(text).trailer["links"][0]["uri"] for text in (work, home) if split(text).trailer] == [  # type: ignore[index]
        f"{root}/Bo of work.md",
        f"{root}/Bo of home.md",
    ]


def test_where_a_file_was_is_in_the_receipt_and_not_in_the_memory(memory: Runebook, tmp_path: Path) -> None:
    path = write(tmp_path / "secret place" / "CLAUDE.md", HARBOUR)
    brought(memory, path)
    [file] = EarlierImports(memory, ()).files.values()
    assert (file.path, file.name) == (str(path.resolve()), "CLAUDE.md")
    assert not any("secret place" in text for text in notes(memory).values())
    stored = memory.store.text(MemoryUri.parse("viking://user/default/memories/notes/Rules.md"))
    assert "secret place" not in (stored or "")
    assert json.loads(file.note.removeprefix("imported from file "))["path"] == str(path.resolve())
