"""Export and import: a zip, or JSON lines, of a store as it was at one commit, and the way back into any store.

Others go on writing meanwhile. An export appears under its name only when it is whole, private to the user. An import
checks everything first, then takes file by file, in commits that can be undone. Texts are never logged.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, ClassVar

from memory_core.core.commit.links import link, linked_uris, retargeted
from memory_core.core.commit.working_copy import PlanContext, WorkingCopy
from memory_core.core.errors import ContentRejected, InvalidInput, InvalidUri, RunebookError
from memory_core.core.index.documents import is_session_log, memory_document
from memory_core.core.memory import names
from memory_core.core.memory.directory_page import recorded
from memory_core.core.memory.memory import identify, parse
from memory_core.core.memory.memory_type import MemoryTypeRegistry
from memory_core.core.memory.message import parse_lines, to_record
from memory_core.core.memory.operations import GivenLink
from memory_core.core.memory.results import (
    Action,
    ChangeSet,
    CommitReceipt,
    FileChange,
    OperationResult,
    SessionProgress,
    as_json,
    text_sha256,
)
from memory_core.core.memory.trailer import join, split
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.store import atomic
from memory_core.core.store.files import LEDGER_NAME
from memory_core.core.store.ledger_snapshot import LedgerSnapshot, insert_history
from memory_core.core.store.local import Snapshot, Store
from memory_core.features.export_file import (
    EXPORT,
    HISTORY_NAME,
    MANIFEST_NAME,
    Archive,
    ArchivedFile,
    Problem,
    Selection,
    ZipWriter,
    appearing,
    content_at,
    counted,
    created,
    is_bomb_like,
    open_archive,
    pack,
    pack_manifest,
)
from memory_core.features.redaction import Redaction
from memory_core.version import program_version

_SPACE_PARTS = 2
_BATCH_FILES = 500
_BATCH_BYTES = 16 * 1024**2
_SHOWN = 3
_REDACTING = Redaction("redact")
Progress = Callable[[int, int], None]


# Out -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Export:
    """What was exported.

    Attributes:
        path: Where it is; None for a stream.
        counts: Files by kind, and commits.
        spaces: The spaces they are of.
        seq: The last commit that is in it.
        left_out: Files whose text neither disk nor ledger has as it was committed.
        sessions: How far each session's messages were extracted.
    """

    JSON: ClassVar = "path counts spaces seq left_out"

    path: Path | None
    counts: dict[str, int]
    spaces: list[str]
    seq: int
    left_out: list[str] = field(default_factory=list)
    sessions: list[dict[str, Any]] = field(default_factory=list)


def export_zip(
    store: Store,
    registry: MemoryTypeRegistry,
    target: Path,
    selection: Selection,
    *,
    force: bool = False,
    progress: Progress = lambda _done, _total: None,
) -> Export:
    """Write a zip archive.

    Args:
        store: The store; others may go on using it.
        registry: The memory types.
        target: The archive to be.
        selection: What is taken.
        force: Replace a file that is there.
        progress: Called with files done and files in all.

    Raises:
        InvalidInput: If ``target`` is there and ``force`` is not given. Nothing was written.
        StorageFailed: If the disk refuses; ``target`` is then as it was.
    """
    with contextlib.ExitStack() as opened:
        source = opened.enter_context(_source(store, registry, selection))
        partial = opened.enter_context(_whole(target, force=force))
        writer = opened.enter_context(contextlib.closing(ZipWriter(partial)))
        paths = archive_paths(source.uris)
        files: list[dict[str, Any]] = []
        for file in source.files(progress):
            packed = pack(writer, paths[file.uri], [file.content], stored=is_bomb_like(file.content))
            files.append(packed.facts | {"uri": str(file.uri), "updated_at": file.updated_at})
        history: dict[str, Any] | None = None
        if selection.history:
            history = pack(
                writer, HISTORY_NAME, (json.dumps(commit).encode() + b"\n" for commit in source.history())
            ).facts
            history["commits"] = source.commits
        export = source.export(target)
        told: dict[str, Any] = {"spaces": export.spaces, "counts": export.counts, "left_out": export.left_out}
        told |= {"sessions": export.sessions, "history": history, "files": files}
        pack_manifest(writer, EXPORT, source.header() | told)
        return export


def export_lines(
    store: Store,
    registry: MemoryTypeRegistry,
    target: Path | IO[bytes],
    selection: Selection,
    *,
    force: bool = False,
    progress: Progress = lambda _done, _total: None,
) -> Export:
    """Write JSON lines, to a file or to an open stream; see ``export_zip``."""
    with contextlib.ExitStack() as opened:
        source = opened.enter_context(_source(store, registry, selection))
        path = target if isinstance(target, Path) else None
        if isinstance(target, Path):
            partial = opened.enter_context(_whole(target, force=force))
            stream = opened.enter_context(created(partial))
        else:
            stream = target
        digest = hashlib.sha256()

        def write(facts: dict[str, Any]) -> None:
            raw = _line(facts)
            digest.update(raw)
            stream.write(raw)

        write({"kind": "export", "format": EXPORT.format, "format_version": EXPORT.version} | source.header())
        for file in source.files(progress):
            text = file.content.decode("utf-8", "replace")
            # Of the text: a hand-made file may hold bytes that are none.
            facts = {"kind": "file", "uri": str(file.uri), "sha256": text_sha256(text), "updated_at": file.updated_at}
            write(facts | {"text": text} | memory_facts(file.uri, text, registry))
            if selection.messages and is_session_log(file.uri):
                for index, message in enumerate(parse_lines(text)[0]):
                    write({"kind": "message", "uri": f"{file.uri}#{index}"} | to_record(message))
        for commit in source.history() if selection.history else ():
            write({"kind": "commit", "commit": commit})
        export = source.export(path)
        end = {"kind": "end", "counts": export.counts, "left_out": export.left_out, "sessions": export.sessions}
        write(end | {"sha256": digest.hexdigest()})
        stream.flush()
        return export


def _line(facts: dict[str, Any]) -> bytes:
    """A line of JSON; ASCII where a text holds half a character, which UTF-8 cannot."""
    try:
        return json.dumps(facts, ensure_ascii=False).encode("utf-8") + b"\n"
    except UnicodeEncodeError:
        return json.dumps(facts).encode("ascii") + b"\n"


@contextlib.contextmanager
def _whole(target: Path, *, force: bool) -> Iterator[Path]:
    """Where the file is written whose content appears at ``target``; see ``appearing``."""
    if target.is_dir() or (target.exists() and not force):
        raise InvalidInput(f"{target.name!r} is there already.", hint="Name another file, or add --force.")
    partial = target.parent / f"{atomic.TEMPORARY_PREFIX}{secrets.token_hex(8)}"
    with appearing(target, partial, repr(target.name)):
        yield partial
        if target.exists() and not force:
            raise InvalidInput(f"{target.name!r} has appeared meanwhile.", hint="Name another file, or add --force.")


@contextlib.contextmanager
def _source(store: Store, registry: MemoryTypeRegistry, selection: Selection) -> Iterator[_Source]:
    store.adopt()  # what people wrote is part of it
    with LedgerSnapshot(store.files.state / LEDGER_NAME) as snapshot:
        yield _Source(store, registry, selection, snapshot)


@dataclass(frozen=True, slots=True)
class _File:
    """One file: bytes as they are on disk; ``updated_at`` is ISO 8601, or empty."""

    uri: MemoryUri
    content: bytes
    updated_at: str


class _Source:
    """The chosen files of one moment."""

    def __init__(
        self, store: Store, registry: MemoryTypeRegistry, selection: Selection, snapshot: LedgerSnapshot
    ) -> None:
        self._store = store
        self._registry = registry
        self._selection = selection
        self._snapshot = snapshot
        self._rows = [row for row in snapshot.files() if selection.places(MemoryUri.parse(row.uri))]
        self._taken: list[MemoryUri] = []
        self._left_out: list[str] = []
        self.commits = 0

    @property
    def uris(self) -> list[MemoryUri]:
        """Every file that may be taken."""
        return [MemoryUri.parse(row.uri) for row in self._rows]

    def files(self, progress: Progress) -> Iterator[_File]:
        """The files, one at a time."""
        for done, row in enumerate(self._rows, 1):
            uri = MemoryUri.parse(row.uri)
            content = content_at(self._store.files, self._snapshot, row)
            if content is None:
                self._left_out.append(row.uri)
            elif self._selection.takes(uri, content.decode("utf-8", "replace"), self._registry):
                self._taken.append(uri)
                yield _File(uri, content, row.updated_at)
            progress(done, len(self._rows))

    def history(self) -> Iterator[dict[str, Any]]:
        """The commits that touched what was taken; all of them when everything was."""
        taken = None if self._selection.is_everything else frozenset(str(uri) for uri in self._taken)
        for commit in chosen_history(self._snapshot.history(), taken):
            self.commits += 1
            yield commit

    def export(self, path: Path | None) -> Export:
        """What was taken, once it was."""
        taken = {str(uri) for uri in self._taken}
        queued = [row for row in self._snapshot.queue() if row.log in taken]
        sessions = [{"uri": row.log, "stored": row.stored, "extracted": row.extracted} for row in queued]
        counts = counted(self._taken) | {"commits": self.commits}
        return Export(path, counts, _spaces(self._taken), self._snapshot.seq, self._left_out, sessions)

    def header(self) -> dict[str, Any]:
        """What every form says first."""
        return {
            "program_version": program_version(),
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "ledger_id": self._snapshot.ledger_id,
            "seq": self._snapshot.seq,
            "selection": self._selection.as_dict(),
            "spaces": _spaces(self.uris),
        }


def archive_paths(uris: Sequence[MemoryUri]) -> dict[MemoryUri, str]:
    """The path of each file in an archive; twins that a file system would confuse get names of their own."""
    taken: set[str] = {MANIFEST_NAME, HISTORY_NAME}
    paths: dict[MemoryUri, str] = {}
    for uri in uris:
        path = "/".join(uri.parts)
        if names.fold(path) in taken:
            path = "/".join((*uri.parts[:-1], _marked(uri.name, names.short_hash(str(uri)))))
        taken.add(names.fold(path))
        paths[uri] = path
    return paths


def _marked(name: str, mark: str) -> str:
    """A file's name with a mark before its ending, within the limit."""
    stem, dot, extension = name.rpartition(".")
    return names.fit(stem or name, dot + extension if stem else "", f"~{mark}")


