"""The two summaries of a directory as files: one line (L0) and a page (L1), and which part of them is whose.

L0 is a line; where it was generated, a comment below it holds the line's hash. Without that comment, or with another
line above it, a person or a model wrote it. L1 is prose by a person or a model, a comment line, and below it the
generated list. A page without the comment line belongs to its author whole. Pure; what is listed is decided by
``commit.directory_pages``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from memory_core.core.frozen import frozen
from memory_core.core.memory.names import fold, short_hash, summary_line
from memory_core.core.memory.uri import ABSTRACT_NAME, MemoryUri

ENTRIES_LIMIT = 24
ABSTRACT_LIMIT_CHARS = 256
LIST_LIMIT_CHARS = 6_000
_ENTRY_CHARS = 140
_LEAST_LINE_CHARS = 30
_NAMES_SHOWN = 8
_NAME_CHARS = 48

LIST_MARK = "<!-- generated below this line; what is above it is kept -->"
_COMMENT = re.compile(r"<!--.*?(?:-->|$)", re.DOTALL)
_LIST_MARK = re.compile(rf"^{re.escape(LIST_MARK)}[ \t]*\r?$", re.MULTILINE)
_ABSTRACT_MARK = re.compile(r"<!-- generated ([0-9a-f]{8}) -->\s*\Z")
_ENTRY = re.compile(r"- (?P<strong>\*\*)?(?P<name>[^:*/]+\.md)(?(strong)\*\*)(?:: (?P<line>.*))?")


@frozen
class Listed:
    """A memory on its directory's page: file name, one line about it, and whether it matters most."""

    name: str
    line: str = ""
    important: bool = False


@frozen
class Contents:
    """What is in a directory: how many memories, those listed (newest first), and folders of other memories.

    ``private`` of them are counted and never listed: everybody reads a summary.
    """

    label: str
    total: int
    listed: tuple[Listed, ...] = ()
    folders: tuple[str, ...] = ()
    private: int = 0


@frozen
class Page:
    """An L1 in its parts; ``listed`` is None where there is no generated part."""

    authored: str
    listed: tuple[Listed, ...] | None


def abstract_line(text: str) -> str:
    """An L0 as a reader wants it: without the comment."""
    return _ABSTRACT_MARK.sub("", text).strip()


def is_generated(text: str) -> bool:
    """Whether an L0 was generated and is as it was; a blank one counts, so that it is filled again."""
    mark = _ABSTRACT_MARK.search(text)
    line = abstract_line(text)
    return not line or (mark is not None and mark[1] == short_hash(line))


def still_says(text: str, contents: Contents, gone: Iterable[str]) -> bool:
    """Whether the generated L0 of a large directory still holds: of this size, and naming none of the removed files.

    It need not name the newest, so that not every commit has to write it.
    """
    line = abstract_line(text)
    return (
        contents.total > ENTRIES_LIMIT
        and line.startswith(f"{_lead(contents)}: ")
        and not any(_shown(name) in line for name in gone)
    )


def render_abstract(contents: Contents) -> str:
    """A generated L0: ``preferences (12): Python code style, 咖啡, …``; then ``preferences (120+): …``."""
    names = [_shown(item.name) for item in contents.listed[:_NAMES_SHOWN]]
    names += [f"{folder}/" for folder in contents.folders]
    shown: list[str] = []
    lead = "" if contents.folders and contents.total <= _NAMES_SHOWN else _lead(contents)
    for name in names:
        if len(lead) + 2 + len(", ".join([*shown, name, "…"])) > ABSTRACT_LIMIT_CHARS:
            break
        shown.append(name)
    if len(shown) < contents.total + len(contents.folders) and shown:
        shown.append("…")
    line = ": ".join(part for part in (lead, ", ".join(shown)) if part)
    return f"{line}\n<!-- generated {short_hash(line)} -->\n"


