"""The Memory facade and ``open_memory``: what comes in; the rest from ``reading`` and ``keeping``.

A ``Memory`` is one open store for one user and agent space. It is safe to use from many threads, and several
may be open on the same folder in several processes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

from memory_core.core.caller import Access
from memory_core.core.commit.append import MessageRecorder
from memory_core.core.commit.commits import MemoryUpdater
from memory_core.core.commit.working_copy import PlanContext
from memory_core.core.config import Config, is_space
from memory_core.core.errors import AccessDenied, InvalidInput, InvalidUri, RunebookError
from memory_core.core.extract.extractor import counted
from memory_core.core.extract.intake import ConversationIntake
from memory_core.core.extract.prompts import PromptLibrary
from memory_core.core.extract.working_memory import Compactor, WorkingMemory
from memory_core.core.index.indexer import Behind, healed
from memory_core.core.llm.client import Completion, LLMClient, LLMRequest
from memory_core.core.memory.operations import is_sound
from memory_core.core.memory.project import ProjectChoice, ProjectScope
from memory_core.core.memory.results import (
    Action,
    ChangeSet,
    CommitReceipt,
    ContextPack,
    FileChange,
    FindResult,
    Listings,
    OperationResult,
    ReadResult,
)
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.progress import tell
from memory_core.core.search.browse import Browser, private_elsewhere
from memory_core.core.search.context import ContextEngine, Fit
from memory_core.core.search.context_sources import PieceReader, Spaces, skill_block, with_skill_memory
from memory_core.core.search.find import Retriever
from memory_core.core.search.memory_list import Catalogue, EntryFilter, EntryPage
from memory_core.core.store.delivery import Step
from memory_core.core.store.local import Snapshot
from memory_core.core.store.usage import Recall
from memory_core.features import doctor
from memory_core.features.chat import Chat, Setting, Side, exchanges, new_session_id, no_model
from memory_core.features.doctor import Report
from memory_core.features.forgetting import Forgetter
from memory_core.features.history import LAST, History, history_listing, is_history, read_history
from memory_core.features.metrics import Metrics, is_metrics, metrics_listing, read_metrics
from memory_core.features.migrate import Migration, migrate
from memory_core.features.purge import Doomed, Purger
from memory_core.features.rebuild import Rebuilt, rebuild_index
from memory_core.features.recall_trail import SIMILAR_FROM, SIMILAR_LIMIT, HotMemory, Insight, SimilarMemories
from memory_core.features.review import Reviewer
from memory_core.features.rolling_summary import RollingSummary, read_rolling_summary, rolling_summary_uri
from memory_core.features.tiers.promotion import build_tiers
from memory_core.features.undo import Undoer
from memory_core.features.upkeep.archive import Archived, Shelf
from memory_core.features.upkeep.passes import AutomaticMaintenance, Done, Upkeep
from memory_core.features.upkeep.rolling_pass import removal
from memory_core.features.upkeep.summaries import SummaryWriter
from memory_core.open_store import OpenedStore, build_extractor, build_maintainer, load_registry

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
        """PlanContext for an agent's next step, inside a token budget; see ``retrieval.context`` for its parts.

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


_log = logging.getLogger(__name__)
_REQUEST_ID_CHARS = 256
#: New memories of one commit whose neighbours the receipt names.
_COMPARED = 8


