"""What one batch of imported files does to a store: which are new, which differ from what is there, and then what.

Plans only; the commit is the store's. A file differs from what is there when its place is taken, when another file
of its directory holds the same memory, or when a name differs from it only in ways that some file system ignores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from memory_core.errors import RunebookError
from memory_core.index.documents import is_session_log
from memory_core.lifecycle.transfer.archive import Problem
from memory_core.model import filename
from memory_core.model.changes import Action, ChangeSet, FileChange, OperationResult
from memory_core.model.operations import Link
from memory_core.model.uri import MemoryUri, Scope
from memory_core.registry import MemoryTypeRegistry
from memory_core.storage.store import Snapshot, Store
from memory_core.update.bounds import Context
from memory_core.update.draft import Draft
from memory_core.update.links import link
from memory_core.update.summaries import refresh
from memory_core.update.updater import identify

_SPACE_PARTS = 2


class OnConflict(StrEnum):
    """What happens to an imported file that differs from what is there."""

    KEEP = "keep"
    REPLACE = "replace"
    BOTH = "both"


@dataclass(slots=True)
class Outcome:
    """What became of the files of one import, by URI; ``beside`` pairs a present file with the one put next to it."""

    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    kept: list[Problem] = field(default_factory=list)
    beside: list[tuple[str, str]] = field(default_factory=list)
    refused: list[Problem] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Append another batch's outcome."""
        self.created += other.created
        self.updated += other.updated
        self.unchanged += other.unchanged
        self.kept += other.kept
        self.beside += other.beside
        self.refused += other.refused


