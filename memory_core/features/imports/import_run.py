"""One import, from a path to a report: items are read one by one, stored in batches, and each batch is one commit.

What was brought before is left alone, so an import that was interrupted is completed by the next, and one that is
repeated changes nothing. Reads the source, writes through the store alone;
originals are renamed only once everything of them is acknowledged, and never in a dry run.
"""

from __future__ import annotations

import functools
import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from memory_core.core.commit.plan import plan
from memory_core.core.commit.working_copy import PlanContext, WorkingCopy
from memory_core.core.errors import InvalidInput, NotFound, RunebookError, StorageFailed
from memory_core.core.feature import Cleaner
from memory_core.core.memory.memory_type import CONTENT, MemoryType
from memory_core.core.memory.names import first_words, key_of, numbered
from memory_core.core.memory.operations import LINK_RELATIONS, EditOp, GivenLink, MemoryData, MemoryOperations, WriteOp
from memory_core.core.memory.project import NO_PROJECT, Belonging, folder_name, project_at
from memory_core.core.memory.results import Action, ChangeSet, FileChange, OperationResult
from memory_core.core.memory.trailer import split
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.local import Snapshot
from memory_core.core.store.usage import Usage
from memory_core.features import imports
from memory_core.features.daily_logs import LogEntry, entries, log_uri, new_entry, with_entry
from memory_core.features.export_file import FORMAT as OWN_FORMAT
from memory_core.features.export_file import MANIFEST_NAME
from memory_core.features.imports.conversation_recorder import ConversationRecorder, Recorded
from memory_core.features.imports.items import (
    MIGRATED,
    ConversationItem,
    Format,
    Item,
    LeftOut,
    LinkItem,
    LogItem,
    MemoryItem,
    Passed,
    Stored,
    SummaryItem,
    digest_of,
)
from memory_core.features.imports.sources import Entry, Source, open_source
from memory_core.features.rolling_summary import (
    RollingSummary,
    dump_rolling_summary,
    read_rolling_summary,
    rolling_summary_uri,
)

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

Progress = Callable[[str], None]

KIND = "import"
_MARK = re.compile(r"\[import ([0-9a-f]{16}) ([0-9a-f]{16})\]$")
_BATCH_ITEMS = 200
#: Commits after which the index follows, so that it never has too much to do at once.
_INDEXED_EVERY = 20
_NAMES_LIMIT = 32
_FALLBACK = "notes"
#: Where a type has no field for free text, the field that takes it.
_GUIDE = "guidelines"
_LABEL_CHARS = 200
_LINE_BYTES = 1024**2
_SHOWN = 20
_UNDO_SHOWN = 5
_PROJECT_DEPTH = 3


# Formats -------------------------------------------------------------------------------------------------------------


