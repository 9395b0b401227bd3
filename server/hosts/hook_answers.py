"""What a host is told at an event, and what is stored then, from an open store.

Used by a running server that a hook asks over the channel, and by the hook itself where none runs. Respects what the
view of the store may do: a private or read-only one stores nothing. A conversation is stored verbatim with its tool
calls, and what a model has to say is never waited for: a server makes memories of it afterwards.

A transcript only grows, so how far it was read is remembered in ``<state>/hooks/read``, and each hook reads on from a
little before: the cost is that of what is new, however long the conversation became. What is read twice is stored
once. Files of any size are taken part by part, each remembered when it is stored.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import shlex
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from memory_core.core.caller import Access, authored
from memory_core.core.commit.receipts import EXTRACTION
from memory_core.core.conversation_notes import last_read, note_passed_over, note_read, note_setting, talk_of
from memory_core.core.errors import ConfigInvalid, InvalidInput, RunebookError, StoreBusy
from memory_core.core.extract.trigger import WAITING, ExtractionTrigger
from memory_core.core.llm.client import COMMAND, PROVIDERS
from memory_core.core.memory.requests import RetrieveRequest
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.private_file import make_private, write_json
from memory_core.core.private_times import PrivateTimes, said_at
from memory_core.core.search.context_formats import as_data
from memory_core.core.search.context_sources import skill_name_of
from memory_core.core.store.locks import StoreLock
from memory_core.features.imports.items import ConversationItem, digest_of
from server.commands.opening import project_of
from server.foreign_json import json_value
from server.hosts import hook_notes
from server.hosts.hook import CLAUDE_CODE, POST_READ, SESSION_END, SESSION_START, STOP, STORING, HookEvent, read_event
from server.hosts.hook_notes import Pending
from server.hosts.transcripts import last_said, message_of, path_of, whole

if TYPE_CHECKING:
    from memory_core.core.config import Config
    from memory_core.core.memory.results import ContextPack
    from memory_core.features.imports.sources import Entry, Source
    from memory_core.runebook import Runebook


_log = logging.getLogger(__name__)
#: Claude Code and Cursor put what is longer into a file that the model would have to open; 10,000 is their limit.
TEXT_LIMIT_CHARS = 9_500
_INPUT = "\n<current_input>\n"
_LEAST_TOKENS = 200
#: What is done in the background waits for its turn: all of it stores the same conversations.
_background = threading.Lock()

_PART_BYTES = 16 * 1024 * 1024
#: Read again each time, so that calls and their results come together.
_OVERLAP_BYTES = 128 * 1024
_HEAD_BYTES = 256
_DAY_SECONDS = 86_400.0
_MEMO_KEPT_SECONDS = 60 * _DAY_SECONDS

_TOOL_EVENTS = frozenset({"PostToolUse", "AfterTool", "postToolUse"})
_READERS = frozenset({"read", "read_file", "readfile", "read_text_file", "view", "view_file", "open_file"})
_SHELL_TOOLS = frozenset({"bash", "shell", "run_shell_command", "powershell"})
_PATHS = ("file_path", "path", "absolute_path", "filePath", "target_file")
_COMMAND_CHARS = 10_000
_NAME_CHARS = 200


class HookAnswer(NamedTuple):
    """What a hook was answered.

    Attributes:
        text: What the host's model is to know; empty for nothing.
        stored: New messages of the conversation that were stored.
        notes: What could not be done, for a log.
        due: Whether a process of its own should make memories now, see ``make_memories``.
    """

    text: str = ""
    stored: int = 0
    notes: tuple[str, ...] = ()
    due: bool = False


def answer(
    memory: Runebook, event: str, given: Mapping[str, Any], host: str = "", *, resident: bool = True
) -> HookAnswer:
    """Answer a host's event.

    Args:
        memory: The store, as the host's user may see it.
        event: One of ``hook.EVENTS``.
        given: What the host sent.
        host: One of ``hook.HOSTS``; empty tells it by what was sent.
        resident: Whether this process stays, so that there is time for what can wait.

    Raises:
        InvalidInput: If the event is none.
        RunebookError: If the store cannot be used.
    """
    read = read_event(event, given, host)
    if not getattr(memory.config.hooks, event.replace("-", "_")):
        return HookAnswer()
    if event in STORING:
        return _store_event(memory, read, resident=resident)
    state, talk = memory.store.files.state, talk_of(read.session_id, read.transcript, memory.config.user_space)
    known_at, began = last_read(state, talk)
    private = PrivateTimes(state, read.folders, talk, began=began)
    if memory.access is Access.READ_WRITE and private.is_on:
        memory = memory.view(access=Access.PRIVATE)
    here = project_of(memory.config, read.cwd)
    if event == POST_READ:
        name = skill_named(given)
        return HookAnswer("" if name is None else memory.skill_memory(name, here=here))
    if event == SESSION_START:
        if resident:
            begin_taking_in(memory)
        return HookAnswer(_opening(memory, read, here), due=_has_unfinished(memory))
    if memory.access is Access.PRIVATE:  # nothing is noted of what is asked
        return HookAnswer(_recalled(memory, read, here, lambda _: False))
    earliest = _earliest(known_at, path_of(read.transcript), time.time())
    return HookAnswer(_recalled(memory, read, here, partial(private.cover, earliest=earliest)))


def _opening(memory: Runebook, event: HookEvent, here: str | None) -> str:
    """What a session begins with; after a compaction also what its context has to keep."""
    told, waits = "", memory.waiting_line(event.session_id) or ""
    if event.source == "compact" and event.session_id is not None:
        told = memory.working_memory(event.session_id).text()
    if told:
        told = f'<working_memory note="kept from before the compaction">\n{as_data(told)}\n</working_memory>'
    budget = memory.config.hooks.session_start_tokens
    request = RetrieveRequest(session_id=event.session_id, token_budget=budget, fresh=event.is_fresh, here=here)
    pack = memory.retrieve(request, fit=_fits(TEXT_LIMIT_CHARS - len(told) - len(waits)))
    return "\n".join(part for part in (pack.text, told, as_data(waits)) if part)


def _recalled(memory: Runebook, event: HookEvent, here: str | None, is_private: Callable[[Any], bool]) -> str:
    """What bears on a prompt and the messages before it, but for those that are private: what was asked is noted."""
    count = memory.config.retrieve.query_messages
    just_said = event.messages[-1:] if not event.prompt else ()
    before = event.messages[: len(event.messages) - len(just_said)]
    messages: list[Any] = [*(each for each in before if not is_private(each)), *just_said]
    if not event.messages:
        said = last_said(event.transcript, count, is_private)
        said = said[:-1] if said and said[-1] == event.prompt.strip() else said
        messages = [{"role": "user", "content": text} for text in said[max(0, len(said) - (count - 1)) :]]
    if event.prompt:
        messages.append({"role": "user", "content": event.prompt})
    if not messages:
        return ""
    budget = memory.config.hooks.user_prompt_tokens
    request = RetrieveRequest(messages=messages, session_id=event.session_id, token_budget=budget, here=here)
    pack = memory.retrieve(request, fit=_fits(TEXT_LIMIT_CHARS))
    told = pack.text.rpartition(_INPUT)[0] or pack.text  # the host shows the prompt itself
    waits = (as_data(note) for note in pack.notes if WAITING in note)
    return "\n".join(part for part in (told, *waits) if part)


def _fits(limit_chars: int) -> Any:
    """Asks for smaller packs until the text is within what hosts take."""

    def fit(pack: ContextPack, budget: int) -> int | None:
        if len(pack.text) <= limit_chars or budget <= _LEAST_TOKENS:
            return None
        return max(_LEAST_TOKENS, int(0.95 * budget * limit_chars / len(pack.text)))

    return fit


def skill_named(given: Mapping[str, Any]) -> str | None:
    """The skill that a host's model just read or loaded, by the event after a tool call; None for any other event."""
    tool, tool_input = given.get("tool_name"), given.get("tool_input")
    called = given.get("hook_event_name", "PostToolUse")
    if not (isinstance(called, str) and called in _TOOL_EVENTS and isinstance(tool, str)):
        return None
    if not isinstance(tool_input, Mapping):
        return None
    tool = tool.rsplit("__", 1)[-1].casefold()
    if tool == "skill":
        loaded = tool_input.get("skill") or tool_input.get("command") or tool_input.get("name")
        name = loaded.rsplit(":", 1)[-1].strip().lstrip("/") if isinstance(loaded, str) else ""
        return name if 0 < len(name) <= _NAME_CHARS else None
    return next((found for path in _paths(tool, tool_input) if (found := skill_name_of(path)) is not None), None)


