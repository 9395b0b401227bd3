"""What becomes of the items of an import: each batch is one plan, which becomes one commit.

What earlier imports brought is not brought again: the receipts in the ledger name it. Where the source changed it and
nobody did here, the new text is taken over. An item that cannot be taken is left out alone.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from memory_core.core.commit.plan import plan
from memory_core.core.commit.working_copy import PlanContext, WorkingCopy
from memory_core.core.errors import NotFound, RunebookError, TooLarge
from memory_core.core.feature import Cleaner
from memory_core.core.frozen import frozen
from memory_core.core.memory.memory_type import CONTENT, MemoryType
from memory_core.core.memory.names import first_words, key_of, numbered
from memory_core.core.memory.operations import LINK_RELATIONS, EditOp, GivenLink, MemoryData, MemoryOperations, WriteOp
from memory_core.core.memory.results import Action, ChangeSet, FileChange, OperationResult
from memory_core.core.memory.trailer import split
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.local import Snapshot
from memory_core.features.daily_logs import DAILY_LOGS, LogEntry, added_entry, entries, log_uri, new_entry
from memory_core.features.imports.items import (
    BatchItem,
    LeftOut,
    LinkItem,
    LogItem,
    MemoryItem,
    SummaryItem,
    digest_of,
)
from memory_core.features.imports.known_files import MARK, KnownFile, noted_file
from memory_core.features.rolling_summary import (
    RollingSummary,
    dump_rolling_summary,
    read_rolling_summary,
    rolling_summary_uri,
)

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

KIND = "import"
_NAMES_LIMIT = 32
_FALLBACK = "notes"
#: Where a type has no field for free text, the field that takes it.
_GUIDE = "guidelines"
_LABEL_CHARS = 200


@dataclass(frozen=True, slots=True)
class Mark:
    """One item that came in: what it said, as which memory, in which commit, and from which file where that counts."""

    digest: str
    uri: str
    seq: int
    file_id: str = ""


class EarlierImports:
    """The items of earlier imports, as the receipts in the ledger name them.

    Args:
        memory: The store.
        scope: Format and spaces; an id means the same only within them.
    """

    def __init__(self, memory: Runebook, scope: tuple[str, ...]) -> None:
        self._ledger = memory.store.ledger
        self._scope = scope

    @functools.cached_property
    def _told(self) -> tuple[Mapping[str, Mark], Mapping[str, KnownFile]]:
        """Marks by identity, and files by id, as the newest commit says; receipts are read one after the other."""
        marks: dict[str, Mark] = {}
        files: dict[str, KnownFile] = {}
        for commit in self._ledger.past.of_kind(KIND):
            receipt = self._ledger.past.receipt(commit.seq)
            for result in receipt["results"]:
                if found := MARK.search(result.get("note") or ""):
                    marks[found[1]] = Mark(found[2], result["uri"], commit.seq, found[3] or "")
            noted = map(noted_file, receipt.get("notes", ()))
            files |= {each.file_id: each for each in noted if each is not None}
        return marks, files

    @property
    def _marks(self) -> Mapping[str, Mark]:
        return self._told[0]

    @property
    def files(self) -> Mapping[str, KnownFile]:
        """The files that items came from, by id, where they were last; those of other formats and spaces as well."""
        return self._told[1]

    @functools.cached_property
    def _by_file(self) -> Mapping[str, Mapping[str, Mark]]:
        found: dict[str, dict[str, Mark]] = {}
        for identity, mark in self._marks.items():
            found.setdefault(mark.file_id, {})[identity] = mark
        return found

    def of_file(self, file_id: str, items: Sequence[MemoryItem]) -> Mapping[str, Mark]:
        """The marks of all that came from a file, by identity; without an id, of those items that came from any."""
        if file_id:
            return self._by_file.get(file_id, {})
        former = [self.identity(item.with_file_id("")) for item in items]
        return {each: self._marks[each] for each in former if each in self._marks and not self._marks[each].file_id}

    def get(self, item: BatchItem) -> Mark | None:
        """The item's mark, if it came in before."""
        return self._marks.get(self.identity(item))

    def marked(self, result: OperationResult, item: BatchItem) -> OperationResult:
        """The line of a receipt with the item's mark."""
        file_id = item.file_id if isinstance(item, MemoryItem) else ""
        mark = " ".join(filter(None, (self.identity(item), item.digest, file_id)))
        return replace(result, op="import", note=" ".join(filter(None, (result.note, f"[import {mark}]"))))

    def identity(self, item: BatchItem) -> str:
        """Names an item of this format in these spaces."""
        return digest_of([*self._scope, item.item_id])


