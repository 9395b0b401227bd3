"""No secret that a commit brings reaches the disk, in whatever part of it; everything else does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.errors import ContentRejected
from memory_core.core.memory.requests import CommitRequest, FindRequest, ReadRequest, RetrieveRequest
from memory_core.core.memory.results import Action, Status, as_json
from memory_core.features.recall_trail import TRAIL, TrailRequest
from memory_core.runebook import Runebook, open_memory
from tests.stores import body, edited, fact, holding, only, words_only

TOKEN = "ghp_" + "a1B2c3D4e5F6" * 3
OTHER = "npm_" + "a1B2c3D4e5F6" * 3
PASSWORD = "hunter2hunter"
MARK = "[redacted: GitHub token]"
OWN = "viking://user/default/memories"

Opened = Callable[..., AbstractContextManager[Runebook]]


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    return lambda **settings: open_memory(words_only(tmp_path, **settings))


CONVERSATION: list[dict[str, Any]] = [
    {"role": "user", "content": f"use {TOKEN}, 我的密码是{PASSWORD}", "name": "Ada"},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "logging in"},
            {"type": "tool_use", "id": "c1", "name": "login", "input": {"user": "ada", "password": PASSWORD}},
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": f"token={TOKEN}"}]},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "c2", "function": {"name": "login", "arguments": json.dumps({"deep": [{"apiToken": TOKEN}]})}}
        ],
    },
    {"role": "tool", "tool_call_id": "c2", "content": f"Authorization: Bearer {TOKEN}"},
]


def sent(memory: Runebook, messages: list[dict[str, Any]]) -> Any:
    """What a receipt says of a conversation that is sent."""
    return memory.commit(CommitRequest(messages=messages, session_id="s")).usage


def everywhere(memory: Runebook) -> None:
    """Commits with a secret in every part that is stored, and questions that hold one."""
    memory.commit(CommitRequest(f"my key is {TOKEN}, 密码是{PASSWORD}"))
    memory.commit(CommitRequest(f"deploy with {TOKEN}", category="logs"))
    memory.commit(CommitRequest(f"deploy with {TOKEN}", memory_type="daily_logs"))
    memory.commit(CommitRequest("x", memory_type="facts", fields={"topic": f"key {TOKEN}"}, category=f"c {TOKEN}"))
    data = {"memory_type": "facts", "fields": {"topic": "deploy", "content": "how we deploy"}}
    extra = {"abstract": f"a {TOKEN}", "overview": f"o {TOKEN}", "tags": [TOKEN], "category": TOKEN, "unknown": TOKEN}
    extra |= {TOKEN: "a name"}
    writes = [{"memory_data": data | extra, "more": TOKEN}]
    unknown = {TOKEN: 1, "write_operations": writes}
    assert TOKEN not in str(memory.commit(CommitRequest(operations={"reasoning": f"because {TOKEN}", **unknown})))
    patch = f"<<<<<<< SEARCH\nhow we deploy\n=======\nhow we deploy: {TOKEN}\n>>>>>>> REPLACE"
    edits = [
        {"uri": f"{OWN}/facts/deploy.md", "patches": {"content": patch}},
        {"uri": f"{OWN}/facts/deploy.md", "patches": {"content": [{"search": "deploy", "replace": f"ship {TOKEN}"}]}},
        {"uri": f"{OWN}/facts/deploy.md", "patches": {"content": f"whole {TOKEN}"}},
        {"uri": f"{OWN}/facts/none.md", "patches": {"content": f"whole {TOKEN}"}},
        {"uri": f"{OWN}/facts/deploy.md", "tags": [TOKEN]},
    ]
    operations = {
        "edit_operations": edits,
        "overview_operations": [{"directory_uri": f"{OWN}/facts", "abstract": f"a {TOKEN}", "overview": f"o {TOKEN}"}],
        "delete_operations": [{"uri": f"{OWN}/facts/none.md", "reason": TOKEN}],
        "write_operations": [{"memory_data": {"memory_type": TOKEN, "fields": {}}}, {"bad": TOKEN}],
    }
    memory.commit(CommitRequest(operations=operations))
    memory.commit(CommitRequest(messages=CONVERSATION, session_id="s"))
    memory.find(FindRequest(f"what is {TOKEN}", project=TOKEN))
    memory.retrieve(RetrieveRequest(f"what is {TOKEN}", session_id="s", project=TOKEN))
    memory.run(TRAIL, TrailRequest())


@pytest.mark.parametrize("mode", ["redact", "refuse"])
def test_a_secret_in_any_part_of_a_commit_or_question_never_touches_the_disk(
    opened: Opened, tmp_path: Path, mode: str
) -> None:
    with opened(secrets=mode) as memory:
        everywhere(memory)
        assert holding(tmp_path, TOKEN, PASSWORD) == []
    assert holding(tmp_path, TOKEN, PASSWORD) == []
    assert holding(tmp_path, MARK)


@pytest.mark.parametrize("mode", ["warn", "off"])
def test_the_owner_can_have_all_stored(opened: Opened, mode: str) -> None:
    with opened(secrets=mode) as memory:
        receipt = memory.commit(CommitRequest(f"my key is {TOKEN}"))
        assert TOKEN in memory.read(ReadRequest(only(receipt).uri)).content
    assert bool(receipt.notes) is (mode == "warn")
    assert TOKEN not in str(receipt.notes)


def test_the_receipt_names_the_place_and_the_kind_and_never_the_secret(opened: Opened) -> None:
    for dry_run in (True, False):
        with opened() as memory:
            text = f"my key is {TOKEN} for builds"
            receipt = memory.commit(CommitRequest(text, memory_type="facts", dry_run=dry_run))
            assert receipt.status is (Status.DRY_RUN if dry_run else Status.COMMITTED)
            assert receipt.notes == (
                "stored without a secret: GitHub token in write_operations[0].memory_data.fields.content",
            )
            assert TOKEN not in str(as_json(receipt))
    with opened() as memory:
        assert body(memory, only(receipt).uri) == f"my key is {MARK} for builds"


def test_refusing_spares_the_other_operations(opened: Opened) -> None:
    writes = [
        {"memory_data": {"memory_type": "facts", "fields": {"topic": topic, "content": content}}}
        for topic, content in (("a", "safe"), ("b", TOKEN))
    ]
    with opened(secrets="refuse") as memory:
        receipt = memory.commit(CommitRequest(operations={"write_operations": writes}))
        assert receipt.status is Status.PARTIAL
        assert [result.action for result in receipt.results] == [Action.CREATED, Action.REJECTED]
        assert "GitHub token" in (receipt.results[1].reason or "")
        assert receipt.results[1].hint
        assert memory.commit(CommitRequest(TOKEN)).status is Status.REJECTED


def test_a_conversation_that_is_sent_again_is_known_and_its_calls_are_counted_once(opened: Opened) -> None:
    with opened() as memory:
        assert sent(memory, CONVERSATION) == {"messages": 5, "messages_new": 5}
        assert sent(memory, [*CONVERSATION, {"role": "user", "content": "thanks"}]) == {
            "messages": 6,
            "messages_new": 1,
        }
        unnamed = [memory.commit(CommitRequest(messages=CONVERSATION)).results[0].uri for _ in range(2)]
        assert unnamed[0] == unnamed[1]
        assert '"total_calls": 2' in memory.read(ReadRequest("viking://agent/default/memories/tools/login.md")).content


def test_a_conversation_stored_before_it_was_redacted_is_known_too(opened: Opened) -> None:
    with opened(secrets="off") as memory:
        memory.commit(CommitRequest(messages=CONVERSATION, session_id="s"))
    with opened() as memory:
        assert sent(memory, CONVERSATION) == {"messages": 5, "messages_new": 0}


def test_a_secret_can_be_patched_out_of_a_file_that_a_person_wrote(opened: Opened, tmp_path: Path) -> None:
    with opened() as memory:
        uri = fact(memory, "deploy", "how we deploy")
        path = tmp_path / "user" / "default" / "memories" / "facts" / "deploy.md"
        path.write_text(
            path.read_text(encoding="utf-8").replace("how we deploy", f"key {TOKEN}\nnext"), encoding="utf-8"
        )
        memory.store.adopt()
        beside = f"<<<<<<< SEARCH\nkey {TOKEN}\nnext\n=======\nkey {TOKEN}\nlast {OTHER}\n>>>>>>> REPLACE"
        edited(memory, uri, {"patches": {"content": beside}})
        assert body(memory, uri) == f"key {TOKEN}\nlast [redacted: npm token]"
        out = [{"search": f"key {TOKEN}", "replace": "key is in the vault"}]
        assert only(edited(memory, uri, {"patches": {"content": out}})).action is Action.UPDATED
        assert TOKEN not in memory.read(ReadRequest(uri)).content


def test_names_that_must_stay_exact_are_refused_with_a_secret_in_them(opened: Opened, tmp_path: Path) -> None:
    hello = [{"role": "user", "content": "hello there"}]
    with opened() as memory:
        for arguments in (
            {"memory_content": "x", "request_id": TOKEN},
            {"messages": hello, "session_id": TOKEN},
            {"messages": hello, "request_id": TOKEN},
            {"memory_content": "x", "memory_type": "facts", "project": TOKEN},
        ):
            with pytest.raises(ContentRejected, match="GitHub token"):
                memory.commit(CommitRequest(**arguments))
        with pytest.raises(ContentRejected, match="GitHub token"):
            memory.retrieve(RetrieveRequest("hello", session_id=TOKEN))
        memory.commit(CommitRequest("x", request_id="4111111111111111"))
    assert holding(tmp_path, TOKEN) == []


def test_the_owner_allows_single_strings_or_their_hashes(opened: Opened) -> None:
    with opened(secrets_allowed=(hashlib.sha256(TOKEN.encode()).hexdigest(), "4111 1111 1111 1111")) as memory:
        receipt = memory.commit(CommitRequest(f"fixtures: {TOKEN}, 4111 1111 1111 1111, {OTHER}"))
        assert body(memory, only(receipt).uri) == (f"fixtures: {TOKEN}, 4111 1111 1111 1111, [redacted: npm token]")
