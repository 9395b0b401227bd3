"""One batch of imported memories, log entries and summaries as the plan of one commit.

Nothing that is there is overwritten: a memory of the same name and text is the same, one of another text gets a name
beside it. What an earlier import brought is left as it is now, unless its source says something new and nobody touched
it here. Plans only; the commit is the store's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC
from typing import Any

from pydantic import ValidationError

from memory_core.errors import NotFound, RunebookError
from memory_core.lifecycle.imports.items import LeftOut, LogItem, MemoryItem, Stored, SummaryItem
from memory_core.lifecycle.imports.known import Known, Mark
from memory_core.model.changes import Action, ChangeSet, FileChange, OperationResult
from memory_core.model.daily_log import LogEntry, entries, log_uri, new_entry, with_entry
from memory_core.model.filename import key_of
from memory_core.model.memory_file import parse
from memory_core.model.operations import MemoryData, MemoryOperations, WriteOp
from memory_core.model.record import CONTENT, first_words, read_record
from memory_core.model.rolling_summary import (
    RollingSummary,
    dump_rolling_summary,
    read_rolling_summary,
    rolling_summary_uri,
)
from memory_core.model.schema import MemoryType
from memory_core.model.uri import MemoryUri
from memory_core.registry import MemoryTypeRegistry
from memory_core.storage.store import Snapshot
from memory_core.update.bounds import Context
from memory_core.update.discretion import Discretion
from memory_core.update.draft import Draft
from memory_core.update.naming import numbered
from memory_core.update.planner import plan

_NAMES_LIMIT = 32
_FALLBACK = "notes"
#: Where a type has no field for free text, the field that takes it.
_GUIDE = "guidelines"
_LABEL_CHARS = 200


@dataclass(frozen=True, slots=True)
class Placed:
    """What became of one item."""

    item: Stored
    action: Action
    uri: str


@dataclass(slots=True)
class Outcome:
    """What became of the items of a batch; ``kept`` are those whose memory here differs and stays."""

    placed: list[Placed] = field(default_factory=list)
    kept: list[LeftOut] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Write:
    item: MemoryItem
    op: WriteOp


class MemoryBatch:
    """The plan of one commit.

    Args:
        items: What is to come in, in order.
        context: Time, types, spaces and project of the commit; its source names the format.
        known: What earlier imports brought.
        discretion: What becomes of secrets.
    """

    def __init__(self, items: Sequence[Stored], context: Context, known: Known, discretion: Discretion) -> None:
        self._items = items
        self._context = context
        self._registry: MemoryTypeRegistry = context.registry
        self._known = known
        self._discretion = discretion
        self.outcome = Outcome()

    def plan(self, snapshot: Snapshot) -> ChangeSet:
        """The batch's changes; an item that cannot be taken is left out alone."""
        self.outcome = Outcome()
        naming = _Naming(Draft(snapshot, self._context), self._context)
        writes: list[_Write] = []
        logged: list[LogItem] = []
        summaries: list[SummaryItem] = []
        for item in self._items:
            mark = self._known.get(item.item_id)
            try:
                if isinstance(item, MemoryItem):
                    found = self._memory(item, mark, naming, snapshot)
                    writes += [] if found is None else [found]
                elif mark is not None:
                    self._note(item, Action.UNCHANGED, mark.uri)
                elif isinstance(item, LogItem):
                    logged.append(item)
                else:
                    summaries.append(item)
            except RunebookError as error:
                self._leave(item, error.message)
        return self._decided(writes, logged, summaries, snapshot)

    def _decided(
        self, writes: list[_Write], logged: list[LogItem], summaries: list[SummaryItem], snapshot: Snapshot
    ) -> ChangeSet:
        operations = MemoryOperations(write_operations=[write.op for write in writes])
        decided = plan(operations, snapshot, self._context)
        settled = zip(writes, map(self._discretion.result, decided.results), strict=True)
        results = [self._settled(write.item, result) for write, result in settled]
        changes = list(decided.changes)
        for changed, more in (self._logged(logged, snapshot), self._summaries(summaries, snapshot)):
            changes += changed
            results += more
        return replace(decided, changes=tuple(changes), results=tuple(results))

    def _settled(self, item: MemoryItem, result: OperationResult) -> OperationResult:
        if result.action is Action.REJECTED:
            self._leave(item, result.reason or "it was refused")
            return result
        self._note(item, result.action, result.uri)
        return self._known.marked(replace(result, op="import"), item.item_id, item.digest)

    def _memory(self, item: MemoryItem, mark: Mark | None, naming: _Naming, snapshot: Snapshot) -> _Write | None:
        """The write that brings a memory in, or None where it is here already."""
        if mark is not None:
            return self._again(item, mark, snapshot)
        memory_type = self._type_of(item)
        fields = _fields(item, memory_type)
        if not memory_type.key_fields:
            uri = self._context.directory(memory_type).child(memory_type.filename_template)
            if snapshot.text(uri) is None and naming.take(uri):
                return self._write(item, memory_type, fields, None)
            if naming.says(uri, memory_type, fields):
                self._note(item, Action.UNCHANGED, str(uri))
                return None
            memory_type = self._registry.get(_FALLBACK)  # there is one portrait, and it is not ours to rewrite
            fields = _fields(item, memory_type)
        placed = naming.place(memory_type, fields, item.item_id)
        if isinstance(placed, MemoryUri):
            self._note(item, Action.UNCHANGED, str(placed))
            return None
        return self._write(item, memory_type, placed, None)

    def _again(self, item: MemoryItem, mark: Mark, snapshot: Snapshot) -> _Write | None:
        """The write that takes over what the source says anew of a memory that nobody touched here."""
        uri = MemoryUri.parse(mark.uri)
        if mark.digest != item.digest:
            now, then = snapshot.text(uri), snapshot.ledger.text_at(uri, mark.seq)
            if now is not None and then is not None and parse(now).body == parse(then).body:
                memory_type = self._registry.type_at(uri, parse(now).type_name)
                if memory_type is not None:
                    fields = {
                        name: value
                        for name, value in _fields(item, memory_type).items()
                        if name not in memory_type.key_fields
                    }
                    return self._write(item, memory_type, fields, str(uri))
            self.outcome.kept.append(LeftOut(item.place, f"it changed there, and {uri} was changed or removed here"))
        self._note(item, Action.UNCHANGED, mark.uri)
        return None

    def _write(
        self, item: MemoryItem, memory_type: MemoryType, fields: Mapping[str, Any], uri: str | None
    ) -> _Write | None:
        try:
            data = MemoryData(
                memory_type=memory_type.name,
                fields=dict(fields),
                salience=item.salience,
                confidence=item.confidence,
                category=item.category,
                tags=list(item.tags) or None,
                active=None if item.active else False,
            )
        except ValidationError as error:
            self._leave(item, error.errors()[0]["msg"])
            return None
        said = None if item.said_at is None else item.said_at.astimezone(UTC).isoformat(timespec="seconds")
        data.sourced({"id": item.item_id, **item.source}, said)
        cleared = self._discretion.operations(MemoryOperations(write_operations=[WriteOp(uri=uri, memory_data=data)]))
        if cleared.refused:
            self._leave(item, cleared.refused[0].reason or "it was refused")
            return None
        self.outcome.notes += [f"{item.place}: {note}" for note in cleared.notes]
        return _Write(item, cleared.operations.write_operations[0])

    def _type_of(self, item: MemoryItem) -> MemoryType:
        try:
            memory_type = self._registry.get(item.memory_type)
        except NotFound:
            return self._registry.get(_FALLBACK)
        takes = memory_type.field(CONTENT) or memory_type.field(_GUIDE)
        return self._registry.get(_FALLBACK) if takes is None else memory_type

    def _logged(self, items: Sequence[LogItem], snapshot: Snapshot) -> tuple[list[FileChange], list[OperationResult]]:
        texts: dict[MemoryUri, str | None] = {}
        said: dict[MemoryUri, set[tuple[str | None, str]]] = {}
        results: list[OperationResult] = []
        for item in sorted(items, key=lambda item: item.moment):
            uri = log_uri(self._context.user_space, item.moment.date())
            before = texts[uri] if uri in texts else snapshot.text(uri)
            there = said.setdefault(uri, {(entry.time, entry.text) for entry in entries(before or "")})
            entry = self._entry(item)
            if (entry.time, entry.text) in there:
                self._note(item, Action.UNCHANGED, str(uri))
                continue
            there.add((entry.time, entry.text))
            texts[uri] = with_entry(before, item.moment.date(), entry)
            self._note(item, Action.CREATED, str(uri))
            action = Action.CREATED if before is None else Action.UPDATED
            result = OperationResult("import", str(uri), action)
            results.append(self._known.marked(result, item.item_id, item.digest))
        changes = [FileChange(uri, snapshot.text(uri), text, appended=True) for uri, text in texts.items()]
        return changes, results

    def _entry(self, item: LogItem) -> LogEntry:
        labels = {name: self._discretion.text(value)[:_LABEL_CHARS] for name, value in item.labels.items()}
        project = self._context.belonging.project
        return new_entry(self._discretion.text(item.text), item.moment, kind=item.kind, project=project, **labels)

    def _summaries(
        self, items: Sequence[SummaryItem], snapshot: Snapshot
    ) -> tuple[list[FileChange], list[OperationResult]]:
        changes: list[FileChange] = []
        results: list[OperationResult] = []
        uri = rolling_summary_uri(self._context.user_space)
        before = snapshot.text(uri)
        present = read_rolling_summary(before)
        for item in items:
            said = self._discretion.text(item.text).strip()
            if present is not None and present.text == said:
                self._note(item, Action.UNCHANGED, str(uri))
            elif changes or (present is not None and present.authored):
                self.outcome.kept.append(LeftOut(item.place, f"{uri} says something else"))
            else:  # one that maintenance made can be made again
                summary = RollingSummary(said, authored=True)
                text = dump_rolling_summary(summary, self._context.now, self._context.source)
                changes.append(FileChange(uri, before, text))
                action = Action.CREATED if before is None else Action.UPDATED
                self._note(item, action, str(uri))
                result = OperationResult("import", str(uri), action)
                results.append(self._known.marked(result, item.item_id, item.digest))
        return changes, results

    def _note(self, item: Stored, action: Action, uri: str) -> None:
        self.outcome.placed.append(Placed(item, action, uri))

    def _leave(self, item: Stored, reason: str) -> None:
        self.outcome.left_out.append(LeftOut(item.place, reason))


