"""Undo: a new commit that takes an older one back, file by file, and keeps what happened since.

A file that cannot go back without losing somebody's later words is refused in the receipt, and the others go back all
the same. Pages of directories are made anew; where everything went back exactly, they are the old ones, byte for byte.
An undone conversation leaves the queue, an undone extraction can be done again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from memory_core.core.caller import BY_HAND, current_author
from memory_core.core.command import NOWHERE, Arg, Command
from memory_core.core.commit.working_copy import PlanContext
from memory_core.core.errors import InvalidInput, MemoryChanged, RunebookError
from memory_core.core.feature import Feature
from memory_core.core.memory.evidence import taken_back
from memory_core.core.memory.memory import dump, identify, parse_as, put_together
from memory_core.core.memory.memory_type import MemoryField, MemoryType, MergeOp
from memory_core.core.memory.message import parse_lines
from memory_core.core.memory.metadata import CONFIDENCE, LINKS, SHOWN_FIELDS, Metadata, share_of
from memory_core.core.memory.names import fold
from memory_core.core.memory.requests import CommitRequest, Now
from memory_core.core.memory.results import (
    Action,
    ChangeSet,
    CommitReceipt,
    FileChange,
    OperationResult,
    SessionProgress,
    text_sha256,
)
from memory_core.core.memory.template import render, text_names
from memory_core.core.memory.trailer import join, split
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.history_rows import PastCommit
from memory_core.core.store.ledger import ChangeRow
from memory_core.core.store.local import Snapshot
from memory_core.core.text.text_diff import merge3
from memory_core.features.history import History, history_of

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

KIND = "undo"
_UNDONE = "its extraction was undone"
_HINT = "Read the file, then change it by hand or with operations."
_ABSENT: Any = object()
_DIGITS = 4
#: Every change sets these fields; a comparison ignores them.
_INCIDENTAL = frozenset({"version", "updated_at", "rendered_sha256", SHOWN_FIELDS})
#: Other memories' commits write these here: a new memory with other links is still the memory that was created.
_WRITTEN_BY_OTHERS = frozenset({LINKS, CONFIDENCE})
#: Derived from other fields: the current value stays.
_DERIVED = frozenset({"abstract", "overview"})


@dataclass(frozen=True, slots=True)
class UndoRequest:
    """Take a commit back; what changed since is kept."""

    commit: Annotated[str, Arg(help='Its id, the first characters of it, or "last".', positional=True)]
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
        large_of=memory.user_space,
    )
    memory.after_commit(receipt, moment)
    return memory.indexed(receipt)


UNDO = Command("undo", UndoRequest, undo, fails=lambda receipt: receipt.status == "rejected", writes=True)


def _asked(memory: Runebook, commit: CommitRequest, value: str) -> CommitReceipt:
    """What the argument ``undo`` of a commit means: "last" is the newest commit of the same client."""
    asked = UndoRequest(value, commit.dry_run, commit.request_id, current_author(), commit.now)
    return memory.run(UNDO, asked)


FEATURE = Feature(commands=(UNDO,), commit_arguments={"undo": _asked})


# One commit ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Step:
    """One file of the undo: what the ledger says of it, its three texts, and what it becomes, or why it cannot."""

    row: ChangeRow
    versions: Versions
    after: str | None = None
    refusal: str | None = None

    @property
    def is_change(self) -> bool:
        """Whether the file differs afterwards."""
        return self.refusal is None and self.after != self.versions.current


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
        steps = self._possible([self._step(row) for row in rows if not row.uri.is_summary])
        moved = {step.row.moved_from: step.row.uri for step in reversed(steps) if step.is_change}
        pages = [self._page(row) for row in rows if row.uri.is_summary]
        results = [self._result(step) for step in (*steps, *pages)]
        changes = (
            *(self._change(step, moved.get(step.row.uri)) for step in steps if step.is_change),
            *(FileChange(page.row.uri, page.versions.current, page.after) for page in pages if page.refusal is None),
        )
        return ChangeSet(changes, tuple(results), progress=self._progress(steps))

    def _rows(self) -> list[ChangeRow]:
        """The commit's changes that are the reader's and not taken back yet.

        Raises:
            InvalidInput: If none is left.
        """
        rows = [row for row in self._ledger.changes_of([self._past.seq]) if self._history.sees(row.uri)]
        undoing = self._ledger.past.undone_by(self._past.commit_id, self._history.spaces)
        done = {row.uri for commit in undoing for row in self._ledger.steps_of(commit.seq)}
        left = [row for row in rows if row.uri not in done]
        if undoing and not left:
            last = undoing[-1].commit_id
            raise InvalidInput(
                f"{self._past.commit_id} is already undone by {last}.",
                hint=f'Undo {last} to bring it back, or name an older commit: read "viking://history".',
            )
        return left

    def _step(self, row: ChangeRow) -> _Step:
        """What becomes of one file."""
        versions = Versions(None, None, None)
        try:
            versions = self._versions(row)
            if str(row.uri) in self._purged or not _texts_are_known(row, versions):
                return _Step(row, versions, refusal="its text was purged")
            place = self._moves.get(row.uri) if versions.current is None and row.after else None
            if place is not None and self._history.sees(place):
                return _Step(row, versions, refusal=f"it was moved to {place}")
            if versions.current is not None and self._is_of_another(row):
                return _Step(row, versions, refusal="another file has its name")
            text = versions.current if versions.current is not None else versions.committed
            memory_type = self._context.registry.type_at(row.uri, split(text or "").type_name)
            after = revert(versions, row.uri, appended=row.appended, memory_type=memory_type, at=self._context.now)
            return _Step(row, versions, after)
        except RunebookError as error:  # one unreadable file keeps no other from going back
            return _Step(row, versions, refusal=error.message.rstrip("."))

    def _is_of_another(self, row: ChangeRow) -> bool:
        """Whether the file that stands there is not the one that was changed: that one was moved or removed since."""
        past = self._ledger.past
        stays = past.stays(row.uri)
        if stays[-1].first <= row.seq:
            return False
        own = past.before(stays[-1])
        changed = next(stay for stay in reversed(stays) if stay.first <= row.seq)
        return changed not in own

    @cached_property
    def _moves(self) -> dict[MemoryUri, MemoryUri]:
        """Where files went that were renamed since."""
        return self._ledger.past.moves_after(self._past.seq)

    def _versions(self, row: ChangeRow) -> Versions:
        now = self._snapshot.text(row.uri)
        if not row.appended:
            return Versions(row.before, row.after, now)
        before = None if row.before_sha256 is None else self._ledger.text_at(row.uri, row.seq - 1)
        return Versions(before, self._ledger.text_at(row.uri, row.seq), now)

    def _page(self, row: ChangeRow) -> _Step:
        """What somebody wrote on a directory's page, taken back."""
        versions = Versions(row.before, row.after, None)
        try:
            versions = replace(versions, current=self._snapshot.text(row.uri))
        except RunebookError as error:
            return _Step(row, versions, refusal=error.message.rstrip("."))
        if str(row.uri) in self._purged:
            return _Step(row, versions, refusal="its text was purged")
        merged = merge3(row.after or "", versions.current or "", row.before or "")
        if merged is None:
            return _Step(row, versions, refusal="its words changed")
        return _Step(row, versions, merged or None)

    def _possible(self, steps: list[_Step]) -> list[_Step]:
        """The steps, with a refusal where a place is taken, or where half of a move cannot go back."""
        while True:
            going = {step.row.uri for step in steps if step.is_change and step.after is None}
            names = {(uri.parent, fold(uri.name)) for uri in going}
            steps = [self._refuse_if_taken(step, going, names) for step in steps]
            halves = _halves(steps)
            if not halves:
                return steps
            steps = [replace(step, refusal=halves.get(step.row.uri, step.refusal)) for step in steps]

    def _refuse_if_taken(
        self, step: _Step, going: Collection[MemoryUri], names: Collection[tuple[MemoryUri, str]]
    ) -> _Step:
        """Refuse to bring a file back where another has its name or its key by now."""
        if not step.is_change or step.versions.current is not None:
            return step
        uri = step.row.uri
        twin = (uri.parent, fold(uri.name)) in names
        if not twin and self._snapshot.name_taken(uri.parent, uri.name):
            return replace(step, refusal="another file has its name")
        memory_type, key = identify(self._context.registry, uri, step.after or "")
        holder = self._snapshot.locate(uri.parent, memory_type, key) if key else None
        if holder is not None and holder != uri and holder not in going:
            return replace(step, refusal=f"{holder} is the memory of that name")
        return step

    def _change(self, step: _Step, moved: MemoryUri | None) -> FileChange:
        uri, after = step.row.uri, step.after
        memory_type, key = ("", "") if after is None else identify(self._context.registry, uri, after)
        return FileChange(uri, step.versions.current, after, memory_type, key, moved_from=moved)

    def _result(self, step: _Step) -> OperationResult:
        if step.refusal is not None:
            return self._refused(step.row, step.refusal)
        uri, current, after = str(step.row.uri), step.versions.current, step.after
        if not step.is_change:
            return OperationResult(KIND, uri, Action.UNCHANGED, note="it is as it was before the commit")
        if step.row.uri.is_summary:  # its list stays also where what somebody wrote goes: it is never deleted
            return OperationResult(KIND, uri, Action.UPDATED)
        action = Action.DELETED if after is None else Action.CREATED if current is None else Action.UPDATED
        is_merged = after is not None and current != step.versions.committed
        return OperationResult(KIND, uri, action, note="what changed since was kept" if is_merged else None)

    def _refused(self, row: ChangeRow, reason: str) -> OperationResult:
        later = self._ledger.past.touching(row.uri, row.seq)
        known = self._ledger.file(row.uri)
        try:
            by_hand = _sha256(self._snapshot.text(row.uri)) != (None if known is None else known.sha256)
        except RunebookError:
            by_hand = True
        hint = _HINT
        if by_hand:
            reason = f"{reason} since, {BY_HAND}"
        elif later:
            reason = f"{reason}; since then by commit {later[-1].commit_id}"
            hint = f"Undo {later[-1].commit_id} first, or: {_HINT[0].lower()}{_HINT[1:]}"
        return OperationResult(KIND, str(row.uri), Action.REJECTED, f"not undone: {reason}.", hint, conflict=True)

    def _progress(self, steps: Iterable[_Step]) -> SessionProgress | None:
        """The queue as it was: an undone conversation leaves it, an undone extraction comes back, but waits."""
        past = self._ledger.past.progress(self._past.seq)
        if past is None or not self._history.sees(past.log):
            return None
        whole = all(step.refusal is None for step in steps)
        own = next((step for step in steps if step.row.uri == past.log), None)
        queued = self._ledger.extractions.get(past.log)
        stored = extracted = None
        if own is not None and own.refusal is None and queued is not None:
            stored = len(parse_lines(own.after or "")[0])
        before, after = past.extracted_before, past.extracted
        if after is None and past.stored is not None and before is not None:
            after = min(before, past.stored)
        if queued is not None and before is not None and queued.extracted == after:
            extracted = min(before, queued.stored if stored is None else stored)
        return SessionProgress(
            past.log,
            stored=stored,
            extracted=extracted if whole or own is not None else None,
            known=stored,
            call_keys=past.uncounted if whole else frozenset(),
            uncounted=past.counted if whole else frozenset(),
            reason=_UNDONE if past.extracted is not None and whole and self._past.undoes is None else None,
        )


