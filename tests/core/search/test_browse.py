"""Looking without searching: the given parameters, the promised results, and never a write."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.errors import InvalidInput, InvalidUri, NotFound
from memory_core.core.memory.requests import (
    CommitRequest,
    FindRequest,
    ListRequest,
    ReadRequest,
    RetrieveRequest,
    TreeRequest,
)
from memory_core.features.upkeep.archive import ARCHIVE, ArchiveRequest
from memory_core.runebook import Runebook
from tests.stores import by_hand, files_below, remember, said

USER = "viking://user/default/memories"

LOG = "viking://session/default/s1/messages.jsonl"


@pytest.fixture
def filled(memory: Runebook) -> Runebook:
    remember(memory, "Coffee without sugar. 不加糖。", "preferences", topic="咖啡")
    remember(memory, "Six o'clock", "facts", topic="Closing time")
    remember(memory, "A nurse", "profile")
    remember(memory, None, "tools", tool_name="web_search")
    said(memory, "hello", "再见")
    overview = {"directory_uri": f"{USER}/facts", "abstract": "Facts 事实", "overview": "# Facts"}
    memory.commit(CommitRequest(operations={"overview_operations": [overview]}))
    return memory


def write(home: Path, name: str, text: str) -> str:
    by_hand(home, f"user/default/memories/notes/{name}", text)
    return f"{USER}/notes/{name}"


def files(home: Path) -> dict[str, bytes]:
    return {str(path.relative_to(home)): text for path, text in files_below(home) if ".state" not in path.parts}


# read


@pytest.mark.parametrize(
    ("offset", "limit", "content", "following"),
    [
        (0, -1, "一\n二\n三\n", None),
        (1, -1, "二\n三\n", None),
        (0, 2, "一\n二", 2),
        (1, 1, "二", 2),
        (2, 1, "三\n", None),
        (2, 50, "三\n", None),
        (0, 0, "", 0),
    ],
)
def test_read_returns_the_lines_asked_for_and_where_to_go_on(
    memory: Runebook, tmp_path: Path, offset: int, limit: int, content: str, following: int | None
) -> None:
    uri = write(tmp_path, "x.md", "一\n二\n三\n")
    found = memory.read(ReadRequest(uri, offset, limit))
    assert (found.content, found.first_line, found.total_lines, found.next_offset) == (content, offset, 3, following)
    assert found.uri == uri


@pytest.mark.parametrize("text", ["", "one", "one\n", "a\n\nb", "a\r\nb\r\n", "\n\n", "u\u2028v\x0bw\n", "😀\n"])
def test_read_gives_a_file_back_as_it_is(memory: Runebook, tmp_path: Path, text: str) -> None:
    assert memory.read(ReadRequest(write(tmp_path, "x.md", text))).content == text


@pytest.mark.parametrize("limit_chars", [500, 50, 1])
def test_a_single_line_beyond_the_limit_is_cut_and_says_so(memory: Runebook, tmp_path: Path, limit_chars: int) -> None:
    uri = write(tmp_path, "x.md", "字" * 5_000 + "\nnext\n")
    page = memory.read(ReadRequest(uri, limit_chars=limit_chars))
    assert "5000 characters" in page.content
    assert len(page.content) <= max(limit_chars, 200)
    assert page.next_offset == 1


@pytest.mark.parametrize(("offset", "limit"), [(-1, -1), (0, -2), (3, -1), (99, 1)])
def test_an_offset_outside_the_file_is_refused(memory: Runebook, tmp_path: Path, offset: int, limit: int) -> None:
    with pytest.raises(InvalidInput):
        memory.read(ReadRequest(write(tmp_path, "x.md", "一\n二\n三\n"), offset, limit))


def test_a_line_of_a_conversation_is_read_by_its_address(filled: Runebook) -> None:
    found = filled.read(ReadRequest(f"{LOG}#1"))
    assert "再见" in found.content
    assert (found.first_line, found.total_lines, found.next_offset) == (1, 2, None)
    assert filled.read(ReadRequest(f"{LOG}#0", limit=2)).content == filled.read(ReadRequest(LOG)).content
    with pytest.raises(InvalidInput):
        filled.read(ReadRequest(f"{LOG}#2"))


def test_an_absent_file_a_directory_and_a_broken_uri_are_told_apart(filled: Runebook) -> None:
    with pytest.raises(NotFound):
        filled.read(ReadRequest(f"{USER}/facts/absent.md"))
    with pytest.raises(NotFound) as refused:
        filled.read(ReadRequest(f"{USER}/facts/Closing time"))
    assert refused.value.hint == f"Do you mean {USER}/facts/Closing time.md?"
    with pytest.raises(InvalidUri, match="directory"):
        filled.read(ReadRequest(f"{USER}/facts"))
    for uri in ("", "facts", f"{USER}/../x", f"{USER}/%2e%2e/x", f"{USER}//x", "viking://.state/ledger.sqlite3"):
        with pytest.raises(InvalidUri):
            filled.read(ReadRequest(uri))


def test_a_link_out_of_the_store_is_not_followed(memory: Runebook, tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("secret", encoding="utf-8")
    home = tmp_path / "user/default/memories/notes"
    home.mkdir(parents=True)
    (home / "link.md").symlink_to("/etc/hostname")
    (home / "state.md").symlink_to(tmp_path / ".state/ledger.sqlite3")
    for name in ("link.md", "state.md"):
        with pytest.raises(InvalidUri):
            memory.read(ReadRequest(f"{USER}/notes/{name}"))
    assert memory.ls(ListRequest(f"{USER}/notes")).entries == ()


def test_a_memory_is_read_though_one_that_it_relates_to_cannot_be(memory: Runebook, tmp_path: Path) -> None:
    (tmp_path / "outside.md").write_text("secret", encoding="utf-8")
    away = write(tmp_path, "away.md", "Away.")
    near = remember(memory, "Near.", "facts", topic="near")
    far = remember(memory, "The ferry leaves at noon.", "facts", topic="far")
    links = [{"uri": uri, "relation": "supports"} for uri in (away, near)]
    memory.commit(CommitRequest(operations={"edit_operations": [{"uri": far, "links": links}]}))
    path = tmp_path / "user/default/memories/notes/away.md"
    path.unlink()
    path.symlink_to(tmp_path / "outside.md")
    found = memory.read(ReadRequest(far))
    assert "The ferry leaves at noon." in found.content
    assert [link.uri for link in found.links] == [near]


def test_what_is_archived_and_private_elsewhere_is_not_there_for_a_strict_reader(
    memory: Runebook, tmp_path: Path
) -> None:
    for name, private in (("a", "true"), ("b", "false")):
        trailer = f'<!-- MEMORY_FIELDS\n{{"project": "acme", "private": {private}}}\n-->\n'
        by_hand(tmp_path, f"archive/user/default/memories/notes/{name}.md", f"Pay.\n\n{trailer}")
    for project, name, why in (("other", "a", "nothing at"), ("acme", "a", "archived"), ("other", "b", "archived")):
        with pytest.raises(NotFound, match=why):
            memory.browser.seen_from(project, strict=True).read(f"{USER}/notes/{name}.md")


# ls and tree


def test_ls_shows_files_with_their_abstracts_sizes_and_times(filled: Runebook, tmp_path: Path) -> None:
    (entry,) = filled.ls(ListRequest(f"{USER}/preferences")).entries
    path = tmp_path / "user/default/memories/preferences/咖啡.md"
    assert (entry.uri, entry.name, entry.is_dir) == (f"{USER}/preferences/咖啡.md", "咖啡.md", False)
    assert entry.abstract == "Coffee without sugar. 不加糖。"
    assert entry.size == path.stat().st_size
    assert abs((datetime.now(UTC) - datetime.fromisoformat(entry.updated_at)).total_seconds()) < 60


def test_ls_shows_directories_with_their_summary_or_what_they_hold(filled: Runebook) -> None:
    shown = {
        entry.name: (entry.uri, entry.is_dir, entry.abstract) for entry in filled.ls(ListRequest(f"{USER}/")).entries
    }
    assert shown["facts"] == (f"{USER}/facts/", True, "Facts 事实")
    assert shown["preferences"] == (f"{USER}/preferences/", True, "preferences (1): 咖啡")
    assert shown["profile.md"] == (f"{USER}/profile.md", False, "A nurse")


def test_original_output_leaves_abstracts_out(filled: Runebook) -> None:
    assert {entry.abstract for entry in filled.ls(ListRequest(USER, output="original")).entries} == {None}


def test_abs_limit_cuts_abstracts(filled: Runebook) -> None:
    (entry,) = filled.ls(ListRequest(f"{USER}/preferences", abs_limit=12)).entries
    assert len(entry.abstract or "") <= 12
    assert (entry.abstract or "").startswith("Coffee")


def test_hidden_summaries_are_listed_only_on_request(filled: Runebook) -> None:
    assert [entry.name for entry in filled.ls(ListRequest(f"{USER}/facts")).entries] == ["Closing time.md"]
    assert [entry.name for entry in filled.ls(ListRequest(f"{USER}/facts", show_all_hidden=True)).entries] == [
        ".abstract.md",
        ".overview.md",
        "Closing time.md",
    ]


def test_node_limit_counts_what_it_leaves_out(filled: Runebook) -> None:
    found = filled.ls(ListRequest(USER, node_limit=2))
    assert (len(found.entries), found.left_out) == (2, 1)


def test_a_directory_that_is_read_says_what_its_list_leaves_out(memory: Runebook, tmp_path: Path) -> None:
    for number in range(1_003):
        write(tmp_path, f"{number:04}.md", "一")
    lines = memory.read(ReadRequest(f"{USER}/notes/")).content.splitlines()
    assert lines[-2].startswith(f"{USER}/notes/0999.md")
    assert lines[-1] == "… and 3 more; list it with ls"


def test_a_directory_is_read_though_a_part_of_it_is_archived(memory: Runebook, tmp_path: Path) -> None:
    kept = write(tmp_path, "kept.md", "Kept.")
    by_hand(tmp_path, "archive/user/default/memories/notes/old.md", "Old.")
    assert memory.read(ReadRequest(f"{USER}/notes/")).content.startswith(kept)
    with pytest.raises(InvalidUri, match="directory"):
        memory.read(ReadRequest(f"{USER}/notes"))


def test_tree_is_depth_first_and_stops_at_its_level(filled: Runebook) -> None:
    names = [entry.uri.removeprefix("viking://") for entry in filled.tree(TreeRequest(level_limit=2)).entries]
    assert names == ["agent/", "agent/default/", "session/", "session/default/", "user/", "user/default/"]
    deep = [entry.uri for entry in filled.tree(TreeRequest(USER, level_limit=2)).entries]
    assert deep == [
        f"{USER}/facts/",
        f"{USER}/facts/Closing time.md",
        f"{USER}/preferences/",
        f"{USER}/preferences/咖啡.md",
        f"{USER}/profile.md",
    ]
    assert [entry.uri for entry in filled.tree(TreeRequest(USER, level_limit=1)).entries] == [
        entry.uri for entry in filled.ls(ListRequest(USER)).entries
    ]


def test_every_uri_that_tree_prints_can_be_read_or_listed(filled: Runebook) -> None:
    for entry in filled.tree(TreeRequest(level_limit=9, show_all_hidden=True)).entries:
        if entry.is_dir:
            filled.ls(ListRequest(entry.uri))
        else:
            filled.read(ReadRequest(entry.uri))


def test_the_folders_of_all_users_tell_nobody_what_others_do(memory: Runebook) -> None:
    bob, carol = memory.view("bob", "bob"), memory.view("carol", "carol")
    remember(bob, "Bob was here.", "facts", topic="Bob")
    seen = [entry for entry in bob.ls(ListRequest("viking://")).entries if entry.is_dir]
    assert [entry.uri for entry in seen] == ["viking://user/"]
    os.utime(memory.store.files.root / "user", (2_000_000_000, 2_000_000_000))  # as if somebody new came
    assert [entry for entry in bob.ls(ListRequest("viking://")).entries if entry.is_dir] == seen
    assert not any(entry.is_dir for entry in carol.ls(ListRequest("viking://")).entries)


def test_above_the_spaces_is_only_what_one_has_there_oneself(memory: Runebook) -> None:
    bob, carol = memory.view("bob", "bob"), memory.view("carol", "carol")
    archived = remember(bob, "Bob was here.", "facts", topic="Bob")
    said(bob, "Bob speaks", session_id="talk")
    remember(bob, "Bob's agent knows.", "cases", case_name="Bob")
    bob.run(ARCHIVE, ArchiveRequest(uris=(archived,)))
    for place in ("user", "agent", "session", "archive", "archive/user"):
        bob.ls(ListRequest(f"viking://{place}"))
        for look in (
            lambda uri: carol.ls(ListRequest(uri)),
            lambda uri: carol.tree(TreeRequest(uri)),
            lambda uri: carol.read(ReadRequest(uri)),
        ):
            with pytest.raises(NotFound, match="there is nothing at"):
                look(f"viking://{place}")


def test_an_empty_store_has_an_empty_tree(memory: Runebook) -> None:
    assert memory.tree(TreeRequest()).entries == ()
    with pytest.raises(NotFound):
        memory.ls(ListRequest(USER))


@pytest.mark.parametrize(
    "arguments",
    [{"output": "json"}, {"abs_limit": 0}, {"node_limit": 0}, {"level_limit": 0}, {"uri": f"{USER}/profile.md"}],
)
def test_an_argument_out_of_range_is_refused(filled: Runebook, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        filled.tree(TreeRequest(**{"uri": USER} | arguments))
    assert caught.value.hint


def test_looking_never_changes_a_file(filled: Runebook, tmp_path: Path) -> None:
    filled.opened.current_pages()
    before = files(tmp_path)
    filled.tree(TreeRequest(level_limit=9))
    filled.ls(ListRequest(USER, show_all_hidden=True))
    filled.read(ReadRequest(f"{USER}/profile.md"))
    filled.find(FindRequest("coffee 咖啡"))
    filled.retrieve(RetrieveRequest("coffee 咖啡", session_id="new", tool="web_search", skill="x"))
    filled.close()
    assert files(tmp_path) == before