class _Naming:
    """Where new memories go, beside what is there and beside each other."""

    def __init__(self, draft: Draft, context: Context) -> None:
        self._draft = draft
        self._context = context
        self._taken: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._files: set[MemoryUri] = set()

    def take(self, uri: MemoryUri) -> bool:
        """Whether a file without a key is still free in this batch; then it no longer is."""
        free = uri not in self._files
        self._files.add(uri)
        return free

    def place(self, memory_type: MemoryType, fields: Mapping[str, Any], item_id: str) -> dict[str, Any] | MemoryUri:
        """The fields under a name that is free, or the memory that this is already."""
        directory = self._context.directory(memory_type)
        for attempt in range(1, _NAMES_LIMIT):
            tried = numbered(memory_type, fields, attempt)
            key = (memory_type.name, key_of(tried, memory_type.key_fields))
            if key in self._taken:
                continue
            found = self._draft.locate(directory, memory_type, tried)
            if found is None:
                self._taken[key] = tried
                return tried
            if self._came_from(found, item_id) or self.says(found, memory_type, fields):
                return found
        raise NotFound("too many memories have this name.", hint="Rename some of them, then import again.")

    def says(self, uri: MemoryUri, memory_type: MemoryType, fields: Mapping[str, Any]) -> bool:
        """Whether a memory that is there says the same."""
        text = self._draft.text(uri)
        if text is None:
            return False
        stored = read_record(memory_type, parse(text), uri.name.removesuffix(".md")).fields
        keys = memory_type.key_fields
        return all(stored.get(name) == value for name, value in fields.items() if name not in keys)

    def _came_from(self, uri: MemoryUri, item_id: str) -> bool:
        """Whether the memory says itself that it is this item; for a store whose receipts are gone."""
        text = self._draft.text(uri)
        source = (parse(text).trailer or {}).get("source") if text is not None else None
        return (
            isinstance(source, dict)
            and source.get("id") == item_id
            and source.get("from") == self._context.source.get("from")
        )


def _fields(item: MemoryItem, memory_type: MemoryType) -> dict[str, Any]:
    """The fields of a type that say what an item says."""
    fields = {name: value for name, value in item.fields.items() if memory_type.field(name) is not None}
    content = CONTENT if memory_type.field(CONTENT) is not None else _GUIDE
    fields[content] = item.content
    for key in memory_type.key_fields[-1:]:
        name = " ".join((item.name or "").split()) or first_words(item.content)
        fields.setdefault(key, name or f"{item.memory_type} {item.digest[:8]}")
    return fields
