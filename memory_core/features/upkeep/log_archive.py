"""Old daily logs: summarised by the month, what matters promoted to memories, their raw text moved to the archive.

A log itself is never altered. What is summarised and promoted stands in the summary's file, in the same commit: a
killed process leaves nothing half done, and a log that a person edits later is summarised again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from memory_core.core.commit.plan import plan
from memory_core.core.commit.working_copy import PlanContext, WorkingCopy
from memory_core.core.errors import InvalidUri, NotFound
from memory_core.core.feature import Feature
from memory_core.core.index.documents import EVENT_TIME
from memory_core.core.memory.memory_type import CONTENT, FieldType, MemoryTypeRegistry, resolve_category
from memory_core.core.memory.operations import MemoryData, MemoryOperations, WriteOp
from memory_core.core.memory.project import ProjectAssignment
from memory_core.core.memory.results import Action, ChangeSet, CommitReceipt, FileChange, OperationResult
from memory_core.core.memory.trailer import body_digest, split
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.local import Snapshot
from memory_core.core.text.analysis import distinct_words
from memory_core.features.daily_logs import DEFAULT_SALIENCE, LogEntry, entries, log_day, log_uri
from memory_core.features.upkeep.archive import archived_uri, put_away
from memory_core.features.upkeep.log_summary import (
    MonthSummary,
    Remembered,
    dump_summary,
    entry_moment,
    entry_name,
    moved,
    read_summary,
    summary_uri,
    with_day,
)
from memory_core.features.upkeep.passes import Pass, commit, text_at

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

_REASON = "old log"
#: Logs of so many characters together are summarised in one commit, or one that is longer.
_COMMIT_CHARS = 100_000


@dataclass(frozen=True, slots=True)
class LogArchive:
    """Summarises logs older than ``maintenance.archive_days`` and moves away those older than ``delete_days``."""

    memory: Runebook

    def run(self, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
        """Summarise, promote and move what is due; see ``Pass.run``."""
        done = partial(commit, self.memory, _LOGS, now=now, dry_run=dry_run, is_large=True)
        for month, days in self._due(now, self.memory.config.maintenance.archive_days):
            for assignment in self._assignments(days):
                yield from done(self._summarising(month, days, assignment, now))
        for month, days in self._due(now, self.memory.config.maintenance.delete_days):
            yield from done(self._moving(month, days, now, dry_run))

    @property
    def _space(self) -> str:
        return self.memory.config.user_space

    def _due(self, now: datetime, age_days: int) -> list[tuple[str, list[date]]]:
        """Days of a month older than this whose logs are there, ascending, in parts that one commit can take."""
        before = now.date() - timedelta(days=age_days)
        found: list[tuple[str, list[date]]] = []
        try:
            listed = self.memory.store.files.entries(log_uri(self._space, before).parent)
        except NotFound:
            return found
        held = 0
        for day in sorted(day for entry in listed if (day := log_day(entry.uri)) is not None and not entry.is_dir):
            text = text_at(self.memory, log_uri(self._space, day)) if day < before else None
            if text is None:  # one that cannot be read must not keep the others from being summarised
                continue
            month = day.isoformat()[:7]
            held += len(text)
            if not found or found[-1][0] != month or held > _COMMIT_CHARS:
                found.append((month, []))
                held = len(text)
            found[-1][1].append(day)
        return found

    def _assignments(self, days: Sequence[date]) -> list[ProjectAssignment]:
        """Whose entries these logs hold: nobody's first, then of each project what all see, and what is private."""
        found = {(entry.project or "", _is_private(entry)) for day in days for entry in self._entries(day)}
        others = sorted(found - {("", False)})
        return [
            ProjectAssignment(),
            *(ProjectAssignment(project, named=True, private=private) for project, private in others),
        ]

    def _entries(self, day: date) -> tuple[LogEntry, ...]:
        return entries(self.memory.store.text(log_uri(self._space, day)) or "")

    def _summarising(
        self, month: str, days: Sequence[date], assignment: ProjectAssignment, now: datetime
    ) -> Callable[[Snapshot], ChangeSet]:
        context = replace(self.memory.plan_context(now), assignment=assignment)
        project = assignment.project if assignment.private else None
        uri = summary_uri(self._space, month, project)

        def planned(snapshot: Snapshot) -> ChangeSet:
            before = snapshot.text(uri)
            stored = summary = read_summary(month, project, before)
            promotions = _Promotions(snapshot, context, assignment.project, stored.promoted)
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
        added = day.isoformat() in summary.archived_days and snapshot.text(archived_uri(uri)) is None
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
                moved_before = any(name in summaries[owner].archived_days for owner in {None, *owners})
                if moved_before or not (holds or dry_run):
                    continue
                if forever:
                    draft.existing(uri)
                    draft.put(uri, None)
                    gone[name] = None
                    note = "deleted for good: history keeps it until a purge"
                else:
                    gone[name] = target = put_away(draft, uri, _REASON)
                    note = f"{_REASON}; now {target}"
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
        self, snapshot: Snapshot, context: PlanContext, project: str | None, promoted: Sequence[Remembered]
    ) -> None:
        self._snapshot, self._context, self._project = snapshot, context, project
        self._promoted = {each.name: each for each in promoted}
        self._pending: dict[str, Remembered] = {}
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
            made = Remembered(name, moment)
            found = next((each for each in changed if each.at == moment and self._is_same(each, entry, write)), None)
            if found is not None:
                changed.remove(found)
                del self._promoted[found.name]
                made, write = self._corrected(found, made, write)
            self._promoted[name] = made
            if write is not None:
                self.writes.append(write)
                self._pending[str(write.memory_data.source["log"])] = made

    def outcome(self, writes: Sequence[WriteOp], decided: ChangeSet) -> tuple[Remembered, ...]:
        """What was promoted, with the memories that the plan made of these writes."""
        bodies = {str(change.uri): split(change.after or "").body for change in decided.changes}
        for write, result in zip(writes, decided.results, strict=False):
            made = self._pending[str(write.memory_data.source["log"])]
            own = result.action is Action.CREATED or (result.action is Action.UPDATED and bool(made.uri))
            if own and result.uri in bodies:
                self._promoted[made.name] = replace(made, uri=result.uri, digest=body_digest(bodies[result.uri]))
        return tuple(self._promoted.values())

    def _is_same(self, before: Remembered, entry: LogEntry, write: WriteOp) -> bool:
        """Whether this is the entry that was promoted: by its moment, else by its minute and most of its words."""
        if entry.at is not None:
            return True
        text = self._snapshot.text(MemoryUri.parse(before.uri)) if before.uri and self._is_own(before.uri) else None
        old = distinct_words(split(text or "").body)
        new = distinct_words(str(write.memory_data.fields.get(CONTENT) or ""))
        return len(old & new) * 2 > max(len(old), len(new), 1)

    def _is_own(self, uri: str) -> bool:
        """Whether a memory is of the user or the agent; an earlier program promoted to agents of others, too."""
        with suppress(InvalidUri):
            return bool(self._context.owned(uri))
        return False

    def _corrected(self, before: Remembered, made: Remembered, write: WriteOp) -> tuple[Remembered, WriteOp | None]:
        """The write that corrects the memory; none where it is gone, or somebody edited it since."""
        if not before.uri or not self._is_own(before.uri):
            return made, write
        text = self._snapshot.text(MemoryUri.parse(before.uri))
        made = replace(made, uri=before.uri, digest=before.digest)
        if text is None:
            return made, None
        if body_digest(split(text).body) != before.digest:
            self.notes.append(f"{before.uri} was edited since; the corrected line of its log did not change it")
            return made, None
        return made, write.model_copy(update={"uri": before.uri, "replace": True})


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
    days = len(summary.days)
    note = f"{days} {'day' if days == 1 else 'days'}"
    missing = sum(count for day, count in summary.left_out.items() if summary.days.get(day) != stored.days.get(day))
    if missing:
        note = f"{note}; {missing} sentence{'' if missing == 1 else 's'} left out, in the logs alone"
    result = OperationResult("summary", str(uri), Action.CREATED if before is None else Action.UPDATED, note=note)
    return decided.with_file(FileChange(uri, before, dump_summary(summary, context.now)), result)


