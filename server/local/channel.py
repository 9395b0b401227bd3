"""A keyed channel between processes of one user on one machine, and the servers that are reached by it.

A server listens on a Unix socket in ``<state>/lines``, a folder that its user alone can enter, and announces itself in
a small file beside it, which holds its key. Where there are no such sockets it listens on loopback. Both ends prove
that they know the key before anything else is said: a stranger learns nothing and is not believed. Then frames pass,
each a length and so many bytes.

Owns: announcements, the handshake, frames, and asking a server (``submit``). What a server answers is in
``channel_requests``. An announcement that a killed server left does no harm, for nobody at its address knows the key;
the next server removes it. A store may be seen from several machines or containers: what was announced on another one
is left alone.

Imports nothing heavy: a host waits for its hooks, a person for a command.
"""

from __future__ import annotations

import errno
import hmac
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from memory_core.core.errors import RunebookError
from memory_core.core.private_file import make_private, write_json
from memory_core.core.process import this_node
from memory_core.version import program_version
from server.early_settings import working_directory
from server.foreign_json import json_object

KEY_BYTES = 32
LOOPBACK = "127.0.0.1"
#: What a handshake may take with a process that is busy.
HANDSHAKE_SECONDS = 2.0
#: Of a request and of an answer: more than the longest line that MCP takes.
FRAME_LIMIT_BYTES = 16 * 1024 * 1024
#: Of announcements and locks, in the folder of machine files; servers of older versions are found there, too.
FOLDER_NAME = "lines"

#: Changes with what passes over a channel; ends with different ones do not talk.
_MAGIC = b"runebook line 1\n"
_NONCE_BYTES = 32
_PROOF_BYTES = 32
_LENGTH_BYTES = 4
_CHUNK_BYTES = 1 << 16
_PROBE_SECONDS = 0.5
_SUFFIX = ".json"
_SOCKET_SUFFIX = ".sock"
#: The longest path of a Unix socket that every system takes, in bytes.
_SOCKET_PATH_BYTES = 100
#: A server announces its socket within this time of making it.
_ANNOUNCED_SECONDS = 60.0
_ANNOUNCEMENT_LIMIT_BYTES = 16_384
#: Of announcements of other machines; the oldest of more go.
_FOREIGN_LIMIT = 64


class ChannelBroken(Exception):
    """The other end is gone, late, a stranger, or says what cannot be read.

    Caught in ``server.local`` and in ``server.protocol.stdio_pipes``.
    """


class Unanswered(RunebookError):
    """A server took a request and did not answer it: whether it was carried out is not known."""


def submit(
    state: Path,
    verb: str,
    given: Mapping[str, Any],
    timeout_seconds: float,
    *,
    settings: str | None = None,
    author: str = "command line",
) -> dict[str, Any] | None:
    """Have a running server of a store do what a command wants.

    The request is ``{"verb": verb, "author": author, "cwd": the working directory, **given}``. It is sent to one server
    at most, so it is carried out at most once.

    Args:
        state: The store's folder of machine files, ``<home>/.state``.
        verb: One that the server knows, see ``channel_requests.VERBS``.
        given: What else the verb takes, as JSON.
        timeout_seconds: For all of it.
        settings: Fingerprint that the server must have, see ``shared_server.place_of``; None takes any server.
        author: Under whose name commits are recorded.

    Returns:
        The answer without ``ok``, or None where no such server runs: the command does it itself.

    Raises:
        RunebookError: The server could not do it; message and hint are the server's.
        Unanswered: The request was sent, and no answer came in time.
    """
    request = {"verb": verb, "author": author, "cwd": working_directory(), **given}
    servers = [server for server in announced(state) if server.version == program_version()]
    servers = [server for server in servers if settings in (None, server.settings)]
    answer = _first_answer(servers, request, time.monotonic() + timeout_seconds)
    if answer is None or answer.pop("ok", None) is True:
        return answer
    raise RunebookError(str(answer.get("error")), hint=str(answer.get("hint") or "Look into the server's log."))


def _first_answer(
    servers: Sequence[Announcement], request: Mapping[str, Any], deadline: float
) -> dict[str, Any] | None:
    """What the first of ``servers`` answers that can be reached; None where none can."""
    for number, server in enumerate(servers, start=1):
        now = time.monotonic()
        left = deadline - now if number == len(servers) else (deadline - now) / 2  # one that hangs leaves the rest
        with suppress(ChannelBroken):
            return server.ask(request, deadline, reached_by=now + min(left, HANDSHAKE_SECONDS))
    return None


