"""Overflow: pages that leave the short term join the segments of their session, all of them in one commit.

What overflows is derived from the log and the segments' files, under the store's lock: whoever comes next finds what a
killed process left, and nothing is sorted twice. A commit of messages never fails for it; what could not be sorted
waits for the next commit or for maintenance.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from datetime import datetime

from memory_core.errors import RunebookError
from memory_core.lifecycle.maintenance.upkeep import Upkeep
from memory_core.lifecycle.tiers.likeness import TextLikeness
from memory_core.lifecycle.tiers.stored import SEGMENT, changed, session_segments
from memory_core.model.changes import Action, ChangeSet, CommitReceipt, OperationResult
from memory_core.model.filename import fit, short_hash
from memory_core.model.segment import Segment, dump_segment, file_name, segments_of
from memory_core.model.uri import MemoryUri, Scope, file_of
from memory_core.storage.store import Snapshot, Store
from memory_core.update.archiving import archived_uri
from memory_core.update.draft import Draft
from memory_core.update.segmenting import Rules, SessionLog, Sorting, overflowing, page_before

_log = logging.getLogger(__name__)
MESSAGES = "messages.jsonl"
#: Pages that one commit sorts, so that other writers are not kept waiting for a long conversation.
_PAGES_AT_ONCE = 200


class Overflow:
    """Sorts the older pages of one user's sessions.

    Args:
        upkeep: Their store and settings.
        likeness: Compares texts.
    """

    def __init__(self, upkeep: Upkeep, likeness: TextLikeness) -> None:
        self._upkeep = upkeep
        self._likeness = likeness
        #: Up to which line each log was sorted when this process looked last: spares most commits to read segments.
        self._covered: dict[MemoryUri, int] = {}
        self._left: dict[MemoryUri, int] = {}

    @property
    def sessions(self) -> MemoryUri:
        """The directory of the user's sessions."""
        return MemoryUri((Scope.SESSION.value, self._upkeep.config.user_space))

    def after(self, receipt: CommitReceipt, now: datetime) -> None:
        """After a commit of messages, or of what changed some: sort what overflows, and mend what no longer is so."""
        if not receipt.commit_id:
            return
        mend = not any(result.op == "messages" for result in receipt.results)
        for log in dict.fromkeys(_logs(receipt)):
            try:
                for _ in self.settled(log, now, mend=mend):
                    continue
            except RunebookError as error:
                _log.warning("%s keeps its older exchanges for now: %s", log.parent.name, error.message)

    def settled(self, log: MemoryUri, now: datetime, *, mend: bool = False) -> Iterator[CommitReceipt]:
        """Sort all that overflows of one session: one commit, or of a long imported conversation several."""
        while (receipt := self.settle(log, now, mend=mend)) is not None:
            yield receipt
            if not self._left.get(log):
                return

    def settle(
        self, log: MemoryUri, now: datetime, *, mend: bool = False, dry_run: bool = False
    ) -> CommitReceipt | None:
        """Sort what overflows of one session; None where there is nothing.

        Args:
            log: Of the session.
            now: The moment.
            mend: Also bring older segments up to messages that were changed, forgotten or taken back since.
            dry_run: Plan only.

        Raises:
            InvalidInput: If a segment of the session cannot be read.
            StoreBusy: If another writer held the store too long.
            StorageFailed: If the ledger could not be written.
        """
        store, capacity = self._upkeep.store, self._upkeep.config.tiers.short_term_capacity
        text = store.text(log) or ""
        if mend:
            if not self._plan(store, log, now, mend=True).changes:
                return None
        elif text.count("\n") <= capacity or len(SessionLog(text).spans(self._sorted_until(log, text))) <= capacity:
            return None
        receipt = store.commit(
            lambda snapshot: self._plan(snapshot, log, now, mend=mend), kind=SEGMENT, now=now, dry_run=dry_run
        )
        self._upkeep.indexer.wake()
        return receipt if receipt.changed_uris else None

    def _sorted_until(self, log: MemoryUri, text: str) -> int:
        """Up to which line this process saw the log sorted; 0 where it is another log by now."""
        until = self._covered.get(log, 0)
        return until if until <= text.count("\n") else 0

    def _plan(self, snapshot: Store | Snapshot, log: MemoryUri, now: datetime, *, mend: bool) -> ChangeSet:
        """What sorting changes, on the store as it is."""
        tiers = self._upkeep.config.tiers
        session = SessionLog(snapshot.text(log) or "")
        used = {str(each.uri): each.segment for each in session_segments(snapshot, log)}
        archived = [each.segment for each in session_segments(snapshot, log, archived=True)]
        every = [*used.values(), *archived]
        pages = overflowing(session, every, tiers.short_term_capacity)
        self._left[log] = len(pages[_PAGES_AT_ONCE:])
        pages = pages[:_PAGES_AT_ONCE]
        self._covered[log] = max((page.last + 1 for page in pages), default=max((s.end for s in every), default=0))
        if not pages and not mend:
            return ChangeSet()
        rules = Rules(
            tiers.short_term_capacity,
            tiers.mid_term_similarity_threshold,
            tiers.keyword_weight,
            self._likeness.of(len(pages)),
        )
        context = self._upkeep.context(now)
        sorting = Sorting(session, used, rules, log.parent.name, context.now)
        if mend:
            sorting.settle()
        before = page_before(session, every, pages[0]) if pages else None
        for page in pages:
            sorting.add(page, before)
            before = page
        draft = Draft(snapshot, context)
        results = [_written(draft, log, name, segment, used) for name, segment in sorting.result()]
        return ChangeSet(draft.changes(), tuple(results))


def _written(
    draft: Draft, log: MemoryUri, name: str | None, segment: Segment | None, used: dict[str, Segment]
) -> OperationResult:
    """One segment in the draft."""
    if segment is None:
        uri = MemoryUri.parse(name or "")
        draft.put(uri, None)
        return OperationResult(SEGMENT, str(uri), Action.DELETED, note="none of its messages is there any more")
    uri = _free(draft, log, segment) if name is None else MemoryUri.parse(name)
    draft.put(uri, dump_segment(segment))
    had = 0 if name is None else len(used[name].pages)
    joined = len(segment.pages) - had
    note = f"{joined} exchanges joined, {len(segment.pages)} in all" if joined > 0 else "brought up to its messages"
    return changed(uri, created=name is None, note=note)


def _free(draft: Draft, log: MemoryUri, segment: Segment) -> MemoryUri:
    """Where a new segment goes: the name of its title, marked where another has it, in use or archived."""
    directory = segments_of(log)
    name = file_name(segment.title)
    number = 0
    while draft.is_taken(directory.child(name)) or draft.is_taken(archived_uri(directory.child(name))):
        number += 1
        mark = short_hash(f"{segment.title} {segment.pages[0].first} {number}")
        name = fit(file_name(segment.title).removesuffix(".md"), ".md", f"~{mark}")
    return directory.child(name)


def _logs(receipt: CommitReceipt) -> Iterable[MemoryUri]:
    """Logs of conversations that a commit changed."""
    changes = (Action.CREATED, Action.UPDATED, Action.DELETED)
    for result in receipt.results:
        place = file_of(result.uri)
        if result.action in changes and place.startswith("viking://session/") and place.endswith(f"/{MESSAGES}"):
            yield MemoryUri.parse(place)
