"""Which servers of a store run on this machine, and how to reach them: small files under ``<state>/lines``.

Owns: writing, reading and removing announcements. Each is readable by its user alone and holds the key of its server's
line; what others could have written or read is not believed. Left over after a kill, it is removed by the next server
that announces itself; until then it does no harm, for nobody at its address knows the key.

A store may be seen from several machines or containers: what was announced on another one is left alone. Imports the
standard library only.
"""

from __future__ import annotations

import errno
import hmac
import json
import os
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from memory_core.core.errors import RunebookError
from memory_core.version import program_version
from server.private_file import write_json


class FileLock:
    """A lock that one process of the machine can hold.

    Args:
        path: Its file; stays when the lock is gone.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Whether it could be had, at once.

        Raises:
            OSError: If the file cannot be made.
        """
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(self._path, flags, 0o600)
        try:
            _lock(descriptor)
        except OSError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Give it back; safe to call twice."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None


def _lock(descriptor: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


#: Changes with what is said on the line; ends with different ones do not talk.
PROTOCOL = 1
KEY_BYTES = 32
#: What a handshake may take with a process that is busy.
HANDSHAKE_SECONDS = 2.0

_MAGIC = b"runebook line %d\n" % PROTOCOL
_NONCE_BYTES = 32
_PROOF_BYTES = 32
_LENGTH_BYTES = 4
_CHUNK_BYTES = 1 << 16
_LAST_WORD_SECONDS = 0.1


class ChannelBroken(Exception):
    """The other end is gone, late, a stranger, or says what cannot be read. Never leaves this package."""


class Channel:
    """Frames over a connected socket; sends are safe from many threads, receives from one.

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
            deadline: On the monotonic clock; None keeps the patience of before.

        Raises:
            ChannelBroken: If it could not be sent; the channel is of no use then.
        """
        with self._sending:
            try:
                if deadline is not None:
                    self._socket.settimeout(_left(deadline))
                self._socket.sendall(len(payload).to_bytes(_LENGTH_BYTES, "big") + payload)
            except (OSError, OverflowError) as error:
                raise ChannelBroken(str(error)) from error

    def say_last(self, payload: bytes) -> None:
        """Send a short frame if that can be done at once, and hang up."""
        if self._sending.acquire(timeout=_LAST_WORD_SECONDS):
            try:
                self._socket.settimeout(_LAST_WORD_SECONDS)
                self._socket.sendall(len(payload).to_bytes(_LENGTH_BYTES, "big") + payload)
            except OSError:
                pass  # it has left, or does not listen: hanging up says enough
            finally:
                self._sending.release()
        self.close()

    def wait_for_ever(self) -> None:
        """From now on what has no deadline waits until the other end leaves."""
        with suppress(OSError):  # it has left: the next frame says so
            self._socket.settimeout(None)

    def receive(self, limit_bytes: int, deadline: float | None = None) -> bytes | None:
        """The next frame; None when the other end has said all it had to say.

        Args:
            limit_bytes: Of the payload; a longer one breaks the channel unread.
            deadline: On the monotonic clock, by which it must be here, whole; None keeps the patience of before.

        Raises:
            ChannelBroken: If it ends within a frame, is too long or late.
        """
        head = self._receive_exactly(_LENGTH_BYTES, deadline, may_end=True)
        if not head:
            return None
        length = int.from_bytes(head, "big")
        if length > limit_bytes:
            raise ChannelBroken(f"a frame of {length:,} bytes")
        return self._receive_exactly(length, deadline)

    def finish_sending(self) -> None:
        """Tell the other end that nothing more comes; what it says can still be received."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End the connection, also for a thread that waits on it; safe to call twice."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def abandon(self) -> None:
        """In a forked child: let go of the socket and leave the connection to the parent."""
        self._socket.close()

    def gone(self) -> bool:
        """Whether the other end is known to have left altogether."""
        return self._polled("POLLHUP", "POLLERR")

    def said_all(self) -> bool:
        """Whether the other end is known to send nothing more, apart from what is still to be received."""
        return self._polled("POLLHUP", "POLLERR", "POLLRDHUP")

    def _polled(self, *names: str) -> bool:
        import select

        if not hasattr(select, "poll"):
            return False
        wanted = 0
        for name in names:
            wanted |= getattr(select, name, 0)
        poll = select.poll()
        with suppress(OSError, ValueError):  # closed meanwhile
            poll.register(self._socket, wanted)
            return any(event & wanted for _, event in poll.poll(0))
        return True

    def prove_as_caller(self, key: bytes, deadline: float) -> None:
        """The caller's part of the handshake.

        Raises:
            ChannelBroken: If the other end does not know the key, or not in time.
        """
        ours = os.urandom(_NONCE_BYTES)
        self._send_raw(_MAGIC + ours, deadline)
        answer = self._receive_exactly(_NONCE_BYTES + _PROOF_BYTES, deadline)
        theirs, proof = answer[:_NONCE_BYTES], answer[_NONCE_BYTES:]
        if not hmac.compare_digest(proof, _proof(key, b"listener", ours, theirs)):
            raise ChannelBroken("the other end does not know the key")
        self._send_raw(_proof(key, b"caller", ours, theirs), deadline)

    def prove_as_listener(self, key: bytes, deadline: float) -> None:
        """The listener's part of the handshake.

        Raises:
            ChannelBroken: If the other end does not know the key, or not in time.
        """
        greeting = self._receive_exactly(len(_MAGIC), deadline)
        if greeting != _MAGIC:
            raise ChannelBroken("the other end speaks something else")
        theirs, ours = self._receive_exactly(_NONCE_BYTES, deadline), os.urandom(_NONCE_BYTES)
        self._send_raw(ours + _proof(key, b"listener", theirs, ours), deadline)
        proof = self._receive_exactly(_PROOF_BYTES, deadline)
        if not hmac.compare_digest(proof, _proof(key, b"caller", theirs, ours)):
            raise ChannelBroken("the other end does not know the key")

    def _send_raw(self, data: bytes, deadline: float) -> None:
        try:
            self._socket.settimeout(_left(deadline))
            self._socket.sendall(data)
        except OSError as error:
            raise ChannelBroken(str(error)) from error

    def _receive_exactly(self, length: int, deadline: float | None, *, may_end: bool = False) -> bytes:
        """``length`` bytes, or none at all where the other end may have ended."""
        parts: list[bytes] = []
        missing = length
        try:
            while missing:
                if deadline is not None:
                    self._socket.settimeout(_left(deadline))
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


def call(address: tuple[str, int], key: bytes, deadline: float) -> Channel:
    """A proven channel to who listens at ``address``.

    Args:
        address: On loopback.
        key: The one that was announced.
        deadline: On the monotonic clock.

    Raises:
        ChannelBroken: If nobody is there who knows the key, or not in time.
    """
    try:
        channel = Channel(socket.create_connection(address, timeout=_left(deadline)))
    except OSError as error:
        raise ChannelBroken(str(error)) from error
    try:
        channel.prove_as_caller(key, deadline)
    except ChannelBroken:
        channel.close()
        raise
    return channel


def _proof(key: bytes, role: bytes, callers: bytes, listeners: bytes) -> bytes:
    return hmac.digest(key, role + callers + listeners, "sha256")


def _left(deadline: float) -> float:
    """Seconds until ``deadline``; a timeout of 0 would mean not to wait at all."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("out of time")
    return left


Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]
#: Takes over a connection whose request had the verb ``attach``; returns when it has ended.
Attach = Callable[[Mapping[str, Any], Channel], None]

