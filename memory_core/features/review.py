"""Review: what a model or a cue proposes is kept for its owner instead of being done (``review: automatic``).

Each operation that would change something becomes a file in ``viking://user/{space}/review/``. What the planner
refuses is refused at once, so that a model can still mend it; what changes nothing stays unsaid. What waits already,
or was rejected, is not proposed again: the same operation of the same session has the same name. Each decision of the
owner is one commit, which undo takes back; of two who decide on the same proposal or edit it at once one wins, and the
other is told. A file of the folder that holds no proposal is left alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from memory_core.core.command import NOWHERE, Arg, Command
from memory_core.core.commit.decide import decide
from memory_core.core.commit.working_copy import PlanContext, WriteMode
from memory_core.core.errors import ContentRejected, FieldRejected, InvalidInput, MemoryChanged, NotFound, RunebookError
from memory_core.core.feature import Feature, Features
from memory_core.core.memory.directory_page import parse_page
from memory_core.core.memory.memory import parse
from memory_core.core.memory.memory_type import CONTENT
from memory_core.core.memory.names import fit, fold, short_hash, summary_line
from memory_core.core.memory.operations import DeleteOp, EditOp, MemoryOperations, OverviewOp, WriteOp, escaped, refusal
from memory_core.core.memory.project import ProjectAssignment
from memory_core.core.memory.requests import Now
from memory_core.core.memory.results import Action, ChangeSet, CommitReceipt, FileChange, OperationResult, text_sha256
from memory_core.core.memory.trailer import join, read_members, split
from memory_core.core.memory.uri import OVERVIEW_NAME, REVIEW_FOLDER, SCHEME, MemoryUri, Scope
from memory_core.core.store.local import Snapshot

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

#: Members of ``MemoryOperations``, by the short name of the operation.
GROUPS: Mapping[str, str] = {name: f"{name}_operations" for name in ("write", "edit", "delete", "overview")}
_PROPOSAL = "proposal"
_RULE = "---"
#: The heading of a field; a line of a text that looks like one gets a backslash before it.
_HEADING = re.compile(r"(\\*)### ([A-Za-z_]\w*)\s*")
_HEADINGS_HINT = "Put each field below its heading ### name, as runebook review show prints it."
_TITLE_CHARS = 120
_NAME_CHARS = 60
_LINE_CHARS = 300
#: Members of a proposal that its trailer keeps under their own names, in their order there.
_KEPT = ("id", "op", "action", "target", "operation", "proposed", "source", "seen", "assignment", "reason")
#: Members of an operation that say nothing of what it is about.
_UNSAID = ("memory_type", "relation", "directory_uri", "start_line")


@dataclass(frozen=True, slots=True)
class Proposal:
    """One operation that waits for its owner.

    Attributes:
        uri: The proposal's own file.
        id: Names it on the command line.
        op: ``write``, ``edit``, ``delete`` or ``overview``.
        operation: As it was proposed, the JSON of an operation of ``MemoryOperations``.
        action: What it would do: created, updated or deleted.
        target: The file that it would change.
        texts: What would be stored, by field; as a person may have edited it.
        proposed: The same as it was proposed.
        source: Written into new memories: kind, session and the like.
        seen: By URI, the SHA-256 of the target as it was when this was proposed; empty if the target was not there.
        assignment: The project of the conversation.
        private: Whether the proposal itself is for its project only.
        at: When, ISO 8601 in UTC.
        reason: Why, in the words of whoever proposed it.
        gone: Of a deletion: what goes.
        sha256: Of its file as it was read; empty where it is in none yet.
    """

    JSON: ClassVar = "id uri action:would target texts edited session:session_id at reason sha256"

    uri: MemoryUri
    id: str
    op: str
    operation: Mapping[str, Any]
    action: str
    target: str
    texts: Mapping[str, str] = field(default_factory=dict)
    proposed: Mapping[str, str] = field(default_factory=dict)
    source: Mapping[str, str] = field(default_factory=dict)
    seen: Mapping[str, str] = field(default_factory=dict)
    assignment: ProjectAssignment = field(default_factory=ProjectAssignment)
    private: bool = False
    at: str = ""
    reason: str = ""
    gone: str = ""
    sha256: str = field(default="", compare=False)

    @property
    def edited(self) -> bool:
        """Whether a person changed what is stored."""
        return dict(self.texts) != dict(self.proposed)

    @property
    def title(self) -> str:
        """What it would do, in a line."""
        name = self.target.rsplit("/", 1)[-1].removesuffix(".md")
        folder = self.target.rsplit("/", 2)[-2] if self.target.count("/") > 2 else ""
        what = {"created": "Would create", "updated": "Would change", "deleted": "Would delete"}[self.action]
        return summary_line(f"{what} {folder}: {name}", _TITLE_CHARS)

    @property
    def session(self) -> str | None:
        """The session that it comes from."""
        return self.source.get("session_id")

    @property
    def name(self) -> str:
        """What the file is called that it would change."""
        return _name_at(self.target)

    @property
    def said(self) -> str:
        """All that it says beside that name: what would be stored, and was proposed, what goes, and why."""
        values = (*self.texts.values(), *self.proposed.values(), self.gone, self.reason, *_values(self.operation))
        return "\n".join(dict.fromkeys(filter(None, values)))

    def operations(self) -> MemoryOperations:
        """The operation, with what a person made of its texts.

        Raises:
            FieldRejected: If a hand edit left no operation, or took away the heading of a field.
        """
        operation = dict(self.operation)
        if self.edited:
            if missing := _without_heading(self):
                raise FieldRejected(f"the text of {str(self.uri)!r} has no heading for {missing}.", hint=_HEADINGS_HINT)
            operation = _operation_with(self.op, operation, self.texts)
        try:
            parsed = MemoryOperations.model_validate({GROUPS[self.op]: [operation]})
        except ValueError:
            raise _unreadable(self.uri) from None
        for write in parsed.write_operations:
            write.memory_data.sourced(self.source)
        return parsed


def _name_at(uri: str) -> str:
    """The name of a file in words."""
    return uri.rsplit("/", 1)[-1].removesuffix(".md").replace("_", " ")


def _values(operation: Any) -> Iterator[str]:
    """The texts and numbers in an operation; of a URI its name."""
    if isinstance(operation, Mapping):
        operation = [value for name, value in operation.items() if name not in _UNSAID]
    if isinstance(operation, list):
        yield from chain.from_iterable(map(_values, operation))
    elif isinstance(operation, str):
        yield _name_at(operation) if operation.startswith(SCHEME) else operation
    elif type(operation) is int:
        yield str(operation)


def _review_folder(user_space: str) -> MemoryUri:
    """Where a user's proposals are."""
    return MemoryUri((Scope.USER.value, user_space, REVIEW_FOLDER))


