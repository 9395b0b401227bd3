"""What conversations are called on a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memory_core.core.errors import RunebookError
from memory_core.core.index.documents import is_session_log
from memory_core.core.memory.uri import SCHEME, MemoryUri, file_of
from memory_core.core.text.plain_text import plain_line
from memory_core.features.tiers.stored import StoredSegment, segments_in
from memory_core.runebook import Runebook

_TOPICS, _CHARS = 2, 90


def title_of(memory: Runebook, log: MemoryUri, segments: Sequence[StoredSegment]) -> str | None:
    """What a conversation was about: what the user began with, else the topics that it spoke of most."""
    first = plain_line(memory.indexer.catalog.opening(str(log)), _CHARS)
    most = sorted(segments, key=lambda each: -len(each.segment.exchanges))[:_TOPICS]
    return first or " · ".join(each.segment.title for each in most) or None


def titles(memory: Runebook, uris: Iterable[str]) -> dict[str, str]:
    """The titles of those conversations of the user whose logs are among the URIs, by their ids."""
    logs = {MemoryUri.parse(file) for file in {file_of(uri) for uri in uris} if file.startswith(f"{SCHEME}session/")}
    found: dict[str, str] = {}
    for log in logs:
        if is_session_log(log) and log.parent.parent == memory.commits.sessions:
            try:
                title = title_of(memory, log, segments_in(memory.store, log).used)
            except RunebookError:  # a damaged log keeps its id
                continue
            found |= {log.parent.name: title} if title else {}
    return found
