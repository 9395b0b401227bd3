"""A store moves from a folder to a database and back: nothing is lost, changed or half there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.config import Config, EmbeddingConfig, StoreConfig
from memory_core.core.conversation_notes import last_read, note_passed_over, note_read
from memory_core.core.errors import InvalidInput
from memory_core.core.memory.requests import CommitRequest, FindRequest, ListRequest, ReadRequest
from memory_core.core.memory.results import Status, as_json
from memory_core.core.private_times import PrivateTimes, note_private
from memory_core.core.store.issued_tokens import SharedSpace
from memory_core.features.export import Selection, export
from memory_core.features.history import HISTORY, HistoryRequest
from memory_core.features.purge import PURGE, PurgeRequest
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.move import _shown, move
from memory_core.runebook import Runebook, open_memory
from tests.stores import files_below, remember

pytest.importorskip("psycopg")
QUESTIONS = ("gulls", "where is the boat", "谁住在杭州", "what did we say about the harbour")


def config_of(home: Path, url: str = "") -> Config:
    return Config(home=home, store=StoreConfig(url=url), embedding=EmbeddingConfig(provider="none"))


def lived(memory: Runebook) -> None:
    """A bit of everything that leaves something behind."""
    for number in range(30):
        remember(memory, f"Gull {number}.", "notes", title=f"gull {number}")
    remember(memory, "The boat is in the harbour. 小林住在杭州。", title="boat", request_id="r-1")
    remember(memory, "The boat is blue.", title="boat")
    gone = memory.commit(CommitRequest("Nobody may know.", fields={"title": "secret"}))
    memory.run(PURGE, PurgeRequest(gone.results[0].uri))
    wrong = memory.commit(CommitRequest("Wrong.", fields={"title": "wrong"}))
    memory.run(UNDO, UndoRequest(wrong.commit_id))
    said = [{"role": "user", "content": "We spoke about the harbour."}, {"role": "assistant", "content": "So we did."}]
    memory.commit(CommitRequest(messages=said, session_id="s1"))
    memory.commit(CommitRequest(messages=[*said, {"role": "user", "content": "And the gulls?"}], session_id="s1"))
    memory.find(FindRequest("gulls"))
    memory.store.usage.flush()


def known(memory: Runebook) -> list[Any]:
    """What the store says of its past, its queue and its counts."""
    rows = memory.store.ledger.database.connection()
    return [
        [as_json(entry) for entry in memory.run(HISTORY, HistoryRequest(limit=1_000))],
        *(
            sorted(map(tuple, rows.execute(asked).fetchall()), key=repr)
            for asked in (
                "SELECT uri, access_count, last_accessed_at FROM usage",
                "SELECT log, stored, extracted, briefed, seen, since, attempts FROM extractions",
                "SELECT commit_id, request_id, receipt FROM commits",
                "SELECT at, query, kind, hits FROM trail",
                "SELECT directory, memories FROM directories WHERE memories > 0",
            )
        ),
    ]


def recalled(memory: Runebook) -> list[Any]:
    memory.indexer.follow(None)  # a search does not wait longer than it may
    return [[(hit.uri, hit.score) for hit in memory.find(FindRequest(question)).hits] for question in QUESTIONS]


def sizes(memory: Runebook) -> list[tuple[str, int, str]]:
    """Size and time of each note, as a listing shows them."""
    listed = memory.ls(ListRequest("viking://user/default/memories/notes", "original"))
    return [(entry.uri, entry.size, entry.updated_at) for entry in listed.entries]


def files_of(home: Path) -> dict[str, bytes]:
    found = ((path.relative_to(home), content) for path, content in files_below(home))
    return {path.as_posix(): content for path, content in found if path.parts[0] != ".state"}


def written_in(home: Path) -> dict[str, bytes]:
    """The files without the pages of directories, which the background makes when it comes to it."""
    return {name: content for name, content in files_of(home).items() if b"<!-- generated" not in content}


@pytest.fixture
def lived_in(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    with open_memory(config_of(home)) as memory:
        lived(memory)
    return home


def test_there_and_back_are_the_same_files_the_same_past_and_the_same_recall(
    lived_in: Path, tmp_path: Path, database: str
) -> None:
    with open_memory(config_of(lived_in)) as memory:
        token, _ = memory.opened.tokens().issue("anna", user_space="default", agent_space="default")
        hits = recalled(memory)
        memory.store.usage.flush()
        past, texts = known(memory), sizes(memory)
        assert all(size and changed_at for _, size, changed_at in texts)
    there = move(config_of(lived_in), database)
    with open_memory(config_of(tmp_path / "cache", database)) as memory:
        assert known(memory) == past
        assert recalled(memory) == hits
        assert sizes(memory) == texts
        assert memory.opened.tokens().verify(token) is not None
        again = CommitRequest("The boat is in the harbour. 小林住在杭州。", fields={"title": "boat"}, request_id="r-1")
        assert memory.commit(again).notes == ("repeated request_id",)
        memory.store.usage.flush()
        past = known(memory)
    back = move(config_of(tmp_path / "cache", database), str(tmp_path / "back"))
    assert (back.files, back.commits, back.tokens) == (there.files, there.commits, 1)
    with open_memory(config_of(tmp_path / "back")) as memory:
        assert known(memory) == past
        assert recalled(memory) == hits
        assert memory.opened.tokens().verify(token) is not None
    with open_memory(config_of(lived_in)) as memory:
        memory.indexer.follow(None)
    assert files_of(tmp_path / "back") == files_of(lived_in)


def test_what_was_said_in_private_stays_out_after_a_move_to_another_folder(
    lived_in: Path, tmp_path: Path, database: str
) -> None:
    move(config_of(lived_in), database)
    state, message = tmp_path / "cache" / ".state", {"role": "user", "content": "Nobody may know."}
    note_private(state, "/work", 1, private=True, now=1_000.0)
    note_private(state, "/work", 1, private=False, now=2_000.0)
    note_passed_over(state, "talk", [message])
    note_read(state, "talk", 3_000.0, "/work")
    move(config_of(tmp_path / "cache", database), str(tmp_path / "back"))
    private = PrivateTimes(tmp_path / "back" / ".state", ["/work"], "talk")
    assert private.cover({"timestamp": "1970-01-01T00:20:00Z"})
    assert private.cover(message)
    assert last_read(tmp_path / "back" / ".state", "talk") == (3_000.0, "/work")


@pytest.mark.parametrize("back", [False, True])
def test_what_was_done_before_a_move_is_undone_after_it(
    lived_in: Path, tmp_path: Path, database: str, back: bool
) -> None:
    move(config_of(lived_in), database)
    config = config_of(tmp_path / "cache", database)
    if back:
        move(config, str(tmp_path / "back"))
        config = config_of(tmp_path / "back")
    with open_memory(config) as memory:
        uri = "viking://user/default/memories/notes/boat.md"
        blue = next(iter(memory.run(HISTORY, HistoryRequest(uri))))
        assert "blue" in memory.read(ReadRequest(uri)).content
        assert memory.run(UNDO, UndoRequest(blue.commit_id)).status is not Status.REJECTED
        assert "blue" not in memory.read(ReadRequest(uri)).content
        assert "harbour" in memory.read(ReadRequest(uri)).content


_KILLED = """
import os, signal, sys
from pathlib import Path
from memory_core import move as moving
from memory_core.core.config import Config, StoreConfig

