"""Which servers of a store run on this machine, and how to reach them: small files under ``<state>/lines``.

Owns: writing, reading and removing announcements. Each is readable by its user alone and holds the key of its server's
line; what others could have written or read is not believed. Left over after a kill, it is removed by the next server
that announces itself; until then it does no harm, for nobody at its address knows the key.

A store may be seen from several machines or containers: what was announced on another one is left alone. Imports the
standard library only.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from server.local.channel import KEY_BYTES, PROTOCOL, Channel, ChannelBroken, call
from server.private_file import write_json

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
