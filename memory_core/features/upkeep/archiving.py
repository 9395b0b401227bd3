"""Into the archive and back: a memory keeps its text, its history and its counts, and only changes its place.

``viking://archive/`` mirrors the other scopes: what lay at ``viking://user/default/memories/notes/Tea.md`` lies there
below the same path. The trailer says when and why. Archived files are not searched; they are read, listed, edited and
restored like any other. Works on a plan's copy: writes nothing itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from memory_core.core.commit.working_copy import WorkingCopy
from memory_core.core.errors import InvalidInput, NotFound
from memory_core.core.memory.memory import Memory, parse
from memory_core.core.memory.metadata import ARCHIVED, EXPIRES_AT
from memory_core.core.memory.names import fit, short_hash
from memory_core.core.memory.uri import MemoryUri, Scope


def archived_uri(uri: MemoryUri) -> MemoryUri:
    """Where a file goes in the archive."""
    return MemoryUri((Scope.ARCHIVE.value, *uri.parts))


def original_uri(uri: MemoryUri) -> MemoryUri:
    """Where an archived file was.

    Raises:
        InvalidInput: If it is not in the archive.
    """
    if uri.scope is not Scope.ARCHIVE or len(uri.parts) < 3:
        raise InvalidInput(
            f"{str(uri)!r} is not in the archive.", hint="Name a file that runebook archive list prints."
        )
    return MemoryUri.parse(str(MemoryUri(uri.parts[1:])))


def archive(copy: WorkingCopy, uri: MemoryUri, reason: str, **more: Any) -> MemoryUri:
    """Move a file into the archive.

    Args:
        copy: The plan's files; it is written to.
        uri: An existing file.
        reason: Why, in a word or two; the trailer keeps it.
        more: What else the trailer should say of it, such as what it was condensed into.

    Returns:
        Where it is now.

    Raises:
        NotFound: If there is no such file.
    """
    memory = copy.existing(uri)
    target = _free(copy, archived_uri(uri))
    copy.move(uri, _placed(memory, target, {ARCHIVED: {"at": copy.context.now, "reason": reason, **more}}))
    return target


def restore(copy: WorkingCopy, uri: MemoryUri) -> MemoryUri:
    """Bring a file back from the archive, under its old name, or one beside it where that is taken.

    It comes back as a memory in use: without the mark of the archive, and without an expiry that is past.

    Raises:
        NotFound: If there is no such file.
        InvalidInput: If it is not in the archive.
    """
    place = original_uri(uri)
    text = copy.text(uri)
    if text is None:
        raise NotFound(f"there is no archived file at {str(uri)!r}.", hint="See runebook archive list.")
    target = _free(copy, place)
    memory = parse(target, text, copy.context.registry)
    past = memory.metadata.is_expired(datetime.fromisoformat(copy.context.now))
    copy.move(uri, _placed(memory, target, {ARCHIVED: None, **({EXPIRES_AT: None} if past else {})}))
    return target


def _placed(memory: Memory, target: MemoryUri, metadata: Mapping[str, Any]) -> Memory:
    """The memory at its new place, with these keys; a file that has no sound trailer keeps its text."""
    if not memory.has_trailer or memory.damage is not None:
        return replace(memory, uri=target)
    return memory.changed(uri=target, metadata=metadata)


def _free(copy: WorkingCopy, uri: MemoryUri) -> MemoryUri:
    """The URI, or one beside it that no other file has."""
    tried, number = uri, 0
    while copy.is_taken(tried):
        number += 1
        stem, dot, extension = uri.name.rpartition(".")
        tried = uri.parent.child(fit(stem, dot + extension, f"~{short_hash(f'{uri} {copy.context.now} {number}')}"))
    return tried
