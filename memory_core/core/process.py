"""What tells the processes of one machine apart. The standard library only: a host waits for its hooks."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

_START_TIME = 19  # among the values after the name in /proc/PID/stat


def this_node() -> str:
    """The machine, and where it has containers the one, in which this process runs."""
    if not sys.platform.startswith("linux"):
        return socket.gethostname()
    spaces = [os.uname().nodename]
    for space in ("net", "pid"):  # an address and a process number mean something within these only
        with suppress(OSError):
            spaces.append(os.readlink(f"/proc/self/ns/{space}"))  # noqa: PTH115 - as text
    return " ".join(spaces)


def birth(pid: int) -> str | None:
    """When a process of this node began: the machine's start and the ticks since; None where the system tells neither.

    A number is given again, at the latest after the next start of the machine; the two together are not.
    """
    try:
        values = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text('ascii').strip()} {int(values[_START_TIME])}"
    except (OSError, ValueError, IndexError):
        return None


def runs(pid: int, since: str | None = None) -> bool:
    """Whether a process of this node runs; not on Windows, where asking would end it.

    Args:
        pid: Its number.
        since: Its ``birth``, if it is known.
    """
    try:
        os.kill(pid, 0)
    except OSError as error:
        if isinstance(error, ProcessLookupError):
            return False
    found = birth(pid) if since is not None else None
    return found is None or found == since
