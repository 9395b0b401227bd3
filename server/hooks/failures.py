"""What went wrong with hooks: one line on stderr, and one in ``<state>/hooks.log``, which never grows large.

A line says when, at which event and why; nothing of what was said or remembered. Never raises, and makes no store.
"""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import suppress
from pathlib import Path

LOG_NAME = "hooks.log"
LIMIT_BYTES = 128 * 1024
_LINE_CHARS = 400
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")


def report(state: Path, event: str, message: str) -> None:
    """Tell of a failure."""
    shown = _UNPRINTABLE.sub(" ", message).strip()[:_LINE_CHARS]
    with suppress(OSError, ValueError):  # there may be no stderr
        sys.stderr.write(f"runebook hook {event}: {shown}\n")
    with suppress(OSError):
        _append(state / LOG_NAME, f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {event}: {shown}\n".encode())


def last_failures(state: Path, count: int) -> list[str]:
    """The last lines of the log, oldest first; none where there is no log."""
    try:
        with (state / LOG_NAME).open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - count * 2 * _LINE_CHARS))
            return stream.read().decode("utf-8", "replace").splitlines()[-count:]
    except OSError:
        return []


def _append(path: Path, line: bytes) -> None:
    """Add a line; of a log that became too large the newer half stays. One write each: hooks run at the same time."""
    if not path.parent.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "r+b", buffering=0) as stream:
        size = stream.seek(0, os.SEEK_END)
        if size > LIMIT_BYTES:
            stream.seek(size - LIMIT_BYTES // 2)
            kept = stream.read().partition(b"\n")[2]
            stream.truncate(0)
            line = kept + line
        stream.write(line)
