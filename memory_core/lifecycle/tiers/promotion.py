"""Promotion: what is hot becomes memory. The unread pages of a hot segment go through the update loop, once.

In the commit that brings their memories, the pages are marked and the segment is cooled: killed before it, nothing
happened; after it, nothing is left to do. The queue passes over what was promoted, so nothing is extracted twice, and
moves on where all before was done. An undone promotion waits until it is asked for.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from memory_core.errors import RunebookError
from memory_core.lifecycle.extraction import Extractor
from memory_core.lifecycle.maintenance.upkeep import Upkeep
from memory_core.lifecycle.sessions import Part, SessionReader
from memory_core.lifecycle.tiers.stored import StoredSegment, all_segments, analysed_lines, changed, segments_in
from memory_core.lifecycle.tiers.warmth import warmth
from memory_core.llm.client import Completion, LLMRequest
from memory_core.model.changes import ChangeSet, CommitReceipt, FileChange, SessionProgress
from memory_core.model.message import Message
from memory_core.model.segment import Segment, SegmentPage, dump_segment, parse_segment
from memory_core.model.uri import MemoryUri
from memory_core.storage.store import Snapshot
from memory_core.storage.tables.extractions import Extraction
from memory_core.update.session_log import SessionLog
from memory_core.update.updater import Span

#: Retrievals whose sessions a commit looks at for what became hot; all others are looked at by maintenance.
_RECENT_RETRIEVALS = 20


@dataclass(frozen=True, slots=True)
class Hot:
    """A segment to promote.

    Attributes:
        stored: The segment.
        heat: That it has.
        pages: Its pages that nothing was made of yet.
    """

    stored: StoredSegment
    heat: float
    pages: tuple[SegmentPage, ...]


class Promoter:
    """Finds hot segments of one user and promotes them.

    Args:
        upkeep: The user's store and settings.
        extractor: Runs the update loop.
    """

    def __init__(self, upkeep: Upkeep, extractor: Extractor) -> None:
        self._upkeep = upkeep
        self._extractor = extractor

    def after(self, log: MemoryUri | None, now: datetime) -> list[Hot]:
        """What is hot of a session that grew, and of those that retrievals came from lately; the hottest first."""
        recalls = self._upkeep.store.ledger.usage_table.trail(_RECENT_RETRIEVALS, space=self._upkeep.config.user_space)
        own = str(self._extractor.sessions_directory) + "/"
        turns = (uri for recall in recalls for uri, _ in recall.hits if uri.startswith(own) and "#" in uri)
        logs = dict.fromkeys([*([] if log is None else [str(log)]), *(uri.rpartition("#")[0] for uri in turns)])
        stored: list[StoredSegment] = []
        for each in logs:
            try:
                found = segments_in(self._upkeep.store, MemoryUri.parse(each)).used
            except RunebookError:
                continue
            stored += [each for each in found if not all(page.analysed for page in each.segment.pages)]
        return self._hot(stored, now)

    def everywhere(self, now: datetime) -> list[Hot]:
        """All that is hot; the hottest first."""
        self._upkeep.store.usage.flush()
        return self._hot(list(all_segments(self._upkeep.store, self._extractor.sessions_directory)), now)

    def promotion(self, hot: Hot, now: datetime) -> Generator[LLMRequest, Completion, CommitReceipt]:
        """Promote one segment; see ``Extractor.promotion``."""
        return self._extractor.promotion(hot.stored.log, lambda: self._next(hot.stored.uri, now), now)

    def _hot(self, stored: Sequence[StoredSegment], now: datetime) -> list[Hot]:
        tiers = self._upkeep.config.tiers
        found = [
            Hot(each, warm.heat, pages)
            for each, warm in zip(stored, warmth(self._upkeep.store, tiers, stored, now), strict=True)
            if warm.heat >= tiers.mid_term_heat_threshold and (pages := self._unread(each, now))
        ]
        return sorted(found, key=lambda hot: (-hot.heat, hot.stored.uri))

    def _unread(self, stored: StoredSegment, now: datetime | None = None) -> tuple[SegmentPage, ...]:
        """Pages that nothing was made of: by no promotion, by no extraction, and not in a client's hands.

        A page that no prompt can hold is left to ordinary extraction, which takes it in parts. With ``now``: none of a
        session whose extraction failed lately or was undone.
        """
        row = self._extractor.queue.get(stored.log)
        if row is None or not row.waiting:
            return ()
        if now is not None and row.retry_at is not None and datetime.fromisoformat(row.retry_at) > now:
            return ()
        if all(page.analysed for page in stored.segment.pages):
            return ()
        log = self._session(stored.log)
        from_here = max(row.extracted, row.briefed)
        return tuple(
            page
            for page in stored.segment.pages
            if not page.analysed
            and (places := log.places(page))
            and from_here <= places[0] < row.stored
            and log.fitting([page])
        )

    def _session(self, log: MemoryUri) -> _Session:
        sessions, budget = self._extractor.sessions, self._extractor.orchestrator.conversation_tokens
        return _Session(sessions, sessions.lines(log), sessions.messages(log), budget)

    def _next(self, uri: MemoryUri, now: datetime) -> tuple[Part, Promoted] | None:
        """The next pages of a segment that one prompt can hold, as it is now; None where none is left."""
        segment = parse_segment(self._upkeep.store.text(uri) or "")
        if segment is None:
            return None
        stored = StoredSegment(uri, segment)
        pages = self._unread(stored)
        row = self._extractor.queue.get(stored.log)
        if not pages or row is None:
            return None
        log = self._session(stored.log)
        taken = pages[: log.fitting(pages)]
        wanted = [at for page in taken for at in log.places(page)]
        sessions, messages = log.sessions, log.messages
        part = Part(
            Span(stored.log, wanted[0], wanted[-1] + 1),
            sessions.excerpt(messages, wanted, stored.log),
            sessions.belonging([messages[at] for at in wanted]),
        )
        return part, Promoted(self._upkeep, row, uri, taken, last=len(taken) == len(pages), now=now)


@dataclass(frozen=True, slots=True)
class _Session:
    """A log as promotion takes pages from it."""

    sessions: SessionReader
    lines: Sequence[int]
    messages: Sequence[Message]
    budget_tokens: int

    def places(self, page: SegmentPage) -> list[int]:
        """Places of a page's messages among those that can be read."""
        return list(range(bisect_left(self.lines, page.first), bisect_right(self.lines, page.last)))

    def fitting(self, pages: Sequence[SegmentPage]) -> int:
        """How many of the pages, from the first, one prompt can hold."""
        said = [[self.messages[at] for at in self.places(page)] for page in pages]
        return self.sessions.fitting(said, self.budget_tokens)


