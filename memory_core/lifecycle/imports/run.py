"""One import, from a path to a report: items are read one by one, stored in batches, and each batch is one commit.

What was brought before is left alone (``known``, ``conversations``), so an import that was interrupted is completed by
the next, and one that is repeated changes nothing. Reads the source, writes through the store alone; originals are
renamed only once everything of them is acknowledged, and never in a dry run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from memory_core.config import Config
from memory_core.errors import InvalidInput
from memory_core.lifecycle.imports.conversations import ConversationDesk
from memory_core.lifecycle.imports.detection import detect
from memory_core.lifecycle.imports.items import (
    ConversationItem,
    Format,
    Item,
    LeftOut,
    LogItem,
    MemoryItem,
    Passed,
    Stored,
    SummaryItem,
)
from memory_core.lifecycle.imports.known import KIND, Known
from memory_core.lifecycle.imports.memories import MemoryBatch, Outcome
from memory_core.lifecycle.imports.relations import Joint, RelationBatch
from memory_core.lifecycle.imports.report import ImportReport
from memory_core.lifecycle.imports.sources import Entry, Source, open_source
from memory_core.lifecycle.imports.vibeworker_v1 import MIGRATED
from memory_core.model.changes import Action
from memory_core.model.project import NO_PROJECT, Belonging, folder_name
from memory_core.model.uri import MemoryUri
from memory_core.registry import MemoryTypeRegistry
from memory_core.storage.store import Store
from memory_core.storage.tables.usage import Usage
from memory_core.storage.workspace import project_at
from memory_core.update.recorder import MessageRecorder
from memory_core.update.updater import MemoryUpdater

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
    updater: MemoryUpdater
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
        context = desk.updater.context(now, KIND, None)
        self._context = replace(context, source={**context.source, "from": found.name}, belonging=wishes.belonging)
        self._conversations = ConversationDesk(
            desk.store, desk.recorder, desk.updater, scope, desk.config.limits.commit_bytes
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
        batch = MemoryBatch(self._batch, self._context, self._known, self._desk.updater.discretion)
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
