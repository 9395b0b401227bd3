"""Hand edits as a user meets them: the next search knows, in every process, and nothing that was typed is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory_core import open_store
from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.hand_edits import Adoption
from memory_core.runebook import Runebook, open_memory
from tests.core.index.damage import other_process
from tests.stores import edit, handed_in, words_only
from tests.waiting import soon

NOTES = Path("user", "default", "memories", "notes")


def names(memory: Runebook, query: str) -> list[str]:
    return [hit.uri.rpartition("/")[2] for hit in memory.find(FindRequest(query)).hits]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Runebook]:
    with open_memory(words_only(tmp_path)) as opened:
        opened.commit(CommitRequest("The boiler is serviced in March.", fields={"title": "boiler"}))
        opened.commit(CommitRequest("锅炉每年三月检修。", fields={"title": "锅炉"}))
        opened.find(FindRequest("boiler"))
        yield opened


def test_a_file_saved_a_moment_ago_is_found_without_a_watcher(memory: Runebook, tmp_path: Path) -> None:
    (tmp_path / NOTES / "piano.md").write_text("The piano tuner comes on Friday.", encoding="utf-8")
    assert names(memory, "piano tuner") == ["piano.md"]
    (tmp_path / NOTES / "钢琴.md").write_text("调音师星期五来。", encoding="utf-8")
    assert names(memory, "调音师") == ["钢琴.md"]
    (tmp_path / NOTES / "piano.md").rename(tmp_path / NOTES / "flügel.md")
    assert names(memory, "piano tuner") == ["flügel.md"]
    (tmp_path / NOTES / "flügel.md").unlink()
    assert names(memory, "piano tuner") == []


def test_a_hit_that_was_edited_in_place_is_shown_as_it_is_now(memory: Runebook, tmp_path: Path) -> None:
    (tmp_path / NOTES / "锅炉.md").write_text("锅炉改为五月检修。", encoding="utf-8")
    (hit,) = [hit for hit in memory.find(FindRequest("锅炉 检修")).hits if hit.uri.endswith("锅炉.md")]
    assert "五月" in hit.abstract


def test_many_files_at_once_do_not_block_the_search_and_it_says_so(
    memory: Runebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(500):
        (tmp_path / NOTES / f"pulled {number} 拉取.md").write_text(
            f"Recipe number {number}: dumplings 饺子", encoding="utf-8"
        )
    with monkeypatch.context() as patched:
        patched.setattr(open_store, "_GLANCE_SECONDS", 0.0)  # some machines read them all in the usual time
        patched.setattr(Adoption, "catch_up", lambda _adoption, _closing: None)  # and others in the background
        first = memory.find(FindRequest("boiler"))
        read = [uri for uri in memory.store.ledger.stats() if "pulled" in uri]
    assert [hit.uri for hit in first.hits]
    assert 0 < len(read) < 500
    assert any("still being read" in note for note in first.notes)
    assert soon(lambda: not memory.find(FindRequest("dumplings")).notes and names(memory, "recipe number 499") != [])
    files = [uri for uri in memory.store.ledger.stats() if "pulled" in uri]
    assert len(files) == 500
    assert {commit.author for commit in memory.store.ledger.history(limit=50) if commit.kind == "external"} == {
        "by hand"
    }


def test_a_commit_on_a_hand_edited_memory_keeps_the_words_of_both(memory: Runebook, tmp_path: Path) -> None:
    path = tmp_path / NOTES / "boiler.md"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("in March", "in May, says Otto"), encoding="utf-8")
    uri = MemoryUri.parse("viking://user/default/memories/notes/boiler.md")
    patch = "<<<<<<< SEARCH\nThe boiler\n=======\nThe gas boiler\n>>>>>>> REPLACE"
    receipt = handed_in(memory, edit=[edit(str(uri), content=patch)])
    assert receipt.results[0].reason is None
    assert "The gas boiler is serviced in May, says Otto" in path.read_text(encoding="utf-8")
    assert [commit.kind for commit in memory.store.ledger.history(uri)] == ["commit", "external", "commit"]


def test_two_processes_both_find_what_a_person_wrote(memory: Runebook, tmp_path: Path) -> None:
    memory.opened.watch()
    with other_process(tmp_path, watching=True) as other:

        def theirs(query: str) -> list[str]:
            return [uri.rpartition("/")[2] for uri in other.find(query)]

        (tmp_path / NOTES / "boiler.md").write_text("The heat pump replaced it.", encoding="utf-8")
        assert soon(lambda: names(memory, "heat pump") == ["boiler.md"] and theirs("heat pump") == ["boiler.md"])
        (tmp_path / NOTES / "热泵.md").write_text("热泵取代了锅炉。", encoding="utf-8")
        assert names(memory, "热泵取代") == theirs("热泵取代") == ["热泵.md"]
        (tmp_path / NOTES).rename(tmp_path / NOTES.parent / "heating 供暖")
        assert names(memory, "heat pump") == theirs("heat pump") == ["boiler.md"]
    texts = [
        row.after for commit in memory.store.ledger.history() for row in memory.store.ledger.changes_of([commit.seq])
    ]
    assert texts.count("热泵取代了锅炉。") == 2  # as it came, and where it went; not once more for each process


def test_with_watching_off_no_thread_is_started(tmp_path: Path) -> None:
    before = threading.enumerate()
    with open_memory(words_only(tmp_path, watch="off")) as memory:
        memory.opened.watch()
        assert "runebook-watch" not in [thread.name for thread in threading.enumerate() if thread not in before]