def _spaces(uris: Sequence[MemoryUri]) -> list[str]:
    return sorted({uri.space for uri in uris})


def memory_facts(uri: MemoryUri, text: str, registry: MemoryTypeRegistry) -> dict[str, Any]:
    """A memory for programs that know nothing of our files; empty for files that are no memories."""
    if uri.scope not in (Scope.USER, Scope.AGENT, Scope.ARCHIVE) or not uri.name.endswith(".md"):
        return {}
    if uri.is_summary:
        return {}
    memory = parse(uri, text, registry)
    if memory.type is None:
        return {}
    document = memory_document(memory)
    facts: dict[str, Any] = {
        "memory_type": memory.type_name,
        "name": document.name,
        "fields": dict(memory.fields),
        "abstract": document.abstract,
        "tags": list(document.tags),
        "salience": document.salience,
        "project": document.project,
    }
    return facts


def chosen_history(commits: Iterator[dict[str, Any]], taken: frozenset[str] | None) -> Iterator[dict[str, Any]]:
    """The commits with what they say of other files left out; ``taken`` None leaves them whole."""
    for commit in commits:
        if taken is None:
            yield commit
            continue
        changes = [change for change in commit["changes"] if change["uri"] in taken]
        if changes:
            receipt = _narrowed(commit["receipt"], taken)
            moved = [
                change | {"moved_from": change["moved_from"] if change["moved_from"] in taken else None}
                for change in changes
            ]
            yield commit | {"receipt": receipt, "changes": moved}


