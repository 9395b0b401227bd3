"""L0 and L1 of every directory that a change set touches, kept current in the same change set.

The work for a directory is a count and its two files, however many memories it holds: a page lists the newest, and
each change replaces, adds or removes its own line. Lines of files that are gone leave too, and a page with few lines
for what is there (a store from before, files added by hand) is filled from the ledger's newest, once. What a person or
a model wrote stays: an L0 that was edited, the prose above an L1's comment line, and a whole L1 without that line.
Memories that are private to a project are counted, never named: summaries are shown in every project. Pure; writes
nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from memory_core.core.commit.working_copy import PlanContext
from memory_core.core.errors import RunebookError
from memory_core.core.index.documents import abstract_of
from memory_core.core.memory.directory_page import (
    ENTRIES_LIMIT,
    Contents,
    Listed,
    is_generated,
    listed,
    parse_page,
    render_abstract,
    render_page,
    still_says,
)
from memory_core.core.memory.memory import Memory, parse
from memory_core.core.memory.memory_type import MemoryType
from memory_core.core.memory.results import ChangeSet, FileChange
from memory_core.core.memory.template import render
from memory_core.core.memory.uri import ABSTRACT_NAME, OVERVIEW_NAME, MemoryUri, Scope
from memory_core.core.store.local import Snapshot

#: ``viking://user/{space}/memories``: three parts.
_ROOT_DEPTH = 3
#: From this salience on a memory is marked, and is the last to leave the list.
_IMPORTANT = 0.8
_ABSTRACT_CHARS = 256


def refresh(change_set: ChangeSet, snapshot: Snapshot, context: PlanContext) -> ChangeSet:
    """The change set with the summaries of its directories brought up to date.

    Args:
        change_set: Planned changes, each file once; summaries among them are what a model made of them.
        snapshot: The store before them.
        context: Names the memory types and their directories.

    Returns:
        The same results, and a file change for each summary that reads differently now; a note for each that could
        not be read.
    """
    return _Refresh(change_set, snapshot, context).run() if change_set.changes else change_set


class _Refresh:
    def __init__(self, change_set: ChangeSet, snapshot: Snapshot, context: PlanContext) -> None:
        self._change_set = change_set
        self._snapshot = snapshot
        self._context = context
        self._changes = {change.uri: change for change in change_set.changes}
        self._read: dict[MemoryUri, str | None] = {}
        self._notes: list[str] = []

    def run(self) -> ChangeSet:
        touched: dict[MemoryUri, list[FileChange]] = {}
        for change in self._change_set.changes:
            if _is_summarised(change.uri):
                memories = touched.setdefault(change.uri.parent, [])
                if _is_memory(change.uri):
                    memories.append(change)
        roots: set[MemoryUri] = set()
        for directory, memories in touched.items():
            before, after = self._totals(directory, memories)
            if self._attempt(directory, memories, after) or not before or not after:
                roots.add(MemoryUri(directory.parts[:_ROOT_DEPTH]))
        for root in sorted(roots - touched.keys()):
            self._attempt(root, (), self._totals(root, ())[1])
        changes = tuple(change for change in self._changes.values() if change.before != change.after)
        return replace(self._change_set, changes=changes, notes=(*self._change_set.notes, *self._notes))

    def _attempt(self, directory: MemoryUri, memories: Sequence[FileChange], total: int) -> bool:
        """Refresh one directory; a summary that cannot be read stays as it is and spoils nothing.

        Returns:
            Whether it had no L0 before: the directory above may not list it yet.
        """
        try:
            return self._refresh(directory, memories, total)
        except RunebookError as error:
            self._notes.append(f"the summaries of {directory} stay as they are: {error.message}")
            return False

    def _refresh(self, directory: MemoryUri, memories: Sequence[FileChange], total: int) -> bool:
        overview, abstract = directory.child(OVERVIEW_NAME), directory.child(ABSTRACT_NAME)
        stored_page, stored_line = self._text(overview), self._text(abstract)
        page = parse_page(stored_page or "")
        folders = tuple(self._folders(directory))
        holds_some = bool(total or folders)
        private = self._private(page.private, memories, total)
        items, unlisted = self._listed(directory, page.listed or (), memories, total - private)
        contents = Contents(directory.name, total, items, folders, max(private, min(unlisted, total)))
        if page.listed is not None or (holds_some and (not page.authored.strip() or self._is_new(overview))):
            self._put(overview, render_page(page.authored, contents))
        gone = [change.uri.name for change in memories if change.after is None or self._is_private(change, "after")]
        if stored_line is None:
            if holds_some:
                self._put(abstract, render_abstract(contents))
        elif is_generated(stored_line) and not still_says(stored_line, contents, gone):
            self._put(abstract, render_abstract(contents))
        return stored_line is None

    def _is_new(self, overview: MemoryUri) -> bool:
        """Whether this change set creates the page, so that nobody can have taken its list away."""
        change = self._changes.get(overview)
        return change is not None and change.before is None

    def _private(self, known: int, memories: Sequence[FileChange], total: int) -> int:
        """How many memories of a directory are private after the changes, from how many its page counted before."""
        moved = sum(self._is_private(change, "after") - self._is_private(change, "before") for change in memories)
        return max(0, min(known + moved, total))

    def _is_private(self, change: FileChange, side: Literal["before", "after"]) -> bool:
        text = change.before if side == "before" else change.after
        return text is not None and self._memory(change.uri, text).is_private

    def _listed(
        self, directory: MemoryUri, known: Sequence[Listed], memories: Sequence[FileChange], total: int
    ) -> tuple[tuple[Listed, ...], int]:
        """The list after the changes: their own lines in place, new ones on top.

        Args:
            directory: The directory.
            known: Its list before.
            memories: What changes in it.
            total: Memories that may be listed.

        Returns:
            The list, and how many private memories were met while it was filled.
        """
        by_hand = self._snapshot.ledger.directories.edited_since(directory.child(OVERVIEW_NAME))
        again = (self._again(directory, item) if item.name in by_hand else item for item in known)
        lines = {item.name: item for item in again if item is not None}
        fresh: list[Listed] = []
        for change in memories:
            if change.after is None or self._is_private(change, "after"):
                lines.pop(change.uri.name, None)
                continue
            item = self._line(change.uri, change.after)
            if change.uri.name in lines:
                lines[change.uri.name] = item
            else:
                fresh.append(item)
        lines = {item.name: item for item in reversed(fresh)} | lines
        there = self._snapshot.ledger.directories.present(directory, lines).union(
            change.uri.name for change in memories if change.after is not None
        )
        lines = {name: item for name, item in lines.items() if name in there}
        met = 0
        if len(lines) < (total if total <= ENTRIES_LIMIT else ENTRIES_LIMIT // 2):
            found, met = self._newest(directory, lines)
            lines |= found
        items = list(lines.values())
        while len(items) > ENTRIES_LIMIT:
            usual = [at for at, item in enumerate(items) if not item.important]
            del items[usual[-1] if usual else -1]
        return tuple(items), met

    def _newest(self, directory: MemoryUri, lines: dict[str, Listed]) -> tuple[dict[str, Listed], int]:
        """Lines for the memories that the ledger knows and the list does not, and how many private ones it knows."""
        found: dict[str, Listed] = {}
        private = 0
        for name in self._snapshot.ledger.directories.newest(directory, ENTRIES_LIMIT):
            uri = directory.child(name)
            text = self._text(uri) if name not in lines else None
            if text is None:
                continue
            if self._memory(uri, text).is_private:
                private += 1
            else:
                found[name] = self._line(uri, text)
        return found, private

    def _again(self, directory: MemoryUri, item: Listed) -> Listed | None:
        """The line of a memory that a person changed since it was listed; None if it is private now, or gone."""
        uri = directory.child(item.name)
        text = self._text(uri)
        return None if text is None or self._memory(uri, text).is_private else self._line(uri, text)

    def _line(self, uri: MemoryUri, text: str) -> Listed:
        memory = self._memory(uri, text)
        if memory.type is None:
            return listed(uri.name, memory.body, important=False)
        return listed(uri.name, _abstract(memory, memory.type), important=memory.salience >= _IMPORTANT)

    def _memory(self, uri: MemoryUri, text: str) -> Memory:
        return parse(uri, text, self._context.registry)

    def _totals(self, directory: MemoryUri, memories: Sequence[FileChange]) -> tuple[int, int]:
        """Memories directly in the directory before and after; the ledger may not know a file made by hand yet."""
        before = self._snapshot.ledger.directories.count(directory)
        known = sum(self._snapshot.ledger.file(change.uri) is not None for change in memories)
        return before, before - known + sum(change.after is not None for change in memories)

    def _folders(self, directory: MemoryUri) -> Iterator[str]:
        """Names of the folders below that hold memories of some type; only type directories are looked into."""
        depth, prefix = len(directory.parts), f"{directory}/"
        below: dict[str, list[MemoryUri]] = {}
        for memory_type in self._context.registry.list_all():
            if self._context.directory_text(memory_type).startswith(prefix):
                place = self._context.directory(memory_type)
                below.setdefault(place.parts[depth], []).append(place)
        for name, places in sorted(below.items()):
            if any(self._holds(place) for place in places):
                yield name

    def _holds(self, directory: MemoryUri) -> bool:
        changes = [change for uri, change in self._changes.items() if uri.parent == directory and _is_memory(uri)]
        return self._totals(directory, changes)[1] > 0

    def _text(self, uri: MemoryUri) -> str | None:
        if uri in self._changes:
            return self._changes[uri].after
        if uri not in self._read:
            self._read[uri] = self._snapshot.text(uri)
        return self._read[uri]

    def _put(self, uri: MemoryUri, text: str) -> None:
        change = self._changes.get(uri)
        self._changes[uri] = FileChange(uri, self._text(uri) if change is None else change.before, text)


def _is_summarised(uri: MemoryUri) -> bool:
    return uri.scope in (Scope.USER, Scope.AGENT) and uri.parts[2:_ROOT_DEPTH] == ("memories",)


def _is_memory(uri: MemoryUri) -> bool:
    return uri.name.endswith(".md") and not uri.name.startswith(".")


def _abstract(memory: Memory, memory_type: MemoryType) -> str:
    """One line: the stored abstract, the type's ``overview_template`` filled, or how the body begins."""
    given = memory.metadata.text("abstract")
    if memory_type.overview_template and not (given is not None and given.strip()):
        template = memory_type.model_copy(update={"content_template": memory_type.overview_template})
        filled = render(template, memory.fields).strip()
        if filled:
            return filled
    return abstract_of(memory, "", _ABSTRACT_CHARS)
