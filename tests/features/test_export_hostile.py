"""Exports that somebody forged or damaged: refused before anything is written, and nothing lands elsewhere."""

from __future__ import annotations

import hashlib
import json
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.errors import InvalidInput, RunebookError
from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.features import export_file
from memory_core.runebook import Runebook
from tests.features.moving import PAYMENTS, exported, files, imported, opened

NOTE = "viking://user/default/memories/notes/a.md"
NOTE_PATH = "user/default/memories/notes/a.md"


def facts_of(path: str, uri: str, content: bytes) -> dict[str, Any]:
    return {"path": path, "uri": uri, "sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}


def make(path: Path, entries: dict[str, bytes], uris: dict[str, str], **manifest: Any) -> Path:
    """An archive with these entries, each named in a manifest that agrees with it."""
    described = [facts_of(name, uris[name], content) for name, content in entries.items() if name in uris]
    header = {"format": "runebook-export", "format_version": 1, "files": described} | manifest
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
        archive.writestr("manifest.json", json.dumps(header))
    return path


def refuse(tmp_path: Path, path: Path, match: str | None = None) -> None:
    """Refused whole without ``partial``; with it nothing lands outside the store's own folders."""
    with opened(tmp_path / "target") as target:
        with pytest.raises(InvalidInput, match=match):
            imported(target, path)
        assert target.store.ledger.newest_seq() == 0
        assert files(tmp_path / "target") == {}
        before = {found for found in tmp_path.rglob("*") if "target" not in found.parts}
        try:
            imported(target, path, partial=True)
        except RunebookError:
            assert files(tmp_path / "target") == {}
        assert {found for found in tmp_path.rglob("*") if "target" not in found.parts} == before
        for name in files(tmp_path / "target"):
            assert name.startswith("user/default/memories/")


@pytest.mark.parametrize(
    "uri",
    [
        "viking://user/../../evil.md",
        "viking://user/default/%2e%2e/%2e%2e/evil.md",
        "viking://user/default/memories/..%2f..%2fevil.md",
        "/etc/passwd",
        "C:\\evil.md",
        "viking://user/default/memories/a\\..\\evil.md",
        "viking://user/default/memories/NUL.md",
        "viking://user/default/memories/com1.md",
        "viking://user/default/memories/.bashrc",
        "viking://user/default/memories/a\x00.md",
        "viking://.state/ledger.sqlite3",
        "viking://elsewhere/default/a.md",
        "viking://user/default",
        "viking://user",
        "viking://",
        "file:///etc/passwd",
        "viking://user/default/memories/" + "長" * 90 + ".md",
        "viking://user/default/memories/notes/a.md ",
        "",
    ],
)
def test_a_uri_that_leads_elsewhere_is_refused_in_both_forms(tmp_path: Path, uri: str) -> None:
    refuse(tmp_path, make(tmp_path / "evil.zip", {NOTE_PATH: b"evil"}, {NOTE_PATH: uri}))
    lines = [
        {"kind": "export", "format": "runebook-export", "format_version": 1},
        {"kind": "file", "uri": uri, "text": "evil"},
    ]
    raw = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    end = {"kind": "end", "sha256": hashlib.sha256(raw).hexdigest()}
    (tmp_path / "evil.jsonl").write_bytes(raw + json.dumps(end).encode() + b"\n")
    refuse(tmp_path, tmp_path / "evil.jsonl")


def test_a_file_that_is_not_what_the_manifest_says_is_refused(tmp_path: Path) -> None:
    path = make(tmp_path / "evil.zip", {NOTE_PATH: b"forged"}, {}, files=[facts_of(NOTE_PATH, NOTE, b"honest")])
    refuse(tmp_path, path, "not what the manifest says")


@pytest.mark.parametrize(
    "name", ["../../evil.md", "/etc/evil.md", "C:/evil.md", "user/../../evil.md", "user/default/NUL.md", ".ssh/key"]
)
def test_an_entry_whose_name_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    refuse(tmp_path, make(tmp_path / "evil.zip", {name: b"evil"}, {name: NOTE}))


def test_an_entry_that_is_a_link_is_refused(tmp_path: Path) -> None:
    path = make(tmp_path / "evil.zip", {}, {}, files=[facts_of(NOTE_PATH, NOTE, b"/etc/passwd")])
    link = zipfile.ZipInfo(NOTE_PATH)
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(link, b"/etc/passwd")
    refuse(tmp_path, path, "a link or a device")


def test_an_entry_twice_is_refused(tmp_path: Path) -> None:
    path = make(tmp_path / "evil.zip", {NOTE_PATH: b"one"}, {NOTE_PATH: NOTE})
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr(NOTE_PATH, b"two")
    refuse(tmp_path, path, "twice")


def test_two_entries_for_one_file_are_refused(tmp_path: Path) -> None:
    other = "user/default/memories/notes/b.md"
    uris = {NOTE_PATH: NOTE, other: NOTE}
    refuse(tmp_path, make(tmp_path / "evil.zip", {NOTE_PATH: b"one", other: b"two"}, uris), "twice")
    composed, decomposed = (f"viking://user/default/memories/notes/{name}.md" for name in ("\u00e9", "e\u0301"))
    uris = {NOTE_PATH: composed, other: decomposed}
    (tmp_path / "again").mkdir()
    refuse(tmp_path / "again", make(tmp_path / "nfd.zip", {NOTE_PATH: b"one", other: b"two"}, uris), "twice")


def test_a_file_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    inner = "user/default/memories/notes/a.md/b.md"
    uris = {NOTE_PATH: NOTE, inner: f"{NOTE}/b.md"}
    refuse(tmp_path, make(tmp_path / "evil.zip", {NOTE_PATH: b"one", inner: b"two"}, uris), "for a folder")


def test_an_entry_that_the_manifest_does_not_name_is_refused(tmp_path: Path) -> None:
    entries = {NOTE_PATH: b"one", "user/default/memories/notes/smuggled.md": b"two"}
    refuse(tmp_path, make(tmp_path / "evil.zip", entries, {NOTE_PATH: NOTE}), "does not name")


def test_a_bomb_is_refused_without_being_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = b"\x00" * 8 * 1024 * 1024
    path = make(tmp_path / "bomb.zip", {NOTE_PATH: zeros}, {NOTE_PATH: NOTE})
    assert path.stat().st_size < 100_000
    read: list[str] = []
    real = zipfile.ZipFile.open

    def watched(self: zipfile.ZipFile, name: Any, *arguments: Any, **options: Any) -> Any:
        read.append(getattr(name, "filename", name))
        return real(self, name, *arguments, **options)

    monkeypatch.setattr(zipfile.ZipFile, "open", watched)
    refuse(tmp_path, path, "far more than it holds")
    assert NOTE_PATH not in read


def test_an_archive_too_large_to_unpack_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_file, "TOTAL_LIMIT_BYTES", 10_000)
    path = make(tmp_path / "large.zip", {NOTE_PATH: bytes(range(256)) * 64}, {NOTE_PATH: NOTE})
    refuse(tmp_path, path, "would unpack to over")