def _narrowed(receipt: Mapping[str, Any], taken: frozenset[str]) -> dict[str, Any]:
    return {
        "commit_id": receipt["commit_id"],
        "status": receipt["status"],
        "results": [result for result in receipt["results"] if result["uri"] in taken],
        "similar": [],
    }


# In ------------------------------------------------------------------------------------------------------------------


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
        for each in fields(self):
            getattr(self, each.name).extend(getattr(other, each.name))


class _Batch:
    """The plan of one commit.

    Args:
        store: The store; only read here.
        texts: The files of the batch, by the URI they are to have.
        policy: What happens to those that differ.
        context: Time, types and spaces of the commit.
    """

    def __init__(self, store: Store, texts: Mapping[MemoryUri, str], policy: OnConflict, context: PlanContext) -> None:
        self._store = store
        self._texts = texts
        self._policy = policy
        self._context = context

    def plan(self, snapshot: Snapshot) -> ChangeSet:
        """The batch's changes; a file that cannot be taken is refused alone."""
        draft = self._draft = WorkingCopy(snapshot, self._context)
        self.outcome = Outcome()
        self._results: list[OperationResult] = []
        self._keys: dict[tuple[MemoryUri, str, str], MemoryUri] = {}
        self._names: dict[tuple[MemoryUri, str], MemoryUri] = {}
        for uri, text in self._texts.items():
            try:
                self._place(uri, text, draft)
            except RunebookError as error:
                self._refuse(uri, error.message)
        changes = tuple(_of_log(change) if is_session_log(change.uri) else change for change in draft.changes())
        return ChangeSet(changes, tuple(self._results))

    def _place(self, uri: MemoryUri, text: str, draft: WorkingCopy) -> None:
        obstacle = self._obstacle(uri)
        if obstacle is not None:
            self._refuse(uri, obstacle)
            return
        present, kept = draft.text(uri), recorded(uri, text)
        if kept is None or present == kept:  # as it is here, or a page with nothing but its list
            self._note(uri, Action.UNCHANGED)
        elif uri.is_summary:
            if present is None:
                self._put(uri, kept, Action.CREATED)
        elif is_session_log(uri) and present is not None and text.startswith(present):
            self._put(uri, text, Action.UPDATED, "the conversation went on")
        elif is_session_log(uri) and present is not None and present.startswith(text):
            self._note(uri, Action.UNCHANGED)
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
        if self._draft.text(rival) == text:
            self._note(rival, Action.UNCHANGED)
        elif self._policy is OnConflict.KEEP:
            self.outcome.kept.append(Problem(str(uri), why if rival == uri else f"{why}: {rival}"))
            self._results.append(OperationResult("import", str(uri), Action.UNCHANGED, note=f"kept: {why}"))
        elif self._policy is OnConflict.REPLACE:
            self._put(rival, text, Action.UPDATED, None if rival == uri else f"imported from {uri}")
        else:
            self._put_beside(_beside(uri, text), text, rival)

    def _put_beside(self, beside: MemoryUri, text: str, rival: MemoryUri) -> None:
        if self._draft.text(beside) is not None:  # put there by an earlier import, and linked since
            self._note(beside, Action.UNCHANGED)
            return
        self._put(beside, text, Action.CREATED, f"beside {rival}")
        self.outcome.beside.append((str(rival), str(beside)))
        if all(uri.scope in (Scope.USER, Scope.AGENT) for uri in (beside, rival)):
            own = self._draft.context
            self._draft.context = _context_at(beside, own)
            # A present file whose trailer is broken, or of no type, stays as it is.
            with contextlib.suppress(RunebookError):
                link(self._draft, beside, [GivenLink(uri=str(rival), relation="similar")])
            self._draft.context = own

    def _of_key(self, uri: MemoryUri, text: str) -> MemoryUri | None:
        """Another file that stands for the same memory."""
        memory_type, key = identify(self._context.registry, uri, text)
        if not key:
            return None
        place = (uri.parent, memory_type, key)
        found = self._keys.get(place) or self._draft.snapshot.locate(*place)
        return found if found is not None and found != uri and self._draft.text(found) is not None else None

    def _twin(self, uri: MemoryUri) -> MemoryUri | None:
        """Another file whose name is a twin of this one's."""
        folded = names.fold(uri.name)
        if (uri.parent, folded) in self._names:
            return self._names[uri.parent, folded]
        if not self._draft.snapshot.name_taken(uri.parent, uri.name) or not self._store.files.is_dir(uri.parent):
            return None
        there = (entry.uri for entry in self._store.files.entries(uri.parent) if entry.uri != uri)
        return next((each for each in there if names.fold(each.name) == folded), None)

    def _obstacle(self, uri: MemoryUri) -> str | None:
        """Why no file can be here: the name is a folder's, or a folder's name is a file's."""
        if self._store.files.is_dir(uri):
            return "a folder of this name is there"
        for depth in range(_SPACE_PARTS, len(uri.parts)):
            above = MemoryUri(uri.parts[:depth])
            planned = (above.parent, names.fold(above.name)) in self._names
            if planned or (self._store.files.stat(above) and not self._store.files.is_dir(above)):
                return f"{above} is a file, not a folder"
        return None

    def _put(self, uri: MemoryUri, text: str, action: Action, note: str | None = None) -> None:
        self._draft.put(uri, text)
        self._names[uri.parent, names.fold(uri.name)] = uri
        memory_type, key = identify(self._context.registry, uri, text)
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
    return uri.parent.child(_marked(uri.name, mark))


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


