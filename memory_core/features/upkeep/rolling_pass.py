"""The rolling summary made of what is stored, and what a model adds to it and to the summaries of logs.

``_make_page`` makes the page word for word of the profile, preferences, the memories used most and the newest
summaries of logs, all but what belongs to one project. The pass ``overviews`` asks the model, by one call, for the page
and for an overview of each month that is complete. What a person wrote is left alone by both.
"""

from __future__ import annotations

import json
import re
from calendar import monthrange
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

from memory_core.core.errors import NotFound
from memory_core.core.feature import Feature
from memory_core.core.index.filter import in_use
from memory_core.core.memory.memory import Memory, parse
from memory_core.core.memory.memory_type import CONTENT
from memory_core.core.memory.metadata import Metadata
from memory_core.core.memory.results import Action, ChangeSet, CommitReceipt, FileChange, OperationResult
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.local import Snapshot
from memory_core.core.text.extractive_summary import condense
from memory_core.features.rolling_summary import (
    Line,
    RollingSummary,
    dump_rolling_summary,
    page_removed,
    read_rolling_summary,
    rolling_summary_uri,
    said_digests,
    said_to_all,
    sources_digest,
)
from memory_core.features.upkeep.core_memories import Original
from memory_core.features.upkeep.log_summary import (
    OVERVIEW_CHARS,
    MonthSummary,
    dump_summary,
    nobodys_lines,
    plain_lines,
    read_summary,
    summaries_uri,
    summary_month,
)
from memory_core.features.upkeep.passes import Pass, Reach, commit, memory_at, rows, text_at
from memory_core.features.upkeep.summaries import Improvement, SummaryTask, improve

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

_SOURCE = "maintenance"
_ROLLING_CHARS = 1_200
_PROFILE_CHARS, _LINE_CHARS, _LOG_CHARS, _MONTH_CHARS = 600, 160, 500, 20_000
#: Memories of each kind, lines of those that are condensed from several, and months.
_PREFERENCES, _MOST_USED, _ENTRIES, _MONTHS = 8, 6, 16, 2
#: Of the memories used most, so many are looked at for some that may be shown.
_SPARE = 10
_SHARED = "d.project IS NULL AND NOT d.private"
#: How an entry of a condensed memory names what it came from.
_NAMED = re.compile(r"\*\*(?P<name>[^*\n]+)\*\*(?P<mark>[:：])\s*")

_PAGE, _OVERVIEWS = "rolling_summary", "overviews"
_UNMADE = "nothing of what it was made of is there any more"
#: The lines of a page, part by part.
Parts = tuple[tuple[Line, ...], ...]


