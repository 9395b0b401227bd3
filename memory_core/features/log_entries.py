"""A day of a log as its month's summary shows it: which entries go in whole, and which only with what says most.

An entry with a number, a name or a failure goes in whole; of the others what says most. Equal entries are one line
with all their times. What has no room is counted. Lines that belong to a project stand below its name, so that who
reads on for everybody can leave them out. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any

from memory_core.core.memory.trailer import body_digest
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.text.extractive_summary import condense, joined, names, numbers, sentences

MEMORY_TYPE = "daily_logs"
KINDS = ("event", "auto_extract", "reflection")
DEFAULT_SALIENCE = 0.5
_FOLDER = "logs"
_DAY = re.compile(r"(\d{4}-\d\d-\d\d)\.md")
_ITEM = re.compile(r"[-*+] (?:(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)(?::[0-5]\d)?(?: |$))?")
_META = re.compile(r" {2}<!-- (?P<json>\{.*\}) -->")
_LABELS = ("category", "tool", "error", "project", "session_id")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry.

    Attributes:
        text: What happened; a line break between lines, none at the end.
        time: ``HH:MM`` on the clock of that day; None if a person left it out.
        at: The moment, ISO 8601 with offset, if known.
        kind: ``event``, ``auto_extract`` or ``reflection``.
        salience: 0 to 1.
        category: A label.
        tool: The tool that was used.
        error: What went wrong.
        project: The project it belongs to.
        private: Whether it is for that project only.
        session_id: The session it comes from.
        line: 0-based number of its first line in the file; of a new one 0.
        lines: How many lines it takes, blank ones after it not counted.
    """

    text: str
    time: str | None = None
    at: str | None = None
    kind: str = KINDS[0]
    salience: float = DEFAULT_SALIENCE
    category: str | None = None
    tool: str | None = None
    error: str | None = None
    project: str | None = None
    private: bool = False
    session_id: str | None = None
    line: int = 0
    lines: int = 1


def log_uri(user_space: str, day: date) -> MemoryUri:
    """The file of a day."""
    return MemoryUri((Scope.USER.value, user_space, _FOLDER, f"{day.isoformat()}.md"))


def log_day(uri: MemoryUri) -> date | None:
    """The day whose log this is; None if it is no daily log."""
    named = _DAY.fullmatch(uri.name)
    if uri.scope is not Scope.USER or len(uri.parts) != 4 or uri.parts[2] != _FOLDER or named is None:
        return None
    try:
        return date.fromisoformat(named[1])
    except ValueError:
        return None