@dataclass(frozen=True, slots=True)
class Import:
    """What an import did or, as a dry run, would do.

    Attributes:
        dry_run: Whether nothing was written.
        outcome: What became of each file.
        problems: What of the export was not sound, where the rest was taken.
        history: Commits of the export's history that were taken.
        commits: The commits made here, oldest first; each can be undone.
        notes: What else is worth knowing.
    """

    dry_run: bool
    outcome: Outcome
    problems: list[Problem]
    history: int = 0
    commits: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        outcome = self.outcome
        return {
            "dry_run": self.dry_run,
            "created": outcome.created,
            "updated": outcome.updated,
            "unchanged": len(outcome.unchanged),
            "kept": [as_json(problem) for problem in outcome.kept],
            "beside": [{"uri": uri, "imported": imported} for uri, imported in outcome.beside],
            "refused": [as_json(problem) for problem in (*self.problems, *outcome.refused)],
            "history": self.history,
            "commits": self.commits,
            "notes": self.notes,
        }

    def lines(self) -> Iterator[str]:
        """Text form: a line for each file that needs a look, then the counts."""
        outcome = self.outcome
        yield from (f"kept     {problem.name}  ({problem.reason})" for problem in outcome.kept)
        yield from (f"beside   {uri}\n      -> {imported}" for uri, imported in outcome.beside)
        yield from (f"refused  {problem.name}  ({problem.reason})" for problem in (*self.problems, *outcome.refused))
        yield from self.notes
        if outcome.kept:
            yield "To take the others as well: --on-conflict both puts them beside yours, replace in their place."
        would = "would be " if self.dry_run else ""
        yield (
            f"{len(outcome.created)} {would}created, {len(outcome.updated)} {would}updated, "
            f"{len(outcome.unchanged)} unchanged, {len(outcome.kept)} kept as they are here, "
            f"{len(self.problems) + len(outcome.refused)} refused."
        )
        if self.commits:
            yield f"Undo with: {'; '.join(f'runebook undo {commit}' for commit in reversed(self.commits))}"


