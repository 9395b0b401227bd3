"""``runebook hook EVENT``: a host's event as JSON on standard input, the answer as JSON on standard output.

Owns: what hosts call their events and how each reads an answer (Claude Code, Codex, Gemini CLI, Cursor, and one generic
form for every other host), and who answers: a running server of the same store, asked over the channel in a few
milliseconds, else this process, which opens the store without a model. Whatever goes wrong, and when the time is up,
the host goes on: exit status 0, nothing on standard output, a line on stderr and in ``<state>/hooks.log``. Imports
nothing heavy: a host waits.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from memory_core.core.conversation_notes import last_read, note_read, note_setting, talk_of
from memory_core.core.errors import InvalidInput, RunebookError
from memory_core.core.llm.client import COMMAND
from memory_core.core.private_times import end_orphans
from memory_core.core.text.unicode_form import unicode_form
from server.commands.opening import open_memory_of
from server.early_settings import EarlySettings, read_early
from server.hosts import hook_notes

SESSION_START, USER_PROMPT, POST_READ = "session-start", "user-prompt", "post-read"
PRE_COMPACT, SESSION_END, STOP = "pre-compact", "session-end", "stop"
#: At these something is stored; at the others something is told.
STORING = (PRE_COMPACT, SESSION_END, STOP)
#: As the command line takes them.
EVENTS = (SESSION_START, USER_PROMPT, POST_READ, *STORING)
CLAUDE_CODE, CODEX, GEMINI, CURSOR, GENERIC = "claude-code", "codex", "gemini-cli", "cursor", "generic"
HOSTS = (CLAUDE_CODE, CODEX, GEMINI, CURSOR, GENERIC)
#: Not an event of a host: stores what earlier hooks left notes of.
TAKE_IN = "pending"
#: What ``runebook hook`` is called for.
HANDLED = (*EVENTS, TAKE_IN)

#: How hosts call the events, as far as an answer has to repeat the name.
_NAMES = {SESSION_START: "SessionStart", USER_PROMPT: "UserPromptSubmit", POST_READ: "PostToolUse"}
_GEMINI_NAMES = frozenset({"BeforeAgent", "AfterAgent", "AfterTool", "BeforeTool", "PreCompress"})
#: Sources of a start after which the host's context holds nothing of before.
_FRESH = frozenset({"compact", "clear"})
#: Those of a start in the middle of a conversation.
_CONTINUED = frozenset({"compact", "resume"})
_SESSION = re.compile(r"(?!(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$))\w(?:[\w.-]{0,78}\w)?", re.IGNORECASE)
#: Cursor names folders of Windows as parts of an address.
_SLASHED_DRIVE = re.compile(r"/[A-Za-z]:(?:[\\/]|$)")

#: A server gets this share of the time; the rest is for doing it here.
_CHANNEL_SHARE = 0.5
#: A server's time at a session's end, where hosts end a hook after 1.5 s.
_END_SECONDS = 1.0
_TAKE_IN_SECONDS = 600.0
#: Python itself takes about so long before anything of ours runs.
_STARTED_SECONDS = 0.03

_LOG_NAME = "hooks.log"
_LOG_LIMIT_BYTES = 128 * 1024
_LINE_CHARS = 400
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")


class HookEvent(NamedTuple):
    """One event of a host.

    Attributes:
        name: One of ``EVENTS``.
        host: One of ``HOSTS``.
        called: The host's own name of the event, for the answer.
        session_id: The host's session, as a folder may be called; None where it does not say.
        prompt: What the user just said; empty where nothing was.
        messages: The conversation, where the host sends it along.
        transcript: Path of the file that holds the conversation; empty for none.
        folders: The folders in which the host works, the first one first; empty where it does not say.
        source: Why a session starts, or why its context is compressed.
        given: All that the host sent.
    """

    name: str
    host: str
    called: str
    session_id: str | None
    prompt: str
    messages: tuple[Any, ...]
    transcript: str
    folders: tuple[str, ...]
    source: str
    given: Mapping[str, Any]

    @property
    def cwd(self) -> str:
        """The first folder in which the host works; empty where it does not say."""
        return self.folders[0] if self.folders else ""

    @property
    def is_fresh(self) -> bool:
        """Whether the host's context lost what it was given before."""
        return self.name == SESSION_START and self.source in _FRESH


