"""History as pages that ``read`` shows: ``viking://history`` and what is below it.

``viking://history`` lists the latest commits, ``viking://history/<commit>`` shows what one changed, and
``viking://history/user/default/memories/…`` the versions of a file, or the commits below a directory. No such address
is a ``MemoryUri``: nothing can be written, indexed or found there. Stored text stands in fences that it cannot close,
and each of its lines behind a diff's mark, so none can pose as a heading or as another file's diff.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from memory_core.core.command import Arg, Command
from memory_core.core.errors import InvalidInput, NotFound
from memory_core.core.feature import Feature
from memory_core.core.memory.requests import Here, ReadRequest
from memory_core.core.memory.results import Action, Listing, OperationResult, ReadResult, text_sha256
from memory_core.core.memory.uri import SCHEME, MemoryUri, Scope
from memory_core.core.text.text_diff import unified

if TYPE_CHECKING:
    from memory_core.core.search.browse import Browser
    from memory_core.core.store.history_rows import PastCommit
    from memory_core.core.store.ledger import ChangeRow
    from memory_core.core.store.local import Store
    from memory_core.runebook import Runebook

T = TypeVar("T")

_HISTORY_URI = f"{SCHEME}history"
#: As a commit's id: the newest one.
LAST = "last"
#: The form of an id or its beginning; anything else is not looked up.
_ID = re.compile(r"[0-9A-Za-z-]{1,64}")
#: The space of an address within a text.
_SPACE = re.compile(rf"{SCHEME}(?!history\b)(?:archive/)?([^/\s]+/[^/]+)")
_LIMIT_COMMITS = 1_000
_SHOWN_FILES = 2
_HINT = "List them: read viking://history, or runebook history."
_CHANGED = frozenset({Action.CREATED, Action.UPDATED, Action.DELETED})
#: What such commits do to a file, in place of what became of it.
_VERBS = {"messages": "recorded", "purge": "purged"}
#: What forgetting does to a file that it names, by what became of it; what is left of a memory may get another name.
_FORGOT = {Action.DELETED: "forgot", Action.UPDATED: "forgot part of", Action.CREATED: "kept the rest as"}


@dataclass(frozen=True, slots=True)
class FileStep:
    """What a commit did to one file.

    Attributes:
        uri: The file.
        action: created, updated or deleted.
        moved_from: Where it was before, if it was renamed.
        appended: Whether a log only grew.
        withheld: Why its text is not shown: private to another project, or purged; None where it is.
        imported_from: Name of the file that an import brought it from.
    """

    uri: MemoryUri
    action: Action
    moved_from: MemoryUri | None = None
    appended: bool = False
    withheld: str | None = None
    imported_from: str | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit, as far as its reader may see it.

    ``results`` are those of its receipt about files that it changed. ``undone_by`` names the commit that took it back
    there, if that still holds. ``line`` says it all to a person.
    """

    JSON: ClassVar = "commit_id at author kind undoes? undone_by? line files results"

    seq: int
    commit_id: str
    at: str
    author: str
    kind: str
    files: tuple[FileStep, ...]
    results: tuple[OperationResult, ...]
    line: str
    undoes: str | None = None
    undone_by: str | None = None


@dataclass(frozen=True, slots=True)
class FileDiff:
    """One file's step with its unified diff; of an appended log only what was added.

    ``before`` and ``after`` are the texts that differ; empty where there was none or it is withheld.
    """

    JSON: ClassVar = "*step lines"

    step: FileStep
    before: str = ""
    after: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """The hunks of the unified diff."""
        return unified(self.before, self.after)


@dataclass(frozen=True, slots=True)
class Version:
    """A file as one commit left it."""

    commit: Commit
    diff: FileDiff


