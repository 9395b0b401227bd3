"""VibeWorker's memory, version 2: ``memory.json`` and ``logs/YYYY-MM-DD.json``.

``memory.json`` is ``{version: 2, rolling_summary, memories: [{id, category, content, salience, created_at,
last_accessed, access_count, source, context?{tool, error_type, learned_from}}]}``; a log is ``{date, entries: [{time,
type, content, category?, tool?, error?}], summary}``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from memory_core.core.errors import InvalidInput
from memory_core.features.imports.items import (
    Format,
    Item,
    LeftOut,
    LogItem,
    MemoryItem,
    Passed,
    SummaryItem,
    digest_of,
)
from memory_core.features.imports.sources import (
    Entry,
    Source,
    count_of,
    mapping_of,
    records_of,
    text_of,
    time_of,
    time_on,
    type_of,
    unit_of,
    whole,
)
from memory_core.features.log_entries import KINDS

MIGRATED = ".migrated"
_V1_MEMORY = "MEMORY.md"
_V1_LOG = re.compile(r"(?:.*/)?(\d{4}-\d{2}-\d{2})\.md(?:\.migrated)?")
_ENTRY = re.compile(r"[-*+]\s+(?:\[(\d{4}-\d{2}-\d{2})\])?(?:\[([0-9a-f]{4,})\])?\s*(.+)", re.DOTALL)
_LOGGED = re.compile(r"[-*+]\s+\[(\d{1,2}:\d{2}(?::\d{2})?)\]\s*(.*)", re.DOTALL)
_AUTO = re.compile(r"\[auto\]\s*(?:\[([^\]]+)\]\s*)?(.+)", re.DOTALL)
_SIGN = re.compile(rb"^- \[\d{4}-\d{2}-\d{2}\]", re.MULTILINE)
_NO_ENTRY = "lines of MEMORY.md that are no entries"


def _recognises_v1(source: Source) -> bool:
    memories = [entry for entry in source.entries if entry.base.removesuffix(MIGRATED) == _V1_MEMORY]
    if any(_SIGN.search(source.head(entry)) for entry in memories):
        return True
    logs = [entry for entry in source.entries if _log_day(entry) is not None]
    return any(source.head(log).lstrip().startswith(b"# Daily Log") for log in logs[:3])


def _read_v1(source: Source) -> Iterator[Item]:
    for entry in _originals_v1(source, migrated=True):
        try:
            text = source.text(entry)
        except InvalidInput as error:
            yield LeftOut(entry.name, error.message)
            continue
        day = _log_day(entry)
        yield from _memories_v1(entry, text) if day is None else _logged(entry, text, day)


def _originals_v1(source: Source, *, migrated: bool = False) -> list[Entry]:
    """The files of the format; those renamed before only where ``migrated``, and none beside one of its old name."""
    known = {entry.name for entry in source.entries}
    return [
        entry
        for entry in source.entries
        if (entry.base.removesuffix(MIGRATED) == _V1_MEMORY or _log_day(entry) is not None)
        and (not entry.name.endswith(MIGRATED) or (migrated and entry.name.removesuffix(MIGRATED) not in known))
    ]


def _log_day(entry: Entry) -> str | None:
    found = _V1_LOG.fullmatch(entry.name)
    return None if found is None else found[1]


def _memories_v1(entry: Entry, text: str) -> Iterator[Item]:
    memory_type, category, passed = "notes", "general", 0
    for number, line in enumerate(_joined(text), start=1):
        if line.startswith("#"):
            category = line.lstrip("# ").strip()
            memory_type = type_of(category) or "notes"
            continue
        found = _ENTRY.fullmatch(line)
        if found is None:
            passed += bool(line.strip())
            continue
        day, own_id, content = found[1], found[2], found[3].strip()
        yield MemoryItem(
            own_id or digest_of([day, content]),
            f"{entry.name}, entry {number}",
            memory_type,
            content,
            fields={"state": "open"} if memory_type == "tasks" else {},
            said_at=time_of(day) if day else entry.modified,
            category=category,
        )
    if passed:
        yield Passed(_NO_ENTRY, passed)


def _logged(entry: Entry, text: str, day: str) -> Iterator[Item]:
    clock, seen = "00:00", dict[str, int]()
    for line in _joined(text):
        if line.startswith("#") or not line.strip():
            continue
        found = _LOGGED.fullmatch(line)
        clock = clock if found is None else found[1]
        said = (line.removeprefix("- ") if found is None else found[2]).strip()
        auto = _AUTO.fullmatch(said)
        moment = time_on(day, clock)
        if moment is None:
            yield LeftOut(f"{entry.name}: {line[:60]}", "its time cannot be read")
        elif said:
            seen[said] = seen.get(said, 0) + 1
            yield LogItem(
                digest_of([day, clock, said, seen[said]]),
                f"{entry.name}, {clock}",
                moment,
                said if auto is None else auto[2].strip(),
                "event" if auto is None else "auto_extract",
                {"category": auto[1]} if auto is not None and auto[1] else {},
            )


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
    _recognises_v1,
    _read_v1,
    _originals_v1,
    moves=True,
)


_MEMORY = "memory.json"
_LOG = re.compile(r"(?:.*/)?(\d{4}-\d{2}-\d{2})\.json")
_CONTEXT = {"tool": "tool", "error_type": "error_type", "learned_from": "session_id"}


def _recognises(source: Source) -> bool:
    for entry in _originals(source):
        head = source.head(entry)
        if entry.base == _MEMORY and b'"memories"' in head and b'"type": "entity"' not in head:
            return True
        if _LOG.fullmatch(entry.name) and b'"entries"' in head and b'"date"' in head:
            return True
    return len(source.entries) == 1 and b'"memories"' in (head := source.head(source.entries[0])) and b'"sal' in head


def _originals(source: Source) -> list[Entry]:
    return [entry for entry in source.entries if entry.base == _MEMORY or _LOG.fullmatch(entry.name)]


def _read(source: Source) -> Iterator[Item]:
    single = len(source.entries) == 1 and not source.is_folder
    for entry in source.entries if single else _originals(source):
        try:
            store = whole(source, entry)
        except InvalidInput as error:
            spare = f" {_MEMORY}.bak beside it may be sound." if entry.base == _MEMORY else ""
            yield LeftOut(entry.name, error.message + spare)
            continue
        if not isinstance(store, dict):
            yield LeftOut(entry.name, "it is no JSON object")
        elif "entries" in store and "memories" not in store:
            yield from _log(entry, store)
        else:
            yield from _memories(entry, store)


def _memories(entry: Entry, store: Mapping[str, Any]) -> Iterator[Item]:
    summary = text_of(store, "rolling_summary")
    if summary:
        yield SummaryItem("rolling_summary", f"{entry.name}: rolling_summary", summary.strip())
    for index, record in enumerate(records_of(store.get("memories"))):
        place = f"{entry.name}: memories[{index}]"
        content = text_of(mapping_of(record), "content").strip()
        if not content:
            yield LeftOut(place, "it has no content")
            continue
        yield _memory(record, content, place)


def _memory(record: Mapping[str, Any], content: str, place: str) -> MemoryItem:
    category = text_of(record, "category")
    memory_type = type_of(category) or "notes"
    context = mapping_of(record.get("context"))
    source = {name: text_of(context, given) for given, name in _CONTEXT.items()} | {"was": text_of(record, "source")}
    return MemoryItem(
        text_of(record, "id") or digest_of([category, content]),
        place,
        memory_type,
        content,
        fields={"state": "open"} if memory_type == "tasks" else {},
        said_at=time_of(record.get("created_at")),
        salience=unit_of(record.get("salience")),
        category=category or None,
        source={name: value for name, value in source.items() if value},
        accesses=count_of(record.get("access_count")),
        accessed_at=time_of(record.get("last_accessed")),
    )


def _log(entry: Entry, log: Mapping[str, Any]) -> Iterator[Item]:
    named = _LOG.fullmatch(entry.name)
    day = text_of(log, "date") or (named[1] if named else "")
    seen: dict[str, int] = {}
    for index, record in enumerate(records_of(log.get("entries"))):
        place = f"{entry.name}: entries[{index}]"
        given = mapping_of(record)
        content, clock = text_of(given, "content").strip(), text_of(given, "time") or "00:00"
        moment = time_on(day, clock)
        if not content or moment is None:
            yield LeftOut(place, "it has no content" if moment else "its time cannot be read")
            continue
        kind = text_of(given, "type")
        labels = {name: " ".join(text_of(given, name).split()) for name in ("category", "tool", "error")}
        key = f"{clock}\x1f{content}"
        seen[key] = seen.get(key, 0) + 1
        yield LogItem(
            digest_of([day, key, seen[key]]),
            place,
            moment,
            content,
            kind if kind in KINDS else KINDS[0],
            {name: value for name, value in labels.items() if value},
        )
    summary, end = text_of(log, "summary").strip(), time_on(day, "23:59")
    if summary and end is not None:
        yield LogItem(f"{day} summary", f"{entry.name}: summary", end, summary, "reflection", {"category": "summary"})


V2 = Format(
    "vibeworker-v2",
    "memory.json with 'memories', or logs/2026-02-21.json with 'entries'",
    _recognises,
    _read,
    _originals,
)