class MemoryKeeper(MemoryReader):
    """One open store for one user and agent, as its owner keeps it in order."""

    def __init__(self, config: Config, opened: OpenedStore, access: Access | None = None) -> None:
        super().__init__(config, opened, access)
        self.updater = MemoryUpdater(self.store, self.registry, config)
        self._undoer = Undoer(self.store, self.history, self._moment)
        upkeep = Upkeep(
            config,
            self.store,
            self.registry,
            self.indexer,
            self._moment,
            lambda receipt: self._indexed(receipt, ProjectScope(), compare=False),
        )
        self.extractor = build_extractor(
            config, self.registry, self.store, self.updater, self.browser, self.retriever, self.indexer.catalog
        )

        def llm() -> LLMClient | None:
            return opened.model_for(config.user_space)

        writer = SummaryWriter(config, llm)
        self.tiers = build_tiers(upkeep, self.extractor, llm, writer)
        self.maintainer = build_maintainer(upkeep, self.tiers, writer)
        self.shelf = Shelf(upkeep, self.browser.visible)
        self.reviewer = Reviewer(self.store, config.user_space, self._moment, upkeep.indexed)
        self._tender: AutomaticMaintenance | None = None

    def undo(
        self,
        commit_id: str = LAST,
        *,
        author: str | None = None,
        request_id: str | None = None,
        dry_run: bool = False,
        now: datetime | None = None,
    ) -> CommitReceipt:
        """Take a commit back, and keep what happened since; see ``Undoer.undo``."""
        self.expect_writable()
        self.opened.adopted.wait(ADOPTION_SECONDS)
        request_id = self._request(request_id)
        receipt = self._undoer.undo(commit_id, author=author, request_id=request_id, dry_run=dry_run, now=now)
        self.tiers.overflow.after(receipt, now or datetime.now(UTC))
        return self._indexed(receipt, ProjectScope(), compare=False)

    def forget(
        self,
        request: Mapping[str, Any],
        *,
        request_id: str | None = None,
        dry_run: bool = False,
        now: datetime | None = None,
        project: str | None = None,
        here: str | None = None,
    ) -> CommitReceipt:
        """Show what a search would delete, or delete it where that is confirmed; see ``Forgetter.forget``."""
        self.expect_writable()
        scope = self.projects.scope(project, here)

        def search(query: str, target_uri: str, limit: int, filter: Mapping[str, Any] | None) -> FindResult:
            if target_uri:
                self.browser.visible(MemoryUri.parse(target_uri))
            return self.retriever.find(query, target_uri, limit, filter=filter, project=scope)

        def waiting(query: str) -> Iterator[tuple[MemoryUri, str]]:
            for each in self.reviewer.mentioning(query):
                if scope.finds(each.belonging.project, private=each.private):
                    yield each.uri, each.title

        forgetter = Forgetter(self.store, self.browser, search, self._moment, waiting)
        request_id = self._request(request_id)
        receipt = forgetter.forget(request, request_id=request_id, dry_run=dry_run, now=now)
        self.tiers.overflow.after(receipt, now or datetime.now(UTC))
        return self._indexed(receipt, scope, compare=False)

    def purge(self, uri: str | None = None, *, commit_id: str | None = None) -> CommitReceipt:
        """Erase a file and all its versions, or what one commit brought, for good; see ``Purger``.

        Raises:
            InvalidInput: If not exactly one of the two is given.
        """
        self.expect_writable()
        self.opened.adopted.wait()
        if uri is not None and commit_id is None:
            return self._purger().purge(uri)
        if commit_id is not None and uri is None:
            return self._purger().purge_commit(commit_id)
        raise InvalidInput("purge takes a URI or a commit.", hint="Name one of the two.")

    def doomed(self, uri: str) -> Doomed:
        """What ``purge`` of a URI would erase; see ``Purger.doomed``."""
        return self._purger().doomed(uri)

    def _purger(self) -> Purger:
        return Purger(self.store, self.indexer, self.browser, self.history, self._undoer, self._moment)

    def _moment(self, moment: datetime) -> PlanContext:
        return self.updater.context(moment, "user_explicit", None)

    def _request(self, request_id: str | None) -> str | None:
        """A request's name in the ledger: another user's is another request."""
        if request_id is None:
            return None
        if not (is_sound(request_id) and 0 < len(request_id) <= _REQUEST_ID_CHARS):
            raise InvalidInput(
                "request_id cannot be kept.", hint=f"Use 1 to {_REQUEST_ID_CHARS} characters, a UUID for example."
            )
        return f"{self.config.user_space}/{request_id}"

    def maintain(
        self,
        *,
        now: datetime | None = None,
        dry_run: bool = False,
        only: Collection[str] = (),
        light: bool = False,
    ) -> Iterator[Done]:
        """Run the passes of maintenance; see ``Maintainer.run``.

        Args:
            now: The moment that ages count from, aware; default the clock's.
            dry_run: Plan only.
            only: Names of passes; empty is all.
            light: Only those that are quick and ask no model.
        """
        self.expect_writable()
        self.opened.adopted.wait(ADOPTION_SECONDS)
        return self.maintainer.run(now or datetime.now(UTC), dry_run=dry_run, only=only, light=light)

    def tend(self) -> None:
        """Do maintenance by itself from now on, as the settings say, for all users; safe to call twice."""
        if self._tender is None and (automatic := self.automatic_maintenance()) is not None:
            self._tender = automatic
            self._tender.start()

    def automatic_maintenance(self) -> AutomaticMaintenance | None:
        """What does maintenance by itself once it is started; None where the settings or the view's rights forbid."""
        settings = self.config.maintenance
        if settings.automatic == "off" or self.access is not Access.READ_WRITE:
            return None
        return AutomaticMaintenance(self.store.files.state, timedelta(hours=settings.every_hours), self._tend)

    def close(self) -> None:
        """End maintenance; safe to call twice."""
        if self._tender is not None:
            self._tender.stop()

    def _tend(self, now: datetime, stopping: threading.Event) -> None:
        for user_space in self._users():
            config = self.config.with_spaces(user_space, self.config.agent_space)
            keeper = MemoryKeeper(config, self.opened, self.access)
            for done in keeper.maintain(now=now, light=self.config.maintenance.automatic == "light"):
                if done.receipts:
                    _log.info("maintenance %s of %s: %d files", done.name, user_space, done.changed)
                if stopping.is_set():
                    return

    def _users(self) -> list[str]:
        """The user spaces of this folder, this view's own first."""
        files, found = self.store.files, [self.config.user_space]
        for scope in (Scope.USER, Scope.SESSION):
            place = MemoryUri((scope.value,))
            found += [entry.uri.name for entry in files.entries(place) if entry.is_dir] if files.is_dir(place) else []
        return [name for name in dict.fromkeys(found) if is_space(name)]

    def rolling_summary(self) -> RollingSummary | None:
        """The page that each new session begins with, if there is one; see ``model.rolling_summary``."""
        return read_rolling_summary(self.store.text(rolling_summary_uri(self.config.user_space)))

    def clear_summary(self, *, now: datetime | None = None, dry_run: bool = False) -> CommitReceipt:
        """Remove the rolling summary, whoever wrote it: the next maintenance may make it anew."""
        self.expect_writable()
        uri = rolling_summary_uri(self.config.user_space)

        def planned(snapshot: Snapshot) -> ChangeSet:
            before = snapshot.text(uri)
            if before is None:
                return ChangeSet((), (OperationResult("summary", str(uri), Action.UNCHANGED, note="there is none"),))
            return removal(uri, before)

        return self.store.commit(planned, kind="summary", now=now, dry_run=dry_run)

    def archived(self, words: str = "") -> Iterator[Archived]:
        """Files of the archive, all or those that hold these words; see ``Shelf.archived``."""
        return self.shelf.archived(words)

    def archive(self, uris: Sequence[str], *, now: datetime | None = None, dry_run: bool = False) -> CommitReceipt:
        """Put memories into the archive; see ``Shelf.archive``."""
        self.expect_writable()
        return self.shelf.archive(uris, now or datetime.now(UTC), dry_run=dry_run)

    def restore(self, uris: Sequence[str], *, now: datetime | None = None, dry_run: bool = False) -> CommitReceipt:
        """Bring files back from the archive; see ``Shelf.restore``."""
        self.expect_writable()
        return self.shelf.restore(uris, now or datetime.now(UTC), dry_run=dry_run)

    def accept(
        self, names: Sequence[str], *, now: datetime | None = None, dry_run: bool = False
    ) -> list[CommitReceipt]:
        """Do what proposals that wait for review propose; see ``Reviewer.accept``."""
        self.expect_writable()
        return self.reviewer.accept(names, now or datetime.now().astimezone(), dry_run=dry_run)

    def reject(
        self, names: Sequence[str], *, now: datetime | None = None, dry_run: bool = False
    ) -> list[CommitReceipt]:
        """Drop proposals that wait for review; see ``Reviewer.reject``."""
        self.expect_writable()
        return self.reviewer.reject(names, now or datetime.now().astimezone(), dry_run=dry_run)

    def reword(self, name: str, text: str, *, now: datetime | None = None) -> CommitReceipt:
        """Word otherwise what a proposal would store; see ``Reviewer.rewrite``."""
        self.expect_writable()
        return self.reviewer.rewrite(name, text, now or datetime.now().astimezone())

    def migrate(self, *, dry_run: bool = False) -> Migration:
        """Give the files of an older store semantic names and our trailer; see ``lifecycle.migrate``."""
        self.expect_writable()
        self.opened.adopted.wait()
        migration = migrate(
            self.store,
            self.registry,
            user_space=self.config.user_space,
            agent_space=self.config.agent_space,
            dry_run=dry_run,
        )
        self.indexer.follow()
        return migration

    def doctor(self, *, repair: bool = False) -> Report:
        """Examine the store from all sides, and mend it if asked to; see ``lifecycle.doctor``."""
        if not repair:
            return doctor.examine(self.config, self.registry)
        self.expect_writable()
        return doctor.repair(self.config, self.registry)

    def rebuild(self, *, reembed: bool = False, report: Callable[[Behind], None] = lambda _behind: None) -> Rebuilt:
        """Build the index anew from ledger and files; see ``lifecycle.rebuild``. Vectors follow in the background."""
        self.expect_writable()
        rebuilt = rebuild_index(self.store, self.registry, reembed=reembed, report=report)
        self.indexer.wake()
        return rebuilt

    def expect_writable(self) -> None:
        """Refuse a write where this view only reads.

        Raises:
            AccessDenied: If so.
        """
        if self.access is Access.PRIVATE:
            raise AccessDenied(
                "private mode is on: nothing was stored.",
                hint="Go on without storing. Only when the user asks for it, switch private mode off.",
            )
        if self.access is Access.READ_ONLY:
            raise AccessDenied(
                "this connection may only read: nothing was stored.",
                hint="Tell the user; the owner of the store can issue a token that may write.",
            )

    def _indexed(self, receipt: CommitReceipt, project: ProjectScope, *, compare: bool = True) -> CommitReceipt:
        """After the acknowledgement: words and near neighbours at once; vectors follow, or the next find waits."""
        if not receipt.changed_uris or not receipt.commit_id:
            return receipt
        try:
            self.indexer.follow()
            created = [result.uri for result in receipt.results if compare and result.action is Action.CREATED]
            similar = self.retriever.similar(created[:_COMPARED], project=project)
        except RunebookError as error:
            _log.warning("committed, but not indexed yet: %s", error.message)
            return receipt
        self.indexer.wake()
        if not similar:
            return receipt
        receipt = replace(receipt, similar=similar)
        self.store.finish(receipt)
        return receipt