def _proposal_uri(folder: MemoryUri, target: str, identifier: str) -> MemoryUri:
    """The file of a proposal: named after what it is about, and by its id."""
    name = target.rsplit("/", 1)[-1].removesuffix(".md").lstrip(".")[:_NAME_CHARS]
    return folder.child(fit(name, ".md", f" {identifier}"))


def readable(proposal: Proposal) -> str:
    """The file's text without its trailer."""
    lines = [f"# {proposal.title}", "", f"- where: {proposal.target}"]
    if proposal.session:
        lines.append(f"- from: session {proposal.session}")
    lines += [f"- {line}" for line in _facts(proposal)]
    body = "\n".join([*lines, f"- accept, edit or reject it: runebook review accept {proposal.id}"])
    shown = proposal.gone if proposal.op == "delete" else texts_shown(proposal)
    return f"{body}\n\n{_RULE}\n\n{shown}".rstrip("\n")


def render_proposal(proposal: Proposal) -> str:
    """The file's text."""
    assignment = proposal.assignment
    facts = {name: getattr(proposal, name) for name in _KEPT}
    facts |= {name: dict(facts[name]) for name in ("operation", "proposed", "source", "seen")}
    facts["assignment"] = asdict(assignment)
    gist = summary_line(" ".join(proposal.texts.values()) or proposal.gone, _TITLE_CHARS)
    abstract = ": ".join(filter(None, (proposal.title, gist)))
    trailer: dict[str, Any] = {_PROPOSAL: facts, "abstract": abstract, "created_at": proposal.at}
    if assignment.project is not None:
        trailer |= {"project": assignment.project} | ({"private": True} if proposal.private else {})
    return join(readable(proposal), trailer)


