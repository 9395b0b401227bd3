"""Import, export, backup and restore over HTTP, as the commands do them."""

from __future__ import annotations

import base64
import io
import json
import os
import tempfile
import threading
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from memory_core.core.config import Config
from memory_core.core.errors import InvalidInput, NotFound
from memory_core.features import backup
from memory_core.features.backup import SETTINGS_BESIDE, back_up
from memory_core.runebook import open_memory
from server.http import transfer_routes, transfers
from tests.server.bearers import ledger_of
from tests.server.http.conftest import SETTINGS, Desk, Page
from tests.waiting import PATIENCE_SECONDS, soon

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def desk(own_desk: Desk) -> Desk:
    return own_desk


def upload(desk: Desk, name: str, content: bytes) -> str:
    begun = desk.owner.facts("POST", "/transfers", {"name": name})
    path = f"/transfers/{begun['transfer']['id']}"
    step = begun["part_bytes"]
    for offset in range(0, len(content), step):
        part = base64.b64encode(content[offset : offset + step]).decode()
        desk.owner.facts("PUT", path, {"offset": offset, "base64": part})
    return path


def finished(desk: Desk, transfer_id: str) -> dict[str, Any]:
    """The transfer once its work is over."""

    found: dict[str, Any] = {}

    def ended() -> bool:
        found.update(desk.owner.facts("GET", f"/transfers/{transfer_id}"))
        return found["state"] in ("done", "failed")

    assert soon(ended)
    return found


def worked(desk: Desk, path: str, **asked: Any) -> dict[str, Any]:
    return finished(desk, desk.owner.facts("POST", path, asked)["id"])


def names(desk: Desk) -> set[str]:
    return {entry["name"] for entry in desk.owner.facts("GET", "/entries")["entries"]}


def test_notes_are_looked_at_first_then_imported_and_taken_back(desk: Desk) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("notes/Harbour.md", "# Harbour\n\nThe boat is blue.\n")
        made.writestr("notes/茶.md", "# 茶\n\n早上喝绿茶。\n")
    path = upload(desk, "notes.zip", archive.getvalue())
    looked = worked(desk, f"{path}/import", dry_run=True)
    assert looked["state"] == "done"
    assert sum(kind.get("created", 0) for kind in looked["report"]["counts"].values()) == 2
    assert names(desk) == set()
    report = worked(desk, f"{path}/import")["report"]
    assert len(names(desk)) == 2
    for commit in reversed(report["commits"]):
        desk.owner.facts("POST", f"/commits/{commit}/undo", {})
    assert names(desk) == set()


def test_nothing_comes_in_to_be_extracted_where_there_is_no_model(desk: Desk) -> None:
    path = upload(desk, "CLAUDE.md", b"## Rules\n\nNever touch the roses.\n")
    refused = worked(desk, f"{path}/import", extract=True)
    assert (refused["state"], "no language model" in refused["error"]) == ("failed", True)
    assert names(desk) == set()


def test_a_file_that_is_sent_again_after_an_edit_updates_its_own_memories(desk: Desk) -> None:
    for text in (b"Always indent with tabs.", b"Deploy on Fridays, never on Mondays.", b"Always indent with spaces."):
        path = upload(desk, "CLAUDE.md", b"## Rules\n\n" + text)
        assert worked(desk, f"{path}/import", project="acme")["state"] == "done"
    told = {entry["abstract"]: entry["project"] for entry in desk.owner.facts("GET", "/entries")["entries"]}
    assert told == {"Always indent with spaces.": "acme", "Deploy on Fridays, never on Mondays.": "acme"}


def test_what_was_exported_comes_back(desk: Desk) -> None:
    path = desk.owner.keep("The boat is blue.", fields={"title": "Boat"})
    done = worked(desk, "/exports", format="zip", history=True)
    file = desk.owner.ask("GET", f"/transfers/{done['id']}/file")
    assert file.headers["content-disposition"] == 'attachment; filename="runebook-export.zip"'
    desk.owner.ask("DELETE", f"/entries/{path}")
    report = worked(desk, f"{upload(desk, 'export.zip', file.content)}/import")["report"]
    assert report["format"] == "runebook"
    assert names(desk) == {"Boat"}


def test_a_backup_is_checked_and_put_in_the_place_of_the_folder(desk: Desk, tmp_path: Path) -> None:
    desk.owner.keep("The boat is blue.", fields={"title": "Boat"})
    done = worked(desk, "/backups")
    file = desk.owner.ask("GET", f"/transfers/{done['id']}/file").content
    desk.owner.keep("A later thought.", fields={"title": "Later"})
    path = upload(desk, "backup.zip", file)
    looked = worked(desk, f"{path}/restore", dry_run=True)["report"]
    assert (looked["counts"]["memories"], looked["replaces"]) == (1, 2)
    assert names(desk) == {"Boat", "Later"}
    report = worked(desk, f"{path}/restore")["report"]
    assert names(desk) == {"Boat"}
    assert (tmp_path / report["aside"]).is_dir()
    desk.owner.keep("And on it goes.", fields={"title": "On"})
    assert names(desk) == {"Boat", "On"}
    assert desk.anna.ask("GET", "/about").status_code == 200  # the tokens of the backup hold


