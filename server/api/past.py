"""The past: what changed, when and by whom, how versions differ, and taking a commit back."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from memory_core.core.caller import current_author
from memory_core.core.memory.uri import SCHEME
from memory_core.core.text.text_diff import Row, side_by_side
from memory_core.features.history import LAST, Commit, FileDiff
from memory_core.features.undo import UNDO, UndoRequest
from server.api import answers, past_answers
from server.api.caller import Reader, Writer
from server.api.entries import EntryPath
from server.api.entry import past_of
from server.api.questions import DryRun
from server.api.refusals import declared, expect_stored
from server.http.authentication import identity

routes = APIRouter(tags=["past"])
CommitId = Annotated[
    str, Path(max_length=64, description='Its id, or "last".', examples=["20261121T214112-c263029f", "last"])
]
Context = Annotated[int, Query(ge=0, le=1_000_000, description="Unchanged lines shown around a change.")]
_COMMITS_MOST = 500
_VERSIONS_MOST = 200
_ROWS_MOST = 5_000
_FILES_LISTED = 50


@routes.get(
    "/history", response_model=past_answers.HistoryAnswer, responses=declared(404), response_model_exclude_none=True
)
def history(
    memory: Reader,
    uri: Annotated[str | None, Query(max_length=4_096, description="Only what touched it, or is below it.")] = None,
    limit: Annotated[int, Query(ge=1, le=_COMMITS_MOST)] = 50,
    before: Annotated[str | None, Query(max_length=64, description="Only commits older than this one.")] = None,
) -> Any:
    """Commits, newest first."""
    memory.opened.look()
    found = past_of(memory).commits(uri, limit + 1, before)
    return {"commits": [_listed(commit) for commit in found[:limit]], "more": len(found) > limit}


@routes.get(
    "/commits/{commit_id}",
    response_model=past_answers.CommitDiffAnswer,
    responses=declared(404),
    response_model_exclude_none=True,
)
def read_commit(memory: Reader, commit_id: CommitId, context: Context = 3) -> Any:
    """One commit with what it changed, file by file, side by side."""
    past = past_of(memory)
    commit = past.commit(commit_id)
    files: list[dict[str, Any]] = []
    room = _ROWS_MOST
    for diff in past.diff(commit.commit_id):
        rows, room = _within(room, diff, context)
        files.append({**diff.step.as_dict(), "rows": rows})
    return {"commit": commit.as_dict(), "files": files}


@routes.post(
    "/commits/{commit_id}/undo",
    response_model=answers.Receipt,
    responses=declared(404, 409, 413, 415),
    response_model_exclude_none=True,
)
def undo(memory: Writer, commit_id: CommitId, asked: DryRun | None = None) -> Any:
    """Take a commit back, and keep what happened since. "last" is the bearer's own last one."""
    own = current_author() if commit_id == LAST and identity() is not None else None
    receipt = memory.run(UNDO, UndoRequest(commit_id, author=own, dry_run=asked is not None and asked.dry_run))
    return expect_stored(receipt).as_dict()


@routes.get(
    "/versions/{path:path}",
    response_model=past_answers.VersionsAnswer,
    responses=declared(404),
    response_model_exclude_none=True,
)
def versions(
    memory: Reader,
    path: EntryPath,
    limit: Annotated[int, Query(ge=1, le=_VERSIONS_MOST)] = 50,
    context: Context = 3,
) -> Any:
    """The versions of a file, newest first, through its renames; it may be gone by now."""
    memory.opened.look()
    found = past_of(memory).versions(f"{SCHEME}{path}", limit)
    listed: list[dict[str, Any]] = []
    room = _ROWS_MOST
    for version in found:
        step = version.diff.step.as_dict()
        kept: dict[str, Any] = {name: step[name] for name in ("action", "withheld", "moved_from") if name in step}
        rows, room = _within(room, version.diff, context)
        listed.append({"commit": version.commit.as_dict(), **kept, "rows": rows})
    return {"versions": listed}


@routes.get(
    "/compare/{path:path}",
    response_model=past_answers.RowsAnswer,
    responses=declared(404),
    response_model_exclude_none=True,
)
def compare(
    memory: Reader,
    path: EntryPath,
    earlier: Annotated[str | None, Query(max_length=64, description="As this commit left it.")] = None,
    later: Annotated[str | None, Query(max_length=64, description="As this one left it; default now.")] = None,
    context: Context = 3,
) -> Any:
    """How a file differs between two commits; default: what the newest commit that touched it changed."""
    memory.opened.look()
    before, after = past_of(memory).texts(f"{SCHEME}{path}", earlier, later)
    return {"rows": _shown(before, after, context)}


def _listed(commit: Commit) -> dict[str, Any]:
    """A commit of a list; of one that touched very many files the first are named."""
    facts, count = commit.as_dict(), len(commit.files)
    if count <= _FILES_LISTED:
        return facts
    shown = {name: facts[name][:_FILES_LISTED] for name in ("files", "results")}
    return {**facts, **shown, "file_count": count}


def _within(room: int, diff: FileDiff, context: int) -> tuple[list[dict[str, Any]], int]:
    """The rows of one of several files of an answer, and for how many more there is room in it."""
    if room > 0:
        rows = _shown(diff.before, diff.after, context, room)
        return rows, room - len(rows)
    lines = max(diff.before.count("\n"), diff.after.count("\n"), 1)
    return ([Row("skipped", count=lines).as_dict()] if diff.before != diff.after else []), 0


def _shown(before: str, after: str, context: int, most: int = _ROWS_MOST) -> list[dict[str, Any]]:
    """The rows, as many as a page can show; the others are counted."""
    rows = side_by_side(before, after, context)
    left_out = len(rows) - most
    shown = [row.as_dict() for row in rows[:most]]
    return [*shown, Row("skipped", count=left_out).as_dict()] if left_out > 0 else shown