class Channel:
    """Frames over a connected socket; sends are safe from many threads, receives from one.

    A deadline is on the monotonic clock; None waits until the other end leaves.

    Args:
        connection: Connected; belongs to the channel from now on.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()
        with suppress(OSError):  # only faster
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, payload: bytes, deadline: float | None = None) -> None:
        """Send one frame, whole.

        Args:
            payload: Up to 4 GiB.
            deadline: By which it must be sent.

        Raises:
            ChannelBroken: If it could not be sent; the channel is of no use then.
        """
        try:
            frame = len(payload).to_bytes(_LENGTH_BYTES, "big") + payload
        except OverflowError as error:
            raise ChannelBroken(f"a frame of {len(payload):,} bytes") from error
        self._send(frame, deadline)

    def receive(self, limit_bytes: int, deadline: float | None = None) -> bytes | None:
        """The next frame; None when the other end has sent all it had to send.

        Args:
            limit_bytes: Of the payload; a longer one breaks the channel unread.
            deadline: By which it must be here, whole.

        Raises:
            ChannelBroken: If it ends within a frame, is too long or late.
        """
        head = self._receive(_LENGTH_BYTES, deadline, may_end=True)
        if not head:
            return None
        length = int.from_bytes(head, "big")
        if length > limit_bytes:
            raise ChannelBroken(f"a frame of {length:,} bytes")
        return self._receive(length, deadline)

    def finish_sending(self) -> None:
        """Tell the other end that nothing more comes; what it sends can still be received."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End the connection, also for a thread that waits on it; safe to call twice."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def is_gone(self) -> bool:
        """Whether the other end is known to have left altogether."""
        return has_hung_up(self._socket)

    def has_sent_all(self) -> bool:
        """Whether the other end is known to send nothing more, apart from what is still to be received."""
        return has_hung_up(self._socket, "POLLRDHUP")

    def prove_as_caller(self, key: bytes, deadline: float) -> None:
        """The caller's part of the handshake.

        Raises:
            ChannelBroken: If the other end does not know the key, or not in time.
        """
        ours = os.urandom(_NONCE_BYTES)
        self._send(_MAGIC + ours, deadline)
        answer = self._receive(_NONCE_BYTES + _PROOF_BYTES, deadline)
        theirs, proof = answer[:_NONCE_BYTES], answer[_NONCE_BYTES:]
        _check(proof, _proof(key, b"listener", ours, theirs))
        self._send(_proof(key, b"caller", ours, theirs), deadline)

    def prove_as_listener(self, key: bytes, deadline: float) -> None:
        """The listener's part of the handshake.

        Raises:
            ChannelBroken: If the other end does not know the key, or not in time.
        """
        if self._receive(len(_MAGIC), deadline) != _MAGIC:
            raise ChannelBroken("the other end speaks something else")
        theirs, ours = self._receive(_NONCE_BYTES, deadline), os.urandom(_NONCE_BYTES)
        self._send(ours + _proof(key, b"listener", theirs, ours), deadline)
        _check(self._receive(_PROOF_BYTES, deadline), _proof(key, b"caller", theirs, ours))

    def _send(self, data: bytes, deadline: float | None) -> None:
        try:
            left = _seconds_until(deadline)
            if not self._sending.acquire(timeout=-1 if left is None else left):
                raise TimeoutError("another frame is still being sent")
            try:
                self._wait_until(deadline)
                self._socket.sendall(data)
            finally:
                self._sending.release()
        except OSError as error:
            raise ChannelBroken(str(error)) from error

    def _receive(self, length: int, deadline: float | None, *, may_end: bool = False) -> bytes:
        """``length`` bytes, or none at all where the other end may have ended."""
        parts: list[bytes] = []
        missing = length
        try:
            while missing:
                self._wait_until(deadline)
                part = self._socket.recv(min(missing, _CHUNK_BYTES))
                if not part:
                    if may_end and missing == length:
                        return b""
                    raise ChannelBroken("the other end left")
                parts.append(part)
                missing -= len(part)
        except OSError as error:
            raise ChannelBroken(str(error)) from error
        return b"".join(parts)

    def _wait_until(self, deadline: float | None) -> None:
        """Let the next step on the socket take so long."""
        left = _seconds_until(deadline)
        if left is not None or self._socket.gettimeout() is not None:
            self._socket.settimeout(left)


