"""Claude Code's transcripts: ``~/.claude/projects/<folder>/<session>.jsonl``, one record a line, append-only.

A record of type ``user`` or ``assistant`` is a message with its content blocks; what a tool answered comes as a user's
message. What the program itself put in (caveats, its own commands, errors of the service) is no part of the
conversation. A subagent's talk (``isSidechain``; older versions write it into the same file) becomes a session of its
own, where what it was asked is the assistant's word. ``cwd`` names the project.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from memory_core.features.imports.items import MACHINE, ConversationItem, Format, Item, LeftOut, Passed, digest_of
from memory_core.features.imports.sources import Entry, Source, lines, mapping_of, records_of, session_name, text_of

_ENDING = ".jsonl"
_SAID = ("user", "assistant")
_BLOCKS = frozenset({"text", "tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document"})
_TITLES = {"summary": "summary", "custom-title": "customTitle", "ai-title": "aiTitle"}
_ASKED = "Claude, to its subagent"


def _recognises(source: Source) -> bool:
    return any(_is_transcript(source.head(entry)) for entry in _transcripts(source)[:20])


def _is_transcript(head: bytes) -> bool:
    return b'"sessionId"' in head and (b'"parentUuid"' in head or b'"leafUuid"' in head)


def _transcripts(source: Source) -> list[Entry]:
    return [entry for entry in source.entries if entry.base.endswith(_ENDING)]


def _read(source: Source) -> Iterator[Item]:
    for entry in _transcripts(source):
        yield from _Transcript(source, entry).items()


class _Transcript:
    """One file, read once."""

    def __init__(self, source: Source, entry: Entry) -> None:
        self._source = source
        self._entry = entry
        self._talks: dict[str, list[Mapping[str, Any]]] = {}
        self._folders: dict[str, str] = {}
        self._titles: list[Mapping[str, Any]] = []
        self._passed: Counter[str] = Counter()
        self._session_id = entry.base.removesuffix(_ENDING)
        self._agent = self._session_id if self._session_id.startswith("agent-") else ""

    def items(self) -> Iterator[Item]:
        """Its conversations, the main one first, and what of it is none."""
        for found in lines(self._source, self._entry):
            if found.problem is not None or not isinstance(found.value, dict):
                yield LeftOut(found.place, found.problem or "it is no JSON object")
                continue
            self._take(found.value, found.place)
        for talk, messages in sorted(self._talks.items(), key=lambda item: item[0] != ""):
            titles = self._titles if not talk else []
            name = "-".join(part for part in (self._session_id, talk) if part)
            session_id = session_name("claude-code", name)
            item_id = f"{session_id} {'sub' if talk else ''}".strip()
            yield ConversationItem(item_id, self._entry.name, session_id, (*titles, *messages), self._folders.get(talk))
        for what, count in self._passed.items():
            yield Passed(what, count)

    def _take(self, record: Mapping[str, Any], place: str) -> None:
        kind = text_of(record, "type")
        if kind in _TITLES:
            title = text_of(record, _TITLES[kind])
            if title:
                self._titles.append({"role": "system", "content": title, "id": f"{kind}-{digest_of(title)}"})
            return
        if kind not in _SAID:
            self._passed["records of Claude Code's own work"] += 1
            return
        if not self._agent and not record.get("isSidechain"):
            self._session_id = text_of(record, "sessionId") or self._session_id
        message = mapping_of(record.get("message"))
        content = _content(message.get("content"))
        if record.get("isMeta") or record.get("isApiErrorMessage") or _is_machine(content):
            self._passed["messages that Claude Code itself put in"] += 1
        elif not content:
            self._passed["messages without words"] += 1
        else:
            self._say(record, message, content, place)

    def _say(self, record: Mapping[str, Any], message: Mapping[str, Any], content: Any, place: str) -> None:
        aside = bool(record.get("isSidechain")) or bool(self._agent)
        talk = "" if not aside or self._agent else text_of(record, "agentId") or "subagents"
        said: dict[str, Any] = {
            "role": text_of(message, "role") or text_of(record, "type"),
            "content": content,
            "time": record.get("timestamp"),
            "id": text_of(record, "uuid") or digest_of([place, str(content)]),
        }
        if record.get("isCompactSummary"):
            said["role"] = "system"
        elif aside and said["role"] == "user" and not _answers(content):
            said |= {"role": "assistant", "name": _ASKED}
        if _answers(content):
            said |= _run(mapping_of(record.get("toolUseResult")))
        self._talks.setdefault(talk, []).append(said)
        folder = text_of(record, "cwd")
        if folder:
            self._folders.setdefault(talk, folder)


def _content(content: Any) -> Any:
    """Text, or the blocks that say something; None for nothing."""
    if isinstance(content, str):
        return content if content.strip() else None
    blocks = [block for block in records_of(content) if mapping_of(block).get("type") in _BLOCKS]
    spoken = [block for block in blocks if block["type"] != "text" or text_of(block, "text")]
    return [block for block in spoken if "thinking" not in block["type"]] or None


def _is_machine(content: Any) -> bool:
    texts = [content] if isinstance(content, str) else [text_of(block, "text") for block in content or ()]
    return bool(texts) and all(MACHINE.match(text) for text in texts)


def _answers(content: Any) -> bool:
    return isinstance(content, list) and any(block["type"] == "tool_result" for block in content)


def _run(result: Mapping[str, Any]) -> dict[str, Any]:
    """What is told of a tool's run beside its answer."""
    found: dict[str, Any] = {}
    for name in ("totalDurationMs", "durationMs"):
        taken = result.get(name)
        if isinstance(taken, int | float) and not isinstance(taken, bool) and taken >= 0:
            found.setdefault("duration_ms", taken)
    return found


FORMAT = Format(
    "claude-code",
    "a .jsonl transcript of Claude Code, or a folder of them such as ~/.claude/projects",
    _recognises,
    _read,
)
