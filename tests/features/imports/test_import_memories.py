"""Memories of other programs come in with what was known of them, once, and what their owner did to them stays."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest

from memory_core.core.errors import InvalidInput
from memory_core.core.memory.project import ProjectAssignment
from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.core.memory.results import Action, as_json, text_sha256
from memory_core.core.memory.uri import MemoryUri
from memory_core.features.imports import FORMATS
from memory_core.features.imports.import_run import ImportReport
from memory_core.features.imports.items import Format, Item, MemoryItem
from memory_core.features.imports.sources import Entry, Source, lines
from memory_core.features.rolling_summary import read_rolling_summary
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.runebook import Runebook
from tests.features.imports import foreign
from tests.features.imports.foreign import brought, write, write_lines
from tests.kept import kept_files
from tests.stores import body, trailer

FORMATS_OF: dict[str, Callable[[Path], Path]] = {
    "vibeworker-v1": foreign.vibeworker_v1,
    "vibeworker-v2": foreign.vibeworker_v2,
    "memoryos": foreign.memoryos,
    "mcp-memory": lambda folder: foreign.mcp_memory(folder / "memory.jsonl"),
    "claude-code": foreign.claude_code,
    "claude": foreign.claude,
    "chatgpt": foreign.chatgpt,
    "markdown": lambda folder: write(folder / "memory.md", "## Known Facts\n- The cellar floods\n").parent,
}


def text(memory: Runebook, uri: str) -> str:
    found = memory.store.text(MemoryUri.parse(uri))
    assert found is not None, f"{uri} is not there"
    return found


@pytest.mark.parametrize("name", FORMATS_OF)
def test_each_format_is_recognised_previewed_imported_once_and_never_again(
    name: str, memory: Runebook, tmp_path: Path
) -> None:
    home, source = tmp_path / "home", FORMATS_OF[name](tmp_path / "source")
    before = {path: path.read_bytes() for path in (tmp_path / "source").rglob("*.*") if path.is_file()}
    preview = brought(memory, source, dry_run=True)
    assert preview.format == name
    assert preview.total(Action.CREATED) > 0
    assert kept_files(home) == {}
    assert memory.store.ledger.newest_seq() == 0
    assert {path: path.read_bytes() for path in (tmp_path / "source").rglob("*.*") if path.is_file()} == before
    done = brought(memory, source)
    assert {kind: dict(counts) for kind, counts in done.counts.items() if kind != "links"} == {
        kind: dict(counts) for kind, counts in preview.counts.items()
    }
    stored, newest = kept_files(home), memory.store.ledger.newest_seq()
    again = brought(memory, source)
    assert not again.changed
    assert again.total(Action.UNCHANGED) == done.total(Action.CREATED)
    assert kept_files(home) == stored
    assert memory.store.ledger.newest_seq() == newest


def test_every_format_has_an_example_here() -> None:
    assert set(FORMATS) == set(FORMATS_OF)


def test_a_format_is_a_module_and_a_line(memory: Runebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(source: Source, entry: Entry) -> Iterator[Item]:
        for found in lines(source, entry):
            yield MemoryItem(found.place, found.place, "facts", found.record.text("said"))

    module = ModuleType("memory_core.features.imports.jots")
    module.FORMAT = Format("jots", "lines with 'said'", lambda _: True, lambda source: source.entries, read)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(FORMATS, "jots", ("jots", "FORMAT"))
    path = write_lines(tmp_path / "jots.txt", [{"said": "The cellar floods"}])
    assert (brought(memory, path).format, brought(memory, path, "jots").total(Action.UNCHANGED)) == ("jots", 1)
    assert memory.find(FindRequest("cellar")).memories


def test_version_1_keeps_days_ids_and_categories_and_its_files_are_renamed(memory: Runebook, tmp_path: Path) -> None:
    folder = foreign.vibeworker_v1(tmp_path / "v1")
    done = brought(memory, folder)
    assert sorted(done.moved) == ["2026-02-15.md.migrated", "MEMORY.md.migrated"]
    assert {path.name for path in folder.rglob("*.md*")} == {"2026-02-15.md.migrated", "MEMORY.md.migrated"}
    kept = trailer(memory, "viking://user/default/memories/preferences/用户喜欢简洁的代码风格.md")
    assert kept["source"] == {"kind": "import", "from": "vibeworker-v1", "id": "a1b2c3d4"}
    assert str(kept["created_at"])[:10] in ("2026-02-14", "2026-02-15", "2026-02-16")  # by the clock on the wall
    facts = [uri for uri in done_uris(memory) if "/facts/" in uri and not uri.endswith(("abstract.md", "overview.md"))]
    assert body(memory, facts[0]) == "The staging host is called heron\nand stands in Bergen"
    log = text(memory, "viking://user/default/logs/2026-02-15.md")
    assert "14:30 完成了 API 文档" in log
    assert '"kind": "auto_extract", "category": "preferences"' in log


def done_uris(memory: Runebook) -> list[str]:
    return [str(change.uri) for change in memory.store.ledger.changes_between(0, 1_000)]


def test_what_was_imported_stays_imported_when_its_owner_edits_it(memory: Runebook, tmp_path: Path) -> None:
    brought(memory, write(tmp_path / "people.md", "# People\n\n## Li Wei\n\nLi Wei runs the warehouse.\n"))
    uri = "viking://user/default/memories/notes/Li Wei.md"
    before = trailer(memory, uri)["source"]
    assert (before["kind"], before["file"]) == ("import", "people.md")
    edit = {"uri": uri, "patches": {"content": "Li Wei runs two warehouses."}}
    sha256 = text_sha256(text(memory, uri))
    memory.commit(CommitRequest(operations={"edit_operations": [edit]}, expected={uri: sha256}))
    assert body(memory, uri) == "Li Wei runs two warehouses."
    assert trailer(memory, uri)["source"] == before


def test_originals_stay_where_asked_where_something_was_left_out_and_in_an_archive(
    memory: Runebook, tmp_path: Path
) -> None:
    folder = foreign.vibeworker_v1(tmp_path / "v1")
    done = brought(memory, Path(shutil.make_archive(str(tmp_path / "v1"), "zip", folder)))
    assert (done.total(Action.CREATED), done.moved) == (4, [])
    assert any("stays as it is" in note for note in done.notes)
    assert brought(memory, folder, move_originals=False).moved == []
    write(folder / "logs" / "2026-02-16.md", "# Daily Log - 2026-02-16\n\n- [29:99] nobody knows when\n")
    done = brought(memory, folder)
    assert sorted(done.moved) == ["2026-02-15.md.migrated", "MEMORY.md.migrated"]
    assert [left.reason for left in done.left_out] == ["its time cannot be read"]
    with pytest.raises(InvalidInput, match="stay what they are"):
        brought(memory, foreign.claude(tmp_path / "claude"), move_originals=True)


def test_version_2_keeps_salience_times_uses_context_and_the_rolling_summary(memory: Runebook, tmp_path: Path) -> None:
    done = brought(memory, foreign.vibeworker_v2(tmp_path / "v2"))
    uri = "viking://user/default/memories/preferences/用户偏好东方航空，尤其是早班机.md"
    kept = trailer(memory, uri)
    assert (kept["salience"], kept["created_at"], kept["category"]) == (
        0.85,
        "2026-02-21T10:30:00+00:00",
        "preferences",
    )
    used = memory.store.ledger.usage_table.usage([uri])[uri]
    assert (used.access_count, used.last_accessed_at) == (3, datetime(2026, 2, 22, 14, tzinfo=UTC))
    [pattern] = [uri for uri in done_uris(memory) if "/patterns/fetch_url" in uri]
    source = trailer(memory, pattern)["source"]
    assert (source["tool"], source["error_type"]) == ("fetch_url", "dynamic_content")
    summary = read_rolling_summary(text(memory, "viking://user/default/rolling_summary.md"))
    assert summary is not None
    assert (summary.text, summary.authored) == ("用户是一名 Python 开发者", True)
    assert trailer(memory, "viking://user/default/memories/tasks/Send the offer.md")["state"] == "open"
    assert [as_json(left) for left in done.left_out] == [
        {"place": "memory.json: memories[2]", "reason": "it has no content"}
    ]
    assert '"tool": "fetch_url", "error": "empty"' in text(memory, "viking://user/default/logs/2026-02-21.md")
    assert memory.find(FindRequest("东方航空")).memories[0].uri == uri


def test_an_edit_a_removal_and_an_undo_by_the_owner_outlive_a_second_import(memory: Runebook, tmp_path: Path) -> None:
    folder = foreign.vibeworker_v2(tmp_path / "v2")
    first = brought(memory, folder)
    uri = "viking://user/default/memories/preferences/用户偏好东方航空，尤其是早班机.md"
    task = "viking://user/default/memories/tasks/Send the offer.md"
    memory.commit(CommitRequest(operations={"edit_operations": [{"uri": uri, "patches": {"content": "如今偏好高铁"}}]}))
    memory.commit(CommitRequest(operations={"delete_operations": [{"uri": task}]}))
    stored = kept_files(tmp_path / "home")
    assert not brought(memory, folder).changed
    assert kept_files(tmp_path / "home") == stored
    for commit in first.commits:
        memory.run(UNDO, UndoRequest(commit))
    back = brought(memory, folder)
    assert back.changed
    assert memory.store.text(MemoryUri.parse(task)) is not None
    assert "如今偏好高铁" in text(memory, uri)  # undoing keeps what its owner wrote since


def test_what_the_source_says_anew_is_taken_over_unless_it_was_edited_here(memory: Runebook, tmp_path: Path) -> None:
    path = tmp_path / "memory.jsonl"
    people = [
        {"type": "entity", "name": name, "entityType": "person", "observations": ["Plays chess"]}
        for name in ("Ana", "Bo")
    ]
    brought(memory, write_lines(path, people))
    ana, bo = (f"viking://user/default/memories/entities/{name}.md" for name in ("Ana", "Bo"))
    memory.commit(CommitRequest(operations={"edit_operations": [{"uri": bo, "patches": {"content": "Plays nothing"}}]}))
    more = [{**person, "observations": ["Plays chess", "下围棋"]} for person in people]
    done = brought(memory, write_lines(path, more))
    assert "下围棋" in text(memory, ana)
    assert "Plays nothing" in text(memory, bo)
    assert [kept.place for kept in done.kept] == ["memory.jsonl:2"]
    assert not brought(memory, path).changed


def test_a_rolling_summary_that_the_source_changed_is_taken_over_unless_it_was_edited_here(
    memory: Runebook, tmp_path: Path
) -> None:
    def summed_up(summary: str) -> ImportReport:
        return brought(memory, write(tmp_path / "memory.json", {"rolling_summary": summary, "memories": []}))

    def shown() -> str:
        found = read_rolling_summary(text(memory, "viking://user/default/rolling_summary.md"))
        assert found is not None
        return found.text

    summed_up("Lives in Leeds.")
    done = summed_up("住在宁波。")
    assert (shown(), dict(done.counts["rolling_summary"])) == ("住在宁波。", {Action.UPDATED: 1})
    assert not summed_up("住在宁波。").changed
    memory.commit(CommitRequest("Lives in Oslo.", memory_type="rolling_summary"))
    done = summed_up("Lives in Graz.")
    assert (shown(), [kept.place for kept in done.kept]) == ("Lives in Oslo.", ["memory.json: rolling_summary"])


def test_a_memory_that_was_renamed_here_is_found_under_its_new_name(memory: Runebook, tmp_path: Path) -> None:
    path = write(tmp_path / "memory.md", "## Known Facts\n- The cellar floods\n")
    brought(memory, path)
    [old] = [uri for uri in done_uris(memory) if "/facts/" in uri]
    file = memory.store.files.path_for(MemoryUri.parse(old))
    file.rename(file.with_name("地窖.md"))
    done = brought(memory, path)
    assert (done.there, done.gone) == (["viking://user/default/memories/facts/地窖.md"], [])


def test_a_memory_that_cannot_be_read_here_is_named_and_the_others_are_counted(
    memory: Runebook, tmp_path: Path
) -> None:
    path = write(tmp_path / "memory.md", "## Known Facts\n- The cellar floods\n- The roof is new\n")
    brought(memory, path)
    damaged, sound = (uri for uri in done_uris(memory) if "/facts/" in uri)
    memory.store.files.path_for(MemoryUri.parse(damaged)).write_bytes(b"\xff\n")
    done = brought(memory, path)
    assert done.there == [sound]
    assert ["UTF-8" in note for note in done.notes] == [True]


@pytest.mark.parametrize(
    "quoted", ['{"mapping": {}}', '{"chat_messages": []}', '{"entityType": "a"}', '{"memories": [{"salience": 1}]}']
)
def test_a_text_that_quotes_json_is_a_text(quoted: str, memory: Runebook, tmp_path: Path) -> None:
    path = write(tmp_path / "notes.md", f"## Known Facts\n- An export looks like `{quoted}`\n")
    assert brought(memory, path).format == "markdown"


def test_a_memory_that_is_there_under_the_same_name_is_never_overwritten(memory: Runebook, tmp_path: Path) -> None:
    memory.commit(CommitRequest("Met in Graz.", memory_type="entities", fields={"entity_name": "Harbour Ltd"}))
    memory.commit(CommitRequest("直率的译者", memory_type="profile"))
    mine = kept_files(tmp_path / "home")["user/default/memories/entities/Harbour Ltd.md"]
    brought(memory, foreign.mcp_memory(tmp_path / "memory.jsonl"))
    brought(memory, foreign.memoryos(tmp_path / "os"))
    now = kept_files(tmp_path / "home")
    assert now["user/default/memories/profile.md"].startswith("直率的译者".encode())
    assert b"A translator from Ningbo" in now["user/default/memories/notes/Profile of lin.md"]
    beside = now["user/default/memories/entities/Harbour Ltd (2).md"]
    assert b"In Oslo" in beside
    assert b"Met in Graz." in mine
    assert now["user/default/memories/entities/Harbour Ltd.md"] == mine


def test_a_knowledge_graph_becomes_entities_with_links(memory: Runebook, tmp_path: Path) -> None:
    done = brought(memory, foreign.mcp_memory(tmp_path / "memory.jsonl"))
    uri = "viking://user/default/memories/entities/陈静.md"
    assert body(memory, uri) == "- 讲流利的法语\n- Likes maps\n- works_at → Harbour Ltd"
    kept = trailer(memory, uri)
    assert kept["entity_type"] == "person"
    assert kept["links"][0]["uri"] == "viking://user/default/memories/entities/Harbour Ltd.md"
    assert done.counts["links"][Action.CREATED] == 1
    assert [left.place for left in done.left_out] == ["memory.jsonl:3", "memory.jsonl:5"]


def test_memoryos_pages_become_conversations_and_knowledge_becomes_memories(memory: Runebook, tmp_path: Path) -> None:
    done = brought(memory, foreign.memoryos(tmp_path / "os"))
    assert {kind: counts[Action.CREATED] for kind, counts in done.counts.items()} == {
        "conversations": 2,
        "messages": 5,
        "facts": 1,
        "assistant_knowledge": 1,
        "profile": 1,
    }
    assert "A translator from Ningbo" in text(memory, "viking://user/default/memories/profile.md")
    assert "用户对花生过敏" in text(memory, "viking://user/default/memories/facts/用户对花生过敏.md")
    log = text(memory, "viking://session/default/memoryos-session_1/messages.jsonl")
    assert "The user plans a trip to Kyoto" in log
    assert "In late November." in log
    assert len(done.left_out) == 2  # a page and a piece of knowledge that say nothing


def test_markdown_headings_lists_and_front_matter_become_memories(memory: Runebook, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    write(
        folder / "memory.md",
        "# Memory\n\n## 用户偏好\n\n- 喜欢深色主题\n  - 夜里尤其\n- [2026-01-05] Short answers\n\n"
        "## Tasks\n- [x] Paint the fence\n- [ ] 换轮胎\n\n## Proven Skills\n\n- deploy: build → push → check\n",
    )
    write(folder / "learnings.md", "Always run the linter first.\n\nSo:\n```sh\n- not an item\n\nruff check\n```\n")
    write(
        folder / "garden.md",
        "---\ntitle: 花园\ntags: [plants, 家]\ncreated: 2025-03-04\n---\nSoil is sandy.\n\n## Roses\nPrune in March.\n",
    )
    write(folder / "one.md", "---\ntype: fact\ntitle: Cellar\nimportance: 0.9\n---\n# The cellar\n\nIt floods.\n")
    write(folder / "two.md", "---\ntitle: Attic: left\n---\nIt is dry.\n---\nAnd warm.\n")
    done = brought(memory, folder)
    root = "viking://user/default/memories"
    assert body(memory, f"{root}/preferences/喜欢深色主题.md") == "喜欢深色主题\n- 夜里尤其"
    assert trailer(memory, f"{root}/preferences/Short answers.md")["created_at"][:7] == "2026-01"
    assert trailer(memory, f"{root}/tasks/Paint the fence.md")["state"] == "done"
    assert trailer(memory, f"{root}/tasks/换轮胎.md")["state"] == "open"
    garden = trailer(memory, f"{root}/notes/花园.md")
    assert garden["tags"] == ["plants", "家"]
    assert garden["created_at"].startswith("2025-03-0")
    assert body(memory, f"{root}/notes/Roses.md") == "Prune in March."
    fact = trailer(memory, f"{root}/facts/Cellar.md")
    assert fact["salience"] == 0.9
    assert done.counts["patterns"][Action.CREATED] == 2
    assert done.counts["skills"][Action.CREATED] == 1
    code = [uri for uri in done_uris(memory) if "/patterns/" in uri]
    assert any("So:\n```sh\n- not an item\n\nruff check" in text(memory, uri) for uri in code)
    assert body(memory, f"{root}/notes/Attic- left.md") == "It is dry.\n---\nAnd warm."


def test_comments_of_a_template_are_no_memories(memory: Runebook, tmp_path: Path) -> None:
    facts = "## Known Facts\n\n<!-- add facts\n\nhere -->\n\n- The cellar floods\n- <!-- 更多 -->\n"
    write(tmp_path / "old" / "garden.md", "## Roses\n<!-- soon -->\n")
    done = brought(memory, write(tmp_path / "old" / "memory.md", facts).parent)
    assert {kind: counts[Action.CREATED] for kind, counts in done.counts.items()} == {"facts": 1}


def test_a_file_without_an_ending_keeps_its_title_and_its_kind(memory: Runebook, tmp_path: Path) -> None:
    brought(memory, write(tmp_path / "learnings", "Always run the linter first.\n"), "markdown")
    brought(memory, write(tmp_path / "garden", "Soil is sandy.\n"), "markdown")
    assert body(memory, "viking://user/default/memories/notes/garden.md") == "Soil is sandy."
    assert any("/patterns/" in uri for uri in done_uris(memory))


@pytest.mark.parametrize(
    ("told", "tags"),
    [
        ("machine learning, ai", ["machine learning", "ai"]),
        ("机器 学习，家", ["机器 学习", "家"]),
        ("#a b", ["a", "b"]),
    ],
)
def test_tags_are_parted_by_commas_or_else_by_blanks(
    memory: Runebook, tmp_path: Path, told: str, tags: list[str]
) -> None:
    brought(memory, write(tmp_path / "garden.md", f'---\ntags: "{told}"\n---\nSoil is sandy.\n'))
    assert trailer(memory, "viking://user/default/memories/notes/garden.md")["tags"] == tags


def test_a_project_that_the_caller_names_holds_for_everything(memory: Runebook, tmp_path: Path) -> None:
    path = write(tmp_path / "memory.md", "## Known Facts\n- The cellar floods\n")
    brought(memory, path, assignment=ProjectAssignment("acme", named=True))
    assert trailer(memory, "viking://user/default/memories/facts/The cellar floods.md")["project"] == "acme"


def test_secrets_are_redacted_on_the_way_in(memory: Runebook, tmp_path: Path) -> None:
    key = "sk-ant-api03-" + "Zx9Qw8Er7Ty6Ui5Op4As3Df2Gh1Jk0Lz" * 2
    brought(memory, write(tmp_path / "memory.md", f"## Known Facts\n- The key of the shop is {key}\n"))
    stored = b"".join(kept_files(tmp_path / "home").values())
    assert key.encode() not in stored
    assert b"The key of the shop" in stored


def test_what_is_of_no_known_format_is_told_what_was_looked_for(memory: Runebook, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as refused:
        brought(memory, write(tmp_path / "list.csv", "a,b\n"))
    assert all(name in refused.value.hint for name in FORMATS)
    assert brought(memory, write(tmp_path / "odd.txt", "## Known Facts\n- Odd\n"), "markdown").changed
    with pytest.raises(InvalidInput, match="no format 'word'"):
        brought(memory, tmp_path / "odd.txt", "word")