#: Of a request and of an answer: more than the longest line that MCP takes.
FRAME_LIMIT_BYTES = 16 * 1024 * 1024
_HOST = "127.0.0.1"
#: Strangers who say nothing hold no more than so many threads, each for as long as a handshake may take.
_AT_ONCE = 64
_REQUEST_SECONDS = 10.0
_ANSWER_SECONDS = 10.0
_BREATH_SECONDS = 0.1


def ask(state: Path, request: Mapping[str, Any], timeout_seconds: float) -> dict[str, Any] | None:
    """Ask a running server of the store.

    A request that was sent is not sent again to another server: it is carried out at most once.

    Args:
        state: The store's folder of machine files, ``<home>/.state``.
        request: JSON; ``verb`` says what is wanted.
        timeout_seconds: For all of it.

    Returns:
        The answer, or None: no server of this version runs, or none answered in time.
    """
    deadline = time.monotonic() + timeout_seconds
    servers = [server for server in announced(state) if server.version == program_version()]
    return ask_first(servers, request, deadline)


def ask_first(servers: Sequence[Announcement], request: Mapping[str, Any], deadline: float) -> dict[str, Any] | None:
    """``ask`` the first of ``servers`` that is there, until ``deadline`` on the monotonic clock."""
    asked = json.dumps(request).encode()
    for others, server in zip(range(len(servers) - 1, -1, -1), servers, strict=True):
        left = deadline - time.monotonic()
        try:
            # One that hangs leaves half of the time to the others.
            channel = server.connect(deadline - left / 2 if others else deadline)
        except ChannelBroken:
            continue
        try:
            return _exchange(channel, asked, deadline)
        except (ChannelBroken, ValueError, RecursionError):
            return None
        finally:
            channel.close()
    return None


