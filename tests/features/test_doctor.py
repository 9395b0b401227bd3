"""The doctor finds each kind of trouble by its name, mends what can be mended, and then finds nothing."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory_core.core.config import Config, EmbeddingConfig
from memory_core.core.errors import StorageFailed
from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.files import FILE_LIMIT_BYTES
from memory_core.features.doctor import DOCTOR, DoctorRequest, Report, examine, repair
from memory_core.features.doctor_checks import Severity
from memory_core.features.rebuild import REBUILD, RebuildRequest
from memory_core.features.recall_trail import TRAIL, TrailRequest
from memory_core.open_store import load_registry
from memory_core.runebook import Runebook, open_memory
from tests.core.index import damage
from tests.core.index.damage import other_process
from tests.fork_server import starter
from tests.kept import kept_files
from tests.killing import Killed, Killer

FACTS = "viking://user/default/memories/facts"
SAID = {
    "heron": "The heron nests by the river Avon.",
    "支付系统": "支付系统每周三凌晨备份。",
    "zebra": "Zebra project ships in May.",
    "斑马": "斑马项目五月上线。",
}


def config(home: Path, **settings: Any) -> Config:
    return Config(home=home, embedding=EmbeddingConfig(provider="bundled", wait_seconds=30), **settings)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store with a year's worth of everything; tests work on copies."""
    home = tmp_path_factory.mktemp("original")
    with open_memory(config(home)) as memory:
        for text in SAID.values():
            memory.commit(CommitRequest(text, memory_type="facts"))
        for number in range(30):
            memory.commit(CommitRequest(f"Filler {number} 填充 {number}: " + "lorem ipsum " * 60, memory_type="notes"))
        memory.commit(CommitRequest(messages=[{"role": "user", "content": "苍鹭 one"}], session_id="s1"))
        memory.commit(CommitRequest(messages=[{"role": "user", "content": "heron two"}], session_id="s1"))
        memory.commit(CommitRequest("Used the log 日志", memory_type="daily_logs"))
        memory.indexer.embed_all()
        memory.find(FindRequest("heron"))
    return home


@pytest.fixture
def home(tmp_path: Path, original: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "home"))


def look(home: Path, **settings: Any) -> Report:
    wanted = config(home, **settings)
    return examine(wanted, load_registry(wanted))


def mend(home: Path, **settings: Any) -> Report:
    wanted = config(home, **settings)
    return repair(wanted, load_registry(wanted))


def complaints(report: Report) -> set[str]:
    return {finding.check for finding in report.findings if finding.severity in (Severity.WARNING, Severity.ERROR)}


def fact_file(home: Path, start: str) -> Path:
    (found,) = [path for path in (home / "user/default/memories/facts").glob("*.md") if path.name.startswith(start)]
    return found


def assert_all_found(home: Path) -> None:
    with open_memory(config(home)) as memory:
        for query, text in SAID.items():
            assert text in [hit.abstract for hit in memory.find(FindRequest(query)).memories], query
        assert memory.find(FindRequest("苍鹭")).resources


def execute(path: Path, *statements: str, values: tuple[Any, ...] = ()) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.create_function("refold", 1, str)
        for statement in statements:
            connection.execute(statement, values)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def ledger_of(home: Path) -> Path:
    return home / ".state" / "ledger.sqlite3"


def index_of(home: Path) -> Path:
    return home / ".state" / "index.sqlite3"


def spoil_ledger_page(home: Path, table: str, *, leaf: bool = False) -> None:
    """Overwrite the root page of a table or an index, or the first leaf that it names."""
    with closing(sqlite3.connect(ledger_of(home))) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    data = bytearray(ledger_of(home).read_bytes())
    if leaf:
        root = data[(page - 1) * size : page * size]
        cell = int.from_bytes(root[12:14], "big")
        page = int.from_bytes(root[cell : cell + 4], "big")
    data[(page - 1) * size : page * size] = b"\xab" * size
    ledger_of(home).write_bytes(data)


# A sound store


def test_a_sound_store_is_clean_and_looking_changes_nothing(home: Path) -> None:
    def everything() -> dict[str, str]:
        return {
            path.relative_to(home).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in home.rglob("*")
            if path.is_file() and not path.name.endswith(("-wal", "-shm"))
        }

    before = everything()
    report = look(home)
    assert report.clean
    assert {finding.severity for finding in report.findings} == {Severity.OK}
    assert everything() == before