class ImportBatch:
    """The plan of one commit.

    Args:
        store: The store; only read here.
        registry: The memory types.
        texts: The files of the batch, by the URI they are to have.
        policy: What happens to those that differ.
        summaries: Directory summaries that come with the import; none is made anew in their place.
        context: Time, types and spaces of the commit.
    """

    def __init__(
        self,
        store: Store,
        registry: MemoryTypeRegistry,
        texts: Mapping[MemoryUri, str],
        policy: OnConflict,
        summaries: frozenset[MemoryUri],
        context: Context,
    ) -> None:
        self._store = store
        self._registry = registry
        self._texts = texts
        self._policy = policy
        self._summaries = summaries
        self._context = context
        self.outcome = Outcome()
        self._results: list[OperationResult] = []
        self._after: dict[MemoryUri, tuple[str | None, str]] = {}
        self._names: dict[tuple[MemoryUri, str], MemoryUri] = {}
        self._keys: dict[tuple[MemoryUri, str, str], MemoryUri] = {}

    def plan(self, snapshot: Snapshot) -> ChangeSet:
        """The batch's changes; a file that cannot be taken is refused alone."""
        for uri, text in self._texts.items():
            try:
                self._place(uri, text, snapshot)
            except RunebookError as error:
                self._refuse(uri, error.message)
        changes = [self._change(uri, before, after) for uri, (before, after) in self._after.items()]
        return self._with_summaries(ChangeSet(tuple(changes), tuple(self._results)), snapshot)

    def _place(self, uri: MemoryUri, text: str, snapshot: Snapshot) -> None:
        obstacle = self._obstacle(uri)
        if obstacle is not None:
            self._refuse(uri, obstacle)
            return
        present = self._text(uri, snapshot)
        if present == text:
            self._note(uri, Action.UNCHANGED)
        elif uri.is_summary:
            if present is None and uri in self._summaries:
                self._put(uri, None, text, Action.CREATED)
        elif is_session_log(uri) and present is not None and (text.startswith(present) or present.startswith(text)):
            if len(text) > len(present):
                self._put(uri, present, text, Action.UPDATED, "the conversation went on")
            else:
                self._note(uri, Action.UNCHANGED)
        else:
            rival, why = (uri, "it differs") if present is not None else self._rival(uri, text, snapshot)
            if rival is None:
                self._put(uri, None, text, Action.CREATED)
            else:
                self._settle(uri, text, rival, why, snapshot)

    def _settle(self, uri: MemoryUri, text: str, rival: MemoryUri, why: str, snapshot: Snapshot) -> None:
        """Follow the policy for a file that differs from ``rival``, which is there."""
        there = self._text(rival, snapshot)
        if there == text:
            self._note(rival, Action.UNCHANGED)
        elif self._policy is OnConflict.KEEP:
            self.outcome.kept.append(Problem(str(uri), why if rival == uri else f"{why}: {rival}"))
            self._results.append(OperationResult("import", str(uri), Action.UNCHANGED, note=f"kept: {why}"))
        elif self._policy is OnConflict.REPLACE:
            self._put(rival, there, text, Action.UPDATED, None if rival == uri else f"imported from {uri}")
        else:
            self._put_beside(uri, text, rival, snapshot)

    def _put_beside(self, uri: MemoryUri, text: str, rival: MemoryUri, snapshot: Snapshot) -> None:
        beside = _beside(uri, text)
        if self._text(beside, snapshot) is not None:  # put there by an earlier import, and linked since
            self._note(beside, Action.UNCHANGED)
            return
        self._put(beside, None, text, Action.CREATED, f"beside {rival}")
        self.outcome.beside.append((str(rival), str(beside)))
        self._link(beside, rival, snapshot)

    def _link(self, beside: MemoryUri, rival: MemoryUri, snapshot: Snapshot) -> None:
        """Let two versions of a memory know of each other; what is no memory of a type has no links."""
        draft = Draft(snapshot, self._context_at(beside))
        for uri in (beside, rival):
            text = self._text(uri, snapshot)
            if text is None or uri.scope not in (Scope.USER, Scope.AGENT):
                return
            draft.put(uri, text)
        try:
            link(draft, beside, [Link(uri=str(rival), relation="similar")])
        except RunebookError:
            return  # a present file whose trailer is broken, or of no type: it stays as it is
        for uri in (beside, rival):
            linked = draft.text(uri)
            if linked is not None and linked != self._text(uri, snapshot):
                self._after[uri] = (self._before(uri, snapshot), linked)

    def _rival(self, uri: MemoryUri, text: str, snapshot: Snapshot) -> tuple[MemoryUri | None, str]:
        """The file that stands for the same memory, or whose name is a twin of this one's."""
        folded = (uri.parent, filename.fold(uri.name))
        if folded in self._names:
            return self._names[folded], "its name is a twin of another's"
        memory_type, key = identify(self._registry, uri, text)
        if key:
            found = self._keys.get((uri.parent, memory_type, key)) or snapshot.locate(uri.parent, memory_type, key)
            if found is not None and found != uri and self._text(found, snapshot) is not None:
                return found, "another file holds this memory"
        if not snapshot.name_taken(uri.parent, uri.name):
            return None, ""
        for entry in self._store.files.entries(uri.parent) if self._store.files.is_dir(uri.parent) else ():
            if entry.uri != uri and filename.fold(entry.uri.name) == folded[1]:
                return entry.uri, "its name is a twin of another's"
        return None, ""

    def _obstacle(self, uri: MemoryUri) -> str | None:
        """Why no file can be here: the name is a folder's, or a folder's name is a file's."""
        if self._store.files.is_dir(uri):
            return "a folder of this name is there"
        for depth in range(_SPACE_PARTS, len(uri.parts)):
            above = MemoryUri(uri.parts[:depth])
            if above in self._after or (self._store.files.stat(above) and not self._store.files.is_dir(above)):
                return f"{above} is a file, not a folder"
        return None

    def _text(self, uri: MemoryUri, snapshot: Snapshot) -> str | None:
        return self._after[uri][1] if uri in self._after else snapshot.text(uri)

    def _before(self, uri: MemoryUri, snapshot: Snapshot) -> str | None:
        return self._after[uri][0] if uri in self._after else snapshot.text(uri)

    def _put(self, uri: MemoryUri, before: str | None, text: str, action: Action, note: str | None = None) -> None:
        if uri in self._after:
            before = self._after[uri][0]
        self._after[uri] = (before, text)
        self._names[uri.parent, filename.fold(uri.name)] = uri
        memory_type, key = identify(self._registry, uri, text)
        if key:
            self._keys[uri.parent, memory_type, key] = uri
        self._note(uri, action, note)

    def _note(self, uri: MemoryUri, action: Action, note: str | None = None) -> None:
        named = {Action.CREATED: self.outcome.created, Action.UPDATED: self.outcome.updated}
        named.get(action, self.outcome.unchanged).append(str(uri))
        if action is not Action.UNCHANGED:
            self._results.append(OperationResult("import", str(uri), action, note=note))

    def _refuse(self, uri: MemoryUri, reason: str) -> None:
        self.outcome.refused.append(Problem(str(uri), reason))
        hint = "Rename what is in the way, then import again."
        self._results.append(OperationResult("import", str(uri), Action.REJECTED, reason, hint))

    def _change(self, uri: MemoryUri, before: str | None, after: str) -> FileChange:
        if is_session_log(uri):
            grown = before is not None and after.startswith(before)
            return FileChange(uri, before, after, "", uri.parent.name, appended=grown)
        return FileChange(uri, before, after, *identify(self._registry, uri, after))

    def _context_at(self, uri: MemoryUri) -> Context:
        """The context of the space that a file is in."""
        space = uri.parts[1]
        if uri.scope is Scope.AGENT:
            return replace(self._context, agent_space=space)
        return replace(self._context, user_space=space)

    def _with_summaries(self, change_set: ChangeSet, snapshot: Snapshot) -> ChangeSet:
        """The change set with its directories' summaries, but for those that the import brings."""
        done: dict[MemoryUri, FileChange] = {change.uri: change for change in change_set.changes}
        notes: tuple[str, ...] = ()
        brought = [change for change in change_set.changes if change.uri.is_summary]
        for space in dict.fromkeys(change.uri.space for change in change_set.changes if change not in brought):
            own = [change for change in change_set.changes if change.uri.space == space and change not in brought]
            refreshed = refresh(ChangeSet(tuple(own)), snapshot, self._context_at(own[0].uri))
            notes += refreshed.notes
            done |= {change.uri: change for change in refreshed.changes if change.uri not in self._summaries}
        return replace(change_set, changes=tuple(done.values()), notes=notes)


def _beside(uri: MemoryUri, text: str) -> MemoryUri:
    """Where a file goes whose own place is taken: the same place for the same text, however often it comes."""
    mark = "~" + filename.short_hash(text)
    if is_session_log(uri):
        return uri.parent.parent.child(filename.fit(uri.parent.name, "", mark)).child(uri.name)
    stem, dot, extension = uri.name.rpartition(".")
    return uri.parent.child(filename.fit(stem, dot + extension, mark) if stem else filename.fit(uri.name, "", mark))


def space_mapping(uris: Sequence[MemoryUri], into: tuple[str, str] | None) -> dict[str, str]:
    """Which space becomes which: ``user/a`` → ``user/b``; empty where nothing moves."""
    if into is None:
        return {}
    user, agent = into
    targets = {Scope.USER.value: user, Scope.AGENT.value: agent, Scope.SESSION.value: user}
    found: dict[str, str] = {}
    for uri in uris:
        scope, space = uri.parts[uri.scope is Scope.ARCHIVE :][:_SPACE_PARTS]
        if scope in targets and space != targets[scope]:
            found[f"{scope}/{space}"] = f"{scope}/{targets[scope]}"
    return found
