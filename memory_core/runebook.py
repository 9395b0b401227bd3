"""The facade of a store, and ``open_memory``.

A ``Runebook`` is one open store as one user and agent see it. It is composed of parts: commits, search, browser,
context, extractor. Each operation takes one request and returns one result; what features add is asked for by ``run``.
It is safe to use from many threads, and several may be open on the same folder in several processes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from memory_core.core.caches import reading_once
from memory_core.core.caller import Access, current_author
from memory_core.core.config import Config
from memory_core.core.errors import AccessDenied, InvalidInput, InvalidUri, NotFound, RunebookError
from memory_core.core.index.follower import FOLLOW_SECONDS
from memory_core.core.index.indexer import healed
from memory_core.core.memory.project import ProjectAssignment, ProjectChoice, ProjectScope
from memory_core.core.memory.results import (
    Action,
    CommitReceipt,
    Listings,
    ReadResult,
    Status,
    merge_listings,
    merge_results,
)
from memory_core.core.memory.uri import ABSTRACT_NAME, OVERVIEW_NAME, SCHEME, MemoryUri, Scope
from memory_core.core.progress import tell
from memory_core.core.search.browse import Browser
from memory_core.core.store.usage import Recall
from memory_core.features import FEATURES
from memory_core.open_store import OpenedStore, load_registry, open_store

if TYPE_CHECKING:  # the parts import what they need when they are first used
    from memory_core.core.command import Command
    from memory_core.core.commit.append import MessageRecorder
    from memory_core.core.commit.commits import Commits
    from memory_core.core.commit.working_copy import PlanContext
    from memory_core.core.extract.extractor import Extractor
    from memory_core.core.extract.intake import ConversationIntake
    from memory_core.core.extract.trigger import ExtractionTrigger
    from memory_core.core.extract.working_memory import WorkingMemory
    from memory_core.core.feature import Features
    from memory_core.core.index.follower import Behind
    from memory_core.core.llm.client import Completion, LLMClient, LLMRequest
    from memory_core.core.memory.requests import (
        CommitRequest,
        FindRequest,
        ListRequest,
        ReadRequest,
        RetrieveRequest,
        TreeRequest,
    )
    from memory_core.core.memory.results import ContextPack, FileChange, FindResult
    from memory_core.core.search.context import ContextEngine, Fit
    from memory_core.core.search.context_sources import PieceReader
    from memory_core.core.search.find import Retriever
    from memory_core.core.search.memory_list import EntryFilter, EntryPage, MemoryList
    from memory_core.core.search.passages import Excerpt
    from memory_core.core.search.recalls import Recalls
    from memory_core.core.store.delivery import Step
    from memory_core.core.store.issued_tokens import SharedSpace

_log = logging.getLogger(__name__)
_REQUEST_ID_CHARS = 256
#: New memories of one commit whose neighbours the receipt names.
_COMPARED = 8
_ANY_PROJECT = ProjectScope()
_OF_SPACES = (Scope.USER, Scope.AGENT, Scope.SESSION)
_OF_FILES = tuple(f"{SCHEME}{scope}" for scope in Scope)

Q = TypeVar("Q")
A = TypeVar("A")
T = TypeVar("T")
L = TypeVar("L", bound="ListRequest")


def open_memory(
    config: Config | None = None,
    *,
    step: Step = lambda _name: None,
    llm: LLMClient | None = None,
    features: Features = FEATURES,
) -> Runebook:
    """Open (or create) the store that ``config`` names.

    Args:
        config: Settings; default: all defaults.
        step: Observes the steps of each commit, for crash tests.
        llm: The language model to use instead of the one that ``config`` names.
        features: What the store can beside committing, finding and reading.

    Raises:
        StorageFailed: If the folder cannot be used.
        ConfigInvalid: If a setting cannot be followed.
    """
    config = config or Config()
    registry = load_registry(config)
    for problem in registry.problems if config.schema_dirs else ():
        _log.warning("%s", problem)
    opened = open_store(config, registry, features, step, llm)
    memory = Runebook(config, opened, features=features, owner=True)
    if config.prompt_dirs:
        try:
            _ = memory.extractor  # what is wrong with a template is said now
        except BaseException:
            memory.close()
            raise
    return memory


class Runebook:
    """One open store for one user and agent; use as a context manager or call ``close``.

    Args:
        config: Settings; they name the spaces that are seen.
        opened: The folder.
        access: How far the view goes; default what ``config`` says.
        shared: Spaces that are seen beside the own ones.
        home: Of a view of a shared space: that of the user who sees it.
        features: What is asked for by ``run``.
        owner: Whether closing this view closes the folder.
    """

    def __init__(
        self,
        config: Config,
        opened: OpenedStore,
        access: Access | None = None,
        *,
        features: Features = FEATURES,
        owner: bool = False,
        shared: Sequence[SharedSpace] = (),
        home: Runebook | None = None,
    ) -> None:
        self.config = config
        self.opened = opened = opened.of(config.user_space)
        self.features = features
        self._owner = owner
        self.registry = opened.registry
        self.store = opened.store
        self.indexer = opened.indexer
        self.access = access or (Access.PRIVATE if config.private_mode else Access.READ_WRITE)
        self.spaces = (f"user/{config.user_space}", f"agent/{config.agent_space}", f"session/{config.user_space}")
        self.shared = tuple(shared)
        self.home = home
        self.projects = ProjectChoice(config.project)
        self._parts: dict[Any, Any] = {}
        self._parts_guard = threading.RLock()

    @property
    def user_space(self) -> str:
        """The own space of who sees this view, of a shared space, too."""
        return (self.home or self).config.user_space

    @cached_property
    def shared_views(self) -> Mapping[str, Runebook]:
        """What is seen beside the own spaces: a view of each shared space, by its name."""
        found: dict[str, Runebook] = {}
        for space in self.shared:
            if space.name == self.config.user_space:
                continue
            may_write = self.access is not Access.READ_WRITE or not space.read_only
            config = self.config.with_spaces(space.name, space.name)
            access = self.access if may_write else Access.READ_ONLY
            found[space.name] = Runebook(config, self.opened, access, features=self.features, home=self)
        return found

    def space(self, name: str) -> Runebook:
        """The view of a space by its name: the own one, or a shared one.

        Raises:
            NotFound: If it is neither.
        """
        if name == self.config.user_space:
            return self
        if name not in self.shared_views:
            known = ", ".join((self.config.user_space, *self.shared_views))
            raise NotFound(f"you see no space {name!r}.", hint=f"There are: {known}.")
        return self.shared_views[name]

    def at(self, uri: str) -> Runebook:
        """The view that an address belongs to: that of the shared space it names, else this one."""
        names = uri.removeprefix(SCHEME).split("/", 4)
        at = next((at for at, name in enumerate(names[:3]) if name in _OF_SPACES), 3)  # the archive, its history
        space = names[at + 1 : at + 2]
        return self.shared_views.get(space[0], self) if space and self.shared else self

    def destination(self, request: CommitRequest) -> Runebook:
        """The view of the space that a commit changes: as it says, else that of the addresses in its operations.

        Raises:
            InvalidInput: If its operations are about several spaces.
            NotFound: If it names a space that this user does not see.
        """
        if request.space is not None:
            return self.space(request.space)
        found = {id(view): view for view in map(self.at, addresses(request.operations))} if self.shared else {}
        if len(found) > 1:
            raise InvalidInput(
                "one commit changes one space: nothing was stored.", hint="Send a commit for each space."
            )
        return next(iter(found.values()), self)

    @cached_property
    def browser(self) -> Browser:
        """Reads and lists files."""
        return Browser(self.store.files, self.indexer.catalog, self.spaces, self.features)

    @cached_property
    def retriever(self) -> Retriever:
        """Finds memories and messages."""
        from memory_core.core.search.find import Retriever

        return Retriever(self.indexer, self.store.ledger, self.spaces, self.config, self.opened.reranker)

    @cached_property
    def memory_list(self) -> MemoryList:
        """The memories as a list."""
        from memory_core.core.search.memory_list import MemoryList

        decay = self.config.search.decay_lambda
        return MemoryList(self.indexer.catalog, self.store.ledger.usage_table, self.spaces, decay)

    @cached_property
    def commits(self) -> Commits:
        """Commits operations, and what is said outright."""
        from memory_core.core.commit.commits import Commits

        return Commits(self.store, self.registry, self.config, self.features, self.user_space)

    @cached_property
    def recalls(self) -> Recalls:
        """Notes what was found and read."""
        from memory_core.core.search.recalls import Recalls

        traces, shared = self.access.leaves_traces, self.home is not None
        return Recalls(self.config, self.store, self.indexer, self.spaces, self.features, traces=traces, shared=shared)

    @cached_property
    def _context(self) -> ContextEngine:
        from memory_core.core.search.context import ContextEngine

        return ContextEngine(
            self.config,
            self.store.ledger,
            self.registry,
            self.browser,
            self.retriever,
            self.recalls,
            traces=self.access.leaves_traces,
            waiting=self.waiting_line,
            shared={name: view._context for name, view in self.shared_views.items()},
        )

    @cached_property
    def extractor(self) -> Extractor:
        """Makes memories of conversations.

        Raises:
            ConfigInvalid: If a prompt template cannot be used.
        """
        from memory_core.core.extract.brief import BriefWriter
        from memory_core.core.extract.extractor import Extractor, SessionReader
        from memory_core.core.extract.loop import MemoryReActOrchestrator
        from memory_core.core.extract.prompts import PromptLibrary, TypeGuide
        from memory_core.core.extract.store_view import StoreView

        config, registry, store = self.config, self.registry, self.store
        prompts = PromptLibrary(config.prompt_dirs)
        guide = TypeGuide(registry, prompts, config.user_space, config.agent_space)
        orchestrator = MemoryReActOrchestrator(
            prompts,
            guide,
            max_iterations=config.extraction.max_iterations,
            prompt_tokens=config.extraction.prompt_tokens,
            max_tokens=config.llm.max_tokens,
            single_pass=config.extractor == "single_pass",
        )
        return Extractor(
            store,
            self.commits,
            orchestrator,
            BriefWriter(prompts, guide, config.extraction.brief_tokens),
            StoreView(store, registry, self.commits, self.browser, self.retriever, self.indexer.catalog),
            SessionReader(store, self.projects, config.extraction.language, self.features),
        )

    @cached_property
    def trigger(self) -> ExtractionTrigger:
        """Says when a conversation is extracted."""
        from memory_core.core.extract.trigger import ExtractionTrigger

        extractor = self.extractor
        return ExtractionTrigger(self.config.extraction, extractor.queue, extractor.sessions.waiting_exchanges)

    @cached_property
    def recorder(self) -> MessageRecorder:
        """Appends messages to conversations."""
        from memory_core.core.commit.append import MessageRecorder

        return MessageRecorder(
            self.store,
            self.commits,
            self.projects,
            queues=self.config.extractor != "none",
            is_extracted=self.config.llm.provider != "none" or self.opened.llm is not None,
        )

    @cached_property
    def _intake(self) -> ConversationIntake:
        from memory_core.core.extract.intake import ConversationIntake
        from memory_core.core.extract.working_memory import Compactor

        return ConversationIntake(
            self.store,
            self.extractor,
            self.trigger,
            [follow_up(self) for follow_up in self.features.members("follow_up")],
            Compactor(self.store, self.registry, self.commits.context(datetime.now(UTC), "", None)),
            lambda receipt, scope: self.indexed(receipt, scope, compare=True),
            self.model,
            self.config.llm.deadline_seconds,
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
        self,
        user_space: str | None = None,
        agent_space: str | None = None,
        access: Access | None = None,
        shared: Sequence[SharedSpace] = (),
    ) -> Runebook:
        """The same folder as another user or agent sees it, or with less left behind.

        Args:
            user_space: Whose memories; default this view's.
            agent_space: Which agent's; default this view's, and of another user the one of that user's name: what an
                agent learns with one user is not shown to another, unless somebody says so.
            access: How far it goes; default this view's.
            shared: Spaces that it sees beside its own.

        Raises:
            ConfigInvalid: If a space cannot be a folder name.
        """
        user_space = user_space or self.config.user_space
        usual = self.config.agent_space if user_space == self.config.user_space else user_space
        config = self.config.with_spaces(user_space, agent_space or usual)
        return Runebook(config, self.opened, access or self.access, features=self.features, shared=shared)

    def note_user(self) -> None:
        """Let whoever maintains the store know whom a server's or a hook's settings name, unless nothing is kept."""
        if self.access is Access.READ_WRITE:
            self.opened.note_user(self.config.user_space, self.config.agent_space)

    def configured(self, config: Config, access: Access | None = None) -> Runebook:
        """The same folder under other settings; those that name a folder or a model do not count."""
        return Runebook(
            config, self.opened, access or self.access, features=self.features, shared=self.shared, home=self.home
        )

    def model(self) -> LLMClient | None:
        """The language model that is configured, with its calls counted for this user; None for none.

        Raises:
            ModelUnavailable: If the settings name one that cannot be used.
        """
        return self.opened.model_for(self.config.user_space)

    def warm(self) -> None:
        """Begin loading the models."""
        self.opened.warm()

    def part(self, make: Callable[[Runebook], T]) -> T:
        """What a feature keeps while this view is open, made when it is first asked for."""
        with self._parts_guard:
            if make not in self._parts:
                self._parts[make] = make(self)
            found: T = self._parts[make]
            return found

    def after_commit(self, receipt: CommitReceipt, now: datetime) -> None:
        """What features do after a commit of conversations, or of what changed some."""
        for follow in self.features.members("after_commit"):
            follow(self, receipt, now)

    def run(self, command: Command[Q, A], request: Q) -> A:
        """Answer a request to a feature.

        Raises:
            RunebookError: As the command does.
        """
        if command.writes:
            self.expect_writable()
        return command.run(self, request)

    def commit(self, request: CommitRequest) -> CommitReceipt:
        """Store one explicit memory, ready-made operations, or a conversation: exactly one of the three.

        It changes one space: see ``destination``.

        A conversation is stored first. Then the configured model extracts its memories; without one, or if it
        fails, the conversation waits. With ``brief`` the receipt briefs the caller's own model; operations with a
        ``session_id`` are the answer to such a brief. Alone it briefs about a conversation that waits.

        Raises:
            InvalidInput: If none or several are given, or an argument is wrong. Nothing was stored.
            AccessDenied: If this view only reads. Nothing was stored.
            StoreBusy: If another writer held the store too long. Nothing was stored.
            StorageFailed: If the ledger could not be written. Nothing was stored.
        """
        view = self.destination(request)
        receipt = view._commit(request)
        if view.home is None:
            return receipt
        space = view.config.user_space
        notes = (*receipt.notes, f'hand the operations in with space="{space}"') if receipt.brief else receipt.notes
        return replace(receipt, space=space, author=current_author(), notes=notes)

    def _commit(self, request: CommitRequest) -> CommitReceipt:
        self.expect_writable()
        if request.alone:
            return self._alone(request)
        if request.brief and request.given in (("brief",), ("session_id", "brief")):
            here = self.projects.current(request.here)
            text = self.extractor.brief(request.session_id, project=here, noted=not request.dry_run)
            return CommitReceipt("", Status.UNCHANGED, brief=text)
        _check_commit(request)
        request_id = self.request_key(request.request_id)
        assignment = self.projects.assignment(request.project, request.private, request.here)
        scope = ProjectScope(assignment.project)
        self.opened.wait_for_adoption()
        if request.messages is not None:
            with nullcontext() if self.opened.has_model else reading_once():  # a model may think for minutes
                return self._commit_messages(request, request.messages, request_id, assignment)
        if request.operations is None:
            receipt = self.commits.remember(request, request_id, assignment)
        elif request.expected is not None:
            receipt = self.commits.apply_operations(
                request.operations,
                source_kind="user_explicit",
                request_id=request_id,
                dry_run=request.dry_run,
                now=request.now,
                only_if=request.expected,
                assignment=assignment,
            )
        else:
            receipt = self.extractor.hand_in(
                request.operations,
                session_id=request.session_id,
                request_id=request_id,
                dry_run=request.dry_run,
                now=request.now,
                assignment=assignment,
            )
        return self.indexed(receipt, scope, compare=True)

    def _commit_messages(
        self, request: CommitRequest, messages: Sequence[Any], request_id: str | None, assignment: ProjectAssignment
    ) -> CommitReceipt:
        with self.opened.by_turns(messages, self.user_space, self.config.user_space):
            receipt = self.recorder.record(
                messages,
                session_id=request.session_id,
                request_id=request_id,
                dry_run=request.dry_run,
                now=request.now,
                assignment=assignment,
            )
        tell("the conversation was read; nothing is stored" if request.dry_run else "the conversation is stored")
        receipt = self.indexed(receipt, ProjectScope(assignment.project), compare=True)
        self.after_commit(receipt, request.now or datetime.now(UTC))
        if request.dry_run or not request.extract:
            return receipt
        return self.take_in(receipt, request.now, brief=bool(request.brief))

    def _alone(self, request: CommitRequest) -> CommitReceipt:
        """What a feature makes of an argument that stands alone."""
        name, *others = request.given
        if others:
            raise InvalidInput(
                f"{name} stands alone, not beside {', '.join(others)}: nothing was done.",
                hint=f"Send {name} in a call of its own, then the rest.",
            )
        receipt: CommitReceipt = self.features.answer(self, request, name, request.alone[name])
        return receipt

    def preview(self, operations: Mapping[str, Any], here: str | None = None) -> tuple[FileChange, ...]:
        """The files as explicit operations would leave them now; nothing is stored.

        Raises:
            InvalidInput: If there is nothing to do, or the whole is too large.
        """
        found: list[FileChange] = []
        self.commits.apply_operations(
            operations,
            source_kind="user_explicit",
            dry_run=True,
            assignment=self.projects.assignment(None, None, here),
            watch=lambda planned: found.extend(planned.changes),
        )
        return tuple(found)

    def waiting_line(self, session_id: str | None = None) -> str | None:
        """What a client is told of conversations that nothing makes memories of, at most once a day; see ``trigger``.

        Args:
            session_id: The session at hand, which does not count.
        """
        if not self.access.leaves_traces or self.config.extractor == "none" or self.opened.has_model:
            return None
        from memory_core.core.extract.trigger import waiting_line

        ledger, space = self.store.ledger, self.config.user_space
        rows = ledger.extractions.waiting(MemoryUri((Scope.SESSION.value, space)))
        others = [row for row in rows if row.session_id != session_id]
        line = waiting_line(others, self.config.llm.provider, datetime.now(UTC))
        try:
            return line if line and ledger.model_calls.counted_today(f"waiting told {space}", 1) else None
        except RunebookError as error:
            _log.info("not told what waits: %s", error.message)
            return None

    def take_in(self, recorded: CommitReceipt, now: datetime | None = None, *, brief: bool = False) -> CommitReceipt:
        """What ``commit`` does with a conversation once it is recorded; see ``ConversationIntake.take_in``."""
        return self._intake.take_in(recorded, now, brief=brief)

    def extraction(self, recorded: CommitReceipt) -> Generator[LLMRequest, Completion, CommitReceipt]:
        """The update loop over the receipt of a conversation that was only stored; see ``ConversationIntake``."""
        from memory_core.core.extract.extractor import counted

        return counted(self._intake.extraction(recorded), self.store.usage.asked, self.config.user_space)

    def working_memory(self, session_id: str) -> WorkingMemory:
        """Open tasks and a summary of a stored conversation: what its context keeps when it is compressed.

        Raises:
            InvalidInput: If the session's name is none.
        """
        return self._intake.compactor.kept(self.commits.session_uri(session_id))

    def extract_waiting(self, session_id: str | None = None) -> Iterator[CommitReceipt]:
        """Extract what waits with the configured model; see ``ConversationIntake.extract_waiting``."""
        self.expect_writable()
        return self._intake.extract_waiting(session_id)

    def extract_ended(self, sessions: Collection[str] = ()) -> Iterator[CommitReceipt]:
        """Extract what has ended, or is due, while nobody waits; see ``ConversationIntake.extract_ended``."""
        self.expect_writable()
        return self._intake.extract_ended(sessions)

    def find(self, request: FindRequest) -> FindResult:
        """Memories and conversation turns that answer a question, best first; see ``Retriever.find``.

        Those of shared spaces are among them, unless ``target_uri`` names one space.

        Raises:
            InvalidInput: If an argument is wrong.
        """
        views = self._views_below(request.target_uri)
        return merge_results([view._find(request) for view in views], request.limit)

    @healed
    def _find(self, request: FindRequest) -> FindResult:
        complete = self.opened.look()
        if request.target_uri:
            self.browser.visible(MemoryUri.parse(request.target_uri))
        scope = self.projects.scope(request.project, request.here)
        started = time.perf_counter()
        found = self.retriever.find(request, scope)
        if self.store.adoption.renew(hit.uri for hit in found.hits):  # a person saved one of them a moment ago
            found = self.retriever.find(request, scope)
        self.recalls.note(
            Recall(
                request.now or datetime.now(UTC),
                request.query,
                "find",
                tuple((hit.uri, hit.score) for hit in found.hits),
                1_000 * (time.perf_counter() - started),
                found.cached,
                request.rank or "",
                project=scope.current,
            )
        )
        found = self._signed(found)
        if complete:
            return found
        note = "files changed by hand are still being read; ask again in a moment"
        return replace(found, notes=(*found.notes, note))

    def _views_below(self, uri: str) -> list[Runebook]:
        """The views of the spaces that are at or below an address."""
        names = uri.removeprefix(SCHEME).rstrip("/").split("/")
        names = names[1:] if names[0] == Scope.ARCHIVE else names
        return [self, *self.shared_views.values()] if len(names) < 2 else [self.at(uri)]

    def _signed(self, found: FindResult) -> FindResult:
        """What was found in a shared space, with its name and who wrote it."""
        if self.home is None or not found.total:
            return found
        space = self.config.user_space
        authors = self.store.ledger.past.authors([hit.uri for hit in found.hits])
        signed: dict[str, Any] = {
            name: tuple(replace(hit, space=space, author=authors.get(hit.uri)) for hit in getattr(found, name))
            for name in ("memories", "resources", "skills")
        }
        return replace(found, **signed)

    def passages(self, question: str, uris: Collection[str], most_chars: int) -> dict[str, Excerpt]:
        """What of found items bears on a question, by URI; see ``passages.excerpt_of``.

        Args:
            question: That found them.
            uris: Of hits; what is no longer indexed is left out.
            most_chars: Of each, about.
        """
        from memory_core.core.search.passages import excerpt_of, words_sought

        sought = words_sought(question)
        texts: dict[str, str] = {}
        for view in (self, *self.shared_views.values()):
            texts |= view.indexer.catalog.own_texts([uri for uri in uris if self.at(uri) is view])
        return {uri: excerpt_of(text, sought, most_chars) for uri, text in texts.items() if text.strip()}

    def read(self, request: ReadRequest) -> ReadResult:
        """Lines of one file, see ``Browser.read``, or of a page that a feature adds, such as history."""
        if (other := self.at(request.uri)) is not self:
            return other.read(request)
        view = self._view_at(request.uri)
        if view is not None:
            found: ReadResult = view.read(self, request)
            return found
        if request.uri.endswith((ABSTRACT_NAME, OVERVIEW_NAME)):
            self.opened.current_pages(self.spaces, MemoryUri.parse(request.uri).parent)
        page = self.browser.read(request.uri, request.offset, request.limit, request.limit_chars)
        if request.offset or page.uri.endswith("/"):
            return page
        self.recalls.note_read(page.uri)
        links = self.browser.seen_from(self.projects.current(request.here)).linked(MemoryUri.parse(page.uri))
        author = None if self.home is None else self.store.ledger.past.authors([page.uri]).get(page.uri)
        return replace(page, links=links, author=author)

    def ls(self, request: ListRequest) -> Listings:
        """Entries of one directory; see ``Browser.ls``. What is private to other projects has no line.

        Above the spaces those of all that are seen are listed.
        """
        return self._listed(request, Runebook._ls)

    @healed
    def _ls(self, request: ListRequest) -> Listings:
        listings = self._browsing(request).ls(request)
        if MemoryUri.parse(request.uri).parts:
            return listings
        shown = request.abs_limit if request.output == "agent" else None
        pages = (entry for page in self.features.members("pages") for entry in page.listing(self, shown))
        return replace(listings, entries=(*listings.entries, *pages))

    def tree(self, request: TreeRequest) -> Listings:
        """Everything below a directory; see ``Browser.tree`` and ``ls``."""
        return self._listed(request, Runebook._tree)

    def _listed(self, request: L, listing: Callable[[Runebook, L], Listings]) -> Listings:
        """The listings of all spaces at or below the address of a request, as one."""
        found: list[Listings] = []
        absent: NotFound | None = None
        for view in self._views_below(request.uri):
            try:
                found.append(listing(view, request))
            except NotFound as error:  # it is in another of the spaces
                absent = absent or error
        if not found and absent is not None:
            raise absent
        return merge_listings(found, request.node_limit)

    @healed
    def _tree(self, request: TreeRequest) -> Listings:
        return self._browsing(request).tree(request)

    def _view_at(self, uri: str) -> Any:
        """The page that a feature adds there; None where files are."""
        views = () if uri.startswith(_OF_FILES) else self.features.members("pages")
        return next((view for view in views if view.holds(uri)), None)

    def _browsing(self, request: ListRequest) -> Browser:
        """What lists the directory of a request, which is no page, as it is now."""
        self.opened.look()
        self.opened.current_pages(self.spaces)
        if self._view_at(request.uri) is not None:
            raise InvalidUri(f"{request.uri!r} is a page, not a directory.", hint=f'Read it: read("{request.uri}").')
        return self.browser.seen_from(self.projects.current(request.here))

    @healed
    def entries(self, wanted: EntryFilter, now: datetime | None = None) -> EntryPage:
        """The memories as a list, page by page; see ``MemoryList.entries``."""
        self.opened.look()
        self.follow_index()
        return self.memory_list.entries(wanted, now)

    @healed
    def retrieve(self, request: RetrieveRequest, fit: Fit = lambda _pack, _budget: None) -> ContextPack:
        """Context for an agent's next step, inside a token budget; see ``search.context`` for its parts.

        Memories of shared spaces are recalled, and their rules hold; conversations are the user's own.

        Args:
            request: What it is for.
            fit: Asked of each pack; answers with a smaller budget until the pack can be delivered.

        Raises:
            InvalidInput: If an argument is wrong.
        """
        self.opened.adopted.wait(self.config.embedding.wait_seconds)
        self.opened.look()
        self.opened.current_pages(self.spaces)
        return self._context.retrieve(request, self.projects.scope(request.project, request.here), fit)

    @healed
    def with_skill_memory(self, path: str, text: str, here: str | None = None) -> str:
        """``text`` as read from ``path``; a skill's ``SKILL.md`` gets what is remembered of that skill below it."""
        from memory_core.core.search.context_sources import with_skill_memory

        self.opened.wait_for_adoption()
        return with_skill_memory(self._pieces(here), path, text)

    @healed
    def skill_memory(self, name: str, here: str | None = None) -> str:
        """What is remembered of a skill, as a block of data; empty for nothing."""
        from memory_core.core.search.context_sources import skill_block

        self.opened.wait_for_adoption()
        return skill_block(self._pieces(here), name)

    def _pieces(self, here: str | None) -> PieceReader:
        from memory_core.core.search.context_sources import PieceReader, Spaces

        spaces = Spaces(self.config.user_space, self.config.agent_space)
        return PieceReader(self.browser, self.store.ledger, self.registry, spaces, self.projects.scope(None, here))

    def plan_context(self, moment: datetime) -> PlanContext:
        """What a plan of an explicit commit at a moment is told."""
        return self.commits.context(moment, "user_explicit", None)

    def request_key(self, request_id: str | None) -> str | None:
        """A request's name in the ledger: another user's is another request.

        Raises:
            InvalidInput: If it cannot be kept.
        """
        if request_id is None:
            return None
        if not (request_id.isprintable() and 0 < len(request_id) <= _REQUEST_ID_CHARS):
            raise InvalidInput(
                "request_id cannot be kept.", hint=f"Use 1 to {_REQUEST_ID_CHARS} characters, a UUID for example."
            )
        of = self.config.user_space if self.home is None else f"{self.config.user_space}\n{self.home.config.user_space}"
        return f"{of}/{request_id}"

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

    def follow_index(self, wait_seconds: float = FOLLOW_SECONDS) -> Behind | None:
        """Have the index take what it lacks of this view's spaces; see ``Indexer.follow``."""
        return self.indexer.follow(wait_seconds, spaces=self.spaces)

    def indexed(
        self, receipt: CommitReceipt, project: ProjectScope = _ANY_PROJECT, *, compare: bool = False
    ) -> CommitReceipt:
        """The receipt with near neighbours of what is new; the index follows, at the latest before a search."""
        if not receipt.changed_uris or not receipt.commit_id:
            return receipt
        try:
            created = [result.uri for result in receipt.results if compare and result.action is Action.CREATED]
            similar = self.indexer.answer(lambda: self.retriever.similar(created[:_COMPARED], project))
        except RunebookError as error:
            _log.warning("committed, but not indexed yet: %s", error.message)
            return receipt
        self.indexer.wake()
        if not similar:
            return receipt
        receipt = replace(receipt, similar=similar)
        self.store.finish(receipt)
        return receipt


