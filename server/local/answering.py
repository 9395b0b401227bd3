"""What a running server answers on its line: that it is there, hosts' hooks, attachments, and the request to stop.

Owns the verbs and their answers, and beginning and ending the line of a server. A server that cannot have one (its
disk is full or read-only) works on without, and says so once.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory_core.errors import InvalidInput, RunebookError
from memory_core.model.access import Access
from memory_core.version import program_version
from server.local.attached import Attachments
from server.local.line import Line
from server.local.place import Place
from server.session import ServedStore

if TYPE_CHECKING:
    from memory_core.memory import Memory

_log = logging.getLogger(__name__)


class LineAnswers:
    """Answers requests out of the store that this process serves.

    Args:
        store: The store.
        attachments: Who is attached; None where nobody can be.
        stop: Ends the process; None where only its host does.
    """

    def __init__(
        self,
        store: ServedStore,
        attachments: Attachments | None = None,
        stop: Callable[[], None] | None = None,
    ) -> None:
        self._store = store
        self._attachments = attachments
        self._stop = stop

    def __call__(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer to ``request``.

        Raises:
            RunebookError: If it cannot be given.
        """
        verb = request.get("verb")
        if verb == "ping":
            return self._about()
        if verb == "hook":
            return self._hook(request)
        if verb == "stop":
            return self._end()
        raise InvalidInput(
            f"this server's line does not know {str(verb)[:60]!r}.", hint="Use the same version on both ends."
        )

    def _about(self) -> Mapping[str, Any]:
        attached = None if self._attachments is None else self._attachments.count
        return {"ok": True, "pid": os.getpid(), "version": program_version(), "attached": attached}

    def _hook(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        from server.hooks.answers import answer

        given = request.get("given")
        if not isinstance(given, dict):
            raise InvalidInput("a hook is asked with what its host gave.", hint="Send it as the object 'given'.")
        memory = _as_wished(self._store.memory(), request.get("wishes"))
        told = answer(memory, str(request.get("event")), given, str(request.get("host") or ""))
        return {"ok": True, **told._asdict()}

    def _end(self) -> Mapping[str, Any]:
        if self._stop is None:
            raise InvalidInput("this server ends with its host.", hint="End the host, or its connection.")
        about = self._about()
        self._stop()
        return about


def _as_wished(memory: Memory, wishes: Any) -> Memory:
    """The store as a hook's own settings would open it: hosts of one store may have different ones.

    Raises:
        ConfigInvalid: If a space cannot be a folder name.
        InvalidInput: If this server keeps nothing, and the hook's host wants things kept.
    """
    if not isinstance(wishes, Mapping):
        return memory
    if memory.access is not Access.PRIVATE and wishes.get("private_mode") is True:
        memory = memory.view(access=Access.PRIVATE)
    elif memory.access is Access.PRIVATE and wishes.get("private_mode") is False:
        raise InvalidInput("this server is in private mode.", hint="The hook does it itself.")
    user, agent = (str(wishes.get(name) or "") for name in ("user_space", "agent_space"))
    if (user or memory.config.user_space, agent or memory.config.agent_space) == (
        memory.config.user_space,
        memory.config.agent_space,
    ):
        return memory
    return memory.view(user or None, agent or None)


def open_line(
    store: ServedStore, state: Path, *, kind: str, settings: str = "", attachments: Attachments | None = None
) -> Callable[[], None]:
    """Begin the line of this process.

    Args:
        store: The store.
        state: Its folder of machine files.
        kind: stdio or http.
        settings: Fingerprint of what is served; see ``place``.
        attachments: Takes on clients that come over the line; None takes none.

    Returns:
        What ends it. Where there can be no line, that does nothing, and a warning was logged.
    """
    attach = None if attachments is None else attachments.attach
    follow_notes(store, state)
    try:
        return Line(state, LineAnswers(store, attachments), attach, kind=kind, settings=settings).close
    except OSError as error:
        _log.warning(
            "other programs of this machine cannot ask this server (hooks take longer): %s", error.strerror or error
        )
        return lambda: None


def follow_notes(store: ServedStore, state: Path) -> None:
    """Store, in the background, what hooks could not store while no server ran."""
    from server.hooks import pending

    if pending.waiting(state):
        threading.Thread(target=_follow, args=(store,), name="runebook-notes", daemon=True).start()


def _follow(store: ServedStore) -> None:
    from server.hooks.answers import take_in

    try:
        take_in(store.memory())
    except RunebookError as error:
        _log.warning("conversations that hooks left are stored later: %s", error.message)


@contextmanager
def attachable_line(store: ServedStore, place: Place) -> Iterator[None]:
    """While in the body, clients of this machine find this HTTP server and attach to it."""
    attachments = Attachments(store, place.settings, place.root)
    close = open_line(store, place.state, kind="http", settings=place.settings, attachments=attachments)
    try:
        yield
    finally:
        attachments.close()
        close()
