"""Markdown: a file or a folder of it, also ``memory.md`` and ``learnings.md`` as agents keep them.

Below a heading that names a kind of memory ("Known Facts", "用户偏好"), and in ``memory.md`` and ``learnings.md``
everywhere, each list item and each paragraph is a memory. Elsewhere a section, heading and text, is one note. Front
matter gives type, title, tags, times and importance; with a type, the whole file is one memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memory_core.core.errors import InvalidInput
from memory_core.core.memory.trailer import split
from memory_core.features.imports.items import Format, Item, LeftOut, MemoryItem, digest_of
from memory_core.features.imports.sources import Entry, Source, time_of, type_of, unit_of

_ENDINGS = (".md", ".markdown")
#: Files that agents keep as lists of memories, and the type of what no heading names.
_KEPT = {"memory": "notes", "memories": "notes", "learnings": "patterns", "lessons": "patterns"}
_FRONT_LIMIT_LINES = 200
_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
_BULLET = re.compile(r"(?:[-*+]|\d{1,4}[.)])\s+(?:\[(?P<box>[ xX])\]\s+)?(?P<text>.*)")
_DATED = re.compile(r"\[?(\d{4}-\d{2}-\d{2})\]?\s*[:：-]?\s+(?=\S)")
_KEY = re.compile(r"([A-Za-z_][\w -]*?)\s*:(?:\s+(.*))?$")


@dataclass(frozen=True, slots=True)
class _Section:
    headings: tuple[str, ...]
    lines: Sequence[str]
    number: int


@dataclass(frozen=True, slots=True)
class _About:
    """What holds for all memories of a file."""

    entry: Entry
    memory_type: str | None
    title: str | None
    said_at: datetime | None
    salience: float | None
    confidence: float | None
    tags: tuple[str, ...]

    def memory(self, identity: Sequence[str], number: int, memory_type: str, content: str, **more: Any) -> MemoryItem:
        return MemoryItem(
            digest_of([self.entry.name, *identity]),
            f"{self.entry.name}:{number}",
            memory_type,
            content,
            **{
                "said_at": self.said_at,
                "salience": self.salience,
                "confidence": self.confidence,
                "tags": self.tags,
                "source": {"file": self.entry.name},
                **more,
            },
        )


def _recognises(source: Source) -> bool:
    return any(entry.base.lower().endswith(_ENDINGS) for entry in source.entries)


def _read(source: Source) -> Iterator[Item]:
    for entry in source.entries:
        if not entry.base.lower().endswith(_ENDINGS) and (source.is_folder or len(source.entries) > 1):
            continue
        try:
            text = source.text(entry)
        except InvalidInput as error:
            yield LeftOut(entry.name, error.message)
            continue
        if split(text).trailer is not None:
            yield LeftOut(entry.name, "it is a memory of Runebook: bring it with runebook export and import")
        else:
            yield from _file(entry, text)


def _file(entry: Entry, text: str) -> Iterator[Item]:
    front, lines, skipped = _front_matter(text.split("\n"))
    about = _about(entry, front)
    stem = entry.base.rpartition(".")[0]
    if about.memory_type is not None:
        content = "\n".join(lines).strip()
        if content:
            yield about.memory(["file"], skipped + 1, about.memory_type, content, name=about.title or stem)
        return
    kept = _KEPT.get(stem.casefold())
    seen: dict[str, int] = {}
    for section in _sections(lines, skipped):
        named = next((name for name in reversed(section.headings) if type_of(name)), None)
        memory_type = kept if named is None else type_of(named)
        if memory_type is None:
            yield from _note(about, section, stem, seen)
        else:
            yield from _listed(about, section, memory_type, named, seen)


def _note(about: _About, section: _Section, stem: str, seen: dict[str, int]) -> Iterator[Item]:
    content = "\n".join(section.lines).strip()
    if not content:
        return
    path = "\x1f".join(section.headings)
    seen[path] = seen.get(path, 0) + 1
    title = section.headings[-1] if section.headings else about.title or stem
    yield about.memory([path, str(seen[path])], section.number, "notes", content, name=title)


def _listed(
    about: _About, section: _Section, memory_type: str, named: str | None, seen: dict[str, int]
) -> Iterator[Item]:
    heading = section.headings[-1] if section.headings else None
    for number, block in _blocks(section):
        found = _BULLET.match(block[0])
        first = block[0] if found is None else found["text"]
        dated = _DATED.match(first)
        moment = time_of(dated[1]) if dated else None
        first = first[dated.end() :] if dated and moment else first
        content = "\n".join([first, *block[1:]]).strip()
        if not content or content.strip("_*()（） ").casefold() in ("", "none", "暂无记录", "empty"):
            continue
        path = "\x1f".join([*section.headings, content])
        seen[path] = seen.get(path, 0) + 1
        if seen[path] > 1:
            continue
        done = found is not None and (found["box"] or " ") != " "
        more = {"fields": {"state": "done" if done else "open"}} if memory_type == "tasks" else {}
        category = named or heading
        times = {} if moment is None else {"said_at": moment}
        yield about.memory([path], number, memory_type, content, category=category, **times, **more)


def _blocks(section: _Section) -> Iterator[tuple[int, list[str]]]:
    """List items at the margin with what is indented below them, and paragraphs; each with its line's number."""
    block: list[str] = []
    begun, fence, is_item = 0, None, False
    for number, line in enumerate(section.lines, start=section.number):
        mark = _FENCE.match(line)
        opens = fence is None and _BULLET.match(line) is not None
        ends = fence is None and not line.strip() and not is_item
        leaves = is_item and fence is None and block and not block[-1].strip() and line[:1] not in (" ", "\t", "")
        if block and (opens or ends or leaves):
            yield begun, block
            block = []
        if line.strip() or block:
            begun = begun if block else number
            is_item = is_item if block else opens
            block.append(line.removeprefix("  ") if is_item and block else line)
        if mark is not None:
            fence = mark[1][0] if fence is None else (None if mark[1][0] == fence else fence)
    if block:
        yield begun, block