def is_export(path: Path) -> bool:
    """Whether a file is an export of Runebook, sound or not; those are brought in by ``features.export``."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as stream:
            line = stream.readline(_LINE_BYTES)
        if line.startswith(b"PK"):
            with zipfile.ZipFile(path) as archive:
                return MANIFEST_NAME in archive.namelist()
        first = json.loads(line)
    except (OSError, ValueError, RecursionError, zipfile.BadZipFile):
        return False
    return isinstance(first, dict) and first.get("format") == OWN_FORMAT


def formats() -> list[Format]:
    """All formats, the surest signs first."""
    return [getattr(import_module(f"{imports.__name__}.{module}"), name) for module, name in imports.FORMATS.values()]


def detect(source: Source, named: str | None = None) -> Format:
    """The format of a source.

    Args:
        source: What is to be imported.
        named: Its format's name, if the caller knows it; its content is not asked then.

    Raises:
        InvalidInput: If it is of no known format; the hint says what was looked for.
    """
    known = formats()
    for each in known:
        if each.name == named or (named is None and each.recognises(source)):
            return each
    if named is not None:
        raise InvalidInput(f"there is no format {named[:64]!r}.", hint=f"Use one of: {', '.join(imports.FORMATS)}.")
    looked = "; ".join(f"{each.name}: {each.sign}" for each in known)
    raise InvalidInput(
        f"{source.label!r} is of no format that is known.",
        hint=f"Looked for an export of runebook (.zip or .jsonl with a manifest); {looked}. Or name it with --from.",
    )


# What was brought before ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Mark:
    """One item that came in: what it said, as which file, in which commit."""

    digest: str
    uri: str
    seq: int


class _Known:
    """The items of earlier imports, as the receipts in the ledger name them.

    Args:
        memory: The store.
        scope: Format and spaces; an id means the same only within them.
    """

    def __init__(self, memory: Runebook, scope: tuple[str, ...]) -> None:
        self._ledger = memory.store.ledger
        self._scope = scope

    @functools.cached_property
    def _marks(self) -> Mapping[str, _Mark]:
        return {
            found[1]: _Mark(found[2], result["uri"], commit.seq)
            for commit in self._ledger.past.of_kind(KIND)
            for result in commit.receipt["results"]
            if (found := _MARK.search(result.get("note") or ""))
        }

    def get(self, item: Stored) -> _Mark | None:
        """The item's mark, if it came in before."""
        return self._marks.get(self._identity(item))

    def marked(self, result: OperationResult, item: Stored) -> OperationResult:
        """The line of a receipt with the item's mark."""
        mark = f"[import {self._identity(item)} {item.digest}]"
        return replace(result, op="import", note=" ".join(filter(None, (result.note, mark))))

    def _identity(self, item: Stored) -> str:
        return digest_of([*self._scope, item.item_id])


# Memories, entries of logs, summaries and links ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Placed:
    """What became of one item."""

    item: Stored
    action: Action
    uri: str

    @property
    def kind(self) -> str:
        """What a report counts it as."""
        if isinstance(self.item, MemoryItem):
            parts = self.uri.split("/")
            return self.item.memory_type if len(parts) < 7 else parts[5]
        return {LogItem: "daily_logs", SummaryItem: "rolling_summary", LinkItem: "links"}[type(self.item)]


