"""The store as the server holds it: opened once a process, when first needed, off the start-up path.

A stdio server answers ``initialize`` before anything heavy is imported; opening begins right after. One store serves
one client, or several with a session of their own each (``server.local``). Over SSE a lifespan runs for every
connection, so the store is counted, not owned, by each.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from memory_core.core.feature import Features
from memory_core.features import FEATURES

if TYPE_CHECKING:
    from pathlib import Path

    from memory_core.core.caller import Access
    from memory_core.core.config import Config
    from memory_core.core.memory.results import CommitReceipt
    from memory_core.core.settings_file import SettingsFile
    from memory_core.core.store.issued_tokens import SharedSpace
    from memory_core.runebook import Runebook
    from server.http.authentication import Bearer
    from server.protocol.client_state import PrivateMode, Workspace
    from server.protocol.sampling import Sampling


T = TypeVar("T")
_WARM_DELAY_SECONDS = 0.05


class ServedStore:
    """Opens the store on first use and closes it with the last user; safe from any thread.

    Args:
        opener: Opens the store; called at most once at a time.
        begin_listening: Called in a thread of its own once the store is open; what it returns is called before the
            store is closed.
        settings: Makes the settings that the store was opened with, for those who may change them; None has none.
    """

    def __init__(
        self,
        opener: Callable[[], Runebook],
        begin_listening: Callable[[ServedStore], Callable[[], None]] | None = None,
        settings: Callable[[], SettingsFile] | None = None,
    ) -> None:
        self._opener = opener
        self._begin_listening = begin_listening
        self._settings_maker = settings
        self._config: Config | None = None
        self._lock = threading.Lock()
        self._memory: Runebook | None = None
        self._views: dict[tuple[str, str, Access, tuple[SharedSpace, ...]], Runebook] = {}
        self._users = 0
        self._warming: threading.Timer | None = None
        self._close_listener: Callable[[], None] | None = None

    @cached_property
    def settings(self) -> SettingsFile | None:
        """The settings that the store was opened with."""
        return None if self._settings_maker is None else self._settings_maker()

    def replaced(self, replace: Callable[[], T]) -> T:
        """Close the store while its folder is replaced; what is there then is opened when it is next needed."""
        with self._lock:
            memory, self._memory = self._memory, None
            self._views.clear()
            if memory is not None:
                memory.close()
            return replace()

    def memory(self, *, private: bool = False) -> Runebook:
        """The open store, as the caller may see it: the spaces and rights of a token, or all that the settings give.

        Args:
            private: Whether nothing may be left behind.

        Raises:
            RunebookError: If it cannot be opened; the next call tries again.
        """
        from server.http.authentication import identity

        bearer = identity()
        with self._lock:
            memory = self._opened()
            self._follow_settings(memory)
            if bearer is None and not private:
                memory.note_user()
            if bearer is None and not private and self._config is None:
                return memory
            return self._view(memory, bearer, private)

    def _follow_settings(self, memory: Runebook) -> None:
        """Answer under what the settings file says now, as far as an open store can; the caller holds the lock.

        A file that cannot be read changes nothing.
        """
        if self.settings is None:
            return
        import logging

        from memory_core.core.errors import ConfigInvalid
        from memory_core.core.settings_file import followed

        try:
            changed = self.settings.changed()
        except ConfigInvalid as error:
            logging.getLogger(__name__).warning("the settings stay as they were: %s", error)
            return
        if changed is not None and (config := followed(memory.config, changed)) != (self._config or memory.config):
            self._config = config
            self._views.clear()

    def _view(self, memory: Runebook, bearer: Bearer | None, private: bool) -> Runebook:
        """What a token opens, or what private mode leaves; the caller holds the lock."""
        from memory_core.core.caller import Access

        config, access = memory.config, memory.access
        if self._config is not None:
            config = self._config
            access = Access.PRIVATE if config.private_mode else Access.READ_WRITE
        if private:
            access = Access.PRIVATE
        if bearer is not None and bearer.read_only:
            access = Access.READ_ONLY
        user_space = config.user_space if bearer is None else bearer.user_space
        agent_space = config.agent_space if bearer is None else bearer.agent_space
        shared = () if bearer is None else bearer.shared
        key = (user_space, agent_space, access, shared)
        if key not in self._views:
            self._views[key] = memory.configured(config).view(*key)
        return self._views[key]

    def _opened(self) -> Runebook:
        """The open store; the caller holds the lock."""
        if self._memory is None:
            self._memory = self._opener()
            self._memory.opened.watch()
            self._memory.note_user()
            for start in self._memory.features.members("background"):
                start(self._memory)
            _follow_notes(self._memory)
            if self._begin_listening is not None and self._users > 0:
                beside = (self._begin_listening,)
                threading.Thread(target=self._stand_beside, args=beside, name="runebook-beside", daemon=True).start()
        return self._memory

    def _stand_beside(self, begin_listening: Callable[[ServedStore], Callable[[], None]]) -> None:
        """Begin what runs beside the open store, unless that is closed again."""
        close = begin_listening(self)
        with self._lock:
            if self._users > 0 and self._close_listener is None:
                self._close_listener = close
                return
        close()

    def warm(self) -> None:
        """Open the store and load the model soon, in the background; waits for nobody, for loops of events call it."""
        if not self._lock.acquire(blocking=False):  # whoever has it opens the store, or asks for it next
            return
        try:
            if self._warming is not None or self._memory is not None:
                return
            self._warming = threading.Timer(_WARM_DELAY_SECONDS, self._open_and_warm)
            self._warming.daemon = True
            self._warming.start()
        finally:
            self._lock.release()

    def acquire(self) -> None:
        """Count one more user."""
        with self._lock:
            self._users += 1

    def release(self) -> None:
        """Count one user less; the last one closes the store."""
        with self._lock:
            self._users -= 1
            if self._users > 0:
                return
            memory, self._memory = self._memory, None
            self._views.clear()
            warming, self._warming = self._warming, None
            close_listener, self._close_listener = self._close_listener, None
        if close_listener is not None:
            close_listener()
        if warming is not None:
            warming.cancel()
        if memory is not None:
            memory.close()

    def _open_and_warm(self) -> None:
        import logging

        from memory_core.core.errors import RunebookError

        try:
            with self._lock:
                self._warming = None
                if self._users == 0:  # the client left meanwhile: nobody would close the store
                    return
                self._opened().warm()
        except RunebookError as error:
            logging.getLogger(__name__).error("the store could not be opened: %s", error)


def _follow_notes(memory: Runebook) -> None:
    """Store what hosts' hooks could not, in the background."""
    from server.hosts import hook_notes

    if hook_notes.waiting(memory.store.files.state):
        from server.hosts.hook_answers import begin_taking_in

        begin_taking_in(memory)


