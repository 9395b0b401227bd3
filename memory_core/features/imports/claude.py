"""The export of claude.ai: ``conversations.json`` with ``chat_messages``, alone, in its folder, or in its zip.

A message is ``{uuid, sender: human|assistant, text, content: [block], attachments, files, created_at,
parent_message_uuid?}``. Where it branches, the branch of the last message is taken. ``memories.json``, what Claude
noted about its user, becomes notes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memory_core.features.imports.exports import branch, conversation_files, conversations, has_member
from memory_core.features.imports.items import ConversationItem, Format, Item, LeftOut, MemoryItem, Passed, digest_of
from memory_core.features.imports.sources import Entry, Source, elements, mapping_of, records_of, session_name, text_of

_MEMORIES = "memories.json"
_ROLES = {"human": "user", "user": "user", "assistant": "assistant"}


def _recognises(source: Source) -> bool:
    return has_member(source, "chat_messages")


def _read(source: Source) -> Iterator[Item]:
    for found in conversations(source, "chat_messages", list, ("uuid", "id")):
        if isinstance(found, LeftOut):
            yield found
        else:
            yield from _conversation(*found)
    for entry in source.entries:
        if entry.base == _MEMORIES and entry not in conversation_files(source):
            yield from _memories(source, entry)
        elif entry.base == "projects.json":
            yield Passed("documents of Claude projects")


def _conversation(conversation_id: str, place: str, told: Mapping[str, Any]) -> Iterator[Item]:
    given = [mapping_of(message) for message in told["chat_messages"]]
    messages: list[dict[str, Any]] = []
    title = text_of(told, "name").strip()
    if title:
        messages.append({"role": "system", "content": title, "id": f"title-{digest_of(title)}"})
    taken = _last_branch(given, text_of(told, "current_leaf_message_uuid"))
    if len(taken) < len(given):
        yield Passed("messages of branches that were left", len(given) - len(taken))
    for index, message in enumerate(taken):
        role = _ROLES.get(text_of(message, "sender", "role"))
        content = _content(message)
        if role is None:
            yield LeftOut(f"{place}, message {index}", "it names no sender")
        elif content:
            message_id = text_of(message, "uuid") or digest_of([conversation_id, index])
            messages.append({"role": role, "content": content, "time": message.get("created_at"), "id": message_id})
    if any(message["role"] != "system" for message in messages):
        yield ConversationItem(conversation_id, place, session_name("claude", conversation_id), tuple(messages))
    else:
        yield Passed("conversations without a word")


def _last_branch(messages: Sequence[Mapping[str, Any]], leaf: str) -> Sequence[Mapping[str, Any]]:
    by_id = {text_of(message, "uuid"): message for message in messages}
    parents = {found: text_of(message, "parent_message_uuid") or None for found, message in by_id.items()}
    if len(by_id) < len(messages) or not any(parent in by_id for parent in parents.values() if parent):
        return messages
    return [by_id[found] for found in branch(parents, leaf if leaf in by_id else text_of(messages[-1], "uuid"))]


def _content(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for given in records_of(message.get("content")):
        block = mapping_of(given)
        if block.get("type") == "text" and text_of(block, "text"):
            blocks.append({"type": "text", "text": block["text"]})
        elif block.get("type") == "tool_use" and text_of(block, "name"):
            blocks.append({name: block.get(name) for name in ("type", "id", "name", "input")})
        elif block.get("type") == "tool_result":
            blocks.append({name: block.get(name) for name in ("type", "tool_use_id", "name", "content", "is_error")})
    if not blocks and text_of(message, "text"):
        blocks.append({"type": "text", "text": message["text"]})
    for given in records_of(message.get("attachments")):
        name, text = text_of(mapping_of(given), "file_name"), text_of(mapping_of(given), "extracted_content")
        blocks.append({"type": "text", "text": f"[attachment: {name or 'pasted text'}]\n{text}".rstrip()})
    for given in records_of(message.get("files")):
        if name := text_of(mapping_of(given), "file_name"):
            blocks.append({"type": "text", "text": f"[file: {name}]"})
    return blocks


def _memories(source: Source, entry: Entry) -> Iterator[Item]:
    for found in elements(source, entry):
        if found.problem is not None:
            yield LeftOut(found.place, found.problem)
            continue
        told = mapping_of(found.value)
        texts = {"": text_of(told, "conversations_memory")}
        texts |= {str(key): value for key, value in mapping_of(told.get("project_memories")).items()}
        for project, text in texts.items():
            if isinstance(text, str) and text.strip():
                name = f"What Claude noted about project {project}" if project else "What Claude noted about me"
                yield MemoryItem(
                    f"memory {project}", found.place, "notes", text.strip(), name=name, said_at=entry.modified
                )


FORMAT = Format(
    "claude", "claude.ai's export: a zip, folder or conversations.json with 'chat_messages'", _recognises, _read
)
