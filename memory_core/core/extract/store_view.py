"""A store as a model sees it that extracts one conversation: what it may be shown, and what its operations would do.

Whatever is private to another project than the conversation's is absent. Shows a text whole or says that it is cut, so
that the caller knows which files were seen. Never writes.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory_core.core.commit.commits import Commits
from memory_core.core.errors import RunebookError
from memory_core.core.extract.prompts import canonical, cut_end, fenced, fits, writable_fields
from memory_core.core.index.catalog import Catalog
from memory_core.core.index.filter import not_private_elsewhere
from memory_core.core.memory.directory_page import recorded
from memory_core.core.memory.memory import Memory, parse
from memory_core.core.memory.memory_type import MemoryType, MemoryTypeRegistry
from memory_core.core.memory.operations import MemoryOperations
from memory_core.core.memory.project import NO_PROJECT, ProjectAssignment, ProjectScope
from memory_core.core.memory.requests import FindRequest
from memory_core.core.memory.results import CommitReceipt, FindResult, OperationResult, text_sha256
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.search.browse import Browser
from memory_core.core.search.find import Retriever
from memory_core.core.store.local import Store
from memory_core.core.text.tokens import count_tokens

_MEMORIES: Mapping[str, Any] = {"memory_type": {"ne": "message"}}
_INLINE_CHARS = 200
_CUT = "(its beginning only; read it before you change it)"
#: Less of a text than this is not worth showing.
_LEAST_TOKENS = 24


@dataclass(frozen=True, slots=True)
class Reading:
    """One text in a prompt.

    ``key`` tells equal actions of the model. ``uri`` names the file, and ``sha256`` its text where it is shown whole:
    of a page what somebody wrote on it.
    """

    text: str
    key: str = ""
    uri: str = ""
    sha256: str | None = None


class StoreView:
    """One store, seen from the project of one conversation.

    Args:
        store: Holds the files.
        registry: The memory types.
        commits: Tries operations out.
        browser: Knows what the user may see.
        retriever: Searches.
        catalog: Knows what is in a directory.
    """

    def __init__(
        self,
        store: Store,
        registry: MemoryTypeRegistry,
        commits: Commits,
        browser: Browser,
        retriever: Retriever,
        catalog: Catalog,
    ) -> None:
        self.registry = registry
        self._store = store
        self._commits = commits
        self._retriever = retriever
        self._catalog = catalog
        self._see_from(NO_PROJECT, browser)

    def within(self, assignment: ProjectAssignment) -> StoreView:
        """The same store for a conversation that belongs to a project."""
        view = copy.copy(self)
        view._see_from(assignment, self.browser)
        return view

    def _see_from(self, assignment: ProjectAssignment, browser: Browser) -> None:
        self._assignment = assignment
        self._scope = ProjectScope(assignment.project)
        self.browser = browser.seen_from(assignment.project, strict=True)

    def text(self, uri: str) -> str | None:
        """A file's text; None if it is absent, out of sight or unreadable."""
        try:
            place = self.browser.visible(MemoryUri.parse(uri))
            found = self._store.text(place)
        except RunebookError:
            return None
        return None if found is None or self.browser.is_elsewhere(place, found) else found

    def owner_names(self) -> tuple[str, ...]:
        """The names of the user whose memories these are."""
        return self._retriever.owner_names(self.text(self._retriever.profile_uri) or "")

    def type_of(self, uri: str) -> MemoryType | None:
        """The memory type of a file or of a place for one."""
        place = canonical(uri)
        if place is None:
            return None
        return parse(MemoryUri.parse(place), self.text(place) or "", self.registry).type

    def show(self, uri: str, budget_tokens: int, key: str = "") -> Reading | None:
        """The memory with heading and fields, cut where the budget ends; None if there is no such file."""
        place = canonical(uri)
        text = None if place is None else self.text(place)
        if place is None or text is None:
            return None
        memory = parse(MemoryUri.parse(place), text, self.registry)
        name = str(memory.uri)
        heading, body = f"### {name}", fenced(memory.text)
        if memory.type is not None:
            heading, body = _heading(memory), _fields(memory, memory.type)
        whole = f"{heading}\n{body}"
        if fits(whole, budget_tokens):
            return Reading(whole, key, name, text_sha256(recorded(memory.uri, text) or text))
        said = memory.body or memory.text
        frame = count_tokens(f"{heading} {_CUT}") + count_tokens(fenced(said)) - count_tokens(said)
        if budget_tokens - frame < _LEAST_TOKENS:
            return Reading(f"### {name} (no room here; read it before you change it)", key, name)
        return Reading(f"{heading} {_CUT}\n{fenced(cut_end(said, budget_tokens - frame))}", key, name)

    def newest_in(self, directory: str, limit: int) -> tuple[tuple[str, ...], int]:
        """The names of the newest memories directly in a directory, and how many there are in all.

        What is private to another project is counted, not named.

        Args:
            directory: Its URI, without a slash at the end.
            limit: Names at most.
        """
        # "0" is the character after "/": the range is what begins with "directory/"; no further slash: no subfolders.
        start = len(directory) + 2
        where = "active AND uri > ? AND uri < ? AND part = 0 AND instr(substr(uri, ?), '/') = 0"
        arguments = (f"{directory}/", f"{directory}0", start)
        connection = self._catalog.connection()
        (total,) = connection.execute(f"SELECT count(*) FROM documents WHERE {where}", arguments).fetchone()
        shown = not_private_elsewhere(self._scope.current)
        rows = connection.execute(
            f"SELECT uri FROM documents d WHERE {where} AND {shown.sql} ORDER BY updated_at DESC, uri LIMIT ?",
            (*arguments, *shown.parameters, limit),
        )
        return tuple(uri[start - 1 :] for (uri,) in rows), int(total)

    def find_memories(self, query: str, limit: int) -> FindResult:
        """Search memories, not conversations."""
        return self._retriever.find(FindRequest(query, limit=limit, filter=_MEMORIES), self._scope)

    def find(self, query: str, below: str, limit: int) -> FindResult:
        """Search everything below a URI; below all of it where that is empty."""
        return self._retriever.find(FindRequest(query, below, limit), self._scope)

    def neighbours(self, texts: Sequence[str]) -> Sequence[Sequence[tuple[str, float]]]:
        """Existing memories near to each new text: URI and score in [0, 1], nearest first."""
        near = self._retriever.near(texts, project=self._scope)
        return [[(each.uri, each.score) for each in found] for found in near]

    @property
    def near_from(self) -> float:
        """The score from which a neighbour is near enough to be shown, and linked."""
        return self._retriever.near_from

    def refusals(self, operations: MemoryOperations) -> tuple[OperationResult, ...]:
        """A result for each operation that holds a secret and is not taken."""
        return self._commits.cleaner.operations(operations).refused

    def preview(self, operations: MemoryOperations) -> CommitReceipt:
        """A dry run: what operations would do now, whether or not the model saw the files."""
        return self._commits.apply_operations(operations, dry_run=True, assignment=self._assignment)


def _heading(memory: Memory) -> str:
    updated = memory.metadata.text("updated_at") or ""
    day = f", updated {updated[:10]}" if updated[:10].replace("-", "").isdigit() else ""
    return f"### {memory.uri} ({memory.type_name}{day})"


def _fields(memory: Memory, memory_type: MemoryType) -> str:
    lines = []
    name = str(memory.uri)
    for declared in writable_fields(memory_type):
        value = memory.fields.get(declared.name)
        text = "" if value is None else str(value)
        if not text or (declared.name in memory_type.key_fields and text in name):
            continue
        inline = len(text) <= _INLINE_CHARS and len(text.splitlines()) == 1 and text == text.strip()
        lines.append(f"- {declared.name}: {text}" if inline else f"- {declared.name}:\n{fenced(text)}")
    if memory.hand_edited:
        lines.append(f"- (body, written by hand, stays as it is):\n{fenced(memory.body)}")
    return "\n".join(lines) or "(empty)"
