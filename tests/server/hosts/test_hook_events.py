"""Each host's event is understood as what it is, and answered in the host's own form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.config import settings
from memory_core.core.errors import InvalidInput
from server.early_settings import _DEFAULTS, read_early
from server.hosts.hook import EVENTS, host_of, read_event, rendered, session_name
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
    roots = ["/c:/Users/林/billing", 7, " ", "/work", "/work"]
    assert read_event("stop", cursor("stop", workspace_roots=roots)).folders == ("c:/Users/林/billing", "/work")
    assert (read_event("stop", {}).folders, read_event("stop", {}).cwd) == ((), "")
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
    assert {name: whole[name] for name in _DEFAULTS} | {"home": str(whole["home"])} == _DEFAULTS
    assert {f"hooks.{event.replace('-', '_')}" for event in EVENTS} <= _DEFAULTS.keys()


def test_settings_come_from_options_before_variables_before_the_file(tmp_path: Path) -> None:
    home = tmp_path / "家"
    home.mkdir()
    file = {"hooks": {"stop": True, "deadline_ms": 400, "user_prompt": "no"}, "private_mode": 1, "user_space": "ana"}
    (home / "config.json").write_text(json.dumps(file), encoding="utf-8")
    variables = {"RUNEBOOK_HOOKS_DEADLINE_MS": "300", "RUNEBOOK_USER_SPACE": "", "RUNEBOOK_HOME": "/elsewhere"}
    read = read_early(str(home), None, ["hooks.deadline_ms=200"], variables)
    assert (read.root, read.state) == (home, home / ".state")
    assert (read.values["user_space"], read.values["private_mode"]) == ("ana", True)
    assert (read.values["hooks.stop"], read.values["hooks.user_prompt"]) == (True, False)

    def deadline(variables: dict[str, str], *flags: str) -> Any:
        return read_early(str(home), None, flags, variables).values["hooks.deadline_ms"]

    assert deadline(variables, "hooks.deadline_ms=200") == 200
    assert deadline(variables) == 300
    assert deadline({}) == deadline({}, "hooks.deadline_ms=soon") == 400
    (home / "config.json").write_text("{broken", encoding="utf-8")
    assert deadline({}) == 1_000
