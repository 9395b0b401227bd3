"""The index follows the ledger, in any process, whatever the files hold, and comes back equal when deleted."""

from __future__ import annotations

import random
import sqlite3
import string
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.core.caller import authored
from memory_core.core.config import Config
from memory_core.core.errors import InvalidFilter, StorageFailed
from memory_core.core.index import indexer, vectors
from memory_core.core.index.documents import memory_document, session_growth
from memory_core.core.index.encoder import PASSAGE_LIMIT_CHARS, turn_passage
from memory_core.core.index.filter import compile_filter, utc
from memory_core.core.memory.memory import parse
from memory_core.core.memory.message_shapes import parse_messages
from memory_core.core.memory.project import NO_PROJECT
from memory_core.core.memory.requests import CommitRequest, FindRequest, ListRequest, ReadRequest, TreeRequest
from memory_core.core.memory.results import FindResult, as_json
from memory_core.core.memory.trailer import join, split
from memory_core.core.memory.uri import MemoryUri
from memory_core.features.upkeep.archive import ARCHIVE, ArchiveRequest
from memory_core.open_store import load_registry
from memory_core.runebook import Runebook, open_memory
from tests.stores import by_hand, handed_in, remember, replaced, said, words_only, write, written
from tests.waiting import at_once, soon

USER = "viking://user/default/memories"

LOG = MemoryUri.parse("viking://session/default/s1/messages.jsonl")
NOW = datetime(2026, 6, 1, tzinfo=UTC)


def say(*texts: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text} for text in texts]


def forget_index(home: Path) -> None:
    for path in (home / ".state").glob("index.sqlite3*"):
        path.unlink()


def everything(memory: Runebook) -> list[tuple[Any, ...]]:
    memory.indexer.follow()
    connection = memory.indexer.catalog.connection()
    documents = connection.execute(
        "SELECT uri, part, space, context_type, memory_type, name, abstract, own, created_at, updated_at, salience, "
        "tags, category, project, role, speaker, session_id, active FROM documents ORDER BY uri, part"
    )
    texts = connection.execute("SELECT uri, part, text FROM passages ORDER BY uri, part")
    return [*documents, *texts]


# Documents


def test_a_memory_is_found_by_its_name_its_body_its_other_texts_and_its_tags(memory: Runebook) -> None:
    data = {
        "memory_type": "entities",
        "fields": {"entity_name": "Lotus", "entity_type": "organisation", "content": "supplies 纸张"},
        "tags": ["季度", "vendor"],
    }
    written(memory, data)
    for query in ("Lotus", "organisation", "纸张", "季度", "vendor"):
        assert [hit.uri for hit in memory.find(FindRequest(query)).memories] == [f"{USER}/entities/Lotus.md"], query


def test_a_handwritten_file_outside_every_type_is_found_by_its_name(tmp_path: Path) -> None:
    by_hand(tmp_path, "user/default/memories/随笔.md", "A walk by the river")
    with open_memory(words_only(tmp_path)) as memory:
        for query in ("随笔", "river"):
            (hit,) = memory.find(FindRequest(query)).memories
            assert (hit.uri, hit.memory_type) == (f"{USER}/随笔.md", "")


def test_a_stored_abstract_is_shown_and_a_missing_one_is_the_beginning(memory: Runebook) -> None:
    long = "The harbour dashboard " + "shows occupancy " * 40
    given = {"memory_type": "facts", "fields": {"topic": "港口", "content": long}, "abstract": "Berths. 泊位。"}
    written(memory, given)
    remember(memory, f"{long} again", "facts", topic="Harbour")
    shown = {hit.uri: hit.abstract for hit in memory.find(FindRequest("harbour dashboard occupancy")).memories}
    assert shown[f"{USER}/facts/港口.md"] == "Berths. 泊位。"
    assert len(shown[f"{USER}/facts/Harbour.md"]) <= 256
    assert shown[f"{USER}/facts/Harbour.md"].startswith("The harbour dashboard")


def test_tools_and_skills_are_skills_messages_are_resources_and_logs_too(memory: Runebook, tmp_path: Path) -> None:
    by_hand(tmp_path, "user/default/logs/2026-01-01.md", "zebra day")
    memory.store.adopt()
    remember(memory, "zebra note")
    remember(memory, None, "tools", tool_name="zebra_tool", best_for="zebra")
    memory.commit(CommitRequest(messages=say("zebra message"), session_id="s1"))
    found = memory.find(FindRequest("zebra"))
    assert [hit.memory_type for hit in found.memories] == ["notes"]
    assert [hit.memory_type for hit in found.skills] == ["tools"]
    assert {hit.uri for hit in found.resources} == {f"{LOG}#0", "viking://user/default/logs/2026-01-01.md#0"}