#: From this salience on an entry matters whatever it is.
_IMPORTANT_SALIENCE = 0.8
_PROMOTED = "promotion"
#: The type of an entry that names none; and of one whose type is not there.
_BY_KIND: Mapping[str, str] = {"event": "events", "auto_extract": "facts", "reflection": "reflections"}
_FALLBACK = "notes"


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
        wanted = "patterns"
    elif entry.salience >= _IMPORTANT_SALIENCE or (entry.kind == "auto_extract" and category is not None):
        wanted = category or _BY_KIND[entry.kind]
    else:
        return None
    name = next((each for each in (wanted, _FALLBACK) if _type_named(registry, each) is not None), None)
    if name is None:
        return None
    fields: dict[str, Any] = {CONTENT: _said_of(entry)}
    if registry.get(name).field(EVENT_TIME) is not None:
        fields[EVENT_TIME] = day.isoformat()
    data = MemoryData(
        memory_type=name,
        fields=fields,
        salience=None if entry.salience == DEFAULT_SALIENCE else entry.salience,
        category=entry.category,
    )
    source = {"kind": _PROMOTED, "log": f"{log_uri(user_space, day)}#{entry.line}"}
    if lesson and entry.error:
        source["error_type"] = entry.error
    if entry.session_id is not None:
        source["session_id"] = entry.session_id
    return WriteOp(memory_data=data.sourced(source))


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


def _run(memory: Runebook, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
    return LogArchive(memory).run(now, dry_run=dry_run)


_LOGS = "logs"
FEATURE = Feature(passes=(Pass(_LOGS, _run, of_user=True),))
