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

from memory_core.core.errors import InvalidInput
from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.features import export_file
from memory_core.features.export_file import BACKUP, open_export, open_pack
from memory_core.runebook import Runebook
from tests.features.moving import PAYMENTS, exported, imported, opened
from tests.kept import kept_files
from tests.stores import entity

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


def forged_lines(path: Path, *lines: dict[str, Any]) -> Path:
    """JSON lines with an end that agrees with them."""
    header = {"kind": "export", "format": "runebook-export", "format_version": 1}
    raw = b"".join(json.dumps(line).encode() + b"\n" for line in (header, *lines))
    end = {"kind": "end", "sha256": hashlib.sha256(raw).hexdigest()}
    path.write_bytes(raw + json.dumps(end).encode() + b"\n")
    return path


def problems_of(path: Path) -> str:
    """What is wrong with an export of which nothing is sound."""
    with open_export(path) as export:
        assert export.files == []
        return "; ".join(problem.reason for problem in export.problems)


URIS = [
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
]
PATHS = ["../../evil.md", "/etc/evil.md", "C:/evil.md", "user/../../evil.md", "user/default/NUL.md", ".ssh/key"]


def test_a_name_that_leads_elsewhere_is_refused_in_both_forms(tmp_path: Path) -> None:
    for uri in URIS:
        assert problems_of(make(tmp_path / "evil.zip", {NOTE_PATH: b"evil"}, {NOTE_PATH: uri})), uri
        assert problems_of(forged_lines(tmp_path / "evil.jsonl", {"kind": "file", "uri": uri, "text": "evil"})), uri
    for name in PATHS:
        assert problems_of(make(tmp_path / "evil.zip", {name: b"evil"}, {name: NOTE})), name


def test_what_has_a_problem_is_refused_whole_and_in_part_writes_nowhere_else(tmp_path: Path) -> None:
    uris = {NOTE_PATH: NOTE, "evil.md": "viking://user/../../evil.md"}
    path = make(tmp_path / "evil.zip", {NOTE_PATH: b"sound", "evil.md": b"evil"}, uris)
    with opened(tmp_path / "target") as target:
        with pytest.raises(InvalidInput, match="nothing was imported"):
            imported(target, path)
        assert (target.store.ledger.newest_seq(), kept_files(tmp_path / "target")) == (0, {})
        before = {found for found in tmp_path.rglob("*") if "target" not in found.parts}
        assert imported(target, path, partial=True).created == [NOTE]
        assert {found for found in tmp_path.rglob("*") if "target" not in found.parts} == before
        assert set(kept_files(tmp_path / "target")) == {NOTE_PATH}


def with_link(path: Path) -> Path:
    make(path, {}, {}, files=[facts_of(NOTE_PATH, NOTE, b"/etc/passwd")])
    link = zipfile.ZipInfo(NOTE_PATH)
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(link, b"/etc/passwd")
    return path


def with_name_twice(path: Path) -> Path:
    make(path, {NOTE_PATH: b"one"}, {})
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr(NOTE_PATH, b"two")
    return path


def longer_than_it_says(path: Path) -> Path:
    make(path, {NOTE_PATH: b"x" * 5000}, {NOTE_PATH: NOTE})
    content = bytearray(path.read_bytes())
    central = content.index(b"PK\x01\x02")
    content[central + 24 : central + 28] = (100).to_bytes(4, "little")  # the size that the directory tells
    path.write_bytes(bytes(content))
    return path


@pytest.mark.parametrize(
    ("forge", "reason"),
    [
        (lambda path: make(path, {NOTE_PATH: b"x"}, {}, files=[facts_of(NOTE_PATH, NOTE, b"y")]), "not what the manif"),
        (lambda path: make(path, {}, {}, files=[facts_of(NOTE_PATH, NOTE, b"y")]), "does not hold it"),
        (lambda path: make(path, {NOTE_PATH: b"smuggled"}, {}), "does not name"),
        (with_link, "a link or a device"),
        (with_name_twice, "twice"),
        (longer_than_it_says, "size"),
        (lambda path: make(path, {}, {}, files=[{"uri": NOTE}]), "does not hold it"),
    ],
)
def test_an_entry_that_is_not_what_the_manifest_says_is_refused(
    tmp_path: Path, forge: Callable[[Path], Path], reason: str
) -> None:
    assert reason in problems_of(forge(tmp_path / "evil.zip"))