@dataclass(slots=True)
class Outcome:
    """What became of the items of a batch; ``kept`` are those whose memory here differs and stays."""

    placed: list[Placed] = field(default_factory=list)
    kept: list[LeftOut] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class _Batch:
    """The plan of one commit.

    Args:
        items: What is to come in, in order.
        context: Time, types, spaces and project of the commit; its source names the format.
        known: What earlier imports brought.
        redaction: What becomes of secrets.
        places: Where each memory of the import is, by its id in the source.
    """

    def __init__(
        self,
        items: Sequence[Stored],
        context: PlanContext,
        known: _Known,
        redaction: Cleaner,
        places: Mapping[str, str],
    ) -> None:
        self._items = items
        self._context = context
        self._known = known
        self._redaction = redaction
        self._places = places
        self.outcome = Outcome()
        self._changes: list[FileChange] = []
        self._results: list[OperationResult] = []

    def plan(self, snapshot: Snapshot) -> ChangeSet:
        """The batch's changes; an item that cannot be taken is left out alone."""
        self.outcome, self._changes, self._results = Outcome(), [], []
        naming = _Naming(WorkingCopy(snapshot, self._context), self._context)
        writes: list[tuple[Stored, WriteOp]] = []
        edits: list[tuple[Stored, EditOp]] = []
        logged: list[LogItem] = []
        for item in self._items:
            mark = self._known.get(item)
            try:
                if isinstance(item, MemoryItem):
                    write = self._write(item, mark, naming, snapshot)
                    writes += [(item, write)] if write is not None else []
                elif mark is not None:
                    self._note(item, Action.UNCHANGED, mark.uri)
                elif isinstance(item, LinkItem):
                    edit = self._edit(item)
                    edits += [(item, edit)] if edit is not None else []
                elif isinstance(item, LogItem):
                    logged.append(item)
                else:
                    self._summarise(item, snapshot)
            except RunebookError as error:
                self._leave(item, error.message)
        self._log(logged, snapshot)
        operations = MemoryOperations(
            write_operations=[write for _, write in writes], edit_operations=[edit for _, edit in edits]
        )
        decided = plan(operations, snapshot, self._context)
        planned = [item for item, _ in writes] + [item for item, _ in edits]
        results = [self._settled(item, result) for item, result in zip(planned, decided.results, strict=True)]
        changes = (*decided.changes, *self._changes)
        return replace(decided, changes=changes, results=(*results, *self._results))

    def _settled(self, item: Stored, result: OperationResult) -> OperationResult:
        result = self._redaction.result(result)
        if result.action is Action.REJECTED:
            self._leave(item, result.reason or "it was refused")
            return result
        is_new_link = isinstance(item, LinkItem) and result.action is Action.UPDATED
        self._note(item, Action.CREATED if is_new_link else result.action, result.uri)
        return self._known.marked(result, item)

    def _write(self, item: MemoryItem, mark: _Mark | None, naming: _Naming, snapshot: Snapshot) -> WriteOp | None:
        """The write that brings a memory in, or None where it is here already."""
        if mark is not None:
            return self._again(item, mark, snapshot)
        memory_type = self._type_of(item)
        placed = naming.place(memory_type, _fields(item, memory_type), item.item_id)
        if placed is None:  # there is one portrait, and it is not ours to rewrite; or all names are taken
            memory_type = self._context.registry.get(_FALLBACK)
            placed = naming.place(memory_type, _fields(item, memory_type), item.item_id)
        if placed is None:
            self._leave(item, "too many memories have this name")
            return None
        if isinstance(placed, MemoryUri):
            self._note(item, Action.UNCHANGED, str(placed))
            return None
        return self._operation(item, memory_type, placed)

    def _again(self, item: MemoryItem, mark: _Mark, snapshot: Snapshot) -> WriteOp | None:
        """The write that takes over what the source says anew of a memory that nobody touched here."""
        uri = MemoryUri.parse(mark.uri)
        if mark.digest != item.digest:
            now, then = snapshot.text(uri), snapshot.ledger.text_at(uri, mark.seq)
            if now is not None and then is not None and split(now).body == split(then).body:
                memory_type = self._context.registry.type_at(uri, split(now).type_name)
                if memory_type is not None:
                    keys = memory_type.key_fields
                    fields = _fields(item, memory_type)
                    anew = {name: value for name, value in fields.items() if name not in keys}
                    return self._operation(item, memory_type, anew, str(uri))
            self.outcome.kept.append(LeftOut(item.place, f"it changed there, and {uri} was changed or removed here"))
        self._note(item, Action.UNCHANGED, mark.uri)
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
        cleared = self._redaction.operations(MemoryOperations(write_operations=[WriteOp(uri=uri, memory_data=data)]))
        if cleared.refused:
            self._leave(item, cleared.refused[0].reason or "it was refused")
            return None
        self.outcome.notes += [f"{item.place}: {note}" for note in cleared.notes]
        return cleared.operations.write_operations[0]

    def _type_of(self, item: MemoryItem) -> MemoryType:
        try:
            memory_type = self._context.registry.get(item.memory_type)
        except NotFound:
            return self._context.registry.get(_FALLBACK)
        takes = memory_type.field(CONTENT) or memory_type.field(_GUIDE)
        return memory_type if takes else self._context.registry.get(_FALLBACK)

    def _edit(self, item: LinkItem) -> EditOp | None:
        """The edit that links two memories; None where one of them did not come in, or both became one."""
        source, target = self._places.get(item.source_id), self._places.get(item.target_id)
        if source is None or target is None or source == target:
            return None
        # A relation of another vocabulary says only that the two have to do with each other.
        relation = item.word if item.word in LINK_RELATIONS else "similar"
        return EditOp(uri=source, links=[GivenLink(uri=target, relation=relation)])

    def _log(self, items: Sequence[LogItem], snapshot: Snapshot) -> None:
        """Put entries into the logs of their days, those that are there already aside."""
        texts: dict[MemoryUri, str | None] = {}
        said: dict[MemoryUri, set[tuple[str | None, str]]] = {}
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
            self._results.append(self._known.marked(_result(uri, before), item))
        self._changes += [FileChange(uri, snapshot.text(uri), text, appended=True) for uri, text in texts.items()]

    def _entry(self, item: LogItem) -> LogEntry:
        labels = {name: self._redaction.text(value)[:_LABEL_CHARS] for name, value in item.labels.items()}
        project = self._context.belonging.project
        return new_entry(self._redaction.text(item.text), item.moment, kind=item.kind, project=project, **labels)

    def _summarise(self, item: SummaryItem, snapshot: Snapshot) -> None:
        """Set the rolling summary, unless a person, or an item before this one, wrote it."""
        uri = rolling_summary_uri(self._context.user_space)
        before = snapshot.text(uri)
        present = read_rolling_summary(before)
        said = self._redaction.text(item.text).strip()
        if present is not None and present.text == said:
            self._note(item, Action.UNCHANGED, str(uri))
        elif (present is not None and present.authored) or any(change.uri == uri for change in self._changes):
            self.outcome.kept.append(LeftOut(item.place, f"{uri} says something else"))
        else:  # one that maintenance made can be made again
            summary = RollingSummary(said, authored=True)
            text = dump_rolling_summary(summary, self._context.now, self._context.source)
            self._changes.append(FileChange(uri, before, text))
            self._results.append(self._known.marked(_result(uri, before), item))
            self._note(item, self._results[-1].action, str(uri))

    def _note(self, item: Stored, action: Action, uri: str) -> None:
        self.outcome.placed.append(Placed(item, action, uri))

    def _leave(self, item: Stored, reason: str) -> None:
        self.outcome.left_out.append(LeftOut(item.place, reason))


