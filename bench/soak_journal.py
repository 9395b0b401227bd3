"""What was acknowledged, written down by the soak itself: one JSON line each, synced before the next step.

The journal lies outside the store, so nothing done to the store reaches it. A proof needs it and the store, no more.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Committed:
    """An acknowledged commit of one file: the body that it left, None for a deletion."""

    commit_id: str
    request_id: str
    uri: str
    body: str | None
    milliseconds: float | None = None
    transport: str = ""
    theme: int | None = None
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Added:
    """An acknowledged commit that added to a shared counter."""

    commit_id: str
    request_id: str
    uri: str
    calls: int
    milliseconds: float


@dataclass(frozen=True, slots=True)
class Said:
    """Acknowledged messages of a conversation: all that the session holds by now, in order."""

    commit_id: str
    uri: str
    messages: list[str]


@dataclass(frozen=True, slots=True)
class Edited:
    """What a person did to a file: the whole text that was saved, None for a removed file."""

    uri: str
    text: str | None
    how: Literal["created", "saved", "in place", "renamed", "removed", "shared"]


@dataclass(frozen=True, slots=True)
class Harmed:
    """A kill, a pause, or damage to the index."""

    what: str


@dataclass(frozen=True, slots=True)
class Wrong:
    """Something that must not be, seen while the soak ran."""

    what: str


Entry: TypeAlias = Committed | Added | Said | Edited | Harmed | Wrong
_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Committed, Added, Said, Edited, Harmed, Wrong)}


class Journal:
    """An append-only file of entries, safe to use from many threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._guard = threading.Lock()
        self._stream = path.open("ab", buffering=0)

    def write(self, entry: Entry) -> None:
        """Append an entry; it is on the disk when this returns."""
        line = {"kind": type(entry).__name__, "at": round(time.time(), 3), **asdict(entry)}
        with self._guard:
            self._stream.write(json.dumps(line, ensure_ascii=False).encode("utf-8") + b"\n")
            os.fsync(self._stream.fileno())

    def close(self) -> None:
        """Release the file."""
        self._stream.close()


def entries(path: Path) -> Iterator[Entry]:
    """The journal's entries in order; a torn last line was never acted upon."""
    for line in path.read_bytes().split(b"\n"):
        if not line.endswith(b"}"):
            continue
        members: dict[str, Any] = json.loads(line)
        members.pop("at")
        kind = _KINDS[members.pop("kind")]
        entry: Entry = kind(**members)
        yield entry