def parse_page(text: str) -> Page:
    """An L1 in its parts; lines below the comment that list no memory are dropped."""
    mark = _LIST_MARK.search(text)
    if mark is None:
        return Page(text, None)
    found = (_ENTRY.fullmatch(line) for line in text[mark.end() :].splitlines())
    entries = {match["name"]: match for match in found if match is not None}
    items = (Listed(name, match["line"] or "", match["strong"] is not None) for name, match in entries.items())
    return Page(text[: mark.start()].rstrip("\r\n"), tuple(items))


def render_page(authored: str, contents: Contents) -> str:
    """An L1: the authored prose, the comment, and the list with a line for what it leaves out."""
    prose = authored.rstrip("\r\n")
    head = f"{prose}\n\n" if prose.strip() else ""
    title = contents.label if contents.folders and not contents.total else f"{contents.label} ({contents.total})"
    lines = [LIST_MARK, f"# {title}", ""]
    used = sum(len(line) + 1 for line in lines)
    shown = 0
    for item in contents.listed[:ENTRIES_LIMIT]:
        name = f"**{item.name}**" if item.important else item.name
        line = f"- {name}: {item.line}" if item.line else f"- {name}"
        used += len(line) + 1
        if used > LIST_LIMIT_CHARS:
            break
        lines.append(line)
        shown += 1
    if contents.total - contents.private > shown:
        lines.append(f"- … and {contents.total - contents.private - shown} more")
    if contents.private:
        lines.append(f"- … and {contents.private} private to a project")
    lines += [f"- {folder}/" for folder in contents.folders]
    return head + "\n".join(lines).rstrip("\n") + "\n"


def own_words(name: str, text: str | None) -> str | None:
    """What a person or a model wrote on a page, which is what the ledger keeps of it; None for nothing.

    Args:
        name: The file's, which tells L0 from L1.
        text: The whole file.
    """
    if text is None:
        return None
    if name == ABSTRACT_NAME:
        return None if is_generated(text) else text
    prose = parse_page(text).authored.rstrip("\r\n")
    return f"{prose}\n" if prose.strip() else None


def with_own_words(name: str, text: str | None, words: str | None) -> str:
    """A page with other words of a person or a model on it; a new one, and one without any, is given its list later."""
    if name == ABSTRACT_NAME:
        return words or ""
    prose = (words or "").rstrip("\r\n")
    text = f"{LIST_MARK}\n" if text is None else text
    mark = _LIST_MARK.search(text)
    if mark is None:
        return f"{prose}\n"
    listing = text[mark.start() :]
    return f"{prose}\n\n{listing}" if prose.strip() else listing


def recorded(uri: MemoryUri, text: str | None) -> str | None:
    """What the ledger keeps of a file: all of it, but of a directory's page only what somebody wrote."""
    return own_words(uri.name, text) if uri.is_summary else text


def readable(text: str) -> str:
    """An L1 without its comment line, for a reader."""
    return _LIST_MARK.sub("", text).strip("\r\n")


def listed(name: str, abstract: str, *, important: bool) -> Listed:
    """A memory's line; an abstract that only repeats the name is left out."""
    line = summary_line(_COMMENT.sub("", abstract), max(_LEAST_LINE_CHARS, _ENTRY_CHARS - len(name)))
    repeats = fold(line).rstrip(" .。") == fold(name.removesuffix(".md"))
    return Listed(name, "" if repeats else line, important)


def _lead(contents: Contents) -> str:
    """Name and size; a large size in steps of a tenth of it, so that the line stays true for a while."""
    label, total = summary_line(contents.label, _NAME_CHARS), contents.total
    if total > ENTRIES_LIMIT:
        step = 10 ** max(1, len(str(total)) - 2)
        return f"{label} ({total // step * step}+)"
    return f"{label} ({total})"


def _shown(name: str) -> str:
    return summary_line(name.removesuffix(".md"), _NAME_CHARS)
