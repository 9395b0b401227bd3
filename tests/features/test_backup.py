"""Backup and restore: complete, consistent, verified; what was cut short never counts as one."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import signal
import sqlite3
import threading
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memory_core.core.conversation_notes import last_read, note_passed_over, note_read
from memory_core.core.errors import InvalidInput, StorageFailed
from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.private_times import PrivateTimes, note_private
from memory_core.core.progress import Stage, listening
from memory_core.core.store import atomic
from memory_core.core.store.ledger_snapshot import LedgerSnapshot
from memory_core.features import export_file, foreign_ledger
from memory_core.features.backup import back_up, backups_in, restore, verify
from memory_core.features.doctor import examine
from memory_core.open_store import load_registry
from memory_core.runebook import Runebook
from tests.features.moving import PAYMENTS, opened, run
from tests.fork_server import starter
from tests.kept import SCOPES, kept_files
from tests.stores import entity, said, words_only

USER = "viking://user/default/memories"
#: Backs up and dies at the n-th file that is written.
DIE = """
import os, signal, sys
from pathlib import Path
from memory_core.features import export_file
from memory_core.features.backup import back_up
from tests.features.moving import opened as opened_store
left = int(sys.argv[3])
for form in (export_file.FolderWriter, export_file.ZipWriter):
    def opened(self, path, real=form.opened, **options):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, path, **options)
    form.opened = opened
memory = opened_store(Path(sys.argv[1]))
back_up(memory.store, Path(sys.argv[2]))
memory.close()
"""


#: Restores and dies while it unpacks, or at the n-th step of moving the folders; also where they cannot change places.
DIE_RESTORING = """
import os, signal, sys
from pathlib import Path
from memory_core.core.store import atomic
from memory_core.features import backup
source, home, left, swaps = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
def counted(real):
    def step(*given):
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return real(*given)
    return step
def move():
    Path.rename = counted(Path.rename)
    atomic.change_places = counted(atomic.change_places if swaps else lambda *_: False)
    backup.sync_folder = counted(backup.sync_folder)
def settled(*given, real=backup._settle_rights, **options):
    real(*given, **options)
    move()
backup._settle_rights = settled
if left < 0:
    backup.FolderWriter.close = lambda self: os.kill(os.getpid(), signal.SIGKILL)
