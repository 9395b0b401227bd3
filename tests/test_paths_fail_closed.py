"""Whatever a URI says, a file strictly below the root in an allowed space is meant, or the answer is a refusal."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import pytest

from memory_core.core.errors import ConfigInvalid, InvalidUri, RunebookError
from memory_core.core.memory.requests import (
    CommitRequest,
    FindRequest,
    ListRequest,
    ReadRequest,
    RetrieveRequest,
    TreeRequest,
)
from memory_core.core.memory.results import Action, as_json
from memory_core.core.memory.uri import ABSTRACT_NAME, OVERVIEW_NAME, MemoryUri
from memory_core.core.store import files
from memory_core.core.store.files import FileStore
from memory_core.features.recall_trail import SIMILAR, TRAIL, SimilarRequest, TrailRequest
from memory_core.runebook import Runebook, open_memory
from tests.stores import words_only

OWN = "viking://user/default/memories"
SECRET = "outside-and-not-yours"
PATIENCE_SECONDS = 20

UPWARD = ("..", ".", "%2e%2e", "%2E.", "%252e%252e", "．．", "‥", "․․", "..%00", ".. ", "..\u200b", "…", "%c0%ae%c0%ae")
SEPARATORS = ("/", "\\", "%2f", "%2F", "%5c", "%252f", "∕", "⁄", "／", "＼", "﹨", "%c0%af", "//", "/./")
NAMES = (
    "CON", "NUL.md", "COM¹", "com1.txt", "LPT9", "conin$", "aux .md", "AUX", "PRN.",
    "a:stream", "a::$DATA", "C:", "C:\\x", "\\\\host\\share", "//host/share", "~", "~root", "$HOME", "%USERPROFILE%",
    "a.", "a ", " a", "a. .", ".state", ".git", ".hidden", ".abstract.md.", ".abstract.md ",
    "a\x00b", "a\nb", "a\rb", "a\tb", "a\x1b[2Jb", "a\x7fb", "a\u2028b", "\ud800", "a\x85b",
    "a\u202egnp.md", "\u2066a\u2069", "a\u200bb", "\ufeffa", "x" * 256, "汉" * 86, "é" * 128,
    "", "*", "?", "<a>", "a|b", '"a"', ".state/ledger.sqlite3", ".STATE", ".ｓtate", "ledger.sqlite3",
)  # fmt: skip
SCOPES = (
    "user/default/memories", "user/default", "user", "user/other/memories", "agent/default/memories", "agent/other",
    "session/default/s1", "session/other/s1", "archive", "archive/user/default/memories", "archive/..", ".state",
    "user/user/memories", "user/agent", "user/.state", "", "USER/default", "ｕser/default", "users",
)  # fmt: skip


def crafted() -> list[str]:
    """A few thousand URIs made to leave."""
    found = [f"viking://{scope}/{name}" for scope in SCOPES for name in (*NAMES, *UPWARD)]
    for scope in SCOPES:
        for up in UPWARD:
            for separator in SEPARATORS:
                climb = separator.join([up] * 6)
                found += [f"viking://{scope}/{climb}{separator}outside.md", f"viking://{scope}{separator}{up}"]
    found += ["/etc/passwd", "file:///etc/passwd", "viking:/user", "VIKING://user", "viking:///etc/passwd", "viking://"]
    found += [quote(text, safe="") for text in found[::40] if text.isprintable()]
    return found


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Runebook]:
    (tmp_path / "outside.md").write_text(SECRET, encoding="utf-8")
    other = tmp_path / "home" / "user" / "other" / "memories"
    other.mkdir(parents=True)
    (other / "theirs.md").write_text(SECRET, encoding="utf-8")
    config = words_only(tmp_path / "home")
    with open_memory(config) as opened:
        opened.commit(CommitRequest("Where we live is told here.", memory_type="facts", fields={"topic": "home"}))
        yield opened


def contents(folder: Path) -> dict[str, bytes]:
    """Every file outside the home, and of other spaces in it."""
    return {
        str(path): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
        and (folder / "home" not in path.parents or "other" in path.parts)
        and path.name not in (ABSTRACT_NAME, OVERVIEW_NAME)  # views, made at any time
    }


def refused_or_harmless(call: Callable[[], object]) -> None:
    """Only our own errors come out, with a next step, and nothing from outside."""
    try:
        answer = call()
    except RunebookError as error:
        answer = error
    assert SECRET not in str(answer)
    assert not isinstance(answer, RunebookError) or answer.hint


def every_door(memory: Runebook, uri: str) -> None:
    refused_or_harmless(lambda: memory.read(ReadRequest(uri)))
    refused_or_harmless(lambda: as_json(memory.ls(ListRequest(uri))))
    refused_or_harmless(lambda: as_json(memory.tree(TreeRequest(uri))))
    refused_or_harmless(lambda: as_json(memory.find(FindRequest("where", target_uri=uri))))
    refused_or_harmless(lambda: memory.run(SIMILAR, SimilarRequest(uri)))
    refused_or_harmless(lambda: memory.run(TRAIL, TrailRequest(5, uri)))


def operations_on(uri: str) -> dict[str, Any]:
    data = {"memory_type": "facts", "fields": {"topic": "t", "content": "c"}, "links": [{"uri": uri}]}
    return {
        "write_operations": [{"uri": uri, "memory_data": data}],
        "edit_operations": [{"uri": uri, "patches": {"content": "overwritten"}}],
        "delete_operations": [{"uri": uri}, {"uri": f"{OWN}/facts/gone.md", "replacement_uri": uri}],
        "overview_operations": [{"directory_uri": uri, "abstract": "overwritten"}],
    }


def test_no_crafted_uri_reads_beyond_its_space(memory: Runebook, tmp_path: Path) -> None:
    before = contents(tmp_path)
    uris = crafted()
    assert len(uris) > 2_000
    for uri in uris[:: max(1, len(uris) // 150)] + [f"{OWN}/{name}" for name in NAMES]:
        every_door(memory, uri)
    assert contents(tmp_path) == before


def test_no_crafted_uri_becomes_a_path_outside(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "home")
    (tmp_path / "home").mkdir()
    inside = 0
    for text in crafted():
        try:
            path = store.path_for(MemoryUri.parse(text))
        except InvalidUri:
            continue
        inside += 1
        assert path == store.root or store.root in path.parents
        assert store.state != path
        assert store.state not in path.parents
    assert inside  # spaces of others are refused above the store


def test_no_crafted_uri_writes_beyond_its_space(memory: Runebook, tmp_path: Path) -> None:
    before = contents(tmp_path)
    uris = crafted()
    for uri in uris[:: max(1, len(uris) // 60)] + [f"{OWN}/facts/{name}" for name in NAMES[::2]]:
        refused_or_harmless(partial(memory.commit, CommitRequest(operations=operations_on(uri))))
    assert contents(tmp_path) == before
    assert all(part.name in {"user", "agent", "session", ".state"} for part in (tmp_path / "home").iterdir())


def test_a_name_that_a_memory_asks_for_becomes_a_file_of_its_type_or_nothing(memory: Runebook, tmp_path: Path) -> None:
    before = contents(tmp_path)
    said = [{"role": "user", "content": "hi"}]
    for name in NAMES:
        for request in (
            CommitRequest("x", memory_type="facts", fields={"topic": f"../{name}"}),
            CommitRequest(messages=said, session_id=name),
            CommitRequest("x", project=name),
        ):
            refused_or_harmless(lambda request=request: as_json(memory.commit(request)))  # type: ignore[misc]
        refused_or_harmless(lambda name=name: as_json(memory.retrieve(RetrieveRequest("hi", session_id=name))))  # type: ignore[misc]
        assert contents(tmp_path) == before, name


@pytest.mark.parametrize("space", ["../x", "..", ".", "a/b", "a\\b", "", ".state", "a\x00", "x" * 300, "NUL", "com1"])
def test_a_space_that_is_no_folder_name_is_no_setting(tmp_path: Path, space: str) -> None:
    with pytest.raises((ConfigInvalid, ValueError, RunebookError)):
        words_only(tmp_path, user_space=space)


needs_links = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="links and pipes of Unix")


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not tell what is open")
def test_a_folder_that_becomes_a_link_while_it_is_read_shows_nothing_of_another_space(
    memory: Runebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts, theirs = tmp_path / "home/user/default/memories/facts", tmp_path / "home/user/other/memories"
    (theirs / "home.md").write_text(SECRET, encoding="utf-8")
    open_file = files.opened

    def swapped_then_opened(path: str) -> BinaryIO:
        facts.rename(facts.with_name("moved"))
        facts.symlink_to(theirs)
        return open_file(path)

    monkeypatch.setattr(files, "opened", swapped_then_opened)
    with pytest.raises(InvalidUri, match="leads into another space"):
        memory.store.files.text(MemoryUri.parse(f"{OWN}/facts/home.md"))


def test_a_file_that_is_replaced_while_it_is_opened_is_read_once_more(
    memory: Runebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "home/user/default/memories/facts/note.md"
    note.write_text("old", encoding="utf-8")
    open_file, replaced = files.opened, iter(range(1))

    def opened_then_replaced(path: str) -> BinaryIO:
        stream = open_file(path)
        for _ in replaced:
            note.rename(note.with_name("aside"))
            note.write_text("new", encoding="utf-8")
        return stream

    monkeypatch.setattr(files, "opened", opened_then_replaced)
    assert memory.store.files.text(MemoryUri.parse(f"{OWN}/facts/note.md")) == "new"


def within(seconds: float, work: Callable[[], None]) -> None:
    """Run ``work``; fail instead of hanging."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - carried to the test's thread
            failed.append(error)

    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    worker.join(seconds)
    assert not worker.is_alive(), "it hangs"
    if failed:
        raise failed[0]