@given(
    st.dictionaries(
        st.sampled_from(["title", "content", "tags", "abstract", "salience", "created_at", "updated_at", "category"])
        | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            max_leaves=6,
        ),
        max_size=6,
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
)
def test_any_trailer_a_person_may_write_makes_a_document(trailer: dict[str, Any], body: str) -> None:
    uri = MemoryUri.parse(f"{USER}/notes/x.md")
    for named in (None, "notes"):
        text = join(body, trailer | ({} if named is None else {"memory_type": named}))
        assert split(text).damage is None
        document = memory_document(parse(uri, text, load_registry(Config())))
        assert 0.0 <= document.salience <= 1.0
        utc(document.created_at)
        utc(document.updated_at)
        "".join([document.own, document.abstract, *document.tags, *document.passages]).encode("utf-8")


@pytest.mark.parametrize(
    "line",
    [
        '"created_at": "0001-01-01T00:00:00+14:00"',
        '"updated_at": "9999-12-31T23:59:59-14:00"',
        '"created_at": "yesterday"',
        r'"title": "half \ud800"',
        '"salience": NaN',
        '"tags": {"a": [1]}',
        '"title": {"a": [1]}',
    ],
)
def test_one_odd_file_never_keeps_the_others_from_being_found(tmp_path: Path, line: str) -> None:
    by_hand(tmp_path, "user/default/memories/notes/a odd.md", f"斑马 odd\n\n<!-- MEMORY_FIELDS\n{{{line}}}\n-->\n")
    by_hand(tmp_path, "user/default/memories/notes/b plain.md", "斑马 plain")
    with open_memory(words_only(tmp_path)) as memory:
        assert {hit.uri for hit in memory.find(FindRequest("斑马")).memories} == {
            f"{USER}/notes/a odd.md",
            f"{USER}/notes/b plain.md",
        }


def test_a_huge_file_a_binary_file_and_links_in_circles_keep_nobody_out(tmp_path: Path) -> None:
    folder = tmp_path / "user/default/memories/notes"
    folder.mkdir(parents=True)
    with (folder / "huge.md").open("wb") as stream:
        stream.truncate(65 * 1024 * 1024)
    (folder / "photo.png").write_bytes(bytes(range(256)))
    (folder / "gbk.md").write_bytes("斑马 gbk zebra".encode("gb18030"))
    (folder / "loop.md").symlink_to("loop.md")
    (folder / "up").symlink_to("..")
    (folder / "out.md").symlink_to("/etc/hostname")
    (folder / "good.md").write_text("zebra", encoding="utf-8")
    with open_memory(words_only(tmp_path)) as memory:
        assert {hit.uri for hit in memory.find(FindRequest("zebra")).memories} == {
            f"{USER}/notes/good.md",
            f"{USER}/notes/gbk.md",
        }
        names = [entry.name for entry in memory.ls(ListRequest(f"{USER}/notes")).entries]
        assert names == ["gbk.md", "good.md", "huge.md", "photo.png"]
        assert memory.tree(TreeRequest(level_limit=9)).left_out == 0


# Sessions


def test_a_turn_is_embedded_beside_its_neighbours_as_far_as_they_fit() -> None:
    long = "z" * (PASSAGE_LIMIT_CHARS - 1)
    messages = parse_messages(say("a", "b", "c", long))
    passages = [document.passages for document in session_growth(LOG, [], list(enumerate(messages))).documents]
    assert passages == [
        (turn_passage("a", ["b"], ["c"]),),
        (turn_passage("b", ["a", "c"], [long]),),
        (turn_passage("c", ["b", long], ["a"]),),
        (turn_passage(long, ["c"], ["b"]),),
    ]
    assert turn_passage("ab", [long], []) == "ab"


def test_a_short_turn_is_searched_with_those_that_it_answers() -> None:
    long = " ".join(["word"] * 60)
    told = [("Ann", "a"), ("Ann", "b"), ("Ben", "c"), ("Ann", "d"), ("Ann", "e"), ("Ben", long)]
    messages = parse_messages([{"role": "user", "name": name, "content": text} for name, text in told])
    previous = [document.previous for document in session_growth(LOG, [], list(enumerate(messages))).documents]
    assert previous == ["", "", "Ann: a\nAnn: b", "Ann: b\nBen: c", "Ben: c", ""]


def test_how_much_a_turn_tells_is_kept_with_it() -> None:
    told = ["Wow!", "What did you do in Lisbon last week with Tom?", "I walked along the river with Tom in Lisbon."]
    friends = parse_messages([{"role": "user", "name": "Ann", "content": text} for text in told])
    exclaimed, asked, said = (each.substance for each in session_growth(LOG, [], list(enumerate(friends))).documents)
    assert asked == 0.0 < exclaimed < said < 1.0
    (request,) = session_growth(LOG, [], [(0, parse_messages(say(told[1]))[0])]).documents
    assert request.substance > exclaimed  # what an assistant is asked tells what it is about


def test_a_message_is_found_by_the_day_that_it_means() -> None:
    message = {"role": "user", "content": "She arrived yesterday, and leaves 后天.", "time": "2023-05-08T10:00:00Z"}
    (document,) = session_growth(LOG, [], list(enumerate(parse_messages([message])))).documents
    assert document.heading.split()[::3] == ["2023-05-08", "2023-05-07", "2023-05-10"]