def _sections(lines: Sequence[str], skipped: int) -> Iterator[_Section]:
    headings: list[tuple[int, str]] = []
    body: list[str] = []
    begun, fence = skipped + 1, None
    for number, line in enumerate(lines, start=skipped + 1):
        mark = _FENCE.match(line)
        if mark is not None:
            fence = mark[1][0] if fence is None else (None if mark[1][0] == fence else fence)
        heading = _HEADING.match(line) if fence is None else None
        if heading is None:
            body.append(line)
            continue
        yield _Section(tuple(name for _, name in headings), body, begun)
        level = len(heading[1])
        headings = [(depth, name) for depth, name in headings if depth < level]
        headings.append((level, heading[2].strip("*_ ")))
        body, begun = [], number + 1
    yield _Section(tuple(name for _, name in headings), body, begun)


def _about(entry: Entry, front: Mapping[str, Any]) -> _About:
    def first(*names: str) -> Any:
        return next((front[name] for name in names if front.get(name)), None)

    tags = first("tags", "tag") or []
    listed = tags if isinstance(tags, list) else re.split(r"[,，\s]+", tags)
    title = first("title", "name")
    return _About(
        entry,
        type_of(first("type", "memory_type", "category", "kind")),
        title if isinstance(title, str) else None,
        time_of(first("created", "created_at", "date", "timestamp")) or entry.modified,
        _number(first("salience", "importance")),
        _number(first("confidence")),
        tuple(dict.fromkeys(tag.strip("# ") for tag in listed if tag.strip("# "))),
    )


def _number(value: Any) -> float | None:
    try:
        return unit_of(float(value)) if isinstance(value, str) else None
    except ValueError:
        return None


def _front_matter(lines: Sequence[str]) -> tuple[dict[str, Any], Sequence[str], int]:
    """Keys with a text or a list of texts, the lines below, and how many stand above those.

    Only this much of YAML: what else is there stays unread, and can do nothing.
    """
    end = next((at for at, line in enumerate(lines[1:_FRONT_LIMIT_LINES], start=1) if line.rstrip() == "---"), None)
    if not lines or lines[0].rstrip() != "---" or end is None:
        return {}, lines, 0
    front: dict[str, Any] = {}
    key = ""
    for line in lines[1:end]:
        found = _KEY.match(line)
        if found is not None:
            key, value = found[1].strip().casefold().replace("-", "_"), (found[2] or "").strip()
            inner = value[1:-1] if value.startswith("[") and value.endswith("]") else None
            front[key] = _bare(value) if inner is None else [_bare(item) for item in inner.split(",")]
        elif key and line.strip().startswith("- "):
            known = front.get(key)
            front[key] = [*(known if isinstance(known, list) else []), _bare(line.strip()[2:])]
    return front, lines[end + 1 :], end + 1


def _bare(value: str) -> str:
    value = value.strip()
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


FORMAT = Format(
    "markdown",
    "a .md file, or a folder that holds some",
    _recognises,
    _read,
    lambda source: [entry for entry in source.entries if entry.base.lower().endswith(_ENDINGS)],
)
