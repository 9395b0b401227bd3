"""What is private to another project: memories by catalog or text, conversations and logs by their lines."""

from __future__ import annotations

import json
from collections.abc import Sequence

from memory_core.index import filter
from memory_core.index.catalog import Catalog
from memory_core.model.conversation import parse_lines
from memory_core.model.daily_log import entries, log_day
from memory_core.model.memory_file import parse
from memory_core.model.project import ProjectScope, is_private, stored_project
from memory_core.model.segment import DIRECTORY, is_segment, log_of
from memory_core.model.uri import MemoryUri, Scope


def private_elsewhere(catalog: Catalog, uris: Sequence[str], project: str | None) -> frozenset[str]:
    """Those of the files that are private to a project other than the given one, as the catalog knows them.

    A segment shows no more than its session: where any message of it is private elsewhere, so is the segment.
    """
    if not catalog.holds_private(project):
        return frozenset()
    parsed = {uri: MemoryUri.parse(uri) for uri in uris if f"/{DIRECTORY}/" in uri}
    logs = {uri: str(log_of(place)) for uri, place in parsed.items() if is_segment(place)}
    elsewhere = filter.private_elsewhere(project)
    rows = catalog.connection().execute(
        f"SELECT DISTINCT d.uri FROM documents d WHERE d.uri IN (SELECT value FROM json_each(?)) AND {elsewhere.sql}",
        (json.dumps([*uris, *logs.values()]), *elsewhere.parameters),
    )
    found = frozenset(uri for (uri,) in rows)
    return frozenset(uri for uri in uris if uri in found or logs.get(uri) in found)


def is_elsewhere(uri: MemoryUri, text: str, project: str | None) -> bool:
    """Whether a file's text is private to another project; of a conversation, whether any message is."""
    scope = ProjectScope(project)
    if uri.name.endswith(".jsonl"):
        messages, _ = parse_lines(text)
        return any(not scope.sees(message.project, private=message.private) for message in messages)
    if log_day(MemoryUri(uri.parts[1:]) if uri.scope is Scope.ARCHIVE else uri) is not None:
        return any(not scope.sees(entry.project, private=entry.private) for entry in entries(text))
    meta = parse(text).trailer or {}
    return not scope.sees(stored_project(None, meta), private=is_private(None, meta))
