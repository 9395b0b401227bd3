"""Clients that come over the line: one MCP session each, around the store that this process has open.

Owns: the pipe over a channel, and the count of who is attached. A client's working directory, its name and its private
mode are its own; store and model are everybody's.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory_core.core.caller import Access
from memory_core.core.errors import InvalidInput, RunebookError
from memory_core.version import program_version
from server.local.channel import Channel, ChannelBroken, Line
from server.local.shared_server import Place
from server.protocol.json_frames import LINE_LIMIT_BYTES, Oversized, WireLine
from server.protocol.session import ServedStore

if TYPE_CHECKING:
    from memory_core.runebook import Runebook


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


def _as_wished(memory: Runebook, wishes: Any) -> Runebook:
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


#: Before a line that was too long to keep: its length and its two ends follow as JSON.
OVERSIZED = b"\x00"
#: An empty frame: this server ends, and wants nobody to start another one because of it.
GOODBYE = b""
_ACCEPT_SECONDS = 5.0


class ChannelPipe:
    """A client at the other end of a channel, as ``server.protocol.stdio_transport`` serves it; one frame a line."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def lines(self) -> Iterator[WireLine]:
        """See ``LinePipe``."""
        with suppress(ChannelBroken):
            while (frame := self._channel.receive(LINE_LIMIT_BYTES)) is not None:
                yield unpack(frame) if frame.startswith(OVERSIZED) else frame

    def write(self, data: bytes) -> bool:
        """See ``LinePipe``."""
        if not data:
            return True
        try:
            self._channel.send(data)
        except ChannelBroken:
            return False
        return True

    def reader_left(self) -> bool:
        """See ``LinePipe``."""
        return self._channel.gone()

    def close(self) -> None:
        """See ``LinePipe``."""
        self._channel.close()


def pack(line: Oversized) -> bytes:
    """What is left of a line that was too long, as a frame."""
    ends = [line.size_bytes, line.head.decode("latin-1"), line.tail.decode("latin-1")]
    return OVERSIZED + json.dumps(ends).encode()


def unpack(frame: bytes) -> WireLine:
    """The line that ``pack`` was given; a client may itself send what begins like one, which is no message."""
    try:
        size_bytes, head, tail = json.loads(frame[1:])
        return Oversized(head.encode("latin-1"), tail.encode("latin-1"), int(size_bytes))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return frame


class Attachments:
    """Who is attached to a store, and since when nobody is.

    Args:
        store: Served to each.
        settings: Fingerprint of what this process serves.
        root: The store's folder; where a client works whose own folder is gone.
    """

    def __init__(self, store: ServedStore, settings: str, root: Path) -> None:
        self._store = store
        self._settings = settings
        self._root = root
        self._guard = threading.Lock()
        self._channels: set[Channel] = set()
        self._idle_since = time.monotonic()
        self._closed = False

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._channels)

    def attach(self, request: Mapping[str, Any], channel: Channel) -> None:
        """Serve the client behind ``channel`` until it leaves; for ``Line``.

        Raises:
            ChannelBroken: If it left at once.
        """
        deadline = time.monotonic() + _ACCEPT_SECONDS
        with self._guard:
            refused = self._closed or request.get("settings") != self._settings
            if not refused:
                self._channels.add(channel)
        if refused:
            channel.send(json.dumps({"ok": False, "error": "not served here", "hint": ""}).encode(), deadline)
            return
        try:
            channel.send(json.dumps({"ok": True}).encode(), deadline)
            channel.wait_for_ever()
            self._serve(request, channel)
        finally:
            with self._guard:
                self._channels.discard(channel)
                self._idle_since = time.monotonic()

    def _serve(self, request: Mapping[str, Any], channel: Channel) -> None:
        import anyio

        from server.protocol.app import build_server
        from server.protocol.stdio_transport import serve_attached

        folder = request.get("cwd")
        server = build_server(
            self._store,
            Path(folder) if isinstance(folder, str) and folder else self._root,
            private=request.get("private") is True,
        )
        anyio.run(serve_attached, server, ChannelPipe(channel))

    def end_if_idle(self, seconds: float) -> bool:
        """Whether nobody has been attached for so long; from then on nobody can attach."""
        with self._guard:
            if not self._channels and time.monotonic() - self._idle_since >= seconds:
                self._closed = True
            return self._closed

    def close(self) -> None:
        """Take nobody on any more, and tell who is attached that this server ends."""
        with self._guard:
            self._closed = True
            channels = tuple(self._channels)
        for channel in channels:
            channel.say_last(GOODBYE)
