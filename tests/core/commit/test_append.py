"""Conversations as they come in: kept verbatim, nothing twice, and waiting for extraction until that is done."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.commit.append import Growing, Learned
from memory_core.core.config import Config
from memory_core.core.errors import TooLarge
from memory_core.core.feature import Cleaner, Features
from memory_core.core.memory.message import Message
from memory_core.core.memory.requests import CommitRequest, FindRequest, ReadRequest
from memory_core.core.memory.results import Action, CommitReceipt, OperationResult, Status
from memory_core.features import FEATURES
from memory_core.features.redaction import Redaction
from memory_core.runebook import Runebook, open_memory
from tests.stores import words_only

LOG = "viking://session/default/s1/messages.jsonl"
TALK = [
    {"role": "user", "content": "Caroline went to the support group.", "time": "2023-05-08T13:56:00+00:00"},
    {"role": "assistant", "content": "她去了互助小组。", "time": "2023-05-08T13:57:00+00:00"},
]


def stored(receipt: CommitReceipt) -> OperationResult:
    return next(result for result in receipt.results if result.op == "messages")


def waits(receipt: CommitReceipt) -> OperationResult | None:
    return next((result for result in receipt.results if result.op == "extraction"), None)


def lines(memory: Runebook) -> list[dict[str, Any]]:
    return [json.loads(line) for line in memory.read(ReadRequest(LOG)).content.splitlines()]


def test_messages_are_stored_verbatim_with_their_dates(memory: Runebook) -> None:
    receipt = memory.commit(CommitRequest(messages=TALK, session_id="s1"))
    assert (stored(receipt).uri, receipt.usage) == (LOG, {"messages": 2, "messages_new": 2})
    assert [line["content"] for line in lines(memory)] == [message["content"] for message in TALK]
    assert [datetime.fromisoformat(line["time"]) for line in lines(memory)] == [
        datetime.fromisoformat(message["time"]) for message in TALK
    ]


def test_a_conversation_grows_no_further_than_it_can_be_read(memory: Runebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory_core.core.commit.append._LOG_LIMIT_BYTES", 500)
    memory.commit(CommitRequest(messages=TALK, session_id="s1"))
    with pytest.raises(TooLarge, match="would be over"):
        memory.commit(CommitRequest(messages=[{"role": "user", "content": "今天" * 200}], session_id="s1"))
    assert len(lines(memory)) == 2
    memory.commit(CommitRequest(messages=[{"role": "user", "content": "Bye."}], session_id="s1"))
    assert len(lines(memory)) == 3


def test_a_conversation_takes_so_many_messages_and_calls(memory: Runebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory_core.core.commit.append._LOG_LIMIT_ITEMS", 8)
    memory.commit(CommitRequest(messages=TALK, session_id="s1"))
    call = {"name": "look", "arguments": {"at": ["here", "there"]}}
    memory.commit(CommitRequest(messages=[{"role": "assistant", "tool_calls": [call]}], session_id="s1"))
    with pytest.raises(TooLarge, match="over 8 messages, tool calls with their values, and results"):
        memory.commit(CommitRequest(messages=[{"role": "user", "content": "Bye."}], session_id="s1"))
    assert len(lines(memory)) == 3


def test_a_conversation_that_overlaps_adds_only_what_is_new(memory: Runebook) -> None:
    memory.commit(CommitRequest(messages=TALK, session_id="s1"))
    more = [*TALK, {"role": "user", "content": "And then? 然后呢?", "time": "2023-05-08T13:58:00+00:00"}]
    receipt = memory.commit(CommitRequest(messages=more[1:], session_id="s1"))
    assert receipt.usage == {"messages": 2, "messages_new": 1}
    assert [line["content"] for line in lines(memory)] == [message["content"] for message in more]
    assert stored(memory.commit(CommitRequest(messages=more, session_id="s1"))).action is Action.UNCHANGED


def test_a_conversation_without_an_id_finds_its_session_again(memory: Runebook) -> None:
    first = memory.commit(CommitRequest(messages=TALK[:1]))
    second = memory.commit(CommitRequest(messages=TALK))
    assert stored(first).uri == stored(second).uri
    assert second.usage == {"messages": 2, "messages_new": 1}


def test_messages_append_to_a_log_that_lost_its_last_newline(memory: Runebook, tmp_path: Path) -> None:
    memory.commit(CommitRequest(messages=TALK, session_id="s1"))
    path = tmp_path / "session/default/s1/messages.jsonl"
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    memory.commit(CommitRequest(messages=[*TALK, {"role": "user", "content": "zebra 斑马"}], session_id="s1"))
    assert [line["content"] for line in lines(memory)][-1] == "zebra 斑马"
    (hit,) = memory.find(FindRequest("zebra")).resources
    assert hit.uri == f"{LOG}#2"
    assert "zebra 斑马" in memory.read(ReadRequest(hit.uri)).content


def test_a_conversation_is_stored_and_says_that_its_memories_wait(memory: Runebook) -> None:
    receipt = memory.commit(CommitRequest(messages=TALK, session_id="s1"))
    assert receipt.status is Status.QUEUED
    assert stored(receipt).action is Action.CREATED
    line = waits(receipt)
    assert line is not None
    assert (line.action, line.uri) == (Action.QUEUED, LOG)
    (row,) = memory.extractor.waiting()
    assert (str(row.log), row.waiting) == (LOG, 2)


def test_without_an_extractor_a_conversation_is_committed_and_waits_for_nothing(tmp_path: Path) -> None:
    config = words_only(tmp_path, extractor="none")
    with open_memory(config) as memory:
        receipt = memory.commit(CommitRequest(messages=TALK, session_id="s1"))
        assert receipt.status is Status.COMMITTED
        assert waits(receipt) is None
        assert memory.extractor.waiting() == []
        assert memory.commit(CommitRequest(messages=TALK, session_id="s1")).status is Status.UNCHANGED


@pytest.mark.parametrize(("count", "content"), [(600, "line"), (5, "a long line " * 2_000)])
def test_other_writers_need_not_wait_while_a_long_conversation_is_read(
    tmp_path: Path, count: int, content: str
) -> None:
    """What its messages teach is worked out before the store is locked."""

    class Busy(Features):
        def members(self, name: str) -> tuple[Any, ...]:
            return (learn,) if name == "learner" else super().members(name)

    others: list[CommitReceipt] = []

    def learn(_growing: Growing) -> Learned:
        if not others:
            with open_memory(words_only(tmp_path)) as other:
                others.append(other.commit(CommitRequest("Tea at four.")))
        return Learned()

    said = [{"role": "user", "content": f"{content} {number}"} for number in range(count)]
    with open_memory(words_only(tmp_path), features=Busy(FEATURES.slices)) as memory:
        receipt = memory.commit(CommitRequest(messages=said, session_id="long"))
    assert others[0].status == "committed"
    assert receipt.usage == {"messages": count, "messages_new": count}


def test_of_what_was_stored_before_redaction_only_what_comes_again_is_redacted_to_compare_it(tmp_path: Path) -> None:
    read: list[int] = []

    class Counting(Redaction):
        def messages(self, messages: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[str, ...]]:
            read.append(len(messages))
            return super().messages(messages)

    class Counted(Features):
        def cleaner(self, config: Config) -> Cleaner:
            return Counting(config.secrets, config.secrets_allowed)

    secret = {
        "role": "user",
        "content": "The key for staging is sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789",
    }
    said = [secret, *({"role": "assistant", "content": f"Deployed part {number}."} for number in range(300))]
    with open_memory(words_only(tmp_path, secrets="off")) as memory:
        memory.commit(CommitRequest(messages=said, session_id="s1"))
    with open_memory(words_only(tmp_path), features=Counted(FEATURES.slices)) as memory:
        receipt = memory.commit(CommitRequest(messages=[*said[:5], TALK[0]], session_id="s1"))
    assert receipt.usage == {"messages": 6, "messages_new": 1}
    assert read == [6, 5]


def test_a_message_that_joins_a_long_conversation_costs_few_copies_of_it(tmp_path: Path) -> None:
    def block(number: int) -> list[dict[str, Any]]:
        roles = ("user", "assistant")
        return [{"role": role, "content": f"🍵 {number} {role} {'green tea ' * 20_000}"} for role in roles * 2]

    config = words_only(tmp_path)
    with open_memory(config) as memory:
        for number in range(5):
            memory.commit(CommitRequest(messages=block(number), session_id="s1"))
    with open_memory(config) as memory:
        memory.commit(CommitRequest(messages=TALK, session_id="s1"))  # reads it, and imports modules
        memory.indexer.follow(None)
        whole = len(memory.store.text(memory.commits.session_uri("s1")) or "") * 4
        tracemalloc.start()
        try:
            memory.commit(CommitRequest(messages=[{"role": "user", "content": "And coffee?"}], session_id="s1"))
            memory.indexer.follow(None)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 2.5 * whole