def test_a_store_in_use_is_clean_and_may_be_repaired(home: Path) -> None:
    with open_memory(config(home)) as memory, other_process(home) as other:
        other.ask(commit="While both look 两边都在看")
        assert complaints(look(home)) == set()
        assert complaints(mend(home)) == set()
        assert memory.find(FindRequest("两边都在看")).memories
        assert memory.run(DOCTOR, DoctorRequest()).clean
        assert other.find("两边都在看")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match="there is no memory folder"):
        look(tmp_path / "nowhere")


# Files


def test_hand_edits_are_no_damage_and_are_recorded_by_a_repair(home: Path) -> None:
    edited = fact_file(home, "The heron")
    edited.write_text(edited.read_text("utf-8").replace("river Avon", "river Ouse"), encoding="utf-8", newline="\n")
    (edited.parent / "随笔.md").write_text("手写的一页", encoding="utf-8", newline="\n")
    report = look(home)
    assert report.clean
    assert {finding.subject.rpartition("/")[2] for finding in report.of("files")} == {edited.name, "随笔.md"}
    mended = mend(home)
    assert any("2 files changed by hand" in line for line in mended.repaired)
    assert mended.of("files") == ()
    with open_memory(config(home)) as memory:
        assert memory.find(FindRequest("手写的一页")).memories


def test_a_file_that_is_gone_is_named_and_its_deletion_recorded(home: Path) -> None:
    fact_file(home, "Zebra").unlink()
    assert complaints(look(home)) == {"files"}
    assert mend(home).clean
    with open_memory(config(home)) as memory:
        assert SAID["zebra"] not in [hit.abstract for hit in memory.find(FindRequest("zebra")).memories]


def test_files_that_vanished_all_at_once_come_back(home: Path) -> None:
    before = kept_files(home)
    shutil.rmtree(home / "user")
    shutil.rmtree(home / "session")
    assert complaints(look(home)) == {"files"}
    assert mend(home).clean
    assert kept_files(home) == before


def test_a_broken_trailer_and_a_link_to_nowhere_are_named_and_left_alone(home: Path) -> None:
    broken, linked = fact_file(home, "斑马"), fact_file(home, "The heron")
    broken.write_text(broken.read_text("utf-8").replace('"memory_type"', "memory_type"), encoding="utf-8", newline="\n")
    text = linked.read_text("utf-8").replace('{\n  "', f'{{\n  "links": [{{"uri": "{FACTS}/gone.md"}}],\n  "', 1)
    linked.write_text(text, encoding="utf-8", newline="\n")
    before = kept_files(home)
    mended = mend(home)
    assert complaints(mended) == {"contents"}
    assert [finding.subject for finding in mended.of("contents")] == [f"{FACTS}/{broken.name}"]
    assert [finding.subject for finding in mended.of("links")] == [f"{FACTS}/{linked.name} → {FACTS}/gone.md"]
    assert kept_files(home) == before


@pytest.mark.skipif(os.name != "posix", reason="permissions as POSIX knows them")
def test_what_only_its_owner_can_mend_is_named_without_promising_a_repair(home: Path) -> None:
    note = home / "user/default/memories/notes/旧笔记.md"
    note.write_bytes("旧的编码".encode("gbk"))
    (home / ".git").mkdir(mode=0o755)
    (home / ".git" / "config").write_text("[core]", encoding="utf-8")
    mend(home)
    report = look(home)
    (finding,) = report.of("contents")
    assert (finding.subject, finding.severity) == ("viking://user/default/memories/notes/旧笔记.md", Severity.WARNING)
    assert "not UTF-8" in finding.detail
    assert report.of("permissions") == ()
    assert "--repair" not in "\n".join(report.lines())
    assert note.read_bytes() == "旧的编码".encode("gbk")


def test_a_file_that_no_address_can_name_is_told_with_what_to_do(home: Path) -> None:
    odd = home / "user/default/memories/facts" / "odd\x07name.md"
    odd.write_text("Nobody finds this.\n", encoding="utf-8")
    odd.chmod(0o600)
    (found,) = examine(config(home), load_registry(config(home))).of("files")
    assert found.severity is Severity.WARNING
    assert found.subject.endswith("facts/odd\x07name.md")
    assert "it is no memory: " in found.detail


def _linked_outside(home: Path) -> None:
    note = fact_file(home, "Zebra")
    note.replace(home.parent / "outside.md")
    note.symlink_to(home.parent / "outside.md")


def _too_large(home: Path) -> None:
    os.truncate(fact_file(home, "Zebra"), FILE_LIMIT_BYTES + 1)


def _without_an_address(home: Path) -> None:
    name = "UPDATE files SET uri = replace(uri, 'Zebra', 'Zebra?'), name_fold = replace(name_fold, 'zebra', 'zebra?')"
    execute(ledger_of(home), f"{name} WHERE uri LIKE '%Zebra%'")


