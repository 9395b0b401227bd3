"""Export and import: what left a store arrives in another byte for byte, nothing there is lost, twice is once."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sqlite3
import stat
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.errors import InvalidInput
from memory_core.core.memory.requests import CommitRequest, FindRequest, ReadRequest
from memory_core.core.memory.trailer import split
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.progress import Stage, listening
from memory_core.features import export_file
from memory_core.features.export import Selection
from memory_core.features.export import export as write_export
from memory_core.features.purge import PURGE, PurgeRequest
from memory_core.runebook import Runebook
from tests.features.moving import PAYMENTS, exported, imported, opened, run
from tests.kept import kept_files
from tests.stores import edited, entity, fact, handed_in, said

USER = "viking://user/default/memories"
TEA = f"{USER}/preferences/Tea.md"
LOG = "viking://session/default/trip/messages.jsonl"
TALK = [
    {"role": "user", "name": "Mei", "content": "我们五月去大阪,住在心斋桥附近。"},
    {"role": "assistant", "content": "Noted: Osaka in May."},
]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Runebook]:
    with opened(tmp_path / "source") as store:
        entity(store, "支付系统", "数据库是 PostgreSQL。")
        store.commit(CommitRequest("Green tea, no sugar.", memory_type="preferences", fields={"topic": "Tea"}))
        edit(store, PAYMENTS, "PostgreSQL", "TiDB")
        store.commit(CommitRequest(messages=TALK, session_id="trip"))
        store.commit(CommitRequest("用过就删的草稿"))
        store.commit(CommitRequest(operations={"delete_operations": [{"uri": f"{USER}/notes/用过就删的草稿.md"}]}))
        yield store


def lines(path: Path, kind: str) -> list[dict[str, Any]]:
    every = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [line for line in every if line["kind"] == kind]


def edit(memory: Runebook, uri: str, search: str, new: str) -> None:
    receipt = edited(memory, uri, {"patches": {"content": [{"search": search, "replace": new}]}})
    assert receipt.status == "committed"


@pytest.mark.parametrize("form", ["all.zip", "all.jsonl"])
def test_an_empty_store_becomes_the_exported_one_byte_for_byte_and_twice_is_once(
    memory: Runebook, tmp_path: Path, form: str
) -> None:
    path = exported(memory, tmp_path / form)
    with opened(tmp_path / "target") as target:
        done = imported(target, path)
        assert (done.kept, done.refused) == ([], [])
        assert len(done.commits) == 1
        assert target.find(FindRequest("TiDB")).memories[0].uri == PAYMENTS
        assert target.find(FindRequest("心斋桥")).resources
        assert target.store.adopt() == 0
        for policy in ("keep", "replace", "both"):
            again = imported(target, path, policy)
            assert (again.commits, again.created, again.kept) == ([], [], [])
    assert kept_files(tmp_path / "target") == kept_files(tmp_path / "source")
    before = kept_files(tmp_path / "source")
    assert imported(memory, path).commits == []
    assert kept_files(tmp_path / "source") == before


def test_the_archive_describes_each_file(memory: Runebook, tmp_path: Path) -> None:
    path = exported(memory, tmp_path / "all.zip")
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        manifest = json.loads(archive.read("manifest.json"))
        assert {facts["path"] for facts in manifest["files"]} | {"manifest.json"} == set(archive.namelist())
        for facts in manifest["files"]:
            content = archive.read(facts["path"])
            assert (facts["size"], facts["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
        name = "user/default/memories/entities/支付系统.md"
        assert archive.getinfo(name).flag_bits & 0x800  # the name is said to be UTF-8
    assert manifest["counts"] == {
        "files": len(manifest["files"]),
        "memories": 2,
        "sessions": 1,
        "logs": 0,
        "archived": 0,
        "others": len(manifest["files"]) - 3,
        "commits": 0,
    }
    assert manifest["spaces"] == ["session/default", "user/default"]
    assert (manifest["format_version"], manifest["program_version"]) == (1, "0.1.0")


def test_lines_tell_other_programs_what_a_memory_says(memory: Runebook, tmp_path: Path) -> None:
    data: dict[str, Any] = {"memory_type": "preferences", "fields": {"topic": "编辑器", "content": "喜欢 Vim。"}}
    data |= {"salience": 0.9, "abstract": "爱用 Vim"}
    memory.commit(CommitRequest(operations={"write_operations": [{"memory_data": data}]}))
    path = exported(memory, tmp_path / "all.jsonl", messages=True)
    (vim,) = [line for line in lines(path, "file") if "Vim" in line["text"] and line.get("memory_type")]
    assert (vim["memory_type"], vim["name"], vim["fields"]["content"]) == ("preferences", "编辑器", "喜欢 Vim。")
    assert (vim["salience"], vim["abstract"], vim["project"], vim["tags"]) == (0.9, "爱用 Vim", None, [])
    assert [line["content"] for line in lines(path, "message")] == [message["content"] for message in TALK]
    assert "message" not in {line["kind"] for line in lines(exported(memory, tmp_path / "b.jsonl"), "file")}


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({"target": MemoryUri.parse(f"{USER}/preferences")}, {TEA}),
        ({"target": MemoryUri.parse(TEA)}, {TEA}),
        ({"memory_type": "entities"}, {PAYMENTS}),
        ({"project": "apollo"}, {f"{USER}/facts/Apollo 阿波罗.md"}),
        ({"sessions": False}, {PAYMENTS, TEA, f"{USER}/facts/Apollo 阿波罗.md"}),
    ],
)
def test_a_selection_takes_what_it_names_and_no_other(
    memory: Runebook, tmp_path: Path, selection: dict[str, Any], expected: set[str]
) -> None:
    fact(memory, "Apollo 阿波罗", "Ships on Friday.", project="apollo")
    said(memory, "elsewhere", session_id="other", project="zeus")
    path = exported(memory, tmp_path / "some.jsonl", **selection)
    uris = {line["uri"] for line in lines(path, "file")}
    assert {uri for uri in uris if "/." not in uri} == expected
    assert not any("session" in uri for uri in uris)


def test_history_that_was_purged_in_part_moves_all_the_same(memory: Runebook, tmp_path: Path) -> None:
    memory.run(PURGE, PurgeRequest(f"{USER}/preferences/Tea.md"))
    edit(memory, PAYMENTS, "TiDB", "OceanBase")
    path = exported(memory, tmp_path / "all.jsonl", history=True)
    with opened(tmp_path / "target") as target:
        done = imported(target, path)
        assert done.history == len(lines(path, "commit"))
        assert "OceanBase" in target.read(ReadRequest(PAYMENTS)).content


def test_a_history_that_is_not_sound_is_named_and_left_out_when_asked(memory: Runebook, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "source" / ".state" / "ledger.sqlite3")) as ledger:
        ledger.execute("UPDATE changes SET after = 'forged' WHERE seq = 1")
        ledger.commit()
    path = exported(memory, tmp_path / "all.jsonl", history=True)
    with opened(tmp_path / "target") as target:
        with pytest.raises(InvalidInput, match="not what its hash says") as refused:
            imported(target, path)
        assert "--partial" in refused.value.hint
        done = imported(target, path, partial=True)
        assert done.history == 0
        assert any("history was left out" in note for note in done.notes)
        assert "TiDB" in target.read(ReadRequest(PAYMENTS)).content


def test_history_is_left_out_where_there_is_one_and_that_is_said(memory: Runebook, tmp_path: Path) -> None:
    path = exported(memory, tmp_path / "all.zip", history=True)
    with opened(tmp_path / "target") as target:
        target.commit(CommitRequest("自己的历史 of its own"))
        done = imported(target, path)
        assert done.history == 0
        assert "one of its own" in done.notes[0]
        assert [row.kind for row in target.store.ledger.history()] == ["import", "commit"]
    text = exported(memory, tmp_path / "some.jsonl", target=MemoryUri.parse(TEA), history=True).read_text("utf-8")
    assert text.count('"kind": "commit", "commit"') == 1
    assert not any(word in text for word in ("TiDB", "支付", "大阪"))  # nothing of other files


def test_a_page_with_other_words_is_kept_or_replaced_as_asked(memory: Runebook, tmp_path: Path) -> None:
    folder = f"{USER}/preferences"
    handed_in(memory, overview=[{"directory_uri": folder, "overview": "What she drinks 饮料."}])
    path = exported(memory, tmp_path / "all.zip")
    with opened(tmp_path / "target") as target:
        handed_in(target, overview=[{"directory_uri": folder, "overview": "Written here."}])
        done = imported(target, path)
        assert [problem.name for problem in done.kept] == [f"{folder}/.overview.md"]
        assert "Written here." in target.read(ReadRequest(f"{folder}/.overview.md")).content
        assert imported(target, path, "replace").updated == [f"{folder}/.overview.md"]
        assert "饮料" in target.read(ReadRequest(f"{folder}/.overview.md")).content


def test_a_memory_as_long_as_a_raised_limit_allows_is_linked_with_the_one_it_comes_beside(tmp_path: Path) -> None:
    limits = {"content_bytes": 400_000, "commit_bytes": 900_000}
    tea: dict[str, Any] = {"memory_type": "preferences", "fields": {"topic": "Tea"}}
    with opened(tmp_path / "source", limits=limits) as source:
        source.commit(CommitRequest("Green tea, no sugar.\n" * 14_000, **tea))
        path = exported(source, tmp_path / "all.zip")
    with opened(tmp_path / "target", limits=limits) as target:
        target.commit(CommitRequest("Black tea.", **tea))
        (pair,) = imported(target, path, "both").beside
        links = (split(target.read(ReadRequest(pair.uri)).content).trailer or {})["links"]
        assert [(each["uri"], each["relation"]) for each in links] == [(pair.imported, "similar")]


def test_the_same_memory_under_another_name_is_a_conflict(memory: Runebook, tmp_path: Path) -> None:
    path = exported(memory, tmp_path / "all.zip")
    with opened(tmp_path / "target") as target:
        target.commit(CommitRequest(memory_type="entities", fields={"entity_name": "支付系統", "content": "繁體。"}))
        done = imported(target, path)
        (kept,) = done.kept
        assert kept.name == PAYMENTS
        assert "支付系統.md" in kept.reason
        assert imported(target, path, "replace").updated == [f"{USER}/entities/支付系統.md"]
        assert target.read(ReadRequest(f"{USER}/entities/支付系統.md")).content.startswith("数据库是 TiDB")
        assert imported(target, path, "replace").commits == []


def test_a_name_that_differs_in_case_alone_never_becomes_a_second_file(memory: Runebook, tmp_path: Path) -> None:
    with opened(tmp_path / "target") as target:
        hand = tmp_path / "target/user/default/memories/preferences/tea.md"
        hand.parent.mkdir(parents=True)
        hand.write_text("written by hand", encoding="utf-8")
        done = imported(target, exported(memory, tmp_path / "all.zip"))
        assert [problem.name for problem in done.kept] == [TEA]
        assert [path.name for path in hand.parent.glob("[!.]*")] == ["tea.md"]


def test_a_conversation_that_went_on_elsewhere_goes_on_here(memory: Runebook, tmp_path: Path) -> None:
    older = exported(memory, tmp_path / "older.zip")
    memory.commit(CommitRequest(messages=[*TALK, {"role": "user", "content": "还要带孩子。"}], session_id="trip"))
    newer = exported(memory, tmp_path / "newer.zip")
    with opened(tmp_path / "target") as target:
        imported(target, older)
        assert imported(target, newer).updated == [LOG]
        assert target.store.text(MemoryUri.parse(LOG)) == memory.store.text(MemoryUri.parse(LOG))
        assert imported(target, older).commits == []  # the longer one stays
        seq = target.store.ledger.newest_seq()
        assert target.store.ledger.text_at(MemoryUri.parse(LOG), seq) == target.store.text(MemoryUri.parse(LOG))


def test_conversations_wait_for_extraction_as_they_did(memory: Runebook, tmp_path: Path) -> None:
    said(memory, "done with 已提取", session_id="done", brief=True)
    memory.commit(CommitRequest(operations={"reasoning": "nothing to keep"}, session_id="done"))
    space = MemoryUri.parse("viking://session/default")
    waiting = [(row.log, row.waiting) for row in memory.store.ledger.extractions.waiting(space)]
    assert waiting
    with opened(tmp_path / "target") as target:
        imported(target, exported(memory, tmp_path / "all.zip"))
        assert [(row.log, row.waiting) for row in target.store.ledger.extractions.waiting(space)] == waiting


def test_conversations_wait_for_extraction_also_where_an_import_came_to_no_end(
    memory: Runebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = exported(memory, tmp_path / "out.jsonl")
    space = MemoryUri.parse("viking://session/default")
    with opened(tmp_path / "target") as target:
        with monkeypatch.context() as broken:
            broken.setattr("memory_core.features.import_export._Run.take_queue", _interrupted)
            with pytest.raises(KeyboardInterrupt):
                imported(target, path)
        queue = target.store.ledger.extractions
        assert not queue.waiting(space)
        imported(target, path)
        assert [row.uri for row in queue.waiting(space)] == [LOG]
        queue.restart(MemoryUri.parse(LOG), 5, "2026-01-01T00:00:00.000+00:00")
        imported(target, path)
        assert [row.stored for row in queue.waiting(space)] == [5]


def _interrupted(*_args: Any) -> None:
    raise KeyboardInterrupt


def test_spaces_are_mapped_and_links_follow(memory: Runebook, tmp_path: Path) -> None:
    link = {"uri": PAYMENTS, "relation": "supports"}
    data: dict[str, Any] = {"memory_type": "preferences", "fields": {"topic": "Tea"}, "links": [link]}
    memory.commit(CommitRequest(operations={"write_operations": [{"uri": TEA, "memory_data": data}]}))
    path = exported(memory, tmp_path / "all.zip")
    with opened(tmp_path / "target", user_space="mei", agent_space="helper") as target:
        done = imported(target, path, into=("mei", "helper"))
        assert (done.kept, done.refused) == ([], [])
        assert target.find(FindRequest("TiDB")).memories[0].uri == PAYMENTS.replace("default", "mei")
        assert target.store.text(MemoryUri.parse(LOG.replace("default", "mei")))
        again = target.commit(CommitRequest(messages=TALK, session_id="trip"))
        assert again.usage == {"messages": 2, "messages_new": 0}
        for entry in target.store.files.walk():
            assert entry.uri.parts[1] == "mei"
            assert "user/default" not in (target.store.text(entry.uri) or "")
        assert imported(target, path, into=("mei", "helper")).commits == []


def test_many_files_are_several_commits_and_all_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from memory_core.features import import_export

    monkeypatch.setattr(import_export, "_BATCH_FILES", 7)
    notes = tmp_path / "source/user/default/memories/notes"
    notes.mkdir(parents=True)
    for number in range(30):
        (notes / f"笔记 {number}.md").write_text(f"note {number} 第{number}条", encoding="utf-8")
    seen: list[Stage] = []
    with opened(tmp_path / "source") as source, opened(tmp_path / "target") as target:
        path = exported(source, tmp_path / "all.zip")
        with listening(seen.append):
            done = imported(target, path)
        assert len(done.commits) == 5
        assert Stage("importing", 30, 30, "files") in seen
        assert target.store.ledger.directories.count(MemoryUri.parse(f"{USER}/notes")) == 30


@pytest.mark.parametrize("form", ["all.zip", "all.jsonl"])
def test_an_export_is_one_moment_while_others_write(memory: Runebook, tmp_path: Path, form: str) -> None:
    """Between any two files that are read somebody commits; all of it is from before, or none of it would be."""
    writes = [
        {"memory_data": {"memory_type": "notes", "fields": {"title": f"笔记 {number}", "content": "at 0"}}}
        for number in range(6)
    ]
    memory.commit(CommitRequest(operations={"write_operations": writes}))
    before = kept_files(tmp_path / "source")
    uris = [f"{USER}/notes/笔记 {number}.md" for number in range(6)]

    def write_on(stage: Stage) -> None:
        if stage.what != "exporting":
            return
        edits = [{"uri": uri, "patches": {"content": f"at {stage.done}"}} for uri in uris]
        removal = [{"uri": TEA}] if stage.done == 1 else []
        changed = memory.commit(CommitRequest(operations={"edit_operations": edits, "delete_operations": removal}))
        assert changed.status == "committed"

    with listening(write_on):
        exported(memory, tmp_path / form)
    assert kept_files(tmp_path / "source") != before
    with opened(tmp_path / "target") as target:
        imported(target, tmp_path / form)
    assert kept_files(tmp_path / "target") == before


def test_what_people_wrote_by_hand_is_exported_byte_for_byte(memory: Runebook, tmp_path: Path) -> None:
    odd = {"crlf.md": b"one\r\ntwo\r\n", "latin.md": "café".encode("latin-1"), "empty.md": b""}
    folder = tmp_path / "source/user/default/memories/notes"
    for name, content in odd.items():
        (folder / name).write_bytes(content)
        os.utime(folder / name, (1e9, 1e9))  # an empty file of this moment is one that is being saved
    with zipfile.ZipFile(exported(memory, tmp_path / "all.zip")) as archive:
        assert {name: archive.read(f"user/default/memories/notes/{name}") for name in odd} == odd
    with opened(tmp_path / "target") as target:
        done = imported(target, tmp_path / "all.zip")
        assert [(problem.name, problem.reason) for problem in done.refused] == [
            (f"{USER}/notes/latin.md", "it is not UTF-8 text")
        ]
        arrived = kept_files(tmp_path / "target")
        assert arrived["user/default/memories/notes/crlf.md"] == odd["crlf.md"]
        assert arrived["user/default/memories/notes/empty.md"] == b""


def test_twins_that_windows_confuses_leave_and_arrive(tmp_path: Path) -> None:
    notes = tmp_path / "source/user/default/memories/notes"
    notes.mkdir(parents=True)
    (notes / "Tea.md").write_text("upper", encoding="utf-8")
    (notes / "tea.md").write_text("lower", encoding="utf-8")
    with opened(tmp_path / "source") as source, opened(tmp_path / "target") as target:
        path = exported(source, tmp_path / "all.zip")
        with zipfile.ZipFile(path) as archive:
            names = [name.casefold() for name in archive.namelist()]
            assert len(set(names)) == len(names)
        done = imported(target, path, "both")
        assert done.refused == []
        texts = {split(target.store.text(entry.uri) or "").body for entry in target.store.files.walk()}
        assert {"upper", "lower"} <= texts


def test_an_export_is_private_and_never_overwrites_unasked(memory: Runebook, tmp_path: Path) -> None:
    path = exported(memory, tmp_path / "all.zip")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = path.read_bytes()
    with pytest.raises(InvalidInput, match="is there already"):
        exported(memory, path)
    assert path.read_bytes() == content
    write_export(memory, path, Selection(sessions=False), force=True)
    assert path.read_bytes() != content
    assert sorted(found.name for found in tmp_path.iterdir()) == ["all.zip", "source"]


def test_a_history_that_no_import_takes_is_not_exported(
    memory: Runebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_file, "_LINE_LIMIT_BYTES", 600)
    with pytest.raises(InvalidInput, match="a commit is too long") as refused:
        exported(memory, tmp_path / "all.zip", history=True)
    assert "without --history" in refused.value.hint
    assert [found.name for found in tmp_path.iterdir()] == ["source"]


def test_a_memory_that_became_a_link_outside_is_exported_as_it_was_committed(memory: Runebook, tmp_path: Path) -> None:
    path = tmp_path / "source/user/default/memories/entities/支付系统.md"
    text = path.read_bytes()
    path.replace(tmp_path / "outside.md")
    path.symlink_to(tmp_path / "outside.md")
    (tmp_path / "outside.md").write_text("of somebody else", encoding="utf-8")
    with zipfile.ZipFile(exported(memory, tmp_path / "all.zip")) as archive:
        assert archive.read("user/default/memories/entities/支付系统.md") == text


def test_an_export_that_fails_leaves_nothing(memory: Runebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Exception, match="No space left"):
        exported(memory, tmp_path / "all.zip")
    monkeypatch.undo()
    assert [found.name for found in tmp_path.iterdir()] == ["source"]


def test_the_command_line_moves_a_store(memory: Runebook, tmp_path: Path) -> None:
    memory.close()
    piped = run(tmp_path / "source", "export", "-", "--history")
    assert (piped.returncode, piped.stderr) == (0, b"")
    path = tmp_path / "all.jsonl"
    path.write_bytes(piped.stdout)
    assert json.loads(io.BytesIO(piped.stdout).readline())["format"] == "runebook-export"
    done = run(tmp_path / "target", "import", str(path), "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    facts = json.loads(done.stdout)
    assert PAYMENTS in facts["created"]
    assert facts["history"] > 0
    assert kept_files(tmp_path / "target") == kept_files(tmp_path / "source")
    refused = run(tmp_path / "target", "export", str(tmp_path / "all.txt"))
    assert refused.returncode == 1
    assert b"Next: " in refused.stderr
    unknown = run(tmp_path / "target", "export", str(tmp_path / "x.zip"), "--type", "nonsense")
    assert (unknown.returncode, (tmp_path / "x.zip").exists()) == (1, False)
    text = run(tmp_path / "target", "export", str(tmp_path / "x.zip"))
    assert b"2 memories, 1 conversations" in text.stdout
    assert b"TiDB" not in text.stdout + text.stderr


@pytest.mark.parametrize("stored", ["jsonl", "zip"])
def test_files_that_are_not_utf8_are_named_by_json_lines_and_kept_by_a_zip(
    memory: Runebook, tmp_path: Path, stored: str
) -> None:
    notes = memory.store.files.root / "user/default/memories/notes"
    notes.mkdir(exist_ok=True)
    odd = {"gbk.md": "港口的密码在抽屉里。".encode("gbk"), "photo.jpg": b"\xff\xd8\xff\xe0\x10JFIF"}
    for name, content in odd.items():
        (notes / name).write_bytes(content)
    (notes / "mark.md").write_bytes("A mark of its own: \ufffd.\n".encode())
    path = tmp_path / f"out.{stored}"
    done = run(memory.store.files.root, "export", str(path), "--history")
    told = done.stdout.decode()
    if stored == "zip":
        assert (done.returncode, "left out" in told) == (0, False)
        with zipfile.ZipFile(path) as archive:
            assert {name: archive.read(f"user/default/memories/notes/{name}") for name in odd} == odd
        return
    assert done.returncode == 1
    for name in odd:
        assert f"left out: {USER}/notes/{name} (it is not UTF-8 text: save it as UTF-8, then export again" in told
    assert lines(path, "end")[0]["left_out"] == [f"{USER}/notes/{name}" for name in odd]
    assert f"{USER}/notes/mark.md" in {line["uri"] for line in lines(path, "file")}
    with opened(tmp_path / "there") as there:
        came = imported(there, path)
        assert (came.refused, f"{USER}/notes/mark.md" in came.created) == ([], True)
    assert not any((tmp_path / "there/user/default/memories/notes" / name).exists() for name in odd)
    assert run(tmp_path / "there", "doctor").returncode == 0


def test_only_what_was_asked_for_is_named_as_not_utf8(memory: Runebook, tmp_path: Path) -> None:
    (memory.store.files.root / "user/default/memories/entities/gbk.md").write_bytes("港口".encode("gbk"))
    done = write_export(memory, tmp_path / "out.jsonl", Selection(memory_type="preferences"))
    assert (done.left_out, done.counts["files"]) == ([], 1)


@pytest.mark.parametrize("stored", ["jsonl", "zip"])
def test_an_export_leaves_out_what_is_gone_and_was_not_utf8(memory: Runebook, tmp_path: Path, stored: str) -> None:
    odd = memory.store.files.root / "user/default/memories/entities/gbk.md"
    odd.write_bytes("港口".encode("gbk"))
    for number in range(8):
        fact(memory, f"fact {number}", "Kept.")
    memory.store.adopt()
    (memory.store.files.root / "user").rename(tmp_path / "away")
    (memory.store.files.root / "session").rename(tmp_path / "away too")
    done = write_export(memory, tmp_path / f"out.{stored}", Selection())
    assert (done.left_out, done.counts["files"] > 8) == ([f"{USER}/entities/gbk.md"], True)
