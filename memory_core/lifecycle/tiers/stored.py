"""The segments of a store as files: which there are of a session, and which lines promotions made memories of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from memory_core.errors import InvalidInput, RunebookError
from memory_core.model.changes import Action, OperationResult
from memory_core.model.segment import Segment, is_segment, log_of, parse_segment, segments_of
from memory_core.model.uri import MemoryUri, Scope
from memory_core.storage.store import Snapshot, Store
from memory_core.update.archiving import archived_uri

_NAMES = 100_000
SEGMENT = "segment"


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A segment and where it is."""

    uri: MemoryUri
    segment: Segment

    @property
    def log(self) -> MemoryUri:
        """The log that it points at."""
        return log_of(self.uri)

    def turns(self) -> list[str]:
        """URIs of its messages, as retrieval counts them."""
        return [f"{self.log}#{line}" for line in self.segment.lines()]


def session_segments(source: Store | Snapshot, log: MemoryUri, *, archived: bool = False) -> list[StoredSegment]:
    """The segments of one session in the order in which they begin.

    Args:
        source: Where they are read.
        log: Of the session.
        archived: Those in the archive instead of those in use.

    Raises:
        InvalidInput: If one of them cannot be read: what it covers must not be sorted anew.
    """
    directory = archived_uri(segments_of(log)) if archived else segments_of(log)
    found: list[StoredSegment] = []
    for name in source.ledger.directories.newest(directory, _NAMES):
        uri = directory.child(name)
        text = source.text(uri)
        if text is None:
            continue
        segment = parse_segment(text)
        if segment is None:
            raise InvalidInput(
                f"{str(uri)!r} is no segment that can be read.",
                hint="Repair its MEMORY_FIELDS trailer, take its last change back with undo, or delete the file.",
            )
        found.append(StoredSegment(uri, segment))
    return sorted(found, key=lambda each: (each.segment.pages[0].first if each.segment.pages else 0, each.uri))


def all_segments(store: Store, sessions: MemoryUri) -> Iterator[StoredSegment]:
    """Every segment in use below the directory of a user's sessions; those that cannot be read are left out."""
    if not store.files.is_dir(sessions):
        return
    for entry in store.files.walk(sessions):
        if entry.is_dir or entry.uri.scope is not Scope.SESSION or not is_segment(entry.uri):
            continue
        try:
            segment = parse_segment(store.text(entry.uri) or "")
        except RunebookError:
            continue
        if segment is not None:
            yield StoredSegment(entry.uri, segment)


def analysed_lines(store: Store | Snapshot, log: MemoryUri) -> frozenset[int]:
    """Lines of a log that promotions made memories of already, archived segments included."""
    try:
        stored = [*session_segments(store, log), *session_segments(store, log, archived=True)]
    except RunebookError:
        return frozenset()
    return frozenset(
        line
        for each in stored
        for page in each.segment.pages
        if page.analysed
        for line in range(page.first, page.last + 1)
    )


def changed(uri: MemoryUri, *, created: bool, note: str) -> OperationResult:
    """The line of a receipt about a segment that is written."""
    return OperationResult(SEGMENT, str(uri), Action.CREATED if created else Action.UPDATED, note=note)