@pytest.mark.parametrize("spoil", [_linked_outside, _too_large, _without_an_address])
def test_one_file_that_cannot_be_used_ends_no_examination(home: Path, spoil: Callable[[Path], None]) -> None:
    execute(index_of(home), "DELETE FROM documents WHERE uri LIKE '%/The heron%'")
    spoil(home)
    report = look(home)
    assert "Zebra" in " ".join(finding.subject for finding in report.of("files"))
    assert "The heron" in " ".join(finding.subject for finding in report.of("documents"))


def test_a_copy_with_other_line_ends_is_no_hand_edit(home: Path) -> None:
    note = next((home / "user/default/memories/facts").glob("[!.]*.md"))
    note.write_bytes(note.read_bytes().replace(b"\n", b"\r\n"))
    assert look(home).of("files") == ()


def test_what_others_may_read_is_made_private(home: Path) -> None:
    home.chmod(0o755)
    ledger_of(home).chmod(0o644)
    fact_file(home, "Zebra").chmod(0o644)
    report = look(home)
    subjects = {finding.subject: finding.severity for finding in report.of("permissions")}
    assert subjects[str(home)] == subjects[".state/ledger.sqlite3"] == Severity.WARNING
    assert subjects[fact_file(home, "Zebra").relative_to(home).as_posix()] == Severity.NOTICE
    assert mend(home).of("permissions") == ()
    assert {path.stat().st_mode & 0o077 for path in (home, *home.rglob("*"))} == {0}


def test_a_folder_that_was_never_opened_is_sound_and_says_little(tmp_path: Path) -> None:
    home = tmp_path / "home"
    notes = home / "user" / "default" / "memories" / "notes"
    notes.mkdir(parents=True)
    home.chmod(0o700)
    for number in range(30):
        (notes / f"{number}.md").write_text("Kept.", encoding="utf-8")
        (notes / f"{number}.md").chmod(0o644)
    report = look(home)
    assert report.clean, list(report.lines())
    (finding,) = report.of("ledger")
    assert finding.detail == "there is none yet; the first start takes in all files"
    (finding,) = report.of("permissions")
    assert finding.subject.endswith(" more")
    assert mend(home).clean
    assert ledger_of(home).is_file()


def test_only_old_temporary_files_are_swept(home: Path) -> None:
    old, young = (home / "user" / name for name in (".tmp-00000000000000aa", ".tmp-00000000000000bb"))
    for path in (old, young):
        path.write_text("x", encoding="utf-8")
        path.chmod(0o600)
    os.utime(old, (1, 1))
    assert [finding.subject for finding in look(home).of("temporary")] == [f"user/{old.name}"]
    assert mend(home).of("temporary") == ()
    assert (old.exists(), young.exists()) == (False, True)