def _result(uri: MemoryUri, before: str | None) -> OperationResult:
    return OperationResult("import", str(uri), Action.CREATED if before is None else Action.UPDATED)


class _Naming:
    """Where new memories go, beside what is there and beside each other."""

    def __init__(self, draft: WorkingCopy, context: PlanContext) -> None:
        self._draft = draft
        self._context = context
        self._taken: set[tuple[str, str]] = set()

    def place(
        self, memory_type: MemoryType, fields: Mapping[str, Any], item_id: str
    ) -> dict[str, Any] | MemoryUri | None:
        """The fields under a name that is free, the memory that this is already, or None where neither is."""
        directory = self._context.directory(memory_type)
        for attempt in range(1, _NAMES_LIMIT if memory_type.key_fields else 2):
            tried = numbered(memory_type, fields, attempt)
            key = (memory_type.name, key_of(tried, memory_type.key_fields))
            if key in self._taken:
                continue
            found = self._draft.locate(directory, memory_type, tried)
            if found is None:
                self._taken.add(key)
                return tried
            if self._came_from(found, item_id) or self._says(found, memory_type, fields):
                return found
        return None

    def _says(self, uri: MemoryUri, memory_type: MemoryType, fields: Mapping[str, Any]) -> bool:
        """Whether a memory that is there says the same."""
        memory, keys = self._draft.memory(uri), memory_type.key_fields
        return memory is not None and all(
            memory.fields.get(name) == value for name, value in fields.items() if name not in keys
        )

    def _came_from(self, uri: MemoryUri, item_id: str) -> bool:
        """Whether the memory says itself that it is this item; for a store whose receipts are gone."""
        memory = self._draft.memory(uri)
        source = None if memory is None else memory.metadata.get("source")
        wanted = (item_id, self._context.source.get("from"))
        return isinstance(source, dict) and (source.get("id"), source.get("from")) == wanted


