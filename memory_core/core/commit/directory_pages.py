"""Abstract and overview of every directory of memories: views, made after a commit from what the catalog knows.

A page is what a person or a model wrote on it, and below a comment line the list: the newest memories with a line each.
The words are in the ledger like any text; the list is not, and is made anew whenever memories of the directory were
indexed. The work for a directory is two counts and its two files, however many memories it holds: lines that stand on
the page are taken from there. Memories that are private to a project are counted, never named: pages are shown in every
project.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence

from memory_core.core.commit.working_copy import PlanContext
from memory_core.core.errors import InvalidInput, InvalidUri, MemoryChanged, RunebookError, StoreBusy
from memory_core.core.index import page_rows
from memory_core.core.index.catalog import Catalog
from memory_core.core.index.documents import abstract_of
from memory_core.core.index.page_rows import EVERY_LINE, Stale
from memory_core.core.memory.directory_page import (
    ENTRIES_LIMIT,
    Contents,
    Listed,
    is_generated,
    listed,
    own_words,
    parse_page,
    render_abstract,
    render_page,
    still_says,
)
from memory_core.core.memory.memory import parse
from memory_core.core.memory.memory_type import MemoryTypeRegistry
from memory_core.core.memory.template import render
from memory_core.core.memory.uri import ABSTRACT_NAME, OVERVIEW_NAME, MemoryUri
from memory_core.core.store.files import Seen
from memory_core.core.store.local import Store

_log = logging.getLogger(__name__)
_WAIT_SECONDS = 30.0
#: A page that others write at the same time is made from what they left.
_ATTEMPTS = 4


class DirectoryPages:
    """Makes the pages of one store; safe to use from many threads and processes.

    Args:
        store: Whose pages.
        catalog: Says what is in a directory, and which pages are out of date.
        registry: Names the memory types and their directories.
    """

    def __init__(self, store: Store, catalog: Catalog, registry: MemoryTypeRegistry) -> None:
        self._store = store
        self._catalog = catalog
        self._registry = registry
        self._guard = threading.Lock()

    def bring_up_to_date(
        self,
        spaces: Sequence[str] = (),
        directory: MemoryUri | None = None,
        *,
        wait_seconds: float = _WAIT_SECONDS,
        limit_seconds: float | None = None,
    ) -> None:
        """Make every page of some spaces (``scope/space``) that is out of date; the catalog must be up to date.

        Args:
            spaces: None given are all.
            directory: Only that of this one.
            wait_seconds: How long others who write pages, or the catalog, are waited for.
            limit_seconds: After so long the pages that are left are left to the background.

        Raises:
            StoreBusy: If they took longer. Pages that are left are made by whoever comes next.
        """
        if not self._store.is_writable or not page_rows.any_stale(self._catalog.connection()):
            return
        deadline = None if limit_seconds is None else time.monotonic() + limit_seconds
        for page in page_rows.stale(self._catalog.connection(), spaces, directory):
            if not self._guard.acquire(timeout=wait_seconds):
                raise StoreBusy("another thread makes pages.", hint="Send the same request again.")
            try:
                if page_rows.is_stale(self._catalog.connection(), page) and self._made(page):
                    with self._catalog.writing(wait_seconds=wait_seconds) as connection:
                        page_rows.done(connection, page)
            finally:
                self._guard.release()
            if deadline is not None and time.monotonic() > deadline:
                return

    def remove_below(self, directory: MemoryUri) -> None:
        """Delete the pages at and below a directory that holds nothing any more, where nobody wrote on them."""
        files = self._store.files
        if not files.is_dir(directory) or self._store.ledger.movements.stats(directory):
            return
        for uri in [entry.uri for entry in files.walk(directory) if entry.uri.is_summary]:
            text, seen = files.look(uri)
            if own_words(uri.name, text) is None:
                files.write(uri, None, seen)

    def _made(self, page: Stale) -> bool:
        """Whether nothing is left to do for a directory; what cannot be read stays as it is."""
        try:
            with self._store.adoption.times.writing({page.directory}):
                self._make(page)
        except (InvalidInput, InvalidUri) as error:
            _log.warning("the pages of %s stay as they are: %s", page.directory, error.message)
        except RunebookError as error:
            _log.warning("the pages of %s are made later: %s", page.directory, error.message)
            return False
        return True

    def _make(self, page: Stale) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                self._write(page)
            except MemoryChanged:
                if attempt + 1 == _ATTEMPTS:
                    raise
            else:
                return

    def _write(self, page: Stale) -> None:
        directory, files = page.directory, self._store.files
        overview, abstract = directory.child(OVERVIEW_NAME), directory.child(ABSTRACT_NAME)
        (text, text_seen), (line, line_seen) = (files.look(uri, strict=True) for uri in (overview, abstract))
        stored = parse_page(text or "")
        total = self._store.ledger.directories.count(directory)
        folders = tuple(self._folders(directory))
        holds_some = bool(total or folders)
        private = min(page_rows.private_count(self._catalog.connection(), directory), total)
        contents = Contents(directory.name, total, self._listed(page, stored.listed or ()), folders, private)
        if stored.listed is not None or (holds_some and not stored.authored.strip()):
            self._put(overview, text, render_page(stored.authored, contents), text_seen)
        if line is None:
            if holds_some:
                self._put(abstract, None, render_abstract(contents), line_seen)
        elif is_generated(line):
            there = page_rows.listable(self._catalog.connection(), directory, page.names)
            if not still_says(line, contents, page.names - there):
                self._put(abstract, line, render_abstract(contents), line_seen)

    def _put(self, uri: MemoryUri, before: str | None, after: str, seen: Seen) -> None:
        if before == after:
            return
        self._store.files.write(uri, after, seen)
        if own_words(uri.name, after) is not None:  # what somebody wrote must not be torn by a power loss
            self._store.files.sync(uri)

    def _listed(self, page: Stale, known: tuple[Listed, ...]) -> tuple[Listed, ...]:
        """The lines of a page: those that stand there, and new ones for memories that changed."""
        renewed = EVERY_LINE in page.names
        lines = {} if renewed else {item.name: item.line for item in known if item.name not in page.names}
        rows = page_rows.newest(self._catalog.connection(), page.directory, ENTRIES_LIMIT)
        items = (
            Listed(name, lines[name], important) if name in lines else self._line(page.directory.child(name), important)
            for name, important in rows
        )
        return tuple(item for item in items if item is not None)

    def _line(self, uri: MemoryUri, important: bool) -> Listed | None:
        """A memory's line; None if it is gone since it was indexed."""
        text = self._store.text(uri)
        if text is None:
            return None
        memory = parse(uri, text, self._registry)
        if memory.is_private:  # since it was indexed
            return None
        if memory.type is None:
            return listed(uri.name, memory.body, important=False)
        given = memory.metadata.text("abstract")
        template = memory.type.overview_template
        filled = ""
        if template and not (given is not None and given.strip()):
            filled = render(memory.type.model_copy(update={"content_template": template}), memory.fields).strip()
        return listed(uri.name, filled or abstract_of(memory, ""), important=important)

    def _folders(self, directory: MemoryUri) -> Iterator[str]:
        """Names of the folders below that hold memories of some type; only type directories are looked into."""
        space = directory.parts[1]
        context = PlanContext(self._registry, space, space, "")
        depth, prefix = len(directory.parts), f"{directory}/"
        below: dict[str, list[MemoryUri]] = {}
        for memory_type in self._registry.list_all():
            if context.directory_text(memory_type).startswith(prefix):
                place = context.directory(memory_type)
                below.setdefault(place.parts[depth], []).append(place)
        for name, places in sorted(below.items()):
            if any(self._store.ledger.directories.count(place) for place in places):
                yield name