def tell(what, *_numbers, **_named):
    if what == "comparing":
        os.kill(os.getpid(), signal.SIGKILL)

moving.tell = tell
user = sys.argv[4] if len(sys.argv) > 4 else "default"
moving.move(Config(home=Path(sys.argv[1]), store=StoreConfig(url=sys.argv[2])).with_spaces(user, user), sys.argv[3])
"""


def test_a_move_that_was_killed_left_nothing_and_is_done_when_it_is_started_again(
    lived_in: Path, tmp_path: Path, database: str
) -> None:
    for config, to in (
        (config_of(lived_in), database),
        (config_of(tmp_path / "cache", database), str(tmp_path / "back")),
    ):
        killed = subprocess.run([sys.executable, "-c", _KILLED, str(config.home), config.store.url, to], check=False)
        assert killed.returncode == -9
        if to == database:
            with open_memory(config_of(tmp_path / "cache", database)) as memory:
                assert memory.store.ledger.newest_seq() == 0
        else:
            assert not Path(to).exists()
        assert move(config, to).files > 30
        with pytest.raises(InvalidInput, match=r"already|not empty"):
            move(config, to)


def test_a_move_that_is_refused_brings_no_token_along(lived_in: Path, tmp_path: Path, database: str) -> None:
    with open_memory(config_of(lived_in)) as memory:
        memory.opened.tokens().issue("phone", user_space="default", agent_space="default")
    with open_memory(config_of(tmp_path / "cache", database)) as memory:
        remember(memory, "Somebody is here already.", "notes")
        with pytest.raises(InvalidInput, match="already"):
            move(config_of(lived_in), database)
        assert memory.opened.tokens().rows() == []


def test_only_the_users_own_tokens_come_along_and_open_nothing_shared(
    lived_in: Path, tmp_path: Path, database: str
) -> None:
    team = SharedSpace("team")
    with open_memory(config_of(lived_in)) as memory:
        tokens = memory.opened.tokens()
        own, _ = tokens.issue("own", user_space="default", agent_space="default", shared=[team])
        guest, _ = tokens.issue("guest", user_space="anna", agent_space="anna")
    moved = move(config_of(lived_in), database)
    assert (moved.tokens, moved.tokens_left) == (1, 1)
    with open_memory(config_of(tmp_path / "cache", database)) as memory:
        there = memory.opened.tokens()
        row = there.verify(own)
        assert row is not None
        assert row.shared == ()
        assert there.verify(guest) is None


def test_a_token_that_was_revoked_after_a_move_broke_off_is_revoked_there(
    lived_in: Path, tmp_path: Path, database: str
) -> None:
    with open_memory(config_of(lived_in)) as memory:
        token, _ = memory.opened.tokens().issue("phone", user_space="default", agent_space="default")
        left = memory.opened.tokens().dump("default")
    with open_memory(config_of(tmp_path / "cache", database)) as memory:
        memory.opened.tokens().take_in(left)  # a move brings tokens first
    with open_memory(config_of(lived_in)) as memory:
        memory.opened.tokens().revoke("phone")
    move(config_of(lived_in), database)
    with open_memory(config_of(tmp_path / "cache", database)) as memory:
        assert memory.opened.tokens().verify(token) is None


def test_a_folder_of_users_of_whom_one_has_only_agent_memories_is_refused(lived_in: Path, database: str) -> None:
    with open_memory(config_of(lived_in)) as memory:
        memory.opened.tokens().issue("bob", user_space="bob", agent_space="bob")
    bobs = config_of(lived_in).model_copy(update={"user_space": "bob", "agent_space": "bob"})
    with open_memory(bobs) as memory:
        remember(memory, "Prune the cache.", "cases", case_name="Disk full")
    with pytest.raises(InvalidInput, match="others than 'default': bob"):
        move(config_of(lived_in), database)


def test_neither_a_move_nor_its_refusal_shows_the_password(lived_in: Path, database: str) -> None:
    to = database.replace("postgresql:///", "postgresql://:s3cret@/")
    assert to != database
    assert move(config_of(lived_in), to).to == database.replace("///", "//@/").partition("?")[0]
    with pytest.raises(InvalidInput, match="already") as refused:
        move(config_of(lived_in), to)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:s3cret@db.example:5432/runebook?sslmode=require", "postgresql://me@db.example:5432/runebook"),
        ("postgresql://me:a:b?c@db/runebook", "postgresql://me@db/runebook"),
        ("postgres://me@db/runebook", "postgres://me@db/runebook"),
        ("postgresql://[::1]:5432/runebook", "postgresql://[::1]:5432/runebook"),
        ("postgresql:///runebook?password=s3cret", "postgresql:///runebook"),
    ],
)
def test_where_a_move_goes_is_shown_without_the_password(url: str, shown: str) -> None:
    assert _shown(url) == shown


@pytest.mark.slow
def test_several_users_with_thousands_of_memories_move_there_and_back(tmp_path: Path, database: str) -> None:
    """Anna has 5,000 memories, Bob a few; each comes back byte for byte, also from moves that were killed."""
    homes = {user: tmp_path / user for user in ("anna", "bob")}
    for user, batches in (("anna", 25), ("bob", 2)):
        with open_memory(config_of(homes[user]).with_spaces(user, user)) as memory:
            lived_long(memory, batches)
    for user, home in homes.items():
        source, cache = config_of(home).with_spaces(user, user), tmp_path / f"cache-{user}"
        with open_memory(source) as memory:
            hits = recalled(memory)
            memory.store.usage.flush()
            past = known(memory)
        rows = config_of(cache, database).with_spaces(user, user)
        back = config_of(tmp_path / f"back-{user}").with_spaces(user, user)
        for moved, to in ((source, database), (rows, str(back.home))):
            command = [sys.executable, "-c", _KILLED, str(moved.home), moved.store.url, to, user]
            assert subprocess.run(command, check=False).returncode == -9
            move(moved, to)
            with open_memory(rows if to == database else back) as memory:
                assert known(memory) == past
                assert recalled(memory) == hits
                memory.store.usage.flush()
                past = known(memory)
        assert written_in(back.home) == written_in(home)
        with open_memory(back) as memory:
            (last, *_) = memory.run(HISTORY, HistoryRequest(limit=1))
            assert memory.run(UNDO, UndoRequest(last.commit_id)).status is Status.COMMITTED
            assert (
                "twice" not in memory.read(ReadRequest(f"viking://user/{user}/memories/notes/note 0 of 0.md")).content
            )


def lived_long(memory: Runebook, batches: int) -> None:
    """Many memories, some of them changed, and deleted, in many commits."""
    space = memory.config.user_space
    for batch in range(batches):
        notes = [
            {"memory_type": "notes", "fields": {"title": f"note {number} of {batch}", "content": _said(batch, number)}}
            for number in range(200)
        ]
        writes = [{"memory_data": note} for note in notes]
        assert memory.commit(CommitRequest(operations={"write_operations": writes})).status is Status.COMMITTED
    for batch in range(batches):
        uri = f"viking://user/{space}/memories/notes/note {{}} of {batch}.md"
        patch = "<<<<<<< SEARCH\nboat\n=======\nship\n>>>>>>> REPLACE"
        edits = [{"uri": uri.format(number), "patches": {"content": patch}} for number in range(1, 20)]
        gone = [{"uri": uri.format(number)} for number in range(190, 195)]
        memory.commit(CommitRequest(operations={"edit_operations": edits, "delete_operations": gone}))
    remember(memory, "Asked twice.", "notes", title="note 0 of 0")


def _said(batch: int, number: int) -> str:
    return f"Gull {number} sat on boat {batch * 200 + number} in the harbour. 小林住在杭州。"


def test_a_folder_of_several_users_is_not_moved(lived_in: Path, database: str) -> None:
    with open_memory(config_of(lived_in)) as memory:
        remember(memory.view("bob"), "Bob's.", title="his")
    with pytest.raises(InvalidInput, match="bob"):
        move(config_of(lived_in), database)


def test_a_folder_with_files_that_are_not_utf8_is_refused_with_their_names(
    lived_in: Path, tmp_path: Path, database: str
) -> None:
    notes = lived_in / "user/default/memories/notes"
    (notes / "gbk.md").write_bytes("港口的密码在抽屉里。".encode("gbk"))
    (notes / "photo.jpg").write_bytes(b"\xff\xd8\xff\xe0\x10JFIF")
    (notes / "mark.md").write_bytes("A mark of its own: \ufffd.\n".encode())
    with pytest.raises(
        InvalidInput, match=r"not UTF-8: viking://\S+/gbk\.md, viking://\S+/photo\.jpg\. Next"
    ) as refused:
        move(config_of(lived_in), database)
    assert "Save them as UTF-8, or move them out" in refused.value.hint
    with open_memory(config_of(tmp_path / "cache", database)) as memory:
        assert memory.store.ledger.newest_seq() == 0
    (notes / "gbk.md").write_bytes("港口的密码在抽屉里。".encode())
    (notes / "photo.jpg").rename(tmp_path / "photo.jpg")
    move(config_of(lived_in), database)
    move(config_of(tmp_path / "cache", database), str(tmp_path / "back"))
    here, there = files_of(lived_in), files_of(tmp_path / "back")
    assert there == {name: content for name, content in here.items() if name in there}
    assert {name.rpartition("/")[2] for name in here.keys() - there.keys()} == {".abstract.md", ".overview.md"}


def test_a_folder_from_which_a_file_that_was_not_utf8_vanished_is_refused(
    lived_in: Path, tmp_path: Path, database: str
) -> None:
    (lived_in / "user/default/memories/notes/gbk.md").write_bytes("港口".encode("gbk"))
    with open_memory(config_of(lived_in)) as memory:
        memory.store.adopt()
    for scope in ("user", "session", "agent"):
        if (lived_in / scope).exists():
            (lived_in / scope).rename(tmp_path / scope)
    with pytest.raises(InvalidInput, match=r"not UTF-8: viking://\S+/gbk\.md\. Next") as refused:
        move(config_of(lived_in), database)
    assert "--forget-missing" in refused.value.hint


def test_a_text_that_an_older_move_brought_from_a_file_that_was_not_utf8_is_exported(
    lived_in: Path, tmp_path: Path, database: str
) -> None:
    (lived_in / "user/default/memories/notes/mark.md").write_bytes("A mark: \ufffd.\n".encode())
    move(config_of(lived_in), database)
    with open_memory(config_of(tmp_path / "cache", database)) as memory:
        with memory.store.ledger.database.writing() as rows:
            rows.execute("UPDATE files SET size_bytes = 1")
        done = export(memory, tmp_path / "out.jsonl", Selection())
    assert (done.left_out, "A mark: \ufffd" in (tmp_path / "out.jsonl").read_text("utf-8")) == ([], True)
