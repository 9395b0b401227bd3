"""The file of a proposal: one operation that waits for the owner, readable above, complete in its trailer. Pure.

::

    # Would create facts: Coffee

    - where: viking://user/default/memories/facts/Coffee.md
    - from: session s1

    ---

    Drinks coffee black.

What stands below the first line ``---`` is the text that is stored, as a person may have edited it; where an operation
sets several fields, each stands below a heading ``### name``. The trailer holds the operation as it was proposed, and
what its author saw of the file. Promises that ``parse_proposal(render_proposal(p))`` is ``p``, unedited.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from memory_core.errors import FieldRejected
from memory_core.model.filename import fit
from memory_core.model.memory_file import MemoryFile, dump, parse
from memory_core.model.operations import MemoryOperations
from memory_core.model.project import Belonging
from memory_core.model.record import CONTENT, summary_line
from memory_core.model.uri import REVIEW_FOLDER, MemoryUri, Scope

#: Members of ``MemoryOperations``, by the short name of the operation.
GROUPS: Mapping[str, str] = {name: f"{name}_operations" for name in ("write", "edit", "delete", "overview")}
_PROPOSAL = "proposal"
_RULE = "---"
_HEADING = re.compile(r"### ([A-Za-z_]\w*)")
_TITLE_CHARS = 120
_NAME_CHARS = 60
_LINE_CHARS = 300


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
        seen: SHA-256 of the target as it was when this was proposed, by URI; without the target: it was not there.
        belonging: The project of the conversation.
        private: Whether the proposal itself is for its project only.
        at: When, ISO 8601 in UTC.
        reason: Why, in the words of whoever proposed it.
        gone: Of a deletion: what goes.
    """

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
    belonging: Belonging = field(default_factory=Belonging)
    private: bool = False
    at: str = ""
    reason: str = ""
    gone: str = ""

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

    def operations(self) -> MemoryOperations:
        """The operation, with what a person made of its texts.

        Raises:
            FieldRejected: If a hand edit of the trailer left no operation.
        """
        operation = dict(self.operation)
        if self.edited:
            operation = _with_texts(self.op, operation, self.texts)
        try:
            parsed = MemoryOperations.model_validate({GROUPS[self.op]: [operation]})
        except ValueError:
            raise _unreadable(self.uri) from None
        for write in parsed.write_operations:
            write.memory_data.sourced(self.source)
        return parsed

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "id": self.id,
            "uri": str(self.uri),
            "would": self.action,
            "target": self.target,
            "texts": dict(self.texts),
            "edited": self.edited,
            "session_id": self.session,
            "at": self.at,
            "reason": self.reason,
        }


def review_folder(user_space: str) -> MemoryUri:
    """Where a user's proposals are."""
    return MemoryUri((Scope.USER.value, user_space, REVIEW_FOLDER))


def proposal_uri(folder: MemoryUri, target: str, identifier: str) -> MemoryUri:
    """The file of a proposal: named after what it is about, and by its id."""
    name = target.rsplit("/", 1)[-1].removesuffix(".md").lstrip(".")[:_NAME_CHARS]
    return folder.child(fit(name, ".md", f" {identifier}"))


def readable(proposal: Proposal) -> str:
    """The file's text without its trailer."""
    lines = [f"# {proposal.title}", "", f"- where: {proposal.target}"]
    if proposal.session:
        lines.append(f"- from: session {proposal.session}")
    lines += [f"- {line}" for line in _said(proposal)]
    body = "\n".join([*lines, f"- accept, edit or reject it: runebook review accept {proposal.id}"])
    shown = proposal.gone if proposal.op == "delete" else _sections(proposal.texts)
    return f"{body}\n\n{_RULE}\n\n{shown}".rstrip("\n")