backup.restore(source, home, force=True)
"""


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Runebook]:
    with opened(tmp_path / "home") as store:
        entity(store, "支付系统", "数据库是 TiDB。")
        store.commit(CommitRequest("The spare key is under the third stone."))
        said(store, "我们五月去大阪。", session_id="trip")
        (tmp_path / "home" / "config.json").write_text('{"extractor": "none"}', encoding="utf-8")
        (tmp_path / "home" / "my_types").mkdir()
        (tmp_path / "home" / "my_types" / "plants.yaml").write_text("name: plants\n", encoding="utf-8")
        yield store


def files(home: Path) -> dict[str, bytes]:
    found = {path.relative_to(home).as_posix(): path for path in home.rglob("*") if path.is_file()}
    others = {
        name: path.read_bytes() for name, path in found.items() if name.partition("/")[0] not in (".state", *SCOPES)
    }
    return others | kept_files(home)


def history(home: Path) -> list[tuple[object, ...]]:
    with LedgerSnapshot.of_file(home / ".state" / "ledger.sqlite3") as snapshot:
        return [(commit["commit_id"], commit["author"], commit["changes"]) for commit in snapshot.history()]


@pytest.mark.parametrize("name", ["backups", "one.zip"])
def test_a_restored_backup_is_the_store_files_history_and_settings(memory: Runebook, tmp_path: Path, name: str) -> None:
    made = back_up(memory.store, tmp_path / name)
    assert verify(made.path) == len(files(tmp_path / "home")) + 1
    count, aside = restore(made.path, tmp_path / "back")
    assert (count, aside) == (len(files(tmp_path / "home")) + 1, None)
    assert files(tmp_path / "back") == files(tmp_path / "home")
    assert history(tmp_path / "back") == history(tmp_path / "home")
    with opened(tmp_path / "back") as restored:
        assert restored.store.adopt() == 0
        assert restored.find(FindRequest("TiDB")).memories[0].uri == PAYMENTS
        space = MemoryUri.parse("viking://session/default")
        assert [row.waiting for row in restored.store.ledger.extractions.waiting(space)] == [1]
        assert restored.commit(CommitRequest("goes on 继续")).status == "committed"


def test_a_backup_is_private_leaves_nothing_beside_it_and_a_folder_opens_as_it_is(
    memory: Runebook, tmp_path: Path
) -> None:
    zipped, folder = back_up(memory.store, tmp_path / "z" / "one.zip").path, back_up(memory.store, tmp_path / "b").path
    for made in (zipped, folder):
        assert [path.name for path in made.parent.iterdir()] == [made.name]
        for path in (made, *made.rglob("*")):
            assert path.stat().st_mode & 0o077 == 0, path
    with opened(folder / "home") as found:
        assert found.find(FindRequest("third stone")).memories
        assert found.store.adopt() == 0


def test_the_index_comes_along_only_when_asked_and_is_never_ahead(memory: Runebook, tmp_path: Path) -> None:
    assert not list(back_up(memory.store, tmp_path / "without").path.rglob("index.sqlite3"))
    memory.find(FindRequest("TiDB"))
    made = back_up(memory.store, tmp_path / "with", with_index=True)
    (index,) = made.path.rglob("index.sqlite3")
    connection = sqlite3.connect(index)
    (seq,) = connection.execute("SELECT value FROM meta WHERE name = 'seq'").fetchone()
    connection.close()
    assert int(seq) <= made.seq
    restore(made.path, tmp_path / "back")
    with opened(tmp_path / "back") as restored:
        assert restored.find(FindRequest("TiDB")).memories[0].uri == PAYMENTS


def test_an_index_that_somebody_changed_says_nothing_where_rights_are_kept(memory: Runebook, tmp_path: Path) -> None:
    memory.find(FindRequest("TiDB"))
    path = back_up(memory.store, tmp_path / "backups", with_index=True).path
    (index,) = path.rglob("index.sqlite3")
    connection = sqlite3.connect(index)
    connection.execute(
        "CREATE TRIGGER mine AFTER INSERT ON documents BEGIN UPDATE documents SET space = 'user/bob'; END"
    )
    connection.commit()
    connection.close()
    manifest = json.loads((path / "backup.json").read_text(encoding="utf-8"))
    (facts,) = [facts for facts in manifest["files"] if facts["path"].endswith("index.sqlite3")]
    content = index.read_bytes()
    facts |= {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    (path / "backup.json").write_text(json.dumps(manifest), encoding="utf-8")
    restore(path, tmp_path / "victim", keep_rights=True)
    with opened(tmp_path / "victim") as restored:
        assert restored.find(FindRequest("TiDB")).memories[0].uri == PAYMENTS
        made = restored.indexer.catalog.connection()
        assert made.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'mine'").fetchone() == (0,)


def test_a_backup_is_one_moment_while_others_write(memory: Runebook, tmp_path: Path) -> None:
    """Between any two files that are copied somebody commits; all of it is from before."""
    uris = [f"{USER}/notes/{title}.md" for title in ("左", "right")]
    notes = [{"memory_type": "notes", "fields": {"title": t, "content": "at 0"}} for t in ("左", "right")]
    memory.commit(CommitRequest(operations={"write_operations": [{"memory_data": note} for note in notes]}))

    def write_on(stage: Stage) -> None:
        if stage.what == "copying":
            edits = [{"uri": uri, "patches": {"content": f"at {stage.done}"}} for uri in uris]
            memory.commit(CommitRequest(operations={"edit_operations": edits}))

    with listening(write_on):
        made = back_up(memory.store, tmp_path / "backups")
    assert made.notes == []
    for uri in uris:
        copied = made.path / "home" / uri.removeprefix("viking://")
        assert copied.read_text("utf-8").startswith("at 0")
        assert not (memory.store.text(MemoryUri.parse(uri)) or "").startswith("at 0")


@pytest.mark.skipif(os.name != "posix", reason="kills with SIGKILL")
@pytest.mark.parametrize("name", ["backups", "one.zip"])
def test_a_killed_backup_never_counts_as_one(memory: Runebook, tmp_path: Path, name: str) -> None:
    memory.close()
    (tmp_path / "backups").mkdir()
    for step in (0, 2, 4):
        died = starter().run(DIE, tmp_path / "home", tmp_path / name, step)
        assert died.returncode == -signal.SIGKILL
        assert backups_in(tmp_path / "backups") == []
        assert not (tmp_path / "one.zip").exists()
        for left in [*(tmp_path / "backups").iterdir(), *tmp_path.glob("one*")]:
            with pytest.raises(InvalidInput):
                restore(left, tmp_path / "back")
        assert not (tmp_path / "back").exists()
    with opened(tmp_path / "home") as again:
        assert again.find(FindRequest("TiDB")).memories[0].uri == PAYMENTS
        assert backups_in(tmp_path / "backups") == []
        made = back_up(again.store, tmp_path / "backups", keep=1)
        assert backups_in(tmp_path / "backups") == [made.path]


def test_what_a_killed_backup_left_is_swept_after_a_day_and_hinders_nothing(memory: Runebook, tmp_path: Path) -> None:
    left, fresh, own = (
        tmp_path / name for name in ("one.zip.0a1b2c3d.partial", "one.zip.11111111.partial", "my.partial")
    )
    for path in (left, fresh, own):
        path.write_bytes(b"PK half of it")
    for path in (left, own):
        os.utime(path, (1e9, 1e9))
    assert back_up(memory.store, tmp_path / "one.zip").path.exists()
    assert (left.exists(), fresh.exists(), own.exists()) == (False, True, True)


def test_a_backup_that_fails_leaves_nothing(memory: Runebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageFailed, match="No space left"):
        back_up(memory.store, tmp_path / "backups")
    monkeypatch.undo()
    assert list((tmp_path / "backups").iterdir()) == []


def test_a_backup_that_reads_back_differently_is_none(
    memory: Runebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = export_file.FolderWriter.close

    def close(self: export_file.FolderWriter) -> None:
        real(self)
        for path in tmp_path.glob("backups/*/home/user/default/memories/entities/支付系统.md"):
            path.write_bytes(path.read_bytes()[:-5])  # what a failing disk does

    monkeypatch.setattr(export_file.FolderWriter, "close", close)
    with pytest.raises(InvalidInput, match="is not what the manifest says"):
        back_up(memory.store, tmp_path / "backups", keep=1)
    assert list((tmp_path / "backups").iterdir()) == []


def test_keeping_n_removes_the_oldest_of_this_store_and_nothing_else(memory: Runebook, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    start = datetime(2026, 5, 1, tzinfo=UTC)
    with opened(tmp_path / "other") as other:
        other.commit(CommitRequest("of another store 别人的"))
        foreign = back_up(other.store, folder, now=start - timedelta(days=9)).path
    (folder / "holiday photos").mkdir()
    (folder / "runebook-20200101T000000Z").mkdir()
    (folder / "runebook-20200101T000000Z" / "mine.txt").write_text("not a backup", encoding="utf-8")
    made = [back_up(memory.store, folder, now=start + timedelta(days=day)).path for day in range(4)]
    last = back_up(memory.store, folder, keep=2, now=start + timedelta(days=5))
    assert last.removed == [path.name for path in made[:3]]
    assert backups_in(folder) == [foreign, made[3], last.path]
    assert (folder / "runebook-20200101T000000Z" / "mine.txt").exists()
    assert (folder / "holiday photos").exists()


def test_the_backup_just_made_stays_also_after_a_clock_that_ran_ahead(memory: Runebook, tmp_path: Path) -> None:
    folder, now = tmp_path / "backups", datetime(2026, 5, 1, tzinfo=UTC)
    ahead = [back_up(memory.store, folder, now=now + timedelta(days=day)).path for day in (8, 9)]
    made = back_up(memory.store, folder, keep=2, now=now)
    assert made.removed == [ahead[0].name]
    assert backups_in(folder) == [made.path, ahead[1]]
    assert back_up(memory.store, folder, keep=5, now=now + timedelta(days=1)).removed == []


@pytest.mark.parametrize("name", ["backups", "one.zip"])
def test_files_without_a_portable_name_are_left_out_and_named(memory: Runebook, tmp_path: Path, name: str) -> None:
    prompts = tmp_path / "home" / "prompts"
    prompts.mkdir()
    for own in (b"what?.md", b"caf\xe9.md", b"chat.md"):
        Path(os.fsdecode(os.fsencode(prompts) + b"/" + own)).write_text("own", encoding="utf-8")
    made = back_up(memory.store, tmp_path / name)
    assert sorted(made.left_out) == ["prompts/caf\\udce9.md", "prompts/what?.md"]
    restore(made.path, tmp_path / "back")
    assert [path.name for path in (tmp_path / "back" / "prompts").iterdir()] == ["chat.md"]


def test_a_memory_that_became_a_link_outside_is_saved_as_it_was_committed(memory: Runebook, tmp_path: Path) -> None:
    path = tmp_path / "home/user/default/memories/entities/支付系统.md"
    text = path.read_text("utf-8")
    path.replace(tmp_path / "outside.md")
    path.symlink_to(tmp_path / "outside.md")
    (tmp_path / "outside.md").write_text("of somebody else", encoding="utf-8")
    made = back_up(memory.store, tmp_path / "backups")
    assert (made.path / "home/user/default/memories/entities/支付系统.md").read_text("utf-8") == text
    assert (made.notes, made.left_out) == ([], [])


def test_a_memory_that_is_lost_on_disk_and_in_the_ledger_is_left_out_and_named(
    memory: Runebook, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    memory.close()
    path = home / "user/default/memories/entities/支付系统.md"
    path.unlink()
    path.symlink_to(tmp_path / "gone.md")  # a link that leads outside is taken for no deletion
    with contextlib.closing(sqlite3.connect(home / ".state" / "ledger.sqlite3", isolation_level=None)) as ledger:
        ledger.execute("UPDATE changes SET after = after || 'x' WHERE uri = ?", (PAYMENTS,))
    done = run(home, "backup", str(tmp_path / "backups"), "--json")
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert (told["notes"], told["left_out"]) == ([], [PAYMENTS])
    verify(Path(told["path"]))
    said = run(home, "backup", str(tmp_path / "backups")).stdout.decode()
    assert f"left out: {PAYMENTS} (its text is neither on disk nor in the history)" in said


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_that_cannot_be_read_is_named_with_what_to_do(memory: Runebook, tmp_path: Path) -> None:
    (tmp_path / "home/my_types/plants.yaml").chmod(0)
    with pytest.raises(StorageFailed, match=r"'my_types/plants\.yaml' cannot be read: Permission denied") as refused:
        back_up(memory.store, tmp_path / "backups")
    assert "move it out of the memory folder" in refused.value.hint


@pytest.mark.parametrize("name", ["backups", "one.zip"])
def test_a_damaged_backup_is_refused_before_anything_is_written(memory: Runebook, tmp_path: Path, name: str) -> None:
    path = back_up(memory.store, tmp_path / name).path
    if path.is_dir():
        (path / "home/user/default/memories/entities/支付系统.md").write_text("forged", encoding="utf-8")
    else:
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
    with pytest.raises(InvalidInput):
        restore(path, tmp_path / "back")
    assert not (tmp_path / "back").exists()
    assert not [left for left in tmp_path.iterdir() if left.name.startswith(".tmp-")]


def test_a_file_that_is_gone_from_a_backup_is_noticed_though_the_manifest_agrees(
    memory: Runebook, tmp_path: Path
) -> None:
    path = back_up(memory.store, tmp_path / "backups").path
    manifest = json.loads((path / "backup.json").read_text(encoding="utf-8"))
    manifest["files"] = [facts for facts in manifest["files"] if "支付系统" not in facts["path"]]
    (path / "backup.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(InvalidInput, match="is missing or not what was committed"):
        verify(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names")
@pytest.mark.parametrize(
    ("name", "told"),
    [("backup.json", "there is no backup"), ("home/config.json", "missing or damaged")],
)
def test_a_pipe_in_a_backup_is_not_read(memory: Runebook, tmp_path: Path, name: str, told: str) -> None:
    path = back_up(memory.store, tmp_path / "backups").path
    content = (path / name).read_bytes()
    (path / name).unlink()
    os.mkfifo(path / name)

    def feed() -> None:  # what the file had, so that it is not waited for in vain
        with contextlib.suppress(OSError):  # nobody reads it, or it is gone before this thread runs
            (path / name).write_bytes(content)

    threading.Thread(target=feed, daemon=True).start()
    with pytest.raises(InvalidInput, match=told):
        verify(path)


HOSTILE = (
    *("home/../../evil", "home/user/../../../evil", "/etc/evil", "home/.state/locks/evil", "home/user/default/NUL.md"),
    *("home/C:/evil", "home/.bashrc", "home//evil", "evil", "home/user\\..\\evil"),
)


def test_a_backup_with_a_hostile_name_is_refused(memory: Runebook, tmp_path: Path) -> None:
    path = back_up(memory.store, tmp_path / "one.zip").path
    memory.close()
    with zipfile.ZipFile(path) as archive:
        entries = {entry: archive.read(entry) for entry in archive.namelist()}
    sound = json.loads(entries.pop("backup.json"))
    evil = tmp_path / "evil.zip"
    for name in HOSTILE:
        facts = {"path": name, "sha256": hashlib.sha256(b"test").hexdigest(), "size": 4}
        manifest = sound | {"files": [*sound["files"], facts]}
        with zipfile.ZipFile(evil, "w") as archive:
            for entry, content in {**entries, "backup.json": json.dumps(manifest).encode(), name: b"test"}.items():
                archive.writestr(entry, content)
        before = set(tmp_path.rglob("*"))
        with pytest.raises(InvalidInput):
            restore(evil, tmp_path / "back")
        assert set(tmp_path.rglob("*")) == before, name


def test_restoring_never_overwrites_and_moves_aside_when_forced(memory: Runebook, tmp_path: Path) -> None:
    path = back_up(memory.store, tmp_path / "backups").path
    occupied = tmp_path / "back"
    occupied.mkdir()
    (occupied / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(InvalidInput, match="is not empty"):
        restore(path, occupied)
    assert [found.name for found in occupied.iterdir()] == ["mine.txt"]
    _, aside = restore(path, occupied, force=True)
    assert aside is not None
    assert (aside / "mine.txt").read_text(encoding="utf-8") == "mine"
    assert files(occupied) == files(tmp_path / "home")


def test_a_restore_brings_no_revoked_token_and_no_login_back(memory: Runebook, tmp_path: Path) -> None:
    tokens = memory.store.ledger.tokens
    kept, stolen = (tokens.issue(label, user_space="default", agent_space="default")[0] for label in ("kept", "stolen"))
    logins = memory.store.ledger.database
    with logins.writing() as connection:
        connection.execute("INSERT INTO login_grants VALUES ('g', 'c', 't', '2026-01-01')")
    path = back_up(memory.store, tmp_path / "backups").path
    tokens.revoke("stolen")
    memory.close()
    restore(path, tmp_path / "home", force=True)
    with opened(tmp_path / "home") as restored:
        found = restored.store.ledger
        assert found.tokens.verify(kept) is not None
        assert found.tokens.verify(stolen) is None
        assert found.database.connection().execute("SELECT count(*) FROM login_grants").fetchone() == (0,)


def test_a_table_of_a_backup_loses_no_token(memory: Runebook, tmp_path: Path) -> None:
    ledger = memory.store.ledger.database
    with ledger.writing() as connection:
        (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'tokens'").fetchone()
        connection.execute("DROP TABLE tokens")
        connection.execute(str(sql).replace("read_only INTEGER", "read_only INTEGER UNIQUE ON CONFLICT IGNORE"))
    path = back_up(memory.store, tmp_path / "backups").path
    with opened(tmp_path / "victim") as victim:
        tokens = victim.store.ledger.tokens
        secrets = [tokens.issue(label, user_space="anna", agent_space="anna")[0] for label in ("old", "mallory")]
        tokens.revoke("old")
    restore(path, tmp_path / "victim", force=True, keep_rights=True)
    with opened(tmp_path / "victim") as restored:
        tokens = restored.store.ledger.tokens
        tokens.revoke("mallory")
        assert [tokens.verify(secret) for secret in secrets] == [None, None]
        assert restored.find(FindRequest("spare key stone")).hits
        before = restored.store.ledger.newest_seq()
        restored.commit(CommitRequest("The bell is broken."))
        assert restored.store.ledger.newest_seq() == before + 1


def test_a_restore_over_a_store_keeps_what_was_said_in_private_out(memory: Runebook, tmp_path: Path) -> None:
    path = back_up(memory.store, tmp_path / "backups").path
    home, message = tmp_path / "home", {"role": "user", "content": "Nobody may know."}
    note_private(home / ".state", "/work", 1, private=True, now=1_000.0)
    note_private(home / ".state", "/work", 1, private=False, now=2_000.0)
    note_passed_over(home / ".state", "talk", [message])
    note_read(home / ".state", "talk", 3_000.0)
    (home / ".state/hooks/private/9-9-9.json").write_text("{", encoding="utf-8")
    memory.close()
    restore(path, home, force=True)
    private = PrivateTimes(home / ".state", ["/work"], "talk")
    assert [private.cover({"timestamp": f"1970-01-01T00:{minute}:00Z"}) for minute in (10, 20, 40)] == [
        False,
        True,
        False,
    ]
    assert private.cover(message)
    assert last_read(home / ".state", "talk").at is None  # the backup may not have what was read then


@contextlib.contextmanager
def changed_ledger(path: Path) -> Iterator[sqlite3.Connection]:
    """The ledger of a backup, whose hash is written anew after the block."""
    ledger = path / "home/.state/ledger.sqlite3"
    with contextlib.closing(sqlite3.connect(ledger, isolation_level=None)) as connection:
        yield connection
    manifest = json.loads((path / "backup.json").read_text(encoding="utf-8"))
    (own,) = (facts for facts in manifest["files"] if facts["path"] == "home/.state/ledger.sqlite3")
    content = ledger.read_bytes()
    own |= {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    (path / "backup.json").write_text(json.dumps(manifest), encoding="utf-8")


#: What takes long for each row.
_WORK = "length(hex(zeroblob(1000000 + length(name)))) > 0"


@pytest.mark.parametrize(
    "rules",
    [
        ["ALTER TABLE usage RENAME TO used", "CREATE VIEW usage AS SELECT * FROM used"],
        ["CREATE VIEW mine AS SELECT * FROM usage"],
        ["CREATE TRIGGER again AFTER INSERT ON usage BEGIN SELECT 1; END", "PRAGMA user_version=7"],
        [f"ALTER TABLE meta ADD COLUMN a AS ({_WORK}) NOT NULL"],
        [f"ALTER TABLE meta ADD COLUMN a CHECK ({_WORK})"],
        ["CREATE TABLE t (a, b DEFAULT (hex(zeroblob(1000000))))"],
        [f"CREATE INDEX i ON meta ({_WORK})"],
        [f"CREATE INDEX i ON meta (name) WHERE {_WORK}"],
        ["CREATE VIRTUAL TABLE t USING fts5 (a)"],
    ],
    ids=[
        "of a table's name",
        "another",
        "before a migration",
        "column",
        "check",
        "default",
        "index",
        "partial index",
        "virtual table",
    ],
)
def test_a_backup_whose_ledger_has_rules_that_would_run_is_refused(
    memory: Runebook, tmp_path: Path, rules: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = back_up(memory.store, tmp_path / "backups").path
    monkeypatch.setattr(foreign_ledger, "damage", lambda _: pytest.fail("the ledger is used before its rules are"))
    with changed_ledger(path) as connection:
        for rule in rules:
            connection.execute(rule)
    with pytest.raises(InvalidInput, match="none of this program's"):
        restore(path, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_a_backup_of_a_newer_program_is_refused_as_that(memory: Runebook, tmp_path: Path) -> None:
    path = back_up(memory.store, tmp_path / "backups").path
    with changed_ledger(path) as connection:
        connection.execute("CREATE INDEX of_then ON usage (access_count)")
        connection.execute("PRAGMA user_version=99")
    with pytest.raises(InvalidInput, match="schema version 99") as refused:
        restore(path, tmp_path / "back")
    assert str(refused.value.hint).startswith("Upgrade Runebook")


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (["UPDATE commits SET receipt = '{'"], "JSONDecodeError"),
        (["UPDATE commits SET receipt = '1' WHERE seq = 1"], "the receipt of commit 1 is none"),
        (["UPDATE commits SET author = X'FF' WHERE seq = 1"], "commit 1 holds what is no text"),
        (["UPDATE commits SET author = CAST(X'FF' AS TEXT)"], "Could not decode"),
        (["UPDATE commits SET seq = 9223372036854775807 WHERE seq = 1"], "it counts to 9223372036854775807"),
        (["UPDATE sqlite_sequence SET seq = 9223372036854775807"], "it counts to 9223372036854775807"),
        (["UPDATE sqlite_sequence SET seq = 'many'"], "it counts to many"),
        (
            ["PRAGMA writable_schema=ON", "UPDATE sqlite_master SET sql = sql || CAST(X'2F2AFF2A2F' AS TEXT)"],
            "Could not decode",
        ),
        (["UPDATE commits SET settled = 0", "UPDATE changes SET uri = 'viking://user/../../x.md'"], "../../x.md"),
    ],
    ids=["no JSON", "no receipt", "bytes", "no text", "a commit's number", "count", "no count", "schema", "address"],
)
def test_a_backup_with_rows_that_would_stop_every_start_is_refused(
    memory: Runebook, tmp_path: Path, rows: list[str], told: str
) -> None:
    path = back_up(memory.store, tmp_path / "backups").path
    with changed_ledger(path) as connection:
        for row in rows:
            connection.execute(row)
    with pytest.raises(InvalidInput, match="ledger is damaged") as refused:
        restore(path, tmp_path / "back")
    assert told in refused.value.message
    assert not (tmp_path / "back").exists()


def test_a_restore_over_a_damaged_ledger_takes_what_the_backup_has(memory: Runebook, tmp_path: Path) -> None:
    token, _ = memory.store.ledger.tokens.issue("kept", user_space="default", agent_space="default")
    path = back_up(memory.store, tmp_path / "backups").path
    memory.close()
    (tmp_path / "home/.state/ledger.sqlite3").write_bytes(b"no database" * 1000)
    restore(path, tmp_path / "home", force=True)
    with opened(tmp_path / "home") as restored:
        assert restored.store.ledger.tokens.verify(token) is not None


@pytest.mark.skipif(os.name != "posix", reason="kills with SIGKILL")
@pytest.mark.parametrize(
    ("swaps", "step"), [("swaps", -1), ("swaps", 0), ("swaps", 1), ("", 0), ("", 2), ("", 3), ("", 4)]
)
def test_a_killed_restore_loses_nothing_and_the_doctor_says_what_it_left(
    memory: Runebook, tmp_path: Path, swaps: str, step: int
) -> None:
    home = tmp_path / "home"
    path = back_up(memory.store, tmp_path / "backups").path
    memory.commit(CommitRequest("Said after the backup."))
    memory.close()
    died = starter().run(DIE_RESTORING, path, home, step, swaps)
    assert died.returncode == -signal.SIGKILL, died.stderr
    staged = list(tmp_path.glob(".tmp-restore-*"))
    folders = [home, *staged, *tmp_path.glob("home.before-restore-*")]
    assert "Said after the backup." in "".join(
        file.read_text("utf-8") for each in folders for file in each.rglob("*.md")
    )
    config = words_only(home)
    assert home.is_dir() or not swaps
    if home.is_dir():
        report = examine(config, load_registry(config))
        assert [finding.subject for finding in report.of("restore")] == [str(each) for each in staged]
        assert report.clean == (not staged)
    else:
        with pytest.raises(StorageFailed) as told:
            examine(config, load_registry(config))
        assert "restore" in told.value.hint


@pytest.mark.parametrize("swaps", [True, False])
def test_a_restore_that_the_disk_refuses_at_the_end_leaves_everything_as_it_was(
    memory: Runebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swaps: bool
) -> None:
    home = tmp_path / "home"
    path = back_up(memory.store, tmp_path / "backups").path
    memory.close()
    before, names = files(home), {found.name for found in tmp_path.iterdir()}
    real = Path.rename

    def swap(*_folders: Path) -> bool:
        if swaps:
            raise OSError(errno.EACCES, "refused")
        return False

    def rename(self: Path, target: Path) -> Path:
        if target == home and ".tmp-restore-" in self.name:
            raise OSError(errno.EACCES, "refused")
        return real(self, target)

    monkeypatch.setattr(atomic, "change_places", swap)
    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(StorageFailed):
        restore(path, home, force=True)
    assert files(home) == before
    assert {found.name for found in tmp_path.iterdir()} == names


def test_a_file_that_was_changed_by_hand_a_moment_ago_is_in_the_backup(memory: Runebook, tmp_path: Path) -> None:
    path = tmp_path / "home/user/default/memories/entities/支付系统.md"
    path.write_text("手改的 changed by hand", encoding="utf-8")
    made = back_up(memory.store, tmp_path / "backups")
    assert made.notes == []
    assert (made.path / "home/user/default/memories/entities/支付系统.md").read_text(
        "utf-8"
    ) == "手改的 changed by hand"


def test_the_command_line_backs_up_and_restores(memory: Runebook, tmp_path: Path) -> None:
    home, back = tmp_path / "home", tmp_path / "back"
    memory.close()
    made = run(home, "backup", str(tmp_path / "backups"), "--keep", "3", "--json")
    assert (made.returncode, made.stderr) == (0, b"")
    path = json.loads(made.stdout)["path"]
    refused = run(home, "restore", path)
    assert refused.returncode == 1
    assert b"is not empty" in refused.stderr
    done = run(back, "restore", path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert files(back) == files(home)
    assert run(back, "find", "TiDB").returncode == 0
    assert b"TiDB" not in made.stdout + done.stdout


def test_what_is_no_backup_is_told_before_the_folder_is_to_be_moved(memory: Runebook, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with pytest.raises(InvalidInput, match="there is no backup at 'nope'"):
        restore(tmp_path / "nope", home)
    backup = back_up(memory.store, tmp_path / "backups")
    with pytest.raises(InvalidInput, match="holds backups") as refused:
        restore(tmp_path / "backups", tmp_path / "new")
    assert backup.path.name in refused.value.hint
    assert not (tmp_path / "new").exists()
    with pytest.raises(InvalidInput, match="is not empty"):
        restore(backup.path, home)


def test_a_destination_that_cannot_be_one_is_refused_with_the_reason(memory: Runebook, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="would be lost with it"):
        back_up(memory.store, tmp_path / "home" / "backups")
    assert not (tmp_path / "home" / "backups").exists()
    with pytest.raises(InvalidInput, match="0 would leave no backup"):
        back_up(memory.store, tmp_path / "backups", keep=0)
    with pytest.raises(InvalidInput, match=r"not in a \.zip"):
        back_up(memory.store, tmp_path / "one.zip", keep=2)
    (tmp_path / "plain").write_text("a file", encoding="utf-8")
    with pytest.raises(InvalidInput, match="'plain' is there already"):
        back_up(memory.store, tmp_path / "plain")
