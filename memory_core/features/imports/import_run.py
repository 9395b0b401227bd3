"""One import, from a path to a report: items are read one by one, stored in batches, and each batch is one commit.

What was brought before is left alone, so an import that was interrupted is completed by the next, and one that is
repeated changes nothing. Reads the source, writes through the store alone; originals are renamed only once everything
of them is acknowledged, and never in a dry run.
"""

from __future__ import annotations

import contextlib
import json
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from memory_core.core.conversation_notes import last_read, talk_of
from memory_core.core.errors import InvalidInput, ModelUnavailable, StorageFailed
from memory_core.core.memory.memory import parse
from memory_core.core.memory.project import NO_PROJECT, ProjectAssignment, folder_name, project_at
from memory_core.core.memory.results import Action
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.private_times import PrivateTimes, said_at
from memory_core.core.progress import tell
from memory_core.core.store.usage import Usage
from memory_core.features import imports
from memory_core.features.export_file import EXPORT
from memory_core.features.imports.conversation_recorder import ConversationRecorder, Recorded
from memory_core.features.imports.import_plan import KIND, Batch, EarlierImports, Outcome, Remark
from memory_core.features.imports.items import (
    MIGRATED,
    BatchItem,
    ConversationItem,
    Format,
    Item,
    LeftOut,
    LinkItem,
    MemoryItem,
    Skipped,
)
from memory_core.features.imports.known_files import KnownFile, KnownFiles
from memory_core.features.imports.sources import Entry, Source, open_source

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

_BATCH_ITEMS = 200
#: Commits after which the index follows, so that it never has too much to do at once.
_INDEXED_EVERY = 20
_LINE_BYTES = 1024**2
_SHOWN = 20
_UNDO_SHOWN = 5
_PROJECT_DEPTH = 3
_PRIVATE = "messages of a time in which private mode was on"


