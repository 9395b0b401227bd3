"""Imports that somebody forged, damaged or interrupted: the rest comes in, nothing twice or elsewhere."""

from __future__ import annotations

import json
import os
import signal
import time
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from memory_core.core.errors import InvalidInput, NotFound, StorageFailed
from memory_core.core.memory.results import Action, as_json
from memory_core.features.imports import import_run, markdown, sources
from memory_core.features.imports.sources import elements, lines, open_source
from memory_core.runebook import Runebook
from tests.features.imports import foreign
from tests.features.imports.foreign import brought, write, write_lines
from tests.features.moving import opened
from tests.kept import kept_files
from tests.killing import killed
from tests.stores import edited

ROOT = Path(__file__).parents[3]


def values(path: Path) -> list[object]:
    with open_source(path) as source:
        return [
            found.value if found.problem is None else f"! {found.place}"
            for found in elements(source, source.entries[0])
        ]


@pytest.mark.parametrize("chunk_bytes", [1, 7, 4_096])
def test_elements_are_cut_apart_whatever_stands_in_their_texts_and_wherever_a_read_ends(
    chunk_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_CHUNK_BYTES", chunk_bytes)
    told = [{"a": 'quote " bracket ] brace } comma , slash \\'}, [1, [2]], "，。]", {"深": {"b": [{}]}}, 7, None]
    path = write(tmp_path / "a.json", json.dumps(told, ensure_ascii=False))
    assert values(path) == told
    assert values(write(tmp_path / "b.json", " \n [ ] ")) == []
    damaged = values(write(tmp_path / "c.json", '[{"a": 1}, {"b": oops}, {"c": 3}, {"d": "cut sho'))
    assert damaged == [{"a": 1}, "! c.json[1]", {"c": 3}, "! c.json[3]"]


def test_what_is_too_large_or_nested_too_deeply_costs_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "ELEMENT_LIMIT_BYTES", 400_000)
    deep, large = "[" * 150_000 + "]" * 150_000, json.dumps("x" * 500_000)
    path = write(tmp_path / "a.json", f'[{{"a": 1}}, {deep}, {large}, {{"b": 2}}]')
    assert values(path) == [{"a": 1}, "! a.json[1]", "! a.json[2]", {"b": 2}]
    path = write(tmp_path / "a.jsonl", f'{{"a": 1}}\n{deep}\n{large}\nNaN\n{{"b": 2}}\n')
    with open_source(path) as source:
        found = list(lines(source, source.entries[0]))
    assert [each.problem is None for each in found] == [True, False, False, False, True]
    assert found[-1].place == "a.jsonl:5"


def test_a_very_long_line_costs_no_more_memory_than_the_longest_that_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with path.open("wb") as stream:
        stream.write(b'{"a": 1}\n')
        stream.truncate(12 * sources.ELEMENT_LIMIT_BYTES)  # one line of nothing, which takes no room on the disk
        stream.seek(0, 2)
        stream.write(b'\n{"b": 2}\n')
    tracemalloc.start()
    try:
        with open_source(path) as source:
            found = [each.value for each in lines(source, source.entries[0])]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == [{"a": 1}, None, {"b": 2}]
    assert peak < 4 * sources.ELEMENT_LIMIT_BYTES