def has_hung_up(file: socket.socket | int, or_event: str = "") -> bool:
    """Whether the other end is known to be gone, or the event of that name is there; no where the system cannot tell.

    Args:
        file: A socket, or the descriptor of a pipe.
        or_event: A name of ``select``; empty asks for none, and the other end's going is reported all the same.
    """
    import select

    if not hasattr(select, "poll"):
        return False
    poll = select.poll()
    with suppress(OSError, ValueError):  # closed meanwhile
        poll.register(file, getattr(select, or_event, 0))
        return bool(poll.poll(0))
    return True


def _check(proof: bytes, expected: bytes) -> None:
    if not hmac.compare_digest(proof, expected):
        raise ChannelBroken("the other end does not know the key")


def _proof(key: bytes, role: bytes, callers: bytes, listeners: bytes) -> bytes:
    return hmac.digest(key, role + callers + listeners, "sha256")


def _seconds_until(deadline: float | None) -> float | None:
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:  # a timeout of 0 would mean not to wait at all
        raise TimeoutError("out of time")
    return left


class Announcement(NamedTuple):
    """A server's word on where it listens; a tuple, because ``dataclasses`` alone costs a hook 10 ms to import.

    Attributes:
        pid: Its process.
        port: Where it listens on loopback; 0 where it has a Unix socket.
        key: Hexadecimal; who knows it is the same user.
        since: When it began, in seconds since 1970.
        version: Of the program.
        node: Machine, and container, that it runs on.
        kind: What it is: stdio, http or local (started in the background for hosts that share it).
        settings: Fingerprint of its settings.
        state: Its store's folder of machine files; a copy of that folder holds announcements that are not its own.
        socket_name: The name of its Unix socket beside the announcement; empty where it listens on loopback.
    """

    pid: int
    port: int
    key: str
    since: float
    version: str
    node: str
    kind: str
    settings: str = ""
    state: str = ""
    socket_name: str = ""

    def ask(self, request: Mapping[str, Any], deadline: float, *, reached_by: float) -> dict[str, Any]:
        """What this server answers; the deadlines are on the monotonic clock.

        Raises:
            ChannelBroken: If it could not be reached in time; the request was not sent.
            Unanswered: If it was sent, and no answer came.
        """
        answer = None
        with closing(self.connect(reached_by)) as channel, suppress(ChannelBroken):
            channel.send(json.dumps(request).encode(), deadline)
            answer = json_object(channel.receive(FRAME_LIMIT_BYTES, deadline) or b"")
        if answer is not None:
            return answer
        raise Unanswered(
            "a running server took this, and no answer could be read (none came in time, or it was too long).",
            hint="Look whether it was carried out (runebook history) before you run the same again.",
        )

    def connect(self, deadline: float) -> Channel:
        """A proven channel to this server.

        Raises:
            ChannelBroken: If nobody is there who knows the key, or not in time.
        """
        try:
            channel = Channel(self.dial(_seconds_until(deadline)))
        except OSError as error:
            raise ChannelBroken(str(error)) from error
        try:
            channel.prove_as_caller(bytes.fromhex(self.key), deadline)
        except ChannelBroken:
            channel.close()
            raise
        return channel

    def dial(self, timeout_seconds: float | None) -> socket.socket:
        """A connection to where it listens, not proven yet.

        Raises:
            OSError: If nobody listens there, or not in time.
        """
        if not self.socket_name:
            return socket.create_connection((LOOPBACK, self.port), timeout=timeout_seconds)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout_seconds)
            with _short_path(Path(self.state) / FOLDER_NAME / self.socket_name) as path:
                connection.connect(path)
        except BaseException:
            connection.close()
            raise
        return connection


def listening_socket(state: Path, backlog: int) -> tuple[socket.socket, str]:
    """A socket that only this user's processes reach, where the system has such, else one on loopback.

    Args:
        state: The store's folder of machine files.
        backlog: How many callers may wait to be accepted.

    Returns:
        The socket, listening, and the name of its file in the folder of announcements; empty on loopback.

    Raises:
        OSError: If there is neither, or the folder cannot be made.
    """
    path = make_folder(state) / f"{os.getpid()}-{os.urandom(4).hex()}{_SOCKET_SUFFIX}"
    if hasattr(socket, "AF_UNIX") and os.name == "posix":
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with _short_path(path) as name:
                with suppress(OSError):  # Linux makes the file with these rights; other systems refuse
                    os.fchmod(listener.fileno(), 0o600)
                listener.bind(name)
            path.chmod(0o600)
            listener.listen(backlog)
            return listener, path.name
        except OSError:  # the path is too long, or the folder is on a disk that holds no sockets
            listener.close()
            with suppress(OSError):
                path.unlink(missing_ok=True)
    return socket.create_server((LOOPBACK, 0), backlog=backlog), ""


