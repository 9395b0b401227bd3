"""The update loop's prompt: how many tokens the same conversation costs on a small and on a large store.

Fills fresh stores with memories of several types in English and Chinese, then asks the loop for its first request
about one conversation and counts it, by the library's own estimate, which leans high. No model is called.

    python -m bench.prompt

The limit is 12,000 tokens, and the count should be flat from 1,000 memories on.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory_core.core.config import Config, EmbeddingConfig
from memory_core.core.extract.prompts import Conversation
from memory_core.core.llm.client import LLMRequest
from memory_core.core.memory.message_shapes import parse_messages
from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.core.text.tokens import count_tokens
from memory_core.runebook import Runebook, open_memory

LIMIT_TOKENS = 12_000
_BATCH = 500
_PEOPLE = ("Mei", "Jonas", "Aisha", "李雷", "Priya", "韩梅梅", "Tom", "Sofia")
_SUBJECTS = ("coffee", "the billing service", "her garden", "跑步", "数据库迁移", "the Kyoto trip", "piano", "猫")
_VERBS = ("prefers", "finished", "worries about", "plans", "喜欢", "负责", "moved", "asked about")
_CONVERSATION: tuple[dict[str, Any], ...] = (
    {"role": "user", "content": "Jonas moved the billing service to the new cluster last night.", "time": "2026-05-02"},
    {"role": "assistant", "content": "Good. Shall I note the maintenance window?", "time": "2026-05-02"},
    {"role": "user", "content": "Yes: read-only from 02:00 to 02:12. 以后不要在周五发布。", "time": "2026-05-02"},
    {"role": "assistant", "content": "记住了:周五不发布。", "time": "2026-05-02"},
    {"role": "user", "content": "And Mei no longer drinks coffee, she has switched to tea.", "time": "2026-05-02"},
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One store's prompt; ``seconds`` is the time to build it."""

    memories: int
    total: int
    static: int
    schema: int
    dynamic: int
    seconds: float


def fill(memory: Runebook, count: int, rng: random.Random) -> None:
    """Commit ``count`` different memories."""
    writes = list(_writes(count, rng))
    for start in range(0, count, _BATCH):
        memory.commit(CommitRequest(operations={"write_operations": writes[start : start + _BATCH]}))


def _writes(count: int, rng: random.Random) -> Iterator[dict[str, Any]]:
    keys = {
        "preferences": "topic",
        "entities": "entity_name",
        "facts": "",
        "cases": "case_name",
        "events": "event_name",
    }
    for number in range(count):
        kind = rng.choice(sorted(keys))
        sentence = f"{rng.choice(_PEOPLE)} {rng.choice(_VERBS)} {rng.choice(_SUBJECTS)}"
        fields = {"content": f"{sentence}, noted as number {number}. " * rng.randint(1, 6)}
        if keys[kind]:
            fields[keys[kind]] = f"{sentence} {number}"
        yield {"memory_data": {"memory_type": kind, "fields": fields}}


def measure(memory: Runebook, memories: int) -> Measured:
    """The first request about the conversation."""
    conversation = Conversation("bench", parse_messages(list(_CONVERSATION)), language="English")
    memory.find(FindRequest("warm up"))
    started = time.perf_counter()
    steps = memory.extractor.orchestrator.extract(conversation, memory.extractor.view)
    request: LLMRequest = next(steps)
    seconds = time.perf_counter() - started
    steps.close()
    schema = count_tokens(json.dumps(request.schema, ensure_ascii=False, separators=(",", ":")))
    static, dynamic = count_tokens(request.system), sum(count_tokens(turn.text) for turn in request.turns)
    return Measured(memories, static + schema + dynamic, static, schema, dynamic, seconds)


def main() -> int:
    """Measure and print; exit status 1 if a prompt is over the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memories", type=int, nargs="+", default=[10, 1_000, 10_000])
    parser.add_argument("--words-only", action="store_true", help="without the embedding model: fills stores faster")
    arguments = parser.parse_args()
    provider: Any = "none" if arguments.words_only else "bundled"
    measured: list[Measured] = []
    for count in arguments.memories:
        with tempfile.TemporaryDirectory() as home:
            config = Config(home=Path(home), embedding=EmbeddingConfig(provider=provider, wait_seconds=60.0))
            with open_memory(config) as memory:
                fill(memory, count, random.Random(7))
                measured.append(measure(memory, count))
        row = measured[-1]
        print(
            f"{row.memories:>7,} memories: {row.total:>6,} tokens (static {row.static:,}, schema {row.schema:,}, "
            f"dynamic {row.dynamic:,}), built in {row.seconds * 1000:.0f} ms",
            flush=True,
        )
    print(f"limit: {LIMIT_TOKENS:,}")
    return int(any(row.total > LIMIT_TOKENS for row in measured))


if __name__ == "__main__":
    sys.exit(main())