def import_archive(
    store: Store,
    registry: MemoryTypeRegistry,
    path: Path,
    *,
    user_space: str,
    agent_space: str,
    on_conflict: OnConflict = OnConflict.KEEP,
    into: tuple[str, str] | None = None,
    partial: bool = False,
    dry_run: bool = False,
    discretion: Redaction = _REDACTING,
    now: datetime | None = None,
    progress: Progress = lambda _done, _total: None,
) -> Import:
    """Bring an export, zip or JSON lines, into a store.

    Args:
        store: The store; others may go on using it.
        registry: The memory types.
        path: The export.
        user_space: The caller's own space, for summaries; likewise ``agent_space``.
        agent_space: See ``user_space``.
        on_conflict: What happens to files that differ from what is there.
        into: User and agent space that everything goes to; default each file's own.
        partial: Take what is sound of a damaged export.
        dry_run: Plan only.
        discretion: What becomes of secrets.
        now: Time of the commits; default the clock's.
        progress: Called with files done and files in all.

    Raises:
        InvalidInput: If the export is damaged and ``partial`` is not given. Nothing was written.
        StoreBusy: If another writer held the store too long. Batches before that are done; import again.
        StorageFailed: If the disk refuses. Batches before that are done; import again.
    """
    moment = now or datetime.now(UTC)
    stamp = moment.astimezone(UTC).isoformat(timespec="seconds")
    context = PlanContext(registry, user_space, agent_space, stamp)
    with open_archive(path) as archive:
        if archive.problems and not partial:
            raise _damaged(archive.problems)
        store.adopt()
        run = _Run(store, registry, archive, on_conflict, into, context, discretion)
        taken = run.take_history(dry_run=dry_run, partial=partial)
        commits = run.take_files(moment, dry_run=dry_run, progress=progress)
        if not dry_run:
            run.take_queue(stamp)
    return Import(dry_run, run.outcome, list(archive.problems), taken, commits, run.notes)