def test_of_two_entries_for_one_file_or_a_file_in_place_of_a_folder_one_is_refused(tmp_path: Path) -> None:
    other, inner = "user/default/memories/notes/b.md", f"{NOTE_PATH}/b.md"
    composed, decomposed = (f"viking://user/default/memories/notes/{name}.md" for name in ("\u00e9", "e\u0301"))
    for uris, reason in (
        ({NOTE_PATH: NOTE, other: NOTE}, "twice"),
        ({NOTE_PATH: composed, other: decomposed}, "twice"),
        ({NOTE_PATH: NOTE, inner: f"{NOTE}/b.md"}, "for a folder"),
    ):
        with open_export(make(tmp_path / "evil.zip", dict.fromkeys(uris, b"one"), uris)) as export:
            assert len(export.files) == 1
            assert [reason in problem.reason for problem in export.problems] == [True]


def test_a_bomb_is_refused_without_being_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path / "bomb.zip", {NOTE_PATH: b"\x00" * 8 * 1024 * 1024}, {NOTE_PATH: NOTE})
    assert path.stat().st_size < 100_000
    read: list[str] = []
    real = zipfile.ZipFile.open

    def watched(self: zipfile.ZipFile, name: Any, *arguments: Any, **options: Any) -> Any:
        read.append(getattr(name, "filename", name))
        return real(self, name, *arguments, **options)

    monkeypatch.setattr(zipfile.ZipFile, "open", watched)
    assert "far more than it holds" in problems_of(path)
    assert NOTE_PATH not in read


def test_what_is_no_export_too_large_or_of_a_newer_program_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "thing"
    for content in (b"", b"PK", b"PK\x05\x06" + b"\x00" * 18, b"not an export", b"{}", b"[1]\n", b"\xff\xfe"):
        path.write_bytes(content)
        with pytest.raises(InvalidInput):
            problems_of(path)
    with pytest.raises(InvalidInput, match="format version 99"):
        problems_of(make(path, {NOTE_PATH: b"one"}, {NOTE_PATH: NOTE}, format_version=99))
    monkeypatch.setattr(export_file, "TOTAL_LIMIT_BYTES", 10_000)
    with pytest.raises(InvalidInput, match="would unpack to over"):
        problems_of(make(path, {NOTE_PATH: bytes(range(256)) * 64}, {NOTE_PATH: NOTE}))


def test_a_manifest_or_line_of_very_many_values_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_file, "_VALUES_MOST", 200)
    reads: list[bytes] = []

    def loads(content: bytes, real: Callable[[bytes], Any] = json.loads) -> Any:
        reads.append(content)
        return real(content)

    monkeypatch.setattr(json, "loads", loads)
    floods: list[Any] = [[{}] * 201, [[]] * 201, dict.fromkeys(map(str, range(201)), 1)]
    for flood in floods:
        with pytest.raises(InvalidInput, match="more than 200 values"):
            problems_of(make(tmp_path / "a.zip", {}, {}, x=flood))
        assert "more than 200 values" in problems_of(forged_lines(tmp_path / "a.jsonl", {"x": flood}))
        (tmp_path / "backup.json").write_text(json.dumps({"x": flood}), encoding="utf-8")
        with pytest.raises(InvalidInput, match="more than 200 values"), open_pack(tmp_path, BACKUP):
            pass
    assert max(map(len, reads)) < 200


def test_marks_in_a_text_are_no_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_file, "_VALUES_MOST", 200)
    text = '[{"said": "one, two, \\"three\\", {four}"}], \\\\' * 500
    line = {"kind": "file", "uri": NOTE, "text": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    with open_export(forged_lines(tmp_path / "a.jsonl", line)) as export:
        assert [str(file.uri) for file in export.files] == [NOTE]


def test_a_text_without_end_is_looked_through_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_file, "_VALUES_MOST", 200)
    flood = b"," * 201 + b'"' + b'\\"' * 1_000_000  # hours, where each mark is looked for anew
    assert export_file._STRING.sub(b"", flood) == b"," * 201
    (tmp_path / "backup.json").write_bytes(flood)
    with pytest.raises(InvalidInput, match="more than 200 values"), open_pack(tmp_path, BACKUP):
        pass


