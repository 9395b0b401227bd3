"""What a host tells at one of its events, whatever the host calls it.

Understands Claude Code, Codex, Gemini CLI and Cursor, and one generic form for every other host. Pure, and of the
standard library alone: a host waits while this is imported.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, NamedTuple

from memory_core.core.errors import InvalidInput

SESSION_START, USER_PROMPT, POST_READ = "session-start", "user-prompt", "post-read"
PRE_COMPACT, SESSION_END, STOP = "pre-compact", "session-end", "stop"
#: As the command line takes them.
EVENTS = (SESSION_START, USER_PROMPT, POST_READ, PRE_COMPACT, SESSION_END, STOP)
#: At these something is stored; at the others something is told.
STORING = (PRE_COMPACT, SESSION_END, STOP)

CLAUDE_CODE, CODEX, GEMINI, CURSOR, GENERIC = "claude-code", "codex", "gemini-cli", "cursor", "generic"
HOSTS = (CLAUDE_CODE, CODEX, GEMINI, CURSOR, GENERIC)

#: How hosts call the events, as far as an answer has to repeat the name.
_NAMES = {SESSION_START: "SessionStart", USER_PROMPT: "UserPromptSubmit", POST_READ: "PostToolUse"}
_GEMINI_NAMES = frozenset({"BeforeAgent", "AfterAgent", "AfterTool", "BeforeTool", "PreCompress"})
#: Sources of a start after which the host's context holds nothing of before.
_FRESH = frozenset({"compact", "clear"})
_SESSION = re.compile(r"(?!(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$))\w(?:[\w.-]{0,78}\w)?", re.IGNORECASE)
#: Cursor names folders of Windows as parts of an address.
_SLASHED_DRIVE = re.compile(r"/[A-Za-z]:(?:[\\/]|$)")


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
        cwd: The folder in which the host works; empty where it does not say.
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
    cwd: str
    source: str
    given: Mapping[str, Any]

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
    known = host or host_of(given, environment or {})
    called = _text(given, "hook_event_name")
    return HookEvent(
        name=name,
        host=known,
        called=called or _NAMES.get(name, name),
        session_id=session_name(_text(given, "session_id", "conversation_id", "sessionId")),
        prompt=_text(given, "prompt"),
        messages=tuple(messages) if isinstance(messages := given.get("messages"), list) else (),
        transcript=_text(given, "transcript_path"),
        cwd=_folder(given),
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
    name = unicodedata.normalize("NFC", text.strip())
    if not name or _SESSION.fullmatch(name):
        return name or None
    import hashlib  # its library takes longer to load than all of this

    return f"session-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:16]}"


def _folder(given: Mapping[str, Any]) -> str:
    roots = given.get("workspace_roots")
    first = next((root for root in roots if isinstance(root, str)), "") if isinstance(roots, list) else ""
    folder = _text(given, "cwd") or first
    return folder[1:] if _SLASHED_DRIVE.match(folder) else folder


def _text(given: Mapping[str, Any], *names: str) -> str:
    """The first of these members that is text and not blank; else empty."""
    found = (given.get(name) for name in names)
    return next((value for value in found if isinstance(value, str) and value.strip()), "")
