"""ChatGPT's export: ``conversations.json``, alone, in its folder, or in its zip.

A conversation is a tree, ``mapping: {id: {message, parent, children}}``; what its owner saw is the branch that ends in
``current_node``. Text, code, what tools answered and captions are kept, media become a word in brackets; reasoning and
hidden messages stay behind, except what the owner told ChatGPT about himself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from memory_core.features.imports.items import ConversationItem, Format, Item, Skipped, session_name, system_messages
from memory_core.features.imports.sources import Entry, Record, Source, branch, conversation_files, elements, has_member

_ROLES = frozenset({"user", "assistant", "system", "tool"})
_REASONING = frozenset({"thoughts", "reasoning_recap"})
_CONTEXT = {
    "user_editable_context": ("user_profile", "user_instructions"),
    "model_editable_context": ("model_set_context",),
}
_OWN_WORDS = ("about_user_message", "about_model_message")
_MEDIA = ("image", "audio", "video")


def _read(source: Source, entry: Entry) -> Iterator[Item]:
    for found in elements(source, entry):
        conversation_id = found.record.text("conversation_id", "id")
        if isinstance(found.record.get("mapping"), dict) and conversation_id:
            yield from _conversation(conversation_id, found.place, found.record)
        else:
            yield found.left_out("it is no conversation: id or 'mapping' is missing")


def _conversation(conversation_id: str, place: str, told: Record) -> Iterator[Item]:
    nodes = {str(key): Record(node) for key, node in told.record("mapping").members.items()}
    parents = {key: node.text("parent") or None for key, node in nodes.items()}
    taken = branch(parents, _leaf(nodes, told.text("current_node")))
    on_branch = set(taken)
    left = sum(1 for key, node in nodes.items() if node.get("message") and key not in on_branch)
    if left:
        yield Skipped("messages of branches that were left", left)
    messages = system_messages("title", told.text("title").strip())
    for key in taken:
        said = _message(nodes[key].record("message"), key, parents[key] or key)
        if isinstance(said, str):
            yield Skipped(said)
        elif said is not None:
            messages.append(said)
    if any(message["role"] != "system" for message in messages):
        yield ConversationItem(conversation_id, place, session_name("chatgpt", conversation_id), tuple(messages))
    else:
        yield Skipped("conversations without a word")


def _leaf(nodes: Mapping[str, Record], current: str) -> str:
    """The node that the conversation ended in; without one that is there, the newest."""
    if current in nodes:
        return current

    def at(key: str) -> float:
        time = nodes[key].record("message").get("create_time")
        return time if isinstance(time, int | float) else 0.0

    return max(nodes, key=at, default="")


def _message(message: Record, key: str, before: str) -> dict[str, Any] | str | None:
    """The message, what it is if it stays behind, or None if it says nothing."""
    author, metadata, content = message.record("author"), message.record("metadata"), message.record("content")
    role, kind = author.text("role"), content.text("content_type")
    said: dict[str, Any] = {"role": role, "time": message.get("create_time"), "id": message.text("id") or key}
    own = _own_words(content, metadata)
    if own:
        return {**said, "role": "system", "content": own}
    if not message.members:
        return None
    if kind in _REASONING:
        return "messages that hold only reasoning"
    if role not in _ROLES:
        return "messages of no known author"
    if metadata.get("is_visually_hidden_from_conversation") or message.get("weight") == 0:
        return "hidden messages"
    text = _text(content)
    recipient = message.text("recipient")
    if not text.strip():
        return None
    if role == "assistant" and recipient not in ("", "all"):
        return {**said, "tool_calls": [{"id": said["id"], "name": recipient, "arguments": text}]}
    if role == "tool":
        ended = metadata.record("aggregate_result").text("status")
        name = author.text("name") or "tool"
        return {**said, "content": text, "name": name, "tool_call_id": before, "is_error": "fail" in ended}
    return {**said, "content": text}


def _own_words(content: Record, metadata: Record) -> str:
    """What the owner said about himself in the settings, or ChatGPT keeps about him."""
    told = metadata.record("user_context_message_data")
    texts = [content.text(name) for name in _CONTEXT.get(content.text("content_type"), ())]
    texts += [told.text(name) for name in _OWN_WORDS]
    return "\n\n".join(text.strip() for text in texts if text)


def _text(content: Record) -> str:
    texts = [text for part in content.items("parts") if (text := _part(part))]
    return "\n".join(texts) or content.text("text", "result", "summary")


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    given = Record(part)
    kind = given.text("content_type")
    media = next((word for word in _MEDIA if word in kind), "file" if kind else "")
    return given.text("text") or (f"[{media}]" if media else "")


FORMAT = Format(
    "chatgpt",
    "ChatGPT's export: a zip, folder or conversations.json with 'mapping'",
    lambda source: has_member(source, "mapping"),
    conversation_files,
    _read,
)