def test_an_archive_that_unpacks_to_far_more_than_it_holds_is_not_unpacked(memory: Runebook, tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", b"[" + b" " * 40_000_000 + b"]")
        archive.writestr("notes.md", "## Known Facts\n- 没事\n")
    done = brought(memory, path)
    assert done.format == "markdown"
    assert [as_json(left) for left in done.left_out] == [
        {"place": "conversations.json", "reason": "it unpacks to far more than it holds"}
    ]


def test_names_in_an_archive_and_links_in_a_folder_lead_nowhere(memory: Runebook, tmp_path: Path) -> None:
    secret = write(tmp_path / "elsewhere" / "secret.md", "## Known Facts\n- a secret of another folder\n")
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../../../../escape.md", "## Known Facts\n- outside\n")
        archive.writestr("/etc/x.md", "# 标题\n正文\n")
    before = {found for found in tmp_path.rglob("*") if "home" not in found.parts}
    assert brought(memory, path).total(Action.CREATED) == 2
    folder = write(tmp_path / "folder" / "own.md", "## Known Facts\n- mine\n").parent
    (folder / "link.md").symlink_to(secret)
    (folder / "sub").symlink_to(secret.parent, target_is_directory=True)
    done = brought(memory, folder)
    assert [(left.place, left.reason) for left in done.left_out] == [("link.md", "it is a link")]
    assert b"a secret of another folder" not in b"".join(kept_files(tmp_path / "home").values())
    grown = {found for found in tmp_path.rglob("*") if "home" not in found.parts and "folder" not in found.parts}
    assert grown == before
    for name in kept_files(tmp_path / "home"):
        assert name.startswith("user/default/memories/")


def test_rules_that_begin_very_often_and_never_end_cost_seconds_at_most(memory: Runebook, tmp_path: Path) -> None:
    begin, end = "<!-- runebook:begin -->", "<!-- runebook:end -->"
    ours = f"{begin}\nNobody's memory.\n{end}\n"
    path = write(tmp_path / "a.md", f"## Known Facts\n- 没事\n\n{ours}{begin * 20_000}\n")
    started = time.process_time()
    done = brought(memory, path, dry_run=True)
    assert time.process_time() - started < 10
    assert done.total(Action.CREATED) == 1  # what never ends is too long for a memory


def test_aliases_in_front_matter_make_no_more_of_it_than_stands_there(memory: Runebook, tmp_path: Path) -> None:
    names = "abcdefghij"
    lists = [f"{name}: &{name} [{','.join([f'*{names[at - 1]}' if at else 'x'] * 9)}]" for at, name in enumerate(names)]
    front = "\n".join([*lists, "created: *j", "title: *j", "tags: [kept, *j]"])
    done = brought(memory, write(tmp_path / "a.md", f"---\n{front}\n---\nA text.\n"))
    assert done.counts["notes"][Action.CREATED] == 1
    assert not done.left_out


@pytest.mark.parametrize("empty", ["", "\n", "---\ntitle: x\n---\n"])
def test_a_markdown_file_without_a_text_brings_nothing_and_the_others_come_in(
    empty: str, memory: Runebook, tmp_path: Path
) -> None:
    write(tmp_path / "folder" / "a.md", empty)
    write(tmp_path / "folder" / "b.md", "# Title\nA text.\n")
    assert brought(memory, tmp_path / "folder").total(Action.CREATED) == 1


def test_a_very_long_heading_is_not_held_once_for_each_section() -> None:
    lines = ["# " + "a" * 200_000, *["## s", "x"] * 300]
    assert max(len(section.key()) for section in markdown._sections(lines, 0)) < 1_000


def test_a_json_file_that_is_read_whole_is_no_larger_than_an_element(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "ELEMENT_LIMIT_BYTES", 100)
    with open_source(write(tmp_path / "a.json", [{}] * 100)) as source, pytest.raises(InvalidInput, match="too large"):
        sources.whole(source, source.entries[0])


@pytest.mark.parametrize("folder", ["/home/anna/" + "x" * 5_000, "/home/anna/a\0b"])
def test_a_folder_whose_name_no_system_takes_is_one_of_another_machine(
    memory: Runebook, tmp_path: Path, folder: str
) -> None:
    message = {"role": "user", "content": "我们去大阪。"}
    line = {"type": "user", "uuid": "u1", "parentUuid": None, "sessionId": "s", "cwd": folder, "message": message}
    assert brought(memory, write_lines(tmp_path / "t.jsonl", [line])).total(Action.CREATED) > 0


def test_a_large_conversation_of_chatgpt_is_read_once(memory: Runebook, tmp_path: Path) -> None:
    nodes = {f"a{n}": {"message": {"a": 1}, "parent": f"a{n - 1}"} for n in range(16_000)}
    told = {"conversation_id": "c", "mapping": nodes, "current_node": "a15999"}
    path = write(tmp_path / "conversations.json", [told])
    started = time.process_time()
    assert brought(memory, path, dry_run=True).skipped["messages of no known author"] == len(nodes)
    assert time.process_time() - started < 3


def test_a_time_of_400_digits_ends_no_import_of_chatgpt(memory: Runebook, tmp_path: Path) -> None:
    said = {"author": {"role": "user"}, "content": {"parts": ["从哪里来？"]}, "create_time": 10**400}
    told = [{"id": "c", "mapping": {"a": {"message": said, "parent": None}}}]
    done = brought(memory, write(tmp_path / "conversations.json", told))
    assert [left.place for left in done.left_out] == ["conversations.json[0], message a"]


def test_a_damaged_archive_and_a_path_that_is_not_there_are_refused_in_words(memory: Runebook, tmp_path: Path) -> None:
    whole = tmp_path / "a.zip"
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("conversations.json", "[]")
    (tmp_path / "cut.zip").write_bytes(whole.read_bytes()[:40])
    with pytest.raises(InvalidInput, match="damaged or incomplete"):
        brought(memory, tmp_path / "cut.zip")
    with pytest.raises(NotFound):
        brought(memory, tmp_path / "nothing.zip")


def test_a_store_whose_json_is_broken_points_to_the_copy_beside_it(memory: Runebook, tmp_path: Path) -> None:
    folder = foreign.vibeworker_v2(tmp_path / "v2")
    path = folder / "memory.json"
    write(folder / "memory.json.bak", path.read_text("utf-8"))
    path.write_text(path.read_text("utf-8")[:-40], "utf-8")
    done = brought(memory, folder)
    assert done.counts["daily_logs"][Action.CREATED] == 2  # the logs are sound
    assert "memory.json.bak" in done.left_out[0].reason
    assert "line" in done.left_out[0].reason


def test_entries_of_a_day_whose_log_is_damaged_here_are_left_out_alone(memory: Runebook, tmp_path: Path) -> None:
    damaged = tmp_path / "home/user/default/logs/2026-02-15.md"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"\xff\n")
    done = brought(memory, foreign.vibeworker_v1(tmp_path / "v1"))
    assert "UTF-8" in done.left_out[0].reason
    assert done.counts["preferences"][Action.CREATED] > 0
    assert damaged.read_bytes() == b"\xff\n"


