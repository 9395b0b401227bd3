"""The server that hosts share: found, started when there is none, and ended when nobody needs it any more.

Owns: which store and settings a command line means (``place_of``), who is the one such server of them (a lock held for
life), starting it detached, its log, who is attached, and when it ends. A host's working directory, its name and its
private mode are its own; store and model are everybody's.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from memory_core.version import installed_version
from server.early_settings import read_early
from server.foreign_json import json_value, value_at
from server.local.channel import Announcement, Channel, ChannelBroken, Unanswered, announced, make_folder
from server.protocol.stdio_pipes import GOODBYE, ChannelPipe

if TYPE_CHECKING:
    import logging
    import subprocess
    from types import FrameType

    from filelock import FileLock

    from server.protocol.session import ServedStore


LOCAL, HTTP = "local", "http"
LOG_NAME = "server.log"
_LOG_LIMIT_BYTES = 512 * 1024
_LOOK_SECONDS = 5.0
_STOP_SECONDS = 5.0
_END_SECONDS = 5.0
_ACCEPT_SECONDS = 5.0
_GOODBYE_SECONDS = 0.1
#: Variables that decide what a server does: ours, and those of the providers it may call.
_VARIABLES = ("RUNEBOOK_", "ANTHROPIC_", "OPENAI_", "CHROMA_")
_OWN_VARIABLES = frozenset({"RUNEBOOK_HOME", "RUNEBOOK_CONFIG"})
#: Settings whose value may be a path relative to the working directory.
_PATHS = ("schema_dirs", "prompt_dirs", "embedding.model", "search.rerank_model")


class Place(NamedTuple):
    """A store as a command line names it.

    Attributes:
        root: The folder of memories, absolute.
        settings: Fingerprint, the same for those that may share a server; the installed version is part of it.
        options: Of the command line, absolute, for another process of ours.
        folder: In which that process has to run.
    """

    root: Path
    settings: str
    options: tuple[str, ...]
    folder: Path

    @property
    def state(self) -> Path:
        """The folder of machine files."""
        return self.root / ".state"


def place_of(
    home: str | None, config: str | None, flags: Sequence[str], environment: Mapping[str, str] | None = None
) -> Place:
    """The store that options and variables name; never raises.

    Args:
        home: ``--home``.
        config: ``--config``.
        flags: Each ``NAME=VALUE`` of ``--set``.
        environment: Variables; None means ``os.environ``.
    """
    environment = os.environ if environment is None else environment
    root = read_early(home, config, flags, environment).root
    named = config or environment.get("RUNEBOOK_CONFIG")
    file = _absolute(named) if named else str(root / "config.json")
    text = _text(file)
    others = [flag for flag in flags if flag.partition("=")[0].strip() != "home"]
    variables = sorted(
        (name, value)
        for name, value in environment.items()
        if name.startswith(_VARIABLES) and name not in _OWN_VARIABLES
    )
    facts = [installed_version(), str(root), text, others, variables]
    options = ["--home", str(root), *(part for flag in others for part in ("--set", flag))]
    options += ["--config", file] if named else []
    folder = root
    if any(_is_relative(value) for value in _paths(text, others, environment)):
        folder = Path.cwd()
        facts.append(str(folder))
    fingerprint = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    return Place(root, fingerprint, tuple(options), folder)


def shared_servers(place: Place) -> list[Announcement]:
    """Servers that hosts can attach to and that serve what ``place`` asks for; any may be dead."""
    return [
        server
        for server in announced(place.state)
        if server.kind in (LOCAL, HTTP) and server.settings == place.settings
    ]


def start(place: Place) -> subprocess.Popen[bytes]:
    """Start the server of ``place``, which outlives this process; another one of it ends by itself.

    Raises:
        OSError: If it cannot be started.
    """
    make_folder(place.state)
    log = place.state / LOG_NAME
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o600)
    folder = place.folder if place.folder.is_dir() else place.state
    try:
        return spawn("serve", "--transport", LOCAL, *place.options, errors=descriptor, folder=folder)
    finally:
        os.close(descriptor)


def spawn(*words: str, errors: int | None = None, folder: Path | None = None) -> subprocess.Popen[bytes]:
    """Run a command of this program in a process that outlives this one.

    Args:
        words: The command line.
        errors: The descriptor of its standard error; None is nowhere.
        folder: In which it works; None is this one.
    """
    import subprocess

    detached = 0
    if sys.platform == "win32":  # no console, and no signals of the process that starts it
        detached = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP
    return subprocess.Popen(
        # -P: the folder that a host works in must not lend it modules.
        [sys.executable, "-P", "-m", "server.cli", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL if errors is None else errors,
        cwd=folder,
        start_new_session=True,
        creationflags=detached,
    )


def the_only_one(place: Place) -> FileLock | None:
    """The right to be the server of ``place``; None where another process has it.

    It is held until the lock object is collected.

    Raises:
        OSError: If the store's folder cannot be written.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(make_folder(place.state) / f"{place.settings[:16]}.lock", mode=0o600, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        return None
    return lock