def test_a_backup_over_http_names_what_it_leaves_out(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "home" / "what?.txt").write_text("own", encoding="utf-8")
    done = worked(desk, "/backups")
    assert (done["state"], done["report"]["left_out"], done["report"]["notes"]) == ("done", ["what?.txt"], [])


def test_an_export_over_http_says_why_it_leaves_a_file_out(desk: Desk, tmp_path: Path) -> None:
    path = desk.owner.keep("The boat is blue.", fields={"title": "Boat"})
    (tmp_path / "home" / path).with_name("gbk.md").write_bytes("港口".encode("gbk"))
    (line,) = worked(desk, "/exports", format="jsonl")["report"]["left_out"]
    assert line.startswith(f"viking://{path.rpartition('/')[0]}/gbk.md (it is not UTF-8 text: save it as UTF-8")


def test_a_backup_over_http_changes_neither_who_may_come_in_nor_what_runs(desk: Desk, tmp_path: Path) -> None:
    """A hostile one brings settings that run a program, a token, a login, and a trigger that brings the token again."""
    hostile = tmp_path / "hostile"
    with ledger_of(hostile) as ledger:
        token, row = ledger.tokens.issue("them", user_space="default", agent_space="default")
        with ledger.database.writing() as connection:
            connection.execute("CREATE TABLE copy AS SELECT * FROM tokens")
            for name, table in (("again", "tokens"), ("memory_added", "files")):
                connection.execute(f"DROP TRIGGER IF EXISTS {name}")
                connection.execute(
                    f"CREATE TRIGGER {name} AFTER {'DELETE' if table == 'tokens' else 'INSERT'} ON {table} "
                    "BEGIN INSERT OR IGNORE INTO tokens SELECT * FROM copy; END"
                )
            connection.execute("INSERT INTO login_grants VALUES ('g', 'c', ?, '2026-01-01')", (row.id,))
    program = json.dumps({"llm": {"provider": "command", "command": ["evil"]}, "http": {"without_token": "anyone"}})
    (hostile / "config.json").write_text(program, encoding="utf-8")
    home = tmp_path / "home"
    (home / "config.json").write_text('{"search": {"rank": "decay"}}', encoding="utf-8")
    with open_memory(Config(home=hostile, **SETTINGS)) as memory:
        back_up(memory.store, tmp_path / "backup.zip")
    with ledger_of(home) as ledger:
        ledger.tokens.revoke("bob")
    path = upload(desk, "backup.zip", (tmp_path / "backup.zip").read_bytes())
    assert worked(desk, f"{path}/restore")["state"] == "done"
    assert (home / "config.json").read_text(encoding="utf-8") == '{"search": {"rank": "decay"}}'
    assert (home / SETTINGS_BESIDE).read_text(encoding="utf-8") == program
    desk.owner.keep("A memory.", fields={"title": "One"})  # a file is added
    assert Page(desk.client, token).ask("GET", "/about").status_code == 401
    assert desk.anna.ask("GET", "/about").status_code == 200
    assert desk.bob.ask("GET", "/about").status_code == 401
    assert {each["label"] for each in desk.owner.facts("GET", "/tokens")["tokens"]} == {"anna", "reader"}
    with ledger_of(home) as ledger:
        assert ledger.database.connection().execute("SELECT count(*) FROM login_grants").fetchone() == (0,)