def _halves(steps: Sequence[_Step]) -> dict[MemoryUri, str]:
    """Steps that would take back half of a move, and why they must not: the memory would be lost, or there twice."""
    by_uri = {step.row.uri: step for step in steps}
    found: dict[MemoryUri, str] = {}
    for step in steps:
        other = None if step.row.moved_from is None else by_uri.get(step.row.moved_from)
        if other is not None and other.is_change and step.refusal is None and step.versions.current is None:
            found[other.row.uri] = f"{step.row.uri}, which it became, was removed"
            continue
        for half, refused in () if other is None else ((step, other), (other, step)):
            if half.is_change and refused.refusal is not None:
                found[half.row.uri] = f"{refused.row.uri} does not go back"
    return found


def _texts_are_known(row: ChangeRow, versions: Versions) -> bool:
    """Whether the ledger still knows both texts; a purge may have taken what an append built on."""
    if row.before_sha256 is None and versions.before is not None:
        return False
    known = ((row.before_sha256, versions.before), (row.after_sha256, versions.committed))
    return all(_sha256(text) == sha256 for sha256, text in known if sha256 is not None)


def _sha256(text: str | None) -> str | None:
    return None if text is None else text_sha256(text)


# One file ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Versions:
    """A file before a commit, as the commit left it, and as it is now; None is no file."""

    before: str | None
    committed: str | None
    current: str | None


