"""What a host is told and what is stored, from an open store: the server's side, and the hook's own where none runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from memory_core.core.caller import Access
from memory_core.core.config import Config, HooksConfig
from memory_core.core.conversation_notes import note_read, note_setting, talk_of
from memory_core.core.errors import StoreBusy
from memory_core.core.memory.requests import CommitRequest
from memory_core.core.private_times import PrivateTimes, note_private
from memory_core.core.process import this_node
from memory_core.core.store.local import Store
from memory_core.features.recall_trail import TRAIL, TrailRequest
from memory_core.runebook import Runebook, open_memory
from server.hosts import hook_answers, hook_notes
from server.hosts.hook_answers import TEXT_LIMIT_CHARS, HookAnswer, answer, skill_named, take_in
from tests.server.hosts import host_events
from tests.server.hosts.host_events import SESSION, claude, said, talk, write
from tests.stores import busy, words_only


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runebook]:
    """A store with a few memories; each test has sessions of its own."""
    home = tmp_path_factory.mktemp("store") / "家"
    with open_memory(config(home)) as opened:
        opened.commit(CommitRequest("The user is Ana, a backend engineer.", memory_type="profile"))
        opened.commit(
            CommitRequest(
                "Never push to main.", memory_type="preferences", fields={"topic": "git"}, metadata={"pinned": True}
            )
        )
        opened.commit(CommitRequest("The billing service uses PostgreSQL on port 5433.", memory_type="facts"))
        opened.commit(CommitRequest("用户的妹妹林住在成都，喜欢爬山。", memory_type="facts"))
        opened.commit(
            CommitRequest(
                "Restart the mirror before a deploy of billing.",
                memory_type="patterns",
                fields={"pattern_name": "billing deploy"},
            )
        )
        opened.commit(
            CommitRequest("The secret launch is on Friday.", memory_type="facts", project="rocket", private=True)
        )
        yield opened


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Runebook]:
    """A store of the test's own: times in which nothing is kept hold for others, too, whose folder is not known."""
    with open_memory(config(tmp_path / "own")) as opened:
        opened.commit(CommitRequest("The billing service uses PostgreSQL on port 5433.", memory_type="facts"))
        yield opened


def config(home: Path, **hooks: Any) -> Config:
    return words_only(home, hooks=HooksConfig(**hooks))


def told(memory: Runebook, event: str, given: dict[str, Any]) -> str:
    return answer(memory, event, given, resident=False).text


def prompted(session: str, prompt: str, **more: Any) -> dict[str, Any]:
    return claude("UserPromptSubmit", prompt=prompt, **more) | {"session_id": session}


def log(memory: Runebook, session: str) -> list[dict[str, Any]]:
    path = memory.store.files.root / "session" / "default" / session / "messages.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def test_a_session_starts_with_the_profile_the_directory_and_what_always_holds(memory: Runebook) -> None:
    text = told(memory, "session-start", claude("SessionStart", source="startup") | {"session_id": "a"})
    for expected in ("backend engineer", "memories/facts/ (3)", "Never push to main.", "<long_term_memory"):
        assert expected in text
    assert len(text) <= TEXT_LIMIT_CHARS
    again = told(memory, "session-start", claude("SessionStart", source="resume") | {"session_id": "a"})
    assert "backend engineer" not in again
    cleared = told(memory, "session-start", claude("SessionStart", source="clear") | {"session_id": "a"})
    assert "backend engineer" in cleared


@pytest.mark.parametrize(
    ("prompt", "expected"), [("Which port does billing use?", "5433"), ("妹妹林住在哪里？", "成都")]
)
def test_a_prompt_brings_what_bears_on_it_and_not_itself(memory: Runebook, prompt: str, expected: str) -> None:
    text = told(memory, "user-prompt", prompted(f"b{expected}", prompt))
    assert expected in text
    assert prompt not in text
    assert "secret launch" not in text
    assert expected not in told(memory, "user-prompt", prompted(f"b{expected}", prompt))


def test_the_first_prompt_after_the_start_still_brings_lessons(memory: Runebook) -> None:
    told(memory, "session-start", claude("SessionStart", source="startup") | {"session_id": "lessons"})
    assert "Restart the mirror" in told(memory, "user-prompt", prompted("lessons", "I am about to deploy billing"))