def test_messages_sent_one_by_one_are_indexed_like_messages_sent_together(tmp_path: Path) -> None:
    texts = [f"第{number}句 sentence {number}" for number in range(7)]
    with open_memory(words_only(tmp_path / "one")) as one, open_memory(words_only(tmp_path / "all")) as together:
        for end in range(1, len(texts) + 1):
            one.commit(CommitRequest(messages=say(*texts[:end]), session_id="s1"))
            one.indexer.follow()
        together.commit(CommitRequest(messages=say(*texts), session_id="s1"))
        assert everything(one) == everything(together)


def test_a_log_that_was_edited_by_hand_between_two_commits_is_rebuilt_line_for_line(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        memory.commit(CommitRequest(messages=say("apple", "banana", "cherry"), session_id="s1"))
        path = tmp_path / "session/default/s1/messages.jsonl"
        path.write_text("\n".join(path.read_text(encoding="utf-8").splitlines()[1:]), encoding="utf-8")
        memory.commit(CommitRequest(messages=say("banana", "cherry", "damson 李子"), session_id="s1"))
        online = everything(memory)
    forget_index(tmp_path)
    with open_memory(words_only(tmp_path)) as memory:
        assert everything(memory) == online
        assert memory.find(FindRequest("apple")).total == 0
        (hit,) = memory.find(FindRequest("李子")).resources
        assert hit.uri == f"{LOG}#2"
        assert "李子" in memory.read(ReadRequest(hit.uri)).content


def test_a_damaged_line_of_a_log_keeps_its_number_to_itself(tmp_path: Path) -> None:
    path = tmp_path / "session/default/s1/messages.jsonl"
    path.parent.mkdir(parents=True)
    good = '{"role": "user", "content": "zebra"}\n'
    path.write_text(good.replace("zebra", "first") + "{broken\n\n" + good, encoding="utf-8")
    with open_memory(words_only(tmp_path)) as memory:
        (hit,) = memory.find(FindRequest("zebra")).resources
        assert hit.uri == f"{LOG}#3"
        assert "zebra" in memory.read(ReadRequest(hit.uri)).content


# Following the ledger


def test_a_deleted_index_comes_back_equal(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        for number in range(12):
            remember(memory, f"Fact {number} 事实", "facts", topic=f"T{number % 8}")
        uri = f"{USER}/facts/T3.md"
        memory.commit(CommitRequest(operations={"delete_operations": [{"uri": uri}]}))
        memory.commit(CommitRequest(messages=say("one", "two"), session_id="s1"))
        memory.commit(CommitRequest(messages=say("one", "two", "three 三"), session_id="s1"))
        before = everything(memory)
        found = as_json(memory.find(FindRequest("事实", now=NOW)))
    forget_index(tmp_path)
    with open_memory(words_only(tmp_path)) as memory:
        assert everything(memory) == before
        again = as_json(memory.find(FindRequest("事实", now=NOW)))
        assert [hit["uri"] for hit in again["memories"]] == [hit["uri"] for hit in found["memories"]]


def test_what_was_removed_or_renamed_by_hand_is_gone_or_moved_after_reopening(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        remember(memory, "zebra one", "facts", topic="One")
        remember(memory, "zebra two", "facts", topic="Two")
    folder = tmp_path / "user/default/memories/facts"
    (folder / "One.md").unlink()
    (folder / "Two.md").rename(folder / "二.md")
    with open_memory(words_only(tmp_path)) as memory:
        assert [hit.uri for hit in memory.find(FindRequest("zebra")).memories] == [f"{USER}/facts/二.md"]
        again = memory.commit(CommitRequest("zebra two again", memory_type="facts", fields={"topic": "Two"}))
        assert again.changed_uris == (f"{USER}/facts/二.md",)


def test_commits_of_many_writers_are_found_at_once_by_each_of_them(tmp_path: Path) -> None:
    def write_and_look(writer: tuple[Runebook, str]) -> None:
        memory, name = writer
        for number in range(15):
            word = f"{name}w{number}"
            remember(memory, f"{word} said", "facts", topic=word)
            assert memory.find(FindRequest(word)).total == 1, word

    with open_memory(words_only(tmp_path)) as one, open_memory(words_only(tmp_path)) as two:
        at_once(write_and_look, (one, "x0"), (one, "y0"), (two, "x1"), (two, "y1"))
        assert all(len(memory.find(FindRequest("said", limit=100)).memories) == 60 for memory in (one, two))


def test_a_commit_that_arrives_while_the_catalog_follows_is_never_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory_core.core.index.indexer._PAUSE_SECONDS", 3_600.0)  # nobody but this thread follows
    with open_memory(words_only(tmp_path)) as memory, open_memory(words_only(tmp_path)) as other:
        memory.opened.adopted.wait()
        other.opened.adopted.wait()
        memory.find(FindRequest("anything"))
        ledger = memory.store.ledger.database.connection()
        said: list[str] = []
        for moment in range(4):
            statements = count()

            def commit_at_that_moment(_sql: str, moment: int = moment, at: Iterator[int] = statements) -> None:
                if next(at) == moment:
                    said.append(f"zebra{moment} 斑马")
                    other.commits.remember(CommitRequest(said[-1], memory_type="facts"), None, NO_PROJECT)

            other.commits.remember(CommitRequest(f"lynx{moment}", memory_type="facts"), None, NO_PROJECT)
            ledger.set_trace_callback(commit_at_that_moment)
            memory.indexer.follow(None)
            ledger.set_trace_callback(None)
            memory.indexer.follow(None)  # however long it takes
            assert {hit.abstract for hit in memory.find(FindRequest("斑马")).memories} == set(said)
        assert len(said) == 4


# Turns of several users


@pytest.fixture
def anna_and_bob(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Runebook, Runebook]]:
    """Two users of one folder; nobody but those who search bring the index up to date, by small steps."""
    monkeypatch.setattr("memory_core.core.index.indexer._PAUSE_SECONDS", 3_600.0)
    monkeypatch.setattr("memory_core.core.index.follower._SLICE_SECONDS", 0.0)
    monkeypatch.setattr("memory_core.core.index.follower._SLICE_CHANGES", 3)
    monkeypatch.setattr("memory_core.core.index.follower._SLICE_CHARS", 400)
    monkeypatch.setattr("memory_core.core.index.follower._LITTLE_CHANGES", 8)
    monkeypatch.setattr("memory_core.core.index.follower._PIECE_CHARS", 150)
    home = tmp_path / "store"
    with open_memory(words_only(home)) as anna, open_memory(words_only(home, user_space="bob")) as bob:
        for memory in (anna, bob):
            memory.opened.adopted.wait()
            memory.find(FindRequest("anything"))
        yield anna, bob


@pytest.mark.parametrize("large", ["a long conversation", "many notes", "a commit of many notes"])
def test_what_a_user_stores_is_found_at_once_while_much_of_another_waits(
    anna_and_bob: tuple[Runebook, Runebook], large: str
) -> None:
    anna, bob = anna_and_bob
    if large == "a long conversation":
        said(bob, *(f"zebra {number}" for number in range(2_000)))
    elif large == "many notes":
        for number in range(30):
            remember(bob, f"zebra {number}", "facts", topic=f"T{number}")
    else:
        handed_in(bob, write=[write("facts", topic=f"T{number}", content=f"zebra {number}") for number in range(400)])
    catalog, newest = anna.indexer.catalog, anna.store.ledger.newest_seq()
    fresh = remember(anna, "lynx in the garden", "facts")
    said(anna, "a lynx, too", session_id="mine")
    before = catalog.count()
    found = anna.find(FindRequest("lynx"))
    assert [hit.uri for hit in (*found.memories, *found.resources)][:1] == [fresh]
    assert found.total == 2
    assert not any("the index is" in note for note in found.notes)
    assert catalog.count() == before + 2, "what Bob stored was indexed while Anna searched"
    assert fresh.rpartition("/")[2] in anna.read(ReadRequest(f"{USER}/facts/.overview.md")).content
    assert catalog.position().seq < newest
    assert bob.indexer.follow(None) is None
    assert catalog.position().ahead == ()
    assert bob.find(FindRequest("zebra", limit=100)).total >= 30


def test_what_a_client_stores_in_a_shared_space_is_found_at_once_while_much_of_another_waits(
    anna_and_bob: tuple[Runebook, Runebook],
) -> None:
    anna, _ = anna_and_bob
    catalog = anna.indexer.catalog
    with authored("an import"):
        handed_in(anna, write=[write("facts", topic=f"T{number}", content=f"zebra {number}") for number in range(400)])
        said(anna, *(f"zebra {number}" for number in range(2_000)))
    with authored("laptop"):
        fresh = remember(anna, "lynx in the garden", "facts", topic="T7")
        said(anna, "a lynx, too", session_id="mine")
        for _ in range(2):  # a file in each step
            anna.indexer._follower._slice(anna.spaces)
        assert "lynx in the garden" in catalog.own_text(fresh)
        assert catalog.last_said(["viking://session/default/mine/messages.jsonl"]) is not None
        assert catalog.own_texts(["viking://session/default/mine/messages.jsonl#0"])
        for number in range(40):
            remember(anna, f"heron {number}", "facts", topic=f"H{number}")
        before = catalog.count()
        anna.indexer._follower._slice(anna.spaces)
        assert catalog.count() < before + 40  # one step lets others come between, however much is one's own
        said(anna, *(f"heron {number} " * 10 for number in range(30)), session_id="long")
        before = catalog.count()
        for _ in range(3):
            anna.indexer._follower._slice(anna.spaces)
        assert before < catalog.count() < before + 30  # nor however long a conversation is
    assert anna.indexer.follow(None) is None
    assert "lynx in the garden" in catalog.own_text(fresh)
    assert catalog.count() == 400 + 2_000 + 1 + 40 + 30


def test_a_log_that_grows_while_it_is_indexed_in_pieces_loses_no_line(anna_and_bob: tuple[Runebook, Runebook]) -> None:
    anna, _ = anna_and_bob
    words = ["lynx " * 40, "heron " * 40, "zebra " * 40]
    for known in (1, 3):
        said(anna, *words[:known], session_id="grown")
        for _ in range(2):
            anna.indexer._follower._slice(())
    anna.indexer.follow(None)
    parts = "SELECT part FROM documents WHERE uri LIKE '%grown%' ORDER BY part"
    assert anna.indexer.catalog.connection().execute(parts).fetchall() == [(0,), (1,), (2,)]


def test_a_new_index_takes_a_long_conversation_in_steps(anna_and_bob: tuple[Runebook, Runebook]) -> None:
    anna, _ = anna_and_bob
    catalog, follower = anna.indexer.catalog, anna.indexer._follower
    said(anna, *(f"zebra {number} " * 20 for number in range(60)), session_id="long")
    with catalog.writing() as connection:
        catalog.clear(connection)
    for _ in range(4):
        follower._slice(anna.spaces)
    assert 0 < catalog.count() < 60, "one step took all of it, and others waited"
    (begun, lines), before = catalog.position().partial or ("", 0), catalog.count()
    assert (begun, lines) == ("viking://session/default/long/messages.jsonl", before)
    follower._slice(anna.spaces)
    assert catalog.count() > before
    anna.indexer.follow(None)
    assert catalog.count() == 60
    assert catalog.position().partial is None


def test_a_new_index_takes_the_newest_of_each_user_in_turn(anna_and_bob: tuple[Runebook, Runebook]) -> None:
    anna, bob = anna_and_bob
    catalog, follower = anna.indexer.catalog, anna.indexer._follower
    first = remember(anna, "lynx in the garden", "facts")
    handed_in(bob, write=[write("facts", topic=f"T{number}", content=f"zebra {number}") for number in range(400)])
    with catalog.writing() as connection:
        catalog.clear(connection)
    for _ in range(4):  # a file in each step
        follower._slice(())
    assert "lynx" in catalog.own_text(first)
    assert catalog.count() < 10
    anna.indexer.follow(None)
    assert catalog.count() == 401


def test_a_step_of_filling_that_failed_is_taken_again(
    anna_and_bob: tuple[Runebook, Runebook], monkeypatch: pytest.MonkeyPatch
) -> None:
    anna, _ = anna_and_bob
    catalog, follower = anna.indexer.catalog, anna.indexer._follower
    handed_in(anna, write=[write("facts", topic=f"T{number}", content=f"zebra {number}") for number in range(9)])
    with catalog.writing() as connection:
        catalog.clear(connection)
    for _ in range(3):
        follower._slice(())
    put, taken = catalog.put, count()

    def on_a_full_disk(*given: Any) -> None:
        if next(taken) == 3:
            raise StorageFailed("the disk is full.", hint="Make room.")
        put(*given)

    monkeypatch.setattr("memory_core.core.index.follower._SLICE_SECONDS", 60.0)
    monkeypatch.setattr(catalog, "put", on_a_full_disk)
    with pytest.raises(StorageFailed):
        follower._slice(())
    anna.indexer.follow(None)
    assert catalog.count() == 9


def test_a_slice_ends_early_while_another_thread_waits_for_the_catalog(
    anna_and_bob: tuple[Runebook, Runebook], monkeypatch: pytest.MonkeyPatch
) -> None:
    anna, _ = anna_and_bob
    follower, catalog = anna.indexer._follower, anna.indexer.catalog
    monkeypatch.setattr("memory_core.core.index.follower._SLICE_SECONDS", 60.0)
    monkeypatch.setattr("memory_core.core.index.follower._AWAITED_SLICE_SECONDS", 0.0)
    monkeypatch.setattr("memory_core.core.index.follower._SLICE_CHANGES", 100)
    monkeypatch.setattr("memory_core.core.index.follower._SLICE_CHARS", 100_000)
    put = catalog.put

    def write_meanwhile() -> None:
        with catalog.writing():
            pass

    def awaited(*given: Any) -> None:
        put(*given)
        if not catalog.file.is_awaited:
            threading.Thread(target=write_meanwhile).start()
            assert soon(lambda: catalog.file.is_awaited)

    handed_in(anna, write=[write("facts", topic=f"T{number}", content=f"zebra {number}") for number in range(6)])
    with monkeypatch.context() as patched:
        patched.setattr(catalog, "put", awaited)
        follower._slice(())
    assert catalog.count() == 1
    follower._slice(())
    assert catalog.count() == 6
    handed_in(anna, write=[write("facts", topic=f"U{number}", content=f"lynx {number}") for number in range(6)])
    searching = threading.Thread(target=anna.find, args=(FindRequest("lynx"),))
    assert follower._turn.acquire(0)
    try:
        searching.start()
        assert soon(lambda: follower._turn.is_awaited)
        follower._slice(())
        assert catalog.count() == 7
    finally:
        follower._turn.release()
        searching.join()
    assert catalog.count() == 12


def test_two_users_with_clients_of_one_name_each_find_their_own_first(anna_and_bob: tuple[Runebook, Runebook]) -> None:
    for memory in anna_and_bob:
        with authored("an import"):
            many = [write("facts", topic=f"T{number}", content=f"zebra {number}") for number in range(100)]
            handed_in(memory, write=many)
    with authored("laptop"):
        fresh = [remember(memory, "lynx in the garden", "facts", topic="Lynx") for memory in anna_and_bob]
        follower, catalog = anna_and_bob[0].indexer._follower, anna_and_bob[0].indexer.catalog  # as one server has it
        for memory, uri in zip(anna_and_bob, fresh, strict=True):
            follower._slice(memory.spaces)
            assert "lynx in the garden" in catalog.own_text(uri)


def _step(rng: random.Random, memory: Runebook, name: str) -> None:
    """Store, change, archive or delete something of one user."""
    number = rng.randrange(6)
    uri = f"viking://user/{memory.config.user_space}/memories/facts/T{number}.md"
    what = rng.choice(["note", "talk", "talk", "notes", "delete", "by hand", "archive"])
    log = MemoryUri.parse(f"viking://session/{memory.config.user_space}/s{number % 2}/messages.jsonl")
    if what == "note":
        remember(memory, f"{name} says {rng.random()}", "facts", topic=f"T{number}")
    elif what == "talk":
        words = [f"{name} told {rng.random()} " * rng.randrange(1, 12) for _ in range(rng.randrange(1, 9))]
        said(memory, *words, session_id=f"s{number % 2}")
    elif what == "notes":
        topics = [f"T{rng.randrange(6)}" for _ in range(rng.randrange(1, 8))]
        handed_in(memory, write=[write("facts", topic=topic, content=f"{rng.random()}") for topic in topics])
    elif memory.store.ledger.sha256_of(MemoryUri.parse(uri)) is None:
        return
    elif what == "delete":
        memory.commit(CommitRequest(operations={"delete_operations": [{"uri": uri}]}))
    elif what == "archive":
        memory.run(ARCHIVE, ArchiveRequest(uris=[uri]))
    elif text := memory.store.text(log):  # somebody deletes its first line
        memory.store.files.path_for(log).write_text(text.partition("\n")[2], encoding="utf-8")
        memory.store.adopt()


@pytest.mark.parametrize("seed", range(12))
def test_whoever_searches_first_the_index_is_the_same_in_the_end(
    anna_and_bob: tuple[Runebook, Runebook], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        memory = rng.choice(anna_and_bob)
        with authored(rng.choice(["", "laptop", "phone"])):
            if rng.random() < 0.75:
                _step(rng, memory, memory.config.user_space)
            elif rng.random() < 0.1:  # the index is lost, and filled again while both go on
                with memory.indexer.catalog.writing() as connection:
                    memory.indexer.catalog.clear(connection)
            else:
                memory.indexer._follower._slice(rng.choice([memory.spaces, memory.spaces[:1], ()]))
    anna, bob = anna_and_bob
    assert soon(lambda: not any((anna.store.adopt(), anna.store.adoption.left, bob.store.adoption.left)))
    anna.indexer.follow(None)
    stepwise = everything(anna)
    monkeypatch.undo()
    with anna.indexer.catalog.writing() as connection:
        anna.indexer.catalog.clear(connection)
    anna.indexer.follow(None)
    assert everything(anna) == stepwise


# Filters


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Any], set[str]]]:
    """A store of zebras, and what a filter leaves of them."""

    def kept(topic: str, at: str, memory_type: str = "facts", **members: Any) -> None:
        data = {"memory_type": memory_type, "fields": {"topic": topic, "content": f"zebra 斑马 {topic}"}, **members}
        written(opened, data, now=datetime.fromisoformat(at))

    def topics(found: FindResult) -> set[str]:
        return {hit.uri.rpartition("/")[2].removesuffix(".md") for hit in found.hits}

    with open_memory(words_only(tmp_path_factory.mktemp("zoo"))) as opened:
        kept("old", "2025-12-31T23:30:00+00:00", salience=0.2, tags=["动物", "Stripes"])
        kept("new", "2026-03-17T10:00:00+08:00", salience=0.9, category="work")
        kept("last", "2026-03-18T00:00:00+00:00", "preferences", tags=["stripes"])
        talk = {"role": "user", "name": "Ann", "content": "zebra talk", "time": "2026-03-17T09:00:00+00:00"}
        opened.commit(CommitRequest(messages=[talk], session_id="s1"))
        yield lambda tree: topics(opened.find(FindRequest("zebra", filter=tree, limit=50)))


