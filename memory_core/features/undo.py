"""Undo: a new commit that takes an older one back, file by file, and keeps what happened since.

Plans and commits; how one file goes back is ``undo_merge``. A file that cannot go back without losing somebody's later
words is refused in the receipt, and the others go back all the same. Summaries of directories are made anew; where
everything went back exactly, they are the old ones, byte for byte. An undone conversation leaves the queue, an undone
extraction can be done again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from memory_core.core.caller import current_author
from memory_core.core.command import NOWHERE, Arg, Command
from memory_core.core.feature import Feature
from memory_core.core.memory.requests import CommitRequest, Now
from memory_core.features.history import LAST, history_of

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from memory_core.core.caller import BY_HAND
from memory_core.core.commit.commits import identify
from memory_core.core.commit.working_copy import PlanContext
from memory_core.core.errors import InvalidInput, RunebookError
from memory_core.core.memory.evidence import taken_back
from memory_core.core.memory.memory import parse_as
from memory_core.core.memory.memory_type import MemoryType, MergeOp
from memory_core.core.memory.message import parse_lines
from memory_core.core.memory.metadata import CONFIDENCE, LINKS, Metadata, share_of
from memory_core.core.memory.names import fold
from memory_core.core.memory.results import (
    Action,
    ChangeSet,
    CommitReceipt,
    FileChange,
    OperationResult,
    SessionProgress,
    text_sha256,
)
from memory_core.core.memory.template import render
from memory_core.core.memory.trailer import Parts, body_digest, join, split
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.history_rows import PastCommit, PastProgress
from memory_core.core.store.ledger import ChangeRow
from memory_core.core.store.local import Snapshot
from memory_core.core.text.text_diff import merge3
from memory_core.features.history import History

_ABSENT: Any = object()
_DIGITS = 4
#: What moves with every change of a memory and decides nothing.
_INCIDENTAL = frozenset({"version", "updated_at", "rendered_sha256"})
#: Other memories' commits write these here: a new memory with other links is still the memory that was created.
_WRITTEN_BY_OTHERS = frozenset({LINKS, CONFIDENCE})
#: Made of the rest: a later one stays.
_DERIVED = frozenset({"abstract", "overview"})


@dataclass(frozen=True, slots=True)
class Reverted:
    """What a file becomes; ``exact`` where it is the old text itself, None where the file goes."""

    text: str | None
    exact: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a file cannot be taken back: a sentence's end, such as ``its body changed in the same lines``."""

    reason: str


@dataclass(frozen=True, slots=True)
class Versions:
    """A file before a commit, as the commit left it, and now; None is no file."""

    old: str | None
    given: str | None
    now: str | None


def revert(
    versions: Versions,
    uri: MemoryUri,
    *,
    appended: bool = False,
    memory_type: MemoryType | None = None,
    at: str = "",
) -> Reverted | Refused:
    """What a file becomes when a commit's change of it is taken back.

    Args:
        versions: The three texts.
        uri: The file.
        appended: Whether the commit only added to the end of a log.
        memory_type: Of a memory; None for any other text.
        at: Time of the undo, ISO 8601 in UTC; written into a memory that is merged.
    """
    old, given, now = versions.old, versions.given, versions.now
    if now == given:
        return Reverted(old, exact=True)
    if now == old:
        return Reverted(now, exact=False)
    if appended:
        return _without_tail(old, given or "", now)
    if now is None:
        return Refused("the file was removed")
    if given is None:
        return Refused("another text stands there")
    if old is None:
        return Reverted(None, exact=False) if _is_untouched(given, now) else Refused("it was edited")
    return _merged(split(old), split(given), split(now), memory_type, uri, at) or _by_lines(old, given, now)


def _without_tail(old: str | None, given: str, now: str | None) -> Reverted | Refused:
    tail = given[len(old or "") :]
    if now is None or not now.endswith(tail):
        return Refused("the log went on, or its end was changed")
    rest = now.removesuffix(tail)
    return Reverted(rest if rest or old is not None else None, exact=False)


def _is_untouched(given: str, now: str) -> bool:
    """Whether a created memory only got what no author writes: links from others, a time."""
    one, other = split(given), split(now)
    said, says = one.trailer or {}, other.trailer or {}
    # Evidence comes with a link; a confidence that moved alone is what somebody said.
    ignored = _INCIDENTAL | (_WRITTEN_BY_OTHERS if said.get(LINKS) != says.get(LINKS) else frozenset())
    return one.body == other.body and _without(said, ignored) == _without(says, ignored)


def _without(trailer: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in trailer.items() if name not in names}


