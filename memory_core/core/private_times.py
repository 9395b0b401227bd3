"""Times of which nothing is kept of conversations; servers note them as small files in ``<state>/hooks/private``.

A hook is a process of its own and knows nothing of a server's connection, so a server that is told to keep nothing
notes since when, until when and in which folder; what a transcript holds of that time and folder is passed over, by
hooks and by imports, which may come years later. A server that ended meanwhile ended its private mode; whether one of
another container did cannot be asked, and after a week it counts as ended. Imports little: a host waits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from memory_core.core.conversation_notes import ALWAYS, PassedOver, read_json
from memory_core.core.private_file import make_private, write_json

#: Of more times than this the oldest go.
_COUNT_LIMIT = 2_000
#: A private mode that began so long ago is over, where its server's process cannot be asked.
_UNASKED_SECONDS = 7 * 86_400.0


class PrivateTimes:
    """The times of which nothing of a conversation is kept, and the messages that were passed over before.

    Args:
        state: The store's folder of machine files. Times of servers that are gone end now.
        folders: Where the conversation is held. An empty text says nothing; where nothing is said it may be anywhere.
        talks: What it may be called; see ``conversation_notes.talk_of``.
        began: In which folder it began, where its host's server works; empty where that is not known.
        said_in: The folders that messages name, by their ids. Such a message counts as said there and in ``began``;
            one that names none, as said in any of all these folders.
    """

    def __init__(
        self,
        state: Path,
        folders: Iterable[str],
        *talks: str,
        began: str = "",
        said_in: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._noted = list(_private_times(state))
        self._folders, self._began, self._said_in = frozenset((began, *folders, *said_in.values())), began, said_in
        self._in_folders: dict[frozenset[str], list[tuple[float, float]]] = {}
        self._passed_over = [PassedOver(state, talk) for talk in talks]

    @property
    def is_on(self) -> bool:
        """Whether nothing is kept at present."""
        return any(since <= time.time() < until for since, until in self._times(self._folders))

    def cover(self, message: Any, earliest: float = 0.0, latest: float = ALWAYS) -> bool:
        """Whether a message is not to be kept.

        Args:
            message: With its ``id``, and its ``time`` or ``timestamp`` as ISO 8601; one that tells no time was passed
                over before, or may have been said at any time from ``earliest`` to ``latest``.
            earliest: In seconds since 1970.
            latest: Likewise.
        """
        at = said_at(message)
        folder = self._said_in.get(str(message.get("id"))) if isinstance(message, Mapping) else None
        times = self._times(self._folders if folder is None else frozenset((self._began, folder)))
        if at is None:
            if any(earlier.holds(message) for earlier in self._passed_over):
                return True
            return any(until > earliest and since <= latest for since, until in times)
        return any(since <= at < until for since, until in times)

    def _times(self, folders: frozenset[str]) -> list[tuple[float, float]]:
        """Since when and until when nothing is kept of what is said in one of these folders."""
        if folders not in self._in_folders:
            known = [each for each in folders if each] or [""]
            wheres = {where for _, _, where in self._noted}
            here = {where for where in wheres if any(_same(where, each) for each in known)}
            noted = [(since, until) for since, until, where in self._noted if where in here]
            self._in_folders[folders] = [*noted, *(time for earlier in self._passed_over for time in earlier.times)]
        return self._in_folders[folders]


def said_at(message: Any) -> float | None:
    """When a message was said, in seconds since 1970; None for one that does not tell."""
    moment = message.get("time", message.get("timestamp")) if isinstance(message, Mapping) else None
    try:
        read = datetime.fromisoformat(moment)  # type: ignore[arg-type]
        return (read if read.tzinfo is not None else read.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


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
    from memory_core.core.process import birth, this_node  # not on the way of a hook

    place = _folder(state)
    at = time.time() if now is None else now
    pid = os.getpid()
    try:
        make_private(place)
        is_on = [path for path in place.glob(f"{pid}-{client}-*.json") if read_json(path)["until"] is None]
        if private and not is_on:
            process = {"pid": pid, "node": this_node(), "birth": birth(pid)}
            facts = {**process, "since": at, "until": None, "folder": folder}
            write_json(place / f"{pid}-{client}-{int(at * 1e6)}.json", facts)
            _drop_oldest(state)
        for path in () if private else is_on:
            write_json(path, {**read_json(path), "until": at})
    except (OSError, ValueError, KeyError, TypeError) as error:
        import logging  # not on the way of a hook

        logging.getLogger(__name__).warning("hooks cannot be told of private mode: %s", error)


def end_orphans(state: Path) -> None:
    """End the times of servers that are gone, as of now: whoever begins to serve or to store looks first."""
    for _ in _private_times(state):
        pass


def _private_times(state: Path) -> Iterator[tuple[float, float, str]]:
    """Since when, until when (in seconds since 1970; infinite while it lasts), and in which folder."""
    for path in _paths(state):
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = path.stat()
            note = dict(_as_written(path, found.st_ino, found.st_mtime_ns))
            if note["until"] is None and _is_over(note):
                note["until"] = time.time()
                write_json(path, note)
            until = ALWAYS if note["until"] is None else float(note["until"])
            yield float(note["since"]), until, str(note["folder"])


def _drop_oldest(state: Path) -> None:
    """Delete the oldest times that are over, where there are too many."""
    paths = sorted(_paths(state), key=lambda path: path.stem.rpartition("-")[2].zfill(20))
    for path in paths[:-_COUNT_LIMIT]:
        with suppress(OSError, ValueError, KeyError, TypeError):  # gone, or no note
            if read_json(path)["until"] is not None:
                path.unlink()


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
    from memory_core.core.process import runs, this_node  # seldom on the way of a hook

    # A process number means something in one container only, and on Windows asking would end the process.
    if os.name == "posix" and note.get("node") in (None, this_node()):
        return not runs(int(note["pid"]), note.get("birth"))
    return time.time() - float(note["since"]) > _UNASKED_SECONDS


def _folder(state: Path) -> Path:
    return state / "hooks" / "private"


def _paths(state: Path) -> list[Path]:
    try:
        return [path for path in _folder(state).iterdir() if path.suffix == ".json"]
    except OSError:
        return []


@lru_cache(maxsize=2 * _COUNT_LIMIT)
def _as_written(path: Path, _inode: int, _modified: int) -> Mapping[str, Any]:
    """A note, which is only ever replaced: an import of many conversations reads it once."""
    return read_json(path)