TALK = "messages.jsonl#0"


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (None, {"old", "new", "last", TALK}),
        ({}, {"old", "new", "last", TALK}),
        ({"memory_type": "facts"}, {"old", "new"}),
        ({"memory_type": {"ne": "facts"}}, {"last", TALK}),
        ({"memory_type": {"in": ["preferences", "message"]}}, {"last", TALK}),
        ({"not": {"memory_type": "facts"}}, {"last", TALK}),
        ({"and": [{"memory_type": "facts"}, {"salience": {"gte": 0.5}}]}, {"new"}),
        ({"or": [{"category": "work"}, {"salience": {"lt": 0.3}}]}, {"new", "old"}),
        ({"memory_type": "facts", "salience": {"gt": 0.1, "lt": 0.3}}, {"old"}),
        ({"category": {"contains": "WOR"}}, {"new"}),
        ({"category": None}, {"old", "last", TALK}),
        ({"not": {"category": "work"}}, {"old", "last", TALK}),
        ({"tags": "动物"}, {"old"}),
        ({"tags": {"in": ["stripes", "x"]}}, {"old", "last"}),
        ({"tags": {"ne": "stripes"}}, {"new", TALK}),
        ({"time": {"gte": "2026"}}, {"new", "last", TALK}),
        ({"time": {"gt": "2026-03-17"}}, {"last"}),
        ({"time": {"lte": "2026-03-17"}}, {"old", "new", TALK}),
        ({"time": "2026-03-17"}, {"new", TALK}),
        ({"time": {"gte": "2026-03", "lt": "2026-03-18"}}, {"new", TALK}),
        ({"created_at": {"lt": "2026-03-17T11:00:00+08:00"}}, {"old", "new"}),
        ({"created_at": {"gte": "2026-03-17T08:59:59Z"}}, {"last", TALK}),
        ({"role": "user"}, {TALK}),
        ({"speaker": "Ann"}, {TALK}),
        ({"session_id": "s1"}, {TALK}),
        ({"context_type": "memory"}, {"old", "new", "last"}),
        ({"uri": {"contains": "/facts/"}}, {"old", "new"}),
        ({"memory_type": "facts' OR '1'='1"}, set()),
        ({"memory_type": "FACTS"}, set()),
    ],
)
def test_a_filter_keeps_what_it_says(zoo: Callable[[Any], set[str]], tree: Any, expected: set[str]) -> None:
    assert zoo(tree) == expected


