"""LoCoMo: are the turns found that answer a question?

Commits every conversation through the MCP tool over stdio, a fresh store each, then asks each question through
the library that the server uses, with shipped defaults. Prints the share of gold evidence turns among the
first 5 and 10 hits (fractional recall) and the mean reciprocal rank, by category.

    python -m bench.locomo --data locomo10.json

Categories: 1 multi-hop, 2 temporal, 3 open-domain, 4 single-hop, 5 adversarial (unanswerable: reported apart).
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters

from memory_core.config import Config, EmbeddingConfig
from memory_core.memory import Memory, open_memory

_EVIDENCE = re.compile(r"D\W*(\d+)\W+(\d+)")
_SESSION = re.compile(r"session_(\d+)")
_CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_SCORED = (1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the ids of the turns that answer it."""

    text: str
    category: int
    evidence: frozenset[str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one question went; recalls in [0, 1], ``seconds`` for the search."""

    category: int
    recall_5: float
    recall_10: float
    reciprocal_rank: float
    seconds: float


def sessions(conversation: Mapping[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Each session's id and messages, in order, dated by the session's own date."""
    numbers = sorted(int(found[1]) for key in conversation if (found := _SESSION.fullmatch(key)))
    for number in numbers:
        started = _date(conversation[f"session_{number}_date_time"])
        messages = []
        for turn in conversation[f"session_{number}"]:
            caption = f" [image: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
            messages.append(
                {
                    "role": "user",
                    "name": turn["speaker"],
                    "content": turn["text"] + caption or "[image]",
                    "time": started.isoformat(),
                    "id": _canonical(turn["dia_id"]),
                }
            )
        yield f"session_{number}", messages


def questions(sample: Mapping[str, Any]) -> Iterator[Question]:
    """Questions that have evidence; malformed ids are mended."""
    for item in sample["qa"]:
        evidence = frozenset(
            f"D{int(session)}:{int(turn)}"
            for text in item.get("evidence") or ()
            for session, turn in _EVIDENCE.findall(text)
        )
        if evidence:
            yield Question(item["question"], item["category"], evidence)


async def commit_over_stdio(home: Path, sample: Mapping[str, Any]) -> int:
    """Send every session to a real server; returns the number of messages stored."""
    parameters = StdioServerParameters(command=sys.executable, args=["-m", "server.cli", "serve", "--home", str(home)])
    stored = 0
    async with Client(parameters, mode="legacy") as client:
        for session_id, messages in sessions(sample["conversation"]):
            answer = await client.call_tool("commit_memory", {"messages": messages, "session_id": session_id})
            receipt: Any = getattr(answer, "structured_content", None)
            if not receipt or receipt["status"] not in ("committed", "queued"):
                raise SystemExit(f"{session_id} was not committed: {answer}")
            stored += receipt["usage"]["messages_new"]
    return stored


def ask(memory: Memory, asked: Sequence[Question], turn_ids: Mapping[str, str]) -> list[Outcome]:
    """Search for every question; ``turn_ids`` maps hit URIs to turn ids."""
    outcomes = []
    for question in asked:
        started = time.perf_counter()
        found = memory.find(question.text, limit=10)
        seconds = time.perf_counter() - started
        ranked = [turn_ids.get(hit.uri, hit.uri) for hit in found.hits]
        ranks = [rank for rank, turn in enumerate(ranked, 1) if turn in question.evidence]
        outcomes.append(
            Outcome(
                question.category,
                len(question.evidence & set(ranked[:5])) / len(question.evidence),
                len(question.evidence & set(ranked)) / len(question.evidence),
                1 / ranks[0] if ranks else 0.0,
                seconds,
            )
        )
    return outcomes


def report(outcomes: Sequence[Outcome], label: str) -> None:
    """Print a table row for each category and for all scored ones."""
    print(f"\n{label}\n  {'category':<14}{'n':>6}{'R@5':>8}{'R@10':>8}{'MRR':>8}")
    for category, name in _CATEGORIES.items():
        _row(f"{category} {name}", [item for item in outcomes if item.category == category])
    scored = [item for item in outcomes if item.category in _SCORED]
    _row("1–4", scored)
    _row("1–5", outcomes)
    times = sorted(item.seconds for item in outcomes)
    print(f"  find p50 {statistics.median(times) * 1e3:.1f} ms, p95 {times[int(len(times) * 0.95)] * 1e3:.1f} ms")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a file in LoCoMo's own format")
    data = json.loads(parser.parse_args().data.read_text(encoding="utf-8"))
    hybrid: list[Outcome] = []
    lexical: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="runebook-locomo-") as folder:
        for index, sample in enumerate(data):
            home = Path(folder) / str(index)
            stored = anyio.run(commit_over_stdio, home, sample)
            turn_ids = {
                f"viking://session/default/{session_id}/messages.jsonl#{line}": message["id"]
                for session_id, messages in sessions(sample["conversation"])
                for line, message in enumerate(messages)
            }
            asked = list(questions(sample))
            with open_memory(Config(home=home, embedding=EmbeddingConfig(wait_seconds=60.0))) as memory:
                hybrid += ask(memory, asked, turn_ids)
            with open_memory(Config(home=home, embedding=EmbeddingConfig(provider="none"))) as memory:
                lexical += ask(memory, asked, turn_ids)
            print(f"conversation {index + 1}: {stored} messages, {len(asked)} questions", flush=True)
    report(lexical, "words only (embedding.provider none)")
    report(hybrid, "shipped defaults")


def _row(name: str, outcomes: Sequence[Outcome]) -> None:
    if outcomes:
        means = [
            statistics.fmean(getattr(item, measure) for item in outcomes)
            for measure in ("recall_5", "recall_10", "reciprocal_rank")
        ]
        print(f"  {name:<14}{len(outcomes):>6}" + "".join(f"{mean:>8.3f}" for mean in means))


def _date(text: str) -> datetime:
    return datetime.strptime(text, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)


def _canonical(turn: str) -> str:
    session, number = _EVIDENCE.findall(turn)[0]
    return f"D{int(session)}:{int(number)}"


if __name__ == "__main__":
    main()
