"""What a host is told at an event, and what is stored then, from an open store.

Used by a running server that a hook asks over the local line, and by the hook itself where none runs. What a model has
to say is never waited for: a conversation is stored, and a server makes memories of it afterwards. Respects what the
view of the store may do: a private or read-only one stores nothing.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from memory_core.core.caller import Access, authored
from memory_core.core.errors import ConfigInvalid, InvalidInput, RunebookError
from memory_core.core.llm.client import PROVIDERS
from memory_core.core.memory.project import project_at
from memory_core.core.memory.requests import RetrieveRequest
from server.hooks import pending, private_times
from server.hooks.event import POST_READ, SESSION_START, STOP, STORING, HookEvent, read_event
from server.hooks.output import TEXT_LIMIT_CHARS
from server.hooks.private_times import PrivateTimes
from server.hooks.recording import Stored, forget_old_readings, record
from server.hooks.skills import skill_named
from server.hooks.transcript import last_said, path_of

if TYPE_CHECKING:
    from memory_core.core.config import Config
    from memory_core.core.memory.results import ContextPack
    from memory_core.runebook import Runebook


_log = logging.getLogger(__name__)
_INPUT = "\n<current_input>\n"
_LEAST_TOKENS = 200
#: One at a time in a process: they take in the same notes.
_afterwards = threading.Lock()


class HookAnswer(NamedTuple):
    """What a hook was answered.

    Attributes:
        text: What the host's model is to know; empty for nothing.
        stored: New messages of the conversation that were stored.
        notes: What could not be done, for a log.
    """

    text: str = ""
    stored: int = 0
    notes: tuple[str, ...] = ()


def answer(
    memory: Runebook, event: str, given: Mapping[str, Any], host: str = "", *, resident: bool = True
) -> HookAnswer:
    """Answer a host's event.

    Args:
        memory: The store, as the host's user may see it.
        event: One of ``event.EVENTS``.
        given: What the host sent.
        host: One of ``event.HOSTS``; empty tells it by what was sent.
        resident: Whether this process stays, so that there is time for what can wait.

    Raises:
        InvalidInput: If the event is none.
        RunebookError: If the store cannot be used.
    """
    read = read_event(event, given, host)
    config = memory.config
    if not getattr(config.hooks, event.replace("-", "_")):
        return HookAnswer()
    here = _project(config, read.cwd)
    if event in STORING:
        return _keep(memory, read, here, resident=resident)
    if memory.access is Access.READ_WRITE and _times(memory, read).is_on:
        memory = memory.view(access=Access.PRIVATE)
    if event == POST_READ:
        name = skill_named(given)
        return HookAnswer("" if name is None else memory.skill_memory(name, here=here))
    if event == SESSION_START:
        if resident:
            begin_taking_in(memory)
        return HookAnswer(_opening(memory, read, here))
    return HookAnswer(_recalled(memory, read, here))


def take_in(memory: Runebook) -> int:
    """Store what earlier hooks left notes of.

    Returns:
        How many notes were followed.

    Raises:
        StoreBusy: If another writer held the store too long; the notes stay.
        StorageFailed: If the disk refuses; the notes stay.
    """
    if memory.access is not Access.READ_WRITE:
        return 0
    state = memory.store.files.state
    followed = 0
    transcripts: set[str] = set()
    for note in reversed(list(pending.notes(state))):
        try:
            event = read_event(note.event, note.given, note.host)
            if event.messages or event.transcript not in transcripts:
                whose = memory.view(*note.spaces) if any(note.spaces) else memory
                _record(whose, event, _project(memory.config, event.cwd))
                transcripts.add(event.transcript)
        except (InvalidInput, ConfigInvalid) as error:
            _log.warning("a hook's note cannot be followed: %s", error.message)
        except OSError as error:  # its transcript cannot be read just now
            _log.warning("a hook's note waits: %s", error.strerror or error)
            continue
        pending.settle(note.path)
        followed += 1
    forget_old_readings(state, time.time())
    return followed


def _keep(memory: Runebook, event: HookEvent, here: str | None, *, resident: bool) -> HookAnswer:
    """Store the conversation; memories are made of it afterwards."""
    if memory.access is not Access.READ_WRITE or not (event.messages or path_of(event.transcript)):
        return HookAnswer()
    stored = _record(memory, event, here)
    if resident and (event.name != STOP or pending.waiting(memory.store.files.state)):
        _begin_afterwards(memory, extracts=stored.messages > 0 and event.name != STOP)
    return HookAnswer(stored=stored.messages, notes=stored.left_out)


def _record(memory: Runebook, event: HookEvent, here: str | None) -> Stored:
    with authored(f"hook of {event.host}"):
        return record(memory, event, here, _times(memory, event))


def _times(memory: Runebook, event: HookEvent) -> PrivateTimes:
    return PrivateTimes(private_times.periods(memory.store.files.state), event.cwd)


def _opening(memory: Runebook, event: HookEvent, here: str | None) -> str:
    """What a session begins with; after a compaction also what its context has to keep."""
    budget = memory.config.hooks.session_start_tokens
    kept = ""
    if event.source == "compact" and event.session_id is not None:
        told = memory.working_memory(event.session_id).text()
        kept = (
            f'<working_memory note="kept from before the compaction">\n{escape(told, quote=False)}\n</working_memory>'
        )
        kept = kept if told else ""
    pack = memory.retrieve(
        RetrieveRequest(session_id=event.session_id, token_budget=budget, fresh=event.is_fresh, here=here),
        fit=_fits(TEXT_LIMIT_CHARS - len(kept)),
    )
    return "\n".join(part for part in (pack.text, kept) if part)


def _recalled(memory: Runebook, event: HookEvent, here: str | None) -> str:
    """What bears on a prompt and the messages before it."""
    config = memory.config
    messages: list[Any] = list(event.messages)
    if not messages:
        said = last_said(event.transcript, config.retrieve.query_messages)
        said = said[:-1] if said and said[-1] == event.prompt.strip() else said
        messages = [{"role": "user", "content": text} for text in said[1 - config.retrieve.query_messages :]]
    if event.prompt:
        messages.append({"role": "user", "content": event.prompt})
    if not messages:
        return ""
    pack = memory.retrieve(
        RetrieveRequest(
            messages=messages, session_id=event.session_id, token_budget=config.hooks.user_prompt_tokens, here=here
        ),
        fit=_fits(TEXT_LIMIT_CHARS),
    )
    return pack.text.rpartition(_INPUT)[0] or pack.text  # the host shows the prompt itself


def _fits(limit_chars: int) -> Any:
    """Asks for smaller packs until the text is within what hosts take."""

    def fit(pack: ContextPack, budget: int) -> int | None:
        if len(pack.text) <= limit_chars or budget <= _LEAST_TOKENS:
            return None
        return max(_LEAST_TOKENS, int(0.95 * budget * limit_chars / len(pack.text)))

    return fit


def begin_taking_in(memory: Runebook) -> None:
    """Follow the notes of earlier hooks in the background, if there are any."""
    if pending.waiting(memory.store.files.state):
        _begin_afterwards(memory, extracts=False)


def _begin_afterwards(memory: Runebook, *, extracts: bool) -> None:
    """Follow notes, and have the model make memories of what waits, while the host goes on."""
    wanted = extracts and _may_extract(memory.config)
    thread = threading.Thread(target=_after, args=(memory, wanted), name="runebook-hook", daemon=True)
    thread.start()


def _after(memory: Runebook, extracts: bool) -> None:
    if not _afterwards.acquire(blocking=False):
        return
    try:
        take_in(memory)
        if extracts:
            for receipt in memory.extract_waiting():
                _log.info("after a session: %d files changed", len(receipt.changed_uris))
    except RunebookError as error:
        _log.warning("after a session: %s", error.message)
    except sqlite3.Error as error:  # the store was closed meanwhile
        _log.info("after a session: %s", error)
    finally:
        _afterwards.release()


def _may_extract(config: Config) -> bool:
    """Whether the server itself may ask a model now; with ``heat``, use decides what becomes a memory."""
    own = config.llm.provider in PROVIDERS and config.extractor != "none"
    return config.hooks.extract and own and config.extraction.trigger != "heat"


def _project(config: Config, folder: str) -> str | None:
    return project_at(Path(folder)) if folder and config.project.detect else None
