"""Claude Code's transcripts: ``~/.claude/projects/<folder>/<session>.jsonl``, one record a line, append-only.

A record of type ``user`` or ``assistant`` is a message with its content blocks; what a tool answered comes as a user's
message. What the program itself put in (caveats, its own commands, errors of the service) is no part of the
conversation. A subagent's talk (``isSidechain``; older versions write it into the same file) becomes a session of its
own, where what it was asked is the assistant's word. The first ``cwd`` names the project. A ``summary`` whose
``leafUuid`` is no record of the file is the title of another conversation, and is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from memory_core.features.imports.items import (
    CLAUDE_CODE_MARKUP,
    ConversationItem,
    Format,
    Item,
    Skipped,
    digest_of,
    session_name,
    system_messages,
)
from memory_core.features.imports.sources import Entry, Record, Source, lines

_ENDING = ".jsonl"
_SAID = ("user", "assistant")
_BLOCKS = frozenset({"text", "tool_use", "tool_result", "image", "document"})
_TITLES = {"summary": "summary", "custom-title": "customTitle", "ai-title": "aiTitle"}
_ASKED = "Claude, to its subagent"


def _recognises(source: Source) -> bool:
    heads = (source.head(entry) for entry in _transcripts(source)[:20])
    return any(b'"sessionId"' in head and (b'"parentUuid"' in head or b'"leafUuid"' in head) for head in heads)


def _transcripts(source: Source) -> list[Entry]:
    return [entry for entry in source.entries if entry.base.endswith(_ENDING)]


def _read(source: Source, entry: Entry) -> Iterator[Item]:
    """The conversations of a transcript, the main one first, and what of it is none."""
    transcript = _Transcript(entry)
    for found in lines(source, entry):
        if isinstance(found.value, dict):
            transcript.take(found.record, found.place)
        else:
            yield found.left_out("it is no JSON object")
    yield from transcript.items()


class _Transcript:
    """One file as far as it was read."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._talks: dict[str, list[dict[str, Any]]] = {}
        self._folders: dict[str, dict[str, str]] = {}
        self._titles: list[tuple[str, dict[str, Any]]] = []  # each after the record that it names, empty for none
        self._uuids = {""}
        self._skipped: Counter[str] = Counter()
        self._session_id = entry.base.removesuffix(_ENDING)
        self._hosts_id = self._session_id
        self._is_agents = self._session_id.startswith("agent-")

    def items(self) -> Iterator[Item]:
        titles = [title for leaf, title in self._titles if leaf in self._uuids]
        if others := len(self._titles) - len(titles):
            self._skipped["titles of other conversations"] += others
        for talk, messages in sorted(self._talks.items(), key=lambda item: item[0] != ""):
            name = "-".join(part for part in (self._session_id, talk) if part)
            session_id = session_name("claude-code", name)
            item_id = f"{session_id} sub" if talk else session_id
            said = (*messages,) if talk else (*titles, *messages)
            folders = self._folders.get(talk, {})
            began = next(iter(folders.values()), None)
            yield ConversationItem(item_id, self._entry.name, session_id, said, began, folders, self._hosts_id)
        for what, count in self._skipped.items():
            yield Skipped(what, count)

    def take(self, record: Record, place: str) -> None:
        """One line of the file."""
        kind = record.text("type")
        if kind in _TITLES:
            titles = system_messages(kind, record.text(_TITLES[kind]))
            self._titles += [(record.text("leafUuid"), title) for title in titles]
            return
        self._uuids.add(record.text("uuid"))
        if kind not in _SAID:
            self._skipped["records of Claude Code's own work"] += 1
            return
        self._hosts_id = record.text("sessionId") or self._hosts_id
        if not self._is_agents and not record.get("isSidechain"):
            self._session_id = record.text("sessionId") or self._session_id
        content = _content(record.record("message"))
        if record.get("isMeta") or record.get("isApiErrorMessage") or _is_machine(content):
            self._skipped["messages that Claude Code itself put in"] += 1
        elif not content:
            self._skipped["messages without words"] += 1
        else:
            self._say(record, content, place)

    def _say(self, record: Record, content: Any, place: str) -> None:
        is_aside = self._is_agents or bool(record.get("isSidechain"))
        is_answer = any(block["type"] == "tool_result" for block in content if isinstance(block, dict))
        said: dict[str, Any] = {
            "role": record.record("message").text("role") or record.text("type"),
            "content": content,
            "time": record.get("timestamp"),
            "id": record.text("uuid") or digest_of([place, str(content)]),
        }
        if record.get("isCompactSummary"):
            said["role"] = "system"
        elif is_aside and said["role"] == "user" and not is_answer:
            said |= {"role": "assistant", "name": _ASKED}
        if is_answer:
            said |= _duration(record.record("toolUseResult"))
        talk = (record.text("agentId") or "subagents") if is_aside and not self._is_agents else ""
        self._talks.setdefault(talk, []).append(said)
        if record.text("cwd"):
            self._folders.setdefault(talk, {})[said["id"]] = record.text("cwd")


def _content(message: Record) -> Any:
    """Text, or the blocks that say something; None for nothing."""
    if isinstance(message.get("content"), str):
        return message.text("content") or None
    blocks = [block for block in message.records("content") if block.text("type") in _BLOCKS]
    return [block.members for block in blocks if block.text("type") != "text" or block.text("text")] or None


def _is_machine(content: Any) -> bool:
    texts = [content] if isinstance(content, str) else [Record(block).text("text") for block in content or ()]
    return bool(texts) and all(CLAUDE_CODE_MARKUP.match(text) for text in texts)


def _duration(result: Record) -> dict[str, Any]:
    """How long a tool ran, where its result tells it."""
    told = (result.get(name) for name in ("totalDurationMs", "durationMs"))
    taken = [value for value in told if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0]
    return {"duration_ms": taken[0]} if taken else {}


FORMAT = Format(
    "claude-code",
    "a .jsonl transcript of Claude Code, or a folder of them such as ~/.claude/projects",
    _recognises,
    _transcripts,
    _read,
)
