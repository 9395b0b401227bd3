"""Files in the formats of other programs, and importing them, for the tests of imports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from memory_core.features.imports.import_run import ImportReport, ImportRequest, import_memories
from memory_core.runebook import Runebook


def brought(memory: Runebook, path: Path, named: str | None = None, **wishes: Any) -> ImportReport:
    """Import a path as the command does."""
    return import_memories(memory, ImportRequest(path, named, **wishes))


def write(path: Path, content: Any) -> Path:
    """A file with this text, or this value as JSON, and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=1)
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


def write_lines(path: Path, records: list[Any]) -> Path:
    """A file with one JSON value a line; a text is a line as it is."""
    said = [record if isinstance(record, str) else json.dumps(record, ensure_ascii=False) for record in records]
    return write(path, "\n".join(said) + "\n")


def vibeworker_v1(folder: Path) -> Path:
    write(
        folder / "MEMORY.md",
        "# 长期记忆\n\n## 用户偏好\n- [2026-02-15][a1b2c3d4] 用户喜欢简洁的代码风格\n\n"
        "## 重要事实\n- [2026-02-16] The staging host is called heron\n  and stands in Bergen\n\n"
        "## 任务备忘\n_（暂无记录）_\n",
    )
    write(
        folder / "logs" / "2026-02-15.md",
        "# Daily Log - 2026-02-15\n\n- [14:30] 完成了 API 文档\n- [15:45] [auto] [preferences] 喜欢下午开会\n",
    )
    return folder


def vibeworker_v2(folder: Path) -> Path:
    memories = [
        {
            "id": "a1b2c3d4",
            "category": "preferences",
            "content": "用户偏好东方航空，尤其是早班机",
            "salience": 0.85,
            "created_at": "2026-02-21T10:30:00Z",
            "last_accessed": "2026-02-22T14:00:00Z",
            "access_count": 3,
            "source": "user_explicit",
        },
        {
            "id": "e5f6g7h8",
            "category": "procedural",
            "content": "fetch_url returns nothing for pages that are rendered by scripts",
            "salience": 0.9,
            "created_at": "2026-02-20T15:20:00Z",
            "access_count": 5,
            "source": "auto_reflection",
            "context": {"tool": "fetch_url", "error_type": "dynamic_content", "learned_from": "session_abc"},
        },
        {"id": "0badc0de", "category": "facts", "salience": 0.5},
        {"id": "beefbeef", "category": "tasks", "content": "Send the offer", "created_at": "2026-02-01T00:00:00Z"},
    ]
    store = {"version": 2, "rolling_summary": "用户是一名 Python 开发者", "memories": memories}
    write(folder / "memory.json", store)
    entries = [
        {"time": "14:30:00", "type": "event", "content": "完成了项目文档"},
        {"time": "16:20:00", "type": "reflection", "content": "Fetching failed", "tool": "fetch_url", "error": "empty"},
    ]
    write(folder / "logs" / "2026-02-21.json", {"date": "2026-02-21", "entries": entries, "summary": None})
    return folder


def memoryos(folder: Path) -> Path:
    def page(name: str, asked: str, answered: str) -> dict[str, Any]:
        said = {"page_id": name, "user_input": asked, "agent_response": answered}
        return said | {"timestamp": "2026-03-01 09:30:00", "page_embedding": [0.1, 0.2], "analyzed": False}

    user = folder / "users" / "lin"
    short = [{"user_input": "帮我订会议室", "agent_response": "订好了", "timestamp": "2026-03-02 10:00:00"}]
    write(user / "short_term.json", short)
    segment = {
        "id": "session_1",
        "summary": "The user plans a trip to Kyoto",
        "summary_keywords": ["Kyoto", "trip"],
        "details": [page("page_1", "When do the maples turn?", "In late November."), {"page_id": "page_2"}],
        "N_visit": 2,
    }
    write(user / "mid_term.json", {"sessions": {"session_1": segment}, "access_frequency": {"session_1": 2}})
    knowledge = [
        {"knowledge": "用户对花生过敏", "timestamp": "2026-03-01 09:31:00", "knowledge_embedding": [0.1]},
        {"knowledge": "- None", "timestamp": "2026-03-01 09:31:00"},
    ]
    own = [{"knowledge": "The assistant recommended the book Snow Country", "timestamp": "2026-03-01 09:31:00"}]
    profiles = {"lin": {"data": "A translator from Ningbo, 直率", "last_updated": "2026-03-01 09:32:00"}}
    write(user / "long_term_user.json", {"user_profiles": profiles, "knowledge_base": knowledge})
    write(
        folder / "assistants" / "default" / "long_term_assistant.json",
        {"user_profiles": {}, "knowledge_base": [], "assistant_knowledge": own},
    )
    return folder


def mcp_memory(path: Path) -> Path:
    return write_lines(
        path,
        [
            {"type": "entity", "name": "陈静", "entityType": "person", "observations": ["讲流利的法语", "Likes maps"]},
            {"type": "entity", "name": "Harbour Ltd", "entityType": "organization", "observations": ["In Oslo"]},
            '{"type": "entity", "name": ',
            {"type": "relation", "from": "陈静", "to": "Harbour Ltd", "relationType": "works_at"},
            {"type": "relation", "from": "陈静", "to": "Nobody", "relationType": "knows"},
        ],
    )


