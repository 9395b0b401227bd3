"""What maintenance does about conversations: late overflow, ended sessions, hot segments, summaries, eviction."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import ClassVar, TypeVar

from memory_core.errors import InvalidInput, InvalidUri, RunebookError, TooLarge
from memory_core.lifecycle.extraction import PROMOTION, Extractor
from memory_core.lifecycle.maintenance.summaries import ITEMS_LIMIT, Summary, SummaryRequest, SummaryWriter
from memory_core.lifecycle.maintenance.upkeep import BATCH_FILES, Upkeep
from memory_core.lifecycle.receipts import EXTRACTION, still_waits
from memory_core.lifecycle.tiers.overflow import Overflow
from memory_core.lifecycle.tiers.promotion import Hot, Promoter
from memory_core.lifecycle.tiers.stored import SEGMENT, StoredSegment, all_segments, changed
from memory_core.lifecycle.tiers.trigger import ExtractionTrigger
from memory_core.lifecycle.tiers.warmth import warmth
from memory_core.llm.client import Completion, LLMClient, LLMRequest, drive
from memory_core.model.availability import is_pinned
from memory_core.model.changes import Action, ChangeSet, CommitReceipt, OperationResult, Status, overall
from memory_core.model.segment import EXTRACT, MODEL, dump_segment, parse_segment
from memory_core.model.uri import MemoryUri
from memory_core.storage.store import Snapshot
from memory_core.storage.tables.extractions import Extraction
from memory_core.update.archiving import archive
from memory_core.update.draft import Draft
from memory_core.update.segmenting import SUMMARY_CHARS
from memory_core.update.session_log import SessionLog

T = TypeVar("T")

_ALL_LOGS = 1_000_000
#: What is wrong with one session and keeps nobody from the others; a store that is busy or full does.
_OF_ONE_SESSION = (InvalidInput, InvalidUri, TooLarge)


@dataclass(frozen=True, slots=True)
class Segmenting:
    """Sorts pages that overflowed while nobody sorted them, and mends segments of messages that changed."""

    upkeep: Upkeep
    overflow: Overflow
    name: ClassVar[str] = "segments"
    light: ClassVar[bool] = True

    def run(self, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
        """Sort what is due, and name what cannot be read; see ``Pass.run``."""
        unread: list[OperationResult] = []
        for log in self.upkeep.store.ledger.directories.newest_logs(self.overflow.sessions, _ALL_LOGS):
            uri = MemoryUri.parse(log)
            try:
                unread += self.overflow.damaged(uri)
                if not dry_run:
                    yield from self.overflow.settled(uri, now, mend=True)
                elif (receipt := self.overflow.settle(uri, now, mend=True, dry_run=True)) is not None:
                    yield receipt
            except _OF_ONE_SESSION as error:
                unread.append(OperationResult(SEGMENT, log, Action.REJECTED, error.message, error.hint))
        if unread:
            yield CommitReceipt("", Status.DRY_RUN if dry_run else overall(tuple(unread)), tuple(unread))


@dataclass(frozen=True, slots=True)
class ModelRuns:
    """Runs the update loop over what is due with the configured model, until something of it has to wait."""

    client: Callable[[], LLMClient | None]
    indexed: Callable[[CommitReceipt], CommitReceipt]
    deadline_seconds: float

    def over(
        self,
        due: Sequence[T],
        loop: Callable[[T], Generator[LLMRequest, Completion, CommitReceipt]],
        would: Callable[[T], OperationResult],
        *,
        dry_run: bool,
    ) -> Iterator[CommitReceipt]:
        """A receipt for each; a dry run says of each what ``would`` be, and asks nothing."""
        client = self.client() if due else None
        if client is None:
            return
        for each in due:
            if dry_run:
                yield CommitReceipt("", Status.DRY_RUN, (would(each),))
                continue
            receipt = drive(loop(each), client, self.deadline_seconds)
            yield self.indexed(receipt)
            if still_waits(receipt):
                return


@dataclass(frozen=True, slots=True)
class EndedSessions:
    """Extracts what waits of sessions that ended; where there is no model, they wait for a client's."""

    extractor: Extractor
    trigger: ExtractionTrigger
    runs: ModelRuns
    name: ClassVar[str] = "sessions"
    light: ClassVar[bool] = False

    def run(self, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
        """Extract what is due; see ``Pass.run``."""
        at = now.astimezone(UTC).isoformat(timespec="seconds")
        due = [row for row in self.extractor.waiting(_ALL_LOGS, at) if self.trigger.takes_other(row, now)]

        def would(row: Extraction) -> OperationResult:
            note = f"{row.waiting} messages would be extracted"
            return OperationResult(EXTRACTION, str(row.log), Action.QUEUED, note=note)

        return self.runs.over(due, lambda row: self.extractor.extraction(row.log, now), would, dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class Promotion:
    """Makes memories of the unread exchanges of hot segments."""

    promoter: Promoter
    runs: ModelRuns
    name: ClassVar[str] = PROMOTION
    light: ClassVar[bool] = False

    def run(self, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
        """Promote what is due; see ``Pass.run``."""

        def would(hot: Hot) -> OperationResult:
            note = f"heat {hot.heat:.1f}: {len(hot.pages)} exchanges would become memories"
            return changed(hot.stored.uri, created=False, note=note)

        hot = self.promoter.everywhere(now)
        return self.runs.over(hot, lambda each: self.promoter.promotion(each, now), would, dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class SegmentSummaries:
    """Has a model write better summaries of segments, in one call; a person's are never touched."""

    upkeep: Upkeep
    writer: SummaryWriter
    sessions: MemoryUri
    name: ClassVar[str] = "summaries"
    light: ClassVar[bool] = False

    def run(self, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
        """Summarise what is due; see ``Pass.run``."""
        due = [each for each in all_segments(self.upkeep.store, self.sessions) if _is_outdated(each)]
        due = sorted(due, key=lambda each: each.segment.updated_at, reverse=True)[:ITEMS_LIMIT]
        asked = [(each, texts) for each in due if (texts := self._texts(each))]
        if dry_run or not asked:
            return
        written = self.writer.write([SummaryRequest(texts, SUMMARY_CHARS) for _, texts in asked])
        better = {each.uri: item for (each, _), item in zip(asked, written.items, strict=True) if item is not None}
        read = {each.uri: each for each, _ in asked}

        def planned(snapshot: Snapshot) -> ChangeSet:
            draft = Draft(snapshot, self.upkeep.context(now))
            results = [
                changed(uri, created=False, note="summarised by the model")
                for uri, item in better.items()
                if _put(draft, read[uri], item)
            ]
            return ChangeSet(draft.changes(), tuple(results), written.notes)

        receipt = self.upkeep.commit(self.name, planned, now, dry_run=False) if better else None
        if receipt is not None:
            yield receipt
        else:
            yield from written.without_effect()

    def _texts(self, stored: StoredSegment) -> tuple[str, ...]:
        log = SessionLog(self.upkeep.store.text(stored.log) or "")
        pages = (log.page(page.first, page.last) for page in stored.segment.pages)
        return tuple(page.text for page in pages if page is not None)


@dataclass(frozen=True, slots=True)
class Eviction:
    """Archives the least frequently used segments beyond ``tiers.mid_term_capacity``.

    Their messages stay in the log and are no longer found or recalled unless they are asked for, until the segment is
    restored. Pinned segments stay.
    """

    upkeep: Upkeep
    sessions: MemoryUri
    name: ClassVar[str] = "eviction"
    light: ClassVar[bool] = True

    def run(self, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
        """Archive what is due; see ``Pass.run``."""
        store, tiers = self.upkeep.store, self.upkeep.config.tiers
        stored = list(all_segments(store, self.sessions))
        beyond = len(stored) - tiers.mid_term_capacity
        if beyond <= 0:
            return
        store.usage.flush()
        held = self.upkeep.brought_back(now)
        free = [each for each in stored if not is_pinned(each.segment.more) and str(each.uri) not in held]
        visits = [warm.visits_in_all for warm in warmth(store, tiers, free, now)]
        worth = sorted(
            zip(free, visits, strict=True), key=lambda pair: (pair[1], pair[0].segment.updated_at, pair[0].uri)
        )
        leaving = [(each.uri, count) for each, count in worth[:beyond]]
        for start in range(0, len(leaving), BATCH_FILES):
            receipt = self._archived(leaving[start : start + BATCH_FILES], now, dry_run)
            if receipt is not None:
                yield receipt

    def _archived(self, leaving: Sequence[tuple[MemoryUri, int]], now: datetime, dry_run: bool) -> CommitReceipt | None:
        context = self.upkeep.context(now)

        def planned(snapshot: Snapshot) -> ChangeSet:
            draft = Draft(snapshot, context)
            results = [_left(draft, uri, visits) for uri, visits in leaving if draft.text(uri) is not None]
            return ChangeSet(draft.changes(), tuple(results))

        return self.upkeep.commit(self.name, planned, now, dry_run=dry_run)


def _left(draft: Draft, uri: MemoryUri, visits: int) -> OperationResult:
    why = f"used least of the segments beyond their capacity ({visits} visits)"
    try:
        target = archive(draft, uri, why)
    except RunebookError as error:
        return OperationResult(SEGMENT, str(uri), Action.REJECTED, error.message, error.hint)
    return OperationResult(SEGMENT, str(uri), Action.DELETED, note=f"{why}; now {target}")


def _is_outdated(stored: StoredSegment) -> bool:
    """Whether a model may do better: sentences of its own, or a summary that lags behind the pages."""
    segment = stored.segment
    return segment.summary_by == EXTRACT or (segment.summary_by == MODEL and segment.summarised < len(segment.pages))


def _put(draft: Draft, read: StoredSegment, summary: Summary) -> bool:
    """Write a summary, unless somebody changed the segment meanwhile."""
    now = parse_segment(draft.text(read.uri) or "")
    if now is None or now != read.segment:
        return False
    draft.put(read.uri, dump_segment(replace(now.summed_up(summary.text, MODEL), updated_at=draft.context.now)))
    return True