def _by_lines(old: str, given: str, now: str) -> Reverted | Refused:
    merged = merge3(given, now, old)
    return Refused("the same lines changed") if merged is None else Reverted(merged, exact=False)


def _merged(
    old: Parts, given: Parts, now: Parts, memory_type: MemoryType | None, uri: MemoryUri, at: str
) -> Reverted | Refused | None:
    """The memory with its fields judged one by one; None where it is no memory all along, but plain text."""
    if old.trailer is None or given.trailer is None or now.trailer is None:
        return None
    trailer: dict[str, Any] = {}
    for name in dict.fromkeys((*now.trailer, *old.trailer)):
        value = _field(
            name,
            old.trailer.get(name, _ABSENT),
            given.trailer.get(name, _ABSENT),
            now.trailer.get(name, _ABSENT),
            memory_type,
        )
        if isinstance(value, Refused):
            return value
        if value is not _ABSENT:
            trailer[name] = value
    trailer |= {"version": Metadata(now.trailer).next_version} if "version" in now.trailer else {}
    trailer |= {"updated_at": at} if at and "updated_at" in now.trailer else {}
    if memory_type is not None and memory_type.template_mode:
        memory = parse_as(uri, join(now.body, trailer), memory_type)
        if not memory.hand_edited:
            body = render(memory_type, memory.fields)
            return Reverted(join(body, {**trailer, "rendered_sha256": body_digest(body)}), exact=False)
    merged = merge3(given.body, now.body, old.body)
    if merged is None:
        return Refused("its body changed in the same lines")
    return Reverted(join(merged, trailer), exact=False)


def _field(name: str, old: Any, given: Any, now: Any, memory_type: MemoryType | None) -> Any:
    """One trailer field; ``Refused`` where both changed it."""
    if _same(old, given) or _same(now, old) or name in _INCIDENTAL:
        return now
    if _same(now, given):
        return old
    if name == CONFIDENCE:
        stated = (share_of(value, 1.0) for value in (old, given, now))
        return round(taken_back(*stated), _DIGITS)
    declared = None if memory_type is None else memory_type.field(name)
    if declared is not None and declared.merge_op is MergeOp.SUM:
        share = _number(given), _number(old), _number(now)
        if None not in share:
            added, before, total = (number or 0 for number in share)
            return total - (added - before)
    if isinstance(now, str) and isinstance(given, str) and isinstance(old, str):
        merged = merge3(given, now, old)
        if merged is not None:
            return merged
    if all(value is _ABSENT or isinstance(value, list) for value in (old, given, now)):
        return _list(*([] if value is _ABSENT else value for value in (old, given, now)))
    return now if name in _DERIVED else Refused(f"its field {name!r} changed")


def _list(old: list[Any], given: list[Any], now: list[Any]) -> Any:
    """A list without what the commit put in, with what it took out."""
    kept = [item for item in now if item in old or item not in given]
    back = [item for item in old if item not in given and item not in kept]
    return [*kept, *back] or _ABSENT


def _number(value: Any) -> float | int | None:
    """A number; nothing counts as zero."""
    if value is _ABSENT:
        return 0
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _same(one: Any, other: Any) -> bool:
    return one is other or (one is not _ABSENT and other is not _ABSENT and one == other)


KIND = "undo"
_LEFT = "its extraction was undone"
_HINT = "Read the file, then change it by hand or with operations."


@dataclass(frozen=True, slots=True)
class _Part:
    """One file of the undo: what the ledger says of it, its three texts, and what it becomes or why not."""

    row: ChangeRow
    versions: Versions
    outcome: Reverted | Refused

    @property
    def change(self) -> tuple[str | None, str | None] | None:
        """The text now and then, where it differs."""
        if isinstance(self.outcome, Refused) or self.outcome.text == self.versions.now:
            return None
        return self.versions.now, self.outcome.text


@dataclass(frozen=True, slots=True)
class UndoRequest:
    """Take a commit back; what changed since is kept."""

    commit: Annotated[
        str,
        Arg(
            help='A commit, as history prints it, or the first characters of its id; "last" is the newest.',
            positional=True,
        ),
    ] = LAST
    dry_run: Annotated[bool, Arg(help="Show what would change; store nothing.")] = False
    request_id: Annotated[str | None, Arg(surfaces=NOWHERE)] = None
    author: Annotated[str | None, Arg(surfaces=NOWHERE)] = None
    now: Now = None


