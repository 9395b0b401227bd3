"""What hooks note of one conversation, as small files in ``<state>/hooks``, private to the user.

``passed-over``: times in which nothing of it was kept, because its hooks found private mode on by the settings, and by
digests which messages that tell no time were passed over. A host may go on with a conversation after years, so these
stay.
``read``: when a hook last stored what it held, or saw it begin: what is new and tells no time was said after it; and
the folder in which it began, where its host's server works whatever the host does later. Imports little: a host waits.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from memory_core.core.errors import RunebookError
from memory_core.core.private_file import make_private, write_json

#: When what lasts ends, in seconds since 1970.
ALWAYS = float("inf")
#: Of more messages of one conversation that tell no time than this the oldest go.
_MESSAGE_LIMIT = 10_000
_LOCK_SECONDS = 5.0
#: A prompt is given so long before its hook, at most.
_PROMPT_SECONDS = 1.0


class LastRead(NamedTuple):
    """What is known of a conversation from the hooks before.

    Attributes:
        at: When one stored what it held, or saw it begin, in seconds since 1970; None where that is not known.
        folder: Where it began; empty where that is not known.
    """

    at: float | None = None
    folder: str = ""


class PassedOver:
    """What earlier hooks kept out of a conversation.

    Args:
        state: The store's folder of machine files.
        talk: The conversation, see ``talk_of``.

    Attributes:
        times: Since when and until when nothing was kept, in seconds since 1970; infinite while that lasts.
    """

    def __init__(self, state: Path, talk: str) -> None:
        self.times: list[tuple[float, float]] = []
        self._digests: frozenset[str] = frozenset()
        self._salt = ""
        with suppress(OSError, ValueError, KeyError, TypeError):
            note = read_json(_passed_over(state, talk))
            self.times = _by_setting(note)
            self._salt, self._digests = str(note["salt"]), frozenset(note["messages"])

    def holds(self, message: Any) -> bool:
        """Whether this message, which tells no time, was passed over."""
        return bool(self._digests) and _digest(self._salt, message) in self._digests


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
                known = changed_at > (last_read(state, talk).at or 0.0)
                times.append((changed_at if known else 0.0 if stores else prompted, ALWAYS))
            until = now if stores else ALWAYS
        elif changed_at > seen:
            until = changed_at
        elif stores:
            until = now if times[-1][1] == ALWAYS else times[-1][1]
        else:
            until = max(seen, prompted)
        ended = [*times[:-1], (times[-1][0], until)]
        note |= {
            "times": [(since, None if until == ALWAYS else until) for since, until in ended],
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
            note |= read_json(path)
        yield note
        write_json(path, note)


def _by_setting(note: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Since when and until when private mode was on by the settings; infinite after a prompt, while it is."""
    before = [(0.0, float(note["until"]))] if note.get("until") else []  # by a version before
    return [
        *before,
        *((float(since), ALWAYS if until is None else float(until)) for since, until in note.get("times", ())),
    ]


def _is_on(path: Path) -> bool:
    try:
        return bool(read_json(path).get("on"))
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
    write_json(path, {"at": at, "folder": last_read(state, talk).folder or folder})


def last_read(state: Path, talk: str) -> LastRead:
    """What ``note_read`` noted last."""
    try:
        note = read_json(_read_note(state, talk))
        at, folder = note.get("at"), note.get("folder")
        return LastRead(None if at is None else float(at), str(folder or ""))
    except (OSError, ValueError, TypeError):
        return LastRead()


def copy_notes(state: Path, to: Path, *, with_read: bool) -> None:
    """Copy what is not kept of conversations, also ``private_times``, where a store gets another folder.

    A note that cannot be read is left out, which is logged.

    Args:
        state: The store's folder of machine files.
        to: The other one.
        with_read: Whether the other store holds what hooks stored, so that they need not read it again.

    Raises:
        OSError: If it cannot be written.
    """
    for kind in ("private", "passed-over", *(("read",) if with_read else ())):
        for path in (state / "hooks" / kind).glob("*.json"):
            try:
                note = read_json(path)
            except FileNotFoundError:  # deleted meanwhile
                continue
            except (OSError, ValueError, TypeError) as error:
                import logging  # not on the way of a hook

                logging.getLogger(__name__).warning("a note of private mode is left out: %s", error)
                continue
            make_private(to / "hooks" / kind)
            write_json(to / "hooks" / kind / path.name, note)


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
    return state / "hooks" / "read" / f"{talk}.json"


def _passed_over(state: Path, talk: str) -> Path:
    return state / "hooks" / "passed-over" / f"{talk}.json"


def read_json(path: Path) -> dict[str, Any]:
    """A note as it was written.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is no JSON.
        TypeError: If it is no object.
    """
    value = json.loads(path.read_bytes())
    if not isinstance(value, dict):
        raise TypeError("it is no object")
    return value
