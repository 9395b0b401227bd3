"""The owner's commands, on a folder and on PostgreSQL: examine, mend, make anew, take out and bring in."""

from __future__ import annotations

import json
import shutil
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from memory_core.core.caller import Access, authored
from memory_core.core.config import EmbeddingConfig
from memory_core.core.errors import InvalidInput
from memory_core.core.memory.names import short_hash
from memory_core.core.memory.requests import CommitRequest, FindRequest, ReadRequest
from memory_core.core.memory.results import as_json
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.ledger_snapshot import LedgerSnapshot, insert_history
from memory_core.features import doctor_checks
from memory_core.features.doctor import DOCTOR, DoctorRequest, Report
from memory_core.features.doctor_checks import Severity
from memory_core.features.export import Selection, export
from memory_core.features.import_export import OnConflict, import_export
from memory_core.features.migrate import MIGRATE, MigrateRequest
from memory_core.features.purge import PURGE, PurgeRequest
from memory_core.features.rebuild import REBUILD, RebuildRequest
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.move import move
from memory_core.runebook import Runebook
from server.cli import main
from tests.contract.conftest import Place
from tests.stores import remember, trailer
from tests.waiting import at_once

psycopg = pytest.importorskip("psycopg")
from pgvector import HalfVector  # noqa: E402 - may be missing, too

NOTES = {
    "gulls": "Seven gulls stood on the pier.",
    "boat": "The boat is in the harbour. 小林住在杭州。",
    "tea": "Paul drinks green tea without sugar.",
}
QUESTIONS = ("gulls", "where is the boat", "谁住在杭州", "tea", "harbour")


def filled(memory: Runebook) -> Runebook:
    for title, text in NOTES.items():
        remember(memory, text, "notes", title=title)
    remember(memory, "The boat is blue. It lies in the harbour.", "notes", title="boat")
    said = [{"role": "user", "content": "We spoke about the harbour."}, {"role": "assistant", "content": "So we did."}]
    memory.commit(CommitRequest(messages=said, session_id="s1"))
    memory.indexer.follow(None)
    return memory


def test_clients_are_named_with_their_last_call(place: Place) -> None:
    first, then = datetime(2026, 5, 1, 8, tzinfo=UTC), datetime(2026, 5, 2, 8, tzinfo=UTC)
    with place.open() as memory:
        for client, at in (("editor 1.0", first), ("phone", first), ("editor 1.0", then)):
            with authored(client):
                memory.recalls.note_call(at)
        memory.view(access=Access.PRIVATE).recalls.note_call(then)
        memory.store.usage.flush()
        assert memory.store.ledger.usage_table.clients() == [("editor 1.0", then), ("phone", first)]


def test_growth_is_counted_where_the_rows_are(place: Place) -> None:
    now = datetime(2026, 5, 20, 12, tzinfo=UTC)
    with place.open() as memory:
        for title, at in (
            ("Boat", datetime(2025, 5, 3, tzinfo=UTC)),
            ("茶", datetime(2025, 5, 4, tzinfo=UTC)),
            ("Tea", now),
        ):
            remember(memory, "It is.", "notes", title=title, now=at)
        memory.indexer.follow(None)
        memory.recalls.note_read("viking://user/default/memories/notes/Boat.md", now)
        memory.find(FindRequest("tea", now=now))
        memory.store.usage.flush()
        found = memory.memory_list.growth("default", now)
        assert found.months == (("2025-05", 2), ("2026-05", 1))
        assert found.recalls == (("2026-05-20", 1),)
        assert found.freshness == ((0.75, 2), (0.5, 0), (0.25, 0), (0.0, 1))


def answers(memory: Runebook) -> list[list[tuple[str, float]]]:
    """Every hit with its score; equals by address."""
    every = [memory.find(FindRequest(question, limit=50)).hits for question in QUESTIONS]
    return [
        sorted(((hit.uri, round(hit.score, 9)) for hit in hits), key=lambda hit: (-hit[1], hit[0])) for hits in every
    ]


