"""The summary of a month's daily logs: what its file holds, and what it shows of each day.

``viking://user/{space}/logs/summaries/YYYY-MM.md``. Which days it holds, and which entries were promoted, stands in its
trailer. A page that a person edited stays theirs: new entries are added to it, nothing is written anew. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from typing import Any

from memory_core.core.caches import RecentCache
from memory_core.core.memory import names
from memory_core.core.memory.names import summary_line
from memory_core.core.memory.results import text_sha256
from memory_core.core.memory.trailer import body_digest, join, read_members, split
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.text.extractive_summary import condense, numbers
from memory_core.core.text.extractive_summary import names as named
from memory_core.core.text.language import sentences
from memory_core.features.daily_logs import LogEntry, log_uri, readable

OVERVIEW_CHARS = 1_500
_FOLDER = ("logs", "summaries")
_NAME = re.compile(r"(\d{4}-\d\d)(?: .+)?\.md")
_DAY_LINE = re.compile(r"- \[(\d{4}-\d\d-\d\d)\]\(")
#: The head of a day, and what a person wrote behind it.
_HEAD = re.compile(
    r"^(- \[\d{4}-\d\d-\d\d\]\([^)\n]*\)(?: \(\d{1,9} more sentences? in the log\))?)([^\n]*)\n?", re.MULTILINE
)
_LEFT_OUT = re.compile(r"\((\d{1,9}) more sentences? in the log\)$")
_ABSTRACT_CHARS = 200
_OWN = ("days", "overview", "overview_of", "promoted", "archived_days")


@dataclass(frozen=True, slots=True)
class Remembered:
    """An entry that became a memory.

    Attributes:
        name: Of the entry, see ``entry_name``.
        at: When and of which day the entry is, see ``entry_moment``.
        uri: The memory that it made; empty where it joined one that was there.
        digest: Of the memory's body as it was made.
    """

    name: str
    at: str = ""
    uri: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class MonthSummary:
    """What the summary file of a month holds.

    Attributes:
        days: Digests of each day's entries, see ``_entry_digests``, with spaces between them, by ISO day.
        overview: What a model made of the days; empty for nothing.
        overview_of: Digest of the days that it was made of.
        promoted: The entries that became memories.
        archived_days: Days whose logs were moved away, or deleted.
        month: ``YYYY-MM``.
        project: Whose private entries these are; None are those that are not private.
        body: The page.
        edited: Whether a person edited it: then nothing of it is written anew.
        kept: Trailer keys of others.
    """

    days: Mapping[str, str] = field(default_factory=dict)
    overview: str = ""
    overview_of: str = ""
    promoted: tuple[Remembered, ...] = ()
    archived_days: tuple[str, ...] = ()
    month: str = ""
    project: str | None = None
    body: str = ""
    edited: bool = False
    kept: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Names what the days say."""
        return body_digest("\n".join(f"{day} {digest}" for day, digest in sorted(self.days.items())))

    @property
    def blocks(self) -> dict[str, str]:
        """What the page shows of each day, by ISO day."""
        found: dict[str, list[str]] = {}
        lines: list[str] = []
        for line in self.body.replace("\r\n", "\n").split("\n"):
            day = _DAY_LINE.match(line)
            if day is not None:
                lines = found.setdefault(day[1], [])
            elif not line.startswith("  "):
                lines = []
            lines.append(line)
        return {day: "\n".join(block) for day, block in found.items()}

    @property
    def left_out(self) -> dict[str, int]:
        """How many sentences of each day are in its log alone."""
        found = {day: _LEFT_OUT.search(block.partition("\n")[0]) for day, block in self.blocks.items()}
        return {day: int(count[1]) for day, count in found.items() if count is not None}

    def showing(self, blocks: Mapping[str, str]) -> MonthSummary:
        """With a page made of these days."""
        days = "\n".join(block for _, block in sorted(blocks.items()))
        return replace(self, body="\n\n".join(filter(None, [f"# {self.month}", self.overview.strip(), days])))


def summaries_uri(user_space: str) -> MemoryUri:
    """The directory of the summaries."""
    return MemoryUri((Scope.USER.value, user_space, *_FOLDER))