class History:
    """The past of one store within the spaces of one reader.

    Args:
        store: The store.
        browser: Says what its reader may see.
        spaces: ``scope/space`` names that may be seen.
        project: That the reader works in.
    """

    def __init__(self, store: Store, browser: Browser, spaces: Sequence[str], project: str | None) -> None:
        self._ledger = store.ledger
        self._browser = browser
        self.spaces = tuple(spaces)
        self._project = project

    def commits(
        self,
        uri: str | None = None,
        limit: int = 20,
        before: str | None = None,
        files_most: int | None = None,
    ) -> list[Commit]:
        """Commits, newest first.

        Args:
            uri: Only those that touched this file, or something below this directory.
            limit: 1 to 1,000.
            before: Only those older than this commit.
            files_most: Of how many files of each it matters whether their texts may be shown; None is all. Those of
                the others are not read, and no result is told of them.

        Raises:
            InvalidInput: If ``limit`` is out of range.
            NotFound: If there is no commit ``before``, or the URI is not the reader's.
        """
        if not 1 <= limit <= _LIMIT_COMMITS:
            raise InvalidInput(f"limit {limit} is out of range.", hint=f"Use 1 to {_LIMIT_COMMITS:,}.")
        place = None if uri is None else self._browser.visible(MemoryUri.parse(uri))
        seq = None if before is None else self.resolve(before).seq
        rows = self._ledger.past.commits(self.spaces, uri=place, before=seq, limit=limit)
        return [commit for commit in self._commits(rows, files_most) if commit.files]

    def newest(self, limit: int) -> list[PastCommit]:
        """The last commits, newest first, without what they changed."""
        return self._ledger.past.commits(self.spaces, limit=limit)

    def files(self, commit: PastCommit) -> list[str]:
        """URIs of the files that a commit changed, memories first."""
        return sorted(self._ledger.past.files(commit.seq, self.spaces), key=lambda uri: MemoryUri.parse(uri).is_summary)

    def commit(self, commit_id: str) -> Commit:
        """One commit.

        Args:
            commit_id: Its id, as many first characters of it as name one commit only, or "last".

        Raises:
            NotFound: If the reader sees no such commit.
            InvalidInput: If several begin so.
        """
        (commit,) = self._commits([self.resolve(commit_id)])
        if not commit.files:
            raise _no_commit(commit_id)
        return commit

    def resolve(self, commit_id: str, author: str | None = None) -> PastCommit:
        """The commit in the ledger; see ``commit``.

        Args:
            commit_id: Likewise; "last" is the newest that takes no other back.
            author: Whose "last" is meant; default anybody's.
        """
        if commit_id == LAST:
            newest = self._ledger.past.commits(self.spaces, limit=1, author=author, undos=False)
            if not newest:
                whose = "" if author is None else " of yours"
                raise NotFound(f"there is no commit{whose} yet.", hint=_HINT)
            return newest[0]
        found = self._ledger.past.named(self.spaces, commit_id) if _ID.fullmatch(commit_id) else []
        if not found:
            raise _no_commit(commit_id)
        if found[0].commit_id != commit_id and len(found) > 1:
            names = ", ".join(commit.commit_id for commit in found)
            raise InvalidInput(f"several commits begin with {commit_id!r}: {names}.", hint="Give more of the id.")
        return found[0]

    def versions(self, uri: str, limit: int = 50) -> Iterator[Version]:
        """The versions of a file, newest first, through its renames, each read when asked for; it may be gone by now.

        Raises:
            NotFound: If the reader sees no such file in history.
        """
        place = self._browser.visible(MemoryUri.parse(uri))
        found = 0
        before: int | None = None
        while found < limit:
            moved: MemoryUri | None = None
            for past in self._ledger.past.commits(self.spaces, uri=place, before=before, limit=limit - found):
                row = self._ledger.change(past.seq, place)
                if row is not None:
                    (commit,) = self._commits([past])
                    found += 1
                    yield Version(commit, self._diff(row, asked=True))
                    moved, before = row.moved_from, past.seq
                if moved is not None:
                    break
            if moved is None:
                break
            place = self._browser.visible(moved)
        if not found:
            raise NotFound(f"history knows nothing at {uri!r}.", hint=_HINT)

    def diff(self, commit_id: str) -> Iterator[FileDiff]:
        """What a commit changed, file by file: memories first, then the generated summaries of their directories.

        Each is read when it is asked for: a commit may change several long conversations.
        """
        commit = self.commit(commit_id)
        rows = (self._ledger.change(commit.seq, step.uri) for step in commit.files)
        return (self._diff(row) for row in rows if row is not None)

    def compare(self, uri: str, earlier: str | None = None, later: str | None = None) -> tuple[str, ...]:
        """How a file differs between two commits, as a unified diff; where there was none, from or to nothing.

        Args:
            uri: The file.
            earlier: As this commit left it; default before the newest commit that touched it.
            later: As this one left it; default now, as far as commits know.

        Raises:
            NotFound: If a commit or the file is not the reader's.
        """
        place = self._browser.visible(MemoryUri.parse(uri))
        seqs = self._ledger.past.seqs_of(place)
        if not seqs:
            raise NotFound(f"history knows nothing at {uri!r}.", hint=_HINT)
        first = seqs[-1] - 1 if earlier is None else self.resolve(earlier).seq
        last = self._ledger.newest_seq() if later is None else self.resolve(later).seq
        return unified(self._text_at(place, first) or "", self._text_at(place, last) or "")

    def _text_at(self, uri: MemoryUri, seq: int) -> str | None:
        text = self._ledger.text_at(uri, seq)
        seqs = [touched for touched in self._ledger.past.seqs_of(uri) if touched <= seq]
        row = self._ledger.change(seqs[-1], uri) if seqs else None
        sha256 = None if text is None else text_sha256(text)
        if row is not None and (sha256 != row.after_sha256 or (text is None and str(uri) in self._purged(row.seq))):
            raise NotFound(f"the text of {str(uri)!r} at that time was purged.", hint="Nothing brings it back.")
        return text

    def _purged(self, seq: int) -> frozenset[str]:
        """The files whose texts of a commit were purged."""
        return frozenset(uri for _, uri in self._ledger.past.purged([seq]))

    def _commits(self, rows: Sequence[PastCommit], files_most: int | None = None) -> Iterator[Commit]:
        undone = self._ledger.past.undone([row.commit_id for row in rows], self.spaces)
        return (self._commit(row, undone.get(row.commit_id, ()), files_most) for row in rows)

    def _commit(self, past: PastCommit, undone_by: Sequence[str], files_most: int | None) -> Commit:
        rows = [row for row in self._ledger.steps_of(past.seq) if self.sees(row.uri)]
        rows.sort(key=lambda row: row.uri.is_summary)
        purged = self._purged(past.seq)
        texts = (self._ledger.change(past.seq, row.uri) or row for row in rows[:files_most])
        shown = [_step(row, self._withheld(row, purged)) for row in texts]
        steps = [*shown, *(_step(row, None) for row in rows[len(shown) :])]
        is_import = past.kind == "import"
        receipt = self._ledger.past.receipt(past.seq) if shown or is_import else {}
        if is_import:
            from memory_core.features.imports.known_files import imported_from

            files = imported_from(receipt)
            steps = [replace(step, imported_from=files.get(str(step.uri))) for step in steps]
        commit = Commit(
            seq=past.seq,
            commit_id=past.commit_id,
            at=past.at,
            author=past.author,
            kind=past.kind,
            files=tuple(steps),
            results=tuple(self._results(receipt, shown)),
            line="",
            undoes=past.undoes,
            undone_by=undone_by[-1] if undone_by else None,
        )
        return replace(commit, line=_line(commit))

    def _results(self, receipt: Mapping[str, Any], steps: Sequence[FileStep]) -> Iterable[OperationResult]:
        """The receipt's results on files that are shown; a merged receipt speaks of other commits as well.

        What was left out of a commit is no part of it: only who committed was told, in the words that they gave.
        """
        shown = {str(step.uri) for step in steps if step.withheld is None}
        for result in receipt.get("results", ()):
            action = Action(result["action"])
            if result["uri"] in shown and action in _CHANGED:
                yield OperationResult(result["op"], result["uri"], action, note=self._told(result.get("note")))

    def _told(self, note: str | None) -> str | None:
        """The note of a result; None where it names something in a space that the reader does not see."""
        return note if note is None or all(found[1] in self.spaces for found in _SPACE.finditer(note)) else None

    def knows(self, commit_id: str) -> bool:
        """Whether there is a commit of this id that the reader may see."""
        try:
            self.resolve(commit_id)
        except NotFound:
            return False
        return True

    def sees(self, uri: MemoryUri) -> bool:
        """Whether a file is in a space that the reader may see."""
        try:
            self._browser.visible(uri)
        except NotFound:
            return False
        return True

    def _withheld(self, row: ChangeRow, purged: Iterable[str]) -> str | None:
        if str(row.uri) in purged:
            return _PURGED
        from memory_core.core.search.browse import is_elsewhere

        texts = [text for text in (row.before, row.after) if text is not None]
        if not row.uri.is_summary and any(
            is_elsewhere(row.uri, text, self._project, self._browser.features) for text in texts
        ):
            return _PRIVATE
        return None

    def _diff(self, row: ChangeRow, *, asked: bool = False) -> FileDiff:
        """The file's step; ``asked``: for itself, so that its text is shown."""
        withheld = self._withheld(row, self._purged(row.seq))
        step = _step(row, None if withheld == _PRIVATE and asked else withheld)
        if step.withheld is not None:
            return FileDiff(step)
        return FileDiff(step, row.before or "", row.after or "")