def _paths(tool: str, tool_input: Mapping[str, Any]) -> Iterator[str]:
    """Files that the tool read, as far as its input says."""
    if tool in _READERS:
        yield from (path for name in _PATHS if isinstance(path := tool_input.get(name), str))
    elif (
        tool in _SHELL_TOOLS
        and isinstance(command := tool_input.get("command"), str)
        and len(command) <= _COMMAND_CHARS
    ):
        try:
            yield from shlex.split(command, posix=tool != "powershell")
        except ValueError:  # an open quotation mark
            yield from command.split()


def _store_event(memory: Runebook, event: HookEvent, *, resident: bool) -> HookAnswer:
    """Store the conversation; memories are made of it afterwards."""
    state, private = memory.store.files.state, memory.access is Access.PRIVATE
    talk = talk_of(event.session_id, event.transcript, memory.config.user_space)
    note_setting(state, talk, private=private, stores=True)
    if memory.access is not Access.READ_WRITE or not (event.messages or path_of(event.transcript)):
        return HookAnswer()
    stored = record_conversation(memory, event)
    if _by_command(memory):
        row = memory.store.ledger.extractions.get(memory.commits.session_uri(_session(memory, event)))
        due = row is not None and row.waiting > 0
        if event.name != SESSION_END and row is not None:
            due = due and memory.trigger.takes_own(row, datetime.now(UTC), first=not (row.extracted or row.attempts))
        return stored._replace(due=due)
    if resident and (event.name != STOP or hook_notes.waiting(state)):
        ended = [_session(memory, event)] if stored.stored > 0 and event.name != STOP else []
        _start_background(memory, ended=ended)
    return stored