def is_export(path: Path) -> bool:
    """Whether a file is an export of Runebook, sound or not; those are brought in by ``import_export``."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as stream:
            line = stream.readline(_LINE_BYTES)
        if line.startswith(b"PK"):
            with zipfile.ZipFile(path) as archive:
                return EXPORT.manifest in archive.namelist()
        first = json.loads(line)
    except (OSError, ValueError, RecursionError, zipfile.BadZipFile):
        return False
    return isinstance(first, dict) and first.get("format") == EXPORT.format


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
    looked = "; ".join(f"{each.name}: {each.description}" for each in known)
    raise InvalidInput(
        f"{source.label!r} is of no format that is known.",
        hint=f"Looked for an export of runebook (.zip or .jsonl with a manifest); {looked}. Or name it with --from. "
        "A list of messages comes in with: runebook commit --messages FILE.",
    )


@dataclass(slots=True)
class ImportReport:
    """The sum of all batches.

    Attributes:
        format: Name of the format.
        dry_run: Whether nothing was written.
        counts: By type (``facts``, ``daily_logs``, ``conversations``, ``messages``, ``links``, …) and action.
        left_out: What could not be taken.
        kept: What differs here and stays as it is here.
        skipped: What is not meant to come along, by what it is.
        sessions: Sessions that are new or went on.
        commits: The commits made, oldest first; each can be undone.
        extracted: Files that a model's extraction changed.
        moved: Originals that were renamed, by their new name.
        there: Where the memories are that were here already.
        gone: Where those were that came in before and were removed here since; they stay away.
        projects: Of those that are here.
        notes: What else is worth knowing.
    """

    JSON: ClassVar = (
        "format dry_run sorted_counts:counts left_out kept skipped commits sessions extracted moved notes there? gone?"
    )

    format: str
    dry_run: bool
    counts: dict[str, Counter[Action]] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    kept: list[Remark] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    sessions: list[str] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    extracted: int = 0
    moved: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    there: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    projects: set[str] = field(default_factory=set)

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
        if done.passed_over:
            self.skipped[_PRIVATE] += len(done.passed_over)
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

    @property
    def sorted_counts(self) -> Mapping[str, Mapping[Action, int]]:
        """The counts, types and actions in their order."""
        return {kind: dict(sorted(counted.items())) for kind, counted in sorted(self.counts.items())}

    @property
    def skipped_lines(self) -> list[str]:
        """What was skipped, a line each."""
        return [f"skipped: {number:,} {what}" for what, number in self.skipped.most_common()]

    @property
    def extracted_lines(self) -> list[str]:
        """What became of conversations, in a line where anything did."""
        return [f"extracted from conversations: {self.extracted:,} files changed"] if self.extracted else []

    def lines(self) -> Iterator[str]:
        """Text form: what needs a look, then the counts."""
        yield from _listed("left out: ", [f"{found.place}: {found.reason}" for found in self.left_out])
        yield from _listed("kept: ", [f"{found.place}: {found.reason}" for found in self.kept])
        yield from _listed("", self.notes)
        yield from self.skipped_lines
        would = "would be " if self.dry_run else ""
        for kind, counted in sorted(self.counts.items()):
            parts = (
                f"{number:,} {would * (action is not Action.UNCHANGED)}{action}" for action, number in counted.items()
            )
            yield f"{kind}: {', '.join(parts)}"
        yield from self.extracted_lines
        yield from (f"renamed to {name}" for name in self.moved)
        yield (
            f"all from {self.format}: {self.total(Action.CREATED):,} {would}created, "
            f"{self.total(Action.UPDATED):,} {would}updated, {self.total(Action.UNCHANGED):,} unchanged, "
            f"{len(self.left_out):,} left out."
        )
        yield from self._nothing_new()
        if 0 < len(self.commits) <= _UNDO_SHOWN:
            yield f"Undo with: {'; '.join(f'runebook undo {commit}' for commit in reversed(self.commits))}"
        elif self.commits:
            yield f"{len(self.commits):,} commits, each undoable; see them with: runebook history"

    def _nothing_new(self) -> Iterator[str]:
        """Where everything is, if all of it was here before, and how it comes in all the same."""
        if self.changed or not self.total(Action.UNCHANGED):
            return
        behind = self.left_out or self.skipped[_PRIVATE]
        nothing = "Nothing new but what was left out" if behind else "Nothing new"
        if self.there:
            named = ", ".join(sorted(self.projects))
            where = f" (project{'s' if len(self.projects) > 1 else ''} {named})" if named else ""
            count = len(self.there)
            every = "1 memory is" if count == 1 else f"{'' if self.gone else 'all '}{count:,} memories are"
            yield f"{nothing}: {every} here already, unchanged{where}:"
            yield from _listed("  ", self.there)
            yield "To move them to another project: runebook organize URI --project NAME."
            yield "To have them a second time, import into another space: --into USER/AGENT."
        elif not self.gone:
            yield f"{nothing}: {'the rest' if behind else 'all of it'} is here already, unchanged."
        if self.gone:
            yield f"Removed or archived here since an earlier import, and not brought back: {len(self.gone):,}."
            yield from _listed("  ", self.gone)
            yield "To bring one back: runebook undo COMMIT, with the commit that runebook history URI shows."


def _listed(word: str, found: Sequence[str]) -> Iterator[str]:
    yield from (f"{word}{each}" for each in found[:_SHOWN])
    if len(found) > _SHOWN:
        yield f"{word}and {len(found) - _SHOWN:,} more; see them with --json."


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """What is to be imported, and how.

    Attributes:
        path: A file, folder or zip.
        format: Name of its format; None recognises it.
        dry_run: Whether to plan only.
        assignment: The project of everything, if ``named``; else that of what tells of none itself.
        move_originals: Whether originals are renamed to ``*.migrated``; None is the format's own rule.
        sent: Whether the path is that of a copy that somebody sent, of which only the name says something.
    """

    path: Path
    format: str | None = None
    dry_run: bool = False
    assignment: ProjectAssignment = NO_PROJECT
    move_originals: bool | None = None
    sent: bool = False


def import_memories(memory: Runebook, request: ImportRequest) -> ImportReport:
    """Bring everything of a source into the store.

    Args:
        memory: The store, as one user sees it; others may go on using it.
        request: What, and how.

    Raises:
        NotFound: If there is no such file or folder.
        InvalidInput: If the source is damaged or of no known format, or originals are to be renamed of which the
            format has none.
        StoreBusy: If another writer held the store too long. What came before is in; import again.
        StorageFailed: If the disk refuses. What came before is in; import again.
    """
    with open_source(request.path) as source:
        found = detect(source, request.format)
        if request.move_originals and not found.may_move_originals:
            raise InvalidInput(f"originals of {found.name} stay what they are.", hint="Leave --move-originals out.")
        memory.store.adopt()
        run = _Run(memory, request, found)
        run.take(source)
    memory.follow_index()
    return run.report


def check_model(memory: Runebook) -> None:
    """Refuse an extraction before anything is stored where there is no model to do it.

    Raises:
        ModelUnavailable: If there is none.
    """
    if memory.opened.llm is None:
        raise ModelUnavailable(
            "no language model is configured to extract memories with.",
            hint="Set llm.provider to command, anthropic or openai, or leave extract out: the conversations wait.",
        )


def extract_imported(memory: Runebook, done: ImportReport) -> None:
    """Make memories of the conversations that came in, one after the other; what is made is added to the report."""
    for number, session_id in enumerate(done.sessions):
        tell("extracting", number, len(done.sessions), unit="conversations")
        for receipt in memory.extract_waiting(session_id):
            done.commits += [receipt.commit_id] if receipt.commit_id else []
            done.extracted += len(receipt.changed_uris)


class _Run:
    """One import under way."""

    def __init__(self, memory: Runebook, request: ImportRequest, found: Format) -> None:
        self._memory = memory
        self._request = request
        self._format = found
        self._now = datetime.now(UTC)
        scope = (found.name, memory.config.user_space, memory.config.agent_space)
        self._earlier = EarlierImports(memory, scope)
        named = request.assignment.project if request.assignment.named else None
        self._known_files = KnownFiles(self._earlier, memory.store.ledger, named, request.sent, self._now.isoformat())
        self._files: dict[str, KnownFile] = {}
        context = memory.commits.context(self._now, KIND, None, said_at=self._now)
        self._context = replace(context, source={**context.source, "from": found.name}, assignment=request.assignment)
        self._conversations = ConversationRecorder(memory, scope)
        self._users = {memory.config.user_space, *dict(memory.opened.users())}
        self._began: dict[str, str] = {}  # in which folder, by what hosts call it: talks of subagents are files apart
        self._batch: list[BatchItem] = []
        self._bytes = 0
        self._seen: set[str] = set()
        self._links: list[LinkItem] = []
        self._uris: dict[str, str] = {}
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
            items = self._items_of(narrowed, entry, beside)
            for item in self._identified(entry, items) if self._format.ids_per_file else items:
                self._take(item)
                self._items += 1
                if len(self.report.commits) - self._indexed >= _INDEXED_EVERY:
                    self._indexed = len(self.report.commits)
                    self._memory.follow_index()
                tell(f"{self._items:,} items read, {self.report.total(Action.CREATED):,} new")
        self._flush()
        if self._request.dry_run:
            return
        for link in self._links:
            self._put(link, 0)
        self._flush()
        moves = self._format.moves_originals if self._request.move_originals is None else self._request.move_originals
        for entry in files if moves else ():
            self._move_original(entry)

    def _items_of(self, source: Source, entry: Entry, beside: set[str]) -> Iterator[Item]:
        try:
            yield from self._format.read(source, entry)
        except (InvalidInput, StorageFailed) as error:
            copy = f"{entry.name}.bak"
            spare = f" {copy} beside it may be sound." if copy in beside else ""
            yield LeftOut(entry.name, error.message + spare)

    def _identified(self, entry: Entry, items: Iterator[Item]) -> list[Item]:
        """The items of a file, each with an id that no item of another file has."""
        found = list(items)
        file = self._known_files.file(entry, [item for item in found if isinstance(item, MemoryItem)])
        self._files[file.file_id] = file
        return [item.with_file_id(file.file_id) if isinstance(item, MemoryItem | LinkItem) else item for item in found]

    def _take(self, item: Item) -> None:
        if isinstance(item, LeftOut):
            self.report.left_out.append(item)
        elif isinstance(item, Skipped):
            self.report.skipped[item.what] += item.count
        elif isinstance(item, ConversationItem):
            self._flush()
            assignment = self._assignment(item)
            record, is_private = self._conversations.record, self._is_private(item)
            self.report.add(record(item, assignment, self._now, is_private, dry_run=self._request.dry_run))
        elif item.item_id in self._seen:
            self.report.skipped["items that the source holds twice"] += 1
        else:
            self._seen.add(item.item_id)
            if isinstance(item, LinkItem):
                self._links.append(item)
            else:
                text = item.content if isinstance(item, MemoryItem) else item.text
                self._put(item, len(text.encode("utf-8", "replace")))

    def _assignment(self, item: ConversationItem) -> ProjectAssignment:
        """The project of the folder in which a conversation began, unless the caller named one."""
        given = self._request.assignment
        return given if given.named or item.folder is None else replace(given, project=_project(item.folder))

    def _is_private(self, item: ConversationItem) -> Callable[[Mapping[str, Any]], bool] | None:
        """Whether private mode keeps a message out, as the hooks of the host were told; None where no hook was.

        What tells no time, such as a title, is of the time of the conversation.
        """
        if item.hosts_id is None:
            return None
        state, began = self._memory.store.files.state, self._began.get(item.hosts_id)
        talks = [talk_of(item.hosts_id, "", user) for user in self._users]
        began = began or next(filter(None, (last_read(state, talk).folder for talk in talks)), item.folder or "")
        self._began[item.hosts_id] = began
        private = PrivateTimes(state, (), *talks, began=began, said_in=item.folders)
        told = [at for message in item.messages if (at := said_at(message)) is not None]
        times = {"earliest": min(told), "latest": max(told)} if told else {}
        return partial(private.cover, **times)

    def _put(self, item: BatchItem, size_bytes: int) -> None:
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
        batch = Batch(self._batch, self._context, self._earlier, redaction, self._uris, self._files)
        receipt = self._memory.store.commit(batch.plan, kind=KIND, now=self._now, dry_run=self._request.dry_run)
        self.report.commits += [receipt.commit_id] if receipt.commit_id else []
        self.report.add(batch.outcome)
        self._note_placed(batch.outcome)
        self._batch, self._bytes = [], 0

    def _note_placed(self, outcome: Outcome) -> None:
        """Note where memories are, for their links, and how often they were used elsewhere."""
        used: dict[str, Usage] = {}
        for placed in outcome.placed:
            item = placed.item
            if not isinstance(item, MemoryItem):
                continue
            self._uris[item.item_id] = placed.uri
            if placed.action is Action.UNCHANGED:
                self._note_present(MemoryUri.parse(placed.uri))
            if item.accesses and self._memory.store.files.stat(MemoryUri.parse(placed.uri)) is not None:
                used[placed.uri] = Usage(item.accesses, item.accessed_at or item.said_at or self._now)
        if used and not self._request.dry_run:
            self._memory.store.ledger.usage_table.begin(used)

    def _note_present(self, uri: MemoryUri) -> None:
        """Note where a memory is that was here already, or was."""
        store = self._memory.store
        try:
            text = store.text(uri)
            moved = store.ledger.past.moved_to(uri, 0) if text is None else None
            if moved is not None and moved.scope is not Scope.ARCHIVE:
                uri, text = moved, store.text(moved)
        except InvalidInput as error:
            self.report.notes.append(error.message)
            return
        if text is None:
            self.report.gone.append(str(uri))
            return
        self.report.there.append(str(uri))
        if (project := parse(uri, text, None).project) is not None:
            self.report.projects.add(project)

    def _move_original(self, entry: Entry) -> None:
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
    with contextlib.suppress(OSError, ValueError):  # a name that this system does not take, or does not show
        if Path(folder).exists():
            return project_at(Path(folder))
    parts = [part for part in folder.replace("\\", "/").split("/") if part]
    return folder_name(parts[-1]) if len(parts) >= _PROJECT_DEPTH else None