def parse_proposal(uri: MemoryUri, text: str) -> Proposal:
    """The proposal in a file's text.

    Raises:
        FieldRejected: If there is none.
    """
    file = split(text)
    trailer = file.trailer or {}
    facts = trailer.get(_PROPOSAL)
    kept = {name: value for name, value in facts.items() if name in _KEPT} if isinstance(facts, dict) else {}
    at, private = trailer.get("created_at"), trailer.get("private")
    found = read_members(Proposal, {**kept, "uri": uri, "at": at, "private": private})
    if found is None or found.op not in GROUPS or found.action not in ("created", "updated", "deleted"):
        raise _unreadable(uri)
    below = f"{_plain_text(file.body)}\n".partition(f"\n{_RULE}\n")[2].strip("\n")
    found = replace(found, sha256=text_sha256(text))
    return replace(found, gone=below) if found.op == "delete" else _with_texts(found, below)


def texts_shown(proposal: Proposal) -> str:
    """What would be stored, as it stands in the file; of several fields each below a heading."""
    if set(proposal.texts) <= {CONTENT}:
        return proposal.texts.get(CONTENT, "")

    def escaped(text: str) -> str:
        return "\n".join(f"\\{line}" if _heading(line, proposal.proposed) else line for line in text.split("\n"))

    return "\n\n".join(f"### {name}\n\n{escaped(text)}" for name, text in proposal.texts.items())


def _heading(line: str, names: Collection[str]) -> re.Match[str] | None:
    """The heading of one of these fields, or a line of a text that looks like one."""
    found = _HEADING.fullmatch(line)
    return found if found is not None and found[2] in names else None


def _facts(proposal: Proposal) -> list[str]:
    """What the operation says beside the texts."""
    data = dict(proposal.operation.get("memory_data") or proposal.operation)
    fields = [(name, value) for name, value in (data.get("fields") or {}).items() if name not in proposal.texts]
    names = ("salience", "confidence", "tags", "pinned", "expires_at", "active", "reason", "replacement_uri")
    others = [(name, data.get(name)) for name in names]
    lines = [f"{name}: {value}" for name, value in (*fields, *others) if value is not None]
    lines += [f"link: {link.get('relation')} {link.get('uri')}" for link in data.get("links") or ()]
    lines += [f"because: {proposal.reason}"] if proposal.reason else []
    return [summary_line(line, _LINE_CHARS) for line in lines]


def _plain_text(text: str) -> str:
    """The text as editors leave it: one kind of line break, and none at its ends."""
    return text.replace("\r\n", "\n").replace("\r", "\n").strip("\n")


def _with_texts(proposal: Proposal, shown: str) -> Proposal:
    """The proposal with the texts that are shown; a heading that names none of its fields is text."""
    names = tuple(proposal.proposed)
    if set(names) <= {CONTENT}:
        return replace(proposal, texts=dict.fromkeys(names, shown))
    texts: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in shown.split("\n"):
        heading = _heading(line, names)
        if heading is not None and not heading[1] and heading[2] not in texts:
            lines = texts.setdefault(heading[2], [])
        else:
            lines.append(line[1:] if heading is not None and heading[1] else line)
    found = {name: "\n".join(texts[name]).strip("\n") for name in names if name in texts}
    return replace(proposal, texts=found)


def _without_heading(proposal: Proposal) -> str:
    """The names of the fields that its text does not show."""
    return ", ".join(name for name in proposal.proposed if name not in proposal.texts)


