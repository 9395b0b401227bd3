"""The condition under which operations count at all: that certain files still are what their author saw.

A person who edits a page sends back what was seen; if another tab, an agent or a hand changed the file meanwhile,
nothing is done, and whoever asks can look at both. Checked inside the transaction, where nobody comes in between. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from memory_core.errors import RunebookError
from memory_core.model.changes import Action, ChangeSet, OperationResult, text_sha256
from memory_core.model.uri import MemoryUri
from memory_core.storage.store import Snapshot
from memory_core.update.soundness import shown

OP = "precondition"
#: In place of a hash: that there is no such file.
ABSENT = ""
_HINT = "Look at it as it is now, and send the change again with what you saw then."


def moved_on(snapshot: Snapshot, expected: Mapping[str, str]) -> ChangeSet | None:
    """The refusal of everything, if a file is no longer what it was; None if all are.

    Args:
        snapshot: The store under its lock.
        expected: SHA-256 of each file's text, by URI; ``ABSENT`` of one that is not there.
    """
    refused = tuple(_refusal(uri, how) for uri, sha256 in expected.items() if (how := _moved(snapshot, uri, sha256)))
    return ChangeSet((), refused) if refused else None


def _moved(snapshot: Snapshot, uri: str, sha256: str) -> str | None:
    try:
        text = snapshot.text(MemoryUri.parse(uri))
    except RunebookError as error:
        return f"cannot be compared: {error.message}"
    if text is None:
        return None if sha256 == ABSENT else "was removed since it was read."
    return None if text_sha256(text) == sha256 else "changed since it was read."


def _refusal(uri: str, how: str) -> OperationResult:
    return OperationResult(OP, shown(uri), Action.REJECTED, f"{shown(uri)} {how}", _HINT, conflict=True)
