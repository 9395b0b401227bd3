"""Promotion: hot segments become memories; and the passes of maintenance that work on one user's conversations.

The passes sort what overflowed (``segments``), extract conversations that ended (``sessions``), promote all that is hot
(``promotion``), have a model write better summaries (``summaries``) and archive the segments used least
(``eviction``). What is wrong with one session keeps no pass from the others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from memory_core.core.commit.commits import Span, done_meanwhile
from memory_core.core.commit.receipts import EXTRACTION, still_waits
from memory_core.core.errors import InvalidInput, InvalidUri, RunebookError, TooLarge
from memory_core.core.extract.extractor import ALL_LOGS, PROMOTION, Part, SessionReader
from memory_core.core.extract.intake import FollowUp
from memory_core.core.feature import Feature
from memory_core.core.llm.client import Completion, LLMRequest, drive
from memory_core.core.memory.memory import Memory
from memory_core.core.memory.message import Message
from memory_core.core.memory.metadata import Metadata
from memory_core.core.memory.project import ProjectScope
from memory_core.core.memory.results import (
    Action,
    ChangeSet,
    CommitReceipt,
    FileChange,
    OperationResult,
    SessionProgress,
    Status,
    status_of,
)
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.local import Snapshot
from memory_core.core.store.session_rows import Extraction
from memory_core.features.tiers.overflow import Overflow
from memory_core.features.tiers.segment import (
    EXTRACT,
    MODEL,
    Segment,
    SegmentExchange,
    SessionLog,
    dump_segment,
    parse_segment,
)
from memory_core.features.tiers.segmenting import SUMMARY_CHARS
from memory_core.features.tiers.stored import (
    SEGMENT,
    StoredSegment,
    all_segments,
    analysed_lines,
    changed,
    heats,
    segments_in,
)
from memory_core.features.upkeep.passes import Pass, archive_due, brought_back
from memory_core.features.upkeep.summaries import ITEMS_LIMIT, Improvement, SummaryTask, improve

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

#: Retrievals whose sessions a commit looks at for what became hot; all others are looked at by maintenance.
_RECENT_RETRIEVALS = 20


@dataclass(frozen=True, slots=True)
class HotSegment:
    """A segment to promote.

    Attributes:
        stored: The segment.
        heat: That it has.
        exchanges: Its exchanges that nothing was made of yet.
    """

    stored: StoredSegment
    heat: float
    exchanges: tuple[SegmentExchange, ...]


class Promoter:
    """Finds hot segments of one user and promotes them.

    Args:
        memory: The user's store and settings.
    """

    def __init__(self, memory: Runebook) -> None:
        self._memory = memory
        self._extractor = memory.extractor

    def after(self, log: MemoryUri | None, now: datetime) -> list[HotSegment]:
        """What is hot of a session that grew, and of those that retrievals came from lately; the hottest first."""
        recalls = self._memory.store.ledger.usage_table.trail(_RECENT_RETRIEVALS, space=self._memory.config.user_space)
        own = str(self._extractor.commits.sessions) + "/"
        turns = (uri for recall in recalls for uri, _ in recall.hits if uri.startswith(own) and "#" in uri)
        logs = dict.fromkeys([*([] if log is None else [str(log)]), *(uri.rpartition("#")[0] for uri in turns)])
        stored: list[StoredSegment] = []
        for each in logs:
            with suppress(RunebookError):
                used = segments_in(self._memory.store, MemoryUri.parse(each)).used
                stored += [
                    found for found in used if not all(exchange.analysed for exchange in found.segment.exchanges)
                ]
        return self._hot(stored, now)

    def everywhere(self, now: datetime) -> list[HotSegment]:
        """All that is hot; the hottest first."""
        self._memory.store.usage.flush()
        return self._hot(list(all_segments(self._memory.store, self._extractor.commits.sessions)), now)

    def promotion(self, hot: HotSegment, now: datetime) -> Generator[LLMRequest, Completion, CommitReceipt]:
        """Promote one segment; see ``Extractor.extract_parts``."""
        return self._extractor.extract_parts(hot.stored.log, lambda: self._next(hot.stored.uri, now), now)

    def _hot(self, stored: Sequence[StoredSegment], now: datetime) -> list[HotSegment]:
        tiers = self._memory.config.tiers
        found = [
            HotSegment(each, warm.heat, exchanges)
            for each, warm in zip(stored, heats(self._memory.store, tiers, stored, now), strict=True)
            if warm.heat >= tiers.mid_term_heat_threshold and (exchanges := self._not_analysed(each, now))
        ]
        return sorted(found, key=lambda hot: (-hot.heat, hot.stored.uri))

    def _not_analysed(self, stored: StoredSegment, now: datetime | None = None) -> tuple[SegmentExchange, ...]:
        """Exchanges that nothing was made of: by no promotion, by no extraction, and not in a client's hands.

        An exchange that no prompt can hold is left to ordinary extraction, which takes it in parts. With ``now``: none
        of a session whose extraction failed lately or was undone.
        """
        row = self._extractor.queue.get(stored.log)
        if row is None or not row.waiting:
            return ()
        if now is not None and row.retry_at is not None and datetime.fromisoformat(row.retry_at) > now:
            return ()
        if all(exchange.analysed for exchange in stored.segment.exchanges):
            return ()
        try:
            log = self._session(stored.log)
        except _OF_ONE_SESSION:
            return ()
        from_here = max(row.extracted, row.briefed)
        return tuple(
            exchange
            for exchange in stored.segment.exchanges
            if not exchange.analysed
            and (places := log.places(exchange))
            and from_here <= places[0] < row.stored
            and log.fitting([exchange])
        )

    def _session(self, log: MemoryUri) -> _ReadableLog:
        sessions, budget = self._extractor.sessions, self._extractor.orchestrator.conversation_tokens
        return _ReadableLog(sessions, sessions.lines(log), sessions.messages(log), budget)

    def _next(self, uri: MemoryUri, now: datetime) -> tuple[Part, Promoted] | None:
        """The next exchanges of a segment that one prompt can hold, as it is now; None where none is left."""
        segment = parse_segment(self._memory.store.text(uri) or "")
        if segment is None:
            return None
        stored = StoredSegment(uri, segment)
        exchanges = self._not_analysed(stored)
        row = self._extractor.queue.get(stored.log)
        if not exchanges or row is None:
            return None
        log = self._session(stored.log)
        taken = exchanges[: log.fitting(exchanges)]
        wanted = [at for exchange in taken for at in log.places(exchange)]
        sessions, messages = log.sessions, log.messages
        part = Part(
            Span(stored.log, wanted[0], wanted[-1] + 1),
            sessions.excerpt(messages, wanted, stored.log),
            sessions.assignment([messages[at] for at in wanted]),
        )
        return part, Promoted(self._memory, row, uri, taken, last=len(taken) == len(exchanges), now=now)


@dataclass(frozen=True, slots=True)
class _ReadableLog:
    """A log as promotion takes exchanges from it."""

    sessions: SessionReader
    lines: Sequence[int]
    messages: Sequence[Message]
    budget_tokens: int

    def places(self, exchange: SegmentExchange) -> list[int]:
        """Places of an exchange's messages among those that can be read."""
        return list(range(bisect_left(self.lines, exchange.first), bisect_right(self.lines, exchange.last)))

    def fitting(self, exchanges: Sequence[SegmentExchange]) -> int:
        """How many of the exchanges, from the first, one prompt can hold."""
        said = [[self.messages[at] for at in self.places(exchange)] for exchange in exchanges]
        return self.sessions.fitting(said, self.budget_tokens)


