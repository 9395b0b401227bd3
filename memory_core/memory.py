"""The Memory facade and ``open_memory``: reading from ``reading``, and all that writes, the update loop by ``wiring``.

A ``Memory`` is one open store for one user and agent space. It is safe to use from many threads, and several
may be open on the same folder in several processes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from memory_core.config import Config
from memory_core.errors import AccessDenied, InvalidInput, RunebookError
from memory_core.index.following import Behind
from memory_core.lifecycle.compaction import Compactor
from memory_core.lifecycle.doctor import doctor
from memory_core.lifecycle.doctor.findings import Report
from memory_core.lifecycle.doctor.rebuild import Rebuilt, rebuild_index
from memory_core.lifecycle.history.forget import Forgetter
from memory_core.lifecycle.history.history import LAST
from memory_core.lifecycle.history.purge import Doomed, Purger
from memory_core.lifecycle.history.undo import Undoer
from memory_core.lifecycle.intake import ConversationIntake
from memory_core.lifecycle.migrate import Migration, migrate
from memory_core.llm.client import Completion, LLMClient, LLMRequest
from memory_core.model.access import Access
from memory_core.model.changes import Action, CommitReceipt
from memory_core.model.hits import FindResult
from memory_core.model.project import ProjectScope
from memory_core.model.uri import MemoryUri
from memory_core.opened import OpenedStore
from memory_core.reading import ADOPTION_SECONDS, MemoryReader
from memory_core.storage.store import Step
from memory_core.update.bounds import Context
from memory_core.update.recorder import MessageRecorder
from memory_core.update.soundness import is_sound
from memory_core.update.updater import MemoryUpdater
from memory_core.wiring import build_extractor, load_registry

_log = logging.getLogger(__name__)
_REQUEST_ID_CHARS = 256
#: New memories of one commit whose neighbours the receipt names.
_COMPARED = 8


def open_memory(
    config: Config | None = None, *, step: Step = lambda _name: None, llm: LLMClient | None = None
) -> Memory:
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
    return Memory(config, OpenedStore(config, registry, step=step, llm=llm), owner=True)


class Memory(MemoryReader):
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
        self.updater = MemoryUpdater(self.store, registry, config)
        self.recorder = MessageRecorder(
            self.store,
            registry,
            self.updater,
            self.projects,
            queues=config.extractor != "none",
            keeps_corrections=config.llm.provider == "none" and opened.llm is None,
        )
        self.extractor = build_extractor(
            config, registry, self.store, self.updater, self.browser, self.retriever, self.indexer.catalog
        )
        scope = self.updater.context(datetime.now(UTC), "", None)
        self._undoer = Undoer(self.store, self.history, self._moment)
        self._intake = ConversationIntake(
            self.store,
            self.extractor,
            Compactor(self.store, registry, scope),
            self._indexed,
            lambda: opened.llm,
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
        if self._owner:
            self.opened.close()

    def view(
        self, user_space: str | None = None, agent_space: str | None = None, access: Access | None = None
    ) -> Memory:
        """The same folder as another user or agent sees it, or with less left behind.

        Args:
            user_space: Whose memories; default this view's.
            agent_space: Which agent's; default this view's.
            access: How far it goes; default this view's.

        Raises:
            ConfigInvalid: If a space cannot be a folder name.
        """
        config = self.config.with_spaces(user_space or self.config.user_space, agent_space or self.config.agent_space)
        return Memory(config, self.opened, access or self.access)

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
        messages: Sequence[Any] | None = None,
        session_id: str | None = None,
        operations: Mapping[str, Any] | None = None,
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
            messages: A conversation; see ``model.message_shapes``.
            session_id: Session that messages or knowledge belong to.
            operations: MemoryOperations as JSON.
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
        self._writable()
        belonging = self.projects.belonging(project, private, here)
        scope = ProjectScope(belonging.project)
        self.opened.adopted.wait(ADOPTION_SECONDS)
        if messages is not None:
            receipt = self.recorder.record(
                messages, session_id=session_id, request_id=request_id, dry_run=dry_run, now=now, belonging=belonging
            )
            receipt = self._indexed(receipt, scope)
            return self._intake.take_in(receipt) if extract and not dry_run else receipt
        if operations is not None:
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
                session_id=session_id,
                request_id=request_id,
                dry_run=dry_run,
                now=now,
                belonging=belonging,
            )
        return self._indexed(receipt, scope)

    def extraction(self, recorded: CommitReceipt) -> Generator[LLMRequest, Completion, CommitReceipt]:
        """The update loop over the receipt of ``commit(messages=…, extract=False)``; see ``ConversationIntake``."""
        return self._intake.extraction(recorded)

    def extract_waiting(self, session_id: str | None = None) -> Iterator[CommitReceipt]:
        """Extract what waits with the configured model; see ``ConversationIntake.extract_waiting``."""
        self._writable()
        return self._intake.extract_waiting(session_id)

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
        self._writable()
        self.opened.adopted.wait(ADOPTION_SECONDS)
        request_id = self._request(request_id)
        receipt = self._undoer.undo(commit_id, author=author, request_id=request_id, dry_run=dry_run, now=now)
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
        self._writable()
        scope = self.projects.scope(project, here)

        def search(query: str, target_uri: str, limit: int, filter: Mapping[str, Any] | None) -> FindResult:
            if target_uri:
                self.browser.visible(MemoryUri.parse(target_uri))
            return self.retriever.find(query, target_uri, limit, filter=filter, project=scope)

        forgetter = Forgetter(self.store, self.browser, search, self._moment)
        request_id = self._request(request_id)
        receipt = forgetter.forget(request, request_id=request_id, dry_run=dry_run, now=now)
        return self._indexed(receipt, scope, compare=False)

    def purge(self, uri: str | None = None, *, commit_id: str | None = None) -> CommitReceipt:
        """Erase a file and all its versions, or what one commit brought, for good; see ``Purger``.

        Raises:
            InvalidInput: If not exactly one of the two is given.
        """
        self._writable()
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

    def migrate(self, *, dry_run: bool = False) -> Migration:
        """Give the files of an older store semantic names and our trailer; see ``lifecycle.migrate``."""
        self._writable()
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
        self._writable()
        return doctor.repair(self.config, self.registry)

    def rebuild(self, *, reembed: bool = False, report: Callable[[Behind], None] = lambda _behind: None) -> Rebuilt:
        """Build the index anew from ledger and files; see ``lifecycle.rebuild``. Vectors follow in the background."""
        self._writable()
        rebuilt = rebuild_index(self.store, self.registry, reembed=reembed, report=report)
        self.indexer.wake()
        return rebuilt

    def _writable(self) -> None:
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