def revert(
    versions: Versions, uri: MemoryUri, *, appended: bool = False, memory_type: MemoryType | None = None, at: str = ""
) -> str | None:
    """What a file becomes when a commit's change of it is taken back; None where it goes.

    Args:
        versions: The three texts.
        uri: The file.
        appended: Whether the commit only added to the end of a log.
        memory_type: Of a memory; None for any other text.
        at: Time of the undo, ISO 8601 in UTC; written into a memory that is merged.

    Raises:
        MemoryChanged: If later words would be lost.
    """
    before, committed, current = versions.before, versions.committed, versions.current
    if current == committed:
        return before
    if current == before:
        return current
    try:
        if appended:
            return _without_tail(before, committed or "", current)
        if current is None:
            raise _Conflict("the file was removed")
        if committed is None:
            raise _Conflict("another text stands there")
        if before is None:
            _expect_untouched(committed, current)
            return None
        merged = _merged(Versions(before, committed, current), uri, memory_type, at)
        return merged or _by_lines(before, committed, current)
    except _Conflict as conflict:
        raise MemoryChanged(f"{conflict}.", hint=_HINT, uri=str(uri)) from None


class _Conflict(Exception):
    """Why a file cannot be taken back: a sentence's end, such as ``its body changed in the same lines``."""