class MemorySession:
    """What belongs to one client of a store, or to all that share one server.

    Args:
        store: The store, shared with other sessions; or what opens it.
        folder: The working directory of a server that has one client; None where there may be several.
        features: Of the store that is opened.
    """

    def __init__(
        self,
        store: ServedStore | Callable[[], Runebook],
        folder: Path | None = None,
        features: Features = FEATURES,
    ) -> None:
        self.features = features
        self.store = store if isinstance(store, ServedStore) else ServedStore(store)
        self.folder = folder
        self._lock = threading.Lock()
        self._users = 0
        self._is_noted_private = False

    @cached_property
    def sampling(self) -> Sampling[CommitReceipt]:
        """The loops that clients' own models answer."""
        from server.protocol.sampling import Sampling

        return Sampling()

    @cached_property
    def private_mode(self) -> PrivateMode:
        """Which clients want nothing kept."""
        from server.protocol.client_state import PrivateMode

        return PrivateMode(one_client=self.folder is not None)

    @cached_property
    def workspace(self) -> Workspace:
        """Where the clients work."""
        from server.protocol.client_state import Workspace

        return Workspace(self.folder)

    def memory(self) -> Runebook:
        """``ServedStore.memory`` as the caller wishes it.

        Raises:
            RunebookError: If it cannot be opened; the next call tries again.
        """
        from server.protocol.client_state import is_private_wished

        return self.store.memory(private=is_private_wished())

    def tell_hooks(self, *, private: bool) -> None:
        """Note for hooks of the one client's host, processes of their own, whether anything is to be kept."""
        if self.folder is not None:
            from memory_core.core.private_times import note_private

            note_private(self.store.memory().store.files.state, str(self.folder), id(self), private=private)
            self._is_noted_private = private

    def acquire(self) -> None:
        """Count one more user."""
        with self._lock:
            self._users += 1
        self.store.acquire()

    def release(self) -> None:
        """Count one user less."""
        with self._lock:
            self._users -= 1
            is_last = self._users == 0
        try:
            if is_last and "sampling" in self.__dict__:
                self.sampling.close()
            if is_last and self._is_noted_private:
                self.tell_hooks(private=False)
        finally:
            self.store.release()
