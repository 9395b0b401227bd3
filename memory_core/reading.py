"""The reading half of an open store: searching, looking, packing context, and what became of it all.

Everything that reads an opened store; ``memory.Memory`` adds what writes. Never changes a memory file: usage, trails
and indexes are all it moves.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from memory_core.config import Config
from memory_core.errors import InvalidUri
from memory_core.index.indexer import healed
from memory_core.lifecycle.history.history import History
from memory_core.lifecycle.history.page import history_listing, is_history, read_history
from memory_core.model.access import Access
from memory_core.model.hits import ContextPack, FindResult, Listings, ReadResult
from memory_core.model.uri import MemoryUri
from memory_core.opened import OpenedStore
from memory_core.retrieval.browse import Browser
from memory_core.retrieval.catalogue import Catalogue, EntryFilter, EntryPage
from memory_core.retrieval.context import Fit
from memory_core.retrieval.engine import ContextEngine
from memory_core.retrieval.hot import HotMemory
from memory_core.retrieval.insight import SIMILAR_FROM, SIMILAR_LIMIT, Insight, SimilarMemories
from memory_core.retrieval.metrics import Metrics
from memory_core.retrieval.metrics_page import is_metrics, metrics_listing, read_metrics
from memory_core.retrieval.pieces import PieceReader, Spaces
from memory_core.retrieval.privacy import private_elsewhere
from memory_core.retrieval.retriever import Retriever
from memory_core.retrieval.skill_files import skill_block, with_skill_memory
from memory_core.storage.tables.usage import Recall
from memory_core.update.project_choice import ProjectChoice

#: A commit, or a skill's memory, waits so long for files that people added before the start.
ADOPTION_SECONDS = 2.0


class MemoryReader:
    """One open store as one user and agent see it.

    Args:
        config: Settings; they name the spaces that are seen.
        opened: The folder.
        access: How far the view goes; default what ``config`` says.
    """

    def __init__(self, config: Config, opened: OpenedStore, access: Access | None = None) -> None:
        self.config = config
        self.opened = opened
        self.registry = opened.registry
        self.store = opened.store
        self.indexer = opened.indexer
        self.access = access or (Access.PRIVATE if config.private_mode else Access.READ_WRITE)
        self.spaces = (
            f"user/{config.user_space}",
            f"agent/{config.agent_space}",
            f"session/{config.user_space}",
        )
        self.projects = ProjectChoice(config.project)
        self.browser = Browser(
            self.store.files,
            self.indexer.catalog.abstracts,
            self.spaces,
            lambda uris, project: private_elsewhere(self.indexer.catalog, uris, project),
        )
        self.retriever = Retriever(self.indexer, self.store.ledger, self.spaces, config, opened.reranker)
        self.history = History(self.store, self.browser, self.spaces)
        self.catalogue = Catalogue(
            self.indexer.catalog, self.store.ledger.usage_table, self.spaces, config.search.decay_lambda
        )
        traces = self.access.leaves_traces
        self.insight = Insight(
            config, self.store, self.indexer, self.retriever, self.browser, self.spaces, traces=traces
        )
        self._context = ContextEngine(
            config, self.store.ledger, self.registry, self.browser, self.retriever, self.insight, traces=traces
        )

    @healed
    def find(
        self,
        query: str,
        target_uri: str = "",
        limit: int = 10,
        score_threshold: float | None = None,
        filter: Mapping[str, Any] | None = None,
        rank: str | None = None,
        now: datetime | None = None,
        project: str | None = None,
        here: str | None = None,
    ) -> FindResult:
        """Memories and conversation turns that answer ``query``, best first; see ``Retriever.find``.

        Args:
            query: A question or key words.
            target_uri: Only files at or below it.
            limit: 1 to 100.
            score_threshold: Leave out hits below it.
            filter: See ``index.filter``.
            rank: None means the setting.
            now: Time that ages count from.
            project: Only this one ("." is the current); default everything that is not private to another project,
                the current one first.
            here: The project that the caller works in, where the settings name none.

        Raises:
            InvalidInput: If an argument is wrong.
        """
        complete = self.opened.look()
        if target_uri:
            self.browser.visible(MemoryUri.parse(target_uri))
        scope = self.projects.scope(project, here)
        started = time.perf_counter()
        found = self.retriever.find(query, target_uri, limit, score_threshold, filter, rank, now, scope)
        if self.store.adoption.renew(hit.uri for hit in found.hits):  # a person saved one of them a moment ago
            found = self.retriever.find(query, target_uri, limit, score_threshold, filter, rank, now, scope)
        self.insight.note(
            "find",
            query,
            [(hit.uri, hit.score) for hit in found.hits],
            milliseconds=1_000 * (time.perf_counter() - started),
            cached=found.cached,
            rank=rank,
            project=scope.current,
            now=now,
        )
        if complete:
            return found
        note = "files changed by hand are still being read; ask again in a moment"
        return replace(found, notes=(*found.notes, note))

    def read(
        self, uri: str, offset: int = 0, limit: int = -1, limit_chars: int | None = None, here: str | None = None
    ) -> ReadResult:
        """Lines of one file, see ``Browser.read``, of a page of history, see ``history_page``, or of the metrics."""
        if is_history(uri):
            history = self.history.seen_from(self.projects.current(here))
            return read_history(history, uri, offset, limit, limit_chars)
        if is_metrics(uri):
            return read_metrics(self.metrics(wait=False), offset, limit, limit_chars)
        page = self.browser.read(uri, offset, limit, limit_chars)
        if offset == 0:
            self.insight.note_read(page.uri)
            links = self.browser.seen_from(self.projects.current(here)).linked(MemoryUri.parse(page.uri))
            return replace(page, links=links)
        return page

    @healed
    def ls(
        self,
        uri: str,
        output: str = "agent",
        abs_limit: int = 256,
        show_all_hidden: bool = False,
        node_limit: int = 1000,
        here: str | None = None,
    ) -> Listings:
        """Entries of one directory; see ``Browser.ls``. What is private to other projects than ``here`` has no line."""
        self.opened.look()
        self.indexer.follow()
        browser = self.browser.seen_from(self.projects.current(here))
        if is_history(uri) or is_metrics(uri):
            raise _not_listed(uri)
        listings = browser.ls(uri, output, abs_limit, show_all_hidden, node_limit)
        if MemoryUri.parse(uri).parts:
            return listings
        shown = abs_limit if output == "agent" else None
        past = history_listing(self.history, shown)
        figures = [metrics_listing(entry.updated_at, shown) for entry in past]
        return replace(listings, entries=(*listings.entries, *past, *figures))

    @healed
    def tree(
        self,
        uri: str = "viking://",
        output: str = "agent",
        abs_limit: int = 256,
        show_all_hidden: bool = False,
        node_limit: int = 1000,
        level_limit: int = 3,
        here: str | None = None,
    ) -> Listings:
        """Everything below a directory; see ``Browser.tree`` and ``ls``."""
        self.opened.look()
        self.indexer.follow()
        browser = self.browser.seen_from(self.projects.current(here))
        if is_history(uri) or is_metrics(uri):
            raise _not_listed(uri)
        return browser.tree(uri, output, abs_limit, show_all_hidden, node_limit, level_limit)

    @healed
    def entries(self, wanted: EntryFilter, now: datetime | None = None) -> EntryPage:
        """The memories as a list, page by page; see ``Catalogue.entries``."""
        self.opened.look()
        self.indexer.follow()
        return self.catalogue.entries(wanted, now)

    @healed
    def retrieve(
        self,
        query: str | None = None,
        *,
        messages: Sequence[Any] | None = None,
        session_id: str | None = None,
        tool: str | Sequence[str] | None = None,
        skill: str | None = None,
        token_budget: int | None = None,
        format: str = "blocks",
        fresh: bool = False,
        project: str | None = None,
        here: str | None = None,
        now: datetime | None = None,
        fit: Fit = lambda _pack, _budget: None,
    ) -> ContextPack:
        """Context for an agent's next step, inside a token budget; see ``retrieval.context`` for its parts.

        Args:
            query: What the agent is about to deal with; default the user's last messages.
            messages: The conversation so far.
            session_id: What this session was given before is not given again.
            tool: Name of the tool at hand, or several; what is known of them is added.
            skill: Name of the skill at hand; likewise.
            token_budget: 200 to 10,000; default the setting.
            format: blocks, text, system, messages-anthropic or messages-openai.
            fresh: The session's context was compressed or lost: everything may come again.
            project: As for ``find``.
            here: As for ``find``.
            now: As for ``find``; also the day of the logs.
            fit: Asked of each pack; answers with a smaller budget until the pack can be delivered.

        Raises:
            InvalidInput: If an argument is wrong.
        """
        self.opened.adopted.wait(self.config.embedding.wait_seconds)
        self.opened.look()
        return self._context.retrieve(
            query,
            messages=messages,
            session_id=session_id,
            tool=tool,
            skill=skill,
            token_budget=token_budget,
            format=format,
            fresh=fresh,
            project=self.projects.scope(project, here),
            now=now,
            fit=fit,
        )

    @healed
    def with_skill_memory(self, path: str, text: str, here: str | None = None) -> str:
        """``text`` as read from ``path``; a skill's ``SKILL.md`` gets what is remembered of that skill below it."""
        self.opened.adopted.wait(ADOPTION_SECONDS)
        return with_skill_memory(self._pieces(here), path, text)

    @healed
    def skill_memory(self, name: str, here: str | None = None) -> str:
        """What is remembered of a skill, as a block of data; empty for nothing."""
        self.opened.adopted.wait(ADOPTION_SECONDS)
        return skill_block(self._pieces(here), name)

    def _pieces(self, here: str | None) -> PieceReader:
        spaces = Spaces(self.config.user_space, self.config.agent_space)
        scope = self.projects.scope(None, here)
        return PieceReader(self.browser, self.store.ledger, self.registry, spaces, scope)

    @healed
    def similar(
        self, text_or_uri: str, threshold: float = SIMILAR_FROM, limit: int = SIMILAR_LIMIT, here: str | None = None
    ) -> SimilarMemories:
        """Memories that say nearly the same as a text or a memory; see ``Insight.similar``."""
        return self.insight.similar(text_or_uri, threshold, limit, self.projects.scope(None, here))

    @healed
    def hot(self, limit: int | None = None, here: str | None = None) -> tuple[HotMemory, ...]:
        """The memories used most; see ``HotMemories.hot``."""
        return self.insight.hot(limit, self.projects.scope(None, here))

    def trail(self, limit: int = 20, uri: str | None = None) -> list[Recall]:
        """Which query retrieved what, newest first; see ``Insight.trail``."""
        return self.insight.trail(limit, uri)

    @healed
    def metrics(self, *, whole: bool = False, wait: bool = True) -> Metrics:
        """What the store holds, how it is used and how fast it answers; see ``Insight.metrics``."""
        return self.insight.metrics(whole=whole, wait=wait)


def _not_listed(uri: str) -> InvalidUri:
    return InvalidUri(f"{uri!r} is a page, not a directory.", hint=f'Read it: read("{uri}").')
