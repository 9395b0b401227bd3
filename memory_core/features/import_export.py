"""Import of what ``export`` wrote, into any store.

Everything is checked first. Then file by file is taken, in commits that can be undone; what is here already is left
alone, so an import that was cut short is completed by the next. The setting for secrets holds for what comes in, which
is why the redaction is asked here. Texts are never logged.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from memory_core.core.commit.links import link, linked_uris, retargeted
from memory_core.core.commit.working_copy import PlanContext, WorkingCopy
from memory_core.core.errors import ContentRejected, InvalidInput, InvalidUri, RunebookError
from memory_core.core.index.documents import is_session_log
from memory_core.core.memory import names
from memory_core.core.memory.directory_page import recorded
from memory_core.core.memory.memory import identify
from memory_core.core.memory.operations import GivenLink
from memory_core.core.memory.results import (
    Action,
    ChangeSet,
    CommitReceipt,
    FileChange,
    OperationResult,
    SessionProgress,
    text_sha256,
)
from memory_core.core.memory.trailer import join, split
from memory_core.core.memory.uri import MemoryUri, Scope, space_of
from memory_core.core.progress import tell
from memory_core.core.store.files import FileStore
from memory_core.core.store.ledger_snapshot import insert_history
from memory_core.core.store.local import Snapshot
from memory_core.features.export import marked
from memory_core.features.export_file import EXPORT, ExportedFile, OpenExport, Problem, open_export
from memory_core.features.redaction import redaction_of

if TYPE_CHECKING:
    from memory_core.core.store.ledger import Ledger
    from memory_core.runebook import Runebook

_SPACE_PARTS = 2
_FLAGS = ("appended", "purged")
_BATCH_FILES = 500
_BATCH_BYTES = 16 * 1024**2
_SHOWN = 3
_IN_THE_WAY = "Rename what is in the way, then import again."


class OnConflict(StrEnum):
    """What happens to an imported file that differs from what is there."""

    KEEP = "keep"
    REPLACE = "replace"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Beside:
    """A file that is here, and the imported one that was put beside it."""

    uri: str
    imported: str


@dataclass(slots=True)
class Import:
    """What an import did or, as a dry run, would do; files by their URI.

    Attributes:
        dry_run: Whether nothing was written.
        created: Files that are new here.
        updated: Files that were replaced, or conversations that went on.
        unchanged_uris: Files that are here as they are there.
        kept: Files that differ here and stay, and why.
        beside: Files that differ here and stay beside the imported ones.
        refused: What could not be taken, and why.
        history: Commits of the export's history that were taken.
        commits: The commits made here, oldest first; each can be undone.
        notes: What else is worth knowing.
    """

    JSON: ClassVar = "dry_run created updated unchanged kept beside refused history commits notes"

    dry_run: bool
    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    unchanged_uris: list[str] = field(default_factory=list)
    kept: list[Problem] = field(default_factory=list)
    beside: list[Beside] = field(default_factory=list)
    refused: list[Problem] = field(default_factory=list)
    history: int = 0
    commits: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def unchanged(self) -> int:
        """How many files are here as they are there."""
        return len(self.unchanged_uris)

    def lines(self) -> Iterator[str]:
        """Text form: a line for each file that needs a look, then the counts."""
        yield from (f"kept     {problem.name}  ({problem.reason})" for problem in self.kept)
        yield from (f"beside   {pair.uri}\n      -> {pair.imported}" for pair in self.beside)
        yield from (f"refused  {problem.name}  ({problem.reason})" for problem in self.refused)
        yield from self.notes
        if self.kept:
            yield "To take the others as well: --on-conflict both puts them beside yours, replace in their place."
        would = "would be " if self.dry_run else ""
        yield (
            f"{len(self.created)} {would}created, {len(self.updated)} {would}updated, {self.unchanged} unchanged, "
            f"{len(self.kept)} kept as they are here, {len(self.refused)} refused."
        )
        if self.unchanged_uris and not (self.created or self.updated or self.kept or self.beside or self.refused):
            every = "the one file is" if self.unchanged == 1 else f"all {self.unchanged} files are"
            yield f"Nothing new: {every} here already, as in the export."
        if self.commits:
            yield f"Undo with: {'; '.join(f'runebook undo {commit}' for commit in reversed(self.commits))}"


def import_export(
    memory: Runebook,
    path: Path,
    *,
    on_conflict: OnConflict = OnConflict.KEEP,
    into: tuple[str, str] | None = None,
    partial: bool = False,
    dry_run: bool = False,
    now: datetime | None = None,
) -> Import:
    """Bring an export, zip or JSON lines, into a store.

    Args:
        memory: The store; others may go on using it.
        path: The export.
        on_conflict: What happens to files that differ from what is there.
        into: User and agent space that everything goes to; default each file's own.
        partial: Take what is sound of a damaged export.
        dry_run: Plan only, each batch for itself.
        now: Time of the commits; default the clock's.

    Raises:
        InvalidInput: If the export is damaged and ``partial`` is not given. Nothing was written.
        StoreBusy: If another writer held the store too long. Batches before that are done; import again.
        StorageFailed: If the disk refuses. Batches before that are done; import again.
    """
    moment = now or datetime.now(UTC)
    with open_export(path) as export:
        if export.problems and not partial:
            raise _damaged(export.problems)
        memory.store.adopt()
        run = _Run(memory, export, on_conflict, into, moment, Import(dry_run, refused=list(export.problems)))
        run.take_history(partial=partial)
        run.take_files()
        if not dry_run:
            run.take_queue()
    memory.indexer.follow()
    return run.done


def _damaged(problems: list[Problem]) -> InvalidInput:
    shown = "; ".join(f"{problem.name}: {problem.reason}" for problem in problems[:_SHOWN])
    more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return InvalidInput(
        f"the export is damaged, and nothing was imported: {shown}{more}.",
        hint=EXPORT.damaged,
    )


class _Run:
    """One import under way."""

    def __init__(
        self,
        memory: Runebook,
        export: OpenExport,
        on_conflict: OnConflict,
        into: tuple[str, str] | None,
        moment: datetime,
        done: Import,
    ) -> None:
        self._store = memory.store
        self._export = export
        self._policy = on_conflict
        self._moment = moment
        self._stamp = moment.astimezone(UTC).isoformat(timespec="seconds")
        self._context = memory.plan_context(moment)
        self._redaction = redaction_of(memory.config)
        self._spaces = _space_mapping([file.uri for file in export.files], into)
        #: A database keeps users apart: what is of another one would be found by nobody.
        self._holds_one_user = memory.store.ledger.database.is_remote
        self._files = self._placed()
        self.done = done

    def take_history(self, *, partial: bool) -> None:
        """Take the export's history, if there is one, it may be kept, and the store has none of its own."""
        commits = self._export.history()
        if commits is None:
            return
        try:
            reason = self._history_obstacle()
            if reason is None:
                checked = _all_checked(commits)
                taken = insert_history if not self.done.dry_run else _counted
                self.done.history = taken(self._store.ledger, checked)
                return
        except InvalidInput as error:
            if not partial:
                raise
            reason = error.message
        self.done.notes.append(f"The history was left out: {reason}")

    def _history_obstacle(self) -> str | None:
        """Why the history cannot be taken."""
        if self._spaces:
            return "it speaks of the spaces that the export came from."
        if self._store.ledger.newest_seq():
            return "this store has one of its own."
        if self._holds_one_user and any(
            map(self._cannot_be_here, _texts_of(_all_checked(self._export.history() or ())))
        ):
            return "it holds the character NUL, or texts of another user, which a database keeps apart."
        if not all(self._redaction.keeps(commit) for commit in self._export.history() or ()):
            return "it holds secrets, and what was committed cannot be changed. --set secrets=warn takes it as it is."
        return None

    def take_files(self) -> None:
        """Take the files, batch by batch."""
        taken = 0
        for texts in self._batches():
            receipt = self._store.commit(
                functools.partial(self._planned, texts), kind="import", now=self._moment, dry_run=self.done.dry_run
            )
            for name in ("created", "updated", "unchanged_uris", "kept", "beside", "refused"):
                getattr(self.done, name).extend(getattr(self._batch.done, name))
            self.done.commits += [receipt.commit_id] if receipt.commit_id else []
            taken += len(texts)
            tell("importing", taken, len(self._files), unit="files")

    def _planned(self, texts: Mapping[MemoryUri, str], snapshot: Snapshot) -> ChangeSet:
        self._batch = _Batch(self._store.files, WorkingCopy(snapshot, self._context), self._policy)
        return self._batch.plan(texts)

    def take_queue(self) -> None:
        """Take over what was extracted of conversations that came in: none is extracted twice, or forgotten.

        Of those, too, that came in with an import that did not come to its end.
        """
        created, here = set(self.done.created), set(self.done.unchanged_uris)
        for session in self._export.sessions:
            stored, extracted = session.get("stored"), session.get("extracted")
            try:
                log = self._moved(MemoryUri.parse(str(session.get("uri", ""))))
            except InvalidUri:
                continue
            sound = isinstance(stored, int) and isinstance(extracted, int) and 0 <= extracted <= stored < 2**31
            if sound and is_session_log(log) and str(log) in (created | here):
                with self._store.exclusive():
                    self._queue(SessionProgress(log, stored, extracted), new=str(log) in created)

    def _queue(self, came: SessionProgress, *, new: bool) -> None:
        """Where a conversation that came in stands; the store is held, and what was added to it since waits as well."""
        row = self._store.ledger.extractions.get(came.log)
        if row is not None and new:
            stored, extracted = max(came.stored or 0, row.stored), max(came.extracted or 0, row.extracted)
            came = replace(came, stored=stored, extracted=extracted)
        if row is None or new:
            self._store.ledger.advance(came, self._stamp)

    def _placed(self) -> dict[MemoryUri, ExportedFile]:
        """The files by where they go; summaries come last, when what they tell of is there.

        Raises:
            InvalidInput: If two spaces would become one and their files clash.
        """
        placed: dict[MemoryUri, ExportedFile] = {}
        for file in sorted(self._export.files, key=lambda file: (file.uri.is_summary, file.uri)):
            uri = self._moved(file.uri)
            if uri in placed:
                raise InvalidInput(
                    f"two spaces of the export hold {str(uri)!r}.",
                    hint="Export one space at a time, with --target-uri.",
                )
            placed[uri] = file
        return placed

    def _batches(self) -> Iterator[dict[MemoryUri, str]]:
        texts: dict[MemoryUri, str] = {}
        size = 0
        for uri, file in self._files.items():
            if texts and (len(texts) >= _BATCH_FILES or size + file.size_bytes > _BATCH_BYTES):
                yield texts
                texts, size = {}, 0
            try:
                for name in uri.parts:
                    self._redaction.check_names(**{"its name": name})
                text = self._relinked(self._export.content(file).decode("utf-8"))
                if self._holds_one_user and (why := self._cannot_be_here((uri, text))) is not None:
                    self.done.refused.append(Problem(str(uri), why))
                    continue
                texts[uri], notes = self._redaction.file(text, str(uri), log=is_session_log(uri))
                self.done.notes += notes
                size += file.size_bytes
            except UnicodeDecodeError:
                self.done.refused.append(Problem(str(uri), "it is not UTF-8 text"))
            except ContentRejected as error:
                self.done.refused.append(Problem(str(uri), error.message.rstrip(".")))
        if texts:
            yield texts

    def _cannot_be_here(self, given: tuple[MemoryUri, str]) -> str | None:
        """Why a database of one user cannot keep a text."""
        uri, text = given
        place = uri.parts[uri.scope is Scope.ARCHIVE :]
        own = self._context.user_space
        if place[:1] in ((Scope.USER.value,), (Scope.SESSION.value,)) and place[1:2] != (own,):
            return f"it is not of the user {own}: name its user with --set user_space=…, or write --into {own}/AGENT"
        return "it holds the character NUL, which a database cannot keep" if "\0" in text else None

    def _moved(self, uri: MemoryUri) -> MemoryUri:
        """Where a file of the export goes."""
        start = 1 if uri.scope is Scope.ARCHIVE else 0
        target = self._spaces.get("/".join(uri.parts[start : start + 2]))
        if target is None:
            return uri
        return MemoryUri((*uri.parts[:start], *target.split("/"), *uri.parts[start + 2 :]))

    def _relinked(self, text: str) -> str:
        """The text with its links leading to where the linked memories go."""
        file = split(text) if self._spaces else None
        if file is None or file.trailer is None:
            return text
        trailer = dict(file.trailer)
        for target in linked_uris(trailer):
            old = MemoryUri.parse(target)
            trailer = retargeted(trailer, old, self._moved(old))
        return text if trailer == file.trailer else join(file.body, trailer)


