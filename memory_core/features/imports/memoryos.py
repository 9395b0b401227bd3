"""MemoryOS's JSON stores: short-term pages, mid-term segments, and what it knows of user and assistant.

``short_term.json`` is a list of ``{user_input, agent_response, timestamp}``; ``mid_term.json`` is ``{sessions: {id:
{summary, summary_keywords, details: [page], …}}}``; ``long_term_user.json`` and ``long_term_assistant.json`` are
``{user_profiles: {id: {data, last_updated}}, knowledge_base: [{knowledge, timestamp}], assistant_knowledge: […]}``.
Pages become conversations, knowledge becomes memories; vectors are made anew and stay behind.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memory_core.core.errors import InvalidInput
from memory_core.features.imports.items import ConversationItem, Format, Item, LeftOut, MemoryItem, Passed, digest_of
from memory_core.features.imports.sources import (
    Entry,
    Source,
    mapping_of,
    records_of,
    session_name,
    text_of,
    time_of,
    whole,
)

_SHORT, _MID = "short_term.json", "mid_term.json"
_KNOWLEDGE = {"knowledge_base": "facts", "user_knowledge": "facts", "assistant_knowledge": "assistant_knowledge"}
_NOTHING = frozenset({"none", "- none", "- none."})


def _recognises(source: Source) -> bool:
    for entry in source.entries:
        head = source.head(entry) if entry.base.endswith(".json") else b""
        if b'"user_input"' in head and b'"agent_response"' in head:
            return True
        if b'"knowledge_base"' in head or (b'"user_profiles"' in head and b'"assistant_knowledge"' in head):
            return True
    return False


def _read(source: Source) -> Iterator[Item]:
    for entry in source.entries:
        if not entry.base.endswith(".json"):
            continue
        try:
            store = whole(source, entry)
        except InvalidInput as error:
            yield LeftOut(entry.name, error.message)
            continue
        owner = entry.name.rpartition("/")[0].rpartition("/")[2]
        if isinstance(store, list):
            yield from _conversation(entry.name, f"{owner}-short-term" if owner else "short-term", store)
        elif isinstance(store, dict) and isinstance(store.get("sessions"), dict):
            for session_id, segment in store["sessions"].items():
                yield from _segment(entry, session_id, mapping_of(segment))
        elif isinstance(store, dict) and any(name in store for name in (*_KNOWLEDGE, "user_profiles")):
            yield from _knowledge(entry, store)
        else:
            yield Passed("JSON files that are no store of MemoryOS")


def _segment(entry: Entry, session_id: str, segment: Mapping[str, Any]) -> Iterator[Item]:
    keywords = [word for word in records_of(segment.get("summary_keywords")) if isinstance(word, str)]
    said = [text_of(segment, "summary"), f"Keywords: {', '.join(keywords)}" if keywords else ""]
    summary = "\n".join(line for line in said if line)
    yield from _conversation(f"{entry.name}: {session_id}", session_id, records_of(segment.get("details")), summary)


def _conversation(place: str, name: str, pages: Sequence[Any], summary: str = "") -> Iterator[Item]:
    messages: list[dict[str, Any]] = []
    if summary:
        messages.append({"role": "system", "content": summary, "id": f"summary-{digest_of(summary)}"})
    for index, page in enumerate(pages):
        told = list(_page(mapping_of(page)))
        messages += told
        if not told:
            yield LeftOut(f"{place}[{index}]", "it is no page: neither user_input nor agent_response is there")
    if messages:
        yield ConversationItem(name, place, session_name("memoryos", name), tuple(messages))


def _page(page: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    said = {"user": text_of(page, "user_input"), "assistant": text_of(page, "agent_response")}
    moment = time_of(page.get("timestamp"))
    page_id = text_of(page, "page_id") or digest_of([page.get("timestamp"), *said.values()])
    for role, text in said.items():
        if text:
            yield {"role": role, "content": text, "time": moment, "id": f"{page_id}-{role}"}


def _knowledge(entry: Entry, store: Mapping[str, Any]) -> Iterator[Item]:
    for user, profile in mapping_of(store.get("user_profiles")).items():
        given = mapping_of(profile)
        content = _profile_text(given.get("data") if given else profile)
        if content:
            place = f"{entry.name}: user_profiles[{user}]"
            moment = time_of(given.get("last_updated")) or entry.modified
            yield MemoryItem(f"profile {user}", place, "profile", content, name=f"Profile of {user}", said_at=moment)
    for name, memory_type in _KNOWLEDGE.items():
        for index, record in enumerate(records_of(store.get(name))):
            place = f"{entry.name}: {name}[{index}]"
            given = mapping_of(record)
            content = (record if isinstance(record, str) else text_of(given, "knowledge")).strip().removeprefix("- ")
            if content.casefold() in ("", *_NOTHING):
                yield LeftOut(place, "it says nothing")
                continue
            identity = digest_of([name, given.get("timestamp"), content])
            moment = time_of(given.get("timestamp"))
            yield MemoryItem(identity, place, memory_type, content, said_at=moment, category=name)


def _profile_text(data: Any) -> str:
    if isinstance(data, str):
        return "" if data.strip().casefold() in ("", *_NOTHING) else data.strip()
    if isinstance(data, dict):
        return "\n".join(f"- {name}: {_shown(value)}" for name, value in data.items())
    return ""


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


FORMAT = Format(
    "memoryos",
    "short_term.json or mid_term.json with 'user_input', long_term_user.json with 'knowledge_base'",
    _recognises,
    _read,
    lambda source: [entry for entry in source.entries if entry.base.endswith(".json")],
)