@dataclass(frozen=True, slots=True)
class Placed:
    """What became of one item."""

    item: BatchItem
    action: Action
    uri: str

    @property
    def kind(self) -> str:
        """What a report counts it as."""
        if isinstance(self.item, MemoryItem):
            parts = self.uri.split("/")
            return self.item.memory_type if len(parts) < 7 else parts[5]
        return {LogItem: "daily_logs", SummaryItem: "rolling_summary", LinkItem: "links"}[type(self.item)]


@frozen
class Remark:
    """What differs here from the source and stays as it is here: where it stands in the source, and why."""

    place: str
    reason: str


@dataclass(slots=True)
class Outcome:
    """What became of the items of a batch; ``kept`` are those whose memory here differs and stays."""

    placed: list[Placed] = field(default_factory=list)
    kept: list[Remark] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Batch:
    """The plan of one commit.

    Attributes:
        items: What is to come in, in order.
        context: Time, types, spaces and project of the commit; its source names the format.
        earlier: What earlier imports brought.
        redaction: What becomes of secrets.
        uris: Where each memory of the import is, by its id in the source.
        files: The files that the items stand in, by id, where that counts.
        outcome: What became of the items, once they were planned.
    """

    items: Sequence[BatchItem]
    context: PlanContext
    earlier: EarlierImports
    redaction: Cleaner
    uris: Mapping[str, str]
    files: Mapping[str, KnownFile]
    outcome: Outcome = field(default_factory=Outcome)
    _changes: list[FileChange] = field(default_factory=list)
    _results: list[OperationResult] = field(default_factory=list)

    def plan(self, snapshot: Snapshot) -> ChangeSet:
        """The batch's changes; an item that cannot be taken is left out alone."""
        self.outcome, self._changes, self._results = Outcome(), [], []
        naming = _Naming(WorkingCopy(snapshot, self.context))
        operations = MemoryOperations()
        written: list[BatchItem] = []
        linked: list[BatchItem] = []
        logged: list[LogItem] = []
        for item in self.items:
            mark = self.earlier.get(item)
            try:
                if isinstance(item, MemoryItem):
                    if (write := self._write(item, mark, naming, snapshot)) is not None:
                        operations.write_operations.append(write)
                        written.append(item)
                elif mark is not None and not isinstance(item, SummaryItem):
                    self._report(item, Action.UNCHANGED, mark.uri)
                elif isinstance(item, LinkItem):
                    if (edit := self._edit(item)) is not None:
                        operations.edit_operations.append(edit)
                        linked.append(item)
                elif isinstance(item, LogItem):
                    logged.append(item)
                else:
                    self._summarise(item, mark, snapshot)
            except RunebookError as error:
                self._leave(item, error.message)
        self._log(logged, snapshot)
        decided = plan(operations, snapshot, self.context)
        results = [
            self._settled(item, result) for item, result in zip([*written, *linked], decided.results, strict=True)
        ]
        changes = (*decided.changes, *self._changes)
        named = dict.fromkeys(item.file_id for item in written if isinstance(item, MemoryItem) and item.file_id)
        notes = (*decided.notes, *(self.files[each].note for each in named))
        return replace(decided, changes=changes, results=(*results, *self._results), notes=notes)

    def _settled(self, item: BatchItem, result: OperationResult) -> OperationResult:
        result = self.redaction.result(result)
        if result.action is Action.REJECTED:
            self._leave(item, result.reason or "it was refused")
            return result
        is_new_link = isinstance(item, LinkItem) and result.action is Action.UPDATED
        self._report(item, Action.CREATED if is_new_link else result.action, result.uri)
        return self.earlier.marked(result, item)

    def _write(self, item: MemoryItem, mark: Mark | None, naming: _Naming, snapshot: Snapshot) -> WriteOp | None:
        """The write that brings a memory in, or None where it is here already."""
        if mark is not None:
            return self._again(item, mark, snapshot)
        memory_type = self._type_of(item)
        placed = naming.free_fields(memory_type, _fields(item, memory_type), item.item_id)
        if placed is None:  # there is one portrait, and it is not ours to rewrite; or all names are taken
            memory_type = self.context.registry.get(_FALLBACK)
            placed = naming.free_fields(memory_type, _fields(item, memory_type), item.item_id)
        if placed is None:
            self._leave(item, "too many memories have this name")
            return None
        if isinstance(placed, MemoryUri):
            self._report(item, Action.UNCHANGED, str(placed))
            return None
        return self._operation(item, memory_type, placed)

    def _again(self, item: MemoryItem, mark: Mark, snapshot: Snapshot) -> WriteOp | None:
        """The write that takes over what the source says anew of a memory that nobody touched here."""
        uri = MemoryUri.parse(mark.uri)
        if mark.digest != item.digest:
            now, then = snapshot.text(uri), snapshot.ledger.text_at(uri, mark.seq)
            if now is not None and then is not None and split(now).body == split(then).body:
                memory_type = self.context.registry.type_at(uri, split(now).type_name)
                if memory_type is not None:
                    fields = _fields(item, memory_type).items()
                    anew = {name: value for name, value in fields if name not in memory_type.key_fields}
                    return self._operation(item, memory_type, anew, str(uri))
            self.outcome.kept.append(Remark(item.place, f"it changed there, and {uri} was changed or removed here"))
        self._report(item, Action.UNCHANGED, mark.uri)
        return None

    def _operation(
        self, item: MemoryItem, memory_type: MemoryType, fields: Mapping[str, Any], uri: str | None = None
    ) -> WriteOp | None:
        """The item as an operation without secrets; None where it was left out."""
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
        write = WriteOp(uri=uri, memory_data=data, replace=uri is not None)
        cleared = self.redaction.operations(MemoryOperations(write_operations=[write]))
        if cleared.refused:
            self._leave(item, cleared.refused[0].reason or "it was refused")
            return None
        self.outcome.notes += [f"{item.place}: {note}" for note in cleared.notes]
        return cleared.operations.write_operations[0]

    def _type_of(self, item: MemoryItem) -> MemoryType:
        with suppress(NotFound):
            memory_type = self.context.registry.get(item.memory_type)
            if memory_type.field(CONTENT) or memory_type.field(_GUIDE):
                return memory_type
        return self.context.registry.get(_FALLBACK)

    def _edit(self, item: LinkItem) -> EditOp | None:
        """The edit that links two memories; None where one of them did not come in, or both became one."""
        source, target = self.uris.get(item.source_id), self.uris.get(item.target_id)
        if source is None or target is None or source == target:
            return None
        # A relation of another vocabulary says only that the two have to do with each other.
        relation = item.word if item.word in LINK_RELATIONS else "similar"
        return EditOp(uri=source, links=[GivenLink(uri=target, relation=relation)])

    def _log(self, items: Sequence[LogItem], snapshot: Snapshot) -> None:
        """Put entries into the logs of their days, except those that are there already."""
        texts: dict[MemoryUri, list[str]] = {}
        sizes: dict[MemoryUri, int] = {}
        known: dict[MemoryUri, set[tuple[str | None, str]]] = {}
        for item in sorted(items, key=lambda item: item.moment):
            uri = log_uri(self.context.user_space, item.moment.date())
            try:
                before = texts[uri][-1] if uri in texts else snapshot.text(uri)
            except RunebookError as error:
                self._leave(item, error.message)
                continue
            if uri not in known:
                known[uri] = {(entry.time, entry.text) for entry in entries(before or "")}
            there = known[uri]
            entry = self._entry(item)
            if (entry.time, entry.text) in there:
                self._report(item, Action.UNCHANGED, str(uri))
                continue
            if len(entry.text.encode("utf-8")) > self.context.content_bytes:
                self._leave(item, f"the entry has more than {self.context.content_bytes:,} bytes")
                continue
            piece = added_entry(before, item.moment.date(), entry)
            try:
                DAILY_LOGS.check_size(uri, sizes.setdefault(uri, len(before or "")) + len(piece))
            except TooLarge as error:
                self._leave(item, error.message)
                continue
            sizes[uri] += len(piece)
            there.add((entry.time, entry.text))
            texts.setdefault(uri, [] if before is None else [before]).append(piece)
            self._report(item, Action.CREATED, str(uri))
            self._results.append(self.earlier.marked(_result(uri, before), item))
        self._changes += [
            FileChange(uri, snapshot.text(uri), "".join(pieces), appended=True) for uri, pieces in texts.items()
        ]

    def _entry(self, item: LogItem) -> LogEntry:
        labels = {name: self.redaction.text(value)[:_LABEL_CHARS] for name, value in item.labels.items()}
        project = self.context.assignment.project
        return new_entry(self.redaction.text(item.text), item.moment, kind=item.kind, project=project, **labels)

    def _summarise(self, item: SummaryItem, mark: Mark | None, snapshot: Snapshot) -> None:
        """Set the rolling summary, unless a person, or an item before this one, wrote or removed it."""
        uri = rolling_summary_uri(self.context.user_space)
        before = snapshot.text(uri)
        present = read_rolling_summary(before)
        text = self.redaction.text(item.text).strip()
        then = None if mark is None else snapshot.ledger.text_at(uri, mark.seq)
        as_imported = before is not None and then is not None and split(before).body == split(then).body
        is_owners = mark is not None or (present is not None and present.authored)
        again = mark is not None and mark.digest == item.digest
        if again or (present is not None and present.text == text):
            self._report(item, Action.UNCHANGED, str(uri))
        elif (is_owners and not as_imported) or any(change.uri == uri for change in self._changes):
            self.outcome.kept.append(Remark(item.place, f"{uri} says something else"))
        else:  # one that maintenance made can be made again
            summary = RollingSummary(text, authored=True)
            after = dump_rolling_summary(summary, self.context.now, self.context.source)
            if len(after.encode("utf-8")) > self.context.content_bytes:
                self._leave(item, f"the summary has more than {self.context.content_bytes:,} bytes")
                return
            self._changes.append(FileChange(uri, before, after))
            self._results.append(self.earlier.marked(_result(uri, before), item))
            self._report(item, self._results[-1].action, str(uri))

    def _report(self, item: BatchItem, action: Action, uri: str) -> None:
        self.outcome.placed.append(Placed(item, action, uri))

    def _leave(self, item: BatchItem, reason: str) -> None:
        self.outcome.left_out.append(LeftOut(item.place, reason))