def read_event(name: str, given: Any, host: str = "", environment: Mapping[str, str] | None = None) -> HookEvent:
    """The event that a host sent.

    Args:
        name: One of ``EVENTS``.
        given: The host's JSON.
        host: One of ``HOSTS``; empty tells it by what was sent.
        environment: Variables of the process, which name some hosts.

    Raises:
        InvalidInput: If it is no JSON object, or the event or host is unknown.
    """
    if not isinstance(given, Mapping):
        raise InvalidInput("the event is no JSON object.", hint='Send {"event": …, "session_id": …} on stdin.')
    if name not in EVENTS or (host and host not in HOSTS):
        raise InvalidInput(f"{name!r} of {host!r} is no event known here.", hint=f"Events are {', '.join(EVENTS)}.")
    return HookEvent(
        name=name,
        host=host or host_of(given, environment or {}),
        called=_text(given, "hook_event_name") or _NAMES.get(name, name),
        session_id=session_name(_text(given, "session_id", "conversation_id", "sessionId")),
        prompt=_text(given, "prompt"),
        messages=tuple(messages) if isinstance(messages := given.get("messages"), list) else (),
        transcript=_text(given, "transcript_path"),
        folders=_folders(given),
        source=_text(given, "source", "trigger", "reason"),
        given=given,
    )


