"""Conversations of other programs come in as sessions: verbatim, with times, tools, projects, and queued."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.errors import ModelUnavailable, StoreBusy
from memory_core.core.memory.message import Message, parse_lines
from memory_core.core.memory.project import NO_PROJECT, ProjectAssignment
from memory_core.core.memory.requests import FindRequest
from memory_core.core.memory.results import Action
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.local import Store
from memory_core.features.forgetting import FORGET, ForgetRequest
from memory_core.features.imports.conversation_recorder import ConversationRecorder
from memory_core.features.imports.import_run import check_model
from memory_core.features.imports.items import ConversationItem
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.runebook import Runebook
from tests.features.imports import foreign
from tests.features.imports.foreign import brought, write, write_lines
from tests.features.moving import opened
from tests.kept import kept_files
from tests.stores import busy, log_of

NOW = datetime(2026, 4, 1, tzinfo=UTC)
SESSION = "claude-code-0a6afc57-2f31-4cb4-8ff0-01247f50c64c"


def messages(memory: Runebook, session_id: str) -> list[Message]:
    found = memory.store.text(log_of(session_id))
    assert found is not None, f"there is no session {session_id}"
    return parse_lines(found)[0]


def said(memory: Runebook, session_id: str) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in messages(memory, session_id)]


def test_a_conversation_that_is_too_long_for_one_session_goes_on_in_the_next(
    memory: Runebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory_core.core.commit.append._LOG_LIMIT_ITEMS", 4)
    recorder = ConversationRecorder(memory, ("hooks", "default", "default"))
    told = [{"role": "user", "content": f"This is message {number}.", "id": f"m{number}"} for number in range(9)]

    def goes_on(known: int, assignment: ProjectAssignment = NO_PROJECT) -> None:
        item = ConversationItem("talk", "claude-code", "talk", tuple(told[:known]))
        assert recorder.record(item, assignment, NOW).left_out == []

    goes_on(3, ProjectAssignment("boats", named=True, private=True))
    for known in (3, 5, 8, 9, 9):
        goes_on(known)
    stored = {name: [text for _, text in said(memory, name)] for name in ("talk", "talk~2", "talk~3")}
    assert [len(texts) for texts in stored.values()] == [3, 2, 4]
    assert [text for texts in stored.values() for text in texts] == [message["content"] for message in told]
    last = messages(memory, "talk~3")[-1]
    assert (last.project, last.private) == ("boats", True)


def test_a_forgotten_message_does_not_come_back_in_the_session_in_which_its_conversation_goes_on(
    memory: Runebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = ConversationRecorder(memory, ("hooks", "default", "default"))
    told = [{"role": "user", "content": f"This is message {number}.", "id": f"m{number}"} for number in range(5)]
    item = ConversationItem("talk", "claude-code", "talk", tuple(told[:3]))
    recorder.record(item, NO_PROJECT, NOW)
    memory.run(FORGET, ForgetRequest(uris=[f"{log_of('talk')}#1"], confirm=1))
    monkeypatch.setattr("memory_core.core.commit.append._LOG_LIMIT_ITEMS", 3)
    recorder.record(replace(item, messages=tuple(told)), NO_PROJECT, NOW)
    assert [text for _, text in said(memory, "talk~2")] == ["This is message 3.", "This is message 4."]
    memory.run(FORGET, ForgetRequest(uris=[f"{log_of('talk')}#2"], confirm=1))
    told.append({"role": "user", "content": "This is the end.", "id": "m5"})
    recorder.record(replace(item, messages=tuple(told)), NO_PROJECT, NOW)
    assert [text for _, text in said(memory, "talk~2")][2:] == ["This is the end."]


def test_a_transcript_of_claude_code_keeps_words_tools_times_its_project_and_subagents(
    memory: Runebook, tmp_path: Path
) -> None:
    done = brought(memory, foreign.claude_code(tmp_path / "projects"))
    main = messages(memory, SESSION)
    assert [(message.role, message.text) for message in main] == [
        ("system", "渡轮时刻表修复"),
        ("user", "修复渡轮时刻表的测试"),
        ("assistant", "I will run the tests first."),
        ("assistant", ""),
        ("user", ""),
    ]
    assert main[1].time is not None
    assert main[1].time.isoformat() == "2026-04-01T08:00:01+00:00"
    assert {message.project for message in main} == {"ferry"}
    assert main[3].tool_calls[0].arguments == {"command": "make test"}
    assert (main[4].tool_results[0].status, main[4].tool_results[0].duration_ms) == ("error", 812)
    asked = messages(memory, f"{SESSION}-a748733")[0]  # nobody takes what it was asked for its owner's words
    assert (asked.role, asked.text, asked.name) == ("assistant", "Look through the docs", "Claude, to its subagent")
    assert [left.place.rpartition(":")[2] for left in done.left_out] == ["8"]
    assert done.skipped["messages that Claude Code itself put in"] == 2
    tool = memory.store.text(MemoryUri.parse("viking://agent/default/memories/tools/Bash.md"))
    assert tool is not None
    assert "Based on 1 historical calls" in tool


def test_one_transcript_and_a_whole_projects_folder_are_the_same_sessions(memory: Runebook, tmp_path: Path) -> None:
    folder = foreign.claude_code(tmp_path / "projects")
    [transcript] = folder.rglob("*.jsonl")
    brought(memory, transcript)
    stored = kept_files(tmp_path / "home")
    assert brought(memory, folder).total(Action.CREATED) == 0
    assert brought(memory, transcript.parent).total(Action.CREATED) == 0
    assert kept_files(tmp_path / "home") == stored


def test_a_transcript_that_went_on_brings_only_what_is_new(memory: Runebook, tmp_path: Path) -> None:
    folder = foreign.claude_code(tmp_path / "projects")
    brought(memory, folder)
    log = memory.store.files.path_for(log_of(SESSION))
    log.write_text(log.read_text("utf-8").replace("run the tests", "run no tests"), "utf-8")
    memory.store.adopt()
    [transcript] = folder.rglob("*.jsonl")
    record = {"type": "user", "uuid": "uuid-20", "sessionId": SESSION.removeprefix("claude-code-"), "parentUuid": "x"}
    more = {**record, "message": {"role": "user", "content": "好了，谢谢"}, "timestamp": "2026-04-01T09:00:00Z"}
    with transcript.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(more, ensure_ascii=False) + "\n")
    done = brought(memory, folder)
    assert (done.counts["conversations"][Action.UPDATED], done.counts["messages"][Action.CREATED]) == (1, 1)
    assert said(memory, SESSION)[-1] == ("user", "好了，谢谢")
    assert len(messages(memory, SESSION)) == 6
    assert "run no tests" in said(memory, SESSION)[2][1]


def test_an_export_of_claude_is_read_from_folder_file_and_zip_with_attachments(
    memory: Runebook, tmp_path: Path
) -> None:
    folder = foreign.claude(tmp_path / "data")
    done = brought(memory, folder)
    assert said(memory, "claude-c1") == [
        ("system", "购物清单"),
        ("user", "这是我的清单\n[attachment: 清单.txt]\n牛奶"),
        ("assistant", "你还需要鸡蛋"),
    ]
    assert [left.place for left in done.left_out] == ["conversations.json[1]"]
    assert done.skipped == {"messages of branches that were left": 1, "conversations without a word": 1}
    note = memory.store.text(MemoryUri.parse("viking://user/default/memories/notes/What Claude noted about me.md"))
    assert note is not None
    assert "Repairs clocks in Leiden." in note
    stored = kept_files(tmp_path / "home")
    archive = Path(shutil.make_archive(str(tmp_path / "export"), "zip", folder))
    for path in (archive, folder / "conversations.json"):
        assert not brought(memory, path).changed
    assert kept_files(tmp_path / "home") == stored


def test_an_export_of_chatgpt_follows_the_branch_that_was_seen_last(memory: Runebook, tmp_path: Path) -> None:
    done = brought(memory, foreign.chatgpt(tmp_path / "data"))
    found = messages(memory, "chatgpt-67a678d3")
    assert [(message.role, message.text) for message in found] == [
        ("system", "Arithmetic"),
        ("system", "I keep bees in Graz"),
        ("user", "What is six times seven?"),
        ("assistant", ""),
        ("tool", ""),
        ("assistant", "It is 42."),
        ("user", "[image]\n这张图里是什么？"),
        ("assistant", "一只蜜蜂"),
    ]
    assert (found[3].tool_calls[0].name, found[3].tool_calls[0].arguments) == ("python", "print(6 * 7)")
    assert (found[4].tool_results[0].text, found[4].tool_results[0].call_id) == ("42", "c1")
    assert said(memory, "chatgpt-second") == [("user", "提醒我换机油")]
    assert [left.place for left in done.left_out] == ["conversations.json[1]"]
    hits = memory.find(FindRequest("换机油")).resources
    assert hits
    assert "chatgpt-second" in hits[0].uri


def test_imported_conversations_wait_for_extraction_and_can_be_taken_back(memory: Runebook, tmp_path: Path) -> None:
    done = brought(memory, foreign.chatgpt(tmp_path / "data"))
    log = log_of("chatgpt-second")
    row = memory.store.ledger.extractions.get(log)
    assert row is not None
    assert (row.stored, row.extracted) == (1, 0)
    for commit in reversed(done.commits):
        memory.run(UNDO, UndoRequest(commit))
    assert memory.store.text(log) is None
    assert brought(memory, tmp_path / "data").total(Action.CREATED) == 2
    assert said(memory, "chatgpt-second") == [("user", "提醒我换机油")]


def test_a_conversation_that_its_owner_edited_or_deleted_stays_as_he_left_it(memory: Runebook, tmp_path: Path) -> None:
    folder = foreign.chatgpt(tmp_path / "data")
    brought(memory, folder)
    edited, deleted = (memory.store.files.path_for(log_of(name)) for name in ("chatgpt-67a678d3", "chatgpt-second"))
    edited.write_text(edited.read_text("utf-8").replace("一只蜜蜂", "一只黄蜂"), "utf-8")
    deleted.unlink()
    deleted.parent.rmdir()
    memory.store.adopt()
    assert not brought(memory, folder).changed
    assert "一只黄蜂" in edited.read_text("utf-8")
    assert not deleted.exists()


def test_a_conversation_larger_than_a_commit_comes_in_parts(tmp_path: Path) -> None:
    def line(number: int) -> dict[str, Any]:
        word = {"role": "user" if number % 2 else "assistant", "content": f"第 {number} 句 " + "x" * 600}
        return {"type": word["role"], "uuid": f"u{number}", "parentUuid": None, "sessionId": "long", "message": word}

    path = write_lines(tmp_path / "long.jsonl", [line(number) for number in range(40)])
    with opened(tmp_path / "home", limits={"commit_bytes": 8_192, "content_bytes": 4_096}) as memory:
        done = brought(memory, path)
        assert len(done.commits) > 3
        assert done.left_out == []
        assert [message.message_id for message in messages(memory, "claude-code-long")] == [f"u{n}" for n in range(40)]
        assert not brought(memory, path).changed


def test_a_message_that_cannot_be_stored_is_left_out_alone(memory: Runebook, tmp_path: Path) -> None:
    def line(number: int, **more: Any) -> dict[str, Any]:
        message = {"role": "user", "content": f"Sentence {number}"}
        known = {"type": "user", "uuid": f"u{number}", "parentUuid": None, "sessionId": "odd", "message": message}
        return {**known, **more}

    records: list[Any] = [
        line(1),
        line(2, timestamp="the day before yesterday"),
        line(3, message={"role": "user", "content": "half \ud83d and \u0000 none"}),
    ]
    done = brought(memory, write_lines(tmp_path / "odd.jsonl", [json.dumps(record) for record in records]))
    assert [text for _, text in said(memory, "claude-code-odd")] == ["Sentence 1", "half � and � none"]
    assert ["message u2" in left.place for left in done.left_out] == [True]


def test_a_conversation_that_a_busy_store_refused_is_no_part_that_was_left_out(
    memory: Runebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = foreign.claude_code(tmp_path / "projects")
    with monkeypatch.context() as patched:
        patched.setattr(Store, "commit", busy)
        with pytest.raises(StoreBusy):
            brought(memory, folder)
    assert SESSION in brought(memory, folder).sessions


def test_a_conversation_whose_id_is_a_path_becomes_a_session_like_any_other(memory: Runebook, tmp_path: Path) -> None:
    said_there = {"uuid": "m", "sender": "human", "text": "从哪里来？", "created_at": "2026-05-01T10:00:00Z"}
    told = [{"uuid": uuid, "name": "", "chat_messages": [said_there]} for uuid in ("../../../escape", "CON", "a" * 300)]
    done = brought(memory, write(tmp_path / "conversations.json", told))
    assert done.left_out == []
    assert done.counts["conversations"][Action.CREATED] == 3
    assert all(name.startswith("session/default/claude-") for name in kept_files(tmp_path / "home"))


def test_without_a_model_extracting_at_once_names_every_kind_there_is(memory: Runebook) -> None:
    with pytest.raises(ModelUnavailable) as refusal:
        check_model(memory)
    assert "command, anthropic or openai" in refusal.value.hint