def _result(uri: MemoryUri, before: str | None) -> OperationResult:
    return OperationResult("import", str(uri), Action.CREATED if before is None else Action.UPDATED)


@dataclass(frozen=True, slots=True)
class _Naming:
    """Where new memories go, beside what is there and beside each other."""

    draft: WorkingCopy
    _taken: set[tuple[str, str]] = field(default_factory=set)

    def free_fields(
        self, memory_type: MemoryType, fields: Mapping[str, Any], item_id: str
    ) -> dict[str, Any] | MemoryUri | None:
        """The fields under a name that is free, the memory that this is already, or None where neither is."""
        directory = self.draft.context.directory(memory_type)
        for attempt in range(1, _NAMES_LIMIT + 1 if memory_type.key_fields else 2):
            tried = numbered(memory_type, fields, attempt)
            key = (memory_type.name, key_of(tried, memory_type.key_fields))
            if key in self._taken:
                continue
            found = self.draft.locate(directory, memory_type, tried)
            if found is None:
                self._taken.add(key)
                return tried
            if self._came_from(found, item_id) or self._says(found, memory_type, fields):
                return found
        return None

    def _says(self, uri: MemoryUri, memory_type: MemoryType, fields: Mapping[str, Any]) -> bool:
        """Whether a memory that is there says the same."""
        fixed = {name: value for name, value in fields.items() if name not in memory_type.key_fields}
        present = self.draft.existing(uri).fields
        return all(present.get(name) == value for name, value in fixed.items())

    def _came_from(self, uri: MemoryUri, item_id: str) -> bool:
        """Whether the memory says itself that it is this item; for a store whose receipts are gone."""
        source = self.draft.existing(uri).metadata.source
        return (source.get("id"), source.get("from")) == (item_id, self.draft.context.source.get("from"))


def _fields(item: MemoryItem, memory_type: MemoryType) -> dict[str, Any]:
    """The fields of a type that say what an item says."""
    fields = {name: value for name, value in item.fields.items() if memory_type.field(name) is not None}
    content = CONTENT if memory_type.field(CONTENT) is not None else _GUIDE
    fields[content] = item.content
    for key in memory_type.key_fields[-1:]:
        name = " ".join((item.name or "").split()) or first_words(item.content)
        fields.setdefault(key, name or f"{item.memory_type} {item.digest[:8]}")
    return fields
