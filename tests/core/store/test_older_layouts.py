"""Stores whose ledger an older program made open with everything in them, whatever interrupts the migration.

``fixtures/stores/layout_N`` was written by the program whose ledger had schema version N: its files, and its ledger
as SQL. All hold the same life: memories in two languages, edits, a deletion, conversations, hand edits.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from memory_core.core.errors import StorageFailed
from memory_core.core.memory.directory_page import recorded
from memory_core.core.memory.message import parse_lines, to_record
from memory_core.core.memory.requests import CommitRequest, FindRequest, ReadRequest
from memory_core.core.memory.results import text_sha256
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.ledger import Ledger
from memory_core.core.store.sqlite import damage
from memory_core.features.foreign_ledger import expect_sound
from memory_core.runebook import Runebook, open_memory
from tests.fork_server import starter
from tests.kept import kept_files
from tests.stores import added, edit, handed_in, words_only
from tests.waiting import PATIENCE_SECONDS

STORES = Path(__file__).parents[2] / "fixtures" / "stores"
LAYOUTS = (1, 2, 3, 4, 5, 6)
PAYMENTS = MemoryUri.parse("viking://user/default/memories/entities/支付系统.md")
OSAKA = MemoryUri.parse("viking://session/default/osaka-trip/messages.jsonl")

OPEN = (
    "import sys, pathlib; from memory_core.core.store.ledger import Ledger; Ledger(pathlib.Path(sys.argv[1])).close()"
)
#: Dies within the migration's transaction, once so many of its statements were carried out.
DIE = """
import os, pathlib, signal, sys
from memory_core.core.store import sqlite as database
statements = database._statements
left = int(sys.argv[2])
def dying(script):
    global left
    for statement in statements(script):
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        yield statement
database._statements = dying
from memory_core.core.store.ledger import Ledger
Ledger(pathlib.Path(sys.argv[1])).close()
"""


def build(layout: int, home: Path) -> Path:
    """The store of that layout at ``home``; returns its ledger."""
    copytree(STORES / f"layout_{layout}" / "files", home)
    ledger = home / ".state" / "ledger.sqlite3"
    ledger.parent.mkdir(parents=True)
    with closing(sqlite3.connect(ledger)) as connection:
        connection.executescript((STORES / f"layout_{layout}" / "ledger.sql").read_text(encoding="utf-8"))
    assert version(ledger) == layout
    return ledger


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def version(path: Path) -> int:
    return int(rows(path, "PRAGMA user_version")[0][0])


def opened(home: Path) -> Runebook:
    return open_memory(words_only(home))


def newest_version(tmp_path: Path) -> int:
    Ledger(tmp_path / "newest.sqlite3").close()
    return version(tmp_path / "newest.sqlite3")


HISTORY = "SELECT seq, commit_id, at, kind, receipt, settled FROM commits ORDER BY seq"
CHANGES = (
    "SELECT seq, ordinal, uri, memory_type, appended, before, after, before_sha256, after_sha256 "
    "FROM changes ORDER BY seq, ordinal"
)
NAMES = "SELECT uri, directory, name_fold, memory_type, sha256, seq FROM files ORDER BY uri"


def told(ledger: Path) -> list[tuple[object, ...]]:
    """Every change with the text that it replaced, and every name; of pages what somebody wrote."""
    texts: dict[str, str | None] = {}
    found: list[tuple[object, ...]] = []
    for seq, _, uri, memory_type, appended, before, after, before_sha256, after_sha256 in rows(ledger, CHANGES):
        place, earlier = MemoryUri.parse(str(uri)), texts.get(str(uri))
        if before is None and before_sha256 is not None and not appended:
            before = earlier
        texts[str(uri)] = f"{earlier or ''}{after}" if appended else None if after is None else str(after)
        if place.is_summary:
            before, after = (recorded(place, None if text is None else str(text)) for text in (before, after))
            before_sha256, after_sha256 = (None if text is None else text_sha256(text) for text in (before, after))
            if before == after:
                continue
        found.append((seq, uri, memory_type, appended, before, after, before_sha256, after_sha256))
    for uri, *others, sha256, seq in rows(ledger, NAMES):
        place = MemoryUri.parse(str(uri))
        words = recorded(place, texts.get(str(uri))) if place.is_summary else None
        if not place.is_summary or words is not None:
            found.append((uri, *others, text_sha256(words) if words is not None else sha256, seq))
    return found


USAGE = "SELECT * FROM usage ORDER BY uri"
QUEUE = "SELECT * FROM extractions ORDER BY log"
CALLS = "SELECT * FROM counted_calls ORDER BY key"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_ledger_of_an_older_program_can_be_restored_from_a_backup(tmp_path: Path, layout: int) -> None:
    ledger = build(layout, tmp_path / "home")
    expect_sound(ledger)
    Ledger(ledger).close()
    expect_sound(ledger)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_history_names_usage_and_queue_of_an_older_ledger_survive_the_migration(tmp_path: Path, layout: int) -> None:
    ledger = build(layout, tmp_path / "home")
    kept = [HISTORY, USAGE] + ([QUEUE, CALLS] if layout >= 2 else [])
    before = [told(ledger), *(rows(ledger, query) for query in kept)]
    assert before[0]
    Ledger(ledger).close()
    assert version(ledger) == newest_version(tmp_path)
    assert [told(ledger), *(rows(ledger, query) for query in kept)] == before
    counts = "SELECT directory, count(*) FROM files WHERE name_fold LIKE '%.md' AND name_fold NOT LIKE '.%' GROUP BY 1"
    assert rows(ledger, "SELECT * FROM directories WHERE memories > 0 ORDER BY directory") == rows(
        ledger, f"{counts} ORDER BY 1"
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_migrated_ledger_has_the_schema_of_a_new_one(tmp_path: Path, layout: int) -> None:
    ledger = build(layout, tmp_path / "home")
    Ledger(ledger).close()
    Ledger(tmp_path / "new.sqlite3").close()
    query = "SELECT type, name, tbl_name, trim(sql) FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name"

    def schema(path: Path) -> list[tuple[object, ...]]:
        return [(*names, " ".join(str(sql).split())) for *names, sql in rows(path, query)]

    assert schema(ledger) == schema(tmp_path / "new.sqlite3")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_file_of_an_older_store_reads_as_before_and_none_counts_as_edited(tmp_path: Path, layout: int) -> None:
    home = tmp_path / "home"
    build(layout, home)
    files = {path.relative_to(home).as_posix(): path.read_bytes() for path in home.glob("[!.]*/**/*") if path.is_file()}
    kept = kept_files(home)
    with opened(home) as memory:
        commits = memory.store.ledger.newest_seq()
        assert memory.store.adopt() == 0
        assert memory.store.ledger.newest_seq() == commits
        for name, content in files.items():
            uri = MemoryUri.parse(f"viking://{name}")
            assert memory.store.look(uri)[0] == recorded(uri, content.decode())
            assert memory.store.ledger.text_at(uri, commits) == recorded(uri, content.decode())
    assert {name: content for name, content in kept_files(home).items() if name in files} == kept


@pytest.mark.parametrize("layout", LAYOUTS[:4])
def test_an_older_store_is_searched_edited_and_continued(tmp_path: Path, layout: int) -> None:
    build(layout, tmp_path / "home")
    with opened(tmp_path / "home") as memory:
        assert memory.find(FindRequest("TiDB 双活部署")).memories[0].uri == str(PAYMENTS)
        assert memory.find(FindRequest("spare key third stone")).memories[0].uri.endswith("/notes/hand.md")
        assert memory.find(FindRequest("心斋桥")).resources[0].uri.startswith(str(OSAKA))
        assert memory.read(ReadRequest("viking://user/default/memories/profile.md")).content.startswith(
            "Marine biologist in Tromsø"
        )
        renamed = edit(str(PAYMENTS), content=[{"search": "TiDB", "replace": "OceanBase"}])
        assert handed_in(memory, edit=[renamed]).status == "committed"
        again = added(memory, "entities", entity_name="支付系統", content="同一个。")
        assert [result.uri for result in again.results] == [str(PAYMENTS)]  # the traditional name is the same key
        history = [row.kind for row in memory.store.ledger.history(PAYMENTS)]
        assert history == ["commit"] * 4
        stored, _ = parse_lines(memory.store.text(OSAKA) or "")
        asked = {"role": "user", "content": "离车站近吗?"}
        receipt = memory.commit(CommitRequest(messages=[*map(to_record, stored), asked], session_id="osaka-trip"))
        assert receipt.usage == {"messages": 6, "messages_new": 1}


def test_a_request_id_of_an_older_store_still_returns_its_first_receipt(tmp_path: Path) -> None:
    for layout in LAYOUTS[:4]:
        build(layout, tmp_path / str(layout))
        with opened(tmp_path / str(layout)) as memory:
            newest = memory.store.ledger.newest_seq()
            receipt = memory.commit(
                CommitRequest("The lighthouse relief boat leaves Skagen every 14 days.", request_id="older-1")
            )
            assert "repeated request_id" in receipt.notes
            assert memory.store.ledger.newest_seq() == newest


@pytest.mark.parametrize("layout", [2, 3])
def test_conversations_that_waited_for_extraction_still_wait(tmp_path: Path, layout: int) -> None:
    ledger = Ledger(build(layout, tmp_path / "home"))
    try:
        waiting = ledger.extractions.waiting(MemoryUri.parse("viking://session/default"))
        assert {(row.log.parent.name, row.waiting) for row in waiting} == {("osaka-trip", 5), ("cat", 1)}
    finally:
        ledger.close()


def test_a_commit_that_an_older_program_was_killed_in_is_brought_to_disk(tmp_path: Path) -> None:
    home = tmp_path / "home"
    ledger = build(3, home)
    path = home.joinpath(*PAYMENTS.parts)
    text = path.read_text(encoding="utf-8")
    path.unlink()
    newest = "SELECT max(seq) FROM changes WHERE uri = ?"
    with closing(sqlite3.connect(ledger)) as connection, connection:
        connection.execute(f"UPDATE commits SET settled = 0 WHERE seq = ({newest})", (str(PAYMENTS),))
    with opened(home) as memory:
        assert memory.store.text(PAYMENTS) == text
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.skipif(os.name != "posix", reason="kills with SIGKILL")
def test_a_migration_killed_at_any_statement_leaves_the_old_ledger_whole(tmp_path: Path, layout: int) -> None:
    ledger = build(layout, tmp_path / "home")
    before = [rows(ledger, query) for query in (HISTORY, CHANGES, NAMES)]
    history = told(ledger)
    killed = 0
    for statement in range(0, 200, 5):
        died = starter().run(DIE, ledger, statement)
        if died.returncode == 0:
            break
        assert died.returncode == -signal.SIGKILL
        killed += 1
        assert version(ledger) == layout
        assert [rows(ledger, query) for query in (HISTORY, CHANGES, NAMES)] == before
    assert killed >= (2 if layout < LAYOUTS[-1] else 1)
    assert version(ledger) == newest_version(tmp_path)
    assert (rows(ledger, HISTORY), told(ledger)) == (before[0], history)
    assert damage(ledger) is None


def test_processes_that_open_an_older_store_at_once_migrate_it_once(tmp_path: Path) -> None:
    ledger = build(1, tmp_path / "home")
    command = [sys.executable, "-c", OPEN, str(ledger)]
    openers = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(3)]
    for opener in openers:
        _, complaint = opener.communicate(timeout=PATIENCE_SECONDS)
        assert (opener.returncode, complaint) == (0, b"")
    assert version(ledger) == newest_version(tmp_path)
    assert rows(ledger, "SELECT count(*) FROM commits") == [(13,)]


@pytest.mark.parametrize("layout", LAYOUTS[:4])
def test_the_ledger_is_kept_as_it_was_before_the_migration(tmp_path: Path, layout: int) -> None:
    ledger = build(layout, tmp_path / "home")
    before = [rows(ledger, query) for query in (HISTORY, CHANGES, NAMES)]
    stale = ledger.with_name("ledger-before-v2.sqlite3")
    stale.write_bytes(b"of the migration before")
    Ledger(ledger).close()
    newest = newest_version(tmp_path)
    (kept,) = ledger.parent.glob("ledger-before-*")
    assert kept.name == f"ledger-before-v{newest}.sqlite3"
    assert version(kept) == layout
    assert [rows(kept, query) for query in (HISTORY, CHANGES, NAMES)] == before
    assert kept.stat().st_mode & 0o777 == 0o600


def test_a_new_store_keeps_no_copy_of_an_empty_ledger(tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger.sqlite3").close()
    Ledger(tmp_path / "ledger.sqlite3").close()
    assert not list(tmp_path.glob("ledger-before-*"))


def test_a_copy_that_cannot_be_made_keeps_nobody_from_the_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = build(2, tmp_path / "home")
    blocked = ledger.with_name(f"ledger-before-v{newest_version(tmp_path)}.sqlite3")
    (blocked / "in the way").mkdir(parents=True)
    Ledger(ledger).close()
    assert version(ledger) == newest_version(tmp_path)
    assert "without a copy of its old form" in caplog.text


def test_a_ledger_of_a_newer_program_is_refused_untouched(tmp_path: Path) -> None:
    ledger = build(3, tmp_path / "home")
    rows(ledger, "PRAGMA user_version=99")
    with pytest.raises(StorageFailed, match="schema version 99") as refusal:
        opened(tmp_path / "home")
    assert "Upgrade Runebook" in refusal.value.hint
    assert version(ledger) == 99
    assert not list(ledger.parent.glob("ledger-before-*"))