class Attachments:
    """The hosts that are attached to a store, and since when none is.

    Args:
        store: Served to each, in an MCP session of its own.
        place: What this process serves; a host whose own folder is gone works in the store's.
    """

    def __init__(self, store: ServedStore, place: Place) -> None:
        self._store = store
        self._place = place
        self._guard = threading.Lock()
        self._channels: set[Channel] = set()
        self._idle_since = time.monotonic()
        self._closed = False

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._channels)

    def attach(self, request: Mapping[str, Any], channel: Channel) -> None:
        """Serve the host behind ``channel`` until it leaves; for ``Listener``.

        Raises:
            ChannelBroken: If it left at once.
        """
        with self._guard:
            accepted = not self._closed and request.get("settings") == self._place.settings
            if accepted:
                self._channels.add(channel)
        try:
            channel.send(json.dumps({"ok": accepted}).encode(), time.monotonic() + _ACCEPT_SECONDS)
            if accepted:
                self._serve(request, channel)
        finally:
            with self._guard:
                if channel in self._channels:
                    self._channels.discard(channel)
                    self._idle_since = time.monotonic()

    def _serve(self, request: Mapping[str, Any], channel: Channel) -> None:
        import anyio

        from server.protocol.app import build_server
        from server.protocol.stdio_transport import serve_attached

        folder = request.get("cwd")
        server = build_server(
            self._store,
            Path(folder) if isinstance(folder, str) and folder else self._place.root,
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
            with suppress(ChannelBroken):  # it has left, or does not listen: hanging up says enough
                channel.send(GOODBYE, time.monotonic() + _GOODBYE_SECONDS)
            channel.close()


def serve_until_idle(store: ServedStore, place: Place, idle_seconds: float) -> int:
    """Serve hosts that attach until none has been there for so long, or the process is asked to end.

    Run it in the main thread, as the whole program.

    Args:
        store: Served.
        place: Names the store, and the settings by which hosts find this server.
        idle_seconds: Without a host.

    Returns:
        The exit status: 128 plus its number after a signal, else 0.

    Raises:
        OSError: If nobody could find this server.
    """
    from server.local.channel_requests import ChannelRequests, Listener
    from server.terminal import termination_signals

    asked = threading.Event()
    status = 0

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal status
        if asked.is_set():
            os._exit(128 + number)
        status = 128 + number
        asked.set()

    for number in termination_signals():
        signal.signal(number, on_signal)
    attachments = Attachments(store, place)
    requests = ChannelRequests(store, attachments, may_stop=True)
    store.acquire()
    listener = Listener(place.state, requests, attachments.attach, kind=LOCAL, settings=place.settings, stop=asked.set)
    store.warm()
    while not (asked.wait(min(_LOOK_SECONDS, idle_seconds)) or attachments.end_if_idle(idle_seconds)):
        pass
    last = threading.Timer(_END_SECONDS, os._exit, [status])
    last.daemon = True
    last.start()  # a tool that does not end keeps nobody waiting
    listener.withdraw()
    attachments.close()
    listener.close()
    store.release()
    return status


def stop_shared(state: Path) -> list[tuple[int, int]]:
    """Ask the background servers of a store to end, of whatever version they are.

    Returns:
        The process of each that does, and how many were attached to it.
    """
    stopped = []
    for server in announced(state):
        if server.kind != LOCAL:
            continue
        deadline = time.monotonic() + _STOP_SECONDS
        with suppress(ChannelBroken, Unanswered):
            answer = server.ask({"verb": "stop"}, deadline, reached_by=deadline)
            if answer.get("ok") is True:
                stopped.append((server.pid, int(answer.get("attached") or 0)))
    return stopped


def keep_log_bounded(_record: logging.LogRecord) -> bool:
    """A filter that passes everything, and empties the log before it grows too long."""
    with suppress(OSError):
        if os.fstat(2).st_size > _LOG_LIMIT_BYTES:
            os.ftruncate(2, 0)
    return True


def _paths(text: str, flags: Sequence[str], environment: Mapping[str, str]) -> Iterator[str]:
    """Every value that may be a path."""
    given = dict(flag.partition("=")[::2] for flag in flags)
    written = json_value(text.removeprefix("\ufeff"))
    for name in _PATHS:
        value = value_at(written, name.split("."))
        found = [*(value if isinstance(value, list) else [value]), given.get(name)]
        found.append(environment.get(f"RUNEBOOK_{name.replace('.', '_').upper()}"))
        for each in found:
            if isinstance(each, str):
                yield from each.split(os.pathsep)


def _is_relative(path: str) -> bool:
    """Whether something of that name is found from the working directory only."""
    expanded = os.path.expanduser(path)  # noqa: PTH111 - never raises
    return bool(path) and not os.path.isabs(expanded) and os.path.exists(expanded)  # noqa: PTH110, PTH117


def _text(path: str) -> str:
    try:
        return Path(path).read_bytes().decode(errors="backslashreplace")
    except OSError:
        return ""


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - never raises