def test_an_entry_longer_than_it_says_is_refused(tmp_path: Path) -> None:
    path = make(tmp_path / "evil.zip", {NOTE_PATH: b"x" * 5000}, {NOTE_PATH: NOTE})
    content = bytearray(path.read_bytes())
    central = content.index(b"PK\x01\x02")
    content[central + 24 : central + 28] = (100).to_bytes(4, "little")  # the size that the directory tells
    path.write_bytes(bytes(content))
    refuse(tmp_path, path)


@pytest.mark.parametrize(
    "content", [b"", b"PK", b"PK\x05\x06" + b"\x00" * 18, b"not an export", b"{}", b"[1]\n", b"\xff\xfe"]
)
def test_what_is_no_export_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "thing"
    path.write_bytes(content)
    refuse(tmp_path, path)


def test_an_export_of_a_newer_program_is_refused(tmp_path: Path) -> None:
    path = make(tmp_path / "new.zip", {NOTE_PATH: b"one"}, {NOTE_PATH: NOTE}, format_version=99)
    refuse(tmp_path, path, "format version 99")


@pytest.fixture
def source(tmp_path: Path) -> Runebook:
    memory = opened(tmp_path / "source")
    memory.commit(
        CommitRequest(memory_type="entities", fields={"entity_name": "支付系统", "content": "数据库是 TiDB。"})
    )
    memory.commit(CommitRequest("The spare key is under the third stone."))
    return memory


