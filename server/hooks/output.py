"""How each host is told something: the JSON that it reads from a hook's standard output. Pure."""

from __future__ import annotations

import json
from typing import Any

from server.hooks.event import CURSOR, GENERIC, STORING, USER_PROMPT, HookEvent

#: Claude Code and Cursor put what is longer into a file that the model would have to open; 10,000 is their limit.
TEXT_LIMIT_CHARS = 9_500


def rendered(event: HookEvent, text: str, form: str = "json") -> str:
    """What goes to standard output; empty where there is nothing to tell.

    Args:
        event: What is answered.
        text: What the model is to know.
        form: ``json`` as the host reads it, or ``text``.
    """
    if not text or event.name in STORING:
        return ""
    if form == "text":
        return f"{text}\n"
    return json.dumps(_object(event, text)) + "\n"  # ASCII alone: no console's encoding can spoil it


def _object(event: HookEvent, text: str) -> dict[str, Any]:
    if event.host == GENERIC:
        return {"context": text}
    if event.host == CURSOR:
        told: dict[str, Any] = {"additional_context": text}
        return {"continue": True, **told} if event.name == USER_PROMPT else told
    return {"hookSpecificOutput": {"hookEventName": event.called, "additionalContext": text}}
