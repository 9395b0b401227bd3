"""Each host's event is understood as what it is, and answered in the host's own form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memory_core.core.config import Config, HooksConfig, settings
from memory_core.core.errors import InvalidInput
from server.hooks.event import EVENTS, host_of, read_event, session_name
from server.hooks.output import rendered
from server.hooks.wishes import _DEFAULTS, read_wishes
from tests.server.hosts.host_events import SESSION, claude, cursor, gemini


@pytest.mark.parametrize(
    ("name", "given", "host", "answered"),
    [
        (
            "user-prompt",
            claude("UserPromptSubmit", prompt="hi"),
            "claude-code",
            {"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": "记忆"}},
        ),
        (
            "session-start",
            claude("SessionStart", "/home/u/.codex/sessions/rollout.jsonl", source="startup"),
            "codex",
            {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": "记忆"}},
        ),
        (
            "user-prompt",
            gemini("BeforeAgent", prompt="hi"),
            "gemini-cli",
            {"hookSpecificOutput": {"hookEventName": "BeforeAgent", "additionalContext": "记忆"}},
        ),
        ("session-start", cursor("sessionStart"), "cursor", {"additional_context": "记忆"}),
        (
            "user-prompt",
            cursor("beforeSubmitPrompt", prompt="hi"),
            "cursor",
            {"continue": True, "additional_context": "记忆"},
        ),
        ("user-prompt", {"session_id": "s", "prompt": "hi"}, "generic", {"context": "记忆"}),
    ],
)
def test_each_host_is_recognised_and_answered_in_its_form(
    name: str, given: dict[str, Any], host: str, answered: dict[str, Any]
) -> None:
    event = read_event(name, given)
    assert event.host == host
    output = rendered(event, "记忆")
    assert output.isascii()
    assert json.loads(output) == answered
    assert rendered(event, "记忆", "text") == "记忆\n"
    assert rendered(event, "") == ""


@pytest.mark.parametrize("name", ["pre-compact", "session-end", "stop"])
def test_an_event_at_which_something_is_stored_is_answered_with_silence(name: str) -> None:
    assert rendered(read_event(name, claude("SessionEnd")), "text") == ""


def test_sessions_keep_their_own_names_and_folders_of_windows_are_folders() -> None:
    assert read_event("stop", claude("Stop")).session_id == SESSION
    event = read_event("stop", cursor("stop"))
    assert (event.session_id, event.cwd) == ("c-7", "c:/Users/林/billing")
    assert read_event("stop", claude("Stop", cwd=r"C:\Users\林")).cwd == "C:\\Users\\林"
    assert session_name("会话-3") == "会话-3"
    for name in ("../../etc", "CON", "com1.x", "a" * 200):
        odd = session_name(name)
        assert odd is not None
        assert odd.startswith("session-")
        assert len(odd) < 40
    assert session_name(" ") is None


def test_an_environment_tells_a_host_that_its_event_does_not() -> None:
    assert host_of({"hook_event_name": "SessionStart"}, {"CURSOR_VERSION": "3"}) == "cursor"
    assert host_of({"hook_event_name": "SessionStart"}, {}) == "claude-code"


@pytest.mark.parametrize("given", [[], "x", None, 7])
def test_what_is_no_object_is_refused(given: Any) -> None:
    with pytest.raises(InvalidInput):
        read_event("stop", given)


def test_the_settings_read_without_the_library_are_those_of_the_library() -> None:
    whole = {name: default for name, default, _ in settings()}
    for name, default in _DEFAULTS.items():
        known = whole[name]
        assert default == (str(known) if name == "home" else known), name
    assert {f"hooks.{name}" for name in HooksConfig.model_fields} <= _DEFAULTS.keys()
    assert all(hasattr(Config().hooks, event.replace("-", "_")) for event in EVENTS)


def test_settings_come_from_options_before_variables_before_the_file(tmp_path: Any) -> None:
    home = tmp_path / "家"
    home.mkdir()
    file = {"hooks": {"stop": True, "deadline_ms": 400, "user_prompt": "no"}, "private_mode": 1, "user_space": "ana"}
    (home / "config.json").write_text(json.dumps(file), encoding="utf-8")
    variables = {"RUNEBOOK_HOOKS_DEADLINE_MS": "300", "RUNEBOOK_USER_SPACE": "", "RUNEBOOK_HOME": "/elsewhere"}
    wishes = read_wishes(str(home), None, ["hooks.deadline_ms=200"], variables)
    assert wishes.root == home
    assert wishes.values["hooks.deadline_ms"] == 200
    assert wishes.values["user_space"] == "ana"
    assert wishes.values["private_mode"] is True
    assert wishes.wants("stop")
    assert not wishes.wants("user-prompt")
    assert read_wishes(str(home), None, [], variables).values["hooks.deadline_ms"] == 300
    assert read_wishes(str(home), None, [], {}).values["hooks.deadline_ms"] == 400
    assert read_wishes(str(home), None, ["hooks.deadline_ms=soon"], {}).values["hooks.deadline_ms"] == 400
    (home / "config.json").write_text("{broken", encoding="utf-8")
    assert read_wishes(str(home), None, [], {}).values["hooks.deadline_ms"] == 250