def _without_tail(before: str | None, committed: str, current: str | None) -> str | None:
    tail = committed[len(before or "") :]
    if current is None or not current.endswith(tail):
        raise _Conflict("the log went on, or its end was changed")
    rest = current.removesuffix(tail)
    return rest if rest or before is not None else None


def _expect_untouched(committed: str, current: str) -> None:
    """Refuse to remove a created memory that got more since than what no author writes: links from others, a time."""
    one, other = split(committed), split(current)
    created, present = one.trailer or {}, other.trailer or {}
    # New links also change confidence; where it changed without links, a person changed it.
    ignored = _INCIDENTAL | (_WRITTEN_BY_OTHERS if created.get(LINKS) != present.get(LINKS) else frozenset())
    written = (created.keys() | present.keys()) - ignored
    if one.body != other.body or any(created.get(name, _ABSENT) != present.get(name, _ABSENT) for name in written):
        raise _Conflict("it was edited")


def _by_lines(before: str, committed: str, current: str, what: str = "the same lines changed") -> str:
    merged = merge3(committed, current, before)
    if merged is None:
        raise _Conflict(what)
    return merged


def _merged(versions: Versions, uri: MemoryUri, memory_type: MemoryType | None, at: str) -> str | None:
    """A memory with its fields judged one by one; None if one of the three texts has no trailer."""
    texts = [text or "" for text in (versions.before, versions.committed, versions.current)]
    parts = [split(text) for text in texts]
    if any(each.trailer is None for each in parts):
        return None
    if memory_type is None:
        trailers = [each.trailer or {} for each in parts]
        return join(_merged_body([each.body for each in parts]), _merged_trailer(trailers, None, at))
    memories = [parse_as(uri, text, memory_type) for text in texts]
    # What a person took out of a text is read as gone.
    trailers = [split(dump(memory)).trailer or {} for memory in memories]
    before, _, current = memories
    names = text_names(memory_type)
    if not memory_type.template_mode:
        body = _merged_body([memory.body for memory in memories])
        trailer = _merged_trailer(trailers, memory_type, at)
        # a text that only the old body showed goes with what a person made of it since
        lost = {name for name in before.shown if name not in current.fields}
        kept = {name: value for name, value in trailer.items() if name not in lost or str(value).strip() in body}
        return put_together(uri, body, kept, memory_type, edited=False)
    if not any(memory.hand_edited for memory in memories):
        return put_together(uri, "", _merged_trailer(trailers, memory_type, at), memory_type, edited=False)
    # Texts that a rendered body shows go the way of the body, which is rendered with the numbers of now.
    numbers = {name: value for name, value in current.fields.items() if name not in names}
    bodies = [each.body if each.hand_edited else render(memory_type, {**each.fields, **numbers}) for each in memories]
    apart = [
        trailer if memory.hand_edited else {name: value for name, value in trailer.items() if name not in names}
        for trailer, memory in zip(trailers, memories, strict=True)
    ]
    body, trailer = _merged_body(bodies), _merged_trailer(apart, memory_type, at)
    is_back = body == bodies[0] and not before.hand_edited and not names & trailer.keys()
    if is_back:
        trailer |= {name: value for name, value in trailers[0].items() if name in names}
    return put_together(uri, body, trailer, memory_type, edited=not is_back)


