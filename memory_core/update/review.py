"""What a model or a cue proposes, kept for its owner instead of being done: ``review: automatic``. Pure.

Each operation that would change something becomes a file in ``viking://user/{space}/review/`` (``proposal_file``). What
the planner refuses is refused at once, so that a model can still mend it; what changes nothing stays unsaid. What
waits already, or was rejected, is not proposed again: the same operation of the same session has the same name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from memory_core.errors import RunebookError
from memory_core.model.changes import Action, ChangeSet, FileChange, OperationResult, text_sha256
from memory_core.model.directory_summary import parse_page
from memory_core.model.filename import short_hash
from memory_core.model.memory_file import parse
from memory_core.model.operations import DeleteOp, EditOp, MemoryOperations, OverviewOp, WriteOp
from memory_core.model.record import CONTENT, read_record
from memory_core.model.uri import OVERVIEW_NAME, MemoryUri
from memory_core.storage.store import Snapshot
from memory_core.update.apart import placed, split
from memory_core.update.bounds import Context
from memory_core.update.planner import plan
from memory_core.update.proposal_file import (
    GROUPS,
    Proposal,
    plain_text,
    proposal_uri,
    render_proposal,
    review_folder,
)
from memory_core.update.soundness import shown

KIND_ACCEPT, KIND_REJECT = "accept", "reject"
AUTOMATIC = "automatic"
_CHANGING = (Action.CREATED, Action.UPDATED, Action.DELETED)
_Operation = WriteOp | EditOp | DeleteOp | OverviewOp


def decide(operations: MemoryOperations, snapshot: Snapshot, context: Context, moment: datetime) -> ChangeSet:
    """The plan of operations, what is no memory among them (``apart``); a result for each, in their order.

    Args:
        operations: As a model or a person gave them.
        snapshot: The store as it is.
        context: Of the commit.
        moment: Its time, with the offset that decides the day.
    """
    apart, memories = split(operations)
    return placed(plan(memories, snapshot, context), apart, snapshot, context, moment)


def propose(operations: MemoryOperations, snapshot: Snapshot, context: Context, moment: datetime) -> ChangeSet:
    """Keep operations for the owner: a file for each that would change something.

    The arguments are those of ``decide``.

    Returns:
        The new files. A result for each operation: ``queued`` for what waits, else what the plan says of it.
    """
    decided = decide(operations, snapshot, context, moment)
    proposer = _Proposer(snapshot, context, moment, operations.reasoning or "", decided)
    results = [
        proposer.keep(op, operation, result)
        for (op, operation), result in zip(_listed(operations), decided.results, strict=True)
    ]
    return ChangeSet(tuple(proposer.changes.values()), tuple(results), notes=decided.notes)


@dataclass(frozen=True, slots=True)
class _Effect:
    """What an operation would do to one file."""

    action: Action
    uri: MemoryUri
    before: str | None
    after: str | None


class _Proposer:
    """Makes proposals of the operations of one commit."""

    def __init__(
        self, snapshot: Snapshot, context: Context, moment: datetime, reasoning: str, decided: ChangeSet
    ) -> None:
        self._snapshot = snapshot
        self._context = context
        self._moment = moment
        self._reasoning = shown(reasoning)
        self._decided = decided
        self.changes: dict[MemoryUri, FileChange] = {}

    def keep(self, op: str, operation: _Operation, result: OperationResult) -> OperationResult:
        """The result of an operation that is kept for the owner, if it would change anything."""
        if result.action not in _CHANGING:
            return result
        effect = self._effect(op, operation, result)
        proposal = self._proposal(op, operation, effect)
        before = self._snapshot.text(proposal.uri)
        if before is not None or proposal.uri in self.changes:
            return OperationResult(op, str(proposal.uri), Action.UNCHANGED, note="waits for review already")
        if self._rejected(proposal.uri):
            return OperationResult(op, str(effect.uri), Action.UNCHANGED, note="its owner rejected this already")
        self.changes[proposal.uri] = FileChange(proposal.uri, None, render_proposal(proposal))
        note = f"waits for review: {proposal.title[0].lower()}{proposal.title[1:]}, at {proposal.target}"
        hint = f"The owner decides: runebook review accept {proposal.id} (or edit, reject)."
        return OperationResult(op, str(proposal.uri), Action.QUEUED, result.reason, hint, note)

    def _effect(self, op: str, operation: _Operation, result: OperationResult) -> _Effect:
        """What the operation does by itself; what it does among the others where it builds on one of them."""
        single = MemoryOperations.model_validate({GROUPS[op]: [operation]})
        alone = decide(single, self._snapshot, self._context, self._moment)
        decided, said = (alone, alone.results[0]) if alone.results[0].action in _CHANGING else (self._decided, result)
        uri = MemoryUri.parse(said.uri)
        change = next((change for change in decided.changes if change.uri == uri), None)
        before = self._snapshot.text(uri)
        return _Effect(said.action, uri, before, before if change is None else change.after)

    def _proposal(self, op: str, operation: _Operation, effect: _Effect) -> Proposal:
        given = operation.model_dump(mode="json", exclude_unset=True)
        data = operation.memory_data if isinstance(operation, WriteOp) else None
        source = {**self._context.source, **(data.source if data is not None else {})}
        belonging = self._context.belonging
        private = belonging.by_default if belonging.private is None else belonging.private
        texts = {name: plain_text(text) for name, text in self._texts(operation, effect).items()}
        identity = json.dumps([op, given, str(effect.uri), source.get("session_id")], sort_keys=True)
        identifier = short_hash(identity)
        return Proposal(
            uri=proposal_uri(review_folder(self._context.user_space), str(effect.uri), identifier),
            id=identifier,
            op=op,
            operation=given,
            action=str(effect.action),
            target=str(effect.uri),
            texts=texts,
            proposed=texts,
            source={name: str(value) for name, value in source.items()},
            seen={} if effect.before is None else {str(effect.uri): text_sha256(effect.before)},
            belonging=belonging,
            private=private and belonging.project is not None,
            at=self._context.now,
            reason=self._reasoning,
            gone=parse(effect.before or "").body if op == "delete" else "",
        )

    def _texts(self, operation: _Operation, effect: _Effect) -> Mapping[str, str]:
        """What would be stored, by field, as far as it is text that a person may want to word otherwise."""
        if isinstance(operation, OverviewOp):
            given = {"abstract": operation.abstract, "overview": operation.overview}
            after = effect.after or ""
            text = parse_page(after).authored if effect.uri.name == OVERVIEW_NAME else after
            return {name: text for name, value in given.items() if value is not None}
        if isinstance(operation, WriteOp):
            fields = operation.memory_data.fields
            if isinstance(fields.get(CONTENT), str):
                return {CONTENT: str(fields[CONTENT])}
            return {name: value for name, value in fields.items() if isinstance(value, str)}
        if isinstance(operation, EditOp):
            after_fields = self._fields(effect)
            texts = {name: after_fields.get(name) for name in operation.patches}
            return {name: value for name, value in texts.items() if isinstance(value, str)}
        return {}

    def _fields(self, effect: _Effect) -> Mapping[str, object]:
        file = parse(effect.after or "")
        memory_type = self._context.registry.type_at(effect.uri, file.type_name)
        if memory_type is None:
            return {}
        return read_record(memory_type, file, effect.uri.name.removesuffix(".md")).fields

    def _rejected(self, uri: MemoryUri) -> bool:
        """Whether the last that happened to a proposal of this name is that its owner rejected it."""
        last = self._snapshot.ledger.history(uri, limit=1)
        return bool(last) and last[0].kind == KIND_REJECT


def _listed(operations: MemoryOperations) -> Iterator[tuple[str, _Operation]]:
    """Operations in the order of a plan's results; an overview that sets two texts is two of them."""
    for write in operations.write_operations:
        yield "write", write
    for edit in operations.edit_operations:
        yield "edit", edit
    for deletion in operations.delete_operations:
        yield "delete", deletion
    for overview in operations.overview_operations:
        for name in ("abstract", "overview"):
            if getattr(overview, name) is not None:
                directory = overview.directory_uri
                yield "overview", OverviewOp.model_validate({"directory_uri": directory, name: getattr(overview, name)})


