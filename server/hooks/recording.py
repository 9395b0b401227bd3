"""A host's conversation on its way into the store: what is new of it, verbatim, with its tool calls, no model asked.

A transcript only grows, so how far it was read is remembered in ``<state>/hooks/read``, and each hook reads on from a
little before: the cost is that of what is new, however long the conversation became. What is read twice is stored
once. Files of any size are taken slice by slice, each remembered when it is stored.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from memory_core.core.store import atomic
from memory_core.features.imports import claude_code
from memory_core.features.imports.conversation_recorder import ConversationRecorder
from memory_core.features.imports.items import ConversationItem, Item, digest_of
from memory_core.features.imports.sources import Entry, Source, lines
from server.hooks.event import CLAUDE_CODE, HookEvent
from server.hooks.transcript import WHOLE_LIMIT_BYTES, end_of_lines, message_of, path_of, records_in

if TYPE_CHECKING:
    from memory_core.runebook import Runebook
    from server.hooks.private_times import PrivateTimes


_SLICE_BYTES = 16 * 1024 * 1024
#: Read again each time, so that calls and their results come together: so many lines, of so many bytes at most.
_OVERLAP_LINES, _OVERLAP_BYTES = 40, 1024 * 1024
_HEAD_BYTES = 256
#: Where how far transcripts were read is remembered, and for how long.
_FOLDER = ("hooks", "read")
_DAY_SECONDS = 86_400.0
_KEPT_SECONDS = 60 * _DAY_SECONDS


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of a conversation: its main session, new messages, and what could not be taken."""

    session_id: str
    messages: int = 0
    left_out: tuple[str, ...] = ()


def record(memory: Runebook, event: HookEvent, here: str | None, private: PrivateTimes) -> Stored:
    """Store what is new of the conversation that an event is about.

    Args:
        memory: The store; must be writable.
        event: With a transcript, or with messages.
        here: The project that the host works in.
        private: When nothing was to be kept; messages of these times are passed over.

    Raises:
        StoreBusy: If another writer held the store too long. What came before is stored.
        StorageFailed: If the disk refuses. What came before is stored.
    """
    recorder = _Recorder(memory, event, here, private)
    path = path_of(event.transcript)
    if event.messages:
        recorder.take(iter([recorder.talk(event.messages)]))
    elif path is not None and path.suffix == ".json":
        recorder.take(iter([recorder.talk(list(_whole(path)))]))
    elif path is not None:
        growing = _Growing(path, memory)
        recorder.earliest = growing.left_at or recorder.earliest
        for part in growing.parts():
            recorder.take(recorder.items(part))
    memory.indexer.follow()
    return recorder.stored


class _Recorder:
    """Records the items of one conversation."""

    def __init__(self, memory: Runebook, event: HookEvent, here: str | None, private: PrivateTimes) -> None:
        config = memory.config
        scope = ("hooks", config.user_space, config.agent_space)
        self._recorder = ConversationRecorder(memory, scope)
        self._event = event
        self._belonging = memory.projects.belonging(None, None, here)
        self._private = private
        #: Since when what tells no time may have been said, in seconds since 1970.
        self.earliest = time.time() - _DAY_SECONDS
        self._session = _session(memory, event)
        self.stored = Stored(self._session)

    def talk(self, messages: Any) -> ConversationItem:
        """Messages as one conversation, after the system prompt if the host told it."""
        return ConversationItem(self._session, self._event.host, self._session, (*self._system(), *messages))

    def items(self, source: Source) -> Iterator[Item]:
        """The conversations in a part of a transcript, the main one first."""
        [entry] = source.entries
        if self._event.host != CLAUDE_CODE:
            values = (found.value for found in lines(source, entry))
            yield self.talk([message for value in values if (message := message_of(value)) is not None])
            return
        for item in claude_code.FORMAT.read(source, entry):
            if isinstance(item, ConversationItem):
                aside = item.item_id.endswith(" sub")
                session = f"{self._session}-{item.session_id.rpartition('-')[2]}" if aside else self._session
                messages = item.messages if aside else (*self._system(), *item.messages)
                yield replace(item, item_id=session, session_id=session, messages=messages)
            else:
                yield item

    def take(self, items: Iterator[Item]) -> None:
        """Record what is new of them."""
        now = datetime.now(UTC)
        for item in items:
            if not isinstance(item, ConversationItem):
                continue
            kept = tuple(message for message in item.messages if not self._is_private(message))
            done = self._recorder.record(replace(item, messages=kept), self._belonging, now)
            left_out = [f"{left.place}: {left.reason}" for left in done.left_out]
            if len(kept) < len(item.messages):
                left_out.append(f"{len(item.messages) - len(kept)} of a time in which private mode was on")
            self.stored = replace(
                self.stored,
                messages=self.stored.messages + done.messages,
                left_out=(*self.stored.left_out, *left_out),
            )

    def _is_private(self, message: Any) -> bool:
        moment = message.get("time", message.get("timestamp")) if isinstance(message, Mapping) else None
        return self._private.cover(moment, self.earliest)

    def _system(self) -> list[Mapping[str, Any]]:
        given = self._event.given.get("system_prompt") or self._event.given.get("system")
        if not isinstance(given, str) or not given.strip():
            return []
        return [{"role": "system", "content": given, "id": f"system-{digest_of(given)}"}]


