"""VibeWorker's memory, in both of its versions.

Version 1 is ``MEMORY.md`` with entries such as ``- [2026-02-15][a1b2c3d4] …`` below headings that name categories, and
``logs/2026-02-15.md`` with entries such as ``- [14:30] …``.

Version 2 is ``memory.json``, ``{version: 2, rolling_summary, memories: [{id, category, content, salience, created_at,
last_accessed, access_count, source, context?{tool, error_type, learned_from}}]}``, and ``logs/2026-02-15.json``,
``{date, entries: [{time, type, content, category?, tool?, error?}], summary}``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from memory_core.features.daily_logs import KINDS
from memory_core.features.imports.items import (
    MIGRATED,
    Format,
    Item,
    LeftOut,
    LogItem,
    MemoryItem,
    Skipped,
    SummaryItem,
    digest_of,
)
from memory_core.features.imports.sources import Entry, Record, Source, may_be_json, time_of, time_on, type_of, whole

_MEMORY_1, _MEMORY_2 = "MEMORY.md", "memory.json"
_LOG_1 = re.compile(r"(?:.*/)?(\d{4}-\d{2}-\d{2})\.md(?:\.migrated)?")
_LOG_2 = re.compile(r"(?:.*/)?(\d{4}-\d{2}-\d{2})\.json")
_ENTRY = re.compile(r"[-*+]\s+(?:\[(\d{4}-\d{2}-\d{2})\])?(?:\[([0-9a-f]{4,})\])?\s*(.+)", re.DOTALL)
_LOGGED = re.compile(r"[-*+]\s+\[(\d{1,2}:\d{2}(?::\d{2})?)\]\s*(.*)", re.DOTALL)
_AUTO = re.compile(r"\[auto\]\s*(?:\[([^\]]+)\]\s*)?(.+)", re.DOTALL)
_SIGN = re.compile(rb"^- \[\d{4}-\d{2}-\d{2}\]", re.MULTILINE)
_CONTEXT = {"tool": "tool", "error_type": "error_type", "learned_from": "session_id"}
_NO_TIME = "its time cannot be read"


def _memory(own_id: str, place: str, category: str, content: str, **more: Any) -> MemoryItem:
    memory_type = type_of(category) or "notes"
    fields = {"state": "open"} if memory_type == "tasks" else {}
    return MemoryItem(own_id, place, memory_type, content, fields=fields, category=category or None, **more)


# Version 1 -----------------------------------------------------------------------------------------------------------


def _files_1(source: Source) -> list[Entry]:
    """The files of the format; of one that is there under its old name and its new one, the former."""
    known = {entry.name for entry in source.entries}
    return [
        entry
        for entry in source.entries
        if (entry.base.removesuffix(MIGRATED) == _MEMORY_1 or _LOG_1.fullmatch(entry.name))
        and (not entry.name.endswith(MIGRATED) or entry.name.removesuffix(MIGRATED) not in known)
    ]


def _recognises_1(source: Source) -> bool:
    files = _files_1(source)
    logs = [entry for entry in files if _LOG_1.fullmatch(entry.name)]
    if any(_SIGN.search(source.head(entry)) for entry in files if entry not in logs):
        return True
    return any(source.head(log).lstrip().startswith(b"# Daily Log") for log in logs[:3])


def _read_1(source: Source, entry: Entry) -> Iterator[Item]:
    lines = list(_joined(source.text(entry)))
    day = _LOG_1.fullmatch(entry.name)
    yield from _memories_1(entry, lines) if day is None else _logged_1(entry, lines, day[1])


def _memories_1(entry: Entry, lines: list[str]) -> Iterator[Item]:
    category, skipped = "general", 0
    for line in lines:
        found = _ENTRY.fullmatch(line)
        if line.startswith("#"):
            category = line.lstrip("# ").strip()
        elif found is None:
            skipped += bool(line.strip())
        else:
            day, own_id, content = found[1], found[2], found[3].strip()
            said_at = time_of(day) if day else entry.modified
            place = f"{entry.name}: {' '.join(content.split())[:60]}"
            yield _memory(own_id or digest_of([day, content]), place, category, content, said_at=said_at)
    if skipped:
        yield Skipped("lines of MEMORY.md that are no entries", skipped)


def _logged_1(entry: Entry, lines: list[str], day: str) -> Iterator[Item]:
    clock, seen = "00:00", Counter[str]()
    for line in lines:
        if line.startswith("#") or not line.strip():
            continue
        found = _LOGGED.fullmatch(line)
        clock = clock if found is None else found[1]
        said = (line.removeprefix("- ") if found is None else found[2]).strip()
        auto = _AUTO.fullmatch(said)
        moment = time_on(day, clock)
        if moment is None:
            yield LeftOut(f"{entry.name}: {line[:60]}", _NO_TIME)
        elif said:
            seen[said] += 1
            identity, place = digest_of([day, clock, said, seen[said]]), f"{entry.name}, {clock}"
            if auto is None:
                yield LogItem(identity, place, moment, said)
            else:
                labels = {"category": auto[1]} if auto[1] else {}
                yield LogItem(identity, place, moment, auto[2].strip(), "auto_extract", labels)


def _joined(text: str) -> Iterator[str]:
    """The lines, those that continue a list item joined to it."""
    item: str | None = None
    for line in text.split("\n"):
        if item is not None and line.startswith((" ", "\t")) and line.strip():
            item += "\n" + line.strip()
            continue
        if item is not None:
            yield item
        item = line.strip() if line.lstrip().startswith(("- ", "* ", "+ ")) else None
        if item is None:
            yield line.strip()
    if item is not None:
        yield item


V1 = Format(
    "vibeworker-v1",
    "MEMORY.md with entries such as '- [2026-02-15] …', or logs/2026-02-15.md",
    _recognises_1,
    _files_1,
    _read_1,
    may_move_originals=True,
    moves_originals=True,
)


# Version 2 -----------------------------------------------------------------------------------------------------------


def _files_2(source: Source) -> list[Entry]:
    known = [entry for entry in source.entries if entry.base == _MEMORY_2 or _LOG_2.fullmatch(entry.name)]
    return source.entries if source.has_one_file else known


def _recognises_2(source: Source) -> bool:
    for entry in _files_2(source):
        head = source.head(entry)
        is_memory = b'"memories"' in head and b'"type": "entity"' not in head
        if is_memory and (entry.base == _MEMORY_2 or (may_be_json(head) and b'"sal' in head)):
            return True
        if _LOG_2.fullmatch(entry.name) and b'"entries"' in head and b'"date"' in head:
            return True
    return False


def _read_2(source: Source, entry: Entry) -> Iterator[Item]:
    value = whole(source, entry)
    store = Record(value)
    if not isinstance(value, dict):
        yield LeftOut(entry.name, "it is no JSON object")
    elif "entries" in store and "memories" not in store:
        yield from _logged_2(entry, store)
    else:
        summary = store.text("rolling_summary").strip()
        if summary:
            yield SummaryItem("rolling_summary", f"{entry.name}: rolling_summary", summary)
        for index, record in enumerate(store.records("memories")):
            yield _memory_2(record, f"{entry.name}: memories[{index}]")


def _memory_2(record: Record, place: str) -> Item:
    content, category, context = record.text("content").strip(), record.text("category"), record.record("context")
    if not content:
        return LeftOut(place, "it has no content")
    source = {name: context.text(given) for given, name in _CONTEXT.items()} | {"was": record.text("source")}
    return _memory(
        record.text("id") or digest_of([category, content]),
        place,
        category,
        content,
        said_at=record.time("created_at"),
        salience=record.unit("salience"),
        source={name: value for name, value in source.items() if value},
        accesses=record.count("access_count"),
        accessed_at=record.time("last_accessed"),
    )


def _logged_2(entry: Entry, log: Record) -> Iterator[Item]:
    named = _LOG_2.fullmatch(entry.name)
    day = log.text("date") or (named[1] if named else "")
    seen: Counter[str] = Counter()
    for index, record in enumerate(log.records("entries")):
        place = f"{entry.name}: entries[{index}]"
        content, clock, kind = record.text("content").strip(), record.text("time") or "00:00", record.text("type")
        moment = time_on(day, clock)
        if not content or moment is None:
            yield LeftOut(place, "it has no content" if moment else _NO_TIME)
            continue
        labels = {name: " ".join(record.text(name).split()) for name in ("category", "tool", "error")}
        labels = {name: value for name, value in labels.items() if value}
        key = f"{clock}\x1f{content}"
        seen[key] += 1
        identity = digest_of([day, key, seen[key]])
        yield LogItem(identity, place, moment, content, kind if kind in KINDS else KINDS[0], labels)
    summary, end = log.text("summary").strip(), time_on(day, "23:59")
    if summary and end is not None:
        yield LogItem(f"{day} summary", f"{entry.name}: summary", end, summary, "reflection", {"category": "summary"})


V2 = Format(
    "vibeworker-v2",
    "memory.json with 'memories', or logs/2026-02-21.json with 'entries'",
    _recognises_2,
    _files_2,
    _read_2,
    may_move_originals=True,
)