def accepted(
    uri: MemoryUri, proposal: Proposal, text: str, snapshot: Snapshot, context: Context, moment: datetime
) -> ChangeSet:
    """What accepting a proposal changes: what it proposes, by the ordinary plan, and the proposal goes.

    What cannot be done as proposed, or would overwrite what changed since, is refused, and the proposal stays.

    Args:
        uri: The proposal's file.
        proposal: As its file says now.
        text: The file's text.
        snapshot: The store as it is.
        context: Of the commit.
        moment: Its time.

    Raises:
        RunebookError: If the proposal holds no operation.
    """
    told = {**context.source, **proposal.source}
    own = replace(context, source=told, belonging=proposal.belonging, expected=proposal.seen, reads_elsewhere=False)
    decided = decide(proposal.operations(), snapshot, own, moment)
    if any(result.action is Action.REJECTED for result in decided.results) or not decided.results:
        return ChangeSet((), tuple(_still_waits(result, proposal) for result in decided.results), notes=decided.notes)
    note = "accepted, as edited" if proposal.edited else "accepted"
    results = (*decided.results, OperationResult(KIND_ACCEPT, str(uri), Action.DELETED, note=note))
    return replace(decided, changes=(*decided.changes, FileChange(uri, text, None)), results=results)


def _still_waits(result: OperationResult, proposal: Proposal) -> OperationResult:
    if result.conflict:
        hint = f"Look at it as it is now, say what it is to be, and accept that: runebook review edit {proposal.id}."
        return replace(result, hint=hint, note="still waits for review")
    return replace(result, note="still waits for review")


def refusal(op: str, name: str, error: RunebookError) -> OperationResult:
    """The result of a proposal that could not be decided on."""
    return OperationResult(op, shown(name), Action.REJECTED, shown(error.message), shown(error.hint))