def _counted(_ledger: Ledger, commits: Iterable[Mapping[str, Any]]) -> int:
    return sum(1 for _ in commits)


def _texts_of(commits: Iterable[Mapping[str, Any]]) -> Iterator[tuple[MemoryUri, str]]:
    """Every text that changes hold, and where."""
    for commit in commits:
        for change in commit["changes"]:
            yield MemoryUri.parse(change["uri"]), f"{change['before'] or ''}{change['after'] or ''}"


def _space_mapping(uris: Sequence[MemoryUri], into: tuple[str, str] | None) -> dict[str, str]:
    """Which space becomes which: ``user/a`` → ``user/b``; empty where nothing moves."""
    if into is None:
        return {}
    user, agent = into
    targets = {Scope.USER.value: user, Scope.AGENT.value: agent, Scope.SESSION.value: user}
    found: dict[str, str] = {}
    for here in map(space_of, uris):
        scope, _, name = here.partition("/")
        if scope in targets and name != targets[scope]:
            found[here] = f"{scope}/{targets[scope]}"
    return found


def _all_checked(commits: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The commits of a history, oldest first, each checked when it is taken.

    Raises:
        InvalidInput: If one is not what it says.
    """
    earlier: set[str] = set()
    for commit in commits:
        yield _checked(commit, earlier)
        earlier.add(commit["commit_id"])


def _checked(commit: Mapping[str, Any], earlier: Set[str]) -> Mapping[str, Any]:
    """A commit of the history that is what it says.

    Raises:
        InvalidInput: If it is not; the ledger keeps it for good, and everything follows the ledger.
    """
    try:
        for change in commit["changes"]:
            for uri in (change["uri"], *([change["moved_from"]] if change["moved_from"] is not None else [])):
                if str(MemoryUri.parse(uri)) != uri:
                    raise ValueError("a URI is not as it is written")
            if any(type(change[name]) not in (int, bool) or change[name] not in (0, 1) for name in _FLAGS):
                raise ValueError("a mark of a change is neither 0 nor 1")
            if not change["appended"] and not change["purged"]:
                for side in ("before", "after"):
                    text = change[side]
                    if text is None and side == "before":
                        continue  # purging a summary takes its text and leaves the hash
                    if (None if text is None else text_sha256(text)) != change[f"{side}_sha256"]:
                        raise ValueError("a text is not what its hash says")
        CommitReceipt.from_dict(commit["receipt"])
        datetime.fromisoformat(commit["at"])
        if not all(isinstance(commit[name], str) for name in ("commit_id", "kind", "author")):
            raise ValueError("a name is missing")
        if commit["undoes"] is not None and commit["undoes"] not in earlier:
            raise ValueError("a commit undoes none that is before it")
    except (KeyError, TypeError, ValueError, AttributeError, InvalidUri) as error:
        why = str(error) if type(error) is ValueError else "a member is missing or of another kind"
        raise InvalidInput(
            f"the history of the export is not sound: {why}.",
            hint="Take the files without the history with --partial, or export again without --history.",
        ) from error
    return commit


@dataclass(slots=True)
class _Batch:
    """The plan of one commit, made once.

    Attributes:
        files: The files of the store; only read here.
        draft: The plan's files.
        policy: What happens to those that differ.
        done: What became of them.
    """

    files: FileStore
    draft: WorkingCopy
    policy: OnConflict
    done: Import = field(default_factory=lambda: Import(dry_run=False))
    _results: list[OperationResult] = field(default_factory=list)
    _keys: dict[tuple[MemoryUri, str, str], MemoryUri] = field(default_factory=dict)
    _names: dict[tuple[MemoryUri, str], MemoryUri] = field(default_factory=dict)

    def plan(self, texts: Mapping[MemoryUri, str]) -> ChangeSet:
        """The changes that bring these files in; one that cannot be taken is refused alone."""
        for uri, text in texts.items():
            try:
                reason = self._obstacle(uri)
                if reason is None:
                    self._place(uri, text)
            except RunebookError as error:
                reason = error.message
            if reason is not None:
                self.done.refused.append(Problem(str(uri), reason))
                self._results.append(OperationResult("import", str(uri), Action.REJECTED, reason, _IN_THE_WAY))
        changes = tuple(_of_log(change) if is_session_log(change.uri) else change for change in self.draft.changes())
        return ChangeSet(changes, tuple(self._results))

    def _place(self, uri: MemoryUri, text: str) -> None:
        present, kept = self.draft.text(uri), recorded(uri, text)
        if kept is None or present == kept:  # as it is here, or a page with nothing but its list
            self.done.unchanged_uris.append(str(uri))
        elif uri.is_summary and (present is None or self.policy is OnConflict.REPLACE):
            self._put(uri, kept, Action.CREATED if present is None else Action.UPDATED)
        elif uri.is_summary:
            self.done.kept.append(Problem(str(uri), "other words stand on this page"))
        elif is_session_log(uri) and present is not None and text.startswith(present):
            self._put(uri, text, Action.UPDATED, "the conversation went on")
        elif is_session_log(uri) and present is not None and present.startswith(text):
            self.done.unchanged_uris.append(str(uri))
        elif present is not None:
            self._settle(uri, text, uri, "it differs")
        elif (rival := self._of_key(uri, text)) is not None:
            self._settle(uri, text, rival, "another file holds this memory")
        elif (rival := self._twin(uri)) is not None:
            self._settle(uri, text, rival, "its name is a twin of another's")
        else:
            self._put(uri, text, Action.CREATED)

    def _settle(self, uri: MemoryUri, text: str, rival: MemoryUri, why: str) -> None:
        """Follow the policy for a file that differs from ``rival``, which is there."""
        if self.draft.text(rival) == text:
            self.done.unchanged_uris.append(str(rival))
        elif self.policy is OnConflict.KEEP:
            self.done.kept.append(Problem(str(uri), why if rival == uri else f"{why}: {rival}"))
            self._results.append(OperationResult("import", str(uri), Action.UNCHANGED, note=f"kept: {why}"))
        elif self.policy is OnConflict.REPLACE:
            self._put(rival, text, Action.UPDATED, None if rival == uri else f"imported from {uri}")
        else:
            self._put_beside(_beside(uri, text), text, rival)

    def _put_beside(self, beside: MemoryUri, text: str, rival: MemoryUri) -> None:
        if self.draft.text(beside) is not None:  # put there by an earlier import, and linked since
            self.done.unchanged_uris.append(str(beside))
            return
        self._put(beside, text, Action.CREATED, f"beside {rival}")
        self.done.beside.append(Beside(str(rival), str(beside)))
        if all(uri.scope in (Scope.USER, Scope.AGENT) for uri in (beside, rival)):
            own = self.draft.context
            self.draft.context = _context_at(beside, own)
            # A present file whose trailer is broken, or of no type, stays as it is.
            with contextlib.suppress(RunebookError):
                link(self.draft, beside, [GivenLink(uri=str(rival), relation="similar")])
            self.draft.context = own

    def _of_key(self, uri: MemoryUri, text: str) -> MemoryUri | None:
        """Another file that stands for the same memory."""
        memory_type, key = identify(self.draft.context.registry, uri, text)
        if not key:
            return None
        place = (uri.parent, memory_type, key)
        found = self._keys.get(place) or self.draft.snapshot.locate(*place)
        return found if found is not None and found != uri and self.draft.text(found) is not None else None

    def _twin(self, uri: MemoryUri) -> MemoryUri | None:
        """Another file whose name is a twin of this one's."""
        folded = names.fold(uri.name)
        if (uri.parent, folded) in self._names:
            return self._names[uri.parent, folded]
        if not self.draft.snapshot.name_taken(uri.parent, uri.name) or not self.files.is_dir(uri.parent):
            return None
        there = (entry.uri for entry in self.files.entries(uri.parent) if entry.uri != uri)
        return next((each for each in there if names.fold(each.name) == folded), None)

    def _obstacle(self, uri: MemoryUri) -> str | None:
        """Why no file can be here: the name is a folder's, or a folder's name is a file's."""
        if self.files.is_dir(uri):
            return "a folder of this name is there"
        for depth in range(_SPACE_PARTS, len(uri.parts)):
            above = MemoryUri(uri.parts[:depth])
            planned = (above.parent, names.fold(above.name)) in self._names
            if planned or (self.files.stat(above) and not self.files.is_dir(above)):
                return f"{above} is a file, not a folder"
        return None

    def _put(self, uri: MemoryUri, text: str, action: Action, note: str | None = None) -> None:
        self.draft.put(uri, text)
        self._names[uri.parent, names.fold(uri.name)] = uri
        memory_type, key = identify(self.draft.context.registry, uri, text)
        if key:
            self._keys[uri.parent, memory_type, key] = uri
        (self.done.created if action is Action.CREATED else self.done.updated).append(str(uri))
        self._results.append(OperationResult("import", str(uri), action, note=note))


def _of_log(change: FileChange) -> FileChange:
    """The change of a session's log, which may only have grown."""
    grown = change.before is not None and (change.after or "").startswith(change.before)
    return replace(change, key=change.uri.parent.name, appended=grown)


def _context_at(uri: MemoryUri, context: PlanContext) -> PlanContext:
    """The context in the space that a file is in."""
    space = uri.parts[1]
    return replace(context, agent_space=space) if uri.scope is Scope.AGENT else replace(context, user_space=space)


def _beside(uri: MemoryUri, text: str) -> MemoryUri:
    """Where a file goes whose own place is taken: the same place for the same text, however often it comes."""
    mark = names.short_hash(text)
    if is_session_log(uri):
        return uri.parent.parent.child(names.fit(uri.parent.name, "", f"~{mark}")).child(uri.name)
    return uri.parent.child(marked(uri.name, mark))
