"""The owner's review: what waits, and accepting, editing or rejecting it; see ``update.review``.

Each decision is one commit of its own, which undo takes back. Two who decide on the same proposal at once: one wins,
the other is told. Reading tolerates whatever a person made of the folder: a file that holds no proposal is left alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from memory_core.core.command import Arg, Command
from memory_core.core.feature import Feature
from memory_core.core.memory.requests import Now

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from memory_core.core.errors import InvalidInput, NotFound, RunebookError
from memory_core.core.memory.names import fold
from memory_core.core.memory.results import Action, ChangeSet, CommitReceipt, FileChange, OperationResult, text_sha256
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.local import Snapshot
from memory_core.core.text.analysis import distinct_words
from memory_core.features.proposals import (
    KIND_ACCEPT,
    KIND_REJECT,
    Proposal,
    accepted,
    parse_proposal,
    refusal,
    render_proposal,
    review_folder,
    rewritten,
)

KIND_EDIT = "review"
_MENTIONED_SHARE = 0.5
#: Memories are made before others link to them, and go last.
_ORDER = ("write", "edit", "overview", "delete")


def waiting(memory: Runebook) -> list[Proposal]:
    """What waits, oldest first."""
    found = [_read(memory, uri) for uri in _files(memory)]
    return sorted((each for each in found if each is not None), key=lambda each: (each.at, each.uri))


def mentioning(memory: Runebook, query: str) -> list[Proposal]:
    """What waits and holds at least half of a query's words."""
    wanted = distinct_words(query)
    said = ((each, distinct_words(f"{each.title} {' '.join(each.texts.values())}")) for each in waiting(memory))
    return [each for each, words in said if wanted and len(wanted & words) >= _MENTIONED_SHARE * len(wanted)]


def named(memory: Runebook, name: str) -> Proposal:
    """The proposal of an id, the beginning of one, or a URI.

    Raises:
        NotFound: If none waits under this name.
        InvalidInput: If several do.
    """
    wanted = fold(name.strip())
    found = [each for each in waiting(memory) if fold(each.id).startswith(wanted) or str(each.uri) == name.strip()]
    if not wanted or not found:
        raise NotFound(
            f"nothing waits for review under {name[:80]!r}.",
            hint="See what waits with: runebook review. It may have been decided on meanwhile.",
        )
    if len(found) > 1:
        ids = ", ".join(each.id for each in found)
        raise InvalidInput(f"{name[:80]!r} could be any of {ids}.", hint="Give more of the id.")
    return found[0]


@dataclass(frozen=True, slots=True)
class ReviewRequest:
    """See what a model proposed to remember and waits for you."""


@dataclass(frozen=True, slots=True)
class DecisionRequest:
    """Decide on proposals."""

    names: Annotated[Sequence[str], Arg(help="Ids, as runebook review prints them, or URIs.", positional=True)]
    dry_run: Annotated[bool, Arg(help="Show what would change; store nothing.")] = False
    now: Now = None


@dataclass(frozen=True, slots=True)
class RewordRequest:
    """Word otherwise what a proposal would store."""

    name: Annotated[str, Arg(help="An id or URI.", positional=True)]
    text: Annotated[str, Arg(help="What is to be stored; of several fields each below its heading ### name.")]
    now: Now = None


def accept(memory: Runebook, request: DecisionRequest) -> list[CommitReceipt]:
    """Do what proposals propose, a commit for each; one that cannot be done is refused and still waits.

    Raises:
        InvalidInput: If none is named.
    """

    def planned(proposal: Proposal, text: str, snapshot: Snapshot, now: datetime) -> ChangeSet:
        return accepted(proposal.uri, proposal, text, snapshot, memory.plan_context(now), now)

    return _decide(memory, request, KIND_ACCEPT, planned)


def reject(memory: Runebook, request: DecisionRequest) -> list[CommitReceipt]:
    """Drop proposals, a commit for each; the same is not proposed again from the same conversation.

    Raises:
        InvalidInput: If none is named.
    """
    return _decide(memory, request, KIND_REJECT, _dropped)