def take_in(memory: Runebook) -> int:
    """Store the conversations that earlier hooks left notes of.

    Returns:
        How many notes were followed.

    Raises:
        StoreBusy: If another writer held the store too long; the notes stay.
        StorageFailed: If the disk refuses; the notes stay.
    """
    return len(_store_notes(memory)) if memory.access is Access.READ_WRITE else 0


def _store_notes(memory: Runebook) -> list[Pending]:
    """Store what the notes are about; the notes that were followed."""
    state = memory.store.files.state
    followed: list[Pending] = []
    stored: set[tuple[tuple[str, str], str]] = set()
    for note in list(hook_notes.pending(state)):
        try:
            event = read_event(note.event, note.given, note.host)
            if event.messages or (note.spaces, event.transcript) not in stored:
                record_conversation(_view_of(memory, note.spaces), event, note.at if event.messages else None)
                stored.add((note.spaces, event.transcript))
        except (InvalidInput, ConfigInvalid) as error:
            _log.warning("a hook's note cannot be followed: %s", error.message)
            hook_notes.settle(note.path)
            continue
        except OSError as error:  # its transcript cannot be read just now
            _log.warning("a hook's note waits: %s", error.strerror or error)
            continue
        if not _by_command(memory):  # else it says what has ended, until memories were made of it
            hook_notes.settle(note.path)
        followed.append(note)
    with suppress(OSError):  # how far transcripts were read that nobody wrote to for long
        for memo in (state / "hooks" / "read").iterdir():
            if memo.stat().st_mtime < time.time() - _MEMO_KEPT_SECONDS:
                memo.unlink(missing_ok=True)
    return followed