def open_memory(
    config: Config | None = None, *, step: Step = lambda _name: None, llm: LLMClient | None = None
) -> Runebook:
    """Open (or create) the store that ``config`` names.

    Args:
        config: Settings; default: all defaults.
        step: Observes the steps of each commit, for crash tests.
        llm: The language model to use instead of the one that ``config`` names.

    Raises:
        StorageFailed: If the folder cannot be used.
        ConfigInvalid: If a setting cannot be followed.
    """
    config = config or Config()
    registry = load_registry(config)
    for problem in registry.problems:
        _log.warning("%s", problem)
    return Runebook(config, OpenedStore(config, registry, step=step, llm=llm), owner=True)


class Runebook(MemoryKeeper):
    """One open store for one user and agent; use as a context manager or call ``close``.

    Args:
        config: Settings.
        opened: The folder.
        access: How far the view goes; default what ``config`` says.
        owner: Whether closing this view closes the folder.
    """

    def __init__(
        self, config: Config, opened: OpenedStore, access: Access | None = None, *, owner: bool = False
    ) -> None:
        super().__init__(config, opened, access)
        self._owner = owner
        registry = self.registry
        self.recorder = MessageRecorder(
            self.store,
            registry,
            self.updater,
            self.projects,
            queues=config.extractor != "none",
            keeps_corrections=config.llm.provider == "none" and opened.llm is None,
        )
        scope = self.updater.context(datetime.now(UTC), "", None)
        self._intake = ConversationIntake(
            self.store,
            self.extractor,
            self.tiers.trigger,
            self.tiers.promoter,
            Compactor(self.store, registry, scope),
            self._indexed,
            lambda: opened.model_for(config.user_space),
            config.llm.deadline_seconds,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish background work and release the store, if this view opened it; safe to call twice."""
        super().close()
        if self._owner:
            self.opened.close()

    def view(
        self, user_space: str | None = None, agent_space: str | None = None, access: Access | None = None
    ) -> Runebook:
        """The same folder as another user or agent sees it, or with less left behind.

        Args:
            user_space: Whose memories; default this view's.
            agent_space: Which agent's; default this view's.
            access: How far it goes; default this view's.

        Raises:
            ConfigInvalid: If a space cannot be a folder name.
        """
        config = self.config.with_spaces(user_space or self.config.user_space, agent_space or self.config.agent_space)
        return Runebook(config, self.opened, access or self.access)

    def warm(self) -> None:
        """Begin loading the models."""
        self.opened.warm()

    def commit(
        self,
        memory_content: str | None = None,
        *,
        memory_type: str | None = None,
        priority: str | float | None = None,
        category: str | None = None,
        fields: Mapping[str, Any] | None = None,
        pinned: bool | None = None,
        expires_at: str | None = None,
        messages: Sequence[Any] | None = None,
        session_id: str | None = None,
        operations: Mapping[str, Any] | None = None,
        expected: Mapping[str, str] | None = None,
        request_id: str | None = None,
        dry_run: bool = False,
        now: datetime | None = None,
        extract: bool = True,
        project: str | None = None,
        private: bool | None = None,
        here: str | None = None,
    ) -> CommitReceipt:
        """Store one explicit memory, ready-made operations, or a conversation: exactly one of the three.

        A conversation is stored first. Then the configured model extracts its memories; without one, or if it
        fails, the conversation waits, and without one the receipt briefs the caller's own model. Operations with
        a ``session_id`` are the answer to such a brief.

        Args:
            memory_content: One memory.
            memory_type: Its type; default notes.
            priority: low, normal, high, critical, or 0 to 1.
            category: A label; also picks a type if none is named.
            fields: Fields of the type.
            pinned: Of one memory: whether it is kept from ever being condensed or archived by itself.
            expires_at: Of one memory: an ISO date or time from which it no longer holds; empty is never.
            messages: A conversation; see ``model.message_shapes``.
            session_id: Session that messages or knowledge belong to.
            operations: MemoryOperations as JSON.
            expected: Of one memory, or operations that answer no brief: SHA-256 of files by URI. If one of them is
                something else by now, nothing is stored and the receipt says ``conflict``.
            request_id: Makes a retry return the first receipt.
            dry_run: Plan only.
            now: Time of the commit; default the clock's.
            extract: Of a conversation: False only stores it; see ``extraction``.
            project: The project of what is stored: a name, "." for the current one, "" or "global" for none; default
                the current one for types that follow it, and for conversations.
            private: Whether it is for that project only; default by the settings.
            here: The project that the caller works in, where the settings name none.

        Raises:
            InvalidInput: If none or several are given, or an argument is wrong. Nothing was stored.
            AccessDenied: If this view only reads. Nothing was stored.
            StoreBusy: If another writer held the store too long. Nothing was stored.
            StorageFailed: If the ledger could not be written. Nothing was stored.
        """
        request_id = self._request(request_id)
        explicit = memory_content is not None or fields is not None
        if (explicit, messages is not None, operations is not None).count(True) != 1:
            raise InvalidInput(
                "a commit takes exactly one of: memory_content (or fields), messages, operations.",
                hint='For a single memory send {"memory_content": "…"}.',
            )
        if not explicit and (pinned is not None or expires_at is not None):
            raise InvalidInput(
                "pinned and expires_at go with memory_content.",
                hint="In operations each memory_data and edit operation takes its own.",
            )
        if expected is not None and (messages is not None or (operations is not None and session_id is not None)):
            raise InvalidInput("expected goes with one memory, or operations without a session.", hint="Leave it out.")
        self.expect_writable()
        belonging = self.projects.belonging(project, private, here)
        scope = ProjectScope(belonging.project)
        self.opened.adopted.wait(ADOPTION_SECONDS)
        if messages is not None:
            receipt = self.recorder.record(
                messages, session_id=session_id, request_id=request_id, dry_run=dry_run, now=now, belonging=belonging
            )
            tell("the conversation was read; nothing is stored" if dry_run else "the conversation is stored")
            receipt = self._indexed(receipt, scope)
            self.tiers.overflow.after(receipt, now or datetime.now(UTC))
            return self.take_in(receipt, now) if extract and not dry_run else receipt
        if operations is not None and expected is not None:
            receipt = self.updater.apply_operations(
                operations,
                source_kind="user_explicit",
                request_id=request_id,
                dry_run=dry_run,
                now=now,
                only_if=expected,
                belonging=belonging,
            )
        elif operations is not None:
            receipt = self.extractor.hand_in(
                operations,
                session_id=session_id,
                request_id=request_id,
                dry_run=dry_run,
                now=now,
                belonging=belonging,
            )
        else:
            receipt = self.updater.remember(
                memory_content,
                memory_type=memory_type,
                category=category,
                priority=priority,
                fields=fields,
                pinned=pinned,
                expires_at=expires_at,
                session_id=session_id,
                request_id=request_id,
                dry_run=dry_run,
                now=now,
                only_if=expected,
                belonging=belonging,
            )
        return self._indexed(receipt, scope)

    def preview(self, operations: Mapping[str, Any], here: str | None = None) -> tuple[FileChange, ...]:
        """The files as explicit operations would leave them now; nothing is stored.

        Raises:
            InvalidInput: If there is nothing to do, or the whole is too large.
        """
        found: list[FileChange] = []
        self.updater.apply_operations(
            operations,
            source_kind="user_explicit",
            dry_run=True,
            belonging=self.projects.belonging(None, None, here),
            watch=lambda planned: found.extend(planned.changes),
        )
        return tuple(found)

    def take_in(self, recorded: CommitReceipt, now: datetime | None = None) -> CommitReceipt:
        """What ``commit(messages=…)`` does once it is recorded; see ``ConversationIntake.take_in``."""
        return self._intake.take_in(recorded, now)

    def conversation(
        self,
        session_id: str | None = None,
        *,
        instructions: str = "",
        metadata: Mapping[str, Any] | None = None,
        here: str | None = None,
    ) -> Chat:
        """A conversation with the configured model, which recalls before each answer and remembers after it.

        Args:
            session_id: The session to go on with or to begin; default a new one.
            instructions: Added to the system prompt.
            metadata: What the model is told about the conversation with each message.
            here: As for ``commit``.

        Raises:
            ModelUnavailable: If there is no model that the server itself may call.
            InvalidInput: If the session's name is none.
            ConfigInvalid: If a prompt template cannot be used.
        """
        model, uncounted = self.opened.model_for(self.config.user_space), self.opened.llm
        if model is None or uncounted is None:
            raise no_model(self.config.llm.provider)
        session = session_id or new_session_id()
        log = self.updater.session_uri(session)
        scope = self.projects.scope(None, here)
        stored = self.extractor.sessions.messages(log) if session_id else ()
        seen = [message for message in stored if scope.sees(message.project, private=message.private)]
        return Chat(
            Setting(session, self.config.chat, self.config.llm.deadline_seconds, instructions, metadata, here),
            PromptLibrary(self.config.prompt_dirs),
            Side(self, model) if self.access is Access.READ_WRITE else None,
            Side(self.view(access=Access.PRIVATE), uncounted),
            exchanges([(message.role, message.text) for message in seen]),
        )

    def extraction(self, recorded: CommitReceipt) -> Generator[LLMRequest, Completion, CommitReceipt]:
        """The update loop over the receipt of ``commit(messages=…, extract=False)``; see ``ConversationIntake``."""
        return counted(self._intake.extraction(recorded), self.store.usage.asked, self.config.user_space)

    def working_memory(self, session_id: str) -> WorkingMemory:
        """Open tasks and a summary of a stored conversation: what its context keeps when it is compressed.

        Raises:
            InvalidInput: If the session's name is none.
        """
        return self._intake.working_memory(self.updater.session_uri(session_id))

    def extract_waiting(self, session_id: str | None = None) -> Iterator[CommitReceipt]:
        """Extract what waits with the configured model; see ``ConversationIntake.extract_waiting``."""
        self.expect_writable()
        return self._intake.extract_waiting(session_id)