class _Growing:
    """A transcript that is only added to, from where it was left."""

    def __init__(self, path: Path, memory: Runebook) -> None:
        self._path = path
        name = digest_of([str(path.absolute()), memory.config.user_space])
        self._memo = memory.store.files.state.joinpath(*_FOLDER, f"{name}.json")

    @property
    def left_at(self) -> float | None:
        """When it was left, in seconds since 1970; None for one that is new."""
        try:
            return self._memo.stat().st_mtime
        except OSError:
            return None

    def parts(self) -> Iterator[Source]:
        """What is new, part by part; each is remembered once the caller asks for the next."""
        with self._path.open("rb") as stream:
            head = hashlib.sha256(stream.read(_HEAD_BYTES)).hexdigest()
            end = end_of_lines(stream)
            start = self._known(head, end)
            while start < end:
                stop = _line_end(stream, min(start + _SLICE_BYTES, end), end)
                yield self._part(start, stop)
                self._remember(head, stop, _overlap(stream, start, stop))
                start = stop

    def _part(self, start: int, stop: int) -> Source:
        def opened(_entry: Entry) -> IO[bytes]:
            with self._path.open("rb") as stream:
                stream.seek(start)
                return io.BytesIO(stream.read(stop - start))

        return Source(self._path.name, [Entry(self._path.name, stop - start, None, self._path)], opened)

    def _known(self, head: str, end: int) -> int:
        """Where to read on; 0 for a file that is new, or not the one it was."""
        try:
            known = json.loads(self._memo.read_bytes())
            sound = known["head"] == head and 0 <= known["again"] <= known["end"] <= end
        except (OSError, ValueError, KeyError, TypeError):
            return 0
        if not sound:
            return 0
        return int(known["end"] if known["end"] == end else known["again"])

    def _remember(self, head: str, end: int, again: int) -> None:
        if end < _HEAD_BYTES:
            return  # its beginning may still grow
        if not self._memo.parent.is_dir():
            atomic.make_folder(self._memo.parent)
        atomic.replace(self._memo, json.dumps({"head": head, "end": end, "again": again}))


def forget_old_readings(state: Path, now_seconds: float) -> None:
    """Drop how far transcripts were read that nobody wrote to for long."""
    with suppress(OSError):
        for memo in state.joinpath(*_FOLDER).iterdir():
            if memo.stat().st_mtime < now_seconds - _KEPT_SECONDS:
                memo.unlink(missing_ok=True)


def _session(memory: Runebook, event: HookEvent) -> str:
    """The session of an event; that of an import which brought its beginning, where one did."""
    own = event.session_id or f"session-{digest_of([event.transcript, event.host, str(event.messages[:1])])}"
    imported = f"{event.host}-{own}"
    files, sessions = memory.store.files, memory.commits
    is_imported = files.is_dir(sessions.sessions.child(imported)) and not files.is_dir(sessions.sessions.child(own))
    return imported if is_imported else own


def _whole(path: Path) -> Iterator[dict[str, Any]]:
    """The messages of a transcript that is one JSON value; none of one that is being written."""
    with path.open("rb") as stream:
        content = stream.read(WHOLE_LIMIT_BYTES + 1)
    try:
        value = json.loads(content) if len(content) <= WHOLE_LIMIT_BYTES else None
    except (ValueError, RecursionError):
        value = None
    for entry in records_in(value):
        message = message_of(entry)
        if message is not None:
            yield message


def _line_end(stream: IO[bytes], at: int, end: int) -> int:
    """The end of the line that ``at`` is in."""
    if at >= end:
        return end
    stream.seek(at)
    while chunk := stream.read(_OVERLAP_BYTES):
        newline = chunk.find(b"\n")
        if newline >= 0:
            return min(end, stream.tell() - len(chunk) + newline + 1)
    return end


def _overlap(stream: IO[bytes], start: int, stop: int) -> int:
    """From where the next hook reads again: some lines before ``stop``."""
    begin = max(start, stop - _OVERLAP_BYTES)
    stream.seek(begin)
    tail = stream.read(stop - begin)
    place = len(tail)
    for _ in range(_OVERLAP_LINES + 1):
        newline = tail.rfind(b"\n", 0, place)
        if newline < 0:
            return begin if begin == start else begin + place + (0 if place == len(tail) else 1)
        place = newline
    return begin + place + 1