@needs_links
def test_pipes_sockets_and_devices_in_the_tree_are_no_memories_and_block_nothing(
    memory: Runebook, tmp_path: Path
) -> None:
    facts = tmp_path / "home" / "user" / "default" / "memories" / "facts"
    os.mkfifo(facts / "pipe.md")
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(facts)  # an address is short
        try:
            server.bind("socket.md")
        finally:
            os.chdir(here)
        (facts / "device.md").symlink_to("/dev/zero")

        def look() -> None:
            memory.store.adopt()
            listed = {entry.uri.rpartition("/")[2] for entry in memory.ls(ListRequest(f"{OWN}/facts")).entries}
            assert listed & {"pipe.md", "socket.md", "device.md"} == set()
            for name in ("pipe.md", "socket.md", "device.md"):
                every_door(memory, f"{OWN}/facts/{name}")
                refused_or_harmless(
                    partial(memory.commit, CommitRequest(operations=operations_on(f"{OWN}/facts/{name}")))
                )
                refused_or_harmless(
                    partial(memory.commit, CommitRequest("x", memory_type="facts", fields={"topic": name[:-3]}))
                )
            assert memory.find(FindRequest("where we live")).total

        within(PATIENCE_SECONDS, look)
    assert (facts / "pipe.md").is_fifo()


