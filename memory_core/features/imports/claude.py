"""The export of claude.ai: ``conversations.json`` with ``chat_messages``, alone, in its folder, or in its zip.

A message is ``{uuid, sender: human|assistant, text, content: [block], attachments, files, created_at,
parent_message_uuid?}``. Where it branches, the branch of the last message is taken. ``memories.json``, what Claude
noted about its user, becomes notes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from memory_core.features.imports.items import (
    ConversationItem,
    Format,
    Item,
    LeftOut,
    MemoryItem,
    Skipped,
    digest_of,
    session_name,
    system_messages,
)
from memory_core.features.imports.sources import Entry, Record, Source, branch, conversation_files, elements, has_member

_BESIDE = ("memories.json", "projects.json")
_ROLES = {"human": "user", "user": "user", "assistant": "assistant"}
_KEPT = {
    "tool_use": ("type", "id", "name", "input"),
    "tool_result": ("type", "tool_use_id", "name", "content", "is_error"),
}


def _files(source: Source) -> list[Entry]:
    held = conversation_files(source)
    return held + [entry for entry in source.entries if entry.base in _BESIDE and entry not in held]


def _read(source: Source, entry: Entry) -> Iterator[Item]:
    if entry.base == "projects.json":
        yield Skipped("documents of Claude projects")
        return
    for found in elements(source, entry):
        told, conversation_id = found.record, found.record.text("uuid", "id")
        if isinstance(told.get("chat_messages"), list) and conversation_id:
            yield from _conversation(conversation_id, found.place, told)
        elif entry.base in _BESIDE and found.problem is None:
            yield from _noted(entry, found.place, told)
        else:
            yield found.left_out("it is no conversation: id or 'chat_messages' is missing")


def _conversation(conversation_id: str, place: str, told: Record) -> Iterator[Item]:
    given = told.records("chat_messages")
    taken = _last_branch(given, told.text("current_leaf_message_uuid"))
    if len(taken) < len(given):
        yield Skipped("messages of branches that were left", len(given) - len(taken))
    said: list[dict[str, Any]] = []
    for index, message in enumerate(taken):
        role, content = _ROLES.get(message.text("sender", "role")), _content(message)
        if role is None:
            yield LeftOut(f"{place}, message {index}", "it names no sender")
        elif content:
            message_id = message.text("uuid") or digest_of([conversation_id, index])
            said.append({"role": role, "content": content, "time": message.get("created_at"), "id": message_id})
    if said:
        messages = (*system_messages("title", told.text("name").strip()), *said)
        yield ConversationItem(conversation_id, place, session_name("claude", conversation_id), messages)
    else:
        yield Skipped("conversations without a word")


def _last_branch(messages: Sequence[Record], leaf: str) -> Sequence[Record]:
    by_id = {message.text("uuid"): message for message in messages}
    parents = {found: message.text("parent_message_uuid") or None for found, message in by_id.items()}
    if len(by_id) < len(messages) or not any(parent in by_id for parent in parents.values() if parent):
        return messages
    return [by_id[found] for found in branch(parents, leaf if leaf in by_id else messages[-1].text("uuid"))]


def _content(message: Record) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    texts: list[str] = []
    for block in message.records("content"):
        kind = block.text("type")
        if kind == "text" and block.text("text"):
            blocks.append({"type": "text", "text": block.text("text")})
        elif kind in _KEPT and (kind == "tool_result" or block.text("name")):
            blocks.append({name: block.get(name) for name in _KEPT[kind]})
    if not blocks and message.text("text"):
        texts.append(message.text("text"))
    for attached in message.records("attachments"):
        name = attached.text("file_name") or "pasted text"
        texts.append(f"[attachment: {name}]\n{attached.text('extracted_content')}".rstrip())
    texts += [f"[file: {file.text('file_name')}]" for file in message.records("files") if file.text("file_name")]
    return blocks + [{"type": "text", "text": text} for text in texts]


def _noted(entry: Entry, place: str, told: Record) -> Iterator[Item]:
    projects = told.record("project_memories")
    notes = {"": told.text("conversations_memory")} | {name: projects.text(name) for name in projects.members}
    for project, text in notes.items():
        if text:
            name = f"What Claude noted about project {project}" if project else "What Claude noted about me"
            yield MemoryItem(f"memory {project}", place, "notes", text.strip(), name=name, said_at=entry.modified)


FORMAT = Format(
    "claude",
    "claude.ai's export: a zip, folder or conversations.json with 'chat_messages'",
    lambda source: has_member(source, "chat_messages"),
    _files,
    _read,
)
