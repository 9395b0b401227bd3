"""ChatGPT's export: ``conversations.json``, alone, in its folder, or in its zip.

A conversation is a tree, ``mapping: {id: {message, parent, children}}``; what its owner saw is the branch that ends in
``current_node``. Text, code, what tools answered and captions are kept, media become a word in brackets; reasoning and
hidden messages stay behind, except what the owner told ChatGPT about himself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from memory_core.features.imports.exports import branch, conversations, has_member
from memory_core.features.imports.items import ConversationItem, Format, Item, LeftOut, Passed, digest_of
from memory_core.features.imports.sources import Source, mapping_of, records_of, session_name, text_of

_ROLES = frozenset({"user", "assistant", "system", "tool"})
_REASONING = frozenset({"thoughts", "reasoning_recap"})
_CONTEXT = {"user_editable_context": ("user_profile", "user_instructions"), "model_editable_context": ()}
_OWN_WORDS = ("about_user_message", "about_model_message")


def _recognises(source: Source) -> bool:
    return has_member(source, "mapping")


def _read(source: Source) -> Iterator[Item]:
    for found in conversations(source, "mapping", dict, ("conversation_id", "id")):
        if isinstance(found, LeftOut):
            yield found
        else:
            yield from _conversation(*found)


def _conversation(conversation_id: str, place: str, told: Mapping[str, Any]) -> Iterator[Item]:
    nodes = {str(key): mapping_of(node) for key, node in told["mapping"].items()}
    parents = {key: text_of(node, "parent") or None for key, node in nodes.items()}
    taken = branch(parents, _leaf(nodes, text_of(told, "current_node")))
    left = sum(1 for key, node in nodes.items() if node.get("message") and key not in set(taken))
    if left:
        yield Passed("messages of branches that were left", left)
    messages: list[dict[str, Any]] = []
    title = text_of(told, "title").strip()
    if title:
        messages.append({"role": "system", "content": title, "id": f"title-{digest_of(title)}"})
    for key in taken:
        message = mapping_of(nodes[key].get("message"))
        if not message:
            continue
        said = _message(message, key, parents[key] or key)
        if isinstance(said, str):
            yield Passed(said)
        elif said is not None:
            messages.append(said)
    if any(message["role"] != "system" for message in messages):
        yield ConversationItem(conversation_id, place, session_name("chatgpt", conversation_id), tuple(messages))
    else:
        yield Passed("conversations without a word")


def _leaf(nodes: Mapping[str, Mapping[str, Any]], current: str) -> str:
    """The node that the conversation ended in; without one that is there, the newest."""
    if current in nodes:
        return current

    def at(key: str) -> float:
        time = mapping_of(nodes[key].get("message")).get("create_time")
        return float(time) if isinstance(time, int | float) else 0.0

    return max(nodes, key=at, default="")


def _message(message: Mapping[str, Any], key: str, before: str) -> dict[str, Any] | str | None:
    """The message, what it is if it stays behind, or None if it says nothing."""
    author, metadata = mapping_of(message.get("author")), mapping_of(message.get("metadata"))
    role, content = text_of(author, "role"), mapping_of(message.get("content"))
    kind = text_of(content, "content_type")
    said: dict[str, Any] = {"role": role, "time": message.get("create_time"), "id": text_of(message, "id") or key}
    own = _own_words(content, kind, metadata)
    if own:
        return {**said, "role": "system", "content": own}
    if role not in _ROLES or kind in _REASONING:
        return "messages that hold only reasoning" if kind in _REASONING else "messages of no known author"
    if metadata.get("is_visually_hidden_from_conversation") or message.get("weight") == 0:
        return "hidden messages"
    text = _text(content)
    if not text.strip():
        return None
    recipient = text_of(message, "recipient")
    if role == "assistant" and recipient not in ("", "all"):
        return {**said, "tool_calls": [{"id": said["id"], "name": recipient, "arguments": text}]}
    if role == "tool":
        ended = text_of(mapping_of(metadata.get("aggregate_result")), "status")
        name = text_of(author, "name") or "tool"
        return {**said, "content": text, "name": name, "tool_call_id": before, "is_error": "fail" in ended}
    return {**said, "content": text}


def _own_words(content: Mapping[str, Any], kind: str, metadata: Mapping[str, Any]) -> str:
    """What the owner said about himself in the settings, or ChatGPT keeps about him."""
    texts = [text_of(content, name) for name in _CONTEXT.get(kind, ())]
    if kind == "model_editable_context":
        texts.append(text_of(content, "model_set_context"))
    told = mapping_of(metadata.get("user_context_message_data"))
    texts += [text_of(told, name) for name in _OWN_WORDS]
    return "\n\n".join(text.strip() for text in texts if text)


def _text(content: Mapping[str, Any]) -> str:
    parts = [_part(part) for part in records_of(content.get("parts"))]
    texts = [part for part in parts if part]
    if not texts:
        texts = [text_of(content, "text", "result", "summary")]
    return "\n".join(texts)


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    given = mapping_of(part)
    spoken = text_of(given, "text")
    kind = text_of(given, "content_type")
    media = next((word for word in ("image", "audio", "video") if word in kind), "file" if kind else "")
    return spoken or (f"[{media}]" if media else "")


FORMAT = Format("chatgpt", "ChatGPT's export: a zip, folder or conversations.json with 'mapping'", _recognises, _read)