def new_entry(text: str, moment: datetime, **facts: Any) -> LogEntry:
    """An entry made at ``moment``; its offset says whose clock."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").strip().split("\n")
    said = "\n".join(line if line.strip() else "" for line in lines)
    return LogEntry(said, moment.strftime("%H:%M"), moment.isoformat(timespec="seconds"), **facts)


def with_entry(log: str | None, day: date, entry: LogEntry) -> str:
    """The log with one more entry at its end; what was there stays as it is, to the byte."""
    if not log:
        return f"# {day.isoformat()}\n\n{_rendered(entry)}"
    joint = "" if log.endswith("\n") else "\n"
    listed = log.rstrip("\n").rpartition("\n")[2].startswith(("- ", "* ", "+ ", "  "))
    return f"{log}{joint}{'' if listed or log.endswith(chr(10) * 2) else chr(10)}{_rendered(entry)}"


def entries(log: str) -> tuple[LogEntry, ...]:
    """All entries of a log in the order of the file; headings are none."""
    blocks: list[tuple[int, list[str]]] = []
    open_block = False
    for number, line in enumerate(log.replace("\r\n", "\n").split("\n")):
        if not line.strip():
            if open_block:
                blocks[-1][1].append("")
        elif line.startswith("  ") and open_block:
            blocks[-1][1].append(line)
        elif line.startswith("#") and re.match(r"#{1,6} ", line):
            open_block = False
        elif _ITEM.match(line) or not open_block or _ended(blocks[-1][1]):
            blocks.append((number, [line]))
            open_block = True
        else:
            blocks[-1][1].append(line)
    read = (_read(number, lines) for number, lines in blocks)
    return tuple(entry for entry in read if entry.text)


def readable(entry: LogEntry) -> str:
    """The entry as a list item without its comment; what that says of kind and category stands in brackets."""
    labels = [entry.kind if entry.kind != KINDS[0] else None, entry.category, entry.tool, entry.error]
    said = ", ".join(label for label in labels if label)
    head = " ".join(part for part in ("-", entry.time, f"[{said}]" if said else None) if part)
    text = entry.text.replace("\n", "\n  ")
    return f"{head} {text}"


def _ended(block: list[str]) -> bool:
    """Whether a line that is not indented begins something new: after a blank line, or our own comment."""
    return not block[-1] or _META.fullmatch(block[-1]) is not None


def _rendered(entry: LogEntry) -> str:
    first, *rest = entry.text.split("\n")
    meta: dict[str, Any] = {"at": entry.at}
    if entry.kind != KINDS[0]:
        meta["kind"] = entry.kind
    if entry.salience != DEFAULT_SALIENCE:
        meta["salience"] = entry.salience
    meta |= {name: getattr(entry, name) for name in _LABELS if getattr(entry, name) is not None}
    if entry.private:
        meta["private"] = True
    comment = json.dumps(meta, ensure_ascii=False).replace("<", "\\u003c").replace(">", "\\u003e")
    lines = [f"- {entry.time} {first}", *(f"  {line}" if line else "" for line in rest), f"  <!-- {comment} -->"]
    return "\n".join(lines) + "\n"


def _read(number: int, lines: list[str]) -> LogEntry:
    while not lines[-1]:
        lines = lines[:-1]
    meta: dict[str, Any] = {}
    found = _META.fullmatch(lines[-1])
    body = lines
    if found is not None:
        try:
            meta = json.loads(found["json"])
            body = lines[:-1]
        except (ValueError, RecursionError):  # a person's own comment
            meta = {}
    item = _ITEM.match(lines[0])
    time = None
    if item is not None:
        body = [body[0][item.end() :], *(line.removeprefix("  ") for line in body[1:])]
        time = f"{int(item['hour']):02}:{item['minute']}" if item["hour"] else None
    text = "\n".join(body).strip()
    kind, salience = meta.get("kind"), meta.get("salience")
    sound = isinstance(salience, int | float) and not isinstance(salience, bool) and 0 <= salience <= 1
    labels = {name: value for name in _LABELS if isinstance(value := meta.get(name), str) and value}
    return LogEntry(
        text,
        time,
        _moment(meta.get("at")),
        kind if kind in KINDS else KINDS[0],
        float(salience) if sound and salience is not None else DEFAULT_SALIENCE,
        private=meta.get("private") is True,
        line=number,
        lines=len(lines),
        **labels,
    )


def _moment(value: Any) -> str | None:
    try:
        return value if isinstance(value, str) and datetime.fromisoformat(value) else None
    except ValueError:
        return None


#: Characters of what names nothing, where little else is said; at least so many beside the rest.
DAY_CHARS, _REST_CHARS = 600, 200
#: Of one entry, and of all of a day.
_ENTRY_CHARS, _DAY_MOST_CHARS = 1_200, 16_000
_DIGEST_CHARS = 8
_LEAST_WEIGHT = 0.1
_FAILURE = re.compile(
    r"\b(?:fail|error|broke|crash|lost|wrong|refus|reject|denied|timed? ?out|unable|outage|down\b|bug)"
    r"|失败|错误|出错|报错|故障|崩溃|异常|超时|丢失|坏了|拒绝|中断",
    re.IGNORECASE,
)
_PROJECT = re.compile(r"  - Project (?P<name>.+)")
_LIST_ITEM, _OWN_ITEM = "  - ", "    - "


@dataclass(frozen=True, slots=True)
class DayLines:
    """Lines of a day, list items below its link, and how many sentences had no room."""

    lines: tuple[str, ...]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class _Group:
    """Equal entries."""

    entry: LogEntry
    times: tuple[str, ...]
    count: int

    @property
    def text(self) -> str:
        return " ".join(self.entry.text.split())

    @property
    def must_stay(self) -> bool:
        said = self.entry.text
        return bool(self.entry.error or numbers(said) or names(said) or _FAILURE.search(said))

    def line(self, text: str) -> str:
        line = readable(replace(self.entry, text=text))
        if self.count == 1:
            return line
        return f"{line} ({self.count} times{': ' if self.times else ''}{', '.join(self.times)})"


def entry_digests(entries: Sequence[LogEntry]) -> tuple[str, ...]:
    """What tells the entries of one day apart, in order."""
    return tuple(body_digest(f"{entry.project or ''}\x1f{readable(entry)}")[:_DIGEST_CHARS] for entry in entries)


def day_lines(entries: Sequence[LogEntry], *, by_project: bool, whole: bool = False) -> DayLines:
    """What a summary shows of a day's entries.

    Args:
        entries: In the order of the log.
        by_project: Whether those of a project stand below its name.
        whole: Show all, however long.
    """
    groups = _groups(entries)
    shown, left_out = ([group.text for group in groups], 0) if whole else _chosen(groups)
    lines: list[str] = []
    projects: dict[str, list[str]] = {}
    for group, text in zip(groups, shown, strict=True):
        project = " ".join((group.entry.project or "").split()) if by_project else ""
        if text:
            (projects.setdefault(project, []) if project else lines).append(group.line(text))
    below = [f"  {line}" for line in lines]
    for project, own in projects.items():
        below += [f"{_LIST_ITEM}Project {project}", *(f"    {line}" for line in own)]
    return DayLines(tuple(below), left_out)


def told_lines(lines: Sequence[str]) -> Iterator[tuple[str, str, str | None]]:
    """The lines below a day as (line, what it tells, its project); names of projects are none."""
    project: str | None = None
    for place, line in enumerate(lines):
        if not line.strip():
            continue
        named = _PROJECT.fullmatch(line.rstrip())
        if named is not None and place + 1 < len(lines) and lines[place + 1].startswith(_OWN_ITEM):
            project = named["name"]
            continue
        if not line.startswith(_OWN_ITEM[:-2]):
            project = None
        yield line, line.strip().removeprefix("- "), project


def _groups(entries: Sequence[LogEntry]) -> list[_Group]:
    found: dict[tuple[object, ...], list[LogEntry]] = {}
    for entry in entries:
        said = " ".join(entry.text.split())
        found.setdefault((said, entry.kind, entry.category, entry.tool, entry.error, entry.project), []).append(entry)
    return [
        _Group(
            replace(same[0], salience=max(entry.salience for entry in same)),
            tuple(entry.time for entry in same if entry.time is not None),
            len(same),
        )
        for same in found.values()
    ]


def _chosen(groups: Sequence[_Group]) -> tuple[list[str], int]:
    """The text of each group, empty where it has no room, and how many sentences had none."""
    shown = [""] * len(groups)
    left_out, used = 0, 0
    bound = [place for place, group in enumerate(groups) if group.must_stay]
    for place in sorted(bound, key=lambda each: -groups[each].entry.salience):
        text, missing = _bounded(groups[place])
        if used + len(text) > _DAY_MOST_CHARS:
            text, missing = "", len(sentences(groups[place].entry.text))
        shown[place], left_out, used = text, left_out + missing, used + len(text)
    rest = [place for place, group in enumerate(groups) if not group.must_stay]
    weights = [max(groups[place].entry.salience, _LEAST_WEIGHT) for place in rest]
    texts = [groups[place].entry.text for place in rest]
    condensed = condense(texts, max(DAY_CHARS - used, _REST_CHARS), weights)
    for place, chosen in zip(rest, condensed.chosen, strict=True):
        shown[place] = " ".join(joined(chosen).split())
    return shown, left_out + condensed.left_out


def _bounded(group: _Group) -> tuple[str, int]:
    if len(group.text) <= _ENTRY_CHARS:
        return group.text, 0
    condensed = condense([group.entry.text], _ENTRY_CHARS)
    return " ".join(joined(condensed.chosen[0]).split()), condensed.left_out
