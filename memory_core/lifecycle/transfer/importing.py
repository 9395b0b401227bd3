"""Import: the files of a checked export become commits of kind ``import``, each undoable.

What is there stays unless the caller says otherwise; what is the same is left alone, so a second import of the same
export changes nothing. Each batch is planned under the store's lock, against the files as they are then. Directory
summaries come along where there is none; elsewhere they are brought up to date, as after any commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memory_core.errors import ContentRejected, InvalidInput, InvalidUri
from memory_core.index.documents import is_session_log
from memory_core.lifecycle.links import linked_uris, retargeted
from memory_core.lifecycle.transfer.archive import Archive, ArchivedFile, Problem, open_archive
from memory_core.lifecycle.transfer.merging import ImportBatch, OnConflict, Outcome, space_mapping
from memory_core.model.changes import CommitReceipt, SessionProgress, text_sha256
from memory_core.model.memory_file import MemoryFile, dump, parse
from memory_core.model.uri import MemoryUri, Scope
from memory_core.registry import MemoryTypeRegistry
from memory_core.storage.file_store import LEDGER_NAME
from memory_core.storage.ledger_snapshot import insert_history
from memory_core.storage.store import Store
from memory_core.update.bounds import Context
from memory_core.update.discretion import Discretion

_BATCH_FILES = 500
_BATCH_BYTES = 16 * 1024**2
_SHOWN = 3
_REDACTING = Discretion("redact")
Progress = Callable[[int, int], None]


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
            "kept": [problem.as_dict() for problem in outcome.kept],
            "beside": [{"uri": uri, "imported": imported} for uri, imported in outcome.beside],
            "refused": [problem.as_dict() for problem in (*self.problems, *outcome.refused)],
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
    discretion: Discretion = _REDACTING,
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
    context = Context(registry, user_space, agent_space, stamp)
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
        context: Context,
        discretion: Discretion,
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
        self._summaries = frozenset(uri for uri in self._files if uri.is_summary and self._is_absent(uri))

    def take_history(self, *, dry_run: bool, partial: bool = False) -> int:
        """Commits of the export's history, if there is one, it may be kept, and the store has none of its own."""
        commits = self._archive.history()
        obstacle = None if commits is None else self._obstacle()
        if obstacle is not None:
            self.notes.append(f"The history was left out: {obstacle}")
        if commits is None or obstacle is not None:
            return 0
        checked = (_checked(commit) for commit in commits)
        try:
            if dry_run:
                return sum(1 for _ in checked)
            return insert_history(self._store.files.state / LEDGER_NAME, checked)
        except InvalidInput as error:
            if not partial:
                raise
            self.notes.append(f"The history was left out: {error.message}")
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
            batch = ImportBatch(self._store, self._registry, texts, self._policy, self._summaries, self._context)
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

    def _is_absent(self, uri: MemoryUri) -> bool:
        try:
            return self._store.ledger.file(uri) is None and self._store.text(uri) is None
        except InvalidInput:  # a link that leads elsewhere, or no text: something is there
            return False

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
        file = parse(text) if self._spaces else None
        if file is None or file.trailer is None:
            return text
        trailer = dict(file.trailer)
        for target in linked_uris(trailer):
            old = MemoryUri.parse(target)
            trailer = retargeted(trailer, old, self._moved(old))
        return text if trailer == file.trailer else dump(MemoryFile(file.body, trailer))


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