def _deep(levels: int) -> dict[str, Any]:
    tree: dict[str, Any] = {"memory_type": "facts"}
    for _ in range(levels):
        tree = {"not": tree}
    return tree


@pytest.mark.parametrize(
    "tree",
    [
        [],
        "facts",
        {"colour": "red"},
        {"memory_type": {"like": "f%"}},
        {"memory_type": {}},
        {"memory_type": ["facts"]},
        {"memory_type": 7},
        {"memory_type": 10**30},
        {"memory_type": {"gt": None}},
        {"memory_type": {"in": []}},
        {"memory_type": {"in": "facts"}},
        {"memory_type": "\ud800"},
        {"and": []},
        {"and": {"memory_type": "facts"}},
        {"or": [{}]},
        {"not": {}},
        {"salience": "high"},
        {"salience": {"gt": 2}},
        {"salience": float("nan")},
        {"salience": 10**400},
        {"salience": True},
        {"tags": {"gt": "a"}},
        {"tags": None},
        {"active": {"contains": True}},
        {"salience": {"contains": 0.5}},
        {"active": "no"},
        {"pinned": 1},
        {"confidence": 2},
        {"expires_at": "soon"},
        {"time": 2026},
        {"time": "yesterday"},
        {"time": "2026-13"},
        {"time": "2026-02-30"},
        {"time": {"gte": "2026-3-7"}},
        {"time": "20261"},
        {"d.uri) OR (1": "1"},
        _deep(40),
    ],
)
def test_a_filter_that_means_nothing_is_refused_with_an_example(tree: Any) -> None:
    with pytest.raises(InvalidFilter) as caught:
        compile_filter(tree)
    assert caught.value.hint


