"""The rolling summary made of what is stored, and what a model adds to it and to the summaries of logs.

``make_page`` makes the page word for word of the profile, preferences, the memories used most and the newest
summaries of logs, all but what belongs to one project. ``SummaryImprovement`` asks the model, by one call, for the page
and for an overview of each month that is complete. What a person wrote is left alone by both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_core.core.feature import Feature
from memory_core.features.rolling_summary import removal
from memory_core.features.upkeep.passes import Pass

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

import json
import re
from calendar import monthrange
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

from memory_core.core.errors import NotFound
from memory_core.core.index.filter import in_use
from memory_core.core.memory.memory import Memory
from memory_core.core.memory.memory_type import CONTENT
from memory_core.core.memory.results import Action, ChangeSet, CommitReceipt, FileChange, OperationResult, as_json
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.local import Snapshot
from memory_core.core.text.extractive_summary import condense, joined
from memory_core.features.rolling_summary import (
    Line,
    RollingSummary,
    dump_rolling_summary,
    read_rolling_summary,
    rolling_summary_uri,
    said_digests,
    sources_digest,
)
from memory_core.features.upkeep.core_memories import COMPRESSION
from memory_core.features.upkeep.log_summary import (
    OVERVIEW_CHARS,
    MonthSummary,
    dump_summary,
    nobodys_lines,
    read_summary,
    summaries_uri,
    summary_month,
    told,
)
from memory_core.features.upkeep.passes import commit, rows, stored
from memory_core.features.upkeep.summaries import Summary, SummaryRequest, SummaryWriter

SOURCE = "maintenance"
ROLLING_CHARS = 1_200
_PROFILE_CHARS, _LINE_CHARS, _LOG_CHARS, _MONTH_CHARS = 600, 160, 500, 20_000
#: Memories of each kind, lines of those that are condensed from several, and months.
_PREFERENCES, _HOT, _ENTRIES, _MONTHS = 8, 6, 16, 2
#: Of the memories used most, so many are looked at for some that may be shown.
_SPARE = 10
_SHARED = "d.project IS NULL AND NOT d.private"
#: How an entry of a condensed memory names what it came from.
_NAMED = re.compile(r"\*\*(?P<name>[^*\n]+)\*\*(?P<mark>[:：])\s*")

#: The lines of a page, part by part.
_PAGE, _OVERVIEWS = "rolling_summary", "overviews"
_UNMADE = "nothing of what it was made of is there any more"
Parts = tuple[tuple[Line, ...], ...]


def make_page(memory: Runebook, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
    """Make the rolling summary anew where what it is made of changed."""
    parts = sources(memory, now)
    text, lines = _text(parts), _all(parts)
    digest = sources_digest(lines)
    uri = rolling_summary_uri(memory.config.user_space)

    def planned(snapshot: Snapshot) -> ChangeSet:
        before = snapshot.text(uri)
        page = read_rolling_summary(before)
        if page is not None and (page.authored or page.sources == digest):
            return ChangeSet()
        if not text:
            return ChangeSet() if page is None else removal(uri, before or "", _UNMADE)
        made = RollingSummary(text, False, digest, None if page is None else page.created_at, lines)
        return _change(uri, before, made, "extract", memory, now)

    yield from commit(memory, _PAGE, planned, now, dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class SummaryImprovement:
    """Asks the model for what was only extracted so far: overviews of months, and the rolling summary."""

    memory: Runebook
    writer: SummaryWriter

    def run(self, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
        """Ask once, and write what came of it in one commit; see ``Pass.run``. A dry run asks nothing."""
        if dry_run:
            return
        months = list(self._months(now))
        requests = [SummaryRequest(_told(summary), OVERVIEW_CHARS) for _, summary in months]
        rolling = self._rolling(now)
        if rolling:
            requests.append(SummaryRequest(tuple(map(_part_text, rolling)), ROLLING_CHARS))
        if not requests:
            return
        written = self.writer.write(requests)
        if not any(written.items):
            yield from written.without_effect()
            return
        changes = self._changes(months, rolling, written.items, now)

        def planned(snapshot: Snapshot) -> ChangeSet:
            decided = changes(snapshot)
            return replace(decided, notes=written.notes, usage=as_json(written.usage))

        yield from commit(self.memory, _OVERVIEWS, planned, now, dry_run=False)

    def _months(self, now: datetime) -> Iterator[tuple[MemoryUri, MonthSummary]]:
        """Summaries of months that are complete and have no overview of all their days."""
        before = now.date() - timedelta(days=self.memory.config.maintenance.archive_days)
        for uri, summary in _summaries(self.memory):
            year, month = (int(part) for part in summary.month.split("-"))
            complete = date(year, month, monthrange(year, month)[1]) < before
            if complete and not summary.edited and summary.blocks and summary.overview_of != summary.digest:
                yield uri, summary

    def _rolling(self, now: datetime) -> Parts:
        """What the page is made of, where it is an extract of just that; else nothing."""
        uri = rolling_summary_uri(self.memory.config.user_space)
        stored = read_rolling_summary(self.memory.store.text(uri))
        parts = sources(self.memory, now)
        extract = stored is not None and (stored.text, stored.sources) == (_text(parts), sources_digest(_all(parts)))
        return parts if extract else ()

    def _changes(
        self,
        months: Sequence[tuple[MemoryUri, MonthSummary]],
        rolling: Parts,
        items: Sequence[Summary | None],
        now: datetime,
    ) -> Callable[[Snapshot], ChangeSet]:
        """The plan: each text that is still what the model was shown gets what it wrote."""
        context = self.memory.plan_context(now)
        page = rolling_summary_uri(self.memory.config.user_space)

        def planned(snapshot: Snapshot) -> ChangeSet:
            decided = ChangeSet()
            for (uri, shown), item in zip(months, items, strict=False):
                before = snapshot.text(uri)
                stored = read_summary(shown.month, shown.project, before)
                if item is None or stored != shown:
                    continue
                after = replace(stored, overview=item.text, overview_of=stored.digest).showing(stored.blocks)
                change = FileChange(uri, before, dump_summary(after, context.now))
                result = OperationResult("summary", str(uri), Action.UPDATED, note="overview written by the model")
                decided = replace(decided, changes=(*decided.changes, change), results=(*decided.results, result))
            item = items[-1] if rolling else None
            before = snapshot.text(page)
            stored_page = read_rolling_summary(before)
            lines = _all(rolling)
            digest = sources_digest(lines)
            if item is None or stored_page is None or stored_page.authored or stored_page.sources != digest:
                return decided
            summary = RollingSummary(item.text, False, digest, stored_page.created_at, lines)
            own = _change(page, before, summary, "model", self.memory, now)
            return replace(decided, changes=(*decided.changes, *own.changes), results=(*decided.results, *own.results))

        return planned


def sources(memory: Runebook, now: datetime) -> Parts:
    """What the rolling summary is made of, part by part; empty where nothing is known of the user yet."""
    profile = _memories(memory, now, "d.memory_type = 'profile'")
    liked = _memories(memory, now, "d.memory_type = 'preferences'")
    liked = sorted(liked, key=lambda each: (-each.salience, str(each.uri)))[:_PREFERENCES]
    top = [uri for uri, _ in memory.store.ledger.usage_table.top(_HOT * _SPARE, lambda uri: _is_own(memory, uri))]
    hot = _memories(
        memory,
        now,
        "d.uri IN (SELECT value FROM json_each(?)) AND d.memory_type NOT IN ('profile', 'preferences')",
        json.dumps(top),
    )
    hot = sorted(sorted(hot, key=lambda each: top.index(str(each.uri)))[:_HOT], key=lambda each: str(each.uri))
    logged = [
        Line(line, str(uri), next(iter(said_digests(uri, raw))))
        for uri, summary in _newest(memory)
        for raw, line in nobodys_lines(summary.blocks.values())
    ]
    if not (profile or liked or logged):
        return ()
    about = _condensed([_said(each) for each in profile], _PROFILE_CHARS)
    logs = _condensed([line.text for line in logged], _LOG_CHARS)
    parts = (
        tuple(_line(each, text) for each, text in zip(profile, about, strict=True) if text),
        tuple(_lines(liked))[:_ENTRIES],
        tuple(_lines(hot))[:_ENTRIES],
        tuple(replace(line, text=f"- {text}") for line, text in zip(logged, logs, strict=True) if text),
    )
    return tuple(part for part in parts if part)


def _newest(memory: Runebook) -> list[tuple[MemoryUri, MonthSummary]]:
    shared = [(uri, summary) for uri, summary in _summaries(memory) if summary.project is None]
    return sorted(shared, key=lambda each: each[1].month)[-_MONTHS:]


def _summaries(memory: Runebook) -> Iterator[tuple[MemoryUri, MonthSummary]]:
    """All summaries of logs; the trailer says whose a private one is."""
    try:
        listed = memory.store.files.entries(summaries_uri(memory.config.user_space))
    except NotFound:
        return
    for entry in listed:
        month = summary_month(entry.uri)
        text = None if month is None else memory.store.text(entry.uri)
        if month is not None and text is not None:
            summary = read_summary(month, None, text)
            project = summary.kept.get("project")
            yield entry.uri, replace(summary, project=project if isinstance(project, str) else None)


def _told(summary: MonthSummary) -> tuple[str, ...]:
    """What a model is shown of a month."""
    return tuple(filter(None, _condensed(told(summary.blocks.values()), _MONTH_CHARS)))


def _memories(memory: Runebook, now: datetime, condition: str, *parameters: object) -> list[Memory]:
    """Memories in use that are nobody's project's, by the catalog and by their files as they are now."""
    used = in_use(now)
    uris = rows(memory, f"({condition}) AND {_SHARED} AND {used.sql}", *parameters, *used.parameters)
    read = (stored(memory, uri, memory.store.text(uri)) for uri in uris)
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
        entries = _entries(memory)
        for said in entries or (_said(memory),):
            own = _NAMED.match(said) if entries else None
            name = "" if entries else memory.uri.name.removesuffix(".md")
            mark, text = ":", said
            if own is not None:
                name, mark, text = own.group("name"), own.group("mark"), said[own.end() :]
            (line,) = _condensed([text], _LINE_CHARS)
            if not line:
                continue
            head = "" if line.casefold().startswith(name.casefold()) else f"{name}{mark}{'' if mark == '：' else ' '}"
            yield _line(memory, f"- {head}{line}")


def _entries(memory: Memory) -> list[str]:
    """What one condensed from several says, item by item; empty of another memory, or one that is no list."""
    source, said = memory.metadata.get("source"), _said(memory).replace("\r\n", "\n").strip()
    if not isinstance(source, Mapping) or source.get("kind") != COMPRESSION:
        return []
    listed = all(line.startswith(("- ", "  ")) or not line.strip() for line in said.split("\n"))
    return f"\n{said}".split("\n- ")[1:] if listed else []


def _line(memory: Memory, text: str) -> Line:
    (digest,) = said_digests(memory.uri, memory.body)
    return Line(text, str(memory.uri), digest)


def _condensed(texts: Sequence[str], limit_chars: int) -> list[str]:
    """Of each text, in order, what there is room for; empty for nothing."""
    chosen = condense(texts, limit_chars).chosen
    return [" ".join(joined(sentences).split()) for sentences in chosen]


def _part_text(part: Sequence[Line]) -> str:
    return "\n".join(line.text for line in part)


def _text(parts: Parts) -> str:
    return "\n\n".join(map(_part_text, parts))


def _all(parts: Parts) -> tuple[Line, ...]:
    return tuple(line for part in parts for line in part)


def _said(memory: Memory) -> str:
    return memory.body or str(memory.fields.get(CONTENT) or "")


def _is_own(memory: Runebook, uri: str) -> bool:
    return any(uri.startswith(f"viking://{space}/memories/") for space in memory.spaces[:2])


def _change(
    uri: MemoryUri, before: str | None, summary: RollingSummary, author: str, memory: Runebook, now: datetime
) -> ChangeSet:
    text = dump_rolling_summary(summary, memory.plan_context(now).now, {"kind": SOURCE, "author": author})
    action = Action.CREATED if before is None else Action.UPDATED
    note = "written by the model" if author == "model" else "word for word from what is stored"
    return ChangeSet((FileChange(uri, before, text),), (OperationResult("summary", str(uri), action, note=note),))


def _improve(memory: Runebook, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
    return SummaryImprovement(memory, SummaryWriter(memory.config, memory.model)).run(now, dry_run=dry_run)


FEATURE = Feature(passes=(Pass(_PAGE, make_page), Pass(_OVERVIEWS, _improve, light=False)))
