"""Small files in ``<state>/hooks`` that hooks and servers leave for each other, private to the user.

``pending``: a conversation that is still to be stored. The note is left before anything is tried and goes once it is
done, so whatever ends a hook, the next hook or server stores what it left; storing a conversation twice stores it once.
``private``: a time of which nothing is kept. A hook is a process of its own and knows nothing of a server's connection,
so a server that is told to keep nothing notes since when, until when and in which folder; what a transcript holds of
that time and folder is passed over. A server that ended meanwhile ended its private mode; whether one of another
container did cannot be asked, and after a week it counts as ended.
``passed-over``: until when nothing of one conversation is kept, because private mode was on by the settings. A host may
go on with a conversation after years, so these stay. Imports little: a host waits.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from server.private_file import make_private, write_json

#: More conversations than this do not wait: the oldest ones go.
_COUNT_LIMIT = 1_000
#: A conversation that cannot be stored in so long never will be.
_PENDING_SECONDS = 14 * 86_400.0
_PRIVATE_SECONDS = 60 * 86_400.0
#: A private mode that began so long ago is over, where its server's process cannot be asked.
_UNASKED_SECONDS = 7 * 86_400.0


class Pending(NamedTuple):
    """One conversation that is to be stored.

    Attributes:
        path: The note's file.
        event: Which of our events left it.
        host: Of which host.
        given: What that host sent: where the transcript is, or the messages.
        spaces: Of the user and the agent whose it is; empty are those of whoever stores it.
    """

    path: Path
    event: str
    host: str
    given: Mapping[str, Any]
    spaces: tuple[str, str]


def leave(state: Path, event: str, host: str, given: Mapping[str, Any], spaces: tuple[str, str] = ("", "")) -> Path:
    """Note a conversation that is to be stored, see ``Pending``.

    Returns:
        The note's file, to be given to ``settle``.

    Raises:
        OSError: If it cannot be written.
    """
    now = time.time()
    path = _folder(state, "pending") / f"{int(now * 1e9):020d}-{os.getpid()}.json"
    make_private(path.parent)
    write_json(path, {"event": event, "host": host, "given": given, "at": now, "spaces": spaces})
    return path


def settle(path: Path) -> None:
    """The conversation is stored: the note goes."""
    with suppress(OSError):
        path.unlink()


def pending(state: Path) -> Iterator[Pending]:
    """Conversations that wait, the oldest first; what is no note, or waited too long, goes."""
    paths = _notes(state, "pending")
    for path in paths[:-_COUNT_LIMIT]:
        settle(path)
    for path in paths[-_COUNT_LIMIT:]:
        try:
            note = _read(path)
            user, agent = map(str, note.get("spaces") or ("", ""))
            if time.time() - float(note["at"]) > _PENDING_SECONDS or not isinstance(note["given"], dict):
                raise ValueError("of no use")
            yield Pending(path, str(note["event"]), str(note["host"]), note["given"], (user, agent))
        except OSError:  # gone, or out of reach just now
            continue
        except (ValueError, RecursionError, KeyError, TypeError):
            settle(path)


def waiting(state: Path) -> int:
    """How many conversations wait."""
    return len(_notes(state, "pending"))


class PrivateTimes:
    """The times of which nothing of a conversation is kept.

    Args:
        state: The store's folder of machine files. Times of servers that are gone end now, and old ones go.
        folder: Where the conversation is held.
        talk: Which it is; see ``note_passed_over``.
    """

    def __init__(self, state: Path, folder: str, talk: str = "") -> None:
        self._times = [(since, until) for since, until, where in _private_times(state) if _same(where, folder)]
        if talk:
            with suppress(OSError, ValueError, KeyError, TypeError):
                self._times.append((0.0, float(_read(_passed_over(state, talk))["until"])))

    @property
    def is_on(self) -> bool:
        """Whether nothing is kept at present."""
        return any(since <= time.time() < until for since, until in self._times)

    def cover(self, moment: Any, earliest: float = 0.0) -> bool:
        """Whether what was said at a moment is not to be kept.

        Args:
            moment: ISO 8601; what tells no time may have been said at any from ``earliest`` until now.
            earliest: In seconds since 1970.
        """
        try:
            read = datetime.fromisoformat(moment)
        except (TypeError, ValueError):
            return any(until > earliest for _, until in self._times)
        at = (read if read.tzinfo is not None else read.replace(tzinfo=UTC)).timestamp()
        return any(since <= at < until for since, until in self._times)


def note_private(state: Path, folder: str, client: int, *, private: bool, now: float | None = None) -> None:
    """Note that from now on nothing is kept of a client, or that something is again.

    Where that cannot be written nothing can be stored either; that it could not is logged.

    Args:
        state: The store's folder of machine files.
        folder: Where the client works; empty for everywhere.
        client: Tells it from others of this process.
        private: Whether nothing is kept.
        now: In seconds since 1970; default the clock's.
    """
    from server.local.channel import this_node  # not on the way of a hook

    place = _folder(state, "private")
    at = time.time() if now is None else now
    whose = f"{os.getpid()}-{client}-"
    try:
        make_private(place)
        is_on = [path for path in place.glob(f"{whose}*.json") if _read(path)["until"] is None]
        if private and not is_on:
            facts = {"pid": os.getpid(), "node": this_node(), "since": at, "until": None, "folder": folder}
            write_json(place / f"{whose}{int(at * 1e6)}.json", facts)
        for path in () if private else is_on:
            write_json(path, {**_read(path), "until": at})
    except (OSError, ValueError, KeyError, TypeError) as error:
        import logging  # not on the way of a hook

        logging.getLogger(__name__).warning("hooks cannot be told of private mode: %s", error)


def talk_of(session_id: str | None, transcript: str, user_space: str) -> str:
    """The name of a conversation among the notes."""
    from hashlib import sha256  # seldom on the way of a hook

    return sha256(f"{session_id or transcript}\n{user_space}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def note_passed_over(state: Path, talk: str) -> None:
    """Note that nothing is kept of what a conversation holds by now: private mode was on by the settings.

    Where that cannot be written it is logged.
    """
    path = _passed_over(state, talk)
    try:
        make_private(path.parent)
        write_json(path, {"until": time.time()})
    except OSError as error:
        import logging  # not on the way of a hook

        logging.getLogger(__name__).warning("what was said in private mode cannot be passed over: %s", error)


def _passed_over(state: Path, talk: str) -> Path:
    return _folder(state, "passed-over") / f"{talk}.json"


def _private_times(state: Path) -> Iterator[tuple[float, float, str]]:
    """Since when, until when (in seconds since 1970; infinite while it lasts), and in which folder."""
    for path in _notes(state, "private"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            note = _read(path)
            if note["until"] is None and _is_over(note):
                note["until"] = time.time()
                write_json(path, note)
            until = float("inf") if note["until"] is None else float(note["until"])
            if until < time.time() - _PRIVATE_SECONDS:
                path.unlink()
            else:
                yield float(note["since"]), until, str(note["folder"])


def _same(folder: str, other: str) -> bool:
    """Whether a server of one folder may be the one that serves a host in the other."""
    if not folder or not other:
        return True
    one, two = _real(folder), _real(other)
    return one == two or one.startswith(two.rstrip(os.sep) + os.sep) or two.startswith(one.rstrip(os.sep) + os.sep)


def _real(folder: str) -> str:
    """A folder by one name, whichever link leads there."""
    try:
        return os.path.normcase(os.path.realpath(folder))
    except ValueError:  # no path of this system
        return folder


def _is_over(note: Mapping[str, Any]) -> bool:
    """Whether the private mode of an open note ended with its server; where that cannot be asked its age decides."""
    from server.local.channel import this_node  # seldom on the way of a hook

    # A process number means something in one container only, and on Windows asking would end the process.
    if os.name == "posix" and note.get("node") in (None, this_node()):
        return not _runs(int(note["pid"]))
    return time.time() - float(note["since"]) > _UNASKED_SECONDS


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


def _folder(state: Path, kind: str) -> Path:
    return state / "hooks" / kind


def _notes(state: Path, kind: str) -> list[Path]:
    try:
        return sorted(path for path in _folder(state, kind).iterdir() if path.suffix == ".json")
    except OSError:
        return []


def _read(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_bytes())
    if not isinstance(value, dict):
        raise TypeError("it is no object")
    return value