def test_the_error_about_a_missing_value_names_no_operator_that_was_not_given() -> None:
    with pytest.raises(InvalidFilter) as caught:
        compile_filter({"tags": {"in": [None]}})
    assert caught.value.message == "the test of 'tags' needs a value."


@pytest.mark.parametrize(
    "tree",
    [
        {"and": [{"tags": "a"}] * 501 + [{"colour": "red"}]},
        {"or": [{"and": [{"tags": "a"}] * 300}, {"not": {"tags": {"in": ["a"] * 201}}}, {"colour": "red"}]},
        {"tags": {"in": ["a"] * 501 + [7]}},
    ],
)
def test_a_filter_of_too_many_values_is_read_no_further(tree: Any) -> None:
    with pytest.raises(InvalidFilter, match="compares more than 500 values"):
        compile_filter(tree)


def test_a_filter_finds_the_one_match_among_very_many(memory: Runebook) -> None:
    words = random.Random(7)
    others = ("".join(words.choices(string.ascii_lowercase, k=6)) for _ in range(300))
    writes = [write("facts", topic=f"zebra {number}", content=f"zebra {word}") for number, word in enumerate(others)]
    handed_in(memory, write=[*writes, write("tasks", title="rare", content="long " * 50 + "zebra")])
    assert [hit.uri for hit in memory.find(FindRequest("zebra", filter={"memory_type": "tasks"})).hits] == [
        f"{USER}/tasks/rare.md"
    ]