@needs_links
def test_links_that_lead_out_or_in_circles_show_and_change_nothing(memory: Runebook, tmp_path: Path) -> None:
    memories = tmp_path / "home" / "user" / "default" / "memories"
    facts = memories / "facts"
    (facts / "out.md").symlink_to(tmp_path / "outside.md")
    (facts / "theirs.md").symlink_to(tmp_path / "home" / "user" / "other" / "memories" / "theirs.md")
    (facts / "ledger.md").symlink_to(tmp_path / "home" / ".state" / "ledger.sqlite3")
    (memories / "away").symlink_to(tmp_path)
    (memories / "up").symlink_to(memories)
    (facts / "circle.md").symlink_to(facts / "circle.md")
    (facts / "nowhere.md").symlink_to(tmp_path / "new.md")
    before = contents(tmp_path)
    memory.store.adopt()
    for name in (
        "facts/out.md",
        "facts/ledger.md",
        "away/outside.md",
        "up/up/facts/out.md",
        "facts/circle.md",
        "facts/nowhere.md",
    ):
        uri = f"{OWN}/{name}"
        every_door(memory, uri)
        refused_or_harmless(partial(memory.commit, CommitRequest(operations=operations_on(uri))))
    for name in ("out", "nowhere", "circle"):
        refused_or_harmless(partial(memory.commit, CommitRequest("y", memory_type="facts", fields={"topic": name})))
    assert contents(tmp_path) == before
    assert SECRET not in str(as_json(memory.find(FindRequest(SECRET))))
    assert SECRET not in memory.retrieve(RetrieveRequest("outside and yours")).text


@needs_links
def test_a_link_put_in_place_of_a_file_that_was_just_checked_is_not_followed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "user" / "default" / "memories").mkdir(parents=True)
    (tmp_path / "outside.md").write_text(SECRET, encoding="utf-8")
    target = home / "user" / "default" / "memories" / "a.md"
    swapped = []

    class Swapping(FileStore):
        """Swaps the file for a link the moment it has been checked."""

        def real_path_for(self, uri: MemoryUri) -> str:
            target.unlink(missing_ok=True)
            target.write_text("mine", encoding="utf-8")
            path = super().real_path_for(uri)
            target.unlink()
            target.symlink_to(tmp_path / "outside.md")
            swapped.append(path)
            return path

    for _ in range(3):
        try:
            text = Swapping(home).text(MemoryUri.parse(f"{OWN}/a.md"))
        except RunebookError:
            text = None
        assert text != SECRET
    assert swapped


def test_case_and_width_twins_of_a_memory_are_one_memory_or_two_files(memory: Runebook) -> None:
    for number, topic in enumerate(("HOME", "ｈｏｍｅ", "home ", "Home")):
        (result,) = memory.commit(
            CommitRequest(f"Room {number}.", memory_type="facts", fields={"topic": topic})
        ).results
        assert result.action is Action.UPDATED
        assert result.uri == f"{OWN}/facts/home.md"