def _exchange(channel: Channel, request: bytes, deadline: float) -> dict[str, Any] | None:
    channel.send(request, deadline)
    answer = channel.receive(FRAME_LIMIT_BYTES, deadline)
    value = None if answer is None else json.loads(answer)
    return value if isinstance(value, dict) else None


class Line:
    """The answering side of one server; closed by ``close`` or with the process.

    Args:
        state: The store's folder of machine files.
        answer: Answers a request, in a thread of its own. An error of Runebook's becomes an answer; after any other
            the asker hears nothing.
        attach: Takes connections over; None refuses them.
        kind: What the server is: stdio, http or local.
        settings: Fingerprint by which hosts tell whether it serves what they ask for.

    Raises:
        OSError: If there can be no line: the disk is full or read-only, or loopback cannot be used.
    """

    def __init__(
        self, state: Path, answer: Answer, attach: Attach | None = None, *, kind: str = "stdio", settings: str = ""
    ) -> None:
        self._answer = answer
        self._attach = attach
        self._key = os.urandom(KEY_BYTES)
        self._room = threading.BoundedSemaphore(_AT_ONCE)
        self._closed = threading.Event()
        self._channels = set[Channel]()
        self._listener = socket.create_server((_HOST, 0), backlog=_AT_ONCE)
        try:
            self.announcement = Announcement(
                pid=os.getpid(),
                host=_HOST,
                port=self._listener.getsockname()[1],
                key=self._key.hex(),
                since=time.time(),
                version=program_version(),
                node=this_node(),
                kind=kind,
                settings=settings,
            )
            self._path = announce(state, self.announcement)
        except OSError:
            self._listener.close()
            raise
        _lines.add(self)
        threading.Thread(target=self._listen, name="runebook-line", daemon=True).start()

    def withdraw(self) -> None:
        """Let nobody else find this server."""
        withdraw(self._path)

    def close(self) -> None:
        """Take the announcement back and hang up; safe to call twice. Waits for nobody."""
        if os.getpid() != self.announcement.pid:  # forked: neither announcement nor connections are ours to end
            self.abandon()
            return
        self._closed.set()
        _lines.discard(self)
        self.withdraw()
        with suppress(OSError):  # wakes the thread that listens, where closing alone does not
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for channel in tuple(self._channels):
            channel.close()

    def abandon(self) -> None:
        """In a forked child: let go of the sockets. Line and announcement are the parent's."""
        self._closed.set()
        self._listener.close()
        for channel in tuple(self._channels):
            channel.abandon()

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed; or there is no descriptor left for it just now
                self._closed.wait(_BREATH_SECONDS)
                continue
            if not self._room.acquire(blocking=False):
                connection.close()
                continue
            call = threading.Thread(target=self._serve, args=(connection,), name="runebook-line-call", daemon=True)
            try:
                call.start()
            except RuntimeError:  # no thread can be had just now; the next caller may find one
                self._room.release()
                connection.close()
                self._closed.wait(_BREATH_SECONDS)

    def _serve(self, connection: socket.socket) -> None:
        channel = Channel(connection)
        self._channels.add(channel)
        waiting = True
        try:
            channel.prove_as_listener(self._key, time.monotonic() + HANDSHAKE_SECONDS)
            request = _read_request(channel)
            if self._attach is not None and request.get("verb") == "attach":
                self._room.release()
                waiting = False
                self._attach(request, channel)
            else:
                answer = json.dumps(_answered(self._answer, request)).encode()
                channel.send(answer, time.monotonic() + _ANSWER_SECONDS)
        except ChannelBroken as error:
            import logging  # not on the way of who asks

            logging.getLogger(__name__).debug("a call on the line ended early: %s", error)
        finally:
            if waiting:
                self._room.release()
            self._channels.discard(channel)
            channel.close()