class _Run:
    """One import under way."""

    def __init__(
        self,
        store: Store,
        registry: MemoryTypeRegistry,
        archive: Archive,
        on_conflict: OnConflict,
        into: tuple[str, str] | None,
        context: PlanContext,
        discretion: Redaction,
    ) -> None:
        self._store = store
        self._registry = registry
        self._archive = archive
        self._policy = on_conflict
        self._context = context
        self._discretion = discretion
        self._spaces = space_mapping([file.uri for file in archive.files], into)
        self.outcome = Outcome()
        self.notes: list[str] = []
        self._files = self._placed()

    def take_history(self, *, dry_run: bool, partial: bool = False) -> int:
        """Commits of the export's history, if there is one, it may be kept, and the store has none of its own."""
        commits = self._archive.history()
        if commits is None:
            return 0
        try:
            reason = self._obstacle()
            if reason is None:
                checked = map(_checked, commits)
                ledger = self._store.files.state / LEDGER_NAME
                return sum(1 for _ in checked) if dry_run else insert_history(ledger, checked)
        except InvalidInput as error:
            if not partial:
                raise
            reason = error.message
        self.notes.append(f"The history was left out: {reason}")
        return 0

    def _obstacle(self) -> str | None:
        """Why the history cannot be taken."""
        if self._spaces:
            return "it speaks of the spaces that the export came from."
        if self._store.ledger.newest_seq():
            return "this store has one of its own."
        if not all(self._discretion.keeps(commit) for commit in self._archive.history() or ()):
            return "it holds secrets, and what was committed cannot be changed. --set secrets=warn takes it as it is."
        return None

    def take_files(self, moment: datetime, *, dry_run: bool, progress: Progress) -> list[str]:
        """The files, batch by batch; returns the commits."""
        commits: list[str] = []
        done = 0
        for texts in self._batches():
            batch = _Batch(self._store, texts, self._policy, self._context)
            receipt = self._store.commit(batch.plan, kind="import", now=moment, dry_run=dry_run)
            self.outcome.add(batch.outcome)
            commits += [receipt.commit_id] if receipt.commit_id else []
            done += len(texts)
            progress(done, len(self._files))
        return commits

    def take_queue(self, stamp: str) -> None:
        """What was extracted of the conversations that came in, so that none is extracted twice or forgotten."""
        created = set(self.outcome.created)
        for session in self._archive.sessions:
            stored, extracted = session.get("stored"), session.get("extracted")
            try:
                log = self._moved(MemoryUri.parse(str(session.get("uri", ""))))
            except InvalidUri:
                continue
            if str(log) not in created or not is_session_log(log):
                continue
            if isinstance(stored, int) and isinstance(extracted, int) and 0 <= extracted <= stored < 2**31:
                self._store.ledger.advance(SessionProgress(log, stored=stored, extracted=extracted), stamp)

    def _placed(self) -> dict[MemoryUri, ArchivedFile]:
        """The files by where they go; summaries come last, when what they tell of is there.

        Raises:
            InvalidInput: If two spaces would become one and their files clash.
        """
        placed: dict[MemoryUri, ArchivedFile] = {}
        for file in sorted(self._archive.files, key=lambda file: (file.uri.is_summary, file.uri)):
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
                self._discretion.check_names(**{"its name": uri.name})
                texts[uri] = self._cleared(uri, self._relinked(self._archive.content(file).decode("utf-8")))
                size += file.size_bytes
            except UnicodeDecodeError:
                self.outcome.refused.append(Problem(str(uri), "it is not UTF-8 text"))
            except ContentRejected as error:
                self.outcome.refused.append(Problem(str(uri), error.message.rstrip(".")))
        if texts:
            yield texts

    def _moved(self, uri: MemoryUri) -> MemoryUri:
        """Where a file of the export goes."""
        start = 1 if uri.scope is Scope.ARCHIVE else 0
        target = self._spaces.get("/".join(uri.parts[start : start + 2]))
        if target is None:
            return uri
        return MemoryUri((*uri.parts[:start], *target.split("/"), *uri.parts[start + 2 :]))

    def _cleared(self, uri: MemoryUri, text: str) -> str:
        """The text as the setting for secrets lets it in."""
        clean, notes = self._discretion.file(text, str(uri), log=is_session_log(uri))
        self.notes += notes
        return clean

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


