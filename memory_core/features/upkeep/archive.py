"""The archive: ``viking://archive/`` mirrors the other scopes; what lay in one lies there below the same path.

A memory keeps its text, its history and its counts, and only changes its place; the trailer says when and why. Archived
files are not searched; they are read, listed, edited and restored like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from memory_core.core.command import Arg, Command
from memory_core.core.commit.working_copy import MOVE_WORK, WorkingCopy
from memory_core.core.errors import InvalidInput, NotFound, RunebookError
from memory_core.core.feature import Feature
from memory_core.core.memory.memory import Memory, parse
from memory_core.core.memory.metadata import ARCHIVED, EXPIRES_AT
from memory_core.core.memory.names import summary_line
from memory_core.core.memory.operations import refusal
from memory_core.core.memory.requests import CommitRequest, Now
from memory_core.core.memory.results import Action, ChangeSet, CommitReceipt, OperationResult
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.store.local import Snapshot
from memory_core.core.text.analysis import holds_all

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

KIND_ARCHIVE, KIND_RESTORE = "archive", "restore"
_REASON = "by its owner"
_ABSTRACT_CHARS = 160


def archived_uri(uri: MemoryUri) -> MemoryUri:
    """Where a file goes in the archive."""
    return MemoryUri((Scope.ARCHIVE.value, *uri.parts))


def original_uri(uri: MemoryUri) -> MemoryUri:
    """Where an archived file was.

    Raises:
        InvalidInput: If it is not in the archive.
    """
    if uri.scope is not Scope.ARCHIVE or len(uri.parts) < 3:
        raise InvalidInput(
            f"{str(uri)!r} is not in the archive.", hint="Name a file that runebook archive list prints."
        )
    return MemoryUri.parse(str(MemoryUri(uri.parts[1:])))


def put_away(copy: WorkingCopy, uri: MemoryUri, reason: str, **more: Any) -> MemoryUri:
    """Move a file into the archive.

    Args:
        copy: The plan's files; it is written to.
        uri: An existing file.
        reason: Why, in a word or two; the trailer keeps it.
        more: What else the trailer should say of it, such as what it was condensed into.

    Returns:
        Where it is now.

    Raises:
        NotFound: If there is no such file.
    """
    memory = copy.existing(uri)
    target = archived_uri(uri)
    target = copy.free_beside(target, f"{target} {copy.context.now}")
    copy.move(uri, _placed(memory, target, {ARCHIVED: {"at": copy.context.now, "reason": reason, **more}}))
    return target


def _bring_back(copy: WorkingCopy, uri: MemoryUri) -> MemoryUri:
    """Bring a file back from the archive, under its old name, or one beside it where that is taken.

    It comes back as a memory in use: without the mark of the archive, and without an expiry that is past.

    Raises:
        NotFound: If there is no such file.
        InvalidInput: If it is not in the archive.
    """
    place = original_uri(uri)
    text = copy.text(uri)
    if text is None:
        raise NotFound(f"there is no archived file at {str(uri)!r}.", hint="See runebook archive list.")
    target = copy.free_beside(place, f"{place} {copy.context.now}")
    memory = parse(target, text, copy.context.registry)
    past = memory.metadata.is_expired(datetime.fromisoformat(copy.context.now))
    copy.move(uri, _placed(memory, target, {ARCHIVED: None, **({EXPIRES_AT: None} if past else {})}))
    return target


def _placed(memory: Memory, target: MemoryUri, metadata: Mapping[str, Any]) -> Memory:
    """The memory at its new place, with these keys; a file that has no sound trailer keeps its text."""
    if not memory.has_trailer or memory.damage is not None:
        return replace(memory, uri=target)
    return memory.changed(uri=target, metadata=metadata)


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
    wanted = set(request.words.casefold().split())
    files = memory.store.files
    shelves = [MemoryUri((Scope.ARCHIVE.value, *space.split("/"))) for space in memory.spaces]
    for shelf in filter(files.is_dir, shelves):
        for entry in files.walk(shelf):
            uri = entry.uri
            if uri.is_summary or not uri.name.endswith(".md"):
                continue
            text = files.text(uri)  # as ls reads it: a file that is not UTF-8 is listed, too
            if text is not None and (not wanted or holds_all(f"{uri}\n{text}".casefold(), wanted)):
                yield _archived(memory, uri, text)


def archive(memory: Runebook, request: ArchiveRequest) -> CommitReceipt:
    """Put memories away; one that cannot be is refused alone.

    Raises:
        InvalidInput: If none is named.
    """

    def put(draft: WorkingCopy, uri: MemoryUri) -> OperationResult:
        draft.context.owned(str(uri))
        if uri.is_summary:
            raise InvalidInput(f"{str(uri)!r} is a summary of what is beside it.", hint="Name the memories.")
        return OperationResult(KIND_ARCHIVE, str(uri), Action.DELETED, note=f"now {put_away(draft, uri, _REASON)}")

    return _move(memory, request, KIND_ARCHIVE, put)


def restore(memory: Runebook, request: ArchiveRequest) -> CommitReceipt:
    """Bring files back; a URI of the place where one was names it too.

    Raises:
        InvalidInput: If none is named.
    """

    def back(draft: WorkingCopy, uri: MemoryUri) -> OperationResult:
        place = uri if uri.scope is Scope.ARCHIVE else archived_uri(uri)
        return OperationResult(KIND_RESTORE, str(_bring_back(draft, place)), Action.CREATED, note=f"was {place}")

    return _move(memory, request, KIND_RESTORE, back)


@dataclass(frozen=True, slots=True)
class PinRequest:
    """Keep a memory from ever being condensed or archived by itself."""

    uri: Annotated[str, Arg(help="The memory.", positional=True, metavar="URI")]
    off: Annotated[bool, Arg(help="No longer.")] = False


@dataclass(frozen=True, slots=True)
class ExpireRequest:
    """Let a memory hold only until a date."""

    uri: Annotated[str, Arg(help="The memory.", positional=True, metavar="URI")]
    at: Annotated[
        str, Arg(help="ISO date or time from which it no longer holds, or never.", positional=True, metavar="WHEN")
    ]


def pin(memory: Runebook, request: PinRequest) -> CommitReceipt:
    """Pin a memory, or no longer."""
    return _edited(memory, request.uri, pinned=not request.off)


def expire(memory: Runebook, request: ExpireRequest) -> CommitReceipt:
    """Set or clear the date until which a memory holds."""
    return _edited(memory, request.uri, expires_at="" if request.at == "never" else request.at)


def _edited(memory: Runebook, uri: str, **said: Any) -> CommitReceipt:
    return memory.commit(CommitRequest(operations={"edit_operations": [{"uri": uri, **said}]}))


def _archive_text(found: Iterable[Archived]) -> str:
    return "\n".join(f"{each.uri}\n    {each.abstract}{_why(each)}" for each in found)


def _why(found: Archived) -> str:
    said = ": ".join(part for part in ((found.at or "")[:10], found.reason) if part)
    return f" ({said})" if said else ""


PIN = Command("pin", PinRequest, pin, fails=lambda receipt: receipt.has_refusals, writes=True)
EXPIRE = Command("expire", ExpireRequest, expire, fails=lambda receipt: receipt.has_refusals, writes=True)
ARCHIVE_LIST = Command("archive list", ArchiveListRequest, archived, member="archived", text=_archive_text)
ARCHIVE = Command("archive add", ArchiveRequest, archive, fails=lambda receipt: not receipt.changed_uris, writes=True)
RESTORE = Command(
    "archive restore", ArchiveRequest, restore, fails=lambda receipt: not receipt.changed_uris, writes=True
)
FEATURE = Feature(commands=(ARCHIVE_LIST, ARCHIVE, RESTORE, PIN, EXPIRE))

Move = Callable[[WorkingCopy, MemoryUri], OperationResult]


def _move(memory: Runebook, request: ArchiveRequest, kind: str, move: Move) -> CommitReceipt:
    if not request.uris:
        raise InvalidInput("no memory is named.", hint="Give one URI or more, as ls and archive list print them.")
    now = request.now or datetime.now(UTC)
    context = memory.plan_context(now)

    def moved(uri: str, draft: WorkingCopy) -> OperationResult:
        try:
            draft.work(MOVE_WORK)
            place = memory.browser.visible(MemoryUri.parse(uri))
            draft.work_on(place)
            return move(draft, place)
        except RunebookError as error:
            return refusal(kind, uri, error)

    def planned(snapshot: Snapshot) -> ChangeSet:
        draft = WorkingCopy(snapshot, context)
        results = [moved(uri, draft) for uri in request.uris]
        return memory.features.completed(ChangeSet(draft.changes(), tuple(results)), snapshot, context)

    receipt = memory.store.commit(planned, kind=kind, now=now, dry_run=request.dry_run, large_of=memory.user_space)
    return memory.indexed(receipt)


def _archived(memory: Runebook, uri: MemoryUri, text: str) -> Archived:
    stored = parse(uri, text, None)
    mark = stored.metadata.get(ARCHIVED)
    said = mark if isinstance(mark, dict) else {}
    kind = memory.features.kind_of(uri)
    line = summary_line((None if kind is None else kind.listing_line(text)) or stored.line, _ABSTRACT_CHARS)
    at, reason = said.get("at"), said.get("reason")
    return Archived(
        str(uri),
        str(original_uri(uri)),
        at if isinstance(at, str) else None,
        reason if isinstance(reason, str) else None,
        line or uri.name,
    )