@contextmanager
def _short_path(path: Path) -> Iterator[str]:
    """``path``, or on Linux another path to the same file where that one is too long for a socket."""
    if len(os.fsencode(path)) <= _SOCKET_PATH_BYTES or not sys.platform.startswith("linux"):
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def announced(state: Path) -> list[Announcement]:
    """The servers that announced themselves here, on this machine, to this user.

    The oldest first: its model is loaded. Any may be dead. Believes nothing that somebody else could have written.
    """
    here = (this_node(), os.path.realpath(state))
    found = [read for path in _paths(state) if (read := _read(path)) is not None and (read.node, read.state) == here]
    return sorted(found, key=lambda each: float(each.since))


def announce(state: Path, announcement: Announcement) -> Path:
    """Write an announcement, whole or not at all, and clear away those of dead servers.

    Returns:
        Its file; the server ends the announcement by removing it.

    Raises:
        OSError: If it cannot be written so that only this user can read it.
    """
    folder = make_folder(state)
    _clear_away(folder, _paths(state))
    path = folder / f"{announcement.pid}-{os.urandom(4).hex()}{_SUFFIX}"
    write_json(path, announcement._asdict())
    return path


def make_folder(state: Path) -> Path:
    """The folder of announcements and locks, this user's alone.

    Raises:
        OSError: If it cannot be made, or is somebody else's.
    """
    folder = state / FOLDER_NAME
    make_private(folder)
    if folder.is_symlink():  # what is cleared away there, and whose mode is set, would be somebody else's
        raise OSError(errno.ELOOP, f"{folder} is a link")
    if os.name == "posix":
        if folder.stat().st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, f"{folder} belongs to another user")
        folder.chmod(0o700)  # whoever could write here could take an announcement's place
    return folder


def _paths(state: Path) -> list[Path]:
    folder = state / FOLDER_NAME
    try:
        names = [] if folder.is_symlink() else os.listdir(folder)  # noqa: PTH208 - as text
    except OSError:
        return []
    return [folder / name for name in sorted(names) if name.endswith(_SUFFIX)][: 4 * _FOREIGN_LIMIT]


def _read(path: Path) -> Announcement | None:
    """None for what is damaged, or not this user's alone."""
    safely = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | safely)) as file:
            facts = os.fstat(file.fileno())
            if os.name == "posix" and (facts.st_uid != os.geteuid() or facts.st_mode & 0o077):
                return None
            value = json.loads(file.read(_ANNOUNCEMENT_LIMIT_BYTES))
        read = Announcement(**{name: value[name] for name in Announcement._fields if name in value})
        float(read.since), int(read.pid)
        return read if len(bytes.fromhex(read.key)) == KEY_BYTES and _is_address(read) else None
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return None


def _is_address(announcement: Announcement) -> bool:
    if announcement.socket_name:
        name = str(announcement.socket_name)
        return name.endswith(_SOCKET_SUFFIX) and os.path.basename(name) == name  # noqa: PTH119 - as text
    return 0 < int(announcement.port) < 65_536


def _clear_away(folder: Path, paths: Iterable[Path]) -> None:
    """Remove announcements of servers that are not there any more, and their sockets."""
    foreign: list[tuple[float, Path]] = []
    gone: list[Path] = []
    sockets: set[str] = set()
    for path in paths:
        read = _read(path)
        if read is not None and read.node != this_node():
            foreign.append((float(read.since), path))
            sockets.add(read.socket_name)
        elif read is None or _is_gone(read):
            gone += [path, *([folder / read.socket_name] if read is not None and read.socket_name else [])]
        else:
            sockets.add(read.socket_name)
    gone += [path for path in folder.glob(f"*{_SOCKET_SUFFIX}") if path.name not in sockets and _is_old(path)]
    for path in (*gone, *(path for _, path in sorted(foreign)[:-_FOREIGN_LIMIT])):
        with suppress(OSError):
            path.unlink()


def _is_old(path: Path) -> bool:
    """Whether a server would have announced the socket by now."""
    try:
        return path.lstat().st_mtime < time.time() - _ANNOUNCED_SECONDS
    except OSError:
        return False


def _is_gone(announcement: Announcement) -> bool:
    """Whether surely nobody listens there any more."""
    try:
        announcement.dial(_PROBE_SECONDS).close()
    except (ConnectionRefusedError, FileNotFoundError):
        return True
    except OSError:
        pass
    return False