def _merged_body(bodies: Sequence[str]) -> str:
    before, committed, current = bodies
    return _by_lines(before, committed, current, "its body changed in the same lines")


def _merged_trailer(trailers: Sequence[Mapping[str, Any]], memory_type: MemoryType | None, at: str) -> dict[str, Any]:
    before, _, current = trailers
    merged: dict[str, Any] = {}
    for name in dict.fromkeys((*current, *before)):
        declared = None if memory_type is None else memory_type.field(name)
        value = _field(name, [each.get(name, _ABSENT) for each in trailers], declared)
        merged |= {} if value is _ABSENT else {name: value}
    merged |= {"version": Metadata(current).next_version} if "version" in current else {}
    return merged | ({"updated_at": at} if at and "updated_at" in current else {})


def _field(name: str, versions: Sequence[Any], declared: MemoryField | None) -> Any:
    """One trailer field, from its values before a commit, as that left it, and as it is now."""
    before, committed, current = versions
    if before in (committed, current) or name in _INCIDENTAL:
        return current
    if current == committed:
        return before
    if name == CONFIDENCE:
        return round(taken_back(*(share_of(value, 1.0) for value in versions)), _DIGITS)
    if declared is not None and declared.merge_op is MergeOp.SUM:
        numbers = [_number(value) for value in versions]
        if None not in numbers:
            before, added, total = (number or 0 for number in numbers)
            return total - (added - before)
    if all(isinstance(value, str) for value in versions) and (text := merge3(committed, current, before)) is not None:
        return text
    if all(value is _ABSENT or isinstance(value, list) for value in versions):
        return _list(*([] if value is _ABSENT else value for value in versions))
    if name not in _DERIVED:
        raise _Conflict(f"its field {name!r} changed")
    return current


def _list(before: list[Any], committed: list[Any], current: list[Any]) -> Any:
    """A list without what the commit put in, with what it took out."""
    old, given, present = ({_text_of(item) for item in items} for items in (before, committed, current))
    kept = [item for item in current if (text := _text_of(item)) in old or text not in given]
    back = [item for item in before if (text := _text_of(item)) not in given and text not in present]
    return [*kept, *back] or _ABSENT


def _text_of(item: Any) -> str:
    """An item of a list, by which it is compared."""
    return json.dumps(item, sort_keys=True)


def _number(value: Any) -> float | int | None:
    """A number; a missing field counts as 0."""
    if value is _ABSENT:
        return 0
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
