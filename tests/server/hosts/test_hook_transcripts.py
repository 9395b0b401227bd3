"""Transcripts of all hosts: what the user said last is found, and half-written or odd lines change nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from server.hosts import transcripts
from server.hosts.transcripts import last_said, message_of, path_of
from tests.server.hosts import host_events
from tests.server.hosts.host_events import said, talk, write


def test_the_last_messages_of_a_user_leave_out_all_that_no_user_typed(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.jsonl", [*talk(), said(8, "user", "<command-name>/compact</command-name>")], '{"type":"us'
    )
    spoken = ["Move billing to port 5544 please", "顺便：\n- [ ] 通知林改端口\n- [ ] update the runbook"]
    assert last_said(str(path), 5) == spoken
    assert last_said(str(path), 1) == spoken[1:]


def test_only_the_end_of_a_long_transcript_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcripts, "_TAIL_BYTES", 2_000)
    path = write(tmp_path / "t.jsonl", [said(number, "user", f"message {number}") for number in range(50)])
    found = last_said(str(path), 50)
    assert found[-1] == "message 49"
    assert 2 <= len(found) < 10


@pytest.mark.parametrize(
    ("records", "spoken"),
    [
        (host_events.codex_rollout(), "部署前跑一下测试"),
        (host_events.cursor_transcript(), "Use tabs in this file"),
        ([{"role": "user", "content": "plain"}, [1], "x", None, {"role": 7}], "plain"),
    ],
)
def test_other_hosts_transcripts_tell_it_too(tmp_path: Path, records: list[Any], spoken: str) -> None:
    assert last_said(str(write(tmp_path / "t.jsonl", records)), 5) == [spoken]


def test_a_transcript_of_one_object_tells_it_too(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(host_events.gemini_chat()), encoding="utf-8")
    assert last_said(str(path), 5) == ["Where is the config?"]
    path.write_text(json.dumps(host_events.gemini_chat())[:-40], encoding="utf-8")
    assert last_said(str(path), 5) == []


def test_calls_of_tools_come_along_with_how_they_ended() -> None:
    codex = [message for record in host_events.codex_rollout() if (message := message_of(record)) is not None]
    assert [message["role"] for message in codex] == ["user", "assistant", "tool", "assistant"]
    assert codex[1]["tool_calls"] == [{"id": "c1", "name": "shell", "arguments": '{"command":["make"]}'}]
    assert (codex[2]["tool_call_id"], codex[2]["content"]) == ("c1", "3 passed")
    assert codex[0]["time"] == "2026-11-21T10:00:02Z"
    gemini = message_of(host_events.gemini_chat()["messages"][1])
    assert gemini is not None
    assert (gemini["role"], gemini["id"], gemini["tool_calls"][0]["name"]) == ("assistant", "2", "read_file")
    assert gemini["tool_results"][0]["is_error"] is True


def test_what_is_no_file_to_read_is_none(tmp_path: Path) -> None:
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        assert path_of(str(tmp_path / "pipe")) is None
    assert path_of(str(tmp_path)) is None
    assert path_of("/no/such/file") is None
    assert path_of("nul\x00") is None
    assert last_said("", 5) == []