def make_memories(memory: Runebook) -> Iterator[str]:
    """Have the program of ``llm.command`` make memories of the conversations that have ended.

    A note names a conversation that has ended. It is deleted once memories were made of it, or it is known why not.
    Where this process is killed, the next one goes on. One process of a store does it; others leave their notes to it.

    Yields:
        Why a conversation waits on, at its first failure.
    """
    if not _by_command(memory):
        return
    state = memory.store.files.state
    lock = StoreLock(state / "locks" / "memories.lock", timeout_seconds=0.0)
    tried: set[Path] = set()
    while True:
        try:
            with lock.held():
                tried |= {note.path for note in hook_notes.pending(state)}
                notes = _store_notes(memory)  # another process may have left the note and not stored it yet
                for spaces in dict.fromkeys((("", ""), *(note.spaces for note in notes))):
                    yield from _extract_for_notes(
                        _view_of(memory, spaces), [note for note in notes if note.spaces == spaces]
                    )
        except StoreBusy:  # whoever has it looks for notes again after it
            return
        if all(note.path in tried for note in hook_notes.pending(state)):
            return


def _view_of(memory: Runebook, spaces: tuple[str, str]) -> Runebook:
    """The view that a note names; empty names are those of the settings."""
    if not any(spaces):
        return memory
    view = memory.view(*spaces)
    view.note_user()
    return view


def _extract_for_notes(memory: Runebook, notes: Sequence[Pending]) -> Iterator[str]:
    """Make memories of what the notes are about, and of what else is due; see ``make_memories``."""
    ended = {note.path: _session(memory, read_event(note.event, note.given, note.host)) for note in notes}
    queue, failed = memory.store.ledger.extractions, False
    try:
        for receipt in memory.extract_ended(dict.fromkeys(ended.values())):
            for result in receipt.results:
                row = queue.get(MemoryUri.parse(result.uri)) if result.op == EXTRACTION else None
                if row is not None and row.attempts == 1 and not failed:
                    failed = True
                    yield f"a conversation waits: {row.reason}"
    except RunebookError as error:
        yield f"conversations wait: {error.message}"
    for note in notes:
        row = queue.get(memory.commits.session_uri(ended[note.path]))
        if row is None or not row.waiting or row.attempts:
            hook_notes.settle(note.path)


def _has_unfinished(memory: Runebook) -> bool:
    """Whether conversations that have ended, or failed before, wait, and no process is known to work on them."""
    if not _by_command(memory):
        return False
    if hook_notes.waiting(memory.store.files.state):
        return True
    config, queue, now = memory.config, memory.store.ledger.extractions, datetime.now(UTC)
    trigger = ExtractionTrigger(config.extraction, queue, lambda _row: 0)
    due = queue.waiting(MemoryUri((Scope.SESSION.value, config.user_space)), due_at=now.isoformat(timespec="seconds"))
    return any(trigger.takes_other(row, now) for row in due)


def _by_command(memory: Runebook) -> bool:
    """Whether a program of this machine makes memories of what has ended."""
    named = memory.config.llm.provider == COMMAND and memory.access is Access.READ_WRITE
    return named and _wants_extraction(memory.config)


def begin_taking_in(memory: Runebook) -> None:
    """Follow the notes of earlier hooks in the background, if there are any."""
    if hook_notes.waiting(memory.store.files.state):
        _start_background(memory, ended=[])


def _start_background(memory: Runebook, *, ended: Sequence[str]) -> None:
    """Follow notes, and have the model make memories of what has ended, and of what is due, while the host goes on."""
    wanted = ended if memory.config.llm.provider in PROVIDERS and _wants_extraction(memory.config) else ()
    threading.Thread(target=_run_background, args=(memory, wanted), name="runebook-hook", daemon=True).start()


