"""What ``open_memory`` puts together: the registry of types, the update loop over one store, and its maintenance."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from memory_core.core.background import Background
from memory_core.core.commit.directory_pages import DirectoryPages
from memory_core.core.config import is_space
from memory_core.core.errors import RunebookError
from memory_core.core.index.catalog import Catalog
from memory_core.core.index.encoder import open_embedder, open_reranker
from memory_core.core.index.follower import FOLLOW_SECONDS
from memory_core.core.index.indexer import Indexer
from memory_core.core.index.vectors import open_vectors
from memory_core.core.memory.memory import file_problems, identify
from memory_core.core.memory.memory_type import MemoryTypeRegistry, builtin_schema_dir
from memory_core.core.memory.uri import MemoryUri, Scope, space_of
from memory_core.core.store.files import ASIDE_NAME, INDEX_NAME
from memory_core.core.store.local import FolderMark, Store, large_turn
from memory_core.core.store.users import SeenUsers, UserSpaces, users_of

if TYPE_CHECKING:
    from memory_core.core.config import Config
    from memory_core.core.feature import Features
    from memory_core.core.llm.client import LLMClient
    from memory_core.core.store.delivery import Step
    from memory_core.core.store.issued_tokens import IssuedTokens
    from memory_core.core.store.local import UpkeepMark

_log = logging.getLogger(__name__)
#: A search does not wait longer for files that people changed before the start, or since; what they hold may be missing
#: from its first answer, which says so.
_ADOPTION_SECONDS = 2.0
_FIRST_LOOK_SECONDS = 0.3
_GLANCE_SECONDS = 0.2
#: What was committed last is indexed before the end, so that the next process finds it at once.
_CLOSING_SECONDS = 0.3
#: Who reads makes pages for so long; those of many thousand directories that came at once are left to the background.
_PAGES_SECONDS = 2.0
#: So many messages, or characters of them, take half a second and more to be stored and indexed.
_LONG_MESSAGES = 500
_LONG_CHARS = 200_000


class OpenedStore:
    """The parts that every view of one folder shares.

    Args:
        config: Settings; those that name a user or an agent do not matter here.
        registry: The memory types.
        features: What it can beside committing, finding and reading.
        step: Observes the steps of each commit, for crash tests.
        llm: The language model to use instead of the one that ``config`` names.

    Raises:
        StorageFailed: If the folder cannot be used.
        ConfigInvalid: If a setting cannot be followed.
    """

    def __init__(
        self, config: Config, registry: MemoryTypeRegistry, features: Features, step: Step, llm: LLMClient | None
    ) -> None:
        self.registry = registry
        self._own = (config.user_space, config.agent_space)
        self.background = self._background()
        self.store, self.indexer = self._parts(config, features, step)
        self.store.adoption.on_adopted = self.indexer.wake
        self.pages = DirectoryPages(self.store, self.indexer.catalog, registry)
        self.indexer.followed = self.pages.bring_up_to_date
        self.indexer.give_way = self.store.give_way
        self.store.make_pages = lambda uri: self.current_pages((space_of(uri),), uri.parent)
        self._watches = config.watch == "auto"
        self.reranker = open_reranker(config.search)
        self._llm_settings = config.llm
        self._llm = llm
        self._llm_given = llm is not None
        self._llm_guard = threading.Lock()
        #: Ends what works in the background; called before anything else is closed.
        self.before_close: list[Callable[[], None]] = []
        self._closed = False
        self.adopted = threading.Event()
        self._adopter = threading.Thread(target=self._adopt, name="runebook-adopt", daemon=True)
        self._adopter.start()

    def of(self, user_space: str) -> OpenedStore:  # noqa: ARG002 - one folder holds all users
        """The parts that views of a user share."""
        return self

    def _background(self) -> Background:
        """Does what requests leave behind."""
        return Background()

    def _parts(self, config: Config, features: Features, step: Step) -> tuple[Store, Indexer]:
        store = Store(
            config.root, partial(identify, self.registry), examine=partial(file_problems, self.registry), step=step
        )
        state = store.files.state
        try:
            vectors, embedder = open_vectors(config.index, state), open_embedder(config.embedding)
            catalog = Catalog(state / INDEX_NAME)
        except BaseException:
            store.close()
            raise
        return store, Indexer(store.ledger, catalog, self.registry, embedder, vectors, features)

    def users(self) -> list[UserSpaces]:
        """The users of the store and the agent spaces of each, that of the settings first; see ``users_of``.

        Raises:
            StoreBusy: If the store could not be asked.
        """
        return self._users()

    def agent_spaces(self, user_space: str, agent_space: str) -> tuple[str, ...]:
        """The agent spaces of a user, as ``users`` has them.

        Args:
            user_space: Whose.
            agent_space: The one by which the user is seen now; of a user who has tokens it may be somebody else's.

        Raises:
            StoreBusy: If the store could not be asked.
        """
        return dict(self._users((user_space, agent_space)))[user_space]

    def note_user(self, user_space: str, agent_space: str) -> None:
        """Let whoever maintains the store know soon that a server's settings name both; they are noted once a day."""
        if not self._seen.seen_today(user_space, agent_space, by_settings=True):
            self.background.later(partial(self._note_user, user_space, agent_space))

    @cached_property
    def _seen(self) -> SeenUsers:
        return SeenUsers(self.tokens().database)

    def _note_user(self, user_space: str, agent_space: str) -> None:
        with suppress(RunebookError):  # whoever comes again is noted again
            self._seen.note(user_space, agent_space, by_settings=True)

    def _users(self, *others: tuple[str, str]) -> list[UserSpaces]:
        now = datetime.now(UTC)
        live = [row for row in self.tokens().rows() if row.is_live(now)]
        return users_of((self._own, *others), live, self._seen.rows(), self._user_spaces(), now)

    def _user_spaces(self) -> list[str]:
        """User spaces that hold something."""
        files, found = self.store.files, list[str]()
        for scope in (Scope.USER, Scope.SESSION):
            place = MemoryUri((scope.value,))
            found += [entry.uri.name for entry in files.entries(place) if entry.is_dir] if files.is_dir(place) else []
        return [name for name in dict.fromkeys(found) if is_space(name)]

    def tokens(self) -> IssuedTokens:
        """The token table of the store."""
        return self.store.ledger.tokens

    def upkeep_mark(self) -> UpkeepMark:
        """When it was maintained last, and whose turn it is."""
        return FolderMark(self.store.files.state)

    def close(self) -> None:
        """Finish background work and release everything; safe to call twice."""
        while self.before_close:
            self.before_close.pop()()
        self.background.close()
        if self._llm is not None and hasattr(self._llm, "close"):
            self._llm.close()
        self._adopter.join()
        if not self._closed:
            self._closed = True
            self.current_pages(seconds=_CLOSING_SECONDS)
        self.indexer.close()
        self.store.close()

    def warm(self) -> None:
        """Begin loading the models."""
        self.indexer.warm()
        if self.reranker is not None:
            self.reranker.start()

    def look(self) -> bool:
        """Before a search: take in what people changed, within a bounded time.

        Returns:
            Whether nothing is known to be left.
        """
        return self.adopted.wait(_FIRST_LOOK_SECONDS) and self.store.adoption.take_in_recent(_GLANCE_SECONDS)

    def current_pages(
        self, spaces: Sequence[str] = (), directory: MemoryUri | None = None, *, seconds: float = FOLLOW_SECONDS
    ) -> None:
        """Let index and pages know what was committed until now; where the disk refuses, they stay as they are.

        Args:
            spaces: Only those of these spaces (``scope/space``); none given are all.
            directory: Only the page of this one.
            seconds: Much that is missing is left to others after so long, and who writes pages is waited for so long.
        """
        try:
            self.indexer.follow(seconds, spaces=spaces)
            waits = {"wait_seconds": max(seconds, FOLLOW_SECONDS), "limit_seconds": _PAGES_SECONDS}
            self.indexer.answer(lambda: self.pages.bring_up_to_date(spaces, directory, **waits))
        except RunebookError as error:
            _log.info("pages are made later: %s", error.message)

    @contextmanager
    def by_turns(self, messages: Sequence[Any], user_space: str, space: str) -> Iterator[None]:
        """Long conversations of a user are stored one after the other, each once what was before is indexed.

        Args:
            messages: The conversation.
            user_space: Of the user.
            space: In which it is stored.
        """
        if len(messages) < _LONG_MESSAGES and sum(len(str(message)) for message in messages) < _LONG_CHARS:
            yield
            return
        with large_turn(user_space):
            with suppress(RunebookError):  # the index is nobody's reason not to store
                self.indexer.wait_until_indexed((f"{Scope.SESSION.value}/{space}",))
            yield

    def wait_for_adoption(self) -> None:
        """Give files that people added before the start a moment to be known: a name may be theirs."""
        self.adopted.wait(_ADOPTION_SECONDS)

    def watch(self) -> None:
        """Notice what people do to the files from now on, unless the settings say otherwise."""
        if self._watches:
            self.store.watch()

    @property
    def has_model(self) -> bool:
        """Whether it was opened with a language model, whatever the settings name."""
        return self._llm_given

    @property
    def llm(self) -> LLMClient | None:
        """The language model that extracts memories, or None.

        Raises:
            ModelUnavailable: If the settings name one that cannot be used.
        """
        from memory_core.core.llm.client import open_client

        with self._llm_guard:
            if self._llm is None:
                folder = self.store.files.state / ASIDE_NAME
                calls = self.store.ledger.model_calls
                self._llm = open_client(
                    self._llm_settings, folder, lambda limit: calls.counted_today("commands called", limit)
                )
            return self._llm

    def model_for(self, user_space: str) -> LLMClient | None:
        """The same model with its calls counted for a user, or None.

        Raises:
            ModelUnavailable: If the settings name one that cannot be used.
        """
        from memory_core.core.extract.extractor import CountedModel

        client = self.llm
        return None if client is None else CountedModel(client, self.store.usage.asked, user_space)

    def _adopt(self) -> None:
        """Take in what people changed while nobody was looking."""
        try:
            self.store.adopt()
            self.indexer.wake()
        except RunebookError as error:
            _log.warning("files changed by hand were not taken in yet: %s", error.message)
        finally:
            self.adopted.set()


def open_store(
    config: Config, registry: MemoryTypeRegistry, features: Features, step: Step, llm: LLMClient | None
) -> OpenedStore:
    """Open the folder, or the database, that ``config`` names; see ``OpenedStore``.

    Raises:
        ConfigInvalid: Also if ``store.url`` is set and its packages are missing.
    """
    if not config.store.url:
        return OpenedStore(config, registry, features, step, llm)
    from memory_core.core.postgres import needing_packages

    with needing_packages():
        from memory_core.open_postgres import OpenedSpace
    return OpenedSpace(config, registry, features, step, llm)


def postgres_schema() -> ModuleType:
    """The module that makes databases ready; see ``core.postgres.schema``.

    Raises:
        ConfigInvalid: If its packages are missing.
    """
    from memory_core.core.postgres import needing_packages

    with needing_packages():
        from memory_core.core.postgres import schema
    return schema


def load_registry(config: Config) -> MemoryTypeRegistry:
    """The built-in memory types, then the user's own; broken ones are in ``problems``."""
    return MemoryTypeRegistry(builtin_schema_dir(), *(folder.expanduser() for folder in config.schema_dirs))
