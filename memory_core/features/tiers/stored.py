"""The segments of a store as files: which there are of a session, and which lines promotions made memories of.

One damaged file spoils neither its session nor others: of it counts what the history or the file itself still tells,
and maintenance names it. What is known of a session is kept in the process and read anew only where a file looks
otherwise than it did. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from weakref import WeakKeyDictionary

from memory_core.core.config import TiersConfig
from memory_core.core.errors import RunebookError
from memory_core.core.memory.metadata import read_moment
from memory_core.core.memory.results import Action, OperationResult
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.files import Looks, is_settled
from memory_core.core.store.local import Store
from memory_core.features.tiers.segment import (
    Segment,
    SegmentExchange,
    SessionLog,
    heat,
    is_segment,
    log_of,
    parse_segment,
    readable_exchanges,
    segments_of,
    spans_of,
)
from memory_core.features.upkeep.archive import archived_uri


@dataclass(frozen=True, slots=True)
class SegmentHeat:
    """How warm a segment is.

    Attributes:
        visits: Since it began.
        last_visit: The last one, if there ever was one.
        heat: See ``segment.heat``; of the visits since it was last cooled.
    """

    visits: int
    last_visit: datetime | None
    heat: float


def heats(store: Store, config: TiersConfig, stored: Sequence[StoredSegment], now: datetime) -> list[SegmentHeat]:
    """How warm each of some segments is; use of the last second may be missing.

    Args:
        store: Counts use.
        config: Weights.
        stored: The segments.
        now: Aware.
    """
    used = store.ledger.usage_table.usage(uri for each in stored for uri in each.message_uris())

    def warm(each: StoredSegment) -> SegmentHeat:
        counted = [usage for uri in each.message_uris() if (usage := used.get(uri)) is not None]
        visits = sum(usage.access_count for usage in counted)
        last = max((usage.last_accessed_at for usage in counted), default=None)
        since = last or read_moment(each.segment.created_at) or now
        fresh = max(0, visits - each.segment.visits_counted)
        hours = (now - since).total_seconds() / 3_600.0
        return SegmentHeat(visits, last, heat(fresh, each.segment.interactions, hours, config))

    return [warm(each) for each in stored]


SEGMENT = "segment"
#: Segments of one directory that are looked at.
_NAMES = 100_000
#: Files that one process remembers, and characters of them; beyond it those of the session at hand alone.
_REMEMBERED, _REMEMBERED_CHARS = 4_000, 8_000_000
#: Versions of a damaged or deleted file, the newest, among which one that can be read is looked for.
_VERSIONS = 20


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A segment and where it is."""

    uri: MemoryUri
    segment: Segment

    @property
    def log(self) -> MemoryUri:
        """The log that it points at."""
        return log_of(self.uri)

    def message_uris(self) -> list[str]:
        """URIs of its messages, as retrieval counts them."""
        return [f"{self.log}#{line}" for line in self.segment.lines()]


@dataclass(frozen=True, slots=True)
class DamagedSegment:
    """A segment that cannot be read as it is.

    Attributes:
        uri: Where it is.
        exchanges: As its newest readable version in the history has them, else as far as the file tells.
    """

    uri: MemoryUri
    exchanges: tuple[SegmentExchange, ...]

    def reported(self) -> OperationResult:
        """The line of a receipt about it."""
        return OperationResult(
            SEGMENT,
            str(self.uri),
            Action.REJECTED,
            "is no segment that can be read; nothing joins it until it is repaired",
            "Repair its MEMORY_FIELDS trailer, take its last change back with undo, or delete the file.",
        )


