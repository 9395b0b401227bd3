"""MemoryOS's JSON stores: short-term pages, mid-term segments, and what it knows of user and assistant.

``short_term.json`` is a list of ``{user_input, agent_response, timestamp}``; ``mid_term.json`` is ``{sessions: {id:
{summary, summary_keywords, details: [page], …}}}``; ``long_term_user.json`` and ``long_term_assistant.json`` are
``{user_profiles: {id: {data, last_updated}}, knowledge_base: [{knowledge, timestamp}], assistant_knowledge: […]}``.
Pages become conversations, knowledge becomes memories; vectors are made anew and stay behind.
"""

from __future__ import annotations

import json
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
from memory_core.features.imports.sources import Entry, Record, Source, whole

_KNOWLEDGE = {"knowledge_base": "facts", "user_knowledge": "facts", "assistant_knowledge": "assistant_knowledge"}
_EMPTY_ANSWERS = frozenset({"", "none", "none.", "- none", "- none."})


def _files(source: Source) -> list[Entry]:
    return [entry for entry in source.entries if entry.base.endswith(".json")]


def _recognises(source: Source) -> bool:
    for head in map(source.head, _files(source)):
        if b'"user_input"' in head and b'"agent_response"' in head:
            return True
        if b'"knowledge_base"' in head or (b'"user_profiles"' in head and b'"assistant_knowledge"' in head):
            return True
    return False


def _read(source: Source, entry: Entry) -> Iterator[Item]:
    value = whole(source, entry)
    store = Record(value)
    if isinstance(value, list):
        owner = entry.name.rpartition("/")[0].rpartition("/")[2]
        name = f"{owner}-short-term" if owner else "short-term"
        yield from _conversation(entry.name, name, [Record(page) for page in value], "")
    elif isinstance(store.get("sessions"), dict):
        segments = store.record("sessions")
        for session_id in segments.members:
            segment = segments.record(session_id)
            words = ", ".join(word for word in segment.items("summary_keywords") if isinstance(word, str))
            summary = "\n".join(filter(None, (segment.text("summary"), words and f"Keywords: {words}")))
            yield from _conversation(f"{entry.name}: {session_id}", session_id, segment.records("details"), summary)
    elif any(name in store for name in (*_KNOWLEDGE, "user_profiles")):
        yield from _profiles(entry, store)
        for name, memory_type in _KNOWLEDGE.items():
            yield from _knowledge(f"{entry.name}: {name}", name, memory_type, store.items(name))
    else:
        yield Skipped("JSON files that are no store of MemoryOS")


def _conversation(place: str, session_id: str, pages: Sequence[Record], summary: str) -> Iterator[Item]:
    messages = system_messages("summary", summary)
    for index, page in enumerate(pages):
        said = {"user": page.text("user_input"), "assistant": page.text("agent_response")}
        page_id = page.text("page_id") or digest_of([page.get("timestamp"), *said.values()])
        messages += [
            {"role": role, "content": text, "id": f"{page_id}-{role}", "time": page.time("timestamp")}
            for role, text in said.items()
            if text
        ]
        if not any(said.values()):
            yield LeftOut(f"{place}[{index}]", "it is no page: neither user_input nor agent_response is there")
    if messages:
        yield ConversationItem(session_id, place, session_name("memoryos", session_id), tuple(messages))


def _profiles(entry: Entry, store: Record) -> Iterator[Item]:
    for user, profile in store.record("user_profiles").members.items():
        record = Record(profile)
        data = record.get("data") if record.members else profile
        place = f"{entry.name}: user_profiles[{user}]"
        if isinstance(data, dict):
            data = "\n".join(f"- {name}: {_as_text(value)}" for name, value in data.items())
        if not isinstance(data, str) or data.strip().casefold() in _EMPTY_ANSWERS:
            yield LeftOut(place, "it says nothing")
            continue
        said_at = record.time("last_updated") or entry.modified
        yield MemoryItem(f"profile {user}", place, "profile", data.strip(), name=f"Profile of {user}", said_at=said_at)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _knowledge(place: str, name: str, memory_type: str, pieces: Sequence[Any]) -> Iterator[Item]:
    for index, piece in enumerate(pieces):
        record = Record(piece)
        content = (piece if isinstance(piece, str) else record.text("knowledge")).strip().removeprefix("- ")
        if content.casefold() in _EMPTY_ANSWERS:
            yield LeftOut(f"{place}[{index}]", "it says nothing")
            continue
        item_id = digest_of([name, record.get("timestamp"), content])
        said_at = record.time("timestamp")
        yield MemoryItem(item_id, f"{place}[{index}]", memory_type, content, said_at=said_at, category=name)


FORMAT = Format(
    "memoryos",
    "short_term.json or mid_term.json with 'user_input', long_term_user.json with 'knowledge_base'",
    _recognises,
    _files,
    _read,
    may_move_originals=True,
)