def _check_commit(request: CommitRequest) -> None:
    """Refuse a commit that is not one thing.

    Raises:
        InvalidInput: If it is not.
    """
    explicit = request.memory_content is not None or request.fields is not None
    if (explicit, request.messages is not None, request.operations is not None).count(True) != 1:
        raise InvalidInput(
            "a commit takes exactly one of: memory_content (or fields), messages, operations.",
            hint='For a single memory send {"memory_content": "…"}.',
        )
    if not explicit and request.metadata:
        raise InvalidInput(
            f"{' and '.join(request.metadata)} go with memory_content.",
            hint="In operations each memory_data and edit operation takes its own.",
        )
    if request.brief and request.messages is None:
        raise InvalidInput(
            "brief goes with messages, or stands alone.",
            hint="Store first, then ask for the brief: commit_memory(brief=true), with a session_id if one is meant.",
        )
    answers = request.operations is not None and request.session_id is not None
    if request.expected is not None and (request.messages is not None or answers):
        raise InvalidInput("expected goes with one memory, or operations without a session.", hint="Leave it out.")


def addresses(operations: Any) -> Iterator[str]:
    """The addresses that operations name, as far as they are well-formed."""
    from memory_core.core.memory.operations import GROUPS

    for group in GROUPS:
        items = operations.get(group) if isinstance(operations, Mapping) else getattr(operations, group, None)
        for item in items if isinstance(items, list) else ():
            given = item if isinstance(item, Mapping) else getattr(item, "__dict__", {})
            found = [given.get(name) for name in ("uri", "replacement_uri", "directory_uri")]
            yield from (uri for uri in found if isinstance(uri, str) and uri)