@dataclass(frozen=True)
class SessionSegments:
    """All that is known of a session's segments; ``exchanges`` are their exchanges.

    Attributes:
        used: Those in use, in the order in which they begin; ``archived`` likewise.
        damaged: Those that cannot be read, in use or archived.
        gone: Analysed exchanges of files that were deleted, as the history tells.
    """

    used: tuple[StoredSegment, ...] = ()
    archived: tuple[StoredSegment, ...] = ()
    damaged: tuple[DamagedSegment, ...] = ()
    gone: tuple[SegmentExchange, ...] = ()

    @cached_property
    def exchanges(self) -> tuple[SegmentExchange, ...]:
        """Of every file that is there."""
        return (
            *(exchange for each in (*self.used, *self.archived) for exchange in each.segment.exchanges),
            *(exchange for each in self.damaged for exchange in each.exchanges),
        )

    @cached_property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The lines of these exchanges; see ``spans_of``."""
        return spans_of(self.exchanges)

    @cached_property
    def analysed(self) -> frozenset[int]:
        """Lines of exchanges that promotions made memories of."""
        return frozenset(_lines(exchange for exchange in self.exchanges if exchange.analysed))

    def analysed_before(self, log: SessionLog) -> frozenset[int]:
        """Lines of deleted files' exchanges that promotions made memories of, as far as the same is still said."""
        return frozenset(_lines(exchange for exchange in self.gone if _is_said(log, exchange)))


_File = StoredSegment | DamagedSegment | None


#: How a file looked when it was read, where that is sure; what it holds, and its characters.
_Read = tuple[Looks | None, _File, int]


@dataclass(frozen=True, slots=True)
class _SessionFiles:
    """What was found in the directories of a session, by name, what it comes to, and the files as they were read."""

    used: Mapping[str, _File]
    archived: Mapping[str, _File]
    found: SessionSegments
    read: Mapping[MemoryUri, _Read]

    @property
    def names(self) -> frozenset[str]:
        files = (*self.used.items(), *self.archived.items())
        return frozenset(name for name, file in files if file is not None)


class _SegmentReader:
    """Reads the segments of one store's sessions, and remembers them; does not keep the store alive.

    Many threads may ask: what is known of a session is replaced as a whole, never changed.
    """

    def __init__(self) -> None:
        self._sessions: dict[MemoryUri, _SessionFiles] = {}

    def session(self, store: Store, log: MemoryUri) -> SessionSegments:
        """See ``segments_in``."""
        known = self._sessions.get(log)
        read: dict[MemoryUri, _Read] = {}
        before = {} if known is None else known.read
        # What the disk does not show yet, or not for sure, is asked for again.
        unsettled = store.ledger.unsettled_uris()
        places = (segments_of(log), archived_uri(segments_of(log)))
        used, archived = (self._files_in(store, place, unsettled, before, read) for place in places)
        if known is not None and (used, archived) == (known.used, known.archived):
            self._sessions[log] = replace(known, read=read)
            return known.found
        damaged = tuple(each for each in (*used.values(), *archived.values()) if isinstance(each, DamagedSegment))
        session = _SessionFiles(used, archived, SessionSegments(_in_order(used), _in_order(archived), damaged), read)
        if known is not None and session.names == known.names:
            gone = known.found.gone
        else:
            gone = _gone(store, log, session.names)
        session = replace(session, found=replace(session.found, gone=gone))
        self._remember(log, session)
        return session.found

    def _remember(self, log: MemoryUri, session: _SessionFiles) -> None:
        self._sessions[log] = session
        known = list(self._sessions.items())
        files = sum(1 + len(each.read) for _, each in known)
        chars = sum(chars for _, each in known for *_, chars in each.read.values())
        for other, _ in known if files > _REMEMBERED or chars > _REMEMBERED_CHARS else ():
            if other != log:
                self._sessions.pop(other, None)

    @staticmethod
    def _files_in(
        store: Store,
        directory: MemoryUri,
        unsettled: frozenset[str],
        before: Mapping[MemoryUri, _Read],
        read: dict[MemoryUri, _Read],
    ) -> dict[str, _File]:
        """What the files of a directory hold, by name; those that look as they did are not read again."""
        names = store.ledger.directories.newest(directory, _NAMES)
        seen = store.files.looks_in(directory) if names else {}
        found: dict[str, _File] = {}
        for name in names:
            uri, look = directory.child(name), seen.get(name)
            known = before.get(uri)
            if known is None or look is None or known[0] != look or str(uri) in unsettled:
                kept = look if look is not None and is_settled(look[2]) else None
                known = (kept, *_read(store, uri))
            read[uri] = known
            found[name] = known[1]
        return found