def test_vectors_of_texts_that_are_gone_are_pruned_once_they_are_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "_FEWEST_PRUNED", 1_000)
    with open_memory(Config(home=tmp_path)) as memory:
        for number in range(8):
            replaced(memory, "facts", f"It rained on day {number}. 第{number}天下雨。", topic="weather")
            memory.indexer.embed_all()
        embedder, catalog = memory.indexer.embedder, memory.indexer.catalog
        assert embedder is not None
        space = ("user/default", embedder.fingerprint)
        assert len(vectors.dead(catalog.connection(), *space)) == 7
        memory.indexer._prune(*space)
        assert len(vectors.dead(catalog.connection(), *space)) == 7
        monkeypatch.setattr(indexer, "_FEWEST_PRUNED", 3)
        memory.indexer._prune(*space)
        assert vectors.dead(catalog.connection(), *space) == []
        assert vectors.count(catalog.connection(), *space) == 1
        assert "day 7" in memory.find(FindRequest("雨", rank="relevance")).hits[0].abstract


@pytest.mark.parametrize("version", [1, 4, 6, 10])
def test_catalog_of_an_older_program_is_made_anew_and_keeps_its_vectors(tmp_path: Path, version: int) -> None:
    settings = Config(home=tmp_path)
    with open_memory(settings) as memory:
        remember(memory, "The ferry leaves at seven 渡轮七点开")
        memory.indexer.embed_all()
        before = everything(memory)
        (vectors_before,) = memory.indexer.catalog.connection().execute("SELECT count(*) FROM vectors").fetchone()
    assert vectors_before
    with closing(sqlite3.connect(tmp_path / ".state/index.sqlite3", isolation_level=None)) as older:
        older.execute("ALTER TABLE documents DROP COLUMN active")
        older.execute(f"PRAGMA user_version={version}")
    with open_memory(settings) as memory:
        assert everything(memory) == before
        assert memory.indexer.embed_all() == (vectors_before, vectors_before)
        (kept,) = memory.indexer.catalog.connection().execute("SELECT count(*) FROM vectors").fetchone()
        assert kept == vectors_before
        assert memory.find(FindRequest("渡轮")).total == 1
    assert not list((tmp_path / ".state").glob("*.damaged-*"))


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"active": False}, ["rest"]),
        ({"active": True}, ["plain", "pinned", "doubt"]),
        ({"pinned": True}, ["pinned"]),
        ({"confidence": {"lt": 0.5}}, ["doubt"]),
        ({"confidence": {"gte": 0.5}}, ["plain", "pinned"]),  # what says nothing is sure
        ({"expires_at": {"gte": "2027"}}, ["plain"]),
    ],
)
def test_standing_of_memories_can_be_asked_for(
    memory: Runebook, condition: dict[str, Any], expected: list[str]
) -> None:
    standings: dict[str, dict[str, Any]] = {
        "plain": {"expires_at": "2027-05-01"},
        "pinned": {"pinned": True},
        "rest": {"active": False},
        "doubt": {"confidence": 0.4},
    }
    fields = {name: {"title": name, "content": f"tea 茶 {name}"} for name in standings}
    written(memory, *({"memory_type": "notes", "fields": fields[n], **standings[n]} for n in standings), now=NOW)
    hits = memory.find(FindRequest("tea 茶", filter=condition, now=NOW)).hits
    assert sorted(hit.uri.rpartition("/")[2].removesuffix(".md") for hit in hits) == sorted(expected)


