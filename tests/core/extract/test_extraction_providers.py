"""Real SDKs, real store: whatever a provider does, the messages are kept and the receipt tells the truth."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from memory_core.core.config import LLMConfig
from memory_core.core.memory.requests import CommitRequest, FindRequest, ReadRequest
from memory_core.core.memory.results import Action, Status, as_json
from memory_core.runebook import Runebook, open_memory
from tests.core.llm.stand_ins import (
    Reply,
    StandIn,
    anthropic_message,
    failure,
    openai_completion,
    raw,
    reset,
)
from tests.stores import answer, words_only, write

Provider = Literal["anthropic", "openai"]
PROVIDERS: tuple[Provider, ...] = ("anthropic", "openai")
KEY = "sk-test-0123456789-secret"
TALK = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "I moved to Osaka. 我只喝绿茶。", "time": "2026-05-02T10:00:00Z"},
    {"role": "assistant", "content": "Noted. 好的。", "time": "2026-05-02T10:01:00Z"},
]
LOG = "viking://session/default/s1/messages.jsonl"
TEA = "viking://user/default/memories/preferences/茶.md"
ANSWER = answer(write("preferences", topic="茶", content="只喝绿茶。"))


def reply(provider: Provider, text: str, stop: str = "") -> Reply:
    if provider == "anthropic":
        return anthropic_message(text, stop or "end_turn")
    return openai_completion(text, {"max_tokens": "length", "refusal": "content_filter"}.get(stop, "stop"))


@contextmanager
def opened(
    monkeypatch: pytest.MonkeyPatch, home: Path, provider: Provider, replies: Sequence[Reply], **llm: Any
) -> Iterator[tuple[Runebook, StandIn]]:
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", KEY)
    with StandIn(replies) as stand_in:
        url = stand_in.url + ("" if provider == "anthropic" else "/v1")
        settings = LLMConfig(provider=provider, model="stand-in", base_url=url, **llm)
        with open_memory(words_only(home, llm=settings)) as memory:
            yield memory, stand_in


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_passing_fault_is_retried_and_the_memories_are_committed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, provider: Provider
) -> None:
    first = failure(529, headers={"retry-after-ms": "1"})
    with opened(monkeypatch, tmp_path, provider, [first, reply(provider, ANSWER)]) as (memory, stand_in):
        receipt = memory.commit(CommitRequest(messages=TALK, session_id="s1"))
        assert receipt.status is Status.COMMITTED
        assert TEA in receipt.changed_uris
        assert len(stand_in.requests) == 2


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("replies", "llm", "why"),
    [
        ([failure(401, "invalid x-api-key")], {}, "API_KEY"),
        ([reset()], {"retries": 0}, "onnection"),
        ([raw("<html>a proxy</html>")], {"retries": 0}, "llm.base_url"),
        (["cut"] * 2, {}, "token limit"),
        (["prose"] * 2, {}, "JSON"),
    ],
    ids=["401", "reset", "no JSON body", "cut", "no JSON answer"],
)
def test_a_lasting_fault_keeps_the_messages_and_says_why_they_wait(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    provider: Provider,
    replies: Sequence[Any],
    llm: dict[str, Any],
    why: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    shaped = {
        "cut": reply(provider, ANSWER[:150], "max_tokens"),
        "prose": reply(provider, "I would rather talk about the weather."),
    }
    script = [shaped[item] if isinstance(item, str) else item for item in replies]
    with opened(monkeypatch, tmp_path, provider, script, **llm) as (memory, stand_in):
        receipt = memory.commit(CommitRequest(messages=TALK, session_id="s1"))
        assert receipt.status is Status.QUEUED
        (line,) = [result for result in receipt.results if result.op == "extraction"]
        assert line.action is Action.QUEUED
        assert why in f"{line.note} {line.hint}"
        assert len(stand_in.requests) == len(script)
        assert "我只喝绿茶" in memory.read(ReadRequest(LOG)).content
        assert memory.find(FindRequest("绿茶", filter={"memory_type": "preferences"})).total == 0
        assert KEY not in json.dumps(as_json(receipt))
    assert KEY not in caplog.text
