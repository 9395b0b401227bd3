"""Overflow: exchanges that leave the short term join the segments of their session, up to 200 in one commit.

What overflows is derived from the log and the segments' files: whoever comes next finds what a killed process left.
It is sorted before the store is locked; under the lock it is only made sure that nothing changed since, so nothing is
sorted twice. A commit of messages never fails for it; what could not be sorted waits for the next commit or for
maintenance.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from memory_core.core.commit.working_copy import WorkingCopy
from memory_core.core.errors import EmbeddingFailed, InvalidInput, RunebookError
from memory_core.core.index.documents import MESSAGES_NAME
from memory_core.core.index.encoder import Embedder
from memory_core.core.memory.memory import parse
from memory_core.core.memory.results import Action, ChangeSet, CommitReceipt, OperationResult
from memory_core.core.memory.uri import MemoryUri, Scope, file_of
from memory_core.core.search.fusion import Calibration
from memory_core.core.store.local import Snapshot
from memory_core.core.text.extractive_summary import cosine
from memory_core.core.text.normalization import simplified
from memory_core.features.tiers.segment import (
    LoggedExchange,
    Segment,
    SessionLog,
    dump_segment,
    file_name,
    parse_segment,
    segments_of,
)
from memory_core.features.tiers.segmenting import Likeness, Sorting, SortingRules, exchanges_before, overflowing
from memory_core.features.tiers.stored import SEGMENT, SessionSegments, changed, segments_in
from memory_core.features.upkeep.archive import archived_uri, original_uri

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from memory_core.runebook import Runebook

#: Texts whose vectors are remembered.
_REMEMBERED = 4_096
#: Exchanges of one commit that are compared by meaning; a whole imported conversation is compared by words.
_EXCHANGES_COMPARED = 100


class TextLikeness:
    """Compares texts; remembers their vectors. For several threads at once.

    Args:
        embedder: The embedding model as it is now, or None.
    """

    def __init__(self, embedder: Callable[[], Embedder | None]) -> None:
        self._embedder = embedder
        self._vector = lru_cache(maxsize=_REMEMBERED)(_vector)

    def of(self, exchanges: int) -> Likeness:
        """The way to compare while so many exchanges are sorted."""
        model = self._embedder()
        if model is None or exchanges > _EXCHANGES_COMPARED or not model.ready():
            return cosine
        return lambda one, other: self._by_meaning(model, one, other)

    def _by_meaning(self, model: Embedder, one: str, other: str) -> float:
        try:
            nearness = float(self._vector(model.embed, one) @ self._vector(model.embed, other))
        except EmbeddingFailed:
            return cosine(one, other)
        return Calibration(model.scale.zero).similarity(nearness)


def _vector(embed: Callable[[Sequence[str]], NDArray[np.float32]], text: str) -> NDArray[np.float32]:
    vector: NDArray[np.float32] = embed([simplified(text)])[0]
    return vector


_log = logging.getLogger(__name__)
#: A log of more than ``_LONG_LINES`` lines is sorted again only after ``_LINES_AT_ONCE`` new ones.
_LONG_LINES, _LINES_AT_ONCE = 100, 10
#: Exchanges that one commit sorts, so that other writers are not kept waiting for a long conversation, and about as
#: many characters of them as are held for it.
_EXCHANGES_AT_ONCE, _CHARS_AT_ONCE = 200, 8_000_000


@dataclass(frozen=True, slots=True)
class _SortPlan:
    """How exchanges of a session are to be sorted.

    Attributes:
        session: The log.
        segments: The session's, as they are stored.
        changed: Segments that change, with their URIs; see ``Sorting.result``.
        left: Whether exchanges wait for the next commit.
    """

    session: SessionLog
    segments: SessionSegments
    changed: Sequence[tuple[str | None, Segment | None]] = ()
    left: bool = False


class Overflow:
    """Sorts the older exchanges of one user's sessions.

    Args:
        memory: Their store and settings.
    """

    def __init__(self, memory: Runebook) -> None:
        self._memory = memory
        self._likeness = TextLikeness(lambda: memory.indexer.embedder)
        self._left: dict[MemoryUri, bool] = {}
        self._guard = threading.Lock()
        #: Logs to be sorted soon: the moment, and whether older segments are mended, too.
        self._waiting: dict[MemoryUri, tuple[datetime, bool]] = {}
        #: How long a log was when it was last looked at.
        self._looked: dict[MemoryUri, int] = {}

    def after(self, receipt: CommitReceipt, now: datetime) -> None:
        """After a commit of messages: sort what overflows, soon. After one that changed some: mend segments at once."""
        if not receipt.commit_id:
            return
        mend = not any(result.op == "messages" for result in receipt.results)
        self._await(_logs(receipt), now, mend=mend)
        if mend:  # what was forgotten must not stay in a segment; the rest of a long conversation waits
            self._sort_waiting()
        else:
            self._memory.opened.background.later(self._sort_waiting)

    def _await(self, logs: Iterable[MemoryUri], now: datetime, *, mend: bool) -> None:
        with self._guard:
            for log in logs:
                self._waiting[log] = (now, mend or self._waiting.get(log, (now, False))[1])

    def _again(self, log: MemoryUri, now: datetime, *, mend: bool = False) -> None:
        """Look at a log once more, soon, whether it grew or not."""
        self._looked.pop(log, None)
        self._await([log], now, mend=mend)
        self._memory.opened.background.later(self._sort_waiting)

    def _sort_waiting(self) -> None:
        """One commit for each log that waits, so that a change that came meanwhile is mended before the rest."""
        with self._guard:
            waiting, self._waiting = self._waiting, {}
        for log, (now, mend) in waiting.items():
            try:
                if mend or self._is_due(log):
                    self._memory.store.give_way()
                    if self.sort_once(log, now, mend=mend) is not None and self._left.get(log):
                        self._again(log, now)
            except RunebookError as error:
                _log.warning("%s keeps its older exchanges for now: %s", log.parent.name, error.message)
                if mend and not isinstance(error, InvalidInput):  # that one would stop it each time
                    with self._guard:
                        self._waiting[log] = (now, True)

    def _is_due(self, log: MemoryUri) -> bool:
        """Whether a log has grown enough to be looked at: of a long one, several exchanges are sorted together."""
        lines = (self._memory.store.text(log) or "").count("\n")
        if lines > _LONG_LINES and 0 <= lines - self._looked.get(log, -_LINES_AT_ONCE) < _LINES_AT_ONCE:
            return False
        self._looked[log] = lines
        return True

    def sort_all(self, log: MemoryUri, now: datetime, *, mend: bool = False) -> Iterator[CommitReceipt]:
        """Sort all that overflows of one session: one commit, or of a long imported conversation several.

        The first one mends, the others go on from it.
        """
        while (receipt := self.sort_once(log, now, mend=mend)) is not None:
            yield receipt
            if not self._left.get(log):
                return
            mend = False
            self._memory.store.give_way()

    def sort_once(
        self, log: MemoryUri, now: datetime, *, mend: bool = False, dry_run: bool = False
    ) -> CommitReceipt | None:
        """Sort what overflows of one session; None where there is nothing.

        Args:
            log: Of the session.
            now: The moment.
            mend: Also bring older segments up to messages that were changed, forgotten or taken back since.
            dry_run: Plan only.

        Raises:
            InvalidInput: If the log is not UTF-8.
            StoreBusy: If another writer held the store too long.
            StorageFailed: If the ledger could not be written.
        """
        store = self._memory.store
        session = SessionLog(store.text(log) or "")
        self._left.pop(log, None)
        if not mend and session.line_ends <= self._memory.config.tiers.short_term_capacity:
            return None
        proposed = self._proposed(session, log, now, mend=mend)
        if not proposed.changed:
            return None
        receipt = store.commit(
            lambda snapshot: self._plan(snapshot, log, now, proposed, mend=mend), kind=SEGMENT, now=now, dry_run=dry_run
        )
        self._memory.indexer.wake()
        return receipt if receipt.changed_uris else None

    def damaged(self, log: MemoryUri) -> list[OperationResult]:
        """Lines of a receipt about the segments of a session that cannot be read."""
        return [each.reported() for each in segments_in(self._memory.store, log).damaged]

    def _proposed(self, session: SessionLog, log: MemoryUri, now: datetime, *, mend: bool) -> _SortPlan:
        """How the exchanges of a log are to be sorted."""
        tiers = self._memory.config.tiers
        stored = segments_in(self._memory.store, log)
        due = overflowing(session, stored.spans, tiers.short_term_capacity)
        exchanges = _at_once(due)
        left = next(due, None) is not None
        if not exchanges and not mend:
            return _SortPlan(session, stored)
        likeness = self._likeness.of(len(exchanges))
        rules = SortingRules(tiers.mid_term_similarity_threshold, tiers.keyword_weight, likeness)
        archived = stored.archived if mend else ()
        known = {str(each.uri): each.segment for each in (*stored.used, *archived)}
        at = self._memory.plan_context(now).now
        sorting = Sorting(session, known, rules, log.parent.name, at, stored.analysed_before(session))
        if mend:
            sorting.mend()
        for exchange, before in zip(exchanges, exchanges_before(session, stored.exchanges, exchanges), strict=True):
            sorting.add(exchange, before)
        return _SortPlan(session, stored, sorting.result(), left)

    def _plan(self, snapshot: Snapshot, log: MemoryUri, now: datetime, proposed: _SortPlan, *, mend: bool) -> ChangeSet:
        """What sorting changes, on the store as it is.

        Where log or segments changed meanwhile, nothing is changed, and sorting is tried again soon. Messages that came
        meanwhile wait for the next time.
        """
        if (
            not proposed.session.begins(snapshot.text(log) or "")
            or segments_in(self._memory.store, log) != proposed.segments
        ):
            self._again(log, now, mend=mend)
            return ChangeSet((), ())
        self._left[log] = proposed.left
        known = {str(each.uri): each.segment for each in (*proposed.segments.used, *proposed.segments.archived)}
        draft = WorkingCopy(snapshot, self._memory.plan_context(now))
        results = [
            _written(draft, log, uri, segment, known)
            for uri, segment in proposed.changed
            # Somebody saves the file at this very moment: what it points at is brought up to date the next time.
            if uri is None or parse_segment(draft.text(MemoryUri.parse(uri)) or "") == known[uri]
        ]
        return ChangeSet(draft.changes(), tuple(results))


def _at_once(due: Iterable[LoggedExchange]) -> list[LoggedExchange]:
    """The first of these exchanges, as many as one commit sorts."""
    taken: list[LoggedExchange] = []
    chars = 0
    for exchange in due:
        taken.append(exchange)
        chars += sum(len(words) for _, words in exchange.turns)
        if len(taken) == _EXCHANGES_AT_ONCE or chars > _CHARS_AT_ONCE:
            break
    return taken


def _written(
    draft: WorkingCopy, log: MemoryUri, stored: str | None, segment: Segment | None, known: dict[str, Segment]
) -> OperationResult:
    """One segment in the draft; ``stored`` is its URI so far, None for a new one."""
    if segment is None:
        uri = MemoryUri.parse(stored or "")
        draft.put(uri, None)
        return OperationResult(SEGMENT, str(uri), Action.DELETED, note="none of its messages is there any more")
    text = dump_segment(segment)
    if stored is None:
        uri = _free(draft, segments_of(log), segment)
        draft.put(uri, text)
    elif segment.title == known[stored].title:
        uri = MemoryUri.parse(stored)
        draft.put(uri, text)
    else:  # the old title and file name may say what was forgotten
        old = MemoryUri.parse(stored)
        uri = _free(draft, old.parent, segment)
        draft.move(old, parse(uri, text, None))
    had = 0 if stored is None else len(known[stored].exchanges)
    joined = len(segment.exchanges) - had
    note = f"{joined} exchanges joined, {len(segment.exchanges)} in all" if joined > 0 else "brought up to its messages"
    return changed(uri, created=stored is None, note=note)


def _free(draft: WorkingCopy, directory: MemoryUri, segment: Segment) -> MemoryUri:
    """Where a segment goes: the name of its title, marked where another has it, in use or archived."""
    wanted = directory.child(file_name(segment.title))
    seed = f"{segment.title} {segment.exchanges[0].first}"

    def is_taken(uri: MemoryUri) -> bool:
        twin = original_uri(uri) if uri.scope is Scope.ARCHIVE else archived_uri(uri)
        return draft.is_taken(uri) or draft.is_taken(twin)

    return draft.free_beside(wanted, seed, is_taken)


def _logs(receipt: CommitReceipt) -> Iterable[MemoryUri]:
    """Logs of conversations that a commit changed."""
    for result in receipt.results:
        place = file_of(result.uri)
        if result.action.is_change and place.startswith("viking://session/") and place.endswith(f"/{MESSAGES_NAME}"):
            yield MemoryUri.parse(place)
