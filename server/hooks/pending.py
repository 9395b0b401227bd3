"""Conversations that are still to be stored: a note is left before anything is tried, and goes once it is done.

So whatever ends a hook, the host's limit or a kill, the next hook or the next start of a server stores what it left
(``answers.take_in``). A note holds the host's event: where the transcript is, or the messages that came along. Each is
a file of its own, private to the user; storing a conversation twice stores it once. The standard library alone.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from server.private_file import make_private, write_json

_FOLDER = ("hooks", "pending")
_SUFFIX = ".json"
_LIMIT_BYTES = 16 * 1024 * 1024
#: More notes than this are not kept: the oldest ones go.
_COUNT_LIMIT = 1_000
#: A note that cannot be followed in so long never will be.
KEPT_SECONDS = 14 * 86_400.0


class Note(NamedTuple):
    """One conversation that is to be stored.

    Attributes:
        path: The note's file.
        event: Which of our events left it.
        host: Of which host.
        given: What that host sent.
        at: When, in seconds since 1970.
        spaces: Of the user and the agent whose it is; empty are those of whoever follows it.
    """

    path: Path
    event: str
    host: str
    given: Mapping[str, Any]
    at: float
    spaces: tuple[str, str] = ("", "")


def leave(state: Path, event: str, host: str, given: Mapping[str, Any], spaces: tuple[str, str] = ("", "")) -> Path:
    """Leave a note, see ``Note``; the folder is made if need be.

    Returns:
        Its file, to be given to ``settle``.

    Raises:
        OSError: If it cannot be written.
    """
    folder = state.joinpath(*_FOLDER)
    make_private(folder)
    now = time.time()
    name = f"{int(now * 1e9):020d}-{os.getpid()}"
    path = folder / f"{name}{_SUFFIX}"
    write_json(path, {"event": event, "host": host, "given": given, "at": now, "spaces": spaces})
    return path


def settle(path: Path) -> None:
    """The conversation is stored: the note goes."""
    with suppress(OSError):
        path.unlink()


def notes(state: Path) -> Iterator[Note]:
    """Notes that were left, the oldest first; what is no note, or nobody could follow any more, goes."""
    paths = _paths(state)
    for path in paths[:-_COUNT_LIMIT]:
        settle(path)
    for path in paths[-_COUNT_LIMIT:]:
        try:
            with path.open("rb") as stream:
                content = stream.read(_LIMIT_BYTES + 1)
        except OSError:  # gone, or out of reach just now
            continue
        note = _read(path, content)
        if note is not None and time.time() - note.at <= KEPT_SECONDS:
            yield note
        else:
            settle(path)


def waiting(state: Path) -> int:
    """How many notes there are."""
    return len(_paths(state))


def _paths(state: Path) -> list[Path]:
    try:
        return sorted(path for path in state.joinpath(*_FOLDER).iterdir() if path.suffix == _SUFFIX)
    except OSError:
        return []


def _read(path: Path, content: bytes) -> Note | None:
    try:
        value = json.loads(content)
        given = value["given"]
        user, agent = value.get("spaces") or ("", "")
        if not isinstance(given, dict):
            return None
        whose = (str(user), str(agent))
        return Note(path, str(value["event"]), str(value["host"]), given, float(value["at"]), whose)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None