def _fields(item: MemoryItem, memory_type: MemoryType) -> dict[str, Any]:
    """The fields of a type that say what an item says."""
    fields = {name: value for name, value in item.fields.items() if memory_type.field(name) is not None}
    content = CONTENT if memory_type.field(CONTENT) is not None else _GUIDE
    fields[content] = item.content
    for key in memory_type.key_fields[-1:]:
        name = " ".join((item.name or "").split()) or first_words(item.content)
        fields.setdefault(key, name or f"{item.memory_type} {item.digest[:8]}")
    return fields


# The report ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ImportReport:
    """The sum of all batches.

    Attributes:
        format: Name of the format.
        dry_run: Whether nothing was written.
        counts: By type (``facts``, ``daily_logs``, ``conversations``, ``messages``, ``links``, …) and action.
        left_out: What could not be taken.
        kept: What differs here and stays as it is here.
        passed: What is not meant to come along, by what it is.
        sessions: Sessions that are new or went on.
        commits: The commits made, oldest first; each can be undone.
        extracted: Files that a model's extraction changed.
        moved: Originals that were renamed, by their new name.
        notes: What else is worth knowing.
    """

    format: str
    dry_run: bool
    counts: dict[str, Counter[Action]] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    kept: list[LeftOut] = field(default_factory=list)
    passed: Counter[str] = field(default_factory=Counter)
    sessions: list[str] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    extracted: int = 0
    moved: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, done: Outcome | Recorded) -> None:
        """Count a batch of memories, or a conversation."""
        self.left_out += done.left_out
        self.notes += done.notes
        if isinstance(done, Outcome):
            self.kept += done.kept
            for placed in done.placed:
                self._count(placed.kind, placed.action)
            return
        self.commits += done.commits
        self.sessions += [done.session_id] if done.action is not Action.UNCHANGED else []
        self._count("conversations", done.action)
        self._count("messages", Action.CREATED, done.messages)

    def _count(self, kind: str, action: Action, number: int = 1) -> None:
        if number:
            self.counts.setdefault(kind, Counter())[action] += number

    def total(self, action: Action) -> int:
        """How many memories, entries and conversations it happened to."""
        return sum(counted[action] for kind, counted in self.counts.items() if kind not in ("messages", "links"))

    @property
    def changed(self) -> bool:
        """Whether anything is or would be other than before."""
        return any(counted[action] for counted in self.counts.values() for action in (Action.CREATED, Action.UPDATED))

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "format": self.format,
            "dry_run": self.dry_run,
            "counts": {
                kind: {str(action): number for action, number in sorted(counted.items())}
                for kind, counted in sorted(self.counts.items())
            },
            "left_out": [found.as_dict() for found in self.left_out],
            "kept": [found.as_dict() for found in self.kept],
            "passed": dict(self.passed),
            "commits": self.commits,
            "sessions": self.sessions,
            "extracted": self.extracted,
            "moved": self.moved,
            "notes": self.notes,
        }

    def lines(self) -> Iterator[str]:
        """Text form: what needs a look, then the counts."""
        yield from _listed("left out: ", [f"{found.place}: {found.reason}" for found in self.left_out])
        yield from _listed("kept: ", [f"{found.place}: {found.reason}" for found in self.kept])
        yield from _listed("", self.notes)
        for what, number in self.passed.most_common():
            yield f"not imported: {number:,} {what}"
        would = "would be " if self.dry_run else ""
        for kind, counted in sorted(self.counts.items()):
            told = (
                f"{number:,} {would * (action is not Action.UNCHANGED)}{action}" for action, number in counted.items()
            )
            yield f"{kind}: {', '.join(told)}"
        if self.extracted:
            yield f"extracted from conversations: {self.extracted:,} files changed"
        yield from (f"renamed to {name}" for name in self.moved)
        yield (
            f"{self.format}: {self.total(Action.CREATED):,} {would}created, {self.total(Action.UPDATED):,} {would}"
            f"updated, {self.total(Action.UNCHANGED):,} unchanged, {len(self.left_out):,} left out."
        )
        if 0 < len(self.commits) <= _UNDO_SHOWN:
            yield f"Undo with: {'; '.join(f'runebook undo {commit}' for commit in reversed(self.commits))}"
        elif self.commits:
            yield f"{len(self.commits):,} commits, each undoable; see them with: runebook history"