def rows_of(memory: Runebook, asked: str) -> list[Any]:
    return sorted(map(tuple, memory.indexer.catalog.connection().execute(asked).fetchall()), key=repr)


def rows_of_ledger(memory: Runebook, asked: str) -> list[Any]:
    return sorted(map(tuple, memory.store.ledger.database.connection().execute(asked).fetchall()), key=repr)


def dump(memory: Runebook) -> list[Any]:
    """What a store holds."""
    return [
        rows_of_ledger(memory, "SELECT uri, sha256, seq FROM files"),
        rows_of_ledger(memory, "SELECT seq, ordinal, uri, after, purged FROM changes"),
        rows_of(memory, "SELECT uri, part, own FROM documents"),
        rows_of(memory, "SELECT uri, part, text FROM passages"),
    ]


# The index anew ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reembed", [False, True])
def test_a_rebuilt_index_finds_what_was_found_before(place: Place, reembed: bool) -> None:
    memory = filled(place.open(embedding=EmbeddingConfig()))
    memory.indexer.embed_all()
    found, held = answers(memory), rows_of(memory, "SELECT uri, part, content_sha256 FROM passages")
    vectors = memory.indexer.vector_count()
    assert all(found)
    with memory.indexer.catalog.writing() as connection:  # half of it is lost
        connection.execute("DELETE FROM documents WHERE uri LIKE '%gulls%'")
        connection.execute("DELETE FROM passages WHERE uri LIKE '%tea%'")
    assert answers(memory) != found
    rebuilt = memory.run(REBUILD, RebuildRequest(reembed=reembed))
    memory.indexer.embed_all()
    assert answers(memory) == found
    assert rows_of(memory, "SELECT uri, part, content_sha256 FROM passages") == held
    assert memory.indexer.vector_count() == len(held)
    assert rebuilt.documents == len(rows_of(memory, "SELECT uri, part FROM documents"))
    # The text of the boat that was replaced has its vector dropped, or all are.
    assert (rebuilt.vectors_kept, rebuilt.vectors_dropped) == (
        (0, vectors) if reembed else (len(held), vectors - len(held))
    )


def test_a_rebuild_leaves_the_index_of_other_users_alone(rows: Place) -> None:
    memory = filled(rows.open())
    other = memory.view("berta")
    remember(other, "Berta keeps bees.", title="bees")
    other.indexer.follow(None)
    asked = "SELECT id, uri FROM documents"
    held = rows_of(other, asked)
    memory.run(REBUILD, RebuildRequest())
    assert rows_of(other, asked) == held != []


# The examination -----------------------------------------------------------------------------------------------------


def examined(memory: Runebook) -> Report:
    return memory.run(DOCTOR, DoctorRequest())


def told(report: Report) -> set[tuple[str, str]]:
    """What is wrong: check and subject."""
    return {
        (finding.check, finding.subject)
        for finding in report.findings
        if finding.severity in (Severity.WARNING, Severity.ERROR)
    }


def test_a_sound_store_is_clean_and_the_examination_changes_nothing(place: Place) -> None:
    memory = filled(place.open())
    remember(memory, "Nobody may know.", "notes", title="secret")
    memory.run(PURGE, PurgeRequest("viking://user/default/memories/notes/secret.md"))
    memory.indexer.follow(None)
    before = dump(memory)
    report = examined(memory)
    assert (report.clean, told(report)) == (True, set())
    assert dump(memory) == before
    assert as_json(report)["clean"] is True


