"""History as pages that ``read`` shows: ``viking://history`` and what is below it.

``viking://history`` lists the latest commits, ``viking://history/<commit>`` shows what one changed, and
``viking://history/user/default/memories/…`` the versions of a file, or the commits below a directory. No such address
is a ``MemoryUri``: nothing can be written, indexed or found there. Stored text stands in fences that it cannot close,
and each of its lines behind a diff's mark, so none can pose as a heading or as another file's diff.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from memory_core.errors import NotFound
from memory_core.lifecycle.history.history import Commit, FileDiff, History, Version
from memory_core.model.hits import Listing, ReadResult
from memory_core.model.uri import SCHEME, Scope
from memory_core.react.fencing import fenced
from memory_core.retrieval.browse import page_of

HISTORY_URI = f"{SCHEME}history"
#: Commits and versions of one page; the command line goes further back.
_COMMITS = 200
_VERSIONS = 50
_SCOPES = frozenset(scope.value for scope in Scope)
_ABOUT = "what changed, when and by whom: read it for the latest commits"


def is_history(uri: str) -> bool:
    """Whether an address is one of history's."""
    return uri == HISTORY_URI or uri.startswith(f"{HISTORY_URI}/")


def read_history(
    history: History, uri: str, offset: int = 0, limit: int = -1, limit_chars: int | None = None
) -> ReadResult:
    """Lines of a page of history; the arguments are those of ``Browser.read``.

    Raises:
        NotFound: If the reader sees no such commit or file.
        InvalidUri: If what stands behind ``viking://history/`` is neither a commit nor a URI.
    """
    rest = uri.removeprefix(HISTORY_URI).strip("/")
    if not rest:
        text = _listing("# History: the latest commits, newest first", history.commits(limit=_COMMITS))
    elif rest.split("/")[0] in _SCOPES:
        text = _past_of(history, f"{SCHEME}{rest}")
    else:
        text = commit_page(history.commit(rest), history.diff(rest))
    return page_of(uri.rstrip("/"), text, offset, limit, limit_chars)


def history_listing(history: History, abs_limit: int | None) -> tuple[Listing, ...]:
    """The line of ``ls viking://`` that leads to history; none where there is none yet.

    Args:
        history: The reader's.
        abs_limit: Characters of its abstract; None is none.
    """
    about = None if abs_limit is None else _ABOUT[:abs_limit]
    return tuple(Listing(HISTORY_URI, "history", False, 0, commit.at, about) for commit in history.commits(limit=1))


def commit_page(commit: Commit, diffs: Sequence[FileDiff]) -> str:
    """What a commit did and changed, as Markdown."""
    lines = [f"# Commit {commit.commit_id}", "", *_facts(commit), ""]
    for diff in diffs:
        lines += [f"## {diff_title(diff)}", "", *_body(diff), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def diff_title(diff: FileDiff) -> str:
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
        versions = history.versions(uri, _VERSIONS)
    except NotFound:
        commits = history.commits(uri, _COMMITS)
        if not commits:
            raise
        return _listing(f"# History below {uri}, newest first", commits)
    return "\n".join(_versions(uri, versions)).rstrip("\n") + "\n"


def _versions(uri: str, versions: Iterable[Version]) -> Iterator[str]:
    yield from (f"# History of {uri}, newest first", "")
    for version in versions:
        yield from (f"## Commit {version.commit.commit_id}", "", *_facts(version.commit), "")
        yield from (diff_title(version.diff), "", *_body(version.diff), "")


def _listing(title: str, commits: Sequence[Commit]) -> str:
    lines = [title, "", f"Read {HISTORY_URI}/<commit> to see what one changed.", ""]
    lines += [f"- {commit_line(commit)}" for commit in commits] or ["There is none yet."]
    if len(commits) == _COMMITS:
        lines += ["", "Older ones: runebook history --before <commit>"]
    return "\n".join(lines) + "\n"


def _facts(commit: Commit) -> list[str]:
    said = [f"{_time(commit)}, {_author(commit)}: {commit.line}"]
    if commit.undone_by:
        said.append(f"Undone by {commit.undone_by}.")
    elif commit.files:
        said.append(f'To take it back: commit_memory(undo="{commit.commit_id}").')
    return said


def _body(diff: FileDiff) -> list[str]:
    if diff.step.withheld is not None:
        return [f"[{diff.step.withheld}]"]
    return fenced("\n".join(diff.lines)).split("\n") if diff.lines else ["[no text]"]


def _time(commit: Commit) -> str:
    return f"{commit.at[:10]} {commit.at[11:16]} UTC"


def _author(commit: Commit) -> str:
    return commit.author or ("by hand" if commit.kind == "external" else "unknown")