_PRIVATE = "private to another project"
_PURGED = "purged"


def _step(row: ChangeRow, withheld: str | None) -> FileStep:
    exists, existed = row.after_sha256 is not None, row.before_sha256 is not None
    action = Action.UPDATED if exists is existed else Action.CREATED if exists else Action.DELETED
    return FileStep(row.uri, action, row.moved_from, row.appended, withheld)


def _line(commit: Commit) -> str:
    """What a commit did, on one line."""
    memories = [step for step in commit.files if not step.uri.is_summary] or list(commit.files)
    left = {step.moved_from for step in memories}
    verbs = ("moved", "archived", "restored", *_VERBS.values(), *_FORGOT.values(), *sorted(_CHANGED))
    named: dict[str, list[str]] = {verb: [] for verb in verbs}
    for step in memories:
        if step.moved_from is not None and commit.kind != "forget":
            verb, moved = _moved(step.moved_from, step.uri)
            named[verb].append(moved)
        elif step.uri not in left or commit.kind == "forget":
            named[_verb(commit.kind, step)].append(_short(step.uri))
    clauses = []
    for verb, names in named.items():
        clauses += [f"{verb} {_few(names)}"] if names else []
    lead = "" if commit.undoes is None else f"undid {commit.undoes}: "
    sources = list(dict.fromkeys(step.imported_from for step in memories if step.imported_from))
    origin = f" from {_few(sources)}" if sources else ""
    return lead + "; ".join(clauses) + origin


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_FILES} more" if len(names) > _SHOWN_FILES else ""
    return f"{', '.join(names[:_SHOWN_FILES])}{more}"


