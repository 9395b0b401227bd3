"""A memory folder that was copied by whatever means opens, loses nothing, and accuses nobody of an edit."""

from __future__ import annotations

import os
import shutil
import subprocess
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memory_core.core.memory.requests import CommitRequest, FindRequest, ListRequest, ReadRequest
from memory_core.core.memory.trailer import split
from memory_core.core.memory.uri import MemoryUri
from memory_core.features.undo import UNDO, UndoRequest
from tests.features.moving import PAYMENTS, opened, run
from tests.kept import kept_files
from tests.stores import body, by_hand, entity, said

USER = "viking://user/default/memories"
CAFE = f"{USER}/entities/Café Zürich.md"
LOG = "viking://session/default/trip/messages.jsonl"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with opened(tmp_path / "home") as memory:
        entity(memory, "支付系统", "数据库是 TiDB。\n双活。")
        entity(memory, "Café Zürich", "Closed on Sundays.")
        for number in range(8):
            memory.commit(CommitRequest(f"笔记 number {number}: buy {number} lamps"))
        said(memory, "我们五月去大阪。", session_id="trip")
    return tmp_path / "home"


def with_line_ends_of_windows(home: Path) -> None:
    for path in [path for path in home.rglob("*") if path.is_file() and ".state" not in path.parts]:
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


def with_decomposed_names(home: Path) -> None:
    for path in sorted((path for path in home.rglob("*") if ".state" not in path.parts), reverse=True):
        path.rename(path.with_name(unicodedata.normalize("NFD", path.name)))


def without_times(home: Path) -> None:
    for path in home.rglob("*"):
        os.utime(path, (1e9, 1e9))


def with_stale_locks(home: Path) -> None:
    for path in (home / ".state" / "locks").iterdir():
        path.write_text("12345", encoding="utf-8")
    (home / ".state" / "locks" / "session-left-behind.lock").write_text("1", encoding="utf-8")


def without_index(home: Path) -> None:
    (home / ".state" / "index.sqlite3").unlink()


def readable_only(home: Path) -> None:
    for path in home.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)


@pytest.fixture
def writable_again(tmp_path: Path) -> Iterator[None]:
    yield
    for path in tmp_path.rglob("*"):
        if path.is_dir():
            path.chmod(0o755)


@pytest.mark.usefixtures("writable_again")
@pytest.mark.parametrize(
    "changed",
    [with_line_ends_of_windows, with_decomposed_names, without_times, with_stale_locks, without_index, readable_only],
)
def test_a_copied_store_opens_whole_and_nobody_edited_it(
    home: Path, tmp_path: Path, changed: Callable[[Path], None]
) -> None:
    before = kept_files(home)
    copy = Path(shutil.copytree(home, tmp_path / "other machine" / "记忆"))
    changed(copy)
    with opened(copy) as memory:
        newest = memory.store.ledger.newest_seq()
        assert memory.store.adopt() == 0
        assert memory.store.ledger.newest_seq() == newest
        assert [row.kind for row in memory.store.ledger.history() if row.kind == "external"] == []
        for query, uri in (("TiDB", PAYMENTS), ("Closed Sundays", CAFE)):
            assert memory.find(FindRequest(query)).memories[0].uri == uri
            assert memory.read(ReadRequest(uri)).content
        assert memory.find(FindRequest("大阪")).resources
        listed = {entry.uri for entry in memory.ls(ListRequest(f"{USER}/entities")).entries}
        assert listed == {PAYMENTS, CAFE}
        for uri in memory.store.ledger.stats():
            text = memory.store.text(MemoryUri.parse(uri))
            assert text is not None
            assert text.replace("\r\n", "\n").encode() == before[uri.removeprefix("viking://")]
        edit = {"uri": PAYMENTS, "patches": {"content": [{"search": "TiDB", "replace": "OceanBase"}]}}
        assert memory.commit(CommitRequest(operations={"edit_operations": [edit]})).status == "committed"
        assert "OceanBase" in memory.read(ReadRequest(PAYMENTS)).content
        assert memory.store.adopt() == 0
        more = memory.commit(CommitRequest(messages=[{"role": "user", "content": "带上孩子。"}], session_id="trip"))
        assert more.usage == {"messages": 1, "messages_new": 1}
        entity(memory, "Café Zürich", "Open again.")
        assert memory.read(ReadRequest(CAFE)).content.startswith("Closed on Sundays.\nOpen again.")
    with opened(copy) as memory:
        assert memory.store.adopt() == 0
        assert memory.find(FindRequest("OceanBase")).memories[0].uri == PAYMENTS
    names = [unicodedata.normalize("NFC", path.name) for path in copy.rglob("Caf*")]
    assert names == ["Café Zürich.md"]  # no second file under the other spelling


