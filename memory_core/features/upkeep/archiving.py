"""Into the archive and back: a memory keeps its text, its history and its counts, and only changes its place.

``viking://archive/`` mirrors the other scopes: what lay at ``viking://user/default/memories/notes/Tea.md`` lies there
below the same path. The trailer says when and why. Archived files are not searched; they are read, listed, edited and
restored like any other. Works on a plan's draft: writes nothing itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from memory_core.core.commit.working_copy import Draft
from memory_core.core.errors import InvalidInput, NotFound
from memory_core.core.memory.memory import dump, parse
from memory_core.core.memory.metadata import ARCHIVED, EXPIRES_AT, is_expired
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


def archive(draft: Draft, uri: MemoryUri, reason: str, **more: Any) -> MemoryUri:
    """Move a file into the archive.

    Args:
        draft: The plan's texts; it is written to.
        uri: An existing file.
        reason: Why, in a word or two; the trailer keeps it.
        more: What else the trailer should say of it, such as what it was condensed into.

    Returns:
        Where it is now.

    Raises:
        NotFound: If there is no such file.
    """
    text = draft.existing(uri)
    target = _free(draft, archived_uri(uri))
    draft.move(uri, target, _marked(text, {"at": draft.context.now, "reason": reason, **more}))
    return target


def restore(draft: Draft, uri: MemoryUri) -> MemoryUri:
    """Bring a file back from the archive, under its old name, or one beside it where that is taken.

    Raises:
        NotFound: If there is no such file.
        InvalidInput: If it is not in the archive.
    """
    place = original_uri(uri)
    text = draft.text(uri)
    if text is None:
        raise NotFound(f"there is no archived file at {str(uri)!r}.", hint="See runebook archive list.")
    target = _free(draft, place)
    draft.move(uri, target, _unmarked(text, draft.context.now))
    return target


def _marked(text: str, mark: Mapping[str, Any]) -> str:
    """The text with the mark in its trailer; a file that has no sound trailer stays as it is."""
    file = parse(text)
    if file.trailer is None or file.damage is not None:
        return text
    return dump(replace(file, trailer={**file.trailer, ARCHIVED: dict(mark)}))


def _unmarked(text: str, now: str) -> str:
    """The text as a memory in use: without the mark, and without an expiry that is past."""
    file = parse(text)
    if file.trailer is None or file.damage is not None:
        return text
    gone = {ARCHIVED, *([EXPIRES_AT] if is_expired(file.trailer, datetime.fromisoformat(now)) else [])}
    trailer = {name: value for name, value in file.trailer.items() if name not in gone}
    return dump(replace(file, trailer=trailer))


def _free(draft: Draft, uri: MemoryUri) -> MemoryUri:
    """The URI, or one beside it that no other file has."""
    tried, number = uri, 0
    while draft.is_taken(tried):
        number += 1
        stem, dot, extension = uri.name.rpartition(".")
        tried = uri.parent.child(fit(stem, dot + extension, f"~{short_hash(f'{uri} {draft.context.now} {number}')}"))
    return tried
