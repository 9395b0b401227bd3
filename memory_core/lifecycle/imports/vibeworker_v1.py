"""VibeWorker's memory, version 1: ``MEMORY.md`` and ``logs/YYYY-MM-DD.md``.

::

    ## 用户偏好
    - [2026-02-15][a1b2c3d4] 喜欢简洁的代码

    # Daily Log - 2026-02-15
    - [14:30] [auto] [preferences] 喜欢在下午开会

Its own migration renames each file to ``*.migrated``; files that bear that name already are read like the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memory_core.errors import InvalidInput
from memory_core.lifecycle.imports.items import Format, Item, LeftOut, LogItem, MemoryItem, Passed, digest_of
from memory_core.lifecycle.imports.sources import Entry, Source
from memory_core.lifecycle.imports.values import time_of, time_on, type_of

MIGRATED = ".migrated"
_MEMORY = "MEMORY.md"
_LOG = re.compile(r"(?:.*/)?(\d{4}-\d{2}-\d{2})\.md(?:\.migrated)?")
_ENTRY = re.compile(r"[-*+]\s+(?:\[(\d{4}-\d{2}-\d{2})\])?(?:\[([0-9a-f]{4,})\])?\s*(.+)", re.DOTALL)
_LOGGED = re.compile(r"[-*+]\s+\[(\d{1,2}:\d{2}(?::\d{2})?)\]\s*(.*)", re.DOTALL)
_AUTO = re.compile(r"\[auto\]\s*(?:\[([^\]]+)\]\s*)?(.+)", re.DOTALL)
_SIGN = re.compile(rb"^- \[\d{4}-\d{2}-\d{2}\]", re.MULTILINE)
_NO_ENTRY = "lines of MEMORY.md that are no entries"


def _recognises(source: Source) -> bool:
    memories = [entry for entry in source.entries if entry.base.removesuffix(MIGRATED) == _MEMORY]
    if any(_SIGN.search(source.head(entry)) for entry in memories):
        return True
    logs = [entry for entry in source.entries if _log_day(entry) is not None]
    return any(source.head(log).lstrip().startswith(b"# Daily Log") for log in logs[:3])


def _read(source: Source) -> Iterator[Item]:
    for entry in _originals(source, migrated=True):
        try:
            text = source.text(entry)
        except InvalidInput as error:
            yield LeftOut(entry.name, error.message)
            continue
        day = _log_day(entry)
        yield from _memories(entry, text) if day is None else _logged(entry, text, day)


def _originals(source: Source, *, migrated: bool = False) -> list[Entry]:
    """The files of the format; those renamed before only where ``migrated``, and none beside one of its old name."""
    known = {entry.name for entry in source.entries}
    return [
        entry
        for entry in source.entries
        if (entry.base.removesuffix(MIGRATED) == _MEMORY or _log_day(entry) is not None)
        and (not entry.name.endswith(MIGRATED) or (migrated and entry.name.removesuffix(MIGRATED) not in known))
    ]


def _log_day(entry: Entry) -> str | None:
    found = _LOG.fullmatch(entry.name)
    return None if found is None else found[1]


def _memories(entry: Entry, text: str) -> Iterator[Item]:
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


FORMAT = Format(
    "vibeworker-v1",
    "MEMORY.md with entries such as '- [2026-02-15] …', or logs/2026-02-15.md",
    _recognises,
    _read,
    _originals,
    moves=True,
)