_readers: WeakKeyDictionary[Store, _SegmentReader] = WeakKeyDictionary()


def segments_in(store: Store, log: MemoryUri) -> SessionSegments:
    """What is known of the segments of a session; the same object as long as nothing changes.

    Raises:
        InvalidUri: If a link leads out of the folder.
        StorageFailed: If the system refuses.
    """
    reader = _readers.get(store) or _readers.setdefault(store, _SegmentReader())
    return reader.session(store, log)


def all_segments(store: Store, sessions: MemoryUri) -> Iterator[StoredSegment]:
    """Every segment in use below the directory of a user's sessions; those that cannot be read are left out."""
    if not store.files.is_dir(sessions):
        return
    for entry in store.files.walk(sessions):
        if not is_segment(entry.uri):
            continue
        try:
            segment = parse_segment(store.text(entry.uri) or "")
        except RunebookError:
            continue
        if segment is not None:
            yield StoredSegment(entry.uri, segment)


def analysed_lines(store: Store, log: MemoryUri) -> frozenset[int]:
    """Lines of a log that promotions made memories of already, archived, damaged and deleted segments included."""
    try:
        found = segments_in(store, log)
        gone = found.analysed_before(SessionLog(store.text(log) or "")) if found.gone else frozenset()
    except RunebookError:
        return frozenset()
    return found.analysed | gone.difference(_lines(found.exchanges)) if gone else found.analysed


def changed(uri: MemoryUri, *, created: bool, note: str) -> OperationResult:
    """The line of a receipt about a segment that is written."""
    return OperationResult(SEGMENT, str(uri), Action.CREATED if created else Action.UPDATED, note=note)


def _in_order(files: Mapping[str, _File]) -> tuple[StoredSegment, ...]:
    found = [each for each in files.values() if isinstance(each, StoredSegment)]
    return tuple(
        sorted(found, key=lambda each: (each.segment.exchanges[0].first if each.segment.exchanges else 0, each.uri))
    )


def _lines(exchanges: Iterable[SegmentExchange]) -> Iterator[int]:
    return (line for exchange in exchanges for line in range(exchange.first, exchange.last + 1))


def _is_said(log: SessionLog, exchange: SegmentExchange) -> bool:
    return log.digest(exchange.first, exchange.last) == exchange.digest


def _read(store: Store, uri: MemoryUri) -> tuple[_File, int]:
    """What a file holds, and its characters."""
    try:
        text = store.text(uri)
    except RunebookError:
        text = ""
    if text is None:
        return None, 0
    segment = parse_segment(text)
    if segment is not None:
        return StoredSegment(uri, segment), len(text)
    earlier = _earlier(store, uri)
    exchanges = readable_exchanges(text) if earlier is None else earlier.exchanges
    return DamagedSegment(uri, exchanges) if exchanges else None, len(text)


def _earlier(store: Store, uri: MemoryUri) -> Segment | None:
    """The newest version of a file that the history has and that can be read."""
    versions = store.ledger.past.seqs_of(uri)[-_VERSIONS:]
    read = (parse_segment(store.ledger.text_at(uri, seq) or "") for seq in reversed(versions))
    return next((segment for segment in read if segment is not None), None)


def _gone(store: Store, log: MemoryUri, there: frozenset[str]) -> tuple[SegmentExchange, ...]:
    """Analysed exchanges of segments that were deleted; one that moved at last is elsewhere."""
    exchanges: list[SegmentExchange] = []
    places = (segments_of(log), archived_uri(segments_of(log)))
    for uri in (each for place in places for each in store.ledger.past.below(place)):
        if uri.name in there or not is_segment(uri):
            continue
        earlier = _earlier(store, uri)
        analysed = [] if earlier is None else [exchange for exchange in earlier.exchanges if exchange.analysed]
        # The whole history is read for a move: only for what counts.
        if analysed and store.ledger.past.moved_to(uri, store.ledger.past.seqs_of(uri)[-1] - 1) is None:
            exchanges += analysed
    return tuple(exchanges)
