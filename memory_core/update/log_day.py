"""A day of a log as its month's summary shows it: which entries go in whole, and which only with what says most.

An entry with a number, a name or a failure goes in whole; of the others what says most. Equal entries are one line
with all their times. What has no room is counted. Lines that belong to a project stand below its name, so that who
reads on for everybody can leave them out. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from memory_core.model.daily_log import LogEntry, readable
from memory_core.model.record import body_digest
from memory_core.update.condensing import condense, joined, names, numbers, sentences

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
_ITEM, _OWN_ITEM = "  - ", "    - "


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
        below += [f"{_ITEM}Project {project}", *(f"    {line}" for line in own)]
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