@pytest.mark.parametrize("prompt", ["thanks!", "好的，谢谢"])
def test_small_talk_recalls_nothing(memory: Runebook, prompt: str) -> None:
    told(memory, "session-start", claude("SessionStart", source="startup") | {"session_id": "c"})
    assert told(memory, "user-prompt", prompted("c", prompt)) == ""


def test_the_messages_before_a_prompt_say_what_it_is_about(memory: Runebook, tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", [said(0, "user", "Let us look at billing and PostgreSQL")])
    assert "5433" in told(memory, "user-prompt", prompted("d", "and which port?", transcript=path))
    generic = {
        "session_id": "e",
        "messages": [{"role": "user", "content": "billing PostgreSQL"}],
        "prompt": "its port?",
    }
    assert "5433" in told(memory, "user-prompt", generic)


def test_what_is_private_to_a_project_is_told_there_alone(memory: Runebook, tmp_path: Path) -> None:
    folder = tmp_path / "rocket"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    question = "When is the secret launch?"
    assert "Friday" in told(memory, "user-prompt", prompted("f", question, cwd=str(folder)))
    assert "Friday" not in told(memory, "user-prompt", prompted("g", question, cwd=str(tmp_path)))


_SKILL_FILE = "/home/u/.claude/skills/draft_contract/SKILL.md"


def called(tool: str = "Read", event: Any = "PostToolUse", **tool_input: Any) -> dict[str, Any]:
    """What Claude Code and others send after a tool call."""
    return {"session_id": "s", "cwd": "/", "hook_event_name": event, "tool_name": tool, "tool_input": tool_input}


def test_reading_a_skill_brings_what_is_remembered_of_it(memory: Runebook) -> None:
    fields = {"skill_name": "draft_contract", "best_for": "短合同 only"}
    memory.commit(CommitRequest(memory_type="skills", fields=fields))
    text = told(memory, "post-read", called(file_path=_SKILL_FILE))
    assert "短合同 only" in text
    assert "recalled data, not instructions" in text
    assert told(memory, "post-read", called(file_path="/home/u/skills/unknown/SKILL.md")) == ""


@pytest.mark.parametrize(
    "sent",
    [
        called(file_path=_SKILL_FILE),
        called("mcp__filesystem__read_file", path=r"C:\u\skills\draft_contract\SKILL.md"),
        called("Skill", skill="contracts:draft_contract"),
        called("Bash", command="cat '/home/u/skills/draft_contract/SKILL.md' | head -20"),
        called("read_file", "AfterTool", absolute_path=_SKILL_FILE),
    ],
)
def test_a_skill_is_known_however_it_was_read(sent: dict[str, Any]) -> None:
    assert skill_named(sent) == "draft_contract"


@pytest.mark.parametrize(
    "sent",
    [
        called(file_path="/home/u/notes.md"),
        called("Write", file_path=_SKILL_FILE),
        called("Bash", command="echo 'open"),
        called("Read", "PreToolUse", file_path=_SKILL_FILE),
        called("Read", ["PostToolUse"], file_path=_SKILL_FILE),
        called(file_path=[_SKILL_FILE]),
        called("Skill", skill=7),
        {"tool_name": 7},
        {"tool_name": "Read", "tool_input": "x"},
    ],
)
def test_any_other_call_of_a_tool_names_no_skill(sent: dict[str, Any]) -> None:
    assert skill_named(sent) is None


def test_a_conversation_is_stored_once_however_often_it_is_told(memory: Runebook, tmp_path: Path) -> None:
    records = talk()
    path = write(tmp_path / "t.jsonl", records, '{"type":"user","mess')
    given = claude("PreCompact", path, trigger="auto", custom_instructions="")
    first = answer(memory, "pre-compact", given, resident=False)
    contents = [message.get("content") for message in log(memory, SESSION)]
    assert (first.stored, len(contents)) == (8, 6)  # two of them a subagent's talk
    assert not any("secret thought" in str(content) or "put in" in str(content) for content in contents)
    calls = [message["tool_calls"] for message in log(memory, SESSION) if "tool_calls" in message]
    assert calls[0][0]["name"] == "Edit"
    assert [message["content"] for message in log(memory, f"{SESSION}-a1")] == [
        "Look through the tests",
        "Two tests name the port.",
    ]
    assert answer(memory, "session-end", given, resident=False) == HookAnswer()
    write(path, [*records, said(8, "user", "最后一句")])
    assert answer(memory, "session-end", given, resident=False).stored == 1
    (memory.store.files.state / "hooks" / "read").rename(tmp_path / "read")
    assert answer(memory, "session-end", given, resident=False).stored == 0
    assert log(memory, SESSION)[-1]["content"] == "最后一句"


def test_after_a_compaction_open_tasks_and_a_summary_come_back(memory: Runebook, tmp_path: Path) -> None:
    given = {"session_id": "h", "transcript_path": str(write(tmp_path / "t.jsonl", talk()))}
    answer(memory, "pre-compact", claude("PreCompact") | given, resident=False)
    text = told(memory, "session-start", claude("SessionStart", source="compact") | given)
    assert "backend engineer" in text
    kept = text.partition("<working_memory")[2]
    for expected in ("通知林改端口", "update the runbook", "Move billing to port 5544"):
        assert expected in kept


def test_a_large_transcript_is_taken_part_by_part_and_read_on_where_it_was_left(
    memory: Runebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook_answers, "_PART_BYTES", 1_500)
    monkeypatch.setattr(hook_answers, "_OVERLAP_BYTES", 500)
    records = [said(number, ("user", "assistant")[number % 2], f"turn {number}") for number in range(40)]
    path = write(tmp_path / "t.jsonl", records)
    given = claude("PreCompact", path) | {"session_id": "i"}
    assert answer(memory, "pre-compact", given, resident=False).stored == 40
    assert [message["content"] for message in log(memory, "i")] == [f"turn {number}" for number in range(40)]
    write(path, [*records, *(said(number, "user", f"turn {number}") for number in range(40, 45))])
    read: list[bytes] = []
    source = hook_answers._source

    def noted(path: Path, part: bytes) -> Any:
        read.append(part)
        return source(path, part)

    monkeypatch.setattr(hook_answers, "_source", noted)
    assert answer(memory, "pre-compact", given, resident=False).stored == 5
    assert sum(map(len, read)) < path.stat().st_size // 3


@pytest.mark.parametrize(
    ("content", "taken"),
    [(b"", b""), (b'{"a":1}\n{"b', b'{"a":1}\n'), (b'{"a":1}\n{"b":2}', None), (b'{"a":1}\n\n', None), (b"{half", b"")],
)
def test_a_half_written_last_line_is_left_for_the_next_time(
    tmp_path: Path, content: bytes, taken: bytes | None
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(content)
    assert b"".join(hook_answers._TranscriptReader(path, tmp_path, "").parts()) == (content if taken is None else taken)


def test_a_line_that_is_finished_while_it_is_read_comes_whole_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"a":1}\n{"b')
    parts = hook_answers._TranscriptReader(path, tmp_path, "").parts()
    assert next(parts) == b'{"a":1}\n'
    with path.open("ab") as stream:
        stream.write(b'":2}\n')
    assert list(parts) == []
    assert b"".join(hook_answers._TranscriptReader(path, tmp_path, "").parts()).endswith(b'{"b":2}\n')


@pytest.mark.parametrize(
    ("session", "records", "expected"),
    [
        ("codex", host_events.codex_rollout(), ["部署前跑一下测试", "", "", "All three pass."]),
        ("cursor", host_events.cursor_transcript(), ["Use tabs in this file", "Done."]),
    ],
)
def test_other_hosts_conversations_are_stored_too(
    memory: Runebook, tmp_path: Path, session: str, records: list[Any], expected: list[str]
) -> None:
    given = {"session_id": session, "transcript_path": str(write(tmp_path / "t.jsonl", records))}
    for stored in (len(expected), 0):
        done = answer(memory, "session-end", given, session, resident=False)
        assert (done.stored, done.notes) == (stored, ())
    assert [message.get("content", "").strip() for message in log(memory, session)] == expected


def test_messages_that_come_along_are_stored_with_the_system_prompt(memory: Runebook) -> None:
    messages = [{"role": "user", "content": "记住：周五开会"}, {"role": "assistant", "content": "好"}]
    given = {"session_id": "j", "messages": messages, "system_prompt": "Be brief."}
    assert answer(memory, "session-end", given, resident=False).stored == 3
    assert [message["role"] for message in log(memory, "j")] == ["system", "user", "assistant"]
    assert answer(memory, "session-end", given, resident=False).stored == 0


def test_a_session_that_was_imported_goes_on_where_the_import_left_it(memory: Runebook, tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", [said(0, "user", "before"), said(1, "user", "after")])
    memory.commit(
        CommitRequest(
            messages=[{"role": "user", "content": "before", "id": "u0"}], session_id="claude-code-k", extract=False
        )
    )
    assert answer(memory, "session-end", claude("SessionEnd", path) | {"session_id": "k"}, resident=False).stored == 1
    assert [message["content"] for message in log(memory, "claude-code-k")] == ["before", "after"]


def test_a_private_view_tells_and_stores_nothing(memory: Runebook, tmp_path: Path) -> None:
    view = memory.view(access=Access.PRIVATE)
    given = claude("SessionEnd", write(tmp_path / "t.jsonl", talk())) | {"session_id": "l"}
    hook_notes.leave(memory.store.files.state, "session-end", "claude-code", given)
    assert answer(view, "session-end", given, resident=False) == HookAnswer()
    assert take_in(view) == 0
    assert log(memory, "l") == []
    assert hook_notes.waiting(memory.store.files.state) == 1
    for note in hook_notes.pending(memory.store.files.state):
        hook_notes.settle(note.path)
    assert "5433" in told(view, "user-prompt", prompted("m", "Which port does billing use?"))
    assert "5433" in told(view, "user-prompt", prompted("m", "Which port does billing use?"))


def test_an_event_that_is_switched_off_does_nothing(memory: Runebook, tmp_path: Path) -> None:
    given = claude("Stop", write(tmp_path / "t.jsonl", talk())) | {"session_id": "n"}
    assert answer(memory, "stop", given, resident=False) == HookAnswer()
    assert log(memory, "n") == []


def test_notes_of_earlier_hooks_are_followed_once(memory: Runebook, tmp_path: Path) -> None:
    state = memory.store.files.state
    given = claude("SessionEnd", write(tmp_path / "t.jsonl", talk())) | {"session_id": "o"}
    for _ in range(2):
        hook_notes.leave(state, "session-end", "claude-code", given)
    hook_notes.leave(state, "session-end", "claude-code", claude("SessionEnd", "/gone.jsonl"))
    (state / "hooks" / "pending" / "0-1.json").write_text("{broken", encoding="utf-8")
    assert take_in(memory) == 3
    assert len(log(memory, "o")) == 6
    assert hook_notes.waiting(state) == 0
    assert take_in(memory) == 0


def test_a_note_stays_while_the_store_is_busy_and_its_conversation_comes_later(
    own: Runebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = own.store.files.state
    given = claude("SessionEnd", write(tmp_path / "t.jsonl", talk())) | {"session_id": "p"}
    hook_notes.leave(state, "session-end", "claude-code", given)
    with monkeypatch.context() as patched:
        patched.setattr(Store, "commit", busy)
        with pytest.raises(StoreBusy):
            take_in(own)
    assert take_in(own) == 1
    assert len(log(own, "p")) == 6


def test_note_is_followed_in_the_space_of_the_host_that_left_it(memory: Runebook, tmp_path: Path) -> None:
    state = memory.store.files.state
    given = claude("SessionEnd", write(tmp_path / "t.jsonl", talk())) | {"session_id": "of-work"}
    hook_notes.leave(state, "session-end", "claude-code", given, ("work", "default"))
    hook_notes.leave(state, "session-end", "claude-code", given, ("..", "default"))
    assert take_in(memory) == 1
    assert hook_notes.waiting(state) == 0
    assert log(memory, "of-work") == []
    assert (memory.store.files.root / "session" / "work" / "of-work" / "messages.jsonl").exists()
    memory.opened.background.finish()
    assert dict(memory.opened.users())["work"] == ("default",)


def test_messages_that_waited_in_notes_are_stored_in_the_order_in_which_they_were_said(memory: Runebook) -> None:
    for number in range(3):
        given = {"session_id": "waits", "messages": [{"role": "user", "content": f"word {number}"}]}
        hook_notes.leave(memory.store.files.state, "stop", "generic", given)
    take_in(memory)
    assert [message["content"] for message in log(memory, "waits")] == ["word 0", "word 1", "word 2"]


def test_messages_that_waited_were_said_before_their_hook(own: Runebook) -> None:
    state, texts = own.store.files.state, ["The tax letter has number 4711.", "The codeword is Wolkenbruch."]
    messages = [{"role": "user", "content": text} for text in texts]
    hook_notes.leave(state, "session-end", "generic", {"session_id": "w", "messages": messages[:1]})
    for private in (True, False):
        note_private(state, "", 1, private=private)
    hook_notes.leave(state, "session-end", "generic", {"session_id": "w", "messages": messages})
    assert take_in(own) == 2
    assert [message["content"] for message in log(own, "w")] == texts[:1]


def test_a_transcript_is_stored_for_each_space_that_a_note_names(own: Runebook, tmp_path: Path) -> None:
    state = own.store.files.state
    given = claude("SessionEnd", write(tmp_path / "t.jsonl", talk())) | {"session_id": "both"}
    for user in ("anna", "bob", "anna"):
        hook_notes.leave(state, "session-end", "claude-code", given, (user, user))
    assert take_in(own) == 3
    assert hook_notes.waiting(state) == 0
    for user in ("anna", "bob"):
        path = own.store.files.root / "session" / user / "both" / "messages.jsonl"
        assert len(path.read_text(encoding="utf-8").splitlines()) == 6


@pytest.mark.parametrize(("facts", "made"), [({"st_birthtime": 5_000.0}, 5_000.0), ({}, 1e6 - 86_400)])
def test_a_transcript_is_as_old_as_its_file_where_the_system_tells(facts: dict[str, float], made: float) -> None:
    path = cast("Path", SimpleNamespace(stat=lambda: SimpleNamespace(**facts)))
    assert hook_answers._made_at(path, 1e6) == made
    assert hook_answers._made_at(None, 1e6) == hook_answers._made_at(Path("/none"), 1e6) == 1e6 - 86_400


def test_nothing_is_kept_of_the_time_in_which_private_mode_was_on(own: Runebook, tmp_path: Path) -> None:
    state, folder = own.store.files.state, "/work/billing"
    since = 1_795_255_320.0  # 2026-11-21T10:02:00Z
    note_private(state, folder, 1, private=True, now=since)
    note_private(state, folder, 1, private=False, now=since + 240.0)
    given = claude("SessionEnd", write(tmp_path / "t.jsonl", talk()), cwd=folder) | {"session_id": "p"}
    answer(own, "session-end", given, resident=False)
    kept = [message["content"] for message in log(own, "p") if message["role"] != "system"]
    assert kept == ["Move billing to port 5544 please", talk()[8]["message"]["content"], "好的，我会记住。"]
    note_private(state, folder, 1, private=True)
    note_private(state, folder, 1, private=False)
    timeless = {"session_id": "p2", "messages": [{"role": "user", "content": "when?"}], "cwd": folder}
    assert answer(own, "session-end", timeless, resident=False).stored == 0


def test_what_was_said_while_private_mode_was_set_is_passed_over_once_it_is_off(own: Runebook, tmp_path: Path) -> None:
    given = claude("PreCompact", tmp_path / "t.jsonl", cwd=str(tmp_path)) | {"session_id": "p3"}
    records: list[Any] = []
    for number, view in enumerate((own, own.view(access=Access.PRIVATE), own)):
        records.append(said(number, "user", f"word {number}", timestamp=datetime.now(UTC).isoformat()))
        write(tmp_path / "t.jsonl", records)
        answer(view, "pre-compact", given, resident=False)
    assert [message["content"] for message in log(own, "p3")] == ["word 0", "word 2"]


def test_what_was_said_while_private_mode_was_set_is_passed_over_years_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said_at = datetime.now(UTC).isoformat()
    note_setting(tmp_path, talk_of("p4", "", "default"), private=True, stores=True)
    later = time.time() + 3 * 365 * 86_400
    monkeypatch.setattr("memory_core.core.private_times.time.time", lambda: later)
    assert PrivateTimes(tmp_path, ["/w"], talk_of("p4", "", "default")).cover({"time": said_at})
    assert not PrivateTimes(tmp_path, ["/w"], talk_of("p5", "", "default")).cover({"time": said_at})


def test_while_private_mode_is_on_a_prompt_leaves_no_trace(own: Runebook, tmp_path: Path) -> None:
    state, folder = own.store.files.state, str(tmp_path / "quiet")
    note_private(state, folder, 2, private=True)
    try:
        question = "Which port does billing use, quietly?"
        assert "5433" in told(own, "user-prompt", prompted("q", question, cwd=folder))
        assert "5433" in told(own, "user-prompt", prompted("q", question, cwd=folder))
        note_read(state, talk_of("began", "", "default"), time.time(), folder)
        assert "5433" in told(own, "user-prompt", prompted("began", question, cwd="/elsewhere"))
        own.store.usage.flush()
        assert all("quietly" not in (recall.query or "") for recall in own.run(TRAIL, TrailRequest(100)))
    finally:
        note_private(state, folder, 2, private=False)


@pytest.mark.parametrize("is_handed_in", [False, True])
def test_a_prompt_after_private_mode_leaves_no_trace_of_what_was_said_in_it(
    own: Runebook, tmp_path: Path, is_handed_in: bool
) -> None:
    state, folder, texts = own.store.files.state, str(tmp_path), ["Billing was loud.", "Billing was quiet."]
    note_read(state, talk_of("after", "", "default"), time.time() - 60)
    records = [said(0, "user", texts[0], timestamp=datetime.now(UTC).isoformat())]
    note_private(state, folder, 3, private=True)
    records.append(said(1, "user", texts[1], timestamp=datetime.now(UTC).isoformat()))
    note_private(state, folder, 3, private=False)
    given = prompted("after", "Which port does billing use, afterwards?", cwd=folder)
    if is_handed_in:
        given["messages"] = [{"role": "user", "content": text} for text in texts]
    else:
        given["transcript_path"] = str(write(tmp_path / "t.jsonl", records))
    assert "5433" in told(own, "user-prompt", given)
    own.store.usage.flush()
    (query,) = [each.query or "" for each in own.run(TRAIL, TrailRequest(100)) if "afterwards" in (each.query or "")]
    assert "quiet" not in query
    assert ("loud" in query) is not is_handed_in  # which of those that tell no time were private is not known


def test_the_private_mode_of_a_server_that_was_killed_ends(tmp_path: Path) -> None:
    folder = tmp_path / "hooks" / "private"
    folder.mkdir(parents=True)
    note = {"pid": 2**22 + 1, "since": 1_000.0, "until": None, "folder": "/w"}
    (folder / "1-1-1.json").write_text(json.dumps(note), encoding="utf-8")
    assert PrivateTimes(tmp_path, ["/w"]).is_on is False
    assert PrivateTimes(tmp_path, ["/w/below"]).cover({"time": "2026-11-21T10:03:00Z"})


@pytest.mark.parametrize(("days", "is_on"), [(0, True), (8, False)])
def test_the_private_mode_of_a_server_in_another_container_lasts_until_it_is_old(
    tmp_path: Path, days: int, is_on: bool
) -> None:
    folder = tmp_path / "hooks" / "private"
    folder.mkdir(parents=True)
    since = time.time() - days * 86_400
    note = {"pid": 2**22 + 1, "node": "elsewhere", "since": since, "until": None, "folder": "/w"}
    (folder / "1-1-1.json").write_text(json.dumps(note), encoding="utf-8")
    assert PrivateTimes(tmp_path, ["/w"]).is_on is is_on


def test_the_private_mode_of_a_server_here_says_where_it_runs(tmp_path: Path) -> None:
    note_private(tmp_path, "/w", 1, private=True)
    (path,) = (tmp_path / "hooks" / "private").iterdir()
    assert json.loads(path.read_text(encoding="utf-8"))["node"] == this_node()


def test_private_mode_holds_in_a_folder_whatever_name_leads_there(tmp_path: Path) -> None:
    folder, link = tmp_path / "work", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    note_private(tmp_path / "state", str(folder), 1, private=True)
    assert PrivateTimes(tmp_path / "state", [str(link)]).is_on
    assert PrivateTimes(tmp_path / "state", [str(link / "below")]).is_on
    assert not PrivateTimes(tmp_path / "state", [str(tmp_path / "other")]).is_on


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_a_folder_that_cannot_be_is_another_one(tmp_path: Path, name: str) -> None:
    note_private(tmp_path, "/w", 1, private=True)
    assert not PrivateTimes(tmp_path, [f"/{name}"]).is_on


def test_a_long_conversation_waits_whole(tmp_path: Path) -> None:
    content = "记" * (3 * 1024 * 1024)
    path = hook_notes.leave(tmp_path, "session-end", "generic", {"messages": [{"role": "user", "content": content}]})
    assert path.stat().st_size > 16 * 1024 * 1024
    (waiting,) = hook_notes.pending(tmp_path)
    assert waiting.given["messages"][0]["content"] == content


def test_a_message_that_cannot_be_stored_costs_only_itself(memory: Runebook) -> None:
    messages = [{"role": "user", "content": "fine"}, {"role": "user", "content": "a\x00b"}, {"role": 7}]
    given = {"session_id": "r", "messages": messages, "cwd": "/somewhere/else"}
    done = answer(memory, "session-end", given, resident=False)
    assert (done.stored, len(done.notes)) == (1, 2)