ROWS = {
    "documents": "INSERT INTO documents ({}, part, context_type, memory_type, name, abstract, own, salience, tags, "
    "private, contested_by, signature, confidence, active, pinned, support) "
    "VALUES (?, ?, 9, 'memory', '', '', '', '', 0, '', 0, '', '', 0, 1, 0, 0)",
    "passages": "INSERT INTO passages ({}, document_id, part, text, content_sha256) VALUES (?, ?, 1, 9, '', '')",
    "vectors": "INSERT INTO vectors ({}, part, content_sha256, fingerprint, vector) VALUES (?, ?, 9, '', '', '')",
}


@pytest.mark.parametrize("table", ROWS)
def test_the_state_of_a_space_is_another_once_anything_of_it_came_changed_or_went_and_only_then(
    memory: Runebook, table: str
) -> None:
    memory.view("bob", "bob").commit(CommitRequest("Bob's."))
    remember(memory, "Mine.")
    memory.indexer.follow(None)
    memory.indexer.stop()
    catalog = memory.indexer.catalog
    seen = {catalog.state(["user/bob"])}
    statements = [
        ROWS[table].format("uri, space"),
        f"DELETE FROM {table} WHERE uri = ? AND space = ?",
    ]
    if table == "documents":
        statements.insert(1, "UPDATE documents SET active = 0 WHERE uri = ? AND space = ?")
    if table == "passages":
        statements.insert(1, "UPDATE passages SET document_id = 8 WHERE uri = ? AND space = ?")
    for number, statement in enumerate(statements, 2):
        for space in ("user/default", "user/bob"):
            with catalog.writing() as connection:
                connection.execute(statement, (f"viking://{space}/x.md", space))
            if space == "user/default":
                assert catalog.state(["user/bob"]) in seen
        seen.add(catalog.state(["user/bob"]))
        assert len(seen) == number
    with catalog.writing() as connection:
        catalog.clear(connection)
    assert catalog.state(["user/bob"]) not in seen