def host_of(given: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    """The host that sends such an event."""
    if "cursor_version" in given or "conversation_id" in given or environment.get("CURSOR_VERSION"):
        return CURSOR
    called = given.get("hook_event_name")
    if called in _GEMINI_NAMES or environment.get("GEMINI_SESSION_ID"):
        return GEMINI
    if "turn_id" in given or ".codex" in re.split(r"[\\/]", _text(given, "transcript_path")):
        return CODEX
    return CLAUDE_CODE if isinstance(called, str) else GENERIC


def session_name(text: str) -> str | None:
    """A host's session as a folder may be called: its own name where that is one; None for none."""
    name = unicode_form("NFC", text.strip())
    if not name or _SESSION.fullmatch(name):
        return name or None
    import hashlib  # its library takes longer to load than all of this

    return f"session-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:16]}"


def _folders(given: Mapping[str, Any]) -> tuple[str, ...]:
    roots = given.get("workspace_roots")
    named = [_text(given, "cwd"), *(roots if isinstance(roots, list) else ())]
    told = [folder for folder in named if isinstance(folder, str) and folder.strip()]
    return tuple(dict.fromkeys(folder[1:] if _SLASHED_DRIVE.match(folder) else folder for folder in told))


def _text(given: Mapping[str, Any], *names: str) -> str:
    """The first of these members that is text and not blank; else empty."""
    found = (given.get(name) for name in names)
    return next((value for value in found if isinstance(value, str) and value.strip()), "")


def rendered(event: HookEvent, text: str, form: str = "json") -> str:
    """What goes to standard output, as the host reads it; empty where there is nothing to tell.

    Args:
        event: What is answered.
        text: What the model is to know.
        form: ``json``, or ``text`` for the text alone.
    """
    if not text or event.name in STORING:
        return ""
    if form == "text":
        return f"{text}\n"
    answer: dict[str, Any] = {"hookSpecificOutput": {"hookEventName": event.called, "additionalContext": text}}
    if event.host == GENERIC:
        answer = {"context": text}
    elif event.host == CURSOR:
        answer = {"continue": True} if event.name == USER_PROMPT else {}
        answer["additional_context"] = text
    return json.dumps(answer) + "\n"  # ASCII alone: no console's encoding can spoil it


def hook(arguments: argparse.Namespace) -> int:
    """Answer one event; always 0."""
    settings = read_early(arguments.home, arguments.config, arguments.set)
    name = arguments.event
    seconds = {
        TAKE_IN: _TAKE_IN_SECONDS,
        USER_PROMPT: settings.values["hooks.deadline_ms"] / 1_000,
    }.get(name, settings.values["hooks.patience_seconds"])
    deadline = Deadline(seconds, lambda: report(settings.state, name, "too late: not answered"))
    try:
        if name == TAKE_IN:
            _take_in(arguments, settings, deadline)
        else:
            _answer(arguments, settings, deadline)
    except Exception as error:  # noqa: BLE001 - a host takes any failure of a hook for its own
        hint = getattr(error, "hint", "")
        if isinstance(error, OSError):
            hint = "Check that folder and its permissions; runebook doctor says more."
        message = f"{type(error).__name__}: {getattr(error, 'message', error)} {hint}"
        report(settings.state, name, message)
    deadline.meet()
    return 0


class Deadline:
    """Ends the process with status 0 when it passes: a store that hangs never holds up its host.

    The answer is written whole before it, or not at all. The end is abrupt, as a kill would be: what is being stored
    then is in the ledger or not, and a note of it stays.

    Args:
        seconds: From the start of the process, about.
        late: Called right before; must not take long.
    """

    def __init__(self, seconds: float, late: Callable[[], None]) -> None:
        self._at = time.monotonic() + seconds - _STARTED_SECONDS
        self._late = late
        self._speaking = threading.Lock()
        self._met = threading.Event()
        threading.Thread(target=self._watch, name="runebook-deadline", daemon=True).start()

    @property
    def left_seconds(self) -> float:
        """What is left of it, >= 0."""
        return max(0.0, self._at - time.monotonic())

    def say(self, text: str) -> None:
        """Write the answer; after the deadline nothing is written any more."""
        with self._speaking:
            self._met.set()
            sys.stdout.write(text)
            sys.stdout.flush()

    def meet(self) -> None:
        """The work is done."""
        self._met.set()

    def _watch(self) -> None:
        if self._met.wait(self.left_seconds):
            return
        with self._speaking:
            if not self._met.is_set():
                self._late()
                os._exit(0)


def _answer(arguments: argparse.Namespace, settings: EarlySettings, deadline: Deadline) -> None:
    """Tell the host what its model is to know, or have its conversation stored."""
    event = read_event(arguments.event, _given(), arguments.host, os.environ)
    private, stores = bool(settings.values["private_mode"]), event.name in STORING
    if (private or settings.root.is_dir()) and (event.session_id is not None or event.transcript):
        talk = talk_of(event.session_id, event.transcript, str(settings.values["user_space"]))
        note_setting(settings.state, talk, private=private, changed_at=settings.changed_at, stores=stores)
    if not settings.values[f"hooks.{event.name.replace('-', '_')}"]:
        return
    if event.name in STORING:
        _store(arguments, settings, event, deadline)
    elif settings.root.is_dir() and _may_concern(event):
        _note_beginning(settings, event)
        answer = _asked(settings, event, _CHANNEL_SHARE * deadline.left_seconds)
        alone = answer is None
        answer = answer or _opened(arguments, event)
        deadline.say(rendered(event, str(answer.get("text") or ""), arguments.format))
        left = alone and event.name == SESSION_START and hook_notes.waiting(settings.state)
        if left or answer.get("due"):
            _begin_taking_in(arguments)


def _note_beginning(settings: EarlySettings, event: HookEvent) -> None:
    """Note when and where a conversation began, if it begins with this event.

    What it holds was said later, also in private.
    """
    is_named = event.session_id is not None or event.transcript
    if event.name == POST_READ or not is_named or event.source in _CONTINUED or len(event.messages) > 1:
        return
    talk = talk_of(event.session_id, event.transcript, str(settings.values["user_space"]))
    if last_read(settings.state, talk).at is None and not _holds_something(event.transcript):
        with suppress(OSError):  # then it counts as one of which nobody saw the beginning
            note_read(settings.state, talk, time.time(), event.cwd)


def _holds_something(transcript: str) -> bool:
    try:
        return os.stat(os.path.expanduser(transcript)).st_size > 0  # noqa: PTH111, PTH116
    except (OSError, ValueError):
        return False


def _may_concern(event: HookEvent) -> bool:
    """Whether there may be something to tell: hosts send many tool calls, and few of them read a skill."""
    called = f"{event.given.get('tool_name')} {event.given.get('tool_input')}"
    return event.name != POST_READ or "skill" in called.casefold()


def _given() -> Any:
    """The JSON on standard input, whatever the console's encoding is.

    Raises:
        InvalidInput: If it is none.
    """
    try:
        return json.loads(sys.stdin.buffer.read().decode("utf-8", "replace").lstrip("\ufeff"))
    except ValueError as error:
        raise InvalidInput(
            f"the event on stdin is not JSON ({error}).",
            hint='By hand: echo \'{"session_id": "s1", "prompt": "…"}\' | runebook hook user-prompt.',
        ) from error


def _store(arguments: argparse.Namespace, settings: EarlySettings, event: HookEvent, deadline: Deadline) -> None:
    """Have the conversation stored: by a server, by this process, or by one that goes on after it."""
    makes_store = event.name != STOP or settings.root.is_dir()
    holds_something = event.messages or os.path.isfile(os.path.expanduser(event.transcript))  # noqa: PTH111, PTH113
    if not (makes_store and holds_something):
        return
    if settings.values["private_mode"]:
        return
    end_orphans(settings.state)  # now, for the conversation may be stored later
    whose = (str(settings.values["user_space"]), str(settings.values["agent_space"]))
    note = hook_notes.leave(settings.state, event.name, event.host, event.given, whose)
    ends = event.name == SESSION_END
    if ends and _makes_memories(settings):
        _begin_taking_in(arguments)  # no server has to live long enough
        return
    answer = _asked(settings, event, _END_SECONDS if ends else _CHANNEL_SHARE * deadline.left_seconds)
    if answer is None and ends:
        _begin_taking_in(arguments)
        return
    answer = answer or _opened(arguments, event)
    if left_out := answer.get("notes"):
        more = f" (and {len(left_out) - 1} more)" if len(left_out) > 1 else ""
        report(settings.state, event.name, f"not all messages were stored: {left_out[0]}{more}")
    if answer.get("due"):
        _begin_taking_in(arguments)
    else:
        hook_notes.settle(note)


def _asked(settings: EarlySettings, event: HookEvent, seconds: float) -> Mapping[str, Any] | None:
    """What a running server says; None where none does, or it could not do it."""
    from server.local.channel import Unanswered, submit

    # The server may have been started with other settings than this host's.
    mine = {name: settings.values[name] for name in ("user_space", "agent_space", "private_mode")}
    asked = {"event": event.name, "given": event.given, "cwd": event.cwd, "host": event.host, "wishes": mine}
    try:
        return submit(settings.state, "hook", asked, seconds, author=f"hook of {event.host}")
    except Unanswered:  # storing a conversation twice stores it once
        return None
    except RunebookError as error:
        report(settings.state, event.name, f"the server: {error.message}")
        return None


def _opened(arguments: argparse.Namespace, event: HookEvent) -> Mapping[str, Any]:
    """The answer of the store itself."""
    from server.hosts.hook_answers import answer

    with open_memory_of(arguments, embeds=False) as memory:
        return answer(memory, event.name, event.given, event.host, resident=False)._asdict()


def _makes_memories(settings: EarlySettings) -> bool:
    """Whether a program of this machine makes memories of what has ended."""
    return bool(settings.values["hooks.extract"]) and settings.values["llm.provider"] == COMMAND


def _take_in(arguments: argparse.Namespace, settings: EarlySettings, deadline: Deadline) -> None:
    """Store what earlier hooks left notes of; where a program makes memories, have it make them."""
    makes = _makes_memories(settings)
    if hook_notes.waiting(settings.state) or (makes and settings.root.is_dir()):
        from server.hosts.hook_answers import make_memories, take_in

        with open_memory_of(arguments, embeds=makes, warm=False) as memory:
            take_in(memory)
            deadline.meet()  # each call of the program has a time of its own
            for reason in make_memories(memory):
                report(settings.state, TAKE_IN, reason)


def _begin_taking_in(arguments: argparse.Namespace) -> None:
    """Have another process follow the notes, which lives on when the host has ended this one."""
    from server.local.shared_server import spawn

    options = ["--home", arguments.home] if arguments.home else []
    options += ["--config", arguments.config] if arguments.config else []
    options += [part for flag in arguments.set for part in ("--set", flag)]
    process = spawn("hook", TAKE_IN, *options)
    process.returncode = 0  # it goes on by itself, and nobody here asks for its end any more


def report(state: Path, event: str, message: str) -> None:
    """Tell of a failure: one line on stderr, and one in ``<state>/hooks.log``, which never grows large.

    A line says when, at which event and why; nothing of what was said or remembered. Never raises, and makes no store.
    """
    shown = _UNPRINTABLE.sub(" ", message).strip()[:_LINE_CHARS]
    with suppress(AttributeError, OSError, ValueError):  # there may be no stderr
        sys.stderr.write(f"runebook hook {event}: {shown}\n")
    line = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {event}: {shown}\n".encode()
    with suppress(OSError):  # one write each: hooks run at the same time
        descriptor = os.open(state / _LOG_NAME, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "r+b", buffering=0) as stream:
            size = stream.seek(0, os.SEEK_END)
            if size > _LOG_LIMIT_BYTES:  # the newer half stays
                stream.seek(size - _LOG_LIMIT_BYTES // 2)
                line = stream.read().partition(b"\n")[2] + line
                stream.truncate(0)
            stream.write(line)
