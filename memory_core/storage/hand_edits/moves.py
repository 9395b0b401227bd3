"""Which file that appeared was where before: by its text, its key, or its name but for case. Never a guess.

Where several files of one text are gone, only their names tell which of them a new one was; where they do not, they
are deletions and creations. A few words written anew elsewhere are not the file that was deleted a moment ago.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import takewhile

from memory_core.model.changes import FileChange
from memory_core.model.filename import fold
from memory_core.model.uri import MemoryUri
from memory_core.storage.ledger import Ledger

#: A deletion and a creation this far apart can still be one move.
_MOVE_SECONDS = 60.0
#: Texts this long are not written twice by chance.
_TELLING_CHARS = 40
#: Of more files with one text, only those of the same name are looked at.
_ALIKE = 50


class Moves:
    """Where files that appeared may have come from."""

    def __init__(self, ledger: Ledger, changes: Sequence[FileChange], at: datetime) -> None:
        self._ledger = ledger
        self._claimed: set[MemoryUri] = set()
        self._there: dict[str, list[MemoryUri]] = {}
        self._deleted: dict[str, list[MemoryUri]] = {}
        hashes = {change.after_sha256 for change in changes if change.before is None and change.after}
        if not hashes:
            return
        since = (at - timedelta(seconds=_MOVE_SECONDS)).isoformat(timespec="milliseconds")
        known = ledger.movements.with_texts(sha256 for sha256 in hashes if sha256 is not None)
        for found, rows in ((self._there, known), (self._deleted, ledger.movements.deleted_by_hand(since))):
            for sha256, uri in rows:
                found.setdefault(sha256, []).append(MemoryUri.parse(uri))

    def origin(self, change: FileChange, is_gone: Callable[[MemoryUri], bool]) -> MemoryUri | None:
        """Where a file was, which no other file then comes from; None where nothing tells.

        Args:
            change: Its creation.
            is_gone: Whether a file is no longer where it was.
        """
        alike = self._alike(change)
        if len(alike) > _ALIKE:
            alike = [uri for uri in alike if uri.name == change.uri.name]
        gone = [uri for uri in alike if is_gone(uri)]
        most = max((_likeness(uri, change.uri) for uri in gone), default=0)
        found = [uri for uri in gone if _likeness(uri, change.uri) == most]
        if not gone:
            found = [uri for uri in self._namesakes(change) if is_gone(uri)][:1]
        if len(found) != 1:
            return None
        self._claimed.add(found[0])
        return found[0]

    def _alike(self, change: FileChange) -> list[MemoryUri]:
        """Places with the same text."""
        sha256 = change.after_sha256 or ""
        telling = len((change.after or "").strip()) >= _TELLING_CHARS
        deleted = [
            uri
            for uri in self._deleted.get(sha256, [])
            if telling or uri.parent == change.uri.parent or uri.name == change.uri.name
        ]
        return [uri for uri in dict.fromkeys([*self._there.get(sha256, []), *deleted]) if self._may_be(uri, change)]

    def _namesakes(self, change: FileChange) -> Iterator[MemoryUri]:
        """Places in its directory with its key, or with its name but for case."""
        directory = change.uri.parent
        known = self._ledger.locate(directory, change.memory_type, change.key) if change.key else None
        twins = self._ledger.movements.twins(directory, fold(change.uri.name))
        for uri in dict.fromkeys([*([] if known is None else [known]), *map(MemoryUri.parse, twins)]):
            if self._may_be(uri, change):
                yield uri

    def _may_be(self, uri: MemoryUri, change: FileChange) -> bool:
        # Never from another user's space: whose file it was is nobody else's business.
        return uri != change.uri and uri.space == change.uri.space and uri not in self._claimed


def _likeness(one: MemoryUri, other: MemoryUri) -> int:
    """How many parts at the end of two places are the same."""
    pairs = zip(reversed(one.parts), reversed(other.parts), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
