"""Import, export, backup and restore over HTTP, as the commands do them."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from server.http import transfers
from tests.server.http.conftest import Desk, desk_at
from tests.waiting import soon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_OWNERS: tuple[tuple[str, str, dict[str, str] | None], ...] = (
    ("POST", "/transfers", {"name": "a.md"}),
    ("GET", "/transfers/0", None),
    ("POST", "/transfers/0/import", {}),
    ("POST", "/transfers/0/restore", {}),
    ("POST", "/exports", {}),
    ("POST", "/backups", {}),
)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with desk_at(tmp_path / "home") as made:
        yield made


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


def test_old_transfers_leave(desk: Desk) -> None:
    first, *_, last = [upload(desk, "a.md", b"1") for _ in range(6)]
    assert desk.owner.ask("GET", first).status_code == 404
    assert desk.owner.ask("GET", last).status_code == 200


@pytest.mark.parametrize(("method", "path", "body"), _OWNERS)
def test_nobody_but_the_owner_may(desk: Desk, method: str, path: str, body: object) -> None:
    assert desk.anna.ask(method, path, body).status_code == 403
    assert json.loads(desk.reader.ask(method, path, body).text)["hint"]