def _listed(word: str, found: Sequence[str]) -> Iterator[str]:
    yield from (f"{word}{each}" for each in found[:_SHOWN])
    if len(found) > _SHOWN:
        yield f"{word}and {len(found) - _SHOWN:,} more; see them with --json."


# The run -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """What is to be imported, and how.

    Attributes:
        path: A file, folder or zip.
        format: Name of its format; None recognises it.
        dry_run: Whether to plan only.
        belonging: The project of everything, if ``named``; else that of what tells of none itself.
        move_originals: Whether originals are renamed to ``*.migrated``; None is the format's own rule.
    """

    path: Path
    format: str | None = None
    dry_run: bool = False
    belonging: Belonging = NO_PROJECT
    move_originals: bool | None = None


def import_memories(
    memory: Runebook, request: ImportRequest, *, progress: Progress = lambda _line: None
) -> ImportReport:
    """Bring everything of a source into the store.

    Args:
        memory: The store, as one user sees it; others may go on using it.
        request: What, and how.
        progress: Told how far it is.

    Raises:
        NotFound: If there is no such file or folder.
        InvalidInput: If the source is damaged or of no known format, or originals are to be renamed of which the
            format has none.
        StoreBusy: If another writer held the store too long. What came before is in; import again.
        StorageFailed: If the disk refuses. What came before is in; import again.
    """
    with open_source(request.path) as source:
        found = detect(source, request.format)
        if request.move_originals and not found.originals:
            raise InvalidInput(f"originals of {found.name} stay what they are.", hint="Leave --move-originals out.")
        memory.store.adopt()
        run = _Run(memory, request, found, progress)
        run.take(source)
    memory.indexer.follow()
    return run.report


class _Run:
    """One import under way."""

    def __init__(self, memory: Runebook, request: ImportRequest, found: Format, progress: Progress) -> None:
        self._memory = memory
        self._request = request
        self._format = found
        self._progress = progress
        self._now = datetime.now(UTC)
        scope = (found.name, memory.config.user_space, memory.config.agent_space)
        self._known = _Known(memory, scope)
        context = memory.commits.context(self._now, KIND, None)
        self._context = replace(context, source={**context.source, "from": found.name}, belonging=request.belonging)
        self._conversations = ConversationRecorder(memory, scope)
        self._batch: list[Stored] = []
        self._bytes = 0
        self._seen: set[str] = set()
        self._links: list[LinkItem] = []
        self._places: dict[str, str] = {}
        self._items = 0
        self._indexed = 0
        self.report = ImportReport(found.name, request.dry_run)

    def take(self, source: Source) -> None:
        """Bring the items in, link the memories that the source relates, and rename the originals."""
        self.report.left_out += source.refused
        files = self._format.files(source)
        beside = {entry.name for entry in source.entries}
        narrowed = replace(source, entries=files)
        for entry in files:
            for item in self._items_of(narrowed, entry, beside):
                self._take(item)
                self._items += 1
                if len(self.report.commits) - self._indexed >= _INDEXED_EVERY:
                    self._indexed = len(self.report.commits)
                    self._memory.indexer.follow()
                self._progress(f"{self._items:,} items read, {self.report.total(Action.CREATED):,} new")
        self._flush()
        if self._request.dry_run:
            return
        for link in self._links:
            self._put(link, 0)
        self._flush()
        moves = self._format.moves if self._request.move_originals is None else self._request.move_originals
        for entry in files if moves else ():
            self._rename(entry)

    def _items_of(self, source: Source, entry: Entry, beside: set[str]) -> Iterator[Item]:
        try:
            yield from self._format.read(source, entry)
        except (InvalidInput, StorageFailed) as error:
            copy = f"{entry.name}.bak"
            spare = f" {copy} beside it may be sound." if copy in beside else ""
            yield LeftOut(entry.name, error.message + spare)

    def _take(self, item: Item) -> None:
        if isinstance(item, LeftOut):
            self.report.left_out.append(item)
        elif isinstance(item, Passed):
            self.report.passed[item.what] += item.count
        elif isinstance(item, ConversationItem):
            self._flush()
            belonging = self._belonging(item)
            self.report.add(self._conversations.record(item, belonging, self._now, dry_run=self._request.dry_run))
        elif item.item_id in self._seen:
            self.report.passed["items that the source holds twice"] += 1
        else:
            self._seen.add(item.item_id)
            if isinstance(item, LinkItem):
                self._links.append(item)
            else:
                text = item.content if isinstance(item, MemoryItem) else item.text
                self._put(item, len(text.encode("utf-8", "replace")))

    def _belonging(self, item: ConversationItem) -> Belonging:
        """The project of the folder that a conversation was held in, unless the caller named one."""
        given = self._request.belonging
        return given if given.named or item.folder is None else replace(given, project=_project(item.folder))

    def _put(self, item: Stored, size_bytes: int) -> None:
        """Have an item wait for the next commit."""
        if self._bytes + size_bytes > self._memory.config.limits.commit_bytes or len(self._batch) >= _BATCH_ITEMS:
            self._flush()
        self._batch.append(item)
        self._bytes += size_bytes

    def _flush(self) -> None:
        """Store the items that wait, as one commit."""
        if not self._batch:
            return
        redaction = self._memory.commits.cleaner
        batch = _Batch(self._batch, self._context, self._known, redaction, self._places)
        receipt = self._memory.store.commit(batch.plan, kind=KIND, now=self._now, dry_run=self._request.dry_run)
        self.report.commits += [receipt.commit_id] if receipt.commit_id else []
        self.report.add(batch.outcome)
        self._follow(batch.outcome)
        self._batch, self._bytes = [], 0

    def _follow(self, outcome: Outcome) -> None:
        """Note where memories are, for their links, and how often they were used elsewhere."""
        used: dict[str, Usage] = {}
        for placed in outcome.placed:
            item = placed.item
            if not isinstance(item, MemoryItem):
                continue
            self._places[item.item_id] = placed.uri
            if item.accesses and self._memory.store.files.stat(MemoryUri.parse(placed.uri)) is not None:
                used[placed.uri] = Usage(item.accesses, item.accessed_at or item.said_at or self._now)
        if used and not self._request.dry_run:
            self._memory.store.ledger.usage_table.begin(used)

    def _rename(self, entry: Entry) -> None:
        """Give an original the name that says it is in; one of which something was left out keeps its own."""
        if entry.path is None:
            self.report.notes.append(f"{entry.name} is in an archive and stays as it is.")
        elif any(left.place.startswith(entry.name) for left in self.report.left_out):
            self.report.notes.append(f"{entry.name} keeps its name: something of it was left out.")
        elif not entry.name.endswith(MIGRATED):
            try:
                target = _free(entry.path)
                entry.path.rename(target)
                self.report.moved.append(target.name)
            except OSError as error:
                self.report.notes.append(f"{entry.name} could not be renamed: {error.strerror or error}.")


def _free(path: Path) -> Path:
    """The name of an original that is in; never that of another file."""
    target, number = path.with_name(path.name + MIGRATED), 2
    while target.exists():
        target, number = path.with_name(f"{path.name}.{number}{MIGRATED}"), number + 1
    return target


def _project(folder: str) -> str | None:
    """The project of a folder, which may be one of another machine; its home and roots are none."""
    if folder.startswith(("\\\\", "//")):
        return None
    if Path(folder).exists():
        return project_at(Path(folder))
    parts = [part for part in folder.replace("\\", "/").split("/") if part]
    return folder_name(parts[-1]) if len(parts) >= _PROJECT_DEPTH else None
