"""What the exports of claude.ai and ChatGPT share: where their conversations are, and each of them once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from memory_core.features.imports.items import LeftOut
from memory_core.features.imports.sources import Entry, Source, elements, mapping_of, text_of


def branch(parents: Mapping[str, str | None], leaf: str) -> list[str]:
    """The messages from the first to ``leaf``; a parent that is not there, or comes again, ends the walk.

    Args:
        parents: Of each message the one before it.
        leaf: The last message.
    """
    found: dict[str, None] = {}
    place: str | None = leaf
    while place is not None and place in parents and place not in found:
        found[place] = None
        place = parents[place]
    return list(reversed(found))


_CONVERSATIONS = re.compile(r"conversations?(?:[-_ ]?\(?\d+\)?)?\.json", re.IGNORECASE)
_LOOKED_AT = 3


def conversation_files(source: Source) -> list[Entry]:
    """The files of an export that hold conversations; of a single file that one, whatever its name."""
    if len(source.entries) == 1 and not source.is_folder:
        return source.entries
    return [
        entry
        for entry in source.entries
        if _CONVERSATIONS.fullmatch(entry.base) or "conversations/" in f"/{entry.name}".rpartition("/")[0] + "/"
    ]


def has_member(source: Source, member: str) -> bool:
    """Whether the conversations of a source have a member of this name."""
    sign = f'"{member}"'.encode()
    return any(sign in source.head(entry) for entry in conversation_files(source)[:_LOOKED_AT])


def conversations(
    source: Source, member: str, kind: type[list[Any]] | type[dict[str, Any]], ids: tuple[str, ...]
) -> Iterator[LeftOut | tuple[str, str, Mapping[str, Any]]]:
    """Id, place and record of each conversation, and what is none.

    Args:
        source: An export.
        member: The member that holds a conversation's messages, and of which ``kind`` it is.
        kind: See ``member``.
        ids: Members that may hold its id.
    """
    seen: set[str] = set()
    for entry in conversation_files(source):
        for found in elements(source, entry):
            told = mapping_of(found.value)
            conversation_id = text_of(told, *ids)
            if found.problem is not None or not isinstance(told.get(member), kind) or not conversation_id:
                yield LeftOut(found.place, found.problem or f"it is no conversation: id or '{member}' is missing")
            elif conversation_id not in seen:
                seen.add(conversation_id)
                yield conversation_id, found.place, told
