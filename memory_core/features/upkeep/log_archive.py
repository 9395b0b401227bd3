"""Old daily logs: summarised by the month, what matters promoted to memories, their raw text moved to the archive.

A log itself is never altered. Which days a summary holds, and which entries were promoted, stands in the summary's
trailer, in the same commit: a killed process leaves nothing half done, and a log that a person edits later is
summarised again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_core.core.feature import Feature
from memory_core.core.memory.memory_type import CONTENT, FieldType, MemoryTypeRegistry, resolve_category
from memory_core.core.memory.operations import MemoryData
from memory_core.core.text.analysis import distinct_words
from memory_core.core.text.extractive_summary import condense, joined, numbers
from memory_core.core.text.extractive_summary import names as named
from memory_core.core.text.language import sentences
from memory_core.features.daily_logs import DEFAULT_SALIENCE, readable

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Any

from memory_core.core.commit.plan import plan
from memory_core.core.commit.working_copy import PlanContext, WorkingCopy
from memory_core.core.errors import NotFound, RunebookError
from memory_core.core.memory import names
from memory_core.core.memory.names import summary_line
from memory_core.core.memory.operations import MemoryOperations, WriteOp
from memory_core.core.memory.project import Belonging
from memory_core.core.memory.results import Action, ChangeSet, CommitReceipt, FileChange, OperationResult
from memory_core.core.memory.trailer import body_digest, join, split
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.store.local import Snapshot
from memory_core.features.daily_logs import LogEntry, entries, log_day, log_uri
from memory_core.features.upkeep.archive import archived_uri, put_away
from memory_core.features.upkeep.passes import Pass, commit

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
    return join(body, trailer)


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


_log = logging.getLogger(__name__)
REASON = "old log"


@dataclass(frozen=True, slots=True)
class LogArchive:
    """Summarises logs older than ``maintenance.archive_days`` and moves away those older than ``delete_days``."""

    memory: Runebook

    def run(self, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
        """Summarise, promote and move what is due; see ``Pass.run``."""
        for month, days in self._due(now, self.memory.config.maintenance.archive_days).items():
            for belonging in self._belongings(days):
                planned = self._summarising(month, days, belonging, now)
                yield from commit(self.memory, _LOGS, planned, now, dry_run=dry_run)
        for month, days in self._due(now, self.memory.config.maintenance.delete_days).items():
            yield from commit(self.memory, _LOGS, self._moving(month, days, now, dry_run), now, dry_run=dry_run)

    @property
    def _space(self) -> str:
        return self.memory.config.user_space

    def _due(self, now: datetime, age_days: int) -> Mapping[str, list[date]]:
        """Days older than this whose logs are there, by month, ascending."""
        before = now.date() - timedelta(days=age_days)
        found: dict[str, list[date]] = defaultdict(list)
        try:
            listed = self.memory.store.files.entries(log_uri(self._space, before).parent)
        except NotFound:
            return found
        for day in sorted(day for entry in listed if (day := log_day(entry.uri)) is not None and not entry.is_dir):
            if day < before and self._is_readable(day):
                found[day.isoformat()[:7]].append(day)
        return found

    def _is_readable(self, day: date) -> bool:
        """Whether a log can be read: one that cannot keeps nothing of the others from being summarised."""
        try:
            return self.memory.store.text(log_uri(self._space, day)) is not None
        except RunebookError as error:
            _log.warning("a log was passed over: %s", error.message)
            return False

    def _belongings(self, days: Sequence[date]) -> list[Belonging]:
        """Whose entries these logs hold: nobody's first, then of each project what all see, and what is private."""
        found = {(entry.project or "", _is_private(entry)) for day in days for entry in self._entries(day)}
        others = sorted(found - {("", False)})
        return [Belonging(), *(Belonging(project, named=True, private=private) for project, private in others)]

    def _entries(self, day: date) -> tuple[LogEntry, ...]:
        return entries(self.memory.store.text(log_uri(self._space, day)) or "")

    def _summarising(
        self, month: str, days: Sequence[date], belonging: Belonging, now: datetime
    ) -> Callable[[Snapshot], ChangeSet]:
        context = replace(self.memory.plan_context(now), belonging=belonging)
        project = belonging.project if belonging.private else None
        uri = summary_uri(self._space, month, project)

        def planned(snapshot: Snapshot) -> ChangeSet:
            before = snapshot.text(uri)
            stored = summary = read_summary(month, project, before)
            promotions = _Promotions(snapshot, context, belonging.project, list(stored.promoted))
            for day in days:
                own = [entry for entry in _logged(snapshot, self._space, day) if _owner(entry) == project]
                summary = self._with_day(snapshot, summary, day, own)
                promotions.take(day, own)
            cleared = self.memory.commits.cleaner.operations(MemoryOperations(write_operations=promotions.writes))
            decided = plan(cleared.operations, snapshot, context)
            summary = replace(summary, promoted=promotions.outcome(cleared.operations.write_operations, decided))
            notes = (*cleared.notes, *promotions.notes)
            decided = replace(decided, results=(*decided.results, *cleared.refused), notes=notes)
            return _with_file(decided, uri, before, summary, stored, context)

        return planned

    def _with_day(self, snapshot: Snapshot, summary: MonthSummary, day: date, own: Sequence[LogEntry]) -> MonthSummary:
        """The summary with a day; what is written after its log was deleted for good comes to what it says."""
        uri = log_uri(self._space, day)
        added = day.isoformat() in summary.archived and snapshot.text(archived_uri(uri)) is None
        return with_day(summary, uri, day, own, added=added and self.memory.config.maintenance.delete_logs)

    def _moving(
        self, month: str, days: Sequence[date], now: datetime, dry_run: bool
    ) -> Callable[[Snapshot], ChangeSet]:
        """Move logs away that are in their summaries as they are now; once: what a person restores stays."""
        context = self.memory.plan_context(now)
        forever = self.memory.config.maintenance.delete_logs

        def planned(snapshot: Snapshot) -> ChangeSet:
            draft = WorkingCopy(snapshot, context)
            results: list[OperationResult] = []
            summaries: dict[str | None, MonthSummary] = {None: self._summary(snapshot, month, None)}
            gone: dict[str, MemoryUri | None] = {}
            for day in days:
                uri, name = log_uri(self._space, day), day.isoformat()
                owners = {_owner(entry) for entry in entries(snapshot.text(uri) or "")}
                for owner in owners - summaries.keys():
                    summaries[owner] = self._summary(snapshot, month, owner)
                holds = all(self._holds(snapshot, summaries[owner], day) for owner in owners)
                moved_before = any(name in summaries[owner].archived for owner in {None, *owners})
                if moved_before or not (holds or dry_run):
                    continue
                if forever:
                    draft.existing(uri)
                    draft.put(uri, None)
                    gone[name] = None
                    note = "deleted for good: history keeps it until a purge"
                else:
                    gone[name] = target = put_away(draft, uri, REASON)
                    note = f"{REASON}; now {target}"
                results.append(OperationResult("archive", str(uri), Action.DELETED, note=note))
            decided = ChangeSet(draft.changes(), tuple(results))
            for owner, summary in summaries.items() if gone and not dry_run else ():
                target = summary_uri(self._space, month, owner)
                after = moved(summary, self._space, gone)
                decided = _with_file(decided, target, snapshot.text(target), after, summary, context)
            return decided

        return planned

    def _summary(self, snapshot: Snapshot, month: str, owner: str | None) -> MonthSummary:
        return read_summary(month, owner, snapshot.text(summary_uri(self._space, month, owner)))

    def _holds(self, snapshot: Snapshot, summary: MonthSummary, day: date) -> bool:
        """Whether the summary says what the log says now."""
        own = [entry for entry in _logged(snapshot, self._space, day) if _owner(entry) == summary.project]
        return self._with_day(snapshot, summary, day, own) is summary


