"""The archive as its owner uses it: what is there, putting a memory away by hand, and bringing it back."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Annotated

from memory_core.core.command import Arg, Command
from memory_core.core.feature import Feature
from memory_core.core.memory.requests import Now

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

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
from memory_core.features.upkeep.archiving import archive as put_away
from memory_core.features.upkeep.archiving import original_uri
from memory_core.features.upkeep.archiving import restore as bring_back

KIND_ARCHIVE, KIND_RESTORE = "archive", "restore"
_REASON = "by its owner"
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


@dataclass(frozen=True, slots=True)
class ArchiveListRequest:
    """List the archive."""

    words: Annotated[str, Arg(help="Only files whose name or text holds all of these words.", positional=True)] = ""


@dataclass(frozen=True, slots=True)
class ArchiveRequest:
    """Move memories into the archive, or back."""

    uris: Annotated[Sequence[str], Arg(help="As ls and archive list print them.", positional=True)]
    dry_run: Annotated[bool, Arg(help="Show what would change; store nothing.")] = False
    now: Now = None


def archived(memory: Runebook, request: ArchiveListRequest = ArchiveListRequest()) -> Iterator[Archived]:
    """Files of the archive in the order of their URIs."""
    wanted = request.words.casefold().split()
    files = memory.store.files
    shelves = [MemoryUri((Scope.ARCHIVE.value, *space.split("/"))) for space in memory.spaces]
    for shelf in filter(files.is_dir, shelves):
        for entry in files.walk(shelf):
            uri = entry.uri
            if uri.is_summary or not uri.name.endswith(".md"):
                continue
            text = memory.store.text(uri)
            if text is not None and all(word in f"{uri}\n{text}".casefold() for word in wanted):
                yield _archived(uri, text)


def archive(memory: Runebook, request: ArchiveRequest) -> CommitReceipt:
    """Put memories away; one that cannot be is refused alone.

    Raises:
        InvalidInput: If none is named.
    """

    def put(draft: WorkingCopy, uri: MemoryUri) -> OperationResult:
        draft.context.owned(str(uri))
        if uri.is_summary:
            raise InvalidInput(f"{str(uri)!r} is a summary of what is beside it.", hint="Name the memories.")
        return OperationResult("archive", str(uri), Action.DELETED, note=f"now {put_away(draft, uri, _REASON)}")

    return _move(memory, request, KIND_ARCHIVE, put)


def restore(memory: Runebook, request: ArchiveRequest) -> CommitReceipt:
    """Bring files back; a URI of the place where one was names it too.

    Raises:
        InvalidInput: If none is named.
    """

    def back(draft: WorkingCopy, uri: MemoryUri) -> OperationResult:
        place = uri if uri.scope is Scope.ARCHIVE else MemoryUri((Scope.ARCHIVE.value, *uri.parts))
        return OperationResult("restore", str(bring_back(draft, place)), Action.CREATED, note=f"was {place}")

    return _move(memory, request, KIND_RESTORE, back)


ARCHIVE_LIST = Command("archive list", ArchiveListRequest, archived)
ARCHIVE = Command("archive add", ArchiveRequest, archive, writes=True)
RESTORE = Command("archive restore", ArchiveRequest, restore, writes=True)
FEATURE = Feature(commands=(ARCHIVE_LIST, ARCHIVE, RESTORE))

Move = Callable[[WorkingCopy, MemoryUri], OperationResult]


def _move(memory: Runebook, request: ArchiveRequest, kind: str, move: Move) -> CommitReceipt:
    if not request.uris:
        raise InvalidInput("no memory is named.", hint="Give one URI or more, as ls and archive list print them.")
    now = request.now or datetime.now(UTC)
    context = memory.plan_context(now)

    def moved(uri: str, draft: WorkingCopy) -> OperationResult:
        try:
            return move(draft, memory.browser.visible(MemoryUri.parse(uri)))
        except RunebookError as error:
            return OperationResult(kind, shown(uri), Action.REJECTED, error.message, error.hint)

    def planned(snapshot: Snapshot) -> ChangeSet:
        draft = WorkingCopy(snapshot, context)
        results = [moved(uri, draft) for uri in request.uris]
        return without_removed(ChangeSet(draft.changes(), tuple(results)), snapshot, context)

    receipt = memory.store.commit(planned, kind=kind, now=now, dry_run=request.dry_run)
    return receipt if request.dry_run else memory.indexed(receipt)


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