#: What is broken in a row, which check tells it, and about what.
BROKEN = {
    "a text that is not what was committed": (
        "ledger",
        "UPDATE changes SET after = 'forged' WHERE uri LIKE '%/gulls.md'",
        ("history", "viking://user/default/memories/notes/gulls.md at commit 1"),
    ),
    "a count": ("ledger", "UPDATE directories SET memories = 99", ("names", "viking://user/default/memories/notes")),
    "a folded name": (
        "ledger",
        "UPDATE files SET name_fold = 'GULLS.MD' WHERE uri LIKE '%/gulls.md'",
        ("names", "viking://user/default/memories/notes/gulls.md"),
    ),
    "a document": (
        "index",
        "UPDATE documents SET own = 'nothing' WHERE uri LIKE '%/tea.md'",
        ("documents", "viking://user/default/memories/notes/tea.md"),
    ),
    "a document that is gone": (
        "index",
        "DELETE FROM documents WHERE uri LIKE '%/tea.md'",
        ("documents", "viking://user/default/memories/notes/tea.md"),
    ),
    "a passage": (
        "index",
        "UPDATE passages SET text = 'nothing' WHERE uri LIKE '%/tea.md'",
        ("documents", "viking://user/default/memories/notes/tea.md"),
    ),
    "a document of no file": (
        "index",
        "UPDATE passages SET uri = 'viking://user/default/memories/notes/none.md' WHERE uri LIKE '%/tea.md'",
        ("documents", "viking://user/default/memories/notes/none.md"),
    ),
}
#: Texts are what they are: no program knows what stood there.
NOT_MENDED = {"a text that is not what was committed"}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_broken_is_told_and_mended(place: Place, what: str) -> None:
    half, statement, expected = BROKEN[what]
    memory = filled(place.open())
    found = answers(memory)
    database = memory.store.ledger.database if half == "ledger" else memory.indexer.catalog
    with database.writing() as connection:
        assert connection.execute(statement).rowcount > 0
    report = examined(memory)
    assert expected in told(report), report
    assert not report.clean
    assert "forged" not in str(as_json(report))
    mended = memory.run(DOCTOR, DoctorRequest(repair=True))
    assert told(mended) == (told(report) if what in NOT_MENDED else set()), mended
    memory.close()
    again = place.open()
    assert answers(again) == found or what in NOT_MENDED


def test_vectors_that_are_none_or_lack_are_told_and_computed_anew(place: Place) -> None:
    memory = filled(place.open(embedding=EmbeddingConfig()))
    memory.indexer.embed_all()
    found, held = answers(memory), memory.indexer.vector_count()
    with memory.indexer.catalog.writing() as connection:
        (passages,) = connection.execute("SELECT count(*) FROM passages WHERE uri LIKE '%/tea.md'").fetchone()
        assert connection.execute("DELETE FROM vectors WHERE uri LIKE '%/tea.md'").rowcount == passages
        if place.url:
            cast("Any", connection).native(
                "UPDATE vectors SET vector = %s WHERE uri LIKE '%%/gulls.md'", (HalfVector([1, 0]),)
            )
        else:
            connection.execute("UPDATE vectors SET vector = x'00' WHERE uri LIKE '%/gulls.md'")
    report = examined(memory)
    details = {finding.detail for finding in report.of("vectors") if finding.severity is Severity.WARNING}
    assert details == {
        "1 rows hold no vector: a wrong size, no number, or not of length 1",
        f"{passages} passages have no vector and do not wait for one",
    }
    mended = memory.run(DOCTOR, DoctorRequest(repair=True))
    assert mended.clean
    memory.indexer.embed_all()
    assert memory.indexer.vector_count() == held
    assert answers(memory) == found