class _Promotions:
    """The entries of a month that become memories, and those whose correction changes the memory they made.

    Args:
        snapshot: The store as it is.
        context: Of the commit.
        project: Only entries of this project are taken.
        promoted: Those that were before.
    """

    def __init__(
        self, snapshot: Snapshot, context: PlanContext, project: str | None, promoted: Sequence[Promoted]
    ) -> None:
        self._snapshot, self._context, self._project = snapshot, context, project
        self._promoted = {each.name: each for each in promoted}
        self._pending: dict[str, Promoted] = {}
        self.writes: list[WriteOp] = []
        self.notes: list[str] = []

    def take(self, day: date, entries: Sequence[LogEntry]) -> None:
        """Add what a day's entries come to."""
        named = {entry_name(day, entry): entry for entry in entries}
        changed = [each for name, each in self._promoted.items() if name not in named and each.at]
        for name, entry in named.items():
            if entry.project != self._project or name in self._promoted:
                continue
            write = promotion(self._context.registry, self._context.user_space, day, entry)
            if write is None:
                continue
            moment = entry_moment(day, entry)
            made = Promoted(name, moment)
            found = next((each for each in changed if each.at == moment and self._is_same(each, entry, write)), None)
            if found is not None:
                changed.remove(found)
                del self._promoted[found.name]
                made, write = self._corrected(found, made, write)
            self._promoted[name] = made
            if write is not None:
                self.writes.append(write)
                self._pending[str(write.memory_data.source["log"])] = made

    def outcome(self, writes: Sequence[WriteOp], decided: ChangeSet) -> tuple[Promoted, ...]:
        """What was promoted, with the memories that the plan made of these writes."""
        bodies = {str(change.uri): split(change.after or "").body for change in decided.changes}
        for write, result in zip(writes, decided.results, strict=False):
            made = self._pending[str(write.memory_data.source["log"])]
            own = result.action is Action.CREATED or (result.action is Action.UPDATED and bool(made.uri))
            if own and result.uri in bodies:
                self._promoted[made.name] = replace(made, uri=result.uri, digest=body_digest(bodies[result.uri]))
        return tuple(self._promoted.values())

    def _is_same(self, before: Promoted, entry: LogEntry, write: WriteOp) -> bool:
        """Whether this is the entry that was promoted: by its moment, else by its minute and most of its words."""
        text = self._snapshot.text(MemoryUri.parse(before.uri)) if before.uri else None
        return entry.at is not None or is_reworded(split(text or "").body, write)

    def _corrected(self, before: Promoted, made: Promoted, write: WriteOp) -> tuple[Promoted, WriteOp | None]:
        """The write that corrects the memory; none where it is gone, or somebody edited it since."""
        if not before.uri:
            return made, write
        text = self._snapshot.text(MemoryUri.parse(before.uri))
        made = replace(made, uri=before.uri, digest=before.digest)
        if text is None:
            return made, None
        if body_digest(split(text).body) != before.digest:
            self.notes.append(f"{before.uri} was edited since; the corrected line of its log did not change it")
            return made, None
        return made, write.model_copy(update={"uri": before.uri})


