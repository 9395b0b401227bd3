"""What a server answers over its channel: it listens, and each request's verb says which function answers.

Owns: the listener, the registry of verbs, and who asks. A request is an object with ``verb``, where they matter
``author``, ``cwd`` and ``wishes`` (see ``RequestCaller``), and what else its verb takes. The answer is ``{"ok": true}``
and what the verb's function returns, or ``{"ok": false, "error": …, "hint": …}`` for an error of Runebook's. After any
other failure, and to a stranger, nothing is said. Every server has the verbs ``ping`` and ``stop``; all others are
entries of ``VERBS``. One is no request: ``attach`` takes the connection over.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from memory_core.core.caller import Access, authored
from memory_core.core.errors import InvalidInput, RunebookError
from memory_core.core.process import this_node
from memory_core.version import program_version
from server.foreign_json import json_object
from server.local.channel import (
    FOLDER_NAME,
    FRAME_LIMIT_BYTES,
    HANDSHAKE_SECONDS,
    KEY_BYTES,
    Announcement,
    Channel,
    ChannelBroken,
    announce,
    listening_socket,
)

if TYPE_CHECKING:
    from memory_core.runebook import Runebook
    from server.local.shared_server import Attachments
    from server.protocol.session import ServedStore

_log = logging.getLogger(__name__)

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]
#: Takes over a connection whose request had the verb ``attach``; returns when it has ended.
Attach = Callable[[Mapping[str, Any], Channel], None]

#: Requests of callers that have shown that they know the key.
_AT_ONCE = 64
#: Callers that have not shown it yet; each holds a thread for as long as a handshake may take.
_UNPROVEN = 128
_BACKLOG = 512
_REQUEST_SECONDS = 10.0
_ANSWER_SECONDS = 10.0
_BREATH_SECONDS = 0.1


class RequestCaller(NamedTuple):
    """Who asks over the channel: the same user, in another process with settings of its own.

    Attributes:
        store: What this server serves.
        folder: Where the caller works.
        wishes: The caller's ``user_space``, ``agent_space`` and ``private_mode``, where it says them.
    """

    store: ServedStore
    folder: str
    wishes: Mapping[str, Any]

    def memory(self) -> Runebook:
        """The store as the caller's own settings would open it: callers of one store may have different ones.

        Raises:
            ConfigInvalid: If a space cannot be a folder name.
            InvalidInput: If this server keeps nothing, and the caller wants things kept.
        """
        memory = self.store.memory()
        private = self.wishes.get("private_mode")
        if memory.access is not Access.PRIVATE and private is True:
            memory = memory.view(access=Access.PRIVATE)
        elif memory.access is Access.PRIVATE and private is False:
            raise InvalidInput("this server is in private mode.", hint="Do it without this server.")
        spaces = (memory.config.user_space, memory.config.agent_space)
        user, agent = (str(self.wishes.get(name) or "") for name in ("user_space", "agent_space"))
        if (user or spaces[0], agent or spaces[1]) == spaces:
            return memory
        return memory.view(user or None, agent or None)


#: Answers the requests of a verb: told the request, and who asks. It may raise errors of Runebook's.
Verb = Callable[[Mapping[str, Any], RequestCaller], Mapping[str, Any]]


def _hook(request: Mapping[str, Any], caller: RequestCaller) -> Mapping[str, Any]:
    from server.hosts.hook_answers import answer

    given = request.get("given")
    if not isinstance(given, dict):
        raise InvalidInput("a hook is asked with what its host gave.", hint="Send it as the object 'given'.")
    memory = caller.memory()
    memory.note_user()
    told = answer(memory, str(request.get("event")), given, str(request.get("host") or ""))
    return told._asdict()


def _command(request: Mapping[str, Any], caller: RequestCaller) -> Mapping[str, Any]:
    from server.commands.declared import answer, find_command

    name, given = str(request.get("command")), request.get("given")
    command = find_command(name)
    if command is None or not isinstance(given, dict):
        raise InvalidInput(f"this server does not know {name[:60]!r}.", hint="Use the same version on both ends.")
    return answer(caller.memory(), command, given, caller.folder)._asdict()


#: What a server can be asked for: what a host's hook wants, and every declared command.
VERBS: dict[str, Verb] = {"hook": _hook, "command": _command}


class ChannelRequests:
    """Answers requests out of the store that this process serves.

    Args:
        store: The store.
        attachments: The hosts that are attached; None where none can be.
        may_stop: Whether it ends where it is asked to; False where only its host ends it.
    """

    def __init__(self, store: ServedStore, attachments: Attachments | None = None, may_stop: bool = False) -> None:
        self._store = store
        self._attachments = attachments
        self._may_stop = may_stop

    def __call__(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer to ``request``.

        Raises:
            RunebookError: If it cannot be given.
        """
        name = str(request.get("verb"))
        if name == "stop" and not self._may_stop:
            raise InvalidInput("this server ends with its host.", hint="End the host, or its connection.")
        if name in ("ping", "stop"):
            return self._about()
        verb = VERBS.get(name)
        if verb is None:
            raise InvalidInput(f"this server does not know {name[:60]!r}.", hint="Use the same version on both ends.")
        wishes = request.get("wishes")
        caller = RequestCaller(
            self._store,
            str(request.get("cwd") or ""),
            wishes if isinstance(wishes, Mapping) else {},
        )
        with authored(str(request.get("author") or "")):
            return {"ok": True, **verb(request, caller)}

    def _about(self) -> Mapping[str, Any]:
        attached = None if self._attachments is None else self._attachments.count
        return {"ok": True, "pid": os.getpid(), "version": program_version(), "attached": attached}


