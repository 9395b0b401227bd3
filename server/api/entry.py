"""One memory as the API shows it: its file, its fields, what it relates to and where it comes from.

Shows what ``read`` shows, to whom ``read`` shows it. Opening a memory counts as a use, as reading does; looking at it
again after a change does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memory_core.core.caller import Access
from memory_core.core.errors import InvalidUri, NotFound, RunebookError
from memory_core.core.index.documents import Document, memory_document
from memory_core.core.index.indexer import numbered
from memory_core.core.memory.directory_page import recorded
from memory_core.core.memory.field_values import derive
from memory_core.core.memory.memory import Memory, parse
from memory_core.core.memory.memory_type import MemoryType
from memory_core.core.memory.results import text_sha256
from memory_core.core.memory.uri import SCHEME, MemoryUri
from memory_core.core.search.context_sources import source_lines
from memory_core.features.history import History, history_of
from server.http.page_files import plain, render

if TYPE_CHECKING:
    from memory_core.runebook import Runebook


#: Of a longer file (a conversation, not a memory) only the beginning is given.
_TEXT_CHARS = 1_000_000
_SHOWN_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Stored:
    """A file as it is now."""

    memory: Memory

    @property
    def uri(self) -> MemoryUri:
        """Where it is."""
        return self.memory.uri

    @property
    def text(self) -> str:
        """The whole of it."""
        return self.memory.text

    @property
    def sha256(self) -> str:
        """Of the whole file."""
        return text_sha256(recorded(self.uri, self.text) or "")

    @property
    def etag(self) -> str:
        """The same as a header."""
        return f'"{self.sha256}"'


def stored(memory: Runebook, path: str) -> Stored:
    """The file at a path of the API.

    Raises:
        NotFound: If there is none, or the caller may not see it.
        InvalidUri: If the path cannot be one.
    """
    uri = memory.browser.visible(MemoryUri.parse(f"{SCHEME}{path}"))
    text = memory.store.text(uri) if uri.parts else None
    if text is None:
        memory.browser.read(str(uri))  # says why: archived, a directory, or nothing there
        raise NotFound(f"there is nothing at {str(uri)!r}.", hint="Search with find, or list its parent with ls.")
    return described(memory, uri, text)


def described(memory: Runebook, uri: MemoryUri, text: str) -> Stored:
    """A text as the file at ``uri``."""
    markdown = uri.name.endswith(".md") and not uri.is_summary
    return Stored(parse(uri, text, memory.registry if markdown else None))


def is_editable(memory: Runebook, found: Stored) -> bool:
    """Whether the caller may change the memory by its fields."""
    if memory.access is not Access.READ_WRITE or found.memory.type is None or found.memory.damage is not None:
        return False
    own = {("user", memory.config.user_space, "memories"), ("agent", memory.config.agent_space, "memories")}
    return found.uri.parts[:3] in own


def entry_facts(memory: Runebook, found: Stored) -> dict[str, Any]:
    """All of a memory, in the shape of ``answers.Entry``."""
    document, metadata = _document(found), found.memory.metadata
    version, source = metadata.get("version"), metadata.get("source")
    facts = memory.catalogue.summary(document).as_dict()
    body, text = found.memory.body[:_TEXT_CHARS], found.text[:_TEXT_CHARS]
    is_log = not found.uri.name.endswith(".md")
    return {
        **facts,
        "text": text,
        "body": body,
        "html": plain(body[:_SHOWN_CHARS]) if is_log else render(body),
        "fields": [] if found.memory.type is None else field_facts(found.memory.type, found.memory.fields),
        "source": dict(source) if isinstance(source, dict) else None,
        "source_pages": _source_pages(memory, source, document),
        "links": [link.as_dict() for link in _linked(memory, found.uri)],
        "sha256": found.sha256,
        "version": version if isinstance(version, int) and not isinstance(version, bool) else 1,
        "editable": is_editable(memory, found),
        "lines": found.text.count("\n") + (not found.text.endswith("\n") and bool(found.text)),
        "cut": True if len(found.text) > _TEXT_CHARS else None,
    }


def field_facts(memory_type: MemoryType, stored: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The fields of a type with their values in a memory."""
    values: dict[str, Any] = {**stored, **derive(memory_type, stored)}
    return [
        {
            "name": field.name,
            "type": str(field.type),
            "description": field.description,
            "merge_op": str(field.merge_op),
            "value": _scalar(values.get(field.name)),
        }
        for field in memory_type.fields
    ]


def _scalar(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else None


def past_of(memory: Runebook) -> History:
    """History as the caller may see it."""
    return history_of(memory).seen_from(memory.projects.current(None))


def _document(found: Stored) -> Document:
    if found.uri.name.endswith(".md"):
        return memory_document(found.memory)
    return Document(
        uri=found.uri,
        part=0,
        context_type="resource",
        memory_type="",
        name=f"{found.uri.parent.name}/{found.uri.name}",
        abstract="",
        own="",
        previous="",
        heading="",
        passages=(),
    )


def _linked(memory: Runebook, uri: MemoryUri) -> Any:
    try:
        return memory.browser.seen_from(memory.projects.current(None)).linked(uri)
    except RunebookError:  # another memory cannot be read; this one can
        return ()


def _source_pages(memory: Runebook, source: Any, document: Document) -> list[dict[str, Any]]:
    session_id = source.get("session_id") if isinstance(source, dict) else None
    if not isinstance(session_id, str):
        return []
    try:
        log = memory.browser.visible(memory.commits.session_uri(session_id))
        messages = list(numbered(memory.store.text(log) or ""))
    except (InvalidUri, NotFound, RunebookError):
        return []
    scope = memory.projects.scope(document.project, None)
    seen = [(line, each) for line, each in messages if scope.sees(each.project, private=each.private)]
    return [
        {
            "uri": f"{log}#{line}",
            "session_id": session_id,
            "line": line,
            "role": message.role,
            "speaker": message.name or message.role,
            "time": None if message.time is None else message.time.isoformat(),
            "text": message.text[:_SHOWN_CHARS],
        }
        for line, message in source_lines(document.own, seen)
    ]
