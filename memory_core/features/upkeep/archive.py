"""The archive as its owner uses it: what is there, putting a memory away by hand, and bringing it back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memory_core.core.commit.directory_pages import refresh
from memory_core.core.commit.working_copy import WorkingCopy
from memory_core.core.errors import InvalidInput, RunebookError
from memory_core.core.memory.memory import parse
from memory_core.core.memory.metadata import ARCHIVED
from memory_core.core.memory.names import summary_line
from memory_core.core.memory.operations import shown
from memory_core.core.memory.results import Action, ChangeSet, CommitReceipt, OperationResult
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.store.local import Snapshot
from memory_core.features.log_entries import entries, log_day
from memory_core.features.rolling_summary import without_removed
from memory_core.features.upkeep.archiving import archive, original_uri, restore
from memory_core.features.upkeep.passes import Upkeep

KIND_ARCHIVE, KIND_RESTORE = "archive", "restore"
_ABSTRACT_CHARS = 160


@dataclass(frozen=True, slots=True)
class Archived:
    """A file of the archive.

    Attributes:
        uri: Where it is.
        original: Where it was.
        at: When it was archived, ISO 8601; None if nobody wrote it down.
        reason: Why.
        abstract: What it says, in a line.
    """

    uri: str
    original: str
    at: str | None
    reason: str | None
    abstract: str

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "uri": self.uri,
            "original": self.original,
            "at": self.at,
            "reason": self.reason,
            "abstract": self.abstract,
        }


class Shelf:
    """The archive of one user and agent.

    Args:
        upkeep: Their memories.
        visible: Raises ``NotFound`` for a URI that may not be seen.
    """

    def __init__(self, upkeep: Upkeep, visible: Callable[[MemoryUri], MemoryUri]) -> None:
        self._upkeep = upkeep
        self._visible = visible

    def archived(self, words: str = "") -> Iterator[Archived]:
        """Files of the archive in the order of their URIs.

        Args:
            words: Only those whose name or text holds all of these words, whatever their case.
        """
        wanted = words.casefold().split()
        config = self._upkeep.config
        places = [*self._upkeep.spaces, f"{Scope.SESSION.value}/{config.user_space}"]
        files = self._upkeep.store.files
        shelves = [MemoryUri((Scope.ARCHIVE.value, *place.split("/"))) for place in places]
        for shelf in filter(files.is_dir, shelves):
            for entry in files.walk(shelf):
                uri = entry.uri
                if uri.is_summary or not uri.name.endswith(".md"):
                    continue
                text = self._upkeep.store.text(uri)
                if text is None or not all(word in f"{uri}\n{text}".casefold() for word in wanted):
                    continue
                yield _archived(uri, text)

    def archive(
        self, uris: Sequence[str], now: datetime, *, dry_run: bool = False, reason: str = "by its owner"
    ) -> CommitReceipt:
        """Put memories away; one that cannot be is refused alone.

        Raises:
            InvalidInput: If none is named.
        """

        def put(draft: WorkingCopy, uri: MemoryUri) -> OperationResult:
            draft.context.owned(str(uri))
            if uri.is_summary:
                raise InvalidInput(f"{str(uri)!r} is a summary of what is beside it.", hint="Name the memories.")
            return OperationResult("archive", str(uri), Action.DELETED, note=f"now {archive(draft, uri, reason)}")

        return self._move(KIND_ARCHIVE, uris, put, now, dry_run)

    def restore(self, uris: Sequence[str], now: datetime, *, dry_run: bool = False) -> CommitReceipt:
        """Bring files back; a URI of the place where one was names it too.

        Raises:
            InvalidInput: If none is named.
        """

        def back(draft: WorkingCopy, uri: MemoryUri) -> OperationResult:
            place = uri if uri.scope is Scope.ARCHIVE else MemoryUri((Scope.ARCHIVE.value, *uri.parts))
            target = restore(draft, place)
            return OperationResult("restore", str(target), Action.CREATED, note=f"was {place}")

        return self._move(KIND_RESTORE, uris, back, now, dry_run)

    def _move(
        self,
        kind: str,
        uris: Sequence[str],
        move: Callable[[WorkingCopy, MemoryUri], OperationResult],
        now: datetime,
        dry_run: bool,
    ) -> CommitReceipt:
        if not uris:
            raise InvalidInput("no memory is named.", hint="Give one URI or more, as ls and archive list print them.")
        context = self._upkeep.context(now)

        def planned(snapshot: Snapshot) -> ChangeSet:
            draft = WorkingCopy(snapshot, context)
            results = [self._moved(kind, uri, draft, move) for uri in uris]
            decided = refresh(ChangeSet(draft.changes(), tuple(results)), snapshot, context)
            return without_removed(decided, snapshot, context)

        receipt = self._upkeep.store.commit(planned, kind=kind, now=now, dry_run=dry_run)
        return receipt if dry_run else self._upkeep.indexed(receipt)

    def _moved(
        self, op: str, uri: str, draft: WorkingCopy, move: Callable[[WorkingCopy, MemoryUri], OperationResult]
    ) -> OperationResult:
        try:
            return move(draft, self._visible(MemoryUri.parse(uri)))
        except RunebookError as error:
            return OperationResult(op, shown(uri), Action.REJECTED, error.message, error.hint)


def _archived(uri: MemoryUri, text: str) -> Archived:
    memory = parse(uri, text, None)
    mark = memory.metadata.get(ARCHIVED)
    said = mark if isinstance(mark, dict) else {}
    line = summary_line(memory.line, _ABSTRACT_CHARS)
    at, reason = said.get("at"), said.get("reason")
    if log_day(original_uri(uri)) is not None:
        line = summary_line("; ".join(entry.text for entry in entries(text)), _ABSTRACT_CHARS)
    return Archived(
        str(uri),
        str(original_uri(uri)),
        at if isinstance(at, str) else None,
        reason if isinstance(reason, str) else None,
        line or uri.name,
    )
