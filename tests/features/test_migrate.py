"""Migration: names that mean something, trailers of ours, bodies as they were; stopped anywhere, run again."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.memory.requests import CommitRequest, FindRequest, ReadRequest
from memory_core.core.memory.results import Action, as_json
from memory_core.core.memory.trailer import join, split
from memory_core.core.progress import listening
from memory_core.features.migrate import MIGRATE, MigrateRequest, Migration
from memory_core.features.older_format import day_in, is_random_name
from memory_core.runebook import Runebook
from tests import stores
from tests.features.moving import opened
from tests.killing import killed
from tests.stores import by_hand, edited, files_below, trailer

FIXTURE = Path(__file__).parent.parent / "fixtures" / "older_store"
USER = "viking://user/default/memories"
AGENT = "viking://agent/default/memories"
UUID = "8d3f2a10-5b6c-4d7e-8f90-a1b2c3d4e5f6"

NAMES = {
    "agent/default/memories/cases/导出中文乱码 → 写入 UTF-8 BOM.md",
    "agent/default/memories/patterns/Count rows, copy the table, migrate, count again.md",
    "agent/default/memories/skills/clean_survey.md",
    "agent/default/memories/tools/read_file.md",
    "agent/default/memories/tools/web_search.md",
    "user/default/memories/entities/Gannet server.md",
    "user/default/memories/entities/Tern (vessel).md",
    "user/default/memories/entities/支付系统.md",
    "user/default/memories/events/2026-02-11_Moved the export.md",
    "user/default/memories/events/2026-03-17_决定采用双活部署.md",
    "user/default/memories/events/The autumn cruise was cancelled.md",
    "user/default/memories/preferences/Notebook paper.md",
    "user/default/memories/preferences/Prefers pour-over coffee, no sugar.md",
    "user/default/memories/preferences/代码风格.md",
    "user/default/memories/preferences/会议时间.md",
    "user/default/memories/profile.md",
}


def run(memory: Runebook, **settings: Any) -> Migration:
    result = memory.run(MIGRATE, MigrateRequest(**settings))
    memory.indexer.follow(None)  # pages of directories are made after the answer
    return result


def entity(home: Path, name: str, text: str) -> Path:
    return by_hand(home, f"user/default/memories/entities/{name}.md", text)


def files(home: Path) -> dict[str, bytes]:
    found = ((path, text) for path, text in files_below(home) if ".state" not in path.parts)
    return {
        path.relative_to(home).as_posix(): text
        for path, text in found
        if path.name not in (".abstract.md", ".overview.md")
    }


def entities(home: Path) -> set[str]:
    return {path.stem for path in (home / "user/default/memories/entities").glob("[!.]*.md")}


@pytest.fixture
def older(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURE, tmp_path / "home"))


@pytest.fixture
def memory(older: Path) -> Iterator[Runebook]:
    with opened(older) as store:
        yield store


def test_names_mean_something_and_bodies_are_byte_identical(memory: Runebook, older: Path) -> None:
    before = files(older)
    result = run(memory)
    after = files(older)
    assert set(after) == NAMES
    assert (len(result.renamed), len(result.rewritten), len(result.unchanged), len(result.skipped)) == (10, 4, 2, 0)
    moved = {item.new_uri.removeprefix("viking://"): item.old_uri.removeprefix("viking://") for item in result.renamed}
    for path, text in after.items():
        body = split(text.decode("utf-8")).body
        assert body == split(before[moved.get(path, path)].decode("utf-8")).body, path
        if split(text.decode("utf-8")).trailer is not None:  # in the form that is written here
            assert join(*split(text.decode("utf-8"))[:2]) == text.decode("utf-8"), path


def test_every_memory_is_found_under_its_new_name_and_updated_by_its_key(memory: Runebook) -> None:
    run(memory)
    uri = f"{USER}/preferences/代码风格.md"
    assert [hit.uri for hit in memory.find(FindRequest("函数不超过五十行")).memories][:1] == [uri]
    receipt = memory.commit(CommitRequest("改用两个空格。", memory_type="preferences", fields={"topic": "代码风格"}))
    assert [(result.uri, result.action) for result in receipt.results] == [(uri, Action.UPDATED)]
    assert trailer(memory, uri)["migrated_from"].endswith("preferences/mem_0a9b8c7d-1e2f-4a3b-8c4d-5e6f7a8b9c0d.md")


def test_a_dry_run_says_the_same_and_writes_nothing(memory: Runebook, older: Path) -> None:
    memory.opened.adopted.wait()
    memory.indexer.follow(None)
    before = {path: (older / path).stat().st_mtime_ns for path in files(older)}
    seq = memory.store.ledger.newest_seq()
    plan = run(memory, dry_run=True)
    assert {path: (older / path).stat().st_mtime_ns for path in files(older)} == before
    assert memory.store.ledger.newest_seq() == seq
    done = run(memory)
    assert plan.renamed == done.renamed
    assert [item.uri for item in plan.rewritten] == [item.uri for item in done.rewritten]
    assert (plan.dry_run, plan.commits) == (True, ())


def test_averages_leave_the_trailer_counts_go_on_and_a_rewritten_body_is_kept_and_reported(memory: Runebook) -> None:
    result = run(memory)
    kept = trailer(memory, f"{AGENT}/tools/web_search.md")
    assert not {"success_rate", "avg_time", "avg_tokens"} & set(kept)
    counts = ("total_calls", "success_count", "fail_count", "total_time_ms")
    assert [kept[name] for name in counts] == [100, 92, 8, 120_000]
    assert kept["last_used_by"] == "indexer"

    uri = f"{AGENT}/tools/read_file.md"
    fields: dict[str, Any] = {"tool_name": "read_file", "total_calls": 10, "success_count": 7}
    memory.commit(CommitRequest(memory_type="tools", fields=fields))
    text = memory.read(ReadRequest(uri)).content
    assert "Based on 50 historical calls:" in text
    assert "- Success rate: 90.0% (45 successful, 2 failed)" in text
    assert "- Best for: 小文件" in text
    assert trailer(memory, uri)["total_time_ms"] == 6_000

    uri = f"{AGENT}/skills/clean_survey.md"
    assert "hand edit" in next(item.why for item in result.rewritten if item.uri == uri)
    memory.commit(CommitRequest(memory_type="skills", fields={"skill_name": "clean_survey", "total_executions": 1}))
    assert "I rewrote this text myself." in memory.read(ReadRequest(uri)).content
    assert trailer(memory, uri)["total_executions"] == 4


def test_links_follow_renamed_memories(older: Path) -> None:
    link = {"uri": f"{USER}/entities/支付系统.md", "relation": "refines"}
    for name, target in (("mem_aaaa1111", "mem_bbbb2222"), ("mem_bbbb2222", "mem_aaaa1111"), ("ours", "mem_bbbb2222")):
        links = [link, {"uri": f"{USER}/entities/{target}.md", "relation": "similar"}, "not a uri"]
        entity(
            older, name, f"# Entity: {name[-4:]} x\n\ntext\n\n<!-- MEMORY_FIELDS\n{json.dumps({'links': links})}\n-->"
        )
    with opened(older) as memory:
        plan = run(memory, dry_run=True)
        result = run(memory)
        assert (plan.renamed, plan.rewritten, plan.skipped) == (result.renamed, result.rewritten, ())
        assert result.skipped == ()
        for name, target in (("1111 x", "2222 x"), ("2222 x", "1111 x"), ("ours", "2222 x")):
            links = trailer(memory, f"{USER}/entities/{name}.md")["links"]
            assert links == [link, {"uri": f"{USER}/entities/{target}.md", "relation": "similar"}, "not a uri"]
        assert trailer(memory, f"{USER}/entities/支付系统.md")["links"][0]["uri"] == f"{USER}/entities/Tern (vessel).md"
        assert run(memory).rewritten == ()


def test_texts_that_begin_alike_are_numbered_and_all_kept(tmp_path: Path) -> None:
    texts = [f"# 支付系统\n\n第 {number} 份说明\n" for number in range(14)]
    for number, text in enumerate(texts):
        entity(tmp_path, f"mem_{number:08x}-1111-4222-8333-444444444444", text)
    entity(tmp_path, "支付系统 (2)", "手写的第二份。\n")
    with opened(tmp_path) as memory:
        result = run(memory)
        assert len(result.renamed) == 14
        found = {split(path.read_bytes().decode("utf-8")).body for path in (tmp_path / "user").rglob("[!.]*.md")}
        assert found == {*texts, "手写的第二份。\n"}
        assert {"支付系统", "支付系统 (2)", "支付系统 (3)", "支付系统 (9)"} < entities(tmp_path)
        assert run(memory).commits == ()


def test_case_twins_get_names_that_no_file_system_confuses(tmp_path: Path) -> None:
    entity(tmp_path, "mem_aaaa1111", "# REDIS\n\nthe cache\n")
    entity(tmp_path, "mem_bbbb2222", "# redis\n\nthe queue\n")
    entity(tmp_path, "Redis", "# Redis\n\nby hand\n")
    with opened(tmp_path) as memory:
        run(memory)
    names = entities(tmp_path)
    assert "Redis" in names
    assert len({name.casefold() for name in names}) == 3


def test_two_files_with_the_same_given_key_both_stay_and_keep_it(tmp_path: Path) -> None:
    for name, body in (("mem_aaaa1111", "one"), ("mem_bbbb2222", "two")):
        by_hand(
            tmp_path,
            f"agent/default/memories/tools/{name}.md",
            f'{body}\n\n<!-- MEMORY_FIELDS {{"tool_name": "grep"}} -->',
        )
    with opened(tmp_path) as memory:
        new = [item.new_uri for item in run(memory).renamed]
        assert new[0] == f"{AGENT}/tools/grep.md"
        assert new[1].startswith(f"{AGENT}/tools/grep~")
        assert [trailer(memory, uri)["tool_name"] for uri in new] == ["grep", "grep"]
        assert run(memory).commits == ()


def test_memories_written_here_are_left_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        stores.entity(memory, "8848", "A brand of mountain lamps.")
        memory.commit(CommitRequest("咖啡不加糖。", memory_type="preferences", fields={"topic": "咖啡: 口味/糖"}))
        memory.commit(CommitRequest(memory_type="tools", fields={"tool_name": "cafe2026", "total_calls": 3}))
        launch = {"event_time": "2026-04-02", "event_name": "Launch"}
        memory.commit(CommitRequest("Launched.", memory_type="events", fields=launch))
        renamed = tmp_path / "user/default/memories/preferences/my own name.md"
        next(renamed.parent.glob("[!.]*.md")).rename(renamed)  # not a summary
        before = files(tmp_path)
        result = run(memory)
        assert (result.commits, result.skipped, len(result.unchanged)) == ((), (), 4)
        assert files(tmp_path) == before


def test_a_file_edited_before_the_migration_still_gets_its_name(memory: Runebook) -> None:
    uri = f"{USER}/preferences/mem_0a9b8c7d-1e2f-4a3b-8c4d-5e6f7a8b9c0d.md"
    edited(memory, uri, {"patches": {"content": "# 代码风格\n\n两个空格。\n"}})
    run(memory)
    assert trailer(memory, f"{USER}/preferences/代码风格.md")["topic"] == "代码风格"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("body\n\n<!-- MEMORY_FIELDS\n{broken\n-->\n", "not valid JSON"),
        ('body\n\n<!-- MEMORY_FIELDS\n{"memory_type": "entities"}\n-->\n\nadded later\n', "below"),
        ('body\n\n<!-- MEMORY_FIELDS {"entity_name": "X"} -->\n\nadded later\n', "not its end"),
        ('body\n\n<!-- MEMORY_FIELDS {"entity_name": "X", "content": "另一段"} -->', "differ"),
        ('body\n\n<!-- MEMORY_FIELDS {"memory_type": "cards", "name": "X"} -->', "unknown memory type 'cards'"),
        ("  \n", "nothing in it makes a name"),
        ("a card\n", "no memory type"),
    ],
)
def test_a_file_that_needs_a_person_is_reported_and_left_alone(tmp_path: Path, text: str, reason: str) -> None:
    folder = "cards" if text == "a card\n" else "entities"
    path = by_hand(tmp_path, f"user/default/memories/{folder}/mem_{UUID}.md", text)
    with opened(tmp_path) as memory:
        result = run(memory)
        (skipped,) = result.skipped
    assert reason in skipped.reason
    assert skipped.hint
    assert path.read_bytes() == text.encode("utf-8")
    assert any(reason in line for line in result.lines())


def test_bytes_that_are_no_text_are_reported_and_left_alone(tmp_path: Path) -> None:
    path = entity(tmp_path, f"mem_{UUID}", "")
    path.write_bytes(b"\xff\xfe caf\xe9")
    with opened(tmp_path) as memory:
        assert "UTF-8" in run(memory).skipped[0].reason
    assert path.read_bytes() == b"\xff\xfe caf\xe9"


def test_a_file_that_changes_while_the_migration_runs_is_named_by_what_it_says_then(tmp_path: Path) -> None:
    entity(tmp_path, "mem_aaaa1111", "# First\n")
    second = entity(tmp_path, "mem_bbbb2222", "# Second\n")

    def change(_stage: object) -> None:
        if "改过" not in second.read_text("utf-8"):
            second.write_text("# 改过的标题\n", encoding="utf-8")

    with opened(tmp_path) as memory:
        memory.find(FindRequest("x"))
        with listening(change):
            result = run(memory)
    assert {item.new_uri for item in result.renamed} == {
        f"{USER}/entities/{name}.md" for name in ("First", "改过的标题")
    }


def test_only_memories_of_the_own_spaces_are_touched(older: Path) -> None:
    others = [
        by_hand(older, f"user/alice/memories/preferences/mem_{UUID}.md", "alice\n"),
        by_hand(older, f"archive/user/default/memories/preferences/mem_{UUID}.md", "archived\n"),
        by_hand(older, "session/default/12345678/messages.jsonl", '{"role": "user", "content": "x"}\n'),
        by_hand(older, "user/default/logs/2026-01-02.md", "log\n"),
        by_hand(older, "user/default/memories/preferences/.abstract.md", "L0\n"),
    ]
    before = [path.read_bytes() for path in others]
    with opened(older) as memory:
        run(memory)
    assert [path.read_bytes() for path in others] == before


_MIGRATE = """
from memory_core.core.memory.requests import FindRequest
from memory_core.features.migrate import MIGRATE, MigrateRequest
memory.find(FindRequest("x"))
memory.run(MIGRATE, MigrateRequest())
"""


@pytest.mark.parametrize(("stop_at", "nth"), [("planned", 1), ("acknowledged", 1), ("file", 3), ("renamed", 1)])
def test_killed_anywhere_the_next_run_finishes(older: Path, stop_at: str, nth: int) -> None:
    bodies = sorted(split(text.decode("utf-8")).body for text in files(older).values())
    stopped = killed(older, stop_at, nth, _MIGRATE)
    assert stopped.returncode == -signal.SIGKILL, stopped.stderr
    with opened(older) as memory:
        assert sorted(split(text.decode("utf-8")).body for text in files(older).values()) == bodies
        assert len(run(memory).renamed) == (10 if stop_at == "planned" else 0)
        assert trailer(memory, f"{USER}/entities/支付系统.md")["links"][0]["uri"] == f"{USER}/entities/Tern (vessel).md"
    assert set(files(older)) == NAMES


def test_what_was_done_reads_as_text_and_as_json(memory: Runebook) -> None:
    result = run(memory, dry_run=True)
    lines = list(result.lines())
    assert lines[-1] == "10 would be renamed, 4 would be rewritten, 2 unchanged, 0 skipped."
    assert any(line.endswith("events/2026-03-17_决定采用双活部署.md  (named by its heading)") for line in lines)
    told = json.loads(json.dumps(as_json(result)))
    assert told["dry_run"] is True
    assert {len(told[name]) for name in ("renamed", "rewritten", "unchanged")} == {10, 4, 2}
    assert told["renamed"][0]["keys"] == {"entity_name": "Tern (vessel)"}


RANDOM = (
    *("mem_8f3a", f"mem_{UUID}", UUID, UUID.replace("-", ""), "42", "000123", "a1b2c3d4", f"entry-{UUID}"),
    *("01HV6Z8K3MXTQ9R5W2YBNCEJ4G", "memory_20240102x"),
)
TELLING = (
    "支付系统",
    "1984",
    "20260317",
    "memory_leak",
    "mem_limits",
    "facade",
    "web_search",
    "2026-03-17_Launch",
    "x",
)


def test_names_that_say_nothing_are_told_from_those_that_mean_something() -> None:
    assert [stem for stem in RANDOM if not is_random_name(stem)] == []
    assert [stem for stem in TELLING if is_random_name(stem)] == []


DAYS: dict[str, str | None] = {
    "于2026-03-17决定": "2026-03-17",
    "2026年3月7日的评审": "2026-03-07",
    "on 2026/12/01, then 2026-12-05": "2026-12-01",
    "On March 17th, 2026 we met": "2026-03-17",
    "met 3 Sept 2025 in Bergen": "2025-09-03",
    "自2026年4月起": "2026-04",
    "since 2026-04": "2026-04",
    "version 2026.13.40, call 12026-03-17": None,
    "yesterday 昨天": None,
}


def test_the_first_day_of_a_text_is_read_in_both_languages() -> None:
    assert {text: day_in(text) for text in DAYS} == DAYS