def reword(memory: Runebook, request: RewordRequest) -> CommitReceipt:
    """Word otherwise what a proposal would store.

    What it changes counts as seen as it is now: whoever words it anew has looked.

    Raises:
        NotFound: If none waits under this name.
        InvalidInput: If it proposes no text.
    """
    proposal = named(memory, request.name)
    if not proposal.proposed:
        raise InvalidInput(f"proposal {proposal.id} stores no text.", hint="Accept or reject it.")

    def planned(snapshot: Snapshot) -> ChangeSet:
        before = snapshot.text(proposal.uri)
        if before is None:
            return ChangeSet((), (_decided_meanwhile(KIND_EDIT, proposal),))
        target = snapshot.text(MemoryUri.parse(proposal.target))
        seen = {} if target is None else {proposal.target: text_sha256(target)}
        changed = replace(rewritten(parse_proposal(proposal.uri, before), request.text), seen=seen)
        after = render_proposal(changed)
        action = Action.UNCHANGED if after == before else Action.UPDATED
        changes = () if after == before else (FileChange(proposal.uri, before, after),)
        return ChangeSet(changes, (OperationResult(KIND_EDIT, str(proposal.uri), action),))

    return memory.store.commit(planned, kind=KIND_EDIT, now=_moment(request.now))


REVIEW = Command("review", ReviewRequest, lambda memory, _request: waiting(memory))
ACCEPT = Command("review accept", DecisionRequest, accept, writes=True)
REJECT = Command("review reject", DecisionRequest, reject, writes=True)
REWORD = Command("review edit", RewordRequest, reword, writes=True)
FEATURE = Feature(commands=(REVIEW, ACCEPT, REJECT, REWORD))

Change = Callable[[Proposal, str, Snapshot, datetime], ChangeSet]


def _decide(memory: Runebook, request: DecisionRequest, kind: str, change: Change) -> list[CommitReceipt]:
    if not request.names:
        raise InvalidInput("no proposal is named.", hint="Give its id, as runebook review prints it, or --all.")
    now = _moment(request.now)
    chosen = {proposal.uri: proposal for proposal in (named(memory, name) for name in request.names)}
    receipts: list[CommitReceipt] = []
    for proposal in sorted(chosen.values(), key=lambda each: _ORDER.index(each.op)):
        planned = partial(_planned, kind, proposal, change, now)
        receipt = memory.store.commit(planned, kind=kind, now=now, dry_run=request.dry_run)
        receipts.append(receipt if request.dry_run else memory.indexed(receipt))
    return receipts


def _planned(kind: str, proposal: Proposal, change: Change, now: datetime, snapshot: Snapshot) -> ChangeSet:
    text = snapshot.text(proposal.uri)
    if text is None:
        return ChangeSet((), (_decided_meanwhile(kind, proposal),))
    try:
        return change(parse_proposal(proposal.uri, text), text, snapshot, now)
    except RunebookError as error:
        return ChangeSet((), (refusal(kind, str(proposal.uri), error),))


def _read(memory: Runebook, uri: MemoryUri) -> Proposal | None:
    text = memory.store.text(uri)
    try:
        return None if text is None else parse_proposal(uri, text)
    except RunebookError:
        return None


def _files(memory: Runebook) -> list[MemoryUri]:
    folder = review_folder(memory.config.user_space)
    files = memory.store.files
    entries = files.entries(folder) if files.is_dir(folder) else ()
    return [entry.uri for entry in entries if not entry.is_dir and entry.uri.name.endswith(".md")]


def _moment(now: datetime | None) -> datetime:
    return now or datetime.now().astimezone()


def _dropped(proposal: Proposal, text: str, _snapshot: Snapshot, _now: datetime) -> ChangeSet:
    note = f"rejected; {proposal.target} stays as it is"
    result = OperationResult(KIND_REJECT, str(proposal.uri), Action.DELETED, note=note)
    return ChangeSet((FileChange(proposal.uri, text, None),), (result,))


def _decided_meanwhile(kind: str, proposal: Proposal) -> OperationResult:
    return OperationResult(
        kind,
        str(proposal.uri),
        Action.REJECTED,
        "it no longer waits: somebody accepted or rejected it meanwhile.",
        "See what became of it with: runebook history.",
    )
