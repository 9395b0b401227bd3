"""Small files in ``<state>/hooks/pending``, private to the user: conversations that are still to be stored.

A note is left before anything is tried and goes once it is done, so whatever ends a hook, the next hook or server
stores what it left; storing a conversation twice stores it once. What is not to be stored says
``memory_core.core.private_times``. Imports little: a host waits.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from memory_core.core.private_file import make_private, write_json

#: More conversations than this do not wait: the oldest ones go.
_COUNT_LIMIT = 1_000
#: A conversation that cannot be stored in so long never will be.
_PENDING_SECONDS = 14 * 86_400.0


class Pending(NamedTuple):
    """One conversation that is to be stored.

    Attributes:
        path: The note's file.
        event: Which of our events left it.
        host: Of which host.
        given: What that host sent: where the transcript is, or the messages.
        spaces: Of the user and the agent whose it is; empty are those of whoever stores it.
        at: When it was left, in seconds since 1970.
    """

    path: Path
    event: str
    host: str
    given: Mapping[str, Any]
    spaces: tuple[str, str]
    at: float


def leave(state: Path, event: str, host: str, given: Mapping[str, Any], spaces: tuple[str, str] = ("", "")) -> Path:
    """Note a conversation that is to be stored, see ``Pending``.

    Returns:
        The note's file, to be given to ``settle``.

    Raises:
        OSError: If it cannot be written.
    """
    now = time.time()
    path = _folder(state) / f"{int(now * 1e9):020d}-{os.getpid()}.json"
    make_private(path.parent)
    write_json(path, {"event": event, "host": host, "given": given, "at": now, "spaces": spaces})
    return path


def settle(path: Path) -> None:
    """The conversation is stored: the note goes."""
    with suppress(OSError):
        path.unlink()


def pending(state: Path) -> Iterator[Pending]:
    """Conversations that wait, the oldest first; what is no note, or waited too long, goes."""
    paths = _notes(state)
    for path in paths[:-_COUNT_LIMIT]:
        settle(path)
    for path in paths[-_COUNT_LIMIT:]:
        try:
            note = _read(path)
            user, agent = map(str, note.get("spaces") or ("", ""))
            at = float(note["at"])
            if time.time() - at > _PENDING_SECONDS or not isinstance(note["given"], dict):
                raise ValueError("of no use")
            yield Pending(path, str(note["event"]), str(note["host"]), note["given"], (user, agent), at)
        except OSError:  # gone, or out of reach just now
            continue
        except (ValueError, RecursionError, KeyError, TypeError):
            settle(path)


def waiting(state: Path) -> int:
    """How many conversations wait."""
    return len(_notes(state))


def _folder(state: Path) -> Path:
    return state / "hooks" / "pending"


def _notes(state: Path) -> list[Path]:
    try:
        return sorted(path for path in _folder(state).iterdir() if path.suffix == ".json")
    except OSError:
        return []


def _read(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_bytes())
    if not isinstance(value, dict):
        raise TypeError("it is no object")
    return value
