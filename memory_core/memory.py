"""The Memory facade and ``open_memory``: what comes in; the rest from ``reading`` and ``keeping``.

A ``Memory`` is one open store for one user and agent space. It is safe to use from many threads, and several
may be open on the same folder in several processes.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from memory_core.config import Config
from memory_core.errors import InvalidInput
from memory_core.keeping import MemoryKeeper
from memory_core.lifecycle.chat import Chat, Setting, Side, exchanges, new_session_id, no_model
from memory_core.lifecycle.compaction import Compactor
from memory_core.lifecycle.counted_model import counted
from memory_core.lifecycle.intake import ConversationIntake
from memory_core.llm.client import Completion, LLMClient, LLMRequest
from memory_core.model.access import Access
from memory_core.model.changes import CommitReceipt, FileChange
from memory_core.model.project import ProjectScope
from memory_core.model.waiting import tell
from memory_core.opened import OpenedStore
from memory_core.react.prompts import PromptLibrary
from memory_core.reading import ADOPTION_SECONDS
from memory_core.storage.store import Step
from memory_core.update.recorder import MessageRecorder
from memory_core.update.working_memory import WorkingMemory
from memory_core.wiring import load_registry

_log = logging.getLogger(__name__)


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


class Memory(MemoryKeeper):
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