def claude_code(folder: Path, cwd: str = "/home/elsewhere/src/ferry") -> Path:
    session = "0a6afc57-2f31-4cb4-8ff0-01247f50c64c"

    def record(number: int, kind: str, content: Any, **more: Any) -> dict[str, Any]:
        at = f"2026-04-01T08:00:{number:02}.000Z"
        common = {"uuid": f"uuid-{number}", "parentUuid": None, "sessionId": session, "timestamp": at, "cwd": cwd}
        message = {"role": kind, "content": content}
        return {"type": kind, "isSidechain": False, **common, "message": message, **more}

    call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "make test"}}
    answer = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "2 failed", "is_error": True}
    thought = {"type": "thinking", "thinking": "The timetable, then.", "signature": "x"}
    write_lines(
        folder / "-home-elsewhere-src-ferry" / f"{session}.jsonl",
        [
            {"type": "summary", "summary": "渡轮时刻表修复", "leafUuid": "uuid-9"},
            {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
            record(1, "user", "修复渡轮时刻表的测试"),
            record(2, "assistant", [thought]),
            record(3, "assistant", [{"type": "text", "text": "I will run the tests first."}]),
            record(4, "assistant", [call]),
            record(5, "user", [answer], toolUseResult={"durationMs": 812}),
            '{"type": "user", "uuid": "broken", "message": {"role": "user", "content": "half a li',
            record(6, "user", "<command-name>/clear</command-name>"),
            record(7, "user", "Caveat: the messages below were generated", isMeta=True),
            record(8, "user", "Look through the docs", isSidechain=True, agentId="a748733"),
            record(9, "assistant", [{"type": "text", "text": "The docs name pier four."}], isSidechain=True),
        ],
    )
    return folder


def claude(folder: Path) -> Path:
    def message(number: int, sender: str, text: str, parent: str | None = None, **more: Any) -> dict[str, Any]:
        at = f"2026-05-01T10:00:{number:02}.000000Z"
        said = {"uuid": f"m{number}", "sender": sender, "text": text, "content": [{"type": "text", "text": text}]}
        return {**said, "created_at": at, "attachments": [], "files": [], "parent_message_uuid": parent, **more}

    attached = [{"file_name": "清单.txt", "file_type": "txt", "extracted_content": "牛奶"}]
    write(
        folder / "conversations.json",
        [
            {
                "uuid": "c1",
                "name": "购物清单",
                "created_at": "2026-05-01T10:00:00Z",
                "chat_messages": [
                    message(1, "human", "这是我的清单", attachments=attached),
                    message(2, "assistant", "A first answer", "m1"),
                    message(3, "assistant", "你还需要鸡蛋", "m1"),
                ],
            },
            {"uuid": "c2", "name": "broken", "created_at": "2026-05-02T10:00:00Z"},
            {"uuid": "c3", "name": "Empty", "created_at": "2026-05-02T10:00:00Z", "chat_messages": []},
        ],
    )
    write(folder / "users.json", [{"uuid": "u"}])
    write(
        folder / "memories.json", [{"conversations_memory": "**Work** Repairs clocks in Leiden.", "account_uuid": "u"}]
    )
    return folder


def chatgpt(folder: Path) -> Path:
    def node(name: str, parent: str | None, role: str, content: Any, **more: Any) -> dict[str, Any]:
        body = {"content_type": "text", "parts": [content]} if isinstance(content, str) else content
        message = {"id": name, "author": {"role": role, "name": more.pop("tool", None)}, "content": body}
        message |= {"create_time": 1767650773.5, "recipient": "all", "weight": 1.0, "metadata": {}, **more}
        return {"id": name, "message": message, "parent": parent, "children": []}

    code = {"content_type": "code", "language": "python", "text": "print(6 * 7)"}
    output = {"content_type": "execution_output", "text": "42"}
    image = {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_1"}
    seen = {"content_type": "multimodal_text", "parts": [image, "这张图里是什么？"]}
    thoughts = {"content_type": "thoughts", "thoughts": []}
    about = {"content_type": "user_editable_context", "user_profile": "I keep bees in Graz", "user_instructions": ""}
    mapping = {
        "root": {"id": "root", "message": None, "parent": None, "children": ["s"]},
        "s": node("s", "root", "user", about, metadata={"is_visually_hidden_from_conversation": True}),
        "u1": node("u1", "s", "user", "What is six times seven?"),
        "t1": node("t1", "u1", "assistant", thoughts),
        "c1": node("c1", "t1", "assistant", code, recipient="python"),
        "o1": node("o1", "c1", "tool", output, tool="python"),
        "a1": node("a1", "o1", "assistant", "It is 42."),
        "a0": node("a0", "u1", "assistant", "An answer that was thrown away"),
        "u2": node("u2", "a1", "user", seen),
        "a2": node("a2", "u2", "assistant", "一只蜜蜂"),
    }
    first = {"title": "Arithmetic", "create_time": 1767650000.0, "mapping": mapping, "current_node": "a2"}
    folder.mkdir(parents=True, exist_ok=True)
    sound = json.dumps({**first, "conversation_id": "67a678d3", "id": "67a678d3"}, ensure_ascii=False)
    damaged = '{"title": "x", "mapping": {"a": nonsense}}'
    other = {"u": node("u", None, "user", "提醒我换机油")}
    second = json.dumps({"title": "", "id": "second", "mapping": other, "current_node": "gone"}, ensure_ascii=False)
    write(folder / "conversations.json", f"[{sound}, {damaged}, {second}]")
    write(folder / "chat.html", "<html></html>")
    return folder