def undo(memory: Runebook, request: UndoRequest) -> CommitReceipt:
    """Take a commit back, as far as the reader sees it; see ``UndoRequest``.

    Raises:
        NotFound: If the reader sees no such commit; of "last": no commit of this author.
        InvalidInput: If it is undone already, or the id is not one commit's.
    """
    memory.opened.wait_for_adoption()
    history = history_of(memory)
    request_id = memory.request_key(request.request_id)
    past = history.resolve(request.commit, request.author)
    moment = request.now or datetime.now(UTC)
    context = memory.plan_context(moment)
    receipt = memory.store.commit(
        lambda snapshot: _Plan(past, history, snapshot, context).run(),
        kind=KIND,
        request_id=request_id,
        now=moment,
        dry_run=request.dry_run,
        undoes=past.commit_id,
    )
    memory.after_commit(receipt, moment)
    return memory.indexed(receipt)


UNDO = Command("undo", UndoRequest, undo, writes=True)


def _asked(memory: Runebook, commit: CommitRequest, value: str) -> CommitReceipt:
    """What the argument ``undo`` of a commit means: "last" is the newest commit of the same client."""
    asked = UndoRequest(value, commit.dry_run, commit.request_id, current_author(), commit.now)
    return memory.run(UNDO, asked)


FEATURE = Feature(commands=(UNDO,), commit_arguments={"undo": _asked})


