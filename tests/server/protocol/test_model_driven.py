"""A server that calls a model, over stdio, with the real SDKs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.core.llm.stand_ins import Reply, StandIn, anthropic_message, openai_completion
from tests.server.conftest import WORDS_ONLY, RawClient

KEY = "sk-test-0123456789-secret"
TALK = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "I moved to Osaka. 我只喝绿茶。", "time": "2026-05-02T10:00:00Z"},
    {"role": "assistant", "content": "Noted. 好的。", "time": "2026-05-02T10:01:00Z"},
]
TEA = "viking://user/default/memories/preferences/茶.md"
ANSWER = json.dumps(
    {
        "reasoning": "a preference",
        "memory_changes": [{"change_type": "add", "memory_type": "preferences", "reason": "new"}],
        "actions": [],
        "operations": {
            "write_operations": [
                {"memory_data": {"memory_type": "preferences", "fields": {"topic": "茶", "content": "只喝绿茶。"}}}
            ]
        },
        "summary": "Moved to Osaka; green tea only.",
    },
    ensure_ascii=False,
)


def reply(provider: str) -> Reply:
    return anthropic_message(ANSWER) if provider == "anthropic" else openai_completion(ANSWER)


@contextmanager
def served(
    monkeypatch: pytest.MonkeyPatch, home: Path, provider: str, replies: Sequence[Reply]
) -> Iterator[tuple[RawClient, StandIn]]:
    monkeypatch.setitem(os.environ, f"{provider.upper()}_API_KEY", KEY)
    with StandIn(replies) as stand_in:
        url = stand_in.url + ("" if provider == "anthropic" else "/v1")
        chosen = [f"llm.provider={provider}", "llm.model=stand-in", f"llm.base_url={url}"]
        options = [part for setting in chosen for part in ("--set", setting)]
        with RawClient(home, *WORDS_ONLY, *options, errors=home.with_suffix(".log")) as client:
            yield client, stand_in


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_a_conversation_becomes_memories_with_one_request(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, provider: str
) -> None:
    with served(monkeypatch, tmp_path / "home", provider, [reply(provider)]) as (client, stand_in):
        receipt = client.call("commit_memory", messages=TALK, session_id="s1")["structuredContent"]
        assert receipt["status"] == "committed"
        assert TEA in [line["uri"] for line in receipt["results"] if line["action"] == "created"]
        assert receipt["usage"]["model_requests"] == len(stand_in.requests) == 1
        assert receipt["usage"]["prompt_tokens"] == 10
        assert "green tea" in receipt["working_memory"]["summary"]
    assert KEY not in (tmp_path / "home.log").read_text(encoding="utf-8")


def test_without_a_key_the_conversation_waits_and_the_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    options = ("--set", "llm.provider=anthropic", "--set", "llm.model=m", *WORDS_ONLY)
    with RawClient(tmp_path / "other", *options) as client:
        receipt = client.call("commit_memory", messages=TALK, session_id="s1")["structuredContent"]
        assert receipt["status"] == "queued"
        assert "ANTHROPIC_API_KEY" in json.dumps(receipt)