def _logged(snapshot: Snapshot, user_space: str, day: date) -> tuple[LogEntry, ...]:
    """All entries of a day: those that were moved to the archive, and those that were added since."""
    uri = log_uri(user_space, day)
    old, new = entries(snapshot.text(archived_uri(uri)) or ""), entries(snapshot.text(uri) or "")
    known = {entry_name(day, entry) for entry in old}
    return (*old, *(entry for entry in new if entry_name(day, entry) not in known))


def _is_private(entry: LogEntry) -> bool:
    return entry.private and entry.project is not None


def _owner(entry: LogEntry) -> str | None:
    """The project that alone may see an entry."""
    return entry.project if _is_private(entry) else None


def _with_file(
    decided: ChangeSet,
    uri: MemoryUri,
    before: str | None,
    summary: MonthSummary,
    stored: MonthSummary,
    context: PlanContext,
) -> ChangeSet:
    """The change set with the summary's file, where it changes."""
    if summary == stored or not (summary.days or summary.body):
        return decided
    after = dump_summary(summary, context.now)
    action = Action.CREATED if before is None else Action.UPDATED
    days = len(summary.days)
    note = f"{days} {'day' if days == 1 else 'days'}"
    counts = left_out(summary)
    missing = sum(count for day, count in counts.items() if summary.days.get(day) != stored.days.get(day))
    if missing:
        note = f"{note}; {missing} sentence{'' if missing == 1 else 's'} left out, in the logs alone"
    result = OperationResult("summary", str(uri), action, note=note)
    change = FileChange(uri, before, after)
    return replace(decided, changes=(*decided.changes, change), results=(*decided.results, result))