class _Plan:
    def __init__(self, past: PastCommit, history: History, snapshot: Snapshot, context: PlanContext) -> None:
        self._past = past
        self._history = history
        self._snapshot = snapshot
        self._context = context
        self._ledger = snapshot.ledger
        self._purged = {uri for _, uri in self._ledger.past.purged([past.seq])}

    def run(self) -> ChangeSet:
        rows = self._rows()
        parts = self._checked([self._part(row) for row in rows if not row.uri.is_summary])
        changes = [change for part in parts if (change := self._change(part, parts))]
        results = [self._result(part) for part in parts]
        for row in rows:
            if row.uri.is_summary:
                change, result = self._page(row)
                changes += [] if change is None else [change]
                results.append(result)
        return ChangeSet(tuple(changes), tuple(results), progress=self._progress(parts))

    def _rows(self) -> list[ChangeRow]:
        """The commit's changes that are the reader's and not taken back yet.

        Raises:
            InvalidInput: If none is left.
        """
        rows = [row for row in self._ledger.changes_of([self._past.seq]) if self._history.sees(row.uri)]
        undoing = self._ledger.past.undone_by(self._past.commit_id)
        done = {row.uri for row in self._ledger.changes_of([commit.seq for commit in undoing])}
        left = [row for row in rows if row.uri not in done]
        if undoing and not left:
            last = undoing[-1].commit_id
            raise InvalidInput(
                f"{self._past.commit_id} is already undone by {last}.",
                hint=f'Undo {last} to bring it back, or name an older commit: read "viking://history".',
            )
        return left

    def _part(self, row: ChangeRow) -> _Part:
        """What becomes of one file."""
        versions = Versions(None, None, None)
        try:
            versions = self._versions(row)
            if str(row.uri) in self._purged or not _is_whole(row, versions):
                return _Part(row, versions, Refused("its text was purged"))
            place = self._ledger.past.moved_to(row.uri, row.seq) if versions.now is None and row.after else None
            if place is not None and self._history.sees(place):
                return _Part(row, versions, Refused(f"it was moved to {place}"))
            text = versions.now if versions.now is not None else versions.given
            memory_type = self._context.registry.type_at(row.uri, split(text or "").type_name)
            outcome = revert(versions, row.uri, appended=row.appended, memory_type=memory_type, at=self._context.now)
        except RunebookError as error:  # one unreadable file keeps no other from going back
            outcome = Refused(error.message.rstrip("."))
        return _Part(row, versions, outcome)

    def _versions(self, row: ChangeRow) -> Versions:
        now = self._snapshot.text(row.uri)
        if not row.appended:
            return Versions(row.before, row.after, now)
        old = None if row.before_sha256 is None else self._ledger.text_at(row.uri, row.seq - 1)
        return Versions(old, self._ledger.text_at(row.uri, row.seq), now)

    def _checked(self, parts: list[_Part]) -> list[_Part]:
        """Refuse to bring a file back where another has its name or its key by now."""
        going = {part.row.uri for part in parts if part.change is not None and part.change[1] is None}
        return [self._unless_taken(part, going) for part in parts]

    def _unless_taken(self, part: _Part, going: set[MemoryUri]) -> _Part:
        if part.change is None or part.change[0] is not None:
            return part
        uri, text = part.row.uri, part.change[1] or ""
        twin = any(other.parent == uri.parent and fold(other.name) == fold(uri.name) for other in going)
        if self._snapshot.name_taken(uri.parent, uri.name) and not twin:
            return replace(part, outcome=Refused("another file has its name"))
        memory_type, key = identify(self._context.registry, uri, text)
        holder = self._snapshot.locate(uri.parent, memory_type, key) if key else None
        if holder is not None and holder != uri and holder not in going:
            return replace(part, outcome=Refused(f"{holder} is the memory of that name"))
        return part

    def _change(self, part: _Part, parts: Iterable[_Part]) -> FileChange | None:
        if part.change is None:
            return None
        uri, (before, after) = part.row.uri, part.change
        memory_type, key = ("", "") if after is None else identify(self._context.registry, uri, after)
        moved = [other.row.uri for other in parts if other.row.moved_from == uri and other.change is not None]
        return FileChange(uri, before, after, memory_type, key, moved_from=moved[0] if moved else None)

    def _result(self, part: _Part) -> OperationResult:
        uri = str(part.row.uri)
        if isinstance(part.outcome, Refused):
            return self._refused(part.row, part.outcome.reason)
        if part.change is None:
            return OperationResult(KIND, uri, Action.UNCHANGED, note="it is as it was before the commit")
        before, after = part.change
        action = Action.DELETED if after is None else Action.CREATED if before is None else Action.UPDATED
        merged = after is not None and not part.outcome.exact
        return OperationResult(KIND, uri, action, note="what changed since was kept" if merged else None)

    def _refused(self, row: ChangeRow, reason: str) -> OperationResult:
        later = self._ledger.past.touching(row.uri, row.seq)
        known = self._ledger.file(row.uri)
        try:
            text = self._snapshot.text(row.uri)
            by_hand = (None if text is None else text_sha256(text)) != (None if known is None else known.sha256)
        except RunebookError:
            by_hand = True
        hint = _HINT
        if by_hand:
            reason = f"{reason} since, {BY_HAND}"
        elif later:
            reason = f"{reason}; since then by commit {later[-1].commit_id}"
            hint = f"Undo {later[-1].commit_id} first, or: {_HINT[0].lower()}{_HINT[1:]}"
        return OperationResult(KIND, str(row.uri), Action.REJECTED, f"not undone: {reason}.", hint, conflict=True)

    def _page(self, row: ChangeRow) -> tuple[FileChange | None, OperationResult]:
        """What somebody wrote on a directory's page, taken back."""
        now = self._snapshot.text(row.uri)
        merged = merge3(row.after or "", now or "", row.before or "")
        if merged is None or str(row.uri) in self._purged:
            return None, self._refused(row, "its words changed")
        return FileChange(row.uri, now, merged or None), OperationResult(KIND, str(row.uri), Action.UPDATED)

    def _progress(self, parts: Iterable[_Part]) -> SessionProgress | None:
        """The queue as it was: an undone conversation leaves it, an undone extraction comes back, but waits."""
        moved = self._ledger.past.progress(self._past.seq)
        if moved is None or not self._history.sees(moved.log):
            return None
        texts = {part.row.uri: part for part in parts}
        whole = not any(isinstance(part.outcome, Refused) for part in texts.values())
        queued = self._ledger.extractions.get(moved.log)
        stored = None
        own = texts.get(moved.log)
        if own is not None and isinstance(own.outcome, Reverted) and queued is not None:
            stored = len(parse_lines(own.outcome.text or "")[0])
        extracted = None
        if queued is not None and moved.extracted_before is not None and queued.extracted == _left_at(moved):
            most = queued.stored if stored is None else stored
            extracted = min(moved.extracted_before, most)
        return SessionProgress(
            moved.log,
            stored=stored,
            extracted=extracted if whole or own is not None else None,
            known=stored,
            call_keys=moved.uncounted if whole else frozenset(),
            uncounted=moved.counted if whole else frozenset(),
            left=_LEFT if moved.extracted is not None and whole and self._past.undoes is None else None,
        )


def _left_at(moved: PastProgress) -> int | None:
    """How many extracted messages a commit left behind."""
    if moved.extracted is not None or moved.stored is None or moved.extracted_before is None:
        return moved.extracted
    return min(moved.extracted_before, moved.stored)


def _is_whole(row: ChangeRow, versions: Versions) -> bool:
    """Whether the ledger still knows both texts; a purge may have taken what an append built on."""
    known: Mapping[str | None, str | None] = {row.before_sha256: versions.old, row.after_sha256: versions.given}
    return all(
        (None if text is None else text_sha256(text)) == sha256 for sha256, text in known.items() if sha256 is not None
    ) and (row.before_sha256 is not None or versions.old is None)