def summary_uri(user_space: str, month: str, project: str | None = None) -> MemoryUri:
    """The summary of a month: of what is not private, or of what is private to a project."""
    name = f"{month}.md"
    if project is not None:
        shown = names.render("{month} {project}.md", {"month": month, "project": project}).removesuffix(".md")
        name = names.fit(shown, ".md", f"~{names.short_hash(project)}")
    return summaries_uri(user_space).child(name)


def summary_month(uri: MemoryUri) -> str | None:
    """The month whose summary this is, ``YYYY-MM``; None if it is none."""
    named = _NAME.fullmatch(uri.name)
    own = uri.scope is Scope.USER and len(uri.parts) == 5 and uri.parts[2:4] == _FOLDER
    return named[1] if own and named is not None else None


def entry_name(day: date, entry: LogEntry) -> str:
    """What tells an entry from others, wherever it stands in its log."""
    return body_digest(f"{day.isoformat()}\x1f{entry.time}\x1f{entry.kind}\x1f{entry.text}")


def entry_moment(day: date, entry: LogEntry) -> str:
    """When an entry was made, as exactly as its log knows: what stays when a person corrects its words."""
    return f"{day.isoformat()} {entry.at or entry.time or ''}"


def read_summary(month: str, project: str | None, text: str | None) -> MonthSummary:
    """The summary in a file; a hand edit may have left anything there."""
    file = split(text or "")
    trailer = dict(file.trailer or {})
    own = {name: trailer.pop(name, None) for name in _OWN}
    edited = trailer.pop("rendered_sha256", None) != body_digest(file.body)
    promoted = own["promoted"] if isinstance(own["promoted"], list) else []
    own["promoted"] = [read for each in promoted if (read := _promoted(each)) is not None]
    found = read_members(MonthSummary, own) or MonthSummary()
    return replace(
        found, month=month, project=project, body=file.body, edited=edited and bool(file.body.strip()), kept=trailer
    )


def with_day(
    summary: MonthSummary, uri: MemoryUri, day: date, entries: Sequence[LogEntry], *, added: bool = False
) -> MonthSummary:
    """The summary with a day as its log is now; the same where nothing of it changed.

    A page that a person edited keeps what it says of the day, and gets the entries that are new since, in whole, but
    for those that an undo brought back there.

    Args:
        summary: The month's.
        uri: Where the day's log is.
        day: The day.
        entries: Those of its entries that belong into this file.
        added: Whether these only come to what the summary says of the day, whose first log is gone for good.
    """
    digests, name = _entry_digests(entries), day.isoformat()
    known = summary.days.get(name, "").split()
    if not entries or (known == list(digests) if not added else set(digests) <= set(known)):
        return summary
    by_project = summary.project is None
    known_days = {**summary.days, name: " ".join([*(known if added else ()), *digests])}
    if not (summary.edited or added):
        shown = _day_lines(entries, by_project=by_project)
        more = f"{shown.left_out} more sentence{'' if shown.left_out == 1 else 's'} in the log"
        head = f"- [{name}]({uri}){f' ({more})' if shown.left_out else ''}"
        block = "\n".join([head, *shown.lines])
        return replace(summary, days=known_days).showing({**summary.blocks, name: block})
    there = {(project or "", line) for _, _, line, project in _lines_of([summary.blocks.get(name, "")])}
    new = [
        entry
        for entry, digest in zip(entries, digests, strict=True)
        if digest not in known and (_heading(entry, by_project=by_project), _item(entry)) not in there
    ]
    body = _with_lines(summary.body, name, uri, _day_lines(new, by_project=by_project, whole=True).lines)
    return replace(summary, days=known_days, body=body)


def moved(summary: MonthSummary, user_space: str, days: Mapping[str, MemoryUri | None]) -> MonthSummary:
    """The summary with links to where the logs of these days are now; None is nowhere."""
    body = summary.body
    for name, uri in days.items():
        if uri is not None:
            body = body.replace(f"]({log_uri(user_space, date.fromisoformat(name))})", f"]({uri})")
    return replace(summary, body=body, archived_days=tuple(sorted({*summary.archived_days, *days})))


