"""One import, from a path to a report: items are read one by one, stored in batches, and each batch is one commit.

What was brought before is left alone (``known``, ``conversations``), so an import that was interrupted is completed by
the next, and one that is repeated changes nothing. Reads the source, writes through the store alone; originals are
renamed only once everything of them is acknowledged, and never in a dry run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_core.core.commit.commits import Commits

if TYPE_CHECKING:
    pass

import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from memory_core.core.commit.append import MessageRecorder
from memory_core.core.commit.plan import plan
from memory_core.core.commit.working_copy import PlanContext, WorkingCopy
from memory_core.core.config import Config
from memory_core.core.errors import InvalidInput, InvalidUri, NotFound, RunebookError
from memory_core.core.memory.memory_type import CONTENT, MemoryType, MemoryTypeRegistry
from memory_core.core.memory.message import dump_lines, parse_lines
from memory_core.core.memory.message_shapes import parse_messages
from memory_core.core.memory.names import first_words, key_of, numbered
from memory_core.core.memory.operations import LINK_RELATIONS, EditOp, GivenLink, MemoryData, MemoryOperations, WriteOp
from memory_core.core.memory.project import NO_PROJECT, Belonging, folder_name, project_at
from memory_core.core.memory.results import Action, ChangeSet, FileChange, OperationResult
from memory_core.core.memory.trailer import split
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.ledger import Ledger
from memory_core.core.store.local import REPEATED, Snapshot, Store
from memory_core.core.store.usage import Usage
from memory_core.features.export_file import FORMAT as OWN_FORMAT
from memory_core.features.export_file import MANIFEST_NAME
from memory_core.features.imports import chatgpt, claude, claude_code, markdown, mcp_memory, memoryos, vibeworker
from memory_core.features.imports.items import (
    ConversationItem,
    Format,
    Item,
    LeftOut,
    LogItem,
    MemoryItem,
    Passed,
    Relation,
    Stored,
    SummaryItem,
    digest_of,
)
from memory_core.features.imports.sources import Entry, Source, open_source
from memory_core.features.imports.vibeworker import MIGRATED
from memory_core.features.log_entries import LogEntry, entries, log_uri, new_entry, with_entry
from memory_core.features.redaction import Redaction
from memory_core.features.rolling_summary import (
    RollingSummary,
    dump_rolling_summary,
    read_rolling_summary,
    rolling_summary_uri,
)

KIND = "import"
_MARK = re.compile(r"\[import ([0-9a-f]{16}) ([0-9a-f]{16})\]$")


@dataclass(frozen=True, slots=True)
class Mark:
    """One item that came in: what it said, as which file, in which commit."""

    digest: str
    uri: str
    seq: int


class Known:
    """The items of earlier imports.

    Args:
        ledger: Where the receipts are.
        scope: Format and spaces; an id means the same only within them.
    """

    def __init__(self, ledger: Ledger, scope: tuple[str, ...]) -> None:
        self._ledger = ledger
        self._scope = scope
        self._marks: dict[str, Mark] | None = None

    def get(self, item_id: str) -> Mark | None:
        """The item's mark, if it came in before."""
        if self._marks is None:
            self._marks = {
                found[1]: Mark(found[2], result["uri"], commit.seq)
                for commit in self._ledger.past.of_kind(KIND)
                for result in commit.receipt["results"]
                if (found := _MARK.search(result.get("note") or ""))
            }
        return self._marks.get(self._identity(item_id))

    def marked(self, result: OperationResult, item_id: str, digest: str) -> OperationResult:
        """The line of a receipt with the item's mark."""
        mark = f"[import {self._identity(item_id)} {digest}]"
        return replace(result, note=" ".join(filter(None, (result.note, mark))))

    def forget(self) -> None:
        """Read the receipts anew next time; there are more now."""
        self._marks = None

    def _identity(self, item_id: str) -> str:
        return digest_of([*self._scope, item_id])


@dataclass(frozen=True, slots=True)
class Joint:
    """A relation that is to become a link."""

    item: MemoryItem
    relation: Relation

    @property
    def item_id(self) -> str:
        """Names the relation in the source."""
        return f"{self.item.item_id}\x1f{self.relation.word}\x1f{self.relation.target}"


