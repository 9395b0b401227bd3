"""``edit``: a memory's own file in the person's editor, then what changed and how to take it back.

A file of a folder is edited where it is, and the store notices it as any edit by hand. A database has no files: a copy
is edited, and committed if the memory still is what was copied.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from memory_core.core.errors import InvalidInput, MemoryChanged, NotFound, RunebookError
from server.commands.opening import given_uri, open_memory_of, show

if TYPE_CHECKING:
    from memory_core.core.memory.results import CommitReceipt
    from memory_core.core.memory.uri import MemoryUri
    from memory_core.runebook import Runebook

KIND = "edit"
_NO_EDITOR = "no editor is set."


def edit(arguments: argparse.Namespace) -> int:
    """Open a memory in the editor and say what changed."""
    with open_memory_of(arguments, warm=False) as opened:
        memory, uri, before = _found(opened, given_uri(arguments.uri))
        path = None if memory.config.store.url else memory.store.files.path_for(uri)
        newest = _newest(memory, uri)
    if path is None:
        return _edit_copy(arguments, uri, before, newest)
    if _editor() is None:
        how = f"Edit this file: what you save counts at once, and runebook history shows it.\n{path}"
        how += f"\nTo open it from here, set $EDITOR, for example: EDITOR=nano runebook edit '{uri}'"
        show(arguments, {"uri": str(uri), "path": str(path), "changed": False}, f"No editor is set. {how}")
        return 0
    _open_editor(path, "Set $EDITOR, or edit the file that runebook edit names without it.")
    with open_memory_of(arguments, warm=False) as opened:
        memory = opened.at(str(uri))
        memory.store.adopt()
        memory.follow_index()
        return _say_what_changed(arguments, memory, uri, before, newest)


def _open_editor(path: Path, hint: str) -> None:
    """Have a person edit a file.

    Raises:
        InvalidInput: If there is no editor, or it fails.
    """
    editor = _editor()
    if editor is None:
        raise InvalidInput(_NO_EDITOR, hint=hint)
    try:
        subprocess.run([*shlex.split(editor), str(path)], check=True)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        raise InvalidInput(f"the editor failed: {error}.", hint=hint) from error


def _editor() -> str | None:
    return os.environ.get("VISUAL") or os.environ.get("EDITOR") or None


def _found(opened: Runebook, address: str) -> tuple[Runebook, MemoryUri, str]:
    """The view that a memory is in, its address, and its text as it is now.

    Raises:
        NotFound: If there is none.
        InvalidInput: If it is no memory.
    """
    from memory_core.core.memory.requests import ReadRequest
    from memory_core.core.memory.uri import MemoryUri

    opened.read(ReadRequest(address, limit=1))  # says what is there instead
    uri = MemoryUri.parse(address)
    memory = opened.at(address)
    memory.expect_writable()
    if not uri.name.endswith(".md"):
        raise InvalidInput(
            f"{address!r} is a conversation, which is kept word for word.",
            hint="Take messages out with runebook forget.",
        )
    memory.store.adopt()  # what was edited until now is no part of this edit
    text = memory.store.text(uri)
    if text is None:
        raise NotFound(f"there is nothing at {address!r}.", hint="Search with find, or list its parent with ls.")
    return memory, uri, text


def _newest(memory: Runebook, uri: MemoryUri) -> str | None:
    """The newest commit that touched a file."""
    from memory_core.features.history import history_of

    return next((commit.commit_id for commit in history_of(memory).commits(str(uri), limit=1)), None)


def _say_what_changed(
    arguments: argparse.Namespace, memory: Runebook, uri: MemoryUri, before: str, newest: str | None
) -> int:
    from memory_core.core.text.text_diff import unified
    from memory_core.features.history import commit_line, history_of

    after = memory.store.text(uri)
    lines = unified(before, after or "")
    facts = {"uri": str(uri), "changed": after != before, "lines": lines, "commits": [], "problems": []}
    if after == before:
        note = (
            "" if memory.config.store.url else " If the editor is still open: what you save there counts all the same."
        )
        show(arguments, facts, f"Nothing was changed.{note}")
        return 0
    commits = history_of(memory).commits(str(uri), limit=10)
    known = [commit.commit_id for commit in commits]
    since = commits[: known.index(newest)] if newest in known else commits
    own = [commit.commit_id for commit in since if commit.kind in ("external", KIND)]
    others = [f"note: changed meanwhile: {commit_line(commit)}" for commit in since if commit.commit_id not in own]
    problems = [f"note: {found.what}. {found.hint}" for found in memory.store.problems() if found.uri == str(uri)]
    told = [f"{'deleted' if after is None else 'changed'}: {uri}", *lines, *problems, *others]
    told += [f"Undo with: {'; '.join(f'runebook undo {each}' for each in own)}"] if own else []
    show(arguments, {**facts, "commits": own, "problems": problems}, "\n".join(told), is_diff=True)
    return 0


def _commit(memory: Runebook, uri: MemoryUri, before: str, after: str) -> CommitReceipt:
    """Commit a text as a person wrote it, if the memory still is what they saw.

    Raises:
        MemoryChanged: If it is not.
        ContentRejected: If it can be no memory.
    """
    from memory_core.core.commit.conflicts import changed_since
    from memory_core.core.commit.working_copy import WorkingCopy
    from memory_core.core.errors import ContentRejected, TooLarge
    from memory_core.core.memory.results import Action, ChangeSet, OperationResult, text_sha256
    from memory_core.core.store.local import Snapshot

    now = datetime.now(UTC)
    context = memory.plan_context(now)
    if not after.strip() or "\0" in after:
        raise ContentRejected("the text is blank or holds NUL.", hint="To delete a memory: runebook forget URI.")
    if len(after.encode("utf-8")) > context.content_bytes:
        raise TooLarge(f"the text is longer than {context.content_bytes:,} bytes.", hint="Make it shorter.")

    def planned(snapshot: Snapshot) -> ChangeSet:
        refused = changed_since(snapshot, {str(uri): text_sha256(before)})
        if refused is not None:
            return refused
        copy = WorkingCopy(snapshot, context)
        copy.put(copy.owned(str(uri)), after)
        return ChangeSet(copy.changes(), (OperationResult(KIND, str(uri), Action.UPDATED),))

    receipt = memory.indexed(memory.store.commit(planned, kind=KIND, now=now))
    (result,) = receipt.results
    if result.conflict:
        reason = result.reason or f"{uri} changed since it was read."
        hint = "Nothing was stored. Run runebook edit again, and make your change in the text as it is now."
        raise MemoryChanged(reason, hint=hint, uri=str(uri))
    return receipt


def _edit_copy(arguments: argparse.Namespace, uri: MemoryUri, before: str, newest: str | None) -> int:
    """Edit a copy of what a database holds, and commit it."""
    hint = "Set $EDITOR, for example EDITOR=nano: a database has no file to open."
    with edited_copy(uri.name, before, hint) as after, open_memory_of(arguments, warm=False) as opened:
        memory = opened.at(str(uri))
        if after != before:
            _commit(memory, uri, before, after)
        return _say_what_changed(arguments, memory, uri, before, newest)


@contextmanager
def edited_copy(name: str, text: str, hint: str) -> Iterator[str]:
    """The text as a person leaves it in their editor, which opens a copy; after an error the copy stays, and is named.

    Args:
        name: Of the copy's file.
        text: What the editor shows.
        hint: What to do where there is no editor, or it fails.

    Raises:
        InvalidInput: If there is no editor, it fails, or what it leaves is no UTF-8.
    """
    if _editor() is None:
        raise InvalidInput(_NO_EDITOR, hint=hint)
    path = Path(tempfile.mkdtemp(prefix="runebook-")) / name
    path.write_bytes(text.encode("utf-8"))
    try:
        _open_editor(path, hint)
        yield _text_of(path)
    except RunebookError as error:
        if path.exists():
            error.hint = f"{error.hint} What you wrote is kept in {path}."
        raise
    shutil.rmtree(path.parent, ignore_errors=True)  # an editor may have left files of its own


def _text_of(path: Path) -> str:
    """The text of a file, its line breaks as they are."""
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the edited text cannot be read: {error}.", hint="Save it as UTF-8.") from error