@dataclass(frozen=True, slots=True)
class Promoted:
    """What a commit of memories does to the segment that they were made of; a ``Settlement``.

    Attributes:
        memory: The user's store and settings.
        row: Where the session stood.
        uri: The segment.
        exchanges: Those that were read.
        last: Whether no other is left, so that the segment is cooled.
        now: The moment.
    """

    memory: Runebook
    row: Extraction
    uri: MemoryUri
    exchanges: tuple[SegmentExchange, ...]
    last: bool
    now: datetime

    def refusal(self, snapshot: Snapshot) -> ChangeSet | None:
        """None if all the exchanges stand there as they were read, and nothing was made of them yet."""
        return None if self._waits(snapshot) else done_meanwhile(None)

    def _waits(self, snapshot: Snapshot) -> bool:
        segment = parse_segment(snapshot.text(self.uri) or "")
        row = snapshot.ledger.extractions.get(self.row.log)
        if segment is None or row is None or row.extracted != self.row.extracted:
            return False
        log = SessionLog(snapshot.text(self.row.log) or "")
        stored = {exchange.first: exchange for exchange in segment.exchanges}
        for exchange in self.exchanges:
            known, said = stored.get(exchange.first), log.exchange(exchange.first, exchange.last)
            if known is None or known.analysed or said is None or said.digest != exchange.digest:
                return False
        return True

    def settled(self, decided: ChangeSet, snapshot: Snapshot) -> ChangeSet:
        """The change set with the exchanges marked and, after the last of them, the segment cooled."""
        before = snapshot.text(self.uri) or ""
        segment = parse_segment(before)
        assert segment is not None  # as ``refusal`` found
        read = {exchange.first for exchange in self.exchanges}
        exchanges = tuple(
            replace(exchange, analysed=exchange.analysed or exchange.first in read) for exchange in segment.exchanges
        )
        after = replace(segment, exchanges=exchanges, updated_at=self.now.astimezone(UTC).isoformat(timespec="seconds"))
        if self.last:
            after = self._cooled(after)
        note = f"{len(read)} exchanges became memories" + ("; cooled" if self.last else "")
        progress = SessionProgress(self.row.log, extracted=self._extracted(snapshot, after))
        change = FileChange(self.uri, before, dump_segment(after))
        return replace(decided.with_file(change, changed(self.uri, created=False, note=note)), progress=progress)

    def _cooled(self, segment: Segment) -> Segment:
        (warm,) = heats(self.memory.store, self.memory.config.tiers, [StoredSegment(self.uri, segment)], self.now)
        last = None if warm.last_visit is None else warm.last_visit.isoformat(timespec="seconds")
        return replace(segment, interactions=0, visits_counted=warm.visits, last_visit_at=last)

    def _extracted(self, snapshot: Snapshot, after: Segment) -> int:
        """How far the queue has come: past everything that was taken without a gap."""
        log = self.row.log
        own = {
            line
            for exchange in after.exchanges
            if exchange.analysed
            for line in range(exchange.first, exchange.last + 1)
        }
        done = own | analysed_lines(self.memory.store, log)
        lines = SessionLog(snapshot.text(log) or "").lines()
        return next(
            (at for at in range(self.row.extracted, self.row.stored) if at >= len(lines) or lines[at] not in done),
            self.row.stored,
        )


