"""The summary of a month's daily logs: a Markdown file that a person reads, searches and edits.

::

    # 2026-05

    What a model made of the month, if there is one.

    - [2026-05-07](viking://user/default/logs/2026-05-07.md)
      - 14:03 Moved the payment service to the new cluster.

Of each day what ``log_day`` chooses, word for word, with a link to the log and a count of what was left there. The
trailer says which days, by the digests of their entries, and which entries became which memories; the logs themselves
stay as they are. What is private to a project has a file of its own for each project. A page that a person edited is
not written over: new days are added at its end, and new entries of a day it has below that day. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from memory_core.model import filename
from memory_core.model.daily_log import LogEntry, log_uri
from memory_core.model.memory_file import MemoryFile, dump, parse
from memory_core.model.record import body_digest, summary_line
from memory_core.model.uri import MemoryUri, Scope
from memory_core.update.log_day import day_lines, entry_digests, told_lines

OVERVIEW_CHARS = 1_500
_FOLDER = ("logs", "summaries")
_NAME = re.compile(r"(\d{4}-\d\d)(?: .+)?\.md")
_DAY_LINE = re.compile(r"- \[(\d{4}-\d\d-\d\d)\]\(")
_LEFT_OUT = re.compile(r"\((\d{1,9}) more sentences? in the log\)$")
_ABSTRACT_CHARS = 200


@dataclass(frozen=True, slots=True)
class Promoted:
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
        month: ``YYYY-MM``.
        project: Whose private entries these are; None are those that are not private.
        days: Digests of each day's entries, see ``entry_digests``, with spaces between them, by ISO day.
        blocks: What is shown of each day, by ISO day.
        overview: What a model made of the days; empty for nothing.
        overview_of: Digest of the days that it was made of.
        promoted: The entries that became memories.
        archived: Days whose logs were moved away, or deleted.
        body: As a person left it, where one edited it; None is written anew.
        kept: Trailer keys of others.
    """

    month: str
    project: str | None = None
    days: Mapping[str, str] = field(default_factory=dict)
    blocks: Mapping[str, str] = field(default_factory=dict)
    overview: str = ""
    overview_of: str = ""
    promoted: tuple[Promoted, ...] = ()
    archived: tuple[str, ...] = ()
    body: str | None = None
    kept: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Names what the days say."""
        return body_digest("\n".join(f"{day} {digest}" for day, digest in sorted(self.days.items())))


def summaries_uri(user_space: str) -> MemoryUri:
    """The directory of the summaries."""
    return MemoryUri((Scope.USER.value, user_space, *_FOLDER))


def summary_uri(user_space: str, month: str, project: str | None = None) -> MemoryUri:
    """The summary of a month: of what is not private, or of what is private to a project."""
    name = f"{month}.md"
    if project is not None:
        shown = filename.render("{month} {project}.md", {"month": month, "project": project}).removesuffix(".md")
        name = filename.fit(shown, ".md", f"~{filename.short_hash(project)}")
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
    file = parse(text or "")
    if file.trailer is None:
        return MonthSummary(month, project, body=file.body if file.body.strip() else None)
    trailer = dict(file.trailer)
    edited = trailer.pop("rendered_sha256", None) != body_digest(file.body)
    days = trailer.pop("days", None)
    promoted, archived = trailer.pop("promoted", None), trailer.pop("archived_days", None)
    overview, overview_of = trailer.pop("overview", ""), trailer.pop("overview_of", "")
    return MonthSummary(
        month,
        project,
        {str(day): str(digest) for day, digest in days.items()} if isinstance(days, dict) else {},
        _blocks(file.body),
        overview if isinstance(overview, str) else "",
        overview_of if isinstance(overview_of, str) else "",
        tuple(map(_promoted, promoted)) if isinstance(promoted, list) else (),
        tuple(map(str, archived)) if isinstance(archived, list) else (),
        file.body if edited else None,
        trailer,
    )


def with_day(
    summary: MonthSummary, uri: MemoryUri, day: date, entries: Sequence[LogEntry], *, added: bool = False
) -> MonthSummary:
    """The summary with a day as its log is now; the same where nothing of it changed.

    A page that a person edited keeps what it says of the day, and gets the entries that are new since, in whole.

    Args:
        summary: The month's.
        uri: Where the day's log is.
        day: The day.
        entries: Those of its entries that belong into this file.
        added: Whether these only come to what the summary says of the day, whose first log is gone for good.
    """
    digests, name = entry_digests(entries), day.isoformat()
    known = summary.days.get(name, "").split()
    if not entries or (known == list(digests) if not added else set(digests) <= set(known)):
        return summary
    by_project = summary.project is None
    page = summary.body if summary.body is not None else summary.blocks.get(name) if added else None
    days = {**summary.days, name: " ".join([*(known if added else ()), *digests])}
    if page is None:
        shown = day_lines(entries, by_project=by_project)
        more = f"{shown.left_out} more sentence{'' if shown.left_out == 1 else 's'} in the log"
        head = f"- [{name}]({uri}){f' ({more})' if shown.left_out else ''}"
        return replace(summary, days=days, blocks={**summary.blocks, name: "\n".join([head, *shown.lines])})
    new = [entry for entry, digest in zip(entries, digests, strict=True) if digest not in known]
    page = _with_lines(page, name, uri, day_lines(new, by_project=by_project, whole=True).lines)
    if summary.body is None:
        return replace(summary, days=days, blocks={**summary.blocks, name: page})
    return replace(summary, days=days, blocks=_blocks(page), body=page)


def left_out(summary: MonthSummary) -> dict[str, int]:
    """How many sentences of each day are in its log alone."""
    found = {day: _LEFT_OUT.search(block.partition("\n")[0]) for day, block in summary.blocks.items()}
    return {day: int(count[1]) for day, count in found.items() if count is not None}


def moved(summary: MonthSummary, user_space: str, days: Mapping[str, MemoryUri | None]) -> MonthSummary:
    """The summary with links to where the logs of these days are now; None is nowhere."""
    blocks, body = dict(summary.blocks), summary.body
    for name, uri in days.items():
        if uri is None:
            continue
        old = f"]({log_uri(user_space, date.fromisoformat(name))})"
        if name in blocks:
            blocks[name] = blocks[name].replace(old, f"]({uri})", 1)
        body = None if body is None else body.replace(old, f"]({uri})")
    archived = tuple(sorted({*summary.archived, *days}))
    return replace(summary, blocks=blocks, body=body, archived=archived)


def dump_summary(summary: MonthSummary, now: str) -> str:
    """The file of a summary.

    Args:
        summary: What it holds.
        now: Time of the commit, ISO 8601.
    """
    body = _body(summary) if summary.body is None else summary.body
    trailer: dict[str, Any] = {"created_at": now, **summary.kept, "updated_at": now}
    if summary.project is not None:
        trailer |= {"project": summary.project, "private": True}
    trailer["days"] = dict(sorted(summary.days.items()))
    members = {
        "abstract": summary_line(_abstract(summary), _ABSTRACT_CHARS),
        "overview": summary.overview,
        "overview_of": summary.overview_of,
        "promoted": [
            {key: value for key in ("name", "at", "uri", "digest") if (value := getattr(each, key))}
            for each in summary.promoted
        ],
        "archived_days": list(summary.archived),
    }
    trailer |= {name: value for name, value in members.items() if value}
    # A page that a person edited keeps no digest: it stays theirs.
    if summary.body is None:
        trailer["rendered_sha256"] = body_digest(body)
    return dump(MemoryFile(body, trailer))


def _promoted(stored: object) -> Promoted:
    """An entry that was promoted, from a trailer; a hand edit may have left anything there."""
    if not isinstance(stored, Mapping):
        return Promoted(str(stored))
    return Promoted(*(str(stored.get(key, "")) for key in ("name", "at", "uri", "digest")))


def _with_lines(page: str, name: str, uri: MemoryUri, lines: Sequence[str]) -> str:
    """The page with lines at the end of a day, or at its own end with a link where it has no such day."""
    told = page.split("\n")
    heads = ((place, _DAY_LINE.match(line)) for place, line in enumerate(told))
    end = next((place + 1 for place, head in heads if head is not None and head[1] == name), None)
    if not lines:
        return page
    if end is None:
        return "\n".join([page.rstrip(), "", f"- [{name}]({uri})", *lines])
    while end < len(told) and told[end].startswith("  "):
        end += 1
    return "\n".join([*told[:end], *lines, *told[end:]])


def _body(summary: MonthSummary) -> str:
    blocks = "\n".join(block for _, block in sorted(summary.blocks.items()))
    return "\n\n".join(filter(None, [f"# {summary.month}", summary.overview.strip(), blocks]))


def _abstract(summary: MonthSummary) -> str:
    """What the month was about, in a line: the overview, else how its days begin."""
    lines = (line.partition(": ")[2] for line in told(block for _, block in sorted(summary.blocks.items())))
    return f"{summary.month}: {summary.overview or ' '.join(lines)}"


def _blocks(body: str) -> dict[str, str]:
    """What a page shows of each day."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in body.replace("\r\n", "\n").split("\n"):
        day = _DAY_LINE.match(line)
        if day is not None:
            lines = found.setdefault(day[1], [])
            lines.append(line)
        elif line.startswith("  ") and lines:
            lines.append(line)
        else:
            lines = []
    return {day: "\n".join(block) for day, block in found.items()}


def told(blocks: Iterable[str]) -> list[str]:
    """The lines of days without links and marks, for whoever condenses them further: ``2026-05-07: 14:03 …``."""
    lines: list[str] = []
    for block in blocks:
        head, *rest = block.split("\n")
        day = _DAY_LINE.match(head)
        for _, text, project in told_lines(rest):
            lines.append(f"{day[1] if day else ''}: {f'({project}) ' if project else ''}{text}")
    return lines


def nobodys_lines(blocks: Iterable[str]) -> list[tuple[str, str]]:
    """Lines of days that belong to no project: as they stand in the page, and as ``told`` gives them."""
    lines: list[tuple[str, str]] = []
    for block in blocks:
        head, *rest = block.split("\n")
        day = _DAY_LINE.match(head)
        # What a person indented further may be a project's, whose name they took out.
        own = [(line, text) for line, text, _ in told_lines(rest) if not line.startswith("   ")]
        lines += [(line, f"{day[1] if day else ''}: {text}") for line, text in own]
    return lines