def without_heads(body: str) -> str:
    """What a page says, without the heads of days, which by themselves say nothing."""
    return _HEAD.sub(r"\2\n", body)


def with_texts(body: str, changed: Callable[[str], str]) -> str:
    """A page whose texts are changed, each by itself; a head of a day stays unless nothing is left below it."""
    first, *days = _HEAD.split(body)
    begin = changed(first)
    parts = [first if begin == first else f"{begin}\n\n" if begin else ""]
    is_same = begin == first
    for head, behind, below in zip(days[::3], days[1::3], days[2::3], strict=True):
        left = (changed(behind), changed(below))
        if left == (behind, below):
            parts.append(f"{head}{behind}\n{below}")
            continue
        is_same = False
        lines = (f"{head}{left[0].rstrip()}", left[1].strip("\n"))
        parts += [f"{line}\n" for line in lines if line and "".join(left).strip()]
    return body if is_same else "".join(parts).rstrip("\n")


def without_texts(body: str, overview: str, left: Callable[[str], str]) -> tuple[str, bool]:
    """A page whose texts lose what goes, and whether its overview stays.

    With any text of a day the overview goes, which a model made of all days in words of its own.

    Args:
        body: The page.
        overview: As its trailer has it.
        left: What stays of a text.
    """
    days = body.replace(f"\n\n{overview.strip()}\n\n", "\n\n", 1) if overview.strip() else body
    left_days = with_texts(days, left)
    if days == body or left_days == days:
        return with_texts(body, left), True
    return left_days, False


def dump_summary(summary: MonthSummary, now: str) -> str:
    """The file of a summary.

    Args:
        summary: What it holds.
        now: Time of the commit, ISO 8601.
    """
    trailer: dict[str, Any] = {"created_at": now, **summary.kept, "updated_at": now}
    if summary.project is not None:
        trailer |= {"project": summary.project, "private": True}
    trailer["days"] = dict(sorted(summary.days.items()))
    members = {
        "abstract": summary_line(_abstract(summary), _ABSTRACT_CHARS),
        "overview": summary.overview,
        "overview_of": summary.overview_of,
        "promoted": [{key: value for key, value in asdict(each).items() if value} for each in summary.promoted],
        "archived_days": list(summary.archived_days),
    }
    trailer |= {name: value for name, value in members.items() if value}
    # A page that a person edited keeps no digest: it stays theirs.
    if not summary.edited:
        trailer["rendered_sha256"] = body_digest(summary.body)
    return join(summary.body, trailer)


def _promoted(stored: object) -> Remembered | None:
    """An entry that was promoted; older programs kept its name alone."""
    return Remembered(stored) if isinstance(stored, str) else read_members(Remembered, stored)


def _with_lines(page: str, name: str, uri: MemoryUri, lines: Sequence[str]) -> str:
    """The page with lines at the end of a day, or at its own end with a link where it has no such day."""
    if not lines:
        return page
    present = page.split("\n")
    heads = ((place, _DAY_LINE.match(line)) for place, line in enumerate(present))
    end = next((place + 1 for place, head in heads if head is not None and head[1] == name), None)
    if end is None:
        return "\n".join([page.rstrip(), "", f"- [{name}]({uri})", *lines])
    while end < len(present) and present[end].startswith("  "):
        end += 1
    return "\n".join([*present[:end], *lines, *present[end:]])


def _abstract(summary: MonthSummary) -> str:
    """What the month was about, in a line: the overview, else how its days begin."""
    lines = (line.partition(": ")[2] for line in plain_lines(block for _, block in sorted(summary.blocks.items())))
    return f"{summary.month}: {summary.overview or ' '.join(lines)}"


def plain_lines(blocks: Iterable[str]) -> list[str]:
    """The lines of days without links and marks, for whoever condenses them further: ``2026-05-07: 14:03 …``."""
    return [f"{day}: {f'({project}) ' if project else ''}{text}" for day, _, text, project in _lines_of(blocks)]


def nobodys_lines(blocks: Iterable[str]) -> list[tuple[str, str]]:
    """Lines of days that belong to no project: as they stand in the page, and as ``plain_lines`` gives them."""
    # What a person indented further may be a project's, whose name they took out.
    return [(line, f"{day}: {text}") for day, line, text, _ in _lines_of(blocks) if not line.startswith("   ")]