class TestDatabase:
    def test_words_that_are_not_those_of_the_text(self, rows: Place) -> None:
        memory = filled(rows.open())
        found = answers(memory)
        with memory.indexer.catalog.writing() as connection:
            assert connection.execute("DELETE FROM words WHERE term = 'gull'").rowcount > 0
        report = examined(memory)
        assert told(report) == {("documents", "viking://user/default/memories/notes/gulls.md")}
        with memory.indexer.catalog.writing() as connection:
            connection.execute("INSERT INTO word_counts (document, tokens) VALUES (999999, 3)")
        assert ("words", "index.sqlite3") in told(examined(memory))
        assert memory.run(DOCTOR, DoctorRequest(repair=True)).clean
        assert answers(memory) == found

    def test_files_that_are_not_listed(self, rows: Place) -> None:
        memory = filled(rows.open())
        asked = "SELECT uri, sha256, size_bytes, memory_type, key, seq FROM files ORDER BY uri"
        before = memory.store.ledger.database.connection().execute(asked).fetchall()
        with memory.store.ledger.database.writing() as connection:
            connection.execute("DELETE FROM files WHERE uri LIKE '%/tea.md'")
        report = examined(memory)
        tea = "viking://user/default/memories/notes/tea.md"
        assert ("names", tea) in told(report)
        mended = memory.run(DOCTOR, DoctorRequest(repair=True))
        assert mended.clean, mended
        after = memory.store.ledger.database.connection().execute(asked).fetchall()
        assert [row for row in after if row[0] != tea] == [row for row in before if row[0] != tea]
        assert [row[:2] for row in after] == [row[:2] for row in before]
        assert memory.read(ReadRequest(tea)).content.startswith("Paul drinks")

    def test_a_lock_that_a_server_has_held_for_long(self, rows: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        memory = filled(rows.open())
        log = "viking://session/default/s1/messages.jsonl"
        assert rows_of_ledger(memory, "SELECT log FROM extractions WHERE stored > extracted") == [(log,)]
        with memory.store.lock(f"extract-{short_hash(log)}").held():
            assert examined(memory).clean  # it is young
            monkeypatch.setattr(doctor_checks, "_HELD_SECONDS", 0.0)
            assert ("queue", log) in told(examined(memory))  # as may be the index, which is worked on just then
            assert ("queue", log) not in told(examined(memory.view("berta")))
        assert ("queue", log) not in told(examined(memory))

    def test_row_level_security_that_is_off_and_another_schema(self, rows: Place) -> None:
        memory = filled(rows.open())
        with psycopg.connect(rows.url, autocommit=True) as owner:
            owner.execute("ALTER TABLE runebook_ledger.files DISABLE ROW LEVEL SECURITY")
            report = examined(memory)
            assert told(report) == {("database", "store.url")}
            (problem,) = report.of("database")
            statement = problem.detail.partition("mends that: ")[2]
            owner.execute(statement)
            assert examined(memory).clean
            owner.execute("UPDATE runebook.store SET version = 1")
            older = examined(memory)
            assert [finding.check for finding in older.findings] == ["versions", "database"]
            assert "runebook db migrate" in older.of("database")[0].detail
            assert told(memory.run(DOCTOR, DoctorRequest(repair=True))) == told(older)
            assert owner.execute("SELECT version FROM runebook.store").fetchone() == (1,)

    def test_nothing_of_another_user_is_shown_or_mended(self, rows: Place) -> None:
        memory = filled(rows.open())
        other = memory.view("berta")
        remember(other, "Berta keeps bees.", "notes", title="bees")
        other.indexer.follow(None)
        with other.store.ledger.database.writing() as connection:
            connection.execute("UPDATE changes SET after = 'forged'")
        with other.indexer.catalog.writing() as connection:
            connection.execute("DELETE FROM words")
        report = memory.run(DOCTOR, DoctorRequest(repair=True))
        assert report.clean
        assert not [word for word in ("berta", "bees") if word in str(as_json(report))]
        hers = told(examined(other))
        assert {subject.partition(" at ")[0] for _, subject in hers if subject.startswith("viking:")} == {
            "viking://user/berta/memories/notes/bees.md"
        }

    def test_the_command_examines_and_mends_one_user(self, rows: Place, capsys: pytest.CaptureFixture[str]) -> None:
        memory = filled(rows.open())
        with memory.indexer.catalog.writing() as connection:
            connection.execute("DELETE FROM words")
        settings = ("--set", f"store.url={rows.url}", "--set", "embedding.provider=none")
        capsys.readouterr()
        assert main(["doctor", "--json", *settings]) == 1
        facts = json.loads(capsys.readouterr().out)
        assert {finding["check"] for finding in facts["findings"] if finding["severity"] == "warning"} == {"documents"}
        assert main(["doctor", "--json", *settings, "--set", "user_space=berta"]) == 0
        capsys.readouterr()
        assert main(["doctor", "--repair", *settings]) == 0
        assert "repaired  the index holds 5 documents, built anew" in capsys.readouterr().out
        assert not rows.home.exists()


# Out and in ----------------------------------------------------------------------------------------------------------

EVERYTHING = Selection(history=True, messages=True)
SELECTIONS = (
    EVERYTHING,
    Selection(),
    Selection(project="harbour", history=True),
    Selection(memory_type="notes", sessions=False),
    Selection(MemoryUri.parse("viking://user/default/memories/notes/tea.md"), history=True),
)


def lived(memory: Runebook) -> Runebook:
    """With a project, what was purged and undone, and a conversation that went on."""
    filled(memory)
    remember(memory, "The crane is red.", "notes", title="crane", project="harbour")
    remember(memory, "Nobody may know.", "notes", title="secret")
    memory.run(PURGE, PurgeRequest("viking://user/default/memories/notes/secret.md"))
    wrong = memory.commit(CommitRequest("Wrong.", memory_type="notes", fields={"title": "wrong"}))
    memory.run(UNDO, UndoRequest(wrong.commit_id))
    said = [{"role": "user", "content": "We spoke about the harbour."}, {"role": "assistant", "content": "So we did."}]
    memory.commit(CommitRequest(messages=[*said, {"role": "user", "content": "And the gulls?"}], session_id="s1"))
    return memory


def members(path: Path) -> dict[str, Any]:
    """What an export holds, but for the store's name and the time."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            found: dict[str, Any] = {name: archive.read(name) for name in archive.namelist()}
        manifest = json.loads(found.pop("manifest.json"))
    else:
        manifest, *lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        found = {str(number): line for number, line in enumerate(lines)}
        for line in lines:
            line.pop("sha256" if line["kind"] == "end" else "", None)
            line.pop("end_sha256", None)
    for name in ("created_at", "ledger_id", "manifest_sha256", "sha256"):
        manifest.pop(name, None)
    return found | {"manifest": manifest}


def texts(memory: Runebook) -> dict[str, str]:
    found = rows_of_ledger(memory, "SELECT uri FROM files")
    return {uri: memory.store.look(MemoryUri.parse(uri))[0] or "" for (uri,) in found}


def test_an_export_of_a_database_is_that_of_the_folder_it_came_from(tmp_path: Path, folder: Place, rows: Place) -> None:
    lived(folder.open()).close()
    move(folder.config(), rows.url)
    one, other = folder.open(), rows.open()
    for number, selection in enumerate(SELECTIONS):
        for ending in ("zip", "jsonl"):
            paths = [tmp_path / f"{name}-{number}.{ending}" for name in ("folder", "rows")]
            first, second = (export(memory, path, selection) for memory, path in zip((one, other), paths, strict=True))
            assert first.counts == second.counts
            assert first.counts["files"] > 0
            assert first.left_out == second.left_out == []
            assert members(paths[0]) == members(paths[1]), selection
    assert b"Nobody may know" not in (tmp_path / "rows-0.jsonl").read_bytes()


def test_an_export_shows_nothing_of_other_users_and_one_moment(tmp_path: Path, rows: Place) -> None:
    memory = filled(rows.open())
    other = memory.view("berta")
    remember(other, "Berta keeps bees.", "notes", title="bees")
    with LedgerSnapshot.of(memory.store.ledger) as snapshot:
        held = [file.uri for file in snapshot.files()]
        at_once(memory.commit, CommitRequest("Later.", memory_type="notes", fields={"title": "later"}))
        assert [file.uri for file in snapshot.files()] == held
        assert len(list(snapshot.history())) == snapshot.seq == 5
    done = export(memory, tmp_path / "all.jsonl", EVERYTHING)
    assert done.counts["commits"] == 6
    assert b"berta" not in (tmp_path / "all.jsonl").read_bytes().lower()


@pytest.mark.parametrize("ending", ["zip", "jsonl"])
def test_an_import_brings_texts_history_and_queue_and_twice_is_once(
    place: Place, folder: Place, tmp_path: Path, ending: str
) -> None:
    lived(folder.open()).close()  # receipts have their final form then
    there, path = folder.open(), tmp_path / f"all.{ending}"
    export(there, path, EVERYTHING)
    here = place.open()
    planned = import_export(here, path, dry_run=True)
    assert (texts(here), planned.commits, here.store.ledger.newest_seq()) == ({}, [], 0)
    done = import_export(here, path)
    assert (planned.created, planned.history) == (done.created, done.history)
    assert [*done.refused, *done.kept, *done.notes] == []
    assert texts(here) == texts(there)
    asked = "SELECT commit_id, request_id, at, kind, receipt, author, undoes FROM commits"
    before = rows_of_ledger(there, asked)
    assert [row for row in rows_of_ledger(here, asked) if row in before] == before
    assert done.history == len(before)
    waiting = "SELECT log, stored, extracted FROM extractions"
    assert rows_of_ledger(here, waiting) == rows_of_ledger(there, waiting) != []
    here.indexer.follow(None)
    assert answers(here) == answers(there)
    assert examined(here).clean
    again = import_export(here, path)
    assert (again.commits, again.created, again.updated, again.history) == ([], [], [], 0)
    assert again.unchanged == len(done.created)
    # What was there before the move can be undone here.
    boat = next(row for row in sorted(before, key=lambda row: row[2]) if "boat.md" in row[4] and '"updated"' in row[4])
    here.run(UNDO, UndoRequest(boat[0]))
    assert "小林" in texts(here)["viking://user/default/memories/notes/boat.md"]


@pytest.mark.parametrize("policy", list(OnConflict))
def test_what_differs_is_kept_replaced_or_put_beside(
    place: Place, folder: Place, tmp_path: Path, policy: OnConflict
) -> None:
    there, path = filled(folder.open()), tmp_path / "all.zip"
    export(there, path, Selection())
    here = place.open()
    remember(here, "Paul drinks coffee.", "notes", title="tea")
    tea = "viking://user/default/memories/notes/tea.md"
    own = texts(here)[tea]
    done = import_export(here, path, on_conflict=policy)
    now = texts(here)
    assert set(texts(there)) <= set(now)
    if policy is OnConflict.KEEP:
        assert (now[tea], [problem.name for problem in done.kept]) == (own, [tea])
    elif policy is OnConflict.REPLACE:
        assert (now[tea], done.updated) == (texts(there)[tea], [tea])
    else:
        (pair,) = done.beside
        assert pair.uri == tea
        assert "coffee" in now[tea]
        assert "green tea" in now[pair.imported]
        for one, other in ((tea, pair.imported), (pair.imported, tea)):
            assert [link["uri"] for link in trailer(here, one)["links"]] == [other]
    again = import_export(here, path, on_conflict=policy)
    assert (again.commits, texts(here)) == ([], now)
    for commit in reversed(done.commits):
        here.run(UNDO, UndoRequest(commit))
    assert texts(here) == {tea: own}
    here.indexer.follow(None)
    assert examined(here).clean


class TestImports:
    def test_what_is_of_another_user_or_cannot_be_kept_is_refused_alone(
        self, rows: Place, folder: Place, tmp_path: Path
    ) -> None:
        there, path = filled(folder.open()), tmp_path / "all.jsonl"
        remember(there.view("berta"), "Berta keeps bees.", "notes", title="bees")
        odd = folder.home / "user/default/memories/notes/odd.md"
        odd.write_bytes(b"A \0 in it.\n")
        there.store.adopt()
        export(there, path, Selection(history=True))
        here = rows.open()
        done = import_export(here, path)
        bees = "viking://user/berta/memories/notes/bees.md"
        assert {problem.name for problem in done.refused} == {bees, "viking://user/default/memories/notes/odd.md"}
        assert done.history == 0
        assert "another user" in done.notes[0]
        assert bees not in texts(here)
        assert examined(here).clean
        mine = import_export(here, path, into=("default", "default"))
        assert mine.created == ["viking://user/default/memories/notes/bees.md"]

    def test_a_history_that_is_none_changes_nothing(self, rows: Place, folder: Place) -> None:
        there = filled(folder.open())
        with LedgerSnapshot.of(there.store.ledger) as snapshot:
            commits = list(snapshot.history())
        here = rows.open()
        spoilt: Any
        for spoilt in ([*commits, commits[0]], [commits[0] | {"at": None}], [{}], [commits[0] | {"changes": [{}]}]):
            with pytest.raises(InvalidInput, match="malformed"):
                insert_history(here.store.ledger, spoilt)
            assert here.store.ledger.newest_seq() == 0
        assert insert_history(here.store.ledger, commits) == len(commits)
        assert insert_history(here.store.ledger, commits) == 0

    def test_the_commands_write_and_read_exports(
        self, rows: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        settings = ("--set", f"store.url={rows.url}", "--set", "embedding.provider=none")
        filled(rows.open()).close()
        path = str(tmp_path / "all.zip")
        assert main(["export", path, "--history", *settings]) == 0
        to = ("--into", "berta/berta", "--set", "user_space=berta")
        capsys.readouterr()
        assert main(["import", path, "--json", *settings, *to]) == 0
        created = json.loads(capsys.readouterr().out)["created"]
        assert "viking://user/berta/memories/notes/tea.md" in created
        assert rows.open().view("berta", "berta").find(FindRequest("tea")).memories
        assert not rows.home.exists()


# Older stores, and backups -------------------------------------------------------------------------------------------

OLDER = Path(__file__).parents[1] / "fixtures" / "older_store"


def test_a_folder_that_an_older_program_wrote_is_migrated_in_a_database_as_in_the_folder(
    folder: Place, rows: Place
) -> None:
    shutil.copytree(OLDER, folder.home)
    move(folder.config(), rows.url)
    now = datetime(2026, 4, 1, tzinfo=UTC)
    done = []
    for memory in (folder.open(), rows.open()):
        before = texts(memory)
        planned = memory.run(MIGRATE, MigrateRequest(dry_run=True, now=now))
        assert texts(memory) == before
        migrated = memory.run(MIGRATE, MigrateRequest(now=now))
        assert planned.renamed == migrated.renamed
        again = memory.run(MIGRATE, MigrateRequest(now=now))
        assert (again.renamed, again.rewritten, again.commits) == ((), (), ())
        after = texts(memory)
        assert not [uri for uri, text in after.items() if "1970-" in text]
        memory.run(UNDO, UndoRequest(migrated.commits[0]))
        assert texts(memory) == before
        done.append((migrated.renamed, migrated.rewritten, migrated.unchanged, migrated.skipped, set(after)))
    assert done[0] == done[1]
    assert done[0][0]


class TestFolderCommands:
    def test_backups_are_the_database_s_own_and_the_commands_say_so(
        self, rows: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        filled(rows.open()).close()
        settings = ("--set", f"store.url={rows.url}", "--set", "embedding.provider=none", "--home", str(rows.home))
        for command in (["backup", str(tmp_path / "backups")], ["restore", str(tmp_path / "backups")]):
            assert main([*command, *settings]) == 1
            assert "pg_dump" in capsys.readouterr().err
        assert not rows.home.exists()
        assert not (tmp_path / "backups").exists()