def _run_background(memory: Runebook, ended: Sequence[str]) -> None:
    try:
        with _background:
            take_in(memory)
            if ended:
                for receipt in memory.extract_ended(ended):
                    _log.info("after a session: %d files changed", len(receipt.changed_uris))
    except RunebookError as error:
        _log.warning("after a session: %s", error.message)
    except sqlite3.Error as error:  # the store was closed meanwhile
        _log.info("after a session: %s", error)


def _wants_extraction(config: Config) -> bool:
    """Whether memories are made of what has ended; with ``heat``, use decides what becomes a memory."""
    return config.hooks.extract and config.extractor != "none" and config.extraction.trigger != "heat"


def record_conversation(memory: Runebook, event: HookEvent, latest: float | None = None) -> HookAnswer:
    """Store what is new of the conversation that an event is about, except messages from private mode.

    A message that tells no time was said after the conversation was read last, or began; where neither is known, after
    its file was made or, on a system that does not tell that, at most a day ago. In doubt it is passed over. In which
    folder it was said: see ``PrivateTimes``.

    Args:
        memory: The store; must be writable.
        event: With a transcript, or with messages.
        latest: When all that it brings was said by, in seconds since 1970; default now.

    Raises:
        StoreBusy: If another writer held the store too long. What came before is stored.
        StorageFailed: If the disk refuses. What came before is stored.
        OSError: Likewise.
    """
    from memory_core.features.imports.conversation_recorder import ConversationRecorder

    config, state = memory.config, memory.store.files.state
    recorder = ConversationRecorder(memory, ("hooks", config.user_space, config.agent_space))
    assignment = memory.projects.assignment(None, None, project_of(config, event.cwd))
    now, talk = latest or time.time(), talk_of(event.session_id, event.transcript, config.user_space)
    known_at, began = last_read(state, talk)
    is_named = event.session_id is not None or bool(event.transcript)
    path = path_of(event.transcript)
    growing = None if path is None or event.messages else _TranscriptReader(path, state, config.user_space)
    earliest = _earliest(known_at, path, now)
    stored, left_out = 0, list[str]()
    with authored(f"hook of {event.host}"):
        for item in _conversations(event, _session(memory, event), growing):
            if known_at is None:
                earliest = min([earliest, *(at for each in item.messages if (at := said_at(each)) is not None)])
            if not began and (began := item.folder or event.cwd) and is_named:
                note_read(state, talk, known_at, began)  # a later hook reads the end alone
            private = PrivateTimes(state, event.folders, talk, began=began, said_in=item.folders)
            is_private = partial(private.cover, earliest=earliest, latest=latest or float("inf"))
            done = recorder.record(item, assignment, datetime.now(UTC), is_private)
            stored += done.messages
            left_out += [f"{left.place}: {left.reason}" for left in done.left_out]
            if done.passed_over:
                left_out.append(f"{len(done.passed_over)} are of a time in which private mode was on")
            if timeless := [each for each in done.passed_over if said_at(each) is None]:
                note_passed_over(state, talk, timeless)
        memory.follow_index()
    is_whole = growing.is_whole if growing is not None else bool(event.messages)
    if is_whole and is_named:
        note_read(state, talk, now, began)
    return HookAnswer(stored=stored, notes=tuple(left_out))


def _earliest(known_at: float | None, path: Path | None, now: float) -> float:
    """Since when what is new of a conversation and tells no time was said; ``known_at`` is when it was read last."""
    return _made_at(path, now) if known_at is None else known_at


def _made_at(path: Path | None, now: float) -> float:
    """When a transcript was made, in seconds since 1970; a day ago where that is not known."""
    try:
        made: float = getattr(path.stat(), "st_birthtime", now - _DAY_SECONDS) if path else now - _DAY_SECONDS
    except OSError:
        return now - _DAY_SECONDS
    return made