@dataclass(frozen=True, slots=True)
class Promoted:
    """What a commit of memories does to the segment that they were made of; a ``Settlement``.

    Attributes:
        upkeep: The user's store and settings.
        row: Where the session stood.
        uri: The segment.
        pages: Those that were read.
        last: Whether no other is left, so that the segment is cooled.
        now: The moment.
    """

    upkeep: Upkeep
    row: Extraction
    uri: MemoryUri
    pages: tuple[SegmentPage, ...]
    last: bool
    now: datetime

    def awaits(self, snapshot: Snapshot) -> bool:
        """Whether all the pages stand there as they were read, and nothing was made of them yet."""
        segment = parse_segment(snapshot.text(self.uri) or "")
        row = snapshot.ledger.extractions.get(self.row.log)
        if segment is None or row is None or row.extracted != self.row.extracted:
            return False
        log = SessionLog(snapshot.text(self.row.log) or "")
        stored = {page.first: page for page in segment.pages}
        for page in self.pages:
            known, said = stored.get(page.first), log.page(page.first, page.last)
            if known is None or known.analysed or said is None or said.digest != page.digest:
                return False
        return True

    def settled(self, decided: ChangeSet, snapshot: Snapshot) -> ChangeSet:
        """The change set with the pages marked and, after the last of them, the segment cooled."""
        before = snapshot.text(self.uri) or ""
        segment = parse_segment(before)
        assert segment is not None  # as ``awaits`` found
        read = {page.first for page in self.pages}
        pages = tuple(replace(page, analysed=page.analysed or page.first in read) for page in segment.pages)
        after = replace(segment, pages=pages, updated_at=self.now.astimezone(UTC).isoformat(timespec="seconds"))
        if self.last:
            after = self._cooled(after)
        note = f"{len(read)} exchanges became memories" + ("; cooled" if self.last else "")
        return replace(
            decided,
            changes=(*decided.changes, FileChange(self.uri, before, dump_segment(after))),
            results=(*decided.results, changed(self.uri, created=False, note=note)),
            progress=SessionProgress(self.row.log, extracted=self._extracted(snapshot, after)),
        )

    def _cooled(self, segment: Segment) -> Segment:
        (warm,) = warmth(self.upkeep.store, self.upkeep.config.tiers, [StoredSegment(self.uri, segment)], self.now)
        last = None if warm.last_visit is None else warm.last_visit.isoformat(timespec="seconds")
        return replace(segment, interactions=0, visits_counted=warm.visits_in_all, last_visit_at=last)

    def _extracted(self, snapshot: Snapshot, after: Segment) -> int:
        """How far the queue has come: past everything that was taken without a gap."""
        log = self.row.log
        own = {line for page in after.pages if page.analysed for line in range(page.first, page.last + 1)}
        done = own | analysed_lines(self.upkeep.store, log)
        lines = SessionLog(snapshot.text(log) or "").lines()
        return next(
            (at for at in range(self.row.extracted, self.row.stored) if at >= len(lines) or lines[at] not in done),
            self.row.stored,
        )