def _read_request(channel: Channel) -> Mapping[str, Any]:
    """The request of a caller that has proved itself.

    Raises:
        ChannelBroken: If it does not come, or is no object.
    """
    frame = channel.receive(FRAME_LIMIT_BYTES, time.monotonic() + _REQUEST_SECONDS)
    try:
        request = json.loads(frame or b"")
    except (ValueError, RecursionError) as error:
        raise ChannelBroken("the request is not JSON") from error
    if not isinstance(request, dict):
        raise ChannelBroken("the request is no object")
    return request


def _answered(answer: Answer, request: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return answer(request)
    except RunebookError as error:
        return {"ok": False, "error": error.message, "hint": error.hint}


_lines: set[Line] = set()


def _abandon_all() -> None:
    for line in tuple(_lines):
        line.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)


FOLDER_NAME = "lines"
_SUFFIX = ".json"
_SIZE_LIMIT_BYTES = 16_384
#: More are not looked at, and the oldest of other machines go.
_COUNT_LIMIT = 64
_PROBE_SECONDS = 0.5


class Announcement(NamedTuple):
    """A server's word on where it listens; a tuple, because ``dataclasses`` alone costs a hook 10 ms to import.

    Attributes:
        pid: Its process.
        host: Loopback address.
        port: Where it listens.
        key: Hexadecimal; who knows it is the same user.
        since: When it began, in seconds since 1970.
        version: Of the program.
        node: Machine, and container, that it runs on.
        kind: What it is: stdio, http or local (started in the background for hosts that share it).
        settings: Fingerprint of its settings; empty where it takes no attachments.
        protocol: Of the line.
        state: Its store's folder of machine files; a copy of that folder holds announcements that are not its own.
    """

    pid: int
    host: str
    port: int
    key: str
    since: float
    version: str
    node: str
    kind: str
    settings: str = ""
    protocol: int = PROTOCOL
    state: str = ""

    def connect(self, deadline: float) -> Channel:
        """A proven channel to this server.

        Args:
            deadline: On the monotonic clock.

        Raises:
            ChannelBroken: If it is not there, or not in time.
        """
        return call((self.host, self.port), bytes.fromhex(self.key), deadline)


def announced(state: Path) -> list[Announcement]:
    """The servers that announced themselves here, on this machine, to this user.

    The oldest first: its model is loaded. Any may be dead. Reads nothing that somebody else could have written.
    """
    found = [
        announcement
        for path in _paths(state)
        if (announcement := _read(path)) is not None
        and announcement.node == this_node()
        and announcement.state == os.path.realpath(state)
    ]
    return sorted(found, key=lambda each: each.since)


