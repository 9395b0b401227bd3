"""The owner's review: what waits, and accepting, editing or rejecting it; see ``update.review``.

Each decision is one commit of its own, which undo takes back. Two who decide on the same proposal at once: one wins,
the other is told. Reading tolerates whatever a person made of the folder: a file that holds no proposal is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from memory_core.core.commit.working_copy import Context
from memory_core.core.errors import InvalidInput, NotFound, RunebookError
from memory_core.core.memory.names import fold
from memory_core.core.memory.results import Action, ChangeSet, CommitReceipt, FileChange, OperationResult, text_sha256
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.local import Snapshot, Store
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


class Reviewer:
    """What waits for one user.

    Args:
        store: Holds the proposals.
        user_space: Whose.
        context: What a plan at a moment is told.
        indexed: Brings the index up to date after a commit.
    """

    def __init__(
        self,
        store: Store,
        user_space: str,
        context: Callable[[datetime], Context],
        indexed: Callable[[CommitReceipt], CommitReceipt],
    ) -> None:
        self._store = store
        self._folder = review_folder(user_space)
        self._context = context
        self._indexed = indexed

    def waiting(self) -> list[Proposal]:
        """What waits, oldest first."""
        found = [self._read(uri) for uri in self._files()]
        return sorted((each for each in found if each is not None), key=lambda each: (each.at, each.uri))

    def count(self) -> int:
        """How many proposals wait, without reading them."""
        return len(self._files())

    def mentioning(self, query: str) -> list[Proposal]:
        """What waits and holds at least half of a query's words."""
        wanted = distinct_words(query)
        said = ((each, distinct_words(f"{each.title} {' '.join(each.texts.values())}")) for each in self.waiting())
        return [each for each, words in said if wanted and len(wanted & words) >= _MENTIONED_SHARE * len(wanted)]

    def named(self, name: str) -> Proposal:
        """The proposal of an id, the beginning of one, or a URI.

        Raises:
            NotFound: If none waits under this name.
            InvalidInput: If several do.
        """
        wanted = fold(name.strip())
        found = [each for each in self.waiting() if fold(each.id).startswith(wanted) or str(each.uri) == name.strip()]
        if not wanted or not found:
            raise NotFound(
                f"nothing waits for review under {name[:80]!r}.",
                hint="See what waits with: runebook review. It may have been decided on meanwhile.",
            )
        if len(found) > 1:
            ids = ", ".join(each.id for each in found)
            raise InvalidInput(f"{name[:80]!r} could be any of {ids}.", hint="Give more of the id.")
        return found[0]

    def accept(self, names: Sequence[str], now: datetime, *, dry_run: bool = False) -> list[CommitReceipt]:
        """Do what proposals propose, a commit for each; one that cannot be done is refused and still waits.

        Args:
            names: Ids or URIs.
            now: Time of the commits.
            dry_run: Plan only.

        Raises:
            InvalidInput: If none is named.
        """
        return self._decide(KIND_ACCEPT, names, self._accepted, now, dry_run)

    def reject(self, names: Sequence[str], now: datetime, *, dry_run: bool = False) -> list[CommitReceipt]:
        """Drop proposals, a commit for each; the same is not proposed again from the same conversation.

        Args:
            names: Ids or URIs.
            now: Time of the commits.
            dry_run: Plan only.

        Raises:
            InvalidInput: If none is named.
        """
        return self._decide(KIND_REJECT, names, _dropped, now, dry_run)

    def rewrite(self, name: str, text: str, now: datetime) -> CommitReceipt:
        """Word otherwise what a proposal would store.

        What it changes counts as seen as it is now: whoever words it anew has looked.

        Args:
            name: An id or URI.
            text: What is to be stored; of several fields each below its heading ``### name``.
            now: Time of the commit.

        Raises:
            NotFound: If none waits under this name.
            InvalidInput: If it proposes no text.
        """
        proposal = self.named(name)
        if not proposal.proposed:
            raise InvalidInput(f"proposal {proposal.id} stores no text.", hint="Accept or reject it.")

        def planned(snapshot: Snapshot) -> ChangeSet:
            before = snapshot.text(proposal.uri)
            if before is None:
                return ChangeSet((), (_decided_meanwhile(KIND_EDIT, proposal),))
            target = snapshot.text(MemoryUri.parse(proposal.target))
            seen = {} if target is None else {proposal.target: text_sha256(target)}
            changed = replace(rewritten(parse_proposal(proposal.uri, before), text), seen=seen)
            after = render_proposal(changed)
            action = Action.UNCHANGED if after == before else Action.UPDATED
            changes = () if after == before else (FileChange(proposal.uri, before, after),)
            return ChangeSet(changes, (OperationResult(KIND_EDIT, str(proposal.uri), action),))

        return self._store.commit(planned, kind=KIND_EDIT, now=now)

    def _decide(
        self,
        kind: str,
        names: Sequence[str],
        change: Callable[[Proposal, str, Snapshot, datetime], ChangeSet],
        now: datetime,
        dry_run: bool,
    ) -> list[CommitReceipt]:
        if not names:
            raise InvalidInput("no proposal is named.", hint="Give its id, as runebook review prints it, or --all.")
        chosen = {proposal.uri: proposal for proposal in map(self.named, names)}
        ordered = sorted(chosen.values(), key=lambda each: _ORDER.index(each.op))
        receipts: list[CommitReceipt] = []
        for proposal in ordered:
            planned = partial(self._planned, kind, proposal, change, now)
            receipt = self._store.commit(planned, kind=kind, now=now, dry_run=dry_run)
            receipts.append(receipt if dry_run else self._indexed(receipt))
        return receipts

    def _planned(
        self,
        kind: str,
        proposal: Proposal,
        change: Callable[[Proposal, str, Snapshot, datetime], ChangeSet],
        now: datetime,
        snapshot: Snapshot,
    ) -> ChangeSet:
        text = snapshot.text(proposal.uri)
        if text is None:
            return ChangeSet((), (_decided_meanwhile(kind, proposal),))
        try:
            return change(parse_proposal(proposal.uri, text), text, snapshot, now)
        except RunebookError as error:
            return ChangeSet((), (refusal(kind, str(proposal.uri), error),))

    def _accepted(self, proposal: Proposal, text: str, snapshot: Snapshot, now: datetime) -> ChangeSet:
        return accepted(proposal.uri, proposal, text, snapshot, self._context(now), now)

    def _read(self, uri: MemoryUri) -> Proposal | None:
        text = self._store.text(uri)
        try:
            return None if text is None else parse_proposal(uri, text)
        except RunebookError:
            return None

    def _files(self) -> list[MemoryUri]:
        if not self._store.files.is_dir(self._folder):
            return []
        entries = self._store.files.entries(self._folder)
        return [entry.uri for entry in entries if not entry.is_dir and entry.uri.name.endswith(".md")]


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