def _operation_with(op: str, operation: dict[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """The operation with these texts as whole values."""
    if op == "write":
        data = dict(operation.get("memory_data") or {})
        return {**operation, "memory_data": {**data, "fields": {**(data.get("fields") or {}), **texts}}}
    if op == "edit":
        return {**operation, "patches": {**(operation.get("patches") or {}), **texts}}
    return {**operation, **texts} if op == "overview" else operation


def _unreadable(uri: MemoryUri) -> FieldRejected:
    return FieldRejected(
        f"{str(uri)!r} holds no proposal that can be read.",
        hint="Undo the edit of its last lines, or reject it: runebook review reject.",
    )


#: Proposals, and characters of them, that one answer shows.
_SHOWN_MOST, _SHOWN_CHARS = 100, 1_000_000
KIND_ACCEPT, KIND_REJECT = "accept", "reject"
_Operation = WriteOp | EditOp | DeleteOp | OverviewOp


def _propose(
    operations: MemoryOperations, snapshot: Snapshot, context: PlanContext, moment: datetime, features: Features
) -> ChangeSet:
    """Keep operations for the owner: a file for each that would change something.

    The arguments are those of ``decide``.

    Returns:
        The new files. A result for each operation: ``queued`` for what waits, else what the plan says of it.
    """
    decided = decide(operations, snapshot, context, moment, features)
    proposer = _Proposer(snapshot, context, moment, features, escaped(operations.reasoning or ""), decided)
    results = [
        proposer.keep(op, operation, result)
        for (op, operation), result in zip(_listed(operations), decided.results, strict=True)
    ]
    return ChangeSet(tuple(proposer.changes.values()), tuple(results), notes=decided.notes)


@dataclass(frozen=True, slots=True)
class _Proposer:
    """Makes proposals of the operations of one commit."""

    snapshot: Snapshot
    context: PlanContext
    moment: datetime
    features: Features
    reasoning: str
    decided: ChangeSet
    changes: dict[MemoryUri, FileChange] = field(default_factory=dict)

    def keep(self, op: str, operation: _Operation, result: OperationResult) -> OperationResult:
        """The result of an operation that is kept for the owner, if it would change anything."""
        if not result.action.is_change:
            return result
        action, effect = self._effect(op, operation, result)
        proposal = self._proposal(op, operation, action, effect)
        before = self.snapshot.text(proposal.uri)
        if before is not None or proposal.uri in self.changes:
            return OperationResult(op, str(proposal.uri), Action.UNCHANGED, note="waits for review already")
        if self._rejected(proposal.uri):
            return OperationResult(op, str(effect.uri), Action.UNCHANGED, note="its owner rejected this already")
        self.changes[proposal.uri] = FileChange(proposal.uri, None, render_proposal(proposal))
        note = f"waits for review: {proposal.title[0].lower()}{proposal.title[1:]}, at {proposal.target}"
        hint = f"The owner decides: runebook review accept {proposal.id} (or edit, reject)."
        return OperationResult(op, str(proposal.uri), Action.QUEUED, result.reason, hint, note)

    def _effect(self, op: str, operation: _Operation, result: OperationResult) -> tuple[Action, FileChange]:
        """What the operation does by itself; what it does among the others where it builds on one of them."""
        single = MemoryOperations.model_validate({GROUPS[op]: [operation]})
        alone = decide(single, self.snapshot, self.context, self.moment, self.features)
        decided, own = (alone, alone.results[0]) if alone.results[0].action.is_change else (self.decided, result)
        uri = MemoryUri.parse(own.uri)
        before = self.snapshot.text(uri)
        unchanged = FileChange(uri, before, before)
        return own.action, next((change for change in decided.changes if change.uri == uri), unchanged)

    def _proposal(self, op: str, operation: _Operation, action: Action, effect: FileChange) -> Proposal:
        given = operation.model_dump(mode="json", exclude_unset=True)
        own = operation.memory_data.source if isinstance(operation, WriteOp) else {}
        source = {name: str(value) for name, value in {**self.context.source, **own}.items()}
        texts = {name: _plain_text(text) for name, text in self._texts(operation, effect).items()}
        target, before = str(effect.uri), self.snapshot.text(effect.uri)
        identifier = short_hash(json.dumps([op, given, target, source.get("session_id")], sort_keys=True))
        return Proposal(
            uri=_proposal_uri(_review_folder(self.context.user_space), target, identifier),
            id=identifier,
            op=op,
            operation=given,
            action=str(action),
            target=target,
            texts=texts,
            proposed=texts,
            source=source,
            seen={} if before is None else {target: text_sha256(before)},
            assignment=self.context.assignment,
            private=self.context.assignment.is_private,
            at=self.context.now,
            reason=self.reasoning,
            gone=split(before or "").body if op == "delete" else "",
        )

    def _texts(self, operation: _Operation, effect: FileChange) -> Mapping[str, str]:
        """What would be stored, by field, as far as it is text that a person may want to edit."""
        after = effect.after or ""
        if isinstance(operation, OverviewOp):
            text = parse_page(after).authored if effect.uri.name == OVERVIEW_NAME else after
            return {name: text for name in ("abstract", "overview") if getattr(operation, name) is not None}
        fields: Mapping[str, Any] = {}
        if isinstance(operation, WriteOp):
            fields = operation.memory_data.fields
            if isinstance(fields.get(CONTENT), str):
                fields = {CONTENT: fields[CONTENT]}
        elif isinstance(operation, EditOp):
            memory = parse(effect.uri, after, self.context.registry)
            fields = {name: memory.fields.get(name) for name in operation.patches} if memory.type is not None else {}
        return {name: value for name, value in fields.items() if isinstance(value, str)}

    def _rejected(self, uri: MemoryUri) -> bool:
        """Whether the last that happened to a proposal of this name is that its owner rejected it."""
        last = self.snapshot.ledger.history(uri, limit=1)
        return bool(last) and last[0].kind == KIND_REJECT


def _listed(operations: MemoryOperations) -> Iterator[tuple[str, _Operation]]:
    """Operations in the order of a plan's results; an overview that sets two texts is two of them."""
    for op in ("write", "edit", "delete"):
        for operation in getattr(operations, GROUPS[op]):
            yield op, operation
    for overview in operations.overview_operations:
        for name in ("abstract", "overview"):
            if getattr(overview, name) is not None:
                directory = overview.directory_uri
                yield "overview", OverviewOp.model_validate({"directory_uri": directory, name: getattr(overview, name)})


def accepted(
    proposal: Proposal, text: str, snapshot: Snapshot, context: PlanContext, moment: datetime, features: Features
) -> ChangeSet:
    """What accepting a proposal changes: what it proposes, by the ordinary plan, and the proposal goes.

    What cannot be done as proposed, or would overwrite what changed since, is refused, and the proposal stays.

    Args:
        proposal: As its file says now.
        text: The file's text.
        snapshot: The store as it is.
        context: Of the commit.
        moment: Its time.
        features: Their kinds of records take writes.

    Raises:
        RunebookError: If the proposal holds no operation.
    """
    own = replace(
        context,
        source={**context.source, **proposal.source},
        assignment=proposal.assignment,
        seen=proposal.seen,
        reads_elsewhere=False,
        write_mode=WriteMode.REPLACE if proposal.edited else WriteMode.REFUSE,  # a person's words are meant as they are
    )
    decided = decide(proposal.operations(), snapshot, own, moment, features)
    if any(result.action is Action.REJECTED for result in decided.results) or not decided.results:
        return ChangeSet((), tuple(_still_waits(result, proposal) for result in decided.results), notes=decided.notes)
    note = "accepted, as edited" if proposal.edited else "accepted"
    result = OperationResult(KIND_ACCEPT, str(proposal.uri), Action.DELETED, note=note)
    return decided.with_file(FileChange(proposal.uri, text, None), result)


def _still_waits(result: OperationResult, proposal: Proposal) -> OperationResult:
    hint = f"Look at it as it is now, say what it is to be, and accept that: runebook review edit {proposal.id}."
    return replace(result, hint=hint if result.conflict else result.hint, note="still waits for review")


KIND_EDIT = "review"
_LOOK = "accepting is refused until you look at it and edit the proposal once more:"
_GIST_CHARS = 160
#: Memories are made before others link to them, and go last.
_ORDER = ("write", "edit", "overview", "delete")


def waiting(memory: Runebook) -> list[Proposal]:
    """What waits, oldest first."""
    return sorted(_each(memory, _files(memory)), key=_place)


def first_waiting(memory: Runebook) -> tuple[list[Proposal], int]:
    """What waits longest, as far as one answer shows it, and how many more wait."""
    order = sorted(map(_place, _each(memory, _files(memory))))
    shown, chars = list[Proposal](), 0
    for proposal in _each(memory, [uri for _, uri in order[:_SHOWN_MOST]]):
        chars += len(proposal.gone) + sum(map(len, proposal.texts.values()))
        if shown and chars > _SHOWN_CHARS:
            break
        shown.append(proposal)
    return shown, max(0, len(order) - len(shown))


def waiting_count(memory: Runebook) -> int:
    """How many files of proposals wait; none is read."""
    return len(_files(memory))


def named(memory: Runebook, name: str) -> Proposal:
    """The proposal of an id, the beginning of one, or a URI.

    Raises:
        NotFound: If none waits under this name.
        InvalidInput: If several do.
    """
    wanted, files = fold(name.strip()), _files(memory)
    likely = [uri for uri in files if fold(uri.name.rpartition(" ")[2]).startswith(wanted) or str(uri) == name.strip()]
    read = _each(memory, likely or files)  # a person may have renamed the file
    found = [each for each in read if fold(each.id).startswith(wanted) or str(each.uri) == name.strip()]
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
class ProposalsRequest:
    """Show proposals whole."""

    names: Annotated[Sequence[str], Arg(help="Ids, as runebook review prints them, or URIs.", positional=True)]


@dataclass(frozen=True, slots=True)
class DecisionRequest:
    """Decide on proposals.

    Attributes:
        expected: SHA-256 of proposals by URI, as whoever decides saw them: one that changed since is refused and waits.
    """

    names: Annotated[Sequence[str], Arg(help="Ids, as runebook review prints them, or URIs.", positional=True)]
    dry_run: Annotated[bool, Arg(help="Show what would change; store nothing.")] = False
    expected: Annotated[Mapping[str, str] | None, Arg(surfaces=NOWHERE)] = None
    now: Now = None


@dataclass(frozen=True, slots=True)
class EditRequest:
    """Edit what a proposal would store.

    Attributes:
        expected: SHA-256 of the proposal by its URI, as whoever edits it saw it.
        seen: Likewise of what it would change, empty where that was not there; what changed since is not overwritten.
            Where this is not said, it counts as seen as it is now.
    """

    name: Annotated[str, Arg(help="An id or URI.", positional=True)]
    text: Annotated[str, Arg(help="What is to be stored; of several fields each below its heading ### name.")]
    expected: Annotated[Mapping[str, str] | None, Arg(surfaces=NOWHERE)] = None
    seen: Annotated[Mapping[str, str] | None, Arg(surfaces=NOWHERE)] = None
    now: Now = None


def accept(memory: Runebook, request: DecisionRequest) -> list[CommitReceipt]:
    """Do what proposals propose, a commit for each; one that cannot be done is refused and still waits.

    Raises:
        InvalidInput: If none is named.
    """

    def planned(proposal: Proposal, text: str, snapshot: Snapshot, now: datetime) -> ChangeSet:
        return accepted(proposal, text, snapshot, memory.plan_context(now), now, memory.features)

    return _decide(memory, request, KIND_ACCEPT, planned)


def reject(memory: Runebook, request: DecisionRequest) -> list[CommitReceipt]:
    """Drop proposals, a commit for each; the same is not proposed again from the same conversation.

    Raises:
        InvalidInput: If none is named.
    """
    return _decide(memory, request, KIND_REJECT, _dropped)


def edit(memory: Runebook, request: EditRequest) -> list[CommitReceipt]:
    """Edit what a proposal would store.

    What it changes counts as seen: whoever edits it has looked.

    Raises:
        NotFound: If none waits under this name.
        InvalidInput: If it proposes no text, or the heading of a field is missing.
        ContentRejected: If the text holds a secret, and the settings refuse those.
        MemoryChanged: If somebody else edited it meanwhile.
    """
    proposal = named(memory, request.name)
    if not proposal.proposed:
        raise InvalidInput(f"proposal {proposal.id} stores no text.", hint="Accept or reject it.")
    given = _with_texts(proposal, _plain_text(request.text))
    if missing := _without_heading(given):
        raise InvalidInput(f"the text has no heading for {missing}.", hint=_HEADINGS_HINT)
    texts, notes = _cleared(memory, given.texts)

    def planned(snapshot: Snapshot) -> ChangeSet:
        before = snapshot.text(proposal.uri)
        if before is None:
            return ChangeSet((), (_decided_meanwhile(KIND_EDIT, proposal),))
        _expect_seen(proposal, before, request.expected)
        seen = target_seen(proposal, snapshot.text)
        noted = notes
        if request.seen is not None and request.seen != seen:
            noted = (*notes, f"{proposal.target} changed meanwhile: {_LOOK} runebook review edit {proposal.id}")
            seen = request.seen
        after = render_proposal(replace(parse_proposal(proposal.uri, before), texts=texts, seen=seen))
        action = Action.UNCHANGED if after == before else Action.UPDATED
        changes = () if after == before else (FileChange(proposal.uri, before, after),)
        return ChangeSet(changes, (OperationResult(KIND_EDIT, str(proposal.uri), action),), notes=noted)

    return [memory.store.commit(planned, kind=KIND_EDIT, now=_moment(request.now))]


def target_seen(proposal: Proposal, text_of: Callable[[MemoryUri], str | None]) -> Mapping[str, str]:
    """SHA-256 of what a proposal would change, by its URI; empty where nothing is there."""
    target = text_of(MemoryUri.parse(proposal.target))
    return {} if target is None else {proposal.target: text_sha256(target)}


def _cleared(memory: Runebook, texts: Mapping[str, str]) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """The texts as a commit that brings them would store them, and its notes."""
    write = {"memory_data": {"memory_type": "", "fields": dict(texts)}}
    cleared = memory.commits.cleaner.operations(MemoryOperations.model_validate({GROUPS["write"]: [write]}))
    for refused in cleared.refused:
        raise ContentRejected(refused.reason or "", hint=refused.hint or "")
    (kept,) = cleared.operations.write_operations
    return {name: str(value) for name, value in kept.memory_data.fields.items()}, cleared.notes


def show(memory: Runebook, request: ProposalsRequest) -> list[Proposal]:
    """Proposals by their names.

    Raises:
        InvalidInput: If none is named, or a name could be that of several.
        NotFound: If one does not wait.
    """
    if not request.names:
        raise InvalidInput("no proposal is named.", hint="Give its id, as runebook review prints it.")
    return [named(memory, name) for name in request.names]


def _waiting_text(found: Sequence[Proposal]) -> str:
    lines = [f"{each.id}  {each.title}\n    {_gist(each)}" for each in found]
    if found:
        lines.append("runebook review show ID | accept ID… | edit ID | reject ID… (or --all)")
    return "\n".join(lines) or "Nothing waits for review."


def _gist(proposal: Proposal) -> str:
    text = " ".join(proposal.texts.values()) or proposal.gone
    whence = f"session {proposal.session}, " if proposal.session else ""
    return f"{summary_line(text, _GIST_CHARS) or proposal.target} ({whence}{proposal.at[:10]})"


def _shown_text(found: Sequence[Proposal]) -> str:
    return "\n\n".join(f"{readable(each)}\n\nfile: {each.uri}" for each in found)


def _has_refusals(receipts: Sequence[CommitReceipt]) -> bool:
    return any(receipt.has_refusals for receipt in receipts)


REVIEW = Command(
    "review list", ReviewRequest, lambda memory, _request: waiting(memory), member="waiting", text=_waiting_text
)
SHOW = Command("review show", ProposalsRequest, show, member="proposals", text=_shown_text)
ACCEPT = Command("review accept", DecisionRequest, accept, member="receipts", fails=_has_refusals, writes=True)
REJECT = Command("review reject", DecisionRequest, reject, member="receipts", fails=_has_refusals, writes=True)
EDIT = Command("review edit", EditRequest, edit, member="receipts", fails=_has_refusals, writes=True)
FEATURE = Feature(commands=(REVIEW, SHOW, ACCEPT, REJECT, EDIT), reviewer=_propose)

Change = Callable[[Proposal, str, Snapshot, datetime], ChangeSet]


def _decide(memory: Runebook, request: DecisionRequest, kind: str, change: Change) -> list[CommitReceipt]:
    if not request.names:
        raise InvalidInput("no proposal is named.", hint="Give its id, as runebook review prints it, or --all.")
    now = _moment(request.now)
    chosen = {proposal.uri: proposal for proposal in (named(memory, name) for name in request.names)}
    receipts: list[CommitReceipt] = []
    for proposal in sorted(chosen.values(), key=lambda each: _ORDER.index(each.op)):
        planned = partial(_planned, kind, proposal, request.expected, change, now)
        receipts.append(memory.indexed(memory.store.commit(planned, kind=kind, now=now, dry_run=request.dry_run)))
    return receipts


def _planned(
    kind: str,
    proposal: Proposal,
    expected: Mapping[str, str] | None,
    change: Change,
    now: datetime,
    snapshot: Snapshot,
) -> ChangeSet:
    text = snapshot.text(proposal.uri)
    if text is None:
        return ChangeSet((), (_decided_meanwhile(kind, proposal),))
    try:
        _expect_seen(proposal, text, expected)
        return change(parse_proposal(proposal.uri, text), text, snapshot, now)
    except RunebookError as error:
        return ChangeSet((), (refusal(kind, str(proposal.uri), error),))


def _each(memory: Runebook, uris: Iterable[MemoryUri]) -> Iterator[Proposal]:
    """The proposals of these files, one by one: all of them together may take much memory."""
    for uri in uris:
        if (text := memory.store.text(uri)) is not None:  # else it was decided this moment
            with suppress(RunebookError):
                yield parse_proposal(uri, text)


def _place(proposal: Proposal) -> tuple[str, MemoryUri]:
    """Where it stands in the order in which proposals wait."""
    return proposal.at, proposal.uri


def _files(memory: Runebook) -> list[MemoryUri]:
    folder = _review_folder(memory.config.user_space)
    files = memory.store.files
    try:
        entries = list(files.entries(folder)) if files.is_dir(folder) else []
    except RunebookError:
        if files.is_dir(folder):
            raise
        entries = []  # the last one was decided this moment, and its folder went
    return [entry.uri for entry in entries if not entry.is_dir and entry.uri.name.endswith(".md")]


def _moment(now: datetime | None) -> datetime:
    return now or datetime.now().astimezone()


def _dropped(proposal: Proposal, text: str, _snapshot: Snapshot, _now: datetime) -> ChangeSet:
    note = f"rejected; {proposal.target} stays as it is"
    result = OperationResult(KIND_REJECT, str(proposal.uri), Action.DELETED, note=note)
    return ChangeSet((FileChange(proposal.uri, text, None),), (result,))


def _expect_seen(proposal: Proposal, text: str, expected: Mapping[str, str] | None) -> None:
    """Refuse a proposal that is not as its caller saw it or, where that is not said, as it was a moment ago.

    Raises:
        MemoryChanged: If it is not.
    """
    if text_sha256(text) != (expected or {}).get(str(proposal.uri), proposal.sha256):
        raise MemoryChanged(
            f"somebody edited proposal {proposal.id} meanwhile; it still waits.",
            hint=f"Look at it again: runebook review show {proposal.id}.",
            uri=str(proposal.uri),
        )


def _decided_meanwhile(kind: str, proposal: Proposal) -> OperationResult:
    return OperationResult(
        kind,
        str(proposal.uri),
        Action.REJECTED,
        "it no longer waits: somebody accepted or rejected it meanwhile.",
        "See what became of it with: runebook history.",
    )