def test_texts_that_no_file_can_hold_are_mended(memory: Runebook, tmp_path: Path) -> None:
    memories = '[{"id": "1", "category": "facts", "content": "a\\u0000b \\ud83d c"}]'
    write(tmp_path / "memory.json", f'{{"version": 2, "memories": {memories}}}')
    assert brought(memory, tmp_path / "memory.json").counts["facts"][Action.CREATED] == 1
    stored = b"".join(kept_files(tmp_path / "home").values())
    assert "a�b � c".encode() in stored
    assert b"\x00" not in stored


def test_a_half_surrogate_pair_that_is_no_escape_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'[{"a": "b \xed\xa0\xbd c"}]')
    assert values(path) == [{"a": "b � c"}]


def test_a_number_of_400_digits_is_a_number(memory: Runebook, tmp_path: Path) -> None:
    item = f'{{"id": "1", "category": "facts", "content": "Lives in Leeds.", "salience": 1{"0" * 400}}}'
    write(tmp_path / "memory.json", f'{{"version": 2, "memories": [{item}]}}')
    assert brought(memory, tmp_path / "memory.json").counts["facts"][Action.CREATED] == 1


@pytest.mark.parametrize("number", ["NaN", "1e999"])
def test_what_is_no_number_of_json_is_named(tmp_path: Path, number: str) -> None:
    path = write(tmp_path / "a.json", f'[{{"a": {number}}}]')
    with open_source(path) as source:
        (found,) = elements(source, source.entries[0])
    assert found.problem == f"is not JSON: {number} is not a JSON number"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="nothing is unreadable here")
def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    write(tmp_path / "notes" / "a.md", "# A")
    closed = tmp_path / "notes" / "closed"
    closed.mkdir(mode=0)
    try:
        with open_source(tmp_path / "notes") as source:
            assert [each.place for each in source.refused] == ["closed"]
        with pytest.raises(StorageFailed), open_source(closed):
            pass
    finally:
        closed.chmod(0o700)


def test_an_item_over_the_limit_is_left_out_and_named(memory: Runebook, tmp_path: Path) -> None:
    large = "长" * 100_000
    done = brought(memory, write(tmp_path / "memory.md", f"## Known Facts\n- small\n- {large}\n"))
    assert done.counts["facts"][Action.CREATED] == 1
    assert [left.place for left in done.left_out] == ["memory.md:3"]
    assert "limit" in done.left_out[0].reason


def test_an_entry_of_memory_md_that_is_left_out_is_named_by_how_it_begins(memory: Runebook, tmp_path: Path) -> None:
    large = "长" * 100_000
    done = brought(memory, write(tmp_path / "MEMORY.md", f"# Mine\n\n## Facts\n- [2026-02-15] {large}\n"))
    assert [left.place for left in done.left_out] == [f"MEMORY.md: {large[:60]}"]


