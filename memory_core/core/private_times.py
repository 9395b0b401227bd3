"""What is not kept of conversations, as small files in ``<state>/hooks``, private to the user.

``private``: a time. A hook is a process of its own and knows nothing of a server's connection, so a server that is
told to keep nothing notes since when, until when and in which folder; what a transcript holds of that time and folder
is passed over, by hooks and by imports, which may come years later. A server that ended meanwhile ended its private
mode; whether one of another container did cannot be asked, and after a week it counts as ended.
``passed-over``: times in which nothing of one conversation was kept, because its hooks found private mode on by the
settings, and by digests which messages that tell no time were passed over. A host may go on with a conversation after
years, so these stay.
``read``: when a hook last stored what one conversation held, or saw it begin: what is new and tells no time was said
after it; and the folder in which it began, where its host's server works whatever the host does later. Imports little:
a host waits.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from memory_core.core.errors import RunebookError
from memory_core.core.private_file import make_private, write_json

#: Of more times than this the oldest go.
_COUNT_LIMIT = 2_000
#: Likewise of messages of one conversation that tell no time.
_MESSAGE_LIMIT = 10_000
_LOCK_SECONDS = 5.0
#: A prompt is given so long before its hook, at most.
_PROMPT_SECONDS = 1.0
#: A private mode that began so long ago is over, where its server's process cannot be asked.
_UNASKED_SECONDS = 7 * 86_400.0
_ALWAYS = float("inf")


class PrivateTimes:
    """The times of which nothing of a conversation is kept, and the messages that were passed over before.

    Args:
        state: The store's folder of machine files. Times of servers that are gone end now.
        folders: Where the conversation is held. An empty text says nothing; where nothing is said it may be anywhere.
        talks: What it may be called; see ``talk_of``.
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
        self._everywhere: list[tuple[float, float]] = []
        self._messages: list[tuple[str, frozenset[str]]] = []
        for talk in talks:
            with suppress(OSError, ValueError, KeyError, TypeError):
                note = _read(_passed_over(state, talk))
                self._everywhere += _by_setting(note)
                self._messages += [(str(note["salt"]), frozenset(note["messages"]))] if note.get("messages") else []

    @property
    def is_on(self) -> bool:
        """Whether nothing is kept at present."""
        return any(since <= time.time() < until for since, until in self._times(self._folders))

    def cover(self, message: Any, earliest: float = 0.0, latest: float = _ALWAYS) -> bool:
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
            if any(_digest(salt, message) in digests for salt, digests in self._messages):
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
            self._in_folders[folders] = [*noted, *self._everywhere]
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

    place = _folder(state, "private")
    at = time.time() if now is None else now
    pid = os.getpid()
    try:
        make_private(place)
        is_on = [path for path in place.glob(f"{pid}-{client}-*.json") if _read(path)["until"] is None]
        if private and not is_on:
            process = {"pid": pid, "node": this_node(), "birth": birth(pid)}
            facts = {**process, "since": at, "until": None, "folder": folder}
            write_json(place / f"{pid}-{client}-{int(at * 1e6)}.json", facts)
            _drop_oldest(state)
        for path in () if private else is_on:
            write_json(path, {**_read(path), "until": at})
    except (OSError, ValueError, KeyError, TypeError) as error:
        import logging  # not on the way of a hook

        logging.getLogger(__name__).warning("hooks cannot be told of private mode: %s", error)


def end_orphans(state: Path) -> None:
    """End the times of servers that are gone, as of now: whoever begins to serve or to store looks first."""
    for _ in _private_times(state):
        pass