def test_a_size_without_end_in_a_manifest_is_named_as_damage(tmp_path: Path) -> None:
    described = (
        '{"format": "runebook-backup", "format_version": 1, "files": [{"path": "a", "sha256": "b", "size": 1e999}]}'
    )
    (tmp_path / "backup.json").write_text(described, encoding="utf-8")
    with pytest.raises(InvalidInput, match="manifest is damaged"), open_pack(tmp_path, BACKUP) as found:
        found.files()


@pytest.fixture
def source(tmp_path: Path) -> Runebook:
    memory = opened(tmp_path / "source")
    entity(memory, "支付系统", "数据库是 TiDB。")
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
        assert kept_files(tmp_path / "target") == {}
        done = imported(target, path, partial=True)
        assert done.refused
        assert (PAYMENTS not in done.created) is lost
        assert target.find(FindRequest("third stone")).memories
        assert "TiDB" not in str(refusal.value)


@pytest.mark.parametrize("form", ["all.zip", "all.jsonl"])
def test_an_export_cut_short_or_flipped_anywhere_is_refused(source: Runebook, tmp_path: Path, form: str) -> None:
    path = exported(source, tmp_path / form, history=True)
    source.close()
    content = path.read_bytes()
    flipped = form.endswith("jsonl")  # what a zip says beside its files is covered by no hash

    def is_refused(changed: bytes) -> bool:
        path.write_bytes(changed)
        try:
            with open_export(path) as export:
                return bool(export.problems)
        except InvalidInput:
            return True

    end = content.rindex(b"\n", 0, -1)
    for place in (*range(1, end, end // 40), *range(end + 1, len(content), 7)):
        assert is_refused(content[:place])
        if flipped:
            assert is_refused(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])


@pytest.mark.parametrize(
    "harm",
    [
        {"uri": "viking://user/../evil"},
        {"moved_from": "file:///etc/passwd"},
        {"after": "forged 伪造"},
        {"after_sha256": "0" * 64},
        {"uri": 7},
        {"appended": 0, "before": 5},
        {"appended": 10**30},
        {"appended": -5},
        {"appended": "x"},
        {"purged": "y"},
    ],
)
def test_a_forged_history_is_refused_whole(source: Runebook, tmp_path: Path, harm: dict[str, Any]) -> None:
    path = exported(source, tmp_path / "all.jsonl", history=True)
    source.close()
    lines = [json.loads(line) for line in path.read_bytes().splitlines()[1:-1]]
    for line in lines:
        if line["kind"] == "commit":
            line["commit"]["changes"][0] |= harm
    forged_lines(path, *lines)
    with opened(tmp_path / "target") as target:
        with pytest.raises(InvalidInput, match="history"):
            imported(target, path)
        assert target.store.ledger.newest_seq() == 0
        assert kept_files(tmp_path / "target") == {}


@pytest.mark.parametrize("undone", [5, ["x"], "nothing", None])
def test_a_history_in_which_a_commit_undoes_none_before_it_is_refused(
    source: Runebook, tmp_path: Path, undone: Any
) -> None:
    path = exported(source, tmp_path / "all.jsonl", history=True)
    source.close()
    lines = [json.loads(line) for line in path.read_bytes().splitlines()[1:-1]]
    first = next(line["commit"] for line in lines if line["kind"] == "commit")
    first["undoes"] = undone or first["commit_id"]
    forged_lines(path, *lines)
    with opened(tmp_path / "target") as target, pytest.raises(InvalidInput, match="history"):
        imported(target, path)


def test_a_name_that_is_a_folder_here_is_refused_alone(source: Runebook, tmp_path: Path) -> None:
    path = exported(source, tmp_path / "all.zip")
    source.close()
    (tmp_path / "target/user/default/memories/entities/支付系统.md").mkdir(parents=True)
    with opened(tmp_path / "target") as target:
        done = imported(target, path)
        assert [(problem.name, problem.reason) for problem in done.refused] == [
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
        assert PAYMENTS in [problem.name for problem in done.refused]
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
    line = "同一行同一行同一行 the same line again\n" * 20_000
    folder = tmp_path / "source/user/default/memories/notes"
    folder.mkdir(parents=True)
    (folder / "same.md").write_text(line, encoding="utf-8", newline="\n")
    with opened(tmp_path / "source") as source, opened(tmp_path / "target") as target:
        imported(target, exported(source, tmp_path / "all.zip", history=True))
        assert kept_files(tmp_path / "target")["user/default/memories/notes/same.md"] == line.encode()