def render_proposal(proposal: Proposal) -> str:
    """The file's text."""
    belonging = proposal.belonging
    facts = {
        "id": proposal.id,
        "op": proposal.op,
        "action": proposal.action,
        "target": proposal.target,
        "operation": dict(proposal.operation),
        "proposed": dict(proposal.proposed),
        "source": dict(proposal.source),
        "seen": dict(proposal.seen),
        "belonging": {name: getattr(belonging, name) for name in ("project", "named", "private", "by_default")},
        "reason": proposal.reason,
    }
    gist = summary_line(" ".join(proposal.texts.values()) or proposal.gone, _TITLE_CHARS)
    abstract = ": ".join(filter(None, (proposal.title, gist)))
    trailer: dict[str, Any] = {_PROPOSAL: facts, "abstract": abstract, "created_at": proposal.at}
    if belonging.project is not None:
        trailer |= {"project": belonging.project} | ({"private": True} if proposal.private else {})
    return dump(MemoryFile(readable(proposal), trailer))


def parse_proposal(uri: MemoryUri, text: str) -> Proposal:
    """The proposal in a file's text.

    Raises:
        FieldRejected: If there is none.
    """
    file = parse(text)
    trailer = file.trailer or {}
    facts = trailer.get(_PROPOSAL)
    if not isinstance(facts, dict):
        raise _unreadable(uri)
    try:
        found = Proposal(
            uri=uri,
            id=str(facts["id"]),
            op=str(facts["op"]),
            operation=dict(facts["operation"]),
            action=str(facts["action"]),
            target=str(facts["target"]),
            proposed={str(name): str(value) for name, value in facts["proposed"].items()},
            source={str(name): str(value) for name, value in facts["source"].items()},
            seen={str(name): str(value) for name, value in facts["seen"].items()},
            belonging=Belonging(**facts["belonging"]),
            private=trailer.get("private") is True,
            at=str(trailer.get("created_at", "")),
            reason=str(facts.get("reason", "")),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _unreadable(uri) from None
    if found.op not in GROUPS or found.action not in ("created", "updated", "deleted"):
        raise _unreadable(uri)
    shown = _below_rule(file.body)
    if found.op == "delete":
        return replace(found, gone=shown)
    return replace(found, texts=_texts(shown, tuple(found.proposed)))


def rewritten(proposal: Proposal, text: str) -> Proposal:
    """The proposal with what a person wants stored instead; of several fields with a heading for each."""
    return replace(proposal, texts=_texts(plain_text(text), tuple(proposal.proposed)))


def texts_shown(proposal: Proposal) -> str:
    """What would be stored, as it stands in the file."""
    return _sections(proposal.texts)


def _said(proposal: Proposal) -> list[str]:
    """What the operation says beside the texts."""
    data = dict(proposal.operation.get("memory_data") or proposal.operation)
    fields = {**(data.get("fields") or {})}
    others = {name: value for name, value in fields.items() if name not in proposal.texts and value is not None}
    lines = [f"{name}: {value}" for name, value in others.items()]
    for name in ("salience", "confidence", "tags", "pinned", "expires_at", "active", "reason", "replacement_uri"):
        if data.get(name) is not None:
            lines.append(f"{name}: {data[name]}")
    for link in data.get("links") or ():
        lines.append(f"link: {link.get('relation')} {link.get('uri')}")
    if proposal.reason:
        lines.append(f"because: {proposal.reason}")
    return [summary_line(line, _LINE_CHARS) for line in lines]


def _sections(texts: Mapping[str, str]) -> str:
    if set(texts) <= {CONTENT}:
        return texts.get(CONTENT, "")
    return "\n\n".join(f"### {name}\n\n{text}" for name, text in texts.items())


def _below_rule(body: str) -> str:
    _, rule, below = f"{plain_text(body)}\n".partition(f"\n{_RULE}\n")
    return below.strip("\n") if rule else ""


def plain_text(text: str) -> str:
    """The text as editors leave it: one kind of line break, and none at its ends."""
    return text.replace("\r\n", "\n").replace("\r", "\n").strip("\n")


def _texts(shown: str, names: Sequence[str]) -> dict[str, str]:
    """Texts by field; a heading that names no field of the proposal is text."""
    if set(names) <= {CONTENT}:
        return dict.fromkeys(names, shown)
    texts: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in shown.split("\n"):
        found = _HEADING.fullmatch(line.rstrip())
        if found is not None and found[1] in names and found[1] not in texts:
            lines = texts.setdefault(found[1], [])
        else:
            lines.append(line)
    return {name: "\n".join(texts[name]).strip("\n") for name in names if name in texts}


def _with_texts(op: str, operation: dict[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
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
