"""The rolling summary loses the lines of memories that a commit removes, in the same commit.

Only of a page that was made: one that a person or a model wrote for its owner is left as it is, and the receipt says
that it may name what is gone. Whatever else stops a line from holding is seen when the page is given. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from memory_core.model.changes import Action, ChangeSet, FileChange, OperationResult
from memory_core.model.rolling_summary import dump_rolling_summary, read_rolling_summary, rolling_summary_uri, without
from memory_core.model.uri import MemoryUri, Scope
from memory_core.storage.store import Snapshot
from memory_core.update.bounds import Context

_NOTE = "lost the lines of what is gone"


def without_removed(decided: ChangeSet, snapshot: Snapshot, context: Context) -> ChangeSet:
    """The change set with the rolling summary as it is without the memories that it removes or moves away.

    Args:
        decided: What a plan removes, each file once.
        snapshot: The store before it.
        context: Whose page, and when.

    Returns:
        The same, where the page says nothing of them; with a note where an authored page may.
    """
    page = rolling_summary_uri(context.user_space)
    gone = {str(change.uri) for change in decided.changes if change.after is None and _is_named(change.uri)}
    if not gone or any(change.uri == page for change in decided.changes):
        return decided
    before = snapshot.text(page)
    stored = read_rolling_summary(before)
    if stored is None:
        return decided
    if stored.authored:
        return replace(decided, notes=(*decided.notes, f"{page} was written by hand and may still name it"))
    after = without(stored, lambda line: line.uri not in gone)
    if after is stored:
        return decided
    text = dump_rolling_summary(after, context.now, context.source) if after.text else None
    action = Action.DELETED if text is None else Action.UPDATED
    return replace(
        decided,
        changes=(*decided.changes, FileChange(page, before, text)),
        results=(*decided.results, OperationResult("summary", str(page), action, note=_NOTE)),
    )


def _is_named(uri: MemoryUri) -> bool:
    """Whether a page could name it: no directory's summary, nothing of the archive, no conversation."""
    return uri.scope in (Scope.USER, Scope.AGENT) and not uri.is_summary