def test_a_file_that_nobody_may_look_at_ends_no_examination(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed, lstat = fact_file(home, "Zebra"), Path.lstat

    def refused(path: Path) -> os.stat_result:
        if path == closed:
            raise PermissionError(13, "Permission denied")
        return lstat(path)

    closed.chmod(0o644)
    monkeypatch.setattr(Path, "lstat", refused)
    assert look(home).of("permissions") == ()


def test_a_temporary_file_that_cannot_be_deleted_ends_no_repair(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = home / "user" / ".tmp-00000000000000aa"
    old.write_text("x", encoding="utf-8")
    old.chmod(0o600)
    os.utime(old, (1, 1))
    unlink = Path.unlink

    def refused(path: Path, *, missing_ok: bool = False) -> None:
        if path == old:
            raise PermissionError(13, "Permission denied")
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refused)
    assert [finding.subject for finding in mend(home).of("temporary")] == [f"user/{old.name}"]


# The ledger


@pytest.mark.parametrize("kind", ["garbage", "truncated", "empty", "flipped", "deleted_with_log", "deleted"])
def test_a_lost_ledger_locks_nobody_out_and_touches_no_memory(home: Path, kind: str) -> None:
    before = kept_files(home)
    damage.ALL[kind](ledger_of(home))
    report = look(home)
    assert "ledger" in complaints(report)
    assert {finding.subject for finding in report.of("ledger")} == {"ledger.sqlite3"}
    assert all("\n" not in line for line in report.lines())
    mended = mend(home)
    assert mended.clean, list(mended.lines())
    assert not any(line.startswith("0 ") for line in mended.repaired)
    assert kept_files(home) == before
    kept = [path for path in (home / ".state").glob("ledger.sqlite3.damaged-*") if path.suffix != ".sqlite3-wal"]
    assert bool(kept) == (not kind.startswith("deleted"))
    assert any(("kept as" in line) if kept else ("no ledger" in line) for line in mended.repaired)
    assert look(home).clean
    assert_all_found(home)


def test_history_usage_and_queue_of_sound_pages_survive_a_damaged_one(home: Path) -> None:
    with open_memory(config(home)) as memory:
        for _ in range(3):
            memory.find(FindRequest("heron"))
        commits = len(memory.store.ledger.history(limit=1000))
    spoil_ledger_page(home, "changes", leaf=True)
    before = kept_files(home)
    mended = mend(home)
    assert mended.clean, list(mended.lines())
    assert kept_files(home) == before
    with open_memory(config(home)) as memory:
        assert len(memory.store.ledger.history(limit=1000)) >= commits
        assert memory.run(TRAIL, TrailRequest(uri=f"{FACTS}/{fact_file(home, 'The heron').name}"))
        waiting = memory.store.ledger.extractions.waiting(MemoryUri.parse("viking://session/default"))
        assert [item.waiting for item in waiting] == [2]
    assert any("of changes were carried over, and some could not be read" in line for line in mended.repaired)
    assert any("of commits were carried over" in line and "some" not in line for line in mended.repaired)


def test_a_commit_that_is_only_in_a_damaged_ledger_is_delivered(home: Path) -> None:
    with open_memory(config(home), step=Killer("acknowledged", 1)) as memory, pytest.raises(Killed):
        memory.commit(CommitRequest("Acknowledged, then the power went 停电前的最后一句", memory_type="facts"))
    assert not list((home / "user/default/memories/facts").glob("Acknowledged*"))
    spoil_ledger_page(home, "files_key")
    assert "ledger" in complaints(look(home))
    assert mend(home).clean
    (delivered,) = (home / "user/default/memories/facts").glob("Acknowledged*")
    assert "停电前的最后一句" in delivered.read_text("utf-8")


def test_a_rescued_ledger_holds_nothing_that_a_commit_which_was_lost_left(home: Path) -> None:
    columns = "log, stored_before, extracted_before, stored, extracted, counted, uncounted"
    left = f"INSERT INTO progress (seq, {columns}) SELECT max(seq) + 1000, {columns} FROM progress"
    execute(ledger_of(home), "PRAGMA foreign_keys=OFF", left)
    spoil_ledger_page(home, "files_key")
    assert mend(home).clean
    with closing(sqlite3.connect(ledger_of(home))) as connection:
        assert connection.execute("SELECT count(*) FROM progress").fetchone() == (2,)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def test_a_commit_that_never_reached_the_disk_is_delivered(home: Path) -> None:
    path = fact_file(home, "Zebra")
    text = path.read_text("utf-8")
    path.unlink()
    execute(
        ledger_of(home),
        "UPDATE commits SET settled = 0 WHERE seq = (SELECT max(seq) FROM changes WHERE uri LIKE '%Zebra%')",
        "UPDATE commits SET at = '2020-01-01T00:00:00.000+00:00' WHERE settled = 0",
    )
    assert complaints(look(home)) == {"commits"}
    assert mend(home).clean
    assert path.read_text("utf-8") == text


def test_a_wrong_name_table_is_made_anew(home: Path) -> None:
    before = kept_files(home)
    execute(ledger_of(home), "PRAGMA foreign_keys=OFF", "DELETE FROM changes WHERE uri LIKE '%Zebra%'")
    assert complaints(look(home)) == {"names"}
    assert mend(home).clean
    assert kept_files(home) == before
    assert_all_found(home)


# The index


def wreck(*statements: str) -> Callable[[Path], None]:
    return lambda home: execute(index_of(home), *statements)


def spoil_vectors(home: Path) -> None:
    blob = np.full(512, np.nan, "<f4").tobytes()
    execute(index_of(home), "UPDATE vectors SET vector = ? WHERE seq % 5 = 0", values=(blob,))


def spoil_words(home: Path) -> None:
    execute(index_of(home), "DELETE FROM words_data WHERE id > 100")


WRONG: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a document of no file": ("documents", wreck("UPDATE documents SET uri = uri || 'x.md' WHERE uri LIKE '%Zebra%'")),
    "a turn that is missing": ("documents", wreck("DELETE FROM documents WHERE uri LIKE '%s1/messages%' AND part = 1")),
    "missing words": ("words", wreck("DELETE FROM words_docsize WHERE id = (SELECT max(id) FROM documents)")),
    "a torn full-text index": ("words", spoil_words),
    "vectors that are none": ("vectors", spoil_vectors),
    "missing vectors": ("vectors", wreck("DELETE FROM vectors WHERE seq % 3 = 0")),
    "garbage": ("index", lambda home: damage.garbage(index_of(home))),
    "turned pages": ("index", lambda home: damage.flipped(index_of(home))),
    "half of it": ("index", lambda home: damage.truncated(index_of(home))),
}