def test_a_server_answers_while_a_backup_is_unpacked(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.owner.keep("The boat is blue.", fields={"title": "Boat"})
    done = worked(desk, "/backups")
    unpacking, go_on = threading.Event(), threading.Event()
    real = backup._unpack

    def slow(*given: Any) -> None:
        unpacking.set()
        assert go_on.wait(PATIENCE_SECONDS)
        real(*given)

    monkeypatch.setattr(backup, "_unpack", slow)
    begun = desk.owner.facts("POST", f"/transfers/{done['id']}/restore", {})
    try:
        assert unpacking.wait(PATIENCE_SECONDS)
        assert desk.client.get("/livez").status_code == 200
        assert desk.owner.facts("GET", f"/transfers/{begun['id']}")["state"] == "working"
        assert names(desk) == {"Boat"}
    finally:
        go_on.set()
    assert finished(desk, begun["id"])["state"] == "done"


def test_a_long_name_in_any_script_can_be_kept(desk: Desk) -> None:
    name = desk.owner.facts("GET", upload(desk, f"{'茶' * 300}.md", b"1"))["name"]
    assert name.endswith("茶.md")


def test_what_is_no_backup_or_of_no_format_is_refused_with_the_next_step(desk: Desk) -> None:
    path = upload(desk, "x.zip", b"PK not a zip at all")
    for work in ("restore", "import"):
        failed = worked(desk, f"{path}/{work}", dry_run=True)
        assert failed["state"] == "failed"
        assert failed["error"]
        assert failed["hint"]


def test_parts_follow_each_other_and_an_upload_is_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    path = upload(desk, "../../a.md", b"1234")
    name = desk.owner.facts("GET", path)["name"]
    assert "/" not in name
    part = {"base64": base64.b64encode(b"5678").decode()}
    assert desk.owner.ask("PUT", path, {**part, "offset": 3}).status_code == 400
    for wrong in ("!", "©ÿ"):
        assert desk.owner.ask("PUT", path, {"base64": wrong, "offset": 4}).status_code == 400
    monkeypatch.setattr(transfers, "UPLOAD_MOST_BYTES", 6)
    refused = desk.owner.ask("PUT", path, {**part, "offset": 4})
    assert refused.status_code == 400
    assert "runebook import" in refused.json()["hint"]
    desk.owner.facts("DELETE", path)
    assert desk.owner.ask("GET", path).status_code == 404


def test_a_part_that_a_full_disk_cut_is_sent_again_and_the_file_is_whole() -> None:
    held = transfers.Transfers()
    begun = held.begin("a.md")
    held.add(begun.id, 0, b"1234")
    with begun.path.open("ab") as stream:
        stream.write(b"56")  # as much of the next part as there was room for
    held.add(begun.id, 4, b"5678")
    assert begun.path.read_bytes() == b"12345678"
    held.close()


@pytest.mark.parametrize(
    "late", [lambda held, named: held.add(named, 0, b"1234"), lambda held, named: held.discard(named)]
)
def test_what_was_discarded_meanwhile_is_not_found(
    monkeypatch: pytest.MonkeyPatch, late: Callable[[transfers.Transfers, str], object]
) -> None:
    """Somebody else discards a transfer while the request waits for its turn."""
    held = transfers.Transfers()
    begun = held.begin("a.md")

    class Discarding:
        def __enter__(self) -> None:
            held._remove(begun)

        def __exit__(self, *_: object) -> None:
            pass

    with monkeypatch.context() as patched:
        patched.setattr(held, "_guard", Discarding())
        with pytest.raises(NotFound):
            late(held, begun.id)
    held.close()


def test_work_that_is_refused_pushes_no_transfer_out(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [upload(desk, "a.md", b"1") for _ in range(4)]
    exporting, go_on = threading.Event(), threading.Event()

    def slow(*_: Any) -> Any:
        exporting.set()
        assert go_on.wait(PATIENCE_SECONDS)
        raise InvalidInput("no more.", hint="None.")

    monkeypatch.setattr(transfer_routes, "export", slow)
    begun = desk.owner.facts("POST", "/exports", {})
    try:
        assert exporting.wait(PATIENCE_SECONDS)
        kept = kept[1:]  # the work that runs has its place
        for path in ("/exports", "/backups"):
            refused = desk.owner.ask("POST", path, {})
            assert (refused.status_code, "Wait until it is done" in refused.json()["hint"]) == (400, True)
        assert [desk.owner.ask("GET", path).status_code for path in kept] == [200, 200, 200]
    finally:
        go_on.set()
    assert finished(desk, begun["id"])["state"] == "failed"


def test_old_transfers_leave(desk: Desk) -> None:
    first, *_, last = [upload(desk, "a.md", b"1") for _ in range(6)]
    assert desk.owner.ask("GET", first).status_code == 404
    assert desk.owner.ask("GET", last).status_code == 200


def test_what_a_killed_server_left_leaves_and_nothing_that_is_new_in_use_or_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    running = transfers.Transfers()
    held = running.begin("a.md").path.parent.parent
    left, new, other = (tmp_path / f"runebook-transfers-{name}" for name in ("left", "new", "other"))
    kept = tmp_path / "kept"
    for folder in (left, new, kept):
        folder.mkdir()
        (folder / "export.zip").write_text("memories", encoding="utf-8")
    other.symlink_to(kept, target_is_directory=True)
    for old in (held, left, kept):
        os.utime(old, (0, 0))
    follower = transfers.Transfers()
    follower.begin("b.md")
    assert (held.is_dir(), left.exists(), new.is_dir(), (kept / "export.zip").is_file()) == (True, False, True, True)
    for each in (running, follower):
        each.close()
    assert not held.exists()