def test_a_store_without_its_machine_files_is_taken_in_anew(home: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(home, tmp_path / "copy", ignore=shutil.ignore_patterns(".state")))
    with_decomposed_names(copy)
    before = kept_files(copy)
    with opened(copy) as memory:
        memory.store.adopt()
        memory.indexer.follow()
        assert memory.find(FindRequest("TiDB")).memories[0].uri == PAYMENTS
        assert memory.read(ReadRequest(CAFE)).content.startswith("Closed")
        assert memory.find(FindRequest("大阪")).resources
    assert kept_files(copy) == before


def test_a_ledger_moved_without_its_files_records_no_deletion_and_says_so(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(home / ".state", tmp_path / "copy" / ".state")
    with opened(tmp_path / "copy") as memory:
        newest = memory.store.ledger.newest_seq()
        memory.store.adopt()
        memory.store.adopt()
        assert memory.store.ledger.newest_seq() == newest
        assert memory.find(FindRequest("TiDB")).memories[0].uri == PAYMENTS
    assert caplog.text.count("are gone from copy all at once") == 1
    assert "restore --missing" in caplog.text
    with opened(tmp_path / "copy") as memory:  # the next start neither forgets nor asks again
        memory.commit(CommitRequest("written meanwhile 期间写的"))
        memory.store.adopt()
        assert [row.kind for row in memory.store.ledger.history() if row.kind == "external"] == []
        written = memory.store.bring_back_vanished()
        assert MemoryUri.parse(PAYMENTS) in written
        assert memory.store.adopt() == 0
        assert memory.find(FindRequest("期间")).total == 1
    arrived, original = kept_files(tmp_path / "copy"), kept_files(home)
    kept = {name for name in original if not name.endswith((".abstract.md", ".overview.md"))}
    assert {name: arrived[name] for name in kept} == {name: original[name] for name in kept}


@pytest.mark.parametrize("noticed", [True, False])
def test_a_commit_to_a_file_that_vanished_with_all_others_goes_on_with_its_text(
    home: Path, tmp_path: Path, *, noticed: bool
) -> None:
    with opened(home) as memory:
        memory.commit(CommitRequest("First entry 第一条.", memory_type="daily_logs"))
    shutil.copytree(home / ".state", tmp_path / "copy" / ".state")
    with opened(tmp_path / "copy") as memory:
        if noticed:
            memory.store.adopt()
        before = {uri: memory.store.ledger.text_at(MemoryUri.parse(uri)) for uri in (PAYMENTS, LOG)}
        said(memory, "And then to Kyoto.", session_id="trip")
        memory.commit(CommitRequest("Second entry.", memory_type="daily_logs"))
        changed = entity(memory, "支付系统", "It moved to Kyoto.")
        for uri, text in before.items():
            assert text is not None
            now = memory.read(ReadRequest(uri)).content
            assert "Kyoto" in now
            assert text.partition("\n")[0] in now
        (day,) = (tmp_path / "copy/user/default/logs").glob("2*.md")
        assert ("第一条" in day.read_text("utf-8"), "Second" in day.read_text("utf-8")) == (True, True)
        memory.store.adopt()
        assert [row.kind for row in memory.store.ledger.history() if row.kind == "external"] == []
        memory.run(UNDO, UndoRequest(changed.commit_id))
        assert body(memory, PAYMENTS) == split(str(before[PAYMENTS])).body
        memory.store.bring_back_vanished()
        assert b"stored text" not in run(memory.config.root, "doctor").stdout


def test_pages_written_meanwhile_are_no_files_that_stayed(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / ".state", tmp_path / "copy" / ".state")
    for name in ("user", "user/default", "user/default/memories"):
        by_hand(tmp_path / "copy", f"{name}/.overview.md", "About these.\n")
        by_hand(tmp_path / "copy", f"{name}/.abstract.md", "These.\n")
    with opened(tmp_path / "copy") as memory:
        memory.store.adopt()
        assert MemoryUri.parse(PAYMENTS) in memory.store.bring_back_vanished()


def test_files_that_follow_their_ledger_later_are_simply_there_again(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / ".state", tmp_path / "copy" / ".state")
    with opened(tmp_path / "copy") as memory:
        memory.store.adopt()
    for scope in ("user", "session"):
        shutil.copytree(home / scope, tmp_path / "copy" / scope)
    with opened(tmp_path / "copy") as memory:
        assert memory.opened.adopted.wait(30)
        assert memory.store.adopt() == 0
        assert memory.read(ReadRequest(PAYMENTS)).content
        (tmp_path / "copy" / "user/default/memories/entities/支付系统.md").unlink()
        assert memory.store.adopt() == 1  # one file that goes is deleted by hand, as ever
        assert memory.find(FindRequest("TiDB")).total == 0


def test_an_owner_who_deleted_everything_says_so_and_it_is_recorded(home: Path) -> None:
    for scope in ("user", "session"):
        shutil.rmtree(home / scope)
    with opened(home) as memory:
        memory.store.adopt()
        assert memory.find(FindRequest("TiDB")).total == 1
        gone = memory.store.forget_vanished()
        memory.indexer.follow()
        assert MemoryUri.parse(PAYMENTS) in gone
        assert memory.store.ledger.stats() == {}
        assert memory.find(FindRequest("TiDB")).total == 0
        assert memory.store.ledger.history()[0].kind == "external"
        assert memory.store.adopt() == 0


def test_a_few_files_deleted_by_hand_are_deleted(home: Path) -> None:
    for path in (home / "user/default/memories/notes").glob("[!.]*"):
        path.unlink()
    with opened(home) as memory:
        memory.store.adopt()
        assert memory.store.ledger.history()[0].kind == "external"
        assert memory.find(FindRequest("lamps")).total == 0


def test_a_small_store_may_be_emptied_by_hand(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as memory:
        memory.commit(CommitRequest("one 一"))
    shutil.rmtree(tmp_path / "home" / "user")
    with opened(tmp_path / "home") as memory:
        memory.store.adopt()
        assert memory.store.ledger.stats() == {}


def test_a_space_that_was_renamed_by_hand_is_no_accident(home: Path) -> None:
    (home / "user" / "default").rename(home / "user" / "mei")
    (home / "session" / "default").rename(home / "session" / "mei")
    with opened(home) as memory:
        memory.store.adopt()
        assert all("/default/" not in uri for uri in memory.store.ledger.stats())
        assert len(memory.store.ledger.stats()) == len(kept_files(home))


def test_a_store_moves_through_git_with_its_line_ends_changed_both_ways(home: Path, tmp_path: Path) -> None:
    def git(*arguments: str, at: Path) -> None:
        options = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
        subprocess.run(["git", *options, *arguments], cwd=at, check=True, capture_output=True)

    (home / ".gitignore").write_text(".state\n", encoding="utf-8")
    git("init", at=home)
    git("add", ".", at=home)
    git("commit", "-m", "all", at=home)
    git("-c", "core.autocrlf=true", "clone", str(home), str(tmp_path / "windows"), at=tmp_path)
    copy = tmp_path / "windows"
    assert b"\r\n" in kept_files(copy)["user/default/memories/entities/支付系统.md"]
    shutil.copytree(home / ".state", copy / ".state")
    with opened(copy) as memory:
        assert memory.store.adopt() == 0
        assert memory.find(FindRequest("TiDB")).memories[0].uri == PAYMENTS
        assert memory.find(FindRequest("大阪")).resources
    with_line_feeds = kept_files(home)
    for name, content in kept_files(copy).items():
        (copy / name).write_bytes(content.replace(b"\r\n", b"\n"))
    assert {name: content for name, content in kept_files(copy).items() if name in with_line_feeds} == with_line_feeds
    with opened(copy) as memory:
        assert memory.store.adopt() == 0


def test_the_command_line_brings_vanished_files_back(home: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(home / ".state", copy / ".state")
    done = run(copy, "restore", "--missing")
    assert (done.returncode, b"written anew from the history" in done.stdout) == (0, True)
    assert b"all at once" in done.stderr
    assert kept_files(copy) == kept_files(home)
    assert run(copy, "restore").returncode == 1


def test_a_vanished_file_that_was_not_utf8_is_named_and_left_to_its_owner(home: Path, tmp_path: Path) -> None:
    entities = "user/default/memories/entities"
    odd, own = home / entities / "gbk.md", home / entities / "mark.md"
    odd.write_bytes("港口的密码在抽屉里。".encode("gbk"))
    own.write_bytes("A mark of its own: \ufffd.\n".encode())
    with opened(home) as memory:
        memory.store.adopt()
    copy = tmp_path / "copy"
    shutil.copytree(home / ".state", copy / ".state")
    for _ in range(2):
        done = run(copy, "restore", "--missing")
        told = done.stdout.decode()
        assert done.returncode == 1
        assert f"still missing: viking://{entities}/gbk.md (it was not UTF-8" in told
        assert "--forget-missing" in told
        assert not (copy / entities / "gbk.md").exists()
    assert (copy / entities / "mark.md").read_bytes() == own.read_bytes()
    uri = MemoryUri.parse(f"viking://{entities}/gbk.md")
    with opened(copy) as memory:
        memory.store.adopt()
        assert memory.store.vanished() == [uri]
        refused = memory.commit(CommitRequest(operations={"delete_operations": [{"uri": str(uri)}]}))
        assert refused.status == "rejected"
        assert "not UTF-8" in str(refused)
    told = run(copy, "doctor", "--repair").stdout.decode()
    assert f"{uri} is gone and was not UTF-8" in told
    shutil.copy2(odd, copy / entities / "gbk.md")
    with opened(copy) as memory:
        memory.store.adopt()
        assert memory.store.vanished() == []
    assert run(copy, "restore", "--missing").returncode == 0
    assert (copy / entities / "gbk.md").read_bytes() == odd.read_bytes()
