"""A folder that another program filled opens, is searched, read and updated as it is; nothing is rewritten unasked."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.memory.requests import CommitRequest, FindRequest, ReadRequest, TreeRequest
from memory_core.core.memory.results import Action
from memory_core.core.memory.trailer import join, split
from memory_core.runebook import Runebook, open_memory
from tests.stores import edited, trailer, words_only

FIXTURE = Path(__file__).parent.parent / "fixtures" / "older_store"
USER = "viking://user/default/memories"
AGENT = "viking://agent/default/memories"
TERN = f"{USER}/entities/1048576.md"
PAYMENTS = f"{USER}/entities/支付系统.md"
CASE = f"{AGENT}/cases/mem_c0ffee00-1234-4abc-8def-0123456789ab.md"
SEARCH = f"{AGENT}/tools/web_search.md"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURE, tmp_path / "home"))


@pytest.fixture
def memory(home: Path) -> Iterator[Runebook]:
    with open_memory(words_only(home)) as opened:
        yield opened


def edit(memory: Runebook, uri: str, **patches: Any) -> None:
    receipt = edited(memory, uri, {"patches": patches})
    assert [result.action for result in receipt.results] == [Action.UPDATED], receipt


FOUND = {
    "Bergen biologist": "profile.md",
    "喜欢先看结论": "profile.md",
    "pour-over coffee": "mem_6f1d2c3b-8a47-4e0b-9c55-0d2f7a91be34.md",
    "函数不超过五十行": "mem_0a9b8c7d-1e2f-4a3b-8c4d-5e6f7a8b9c0d.md",
    "squared paper": "3f2504e04f8911d39a0c0305e82c3301.md",
    "早上开会": "会议时间.md",
    "PostgreSQL 数据库": "支付系统.md",
    "coastal sampling draught": "1048576.md",
    "Gannet sensor backup": "mem_b7e1f0aa.md",
    "nightly export cluster": "mem_11111111-2222-4333-8444-555555555555.md",
    "单机房断电": "mem_99999999-8888-4777-a666-555555555555.md",
    "autumn cruise": "42.md",
    "导出中文乱码": "mem_c0ffee00-1234-4abc-8def-0123456789ab.md",
    "Count rows migrate": "mem_deadbeef-0000-4000-8000-00000000abcd.md",
    "several words query": "web_search.md",
    "路径不存在": "read_file.md",
    "clean_survey": "clean_survey.md",
}


def test_every_file_is_found_by_its_words_and_read(memory: Runebook) -> None:
    for words, name in FOUND.items():
        found = memory.find(FindRequest(words, limit=3))
        uris = [hit.uri for hit in (*found.memories, *found.skills)]
        assert [uri.rpartition("/")[2] for uri in uris[:1]] == [name], words
        assert memory.read(ReadRequest(uris[0])).content


def test_opening_and_searching_rewrites_nothing(home: Path) -> None:
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in home.rglob("[!.]*.md")}
    with open_memory(words_only(home)) as memory:
        memory.find(FindRequest("双活部署 coffee"))
        memory.tree(TreeRequest())
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in home.rglob("[!.]*.md")} == before


def test_an_edit_by_uri_patches_the_text_and_keeps_what_nobody_declared(memory: Runebook) -> None:
    edit(memory, PAYMENTS, content=[{"search": "PostgreSQL", "replace": "TiDB"}])
    text = memory.read(ReadRequest(PAYMENTS)).content
    assert text.startswith("支付系统采用双活部署,数据库是 TiDB。")
    assert trailer(memory, PAYMENTS)["owner_team"] == "结算组"
    assert trailer(memory, PAYMENTS)["memory_type"] == "entities"
    assert join(*split(text)[:2]) == text


def test_a_one_line_trailer_becomes_ours_with_the_first_edit(memory: Runebook) -> None:
    edit(memory, TERN, content=[{"search": "2.1 m", "replace": "2.4 m"}])
    after = split(memory.read(ReadRequest(TERN)).content)
    assert after.body == "Tern is the vessel used for coastal sampling; draught 2.4 m."
    assert (after.trailer or {})["entity_name"] == "Tern (vessel)"
    assert "content" not in (after.trailer or {})


def test_fields_nested_in_a_trailer_are_fields(memory: Runebook) -> None:
    edit(memory, CASE, solution="写入 BOM 头")
    assert trailer(memory, CASE)["solution"] == "写入 BOM 头"
    assert trailer(memory, CASE)["case_name"] == "导出中文乱码 → 写入 UTF-8 BOM"
    assert "fields" not in trailer(memory, CASE)


@pytest.mark.parametrize(
    ("memory_type", "fields", "uri"),
    [
        ("entities", {"entity_name": "支付系统", "content": "改用 TiDB。"}, PAYMENTS),
        ("entities", {"entity_name": "tern (Vessel)", "content": "Tern was sold."}, TERN),
        ("cases", {"case_name": "导出中文乱码 → 写入 UTF-8 BOM", "content": "已解决。"}, CASE),
        ("preferences", {"topic": "会议时间", "content": "改到下午。"}, f"{USER}/preferences/会议时间.md"),
        ("profile", {"content": "Moved to Tromsø."}, f"{USER}/profile.md"),
    ],
)
def test_a_write_with_the_key_of_an_older_file_updates_that_file(
    memory: Runebook, memory_type: str, fields: dict[str, Any], uri: str
) -> None:
    memory.find(FindRequest("x"))  # the folder has been taken in
    receipt = memory.commit(CommitRequest(memory_type=memory_type, fields=fields))
    assert [(result.uri, result.action) for result in receipt.results] == [(uri, Action.UPDATED)]
    assert fields["content"] in memory.read(ReadRequest(uri)).content


def test_numbers_kept_as_text_or_in_the_rendered_text_alone_are_added_to(memory: Runebook) -> None:
    edit(memory, SEARCH, total_calls=1, success_count=1)
    assert trailer(memory, SEARCH)["total_calls"] == 101
    assert trailer(memory, SEARCH)["last_used_by"] == "indexer"
    assert "success_rate" not in trailer(memory, SEARCH)
    assert "Based on 101 historical calls:" in memory.read(ReadRequest(SEARCH)).content
    uri = f"{AGENT}/tools/read_file.md"
    edit(memory, uri, total_calls=10, success_count=7)
    counted = "Based on 50 historical calls:\n- Success rate: 90.0% (45 successful, 2 failed)"
    assert counted in memory.read(ReadRequest(uri)).content
    assert trailer(memory, uri)["tool_name"] == "read_file"
    skill = f"{AGENT}/skills/clean_survey.md"
    edit(memory, skill, total_executions=1)
    assert "I rewrote this text myself." in memory.read(ReadRequest(skill)).content


@pytest.mark.parametrize(
    ("memory_type", "name", "fields"),
    [
        ("entities", "灯塔项目", {"entity_name": "灯塔项目"}),
        ("events", "2026-04-02_Launch", {"event_time": "2026-04-02", "event_name": "Launch"}),
    ],
)
def test_a_trailer_without_key_leaves_the_file_name_as_key(
    home: Path, memory_type: str, name: str, fields: dict[str, Any]
) -> None:
    path = home / f"user/default/memories/{memory_type}/{name}.md"
    path.write_text('old text\n\n<!-- MEMORY_FIELDS {"abstract": "old"} -->', encoding="utf-8")
    uri = f"{USER}/{memory_type}/{name}.md"
    with open_memory(words_only(home)) as memory:
        memory.find(FindRequest("x"))
        edit(memory, uri, content=[{"search": "old", "replace": "newer"}])
        receipt = memory.commit(CommitRequest(memory_type=memory_type, fields={**fields, "content": "newest 最新"}))
        assert [(result.uri, result.action) for result in receipt.results] == [(uri, Action.UPDATED)]
        assert len(list(path.parent.glob("[!.]*.md"))) == 4
