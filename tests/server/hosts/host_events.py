"""Events and transcripts as hosts write them, after their documentation; English and Chinese, POSIX and Windows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

SESSION = "5d2c7f0e-7c1b-4f1a-9b1e-0a4c8f1d2e3b"


def claude(event: str, transcript: Path | str = "", **more: Any) -> dict[str, Any]:
    """Claude Code; Codex sends the same members."""
    return {
        "session_id": SESSION,
        "transcript_path": str(transcript),
        "cwd": more.pop("cwd", "/"),
        "permission_mode": "default",
        "hook_event_name": event,
        **more,
    }


def cursor(event: str, **more: Any) -> dict[str, Any]:
    """Cursor on Windows, where folders look like parts of an address."""
    return {
        "conversation_id": "c-7",
        "generation_id": "g-1",
        "model": "auto",
        "hook_event_name": event,
        "cursor_version": "3.20.17",
        "workspace_roots": ["/c:/Users/林/billing"],
        "user_email": None,
        **more,
    }


def gemini(event: str, **more: Any) -> dict[str, Any]:
    """Gemini CLI."""
    return {
        "session_id": "g-42",
        "transcript_path": "/home/u/.gemini/tmp/x/chats/session-42.json",
        "cwd": "/home/u",
        "hook_event_name": event,
        "timestamp": "2026-11-21T10:00:00Z",
        **more,
    }


def said(number: int, role: str, content: Any, **more: Any) -> dict[str, Any]:
    """A record of a Claude Code transcript."""
    return {
        "parentUuid": f"u{number - 1}" if number else None,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/work/billing",
        "sessionId": SESSION,
        "version": "2.1.280",
        "type": role,
        "message": {"role": role, "content": content},
        "uuid": f"u{number}",
        "timestamp": f"2026-11-21T10:{number:02}:00.000Z",
        **more,
    }


def talk() -> list[dict[str, Any]]:
    """A short conversation with everything that a transcript may hold."""
    return [
        {"type": "summary", "summary": "Billing port 计费端口", "leafUuid": "u2"},
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
        said(0, "user", "<local-command-caveat>put in</local-command-caveat>", isMeta=True),
        said(1, "user", "Move billing to port 5544 please"),
        said(
            2,
            "assistant",
            [
                {"type": "thinking", "thinking": "a secret thought", "signature": "s"},
                {"type": "text", "text": "I will edit the file."},
                {"type": "tool_use", "id": "toolu_1", "name": "Edit", "input": {"file_path": r"C:\billing\app.yml"}},
            ],
        ),
        said(3, "user", [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"}]),
        said(4, "user", "Look through the tests", isSidechain=True, agentId="a1"),
        said(5, "assistant", [{"type": "text", "text": "Two tests name the port."}], isSidechain=True, agentId="a1"),
        said(6, "user", "顺便：\n- [ ] 通知林改端口\n- [ ] update the runbook"),
        said(7, "assistant", [{"type": "text", "text": "好的，我会记住。"}]),
    ]


def write(path: Path, records: Iterable[Mapping[str, Any]], rest: str = "") -> Path:
    """A transcript, a record a line."""
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    path.write_text("".join(lines) + rest, encoding="utf-8", newline="\n")
    return path


def codex_rollout() -> list[dict[str, Any]]:
    """A conversation as Codex keeps it."""

    def item(payload: dict[str, Any], second: int) -> dict[str, Any]:
        return {"timestamp": f"2026-11-21T10:00:{second:02}Z", "type": "response_item", "payload": payload}

    def words(role: str, text: str) -> dict[str, Any]:
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}

    return [
        {"timestamp": "2026-11-21T10:00:00Z", "type": "session_meta", "payload": {"id": "x", "cwd": "/work"}},
        item(words("user", "<environment_context>\n  <cwd>/work</cwd>\n</environment_context>"), 1),
        item(words("user", "部署前跑一下测试"), 2),
        item({"type": "reasoning", "summary": []}, 3),
        item({"type": "function_call", "name": "shell", "arguments": '{"command":["make"]}', "call_id": "c1"}, 4),
        item({"type": "function_call_output", "call_id": "c1", "output": "3 passed"}, 5),
        item(words("assistant", "All three pass."), 6),
        {"timestamp": "2026-11-21T10:00:07Z", "type": "event_msg", "payload": {"type": "token_count"}},
    ]


def cursor_transcript() -> list[dict[str, Any]]:
    """A conversation as Cursor keeps it."""
    return [
        {
            "role": "user",
            "message": {"content": [{"type": "text", "text": "<user_query>\nUse tabs in this file\n</user_query>"}]},
        },
        {
            "role": "assistant",
            "message": {
                "content": [
                    {"type": "text", "text": "Done."},
                    {"type": "tool_use", "name": "edit_file", "input": {"path": "a.py"}},
                ]
            },
        },
    ]


def gemini_chat() -> dict[str, Any]:
    """A conversation as Gemini CLI keeps it, one JSON object."""
    return {
        "sessionId": "g-42",
        "messages": [
            {"id": "1", "timestamp": "2026-11-21T10:00:00Z", "type": "user", "content": "Where is the config?"},
            {
                "id": "2",
                "timestamp": "2026-11-21T10:00:05Z",
                "type": "gemini",
                "content": "在 app.yml 里。",
                "toolCalls": [
                    {"id": "t1", "name": "read_file", "args": {"path": "app.yml"}, "status": "error", "result": []}
                ],
            },
            {"id": "3", "timestamp": "2026-11-21T10:00:06Z", "type": "info", "content": "Saved."},
        ],
    }