def _conversations(event: HookEvent, session: str, growing: _TranscriptReader | None) -> Iterator[ConversationItem]:
    """What an event brings: the conversation, after the system prompt if the host told it, and subagents' talks."""
    from memory_core.features.imports import claude_code
    from memory_core.features.imports.sources import lines

    system = event.given.get("system_prompt") or event.given.get("system")
    before: list[Any] = []
    if isinstance(system, str) and system.strip():
        before = [{"role": "system", "content": system, "id": f"system-{digest_of(system)}"}]

    def talk(messages: Any) -> ConversationItem:
        return ConversationItem(session, event.host, session, (*before, *messages))

    if growing is None:
        yield talk(event.messages)
    elif growing.path.suffix == ".json":
        records = whole(growing.path)
        growing.is_whole = bool(records)
        yield talk(_messages(records))
    elif event.host != CLAUDE_CODE:
        for part in growing.parts():
            yield talk(_messages(found.value for found in lines(*_source(growing.path, part))))
    else:
        for part in growing.parts():
            for item in claude_code.FORMAT.read(*_source(growing.path, part)):
                if isinstance(item, ConversationItem):
                    aside = item.item_id.endswith(" sub")
                    own = f"{session}-{item.session_id.rpartition('-')[2]}" if aside else session
                    messages = item.messages if aside else (*before, *item.messages)
                    yield replace(item, item_id=own, session_id=own, messages=messages)


def _source(path: Path, part: bytes) -> tuple[Source, Entry]:
    """A part of a transcript, as the readers of foreign formats take a file."""
    from memory_core.features.imports.sources import Entry, Source

    entry = Entry(path.name, path=path)
    return Source(path.name, [entry], lambda _entry: io.BytesIO(part)), entry


def _messages(records: Any) -> list[dict[str, Any]]:
    return [message for record in records if (message := message_of(record)) is not None]


class _TranscriptReader:
    """A transcript that is only added to, from where it was left.

    Attributes:
        path: The file.
        is_whole: Whether nothing was left behind that was being written.
    """

    def __init__(self, path: Path, state: Path, user_space: str) -> None:
        self.path = path
        self.is_whole = True
        self._memo = state / "hooks" / "read" / f"{digest_of([str(path.absolute()), user_space])}.json"

    def parts(self) -> Iterator[bytes]:
        """What is new, in whole lines, part by part; each is remembered once the caller asks for the next."""
        with self.path.open("rb") as stream:
            head = hashlib.sha256(stream.read(_HEAD_BYTES)).hexdigest()
            size = stream.seek(0, io.SEEK_END)
            known = self._known(head)
            if known == size:
                return
            start = 0
            if 0 < known < size:
                start = max(0, known - _OVERLAP_BYTES)
                stream.seek(start)
                start += len(stream.readline()) if start else 0
            stream.seek(start)
            while read := stream.read(_PART_BYTES) + stream.readline():
                part = _whole_lines(read)
                if part:
                    yield part
                start += len(part)
                if start >= _HEAD_BYTES:  # else its beginning may still grow
                    make_private(self._memo.parent)
                    write_json(self._memo, {"head": head, "end": start})
                if len(part) < len(read):  # its last line is being written
                    self.is_whole = False
                    return

    def _known(self, head: str) -> int:
        """How far it was read; 0 for a file that is new, or not the one it was."""
        try:
            known = json.loads(self._memo.read_bytes())
            return int(known["end"]) if known["head"] == head else 0
        except (OSError, ValueError, KeyError, TypeError):
            return 0


def _whole_lines(part: bytes) -> bytes:
    """Without a last line that is half written; a last line that is JSON lacks only its line feed."""
    end = part.rfind(b"\n") + 1
    return part if json_value(part[end:]) is not None else part[:end]


def _session(memory: Runebook, event: HookEvent) -> str:
    """The session of an event; that of an import which brought its beginning, where one did."""
    own = event.session_id or f"session-{digest_of([event.transcript, event.host, str(event.messages[:1])])}"
    imported = f"{event.host}-{own}"
    files, sessions = memory.store.files, memory.commits.sessions
    is_imported = files.is_dir(sessions.child(imported)) and not files.is_dir(sessions.child(own))
    return imported if is_imported else own