class RelationBatch:
    """The plan of one commit.

    Args:
        joints: The relations.
        places: Where each memory is, by its id in the source.
        context: Time, types and spaces of the commit.
        known: What earlier imports brought.
    """

    def __init__(self, joints: Sequence[Joint], places: Mapping[str, str], context: PlanContext, known: Known) -> None:
        self._joints = joints
        self._places = places
        self._context = context
        self._known = known
        self.linked = 0
        self.left_out: list[LeftOut] = []

    def plan(self, snapshot: Snapshot) -> ChangeSet:
        """The batch's changes; a link that cannot be made is left out alone."""
        self.linked, self.left_out = 0, []
        wanted: list[Joint] = []
        edits: list[EditOp] = []
        for joint in self._joints:
            source, target = self._places.get(joint.item.item_id), self._places.get(joint.relation.target)
            if self._known.get(joint.item_id) is not None or source is None or target is None or source == target:
                continue
            wanted.append(joint)
            edits.append(EditOp(uri=source, links=[GivenLink(uri=target, relation=_word(joint.relation.word))]))
        decided = plan(MemoryOperations(edit_operations=edits), snapshot, self._context)
        results = []
        for joint, result in zip(wanted, decided.results, strict=True):
            if result.action is Action.REJECTED:
                what = f"relation {joint.relation.word!r} to {joint.relation.target!r}"
                self.left_out.append(LeftOut(f"{joint.item.place}, {what}", result.reason or "it was refused"))
                results.append(result)
            else:
                self.linked += result.action is Action.UPDATED
                results.append(self._known.marked(replace(result, op="import"), joint.item_id, digest_of("")))
        return replace(decided, results=tuple(results))


def _word(word: str) -> str:
    """The relation of ours that says the same, else only that the two have to do with each other."""
    return word if word in LINK_RELATIONS else "similar"


_SHARE = 2  # of a commit's limit that messages may take; what they teach needs room too


