"""Times of which nothing is kept: a user switched private mode on inside a conversation that a host's hooks store.

A hook is a process of its own and knows nothing of a server's connection. So a server that is told to keep nothing
notes in ``<state>/hooks/private`` since when, until when, and in which folder; what a transcript holds of that time and
folder is passed over. A server that ended meanwhile ended its private mode. The standard library alone.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from server.private_file import make_private, write_json

_FOLDER = ("hooks", "private")
_KEPT_SECONDS = 60 * 86_400.0


class Period(NamedTuple):
    """A time of which nothing is kept, in seconds since 1970; ``until`` is infinite while it lasts.

    Attributes:
        since: Its beginning.
        until: Its end.
        folder: Of the server that was told; empty for one of all folders.
    """

    since: float
    until: float
    folder: str


class PrivateTimes:
    """The times that matter for one conversation.

    Args:
        periods: All that are known.
        folder: Where the conversation is held.
    """

    def __init__(self, periods: Iterable[Period], folder: str) -> None:
        self._periods = [period for period in periods if _same(period.folder, folder)]

    @property
    def is_on(self) -> bool:
        """Whether nothing is kept at present."""
        return any(period.since <= time.time() < period.until for period in self._periods)

    def cover(self, moment: Any, earliest: float = 0.0) -> bool:
        """Whether what was said at a moment is not to be kept.

        Args:
            moment: ISO 8601; what tells no time may have been said at any from ``earliest`` until now.
            earliest: In seconds since 1970.
        """
        at = _seconds(moment)
        if at is None:
            return any(period.until > earliest for period in self._periods)
        return any(period.since <= at < period.until for period in self._periods)


def note(state: Path, folder: str, client: int, *, private: bool, now: float | None = None) -> None:
    """Note that from now on nothing is kept of a client, or that something is again.

    Where that cannot be written nothing can be stored either; that it could not is logged.

    Args:
        state: The store's folder of machine files.
        folder: Where the client works.
        client: Tells it from others of this process.
        private: Whether nothing is kept.
        now: In seconds since 1970; default the clock's.
    """
    place = state.joinpath(*_FOLDER)
    at = time.time() if now is None else now
    whose = f"{os.getpid()}-{client}-"
    try:
        make_private(place)
        is_on = [path for path in place.glob(f"{whose}*.json") if _read(path)["until"] is None]
        if private and not is_on:
            facts = {"pid": os.getpid(), "since": at, "until": None, "folder": folder}
            write_json(place / f"{whose}{int(at * 1e6)}.json", facts)
        for path in () if private else is_on:
            write_json(path, {**_read(path), "until": at})
    except (OSError, ValueError, KeyError, TypeError) as error:
        import logging  # not on the way of a hook

        logging.getLogger(__name__).warning("hooks cannot be told of private mode: %s", error)


def periods(state: Path) -> list[Period]:
    """All that are noted; those of a server that is gone end now, and old ones go."""
    found: list[Period] = []
    with suppress(OSError):
        for path in sorted(state.joinpath(*_FOLDER).iterdir()):
            with suppress(OSError, ValueError, KeyError, TypeError):
                known = _read(path)
                until = known["until"]
                if until is None and not _runs(int(known["pid"])):
                    until = time.time()
                    write_json(path, {**known, "until": until})
                if until is not None and until < time.time() - _KEPT_SECONDS:
                    path.unlink()
                    continue
                since = float(known["since"])
                found.append(Period(since, float("inf") if until is None else float(until), str(known["folder"])))
    return found


def _same(folder: str, other: str) -> bool:
    """Whether a server of one folder may be the one that serves a host in the other."""
    if not folder or not other:
        return True
    one, two = (os.path.normcase(os.path.abspath(each)) for each in (folder, other))  # noqa: PTH100 - no file is asked
    return one == two or one.startswith(two.rstrip(os.sep) + os.sep) or two.startswith(one.rstrip(os.sep) + os.sep)


def _seconds(moment: Any) -> float | None:
    try:
        read = datetime.fromisoformat(moment)
    except (TypeError, ValueError):
        return None
    return (read if read.tzinfo is not None else read.replace(tzinfo=UTC)).timestamp()


def _runs(pid: int) -> bool:
    if os.name != "posix":
        return True  # asking would end it there; its server notes the end itself
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _read(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_bytes())
    if not isinstance(value, dict):
        raise TypeError("it is no object")
    return value