def corrupt_zip(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("user/default/memories/entities/支付系统.md")
    content = bytearray(path.read_bytes())
    start = info.header_offset + 30 + len(info.filename.encode())
    content[start + 10 : start + 30] = bytes(20)
    path.write_bytes(bytes(content))


def corrupt_lines(path: Path) -> None:
    path.write_text(path.read_text(encoding="utf-8").replace("TiDB。", "MyDB。"), encoding="utf-8")


def cut(path: Path) -> None:
    kept = path.read_text(encoding="utf-8").splitlines(keepends=True)[:-1]
    path.write_text("".join(kept), encoding="utf-8")


@pytest.mark.parametrize(
    ("form", "spoil", "lost"),
    [("all.zip", corrupt_zip, True), ("all.jsonl", corrupt_lines, True), ("all.jsonl", cut, False)],
)
def test_a_damaged_export_is_refused_whole_and_its_sound_files_taken_when_asked(
    source: Runebook, tmp_path: Path, form: str, spoil: Callable[[Path], None], lost: bool
) -> None:
    path = exported(source, tmp_path / form)
    source.close()
    spoil(path)
    with opened(tmp_path / "target") as target:
        with pytest.raises(InvalidInput, match="nothing was imported") as refusal:
            imported(target, path)
        assert "--partial" in refusal.value.hint
        assert files(tmp_path / "target") == {}
        done = imported(target, path, partial=True)
        assert done.problems
        assert (PAYMENTS not in done.outcome.created) is lost
        assert target.find(FindRequest("third stone")).memories
        assert "TiDB" not in str(refusal.value)


def test_an_archive_cut_short_anywhere_is_refused(source: Runebook, tmp_path: Path) -> None:
    path = exported(source, tmp_path / "all.zip", history=True)
    source.close()
    content = path.read_bytes()
    with opened(tmp_path / "target") as target:
        for end in range(1, len(content), len(content) // 25):
            path.write_bytes(content[:end])
            with pytest.raises(InvalidInput):
                imported(target, path)
        assert files(tmp_path / "target") == {}


def test_lines_cut_short_or_flipped_anywhere_are_refused(source: Runebook, tmp_path: Path) -> None:
    path = exported(source, tmp_path / "all.jsonl", history=True)
    source.close()
    content = path.read_bytes()
    with opened(tmp_path / "target") as target:
        for place in range(1, len(content) - 1, len(content) // 40):
            path.write_bytes(content[:place])
            with pytest.raises(InvalidInput):
                imported(target, path)
            if place < content.index(b'{"kind": "end"'):
                path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
                with pytest.raises(InvalidInput):
                    imported(target, path)
        assert files(tmp_path / "target") == {}
        assert target.store.ledger.newest_seq() == 0


@pytest.mark.parametrize(
    "harm",
    [
        {"uri": "viking://user/../evil"},
        {"moved_from": "file:///etc/passwd"},
        {"after": "forged 伪造"},
        {"after_sha256": "0" * 64},
        {"uri": 7},
        {"appended": 0, "before": 5},
    ],
)
def test_a_forged_history_is_refused_whole(source: Runebook, tmp_path: Path, harm: dict[str, Any]) -> None:
    path = exported(source, tmp_path / "all.jsonl", history=True)
    source.close()
    raw = b""
    for line in path.read_bytes().splitlines(keepends=True)[:-1]:
        facts = json.loads(line)
        if facts["kind"] == "commit":
            facts["commit"]["changes"][0] |= harm
            line = json.dumps(facts).encode() + b"\n"
        raw += line
    end = {"kind": "end", "sha256": hashlib.sha256(raw).hexdigest()}
    path.write_bytes(raw + json.dumps(end).encode() + b"\n")
    with opened(tmp_path / "target") as target:
        with pytest.raises(InvalidInput, match="history"):
            imported(target, path)
        assert target.store.ledger.newest_seq() == 0
        assert files(tmp_path / "target") == {}


def test_a_name_that_is_a_folder_here_is_refused_alone(source: Runebook, tmp_path: Path) -> None:
    path = exported(source, tmp_path / "all.zip")
    source.close()
    (tmp_path / "target/user/default/memories/entities/支付系统.md").mkdir(parents=True)
    with opened(tmp_path / "target") as target:
        done = imported(target, path)
        assert [(problem.name, problem.reason) for problem in done.outcome.refused] == [
            (PAYMENTS, "a folder of this name is there")
        ]
        assert target.find(FindRequest("third stone")).memories


def test_a_link_in_the_store_is_not_followed_out_of_it(source: Runebook, tmp_path: Path) -> None:
    path = exported(source, tmp_path / "all.zip")
    source.close()
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "target/user/default/memories").mkdir(parents=True)
    (tmp_path / "target/user/default/memories/entities").symlink_to(outside, target_is_directory=True)
    with opened(tmp_path / "target") as target:
        done = imported(target, path)
        assert PAYMENTS in [problem.name for problem in done.outcome.refused]
    assert list(outside.iterdir()) == []


def test_no_text_of_a_memory_is_logged(source: Runebook, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    for form in ("all.zip", "all.jsonl"):
        path = exported(source, tmp_path / form, history=True)
        with opened(tmp_path / form.replace(".", "-")) as target:
            imported(target, path)
            imported(target, path, "both")
    source.close()
    assert "TiDB" not in caplog.text
    assert "third stone" not in caplog.text.replace("The spare key is under the third stone.md", "")


def test_text_that_compresses_like_a_bomb_is_exported_so_that_it_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_file, "_RATIO_FROM_BYTES", 64 * 1024)
    line = "同一行同一行同一行 the same line again\n" * 2_000
    folder = tmp_path / "source/user/default/memories/notes"
    folder.mkdir(parents=True)
    (folder / "same.md").write_text(line, encoding="utf-8", newline="\n")
    with opened(tmp_path / "source") as source, opened(tmp_path / "target") as target:
        imported(target, exported(source, tmp_path / "all.zip"))
        assert files(tmp_path / "target")["user/default/memories/notes/same.md"] == line.encode()