def _make_page(memory: Runebook, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
    """Make the rolling summary anew where what it is made of changed.

    What changes once more in that moment is left to the next pass.
    """
    uri = rolling_summary_uri(memory.config.user_space)
    shown = memory.store.text(uri)
    parts = sources(memory, now)
    text, lines = _text(parts), _all(parts)
    digest = sources_digest(lines)

    def planned(snapshot: Snapshot) -> ChangeSet:
        before = snapshot.text(uri)
        page = read_rolling_summary(before)
        if page is not None and (page.authored or page.sources == digest):
            return ChangeSet()
        if before != shown or not _hold(memory, lines, snapshot, now):
            return ChangeSet()
        if not text:
            return ChangeSet() if page is None else page_removed(uri, before or "", _UNMADE)
        made = RollingSummary(text, False, digest, None if page is None else page.created_at, lines)
        after = dump_rolling_summary(made, memory.plan_context(now).now, {"kind": _SOURCE, "author": "extract"})
        action = Action.CREATED if before is None else Action.UPDATED
        note = "word for word from what is stored"
        result = OperationResult("summary", str(uri), action, note=note)
        return ChangeSet((FileChange(uri, before, after),), (result,))

    yield from commit(memory, _PAGE, planned, now, dry_run=dry_run)


def _improve(memory: Runebook, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
    """Ask the model for what was only extracted so far; see ``Pass.run``. A dry run asks nothing."""
    due = [] if dry_run else [*_months(memory, now), *_page(memory, now)]
    return improve(memory, _OVERVIEWS, due, now)


def _months(memory: Runebook, now: datetime) -> Iterator[Improvement]:
    """Summaries of months that are complete and have no overview of all their days."""
    before = now.date() - timedelta(days=memory.config.maintenance.archive_days)
    at = memory.plan_context(now).now
    for uri, summary in _summaries(memory):
        year, month = (int(part) for part in summary.month.split("-"))
        complete = date(year, month, monthrange(year, month)[1]) < before
        if not complete or summary.edited or not summary.blocks or summary.overview_of == summary.digest:
            continue

        def written(text: str | None, overview: str, _snapshot: Snapshot, shown: MonthSummary = summary) -> str | None:
            if read_summary(shown.month, shown.project, text) != shown:
                return None
            after = replace(shown, overview=overview, overview_of=shown.digest)
            return dump_summary(after.showing(shown.blocks), at)

        shown_to_model = condense(plain_lines(summary.blocks.values()), _MONTH_CHARS).lines
        task = SummaryTask(tuple(filter(None, shown_to_model)), OVERVIEW_CHARS)
        yield Improvement(uri, task, written, "summary", "overview written by the model")


def _page(memory: Runebook, now: datetime) -> Iterator[Improvement]:
    """The rolling summary, where it is an extract of what it is made of."""
    uri = rolling_summary_uri(memory.config.user_space)
    parts = sources(memory, now)
    lines = _all(parts)
    shown = memory.store.text(uri)
    stored = read_rolling_summary(shown)
    if not parts or stored is None or (stored.text, stored.sources) != (_text(parts), sources_digest(lines)):
        return
    at = memory.plan_context(now).now

    def written(text: str | None, summary: str, snapshot: Snapshot) -> str | None:
        if text != shown or not _hold(memory, lines, snapshot, now):
            return None
        after = RollingSummary(summary, False, stored.sources, stored.created_at, lines)
        return dump_rolling_summary(after, at, {"kind": _SOURCE, "author": "model"})

    task = SummaryTask(tuple(map(_part_text, parts)), _ROLLING_CHARS)
    yield Improvement(uri, task, written, "summary", "written by the model")


def _hold(memory: Runebook, lines: Sequence[Line], snapshot: Snapshot, now: datetime) -> bool:
    """Whether what the lines were made of is there yet, says the same and is for all, as contexts ask."""

    @cache
    def digests(uri: str) -> frozenset[str]:
        place = MemoryUri.parse(uri)
        return said_to_all(parse(place, snapshot.text(place) or "", memory.registry), now)

    return all(line.digest in digests(line.uri) for line in lines)


def sources(memory: Runebook, now: datetime) -> Parts:
    """What the rolling summary is made of, part by part; empty where nothing is known of the user yet."""
    profile = _memories(memory, now, "d.memory_type = 'profile'")
    preferences = _memories(memory, now, "d.memory_type = 'preferences'")
    preferences = sorted(preferences, key=lambda each: (-each.salience, str(each.uri)))[:_PREFERENCES]
    top = [uri for uri, _ in memory.store.ledger.usage_table.top(_MOST_USED * _SPARE, lambda uri: _is_own(memory, uri))]
    most_used = _memories(
        memory,
        now,
        "d.uri IN (SELECT value FROM json_each(?)) AND d.memory_type NOT IN ('profile', 'preferences')",
        json.dumps(top),
    )
    most_used = sorted(most_used, key=lambda each: top.index(str(each.uri)))[:_MOST_USED]
    most_used = sorted(most_used, key=lambda each: str(each.uri))
    logged = [
        Line(line, str(uri), next(iter(said_digests(uri, raw))))
        for uri, summary in _newest(memory, now)
        for raw, line in nobodys_lines(summary.blocks.values())
    ]
    if not (profile or preferences or logged):
        return ()
    about = condense([_text_of(each) for each in profile], _PROFILE_CHARS).lines
    logs = condense([line.text for line in logged], _LOG_CHARS).lines
    parts = (
        tuple(_line(each, text) for each, text in zip(profile, about, strict=True) if text),
        tuple(_lines(preferences))[:_ENTRIES],
        tuple(_lines(most_used))[:_ENTRIES],
        tuple(replace(line, text=f"- {text}") for line, text in zip(logged, logs, strict=True) if text),
    )
    return tuple(part for part in parts if part)


def _newest(memory: Runebook, now: datetime) -> list[tuple[MemoryUri, MonthSummary]]:
    shared = [each for each in _summaries(memory) if each[1].project is None and _is_used(each[1], now)]
    return sorted(shared, key=lambda each: each[1].month)[-_MONTHS:]


def _is_used(summary: MonthSummary, now: datetime) -> bool:
    """Whether nobody put it to rest, or let it end, by hand."""
    metadata = Metadata(summary.kept)
    return metadata.is_active and not metadata.is_expired(now)


def _summaries(memory: Runebook) -> Iterator[tuple[MemoryUri, MonthSummary]]:
    """All summaries of logs; the trailer says whose a private one is."""
    try:
        listed = memory.store.files.entries(summaries_uri(memory.config.user_space))
    except NotFound:
        return
    for entry in listed:
        month = summary_month(entry.uri)
        text = None if month is None else text_at(memory, entry.uri)
        if month is not None and text is not None:
            summary = read_summary(month, None, text)
            project = summary.kept.get("project")
            yield entry.uri, replace(summary, project=project if isinstance(project, str) else None)


def _memories(memory: Runebook, now: datetime, condition: str, *parameters: object) -> list[Memory]:
    """Memories in use that are nobody's project's, by the catalog and by their files as they are now."""
    used = in_use(now)
    uris = rows(memory, f"({condition}) AND {_SHARED} AND {used.sql}", *parameters, *used.parameters)
    read = (memory_at(memory, uri) for uri in uris)
    return [
        found
        for found in read
        if found is not None
        and found.metadata.is_active
        and not found.metadata.is_expired(now)
        and found.project is None
    ]


def _lines(memories: Sequence[Memory]) -> Iterator[Line]:
    """A line of each memory, and of one condensed from several a line of each of its entries."""
    for memory in memories:
        core = Original(memory)
        entries = core.items if core.is_core else ()
        for text in entries or (_text_of(memory),):
            own = _NAMED.match(text) if entries else None
            name, mark = "" if entries else memory.uri.name.removesuffix(".md"), ":"
            if own is not None:
                name, mark, text = own["name"], own["mark"], text[own.end() :]
            (line,) = condense([text], _LINE_CHARS).lines
            if not line:
                continue
            head = "" if line.casefold().startswith(name.casefold()) else f"{name}{mark}{'' if mark == '：' else ' '}"
            yield _line(memory, f"- {head}{line}")


def _line(memory: Memory, text: str) -> Line:
    (digest,) = said_digests(memory.uri, memory.body)
    return Line(text, str(memory.uri), digest)


def _part_text(part: Sequence[Line]) -> str:
    return "\n".join(line.text for line in part)


def _text(parts: Parts) -> str:
    return "\n\n".join(map(_part_text, parts))


def _all(parts: Parts) -> tuple[Line, ...]:
    return tuple(line for part in parts for line in part)


def _text_of(memory: Memory) -> str:
    return memory.body or str(memory.fields.get(CONTENT) or "")


def _is_own(memory: Runebook, uri: str) -> bool:
    return any(uri.startswith(f"viking://{space}/memories/") for space in memory.part(Reach).spaces)


FEATURE = Feature(passes=(Pass(_PAGE, _make_page, of_user=True), Pass(_OVERVIEWS, _improve, light=False, of_user=True)))
