"""Which user of this machine is at the other end of a connection over loopback, as the system tells.

Linux lists its TCP sockets with their owners; elsewhere nothing is known, and a token has to say who asks. So it does
where this process runs as the user that stands for all whom its user namespace does not know (``nobody``).
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import NamedTuple

_TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_UNKNOWN_USERS = Path("/proc/sys/kernel/overflowuid")
_LOCAL, _REMOTE, _UID, _INODE = 1, 2, 7, 9


class Address(NamedTuple):
    """One end of a TCP connection."""

    host: str
    port: int


def can_tell_users() -> bool:
    """Whether this system tells whose a connection is."""
    return _TABLES[0].is_file() and not _is_anybody()


def is_own(peer: Address, server: Address) -> bool:
    """Whether the other end of a connection is held by a process of the user who runs this one.

    Args:
        peer: Where the connection comes from.
        server: Where it arrives.
    """
    wanted = {(_written(peer, mapped), _written(server, mapped)) for mapped in (False, True)}
    for table in _TABLES:
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except (OSError, ValueError):
            continue
        for fields in map(str.split, lines):
            # A socket that no process holds any more has no inode, and shows root as its owner.
            if (fields[_LOCAL], fields[_REMOTE]) in wanted and fields[_INODE] != "0":
                return int(fields[_UID]) == os.geteuid() and not _is_anybody()
    return False


def _is_anybody() -> bool:
    """Whether the number of this process's user is the one that strangers are shown by, too."""
    try:
        return int(_UNKNOWN_USERS.read_text(encoding="ascii")) == os.geteuid()
    except (OSError, ValueError):
        return False


def _written(address: Address, mapped: bool) -> str:
    """An address as the kernel lists it: words of four bytes in the machine's own order, in hexadecimal."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    packed = socket.inet_pton(family, address.host.partition("%")[0])
    if mapped and family == socket.AF_INET:
        packed = b"\0" * 10 + b"\xff\xff" + packed
    words = "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed))
    return f"{words}:{address.port:04X}"
