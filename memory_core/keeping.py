"""The keeping half of an open store: taking back, forgetting, maintenance, and setting right what is damaged.

Everything here works on what is stored already; what comes in is ``memory``'s.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from memory_core.config import Config, is_space
from memory_core.errors import AccessDenied, InvalidInput, RunebookError
from memory_core.index.following import Behind
from memory_core.lifecycle.doctor import doctor
from memory_core.lifecycle.doctor.findings import Report
from memory_core.lifecycle.doctor.rebuild import Rebuilt, rebuild_index
from memory_core.lifecycle.history.forget import Forgetter
from memory_core.lifecycle.history.history import LAST
from memory_core.lifecycle.history.purge import Doomed, Purger
from memory_core.lifecycle.history.undo import Undoer
from memory_core.lifecycle.maintenance.automatic import AutomaticMaintenance
from memory_core.lifecycle.maintenance.maintainer import Done
from memory_core.lifecycle.maintenance.rolling import removal
from memory_core.lifecycle.maintenance.shelf import Archived, Shelf
from memory_core.lifecycle.maintenance.summaries import SummaryWriter
from memory_core.lifecycle.maintenance.upkeep import Upkeep
from memory_core.lifecycle.migrate import Migration, migrate
from memory_core.lifecycle.review import Reviewer
from memory_core.lifecycle.tiers.tiers import build_tiers
from memory_core.llm.client import LLMClient
from memory_core.model.access import Access
from memory_core.model.changes import Action, ChangeSet, CommitReceipt, OperationResult
from memory_core.model.hits import FindResult
from memory_core.model.project import ProjectScope
from memory_core.model.rolling_summary import RollingSummary, read_rolling_summary, rolling_summary_uri
from memory_core.model.uri import MemoryUri, Scope
from memory_core.opened import OpenedStore
from memory_core.reading import ADOPTION_SECONDS, MemoryReader
from memory_core.storage.store import Snapshot
from memory_core.update.bounds import Context
from memory_core.update.soundness import is_sound
from memory_core.update.updater import MemoryUpdater
from memory_core.wiring import build_extractor, build_maintainer

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

    def _moment(self, moment: datetime) -> Context:
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