T = TypeVar("T")

_SUMMARIES, _EVICTION = "summaries", "eviction"
#: What is wrong with one session and keeps nobody from the others; a store that is busy or full does.
_OF_ONE_SESSION = (InvalidInput, InvalidUri, TooLarge)


def _sort(memory: Runebook, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
    """Sort exchanges that overflowed while nobody sorted them, mend segments of changed messages, name damaged ones."""
    damaged: list[OperationResult] = []
    overflow = memory.part(Overflow)
    for log in memory.store.ledger.directories.newest_logs(memory.commits.sessions, ALL_LOGS):
        uri = MemoryUri.parse(log)
        try:
            damaged += overflow.damaged(uri)
            if not dry_run:
                yield from overflow.sort_all(uri, now, mend=True)
            elif (receipt := overflow.sort_once(uri, now, mend=True, dry_run=True)) is not None:
                yield receipt
        except _OF_ONE_SESSION as error:
            damaged.append(OperationResult(SEGMENT, log, Action.REJECTED, error.message, error.hint))
    if damaged:
        yield CommitReceipt("", Status.DRY_RUN if dry_run else status_of(tuple(damaged)), tuple(damaged))


def _run_each(
    memory: Runebook,
    due: Sequence[T],
    loop: Callable[[T], Generator[LLMRequest, Completion, CommitReceipt]],
    would: Callable[[T], OperationResult],
    *,
    dry_run: bool,
) -> Iterator[CommitReceipt]:
    """Run the update loop over what is due with the configured model, until something of it has to wait.

    A dry run says of each what ``would`` be, and asks nothing.
    """
    client = memory.model() if due else None
    if client is None:
        return
    for each in due:
        if dry_run:
            yield CommitReceipt("", Status.DRY_RUN, (would(each),))
            continue
        receipt = drive(loop(each), client, memory.config.llm.deadline_seconds)
        yield memory.indexed(receipt)
        if still_waits(receipt) and receipt.usage:  # without usage no model was asked
            return


def _extract_ended(memory: Runebook, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
    """Extract what waits of sessions that ended; where there is no model, they wait for a client's."""
    at = now.astimezone(UTC).isoformat(timespec="seconds")
    due = [row for row in memory.extractor.waiting(ALL_LOGS, at) if memory.trigger.takes_other(row, now)]

    def would(row: Extraction) -> OperationResult:
        note = f"{row.waiting} messages would be extracted"
        return OperationResult(EXTRACTION, str(row.log), Action.QUEUED, note=note)

    return _run_each(memory, due, lambda row: memory.extractor.extraction(row.log, now), would, dry_run=dry_run)


def _promote(memory: Runebook, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
    """Make memories of the exchanges of hot segments that nothing was made of yet."""
    promoter = Promoter(memory)

    def would(hot: HotSegment) -> OperationResult:
        note = f"heat {hot.heat:.1f}: {len(hot.exchanges)} exchanges would become memories"
        return changed(hot.stored.uri, created=False, note=note)

    due = promoter.everywhere(now)
    return _run_each(memory, due, lambda hot: promoter.promotion(hot, now), would, dry_run=dry_run)


def _summarise(memory: Runebook, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
    """Have a model write better summaries of segments, in one call; a person's are never touched."""
    outdated = [each for each in all_segments(memory.store, memory.commits.sessions) if _is_outdated(each)]
    newest = sorted(outdated, key=lambda each: each.segment.updated_at, reverse=True)[:ITEMS_LIMIT]
    at = memory.plan_context(now).now

    def improvement(shown: StoredSegment, texts: tuple[str, ...]) -> Improvement:
        def written(text: str | None, summary: str, _snapshot: Snapshot) -> str | None:
            if parse_segment(text or "") != shown.segment:
                return None
            return dump_segment(replace(shown.segment.summed_up(summary, MODEL), updated_at=at))

        task = SummaryTask(texts, SUMMARY_CHARS)
        return Improvement(shown.uri, task, written, SEGMENT, "summarised by the model")

    due = [improvement(each, texts) for each in newest if not dry_run and (texts := _texts(memory, each))]
    return improve(memory, _SUMMARIES, due, now)


def _texts(memory: Runebook, stored: StoredSegment) -> tuple[str, ...]:
    try:
        log = SessionLog(memory.store.text(stored.log) or "")
    except _OF_ONE_SESSION:
        return ()
    exchanges = (log.exchange(exchange.first, exchange.last) for exchange in stored.segment.exchanges)
    return tuple(exchange.text for exchange in exchanges if exchange is not None)


def _evict(memory: Runebook, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
    """Archive the least frequently used segments beyond ``tiers.mid_term_capacity``.

    Their messages stay in the log and are no longer found or recalled unless they are asked for, until the segment is
    restored. Pinned segments stay.
    """
    store, tiers = memory.store, memory.config.tiers
    stored = list(all_segments(store, memory.commits.sessions))
    beyond = len(stored) - tiers.mid_term_capacity
    if beyond <= 0:
        return
    store.usage.flush()
    kept = brought_back(memory, now)
    free = [each for each in stored if not Metadata(each.segment.more).is_pinned and str(each.uri) not in kept]
    visits = [warm.visits for warm in heats(store, tiers, free, now)]
    worth = sorted(zip(free, visits, strict=True), key=lambda pair: (pair[1], pair[0].segment.updated_at, pair[0].uri))
    why = "used least of the segments beyond their capacity ({} visits)"
    least = {each.uri: (each.segment, why.format(count)) for each, count in worth[:beyond]}

    def due(found: Memory) -> str | None:
        segment, reason = least[found.uri]
        return reason if parse_segment(found.text) == segment else None  # it was pinned meanwhile, or grew

    yield from archive_due(memory, _EVICTION, list(least), due, now, dry_run=dry_run, op=SEGMENT, typed=False)


def _is_outdated(stored: StoredSegment) -> bool:
    """Whether a model may do better: sentences of its own, or a summary that lags behind the exchanges."""
    segment = stored.segment
    return segment.summary_by == EXTRACT or (
        segment.summary_by == MODEL and segment.summarised < len(segment.exchanges)
    )


def _follow_up(memory: Runebook) -> FollowUp:
    """After an extraction the hottest segment is promoted; others wait for the next commit, or maintenance."""
    promoter = Promoter(memory)

    def promoted(
        own: MemoryUri | None, scope: ProjectScope, now: datetime
    ) -> Generator[LLMRequest, Completion, CommitReceipt | None]:
        memory.opened.background.finish()
        is_seen = memory.extractor.sessions.is_seen
        hottest = next((hot for hot in promoter.after(own, now) if is_seen(hot.stored.log, scope.current)), None)
        return None if hottest is None else (yield from promoter.promotion(hottest, now))

    return promoted


def _after_commit(memory: Runebook, receipt: CommitReceipt, now: datetime) -> None:
    memory.part(Overflow).after(receipt, now)


FEATURE = Feature(
    extracted_lines=analysed_lines,
    after_commit=_after_commit,
    follow_up=_follow_up,
    passes=(
        Pass("segments", _sort, of_user=True),
        Pass("sessions", _extract_ended, light=False, of_user=True),
        Pass(PROMOTION, _promote, light=False, of_user=True),
        Pass(_SUMMARIES, _summarise, light=False, of_user=True),
        Pass(_EVICTION, _evict, of_user=True),
    ),
)
