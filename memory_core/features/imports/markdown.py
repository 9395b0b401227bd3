"""Markdown: a file or a folder of it, also ``memory.md`` and ``learnings.md`` as agents keep them.

Below a heading that names a kind of memory ("Known Facts", "用户偏好"), and in ``memory.md`` and ``learnings.md``
everywhere, each list item and each paragraph is a memory. Elsewhere a section, heading and text, is one note. Front
matter gives type, title, tags, times and importance; with a type, the whole file is one memory.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import PurePosixPath
from typing import Any

import yaml

from memory_core.core.memory.trailer import split
from memory_core.features.imports.items import Format, Item, LeftOut, MemoryItem, digest_of
from memory_core.features.imports.sources import Entry, Source, time_of, type_of, unit_of

_ENDINGS = (".md", ".markdown")
#: Files that agents keep as lists of memories, and the type of what no heading names.
_KEPT = {"memory": "notes", "memories": "notes", "learnings": "patterns", "lessons": "patterns"}
_FRONT_LIMIT_LINES, _FRONT_LIMIT_CHARS = 200, 20_000
#: Of a heading; each section below it holds it once more.
_HEADING_LIMIT_CHARS = 300
_BULLET = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s+(?:\[(?P<box>[ xX])\]\s+)?")
_DATED = re.compile(r"\[?(\d{4}-\d{2}-\d{2})\]?\s*[:：-]?\s+(?=\S)")
#: Between these marks stand our own rules for a host's model, which are nobody's memories.
RULES_BEGIN, RULES_END = "<!-- runebook:begin -->", "<!-- runebook:end -->"
_BEGIN, _END = re.escape(RULES_BEGIN), re.escape(RULES_END)
#: No text is read twice for it, however many begin and never end.
RULES = rf"{_BEGIN}(?:(?!{_BEGIN}|{_END}).)*+{_END}"
_RULES = re.compile(RULES, re.DOTALL)
_COMMENT = re.compile(r"<!--(?:(?!-->).)*-->", re.DOTALL)
_NOTHING = frozenset({"", "none", "暂无记录", "empty"})


@dataclass(frozen=True, slots=True)
class _Section:
    """A section.

    Its headings, outermost first; its lines, from ``begin`` to before ``end``; its blocks, as pairs of lines.
    """

    headings: tuple[str, ...]
    begin: int
    end: int
    blocks: Sequence[tuple[int, int]]

    def key(self, *more: str) -> str:
        return "\x1f".join([*self.headings, *more])


def _files(source: Source) -> list[Entry]:
    return source.entries if source.has_one_file else [entry for entry in source.entries if _is_markdown(entry)]


def _is_markdown(entry: Entry) -> bool:
    return entry.base.lower().endswith(_ENDINGS)


def _read(source: Source, entry: Entry) -> Iterator[Item]:
    text = _RULES.sub(lambda found: "\n" * found[0].count("\n"), source.text(entry))  # places stay what they are
    if split(text).trailer is not None:
        yield LeftOut(entry.name, "it is a memory of Runebook: bring it with runebook export and import")
        return
    front, begin = _front_matter(text)
    whole, stem = _described(entry, front), PurePosixPath(entry.base).stem
    lines = text.split("\n")
    if whole.memory_type:
        content = "\n".join(lines[begin:]).strip()
        if content:
            yield _memory(whole, begin, "file", content=content, name=whole.name or stem)
        return
    kept = _KEPT.get(stem.casefold())
    seen: Counter[str] = Counter()
    for section in _sections(lines, begin):
        named = next((name for name in reversed(section.headings) if type_of(name)), None)
        memory_type = kept if named is None else type_of(named)
        if memory_type is not None:
            yield from _listed(replace(whole, memory_type=memory_type, category=named), lines, section, seen)
            continue
        content, key = "\n".join(lines[section.begin : section.end]).strip(), section.key()
        if content and not _COMMENT.fullmatch(content):
            seen[key] += 1
            title = section.headings[-1] if section.headings else whole.name or stem
            note = {"memory_type": "notes", "content": content, "name": title}
            yield _memory(whole, section.begin, key, str(seen[key]), **note)


def _listed(whole: MemoryItem, lines: Sequence[str], section: _Section, seen: Counter[str]) -> Iterator[Item]:
    """Each list item and each paragraph of a section, one that is repeated once."""
    heading = section.headings[-1] if section.headings else None
    for begin, end in section.blocks:
        bullet = _BULLET.match(lines[begin])
        first = lines[begin][bullet.end() :] if bullet else lines[begin]
        dated = _DATED.match(first)
        moment = time_of(dated[1]) if dated else None
        first = first[dated.end() :] if dated and moment else first
        below = (line.removeprefix("  ") if bullet else line for line in lines[begin + 1 : end])
        content = "\n".join([first, *below]).strip()
        key = section.key(content)
        seen[key] += 1
        if seen[key] > 1 or _COMMENT.fullmatch(content) or content.strip("_*()（） ").casefold() in _NOTHING:
            continue
        done = bullet is not None and (bullet["box"] or " ") != " "
        yield _memory(
            whole,
            begin,
            key,
            content=content,
            name=None,
            category=whole.category or heading,
            said_at=moment or whole.said_at,
            fields={"state": "done" if done else "open"} if whole.memory_type == "tasks" else {},
        )


def _memory(whole: MemoryItem, line: int, *identity: str, **more: Any) -> MemoryItem:
    """A part of a file as a memory of its own, which begins at a line."""
    file = whole.place
    own, former = digest_of([*identity]), digest_of([file, *identity])
    return replace(whole, item_id=own, former_id=former, place=f"{file}:{line + 1}", **more)


def _sections(lines: Sequence[str], begin: int) -> Iterator[_Section]:
    from markdown_it import MarkdownIt

    # A line of dashes below a text makes no heading of it, and a definition of a link is text like any other.
    parser = MarkdownIt("commonmark").disable(["lheading", "reference"])
    parser.core.ruler.disable("inline")
    tokens = parser.parse("\n".join(lines[begin:]))
    headings: list[tuple[int, str]] = []
    blocks: list[tuple[int, int]] = []
    start = begin
    for token, inner in zip_longest(tokens, tokens[1:]):
        is_block = token.level == 0 and token.type not in ("bullet_list_open", "ordered_list_open", "hr")
        if token.map is None or not (is_block or (token.level == 1 and token.type == "list_item_open")):
            continue
        first, end = token.map[0] + begin, token.map[1] + begin
        if token.type != "heading_open":
            joins = is_block and bool(blocks) and blocks[-1][1] == first and not _BULLET.match(lines[blocks[-1][0]])
            blocks.append((blocks.pop()[0] if joins else first, end))  # a text and the code below it are one
            continue
        yield _Section(tuple(name for _, name in headings), start, first, blocks)
        level = int(token.tag[1:])
        headings = [(depth, name) for depth, name in headings if depth < level]
        headings.append((level, inner.content.strip("*_ ")[:_HEADING_LIMIT_CHARS] if inner else ""))
        blocks, start = [], end
    yield _Section(tuple(name for _, name in headings), start, len(lines), blocks)


def _described(entry: Entry, front: Mapping[str, Any]) -> MemoryItem:
    """A file as one memory without content, and without a type where it names none."""

    def first(*names: str) -> Any:
        return next((front[name] for name in names if front.get(name)), None)

    tags, title = first("tags", "tag") or (), first("title", "name")
    listed = (
        re.split(r"[,，]" if re.search("[,，]", tags) else r"\s+", tags)
        if isinstance(tags, str)
        else [tag for tag in tags if isinstance(tag, str)]
    )
    return MemoryItem(
        item_id="",
        place=entry.name,
        memory_type=type_of(first("type", "memory_type", "category", "kind")) or "",
        content="",
        name=title if isinstance(title, str) else None,
        said_at=time_of(first("created", "created_at", "date", "timestamp")) or entry.modified,
        salience=_number(first("salience", "importance")),
        confidence=_number(first("confidence")),
        tags=tuple(dict.fromkeys(tag.strip("# ") for tag in listed if tag.strip("# "))),
        source={"file": entry.name},
    )


def _number(value: Any) -> float | None:
    try:
        return unit_of(float(value)) if isinstance(value, str) else None
    except ValueError:
        return None


def _front_matter(text: str) -> tuple[dict[str, Any], int]:
    """Its keys with texts and lists of texts, and the lines that it takes; none where it is no YAML."""
    lines = text[:_FRONT_LIMIT_CHARS].split("\n")[:_FRONT_LIMIT_LINES]
    end = next((at for at, line in enumerate(lines[1:], start=1) if line.rstrip() == "---"), None)
    if lines[0].rstrip() != "---" or end is None:
        return {}, 0
    try:
        front = yaml.load("\n".join(lines[1:end]), Loader=yaml.BaseLoader)  # texts and lists of them, no other types
    except (yaml.YAMLError, RecursionError):  # such as a title with a colon
        told = (line.partition(":") for line in lines[1:end])
        front = {key: value.strip().strip("[]\"'") for key, _, value in told}
    if not isinstance(front, dict):
        return {}, 0
    # What is nested is nobody's key here, and a few aliases make more of it than any memory holds.
    flat = {
        key: [each for each in value if isinstance(each, str)]
        for key, value in front.items()
        if isinstance(value, list)
    }
    flat |= {key: value for key, value in front.items() if isinstance(value, str)}
    return {str(key).strip().casefold().replace("-", "_"): value for key, value in flat.items()}, end + 1


FORMAT = Format(
    "markdown",
    "a .md file, or a folder that holds some",
    lambda source: any(map(_is_markdown, source.entries)),
    _files,
    _read,
    may_move_originals=True,
    ids_per_file=True,
)