def _moved(source: MemoryUri, target: MemoryUri) -> tuple[str, str]:
    """What a move is called, and how it reads."""
    if Scope.ARCHIVE in (source.scope, target.scope) and source.scope is not target.scope:
        return ("archived", _short(source)) if target.scope is Scope.ARCHIVE else ("restored", _short(target))
    return "moved", f"{_short(source)} to {_short(target)}"


def _verb(kind: str, step: FileStep) -> str:
    if kind == "messages" and step.uri.scope is not Scope.SESSION:
        return step.action
    return _FORGOT[step.action] if kind == "forget" else _VERBS.get(kind, step.action)


def _short(uri: MemoryUri) -> str:
    return "/".join(uri.parts[-2:])


def _no_commit(commit_id: str) -> NotFound:
    return NotFound(f"there is no commit {commit_id!r}.", hint=_HINT)


#: Commits and versions of one page; the command line goes further back.
_COMMITS = 200
_VERSIONS = 50
#: So many characters of changes are on one page; of the rest it names the files.
_PAGE_CHARS = 2_000_000
_TOO_LONG = "(What changed is left out: the page is long.)"
_SCOPES = frozenset(scope.value for scope in Scope)
_ABOUT = "what changed, when and by whom: read it for the latest commits"


def _commit_page(commit: Commit, diffs: Iterable[FileDiff]) -> str:
    """What a commit did and changed, as Markdown."""
    lines = [f"# Commit {commit.commit_id}", "", *_facts(commit), ""]
    for diff, body in _with_bodies(diffs, lambda diff: diff):
        lines += [f"## {_diff_title(diff)}", "", *body, ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _with_bodies(found: Iterable[T], diff_of: Callable[[T], FileDiff]) -> Iterator[tuple[T, Sequence[str]]]:
    """Each with its lines on a page, one at a time: of a long conversation each holds it twice."""
    chars = 0
    for each in found:
        body = _body(diff_of(each)) if chars < _PAGE_CHARS else [_TOO_LONG]
        chars += sum(map(len, body))
        yield each, body


def _diff_title(diff: FileDiff) -> str:
    """What became of a file, on one line."""
    step = diff.step
    moved = f" (moved from {step.moved_from})" if step.moved_from is not None else ""
    return f"{step.action}: {step.uri}{moved}"


def commit_line(commit: Commit) -> str:
    """A commit on one line: id, time, author and what it did."""
    undone = f" [undone by {commit.undone_by}]" if commit.undone_by else ""
    return f"{commit.commit_id}  {_time(commit)}  {_author(commit)}: {commit.line}{undone}"


def _past_of(history: History, uri: str) -> str:
    try:
        return "\n".join(_versions(uri, history.versions(uri, _VERSIONS))).rstrip("\n") + "\n"
    except NotFound:
        commits = history.commits(uri, _COMMITS, files_most=0)
        if not commits:
            raise
        return _listing(f"# History below {uri}, newest first", commits)


def _versions(uri: str, versions: Iterable[Version]) -> Iterator[str]:
    yield from (f"# History of {uri}, newest first", "")
    for version, body in _with_bodies(versions, lambda version: version.diff):
        yield from (f"## Commit {version.commit.commit_id}", "", *_facts(version.commit), "")
        yield from (_diff_title(version.diff), "", *body, "")


def _listing(title: str, commits: Sequence[Commit]) -> str:
    lines = [title, "", f"Read {_HISTORY_URI}/<commit> to see what one changed.", ""]
    lines += [f"- {commit_line(commit)}" for commit in commits] or ["There is none yet."]
    if len(commits) == _COMMITS:
        lines += ["", "Older ones: runebook history --before <commit>"]
    return "\n".join(lines) + "\n"


def _facts(commit: Commit) -> list[str]:
    facts = [f"{_time(commit)}, {_author(commit)}: {commit.line}"]
    if commit.undone_by:
        facts.append(f"Undone by {commit.undone_by}.")
    elif commit.files:
        facts.append(f'To take it back: commit_memory(undo="{commit.commit_id}").')
    return facts


def _body(diff: FileDiff) -> list[str]:
    if diff.step.withheld is not None:
        return [f"[{diff.step.withheld}]"]
    from memory_core.core.extract.prompts import fenced

    lines = diff.lines
    return fenced("\n".join(lines)).split("\n") if lines else ["[no text]"]


def _time(commit: Commit) -> str:
    return f"{commit.at[:10]} {commit.at[11:16]} UTC"


def _author(commit: Commit) -> str:
    return commit.author or ("by hand" if commit.kind == "external" else "unknown")


def history_of(memory: Runebook, project: str | None = None) -> History:
    """The past of an open store as its reader sees it, who works in a project."""
    return History(memory.store, memory.browser, memory.spaces, project)


class _Pages:
    """``viking://history`` and what is below it, for ``read`` and ``ls``."""

    def holds(self, uri: str) -> bool:
        """Whether an address is one of history's."""
        return uri == _HISTORY_URI or uri.startswith(f"{_HISTORY_URI}/")

    def read(self, memory: Runebook, request: ReadRequest) -> ReadResult:
        """Lines of a page.

        Raises:
            NotFound: If the reader sees no such commit or file.
            InvalidUri: If what follows begins with a scope and is no URI.
        """
        project = memory.projects.current(request.here)
        history = history_of(memory, project)
        shared = {name: history_of(view, project) for name, view in memory.shared_views.items()}
        rest = request.uri.removeprefix(_HISTORY_URI).strip("/")
        if not rest:
            text = _listing(
                "# History: the latest commits, newest first", history.commits(limit=_COMMITS, files_most=0)
            )
            for name, other in shared.items():
                text += "\n" + _listing(f"# Of the shared space {name}", other.commits(limit=_COMMITS, files_most=0))
        elif rest.split("/")[0] in _SCOPES:
            text = _past_of(history, f"{SCHEME}{rest}")
        else:
            places = {"": history, **shared}
            name = next((name for name, each in places.items() if each.knows(rest)), "")
            commit = places[name].commit(rest)
            text = _commit_page(commit, places[name].diff(commit.commit_id))
            text += f'\nIt changed the shared space {name}: to take it back, add space="{name}".\n' if name else ""
        from memory_core.core.search.browse import page_of

        return page_of(request.uri.rstrip("/"), text, request.offset, request.limit, request.limit_chars)

    def listing(self, memory: Runebook, abs_limit: int | None) -> tuple[Listing, ...]:
        """The line of ``ls viking://``; none where there is no history yet."""
        about = None if abs_limit is None else _ABOUT[:abs_limit]
        newest = history_of(memory).newest(1)
        return tuple(Listing(_HISTORY_URI, "history", False, 0, commit.at, about) for commit in newest)


@dataclass(frozen=True, slots=True)
class HistoryRequest:
    """Show what changed, when and by whom."""

    uri: Annotated[
        str | None,
        Arg(help="Only this file, also under former names, or what is below this directory.", positional=True),
    ] = None
    limit: Annotated[int, Arg(help="Commits at most (default 20).")] = 20
    before: Annotated[str | None, Arg(help="Only older ones than this.", metavar="COMMIT")] = None
    here: Here = None


@dataclass(frozen=True, slots=True)
class DiffRequest:
    """Show what a commit changed, or how a file differs between two."""

    what: Annotated[
        str, Arg(help='A commit (an id, the first characters of one, or "last"), or a URI.', positional=True)
    ]
    earlier: Annotated[str | None, Arg(help="Of a file: as this commit left it.", flag="--from", metavar="COMMIT")] = (
        None
    )
    later: Annotated[str | None, Arg(help="Of a file: as this one left it.", flag="--to", metavar="COMMIT")] = None
    here: Here = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a file differs between two commits."""

    JSON: ClassVar = "*"

    uri: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CommitDiff:
    """What a commit changed, file by file."""

    commit: Commit
    diffs: tuple[FileDiff, ...]


def history(memory: Runebook, request: HistoryRequest) -> list[Commit]:
    """Commits, newest first; those of a file through its renames.

    Raises:
        NotFound: If there is no such commit or file, and never was.
    """
    past = history_of(memory, memory.projects.current(request.here))
    found = past.commits(request.uri, request.limit, request.before)
    if request.uri is None:
        return found
    try:
        versions = past.versions(request.uri, _LIMIT_COMMITS if request.before is not None else request.limit)
        commits = [_of_file(version) for version in versions]
    except NotFound:  # a directory
        if not found and request.before is None:
            raise
        return found
    before = None if request.before is None else past.resolve(request.before).seq
    return [commit for commit in commits if before is None or commit.seq < before][: request.limit]


def _of_file(version: Version) -> Commit:
    """A commit whose line speaks of one file alone."""
    commit, uri = version.commit, version.diff.step.uri
    files = tuple(step for step in commit.files if step.uri == uri)
    return replace(commit, line=_line(replace(commit, files=files)))


def diff(memory: Runebook, request: DiffRequest) -> CommitDiff | Comparison:
    """What a commit changed, or how a file differs.

    Raises:
        InvalidInput: If two commits are named that are to be compared, but no file.
        NotFound: If there is no such commit or file.
    """
    past = history_of(memory, memory.projects.current(request.here))
    if "://" in request.what:
        return Comparison(request.what, past.compare(request.what, request.earlier, request.later))
    if request.earlier or request.later:
        raise InvalidInput("--from and --to compare a file.", hint="Name its URI instead of a commit.")
    commit = past.commit(request.what)
    return CommitDiff(commit, tuple(past.diff(commit.commit_id)))


def _history_text(commits: Sequence[Commit]) -> str:
    return "\n".join(commit_line(commit) for commit in commits) or "No commit yet."


def _diff_text(found: CommitDiff | Comparison) -> str:
    if isinstance(found, Comparison):
        return "\n".join(found.lines) or "No difference."
    lines = [commit_line(found.commit)]
    for each in found.diffs:
        withheld = [f"[{each.step.withheld}]"] if each.step.withheld else []
        lines += ["", _diff_title(each), *withheld, *each.lines]
    return "\n".join(lines)


HISTORY = Command("history", HistoryRequest, history, member="commits", text=_history_text)
DIFF = Command("diff", DiffRequest, diff, text=_diff_text)
FEATURE = Feature(commands=(HISTORY, DIFF), pages=_Pages())