class Listener:
    """The listening end of the channels to one server; closed by ``close`` or with the process.

    Args:
        state: The store's folder of machine files, where it is announced.
        answer: Answers a request, in a thread of its own. An error of Runebook's becomes an answer.
        attach: Takes connections over; None refuses them.
        kind: What the server is: stdio, http or local.
        settings: Fingerprint by which hosts and commands tell whether it serves what they ask for.
        stop: Called once a request to stop was answered, so that who asked is told before the process ends.

    Raises:
        OSError: If nobody could find it: the disk is full or read-only, or loopback cannot be used.
    """

    def __init__(
        self,
        state: Path,
        answer: Answer,
        attach: Attach | None = None,
        *,
        kind: str = "stdio",
        settings: str = "",
        stop: Callable[[], None] | None = None,
    ) -> None:
        self._answer = answer
        self._attach = attach
        self._stop = stop
        self._key = os.urandom(KEY_BYTES)
        self._guard = threading.Lock()
        self._unproven: dict[Channel, None] = {}  # in the order in which they came
        self._asking = set[Channel]()
        self._closed = threading.Event()
        self._channels = set[Channel]()
        self._socket, name = listening_socket(state, _BACKLOG)
        self._files = [state / FOLDER_NAME / name] if name else []
        self.announcement = Announcement(
            pid=os.getpid(),
            port=0 if name else self._socket.getsockname()[1],
            key=self._key.hex(),
            since=time.time(),
            version=program_version(),
            node=this_node(),
            kind=kind,
            settings=settings,
            state=os.path.realpath(state),
            socket_name=name,
        )
        try:
            self._files.append(announce(state, self.announcement))
        except OSError:
            self._socket.close()
            self.withdraw()
            raise
        threading.Thread(target=self._listen, name="runebook-channel", daemon=True).start()

    def withdraw(self) -> None:
        """Let nobody else find this server."""
        for file in reversed(self._files):
            with suppress(OSError):
                file.unlink(missing_ok=True)

    def close(self) -> None:
        """Take the announcement back and hang up; safe to call twice. Waits for nobody."""
        self._closed.set()
        self.withdraw()
        with suppress(OSError):  # wakes the thread that listens, where closing alone does not
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for channel in tuple(self._channels):
            channel.close()

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed; or there is no descriptor left for it just now
                self._closed.wait(_BREATH_SECONDS)
                continue
            channel = Channel(connection)
            if not self._admitted(channel):
                channel.close()
                continue
            serving = threading.Thread(target=self._serve, args=(channel,), name="runebook-request", daemon=True)
            try:
                serving.start()
            except RuntimeError:  # no thread can be had just now; the next caller may find one
                self._forget(channel)
                channel.close()
                self._closed.wait(_BREATH_SECONDS)

    def _admitted(self, channel: Channel) -> bool:
        """Whether there is room for it; where too many have not proven themselves, the first of them goes."""
        with self._guard:
            if len(self._asking) >= _AT_ONCE:
                return False
            oldest = next(iter(self._unproven)) if len(self._unproven) >= _UNPROVEN else None
            if oldest is not None:
                del self._unproven[oldest]
            self._unproven[channel] = None
            self._channels.add(channel)
        if oldest is not None:
            oldest.close()
        return True

    def _forget(self, channel: Channel) -> None:
        with self._guard:
            self._unproven.pop(channel, None)
            self._asking.discard(channel)
            self._channels.discard(channel)

    def _serve(self, channel: Channel) -> None:
        try:
            attaching = self._answer_one(channel)
            if attaching is not None and self._attach is not None:
                self._attach(attaching, channel)
        except ChannelBroken as error:
            _log.debug("a request over the channel ended early: %s", error)
        finally:
            self._forget(channel)
            channel.close()

    def _answer_one(self, channel: Channel) -> Mapping[str, Any] | None:
        """Answer the one request of a caller that proves itself; a request to attach is returned instead."""
        try:
            channel.prove_as_listener(self._key, time.monotonic() + HANDSHAKE_SECONDS)
            with self._guard:
                self._unproven.pop(channel, None)
                self._asking.add(channel)
            request = _object(channel.receive(FRAME_LIMIT_BYTES, time.monotonic() + _REQUEST_SECONDS))
            if self._attach is not None and request.get("verb") == "attach":
                return request
            try:
                answer = self._answer(request)
            except RunebookError as error:
                answer = {"ok": False, "error": error.message, "hint": error.hint}
            try:
                channel.send(json.dumps(answer).encode(), time.monotonic() + _ANSWER_SECONDS)
            finally:
                if self._stop is not None and request.get("verb") == "stop" and answer.get("ok") is True:
                    self._stop()
            return None
        finally:
            with self._guard:
                self._asking.discard(channel)


def listen(
    store: ServedStore, state: Path, *, kind: str, settings: str, attachments: Attachments | None = None
) -> Callable[[], None]:
    """Let other processes of this user find and ask the server that this process is.

    Args:
        store: Served.
        state: Its folder of machine files.
        kind: stdio or http.
        settings: Fingerprint of what is served; see ``shared_server.place_of``.
        attachments: Takes hosts on; None takes none.

    Returns:
        What ends that. Where nobody can find this server, that does nothing, and a warning was logged.
    """
    attach = None if attachments is None else attachments.attach
    try:
        return Listener(state, ChannelRequests(store, attachments), attach, kind=kind, settings=settings).close
    except OSError as error:
        _log.warning(
            "other programs of this machine cannot ask this server (hooks take longer): %s", error.strerror or error
        )
        return lambda: None


def _object(frame: bytes | None) -> Mapping[str, Any]:
    """The request in a frame.

    Raises:
        ChannelBroken: If it is no JSON object.
    """
    request = json_object(frame or b"")
    if request is None:
        raise ChannelBroken("the request is no JSON object")
    return request