def _lines_of(blocks: Iterable[str]) -> Iterator[tuple[str, str, str, str | None]]:
    """The lines below each day as (day, line, its text, its project); names of projects are none."""
    for block in blocks:
        head, *lines = block.split("\n")
        day, project = _DAY_LINE.match(head), None
        for place, line in enumerate(lines):
            if not line.strip():
                continue
            named = _PROJECT.fullmatch(line.rstrip())
            if named is not None and place + 1 < len(lines) and lines[place + 1].startswith(_OWN_ITEM):
                project = named["name"]
                continue
            if not line.startswith(_OWN_ITEM[:-2]):
                project = None
            yield day[1] if day else "", line, line.strip().removeprefix("- "), project


#: Characters of what names nothing, where little else is said; at least so many beside the rest.
_DAY_CHARS, _REST_CHARS = 600, 200
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
        return bool(self.entry.error or numbers(said) or named(said) or _FAILURE.search(said))

    def line(self, text: str) -> str:
        line = readable(replace(self.entry, text=text))
        if self.count == 1:
            return line
        return f"{line} ({self.count} times{': ' if self.times else ''}{', '.join(self.times)})"


def _entry_digests(entries: Sequence[LogEntry]) -> tuple[str, ...]:
    """What tells the entries of one day apart, in order."""
    return tuple(body_digest(f"{entry.project or ''}\x1f{readable(entry)}")[:_DIGEST_CHARS] for entry in entries)


#: What full days come to, which takes seconds: it is asked for before a commit, and once more while others wait.
_DAYS: RecentCache[str, DayLines] = RecentCache(32)


def _day_lines(entries: Sequence[LogEntry], *, by_project: bool, whole: bool = False) -> DayLines:
    """What a summary shows of a day's entries.

    Args:
        entries: In the order of the log.
        by_project: Whether those of a project stand below its name.
        whole: Show all, however long.
    """
    key = text_sha256(repr((entries, by_project, whole)))
    known = _DAYS.get(key)
    if known is None:
        known = _made_lines(entries, by_project=by_project, whole=whole)
        if not whole:  # else it may be long
            _DAYS.put(key, known)
    return known


def _made_lines(entries: Sequence[LogEntry], *, by_project: bool, whole: bool) -> DayLines:
    groups = _groups(entries)
    shown, left_out = ([group.text for group in groups], 0) if whole else _chosen(groups)
    lines: list[str] = []
    projects: dict[str, list[str]] = {}
    for group, text in zip(groups, shown, strict=True):
        project = _heading(group.entry, by_project=by_project)
        if text:
            (projects.setdefault(project, []) if project else lines).append(group.line(text))
    below = [f"  {line}" for line in lines]
    for project, own in projects.items():
        below += [f"{_LIST_ITEM}Project {project}", *(f"    {line}" for line in own)]
    return DayLines(tuple(below), left_out)


def _heading(entry: LogEntry, *, by_project: bool) -> str:
    """The project below whose name an entry stands; empty for none."""
    return " ".join((entry.project or "").split()) if by_project else ""


def _item(entry: LogEntry) -> str:
    """The line of an entry that stands by itself, without its mark."""
    return readable(replace(entry, text=" ".join(entry.text.split()))).removeprefix("- ")


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
        text, missing = groups[place].text, 0
        if len(text) > _ENTRY_CHARS:
            condensed = condense([groups[place].entry.text], _ENTRY_CHARS)
            (text,), missing = condensed.lines, condensed.left_out
        if used + len(text) > _DAY_MOST_CHARS:
            text, missing = "", len(sentences(groups[place].entry.text))
        shown[place], left_out, used = text, left_out + missing, used + len(text)
    rest = [place for place, group in enumerate(groups) if not group.must_stay]
    weights = [max(groups[place].entry.salience, _LEAST_WEIGHT) for place in rest]
    texts = [groups[place].entry.text for place in rest]
    condensed = condense(texts, max(_DAY_CHARS - used, _REST_CHARS), weights)
    for place, text in zip(rest, condensed.lines, strict=True):
        shown[place] = text
    return shown, left_out + condensed.left_out