# PROM
#: From this salience on an entry matters whatever it is.
IMPORTANT_SALIENCE = 0.8
_PROMOTED = "promotion"
_PATTERNS, _EVENTS, _NOTES = "patterns", "events", "notes"
_BY_KIND: Mapping[str, str] = {"event": _EVENTS, "auto_extract": "facts", "reflection": "reflections"}
_EVENT_TIME = "event_time"


def promotion(registry: MemoryTypeRegistry, user_space: str, day: date, entry: LogEntry) -> WriteOp | None:
    """The memory that an entry becomes; None if it does not matter enough.

    Args:
        registry: The types there are.
        user_space: Whose log it is.
        day: Of the log.
        entry: The entry; its line says where it came from.
    """
    category = _type_named(registry, entry.category)
    lesson = entry.kind == "reflection" and bool(entry.tool or entry.error)
    if lesson:
        wanted = [_PATTERNS]
    elif entry.kind == "auto_extract" and category is not None:
        wanted = [category]
    elif entry.salience >= IMPORTANT_SALIENCE:
        wanted = [category or _BY_KIND[entry.kind]]
    else:
        return None
    name = next((name for name in [*wanted, _NOTES] if _type_named(registry, name) is not None), None)
    if name is None:
        return None
    fields: dict[str, Any] = {CONTENT: _said_of(entry)}
    if registry.get(name).field(_EVENT_TIME) is not None:
        fields[_EVENT_TIME] = day.isoformat()
    data = MemoryData(
        memory_type=name,
        fields=fields,
        salience=None if entry.salience == DEFAULT_SALIENCE else entry.salience,
        category=entry.category,
    )
    source = {"kind": _PROMOTED, "log": f"{log_uri(user_space, day)}#{entry.line}"}
    if entry.session_id is not None:
        source["session_id"] = entry.session_id
    return WriteOp(memory_data=data.sourced(source))


def is_reworded(before: str, write: WriteOp) -> bool:
    """Whether a promotion says in most of its words what a text said, as after the correction of a slip."""
    old, new = distinct_words(before), distinct_words(str(write.memory_data.fields.get(CONTENT) or ""))
    return len(old & new) * 2 > max(len(old), len(new), 1)


def _said_of(entry: LogEntry) -> str:
    """The entry, and below it the tool and the error that its text does not name."""
    labels = (("Tool", entry.tool), ("Error", entry.error))
    lines = [f"{label}: {value}" for label, value in labels if value and value not in entry.text]
    return "\n".join([entry.text, *lines])


def _type_named(registry: MemoryTypeRegistry, name: str | None) -> str | None:
    """The type that a name or a category stands for, if a single text can become a memory of it."""
    if not name:
        return None
    for known in registry.list_all():
        if known.name in (name, resolve_category(name)):
            key = known.field(known.key_fields[-1]) if known.key_fields else None
            plain = not known.template_mode and known.field(CONTENT) is not None
            return known.name if plain and key is not None and key.type is FieldType.STRING else None
    return None


# DAYS
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
        return bool(self.entry.error or numbers(said) or named(said) or _FAILURE.search(said))

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


def _run(memory: Runebook, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
    return LogArchive(memory).run(now, dry_run=dry_run)


_LOGS = "logs"
FEATURE = Feature(passes=(Pass(_LOGS, _run),))