@pytest.mark.parametrize("kind", WRONG)
def test_each_kind_of_wrong_index_is_found_and_mended(home: Path, kind: str) -> None:
    check, spoil = WRONG[kind]
    spoil(home)
    report = look(home)
    assert check in complaints(report), list(report.lines())
    assert all("\n" not in line for line in report.lines())
    before = kept_files(home)
    mended = mend(home)
    assert mended.clean, list(mended.lines())
    assert kept_files(home) == before
    assert_all_found(home)
    if check in ("vectors", "index"):
        with open_memory(config(home)) as memory:
            memory.indexer.embed_all()
            asked = memory.find(FindRequest("When are payments backed up?"))
        assert SAID["支付系统"] in [hit.abstract for hit in asked.memories]
        assert {finding.severity for finding in look(home).of("vectors")} <= {Severity.OK}


def test_vectors_of_texts_that_are_gone_are_no_damage_and_ask_for_nothing(home: Path) -> None:
    with open_memory(config(home)) as memory:
        memory.indexer.embed_all()
        fact_file(home, "The heron").unlink()
        memory.store.adopt()
        memory.find(FindRequest("heron"))
    (finding,) = look(home).of("vectors")
    assert (finding.severity, finding.repair) == (Severity.OK, None)
    assert finding.detail == "vectors kept of texts that are gone (no search uses them): 1"


def test_an_index_that_is_behind_is_no_damage(home: Path) -> None:
    execute(index_of(home), "UPDATE meta SET value = '3' WHERE name = 'seq'")
    report = look(home)
    assert report.clean
    assert len(report.of("index")) == 1
    assert mend(home).of("index") == ()


# Rebuilding


def dump(memory: Runebook) -> list[tuple[Any, ...]]:
    connection = memory.indexer.catalog.connection()
    documents = connection.execute(
        "SELECT d.uri, d.part, d.space, d.context_type, d.memory_type, d.name, d.abstract, d.own, d.created_at, "
        "d.updated_at, d.happened, d.salience, d.tags, d.category, d.project, d.private, d.contested_by, d.support, "
        "d.signature, d.role, d.speaker, d.session_id, w.own, w.previous, w.scope "
        "FROM documents d JOIN words w ON w.rowid = d.id ORDER BY d.uri, d.part"
    ).fetchall()
    passages = connection.execute("SELECT uri, part, space, text, content_sha256 FROM passages ORDER BY uri, part")
    return [*documents, *passages]


@pytest.mark.parametrize("reembed", [False, True])
def test_everything_comes_back_equal(home: Path, reembed: bool) -> None:
    with open_memory(config(home)) as memory:
        memory.indexer.embed_all()
        before = dump(memory)
        memory.run(REBUILD, RebuildRequest(reembed=reembed))
        memory.indexer.embed_all()
        assert dump(memory) == before


# The command line


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return starter().call(*arguments, "--home", str(home))


def test_the_command_tells_sound_from_broken_by_its_status(home: Path) -> None:
    words_only = ("--set", "embedding.provider=none")
    assert run(home, "doctor").returncode == 0
    damage.garbage(ledger_of(home))
    found = run(home, "doctor", "--json")
    assert found.returncode == 1
    facts = json.loads(found.stdout)
    assert facts["clean"] is False
    assert "ledger" in {finding["check"] for finding in facts["findings"] if finding["severity"] == "error"}
    refused = run(home, "find", "heron", *words_only)
    assert refused.returncode == 1
    assert b"doctor --repair" in refused.stderr
    mended = run(home, "doctor", "--repair")
    assert mended.returncode == 0, mended.stdout + mended.stderr
    assert b"the damaged ledger is kept as .state/ledger.sqlite3.damaged-" in mended.stdout
    assert "支付系统每周三凌晨备份。" in run(home, "find", "支付系统", *words_only).stdout.decode()


def test_the_command_rebuilds_and_says_on_stderr_what_was_wrong(home: Path) -> None:
    damage.garbage(index_of(home))
    done = run(home, "rebuild", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["documents"] == 37
    assert facts["vectors_computed"] > 30
    assert b"the index is rebuilt: index.sqlite3 is damaged" in done.stderr
    again = json.loads(run(home, "rebuild", "--json").stdout)
    assert (again["vectors_kept"], again["vectors_computed"]) == (facts["vectors_computed"], 0)