@dataclass(slots=True)
class Recorded:
    """What became of one conversation."""

    session_id: str
    action: Action = Action.UNCHANGED
    messages: int = 0
    commits: list[str] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class ConversationDesk:
    """Hands conversations to a store's recorder.

    Args:
        store: The store.
        recorder: Records them.
        commits: Names sessions.
        scope: Format and spaces, which an id means the same in.
        part_bytes: Most of a conversation that one commit brings.
    """

    def __init__(
        self,
        store: Store,
        recorder: MessageRecorder,
        commits: Commits,
        scope: tuple[str, ...],
        part_bytes: int,
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._commits = commits
        self._scope = scope
        self._part_bytes = part_bytes // _SHARE

    def record(self, item: ConversationItem, belonging: Belonging, now: datetime, *, dry_run: bool) -> Recorded:
        """Record what is new of a conversation; a message that cannot be taken is left out alone."""
        item = replace(item, session_id=self._session(item.session_id))
        done = Recorded(item.session_id)
        sound = list(self._sound(item, done))
        for part in self._parts(sound):
            try:
                self._record(part, item, belonging, now, done, dry_run=dry_run)
            except RunebookError as error:
                done.left_out.append(LeftOut(f"{item.place}, from message {part[0].get('id')}", error.message))
        return done

    def _session(self, imported: str) -> str:
        """The session of a conversation; where a hook keeps it under the program's own name of it, that one."""
        own = imported.removeprefix(f"{self._scope[0]}-")
        files, log = self._store.files, self._commits.session_uri
        try:
            kept = own != imported and files.is_dir(log(own).parent) and not files.is_dir(log(imported).parent)
        except InvalidUri:  # nothing can be kept under such a name
            return imported
        return own if kept else imported

    def _record(
        self,
        part: Sequence[Mapping[str, Any]],
        item: ConversationItem,
        belonging: Belonging,
        now: datetime,
        done: Recorded,
        *,
        dry_run: bool,
    ) -> None:
        request_id = self._request(item, part)
        if request_id is None:
            return
        log = self._commits.session_uri(item.session_id)
        stored, _ = parse_lines(self._store.text(log) or "")
        ids = {message.message_id for message in stored if message.message_id is not None}
        fresh = [message for message in part if message.get("id") not in ids]
        if not fresh:
            return
        receipt = self._recorder.record(
            fresh,
            session_id=item.session_id,
            request_id=request_id,
            dry_run=dry_run,
            now=now,
            belonging=belonging,
        )
        taken = next((result.action for result in receipt.results if result.op == "messages"), Action.UNCHANGED)
        if REPEATED in receipt.notes or taken is Action.UNCHANGED:
            return
        done.action = Action.CREATED if taken is Action.CREATED else max(done.action, Action.UPDATED, key=_RANK.index)
        done.messages += (receipt.usage or {}).get("messages_new", len(fresh))
        done.commits += [receipt.commit_id] if receipt.commit_id else []
        done.notes += [f"{item.place}: {note}" for note in receipt.notes]

    def _request(self, item: ConversationItem, part: Sequence[Mapping[str, Any]]) -> str | None:
        """What this part is called as a request; None where it is in the store, or was and its owner let it go."""
        said = digest_of([[message.get("id"), str(message.get("content"))] for message in part])
        for generation in range(1, 100):
            name = f"import/{digest_of([*self._scope, item.item_id])}/{said}/{generation}"
            first = self._store.ledger.receipt_for(name)
            if first is None:
                return name
            if not self._store.ledger.past.undone_by(str(first["commit_id"])):
                return None
        return None

    def _sound(self, item: ConversationItem, done: Recorded) -> Iterator[Mapping[str, Any]]:
        for index, message in enumerate(item.messages):
            try:
                if parse_messages([message]):
                    yield message
            except RunebookError as error:
                reason = error.message.replace("messages[0]", "it")
                done.left_out.append(LeftOut(f"{item.place}, message {message.get('id') or index}", reason))

    def _parts(self, messages: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
        part: list[Mapping[str, Any]] = []
        size = 0
        for message in messages:
            bytes_of = len(dump_lines(parse_messages([message])).encode("utf-8"))
            if part and size + bytes_of > self._part_bytes:
                yield part
                part, size = [], 0
            part.append(message)
            size += bytes_of
        if part:
            yield part


_RANK = [Action.UNCHANGED, Action.UPDATED, Action.CREATED]


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

    def __init__(self, items: Sequence[Stored], context: PlanContext, known: Known, discretion: Redaction) -> None:
        self._items = items
        self._context = context
        self._registry: MemoryTypeRegistry = context.registry
        self._known = known
        self._discretion = discretion
        self.outcome = Outcome()

    def plan(self, snapshot: Snapshot) -> ChangeSet:
        """The batch's changes; an item that cannot be taken is left out alone."""
        self.outcome = Outcome()
        naming = _Naming(WorkingCopy(snapshot, self._context), self._context)
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
            if now is not None and then is not None and split(now).body == split(then).body:
                memory_type = self._registry.type_at(uri, split(now).type_name)
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

    def __init__(self, draft: WorkingCopy, context: PlanContext) -> None:
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
        memory = self._draft.memory(uri)
        if memory is None:
            return False
        keys = memory_type.key_fields
        return all(memory.fields.get(name) == value for name, value in fields.items() if name not in keys)

    def _came_from(self, uri: MemoryUri, item_id: str) -> bool:
        """Whether the memory says itself that it is this item; for a store whose receipts are gone."""
        memory = self._draft.memory(uri)
        source = None if memory is None else memory.metadata.get("source")
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


_SHOWN = 20
_UNDO_SHOWN = 5


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

    def add(self, outcome: Outcome) -> None:
        """Count a batch of memories."""
        for placed in outcome.placed:
            self.count(_kind(placed), placed.action)
        self.left_out += outcome.left_out
        self.kept += outcome.kept
        self.notes += outcome.notes

    def count(self, kind: str, action: Action, number: int = 1) -> None:
        """Count what became of some things of a kind."""
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
        yield from _listed("left out", self.left_out)
        yield from _listed("kept", self.kept)
        yield from self.notes[:_SHOWN]
        if len(self.notes) > _SHOWN:
            yield f"and {len(self.notes) - _SHOWN:,} more notes; see them with --json."
        for what, number in self.passed.most_common():
            yield f"not imported: {number:,} {what}"
        would = "would be " if self.dry_run else ""
        for kind, counted in sorted(self.counts.items()):
            told = [
                f"{counted[action]:,} {would if action is not Action.UNCHANGED else ''}{action}" for action in counted
            ]
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


def _kind(placed: Placed) -> str:
    if isinstance(placed.item, LogItem):
        return "daily_logs"
    if isinstance(placed.item, SummaryItem):
        return "rolling_summary"
    parts = placed.uri.split("/")
    return placed.item.memory_type if len(parts) < 7 else parts[5]


def _listed(word: str, found: list[LeftOut]) -> Iterator[str]:
    yield from (f"{word}: {each.place}: {each.reason}" for each in found[:_SHOWN])
    if len(found) > _SHOWN:
        yield f"{word}: and {len(found) - _SHOWN:,} more; see them with --json."


#: The surest signs first; Markdown is what is left.
FORMATS: tuple[Format, ...] = (
    claude_code.FORMAT,
    chatgpt.FORMAT,
    claude.FORMAT,
    mcp_memory.FORMAT,
    vibeworker.V2,
    memoryos.FORMAT,
    vibeworker.V1,
    markdown.FORMAT,
)


_LINE_BYTES = 1024**2


def is_export(path: Path) -> bool:
    """Whether a file is an export of Runebook, sound or not; those are brought in by ``lifecycle.transfer``."""
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


def detect(source: Source, named: str | None = None) -> Format:
    """The format of a source.

    Args:
        source: What is to be imported.
        named: Its format's name, if the caller knows it; its content is not asked then.

    Raises:
        InvalidInput: If it is of no known format; the hint says what was looked for.
    """
    for known in FORMATS:
        if known.name == named or (named is None and known.recognises(source)):
            return known
    looked = "; ".join(f"{known.name}: {known.sign}" for known in FORMATS)
    if named is not None:
        names = ", ".join(known.name for known in FORMATS)
        raise InvalidInput(f"there is no format {named[:64]!r}.", hint=f"Use one of: {names}.")
    raise InvalidInput(
        f"{source.label!r} is of no format that is known.",
        hint=f"Looked for an export of runebook (.zip or .jsonl with a manifest); {looked}. Or name it with --from.",
    )


_BATCH_ITEMS = 200
_LEAST_PARTS = 3
#: Commits after which the index follows, so that it never has too much to do at once.
_INDEXED_EVERY = 20
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Desk:
    """The parts of an open store that an import uses, as one user sees it; ``indexed`` brings the index up to date."""

    config: Config
    store: Store
    registry: MemoryTypeRegistry
    commits: Commits
    recorder: MessageRecorder
    indexed: Callable[[], object] = lambda: None


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the caller asks of an import.

    Attributes:
        dry_run: Whether to plan only.
        belonging: The project of everything, if ``named``; else that of what tells of none itself.
        move_originals: Whether originals are renamed to ``*.migrated``; None is the format's own rule.
    """

    dry_run: bool = False
    belonging: Belonging = NO_PROJECT
    move_originals: bool | None = None


@contextmanager
def recognised(path: Path, named: str | None = None) -> Iterator[tuple[Source, Format]]:
    """A source that is open, and its format; see ``detect``."""
    with open_source(path) as source:
        yield source, detect(source, named)


def import_source(
    desk: Desk,
    source: Source,
    found: Format,
    wishes: Wishes,
    *,
    now: datetime | None = None,
    progress: Progress = lambda _line: None,
) -> ImportReport:
    """Bring everything of a source into the store.

    Args:
        desk: The store; others may go on using it.
        source: What is imported.
        found: Its format.
        wishes: How.
        now: Time of the commits; default the clock's.
        progress: Told how far it is.

    Raises:
        InvalidInput: If originals are to be renamed of which the format has none.
        StoreBusy: If another writer held the store too long. What came before is in; import again.
        StorageFailed: If the disk refuses. What came before is in; import again.
    """
    if wishes.move_originals and found.originals is None:
        raise InvalidInput(f"originals of {found.name} stay what they are.", hint="Leave --move-originals out.")
    desk.store.adopt()
    run = _Run(desk, found, wishes, now or datetime.now(UTC), progress)
    run.take(source)
    run.relate()
    moves = found.moves if wishes.move_originals is None else wishes.move_originals
    if moves and not wishes.dry_run and found.originals is not None:
        run.rename(found.originals(source))
    return run.report


class _Run:
    """One import under way."""

    def __init__(self, desk: Desk, found: Format, wishes: Wishes, now: datetime, progress: Progress) -> None:
        self._desk = desk
        self._format = found
        self._wishes = wishes
        self._now = now
        self._progress = progress
        scope = (found.name, desk.config.user_space, desk.config.agent_space)
        self._known = Known(desk.store.ledger, scope)
        context = desk.commits.context(now, KIND, None)
        self._context = replace(context, source={**context.source, "from": found.name}, belonging=wishes.belonging)
        self._conversations = ConversationDesk(
            desk.store, desk.recorder, desk.commits, scope, desk.config.limits.commit_bytes
        )
        self._batch: list[Stored] = []
        self._bytes = 0
        self._seen: set[str] = set()
        self._joints: list[Joint] = []
        self._places: dict[str, str] = {}
        self._items = 0
        self._indexed = 0
        self.report = ImportReport(found.name, wishes.dry_run)

    def take(self, source: Source) -> None:
        """Bring the items in."""
        self.report.left_out += source.refused
        for item in self._format.read(source):
            self._take(item)
            self._items += 1
            if len(self.report.commits) - self._indexed >= _INDEXED_EVERY:
                self._indexed = len(self.report.commits)
                self._desk.indexed()
            self._progress(f"{self._items:,} items read, {self.report.total(Action.CREATED):,} new")
        self._flush()

    def _take(self, item: Item) -> None:
        if isinstance(item, LeftOut):
            self.report.left_out.append(item)
        elif isinstance(item, Passed):
            self.report.passed[item.what] += item.count
        elif isinstance(item, ConversationItem):
            self._flush()
            self._record(item)
        elif item.item_id in self._seen:
            self.report.passed["items that the source holds twice"] += 1
        else:
            self._seen.add(item.item_id)
            size = len(_text(item).encode("utf-8", "replace"))
            if self._batch and self._bytes + size > self._desk.config.limits.commit_bytes:
                self._flush()
            self._batch.append(item)
            self._bytes += size
            if len(self._batch) >= _BATCH_ITEMS:
                self._flush()

    def _record(self, item: ConversationItem) -> None:
        done = self._conversations.record(item, self._belonging(item), self._now, dry_run=self._wishes.dry_run)
        self.report.count("conversations", done.action)
        self.report.count("messages", Action.CREATED, done.messages)
        self.report.left_out += done.left_out
        self.report.commits += done.commits
        self.report.notes += done.notes
        if done.action is not Action.UNCHANGED:
            self.report.sessions.append(done.session_id)

    def _belonging(self, item: ConversationItem) -> Belonging:
        """The project of the folder that a conversation was held in, unless the caller named one."""
        if self._wishes.belonging.named or item.folder is None:
            return self._wishes.belonging
        return replace(self._wishes.belonging, project=_project(item.folder))

    def _flush(self) -> None:
        """Store the items that wait, as one commit."""
        if not self._batch:
            return
        batch = MemoryBatch(self._batch, self._context, self._known, self._desk.commits.discretion)
        receipt = self._desk.store.commit(batch.plan, kind=KIND, now=self._now, dry_run=self._wishes.dry_run)
        self.report.commits += [receipt.commit_id] if receipt.commit_id else []
        self.report.add(batch.outcome)
        self._follow(batch.outcome)
        self._batch, self._bytes = [], 0

    def _follow(self, outcome: Outcome) -> None:
        """What comes with memories that are in: their uses elsewhere, and what they are related to."""
        used: dict[str, Usage] = {}
        for placed in outcome.placed:
            if not isinstance(placed.item, MemoryItem):
                continue
            self._places[placed.item.item_id] = placed.uri
            self._joints += [Joint(placed.item, relation) for relation in placed.item.relations]
            last = placed.item.accessed_at or placed.item.said_at or self._now
            if placed.item.accesses and self._desk.store.files.stat(MemoryUri.parse(placed.uri)) is not None:
                used[placed.uri] = Usage(placed.item.accesses, last)
        if used and not self._wishes.dry_run:
            self._desk.store.ledger.usage_table.begin(used)

    def relate(self) -> None:
        """Link the memories that the source relates, now that all of them are in."""
        if self._wishes.dry_run or not self._joints:
            return
        for start in range(0, len(self._joints), _BATCH_ITEMS):
            part = self._joints[start : start + _BATCH_ITEMS]
            batch = RelationBatch(part, self._places, self._context, self._known)
            receipt = self._desk.store.commit(batch.plan, kind=KIND, now=self._now)
            self.report.commits += [receipt.commit_id] if receipt.commit_id else []
            self.report.count("links", Action.CREATED, batch.linked)
            self.report.left_out += batch.left_out

    def rename(self, originals: list[Entry]) -> None:
        """Give originals the name that says they are in; those of which something was left out keep theirs."""
        for entry in originals:
            if entry.path is None:
                self.report.notes.append(f"{entry.name} is in an archive and stays as it is.")
            elif any(left.place.startswith(entry.name) for left in self.report.left_out):
                self.report.notes.append(f"{entry.name} keeps its name: something of it was left out.")
            else:
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
    return folder_name(parts[-1]) if len(parts) >= _LEAST_PARTS else None


def _text(item: Stored) -> str:
    if isinstance(item, MemoryItem):
        return item.content
    return item.text if isinstance(item, LogItem | SummaryItem) else ""