def announce(state: Path, announcement: Announcement) -> Path:
    """Write an announcement, whole or not at all, and clear away those of dead servers.

    Returns:
        Its file, to be given to ``withdraw``.

    Raises:
        OSError: If it cannot be written so that only this user can read it.
    """
    folder = make_folder(state)
    _clear_away(state)
    name = f"{announcement.pid}-{os.urandom(4).hex()}"
    path = folder / f"{name}{_SUFFIX}"
    write_json(path, announcement._replace(state=os.path.realpath(state))._asdict())
    return path


def make_folder(state: Path) -> Path:
    """The folder of announcements and locks, this user's alone.

    Raises:
        OSError: If it cannot be made, or is somebody else's.
    """
    folder = state / FOLDER_NAME
    for each in (state.parent, state, folder):
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.is_symlink():  # what is cleared away there, and whose mode is set, would be somebody else's
        raise OSError(errno.ELOOP, f"{folder} is a link")
    if os.name == "posix":
        if folder.stat().st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, f"{folder} belongs to another user")
        folder.chmod(0o700)  # whoever could write here could take an announcement's place
    return folder


def withdraw(path: Path) -> None:
    """Remove an announcement; gone already is fine."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def this_node() -> str:
    """The machine, and where it has containers the one, in which this process runs."""
    if not sys.platform.startswith("linux"):
        import socket

        return socket.gethostname()
    spaces = [os.uname().nodename]
    for space in ("net", "pid"):  # an address and a process number mean something within these only
        try:
            spaces.append(str(Path(f"/proc/self/ns/{space}").readlink()))
        except OSError:
            spaces.append("")
    return " ".join(spaces)


def _paths(state: Path) -> list[Path]:
    folder = state / FOLDER_NAME
    try:
        names = [] if folder.is_symlink() else [entry.name for entry in os.scandir(folder)]
    except OSError:
        return []
    return [folder / name for name in sorted(names) if name.endswith(_SUFFIX)][: 4 * _COUNT_LIMIT]


def _read(path: Path) -> Announcement | None:
    """None for what is damaged, of another protocol, or not this user's alone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(file.fileno())
        if os.name == "posix" and (facts.st_uid != os.geteuid() or facts.st_mode & 0o077):
            return None
        if not stat.S_ISREG(facts.st_mode):
            return None
        try:
            return _parse(json.loads(file.read(_SIZE_LIMIT_BYTES)))
        except (OSError, ValueError, RecursionError):
            return None


def _parse(value: Any) -> Announcement | None:
    if not isinstance(value, Mapping) or value.get("protocol") != PROTOCOL:
        return None
    try:
        read = Announcement(**{name: value[name] for name in Announcement._fields})
        usable = len(bytes.fromhex(read.key)) == KEY_BYTES and read.host == "127.0.0.1" and 0 < int(read.port) < 65_536
        float(read.since), int(read.pid)
    except (KeyError, TypeError, ValueError):
        return None
    return read if usable else None


def _clear_away(state: Path) -> None:
    """Remove announcements of servers that are not there any more."""
    foreign: list[tuple[float, Path]] = []
    for path in _paths(state):
        read = _read(path)
        if read is not None and read.node != this_node():
            foreign.append((read.since, path))
        elif read is None or not _lives(read):
            withdraw(path)
    for _, path in sorted(foreign)[:-_COUNT_LIMIT]:
        withdraw(path)


def _lives(announcement: Announcement) -> bool:
    """Whether a server may still be there: only one that surely is not counts as gone."""
    if os.name == "posix":
        try:
            os.kill(announcement.pid, 0)
        except ProcessLookupError:
            return False
        except OSError:
            return True  # somebody else's process now; the address will tell nothing either
    try:
        announcement.connect(time.monotonic() + _PROBE_SECONDS).close()
    except ChannelBroken as error:
        return isinstance(error.__cause__, TimeoutError)
    return True
