"""What a running server answers over its channel, as the settings and the wishes of who asks have it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.caller import Access
from memory_core.core.config import load
from memory_core.core.errors import InvalidInput
from memory_core.core.memory.requests import CommitRequest
from memory_core.core.store.users import SeenUsers
from memory_core.features.recall_trail import TRAIL, TrailRequest
from memory_core.runebook import open_memory
from server.hosts import hook_notes
from server.local.channel import submit
from server.local.channel_requests import ChannelRequests, listen
from server.protocol.session import ServedStore
from tests.waiting import PATIENCE_SECONDS

SAID = [{"role": "user", "content": "The ferry leaves at nine. 渡轮九点开。"}]


def unopened() -> ServedStore:
    return ServedStore(lambda: pytest.fail("opened"))


def config_of(home: Path) -> Any:
    return load(environment={}, flags={"home": str(home), "embedding.provider": "none"})


def test_a_hook_that_names_no_event_is_refused() -> None:
    with pytest.raises(InvalidInput, match="host gave"):
        ChannelRequests(unopened())({"verb": "hook"})


def test_without_a_folder_to_announce_in_nobody_can_ask_and_there_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "state").write_text("not a folder", encoding="utf-8")
    listen(unopened(), tmp_path / "state", kind="stdio", settings="")()
    (warning,) = caplog.records
    assert "cannot ask this server" in warning.message


def test_what_hooks_left_while_no_server_ran_is_stored_by_the_next_one(tmp_path: Path) -> None:
    config, state = config_of(tmp_path), tmp_path / ".state"
    hook_notes.leave(state, "session-end", "generic", {"session_id": "s1", "messages": SAID, "cwd": str(tmp_path)})
    store = ServedStore(lambda: open_memory(config), lambda store: listen(store, state, kind="stdio", settings=""))
    store.acquire()
    try:
        store.memory()
        deadline = time.monotonic() + PATIENCE_SECONDS
        given = {"session_id": "s2", "messages": SAID, "cwd": str(tmp_path)}
        request = {"event": "session-end", "given": given, "host": "generic"}
        while hook_notes.waiting(state) or (answer := submit(state, "hook", request, PATIENCE_SECONDS)) is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert answer["stored"] == 1
    finally:
        store.release()
    stored = [path.read_text(encoding="utf-8") for path in tmp_path.rglob("messages.jsonl")]
    assert len(stored) == 2
    assert all("渡轮九点开" in text for text in stored)


@pytest.mark.parametrize(("wishes", "space"), [({"user_space": "work"}, "work"), ({}, "default")], ids=str)
def test_a_hook_is_answered_as_its_own_settings_say(tmp_path: Path, wishes: Mapping[str, Any], space: str) -> None:
    with open_memory(config_of(tmp_path)) as memory:
        given = {"session_id": "s1", "messages": SAID, "cwd": str(tmp_path)}
        request = {"verb": "hook", "event": "session-end", "given": given, "host": "generic", "wishes": wishes}
        assert ChannelRequests(ServedStore(lambda: memory))(request)["stored"] == 1
        memory.opened.background.finish()
        assert space in {row.user_space for row in SeenUsers(memory.opened.tokens().database).rows()}
    assert [path.parts[-3] for path in tmp_path.rglob("messages.jsonl")] == [space]


def test_a_hook_whose_host_keeps_nothing_leaves_no_trace_at_a_server_that_does(tmp_path: Path) -> None:
    with open_memory(config_of(tmp_path)) as memory:
        memory.commit(CommitRequest("The ferry leaves at nine. 渡轮九点开。"))
        request = {"verb": "hook", "event": "user-prompt", "given": {"prompt": "When does the ferry leave, nine?"}}
        answers = ChannelRequests(ServedStore(lambda: memory))
        assert "ferry" in answers({**request, "wishes": {"private_mode": True}})["text"]
        assert memory.run(TRAIL, TrailRequest()) == []
        assert "ferry" in answers(request)["text"]
        assert memory.run(TRAIL, TrailRequest()) != []
        private = ChannelRequests(ServedStore(lambda: memory.view(access=Access.PRIVATE)))
        with pytest.raises(InvalidInput, match="private mode"):
            private({**request, "wishes": {"private_mode": False}})