def test_an_entry_of_a_day_and_a_summary_over_the_limit_are_left_out_and_named(tmp_path: Path) -> None:
    large = "长" * 2_000
    folder = tmp_path / "v2"
    write(folder / "memory.json", {"version": 2, "rolling_summary": large, "memories": []})
    entries_of_day = [{"time": "10:00", "content": said} for said in ("small", large)]
    write(folder / "logs" / "2026-02-21.json", {"date": "2026-02-21", "entries": entries_of_day})
    with opened(tmp_path / "home", limits={"content_bytes": 4_096}) as memory:
        done = brought(memory, folder)
    assert done.counts["daily_logs"][Action.CREATED] == 1
    assert {left.place: left.reason for left in done.left_out} == {
        "logs/2026-02-21.json: entries[1]": "the entry has more than 4,096 bytes",
        "memory.json: rolling_summary": "the summary has more than 4,096 bytes",
    }
    assert "rolling_summary" not in done.counts


_IMPORT = """
from memory_core.features.imports import import_run
from tests.features.imports.foreign import brought
import_run._BATCH_ITEMS = 3
brought(memory, Path(given[0]))
"""


@pytest.mark.parametrize(("step", "times"), [("planned", 2), ("acknowledged", 2), ("renamed", 1)])
def test_an_import_killed_in_the_middle_is_completed_by_the_next_and_nothing_comes_twice(
    step: str, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = foreign.vibeworker_v2(tmp_path / "v2")
    facts = [{"id": f"f{n}", "category": "facts", "content": f"第 {n} 件事 is true"} for n in range(6)]
    write(folder / "memory.json", {"version": 2, "rolling_summary": "总结", "memories": facts})
    monkeypatch.setattr(import_run, "_BATCH_ITEMS", 3)
    with opened(tmp_path / "whole") as memory:
        assert brought(memory, folder).counts["facts"][Action.CREATED] == len(facts)
    home = tmp_path / "home"
    stopped = killed(home, step, times, _IMPORT, folder)
    assert stopped.returncode == -signal.SIGKILL, stopped.stderr.decode()
    with opened(home) as memory:
        done = brought(memory, folder)
        assert done.changed
        assert done.total(Action.UNCHANGED) > 0
        assert kept_files(home).keys() == kept_files(tmp_path / "whole").keys()
        log = home / "user" / "default" / "logs" / "2026-02-21.md"
        assert log.read_text("utf-8").count("完成了项目文档") == 1
        assert not brought(memory, folder).changed


def test_receipts_that_are_gone_cost_nothing_where_memories_still_say_where_they_come_from(
    memory: Runebook, tmp_path: Path
) -> None:
    folder = foreign.vibeworker_v2(tmp_path / "v2")
    brought(memory, folder)
    uri = "viking://user/default/memories/tasks/Send the offer.md"
    edited(memory, uri, {"patches": {"content": "Send it by post"}})
    kept = kept_files(tmp_path / "home")
    memory.close()
    for found in (tmp_path / "home" / ".state").glob("*.sqlite3*"):
        found.unlink()
    with opened(tmp_path / "home") as anew:
        anew.store.adopt()
        brought(anew, folder)
        now = kept_files(tmp_path / "home")
    assert now["user/default/memories/tasks/Send the offer.md"] == kept["user/default/memories/tasks/Send the offer.md"]
    assert {name for name in now if "memories" in name} == {name for name in kept if "memories" in name}
    assert now["user/default/logs/2026-02-21.md"] == kept["user/default/logs/2026-02-21.md"]


def test_two_items_of_one_name_in_one_file_are_both_kept(memory: Runebook, tmp_path: Path) -> None:
    same = [{"id": str(n), "category": "facts", "content": f"Server A has memory\n\n{n} GB"} for n in (16, 32)]
    twice = [*same, dict(same[0])]
    done = brought(memory, write(tmp_path / "memory.json", {"version": 2, "memories": twice}))
    assert done.counts["facts"][Action.CREATED] == 2
    assert done.skipped["items that the source holds twice"] == 1
    names = [name for name in kept_files(tmp_path / "home") if "/facts/Server" in name]
    assert sorted(names) == [
        "user/default/memories/facts/Server A has memory (2).md",
        "user/default/memories/facts/Server A has memory.md",
    ]


def test_what_would_make_the_log_of_a_day_too_long_is_left_out_and_the_rest_comes(
    memory: Runebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory_core.features.daily_logs._LOG_CHARS", 200)
    folder = tmp_path / "v2"
    write(folder / "memory.json", {"version": 2, "memories": []})
    told = [("09:00", "a long story " * 20), ("10:00", "small")]
    entries_of_day = [{"time": time, "content": said} for time, said in told]
    write(folder / "logs" / "2026-02-21.json", {"date": "2026-02-21", "entries": entries_of_day})
    done = brought(memory, folder)
    assert done.counts["daily_logs"][Action.CREATED] == 1
    assert [left.place for left in done.left_out] == ["logs/2026-02-21.json: entries[0]"]
