"""``runebook hook EVENT``: a host's event as JSON on standard input, the answer as JSON on standard output.

A running server of the same store is asked over the local line, in a few milliseconds; else this process opens the
store itself, and for a prompt, which cannot wait for that, looks into the catalog alone (``words``). Whatever goes
wrong, the host goes on: exit status 0, nothing on standard output, a line on stderr and in ``<state>/hooks.log``.
Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from memory_core.core.errors import InvalidInput
from server.commands.opening import Commands, settings_of
from server.hooks import event as events
from server.hooks import failures, pending
from server.hooks.deadline import Deadline
from server.hooks.event import HookEvent, read_event
from server.hooks.output import rendered
from server.hooks.wishes import Wishes, read_wishes

if TYPE_CHECKING:
    from server.hooks.answers import HookAnswer


#: Not an event of a host: stores what earlier hooks left notes of.
TAKE_IN = "pending"
#: A server that has not answered a prompt so long after our own code was loaded may be busy, or its model loading:
#: words are looked for meanwhile.
_HEAD_START_SECONDS = 0.02
#: With less left nothing is begun.
_LEAST_SECONDS = 0.06
#: A server gets this share of the time; the rest is for doing it here.
_LINE_SHARE = 0.5
#: A server's time at a session's end, where hosts end a hook after 1.5 s.
_END_SECONDS = 1.0
_TAKE_IN_SECONDS = 600.0


def register(commands: Commands) -> None:
    """Declare ``hook``."""
    command = commands.add(
        "hook",
        "Answer a host's hook: its event as JSON on stdin, the answer on stdout. See docs/hooks.md.",
        hook,
        json_output=False,
    )
    command.add_argument(
        "event",
        choices=(*events.EVENTS, TAKE_IN),
        help=f"what happened at the host; {TAKE_IN}: store what earlier hooks could not",
    )
    command.add_argument(
        "--host", choices=events.HOSTS, default="", help="which host it is (default: told by its JSON)"
    )
    command.add_argument("--format", choices=("json", "text"), default="json", help="text: the answer without JSON")
    command.set_defaults(answers_alone=True)


def hook(arguments: argparse.Namespace) -> int:
    """Answer one event; always 0."""
    wishes = read_wishes(arguments.home, arguments.config, arguments.set)
    name = arguments.event
    deadline = Deadline(_seconds(name, wishes), lambda: failures.report(wishes.state, name, "too late: not answered"))
    deadline.start()
    try:
        if name == TAKE_IN:
            _take_in(arguments)
        else:
            _answer(arguments, wishes, deadline)
    except Exception as error:  # noqa: BLE001 - a host takes any failure of a hook for its own
        failures.report(wishes.state, name, _told(error))
    deadline.meet()
    return 0


def _seconds(name: str, wishes: Wishes) -> float:
    if name == TAKE_IN:
        return _TAKE_IN_SECONDS
    if name == events.USER_PROMPT:
        return int(wishes.values["hooks.deadline_ms"]) / 1_000
    return float(wishes.values["hooks.patience_seconds"])


def _answer(arguments: argparse.Namespace, wishes: Wishes, deadline: Deadline) -> None:
    read = read_event(arguments.event, _given(), arguments.host, os.environ)
    if not wishes.wants(read.name):
        return
    if read.name in events.STORING:
        _store(arguments, wishes, read, deadline)
    elif wishes.root.is_dir():
        text, alone = _text(arguments, wishes, read, deadline)
        deadline.say(rendered(read, text, arguments.format))
        if alone and read.name == events.SESSION_START and pending.waiting(wishes.state):
            _begin_taking_in(wishes)


def _given() -> Any:
    """The JSON on standard input, whatever the console's encoding is.

    Raises:
        InvalidInput: If it is none.
    """
    content = sys.stdin.buffer.read() if hasattr(sys.stdin, "buffer") else sys.stdin.read().encode()
    try:
        return json.loads(content.decode("utf-8", "replace").lstrip("\ufeff"))
    except ValueError as error:
        raise InvalidInput(
            f"the event on stdin is not JSON ({error}).",
            hint='By hand: echo \'{"session_id": "s1", "prompt": "…"}\' | runebook hook user-prompt.',
        ) from error


def _text(arguments: argparse.Namespace, wishes: Wishes, read: HookEvent, deadline: Deadline) -> tuple[str, bool]:
    """What the host's model is told: a server's word, else our own; and whether it is that."""
    if read.name == events.USER_PROMPT:
        return _recalled(wishes, read, deadline)
    answered = _asked(wishes, read, _LINE_SHARE * deadline.left_seconds)
    if answered is not None:
        return str(answered.get("text") or ""), False
    if read.is_fresh:
        from server.hooks.words import forget_given

        forget_given(wishes.state, read.session_id)
    return _opened(arguments, read).text, True


def _recalled(wishes: Wishes, read: HookEvent, deadline: Deadline) -> tuple[str, bool]:
    """What bears on a prompt, as ``_text``: a server is asked, and a slow one does not keep words from being found."""
    answers: list[dict[str, Any] | None] = []
    asking = threading.Thread(
        target=lambda: answers.append(_asked(wishes, read, deadline.left_seconds)), name="runebook-ask", daemon=True
    )
    asking.start()
    from server.hooks.words import recall  # while the server thinks

    asking.join(_HEAD_START_SECONDS)
    own = ""
    if answers[:1] in ([], [None]) and deadline.left_seconds >= _LEAST_SECONDS:
        own = recall(wishes.state, wishes.values, read)
    told = answers[0] if answers else None
    return (own, True) if told is None else (str(told.get("text") or ""), False)


def _store(arguments: argparse.Namespace, wishes: Wishes, read: HookEvent, deadline: Deadline) -> None:
    """Have the conversation stored: by a server, by this process, or by one that goes on after it."""
    from server.hooks.transcript import path_of

    if wishes.values["private_mode"] or not (read.messages or path_of(read.transcript)):
        return
    if read.name == events.STOP and not wishes.root.is_dir():
        return
    whose = (str(wishes.values["user_space"]), str(wishes.values["agent_space"]))
    note = pending.leave(wishes.state, read.name, read.host, read.given, whose)
    ending = read.name == events.SESSION_END
    answered = _asked(wishes, read, _END_SECONDS if ending else _LINE_SHARE * deadline.left_seconds)
    if answered is not None:
        _report_left_out(wishes, read, answered.get("notes"))
    elif ending:
        _begin_taking_in(wishes)
        return
    else:
        _report_left_out(wishes, read, _opened(arguments, read).notes)
    pending.settle(note)


def _asked(wishes: Wishes, read: HookEvent, seconds: float) -> dict[str, Any] | None:
    """What a running server says; None where none does, or it could not do it."""
    if seconds <= 0.0 or not (wishes.state / "lines").is_dir():
        return None
    from server.local.channel import ask

    # The server may have been started with other settings than this host's.
    mine = {name: wishes.values[name] for name in ("user_space", "agent_space", "private_mode")}
    request = {
        "verb": "hook",
        "event": read.name,
        "given": read.given,
        "cwd": read.cwd,
        "host": read.host,
        "wishes": mine,
    }
    answered = ask(wishes.state, request, seconds)
    if answered is not None and answered.get("ok") is not True:
        failures.report(wishes.state, read.name, f"the server: {answered.get('error')}")
        return None
    return answered


def _opened(arguments: argparse.Namespace, read: HookEvent) -> HookAnswer:
    """The answer of the store itself, opened without a model."""
    from memory_core.runebook import open_memory
    from server.hooks.answers import answer

    config = settings_of(arguments)
    silent = config.embedding.model_copy(update={"provider": "none"})
    with open_memory(config.model_copy(update={"embedding": silent})) as memory:
        return answer(memory, read.name, read.given, read.host, resident=False)


def _take_in(arguments: argparse.Namespace) -> None:
    """Store what earlier hooks left notes of."""
    config = settings_of(arguments)
    state = config.root / ".state"
    if not pending.waiting(state):
        return
    from memory_core.runebook import open_memory
    from server.hooks.answers import take_in

    silent = config.embedding.model_copy(update={"provider": "none"})
    with open_memory(config.model_copy(update={"embedding": silent})) as memory:
        take_in(memory)


def _begin_taking_in(wishes: Wishes) -> None:
    """Have another process follow the notes, which lives on when the host has ended this one."""
    import subprocess

    apart: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        apart = {"creationflags": subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP}
    process = subprocess.Popen(
        [sys.executable, "-m", "server.cli", "hook", TAKE_IN, *wishes.options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **apart,
    )
    process.returncode = 0  # it goes on by itself, and nobody here asks for its end any more


def _report_left_out(wishes: Wishes, read: HookEvent, notes: Any) -> None:
    if notes:
        failures.report(wishes.state, read.name, f"{len(notes)} messages were not stored: {notes[0]}")


def _told(error: Exception) -> str:
    hint = getattr(error, "hint", "")
    if isinstance(error, OSError):
        hint = "Check that folder and its permissions; runebook doctor says more."
    return f"{type(error).__name__}: {getattr(error, 'message', error)}" + (f" {hint}" if hint else "")
