"""What changed since the author of operations looked: an operation is refused that would overwrite it unseen.

A model's operations carry the hash of each file that it saw; one that replaces or deletes what has changed since is
refused alone (``check_…``). A person who edits a page sends back what was seen; if another tab, an agent or a hand
changed the file meanwhile, nothing at all is done (``changed_since``), and whoever asks can look at both. Checked
inside the transaction, where nobody comes in between. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from memory_core.core.commit.forgotten import KIND_FORGET
from memory_core.core.commit.merge_fields import FieldMerge, TextStands
from memory_core.core.commit.patch import is_patch
from memory_core.core.commit.working_copy import WorkingCopy
from memory_core.core.errors import MemoryChanged, PatchRejected, RunebookError
from memory_core.core.memory.directory_page import abstract_line, is_generated, parse_page
from memory_core.core.memory.memory import Memory
from memory_core.core.memory.memory_type import FieldType, MemoryType, MergeOp
from memory_core.core.memory.operations import escaped
from memory_core.core.memory.results import Action, ChangeSet, OperationResult, text_sha256
from memory_core.core.memory.uri import ABSTRACT_NAME, MemoryUri
from memory_core.core.store.local import Snapshot

_HINT = (
    "Read it again, then send a SEARCH/REPLACE patch, or the whole value with what is there now worked in; a "
    "different memory needs a name of its own."
)


def check_fields(
    copy: WorkingCopy,
    uri: MemoryUri,
    memory_type: MemoryType,
    given: Mapping[str, Any],
    merged: FieldMerge,
    *,
    adds: bool,
) -> None:
    """Refuse an update that replaces values its author did not see, or whose patch no longer fits.

    Args:
        copy: The plan's files.
        uri: The memory.
        memory_type: Its type.
        given: Values or patches of the operation, by field.
        merged: What became of them.
        adds: Whether the write adds to text instead of replacing it.

    Raises:
        MemoryChanged: The operation is refused whole, so that sending it again adds no sum twice.
    """
    if not copy.changed_since_seen(uri):
        return
    misfits = [error for error in merged.rejected.values() if isinstance(error, PatchRejected)]
    if misfits:
        raise _changed(copy, uri, "and the patch no longer fits", misfits[0])
    now = _fields(copy.memory_before(uri)) or {}
    seen = _fields(copy.memory_seen(uri))
    lost = [name for name, error in merged.rejected.items() if isinstance(error, TextStands)]
    lost += [
        name
        for name in _whole(memory_type, given, adds=adds)
        if name in merged.values
        and merged.values[name] != now.get(name)
        and (now.get(name) not in (None, "") if seen is None else seen.get(name) != now.get(name))
    ]
    if lost:
        raise _changed(copy, uri, f"so {', '.join(lost)} cannot be replaced as a whole")


def check_removal(copy: WorkingCopy, uri: MemoryUri) -> None:
    """Refuse to delete what its author did not see.

    Raises:
        MemoryChanged: If the memory says something else than what was seen, or was not seen.
    """
    if not copy.changed_since_seen(uri):
        return
    seen, before = copy.memory_seen(uri), copy.memory_before(uri)
    if seen is None or seen.type is None or _fields(seen) != _fields(before):
        raise _changed(copy, uri, "so it is not deleted unread")


def check_summary(copy: WorkingCopy, uri: MemoryUri, given: str) -> None:
    """Refuse to replace a directory summary that its author did not see; generated parts may always be replaced.

    Args:
        copy: The plan's files.
        uri: Its abstract or overview.
        given: The whole new text.

    Raises:
        MemoryChanged: If somebody wrote another text meanwhile.
    """
    if not copy.changed_since_seen(uri):
        return
    now = _authored(uri, copy.before(uri))
    if now and now not in (_authored(uri, copy.seen_text(uri)), given.strip()):
        raise _changed(copy, uri, "so it cannot be replaced as a whole")


def _whole(memory_type: MemoryType, given: Mapping[str, Any], *, adds: bool) -> Iterator[str]:
    """Names of the fields whose stored value the operation would replace as a whole."""
    for name, value in given.items():
        field = memory_type.field(name)
        if value is None or field is None:
            continue
        is_plain = field.merge_op is MergeOp.PATCH and not isinstance(value, list) and not is_patch(str(value))
        if field.merge_op is MergeOp.REPLACE or (is_plain and not (adds and field.type is FieldType.STRING)):
            yield name


def _fields(memory: Memory | None) -> Mapping[str, Any] | None:
    if memory is None:
        return None
    return {**memory.fields, "\x00body": memory.body} if memory.hand_edited else memory.fields


def _authored(uri: MemoryUri, text: str | None) -> str | None:
    """What a person or a model wrote of a summary; None for nothing."""
    if text is None:
        return None
    if uri.name == ABSTRACT_NAME:
        return None if is_generated(text) else abstract_line(text)
    return parse_page(text).authored.strip() or None


def _changed(copy: WorkingCopy, uri: MemoryUri, consequence: str, cause: RunebookError | None = None) -> MemoryChanged:
    happened = "changed since it was read" if copy.seen_sha256(uri) is not None else "was there already, unread"
    reason = f"{str(uri)!r} {happened}, {consequence}"
    if cause is None:
        return MemoryChanged(f"{reason}.", hint=_HINT, uri=str(uri))
    return MemoryChanged(f"{reason}: {cause.message}", hint=cause.hint, uri=str(uri))


_OP = "precondition"
#: In place of a hash: that there is no such file.
ABSENT = ""
_MOVED_HINT = "Look at it as it is now, and send the change again with what you saw then."


def changed_since(snapshot: Snapshot, expected: Mapping[str, str]) -> ChangeSet | None:
    """The refusal of everything, if a file is no longer what it was; None if all are.

    Args:
        snapshot: The store under its lock.
        expected: SHA-256 of each file's text, by URI; ``ABSENT`` of one that is not there.
    """
    refused = tuple(
        _refusal(uri, how) for uri, sha256 in expected.items() if (how := _change_since(snapshot, uri, sha256))
    )
    return ChangeSet((), refused) if refused else None


def at_their_places(snapshot: Snapshot, seen: Mapping[str, str]) -> Mapping[str, str]:
    """What a model saw of files, also under the names that some of them got since.

    Args:
        snapshot: The store under its lock.
        seen: SHA-256 of each file's text, by URI.
    """
    found = dict(seen)
    there = {str(row.uri) for row in snapshot.ledger.files_of(seen)}
    for uri in (uri for uri in seen if uri not in there):
        place: MemoryUri | None = MemoryUri.parse(uri)
        passed = set[MemoryUri]()
        while place is not None and place not in passed and snapshot.ledger.file(place) is None:
            passed.add(place)
            place = snapshot.ledger.past.moved_to(place, 0)
        if place is not None:
            found.setdefault(str(place), seen[uri])
    return found


def taken_away(snapshot: Snapshot, seen: Mapping[str, str]) -> ChangeSet | None:
    """The refusal of everything, if a memory that a model read is gone or lost what was forgotten: it may quote that.

    Args:
        snapshot: The store under its lock.
        seen: SHA-256 of each file's text, by URI.
    """
    read = {uri: sha256 for uri, sha256 in seen.items() if not MemoryUri.parse(uri).is_summary}
    changed = {uri: how for uri, sha256 in read.items() if (how := _change_since(snapshot, uri, sha256))}
    # Others may have changed it once more since it was forgotten.
    forgotten = snapshot.ledger.lost_texts(KIND_FORGET, changed) if changed else frozenset()
    refused = tuple(
        _refusal(uri, how)
        for uri, how in changed.items()
        if uri in forgotten or snapshot.text(MemoryUri.parse(uri)) is None
    )
    return ChangeSet((), refused) if refused else None


def _change_since(snapshot: Snapshot, uri: str, sha256: str) -> str | None:
    try:
        place = MemoryUri.parse(uri)
        text = snapshot.text(place)
    except RunebookError as error:
        return f"cannot be compared: {error.message}"
    if text is None and place.is_summary:  # a page that nobody wrote on
        return None if sha256 in (ABSENT, text_sha256("")) else "changed since it was read."
    if text is None:
        return None if sha256 == ABSENT else "was removed since it was read."
    return None if text_sha256(text) == sha256 else "changed since it was read."


def _refusal(uri: str, how: str) -> OperationResult:
    return OperationResult(_OP, escaped(uri), Action.REJECTED, f"{escaped(uri)} {how}", _MOVED_HINT, conflict=True)