def _damaged(problems: list[Problem]) -> InvalidInput:
    shown = "; ".join(f"{problem.name}: {problem.reason}" for problem in problems[:_SHOWN])
    more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return InvalidInput(
        f"the export is damaged, and nothing was imported: {shown}{more}.",
        hint="Get a sound copy of the file, or take what is sound of it with --partial.",
    )


def _checked(commit: Mapping[str, Any]) -> Mapping[str, Any]:
    """A commit of the history that is what it says.

    Raises:
        InvalidInput: If it is not; the ledger keeps it for good, and everything follows the ledger.
    """
    try:
        for change in commit["changes"]:
            for uri in (change["uri"], *([change["moved_from"]] if change["moved_from"] is not None else [])):
                if str(MemoryUri.parse(uri)) != uri:
                    raise ValueError("a URI is not as it is written")
            if not change["appended"] and not change["purged"]:
                for side in ("before", "after"):
                    text = change[side]
                    if text is None and side == "before":
                        continue  # of a summary, purging leaves the hash
                    if (None if text is None else text_sha256(text)) != change[f"{side}_sha256"]:
                        raise ValueError("a text is not what its hash says")
        CommitReceipt.from_dict(commit["receipt"])
        datetime.fromisoformat(commit["at"])
        if not all(isinstance(commit[name], str) for name in ("commit_id", "kind", "author")):
            raise ValueError("a name is missing")
    except (KeyError, TypeError, ValueError, AttributeError, InvalidUri) as error:
        why = str(error) if type(error) is ValueError else "a member is missing or of another kind"
        raise InvalidInput(
            f"the history of the export is not sound: {why}.",
            hint="Take the files without the history with --partial, or export again without --history.",
        ) from error
    return commit