def talk_of(session_id: str | None, transcript: str, user_space: str) -> str:
    """The name of a conversation among the notes.

    Args:
        session_id: As its host calls it.
        transcript: The path of its transcript, which tells it where the host does not call it anything.
        user_space: Whose it is.
    """
    from hashlib import sha256  # seldom on the way of a hook

    return sha256(f"{session_id or transcript}\n{user_space}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def note_setting(state: Path, talk: str, *, private: bool, changed_at: float | None = None, stores: bool) -> None:
    """Note whether private mode is on by the settings, as a hook meets a conversation.

    What was said between two hooks of which one finds it on and the other does not: the settings file decides, if it
    was changed between them; else a hook that follows a prompt sees it as it was when that was given. A hook that
    stores may be the only one that its host has: what it finds said in private is all that it would store.

    Args:
        state: The store's folder of machine files.
        talk: The conversation, see ``talk_of``.
        private: Whether it is on for this hook.
        changed_at: When the settings file was changed last, in seconds since 1970; None where there is none.
        stores: Whether the hook stores the conversation; others follow a prompt, or the beginning.

    Raises:
        OSError: If it cannot be written.
        StorageFailed: Likewise.
        StoreBusy: If other hooks write too long.
    """
    path, now = _passed_over(state, talk), time.time()
    if not private and not _is_on(path):
        return
    with _changing(path) as note:
        if not (private or note.get("on")):  # another hook has noted it
            return
        times, seen, prompted = _by_setting(note), float(note.get("seen", 0.0)), now - _PROMPT_SECONDS
        changed_at = changed_at or 0.0
        if private:
            if not note.get("on"):
                known = changed_at > (read_at(state, talk) or 0.0)
                times.append((changed_at if known else 0.0 if stores else prompted, _ALWAYS))
            until = now if stores else _ALWAYS
        elif changed_at > seen:
            until = changed_at
        elif stores:
            until = now if times[-1][1] == _ALWAYS else times[-1][1]
        else:
            until = max(seen, prompted)
        ended = [*times[:-1], (times[-1][0], until)]
        note |= {
            "times": [(since, None if until == _ALWAYS else until) for since, until in ended],
            "until": 0.0,
            "on": private,
            **({"seen": now} if private else {}),
        }


def note_passed_over(state: Path, talk: str, messages: Iterable[Any]) -> None:
    """Note which messages that tell no time are kept out of a conversation, for good.

    Args:
        state: The store's folder of machine files.
        talk: The conversation, see ``talk_of``.
        messages: What was passed over.

    Raises:
        OSError: If it cannot be written.
        StorageFailed: Likewise.
        StoreBusy: If other hooks write too long.
    """
    with _changing(_passed_over(state, talk)) as note:
        digests = dict.fromkeys(found for each in messages if (found := _digest(note["salt"], each)))
        before = [each for each in note["messages"] if each not in digests]
        note["messages"] = [*before, *digests][-_MESSAGE_LIMIT:]


@contextmanager
def _changing(path: Path) -> Iterator[dict[str, Any]]:
    """The note of a conversation, which is written after the block; hooks change it one after the other."""
    from memory_core.core.store.locks import StoreLock  # seldom on the way of a hook

    lock = StoreLock(path.with_name("passed-over.lock"), timeout_seconds=_LOCK_SECONDS, guarded="what is passed over")
    make_private(path.parent)
    with lock.held():
        note: dict[str, Any] = {"times": [], "salt": os.urandom(8).hex(), "messages": []}
        with suppress(OSError, ValueError, TypeError):  # there is none yet
            note |= _read(path)
        yield note
        write_json(path, note)


def _by_setting(note: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Since when and until when private mode was on by the settings; infinite after a prompt, while it is."""
    before = [(0.0, float(note["until"]))] if note.get("until") else []  # by a version before
    return [
        *before,
        *((float(since), _ALWAYS if until is None else float(until)) for since, until in note.get("times", ())),
    ]


def _is_on(path: Path) -> bool:
    try:
        return bool(_read(path).get("on"))
    except (OSError, ValueError, TypeError):
        return False


def note_read(state: Path, talk: str, at: float | None, folder: str = "") -> None:
    """Note that a hook stored what a conversation held at a time, or saw it begin then, and where it began.

    Args:
        state: The store's folder of machine files.
        talk: The conversation, see ``talk_of``.
        at: In seconds since 1970; None where that is not known.
        folder: Where it began, empty where that is not known; a folder that is noted stays.

    Raises:
        OSError: If it cannot be written.
    """
    path = _read_note(state, talk)
    make_private(path.parent)
    write_json(path, {"at": at, "folder": first_folder(state, talk) or folder})


def read_at(state: Path, talk: str) -> float | None:
    """The time that ``note_read`` noted last; None where none is noted."""
    try:
        return float(_read(_read_note(state, talk))["at"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def first_folder(state: Path, talk: str) -> str:
    """The folder in which a conversation began, as ``note_read`` noted it; empty where none is noted."""
    try:
        return str(_read(_read_note(state, talk))["folder"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _digest(salt: str, message: Any) -> str:
    """By what a message that was passed over is known, 64 bits; empty for what cannot be stored anyway."""
    from hashlib import sha256  # seldom on the way of a hook

    from memory_core.core.commit.forgotten import digest
    from memory_core.core.memory.message_shapes import parse_messages

    try:
        said = "".join(map(digest, parse_messages([message])))
    except RunebookError:
        return ""
    return sha256(f"{salt}{said}".encode()).hexdigest()[:16] if said else ""


def _read_note(state: Path, talk: str) -> Path:
    return _folder(state, "read") / f"{talk}.json"


def _passed_over(state: Path, talk: str) -> Path:
    return _folder(state, "passed-over") / f"{talk}.json"


def _private_times(state: Path) -> Iterator[tuple[float, float, str]]:
    """Since when, until when (in seconds since 1970; infinite while it lasts), and in which folder."""
    for path in _paths(state):
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = path.stat()
            note = dict(_as_written(path, found.st_ino, found.st_mtime_ns))
            if note["until"] is None and _is_over(note):
                note["until"] = time.time()
                write_json(path, note)
            until = _ALWAYS if note["until"] is None else float(note["until"])
            yield float(note["since"]), until, str(note["folder"])


def _drop_oldest(state: Path) -> None:
    """Delete the oldest times that are over, where there are too many."""
    paths = sorted(_paths(state), key=lambda path: path.stem.rpartition("-")[2].zfill(20))
    for path in paths[:-_COUNT_LIMIT]:
        with suppress(OSError, ValueError, KeyError, TypeError):  # gone, or no note
            if _read(path)["until"] is not None:
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


def _folder(state: Path, kind: str) -> Path:
    return state / "hooks" / kind


def _paths(state: Path) -> list[Path]:
    try:
        return [path for path in _folder(state, "private").iterdir() if path.suffix == ".json"]
    except OSError:
        return []


@lru_cache(maxsize=2 * _COUNT_LIMIT)
def _as_written(path: Path, _inode: int, _modified: int) -> Mapping[str, Any]:
    """A note, which is only ever replaced: an import of many conversations reads it once."""
    return _read(path)


def _read(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_bytes())
    if not isinstance(value, dict):
        raise TypeError("it is no object")
    return value
