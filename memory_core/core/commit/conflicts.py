"""The condition under which operations count at all: that certain files still are what their author saw.

A person who edits a page sends back what was seen; if another tab, an agent or a hand changed the file meanwhile,
nothing is done, and whoever asks can look at both. Checked inside the transaction, where nobody comes in between. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from memory_core.core.commit.merge_fields import FieldMerge
from memory_core.core.commit.patch import is_patch
from memory_core.core.commit.working_copy import Draft
from memory_core.core.errors import MemoryChanged, PatchRejected, RunebookError
from memory_core.core.memory.directory_page import abstract_line, is_generated, parse_page
from memory_core.core.memory.memory import parse, read_record
from memory_core.core.memory.memory_type import MemoryField, MemoryType, MergeOp
from memory_core.core.memory.operations import shown
from memory_core.core.memory.results import Action, ChangeSet, OperationResult, text_sha256
from memory_core.core.memory.uri import ABSTRACT_NAME, MemoryUri
from memory_core.core.store.local import Snapshot

_HINT = (
    "Read it again, then send a SEARCH/REPLACE patch, or the whole value with what is there now worked in; a "
    "different memory needs a name of its own."
)


def check_fields(
    draft: Draft, uri: MemoryUri, memory_type: MemoryType, given: Mapping[str, Any], merged: FieldMerge
) -> None:
    """Refuse an update that replaces values its author did not see, or whose patch no longer fits.

    Args:
        draft: The plan's texts.
        uri: The memory.
        memory_type: Its type.
        given: Values or patches of the operation, by field.
        merged: What became of them.

    Raises:
        MemoryChanged: The operation is refused whole, so that sending it again adds no sum twice.
    """
    if not draft.moved(uri):
        return
    misfits = [error for error in merged.rejected.values() if isinstance(error, PatchRejected)]
    if misfits:
        raise _changed(draft, uri, "and the patch no longer fits", misfits[0])
    now = _fields(memory_type, uri, draft.before(uri)) or {}
    seen = _fields(memory_type, uri, _seen_text(draft, uri))
    lost = [
        name
        for name in _whole(memory_type, given)
        if name in merged.values
        and merged.values[name] != now.get(name)
        and (now.get(name) not in (None, "") if seen is None else seen.get(name) != now.get(name))
    ]
    if lost:
        raise _changed(draft, uri, f"so {', '.join(lost)} cannot be replaced as a whole")


def check_removal(draft: Draft, uri: MemoryUri, memory_type: MemoryType | None) -> None:
    """Refuse to delete what its author did not see.

    Raises:
        MemoryChanged: If the memory says something else than what was seen, or was not seen.
    """
    if not draft.moved(uri):
        return
    seen_text = _seen_text(draft, uri)
    unchanged = memory_type is not None and (
        _fields(memory_type, uri, seen_text) == _fields(memory_type, uri, draft.before(uri))
    )
    if seen_text is None or not unchanged:
        raise _changed(draft, uri, "so it is not deleted unread")


def check_summary(draft: Draft, uri: MemoryUri, given: str) -> None:
    """Refuse to replace a directory summary that its author did not see; generated parts may always be replaced.

    Args:
        draft: The plan's texts.
        uri: The L0 or L1.
        given: The whole new text.

    Raises:
        MemoryChanged: If somebody wrote another text meanwhile.
    """
    if not draft.moved(uri):
        return
    now = _authored(uri, draft.before(uri))
    if now and now not in (_authored(uri, _seen_text(draft, uri)), given.strip()):
        raise _changed(draft, uri, "so it cannot be replaced as a whole")


def _whole(memory_type: MemoryType, given: Mapping[str, Any]) -> Iterator[str]:
    """Names of the fields whose stored value the operation would replace as a whole."""
    for name, value in given.items():
        field = memory_type.field(name)
        if value is not None and field is not None and _replaces(field, value):
            yield name


def _replaces(field: MemoryField, value: Any) -> bool:
    if field.merge_op is MergeOp.REPLACE:
        return True
    return field.merge_op is MergeOp.PATCH and not isinstance(value, list) and not is_patch(str(value))


def _seen_text(draft: Draft, uri: MemoryUri) -> str | None:
    seen = draft.seen_sha256(uri)
    return None if seen is None else draft.snapshot.ledger.text_with(uri, seen)


def _fields(memory_type: MemoryType, uri: MemoryUri, text: str | None) -> Mapping[str, Any] | None:
    if text is None:
        return None
    record = read_record(memory_type, parse(text), uri.name.removesuffix(".md"))
    return {**record.fields, "\x00body": record.body} if record.hand_edited else record.fields


def _authored(uri: MemoryUri, text: str | None) -> str | None:
    """What a person or a model wrote of a summary; None for nothing."""
    if text is None:
        return None
    if uri.name == ABSTRACT_NAME:
        return None if is_generated(text) else abstract_line(text)
    return parse_page(text).authored.strip() or None


def _changed(draft: Draft, uri: MemoryUri, consequence: str, cause: RunebookError | None = None) -> MemoryChanged:
    happened = "changed since it was read" if draft.seen_sha256(uri) is not None else "was there already, unread"
    reason = f"{str(uri)!r} {happened}, {consequence}"
    if cause is None:
        return MemoryChanged(f"{reason}.", hint=_HINT, uri=str(uri))
    return MemoryChanged(f"{reason}: {cause.message}", hint=cause.hint, uri=str(uri))


OP = "precondition"
#: In place of a hash: that there is no such file.
ABSENT = ""
_MOVED_HINT = "Look at it as it is now, and send the change again with what you saw then."


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
    return OperationResult(OP, shown(uri), Action.REJECTED, f"{shown(uri)} {how}", _MOVED_HINT, conflict=True)
